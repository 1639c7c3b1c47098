// backing_share_test.c: chunks that are mapped at several places and live there. Slots are 2 MiB; where an edge of a
// block lies is by hand:
//
//     host slot 0    | ...... free ...... | block [1536K, 2M) |        a tail may take [0, y), y <= 1536K
//     target         | chunk of its own   | tail [0, 1M) |
#include "vmm/backing_share.h"

#include <string.h>

#include "tests/support/faults.h"
#include "tests/vmm/backing_rig.h"
#include "vmm/backing_internal.h"
#include "vmm/memory.h"

#define KIB UINT64_C(1024)
#define TARGET (64 * MIB)

typedef struct share {
  rig rig;
} share;

static void share_setup(share *f) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(&f->rig, 16 * MIB, GIB, &options);
  (void)vmp_clock_stream(f->rig.clock, NULL);  // stream 0 of the clock
}
static void share_teardown(share *f) { rig_close(&f->rig); }

static vmp_shared_part part_at(const rig *r, uint64_t offset, uint64_t host, uint64_t low, uint64_t high) {
  return (vmp_shared_part){r->base + offset, r->base + host, low, high};
}

static vmp_status claim_parts(rig *r, uint64_t offset, uint64_t bytes, const vmp_shared_part *parts, size_t count,
                              vmp_fence *out_fence) {
  vmp_fence ignored;
  return r->ops.claim_shared(r->ops.self, r->base + offset, bytes, parts, count, 0, VMP_EFFORT_NORMAL,
                             out_fence != NULL ? out_fence : &ignored);
}

// tail claims `bytes` at `offset`, of which the last `tail` bytes lie in the chunk of the host's slot.
static vmp_status tail(rig *r, uint64_t offset, uint64_t bytes, uint64_t host, uint64_t tail_bytes) {
  vmp_shared_part part = part_at(r, offset + bytes - tail_bytes, host, 0, tail_bytes);
  return claim_parts(r, offset, bytes, &part, 1, NULL);
}

static vmp_run_state state_of(const rig *r, uint64_t offset, uint64_t end, uint64_t *out_end) {
  uint64_t reached = 0;
  vmp_run_state state = r->ops.run(r->ops.self, r->base + offset, r->base + end, &reached);
  *out_end = reached - r->base;
  return state;
}

#define EXPECT_RUN(r, from, to, state, until)                \
  do {                                                       \
    uint64_t reached_;                                       \
    VEXPECT_INT_EQ(state_of(r, from, to, &reached_), state); \
    VEXPECT_UINT_EQ(reached_, until);                        \
  } while (0)

VTEST_F(Share, ATailLivesInAnotherBlocksChunkAndIsCountedOnce, share) {
  rig *r = &f->rig;
  VASSERT_OK(rig_claim(r, 1536 * KIB, 512 * KIB, 0, NULL));
  VASSERT_OK(tail(r, TARGET, 3 * MIB, 0, MIB));
  rig_check(r);
  VEXPECT_UINT_EQ(rig_stats(r).mapped_bytes, 2 * SLOT);  // the host's chunk and one for the first slot
  VEXPECT_UINT_EQ(rig_stats(r).parked_bytes, 0);
  VEXPECT_UINT_EQ(rig_census(r).mappings, 3);
  VEXPECT_UINT_EQ(rig_stats(r).shares, 1);
  VEXPECT_UINT_EQ(rig_stats(r).shared_bytes, SLOT);
  // The bytes of the tail are nobody else's: at the host, and beyond it at its own slot.
  EXPECT_RUN(r, 0, SLOT, VMP_RUN_BLOCKED, MIB);
  EXPECT_RUN(r, MIB, SLOT, VMP_RUN_MAPPED, SLOT);
  EXPECT_RUN(r, TARGET, TARGET + 4 * MIB, VMP_RUN_MAPPED, TARGET + 3 * MIB);
  EXPECT_RUN(r, TARGET + 3 * MIB, TARGET + 4 * MIB, VMP_RUN_BLOCKED, TARGET + 4 * MIB);
  VEXPECT_TRUE(r->ops.cost(r->ops.self, r->base, 512, 0).blocked);
  VEXPECT_FALSE(r->ops.cost(r->ops.self, r->base + MIB, 512, 0).blocked);
  VEXPECT_STATUS(rig_claim(r, MIB - 512, 1024, 0, NULL), VMP_ERROR_BUSY);
  VASSERT_OK(rig_claim(r, MIB, 512, 0, NULL));  // what is left of the host is used as before, without a driver call
  // The data is the tail's own, by either address.
  uint64_t word = 17, read = 0;
  VEXPECT_INT_EQ(vmp_host_poke(r->driver, vmp_backing_address(r->backing, r->base + TARGET + SLOT), &word, 8), 0);
  VEXPECT_INT_EQ(vmp_host_peek(r->driver, vmp_backing_address(r->backing, r->base), &read, 8), 0);
  VEXPECT_UINT_EQ(read, 17);
  VEXPECT_TRUE(vmp_backing_is_shared(r->backing, r->base + TARGET, 3 * MIB));
  VEXPECT_FALSE(vmp_backing_is_shared(r->backing, r->base + TARGET, SLOT));
  rig_release(r, MIB, 512, VMP_FENCE_NONE);
  rig_release(r, TARGET, 3 * MIB, VMP_FENCE_NONE);
  rig_release(r, 1536 * KIB, 512 * KIB, VMP_FENCE_NONE);
  VEXPECT_UINT_EQ(rig_stats(r).parked_bytes, 2 * SLOT);
  rig_check(r);
}

VTEST_F(Share, TheSideThatEmptiesRetiresAndTheOtherGetsTheWholeChunk, share) {
  rig *r = &f->rig;
  for (int first = 0; first < 2; first++) {
    VASSERT_OK(rig_claim(r, 1536 * KIB, 512 * KIB, 0, NULL));
    VASSERT_OK(tail(r, TARGET, MIB, 0, MIB));
    VEXPECT_UINT_EQ(rig_stats(r).mapped_bytes, SLOT);
    vmp_cu_stream stream = rig_stream(r);
    vmp_host_set_work(r->driver, VMP_HOST_WORK_LATE, 0);
    uint64_t empties = first == 0 ? TARGET : 0, stays = first == 0 ? 0 : TARGET;
    uint64_t offset = first == 0 ? TARGET : 1536 * KIB, bytes = first == 0 ? MIB : 512 * KIB;
    uint64_t address = vmp_backing_address(r->backing, r->base + offset);
    VEXPECT_INT_EQ(vmp_host_touch(r->driver, 0, stream, address, bytes, false), 0);
    vmp_stream_index index = vmp_clock_stream(r->clock, stream);
    vmp_fence fence = vmp_clock_fence(r->clock, index);
    rig_release(r, offset, bytes, fence);
    rig_check(r);
    VEXPECT_UINT_EQ(rig_stats(r).mapped_bytes, SLOT);
    VEXPECT_UINT_EQ(rig_stats(r).parked_bytes, 0);
    VEXPECT_UINT_EQ(rig_stats(r).retiring_bytes, SLOT);  // under queued work the old mapping stays
    EXPECT_RUN(r, empties, empties + SLOT, VMP_RUN_BLOCKED, empties + SLOT);
    EXPECT_RUN(r, stays, stays + SLOT, VMP_RUN_MAPPED, stays + SLOT);
    // Whoever claims the bytes by the other address is told of that work; its own stream needn't wait for itself.
    VEXPECT_TRUE(r->ops.cost(r->ops.self, r->base + stays + MIB, 512, 0).must_wait);
    VEXPECT_FALSE(r->ops.cost(r->ops.self, r->base + stays + MIB, 512, index).must_wait);
    vmp_fence after = VMP_FENCE_NONE;
    VASSERT_OK(rig_claim(r, stays + MIB, 512, 0, &after));
    VEXPECT_UINT_EQ(after.streams & fence.streams, fence.streams);
    rig_release(r, stays + MIB, 512, VMP_FENCE_NONE);
    VEXPECT_OK(vmp_clock_wait(r->clock, fence, UINT64_MAX));
    VEXPECT_TRUE(vmp_backing_poll(r->backing));
    VEXPECT_UINT_EQ(rig_stats(r).retiring_bytes, 0);
    if (first == 0) rig_release(r, 1536 * KIB, 512 * KIB, VMP_FENCE_NONE);
    if (first == 1) rig_release(r, TARGET, MIB, VMP_FENCE_NONE);
    VEXPECT_UINT_EQ(rig_stats(r).parked_bytes, SLOT);
    vmp_backing_trim_report report;
    VEXPECT_OK(vmp_backing_trim(r->backing, 0, &report));
    VEXPECT_UINT_EQ(rig_stats(r).mapped_bytes, 0);
    rig_check(r);
  }
  rig_expect_no_violations(r);
}

VTEST_F(Share, ANewPlaceIsToldWhoReleasedBytesOfItsChunk, share) {
  rig *r = &f->rig;
  VASSERT_OK(rig_claim(r, 1536 * KIB, 512 * KIB, 0, NULL));
  VASSERT_OK(rig_claim(r, 0, MIB, 0, NULL));
  vmp_cu_stream stream = rig_stream(r);
  vmp_host_set_work(r->driver, VMP_HOST_WORK_LATE, 0);
  VEXPECT_INT_EQ(vmp_host_touch(r->driver, 0, stream, vmp_backing_address(r->backing, r->base), MIB, false), 0);
  vmp_fence fence = vmp_clock_fence(r->clock, vmp_clock_stream(r->clock, stream)), after = VMP_FENCE_NONE;
  rig_release(r, 0, MIB, fence);
  vmp_shared_part part = part_at(r, TARGET, 0, 0, MIB);
  VASSERT_OK(claim_parts(r, TARGET, MIB, &part, 1, &after));
  VEXPECT_UINT_EQ(after.streams & fence.streams, fence.streams);
  rig_release(r, TARGET, MIB, VMP_FENCE_NONE);
  rig_release(r, 1536 * KIB, 512 * KIB, VMP_FENCE_NONE);
  VEXPECT_OK(vmp_clock_wait(r->clock, fence, UINT64_MAX));
}

VTEST_F(Share, HeadAndTailOfOneBlockAndThreePlacesOfOneChunk, share) {
  rig *r = &f->rig;
  VASSERT_OK(rig_claim(r, 512 * KIB, 512 * KIB, 0, NULL));  // the middle of slot 0
  vmp_shared_part parts[2] = {part_at(r, TARGET, 0, MIB, SLOT), part_at(r, TARGET + 2 * SLOT, 0, 0, 512 * KIB)};
  // A head of 1 MiB, a slot of its own, a tail of 512 KiB: head and tail lie in one chunk, with the host between them.
  VASSERT_OK(claim_parts(r, TARGET + MIB, MIB + SLOT + 512 * KIB, parts, 2, NULL));
  VEXPECT_UINT_EQ(rig_stats(r).mapped_bytes, 2 * SLOT);
  rig_check(r);
  rig_release(r, 512 * KIB, 512 * KIB, VMP_FENCE_NONE);  // the home empties first
  rig_check(r);
  VEXPECT_UINT_EQ(rig_stats(r).retiring_bytes, SLOT);
  VEXPECT_UINT_EQ(rig_stats(r).mapped_bytes, 2 * SLOT);
  rig_release(r, TARGET + MIB, MIB + SLOT + 512 * KIB, VMP_FENCE_NONE);
  VEXPECT_UINT_EQ(rig_stats(r).parked_bytes, 2 * SLOT);
  VEXPECT_UINT_EQ(rig_stats(r).retiring_bytes, 2 * SLOT);
  rig_check(r);
}

VTEST_F(Share, AnEmptyWindowSharesWholePagesOfAnySize, share) {
  rig *r = &f->rig;
  rig_close(r);
  vmp_backing_options options = rig_options(8 * MIB);
  rig_open(r, 256 * MIB, GIB, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_claim(r, 0, 8 * MIB, 0, NULL));
  vmp_shared_part part = part_at(r, TARGET, 0, 0, 0);
  VASSERT_OK(claim_parts(r, TARGET, 8 * MIB, &part, 1, NULL));
  VEXPECT_UINT_EQ(rig_stats(r).mapped_bytes, 8 * MIB);
  EXPECT_RUN(r, TARGET, TARGET + 8 * MIB, VMP_RUN_BLOCKED, TARGET + 8 * MIB);  // for this claim alone
  EXPECT_RUN(r, 0, 8 * MIB, VMP_RUN_MAPPED, 8 * MIB);
  rig_check(r);
  rig_release(r, 0, 8 * MIB, VMP_FENCE_NONE);
  EXPECT_RUN(r, TARGET, TARGET + 8 * MIB, VMP_RUN_MAPPED, TARGET + 8 * MIB);
  VEXPECT_UINT_EQ(rig_stats(r).parked_bytes, 0);
  rig_check(r);
  rig_release(r, TARGET, 8 * MIB, VMP_FENCE_NONE);
  VEXPECT_UINT_EQ(rig_stats(r).parked_bytes, 8 * MIB);
}

VTEST_F(Share, WhatIsRefusedChangesNothing, share) {
  rig *r = &f->rig;
  VASSERT_OK(rig_claim(r, 1536 * KIB, 512 * KIB, 0, NULL));
  VASSERT_OK(rig_claim(r, 4 * MIB, MIB, 0, NULL));
  VASSERT_OK(rig_claim(r, 8 * MIB, SLOT, 0, NULL));
  rig_release(r, 8 * MIB, SLOT, VMP_FENCE_NONE);
  vmp_shared_part middle = part_at(r, TARGET, 0, 512, MIB), parked = part_at(r, TARGET, 8 * MIB, 0, MIB);
  vmp_shared_part nothing = part_at(r, TARGET, 12 * MIB, 0, MIB), mapped = part_at(r, 4 * MIB, 0, 0, MIB);
  vmp_shared_part outside = part_at(r, TARGET + SLOT, 0, 0, MIB), beyond = part_at(r, TARGET, 0, 0, SLOT + 512);
  VEXPECT_STATUS(claim_parts(r, TARGET, MIB, &middle, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(claim_parts(r, TARGET, MIB, &beyond, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(claim_parts(r, TARGET, MIB, &outside, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(claim_parts(r, TARGET, MIB, &parked, 1, NULL), VMP_ERROR_BUSY);
  VEXPECT_STATUS(claim_parts(r, TARGET, MIB, &nothing, 1, NULL), VMP_ERROR_BUSY);
  VEXPECT_STATUS(claim_parts(r, 4 * MIB, MIB, &mapped, 1, NULL), VMP_ERROR_BUSY);
  vmp_backing_keep_apart(r->backing, r->base + 1536 * KIB, 512);
  vmp_shared_part good = part_at(r, TARGET, 0, 0, MIB);
  VEXPECT_STATUS(claim_parts(r, TARGET, MIB, &good, 1, NULL), VMP_ERROR_BUSY);
  // A part that was made already goes again when a later one, or the rest of the claim, is refused.
  vmp_shared_part two[2] = {part_at(r, TARGET, 4 * MIB, MIB, SLOT), part_at(r, TARGET + SLOT, 0, 0, MIB)};
  VEXPECT_STATUS(claim_parts(r, TARGET + MIB, SLOT, two, 2, NULL), VMP_ERROR_BUSY);
  two[1] = part_at(r, TARGET + 16 * SLOT, 4 * MIB, 0, 0);
  VEXPECT_STATUS(claim_parts(r, TARGET + MIB, 15 * SLOT + MIB + 512, two, 2, NULL), VMP_ERROR_OUT_OF_MEMORY);
  EXPECT_RUN(r, 4 * MIB, 6 * MIB, VMP_RUN_MAPPED, 6 * MIB);
  EXPECT_RUN(r, TARGET, TARGET + SLOT, VMP_RUN_UNMAPPED, TARGET + SLOT);
  VEXPECT_FALSE(vmp_backing_is_shared(r->backing, r->base, 8 * MIB));
  rig_check(r);
  rig_release(r, 4 * MIB, MIB, VMP_FENCE_NONE);
  rig_release(r, 1536 * KIB, 512 * KIB, VMP_FENCE_NONE);
  VASSERT_OK(rig_claim(r, 1536 * KIB, 512 * KIB, 0, NULL));  // parked meanwhile: it may be a host again
  VEXPECT_OK(claim_parts(r, TARGET, MIB, &good, 1, NULL));
  rig_release(r, TARGET, MIB, VMP_FENCE_NONE);
  rig_release(r, 1536 * KIB, 512 * KIB, VMP_FENCE_NONE);
}

// ---- every driver call fails ----

typedef struct code {
  const char *name;
  int value;
} code;
static const code codes[] = {{"out_of_memory", VMP_CU_OUT_OF_MEMORY},
                             {"unknown", VMP_CU_UNKNOWN},
                             {"not_ready", VMP_CU_NOT_READY},
                             {"not_supported", VMP_CU_NOT_SUPPORTED}};
static const char *code_name(const code *p) { return p->name; }

static void one_fault(rig *r, const vmp_host_fault *fault, bool *out_reached) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(r, 16 * MIB, GIB, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_claim(r, 1536 * KIB, 512 * KIB, 0, NULL));
  VASSERT_OK(rig_claim(r, 4 * MIB, MIB, 0, NULL));
  uint64_t before = 0, after = 0;
  for (int call = 0; call < VMP_CALL_COUNT; call++) before += rig_calls(r, (vmp_call)call);
  VASSERT_TRUE(vmp_host_inject(r->driver, fault));
  vmp_shared_part parts[2] = {part_at(r, TARGET, 4 * MIB, MIB, SLOT), part_at(r, TARGET + 2 * SLOT, 0, 0, MIB)};
  vmp_status status = claim_parts(r, TARGET + MIB, 2 * SLOT, parts, 2, NULL);
  rig_check(r);
  if (status == VMP_OK) {
    rig_release(r, TARGET + MIB, 2 * SLOT, VMP_FENCE_NONE);
    VEXPECT_UINT_EQ(rig_stats(r).retiring_bytes, 2 * SLOT);
  } else {
    VEXPECT_STR_NE(vmp_last_error()->message, "");
  }
  // Whatever happened, the hosts have all of their chunks again, and nothing is shared.
  EXPECT_RUN(r, 0, SLOT, VMP_RUN_MAPPED, SLOT);
  EXPECT_RUN(r, 4 * MIB, 6 * MIB, VMP_RUN_MAPPED, 6 * MIB);
  VEXPECT_FALSE(vmp_backing_is_shared(r->backing, r->base, 128 * MIB));
  (void)vmp_backing_poll(r->backing);
  for (int call = 0; call < VMP_CALL_COUNT; call++) after += rig_calls(r, (vmp_call)call);
  *out_reached = after - before >= fault->nth;
  vmp_host_lift(r->driver);
  rig_check(r);
  (void)vmp_backing_poll(r->backing);
  VEXPECT_UINT_EQ(rig_stats(r).broken_bytes, 0);
  VEXPECT_UINT_EQ(rig_stats(r).retiring_bytes, 0);
  VEXPECT_OK(claim_parts(r, TARGET + MIB, 2 * SLOT, parts, 2, NULL));
  rig_check(r);
  rig_release(r, TARGET + MIB, 2 * SLOT, VMP_FENCE_NONE);
  rig_release(r, 1536 * KIB, 512 * KIB, VMP_FENCE_NONE);
  rig_release(r, 4 * MIB, MIB, VMP_FENCE_NONE);
  rig_check(r);
  rig_close(r);
}

VTEST_FP(Share, EveryCallFailsOnceAndFromThenOn, share, code, codes, code_name) {
  uint64_t faults = 0;
  rig_close(&f->rig);
  for (int forever = 0; forever < 2; forever++) {
    bool reached = true;
    for (uint64_t nth = 1; reached; nth++) {
      VTRACE("call %llu, %s", (unsigned long long)nth, forever ? "from then on" : "once");
      vmp_host_fault fault = {VMP_CALL_COUNT, nth, p->value, forever != 0};
      one_fault(&f->rig, &fault, &reached);
      VASSERT_NO_FAILURE();
      faults += reached;
    }
  }
  VEXPECT_UINT_GT(faults, 12);
}

VTEST_F(Share, APlaceThatCantBeUndoneIsBrokenAndHeals, share) {
  rig *r = &f->rig;
  VASSERT_OK(rig_claim(r, 1536 * KIB, 512 * KIB, 0, NULL));
  vmp_host_fault access = {VMP_CALL_mem_set_access, 1, VMP_CU_UNKNOWN, true};
  vmp_host_fault unmap = {VMP_CALL_mem_unmap, 1, VMP_CU_UNKNOWN, true};
  VASSERT_TRUE(vmp_host_inject(r->driver, &access));
  VASSERT_TRUE(vmp_host_inject(r->driver, &unmap));
  VEXPECT_STATUS(tail(r, TARGET, MIB, 0, MIB), VMP_ERROR_DRIVER);
  VEXPECT_UINT_EQ(rig_stats(r).broken_bytes, SLOT);
  EXPECT_RUN(r, TARGET, TARGET + SLOT, VMP_RUN_BLOCKED, TARGET + SLOT);
  EXPECT_RUN(r, 0, SLOT, VMP_RUN_MAPPED, SLOT);
  rig_check(r);
  vmp_host_lift(r->driver);
  VEXPECT_TRUE(vmp_backing_poll(r->backing));
  VEXPECT_UINT_EQ(rig_stats(r).broken_bytes, 0);
  rig_check(r);
  rig_release(r, 1536 * KIB, 512 * KIB, VMP_FENCE_NONE);
}

VTEST_F(Share, HostMemoryThatRunsOutChangesNothingAndReleaseNeedsNone, share) {
  rig *r = &f->rig;
  VASSERT_OK(rig_claim(r, 1536 * KIB, 512 * KIB, 0, NULL));
  vmp_status status = VMP_ERROR_HOST_OUT_OF_MEMORY;
  uint64_t refusals = 0;
  for (uint64_t successes = 0; status != VMP_OK; successes++) {
    vmp_mem_fail_after(successes, UINT64_MAX);
    status = tail(r, 512 * MIB, 3 * MIB, 0, MIB);
    vmp_mem_fail_after(0, 0);
    refusals += status != VMP_OK;
    if (status != VMP_OK) VASSERT_INT_EQ(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
    if (status != VMP_OK) EXPECT_RUN(r, 0, SLOT, VMP_RUN_MAPPED, SLOT);
    rig_check(r);
    VASSERT_NO_FAILURE();
  }
  VEXPECT_UINT_GT(refusals, 2);
  vmp_mem_fail_after(0, UINT64_MAX);
  rig_release(r, 512 * MIB, 3 * MIB, VMP_FENCE_NONE);
  rig_release(r, 1536 * KIB, 512 * KIB, VMP_FENCE_NONE);
  VEXPECT_UINT_EQ(vmp_mem_failures(), 0);
  vmp_mem_fail_after(0, 0);
}

// ---- the checker ----

static vtest_faults check(rig *r) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  size_t reported = vmp_backing_check(r->backing, &report);
  VEXPECT_UINT_EQ(reported, faults.count);
  return faults;
}

#define CORRUPT(r, lvalue, value, sentence) \
  do {                                      \
    __typeof__(lvalue) kept = (lvalue);     \
    (lvalue) = (value);                     \
    vtest_faults faults = check(r);         \
    VEXPECT_A_FAULT(&faults, sentence);     \
    (lvalue) = kept;                        \
  } while (0)

VTEST_F(Share, TheCheckerNoticesEachCorruption, share) {
  rig *r = &f->rig;
  VASSERT_OK(rig_claim(r, 1536 * KIB, 512 * KIB, 0, NULL));
  VASSERT_OK(tail(r, TARGET, MIB, 0, MIB));
  vtest_faults none = check(r);
  VEXPECT_NO_FAULTS(&none);
  vmp_backing *b = r->backing;
  uint64_t first = b->reservations[0].first_slot;
  VASSERT_TRUE(backing_prepare_details(b, first + TARGET / SLOT, 1));
  uint32_t *group = &b->reservations[0].leaves[0][TARGET / SLOT / GROUP_SLOTS];
  uint32_t *tail_word = &backing_detail(b, *group & WORD_INDEX)->words[TARGET / SLOT % GROUP_SLOTS];
  uint32_t host_id = backing_word(b, first) & WORD_INDEX, tail_id = *tail_word & WORD_INDEX;
  place *host = backing_place(b, host_id), *tail_place = backing_place(b, tail_id);
  chunk *c = backing_chunk(b, host->chunk);
  CORRUPT(r, host->low, host->low + 512, "don't tile it");
  CORRUPT(r, host->low, host->low - 512, "don't tile it");
  CORRUPT(r, tail_place->high, 3 * MIB, "beyond its chunk");
  CORRUPT(r, tail_place->live, 2u, "its places 3");
  CORRUPT(r, c->live, 1u, "has 1 live claims");
  CORRUPT(r, tail_place->live, 0u, "keeps an empty place");
  CORRUPT(r, tail_place->slots, UINT64_C(2), "is another's");
  CORRUPT(r, tail_place->state, (uint8_t)PLACE_RETIRING, "is another's, or no mapping");
  CORRUPT(r, backing_place(b, c->shares)->next_share, 0u, "has 1 places");
  CORRUPT(r, backing_place(b, c->shares)->next_share, 4000u, "leads astray");
  CORRUPT(r, c->shares, 0u, "have 0 shared places and the table shows 2");
  CORRUPT(r, c->home, UINT64_C(5), "has a home");
  CORRUPT(r, b->shared_bytes, UINT64_C(5), "shared_bytes is 5, and 2097152 are shared");
  CORRUPT(r, *tail_word, 0u, "which doesn't name it");
  CORRUPT(r, host->chunk, host->chunk + 1, "is another's");
  rig_release(r, TARGET, MIB, VMP_FENCE_NONE);
  rig_release(r, 1536 * KIB, 512 * KIB, VMP_FENCE_NONE);
}
