// backing_gather.c: idle chunks are remapped behind one another, so that a free range becomes wholly mapped.
//
//     before   [ A A |   | B |    |  . . .    C . D ]      C, D parked elsewhere; the range is [ A ... B ... )
//     after    [ A A | C | B | D  |  ~ . . .  ~ . ~ ]      their old slots retire and then are unmapped
//
// What of the range is mapped already is claimed first, so that no chunk of it is taken for its own holes. Then the
// holes are claimed in batches, with VMP_EFFORT_TAKE. In the end all claims are released, with no fence: each chunk
// keeps its own.
//
// A look (vmp_backing_look_gather) plays the same on numbers of chunks by size, and touches no record.
#include <string.h>
#include <time.h>

#include "vmm/align.h"
#include "vmm/backing_internal.h"
#include "vmm/memory.h"

// Slots that one claim maps. Between two, the clock is looked at.
#define BATCH_SLOTS 256u

// ---- looking ----

// Idle chunks by size, in the order in which they are taken.
typedef enum idle_kind { IDLE_SPARE = 0, IDLE_COMPLETE, IDLE_PENDING, IDLE_KINDS } idle_kind;

typedef struct idle_counts {
  uint64_t count[IDLE_KINDS][CHUNK_ORDERS];
} idle_counts;

static idle_kind kind_of(const vmp_backing *b, const chunk *c) {
  vmp_fence fence = chunk_users(c);
  return vmp_clock_known_complete(b->options.clock, fence) ? IDLE_COMPLETE : IDLE_PENDING;
}

static void count_idle(const vmp_backing *b, idle_counts *idle) {
  memset(idle, 0, sizeof *idle);
  for (unsigned order = 0; order < CHUNK_ORDERS; order++) {
    idle->count[IDLE_SPARE][order] = b->chunks.spare[order].count;
    for (uint32_t id = b->chunks.parked[order].head; id != 0; id = backing_chunk(b, id)->next) {
      idle->count[kind_of(b, backing_chunk(b, id))][order]++;
    }
  }
  if (!backing_may_move_pending(b)) memset(idle->count[IDLE_PENDING], 0, sizeof idle->count[IDLE_PENDING]);
}

// leave_out takes the range's own chunks off the counts. False: a slot of it is blocked.
static bool leave_out(const vmp_backing *b, uint64_t slot, uint64_t end, idle_counts *idle) {
  while (slot < end) {
    uint32_t word = backing_word(b, slot);
    if (word_is_home(word)) {
      const chunk *c = backing_chunk(b, word & WORD_INDEX);
      if ((c->state != CHUNK_PARKED && c->state != CHUNK_LIVE) || (c->sealed | c->lost) != 0) return false;
      if (c->state == CHUNK_PARKED && !c->page) {
        uint64_t *count = &idle->count[kind_of(b, c)][c->order];
        if (*count > 0) (*count)--;
      }
      slot = c->home + chunk_slots(c);
    } else if (word_is_place(word) || !backing_has_slot(b, slot)) {
      return false;
    } else {
      slot = backing_skip_unmapped(b, slot, end);
    }
  }
  return true;
}

// take_fitting takes the chunk that a plan would: the largest that fits, of the first kind that has one; else the
// smallest that is too large, where there is room for it.
static bool take_fitting(idle_counts *idle, uint64_t left, uint64_t room, unsigned *out_order, idle_kind *out_kind) {
  static const idle_kind larger_first[IDLE_KINDS] = {IDLE_COMPLETE, IDLE_PENDING, IDLE_SPARE};
  unsigned fit = vmp_log2(left) < CHUNK_ORDERS ? vmp_log2(left) : CHUNK_ORDERS - 1;
  for (unsigned kind = 0; kind < IDLE_KINDS; kind++) {
    for (unsigned order = fit + 1; order-- > 0;) {
      if (idle->count[kind][order] == 0) continue;
      *out_order = order;
      *out_kind = (idle_kind)kind;
      idle->count[kind][order]--;
      return true;
    }
  }
  for (unsigned order = fit + 1; order < CHUNK_ORDERS && (UINT64_C(1) << order) <= room; order++) {
    for (unsigned i = 0; i < IDLE_KINDS; i++) {
      if (idle->count[larger_first[i]][order] == 0) continue;
      *out_order = order;
      *out_kind = larger_first[i];
      idle->count[larger_first[i]][order]--;
      return true;
    }
  }
  return false;
}

static bool look_at_hole(const vmp_backing *b, hole h, idle_counts *idle, vmp_gather_cost *cost) {
  uint64_t below = h.slot - h.low, above = h.high - h.end, left = h.end - h.slot;
  cost->calls.set_access += left / BATCH_SLOTS + 1;
  while (left > 0) {
    unsigned order;
    idle_kind kind;
    if (!take_fitting(idle, left, left + above + below, &order, &kind)) return false;
    uint64_t slots = UINT64_C(1) << order;
    cost->chunks++;
    cost->bytes += slots << b->granule_log2;
    cost->calls.map++;
    if (kind != IDLE_SPARE) cost->calls.unmap++;
    left = slots < left ? left - slots : 0;
    below = 0;
  }
  return true;
}

void vmp_backing_look_gather(const vmp_backing *b, uint64_t offset, uint64_t bytes, vmp_gather_cost *out_cost) {
  uint64_t first = backing_first_slot(b, offset), end = backing_end_slot(b, offset, bytes), slot = first;
  idle_counts idle;
  memset(out_cost, 0, sizeof *out_cost);
  count_idle(b, &idle);
  if (!leave_out(b, first, end, &idle)) return;
  while (slot < end) {
    uint32_t word = backing_word(b, slot);
    if (word_is_home(word)) {
      const chunk *c = backing_chunk(b, word & WORD_INDEX);
      slot = c->home + chunk_slots(c);
      continue;
    }
    hole h = {.slot = slot, .end = backing_skip_unmapped(b, slot, end)};
    backing_room_around(b, &h, h.slot == first, h.end == end, UINT64_C(1) << b->chunk_max_order);
    if (!look_at_hole(b, h, &idle, out_cost)) return;
    slot = h.end;
  }
  out_cost->possible = true;
}

// ---- gathering ----

typedef struct claimed {
  uint64_t offset, bytes;
} claimed;

typedef struct claim_list {
  claimed *all;
  size_t count, capacity;
} claim_list;

static bool make_room(claim_list *list) {
  if (list->count < list->capacity) return true;
  size_t capacity = list->capacity == 0 ? 16 : list->capacity * 2;
  claimed *all = vmp_mem_resize(list->all, list->capacity, capacity, sizeof *all);
  if (all == NULL) return false;
  list->all = all;
  list->capacity = capacity;
  return true;
}

static vmp_status claim_part(vmp_backing *b, claim_list *list, uint64_t offset, uint64_t bytes, vmp_effort effort,
                             vmp_gather_report *report) {
  if (!make_room(list)) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to gather idle chunks");
  vmp_fence ignored;  // nobody uses the memory: the fences stay with the chunks
  vmp_status status = backing_claim(b, offset, bytes, 0, effort, false, report, &ignored);
  if (status == VMP_OK) list->all[list->count++] = (claimed){offset, bytes};
  return status;
}

static vmp_status pin_mapped(vmp_backing *b, const vmp_backing_ops *ops, claim_list *list, uint64_t at, uint64_t end,
                             vmp_gather_report *report) {
  vmp_status status = VMP_OK;
  for (uint64_t next = end; status == VMP_OK && at < end; at = next) {
    if (ops->run(b, at, end, &next) != VMP_RUN_MAPPED) continue;
    status = claim_part(b, list, at, next - at, VMP_EFFORT_MAPPED, report);
  }
  return status;
}

static bool time_is_up(uint64_t deadline_us) {
  struct timespec now;
  if (deadline_us == UINT64_MAX || clock_gettime(CLOCK_MONOTONIC, &now) != 0) return false;
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000 >= deadline_us;
}

static vmp_status fill(vmp_backing *b, const vmp_backing_ops *ops, claim_list *list, uint64_t at, uint64_t end,
                       uint64_t deadline_us, vmp_gather_report *report) {
  while (at < end) {
    uint64_t next = end;
    vmp_run_state state = ops->run(b, at, end, &next);
    if (state == VMP_RUN_BLOCKED) return vmp_fail(VMP_ERROR_BUSY, "part of the range is being remapped");
    if (state == VMP_RUN_UNMAPPED) {
      if (time_is_up(deadline_us)) return vmp_fail(VMP_ERROR_TIMEOUT, "the time given for gathering is up");
      uint64_t batch = vmp_align_down(at, b->granule_bytes) + ((uint64_t)BATCH_SLOTS << b->granule_log2);
      if (next > batch) next = batch;
      vmp_status status = claim_part(b, list, at, next - at, VMP_EFFORT_TAKE, report);
      if (status != VMP_OK) return status;
    }
    at = next;
  }
  return VMP_OK;
}

vmp_status vmp_backing_gather(vmp_backing *b, uint64_t offset, uint64_t bytes, uint64_t deadline_us,
                              vmp_gather_report *report) {
  vmp_backing_ops ops = vmp_backing_get_ops(b);
  claim_list list = {0};
  vmp_status status = pin_mapped(b, &ops, &list, offset, offset + bytes, report);
  if (status == VMP_OK) status = fill(b, &ops, &list, offset, offset + bytes, deadline_us, report);
  for (size_t i = 0; i < list.count; i++) (void)ops.release(b, list.all[i].offset, list.all[i].bytes, VMP_FENCE_NONE);
  vmp_mem_free(list.all);
  return status;
}
