// memory.c: see memory.h.
#include "vmm/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

// The switch of vmp_mem_fail_after. Per thread, so that a test of one pool doesn't disturb another.
static _Thread_local uint64_t successes_left;
static _Thread_local uint64_t failures_left;
static _Thread_local uint64_t failures_made;

static bool told_to_fail(void) {
  if (failures_left == 0) return false;
  if (successes_left > 0) {
    successes_left--;
    return false;
  }
  if (failures_left != UINT64_MAX) failures_left--;
  failures_made++;
  return true;
}

void *vmp_mem_calloc(size_t n, size_t size) {
  if (told_to_fail()) return NULL;
  return calloc(n, size);
}

void *vmp_mem_resize(void *old, size_t old_n, size_t n, size_t size) {
  void *memory = vmp_mem_calloc(n, size);
  if (memory == NULL) return NULL;
  if (old_n > 0) memcpy(memory, old, old_n * size);
  vmp_mem_free(old);
  return memory;
}

void vmp_mem_free(void *memory) { free(memory); }

// addresses_left: how many the process may still take; SIZE_MAX where nothing limits them.
static size_t addresses_left(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
  unsigned long long pages = 0;
  FILE *file = fopen("/proc/self/statm", "re");
  if (file != NULL) {
    if (fscanf(file, "%llu", &pages) != 1) pages = 0;
    (void)fclose(file);
  }
  size_t used = (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
  return limit.rlim_cur > used ? (size_t)limit.rlim_cur - used : 0;
}

void *vmp_mem_reserve(size_t *bytes, size_t least_bytes, size_t share) {
  size_t most = addresses_left() / share;
  for (size_t tried = *bytes; tried >= least_bytes && tried > 0; tried /= 2) {
    if (tried > most && tried / 2 >= least_bytes) continue;
    if (told_to_fail()) continue;
    void *memory = mmap(NULL, tried, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) continue;
    *bytes = tried;
    return memory;
  }
  return NULL;
}

void vmp_mem_unreserve(void *memory, size_t bytes) {
  if (memory != NULL) (void)munmap(memory, bytes);
}

bool vmp_mem_commit(void *memory, size_t bytes) {
  if (told_to_fail()) return false;
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t from = (uintptr_t)memory / page * page, to = ((uintptr_t)memory + bytes + page - 1) / page * page;
  return mprotect((void *)from, to - from, PROT_READ | PROT_WRITE) == 0;
}

void vmp_mem_fail_after(uint64_t successes, uint64_t failures) {
  successes_left = successes;
  failures_left = failures;
  failures_made = 0;
}

uint64_t vmp_mem_failures(void) { return failures_made; }
