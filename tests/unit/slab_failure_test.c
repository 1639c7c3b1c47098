// slab_failure_test.c: misuse, failures of host memory and of the supply, and what happens while the lock is let go of.
#include "tests/unit/slab_rig.h"
#include "vmm/memory.h"

// ---- misuse ----

// Bug case 60, and the rest of a span.
VTEST_F(SlabFailures, WrongFreesAreRefusedAndChangeNothing, slab_rig) {
  uint64_t p = rig_alloc(f, 18 * KIB), q = rig_alloc(f, 18 * KIB);  // 14 to 256 KiB, rest 4 KiB
  vmp_slab_stats before = rig_stats(f);
  vmp_fence fence = fence_of(0, 1);
  static const uint64_t wrong[] = {1, 8, 24, 512, 9 * KIB, 18 * KIB - 1, 14 * 18 * KIB, 256 * KIB - 1};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    VEXPECT_STATUS(rig_try_free(f, p + wrong[i], fence), VMP_ERROR_NOT_A_BLOCK);
  }
  uint64_t bytes;
  VEXPECT_STATUS(vmp_slab_free(f->slab, rig_span(f, p), p - 18 * KIB, fence, &bytes), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STATUS(vmp_slab_free(f->slab, rig_span(f, p), p + 256 * KIB, fence, &bytes), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STATUS(vmp_slab_free(f->slab, rig_span(f, p), 0, fence, &bytes), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STATUS(vmp_slab_free(f->slab, rig_span(f, p), UINT64_MAX, fence, &bytes), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STATUS(rig_try_free(f, q + 18 * KIB, fence), VMP_ERROR_DOUBLE_FREE);  // never handed out
  vmp_slab_stats after = rig_stats(f);
  VEXPECT_BYTES_EQ(&before, &after, sizeof before);
  rig_free(f, p, fence);
  before = rig_stats(f);
  VEXPECT_STATUS(rig_try_free(f, p, fence_of(3, 99)), VMP_ERROR_DOUBLE_FREE);
  after = rig_stats(f);
  VEXPECT_BYTES_EQ(&before, &after, sizeof before);
  // The refused free has left no trace of its fence: stream 0 gets its object back without a wait.
  VEXPECT_UINT_EQ(rig_alloc(f, 18 * KIB), p);
  rig_free(f, p, fence);
  rig_free(f, q, fence);
}

// ---- failures ----

VTEST_F(SlabFailures, WrongOptionsAreRefused, slab_rig) {
  static const uint64_t falling[] = {2 * MIB, MIB}, odd[] = {512, 1000}, huge[] = {UINT64_C(32) << 30}, zero[] = {0};
  static const vmp_slab_options wrong[] = {
      {.max_object_bytes = 64 * KIB},
      {.max_object_bytes = 64 * KIB, .granule_bytes = 3 * MIB},
      {.max_object_bytes = 64 * KIB, .granule_bytes = 256},
      {.max_object_bytes = 1000, .granule_bytes = 2 * MIB},
      {.max_object_bytes = (UINT64_C(16) << 30) + 512, .granule_bytes = 2 * MIB},
      {.class_bytes = falling, .num_classes = 2, .granule_bytes = 2 * MIB},
      {.class_bytes = odd, .num_classes = 2, .granule_bytes = 2 * MIB},
      {.class_bytes = huge, .num_classes = 1, .granule_bytes = 2 * MIB},
      {.class_bytes = zero, .num_classes = 1, .granule_bytes = 2 * MIB},
      {.class_bytes = falling, .num_classes = 0, .granule_bytes = 2 * MIB},
      {.class_bytes = falling, .num_classes = 1025, .granule_bytes = 2 * MIB},
      {.class_bytes = falling, .num_classes = 1, .class_from_bytes = 4 * MIB, .granule_bytes = 2 * MIB},
  };
  vmp_slab_supply supply = vmp_fake_supply_calls(&f->supply);
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    VTRACE("options %zu", i);
    vmp_slab *slab = NULL;
    VEXPECT_STATUS(vmp_slab_create(&slab, vmp_fake_ops(f->clock), &supply, &wrong[i]), VMP_ERROR_INVALID_VALUE);
    VEXPECT_NULL(slab);
  }
}

VTEST_F(SlabFailures, CreateSurvivesEveryHostMemoryFailure, slab_rig) {
  vmp_slab_supply supply = vmp_fake_supply_calls(&f->supply);
  vmp_slab_options options = {.max_object_bytes = 64 * KIB, .granule_bytes = 2 * MIB};
  vmp_status status = VMP_ERROR_HOST_OUT_OF_MEMORY;
  uint64_t failed = 0;
  while (status != VMP_OK) {
    vmp_slab *slab = NULL;
    vmp_mem_fail_after(failed, UINT64_MAX);
    status = vmp_slab_create(&slab, vmp_fake_ops(f->clock), &supply, &options);
    vmp_mem_fail_after(0, 0);
    if (status == VMP_OK) {
      vmp_slab_destroy(slab);
      break;
    }
    VASSERT_STATUS(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
    VEXPECT_NULL(slab);
    failed++;
  }
  VEXPECT_UINT_EQ(failed, 5);
}

VTEST_F(SlabFailures, NoRecordForAnotherSpan, slab_rig) {
  vmp_placed placed;
  vmp_slab_stats before = rig_stats(f);
  vmp_mem_fail_after(0, 1);
  VEXPECT_STATUS(rig_try_alloc(f, 512, 0, &placed), VMP_ERROR_HOST_OUT_OF_MEMORY);
  VEXPECT_UINT_EQ(vmp_mem_failures(), 1);
  VEXPECT_UINT_EQ(f->supply.takes, 0);
  vmp_slab_stats after = rig_stats(f);
  VEXPECT_BYTES_EQ(&before, &after, sizeof before);
  vmp_mem_fail_after(0, 0);
  (void)rig_alloc(f, 512);
}

VTEST_F(SlabFailures, FreeAndTrimAllocateNothing, slab_rig) {
  uint64_t offsets[300];
  rig_alloc_many(f, 64 * KIB, offsets, 300);
  vmp_mem_fail_after(0, UINT64_MAX);
  for (size_t i = 0; i < 300; i++) rig_free(f, offsets[i], fence_of((vmp_stream_index)(i % 5), i + 1));
  vmp_slab_trim(f->slab);
  VEXPECT_UINT_EQ(vmp_mem_failures(), 0);
  vmp_mem_fail_after(0, 0);
  VEXPECT_UINT_EQ(f->supply.num_blocks, 0);
}

VTEST_F(SlabFailures, AFailedTakeChangesNothing, slab_rig) {
  (void)rig_alloc(f, 512);
  vmp_slab_stats before = rig_stats(f);
  f->supply.fail_takes = 1;
  f->supply.fail_status = VMP_ERROR_LIMIT;
  vmp_placed placed;
  VEXPECT_STATUS(rig_try_alloc(f, 1024, 0, &placed), VMP_ERROR_LIMIT);
  vmp_slab_stats after = rig_stats(f);
  after.metadata_bytes = before.metadata_bytes;  // room for the records stays for the next try
  VEXPECT_BYTES_EQ(&before, &after, sizeof before);
  VEXPECT_UINT_EQ(f->supply.num_blocks, 1);
  (void)rig_alloc(f, 1024);
}

// ---- the lock is let go of in take ----

typedef struct during {
  slab_rig *rig;
  uint64_t given_back;  // an object that another thread frees meanwhile, 0: none
  uint64_t inner;       // what another thread allocates meanwhile
  bool busy;
} during;

static void another_thread(void *context, const vmp_fake_taken *block) {
  during *d = context;
  if (d->busy) return;
  d->busy = true;
  slab_rig *f = d->rig;
  // Nothing of the arriving span can be freed or found yet.
  uint64_t start, bytes;
  VEXPECT_STATUS(vmp_slab_free(f->slab, block->owner, block->offset, VMP_FENCE_NONE, &bytes), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STATUS(vmp_slab_free(f->slab, block->owner, 0, VMP_FENCE_NONE, &bytes), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_FALSE(vmp_slab_find(f->slab, block->owner, block->offset, &start, &bytes));
  VEXPECT_FALSE(vmp_slab_find(f->slab, block->owner, 0, &start, &bytes));
  if (d->given_back != 0) {
    rig_free(f, d->given_back, fence_of(0, 50));
  } else {
    d->inner = rig_alloc(f, 64 * KIB);
  }
  vmp_slab_trim(f->slab);
  rig_check(f);
}

VTEST_F(SlabFailures, OthersAllocateWhileASpanArrives, slab_rig) {
  during d = {.rig = f};
  f->supply.during_take = another_thread;
  f->supply.context = &d;
  uint64_t outer = rig_alloc(f, 64 * KIB);
  VEXPECT_TRUE(d.busy);
  VEXPECT_UINT_EQ(outer, RIG_BASE);
  VEXPECT_UINT_EQ(d.inner, RIG_BASE + 512 * KIB);
  VEXPECT_UINT_EQ(rig_stats(f).objects, 2);
  // Both spans are in use; further objects fill them up.
  for (int i = 0; i < 14; i++) (void)rig_alloc(f, 64 * KIB);
  VEXPECT_UINT_EQ(f->supply.takes, 2);
}

VTEST_F(SlabFailures, AnObjectFreedDuringAFailedTakeIsUsed, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, 64 * KIB, offsets, 8);
  rig_free(f, offsets[2], fence_of(1, 5));  // older, but stream 0 would have to wait for it
  during d = {.rig = f, .given_back = offsets[5]};
  f->supply.during_take = another_thread;
  f->supply.context = &d;
  f->supply.fail_takes = 1;
  f->supply.fail_status = VMP_ERROR_OUT_OF_MEMORY;
  VEXPECT_UINT_EQ(rig_alloc(f, 64 * KIB), offsets[5]);
  VEXPECT_UINT_EQ(f->supply.num_blocks, 1);
}
