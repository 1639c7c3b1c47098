// buddy_check.c: every invariant of buddy, each with a sentence of its own (tests/unit/buddy_test.c breaks them one by
// one). Trees first, then the blocks against each other, then the sums.
#include "pool/buddy_internal.h"

typedef unsigned long long ull;

typedef struct sums {
  uint64_t nodes, free_slots, block_slots, piece_slots, blocks, pieces, promised, parted;
  uint64_t free_by_order[VMP_BUDDY_ORDERS];
} sums;

// whole_buddy: the free block that is the other half of this one, or NULL.
static const vmp_buddy_node *whole_buddy(const vmp_buddy *buddy, const vmp_buddy_node *node,
                                         const vmp_buddy_range *range) {
  uint64_t size = UINT64_C(1) << node->tree.size;
  uint64_t low = node->tree.offset & ~size;
  if (node->tree.size + 1 >= VMP_BUDDY_ORDERS || low < range->slot || low - range->slot + 2 * size > range->slots) {
    return NULL;
  }
  uint32_t index = vmp_buddy_holding(buddy, node->tree.offset ^ size);
  if (index == 0) return NULL;
  const vmp_buddy_node *other = vmp_buddy_at(buddy, index);
  bool whole = other->kind == VMP_BUDDY_FREE && other->tree.size == node->tree.size;
  return whole ? other : NULL;
}

static void check_free(const vmp_buddy *buddy, const vmp_buddy_node *node, const vmp_buddy_range *range, sums *sum,
                       vmp_report *report) {
  uint32_t index = vmp_buddy_first_free(buddy, node->tree.size, node->tree.offset);
  if (index == 0 || vmp_buddy_at(buddy, index) != node) {
    vmp_report_fault(report, "buddy: the free block at slot %llu is not found by its order", (ull)node->tree.offset);
  }
  sum->free_slots += vmp_buddy_slots(node);
  sum->free_by_order[node->tree.size]++;
  const vmp_buddy_node *other = whole_buddy(buddy, node, range);
  if (other == NULL || other->tree.offset < node->tree.offset) return;
  sum->parted++;
  if (other->fence.streams == node->fence.streams) {
    vmp_report_fault(report, "buddy: the free halves at slots %llu and %llu have not merged", (ull)node->tree.offset,
                     (ull)other->tree.offset);
  }
}

static void count_used(const vmp_buddy_node *node, sums *sum) {
  sum->promised += vmp_buddy_promised_nodes(node->tree.offset, node->tree.size);
  if (node->kind == VMP_BUDDY_BLOCK) {
    sum->blocks++;
    sum->block_slots += node->tree.size;
  } else {
    sum->pieces++;
    sum->piece_slots += node->tree.size;
  }
}

// check_node: one node by itself, and that it begins where the one before ended. False: the walk can't go on.
static bool check_node(const vmp_buddy *buddy, const vmp_buddy_node *node, const vmp_buddy_range *range, uint64_t at,
                       sums *sum, vmp_report *report) {
  if (node->kind != VMP_BUDDY_FREE && node->kind != VMP_BUDDY_BLOCK && node->kind != VMP_BUDDY_PIECE) {
    vmp_report_fault(report, "buddy: what is at slot %llu is neither free nor used", (ull)node->tree.offset);
    return false;
  }
  if (node->tree.offset != at) {
    vmp_report_fault(report, "buddy: something begins at slot %llu, but the one before ends at %llu",
                     (ull)node->tree.offset, (ull)at);
    return false;
  }
  bool is_free = node->kind == VMP_BUDDY_FREE;
  if (is_free ? node->tree.size >= VMP_BUDDY_ORDERS : node->tree.size == 0) {
    vmp_report_fault(report, "buddy: what is at slot %llu has an impossible length", (ull)node->tree.offset);
    return false;
  }
  uint64_t slots = vmp_buddy_slots(node), power = slots;
  if (slots > range->slot + range->slots - at) {
    vmp_report_fault(report, "buddy: what is at slot %llu reaches out of its range", (ull)node->tree.offset);
    return false;
  }
  if (!is_free) (void)vmp_next_power_of_two(slots, &power);
  // A block that has grown, or what was split off one, may lie anywhere.
  if (node->kind != VMP_BUDDY_BLOCK && node->tree.offset % power != 0) {
    vmp_report_fault(report, "buddy: what is at slot %llu is not aligned to its size", (ull)node->tree.offset);
  }
  sum->nodes++;
  if (is_free) {
    check_free(buddy, node, range, sum, report);
  } else {
    count_used(node, sum);
  }
  return true;
}

// check_range: free blocks and used runs tile the range.
static bool check_range(const vmp_buddy *buddy, const vmp_buddy_range *range, sums *sum, vmp_report *report) {
  uint64_t at = range->slot, end = range->slot + range->slots;
  while (at < end) {
    uint32_t index = vmp_tree_at_least(&buddy->nodes, VMP_TREE_BY_OFFSET, buddy->by_place, (vmp_tree_key){0, at});
    if (index == 0) {
      vmp_report_fault(report, "buddy: nothing is known of slot %llu", (ull)at);
      return false;
    }
    const vmp_buddy_node *node = vmp_buddy_at(buddy, index);
    if (!check_node(buddy, node, range, at, sum, report)) return false;
    at += vmp_buddy_slots(node);
  }
  return true;
}

static void check_sums(const vmp_buddy *buddy, const sums *sum, vmp_report *report) {
  if (sum->nodes != buddy->nodes.used) {
    vmp_report_fault(report, "buddy: %llu blocks and runs, but %u nodes are used", (ull)sum->nodes, buddy->nodes.used);
  }
  if (sum->promised != buddy->nodes.promised) {
    vmp_report_fault(report, "buddy: %u nodes are promised to runs that will need %llu", buddy->nodes.promised,
                     (ull)sum->promised);
  }
  if (sum->parted != buddy->parted) {
    vmp_report_fault(report, "buddy: %llu pairs of free halves are kept apart, but %llu are counted", (ull)sum->parted,
                     (ull)buddy->parted);
  }
  if (sum->free_slots != buddy->free_slots || sum->block_slots != buddy->block_slots ||
      sum->piece_slots != buddy->piece_slots) {
    vmp_report_fault(report,
                     "buddy: %llu + %llu + %llu slots are free, in blocks, in pieces, but %llu + %llu + %llu "
                     "are counted",
                     (ull)sum->free_slots, (ull)sum->block_slots, (ull)sum->piece_slots, (ull)buddy->free_slots,
                     (ull)buddy->block_slots, (ull)buddy->piece_slots);
  }
  if (sum->blocks != buddy->blocks || sum->pieces != buddy->pieces) {
    vmp_report_fault(report, "buddy: %llu blocks and %llu pieces, but %llu and %llu are counted", (ull)sum->blocks,
                     (ull)sum->pieces, (ull)buddy->blocks, (ull)buddy->pieces);
  }
  for (unsigned order = 0; order < VMP_BUDDY_ORDERS; order++) {
    if (sum->free_by_order[order] == buddy->free_by_order[order]) continue;
    vmp_report_fault(report, "buddy: %llu free blocks of order %u, but %llu are counted",
                     (ull)sum->free_by_order[order], order, (ull)buddy->free_by_order[order]);
  }
}

size_t vmp_buddy_check(const vmp_buddy *buddy, vmp_report *report) {
  size_t faults = report->faults;
  vmp_node_pool_check(&buddy->nodes, "buddy nodes", report);
  (void)vmp_tree_check(&buddy->nodes, VMP_TREE_BY_OFFSET, buddy->by_place, "buddy places", report);
  uint64_t free_nodes = vmp_tree_check(&buddy->nodes, VMP_TREE_BY_SIZE, buddy->by_order, "buddy orders", report);
  if (report->faults != faults) return report->faults - faults;  // the trees can't be walked further
  sums sum = {0};
  uint64_t added = 0;
  for (size_t i = 0; i < buddy->num_ranges; i++) {
    const vmp_buddy_range *range = &buddy->ranges[i];
    if (i > 0 && range->slot < buddy->ranges[i - 1].slot + buddy->ranges[i - 1].slots) {
      vmp_report_fault(report, "buddy: the range at slot %llu overlaps the one before", (ull)range->slot);
      return report->faults - faults;
    }
    if (!check_range(buddy, range, &sum, report)) return report->faults - faults;
    added += range->slots;
  }
  if (added != buddy->added_slots) {
    vmp_report_fault(report, "buddy: %llu slots were added, but %llu are counted", (ull)added, (ull)buddy->added_slots);
  }
  uint64_t free_count = 0;
  for (unsigned order = 0; order < VMP_BUDDY_ORDERS; order++) free_count += sum.free_by_order[order];
  if (report->faults == faults && free_count != free_nodes) {
    vmp_report_fault(report, "buddy: %llu blocks are listed by order, but %llu are free", (ull)free_nodes,
                     (ull)free_count);
  }
  check_sums(buddy, &sum, report);
  return report->faults - faults;
}
