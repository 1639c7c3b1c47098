// probes_device.c: cuInit, devices, contexts, peers, symbols, error texts, the end of the process (rules 1 to 7, 59 to
// 62).
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/probes.h"

// ---- before cuInit: on CUDA the library itself is asked, since vmpool's loader calls cuInit ----

static int bare_host(conform *c, vmp_driver **out_driver) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = c->level;
  return vmp_host_open(out_driver, &options) == VMP_OK ? 0 : CONFORM_FAILED;
}

int conform_count_before_init(conform *c) {
  int count = 0;
  int (*get_count)(int *) = NULL;
  vmp_driver *driver = NULL;
  if (!c->host) return conform_symbol("cuDeviceGetCount", &get_count) ? get_count(&count) : CONFORM_FAILED;
  int code = bare_host(c, &driver);
  return code != 0 ? code : vmp_drv_device_get_count(driver, &count);
}

int conform_reserve_before_init(conform *c) {
  vmp_cu_ptr ptr = 0;
  const size_t bytes = (size_t)2 << 20;
  int (*reserve)(vmp_cu_ptr *, size_t, size_t, vmp_cu_ptr, unsigned long long) = NULL;
  vmp_driver *driver = NULL;
  if (!c->host) {
    return conform_symbol("cuMemAddressReserve", &reserve) ? reserve(&ptr, bytes, 0, 0, 0) : CONFORM_FAILED;
  }
  int code = bare_host(c, &driver);
  return code != 0 ? code : vmp_drv_mem_address_reserve(driver, &ptr, bytes, 0, 0, 0);
}

int conform_stream_before_init(conform *c) {
  vmp_cu_stream stream = NULL;
  int (*create)(vmp_cu_stream *, unsigned) = NULL;
  vmp_driver *driver = NULL;
  if (!c->host) return conform_symbol("cuStreamCreate", &create) ? create(&stream, 0) : CONFORM_FAILED;
  int code = bare_host(c, &driver);
  return code != 0 ? code : vmp_drv_stream_create(driver, &stream, VMP_CU_STREAM_DEFAULT);
}

int conform_version_before_init(conform *c) {
  int version = 0;
  int (*get_version)(int *) = NULL;
  vmp_driver *driver = NULL;
  if (!c->host) return conform_symbol("cuDriverGetVersion", &get_version) ? get_version(&version) : CONFORM_FAILED;
  int code = bare_host(c, &driver);
  return code != 0 ? code : vmp_drv_driver_get_version(driver, &version);
}

// ---- a forked child ----

// in_a_fork returns what `ask` returns in a forked child of this process.
static int in_a_fork(conform *c, int (*ask)(conform *c)) {
  int ends[2], code = CONFORM_CRASHED, status = 0;
  if (pipe(ends) != 0) return CONFORM_FAILED;
  pid_t pid = fork();
  if (pid < 0) return CONFORM_FAILED;
  if (pid == 0) {
    code = ask(c);
    _exit(write(ends[1], &code, sizeof code) == (ssize_t)sizeof code ? 0 : 1);
  }
  (void)close(ends[1]);
  struct pollfd query = {.fd = ends[0], .events = POLLIN};
  if (poll(&query, 1, CONFORM_PATIENCE_MS / 2) == 0) {
    code = CONFORM_SILENT;
  } else if (read(ends[0], &code, sizeof code) != (ssize_t)sizeof code) {
    code = CONFORM_CRASHED;
  }
  if (code == CONFORM_SILENT) (void)kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  (void)close(ends[0]);
  return code;
}

static int (*library_init)(unsigned flags);

// On CUDA past vmpool's own guard, which answers for every other call.
static int ask_init(conform *c) { return c->host ? vmp_drv_init(c->driver, 0) : library_init(0); }

static int ask_reserve(conform *c) {
  vmp_cu_ptr ptr = 0;
  return vmp_drv_mem_address_reserve(c->driver, &ptr, c->granule, 0, 0, 0);
}

int conform_init_in_a_fork(conform *c) {
  if (!c->host && !conform_symbol("cuInit", &library_init)) return CONFORM_FAILED;
  return in_a_fork(c, ask_init);
}
int conform_reserve_in_a_fork(conform *c) { return in_a_fork(c, ask_reserve); }

// ---- devices ----

int conform_init_with_flags(conform *c) { return vmp_drv_init(c->driver, 1); }

int conform_device_minus_one(conform *c) {
  vmp_cu_device device;
  return vmp_drv_device_get(c->driver, &device, -1);
}
int conform_device_beyond_the_last(conform *c) {
  vmp_cu_device device;
  int count = 0;
  (void)vmp_drv_device_get_count(c->driver, &count);
  return vmp_drv_device_get(c->driver, &device, count);
}
int conform_device_to_nowhere(conform *c) { return vmp_drv_device_get(c->driver, NULL, 0); }

int conform_attribute_unknown(conform *c) {
  int value;
  return vmp_drv_device_get_attribute(c->driver, &value, 99999, c->base.device.device);
}
int conform_attribute_to_nowhere(conform *c) {
  return vmp_drv_device_get_attribute(c->driver, NULL, VMP_CU_ATTR_VMM_SUPPORTED, c->base.device.device);
}
int conform_attribute_of_no_device(conform *c) {
  int value;
  return vmp_drv_device_get_attribute(c->driver, &value, VMP_CU_ATTR_VMM_SUPPORTED, 4711);
}

// ---- contexts ----

// without_context returns what `ask` returns while no context is current. The rig's own is the only one on the stack.
static int without_context(conform *c, int (*ask)(conform *c)) {
  vmp_cu_context popped = NULL;
  if (vmp_drv_ctx_pop_current(c->driver, &popped) != VMP_CU_SUCCESS) return CONFORM_FAILED;
  int code = ask(c);
  return vmp_drv_ctx_push_current(c->driver, popped) == VMP_CU_SUCCESS ? code : CONFORM_FAILED;
}

static int ask_stream(conform *c) {
  vmp_cu_stream stream = NULL;
  int code = vmp_drv_stream_create(c->driver, &stream, VMP_CU_STREAM_DEFAULT);
  if (code == VMP_CU_SUCCESS) (void)vmp_drv_stream_destroy(c->driver, stream);
  return code;
}
static int ask_event(conform *c) {
  vmp_cu_event event = NULL;
  int code = vmp_drv_event_create(c->driver, &event, VMP_CU_EVENT_DEFAULT);
  if (code == VMP_CU_SUCCESS) (void)vmp_drv_event_destroy(c->driver, event);
  return code;
}
static int ask_copy(conform *c) {
  unsigned char byte = 0;
  return vmp_drv_memcpy_dtoh(c->driver, &byte, conform_place(c, 0), 1);
}
static int ask_fill(conform *c) { return vmp_drv_memset_d8_async(c->driver, conform_place(c, 0), 0, 1, NULL); }
static int ask_memory_info(conform *c) {
  size_t free_bytes = 0, total = 0;
  return vmp_drv_mem_get_info(c->driver, &free_bytes, &total);
}
static int ask_pop(conform *c) {
  vmp_cu_context popped = NULL;
  return vmp_drv_ctx_pop_current(c->driver, &popped);
}
static int ask_alloc(conform *c) {
  vmp_cu_ptr ptr = 0;
  return vmp_drv_mem_alloc(c->driver, &ptr, c->granule);
}

int conform_stream_without_context(conform *c) { return without_context(c, ask_stream); }
int conform_event_without_context(conform *c) { return without_context(c, ask_event); }
int conform_copy_without_context(conform *c) { return without_context(c, ask_copy); }
int conform_fill_without_context(conform *c) { return without_context(c, ask_fill); }
int conform_memory_info_without_context(conform *c) { return without_context(c, ask_memory_info); }
int conform_pop_of_an_empty_stack(conform *c) { return without_context(c, ask_pop); }

int conform_release_of_a_context_not_retained(conform *c) {
  if (vmp_drv_primary_ctx_release(c->driver, c->base.device.device) != VMP_CU_SUCCESS) return CONFORM_FAILED;
  return vmp_drv_primary_ctx_release(c->driver, c->base.device.device);
}

static int after_reset(conform *c, int (*ask)(conform *c)) {
  int code = vmp_drv_primary_ctx_reset(c->driver, c->base.device.device);
  if (code == VMP_CU_NOT_SUPPORTED) return conform_not_here(c, "the driver can't reset a primary context");
  return code == VMP_CU_SUCCESS ? ask(c) : CONFORM_FAILED;
}
int conform_alloc_after_reset(conform *c) { return after_reset(c, ask_alloc); }
int conform_stream_after_reset(conform *c) { return after_reset(c, ask_stream); }
int conform_memory_info_after_reset(conform *c) { return after_reset(c, ask_memory_info); }

// ---- peers ----

static int enable(conform *c, int device) {
  vmp_cu_context peer = NULL;
  if (vmp_context_retain(c->driver, device, &peer) != VMP_OK) return CONFORM_FAILED;
  return vmp_drv_ctx_enable_peer_access(c->driver, peer, 0);
}

int conform_peer_twice(conform *c) {
  int other = conform_other(c, true);
  if (other < 0) return conform_not_here(c, "there are no two devices that reach each other");
  return enable(c, other) == VMP_CU_SUCCESS ? enable(c, other) : CONFORM_FAILED;
}
int conform_peer_out_of_reach(conform *c) {
  int other = conform_other(c, false);
  return other < 0 ? conform_not_here(c, "there are no two devices that can't reach each other") : enable(c, other);
}
int conform_peer_number_nine(conform *c) {
  int count = 0, enabled = 0;
  (void)vmp_drv_device_get_count(c->driver, &count);
  for (int i = 0; i < count; i++) {
    int can = 0;
    (void)vmp_drv_device_can_access_peer(c->driver, &can, c->base.device.device, i);
    if (i == c->base.device.ordinal || can == 0) continue;
    int code = enable(c, i);
    if (code != VMP_CU_SUCCESS || ++enabled == 9) return code;
  }
  return conform_not_here(c, "the device doesn't reach nine others");
}
int conform_peer_never_enabled(conform *c) {
  vmp_cu_context peer = NULL;
  int other = conform_other(c, true);
  if (other < 0) return conform_not_here(c, "there are no two devices that reach each other");
  if (vmp_context_retain(c->driver, other, &peer) != VMP_OK) return CONFORM_FAILED;
  return vmp_drv_ctx_disable_peer_access(c->driver, peer);
}

// ---- symbols ----

static int symbol(conform *c, const char *name, int version) {
  if (c->host) return conform_not_here(c, "the host driver has no library; see //tests/driver_cuda:open_test");
  int (*find)(const char *, void **, int, uint64_t, int *) = NULL;
  if (!conform_symbol("cuGetProcAddress_v2", &find)) return conform_not_here(c, "the driver lacks the 12.0 form");
  void *fn = NULL;
  int status = 0;
  int code = find(name, &fn, version, 0, &status);
  if (code != VMP_CU_SUCCESS) return code;
  return fn == NULL && status == 1 ? VMP_CU_SUCCESS : 1000 + status;
}
int conform_symbol_of_the_future(conform *c) { return symbol(c, "cuInit", 99990); }
int conform_symbol_missing(conform *c) { return symbol(c, "cuNoSuchCall", 11030); }

// ---- error texts ----

int conform_name_of_no_code(conform *c) {
  const char *name = "untouched";
  int code = vmp_drv_get_error_name(c->driver, 123456, &name);
  return code == VMP_CU_INVALID_VALUE && name != NULL ? 1000 : code;
}
int conform_text_of_no_code(conform *c) {
  const char *text = "untouched";
  int code = vmp_drv_get_error_string(c->driver, 123456, &text);
  return code == VMP_CU_INVALID_VALUE && text != NULL ? 1000 : code;
}

// ---- the end ----

static conform *ending;

static void ask_at_exit(void) {
  int count = 0;
  if (ending->host) vmp_host_deinitialize(ending->driver);
  conform_tell(vmp_drv_device_get_count(ending->driver, &count), NULL);
}

// Handlers run last in, first out: this one after all that the driver's library registers when it is loaded.
int conform_count_at_exit(conform *c) {
  ending = c;
  if (atexit(ask_at_exit) != 0) return CONFORM_FAILED;
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  gpu_rig_setup_with(&c->base, &options);
  c->driver = c->base.driver;
  if (!c->base.entered) return CONFORM_FAILED;
  exit(0);
}
