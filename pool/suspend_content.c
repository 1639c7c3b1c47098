// suspend_content.c: content between the device and host memory, and the blocks of a tag. See suspend.h.
//
//     device  ──copy on a stream of its own──>  pinned buffer  ──memcpy──>  backup      bounded: one buffer at a time
//
// The stream is a non-blocking one: nobody else's work is waited for.
#include <stdlib.h>
#include <string.h>

#include "pool/suspend.h"
#include "vmm/context.h"
#include "vmm/driver_error.h"
#include "vmm/memory.h"

vmp_status vmp_mover_open(vmp_mover *mover, vmp_pool *pool, uint64_t buffer_bytes) {
  vmp_context_saved saved;
  *mover = (vmp_mover){.pool = pool, .buffer_bytes = buffer_bytes};
  vmp_status status = vmp_movers_retry(pool);
  if (status == VMP_OK) status = vmp_context_enter(pool->driver, pool->context, &saved);
  if (status != VMP_OK) return status;
  int code = vmp_drv_stream_create(pool->driver, &mover->stream, VMP_CU_STREAM_NON_BLOCKING);
  if (code != VMP_CU_SUCCESS) {
    mover->stream = NULL;
    status = vmp_driver_fail(pool->driver, VMP_CALL_stream_create, code, "content was to be copied on it");
  }
  if (status == VMP_OK && buffer_bytes > 0) {
    code = vmp_drv_mem_host_alloc(pool->driver, &mover->buffer, (size_t)buffer_bytes, 0);
    if (code != VMP_CU_SUCCESS) {
      mover->buffer = NULL;
      status = vmp_driver_fail(pool->driver, VMP_CALL_mem_host_alloc, code, "%llu bytes are the buffer for content",
                               (unsigned long long)buffer_bytes);
      // Device memory is not what ran out.
      if (code == VMP_CU_OUT_OF_MEMORY) {
        status = vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "the driver has no %llu bytes of pinned host memory",
                          (unsigned long long)buffer_bytes);
      }
    }
  }
  (void)vmp_context_leave(pool->driver, &saved);
  if (status != VMP_OK) {
    vmp_error first = *vmp_last_error();
    vmp_mover_close(mover);
    vmp_restore_error(&first);
  }
  return status;
}

// ---- what the driver would not take back: kept with the pool, and tried again ----

static void keep_left(vmp_pool *pool, vmp_mover_left left) {
  if (left.stream == NULL && left.buffer == NULL) return;
  vmp_guard_lock(&pool->guard);
  for (size_t i = 0; i < VMP_MOVERS_LEFT; i++) {
    if (pool->movers_left[i].stream != NULL || pool->movers_left[i].buffer != NULL) continue;
    pool->movers_left[i] = left;
    break;
  }
  vmp_guard_unlock(&pool->guard);
}

// synchronize waits for a stream. The context is entered.
static vmp_status synchronize(vmp_driver *driver, vmp_cu_stream stream) {
  int code = vmp_drv_stream_synchronize(driver, stream);
  if (code == VMP_CU_SUCCESS) return VMP_OK;
  return vmp_driver_fail(driver, VMP_CALL_stream_synchronize, code, "copied content was to be waited for");
}

// give_back ends what is left, in this order: the work, the buffer that it uses, the stream. VMP_OK unless work may
// still run.
static vmp_status give_back(vmp_pool *pool, vmp_mover_left left) {
  vmp_context_saved saved;
  if (left.stream == NULL && left.buffer == NULL) return VMP_OK;
  vmp_status status = vmp_context_enter(pool->driver, pool->context, &saved);
  if (status == VMP_OK) {
    if (left.busy) status = synchronize(pool->driver, left.stream);
    if (status == VMP_OK) left.busy = false;
    if (!left.busy && left.buffer != NULL && vmp_drv_mem_free_host(pool->driver, left.buffer) == VMP_CU_SUCCESS) {
      left.buffer = NULL;
    }
    if (!left.busy && left.known && vmp_clock_retire_stream(pool->clock, left.stream) == VMP_OK) left.known = false;
    if (!left.busy && !left.known && left.stream != NULL &&
        vmp_drv_stream_destroy(pool->driver, left.stream) == VMP_CU_SUCCESS) {
      left.stream = NULL;
    }
    (void)vmp_context_leave(pool->driver, &saved);
  }
  keep_left(pool, left);
  return left.busy ? status : VMP_OK;
}

vmp_status vmp_movers_retry(vmp_pool *pool) {
  vmp_mover_left left[VMP_MOVERS_LEFT];
  vmp_status first = VMP_OK;
  vmp_guard_lock(&pool->guard);
  memcpy(left, pool->movers_left, sizeof left);
  memset(pool->movers_left, 0, sizeof pool->movers_left);
  vmp_guard_unlock(&pool->guard);
  for (size_t i = 0; i < VMP_MOVERS_LEFT; i++) {
    vmp_status status = give_back(pool, left[i]);
    if (first == VMP_OK) first = status;
  }
  return first;
}

vmp_fence vmp_mover_fence(vmp_mover *mover) {
  if (!mover->busy) return VMP_FENCE_NONE;
  mover->known = true;
  return vmp_clock_fence(mover->pool->clock, vmp_clock_stream(mover->pool->clock, mover->stream));
}

void vmp_mover_close(vmp_mover *mover) {
  if (mover->pool == NULL) return;
  (void)give_back(mover->pool, (vmp_mover_left){mover->stream, mover->buffer, mover->busy, mover->known});
  mover->stream = NULL;
  mover->buffer = NULL;
}

vmp_status vmp_mover_wait(vmp_mover *mover) {
  vmp_context_saved saved;
  vmp_driver *driver = mover->pool->driver;
  vmp_status status = vmp_context_enter(driver, mover->pool->context, &saved);
  if (status != VMP_OK) return status;
  status = synchronize(driver, mover->stream);
  if (status == VMP_OK) mover->busy = false;
  (void)vmp_context_leave(driver, &saved);
  return status;
}

// copy_part copies at most a buffer full, on the stream, without waiting.
static vmp_status copy_part(vmp_mover *mover, vmp_cu_ptr device, uint64_t bytes, bool save) {
  vmp_context_saved saved;
  vmp_driver *driver = mover->pool->driver;
  vmp_status status = vmp_context_enter(driver, mover->pool->context, &saved);
  if (status != VMP_OK) return status;
  mover->busy = true;
  int code = save ? vmp_drv_memcpy_dtoh_async(driver, mover->buffer, device, (size_t)bytes, mover->stream)
                  : vmp_drv_memcpy_htod_async(driver, device, mover->buffer, (size_t)bytes, mover->stream);
  if (code != VMP_CU_SUCCESS) {
    status = vmp_driver_fail(driver, save ? VMP_CALL_memcpy_dtoh_async : VMP_CALL_memcpy_htod_async, code,
                             "the content of a block was to be copied");
  }
  (void)vmp_context_leave(driver, &saved);
  return status;
}

vmp_status vmp_mover_save(vmp_mover *mover, void *dst, vmp_cu_ptr src, uint64_t bytes) {
  vmp_status status = VMP_OK;
  for (uint64_t at = 0; at < bytes && status == VMP_OK; at += mover->buffer_bytes) {
    uint64_t part = bytes - at < mover->buffer_bytes ? bytes - at : mover->buffer_bytes;
    status = copy_part(mover, src + at, part, true);
    if (status == VMP_OK) status = vmp_mover_wait(mover);
    if (status == VMP_OK) memcpy((unsigned char *)dst + at, mover->buffer, (size_t)part);
  }
  return status;
}

vmp_status vmp_mover_load(vmp_mover *mover, vmp_cu_ptr dst, const void *src, uint64_t bytes) {
  vmp_status status = VMP_OK;
  for (uint64_t at = 0; at < bytes && status == VMP_OK; at += mover->buffer_bytes) {
    uint64_t part = bytes - at < mover->buffer_bytes ? bytes - at : mover->buffer_bytes;
    memcpy(mover->buffer, (const unsigned char *)src + at, (size_t)part);
    status = copy_part(mover, dst + at, part, false);
    if (status == VMP_OK) status = vmp_mover_wait(mover);
  }
  return status;
}

// ---- the blocks of a tag ----

typedef struct collecting {
  vmp_pool *pool;
  vmp_tag tag;
  vmp_tag_block *blocks;
  size_t count, capacity;
} collecting;

static void collect(void *context, uint64_t offset, uint64_t word) {
  collecting *c = context;
  vmp_found found;
  (void)word;
  if (vmp_label_of(&c->pool->tags, offset).tag != c->tag || c->count == c->capacity) return;
  if (!vmp_route_find(c->pool, offset, &found)) return;
  c->blocks[c->count++] = (vmp_tag_block){offset, found.bytes};
}

static int by_offset(const void *a, const void *b) {
  uint64_t x = ((const vmp_tag_block *)a)->offset, y = ((const vmp_tag_block *)b)->offset;
  return x < y ? -1 : x > y;
}

vmp_status vmp_tag_blocks(vmp_pool *pool, vmp_tag tag, vmp_tag_block **out_blocks, size_t *out_count) {
  collecting c = {.pool = pool, .tag = tag, .capacity = (size_t)vmp_tag_record_of(&pool->tags, tag)->blocks};
  c.blocks = vmp_mem_calloc(c.capacity + 1, sizeof *c.blocks);
  if (c.blocks == NULL) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for a list of %zu blocks", c.capacity);
  }
  vmp_offset_map_walk(&pool->tags.labels, collect, &c);
  qsort(c.blocks, c.count, sizeof *c.blocks, by_offset);
  *out_blocks = c.blocks;
  *out_count = c.count;
  return VMP_OK;
}
