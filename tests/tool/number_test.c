#include "tools/common/number.h"

#include <string.h>

#include "tests/support/vtest.h"
#include "tools/common/rng.h"

typedef struct number_case {
  const char *name, *text;
  number_fault fault;
  uint64_t value;
} number_case;
static const char *case_name(const number_case *c) { return c->name; }

static const number_case numbers[] = {
    {"zero", "0", NUMBER_OK, 0},
    {"leading_zeros", "007", NUMBER_OK, 7},
    {"largest", "18446744073709551615", NUMBER_OK, UINT64_MAX},
    {"two_to_64", "18446744073709551616", NUMBER_TOO_LARGE, 0},
    {"far_too_large", "99999999999999999999999999", NUMBER_TOO_LARGE, 0},
    {"empty", "", NUMBER_EMPTY, 0},
    {"minus_one", "-1", NUMBER_NEGATIVE, 0},
    {"minus_a_lot", "-99999999999999999999999999", NUMBER_NEGATIVE, 0},
    {"only_minus", "-", NUMBER_NOT_A_NUMBER, 0},
    {"plus", "+1", NUMBER_NOT_A_NUMBER, 0},
    {"exponent", "1e9", NUMBER_NOT_A_NUMBER, 0},
    {"hexadecimal", "0x1000", NUMBER_NOT_A_NUMBER, 0},
    {"two_numbers", "12 34", NUMBER_NOT_A_NUMBER, 0},
    {"leading_space", " 12", NUMBER_NOT_A_NUMBER, 0},
    {"fraction", "1.5", NUMBER_NOT_A_NUMBER, 0},
    {"words", "many", NUMBER_NOT_A_NUMBER, 0},
};

VTEST_P(Number, Parses, number_case, numbers, case_name) {
  uint64_t value = 0;
  VEXPECT_INT_EQ(number_parse(p->text, strlen(p->text), &value), p->fault);
  VEXPECT_UINT_EQ(value, p->value);
}

static const number_case sizes[] = {
    {"bytes", "4096", NUMBER_OK, 4096},
    {"kib", "64KiB", NUMBER_OK, 65536},
    {"mib", "3MiB", NUMBER_OK, 3 << 20},
    {"gib", "80GiB", NUMBER_OK, UINT64_C(80) << 30},
    {"tib", "1TiB", NUMBER_OK, UINT64_C(1) << 40},
    {"just_fits", "16777215TiB", NUMBER_OK, UINT64_C(16777215) << 40},
    {"wraps", "16777216TiB", NUMBER_TOO_LARGE, 0},
    {"only_unit", "MiB", NUMBER_EMPTY, 0},
    {"negative", "-1MiB", NUMBER_NEGATIVE, 0},
    {"decimal_unit", "1MB", NUMBER_NOT_A_NUMBER, 0},
    {"fraction", "1.5GiB", NUMBER_NOT_A_NUMBER, 0},
    {"space", "1 MiB", NUMBER_NOT_A_NUMBER, 0},
};

VTEST_P(Size, Parses, number_case, sizes, case_name) {
  uint64_t value = 0;
  VEXPECT_INT_EQ(number_parse_size(p->text, &value), p->fault);
  VEXPECT_UINT_EQ(value, p->value);
}

VTEST(Number, SignedKeepsTheSign) {
  int64_t value = 0;
  VEXPECT_INT_EQ(number_parse_signed("-9223372036854775807", 20, &value), NUMBER_OK);
  VEXPECT_INT_EQ(value, -INT64_MAX);
  VEXPECT_INT_EQ(number_parse_signed("9223372036854775808", 19, &value), NUMBER_TOO_LARGE);
  VEXPECT_INT_EQ(number_parse_signed("--1", 3, &value), NUMBER_NOT_A_NUMBER);
}

VTEST(Number, AddressesAreDecimalOrHexadecimal) {
  uint64_t value = 0;
  VEXPECT_INT_EQ(number_parse_address("0x7f3b7fe00000", 14, &value), NUMBER_OK);
  VEXPECT_UINT_EQ(value, UINT64_C(0x7f3b7fe00000));
  VEXPECT_INT_EQ(number_parse_address("0xFFFFFFFFFFFFFFFF", 18, &value), NUMBER_OK);
  VEXPECT_UINT_EQ(value, UINT64_MAX);
  VEXPECT_INT_EQ(number_parse_address("0x10000000000000000", 19, &value), NUMBER_TOO_LARGE);
  VEXPECT_INT_EQ(number_parse_address("0x", 2, &value), NUMBER_EMPTY);
  VEXPECT_INT_EQ(number_parse_address("0xg", 3, &value), NUMBER_NOT_A_NUMBER);
}

VTEST(Number, RangesAreOneValueOrTwo) {
  uint64_t low = 0, high = 0;
  VEXPECT_INT_EQ(number_parse_range("256..1024", &low, &high), NUMBER_OK);
  VEXPECT_UINT_EQ(low, 256);
  VEXPECT_UINT_EQ(high, 1024);
  VEXPECT_INT_EQ(number_parse_range("7", &low, &high), NUMBER_OK);
  VEXPECT_UINT_EQ(low, 7);
  VEXPECT_UINT_EQ(high, 7);
  VEXPECT_INT_EQ(number_parse_size_range("64KiB..1MiB", &low, &high), NUMBER_OK);
  VEXPECT_UINT_EQ(low, 65536);
  VEXPECT_UINT_EQ(high, 1048576);
  VEXPECT_INT_EQ(number_parse_range("9..8", &low, &high), NUMBER_NOT_A_NUMBER);
  VEXPECT_INT_EQ(number_parse_range("1..", &low, &high), NUMBER_EMPTY);
  VEXPECT_INT_EQ(number_parse_range("..2", &low, &high), NUMBER_EMPTY);
  VEXPECT_INT_EQ(number_parse_range("1...2", &low, &high), NUMBER_NOT_A_NUMBER);
}

VTEST(Number, RealsArePositiveAndFinite) {
  double value = 0;
  VEXPECT_INT_EQ(number_parse_real("0.125", 1e9, &value), NUMBER_OK);
  VEXPECT_NEAR(value, 0.125, 0);
  VEXPECT_INT_EQ(number_parse_real("0", 1e9, &value), NUMBER_NOT_A_NUMBER);
  VEXPECT_INT_EQ(number_parse_real("-2", 1e9, &value), NUMBER_NEGATIVE);
  VEXPECT_INT_EQ(number_parse_real("inf", 1e9, &value), NUMBER_NOT_A_NUMBER);
  VEXPECT_INT_EQ(number_parse_real("nan", 1e9, &value), NUMBER_NOT_A_NUMBER);
  VEXPECT_INT_EQ(number_parse_real("0x10", 1e9, &value), NUMBER_NOT_A_NUMBER);
  VEXPECT_INT_EQ(number_parse_real("1e10", 1e9, &value), NUMBER_TOO_LARGE);
  VEXPECT_INT_EQ(number_parse_real("1 ", 1e9, &value), NUMBER_NOT_A_NUMBER);
}

typedef struct size_case {
  uint64_t bytes;
  const char *text;
} size_case;

VTEST(Size, TextForPeople) {
  static const size_case cases[] = {{0, "0 B"},
                                    {512, "512 B"},
                                    {1023, "1023 B"},
                                    {1024, "1 KiB"},
                                    {1536, "1.50 KiB"},
                                    {UINT64_C(80) << 30, "80 GiB"},
                                    {2532893696, "2.36 GiB"},
                                    {UINT64_C(1) << 40, "1 TiB"},
                                    {(UINT64_C(1) << 20) - 1, "1.00 MiB"},
                                    {UINT64_MAX, "16.0 EiB"}};
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    char buffer[SIZE_TEXT_BYTES];
    VEXPECT_STR_EQ(size_text(cases[i].bytes, buffer), cases[i].text);
  }
}

// The first outputs of splitmix64 for the seed 1234567, as published with the algorithm.
VTEST(Rng, KnownSequence) {
  rng r = {.state = 1234567};
  VEXPECT_UINT_EQ(rng_next(&r), UINT64_C(6457827717110365317));
  VEXPECT_UINT_EQ(rng_next(&r), UINT64_C(3203168211198807973));
  VEXPECT_UINT_EQ(rng_next(&r), UINT64_C(9817491932198370423));
}

VTEST(Rng, BetweenIsInsideAndUniform) {
  rng r = {.state = vtest_seed(7)};
  unsigned counts[10] = {0};
  for (int i = 0; i < 100000; i++) {
    const uint64_t v = rng_between(&r, 5, 14);
    VASSERT_TRUE(v >= 5 && v <= 14);
    counts[v - 5]++;
  }
  for (int i = 0; i < 10; i++) VEXPECT_NEAR(counts[i], 10000, 600);  // six standard deviations
  VEXPECT_UINT_EQ(rng_between(&r, 9, 9), 9);
  rng_between(&r, 0, UINT64_MAX);
}
