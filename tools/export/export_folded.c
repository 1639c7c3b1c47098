// Folded stacks ("a;b;c BYTES"), for flame graphs of live bytes. With a log that has stacks: where each block was
// allocated; else what it is: layer, tag, size.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/export/export.h"
#include "tools/export/rows.h"
#include "tools/log/log_state.h"
#include "tools/log/log_walk.h"

// A frame's text may hold neither the separator nor a line break.
static void put_frame(FILE *out, const char *text) {
  for (; *text != '\0'; text++) fputc(*text == ';' ? ':' : (unsigned char)*text < 32 ? '?' : *text, out);
}

// Stacks are sampled: a block without one is counted under its tag.
static void put_stack(FILE *out, const export_input *in, const log_block *block) {
  const log_stack stack = log_stack_of(in->log, block->stack);
  const char *tag = log_string(in->log, block->tag);
  char text[512];
  if (stack.count == 0) {
    fputs("(no stack);", out);
    put_frame(out, tag[0] != '\0' ? tag : "(no tag)");
  }
  for (size_t i = stack.count; i > 0; i--) {
    log_frame_text(in->log, stack.frames[i - 1], text, sizeof(text));
    put_frame(out, text);
    if (i > 1) fputc(';', out);
  }
  fprintf(out, " %" PRIu64 "\n", block->bytes);
}

static bool fold_log(FILE *out, const export_input *in, tool_error *error) {
  log_state state = {0};
  log_walk walk = log_walk_begin(in->log, in->log_end);
  vmp_log_record record;
  bool initial, good = true;
  while (good && log_walk_next(&walk, &record, &initial)) good = log_state_apply(&state, &record);
  for (size_t i = 0; good && i < state.num_blocks; i++) put_stack(out, in, &state.blocks[i]);
  log_state_destroy(&state);
  return good || tool_fail(error, "host memory ran out");
}

static bool has_stacks(const log_file *log) {
  vmp_log_record record;
  for (uint64_t s = log->first; s < log->end; s++) {
    if (log_record(log, s, &record) && record.kind == VMP_LOG_STACK) return true;
  }
  return false;
}

bool export_folded(FILE *out, const export_input *in, tool_error *error) {
  if (in->log != NULL && has_stacks(in->log)) return fold_log(out, in, error);
  const json_t *ranges = json_object_get(in->document, "ranges");
  for (size_t r = 0; r < json_array_size(ranges); r++) {
    const json_t *rows = json_object_get(json_array_get(ranges, r), "blocks");
    for (size_t i = 0; i < json_array_size(rows); i++) {
      const json_t *row = json_array_get(rows, i);
      const char *label = block_label(in->document, row);
      char size[SIZE_TEXT_BYTES];
      put_frame(out, row_text(row, 3));
      fputc(';', out);
      put_frame(out, label[0] != '\0' ? label : "(no tag)");
      fprintf(out, ";%s %" PRIu64 "\n", size_text(row_size(row, 1), size), row_size(row, 1));
    }
  }
  return true;
}
