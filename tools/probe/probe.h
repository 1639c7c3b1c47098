// probe.h: everything that `vmpool probe` finds out, each part in a process of its own.
//
// Owns: which parts there are, their processes, what becomes of one that ends badly. Does not own: how anything is
// asked (facts.h, latency.h, questions.h) or shown (report.h).
//
//     this process          opens no driver
//       |- facts            driver and devices
//       |- latency          figures
//       |- question 1 .. 14
//
// Each process opens the driver anew, so a question that loses the context spoils no other.
#ifndef VMPOOL_TOOLS_PROBE_PROBE_H_
#define VMPOOL_TOOLS_PROBE_PROBE_H_

#include "tools/probe/facts.h"
#include "tools/probe/latency.h"
#include "tools/probe/questions.h"

typedef struct probe_options {
  // Opens and initialises the driver, in each process. Errors as vmp_driver_open.
  vmp_status (*open)(void *context, vmp_driver **out_driver);
  void *open_context;
  int device;  // ordinal
  probe_settings settings;
  uint32_t limit_ms;  // of each process
  // Called before each part; NULL: never.
  void (*progress)(void *context, const char *what, double share);
  void *progress_context;
} probe_options;

#define PROBE_LIMIT_MS 120000u

typedef struct probe_result {
  int device;
  uint32_t repeat;
  probe_facts facts;
  probe_latency latency;
  char latency_fault[640];  // why there are no or fewer figures; ""
  int latency_call;         // vmp_call: made last, or under way
  probe_answer answers[PROBE_QUESTIONS];
  size_t left_behind;    // on the host driver: what it still held when a part had given everything back
  char left_first[256];  // the first such thing; ""
} probe_result;

// probe_run asks everything. NULL where nothing could be asked: the driver can't be opened, the device can't be used,
// memory is short; *error says which. The calling process must have no threads and no open driver.
probe_result *probe_run(const probe_options *options, tool_error *error);
void probe_result_free(probe_result *result);  // NULL is fine

// probe_run_question puts question `number`, from 1 to PROBE_QUESTIONS, in a process of its own. False: memory is
// short.
bool probe_run_question(const probe_options *options, int number, probe_answer *out);

// probe_good says whether every figure was measured that memory allowed and every question put that has something to
// be tried on here, and nothing was left behind.
bool probe_good(const probe_result *result);

#endif  // VMPOOL_TOOLS_PROBE_PROBE_H_
