// domain.h: the layers of one suspendable tag: a mid and a slab of its own, over the pool's backing and buddy.
//
// Owns: the tag's arenas, and that no chunk lies in them and elsewhere. Does not own: which blocks there are (the
// pool's books), what happens at a suspend (suspend.c).
//
//     buddy    ... [ gap |          arena of the tag's mid           | gap ] ...       one piece
//     chunks        ==]  [==][==][=====]                  [=====]  [==
//                   '- a chunk of a neighbour may reach into a gap, and one of the tag's blocks too, but none reaches
//                      across it: a claim maps at most `reach` beyond its range, and a gap is at least as long
//
// Invariants
//   - A chunk that a block of the tag touches is touched by no block outside.
//   - piece_bytes = arenas of mid + two gaps for each.
//   - claims: a piece of mid (a block or a span) holds its claim on backing, unless claims_dropped; then only the
//   pieces
//     in `kept` do.
// Guarded by the pool's lock.
#ifndef VMPOOL_POOL_DOMAIN_H_
#define VMPOOL_POOL_DOMAIN_H_

#include "pool/mid.h"
#include "pool/offset_map.h"
#include "pool/slab.h"
#include "pool/vmpool.h"

typedef struct vmp_domain vmp_domain;

struct vmp_domain {
  vmp_domain *next;
  vmp_pool *pool;
  vmp_tag tag;
  vmp_mid *mid;
  vmp_slab *slab;        // NULL: the pool has none either
  uint64_t piece_bytes;  // addresses taken from buddy, gaps included
  uint64_t placing;      // allocations under way in it
  vmp_tag_state state;
  bool claims_dropped;
  vmp_offset_map kept;     // pieces of mid that hold their claims although claims_dropped
  vmp_offset_map backups;  // block -> vmp_backup (suspend.h)
  uint64_t backup_bytes;   // content in host memory
  uint64_t away_bytes;     // of live blocks that are without memory
};

// vmp_domain_create makes the layers of a tag; no addresses are taken yet. VMP_ERROR_HOST_OUT_OF_MEMORY and what the
// layers return.
vmp_status vmp_domain_create(vmp_pool *pool, vmp_tag tag, vmp_domain **out_domain);
// vmp_domain_destroy frees the bookkeeping only. NULL is fine.
void vmp_domain_destroy(vmp_domain *domain);

// vmp_domain_of: the domain whose arenas hold the offset, or NULL: it is the pool's own.
vmp_domain *vmp_domain_of(const vmp_pool *pool, uint64_t offset);

// vmp_domain_is_away: whether a live block of the pool, at this offset, is without memory: its tag is suspended.
bool vmp_domain_is_away(const vmp_domain *domain, uint64_t offset);
// vmp_domain_forget: the live block of the domain at this offset, of so many bytes, is being freed.
void vmp_domain_forget(vmp_domain *domain, uint64_t offset, uint64_t bytes);
// vmp_domain_forget_backup drops the backup of one block, if it has one; _forget_all those of all.
void vmp_domain_forget_backup(vmp_domain *domain, uint64_t offset);
void vmp_domain_forget_all(vmp_domain *domain);

// vmp_domain_addresses: how many bytes of address space a block of a domain needs to be found room for.
uint64_t vmp_domain_addresses(const vmp_pool *pool, uint64_t bytes, uint64_t alignment);

// vmp_domains_suspended: how many tags are not resident.
unsigned vmp_domains_suspended(const vmp_pool *pool);
// vmp_domains_trim gives the empty spans of all domains back to their mids.
void vmp_domains_trim(vmp_pool *pool);

#endif  // VMPOOL_POOL_DOMAIN_H_
