// json.h: a small writer of strict JSON (RFC 8259) into memory.
//
// Owns: the growing text, commas, indentation, escaping. Does not own: what is written, and files (save_file.h).
//
//     vmp_json json = {0};
//     vmp_json_open(&json, NULL, '{');          {
//     vmp_json_string(&json, "name", "a\"b");     "name": "a\"b",
//     vmp_json_open(&json, "list", '[');          "list": [
//     vmp_json_uint(&json, NULL, 7);                7
//     vmp_json_close(&json);                      ]
//     vmp_json_close(&json);                    }
//
// Rules
//   - `key` names a member of an object and is NULL in an array and at the top. Keys are plain ASCII.
//   - Strings may hold anything: quotes, backslashes and control characters are escaped, bytes that are no UTF-8
//     become U+FFFD. The text is always valid UTF-8.
//   - Numbers are integers, written in full. What doesn't survive a double (addresses, masks) is written as a hex
//     string: vmp_json_hex. Floating point is never written.
//   - Once memory runs out, every later call does nothing and vmp_json_failed is true.
// Not thread-safe; a writer belongs to one thread.
#ifndef VMPOOL_POOL_JSON_H_
#define VMPOOL_POOL_JSON_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VMP_JSON_MAX_DEPTH 16

typedef struct vmp_json {  // zero it before use
  char *text;              // `length` bytes; not terminated
  size_t length, capacity;
  bool failed;
  unsigned depth;
  char closers[VMP_JSON_MAX_DEPTH];  // '}' or ']' of each open level
  bool inline_level[VMP_JSON_MAX_DEPTH];
  bool has_element[VMP_JSON_MAX_DEPTH + 1];
} vmp_json;

// vmp_json_reserve makes room for a text of `bytes` bytes, so that writing so many asks for no memory. False: there is
// none; the writer has not failed, and goes on with what it has.
bool vmp_json_reserve(vmp_json *json, size_t bytes);

// vmp_json_open begins an object ('{') or an array ('['), one element to a line; vmp_json_open_inline the same on one
// line (for rows of tables). vmp_json_close ends the innermost one.
void vmp_json_open(vmp_json *json, const char *key, char bracket);
void vmp_json_open_inline(vmp_json *json, const char *key, char bracket);
void vmp_json_close(vmp_json *json);

void vmp_json_uint(vmp_json *json, const char *key, uint64_t value);
void vmp_json_int(vmp_json *json, const char *key, int64_t value);
void vmp_json_bool(vmp_json *json, const char *key, bool value);
void vmp_json_null(vmp_json *json, const char *key);
// vmp_json_limit writes a number, or null for UINT64_MAX ("none").
void vmp_json_limit(vmp_json *json, const char *key, uint64_t value);
// vmp_json_hex writes "0x1f".
void vmp_json_hex(vmp_json *json, const char *key, uint64_t value);
// vmp_json_string writes a terminated string; NULL is written as null.
void vmp_json_string(vmp_json *json, const char *key, const char *value);

// vmp_json_failed: whether host memory ran out, or brackets don't match.
bool vmp_json_failed(const vmp_json *json);
// vmp_json_free frees the text and zeroes the writer.
void vmp_json_free(vmp_json *json);

#endif  // VMPOOL_POOL_JSON_H_
