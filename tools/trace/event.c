#include "tools/trace/event.h"

#include <stdlib.h>
#include <string.h>

#include "vmm/align.h"

void trace_list_init(trace_list *list) {
  memset(list, 0, sizeof(*list));
  list->num_streams = 1;
}

void trace_list_destroy(trace_list *list) {
  free(list->events);
  free(list->block_bytes);
  free(list->block_stream);
  trace_list_init(list);
}

static bool grow_events(trace_list *list) {
  if (list->num_events < list->capacity) return true;
  const size_t capacity = list->capacity == 0 ? 1024 : list->capacity * 2;
  trace_event *events = reallocarray(list->events, capacity, sizeof(*events));
  if (events == NULL) return false;
  list->events = events;
  list->capacity = capacity;
  return true;
}

static bool grow_blocks(trace_list *list) {
  if (list->num_blocks < list->blocks_capacity) return true;
  const size_t capacity = list->blocks_capacity == 0 ? 512 : list->blocks_capacity * 2;
  uint64_t *bytes = reallocarray(list->block_bytes, capacity, sizeof(*bytes));
  if (bytes == NULL) return false;
  list->block_bytes = bytes;
  uint16_t *streams = reallocarray(list->block_stream, capacity, sizeof(*streams));
  if (streams == NULL) return false;
  list->block_stream = streams;
  list->blocks_capacity = capacity;
  return true;
}

static void append(trace_list *list, trace_event_kind kind, uint32_t block, uint16_t stream, int64_t t_us) {
  if (list->failed || !grow_events(list)) {
    list->failed = true;
    return;
  }
  list->events[list->num_events++] = (trace_event){
      .bytes = list->block_bytes[block], .t_us = t_us, .block = block, .stream = stream, .kind = (uint8_t)kind};
  if (stream >= list->num_streams) list->num_streams = (uint32_t)stream + 1;
}

uint32_t trace_list_alloc(trace_list *list, uint64_t bytes, uint16_t stream, int64_t t_us) {
  if (list->failed || list->num_blocks == UINT32_MAX || !grow_blocks(list)) {
    list->failed = true;
    return 0;
  }
  const uint32_t block = (uint32_t)list->num_blocks;
  list->block_bytes[block] = bytes;
  list->block_stream[block] = stream;
  list->num_blocks++;
  append(list, TRACE_ALLOC, block, stream, t_us);
  // A trace may ask for more than 2^64 bytes in total: such allocations fail in the replay, and the peak stays put.
  if (!vmp_add(list->live_bytes, bytes, &list->live_bytes)) list->live_bytes = UINT64_MAX;
  if (list->live_bytes > list->peak_bytes) list->peak_bytes = list->live_bytes;
  return block;
}

void trace_list_free_on(trace_list *list, uint32_t block, uint16_t stream, int64_t t_us) {
  if (list->failed) return;
  append(list, TRACE_FREE, block, stream, t_us);
  list->live_bytes -= list->block_bytes[block] <= list->live_bytes ? list->block_bytes[block] : list->live_bytes;
}

void trace_list_free(trace_list *list, uint32_t block, int64_t t_us) {
  if (list->failed) return;
  trace_list_free_on(list, block, list->block_stream[block], t_us);
}
