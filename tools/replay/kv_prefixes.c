#include "tools/replay/kv_prefixes.h"

void kv_prefixes_destroy(kv_prefixes *prefixes) {
  id_map_destroy(&prefixes->holders);
  id_map_destroy(&prefixes->counts);
}

size_t kv_prefixes_run(const kv_prefixes *prefixes, const trace_source *requests, const uint64_t *ids, size_t place,
                       size_t count, uint32_t *out_holder) {
  const uint32_t *holder = id_map_find(&prefixes->holders, ids[0]);
  if (holder == NULL) return 0;
  size_t held, run = 0;
  const uint64_t *theirs = service_prefixes_of(requests, *holder, &held);
  while (run < count && place + run < held && theirs[place + run] == ids[run]) run++;
  *out_holder = *holder;
  return run;
}

bool kv_prefixes_enter(kv_prefixes *prefixes, uint64_t id, uint32_t request) {
  uint32_t *count = id_map_find(&prefixes->counts, id);
  if (count == NULL) return id_map_put(&prefixes->counts, id, 1) && id_map_put(&prefixes->holders, id, request);
  ++*count;
  return id_map_find(&prefixes->holders, id) != NULL || id_map_put(&prefixes->holders, id, request);
}

bool kv_prefixes_leave(kv_prefixes *prefixes, uint64_t id, uint32_t request) {
  uint32_t *count = id_map_find(&prefixes->counts, id);
  if (count == NULL) return false;
  if (--*count == 0) {
    id_map_erase(&prefixes->counts, id);
    id_map_erase(&prefixes->holders, id);
    return false;
  }
  const uint32_t *holder = id_map_find(&prefixes->holders, id);
  return holder != NULL && *holder == request;
}

void kv_prefixes_pass(kv_prefixes *prefixes, uint64_t id, uint32_t request, uint32_t to) {
  uint32_t *holder = id_map_find(&prefixes->holders, id);
  if (holder == NULL || *holder != request) return;
  if (to == request) {
    id_map_erase(&prefixes->holders, id);
  } else {
    *holder = to;
  }
}
