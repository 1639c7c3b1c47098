// chunk.h: physical memory as handles of a power of two of granules, and how much of it may be held.
//
// Owns: one record per handle, the parked lists and spare lists by size, the byte limits. Does not own places: which
// slots a chunk is mapped at is backing's business.
//
//     order k = 2^k granules            parked[k]                 oldest -> ... -> youngest
//                                       parked[CHUNK_ORDERS + k]  the same of regions' pages, which others take last
//                                       spare[k]                  -> ...
//
//     state     mapped at home   handed out   in a list
//     LIVE      yes, or shared   yes          no
//     PARKED    yes              no           parked[order], or, when `page` is set, parked[CHUNK_ORDERS + order]
//     SPARE     no               no           spare[order]
//     TRANSIT   somebody has taken it out of its list and calls the driver, outside the lock
//     BROKEN    its mapping could not be undone: at home, but never handed out until a retry succeeds
//
// A shared chunk is mapped at several places and has no home (backing_share.h); it is LIVE.
//
// Invariants
//   - held_bytes = sum over all records, TRANSIT ones included, and never exceeds the hard limit by a new chunk.
//   - a chunk is in a list if and only if it is PARKED or SPARE; live = 0 in every state but LIVE.
//   - stamps rise along each parked list.
//   - parked_orders has a bit for each parked list that isn't empty; num_moved counts the chunks with a moved fence.
//   - parked_bits has a bit for each record: whether it is PARKED. (To look at many chunks of which that is all that is
//     asked takes a cache line or two, and not one of each.)
#ifndef VMPOOL_VMM_CHUNK_H_
#define VMPOOL_VMM_CHUNK_H_

#include <stddef.h>

#include "vmm/clock.h"
#include "vmm/driver.h"
#include "vmm/error.h"
#include "vmm/node_pool.h"

#define CHUNK_ORDERS 32u
#define CHUNK_RECORDS (UINT32_C(1) << 24)  // as many as there may be: 32 TiB in granules of 2 MiB
#define CHUNK_RECORDS_SHARE 8u             // of the addresses, where they are limited
#define PARKED_LISTS (2 * CHUNK_ORDERS)

typedef enum chunk_state { CHUNK_TRANSIT = 0, CHUNK_LIVE, CHUNK_PARKED, CHUNK_SPARE, CHUNK_BROKEN } chunk_state;

typedef enum chunk_lost { CHUNK_LOST_NOT = 0, CHUNK_LOST_UNMAPPED, CHUNK_LOST_ACCESS } chunk_lost;

// The record is three times 32 bytes, none of which lies in two cache lines: what a claim asks is in the second, what
// it and a release change in the first.
typedef struct chunk {
  uint32_t next, prev;  // in its list; first, so that a free record's link lies there
  vmp_fence fence;      // who may still touch bytes that were released
  uint32_t live;        // claims that touch it
  uint32_t pins;        // of these claims, the ones that keep it where it is (backing_pin.c)

  uint64_t home;    // first slot, while it is mapped there alone
  vmp_fence moved;  // who used it at earlier places, when it was moved here; see chunk_set_moved
  uint8_t order;
  uint8_t state;   // chunk_state
  uint8_t used;    // 0: a free record
  uint8_t page;    // a region's page: once it is parked, others take it last, and only when complete
  uint8_t apart;   // 1: nobody's host until it is parked (backing_share.h)
  uint8_t ahead;   // 1: made ahead of need, and nobody has used it yet
  uint8_t sealed;  // 1: no claim may come, until it has one place only; live claims stay (backing_compact.h)
  uint8_t lost;    // chunk_lost: live, but not mapped at home

  vmp_cu_handle handle;
  uint64_t stamp;       // when it was parked
  uint64_t generation;  // of its mapping at home
  uint32_t aliases;     // retiring places that still show it
  uint32_t shares;      // the first of its shared places; 0: it is mapped at home alone
} chunk;
_Static_assert(offsetof(chunk, home) == 32 && offsetof(chunk, handle) == 64 && sizeof(chunk) == 96, "as said above");

typedef struct chunk_list {
  uint32_t head, tail;
  uint64_t count;
} chunk_list;

typedef struct chunk_store {
  vmp_node_pool records;
  uint64_t granule_bytes;
  chunk_list parked[PARKED_LISTS], spare[CHUNK_ORDERS];
  uint64_t parked_orders, num_moved;
  uint64_t *parked_bits;  // 64 * parked_words
  uint64_t parked_words;
  uint64_t stamp;
  uint64_t hard_limit_bytes, soft_limit_bytes;
  uint64_t held_bytes, parked_bytes, spare_bytes, mapped_bytes, peak_mapped_bytes, broken_bytes;
  uint64_t least_idle_bytes;                 // least of parked and spare together since it was reset
  uint64_t pinned_bytes;                     // of chunks with pins
  uint64_t ahead_bytes, ahead_unused_bytes;  // made ahead so far; of that, what nobody has used and still exists
  uint64_t count, created, released, created_bytes;
} chunk_store;

static inline chunk *chunk_at(const chunk_store *store, uint32_t id) {
  return vmp_node_in_row(&store->records, id, sizeof(chunk));
}
// chunk_is_parked: what its state says.
static inline bool chunk_is_parked(const chunk_store *store, uint32_t id) {
  return (store->parked_bits[id / 64] >> (id % 64) & 1) != 0;
}
static inline uint64_t chunk_slots(const chunk *c) { return UINT64_C(1) << c->order; }
// chunk_users: everybody who may still touch the chunk's memory, here or at its earlier places.
static inline vmp_fence chunk_users(const chunk *c) { return vmp_fence_merge(c->fence, c->moved); }
static inline uint64_t chunk_bytes(const chunk_store *store, const chunk *c) {
  return store->granule_bytes << c->order;
}

// chunk_set_moved says who used the chunk at earlier places.
static inline void chunk_set_moved(chunk_store *store, chunk *c, vmp_fence fence) {
  store->num_moved += vmp_fence_is_none(fence) ? 0 : 1;
  store->num_moved -= vmp_fence_is_none(c->moved) ? 0 : 1;
  c->moved = fence;
}

void chunk_store_init(chunk_store *store, uint64_t granule_bytes);
// chunk_store_finish frees the records; handles must have been released.
void chunk_store_finish(chunk_store *store);
uint64_t chunk_store_metadata_bytes(const chunk_store *store);

// chunk_room: how many bytes may be created under a limit.
uint64_t chunk_room(const chunk_store *store, uint64_t limit_bytes);

// chunk_new makes a record in TRANSIT for a handle that is about to be created, and counts its bytes as held, so that
// two threads can't both pass the limit. 0 when host memory ran out.
uint32_t chunk_new(chunk_store *store, unsigned order);
// chunk_drop forgets a record in TRANSIT whose handle was not made, or has been released.
void chunk_drop(chunk_store *store, uint32_t id);

// State changes. Each takes a chunk in TRANSIT (or LIVE, PARKED where named) to the state in its name.
void chunk_to_live(chunk_store *store, uint32_t id);         // from PARKED; no page any more
void chunk_to_parked(chunk_store *store, uint32_t id);       // from LIVE or TRANSIT, mapped at home; youngest
void chunk_back_to_parked(chunk_store *store, uint32_t id);  // undo: to its old place in the list, by stamp
void chunk_to_transit(chunk_store *store, uint32_t id);      // from PARKED or SPARE
void chunk_to_spare(chunk_store *store, uint32_t id);        // from TRANSIT, mapped nowhere
void chunk_to_broken(chunk_store *store, uint32_t id);       // from TRANSIT, mapped at home

// chunk_count_created counts a chunk whose handle was made.
void chunk_count_created(chunk_store *store, uint32_t id);
// chunk_note_ahead marks a chunk that was just made as made ahead of need.
void chunk_note_ahead(chunk_store *store, uint32_t id);

// chunk_mapped and chunk_unmapped count what has a home.
void chunk_mapped(chunk_store *store, uint32_t id, uint64_t home);
void chunk_unmapped(chunk_store *store, uint32_t id);

// chunk_store_check reports every broken invariant of the lists and sums.
void chunk_store_check(const chunk_store *store, vmp_report *report);

#endif  // VMPOOL_VMM_CHUNK_H_
