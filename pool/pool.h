// pool.h: the pool's own structure, and what its files share. Callers use pool/vmpool.h.
//
//     pool.c      create and destroy                     stats.c      statistics
//     alloc.c     alloc, free, record_use, query         check.c      all invariants
//     books.c     what is known of live blocks            thread_cache.c  objects that threads keep
//     route.c     which layer serves a request           snapshot*.c  the whole state as JSON
//     ladder.c    what is tried before out of memory     limits.c     trim, set_limit
//     oom.c       the message when nothing helped        guard.c      lock and fork mark
//     space.c     reservations, arenas, initial memory    step.c       steps of the program
//     defragment.c  gathering idle memory                region*.c    regions (region.h)
//     alloc_with.c  allocation with options              tag.c        tags, and the labels of blocks
//     domain.c    layers of a suspendable tag            pin.c        pinned ranges, callbacks of remapping
//
// Owns: the layers and how they are wired, the table of live blocks, the counters. Does not own: free space
// (layers), chunks (backing), streams (clock).
//
// Lock: `guard` guards everything below it in the structure, the layers and backing. It is let go of around driver
// calls: inside backing's claim, reserve, poll, trim (MAY UNLOCK), and here around waits. No other lock is taken
// while it is held.
//
// Invariants
//   - A live block is in `blocks` (its requested size, its layer) and is used in exactly one layer.
//   - live_bytes[layer] + unsettled_bytes[layer] = what the layer says is used, for each layer.
//   - unsettled: placed, but the caller's stream is not ordered behind the old work yet. Not in `blocks`, not in
//     the counters: a failed order leaves no trace.
//   - requested_bytes <= sum of live_bytes; peaks >= current values.
#ifndef VMPOOL_POOL_POOL_H_
#define VMPOOL_POOL_POOL_H_

#include <stdatomic.h>

#include "pool/aside.h"
#include "pool/buddy.h"
#include "pool/capture.h"
#include "pool/debug.h"
#include "pool/guard.h"
#include "pool/histogram.h"
#include "pool/mid.h"
#include "pool/offset_map.h"
#include "pool/options.h"
#include "pool/pin.h"
#include "pool/region.h"
#include "pool/slab.h"
#include "pool/span_map.h"
#include "pool/tag.h"
#include "pool/tally.h"
#include "pool/trigger.h"
#include "pool/vmpool.h"
#include "vmm/align.h"
#include "vmm/backing.h"
#include "vmm/clock.h"
#include "vmm/device.h"

#define VMP_STEP_BYTES UINT64_C(512)

// Thread caches (thread_cache.h) serve requests of up to this many steps.
#define VMP_CACHE_STEPS 128u
#define VMP_CACHE_MAX_CLASSES VMP_SLAB_MAX_NUMBER
struct vmp_cache;

typedef enum vmp_layer { VMP_LAYER_SLAB = 0, VMP_LAYER_MID = 1, VMP_LAYER_BUDDY = 2, VMP_NUM_LAYERS = 3 } vmp_layer;

// vmp_reservation: one piece of address space, with a bit per slot in which a block has ever begun: it tells a
// double free from an address that was never handed out.
typedef struct vmp_reservation {
  uint64_t offset, bytes;
  uint64_t *handed;
  uint64_t address;  // of the offset
} vmp_reservation;

// vmp_failure: the last allocation that failed after everything was tried, for snapshots.
typedef struct vmp_failure {
  vmp_status status;  // VMP_OK: none has
  uint64_t requested_bytes, alignment;
  vmp_layer layer;
  vmp_stream_index stream;
  uint64_t largest_bytes, device_free_bytes;  // as they were then
  uint64_t monotonic_us;
  char message[sizeof((vmp_error *)NULL)->message];
} vmp_failure;

struct vmp_log;
struct vmp_watch;

// vmp_mover_left: a stream and a pinned buffer that the driver refused to take back. `busy`: copies on the stream may
// still run; `known`: the clock knows it.
#define VMP_MOVERS_LEFT 8
typedef struct vmp_mover_left {
  vmp_cu_stream stream;
  void *buffer;
  bool busy, known;
} vmp_mover_left;

struct vmp_pool {
  uint64_t id;                                     // no other pool of the process has or had it
  _Atomic uint8_t cache_numbers[VMP_CACHE_STEPS];  // by steps: the magazine that serves a request; 0: none
  uint64_t quick_from_bytes, quick_bytes;          // mid's of [from, from + bytes) may go the quick way; 0: none
  const _Atomic uint64_t *sole_lanes;              // vmp_clock_sole_lanes
  vmp_driver *driver;
  bool owns_driver;
  vmp_config config;
  char *config_text;
  vmp_device device;
  unsigned granule_log2;
  vmp_cu_context context;  // the device's primary context, retained
  vmp_guard guard;
  vmp_clock *clock;
  _Atomic uint64_t last_device_free_bytes;
  vmp_pool *next_on_driver;  // these three are the registry's
  uint32_t visitors;
  bool on_driver;

  // From here on guarded by `guard`.
  vmp_backing *backing;
  vmp_backing_ops ops;
  vmp_buddy *buddy;
  vmp_mid *mid;
  vmp_mid *span_mid;      // slab's small spans, in arenas of their own; NULL: they are cut from mid
  vmp_slab *slab;         // NULL: slab_max is 0
  vmp_span_map span_map;  // slab's spans by address; readable without the lock
  vmp_reservation *reservations;
  size_t num_reservations;
  uint64_t first_reserve_bytes;                    // what the driver gave at creation
  bool reserving;                                  // some thread is adding a reservation
  vmp_reservation unadded;                         // reserved, but buddy had no host memory for it; bytes 0: none
  uint64_t first_arena_offset, first_arena_bytes;  // taken at creation for initial memory; bytes 0: mid has it
  vmp_regions regions;

  vmp_offset_map blocks;          // live block of buddy -> vmp_block_word (the others': books.c)
  vmp_offset_map streams;         // live block -> mask of recorded streams, for the few that have any
  vmp_tags tags;
  vmp_pins pins;
  vmp_mover_left movers_left[VMP_MOVERS_LEFT];  // suspend_content.c
  vmp_captures captures;
  vmp_asides asides;
  struct vmp_cache *caches;       // of all threads
  struct vmp_cache *spare_cache;  // for a thread that only frees; made by one that allocates
  bool wants_spare_cache;
  bool strong_caches;             // no membarrier here
  const void *marks_alone;        // vmp_guard_self of the only thread that changes slab's marks; NULL: any may
  uint32_t uncached;              // how many features must see every allocation and free: no cache is used then
  uint32_t cache_stops;           // vmp_caches_stop without vmp_caches_go
  uint64_t cache_capacity_bytes;  // what all caches may hold
  uint64_t cached_bytes;          // what they held when they were last folded

  // Counters: up to date but for what caches have counted since they were folded (vmp_caches_fold); slab's part, the
  // requested bytes and the number of blocks may be negative for a while. Read them with the functions below.
  uint64_t live_bytes[VMP_NUM_LAYERS], unsettled_bytes[VMP_NUM_LAYERS];
  uint64_t reallocating;  // blocks that are busy
  uint64_t placing;       // threads inside a layer's alloc: the layers may know blocks that nobody counts yet
  uint64_t requested_bytes, peak_live_bytes, peak_requested_bytes;
  uint64_t allocs, frees, failed_allocs;
  uint64_t unfinished_wait_allocs, host_waits;
  uint64_t seen_streams;                                    // mask of streams that allocated, freed or recorded a use
  uint64_t steps;                                           // marked by vmp_pool_step
  uint64_t step_live_bytes;                                 // most live bytes since the last of them
  uint64_t step_peak_live_bytes, max_step_peak_live_bytes;  // of the last step, of any step
  vmp_debug debug;
  vmp_triggers triggers;
  vmp_tally tally;                                          // allocations and frees by layer and by stream
  vmp_histogram histogram;                                  // of the sizes asked for
  uint64_t histogram_seen;                                  // its total, when classes were looked for last
  uint64_t adopted_bytes[VMP_MAX_CLASSES];                  // classes taken over from it, or the user's
  size_t num_adopted;
  struct vmp_predict *predict;  // strategy predictive (predict.h); NULL: none. Set at creation
  uint32_t quiescent;  // vmp_quiescent_begin without _end
  bool compacting;     // some thread copies live bytes and changes what is mapped under them
  bool defragmenting;                                       // some thread is
  vmp_failure failure;
  struct vmp_log *log;  // NULL: nothing is logged
  struct vmp_watch *watch;  // NULL: nothing is watched; set at creation
  vmp_oom_fn oom_fn;  // the caller's, and what it is given
  void *oom_user;
  bool over_limit;  // a lowered hard limit is not reached yet: frees go on shrinking
};

// ---- blocks: the word that the books keep of a live block; 0 is none ----
// bits 0-1 layer, bit 2: has recorded streams, bit 3: always set, bit 4: has a tag or a name, bit 5: a graph
// holds it (capture.h), bit 6: busy (vmp_realloc), bit 7: loose (books.c), bits 8-13 the index of the stream that it was
// allocated on, bits 16-63 bytes beyond the request.
#define VMP_BLOCK_LIVE UINT64_C(8)
static inline uint64_t vmp_block_word(vmp_layer layer, uint64_t slack_bytes) {
  return (uint64_t)layer | VMP_BLOCK_LIVE | slack_bytes << 16;
}
static inline uint64_t vmp_block_on(uint64_t word, vmp_stream_index stream) { return word | (uint64_t)stream << 8; }
// vmp_block_word_less: of a block that uses `requested_bytes` of what `word` says is beyond the request.
static inline uint64_t vmp_block_word_less(uint64_t word, uint64_t requested_bytes) {
  return word - (requested_bytes << 16);
}
static inline vmp_layer vmp_block_layer(uint64_t word) { return (vmp_layer)(word & 3); }
static inline bool vmp_block_has_streams(uint64_t word) { return (word & 4) != 0; }
static inline vmp_stream_index vmp_block_stream(uint64_t word) { return (vmp_stream_index)(word >> 8 & 63); }
static inline uint64_t vmp_block_slack(uint64_t word) { return word >> 16; }
static inline bool vmp_block_is_captured(uint64_t word) { return (word & 32) != 0; }
static inline bool vmp_block_is_labelled(uint64_t word) { return (word & 16) != 0; }
#define VMP_BLOCK_HAS_STREAMS UINT64_C(4)
#define VMP_BLOCK_HAS_LABEL UINT64_C(16)
#define VMP_BLOCK_CAPTURED UINT64_C(32)
#define VMP_BLOCK_IS_BUSY UINT64_C(64)
#define VMP_BLOCK_IS_LOOSE UINT64_C(128)
// A block whose word has one of these has entries in tables that the lock guards: it isn't freed without the lock.
#define VMP_BLOCK_HAS_ENTRIES (VMP_BLOCK_HAS_STREAMS | VMP_BLOCK_HAS_LABEL | VMP_BLOCK_CAPTURED | VMP_BLOCK_IS_BUSY)

_Static_assert((VMP_BLOCK_LIVE | VMP_LAYER_SLAB) == VMP_SLAB_PLAIN, "a live block of slab's, and nothing else to it");

// Blocks of mid from here on begin with a granule, so that nearly all of their chunks are theirs alone: vmp_realloc can
// move them without copying.
#define VMP_OWN_CHUNKS_FROM_BYTES (UINT64_C(256) << 20)

// Larger sizes are no sizes: no address space holds them. They are refused without being counted.
#define VMP_MAX_BLOCK_BYTES (UINT64_C(1) << 47)

// vmp_pool_name: never NULL.
const char *vmp_pool_name(const vmp_pool *pool);

// vmp_pool_fail_forked reports VMP_ERROR_FORKED.
vmp_status vmp_pool_fail_forked(const vmp_pool *pool);

// vmp_pool_slab_options: as the pool's options say.
vmp_slab_options vmp_pool_slab_options(const vmp_pool *pool);

// Counters that may be negative for a while read as 0 then: a thread has freed what another one, whose count is still
// in its cache, has allocated.
static inline uint64_t vmp_not_negative(uint64_t count) { return count >> 63 != 0 ? 0 : count; }
static inline uint64_t vmp_pool_slab_live_bytes(const vmp_pool *pool) {
  return vmp_not_negative(pool->live_bytes[VMP_LAYER_SLAB]);
}
// vmp_pool_counted_live_bytes and _requested_bytes: without what caches have counted since they were folded; they wrap
// where they are negative.
static inline uint64_t vmp_pool_counted_live_bytes(const vmp_pool *pool) {
  return pool->live_bytes[VMP_LAYER_SLAB] + pool->live_bytes[VMP_LAYER_MID] + pool->live_bytes[VMP_LAYER_BUDDY] +
         pool->regions.live_bytes;
}
static inline uint64_t vmp_pool_counted_requested_bytes(const vmp_pool *pool) {
  return pool->requested_bytes + pool->regions.live_bytes;
}
// vmp_pool_live_bytes: over all layers and regions.
static inline uint64_t vmp_pool_live_bytes(const vmp_pool *pool) {
  return vmp_pool_slab_live_bytes(pool) + pool->live_bytes[VMP_LAYER_MID] + pool->live_bytes[VMP_LAYER_BUDDY] +
         pool->regions.live_bytes;
}
// vmp_pool_requested_bytes: of blocks, and the pages of regions.
static inline uint64_t vmp_pool_requested_bytes(const vmp_pool *pool) {
  return vmp_not_negative(pool->requested_bytes) + pool->regions.live_bytes;
}

// vmp_pool_num_blocks: live blocks.
static inline uint64_t vmp_pool_num_blocks(const vmp_pool *pool) {
  return vmp_not_negative(pool->allocs - pool->frees);
}

// ---- thread_cache.c; the lock is held everywhere ----
// vmp_caches_open gives the pool its number; slab is there. vmp_caches_close ends all caches, which are empty; waits
// for threads that are just ending. Takes the lock itself.
void vmp_caches_open(vmp_pool *pool);
void vmp_caches_close(vmp_pool *pool);
// vmp_caches_stop keeps every thread from using its cache until vmp_caches_go: hits become misses, which wait for the
// lock. May be nested. Nothing that lets go of the lock may stand between.
void vmp_caches_stop(vmp_pool *pool);
void vmp_caches_go(vmp_pool *pool);
// vmp_caches_fold brings the pool's counters up to date. Between it and a vmp_caches_stop that follows there may be hits:
// who compares counters with what is live stops first.
void vmp_caches_fold(vmp_pool *pool);
// vmp_caches_empty gives all cached objects back to slab, and folds; _empty_own only those of the calling thread, and
// says whether there were any.
void vmp_caches_empty(vmp_pool *pool);
bool vmp_caches_empty_own(vmp_pool *pool);
// vmp_caches_retire gives back what was freed on a stream that is about to end.
void vmp_caches_retire(vmp_pool *pool, vmp_stream stream);
// vmp_caches_share_marks: another thread than the calling one changes no mark without an atomic instruction from here on.
void vmp_caches_share_marks(vmp_pool *pool);
// vmp_caches_learn_classes follows a change of slab's classes.
void vmp_caches_learn_classes(vmp_pool *pool);
// vmp_pool_bypass_caches(pool, 1): from here on every allocation and free takes the locked path; (pool, -1) ends that.
// Several features may ask for it at a time.
void vmp_pool_bypass_caches(vmp_pool *pool, int change);
// vmp_caches_bytes: what is cached; the caches are stopped. vmp_caches_bound: what may be, all in all.
uint64_t vmp_caches_bytes(const vmp_pool *pool);
// vmp_caches_by_stream adds what is cached for each stream.
void vmp_caches_by_stream(vmp_pool *pool, uint64_t out_bytes[VMP_TALLY_STREAMS]);
uint64_t vmp_caches_bound(const vmp_pool *pool);
uint64_t vmp_caches_metadata(const vmp_pool *pool);
// vmp_caches_check: the caches are stopped.
size_t vmp_caches_check(const vmp_pool *pool, vmp_report *report);

// ---- books.c ----
// vmp_books_promise makes sure that one vmp_books_add for a block of the layer will succeed; _withdraw takes that back.
// VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_books_promise(vmp_pool *pool, vmp_layer layer);
void vmp_books_withdraw(vmp_pool *pool, vmp_layer layer);
// vmp_books_add makes a block live that was just placed; it uses up a promise.
void vmp_books_enter(vmp_pool *pool, uint64_t offset, uint64_t word);
static inline void vmp_books_add(vmp_pool *pool, const vmp_placed *placed, uint64_t word) {
  if (placed->word != NULL) {
    *placed->word = word;
  } else {
    vmp_books_enter(pool, placed->offset, word);
  }
}
// vmp_books_get returns the word of the live block that starts at `offset`, or 0. vmp_books_take also takes it out: the
// block is not live any more. vmp_books_change sets and clears bits of it; false: it isn't live.
uint64_t vmp_books_get(const vmp_pool *pool, uint64_t offset);
uint64_t vmp_books_take(vmp_pool *pool, uint64_t offset);
bool vmp_books_change(vmp_pool *pool, uint64_t offset, uint64_t set, uint64_t clear);
// vmp_books_walk sees every live block, in no order.
void vmp_books_walk(const vmp_pool *pool, vmp_offset_map_fn fn, void *context);

// ---- route.c ----
// vmp_plan: a request on its way.
struct vmp_plan {
  uint64_t requested_bytes;
  uint64_t alignment;  // as it was asked for, at least the step
  uint64_t adoptions;  // of slab's classes, when it was routed (adapt.h)
  vmp_layer layer;
  vmp_request request;
  vmp_label label;
  vmp_domain *domain;     // NULL: the pool's own layers
  vmp_graph *graph;       // the stream captures: the graph that the block will belong to
  vmp_ticket ticket;      // the memory comes from this ticket; 0: from everywhere
  vmp_stream stream;      // with a ticket
  vmp_page_claim *pages;  // a region's pages instead of a block
  struct vmp_range_claim *claim;  // addresses that a layer has given already, instead of a block
};

// vmp_range_claim: a claim by every step of the ladder, on addresses that are the caller's already.
typedef struct vmp_range_claim {
  uint64_t offset, bytes;
  vmp_fence fence;  // of backing's claim: who used the memory at earlier addresses
} vmp_range_claim;

// vmp_route_plan rounds and routes; false when the size can't be rounded (it would wrap).
bool vmp_route_plan(const vmp_pool *pool, uint64_t bytes, uint64_t alignment, vmp_plan *out_plan);
// vmp_route_into sends a plan to the layers of a domain: slab or mid, whatever the size.
void vmp_route_into(vmp_plan *plan, vmp_domain *domain);
// vmp_route_place places and claims at the plan's layer. MAY UNLOCK. What the layers return.
vmp_status vmp_route_place(vmp_pool *pool, const vmp_plan *plan, vmp_placed *out_placed);
// vmp_route_look finds where a block of these bytes could be put: the place of its layer with the fewest slots to map,
// which isn't blocked. Places nothing. False: there is none. What is slab's otherwise is looked for in mid.
bool vmp_route_look(const vmp_pool *pool, uint64_t bytes, uint64_t *out_offset, vmp_cost *out_cost);
// vmp_route_release gives a block of a layer back and returns the bytes that it held. Can't fail: the offset is a live (or
// unsettled) block's.
uint64_t vmp_route_release(vmp_pool *pool, vmp_layer layer, uint64_t offset, vmp_fence fence);

// vmp_route_mid_of: the pool's own mid, or that of small spans, if `offset` lies in an arena of it; NULL: in neither.
const vmp_mid *vmp_route_mid_of(const vmp_pool *pool, uint64_t offset);

// vmp_route_word_of: where the word of the block is kept that starts at `offset`, live or not, if that is mid's or slab's.
typedef struct vmp_route_word {
  uint64_t *mid;
  vmp_slab_word object;  // low: NULL: none
} vmp_route_word;
vmp_route_word vmp_route_word_of(const vmp_pool *pool, uint64_t offset);

// vmp_found: the used block that holds an address, as the layers know it.
struct vmp_found {
  vmp_layer layer;
  uint64_t offset, bytes;
};
bool vmp_route_find(const vmp_pool *pool, uint64_t offset, vmp_found *out_found);
// vmp_route_is_free_start: whether a block could have begun at this address, which no block holds now: an object's
// start in a span, a multiple of the step elsewhere.
bool vmp_route_is_free_start(const vmp_pool *pool, uint64_t offset);
// vmp_route_walk_span sees the objects of the span at `offset` (vmp_slab_walk_span); nothing where there is none.
void vmp_route_walk_span(const vmp_pool *pool, uint64_t offset, vmp_walk_fn fn, void *context);

// vmp_layer_name: "slab", "mid", "buddy".
const char *vmp_layer_name(vmp_layer layer);

// The wiring of the layers: supplies whose `self` is the pool.
vmp_mid_supply vmp_route_mid_supply(vmp_pool *pool);
vmp_slab_supply vmp_route_slab_supply(vmp_pool *pool);

// ---- alloc.c ----
// vmp_alloc_check checks what every allocation is given.
vmp_status vmp_alloc_check(const vmp_pool *pool, void **out_ptr, size_t alignment);
// vmp_alloc_labelled allocates; the arguments have been checked. The domain can't be suspended meanwhile (placing).
vmp_status vmp_alloc_labelled(vmp_pool *pool, void **out_ptr, uint64_t bytes, uint64_t alignment, vmp_stream stream,
                              vmp_label label, vmp_domain *domain, vmp_ticket ticket);
// vmp_alloc_missed and vmp_free_missed are vmp_alloc and vmp_free by all ways but the first; `first`: where the
// entry of the address lies, &vmp_span_no_entry where only the first range was looked at, or none.
vmp_status vmp_alloc_missed(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream);
vmp_status vmp_free_missed(vmp_pool *pool, void *ptr, vmp_stream stream, const vmp_span_entry *first);
// vmp_alloc_free_locked frees a block under the lock. As vmp_free.
vmp_status vmp_alloc_free_locked(vmp_pool *pool, void *ptr, vmp_stream_index index, vmp_stream stream);
// vmp_alloc_fail_not_live reports what an address is that is not the start of a live block; _fail_busy a block that
// vmp_realloc has in hand.
vmp_status vmp_alloc_fail_not_live(const vmp_pool *pool, const void *ptr, bool in_pool, uint64_t offset);
vmp_status vmp_alloc_fail_busy(const void *ptr);
// vmp_alloc_raise_peaks raises the peaks to what is live now.
void vmp_alloc_raise_peaks(vmp_pool *pool);

// ---- space.c ----
// vmp_space_open makes the first reservation. VMP_ERROR_OUT_OF_ADDRESS_SPACE and what backing returns. MAY UNLOCK.
vmp_status vmp_space_open(vmp_pool *pool);
// vmp_space_add reserves more, so that a block of these bytes and alignment fits. MAY UNLOCK.
vmp_status vmp_space_add(vmp_pool *pool, uint64_t bytes, uint64_t alignment);
// vmp_space_take_arena and _give_arena are mid's supply.
vmp_status vmp_space_take_arena(vmp_pool *pool, uint64_t bytes, uint64_t alignment, uint64_t *out_offset,
                                uint64_t *out_bytes, vmp_fence *out_fence);
void vmp_space_give_arena(vmp_pool *pool, uint64_t offset, vmp_fence fence);
// vmp_space_map_initial maps `bytes` ahead, where the first blocks will be placed; *out_mapped says how much came of
// it. VMP_ERROR_HOST_OUT_OF_MEMORY, VMP_ERROR_OUT_OF_ADDRESS_SPACE. MAY UNLOCK.
vmp_status vmp_space_map_initial(vmp_pool *pool, uint64_t bytes, uint64_t *out_mapped);
// vmp_space_mark_handed notes that a block was handed out that begins here; vmp_space_was_handed asks whether one has
// ever begun in the slot.
void vmp_space_mark_handed(vmp_pool *pool, uint64_t offset);
bool vmp_space_was_handed(const vmp_pool *pool, uint64_t offset);
void vmp_space_close(vmp_pool *pool);

// ---- ladder.c ----
// vmp_ladder_take places a request, trying everything that may help; the message is set when nothing did. The lock
// is held before and after, and is let go of in between.
vmp_status vmp_ladder_take(vmp_pool *pool, vmp_plan *plan, vmp_placed *out_placed);
// vmp_ladder_claim does the same for addresses that a layer has given already; `requested_bytes` is what a message
// names. MAY UNLOCK.
vmp_status vmp_ladder_claim(vmp_pool *pool, vmp_domain *domain, vmp_layer layer, uint64_t requested_bytes,
                            vmp_stream_index stream, vmp_range_claim *claim);
// vmp_ladder_idle_share: the part of mapped memory that nobody holds. O(1).
double vmp_ladder_idle_share(const vmp_pool *pool);
// vmp_ladder_is_asking: this thread is in a caller's function that was called because memory ran out (vmpool_oom.h). It
// must not wait for blocks that are on their way: one of them may be its own.
bool vmp_ladder_is_asking(void);

// ---- defragment.c ----
// vmp_compacting_wait waits until no live bytes are copied: one that waits for reallocations has not begun. MAY UNLOCK.
void vmp_compacting_wait(vmp_pool *pool);

// ---- oom.c ----
// vmp_oom_fail reports why a request can't be had now. `status` is what the last attempt returned; `waited`: work was
// waited for and had not finished. Lets go of the lock to ask the device.
vmp_status vmp_oom_fail(vmp_pool *pool, const vmp_plan *plan, vmp_status status, bool waited);
// vmp_oom_largest: the largest block that can be had now, waits of the stream included; at most a little too low. The
// lock is held.
uint64_t vmp_oom_largest(vmp_pool *pool, uint64_t device_free_bytes);
// vmp_oom_refuse reports a request that is larger than all memory there can ever be; no driver call. VMP_OK: it isn't.
vmp_status vmp_oom_refuse(vmp_pool *pool, const vmp_plan *plan);

// ---- limits.c ----
// vmp_limits_shrink brings a pool that is over a lowered limit nearer to it. MAY UNLOCK.
void vmp_limits_shrink(vmp_pool *pool);
// vmp_limits_look finds out whether the pool is still over its limit.
void vmp_limits_look(vmp_pool *pool);
// vmp_limits_held: physical memory that the pool holds.
uint64_t vmp_limits_held(const vmp_pool *pool);

// ---- stats.c ----
// vmp_stats_fill fills in what out->struct_size has room for, except device_free and pending. The lock is held.
void vmp_stats_fill(vmp_pool *pool, vmp_pool_stats_data *out);
// vmp_stats_device_free asks the device, without the lock; the last known value where it can't tell.
uint64_t vmp_stats_device_free(vmp_pool *pool);
uint64_t vmp_stats_metadata(vmp_pool *pool);
// vmp_stats_mid: of mid and of the mid of small spans together; the largest places are those of mid.
void vmp_stats_mid(const vmp_pool *pool, vmp_mid_stats *out);
// vmp_stats_largest_place: the largest free place of addresses in the layers that serve large blocks, mapped or not.
uint64_t vmp_stats_largest_place(vmp_pool *pool);
// vmp_stats_pending walks parked memory that unfinished work may touch, in pieces. Without the lock.
uint64_t vmp_stats_pending(vmp_pool *pool);
// vmp_stats_largest_free_mapped: the largest block to be had without a driver call.
uint64_t vmp_stats_largest_free_mapped(vmp_pool *pool);

// ---- check.c ----
// vmp_check_all reports every broken invariant of the pool and its layers. The lock is held.
size_t vmp_check_all(vmp_pool *pool, vmp_report *report);

#endif  // VMPOOL_POOL_POOL_H_
