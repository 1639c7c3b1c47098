// work.c: see work.h.
#include "tools/probe/work.h"

#include "vmm/align.h"

// Queues of drivers hold about 1024 operations; one that is full would block the caller.
#define MAX_FILLS 768u
#define LEAST_FILLS 4u

int probe_work_start(probe_rig *rig, const probe_work *work) {
  int code = VMP_CU_SUCCESS;
  for (uint32_t i = 0; i < work->fills && code == VMP_CU_SUCCESS; i++) {
    code = PROBE_CALL(rig, memset_d8_async, work->ptr, (unsigned char)(work->value + work->fills - 1 - i), work->bytes,
                      work->stream);
  }
  return code == VMP_CU_SUCCESS ? PROBE_CALL(rig, event_record, work->end, work->stream) : code;
}

int probe_work_query(probe_rig *rig, const probe_work *work) { return PROBE_CALL(rig, event_query, work->end); }

int probe_work_wait(probe_rig *rig, const probe_work *work) {
  return PROBE_CALL(rig, stream_synchronize, work->stream);
}

bool probe_work_intact(probe_rig *rig, const probe_work *work, int *out_code) {
  unsigned char first = 0, last = 0;
  *out_code = PROBE_CALL(rig, memcpy_dtoh, &first, work->ptr, 1);
  if (*out_code == VMP_CU_SUCCESS) *out_code = PROBE_CALL(rig, memcpy_dtoh, &last, work->ptr + work->bytes - 1, 1);
  return *out_code == VMP_CU_SUCCESS && first == work->value && last == work->value;
}

// Tries longer and longer chains until one lasts long enough.
static int calibrate(probe_rig *rig, const probe_settings *settings, probe_work *work) {
  for (work->fills = LEAST_FILLS;;) {
    const uint64_t began = probe_now_ns(rig);
    int code = probe_work_start(rig, work);
    if (code == VMP_CU_SUCCESS) code = probe_work_wait(rig, work);
    if (code != VMP_CU_SUCCESS) return code;
    work->took_us = (double)(probe_now_ns(rig) - began) / 1000.0;
    if (work->took_us >= (double)settings->work_us || work->fills == MAX_FILLS) return code;
    const double wanted = 1.25 * work->fills * (double)settings->work_us / (work->took_us > 1 ? work->took_us : 1);
    const uint32_t least = 2 * work->fills;
    work->fills = wanted >= MAX_FILLS || least >= MAX_FILLS ? MAX_FILLS : wanted > least ? (uint32_t)wanted : least;
  }
}

int probe_work_make(probe_rig *rig, const probe_settings *settings, uint64_t extra, probe_work *out) {
  const uint64_t granule = rig->device.granule_bytes;
  size_t free_bytes = 0, total = 0;
  *out = (probe_work){.value = 0xC5};
  int code = PROBE_CALL(rig, mem_get_info, &free_bytes, &total);
  if (code == VMP_CU_SUCCESS) code = probe_make_stream(rig, &out->stream);
  if (code == VMP_CU_SUCCESS) code = probe_make_event(rig, &out->end);
  if (code != VMP_CU_SUCCESS) return code;
  const uint64_t most = settings->work_bytes < free_bytes / 4 ? settings->work_bytes : free_bytes / 4;
  out->bytes = vmp_align_down(most, granule);
  if (out->bytes == 0) out->bytes = granule;
  code = probe_reserve(rig, &out->ptr, out->bytes + extra, 0);
  if (code == VMP_CU_SUCCESS) code = probe_chunk(rig, out->ptr, out->bytes, &out->handle);
  return code == VMP_CU_SUCCESS ? calibrate(rig, settings, out) : code;
}
