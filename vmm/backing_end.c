// backing_end.c: giving everything back. Goes on after failures and reports the first one.
#include "vmm/backing_internal.h"
#include "vmm/driver_error.h"
#include "vmm/memory.h"

static void note(vmp_backing *b, vmp_status *first, vmp_call call, int code) {
  if (code == 0 || code == VMP_CU_DEINITIALIZED || *first != VMP_OK) return;
  *first = vmp_driver_fail(b->options.driver, call, code, "the pool is being destroyed");
}

// unmap_everything removes every mapping that the slot table knows, one call for each run.
static void unmap_everything(vmp_backing *b, vmp_status *first) {
  for (size_t i = 0; i < b->num_reservations; i++) {
    const reservation *r = &b->reservations[i];
    uint64_t end = r->first_slot + r->slots, slot = r->first_slot;
    while ((slot = backing_skip_unmapped(b, slot, end)) < end) {
      uint64_t run = slot;
      while (run < end && backing_word(b, run) != 0) run++;
      note(b, first, VMP_CALL_mem_unmap,
           vmp_drv_mem_unmap(b->options.driver, backing_slot_address(b, slot),
                             (size_t)((run - slot) << b->granule_log2)));
      slot = run;
    }
  }
}

static void release_everything(vmp_backing *b, vmp_status *first) {
  for (uint32_t id = 1; id <= b->chunks.records.touched; id++) {
    const chunk *c = backing_chunk(b, id);
    if (c->handle == 0) continue;  // a free record
    note(b, first, VMP_CALL_mem_release, vmp_drv_mem_release(b->options.driver, c->handle));
  }
}

vmp_status vmp_backing_destroy(vmp_backing *b) {
  if (b == NULL) return VMP_OK;
  vmp_status first = VMP_OK;
  if (!vmp_driver_is_forked(b->options.driver)) {
    unmap_everything(b, &first);
    release_everything(b, &first);
    for (size_t i = 0; i < b->num_reservations; i++) {
      const reservation *r = &b->reservations[i];
      note(b, &first, VMP_CALL_mem_address_free,
           vmp_drv_mem_address_free(b->options.driver, r->address, (size_t)r->bytes));
    }
  }
  for (size_t i = 0; i < b->num_reservations; i++) {
    const reservation *r = &b->reservations[i];
    for (uint64_t leaf = 0; leaf < (r->slots + LEAF_SLOTS - 1) / LEAF_SLOTS; leaf++) vmp_mem_free(r->leaves[leaf]);
    vmp_mem_free(r->leaves);
  }
  chunk_store_finish(&b->chunks);
  vmp_node_pool_finish(&b->places);
  vmp_mem_free(b->access);
  vmp_mem_free(b->peers);
  vmp_mem_free(b);
  return first;
}
