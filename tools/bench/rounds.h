// rounds.h: who runs when. Subjects alternate in short runs, in an order that is drawn anew each round, so that what
// disturbs the machine disturbs all of them; times are compared round by round.
//
//     round 0     pool  mimalloc  jemalloc
//     round 1     jemalloc  pool  mimalloc        25 rounds; a ratio is the median of the rounds' ratios
#ifndef VMPOOL_TOOLS_BENCH_ROUNDS_H_
#define VMPOOL_TOOLS_BENCH_ROUNDS_H_

#include "tools/bench/rig.h"

#define BENCH_ROUNDS 25u
#define BENCH_MAX_SUBJECTS (2 * (1 + BENCH_MAX_PEERS))  // scale has two of each

typedef struct bench_subject {
  void *self;
  bool (*run)(void *self, uint64_t pairs);  // false: a request was refused
  bench_rig *rig;                           // whose queued work is waited for after each run, not timed; NULL: none
  uint64_t pairs;                           // of all rounds together
  double ns[BENCH_ROUNDS];                  // of a pair, by round; 0 where a round had none
} bench_subject;

// rounds_share returns how many of `pairs` pairs belong to a round: all rounds' shares add up to it.
uint64_t rounds_share(uint64_t pairs, uint64_t round);

// rounds_run runs them. Returns the subject that failed, or NULL.
const bench_subject *rounds_run(bench_subject *subjects, size_t num_subjects, const bench_options *options);

// Over rounds that had pairs.
double rounds_median(const bench_subject *s);
double rounds_least(const bench_subject *s);
double rounds_ratio(const bench_subject *s, const bench_subject *to);

#endif  // VMPOOL_TOOLS_BENCH_ROUNDS_H_
