// pickle.h: Python pickles (protocol 4) of dicts, lists, texts and whole numbers, written as a stream.
//
// Owns: the opcodes, which texts have been written before (they are referred to), batches of list items. Uses nothing
// that PyTorch's memory viewer doesn't read: PROTO EMPTY_DICT EMPTY_LIST MARK SETITEMS APPENDS SHORT_BINUNICODE MEMOIZE
// BINGET LONG_BINGET BININT BININT1 LONG1 TUPLE2 STOP; no number needs more than 8 bytes, no batch holds more than
// 1,000 items.
//
//     pickle_list(p); for (...) { pickle_item(p); pickle_size(p, x); } pickle_list_end(p);
//     pickle_dict(p); pickle_key(p, "addr"); pickle_size(p, x); pickle_dict_end(p);
#ifndef VMPOOL_TOOLS_EXPORT_PICKLE_H_
#define VMPOOL_TOOLS_EXPORT_PICKLE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PICKLE_MAX_KEYS 64u
#define PICKLE_MAX_DEPTH 8u

typedef struct pickle {
  FILE *out;
  uint32_t num_memo;
  const char *keys[PICKLE_MAX_KEYS];  // literals, compared by content
  uint32_t key_memo[PICKLE_MAX_KEYS];
  size_t num_keys;
  uint32_t items[PICKLE_MAX_DEPTH];  // of the lists that are open, in the batch
  size_t depth;
} pickle;

void pickle_begin(pickle *p, FILE *out);
void pickle_end(pickle *p);

void pickle_dict(pickle *p);
// pickle_key writes a key that is a literal of the program.
void pickle_key(pickle *p, const char *key);
void pickle_dict_end(pickle *p);

void pickle_list(pickle *p);
// pickle_item is called before each item.
void pickle_item(pickle *p);
void pickle_list_end(pickle *p);

// pickle_size writes a number below 2^63. pickle_pair writes a tuple of two.
void pickle_size(pickle *p, uint64_t value);
void pickle_pair(pickle *p, uint64_t a, uint64_t b);
// pickle_text writes a text, cut to 255 bytes; what is no UTF-8 becomes '?'.
void pickle_text(pickle *p, const char *text);

// pickle_memoize remembers what was written last, and returns its number; pickle_again writes it once more.
uint32_t pickle_memoize(pickle *p);
void pickle_again(pickle *p, uint32_t number);

#endif  // VMPOOL_TOOLS_EXPORT_PICKLE_H_
