// tag.h: tags, and which live block has which tag and name.
//
// Owns: the tags and their sums, the table of labels. Does not own: where blocks of suspendable tags lie (domain.h).
//
//     blocks    offset -> word, with a bit "labelled"            (every live block)
//     labels    offset -> {tag, name}                            (only those with a tag or a name)
//
// Invariants
//   - a block is in `labels` if and only if its word has the bit.
//   - the sums of a tag are those of the live blocks that carry it.
//   - a block of a suspendable tag lies in that tag's domain, and nobody else's does.
// Guarded by the pool's lock.
#ifndef VMPOOL_POOL_TAG_H_
#define VMPOOL_POOL_TAG_H_

#include "pool/domain.h"
#include "pool/name_table.h"
#include "pool/offset_map.h"
#include "pool/vmpool.h"

// vmp_label: what a block carries; {0, 0} is nothing.
typedef struct vmp_label {
  vmp_tag tag;
  uint32_t name;  // in the table of names
} vmp_label;

typedef struct vmp_tag_record {
  uint32_t name;
  uint64_t blocks, live_bytes, requested_bytes;
  vmp_domain *domain;  // of a suspendable tag
} vmp_tag_record;

typedef struct vmp_tags {  // zeroed at first
  vmp_name_table names;
  vmp_tag_record *all;  // tag t is all[t - 1]
  uint32_t count, capacity, suspendable;
  vmp_domain *domains;
  vmp_offset_map labels;
} vmp_tags;

void vmp_tags_free(vmp_tags *tags);

// vmp_tag_record_of: NULL for a tag that doesn't exist.
vmp_tag_record *vmp_tag_record_of(vmp_tags *tags, vmp_tag tag);
// vmp_tag_name: of a tag that exists.
const char *vmp_tag_name(const vmp_tags *tags, vmp_tag tag);

static inline bool vmp_label_is_none(vmp_label label) { return label.tag == 0 && label.name == 0; }

// vmp_label_promise makes sure that one vmp_label_add will succeed, vmp_label_withdraw takes that back.
// VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_label_promise(vmp_tags *tags);
void vmp_label_withdraw(vmp_tags *tags);
// vmp_label_add enters a live block's label and counts it; uses up a promise.
void vmp_label_add(vmp_tags *tags, uint64_t offset, vmp_label label, uint64_t bytes, uint64_t requested_bytes);
// vmp_label_of: {0, 0} for a block without one.
vmp_label vmp_label_of(const vmp_tags *tags, uint64_t offset);
// vmp_label_remove forgets a labelled block, which held these bytes.
void vmp_label_remove(vmp_tags *tags, uint64_t offset, uint64_t bytes, uint64_t requested_bytes);

// vmp_label_resize follows a labelled block to another offset (or the same) and length; the differences are modulo
// 2^64.
void vmp_label_resize(vmp_tags *tags, uint64_t offset, uint64_t to_offset, uint64_t more_bytes,
                      uint64_t more_requested_bytes);

uint64_t vmp_tags_metadata_bytes(const vmp_tags *tags);

// vmp_tags_check reports every broken invariant of the pool's tags and domains. The lock is held.
void vmp_tags_check(vmp_pool *pool, vmp_report *report);

#endif  // VMPOOL_POOL_TAG_H_
