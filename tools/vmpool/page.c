#include "tools/vmpool/page.h"

#include <stdint.h>
#include <string.h>
#include <zlib.h>

#include "tools/vmpool/page_template.h"

#define MARK "<!--@DATA@-->"

// The mark is in the template exactly once: build.mjs puts it there, and a test looks.
static const char *find_mark(void) {
  return memmem(page_template, (size_t)(page_template_end - page_template), MARK, strlen(MARK));
}

void page_begin(FILE *out) { fwrite(page_template, 1, (size_t)(find_mark() - page_template), out); }

void page_end(FILE *out) {
  const char *rest = find_mark() + strlen(MARK);
  fwrite(rest, 1, (size_t)(page_template_end - rest), out);
}

// ---- base64 ----

// base64: three bytes become four characters; up to two bytes wait for their third.
typedef struct base64 {
  FILE *out;
  unsigned char waiting[3];
  size_t num_waiting;
} base64;

static void put_group(base64 *b) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const unsigned char *w = b->waiting;
  const char text[4] = {digits[w[0] >> 2], digits[(w[0] & 3) << 4 | w[1] >> 4],
                        b->num_waiting > 1 ? digits[(w[1] & 15) << 2 | w[2] >> 6] : '=',
                        b->num_waiting > 2 ? digits[w[2] & 63] : '='};
  fwrite(text, 1, sizeof(text), b->out);
  b->num_waiting = 0;
  memset(b->waiting, 0, sizeof(b->waiting));
}

static void put_bytes(base64 *b, const unsigned char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    b->waiting[b->num_waiting++] = bytes[i];
    if (b->num_waiting == 3) put_group(b);
  }
}

static void put_end(base64 *b) {
  if (b->num_waiting > 0) put_group(b);
}

// ---- a block of data ----

// Characters that mean something in an attribute are written as references; control characters as '?'.
static void put_attribute(FILE *out, const char *text) {
  for (; *text != '\0'; text++) {
    const unsigned char c = (unsigned char)*text;
    if (c == '&' || c == '<' || c == '>' || c == '"' || c == '\'') {
      fprintf(out, "&#%u;", c);
    } else {
      fputc(c < 32 || c == 127 ? '?' : c, out);
    }
  }
}

// deflate64 writes raw deflate of the bytes as base64. zlib counts in unsigned int: the input goes in by pieces.
static bool deflate64(FILE *out, const unsigned char *data, size_t bytes) {
  enum { PIECE = 1 << 20 };
  unsigned char buffer[1 << 14];
  z_stream z = {0};
  base64 b = {.out = out};
  if (deflateInit2(&z, 6, Z_DEFLATED, -15, 9, Z_DEFAULT_STRATEGY) != Z_OK) return false;
  size_t given = 0;
  int status = Z_OK;
  while (status != Z_STREAM_END) {
    if (z.avail_in == 0 && given < bytes) {
      const size_t piece = bytes - given < PIECE ? bytes - given : PIECE;
      z.next_in = (Bytef *)(uintptr_t)(data + given);
      z.avail_in = (uInt)piece;
      given += piece;
    }
    z.next_out = buffer;
    z.avail_out = sizeof(buffer);
    status = deflate(&z, given == bytes ? Z_FINISH : Z_NO_FLUSH);
    put_bytes(&b, buffer, sizeof(buffer) - z.avail_out);
  }
  deflateEnd(&z);
  put_end(&b);
  return true;
}

bool page_data(FILE *out, const char *id, const char *name, const void *data, size_t bytes, tool_error *error) {
  fprintf(out, "<script type=\"application/octet-stream\" id=\"%s\" data-bytes=\"%zu\" data-name=\"", id, bytes);
  put_attribute(out, name);
  fputs("\">", out);
  if (!deflate64(out, data, bytes)) return tool_fail(error, "host memory ran out");
  fputs("</script>\n", out);
  return true;
}
