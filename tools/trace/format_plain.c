// Plain: `alloc <id> <size> <stream> [t_us]`, `free <id> [stream] [t_us]`, comments after '#'.
#include "tools/trace/formats.h"

typedef struct plain {
  reading *r;
  id_map live;  // id -> block
} plain;

static bool read_alloc(plain *p, const text_span *fields, size_t count) {
  reading *r = p->r;
  if (count < 4 || count > 5) {
    return input_fail(r->in, "%s",
                      count < 4 ? "a field is missing: alloc takes an id, a size, a stream and, if known, a time in us"
                                : "too many fields: alloc takes an id, a size, a stream and, if known, a time in us");
  }
  uint64_t id, bytes, stream;
  uint16_t dense;
  int64_t t_us = TRACE_NO_TIME;
  if (!input_number(r->in, "id", fields[1], &id) || !input_size(r->in, "size", fields[2], &bytes) ||
      !input_number(r->in, "stream", fields[3], &stream) ||
      (count == 5 && !input_time(r->in, "t_us", fields[4], false, &t_us))) {
    return false;
  }
  if (!reading_stream(r, stream, &dense)) return false;
  if (id_map_find(&p->live, id) != NULL) return input_fail_field(r->in, "id", fields[1], "is live already");
  const uint32_t block = trace_list_alloc(r->list, bytes, dense, t_us);
  return id_map_put(&p->live, id, block) || reading_memory(r);
}

static bool read_free(plain *p, const text_span *fields, size_t count) {
  reading *r = p->r;
  if (count < 2)
    return input_fail(r->in, "a field is missing: free takes an id and, if known, a stream and a time in us");
  if (count > 4) return input_fail(r->in, "too many fields: free takes an id and, if known, a stream and a time in us");
  uint64_t id, stream = 0;
  uint16_t dense = 0;
  int64_t t_us = TRACE_NO_TIME;
  if (!input_number(r->in, "id", fields[1], &id) ||
      (count >= 3 && !input_number(r->in, "stream", fields[2], &stream)) ||
      (count == 4 && !input_time(r->in, "t_us", fields[3], false, &t_us)) || !reading_stream(r, stream, &dense)) {
    return false;
  }
  const uint32_t *block = id_map_find(&p->live, id);
  if (block == NULL) return reading_unmatched(r, "id", fields[1]);
  if (count >= 3) {
    trace_list_free_on(r->list, *block, dense, t_us);
  } else {
    trace_list_free(r->list, *block, t_us);
  }
  id_map_erase(&p->live, id);
  return true;
}

static bool read_line(plain *p) {
  input *in = p->r->in;
  for (size_t i = 0; i < in->line.length; i++) {
    if (in->line.text[i] == '#') in->line.length = i;
  }
  text_span fields[6];
  const size_t count = input_split(in, ' ', fields, 6);
  if (count == 0) return true;
  if (span_is(fields[0], "alloc")) return read_alloc(p, fields, count);
  if (span_is(fields[0], "free")) return read_free(p, fields, count);
  return input_fail_field(in, "operation", fields[0], "is neither alloc nor free");
}

bool read_plain(reading *r) {
  plain p = {.r = r};
  bool good = true;
  while (good && input_next_line(r->in)) good = read_line(&p);
  id_map_destroy(&p.live);
  return good;
}
