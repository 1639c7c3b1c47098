// Why an allocation failed, and what fits now: the numbers of a snapshot turned into sentences that are true of it.
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/vmpool/map.h"
#include "tools/vmpool/views.h"

static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

// limit_of: a limit of the statistics; UINT64_MAX: none.
static uint64_t limit_of(const snapshot *s, const char *key) {
  const json_t *value = json_object_get(json_object_get(s->document, "stats"), key);
  if (!json_is_integer(value) || json_integer_value(value) < 0) return UINT64_MAX;
  return (uint64_t)json_integer_value(value);
}

// room: what a new block could be made of.
typedef struct room {
  uint64_t held, idle, finished, can_create;
  uint64_t others, gaps, hard_limit;
} room;

static room room_of(const snapshot *s) {
  room r = {.held = s->mapped + s->spare, .idle = s->parked + s->spare, .hard_limit = limit_of(s, "hard_limit")};
  r.finished = minus(r.idle, s->pending);
  r.can_create = minus(r.hard_limit, r.held);
  if (r.can_create > s->device_free) r.can_create = s->device_free;
  r.others = minus(minus(s->device_total, s->device_free), r.held);
  r.gaps = minus(minus(s->mapped, snapshot_live_in_memory(s)), s->parked);
  return r;
}

static uint64_t whole_granules(const snapshot *s, uint64_t bytes) {
  const uint64_t wanted = (bytes + s->granule - 1) / s->granule * s->granule;
  return wanted < bytes ? UINT64_MAX : wanted;
}

static void put_answer(FILE *out, const map_style *style, style_color color, const char *answer) {
  style_put(out, style, color, answer);
}

static void put_fit(FILE *out, const map_style *style, const snapshot *s, const room *r, uint64_t bytes) {
  const uint64_t wanted = whole_granules(s, bytes);
  char size[SIZE_TEXT_BYTES], more[SIZE_TEXT_BYTES];
  fprintf(out, "%s fits: ", size_text(bytes, size));
  if (bytes <= s->largest_free_mapped) {
    put_answer(out, style, STYLE_GREEN, "yes");
    fputs(", without a driver call\n", out);
  } else if (wanted <= r->finished) {
    put_answer(out, style, STYLE_GREEN, "yes");
    fprintf(out, ", by remapping idle memory: %" PRIu64 " granules, nothing new\n", wanted / s->granule);
  } else if (wanted <= r->idle) {
    put_answer(out, style, STYLE_YELLOW, "yes");
    fprintf(out, ", by remapping idle memory; the stream waits on the GPU for %s of it\n",
            size_text(wanted - r->finished, more));
  } else if (wanted - r->idle <= r->can_create) {
    put_answer(out, style, STYLE_YELLOW, "yes");
    fprintf(out, ", with %s of new memory\n", size_text(wanted - r->idle, more));
  } else {
    put_answer(out, style, STYLE_RED, "no");
    fprintf(out, ", %s are missing\n", size_text(wanted - r->idle - r->can_create, more));
  }
}

void view_fit(FILE *out, const map_style *style, const snapshot *s, uint64_t bytes) {
  const room r = room_of(s);
  const uint64_t in_place = s->largest_free_mapped, idle = r.idle > in_place ? r.idle : in_place;
  const uint64_t grown = r.idle + r.can_create > in_place ? r.idle + r.can_create : in_place;
  char a[SIZE_TEXT_BYTES], b[SIZE_TEXT_BYTES];
  fprintf(out, "  by remapping idle memory %s, with new memory %s\n", size_text(idle, a), size_text(grown, b));
  if (bytes > 0) put_fit(out, style, s, &r, bytes);
}

// ---- the card ----

static void put_hint(FILE *out, const char *text) { fprintf(out, "  - %s\n", text); }

static void put_hint_size(FILE *out, const char *before, uint64_t bytes, const char *behind) {
  char size[SIZE_TEXT_BYTES];
  fprintf(out, "  - %s%s%s\n", before, size_text(bytes, size), behind);
}

// put_hints writes what would have helped, as far as the numbers show that it would.
static void put_hints(FILE *out, const snapshot *s, const room *r, uint64_t missing, const char *status) {
  unsigned hints = 0;
  fputs("\nwhat would help\n", out);
  if (strcmp(status, "VMP_ERROR_LIMIT") == 0 && r->hard_limit != UINT64_MAX) {
    put_hint_size(out, "raise hard_limit by ", missing, " or more: it is what ended the growth");
    hints++;
  }
  if (s->pending >= missing && s->pending > 0) {
    put_hint_size(out, "wait for GPU work (wait:...): ", s->pending, " are free, but streams may still touch them");
    hints++;
  }
  if (r->gaps >= missing && r->gaps >= s->granule) {
    put_hint_size(out, "preset tight: ", r->gaps, " lie free in chunks that live blocks pin");
    hints++;
  }
  if (r->others >= missing && r->others > 0) {
    put_hint_size(out, "others hold ", r->others, " of the device: other pools, processes, the driver");
    hints++;
  }
  if (strcmp(status, "VMP_ERROR_OUT_OF_ADDRESS_SPACE") == 0) {
    put_hint(out, "more address space: what is reserved is used up, and the driver gave no more");
    hints++;
  }
  if (hints == 0) put_hint(out, "only less demand: live blocks, or a larger device");
}

bool view_oom(FILE *out, const map_style *style, const snapshot *s) {
  char a[SIZE_TEXT_BYTES], b[SIZE_TEXT_BYTES];
  view_head(out, s);
  if (snapshot_is_null(s, "failure")) {
    fputs("no allocation has failed for want of memory\n", out);
    return false;
  }
  const uint64_t requested = snapshot_number(s, "failure", "requested");
  const uint64_t largest = snapshot_number(s, "failure", "largest");
  const char *status = snapshot_text(s, "failure", "status");
  fputc('\n', out);
  style_put(out, style, STYLE_RED, "out of memory");
  fprintf(out, "  %s were asked for, %s could be had in one block\n", size_text(requested, a), size_text(largest, b));
  fprintf(out, "  layer %.16s, alignment %" PRIu64 ", stream #%" PRIu64 "\n  ", snapshot_text(s, "failure", "layer"),
          snapshot_number(s, "failure", "alignment"), snapshot_number(s, "failure", "stream"));
  view_put_name(out, status, 40);
  fputs("\n  ", out);
  view_put_name(out, snapshot_text(s, "failure", "message"), 460);
  fputs("\n\n", out);
  map_ledger(out, style, s);
  const room r = room_of(s);
  put_hints(out, s, &r, minus(whole_granules(s, requested), largest), status);
  return true;
}
