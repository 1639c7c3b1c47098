// mid_failure_test.c: what a failure leaves behind: refused claims, host memory, calls in the middle of a claim.
#include "tests/unit/mid_rig.h"

static const vmp_status refusals[] = {VMP_ERROR_OUT_OF_MEMORY,      VMP_ERROR_LIMIT, VMP_ERROR_DRIVER, VMP_ERROR_BUSY,
                                      VMP_ERROR_HOST_OUT_OF_MEMORY, VMP_ERROR_STICKY};
static const char *refusal_name(const vmp_status *status) { return vmp_status_string(*status); }

VTEST_FP(MidFailure, ARefusedClaimChangesNothing, rig, vmp_status, refusals, refusal_name) {
  uint64_t a = take(f, 3 * MIB), b = take(f, 5 * MIB);
  (void)b;
  give_on(f, a, 1, 5);
  layout before = {.used = 0}, after = {.used = 0};
  vmp_mid_stats stats_before = stats_of(f);
  vmp_mid_walk(f->mid, on_layout, &before);
  vmp_fake_fail_claims(f->fake, 0, 100, *p);
  for (uint64_t i = 0; i < 100; i++) {
    vmp_request request = request_of((1 + i * 97) * 512, 2);
    vmp_placed placed;
    VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), *p);
  }
  vmp_mid_walk(f->mid, on_layout, &after);
  VEXPECT_STR_EQ(before.text, after.text);
  vmp_mid_stats stats_after = stats_of(f);
  VEXPECT_BYTES_EQ(&stats_before, &stats_after, sizeof stats_before);
  VEXPECT_FALSE(vmp_mid_find(f->mid, 0, NULL, NULL, NULL));
  VEXPECT_UINT_EQ(take_placed(f, 3 * MIB, 1).offset, a);  // and the fence is the same
}

// Case 19 of the collection: a hundred refused requests lose no address.
VTEST_F(MidFailure, NoAddressIsLost, rig) {
  f->arenas.end = 256 * MIB;
  vmp_fake_fail_claims(f->fake, 0, 100, VMP_ERROR_OUT_OF_MEMORY);
  for (int i = 0; i < 100; i++) {
    vmp_request request = request_of(100 * MIB, 0);
    vmp_placed placed;
    VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_OUT_OF_MEMORY);
  }
  for (int i = 0; i < 128; i++) (void)take(f, SLOT);
  VEXPECT_UINT_EQ(stats_of(f).free_bytes, 0);
}

// ---- chunk sizes that don't fit ----
VTEST(MidFragmented, TriesAFreshPlaceWithRoomForLargeChunks) {
  rig f = {.fake = NULL};
  rig_start(&f, &(vmp_fake_options){.slots = 128},
            &(vmp_mid_options){.arena_bytes = 256 * MIB, .chunk_max_bytes = 32 * MIB});
  (void)take(&f, 3 * MIB);
  vmp_fake_fail_claims(f.fake, 0, 1, VMP_ERROR_FRAGMENTED);
  VEXPECT_UINT_EQ(take(&f, 5 * MIB), 32 * MIB);  // a multiple of 32 MiB, with 32 unmapped MiB behind it
  vmp_fake_fail_claims(f.fake, 0, 1, VMP_ERROR_FRAGMENTED);
  VEXPECT_UINT_EQ(take(&f, 33 * MIB), 64 * MIB);
  rig_teardown(&f);
}

VTEST(MidFragmented, AFreshPlaceIsUnmapped) {
  rig f = {.fake = NULL};
  rig_start(&f, &(vmp_fake_options){.slots = 128},
            &(vmp_mid_options){.arena_bytes = 256 * MIB, .chunk_max_bytes = 32 * MIB});
  (void)take(&f, 2 * MIB);
  vmp_fake_map(f.fake, 2 * MIB, 70 * MIB);
  vmp_fake_fail_claims(f.fake, 0, 1, VMP_ERROR_FRAGMENTED);
  VEXPECT_UINT_EQ(take(&f, 5 * MIB), 96 * MIB);
  rig_teardown(&f);
}

// In the last resort a fresh place is tried for lack of memory too: the best one may pin a parked chunk of which the
// block would use a part. If that fails as well, lack of memory is the answer.
static const vmp_status lacks[] = {VMP_ERROR_OUT_OF_MEMORY, VMP_ERROR_LIMIT};

VTEST_FP(MidFragmented, LastResortTriesAFreshPlace, rig, vmp_status, lacks, refusal_name) {
  (void)take(f, 3 * MIB);
  vmp_request request = {.bytes = 5 * MIB, .alignment = 512, .effort = VMP_EFFORT_NORMAL};
  vmp_placed placed;
  vmp_fake_fail_claims(f->fake, 0, 1, *p);
  VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), *p);  // not yet
  request.effort = VMP_EFFORT_RESIZE;
  vmp_fake_fail_claims(f->fake, 0, 2, *p);
  VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), *p);
  VEXPECT_STATUS(vmp_last_error()->status, *p);
  vmp_fake_fail_claims(f->fake, 0, 1, *p);
  VEXPECT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));
  VEXPECT_UINT_EQ(placed.offset, 4 * MIB);  // beside the slot that is in use
}

VTEST(MidFragmented, WithoutRoomAnyUnmappedPlaceIsTried) {
  rig f = {.fake = NULL};
  rig_start(&f, &(vmp_fake_options){.slots = 16},
            &(vmp_mid_options){.arena_bytes = 32 * MIB, .chunk_max_bytes = 32 * MIB});
  (void)take(&f, 3 * MIB);
  vmp_fake_fail_claims(f.fake, 0, 1, VMP_ERROR_FRAGMENTED);
  VEXPECT_UINT_EQ(take(&f, 5 * MIB), 4 * MIB);  // the best place was 3 MiB
  rig_teardown(&f);
}

VTEST_F(MidFragmented, AnotherArenaWhenThereIsNoFreshPlace, rig) {
  (void)take(f, 255 * MIB);
  vmp_fake_fail_claims(f->fake, 0, 1, VMP_ERROR_FRAGMENTED);
  VEXPECT_UINT_EQ(take(f, 512), 256 * MIB);
}

static const vmp_status second_refusals[] = {VMP_ERROR_FRAGMENTED, VMP_ERROR_OUT_OF_MEMORY, VMP_ERROR_LIMIT,
                                             VMP_ERROR_BUSY};

typedef struct refuser {
  rig *f;
  vmp_status second;
  int calls;
} refuser;

static void refuse_again(void *context, uint64_t offset, uint64_t bytes) {
  refuser *r = context;
  (void)offset;
  (void)bytes;
  if (r->calls++ == 0) vmp_fake_fail_claims(r->f->fake, 0, 1, r->second);
}

// Fragmented is the truth about the request, whatever the second try says: a higher effort may help.
VTEST_FP(MidFragmented, StaysFragmentedWhenBothPlacesFail, rig, vmp_status, second_refusals, refusal_name) {
  (void)take(f, 3 * MIB);
  vmp_mid_stats before = stats_of(f);
  refuser r = {f, *p, 0};
  vmp_fake_on_refusal(f->fake, refuse_again, &r);
  vmp_fake_fail_claims(f->fake, 0, 1, VMP_ERROR_FRAGMENTED);
  vmp_request request = request_of(5 * MIB, 0);
  vmp_placed placed;
  VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_FRAGMENTED);
  VEXPECT_INT_EQ(r.calls, 2);
  VEXPECT_STATUS(vmp_last_error()->status, VMP_ERROR_FRAGMENTED);
  vmp_mid_stats after = stats_of(f);
  VEXPECT_BYTES_EQ(&before, &after, sizeof before);
}

// ---- host memory ----
// Fail every host allocation in turn, once and from then on, until nothing fails any more.
VTEST(MidHostMemory, EveryAllocationMayFail) {
  for (int forever = 0; forever < 2; forever++) {
    for (uint64_t n = 0;; n++) {
      VASSERT_UINT_LT(n, 100);
      VTRACE("allocation %llu fails, forever %d", (unsigned long long)n, forever);
      rig f = {.fake = vmp_fake_create(&(vmp_fake_options){.slots = 512})};
      f.arenas.end = GIB;
      vmp_mid_supply supply = {&f.arenas, arena_take, arena_give};
      vmp_mid_options options = {.arena_bytes = 256 * MIB};
      vmp_mem_fail_after(n, forever ? UINT64_MAX : 1);
      vmp_status status = vmp_mid_create(&f.mid, vmp_fake_ops(f.fake), &supply, &options);
      uint64_t blocks = 0, bytes = 0;
      for (uint64_t i = 0; f.mid != NULL && status == VMP_OK && i < 600; i++) {
        vmp_request request = request_of((1 + i % 7) * 512 * KIB, 0);
        vmp_placed placed;
        status = vmp_mid_alloc(f.mid, &request, NULL, &placed);
        if (status != VMP_OK) break;
        blocks++;
        bytes += placed.bytes;
        if (i % 3 == 0) {
          (void)vmp_mid_free(f.mid, placed.offset, VMP_FENCE_NONE);
          blocks--;
          bytes -= placed.bytes;
        }
      }
      // Without host memory for a run the layer may also go on, with fewer places known.
      uint64_t failures = vmp_mem_failures();
      if (failures == 0) VEXPECT_OK(status);
      if (status != VMP_OK) VEXPECT_STATUS(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
      if (f.mid != NULL) VEXPECT_UINT_EQ(stats_of(&f).blocks, blocks);
      if (f.mid != NULL) VEXPECT_UINT_EQ(stats_of(&f).block_bytes, bytes);
      VEXPECT_UINT_EQ(vmp_fake_claimed_bytes(f.fake), bytes);
      VEXPECT_UINT_LE(f.arenas.takes, f.arenas.gives + (f.mid == NULL ? 0 : stats_of(&f).arenas));
      rig_teardown(&f);
      if (failures == 0) break;
    }
  }
}

VTEST_F(MidHostMemory, FreeNeedsNone, rig) {
  enum { BLOCKS = 1000 };
  uint64_t blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) blocks[i] = take(f, 192 * KIB);
  vmp_mem_fail_after(0, UINT64_MAX);
  for (int i = 0; i < BLOCKS; i += 2) give(f, blocks[i]);  // as many extents, runs and parts as there can be
  for (int i = 1; i < BLOCKS; i += 2) give(f, blocks[i]);
  VEXPECT_UINT_EQ(vmp_mem_failures(), 0);
  vmp_mid_stats stats = stats_of(f);
  VEXPECT_UINT_EQ(stats.extents, 1);
  VEXPECT_UINT_EQ(stats.runs, 1);
}

// Every other slot of a free extent is unmapped at once: more runs than there are nodes. Without host memory they are
// not all known; the check allows that, and the next call makes up for it.
VTEST_F(MidHostMemory, RunsThatCouldNotBeIndexedAreMadeUpFor, rig) {
  vmp_mid_destroy(f->mid);
  vmp_fake_destroy(f->fake);
  f->mid = NULL;
  rig_start(f, &(vmp_fake_options){.slots = 2048}, &(vmp_mid_options){.arena_bytes = 4096 * MIB});
  uint64_t a = take(f, 4000 * MIB);
  give(f, a);
  for (uint64_t slot = 0; slot < 2000; slot += 2) vmp_fake_unmap(f->fake, slot * SLOT, SLOT);
  vmp_mem_fail_after(0, UINT64_MAX);
  vmp_mid_stats stats = stats_of(f);
  VEXPECT_UINT_GT(vmp_mem_failures(), 0);
  VEXPECT_UINT_LT(stats.runs, 1000);
  rig_check(f);
  vmp_request request = request_of(512, 0);
  vmp_placed placed;
  VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_HOST_OUT_OF_MEMORY);
  vmp_mem_fail_after(0, 0);
  VEXPECT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));
  VEXPECT_UINT_EQ(stats_of(f).runs, 1000);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 1000);
  rig_check(f);
}

// ---- a block that can't be divided ----
typedef struct division {
  const char *name;
  uint64_t slots, bytes, each_bytes;
} division;

// The first needs many records of blocks, the second a table of another 4 GiB.
static const division divisions[] = {{"records", 128, SLOT, 512}, {"tables", 4096, 8 * GIB, 2 * GIB}};
static const char *division_name(const division *d) { return d->name; }

static void *owners[SLOT / 512];  // each is its own address

static void start_division(rig *f, const division *d) {
  *f = (rig){.fake = NULL};
  rig_start(f, &(vmp_fake_options){.slots = d->slots}, &(vmp_mid_options){.arena_bytes = d->slots * SLOT});
  for (size_t i = 0; i < SLOT / 512; i++) owners[i] = &owners[i];
}

// expect_whole: the block at 0 is as it was, and freeing it releases all of it.
static void expect_whole(rig *f, uint64_t block_bytes, const layout *before) {
  layout after = {.used = 0};
  vmp_mid_walk(f->mid, on_layout, &after);
  VEXPECT_STR_EQ(after.text, before->text);
  uint64_t start = 1, bytes = 0;
  void *owner = &start;
  VEXPECT_TRUE(vmp_mid_find(f->mid, block_bytes - 512, &start, &bytes, &owner));
  VEXPECT_UINT_EQ(start, 0);
  VEXPECT_UINT_EQ(bytes, block_bytes);
  VEXPECT_NULL(owner);
  VEXPECT_UINT_EQ(stats_of(f).blocks, 1);
  VEXPECT_UINT_EQ(vmp_fake_claims_out(f->fake), 1);
  VEXPECT_UINT_EQ(vmp_fake_claimed_bytes(f->fake), block_bytes);
  rig_check(f);
  give(f, 0);
  VEXPECT_UINT_EQ(vmp_fake_claims_out(f->fake), 0);
  VEXPECT_UINT_EQ(vmp_fake_parked_slots(f->fake), block_bytes / SLOT);
  VEXPECT_UINT_EQ(stats_of(f).blocks, 0);
}

// Each allocation fails in turn. Without one that only makes searches faster the block is divided all the same.
VTEST_P(MidDivision, HostMemoryRunsOut, division, divisions, division_name) {
  uint64_t count = p->bytes / p->each_bytes, refused = 0, failures = 1;
  for (uint64_t n = 0; failures > 0; n++) {
    VASSERT_UINT_LT(n, 100);
    VTRACE("allocation %llu fails", (unsigned long long)n);
    rig f;
    start_division(&f, p);
    VASSERT_NO_FAILURE();
    VEXPECT_UINT_EQ(take(&f, p->bytes), 0);
    layout before = {.used = 0};
    vmp_mid_walk(f.mid, on_layout, &before);
    vmp_mem_fail_after(n, 1);
    bool divided = vmp_mid_divide_evenly(f.mid, 0, p->each_bytes, owners);
    failures = vmp_mem_failures();
    vmp_mem_fail_after(0, 0);
    if (divided) {
      VEXPECT_UINT_EQ(stats_of(&f).blocks, count);
      VEXPECT_UINT_EQ(vmp_fake_claims_out(f.fake), count);
      rig_check(&f);
      for (uint64_t i = 0; i < count; i++) {
        void *owner = NULL;
        VASSERT_TRUE(vmp_mid_find(f.mid, i * p->each_bytes, NULL, NULL, &owner));
        VASSERT_PTR_EQ(owner, owners[i]);
        give(&f, i * p->each_bytes);
      }
      VEXPECT_UINT_EQ(vmp_fake_parked_slots(f.fake), p->bytes / SLOT);
    } else {
      refused++;
      expect_whole(&f, p->bytes, &before);
    }
    rig_teardown(&f);
  }
  VEXPECT_UINT_GT(refused, 0);
}

// Whichever part can't be claimed again: those before it are released.
VTEST_F(MidDivision, APartIsRefused, rig) {
  static void *four[4];
  for (uint64_t n = 0; n < 4; n++) {
    VTRACE("part %llu is refused", (unsigned long long)n);
    VEXPECT_UINT_EQ(take(f, SLOT), 0);
    layout before = {.used = 0};
    vmp_mid_walk(f->mid, on_layout, &before);
    vmp_fake_fail_claims(f->fake, n, 1, VMP_ERROR_BUSY);
    VEXPECT_FALSE(vmp_mid_divide_evenly(f->mid, 0, SLOT / 4, four));
    expect_whole(f, SLOT, &before);
  }
}

// The last chunk of the block was moved under work: what is in it can't be claimed again.
VTEST_F(MidDivision, AChunkWasMoved, rig) {
  static void *four[4];
  VEXPECT_UINT_EQ(take(f, 4 * SLOT), 0);
  layout before = {.used = 0};
  vmp_mid_walk(f->mid, on_layout, &before);
  vmp_fake_moved(f->fake, 3 * SLOT, (vmp_fence){2, 5});
  VEXPECT_FALSE(vmp_mid_divide_evenly(f->mid, 0, SLOT, four));
  expect_whole(f, 4 * SLOT, &before);
}

VTEST(MidDivision, NothingCanBeClaimedAgain) {
  static void *four[4];
  rig f = {.fake = vmp_fake_create(&(vmp_fake_options){.slots = 128})};
  f.arenas.end = 128 * SLOT;
  vmp_mid_supply supply = {&f.arenas, arena_take, arena_give};
  vmp_backing_ops ops = *vmp_fake_ops(f.fake);
  ops.claim_again = NULL;
  VASSERT_OK(vmp_mid_create(&f.mid, &ops, &supply, &(vmp_mid_options){.arena_bytes = 256 * MIB}));
  VEXPECT_UINT_EQ(take(&f, SLOT), 0);
  layout before = {.used = 0};
  vmp_mid_walk(f.mid, on_layout, &before);
  VEXPECT_FALSE(vmp_mid_divide_evenly(f.mid, 0, SLOT / 4, four));
  expect_whole(&f, SLOT, &before);
  rig_teardown(&f);
}

// ---- calls in the middle of a claim ----
typedef struct middle {
  rig *f;
  uint64_t keep, give_away;
  uint64_t taken;
  int calls;
  bool refuse;
} middle;

static void in_the_middle(void *context, uint64_t offset, uint64_t bytes) {
  middle *m = context;
  if (m->calls++ > 0) return;
  m->taken = take(m->f, 5 * MIB);
  VEXPECT_TRUE(m->taken >= offset + bytes || m->taken + 5 * MIB <= offset);
  give(m->f, m->give_away);
  rig_check_mid(m->f);
  uint64_t start;
  VEXPECT_TRUE(vmp_mid_find(m->f->mid, offset, &start, NULL, NULL));  // the block exists already
  VEXPECT_UINT_EQ(start, offset);
}

VTEST_F(MidMiddle, OthersMayCallWhileAClaimRuns, rig) {
  middle m = {.f = f, .give_away = take(f, 3 * MIB)};
  vmp_fake_during_claim(f->fake, in_the_middle, &m);
  uint64_t a = take(f, 7 * MIB);
  VEXPECT_INT_EQ(m.calls, 2);  // the inner block was claimed too
  vmp_fake_during_claim(f->fake, NULL, NULL);
  rig_check(f);
  give(f, a);
  give(f, m.taken);
  VEXPECT_UINT_EQ(stats_of(f).extents, 1);
}

// The first of two threads to run out of places adds an arena while the lock is let go: nothing that was found before
// is relied upon. Here the supply itself calls back into mid.
static vmp_status take_with_a_call(void *self, uint64_t bytes, uint64_t alignment, uint64_t *out_offset,
                                   uint64_t *out_bytes, vmp_fence *out_fence) {
  middle *m = self;
  vmp_status status = arena_take(&m->f->arenas, bytes, alignment, out_offset, out_bytes, out_fence);
  if (m->calls++ == 0) m->taken = take(m->f, 5 * MIB);
  return status;
}
static void give_arena_back(void *self, uint64_t offset, vmp_fence fence) {
  middle *m = self;
  arena_give(&m->f->arenas, offset, fence);
}

VTEST(MidMiddle, OthersMayCallWhileAnArenaIsTaken) {
  rig f = {.fake = vmp_fake_create(&(vmp_fake_options){.slots = 512})};
  middle m = {.f = &f};
  f.arenas.end = GIB;
  vmp_mid_supply supply = {&m, take_with_a_call, give_arena_back};
  VASSERT_OK(vmp_mid_create(&f.mid, vmp_fake_ops(f.fake), &supply, &(vmp_mid_options){.arena_bytes = 256 * MIB}));
  uint64_t a = take(&f, 7 * MIB);
  VEXPECT_TRUE(a >= m.taken + 5 * MIB || a + 7 * MIB <= m.taken);
  VEXPECT_UINT_EQ(f.arenas.takes, 2);
  VEXPECT_UINT_EQ(stats_of(&f).arenas + f.arenas.gives, 2);
  rig_teardown(&f);
}
