// fake_supply.c: see fake_supply.h.
#include "tests/support/fake_supply.h"

#include <stdlib.h>
#include <string.h>

#define UNIT_BYTES UINT64_C(512)
#define BUNDLE_BYTES (UINT64_C(2) << 20)

void vmp_fake_supply_init(vmp_fake_supply *supply, const vmp_backing_ops *ops, uint64_t base, uint64_t bytes) {
  *supply = (vmp_fake_supply){.ops = ops, .base = base, .bytes = bytes};
  supply->fences = calloc(bytes / UNIT_BYTES, sizeof *supply->fences);
  if (supply->fences == NULL) abort();
}

void vmp_fake_supply_finish(vmp_fake_supply *supply) {
  free(supply->fences);
  free(supply->blocks);
  memset(supply, 0, sizeof *supply);
}

// The number of blocks that begin at or below `offset`.
static size_t blocks_up_to(const vmp_fake_supply *supply, uint64_t offset) {
  size_t low = 0, high = supply->num_blocks;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (supply->blocks[middle].offset <= offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

vmp_fake_taken *vmp_fake_supply_find(const vmp_fake_supply *supply, uint64_t offset) {
  size_t n = blocks_up_to(supply, offset);
  if (n == 0) return NULL;
  vmp_fake_taken *block = &supply->blocks[n - 1];
  return offset - block->offset < block->bytes ? block : NULL;
}

// The lowest gap that fits, and the index of the block after it. False: none.
static bool find_gap(const vmp_fake_supply *supply, uint64_t bytes, uint64_t alignment, uint64_t *out_offset,
                     size_t *out_index) {
  uint64_t from = supply->base;
  for (size_t i = 0; i <= supply->num_blocks; i++) {
    uint64_t end = i < supply->num_blocks ? supply->blocks[i].offset : supply->base + supply->bytes;
    uint64_t start = (from + alignment - 1) & ~(alignment - 1);
    if (start + bytes <= end) {
      *out_offset = start;
      *out_index = i;
      return true;
    }
    if (i < supply->num_blocks) from = end + supply->blocks[i].bytes;
  }
  return false;
}

static void insert_block(vmp_fake_supply *supply, size_t index, vmp_fake_taken block) {
  if (supply->num_blocks == supply->capacity) {
    supply->capacity = supply->capacity == 0 ? 64 : supply->capacity * 2;
    supply->blocks = realloc(supply->blocks, supply->capacity * sizeof *supply->blocks);
    if (supply->blocks == NULL) abort();
  }
  vmp_fake_taken *at = &supply->blocks[index];
  memmove(at + 1, at, (supply->num_blocks - index) * sizeof *at);
  *at = block;
  supply->num_blocks++;
  supply->block_bytes += block.bytes;
}

static void remove_block(vmp_fake_supply *supply, size_t index) {
  vmp_fake_taken *at = &supply->blocks[index];
  supply->block_bytes -= at->bytes;
  supply->num_blocks--;
  memmove(at, at + 1, (supply->num_blocks - index) * sizeof *at);
}

void vmp_fake_supply_touch(vmp_fake_supply *supply, uint64_t offset, uint64_t bytes, vmp_fence fence) {
  uint64_t first = (offset - supply->base) / UNIT_BYTES;
  for (uint64_t i = 0; i < bytes / UNIT_BYTES; i++) supply->fences[first + i] = fence;
}

static vmp_fence fence_of(const vmp_fake_supply *supply, uint64_t offset, uint64_t bytes) {
  vmp_fence merged = VMP_FENCE_NONE;
  uint64_t first = (offset - supply->base) / UNIT_BYTES;
  for (uint64_t i = 0; i < bytes / UNIT_BYTES; i++) {
    vmp_fence fence = supply->fences[first + i];
    if (!supply->ops->known_complete(supply->ops->self, fence)) merged = vmp_fence_merge(merged, fence);
  }
  return merged;
}

static vmp_status take(void *self, const vmp_request *request, vmp_span *owner, vmp_placed *out_placed) {
  vmp_fake_supply *supply = self;
  supply->takes++;
  supply->last_request = *request;
  vmp_fake_taken block = {.bytes = request->bytes, .owner = owner};
  size_t index;
  bool found = find_gap(supply, request->bytes, request->alignment, &block.offset, &index);
  if (found) {
    insert_block(supply, index, block);
    if (supply->during_take != NULL) supply->during_take(supply->context, &block);
  }
  if (!found || supply->fail_takes > 0) {
    if (found) remove_block(supply, blocks_up_to(supply, block.offset) - 1);
    supply->failed_takes++;
    if (supply->fail_takes == 0) return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "the fake has no place left");
    supply->fail_takes--;
    return vmp_fail(supply->fail_status, "the fake was told to fail");
  }
  out_placed->offset = block.offset;
  out_placed->bytes = block.bytes;
  out_placed->fence = fence_of(supply, block.offset, block.bytes);
  out_placed->after = supply->ops->others(supply->ops->self, out_placed->fence, request->stream);
  return VMP_OK;
}

static void give(void *self, uint64_t offset, vmp_fence fence) {
  vmp_fake_supply *supply = self;
  size_t n = blocks_up_to(supply, offset);
  if (n == 0 || supply->blocks[n - 1].offset != offset) {
    supply->errors++;
    return;
  }
  vmp_fake_taken block = supply->blocks[n - 1];
  if (block.address != 0) supply->errors++;  // it wasn't withdrawn before
  if (supply->on_give != NULL) supply->on_give(supply->context, &block, fence);
  vmp_fake_supply_touch(supply, offset, block.bytes, fence);
  remove_block(supply, n - 1);
  supply->gives++;
  supply->last_give_offset = offset;
  supply->last_give_fence = fence;
}

// ---- publishing and dividing ----

// block_at: the block that begins at `offset`, or NULL, which is an error.
static vmp_fake_taken *block_at(vmp_fake_supply *supply, uint64_t offset) {
  vmp_fake_taken *block = vmp_fake_supply_find(supply, offset);
  if (block != NULL && block->offset == offset) return block;
  supply->errors++;
  return NULL;
}

static uint64_t publish(void *self, uint32_t line, uint64_t offset, uint64_t bytes) {
  vmp_fake_supply *supply = self;
  vmp_fake_taken *block = block_at(supply, offset);
  if (block == NULL) return 0;
  if (block->bytes != bytes || block->address != 0 || line == 0) supply->errors++;
  if (supply->fail_publishes > 0) {
    supply->fail_publishes--;
    supply->failed_publishes++;
    return 0;
  }
  supply->publishes++;
  block->line = line;
  return block->address = offset + VMP_FAKE_SUPPLY_ADDRESS;
}

static void withdraw(void *self, uint64_t address, uint64_t bytes) {
  vmp_fake_supply *supply = self;
  vmp_fake_taken *block = block_at(supply, address - VMP_FAKE_SUPPLY_ADDRESS);
  if (block == NULL) return;
  if (block->address != address || block->bytes != bytes) supply->errors++;
  block->address = 0;
  supply->withdraws++;
}

static bool divide(void *self, uint64_t offset, uint64_t each_bytes, vmp_span *const *owners) {
  vmp_fake_supply *supply = self;
  vmp_fake_taken *block = block_at(supply, offset);
  if (block == NULL) return false;
  if (block->address != 0 || block->bytes % each_bytes != 0 || block->owner != owners[0]) supply->errors++;
  if (supply->fail_divides > 0) {
    supply->fail_divides--;
    supply->failed_divides++;
    return false;
  }
  size_t count = (size_t)(block->bytes / each_bytes), index = (size_t)(block - supply->blocks);
  remove_block(supply, index);
  for (size_t i = 0; i < count; i++) {
    insert_block(supply, index + i,
                 (vmp_fake_taken){.offset = offset + i * each_bytes, .bytes = each_bytes, .owner = owners[i]});
  }
  supply->divides++;
  return true;
}

// All blocks of the bundle must be published, as it says.
static void publish_bundle(void *self, uint64_t address, uint64_t each_bytes, uint32_t line, uint32_t lines) {
  vmp_fake_supply *supply = self;
  supply->bundles++;
  supply->last_bundle = (vmp_fake_bundle){address, each_bytes, line, lines};
  if (address % BUNDLE_BYTES != 0) supply->errors++;
  for (uint64_t at = 0; at < BUNDLE_BYTES; at += each_bytes, line += lines) {
    const vmp_fake_taken *block = block_at(supply, address + at - VMP_FAKE_SUPPLY_ADDRESS);
    if (block == NULL || block->bytes != each_bytes || block->address != address + at || block->line != line) {
      supply->errors++;
      return;
    }
  }
}

vmp_slab_supply vmp_fake_supply_calls(vmp_fake_supply *supply) {
  vmp_slab_supply calls = {.self = supply, .take = take, .give = give};
  if (supply->offers_bundles) {
    calls.publish = publish;
    calls.withdraw = withdraw;
    calls.take_bundle = take;
    calls.divide = divide;
    calls.publish_bundle = publish_bundle;
  }
  return calls;
}
