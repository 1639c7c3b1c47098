// tag.c: see tag.h and vmpool_tag.h.
#include "pool/tag.h"

#include <inttypes.h>

#include "pool/pool.h"
#include "pool/suspend.h"
#include "vmm/memory.h"

void vmp_tags_free(vmp_tags *tags) {
  for (vmp_domain *domain = tags->domains, *next; domain != NULL; domain = next) {
    next = domain->next;
    vmp_domain_destroy(domain);
  }
  vmp_mem_free(tags->all);
  vmp_offset_map_free(&tags->labels);
  vmp_name_table_free(&tags->names);
}

vmp_tag_record *vmp_tag_record_of(vmp_tags *tags, vmp_tag tag) {
  return tag == 0 || tag > tags->count ? NULL : &tags->all[tag - 1];
}

const char *vmp_tag_name(const vmp_tags *tags, vmp_tag tag) {
  return vmp_name_text(&tags->names, tags->all[tag - 1].name);
}

// ---- labels ----

static uint64_t word_of(vmp_label label) { return (uint64_t)label.name << 32 | label.tag; }
static vmp_label label_of(uint64_t word) { return (vmp_label){(uint32_t)word, (uint32_t)(word >> 32)}; }

vmp_status vmp_label_promise(vmp_tags *tags) { return vmp_offset_map_promise(&tags->labels); }
void vmp_label_withdraw(vmp_tags *tags) { vmp_offset_map_withdraw(&tags->labels); }

void vmp_label_add(vmp_tags *tags, uint64_t offset, vmp_label label, uint64_t bytes, uint64_t requested_bytes) {
  vmp_offset_map_add(&tags->labels, offset, word_of(label));
  vmp_tag_record *record = vmp_tag_record_of(tags, label.tag);
  if (record == NULL) return;
  record->blocks++;
  record->live_bytes += bytes;
  record->requested_bytes += requested_bytes;
}

vmp_label vmp_label_of(const vmp_tags *tags, uint64_t offset) {
  const uint64_t *word = vmp_offset_map_find(&tags->labels, offset);
  return word == NULL ? (vmp_label){0, 0} : label_of(*word);
}

void vmp_label_remove(vmp_tags *tags, uint64_t offset, uint64_t bytes, uint64_t requested_bytes) {
  uint64_t word = 0;
  (void)vmp_offset_map_remove(&tags->labels, offset, &word);
  vmp_tag_record *record = vmp_tag_record_of(tags, label_of(word).tag);
  if (record == NULL) return;
  if (record->domain != NULL) vmp_domain_forget(record->domain, offset, bytes);
  record->blocks--;
  record->live_bytes -= bytes;
  record->requested_bytes -= requested_bytes;
}

void vmp_label_resize(vmp_tags *tags, uint64_t offset, uint64_t to_offset, uint64_t more_bytes,
                      uint64_t more_requested_bytes) {
  uint64_t word = 0;
  (void)vmp_offset_map_remove(&tags->labels, offset, &word);
  (void)vmp_offset_map_promise(&tags->labels);  // there is room: one was just removed
  vmp_offset_map_add(&tags->labels, to_offset, word);
  vmp_tag_record *record = vmp_tag_record_of(tags, label_of(word).tag);
  if (record == NULL) return;
  record->live_bytes += more_bytes;
  record->requested_bytes += more_requested_bytes;
}

// ---- making tags ----

// find_tag: the tag with this name, or 0. Tags are few.
static vmp_tag find_tag(const vmp_tags *tags, uint32_t name) {
  for (uint32_t i = 0; i < tags->count; i++) {
    if (tags->all[i].name == name) return i + 1;
  }
  return 0;
}

static bool grow(vmp_tags *tags) {
  if (tags->count < tags->capacity) return true;
  uint32_t capacity = tags->capacity == 0 ? 8 : tags->capacity * 2;
  vmp_tag_record *all = vmp_mem_resize(tags->all, tags->capacity, capacity, sizeof *all);
  if (all == NULL) return false;
  tags->all = all;
  tags->capacity = capacity;
  return true;
}

static vmp_status make_tag(vmp_pool *pool, uint32_t name, bool suspendable, vmp_tag *out_tag) {
  vmp_tags *tags = &pool->tags;
  const char *text = vmp_name_text(&tags->names, name);
  if (!grow(tags)) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the tag \"%.64s\"", text);
  vmp_tag tag = tags->count + 1;
  vmp_domain *domain = NULL;
  if (suspendable) {
    if (tags->suspendable == VMP_MAX_SUSPENDABLE_TAGS) {
      return vmp_fail(VMP_ERROR_LIMIT, "the pool has %u suspendable tags already; \"%.64s\" would be one more",
                      VMP_MAX_SUSPENDABLE_TAGS, text);
    }
    vmp_status status = vmp_domain_create(pool, tag, &domain);
    if (status != VMP_OK) return status;
    domain->next = tags->domains;
    tags->domains = domain;
    tags->suspendable++;
  }
  tags->all[tags->count++] = (vmp_tag_record){.name = name, .domain = domain};
  *out_tag = tag;
  return VMP_OK;
}

static vmp_status tag_locked(vmp_pool *pool, const char *name, bool suspendable, vmp_tag *out_tag) {
  uint32_t number = 0;
  vmp_status status = vmp_name_intern(&pool->tags.names, name, &number);
  if (status != VMP_OK) return status;
  vmp_tag tag = find_tag(&pool->tags, number);
  if (tag == 0) return make_tag(pool, number, suspendable, out_tag);
  if (suspendable && pool->tags.all[tag - 1].domain == NULL) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "the tag \"%.64s\" exists and is plain, so its blocks may share chunks with others; create it "
                    "before it is interned, or take another name",
                    name);
  }
  *out_tag = tag;
  return VMP_OK;
}

static vmp_status tag_by_name(vmp_pool *pool, const char *name, bool suspendable, vmp_tag *out_tag) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (name == NULL || name[0] == '\0') return vmp_fail(VMP_ERROR_INVALID_VALUE, "a tag needs a name");
  if (out_tag == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the address of the result is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  vmp_status status = tag_locked(pool, name, suspendable, out_tag);
  vmp_guard_unlock(&pool->guard);
  return status;
}

vmp_status vmp_tag_intern(vmp_pool *pool, const char *name, vmp_tag *out_tag) {
  return tag_by_name(pool, name, false, out_tag);
}

vmp_status vmp_tag_create(vmp_pool *pool, const char *name, vmp_tag *out_tag) {
  return tag_by_name(pool, name, true, out_tag);
}

vmp_status vmp_tag_query(vmp_pool *pool, vmp_tag tag, vmp_tag_info *out_info) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (out_info == NULL || out_info->struct_size < offsetof(vmp_tag_info, suspended)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "vmp_tag_info is NULL or not initialised; use VMP_TAG_INFO_INIT");
  }
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  const vmp_tag_record *record = vmp_tag_record_of(&pool->tags, tag);
  if (record != NULL) {
    out_info->name = vmp_tag_name(&pool->tags, tag);
    out_info->suspendable = record->domain != NULL;
    out_info->state = (int)(record->domain == NULL ? VMP_TAG_RESIDENT : record->domain->state);
    out_info->blocks = record->blocks;
    out_info->live = record->live_bytes;
    out_info->requested = record->requested_bytes;
    if (out_info->struct_size >= sizeof *out_info) {
      out_info->suspended = record->domain == NULL ? 0 : record->domain->away_bytes;
      out_info->backup = record->domain == NULL ? 0 : record->domain->backup_bytes;
    }
  }
  vmp_guard_unlock(&pool->guard);
  return record != NULL ? VMP_OK : vmp_fail(VMP_ERROR_INVALID_VALUE, "there is no tag %" PRIu32, tag);
}

uint64_t vmp_tags_metadata_bytes(const vmp_tags *tags) {
  uint64_t bytes = vmp_name_table_metadata_bytes(&tags->names) + tags->capacity * sizeof *tags->all +
                   vmp_offset_map_metadata_bytes(&tags->labels);
  for (vmp_domain *domain = tags->domains; domain != NULL; domain = domain->next) {
    vmp_mid_stats mid;
    vmp_slab_stats slab = {0};
    vmp_mid_get_stats(domain->mid, &mid);
    if (domain->slab != NULL) vmp_slab_get_stats(domain->slab, &slab);
    bytes += sizeof *domain + mid.metadata_bytes + slab.metadata_bytes + vmp_offset_map_metadata_bytes(&domain->kept) +
             vmp_offset_map_metadata_bytes(&domain->backups);
  }
  return bytes;
}

// ---- check ----

typedef struct label_check {
  vmp_pool *pool;
  vmp_report *report;
  vmp_tag tag;  // whose blocks are summed up
  vmp_tag_record sums;
  uint64_t labelled;
} label_check;

static void check_label(void *context, uint64_t offset, uint64_t word) {
  label_check *check = context;
  vmp_tags *tags = &check->pool->tags;
  vmp_label label = label_of(word);
  uint64_t block = vmp_books_get(check->pool, offset);
  vmp_found found = {.bytes = 0};
  if (label.tag != check->tag) return;
  check->labelled++;
  if (!vmp_block_is_labelled(block) || !vmp_route_find(check->pool, offset, &found)) {
    vmp_report_fault(check->report, "tags: the label at offset %" PRIu64 " is of no labelled live block", offset);
    return;
  }
  const vmp_tag_record *record = vmp_tag_record_of(tags, label.tag);
  vmp_domain *domain = record == NULL ? NULL : record->domain;
  if (vmp_domain_of(check->pool, offset) != domain) {
    vmp_report_fault(check->report, "tags: the block at offset %" PRIu64 " of tag %" PRIu32 " lies in another's arena",
                     offset, label.tag);
  }
  check->sums.blocks++;
  check->sums.live_bytes += found.bytes;
  check->sums.requested_bytes += found.bytes - vmp_block_slack(block);
}

typedef struct backup_check {
  const vmp_domain *domain;
  vmp_report *report;
  uint64_t bytes;
} backup_check;

static void check_backup(void *context, uint64_t offset, uint64_t value) {
  backup_check *check = context;
  const vmp_backup *backup = (const vmp_backup *)(uintptr_t)value;
  if (backup->load == NULL) check->bytes += backup->bytes;
  if (vmp_label_of(&check->domain->pool->tags, offset).tag != check->domain->tag) {
    vmp_report_fault(check->report, "tags: there is a backup of no live block at offset %" PRIu64, offset);
  }
}

static void check_domain(const vmp_domain *domain, vmp_report *report) {
  (void)vmp_mid_check(domain->mid, report);
  if (domain->slab != NULL) (void)vmp_slab_check(domain->slab, report);
  (void)vmp_offset_map_check(&domain->kept, "kept pieces", report);
  (void)vmp_offset_map_check(&domain->backups, "backups", report);
  backup_check check = {.domain = domain, .report = report, .bytes = 0};
  vmp_offset_map_walk(&domain->backups, check_backup, &check);
  if (domain->state != VMP_TAG_RESUMING && check.bytes != domain->backup_bytes) {
    vmp_report_fault(report, "tags: backups of %" PRIu64 " bytes are counted and there are %" PRIu64,
                     domain->backup_bytes, check.bytes);
  }
  if (!domain->claims_dropped && domain->away_bytes != 0) {
    vmp_report_fault(report, "tags: %" PRIu64 " bytes are called suspended, but none are", domain->away_bytes);
  }
  if (!domain->claims_dropped && domain->kept.entries != 0) {
    vmp_report_fault(report, "tags: %zu pieces of tag %" PRIu32 " are kept, but none were dropped",
                     domain->kept.entries, domain->tag);
  }
}

void vmp_tags_check(vmp_pool *pool, vmp_report *report) {
  vmp_tags *tags = &pool->tags;
  (void)vmp_name_table_check(&tags->names, report);
  (void)vmp_offset_map_check(&tags->labels, "labels", report);
  uint64_t labelled = 0;
  for (vmp_tag tag = 0; tag <= tags->count; tag++) {
    label_check check = {.pool = pool, .report = report, .tag = tag};
    vmp_offset_map_walk(&tags->labels, check_label, &check);
    labelled += check.labelled;
    const vmp_tag_record *record = vmp_tag_record_of(tags, tag);
    if (record != NULL && (record->blocks != check.sums.blocks || record->live_bytes != check.sums.live_bytes ||
                           record->requested_bytes != check.sums.requested_bytes)) {
      vmp_report_fault(report,
                       "tags: tag %" PRIu32 " counts %" PRIu64 " blocks of %" PRIu64 " bytes; it has %" PRIu64
                       " of %" PRIu64,
                       tag, record->blocks, record->live_bytes, check.sums.blocks, check.sums.live_bytes);
    }
  }
  if (labelled != tags->labels.entries) {
    vmp_report_fault(report, "tags: %zu labels, of which %" PRIu64 " name a tag that exists", tags->labels.entries,
                     labelled);
  }
  for (const vmp_domain *domain = tags->domains; domain != NULL; domain = domain->next) check_domain(domain, report);
}
