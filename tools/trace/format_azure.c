// Azure LLM inference trace: `TIMESTAMP,ContextTokens,GeneratedTokens`, times as 2023-11-16 18:17:03.9799600, with an
// offset of +00:00 or without. Arrivals count from the first row.
#include "tools/trace/formats.h"

#define COLUMNS "TIMESTAMP,ContextTokens,GeneratedTokens"
#define TICKS_PER_SECOND INT64_C(10000000)

static bool digits(const char *text, size_t count, int64_t *out) {
  uint64_t value;
  if (number_parse(text, count, &value) != NUMBER_OK) return false;
  *out = (int64_t)value;
  return true;
}

// Days since 1970-01-01 in the Gregorian calendar.
static int64_t days_of(int64_t year, int64_t month, int64_t day) {
  static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  const int64_t past = year - 1;
  return (past - 1969) * 365 + (past / 4 - 492) - (past / 100 - 19) + (past / 400 - 4) + before[month - 1] +
         (month > 2 && leap ? 1 : 0) + day - 1;
}

// The part after the seconds: ".9799600" in ticks; further digits are dropped.
static bool read_fraction(text_span rest, int64_t *out_ticks) {
  *out_ticks = 0;
  if (rest.length >= 6 && span_is((text_span){rest.text + rest.length - 6, 6}, "+00:00")) rest.length -= 6;
  if (rest.length == 0) return true;
  if (rest.text[0] != '.' || rest.length < 2) return false;
  int64_t scale = TICKS_PER_SECOND / 10;
  for (size_t i = 1; i < rest.length; i++) {
    if (rest.text[i] < '0' || rest.text[i] > '9') return false;
    *out_ticks += (rest.text[i] - '0') * scale;
    scale /= 10;
  }
  return true;
}

static bool read_timestamp(text_span t, int64_t *out_ticks) {
  static const char shape[] = "dddd-dd-dd dd:dd:dd";
  if (t.length < sizeof(shape) - 1) return false;
  for (size_t i = 0; i < sizeof(shape) - 1; i++) {
    if (shape[i] != 'd' && t.text[i] != shape[i] && !(i == 10 && t.text[i] == 'T')) return false;
  }
  int64_t year, month, day, hour, minute, second, ticks;
  if (!digits(t.text, 4, &year) || !digits(t.text + 5, 2, &month) || !digits(t.text + 8, 2, &day) ||
      !digits(t.text + 11, 2, &hour) || !digits(t.text + 14, 2, &minute) || !digits(t.text + 17, 2, &second)) {
    return false;
  }
  if (year < 1 || month < 1 || month > 12 || day < 1 || day > 31 || hour > 23 || minute > 59 || second > 60)
    return false;
  if (!read_fraction((text_span){t.text + 19, t.length - 19}, &ticks)) return false;
  *out_ticks = (((days_of(year, month, day) * 24 + hour) * 60 + minute) * 60 + second) * TICKS_PER_SECOND + ticks;
  return true;
}

bool read_azure(reading *r) {
  text_span f[3];
  int64_t first = 0, ticks;
  bool have_first = false;
  if (!input_next_line(r->in)) return true;  // the header
  while (input_next_line(r->in)) {
    service_request request = {0};
    if (!reading_fields(r, f, 3, COLUMNS)) return false;
    if (!read_timestamp(f[0], &ticks)) {
      return input_fail_field(r->in, "TIMESTAMP", f[0], "is not a time like 2023-11-16 18:17:03.9799600");
    }
    if (!have_first) first = ticks;
    have_first = true;
    if (ticks < first) return input_fail_field(r->in, "TIMESTAMP", f[0], "is before the first row's");
    request.arrival_ticks = ticks - first;
    if (!reading_tokens(r, "ContextTokens", f[1], &request.prompt_tokens) ||
        !reading_tokens(r, "GeneratedTokens", f[2], &request.output_tokens)) {
      return false;
    }
    service_requests_append(r->requests, request);
  }
  return true;
}
