// slab_classes.c: which class serves a request, and the making, exchanging and ending of classes. See slab.h.
//
//     classes   | default table (8 to a doubling) | user | user | draining | user | room ... |     never moves
//                                                    ^      ^                 ^
//     rows      in rising order of size:             0      2                 1
//
// Classes keep their index while they have spans; a class that is draining gives its index to another one once its last
// span has gone back and none is on its way.
#include "pool/slab_internal.h"
#include "vmm/memory.h"

// ---- options ----

static vmp_status check_classes(const uint64_t *class_bytes, size_t num_classes, uint64_t from_bytes) {
  uint64_t before = 0;
  for (size_t i = 0; i < num_classes; i++) {
    uint64_t bytes = class_bytes[i];
    if (bytes % VMP_CLASS_STEP_BYTES != 0 || bytes > VMP_CLASS_MAX_BYTES || bytes <= before) {
      return vmp_fail(VMP_ERROR_INVALID_VALUE,
                      "block size %llu: sizes must be multiples of 512 up to 16 GiB, in rising order",
                      (unsigned long long)bytes);
    }
    before = bytes;
  }
  if (num_classes > 0 && from_bytes > before) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "block sizes serve requests from %llu bytes, but the largest is %llu",
                    (unsigned long long)from_bytes, (unsigned long long)before);
  }
  return VMP_OK;
}

static vmp_status check_options(const vmp_slab_options *options) {
  if (!vmp_is_power_of_two(options->granule_bytes) || options->granule_bytes < VMP_CLASS_STEP_BYTES) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "a granule of %llu bytes; it must be a power of two of at least 512",
                    (unsigned long long)options->granule_bytes);
  }
  if (options->max_object_bytes % VMP_CLASS_STEP_BYTES != 0 || options->max_object_bytes > VMP_CLASS_MAX_BYTES) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "slab objects up to %llu bytes; it must be a multiple of 512 up to 16 GiB",
                    (unsigned long long)options->max_object_bytes);
  }
  if ((options->class_bytes == NULL) != (options->num_classes == 0) || options->num_classes > VMP_SLAB_MAX_CLASSES ||
      options->max_user_classes > VMP_SLAB_MAX_CLASSES) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "%zu block sizes are given; 1 to %u can be", options->num_classes,
                    VMP_SLAB_MAX_CLASSES);
  }
  return check_classes(options->class_bytes, options->num_classes, options->class_from_bytes);
}

// ---- classes ----

// describe fills in a class but for its lists.
static void describe(vmp_slab_class *class, uint64_t bytes, uint64_t granule_bytes, vmp_class_kind kind) {
  *class = (vmp_slab_class){.bytes = bytes,
                            .reciprocal = vmp_class_reciprocal(bytes),
                            .span = vmp_span_shape_of(bytes, granule_bytes),
                            .kind = (uint8_t)kind};
  uint64_t natural = UINT64_C(1) << vmp_lowest_bit(bytes);
  class->object_alignment = natural < class->span.alignment ? natural : class->span.alignment;
}

static bool make_default_classes(vmp_slab *slab) {
  for (size_t i = 0; i < slab->num_default; i++) {
    describe(&slab->classes[i], vmp_class_bytes(i), slab->granule_bytes, VMP_CLASS_DEFAULT);
    slab->num_lists += slab->classes[i].span.num_objects + 2;
  }
  slab->num_classes = slab->num_default;
  if (slab->num_default == 0) return true;
  slab->lists = vmp_mem_calloc(slab->num_lists, sizeof(vmp_span *));
  if (slab->lists == NULL) return false;
  vmp_span **lists = slab->lists;
  for (size_t i = 0; i < slab->num_default; i++) {
    slab->classes[i].lists = lists;
    lists += slab->classes[i].span.num_objects + 2;
  }
  return true;
}

static vmp_status fail_host_memory(void) {
  return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the slab layer's classes");
}

static vmp_status make(vmp_slab *slab, const vmp_slab_options *options) {
  slab->max_user = options->max_user_classes;
  if (slab->max_user < options->num_classes) slab->max_user = options->num_classes;
  if (slab->max_object_bytes > 0) slab->num_default = vmp_class_index(slab->max_object_bytes) + 1;
  if (slab->num_default + slab->max_user == 0) return VMP_OK;
  slab->classes = vmp_mem_calloc(slab->num_default + slab->max_user, sizeof *slab->classes);
  if (slab->classes == NULL || !make_default_classes(slab)) return fail_host_memory();
  if (slab->max_user == 0) return VMP_OK;
  slab->user.rows = vmp_mem_calloc(slab->max_user, sizeof *slab->user.rows);
  if (slab->user.rows == NULL) return fail_host_memory();
  vmp_status status = vmp_slab_adopt(slab, options->class_bytes, options->num_classes, options->class_from_bytes);
  slab->adoptions = 0;
  return status;
}

vmp_status vmp_slab_create(vmp_slab **out_slab, const vmp_backing_ops *ops, const vmp_slab_supply *supply,
                           const vmp_slab_options *options) {
  vmp_status status = check_options(options);
  if (status != VMP_OK) return status;
  vmp_slab *slab = vmp_mem_calloc(1, sizeof *slab);
  if (slab == NULL) return fail_host_memory();
  slab->ops = *ops;
  slab->supply = *supply;
  slab->random = options->random_seed != 0;
  slab->random_state = options->random_seed;
  slab->max_object_bytes = options->max_object_bytes;
  slab->granule_bytes = options->granule_bytes;
  slab->marks_from_lines = VMP_SLAB_MARKS_FROM_LINES;
  slab->bundles_from = VMP_SLAB_BUNDLES_FROM;
  atomic_init(&slab->user.from_bytes, UINT64_MAX);  // no request is the user's classes'
  vmp_node_pool_init(&slab->spans, sizeof(vmp_span));
  status = vmp_card_store_open(&slab->cards) ? make(slab, options) : fail_host_memory();
  if (status != VMP_OK) {
    vmp_slab_destroy(slab);
    return status;
  }
  *out_slab = slab;
  return VMP_OK;
}

void vmp_slab_destroy(vmp_slab *slab) {
  if (slab == NULL) return;
  vmp_node_pool_finish(&slab->spans);
  vmp_card_store_close(&slab->cards);
  for (size_t i = slab->num_default; i < slab->num_classes; i++) vmp_mem_free(slab->classes[i].lists);
  vmp_mem_free(slab->user.rows);
  vmp_mem_free(slab->lists);
  vmp_mem_free(slab->classes);
  vmp_mem_free(slab);
}

// ---- adopting ----

// class_of_size: the index of a class that has a size and isn't of the default table, or `none`.
static size_t class_of_size(const vmp_slab *slab, uint64_t bytes, size_t none) {
  for (size_t i = slab->num_default; i < slab->num_classes; i++) {
    if (slab->classes[i].bytes == bytes) return i;
  }
  return none;
}

static bool is_over(const vmp_slab_class *class) {
  return class->kind == VMP_CLASS_DRAINING && class->num_spans == 0 && class->num_arriving == 0;
}

static bool is_wanted(const uint64_t *class_bytes, size_t num_classes, uint64_t bytes) {
  for (size_t i = 0; i < num_classes; i++) {
    if (class_bytes[i] == bytes) return true;
  }
  return false;
}

// next_room: the first index from `at` on that a new class may have: one that is over and isn't wanted again, or a
// fresh one.
static size_t next_room(const vmp_slab *slab, size_t at, const uint64_t *class_bytes, size_t num_classes) {
  while (at < slab->num_classes &&
         !(is_over(&slab->classes[at]) && !is_wanted(class_bytes, num_classes, slab->classes[at].bytes))) {
    at++;
  }
  return at;
}

// drain ends a class for requests.
static void drain(vmp_slab *slab, vmp_slab_class *class) {
  class->kind = VMP_CLASS_DRAINING;
  vmp_span *span;
  while ((span = class->lists[class->span.num_objects]) != NULL) vmp_span_give(slab, class, span);
}

// table_from: where the user's range begins in earnest. A class of the default table that rounds up into it would
// become the user's when it is asked for by its size, so its requests stay with it.
static uint64_t table_from(const vmp_slab *slab, uint64_t from_bytes) {
  if (from_bytes <= 1 || from_bytes - 1 > slab->max_object_bytes) return from_bytes;
  return vmp_class_bytes(vmp_class_index(from_bytes - 1)) + 1;
}

static void publish(vmp_slab *slab, const uint64_t *class_bytes, size_t num_classes, uint64_t from_bytes) {
  uint64_t largest = num_classes == 0 ? 0 : class_bytes[num_classes - 1], from = table_from(slab, from_bytes);
  bool none = num_classes == 0 || from > largest;
  for (size_t i = 0; i < num_classes; i++) {
    vmp_class_row *row = &slab->user.rows[i];
    row->index = (uint32_t)class_of_size(slab, class_bytes[i], 0);
    atomic_store_explicit(&row->bytes, class_bytes[i], memory_order_relaxed);
    atomic_store_explicit(&row->alignment, slab->classes[row->index].object_alignment, memory_order_relaxed);
  }
  atomic_store_explicit(&slab->user.count, (uint32_t)num_classes, memory_order_relaxed);
  atomic_store_explicit(&slab->user.from_bytes, none ? UINT64_MAX : from, memory_order_relaxed);
  atomic_store_explicit(&slab->user.span_bytes, none ? 0 : largest - from, memory_order_relaxed);
}

vmp_status vmp_slab_adopt(vmp_slab *slab, const uint64_t *class_bytes, size_t num_classes, uint64_t class_from_bytes) {
  vmp_status status = check_classes(class_bytes, num_classes, class_from_bytes);
  if (status != VMP_OK) return status;
  // First everything that may fail: room and lists for the sizes that are new.
  size_t limit = slab->num_default + slab->max_user, at = slab->num_default, made = 0;
  vmp_span ***lists = vmp_mem_calloc(num_classes + 1, sizeof *lists);
  if (lists == NULL) return fail_host_memory();
  for (size_t i = 0; i < num_classes && status == VMP_OK; i++) {
    if (class_of_size(slab, class_bytes[i], limit) != limit) continue;
    at = next_room(slab, at, class_bytes, num_classes);
    vmp_span_shape shape = vmp_span_shape_of(class_bytes[i], slab->granule_bytes);
    if (at++ >= limit) {
      status =
          vmp_fail(VMP_ERROR_BUSY, "%zu block sizes can't be adopted: earlier ones still have objects", num_classes);
    } else if ((lists[i] = vmp_mem_calloc(shape.num_objects + 2, sizeof(vmp_span *))) == NULL) {
      status = fail_host_memory();
    } else {
      made++;
    }
  }
  if (status != VMP_OK) {
    for (size_t i = 0; i < num_classes; i++) vmp_mem_free(lists[i]);
    vmp_mem_free(lists);
    return status;
  }
  at = slab->num_default;
  for (size_t i = 0; i < num_classes; i++) {
    if (lists[i] == NULL) {
      slab->classes[class_of_size(slab, class_bytes[i], 0)].kind = VMP_CLASS_USER;
      continue;
    }
    at = next_room(slab, at, class_bytes, num_classes);
    vmp_slab_class *class = &slab->classes[at];
    if (at == slab->num_classes) {
      slab->num_classes++;
    } else {
      slab->num_lists -= class->span.num_objects + 2;
      vmp_mem_free(class->lists);
    }
    describe(class, class_bytes[i], slab->granule_bytes, VMP_CLASS_USER);
    class->lists = lists[i];
    slab->num_lists += class->span.num_objects + 2;
    at++;
  }
  vmp_mem_free(lists);
  for (size_t i = slab->num_default; i < slab->num_classes; i++) {
    vmp_slab_class *class = &slab->classes[i];
    if (class->kind == VMP_CLASS_USER && !is_wanted(class_bytes, num_classes, class->bytes)) drain(slab, class);
  }
  publish(slab, class_bytes, num_classes, class_from_bytes);
  slab->adoptions++;
  return VMP_OK;
}

uint64_t vmp_slab_adoptions(const vmp_slab *slab) { return atomic_load(&slab->adoptions); }

// ---- looking up ----

// user_row: the first row of at least `bytes` that keeps the alignment; NULL: none. Without the lock it may look at a
// mixture of two tables.
static const vmp_class_row *user_row(const vmp_slab *slab, uint64_t bytes, uint64_t alignment) {
  uint32_t count = atomic_load_explicit(&slab->user.count, memory_order_relaxed), low = 0, high = count;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (atomic_load_explicit(&slab->user.rows[middle].bytes, memory_order_relaxed) < bytes) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  while (low < count && atomic_load_explicit(&slab->user.rows[low].alignment, memory_order_relaxed) < alignment) low++;
  return low < count ? &slab->user.rows[low] : NULL;
}

// default_class: the index in the default table, or num_default.
static size_t default_class(const vmp_slab *slab, uint64_t bytes, uint64_t alignment) {
  if (bytes > slab->max_object_bytes || slab->num_default == 0) return slab->num_default;
  size_t i = vmp_class_index(bytes);
  if (alignment <= VMP_CLASS_STEP_BYTES) return i;
  // At most 8 steps further the default table has a power of two.
  while (i < slab->num_default && slab->classes[i].object_alignment < alignment) i++;
  return i;
}

vmp_slab_class *vmp_class_for(const vmp_slab *slab, uint64_t bytes, uint64_t alignment) {
  if (vmp_class_is_user(slab, bytes)) {
    const vmp_class_row *row = user_row(slab, bytes, alignment);
    if (row != NULL) return &slab->classes[row->index];
  }
  size_t i = default_class(slab, bytes, alignment);
  return i < slab->num_default ? &slab->classes[i] : NULL;
}

uint64_t vmp_slab_class_bytes(const vmp_slab *slab, uint64_t bytes, uint64_t alignment) {
  if (vmp_class_is_user(slab, bytes)) {
    const vmp_class_row *row = user_row(slab, bytes, alignment);
    uint64_t found = row == NULL ? 0 : atomic_load_explicit(&row->bytes, memory_order_relaxed);
    if (found >= bytes && row != NULL) return found;
  }
  size_t i = default_class(slab, bytes, alignment);
  return i < slab->num_default ? slab->classes[i].bytes : 0;
}
