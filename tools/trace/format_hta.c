// HTA allocator events: `t_us,thread,op,id,bytes,rel_addr,total_allocated`, op a (alloc) or f (free), matched by id.
// One compute stream, though two threads allocate. The running total is checked only where a cut file could not be told
// otherwise: in a last line without a line end.
#include "tools/trace/formats.h"

#define COLUMNS "t_us,thread,op,id,bytes,rel_addr,total_allocated"

typedef struct hta {
  id_map live;  // id -> block
  bool have_total;
  uint64_t total;
} hta;

typedef struct hta_row {
  text_span fields[7];
  int64_t t_us;
  uint64_t id, bytes, total;
  bool is_alloc;
} hta_row;

static bool read_fields(reading *r, hta_row *out) {
  uint64_t thread, address;
  const text_span *f = out->fields;
  if (!reading_fields(r, out->fields, 7, COLUMNS) || !input_time(r->in, "t_us", f[0], false, &out->t_us) ||
      !input_number(r->in, "thread", f[1], &thread)) {
    return false;
  }
  out->is_alloc = span_is(f[2], "a");
  if (!out->is_alloc && !span_is(f[2], "f")) return input_fail_field(r->in, "op", f[2], "is neither a nor f");
  return input_number(r->in, "id", f[3], &out->id) && input_size(r->in, "bytes", f[4], &out->bytes) &&
         input_number(r->in, "rel_addr", f[5], &address) && input_number(r->in, "total_allocated", f[6], &out->total);
}

static bool check_total(reading *r, const hta *h, const hta_row *row) {
  const uint64_t expected = row->is_alloc ? h->total + row->bytes : h->total - row->bytes;
  if (r->in->line_ended || !h->have_total || row->total == expected) return true;
  return input_fail_field(r->in, "total_allocated", row->fields[6],
                          "does not follow from the line before, and the line has no end; the file looks cut");
}

static bool read_row(reading *r, hta *h) {
  hta_row row;
  if (!read_fields(r, &row) || !check_total(r, h, &row)) return false;
  h->have_total = true;
  h->total = row.total;
  const uint32_t *block = id_map_find(&h->live, row.id);
  if (row.is_alloc) {
    if (block != NULL) return input_fail_field(r->in, "id", row.fields[3], "is live already");
    return id_map_put(&h->live, row.id, trace_list_alloc(r->list, row.bytes, 0, row.t_us)) || reading_memory(r);
  }
  if (block == NULL) return reading_unmatched(r, "id", row.fields[3]);
  if (r->list->block_bytes[*block] != row.bytes) {
    return input_fail_field(r->in, "bytes", row.fields[4], "differs from the allocation of that id");
  }
  trace_list_free(r->list, *block, row.t_us);
  id_map_erase(&h->live, row.id);
  return true;
}

bool read_hta(reading *r) {
  hta h = {0};
  bool good = input_next_line(r->in);  // the header
  while (good && !r->list->failed && input_next_line(r->in)) good = read_row(r, &h);
  id_map_destroy(&h.live);
  return good;
}
