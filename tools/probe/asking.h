// asking.h: what the files that put the questions share. For tools/probe alone.
//
//     questions.c   the list, 1              ask_work.c    2, 12, 14: calls under running work
//     ask_space.c   3 to 6: mappings         ask_calls.c   8, 13: calls at odd times
//     ask_codes.c   7, 9 to 11: codes, values, out-parameters
#ifndef VMPOOL_TOOLS_PROBE_ASKING_H_
#define VMPOOL_TOOLS_PROBE_ASKING_H_

#include "tools/probe/questions.h"

// probe_conclude gives the answer. probe_not_here says why there is none to be had here. probe_say adds to the
// evidence.
void probe_conclude(probe_answer *answer, const char *format, ...) VMP_PRINTF(2, 3);
void probe_not_here(probe_answer *answer, const char *format, ...) VMP_PRINTF(2, 3);
void probe_say(probe_answer *answer, const char *format, ...) VMP_PRINTF(2, 3);

// probe_worked says whether a step that has to work did; if not, the question could not be asked.
bool probe_worked(probe_answer *answer, const probe_rig *rig, int code);

// probe_rights asks for the device's rights at an address; *out_flags is set on success.
int probe_rights(probe_rig *rig, vmp_cu_ptr ptr, unsigned long long *out_flags);

void probe_ask_unmap_waits(probe_rig *rig, const probe_settings *settings, probe_answer *answer);        // 2
void probe_ask_free_while_mapped(probe_rig *rig, const probe_settings *settings, probe_answer *answer);  // 3
void probe_ask_map_over_mapped(probe_rig *rig, const probe_settings *settings, probe_answer *answer);    // 4
void probe_ask_partial_map(probe_rig *rig, const probe_settings *settings, probe_answer *answer);        // 5
void probe_ask_hole_unmap(probe_rig *rig, const probe_settings *settings, probe_answer *answer);         // 6
void probe_ask_codes(probe_rig *rig, const probe_settings *settings, probe_answer *answer);              // 7
void probe_ask_after_700(probe_rig *rig, const probe_settings *settings, probe_answer *answer);          // 8
void probe_ask_granularity(probe_rig *rig, const probe_settings *settings, probe_answer *answer);        // 9
void probe_ask_out_params(probe_rig *rig, const probe_settings *settings, probe_answer *answer);         // 10
void probe_ask_fd_0(probe_rig *rig, const probe_settings *settings, probe_answer *answer);               // 11
void probe_ask_unrelated_unmap(probe_rig *rig, const probe_settings *settings, probe_answer *answer);    // 12
void probe_ask_host_function(probe_rig *rig, const probe_settings *settings, probe_answer *answer);      // 13
void probe_ask_lowering(probe_rig *rig, const probe_settings *settings, probe_answer *answer);           // 14

#endif  // VMPOOL_TOOLS_PROBE_ASKING_H_
