// realloc_move.c: a block at other addresses: its chunks are mapped there, and what isn't a chunk of its own is copied.
//
//     old   [ h | a | b | c | t ]     h, t: chunks that neighbours touch, too     a to c: the block's alone
//     new   [ H | a | b | c | T . . ] H, T and what follows: claimed anew         h -> H, t -> T copied on the stream
//
//     reserve     addresses of the new length, of which nothing is mapped
//     begin       the addresses of a to c are kept from everybody
//     claim       H, then T with the rest: every step of the ladder (may let go of the lock)
//     order       the stream behind the recorded streams and behind who used the claimed memory
//     copy        h -> H, t -> T, queued on the stream
//     finish      a to c are mapped and accessible; from here on nothing can fail
//     settle      the books; h and t are released, the old addresses freed, all behind the block's users as of now
//
// A failure anywhere before the end gives everything back: what was copied lies in memory that is released behind the
// stream.
//
// Where no chunk is the block's alone, or it is slab's, the block is copied whole: allocate, copy, free.
#include "pool/device_copy.h"
#include "pool/log.h"
#include "pool/realloc.h"

// A move on its way: what has been made so far, to be undone.
typedef struct moving {
  uint64_t to_offset, to_bytes;
  uint64_t run_offset, run_bytes;    // the chunks, at their old addresses
  uint64_t head_bytes, tail_offset;  // new addresses that need claims: [to, to + head), [tail, to + to_bytes)
  bool head_claimed, tail_claimed, copied;
  vmp_fence head_after, tail_after;
  vmp_move *move;
} moving;

static uint64_t to_end(const moving *m) { return m->to_offset + m->to_bytes; }

// give_up undoes a move. The status of its cause stays the thread's last error.
static vmp_status give_up(vmp_resize *r, moving *m, vmp_status status) {
  vmp_backing_ops *ops = &r->pool->ops;
  vmp_fence copies = m->copied ? vmp_clock_fence(r->pool->clock, r->index) : VMP_FENCE_NONE;
  vmp_backing_move_cancel(r->pool->backing, m->move);
  if (m->head_claimed) {
    (void)ops->release(ops->self, m->to_offset, m->head_bytes, vmp_fence_merge(m->head_after, copies));
  }
  if (m->tail_claimed) {
    (void)ops->release(ops->self, m->tail_offset, to_end(m) - m->tail_offset, vmp_fence_merge(m->tail_after, copies));
  }
  vmp_resize_untake(r, m->to_offset, vmp_fence_merge(copies, vmp_fence_merge(m->head_after, m->tail_after)));
  return status;
}

static vmp_status reserve(vmp_resize *r, moving *m) {
  vmp_pool *pool = r->pool;
  uint64_t granule = pool->device.granule_bytes;
  vmp_status status = vmp_resize_reserve(r, m->to_bytes, &m->to_offset);
  if (status != VMP_ERROR_OUT_OF_ADDRESS_SPACE) return status;
  uint64_t bytes = m->to_bytes + granule;
  if (r->domain != NULL) bytes = vmp_domain_addresses(pool, bytes, granule);
  status = vmp_space_add(pool, bytes, granule);
  if (status != VMP_OK) return status;
  return vmp_resize_reserve(r, m->to_bytes, &m->to_offset);
}

static vmp_status claim_rest(vmp_resize *r, moving *m) {
  vmp_status status = VMP_OK;
  if (m->head_bytes > 0) {
    status = vmp_resize_claim(r, m->to_offset, m->head_bytes, &m->head_after);
    m->head_claimed = status == VMP_OK;
  }
  if (status == VMP_OK && m->tail_offset < to_end(m)) {
    status = vmp_resize_claim(r, m->tail_offset, to_end(m) - m->tail_offset, &m->tail_after);
    m->tail_claimed = status == VMP_OK;
  }
  return status;
}

// copy_rest queues the copies of what doesn't move with its chunk.
static vmp_status copy_rest(vmp_resize *r, moving *m) {
  vmp_pool *pool = r->pool;
  uint64_t used_end = r->offset + r->requested_bytes, run_end = m->run_offset + m->run_bytes;
  uint64_t head = m->head_bytes, tail = used_end > run_end ? used_end - run_end : 0;
  uint64_t from = vmp_backing_address(pool->backing, r->offset), to = vmp_backing_address(pool->backing, m->to_offset);
  uint64_t tail_at = run_end - r->offset;
  vmp_guard_unlock(&pool->guard);
  vmp_status status = vmp_device_copy(pool->driver, pool->context, to, from, head, r->stream);
  m->copied = status == VMP_OK && head > 0;
  if (status == VMP_OK) {
    status = vmp_device_copy(pool->driver, pool->context, to + tail_at, from + tail_at, tail, r->stream);
    m->copied = m->copied || (status == VMP_OK && tail > 0);
  }
  vmp_guard_lock(&pool->guard);
  r->report.copied_bytes = head + tail;
  return status;
}

// leave_old gives the old addresses back, and the claims on what stays behind there.
static void leave_old(vmp_resize *r, const moving *m, uint64_t offset, uint64_t held_bytes, vmp_fence users) {
  vmp_backing_ops *ops = &r->pool->ops;
  uint64_t run_end = m->run_offset + m->run_bytes;
  if (m->run_offset > offset) (void)ops->release(ops->self, offset, m->run_offset - offset, users);
  if (run_end < offset + held_bytes) (void)ops->release(ops->self, run_end, offset + held_bytes - run_end, users);
  vmp_resize_untake(r, offset, users);
}

static vmp_status move_chunks(vmp_resize *r, moving *m) {
  vmp_pool *pool = r->pool;
  vmp_status status = reserve(r, m);
  if (status != VMP_OK) return status;
  uint64_t to_run = m->to_offset + (m->run_offset - r->offset);
  m->head_bytes = m->run_offset - r->offset;
  m->tail_offset = to_run + m->run_bytes;
  status = vmp_backing_move_begin(pool->backing, m->run_offset, m->run_bytes, to_run, &m->move);
  if (status == VMP_OK) status = claim_rest(r, m);
  if (status == VMP_OK) {
    status = vmp_resize_order(r, vmp_fence_merge(vmp_resize_users(r), vmp_fence_merge(m->head_after, m->tail_after)));
  }
  if (status == VMP_OK) status = copy_rest(r, m);
  if (status != VMP_OK) return give_up(r, m, status);
  vmp_move *move = m->move;
  m->move = NULL;
  status = vmp_backing_move_finish(pool->backing, move, vmp_resize_users(r));
  if (status != VMP_OK) return give_up(r, m, status);
  uint64_t offset = r->offset, held_bytes = r->held_bytes;
  vmp_fence users = vmp_resize_users(r);
  r->report.remapped_bytes = m->run_bytes;
  vmp_resize_settle(r, m->to_offset, m->to_bytes, true, users);
  leave_old(r, m, offset, held_bytes, users);
  return VMP_OK;
}

// copy_whole allocates, copies and frees.
static vmp_status copy_whole(vmp_resize *r) {
  vmp_pool *pool = r->pool;
  void *to = NULL;
  vmp_guard_unlock(&pool->guard);
  vmp_status status = vmp_alloc_labelled(pool, &to, r->bytes, VMP_STEP_BYTES, r->stream, r->label, r->domain, 0);
  vmp_guard_lock(&pool->guard);
  if (status != VMP_OK) {
    pool->failed_allocs--;  // that was this call's
    return status;
  }
  bool queued = false;
  status = vmp_resize_order(r, vmp_resize_users(r));
  if (status == VMP_OK) {
    vmp_guard_unlock(&pool->guard);
    status =
        vmp_device_copy(pool->driver, pool->context, (uintptr_t)to, (uintptr_t)r->ptr, r->requested_bytes, r->stream);
    vmp_guard_lock(&pool->guard);
    queued = status == VMP_OK;
  }
  vmp_error first = *vmp_last_error();
  if (queued) (void)vmp_books_change(pool, r->offset, 0, VMP_BLOCK_IS_BUSY);
  vmp_status freed = vmp_alloc_free_locked(pool, queued ? r->ptr : to, r->index, r->stream);
  if (!queued) vmp_restore_error(&first);
  if (!queued || freed != VMP_OK) return queued ? freed : status;
  r->report.moved = 1;
  r->report.copied_bytes = r->requested_bytes;
  r->ptr = to;
  return VMP_OK;
}

vmp_status vmp_resize_move(vmp_resize *r) {
  moving m = {.to_bytes = 0};
  if (vmp_resize_may_remap(r) && vmp_resize_keep_bytes(r, &m.to_bytes)) {
    vmp_backing_movable(r->pool->backing, r->offset, r->held_bytes, &m.run_offset, &m.run_bytes);
    if (m.run_bytes > 0) return move_chunks(r, &m);
  }
  return copy_whole(r);
}
