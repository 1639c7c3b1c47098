// json.c: see json.h.
#include "pool/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "vmm/memory.h"

#define FIRST_CAPACITY 4096

// room makes sure that `more` bytes fit behind the text.
static bool room(vmp_json *json, size_t more) {
  if (json->failed) return false;
  if (json->capacity - json->length >= more) return true;
  size_t capacity = json->capacity == 0 ? FIRST_CAPACITY : json->capacity;
  while (capacity - json->length < more) {
    if (capacity > SIZE_MAX / 2) {
      json->failed = true;
      return false;
    }
    capacity *= 2;
  }
  char *text = vmp_mem_resize(json->text, json->capacity, capacity, 1);
  if (text == NULL) {
    json->failed = true;
    return false;
  }
  json->text = text;
  json->capacity = capacity;
  return true;
}

bool vmp_json_reserve(vmp_json *json, size_t bytes) {
  if (json->failed || bytes <= json->capacity) return !json->failed;
  char *text = vmp_mem_resize(json->text, json->capacity, bytes, 1);
  if (text == NULL) return false;
  json->text = text;
  json->capacity = bytes;
  return true;
}

static void put(vmp_json *json, const char *text, size_t length) {
  if (!room(json, length)) return;
  memcpy(json->text + json->length, text, length);
  json->length += length;
}

static void put_text(vmp_json *json, const char *text) { put(json, text, strlen(text)); }

static void new_line(vmp_json *json) {
  put(json, "\n", 1);
  for (unsigned i = 0; i < json->depth; i++) put(json, "  ", 2);
}

static bool on_one_line(const vmp_json *json) { return json->depth > 0 && json->inline_level[json->depth - 1]; }

// begin_element writes what stands before an element: comma, line, key.
static void begin_element(vmp_json *json, const char *key) {
  if (json->has_element[json->depth]) put_text(json, on_one_line(json) ? ", " : ",");
  json->has_element[json->depth] = true;
  if (json->depth > 0 && !on_one_line(json)) new_line(json);
  if (key == NULL) return;
  put_text(json, "\"");
  put_text(json, key);
  put_text(json, "\": ");
}

static void open_level(vmp_json *json, const char *key, char bracket, bool on_line) {
  begin_element(json, key);
  if (json->depth == VMP_JSON_MAX_DEPTH) {
    json->failed = true;
    return;
  }
  put(json, &bracket, 1);
  json->closers[json->depth] = bracket == '{' ? '}' : ']';
  json->inline_level[json->depth] = on_line || on_one_line(json);
  json->depth++;
  json->has_element[json->depth] = false;
}

void vmp_json_open(vmp_json *json, const char *key, char bracket) { open_level(json, key, bracket, false); }

void vmp_json_open_inline(vmp_json *json, const char *key, char bracket) { open_level(json, key, bracket, true); }

void vmp_json_close(vmp_json *json) {
  if (json->depth == 0) {
    json->failed = true;
    return;
  }
  bool empty = !json->has_element[json->depth];
  json->depth--;
  if (!empty && !json->inline_level[json->depth]) new_line(json);
  put(json, &json->closers[json->depth], 1);
  if (json->depth == 0) put_text(json, "\n");
}

void vmp_json_uint(vmp_json *json, const char *key, uint64_t value) {
  char text[24];
  begin_element(json, key);
  (void)snprintf(text, sizeof text, "%" PRIu64, value);
  put_text(json, text);
}

void vmp_json_int(vmp_json *json, const char *key, int64_t value) {
  char text[24];
  begin_element(json, key);
  (void)snprintf(text, sizeof text, "%" PRId64, value);
  put_text(json, text);
}

void vmp_json_bool(vmp_json *json, const char *key, bool value) {
  begin_element(json, key);
  put_text(json, value ? "true" : "false");
}

void vmp_json_null(vmp_json *json, const char *key) {
  begin_element(json, key);
  put_text(json, "null");
}

void vmp_json_limit(vmp_json *json, const char *key, uint64_t value) {
  if (value == UINT64_MAX) {
    vmp_json_null(json, key);
  } else {
    vmp_json_uint(json, key, value);
  }
}

void vmp_json_hex(vmp_json *json, const char *key, uint64_t value) {
  char text[24];
  begin_element(json, key);
  (void)snprintf(text, sizeof text, "\"0x%" PRIx64 "\"", value);
  put_text(json, text);
}

// utf8_length returns how many bytes the character at `s` has, or 0 where there is no valid character (an overlong
// form, a surrogate, beyond U+10FFFF, cut off by the terminator).
static size_t utf8_length(const unsigned char *s) {
  if (s[0] < 0x80) return 1;
  if (s[0] < 0xc2 || s[0] > 0xf4) return 0;
  size_t length = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
  for (size_t i = 1; i < length; i++) {
    if ((s[i] & 0xc0) != 0x80) return 0;
  }
  if (s[0] == 0xe0 && s[1] < 0xa0) return 0;
  if (s[0] == 0xed && s[1] > 0x9f) return 0;
  if (s[0] == 0xf0 && s[1] < 0x90) return 0;
  if (s[0] == 0xf4 && s[1] > 0x8f) return 0;
  return length;
}

// put_character writes the character at `s`, escaped as needed, and returns how many bytes of `s` it took.
static size_t put_character(vmp_json *json, const unsigned char *s) {
  char escape[8];
  if (s[0] == '"' || s[0] == '\\') {
    escape[0] = '\\';
    escape[1] = (char)s[0];
    put(json, escape, 2);
    return 1;
  }
  if (s[0] < 0x20 || s[0] == 0x7f) {
    (void)snprintf(escape, sizeof escape, "\\u%04x", (unsigned)s[0]);
    put(json, escape, 6);
    return 1;
  }
  size_t length = utf8_length(s);
  if (length == 0) {
    put_text(json, "\\ufffd");
    return 1;
  }
  put(json, (const char *)s, length);
  return length;
}

void vmp_json_string(vmp_json *json, const char *key, const char *value) {
  if (value == NULL) {
    vmp_json_null(json, key);
    return;
  }
  begin_element(json, key);
  put_text(json, "\"");
  for (const unsigned char *s = (const unsigned char *)value; *s != '\0';) s += put_character(json, s);
  put_text(json, "\"");
}

bool vmp_json_failed(const vmp_json *json) { return json->failed || json->depth != 0; }

void vmp_json_free(vmp_json *json) {
  vmp_mem_free(json->text);
  memset(json, 0, sizeof *json);
}
