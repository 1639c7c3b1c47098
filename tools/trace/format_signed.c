// Signed events: `t_us,thread,bytes` (PyTorch profiles). Positive bytes allocate; negative bytes free a live block of
// exactly that size, the newest or the oldest one. Both threads use one compute stream: autograd allocates for it too.
#include "tools/trace/formats.h"
#include "tools/trace/size_stacks.h"

#define COLUMNS "t_us,thread,bytes"

static bool read_row(reading *r, size_stacks *live) {
  text_span fields[3];
  int64_t t_us, bytes;
  uint64_t thread;
  if (!reading_fields(r, fields, 3, COLUMNS) || !input_time(r->in, "t_us", fields[0], false, &t_us) ||
      !input_number(r->in, "thread", fields[1], &thread) || !input_signed(r->in, "bytes", fields[2], &bytes)) {
    return false;
  }
  if (bytes == 0)
    return input_fail_field(r->in, "bytes", fields[2], "is neither an allocation (above 0) nor a free (below 0)");
  uint32_t block;
  if (bytes > 0) {
    block = trace_list_alloc(r->list, (uint64_t)bytes, 0, t_us);
    return size_stacks_push(live, (uint64_t)bytes, block) || reading_memory(r);
  }
  if (!size_stacks_take(live, (uint64_t)-bytes, r->options->pairing, &block)) {
    return reading_unmatched(r, "bytes", fields[2]);
  }
  trace_list_free(r->list, block, t_us);
  return true;
}

bool read_signed(reading *r) {
  size_stacks live = {0};
  bool good = input_next_line(r->in);  // the header
  while (good && input_next_line(r->in)) good = read_row(r, &live);
  size_stacks_destroy(&live);
  return good;
}
