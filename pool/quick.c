// quick.c: see quick.h.
#include "pool/quick.h"

#include "pool/log.h"
#include "pool/mid_quick.h"

void vmp_quick_open(vmp_pool *pool) {
  const vmp_config *config = &pool->config;
  bool plain = pool->slab != NULL && config->classes.count == 0 && config->adaptive == 0 && !config->guard_slots &&
               config->poison == 0 && config->quarantine == 0 && !config->edges && config->park_limit >= 1;
  uint64_t end = config->buddy_from < VMP_OWN_CHUNKS_FROM_BYTES ? config->buddy_from : VMP_OWN_CHUNKS_FROM_BYTES;
  pool->quick_from_bytes = config->slab_max + 1;
  pool->sole_lanes = vmp_clock_sole_lanes(pool->clock);
  pool->quick_bytes = plain && end > pool->quick_from_bytes ? end - pool->quick_from_bytes : 0;
}

// is_open: the cache is this pool's, in this process, so that the pool's lock may lean to its seat. Under the lock
// may_serve looks again.
static inline bool is_open(const vmp_pool *pool, const vmp_cache *cache) {
  return vmp_cache_is_open(cache) && !vmp_guard_forked(&pool->guard);
}

// may_serve: nobody has to see every block (whoever does has closed the gates), and no graph holds any. Under the lock.
static inline bool may_serve(const vmp_pool *pool, const vmp_cache *cache) {
  return vmp_cache_is_open(cache) && pool->captures.graphs == NULL;
}

// settle_peaks: what the thread's hits have had live at most since this was last asked, beside what else is live (and
// `more_bytes` of it, `more_requested_bytes` requested), is no new peak. False: it may be one.
static inline bool settle_peaks(const vmp_pool *pool, vmp_cache *cache, uint64_t more_bytes,
                                uint64_t more_requested_bytes) {
  vmp_cache_read_words(cache);
  int64_t most = cache->max_live_bytes;
  int64_t live = (int64_t)(vmp_pool_counted_live_bytes(pool) + more_bytes) + most;
  int64_t requested =
      (int64_t)(vmp_pool_counted_requested_bytes(pool) + more_requested_bytes) + cache->max_requested_bytes;
  if (live > (int64_t)pool->peak_live_bytes || live > (int64_t)pool->step_live_bytes ||
      requested > (int64_t)pool->peak_requested_bytes ||
      (int64_t)pool->live_bytes[VMP_LAYER_SLAB] + most > (int64_t)pool->tally.peak_bytes[VMP_LAYER_SLAB]) {
    return false;
  }
  cache->max_live_bytes = cache->live_bytes;
  cache->max_requested_bytes = cache->requested_bytes;
  return true;
}

static inline void count_alloc(vmp_pool *pool, vmp_cache *cache, uint64_t bytes, uint64_t held_bytes) {
  uint64_t mid_live = pool->live_bytes[VMP_LAYER_MID] + held_bytes;
  bool peak = !settle_peaks(pool, cache, held_bytes, bytes);
  if (peak) vmp_cache_fold_own(pool, cache->stream);
  pool->live_bytes[VMP_LAYER_MID] = mid_live;
  pool->requested_bytes += bytes;
  pool->allocs++;
  vmp_tally_alloc(&pool->tally, VMP_LAYER_MID, cache->lane, mid_live);
  if (peak) vmp_alloc_raise_peaks(pool);
}

// Nearly every block lies in the first reservation.
static inline uint64_t address_of(const vmp_pool *pool, uint64_t offset) {
  const vmp_reservation *first = &pool->reservations[0];
  if (offset - first->offset < first->bytes) return first->address + (offset - first->offset);
  return vmp_backing_address(pool->backing, offset);
}
static inline bool offset_of(const vmp_pool *pool, uint64_t address, uint64_t *out_offset) {
  const vmp_reservation *first = &pool->reservations[0];
  *out_offset = first->offset + (address - first->address);
  return address - first->address < first->bytes || vmp_backing_offset(pool->backing, address, out_offset);
}
static inline void mark_handed(vmp_pool *pool, uint64_t offset) {
  const vmp_reservation *first = &pool->reservations[0];
  uint64_t slot = (offset - first->offset) >> pool->granule_log2;
  if (offset - first->offset < first->bytes) {
    first->handed[slot / 64] |= UINT64_C(1) << (slot % 64);
  } else {
    vmp_space_mark_handed(pool, offset);
  }
}

// Streams of a fence that the cache's own stream needs no wait for: itself, where no other stream has its index.
static inline uint64_t own_streams(const vmp_pool *pool, const vmp_cache *cache) {
  return (UINT64_C(1) << cache->lane) & atomic_load_explicit(pool->sole_lanes, memory_order_relaxed);
}

// alloc_locked returns the block's address, 0 where it isn't served.
static inline uint64_t alloc_locked(vmp_pool *pool, vmp_cache *cache, uint64_t bytes) {
  uint64_t held_bytes = (bytes + VMP_MID_STEP_BYTES - 1) & ~(VMP_MID_STEP_BYTES - 1);
  if (!may_serve(pool, cache)) return 0;
  vmp_mid_piece *piece = mid_quick_alloc(pool->mid, held_bytes, cache->lane, own_streams(pool, cache));
  if (piece == NULL) return 0;
  uint64_t offset = piece->offset;
  piece->word = vmp_block_on(vmp_block_word(VMP_LAYER_MID, held_bytes - bytes), cache->lane);
  mark_handed(pool, offset);
  count_alloc(pool, cache, bytes, held_bytes);
  vmp_histogram_note(&pool->histogram, bytes, 1);
  return address_of(pool, offset);
}

// refill_locked serves a request of slab's. False: it isn't served.
static inline bool refill_locked(vmp_pool *pool, vmp_cache *cache, uint64_t bytes, void **out_ptr) {
  uint64_t offset;
  if (!may_serve(pool, cache) || !vmp_cache_serve_miss(pool, cache, bytes, out_ptr)) return false;
  if (offset_of(pool, (uintptr_t)*out_ptr, &offset)) mark_handed(pool, offset);
  return true;
}

// alloc_small is for what no magazine had, apart from what is far more frequent.
__attribute__((noinline)) static vmp_status alloc_small(vmp_pool *pool, void **out_ptr, size_t bytes,
                                                        vmp_stream stream) {
  vmp_cache *cache = vmp_cache_last.cache;
  if (vmp_cache_is_last(pool, stream) && out_ptr != NULL && pool->quick_bytes != 0 && is_open(pool, cache)) {
    bool leans = vmp_guard_enter(&pool->guard, &cache->seat);
    bool served = refill_locked(pool, cache, bytes, out_ptr);
    vmp_guard_leave(&pool->guard, &cache->seat, leans);
    if (served) return VMP_OK;
  }
  return vmp_alloc_missed(pool, out_ptr, bytes, stream);
}

vmp_status vmp_quick_alloc(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream) {
  vmp_cache *cache = vmp_cache_last.cache;
  if (vmp_cache_is_last(pool, stream) && out_ptr != NULL && vmp_quick_serves(pool, bytes) && is_open(pool, cache)) {
    bool leans = vmp_guard_enter(&pool->guard, &cache->seat);
    uint64_t address = alloc_locked(pool, cache, bytes);
    vmp_guard_leave(&pool->guard, &cache->seat, leans);
    if (address != 0) {
      *out_ptr = (void *)(uintptr_t)address;
      return VMP_OK;
    }
  } else if (bytes <= VMP_CACHE_MAX_BYTES) {
    return alloc_small(pool, out_ptr, bytes, stream);
  }
  return vmp_alloc_missed(pool, out_ptr, bytes, stream);
}

static inline bool free_locked(vmp_pool *pool, vmp_cache *cache, const void *ptr) {
  uint64_t offset;
  mid_quick_block block;
  if (!may_serve(pool, cache) || !offset_of(pool, (uintptr_t)ptr, &offset)) return false;
  if (!mid_quick_find(pool->mid, offset, &block)) return false;
  uint64_t word = block.piece->word;
  if ((uint8_t)word != (uint8_t)vmp_block_word(VMP_LAYER_MID, 0)) return false;  // not live, or not only that
  uint64_t held_bytes = mid_quick_free(pool->mid, &block, vmp_clock_fence(pool->clock, cache->lane));
  if (!settle_peaks(pool, cache, 0, 0)) vmp_cache_fold_own(pool, cache->stream);
  pool->live_bytes[VMP_LAYER_MID] -= held_bytes;
  pool->requested_bytes -= held_bytes - vmp_block_slack(word);
  pool->frees++;
  vmp_tally_free(&pool->tally, VMP_LAYER_MID, cache->lane);
  return true;
}

vmp_status vmp_quick_free(vmp_pool *pool, void *ptr, vmp_stream stream, const vmp_span_entry *at) {
  vmp_cache *cache = vmp_cache_last.cache;
  if (atomic_load_explicit(at, memory_order_relaxed) == 0 && ptr != NULL && pool->quick_bytes != 0 &&
      is_open(pool, cache)) {
    bool leans = vmp_guard_enter(&pool->guard, &cache->seat);
    bool served = free_locked(pool, cache, ptr);
    vmp_guard_leave(&pool->guard, &cache->seat, leans);
    if (served) {
      vmp_clock_mark_new(pool->clock);
      return VMP_OK;
    }
  }
  return vmp_free_missed(pool, ptr, stream, at);
}
