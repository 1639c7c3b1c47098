// pin.c: pins, generations and the registration of callbacks. See vmpool_pin.h and pin.h.
#include "pool/pin.h"

#include <inttypes.h>

#include "pool/pool.h"

void vmp_pins_init(vmp_pins *pins) { vmp_node_pool_init(&pins->records, sizeof(vmp_pin_record)); }

void vmp_pins_free(vmp_pins *pins) {
  vmp_node_pool_finish(&pins->records);
  vmp_offset_map_free(&pins->newest);
}

static vmp_pin_record *record_at(const vmp_pins *pins, uint64_t index) {
  return vmp_node_at(&pins->records, (uint32_t)index);
}

uint64_t vmp_pins_at(const vmp_pins *pins, uint64_t offset) {
  const uint64_t *newest = vmp_offset_map_find(&pins->newest, offset);
  uint64_t count = 0;
  for (uint64_t at = newest == NULL ? 0 : *newest; at != 0; at = record_at(pins, at)->older) {
    count += record_at(pins, at)->count;
  }
  return count;
}

typedef struct pin_walk {
  const vmp_pins *pins;
  vmp_pin_fn fn;
  void *context;
} pin_walk;

static void see_newest(void *context, uint64_t offset, uint64_t index) {
  const pin_walk *walk = context;
  (void)offset;
  for (; index != 0; index = record_at(walk->pins, index)->older) walk->fn(walk->context, record_at(walk->pins, index));
}

void vmp_pins_walk(const vmp_pins *pins, vmp_pin_fn fn, void *context) {
  pin_walk walk = {pins, fn, context};
  vmp_offset_map_walk(&pins->newest, see_newest, &walk);
}

typedef struct overlap {
  uint64_t offset, bytes;
  bool found;
} overlap;

static void see_overlap(void *context, const vmp_pin_record *record) {
  overlap *at = context;
  if (record->offset < at->offset + at->bytes && at->offset < record->offset + record->bytes) at->found = true;
}

bool vmp_pins_touch(const vmp_pins *pins, uint64_t offset, uint64_t bytes) {
  overlap at = {offset, bytes, false};
  if (pins->newest.entries > 0) vmp_pins_walk(pins, see_overlap, &at);
  return at.found;
}

uint64_t vmp_pins_metadata_bytes(const vmp_pins *pins) {
  return vmp_node_pool_bytes(&pins->records) + vmp_offset_map_metadata_bytes(&pins->newest);
}

// ---- pin and unpin ----

static vmp_status add_record(vmp_pool *pool, const vmp_found *block, uint32_t reason) {
  vmp_pins *pins = &pool->pins;
  uint64_t *newest = vmp_offset_map_find(&pins->newest, block->offset);
  vmp_status status = newest != NULL ? VMP_OK : vmp_offset_map_promise(&pins->newest);
  if (status == VMP_OK && !vmp_node_pool_reserve(&pins->records, 1)) {
    if (newest == NULL) vmp_offset_map_withdraw(&pins->newest);
    status = vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for one more pinned range");
  }
  if (status != VMP_OK) return status;
  uint32_t index = vmp_node_take(&pins->records);
  *record_at(pins, index) = (vmp_pin_record){.older = newest == NULL ? 0 : (uint32_t)*newest,
                                             .reason = reason,
                                             .offset = block->offset,
                                             .bytes = block->bytes,
                                             .count = 1,
                                             .chunks = vmp_backing_pin(pool->backing, block->offset, block->bytes)};
  if (newest == NULL) {
    vmp_offset_map_add(&pins->newest, block->offset, index);
  } else {
    *newest = index;
  }
  return VMP_OK;
}

static vmp_status pin_locked(vmp_pool *pool, void *ptr, const char *reason) {
  uint64_t offset = 0;
  vmp_found block;
  bool in_pool = vmp_backing_offset(pool->backing, (uintptr_t)ptr, &offset);
  if (!in_pool || vmp_books_get(pool, offset) == 0 || !vmp_route_find(pool, offset, &block)) {
    return vmp_fail(VMP_ERROR_NOT_A_BLOCK, "%p is not the start of a live block of the pool \"%.64s\"", ptr,
                    vmp_pool_name(pool));
  }
  if ((vmp_books_get(pool, offset) & VMP_BLOCK_IS_BUSY) != 0) return vmp_alloc_fail_busy(ptr);
  const vmp_domain *domain = vmp_domain_of(pool, offset);
  if (domain != NULL && vmp_domain_is_away(domain, offset)) {
    return vmp_fail(VMP_ERROR_SUSPENDED, "the memory of the block at %p is not on the device; resume its tag first",
                    ptr);
  }
  uint32_t name = 0;
  vmp_status status = vmp_name_intern(&pool->tags.names, reason, &name);
  if (status != VMP_OK) return status;
  const uint64_t *newest = vmp_offset_map_find(&pool->pins.newest, block.offset);
  vmp_pin_record *record = newest == NULL ? NULL : record_at(&pool->pins, *newest);
  if (record == NULL || record->bytes != block.bytes || record->reason != name) return add_record(pool, &block, name);
  record->count++;
  return VMP_OK;
}

vmp_status vmp_pin(vmp_pool *pool, void *ptr, const char *reason) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  vmp_compacting_wait(pool);  // what it changes must not be pinned half way
  vmp_status status = pin_locked(pool, ptr, reason);
  vmp_guard_unlock(&pool->guard);
  return status;
}

static vmp_status unpin_locked(vmp_pool *pool, void *ptr) {
  vmp_pins *pins = &pool->pins;
  uint64_t offset = 0;
  bool in_pool = vmp_backing_offset(pool->backing, (uintptr_t)ptr, &offset);
  uint64_t *newest = in_pool ? vmp_offset_map_find(&pins->newest, offset) : NULL;
  if (newest == NULL) return vmp_fail(VMP_ERROR_NOT_A_BLOCK, "nothing that begins at %p is pinned", ptr);
  uint32_t index = (uint32_t)*newest;
  vmp_pin_record *record = record_at(pins, index);
  if (--record->count > 0) return VMP_OK;
  vmp_backing_unpin(pool->backing, record->offset, record->bytes);
  if (record->older != 0) {
    *newest = record->older;
  } else {
    (void)vmp_offset_map_remove(&pins->newest, offset, NULL);
  }
  vmp_node_give(&pins->records, index);
  return VMP_OK;
}

vmp_status vmp_unpin(vmp_pool *pool, void *ptr) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  vmp_status status = unpin_locked(pool, ptr);
  vmp_guard_unlock(&pool->guard);
  return status;
}

// ---- generations and callbacks ----

vmp_status vmp_range_generation(vmp_pool *pool, const void *ptr, size_t bytes, uint64_t *out_generation) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (bytes == 0) return vmp_fail(VMP_ERROR_INVALID_VALUE, "a range of 0 bytes has no generation");
  if (out_generation == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the address of the result is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  uint64_t first = 0, last = 0, address = (uintptr_t)ptr, end;
  vmp_guard_lock(&pool->guard);
  bool in_pool = vmp_backing_offset(pool->backing, address, &first) && vmp_add(address, bytes - 1, &end) &&
                 vmp_backing_offset(pool->backing, end, &last) && last - first == bytes - 1;
  uint64_t generation = in_pool ? vmp_backing_generation(pool->backing, first, bytes) : 0;
  vmp_guard_unlock(&pool->guard);
  if (!in_pool) {
    return vmp_fail(VMP_ERROR_NOT_A_BLOCK, "%zu bytes from %p on lie in no range of the pool \"%.64s\"", bytes, ptr,
                    vmp_pool_name(pool));
  }
  *out_generation = generation;
  return VMP_OK;
}

vmp_status vmp_remap_register(vmp_pool *pool, const vmp_remap_callbacks *callbacks) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (callbacks == NULL || (callbacks->before_unmap == NULL && callbacks->after_map == NULL)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "there is no callback to register");
  }
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  vmp_status status = vmp_backing_register(pool->backing, callbacks);
  vmp_guard_unlock(&pool->guard);
  return status;
}

vmp_status vmp_remap_unregister(vmp_pool *pool, const void *self) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  bool there = vmp_backing_unregister(pool->backing, self);
  vmp_guard_unlock(&pool->guard);
  return there ? VMP_OK : vmp_fail(VMP_ERROR_INVALID_VALUE, "no callbacks of %p are registered", self);
}

// ---- check ----

typedef struct pin_check {
  vmp_pool *pool;
  vmp_report *report;
  uint64_t records, chunks;
} pin_check;

static void check_record(void *context, const vmp_pin_record *record) {
  pin_check *check = context;
  check->records++;
  check->chunks += record->chunks;
  if (record->count == 0 || vmp_backing_generation(check->pool->backing, record->offset, record->bytes) == 0) {
    vmp_report_fault(check->report, "pins: the range at offset %" PRIu64 " has %" PRIu64 " pins, or isn't mapped",
                     record->offset, record->count);
  }
}

void vmp_pins_check(vmp_pool *pool, vmp_report *report) {
  pin_check check = {.pool = pool, .report = report};
  (void)vmp_offset_map_check(&pool->pins.newest, "pins", report);
  vmp_node_pool_check(&pool->pins.records, "pins", report);
  vmp_pins_walk(&pool->pins, check_record, &check);
  uint64_t counted = vmp_backing_pin_sum(pool->backing);
  if (check.records != pool->pins.records.used || check.chunks != counted) {
    vmp_report_fault(report,
                     "pins: %" PRIu64 " of %" PRIu32 " records are reached; they pin %" PRIu64
                     " chunks, and backing "
                     "counts %" PRIu64,
                     check.records, pool->pins.records.used, check.chunks, counted);
  }
}
