// ask_work.c: questions 2, 12 and 14: calls that take mappings or rights away while the device works.
#include <stdio.h>

#include "tools/probe/asking.h"
#include "tools/probe/work.h"
#include "vmm/error.h"

enum { MOST_SWAPS = 64 };

// trial: one call under running work.
typedef struct trial {
  int before, after;  // whether the work ran: what its event gave before and after the call
  int code;           // the call's
  double took_us;     // the call
  int end;            // how the work ended
} trial;

typedef int (*trial_call)(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes);

static trial run_trial(probe_rig *rig, const probe_work *work, trial_call call, vmp_cu_ptr ptr, uint64_t bytes) {
  trial t = {.before = probe_work_start(rig, work)};
  if (t.before == VMP_CU_SUCCESS) t.before = probe_work_query(rig, work);
  t.code = call(rig, ptr, bytes);
  t.took_us = (double)rig->spent_ns / 1000.0;
  t.after = probe_work_query(rig, work);
  t.end = probe_work_wait(rig, work);
  return t;
}

typedef enum verdict { DOES_NOT_WAIT, WAITS, UNDECIDED } verdict;
static const char *const verdict_words[] = {"doesn't wait", "waits", "can't be told"};

// A call that waited took a good part of the time that the work takes; else the work happened to end.
static verdict judge(const trial *t, const probe_work *work) {
  if (t->before != VMP_CU_NOT_READY || t->code != VMP_CU_SUCCESS) return UNDECIDED;
  if (t->after == VMP_CU_NOT_READY || vmp_is_sticky(t->after)) return DOES_NOT_WAIT;
  return t->after == VMP_CU_SUCCESS && t->took_us * 4 >= work->took_us ? WAITS : UNDECIDED;
}

static void say_trial(probe_answer *answer, const char *what, const trial *t) {
  probe_say(answer, "%s: gave %s in %.1f us; the work was %s before and %s after it, and ended with %s", what,
            probe_code(t->code).text, t->took_us, probe_code(t->before).text, probe_code(t->after).text,
            probe_code(t->end).text);
}

// ---- 2 ----

static void conclude_waits(probe_answer *answer, const probe_work *work, const trial *untouched, const trial *touched) {
  const verdict a = judge(untouched, work), b = judge(touched, work);
  char ended[PROBE_CODE_BYTES + 32] = "";
  if (touched->end != VMP_CU_SUCCESS) {
    snprintf(ended, sizeof(ended), "; the work then ended with %s", probe_code(touched->end).text);
  }
  if (a == b) {
    probe_conclude(answer, "%s%s", a == DOES_NOT_WAIT ? "no" : a == WAITS ? "yes" : verdict_words[a], ended);
  } else {
    probe_conclude(answer, "untouched range: %s; touched range: %s%s", verdict_words[a], verdict_words[b], ended);
  }
}

void probe_ask_unmap_waits(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  const uint64_t granule = rig->device.granule_bytes;
  probe_work work;
  vmp_cu_handle aside = 0;
  if (!probe_worked(answer, rig, probe_work_make(rig, settings, granule, &work))) return;
  const vmp_cu_ptr beside = work.ptr + work.bytes;
  if (!probe_worked(answer, rig, probe_chunk(rig, beside, granule, &aside))) return;
  probe_say(answer, "the work: %u fills of %llu KiB, %.0f us", work.fills, (unsigned long long)work.bytes >> 10,
            work.took_us);
  const trial untouched = run_trial(rig, &work, probe_unmap, beside, granule);
  say_trial(answer, "untouched range", &untouched);
  if (!probe_worked(answer, rig, untouched.end)) return;
  const trial touched = run_trial(rig, &work, probe_unmap, work.ptr, work.bytes);
  say_trial(answer, "touched range", &touched);
  conclude_waits(answer, &work, &untouched, &touched);
}

// ---- 12 ----

// Exchanges what is mapped at `ptr` for another chunk.
static int swap(probe_rig *rig, vmp_cu_ptr ptr, vmp_cu_handle handle) {
  const uint64_t granule = rig->device.granule_bytes;
  int code = probe_unmap(rig, ptr, granule);
  if (code == VMP_CU_SUCCESS) code = probe_map(rig, ptr, granule, 0, handle);
  if (code == VMP_CU_SUCCESS) code = probe_grant(rig, ptr, granule, VMP_CU_ACCESS_READWRITE);
  return code;
}

// Exchanges chunks until the work ends; returns how often while it ran. A swap that fails is told.
static int swap_under_work(probe_rig *rig, const probe_work *work, const vmp_cu_handle *pages, probe_answer *answer) {
  char why[PROBE_WHY_BYTES];
  int swaps = 0;
  while (swaps < MOST_SWAPS && probe_work_query(rig, work) == VMP_CU_NOT_READY) {
    const int code = swap(rig, work->ptr + work->bytes, pages[(swaps + 1) % 2]);
    if (code != VMP_CU_SUCCESS) {
      probe_say(answer, "an exchange failed: %s", probe_why(rig, code, why));
      break;
    }
    if (probe_work_query(rig, work) != VMP_CU_NOT_READY) break;
    swaps++;
  }
  return swaps;
}

void probe_ask_unrelated_unmap(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  const uint64_t granule = rig->device.granule_bytes;
  probe_work work;
  vmp_cu_handle pages[2] = {0, 0};
  if (!probe_worked(answer, rig, probe_work_make(rig, settings, granule, &work))) return;
  if (!probe_worked(answer, rig, probe_create_plain(rig, &pages[1], granule))) return;
  if (!probe_worked(answer, rig, probe_chunk(rig, work.ptr + work.bytes, granule, &pages[0]))) return;
  if (!probe_worked(answer, rig, probe_work_start(rig, &work))) return;
  const int swaps = swap_under_work(rig, &work, pages, answer);
  const int end = probe_work_wait(rig, &work);
  int read = VMP_CU_SUCCESS;
  const bool intact = end == VMP_CU_SUCCESS && probe_work_intact(rig, &work, &read);
  probe_say(answer, "%d times the chunk right behind the work's was exchanged while it ran", swaps);
  probe_say(answer, "the work ended with %s", probe_code(end).text);
  if (end == VMP_CU_SUCCESS) {
    probe_say(answer, read != VMP_CU_SUCCESS ? "its data can't be read"
                      : intact               ? "its data is right"
                                             : "its data is WRONG");
  }
  if (end != VMP_CU_SUCCESS) {
    probe_conclude(answer, "NOT harmless: the work failed");
  } else if (read == VMP_CU_SUCCESS && !intact) {
    probe_conclude(answer, "NOT harmless: the work left wrong data");
  } else if (swaps == 0) {
    probe_conclude(answer, "can't be told: no chunk was exchanged while the work ran");
  } else {
    probe_conclude(answer, "harmless");
  }
}

// ---- 14 ----

static int grant_read(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes) {
  return probe_grant(rig, ptr, bytes, VMP_CU_ACCESS_READ);
}
static int grant_nothing(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes) {
  return probe_grant(rig, ptr, bytes, VMP_CU_ACCESS_NONE);
}

void probe_ask_lowering(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  probe_work work;
  if (!probe_worked(answer, rig, probe_work_make(rig, settings, 0, &work))) return;
  trial t = run_trial(rig, &work, grant_read, work.ptr, work.bytes);
  const char *what = "to reading";
  say_trial(answer, what, &t);
  if (t.end == VMP_CU_SUCCESS) {  // the work didn't notice: take everything away
    if (!probe_worked(answer, rig, probe_grant(rig, work.ptr, work.bytes, VMP_CU_ACCESS_READWRITE))) return;
    t = run_trial(rig, &work, grant_nothing, work.ptr, work.bytes);
    what = "to none";
    say_trial(answer, what, &t);
  }
  if (t.code != VMP_CU_SUCCESS) {
    probe_conclude(answer, "refused with %s", probe_code(t.code).text);
    return;
  }
  probe_conclude(answer, "%s; work that writes ended with %s when rights were lowered %s",
                 verdict_words[judge(&t, &work)], probe_code(t.end).text, what);
}
