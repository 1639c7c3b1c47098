// player.h: a driver, a pool, and the live blocks of a trace: what performs one event after the other.
//
// Owns: the driver, the pool, the streams, the table of live blocks, the counting and timing of the pool's calls. Does
// not own: which events come (replay.c), what is said about the figures (report.c). Uses the public headers only.
//
// Around each event the player queues touches of the block on its stream (after the allocation, and before the free).
// The host driver runs them by its work mode: a pool that hands memory out, or unmaps it, too early makes a bad touch.
#ifndef VMPOOL_TOOLS_REPLAY_PLAYER_H_
#define VMPOOL_TOOLS_REPLAY_PLAYER_H_

#include "pool/vmpool.h"
#include "tools/common/error.h"
#include "tools/replay/kv_regions.h"
#include "tools/replay/work_mode.h"

// player_options: see kv_regions.h for the last one.
typedef struct player_options {
  vmp_driver_kind driver;  // VMP_DRIVER_HOST or VMP_DRIVER_CUDA
  uint64_t device_bytes;   // of the host driver's device; UINT64_MAX: unlimited
  const char *preset;      // NULL: the pool's default
  const char *conf;        // NULL: none
  const char *cost_file;   // of the host driver's clock; NULL: its defaults
  work_mode work;
  uint32_t num_streams;  // at least 1; above 1 on the host driver only
  bool measure;          // time the calls and read the statistics after events
  uint64_t stats_every;  // with measure: after every so many events; 0: 1
  kv_options kv;         // requests NULL: events are of blocks
} player_options;

// player_open makes driver, streams and pool. Errors: those of vmp_driver_open and vmp_pool_create, as sentences.
bool player_open(player **out_player, const player_options *options, tool_error *error);
void player_close(player *p);  // NULL is fine; destroys the pool if player_finish has not

// player_alloc and player_free perform one event. A failed allocation is counted, its later free is skipped. False when
// host memory of the player itself runs out.
bool player_alloc(player *p, uint32_t block, uint64_t bytes, uint16_t stream);
void player_free(player *p, uint32_t block, uint16_t stream);

// player_intrude allocates a block that nobody will free.
bool player_intrude(player *p, uint64_t bytes, uint16_t stream);

// player_renumber ends a repetition of the trace: blocks that are still live stay so, and their numbers are free again.
bool player_renumber(player *p);

// player_step ends a step of the trace (vmp_pool_step, whose own calls still belong to it); player_defragment gathers
// the pool's idle memory (vmp_pool_defragment, without limits). What fails is added to the counts' fault.
void player_step(player *p);
void player_defragment(player *p);

// player_defragmentation: what the runs of player_defragment did.
typedef struct player_defragmentation {
  uint64_t runs, moved_bytes;                          // moved: over all runs
  uint64_t largest_before_bytes, largest_after_bytes;  // of the last run: largest block without a driver call
} player_defragmentation;

// player_compact trims the pool, splits what few live bytes pin, and meshes, with all work finished before.
void player_compact(player *p);

// player_compaction: bytes mapped after each of these, and requested meanwhile.
typedef struct player_compaction {
  uint64_t requested_bytes, before_bytes, trimmed_bytes, split_bytes, meshed_bytes;
  uint64_t copied_bytes, split_chunks, meshed_chunks;
} player_compaction;

// player_step_calls: driver calls of the pool's kinds in one step, by all threads and by the one that plays.
typedef struct player_step_calls {
  uint64_t all, own;
} player_step_calls;

// The first so many steps are told one by one.
#define PLAYER_MAX_STEPS 256u

// player_counts: what has happened so far.
typedef struct player_counts {
  uint64_t allocs, frees, failed_allocs;  // allocs counts the failed ones too
  uint64_t bad_touches;
  uint64_t requested_bytes, peak_requested_bytes;
  uint64_t live_at_peak_bytes, mapped_at_peak_bytes;  // of the pool, when requested was highest (measure)
  uint64_t live_blocks;
  double utilisation_sum;  // of live / mapped after events with mapped memory (measure)
  uint64_t utilisation_events;
  uint64_t calls_ns;   // in vmp_alloc and vmp_free (measure)
  double modelled_us;  // driver time of all the pool's calls but its end (measure, host driver)
  player_defragmentation defragmentation;
  player_compaction compaction;
  player_step_calls steps[PLAYER_MAX_STEPS];  // of each player_step
  uint64_t num_steps;                         // may be more
  char first_failure[480];                    // why the first allocation failed; "" where none did
  char fault[640];                            // what a check or a touch found wrong; ""
  vmp_pool_stats_data stats;                  // filled in by player_settle
  vmp_driver_calls driver_calls;              // filled in by player_settle
} player_counts;

const player_counts *player_progress(const player *p);
vmp_pool *player_pool(const player *p);
vmp_driver *player_driver(const player *p);
kv_regions *player_regions(const player *p);  // NULL: events are of blocks

// player_propose asks the pool for size classes (vmp_pool_propose_classes).
void player_propose(player *p, uint64_t num_classes, double share, vmp_class_proposal *out_proposal);

// player_synchronize waits for all queued work.
void player_synchronize(player *p);

// player_settle waits for all queued work, then takes the figures and checks the pool's invariants.
void player_settle(player *p);

// player_finish frees what is still live and destroys the pool; what goes wrong is added to the counts' fault.
void player_finish(player *p);

#endif  // VMPOOL_TOOLS_REPLAY_PLAYER_H_
