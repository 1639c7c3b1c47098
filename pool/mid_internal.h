// mid_internal.h: what mid's files share. See mid.h for what mid is.
//
//     mid.c        public functions: allocate, free, find, statistics, walk
//     mid_edges.c  blocks whose ends lie in chunks of other blocks
//     mid_place.c  where a block goes (looks, changes nothing but what it settles)
//     mid_space.c  pieces: cutting blocks out, giving them back, settling fences
//     mid_arena.c  arenas, and catching up with changes of the mapping
//     mid_runs.c   runs by size
//     mid_index.c  which piece holds an offset, in constant time
//     mid_quick.h  the common case of allocating and freeing, in one pass
//     mid_resize.c blocks that become longer or shorter, and addresses without a claim
//     mid_check.c  all invariants
//
// The pieces (used blocks and free parts) of an arena tile it. A free part is wholly mapped, or bare; runs are the
// longest stretches of mapped parts, extents those of all parts:
//
//     pieces    | used | mapped {s} | mapped {t} | used | mapped {} | bare {} .......|
//     runs             [-------------------------)      [-----------)                  free and mapped
//     extents          [-------------------------)      [----------------------------) free
//                       its only run                     mixed: in `mixed`
//
// A run needs no record of its own: its first part (the head) is in the class of its size, first and last part name
// each other. An extent needs one only when it is mixed, which means that it has a bare part; while memory neither
// grows nor moves that is none but those at the end of what is mapped. So a free needs no node, and nothing is promised
// to it.
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
  VMP_MID_NONE = 0,  // the node is in nobody's list, or no node
  VMP_MID_USED = 1,
  VMP_MID_MAPPED = 2,  // a free part, wholly mapped
  VMP_MID_BARE = 3,    // a free part of which nothing can be used without mapping: unmapped or blocked
} vmp_mid_kind;

typedef struct vmp_mid_piece {
  uint64_t offset, bytes;
  uint32_t prev, next;  // neighbours in the arena, 0 at its ends
  uint16_t kind;        // vmp_mid_kind
  uint16_t class;       // of a run's first part: the run's size class
  uint32_t run_end;     // of a run's first part: its last; of the last: its first (a single part names itself)
  uint32_t links[2];    // of a run's first part, in its size class: smaller, larger (or: previous, next)
  union {
    vmp_fence fence;  // of a part: who may still touch it
    struct {
      void *owner;    // of a used block
      uint64_t word;  // the caller's number; see vmp_mid_word
    };
  };
} vmp_mid_piece;

_Static_assert(sizeof(vmp_mid_piece) == 56, "a piece has no hidden padding");

// The runs by size. Below 256 steps each size has a class, a list; above there are 256 classes to a doubling, each a
// tree; from 2^48 bytes on all sizes are one class.
#define VMP_MID_STEP_LOG2 9u
#define VMP_MID_SPLIT_LOG2 8u
#define VMP_MID_CLASSES ((48u - VMP_MID_STEP_LOG2 - VMP_MID_SPLIT_LOG2 + 1u) << VMP_MID_SPLIT_LOG2)

typedef struct vmp_mid_runs {
  uint32_t roots[VMP_MID_CLASSES];
  uint64_t classes[VMP_MID_CLASSES / 64];     // bit set: the class isn't empty
  uint64_t words[VMP_MID_CLASSES / 64 / 64];  // bit w: word w of classes isn't 0
  uint64_t count, bytes;
} vmp_mid_runs;

_Static_assert(VMP_MID_STEP_BYTES == 1u << VMP_MID_STEP_LOG2, "sizes are told apart by the step");
_Static_assert(VMP_MID_CLASSES <= UINT16_MAX, "a piece names its class");
_Static_assert(VMP_MID_CLASSES % 4096 == 0, "both bitmaps have whole words");

// vmp_mid_class rises with the size.
__attribute__((always_inline)) static inline unsigned vmp_mid_class(uint64_t bytes) {
  uint64_t steps = bytes >> VMP_MID_STEP_LOG2;
  if (steps >> VMP_MID_SPLIT_LOG2 == 0) return (unsigned)steps;
  unsigned shift = vmp_log2(steps) - VMP_MID_SPLIT_LOG2;
  unsigned class = (shift << VMP_MID_SPLIT_LOG2) + (unsigned)(steps >> shift);
  return class < VMP_MID_CLASSES ? class : VMP_MID_CLASSES - 1;
}

// The free ends of partly used chunks (mid_edges.c), where the option `edges` is set.
typedef struct vmp_mid_edges {
  vmp_node_pool nodes;     // of vmp_tree_node
  uint32_t tops, bottoms;  // trees by size
  uint64_t missed;         // edges that no node was there for
} vmp_mid_edges;

// ---- index ----
// A piece that begins in each page of 4 MiB, in tables for sectors of 1024 pages, made where a piece begins. A
// page in which many pieces begin has a table of its own, of 64 lines of 64 KiB.
#define VMP_MID_LINE_LOG2 16u
#define VMP_MID_LINES 64u
#define VMP_MID_PAGE_LOG2 22u
#define VMP_MID_PAGES_LOG2 10u
#define VMP_MID_SECTOR_LOG2 (VMP_MID_PAGE_LOG2 + VMP_MID_PAGES_LOG2)
#define VMP_MID_PAGES (1u << VMP_MID_PAGES_LOG2)

// An entry of a page: 0, or a piece that begins there and how many more do, or its table of lines.
#define VMP_MID_ENTRY_LINES UINT32_C(0x80000000)  // the rest is the number of a table
#define VMP_MID_ENTRY_MORE_LOG2 27u               // bits 27..30: how many besides the lowest; 15: or more
#define VMP_MID_ENTRY_MORE UINT32_C(0x78000000)
#define VMP_MID_ENTRY_MOST 15u
#define VMP_MID_ENTRY_ONE UINT32_C(0x08000000)
#define VMP_MID_ENTRY_PIECE UINT32_C(0x07ffffff)
#define VMP_MID_MAX_PIECES VMP_MID_ENTRY_PIECE

typedef struct vmp_mid_pages {
  uint64_t words;                       // bit w: word w of starts isn't 0
  uint64_t starts[VMP_MID_PAGES / 64];  // bit p: a piece begins in page p
  uint32_t entries[VMP_MID_PAGES];
} vmp_mid_pages;

typedef struct vmp_mid_lines {
  uint64_t starts;                // bit l: a piece begins in line l
  uint32_t first[VMP_MID_LINES];  // the lowest piece that begins in line l
} vmp_mid_lines;

_Static_assert(VMP_MID_PAGES / 64 <= 64, "one word of bits covers the words of a sector");
_Static_assert(VMP_MID_LINES << VMP_MID_LINE_LOG2 == 1u << VMP_MID_PAGE_LOG2, "the lines fill a page");

// The tables of lines, by number.
typedef struct vmp_mid_tables {
  vmp_mid_lines **at;  // NULL: no table has this number
  uint32_t *unused;    // numbers without a table, a stack
  uint32_t capacity, num_unused;
  vmp_mid_lines *spare;  // made before it may be needed where nothing can be allocated
} vmp_mid_tables;

typedef struct vmp_mid_sector {
  vmp_mid_pages *pages;  // NULL: no piece has begun here yet
  uint32_t cover;        // the piece that holds the sector's first byte
} vmp_mid_sector;

// ---- arenas ----
typedef struct vmp_mid_arena {
  uint64_t offset, bytes;
  uint32_t first;  // piece
  vmp_mid_sector *sectors;
  uint64_t first_sector;  // number of the one that the arena begins in
  size_t num_sectors;
} vmp_mid_arena;

struct vmp_mid {
  vmp_backing_ops ops;
  vmp_mid_supply supply;
  vmp_mid_options options;

  vmp_node_pool pieces;  // of vmp_mid_piece, in a row
  vmp_mid_runs runs;
  vmp_mid_edges edges;
  vmp_node_pool ranges;  // of vmp_range
  vmp_range_set mixed;   // the extents that have a bare part
  uint64_t extents;      // how many there are, mixed or not
  vmp_mid_tables tables;

  vmp_mid_arena **arenas;  // by offset
  size_t num_arenas, arenas_capacity;
  uint64_t arena_bytes;

  unsigned granule_log2;
  uint32_t last;    // the used block that was made or asked for last, if it is still that
  uint64_t cursor;  // of next_change
  // Some part isn't what the mapping says, or a mixed extent is missing (host memory ran out): look at all of them at
  // the next occasion. The runs are in any case those that the parts' kinds make.
  bool stale;
  uint64_t blocks, block_bytes;
  uint64_t index_bytes;
};

static inline vmp_mid_piece *vmp_mid_piece_at(const vmp_mid *mid, uint32_t index) {
  return vmp_node_in_row(&mid->pieces, index, sizeof(vmp_mid_piece));
}
static inline uint64_t vmp_mid_piece_end(const vmp_mid_piece *piece) { return piece->offset + piece->bytes; }
// Index 0 is a piece of no kind: where links lead nowhere it may be asked like any other.
static inline bool vmp_mid_is(const vmp_mid *mid, uint32_t index, vmp_mid_kind kind) {
  return vmp_mid_piece_at(mid, index)->kind == (uint16_t)kind;
}
static inline bool vmp_mid_piece_is_free(const vmp_mid_piece *piece) { return piece->kind >= VMP_MID_MAPPED; }
static inline bool vmp_mid_is_free(const vmp_mid *mid, uint32_t index) {
  return vmp_mid_piece_is_free(vmp_mid_piece_at(mid, index));
}
// vmp_mid_are_alike: both are free, and may be one part: nobody waits for more than now.
static inline bool vmp_mid_are_alike(const vmp_mid_piece *left, const vmp_mid_piece *right) {
  return left->kind == right->kind && vmp_mid_piece_is_free(left) && left->fence.streams == right->fence.streams;
}
static inline uint64_t vmp_mid_arena_end(const vmp_mid_arena *arena) { return arena->offset + arena->bytes; }

// ---- places ----
// vmp_mid_place: where a block may go, and what that would take.
typedef struct vmp_mid_place {
  uint64_t offset;
  uint64_t within_bytes;  // size of the run or extent that it was found in
  uint32_t run;           // the run that holds all of it (its first part), 0 when there is none or it isn't known
  vmp_cost cost;
  vmp_fence fence;  // who may still touch the place: its parts' fences, unless nothing of the place is mapped
  vmp_fence after;  // what the stream has to wait for of them
  bool must_wait;   // because of `after`, or of the cost, where the request minds
} vmp_mid_place;

// vmp_mid_span: [from, to).
typedef struct vmp_mid_span {
  uint64_t from, to;
} vmp_mid_span;

// ---- mid_runs.c: runs are named by their first part ----
static inline bool vmp_mid_is_head(const vmp_mid *mid, uint32_t part) {
  return vmp_mid_is(mid, part, VMP_MID_MAPPED) && !vmp_mid_is(mid, vmp_mid_piece_at(mid, part)->prev, VMP_MID_MAPPED);
}
static inline vmp_mid_span vmp_mid_run_span(const vmp_mid *mid, uint32_t head) {
  const vmp_mid_piece *first = vmp_mid_piece_at(mid, head);
  return (vmp_mid_span){first->offset, vmp_mid_piece_end(vmp_mid_piece_at(mid, first->run_end))};
}
// vmp_mid_class_is_list: the class holds runs of one size only, in a list. The others are trees.
static inline bool vmp_mid_class_is_list(unsigned class) { return class < 1u << VMP_MID_SPLIT_LOG2; }
// vmp_mid_runs_mark and _unmark: the class has got its first run, has lost its last one.
__attribute__((always_inline)) static inline void vmp_mid_runs_mark(vmp_mid_runs *runs, unsigned class) {
  unsigned word = class / 64;
  runs->classes[word] |= UINT64_C(1) << (class % 64);
  runs->words[word / 64] |= UINT64_C(1) << (word % 64);
}
__attribute__((always_inline)) static inline void vmp_mid_runs_unmark(vmp_mid_runs *runs, unsigned class) {
  unsigned word = class / 64;
  uint64_t left = runs->classes[word] & ~(UINT64_C(1) << (class % 64));
  runs->classes[word] = left;
  if (left == 0) runs->words[word / 64] &= ~(UINT64_C(1) << (word % 64));
}
// vmp_mid_runs_insert puts a run of one part into the tree of its class; _take_out takes one out of the tree or list.
// They count nothing, and leave the bitmaps but for a class that becomes empty.
void vmp_mid_runs_insert(const vmp_mid *mid, uint32_t *root, uint32_t head);
void vmp_mid_runs_take_out(vmp_mid *mid, uint32_t *root, unsigned class, uint32_t head);
// vmp_mid_runs_above: the first run of the next class that isn't empty, 0 when there is none.
uint32_t vmp_mid_runs_above(const vmp_mid *mid, unsigned class);
// vmp_mid_runs_enter makes the mapped parts from `head` to `tail` a run.
void vmp_mid_runs_enter(vmp_mid *mid, uint32_t head, uint32_t tail);
// vmp_mid_runs_leave forgets a run; its parts may be changed then.
void vmp_mid_runs_leave(vmp_mid *mid, uint32_t head);
// vmp_mid_runs_fitting: the smallest run of at least `bytes`; _next_larger goes on from there. Among equals of at least
// 256 steps the lowest comes first.
uint32_t vmp_mid_runs_fitting(const vmp_mid *mid, uint64_t bytes);
uint32_t vmp_mid_runs_next_larger(const vmp_mid *mid, uint32_t head);
// vmp_mid_runs_largest: the largest run; _next_smaller goes on from there.
uint32_t vmp_mid_runs_largest(const vmp_mid *mid);
uint32_t vmp_mid_runs_next_smaller(const vmp_mid *mid, uint32_t head);
// vmp_mid_runs_check reports what is wrong with the trees. Returns how many runs they hold.
uint64_t vmp_mid_runs_check(const vmp_mid *mid, vmp_report *report);

// ---- mid_index.c ----
// vmp_mid_index_prepare makes what a piece that begins at `offset` needs. False: host memory.
bool vmp_mid_index_prepare(vmp_mid *mid, vmp_mid_arena *arena, uint64_t offset);
static inline bool vmp_mid_index_is_prepared(const vmp_mid_arena *arena, uint64_t offset) {
  return arena->sectors[(offset >> VMP_MID_SECTOR_LOG2) - arena->first_sector].pages != NULL;
}
// The two below change the index for one piece. Tables have been prepared; the list links are right.
void vmp_mid_index_start(vmp_mid *mid, vmp_mid_arena *arena, uint32_t piece);      // it begins at its offset
void vmp_mid_index_end_start(vmp_mid *mid, vmp_mid_arena *arena, uint32_t piece);  // it won't; its next piece is known
void vmp_mid_index_set_cover(vmp_mid_arena *arena, uint64_t from, uint64_t to, uint32_t piece);
// vmp_mid_index_cover: it holds [from, to), not at the arena's beginning.
__attribute__((always_inline)) static inline void vmp_mid_index_cover(vmp_mid_arena *arena, uint64_t from, uint64_t to,
                                                                      uint32_t piece) {
  if ((from - 1) >> VMP_MID_SECTOR_LOG2 != (to - 1) >> VMP_MID_SECTOR_LOG2) {
    vmp_mid_index_set_cover(arena, from, to, piece);
  }
}
// vmp_mid_index_find: the piece that holds `offset`, which lies in the arena.
uint32_t vmp_mid_index_find(const vmp_mid *mid, const vmp_mid_arena *arena, uint64_t offset);
// vmp_mid_index_free frees the tables of an arena that is about to go, vmp_mid_index_finish what no arena has.
void vmp_mid_index_free(vmp_mid *mid, vmp_mid_arena *arena);
void vmp_mid_index_finish(vmp_mid *mid);

// ---- mid_arena.c ----
// vmp_mid_arena_of: the arena that holds `offset`, or NULL.
vmp_mid_arena *vmp_mid_arena_search(const vmp_mid *mid, uint64_t offset);
static inline vmp_mid_arena *vmp_mid_arena_of(const vmp_mid *mid, uint64_t offset) {
  if (mid->num_arenas == 0) return NULL;
  vmp_mid_arena *first = mid->arenas[0];  // nearly always the only one
  return offset - first->offset < first->bytes ? first : vmp_mid_arena_search(mid, offset);
}
// vmp_mid_add_arena takes an arena from the supply in which `request` surely fits. MAY UNLOCK (the supply reserves
// addresses); afterwards the lock isn't let go of.
vmp_status vmp_mid_add_arena(vmp_mid *mid, const vmp_request *request, vmp_mid_arena **out_arena);
void vmp_mid_free_arenas(vmp_mid *mid);
// vmp_mid_catch_up brings parts, runs and mixed extents up to date with the mapping, and gives empty arenas back.
void vmp_mid_catch_up(vmp_mid *mid);
// vmp_mid_is_up_to_date: there is nothing to catch up with. False: there may be.
static inline bool vmp_mid_is_up_to_date(const vmp_mid *mid) {
  return !mid->stale && mid->ops.glance.changes != NULL && *mid->ops.glance.changes == mid->cursor;
}
// vmp_mid_refresh does it for the slots that [offset, end) touches. With `may_allocate` it takes nodes from the host;
// sets `stale` if it lacks some.
void vmp_mid_refresh(vmp_mid *mid, uint64_t offset, uint64_t end, bool may_allocate);

// ---- mid_space.c ----
// vmp_mid_split makes two parts of one at offset `at`, inside it, and returns the right one, which has the new node. A
// node must be there, and the index prepared. The part is in no run.
uint32_t vmp_mid_split(vmp_mid *mid, vmp_mid_arena *arena, uint32_t index, uint64_t at);
// vmp_mid_join makes one part of two neighbours, with the merged fence; the left one's node stays.
void vmp_mid_join(vmp_mid *mid, vmp_mid_arena *arena, uint32_t left, uint32_t right);
static inline bool vmp_mid_may_join(const vmp_mid *mid, uint32_t left, uint32_t right) {
  return vmp_mid_are_alike(vmp_mid_piece_at(mid, left), vmp_mid_piece_at(mid, right));
}
// vmp_mid_run_head: the first part of the run that a mapped part is in.
uint32_t vmp_mid_run_head(const vmp_mid *mid, uint32_t part);
// vmp_mid_add_mixed puts [from, to), of which nothing is in it, into the set of mixed extents, joined with what it
// touches. Without a node that may be needed: stale.
void vmp_mid_add_mixed(vmp_mid *mid, const vmp_mid_arena *arena, uint64_t from, uint64_t to);
// vmp_mid_extent_of_run: the extent that a run lies in.
vmp_mid_span vmp_mid_extent_of_run(const vmp_mid *mid, uint32_t head);

// vmp_mid_cut makes `bytes` at the place, which was just found, a used block, and tells the merged fence of its parts
// (for vmp_mid_give_back, should the claim fail). VMP_ERROR_HOST_OUT_OF_MEMORY, and then nothing has changed.
vmp_status vmp_mid_cut(vmp_mid *mid, const vmp_mid_place *place, uint64_t bytes, void *owner, uint32_t *out_piece,
                       vmp_fence *out_fence);
// vmp_mid_give_back makes a used block free again; `mapped`: all of its slots are mapped. Allocates nothing, can't fail
// (but may leave mid stale where they aren't).
void vmp_mid_give_back(vmp_mid *mid, uint32_t piece, vmp_fence fence, bool mapped);
// vmp_mid_settle drops complete fences from the parts of [offset, end), at most `limit` of them, and joins what is
// alike then.
void vmp_mid_settle(vmp_mid *mid, uint64_t offset, uint64_t end, unsigned limit);

// ---- mid_edges.c ----
// vmp_mid_edges_enter and _leave keep the edges of a run that comes or goes; _make_room takes nodes from the host for
// what frees may bring.
void vmp_mid_edges_enter(vmp_mid *mid, vmp_mid_span run);
void vmp_mid_edges_leave(vmp_mid *mid, vmp_mid_span run);
void vmp_mid_edges_make_room(vmp_mid *mid);
// vmp_mid_edges_allowed: whether the request's ends may lie in other blocks' chunks at all.
bool vmp_mid_edges_allowed(const vmp_mid *mid, const vmp_request *request);
// vmp_mid_edges_wanted: the whole chunks that a place of this cost needs, where memory is too short for it; else 0.
uint64_t vmp_mid_edges_wanted(const vmp_mid *mid, const vmp_cost *cost);
// vmp_mid_edges_alloc places a block with edges, if it then needs fewer than `most_whole` whole chunks.
// VMP_ERROR_BUSY: there are no such; else as vmp_mid_alloc. MAY UNLOCK.
vmp_status vmp_mid_edges_alloc(vmp_mid *mid, const vmp_request *request, void *owner, uint64_t most_whole,
                               vmp_placed *out_placed);
void vmp_mid_edges_check(vmp_mid *mid, vmp_report *report);

// ---- mid_place.c ----
// How many runs are compared for a request: up to 8, fewer where it has many slots, whose chunks have to be looked at;
// and no more than four where one of them pins one chunk only. (Over recorded traces a few more runs don't save a chunk
// then; where the best pins several they do. With 6, 8, 10, 12 or 16 runs the smallest devices differ by a thousandth,
// either way; each run compared takes some 40 ns.)
#define VMP_MID_RUNS_COMPARED UINT64_C(8)
#define VMP_MID_RUN_SLOTS_COMPARED UINT64_C(256)
#define VMP_MID_RUNS_COMPARED_WELL UINT64_C(4)
static inline uint64_t vmp_mid_runs_to_compare(const vmp_mid *mid, uint64_t bytes) {
  uint64_t slots = (bytes >> mid->granule_log2) + 1;
  uint64_t runs = VMP_MID_RUN_SLOTS_COMPARED / slots + 2;
  return runs < VMP_MID_RUNS_COMPARED ? runs : VMP_MID_RUNS_COMPARED;
}
// vmp_mid_may_pin: a block at an end of the run, which is one part, may pin a parked chunk. False where it fits
// exactly, too: no other place is better then. The glance must be there.
static inline bool vmp_mid_may_pin(const vmp_mid *mid, const vmp_mid_piece *part, uint64_t bytes) {
  uint64_t parked = *mid->ops.glance.parked_orders;
  return parked != 0 && part->bytes != bytes && part->bytes >> mid->granule_log2 >= (parked & (~parked + 1));
}
// vmp_mid_place_mapped: the best place that needs no mapping. False when there is none.
bool vmp_mid_place_mapped(vmp_mid *mid, const vmp_request *request, vmp_mid_place *out_place);
// vmp_mid_place_growing: the best place that needs some. False when there is none; *out_blocked then tells whether
// a place would be large enough, but for slots that can't be mapped now or, with VMP_WAIT_NEVER, for what it would wait
// for.
bool vmp_mid_place_growing(vmp_mid *mid, const vmp_request *request, vmp_mid_place *out_place, bool *out_blocked);
// vmp_mid_place_fresh: a wholly unmapped place with room for large chunks around it. False when there is none.
bool vmp_mid_place_fresh(vmp_mid *mid, const vmp_request *request, vmp_mid_place *out_place);
// vmp_mid_place_at: what it would take to use the free range at `offset`.
vmp_mid_place vmp_mid_place_at(vmp_mid *mid, const vmp_request *request, uint64_t offset);
// vmp_mid_place_in: the beginning of an arena that was just added.
vmp_mid_place vmp_mid_place_in(vmp_mid *mid, const vmp_request *request, const vmp_mid_arena *arena);

#endif  // VMPOOL_POOL_MID_INTERNAL_H_
