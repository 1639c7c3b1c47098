// host_queue.c: streams as queues of operations, and when an operation runs.
//
//     stream   [head ... | block of 256 | ... tail]      operations in order; `sequence` counts over all streams
//
// An operation is ready when it is its stream's head and
//   - WAIT: what it waits for has run;
//   - on a stream that is ordered with the legacy stream: no older operation of the legacy stream is queued;
//   - on the legacy stream: no older operation of any such stream of the context is queued.
// Whatever it waits for has a smaller sequence, so following "waits for" from head to head ends after at most as
// many steps as there are streams, and the oldest head of all is always ready. That makes waiting exact: only what a
// wait depends on runs. In late mode a wait for everything runs the youngest work first, which is allowed, and is
// what shows a missing dependency.
//
// A host function runs without the lock; its stream is `busy` meanwhile and others wait for `idle`.
#include <stdlib.h>

#include "vmm/align.h"
#include "vmm/host_model.h"

#define KEPT_BLOCKS 64u

// ---- the queue of one stream ----

static vmp_host_op_block *take_block(vmp_host *host) {
  vmp_host_op_block *block = host->free_blocks;
  if (block == NULL) return malloc(sizeof *block);
  host->free_blocks = block->next;
  host->num_free_blocks--;
  return block;
}

static void give_block(vmp_host *host, vmp_host_op_block *block) {
  if (host->num_free_blocks >= KEPT_BLOCKS) {
    free(block);
    return;
  }
  block->next = host->free_blocks;
  host->free_blocks = block;
  host->num_free_blocks++;
}

static void activate(vmp_host *host, vmp_host_stream *stream) {
  stream->previous_active = NULL;
  stream->next_active = host->first_active;
  if (host->first_active != NULL) host->first_active->previous_active = stream;
  host->first_active = stream;
}

static void deactivate(vmp_host *host, vmp_host_stream *stream) {
  if (stream->previous_active != NULL) {
    stream->previous_active->next_active = stream->next_active;
  } else {
    host->first_active = stream->next_active;
  }
  if (stream->next_active != NULL) stream->next_active->previous_active = stream->previous_active;
}

static bool push(vmp_host *host, vmp_host_stream *stream, const vmp_host_op *op) {
  if (stream->tail_block == NULL || stream->tail_slot == VMP_HOST_OPS_PER_BLOCK) {
    vmp_host_op_block *block = take_block(host);
    if (block == NULL) return false;
    block->next = NULL;
    if (stream->tail_block == NULL) {
      stream->head_block = block;
      stream->head_slot = 0;
    } else {
      stream->tail_block->next = block;
    }
    stream->tail_block = block;
    stream->tail_slot = 0;
  }
  stream->tail_block->ops[stream->tail_slot++] = *op;
  if (stream->count++ == 0) activate(host, stream);
  stream->last_sequence = op->sequence;
  return true;
}

static void pop(vmp_host *host, vmp_host_stream *stream) {
  stream->head_slot++;
  stream->count--;
  if (stream->count == 0) {
    deactivate(host, stream);
    give_block(host, stream->head_block);
    stream->head_block = NULL;
    stream->tail_block = NULL;
  } else if (stream->head_slot == VMP_HOST_OPS_PER_BLOCK) {
    vmp_host_op_block *next = stream->head_block->next;
    give_block(host, stream->head_block);
    stream->head_block = next;
    stream->head_slot = 0;
  }
}

static const vmp_host_op *head_op(const vmp_host_stream *stream) { return &stream->head_block->ops[stream->head_slot]; }

bool vmp_host_pending(const vmp_host_stream *stream, uint64_t sequence) {
  return stream->count != 0 && head_op(stream)->sequence <= sequence;
}

void vmp_host_each_op(vmp_host_stream *stream, void (*visit)(void *context, vmp_host_stream *, vmp_host_op *),
                      void *context) {
  uint32_t slot = stream->head_slot;
  vmp_host_op_block *block = stream->head_block;
  for (uint64_t left = stream->count; left > 0; left--, slot++) {
    if (slot == VMP_HOST_OPS_PER_BLOCK) {
      block = block->next;
      slot = 0;
    }
    visit(context, stream, &block->ops[slot]);
  }
}

// ---- readiness ----

// The stream whose head must run before this stream's head can, or NULL.
static vmp_host_stream *blocker_of(const vmp_host *host, const vmp_host_stream *stream) {
  const vmp_host_op *op = head_op(stream);
  if (op->kind == VMP_HOST_OP_WAIT) {
    vmp_host_stream *target = vmp_host_stream_alive(host, op->arg, op->b);
    if (target != NULL && vmp_host_pending(target, op->a)) return target;
  }
  if (stream->kind == VMP_HOST_STREAM_LEGACY) {
    for (vmp_host_stream *other = host->first_active; other != NULL; other = other->next_active) {
      if (other->device == stream->device && vmp_host_orders_with_legacy(host, other) &&
          vmp_host_pending(other, op->sequence)) {
        return other;
      }
    }
  } else if (vmp_host_orders_with_legacy(host, stream)) {
    vmp_host_stream *legacy = host->contexts[stream->device].legacy;
    if (legacy != NULL && vmp_host_pending(legacy, op->sequence)) return legacy;
  }
  return NULL;
}

// A stream whose head can run now and that `stream` depends on (or is); NULL when a host function is in the way.
static vmp_host_stream *runnable(const vmp_host *host, vmp_host_stream *stream) {
  for (;;) {
    if (stream->busy) return NULL;
    vmp_host_stream *blocker = blocker_of(host, stream);
    if (blocker == NULL) return stream;
    stream = blocker;
  }
}

// ---- execution ----

static void call_host_function(vmp_host *host, vmp_host_stream *stream, const vmp_host_op *op) {
  vmp_host_thread *thread = vmp_host_this_thread(host);
  vmp_cu_host_fn fn;
  uintptr_t address = (uintptr_t)op->a;
  _Static_assert(sizeof fn == sizeof address, "a function's address fits into the operation");
  __builtin_memcpy(&fn, &address, sizeof fn);
  stream->busy = true;
  pthread_mutex_unlock(&host->lock);
  if (thread != NULL) thread->in_host_function = true;
  fn((void *)(uintptr_t)op->b);
  if (thread != NULL) thread->in_host_function = false;
  pthread_mutex_lock(&host->lock);
  stream->busy = false;
  pthread_cond_broadcast(&host->idle);
}

static void run_head(vmp_host *host, vmp_host_stream *stream) {
  vmp_host_op op = *head_op(stream);
  if (op.kind == VMP_HOST_OP_HOST_FN && host->contexts[stream->device].sticky == 0) {
    call_host_function(host, stream, &op);
  }
  pop(host, stream);
  host->counters.operations_done++;
  if (op.kind == VMP_HOST_OP_RECORD) {
    vmp_host_event_ran(host, &op);
  } else if (op.kind <= VMP_HOST_OP_FILL) {
    vmp_host_execute(host, &op, true);
  }
  vmp_host_op_dispose(&op);
  if (stream->count == 0 && stream->destroyed) vmp_host_stream_gone(host, stream);
}

static vmp_host_stream *oldest_active(const vmp_host *host, int device) {
  vmp_host_stream *oldest = NULL;
  for (vmp_host_stream *stream = host->first_active; stream != NULL; stream = stream->next_active) {
    if (device >= 0 && stream->device != device) continue;
    if (oldest == NULL || head_op(stream)->sequence < head_op(oldest)->sequence) oldest = stream;
  }
  return oldest;
}

static vmp_host_stream *youngest_active(const vmp_host *host, int device, uint64_t limit) {
  vmp_host_stream *youngest = NULL;
  for (vmp_host_stream *stream = host->first_active; stream != NULL; stream = stream->next_active) {
    if (stream->device != device || head_op(stream)->sequence > limit) continue;
    if (youngest == NULL || head_op(stream)->sequence > head_op(youngest)->sequence) youngest = stream;
  }
  return youngest;
}

// A seeded choice among the streams whose head can run.
static vmp_host_stream *random_runnable(vmp_host *host) {
  uint64_t count = 0;
  for (vmp_host_stream *stream = host->first_active; stream != NULL; stream = stream->next_active) count++;
  if (count == 0) return NULL;
  uint64_t skip = vmp_host_random(host) % count;
  vmp_host_stream *stream = host->first_active;
  while (skip-- != 0) stream = stream->next_active;
  for (uint64_t i = 0; i < count; i++) {
    if (!stream->busy && blocker_of(host, stream) == NULL) return stream;
    stream = stream->next_active != NULL ? stream->next_active : host->first_active;
  }
  return NULL;
}

static bool run_oldest(vmp_host *host) {
  vmp_host_stream *stream = oldest_active(host, -1);
  if (stream != NULL) stream = runnable(host, stream);
  if (stream == NULL) return false;
  run_head(host, stream);
  return true;
}

static bool run_random(vmp_host *host) {
  vmp_host_stream *stream = random_runnable(host);
  if (stream == NULL) return false;
  run_head(host, stream);
  return true;
}

static void run_by_mode(vmp_host *host) {
  switch (host->options.work) {
    case VMP_HOST_WORK_LATE: return;
    case VMP_HOST_WORK_EARLY:
      while (run_oldest(host)) {
      }
      return;
    case VMP_HOST_WORK_SEED:
      // k steps with probability 2^-(k+1), one in the mean: the queues get now long, now short.
      for (unsigned steps = vmp_lowest_bit(vmp_host_random(host) | 256); steps != 0 && run_random(host); steps--) {
      }
      return;
    case VMP_HOST_WORK_LAG:
      for (;;) {
        const vmp_host_stream *oldest = oldest_active(host, -1);
        if (oldest == NULL || host->counters.operations_queued - head_op(oldest)->sequence < host->options.work_lag ||
            !run_oldest(host)) {
          return;
        }
      }
  }
}

// In early mode, with nothing queued anywhere, an operation needs no queue.
static bool run_at_once(vmp_host *host, const vmp_host_op *op) {
  if (host->options.work != VMP_HOST_WORK_EARLY || host->first_active != NULL) return false;
  if (op->kind == VMP_HOST_OP_RECORD) {
    vmp_host_event_ran(host, op);
  } else if (op->kind <= VMP_HOST_OP_FILL) {
    vmp_host_execute(host, op, false);
  } else if (op->kind == VMP_HOST_OP_HOST_FN) {
    return false;
  }
  host->counters.operations_done++;
  vmp_host_op_dispose(op);
  return true;
}

int vmp_host_enqueue(vmp_host *host, vmp_host_stream *stream, vmp_host_op op) {
  op.sequence = host->counters.operations_queued + 1;
  op.device = (uint8_t)stream->device;
  op.site = host->site;
  if (op.kind <= VMP_HOST_OP_FILL) vmp_host_order_access(host, stream, &op);
  if (run_at_once(host, &op)) {
    host->counters.operations_queued++;
    return 0;
  }
  if (!push(host, stream, &op)) return VMP_CU_OUT_OF_MEMORY;
  host->counters.operations_queued++;
  if (op.kind <= VMP_HOST_OP_FILL) vmp_host_begin_flight(host, &op);
  run_by_mode(host);
  return 0;
}

// ---- waiting ----

bool vmp_host_wait_for(vmp_host *host, uint32_t index, uint64_t uid, uint64_t sequence) {
  bool waited = false;
  for (;;) {
    vmp_host_stream *stream = vmp_host_stream_alive(host, index, uid);
    if (stream == NULL || !vmp_host_pending(stream, sequence)) return waited;
    waited = true;
    vmp_host_stream *next = runnable(host, stream);
    if (next != NULL) {
      run_head(host, next);
    } else {
      pthread_cond_wait(&host->idle, &host->lock);
    }
  }
}

bool vmp_host_drain(vmp_host *host, int device) {
  uint64_t limit = host->counters.operations_queued;
  bool waited = false;
  for (;;) {
    const vmp_host_stream *next;
    uint64_t until = limit;
    if (host->options.work == VMP_HOST_WORK_LATE) {
      next = youngest_active(host, device, limit);
    } else {
      next = oldest_active(host, device);
      if (next != NULL && head_op(next)->sequence > limit) next = NULL;
      if (next != NULL) until = head_op(next)->sequence;
    }
    if (next == NULL) return waited;
    waited = vmp_host_wait_for(host, next->index, next->uid, until) || waited;
  }
}

void vmp_host_poll(vmp_host *host) {
  if (host->options.work == VMP_HOST_WORK_EARLY) run_by_mode(host);
  if (host->options.work == VMP_HOST_WORK_SEED && vmp_host_random(host) % 2 == 0) (void)run_random(host);
}

uint64_t vmp_host_step(vmp_driver *driver, uint64_t max_operations) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  uint64_t done = 0;
  while (done < max_operations && (host->options.work == VMP_HOST_WORK_SEED ? run_random(host) : run_oldest(host))) {
    done++;
  }
  pthread_mutex_unlock(&host->lock);
  return done;
}

static void dispose_op(void *context, vmp_host_stream *stream, vmp_host_op *op) {
  (void)context;
  (void)stream;
  vmp_host_op_dispose(op);
}

void vmp_host_queue_close(vmp_host *host) {
  for (vmp_host_stream *stream = host->first_active; stream != NULL; stream = stream->next_active) {
    vmp_host_each_op(stream, dispose_op, NULL);
    while (stream->head_block != NULL) {
      vmp_host_op_block *next = stream->head_block->next;
      free(stream->head_block);
      stream->head_block = next;
    }
  }
  host->first_active = NULL;
  while (host->free_blocks != NULL) {
    vmp_host_op_block *next = host->free_blocks->next;
    free(host->free_blocks);
    host->free_blocks = next;
  }
}
