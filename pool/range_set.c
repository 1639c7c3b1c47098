// range_set.c: see range_set.h.
#include "pool/range_set.h"

#include <string.h>

// Sizes are told apart in units of this many bytes.
#define UNIT_LOG2 9u

#define SPLIT_LOG2 5u  // log2 of the classes in a doubling

_Static_assert((63 - UNIT_LOG2 - SPLIT_LOG2 + 2) << SPLIT_LOG2 <= VMP_RANGE_CLASSES, "the largest size has a class");
_Static_assert(VMP_RANGE_CLASSES % 64 == 0, "the bitmap has whole words");

// class_of: below 32 units one class per size, above 32 to a doubling. Rises with the size.
static unsigned class_of(uint64_t size) {
  uint64_t units = size >> UNIT_LOG2;
  if (units >> SPLIT_LOG2 == 0) return (unsigned)units;
  unsigned shift = vmp_log2(units) - SPLIT_LOG2;
  return (shift << SPLIT_LOG2) + (unsigned)(units >> shift);
}

void vmp_ranges_init(vmp_range_set *set, vmp_node_pool *nodes) {
  memset(set, 0, sizeof *set);
  set->nodes = nodes;
}

// ---- the two indexes ----
static void index_size(vmp_range_set *set, uint32_t index) {
  const vmp_range *range = vmp_range_at(set, index);
  unsigned class = class_of(range->size);
  vmp_tree_insert(set->nodes, VMP_TREE_BY_SIZE, &set->by_size[class], index);
  set->classes[class / 64] |= UINT64_C(1) << (class % 64);
  set->bytes += range->size;
}

static void unindex_size(vmp_range_set *set, uint32_t index) {
  const vmp_range *range = vmp_range_at(set, index);
  unsigned class = class_of(range->size);
  vmp_tree_remove(set->nodes, VMP_TREE_BY_SIZE, &set->by_size[class], index);
  if (set->by_size[class] == 0) set->classes[class / 64] &= ~(UINT64_C(1) << (class % 64));
  set->bytes -= range->size;
}

// is_alone: nothing else is in the class.
static bool is_alone(const vmp_range_set *set, unsigned class, uint32_t index) {
  const uint32_t *links = vmp_range_at(set, index)->links[VMP_TREE_BY_SIZE];
  return set->by_size[class] == index && links[0] == 0 && links[1] == 0;
}

static void create(vmp_range_set *set, uint64_t offset, uint64_t size) {
  uint32_t index = vmp_node_take(set->nodes);
  vmp_range *range = vmp_tree_at(set->nodes, index);
  range->offset = offset;
  range->size = size;
  vmp_tree_insert(set->nodes, VMP_TREE_BY_OFFSET, &set->by_offset, index);
  index_size(set, index);
  set->count++;
}

static void destroy(vmp_range_set *set, uint32_t index) {
  unindex_size(set, index);
  vmp_tree_remove(set->nodes, VMP_TREE_BY_OFFSET, &set->by_offset, index);
  vmp_node_give(set->nodes, index);
  set->count--;
}

// change moves the ends of a range without passing a neighbour, so that the tree by place stays as it is.
static void change(vmp_range_set *set, uint32_t index, uint64_t offset, uint64_t size) {
  vmp_range *range = vmp_tree_at(set->nodes, index);
  unsigned class = class_of(size);
  if (class == class_of(range->size) && is_alone(set, class, index)) {
    set->bytes += size - range->size;
    range->offset = offset;
    range->size = size;
    return;
  }
  unindex_size(set, index);
  range->offset = offset;
  range->size = size;
  index_size(set, index);
}

// ---- changes ----
void vmp_ranges_add(vmp_range_set *set, uint64_t offset, uint64_t size, uint64_t low_wall, uint64_t high_wall) {
  uint32_t left, right;
  vmp_tree_around(set->nodes, set->by_offset, offset, &left, &right);
  if (left != 0 && (offset <= low_wall || vmp_range_end(vmp_range_at(set, left)) != offset)) left = 0;
  if (right != 0 && (offset + size >= high_wall || vmp_range_at(set, right)->offset != offset + size)) right = 0;
  if (left != 0) {
    uint64_t left_offset = vmp_range_at(set, left)->offset;
    uint64_t total = vmp_range_at(set, left)->size + size;
    if (right != 0) {
      total += vmp_range_at(set, right)->size;
      destroy(set, right);
    }
    change(set, left, left_offset, total);
  } else if (right != 0) {
    change(set, right, offset, size + vmp_range_at(set, right)->size);
  } else {
    create(set, offset, size);
  }
}

void vmp_ranges_take(vmp_range_set *set, uint32_t index, uint64_t offset, uint64_t size) {
  uint64_t from = vmp_range_at(set, index)->offset, end = offset + size;
  uint64_t to = vmp_range_end(vmp_range_at(set, index));
  if (from < offset) {
    change(set, index, from, offset - from);
    if (to > end) create(set, end, to - end);
  } else if (to > end) {
    change(set, index, end, to - end);
  } else {
    destroy(set, index);
  }
}

void vmp_ranges_remove(vmp_range_set *set, uint64_t offset, uint64_t size) {
  uint64_t end = offset + size;
  uint32_t index = vmp_ranges_find(set, offset);
  if (index == 0) index = vmp_ranges_after(set, offset);
  while (index != 0) {
    const vmp_range *range = vmp_range_at(set, index);
    uint64_t to = vmp_range_end(range), low = range->offset > offset ? range->offset : offset;
    if (low >= end) return;
    vmp_ranges_take(set, index, low, (to < end ? to : end) - low);
    if (to >= end) return;
    index = vmp_ranges_after(set, to);
  }
}

// ---- queries ----
uint32_t vmp_ranges_find(const vmp_range_set *set, uint64_t offset) {
  uint32_t index = vmp_tree_at_most(set->nodes, VMP_TREE_BY_OFFSET, set->by_offset, (vmp_tree_key){0, offset});
  if (index == 0) return 0;
  const vmp_range *range = vmp_range_at(set, index);
  return offset - range->offset < range->size ? index : 0;
}

uint32_t vmp_ranges_after(const vmp_range_set *set, uint64_t offset) {
  return vmp_tree_at_least(set->nodes, VMP_TREE_BY_OFFSET, set->by_offset, (vmp_tree_key){0, offset});
}

// first_class_from: the lowest class >= `class` that isn't empty, VMP_RANGE_CLASSES when there is none.
static unsigned first_class_from(const vmp_range_set *set, unsigned class) {
  for (unsigned word = class / 64; word < VMP_RANGE_CLASSES / 64; word++) {
    uint64_t bits = set->classes[word];
    if (word == class / 64) bits &= UINT64_MAX << (class % 64);
    if (bits != 0) return word * 64 + vmp_lowest_bit(bits);
  }
  return VMP_RANGE_CLASSES;
}

// last_class_to: the highest class <= `class` that isn't empty, VMP_RANGE_CLASSES when there is none.
static unsigned last_class_to(const vmp_range_set *set, unsigned class) {
  for (unsigned word = class / 64 + 1; word-- > 0;) {
    uint64_t bits = set->classes[word];
    if (word == class / 64) bits &= UINT64_MAX >> (63 - class % 64);
    if (bits != 0) return word * 64 + vmp_log2(bits);
  }
  return VMP_RANGE_CLASSES;
}

static uint32_t at_least(const vmp_range_set *set, vmp_tree_key key) {
  unsigned class = class_of(key.size);
  uint32_t index = vmp_tree_at_least(set->nodes, VMP_TREE_BY_SIZE, set->by_size[class], key);
  if (index != 0) return index;
  class = first_class_from(set, class + 1);
  if (class == VMP_RANGE_CLASSES) return 0;
  return vmp_tree_at_least(set->nodes, VMP_TREE_BY_SIZE, set->by_size[class], (vmp_tree_key){0, 0});
}

static uint32_t at_most(const vmp_range_set *set, vmp_tree_key key) {
  unsigned class = class_of(key.size);
  uint32_t index = vmp_tree_at_most(set->nodes, VMP_TREE_BY_SIZE, set->by_size[class], key);
  if (index != 0 || class == 0) return index;
  class = last_class_to(set, class - 1);
  if (class == VMP_RANGE_CLASSES) return 0;
  return vmp_tree_at_most(set->nodes, VMP_TREE_BY_SIZE, set->by_size[class], (vmp_tree_key){UINT64_MAX, UINT64_MAX});
}

uint32_t vmp_ranges_fitting(const vmp_range_set *set, uint64_t size) { return at_least(set, (vmp_tree_key){size, 0}); }

uint32_t vmp_ranges_next_larger(const vmp_range_set *set, uint32_t index) {
  const vmp_range *range = vmp_range_at(set, index);
  return at_least(set, (vmp_tree_key){range->size, range->offset + 1});
}

uint32_t vmp_ranges_largest(const vmp_range_set *set) { return at_most(set, (vmp_tree_key){UINT64_MAX, UINT64_MAX}); }

uint32_t vmp_ranges_next_smaller(const vmp_range_set *set, uint32_t index) {
  const vmp_range *range = vmp_range_at(set, index);
  if (range->offset > 0) return at_most(set, (vmp_tree_key){range->size, range->offset - 1});
  return range->size == 0 ? 0 : at_most(set, (vmp_tree_key){range->size - 1, UINT64_MAX});
}

// ---- check ----
void vmp_ranges_check(const vmp_range_set *set, const char *name, bool (*touching)(const void *context, uint64_t at),
                      const void *context, vmp_report *report) {
  size_t faults = report->faults;
  uint64_t sized = 0;
  for (unsigned class = 0; class < VMP_RANGE_CLASSES; class ++) {
    bool marked = (set->classes[class / 64] >> (class % 64) & 1) != 0;
    if (marked != (set->by_size[class] != 0)) {
      vmp_report_fault(report, "%s: the bitmap is wrong about size class %u", name, class);
    }
    sized += vmp_tree_check(set->nodes, VMP_TREE_BY_SIZE, set->by_size[class], name, report);
  }
  uint64_t placed = vmp_tree_check(set->nodes, VMP_TREE_BY_OFFSET, set->by_offset, name, report);
  if (report->faults != faults) return;  // the trees can't be walked further
  uint64_t bytes = 0, last_end = 0;
  bool first = true;
  for (uint32_t i = vmp_ranges_after(set, 0); i != 0; i = vmp_ranges_after(set, vmp_range_at(set, i)->offset + 1)) {
    const vmp_range *range = vmp_range_at(set, i);
    if (range->size == 0)
      vmp_report_fault(report, "%s: the range at %#llx is empty", name, (unsigned long long)range->offset);
    if (!first && range->offset < last_end) {
      vmp_report_fault(report, "%s: the range at %#llx overlaps the one before", name,
                       (unsigned long long)range->offset);
    }
    if (!first && range->offset == last_end && (touching == NULL || !touching(context, last_end))) {
      vmp_report_fault(report, "%s: two ranges touch at %#llx", name, (unsigned long long)last_end);
    }
    unsigned class = class_of(range->size);
    vmp_tree_key key = {range->size, range->offset};
    if (vmp_tree_at_least(set->nodes, VMP_TREE_BY_SIZE, set->by_size[class], key) != i) {
      vmp_report_fault(report, "%s: the range at %#llx is not found by its size", name,
                       (unsigned long long)range->offset);
    }
    bytes += range->size;
    last_end = vmp_range_end(range);
    first = false;
  }
  if (placed != set->count || sized != set->count) {
    vmp_report_fault(report, "%s: %llu ranges by place, %llu by size, %llu counted", name, (unsigned long long)placed,
                     (unsigned long long)sized, (unsigned long long)set->count);
  }
  if (bytes != set->bytes) {
    vmp_report_fault(report, "%s: the ranges hold %llu bytes, but %llu are counted", name, (unsigned long long)bytes,
                     (unsigned long long)set->bytes);
  }
}
