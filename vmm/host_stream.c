// host_stream.c: streams: handles, default streams, waiting and asking.
//
//     handle value   [ 0x57 : 8 | tag : 32 | index : 24 ]    no address of this machine; the tag changes with every
//                                                            use of a record, unless immediate_reuse is set
//     0, 1   the legacy stream of the current context        2   the calling thread's stream in that context
//
// A record stays where it is until the driver closes; a destroyed stream keeps its record until its work has drained.
#include <stdlib.h>

#include "vmm/host_model.h"

#define STREAM_MARK (UINT64_C(0x57) << 56)
#define INDEX_BITS 24u
#define MAX_STREAMS (UINT32_C(1) << INDEX_BITS)

// ---- records ----

static vmp_host_stream *take_record(vmp_host *host) {
  if (host->free_stream != 0) {
    vmp_host_stream *stream = host->streams[host->free_stream - 1];
    host->free_stream = stream->next_free;
    return stream;
  }
  if (host->num_stream_records == MAX_STREAMS ||
      !vmp_host_grow32(&host->streams, &host->cap_streams, (size_t)host->num_stream_records + 1,
                       sizeof host->streams[0])) {
    return NULL;
  }
  vmp_host_stream *stream = calloc(1, sizeof *stream);
  if (stream == NULL) return NULL;
  stream->index = host->num_stream_records;
  host->streams[host->num_stream_records++] = stream;
  return stream;
}

static vmp_host_stream *make_stream(vmp_host *host, int device, vmp_host_stream_kind kind) {
  vmp_host_stream *stream = take_record(host);
  if (stream == NULL) return NULL;
  uint32_t index = stream->index;
  uint32_t tag = stream->tag;
  if (host->options.immediate_reuse == 0 || tag == 0) tag++;
  *stream = (vmp_host_stream){.uid = ++host->next_uid, .index = index, .tag = tag, .device = device, .kind = kind};
  if (kind == VMP_HOST_STREAM_BLOCKING || kind == VMP_HOST_STREAM_NON_BLOCKING) {
    stream->value = STREAM_MARK | ((uint64_t)tag << INDEX_BITS) | index;
    host->live_streams++;
  }
  return stream;
}

void vmp_host_stream_gone(vmp_host *host, vmp_host_stream *stream) {
  vmp_host_order_seen_stream(host, stream);  // what is still to be ordered behind it can't be asked any more
  stream->uid = 0;
  stream->value = 0;
  stream->next_free = host->free_stream;
  host->free_stream = stream->index + 1;
}

vmp_host_stream *vmp_host_stream_alive(const vmp_host *host, uint32_t index, uint64_t uid) {
  vmp_host_stream *stream = host->streams[index];
  return stream->uid == uid ? stream : NULL;
}

bool vmp_host_orders_with_legacy(const vmp_host *host, const vmp_host_stream *stream) {
  // Sources differ on per-thread streams. Strict: no order is implied.
  return stream->kind == VMP_HOST_STREAM_BLOCKING ||
         (stream->kind == VMP_HOST_STREAM_PER_THREAD && host->options.level != VMP_HOST_STRICT);
}

static vmp_host_stream *legacy_stream(vmp_host *host, int device) {
  struct CUctx_st *context = &host->contexts[device];
  if (context->legacy == NULL) context->legacy = make_stream(host, device, VMP_HOST_STREAM_LEGACY);
  return context->legacy;
}

static vmp_host_stream *thread_stream(vmp_host *host, int device) {
  vmp_host_thread *thread = vmp_host_this_thread(host);
  if (thread == NULL) return NULL;
  if (thread->per_thread[device] == NULL) {
    thread->per_thread[device] = make_stream(host, device, VMP_HOST_STREAM_PER_THREAD);
  }
  return thread->per_thread[device];
}

static vmp_host_stream *named_stream(const vmp_host *host, uint64_t value) {
  uint32_t index = (uint32_t)value & (MAX_STREAMS - 1);
  if ((value & (UINT64_C(0xff) << 56)) != STREAM_MARK || index >= host->num_stream_records) return NULL;
  vmp_host_stream *stream = host->streams[index];
  return stream->value == value && !stream->destroyed ? stream : NULL;
}

int vmp_host_stream_of_device(vmp_host *host, int device, vmp_cu_stream handle, vmp_host_stream **out_stream) {
  uint64_t value = (uint64_t)(uintptr_t)handle;
  if (value <= 2 && !vmp_host_valid_device(host, device)) {
    return vmp_host_break(host, 50, VMP_CU_INVALID_DEVICE, "stream %llu of device %d of %d", (unsigned long long)value,
                          device, host->num_devices);
  }
  vmp_host_stream *stream = value <= 1   ? legacy_stream(host, device)
                            : value == 2 ? thread_stream(host, device)
                                         : named_stream(host, value);
  if (stream == NULL && value <= 2) return VMP_CU_OUT_OF_MEMORY;
  if (stream == NULL) {
    return vmp_host_break(host, 50, VMP_CU_INVALID_HANDLE, "%#llx is no stream, or one that was destroyed",
                          (unsigned long long)value);
  }
  *out_stream = stream;
  return 0;
}

int vmp_host_find_stream(vmp_host *host, vmp_cu_stream handle, vmp_host_stream **out_stream) {
  struct CUctx_st *context = NULL;
  int code = vmp_host_current(host, &context);
  if (code == 0) code = vmp_host_stream_of_device(host, context->device, handle, out_stream);
  if (code == 0) code = host->contexts[(*out_stream)->device].sticky;
  return code;
}

// ---- the end of a context, the end of all ----

void vmp_host_stream_reset(vmp_host *host, int device) {
  for (uint32_t i = 0; i < host->num_stream_records; i++) {
    vmp_host_stream *stream = host->streams[i];
    if (stream->uid == 0 || stream->device != device) continue;
    if (stream->capture_status != VMP_CU_CAPTURE_STATUS_NONE) vmp_host_capture_end(host, stream->capture_id);
    if (stream->value != 0 && !stream->destroyed) host->live_streams--;
    stream->destroyed = true;
    if (stream->count == 0) vmp_host_stream_gone(host, stream);
  }
  host->contexts[device].legacy = NULL;
  for (vmp_host_thread *thread = host->threads; thread != NULL; thread = thread->next)
    thread->per_thread[device] = NULL;
}

void vmp_host_stream_close(vmp_host *host) {
  for (uint32_t i = 0; i < host->num_stream_records; i++) free(host->streams[i]);
  vmp_host_order_close(host);
  free(host->streams);
  free(host->events);
}

// ---- the calls ----

int vmp_host_op_stream_create(vmp_driver *driver, vmp_cu_stream *out_stream, unsigned flags) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_stream_create, VMP_HOST_SITE());
  if (code != 0) return code;
  struct CUctx_st *context = NULL;
  vmp_host_stream *stream = NULL;
  code = vmp_host_current(host, &context);
  if (code == 0 && (out_stream == NULL || flags > VMP_CU_STREAM_NON_BLOCKING)) {
    code = vmp_host_break(host, 49, VMP_CU_INVALID_VALUE, "cuStreamCreate: out %p, flags %u; flags are 0 or 1",
                          (void *)out_stream, flags);
  }
  if (code == 0) {
    stream = make_stream(host, context->device,
                         flags == VMP_CU_STREAM_DEFAULT ? VMP_HOST_STREAM_BLOCKING : VMP_HOST_STREAM_NON_BLOCKING);
    if (stream == NULL) code = VMP_CU_OUT_OF_MEMORY;
  }
  if (code == 0) *out_stream = (vmp_cu_stream)(uintptr_t)stream->value;
  return vmp_host_leave_out(host, code, out_stream, sizeof *out_stream);
}

int vmp_host_op_stream_destroy(vmp_driver *driver, vmp_cu_stream handle) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_stream_destroy, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_stream *stream = NULL;
  code = vmp_host_find_stream(host, handle, &stream);
  if (code == 0 && stream->value == 0) {
    code = vmp_host_break(host, 50, VMP_CU_INVALID_HANDLE, "cuStreamDestroy: a default stream can't be destroyed");
  }
  if (code == 0) {
    if (stream->capture_status != VMP_CU_CAPTURE_STATUS_NONE) vmp_host_capture_end(host, stream->capture_id);
    host->live_streams--;
    stream->destroyed = true;
    if (stream->count == 0) vmp_host_stream_gone(host, stream);
  }
  return vmp_host_leave(host, code);
}

int vmp_host_op_stream_synchronize(vmp_driver *driver, vmp_cu_stream handle) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_stream_synchronize, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_stream *stream = NULL;
  code = vmp_host_find_stream(host, handle, &stream);
  if (code == 0) code = vmp_host_capture_forbid(host, stream);
  if (code == 0) {
    int device = stream->device;
    bool waited = false;
    if (stream->kind == VMP_HOST_STREAM_LEGACY) {
      // Synchronising the legacy stream waits for what it would be ordered behind.
      uint64_t limit = host->counters.operations_queued;
      for (uint32_t i = 0; i < host->num_stream_records; i++) {
        const vmp_host_stream *other = host->streams[i];
        if (other->uid == 0 || other->device != device || !vmp_host_orders_with_legacy(host, other)) continue;
        vmp_host_order_seen_stream(host, host->streams[i]);
        waited = vmp_host_wait_for(host, other->index, other->uid, limit) || waited;
      }
    }
    vmp_host_order_seen_stream(host, stream);
    waited = vmp_host_wait_for(host, stream->index, stream->uid, stream->last_sequence) || waited;
    if (waited) host->counters.host_waits++;
    code = host->contexts[device].sticky;
  }
  return vmp_host_leave(host, code);
}

int vmp_host_op_stream_query(vmp_driver *driver, vmp_cu_stream handle) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_stream_query, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_stream *stream = NULL;
  code = vmp_host_find_stream(host, handle, &stream);
  if (code == 0) code = vmp_host_capture_forbid(host, stream);
  if (code == 0) {
    uint32_t index = stream->index;
    uint64_t uid = stream->uid;
    int device = stream->device;
    vmp_host_poll(host);
    stream = vmp_host_stream_alive(host, index, uid);
    code = host->contexts[device].sticky;
    if (code == 0 && stream != NULL && stream->count != 0) code = VMP_CU_NOT_READY;
    if (code == 0 && stream != NULL) vmp_host_order_seen_stream(host, stream);
  }
  return vmp_host_leave(host, code);
}

int vmp_host_op_stream_get_id(vmp_driver *driver, vmp_cu_stream handle, unsigned long long *out_id) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_stream_get_id, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_stream *stream = NULL;
  code = vmp_host_find_stream(host, handle, &stream);
  if (code == 0 && out_id == NULL) {
    code = vmp_host_break(host, 50, VMP_CU_INVALID_VALUE, "cuStreamGetId: the out-pointer is null");
  }
  if (code == 0) *out_id = stream->uid;
  return vmp_host_leave_out(host, code, out_id, sizeof *out_id);
}

int vmp_host_op_stream_get_ctx(vmp_driver *driver, vmp_cu_stream handle, vmp_cu_context *out_context) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_stream_get_ctx, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_stream *stream = NULL;
  code = vmp_host_find_stream(host, handle, &stream);
  if (code == 0 && out_context == NULL) {
    code = vmp_host_break(host, 50, VMP_CU_INVALID_VALUE, "cuStreamGetCtx: the out-pointer is null");
  }
  if (code == 0) *out_context = &host->contexts[stream->device];
  return vmp_host_leave_out(host, code, out_context, sizeof *out_context);
}

int vmp_host_op_launch_host_func(vmp_driver *driver, vmp_cu_stream handle, vmp_cu_host_fn fn, void *user_data) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_launch_host_func, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_stream *stream = NULL;
  bool captured = false;
  code = vmp_host_find_stream(host, handle, &stream);
  if (code == 0 && fn == NULL) {
    code = vmp_host_break(host, 54, VMP_CU_INVALID_VALUE, "cuLaunchHostFunc: the function is null");
  }
  if (code == 0) code = vmp_host_capture_submit(host, stream, &captured);
  if (code == 0 && !captured) {
    uintptr_t address;
    __builtin_memcpy(&address, &fn, sizeof address);
    code = vmp_host_enqueue(
        host, stream, (vmp_host_op){.kind = VMP_HOST_OP_HOST_FN, .a = address, .b = (uint64_t)(uintptr_t)user_data});
  }
  return vmp_host_leave(host, code);
}
