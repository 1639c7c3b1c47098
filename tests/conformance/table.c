// table.c: the list of probes.h as a table.
#include "tests/conformance/probes.h"

#define ALSO(...) \
  { __VA_ARGS__, CONFORM_END }
#define NONE \
  { CONFORM_END }
#define ALIKE CONFORM_AS_STRICT, CONFORM_AS_STRICT
#define LINT(code) code, code
#define COMPAT(code) CONFORM_AS_STRICT, code
#define X(rule, evidence, name, asked, strict, also, levels, where) \
  {rule, evidence, #name, conform_##name, asked, strict, also, levels, CONFORM_##where},
const conform_probe conform_probes[] = {CONFORM_PROBES(X)};
#undef X

const size_t conform_num_probes = sizeof conform_probes / sizeof conform_probes[0];

int conform_expected(const conform_probe *probe, vmp_host_level level) {
  int code = level == VMP_HOST_STRICT ? CONFORM_AS_STRICT : level == VMP_HOST_LINT ? probe->lint : probe->compat;
  return code == CONFORM_AS_STRICT ? probe->strict : code;
}
