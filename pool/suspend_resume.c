// suspend_resume.c: vmp_pool_resume. See vmpool_suspend.h and suspend.h.
//
//     state  SUSPENDED ──> RESUMING
//              claim   runs of neighbouring pieces, in batches, each by every step of the ladder: one set-access a run
//              wait    for who used the claimed memory elsewhere before: any stream may use the tag's blocks afterwards
//              load    each block that has a backup
//            ──> RESIDENT: every piece gets its own claim again, and the batches' go; no step of this can fail
//
// A failure lets go of the batches' claims and gives the memory back; the backups are as they were.
#include <string.h>

#include "pool/log.h"
#include "pool/suspend.h"
#include "vmm/memory.h"

#define BATCH_CHUNKS 64u  // a claim of a batch maps at most about so many of the largest chunks

typedef struct range {
  uint64_t offset, bytes;
} range;

typedef struct loaded {
  uint64_t offset;
  vmp_backup *backup;
} loaded;

typedef struct resuming {
  vmp_domain *domain;
  range *batches;
  size_t num_batches, claimed, capacity;
  loaded *all;  // backups in address order
  size_t num_backups, taken;
  vmp_fence after;
  vmp_mover mover;
} resuming;

// ---- what is to be done ----

static void count_piece(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  resuming *r = context;
  (void)offset;
  (void)bytes;
  (void)fence;
  if (what[0] != 'f') r->capacity++;
}

// add_piece joins a piece with the batch before, where no slot lies between them.
static void add_piece(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  resuming *r = context;
  const vmp_pool *pool = r->domain->pool;
  (void)fence;
  if (what[0] == 'f' || vmp_offset_map_find(&r->domain->kept, offset) != NULL) return;
  range *last = r->num_batches == 0 ? NULL : &r->batches[r->num_batches - 1];
  uint64_t granule = pool->device.granule_bytes, most = pool->config.chunk_max * BATCH_CHUNKS;
  bool near = last != NULL && vmp_align_down(offset, granule) <= last->offset + last->bytes &&
              offset + bytes - last->offset <= most;
  if (near) {
    last->bytes = offset + bytes - last->offset;
  } else {
    r->batches[r->num_batches++] = (range){offset, bytes};
  }
}

static void add_backup(void *context, uint64_t offset, uint64_t value) {
  resuming *r = context;
  r->all[r->num_backups++] = (loaded){offset, (vmp_backup *)(uintptr_t)value};
}

static vmp_status make_lists(resuming *r) {
  vmp_domain *domain = r->domain;
  vmp_mid_walk(domain->mid, count_piece, r);
  r->batches = vmp_mem_calloc(r->capacity + 1, sizeof *r->batches);
  r->all = vmp_mem_calloc(domain->backups.entries + 1, sizeof *r->all);
  if (r->batches == NULL || r->all == NULL) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the list of what is to be resumed");
  }
  vmp_mid_walk(domain->mid, add_piece, r);
  vmp_offset_map_walk(&domain->backups, add_backup, r);
  return VMP_OK;
}

// ---- memory ----

static vmp_status claim_batches(resuming *r) {
  vmp_pool *pool = r->domain->pool;
  for (; r->claimed < r->num_batches; r->claimed++) {
    const range *batch = &r->batches[r->claimed];
    vmp_range_claim claim = {.offset = batch->offset, .bytes = batch->bytes, .fence = VMP_FENCE_NONE};
    vmp_status status =
        vmp_ladder_claim(pool, r->domain, VMP_LAYER_MID, batch->bytes, vmp_clock_stream(pool->clock, NULL), &claim);
    if (status != VMP_OK) return status;
    r->after = vmp_fence_merge(r->after, claim.fence);
  }
  if (vmp_fence_is_none(r->after)) return VMP_OK;
  vmp_guard_unlock(&pool->guard);
  vmp_status status = vmp_clock_wait(pool->clock, r->after, UINT64_MAX);
  vmp_guard_lock(&pool->guard);
  return status;
}

static void release_batches(resuming *r) {
  vmp_backing_ops *ops = &r->domain->pool->ops;
  for (size_t i = 0; i < r->claimed; i++) {
    (void)ops->release(ops->self, r->batches[i].offset, r->batches[i].bytes, r->after);
  }
}

// ---- content ----

static bool is_live(const vmp_domain *domain, uint64_t offset) {
  return vmp_label_of(&domain->pool->tags, offset).tag == domain->tag;
}

static vmp_status load_content(resuming *r, const vmp_backup *backup, uint64_t address) {
  if (backup->load == NULL) return vmp_mover_load(&r->mover, address, backup->content, backup->bytes);
  r->mover.busy = true;
  vmp_status status = backup->load(backup->self, (void *)(uintptr_t)address, backup->bytes, r->mover.stream);
  if (status < 0) {
    return vmp_fail(status, "`load` refused a block of %llu bytes", (unsigned long long)backup->bytes);
  }
  return vmp_mover_wait(&r->mover);
}

// load_all loads every block that is still there. A backup is taken out of the table first: a free meanwhile would drop
// it. MAY UNLOCK.
static vmp_status load_all(resuming *r) {
  vmp_domain *domain = r->domain;
  vmp_pool *pool = domain->pool;
  vmp_status status = VMP_OK;
  for (; r->taken < r->num_backups && status == VMP_OK; r->taken++) {
    loaded *next = &r->all[r->taken];
    uint64_t value = 0;
    if (!vmp_offset_map_remove(&domain->backups, next->offset, &value)) {
      next->backup = NULL;  // the block has been freed
      continue;
    }
    uint64_t address = vmp_backing_address(pool->backing, next->offset);
    vmp_guard_unlock(&pool->guard);
    status = load_content(r, next->backup, address);
    vmp_guard_lock(&pool->guard);
  }
  return status;
}

// end_backups frees the backups that were taken out, or puts those of live blocks back into the table.
static void end_backups(resuming *r, bool keep) {
  vmp_domain *domain = r->domain;
  for (size_t i = 0; i < r->taken; i++) {
    vmp_backup *backup = r->all[i].backup;
    if (backup == NULL) continue;
    if (keep && is_live(domain, r->all[i].offset)) {
      (void)vmp_offset_map_promise(&domain->backups);  // there is room: it was just taken out
      vmp_offset_map_add(&domain->backups, r->all[i].offset, (uint64_t)(uintptr_t)backup);
    } else {
      if (backup->load == NULL) domain->backup_bytes -= backup->bytes;
      vmp_mem_free(backup);
    }
  }
}

// ---- the end of it ----

static void claim_piece(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  vmp_domain *domain = context;
  vmp_backing_ops *ops = &domain->pool->ops;
  vmp_fence ignored;
  (void)fence;
  if (what[0] == 'f' || vmp_offset_map_find(&domain->kept, offset) != NULL) return;
  (void)ops->claim(ops->self, offset, bytes, 0, VMP_EFFORT_MAPPED, &ignored);  // all of it is mapped and claimed
}

static void become_resident(resuming *r) {
  vmp_domain *domain = r->domain;
  r->after = VMP_FENCE_NONE;
  vmp_mid_walk(domain->mid, claim_piece, domain);
  release_batches(r);
  domain->claims_dropped = false;
  vmp_offset_map_free(&domain->kept);
  memset(&domain->kept, 0, sizeof domain->kept);
  domain->away_bytes = 0;
  domain->state = VMP_TAG_RESIDENT;
}

static void stay_suspended(resuming *r) {
  uint64_t bytes = 0, chunks = 0;
  vmp_error first = *vmp_last_error();
  release_batches(r);
  (void)vmp_suspend_give_back(r->domain, &bytes, &chunks);
  r->domain->state = VMP_TAG_SUSPENDED;
  vmp_restore_error(&first);
}

static vmp_status load_with_mover(resuming *r) {
  vmp_pool *pool = r->domain->pool;
  uint64_t largest = 0;
  for (size_t i = 0; i < r->num_backups; i++) {
    const vmp_backup *backup = r->all[i].backup;
    if (backup->load == NULL && backup->bytes > largest) largest = backup->bytes;
  }
  if (r->num_backups == 0) return VMP_OK;
  vmp_guard_unlock(&pool->guard);
  vmp_status status = vmp_mover_open(&r->mover, pool, largest < VMP_MOVER_BYTES ? largest : VMP_MOVER_BYTES);
  vmp_guard_lock(&pool->guard);
  if (status == VMP_OK) status = load_all(r);
  vmp_error first = *vmp_last_error();
  // Where a copy may still run, the memory isn't unmapped before the clock has seen it end.
  r->after = vmp_fence_merge(r->after, vmp_mover_fence(&r->mover));
  vmp_guard_unlock(&pool->guard);
  vmp_mover_close(&r->mover);
  vmp_guard_lock(&pool->guard);
  if (status != VMP_OK) vmp_restore_error(&first);
  return status;
}

static vmp_status resume_locked(vmp_domain *domain) {
  resuming r = {.domain = domain, .after = VMP_FENCE_NONE};
  if (domain->state == VMP_TAG_RESIDENT) return VMP_OK;
  if (domain->state != VMP_TAG_SUSPENDED) {
    return vmp_fail(VMP_ERROR_BUSY, "another thread is suspending or resuming the tag");
  }
  domain->state = VMP_TAG_RESUMING;
  vmp_guard_unlock(&domain->pool->guard);
  vmp_status status = vmp_movers_retry(domain->pool);  // no copy of an earlier attempt may come after this one's
  vmp_guard_lock(&domain->pool->guard);
  if (status == VMP_OK) status = make_lists(&r);
  if (status == VMP_OK) status = claim_batches(&r);
  if (status == VMP_OK) status = load_with_mover(&r);
  end_backups(&r, status != VMP_OK);
  if (status == VMP_OK) {
    uint64_t away = domain->away_bytes;
    become_resident(&r);
    vmp_log_tag(domain->pool, VMP_LOG_RESUME, domain->tag, away);
  } else {
    stay_suspended(&r);
  }
  vmp_guard_wake_all(&domain->pool->guard);
  vmp_mem_free(r.batches);
  vmp_mem_free(r.all);
  return status;
}

vmp_status vmp_pool_resume(vmp_pool *pool, vmp_tag tag) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_domain *domain = NULL;
  vmp_guard_lock(&pool->guard);
  vmp_status status = vmp_suspend_find(pool, tag, &domain);
  if (status == VMP_OK) status = resume_locked(domain);
  vmp_guard_unlock(&pool->guard);
  return status;
}
