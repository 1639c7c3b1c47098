#include "tools/vmpool/byte_buffer.h"

#include <stdlib.h>
#include <string.h>

static bool make_room(byte_buffer *b, size_t count) {
  if (b->failed) return false;
  if (count <= b->capacity - b->count) return true;
  size_t capacity = b->capacity > 0 ? b->capacity : 256;
  while (capacity - b->count < count && capacity <= SIZE_MAX / 2) capacity *= 2;
  unsigned char *grown = capacity - b->count < count ? NULL : realloc(b->bytes, capacity);
  if (grown == NULL) {
    b->failed = true;
    return false;
  }
  b->bytes = grown;
  b->capacity = capacity;
  return true;
}

void byte_buffer_put(byte_buffer *b, const void *bytes, size_t count) {
  if (count == 0 || !make_room(b, count)) return;
  memcpy(b->bytes + b->count, bytes, count);
  b->count += count;
}

void byte_buffer_byte(byte_buffer *b, unsigned byte) {
  if (!make_room(b, 1)) return;
  b->bytes[b->count++] = (unsigned char)byte;
}

void byte_buffer_varint(byte_buffer *b, uint64_t value) {
  for (; value >= 128; value >>= 7) byte_buffer_byte(b, (unsigned)(value & 127) | 128);
  byte_buffer_byte(b, (unsigned)value);
}

void byte_buffer_zigzag(byte_buffer *b, int64_t value) {
  byte_buffer_varint(b, (uint64_t)value << 1 ^ (value < 0 ? UINT64_MAX : 0));
}

void byte_buffer_little(byte_buffer *b, uint64_t value, size_t count) {
  for (; count > 0; count--, value >>= 8) byte_buffer_byte(b, (unsigned)(value & 255));
}

void byte_buffer_free(byte_buffer *b) {
  free(b->bytes);
  memset(b, 0, sizeof(*b));
}
