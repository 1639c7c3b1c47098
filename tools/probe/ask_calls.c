// ask_calls.c: questions 8 and 13: the VMM calls after a lost context and inside a host function.
//
// Both make a tour: one small reservation and one chunk, made, used and given back.
#include <limits.h>
#include <stdio.h>

#include "tools/probe/asking.h"
#include "tools/probe/work.h"
#include "vmm/error.h"

enum { NOT_TRIED = INT_MIN, TOUR_CALLS = 9 };

// tour: the calls in their order, and what each gave.
typedef struct tour {
  struct {
    vmp_call call;
    int code;
  } steps[TOUR_CALLS];
  size_t count;
} tour;

// Notes a step; returns whether it worked.
static bool note(tour *t, vmp_call call, int code) {
  t->steps[t->count].call = call;
  t->steps[t->count++].code = code;
  return code == VMP_CU_SUCCESS;
}

// STEP makes a call where what it needs is there.
#define STEP(t, name, possible, code) note(t, VMP_CALL_##name, (possible) ? (code) : (int)NOT_TRIED)

static void make_tour(probe_rig *rig, tour *t) {
  const uint64_t granule = rig->device.granule_bytes;
  const vmp_cu_mem_prop prop = vmp_device_mem_prop(rig->device.ordinal, VMP_CU_HANDLE_NONE);
  size_t bytes = 0;
  vmp_cu_ptr ptr = 0;
  vmp_cu_handle handle = 0;
  unsigned long long flags = 0;
  t->count = 0;
  STEP(t, mem_get_allocation_granularity, true,
       PROBE_CALL(rig, mem_get_allocation_granularity, &bytes, &prop, VMP_CU_GRANULARITY_MINIMUM));
  const bool reserved = STEP(t, mem_address_reserve, true, probe_reserve(rig, &ptr, granule, 0));
  const bool created = STEP(t, mem_create, true, probe_create_plain(rig, &handle, granule));
  const bool mapped = STEP(t, mem_map, reserved && created, probe_map(rig, ptr, granule, 0, handle));
  STEP(t, mem_set_access, mapped, probe_grant(rig, ptr, granule, VMP_CU_ACCESS_READWRITE));
  STEP(t, mem_get_access, mapped, probe_rights(rig, ptr, &flags));
  STEP(t, mem_unmap, mapped, probe_unmap(rig, ptr, granule));
  STEP(t, mem_release, created, probe_release(rig, handle));
  STEP(t, mem_address_free, reserved, probe_free(rig, ptr, granule));
}

// Says what each step gave, and concludes: all work, all give one code, or so many of so many work.
static void tell_tour(probe_answer *answer, const tour *t, const char *before) {
  unsigned tried = 0, worked = 0;
  int code = VMP_CU_SUCCESS;
  bool alike = true;
  char text[512] = "";
  size_t used = 0;
  for (size_t i = 0; i < t->count; i++) {
    const int got = t->steps[i].code;
    if (got == NOT_TRIED) continue;
    if (tried > 0 && got != code) alike = false;
    code = got;
    tried++;
    worked += got == VMP_CU_SUCCESS;
    used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %d", used > 0 ? ", " : "",
                             vmp_call_symbol(t->steps[i].call), got);
    if (used >= sizeof(text)) used = sizeof(text) - 1;
  }
  probe_say(answer, "%s", text);
  if (worked == tried) {
    probe_conclude(answer, "%sall %u work", before, tried);
  } else if (alike) {
    probe_conclude(answer, "%sall %u that could be tried give %s", before, tried, probe_code(code).text);
  } else {
    probe_conclude(answer, "%s%u of %u work", before, worked, tried);
  }
}

// ---- 8 ----

// Makes queued work touch what it may not, by taking the chunk or its rights away first. Returns the code that the work
// ended with, or that of the step that failed.
static int provoke(probe_rig *rig, const probe_work *work, vmp_cu_ptr victim, bool by_unmap) {
  const uint64_t granule = rig->device.granule_bytes;
  int code = probe_work_start(rig, work);
  if (code == VMP_CU_SUCCESS) code = PROBE_CALL(rig, memset_d8_async, victim, 1, granule, work->stream);
  if (code != VMP_CU_SUCCESS) return code;
  code = by_unmap ? probe_unmap(rig, victim, granule) : probe_grant(rig, victim, granule, VMP_CU_ACCESS_NONE);
  const int end = probe_work_wait(rig, work);
  return code == VMP_CU_SUCCESS ? end : code;
}

void probe_ask_after_700(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  const uint64_t granule = rig->device.granule_bytes;
  probe_work work;
  vmp_cu_handle handle = 0;
  size_t free_bytes = 0, total = 0;
  if (!probe_worked(answer, rig, probe_work_make(rig, settings, 2 * granule, &work))) return;
  const vmp_cu_ptr victims = work.ptr + work.bytes;
  if (!probe_worked(answer, rig, probe_chunk(rig, victims, granule, &handle))) return;
  if (!probe_worked(answer, rig, probe_chunk(rig, victims + granule, granule, &handle))) return;
  int code = provoke(rig, &work, victims, true);
  probe_say(answer, "work whose memory was unmapped before it ran ended with %s", probe_code(code).text);
  if (!vmp_is_sticky(code)) {
    code = provoke(rig, &work, victims + granule, false);
    probe_say(answer, "work whose rights were taken before it ran ended with %s", probe_code(code).text);
  }
  if (!vmp_is_sticky(code)) {
    probe_not_here(answer, "no lasting error could be provoked without kernels");
    return;
  }
  tour t;
  char before[PROBE_CODE_BYTES + 16];
  make_tour(rig, &t);
  snprintf(before, sizeof(before), "after %s: ", probe_code(code).text);
  tell_tour(answer, &t, before);
  probe_say(answer, "cuMemGetInfo, which needs the context, gives %d",
            PROBE_CALL(rig, mem_get_info, &free_bytes, &total));
  probe_say(answer, "unmapping what was mapped before gives %d", probe_unmap(rig, victims + granule, granule));
}

// ---- 13 ----

// visit: a rig of the host function's own, since the other thread is inside a call meanwhile.
typedef struct visit {
  probe_rig rig;
  tour tour;
} visit;

static void visit_driver(void *user_data) {
  visit *v = user_data;
  make_tour(&v->rig, &v->tour);
}

void probe_ask_host_function(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  (void)settings;
  // Static: if the stream can't be waited for, the function may run after this one has returned. One at a time: the
  // questions are put by one thread.
  static visit v;
  v = (visit){.rig = {.driver = rig->driver, .device = rig->device, .clock = rig->clock, .watch = rig->watch}};
  vmp_cu_stream stream = NULL;
  if (!probe_worked(answer, rig, probe_make_stream(rig, &stream))) return;
  const int launch = PROBE_CALL(rig, launch_host_func, stream, visit_driver, &v);
  if (launch == VMP_CU_NOT_SUPPORTED) {
    probe_not_here(answer, "this driver has no cuLaunchHostFunc");
    return;
  }
  if (!probe_worked(answer, rig, launch)) return;
  int end = PROBE_CALL(rig, stream_synchronize, stream);
  if (end != VMP_CU_SUCCESS) end = PROBE_CALL(rig, stream_synchronize, stream);
  if (end != VMP_CU_SUCCESS) (void)probe_clear(rig);  // the function may run only now
  if (probe_worked(answer, rig, end)) tell_tour(answer, &v.tour, "");
  const size_t left = probe_clear(&v.rig);
  if (left != 0) {
    answer->state = PROBE_FAILED;
    probe_say(answer, "%zu things made in it could not be given back", left);
  }
}
