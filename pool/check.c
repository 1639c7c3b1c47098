// check.c: every invariant of the pool and its layers, in one pass. See pool.h.
#include <inttypes.h>
#include <stdio.h>

#include "pool/pool.h"

typedef struct block_sums {
  vmp_pool *pool;
  vmp_report *report;
  uint64_t bytes[VMP_NUM_LAYERS], blocks, requested, with_streams;
} block_sums;

static void check_block(void *context, uint64_t offset, uint64_t word) {
  block_sums *sums = context;
  vmp_found found;
  if (!vmp_route_find(sums->pool, offset, &found) || found.offset != offset) {
    vmp_report_fault(sums->report, "pool: the live block at offset %" PRIu64 " is used in no layer", offset);
    return;
  }
  if (found.layer != vmp_block_layer(word)) {
    vmp_report_fault(sums->report, "pool: the block at offset %" PRIu64 " is %s's, not %s's", offset,
                     vmp_layer_name(found.layer), vmp_layer_name(vmp_block_layer(word)));
    return;
  }
  if (vmp_block_slack(word) >= found.bytes) {
    vmp_report_fault(sums->report, "pool: the block at offset %" PRIu64 " has %" PRIu64 " bytes and as many unused",
                     offset, found.bytes);
  }
  bool labelled = vmp_offset_map_find(&sums->pool->tags.labels, offset) != NULL;
  if (labelled != vmp_block_is_labelled(word)) {
    vmp_report_fault(sums->report, "pool: the block at offset %" PRIu64 " and the table of labels disagree", offset);
  }
  bool recorded = vmp_offset_map_find(&sums->pool->streams, offset) != NULL;
  if (recorded != vmp_block_has_streams(word)) {
    vmp_report_fault(sums->report, "pool: the block at offset %" PRIu64 " and the table of recorded streams disagree",
                     offset);
  }
  if (!vmp_space_was_handed(sums->pool, offset)) {
    vmp_report_fault(sums->report, "pool: the block at offset %" PRIu64 " is not marked as handed out", offset);
  }
  sums->blocks++;
  sums->bytes[found.layer] += found.bytes;
  sums->requested += found.bytes - vmp_block_slack(word);
  sums->with_streams += recorded ? 1 : 0;
}

static void expect(vmp_report *report, const char *what, uint64_t actual, uint64_t expected) {
  if (actual == expected) return;
  vmp_report_fault(report, "pool: %s is %" PRIu64 "; it must be %" PRIu64, what, actual, expected);
}

static void check_books(vmp_pool *pool, vmp_report *report) {
  block_sums sums = {.pool = pool, .report = report};
  vmp_books_walk(pool, check_block, &sums);
  expect(report, "slab_live", pool->live_bytes[VMP_LAYER_SLAB], sums.bytes[VMP_LAYER_SLAB]);
  expect(report, "mid_live", pool->live_bytes[VMP_LAYER_MID], sums.bytes[VMP_LAYER_MID]);
  expect(report, "buddy_live", pool->live_bytes[VMP_LAYER_BUDDY], sums.bytes[VMP_LAYER_BUDDY]);
  expect(report, "requested", pool->requested_bytes, sums.requested);
  expect(report, "the number of blocks with recorded streams", pool->streams.entries, sums.with_streams);
  expect(report, "the number of live blocks", sums.blocks, vmp_pool_num_blocks(pool));
  if (pool->peak_live_bytes < vmp_pool_live_bytes(pool) ||
      pool->peak_requested_bytes < vmp_pool_requested_bytes(pool)) {
    vmp_report_fault(report, "pool: a peak is below the current value");
  }
  if (pool->step_live_bytes < vmp_pool_live_bytes(pool) ||
      pool->max_step_peak_live_bytes < pool->step_peak_live_bytes) {
    vmp_report_fault(report, "pool: the high-water mark of a step is below what it is the highest of");
  }
}

// check_layers compares the books with what the layers say is used. While a thread is placing a block without the
// lock, the layers know more than the books.
typedef struct used_sums {
  uint64_t slab_bytes, mid_bytes, arena_bytes;
} used_sums;

// add_used adds what a mid (NULL: there is none) and the slab above it say.
static void add_used(used_sums *used, vmp_mid *mid_layer, const vmp_slab *slab_layer) {
  vmp_mid_stats mid = {0};
  vmp_slab_stats slab = {0};
  if (mid_layer != NULL) vmp_mid_get_stats(mid_layer, &mid);
  if (slab_layer != NULL) vmp_slab_get_stats(slab_layer, &slab);
  used->slab_bytes += slab.object_bytes;
  used->mid_bytes += mid.block_bytes - slab.span_bytes;
  used->arena_bytes += mid.arena_bytes;
}

static void check_layers(vmp_pool *pool, vmp_report *report) {
  used_sums used = {0, 0, 0};
  vmp_buddy_stats buddy;
  add_used(&used, pool->mid, pool->slab);
  add_used(&used, pool->span_mid, NULL);
  uint64_t piece_bytes =
      used.arena_bytes + pool->first_arena_bytes + pool->regions.piece_bytes + pool->debug.guarded_piece_bytes;
  for (vmp_domain *domain = pool->tags.domains; domain != NULL; domain = domain->next) {
    uint64_t own_bytes = used.arena_bytes;
    add_used(&used, domain->mid, domain->slab);
    own_bytes = used.arena_bytes - own_bytes;
    piece_bytes += domain->piece_bytes;
    if (domain->piece_bytes < own_bytes) expect(report, "a domain's addresses", domain->piece_bytes, own_bytes);
  }
  vmp_buddy_get_stats(pool->buddy, &buddy);
  if (pool->placing > 0) return;
  const uint64_t *live = pool->live_bytes, *unsettled = pool->unsettled_bytes, *kept = pool->captures.kept_bytes;
  const uint64_t *quarantined = pool->debug.held_bytes;
  expect(report, "slab's used bytes", used.slab_bytes,
         live[VMP_LAYER_SLAB] + unsettled[VMP_LAYER_SLAB] + kept[VMP_LAYER_SLAB] + quarantined[VMP_LAYER_SLAB] +
             vmp_caches_bytes(pool));
  expect(report, "mid's used bytes without spans", used.mid_bytes,
         live[VMP_LAYER_MID] + unsettled[VMP_LAYER_MID] + kept[VMP_LAYER_MID] + quarantined[VMP_LAYER_MID] +
             pool->asides.bytes);
  expect(report, "buddy's used bytes", buddy.block_bytes + pool->debug.guarded_bytes,
         live[VMP_LAYER_BUDDY] + unsettled[VMP_LAYER_BUDDY] + kept[VMP_LAYER_BUDDY] + quarantined[VMP_LAYER_BUDDY]);
  expect(report, "buddy's bytes in pieces", buddy.piece_bytes, piece_bytes);
}

static void check_tally(const vmp_pool *pool, vmp_report *report) {
  const vmp_tally *t = &pool->tally;
  uint64_t allocs = 0, frees = 0;
  for (unsigned i = 0; i < VMP_TALLY_STREAMS; i++) {
    allocs += t->stream_allocs[i];
    frees += t->stream_frees[i];
  }
  expect(report, "the number of allocations on all streams", allocs, pool->allocs);
  expect(report, "the number of frees on all streams", frees, pool->frees);
  for (unsigned layer = VMP_LAYER_MID; layer < VMP_NUM_LAYERS; layer++) {
    if (t->frees[layer] > t->allocs[layer] || t->allocs[layer] > pool->allocs) {
      vmp_report_fault(report, "pool: layer %u has %" PRIu64 " allocations and %" PRIu64 " frees, the pool %" PRIu64,
                       layer, t->allocs[layer], t->frees[layer], pool->allocs);
    }
    if (t->peak_bytes[layer] < pool->live_bytes[layer]) {
      vmp_report_fault(report, "pool: the peak of layer %u is below what it has live", layer);
    }
  }
}

static void check_limits(vmp_pool *pool, vmp_report *report) {
  uint64_t held = vmp_limits_held(pool);
  if (held > pool->config.hard_limit && !pool->over_limit) {
    vmp_report_fault(report, "pool: %" PRIu64 " bytes are held, beyond the hard limit of %" PRIu64, held,
                     pool->config.hard_limit);
  }
}

// published: what check_published has seen.
typedef struct published {
  const vmp_pool *pool;
  vmp_report *report;
  uint64_t pages;
} published;

static void see_published(void *context, uint64_t offset, uint64_t address, uint64_t bytes, uint32_t line) {
  published *seen = context;
  seen->pages += bytes >> VMP_SPAN_PAGE_LOG2;
  if (address == vmp_backing_address(seen->pool->backing, offset) &&
      vmp_span_map_names(&seen->pool->span_map, address, bytes, line)) {
    return;
  }
  vmp_report_fault(seen->report, "pool: the span at 0x%" PRIx64 " isn't what the span map says of its pages", address);
}

// check_published: the span map and slab know the same spans.
static void check_published(const vmp_pool *pool, vmp_report *report) {
  published seen = {.pool = pool, .report = report};
  if (pool->slab != NULL) vmp_slab_walk_published(pool->slab, see_published, &seen);
  expect(report, "the number of pages in the span map", pool->span_map.num_pages, seen.pages);
}

size_t vmp_check_all(vmp_pool *pool, vmp_report *report) {
  size_t before = report->faults;
  vmp_caches_stop(pool);  // before they are folded: what a hit counted in between would be missing
  vmp_caches_fold(pool);
  (void)vmp_caches_check(pool, report);
  (void)vmp_backing_check(pool->backing, report);
  (void)vmp_buddy_check(pool->buddy, report);
  (void)vmp_mid_check(pool->mid, report);
  if (pool->span_mid != NULL) (void)vmp_mid_check(pool->span_mid, report);
  if (pool->slab != NULL) (void)vmp_slab_check(pool->slab, report);
  (void)vmp_offset_map_check(&pool->blocks, "blocks", report);
  (void)vmp_offset_map_check(&pool->streams, "streams", report);
  (void)vmp_span_map_check(&pool->span_map, report);
  check_published(pool, report);
  vmp_tags_check(pool, report);
  vmp_pins_check(pool, report);
  vmp_captures_check(pool, report);
  check_tally(pool, report);
  vmp_debug_check(pool, report);
  (void)vmp_offset_map_check(&pool->debug.guarded, "guarded", report);
  (void)vmp_histogram_check(&pool->histogram, report);
  vmp_asides_check(pool, report);
  check_books(pool, report);
  check_layers(pool, report);
  vmp_regions_check(pool, report);
  check_limits(pool, report);
  vmp_caches_go(pool);
  return report->faults - before;
}

// first_sentence keeps the first fault's sentence for the message.
typedef struct first_sentence {
  char text[256];
} first_sentence;

static void keep_first(void *context, const char *sentence) {
  first_sentence *first = context;
  if (first->text[0] == '\0') (void)snprintf(first->text, sizeof first->text, "%s", sentence);
}

vmp_status vmp_pool_check(vmp_pool *pool, size_t *out_faults) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  first_sentence first = {{0}};
  vmp_report report = {.write = keep_first, .context = &first};
  vmp_guard_lock(&pool->guard);
  size_t faults = vmp_check_all(pool, &report);
  vmp_guard_unlock(&pool->guard);
  faults += vmp_clock_check(pool->clock, &report);
  if (out_faults != NULL) *out_faults = faults;
  if (faults == 0) return VMP_OK;
  return vmp_fail(VMP_ERROR_CORRUPT, "%zu invariants are broken; the first: %s", faults, first.text);
}
