// claims.c: the part of the scenario that goes through backing and clock: claims filled on one stream, read on another,
// released with both uses on record, and taken by a third.
#include <string.h>

#include "tests/fault/world.h"

static vmp_cu_ptr address_of(const world *w, const world_claim *c) {
  return vmp_backing_address(w->backing, w->base + c->offset);
}

static vmp_fence fence_of(world *w, unsigned users) {
  vmp_fence fence = VMP_FENCE_NONE;
  for (unsigned i = 0; i < WORLD_STREAMS; i++) {
    if ((users >> i & 1u) != 0) fence = vmp_fence_merge(fence, vmp_clock_fence(w->clock, w->indices[i]));
  }
  return fence;
}

static void add_live(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                     uint64_t live, vmp_fence fence) {
  (void)offset;
  (void)chunk_id;
  (void)live;
  (void)fence;
  if (strcmp(state, "live") == 0) *(uint64_t *)context += bytes;
}

static uint64_t live_bytes(const world *w) {
  uint64_t bytes = 0;
  vmp_backing_walk_mappings(w->backing, add_live, &bytes);
  return bytes;
}

static void fill(world *w, world_claim *c) {
  if (!world_enter(w)) return;
  unsigned char tag = ++w->next_tag;
  c->users |= 1u << c->stream;
  if (WORLD_TRY(w,
                vmp_drv_memset_d8_async(w->driver, address_of(w, c), tag, (size_t)c->bytes, w->streams[c->stream]))) {
    c->tag = tag;
  }
  world_leave(w);
}

world_claim *world_claim_range(world *w, uint64_t offset, uint64_t bytes, unsigned stream, vmp_effort effort) {
  if (w->bytes == 0 || w->streams[stream] == NULL || w->num_claims == WORLD_CLAIMS) return NULL;
  uint64_t live = live_bytes(w);
  vmp_fence behind = VMP_FENCE_NONE;
  vmp_status status = w->ops.claim(w->ops.self, w->base + offset, bytes, w->indices[stream], effort, &behind);
  if (!world_status(w, status)) {
    VEXPECT_UINT_EQ(live_bytes(w), live);
    return NULL;
  }
  // The memory may be used once the stream is ordered behind those who had it before.
  if (!world_status(w, vmp_clock_order(w->clock, w->streams[stream], behind))) {
    (void)w->ops.release(w->ops.self, w->base + offset, bytes, behind);
    return NULL;
  }
  world_claim *c = &w->claims[w->num_claims++];
  *c = (world_claim){.offset = offset, .bytes = bytes, .stream = stream};
  fill(w, c);
  return c;
}

// The first and the last bytes of a claim, copied to the host by a stream that runs behind the claim's own.
void world_read_claim(world *w, world_claim *c, unsigned stream) {
  if (c == NULL || c->tag == 0 || w->streams[stream] == NULL || w->num_reads + 2 > WORLD_READS) return;
  if (!world_status(w, vmp_clock_order(w->clock, w->streams[stream], fence_of(w, 1u << c->stream)))) return;
  if (!world_enter(w)) return;
  const vmp_cu_ptr ends[] = {address_of(w, c), address_of(w, c) + c->bytes - WORLD_READ_BYTES};
  for (int i = 0; i < 2; i++) {
    world_read *read = &w->reads[w->num_reads];
    read->tag = c->tag;
    c->users |= 1u << stream;
    if (WORLD_TRY(w,
                  vmp_drv_memcpy_dtoh_async(w->driver, read->bytes, ends[i], WORLD_READ_BYTES, w->streams[stream]))) {
      w->num_reads++;
    }
  }
  world_leave(w);
}

void world_release_claim(world *w, world_claim *c) {
  if (c == NULL) return;
  (void)w->ops.release(w->ops.self, w->base + c->offset, c->bytes, fence_of(w, c->users));
  *c = w->claims[--w->num_claims];
}

static void wait_and_poll(world *w) {
  (void)world_status(w, vmp_clock_wait(w->clock, vmp_backing_pending(w->backing), UINT64_MAX));
  (void)vmp_backing_poll(w->backing);
}

// Released claims leave by the last one's place, so each is released before the next pointer is used.
void world_claims(world *w) {
  if (w->bytes == 0) return;
  size_t first = w->num_claims;
  world_claim *a = world_claim_range(w, 0, 10 * GRANULE, 0, VMP_EFFORT_NORMAL);
  world_read_claim(w, a, 1);
  world_claim *b = world_claim_range(w, 32 * GRANULE, GRANULE + 512, 1, VMP_EFFORT_NORMAL);
  world_read_claim(w, b, 2);
  world_check(w);
  if (w->num_claims > first) world_release_claim(w, &w->claims[first]);
  world_claim *c =
      world_claim_range(w, 64 * GRANULE, 9 * GRANULE, 2, VMP_EFFORT_NORMAL);  // takes what was just released
  world_read_claim(w, c, 3);
  (void)vmp_backing_poll(w->backing);
  world_check(w);
  world_claim *d = world_claim_range(w, 100 * GRANULE, 3 * GRANULE + 512, 3, VMP_EFFORT_RESIZE);
  world_read_claim(w, d, 0);
  (void)world_synchronize(w);
  while (w->num_claims > first) world_release_claim(w, &w->claims[w->num_claims - 1]);
  wait_and_poll(w);
  world_check(w);
  vmp_backing_trim_report report;
  (void)world_status(w, vmp_backing_trim(w->backing, 4 * GRANULE, &report));
  (void)vmp_backing_map_ahead(w->backing, w->base, 32 * GRANULE, 4 * GRANULE);
}

// Everything that the limit allows, claimed by four streams, filled, read by the next stream, given back.
void world_use(world *w) {
  VASSERT_UINT_GT(w->bytes, 0);
  wait_and_poll(w);
  world_claim *claims[WORLD_STREAMS];
  for (unsigned i = 0; i < WORLD_STREAMS; i++) {
    claims[i] =
        world_claim_range(w, 128 * GRANULE + i * 8 * GRANULE, WORLD_LIMIT_BYTES / WORLD_STREAMS, i, VMP_EFFORT_RESIZE);
    VASSERT_NOT_NULL(claims[i]);
    world_read_claim(w, claims[i], (i + 1) % WORLD_STREAMS);
  }
  VEXPECT_TRUE(world_synchronize(w));
  while (w->num_claims > 0) world_release_claim(w, &w->claims[w->num_claims - 1]);
  wait_and_poll(w);
  vmp_backing_trim_report report;
  VEXPECT_OK(vmp_backing_trim(w->backing, 0, &report));
  vmp_backing_stats stats;
  vmp_backing_get_stats(w->backing, &stats);
  VEXPECT_UINT_EQ(stats.mapped_bytes + stats.spare_bytes, 0);
  VEXPECT_UINT_EQ(stats.broken_bytes + stats.retiring_bytes, 0);
  world_check(w);
}
