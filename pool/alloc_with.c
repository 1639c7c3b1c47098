// alloc_with.c: allocation with options. See vmpool_tag.h; the way of the request itself is alloc.c's.
#include <inttypes.h>
#include <string.h>

#include "pool/pool.h"

#define SMALLEST_OPTIONS (offsetof(vmp_alloc_options, name) + sizeof(const char *))

// enter resolves tag and name, and counts the allocation as under way in the tag's domain. The lock is held.
static vmp_status enter(vmp_pool *pool, const vmp_alloc_options *options, vmp_label *out_label,
                        vmp_domain **out_domain) {
  vmp_label label = {.tag = options->tag};
  vmp_domain *domain = NULL;
  if (label.tag != 0) {
    const vmp_tag_record *record = vmp_tag_record_of(&pool->tags, label.tag);
    if (record == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "there is no tag %" PRIu32, label.tag);
    domain = record->domain;
    if (domain != NULL && domain->state != VMP_TAG_RESIDENT) {
      return vmp_fail(VMP_ERROR_SUSPENDED, "the tag \"%.64s\" is suspended; resume it first",
                      vmp_tag_name(&pool->tags, label.tag));
    }
  }
  vmp_status status = vmp_name_intern(&pool->tags.names, options->name, &label.name);
  if (status != VMP_OK) return status;
  if (domain != NULL) domain->placing++;
  *out_label = label;
  *out_domain = domain;
  return VMP_OK;
}

static void leave(vmp_pool *pool, vmp_domain *domain) {
  vmp_guard_lock(&pool->guard);
  domain->placing--;
  if (domain->state != VMP_TAG_RESIDENT) vmp_guard_wake_all(&pool->guard);
  vmp_guard_unlock(&pool->guard);
}

vmp_status vmp_alloc_with(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream,
                          const vmp_alloc_options *options) {
  vmp_alloc_options none = VMP_ALLOC_OPTIONS_INIT;
  if (options == NULL) options = &none;
  if (options->struct_size < SMALLEST_OPTIONS) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "vmp_alloc_options is not initialised; use VMP_ALLOC_OPTIONS_INIT");
  }
  bool has_ticket = options->struct_size >= offsetof(vmp_alloc_options, ticket) + sizeof options->ticket;
  vmp_ticket ticket = has_ticket ? options->ticket : 0;
  size_t alignment = options->alignment == 0 ? VMP_STEP_BYTES : options->alignment;
  vmp_status status = vmp_alloc_check(pool, out_ptr, alignment);
  if (status != VMP_OK) return status;
  vmp_label label = {0, 0};
  vmp_domain *domain = NULL;
  vmp_guard_lock(&pool->guard);
  status = enter(pool, options, &label, &domain);
  vmp_guard_unlock(&pool->guard);
  if (status != VMP_OK) return status;
  if (ticket != 0 && domain != NULL) {
    status = vmp_fail(VMP_ERROR_INVALID_VALUE, "a block of a suspendable tag can't be drawn on a ticket");
  } else {
    status = vmp_alloc_labelled(pool, out_ptr, bytes, alignment, stream, label, domain, ticket);
  }
  if (domain != NULL) leave(pool, domain);
  return status;
}
