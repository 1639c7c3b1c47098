#include "tools/replay/work_mode.h"

#include <string.h>

#include "tools/common/number.h"

static bool parse_numbered(const char *text, const char *prefix, vmp_host_work_mode mode, work_mode *out) {
  const size_t length = strlen(prefix);
  if (strncmp(text, prefix, length) != 0) return false;
  uint64_t value;
  if (number_parse(text + length, strlen(text + length), &value) != NUMBER_OK) return false;
  *out = (work_mode){.mode = mode, .value = value};
  return true;
}

bool work_mode_parse(const char *text, work_mode *out) {
  if (strcmp(text, "late") == 0) {
    *out = (work_mode){.mode = VMP_WORK_LATE};
  } else if (strcmp(text, "early") == 0) {
    *out = (work_mode){.mode = VMP_WORK_EARLY};
  } else if (strcmp(text, "none") == 0) {
    *out = (work_mode){.none = true, .mode = VMP_WORK_LATE};
  } else {
    return parse_numbered(text, "seed:", VMP_WORK_SEED, out) || parse_numbered(text, "lag:", VMP_WORK_LAG, out);
  }
  return true;
}
