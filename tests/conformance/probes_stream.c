// probes_stream.c: streams, events, host functions, capture (rules 49 to 54, 57).
#include "tests/conformance/probes.h"

// ---- making ----

int conform_stream_with_bad_flags(conform *c) {
  vmp_cu_stream stream = NULL;
  int code = vmp_drv_stream_create(c->driver, &stream, 0x80);
  if (code == VMP_CU_SUCCESS) (void)vmp_drv_stream_destroy(c->driver, stream);
  return code;
}

// with_event makes an event, asks, and destroys it.
static int with_event(conform *c, unsigned flags, int (*ask)(conform *c, vmp_cu_event event)) {
  vmp_cu_event event = NULL;
  int code = vmp_drv_event_create(c->driver, &event, flags);
  if (code != VMP_CU_SUCCESS) return code;
  if (ask != NULL) code = ask(c, event);
  VEXPECT_INT_EQ(vmp_drv_event_destroy(c->driver, event), VMP_CU_SUCCESS);
  return code;
}
int conform_event_with_bad_flags(conform *c) { return with_event(c, 0x80, NULL); }
int conform_event_shared_with_timing(conform *c) { return with_event(c, VMP_CU_EVENT_INTERPROCESS, NULL); }

// ---- handles that are none ----

int conform_record_across_contexts(conform *c) {
  vmp_cu_event event = NULL;
  vmp_cu_stream stream = NULL;
  vmp_cu_context other = NULL;
  int device = conform_other(c, true);
  if (device < 0) device = conform_other(c, false);
  if (device < 0) return conform_not_here(c, "there is one device only");
  if (vmp_drv_event_create(c->driver, &event, VMP_CU_EVENT_DEFAULT) != VMP_CU_SUCCESS ||
      vmp_context_retain(c->driver, device, &other) != VMP_OK ||
      vmp_drv_ctx_push_current(c->driver, other) != VMP_CU_SUCCESS ||
      vmp_drv_stream_create(c->driver, &stream, VMP_CU_STREAM_DEFAULT) != VMP_CU_SUCCESS) {
    return CONFORM_FAILED;
  }
  return vmp_drv_event_record(c->driver, event, stream);
}
int conform_query_a_destroyed_event(conform *c) {
  vmp_cu_event event = NULL;
  if (vmp_drv_event_create(c->driver, &event, VMP_CU_EVENT_DEFAULT) != VMP_CU_SUCCESS ||
      vmp_drv_event_destroy(c->driver, event) != VMP_CU_SUCCESS) {
    return CONFORM_FAILED;
  }
  return vmp_drv_event_query(c->driver, event);
}
int conform_query_a_destroyed_stream(conform *c) {
  vmp_cu_stream stream = NULL;
  if (vmp_drv_stream_create(c->driver, &stream, VMP_CU_STREAM_DEFAULT) != VMP_CU_SUCCESS ||
      vmp_drv_stream_destroy(c->driver, stream) != VMP_CU_SUCCESS) {
    return CONFORM_FAILED;
  }
  return vmp_drv_stream_query(c->driver, stream);
}
int conform_query_no_event(conform *c) { return vmp_drv_event_query(c->driver, NULL); }

// ---- pending, never recorded, without timing ----

int conform_query_a_pending_stream(conform *c) {
  conform_gate gate;
  if (conform_gate_close(c, &gate) != VMP_CU_SUCCESS) return CONFORM_FAILED;
  int code = vmp_drv_stream_query(c->driver, gate.stream);
  conform_gate_end(&gate);
  return code;
}

// behind_gate asks about an event that is recorded behind a host function that hasn't ended.
static int behind_gate(conform *c, vmp_cu_event event, int (*ask)(conform *c, vmp_cu_event event)) {
  conform_gate gate;
  if (conform_gate_close(c, &gate) != VMP_CU_SUCCESS) return CONFORM_FAILED;
  int code = vmp_drv_event_record(c->driver, event, gate.stream) == VMP_CU_SUCCESS ? ask(c, event) : CONFORM_FAILED;
  conform_gate_end(&gate);
  return code;
}
static int ask_query(conform *c, vmp_cu_event event) { return vmp_drv_event_query(c->driver, event); }
static int ask_sync(conform *c, vmp_cu_event event) { return vmp_drv_event_synchronize(c->driver, event); }
static int ask_elapsed(conform *c, vmp_cu_event event) {
  float ms = 0;
  return vmp_drv_event_elapsed_time(c->driver, &ms, event, event);
}
static int ask_query_pending(conform *c, vmp_cu_event event) { return behind_gate(c, event, ask_query); }
static int ask_elapsed_pending(conform *c, vmp_cu_event event) { return behind_gate(c, event, ask_elapsed); }
static int ask_elapsed_recorded(conform *c, vmp_cu_event event) {
  if (vmp_drv_event_record(c->driver, event, NULL) != VMP_CU_SUCCESS ||
      vmp_drv_event_synchronize(c->driver, event) != VMP_CU_SUCCESS) {
    return CONFORM_FAILED;
  }
  return ask_elapsed(c, event);
}

int conform_query_a_pending_event(conform *c) { return with_event(c, VMP_CU_EVENT_DISABLE_TIMING, ask_query_pending); }
int conform_query_before_record(conform *c) { return with_event(c, VMP_CU_EVENT_DISABLE_TIMING, ask_query); }
int conform_sync_before_record(conform *c) { return with_event(c, VMP_CU_EVENT_DISABLE_TIMING, ask_sync); }
int conform_elapsed_before_record(conform *c) { return with_event(c, VMP_CU_EVENT_DEFAULT, ask_elapsed); }
int conform_elapsed_without_timing(conform *c) {
  return with_event(c, VMP_CU_EVENT_DISABLE_TIMING, ask_elapsed_recorded);
}
int conform_elapsed_while_pending(conform *c) { return with_event(c, VMP_CU_EVENT_DEFAULT, ask_elapsed_pending); }

// ---- host functions ----

typedef struct call_inside {
  vmp_driver *driver;
  int code;
} call_inside;

static void ask_inside(void *context) {
  call_inside *inside = context;
  size_t free_bytes = 0, total = 0;
  inside->code = vmp_drv_mem_get_info(inside->driver, &free_bytes, &total);
}

int conform_call_in_a_host_function(conform *c) {
  call_inside inside = {c->driver, CONFORM_FAILED};
  vmp_cu_stream stream = NULL;
  if (vmp_drv_stream_create(c->driver, &stream, VMP_CU_STREAM_NON_BLOCKING) != VMP_CU_SUCCESS ||
      vmp_drv_launch_host_func(c->driver, stream, ask_inside, &inside) != VMP_CU_SUCCESS ||
      vmp_drv_stream_synchronize(c->driver, stream) != VMP_CU_SUCCESS) {
    return CONFORM_FAILED;
  }
  return inside.code;
}

// ---- capture ----

// begin_capture makes a stream and begins to capture it in global mode. 0, CONFORM_NOT_HERE or CONFORM_FAILED.
static int begin_capture(conform *c, unsigned flags, vmp_cu_stream *out_stream) {
  if (vmp_drv_stream_create(c->driver, out_stream, flags) != VMP_CU_SUCCESS) return CONFORM_FAILED;
  // The rig has put this thread's capture mode to relaxed; what a capture forbids is seen in the usual one.
  int mode = VMP_CU_CAPTURE_GLOBAL;
  if (vmp_drv_thread_exchange_capture_mode(c->driver, &mode) != VMP_CU_SUCCESS) {
    return conform_not_here(c, "the driver has no capture modes");
  }
  int code = vmp_drv_stream_begin_capture(c->driver, *out_stream, VMP_CU_CAPTURE_GLOBAL);
  if (code == VMP_CU_NOT_SUPPORTED) return conform_not_here(c, "the driver can't capture");
  return code == VMP_CU_SUCCESS ? code : CONFORM_FAILED;
}

int conform_sync_a_capturing_stream(conform *c) {
  vmp_cu_stream stream;
  int code = begin_capture(c, VMP_CU_STREAM_NON_BLOCKING, &stream);
  return code != 0 ? code : vmp_drv_stream_synchronize(c->driver, stream);
}
int conform_query_a_capturing_stream(conform *c) {
  vmp_cu_stream stream;
  int code = begin_capture(c, VMP_CU_STREAM_NON_BLOCKING, &stream);
  return code != 0 ? code : vmp_drv_stream_query(c->driver, stream);
}
int conform_end_of_an_invalid_capture(conform *c) {
  vmp_cu_stream stream;
  void *graph = NULL;
  int code = begin_capture(c, VMP_CU_STREAM_NON_BLOCKING, &stream);
  if (code != 0) return code;
  (void)vmp_drv_stream_synchronize(c->driver, stream);
  return vmp_drv_stream_end_capture(c->driver, stream, &graph);
}
int conform_legacy_stream_under_capture(conform *c) {
  vmp_cu_stream stream;
  int code = begin_capture(c, VMP_CU_STREAM_DEFAULT, &stream);
  return code != 0 ? code : vmp_drv_memset_d8_async(c->driver, conform_place(c, 0), 1, 1, NULL);
}
int conform_query_a_captured_event(conform *c) {
  vmp_cu_stream stream;
  vmp_cu_event event = NULL;
  if (vmp_drv_event_create(c->driver, &event, VMP_CU_EVENT_DISABLE_TIMING) != VMP_CU_SUCCESS) return CONFORM_FAILED;
  int code = begin_capture(c, VMP_CU_STREAM_NON_BLOCKING, &stream);
  if (code != 0) return code;
  if (vmp_drv_event_record(c->driver, event, stream) != VMP_CU_SUCCESS) return CONFORM_FAILED;
  return vmp_drv_event_query(c->driver, event);
}
int conform_alloc_under_capture(conform *c) {
  vmp_cu_stream stream;
  vmp_cu_ptr ptr = 0;
  int code = begin_capture(c, VMP_CU_STREAM_NON_BLOCKING, &stream);
  return code != 0 ? code : vmp_drv_mem_alloc(c->driver, &ptr, c->granule);
}
int conform_reserve_under_capture(conform *c) {
  vmp_cu_stream stream;
  vmp_cu_ptr ptr = 0;
  int code = begin_capture(c, VMP_CU_STREAM_NON_BLOCKING, &stream);
  return code != 0 ? code : vmp_drv_mem_address_reserve(c->driver, &ptr, c->granule, 0, 0, 0);
}
int conform_end_with_an_unjoined_stream(conform *c) {
  vmp_cu_stream stream, second = NULL;
  vmp_cu_event event = NULL;
  void *graph = NULL;
  if (vmp_drv_event_create(c->driver, &event, VMP_CU_EVENT_DISABLE_TIMING) != VMP_CU_SUCCESS ||
      vmp_drv_stream_create(c->driver, &second, VMP_CU_STREAM_NON_BLOCKING) != VMP_CU_SUCCESS) {
    return CONFORM_FAILED;
  }
  int code = begin_capture(c, VMP_CU_STREAM_NON_BLOCKING, &stream);
  if (code != 0) return code;
  if (vmp_drv_event_record(c->driver, event, stream) != VMP_CU_SUCCESS ||
      vmp_drv_stream_wait_event(c->driver, second, event, 0) != VMP_CU_SUCCESS ||
      vmp_drv_memset_d8_async(c->driver, conform_place(c, 0), 1, 1, second) != VMP_CU_SUCCESS) {
    return CONFORM_FAILED;
  }
  return vmp_drv_stream_end_capture(c->driver, stream, &graph);
}
