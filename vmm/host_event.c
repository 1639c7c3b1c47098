// host_event.c: events.
//
// A record is an operation of its own: an event is complete when that operation has run, also on an idle stream. A
// stream wait remembers the record that it saw; recording the event again doesn't change it. An event that was never
// recorded is complete, and a wait on it does nothing.
//
//     handle value   [ 0x45 : 8 | tag : 32 | index : 24 ]
#include <stdlib.h>

#include "vmm/host_model.h"

#define EVENT_MARK (UINT64_C(0x45) << 56)
#define INDEX_BITS 24u
#define MAX_EVENTS (UINT32_C(1) << INDEX_BITS)
#define ALL_FLAGS (VMP_CU_EVENT_BLOCKING_SYNC | VMP_CU_EVENT_DISABLE_TIMING | VMP_CU_EVENT_INTERPROCESS)

static uint32_t index_of(const vmp_host *host, const vmp_host_event *event) { return (uint32_t)(event - host->events); }

static vmp_host_event *make_event(vmp_host *host, int device, unsigned flags) {
  vmp_host_event *event;
  uint32_t tag = 0;
  if (host->free_event != 0) {
    event = &host->events[host->free_event - 1];
    host->free_event = event->next_free;
    tag = event->tag;
  } else {
    if (host->num_event_records == MAX_EVENTS ||
        !vmp_host_grow32(&host->events, &host->cap_events, (size_t)host->num_event_records + 1, sizeof *host->events)) {
      return NULL;
    }
    event = &host->events[host->num_event_records++];
  }
  if (host->options.immediate_reuse == 0 || tag == 0) tag++;
  *event = (vmp_host_event){.uid = ++host->next_uid, .tag = tag, .device = device, .flags = flags};
  event->value = EVENT_MARK | ((uint64_t)tag << INDEX_BITS) | index_of(host, event);
  host->live_events++;
  return event;
}

static void free_event(vmp_host *host, vmp_host_event *event) {
  free(event->order);
  event->order = NULL;
  event->value = 0;
  event->uid = 0;
  event->next_free = host->free_event;
  host->free_event = index_of(host, event) + 1;
  host->live_events--;
}

void vmp_host_event_reset(vmp_host *host, int device) {
  for (uint32_t i = 0; i < host->num_event_records; i++) {
    if (host->events[i].value != 0 && host->events[i].device == device) free_event(host, &host->events[i]);
  }
}

void vmp_host_event_ran(vmp_host *host, const vmp_host_op *op) {
  vmp_host_event *event = &host->events[op->arg];
  if (event->uid == op->a && event->sequence == op->sequence && event->capture_id == 0) event->time_ns = host->clock_ns;
}

static bool is_pending(const vmp_host *host, const vmp_host_event *event) {
  if (!event->recorded || event->capture_id != 0) return false;
  const vmp_host_stream *stream = vmp_host_stream_alive(host, event->stream_index, event->stream_uid);
  return stream != NULL && vmp_host_pending(stream, event->sequence);
}

// 0, or 201, 709, the sticky code, 400.
static int find_event(vmp_host *host, vmp_cu_event handle, vmp_host_event **out_event) {
  struct CUctx_st *context = NULL;
  int code = vmp_host_current(host, &context);
  if (code != 0) return code;
  uint64_t value = (uint64_t)(uintptr_t)handle;
  uint32_t index = (uint32_t)value & (MAX_EVENTS - 1);
  if (value == 0 || index >= host->num_event_records || host->events[index].value != value) {
    return vmp_host_break(host, 50, VMP_CU_INVALID_HANDLE, "%s: %#llx is no event, or one that was destroyed",
                          vmp_call_symbol(host->call), (unsigned long long)value);
  }
  *out_event = &host->events[index];
  return host->contexts[(*out_event)->device].sticky;
}

// ---- the calls ----

int vmp_host_op_event_create(vmp_driver *driver, vmp_cu_event *out_event, unsigned flags) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_event_create, VMP_HOST_SITE());
  if (code != 0) return code;
  struct CUctx_st *context = NULL;
  code = vmp_host_current(host, &context);
  bool between = (flags & VMP_CU_EVENT_INTERPROCESS) != 0 && (flags & VMP_CU_EVENT_DISABLE_TIMING) == 0;
  if (code == 0 && (out_event == NULL || (flags & ~(unsigned)ALL_FLAGS) != 0 || between)) {
    code = vmp_host_break(host, 49, VMP_CU_INVALID_VALUE, "cuEventCreate: out %p, flags %u%s", (void *)out_event, flags,
                          between ? "; INTERPROCESS needs DISABLE_TIMING" : "");
  }
  vmp_host_event *event = code == 0 ? make_event(host, context->device, flags) : NULL;
  if (code == 0 && event == NULL) code = VMP_CU_OUT_OF_MEMORY;
  if (code == 0) *out_event = (vmp_cu_event)(uintptr_t)event->value;
  return vmp_host_leave_out(host, code, out_event, sizeof *out_event);
}

int vmp_host_op_event_destroy(vmp_driver *driver, vmp_cu_event handle) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_event_destroy, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_event *event = NULL;
  code = find_event(host, handle, &event);
  if (code == 0) free_event(host, event);
  return vmp_host_leave(host, code);
}

static int record(vmp_host *host, vmp_host_event *event, vmp_host_stream *stream) {
  if (event->device != stream->device) {
    return vmp_host_break(host, 50, VMP_CU_INVALID_HANDLE, "cuEventRecord: the event is of device %d, the stream of %d",
                          event->device, stream->device);
  }
  bool captured = false;
  int code = vmp_host_capture_submit(host, stream, &captured);
  if (code != 0) return code;
  if (!captured) vmp_host_order_record(host, stream, event);
  vmp_host_event old = *event;
  event->recorded = true;
  event->stream_index = stream->index;
  event->stream_uid = stream->uid;
  event->capture_id = captured ? stream->capture_id : 0;
  event->sequence = captured ? stream->captured_ops : host->counters.operations_queued + 1;
  if (captured) return 0;
  uint32_t index = index_of(host, event);
  code = vmp_host_enqueue(host, stream, (vmp_host_op){.kind = VMP_HOST_OP_RECORD, .a = event->uid, .arg = index});
  if (code != 0) host->events[index] = old;  // nothing was queued and the lock was held throughout
  return code;
}

int vmp_host_op_event_record(vmp_driver *driver, vmp_cu_event handle, vmp_cu_stream stream_handle) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_event_record, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_event *event = NULL;
  vmp_host_stream *stream = NULL;
  code = find_event(host, handle, &event);
  if (code == 0) code = vmp_host_find_stream(host, stream_handle, &stream);
  if (code == 0) code = record(host, event, stream);
  return vmp_host_leave(host, code);
}

int vmp_host_op_event_query(vmp_driver *driver, vmp_cu_event handle) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_event_query, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_event *event = NULL;
  code = find_event(host, handle, &event);
  if (code == 0) code = vmp_host_capture_forbid_event(host, event);
  if (code == 0) {
    vmp_host_event seen = *event;  // a host function may run below, without the lock
    uint32_t index = index_of(host, event);
    vmp_host_poll(host);
    code = host->contexts[seen.device].sticky;
    if (code == 0 && is_pending(host, &seen)) code = VMP_CU_NOT_READY;
    event = &host->events[index];
    if (code == 0 && event->uid == seen.uid && event->sequence == seen.sequence) vmp_host_order_seen_event(host, event);
  }
  return vmp_host_leave(host, code);
}

int vmp_host_op_event_synchronize(vmp_driver *driver, vmp_cu_event handle) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_event_synchronize, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_event *event = NULL;
  code = find_event(host, handle, &event);
  if (code == 0) code = vmp_host_capture_forbid_event(host, event);
  if (code == 0) {
    int device = event->device;
    vmp_host_order_seen_event(host, event);
    if (is_pending(host, event) && vmp_host_wait_for(host, event->stream_index, event->stream_uid, event->sequence)) {
      host->counters.host_waits++;
    }
    code = host->contexts[device].sticky;
  }
  return vmp_host_leave(host, code);
}

static int check_elapsed(vmp_host *host, const float *out_ms, const vmp_host_event *start, const vmp_host_event *end) {
  if (out_ms == NULL) {
    return vmp_host_break(host, 53, VMP_CU_INVALID_VALUE, "cuEventElapsedTime: the out-pointer is null");
  }
  if (!start->recorded || !end->recorded || ((start->flags | end->flags) & VMP_CU_EVENT_DISABLE_TIMING) != 0) {
    return vmp_host_break(host, 53, VMP_CU_INVALID_HANDLE, "cuEventElapsedTime: an event %s",
                          start->recorded && end->recorded ? "has no timing" : "was never recorded");
  }
  return is_pending(host, start) || is_pending(host, end) ? VMP_CU_NOT_READY : 0;
}

int vmp_host_op_event_elapsed_time(vmp_driver *driver, float *out_ms, vmp_cu_event start_handle,
                                   vmp_cu_event end_handle) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_event_elapsed_time, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_event *start = NULL;
  vmp_host_event *end = NULL;
  code = find_event(host, start_handle, &start);
  if (code == 0) code = find_event(host, end_handle, &end);
  if (code == 0) code = vmp_host_capture_forbid_event(host, start);
  if (code == 0) code = vmp_host_capture_forbid_event(host, end);
  if (code == 0) code = check_elapsed(host, out_ms, start, end);
  if (code == 0) *out_ms = (float)(((double)end->time_ns - (double)start->time_ns) / 1e6);
  return vmp_host_leave_out(host, code, out_ms, sizeof *out_ms);
}

int vmp_host_op_stream_wait_event(vmp_driver *driver, vmp_cu_stream stream_handle, vmp_cu_event handle,
                                  unsigned flags) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_stream_wait_event, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_event *event = NULL;
  vmp_host_stream *stream = NULL;
  bool captured = false;
  code = find_event(host, handle, &event);
  if (code == 0) code = vmp_host_find_stream(host, stream_handle, &stream);
  if (code == 0 && flags != 0) {
    code = vmp_host_break(host, 50, VMP_CU_INVALID_VALUE, "cuStreamWaitEvent: flags are %u; they must be 0", flags);
  }
  if (code == 0 && event->recorded) code = vmp_host_capture_wait(host, stream, event, &captured);
  if (code != 0) return vmp_host_leave(host, code);
  if (!captured && event->recorded) vmp_host_order_wait(host, stream, event);
  if (!captured && is_pending(host, event)) {
    code = vmp_host_enqueue(
        host, stream,
        (vmp_host_op){
            .kind = VMP_HOST_OP_WAIT, .a = event->sequence, .b = event->stream_uid, .arg = event->stream_index});
    if (code == 0) host->counters.unfinished_stream_waits++;
  }
  if (code == 0) host->counters.stream_waits++;
  return vmp_host_leave(host, code);
}
