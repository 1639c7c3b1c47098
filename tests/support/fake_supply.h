// fake_supply.h: a fake of vmp_slab_supply: a plain list of blocks, so that slab is tested without mid.
//
// Owns: which blocks are out, who owns them, and the fence of every 512 bytes that came back. Like mid it places at
// the lowest address that fits and tells the whole fence of the place. Wrong use is counted as an error (a block that
// comes back and isn't out). Failures can be ordered, and the moment at which take has let go of the lock can be used.
// By option it publishes blocks and divides them, too: a block's address is its offset and VMP_FAKE_SUPPLY_ADDRESS.
// Does not own: time (`ops` does).
#ifndef VMPOOL_TESTS_SUPPORT_FAKE_SUPPLY_H_
#define VMPOOL_TESTS_SUPPORT_FAKE_SUPPLY_H_

#include <stddef.h>

#include "pool/slab.h"

typedef struct vmp_fake_taken {
  uint64_t offset, bytes;
  vmp_span *owner;
  uint64_t note;     // the test's own
  uint64_t address;  // 0: it isn't published
  uint32_t line;     // of its card, as publish was told
} vmp_fake_taken;

// vmp_fake_bundle: what publish_bundle was told.
typedef struct vmp_fake_bundle {
  uint64_t address, each_bytes;
  uint32_t line, lines;
} vmp_fake_bundle;

#define VMP_FAKE_SUPPLY_ADDRESS (UINT64_C(1) << 40)

typedef struct vmp_fake_supply {
  const vmp_backing_ops *ops;  // for `others`
  uint64_t base, bytes;        // the addresses
  vmp_fence *fences;           // per 512 bytes
  vmp_fake_taken *blocks;      // those that are out, by offset
  size_t num_blocks, capacity;
  uint64_t block_bytes;

  uint64_t takes, gives, failed_takes, errors;
  vmp_request last_request;  // of take
  uint64_t last_give_offset;
  vmp_fence last_give_fence;

  bool offers_bundles;  // to be set before vmp_fake_supply_calls: with publish, withdraw, divide and publish_bundle
  uint64_t divides, failed_divides, publishes, failed_publishes, withdraws, bundles;
  vmp_fake_bundle last_bundle;
  uint64_t fail_divides;    // so many calls of divide fail
  uint64_t fail_publishes;  // so many calls of publish return 0

  vmp_status fail_status;  // what take returns while fail_takes > 0
  uint64_t fail_takes;
  // Called in the middle of take: the block is out, the lock isn't held. NULL: nothing.
  void (*during_take)(void *context, const vmp_fake_taken *block);
  // Called at the beginning of give. NULL: nothing.
  void (*on_give)(void *context, const vmp_fake_taken *block, vmp_fence fence);
  void *context;
} vmp_fake_supply;

// vmp_fake_supply_init never fails (it ends the process when the test machine has no memory). base and bytes are
// multiples of 512.
void vmp_fake_supply_init(vmp_fake_supply *supply, const vmp_backing_ops *ops, uint64_t base, uint64_t bytes);
void vmp_fake_supply_finish(vmp_fake_supply *supply);

// vmp_fake_supply_calls returns the functions for slab.
vmp_slab_supply vmp_fake_supply_calls(vmp_fake_supply *supply);

// vmp_fake_supply_find: the block that holds `offset`, or NULL. Valid until the next take or give.
vmp_fake_taken *vmp_fake_supply_find(const vmp_fake_supply *supply, uint64_t offset);

// vmp_fake_supply_touch says that the addresses [offset, offset + bytes), which aren't out, were used up to `fence`.
void vmp_fake_supply_touch(vmp_fake_supply *supply, uint64_t offset, uint64_t bytes, vmp_fence fence);

#endif  // VMPOOL_TESTS_SUPPORT_FAKE_SUPPLY_H_
