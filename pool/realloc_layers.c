// realloc_layers.c: mid and buddy behind one door, for vmp_realloc. See realloc.h.
#include "pool/buddy_resize.h"
#include "pool/mid_resize.h"
#include "pool/realloc.h"

static bool is_mid(const vmp_resize *r) { return vmp_block_layer(r->word) == VMP_LAYER_MID; }
static vmp_mid *mid_of(const vmp_resize *r) { return r->domain == NULL ? r->pool->mid : r->domain->mid; }

bool vmp_resize_keep_bytes(const vmp_resize *r, uint64_t *out_bytes) {
  return vmp_align_up(r->bytes, is_mid(r) ? VMP_MID_STEP_BYTES : r->pool->device.granule_bytes, out_bytes);
}

uint64_t vmp_resize_room(const vmp_resize *r, uint64_t most) {
  return is_mid(r) ? vmp_mid_room(mid_of(r), r->offset, most) : vmp_buddy_room(r->pool->buddy, r->offset, most);
}

vmp_status vmp_resize_take_behind(vmp_resize *r, uint64_t more_bytes, vmp_placed *out_placed) {
  vmp_request request = {
      .bytes = more_bytes, .alignment = VMP_MID_STEP_BYTES, .stream = r->index, .effort = VMP_EFFORT_NORMAL};
  return is_mid(r) ? vmp_mid_take_behind(mid_of(r), r->offset, &request, out_placed)
                   : vmp_buddy_take_behind(r->pool->buddy, r->offset, &request, out_placed);
}

vmp_status vmp_resize_reserve(vmp_resize *r, uint64_t bytes, uint64_t *out_offset) {
  return is_mid(r) ? vmp_mid_reserve(mid_of(r), bytes, r->offset % r->pool->device.granule_bytes, out_offset)
                   : vmp_buddy_reserve(r->pool->buddy, bytes, out_offset);
}

void vmp_resize_untake(vmp_resize *r, uint64_t offset, vmp_fence fence) {
  if (is_mid(r)) {
    vmp_mid_untake(mid_of(r), offset, fence);
  } else {
    vmp_buddy_untake(r->pool->buddy, offset, fence);
  }
}

void vmp_resize_free_part(vmp_resize *r, uint64_t offset, vmp_fence fence) {
  if (is_mid(r)) {
    (void)vmp_mid_free(mid_of(r), offset, fence);
  } else {
    vmp_buddy_free(r->pool->buddy, offset, fence);
  }
}

void vmp_resize_merge(vmp_resize *r) {
  vmp_backing_join_claims(r->pool->backing, r->offset + r->held_bytes);
  if (is_mid(r)) {
    vmp_mid_merge(mid_of(r), r->offset);
  } else {
    vmp_buddy_merge(r->pool->buddy, r->offset);
  }
}

vmp_status vmp_resize_split(vmp_resize *r, uint64_t bytes) {
  vmp_status status = is_mid(r) ? vmp_mid_split_block(mid_of(r), r->offset, bytes)
                                : vmp_buddy_split_block(r->pool->buddy, r->offset, bytes);
  if (status == VMP_OK) vmp_backing_split_claim(r->pool->backing, r->offset + bytes);
  return status;
}
