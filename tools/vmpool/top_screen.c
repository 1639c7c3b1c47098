#include "tools/vmpool/top_screen.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/number.h"

#define LINE_BYTES 512u
#define FIRST_ROW 3u
#define FOOT_ROWS 6u  // below the rows: a blank, title, bar, legend, map, message

static const char *const order_names[] = {"mapped", "live", "process", "name"};

// ---- reading ----

static uint64_t mapped_of(const top_row *row) { return row->copy == NULL ? 0 : row->copy->stats.mapped; }
static uint64_t live_of(const top_row *row) { return row->copy == NULL ? 0 : row->copy->stats.live; }

static int larger_first(uint64_t a, uint64_t b) { return a < b ? 1 : a > b ? -1 : 0; }

static int compare_rows(const void *a, const void *b, void *context) {
  const top_row *x = a, *y = b;
  int result = 0;
  switch (*(const top_order *)context) {
    case TOP_BY_MAPPED: result = larger_first(mapped_of(x), mapped_of(y)); break;
    case TOP_BY_LIVE: result = larger_first(live_of(x), live_of(y)); break;
    case TOP_BY_NAME: result = strcmp(x->pool.header.pool_name, y->pool.header.pool_name); break;
    case TOP_BY_PROCESS:
      result = x->pool.header.process < y->pool.header.process ? -1 : x->pool.header.process > y->pool.header.process;
      break;
    case TOP_NUM_ORDERS: break;
  }
  return result != 0 ? result : strcmp(x->pool.object, y->pool.object);
}

static void free_rows(top_row *rows, size_t count) {
  for (size_t i = 0; i < count; i++) free(rows[i].copy);
  free(rows);
}

static const top_row *row_of(const top_screen *s, const char *object) {
  for (size_t i = 0; i < s->num_rows; i++) {
    if (strcmp(s->rows[i].pool.object, object) == 0) return &s->rows[i];
  }
  return NULL;
}

// rate: allocations a second since the last look.
static double rate(const top_row *before, const top_row *now) {
  if (before == NULL || before->copy == NULL || now->copy == NULL) return 0;
  if (now->copy->time_ns <= before->copy->time_ns) return before->allocs_per_s;
  const double seconds = (double)(now->copy->time_ns - before->copy->time_ns) / 1e9;
  const uint64_t a = before->copy->stats.allocs, b = now->copy->stats.allocs;
  return b > a ? (double)(b - a) / seconds : 0;
}

bool top_look_again(top_screen *s, tool_error *error) {
  live_pool *list = NULL;
  size_t count = 0;
  tool_error ignored;
  if (!live_list(s->folder, &list, &count, error)) return false;
  top_row *rows = calloc(count + 1, sizeof(*rows));
  if (rows == NULL) {
    free(list);
    return tool_fail(error, "host memory ran out");
  }
  for (size_t i = 0; i < count; i++) {
    rows[i].pool = list[i];
    if (!live_read(s->folder, &list[i], &rows[i].copy, &ignored)) rows[i].copy = NULL;
    rows[i].allocs_per_s = rate(row_of(s, list[i].object), &rows[i]);
  }
  free(list);
  qsort_r(rows, count, sizeof(*rows), compare_rows, &s->order);
  free_rows(s->rows, s->num_rows);
  s->rows = rows;
  s->num_rows = count;
  return true;
}

void top_close(top_screen *s) {
  free_rows(s->rows, s->num_rows);
  s->rows = NULL;
  s->num_rows = 0;
}

// ---- keys ----

// chosen_index: the first one where the chosen pool has ended.
static size_t chosen_index(const top_screen *s) {
  for (size_t i = 0; i < s->num_rows; i++) {
    if (strcmp(s->rows[i].pool.object, s->chosen) == 0) return i;
  }
  return 0;
}

static void choose(top_screen *s, size_t index) {
  if (index < s->num_rows) snprintf(s->chosen, sizeof(s->chosen), "%s", s->rows[index].pool.object);
}

static const char *verb(top_key key) { return key == TOP_TRIM ? "trim" : "defragment"; }

static void request(top_screen *s, top_key key) {
  tool_error error = {{0}};
  char *text = NULL;
  size_t bytes;
  const top_row *row = s->num_rows == 0 ? NULL : &s->rows[chosen_index(s)];
  if (row == NULL) return;
  if (live_ask(&row->pool, key == TOP_TRIM ? "trim 0" : "defragment 0", &text, &bytes, &error)) {
    text[strcspn(text, "\n")] = '\0';
    snprintf(s->message, sizeof(s->message), "%s: %.200s", verb(key), text);
  } else {
    snprintf(s->message, sizeof(s->message), "%.250s", error.text);
  }
  free(text);
}

void top_press(top_screen *s, top_key key) {
  if (key == TOP_NOTHING) return;
  const top_key asked = s->asking;
  const size_t index = chosen_index(s);
  s->asking = TOP_NOTHING;
  s->message[0] = '\0';
  if (asked != TOP_NOTHING) {
    if (key == TOP_YES) request(s, asked);
    return;
  }
  switch (key) {
    case TOP_SORT: s->order = (top_order)((s->order + 1) % TOP_NUM_ORDERS); return;
    case TOP_UP: choose(s, index > 0 ? index - 1 : 0); return;
    case TOP_DOWN: choose(s, index + 1 < s->num_rows ? index + 1 : index); return;
    case TOP_TRIM:
    case TOP_DEFRAGMENT:
      if (s->num_rows == 0) return;
      choose(s, index);  // whatever the order becomes meanwhile
      s->asking = key;
      return;
    default: return;
  }
}

// ---- lines ----

static void put_row(const top_row *row, char *line) {
  char live[SIZE_TEXT_BYTES] = "-", mapped[SIZE_TEXT_BYTES] = "-", parked[SIZE_TEXT_BYTES] = "-",
       reserved[SIZE_TEXT_BYTES] = "-", name[64];
  if (row->copy != NULL) {
    size_text(row->copy->stats.live, live);
    size_text(row->copy->stats.mapped, mapped);
    size_text(row->copy->stats.parked, parked);
    size_text(row->copy->stats.reserved_va, reserved);
  }
  snprintf(name, sizeof(name), "%.63s", row->pool.header.pool_name);
  for (char *c = name; *c != '\0'; c++) *c = (unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e ? '?' : *c;
  snprintf(line, LINE_BYTES, "%9" PRId64 " %3d %10s %10s %10s %10s %10.0f  %-7s %s", row->pool.header.process,
           (int)row->pool.header.device, live, mapped, parked, reserved, row->allocs_per_s,
           !row->pool.running                    ? "ended"
           : row->pool.header.control[0] != '\0' ? "control"
                                                 : "live",
           name);
}

// put_bar draws the device's memory: free, live, gaps, parked, spare, others.
static void put_bar(const top_row *row, unsigned width, char *line) {
  const vmp_pool_stats_data *d = &row->copy->stats;
  const uint64_t held = d->mapped + d->spare;
  const uint64_t gaps = d->mapped > d->live + d->parked ? d->mapped - d->live - d->parked : 0;
  const uint64_t others = d->device_total > d->device_free + held ? d->device_total - d->device_free - held : 0;
  const uint64_t parts[] = {d->device_free, d->live, gaps, d->parked, d->spare, others};
  static const char marks[] = ".#:+ox";
  const unsigned cells = width > 4 ? width - 4 : 1;
  unsigned used = 0;
  double sum = 0;
  memcpy(line, "  ", 3);
  for (unsigned i = 0; i < 6 && d->device_total > 0; i++) {
    sum += (double)parts[i] / (double)d->device_total;
    const unsigned edge = (unsigned)((sum < 1 ? sum : 1) * cells + 0.5);
    while (used < edge && used + 3 < LINE_BYTES) line[2 + used++] = marks[i];
  }
  line[2 + used] = '\0';
}

// put_map draws the mapped addresses in one row, gaps between runs as one blank.
static void put_map(const top_row *row, unsigned width, char *line) {
  static const char marks[] = "?#+->X";
  const vmp_live_copy *copy = row->copy;
  uint64_t total = 0;
  const unsigned cells = width > 4 ? width - 4 : 1;
  unsigned used = 0;
  memcpy(line, "  ", 3);
  for (uint32_t i = 0; i < copy->num_runs; i++) total += copy->runs[i].bytes;
  uint64_t end = 0;
  double sum = 0;
  for (uint32_t i = 0; i < copy->num_runs && total > 0; i++) {
    const vmp_live_run *run = &copy->runs[i];
    sum += (double)run->bytes / (double)total;
    const unsigned edge = (unsigned)(sum * cells + 0.5);
    if (i > 0 && run->address != end && used < cells && used + 3 < LINE_BYTES) line[2 + used++] = ' ';
    while (used < edge && used < cells && used + 3 < LINE_BYTES)
      line[2 + used++] = marks[run->state <= 5 ? run->state : 0];
    end = run->address + run->bytes;
  }
  line[2 + used] = '\0';
}

static void put_foot(const top_screen *s, unsigned row, unsigned width, char *line) {
  const top_row *chosen = s->num_rows == 0 ? NULL : &s->rows[chosen_index(s)];
  char a[SIZE_TEXT_BYTES], b[SIZE_TEXT_BYTES];
  if (row == 5 && s->asking != TOP_NOTHING && chosen != NULL) {
    snprintf(line, LINE_BYTES, "%s \"%.40s\" of process %" PRId64 "? y or n", verb(s->asking),
             chosen->pool.header.pool_name, chosen->pool.header.process);
  } else if (row == 5) {
    snprintf(line, LINE_BYTES, "%s", s->message);
  } else if (chosen == NULL || chosen->copy == NULL) {
    if (row == 1) snprintf(line, LINE_BYTES, "no pool shows itself; start a program with VMP_CONF=control:1");
  } else if (row == 1) {
    const vmp_pool_stats_data *d = &chosen->copy->stats;
    snprintf(line, LINE_BYTES, "device %s, free %s; largest block without a driver call %s",
             size_text(d->device_total, a), size_text(d->device_free, b),
             size_text(d->largest_free_mapped, (char[SIZE_TEXT_BYTES]){0}));
  } else if (row == 2) {
    put_bar(chosen, width, line);
  } else if (row == 3) {
    snprintf(line, LINE_BYTES, "  . free  # live  : gaps  + parked  o spare  x others");
  } else if (row == 4) {
    put_map(chosen, width, line);
  }
}

top_look top_line(const top_screen *s, unsigned i, unsigned lines, unsigned width, char *line) {
  line[0] = '\0';
  top_look look = TOP_PLAIN;
  const unsigned foot = lines > FIRST_ROW + FOOT_ROWS ? lines - FOOT_ROWS : FIRST_ROW;
  const unsigned room = foot - FIRST_ROW;
  const size_t chosen = chosen_index(s), first = room > 0 && chosen >= room ? chosen - room + 1 : 0;
  if (i == 0) {
    snprintf(line, LINE_BYTES, "vmpool top   %zu pool%s by %s     q quit  s sort  up down choose  t trim  d defragment",
             s->num_rows, s->num_rows == 1 ? "" : "s", order_names[s->order]);
    look = TOP_STRONG;
  } else if (i == 2) {
    snprintf(line, LINE_BYTES, "%9s %3s %10s %10s %10s %10s %10s  %-7s %s", "PROCESS", "DEV", "LIVE", "MAPPED",
             "PARKED", "RESERVED", "ALLOCS/S", "TAKES", "POOL");
    look = TOP_STRONG;
  } else if (i >= FIRST_ROW && i < foot && first + (i - FIRST_ROW) < s->num_rows) {
    const size_t index = first + (i - FIRST_ROW);
    put_row(&s->rows[index], line);
    if (index == chosen) look = TOP_CHOSEN;
  } else if (i >= foot) {
    put_foot(s, i - foot, width, line);
  }
  for (char *c = line; *c != '\0'; c++) *c = (unsigned char)*c < 0x20 || (unsigned char)*c > 0x7e ? '?' : *c;
  if (width < LINE_BYTES && strlen(line) > width) line[width] = '\0';
  return look;
}
