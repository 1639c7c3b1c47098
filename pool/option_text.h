// option_text.h: numbers, sizes, times and shares as text, both ways, and the distance between two words.
//
// Owns: the grammar of values. Does not own: keys, ranges, sources (pool/options.h). Pure functions; the locale
// has no influence. Texts are [text, text + length) and need no terminator.
//
// A parser returns NULL and sets *out, or returns what is wrong with the text and what would be right (static
// storage), with *out untouched.
#ifndef VMPOOL_POOL_OPTION_TEXT_H_
#define VMPOOL_POOL_OPTION_TEXT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// A size that is a multiple of the granule carries this bit until the granule is known.
#define VMP_SIZE_IN_GRANULES (UINT64_C(1) << 63)
// The largest size that can be given: far beyond any address space, and free of the bit above.
#define VMP_SIZE_MAX (UINT64_C(1) << 62)

// vmp_text_number reads decimal digits that fit 64 bits.
const char *vmp_text_number(const char *text, size_t length, uint64_t *out);
// vmp_text_size reads a number with an optional unit KiB, MiB, GiB, TiB, granule(s); with `allow_none` also "none"
// (UINT64_MAX).
const char *vmp_text_size(const char *text, size_t length, bool allow_none, uint64_t *out);
// vmp_text_micros reads a number with an optional unit us, ms, s.
const char *vmp_text_micros(const char *text, size_t length, uint64_t *out);
// vmp_text_share reads digits with at most nine decimals.
const char *vmp_text_share(const char *text, size_t length, double *out);

// Printing; the result reads back to the same value. Length as snprintf returns it.
size_t vmp_print_size(uint64_t bytes, char *buffer, size_t size);
size_t vmp_print_micros(uint64_t micros, char *buffer, size_t size);
size_t vmp_print_share(double share, char *buffer, size_t size);

// vmp_word_distance counts the letters to insert, delete, replace or swap to turn one word into the other;
// SIZE_MAX for words longer than 63 letters.
size_t vmp_word_distance(const char *a, size_t a_length, const char *b, size_t b_length);

#endif  // VMPOOL_POOL_OPTION_TEXT_H_
