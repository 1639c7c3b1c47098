// slab_span.c: spans; see slab_internal.h for the drawing.
//
// Why groups: one fence for all free objects of a span would make a stream wait for work on objects that it doesn't
// get. One fence per object would cost 16 bytes each. Three groups keep apart what matters: objects that need no wait
// by anybody, those freed by the stream that uses the span most, and the rest.
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

// settle_span lists a span that has got its place.
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
  class->num_spans++;
}

vmp_status vmp_span_take(vmp_slab *slab, vmp_slab_class *class, const vmp_request *request, vmp_span **out_span,
                         vmp_fence *out_after) {
  uint32_t line = vmp_node_pool_reserve(&slab->spans, 1) ? vmp_card_take(&slab->cards, vmp_class_card_words(class)) : 0;
  if (line == 0)
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY,
                    "no host memory for the record of another span, or %u cache lines of them are used up",
                    1u << VMP_CARD_INDEX_BITS);
  uint32_t record = vmp_node_take(&slab->spans);
  vmp_span *span = vmp_node_at(&slab->spans, record);
  span->record = record;
  span->class_index = (uint16_t)(class - slab->classes);
  span->state = VMP_SPAN_ARRIVING;
  span->line = line;
  class->num_arriving++;

  vmp_request span_request = {.bytes = class->span.bytes,
                              .alignment = class->span.alignment,
                              .stream = request->stream,
                              .effort = request->effort,
                              .wait = request->wait};
  vmp_placed placed;
  vmp_status status = slab->supply.take(slab->supply.self, &span_request, span, &placed);
  // Others may have changed everything meanwhile, but not this record: it was in no list.
  class->num_arriving--;
  if (status != VMP_OK) {
    vmp_card_give(&slab->cards, line, vmp_class_card_words(class));
    vmp_node_give(&slab->spans, record);
    return status;
  }
  settle_span(slab, class, span, &placed);
  *out_span = span;
  *out_after = placed.after;
  return VMP_OK;
}

void vmp_span_give(vmp_slab *slab, vmp_slab_class *class, vmp_span *span) {
  uint64_t offset = span->offset;
  vmp_fence fence = vmp_span_fence(slab, span);
  if (span->address != 0) slab->supply.withdraw(slab->supply.self, span->address, class->span.bytes);
  vmp_span_unlist(class, span);
  class->num_spans--;
  vmp_card_give(&slab->cards, span->line, vmp_class_card_words(class));
  vmp_node_give(&slab->spans, span->record);
  slab->supply.give(slab->supply.self, offset, fence);
}
