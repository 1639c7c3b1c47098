// conform.h: the rules of the driver contract's table A, put to a driver one by one.
//
// Owns: the list of probes (probes.h), the state that each finds, asking, judging and printing. Knows both drivers, and
// nothing of the pool. What a driver may never do differently is tested elsewhere (tests/driver, tests/gpu).
//
//     probes.h      the list: rule, what is asked, expected codes
//     probes_*.c    the questions: each makes the calls and returns the driver's answer
//     conform.c     the rig, one question, the verdict, the printed table
//     alone.c       a question in a process of its own: for what would poison this one
//
// The rig, in granules:
//
//     place     0     1     2     3     4     5     6     7
//     mapping [one] [two] [  three   ]  -     -     -     -        two has been granted to nobody
//     spare: a chunk of one granule that is mapped nowhere, pair: one of two
//
// On the host driver there are twelve devices: 0 to 9 reach each other, 10 reaches nobody, 11 lacks VMM.
#ifndef VMPOOL_TESTS_CONFORMANCE_CONFORM_H_
#define VMPOOL_TESTS_CONFORMANCE_CONFORM_H_

#include "tests/gpu/gpu_rig.h"
#include "vmm/driver_host.h"

#define CONFORM_NUM_RULES 64
#define CONFORM_MAX_ALSO 4

// Answers that no driver gives.
enum {
  CONFORM_END = -1,       // ends a list of codes
  CONFORM_NOT_HERE = -2,  // this driver or machine can't be asked
  CONFORM_CRASHED = -3,   // the process died
  CONFORM_SILENT = -4,    // no answer in time; the process was killed
  CONFORM_FAILED = -5,    // something that must work did not, so that the question could not be put
  CONFORM_AS_STRICT = -6,
};

// Where a probe runs.
typedef enum conform_where {
  CONFORM_HERE,   // in the rig, which it leaves as it found it, whatever the driver answers
  CONFORM_ALONE,  // in a rig in a process of its own, which ends with the answer
  CONFORM_BARE,   // in a process of its own in which no driver has been opened
} conform_where;

typedef struct conform {
  gpu_rig base;
  vmp_driver *driver;
  uint64_t granule;
  vmp_cu_ptr at;  // of the range above
  vmp_cu_handle one, two, three, spare, pair;
  bool host;             // the host driver is asked
  vmp_host_level level;  // of the host driver
  const char *why;       // of CONFORM_NOT_HERE
} conform;

// conform_probe: one question, and what may be answered. `strict` is table A's code; `also` are the others that a
// portable program must accept. `lint` and `compat` are the host driver's answers at these levels.
typedef struct conform_probe {
  int rule;
  const char *evidence;  // table A's column: D documented, T tested, I observed, U uncertain
  const char *name;      // of the function
  int (*ask)(conform *c);
  const char *asked;
  int strict;
  int also[CONFORM_MAX_ALSO];  // ends with CONFORM_END
  int lint, compat;            // CONFORM_AS_STRICT: as at level strict
  conform_where where;
} conform_probe;

extern const conform_probe conform_probes[];
extern const size_t conform_num_probes;

// conform_expected is what the host driver must answer at a level.
int conform_expected(const conform_probe *probe, vmp_host_level level);

// ---- asking (conform.c, alone.c) ----

typedef struct conform_answer {
  int code;
  char why[120];
} conform_answer;

// conform_open opens the driver that the command line names and builds the rig. Like gpu_rig_setup it may skip the
// test; then c->driver is NULL. conform_close takes it down.
void conform_open(conform *c, vmp_host_level level);
void conform_close(conform *c);
// conform_write fills one and three with data, conform_expect expects it there.
void conform_write(conform *c);
void conform_expect(conform *c);

// conform_ask puts one question, wherever it must be put. On the host driver a probe that runs here and leaves anything
// behind fails the test.
conform_answer conform_ask(conform *c, const conform_probe *probe);

// conform_ask_alone puts the question in a process of its own and waits for it, for at most CONFORM_PATIENCE_MS.
#define CONFORM_PATIENCE_MS 20000
conform_answer conform_ask_alone(const conform *c, size_t index);

// conform_is_child says whether this process is such a process; then conform_be_child answers and ends it.
bool conform_is_child(void);
void conform_be_child(void);
// conform_tell sends the answer and ends the process at once; only in such a process.
_Noreturn void conform_tell(int code, const char *why);

// ---- for probes ----

int conform_not_here(conform *c, const char *why);  // sets `why`, returns CONFORM_NOT_HERE

static inline vmp_cu_ptr conform_place(const conform *c, uint64_t granule) { return c->at + granule * c->granule; }
static inline vmp_cu_mem_prop conform_prop(const conform *c) {
  return vmp_device_mem_prop(c->base.device.ordinal, VMP_CU_HANDLE_NONE);
}
static inline vmp_cu_access_desc conform_desc(int device, int flags) {
  return (vmp_cu_access_desc){{VMP_CU_LOCATION_DEVICE, device}, flags};
}
// conform_map_all maps one, two and three where they belong; one and three are granted.
void conform_map_all(conform *c);

// conform_other finds a device that can (or can't) reach the rig's device and be reached by it; -1: there is none.
int conform_other(conform *c, bool reachable);

// conform_gate holds up a stream: a host function in it ends when the gate is opened, or after some seconds.
typedef struct conform_gate {
  vmp_driver *driver;
  vmp_cu_stream stream;
  void *state;
} conform_gate;
// conform_gate_close makes a stream of its own with the host function in it; a driver code.
int conform_gate_close(conform *c, conform_gate *gate);
// conform_gate_open lets the stream go on. conform_gate_end opens it, waits and destroys the stream.
void conform_gate_open(conform_gate *gate);
void conform_gate_end(conform_gate *gate);

// conform_machine opens another host driver with a context current, for what only a model shows; conform_machine_end
// closes it and makes the rig's context current again.
typedef struct conform_machine {
  vmp_driver *driver;
  vmp_cu_context context;
} conform_machine;
bool conform_machine_begin(conform *c, conform_machine *machine, vmp_host_options *options);
void conform_machine_end(conform_machine *machine);

// conform_symbol finds an entry point of the CUDA driver's library by its exported name, without opening the driver;
// false where there is none. `out_function` points to a function pointer.
bool conform_symbol(const char *name, void *out_function);

#endif  // VMPOOL_TESTS_CONFORMANCE_CONFORM_H_
