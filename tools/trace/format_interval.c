// Intervals: `id,lower,upper,size` (minimalloc, idealloc), and the same without ids and commas as `lower upper size`
// (allocatorSim). A block is live from step `lower` up to, but not including, step `upper`; so at equal steps the frees
// come first, and otherwise rows keep the file's order.
#include <stdlib.h>

#include "tools/trace/formats.h"

// boundary: one end of a row's interval.
typedef struct boundary {
  uint64_t step;
  uint32_t row;
  uint32_t is_alloc;
} boundary;

typedef struct intervals {
  boundary *ends;
  uint64_t *bytes;  // by row
  size_t rows, capacity;
} intervals;

static bool grow(intervals *v) {
  if (v->rows < v->capacity) return true;
  const size_t capacity = v->capacity == 0 ? 512 : v->capacity * 2;
  boundary *ends = reallocarray(v->ends, capacity, 2 * sizeof(*ends));
  if (ends == NULL) return false;
  v->ends = ends;
  uint64_t *bytes = reallocarray(v->bytes, capacity, sizeof(*bytes));
  if (bytes == NULL) return false;
  v->bytes = bytes;
  v->capacity = capacity;
  return true;
}

static bool add_row(reading *r, intervals *v, const text_span fields[3]) {
  uint64_t lower, upper, bytes;
  if (!input_number(r->in, "lower", fields[0], &lower) || !input_number(r->in, "upper", fields[1], &upper) ||
      !input_size(r->in, "size", fields[2], &bytes)) {
    return false;
  }
  if (upper <= lower) return input_fail_field(r->in, "upper", fields[1], "must be above lower");
  if (v->rows == UINT32_MAX || !grow(v)) return reading_memory(r);
  const uint32_t row = (uint32_t)v->rows++;
  v->ends[2 * (size_t)row] = (boundary){.step = lower, .row = row, .is_alloc = 1};
  v->ends[2 * (size_t)row + 1] = (boundary){.step = upper, .row = row, .is_alloc = 0};
  v->bytes[row] = bytes;
  return true;
}

static int by_step(const void *left, const void *right) {
  const boundary *a = left, *b = right;
  if (a->step != b->step) return a->step < b->step ? -1 : 1;
  if (a->is_alloc != b->is_alloc) return a->is_alloc ? 1 : -1;
  return a->row < b->row ? -1 : a->row > b->row;
}

static bool emit(reading *r, intervals *v) {
  uint32_t *blocks = reallocarray(NULL, v->rows + 1, sizeof(*blocks));
  if (blocks == NULL) return reading_memory(r);
  if (v->rows > 0) qsort(v->ends, 2 * v->rows, sizeof(v->ends[0]), by_step);
  for (size_t i = 0; i < 2 * v->rows; i++) {
    const boundary *end = &v->ends[i];
    if (end->is_alloc) {
      blocks[end->row] = trace_list_alloc(r->list, v->bytes[end->row], 0, TRACE_NO_TIME);
    } else {
      trace_list_free(r->list, blocks[end->row], TRACE_NO_TIME);
    }
  }
  free(blocks);
  return true;
}

static bool finish(reading *r, intervals *v, bool good) {
  good = good && emit(r, v);
  free(v->ends);
  free(v->bytes);
  return good;
}

bool read_interval_csv(reading *r) {
  intervals v = {0};
  text_span fields[4];
  bool good = input_next_line(r->in);  // the header
  while (good && input_next_line(r->in)) {
    good = reading_fields(r, fields, 4, "id,lower,upper,size") && add_row(r, &v, fields + 1);
  }
  return finish(r, &v, good);
}

bool read_interval_log(reading *r) {
  intervals v = {0};
  text_span fields[3];
  bool good = true;
  while (good && input_next_line(r->in)) {
    if (input_split(r->in, ' ', fields, 3) != 3) {
      good = input_fail(r->in, "a row has the three fields lower, upper and size");
    } else {
      good = add_row(r, &v, fields);
    }
  }
  return finish(r, &v, good);
}
