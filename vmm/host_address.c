// host_address.c: simulated address space.
//
// Owns: reservations, sorted by base; where addresses come from; what happens to them afterwards.
//
//     process:  a PROT_NONE mapping of this process holds the range: a stray CPU touch faults, nobody else gets it
//     high:     2^48 and up, where no process mapping lies; nothing is asked of the system
//
// Ledger mode tries the process and falls back to high addresses; exposed mode has the process only.
// Freed addresses are quarantined: process ranges stay PROT_NONE ("retired") until RETIRED_LIMIT bytes have
// gathered, high addresses go round. With immediate_reuse the range freed last is handed out first.
//
// Invariants: reservations are disjoint and sorted; reserved_bytes is the sum of those that are not internal.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "vmm/align.h"
#include "vmm/host_model.h"

#define RETIRED_LIMIT_BYTES (UINT64_C(8) << 40)
#define LARGE_DIRECTORY 8192u  // leaves

#if defined(__SANITIZE_THREAD__)
#define PROCESS_LIMIT_BYTES (UINT64_C(1) << 30)
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PROCESS_LIMIT_BYTES (UINT64_C(1) << 30)
#endif
#endif
#ifndef PROCESS_LIMIT_BYTES
#define PROCESS_LIMIT_BYTES UINT64_MAX
#endif

// The number of reservations whose base is at most `address`.
static size_t position_of(const vmp_host *host, uint64_t address) {
  size_t low = 0;
  size_t high = host->num_reservations;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (host->reservations[middle]->base <= address) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static bool holds(const vmp_host_reservation *reservation, uint64_t address) {
  return address - reservation->base < reservation->bytes;
}

vmp_host_reservation *vmp_host_find_reservation(vmp_host *host, uint64_t address) {
  if (host->last_reservation != NULL && holds(host->last_reservation, address)) return host->last_reservation;
  size_t position = position_of(host, address);
  if (position == 0 || !holds(host->reservations[position - 1], address)) return NULL;
  host->last_reservation = host->reservations[position - 1];
  return host->last_reservation;
}

vmp_host_reservation *vmp_host_next_reservation(vmp_host *host, uint64_t address) {
  vmp_host_reservation *reservation = vmp_host_find_reservation(host, address);
  if (reservation != NULL) return reservation;
  size_t position = position_of(host, address);
  return position == host->num_reservations ? NULL : host->reservations[position];
}

// ---- high addresses ----

static bool is_free(const vmp_host *host, uint64_t base, uint64_t bytes) {
  size_t position = position_of(host, base);
  if (position > 0 && holds(host->reservations[position - 1], base)) return false;
  return position == host->num_reservations || host->reservations[position]->base - base >= bytes;
}

// The first free place at or after `start`; false when there is none below the end of the high addresses.
static bool next_gap(const vmp_host *host, uint64_t start, uint64_t bytes, uint64_t alignment, uint64_t *out_base) {
  uint64_t base;
  if (!vmp_align_up(start, alignment, &base)) return false;
  size_t position = position_of(host, base);
  if (position > 0 && holds(host->reservations[position - 1], base)) position--;
  for (;; position++) {
    uint64_t end;
    if (!vmp_add(base, bytes, &end) || end > VMP_HOST_HIGH_END) return false;
    if (position == host->num_reservations || host->reservations[position]->base >= end) {
      *out_base = base;
      return true;
    }
    const vmp_host_reservation *blocker = host->reservations[position];
    if (!vmp_align_up(blocker->base + blocker->bytes, alignment, &base)) return false;
  }
}

static bool take_high(vmp_host *host, uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t *out_base) {
  uint64_t end;
  if (hint >= VMP_HOST_HIGH_BASE && vmp_add(hint, bytes, &end) && end <= VMP_HOST_HIGH_END &&
      is_free(host, hint, bytes)) {
    *out_base = hint;
    return true;
  }
  uint64_t start = host->next_address < VMP_HOST_HIGH_BASE ? VMP_HOST_HIGH_BASE : host->next_address;
  if (!next_gap(host, start, bytes, alignment, out_base) &&
      !next_gap(host, VMP_HOST_HIGH_BASE, bytes, alignment, out_base)) {
    return false;
  }
  host->next_address = *out_base + bytes;
  return true;
}

// ---- addresses of this process ----

static bool map_none(void *hint, uint64_t bytes, int flags, uint64_t *out_base) {
  void *place = mmap(hint, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
  if (place == MAP_FAILED) return false;
  *out_base = (uint64_t)(uintptr_t)place;
  return true;
}

static void unmap_process(uint64_t base, uint64_t bytes) {
  if (bytes != 0) (void)munmap((void *)(uintptr_t)base, bytes);
}

// Gives the oldest retired ranges back to the process until at most `limit` bytes of them are left.
static void release_retired(vmp_host *host, uint64_t limit) {
  size_t gone = 0;
  while (gone < host->num_retired && host->retired_bytes > limit) {
    host->retired_bytes -= host->retired[gone].bytes;
    unmap_process(host->retired[gone].base, host->retired[gone].bytes);
    gone++;
  }
  if (gone == 0) return;
  host->num_retired -= gone;
  memmove(host->retired, host->retired + gone, host->num_retired * sizeof *host->retired);
}

static bool reuse_retired(vmp_host *host, uint64_t bytes, uint64_t alignment, uint64_t *out_base) {
  for (size_t i = host->num_retired; i > 0; i--) {
    vmp_host_range *range = &host->retired[i - 1];
    if (range->bytes < bytes || (range->base & (alignment - 1)) != 0) continue;
    *out_base = range->base;
    range->base += bytes;
    range->bytes -= bytes;
    host->retired_bytes -= bytes;
    if (range->bytes == 0) {
      memmove(range, range + 1, (host->num_retired - i) * sizeof *range);
      host->num_retired--;
    }
    return true;
  }
  return false;
}

static bool take_aligned(uint64_t bytes, uint64_t alignment, uint64_t *out_base) {
  uint64_t padded;
  uint64_t place;
  if (!vmp_add(bytes, alignment - VMP_HOST_PAGE_BYTES, &padded)) return false;
  if (padded > SIZE_MAX / 2 || !map_none(NULL, padded, 0, &place)) return false;
  uint64_t base = 0;
  (void)vmp_align_up(place, alignment, &base);  // can't wrap: a process mapping lies far below 2^64
  unmap_process(place, base - place);
  unmap_process(base + bytes, place + padded - (base + bytes));
  *out_base = base;
  return true;
}

static bool take_process(vmp_host *host, uint64_t bytes, uint64_t alignment, uint64_t hint, uint64_t *out_base) {
  if (host->options.ledger_high != 0) return false;
  if (host->options.mode == VMP_HOST_LEDGER && bytes > PROCESS_LIMIT_BYTES) return false;
  if (hint != 0 && hint < VMP_HOST_HIGH_BASE) {
    uint64_t base;
    if (map_none((void *)(uintptr_t)hint, bytes, MAP_FIXED_NOREPLACE, &base)) {
      *out_base = base;
      if (base == hint) return true;
      unmap_process(base, bytes);  // a kernel that doesn't know the flag
    }
  }
  if (host->options.immediate_reuse != 0 && reuse_retired(host, bytes, alignment, out_base)) return true;
  if (take_aligned(bytes, alignment, out_base)) return true;
  if (host->num_retired == 0) return false;
  release_retired(host, 0);
  return take_aligned(bytes, alignment, out_base);
}

// ---- reservations ----

// A directory of leaves. Large ones (64 TiB in 4 KiB slots have 16 Mi leaves) are mapped, so that only the parts in
// use exist.
static vmp_host_leaf **make_directory(uint64_t num_leaves) {
  if (num_leaves <= LARGE_DIRECTORY) return calloc(num_leaves, sizeof(vmp_host_leaf *));
  if (num_leaves > SIZE_MAX / sizeof(vmp_host_leaf *)) return NULL;
  void *place = mmap(NULL, num_leaves * sizeof(vmp_host_leaf *), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return place == MAP_FAILED ? NULL : place;
}

static void free_directory(vmp_host_leaf **leaves, uint64_t num_leaves) {
  if (num_leaves <= LARGE_DIRECTORY) {
    free(leaves);
  } else {
    (void)munmap(leaves, num_leaves * sizeof(vmp_host_leaf *));
  }
}

static vmp_host_reservation *make_reservation(vmp_host *host, uint64_t bytes) {
  if (!vmp_host_grow(&host->reservations, &host->cap_reservations, host->num_reservations + 1,
                     sizeof host->reservations[0]) ||
      !vmp_host_grow(&host->retired, &host->cap_retired, host->num_reservations + host->num_retired + 1,
                     sizeof host->retired[0])) {
    return NULL;  // room in `retired` now means that freeing addresses allocates nothing
  }
  vmp_host_reservation *reservation = calloc(1, sizeof *reservation);
  if (reservation == NULL) return NULL;
  uint64_t slots = bytes / host->unit_bytes + (bytes % host->unit_bytes != 0);
  reservation->num_leaves = slots / VMP_HOST_LEAF_SLOTS + (slots % VMP_HOST_LEAF_SLOTS != 0);
  reservation->leaves = make_directory(reservation->num_leaves);
  if (reservation->leaves == NULL) {
    free(reservation);
    return NULL;
  }
  reservation->bytes = bytes;
  return reservation;
}

static void free_reservation(vmp_host_reservation *reservation) {
  while (reservation->first_leaf != NULL) {
    vmp_host_leaf *next = reservation->first_leaf->next;
    free(reservation->first_leaf);
    reservation->first_leaf = next;
  }
  free_directory(reservation->leaves, reservation->num_leaves);
  free(reservation);
}

int vmp_host_reserve(vmp_host *host, uint64_t bytes, uint64_t alignment, uint64_t hint,
                     vmp_host_reservation **out_reservation) {
  if (bytes > VMP_HOST_HIGH_END - VMP_HOST_HIGH_BASE) return VMP_CU_OUT_OF_MEMORY;  // fits nowhere
  if (alignment < host->unit_bytes) alignment = host->unit_bytes;
  vmp_host_reservation *reservation = make_reservation(host, bytes);
  if (reservation == NULL) return VMP_CU_OUT_OF_MEMORY;
  reservation->in_process = take_process(host, bytes, alignment, hint, &reservation->base);
  if (!reservation->in_process &&
      (host->options.mode == VMP_HOST_EXPOSED || !take_high(host, bytes, alignment, hint, &reservation->base))) {
    free_reservation(reservation);
    return VMP_CU_OUT_OF_MEMORY;
  }
  size_t position = position_of(host, reservation->base);
  memmove(host->reservations + position + 1, host->reservations + position,
          (host->num_reservations - position) * sizeof host->reservations[0]);
  host->reservations[position] = reservation;
  host->num_reservations++;
  host->host_ranges++;
  *out_reservation = reservation;
  return 0;
}

void vmp_host_unreserve(vmp_host *host, vmp_host_reservation *reservation) {
  size_t position = position_of(host, reservation->base) - 1;
  host->num_reservations--;
  memmove(host->reservations + position, host->reservations + position + 1,
          (host->num_reservations - position) * sizeof host->reservations[0]);
  host->last_reservation = NULL;
  host->host_ranges--;
  if (reservation->in_process) {
    host->retired[host->num_retired++] = (vmp_host_range){reservation->base, reservation->bytes};
    host->retired_bytes += reservation->bytes;
    release_retired(host, RETIRED_LIMIT_BYTES);
  } else if (host->options.immediate_reuse != 0) {
    host->next_address = reservation->base;
  }
  free_reservation(reservation);
}

void vmp_host_address_close(vmp_host *host) {
  for (size_t i = 0; i < host->num_reservations; i++) {
    vmp_host_reservation *reservation = host->reservations[i];
    if (reservation->in_process) unmap_process(reservation->base, reservation->bytes);
    free_reservation(reservation);
  }
  release_retired(host, 0);
  free(host->reservations);
  free(host->retired);
}

// ---- the calls ----

static int check_reserve(vmp_host *host, const vmp_cu_ptr *out_ptr, size_t bytes, size_t alignment, vmp_cu_ptr hint,
                         unsigned long long flags) {
  if (!host->any_vmm) {
    return vmp_host_break(host, 16, VMP_CU_NOT_SUPPORTED, "cuMemAddressReserve: no device supports VMM");
  }
  if (out_ptr == NULL || flags != 0) {
    return vmp_host_break(host, 10, VMP_CU_INVALID_VALUE, "cuMemAddressReserve: out-pointer %p, flags %llu; %s",
                          (const void *)out_ptr, flags, "the pointer must not be null, flags must be 0");
  }
  if (bytes == 0) return vmp_host_break(host, 11, VMP_CU_INVALID_VALUE, "cuMemAddressReserve: size 0");
  if (bytes % VMP_HOST_PAGE_BYTES != 0) {
    return vmp_host_break(host, 12, VMP_CU_INVALID_VALUE, "cuMemAddressReserve: size %zu is no multiple of a page",
                          bytes);
  }
  if (bytes % host->unit_bytes != 0) {
    int code = vmp_host_refuse(host, VMP_HOST_LINT, 12, VMP_CU_INVALID_VALUE,
                               "cuMemAddressReserve: size %zu is no multiple of the granularity %llu", bytes,
                               (unsigned long long)host->unit_bytes);
    if (code != 0) return code;
  }
  if (alignment != 0 && !vmp_is_power_of_two(alignment)) {
    return vmp_host_break(host, 13, VMP_CU_INVALID_VALUE, "cuMemAddressReserve: alignment %zu is no power of two",
                          alignment);
  }
  uint64_t needed = alignment > host->unit_bytes ? alignment : host->unit_bytes;
  if (hint % needed != 0) {
    return vmp_host_refuse(host, VMP_HOST_LINT, 14, VMP_CU_INVALID_VALUE,
                           "cuMemAddressReserve: hint %#llx is no multiple of %llu", (unsigned long long)hint,
                           (unsigned long long)needed);
  }
  return 0;
}

int vmp_host_op_mem_address_reserve(vmp_driver *driver, vmp_cu_ptr *out_ptr, size_t bytes, size_t alignment,
                                    vmp_cu_ptr hint, unsigned long long flags) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_address_reserve, VMP_HOST_SITE());
  if (code != 0) return code;
  code = check_reserve(host, out_ptr, bytes, alignment, hint, flags);
  if (code == 0) {  // rule 15: the budget is no violation, only an answer
    uint64_t total;
    uint64_t largest = host->options.max_reserve_bytes;
    if (!vmp_add(host->reserved_bytes, bytes, &total) || total > host->options.address_bytes ||
        (largest != 0 && bytes > largest)) {
      code = VMP_CU_OUT_OF_MEMORY;
    }
  }
  uint64_t needed = alignment > host->unit_bytes ? alignment : host->unit_bytes;
  if (code == 0 && hint % needed != 0) hint = 0;
  vmp_host_reservation *reservation = NULL;
  if (code == 0) code = vmp_host_reserve(host, bytes, needed, hint, &reservation);
  if (code == 0) {
    host->reserved_bytes += bytes;
    *out_ptr = reservation->base;
  }
  return vmp_host_leave_out(host, code, out_ptr, sizeof *out_ptr);
}

static int check_address_free(vmp_host *host, vmp_cu_ptr ptr, size_t bytes, vmp_host_reservation **out_reservation) {
  if (!host->any_vmm) {
    return vmp_host_break(host, 16, VMP_CU_NOT_SUPPORTED, "cuMemAddressFree: no device supports VMM");
  }
  vmp_host_reservation *reservation = ptr == 0 || bytes == 0 ? NULL : vmp_host_find_reservation(host, ptr);
  if (reservation == NULL || reservation->internal || reservation->base != ptr || reservation->bytes != bytes) {
    return vmp_host_break(host, 17, VMP_CU_INVALID_VALUE,
                          "cuMemAddressFree: %#llx + %zu is not exactly one reservation", (unsigned long long)ptr,
                          bytes);
  }
  *out_reservation = reservation;
  if (reservation->num_mappings == 0) return 0;
  return vmp_host_refuse(host, VMP_HOST_COMPAT, 18, VMP_CU_INVALID_VALUE,
                         "cuMemAddressFree: %#llx + %zu still holds %llu mappings", (unsigned long long)ptr, bytes,
                         (unsigned long long)reservation->num_mappings);
}

int vmp_host_op_mem_address_free(vmp_driver *driver, vmp_cu_ptr ptr, size_t bytes) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_address_free, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_reservation *reservation = NULL;
  code = check_address_free(host, ptr, bytes, &reservation);
  if (code == 0) {
    vmp_host_charge(host, host->cost.address_free_per_gib_ns * (bytes >> 30));
    if (reservation->num_mappings != 0) vmp_host_unmap_all(host, reservation);
    host->reserved_bytes -= bytes;
    vmp_host_unreserve(host, reservation);
  }
  return vmp_host_leave(host, code);
}
