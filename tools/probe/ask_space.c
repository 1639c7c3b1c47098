// ask_space.c: questions 3 to 6: what the driver does where mappings and addresses don't fit together.
#include "tools/probe/asking.h"

enum { MARK = 0x5A };

static int write_mark(probe_rig *rig, vmp_cu_ptr ptr) {
  const int code = PROBE_CALL(rig, memset_d8, ptr, MARK, 1);
  if (code != VMP_CU_SUCCESS) return code;
  probe_calling(rig, VMP_CALL_ctx_synchronize);
  return probe_called(rig, vmp_drv_ctx_synchronize(rig->driver));
}

// ---- 3 ----

void probe_ask_free_while_mapped(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  (void)settings;
  const uint64_t granule = rig->device.granule_bytes;
  vmp_cu_ptr ptr = 0;
  vmp_cu_handle handle = 0;
  unsigned long long flags = 0;
  if (!probe_worked(answer, rig, probe_reserve(rig, &ptr, granule, 0))) return;
  if (!probe_worked(answer, rig, probe_chunk(rig, ptr, granule, &handle))) return;
  const int code = probe_free(rig, ptr, granule);
  const int rights = probe_rights(rig, ptr, &flags);
  if (code != VMP_CU_SUCCESS) {
    probe_conclude(answer, "refused with %s, the mapping %s", probe_code(code).text,
                   rights == VMP_CU_SUCCESS ? "stays" : "is gone");
  } else {
    probe_conclude(answer, "accepted, the mapping %s", rights == VMP_CU_SUCCESS ? "stays" : "is gone");
  }
  probe_say(answer, "cuMemGetAccess gives %s afterwards", probe_code(rights).text);
  if (rights == VMP_CU_SUCCESS) probe_say(answer, "rights %llu", flags);
  const int unmap = probe_unmap(rig, ptr, granule);
  probe_say(answer, "cuMemUnmap gives %s", probe_code(unmap).text);
  if (rights != VMP_CU_SUCCESS) probe_doubt(rig, ptr, granule);
}

// ---- 4 ----

static void say_what_is_there(probe_rig *rig, probe_answer *answer, vmp_cu_ptr ptr, vmp_cu_handle second) {
  vmp_cu_handle there = 0;
  const int code = PROBE_CALL(rig, mem_retain_allocation_handle, &there, (void *)(uintptr_t)ptr);
  if (code != VMP_CU_SUCCESS) {
    probe_say(answer, "cuMemRetainAllocationHandle gives %s", probe_code(code).text);
    return;
  }
  probe_say(answer, "the %s handle is at the address", there == second ? "second" : "first");
  const int release = PROBE_CALL(rig, mem_release, there);
  if (release != VMP_CU_SUCCESS) probe_adopt(rig, there);
}

void probe_ask_map_over_mapped(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  (void)settings;
  const uint64_t granule = rig->device.granule_bytes;
  vmp_cu_ptr ptr = 0;
  vmp_cu_handle first = 0, second = 0;
  unsigned char byte = 0;
  if (!probe_worked(answer, rig, probe_reserve(rig, &ptr, granule, 0))) return;
  if (!probe_worked(answer, rig, probe_chunk(rig, ptr, granule, &first))) return;
  if (!probe_worked(answer, rig, probe_create_plain(rig, &second, granule))) return;
  if (!probe_worked(answer, rig, write_mark(rig, ptr))) return;
  const int code = probe_map(rig, ptr, granule, 0, second);
  if (code == VMP_CU_SUCCESS) {
    probe_conclude(answer, "accepted");
    say_what_is_there(rig, answer, ptr, second);
    return;
  }
  const int read = PROBE_CALL(rig, memcpy_dtoh, &byte, ptr, 1);
  const bool intact = read == VMP_CU_SUCCESS && byte == MARK;
  probe_conclude(answer, "refused with %s, the first mapping is %s", probe_code(code).text,
                 intact ? "intact" : "damaged");
  probe_say(answer, "reading through it gives %s", probe_code(read).text);
  if (read == VMP_CU_SUCCESS) probe_say(answer, "it holds %#x, written was %#x", byte, MARK);
  say_what_is_there(rig, answer, ptr, second);
}

// ---- 5 ----

void probe_ask_partial_map(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  (void)settings;
  const uint64_t granule = rig->device.granule_bytes;
  vmp_cu_ptr ptr = 0;
  vmp_cu_handle handle = 0;
  if (!probe_worked(answer, rig, probe_reserve(rig, &ptr, 2 * granule, 0))) return;
  if (!probe_worked(answer, rig, probe_create_plain(rig, &handle, 2 * granule))) return;
  const int front = probe_map(rig, ptr, granule, 0, handle);
  if (front == VMP_CU_SUCCESS)
    probe_say(answer, "rights for the front: %s",
              probe_code(probe_grant(rig, ptr, granule, VMP_CU_ACCESS_READWRITE)).text);
  if (front == VMP_CU_SUCCESS)
    probe_say(answer, "unmap of the front: %s", probe_code(probe_unmap(rig, ptr, granule)).text);
  const int back = probe_map(rig, ptr + granule, granule, granule, handle);
  if (back == VMP_CU_SUCCESS)
    probe_say(answer, "unmap of the back: %s", probe_code(probe_unmap(rig, ptr + granule, granule)).text);
  probe_conclude(
      answer, "the front: %s%s; the back, at an offset: %s%s", front == VMP_CU_SUCCESS ? "accepted" : "refused with ",
      front == VMP_CU_SUCCESS ? "" : probe_code(front).text, back == VMP_CU_SUCCESS ? "accepted" : "refused with ",
      back == VMP_CU_SUCCESS ? "" : probe_code(back).text);
  probe_say(answer, "one granule of a handle of two");
}

// ---- 6 ----

void probe_ask_hole_unmap(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  (void)settings;
  const uint64_t granule = rig->device.granule_bytes;
  vmp_cu_ptr ptr = 0;
  vmp_cu_handle handle = 0;
  unsigned long long flags = 0;
  if (!probe_worked(answer, rig, probe_reserve(rig, &ptr, 3 * granule, 0))) return;
  if (!probe_worked(answer, rig, probe_chunk(rig, ptr, granule, &handle))) return;
  if (!probe_worked(answer, rig, probe_chunk(rig, ptr + 2 * granule, granule, &handle))) return;
  const int code = PROBE_CALL(rig, mem_unmap, ptr, 3 * granule);
  const int before = probe_rights(rig, ptr, &flags), behind = probe_rights(rig, ptr + 2 * granule, &flags);
  if (before != VMP_CU_SUCCESS) probe_doubt(rig, ptr, granule);
  if (behind != VMP_CU_SUCCESS) probe_doubt(rig, ptr + 2 * granule, granule);
  const char *what = before == VMP_CU_SUCCESS && behind == VMP_CU_SUCCESS ? "nothing was unmapped"
                     : before == VMP_CU_SUCCESS                           ? "what is behind the hole was unmapped"
                     : behind == VMP_CU_SUCCESS                           ? "what is before the hole was unmapped"
                                                                          : "both sides were unmapped";
  if (code == VMP_CU_SUCCESS) {
    probe_conclude(answer, "accepted, %s", what);
  } else {
    probe_conclude(answer, "refused with %s, %s", probe_code(code).text, what);
  }
  probe_say(answer, "cuMemGetAccess before the hole gives %s, behind it %s", probe_code(before).text,
            probe_code(behind).text);
}
