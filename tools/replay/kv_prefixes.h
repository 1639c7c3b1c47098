// kv_prefixes.h: which live request has which prefix block of a KV cache.
//
// Owns: for each id that a live request has: one such request, its holder, and how many there are. Does not own: pages.
#ifndef VMPOOL_TOOLS_REPLAY_KV_PREFIXES_H_
#define VMPOOL_TOOLS_REPLAY_KV_PREFIXES_H_

#include "tools/models/service.h"
#include "tools/trace/id_map.h"

// kv_prefixes: zeroed, it is empty and ready.
typedef struct kv_prefixes {
  id_map holders, counts;
} kv_prefixes;

void kv_prefixes_destroy(kv_prefixes *prefixes);

// kv_prefixes_run returns how many of the `count` ids one live request has at the same places (the first of them is its
// block number `place`); 0: nobody has the first.
size_t kv_prefixes_run(const kv_prefixes *prefixes, const trace_source *requests, const uint64_t *ids, size_t place,
                       size_t count, uint32_t *out_holder);

// kv_prefixes_enter says that a live request has an id. False: no host memory.
bool kv_prefixes_enter(kv_prefixes *prefixes, uint64_t id, uint32_t request);
// kv_prefixes_leave says that it ends. True: it was the holder and others have the id, so kv_prefixes_pass must follow:
// to another request, or, where it names the same, to nobody.
bool kv_prefixes_leave(kv_prefixes *prefixes, uint64_t id, uint32_t request);
void kv_prefixes_pass(kv_prefixes *prefixes, uint64_t id, uint32_t request, uint32_t to);

#endif  // VMPOOL_TOOLS_REPLAY_KV_PREFIXES_H_
