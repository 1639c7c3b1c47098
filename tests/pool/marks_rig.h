// marks_rig.h: pools whose hits go by marks long before they have the many small blocks that this is for.
#ifndef VMPOOL_TESTS_POOL_MARKS_RIG_H_
#define VMPOOL_TESTS_POOL_MARKS_RIG_H_

#include "pool/pool.h"
#include "pool/slab_internal.h"
#include "tests/pool/pool_rig.h"

// rig_go_by_marks has the pool go by marks from its first refill on, and take bundles for a class that has
// `bundles_from` times as many spans as a bundle: 0: always; UINT32_MAX: never.
static inline void rig_go_by_marks(pool_rig *rig, uint32_t bundles_from) {
  rig->pool->slab->marks_from_lines = 1;
  rig->pool->slab->bundles_from = bundles_from;
}

#endif  // VMPOOL_TESTS_POOL_MARKS_RIG_H_
