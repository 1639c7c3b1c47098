// slab_model_test.c: random operations on slab, and a model that knows every 512 bytes.
//
// The model is as naive as can be: an array with, for each cell of 512 bytes, the tag of the live object that holds
// it (0: none) and, for each stream, the number of its latest work on the cell. Checked on every operation:
//   - a new object lies in a block of the supply, is aligned, and no live object holds any of its cells;
//   - `after` covers all work of other streams on its cells that is neither complete nor known to come before;
//   - a wait or a failure comes only after the supply was asked, a failure only where no object is free;
//   - a span that goes back holds nothing live, and its fence covers the incomplete work on its objects;
//   - wrong frees are refused with the right status;
// and from time to time slab's own check and its statistics against the model's.
//
// Work that a stream was ordered behind before it got an object is replaced by the fence of the object's free: whoever
// waits for the later work waits for the earlier one as well.
#include <stdlib.h>

#include "pool/slab.h"
#include "tests/support/fake_backing.h"
#include "tests/support/fake_supply.h"
#include "tests/support/faults.h"
#include "tests/support/vtest_rng.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)
#define CELL UINT64_C(512)
#define BASE (UINT64_C(1) << 36)
#define SPACE (64 * MIB)
#define CELLS (SPACE / CELL)
#define STREAMS 4u
#define MAX_LIVE 20000u

typedef struct setup {
  const char *name;
  vmp_slab_options options;
  uint32_t streams;
} setup;

static const uint64_t blocks[] = {64 * KIB, 128 * KIB, 160 * KIB, 256 * KIB, 512 * KIB};

static const setup setups[] = {
    {"Default", {.max_object_bytes = 64 * KIB, .granule_bytes = 2 * MIB}, STREAMS},
    {"Random", {.max_object_bytes = 64 * KIB, .granule_bytes = 2 * MIB, .random_seed = 99}, STREAMS},
    {"Classic", {.max_object_bytes = MIB, .granule_bytes = 2 * MIB}, STREAMS},
    {"Blocks", {.class_bytes = blocks, .num_classes = 5, .granule_bytes = 64 * KIB}, STREAMS},
    {"OneStream", {.max_object_bytes = 64 * KIB, .granule_bytes = 2 * MIB}, 1},
};

typedef struct object {
  uint64_t offset, bytes;
  vmp_stream_index stream;
} object;

typedef struct model {
  vmp_fake_backing *clock;
  vmp_fake_supply supply;
  vmp_slab *slab;
  vtest_rng rng;
  uint32_t num_streams;
  uint64_t max_bytes;

  uint64_t sequence;
  uint64_t completed[STREAMS], ordered[STREAMS][STREAMS];  // ordered[a][b]: a comes after b's work up to this

  uint32_t *tags;             // per cell
  uint64_t (*work)[STREAMS];  // per cell
  object *live;
  uint32_t num_live, tag;
  uint64_t live_bytes, target;  // the number of live objects drifts towards a target

  uint64_t waits, failures;
  unsigned depth;  // 1: inside of take, as another thread
} model;

static void model_setup(model *m) {
  m->clock = vmp_fake_create(&(vmp_fake_options){.slots = 1});
  vmp_fake_supply_init(&m->supply, vmp_fake_ops(m->clock), BASE, SPACE);
  m->tags = calloc(CELLS, sizeof *m->tags);
  m->work = calloc(CELLS, sizeof *m->work);
  m->live = calloc(MAX_LIVE, sizeof *m->live);
  if (m->tags == NULL || m->work == NULL || m->live == NULL) abort();
}

static void model_teardown(model *m) {
  vmp_slab_destroy(m->slab);
  vmp_fake_supply_finish(&m->supply);
  vmp_fake_destroy(m->clock);
  free(m->tags);
  free(m->work);
  free(m->live);
}

static vmp_stream_index random_stream(model *m) { return (vmp_stream_index)vtest_rng_below(&m->rng, m->num_streams); }

// ---- what the model knows of time ----

// Whether `fence` covers the work `number` of stream `i`, as far as anybody still has to wait for it.
static bool covers(vmp_fence fence, vmp_stream_index i, uint64_t number) {
  return (fence.streams >> i & 1) != 0 && fence.sequence >= number;
}

static void order(model *m, vmp_stream_index stream, vmp_fence fence) {
  for (uint32_t i = 0; i < STREAMS; i++) {
    if ((fence.streams >> i & 1) == 0 || m->ordered[stream][i] >= fence.sequence) continue;
    m->ordered[stream][i] = fence.sequence;
  }
  vmp_fake_order(m->clock, stream, fence);
}

static void complete_some(model *m) {
  vmp_stream_index i = random_stream(m);
  uint64_t left = m->sequence - m->completed[i];
  if (left == 0) return;
  m->completed[i] += vtest_rng_range(&m->rng, 1, left);
  vmp_fake_complete(m->clock, i, m->completed[i]);
}

// ---- allocate ----

// An object of the class could have been handed out: then failing was wrong.
typedef struct search {
  uint64_t bytes;
  bool found;
} search;

static void look_for_free(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  search *s = context;
  (void)offset, (void)fence;
  if (what[0] == 'f' && bytes == s->bytes) s->found = true;
}

static bool some_object_is_free(const model *m, uint64_t bytes) {
  search s = {.bytes = bytes};
  for (size_t i = 0; i < m->supply.num_blocks && !s.found; i++) {
    vmp_slab_walk_span(m->slab, m->supply.blocks[i].owner, look_for_free, &s);
  }
  return s.found;
}

static void check_new_object(model *m, const vmp_request *request, vmp_placed placed, bool asked) {
  VASSERT_UINT_EQ(placed.bytes, vmp_slab_class_bytes(m->slab, request->bytes, request->alignment));
  VASSERT_UINT_GE(placed.bytes, request->bytes);
  VASSERT_UINT_EQ(placed.offset & (request->alignment - 1), 0);
  vmp_fake_taken *block = vmp_fake_supply_find(&m->supply, placed.offset);
  VASSERT_TRUE(block != NULL && placed.offset + placed.bytes <= block->offset + block->bytes);
  block->note = placed.bytes;
  if (!vmp_fence_is_none(placed.after)) {
    VASSERT_TRUE(asked);
    m->waits++;
  }
  uint64_t first = (placed.offset - BASE) / CELL;
  for (uint64_t c = first; c < first + placed.bytes / CELL; c++) {
    if (m->tags[c] != 0) VFAIL("cell %llu is held by live object %u", (unsigned long long)c, m->tags[c]);
    for (uint32_t i = 0; i < m->num_streams; i++) {
      uint64_t number = m->work[c][i];
      if (i == request->stream || number <= m->completed[i] || number <= m->ordered[request->stream][i]) continue;
      if (covers(placed.after, i, number)) continue;
      VFAIL("cell %llu: work %llu of stream %u isn't waited for", (unsigned long long)c, (unsigned long long)number, i);
    }
  }
}

static void free_at(model *m, uint32_t index, vmp_fence fence);

static void allocate(model *m) {
  vmp_request request = {.bytes = vtest_rng_log(&m->rng, 1, m->max_bytes),
                         .alignment = 512,
                         .stream = random_stream(m),
                         .effort = VMP_EFFORT_NORMAL};
  if (vtest_rng_chance(&m->rng, 1, 16)) request.alignment = CELL << vtest_rng_below(&m->rng, 8);
  uint64_t class_bytes = vmp_slab_class_bytes(m->slab, request.bytes, request.alignment);
  if (class_bytes == 0 || m->num_live == MAX_LIVE) return;
  uint64_t asked = m->supply.takes;
  vmp_placed placed = {0};
  vmp_status status = vmp_slab_alloc(m->slab, &request, &placed);
  if (status != VMP_OK) {
    VASSERT_TRUE(status == VMP_ERROR_LIMIT || status == VMP_ERROR_OUT_OF_ADDRESS_SPACE);
    VASSERT_TRUE(m->supply.takes > asked);
    VASSERT_FALSE(some_object_is_free(m, class_bytes));
    m->failures++;
    return;
  }
  check_new_object(m, &request, placed, m->supply.takes > asked);
  VASSERT_NO_FAILURE();
  m->tag++;
  for (uint64_t i = 0; i < placed.bytes / CELL; i++) m->tags[(placed.offset - BASE) / CELL + i] = m->tag;
  m->live[m->num_live++] = (object){placed.offset, placed.bytes, request.stream};
  m->live_bytes += placed.bytes;
  // Now and then the stream can't be ordered, and the caller gives the object back at once.
  if (vtest_rng_chance(&m->rng, 1, 64)) {
    free_at(m, m->num_live - 1, placed.fence);
  } else {
    order(m, request.stream, placed.after);
  }
}

// ---- free ----

static void free_at(model *m, uint32_t index, vmp_fence fence) {
  object o = m->live[index];
  uint64_t first = (o.offset - BASE) / CELL;
  for (uint64_t c = first; c < first + o.bytes / CELL; c++) {
    m->tags[c] = 0;
    for (uint32_t i = 0; i < STREAMS; i++) m->work[c][i] = (fence.streams >> i & 1) != 0 ? fence.sequence : 0;
  }
  m->live[index] = m->live[--m->num_live];
  m->live_bytes -= o.bytes;
  uint64_t bytes = 0;
  vmp_span *span = vmp_fake_supply_find(&m->supply, o.offset)->owner;
  VASSERT_OK(vmp_slab_free(m->slab, span, o.offset, fence, &bytes));
  VASSERT_UINT_EQ(bytes, o.bytes);
}

static void free_one(model *m) {
  if (m->num_live == 0) return;
  uint32_t index = (uint32_t)vtest_rng_below(&m->rng, m->num_live);
  vmp_stream_index stream = m->live[index].stream;
  if (vtest_rng_chance(&m->rng, 1, 10)) stream = random_stream(m);
  vmp_fence fence = {UINT64_C(1) << stream, ++m->sequence};
  while (vtest_rng_chance(&m->rng, 1, 12)) fence.streams |= UINT64_C(1) << random_stream(m);  // recorded uses
  free_at(m, index, fence);
}

// A free that must be refused: inside of a live object, in the rest of a span, or of a free object.
static void free_wrongly(model *m) {
  if (m->supply.num_blocks == 0) return;
  vmp_fake_taken block = m->supply.blocks[vtest_rng_below(&m->rng, m->supply.num_blocks)];
  uint64_t offset = block.offset + vtest_rng_below(&m->rng, block.bytes);
  if (vtest_rng_chance(&m->rng, 1, 2)) offset -= (offset - block.offset) % (block.note == 0 ? CELL : block.note);
  uint64_t start = 0, bytes = 0;
  bool used = vmp_slab_find(m->slab, block.owner, offset, &start, &bytes);
  VASSERT_TRUE(used == (m->tags[(offset - BASE) / CELL] != 0));
  if (used && start == offset) return;
  bool arriving = block.note == 0;  // taken by an outer call that hasn't returned, or by one that failed to see it
  bool at_object =
      !arriving && (offset - block.offset) % block.note == 0 && offset + block.note <= block.offset + block.bytes;
  vmp_status status = vmp_slab_free(m->slab, block.owner, offset, (vmp_fence){UINT64_MAX, UINT64_MAX}, &bytes);
  VASSERT_STATUS(status, at_object ? VMP_ERROR_DOUBLE_FREE : VMP_ERROR_NOT_A_BLOCK);
}

// ---- spans ----

static void span_goes_back(void *context, const vmp_fake_taken *block, vmp_fence fence) {
  model *m = context;
  uint64_t first = (block->offset - BASE) / CELL;
  uint64_t objects_end = first + block->bytes / block->note * block->note / CELL;
  for (uint64_t c = first; c < first + block->bytes / CELL; c++) {
    if (m->tags[c] != 0) VFAIL("a span goes back with live object %u in it", m->tags[c]);
    for (uint32_t i = 0; i < m->num_streams; i++) {
      uint64_t number = m->work[c][i];
      if (c < objects_end && number > m->completed[i] && !covers(fence, i, number)) {
        VFAIL("a span goes back and forgets work %llu of stream %u", (unsigned long long)number, i);
      }
      // The rest was never used: who waits for the objects' work waits for what the span came with.
      if (c >= objects_end) m->work[c][i] = covers(fence, i, 0) ? fence.sequence : 0;
    }
  }
}

static void step(model *m);

// The lock has been let go of: another thread does something.
static void meanwhile(void *context, const vmp_fake_taken *block) {
  model *m = context;
  (void)block;
  if (m->depth > 0) return;
  m->depth++;
  for (uint64_t n = vtest_rng_below(&m->rng, 4); n > 0; n--) step(m);
  m->depth--;
}

// ---- the run ----

static void check_all(model *m) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VASSERT_UINT_EQ(vmp_slab_check(m->slab, &report), 0);
  VASSERT_NO_FAULTS(&faults);
  vmp_slab_stats stats;
  vmp_slab_get_stats(m->slab, &stats);
  VASSERT_UINT_EQ(stats.objects, m->num_live);
  VASSERT_UINT_EQ(stats.object_bytes, m->live_bytes);
  VASSERT_UINT_EQ(stats.spans, m->supply.num_blocks);
  VASSERT_UINT_EQ(stats.span_bytes, m->supply.block_bytes);
  VASSERT_UINT_EQ(stats.object_bytes + stats.free_object_bytes + stats.rest_bytes, stats.span_bytes);
  VASSERT_UINT_EQ(m->supply.errors, 0);
}

static void step(model *m) {
  uint64_t kind = vtest_rng_below(&m->rng, 10000);
  if (kind < 50) {
    complete_some(m);
  } else if (kind < 60) {
    vmp_slab_trim(m->slab);
  } else if (kind < 80) {
    m->supply.fail_takes = vtest_rng_below(&m->rng, 40);
    m->supply.fail_status = VMP_ERROR_LIMIT;
  } else if (kind < 83) {
    m->target = vtest_rng_log(&m->rng, 1, MAX_LIVE);
  } else if (kind < 600) {
    free_wrongly(m);
  } else if (vtest_rng_chance(&m->rng, m->num_live < m->target ? 7 : 3, 10)) {
    allocate(m);
  } else {
    free_one(m);
  }
}

static void finish(model *m) {
  while (m->num_live > 0) {
    free_one(m);
    VASSERT_NO_FAILURE();
  }
  vmp_slab_trim(m->slab);
  check_all(m);
  VEXPECT_UINT_EQ(m->supply.num_blocks, 0);
}

static const char *setup_name(const setup *p) { return p->name; }

VTEST_FP(SlabModel, RandomOperations, model, setup, setups, setup_name) {
  model *m = f;
  m->rng = vtest_rng_make(vtest_seed(20240601));
  m->num_streams = p->streams;
  m->max_bytes =
      p->options.class_bytes == NULL ? p->options.max_object_bytes : p->options.class_bytes[p->options.num_classes - 1];
  m->target = 1000;
  m->supply.during_take = meanwhile;
  m->supply.on_give = span_goes_back;
  m->supply.context = m;
  vmp_slab_supply supply = vmp_fake_supply_calls(&m->supply);
  VASSERT_OK(vmp_slab_create(&m->slab, vmp_fake_ops(m->clock), &supply, &p->options));
  uint64_t operations = vtest_ops(1000000);
  for (uint64_t i = 0; i < operations; i++) {
    VTRACE("operation %llu", (unsigned long long)i);
    step(m);
    if (i < 2000 || i % 1024 == 0) check_all(m);
    VASSERT_NO_FAILURE();
  }
  finish(m);
  VASSERT_NO_FAILURE();
  if (p->streams == 1) {
    VEXPECT_UINT_EQ(m->waits, 0);
  } else if (operations >= 100000) {
    VEXPECT_UINT_GT(m->waits, 0);
    VEXPECT_UINT_GT(m->failures, 0);
  }
}
