// Timeline: `t_ns,action,bytes,category` (torch.profiler's memory timeline). Action 1 is a tensor that existed before,
// 2 creates one, 4 destroys one (bytes are then negative), 3 only moves bytes between categories. A destroy names no
// tensor: it ends one of its size that the trace created, else one that existed before.
#include "tools/trace/formats.h"
#include "tools/trace/size_stacks.h"

#define COLUMNS "t_ns,action,bytes,category"
enum { EXISTED = 1, CREATE = 2, NEW_VERSION = 3, DESTROY = 4 };

typedef struct timeline {
  size_stacks existed, created;
} timeline;

static bool read_destroy(reading *r, timeline *t, uint64_t bytes, int64_t t_us, text_span field) {
  uint32_t block;
  if (!size_stacks_take(&t->created, bytes, r->options->pairing, &block) &&
      !size_stacks_take(&t->existed, bytes, r->options->pairing, &block)) {
    return reading_unmatched(r, "bytes", field);
  }
  trace_list_free(r->list, block, t_us);
  return true;
}

static bool read_row(reading *r, timeline *t) {
  text_span fields[4];
  int64_t t_ns, bytes;
  uint64_t action, category;
  if (!reading_fields(r, fields, 4, COLUMNS) || !input_time(r->in, "t_ns", fields[0], true, &t_ns) ||
      !input_number(r->in, "action", fields[1], &action) || !input_signed(r->in, "bytes", fields[2], &bytes) ||
      !input_number(r->in, "category", fields[3], &category)) {
    return false;
  }
  if (action < EXISTED || action > DESTROY) return input_fail_field(r->in, "action", fields[1], "is not 1, 2, 3 or 4");
  if (action == NEW_VERSION) return true;
  if (action == DESTROY ? bytes > 0 : bytes < 0) {
    return input_fail_field(r->in, "bytes", fields[2], "has the wrong sign for action %s",
                            action == DESTROY  ? "4, a destroy"
                            : action == CREATE ? "2, a create"
                                               : "1");
  }
  const int64_t t_us = t_ns < 0 ? TRACE_NO_TIME : t_ns / 1000;
  if (action == DESTROY) return read_destroy(r, t, (uint64_t)-bytes, t_us, fields[2]);
  const uint32_t block = trace_list_alloc(r->list, (uint64_t)bytes, 0, t_us);
  return size_stacks_push(action == CREATE ? &t->created : &t->existed, (uint64_t)bytes, block) || reading_memory(r);
}

bool read_timeline(reading *r) {
  timeline t = {0};
  bool good = input_next_line(r->in);  // the header
  while (good && input_next_line(r->in)) good = read_row(r, &t);
  size_stacks_destroy(&t.created);
  size_stacks_destroy(&t.existed);
  return good;
}
