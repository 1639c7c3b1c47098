// What is known of one address: from a snapshot what is there now, from a log what was.
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/vmpool/views.h"

// ---- from the snapshot ----

static const snapshot_range *range_of(const snapshot *s, uint64_t address) {
  for (size_t r = 0; r < s->num_ranges; r++) {
    if (address >= s->ranges[r].base && address - s->ranges[r].base < s->ranges[r].bytes) return &s->ranges[r];
  }
  return NULL;
}

static void put_state(FILE *out, const snapshot_range *range, uint64_t offset) {
  static const char *const words[] = {
      "is not mapped: a touch faults",           "has memory that live blocks share",
      "has parked memory: mapped, nobody's",     "is retiring: an old mapping that goes when GPU work is done",
      "is in transit: being mapped or unmapped", "is broken: its mapping could not be made or undone"};
  snapshot_state state = SNAPSHOT_UNMAPPED;
  for (size_t i = 0; i < range->num_runs; i++) {
    if (offset >= range->runs[i].offset && offset - range->runs[i].offset < range->runs[i].bytes) {
      state = range->runs[i].state;
    }
  }
  fprintf(out, "  the slot %s\n", words[state]);
}

static void put_block(FILE *out, const snapshot *s, const snapshot_range *range, const snapshot_block *block) {
  static const char *const layers[] = {"slab", "mid", "buddy", "region"};
  char size[SIZE_TEXT_BYTES];
  fprintf(out, "0x%" PRIx64 ", %s asked for, %s", range->base + block->offset, size_text(block->requested_bytes, size),
          layers[block->layer]);
  const char *tag = snapshot_tag(s, block->tag);
  if (tag[0] != '\0') {
    fputs(", tag \"", out);
    view_put_name(out, tag, 60);
    fputc('"', out);
  }
  if (block->name != NULL) {
    fputs(", name \"", out);
    view_put_name(out, block->name, 60);
    fputc('"', out);
  }
}

static void put_owner(FILE *out, const map_style *style, const snapshot *s, const snapshot_range *range,
                      uint64_t offset) {
  const snapshot_block *before = NULL, *after = NULL, *owner = NULL;
  char size[SIZE_TEXT_BYTES];
  for (size_t i = 0; i < range->num_blocks; i++) {
    const snapshot_block *block = &range->blocks[i];
    if (block->offset > offset) {
      after = block;
      break;
    }
    if (offset - block->offset < block->bytes) {
      owner = block;
    } else {
      before = block;
    }
  }
  fputs("  owner now: ", out);
  if (owner == NULL) {
    style_put(out, style, STYLE_YELLOW, "nobody");
  } else {
    put_block(out, s, range, owner);
    const uint64_t at = offset - owner->offset;
    fprintf(out, "\n             %" PRIu64 " bytes inside it", at);
    if (at >= owner->requested_bytes) {
      fprintf(out, ", ");
      style_put(out, style, STYLE_RED, "beyond what was asked for");
      fprintf(out, " by %" PRIu64 " bytes", at - owner->requested_bytes);
    }
  }
  fputc('\n', out);
  if (before != NULL) {
    fputs("  before it: ", out);
    put_block(out, s, range, before);
    fprintf(out, ", ends %s before\n", size_text(offset - before->offset - before->bytes, size));
  }
  if (after != NULL) {
    fputs("  behind it: ", out);
    put_block(out, s, range, after);
    fprintf(out, ", begins %s behind\n", size_text(after->offset - offset, size));
  }
}

static void why_now(FILE *out, const map_style *style, const snapshot *s, uint64_t address) {
  const snapshot_range *range = range_of(s, address);
  fputs("now, by the snapshot of ", out);
  view_head(out, s);
  if (range == NULL) {
    fputs("  it lies in no address space of this pool\n", out);
    return;
  }
  fprintf(out, "  in the reservation at 0x%" PRIx64 ", %" PRIu64 " bytes from its start\n", range->base,
          address - range->base);
  put_state(out, range, address - range->base);
  put_owner(out, style, s, range, address - range->base);
}

// ---- from the log ----

typedef struct history {
  vmp_log_record alloc, freed, mapped, retired, unmapped;
  bool has_alloc, has_freed, has_mapped, has_retired, has_unmapped;
  uint64_t allocs, last_ns;
} history;

static bool covers(const vmp_log_record *record, uint64_t address) {
  return address >= record->as.event.address && address - record->as.event.address < record->as.event.bytes;
}

static void see(history *h, const vmp_log_record *record, uint64_t address) {
  const bool state = (record->flags & VMP_LOG_STATE) != 0;
  switch (record->kind) {
    case VMP_LOG_ALLOC:
      if (!covers(record, address)) return;
      if (state && h->has_alloc) return;  // known already, with its stream
      h->allocs += !state;
      h->alloc = *record;
      h->has_alloc = true;
      h->has_freed = false;
      return;
    case VMP_LOG_FREE:
      if (!covers(record, address)) return;
      h->freed = *record;
      h->has_freed = true;
      return;
    case VMP_LOG_MAP:
    case VMP_LOG_TAKE:
      if (!covers(record, address) || (state && h->has_mapped)) return;
      h->mapped = *record;
      h->has_mapped = true;
      h->has_retired = h->has_unmapped = false;
      return;
    case VMP_LOG_RETIRE:
      if (!covers(record, address)) return;
      h->retired = *record;
      h->has_retired = true;
      return;
    case VMP_LOG_UNMAP:
      if (!covers(record, address)) return;
      h->unmapped = *record;
      h->has_unmapped = true;
      return;
    default: return;
  }
}

static void put_when(FILE *out, const history *h, const vmp_log_record *record) {
  const double ago = (double)(h->last_ns - record->time_ns) / 1e9;
  fprintf(out, "%.6f s before the log's end, record %" PRIu64 ", thread %" PRIu32, ago, record->sequence,
          record->thread);
  if (record->stream != VMP_LOG_NONE) fprintf(out, ", stream #%u", record->stream);
}

static void put_stack(FILE *out, const log_file *log, uint32_t id) {
  const log_stack stack = log_stack_of(log, id);
  char text[300];
  for (size_t i = 0; i < stack.count && i < 16; i++) {
    log_frame_text(log, stack.frames[i], text, sizeof(text));
    fputs("      ", out);
    view_put_name(out, text, sizeof(text));
    fputc('\n', out);
  }
}

static void put_alloc(FILE *out, const log_file *log, const history *h) {
  char size[SIZE_TEXT_BYTES];
  fprintf(out, "  %s: 0x%" PRIx64 ", %s asked for", h->has_freed ? "last owner" : "owner", h->alloc.as.event.address,
          size_text(h->alloc.as.event.extra, size));
  const char *tag = log_string(log, h->alloc.as.event.tag);
  if (tag[0] != '\0') {
    fputs(", tag \"", out);
    view_put_name(out, tag, 60);
    fputc('"', out);
  }
  if ((h->alloc.flags & VMP_LOG_STATE) != 0) {
    fputs("\n    allocated before what is left of the log\n", out);
    return;
  }
  fputs("\n    allocated ", out);
  put_when(out, h, &h->alloc);
  fputc('\n', out);
  put_stack(out, log, h->alloc.as.event.stack);
}

static void why_then(FILE *out, const map_style *style, const log_file *log, uint64_t end, uint64_t address) {
  history h = {.allocs = 0};
  vmp_log_record record;
  for (uint64_t s = log->first; s < end; s++) {
    if (!log_record(log, s, &record)) continue;
    h.last_ns = record.time_ns > h.last_ns ? record.time_ns : h.last_ns;
    see(&h, &record, address);
  }
  fprintf(out, "then, by the log (%" PRIu64 " records)\n", end - log->first);
  if (!h.has_alloc) fputs("  no block of the log has held it\n", out);
  if (h.has_alloc) put_alloc(out, log, &h);
  if (h.has_alloc && h.has_freed) {
    fputs("    ", out);
    style_put(out, style, STYLE_RED, "freed");
    fputs(" ", out);
    put_when(out, &h, &h.freed);
    fputc('\n', out);
  }
  if (h.allocs > 1) fprintf(out, "  it has been handed out %" PRIu64 " times\n", h.allocs);
  if (h.has_mapped) fprintf(out, "  mapped to chunk %" PRIu64 " ", h.mapped.as.event.extra);
  if (h.has_mapped) put_when(out, &h, &h.mapped);
  if (h.has_mapped) fputc('\n', out);
  if (h.has_retired) fprintf(out, "  its chunk serves another address since ");
  if (h.has_retired) put_when(out, &h, &h.retired);
  if (h.has_retired) fputc('\n', out);
  if (!h.has_unmapped) return;
  fputs("  ", out);
  style_put(out, style, STYLE_RED, "unmapped");
  fputs(" ", out);
  put_when(out, &h, &h.unmapped);
  fputc('\n', out);
}

void view_why(FILE *out, const map_style *style, const snapshot *s, const log_file *log, uint64_t address) {
  fprintf(out, "0x%" PRIx64 "\n", address);
  if (s != NULL) why_now(out, style, s, address);
  if (log == NULL) return;
  uint64_t end = log->end;
  if (s != NULL && !snapshot_is_null(s, "log")) {  // the snapshot's moment, not later
    const uint64_t records = snapshot_number(s, "log", "records");
    if (records < end && records >= log->first) end = records;
  }
  why_then(out, style, log, end, address);
}
