// world.h: four streams on a host driver with everything of vmm in use, where any driver call may fail at any time.
//
// Owns: one device's worth of state: the helpers of vmm (device, context, clock, backing) and what is asked of the
// driver directly; what exists is noted, so that it can be given back whatever failed. Knows nothing of the sweep.
//
//     world_open    makes what is missing: driver, device, contexts, clock, backing, streams       (tries again as
//     often world_run     the scenario: every call of the table, directly or through vmm                   as it is
//     called) world_use     the whole device claimed, filled, read and given back: must work where nothing fails
//     world_close   gives back what exists, once each
//
// After every step: backing, clock and the driver's model are consistent, and no rule of the driver was broken. A call
// of the driver that fails has changed nothing.
#ifndef VMPOOL_TESTS_FAULT_WORLD_H_
#define VMPOOL_TESTS_FAULT_WORLD_H_

#include "tests/support/vtest.h"
#include "vmm/backing.h"
#include "vmm/device.h"
#include "vmm/driver_host.h"

#define GRANULE UINT64_C(4096)  // of the devices: small, since all data is really moved
#define WORLD_STREAMS 4u
#define WORLD_CLAIMS 8u
#define WORLD_READS 64u
#define WORLD_READ_BYTES 64u
#define WORLD_LIMIT_BYTES (16 * GRANULE)

// A claim of backing with a tag in every byte; tag 0: unknown, since filling it failed.
typedef struct world_claim {
  uint64_t offset, bytes;
  unsigned stream;  // whose it is
  unsigned users;   // bit s: stream s may still touch it
  unsigned char tag;
} world_claim;

// A queued copy to the host, and what must arrive.
typedef struct world_read {
  unsigned char bytes[WORLD_READ_BYTES];
  unsigned char tag;
} world_read;

typedef struct world {
  // The sweep's.
  int code;         // of the fault that may strike; 0: nothing fails
  bool gone;        // the code says that the driver is shut down: then work counts as over, wherever it is
  bool lost;        // the context is lost indeed: nothing runs any more
  uint64_t nth;     // of the calls, the one that fails first; 0: none
  vmp_call struck;  // which one that was; VMP_CALL_COUNT: not reached

  vmp_driver *driver;
  bool initialized;
  vmp_device device;
  vmp_cu_context context, peer;  // of devices 0 and 1, retained
  vmp_clock *clock;
  vmp_backing *backing;
  vmp_backing_ops ops;
  uint64_t base;  // offset of the reservation; bytes 0: none
  uint64_t bytes;
  bool locked;
  vmp_context_saved saved;
  bool entered;

  vmp_cu_stream streams[WORLD_STREAMS], side;
  vmp_stream_index indices[WORLD_STREAMS];
  world_claim claims[WORLD_CLAIMS];
  size_t num_claims;
  world_read reads[WORLD_READS];
  size_t num_reads;
  unsigned char next_tag;

  vmp_cu_event events[2];
  void *graph, *pinned;
  bool capturing;
  vmp_cu_ptr range, plain;
  vmp_cu_handle handle;
  unsigned refs;       // of `handle`, that are this world's
  bool mapped, dirty;  // `dirty`: direct work may be queued
  int fd;
  uint64_t launched, host_functions;  // queued, run

  struct world_hook {
    struct world *w;
    vmp_call call;
  } hooks[VMP_CALL_COUNT];
  uint64_t made;           // calls
  vmp_host_census before;  // of the direct call under way
  uint64_t refusals;       // calls and steps that failed
} world;

// world_begin makes the driver, with nothing done on it yet.
void world_begin(world *w, vmp_host_work work, uint64_t seed, bool poison_out_params);
void world_open(world *w);
void world_run(world *w);
// world_steps makes the steps [from, to) of the scenario.
#define WORLD_STEPS 7u
void world_steps(world *w, size_t from, size_t to);
void world_use(world *w);
void world_close(world *w);
// world_end closes the driver.
void world_end(world *w);

// ---- for the steps ----

// WORLD_TRY makes a call of the driver directly and says whether it succeeded. A failure is the fault's code or 600,
// and nothing has changed.
#define WORLD_TRY(w, call) (world_before(w), world_after(w, (call), #call))
void world_before(world *w);
bool world_after(world *w, int code, const char *text);
// world_status says whether a call of vmm succeeded; a failure has told why.
bool world_status(world *w, vmp_status status);
// world_enter makes the device's context current for direct calls; world_leave undoes it.
bool world_enter(world *w);
void world_leave(world *w);
void world_check(world *w);
// world_synchronize waits for everything on device 0; then all reads must have arrived with their tags.
bool world_synchronize(world *w);
// world_end_capture ends a capture that is under way, and says whether none is left: while a stream captures, its
// context can't be waited for.
bool world_end_capture(world *w);

void world_questions(world *w);
void world_contexts(world *w);
void world_events(world *w);
void world_capture(world *w);
void world_memory(world *w);
void world_drop_memory(world *w);
void world_drop_objects(world *w);
void world_claims(world *w);

// Claims. world_claim_range returns the claim or NULL.
world_claim *world_claim_range(world *w, uint64_t offset, uint64_t bytes, unsigned stream, vmp_effort effort);
void world_read_claim(world *w, world_claim *c, unsigned stream);
void world_release_claim(world *w, world_claim *c);

#endif  // VMPOOL_TESTS_FAULT_WORLD_H_
