// The map as a picture: what the device's memory is used for, then every range in rows of two lanes, with stretches
// without memory collapsed. One drawing for both formats (cairo).
//
//     device      [ live | gaps | pending | parked | spare | others | free ]
//     +229 GiB    [ backing          ]/ 24 GiB /[ backing    ]      a row: what is mapped above,
//                 [ blocks           ]          [ blocks     ]      how much of it is live below
#include <cairo/cairo-svg.h>
#include <cairo/cairo.h>
#include <fontconfig/fontconfig.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/export/export.h"
#include "tools/export/utf8.h"

#define MARGIN 24.0
#define LABEL 96.0    // left of the rows
#define ROW 46.0      // height of a row, with what separates it from the next one
#define BACKING 12.0  // heights of the lanes
#define BLOCKS 22.0
#define BREAK 26.0     // width of a collapsed stretch
#define MAX_ROWS 14.0  // of one range
#define MAX_BREAKS 400u

typedef struct color {
  double r, g, b;
} color;

static const color ink = {0.10, 0.13, 0.17}, muted = {0.36, 0.40, 0.46}, lane = {0.91, 0.92, 0.94};
static const color state_colors[] = {{0.91, 0.92, 0.94}, {0.00, 0.45, 0.70}, {0.90, 0.62, 0.00},
                                     {0.48, 0.31, 0.64}, {0.00, 0.52, 0.42}, {0.84, 0.37, 0.00}};
static const color layer_colors[] = {{0.75, 0.39, 0.60}, {0.00, 0.62, 0.45}, {0.20, 0.46, 0.72}, {0.69, 0.48, 0.00}};
static const char *const layer_texts[] = {"slab", "mid", "buddy", "region"};

typedef struct piece {  // a stretch that is drawn to scale, or one that is collapsed
  uint64_t from, to;
  bool gap;
} piece;

typedef struct drawing {
  cairo_t *c;
  const export_input *in;
  double width, y;
  bool failed;
} drawing;

// ---- shapes and texts ----

static void set_color(drawing *d, color k) { cairo_set_source_rgb(d->c, k.r, k.g, k.b); }

static void fill_rect(drawing *d, double x, double y, double width, double height, color k) {
  set_color(d, k);
  cairo_rectangle(d->c, x, y, width, height);
  cairo_fill(d->c);
}

static double put_text(drawing *d, double x, double y, double size, bool bold, color k, const char *text) {
  char clean[256];
  cairo_text_extents_t extents;
  (void)utf8_clean(clean, sizeof(clean), text);
  cairo_select_font_face(d->c, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                         bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
  cairo_set_font_size(d->c, size);
  set_color(d, k);
  cairo_move_to(d->c, x, y);
  cairo_show_text(d->c, clean);
  cairo_text_extents(d->c, clean, &extents);
  return extents.x_advance;
}

static double text_width(drawing *d, double size, const char *text) {
  cairo_text_extents_t extents;
  cairo_set_font_size(d->c, size);
  cairo_text_extents(d->c, text, &extents);
  return extents.x_advance;
}

// ---- the ledger ----

static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

typedef struct part {
  const char *name;
  uint64_t bytes;
  color k;
} part;

static void draw_ledger(drawing *d) {
  const snapshot *s = d->in->state;
  const uint64_t pending = s->pending < s->parked ? s->pending : s->parked;
  const uint64_t live = snapshot_live_in_memory(s);
  const part parts[] = {
      {"live", live, state_colors[SNAPSHOT_MAPPED]},
      {"gaps", minus(minus(s->mapped, live), s->parked), {0.62, 0.82, 0.93}},
      {"pending", pending, {0.80, 0.47, 0.65}},
      {"parked", s->parked - pending, state_colors[SNAPSHOT_PARKED]},
      {"spare", s->spare, {0.54, 0.43, 0.00}},
      {"others", minus(minus(minus(s->device_total, s->device_free), s->mapped), s->spare), {0.42, 0.45, 0.51}},
      {"free", s->device_free, {0.87, 0.89, 0.92}},
  };
  const double inner = d->width - 2 * MARGIN;
  char size[SIZE_TEXT_BYTES], text[128];
  uint64_t before = 0;
  double x = MARGIN, edge = 0;
  for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
    const double total = s->device_total > 0 ? (double)s->device_total : 1;
    const double from = fmin(1, (double)before / total),
                 to = fmin(1, ((double)before + (double)parts[i].bytes) / total);
    if (parts[i].bytes > 0) {  // what there is is seen, however small
      const double left = fmax(from * inner, edge);
      edge = fmin(inner, fmax(to * inner, left + 2));
      fill_rect(d, MARGIN + left, d->y, edge - left, 26, parts[i].k);
    }
    before += parts[i].bytes;
    snprintf(text, sizeof(text), "%s %s", parts[i].name, size_text(parts[i].bytes, size));
    if (x + 20 + text_width(d, 12, text) > d->width - MARGIN) continue;
    fill_rect(d, x, d->y + 38, 11, 11, parts[i].k);
    x += 16 + put_text(d, x + 16, d->y + 48, 12, false, parts[i].bytes > 0 ? ink : muted, text) + 18;
  }
  d->y += 74;
}

// ---- which stretches ----

static void add_span(piece *pieces, size_t *count, uint64_t from, uint64_t to, uint64_t reach) {
  piece *last = *count > 0 ? &pieces[*count - 1] : NULL;
  if (last != NULL && from <= last->to + reach) {
    if (to > last->to) last->to = to;
  } else {
    pieces[(*count)++] = (piece){.from = from, .to = to};
  }
}

// Everything that is not plain unmapped, in rising order; what lies closer together than `reach` is one stretch.
static size_t find_spans(const snapshot_range *r, uint64_t reach, piece *pieces) {
  size_t run = 0, block = 0, count = 0;
  while (run < r->num_runs || block < r->num_blocks) {
    if (block == r->num_blocks || (run < r->num_runs && r->runs[run].offset <= r->blocks[block].offset)) {
      if (r->runs[run].state != SNAPSHOT_UNMAPPED) {
        add_span(pieces, &count, r->runs[run].offset, r->runs[run].offset + r->runs[run].bytes, reach);
      }
      run++;
    } else {
      add_span(pieces, &count, r->blocks[block].offset, r->blocks[block].offset + r->blocks[block].bytes, reach);
      block++;
    }
  }
  return count;
}

// layout_of makes the stretches with what is collapsed between them; to be freed. NULL when host memory runs out.
static piece *layout_of(const snapshot_range *r, uint64_t granule, size_t *out_count) {
  piece *spans = calloc(r->num_runs + r->num_blocks + 1, sizeof(*spans));
  piece *pieces = calloc(2 * (r->num_runs + r->num_blocks) + 3, sizeof(*pieces));
  if (spans == NULL || pieces == NULL) {
    free(spans);
    free(pieces);
    return NULL;
  }
  uint64_t reach = 8 * granule, at = 0;
  size_t count = find_spans(r, reach, spans), n = 0;
  while (count > MAX_BREAKS && reach < r->bytes) count = find_spans(r, reach *= 2, spans);
  for (size_t i = 0; i < count; i++) {
    if (spans[i].from > at) pieces[n++] = (piece){.from = at, .to = spans[i].from, .gap = true};
    pieces[n++] = spans[i];
    at = spans[i].to;
  }
  if (at < r->bytes) pieces[n++] = (piece){.from = at, .to = r->bytes, .gap = true};
  free(spans);
  *out_count = n;
  return pieces;
}

// ---- rows ----

// A cursor runs along the rows: a stretch goes on in the next row where one is full.
typedef struct cursor {
  double x, scale, left, right;  // scale: pixels a byte
  bool labelled;
} cursor;

static double rows_needed(const piece *pieces, size_t count, double scale, double inner) {
  double length = 0;
  for (size_t i = 0; i < count; i++) {
    length += pieces[i].gap ? BREAK : (double)(pieces[i].to - pieces[i].from) * scale;
  }
  return length / inner;
}

static double choose_scale(const piece *pieces, size_t count, double inner) {
  double scale = 1.0 / 64;
  while (scale > 1e-15 && rows_needed(pieces, count, scale, inner) > MAX_ROWS) scale /= 2;
  // the largest scale within the last doubling that still fits
  for (double step = scale / 2; step > scale / 64; step /= 2) {
    if (rows_needed(pieces, count, scale + step, inner) <= MAX_ROWS) scale += step;
  }
  return scale;
}

// offset_text writes "+122.125 GiB": as many digits as tell rows apart.
static void offset_text(uint64_t offset, char *text, size_t size) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  unsigned unit = 0;
  while (unit < 6 && offset >> (10 * unit) >= 1024) unit++;
  const double value = (double)offset / (double)(UINT64_C(1) << (10 * unit));
  snprintf(text, size, "+%.*f %s", unit == 0 ? 0 : value >= 100 ? 2 : 3, value, units[unit]);
}

static void label_row(drawing *d, cursor *at, uint64_t offset) {
  char text[48];
  if (at->labelled) return;
  at->labelled = true;
  offset_text(offset, text, sizeof(text));
  (void)put_text(d, MARGIN, d->y + BACKING + 8, 11, false, muted, text);
}

static void next_row(drawing *d, cursor *at) {
  d->y += ROW;
  at->x = at->left;
  at->labelled = false;
}

static void draw_gap(drawing *d, cursor *at, const piece *p) {
  char size[SIZE_TEXT_BYTES];
  if (at->x + BREAK > at->right) next_row(d, at);
  label_row(d, at, p->from);
  cairo_set_line_width(d->c, 1);
  set_color(d, muted);
  for (double edge = 4; edge <= BREAK - 4; edge += BREAK - 8) {
    for (double y = 0; y <= BACKING + BLOCKS; y += 4) {
      const double x = at->x + edge + (fmod(y, 8) < 4 ? -1.5 : 1.5);
      if (y == 0) {
        cairo_move_to(d->c, x, d->y);
      } else {
        cairo_line_to(d->c, x, d->y + y);
      }
    }
    cairo_stroke(d->c);
  }
  (void)put_text(d, at->x + 1, d->y + BACKING + BLOCKS + 9, 7, false, muted, size_text(p->to - p->from, size));
  at->x += BREAK;
}

static size_t first_run(const snapshot_range *r, uint64_t from) {
  size_t low = 0, high = r->num_runs;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (r->runs[middle].offset + r->runs[middle].bytes <= from) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static size_t first_block(const snapshot_range *r, uint64_t from) {
  size_t low = 0, high = r->num_blocks;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    if (r->blocks[middle].offset + r->blocks[middle].bytes <= from) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// How much of each column of pixels is live, by layer, for blocks that are narrower than two pixels.
static void draw_thin_blocks(drawing *d, double x, double columns[][SNAPSHOT_NUM_LAYERS], size_t count) {
  for (size_t i = 0; i < count; i++) {
    double bottom = d->y + BACKING + 2 + BLOCKS;
    for (size_t l = 0; l < SNAPSHOT_NUM_LAYERS; l++) {
      if (columns[i][l] <= 0) continue;
      const double height = fmax(0.8, BLOCKS * fmin(1, columns[i][l]));
      fill_rect(d, x + (double)i, bottom - height, 1, height, layer_colors[l]);
      bottom -= height;
    }
  }
}

static void add_thin(double columns[][SNAPSHOT_NUM_LAYERS], size_t count, double from, double to, size_t layer) {
  for (size_t i = (size_t)fmax(0, from); i < count && (double)i < to; i++) {
    columns[i][layer] += fmax(1e-6, fmin(to, (double)i + 1) - fmax(from, (double)i));
  }
}

// draw_part draws [from, to) of a range at the cursor, inside one row.
static void draw_part(drawing *d, const cursor *at, const snapshot_range *r, uint64_t from, uint64_t to) {
  const double width = (double)(to - from) * at->scale;
  const size_t count = (size_t)ceil(width) + 1;
  double(*columns)[SNAPSHOT_NUM_LAYERS] = calloc(count, sizeof(*columns));
  if (columns == NULL) {
    d->failed = true;
    return;
  }
  fill_rect(d, at->x, d->y, width, BACKING, lane);
  fill_rect(d, at->x, d->y + BACKING + 2, width, BLOCKS, lane);
  for (size_t i = first_run(r, from); i < r->num_runs && r->runs[i].offset < to; i++) {
    const double a = fmax(0, ((double)r->runs[i].offset - (double)from) * at->scale);
    const double b = fmin(width, ((double)r->runs[i].offset + (double)r->runs[i].bytes - (double)from) * at->scale);
    if (b > a) fill_rect(d, at->x + a, d->y, fmax(0.6, b - a), BACKING, state_colors[r->runs[i].state]);
  }
  for (size_t i = first_block(r, from); i < r->num_blocks && r->blocks[i].offset < to; i++) {
    const double a = fmax(0, ((double)r->blocks[i].offset - (double)from) * at->scale);
    const double b = fmin(width, ((double)r->blocks[i].offset + (double)r->blocks[i].bytes - (double)from) * at->scale);
    if (b - a < 2) {
      add_thin(columns, count, a, fmax(b, a + 1e-6), r->blocks[i].layer);
    } else {
      fill_rect(d, at->x + a, d->y + BACKING + 2, b - a - 0.5, BLOCKS, layer_colors[r->blocks[i].layer]);
    }
  }
  draw_thin_blocks(d, at->x, columns, count);
  free(columns);
}

static void draw_piece(drawing *d, cursor *at, const snapshot_range *r, const piece *p) {
  uint64_t from = p->from;
  while (from < p->to && !d->failed) {
    if (at->right - at->x < 1) next_row(d, at);
    label_row(d, at, from);
    const double room = (at->right - at->x) / at->scale, left = (double)(p->to - from);
    const uint64_t bytes = left <= room ? p->to - from : (uint64_t)fmax(1, room);
    draw_part(d, at, r, from, from + bytes);
    at->x += (double)bytes * at->scale;
    from += bytes;
  }
}

static void draw_range(drawing *d, const snapshot_range *r) {
  size_t count = 0;
  piece *pieces = layout_of(r, d->in->state->granule, &count);
  char text[128], size[SIZE_TEXT_BYTES];
  if (pieces == NULL) {
    d->failed = true;
    return;
  }
  cursor at = {.left = MARGIN + LABEL, .right = d->width - MARGIN};
  at.x = at.left;
  at.scale = choose_scale(pieces, count, at.right - at.left);
  snprintf(text, sizeof(text), "range 0x%" PRIx64 ", %s reserved", r->base, size_text(r->bytes, size));
  (void)put_text(d, MARGIN, d->y + 12, 13, true, ink, text);
  d->y += 26;
  for (size_t i = 0; i < count && !d->failed; i++) {
    if (pieces[i].gap) {
      draw_gap(d, &at, &pieces[i]);
    } else {
      draw_piece(d, &at, r, &pieces[i]);
    }
  }
  d->y += ROW + 12;
  free(pieces);
}

// ---- the whole ----

static void draw_legend(drawing *d) {
  static const struct {
    const char *name;
    snapshot_state state;
  } states[] = {{"mapped", SNAPSHOT_MAPPED},
                {"parked", SNAPSHOT_PARKED},
                {"retiring", SNAPSHOT_RETIRING},
                {"broken", SNAPSHOT_BROKEN}};
  double x = MARGIN;
  x += put_text(d, x, d->y + 10, 12, true, ink, "backing") + 12;
  for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++) {
    fill_rect(d, x, d->y, 11, 11, state_colors[states[i].state]);
    x += 16 + put_text(d, x + 16, d->y + 10, 12, false, muted, states[i].name) + 16;
  }
  x += 12 + put_text(d, x + 12, d->y + 10, 12, true, ink, "blocks") + 12;
  for (size_t i = 0; i < SNAPSHOT_NUM_LAYERS; i++) {
    fill_rect(d, x, d->y, 11, 11, layer_colors[i]);
    x += 16 + put_text(d, x + 16, d->y + 10, 12, false, muted, layer_texts[i]) + 16;
  }
  d->y += 30;
}

static void draw(drawing *d) {
  const snapshot *s = d->in->state;
  char text[256], device[SIZE_TEXT_BYTES], reserved[SIZE_TEXT_BYTES], mapped[SIZE_TEXT_BYTES];
  d->y = MARGIN;
  (void)put_text(d, MARGIN, d->y + 14, 17, true, ink, s->pool_name);
  snprintf(text, sizeof(text), "%s device %" PRIu64 ", %s; %s mapped of %s reserved addresses", s->driver, s->device,
           size_text(s->device_total, device), size_text(s->mapped, mapped), size_text(s->reserved_va, reserved));
  (void)put_text(d, MARGIN, d->y + 34, 12, false, muted, text);
  d->y += 50;
  draw_ledger(d);
  draw_legend(d);
  for (size_t i = 0; i < s->num_ranges && !d->failed; i++) draw_range(d, &s->ranges[i]);
  if (s->num_ranges == 0) {
    (void)put_text(d, MARGIN, d->y + 12, 12, false, muted, "no addresses are reserved");
    d->y += 30;
  }
}

// A first drawing onto nothing tells the height.
static double measure(const export_input *in, bool *failed) {
  cairo_surface_t *surface = cairo_recording_surface_create(CAIRO_CONTENT_COLOR, NULL);
  drawing d = {.c = cairo_create(surface), .in = in, .width = (double)in->width};
  draw(&d);
  *failed = d.failed;
  cairo_destroy(d.c);
  cairo_surface_destroy(surface);
  return d.y + MARGIN;
}

static cairo_status_t write_bytes(void *closure, const unsigned char *data, unsigned length) {
  return fwrite(data, 1, length, closure) == length ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

static bool draw_onto(cairo_surface_t *surface, const export_input *in, double height, FILE *png, tool_error *error) {
  drawing d = {.c = cairo_create(surface), .in = in, .width = (double)in->width};
  fill_rect(&d, 0, 0, d.width, height, (color){1, 1, 1});
  draw(&d);
  cairo_status_t status = cairo_status(d.c);
  if (status == CAIRO_STATUS_SUCCESS && png != NULL)
    status = cairo_surface_write_to_png_stream(surface, write_bytes, png);
  cairo_destroy(d.c);
  cairo_surface_finish(surface);
  if (status == CAIRO_STATUS_SUCCESS) status = cairo_surface_status(surface);
  cairo_surface_destroy(surface);
  if (d.failed || status == CAIRO_STATUS_NO_MEMORY) return tool_fail(error, "host memory ran out");
  if (status == CAIRO_STATUS_SUCCESS || status == CAIRO_STATUS_WRITE_ERROR) return true;  // the stream knows
  return tool_fail(error, "the picture could not be drawn: %s", cairo_status_to_string(status));
}

// forget_fonts gives back what cairo and fontconfig keep for a next picture: nobody else here draws.
static bool forget_fonts(bool good) {
  cairo_debug_reset_static_data();
  FcFini();
  return good;
}

bool export_svg(FILE *out, const export_input *in, tool_error *error) {
  bool failed;
  const double height = measure(in, &failed);
  if (failed) return forget_fonts(tool_fail(error, "host memory ran out"));
  return forget_fonts(draw_onto(cairo_svg_surface_create_for_stream(write_bytes, out, (double)in->width, height), in,
                                height, NULL, error));
}

bool export_png(FILE *out, const export_input *in, tool_error *error) {
  bool failed;
  const double height = measure(in, &failed);
  if (failed) return forget_fonts(tool_fail(error, "host memory ran out"));
  if (height > 32000) return forget_fonts(tool_fail(error, "%s: too many ranges for a PNG; use svg", in->name));
  cairo_surface_t *surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, (int)in->width, (int)height);
  return forget_fonts(draw_onto(surface, in, height, out, error));
}
