// RMM log: `Thread,Time,Action,Pointer,Size,Stream`, actions allocate, allocate failure, free (and deallocate). A
// pointer is a block from its allocate to its free; failures are skipped. All threads replay as one, in the log's
// order.
#include "tools/trace/formats.h"

#define COLUMNS "Thread,Time,Action,Pointer,Size,Stream"

static bool read_stream(reading *r, text_span field, uint16_t *out_stream) {
  uint64_t stream = 0;
  if (!span_is(field, "(nil)") && !input_address(r->in, "Stream", field, &stream)) return false;
  return reading_stream(r, stream, out_stream);
}

static bool read_row(reading *r, id_map *live) {
  text_span f[6];
  if (!reading_fields(r, f, 6, COLUMNS)) return false;
  const bool is_alloc = span_is(f[2], "allocate");
  if (span_is(f[2], "allocate failure")) return true;
  if (!is_alloc && !span_is(f[2], "free") && !span_is(f[2], "deallocate")) {
    return input_fail_field(r->in, "Action", f[2], "is not allocate, allocate failure, free or deallocate");
  }
  uint64_t pointer, bytes;
  uint16_t stream;
  if (!input_address(r->in, "Pointer", f[3], &pointer) || !input_size(r->in, "Size", f[4], &bytes) ||
      !read_stream(r, f[5], &stream)) {
    return false;
  }
  const uint32_t *block = id_map_find(live, pointer);
  if (is_alloc) {
    if (block != NULL) return input_fail_field(r->in, "Pointer", f[3], "is live already");
    return id_map_put(live, pointer, trace_list_alloc(r->list, bytes, stream, TRACE_NO_TIME)) || reading_memory(r);
  }
  if (block == NULL) return reading_unmatched(r, "Pointer", f[3]);
  trace_list_free_on(r->list, *block, stream, TRACE_NO_TIME);
  id_map_erase(live, pointer);
  return true;
}

bool read_rmm(reading *r) {
  id_map live = {0};
  bool good = input_next_line(r->in);  // the header
  while (good && input_next_line(r->in)) good = read_row(r, &live);
  id_map_destroy(&live);
  return good;
}
