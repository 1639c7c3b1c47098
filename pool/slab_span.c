// slab_span.c: spans; see slab_internal.h for the drawing.
//
// Why groups: one fence for all free objects of a span would make a stream wait for work on objects that it doesn't
// get. One fence per object would cost 16 bytes each. Three groups keep apart what matters: objects that need no wait
// by anybody, those freed by the stream that uses the span most, and the rest.
#include "pool/fresh_place.h"
#include "pool/slab_internal.h"

// ---- groups ----

static bool known_complete(const vmp_slab *slab, vmp_fence fence) {
  return vmp_fence_is_none(fence) || slab->ops.known_complete(slab->ops.self, fence);
}

// Not while the clean objects themselves have to wait: that would put a fence on objects that have none.
void vmp_span_settle(const vmp_slab *slab, vmp_span *span, vmp_span_group *group) {
  vmp_span_group *clean = &span->groups[VMP_GROUP_CLEAN];
  if (!known_complete(slab, group->fence)) return;
  if (group == clean) {
    clean->fence = VMP_FENCE_NONE;
  } else if (clean->bits == 0 || known_complete(slab, clean->fence)) {
    clean->fence = VMP_FENCE_NONE;
    clean->bits |= group->bits;
    group->bits = 0;
  }
}

const vmp_span_group *vmp_span_oldest_group(const vmp_span *span) {
  const vmp_span_group *oldest = NULL;
  for (unsigned i = 0; i < VMP_GROUPS; i++) {
    const vmp_span_group *group = &span->groups[i];
    if (group->bits == 0) continue;
    if (oldest == NULL || group->fence.sequence < oldest->fence.sequence) oldest = group;
  }
  return oldest;
}

// OTHERS of the same streams, then an unused one, then one whose work has finished, then OTHERS, which is a mixture
// then.
vmp_span_group *vmp_span_group_for(const vmp_slab *slab, vmp_span *span, vmp_fence fence) {
  vmp_span_group *clean = &span->groups[VMP_GROUP_CLEAN];
  vmp_span_group *first = &span->groups[VMP_GROUP_FIRST];
  vmp_span_group *others = &span->groups[VMP_GROUP_OTHERS];
  if (vmp_fence_is_none(fence)) return clean;
  if (others->bits != 0 && others->fence.streams == fence.streams) return others;
  if (first->bits == 0) return first;
  if (others->bits == 0) return others;
  vmp_span_settle(slab, span, first);
  vmp_span_settle(slab, span, others);
  return first->bits == 0 ? first : others;
}

vmp_fence vmp_span_fence(const vmp_slab *slab, const vmp_span *span) {
  vmp_fence merged = VMP_FENCE_NONE;
  for (unsigned i = 0; i < VMP_GROUPS; i++) {
    const vmp_span_group *group = &span->groups[i];
    if (group->bits == 0 || known_complete(slab, group->fence)) continue;
    merged = vmp_fence_merge(merged, group->fence);
  }
  return merged;
}

// ---- from the supply and back ----

// begin_span makes the record of a span that is on its way.
static vmp_span *begin_span(vmp_slab *slab, vmp_slab_class *class, uint32_t line) {
  uint32_t record = vmp_node_take(&slab->spans);
  vmp_span *span = vmp_node_at(&slab->spans, record);
  span->record = record;
  span->class_index = (uint16_t)(class - slab->classes);
  span->state = VMP_SPAN_ARRIVING;
  span->line = line;
  class->num_arriving++;
  return span;
}

// drop_record ends one that got no place; the caller gives its card back.
static void drop_record(vmp_slab *slab, vmp_slab_class *class, const vmp_span *span) {
  class->num_arriving--;
  vmp_node_give(&slab->spans, span->record);
}

// settle_span lists a span that has got its place. Others may have changed everything meanwhile, but not its record: it
// was in no list.
static void settle_span(vmp_slab *slab, vmp_slab_class *class, vmp_span *span, const vmp_placed *placed) {
  uint32_t number = vmp_class_number(slab, class);
  vmp_card *card = vmp_card_at(&slab->cards, span->line);
  atomic_store_explicit(&card->head, vmp_card_head(number, span->record), memory_order_relaxed);
  if (slab->supply.publish != NULL && number != 0 && vmp_class_is_narrow(class)) {
    span->address = slab->supply.publish(slab->supply.self, span->line, placed->offset, class->span.bytes);
  }
  span->offset = placed->offset;
  span->groups[VMP_GROUP_CLEAN] = (vmp_span_group){.bits = vmp_span_all_bits(class), .fence = placed->fence};
  span->num_free = (uint8_t) class->span.num_objects;
  span->state = VMP_SPAN_LISTED;
  vmp_span_list(class, span);
  class->num_arriving--;
  class->num_spans++;
}

// ---- bundles ----

// wants_bundle: how many spans to take at once; 0: it isn't worth while, or nothing more than must be is to be mapped.
static uint32_t wants_bundle(const vmp_slab *slab, const vmp_slab_class *class, const vmp_request *request) {
  uint32_t count = vmp_class_bundle_spans(slab, class);
  if (class->num_spans < (uint64_t)slab->bundles_from * count || class->num_spans < class->bundle_from) return 0;
  // Another thread is at it, or there is as much that others may use and this stream may not.
  if (class->num_arriving >= count || vmp_class_free_objects(class) >= count * class->span.num_objects) return 0;
  return request->effort > VMP_EFFORT_NORMAL || request->wait == VMP_WAIT_ANY ? 0 : count;
}

// begin_bundle takes the records and the cards of `count` spans. False: no host memory, or there are single cards that
// should be used first.
static bool begin_bundle(vmp_slab *slab, vmp_slab_class *class, uint32_t count, vmp_span **out_spans) {
  if (!vmp_node_pool_reserve(&slab->spans, count)) return false;
  uint32_t words = vmp_class_card_words(class), line = vmp_card_take_row(&slab->cards, count, words);
  if (line == 0) return false;
  for (uint32_t i = 0; i < count; i++) {
    out_spans[i] = begin_span(slab, class, line + i * vmp_card_lines(words));
  }
  return true;
}

static void drop_bundle(vmp_slab *slab, vmp_slab_class *class, uint32_t count, vmp_span *const *spans) {
  vmp_card_drop_row(&slab->cards, spans[0]->line, count, vmp_class_card_words(class));
  for (uint32_t i = 0; i < count; i++) drop_record(slab, class, spans[i]);
}

// settle_bundle lists the spans of a bundle that has got its place.
static void settle_bundle(vmp_slab *slab, vmp_slab_class *class, uint32_t count, vmp_span *const *spans,
                          const vmp_placed *placed) {
  bool published = true;
  for (uint32_t i = 0; i < count; i++) {
    vmp_placed part = *placed;
    part.offset += i * class->span.bytes;
    settle_span(slab, class, spans[i], &part);
    published = published && spans[i]->address != 0;
  }
  if (!published) return;
  slab->supply.publish_bundle(slab->supply.self, spans[0]->address, class->span.bytes, spans[0]->line,
                              vmp_card_lines(vmp_class_card_words(class)));
}

// request_of: for a span or a bundle, on behalf of `request`.
static vmp_request request_of(const vmp_request *request, uint64_t bytes, uint64_t alignment, vmp_effort effort) {
  return (vmp_request){
      .bytes = bytes, .alignment = alignment, .stream = request->stream, .effort = effort, .wait = request->wait};
}

// take_bundle gets `count` spans at once. After a failure nothing has changed. MAY UNLOCK.
static vmp_status take_bundle(vmp_slab *slab, vmp_slab_class *class, uint32_t count, const vmp_request *request,
                              vmp_effort effort, vmp_span **out_span, vmp_fence *out_after) {
  vmp_span *spans[VMP_BUNDLE_MAX_SPANS];
  if (!begin_bundle(slab, class, count, spans)) return VMP_ERROR_BUSY;
  vmp_request wanted = request_of(request, VMP_SLAB_BUNDLE_BYTES, VMP_SLAB_BUNDLE_BYTES, effort);
  vmp_placed placed;
  vmp_status status = slab->supply.take_bundle(slab->supply.self, &wanted, spans[0], &placed);
  if (status == VMP_OK && !slab->supply.divide(slab->supply.self, placed.offset, class->span.bytes, spans)) {
    slab->supply.give(slab->supply.self, placed.offset, placed.fence);
    status = VMP_ERROR_BUSY;
  }
  if (status != VMP_OK) {
    drop_bundle(slab, class, count, spans);
    return status;
  }
  settle_bundle(slab, class, count, spans, &placed);
  *out_span = spans[0];
  *out_after = placed.after;
  return VMP_OK;
}

static vmp_status take_single(vmp_slab *slab, vmp_slab_class *class, const vmp_request *request, vmp_effort effort,
                              vmp_span **out_span, vmp_fence *out_after) {
  uint32_t line = vmp_node_pool_reserve(&slab->spans, 1) ? vmp_card_take(&slab->cards, vmp_class_card_words(class)) : 0;
  if (line == 0)
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY,
                    "no host memory for the record of another span, or %u cache lines of them are used up",
                    1u << VMP_CARD_INDEX_BITS);
  vmp_span *span = begin_span(slab, class, line);
  vmp_request wanted = request_of(request, class->span.bytes, class->span.alignment, effort);
  vmp_placed placed;
  vmp_status status = slab->supply.take(slab->supply.self, &wanted, span, &placed);
  if (status != VMP_OK) {
    vmp_card_give(&slab->cards, line, vmp_class_card_words(class));
    drop_record(slab, class, span);
    return status;
  }
  settle_span(slab, class, span, &placed);
  *out_span = span;
  *out_after = placed.after;
  return VMP_OK;
}

// goes_on: a smaller piece, or one with more effort, may be had after such a failure.
static bool goes_on(vmp_status status) {
  return vmp_may_be_had_elsewhere(status) || status == VMP_ERROR_OUT_OF_ADDRESS_SPACE ||
         status == VMP_ERROR_HOST_OUT_OF_MEMORY;
}

// Where a bundle is wanted: one of what is mapped, else a single span of that, so that nothing mapped is left over;
// then one of new memory.
vmp_status vmp_span_take(vmp_slab *slab, vmp_slab_class *class, const vmp_request *request, vmp_span **out_span,
                         vmp_fence *out_after) {
  uint32_t count = wants_bundle(slab, class, request);
  if (count == 0) return take_single(slab, class, request, request->effort, out_span, out_after);
  vmp_status status = take_bundle(slab, class, count, request, VMP_EFFORT_MAPPED, out_span, out_after);
  if (!goes_on(status)) return status;
  if (request->effort > VMP_EFFORT_MAPPED) {
    status = take_single(slab, class, request, VMP_EFFORT_MAPPED, out_span, out_after);
    if (!goes_on(status)) return status;
    status = take_bundle(slab, class, count, request, request->effort, out_span, out_after);
    if (!goes_on(status)) return status;
    class->bundle_from = class->num_spans + count;  // till then it would hardly be different
  }
  return take_single(slab, class, request, request->effort, out_span, out_after);
}

void vmp_span_give(vmp_slab *slab, vmp_slab_class *class, vmp_span *span) {
  uint64_t offset = span->offset;
  vmp_fence fence = vmp_span_fence(slab, span);
  if (span->address != 0) slab->supply.withdraw(slab->supply.self, span->address, class->span.bytes);
  vmp_span_unlist(class, span);
  class->num_spans--;
  uint64_t most = class->num_spans + VMP_BUNDLE_MAX_SPANS;
  if (class->bundle_from > most) class->bundle_from = most;
  vmp_card_give(&slab->cards, span->line, vmp_class_card_words(class));
  vmp_node_give(&slab->spans, span->record);
  slab->supply.give(slab->supply.self, offset, fence);
}
