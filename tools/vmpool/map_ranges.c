#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/vmpool/map.h"

#define LABEL_WIDTH 12u
#define DRAWN_GAP_CELLS 3u  // shorter gaps are drawn, longer ones collapsed

// ---- characters ----

typedef struct glyph {
  const char *utf8, *ascii;
  style_color color;
  const char *meaning;
} glyph;

static const glyph state_glyphs[] = {
    [SNAPSHOT_UNMAPPED] = {"·", ".", STYLE_DIM, "not mapped"},
    [SNAPSHOT_MAPPED] = {"█", "#", STYLE_CYAN, "mapped"},
    [SNAPSHOT_PARKED] = {"▒", "+", STYLE_YELLOW, "parked"},
    [SNAPSHOT_RETIRING] = {"░", "-", STYLE_MAGENTA, "retiring"},
    [SNAPSHOT_IN_TRANSIT] = {">", ">", STYLE_BLUE, "in transit"},
    [SNAPSHOT_BROKEN] = {"X", "X", STYLE_RED, "broken"},
};
static const glyph partly_glyph = {"▓", "=", STYLE_CYAN, "mapped in part"};
static const style_color layer_colors[] = {[SNAPSHOT_SLAB] = STYLE_MAGENTA,
                                           [SNAPSHOT_MID] = STYLE_GREEN,
                                           [SNAPSHOT_BUDDY] = STYLE_BLUE,
                                           [SNAPSHOT_REGION] = STYLE_YELLOW};
static const char *const eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const tenths[] = {" ", "1", "2", "3", "4", "5", "6", "7", "8", "9", "@"};

static const char *character(const map_style *style, const glyph *g) { return style->utf8 ? g->utf8 : g->ascii; }

// ---- cells ----

#define CLASS_COLORS 6u

typedef struct cell {
  uint64_t state_bytes[SNAPSHOT_NUM_STATES];
  uint64_t layer_bytes[SNAPSHOT_NUM_LAYERS];
  uint64_t class_bytes[CLASS_COLORS];  // of slab's blocks, by the colour of their class
} cell;

// class_color: which of the colours a slab block's size has: neighbouring classes, 8 to a doubling, have different
// ones.
static size_t class_color(uint64_t bytes) {
  uint64_t steps = bytes > 0 ? (bytes - 1) / 512 : 0, doublings = 0;
  for (; steps >= 16; steps /= 2) doublings++;
  return (size_t)((doublings * 8 + steps) % CLASS_COLORS);
}

// piece: a stretch of cells that is drawn; between two pieces lies a collapsed gap.
typedef struct piece {
  uint64_t start, end;  // in cells
} piece;

// layout: how a range is drawn.
typedef struct layout {
  const snapshot_range *range;
  uint64_t cell_bytes;
  unsigned lane_width;
  piece *pieces;
  size_t num_pieces;
} layout;

static void add_stretch(layout *l, uint64_t offset, uint64_t bytes) {
  const uint64_t start = offset / l->cell_bytes, end = (offset + bytes - 1) / l->cell_bytes + 1;
  piece *last = l->num_pieces > 0 ? &l->pieces[l->num_pieces - 1] : NULL;
  if (last != NULL && start <= last->end + DRAWN_GAP_CELLS) {
    if (end > last->end) last->end = end;
  } else {
    l->pieces[l->num_pieces++] = (piece){.start = start, .end = end};
  }
}

// What is drawn: every slot that is not plain unmapped, and every block (one that lies on unmapped slots is a fault
// that must show). Both lists ascend.
static void find_pieces(layout *l) {
  const snapshot_range *r = l->range;
  size_t run = 0, block = 0;
  l->num_pieces = 0;
  while (run < r->num_runs || block < r->num_blocks) {
    const bool take_run =
        block == r->num_blocks || (run < r->num_runs && r->runs[run].offset <= r->blocks[block].offset);
    if (take_run) {
      if (r->runs[run].state != SNAPSHOT_UNMAPPED) add_stretch(l, r->runs[run].offset, r->runs[run].bytes);
      run++;
    } else {
      add_stretch(l, r->blocks[block].offset, r->blocks[block].bytes);
      block++;
    }
  }
}

static uint64_t count_rows(const layout *l) {
  uint64_t rows = 0;
  for (size_t i = 0; i < l->num_pieces; i++)
    rows += (l->pieces[i].end - l->pieces[i].start + l->lane_width - 1) / l->lane_width;
  return rows;
}

static void choose_scale(layout *l, uint64_t granule, unsigned max_rows) {
  l->cell_bytes = granule;
  for (;;) {
    find_pieces(l);
    if (count_rows(l) <= max_rows || l->cell_bytes >= l->range->bytes || l->cell_bytes >> 62 != 0) return;
    l->cell_bytes *= 2;
  }
}

// Adds the part of [offset, offset + bytes) that lies in each cell of the row to the counter at `field` of the cell.
static void spread(cell *cells, uint64_t first_cell, uint64_t num_cells, uint64_t cell_bytes, uint64_t offset,
                   uint64_t bytes, size_t field) {
  const uint64_t row_start = first_cell * cell_bytes, row_end = (first_cell + num_cells) * cell_bytes;
  uint64_t at = offset > row_start ? offset : row_start;
  const uint64_t end = offset + bytes < row_end ? offset + bytes : row_end;
  while (at < end) {
    const uint64_t index = at / cell_bytes, cell_end = (index + 1) * cell_bytes;
    const uint64_t part = (end < cell_end ? end : cell_end) - at;
    *(uint64_t *)(void *)((char *)&cells[index - first_cell] + field) += part;
    at += part;
  }
}

// cursor: the first run and block that may reach into the rows to come.
typedef struct cursor {
  size_t run, block;
} cursor;

static void fill_cells(const layout *l, cursor *c, uint64_t first, uint64_t count, cell *cells) {
  const snapshot_range *r = l->range;
  const uint64_t row_start = first * l->cell_bytes, row_end = (first + count) * l->cell_bytes;
  memset(cells, 0, count * sizeof(*cells));
  while (c->run < r->num_runs && r->runs[c->run].offset + r->runs[c->run].bytes <= row_start) c->run++;
  for (size_t i = c->run; i < r->num_runs && r->runs[i].offset < row_end; i++) {
    spread(cells, first, count, l->cell_bytes, r->runs[i].offset, r->runs[i].bytes,
           offsetof(cell, state_bytes) + (size_t)r->runs[i].state * sizeof(uint64_t));
  }
  while (c->block < r->num_blocks && r->blocks[c->block].offset + r->blocks[c->block].bytes <= row_start) c->block++;
  for (size_t i = c->block; i < r->num_blocks && r->blocks[i].offset < row_end; i++) {
    spread(cells, first, count, l->cell_bytes, r->blocks[i].offset, r->blocks[i].bytes,
           offsetof(cell, layer_bytes) + (size_t)r->blocks[i].layer * sizeof(uint64_t));
    if (r->blocks[i].layer != SNAPSHOT_SLAB) continue;
    spread(cells, first, count, l->cell_bytes, r->blocks[i].offset, r->blocks[i].bytes,
           offsetof(cell, class_bytes) + class_color(r->blocks[i].bytes) * sizeof(uint64_t));
  }
}

// ---- drawing ----

static const glyph *state_glyph(const cell *c, uint64_t cell_bytes) {
  if (c->state_bytes[SNAPSHOT_BROKEN] > 0) return &state_glyphs[SNAPSHOT_BROKEN];
  if (c->state_bytes[SNAPSHOT_IN_TRANSIT] > 0) return &state_glyphs[SNAPSHOT_IN_TRANSIT];
  snapshot_state most = SNAPSHOT_UNMAPPED;
  uint64_t backed = 0;
  for (snapshot_state s = SNAPSHOT_MAPPED; s <= SNAPSHOT_RETIRING; s++) {
    backed += c->state_bytes[s];
    if (c->state_bytes[s] > 0 && (most == SNAPSHOT_UNMAPPED || c->state_bytes[s] > c->state_bytes[most])) most = s;
  }
  return most == SNAPSHOT_MAPPED && backed < cell_bytes ? &partly_glyph : &state_glyphs[most];
}

// block_color: of the layer that most of the cell's live bytes are of; with classes, slab's of their most common class.
static style_color block_color(const map_style *style, const cell *c, snapshot_layer most) {
  static const style_color colors[CLASS_COLORS] = {STYLE_MAGENTA, STYLE_CYAN, STYLE_YELLOW,
                                                   STYLE_BLUE,    STYLE_RED,  STYLE_GREEN};
  if (!style->classes || most != SNAPSHOT_SLAB) return layer_colors[most];
  size_t best = 0;
  for (size_t i = 1; i < CLASS_COLORS; i++) {
    if (c->class_bytes[i] > c->class_bytes[best]) best = i;
  }
  return colors[best];
}

static void put_blocks(FILE *out, const map_style *style, style_color *pen, const cell *c, uint64_t cell_bytes) {
  uint64_t live = 0;
  snapshot_layer most = SNAPSHOT_SLAB;
  for (snapshot_layer l = SNAPSHOT_SLAB; l < SNAPSHOT_NUM_LAYERS; l++) {
    live += c->layer_bytes[l];
    if (c->layer_bytes[l] > c->layer_bytes[most]) most = l;
  }
  const unsigned steps = style->utf8 ? 8 : 10;
  unsigned level = (unsigned)((double)live / (double)cell_bytes * steps + 0.5);
  if (level > steps) level = steps;
  if (level == 0 && live > 0) level = 1;                       // something is live
  if (level == steps && live < cell_bytes) level = steps - 1;  // something is free
  style_switch(out, style, pen, level > 0 ? block_color(style, c, most) : STYLE_PLAIN);
  fputs(style->utf8 ? eighths[level] : tenths[level], out);
}

static bool has_blocks(const cell *c) {
  uint64_t live = 0;
  for (snapshot_layer l = SNAPSHOT_SLAB; l < SNAPSHOT_NUM_LAYERS; l++) live += c->layer_bytes[l];
  return live > 0;
}

// offset_text writes "+122.125 GiB": as many digits as fit, so that rows can be told apart.
static void offset_text(uint64_t offset, char buffer[SIZE_TEXT_BYTES]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  unsigned unit = 0;
  while (unit < 6 && offset >> (10 * unit) >= 1024) unit++;
  const double value = (double)offset / (double)(UINT64_C(1) << (10 * unit));
  int length = snprintf(buffer, SIZE_TEXT_BYTES, "+%.*f", value >= 100 ? 2 : 3, value);
  while (buffer[length - 1] == '0') length--;
  if (buffer[length - 1] == '.') length--;
  snprintf(buffer + length, SIZE_TEXT_BYTES - (size_t)length, " %s", units[unit]);
}

static void draw_row(FILE *out, const map_style *style, const layout *l, uint64_t first, const cell *cells,
                     size_t count) {
  style_color pen = STYLE_PLAIN;
  char label[SIZE_TEXT_BYTES];
  offset_text(first * l->cell_bytes, label);
  fprintf(out, "%-*s", LABEL_WIDTH, label);
  for (size_t i = 0; i < count; i++) {
    const glyph *g = state_glyph(&cells[i], l->cell_bytes);
    style_switch(out, style, &pen, g->color);
    fputs(character(style, g), out);
  }
  style_switch(out, style, &pen, STYLE_PLAIN);
  fputc('\n', out);
  size_t last = count;  // no blanks at the end of a line
  while (last > 0 && !has_blocks(&cells[last - 1])) last--;
  if (last > 0) fprintf(out, "%-*s", LABEL_WIDTH, "");
  for (size_t i = 0; i < last; i++) put_blocks(out, style, &pen, &cells[i], l->cell_bytes);
  style_switch(out, style, &pen, STYLE_PLAIN);
  fputc('\n', out);
}

static void draw_gap(FILE *out, const map_style *style, uint64_t bytes) {
  char size[SIZE_TEXT_BYTES], text[SIZE_TEXT_BYTES + 32];
  snprintf(text, sizeof(text), "~ %s not mapped ~", size_text(bytes, size));
  fprintf(out, "%-*s", LABEL_WIDTH, "");
  style_put(out, style, STYLE_DIM, text);
  fputc('\n', out);
}

static void draw_pieces(FILE *out, const map_style *style, const layout *l, cell *cells) {
  cursor c = {0};
  uint64_t drawn_to = 0;  // in bytes
  for (size_t i = 0; i < l->num_pieces; i++) {
    const piece *p = &l->pieces[i];
    if (p->start * l->cell_bytes > drawn_to) draw_gap(out, style, p->start * l->cell_bytes - drawn_to);
    for (uint64_t first = p->start; first < p->end; first += l->lane_width) {
      const uint64_t left = p->end - first, count = left < l->lane_width ? left : l->lane_width;
      fill_cells(l, &c, first, count, cells);
      draw_row(out, style, l, first, cells, count);
    }
    drawn_to = p->end * l->cell_bytes;
  }
  if (l->range->bytes > drawn_to) draw_gap(out, style, l->range->bytes - drawn_to);
}

static uint64_t backed_bytes(const snapshot_range *range) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < range->num_runs; i++)
    bytes += range->runs[i].state != SNAPSHOT_UNMAPPED ? range->runs[i].bytes : 0;
  return bytes;
}

static bool draw_range(FILE *out, const map_style *style, const snapshot_range *range, uint64_t granule,
                       unsigned max_rows) {
  layout l = {.range = range, .lane_width = style->width - LABEL_WIDTH};
  l.pieces = calloc(range->num_runs + range->num_blocks + 1, sizeof(*l.pieces));
  cell *cells = calloc(l.lane_width, sizeof(*cells));
  if (l.pieces != NULL && cells != NULL) {
    char a[SIZE_TEXT_BYTES], b[SIZE_TEXT_BYTES], c[SIZE_TEXT_BYTES];
    choose_scale(&l, granule, max_rows > 0 ? max_rows : 1);
    fprintf(out, "range 0x%" PRIx64 ": %s reserved, %s backed, %s a cell\n", range->base, size_text(range->bytes, a),
            size_text(backed_bytes(range), b), size_text(l.cell_bytes, c));
    draw_pieces(out, style, &l, cells);
  }
  const bool good = l.pieces != NULL && cells != NULL;
  free(l.pieces);
  free(cells);
  return good;
}

bool map_ranges(FILE *out, const map_style *style, const snapshot *s, unsigned max_rows) {
  if (s->num_ranges == 0) fputs("no addresses are reserved\n", out);
  for (size_t i = 0; i < s->num_ranges; i++) {
    if (!draw_range(out, style, &s->ranges[i], s->granule, max_rows)) return false;
  }
  return true;
}

// ---- legend ----

static void legend_item(FILE *out, const map_style *style, const glyph *g, unsigned *column) {
  const unsigned width = 3 + (unsigned)strlen(g->meaning);
  if (*column + width > style->width) {
    fputs("\n       ", out);
    *column = 7;
  }
  fputc(' ', out);
  style_put(out, style, g->color, character(style, g));
  fprintf(out, " %s", g->meaning);
  *column += width;
}

void map_legend(FILE *out, const map_style *style) {
  static const snapshot_state order[] = {SNAPSHOT_PARKED, SNAPSHOT_RETIRING, SNAPSHOT_IN_TRANSIT, SNAPSHOT_BROKEN,
                                         SNAPSHOT_UNMAPPED};
  unsigned column = 7;
  fputs("slots: ", out);
  legend_item(out, style, &state_glyphs[SNAPSHOT_MAPPED], &column);
  legend_item(out, style, &partly_glyph, &column);
  for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
    legend_item(out, style, &state_glyphs[order[i]], &column);
  fprintf(out, "\nblocks: %s, the share of the cell that is live\n", style->utf8 ? "▁ to █" : "1 to 9 and @");
  if (!style->color) return;
  static const glyph layers[] = {{"█", "@", STYLE_MAGENTA, "slab"},
                                 {"█", "@", STYLE_GREEN, "mid"},
                                 {"█", "@", STYLE_BLUE, "buddy"},
                                 {"█", "@", STYLE_YELLOW, "region"}};
  column = 7;
  fputs("       ", out);
  for (size_t i = 0; i < sizeof(layers) / sizeof(layers[0]); i++) legend_item(out, style, &layers[i], &column);
  fputc('\n', out);
  if (style->classes) fputs("        slab's blocks have one of six colours, by size class\n", out);
}
