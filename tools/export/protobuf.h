// protobuf.h: messages of protocol buffers, written field by field into a buffer.
#ifndef VMPOOL_TOOLS_EXPORT_PROTOBUF_H_
#define VMPOOL_TOOLS_EXPORT_PROTOBUF_H_

#include <string.h>

#include "tools/vmpool/byte_buffer.h"

enum { PROTOBUF_VARINT = 0, PROTOBUF_BYTES = 2 };

static inline void protobuf_size(byte_buffer *b, unsigned field, uint64_t value) {
  byte_buffer_varint(b, field << 3 | PROTOBUF_VARINT);
  byte_buffer_varint(b, value);
}

static inline void protobuf_bytes(byte_buffer *b, unsigned field, const void *bytes, size_t count) {
  byte_buffer_varint(b, field << 3 | PROTOBUF_BYTES);
  byte_buffer_varint(b, count);
  byte_buffer_put(b, bytes, count);
}

static inline void protobuf_text(byte_buffer *b, unsigned field, const char *text) {
  protobuf_bytes(b, field, text, strlen(text));
}

// protobuf_message puts a message into another one, and empties it.
static inline void protobuf_message(byte_buffer *b, unsigned field, byte_buffer *message) {
  protobuf_bytes(b, field, message->bytes, message->count);
  if (message->failed) b->failed = true;
  message->count = 0;
}

#endif  // VMPOOL_TOOLS_EXPORT_PROTOBUF_H_
