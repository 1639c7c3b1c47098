#include "tools/export/utf8.h"

#include <stdint.h>
#include <string.h>

// character_bytes: the length of the well-formed character at `text` (Unicode, table 3-7), 0 where there is none.
static size_t character_bytes(const unsigned char *text) {
  static const struct {
    unsigned char first_low, first_high, second_low, second_high, length;
  } forms[] = {
      {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
      {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
      {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
  };
  if (text[0] >= 32 && text[0] < 127) return 1;
  for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
    if (text[0] < forms[i].first_low || text[0] > forms[i].first_high) continue;
    if (text[1] < forms[i].second_low || text[1] > forms[i].second_high) return 0;
    for (size_t k = 2; k < forms[i].length; k++) {
      if ((text[k] & 0xc0) != 0x80) return 0;
    }
    return forms[i].length;
  }
  return 0;
}

size_t utf8_clean(char *out, size_t out_bytes, const char *text) {
  const unsigned char *in = (const unsigned char *)text;
  size_t length = 0;
  while (*in != '\0') {
    const size_t bytes = character_bytes(in);
    const size_t wanted = bytes > 0 ? bytes : 1;
    if (wanted >= out_bytes - length) break;
    if (bytes > 0) {
      memcpy(out + length, in, bytes);
    } else {
      out[length] = '?';
    }
    length += wanted;
    in += wanted;
  }
  out[length] = '\0';
  return length;
}
