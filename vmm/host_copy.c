// host_copy.c: copies and fills.
//
// Each is checked twice: when it is called (rule 55: code 1, nothing is queued) and when the stream gets there
// (rule 56: code 700, sticky). Synchronous forms run on the legacy stream. A copy from pageable host memory takes the
// bytes at the call and is still only queued; a copy from pinned memory reads them when it runs; a copy to the host
// writes when it runs. cuMemcpyDtoH waits; cuMemcpyHtoD, cuMemcpyDtoD and cuMemsetD8 don't.
#include <stdlib.h>
#include <string.h>

#include "vmm/host_model.h"

#define PIECE_BYTES 65536u

// ---- moving bytes ----

// Moves bytes between a buffer and mapped device memory; false on an I/O failure or an unmapped byte.
static bool move(vmp_host *host, uint64_t ptr, uint64_t bytes, void *dst, const void *src, bool *out_fresh) {
  for (uint64_t done = 0; done < bytes;) {
    const vmp_host_reservation *reservation = vmp_host_find_reservation(host, ptr + done);
    const vmp_host_mapping *mapping = reservation == NULL ? NULL : vmp_host_mapping_at(host, reservation, ptr + done);
    if (mapping == NULL) return false;
    uint64_t offset = ptr + done - mapping->base;
    uint64_t part = mapping->bytes - offset < bytes - done ? mapping->bytes - offset : bytes - done;
    vmp_host_handle *handle = &host->handles[mapping->handle];
    bool moved = dst != NULL ? vmp_host_data_read(host, handle, offset, (unsigned char *)dst + done, part, out_fresh)
                             : vmp_host_data_write(host, handle, offset, (const unsigned char *)src + done, part);
    if (!moved) return false;
    done += part;
  }
  return true;
}

static bool fill(vmp_host *host, uint64_t ptr, uint64_t bytes, unsigned char value) {
  while (bytes != 0) {
    const vmp_host_reservation *reservation = vmp_host_find_reservation(host, ptr);
    const vmp_host_mapping *mapping = vmp_host_mapping_at(host, reservation, ptr);
    uint64_t offset = ptr - mapping->base;
    uint64_t part = mapping->bytes - offset < bytes ? mapping->bytes - offset : bytes;
    if (!vmp_host_data_fill(host, &host->handles[mapping->handle], offset, value, part)) return false;
    ptr += part;
    bytes -= part;
  }
  return true;
}

static bool device_to_device(vmp_host *host, const vmp_host_copy *copy, bool *out_fresh) {
  unsigned char piece[PIECE_BYTES];
  for (uint64_t done = 0; done < copy->bytes;) {
    uint64_t part = copy->bytes - done < sizeof piece ? copy->bytes - done : sizeof piece;
    if (!move(host, copy->src + done, part, piece, NULL, out_fresh) ||
        !move(host, copy->dst + done, part, NULL, piece, NULL)) {
      return false;
    }
    done += part;
  }
  return true;
}

bool vmp_host_perform(vmp_host *host, const vmp_host_op *op) {
  if (op->kind == VMP_HOST_OP_FILL) return fill(host, op->a, op->b, (unsigned char)op->arg);
  if (op->kind == VMP_HOST_OP_TOUCH) {
    return op->arg == 0 || fill(host, op->a, op->b, (unsigned char)(op->sequence | 1));
  }
  const vmp_host_copy *copy = (const vmp_host_copy *)(uintptr_t)op->a;
  bool fresh = false;
  bool moved;
  if (copy->kind == VMP_HOST_HTOD) {
    moved = move(host, copy->dst, copy->bytes, NULL, copy->staged != NULL ? copy->staged : copy->host_src, NULL);
  } else if (copy->kind == VMP_HOST_DTOH) {
    moved = move(host, copy->src, copy->bytes, copy->host_dst, NULL, &fresh);
  } else {
    moved = device_to_device(host, copy, &fresh);
  }
  if (fresh && host->options.level != VMP_HOST_COMPAT) {
    vmp_host_remark(host, 64, "operation %llu reads memory at %#llx + %#llx that was never written",
                    (unsigned long long)op->sequence, (unsigned long long)copy->src, (unsigned long long)copy->bytes);
  }
  return moved;
}

void vmp_host_op_dispose(const vmp_host_op *op) {
  if (op->kind != VMP_HOST_OP_COPY) return;
  vmp_host_copy *copy = (vmp_host_copy *)(uintptr_t)op->a;
  free(copy->staged);
  free(copy);
}

// ---- queueing ----

static int check_range(vmp_host *host, uint64_t ptr, uint64_t bytes, int device, bool write) {
  if (vmp_host_range_ok(host, ptr, bytes, device, write)) return 0;
  return vmp_host_break(host, 55, VMP_CU_INVALID_VALUE, "%s: device %d may not %s all of %#llx + %#llx",
                        vmp_call_symbol(host->call), device, write ? "write" : "read", (unsigned long long)ptr,
                        (unsigned long long)bytes);
}

static int check_copy(vmp_host *host, const vmp_host_copy *copy, int device) {
  if ((copy->kind == VMP_HOST_HTOD && copy->host_src == NULL) ||
      (copy->kind == VMP_HOST_DTOH && copy->host_dst == NULL)) {
    return vmp_host_break(host, 55, VMP_CU_INVALID_VALUE, "%s: the host pointer is null", vmp_call_symbol(host->call));
  }
  int code = 0;
  if (copy->kind != VMP_HOST_DTOH) code = check_range(host, copy->dst, copy->bytes, device, true);
  if (code == 0 && copy->kind != VMP_HOST_HTOD) code = check_range(host, copy->src, copy->bytes, device, false);
  return code;
}

static int queue_copy(vmp_host *host, vmp_host_stream *stream, const vmp_host_copy *wanted) {
  vmp_host_copy *copy = malloc(sizeof *copy);
  if (copy == NULL) return VMP_CU_OUT_OF_MEMORY;
  *copy = *wanted;
  vmp_host_op op = {.kind = VMP_HOST_OP_COPY, .a = (uint64_t)(uintptr_t)copy};
  if (copy->kind == VMP_HOST_HTOD && !vmp_host_is_pinned(host, copy->host_src, copy->bytes)) {
    copy->staged = malloc(copy->bytes);
    if (copy->staged == NULL) {
      free(copy);
      return VMP_CU_OUT_OF_MEMORY;
    }
    memcpy(copy->staged, copy->host_src, copy->bytes);
  }
  int code = vmp_host_enqueue(host, stream, op);
  if (code != 0) vmp_host_op_dispose(&op);
  return code;
}

// Waits for the work queued on a stream so far and returns what the context says then.
static int wait_for_stream(vmp_host *host, vmp_host_stream *stream) {
  int device = stream->device;
  vmp_host_order_seen_stream(host, stream);
  if (vmp_host_wait_for(host, stream->index, stream->uid, stream->last_sequence)) host->counters.host_waits++;
  return host->contexts[device].sticky;
}

static int copy_call(vmp_driver *driver, vmp_call call, const void *site, vmp_cu_stream handle, bool synchronous,
                     vmp_host_copy copy) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, call, site);
  if (code != 0) return code;
  vmp_host_stream *stream = NULL;
  bool captured = false;
  code = vmp_host_find_stream(host, handle, &stream);
  if (code == 0 && copy.bytes != 0) {
    code = check_copy(host, &copy, stream->device);
    if (code == 0 && synchronous) code = vmp_host_capture_unsafe(host);
    if (code == 0) code = vmp_host_capture_submit(host, stream, &captured);
    if (code == 0 && !captured) {
      code = queue_copy(host, stream, &copy);
      if (code == 0 && synchronous && copy.kind == VMP_HOST_DTOH) code = wait_for_stream(host, stream);
    }
  }
  return vmp_host_leave(host, code);
}

static int fill_call(vmp_driver *driver, vmp_call call, const void *site, vmp_cu_stream handle, bool synchronous,
                     vmp_cu_ptr dst, unsigned char value, size_t bytes) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, call, site);
  if (code != 0) return code;
  vmp_host_stream *stream = NULL;
  bool captured = false;
  code = vmp_host_find_stream(host, handle, &stream);
  if (code == 0 && bytes != 0) {
    code = check_range(host, dst, bytes, stream->device, true);
    if (code == 0 && synchronous) code = vmp_host_capture_unsafe(host);
    if (code == 0) code = vmp_host_capture_submit(host, stream, &captured);
    if (code == 0 && !captured) {
      code =
          vmp_host_enqueue(host, stream, (vmp_host_op){.kind = VMP_HOST_OP_FILL, .a = dst, .b = bytes, .arg = value});
    }
  }
  return vmp_host_leave(host, code);
}

// ---- the calls ----

int vmp_host_op_memcpy_htod(vmp_driver *driver, vmp_cu_ptr dst, const void *src, size_t bytes) {
  return copy_call(driver, VMP_CALL_memcpy_htod, VMP_HOST_SITE(), NULL, true,
                   (vmp_host_copy){.kind = VMP_HOST_HTOD, .dst = dst, .host_src = src, .bytes = bytes});
}

int vmp_host_op_memcpy_dtoh(vmp_driver *driver, void *dst, vmp_cu_ptr src, size_t bytes) {
  return copy_call(driver, VMP_CALL_memcpy_dtoh, VMP_HOST_SITE(), NULL, true,
                   (vmp_host_copy){.kind = VMP_HOST_DTOH, .host_dst = dst, .src = src, .bytes = bytes});
}

int vmp_host_op_memcpy_dtod(vmp_driver *driver, vmp_cu_ptr dst, vmp_cu_ptr src, size_t bytes) {
  return copy_call(driver, VMP_CALL_memcpy_dtod, VMP_HOST_SITE(), NULL, true,
                   (vmp_host_copy){.kind = VMP_HOST_DTOD, .dst = dst, .src = src, .bytes = bytes});
}

int vmp_host_op_memcpy_htod_async(vmp_driver *driver, vmp_cu_ptr dst, const void *src, size_t bytes,
                                  vmp_cu_stream stream) {
  return copy_call(driver, VMP_CALL_memcpy_htod_async, VMP_HOST_SITE(), stream, false,
                   (vmp_host_copy){.kind = VMP_HOST_HTOD, .dst = dst, .host_src = src, .bytes = bytes});
}

int vmp_host_op_memcpy_dtoh_async(vmp_driver *driver, void *dst, vmp_cu_ptr src, size_t bytes, vmp_cu_stream stream) {
  return copy_call(driver, VMP_CALL_memcpy_dtoh_async, VMP_HOST_SITE(), stream, false,
                   (vmp_host_copy){.kind = VMP_HOST_DTOH, .host_dst = dst, .src = src, .bytes = bytes});
}

int vmp_host_op_memcpy_dtod_async(vmp_driver *driver, vmp_cu_ptr dst, vmp_cu_ptr src, size_t bytes,
                                  vmp_cu_stream stream) {
  return copy_call(driver, VMP_CALL_memcpy_dtod_async, VMP_HOST_SITE(), stream, false,
                   (vmp_host_copy){.kind = VMP_HOST_DTOD, .dst = dst, .src = src, .bytes = bytes});
}

int vmp_host_op_memset_d8(vmp_driver *driver, vmp_cu_ptr dst, unsigned char value, size_t bytes) {
  return fill_call(driver, VMP_CALL_memset_d8, VMP_HOST_SITE(), NULL, true, dst, value, bytes);
}

int vmp_host_op_memset_d8_async(vmp_driver *driver, vmp_cu_ptr dst, unsigned char value, size_t bytes,
                                vmp_cu_stream stream) {
  return fill_call(driver, VMP_CALL_memset_d8_async, VMP_HOST_SITE(), stream, false, dst, value, bytes);
}

// ---- past all queues ----

static int look(vmp_driver *driver, vmp_cu_ptr ptr, void *dst, const void *src, size_t bytes) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  bool mapped = true;
  for (uint64_t done = 0; mapped && done < bytes;) {  // first look, then move: nothing or all
    const vmp_host_reservation *reservation = vmp_host_find_reservation(host, ptr + done);
    const vmp_host_mapping *mapping = reservation == NULL ? NULL : vmp_host_mapping_at(host, reservation, ptr + done);
    mapped = mapping != NULL;
    if (mapped) done = mapping->base + mapping->bytes - ptr;
  }
  int code = VMP_CU_INVALID_VALUE;
  if (mapped) code = move(host, ptr, bytes, dst, src, NULL) ? 0 : VMP_CU_UNKNOWN;
  pthread_mutex_unlock(&host->lock);
  return code;
}

int vmp_host_peek(vmp_driver *driver, vmp_cu_ptr ptr, void *dst, size_t bytes) {
  return dst == NULL && bytes != 0 ? VMP_CU_INVALID_VALUE : look(driver, ptr, dst, NULL, bytes);
}

int vmp_host_poke(vmp_driver *driver, vmp_cu_ptr ptr, const void *src, size_t bytes) {
  return src == NULL && bytes != 0 ? VMP_CU_INVALID_VALUE : look(driver, ptr, NULL, src, bytes);
}
