// slab.c: see slab.h; the parts are drawn in slab_internal.h.
#include "pool/slab.h"

#include "pool/slab_internal.h"
#include "vmm/memory.h"

// ---- create and destroy ----

static vmp_status check_options(const vmp_slab_options *options) {
  if (!vmp_is_power_of_two(options->granule_bytes) || options->granule_bytes < VMP_CLASS_STEP_BYTES) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "a granule of %llu bytes; it must be a power of two of at least 512",
                    (unsigned long long)options->granule_bytes);
  }
  if (options->max_object_bytes % VMP_CLASS_STEP_BYTES != 0 || options->max_object_bytes > VMP_CLASS_MAX_BYTES) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "slab objects up to %llu bytes; it must be a multiple of 512 up to 1 GiB",
                    (unsigned long long)options->max_object_bytes);
  }
  if (options->class_bytes == NULL) return VMP_OK;
  if (options->num_classes == 0 || options->num_classes > VMP_SLAB_MAX_CLASSES) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "%zu block sizes are given; 1 to %u can be", options->num_classes,
                    VMP_SLAB_MAX_CLASSES);
  }
  uint64_t before = 0;
  for (size_t i = 0; i < options->num_classes; i++) {
    uint64_t bytes = options->class_bytes[i];
    if (bytes % VMP_CLASS_STEP_BYTES != 0 || bytes > VMP_CLASS_MAX_BYTES || bytes <= before) {
      return vmp_fail(VMP_ERROR_INVALID_VALUE,
                      "block size %llu: sizes must be multiples of 512 up to 1 GiB, in rising order",
                      (unsigned long long)bytes);
    }
    before = bytes;
  }
  if (options->max_object_bytes > before) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "slab objects up to %llu bytes, but the largest block size is %llu",
                    (unsigned long long)options->max_object_bytes, (unsigned long long)before);
  }
  return VMP_OK;
}

// Fills in the classes and returns how many list heads they need.
static uint64_t describe_classes(vmp_slab *slab, const vmp_slab_options *options) {
  uint64_t lists = 0;
  for (size_t i = 0; i < slab->num_classes; i++) {
    vmp_slab_class *class = &slab->classes[i];
    class->bytes = slab->default_table ? vmp_class_bytes(i) : options->class_bytes[i];
    class->reciprocal = vmp_class_reciprocal(class->bytes);
    class->span = vmp_span_shape_of(class->bytes, options->granule_bytes);
    uint64_t natural = UINT64_C(1) << vmp_lowest_bit(class->bytes);
    class->object_alignment = natural < class->span.alignment ? natural : class->span.alignment;
    lists += class->span.num_objects + 1;
  }
  return lists;
}

vmp_status vmp_slab_create(vmp_slab **out_slab, const vmp_backing_ops *ops, const vmp_slab_supply *supply,
                           const vmp_slab_options *options) {
  vmp_status status = check_options(options);
  if (status != VMP_OK) return status;
  vmp_slab *slab = vmp_mem_calloc(1, sizeof *slab);
  if (slab == NULL) goto out_of_memory;
  slab->ops = *ops;
  slab->supply = *supply;
  slab->random = options->random_seed != 0;
  slab->random_state = options->random_seed;
  slab->default_table = options->class_bytes == NULL;
  slab->max_object_bytes = options->max_object_bytes;
  vmp_node_pool_init(&slab->spans, sizeof(vmp_span));
  if (!slab->default_table) {
    slab->num_classes = options->num_classes;
    if (slab->max_object_bytes == 0) slab->max_object_bytes = options->class_bytes[options->num_classes - 1];
  } else if (slab->max_object_bytes > 0) {
    slab->num_classes = vmp_class_index(slab->max_object_bytes) + 1;
  }
  if (slab->num_classes > 0) {
    slab->classes = vmp_mem_calloc(slab->num_classes, sizeof *slab->classes);
    if (slab->classes == NULL) goto out_of_memory;
    slab->num_lists = describe_classes(slab, options);
    slab->lists = vmp_mem_calloc(slab->num_lists, sizeof(vmp_span *));
    if (slab->lists == NULL) goto out_of_memory;
  }
  vmp_span **lists = slab->lists;
  for (size_t i = 0; i < slab->num_classes; i++) {
    slab->classes[i].lists = lists;
    lists += slab->classes[i].span.num_objects + 1;
  }
  *out_slab = slab;
  return VMP_OK;

out_of_memory:
  vmp_slab_destroy(slab);
  return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the slab layer's classes");
}

void vmp_slab_destroy(vmp_slab *slab) {
  if (slab == NULL) return;
  vmp_node_pool_finish(&slab->spans);
  vmp_mem_free(slab->lists);
  vmp_mem_free(slab->classes);
  vmp_mem_free(slab);
}

// ---- classes ----

// The smallest class of at least `bytes`, which is at most the largest class.
static size_t smallest_class(const vmp_slab *slab, uint64_t bytes) {
  if (slab->default_table) return vmp_class_index(bytes);
  size_t low = 0, high = slab->num_classes - 1;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (slab->classes[middle].bytes < bytes) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

static vmp_slab_class *class_for(const vmp_slab *slab, uint64_t bytes, uint64_t alignment) {
  if (bytes > slab->max_object_bytes || slab->num_classes == 0) return NULL;
  size_t i = smallest_class(slab, bytes);
  if (alignment <= VMP_CLASS_STEP_BYTES) return &slab->classes[i];
  // At most 8 steps further the default table has a power of two.
  while (i < slab->num_classes && slab->classes[i].object_alignment < alignment) i++;
  return i < slab->num_classes ? &slab->classes[i] : NULL;
}

uint64_t vmp_slab_class_bytes(const vmp_slab *slab, uint64_t bytes, uint64_t alignment) {
  const vmp_slab_class *class = class_for(slab, bytes, alignment);
  return class == NULL ? 0 : class->bytes;
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

// Where no object is ready: one of a new span, else one that needs a wait. MAY UNLOCK.
static vmp_status choose_otherwise(vmp_slab *slab, vmp_slab_class *class, const vmp_request *request, choice *out) {
  vmp_status status = vmp_span_take(slab, class, request, &out->span, &out->after);
  if (status == VMP_OK) {
    out->bits = out->span->groups[VMP_GROUP_CLEAN].bits;
    return VMP_OK;
  }
  // The lock may have been let go of meanwhile: look again.
  if (choose_ready(slab, class, request->stream, out)) return VMP_OK;
  return choose_waiting(slab, class, request->stream, out) ? VMP_OK : status;
}

vmp_status vmp_slab_alloc(vmp_slab *slab, const vmp_request *request, vmp_placed *out_placed) {
  vmp_slab_class *class = class_for(slab, request->bytes, request->alignment);
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

// ---- free ----

vmp_status vmp_slab_free(vmp_slab *slab, vmp_span *span, uint64_t offset, vmp_fence fence, uint64_t *out_bytes) {
  vmp_slab_class *class = &slab->classes[span->class_index];
  uint64_t delta = offset - span->offset;
  uint64_t index = vmp_class_quotient(delta, class->reciprocal);
  if (span->state != VMP_SPAN_LISTED || index >= class->span.num_objects || index * class->bytes != delta) {
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
  // Of two empty spans the one that was empty first stays: its work is the older one.
  if (span->num_free == class->span.num_objects && span->next != NULL) vmp_span_give(slab, class, span);
  return VMP_OK;
}

bool vmp_slab_find(const vmp_slab *slab, const vmp_span *span, uint64_t offset, uint64_t *out_start,
                   uint64_t *out_bytes) {
  const vmp_slab_class *class = &slab->classes[span->class_index];
  uint64_t delta = offset - span->offset;  // wraps to a huge one below the span
  if (span->state != VMP_SPAN_LISTED || delta >= class->span.num_objects * class->bytes) return false;
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
