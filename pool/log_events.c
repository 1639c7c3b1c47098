// log_events.c: which events of the pool become which records, and keyframes. See log.h and log_format.h.
//
// Called under the pool's lock. Records of the mapping come from backing's observer while backing is changing: they
// only write; a keyframe, which looks at everything, waits for the end of an event of the pool.
#include <string.h>

#include "pool/log.h"
#include "pool/log_internal.h"

#define SAMPLE_EVERY 4096u

// ---- after an event ----

// committed_live: live bytes, where a page of several regions counts for each of them, as their records do.
static uint64_t committed_live(const vmp_pool *pool) {
  return vmp_pool_live_bytes(pool) - pool->regions.live_bytes + pool->regions.committed_bytes;
}

static void write_sample(vmp_pool *pool) {
  vmp_backing_stats stats;
  vmp_backing_get_stats(pool->backing, &stats);
  uint64_t pending = vmp_backing_pending_bytes(pool->backing);
  vmp_log_record *record = vmp_log_next(pool->log, VMP_LOG_SAMPLE);
  if (record == NULL) return;
  record->as.sample.live = committed_live(pool);
  record->as.sample.mapped = stats.mapped_bytes;
  record->as.sample.parked = stats.parked_bytes;
  record->as.sample.pending = pending;
  record->as.sample.spare = stats.spare_bytes;
  pool->log->sampled = record->sequence;
  vmp_log_publish(pool->log);
}

void vmp_log_write_due(vmp_pool *pool) {
  vmp_log *log = pool->log;
  if (__builtin_expect(log->sequence - log->sampled >= SAMPLE_EVERY, 0)) write_sample(pool);
  if (__builtin_expect(vmp_log_keyframe_due(log), 0)) (void)vmp_log_write_keyframe(pool);
}

// finish_event publishes an event's record, and writes what is due.
static void finish_event(vmp_pool *pool) {
  vmp_log_publish(pool->log);
  vmp_log_write_due(pool);
}

// announce says which stream an index means, the first time it appears.
static void announce(vmp_pool *pool, vmp_stream_index index, vmp_stream stream) {
  vmp_log *log = pool->log;
  if ((log->announced >> index & 1) != 0) return;
  log->announced |= UINT64_C(1) << index;
  log->handles[index] = (uint64_t)(uintptr_t)stream;
  vmp_log_record *record = vmp_log_next(log, VMP_LOG_STREAM);
  if (record == NULL) return;
  record->stream = (uint8_t)index;
  record->as.event.extra = log->handles[index];
  vmp_log_publish(log);
}

// string_of: the number of what a block is called: its tag, or else its own name.
static uint32_t string_of(vmp_pool *pool, vmp_label label) {
  if (vmp_label_is_none(label)) return 0;
  const char *text = vmp_name_text(&pool->tags.names, label.name);
  return vmp_log_string(pool->log, label.tag != 0 ? vmp_tag_name(&pool->tags, label.tag) : text);
}

// ---- blocks ----

void vmp_log_write_alloc(vmp_pool *pool, const vmp_plan *plan, const vmp_placed *placed, vmp_stream stream) {
  vmp_log *log = pool->log;
  announce(pool, plan->request.stream, stream);
  uint32_t tag = string_of(pool, plan->label), stack = vmp_log_stack_now(log, placed->bytes);
  vmp_log_record *record = vmp_log_next(log, VMP_LOG_ALLOC);
  if (record == NULL) return;
  record->layer = (uint8_t)plan->layer;
  record->stream = (uint8_t)plan->request.stream;
  record->as.event.address = vmp_backing_address(pool->backing, placed->offset);
  record->as.event.bytes = placed->bytes;
  record->as.event.extra = plan->requested_bytes;
  record->as.event.tag = tag;
  record->as.event.stack = stack;
  finish_event(pool);
}

void vmp_log_write_free(vmp_pool *pool, uint64_t offset, uint64_t bytes, uint64_t word, vmp_stream_index stream,
                        vmp_fence fence) {
  vmp_log_record *record = vmp_log_next(pool->log, VMP_LOG_FREE);
  if (record == NULL) return;
  record->layer = (uint8_t)vmp_block_layer(word);
  record->stream = (uint8_t)stream;
  record->as.event.address = vmp_backing_address(pool->backing, offset);
  record->as.event.bytes = bytes;
  record->as.event.extra = bytes - vmp_block_slack(word);
  record->as.event.value = fence.streams;
  finish_event(pool);
}

void vmp_log_write_failed(vmp_pool *pool, const vmp_plan *plan, vmp_status status, vmp_stream stream) {
  announce(pool, plan->request.stream, stream);
  vmp_log_record *record = vmp_log_next(pool->log, VMP_LOG_OOM);
  if (record == NULL) return;
  record->layer = (uint8_t)plan->layer;
  record->stream = (uint8_t)plan->request.stream;
  record->as.event.address = (uint64_t)(-(int64_t)status);
  record->as.event.bytes = plan->request.bytes;
  record->as.event.extra = plan->requested_bytes;
  record->as.event.value = atomic_load(&pool->last_device_free_bytes);
  finish_event(pool);
}

void vmp_log_write_use(vmp_pool *pool, uint64_t offset, vmp_stream_index index, vmp_stream stream) {
  announce(pool, index, stream);
  vmp_log_record *record = vmp_log_next(pool->log, VMP_LOG_USE);
  if (record == NULL) return;
  record->stream = (uint8_t)index;
  record->as.event.address = vmp_backing_address(pool->backing, offset);
  finish_event(pool);
}

// ---- pages of regions ----

// Only written: a keyframe in the middle of a commit would tell of pages whose records are still to come.
void vmp_log_write_page(vmp_pool *pool, vmp_log_kind kind, const vmp_region *region, uint64_t offset,
                        vmp_stream_index stream, uint64_t streams) {
  uint32_t tag = kind == VMP_LOG_ALLOC ? vmp_log_string(pool->log, region->name) : 0;
  vmp_log_record *record = vmp_log_next(pool->log, kind);
  if (record == NULL) return;
  record->layer = VMP_LOG_REGION;
  record->stream = kind == VMP_LOG_ALLOC ? (uint8_t)stream : VMP_LOG_NONE;
  record->as.event.address = vmp_backing_address(pool->backing, offset);
  record->as.event.bytes = record->as.event.extra = region->range->page_bytes;
  record->as.event.value = streams;
  record->as.event.tag = tag;
  vmp_log_publish(pool->log);
}

// ---- memory ----

void vmp_log_see_backing(void *self, const vmp_backing_change *change) {
  static const uint8_t kinds[] = {
      [VMP_BACKING_MAPPED] = VMP_LOG_MAP,       [VMP_BACKING_TAKEN] = VMP_LOG_TAKE,
      [VMP_BACKING_RETIRED] = VMP_LOG_RETIRE,   [VMP_BACKING_UNMAPPED] = VMP_LOG_UNMAP,
      [VMP_BACKING_RELEASED] = VMP_LOG_RELEASE, [VMP_BACKING_SHARED] = VMP_LOG_SHARE,
  };
  vmp_pool *pool = self;
  vmp_log_record *record = vmp_log_next(pool->log, (vmp_log_kind)kinds[change->kind]);
  if (record == NULL) return;
  if (change->created) record->flags = VMP_LOG_CREATED;
  record->as.event.address = change->address;
  record->as.event.bytes = change->bytes;
  record->as.event.extra = change->chunk_id;
  record->as.event.value = change->from != 0 ? change->from : change->fence.streams;
  vmp_log_publish(pool->log);
}

static void write_range(vmp_pool *pool, uint64_t offset, uint64_t bytes, uint64_t address, uint8_t flags) {
  vmp_log_record *record = vmp_log_next(pool->log, VMP_LOG_RANGE);
  if (record == NULL) return;
  record->flags = flags;
  record->as.event.address = address;
  record->as.event.bytes = bytes;
  record->as.event.extra = offset;
  vmp_log_publish(pool->log);
}

void vmp_log_write_range(vmp_pool *pool, uint64_t offset, uint64_t bytes) {
  write_range(pool, offset, bytes, vmp_backing_address(pool->backing, offset), 0);
}

void vmp_log_write_tag(vmp_pool *pool, vmp_log_kind kind, vmp_tag tag, uint64_t bytes) {
  vmp_log_write_simple(pool, kind, 0, bytes, 0, 0, vmp_tag_name(&pool->tags, tag));
}

void vmp_log_write_moved(vmp_pool *pool, uint64_t offset) {
  vmp_log_record *record = vmp_log_next(pool->log, VMP_LOG_MOVED);
  if (record == NULL) return;
  record->as.event.address = vmp_backing_address(pool->backing, offset);
  finish_event(pool);
}

void vmp_log_write_simple(vmp_pool *pool, vmp_log_kind kind, uint8_t flags, uint64_t bytes, uint64_t extra,
                          uint64_t value, const char *tag) {
  uint32_t id = vmp_log_string(pool->log, tag);
  if (kind == VMP_LOG_STEP) write_sample(pool);
  vmp_log_record *record = vmp_log_next(pool->log, kind);
  if (record == NULL) return;
  record->flags = flags;
  record->as.event.bytes = bytes;
  record->as.event.extra = extra;
  record->as.event.value = value;
  record->as.event.tag = id;
  finish_event(pool);
}

// ---- keyframes ----

static void count_mapping(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                          uint64_t live, vmp_fence fence) {
  (void)offset;
  (void)bytes;
  (void)state;
  (void)chunk_id;
  (void)live;
  (void)fence;
  ++*(uint64_t *)context;
}

static void count_range(void *context, uint64_t offset, uint64_t bytes, uint64_t address) {
  (void)offset;
  (void)bytes;
  (void)address;
  ++*(uint64_t *)context;
}

static void count_spare(void *context, uint64_t chunk_id, uint64_t bytes) {
  (void)chunk_id;
  (void)bytes;
  ++*(uint64_t *)context;
}

static void state_range(void *context, uint64_t offset, uint64_t bytes, uint64_t address) {
  write_range(context, offset, bytes, address, VMP_LOG_STATE);
}

static void state_mapping(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                          uint64_t live, vmp_fence fence) {
  vmp_pool *pool = context;
  (void)live;
  bool is_home = vmp_backing_is_home(pool->backing, offset);
  vmp_log_kind kind = is_home ? VMP_LOG_MAP : strcmp(state, "live") == 0 ? VMP_LOG_SHARE : VMP_LOG_RETIRE;
  vmp_log_record *record = vmp_log_next(pool->log, kind);
  if (record == NULL) return;
  record->flags = VMP_LOG_STATE;
  record->as.event.address = vmp_backing_address(pool->backing, offset);
  record->as.event.bytes = bytes;
  record->as.event.extra = chunk_id;
  record->as.event.value = kind == VMP_LOG_RETIRE ? fence.streams : 0;
  vmp_log_publish(pool->log);
}

static void state_spare(void *context, uint64_t chunk_id, uint64_t bytes) {
  vmp_pool *pool = context;
  vmp_log_record *record = vmp_log_next(pool->log, VMP_LOG_SPARE);
  if (record == NULL) return;
  record->flags = VMP_LOG_STATE;
  record->as.event.bytes = bytes;
  record->as.event.extra = chunk_id;
  vmp_log_publish(pool->log);
}

static uint32_t string_of_block(vmp_pool *pool, uint64_t offset, uint64_t word) {
  return vmp_block_is_labelled(word) ? string_of(pool, vmp_label_of(&pool->tags, offset)) : 0;
}

// see_block interns what a block is called, and counts it: a keyframe has no room for new strings.
typedef struct block_count {
  vmp_pool *pool;
  uint64_t blocks;
} block_count;

static void see_block(void *context, uint64_t offset, uint64_t word) {
  block_count *count = context;
  (void)string_of_block(count->pool, offset, word);
  count->blocks++;
}

static void state_block(void *context, uint64_t offset, uint64_t word) {
  vmp_pool *pool = context;
  uint32_t tag = string_of_block(pool, offset, word);
  vmp_found found = {.bytes = 0};
  (void)vmp_route_find(pool, offset, &found);
  vmp_log_record *record = vmp_log_next(pool->log, VMP_LOG_ALLOC);
  if (record == NULL) return;
  record->flags = VMP_LOG_STATE;
  record->layer = (uint8_t)vmp_block_layer(word);
  record->stream = (uint8_t)vmp_block_stream(word);
  record->as.event.address = vmp_backing_address(pool->backing, offset);
  record->as.event.bytes = found.bytes;
  record->as.event.extra = found.bytes - vmp_block_slack(word);
  record->as.event.tag = tag;
  vmp_log_publish(pool->log);
}

// Committed pages of regions, one record each.
static void count_pages(void *context, uint64_t offset, uint64_t bytes) {
  block_count *count = context;
  const vmp_region *region = vmp_regions_find(count->pool, offset);
  if (region == NULL) return;
  (void)vmp_log_string(count->pool->log, region->name);
  count->blocks += bytes / region->range->page_bytes;
}

static void state_pages(void *context, uint64_t offset, uint64_t bytes) {
  vmp_pool *pool = context;
  const vmp_region *region = vmp_regions_find(pool, offset);
  if (region == NULL) return;
  for (uint64_t at = offset; at < offset + bytes; at += region->range->page_bytes) {
    uint32_t tag = vmp_log_string(pool->log, region->name);
    vmp_log_record *record = vmp_log_next(pool->log, VMP_LOG_ALLOC);
    if (record == NULL) return;
    record->flags = VMP_LOG_STATE;
    record->layer = VMP_LOG_REGION;
    record->stream = VMP_LOG_NONE;
    record->as.event.address = vmp_backing_address(pool->backing, at);
    record->as.event.bytes = record->as.event.extra = region->range->page_bytes;
    record->as.event.tag = tag;
    vmp_log_publish(pool->log);
  }
}

static void state_streams(vmp_pool *pool) {
  for (uint64_t rest = pool->log->announced; rest != 0; rest &= rest - 1) {
    unsigned index = vmp_lowest_bit(rest);
    vmp_log_record *record = vmp_log_next(pool->log, VMP_LOG_STREAM);
    if (record == NULL) return;
    record->flags = VMP_LOG_STATE;
    record->stream = (uint8_t)index;
    record->as.event.extra = pool->log->handles[index];
    vmp_log_publish(pool->log);
  }
}

static uint64_t count_state(const vmp_pool *pool) {
  uint64_t count = vmp_log_count_interned(pool->log);
  for (uint64_t rest = pool->log->announced; rest != 0; rest &= rest - 1) count++;
  vmp_backing_walk_reservations(pool->backing, count_range, &count);
  vmp_backing_walk_mappings(pool->backing, count_mapping, &count);
  vmp_backing_walk_spares(pool->backing, count_spare, &count);
  return count;
}

// What is being mapped can't be told yet, nor the pages of a region that are being committed.
bool vmp_log_can_tell(const vmp_pool *pool) {
  for (const vmp_region *region = pool->regions.first; region != NULL; region = region->next) {
    if (region->busy) return false;
  }
  return !vmp_backing_in_transit(pool->backing);
}

bool vmp_log_write_keyframe(vmp_pool *pool) {
  vmp_log *log = pool->log;
  if (!vmp_log_can_tell(pool)) return false;
  vmp_backing_stats stats;
  vmp_backing_get_stats(pool->backing, &stats);
  block_count blocks = {.pool = pool};
  vmp_books_walk(pool, see_block, &blocks);
  vmp_regions_walk(pool, count_pages, &blocks);
  uint64_t sequence = vmp_log_written(log), count = count_state(pool) + blocks.blocks;
  vmp_log_record *record = vmp_log_next(log, VMP_LOG_KEYFRAME);
  if (record == NULL) return true;
  record->as.event.address = committed_live(pool);
  record->as.event.bytes = stats.mapped_bytes;
  record->as.event.extra = count;
  record->as.event.value = blocks.blocks;
  vmp_log_publish(log);
  vmp_log_write_interned(log);
  state_streams(pool);
  vmp_backing_walk_reservations(pool->backing, state_range, pool);
  vmp_backing_walk_mappings(pool->backing, state_mapping, pool);
  vmp_backing_walk_spares(pool->backing, state_spare, pool);
  vmp_books_walk(pool, state_block, pool);
  vmp_regions_walk(pool, state_pages, pool);
  vmp_log_keyframe_done(log, sequence, count + 1);
  return true;
}
