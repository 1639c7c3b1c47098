// option_text.c: see option_text.h.
#include "pool/option_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "vmm/align.h"

typedef struct unit {
  const char *name;
  uint64_t factor;
} unit;

static const unit size_units[] = {
    {"KiB", UINT64_C(1) << 10}, {"MiB", UINT64_C(1) << 20}, {"GiB", UINT64_C(1) << 30}, {"TiB", UINT64_C(1) << 40}};
static const unit time_units[] = {{"us", 1}, {"ms", 1000}, {"s", 1000000}};

static bool equals(const char *text, size_t length, const char *word) {
  return strlen(word) == length && memcmp(text, word, length) == 0;
}

// digits reads leading decimal digits; *used is how many. False when the number doesn't fit.
static bool digits(const char *text, size_t length, size_t *used, uint64_t *out) {
  uint64_t value = 0;
  size_t i = 0;
  for (; i < length && text[i] >= '0' && text[i] <= '9'; i++) {
    if (!vmp_mul(value, 10, &value) || !vmp_add(value, (uint64_t)(text[i] - '0'), &value)) return false;
  }
  *used = i;
  *out = value;
  return true;
}

// number_with_rest reads a number and leaves the text behind it.
static const char *number_with_rest(const char *text, size_t length, uint64_t *out, const char **rest,
                                    size_t *rest_length) {
  if (length == 0) return "the value is missing";
  if (text[0] == '-') return "it is negative; write a number from 0 upwards";
  size_t used;
  uint64_t value;
  if (!digits(text, length, &used, &value)) return "it doesn't fit 64 bits";
  if (used == 0) return "it doesn't begin with a digit; write a decimal number";
  *out = value;
  *rest = text + used;
  *rest_length = length - used;
  return NULL;
}

static const unit *find_unit(const unit *units, size_t count, const char *text, size_t length) {
  for (size_t i = 0; i < count; i++) {
    if (equals(text, length, units[i].name)) return &units[i];
  }
  return NULL;
}

const char *vmp_text_number(const char *text, size_t length, uint64_t *out) {
  const char *rest;
  size_t rest_length;
  uint64_t value;
  const char *wrong = number_with_rest(text, length, &value, &rest, &rest_length);
  if (wrong != NULL) return wrong;
  if (rest_length != 0) return "something follows the digits; write a plain decimal number";
  *out = value;
  return NULL;
}

const char *vmp_text_size(const char *text, size_t length, bool allow_none, uint64_t *out) {
  if (allow_none && equals(text, length, "none")) {
    *out = UINT64_MAX;
    return NULL;
  }
  const char *rest;
  size_t rest_length;
  uint64_t value;
  const char *wrong = number_with_rest(text, length, &value, &rest, &rest_length);
  if (wrong != NULL) return wrong;
  if (rest_length > 0 && rest[0] == ' ') {  // "32 MiB"
    rest++;
    rest_length--;
  }
  uint64_t flag = 0;
  if (equals(rest, rest_length, "granule") || equals(rest, rest_length, "granules")) {
    flag = VMP_SIZE_IN_GRANULES;
  } else if (rest_length != 0) {
    const unit *u = find_unit(size_units, sizeof size_units / sizeof size_units[0], rest, rest_length);
    if (u == NULL) return "its unit is unknown; the units are KiB, MiB, GiB, TiB and granules";
    if (!vmp_mul(value, u->factor, &value)) return "it doesn't fit 64 bits";
  }
  if (value > VMP_SIZE_MAX) return "it is larger than any address space";
  *out = value | flag;
  return NULL;
}

const char *vmp_text_micros(const char *text, size_t length, uint64_t *out) {
  const char *rest;
  size_t rest_length;
  uint64_t value;
  const char *wrong = number_with_rest(text, length, &value, &rest, &rest_length);
  if (wrong != NULL) return wrong;
  if (rest_length != 0) {
    const unit *u = find_unit(time_units, sizeof time_units / sizeof time_units[0], rest, rest_length);
    if (u == NULL) return "its unit is unknown; the units are us, ms and s";
    if (!vmp_mul(value, u->factor, &value)) return "it doesn't fit 64 bits";
  }
  *out = value;
  return NULL;
}

const char *vmp_text_share(const char *text, size_t length, double *out) {
  static const char grammar[] = "write a number from 0 to 1, such as 0.75, with at most nine decimals";
  size_t used, decimals = 0;
  uint64_t whole, part = 0;
  if (length == 0) return "the value is missing";
  if (!digits(text, length, &used, &whole) || used == 0) return grammar;
  if (used < length) {
    if (text[used] != '.' || used + 1 == length) return grammar;
    const char *rest = text + used + 1;
    size_t rest_length = length - used - 1;
    if (rest_length > 9 || !digits(rest, rest_length, &decimals, &part) || decimals != rest_length) return grammar;
  }
  double scale = 1;
  for (size_t i = 0; i < decimals; i++) scale *= 10;
  *out = (double)whole + (double)part / scale;
  return NULL;
}

size_t vmp_print_size(uint64_t bytes, char *buffer, size_t size) {
  if (bytes == UINT64_MAX) return (size_t)snprintf(buffer, size, "none");
  if ((bytes & VMP_SIZE_IN_GRANULES) != 0) {
    return (size_t)snprintf(buffer, size, "%" PRIu64 "granules", bytes & ~VMP_SIZE_IN_GRANULES);
  }
  for (size_t i = sizeof size_units / sizeof size_units[0]; i-- > 0;) {
    if (bytes != 0 && bytes % size_units[i].factor == 0) {
      return (size_t)snprintf(buffer, size, "%" PRIu64 "%s", bytes / size_units[i].factor, size_units[i].name);
    }
  }
  return (size_t)snprintf(buffer, size, "%" PRIu64, bytes);
}

size_t vmp_print_micros(uint64_t micros, char *buffer, size_t size) {
  for (size_t i = sizeof time_units / sizeof time_units[0]; i-- > 0;) {
    if (micros % time_units[i].factor == 0) {
      return (size_t)snprintf(buffer, size, "%" PRIu64 "%s", micros / time_units[i].factor, time_units[i].name);
    }
  }
  return 0;  // not reached: every number is a multiple of 1 us
}

size_t vmp_print_share(double share, char *buffer, size_t size) {
  uint64_t billionths = (uint64_t)(share * 1e9 + 0.5);
  uint64_t whole = billionths / 1000000000, part = billionths % 1000000000;
  if (part == 0) return (size_t)snprintf(buffer, size, "%" PRIu64, whole);
  int decimals = 9;
  while (part % 10 == 0) {
    part /= 10;
    decimals--;
  }
  return (size_t)snprintf(buffer, size, "%" PRIu64 ".%0*" PRIu64, whole, decimals, part);
}

static size_t smallest(size_t a, size_t b, size_t c) {
  size_t least = a < b ? a : b;
  return least < c ? least : c;
}

size_t vmp_word_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
  enum { MAX = 64 };
  size_t rows[3][MAX];  // the row of the letter before last, of the last one, of this one
  if (a_length >= MAX || b_length >= MAX) return SIZE_MAX;
  size_t *before = rows[0], *last = rows[1], *now = rows[2];
  for (size_t j = 0; j <= b_length; j++) last[j] = j;
  for (size_t i = 1; i <= a_length; i++) {
    now[0] = i;
    for (size_t j = 1; j <= b_length; j++) {
      size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = smallest(replace, last[j] + 1, now[j - 1] + 1);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < now[j]) {
        now[j] = before[j - 2] + 1;
      }
    }
    size_t *spare = before;
    before = last;
    last = now;
    now = spare;
  }
  return last[b_length];
}
