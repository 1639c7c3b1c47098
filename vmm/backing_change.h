// backing_change.h: what one change of what is mapped under live claims consists of. Private to
// backing_change.c, _lost.c, _split.c and _join.c; see backing_compact.h.
//
// The chunk that is changed stays at home, sealed and held, until the change is committed: frees count on it as ever.
#ifndef VMPOOL_VMM_BACKING_CHANGE_H_
#define VMPOOL_VMM_BACKING_CHANGE_H_

#include "vmm/backing_compact.h"
#include "vmm/backing_internal.h"

static inline uint64_t change_slot(const vmp_backing *b, uint64_t offset) { return offset >> b->granule_log2; }
static inline uint64_t change_home_offset(const vmp_backing *b, const chunk *c) { return c->home << b->granule_log2; }
// change_home_at returns the chunk that has its home at a slot, 0: none.
static inline uint32_t change_home_at(const vmp_backing *b, uint64_t slot) {
  uint32_t word = backing_word(b, slot);
  return word_is_home(word) ? word & WORD_INDEX : 0;
}

// ---- backing_change.c ----
vmp_stay change_stay(const chunk *c);
// change_hold keeps the chunk at a slot live, whatever becomes of its claims; change_let_go undoes it.
void change_hold(vmp_backing *b, uint64_t slot);
void change_let_go(vmp_backing *b, uint64_t slot);

// fresh: a chunk of one granule that takes over a slot. It was parked and complete, at home elsewhere.
typedef struct fresh {
  uint64_t slot, address, from_address, old_slot, generation;
  uint32_t chunk, place;  // place: a node for its old home
  bool mapped, granted;
} fresh;

typedef struct change_run {
  vmp_backing *b;
  uint32_t id;  // the chunk that is changed
  uint64_t offset, bytes, address, generation,
      back_generation;  // of the mapping that is, and of one that is made again
  fresh *list;
  size_t count;
  vmp_compact_report *report;
  vmp_error error;
  bool was_sealed, unmapped, undone, lost;
} change_run;

// change_begin seals and holds the chunk that is changed. The lock is held.
void change_begin(change_run *r);
// change_keep ends a change that wasn't made, or was undone: the chunk is as before, or lost. change_give_up ends the
// chunk that has been replaced: its claims are others' now. The lock is held.
void change_keep(change_run *r);
void change_give_up(change_run *r);
// Without the lock. change_copy copies what of `live` lies in [from, from + bytes) of the old chunk; `to` is where that
// part begins now. change_unmap_old removes the old mapping, change_map_back makes it again: r->undone: it is mapped;
// r->lost: not so that it could be used. change_fail keeps the first cause.
int change_copy(change_run *r, const vmp_live_range *live, size_t num_live, uint64_t from, uint64_t bytes, uint64_t to);
int change_unmap_old(change_run *r, const callback_list *callbacks);
void change_map_back(change_run *r, vmp_cu_handle handle, const callback_list *callbacks);
vmp_status change_fail(change_run *r, vmp_call call, int code);

// ---- backing_lost.c ----
// change_lose notes that a live chunk is not mapped at home (CHUNK_LOST_UNMAPPED), or only without access.
void change_lose(vmp_backing *b, uint32_t id, chunk_lost how);
// change_map_and_grant maps a chunk, where *mapped isn't set, and grants access. Without the lock.
int change_map_and_grant(vmp_backing *b, uint64_t address, uint64_t bytes, vmp_cu_handle handle, bool *mapped,
                         vmp_call *out_call, vmp_backing_calls *calls);

#endif  // VMPOOL_VMM_BACKING_CHANGE_H_
