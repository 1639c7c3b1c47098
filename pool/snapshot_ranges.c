// snapshot_ranges.c: what lies at which address. See snapshot.h. Offsets are relative to the base of their range.
#include <string.h>

#include "pool/snapshot.h"

static bool in_range(const snapshot *s, uint64_t offset) {
  return offset >= s->range_offset && offset - s->range_offset < s->range_bytes;
}

static void end_run(snapshot *s) {
  if (s->run_bytes == 0) return;
  vmp_json_open_inline(&s->json, NULL, '[');
  vmp_json_uint(&s->json, NULL, s->run_offset - s->range_offset);
  vmp_json_uint(&s->json, NULL, s->run_bytes);
  vmp_json_string(&s->json, NULL, s->run_state);
  vmp_json_close(&s->json);
  s->run_bytes = 0;
}

// state_of translates backing's words: a chunk that live blocks touch is simply mapped.
static const char *state_of(const char *state) {
  if (strcmp(state, "live") == 0) return "mapped";
  if (strcmp(state, "transit") == 0) return "in_transit";
  return state;
}

static void write_slots(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                        uint64_t live, vmp_fence fence) {
  snapshot *s = context;
  (void)chunk_id;
  (void)live;
  (void)fence;
  if (!in_range(s, offset)) return;
  state = state_of(state);
  if (s->run_bytes > 0 && s->run_offset + s->run_bytes == offset && strcmp(s->run_state, state) == 0) {
    s->run_bytes += bytes;
    return;
  }
  end_run(s);
  s->run_offset = offset;
  s->run_bytes = bytes;
  s->run_state = state;
}

void vmp_snapshot_fence(snapshot *s, vmp_fence fence) {
  bool nobody = vmp_fence_is_none(fence) || vmp_clock_known_complete(s->pool->clock, fence);
  vmp_json_hex(&s->json, NULL, nobody ? 0 : fence.streams);
  vmp_json_uint(&s->json, NULL, nobody ? 0 : fence.sequence);
}

static void write_chunk(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                        uint64_t live, vmp_fence fence) {
  snapshot *s = context;
  if (!in_range(s, offset)) return;
  vmp_json_open_inline(&s->json, NULL, '[');
  vmp_json_uint(&s->json, NULL, offset - s->range_offset);
  vmp_json_uint(&s->json, NULL, bytes);
  vmp_json_string(&s->json, NULL, state_of(state));
  vmp_json_uint(&s->json, NULL, chunk_id);
  vmp_json_uint(&s->json, NULL, live);
  vmp_snapshot_fence(s, fence);
  vmp_json_close(&s->json);
}

// ---- blocks and free space ----

// write_run writes committed pages, as a block of the layer "region".
static void write_run(snapshot *s, const snapshot_block *run) {
  vmp_json_open_inline(&s->json, NULL, '[');
  vmp_json_uint(&s->json, NULL, run->offset - s->range_offset);
  vmp_json_uint(&s->json, NULL, run->region_bytes);
  vmp_json_uint(&s->json, NULL, run->region_bytes);
  vmp_json_string(&s->json, NULL, "region");
  vmp_json_null(&s->json, NULL);
  vmp_json_hex(&s->json, NULL, 0);
  vmp_json_uint(&s->json, NULL, 0);
  vmp_json_close(&s->json);
}

static void write_block(snapshot *s, const snapshot_block *block) {
  vmp_found found = {.bytes = 0};
  (void)vmp_route_find(s->pool, block->offset, &found);
  vmp_json_open_inline(&s->json, NULL, '[');
  vmp_json_uint(&s->json, NULL, block->offset - s->range_offset);
  vmp_json_uint(&s->json, NULL, found.bytes);
  vmp_json_uint(&s->json, NULL, found.bytes - vmp_block_slack(block->word));
  vmp_json_string(&s->json, NULL, vmp_layer_name(vmp_block_layer(block->word)));
  const uint64_t *recorded = NULL;
  if (vmp_block_has_streams(block->word)) recorded = vmp_offset_map_find(&s->pool->streams, block->offset);
  vmp_json_uint(&s->json, NULL, vmp_block_stream(block->word));
  vmp_json_hex(&s->json, NULL, recorded == NULL ? 0 : *recorded);
  vmp_label label = {0, 0};
  if (vmp_block_is_labelled(block->word)) label = vmp_label_of(&s->pool->tags, block->offset);
  vmp_json_uint(&s->json, NULL, label.tag);
  if (label.name != 0) vmp_json_string(&s->json, NULL, vmp_name_text(&s->pool->tags.names, label.name));
  vmp_json_close(&s->json);
}

// write_area writes what a layer's walker shows besides blocks: arenas, spans, free space.
static void write_area(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  snapshot *s = context;
  if (!in_range(s, offset) || strcmp(what, "block") == 0) return;
  if (strcmp(what, "piece") == 0 && vmp_regions_find(s->pool, offset) != NULL) return;  // shown as a region
  vmp_json_open_inline(&s->json, NULL, '[');
  vmp_json_uint(&s->json, NULL, offset - s->range_offset);
  vmp_json_uint(&s->json, NULL, bytes);
  vmp_json_string(&s->json, NULL, s->layer);
  vmp_json_string(&s->json, NULL, what);
  vmp_snapshot_fence(s, fence);
  vmp_json_close(&s->json);
}

static void write_areas(snapshot *s) {
  vmp_json_open(&s->json, "areas", '[');
  s->layer = vmp_layer_name(VMP_LAYER_BUDDY);
  vmp_buddy_walk(s->pool->buddy, write_area, s);
  for (const vmp_region *region = s->pool->regions.first; region != NULL; region = region->next) {
    write_area(s, region->range->offset, region->max_bytes, "region", region->range->fence);
  }
  s->layer = vmp_layer_name(VMP_LAYER_MID);
  vmp_mid_walk(s->pool->mid, write_area, s);
  if (s->pool->span_mid != NULL) vmp_mid_walk(s->pool->span_mid, write_area, s);
  for (const vmp_domain *domain = s->pool->tags.domains; domain != NULL; domain = domain->next) {
    vmp_mid_walk(domain->mid, write_area, s);
  }
  vmp_json_close(&s->json);
}

// span_sum: the objects of one span.
typedef struct span_sum {
  uint64_t object_bytes, objects, used;
  vmp_fence fence;  // of the free ones
} span_sum;

static void see_object(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  span_sum *sum = context;
  (void)offset;
  if (strcmp(what, "rest") == 0) return;
  sum->object_bytes = bytes;
  sum->objects++;
  if (strcmp(what, "object") == 0) {
    sum->used++;
  } else {
    sum->fence = vmp_fence_merge(sum->fence, fence);
  }
}

static void write_span(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  snapshot *s = context;
  span_sum sum = {0};
  (void)fence;
  if (!in_range(s, offset) || strcmp(what, "span") != 0) return;
  vmp_route_walk_span(s->pool, offset, see_object, &sum);
  if (sum.objects == 0) return;  // still on its way
  vmp_json_open_inline(&s->json, NULL, '[');
  vmp_json_uint(&s->json, NULL, offset - s->range_offset);
  vmp_json_uint(&s->json, NULL, bytes);
  vmp_json_uint(&s->json, NULL, sum.object_bytes);
  vmp_json_uint(&s->json, NULL, sum.objects);
  vmp_json_uint(&s->json, NULL, sum.used);
  vmp_snapshot_fence(s, sum.fence);
  vmp_json_close(&s->json);
}

static void write_range(void *context, uint64_t offset, uint64_t bytes, uint64_t address) {
  snapshot *s = context;
  vmp_json *json = &s->json;
  s->range_offset = offset;
  s->range_bytes = bytes;
  vmp_json_open(json, NULL, '{');
  vmp_json_hex(json, "base", address);
  vmp_json_uint(json, "bytes", bytes);
  vmp_json_open(json, "slots", '[');
  vmp_backing_walk_mappings(s->pool->backing, write_slots, s);
  end_run(s);
  vmp_json_close(json);
  vmp_json_open(json, "chunks", '[');
  vmp_backing_walk_mappings(s->pool->backing, write_chunk, s);
  vmp_json_close(json);
  vmp_json_open(json, "blocks", '[');
  for (size_t i = 0; i < s->num_blocks; i++) {
    if (!in_range(s, s->blocks[i].offset)) continue;
    if (s->blocks[i].region_bytes > 0) {
      write_run(s, &s->blocks[i]);
    } else {
      write_block(s, &s->blocks[i]);
    }
  }
  vmp_json_close(json);
  vmp_json_open(json, "spans", '[');
  vmp_mid_walk(s->pool->mid, write_span, s);
  if (s->pool->span_mid != NULL) vmp_mid_walk(s->pool->span_mid, write_span, s);
  for (const vmp_domain *domain = s->pool->tags.domains; domain != NULL; domain = domain->next) {
    vmp_mid_walk(domain->mid, write_span, s);
  }
  vmp_json_close(json);
  write_areas(s);
  vmp_json_close(json);
}

static void write_regions(snapshot *s) {
  vmp_json *json = &s->json;
  vmp_json_open(json, "regions", '[');
  for (const vmp_region *region = s->pool->regions.first; region != NULL; region = region->next) {
    vmp_json_open_inline(json, NULL, '{');
    vmp_json_string(json, "name", region->name);
    vmp_json_hex(json, "base", vmp_backing_address(s->pool->backing, region->range->offset));
    vmp_json_uint(json, "bytes", region->max_bytes);
    vmp_json_uint(json, "page_bytes", region->range->page_bytes);
    vmp_json_uint(json, "limit", region->limit_bytes);
    vmp_json_uint(json, "committed", region->committed_bytes);
    vmp_json_close(json);
  }
  vmp_json_close(json);
}

void vmp_snapshot_ranges(snapshot *s) {
  write_regions(s);
  vmp_json_open(&s->json, "ranges", '[');
  vmp_backing_walk_reservations(s->pool->backing, write_range, s);
  vmp_json_close(&s->json);
}
