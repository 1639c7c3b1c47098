// backing.h: which slot of the reserved address space has which physical chunk.
//
// Owns: reservations, the slot table, chunks and their live counts, parked and spare chunks, retiring slots, the
// byte limits. Does not own: which bytes of a slot are used (the layers), streams (clock).
//
//     offsets   [ slot | slot | slot | slot | slot | slot | slot ...          ]   reservation 0   | hole | reservation
//     1 slots        c1     c1     c2     -     ~c3    c4     c4 c1 live      mapped, some block touches it c2 parked
//     mapped, nobody touches it: taken without asking anyone, oldest of the smallest free range first
//     -            unmapped
//     ~c3 retiring c3 already serves another slot; this old mapping goes when its fence is complete on the host
//     spare        a chunk that is mapped nowhere
//
// Invariants
//   - A slot has at most one chunk; a chunk is mapped whole at exactly one home, besides retiring places.
//   - chunk.live = number of claims that touch it; live = 0 means parked (or spare, in transit, broken).
//   - held (mapped + spare + in transit) never exceeds the hard limit.
//   - No slot is unmapped while a fence over it is incomplete as seen by the host.
//   - No driver call runs under the lock: slots are marked in transit, the lock is let go through the hooks, the
//     driver is called, the lock is taken again, the result is committed.
//
// Every function expects the caller to hold the lock; those marked MAY UNLOCK let go of it for a while.
#ifndef VMPOOL_VMM_BACKING_H_
#define VMPOOL_VMM_BACKING_H_

#include "vmm/backing_ops.h"
#include "vmm/context.h"
#include "vmm/driver.h"
#include "vmm/error.h"
#include "vmm/remap.h"

typedef struct vmp_backing vmp_backing;

// vmp_lock_hooks: the lock that guards backing and the layers above it. wait lets go of it until wake_all is
// called by anybody (a condition variable); spurious returns are fine.
typedef struct vmp_lock_hooks {
  void *self;
  void (*lock)(void *self);
  void (*unlock)(void *self);
  void (*wait)(void *self);
  void (*wake_all)(void *self);
} vmp_lock_hooks;

typedef struct vmp_backing_options {
  vmp_driver *driver;
  vmp_clock *clock;
  int device;              // ordinal
  vmp_cu_context context;  // the device's primary context, to ask how much memory is free; NULL: don't ask
  uint64_t granule_bytes;
  uint64_t chunk_max_bytes;   // a power of two of granules
  uint64_t growth_bytes;      // growth is rounded up to this where memory is plentiful; 0: exactly what is needed
  uint64_t hard_limit_bytes;  // UINT64_MAX: none
  uint64_t soft_limit_bytes;  // UINT64_MAX: none
  double park_limit;          // share of mapped
  bool complete_only;         // other streams' memory only when complete
  bool may_create;            // false: static, after creation
  const int *peers;           // ordinals; copied
  size_t num_peers;
  vmp_lock_hooks hooks;
} vmp_backing_options;

// vmp_backing_create makes a backing without address space. The context of the device need not be current.
// VMP_ERROR_HOST_OUT_OF_MEMORY, VMP_ERROR_INVALID_VALUE.
vmp_status vmp_backing_create(vmp_backing **out_backing, const vmp_backing_options *options);

// vmp_backing_destroy unmaps and releases everything and frees the reservations. The caller has waited for all
// fences; nobody else uses it any more, and the lock is NOT held: it calls the driver and the callbacks. Goes on after
// failures and returns the first one; host memory is freed in any case. NULL is fine.
vmp_status vmp_backing_destroy(vmp_backing *backing);

// vmp_backing_reserve adds a reservation of `bytes` (rounded up to granules), halving down to `minimum_bytes` when
// the driver refuses. *out_offset and *out_bytes: the new piece of the offset space, aligned to chunk_max.
// VMP_ERROR_OUT_OF_ADDRESS_SPACE, VMP_ERROR_HOST_OUT_OF_MEMORY, driver failures. MAY UNLOCK.
vmp_status vmp_backing_reserve(vmp_backing *backing, uint64_t bytes, uint64_t minimum_bytes, uint64_t *out_offset,
                               uint64_t *out_bytes);

// vmp_backing_get_ops returns the functions for the layers (backing_ops.h). Of _exact_ops a claim makes no more memory
// than it needs: growth is not rounded up.
vmp_backing_ops vmp_backing_get_ops(vmp_backing *backing);
vmp_backing_ops vmp_backing_get_exact_ops(vmp_backing *backing);

// Offsets and addresses. vmp_backing_offset: false when the address lies in no reservation.
uint64_t vmp_backing_address(const vmp_backing *backing, uint64_t offset);
bool vmp_backing_offset(const vmp_backing *backing, uint64_t address, uint64_t *out_offset);

// vmp_backing_map_ahead maps up to `bytes` of unmapped slots in [offset, offset + room) and parks them. Optional
// work: stops at the first failure and at the limits. Returns what was mapped. MAY UNLOCK.
uint64_t vmp_backing_map_ahead(vmp_backing *backing, uint64_t offset, uint64_t room, uint64_t bytes);
// vmp_backing_predict does the same for a need that is expected: the statistics tell what of it is never used.
// *out_chunks: chunks that were made for it. MAY UNLOCK.
uint64_t vmp_backing_predict(vmp_backing *backing, uint64_t offset, uint64_t room, uint64_t bytes,
                             uint64_t *out_chunks);

// vmp_backing_calls: driver calls that one function made, refused ones too.
typedef struct vmp_backing_calls {
  uint64_t map, set_access, unmap, release;
} vmp_backing_calls;

// vmp_backing_poll removes old mappings and hands out drained memory as far as the host can see that the work has
// finished: polls the clock, unmaps complete retiring slots (one call per run), retries broken slots. Returns
// whether anything changed. MAY UNLOCK.
bool vmp_backing_poll(vmp_backing *backing);
// vmp_backing_poll_some does the same for at most `most` mappings, and adds its unmap calls to *calls: at most one for
// each, unless the driver fails.
bool vmp_backing_poll_some(vmp_backing *backing, uint64_t most, vmp_backing_calls *calls);

// vmp_backing_wait_transit lets go of the lock until a driver call of another thread has been committed; false at once
// when none is under way. An allocation that failed while memory was in transit tries again after it. MAY UNLOCK.
bool vmp_backing_wait_transit(vmp_backing *backing);

// vmp_backing_pending returns the merged fence of everything that incomplete work keeps from reuse (parked chunks
// and retiring slots): what to wait for as the last step before out of memory. None: waiting would not help.
vmp_fence vmp_backing_pending(const vmp_backing *backing);

// vmp_backing_trim gives spare and complete parked chunks back until at most `keep_bytes` are held. The first
// driver failure is returned after everything else was tried. MAY UNLOCK.
typedef struct vmp_backing_trim_report {
  uint64_t released_bytes, kept_pending_bytes, kept_live_bytes, kept_other_bytes;
  uint64_t kept_pinned_bytes;  // in chunks that nothing but pins keeps; not in kept_live_bytes
} vmp_backing_trim_report;
vmp_status vmp_backing_trim(vmp_backing *backing, uint64_t keep_bytes, vmp_backing_trim_report *out_report);
// vmp_backing_give_back does the same without a poll, for at most `most_chunks` chunks: at most one unmap and one
// release each, unless the driver fails. Adds them to *calls, and to *released what went back. MAY UNLOCK.
vmp_status vmp_backing_give_back(vmp_backing *backing, uint64_t keep_bytes, uint64_t most_chunks, uint64_t *released,
                                 vmp_backing_calls *calls);

// vmp_backing_give_back_idle gives back at most `most_bytes` of idle chunks, in at most `most_chunks`, otherwise the
// same.
vmp_status vmp_backing_give_back_idle(vmp_backing *backing, uint64_t most_bytes, uint64_t most_chunks,
                                      uint64_t *released, vmp_backing_calls *calls);

// vmp_backing_give_back_where gives back every idle chunk that begins or ends where `in` says so. Adds what went to
// *bytes and *chunks. Returns the first driver failure, after everything else was tried. MAY UNLOCK.
vmp_status vmp_backing_give_back_where(vmp_backing *backing, bool (*in)(const void *self, uint64_t offset),
                                       const void *self, uint64_t *bytes, uint64_t *chunks);

// ---- gathering: idle chunks are remapped behind one another, so that a range of free addresses is mapped wholly ----

// vmp_backing_look_gather says what it would take to map all of a free range with spare and parked chunks from outside
// it. Changes nothing. O(parked chunks + slots of the range).
typedef struct vmp_gather_cost {
  bool possible;            // there are enough, of sizes that fit, and no slot of the range is blocked
  uint64_t chunks, bytes;   // that would be remapped
  vmp_backing_calls calls;  // at most; the removal of the old mappings included, none released
} vmp_gather_cost;
void vmp_backing_look_gather(const vmp_backing *backing, uint64_t offset, uint64_t bytes, vmp_gather_cost *out_cost);

// vmp_backing_gather maps every slot of [offset, offset + bytes), which holds no block, as far as it comes; nothing is
// created and nobody waits. Chunks whose work is complete go first. Others may follow where one stream alone still uses
// idle chunks, unless the option complete_only forbids it or more slots retire than the pool holds: each keeps its
// fence, and whoever claims it is told of it. The lock is let go of around driver calls, in batches; others may claim
// parts of the range meanwhile. Adds what it did to *report.
//   VMP_OK                    every slot is mapped
//   VMP_ERROR_BUSY            a slot is blocked, or became so
//   VMP_ERROR_FRAGMENTED, VMP_ERROR_OUT_OF_MEMORY: no idle chunk that fits is left
//   VMP_ERROR_TIMEOUT         `deadline_us` of CLOCK_MONOTONIC has passed (UINT64_MAX: none); looked at between batches
//   VMP_ERROR_HOST_OUT_OF_MEMORY, driver failures
// What was remapped before a failure stays where it is, parked. MAY UNLOCK.
typedef struct vmp_gather_report {
  uint64_t chunks, bytes;  // remapped, spare ones included
  vmp_backing_calls calls;
} vmp_gather_report;
vmp_status vmp_backing_gather(vmp_backing *backing, uint64_t offset, uint64_t bytes, uint64_t deadline_us,
                              vmp_gather_report *report);

// vmp_backing_set_limits: lowering the hard limit does not free anything by itself (trim does).
void vmp_backing_set_limits(vmp_backing *backing, uint64_t hard_limit_bytes, uint64_t soft_limit_bytes);
void vmp_backing_set_may_create(vmp_backing *backing, bool may_create);
// vmp_backing_prefer_parked: claims take parked memory before they make new memory, as beyond park_limit, until it is
// called with false.
void vmp_backing_prefer_parked(vmp_backing *backing, bool prefer);

// ---- for those who registered the memory elsewhere (NCCL, RDMA) ----

// vmp_backing_register adds a pair of callbacks (remap.h). VMP_ERROR_INVALID_VALUE: `self` is registered already;
// VMP_ERROR_LIMIT: more than VMP_MAX_REMAP_CALLBACKS.
vmp_status vmp_backing_register(vmp_backing *backing, const vmp_remap_callbacks *callbacks);
// vmp_backing_unregister removes the pair with the same `self` and waits until no call of it is under way (where the
// hooks can wait); false: there was none. MAY UNLOCK.
bool vmp_backing_unregister(vmp_backing *backing, const void *self);

// vmp_backing_generation returns the youngest generation of the mappings under a range, 0 when part of it is not
// mapped. Two equal answers mean that nothing of the range was remapped in between.
uint64_t vmp_backing_generation(const vmp_backing *backing, uint64_t offset, uint64_t bytes);

// ---- for the pool's event log ----

// vmp_backing_change: one thing that became true of the mapping. `from`: where a taken chunk was mapped before.
typedef enum vmp_backing_change_kind {
  VMP_BACKING_MAPPED = 0,  // a chunk is mapped at its home; `created`: it is new, else it was spare
  VMP_BACKING_TAKEN,       // a chunk has a new home; RETIRED for the old one follows
  VMP_BACKING_RETIRED,   // a mapping waits to be removed, its chunk is at home elsewhere; `fence`: who may still use it
  VMP_BACKING_SHARED,    // a chunk is mapped at one more address, besides `from` and others
  VMP_BACKING_UNMAPPED,  // a mapping is gone
  VMP_BACKING_RELEASED,  // a chunk went back to the device; no address
} vmp_backing_change_kind;

typedef struct vmp_backing_change {
  vmp_backing_change_kind kind;
  bool created;
  uint64_t address, bytes, from;
  uint64_t chunk_id;
  vmp_fence fence;
} vmp_backing_change;

// vmp_backing_observe sets who is told of every change, under the lock, as it is committed (NULL: nobody). It may not
// call backing.
typedef void (*vmp_backing_observer)(void *self, const vmp_backing_change *change);
void vmp_backing_observe(vmp_backing *backing, vmp_backing_observer observer, void *self);

// vmp_backing_is_home: whether the mapping at an offset is its chunk's home, or the first of its places where it is
// shared (else it waits to be removed, is on its way, or shares the chunk).
bool vmp_backing_is_home(const vmp_backing *backing, uint64_t offset);

// vmp_backing_in_transit: whether driver calls are under way whose outcome isn't committed yet.
bool vmp_backing_in_transit(const vmp_backing *backing);

// ---- moving live memory: vmp_realloc ----

// vmp_backing_movable finds the longest run of chunks of a claimed range that lie wholly in it and that its one claim
// alone keeps; *out_bytes is 0 where there is none.
void vmp_backing_movable(const vmp_backing *backing, uint64_t offset, uint64_t bytes, uint64_t *out_offset,
                         uint64_t *out_bytes);

// vmp_backing_split_claim makes two claims of one at `offset`, which lies inside it; vmp_backing_join_claims makes one
// of two that meet there. Keep the lock, can't fail, whatever state the memory is in.
void vmp_backing_split_claim(vmp_backing *backing, uint64_t offset);
void vmp_backing_join_claims(vmp_backing *backing, uint64_t offset);

// vmp_backing_move_begin plans to map the chunks of such a run at [to_offset, to_offset + bytes), which is unmapped,
// and keeps everybody else from mapping anything there. Makes no driver call, changes nothing of the chunks: nobody but
// the claim's owner may use the range until the move has been finished or cancelled. VMP_ERROR_BUSY,
// VMP_ERROR_HOST_OUT_OF_MEMORY.
typedef struct vmp_move vmp_move;
vmp_status vmp_backing_move_begin(vmp_backing *backing, uint64_t from_offset, uint64_t bytes, uint64_t to_offset,
                                  vmp_move **out_move);
// vmp_backing_move_finish maps them there; the claim moves along, and the old mappings retire behind `users`, who may
// still touch them. A failure (driver failures) leaves everything as it was before _begin. Ends the move either way.
// MAY UNLOCK. vmp_backing_move_cancel ends it without a driver call; NULL is fine.
vmp_status vmp_backing_move_finish(vmp_backing *backing, vmp_move *move, vmp_fence users);
void vmp_backing_move_cancel(vmp_backing *backing, vmp_move *move);

// ---- pins ----

// vmp_backing_pin keeps the chunks of a range, which is wholly mapped and claimed, where they are, until the matching
// vmp_backing_unpin of the same range; returns how many chunks that are. Both keep the lock, allocate nothing and can't
// fail.
uint64_t vmp_backing_pin(vmp_backing *backing, uint64_t offset, uint64_t bytes);
void vmp_backing_unpin(vmp_backing *backing, uint64_t offset, uint64_t bytes);
// vmp_backing_pin_sum: pins over all chunks, for checks. O(chunks).
uint64_t vmp_backing_pin_sum(const vmp_backing *backing);

typedef struct vmp_backing_stats {
  uint64_t reserved_bytes, reservations;
  uint64_t mapped_bytes, peak_mapped_bytes;  // chunks that have a home
  uint64_t parked_bytes;
  uint64_t spare_bytes, retiring_bytes, broken_bytes, pinned_bytes;
  uint64_t chunks, chunks_created, chunks_released, takes, takes_resized, slots_retired;
  uint64_t shares;        // how often a chunk was mapped at one more address, to be live at both
  uint64_t shared_bytes;  // chunks that are mapped at several addresses, each once
  uint64_t largest_parked_bytes;
  uint64_t created_bytes;  // physical memory made so far
  uint64_t ahead_bytes,
      ahead_unused_bytes;  // made by vmp_backing_predict; of that, what exists and nobody has used yet
  uint64_t hard_limit_bytes, soft_limit_bytes;
  uint64_t metadata_bytes;
} vmp_backing_stats;
// vmp_backing_get_stats: O(1).
void vmp_backing_get_stats(const vmp_backing *backing, vmp_backing_stats *out);
// vmp_backing_pending_bytes: parked memory whose work is not known complete. O(parked chunks).
uint64_t vmp_backing_pending_bytes(const vmp_backing *backing);
// vmp_backing_walk_idle looks at chunks from number `next` (1: the first) on, at most `most` of them, and adds parked
// memory whose work is not known complete to *pending and to by_stream[index] of each stream of it, other parked and
// spare memory to *complete. Returns where to go on, 0 at the end. A walk in pieces sees each chunk once.
uint32_t vmp_backing_walk_idle(const vmp_backing *backing, uint32_t next, uint32_t most, uint64_t by_stream[64],
                               uint64_t *pending, uint64_t *complete);
// vmp_backing_least_idle: the least that was parked or spare at any time since vmp_backing_reset_least_idle. Chunks in
// transit are neither.
uint64_t vmp_backing_least_idle(const vmp_backing *backing);
void vmp_backing_reset_least_idle(vmp_backing *backing);
// vmp_backing_reset_peak sets peak_mapped_bytes to mapped_bytes.
void vmp_backing_reset_peak(vmp_backing *backing);

// Walkers, in address order, for snapshots and maps. `state`: "live", "parked", "retiring", "transit", "broken".
typedef void (*vmp_reservation_fn)(void *context, uint64_t offset, uint64_t bytes, uint64_t address);
void vmp_backing_walk_reservations(const vmp_backing *backing, vmp_reservation_fn fn, void *context);
// One call per chunk's home and per retiring place; chunk_id is unique among existing chunks.
typedef void (*vmp_mapping_fn)(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                               uint64_t live, vmp_fence fence);
void vmp_backing_walk_mappings(const vmp_backing *backing, vmp_mapping_fn fn, void *context);
// Spare chunks: id and size.
typedef void (*vmp_spare_fn)(void *context, uint64_t chunk_id, uint64_t bytes);
void vmp_backing_walk_spares(const vmp_backing *backing, vmp_spare_fn fn, void *context);

// vmp_backing_check reports every broken invariant and returns their number.
size_t vmp_backing_check(const vmp_backing *backing, vmp_report *report);

#endif  // VMPOOL_VMM_BACKING_H_
