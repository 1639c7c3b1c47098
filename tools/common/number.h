// number.h: whole numbers, sizes and ranges from text, strictly: nothing is guessed, wrapped or cut.
//
// A negative number never becomes a large one, "12 34" and "1e9" are not numbers, 2^64 is too large.
#ifndef VMPOOL_TOOLS_COMMON_NUMBER_H_
#define VMPOOL_TOOLS_COMMON_NUMBER_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum number_fault {
  NUMBER_OK = 0,
  NUMBER_EMPTY,
  NUMBER_NEGATIVE,
  NUMBER_NOT_A_NUMBER,
  NUMBER_TOO_LARGE,
} number_fault;

// number_fault_text says what is wrong: "is empty", "is negative", ... Static storage.
const char *number_fault_text(number_fault fault);

// number_parse reads all `length` characters as a decimal number from 0 to 2^64 - 1. *out is set only on NUMBER_OK.
number_fault number_parse(const char *text, size_t length, uint64_t *out);

// number_parse_signed is the same from -(2^63 - 1) to 2^63 - 1; it never returns NUMBER_NEGATIVE.
number_fault number_parse_signed(const char *text, size_t length, int64_t *out);

// number_parse_address reads an address: hexadecimal after 0x, else decimal.
number_fault number_parse_address(const char *text, size_t length, uint64_t *out);

// number_parse_size reads a size in bytes: a number, alone or followed by KiB, MiB, GiB or TiB.
number_fault number_parse_size(const char *text, uint64_t *out);

// number_parse_size_range and number_parse_range read "LOW..HIGH", or one value for both; LOW must not be above HIGH
// (NUMBER_NOT_A_NUMBER).
number_fault number_parse_size_range(const char *text, uint64_t *out_low, uint64_t *out_high);
number_fault number_parse_range(const char *text, uint64_t *out_low, uint64_t *out_high);

// number_parse_real reads a finite number above 0 and at most `max`.
number_fault number_parse_real(const char *text, double max, double *out);

// size_text writes a size for people into `buffer` and returns it: "512 B", "1.25 MiB", "80 GiB". Three digits that
// count; exact multiples without a fraction.
#define SIZE_TEXT_BYTES 32
const char *size_text(uint64_t bytes, char buffer[SIZE_TEXT_BYTES]);

#endif  // VMPOOL_TOOLS_COMMON_NUMBER_H_
