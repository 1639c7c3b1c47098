// Contradictions within a snapshot, and within a log.
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <string.h>

#include "tools/log/log_state.h"
#include "tools/trace/id_map.h"
#include "tools/vmpool/views.h"

// ---- snapshots ----

typedef struct checking {
  FILE *out;
  uint64_t faults;
} checking;

static void fault(checking *c, const char *format, ...) VMP_PRINTF(2, 3);
static void fault(checking *c, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vfprintf(c->out, format, args);
  va_end(args);
  fputc('\n', c->out);
  c->faults++;
}

static void expect_equal(checking *c, const char *what, uint64_t found, uint64_t said) {
  if (found != said) fault(c, "%s: the tables hold %" PRIu64 ", the statistics say %" PRIu64, what, found, said);
}

typedef struct table_sums {
  uint64_t blocks, live, requested, mapped, parked, broken, reserved;
} table_sums;

static bool holds_memory(snapshot_state state) { return state != SNAPSHOT_UNMAPPED && state != SNAPSHOT_IN_TRANSIT; }

// find_away fills in the tags whose blocks may lack memory: suspended ones, and those on their way.
static bool find_away(const snapshot *s, id_map *out) {
  const json_t *row;
  size_t i;
  if (s->suspended == 0) return true;
  json_array_foreach(json_object_get(s->document, "tag_sums"), i, row) {
    const char *state = json_string_value(json_object_get(row, "state"));
    const json_int_t tag = json_integer_value(json_object_get(row, "tag"));
    if (state == NULL || strcmp(state, "resident") == 0 || tag <= 0) continue;
    if (!id_map_put(out, (uint64_t)tag, 1)) return false;
  }
  return true;
}

// check_backed: every byte of every block lies on slots that have a chunk.
static void check_backed(checking *c, const id_map *away, const snapshot_range *range) {
  size_t run = 0;
  for (size_t i = 0; i < range->num_blocks; i++) {
    const snapshot_block *block = &range->blocks[i];
    uint64_t at = block->offset, end = block->offset + block->bytes;
    while (run < range->num_runs && range->runs[run].offset + range->runs[run].bytes <= at) run++;
    if (id_map_find(away, block->tag) != NULL) continue;
    for (size_t k = run; at < end; k++) {
      if (k == range->num_runs || range->runs[k].offset > at || !holds_memory(range->runs[k].state)) {
        fault(c, "the block at 0x%" PRIx64 " lies on addresses that have no memory", range->base + block->offset);
        break;
      }
      at = range->runs[k].offset + range->runs[k].bytes;
    }
  }
}

static void sum_range(checking *c, const snapshot_range *range, table_sums *sums) {
  sums->reserved += range->bytes;
  for (size_t i = 0; i < range->num_blocks; i++) {
    const snapshot_block *block = &range->blocks[i];
    sums->blocks += block->layer != SNAPSHOT_REGION;
    if (block->layer != SNAPSHOT_REGION) {
      sums->live += block->bytes;
      sums->requested += block->requested_bytes;
    }
    if (block->requested_bytes > block->bytes) {
      fault(c, "the block at 0x%" PRIx64 " holds less than was asked for", range->base + block->offset);
    }
  }
  for (size_t i = 0; i < range->num_runs; i++) {
    const snapshot_run *run = &range->runs[i];
    if (run->state == SNAPSHOT_MAPPED || run->state == SNAPSHOT_PARKED) sums->mapped += run->bytes;
    if (run->state == SNAPSHOT_PARKED) sums->parked += run->bytes;
  }
}

// check_spans: a span has no more used objects than it has, and they fit.
static void check_spans(checking *c, const snapshot *s) {
  const json_t *range, *row;
  size_t r, i;
  json_array_foreach(json_object_get(s->document, "ranges"), r, range) {
    json_array_foreach(json_object_get(range, "spans"), i, row) {
      const json_int_t bytes = json_integer_value(json_array_get(row, 1));
      const json_int_t object = json_integer_value(json_array_get(row, 2));
      const json_int_t objects = json_integer_value(json_array_get(row, 3));
      const json_int_t used = json_integer_value(json_array_get(row, 4));
      const bool possible = object > 0 && objects > 0 && used >= 0 && used <= objects && bytes / objects >= object;
      if (!possible) fault(c, "ranges[%zu].spans[%zu] can't be: its objects don't fit it", r, i);
    }
  }
}

// check_mapped: a chunk that is mapped at several addresses counts once. (While chunks are on their way, or broken, the
// rows don't tell which are counted.)
static void check_mapped(checking *c, const snapshot *s) {
  id_map chunks = {0};
  const json_t *range, *row;
  size_t r, i;
  uint64_t mapped = 0;
  bool whole = s->broken == 0;
  json_array_foreach(json_object_get(s->document, "ranges"), r, range) {
    json_array_foreach(json_object_get(range, "chunks"), i, row) {
      const char *state = json_string_value(json_array_get(row, 2));
      const uint64_t chunk = (uint64_t)json_integer_value(json_array_get(row, 3));
      if (state == NULL || strcmp(state, "in_transit") == 0) whole = false;
      if (state == NULL || (strcmp(state, "mapped") != 0 && strcmp(state, "parked") != 0)) continue;
      if (id_map_find(&chunks, chunk) != NULL) continue;
      whole = id_map_put(&chunks, chunk, 1) && whole;
      mapped += (uint64_t)json_integer_value(json_array_get(row, 1));
    }
  }
  id_map_destroy(&chunks);
  if (whole && mapped > 0) expect_equal(c, "mapped", mapped, s->mapped);
}

uint64_t view_check_snapshot(FILE *out, const snapshot *s) {
  checking c = {.out = out};
  table_sums sums = {0};
  uint64_t last_end = 0;
  id_map away = {0};
  const bool known = find_away(s, &away);
  for (size_t r = 0; r < s->num_ranges; r++) {
    const snapshot_range *range = &s->ranges[r];
    if (range->base < last_end) fault(&c, "ranges[%zu] overlaps the one before", r);
    last_end = range->base + range->bytes;
    sum_range(&c, range, &sums);
    if (known) check_backed(&c, &away, range);
  }
  id_map_destroy(&away);
  check_spans(&c, s);
  check_mapped(&c, s);
  expect_equal(&c, "reserved_va", sums.reserved, s->reserved_va);
  expect_equal(&c, "live", sums.live, s->live);
  expect_equal(&c, "requested", sums.requested, s->requested);
  if (snapshot_number(s, "stats", "blocks") > 0) {
    expect_equal(&c, "blocks", sums.blocks, snapshot_number(s, "stats", "blocks"));
  }
  if (s->suspended > s->live) fault(&c, "more bytes are suspended than are live");
  if (snapshot_live_in_memory(s) > s->mapped && s->regions == 0) fault(&c, "more bytes are live than are mapped");
  if (s->requested > s->live) fault(&c, "more bytes were asked for than are live");
  if (s->pending > s->parked) fault(&c, "more bytes are pending than are parked");
  return c.faults;
}

// ---- logs ----

typedef struct log_check {
  checking c;
  const log_file *log;
  log_state state;
  bool begun;
  uint64_t last_ns;
} log_check;

// take_keyframe reads the keyframe at *s and compares it with the state; *s becomes its last record. False: host
// memory.
static bool take_keyframe(log_check *k, uint64_t *s, const vmp_log_record *first) {
  log_state key = {0};
  vmp_log_record record;
  tool_error difference = {{0}};
  const uint64_t at = *s, count = first->as.event.extra;
  if (count > k->log->end - at - 1) return true;  // the log ends within it
  bool good = true;
  for (uint64_t i = 1; i <= count && good; i++) {
    if (!log_record(k->log, at + i, &record) || (record.flags & VMP_LOG_STATE) == 0) {
      fault(&k->c, "the keyframe at record %" PRIu64 " is not whole", at);
      log_state_destroy(&key);
      return true;
    }
    good = log_state_apply(&key, &record);
  }
  *s = at + count;
  if (good && k->begun && !log_state_equal(&k->state, &key, &difference)) {
    fault(&k->c, "the keyframe at record %" PRIu64 " differs from what the records before it lead to: %s", at,
          difference.text);
  }
  const uint64_t faults = k->state.faults;
  const tool_error text = k->state.first_fault;
  log_state_destroy(&k->state);
  k->state = key;
  k->state.faults += faults;
  if (faults > 0) k->state.first_fault = text;
  k->begun = true;
  return good;
}

static bool check_records(log_check *k) {
  vmp_log_record record;
  for (uint64_t s = k->log->first; s < k->log->end; s++) {
    if (!log_record(k->log, s, &record)) {
      k->begun = false;  // a gap: nothing is known until the next keyframe
      continue;
    }
    if (record.time_ns < k->last_ns) fault(&k->c, "record %" PRIu64 " is earlier than the one before it", s);
    k->last_ns = record.time_ns;
    if (record.kind == VMP_LOG_KEYFRAME) {
      if (!take_keyframe(k, &s, &record)) return false;
    } else if (k->begun && (record.flags & VMP_LOG_STATE) == 0 && !log_state_apply(&k->state, &record)) {
      return false;
    }
    if (k->c.faults > 100) return true;  // enough to see
  }
  return true;
}

uint64_t view_check_log(FILE *out, const log_file *log) {
  log_check k = {.c = {.out = out}, .log = log};
  const bool good = check_records(&k);
  if (good && k.state.faults > 0) {
    fprintf(out, "%s\n", k.state.first_fault.text);
    if (k.state.faults > 1) fprintf(out, "and %" PRIu64 " more records don't fit\n", k.state.faults - 1);
  }
  if (good && log->missing > 0) fprintf(out, "%" PRIu64 " records are missing or torn\n", log->missing);
  const uint64_t faults = k.c.faults + k.state.faults + log->missing;
  log_state_destroy(&k.state);
  return good ? faults : UINT64_MAX;
}
