#include "tools/common/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

const char *number_fault_text(number_fault fault) {
  switch (fault) {
    case NUMBER_OK: return "is fine";
    case NUMBER_EMPTY: return "is empty";
    case NUMBER_NEGATIVE: return "is negative";
    case NUMBER_TOO_LARGE: return "is too large";
    case NUMBER_NOT_A_NUMBER: break;
  }
  return "is not a whole number";
}

number_fault number_parse(const char *text, size_t length, uint64_t *out) {
  if (length == 0) return NUMBER_EMPTY;
  const bool negative = text[0] == '-' && length > 1;
  uint64_t value = 0;
  bool too_large = false;
  for (size_t i = negative ? 1 : 0; i < length; i++) {
    if (!is_digit(text[i])) return NUMBER_NOT_A_NUMBER;
    const uint64_t digit = (uint64_t)(text[i] - '0');
    too_large = too_large || __builtin_mul_overflow(value, UINT64_C(10), &value) ||
                __builtin_add_overflow(value, digit, &value);
  }
  if (negative) return NUMBER_NEGATIVE;
  if (too_large) return NUMBER_TOO_LARGE;
  *out = value;
  return NUMBER_OK;
}

number_fault number_parse_signed(const char *text, size_t length, int64_t *out) {
  const bool negative = length > 1 && text[0] == '-';
  if (negative) {
    text++;
    length--;
    if (text[0] == '-') return NUMBER_NOT_A_NUMBER;
  }
  uint64_t magnitude;
  const number_fault fault = number_parse(text, length, &magnitude);
  if (fault != NUMBER_OK) return fault;
  if (magnitude > INT64_MAX) return NUMBER_TOO_LARGE;
  *out = negative ? -(int64_t)magnitude : (int64_t)magnitude;
  return NUMBER_OK;
}

number_fault number_parse_address(const char *text, size_t length, uint64_t *out) {
  if (length < 2 || text[0] != '0' || (text[1] != 'x' && text[1] != 'X')) return number_parse(text, length, out);
  if (length == 2) return NUMBER_EMPTY;
  uint64_t value = 0;
  for (size_t i = 2; i < length; i++) {
    const char c = text[i];
    unsigned digit;
    if (is_digit(c)) {
      digit = (unsigned)(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = (unsigned)(c - 'a') + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = (unsigned)(c - 'A') + 10;
    } else {
      return NUMBER_NOT_A_NUMBER;
    }
    if (value >> 60 != 0) return NUMBER_TOO_LARGE;
    value = value << 4 | digit;
  }
  *out = value;
  return NUMBER_OK;
}

static number_fault parse_size(const char *text, size_t length, uint64_t *out) {
  static const struct {
    const char *suffix;
    unsigned shift;
  } units[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
  unsigned shift = 0;
  for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
    if (length >= 3 && strncmp(text + length - 3, units[i].suffix, 3) == 0) {
      shift = units[i].shift;
      length -= 3;
      break;
    }
  }
  uint64_t value;
  const number_fault fault = number_parse(text, length, &value);
  if (fault != NUMBER_OK) return fault;
  if (shift != 0 && value >> (64 - shift) != 0) return NUMBER_TOO_LARGE;
  *out = value << shift;
  return NUMBER_OK;
}

number_fault number_parse_size(const char *text, uint64_t *out) { return parse_size(text, strlen(text), out); }

static number_fault parse_range(const char *text, uint64_t *out_low, uint64_t *out_high,
                                number_fault (*parse)(const char *text, size_t length, uint64_t *out)) {
  const char *dots = strstr(text, "..");
  const size_t low_length = dots != NULL ? (size_t)(dots - text) : strlen(text);
  const char *high_text = dots != NULL ? dots + 2 : text;
  uint64_t low, high;
  number_fault fault = parse(text, low_length, &low);
  if (fault == NUMBER_OK) fault = parse(high_text, strlen(high_text), &high);
  if (fault != NUMBER_OK) return fault;
  if (low > high) return NUMBER_NOT_A_NUMBER;
  *out_low = low;
  *out_high = high;
  return NUMBER_OK;
}

number_fault number_parse_size_range(const char *text, uint64_t *out_low, uint64_t *out_high) {
  return parse_range(text, out_low, out_high, parse_size);
}

number_fault number_parse_range(const char *text, uint64_t *out_low, uint64_t *out_high) {
  return parse_range(text, out_low, out_high, number_parse);
}

number_fault number_parse_real(const char *text, double max, double *out) {
  if (text[0] == '\0') return NUMBER_EMPTY;
  if (strspn(text, "0123456789.eE+-") != strlen(text)) return NUMBER_NOT_A_NUMBER;  // no hex, inf, nan, spaces
  char *end;
  const double value = strtod(text, &end);
  if (end == text || *end != '\0') return NUMBER_NOT_A_NUMBER;
  if (value < 0) return NUMBER_NEGATIVE;
  if (!isfinite(value) || value > max) return NUMBER_TOO_LARGE;
  if (!(value > 0)) return NUMBER_NOT_A_NUMBER;
  *out = value;
  return NUMBER_OK;
}

const char *size_text(uint64_t bytes, char buffer[SIZE_TEXT_BYTES]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  unsigned unit = 0;
  double value = (double)bytes;
  while (unit < 6 && value >= 1023.5) {
    value /= 1024;
    unit++;
  }
  const bool exact = unit == 0 || bytes % (UINT64_C(1) << (10 * unit)) == 0;
  const int decimals = exact || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  snprintf(buffer, SIZE_TEXT_BYTES, "%.*f %s", decimals, value, units[unit]);
  return buffer;
}
