// space.c: the pool's address space: reservations, mid's arenas, the memory that is mapped at creation. See pool.h.
//
//     reservation 0   [ arena | arena | blocks of buddy ...           ]      reservation 1 [ ... ]
//     handed           1 bit per slot: has a block ever begun in it?
//
// Invariants
//   - Every reservation that buddy knows is in `reservations`, with its bits; they are disjoint.
//   - Bits are only ever set.
#include <inttypes.h>
#include <string.h>

#include "pool/log.h"
#include "pool/option_text.h"
#include "vmm/memory.h"

// How far below the asked size a refused reservation is tried, to tell the user what would work.
#define SMALLEST_PROBE_BYTES (UINT64_C(64) << 20)

static size_t words_of(const vmp_pool *pool, uint64_t bytes) {
  return (size_t)(bytes / pool->device.granule_bytes + 63) / 64;
}

// hand_to_buddy makes a reservation usable: its bits, its place in the list, buddy's own bookkeeping.
static vmp_status hand_to_buddy(vmp_pool *pool, uint64_t offset, uint64_t bytes) {
  size_t n = pool->num_reservations;
  uint64_t *handed = vmp_mem_calloc(words_of(pool, bytes), sizeof *handed);
  vmp_reservation *list = vmp_mem_calloc(n + 1, sizeof *list);
  vmp_span_range *range = vmp_span_range_make(vmp_backing_address(pool->backing, offset), bytes);
  vmp_status status = VMP_OK;
  if (handed == NULL || list == NULL || range == NULL) {
    status = vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY,
                      "no host memory for the bookkeeping of %" PRIu64
                      " bytes of "
                      "address space",
                      bytes);
  }
  if (status == VMP_OK) status = vmp_buddy_add(pool->buddy, offset, bytes);
  if (status != VMP_OK) {
    vmp_mem_free(handed);
    vmp_mem_free(list);
    vmp_span_range_drop(range);
    return status;
  }
  vmp_span_map_link(&pool->span_map, range);
  if (n > 0) memcpy(list, pool->reservations, n * sizeof *list);
  list[n] = (vmp_reservation){offset, bytes, handed, vmp_backing_address(pool->backing, offset)};
  vmp_mem_free(pool->reservations);
  pool->reservations = list;
  pool->num_reservations = n + 1;
  return VMP_OK;
}

// reserve asks backing for addresses and hands them to buddy. What backing gave and buddy couldn't take is kept for
// the next time: addresses can't be given back one by one.
static vmp_status reserve(vmp_pool *pool, uint64_t bytes, uint64_t minimum_bytes, uint64_t *out_bytes) {
  vmp_reservation *unadded = &pool->unadded;
  if (unadded->bytes < minimum_bytes) {
    uint64_t offset, got;
    vmp_status status = vmp_backing_reserve(pool->backing, bytes, minimum_bytes, &offset, &got);
    if (status != VMP_OK) return status;
    *unadded = (vmp_reservation){.offset = offset, .bytes = got};
  }
  vmp_status status = hand_to_buddy(pool, unadded->offset, unadded->bytes);
  if (status != VMP_OK) return status;
  vmp_log_range(pool, unadded->offset, unadded->bytes);
  if (out_bytes != NULL) *out_bytes = unadded->bytes;
  unadded->bytes = 0;
  return VMP_OK;
}

// largest_aligned returns the largest power of two that fits aligned into [offset, offset + bytes).
static uint64_t largest_aligned(uint64_t offset, uint64_t bytes) {
  for (uint64_t power = UINT64_C(1) << vmp_log2(bytes); power > 1; power /= 2) {
    uint64_t start, end;
    if (vmp_align_up(offset, power, &start) && vmp_add(start, power, &end) && end <= offset + bytes) return power;
  }
  return 1;
}

// possible_reservation finds what the driver would give, for the message. 0: nothing useful.
static uint64_t possible_reservation(vmp_pool *pool, uint64_t bytes) {
  for (bytes /= 2; bytes >= SMALLEST_PROBE_BYTES; bytes /= 2) {
    uint64_t address = 0;
    vmp_guard_unlock(&pool->guard);
    int code = vmp_drv_mem_address_reserve(pool->driver, &address, (size_t)bytes, 0, 0, 0);
    if (code == VMP_CU_SUCCESS) (void)vmp_drv_mem_address_free(pool->driver, address, (size_t)bytes);
    vmp_guard_lock(&pool->guard);
    if (code == VMP_CU_SUCCESS) return bytes;
  }
  return 0;
}

static vmp_status fail_to_open(vmp_pool *pool, uint64_t minimum_bytes) {
  char asked[32], least[32], possible[32];
  uint64_t works = possible_reservation(pool, minimum_bytes);
  (void)vmp_print_size(pool->config.reserve, asked, sizeof asked);
  (void)vmp_print_size(minimum_bytes, least, sizeof least);
  (void)vmp_print_size(works, possible, sizeof possible);
  if (works == 0) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE,
                    "the driver gives no address space: %s and every half of it down "
                    "to %s was refused; other reservations of this process must go first",
                    asked, least);
  }
  return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE,
                  "the driver refused %s of address space and every half of it down "
                  "to %s, the size of the device's memory; it would give %s: ask for it with reserve:%s",
                  asked, least, possible, possible);
}

vmp_status vmp_space_open(vmp_pool *pool) {
  vmp_config *config = &pool->config;
  uint64_t minimum = pool->device.total_bytes, got = 0;
  if (minimum > VMP_MEMORY_BASIS) minimum = VMP_MEMORY_BASIS;
  if (minimum > config->reserve) minimum = config->reserve;
  if (!vmp_align_up(minimum, config->chunk_max, &minimum)) minimum = config->reserve;
  vmp_status status = reserve(pool, config->reserve, minimum, &got);
  if (status == VMP_ERROR_OUT_OF_ADDRESS_SPACE) return fail_to_open(pool, minimum);
  if (status != VMP_OK) return status;
  config->adjusted[VMP_OPTION_reserve] |= got != config->reserve;
  config->reserve = got;
  pool->first_reserve_bytes = got;
  // An arena must fit, aligned to its size, and leave room for others.
  uint64_t most = largest_aligned(pool->reservations[0].offset, got);
  if (config->arena > most) {
    config->arena = most;
    config->adjusted[VMP_OPTION_arena] = true;
  }
  return VMP_OK;
}

vmp_status vmp_space_add(vmp_pool *pool, uint64_t bytes, uint64_t alignment) {
  if (pool->reserving) {  // another thread is at it: let it finish, then the caller tries again
    vmp_guard_wait(&pool->guard);
    return VMP_OK;
  }
  if (vmp_regions_give_back(pool)) return VMP_OK;
  uint64_t power, minimum;
  if (bytes < alignment) bytes = alignment;
  if (bytes < pool->config.chunk_max) bytes = pool->config.chunk_max;
  // Wherever the range begins, twice the size holds an aligned block.
  if (!vmp_next_power_of_two(bytes, &power) || !vmp_mul(power, 2, &minimum)) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "%" PRIu64 " bytes are larger than any address space", bytes);
  }
  uint64_t wanted = minimum > pool->first_reserve_bytes ? minimum : pool->first_reserve_bytes;
  pool->reserving = true;
  vmp_status status = reserve(pool, wanted, minimum, NULL);
  pool->reserving = false;
  vmp_guard_wake_all(&pool->guard);
  return status;
}

// ---- arenas ----

vmp_status vmp_space_take_arena(vmp_pool *pool, uint64_t bytes, uint64_t alignment, uint64_t *out_offset,
                                uint64_t *out_bytes, vmp_fence *out_fence) {
  if (pool->first_arena_bytes >= bytes && pool->first_arena_offset % alignment == 0 && pool->first_arena_bytes != 0) {
    *out_offset = pool->first_arena_offset;
    *out_bytes = pool->first_arena_bytes;
    *out_fence = VMP_FENCE_NONE;
    pool->first_arena_bytes = 0;
    return VMP_OK;
  }
  return vmp_buddy_take_piece(pool->buddy, bytes, alignment, true, out_offset, out_bytes, out_fence);
}

void vmp_space_give_arena(vmp_pool *pool, uint64_t offset, vmp_fence fence) {
  vmp_buddy_free(pool->buddy, offset, fence);
}

// open_first_arena makes mid take the arena now, so that it knows its mapped memory before the first request.
static vmp_status open_first_arena(vmp_pool *pool) {
  vmp_request request = {.bytes = VMP_MID_STEP_BYTES, .alignment = VMP_MID_STEP_BYTES, .effort = VMP_EFFORT_NORMAL};
  vmp_placed placed;
  vmp_status status = vmp_mid_alloc(pool->mid, &request, NULL, &placed);
  if (status == VMP_OK) (void)vmp_mid_free(pool->mid, placed.offset, VMP_FENCE_NONE);
  return status;
}

vmp_status vmp_space_map_initial(vmp_pool *pool, uint64_t bytes, uint64_t *out_mapped) {
  uint64_t power, offset, room;
  vmp_fence fence;
  if (bytes < pool->config.arena) {
    power = pool->config.arena;
  } else if (!vmp_next_power_of_two(bytes, &power)) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "%" PRIu64 " bytes are larger than any address space", bytes);
  }
  vmp_status status = vmp_buddy_take_piece(pool->buddy, power, pool->config.chunk_max, true, &offset, &room, &fence);
  if (status != VMP_OK) return status;
  *out_mapped = vmp_backing_map_ahead(pool->backing, offset, room, bytes);
  if (pool->slab == NULL && pool->config.buddy_from == 0) {
    vmp_buddy_free(pool->buddy, offset, VMP_FENCE_NONE);  // mid is not used: buddy's blocks go there
    return VMP_OK;
  }
  pool->first_arena_offset = offset;
  pool->first_arena_bytes = room;
  return *out_mapped == 0 ? VMP_OK : open_first_arena(pool);
}

// ---- what was ever handed out ----

static vmp_reservation *reservation_of(const vmp_pool *pool, uint64_t offset) {
  for (size_t i = 0; i < pool->num_reservations; i++) {
    vmp_reservation *r = &pool->reservations[i];
    if (offset >= r->offset && offset - r->offset < r->bytes) return r;
  }
  return NULL;
}

void vmp_space_mark_handed(vmp_pool *pool, uint64_t offset) {
  vmp_reservation *r = reservation_of(pool, offset);
  if (r == NULL) return;
  uint64_t slot = (offset - r->offset) >> pool->granule_log2;
  r->handed[slot / 64] |= UINT64_C(1) << (slot % 64);
}

bool vmp_space_was_handed(const vmp_pool *pool, uint64_t offset) {
  const vmp_reservation *r = reservation_of(pool, offset);
  if (r == NULL) return false;
  uint64_t slot = (offset - r->offset) >> pool->granule_log2;
  return (r->handed[slot / 64] >> (slot % 64) & 1) != 0;
}

void vmp_space_close(vmp_pool *pool) {
  for (size_t i = 0; i < pool->num_reservations; i++) vmp_mem_free(pool->reservations[i].handed);
  vmp_mem_free(pool->reservations);
  pool->reservations = NULL;
  pool->num_reservations = 0;
}
