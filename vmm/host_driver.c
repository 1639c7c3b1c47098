// host_driver.c: opening and closing a host driver, its table of calls, and what happens before and after each call.
//
//     vmp_host_enter:  forked child? -> 3      inside a host function? -> 800      delay hook (no lock held)
//                      lock    cuInit done? -> 3     injected fault? -> its code     virtual clock
//     the call itself
//     vmp_host_leave:  unlock
//
// Every call of the table runs under one lock; only delay hooks and host functions run without it.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/align.h"
#include "vmm/host_model.h"

static void host_close(vmp_driver *driver);

static const vmp_driver_ops host_ops = {
#define X(name, ...) .name = vmp_host_op_##name,
    VMP_DRIVER_CALLS(X) VMP_DRIVER_CALLS_0(X)
#undef X
        .close = host_close,
};

bool vmp_driver_is_host(const vmp_driver *driver) { return driver != NULL && driver->ops == &host_ops; }

// ---- small helpers ----

uint64_t vmp_host_mix(uint64_t value) {  // the step of splitmix64
  uint64_t z = value + UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

uint64_t vmp_host_random(vmp_host *host) { return vmp_host_mix(host->random_state++ * UINT64_C(0x9e3779b97f4a7c15)); }

bool vmp_host_grow(void *array_pointer, size_t *capacity, size_t needed, size_t element_bytes) {
  if (needed <= *capacity) return true;
  size_t new_capacity = *capacity == 0 ? 16 : *capacity;
  while (new_capacity < needed) {
    if (new_capacity > SIZE_MAX / 2 / element_bytes) return false;
    new_capacity *= 2;
  }
  void *old;
  memcpy(&old, array_pointer, sizeof old);
  void *grown = realloc(old, new_capacity * element_bytes);
  if (grown == NULL) return false;
  memcpy(array_pointer, &grown, sizeof grown);
  *capacity = new_capacity;
  return true;
}

bool vmp_host_grow32(void *array_pointer, uint32_t *capacity, size_t needed, size_t element_bytes) {
  size_t wide = *capacity;
  if (needed >= UINT32_MAX / 2) return false;
  if (!vmp_host_grow(array_pointer, &wide, needed, element_bytes)) return false;
  *capacity = (uint32_t)wide;
  return true;
}

vmp_host_thread *vmp_host_this_thread(vmp_host *host) {
  vmp_host_thread *thread = pthread_getspecific(host->thread_key);
  if (thread != NULL) return thread;
  thread = calloc(1, sizeof *thread);
  if (thread == NULL) return NULL;
  if (pthread_setspecific(host->thread_key, thread) != 0) {
    free(thread);
    return NULL;
  }
  thread->next = host->threads;
  host->threads = thread;
  return thread;
}

// ---- before and after a call ----

static bool is_forked(const vmp_host *host) {
  return atomic_load_explicit(&host->initialized, memory_order_acquire) &&
         atomic_load_explicit(host->fork_page, memory_order_relaxed) == 0;
}

static bool works_without_init(vmp_call call) {
  return call == VMP_CALL_driver_get_version || call == VMP_CALL_get_error_name || call == VMP_CALL_get_error_string;
}

static void run_delay_hook(vmp_host *host, vmp_call call) {
  if (atomic_load_explicit(&host->num_delays, memory_order_relaxed) == 0) return;
  pthread_mutex_lock(&host->lock);
  void (*hook)(void *context) = host->delays[call].hook;
  void *context = host->delays[call].context;
  pthread_mutex_unlock(&host->lock);
  if (hook != NULL) hook(context);
}

// The code of the first armed fault that this call meets; a fault that is spent leaves the list.
static int injected_code(vmp_host *host, vmp_call call) {
  int code = 0;
  for (uint32_t i = 0; i < host->num_faults;) {
    vmp_host_fault *fault = &host->faults[i];
    bool meets = fault->call == VMP_CALL_COUNT || fault->call == call;
    if (!meets) {
      i++;
      continue;
    }
    if (fault->nth > 1) {
      fault->nth--;
      i++;
      continue;
    }
    if (code == 0) code = fault->code;
    if (fault->from_then_on) {
      i++;
    } else {
      memmove(fault, fault + 1, (host->num_faults - i - 1) * sizeof *fault);
      host->num_faults--;
    }
  }
  return code;
}

int vmp_host_enter(vmp_host *host, vmp_call call, const void *site) {
  bool free_call = works_without_init(call);
  if (!free_call) {
    if (is_forked(host)) return VMP_CU_NOT_INITIALIZED;
    const vmp_host_thread *thread = pthread_getspecific(host->thread_key);
    if (thread != NULL && thread->in_host_function) {
      pthread_mutex_lock(&host->lock);
      int refused = vmp_host_break(host, 54, VMP_CU_NOT_PERMITTED, "%s inside a host function; it may call no driver",
                                   vmp_call_symbol(call));
      return vmp_host_leave(host, refused);
    }
  } else if (is_forked(host)) {
    return 0;  // these calls look at constants only; the lock may be held by a thread that the child lacks
  }
  run_delay_hook(host, call);
  pthread_mutex_lock(&host->lock);
  host->call = call;
  host->site = site;
  host->call_number++;
  int code = 0;
  if (host->deinitialized) {
    code = VMP_CU_DEINITIALIZED;
  } else if (!atomic_load_explicit(&host->initialized, memory_order_relaxed) && call != VMP_CALL_init && !free_call) {
    code = vmp_host_break(host, 1, VMP_CU_NOT_INITIALIZED, "%s before cuInit", vmp_call_symbol(call));
  } else if (host->num_faults != 0) {
    code = injected_code(host, call);
  }
  if (code != 0) return vmp_host_leave(host, code);
  vmp_host_charge(host, host->cost.fixed_ns[call]);
  return 0;
}

int vmp_host_leave(vmp_host *host, int code) {
  if (!is_forked(host)) pthread_mutex_unlock(&host->lock);
  return code;
}

void vmp_host_poison_out(vmp_host *host, int code, void *out, size_t out_bytes) {
  if (code != 0 && out != NULL && host->options.poison_out_params != 0) memset(out, 0xDB, out_bytes);
}

int vmp_host_leave_out(vmp_host *host, int code, void *out, size_t out_bytes) {
  vmp_host_poison_out(host, code, out, out_bytes);
  return vmp_host_leave(host, code);
}

// ---- faults, delays, counters ----

bool vmp_host_inject(vmp_driver *driver, const vmp_host_fault *fault) {
  vmp_host *host = vmp_host_of(driver);
  bool valid = fault->nth >= 1 && (unsigned)fault->call <= VMP_CALL_COUNT && fault->code != 0;
  pthread_mutex_lock(&host->lock);
  bool armed = valid && host->num_faults < VMP_HOST_MAX_FAULTS;
  if (armed) host->faults[host->num_faults++] = *fault;
  pthread_mutex_unlock(&host->lock);
  return armed;
}

void vmp_host_lift(vmp_driver *driver) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  host->num_faults = 0;
  pthread_mutex_unlock(&host->lock);
}

void vmp_host_delay(vmp_driver *driver, vmp_call call, void (*hook)(void *context), void *context) {
  vmp_host *host = vmp_host_of(driver);
  if ((unsigned)call >= VMP_CALL_COUNT) return;
  pthread_mutex_lock(&host->lock);
  uint32_t before = host->delays[call].hook != NULL;
  host->delays[call].hook = hook;
  host->delays[call].context = context;
  uint32_t after = hook != NULL;
  atomic_store_explicit(&host->num_delays,
                        atomic_load_explicit(&host->num_delays, memory_order_relaxed) + after - before,
                        memory_order_relaxed);
  pthread_mutex_unlock(&host->lock);
}

void vmp_host_tolerate_bad_touches(vmp_driver *driver, bool tolerate) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  host->tolerate_bad_touches = tolerate;
  pthread_mutex_unlock(&host->lock);
}

void vmp_host_set_work(vmp_driver *driver, vmp_host_work work, uint64_t seed_or_lag) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  host->options.work = work;
  if (work == VMP_HOST_WORK_SEED) host->random_state = seed_or_lag;
  if (work == VMP_HOST_WORK_LAG) host->options.work_lag = seed_or_lag;
  pthread_mutex_unlock(&host->lock);
}

void vmp_host_deinitialize(vmp_driver *driver) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  host->deinitialized = true;
  pthread_mutex_unlock(&host->lock);
}

// ---- open and close ----

static vmp_status check_device(int i, const vmp_host_device *device) {
  uint64_t granule = device->granule_bytes;
  if (granule != 0 && (!vmp_is_power_of_two(granule) || granule < VMP_HOST_PAGE_BYTES)) {
    return vmp_fail(VMP_ERROR_CONFIG, "devices[%d].granule_bytes is %llu; it must be a power of two of at least 4096",
                    i, (unsigned long long)granule);
  }
  return VMP_OK;
}

static vmp_status check_options(const vmp_host_options *options) {
  if (options->struct_size != sizeof *options) {
    return vmp_fail(VMP_ERROR_CONFIG, "vmp_host_options.struct_size is %zu; this library's is %zu",
                    options->struct_size, sizeof *options);
  }
  if ((unsigned)options->mode > VMP_HOST_EXPOSED) {
    return vmp_fail(VMP_ERROR_CONFIG, "mode is %d; it must be 0 (ledger) or 1 (exposed)", (int)options->mode);
  }
  if ((unsigned)options->level > VMP_HOST_COMPAT) {
    return vmp_fail(VMP_ERROR_CONFIG, "level is %d; it must be 0 (strict) to 2 (compat)", (int)options->level);
  }
  if ((unsigned)options->work > VMP_HOST_WORK_LAG) {
    return vmp_fail(VMP_ERROR_CONFIG, "work is %d; it must be 0 (late) to 3 (lag)", (int)options->work);
  }
  if (options->num_devices < 0 || options->num_devices > VMP_HOST_MAX_DEVICES) {
    return vmp_fail(VMP_ERROR_CONFIG, "num_devices is %d; it must be at most %d", options->num_devices,
                    VMP_HOST_MAX_DEVICES);
  }
  if (options->mode == VMP_HOST_EXPOSED && options->ledger_high != 0) {
    return vmp_fail(VMP_ERROR_CONFIG,
                    "ledger_high is set in exposed mode; addresses from 2^48 upwards can't be exposed");
  }
  for (int i = 0; i < options->num_devices; i++) {
    vmp_status status = check_device(i, &options->devices[i]);
    if (status != VMP_OK) return status;
  }
  return VMP_OK;
}

static void set_up_devices(vmp_host *host) {
  host->num_devices = host->options.num_devices == 0 ? 1 : host->options.num_devices;
  host->unit_bytes = UINT64_MAX;
  for (int i = 0; i < host->num_devices; i++) {
    const vmp_host_device *wanted = &host->options.devices[i];
    vmp_host_device_state *device = &host->devices[i];
    device->memory_bytes = wanted->memory_bytes == 0 ? UINT64_C(80) << 30 : wanted->memory_bytes;
    if (device->memory_bytes == UINT64_MAX) device->memory_bytes = VMP_HOST_UNLIMITED_BYTES;
    device->granule_bytes = wanted->granule_bytes == 0 ? UINT64_C(2) << 20 : wanted->granule_bytes;
    device->foreign_bytes = wanted->foreign_bytes;
    device->vmm = wanted->no_vmm == 0;
    device->posix_fd = device->vmm && wanted->no_posix_fd == 0;
    device->max_handle_bytes = wanted->max_handle_bytes == 0 ? UINT64_MAX : wanted->max_handle_bytes;
    device->reachable = wanted->no_peers != 0 ? 0 : ~wanted->unreachable;
    host->any_vmm = host->any_vmm || device->vmm;
    if (device->granule_bytes < host->unit_bytes) host->unit_bytes = device->granule_bytes;
    host->contexts[i].device = i;
  }
}

static bool set_up_threads(vmp_host *host) {
  if (pthread_mutex_init(&host->lock, NULL) != 0) return false;
  if (pthread_cond_init(&host->idle, NULL) != 0) {
    pthread_mutex_destroy(&host->lock);
    return false;
  }
  if (pthread_key_create(&host->thread_key, NULL) != 0) {
    pthread_cond_destroy(&host->idle);
    pthread_mutex_destroy(&host->lock);
    return false;
  }
  return true;
}

// The page reads 0 in a forked child: a fork check without a system call.
static bool set_up_fork_page(vmp_host *host) {
  void *page = mmap(NULL, VMP_HOST_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return false;
  host->fork_page = page;
  return madvise(page, VMP_HOST_PAGE_BYTES, MADV_WIPEONFORK) == 0;
}

static vmp_status set_up(vmp_host *host) {
  vmp_host_cost_defaults(&host->cost);
  if (host->options.cost_file != NULL) {
    vmp_status status = vmp_host_cost_load(&host->cost, host->options.cost_file);
    if (status != VMP_OK) return status;
    host->options.cost_file = NULL;  // the caller's string is not kept
  }
  host->violations = malloc(VMP_HOST_KEPT_VIOLATIONS * sizeof *host->violations);
  if (host->violations == NULL || !set_up_fork_page(host)) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no memory for the host driver's records");
  }
  host->memfd = memfd_create("vmpool-host-device-memory", MFD_CLOEXEC);
  if (host->memfd < 0) {
    return vmp_fail(VMP_ERROR_IO, "memfd_create failed: %s; the host driver keeps device memory in a memfd",
                    strerror(errno));
  }
  host->max_host_ranges = vmp_host_max_map_count();
  if (host->options.mode == VMP_HOST_EXPOSED && ftruncate(host->memfd, (off_t)VMP_HOST_FILE_BYTES) != 0) {
    return vmp_fail(VMP_ERROR_IO, "the memfd can't be made large: %s; exposed mode needs an unlimited file size",
                    strerror(errno));
  }
  return VMP_OK;
}

vmp_status vmp_host_open(vmp_driver **out_driver, const vmp_host_options *options) {
  vmp_host_options defaults = VMP_HOST_OPTIONS_INIT;
  if (options == NULL) options = &defaults;
  vmp_status status = check_options(options);
  if (status != VMP_OK) return status;
  vmp_host *host = calloc(1, sizeof *host);
  if (host == NULL || !set_up_threads(host)) {
    free(host);
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no memory for a host driver");
  }
  host->head.ops = &host_ops;
  host->head.kind = "host";
  host->options = *options;
  host->memfd = -1;
  host->random_state = options->work_seed;
  host->next_tag = (uint64_t)(uintptr_t)host;  // two drivers never take each other's handles
  if (host->options.address_bytes == 0) host->options.address_bytes = UINT64_C(64) << 40;
  set_up_devices(host);
  status = set_up(host);
  if (status != VMP_OK) {
    host->options.leaks_at_close = NULL;  // nothing has been made yet
    host_close(&host->head);
    return status;
  }
  *out_driver = &host->head;
  return VMP_OK;
}

static void host_close(vmp_driver *driver) {
  vmp_host *host = vmp_host_of(driver);
  if (host->options.leaks_at_close != NULL && !vmp_driver_is_forked(driver)) {
    (void)vmp_host_leaks(driver, host->options.leaks_at_close);
  }
  vmp_host_queue_close(host);
  vmp_host_stream_close(host);
  vmp_host_alloc_close(host);
  vmp_host_share_close(host);
  vmp_host_address_close(host);
  while (host->threads != NULL) {
    vmp_host_thread *next = host->threads->next;
    free(host->threads->stack);
    free(host->threads);
    host->threads = next;
  }
  if (host->memfd >= 0) close(host->memfd);
  if (host->fork_page != NULL) munmap((void *)(uintptr_t)host->fork_page, VMP_HOST_PAGE_BYTES);
  free(host->violations);
  free(host->mappings);
  free(host->handles);
  free(host->graphs);
  pthread_key_delete(host->thread_key);
  pthread_cond_destroy(&host->idle);
  pthread_mutex_destroy(&host->lock);
  free(host);
}
