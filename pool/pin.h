// pin.h: which ranges are pinned, and why.
//
// Owns: one record for each pinned range and reason. Does not own the claims that keep the chunks (backing counts
// them).
//
//     newest    offset -> record ──older──> record ──> 0     pins of one address, the youngest first: after a free
//                                                            another block may begin at the same address
//
// Invariants
//   - a record has at least one pin; every record is reached from `newest` of its offset.
//   - the chunks of a record's range carry one pin for it in backing: the sum of `chunks` is backing's sum.
//   - unpin allocates nothing and can't fail.
// Guarded by the pool's lock.
#ifndef VMPOOL_POOL_PIN_H_
#define VMPOOL_POOL_PIN_H_

#include "pool/offset_map.h"
#include "pool/vmpool.h"
#include "vmm/node_pool.h"

typedef struct vmp_pin_record {
  uint32_t older;   // first, so that a free node's link lies there
  uint32_t reason;  // in the pool's table of names
  uint64_t offset, bytes;
  uint64_t count;   // pins
  uint64_t chunks;  // under the range
} vmp_pin_record;

typedef struct vmp_pins {
  vmp_node_pool records;
  vmp_offset_map newest;
} vmp_pins;

void vmp_pins_init(vmp_pins *pins);
void vmp_pins_free(vmp_pins *pins);

// vmp_pins_at: how many pins begin at an offset.
uint64_t vmp_pins_at(const vmp_pins *pins, uint64_t offset);
// vmp_pins_touch: whether a pinned range overlaps [offset, offset + bytes). O(pins).
bool vmp_pins_touch(const vmp_pins *pins, uint64_t offset, uint64_t bytes);

typedef void (*vmp_pin_fn)(void *context, const vmp_pin_record *record);
void vmp_pins_walk(const vmp_pins *pins, vmp_pin_fn fn, void *context);

uint64_t vmp_pins_metadata_bytes(const vmp_pins *pins);

// vmp_pins_check reports every broken invariant. The lock is held.
void vmp_pins_check(vmp_pool *pool, vmp_report *report);

#endif  // VMPOOL_POOL_PIN_H_
