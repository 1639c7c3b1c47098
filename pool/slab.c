// slab.c: see slab.h; the parts are drawn in slab_internal.h.
#include "pool/slab.h"

#include "pool/slab_internal.h"

size_t vmp_slab_max_classes(const vmp_slab *slab) { return slab->num_default + slab->max_user; }

vmp_slab_shape vmp_slab_shape_of(const vmp_slab *slab, size_t class_index) {
  const vmp_slab_class *class = &slab->classes[class_index];
  return (vmp_slab_shape){.bytes = class->bytes,
                          .reciprocal = class->reciprocal,
                          .num_objects = class->span.num_objects,
                          .span_bytes = class->span.bytes,
                          .most_slack = vmp_class_most_slack(slab, class)};
}

size_t vmp_slab_class_index(const vmp_slab *slab, uint64_t bytes) {
  const vmp_slab_class *class = vmp_class_for(slab, bytes, VMP_CLASS_STEP_BYTES);
  return class == NULL ? SIZE_MAX : (size_t)(class - slab->classes);
}

// ---- allocate ----

// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
static uint64_t next_random(vmp_slab *slab) {
  slab->random_state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = slab->random_state;
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

// One of the set bits: the lowest, or by option each with the same chance.
static uint64_t choose_bit(vmp_slab *slab, uint64_t bits) {
  if (slab->random) {
    uint64_t num_bits = (uint64_t)__builtin_popcountll(bits);
    for (uint64_t skip = ((next_random(slab) >> 32) * num_bits) >> 32; skip > 0; skip--) bits &= bits - 1;
  }
  return bits & (~bits + 1);
}

// What to hand out: one of the objects of `bits`, behind `after`.
typedef struct choice {
  vmp_span *span;
  uint64_t bits;
  vmp_fence after;
} choice;

static void hand_out(vmp_slab *slab, vmp_slab_class *class, const choice *chosen, vmp_placed *out_placed) {
  uint64_t bit = choose_bit(slab, chosen->bits);
  out_placed->offset = chosen->span->offset + vmp_lowest_bit(bit) * class->bytes;
  out_placed->bytes = class->bytes;
  out_placed->after = chosen->after;
  out_placed->fence = vmp_span_use(class, chosen->span, bit);
  out_placed->word = NULL;
}

// The first span of a list with an object that needs no wait; `looks` is how many may still be looked at.
static vmp_span *ready_span(const vmp_slab *slab, vmp_span *list, vmp_stream_index stream, unsigned *looks,
                            uint64_t *out_bits) {
  for (vmp_span *span = list; span != NULL && *looks > 0; span = span->next, --*looks) {
    *out_bits = vmp_span_ready_bits(slab, span, stream);
    if (*out_bits != 0) return span;
  }
  return NULL;
}

// The fullest spans are looked at first; where these have none, some of the emptiest, which have most to choose from.
static bool choose_ready_of_many(const vmp_slab *slab, const vmp_slab_class *class, vmp_stream_index stream,
                                 choice *out) {
  unsigned looks = VMP_SLAB_LOOK_SPANS;
  for (uint64_t left = class->nonempty; left != 0; left &= left - 1) {
    out->span = ready_span(slab, class->lists[vmp_lowest_bit(left) + 1], stream, &looks, &out->bits);
    if (out->span != NULL) return true;
    if (looks == 0) {
      looks = VMP_SLAB_LOOK_SPANS / 4;
      out->span = ready_span(slab, class->lists[vmp_log2(left) + 1], stream, &looks, &out->bits);
      return out->span != NULL;
    }
  }
  return false;
}

// An object that needs no wait. False: none was found.
static inline bool choose_ready(const vmp_slab *slab, const vmp_slab_class *class, vmp_stream_index stream,
                                choice *out) {
  if (class->nonempty == 0) return false;
  out->span = class->lists[vmp_lowest_bit(class->nonempty) + 1];
  out->bits = vmp_span_ready_bits(slab, out->span, stream);
  out->after = VMP_FENCE_NONE;
  return out->bits != 0 || choose_ready_of_many(slab, class, stream, out);
}

// An object that needs a wait: of a bounded number of spans, the fullest first, the one whose work is the oldest, since
// that is the most likely to be over soon. False: no object is free.
static bool choose_waiting(const vmp_slab *slab, const vmp_slab_class *class, vmp_stream_index stream, choice *out) {
  const vmp_span_group *best = NULL;
  unsigned looks = VMP_SLAB_LOOK_SPANS;
  for (uint64_t left = class->nonempty; left != 0 && looks > 0; left &= left - 1) {
    for (vmp_span *span = class->lists[vmp_lowest_bit(left) + 1]; span != NULL && looks > 0; span = span->next) {
      const vmp_span_group *group = vmp_span_oldest_group(span);
      if (best == NULL || group->fence.sequence < best->fence.sequence) {
        best = group;
        out->span = span;
      }
      looks--;
    }
  }
  if (best == NULL) return false;
  out->bits = best->bits;
  out->after = slab->ops.others(slab->ops.self, best->fence, stream);
  return true;
}

// Where no object is ready: one of a new span, else one that needs a wait (the other way round where waits don't
// matter). MAY UNLOCK.
static vmp_status choose_otherwise(vmp_slab *slab, vmp_slab_class *class, const vmp_request *request, choice *out) {
  if (request->wait == VMP_WAIT_ANY && choose_waiting(slab, class, request->stream, out)) return VMP_OK;
  vmp_status status = vmp_span_take(slab, class, request, &out->span, &out->after);
  if (status == VMP_OK) {
    out->bits = out->span->groups[VMP_GROUP_CLEAN].bits;
    return VMP_OK;
  }
  // The lock may have been let go of meanwhile: look again.
  if (choose_ready(slab, class, request->stream, out)) return VMP_OK;
  if (request->wait == VMP_WAIT_NEVER) return status;
  return choose_waiting(slab, class, request->stream, out) ? VMP_OK : status;
}

vmp_status vmp_slab_alloc(vmp_slab *slab, const vmp_request *request, vmp_placed *out_placed) {
  vmp_slab_class *class = vmp_class_for(slab, request->bytes, request->alignment);
  if (class == NULL && slab->adoptions > 0) {
    return vmp_fail(VMP_ERROR_BUSY, "the size classes have changed since the request was routed");
  }
  if (class == NULL) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "no slab class keeps %llu bytes aligned to %llu",
                    (unsigned long long)request->bytes, (unsigned long long)request->alignment);
  }
  choice chosen;
  if (!choose_ready(slab, class, request->stream, &chosen)) {
    vmp_status status = choose_otherwise(slab, class, request, &chosen);
    if (status != VMP_OK) return status;
  }
  hand_out(slab, class, &chosen, out_placed);
  return VMP_OK;
}

uint32_t vmp_slab_take_ready(vmp_slab *slab, size_t class_index, vmp_stream_index stream, uint32_t max,
                             vmp_slab_object *out_objects) {
  vmp_slab_class *class = &slab->classes[class_index];
  uint32_t taken = 0;
  choice chosen;
  while (taken < max && choose_ready(slab, class, stream, &chosen)) {
    vmp_card *card = vmp_card_at(&slab->cards, chosen.span->line);
    uint64_t address = chosen.span->address;
    if (address == 0) break;  // it isn't published: nobody would find its objects again without the lock
    uint64_t used = 0;
    uint32_t before = taken;
    for (; chosen.bits != 0 && taken < max; taken++) {
      uint64_t bit = choose_bit(slab, chosen.bits);
      chosen.bits &= ~bit;
      used |= bit;
      uint32_t index = vmp_lowest_bit(bit);
      out_objects[taken] = (vmp_slab_object){address + index * class->bytes, &card->words[index]};
    }
    vmp_span_use_some(class, chosen.span, used, taken - before);
  }
  return taken;
}

// ---- free ----

// give_surplus gives a span back that has just become empty, where there are enough without it. Of two empty spans the
// one that was empty first stays: its work is the older one. Each object that is freed takes at most an eighth of one
// from what may stay, so giving back two at a time keeps up.
static void give_surplus(vmp_slab *slab, vmp_slab_class *class, vmp_span *span) {
  if (class->kind == VMP_CLASS_DRAINING) {
    vmp_span_give(slab, class, span);
    return;
  }
  for (int i = 0; i < 2 && span != NULL && span->next != NULL && !vmp_class_keeps(slab, class); i++) {
    vmp_span *next = span->next;
    vmp_span_give(slab, class, span);
    span = next;
  }
}

// after_free: the object has become free.
static void after_free(vmp_slab *slab, vmp_slab_class *class, vmp_span *span) {
  if (span->num_free < class->span.num_objects) return;
  if (span->state == VMP_SPAN_SEALED) {
    vmp_span_give(slab, class, span);
  } else {
    give_surplus(slab, class, span);
  }
}

void vmp_slab_seal(vmp_slab *slab, vmp_span *span, bool seal) {
  vmp_slab_class *class = &slab->classes[span->class_index];
  vmp_span_state wanted = seal ? VMP_SPAN_SEALED : VMP_SPAN_LISTED;
  if (span->state == VMP_SPAN_ARRIVING || span->state == wanted) return;
  vmp_span_unlist(class, span);
  span->state = (uint8_t)wanted;
  vmp_span_list(class, span);
  after_free(slab, class, span);  // it may have been empty, or there may be enough empty ones without it
}

void vmp_slab_expect_back(const vmp_slab *slab, const vmp_card *card) {
  uint32_t record = vmp_card_record(atomic_load_explicit(&card->head, memory_order_relaxed));
  const char *span = vmp_node_at(&slab->spans, record);
  __builtin_prefetch(span, 1);
  __builtin_prefetch(span + sizeof(vmp_span) - 1, 1);
}

void vmp_slab_put_back(vmp_slab *slab, vmp_card *card, uint32_t index, vmp_fence fence) {
  uint32_t record = vmp_card_record(atomic_load_explicit(&card->head, memory_order_relaxed));
  vmp_span *span = vmp_node_at(&slab->spans, record);
  vmp_slab_class *class = &slab->classes[span->class_index];
  vmp_span_put_back(slab, class, span, UINT64_C(1) << index, fence);
  after_free(slab, class, span);
}

vmp_status vmp_slab_free(vmp_slab *slab, vmp_span *span, uint64_t offset, vmp_fence fence, uint64_t *out_bytes) {
  vmp_slab_class *class = &slab->classes[span->class_index];
  uint64_t delta = offset - span->offset;
  uint64_t index = vmp_class_quotient(delta, class->reciprocal);
  if (span->state == VMP_SPAN_ARRIVING || index >= class->span.num_objects || index * class->bytes != delta) {
    return vmp_fail(VMP_ERROR_NOT_A_BLOCK, "offset 0x%llx is not the start of an object of %llu bytes",
                    (unsigned long long)offset, (unsigned long long)class->bytes);
  }
  uint64_t bit = UINT64_C(1) << index;
  if ((vmp_span_free_bits(span) & bit) != 0) {
    return vmp_fail(VMP_ERROR_DOUBLE_FREE, "the object at offset 0x%llx (%llu bytes) is free already",
                    (unsigned long long)offset, (unsigned long long)class->bytes);
  }
  vmp_span_put_back(slab, class, span, bit, fence);
  *out_bytes = class->bytes;
  after_free(slab, class, span);
  return VMP_OK;
}

bool vmp_slab_word_of(const vmp_slab *slab, const vmp_span *span, uint64_t offset, vmp_slab_word *out_word) {
  const vmp_slab_class *class = &slab->classes[span->class_index];
  uint64_t delta = offset - span->offset;  // wraps to a huge one below the span
  if (span->state == VMP_SPAN_ARRIVING || delta >= class->span.num_objects * class->bytes) return false;
  uint64_t index = vmp_class_quotient(delta, class->reciprocal);
  if (index * class->bytes != delta) return false;
  vmp_card *card = vmp_card_at(&slab->cards, span->line);
  bool narrow = vmp_class_is_narrow(class);
  out_word->low = &card->words[narrow ? index : 2 * index];
  out_word->high = narrow ? NULL : &card->words[2 * index + 1];
  out_word->mark = vmp_span_mark(slab, span, index);
  out_word->most_slack = vmp_class_most_slack(slab, class);
  return true;
}

// change_unmarked: of a word that no hit can take. Under the lock nobody else changes it.
static bool change_unmarked(vmp_slab_word at, uint64_t set, uint64_t clear) {
  vmp_slab_word_set(at, ((atomic_load_explicit(at.low, memory_order_relaxed) | vmp_slab_word_high(at)) & ~clear) | set);
  return true;
}

bool vmp_slab_word_change(vmp_slab_word at, uint64_t set, uint64_t clear) {
  if (at.mark.word != NULL) return vmp_slab_word_claim(at) && change_unmarked(at, set, clear);
  if (at.high != NULL) return vmp_slab_word_get(at) != 0 && change_unmarked(at, set, clear);
  uint32_t now = atomic_load_explicit(at.low, memory_order_acquire);
  while (now != 0) {
    // Another thread may free the object without the lock meanwhile: then the word is 0, and stays so.
    if (atomic_compare_exchange_weak(at.low, &now, (now & (uint32_t)~clear) | (uint32_t)set)) return true;
  }
  return false;
}

const unsigned char *vmp_slab_cards(const vmp_slab *slab) { return slab->cards.base; }

bool vmp_slab_wants_marks(const vmp_slab *slab) {
  return slab->cards.marks == NULL && slab->cards.used_lines >= slab->marks_from_lines;
}

bool vmp_slab_marks_start(vmp_slab *slab) {
  if (vmp_card_marks_start(&slab->cards)) return true;
  // Not at every refill: again once there are twice as many.
  if (slab->marks_from_lines <= UINT32_MAX / 2) slab->marks_from_lines *= 2;
  return false;
}

void vmp_slab_take_bundles(vmp_slab *slab) { slab->takes_bundles = true; }

_Atomic uint64_t *vmp_slab_marks(const vmp_slab *slab) { return slab->cards.marks; }

bool vmp_slab_find(const vmp_slab *slab, const vmp_span *span, uint64_t offset, uint64_t *out_start,
                   uint64_t *out_bytes) {
  const vmp_slab_class *class = &slab->classes[span->class_index];
  uint64_t delta = offset - span->offset;  // wraps to a huge one below the span
  if (span->state == VMP_SPAN_ARRIVING || delta >= class->span.num_objects * class->bytes) return false;
  uint64_t index = vmp_class_quotient(delta, class->reciprocal);
  if ((vmp_span_free_bits(span) >> index & 1) != 0) return false;
  *out_start = span->offset + index * class->bytes;
  *out_bytes = class->bytes;
  return true;
}

uint64_t vmp_slab_trim(vmp_slab *slab) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < slab->num_classes; i++) {
    vmp_slab_class *class = &slab->classes[i];
    while (class->lists[class->span.num_objects] != NULL) {
      vmp_span_give(slab, class, class->lists[class->span.num_objects]);
      bytes += class->span.bytes;
    }
  }
  return bytes;
}
