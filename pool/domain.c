// domain.c: see domain.h.
#include "pool/domain.h"

#include "pool/pool.h"
#include "pool/suspend.h"
#include "vmm/memory.h"

// gap_bytes: at least what one claim may map beyond its range, on either side, and a multiple of the alignment (a power
// of two). 0: too much for any address space.
static uint64_t gap_bytes(const vmp_pool *pool, uint64_t alignment) {
  uint64_t reach = pool->config.chunk_max;
  if (pool->config.growth > reach) reach = pool->config.growth;
  if (alignment < pool->config.chunk_max) alignment = pool->config.chunk_max;
  return vmp_align_up(reach, alignment, &reach) && reach <= UINT64_MAX / 4 ? reach : 0;
}

uint64_t vmp_domain_addresses(const vmp_pool *pool, uint64_t bytes, uint64_t alignment) {
  uint64_t all, gap = gap_bytes(pool, alignment);
  return gap != 0 && vmp_add(bytes, 2 * gap, &all) ? all : UINT64_MAX;
}

// ---- arenas from buddy ----

static vmp_status take_arena(void *self, uint64_t bytes, uint64_t alignment, uint64_t *out_offset, uint64_t *out_bytes,
                             vmp_fence *out_fence) {
  vmp_domain *domain = self;
  uint64_t gap = gap_bytes(domain->pool, alignment), offset, got, wanted;
  if (gap == 0 || !vmp_add(bytes, 2 * gap, &wanted)) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "%llu bytes are larger than any address space",
                    (unsigned long long)bytes);
  }
  vmp_status status = vmp_buddy_take_piece(domain->pool->buddy, wanted, alignment, true, &offset, &got, out_fence);
  if (status != VMP_OK) return status;
  domain->piece_bytes += got;
  *out_offset = offset + gap;
  *out_bytes = got - 2 * gap;
  return VMP_OK;
}

static void give_arena(void *self, uint64_t offset, vmp_fence fence) {
  vmp_domain *domain = self;
  uint64_t start = offset, bytes = 0;
  (void)vmp_buddy_find(domain->pool->buddy, offset, &start, &bytes, NULL);
  domain->piece_bytes -= bytes;
  vmp_buddy_free(domain->pool->buddy, start, fence);
}

// ---- spans from the domain's mid ----

static vmp_status take_span(void *self, const vmp_request *request, vmp_span *owner, vmp_placed *out_placed) {
  vmp_domain *domain = self;
  return vmp_mid_alloc(domain->mid, request, owner, out_placed);
}

static void give_span(void *self, uint64_t offset, vmp_fence fence) {
  vmp_domain *domain = self;
  (void)vmp_mid_free(domain->mid, offset, fence);
}

// ---- backing, as the domain's layers see it: all of it passes through but the release of what holds no claim ----

static const vmp_backing_ops *ops_of(const void *self) { return &((const vmp_domain *)self)->pool->ops; }

static vmp_cost op_cost(void *self, uint64_t offset, uint64_t bytes, vmp_stream_index stream) {
  return ops_of(self)->cost(ops_of(self)->self, offset, bytes, stream);
}
static vmp_run_state op_run(void *self, uint64_t offset, uint64_t end, uint64_t *out_end) {
  return ops_of(self)->run(ops_of(self)->self, offset, end, out_end);
}
static vmp_status op_claim(void *self, uint64_t offset, uint64_t bytes, vmp_stream_index stream, vmp_effort effort,
                           vmp_fence *out_fence) {
  return ops_of(self)->claim(ops_of(self)->self, offset, bytes, stream, effort, out_fence);
}
static bool op_release(void *self, uint64_t offset, uint64_t bytes, vmp_fence fence) {
  vmp_domain *domain = self;
  if (domain->claims_dropped && !vmp_offset_map_remove(&domain->kept, offset, NULL)) return false;
  return ops_of(self)->release(ops_of(self)->self, offset, bytes, fence);
}
static bool op_next_change(void *self, uint64_t *cursor, uint64_t *out_offset, uint64_t *out_bytes) {
  return ops_of(self)->next_change(ops_of(self)->self, cursor, out_offset, out_bytes);
}
static bool op_known_complete(void *self, vmp_fence fence) {
  return ops_of(self)->known_complete(ops_of(self)->self, fence);
}
static vmp_fence op_others(void *self, vmp_fence fence, vmp_stream_index stream) {
  return ops_of(self)->others(ops_of(self)->self, fence, stream);
}

static vmp_backing_ops ops_for(vmp_domain *domain) {
  return (vmp_backing_ops){
      .self = domain,
      .granule_bytes = domain->pool->ops.granule_bytes,
      .glance = domain->pool->ops.glance,
      .cost = op_cost,
      .run = op_run,
      .claim = op_claim,
      .release = op_release,
      .next_change = op_next_change,
      .known_complete = op_known_complete,
      .others = op_others,
  };
}

// ---- making one ----

vmp_status vmp_domain_create(vmp_pool *pool, vmp_tag tag, vmp_domain **out_domain) {
  const vmp_config *config = &pool->config;
  vmp_domain *domain = vmp_mem_calloc(1, sizeof *domain);
  if (domain == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for a suspendable tag");
  domain->pool = pool;
  domain->tag = tag;
  vmp_backing_ops ops = ops_for(domain);
  // With its two gaps an arena is as large as one of the pool's own.
  uint64_t gaps = 2 * gap_bytes(pool, config->chunk_max);
  vmp_mid_options mid_options = {.few = true,
                                 .arena_bytes = config->arena > gaps ? config->arena - gaps : config->chunk_max,
                                 .chunk_max_bytes = config->chunk_max};
  vmp_mid_supply arenas = {domain, take_arena, give_arena};
  vmp_status status = vmp_mid_create(&domain->mid, &ops, &arenas, &mid_options);
  if (status == VMP_OK && pool->slab != NULL) {
    // Not published: nobody finds its objects without the lock, so no thread keeps one across a suspend.
    vmp_slab_supply spans = {.self = domain, .take = take_span, .give = give_span};
    vmp_slab_options slab_options = vmp_pool_slab_options(pool);
    status = vmp_slab_create(&domain->slab, &ops, &spans, &slab_options);
  }
  if (status != VMP_OK) {
    vmp_domain_destroy(domain);
    return status;
  }
  *out_domain = domain;
  return VMP_OK;
}

void vmp_domain_destroy(vmp_domain *domain) {
  if (domain == NULL) return;
  vmp_slab_destroy(domain->slab);
  vmp_mid_destroy(domain->mid);
  vmp_offset_map_free(&domain->kept);
  vmp_domain_forget_all(domain);
  vmp_mem_free(domain);
}

vmp_domain *vmp_domain_of(const vmp_pool *pool, uint64_t offset) {
  vmp_domain *domain = pool->tags.domains;
  if (domain == NULL || vmp_mid_owns(pool->mid, offset)) return NULL;
  if (pool->span_mid != NULL && vmp_mid_owns(pool->span_mid, offset)) return NULL;
  while (domain != NULL && !vmp_mid_owns(domain->mid, offset)) domain = domain->next;
  return domain;
}

// ---- suspended blocks ----

bool vmp_domain_is_away(const vmp_domain *domain, uint64_t offset) {
  uint64_t piece = offset;
  if (!domain->claims_dropped || !vmp_mid_find(domain->mid, offset, &piece, NULL, NULL)) return false;
  return vmp_offset_map_find(&domain->kept, piece) == NULL;
}

void vmp_domain_forget(vmp_domain *domain, uint64_t offset, uint64_t bytes) {
  if (vmp_domain_is_away(domain, offset)) domain->away_bytes -= bytes;
  vmp_domain_forget_backup(domain, offset);
}

void vmp_domain_forget_backup(vmp_domain *domain, uint64_t offset) {
  uint64_t value;
  if (domain->backups.entries == 0 || !vmp_offset_map_remove(&domain->backups, offset, &value)) return;
  vmp_backup *backup = (vmp_backup *)(uintptr_t)value;
  if (backup->load == NULL) domain->backup_bytes -= backup->bytes;
  vmp_mem_free(backup);
}

static void free_backup(void *context, uint64_t offset, uint64_t value) {
  (void)context;
  (void)offset;
  vmp_mem_free((void *)(uintptr_t)value);
}

void vmp_domain_forget_all(vmp_domain *domain) {
  vmp_offset_map_walk(&domain->backups, free_backup, NULL);
  vmp_offset_map_free(&domain->backups);
  domain->backups = (vmp_offset_map){0};
  domain->backup_bytes = 0;
}

unsigned vmp_domains_suspended(const vmp_pool *pool) {
  unsigned count = 0;
  for (const vmp_domain *domain = pool->tags.domains; domain != NULL; domain = domain->next) {
    count += domain->state != VMP_TAG_RESIDENT;
  }
  return count;
}

void vmp_domains_trim(vmp_pool *pool) {
  for (vmp_domain *domain = pool->tags.domains; domain != NULL; domain = domain->next) {
    if (domain->slab != NULL) vmp_slab_trim(domain->slab);
  }
}
