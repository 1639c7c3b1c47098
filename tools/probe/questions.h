// questions.h: the open questions about the driver (the driver contract, section 23), asked of a driver.
//
// Owns: the fourteen questions in their order, how each is put, its answer in words. Does not own: the processes in
// which they are put (probe.h): some leave the driver in a state that only a new process recovers from.
#ifndef VMPOOL_TOOLS_PROBE_QUESTIONS_H_
#define VMPOOL_TOOLS_PROBE_QUESTIONS_H_

#include "tools/probe/settings.h"

#define PROBE_QUESTIONS 14
#define PROBE_HOST_FUNCTION 13  // the one whose answer may be a deadlock

typedef enum probe_state {
  PROBE_UNASKED = 0,
  PROBE_ANSWERED,
  PROBE_NOT_HERE,  // this driver or device has nothing to try it on
  PROBE_FAILED,    // it could not be asked; the evidence says why
} probe_state;

typedef struct probe_answer {
  probe_state state;
  char answer[192];
  char evidence[768];  // what was seen, separated by "; "
  int call;            // vmp_call: made last, or under way; VMP_CALL_COUNT: none
} probe_answer;

// probe_question returns question `number`, from 1, as one line. Static storage.
const char *probe_question(int number);

// probe_state_name returns "unasked", "answered", "not here" or "failed". Static storage.
const char *probe_state_name(probe_state state);

// probe_ask puts question `number` to the rig's device and fills in *answer. Afterwards the rig holds no more than
// before, unless the driver refuses to take something back.
void probe_ask(int number, probe_rig *rig, const probe_settings *settings, probe_answer *answer);

#endif  // VMPOOL_TOOLS_PROBE_QUESTIONS_H_
