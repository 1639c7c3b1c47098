#include "tools/log/log_walk.h"

bool log_kind_is_stretch(unsigned kind) {
  return kind == VMP_LOG_ALLOC || kind == VMP_LOG_FREE || (kind >= VMP_LOG_MAP && kind <= VMP_LOG_UNMAP) ||
         kind == VMP_LOG_SHARE;
}

bool log_kind_has_place(unsigned kind) {
  return log_kind_is_stretch(kind) || kind == VMP_LOG_USE || kind == VMP_LOG_MOVED;
}

static bool is_event(unsigned kind) {
  return kind == VMP_LOG_SAMPLE || (kind >= VMP_LOG_ALLOC && kind <= VMP_LOG_MOVED) ||
         (kind >= VMP_LOG_MAP && kind <= VMP_LOG_RELEASE) || kind == VMP_LOG_SHARE ||
         (kind >= VMP_LOG_STEP && kind <= VMP_LOG_RESUME);
}

log_walk log_walk_begin(const log_file *log, uint64_t end) {
  log_walk walk = {.log = log, .next = log->first, .end = end < log->end ? end : log->end};
  vmp_log_record record;
  for (uint64_t s = log->first; s < walk.end; s++) {
    if (!log_record(log, s, &record) || record.kind != VMP_LOG_KEYFRAME) continue;
    if (record.as.event.extra > log->end - s - 1) continue;  // not whole
    walk.next = s + 1;
    walk.states_end = s + 1 + record.as.event.extra;
    break;
  }
  return walk;
}

bool log_walk_next(log_walk *walk, vmp_log_record *out, bool *out_initial) {
  if (walk->has_pending) {
    walk->has_pending = false;
    *out = walk->pending;
    *out_initial = true;
    return true;
  }
  while (walk->next < walk->end) {
    const uint64_t sequence = walk->next++;
    if (!log_record(walk->log, sequence, out)) continue;
    const bool state = (out->flags & VMP_LOG_STATE) != 0;
    if (!is_event(out->kind) || (state && sequence >= walk->states_end)) continue;
    *out_initial = state;
    if (state && out->kind == VMP_LOG_RETIRE) {
      walk->pending = *out;
      walk->has_pending = true;
      out->kind = VMP_LOG_MAP;
    }
    return true;
  }
  return false;
}
