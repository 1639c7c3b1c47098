// rig.h: one device of an open driver, and everything that a probe makes on it.
//
// Owns: the device's context, made current for this thread; a record of each reservation, handle, mapping, stream and
// event, so that a probe may stop anywhere and all is given back; the time of the last call, and which it was. Does not
// own: the driver, the questions.
//
//     probe: probe_reserve, probe_create, probe_map, ... fails -> returns        (nothing to undo by hand)
//     its caller: probe_clear                                  -> unmap, release, free, destroy
//
// Functions that return int return the driver's code. A call that the driver accepts is recorded, also where a probe
// expected a refusal. Not thread-safe.
#ifndef VMPOOL_TOOLS_PROBE_RIG_H_
#define VMPOOL_TOOLS_PROBE_RIG_H_

#include "tools/common/error.h"
#include "vmm/context.h"
#include "vmm/device.h"
#include "vmm/driver.h"

#define PROBE_MAX_CHUNKS 72u  // handles, and mappings
#define PROBE_MAX_FEW 8u      // ranges, streams, events

// probe_clock: where times come from. now_ns NULL: this machine's monotonic clock.
typedef struct probe_clock {
  uint64_t (*now_ns)(void *context);
  void *context;
} probe_clock;

typedef struct probe_range {
  vmp_cu_ptr ptr;
  uint64_t bytes;
  bool doubtful;  // a mapping that may be gone already
} probe_range;

typedef struct probe_rig {
  vmp_driver *driver;
  vmp_device device;
  vmp_cu_context context;
  vmp_context_saved saved;
  probe_clock clock;
  uint64_t clock_cost_ns;  // of a pair of readings
  uint64_t began_ns;
  uint64_t spent_ns;  // in the driver, by the last call
  vmp_call call;      // the last one
  bool lost;          // some call gave a code after which only a new process helps
  int *watch;         // also written here before it is made, for a process that watches this one; or NULL
  probe_range ranges[PROBE_MAX_FEW], mappings[PROBE_MAX_CHUNKS];
  vmp_cu_handle handles[PROBE_MAX_CHUNKS];
  vmp_cu_stream streams[PROBE_MAX_FEW];
  vmp_cu_event events[PROBE_MAX_FEW];
  size_t num_ranges, num_mappings, num_handles, num_streams, num_events;
} probe_rig;

// probe_rig_open fills in *rig for device `ordinal` and makes its primary context current. `watch` may be NULL. On
// failure *error says why and nothing is held.
bool probe_rig_open(probe_rig *rig, vmp_driver *driver, int ordinal, probe_clock clock, int *watch, tool_error *error);

// probe_rig_close gives everything back, the context last, and returns how many things could not be: each is tried
// twice.
size_t probe_rig_close(probe_rig *rig);

// probe_clear waits for the device and gives back all but the context. Returns what is left, which stays recorded; 0
// where the context is lost, since then nothing is promised.
size_t probe_clear(probe_rig *rig);

// probe_now_ns reads the rig's clock.
uint64_t probe_now_ns(const probe_rig *rig);

// PROBE_CALL(rig, mem_unmap, ptr, bytes) makes a call that is not recorded.
#define PROBE_CALL(rig, name, ...) \
  probe_called(rig, (probe_calling(rig, VMP_CALL_##name), vmp_drv_##name((rig)->driver, __VA_ARGS__)))
void probe_calling(probe_rig *rig, vmp_call call);
int probe_called(probe_rig *rig, int code);

// The recorded calls. More than there is room for is code 2, and no call.
int probe_reserve(probe_rig *rig, vmp_cu_ptr *out_ptr, uint64_t bytes, uint64_t alignment);
int probe_create(probe_rig *rig, vmp_cu_handle *out_handle, uint64_t bytes, const vmp_cu_mem_prop *prop);
int probe_create_plain(probe_rig *rig, vmp_cu_handle *out_handle, uint64_t bytes);  // on the device, not to be shared
int probe_map(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes, uint64_t offset, vmp_cu_handle handle);
int probe_unmap(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes);
int probe_release(probe_rig *rig, vmp_cu_handle handle);
int probe_free(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes);
int probe_make_stream(probe_rig *rig, vmp_cu_stream *out_stream);  // not ordered with the default stream
int probe_make_event(probe_rig *rig, vmp_cu_event *out_event);     // without timing

// probe_grant gives the device a right (VMP_CU_ACCESS_) to a run of mappings.
int probe_grant(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes, int flags);
// probe_adopt records a handle that came from another call (an import).
void probe_adopt(probe_rig *rig, vmp_cu_handle handle);
// probe_doubt says that mappings in a range may be gone: that one can't be unmapped any more is then no failure.
void probe_doubt(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes);
// probe_chunk makes a whole chunk at an address: create, map, grant reading and writing.
int probe_chunk(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes, vmp_cu_handle *out_handle);

// probe_code writes a driver code for people: "0", "1 INVALID_VALUE", "12345".
#define PROBE_CODE_BYTES 48
typedef struct probe_code_text {
  char text[PROBE_CODE_BYTES];
} probe_code_text;
probe_code_text probe_code(int code);

// probe_why says that the last call failed, as "cuMemMap gave 1 INVALID_VALUE"; returns buffer.
#define PROBE_WHY_BYTES 112
const char *probe_why(const probe_rig *rig, int code, char buffer[PROBE_WHY_BYTES]);

#endif  // VMPOOL_TOOLS_PROBE_RIG_H_
