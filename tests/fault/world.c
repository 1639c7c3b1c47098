// world.c: see world.h. Opening, closing, checking.
#include "tests/fault/world.h"

#include <string.h>
#include <unistd.h>

// ---- judging ----

void world_before(world *w) { vmp_host_get_census(w->driver, &w->before); }

bool world_after(world *w, int code, const char *text) {
  if (code == VMP_CU_SUCCESS) return true;
  if (code == VMP_CU_NOT_READY) return false;
  w->refusals++;
  if (w->code == 0 || code != w->code) VADD_FAILURE("%s gave %d; the fault is %d", text, code, w->code);
  vmp_host_census after;
  vmp_host_get_census(w->driver, &after);
  if (memcmp(&after, &w->before, sizeof after) != 0) VADD_FAILURE("%s failed and changed something", text);
  return false;
}

bool world_status(world *w, vmp_status status) {
  if (status >= VMP_OK) return true;
  w->refusals++;
  if (w->code == 0) VADD_FAILURE("%s: %s", vmp_status_string(status), vmp_last_error()->message);
  VEXPECT_INT_EQ(vmp_last_error()->status, status);
  VEXPECT_STR_NE(vmp_last_error()->message, "");
  return false;
}

static void say(void *context, const char *sentence) {
  (void)context;
  VADD_FAILURE("%s", sentence);
}

void world_check(world *w) {
  vmp_report report = {say, NULL, 0};
  if (w->backing != NULL) {
    VEXPECT_TRUE(w->locked);
    (void)vmp_backing_check(w->backing, &report);
  }
  if (w->clock != NULL) (void)vmp_clock_check(w->clock, &report);
  (void)vmp_host_check(w->driver, &report);
  vmp_host_counters counters;
  vmp_host_get_counters(w->driver, &counters);
  if (w->gone || w->lost) return;
  VEXPECT_UINT_EQ(counters.violations, 0);
  VEXPECT_UINT_EQ(counters.bad_touches, 0);
  char sentence[256];
  for (uint64_t i = 0; vmp_host_violation(w->driver, i, sentence, sizeof sentence); i++) VADD_FAILURE("%s", sentence);
}

bool world_enter(world *w) {
  if (w->context == NULL) return false;
  w->entered = world_status(w, vmp_context_enter(w->driver, w->context, &w->saved));
  return w->entered;
}

void world_leave(world *w) {
  if (w->entered) (void)world_status(w, vmp_context_leave(w->driver, &w->saved));
  w->entered = false;
}

bool world_synchronize(world *w) {
  if (!world_enter(w)) return false;
  bool waited = world_end_capture(w) && WORLD_TRY(w, vmp_drv_ctx_synchronize(w->driver));
  world_leave(w);
  if (!waited) return false;
  w->dirty = false;
  for (size_t i = 0; i < w->num_reads && !w->gone; i++) {
    VEXPECT_BYTES_FILLED(w->reads[i].bytes, w->reads[i].tag, WORLD_READ_BYTES);
  }
  w->num_reads = 0;
  return true;
}

// ---- opening ----

static void hook_lock(void *self) {
  world *w = self;
  VEXPECT_FALSE(w->locked);
  w->locked = true;
}
static void hook_unlock(void *self) {
  world *w = self;
  VEXPECT_TRUE(w->locked);
  w->locked = false;
}

static void note_call(void *context) {
  const struct world_hook *hook = context;
  if (++hook->w->made == hook->w->nth) hook->w->struck = hook->call;
}

void world_begin(world *w, vmp_host_work work, uint64_t seed, bool poison_out_params) {
  memset(w, 0, sizeof *w);
  w->fd = -1;
  vmp_host_options host = VMP_HOST_OPTIONS_INIT;
  host.num_devices = 2;
  for (int i = 0; i < host.num_devices; i++) {
    host.devices[i].memory_bytes = 32 * GRANULE;
    host.devices[i].granule_bytes = GRANULE;
  }
  host.work = work;
  host.work_seed = seed;
  host.poison_out_params = poison_out_params;
  host.check_order = 1;
  host.ledger_high = 1;  // cheap: no reservation in this process
  VASSERT_OK(vmp_host_open(&w->driver, &host));
  w->struck = VMP_CALL_COUNT;
  for (int call = 0; call < VMP_CALL_COUNT; call++) {
    w->hooks[call] = (struct world_hook){w, (vmp_call)call};
    vmp_host_delay(w->driver, (vmp_call)call, note_call, &w->hooks[call]);
  }
}

static vmp_backing_options backing_options(world *w) {
  static const int peers[] = {1};
  vmp_backing_options options;
  memset(&options, 0, sizeof options);
  options.driver = w->driver;
  options.clock = w->clock;
  options.context = w->context;
  options.granule_bytes = w->device.granule_bytes;
  options.chunk_max_bytes = 4 * GRANULE;
  options.hard_limit_bytes = WORLD_LIMIT_BYTES;
  options.soft_limit_bytes = UINT64_MAX;
  options.park_limit = 1;
  options.may_create = true;
  options.peers = peers;
  options.num_peers = 1;
  options.hooks = (vmp_lock_hooks){w, hook_lock, hook_unlock, NULL, NULL};
  return options;
}

static bool open_contexts(world *w) {
  if (!w->initialized) w->initialized = WORLD_TRY(w, vmp_drv_init(w->driver, 0));
  if (!w->initialized) return false;
  if (w->device.granule_bytes == 0 && !world_status(w, vmp_device_require_vmm(w->driver, 0, &w->device))) return false;
  if (w->context == NULL && !world_status(w, vmp_context_retain(w->driver, 0, &w->context))) return false;
  if (w->peer == NULL) (void)world_status(w, vmp_context_retain(w->driver, 1, &w->peer));
  return true;
}

static bool open_backing(world *w) {
  if (w->clock == NULL && !world_status(w, vmp_clock_create(&w->clock, w->driver, 0))) return false;
  if (w->backing == NULL) {
    vmp_backing_options options = backing_options(w);
    if (!world_status(w, vmp_backing_create(&w->backing, &options))) return false;
    w->locked = true;
    w->ops = vmp_backing_get_ops(w->backing);
  }
  if (w->bytes != 0) return true;
  uint64_t base = 0, bytes = 0;
  vmp_status status = vmp_backing_reserve(w->backing, 512 * GRANULE, 256 * GRANULE, &base, &bytes);
  if (!world_status(w, status)) return false;
  w->base = base;
  w->bytes = bytes;
  return true;
}

static void open_streams(world *w) {
  if (!world_enter(w)) return;
  for (unsigned i = 0; i < WORLD_STREAMS; i++) {
    if (w->streams[i] != NULL) continue;
    vmp_cu_stream stream = NULL;
    if (!WORLD_TRY(w, vmp_drv_stream_create(w->driver, &stream, VMP_CU_STREAM_NON_BLOCKING))) continue;
    w->streams[i] = stream;
    w->indices[i] = vmp_clock_stream(w->clock, stream);
  }
  world_leave(w);
}

void world_open(world *w) {
  if (open_contexts(w) && open_backing(w)) open_streams(w);
  world_check(w);
}

// ---- the scenario ----

void world_steps(world *w, size_t from, size_t to) {
  static void (*const steps[WORLD_STEPS])(world *) = {world_questions, world_contexts, world_claims, world_events,
                                                      world_capture,   world_memory,   world_claims};
  for (size_t i = from; i < to && w->initialized && !vtest_has_failure(); i++) {
    steps[i](w);
    world_check(w);
  }
}

void world_run(world *w) { world_steps(w, 0, WORLD_STEPS); }

// ---- closing ----

static void close_streams(world *w) {
  for (unsigned i = 0; i < WORLD_STREAMS; i++) {
    if (w->streams[i] == NULL) continue;
    (void)world_status(w, vmp_clock_retire_stream(w->clock, w->streams[i]));
  }
  if (!world_enter(w)) return;
  for (unsigned i = 0; i < WORLD_STREAMS; i++) {
    if (w->streams[i] == NULL) continue;
    if (WORLD_TRY(w, vmp_drv_stream_destroy(w->driver, w->streams[i]))) w->streams[i] = NULL;
  }
  world_leave(w);
}

static void close_backing(world *w) {
  while (w->num_claims > 0) world_release_claim(w, &w->claims[w->num_claims - 1]);
  (void)world_status(w, vmp_clock_wait(w->clock, vmp_backing_pending(w->backing), UINT64_MAX));
  (void)vmp_backing_poll(w->backing);
  (void)world_status(w, vmp_backing_destroy(w->backing));
  w->backing = NULL;
}

void world_close(world *w) {
  if (w->driver == NULL) return;
  world_drop_objects(w);
  (void)world_synchronize(w);
  if (w->lost) w->dirty = false;
  world_drop_memory(w);
  if (w->backing != NULL) close_backing(w);
  if (w->clock != NULL) close_streams(w);
  vmp_clock_destroy(w->clock);
  w->clock = NULL;
  if (w->peer != NULL && world_status(w, vmp_context_release(w->driver, 1))) w->peer = NULL;
  if (w->context != NULL && world_status(w, vmp_context_release(w->driver, 0))) w->context = NULL;
  world_check(w);
}

void world_end(world *w) {
  vmp_driver_close(w->driver);
  w->driver = NULL;
  if (w->fd >= 0) (void)close(w->fd);
  w->fd = -1;
}
