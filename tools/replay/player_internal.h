// player_internal.h: the player's structure, and what its files share. Private to tools/replay.
//
//     player.c      driver, streams, pool; blocks; steps; the end
//     kv_regions.c  requests whose KV cache lies in regions
#ifndef VMPOOL_TOOLS_REPLAY_PLAYER_INTERNAL_H_
#define VMPOOL_TOOLS_REPLAY_PLAYER_INTERNAL_H_

#include "tools/replay/kv_regions.h"
#include "tools/replay/player.h"

typedef enum block_state { BLOCK_NONE = 0, BLOCK_LIVE = 1, BLOCK_FAILED = 2 } block_state;

typedef struct player_block {
  void *ptr;
  uint64_t bytes;
  uint16_t stream;
  uint8_t state;
} player_block;

struct player {
  player_options options;
  vmp_driver *driver;
  vmp_pool *pool;
  vmp_stream *streams;
  player_block *blocks;  // by the trace's number
  size_t num_blocks;
  player_block *nameless;  // intruders, and what earlier repetitions left live
  size_t num_nameless, nameless_capacity;
  uint64_t clock_ns;  // what reading the clock costs
  uint64_t events_since_stats;
  player_step_calls calls_before;  // when the step began
  kv_regions *regions;             // NULL: events are of blocks
  player_counts counts;
};

// player_meter: what calls of the pool cost, in wall time and in modelled driver time. The player's own calls (touches,
// statistics, synchronising) are not the pool's, and are left out.
typedef struct player_meter {
  uint64_t start_ns;
  double start_us;
} player_meter;
player_meter player_meter_start(const player *p);
void player_meter_stop(player *p, player_meter m);

// player_measure reads the statistics, now and then, after an event.
void player_measure(player *p);
// player_touch queues a kernel that writes (or only reads) a range.
void player_touch(player *p, void *ptr, uint64_t bytes, bool write, uint16_t stream);
// player_fault keeps what went wrong, and vmp_last_error; the first one counts. player_failed counts a failed
// allocation.
void player_fault(player *p, const char *what);
void player_failed(player *p);
// player_requested changes what the trace has asked for.
void player_requested(player *p, uint64_t added_bytes, uint64_t removed_bytes);

#endif  // VMPOOL_TOOLS_REPLAY_PLAYER_INTERNAL_H_
