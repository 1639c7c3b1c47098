// target.h: who serves a benchmark's requests: the pool, or an allocator of this machine to compare with.
//
// The loops are written once and compiled for each kind: TARGET_RUN(loop, kind, ...) calls `loop` with a kind that the
// compiler knows, so that the loop on a pool is nothing but its two calls.
#ifndef VMPOOL_TOOLS_BENCH_TARGET_H_
#define VMPOOL_TOOLS_BENCH_TARGET_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/vmpool_host.h"

typedef enum target_kind {
  TARGET_POOL = 0,
  TARGET_POOL_WITH_WORK,  // each block is touched on the stream after its allocation and before its free
  TARGET_PEER,
} target_kind;

typedef struct bench_target {
  target_kind kind;
  vmp_pool *pool;
  vmp_driver *driver;
  void *(*peer_alloc)(size_t bytes);
  void (*peer_free)(void *ptr);
} bench_target;

#define TARGET_INLINE static inline __attribute__((always_inline))

#define TARGET_RUN(loop, kind, ...)                                             \
  ((kind) == TARGET_POOL             ? loop(TARGET_POOL, __VA_ARGS__)           \
   : (kind) == TARGET_POOL_WITH_WORK ? loop(TARGET_POOL_WITH_WORK, __VA_ARGS__) \
                                     : loop(TARGET_PEER, __VA_ARGS__))

// target_alloc and target_free return false on failure; vmp_last_error has the pool's reason. All requests use the
// default stream.
TARGET_INLINE bool target_alloc(target_kind kind, const bench_target *t, void **out_ptr, size_t bytes) {
  if (kind == TARGET_PEER) return (*out_ptr = t->peer_alloc(bytes)) != NULL;
  if (vmp_alloc(t->pool, out_ptr, bytes, NULL) < 0) return false;
  return kind == TARGET_POOL || vmp_host_kernel(t->driver, 0, *out_ptr, bytes, 1, NULL) >= 0;
}

TARGET_INLINE bool target_free(target_kind kind, const bench_target *t, void *ptr, size_t bytes) {
  if (kind == TARGET_PEER) {
    t->peer_free(ptr);
    return true;
  }
  if (kind == TARGET_POOL_WITH_WORK && vmp_host_kernel(t->driver, 0, ptr, bytes, 1, NULL) < 0) return false;
  return vmp_free(t->pool, ptr, NULL) >= 0;
}

// target_driver_calls counts the calls of a pool's driver so far.
static inline uint64_t target_driver_calls(const bench_target *t) {
  vmp_driver_calls c;
  vmp_driver_get_calls(t->driver, &c);
  return c.reserve + c.create + c.map + c.set_access + c.unmap + c.release + c.address_free + c.event_record +
         c.event_query + c.stream_wait + c.synchronize;
}

#endif  // VMPOOL_TOOLS_BENCH_TARGET_H_
