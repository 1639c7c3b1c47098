// log.h: the event log: writing records into a file that readers may look at while it is written.
//
//     log.c         the file: header, windows, the next record
//     log_ahead.c   windows made ahead of need, by a thread
//     log_intern.c  strings and stacks by number, loaded files
//     log_events.c  which events of the pool become which records; keyframes
//     log_open.c    options, public calls
//
// Owns: the file and its mapping, what has been interned. Does not own: the layout (log_format.h), the lock: every
// function here expects the caller to hold the pool's, but for those that open and close.
//
//     file   [ header | window | window | window being written   ]  grows by windows; room for each is made before it
//     is
//                                        ^ record                   mapped, so a full disk is a refusal and not a fault
//     ring   [ header | records, written over from the start again ]
//
// Invariants
//   - Records are published in order: header.written counts whole records, and is stored last.
//   - A string or a stack that a record names has been written before it.
//   - While the log is off, an event costs one load and one branch (vmp_log_on).
#ifndef VMPOOL_POOL_LOG_H_
#define VMPOOL_POOL_LOG_H_

#include "pool/log_format.h"
#include "pool/pool.h"

typedef struct vmp_log vmp_log;

typedef struct vmp_log_options {
  const char *path;
  uint64_t ring_bytes;   // 0: the file grows
  uint64_t stack_bytes;  // one stack is taken per so many bytes allocated; 0: none
} vmp_log_options;

// ---- log.c ----
// vmp_log_create makes the file (it must not exist). VMP_ERROR_IO, VMP_ERROR_HOST_OUT_OF_MEMORY,
// VMP_ERROR_INVALID_VALUE: a ring of less than 1 MiB. Takes no lock.
vmp_status vmp_log_create(vmp_log **out_log, const vmp_log_options *options, const vmp_log_header *facts);
// vmp_log_destroy ends the file: it is cut to what was written and marked as finished. In a forked child nothing is
// written. NULL is fine.
void vmp_log_destroy(vmp_log *log, bool forked);
// vmp_log_next returns the next record, zeroed but for kind, thread, sequence and time; NULL when the log has ended (a
// full disk): then the event is counted as dropped. vmp_log_publish makes it visible.
vmp_log_record *vmp_log_next(vmp_log *log, vmp_log_kind kind);
void vmp_log_publish(vmp_log *log);
// vmp_log_written: records so far. vmp_log_keyframe_due: it is time for one of about `records` records.
uint64_t vmp_log_written(const vmp_log *log);
bool vmp_log_keyframe_due(const vmp_log *log);
// vmp_log_keyframe_done notes a keyframe that began at `sequence` and has so many records.
void vmp_log_keyframe_done(vmp_log *log, uint64_t sequence, uint64_t records);
const char *vmp_log_path(const vmp_log *log);

// ---- log_intern.c ----
// vmp_log_string returns the number of a text (cut after 4,000 bytes), writing it at first sight; 0 for NULL and "",
// and when host memory or the numbers (65,535) run out.
uint32_t vmp_log_string(vmp_log *log, const char *text);
// vmp_log_stack_now returns the number of the caller's stack where one is due after so many bytes more; else 0.
uint32_t vmp_log_stack_now(vmp_log *log, uint64_t bytes);
// vmp_log_count_interned: how many records vmp_log_write_interned writes: everything that was interned, as STATE.
uint64_t vmp_log_count_interned(const vmp_log *log);
void vmp_log_write_interned(vmp_log *log);
uint64_t vmp_log_metadata_bytes(const vmp_log *log);

// ---- log_open.c ----
// vmp_log_open_configured starts the log that the options ask for. VMP_ERROR_IO, VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_log_open_configured(vmp_pool *pool);
// vmp_log_close ends the pool's log, if there is one.
void vmp_log_close(vmp_pool *pool);

// ---- log_events.c: called from where things happen ----
// vmp_log_on: whether anybody wants to know.
static inline bool vmp_log_on(const vmp_pool *pool) { return __builtin_expect(pool->log != NULL, 0); }

void vmp_log_write_alloc(vmp_pool *pool, const vmp_plan *plan, const vmp_placed *placed, vmp_stream stream);
void vmp_log_write_free(vmp_pool *pool, uint64_t offset, uint64_t bytes, uint64_t word, vmp_stream_index stream,
                        vmp_fence fence);
void vmp_log_write_failed(vmp_pool *pool, const vmp_plan *plan, vmp_status status, vmp_stream stream);
// vmp_log_write_page writes that a page of a region was committed (VMP_LOG_ALLOC, on `stream`) or decommitted
// (VMP_LOG_FREE, `streams` may still touch it). vmp_log_write_due, once the region is left, writes what is due.
void vmp_log_write_page(vmp_pool *pool, vmp_log_kind kind, const vmp_region *region, uint64_t offset,
                        vmp_stream_index stream, uint64_t streams);
void vmp_log_write_due(vmp_pool *pool);
void vmp_log_write_use(vmp_pool *pool, uint64_t offset, vmp_stream_index index, vmp_stream stream);
void vmp_log_write_moved(vmp_pool *pool, uint64_t offset);
void vmp_log_write_tag(vmp_pool *pool, vmp_log_kind kind, vmp_tag tag, uint64_t bytes);
void vmp_log_write_range(vmp_pool *pool, uint64_t offset, uint64_t bytes);
// vmp_log_write_simple writes a record of the pool as a whole.
void vmp_log_write_simple(vmp_pool *pool, vmp_log_kind kind, uint8_t flags, uint64_t bytes, uint64_t extra,
                          uint64_t value, const char *tag);
// vmp_log_can_tell: no driver call is under way, nor an operation on a region.
bool vmp_log_can_tell(const vmp_pool *pool);
// vmp_log_write_keyframe writes the whole state; false when it can't be told: try again later.
bool vmp_log_write_keyframe(vmp_pool *pool);
// vmp_log_see_backing is backing's observer; `self` is the pool.
void vmp_log_see_backing(void *self, const vmp_backing_change *change);

static inline void vmp_log_alloc(vmp_pool *pool, const vmp_plan *plan, const vmp_placed *placed, vmp_stream stream) {
  if (vmp_log_on(pool)) vmp_log_write_alloc(pool, plan, placed, stream);
}
static inline void vmp_log_free(vmp_pool *pool, uint64_t offset, uint64_t bytes, uint64_t word, vmp_stream_index stream,
                                vmp_fence fence) {
  if (vmp_log_on(pool)) vmp_log_write_free(pool, offset, bytes, word, stream, fence);
}
static inline void vmp_log_failed(vmp_pool *pool, const vmp_plan *plan, vmp_status status, vmp_stream stream) {
  if (vmp_log_on(pool)) vmp_log_write_failed(pool, plan, status, stream);
}
static inline void vmp_log_page(vmp_pool *pool, vmp_log_kind kind, const vmp_region *region, uint64_t offset,
                                vmp_stream_index stream, uint64_t streams) {
  if (vmp_log_on(pool)) vmp_log_write_page(pool, kind, region, offset, stream, streams);
}
static inline void vmp_log_due(vmp_pool *pool) {
  if (vmp_log_on(pool)) vmp_log_write_due(pool);
}
static inline void vmp_log_use(vmp_pool *pool, uint64_t offset, vmp_stream_index index, vmp_stream stream) {
  if (vmp_log_on(pool)) vmp_log_write_use(pool, offset, index, stream);
}
static inline void vmp_log_moved(vmp_pool *pool, uint64_t offset) {
  if (vmp_log_on(pool)) vmp_log_write_moved(pool, offset);
}
// vmp_log_tag: a tag was suspended or resumed.
static inline void vmp_log_tag(vmp_pool *pool, vmp_log_kind kind, vmp_tag tag, uint64_t bytes) {
  if (vmp_log_on(pool)) vmp_log_write_tag(pool, kind, tag, bytes);
}
static inline void vmp_log_range(vmp_pool *pool, uint64_t offset, uint64_t bytes) {
  if (vmp_log_on(pool)) vmp_log_write_range(pool, offset, bytes);
}
static inline void vmp_log_simple(vmp_pool *pool, vmp_log_kind kind, uint8_t flags, uint64_t bytes, uint64_t extra,
                                  uint64_t value) {
  if (vmp_log_on(pool)) vmp_log_write_simple(pool, kind, flags, bytes, extra, value, NULL);
}

#endif  // VMPOOL_POOL_LOG_H_
