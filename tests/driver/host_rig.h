// host_rig.h: a host driver for its own tests, and the macro that tests a rule of table A.
//
//     host_rig: a driver with a context current. The fixture opens it with the default options; a test that wants
//     others calls host_rig_open itself (on a zeroed rig) and host_rig_teardown at its end.
#ifndef VMPOOL_TESTS_DRIVER_HOST_RIG_H_
#define VMPOOL_TESTS_DRIVER_HOST_RIG_H_

#include "tests/support/faults.h"
#include "tests/support/vtest.h"
#include "vmm/driver_host.h"

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)
#define GIB(n) ((size_t)(n) << 30)
#define G MIB(2)  // the granule of a default device

typedef struct host_rig {
  vmp_driver *driver;
  vmp_cu_context context;  // of device 0
} host_rig;

void host_rig_setup(host_rig *rig);     // default options
void host_rig_teardown(host_rig *rig);  // closes; a NULL driver is fine
// host_rig_open opens a driver with options, initialises it and makes device 0's context current.
void host_rig_open(host_rig *rig, const vmp_host_options *options);

vmp_cu_mem_prop host_prop(int device);
vmp_cu_access_desc host_grant(int device, int flags);
// These fail the test if the call fails.
vmp_cu_ptr host_reserve(host_rig *rig, size_t bytes);
vmp_cu_handle host_create(host_rig *rig, int device, size_t bytes);
// host_map creates a handle of `bytes`, maps it and gives device 0 both rights.
vmp_cu_handle host_map(host_rig *rig, vmp_cu_ptr ptr, size_t bytes);
vmp_cu_stream host_stream(host_rig *rig, unsigned flags);
vmp_cu_event host_event(host_rig *rig);
vmp_host_counters host_counters(host_rig *rig);
vmp_host_census host_census(host_rig *rig);

// host_state is what a failing call must not change.
typedef struct host_state {
  vmp_host_census census;
  uint64_t free_bytes[VMP_HOST_MAX_DEVICES];
  uint64_t queued, done;
} host_state;

// host_before takes down the state before a call that breaks a rule; host_after expects that it has not changed,
// that the model is consistent, that exactly one violation was counted and that its sentence begins with the rule.
typedef struct host_watch {
  host_state state;
  uint64_t violations, lint;
} host_watch;

host_watch host_before(host_rig *rig);
bool vtest_expect_rule(vtest_site site, const char *text, host_rig *rig, const host_watch *watch, int rule, int code,
                       int expected);

// VEXPECT_RULE(rig, rule, code, call): `call` breaks rule number `rule` of the contract's table A, gives `code` and
// changes nothing. Rule -1: no rule is broken (an answer such as "out of memory"), but nothing changes either.
#define VEXPECT_RULE(rig, number, code, call)                   \
  do {                                                          \
    host_watch watch_ = host_before(rig);                       \
    int got_ = (call);                                          \
    VTEST_SOFT_(rule, #call, rig, &watch_, number, got_, code); \
  } while (0)

// The newest kept sentence, or "".
const char *host_last_sentence(host_rig *rig);
// Expects that vmp_host_check finds nothing.
void host_expect_consistent(host_rig *rig);

#define VEXPECT_CODE(call, code) VEXPECT_INT_EQ(call, code)
#define VASSERT_CUDA(call) VASSERT_INT_EQ(call, VMP_CU_SUCCESS)
#define VEXPECT_CUDA(call) VEXPECT_INT_EQ(call, VMP_CU_SUCCESS)

#endif  // VMPOOL_TESTS_DRIVER_HOST_RIG_H_
