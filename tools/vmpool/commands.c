#include "tools/vmpool/commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/number.h"

// wrapped: the command's parser behind one that keeps argp from printing a second line ("Try ... --help").
typedef struct wrapped {
  const struct argp *inner;
  void *input;
} wrapped;

static error_t parse_wrapped(int key, char *argument, struct argp_state *state) {
  const wrapped *w = state->input;
  if (key == ARGP_KEY_INIT) state->err_stream = NULL;
  state->input = w->input;
  const error_t result = w->inner->parser(key, argument, state);
  state->input = (void *)(uintptr_t)w;
  return result;
}

bool cmd_parse(const struct argp *argp, int argc, char **argv, void *input, tool_error *error) {
  const wrapped w = {.inner = argp, .input = input};
  struct argp outer = *argp;
  (void)setenv("ARGP_HELP_FMT", "rmargin=100", 0);  // so that no example is broken
  outer.parser = parse_wrapped;
  if (argp_parse(&outer, argc, argv, 0, NULL, (void *)(uintptr_t)&w) == 0) return true;
  if (error->text[0] != '\0') cmd_fail(argv[0], error);  // else argp has printed its line
  return false;
}

int cmd_fail(const char *name, const tool_error *error) {
  fflush(stdout);
  fprintf(stderr, "%s: %s\n", name, error->text);
  return EXIT_USAGE;
}

error_t cmd_bad(tool_error *error, const char *format, ...) {
  char text[sizeof(error->text)];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  tool_fail(error, "%s", text);
  return EINVAL;
}

error_t cmd_number(const char *option, const char *text, uint64_t low, uint64_t high, uint64_t *out,
                   tool_error *error) {
  uint64_t value = 0;
  const number_fault fault = number_parse(text, strlen(text), &value);
  if (fault != NUMBER_OK) return cmd_bad(error, "%s: '%s' %s", option, text, number_fault_text(fault));
  if (value < low || value > high) {
    return cmd_bad(error, "%s: %" PRIu64 " is outside %" PRIu64 "..%" PRIu64, option, value, low, high);
  }
  *out = value;
  return 0;
}

error_t cmd_range(const char *option, const char *text, uint64_t *out_low, uint64_t *out_high, tool_error *error) {
  if (number_parse_range(text, out_low, out_high) == NUMBER_OK) return 0;
  return cmd_bad(error, "%s: '%s' is neither a whole number nor a range like 256..1024", option, text);
}

error_t cmd_size(const char *option, const char *text, uint64_t *out, tool_error *error) {
  const number_fault fault = number_parse_size(text, out);
  if (fault == NUMBER_OK) return 0;
  return cmd_bad(error, "%s: '%s' %s; a size is like 4096, 64KiB or 80GiB", option, text, number_fault_text(fault));
}

error_t cmd_real(const char *option, const char *text, double max, double *out, tool_error *error) {
  if (number_parse_real(text, max, out) == NUMBER_OK) return 0;
  return cmd_bad(error, "%s: '%s' is not a number above 0 and up to %g", option, text, max);
}
