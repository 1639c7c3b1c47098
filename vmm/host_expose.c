// host_expose.c: exposed mode: the CPU's view of device memory.
//
//     reservation   [ PROT_NONE ............................................ ]   one anonymous mapping
//     map           [ NONE | memfd @o1, PROT_NONE | NONE ................... ]   MAP_FIXED over it, whole
//     set-access    [ NONE | memfd @o1, READ|WRITE | NONE .................. ]   mprotect, whole
//     unmap         [ PROT_NONE ............................................ ]   MAP_FIXED over it, whole
//
// No step splits a mapping of a chunk: the memfd offsets of two handles are never neighbours, so the kernel can't
// merge two of them into one. What a map adds to the process's count is known before (vmp_host_expose_delta); a map
// that would come near vm.max_map_count is refused, so that an unmap never meets the limit.
#include <stdio.h>
#include <sys/mman.h>

#include "vmm/host_model.h"

#define HEADROOM 2048u          // host mappings left to the rest of the process
#define DEFAULT_MAX_MAPS 65530  // the kernel's default

uint64_t vmp_host_max_map_count(void) {
  unsigned long long limit = DEFAULT_MAX_MAPS;
  FILE *file = fopen("/proc/sys/vm/max_map_count", "re");
  if (file != NULL) {
    if (fscanf(file, "%llu", &limit) != 1) limit = DEFAULT_MAX_MAPS;
    (void)fclose(file);
  }
  return limit > HEADROOM ? limit - HEADROOM : 0;
}

// A new mapping adds itself, and turns the free piece that it lies in into as many as are left beside it.
int vmp_host_expose_delta(vmp_host *host, const vmp_host_reservation *reservation, uint64_t base, uint64_t bytes) {
  uint64_t end = base + bytes;
  bool free_left = base > reservation->base && vmp_host_mapping_at(host, reservation, base - 1) == NULL;
  bool free_right = end < reservation->base + reservation->bytes && vmp_host_mapping_at(host, reservation, end) == NULL;
  return (int)free_left + (int)free_right;
}

static void *view(uint64_t base) { return (void *)(uintptr_t)base; }

bool vmp_host_expose_map(vmp_host *host, const vmp_host_mapping *mapping) {
  int delta = vmp_host_expose_delta(host, mapping->reservation, mapping->base, mapping->bytes);
  if (host->host_ranges + (unsigned)delta > host->max_host_ranges) return false;
  uint64_t offset = host->handles[mapping->handle].offset;
  if (mmap(view(mapping->base), mapping->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, host->memfd,
           (off_t)offset) == MAP_FAILED) {
    return false;
  }
  (void)madvise(view(mapping->base), mapping->bytes, MADV_DONTFORK);  // a forked child must fault
  host->host_ranges += (unsigned)delta;
  return true;
}

// Removes the view of a run of whole mappings, which are still in the model.
void vmp_host_expose_unmap(vmp_host *host, uint64_t base, uint64_t bytes) {
  const vmp_host_reservation *reservation = vmp_host_find_reservation(host, base);
  uint64_t count = 0;
  for (uint64_t address = base; address < base + bytes; count++) {
    address += vmp_host_mapping_at(host, reservation, address)->bytes;
  }
  // Together the mappings were `count` pieces; what is left is one free piece, joined to its free neighbours.
  int joined = vmp_host_expose_delta(host, reservation, base, bytes);
  host->host_ranges -= count - 1 + (unsigned)joined;
  if (mmap(view(base), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) !=
      MAP_FAILED) {
    return;
  }
  // Others in the process have used up its mappings. Taking the rights away needs no new one.
  for (uint64_t address = base; address < base + bytes;) {
    uint64_t piece = vmp_host_mapping_at(host, reservation, address)->bytes;
    (void)mprotect(view(address), piece, PROT_NONE);
    address += piece;
  }
}

bool vmp_host_expose_rights(vmp_host *host, uint64_t base, uint64_t bytes, bool read, bool write) {
  (void)host;
  int rights = (read ? PROT_READ : PROT_NONE) | (write ? PROT_WRITE : PROT_NONE);
  return mprotect(view(base), bytes, rights) == 0;
}
