#include "tools/vmpool/look.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/vmpool/commands.h"

const char look_text[] =
    "SNAPSHOT is a file that vmp_pool_snapshot wrote, - for standard input, or a live pool by its process or name "
    "(vmpool ps): the whole of it with VMP_CONF=control:1, sizes and mapped addresses with live:1.";

static error_t parse_color(const char *text, look *out, tool_error *error) {
  static const char *const names[] = {"auto", "never", "always"};
  for (int i = 0; i < 3; i++) {
    if (strcmp(text, names[i]) != 0) continue;
    out->color = (style_when)i;
    return 0;
  }
  return cmd_bad(error, "--color: '%s' is none of auto, never and always", text);
}

error_t look_parse(int key, const char *text, look *out, tool_error *error) {
  switch (key) {
    case LOOK_WIDTH: return cmd_number("--width", text, STYLE_MIN_WIDTH, STYLE_MAX_WIDTH, &out->width, error);
    case LOOK_ASCII: out->ascii = true; return 0;
    case LOOK_COLOR: return parse_color(text, out, error);
    default: return ARGP_ERR_UNKNOWN;
  }
}

map_style look_style(const look *l) { return style_of(stdout, (unsigned)l->width, l->ascii, l->color); }

static bool ask_pool(snapshot *out, const char *source, const live_pool *pool, tool_error *error) {
  char *text = NULL;
  size_t bytes = 0;
  if (!live_ask(pool, "snapshot", &text, &bytes, error)) return false;
  const char *body = memchr(text, '\n', bytes);
  const bool good = body != NULL ? snapshot_parse(out, source, body + 1, bytes - (size_t)(body + 1 - text), error)
                                 : tool_fail(error, "the pool %s gives no snapshot", source);
  free(text);
  return good;
}

// A pool that takes no requests, or hangs, still shows its sizes and its mapped addresses.
static bool open_live(snapshot *out, const char *source, tool_error *error) {
  live_pool pool;
  if (!live_find(LIVE_FOLDER, source, &pool, error)) return false;
  return ask_pool(out, source, &pool, error) || look_live(out, LIVE_FOLDER, &pool, error);
}

bool look_open(snapshot *out, const char *source, tool_error *error) {
  // What looks like a path is one, also when it is missing.
  const bool path = strcmp(source, "-") == 0 || strchr(source, '/') != NULL || strchr(source, '.') != NULL ||
                    access(source, F_OK) == 0;
  return path ? snapshot_load(out, source, error) : open_live(out, source, error);
}
