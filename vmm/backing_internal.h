// backing_internal.h: what backing's files share. Private to vmm/backing*.c and their tests.
//
//     backing.c         reservations, the slot table, addresses, statistics
//     backing_layers.c  what the layers ask: cost, run, claim, release, next_change
//     backing_claim.c   claims of ranges with holes
//     backing_plan.c    which chunks a claim takes, and from where; changes nothing but records
//     backing_commit.c  the driver calls of a plan, their undoing, and the commit
//     backing_retire.c  old and broken mappings: what gives addresses back
//     backing_release.c trim, and room for other chunk sizes: what gives memory back
//     backing_ahead.c   mapping ahead of need
//     backing_gather.c  idle chunks behind one another
//     backing_pages.c   ranges of pages, and claims of pages by list; backing_page_ranges.c: the list of ranges
//     backing_share.c   chunks that are mapped at several places
//     backing_change.c  changing what is mapped under live claims: backing_split.c, backing_join.c; backing_lost.c
//     backing_callbacks.c  who is told of remapping
//     backing_pin.c     chunks that stay where they are
//     backing_move.c    live chunks at other addresses
//     backing_end.c     giving everything back
//     backing_check.c   the checker and the walkers
//
//     leaf      1024 slots, as 64 groups of 16: one word for all slots of the group where they have the same,
//               as those of a large chunk do, or
//     DETAIL    the words of the 16 slots, by index in `details`. It stays until one word covers the group again.
//
// A slot's word is 0 (unmapped), or a tag and an index:
//     HOME   a chunk that lives here
//     PLACE  a place: a mapping that is being made (transit), waits to be removed (retiring), could not be
//            (broken), or is one of several of its chunk (shared)
#ifndef VMPOOL_VMM_BACKING_INTERNAL_H_
#define VMPOOL_VMM_BACKING_INTERNAL_H_

#include "vmm/backing.h"
#include "vmm/chunk.h"

#define LEAF_SLOTS 1024u
#define MAX_RESERVATIONS 64u
// Attempts of one claim: with surplus, exact, and then with ever less to create, as refusals teach.
#define CLAIM_ATTEMPTS 8
#define CHANGE_LOG 256u
#define GROUP_SLOTS 16u
#define LEAF_GROUPS (LEAF_SLOTS / GROUP_SLOTS)
#define WORD_HOME UINT32_C(0x40000000)
#define WORD_PLACE UINT32_C(0x80000000)
#define WORD_DETAIL UINT32_C(0xc0000000)  // of groups only
#define WORD_INDEX UINT32_C(0x3fffffff)

typedef struct slot_group {
  uint32_t words[GROUP_SLOTS];
} slot_group;

typedef struct reservation {
  uint64_t address, bytes;
  uint64_t first_slot, slots;
  uint64_t high_slot;  // every slot from here on was never mapped
  uint32_t **leaves;   // (slots + LEAF_SLOTS - 1) / LEAF_SLOTS of LEAF_GROUPS words, NULL until a slot in it is mapped
} reservation;

typedef enum place_state { PLACE_TRANSIT = 0, PLACE_RETIRING, PLACE_BROKEN, PLACE_SHARED } place_state;

typedef struct place {
  uint32_t next, prev;  // in the list of retiring or broken places, oldest first
  uint64_t slot, slots;
  vmp_fence fence;      // who may still touch the memory by these addresses
  uint64_t generation;  // of the mapping here
  uint32_t chunk;
  uint8_t state;   // place_state
  uint8_t listed;  // 1: in the retiring list, 2: in the broken list
  // Of a place that shares its chunk, from when it is planned:
  uint32_t next_share;  // in the list that begins at chunk.shares
  uint32_t live;        // claims that touch the chunk here
  uint64_t low, high;   // its window: the bytes of the chunk that claims here may touch
  uint8_t lost;         // 1: joined, but without access
} place;

typedef struct place_list {
  uint32_t head, tail;
  uint64_t count, slots;
} place_list;

typedef struct change {
  uint64_t offset, bytes;
} change;

typedef struct page_range {
  uint64_t slot, end;
  bool idle;
} page_range;

struct vmp_backing {
  vmp_backing_options options;
  int *peers;
  vmp_cu_access_desc *access;  // the device itself, then the peers
  size_t num_access;
  uint64_t granule_bytes;
  unsigned granule_log2;
  unsigned chunk_max_order;
  reservation reservations[MAX_RESERVATIONS];
  size_t num_reservations;
  uint64_t next_offset;  // where the next reservation's piece of the offset space may begin
  chunk_store chunks;
  vmp_node_pool details;  // of slot_group
  vmp_node_pool places;
  place_list retiring, broken;
  uint64_t polled_places;  // retiring.count after the last poll: poll again when it has grown much
  uint64_t transits;       // plans and removals that are between unlock and lock
  uint64_t change_serial;  // changes logged so far
  uint64_t change_seen;    // of these, how many somebody has read
  change changes[CHANGE_LOG];
  uint64_t takes, takes_resized, slots_retired, leaf_bytes;
  uint64_t shares, shared_bytes;  // places of shared chunks made so far; shared chunks
  uint64_t generation;            // the last one given to a mapping
  uint64_t lost_bytes;            // of lost chunks and places
  bool prefer_parked;
  uint64_t device_left, device_left_held;  // what the device had left when it was last asked, and what was held then
  vmp_backing_observer observer;           // NULL: nobody
  void *observer_self;
  vmp_remap_callbacks callbacks[VMP_MAX_REMAP_CALLBACKS];
  size_t num_callbacks;
  page_range *page_ranges;  // by place
  size_t num_page_ranges, page_ranges_capacity;
  // Calls under way with a copy of the list, by the parity of the epoch in which it was taken: whoever removes a pair
  // begins another epoch and waits for the calls of the one before.
  uint64_t callback_epoch, callback_users[2];
};

// ---- backing_callbacks.c: a copy of the callbacks, taken under the lock, called without it ----
typedef struct callback_list {
  vmp_remap_callbacks all[VMP_MAX_REMAP_CALLBACKS];
  size_t count;
  unsigned parity;
} callback_list;
void callbacks_copy(vmp_backing *b, callback_list *out);
// callbacks_done: the copy is not used any more. Under the lock.
void callbacks_done(vmp_backing *b, const callback_list *list);
void callbacks_before_unmap(const callback_list *list, uint64_t address, uint64_t bytes, uint64_t generation);
void callbacks_after_map(const callback_list *list, uint64_t address, uint64_t bytes, uint64_t generation);

// ---- backing.c: the slot table ----
static inline reservation *backing_reservation_of(const vmp_backing *b, uint64_t slot) {
  for (size_t i = 0; i < b->num_reservations; i++) {
    const reservation *r = &b->reservations[i];
    if (slot - r->first_slot < r->slots) return (reservation *)(uintptr_t)r;
  }
  return NULL;
}
static inline slot_group *backing_detail(const vmp_backing *b, uint32_t index) {
  return (slot_group *)(b->details.origins[index >> VMP_NODE_BLOCK_LOG2(sizeof(slot_group))] +
                        (uintptr_t)index * sizeof(slot_group));
}
// backing_step_in: the word at `slot`, and the slot up to which it surely is the same.
static inline uint32_t backing_step_in(const vmp_backing *b, const reservation *r, uint64_t slot, uint64_t *out_next) {
  uint64_t index = slot - r->first_slot;
  const uint32_t *leaf = r->leaves[index / LEAF_SLOTS];
  *out_next = slot + GROUP_SLOTS - index % GROUP_SLOTS;
  if (leaf == NULL) return 0;
  uint32_t word = leaf[index % LEAF_SLOTS / GROUP_SLOTS];
  if (word < WORD_DETAIL) return word;
  *out_next = slot + 1;
  return backing_detail(b, word & WORD_INDEX)->words[index % GROUP_SLOTS];
}
static inline uint32_t backing_word_in(const vmp_backing *b, const reservation *r, uint64_t slot) {
  uint64_t next;
  return backing_step_in(b, r, slot, &next);
}
// backing_word: 0 for slots outside every reservation too.
static inline uint32_t backing_word(const vmp_backing *b, uint64_t slot) {
  const reservation *r = backing_reservation_of(b, slot);
  return r == NULL ? 0 : backing_word_in(b, r, slot);
}
// backing_has_slot: whether a slot belongs to a reservation.
static inline bool backing_has_slot(const vmp_backing *b, uint64_t slot) {
  return backing_reservation_of(b, slot) != NULL;
}
// backing_prepare_slots makes what the table needs for one word that covers the range; backing_prepare_details what it
// needs for a word for each slot. False: no host memory; what was made changes nothing.
bool backing_prepare_slots(vmp_backing *b, uint64_t slot, uint64_t slots);
bool backing_prepare_details(vmp_backing *b, uint64_t slot, uint64_t slots);
// backing_set_words writes one word to a range that was prepared, or that one word covered before.
void backing_set_words(vmp_backing *b, uint64_t slot, uint64_t slots, uint32_t word);
// backing_skip_unmapped returns the first slot at or after `slot`, at most `end`, that is not unmapped.
uint64_t backing_skip_unmapped(const vmp_backing *b, uint64_t slot, uint64_t end);
uint64_t backing_slot_address(const vmp_backing *b, uint64_t slot);
void backing_log_change(vmp_backing *b, uint64_t slot, uint64_t slots);

// backing_tell tells the observer of a change at a place. Under the lock.
void backing_tell_change(const vmp_backing *b, vmp_backing_change_kind kind, uint32_t chunk_id, uint64_t slot,
                         uint64_t slots, const vmp_backing_change *more);
static inline void backing_tell(const vmp_backing *b, vmp_backing_change_kind kind, uint32_t chunk_id, uint64_t slot,
                                uint64_t slots, const vmp_backing_change *more) {
  if (__builtin_expect(b->observer != NULL, 0)) backing_tell_change(b, kind, chunk_id, slot, slots, more);
}

static inline bool word_is_home(uint32_t word) { return (word & WORD_HOME) != 0; }  // never of a DETAIL
static inline bool word_is_place(uint32_t word) { return (word & WORD_PLACE) != 0; }
static inline chunk *backing_chunk(const vmp_backing *b, uint32_t id) { return chunk_at(&b->chunks, id); }
static inline place *backing_place(const vmp_backing *b, uint32_t id) { return vmp_node_at(&b->places, id); }

void backing_lock(vmp_backing *b);
void backing_unlock(vmp_backing *b);
void backing_wake(vmp_backing *b);

void place_list_add(vmp_backing *b, place_list *list, uint32_t id);
void place_list_remove(vmp_backing *b, place_list *list, uint32_t id);

// ---- backing_plan.c ----
// PIECE_MOVE: a live chunk, which stays live, with its claims; its old home is as it was until the commit.
typedef enum piece_source { PIECE_CREATE = 0, PIECE_SPARE, PIECE_TAKE, PIECE_SHARE, PIECE_MOVE } piece_source;

typedef struct piece {
  uint64_t slot;        // new home
  uint64_t address;     // of its first slot: the table of reservations isn't read without the lock
  uint64_t old_slot;    // PIECE_TAKE, PIECE_MOVE: the home it leaves
  uint64_t generation;  // of the new mapping
  uint32_t chunk, place;
  uint8_t source, order;
  bool made, mapped;
} piece;

typedef struct plan {
  piece *pieces;
  size_t num_pieces, capacity;
  uint64_t created_bytes;
  vmp_backing_calls calls;  // made for it, undoing included
  bool pages;               // its chunks become pages of regions
  vmp_fence users;          // PIECE_MOVE: who may still touch the chunks at their old homes
} plan;

typedef struct plan_rules {
  uint64_t keep_slot, keep_end;  // parked chunks here are part of the claim already: not to be taken for it
  vmp_stream_index stream;
  vmp_effort effort;
  uint64_t create_bytes;  // how much may be created at all: limits, device memory, earlier refusals
  uint64_t soft_bytes;    // ... before parked memory is preferred
  uint64_t growth_slots;  // round growth up to this; 0 or 1: exact
  unsigned max_order;     // largest chunk to create
  bool wait_allowed;      // parked memory of other streams, behind a stream wait
} plan_rules;

// plan_make covers every unmapped slot of [slot, slot + slots). On success the chosen chunks are in TRANSIT and the
// slots carry transit places. On failure nothing has changed: FRAGMENTED, OUT_OF_MEMORY, LIMIT,
// HOST_OUT_OF_MEMORY. *out_short: bytes that were missing.
vmp_status plan_make(vmp_backing *b, uint64_t slot, uint64_t slots, const plan_rules *rules, plan *out_plan,
                     uint64_t *out_short);
// plan_add_shared adds a piece for a place that share_begin has made. False: no host memory.
bool plan_add_shared(vmp_backing *b, plan *p, uint32_t place_id);
// plan_undo_records puts chunks and slots back as they were before plan_make, for pieces that touched no driver.
void plan_undo_records(vmp_backing *b, plan *p);
void plan_free(plan *p);
// plan_add_piece puts a chunk (a new one for PIECE_CREATE) at [slot, ...). False: no host memory, nothing changed.
bool plan_add_piece(vmp_backing *b, plan *p, piece_source source, uint32_t chunk_id, unsigned order, uint64_t slot);
// plan_why_not says why `needed_bytes` could not be planned: they exist but don't fit here, a limit, or the device.
vmp_status plan_why_not(const vmp_backing *b, uint64_t needed_bytes, const plan_rules *rules);

// backing_may_move_pending: whether chunks under unfinished work may be gathered. Each leaves a retiring place behind;
// no more of these than there is memory. And only one stream's: side by side with another's, the layers would place
// blocks across both, and a stream would wait for more than before. O(parked chunks).
bool backing_may_move_pending(const vmp_backing *b);
// backing_room_around finds the unmapped slots on both sides of a hole, at most `reach` of them.
typedef struct hole {
  uint64_t slot, end;  // must be mapped
  uint64_t low, high;  // may be
} hole;
void backing_room_around(const vmp_backing *b, hole *h, bool at_start, bool at_end, uint64_t reach);

// ---- backing_page_ranges.c, backing_pages.c ----
// backing_clip_to_pages keeps the room around a hole out of page ranges; *reach: how far it may go downwards.
void backing_clip_to_pages(const vmp_backing *b, hole *h, uint64_t *reach);
// backing_is_idle_page: whether a slot lies in no page range that is in use.
bool backing_is_idle_page(const vmp_backing *b, uint64_t slot);
// backing_pick_page finds a complete parked page for others than regions: the largest of at most `fit` granules' order,
// else the smallest larger one that has room. 0: none.
uint32_t backing_pick_page(const vmp_backing *b, unsigned fit, uint64_t room);

// ---- backing_claim.c ----
static inline uint64_t backing_first_slot(const vmp_backing *b, uint64_t offset) { return offset >> b->granule_log2; }
static inline uint64_t backing_end_slot(const vmp_backing *b, uint64_t offset, uint64_t bytes) {
  return ((offset + bytes - 1) >> b->granule_log2) + 1;
}
static inline uint64_t backing_min(uint64_t a, uint64_t b) { return a < b ? a : b; }
// backing_is_usable: a chunk at home that claims may come to.
static inline bool backing_is_usable(const chunk *c) {
  return (uint8_t)(c->state - CHUNK_LIVE) <= CHUNK_PARKED - CHUNK_LIVE && (c->sealed | c->lost) == 0;
}
_Static_assert(CHUNK_PARKED == CHUNK_LIVE + 1, "one comparison tells them from the others");
// backing_moved_fence: what the user of a chunk must be ordered behind, because it was moved.
vmp_fence backing_moved_fence(vmp_backing *b, chunk *c);
// backing_uncount_claims takes back one claim from each chunk of a mapped range.
void backing_uncount_claims(vmp_backing *b, uint64_t slot, uint64_t end);
// backing_first_rules asks the device and the limits what a claim may do. MAY UNLOCK.
plan_rules backing_first_rules(vmp_backing *b, vmp_stream_index stream, vmp_effort effort);
// backing_next_rules learns from a failed attempt; false when there is nothing more to try.
bool backing_next_rules(plan_rules *rules, vmp_status status, uint64_t created);
// backing_claim is the claim of backing_ops.h (exact: growth is not rounded up); what was moved, and the calls for it,
// is added to *tally. MAY UNLOCK.
vmp_status backing_claim(vmp_backing *b, uint64_t offset, uint64_t bytes, vmp_stream_index stream, vmp_effort effort,
                         bool exact, vmp_gather_report *tally, vmp_fence *out_after);

// ---- backing_share.c: what the others must know of shared places ----
// The place that a slot's word names, when it is a mapping that serves claims; NULL for everything else.
static inline place *share_at(const vmp_backing *b, uint32_t word) {
  if (!word_is_place(word)) return NULL;
  place *p = backing_place(b, word & WORD_INDEX);
  return p->state == PLACE_SHARED ? p : NULL;
}
// share_covers: whether the part of [offset, end) that lies in the place's slots lies in its window.
bool share_covers(const vmp_backing *b, const place *p, uint64_t offset, uint64_t end);
// share_run tells the state at `offset`, which lies in the place's slots, and where it stops.
vmp_run_state share_run(const vmp_backing *b, const place *p, uint64_t offset, uint64_t *out_end);
// share_count adds one claim, share_uncount takes one back whose user may still touch the bytes as `fence` says.
void share_count(vmp_backing *b, place *p);
void share_uncount(vmp_backing *b, place *p, vmp_fence fence);
// share_commit: the place's mapping has been made. share_drop: it has not, and the place goes. share_break: it could
// not be undone, and the place is broken.
void share_commit(vmp_backing *b, uint32_t place_id, uint64_t generation);
void share_drop(vmp_backing *b, uint32_t place_id);
void share_break(vmp_backing *b, uint32_t place_id);
// share_check reports what is wrong with a shared chunk's places. *places: how many the table must show, transit ones
// left out.
void share_check(const vmp_backing *b, uint32_t chunk_id, uint64_t *places, vmp_report *report);

// share_commit_joined maps a chunk at one more slot, whose own chunk has gone: its claims are this place's now. The
// nodes are the caller's: one for the place, one for the host's home where it isn't shared yet (given back where it
// is).
void share_commit_joined(vmp_backing *b, uint32_t chunk_id, uint32_t place_id, uint32_t home_id, const place *joined);
// share_heal grants the access that joined places lack. MAY UNLOCK.
bool share_heal(vmp_backing *b, uint32_t chunk_id, uint64_t *most, vmp_backing_calls *calls);

// ---- backing_lost.c ----
// backing_now_idle: the last claim of a chunk at home has gone; it is parked, or, where it is lost, spare or broken.
void backing_now_idle(vmp_backing *b, uint32_t id);
static inline void backing_idle(vmp_backing *b, uint32_t id) {
  if (__builtin_expect(backing_chunk(b, id)->lost != 0, 0)) {
    backing_now_idle(b, id);
  } else {
    chunk_to_parked(&b->chunks, id);
  }
}
// backing_heal_lost tries to map up to `most` lost chunks and places again. MAY UNLOCK.
bool backing_heal_lost(vmp_backing *b, uint64_t most, vmp_backing_calls *calls);

// ---- backing_commit.c ----
// backing_retire_home turns the old slots of a chunk that has another home now into a retiring place, with a node that
// the caller has taken for it.
void backing_retire_home(vmp_backing *b, uint32_t chunk_id, uint32_t place_id, uint64_t old_slot, vmp_fence fence);
// plan_execute makes the driver calls of a plan (MAY UNLOCK) and commits it, or undoes it. *out_created: bytes that
// could be created before a create failed (UINT64_MAX when no create failed).
vmp_status plan_execute(vmp_backing *b, plan *p, uint64_t *out_created);

// ---- backing_retire.c, backing_release.c ----
// One mapping that is to be removed: a place's, or a chunk's home.
typedef struct removal {
  uint64_t slot, slots, address, generation;
  uint32_t id;  // place or chunk
  vmp_cu_handle handle;
  int code;          // of the unmap
  int release_code;  // of the release
} removal;

// backing_home_removal: a mapped chunk's home is to be unmapped.
removal backing_home_removal(const vmp_backing *b, uint32_t id);
// backing_home_unmapped notes that it is done: the chunk has no home, its slots are free. Under the lock.
void backing_home_unmapped(vmp_backing *b, uint32_t id);
// backing_unmap_batch makes the unmap calls for a list of mappings and notes their codes. Returns how many calls that
// were. Without the lock.
#define REMOVAL_BATCH 256u
uint64_t backing_unmap_batch(vmp_backing *b, removal *list, size_t count, const callback_list *callbacks);
// backing_release_for makes room for `bytes` by giving complete parked and spare chunks back to the device. MAY
// UNLOCK. Returns the bytes given back.
uint64_t backing_release_for(vmp_backing *b, uint64_t bytes);
// ---- backing_pin.c ----
// backing_pinned_only_bytes: of chunks that nothing but pins keeps. O(chunks) where there are pins.
uint64_t backing_pinned_only_bytes(const vmp_backing *b);

// backing_poll_if_crowded polls when retiring places have piled up since the last poll. MAY UNLOCK.
void backing_poll_if_crowded(vmp_backing *b);

#endif  // VMPOOL_VMM_BACKING_INTERNAL_H_
