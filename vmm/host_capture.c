// host_capture.c: stream capture, as far as a memory pool meets it: what joins a capture, what it forbids.
//
//     begin on s          s is the origin; work submitted to s is captured, never run
//     record e on s, t waits for e      t joins; it must be joined back (s waits for an event of t) before the end
//     sync or query of a capturing stream           900, and the capture is invalid
//     legacy stream while a blocking stream of the context captures          906, the same
//     wait or query of an event recorded in a capture                        907, the same
//     calls that might wait for captured work, allocate, or query elsewhere  900, unless this thread's capture mode
//                                                                            is relaxed, or thread-local and it
//                                                                            captures nothing itself
// VMM calls are no stream operations: they are allowed always.
#include <stdlib.h>

#include "vmm/host_model.h"

// ---- one capture ----

// Marks every stream of a capture invalid; it stays in that state until the origin ends it.
static void invalidate(vmp_host *host, uint64_t capture_id) {
  for (uint32_t i = 0; i < host->num_stream_records; i++) {
    vmp_host_stream *stream = host->streams[i];
    if (stream->uid != 0 && stream->capture_id == capture_id &&
        stream->capture_status == VMP_CU_CAPTURE_STATUS_ACTIVE) {
      stream->capture_status = VMP_CU_CAPTURE_STATUS_INVALIDATED;
    }
  }
}

void vmp_host_capture_end(vmp_host *host, uint64_t capture_id) {
  for (uint32_t i = 0; i < host->num_stream_records; i++) {
    vmp_host_stream *stream = host->streams[i];
    if (stream->uid == 0 || stream->capture_id != capture_id) continue;
    if (stream->capture_origin) host->live_captures--;
    stream->capture_status = VMP_CU_CAPTURE_STATUS_NONE;
    stream->capture_id = 0;
    stream->capture_origin = false;
    stream->capture_unjoined = false;
  }
}

static int invalidating(vmp_host *host, uint64_t capture_id, int code, const char *why) {
  invalidate(host, capture_id);
  return vmp_host_break(host, 57, code, "%s: %s; the capture is invalid now", vmp_call_symbol(host->call), why);
}

static bool is_capturing(const vmp_host_stream *stream) {
  return stream->uid != 0 && stream->capture_status == VMP_CU_CAPTURE_STATUS_ACTIVE;
}

// A capturing blocking stream that the legacy stream of `device` would have to wait for, or NULL.
static const vmp_host_stream *blocking_capture(const vmp_host *host, int device) {
  for (uint32_t i = 0; host->live_captures != 0 && i < host->num_stream_records; i++) {
    const vmp_host_stream *stream = host->streams[i];
    if (is_capturing(stream) && stream->device == device && stream->kind == VMP_HOST_STREAM_BLOCKING) return stream;
  }
  return NULL;
}

// ---- what a capture forbids ----

int vmp_host_capture_unsafe(vmp_host *host) {
  if (host->live_captures == 0) return 0;
  const vmp_host_thread *thread = pthread_getspecific(host->thread_key);
  int mode = thread == NULL ? VMP_CU_CAPTURE_GLOBAL : thread->capture_mode;
  if (mode == VMP_CU_CAPTURE_RELAXED) return 0;
  for (uint32_t i = 0; i < host->num_stream_records; i++) {
    const vmp_host_stream *stream = host->streams[i];
    if (!is_capturing(stream) || !stream->capture_origin) continue;
    bool own = stream->capture_thread == thread && stream->capture_mode != VMP_CU_CAPTURE_RELAXED;
    bool global = mode == VMP_CU_CAPTURE_GLOBAL && stream->capture_mode == VMP_CU_CAPTURE_GLOBAL;
    if (own || global) {
      return invalidating(host, stream->capture_id, VMP_CU_STREAM_CAPTURE_UNSUPPORTED,
                          "unsafe while a stream captures; exchange this thread's capture mode first");
    }
  }
  return 0;
}

int vmp_host_capture_forbid(vmp_host *host, vmp_host_stream *stream) {
  if (host->live_captures == 0) return 0;
  if (stream->capture_status == VMP_CU_CAPTURE_STATUS_INVALIDATED) {
    return vmp_host_break(host, 57, VMP_CU_STREAM_CAPTURE_INVALIDATED, "%s: the stream's capture is invalid",
                          vmp_call_symbol(host->call));
  }
  if (stream->capture_status == VMP_CU_CAPTURE_STATUS_ACTIVE) {
    return invalidating(host, stream->capture_id, VMP_CU_STREAM_CAPTURE_UNSUPPORTED, "the stream captures");
  }
  if (stream->kind == VMP_HOST_STREAM_LEGACY) {
    const vmp_host_stream *other = blocking_capture(host, stream->device);
    if (other != NULL) {
      return invalidating(host, other->capture_id, VMP_CU_STREAM_CAPTURE_IMPLICIT,
                          "the legacy stream would wait for a capturing stream");
    }
  }
  return vmp_host_capture_unsafe(host);
}

int vmp_host_capture_forbid_device(vmp_host *host, int device) {
  for (uint32_t i = 0; host->live_captures != 0 && i < host->num_stream_records; i++) {
    const vmp_host_stream *stream = host->streams[i];
    if (is_capturing(stream) && stream->device == device) {
      return invalidating(host, stream->capture_id, VMP_CU_STREAM_CAPTURE_UNSUPPORTED,
                          "a stream of the context captures");
    }
  }
  return vmp_host_capture_unsafe(host);
}

int vmp_host_capture_forbid_event(vmp_host *host, const vmp_host_event *event) {
  if (event->recorded && event->capture_id != 0) {
    return invalidating(host, event->capture_id, VMP_CU_CAPTURED_EVENT, "the event was recorded in a capture");
  }
  return vmp_host_capture_unsafe(host);
}

// ---- what a capture takes ----

int vmp_host_capture_submit(vmp_host *host, vmp_host_stream *stream, bool *out_captured) {
  if (host->live_captures == 0) return 0;
  if (stream->capture_status == VMP_CU_CAPTURE_STATUS_INVALIDATED) {
    return vmp_host_break(host, 57, VMP_CU_STREAM_CAPTURE_INVALIDATED, "work for a stream whose capture is invalid");
  }
  if (stream->capture_status == VMP_CU_CAPTURE_STATUS_ACTIVE) {
    stream->captured_ops++;
    stream->capture_unjoined = !stream->capture_origin;
    *out_captured = true;
    return 0;
  }
  const vmp_host_stream *other = NULL;
  if (stream->kind == VMP_HOST_STREAM_LEGACY) other = blocking_capture(host, stream->device);
  if (other == NULL) return 0;
  return invalidating(host, other->capture_id, VMP_CU_STREAM_CAPTURE_IMPLICIT,
                      "work for the legacy stream while a blocking stream captures");
}

static int join(vmp_host *host, vmp_host_stream *stream, const vmp_host_event *event, bool *out_captured) {
  vmp_host_stream *source = vmp_host_stream_alive(host, event->stream_index, event->stream_uid);
  if (source == NULL || source->capture_id != event->capture_id || !is_capturing(source)) {
    return vmp_host_break(host, 57, VMP_CU_CAPTURED_EVENT,
                          "cuStreamWaitEvent: the event is of a capture that has ended");
  }
  if (stream->kind == VMP_HOST_STREAM_LEGACY) {
    return invalidating(host, event->capture_id, VMP_CU_STREAM_CAPTURE_IMPLICIT, "the legacy stream can't be captured");
  }
  if (stream->capture_status == VMP_CU_CAPTURE_STATUS_NONE) {
    stream->capture_status = VMP_CU_CAPTURE_STATUS_ACTIVE;
    stream->capture_id = source->capture_id;
    stream->capture_mode = source->capture_mode;
    stream->capture_thread = source->capture_thread;
    stream->captured_ops = 0;
  } else if (stream->capture_id != event->capture_id) {
    return invalidating(host, event->capture_id, VMP_CU_STREAM_CAPTURE_ISOLATION, "the event is of another capture");
  }
  stream->captured_ops++;
  stream->capture_unjoined = !stream->capture_origin;
  if (source != stream && event->sequence == source->captured_ops) source->capture_unjoined = false;
  *out_captured = true;
  return 0;
}

int vmp_host_capture_wait(vmp_host *host, vmp_host_stream *stream, const vmp_host_event *event, bool *out_captured) {
  if (stream->capture_status == VMP_CU_CAPTURE_STATUS_INVALIDATED) {
    return vmp_host_break(host, 57, VMP_CU_STREAM_CAPTURE_INVALIDATED, "cuStreamWaitEvent: the capture is invalid");
  }
  if (event->capture_id != 0) return join(host, stream, event, out_captured);
  if (stream->capture_status == VMP_CU_CAPTURE_STATUS_ACTIVE) {
    return invalidating(host, stream->capture_id, VMP_CU_STREAM_CAPTURE_ISOLATION,
                        "a captured wait for work outside the capture");
  }
  return vmp_host_capture_submit(host, stream, out_captured);
}

// ---- the calls ----

int vmp_host_op_stream_is_capturing(vmp_driver *driver, vmp_cu_stream handle, int *out_status) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_stream_is_capturing, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_stream *stream = NULL;
  code = vmp_host_find_stream(host, handle, &stream);
  if (code == 0 && out_status == NULL) {
    code = vmp_host_break(host, 57, VMP_CU_INVALID_VALUE, "cuStreamIsCapturing: the out-pointer is null");
  }
  if (code == 0 && stream->kind == VMP_HOST_STREAM_LEGACY && blocking_capture(host, stream->device) != NULL) {
    code = vmp_host_break(host, 57, VMP_CU_STREAM_CAPTURE_IMPLICIT,  // documented: this one invalidates nothing
                          "cuStreamIsCapturing: the legacy stream while a blocking stream captures");
  }
  if (code == 0) *out_status = stream->capture_status;
  return vmp_host_leave_out(host, code, out_status, sizeof *out_status);
}

static int check_begin(vmp_host *host, const vmp_host_stream *stream, int mode) {
  if (mode < VMP_CU_CAPTURE_GLOBAL || mode > VMP_CU_CAPTURE_RELAXED) {
    return vmp_host_break(host, 57, VMP_CU_INVALID_VALUE, "cuStreamBeginCapture: mode %d", mode);
  }
  if (stream->kind == VMP_HOST_STREAM_LEGACY) {
    return vmp_host_break(host, 57, VMP_CU_STREAM_CAPTURE_UNSUPPORTED,
                          "cuStreamBeginCapture: the legacy stream can't be captured");
  }
  if (stream->capture_status != VMP_CU_CAPTURE_STATUS_NONE) {
    return vmp_host_break(host, 57, VMP_CU_ILLEGAL_STATE, "cuStreamBeginCapture: the stream captures already");
  }
  return 0;
}

int vmp_host_op_stream_begin_capture(vmp_driver *driver, vmp_cu_stream handle, int mode) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_stream_begin_capture, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_stream *stream = NULL;
  code = vmp_host_find_stream(host, handle, &stream);
  if (code == 0) code = check_begin(host, stream, mode);
  if (code == 0) {
    stream->capture_status = VMP_CU_CAPTURE_STATUS_ACTIVE;
    stream->capture_mode = mode;
    stream->capture_id = ++host->next_capture_id;
    stream->capture_origin = true;
    stream->capture_unjoined = false;
    stream->capture_thread = pthread_getspecific(host->thread_key);
    stream->captured_ops = 0;
    host->live_captures++;
  }
  return vmp_host_leave(host, code);
}

static bool has_unjoined(const vmp_host *host, uint64_t capture_id) {
  for (uint32_t i = 0; i < host->num_stream_records; i++) {
    const vmp_host_stream *stream = host->streams[i];
    if (stream->uid != 0 && stream->capture_id == capture_id && stream->capture_unjoined) return true;
  }
  return false;
}

static int end_capture(vmp_host *host, vmp_host_stream *stream) {
  if (stream->capture_status == VMP_CU_CAPTURE_STATUS_NONE || !stream->capture_origin) {
    return vmp_host_break(host, 57, VMP_CU_ILLEGAL_STATE, "cuStreamEndCapture: no capture began on this stream");
  }
  if (stream->capture_mode != VMP_CU_CAPTURE_RELAXED &&
      stream->capture_thread != pthread_getspecific(host->thread_key)) {
    return vmp_host_break(host, 57, VMP_CU_STREAM_CAPTURE_WRONG_THREAD,
                          "cuStreamEndCapture: the capture began on another thread");
  }
  int code = 0;
  if (stream->capture_status == VMP_CU_CAPTURE_STATUS_INVALIDATED) {
    code = VMP_CU_STREAM_CAPTURE_INVALIDATED;
  } else if (has_unjoined(host, stream->capture_id)) {
    code = vmp_host_break(host, 57, VMP_CU_STREAM_CAPTURE_UNJOINED,
                          "cuStreamEndCapture: a stream of the capture was not joined back");
  }
  vmp_host_capture_end(host, stream->capture_id);
  return code;
}

int vmp_host_op_stream_end_capture(vmp_driver *driver, vmp_cu_stream handle, void **out_graph) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_stream_end_capture, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_stream *stream = NULL;
  code = vmp_host_find_stream(host, handle, &stream);
  if (code == 0 && out_graph == NULL) {
    code = vmp_host_break(host, 57, VMP_CU_INVALID_VALUE, "cuStreamEndCapture: the out-pointer is null");
  }
  if (code == 0 && !vmp_host_grow(&host->graphs, &host->cap_graphs, host->num_graphs + 1, sizeof host->graphs[0])) {
    code = VMP_CU_OUT_OF_MEMORY;
  }
  if (code == 0) {
    code = end_capture(host, stream);
    if (code == 0) {
      uint64_t graph = (UINT64_C(0x47) << 56) | ++host->next_uid;
      host->graphs[host->num_graphs++] = graph;
      *out_graph = (void *)(uintptr_t)graph;
    }
  }
  return vmp_host_leave_out(host, code, out_graph, sizeof *out_graph);
}

int vmp_host_op_graph_destroy(vmp_driver *driver, void *graph) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_graph_destroy, VMP_HOST_SITE());
  if (code != 0) return code;
  size_t i = 0;
  while (i < host->num_graphs && host->graphs[i] != (uint64_t)(uintptr_t)graph) i++;
  if (i == host->num_graphs) {
    code = vmp_host_break(host, 50, VMP_CU_INVALID_VALUE, "cuGraphDestroy: %p is no graph", graph);
  } else {
    host->graphs[i] = host->graphs[--host->num_graphs];
  }
  return vmp_host_leave(host, code);
}

int vmp_host_op_thread_exchange_capture_mode(vmp_driver *driver, int *inout_mode) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_thread_exchange_capture_mode, VMP_HOST_SITE());
  if (code != 0) return code;
  if (inout_mode == NULL || *inout_mode < VMP_CU_CAPTURE_GLOBAL || *inout_mode > VMP_CU_CAPTURE_RELAXED) {
    code = vmp_host_break(host, 57, VMP_CU_INVALID_VALUE, "cuThreadExchangeStreamCaptureMode: no valid mode");
    return vmp_host_leave(host, code);
  }
  vmp_host_thread *thread = vmp_host_this_thread(host);
  if (thread == NULL) return vmp_host_leave(host, VMP_CU_OUT_OF_MEMORY);
  int old = thread->capture_mode;
  thread->capture_mode = *inout_mode;
  *inout_mode = old;
  return vmp_host_leave(host, 0);
}
