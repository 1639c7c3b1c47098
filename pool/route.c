// route.c: which layer serves a request, and the layers behind one door. See pool.h.
//
//     a size class holds it and keeps the alignment        slab    (up to slab_max, and the user's classes)
//     bytes >= buddy_from                                  buddy   (whole slots)
//     else                                                 mid     (steps of 512)
#include "pool/fresh_place.h"
#include "pool/pool.h"

const char *vmp_layer_name(vmp_layer layer) {
  static const char *const names[VMP_NUM_LAYERS] = {"slab", "mid", "buddy"};
  return names[layer];
}

bool vmp_route_plan(const vmp_pool *pool, uint64_t bytes, uint64_t alignment, vmp_plan *out_plan) {
  vmp_plan plan = {.requested_bytes = bytes,
                   .alignment = alignment,
                   .adoptions = pool->slab == NULL ? 0 : vmp_slab_adoptions(pool->slab),
                   .request.alignment = alignment,
                   .request.effort = VMP_EFFORT_NORMAL};
  uint64_t class_bytes = pool->slab == NULL ? 0 : vmp_slab_class_bytes(pool->slab, bytes, alignment);
  if (class_bytes != 0) {
    plan.layer = VMP_LAYER_SLAB;
    plan.request.bytes = class_bytes;
  } else if (bytes >= pool->config.buddy_from) {
    plan.layer = VMP_LAYER_BUDDY;
    if (!vmp_align_up(bytes, pool->device.granule_bytes, &plan.request.bytes)) return false;
    if (plan.request.alignment < pool->device.granule_bytes) plan.request.alignment = pool->device.granule_bytes;
  } else {
    plan.layer = VMP_LAYER_MID;
    if (!vmp_align_up(bytes, VMP_MID_STEP_BYTES, &plan.request.bytes)) return false;
    if (bytes >= VMP_OWN_CHUNKS_FROM_BYTES && plan.request.alignment < pool->device.granule_bytes) {
      plan.request.alignment = pool->device.granule_bytes;
    }
  }
  if (pool->config.guard_slots && plan.layer == VMP_LAYER_MID) {
    plan.layer = VMP_LAYER_BUDDY;
    if (!vmp_align_up(bytes, pool->device.granule_bytes, &plan.request.bytes)) return false;
  }
  *out_plan = plan;
  return true;
}

void vmp_route_into(vmp_plan *plan, vmp_domain *domain) {
  plan->domain = domain;
  uint64_t class_bytes = 0;
  if (domain->slab != NULL) {
    class_bytes = vmp_slab_class_bytes(domain->slab, plan->requested_bytes, plan->request.alignment);
  }
  if (class_bytes != 0) {
    plan->layer = VMP_LAYER_SLAB;
    plan->request.bytes = class_bytes;
  } else if (plan->layer != VMP_LAYER_MID) {  // whole slots, as they were, or a class's size
    plan->layer = VMP_LAYER_MID;
  }
}

// place_claim: the fence goes to the claim, not to the placed block: what cross_stream:complete holds back are blocks.
static vmp_status place_claim(vmp_pool *pool, const vmp_plan *plan, vmp_placed *out_placed) {
  const vmp_request *request = &plan->request;
  *out_placed = (vmp_placed){.bytes = 0};
  return pool->ops.claim(pool->ops.self, plan->claim->offset, plan->claim->bytes, request->stream, request->effort,
                         &plan->claim->fence);
}

vmp_status vmp_route_place(vmp_pool *pool, const vmp_plan *plan, vmp_placed *out_placed) {
  if (plan->claim != NULL) return place_claim(pool, plan, out_placed);
  if (plan->pages != NULL) {
    *out_placed = (vmp_placed){.bytes = 0};
    return vmp_region_place(pool, plan->pages, plan->request.effort);
  }
  vmp_slab *slab = plan->domain == NULL ? pool->slab : plan->domain->slab;
  vmp_mid *mid = plan->domain == NULL ? pool->mid : plan->domain->mid;
  switch (plan->layer) {
    case VMP_LAYER_SLAB: return vmp_slab_alloc(slab, &plan->request, out_placed);
    case VMP_LAYER_MID: return vmp_mid_alloc(mid, &plan->request, NULL, out_placed);
    case VMP_LAYER_BUDDY:
    case VMP_NUM_LAYERS: break;
  }
  if (pool->config.guard_slots) return vmp_debug_place(pool, plan, out_placed);
  return vmp_buddy_alloc(pool->buddy, &plan->request, out_placed);
}

bool vmp_route_look(const vmp_pool *pool, uint64_t bytes, uint64_t *out_offset, vmp_cost *out_cost) {
  vmp_plan plan;
  if (!vmp_route_plan(pool, bytes, VMP_STEP_BYTES, &plan)) return false;
  if (plan.layer == VMP_LAYER_BUDDY) return vmp_buddy_look(pool->buddy, &plan.request, out_offset, out_cost);
  return vmp_mid_look(pool->mid, &plan.request, out_offset, out_cost);
}

// span_of: the span that holds an offset of a slab block.
static vmp_span *span_of(const vmp_mid *mid, uint64_t offset) {
  uint64_t start, bytes;
  void *owner = NULL;
  return vmp_mid_find(mid, offset, &start, &bytes, &owner) ? owner : NULL;
}

// layers: the mid and slab that an offset belongs to, if it isn't buddy's.
typedef struct layers {
  vmp_mid *mid;
  vmp_slab *slab;
} layers;

static layers layers_of(const vmp_pool *pool, uint64_t offset) {
  if (pool->span_mid != NULL && vmp_mid_owns(pool->span_mid, offset)) return (layers){pool->span_mid, pool->slab};
  const vmp_domain *domain = pool->tags.domains == NULL ? NULL : vmp_domain_of(pool, offset);
  return domain == NULL ? (layers){pool->mid, pool->slab} : (layers){domain->mid, domain->slab};
}

const vmp_mid *vmp_route_mid_of(const vmp_pool *pool, uint64_t offset) {
  if (vmp_mid_owns(pool->mid, offset)) return pool->mid;
  return pool->span_mid != NULL && vmp_mid_owns(pool->span_mid, offset) ? pool->span_mid : NULL;
}

uint64_t vmp_route_release(vmp_pool *pool, vmp_layer layer, uint64_t offset, vmp_fence fence) {
  uint64_t bytes = 0;
  if (layer == VMP_LAYER_BUDDY) {
    if (pool->config.guard_slots && vmp_debug_release(pool, offset, fence, &bytes)) return bytes;
    (void)vmp_buddy_find(pool->buddy, offset, NULL, &bytes, NULL);
    vmp_buddy_free(pool->buddy, offset, fence);
    return bytes;
  }
  layers at = layers_of(pool, offset);
  if (layer == VMP_LAYER_MID) return vmp_mid_free(at.mid, offset, fence);
  (void)vmp_slab_free(at.slab, span_of(at.mid, offset), offset, fence, &bytes);
  return bytes;
}

vmp_route_word vmp_route_word_of(const vmp_pool *pool, uint64_t offset) {
  vmp_route_word found = {.mid = NULL};
  layers at = layers_of(pool, offset);
  uint64_t start = 0;
  void *owner = NULL;
  uint64_t *word = vmp_mid_word(at.mid, offset, &start, &owner);
  if (word != NULL && start == offset) found.mid = word;
  if (owner != NULL && at.slab != NULL) (void)vmp_slab_word_of(at.slab, owner, offset, &found.object);
  return found;
}

bool vmp_route_find(const vmp_pool *pool, uint64_t offset, vmp_found *out_found) {
  vmp_found found;
  void *owner = NULL;
  layers at = layers_of(pool, offset);
  if (vmp_mid_owns(at.mid, offset)) {
    if (!vmp_mid_find(at.mid, offset, &found.offset, &found.bytes, &owner)) return false;
    found.layer = VMP_LAYER_MID;
    if (owner != NULL) {
      found.layer = VMP_LAYER_SLAB;
      if (!vmp_slab_find(at.slab, owner, offset, &found.offset, &found.bytes)) return false;
    }
    *out_found = found;
    return true;
  }
  bool piece;
  if (!vmp_buddy_find(pool->buddy, offset, &found.offset, &found.bytes, &piece)) return false;
  if (piece) return vmp_debug_find(pool, found.offset, found.bytes, offset, out_found);
  found.layer = VMP_LAYER_BUDDY;
  *out_found = found;
  return true;
}

bool vmp_route_is_free_start(const vmp_pool *pool, uint64_t offset) {
  if (offset % VMP_STEP_BYTES != 0) return false;
  layers at = layers_of(pool, offset);
  vmp_span *span = vmp_mid_owns(at.mid, offset) ? span_of(at.mid, offset) : NULL;
  vmp_slab_word word;
  return span == NULL || vmp_slab_word_of(at.slab, span, offset, &word);
}

void vmp_route_walk_span(const vmp_pool *pool, uint64_t offset, vmp_walk_fn fn, void *context) {
  layers at = layers_of(pool, offset);
  const vmp_span *span = vmp_mid_owns(at.mid, offset) ? span_of(at.mid, offset) : NULL;
  if (span != NULL) vmp_slab_walk_span(at.slab, span, fn, context);
}

// ---- wiring ----

static vmp_status take_arena(void *self, uint64_t bytes, uint64_t alignment, uint64_t *out_offset, uint64_t *out_bytes,
                             vmp_fence *out_fence) {
  return vmp_space_take_arena(self, bytes, alignment, out_offset, out_bytes, out_fence);
}

static void give_arena(void *self, uint64_t offset, vmp_fence fence) { vmp_space_give_arena(self, offset, fence); }

vmp_mid_supply vmp_route_mid_supply(vmp_pool *pool) {
  vmp_mid_supply supply = {pool, take_arena, give_arena};
  return supply;
}

// may_be_between: a span may be had between large blocks, although not in arenas of its own: for want of memory, of a
// place, or of addresses for another arena.
static bool may_be_between(vmp_status status) {
  return vmp_may_be_had_elsewhere(status) || status == VMP_ERROR_OUT_OF_ADDRESS_SPACE;
}

static vmp_status take_span(void *self, const vmp_request *request, vmp_span *owner, vmp_placed *out_placed) {
  vmp_pool *pool = self;
  if (pool->span_mid == NULL || request->bytes >= pool->device.granule_bytes) {
    return vmp_mid_alloc(pool->mid, request, owner, out_placed);
  }
  vmp_status status = vmp_mid_alloc(pool->span_mid, request, owner, out_placed);
  if (request->effort < VMP_EFFORT_NORMAL || !may_be_between(status)) return status;
  vmp_error first = *vmp_last_error();
  vmp_status second = vmp_mid_alloc(pool->mid, request, owner, out_placed);  // space between large blocks: the last
  if (!may_be_between(second)) return second;
  vmp_restore_error(&first);
  return status;
}

// take_bundle: never between large blocks, where single spans go at last.
_Static_assert(VMP_SLAB_BUNDLE_BYTES == VMP_SPAN_BUNDLE_BYTES, "a bundle has one entry");
static vmp_status take_bundle(void *self, const vmp_request *request, vmp_span *owner, vmp_placed *out_placed) {
  vmp_pool *pool = self;
  return vmp_mid_alloc(pool->span_mid != NULL ? pool->span_mid : pool->mid, request, owner, out_placed);
}

static void give_span(void *self, uint64_t offset, vmp_fence fence) {
  vmp_pool *pool = self;
  (void)vmp_mid_free(layers_of(pool, offset).mid, offset, fence);
}

// publish_span: a span that suits the map is found without the lock from here on. Spans of small granules, which are no
// powers of two, and those where addresses were short aren't: their objects always take the lock.
static uint64_t publish_span(void *self, uint32_t line, uint64_t offset, uint64_t bytes) {
  vmp_pool *pool = self;
  uint64_t address = vmp_backing_address(pool->backing, offset);
  if (!vmp_span_map_suits(&pool->span_map, address, bytes)) return 0;
  vmp_span_map_add(&pool->span_map, address, bytes, line);
  return address;
}

static void withdraw_span(void *self, uint64_t address, uint64_t bytes) {
  vmp_pool *pool = self;
  vmp_span_map_remove(&pool->span_map, address, bytes);
}

static bool divide_spans(void *self, uint64_t offset, uint64_t each_bytes, vmp_span *const *owners) {
  return vmp_mid_divide_evenly(layers_of(self, offset).mid, offset, each_bytes, (void *const *)owners);
}

static void publish_bundle(void *self, uint64_t address, uint64_t each_bytes, uint32_t line, uint32_t lines) {
  vmp_pool *pool = self;
  vmp_span_map_bundle_add(&pool->span_map, address, each_bytes, line, lines);
}

vmp_slab_supply vmp_route_slab_supply(vmp_pool *pool) {
  vmp_slab_supply supply = {.self = pool,
                            .take = take_span,
                            .give = give_span,
                            .publish = publish_span,
                            .withdraw = withdraw_span,
                            .take_bundle = take_bundle,
                            .divide = divide_spans,
                            .publish_bundle = publish_bundle};
  return supply;
}
