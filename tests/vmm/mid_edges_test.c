// mid_edges_test.c: blocks whose ends lie in other blocks' chunks, on a real backing of a small device. Slots are 2
// MiB, chunks too; a device of 16 MiB has eight.
#include "pool/mid_internal.h"
#include "tests/support/faults.h"
#include "tests/vmm/backing_rig.h"
#include "vmm/backing_share.h"
#include "vmm/memory.h"

#define KIB UINT64_C(1024)
#define ARENA (256 * MIB)

typedef struct edges {
  rig rig;
  vmp_mid *mid;
  uint64_t next_arena;
} edges;

static vmp_status take_arena(void *self, uint64_t bytes, uint64_t alignment, uint64_t *out_offset, uint64_t *out_bytes,
                             vmp_fence *out_fence) {
  edges *f = self;
  (void)alignment;
  if (f->next_arena + bytes > f->rig.bytes) return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "no more arenas");
  *out_offset = f->rig.base + f->next_arena;
  *out_bytes = bytes;
  *out_fence = VMP_FENCE_NONE;
  f->next_arena += bytes;
  return VMP_OK;
}

static void give_arena(void *self, uint64_t offset, vmp_fence fence) {
  (void)self;
  (void)offset;
  (void)fence;
}

static void open_with(edges *f, uint64_t memory_bytes, double park_limit) {
  vmp_backing_options options = rig_options(SLOT);
  options.park_limit = park_limit;
  rig_open(&f->rig, memory_bytes, 4 * GIB, &options);
  (void)vmp_clock_stream(f->rig.clock, NULL);
  vmp_mid_supply supply = {f, take_arena, give_arena};
  vmp_mid_options mid = {.arena_bytes = ARENA, .edges = true, .park_limit = park_limit};
  VASSERT_OK(vmp_mid_create(&f->mid, &f->rig.ops, &supply, &mid));
}

static void edges_setup(edges *f) { open_with(f, 16 * MIB, 1); }

static vtest_faults check(edges *f) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  (void)vmp_mid_check(f->mid, &report);
  return faults;
}

static void check_all(edges *f) {
  rig_check(&f->rig);
  vtest_faults faults = check(f);
  VEXPECT_NO_FAULTS(&faults);
}

static void edges_teardown(edges *f) {
  vmp_mid_destroy(f->mid);
  f->mid = NULL;
  rig_close(&f->rig);
}

static vmp_request request_of(uint64_t bytes) {
  return (vmp_request){.bytes = bytes, .alignment = 512, .effort = VMP_EFFORT_NORMAL};
}

static uint64_t take(edges *f, uint64_t bytes) {
  vmp_request request = request_of(bytes);
  vmp_placed placed = {0};
  VEXPECT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));
  return placed.offset;
}

static void give(edges *f, uint64_t offset) { (void)vmp_mid_free(f->mid, offset, VMP_FENCE_NONE); }

// shared: whether any chunk of a block is mapped elsewhere too.
static bool shared(const edges *f, uint64_t offset, uint64_t bytes) {
  return vmp_backing_is_shared(f->rig.backing, offset, bytes);
}

VTEST_F(MidEdges, TheLastBytesGoIntoAHalfUsedChunk, edges) {
  uint64_t a = take(f, 5 * MIB);  // slots 0 and 1, half of 2
  uint64_t b = take(f, 9 * MIB);  // the other half of 2, 3 to 6
  VEXPECT_UINT_EQ(b, a + 5 * MIB);
  uint64_t c = take(f, 2 * MIB - 512);  // the last slot but its last step
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped_bytes, 16 * MIB);
  give(f, a);  // slots 0 and 1 parked, 2 half used
  VEXPECT_UINT_EQ(rig_stats(&f->rig).parked_bytes, 4 * MIB);
  // 4.5 MiB at once: in place, there are 5 MiB. 512 KiB then go there, too.
  uint64_t d = take(f, 4 * MIB + 512 * KIB);
  VEXPECT_FALSE(shared(f, d, 4 * MIB + 512 * KIB));
  check_all(f);
  give(f, d);
  give(f, c);
  // 6.5 MiB: slots 0, 1, the last, and half a slot that two blocks share.
  uint64_t e = take(f, 6 * MIB + 512 * KIB);
  VEXPECT_TRUE(shared(f, e, 6 * MIB + 512 * KIB));
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped_bytes, 16 * MIB);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).parked_bytes, 0);
  check_all(f);
  give(f, b);
  check_all(f);
  give(f, e);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).parked_bytes, 16 * MIB);
  check_all(f);
}

// halves fills the device with blocks of 1 MiB and frees the upper half of slot 0 and the lower half of slot 2: for 2
// MiB there is no chunk left, but two halves.
static void halves(edges *f, uint64_t blocks[16]) {
  for (unsigned i = 0; i < 16; i++) {
    blocks[i] = take(f, MIB);
    VEXPECT_UINT_EQ(blocks[i], blocks[0] + i * MIB);
  }
  give(f, blocks[1]);
  give(f, blocks[4]);
}

static void give_halves(edges *f, const uint64_t blocks[16]) {
  for (unsigned i = 0; i < 16; i++) {
    if (i != 1 && i != 4) give(f, blocks[i]);
  }
  check_all(f);
}

static vmp_status take_with(edges *f, vmp_request request, uint64_t *out_offset) {
  vmp_placed placed = {0};
  vmp_status status = vmp_mid_alloc(f->mid, &request, NULL, &placed);
  *out_offset = placed.offset;
  return status;
}

VTEST_F(MidEdges, TwoHalvesServeForAWholeChunk, edges) {
  uint64_t blocks[16];
  halves(f, blocks);
  uint64_t both = take(f, 2 * MIB);
  VEXPECT_UINT_EQ((both - f->rig.base) % SLOT, MIB);
  VEXPECT_TRUE(shared(f, both, MIB));
  VEXPECT_TRUE(shared(f, both + MIB, MIB));
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped_bytes, 16 * MIB);
  VEXPECT_UINT_EQ(rig_census(&f->rig).mappings, 10);
  check_all(f);
  give(f, both);
  check_all(f);
  // The halves are what they were.
  VEXPECT_UINT_EQ(take(f, MIB), blocks[1]);
  VEXPECT_UINT_EQ(take(f, MIB), blocks[4]);
  give(f, blocks[1]);
  give(f, blocks[4]);
  give_halves(f, blocks);
}

VTEST_F(MidEdges, TheHostsMayGoFirst, edges) {
  uint64_t blocks[16];
  halves(f, blocks);
  uint64_t both = take(f, 2 * MIB);
  give_halves(f, blocks);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).parked_bytes, 12 * MIB);  // all but the two chunks that `both` has now
  VEXPECT_FALSE(shared(f, both, 2 * MIB));
  // What lies beside it in its slots is its neighbours' to use now.
  VEXPECT_UINT_EQ(f->rig.ops.cost(f->rig.ops.self, both - MIB, 4 * MIB, 0).slots_to_map, 0);
  check_all(f);
  give(f, both);
  check_all(f);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).parked_bytes, 16 * MIB);
}

VTEST_F(MidEdges, IsolatedRequestsAndThoseThatMayNotWaitGetNone, edges) {
  uint64_t blocks[16], offset;
  halves(f, blocks);
  vmp_request request = request_of(2 * MIB);
  request.isolated = true;
  VEXPECT_STATUS(take_with(f, request, &offset), VMP_ERROR_OUT_OF_MEMORY);
  request.isolated = false;
  request.wait = VMP_WAIT_NEVER;
  VEXPECT_STATUS(take_with(f, request, &offset), VMP_ERROR_OUT_OF_MEMORY);
  request.wait = VMP_WAIT_LAST;
  VEXPECT_OK(take_with(f, request, &offset));
  give(f, offset);
  give_halves(f, blocks);
}

VTEST_F(MidEdges, ChunksThatAreKeptApartOrPinnedAreNoHosts, edges) {
  uint64_t blocks[16], offset;
  halves(f, blocks);
  vmp_backing_keep_apart(f->rig.backing, blocks[0], MIB);
  VEXPECT_STATUS(take_with(f, request_of(2 * MIB), &offset), VMP_ERROR_OUT_OF_MEMORY);
  check_all(f);
  give_halves(f, blocks);
  halves(f, blocks);  // its chunk was parked: what it was before is forgotten
  VEXPECT_OK(take_with(f, request_of(2 * MIB), &offset));
  give(f, offset);
  (void)vmp_backing_pin(f->rig.backing, blocks[0], MIB);
  VEXPECT_STATUS(take_with(f, request_of(2 * MIB), &offset), VMP_ERROR_OUT_OF_MEMORY);
  vmp_backing_unpin(f->rig.backing, blocks[0], MIB);
  check_all(f);
  give_halves(f, blocks);
}

VTEST_F(MidEdges, APinnedBlockKeepsItsSharedChunks, edges) {
  uint64_t blocks[16];
  halves(f, blocks);
  uint64_t both = take(f, 2 * MIB);
  VEXPECT_UINT_EQ(vmp_backing_pin(f->rig.backing, both, 2 * MIB), 2);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).pinned_bytes, 4 * MIB);
  give_halves(f, blocks);
  give(f, both);
  check_all(f);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).parked_bytes, 12 * MIB);
  vmp_backing_unpin(f->rig.backing, both, 2 * MIB);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).parked_bytes, 16 * MIB);
  check_all(f);
}

VTEST_F(MidEdges, AlignmentHolds, edges) {
  // The top of slot 0 is 1 MiB less 4 KiB, the bottom of slot 2 is 1.5 MiB.
  uint64_t a = take(f, MIB + 4 * KIB), top = take(f, MIB - 4 * KIB), c = take(f, SLOT);
  uint64_t bottom = take(f, MIB + 512 * KIB), e = take(f, 512 * KIB), rest = take(f, 10 * MIB), offset;
  give(f, top);
  give(f, bottom);
  vmp_request request = request_of(2 * MIB);
  request.alignment = 4 * MIB;
  VEXPECT_STATUS(take_with(f, request, &offset), VMP_ERROR_OUT_OF_MEMORY);
  request.alignment = 64 * KIB;
  VASSERT_OK(take_with(f, request, &offset));
  VEXPECT_UINT_EQ((offset - f->rig.base) % SLOT, SLOT - 960 * KIB);
  VEXPECT_TRUE(shared(f, offset, 2 * MIB));
  check_all(f);
  give(f, offset);
  give(f, a);
  give(f, c);
  give(f, e);
  give(f, rest);
  check_all(f);
}

VTEST_F(MidEdges, BeyondParkLimitAChunkIsSharedBeforeOneIsMade, edges) {
  edges_teardown(f);
  *f = (edges){.mid = NULL};
  open_with(f, GIB, 0);
  VASSERT_NO_FAILURE();
  uint64_t a = take(f, 3 * MIB), b = take(f, 2 * MIB), c = take(f, 3 * MIB);
  give(f, b);  // half of slot 1 and half of slot 2
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped_bytes, 8 * MIB);
  uint64_t d = take(f, 3 * MIB);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped_bytes, 10 * MIB);
  VEXPECT_TRUE(shared(f, d, 3 * MIB));
  check_all(f);
  give(f, a);
  give(f, c);
  check_all(f);
  give(f, d);
  check_all(f);
}

// Random blocks at the end of a device, of which the driver's refusals and host memory take some.
VTEST_F(MidEdges, NothingIsLostWhenCallsAndHostMemoryFail, edges) {
  enum { BLOCKS = 64 };
  uint64_t live[BLOCKS] = {0} /* offset + 1 */, state = vtest_seed(7);
  uint64_t shared_blocks = 0, refused = 0;
  for (unsigned i = 0; i < 4000; i++) {
    VTRACE("step %u", i);
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    unsigned slot = (unsigned)(state >> 33) % BLOCKS;
    uint64_t bytes = ((state >> 40) % 8000 + 1) * 512;
    if (live[slot] != 0) {
      give(f, live[slot] - 1);
      live[slot] = 0;
      continue;
    }
    if (i % 5 == 1) vmp_mem_fail_after((state >> 20) % 6, UINT64_MAX);
    vmp_host_fault fault = {VMP_CALL_COUNT, (state >> 50) % 8 + 1, VMP_CU_UNKNOWN, i % 14 == 3};
    if (i % 7 == 3) VASSERT_TRUE(vmp_host_inject(f->rig.driver, &fault));
    vmp_request request = request_of(bytes);
    vmp_placed placed = {0};
    vmp_status status = vmp_mid_alloc(f->mid, &request, NULL, &placed);
    vmp_mem_fail_after(0, 0);
    vmp_host_lift(f->rig.driver);
    if (status == VMP_OK) live[slot] = placed.offset + 1;
    if (status == VMP_OK && shared(f, placed.offset, bytes)) shared_blocks++;
    refused += status != VMP_OK;
    (void)vmp_backing_poll(f->rig.backing);
    check_all(f);
    VASSERT_NO_FAILURE();
  }
  VEXPECT_UINT_GT(shared_blocks, 100);
  VEXPECT_UINT_GT(refused, 100);
  for (unsigned i = 0; i < BLOCKS; i++) {
    if (live[i] != 0) give(f, live[i] - 1);
  }
  check_all(f);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).parked_bytes, rig_stats(&f->rig).mapped_bytes);
}

VTEST_F(MidEdges, TheCheckerNoticesWhatIsMissingOrWrong, edges) {
  uint64_t a = take(f, 5 * MIB), b = take(f, 9 * MIB), c = take(f, MIB);
  give(f, a);
  vtest_faults none = check(f);
  VEXPECT_NO_FAULTS(&none);
  uint32_t bottoms = f->mid->edges.bottoms;
  VASSERT_TRUE(bottoms != 0);
  vmp_tree_node *node = vmp_tree_at(&f->mid->edges.nodes, bottoms);
  node->size += 512;
  vtest_faults wrong = check(f);
  VEXPECT_A_FAULT(&wrong, "edges of runs are in no tree");
  node->size -= 512;
  f->mid->edges.bottoms = 0;
  vtest_faults missing = check(f);
  VEXPECT_A_FAULT(&missing, "the trees of edges hold");
  f->mid->edges.bottoms = bottoms;
  f->mid->edges.missed = 1;
  vtest_faults missed = check(f);
  VEXPECT_A_FAULT(&missed, "1 are known to be");
  f->mid->edges.missed = 0;
  give(f, b);
  give(f, c);
  check_all(f);
}
