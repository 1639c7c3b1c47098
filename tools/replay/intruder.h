// intruder.h: `--intruder every=200,bytes=64KiB..1MiB[,seed=1]`: a long-lived block after every so many events, as a
// logger, a step counter or a metrics tensor would leave it. That is what breaks simple pools.
#ifndef VMPOOL_TOOLS_REPLAY_INTRUDER_H_
#define VMPOOL_TOOLS_REPLAY_INTRUDER_H_

#include "tools/common/error.h"
#include "tools/common/rng.h"

typedef struct intruder {
  uint64_t every;  // events between two intruders; 0: none
  uint64_t low_bytes, high_bytes;
  uint64_t seed;
} intruder;

// intruder_parse reads the option's text.
bool intruder_parse(const char *text, intruder *out, tool_error *error);

// intruder_bytes draws a size, uniformly.
static inline uint64_t intruder_bytes(const intruder *i, rng *random) {
  return rng_between(random, i->low_bytes, i->high_bytes);
}

#endif  // VMPOOL_TOOLS_REPLAY_INTRUDER_H_
