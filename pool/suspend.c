// suspend.c: vmp_pool_suspend. See vmpool_suspend.h and suspend.h.
//
//     state  RESIDENT ──> SUSPENDING: no new block                       each step may fail, and then it is as before
//              wait for allocations under way, for all streams, for the device
//              save each block: held by a claim more, so that a free in between doesn't take its memory away
//            ──> SUSPENDED: every piece of the tag's mid lets go of its claim, but pinned ones, which are `kept`
//              the chunks are idle then, and nobody uses them: they go back to the device
//
// Blocks stay in the books and in the layers, so their addresses stay theirs. A free of one finds no claim to release
// (domain.c), and drops its backup.
#include "pool/suspend.h"

#include <inttypes.h>

#include "pool/log.h"
#include "vmm/context.h"
#include "vmm/driver_error.h"
#include "vmm/memory.h"

vmp_status vmp_suspend_find(vmp_pool *pool, vmp_tag tag, vmp_domain **out_domain) {
  const vmp_tag_record *record = vmp_tag_record_of(&pool->tags, tag);
  if (record == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "there is no tag %" PRIu32, tag);
  if (record->domain == NULL) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "the tag \"%.64s\" is plain; only one made by vmp_tag_create can be suspended",
                    vmp_tag_name(&pool->tags, tag));
  }
  *out_domain = record->domain;
  return VMP_OK;
}

static bool is_domains(const void *self, uint64_t offset) {
  return vmp_mid_owns(((const vmp_domain *)self)->mid, offset);
}

vmp_status vmp_suspend_give_back(vmp_domain *domain, uint64_t *out_bytes, uint64_t *out_chunks) {
  vmp_pool *pool = domain->pool;
  if (domain->slab != NULL) vmp_slab_trim(domain->slab);
  (void)vmp_backing_poll(pool->backing);
  return vmp_backing_give_back_where(pool->backing, is_domains, domain, out_bytes, out_chunks);
}

// ---- what stays ----

// holds_claim: whether the piece of the domain's mid that holds a block has its claim now.
static bool holds_claim(const vmp_domain *domain, uint64_t offset, uint64_t *out_piece, uint64_t *out_bytes) {
  *out_piece = offset;
  *out_bytes = 0;
  if (!vmp_mid_find(domain->mid, offset, out_piece, out_bytes, NULL)) return false;
  return !domain->claims_dropped || vmp_offset_map_find(&domain->kept, *out_piece) != NULL;
}

// must_go: the block is on the device, and nothing pins the piece that it lies in.
static bool must_go(const vmp_domain *domain, uint64_t offset) {
  uint64_t piece, bytes;
  return holds_claim(domain, offset, &piece, &bytes) && !vmp_pins_touch(&domain->pool->pins, piece, bytes);
}

// ---- waiting ----

// wait_for_all waits for everything that was submitted on any stream: who uses a live block isn't known. Without the
// lock.
static vmp_status wait_for_all(vmp_pool *pool, vmp_fence fence) {
  vmp_context_saved saved;
  vmp_status status = vmp_context_enter(pool->driver, pool->context, &saved);
  if (status != VMP_OK) return status;
  int code = vmp_drv_ctx_synchronize(pool->driver);
  if (code != VMP_CU_SUCCESS) {
    status =
        vmp_driver_fail(pool->driver, VMP_CALL_ctx_synchronize, code, "all work must end before memory is unmapped");
  }
  (void)vmp_context_leave(pool->driver, &saved);
  return status == VMP_OK ? vmp_clock_wait(pool->clock, fence, UINT64_MAX) : status;
}

// settle_down keeps new blocks out and waits for those that are on their way, and for all work.
static vmp_status settle_down(vmp_domain *domain) {
  vmp_pool *pool = domain->pool;
  if (domain->placing > 0 && vmp_ladder_is_asking()) {
    return vmp_fail(VMP_ERROR_BUSY, "the call that ran out of memory may be placing a block of the same tag");
  }
  domain->state = VMP_TAG_SUSPENDING;
  while (domain->placing > 0) vmp_guard_wait(&pool->guard);
  if (pool->captures.capturing > 0) {
    return vmp_fail(VMP_ERROR_CAPTURE, "a stream is being captured, so running work can't be waited for");
  }
  vmp_fence fence = vmp_clock_fence_of(pool->clock, pool->seen_streams);
  vmp_guard_unlock(&pool->guard);
  vmp_status status = wait_for_all(pool, fence);
  vmp_guard_lock(&pool->guard);
  return status;
}

// ---- saving ----

typedef struct saving {
  vmp_domain *domain;
  const vmp_suspend_options *options;
  vmp_mover mover;
  uint64_t saved_bytes;
} saving;

// save_content copies one block, which is held. Without the lock.
static vmp_status save_content(saving *s, const vmp_tag_block *block, uint64_t address, vmp_backup **out_backup) {
  const vmp_suspend_options *options = s->options;
  bool here = options->content == VMP_SUSPEND_KEEP;
  vmp_backup *backup = vmp_mem_calloc(1, sizeof *backup + (here ? (size_t)block->bytes : 0));
  if (backup == NULL) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the content of a block of %" PRIu64 " bytes",
                    block->bytes);
  }
  backup->bytes = block->bytes;
  vmp_status status;
  if (here) {
    status = vmp_mover_save(&s->mover, backup->content, address, block->bytes);
  } else {
    backup->self = options->self;
    backup->load = options->load;
    s->mover.busy = true;
    status = options->save(options->self, (const void *)(uintptr_t)address, block->bytes, s->mover.stream);
    if (status < 0) {
      (void)vmp_fail(status, "`save` refused a block of %" PRIu64 " bytes", block->bytes);
    } else {
      status = vmp_mover_wait(&s->mover);
    }
  }
  if (status == VMP_OK) {
    *out_backup = backup;
  } else {
    vmp_mem_free(backup);
  }
  return status;
}

// save_block saves one block, if it is still there. MAY UNLOCK.
static vmp_status save_block(saving *s, const vmp_tag_block *block) {
  vmp_domain *domain = s->domain;
  vmp_pool *pool = domain->pool;
  vmp_backing_ops *ops = &pool->ops;
  vmp_backup *backup = NULL;
  vmp_fence ignored;
  // Nothing new comes while the tag is on its way: what lies there is the block of the list, or nothing.
  if (vmp_label_of(&pool->tags, block->offset).tag != domain->tag || !must_go(domain, block->offset)) return VMP_OK;
  vmp_status status = ops->claim(ops->self, block->offset, block->bytes, 0, VMP_EFFORT_MAPPED, &ignored);
  if (status != VMP_OK) return status;
  uint64_t address = vmp_backing_address(pool->backing, block->offset);
  vmp_guard_unlock(&pool->guard);
  status = save_content(s, block, address, &backup);
  vmp_guard_lock(&pool->guard);
  (void)ops->release(ops->self, block->offset, block->bytes, vmp_mover_fence(&s->mover));
  if (status == VMP_OK) s->saved_bytes += block->bytes;
  if (backup == NULL) return status;
  bool live = vmp_label_of(&pool->tags, block->offset).tag == domain->tag;
  if (live) status = vmp_offset_map_promise(&domain->backups);
  if (!live || status != VMP_OK) {
    vmp_mem_free(backup);
    return status;
  }
  vmp_offset_map_add(&domain->backups, block->offset, (uint64_t)(uintptr_t)backup);
  if (backup->load == NULL) domain->backup_bytes += backup->bytes;
  return VMP_OK;
}

static vmp_status save_blocks(saving *s) {
  vmp_pool *pool = s->domain->pool;
  vmp_tag_block *blocks = NULL;
  size_t count = 0;
  if (s->options->content == VMP_SUSPEND_DROP) return VMP_OK;
  vmp_status status = vmp_tag_blocks(pool, s->domain->tag, &blocks, &count);
  if (status != VMP_OK) return status;
  bool keep = s->options->content == VMP_SUSPEND_KEEP;
  uint64_t buffer = s->options->buffer_bytes == 0 ? VMP_MOVER_BYTES : s->options->buffer_bytes;
  vmp_guard_unlock(&pool->guard);
  status = vmp_mover_open(&s->mover, pool, keep ? buffer : 0);
  vmp_guard_lock(&pool->guard);
  for (size_t i = 0; i < count && status == VMP_OK; i++) status = save_block(s, &blocks[i]);
  vmp_guard_unlock(&pool->guard);
  vmp_error first = *vmp_last_error();
  vmp_mover_close(&s->mover);
  if (status != VMP_OK) vmp_restore_error(&first);
  vmp_guard_lock(&pool->guard);
  vmp_mem_free(blocks);
  return status;
}

typedef struct resident_search {
  const vmp_domain *domain;
  uint64_t offset;
  bool found;
} resident_search;

static void see_backup(void *context, uint64_t offset, uint64_t value) {
  resident_search *search = context;
  uint64_t piece, bytes;
  (void)value;
  if (search->found || !holds_claim(search->domain, offset, &piece, &bytes)) return;
  search->offset = offset;
  search->found = true;
}

// forget_resident drops the backups of blocks that are on the device: of a suspend that failed, or of blocks that were
// pinned after they had been saved, which are few.
static void forget_resident(vmp_domain *domain) {
  if (!domain->claims_dropped) {
    vmp_domain_forget_all(domain);
    return;
  }
  resident_search search = {.domain = domain, .found = true};
  while (search.found && domain->kept.entries > 0) {
    search.found = false;
    vmp_offset_map_walk(&domain->backups, see_backup, &search);
    if (search.found) vmp_domain_forget_backup(domain, search.offset);
  }
}

// ---- letting go ----

typedef struct letting_go {
  vmp_domain *domain;
  vmp_status status;
} letting_go;

// promise_kept makes room for every pinned piece that is to be kept. Nothing has changed yet.
static void see_pinned(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  letting_go *l = context;
  (void)what;
  (void)fence;
  if (l->status != VMP_OK || !vmp_pins_touch(&l->domain->pool->pins, offset, bytes)) return;
  uint64_t piece, piece_bytes;
  if (holds_claim(l->domain, offset, &piece, &piece_bytes)) l->status = vmp_offset_map_promise(&l->domain->kept);
}

// drop_claim takes the claim of one piece back, or keeps it. A second suspend meets what the first has kept.
static void drop_claim(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  vmp_domain *domain = ((letting_go *)context)->domain;
  vmp_backing_ops *ops = &domain->pool->ops;
  (void)fence;
  if (what[0] == 'f') return;  // "free"
  bool kept = vmp_offset_map_find(&domain->kept, offset) != NULL;
  if (domain->claims_dropped && !kept) return;
  if (vmp_pins_touch(&domain->pool->pins, offset, bytes)) {
    if (!kept) vmp_offset_map_add(&domain->kept, offset, bytes);
    return;
  }
  if (kept) (void)vmp_offset_map_remove(&domain->kept, offset, NULL);
  (void)ops->release(ops->self, offset, bytes, VMP_FENCE_NONE);
}

static vmp_status let_go(vmp_domain *domain) {
  letting_go l = {.domain = domain, .status = VMP_OK};
  if (domain->slab != NULL) vmp_slab_trim(domain->slab);
  size_t promises = domain->kept.promises;
  if (domain->pool->pins.newest.entries > 0 && !domain->claims_dropped) vmp_mid_walk(domain->mid, see_pinned, &l);
  if (l.status == VMP_OK) {
    vmp_mid_walk(domain->mid, drop_claim, &l);
    domain->claims_dropped = true;
  }
  while (domain->kept.promises > promises) vmp_offset_map_withdraw(&domain->kept);
  return l.status;
}

// ---- the call ----

typedef struct kept_sum {
  vmp_domain *domain;
  uint64_t bytes;
} kept_sum;

static void see_label(void *context, uint64_t offset, uint64_t word) {
  kept_sum *sum = context;
  vmp_pool *pool = sum->domain->pool;
  uint64_t piece, bytes;
  vmp_found found;
  (void)word;
  if (vmp_label_of(&pool->tags, offset).tag != sum->domain->tag || !holds_claim(sum->domain, offset, &piece, &bytes)) {
    return;
  }
  if (vmp_route_find(pool, offset, &found)) sum->bytes += found.bytes;
}

// count_away sums up what is without memory now.
static void count_away(vmp_domain *domain, vmp_suspend_report *report) {
  vmp_pool *pool = domain->pool;
  kept_sum kept = {.domain = domain, .bytes = 0};
  if (domain->kept.entries > 0) vmp_offset_map_walk(&pool->tags.labels, see_label, &kept);
  domain->away_bytes = vmp_tag_record_of(&pool->tags, domain->tag)->live_bytes - kept.bytes;
  report->suspended_bytes = domain->away_bytes;
  report->kept_pinned_bytes = kept.bytes;
}

static vmp_status suspend_locked(vmp_domain *domain, const vmp_suspend_options *options, vmp_suspend_report *report) {
  saving s = {.domain = domain, .options = options};
  vmp_tag_state before = domain->state;
  if (before == VMP_TAG_SUSPENDING || before == VMP_TAG_RESUMING) {
    return vmp_fail(VMP_ERROR_BUSY, "another thread is suspending or resuming the tag");
  }
  vmp_status status = settle_down(domain);
  if (status == VMP_OK) status = save_blocks(&s);
  if (status == VMP_OK) status = let_go(domain);
  vmp_error first = *vmp_last_error();
  forget_resident(domain);
  if (status != VMP_OK) {
    vmp_restore_error(&first);
    domain->state = before;
    vmp_guard_wake_all(&domain->pool->guard);
    return status;
  }
  domain->state = VMP_TAG_SUSPENDED;
  report->saved_bytes = s.saved_bytes;
  count_away(domain, report);
  status = vmp_suspend_give_back(domain, &report->released_bytes, &report->released_chunks);
  vmp_log_tag(domain->pool, VMP_LOG_SUSPEND, domain->tag, report->released_bytes);
  return status;
}

static vmp_status check_options(const vmp_suspend_options *options) {
  if (options->struct_size < sizeof *options) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "vmp_suspend_options is not initialised; use VMP_SUSPEND_OPTIONS_INIT");
  }
  if (options->report != NULL && options->report->struct_size < sizeof *options->report) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "vmp_suspend_report is not initialised; use VMP_SUSPEND_REPORT_INIT");
  }
  if (options->content < VMP_SUSPEND_KEEP || options->content > VMP_SUSPEND_CALLBACK) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "there is no kind of content %d", options->content);
  }
  if (options->content == VMP_SUSPEND_CALLBACK && (options->save == NULL || options->load == NULL)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "content by callback needs both `save` and `load`");
  }
  return VMP_OK;
}

vmp_status vmp_pool_suspend(vmp_pool *pool, vmp_tag tag, const vmp_suspend_options *options) {
  vmp_suspend_options none = VMP_SUSPEND_OPTIONS_INIT;
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (options == NULL) options = &none;
  vmp_status status = check_options(options);
  if (status != VMP_OK) return status;
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_suspend_report report = {.struct_size = options->report == NULL ? 0 : options->report->struct_size};
  vmp_domain *domain = NULL;
  vmp_guard_lock(&pool->guard);
  status = vmp_suspend_find(pool, tag, &domain);
  if (status == VMP_OK) status = suspend_locked(domain, options, &report);
  vmp_guard_unlock(&pool->guard);
  if (options->report != NULL) *options->report = report;
  return status;
}
