#include "tools/export/pickle.h"

#include <string.h>

#include "tools/export/utf8.h"

enum {
  OP_PROTO = 0x80,
  OP_TUPLE2 = 0x86,
  OP_LONG1 = 0x8a,
  OP_SHORT_BINUNICODE = 0x8c,
  OP_MEMOIZE = 0x94,
};
#define BATCH 1000u
#define MAX_TEXT 255u

static void put(pickle *p, unsigned byte) { fputc((int)byte, p->out); }

static void put_little(pickle *p, uint64_t value, size_t bytes) {
  for (; bytes > 0; bytes--, value >>= 8) put(p, (unsigned)(value & 255));
}

void pickle_begin(pickle *p, FILE *out) {
  memset(p, 0, sizeof(*p));
  p->out = out;
  put(p, OP_PROTO);
  put(p, 4);
}

void pickle_end(pickle *p) { put(p, '.'); }

uint32_t pickle_memoize(pickle *p) {
  put(p, OP_MEMOIZE);
  return p->num_memo++;
}

void pickle_again(pickle *p, uint32_t number) {
  put(p, number < 256 ? 'h' : 'j');
  put_little(p, number, number < 256 ? 1 : 4);
}

void pickle_text(pickle *p, const char *text) {
  char clean[MAX_TEXT + 1];
  const size_t length = utf8_clean(clean, sizeof(clean), text);
  put(p, OP_SHORT_BINUNICODE);
  put(p, (unsigned)length);
  fwrite(clean, 1, length, p->out);
}

void pickle_size(pickle *p, uint64_t value) {
  if (value < 256) {
    put(p, 'K');
    put_little(p, value, 1);
  } else if (value <= INT32_MAX) {
    put(p, 'J');
    put_little(p, value, 4);
  } else {
    put(p, OP_LONG1);  // signed: eight bytes hold what is below 2^63
    put(p, 8);
    put_little(p, value, 8);
  }
}

void pickle_pair(pickle *p, uint64_t a, uint64_t b) {
  pickle_size(p, a);
  pickle_size(p, b);
  put(p, OP_TUPLE2);
}

void pickle_dict(pickle *p) {
  put(p, '}');
  put(p, '(');
}

void pickle_dict_end(pickle *p) { put(p, 'u'); }

void pickle_key(pickle *p, const char *key) {
  for (size_t i = 0; i < p->num_keys; i++) {
    if (strcmp(p->keys[i], key) == 0) {
      pickle_again(p, p->key_memo[i]);
      return;
    }
  }
  pickle_text(p, key);
  if (p->num_keys == PICKLE_MAX_KEYS) return;
  p->keys[p->num_keys] = key;
  p->key_memo[p->num_keys++] = pickle_memoize(p);
}

void pickle_list(pickle *p) {
  put(p, ']');
  put(p, '(');
  p->items[p->depth++] = 0;
}

void pickle_item(pickle *p) {
  uint32_t *items = &p->items[p->depth - 1];
  if (*items == BATCH) {
    put(p, 'e');
    put(p, '(');
    *items = 0;
  }
  ++*items;
}

void pickle_list_end(pickle *p) {
  put(p, 'e');
  p->depth--;
}
