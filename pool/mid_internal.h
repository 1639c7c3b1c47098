// mid_internal.h: what mid's files share. See mid.h for what mid is.
//
//     mid.c        public functions: allocate, free, find, statistics, walk
//     mid_place.c  where a block goes (looks, changes nothing but what it settles)
//     mid_space.c  arenas, pieces, extents and runs: cutting blocks out, giving them back, catching up with mapping
//     mid_index.c  which piece holds an offset, in constant time
//     mid_check.c  all invariants
//
// The pieces (used blocks and free parts) of an arena tile it; two sets of ranges are laid over its free parts:
//
//     pieces    | used | part {s} | part {t} | used | part {} .......................|
//     extents          [---------------------)      [-------------------------------)    free, whatever the fences
//     runs             [---------------)            [----)          [------)             mapped parts of extents
//
// Fences are kept per part and exactly: free neighbours whose fences name the same streams are one part, others stay
// two, so that a stream never waits for memory that it freed itself. Extents and runs don't look at fences, so a
// request that needs several parts together finds them, and then waits for all of them. A part whose fence is known
// complete loses it when a placement that would have to wait meets it; then it may join its neighbours.
//
// Where every slot of a place is unmapped its parts' fences don't count: the old mapping went after they completed.
#ifndef VMPOOL_POOL_MID_INTERNAL_H_
#define VMPOOL_POOL_MID_INTERNAL_H_

#include "pool/mid.h"
#include "pool/range_set.h"
#include "vmm/align.h"
#include "vmm/node_pool.h"

// ---- pieces ----
typedef enum vmp_mid_kind {
  VMP_MID_NONE = 0,  // the node is in nobody's list
  VMP_MID_USED = 1,
  VMP_MID_PART = 2,
} vmp_mid_kind;

typedef struct vmp_mid_piece {
  uint64_t offset, bytes;
  uint32_t prev, next;  // neighbours in the arena, 0 at its ends
  uint32_t kind;        // vmp_mid_kind
  uint32_t unused;
  union {
    vmp_fence fence;  // of a part: who may still touch it
    void *owner;      // of a used block
  };
} vmp_mid_piece;

_Static_assert(sizeof(vmp_mid_piece) == 48, "a piece has no hidden padding");
_Static_assert(sizeof(vmp_range) == 32, "two ranges share a cache line");

// Freeing a block may make one extent and one run more; these nodes are promised when it is allocated.
#define VMP_MID_PROMISED_RANGES 2u

// ---- index ----
// The first piece that begins in each page of 32 KiB, in tables for sectors of 4096 pages, made where a piece begins.
#define VMP_MID_PAGE_LOG2 15u
#define VMP_MID_PAGES_LOG2 12u
#define VMP_MID_SECTOR_LOG2 (VMP_MID_PAGE_LOG2 + VMP_MID_PAGES_LOG2)
#define VMP_MID_PAGES (1u << VMP_MID_PAGES_LOG2)

typedef struct vmp_mid_pages {
  uint64_t words;                       // bit w: word w of starts isn't 0
  uint64_t starts[VMP_MID_PAGES / 64];  // bit p: a piece begins in page p
  uint32_t first[VMP_MID_PAGES];        // the lowest piece that begins in page p
} vmp_mid_pages;

_Static_assert(VMP_MID_PAGES / 64 <= 64, "one word of bits covers the words of a sector");

typedef struct vmp_mid_sector {
  vmp_mid_pages *pages;  // NULL: no piece has begun here yet
  uint32_t cover;        // the piece that holds the sector's first byte
} vmp_mid_sector;

// ---- arenas ----
typedef struct vmp_mid_arena {
  uint64_t offset, bytes;
  uint32_t first;  // piece
  vmp_mid_sector *sectors;
  size_t num_sectors;
} vmp_mid_arena;

struct vmp_mid {
  vmp_backing_ops ops;
  vmp_mid_supply supply;
  vmp_mid_options options;

  vmp_node_pool pieces;  // of vmp_mid_piece
  vmp_node_pool ranges;  // of vmp_range, for both sets
  vmp_range_set extents, runs;

  vmp_mid_arena **arenas;  // by offset
  size_t num_arenas, arenas_capacity;
  uint64_t arena_bytes;

  uint64_t cursor;  // of next_change
  bool stale;       // the runs miss something (host memory ran out): rebuild all of them at the next occasion
  uint64_t blocks, block_bytes;
  uint64_t index_bytes;
};

static inline vmp_mid_piece *vmp_mid_piece_at(const vmp_mid *mid, uint32_t index) {
  return vmp_node_at(&mid->pieces, index);
}
static inline uint64_t vmp_mid_piece_end(const vmp_mid_piece *piece) { return piece->offset + piece->bytes; }

// ---- places ----
// vmp_mid_place: where a block may go, and what that would take.
typedef struct vmp_mid_place {
  uint64_t offset;
  uint64_t within_bytes;  // size of the run or extent that it was found in
  uint32_t run;           // the run that holds all of it, 0 when there is none or it isn't known
  vmp_cost cost;
  vmp_fence fence;  // who may still touch the place: its parts' fences, unless nothing of the place is mapped
  vmp_fence after;  // what the stream has to wait for of them
  bool must_wait;   // because of `after`, or of the cost, where the request minds
} vmp_mid_place;

// ---- mid_index.c ----
// vmp_mid_index_prepare makes the table for a piece that begins at `offset`. False: host memory.
bool vmp_mid_index_prepare(vmp_mid *mid, vmp_mid_arena *arena, uint64_t offset);
// The three below change the index for one piece. Tables have been prepared; the list links are right.
void vmp_mid_index_start(vmp_mid *mid, vmp_mid_arena *arena, uint32_t piece);      // it begins at its offset
void vmp_mid_index_end_start(vmp_mid *mid, vmp_mid_arena *arena, uint32_t piece);  // it won't; its next piece is known
void vmp_mid_index_cover(vmp_mid_arena *arena, uint64_t from, uint64_t to, uint32_t piece);  // it holds [from, to)
// vmp_mid_index_find: the piece that holds `offset`, which lies in the arena.
uint32_t vmp_mid_index_find(const vmp_mid *mid, const vmp_mid_arena *arena, uint64_t offset);
void vmp_mid_index_free(vmp_mid *mid, vmp_mid_arena *arena);

// ---- mid_space.c ----
// vmp_mid_arena_of: the arena that holds `offset`, or NULL.
vmp_mid_arena *vmp_mid_arena_of(const vmp_mid *mid, uint64_t offset);
// vmp_mid_add_arena takes an arena from the supply in which `request` surely fits. MAY UNLOCK (the supply reserves
// addresses); afterwards the lock isn't let go of.
vmp_status vmp_mid_add_arena(vmp_mid *mid, const vmp_request *request, vmp_mid_arena **out_arena);
void vmp_mid_free_arenas(vmp_mid *mid);
// vmp_mid_catch_up brings the runs up to date with the mapping, and gives empty arenas back.
void vmp_mid_catch_up(vmp_mid *mid);
// vmp_mid_refresh rebuilds the runs of the slots that [offset, end) touches. May allocate; sets `stale` if it can't.
void vmp_mid_refresh(vmp_mid *mid, uint64_t offset, uint64_t end);
// vmp_mid_cut makes `bytes` at the place, which was just found, a used block, and tells the merged fence of its parts
// (for vmp_mid_give_back, should the claim fail). VMP_ERROR_HOST_OUT_OF_MEMORY, and then nothing has changed.
vmp_status vmp_mid_cut(vmp_mid *mid, const vmp_mid_place *place, uint64_t bytes, void *owner, uint32_t *out_piece,
                       vmp_fence *out_fence);
// vmp_mid_give_back makes a used block free again. Allocates nothing, can't fail (but may leave the runs stale, if more
// of them come of it than were promised).
void vmp_mid_give_back(vmp_mid *mid, uint32_t piece, vmp_fence fence);
// vmp_mid_settle drops complete fences from the parts of [offset, end), at most `limit` of them, and joins what is
// alike then.
void vmp_mid_settle(vmp_mid *mid, uint64_t offset, uint64_t end, unsigned limit);
// vmp_mid_fences: who may still touch the free range (*out_fence), and what `stream` has to be ordered behind to use it
// (*out_after, which may be less than `others` of the former), both merged over its parts.
void vmp_mid_fences(const vmp_mid *mid, uint64_t offset, uint64_t bytes, vmp_stream_index stream, vmp_fence *out_fence,
                    vmp_fence *out_after);

// ---- mid_place.c ----
// vmp_mid_place_mapped: the best place that needs no mapping. False when there is none.
bool vmp_mid_place_mapped(vmp_mid *mid, const vmp_request *request, vmp_mid_place *out_place);
// vmp_mid_place_growing: the best place that needs some. False when there is none; *out_blocked then tells whether
// a place would be large enough, but for slots that can't be mapped now or, with VMP_WAIT_NEVER, for what it would wait
// for.
bool vmp_mid_place_growing(vmp_mid *mid, const vmp_request *request, vmp_mid_place *out_place, bool *out_blocked);
// vmp_mid_place_fresh: a wholly unmapped place with room for large chunks around it. False when there is none.
bool vmp_mid_place_fresh(vmp_mid *mid, const vmp_request *request, vmp_mid_place *out_place);
// vmp_mid_place_in: the beginning of an arena that was just added.
vmp_mid_place vmp_mid_place_in(vmp_mid *mid, const vmp_request *request, const vmp_mid_arena *arena);

#endif  // VMPOOL_POOL_MID_INTERNAL_H_
