// fake_backing.c: see fake_backing.h.
#include "tests/support/fake_backing.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/error.h"

typedef struct fake_claim {
  uint64_t offset, bytes;  // bytes 0: an empty place of the table
} fake_claim;

struct vmp_fake_backing {
  vmp_backing_ops ops;
  vmp_fake_options options;
  vmp_fake_counts counts;
  char error[256];

  vmp_fake_slot *slots;
  vmp_fake_chunk *chunks;  // index 0 is none
  uint32_t *free_chunks;   // stack
  size_t num_free_chunks, used_chunks;
  uint64_t mapped_slots, parked_slots;
  uint64_t transit_slots;  // promised to claims that are in the middle
  uint64_t parkings;

  uint64_t *claimed_steps;  // one bit per step
  fake_claim *claims;       // open addressing by offset
  size_t claims_capacity, num_claims;
  uint64_t claimed_bytes;
  fake_claim *again;  // claims of steps that an earlier claim holds, in no order
  size_t again_capacity, num_again;

  struct {
    uint64_t offset, bytes;
  } * log;                  // ring
  uint64_t log_end;         // number of changes ever
  uint64_t log_everything;  // cursors before this get "everything"

  uint64_t fail_successes, fail_failures;
  vmp_status fail_status;
  void (*during)(void *context, uint64_t offset, uint64_t bytes);
  void *during_context;
  void (*refused)(void *context, uint64_t offset, uint64_t bytes);
  void *refused_context;

  uint64_t completed[VMP_FAKE_STREAMS];
  uint64_t ordered[VMP_FAKE_STREAMS][VMP_FAKE_STREAMS];  // [waiter][behind]
};

// ---- helpers ----
static void *need(size_t n, size_t size) {
  void *memory = calloc(n, size);
  if (memory == NULL) {
    fprintf(stderr, "fake_backing: no host memory for the test\n");
    exit(2);
  }
  return memory;
}

static void fault(vmp_fake_backing *fake, const char *format, ...) VMP_PRINTF(2, 3);
static void fault(vmp_fake_backing *fake, const char *format, ...) {
  if (fake->counts.errors++ > 0) return;
  va_list args;
  va_start(args, format);
  (void)vsnprintf(fake->error, sizeof fake->error, format, args);
  va_end(args);
}

static bool inside(const vmp_fake_backing *fake, uint64_t offset, uint64_t bytes) {
  uint64_t size = fake->options.slots * fake->options.granule_bytes;
  return offset >= fake->options.offset && offset - fake->options.offset <= size &&
         bytes <= size - (offset - fake->options.offset);
}

// slots_of: the half-open slot range that the bytes touch.
static void slots_of(const vmp_fake_backing *fake, uint64_t offset, uint64_t bytes, uint64_t *first, uint64_t *end) {
  *first = (offset - fake->options.offset) / fake->options.granule_bytes;
  *end = (offset + bytes - 1 - fake->options.offset) / fake->options.granule_bytes + 1;
}

static void log_change(vmp_fake_backing *fake, uint64_t first_slot, uint64_t slots) {
  size_t at = (size_t)(fake->log_end % fake->options.log_ranges);
  fake->log[at].offset = fake->options.offset + first_slot * fake->options.granule_bytes;
  fake->log[at].bytes = slots * fake->options.granule_bytes;
  fake->log_end++;
}

static vmp_fence fence_others(const vmp_fake_backing *fake, vmp_fence fence, vmp_stream_index self) {
  vmp_fence rest = VMP_FENCE_NONE;
  for (uint64_t left = fence.streams; left != 0; left &= left - 1) {
    unsigned i = (unsigned)__builtin_ctzll(left);
    if (i == self || fake->completed[i] >= fence.sequence) continue;
    if (self < VMP_FAKE_STREAMS && fake->ordered[self][i] >= fence.sequence) continue;
    rest.streams |= UINT64_C(1) << i;
    rest.sequence = fence.sequence;
  }
  return rest;
}

// ---- chunks ----
static void new_chunk(vmp_fake_backing *fake, uint64_t first_slot, uint64_t slots, uint64_t live) {
  uint32_t index =
      fake->num_free_chunks > 0 ? fake->free_chunks[--fake->num_free_chunks] : (uint32_t)++fake->used_chunks;
  fake->chunks[index] =
      (vmp_fake_chunk){.first_slot = first_slot, .slots = slots, .live = live, .parked_at = ++fake->parkings};
  for (uint64_t s = first_slot; s < first_slot + slots; s++) fake->slots[s].chunk = index;
  fake->mapped_slots += slots;
  if (live == 0) fake->parked_slots += slots;
  fake->counts.slots_mapped += slots;
}

static void drop_chunk(vmp_fake_backing *fake, uint32_t index, bool blocked) {
  vmp_fake_chunk *chunk = &fake->chunks[index];
  for (uint64_t s = chunk->first_slot; s < chunk->first_slot + chunk->slots; s++) {
    fake->slots[s].chunk = 0;
    fake->slots[s].blocked = blocked;
  }
  fake->mapped_slots -= chunk->slots;
  fake->parked_slots -= chunk->slots;
  fake->counts.slots_unmapped += chunk->slots;
  log_change(fake, chunk->first_slot, chunk->slots);
  chunk->slots = 0;
  fake->free_chunks[fake->num_free_chunks++] = index;
}

// map_run fills the unmapped slots of [first, end) with chunks, as large as alignment and chunk_slots allow.
static void map_run(vmp_fake_backing *fake, uint64_t first, uint64_t end, uint64_t live, bool logged) {
  uint64_t base = fake->options.offset / fake->options.granule_bytes;
  uint64_t s = first;
  while (s < end) {
    if (fake->slots[s].chunk != 0) {
      s++;
      continue;
    }
    uint64_t size = fake->options.chunk_slots;
    for (;; size /= 2) {
      if ((base + s) % size != 0 || s + size > end) continue;
      uint64_t i = 0;
      while (i < size && fake->slots[s + i].chunk == 0) i++;
      if (i == size) break;
    }
    new_chunk(fake, s, size, live);
    if (logged) log_change(fake, s, size);
    s += size;
  }
}

// ---- the functions of the ops ----
static vmp_cost fake_cost(void *self, uint64_t offset, uint64_t bytes, vmp_stream_index stream) {
  vmp_fake_backing *fake = self;
  vmp_cost cost = {0, 0, false, false};
  fake->counts.costs++;
  if (bytes == 0 || !inside(fake, offset, bytes)) {
    fault(fake, "cost of [%#llx, +%#llx), which is outside of the addresses", (unsigned long long)offset,
          (unsigned long long)bytes);
    cost.blocked = true;
    return cost;
  }
  uint64_t first, end;
  slots_of(fake, offset, bytes, &first, &end);
  uint32_t last_chunk = 0;
  for (uint64_t s = first; s < end; s++) {
    uint32_t chunk = fake->slots[s].chunk;
    if (fake->slots[s].blocked) cost.blocked = true;
    if (chunk == 0) cost.slots_to_map++;
    if (chunk == 0 || chunk == last_chunk) continue;
    last_chunk = chunk;
    if (fake->chunks[chunk].live == 0) cost.chunks_pinned++;
    if (!vmp_fence_is_none(fence_others(fake, fake->chunks[chunk].moved, stream))) cost.must_wait = true;
  }
  return cost;
}

static vmp_run_state slot_state(const vmp_fake_backing *fake, uint64_t slot) {
  if (fake->slots[slot].blocked) return VMP_RUN_BLOCKED;
  return fake->slots[slot].chunk != 0 ? VMP_RUN_MAPPED : VMP_RUN_UNMAPPED;
}

static vmp_run_state fake_run(void *self, uint64_t offset, uint64_t end, uint64_t *out_end) {
  vmp_fake_backing *fake = self;
  fake->counts.runs++;
  if (offset >= end) fault(fake, "run at %#llx ends before it begins", (unsigned long long)offset);
  if (!inside(fake, offset, 1)) {
    *out_end = offset < fake->options.offset && end > fake->options.offset ? fake->options.offset : end;
    return VMP_RUN_BLOCKED;
  }
  uint64_t granule = fake->options.granule_bytes;
  uint64_t s = (offset - fake->options.offset) / granule;
  vmp_run_state state = slot_state(fake, s);
  uint64_t at;
  do {
    s++;
    at = fake->options.offset + s * granule;
  } while (at < end && s < fake->options.slots && slot_state(fake, s) == state);
  *out_end = at < end ? at : end;
  return state;
}

// mark_steps sets or clears the bits of a range; returns false if one had that value already.
static bool mark_steps(vmp_fake_backing *fake, uint64_t offset, uint64_t bytes, bool set) {
  uint64_t step = (offset - fake->options.offset) / fake->options.step_bytes;
  uint64_t end = step + bytes / fake->options.step_bytes;
  bool fine = true;
  while (step < end) {
    uint64_t in_word = step % 64;
    uint64_t count = 64 - in_word < end - step ? 64 - in_word : end - step;
    uint64_t mask = (count == 64 ? UINT64_MAX : (UINT64_C(1) << count) - 1) << in_word;
    uint64_t *word = &fake->claimed_steps[step / 64];
    if ((*word & mask) != (set ? 0 : mask)) fine = false;
    *word = set ? *word | mask : *word & ~mask;
    step += count;
  }
  return fine;
}

static bool step_is_claimed(const vmp_fake_backing *fake, uint64_t step) {
  return (fake->claimed_steps[step / 64] >> (step % 64) & 1) != 0;
}
static uint64_t count_claimed(const vmp_fake_backing *fake, uint64_t offset, uint64_t bytes) {
  uint64_t step = (offset - fake->options.offset) / fake->options.step_bytes, count = 0;
  for (uint64_t end = step + bytes / fake->options.step_bytes; step < end; step++) count += step_is_claimed(fake, step);
  return count;
}

static size_t claim_place(const vmp_fake_backing *fake, uint64_t offset) {
  uint64_t hash = (offset / fake->options.step_bytes) * UINT64_C(0x9e3779b97f4a7c15);
  size_t at = (size_t)(hash >> 32) & (fake->claims_capacity - 1);
  while (fake->claims[at].bytes != 0 && fake->claims[at].offset != offset) at = (at + 1) & (fake->claims_capacity - 1);
  return at;
}

static void add_claim(vmp_fake_backing *fake, uint64_t offset, uint64_t bytes) {
  if (2 * (fake->num_claims + 1) > fake->claims_capacity) {
    fake_claim *old = fake->claims;
    size_t old_capacity = fake->claims_capacity;
    fake->claims_capacity *= 2;
    fake->claims = need(fake->claims_capacity, sizeof *fake->claims);
    for (size_t i = 0; i < old_capacity; i++) {
      if (old[i].bytes != 0) fake->claims[claim_place(fake, old[i].offset)] = old[i];
    }
    free(old);
  }
  fake->claims[claim_place(fake, offset)] = (fake_claim){offset, bytes};
  fake->num_claims++;
  fake->claimed_bytes += bytes;
}

static bool remove_claim(vmp_fake_backing *fake, uint64_t offset, uint64_t bytes) {
  size_t at = claim_place(fake, offset);
  if (fake->claims[at].bytes != bytes) return false;
  fake->claims[at].bytes = 0;
  fake->num_claims--;
  fake->claimed_bytes -= bytes;
  // Close the gap, so that later entries of the same chain are still found.
  for (size_t i = (at + 1) & (fake->claims_capacity - 1); fake->claims[i].bytes != 0;
       i = (i + 1) & (fake->claims_capacity - 1)) {
    fake_claim moved = fake->claims[i];
    fake->claims[i].bytes = 0;
    fake->claims[claim_place(fake, moved.offset)] = moved;
  }
  return true;
}

// ---- claims of what is claimed already ----
static void add_again(vmp_fake_backing *fake, uint64_t offset, uint64_t bytes) {
  if (fake->num_again == fake->again_capacity) {
    fake_claim *old = fake->again;
    fake->again_capacity = 2 * fake->again_capacity + 16;
    fake->again = need(fake->again_capacity, sizeof *fake->again);
    if (fake->num_again > 0) memcpy(fake->again, old, fake->num_again * sizeof *old);
    free(old);
  }
  fake->again[fake->num_again++] = (fake_claim){offset, bytes};
}

static bool remove_again(vmp_fake_backing *fake, uint64_t offset, uint64_t bytes) {
  for (size_t i = fake->num_again; i-- > 0;) {
    if (fake->again[i].offset != offset || fake->again[i].bytes != bytes) continue;
    fake->again[i] = fake->again[--fake->num_again];
    return true;
  }
  return false;
}

// settle_again makes the claims inside [offset, offset + bytes), which was released, ones like any other.
static void settle_again(vmp_fake_backing *fake, uint64_t offset, uint64_t bytes) {
  for (size_t i = 0; i < fake->num_again;) {
    fake_claim claim = fake->again[i];
    if (claim.offset >= offset + bytes || claim.offset + claim.bytes <= offset) {
      i++;
      continue;
    }
    fake->again[i] = fake->again[--fake->num_again];
    if (!mark_steps(fake, claim.offset, claim.bytes, true)) {
      fault(fake, "the claim again of [%#llx, +%#llx) overlaps another claim", (unsigned long long)claim.offset,
            (unsigned long long)claim.bytes);
    }
    add_claim(fake, claim.offset, claim.bytes);
  }
}

// take_parked frees physical room for `slots` slots by taking the chunks that were parked first, none of which may
// touch [first, end).
static bool take_parked(vmp_fake_backing *fake, uint64_t slots, uint64_t first, uint64_t end) {
  uint64_t limit = fake->options.physical_slots;
  while (fake->mapped_slots + fake->transit_slots + slots > limit) {
    uint32_t oldest = 0;
    for (uint32_t i = 1; i <= fake->used_chunks; i++) {
      const vmp_fake_chunk *chunk = &fake->chunks[i];
      if (chunk->slots == 0 || chunk->live > 0) continue;
      if (chunk->first_slot < end && first < chunk->first_slot + chunk->slots) continue;
      if (oldest == 0 || chunk->parked_at < fake->chunks[oldest].parked_at) oldest = i;
    }
    if (oldest == 0) return false;
    drop_chunk(fake, oldest, fake->options.retire);
    fake->counts.chunks_taken++;
  }
  return true;
}

static uint64_t takable_slots(const vmp_fake_backing *fake, uint64_t first, uint64_t end) {
  uint64_t sum = 0;
  for (uint32_t i = 1; i <= fake->used_chunks; i++) {
    const vmp_fake_chunk *chunk = &fake->chunks[i];
    bool touches = chunk->first_slot < end && first < chunk->first_slot + chunk->slots;
    if (chunk->live == 0 && !touches) sum += chunk->slots;
  }
  return sum;
}

// room_slots: how many more slots could be mapped without taking anything.
static uint64_t room_slots(const vmp_fake_backing *fake) {
  if (fake->options.physical_slots == 0) return UINT64_MAX;
  return fake->options.physical_slots - fake->mapped_slots - fake->transit_slots;
}

// map_ahead parks chunks behind slot `end`, up to the next multiple of chunk_slots, as far as nothing is in the way.
static void map_ahead(vmp_fake_backing *fake, uint64_t end) {
  uint64_t base = fake->options.offset / fake->options.granule_bytes;
  uint64_t ahead = end;
  while (ahead < fake->options.slots && (base + ahead) % fake->options.chunk_slots != 0 &&
         fake->slots[ahead].chunk == 0 && !fake->slots[ahead].blocked && room_slots(fake) > ahead - end) {
    ahead++;
  }
  if (ahead > end) map_run(fake, end, ahead, 0, true);
}

// map_for_claim makes [first, end) mapped; `slots` of it are not. Room has been checked, the chunks that are there
// already are counted, so nobody takes them while the lock is let go.
static void map_for_claim(vmp_fake_backing *fake, uint64_t first, uint64_t end, uint64_t slots, uint64_t offset,
                          uint64_t bytes) {
  if (fake->options.physical_slots != 0) (void)take_parked(fake, slots, first, end);
  if (fake->during != NULL) {
    for (uint64_t s = first; s < end; s++) fake->slots[s].blocked = fake->slots[s].chunk == 0;
    fake->transit_slots += slots;
    fake->during(fake->during_context, offset, bytes);
    fake->transit_slots -= slots;
    for (uint64_t s = first; s < end; s++) fake->slots[s].blocked = false;
  }
  map_run(fake, first, end, 1, !fake->options.silent_claims);
  if (fake->options.map_ahead) map_ahead(fake, end);
}

static vmp_status claim_refusal(vmp_fake_backing *fake, uint64_t first, uint64_t end, vmp_effort effort,
                                uint64_t *out_slots) {
  uint64_t slots = 0;
  for (uint64_t s = first; s < end; s++) {
    if (fake->slots[s].blocked) return VMP_ERROR_BUSY;
    if (fake->slots[s].chunk == 0) slots++;
  }
  *out_slots = slots;
  if (slots > 0 && effort == VMP_EFFORT_MAPPED) return VMP_ERROR_BUSY;
  if (slots > room_slots(fake) && slots > room_slots(fake) + takable_slots(fake, first, end)) {
    return VMP_ERROR_OUT_OF_MEMORY;
  }
  return VMP_OK;
}

static bool told_to_fail(vmp_fake_backing *fake) {
  if (fake->fail_failures == 0) return false;
  if (fake->fail_successes > 0) {
    fake->fail_successes--;
    return false;
  }
  fake->fail_failures--;
  return true;
}

static vmp_status fake_claim_range(void *self, uint64_t offset, uint64_t bytes, vmp_stream_index stream,
                                   vmp_effort effort, vmp_fence *out_fence) {
  vmp_fake_backing *fake = self;
  (void)stream;
  fake->counts.claims++;
  if (bytes == 0 || !inside(fake, offset, bytes) || offset % fake->options.step_bytes != 0 ||
      bytes % fake->options.step_bytes != 0) {
    fault(fake, "claim of [%#llx, +%#llx), which is outside of the addresses or no multiple of the step",
          (unsigned long long)offset, (unsigned long long)bytes);
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the fake was asked to claim an impossible range");
  }
  uint64_t first, end, slots = 0;
  slots_of(fake, offset, bytes, &first, &end);
  vmp_status status = told_to_fail(fake) ? fake->fail_status : claim_refusal(fake, first, end, effort, &slots);
  if (status != VMP_OK) {
    fake->counts.failed_claims++;
    if (fake->refused != NULL) fake->refused(fake->refused_context, offset, bytes);
    return vmp_fail(status, "the fake refused a claim of %llu bytes", (unsigned long long)bytes);
  }
  if (!mark_steps(fake, offset, bytes, true)) {
    fault(fake, "claim of [%#llx, +%#llx) overlaps an earlier claim", (unsigned long long)offset,
          (unsigned long long)bytes);
  }
  add_claim(fake, offset, bytes);
  vmp_fence moved = VMP_FENCE_NONE;
  uint32_t last_chunk = 0;
  for (uint64_t s = first; s < end; s++) {
    uint32_t chunk = fake->slots[s].chunk;
    if (chunk == last_chunk || chunk == 0) continue;
    last_chunk = chunk;
    if (fake->chunks[chunk].live++ == 0) fake->parked_slots -= fake->chunks[chunk].slots;
    // Everything that isn't complete, the claiming stream's own work included.
    moved = vmp_fence_merge(moved, fence_others(fake, fake->chunks[chunk].moved, VMP_FAKE_STREAMS));
  }
  if (slots > 0) map_for_claim(fake, first, end, slots, offset, bytes);
  *out_fence = moved;
  return VMP_OK;
}

// Real ones may overlap as they like. Here each lies in one earlier claim, or in none; and once that is released, those
// in it don't overlap.
static bool fake_claim_again(void *self, uint64_t offset, uint64_t bytes) {
  vmp_fake_backing *fake = self;
  fake->counts.claims++;
  if (bytes == 0 || !inside(fake, offset, bytes) || offset % fake->options.step_bytes != 0 ||
      bytes % fake->options.step_bytes != 0) {
    fault(fake, "claim again of [%#llx, +%#llx), which is outside of the addresses or no multiple of the step",
          (unsigned long long)offset, (unsigned long long)bytes);
    return false;
  }
  uint64_t first, end;
  slots_of(fake, offset, bytes, &first, &end);
  bool refused = told_to_fail(fake);
  for (uint64_t s = first; s < end && !refused; s++) {
    const vmp_fake_chunk *chunk = &fake->chunks[fake->slots[s].chunk];  // the first one is never live
    refused = fake->slots[s].blocked || chunk->live == 0 || !vmp_fence_is_none(chunk->moved);
  }
  if (refused) {
    fake->counts.failed_claims++;
    if (fake->refused != NULL) fake->refused(fake->refused_context, offset, bytes);
    return false;
  }
  uint64_t claimed = count_claimed(fake, offset, bytes);
  if (claimed > 0) {
    if (claimed != bytes / fake->options.step_bytes) {
      fault(fake, "claim again of [%#llx, +%#llx), of which a part is claimed", (unsigned long long)offset,
            (unsigned long long)bytes);
    }
    add_again(fake, offset, bytes);
  } else {
    (void)mark_steps(fake, offset, bytes, true);
    add_claim(fake, offset, bytes);
  }
  uint32_t last_chunk = 0;
  for (uint64_t s = first; s < end; s++) {
    uint32_t chunk = fake->slots[s].chunk;
    if (chunk != last_chunk) fake->chunks[chunk].live++;
    last_chunk = chunk;
  }
  return true;
}

static bool fake_release(void *self, uint64_t offset, uint64_t bytes, vmp_fence fence) {
  vmp_fake_backing *fake = self;
  fake->counts.releases++;
  bool known = inside(fake, offset, bytes);
  if (known && remove_claim(fake, offset, bytes)) {
    if (!mark_steps(fake, offset, bytes, false))
      fault(fake, "release at %#llx of free steps", (unsigned long long)offset);
    settle_again(fake, offset, bytes);
  } else if (!known || !remove_again(fake, offset, bytes)) {
    fault(fake, "release of [%#llx, +%#llx), which nobody has claimed", (unsigned long long)offset,
          (unsigned long long)bytes);
    return false;
  }
  uint64_t first, end;
  slots_of(fake, offset, bytes, &first, &end);
  uint32_t last_chunk = 0;
  bool mapped = true;
  for (uint64_t s = first; s < end; s++) {
    uint32_t index = fake->slots[s].chunk;
    if (fake->slots[s].blocked) mapped = false;
    if (index == last_chunk) continue;
    last_chunk = index;
    vmp_fake_chunk *chunk = &fake->chunks[index];
    chunk->fence = vmp_fence_merge(chunk->fence, fence);
    if (--chunk->live > 0) continue;
    chunk->parked_at = ++fake->parkings;
    fake->parked_slots += chunk->slots;
  }
  return mapped;
}

static bool fake_next_change(void *self, uint64_t *cursor, uint64_t *out_offset, uint64_t *out_bytes) {
  vmp_fake_backing *fake = self;
  if (*cursor == fake->log_end && *cursor >= fake->log_everything) return false;
  if (*cursor < fake->log_everything || fake->log_end - *cursor > fake->options.log_ranges) {
    *cursor = fake->log_end;
    *out_offset = 0;
    *out_bytes = UINT64_MAX;
    return true;
  }
  size_t at = (size_t)(*cursor % fake->options.log_ranges);
  *out_offset = fake->log[at].offset;
  *out_bytes = fake->log[at].bytes;
  ++*cursor;
  return true;
}

static bool fake_known_complete(void *self, vmp_fence fence) {
  return vmp_fence_is_none(fence_others(self, fence, VMP_FAKE_STREAMS));
}

static vmp_fence fake_others(void *self, vmp_fence fence, vmp_stream_index stream) {
  return fence_others(self, fence, stream);
}

// ---- the test's side ----
vmp_fake_backing *vmp_fake_create(const vmp_fake_options *options) {
  vmp_fake_backing *fake = need(1, sizeof *fake);
  fake->options = *options;
  if (fake->options.granule_bytes == 0) fake->options.granule_bytes = UINT64_C(2) << 20;
  if (fake->options.step_bytes == 0) fake->options.step_bytes = 512;
  if (fake->options.chunk_slots == 0) fake->options.chunk_slots = 1;
  if (fake->options.log_ranges == 0) fake->options.log_ranges = 64;
  size_t slots = (size_t)fake->options.slots;
  uint64_t steps = fake->options.slots * (fake->options.granule_bytes / fake->options.step_bytes);
  fake->slots = need(slots, sizeof *fake->slots);
  fake->chunks = need(slots + 1, sizeof *fake->chunks);
  fake->free_chunks = need(slots + 1, sizeof *fake->free_chunks);
  fake->claimed_steps = need((size_t)(steps / 64 + 1), sizeof *fake->claimed_steps);
  fake->claims_capacity = 64;
  fake->claims = need(fake->claims_capacity, sizeof *fake->claims);
  fake->log = need(fake->options.log_ranges, sizeof *fake->log);
  fake->ops = (vmp_backing_ops){
      .self = fake,
      .granule_bytes = fake->options.granule_bytes,
      .cost = fake_cost,
      .run = fake_run,
      .claim = fake_claim_range,
      .claim_again = fake_claim_again,
      .release = fake_release,
      .next_change = fake_next_change,
      .known_complete = fake_known_complete,
      .others = fake_others,
  };
  return fake;
}

void vmp_fake_destroy(vmp_fake_backing *fake) {
  if (fake == NULL) return;
  free(fake->slots);
  free(fake->chunks);
  free(fake->free_chunks);
  free(fake->claimed_steps);
  free(fake->claims);
  free(fake->again);
  free(fake->log);
  free(fake);
}

const vmp_backing_ops *vmp_fake_ops(vmp_fake_backing *fake) { return &fake->ops; }
const vmp_fake_counts *vmp_fake_get_counts(const vmp_fake_backing *fake) { return &fake->counts; }
uint64_t vmp_fake_errors(const vmp_fake_backing *fake) { return fake->counts.errors; }
const char *vmp_fake_error(const vmp_fake_backing *fake) { return fake->error; }
uint64_t vmp_fake_mapped_slots(const vmp_fake_backing *fake) { return fake->mapped_slots; }
uint64_t vmp_fake_parked_slots(const vmp_fake_backing *fake) { return fake->parked_slots; }
uint64_t vmp_fake_claims_out(const vmp_fake_backing *fake) { return fake->num_claims + fake->num_again; }
uint64_t vmp_fake_claimed_bytes(const vmp_fake_backing *fake) { return fake->claimed_bytes; }

const vmp_fake_slot *vmp_fake_slot_at(const vmp_fake_backing *fake, uint64_t offset) {
  return &fake->slots[(offset - fake->options.offset) / fake->options.granule_bytes];
}

const vmp_fake_chunk *vmp_fake_chunk_at(const vmp_fake_backing *fake, uint64_t offset) {
  uint32_t chunk = vmp_fake_slot_at(fake, offset)->chunk;
  return chunk == 0 ? NULL : &fake->chunks[chunk];
}

// count_live counts a claim on each chunk that it touches.
static void count_live(vmp_fake_backing *fake, const fake_claim *claim, uint64_t *live) {
  uint64_t first, end;
  slots_of(fake, claim->offset, claim->bytes, &first, &end);
  uint32_t last_chunk = 0;
  for (uint64_t s = first; s < end; s++) {
    uint32_t chunk = fake->slots[s].chunk;
    if (chunk == 0) fault(fake, "slot %llu is claimed and unmapped", (unsigned long long)s);
    if (chunk != last_chunk) live[chunk]++;
    last_chunk = chunk;
  }
}

uint64_t vmp_fake_check(vmp_fake_backing *fake) {
  uint64_t *live = need(fake->used_chunks + 1, sizeof *live);
  for (size_t i = 0; i < fake->claims_capacity; i++) {
    if (fake->claims[i].bytes != 0) count_live(fake, &fake->claims[i], live);
  }
  for (size_t i = 0; i < fake->num_again; i++) count_live(fake, &fake->again[i], live);
  uint64_t mapped = 0, parked = 0;
  for (uint32_t i = 1; i <= fake->used_chunks; i++) {
    const vmp_fake_chunk *chunk = &fake->chunks[i];
    if (chunk->slots == 0) continue;
    mapped += chunk->slots;
    if (chunk->live == 0) parked += chunk->slots;
    if (chunk->live != live[i]) fault(fake, "chunk %u counts %llu claims", i, (unsigned long long)chunk->live);
  }
  if (mapped != fake->mapped_slots || parked != fake->parked_slots) fault(fake, "mapped or parked slots don't add up");
  free(live);
  return fake->counts.errors;
}

void vmp_fake_map(vmp_fake_backing *fake, uint64_t offset, uint64_t bytes) {
  uint64_t first, end;
  slots_of(fake, offset, bytes, &first, &end);
  for (uint64_t s = first; s < end; s++) {
    if (fake->slots[s].chunk != 0) {
      fault(fake, "the test maps slot %llu twice", (unsigned long long)s);
      return;
    }
  }
  new_chunk(fake, first, end - first, 0);
  log_change(fake, first, end - first);
}

void vmp_fake_unmap(vmp_fake_backing *fake, uint64_t offset, uint64_t bytes) {
  uint64_t first, end;
  slots_of(fake, offset, bytes, &first, &end);
  for (uint64_t s = first; s < end; s++) {
    uint32_t chunk = fake->slots[s].chunk;
    if (chunk == 0) continue;
    if (fake->chunks[chunk].live > 0) {
      fault(fake, "the test unmaps slot %llu, which is live", (unsigned long long)s);
      return;
    }
    drop_chunk(fake, chunk, false);
  }
}

void vmp_fake_block(vmp_fake_backing *fake, uint64_t offset, uint64_t bytes, bool blocked) {
  uint64_t first, end;
  slots_of(fake, offset, bytes, &first, &end);
  for (uint64_t s = first; s < end; s++) fake->slots[s].blocked = blocked;
  log_change(fake, first, end - first);
}

void vmp_fake_finish_retiring(vmp_fake_backing *fake) {
  for (uint64_t s = 0; s < fake->options.slots; s++) {
    if (!fake->slots[s].blocked || fake->slots[s].chunk != 0) continue;
    fake->slots[s].blocked = false;
    log_change(fake, s, 1);
  }
}

void vmp_fake_moved(vmp_fake_backing *fake, uint64_t offset, vmp_fence fence) {
  uint32_t chunk = vmp_fake_slot_at(fake, offset)->chunk;
  if (chunk == 0) {
    fault(fake, "the test marks an unmapped slot as moved");
    return;
  }
  fake->chunks[chunk].moved = fence;
}

void vmp_fake_overflow_log(vmp_fake_backing *fake) { fake->log_everything = ++fake->log_end; }

void vmp_fake_fail_claims(vmp_fake_backing *fake, uint64_t successes, uint64_t failures, vmp_status status) {
  fake->fail_successes = successes;
  fake->fail_failures = failures;
  fake->fail_status = status;
}

void vmp_fake_on_refusal(vmp_fake_backing *fake, void (*fn)(void *context, uint64_t offset, uint64_t bytes),
                         void *context) {
  fake->refused = fn;
  fake->refused_context = context;
}

void vmp_fake_during_claim(vmp_fake_backing *fake, void (*fn)(void *context, uint64_t offset, uint64_t bytes),
                           void *context) {
  fake->during = fn;
  fake->during_context = context;
}

void vmp_fake_complete(vmp_fake_backing *fake, vmp_stream_index stream, uint64_t sequence) {
  if (fake->completed[stream] < sequence) fake->completed[stream] = sequence;
}

void vmp_fake_order(vmp_fake_backing *fake, vmp_stream_index waiter, vmp_fence fence) {
  for (uint64_t left = fence.streams; left != 0; left &= left - 1) {
    unsigned i = (unsigned)__builtin_ctzll(left);
    if (fake->ordered[waiter][i] < fence.sequence) fake->ordered[waiter][i] = fence.sequence;
  }
}
