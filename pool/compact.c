// compact.c: see compact.h.
//
//     synchronise     the device, additional to the caller's promise
//     split           chunks of several granules: gain = slots that no claim touches; most gain first, then least to
//     copy mesh            chunks of one granule as bitmaps of 512-byte steps: the fullest first, each to the first
//     group
//                     whose bits it doesn't touch (first fit decreasing); groups of earlier runs take part
//
// A chunk takes part if its claims are exactly those that the inventory knows: what others have claimed stays as it is.
#include "pool/compact.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool/inventory.h"
#include "vmm/context.h"
#include "vmm/driver_error.h"
#include "vmm/memory.h"

#define STEP_LOG2 9u

typedef struct candidate {
  uint64_t offset, bytes;  // of the chunk
  uint64_t live_bytes, gain_bytes;
  size_t touched;
  uint64_t *bits;        // mesh: live steps
  bool joined;           // mesh: shared by an earlier run, or by this one
  size_t host, members;  // mesh: the group, by the index of its host; of a host, how many join it
} candidate;

typedef struct candidate_list {
  candidate *items;
  size_t count, capacity;
} candidate_list;

typedef struct search {
  vmp_pool *pool;
  vmp_compact *compact;
  vmp_inventory inventory;
  candidate_list list;
  bool mesh, failed;
} search;

static uint64_t now_us(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static uint64_t calls_made(const vmp_compact *c) {
  return c->done.calls.map + c->done.calls.set_access + c->done.calls.unmap + c->done.calls.release;
}

// within_limits says whether another change of so many calls and copied bytes may be made, and notes what forbids it.
static bool within_limits(vmp_compact *c, uint64_t calls, uint64_t copy_bytes) {
  if (now_us() >= c->deadline_us) c->beyond_time = true;
  if (c->max_calls != UINT64_MAX && calls_made(c) + calls > c->max_calls) c->beyond_calls = true;
  if (c->max_copy_bytes != UINT64_MAX && c->done.copied_bytes + copy_bytes > c->max_copy_bytes) c->beyond_copies = true;
  return !c->beyond_time && !c->beyond_calls && !c->beyond_copies;
}

// ---- candidates ----

static candidate *add_candidate(search *s) {
  candidate_list *list = &s->list;
  if (list->count == list->capacity) {
    size_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
    candidate *items = vmp_mem_resize(list->items, list->capacity, capacity, sizeof *items);
    if (items == NULL) {
      s->failed = true;
      return NULL;
    }
    list->items = items;
    list->capacity = capacity;
  }
  return &list->items[list->count++];
}

static void free_candidates(search *s) {
  for (size_t i = 0; i < s->list.count; i++) vmp_mem_free(s->list.items[i].bits);
  vmp_mem_free(s->list.items);
  s->list = (candidate_list){NULL, 0, 0};
}

static uint64_t live_in(const search *s, uint64_t offset, uint64_t bytes) {
  size_t count;
  uint64_t sum = 0;
  const vmp_live_range *live = vmp_range_list_over(&s->inventory.live, offset, bytes, &count);
  for (size_t i = 0; i < count; i++) {
    uint64_t low = live[i].offset > offset ? live[i].offset : offset, end = live[i].offset + live[i].bytes;
    sum += (end < offset + bytes ? end : offset + bytes) - low;
  }
  return sum;
}

static size_t touched_granules(const search *s, uint64_t offset, uint64_t bytes) {
  uint64_t granule = s->pool->device.granule_bytes, next = offset, end = offset + bytes;
  size_t count, touched = 0;
  const vmp_live_range *claims = vmp_range_list_over(&s->inventory.claims, offset, bytes, &count);
  for (size_t i = 0; i < count; i++) {
    uint64_t low = vmp_align_down(claims[i].offset, granule), last = claims[i].offset + claims[i].bytes - 1;
    if (low < next) low = next;
    for (; low <= last && low < end; low += granule) {
      touched++;
      next = low + granule;
    }
  }
  return touched;
}

// set_bits marks the live steps of a granule. They never end or begin inside of a step.
static void set_bits(const search *s, uint64_t offset, uint64_t *bits) {
  uint64_t granule = s->pool->device.granule_bytes;
  size_t count;
  const vmp_live_range *live = vmp_range_list_over(&s->inventory.live, offset, granule, &count);
  for (size_t i = 0; i < count; i++) {
    uint64_t low = live[i].offset > offset ? live[i].offset - offset : 0;
    uint64_t high = live[i].offset + live[i].bytes - offset;
    if (high > granule) high = granule;
    for (uint64_t step = low >> STEP_LOG2; step < (high + 511) >> STEP_LOG2; step++) {
      bits[step / 64] |= UINT64_C(1) << (step % 64);
    }
  }
}

static size_t bit_words(const search *s) { return (size_t)((s->pool->device.granule_bytes >> STEP_LOG2) + 63) / 64; }

// ours says whether a chunk may be changed: its claims are those that the inventory knows.
static bool ours(search *s, const vmp_chunk_view *view) {
  size_t claims;
  (void)vmp_range_list_over(&s->inventory.claims, view->offset, view->bytes, &claims);
  if (view->stay == VMP_STAY_NOT && claims == view->live) return true;
  if (view->stay == VMP_STAY_PINNED) {
    s->compact->pinned_bytes += view->bytes;
  } else if (view->stay != VMP_STAY_NOT_LIVE) {
    s->compact->other_bytes += view->bytes;
  }
  return false;
}

static void note_split(search *s, const vmp_chunk_view *view) {
  uint64_t granule = s->pool->device.granule_bytes;
  size_t touched = touched_granules(s, view->offset, view->bytes);
  uint64_t live = live_in(s, view->offset, view->bytes);
  // Where every slot is touched, splitting only helps meshing.
  bool for_mesh = (s->compact->allow & VMP_DEFRAGMENT_MESH) != 0 && live <= view->bytes / 2;
  if (touched * granule >= view->bytes && !for_mesh) return;
  candidate *c = add_candidate(s);
  if (c == NULL) return;
  *c = (candidate){.offset = view->offset,
                   .bytes = view->bytes,
                   .live_bytes = live,
                   .gain_bytes = view->bytes - touched * granule,
                   .touched = touched};
}

static void note_mesh(search *s, uint64_t offset, bool joined) {
  candidate *c = add_candidate(s);
  if (c == NULL) return;
  *c = (candidate){.offset = offset,
                   .bytes = s->pool->device.granule_bytes,
                   .live_bytes = live_in(s, offset, s->pool->device.granule_bytes),
                   .bits = vmp_mem_calloc(bit_words(s), sizeof(uint64_t)),
                   .joined = joined};
  if (c->bits == NULL) {
    s->failed = true;
    return;
  }
  set_bits(s, offset, c->bits);
}

static void see_mapping(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                        uint64_t live, vmp_fence fence) {
  search *s = context;
  vmp_chunk_view view;
  (void)chunk_id;
  (void)live;
  (void)fence;
  if (s->failed || strcmp(state, "live") != 0) return;
  if (!vmp_backing_view(s->pool->backing, offset, &view)) {
    // No home here: a place of a shared chunk. What an earlier run has joined may take more.
    uint64_t host;
    if (s->mesh && vmp_backing_joined_host(s->pool->backing, offset, &host)) {
      for (size_t i = 0; i < s->list.count; i++) {
        candidate *c = &s->list.items[i];
        if (!c->joined || c->offset != host) continue;
        set_bits(s, offset, c->bits);
        c->live_bytes += live_in(s, offset, bytes);
        return;
      }
      note_mesh(s, offset, true);
      if (!s->failed) s->list.items[s->list.count - 1].offset = host;
    } else if (!s->mesh) {
      s->compact->other_bytes += bytes;
    }
    return;
  }
  bool small = view.bytes == s->pool->device.granule_bytes;
  if (small != s->mesh || !ours(s, &view)) return;
  if (s->mesh) {
    note_mesh(s, view.offset, false);
  } else {
    note_split(s, &view);
  }
}

static vmp_status find_candidates(search *s) {
  vmp_inventory_free(&s->inventory);
  free_candidates(s);
  vmp_status status = vmp_inventory_take(&s->inventory, s->pool);
  if (status != VMP_OK) return status;
  vmp_backing_walk_mappings(s->pool->backing, see_mapping, s);
  if (s->failed) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to plan a compaction");
  return VMP_OK;
}

// give_back_spares returns chunks that nobody uses to the device.
static vmp_status give_back_spares(vmp_pool *pool, vmp_compact *c) {
  vmp_backing_stats stats;
  vmp_backing_get_stats(pool->backing, &stats);
  if (stats.spare_bytes == 0) return VMP_OK;
  uint64_t released = 0;
  vmp_status status = vmp_backing_give_back(pool->backing, stats.mapped_bytes, UINT64_MAX, &released, &c->done.calls);
  c->released_bytes += released;
  return status;
}

// ---- split ----

typedef struct still_context {
  const vmp_pool *pool;
  const vmp_live_range *claims;
} still_context;

static bool still_claimed(void *context, size_t index) {
  const still_context *c = context;
  return vmp_inventory_still(c->pool, &c->claims[index]);
}

// make_small maps `count` chunks of one granule at addresses of our own, where they are parked for the split to take.
static void make_small(vmp_pool *pool, size_t count) {
  uint64_t granule = pool->device.granule_bytes, offset, bytes;
  vmp_fence fence;
  (void)vmp_backing_poll(pool->backing);  // the addresses that the last ones have left
  if (vmp_buddy_take_piece(pool->buddy, (2 * count + 1) * granule, granule, false, &offset, &bytes, &fence) != VMP_OK)
    return;
  // Every second slot, so that no two of them become one chunk.
  for (size_t i = 0; i < count; i++) {
    if (vmp_backing_map_ahead(pool->backing, offset + (2 * i + 1) * granule, granule, granule) < granule) break;
  }
  vmp_buddy_free(pool->buddy, offset, fence);
}

// unchanged says whether a chunk has the claims that the inventory knows of, as far as these still exist, and no other:
// the lock was let go of since then.
static bool unchanged(const search *s, const candidate *c) {
  size_t count;
  uint32_t still = 0;
  vmp_chunk_view view;
  const vmp_live_range *claims = vmp_range_list_over(&s->inventory.claims, c->offset, c->bytes, &count);
  for (size_t i = 0; i < count; i++) still += vmp_inventory_still(s->pool, &claims[i]) ? 1 : 0;
  return vmp_backing_view(s->pool->backing, c->offset, &view) && view.stay == VMP_STAY_NOT &&
         view.offset == c->offset && view.live == still;
}

static vmp_status split_one(search *s, const candidate *c) {
  vmp_pool *pool = s->pool;
  size_t num_claims, num_live;
  const vmp_live_range *claims = vmp_range_list_over(&s->inventory.claims, c->offset, c->bytes, &num_claims);
  const vmp_live_range *live = vmp_range_list_over(&s->inventory.live, c->offset, c->bytes, &num_live);
  still_context context = {pool, claims};
  uint64_t before = s->compact->done.chunks;
  vmp_status status = VMP_OK;
  for (int attempt = 0; attempt < 2; attempt++) {
    if (!unchanged(s, c)) return VMP_OK;
    status = vmp_backing_split(pool->backing, c->offset, claims, num_claims, live, num_live, still_claimed, &context,
                               &s->compact->done);
    if (status != VMP_ERROR_OUT_OF_MEMORY || attempt > 0) break;
    make_small(pool, c->touched);
  }
  if (s->compact->done.chunks > before) {
    s->compact->split_chunks++;
    s->compact->gained_bytes += c->gain_bytes;
  }
  return status;
}

static int more_gain_first(const void *a, const void *b) {
  const candidate *left = a, *right = b;
  if (left->gain_bytes != right->gain_bytes) return left->gain_bytes > right->gain_bytes ? -1 : 1;
  return left->live_bytes < right->live_bytes ? -1 : left->live_bytes > right->live_bytes ? 1 : 0;
}

// skip: the chunk was changed by others meanwhile, or there is no room to change it; the next one may do.
static bool skip(vmp_status status) {
  return status == VMP_ERROR_BUSY || status == VMP_ERROR_OUT_OF_MEMORY || status == VMP_ERROR_LIMIT;
}

static vmp_status split_all(search *s) {
  s->mesh = false;
  vmp_status status = find_candidates(s);
  if (status != VMP_OK) return status;
  if (s->list.count > 1) qsort(s->list.items, s->list.count, sizeof(candidate), more_gain_first);
  for (size_t i = 0; i < s->list.count && status == VMP_OK; i++) {
    const candidate *c = &s->list.items[i];
    if (!within_limits(s->compact, 5 * (uint64_t)c->touched + 3, c->live_bytes)) break;
    if (s->compact->dry) {
      s->compact->split_chunks++;
      s->compact->gained_bytes += c->gain_bytes;
      s->compact->done.copied_bytes += c->live_bytes;
      continue;
    }
    status = split_one(s, c);
    if (skip(status)) status = VMP_OK;
    if (status == VMP_OK) status = give_back_spares(s->pool, s->compact);
  }
  return status;
}

// ---- mesh ----

static int fuller_first(const void *a, const void *b) {
  const candidate *left = a, *right = b;
  if (left->joined != right->joined) return left->joined ? -1 : 1;  // nothing needs copying of what is a host already
  if (left->live_bytes != right->live_bytes) return left->live_bytes > right->live_bytes ? -1 : 1;
  return left->offset < right->offset ? -1 : left->offset > right->offset ? 1 : 0;
}

static bool disjoint(const uint64_t *a, const uint64_t *b, size_t words) {
  for (size_t i = 0; i < words; i++) {
    if ((a[i] & b[i]) != 0) return false;
  }
  return true;
}

// seal keeps a granule from taking new blocks, or lets it take some again: its chunk, and the spans in it.
static void seal(search *s, const candidate *c, bool closed) {
  size_t count;
  const vmp_live_range *claims = vmp_range_list_over(&s->inventory.claims, c->offset, c->bytes, &count);
  if (!c->joined) vmp_backing_seal(s->pool->backing, c->offset, closed);
  for (size_t i = 0; i < count; i++) {
    void *span = NULL;
    const vmp_mid *mid = vmp_route_mid_of(s->pool, claims[i].offset);
    if (mid == NULL || !vmp_inventory_still(s->pool, &claims[i])) continue;
    if (vmp_mid_find(mid, claims[i].offset, NULL, NULL, &span) && span != NULL) {
      vmp_slab_seal(s->pool->slab, span, closed);
    }
  }
}

// plan_mesh sorts the candidates into groups: items[i].host says whose. Nothing lets go of the lock.
static void plan_mesh(search *s) {
  candidate *items = s->list.items;
  size_t count = s->list.count, words = bit_words(s);
  if (count > 1) qsort(items, count, sizeof(candidate), fuller_first);
  for (size_t i = 0; i < count; i++) {
    items[i].host = i;
    if (items[i].live_bytes >= items[i].bytes || items[i].joined) continue;
    for (size_t g = 0; g < i; g++) {
      if (items[g].host != g || !disjoint(items[g].bits, items[i].bits, words)) continue;
      items[i].host = g;
      items[g].members++;
      for (size_t w = 0; w < words; w++) items[g].bits[w] |= items[i].bits[w];
      break;
    }
  }
}

static vmp_status join_one(search *s, candidate *host, const candidate *c) {
  size_t num_live;
  const vmp_live_range *live = vmp_range_list_over(&s->inventory.live, c->offset, c->bytes, &num_live);
  uint64_t before = s->compact->done.chunks;
  vmp_status status = VMP_OK;
  if (!s->compact->dry) {
    status = vmp_backing_join(s->pool->backing, host->offset, c->offset, live, num_live, &s->compact->done);
    if (s->compact->done.chunks == before) return status;
  } else {
    s->compact->done.copied_bytes += c->live_bytes;
  }
  s->compact->meshed_chunks++;
  s->compact->gained_bytes += c->bytes;
  host->joined = true;
  return status;
}

static vmp_status join_all(search *s) {
  candidate *items = s->list.items;
  vmp_status status = VMP_OK;
  for (size_t i = 0; i < s->list.count; i++) {
    candidate *c = &items[i];
    if (c->host == i) continue;
    bool may = status == VMP_OK && within_limits(s->compact, 5, c->live_bytes);
    uint64_t before = s->compact->meshed_chunks;
    vmp_status joined = may ? join_one(s, &items[c->host], c) : VMP_ERROR_BUSY;
    if (!skip(joined) && status == VMP_OK) status = joined;
    if (s->compact->meshed_chunks == before && !s->compact->dry) seal(s, c, false);
  }
  for (size_t i = 0; i < s->list.count && !s->compact->dry; i++) {
    if (items[i].members > 0 && !items[i].joined) seal(s, &items[i], false);  // nobody joined it
  }
  return status;
}

// mesh_all plans all of it before anything lets go of the lock, and seals what takes part: what is live there can only
// become less.
static vmp_status mesh_all(search *s) {
  s->mesh = true;
  vmp_status status = find_candidates(s);
  if (status != VMP_OK) return status;
  plan_mesh(s);
  for (size_t i = 0; i < s->list.count && !s->compact->dry; i++) {
    const candidate *c = &s->list.items[i];
    if (c->host != i || c->members > 0) seal(s, c, true);
  }
  return join_all(s);
}

// ---- the run ----

// synchronise waits for all work of the device, without the lock.
static vmp_status synchronise(vmp_pool *pool) {
  vmp_context_saved saved;
  vmp_guard_unlock(&pool->guard);
  vmp_status status = vmp_context_enter(pool->driver, pool->context, &saved);
  if (status == VMP_OK) {
    int code = vmp_drv_ctx_synchronize(pool->driver);
    (void)vmp_context_leave(pool->driver, &saved);
    if (code != 0) {
      status = vmp_driver_fail(pool->driver, VMP_CALL_ctx_synchronize, code,
                               "compaction waits for the device before it copies");
    }
  }
  vmp_guard_lock(&pool->guard);
  return status;
}

vmp_status vmp_compact_run(vmp_pool *pool, vmp_compact *compact) {
  search s = {.pool = pool, .compact = compact, .inventory = {.pool = pool}};
  vmp_pool_bypass_caches(pool, 1);  // an object that a thread keeps isn't live, and must not become so unseen
  if (pool->slab != NULL) vmp_slab_trim(pool->slab);
  vmp_status status = compact->dry ? VMP_OK : synchronise(pool);
  if (status == VMP_OK && !compact->dry) (void)vmp_backing_poll(pool->backing);
  if (status == VMP_OK && (compact->allow & VMP_DEFRAGMENT_SPLIT) != 0) status = split_all(&s);
  if (status == VMP_OK && !compact->dry) (void)vmp_backing_poll(pool->backing);
  if (status == VMP_OK && (compact->allow & VMP_DEFRAGMENT_MESH) != 0) status = mesh_all(&s);
  vmp_error error = *vmp_last_error();
  if (!compact->dry) {
    (void)vmp_backing_poll(pool->backing);
    vmp_status given = give_back_spares(pool, compact);
    if (status == VMP_OK) {
      status = given;
    } else {
      vmp_restore_error(&error);
    }
  }
  free_candidates(&s);
  vmp_inventory_free(&s.inventory);
  vmp_pool_bypass_caches(pool, -1);
  return status;
}
