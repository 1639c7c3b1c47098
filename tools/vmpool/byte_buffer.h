// byte_buffer.h: bytes that grow at their end. A failed growth is remembered; appending to a failed buffer does
// nothing, so that a writer checks once, at its end.
#ifndef VMPOOL_TOOLS_VMPOOL_BYTE_BUFFER_H_
#define VMPOOL_TOOLS_VMPOOL_BYTE_BUFFER_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A zeroed buffer is empty and ready. byte_buffer_free leaves it so.
typedef struct byte_buffer {
  unsigned char *bytes;
  size_t count, capacity;
  bool failed;
} byte_buffer;

void byte_buffer_put(byte_buffer *b, const void *bytes, size_t count);
void byte_buffer_byte(byte_buffer *b, unsigned byte);
// byte_buffer_varint: seven bits a byte, the lowest first. byte_buffer_zigzag: the same for what may be negative.
void byte_buffer_varint(byte_buffer *b, uint64_t value);
void byte_buffer_zigzag(byte_buffer *b, int64_t value);
// byte_buffer_little: the lowest `count` bytes of the value, the lowest first.
void byte_buffer_little(byte_buffer *b, uint64_t value, size_t count);
void byte_buffer_free(byte_buffer *b);

#endif  // VMPOOL_TOOLS_VMPOOL_BYTE_BUFFER_H_
