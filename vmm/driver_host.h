// driver_host.h: the host driver, a strict model of the CUDA driver on this machine. Its table of calls is
// driver.h's; here is what only a model can offer: options, stepping, faults, counters, a virtual clock.
//
// Owns: simulated devices, address ranges, physical memory (one sparse memfd), streams as queues, events.
// Does not own: any policy of the pool. It is never chosen silently.
//
// Rules: reference table A of the driver contract, each with its code; a violation is counted and its
// sentence kept (vmp_host_violation), the code is returned, the process goes on unless `abort_on_violation`.
#ifndef VMPOOL_VMM_DRIVER_HOST_H_
#define VMPOOL_VMM_DRIVER_HOST_H_

#include "vmm/driver.h"
#include "vmm/error.h"

typedef enum vmp_host_mode {
  VMP_HOST_LEDGER = 0,   // data lives in one sparse memfd; addresses are numbers (PROT_NONE reserve or >= 2^48)
  VMP_HOST_EXPOSED = 1,  // mappings are real mmap(MAP_FIXED) of the memfd: a remap is real, the CPU can look
} vmp_host_mode;

typedef enum vmp_host_work {
  VMP_HOST_WORK_LATE = 0,   // queued work runs only when the host waits for it (a query completes nothing)
  VMP_HOST_WORK_EARLY = 1,  // queued work runs at once, as far as waits on events allow
  VMP_HOST_WORK_SEED = 2,   // interleaved: after each queued operation a seeded choice of ready work runs
  VMP_HOST_WORK_LAG = 3,    // an operation completes once `lag` later ones (over all streams) are queued
} vmp_host_work;

typedef enum vmp_host_level {
  VMP_HOST_STRICT = 0,  // every rule of table A; the uncertain ones at their strictest
  VMP_HOST_LINT = 1,    // as the real driver where known; strict-only rules are counted as lint, not refused
  VMP_HOST_COMPAT = 2,  // the laxest behaviour that some source reports, and the other code where one is named
} vmp_host_level;

#define VMP_HOST_MAX_DEVICES 16

typedef struct vmp_host_device {
  uint64_t memory_bytes;      // 0: 80 GiB. UINT64_MAX: unlimited (total reads 1 PiB)
  uint64_t granule_bytes;     // 0: 2 MiB; a power of two, at least 4 KiB
  uint32_t no_vmm;            // attribute 102 reads 0 and every VMM call gives 801
  uint32_t no_peers;          // this device can reach no other
  uint64_t foreign_bytes;     // memory that "another process" holds from the start
  uint64_t max_handle_bytes;  // a larger cuMemCreate gives 2; 0: no limit
  uint32_t unreachable;       // bit d: this device can't reach device d (nor d this one)
  uint32_t no_posix_fd;       // attribute 103 reads 0 and a handle with a file descriptor gives 801
} vmp_host_device;

typedef struct vmp_host_options {
  size_t struct_size;
  vmp_host_mode mode;
  vmp_host_level level;
  vmp_host_work work;
  uint64_t work_seed;
  uint64_t work_lag;
  int num_devices;  // 0: one
  vmp_host_device devices[VMP_HOST_MAX_DEVICES];
  uint64_t address_bytes;      // budget of reserved addresses, 0: 64 TiB
  uint64_t max_reserve_bytes;  // largest single reservation, 0: no limit beyond the budget
  uint32_t ledger_high;        // ledger mode: take addresses from 2^48 upwards without reserving in the process
  uint32_t immediate_reuse;    // hand the same addresses and handle values out again at once (default: quarantined)
  uint32_t poison_out_params;  // a failing call overwrites its out-parameters instead of leaving them
  uint32_t abort_on_violation;
  uint32_t check_order;        // report accesses of several streams to the same bytes that nothing orders
  uint32_t touch_fill;         // a write touch overwrites its range with a pattern (default: bytes stay as they are)
  vmp_report *leaks_at_close;  // vmp_driver_close reports here what still exists (rule 63); must outlive the driver
  const char *cost_file;       // cost table "name value" lines in microseconds; NULL: the defaults of section B
} vmp_host_options;

#define VMP_HOST_OPTIONS_INIT \
  { .struct_size = sizeof(vmp_host_options) }

// vmp_host_open makes a host driver; cuInit has not been called. NULL options: all defaults. The options
// are copied. VMP_ERROR_CONFIG (a field outside its range, named), _HOST_OUT_OF_MEMORY, _IO (no memfd, or
// the cost file).
vmp_status vmp_host_open(vmp_driver **out_driver, const vmp_host_options *options);

// vmp_driver_is_host says whether the calls below may be used on a driver.
bool vmp_driver_is_host(const vmp_driver *driver);

// ---- work: queued operations that only a model has ----

// vmp_host_touch queues on `stream` a kernel that reads or, if `write`, writes the range. Its bytes change only with
// the option `touch_fill`: a trace's blocks would fill the memory of this machine.
// Nothing is checked when it is called; when it runs, every granule of the range must be mapped with the right,
// by the same mapping (generation) as at the call, else the touch is bad: counted, reported, and code 700
// becomes sticky unless `tolerate_bad_touches` was set. Needs no current context: the stream names its own;
// stream NULL is the legacy stream of device `device`. Returns a driver code.
int vmp_host_touch(vmp_driver *driver, int device, vmp_cu_stream stream, vmp_cu_ptr ptr, uint64_t bytes, bool write);
void vmp_host_tolerate_bad_touches(vmp_driver *driver, bool tolerate);

// vmp_host_check_order switches the option `check_order`: accesses (touches, copies, fills) of several streams to the
// same bytes of a handle, one of them a write, are counted (`unordered`) and told as violations unless stream waits,
// the legacy stream or what the host has waited for or asked put them in order. Switch it on before the first
// operation: earlier ones are unknown. With more than 64 streams at a time the check ends for good.
void vmp_host_check_order(vmp_driver *driver, bool check);

// vmp_host_step runs up to `max_operations` queued operations that are ready (oldest first, or by seed in
// seeded mode); returns how many ran. vmp_host_set_work changes the mode from here on.
uint64_t vmp_host_step(vmp_driver *driver, uint64_t max_operations);
void vmp_host_set_work(vmp_driver *driver, vmp_host_work work, uint64_t seed_or_lag);

// vmp_host_peek and vmp_host_poke read and write device memory at once, past all queues, for tests. They need
// a mapping, not a right. Return a driver code (1 when some byte is not mapped).
int vmp_host_peek(vmp_driver *driver, vmp_cu_ptr ptr, void *dst, size_t bytes);
int vmp_host_poke(vmp_driver *driver, vmp_cu_ptr ptr, const void *src, size_t bytes);

// ---- faults ----
typedef struct vmp_host_fault {
  vmp_call call;      // VMP_CALL_COUNT: any call that is part of the table
  uint64_t nth;       // the nth such call from now on (1 is the next)
  int code;           // what it returns instead of doing anything
  bool from_then_on;  // every later one too, until lifted
} vmp_host_fault;

// vmp_host_inject arms one fault more (up to 16); vmp_host_lift removes all of them.
bool vmp_host_inject(vmp_driver *driver, const vmp_host_fault *fault);
void vmp_host_lift(vmp_driver *driver);
// vmp_host_delay calls `hook(context)` inside every call of a kind before it acts, with no lock of the driver
// held: a test parks a thread there. NULL removes it.
void vmp_host_delay(vmp_driver *driver, vmp_call call, void (*hook)(void *context), void *context);

// ---- what happened ----
typedef struct vmp_host_counters {
  uint64_t violations;  // rules broken, all kinds
  uint64_t lint;        // strict-only remarks
  uint64_t bad_touches;
  uint64_t unmaps_under_work;  // rule 35
  uint64_t unordered;          // with check_order: accesses that are not ordered behind one that they conflict with
  uint64_t overlong_waits;     // with check_order: stream waits that cover accesses later than any that they are for
  uint64_t operations_queued, operations_done;
  uint64_t stream_waits;             // cuStreamWaitEvent calls
  uint64_t unfinished_stream_waits;  // of these, on an event that was not complete
  uint64_t host_waits;               // stream, event and context synchronise calls that had to run work
  double modelled_us;                // the virtual clock: cost table x calls
} vmp_host_counters;

// vmp_host_deinitialize makes the driver answer like one whose process is being torn down: 4, to every call.
void vmp_host_deinitialize(vmp_driver *driver);

void vmp_host_get_counters(vmp_driver *driver, vmp_host_counters *out);
// vmp_host_violation copies the sentence of violation number `index` (from 0; the last 64 are kept) into
// `buffer` and returns true, or false.
bool vmp_host_violation(vmp_driver *driver, uint64_t index, char *buffer, size_t size);

// What exists now, for leak checks.
typedef struct vmp_host_census {
  uint64_t handles, mappings, reservations, events, streams, contexts_retained, fds;
  uint64_t physical_bytes;  // of live handles, over all devices
  uint64_t mapped_bytes;    // sum over mappings (a handle mapped twice counts twice)
  uint64_t reserved_bytes;
} vmp_host_census;

void vmp_host_get_census(vmp_driver *driver, vmp_host_census *out);
// vmp_host_device_memory tells a device's total and free bytes without a context.
void vmp_host_device_memory(vmp_driver *driver, int device, uint64_t *out_free, uint64_t *out_total);
// vmp_host_set_foreign changes how much of a device "another process" holds.
void vmp_host_set_foreign(vmp_driver *driver, int device, uint64_t bytes);
// vmp_host_check reports every broken invariant of the model itself: physical used = sum of live handles,
// mappings disjoint and inside one reservation, alive if and only if referenced.
size_t vmp_host_check(vmp_driver *driver, vmp_report *report);
// vmp_host_leaks reports everything that still exists (rule 63) and returns how many things that is.
size_t vmp_host_leaks(vmp_driver *driver, vmp_report *report);

#endif  // VMPOOL_VMM_DRIVER_HOST_H_
