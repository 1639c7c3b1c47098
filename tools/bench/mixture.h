// mixture.h: a fixed number of live blocks of drawn sizes, of which a random one is replaced again and again. What
// churn and scale have in common.
#ifndef VMPOOL_TOOLS_BENCH_MIXTURE_H_
#define VMPOOL_TOOLS_BENCH_MIXTURE_H_

#include "tools/bench/latency.h"
#include "tools/common/rng.h"

// Sizes are drawn beforehand, so that drawing costs next to nothing in the loop.
#define MIXTURE_SIZES 16384u
// Victims are drawn so many rounds ahead, and their places in the table asked for: what is measured is the target, not
// how long this table takes to come from memory.
#define MIXTURE_AHEAD 8u

typedef struct mixture {
  bench_target target;  // first: a workload's state begins with it
  // As small as can be. Sizes lie apart, since only a target with work is asked to touch a block before its free.
  void **blocks;
  uint32_t *bytes;  // kept up where the target has work, and by fill
  uint64_t num_live, max_live;
  rng victims;
  uint64_t ahead[MIXTURE_AHEAD];
  uint64_t next_victim;  // of the victims ahead; 0: none has been drawn
  uint64_t next_size;
  uint32_t sizes[MIXTURE_SIZES];
} mixture;

// mixture_init makes room for `live` blocks, of sizes log-uniform from `low` to `high`, both below 2^32. The target has
// been set. False when host memory runs out.
bool mixture_init(mixture *m, uint64_t live, uint64_t low_bytes, uint64_t high_bytes, uint64_t seed);

// mixture_grow allocates until `live` blocks are live; mixture_run replaces `pairs` of them, each by a free and an
// allocation. False when a request is refused; what is live then stays known.
bool mixture_grow(mixture *m, uint64_t live);
bool mixture_run(mixture *m, uint64_t pairs);
bool mixture_run_latency(mixture *m, latency *l, uint64_t pairs);

// mixture_end frees all blocks and the bookkeeping; a zeroed mixture is fine.
void mixture_end(mixture *m);

#endif  // VMPOOL_TOOLS_BENCH_MIXTURE_H_
