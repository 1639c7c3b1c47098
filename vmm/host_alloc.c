// host_alloc.c: cuMemAlloc and pinned host memory: what callers use beside VMM.
//
// A cuMemAlloc block is an internal reservation with one mapping of one internal handle, so that copies and touches
// treat it like any other memory, while every VMM call that names it is refused. It takes whole granules.
// Pinned memory is the process's own; a copy to or from it happens when the stream gets there, not at the call.
#include <stdlib.h>

#include "vmm/align.h"
#include "vmm/host_model.h"

static int allocate(vmp_host *host, int device, uint64_t bytes, uint64_t *out_ptr) {
  vmp_host_reservation *reservation = NULL;
  vmp_host_handle *handle = NULL;
  vmp_host_mapping *mapping = NULL;
  int code = vmp_host_make_handle(host, bytes, device, &handle);
  if (code != 0) return code;
  uint32_t index = vmp_host_handle_index(host, handle);
  handle->internal = true;
  code = vmp_host_reserve(host, bytes, host->unit_bytes, 0, &reservation);
  if (code == 0) {
    reservation->internal = true;
    code = vmp_host_map_whole(host, reservation, reservation->base, bytes, index, &mapping);
    if (code != 0) vmp_host_unreserve(host, reservation);
  }
  if (code == 0 && host->options.mode == VMP_HOST_EXPOSED) {
    handle->written = true;
    if (!vmp_host_expose_rights(host, reservation->base, bytes, true, true)) {
      vmp_host_unmap_all(host, reservation);
      vmp_host_unreserve(host, reservation);
      code = VMP_CU_OUT_OF_MEMORY;
    }
  }
  if (code == 0) {  // the legacy of unified addressing: every device that can reach the memory may touch it
    for (int i = 0; i < host->num_devices; i++) {
      if (!vmp_host_can_reach(host, i, device)) continue;
      mapping->read_mask |= (uint16_t)(1u << i);
      mapping->write_mask |= (uint16_t)(1u << i);
    }
    *out_ptr = reservation->base;
  }
  handle = &host->handles[index];
  handle->refs = 0;  // the mapping alone keeps it
  vmp_host_drop_handle(host, handle);
  return code;
}

int vmp_host_op_mem_alloc(vmp_driver *driver, vmp_cu_ptr *out_ptr, size_t bytes) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_alloc, VMP_HOST_SITE());
  if (code != 0) return code;
  struct CUctx_st *context = NULL;
  code = vmp_host_current(host, &context);
  if (code == 0 && (out_ptr == NULL || bytes == 0)) {
    code = vmp_host_break(host, 5, VMP_CU_INVALID_VALUE, "cuMemAlloc: out %p, size %zu", (void *)out_ptr, bytes);
  }
  if (code == 0) code = vmp_host_capture_unsafe(host);
  uint64_t rounded = 0;
  if (code == 0 && !vmp_align_up(bytes, host->devices[context->device].granule_bytes, &rounded)) {
    code = VMP_CU_OUT_OF_MEMORY;
  }
  uint64_t ptr = 0;
  if (code == 0) code = allocate(host, context->device, rounded, &ptr);
  if (code == 0) *out_ptr = ptr;
  return vmp_host_leave_out(host, code, out_ptr, sizeof *out_ptr);
}

static void free_block(vmp_host *host, vmp_host_reservation *reservation) {
  vmp_host_unmap_all(host, reservation);
  vmp_host_unreserve(host, reservation);
}

int vmp_host_op_mem_free(vmp_driver *driver, vmp_cu_ptr ptr) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_free, VMP_HOST_SITE());
  if (code != 0) return code;
  struct CUctx_st *context = NULL;
  code = vmp_host_current(host, &context);
  vmp_host_reservation *reservation = vmp_host_find_reservation(host, ptr);
  if (code == 0 && (reservation == NULL || !reservation->internal || reservation->base != ptr)) {
    code = vmp_host_break(host, 5, VMP_CU_INVALID_VALUE, "cuMemFree: %#llx is no block of cuMemAlloc",
                          (unsigned long long)ptr);
  }
  if (code == 0) code = vmp_host_capture_unsafe(host);
  if (code == 0) {
    // Documented: cuMemFree waits for the device's work.
    int device = host->handles[vmp_host_mapping_at(host, reservation, ptr)->handle].device;
    vmp_host_order_seen_device(host, device);
    if (vmp_host_drain(host, device)) host->counters.host_waits++;
    reservation = vmp_host_find_reservation(host, ptr);  // a host function ran without the lock
    if (reservation != NULL && reservation->internal && reservation->base == ptr) free_block(host, reservation);
  }
  return vmp_host_leave(host, code);
}

void vmp_host_alloc_reset(vmp_host *host, int device) {
  for (size_t i = host->num_reservations; i > 0; i--) {
    vmp_host_reservation *reservation = host->reservations[i - 1];
    if (!reservation->internal) continue;
    const vmp_host_mapping *mapping = vmp_host_mapping_at(host, reservation, reservation->base);
    if (host->handles[mapping->handle].device == device) free_block(host, reservation);
  }
}

// ---- pinned host memory ----

static size_t find_pinned(const vmp_host *host, const void *ptr) {
  size_t i = 0;
  while (i < host->num_pinned && host->pinned[i].ptr != ptr) i++;
  return i;
}

bool vmp_host_is_pinned(const vmp_host *host, const void *ptr, size_t bytes) {
  for (size_t i = 0; i < host->num_pinned; i++) {
    uintptr_t begin = (uintptr_t)host->pinned[i].ptr;
    uintptr_t at = (uintptr_t)ptr;
    if (at >= begin && at - begin <= host->pinned[i].bytes && bytes <= host->pinned[i].bytes - (at - begin))
      return true;
  }
  return false;
}

static int pin(vmp_host *host, size_t bytes, void **out_ptr) {
  uint64_t rounded;
  if (!vmp_align_up(bytes, VMP_HOST_PAGE_BYTES, &rounded) ||
      !vmp_host_grow(&host->pinned, &host->cap_pinned, host->num_pinned + 1, sizeof host->pinned[0])) {
    return VMP_CU_OUT_OF_MEMORY;
  }
  void *ptr = aligned_alloc(VMP_HOST_PAGE_BYTES, rounded);
  if (ptr == NULL) return VMP_CU_OUT_OF_MEMORY;
  host->pinned[host->num_pinned++] = (vmp_host_pinned){ptr, bytes};
  *out_ptr = ptr;
  return 0;
}

int vmp_host_op_mem_host_alloc(vmp_driver *driver, void **out_ptr, size_t bytes, unsigned flags) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_host_alloc, VMP_HOST_SITE());
  if (code != 0) return code;
  struct CUctx_st *context = NULL;
  code = vmp_host_current(host, &context);
  if (code == 0 && (out_ptr == NULL || bytes == 0 || flags > 7)) {
    code = vmp_host_break(host, 5, VMP_CU_INVALID_VALUE, "cuMemHostAlloc: out %p, size %zu, flags %u", (void *)out_ptr,
                          bytes, flags);
  }
  if (code == 0) code = vmp_host_capture_unsafe(host);
  if (code == 0) code = pin(host, bytes, out_ptr);
  return vmp_host_leave_out(host, code, out_ptr, sizeof *out_ptr);
}

int vmp_host_op_mem_free_host(vmp_driver *driver, void *ptr) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_free_host, VMP_HOST_SITE());
  if (code != 0) return code;
  struct CUctx_st *context = NULL;
  code = vmp_host_current(host, &context);
  size_t position = find_pinned(host, ptr);
  if (code == 0 && position == host->num_pinned) {
    code = vmp_host_break(host, 5, VMP_CU_INVALID_VALUE, "cuMemFreeHost: %p is no block of cuMemHostAlloc", ptr);
  }
  if (code == 0) code = vmp_host_capture_unsafe(host);
  if (code == 0) {
    free(ptr);
    host->pinned[position] = host->pinned[--host->num_pinned];
  }
  return vmp_host_leave(host, code);
}

void vmp_host_alloc_close(vmp_host *host) {
  for (size_t i = 0; i < host->num_pinned; i++) free(host->pinned[i].ptr);
  free(host->pinned);
}
