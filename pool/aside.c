// aside.c: setting memory aside, drawing on it, giving it back. See aside.h.
#include "pool/aside.h"

#include <inttypes.h>

#include "pool/pool.h"
#include "vmm/backing_share.h"
#include "vmm/memory.h"

#define MAX_BYTES (UINT64_C(1) << 47)

struct vmp_aside {
  vmp_aside *next;
  vmp_ticket id;
  uint64_t offset, bytes;  // of mid's block; bytes 0: there is none
  vmp_fence fence;         // who may still touch the memory
  uint32_t users;          // threads that draw on it without the lock
};

static vmp_aside *find(const vmp_pool *pool, vmp_ticket id) {
  vmp_aside *aside = pool->asides.first;
  while (aside != NULL && aside->id != id) aside = aside->next;
  return aside;
}

static vmp_status no_ticket(vmp_ticket id) {
  return vmp_fail(VMP_ERROR_INVALID_VALUE, "there is no ticket %" PRIu64 "; it may have been returned", id);
}

// ---- set aside ----

static vmp_status set_aside_locked(vmp_pool *pool, vmp_plan *plan, vmp_aside *aside) {
  vmp_placed placed;
  vmp_status status = vmp_oom_refuse(pool, plan);
  if (status == VMP_OK) status = vmp_ladder_take(pool, plan, &placed);
  if (status != VMP_OK) return status;
  vmp_backing_keep_apart(pool->backing, placed.offset, placed.bytes);
  pool->unsettled_bytes[VMP_LAYER_MID] -= placed.bytes;
  pool->asides.bytes += placed.bytes;
  *aside = (vmp_aside){.next = pool->asides.first,
                       .id = ++pool->asides.last,
                       .offset = placed.offset,
                       .bytes = placed.bytes,
                       .fence = vmp_fence_merge(placed.after, placed.fence)};
  pool->asides.first = aside;
  return VMP_OK;
}

vmp_status vmp_pool_set_aside_bytes(vmp_pool *pool, uint64_t bytes, vmp_ticket *out_ticket) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (out_ticket == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the address of the result is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  if (bytes == 0) return vmp_fail(VMP_ERROR_INVALID_VALUE, "0 bytes were to be set aside; at least one can be");
  if (bytes > MAX_BYTES) {
    return vmp_fail(VMP_ERROR_OUT_OF_MEMORY,
                    "%" PRIu64 " bytes were to be set aside, more than any address space holds", bytes);
  }
  // Whole slots: their chunks hold nobody's edges.
  uint64_t granule = pool->device.granule_bytes;
  vmp_plan plan = {.requested_bytes = bytes,
                   .layer = VMP_LAYER_MID,
                   .request = {.alignment = granule, .stream = VMP_CLOCK_ANYONE, .isolated = true}};
  (void)vmp_align_up(bytes, granule, &plan.request.bytes);
  vmp_aside *aside = vmp_mem_calloc(1, sizeof *aside);
  if (aside == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the record of a ticket");
  vmp_guard_lock(&pool->guard);
  vmp_status status = set_aside_locked(pool, &plan, aside);
  vmp_ticket id = aside->id;
  vmp_guard_unlock(&pool->guard);
  if (status != VMP_OK) {
    vmp_mem_free(aside);
    return status;
  }
  *out_ticket = id;
  return VMP_OK;
}

// ---- draw ----

void vmp_aside_route(vmp_plan *plan, vmp_ticket ticket, vmp_stream stream) {
  plan->layer = VMP_LAYER_MID;
  (void)vmp_align_up(plan->requested_bytes, VMP_STEP_BYTES, &plan->request.bytes);
  plan->ticket = ticket;
  plan->stream = stream;
}

// place finds where the block would begin: at the ticket's end.
static vmp_status place(const vmp_aside *aside, const vmp_plan *plan, uint64_t *out_offset) {
  uint64_t end = aside->offset + aside->bytes;
  if (aside->bytes >= plan->request.bytes) {
    *out_offset = vmp_align_down(end - plan->request.bytes, plan->request.alignment);
    if (*out_offset >= aside->offset) return VMP_OK;
  }
  return vmp_fail(VMP_ERROR_LIMIT,
                  "%" PRIu64 " bytes aligned to %" PRIu64 " were to be drawn on ticket %" PRIu64 ", which has %" PRIu64
                  " bytes left",
                  plan->requested_bytes, plan->request.alignment, aside->id, aside->bytes);
}

// order makes the stream wait for what the memory was used for, without the lock. Captured work can't wait.
static vmp_status order(vmp_pool *pool, vmp_aside *aside, const vmp_plan *plan) {
  vmp_stream_index index = plan->graph != NULL ? VMP_CLOCK_ANYONE : plan->request.stream;
  vmp_fence fence = aside->fence;
  aside->users++;
  vmp_guard_unlock(&pool->guard);
  vmp_status status = vmp_clock_poll(pool->clock, fence);
  vmp_fence left = vmp_clock_others(pool->clock, fence, index);
  bool unfinished = status == VMP_OK && !vmp_fence_is_none(left);
  if (unfinished && plan->graph != NULL) {
    status = vmp_fail(VMP_ERROR_CAPTURE, "ticket %" PRIu64 " has memory under unfinished work, and the stream captures",
                      plan->ticket);
  } else if (unfinished) {
    status = vmp_clock_order(pool->clock, plan->stream, left);
  }
  vmp_guard_lock(&pool->guard);
  aside->users--;
  if (status == VMP_OK && unfinished) pool->unfinished_wait_allocs++;
  return status;
}

vmp_status vmp_aside_take(vmp_pool *pool, vmp_plan *plan, vmp_placed *out_placed) {
  vmp_aside *aside = find(pool, plan->ticket);
  if (aside == NULL) return no_ticket(plan->ticket);
  uint64_t offset = 0;
  vmp_status status = place(aside, plan, &offset);
  bool needs_order = !vmp_clock_known_complete(pool->clock, aside->fence);
  if (status == VMP_OK && needs_order) status = order(pool, aside, plan);
  if (status == VMP_OK && needs_order) status = place(aside, plan, &offset);  // others may have drawn meanwhile
  if (status == VMP_OK && offset > aside->offset) status = vmp_mid_divide(pool->mid, aside->offset, offset);
  if (status != VMP_OK) return status;
  uint64_t bytes = aside->offset + aside->bytes - offset;
  aside->bytes -= bytes;
  pool->asides.bytes -= bytes;
  // Dividing has parked the chunks for a moment, which makes them anybody's hosts again.
  if (aside->bytes > 0) vmp_backing_keep_apart(pool->backing, aside->offset, aside->bytes);
  pool->unsettled_bytes[VMP_LAYER_MID] += bytes;
  *out_placed = (vmp_placed){.offset = offset, .bytes = bytes};
  return VMP_OK;
}

// ---- return ----

static void give_back(vmp_pool *pool, vmp_aside *aside) {
  vmp_aside **link = &pool->asides.first;
  while (*link != aside) link = &(*link)->next;
  *link = aside->next;
  pool->asides.bytes -= aside->bytes;
  if (aside->bytes > 0) vmp_route_release(pool, VMP_LAYER_MID, aside->offset, aside->fence);
  vmp_mem_free(aside);
}

vmp_status vmp_pool_set_aside_return(vmp_pool *pool, vmp_ticket ticket) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  vmp_aside *aside = find(pool, ticket);
  vmp_status status = aside == NULL ? no_ticket(ticket) : VMP_OK;
  if (aside != NULL && aside->users > 0) {
    status = vmp_fail(VMP_ERROR_BUSY, "another thread is drawing on ticket %" PRIu64, ticket);
  }
  if (status == VMP_OK) give_back(pool, aside);
  if (status == VMP_OK && pool->over_limit) vmp_limits_shrink(pool);
  vmp_guard_unlock(&pool->guard);
  return status;
}

vmp_status vmp_pool_set_aside_left(vmp_pool *pool, vmp_ticket ticket, uint64_t *out_bytes) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (out_bytes == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the address of the result is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  const vmp_aside *aside = find(pool, ticket);
  vmp_status status = aside == NULL ? no_ticket(ticket) : VMP_OK;
  if (aside != NULL) *out_bytes = aside->bytes;
  vmp_guard_unlock(&pool->guard);
  return status;
}

// ---- the end, and looking ----

void vmp_asides_close(vmp_pool *pool) {
  while (pool->asides.first != NULL) give_back(pool, pool->asides.first);
}

void vmp_asides_free(vmp_asides *asides) {
  while (asides->first != NULL) {
    vmp_aside *aside = asides->first;
    asides->first = aside->next;
    vmp_mem_free(aside);
  }
}

uint64_t vmp_asides_count(const vmp_asides *asides) {
  uint64_t count = 0;
  for (const vmp_aside *aside = asides->first; aside != NULL; aside = aside->next) count++;
  return count;
}

void vmp_asides_check(vmp_pool *pool, vmp_report *report) {
  uint64_t sum = 0;
  for (const vmp_aside *aside = pool->asides.first; aside != NULL; aside = aside->next) {
    uint64_t start = 0, bytes = 0;
    sum += aside->bytes;
    if (aside->bytes == 0) continue;
    if (!vmp_mid_find(pool->mid, aside->offset, &start, &bytes, NULL) || start != aside->offset ||
        bytes != aside->bytes || vmp_books_get(pool, aside->offset) != 0) {
      vmp_report_fault(report, "aside: ticket %" PRIu64 " is not the used block that it says", aside->id);
    }
  }
  if (sum != pool->asides.bytes) {
    vmp_report_fault(report, "aside: tickets have %" PRIu64 " bytes; the count is %" PRIu64, sum, pool->asides.bytes);
  }
}
