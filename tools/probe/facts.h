// facts.h: what a driver and its devices say of themselves.
//
// Owns: asking. Does not own: how it is shown. A question that fails leaves its value unknown and is counted.
#ifndef VMPOOL_TOOLS_PROBE_FACTS_H_
#define VMPOOL_TOOLS_PROBE_FACTS_H_

#include "tools/probe/settings.h"

#define PROBE_MAX_DEVICES 32
#define PROBE_NUM_ATTRIBUTES 16
#define PROBE_NUM_HANDLE_TYPES 3

// The attributes that matter to a pool, and the kinds of shareable handles. Static storage.
typedef struct probe_name {
  const char *name;
  int id;         // VMP_CU_ATTR_, VMP_CU_HANDLE_
  int attribute;  // of a handle type: what announces it; 0 for none
} probe_name;
extern const probe_name probe_attributes[PROBE_NUM_ATTRIBUTES];
extern const probe_name probe_handle_types[PROBE_NUM_HANDLE_TYPES];

// probe_value: an answer, or the code that came instead.
typedef struct probe_value {
  int code;
  uint64_t value;
} probe_value;

typedef struct probe_device {
  char name[96];  // printable ASCII; "?" where it is not known
  probe_value total_bytes;
  probe_value granularity_minimum, granularity_recommended;
  struct {
    int code, value;
  } attributes[PROBE_NUM_ATTRIBUTES];
  int handle_codes[PROBE_NUM_HANDLE_TYPES];  // what mem_create of one granule with that type of handle gives
  uint32_t peers;                            // bit d: can reach device d
} probe_device;

typedef struct probe_facts {
  char driver[16];  // "cuda", "host"
  bool is_host;
  probe_value version;  // 13000 is 13.0
  int num_devices;      // at most PROBE_MAX_DEVICES are described
  probe_device devices[PROBE_MAX_DEVICES];
  probe_value free_bytes;  // of the rig's device
  uint64_t largest_bytes;  // the largest reservation that was granted; 0: none
  uint64_t refused_bytes;  // the smallest that was refused, with refused_code; 0: none was
  int refused_code;
  size_t failures;  // questions that failed, refusals of reservations and of handle types not counted
} probe_facts;

// probe_facts_read asks everything. Reservations and chunks that it makes are gone at the end.
void probe_facts_read(probe_rig *rig, const probe_settings *settings, probe_facts *out);

#endif  // VMPOOL_TOOLS_PROBE_FACTS_H_
