#include "tools/replay/kv_regions.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/kv_prefixes.h"
#include "tools/replay/player_internal.h"
#include "vmm/align.h"

// kv_request: a live request, by the trace's number. Its regions stand at handles[number * width].
typedef struct kv_request {
  uint64_t bytes;  // of its tokens, over all layers
  uint64_t pages;  // committed or shared, of each region
  uint16_t stream;
  bool live;
} kv_request;

struct kv_regions {
  player *p;
  kv_options options;
  service_info info;
  uint32_t width;         // regions of a request
  uint64_t prefix_pages;  // of a prefix block, in each region
  kv_request *requests;
  vmp_region **handles;
  uint32_t num_requests;
  kv_prefixes prefixes;
  uint64_t live_regions;
  kv_counts counts;
};

const kv_counts *kv_regions_counts(const kv_regions *k) { return &k->counts; }

// ---- opening ----

static uint64_t granule_of(const player *p) {
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  return vmp_pool_stats(p->pool, &stats) == VMP_OK ? stats.granule : 0;
}

static bool set_sizes(kv_regions *k, tool_error *error) {
  service_info *info = &k->info;
  k->width = k->options.per_layer ? info->layers : 1;
  if (info->token_bytes % k->width != 0)
    return tool_fail(error, "a token's %" PRIu64 " bytes can't be divided by the layers", info->token_bytes);
  k->counts.page_bytes = granule_of(k->p);
  const uint64_t token_bytes = info->token_bytes / k->width, prefix_bytes = token_bytes * SERVICE_PREFIX_TOKENS;
  uint64_t longest;
  if (k->counts.page_bytes == 0 || !vmp_mul(token_bytes, info->longest_tokens + 1, &longest)) {
    return tool_fail(error, "the longest request has %" PRIu64 " tokens, which no region holds", info->longest_tokens);
  }
  k->counts.region_max_bytes = longest;
  k->prefix_pages = prefix_bytes / k->counts.page_bytes;
  if (k->options.share && prefix_bytes % k->counts.page_bytes != 0) {
    return tool_fail(error,
                     "a prefix block is %" PRIu64 " bytes, no multiple of a page of %" PRIu64 "; it can't be shared",
                     prefix_bytes, k->counts.page_bytes);
  }
  return true;
}

bool kv_regions_open(kv_regions **out_regions, player *p, const kv_options *options, tool_error *error) {
  kv_regions *k = calloc(1, sizeof(*k));
  if (k == NULL) return tool_fail(error, "host memory ran out");
  k->p = p;
  k->options = *options;
  bool good = service_get_info(options->requests, &k->info) || tool_fail(error, "regions need a file of requests");
  if (good && options->share && p->options.num_streams > 1)
    good = tool_fail(error, "prefixes are shared on one stream only");
  if (good && options->share && !k->info.has_prefixes)
    good = tool_fail(error, "the requests have no prefix ids to share by");
  if (!good || !set_sizes(k, error)) {
    kv_regions_close(k);
    return false;
  }
  *out_regions = k;
  return true;
}

void kv_regions_close(kv_regions *k) {
  if (k == NULL) return;
  kv_prefixes_destroy(&k->prefixes);
  free(k->requests);
  free(k->handles);
  free(k);
}

static bool make_room(kv_regions *k, uint32_t block) {
  if (block < k->num_requests) return true;
  const size_t count = 2 * (size_t)block + 64;
  kv_request *requests = reallocarray(k->requests, count, sizeof(*requests));
  if (requests != NULL) k->requests = requests;
  vmp_region **handles = reallocarray(k->handles, count * k->width, sizeof(*handles));
  if (handles != NULL) k->handles = handles;
  if (requests == NULL || handles == NULL || count > UINT32_MAX) return false;
  memset(requests + k->num_requests, 0, (count - k->num_requests) * sizeof(*requests));
  memset(handles + (size_t)k->num_requests * k->width, 0, (count - k->num_requests) * k->width * sizeof(vmp_region *));
  k->num_requests = (uint32_t)count;
  return true;
}

static vmp_region **handles_of(kv_regions *k, uint32_t block) { return k->handles + (size_t)block * k->width; }

// ---- regions of a request ----

// destroy ends a request's regions. `touch`: its last work is queued first.
static void destroy(kv_regions *k, uint32_t block, uint16_t stream, bool touch) {
  kv_request *request = &k->requests[block];
  vmp_region **handles = handles_of(k, block);
  for (uint32_t i = 0; i < k->width && handles[i] != NULL; i++) {
    if (touch && request->pages > 0) {
      player_touch(k->p, vmp_region_base(handles[i]), request->pages * k->counts.page_bytes, !k->options.share,
                   request->stream);
    }
    // The touches ran on the request's own stream; where another one ends it, the pool is told.
    if (stream != request->stream && vmp_region_record_use(handles[i], k->p->streams[request->stream]) < 0)
      player_fault(k->p, "a use could not be recorded");
    const player_meter m = player_meter_start(k->p);
    if (vmp_region_destroy(handles[i], k->p->streams[stream]) < 0)
      player_fault(k->p, "a region could not be destroyed");
    player_meter_stop(k->p, m);
    handles[i] = NULL;
    k->live_regions--;
  }
  *request = (kv_request){0};
}

static vmp_status create(kv_regions *k, uint32_t block, uint64_t shared_blocks) {
  vmp_region_options options = VMP_REGION_OPTIONS_INIT;
  options.max_bytes = k->counts.region_max_bytes;
  options.name = "kv";
  options.share_bytes = shared_blocks * k->prefix_pages * k->counts.page_bytes;
  options.wait = 1;
  for (uint32_t i = 0; i < k->width; i++) {
    const player_meter m = player_meter_start(k->p);
    const vmp_status status = vmp_region_create(k->p->pool, &handles_of(k, block)[i], &options);
    player_meter_stop(k->p, m);
    if (status < 0) return status;
    k->counts.regions++;
    if (++k->live_regions > k->counts.peak_regions) k->counts.peak_regions = k->live_regions;
  }
  return VMP_OK;
}

// cover makes each region of a request long enough for `bytes` of its tokens.
static vmp_status cover(kv_regions *k, uint32_t block, uint64_t bytes) {
  kv_request *request = &k->requests[block];
  const uint64_t page_bytes = k->counts.page_bytes, pages = (bytes / k->width + page_bytes - 1) / page_bytes;
  if (pages <= request->pages) return VMP_OK;
  const vmp_region_pages added = {request->pages, pages - request->pages};
  for (uint32_t i = 0; i < k->width; i++) {
    vmp_region *region = handles_of(k, block)[i];
    const player_meter m = player_meter_start(k->p);
    const vmp_status status = vmp_region_commit(region, &added, 1, k->p->streams[request->stream]);
    player_meter_stop(k->p, m);
    if (status != VMP_OK) return status;
    k->counts.committed_bytes += added.count * page_bytes;
    player_touch(k->p, (char *)vmp_region_base(region) + added.first * page_bytes, added.count * page_bytes, true,
                 request->stream);
  }
  request->pages = pages;
  return VMP_OK;
}

// ---- prefixes ----

static const uint64_t *ids_of(const kv_regions *k, uint32_t block, size_t *out_count) {
  return service_prefixes_of(k->options.requests, block, out_count);
}

// known_prefix: how many blocks at the prompt's start live requests have, as far as they go without a gap.
static size_t known_prefix(const kv_regions *k, uint32_t block) {
  size_t count, known = 0, run = 1;
  uint32_t holder;
  for (const uint64_t *ids = ids_of(k, block, &count); known < count && run > 0; known += run) {
    run = kv_prefixes_run(&k->prefixes, k->options.requests, ids + known, known, count - known, &holder);
  }
  return known;
}

// share_prefix maps the blocks at the prompt's start that live requests have, as far as they go without a gap.
static void share_prefix(kv_regions *k, uint32_t block) {
  kv_request *request = &k->requests[block];
  size_t count, shared = 0;
  const uint64_t *ids = ids_of(k, block, &count);
  k->counts.prefix_blocks += count;
  while (shared < count) {
    uint32_t holder;
    const size_t run =
        kv_prefixes_run(&k->prefixes, k->options.requests, ids + shared, shared, count - shared, &holder);
    if (run == 0) break;
    vmp_status status = VMP_OK;
    const uint64_t first = shared * k->prefix_pages, pages = run * k->prefix_pages;
    for (uint32_t i = 0; i < k->width && status == VMP_OK; i++) {
      const player_meter m = player_meter_start(k->p);
      status = vmp_region_share(handles_of(k, holder)[i], first, handles_of(k, block)[i], first, pages,
                                k->p->streams[request->stream]);
      player_meter_stop(k->p, m);
    }
    if (status != VMP_OK) break;  // then they are committed
    shared += run;
    request->pages = first + pages;
    k->counts.shared_blocks += run;
    k->counts.shared_bytes += pages * k->width * k->counts.page_bytes;
  }
}

static bool enter_prefixes(kv_regions *k, uint32_t block) {
  size_t count;
  const uint64_t *ids = ids_of(k, block, &count);
  for (size_t i = 0; i < count; i++) {
    if (!kv_prefixes_enter(&k->prefixes, ids[i], block)) return false;
  }
  return true;
}

// other_with finds a live request other than `block` with the id at the same place; `block` itself: there is none.
static uint32_t other_with(const kv_regions *k, uint32_t block, uint64_t id, size_t place) {
  for (uint32_t other = 0; other < k->num_requests; other++) {
    size_t count;
    if (other == block || !k->requests[other].live) continue;
    const uint64_t *ids = ids_of(k, other, &count);
    if (place < count && ids[place] == id) return other;
  }
  return block;
}

static void leave_prefixes(kv_regions *k, uint32_t block) {
  size_t count;
  const uint64_t *ids = ids_of(k, block, &count);
  for (size_t i = 0; i < count; i++) {
    if (!kv_prefixes_leave(&k->prefixes, ids[i], block)) continue;
    const uint32_t other = other_with(k, block, ids[i], i);
    kv_prefixes_pass(&k->prefixes, ids[i], block, other);
  }
}

// ---- events ----

bool kv_regions_alloc(kv_regions *k, uint32_t block, uint64_t bytes, uint16_t stream) {
  if (!make_room(k, block)) return false;
  kv_request *request = &k->requests[block];
  *request = (kv_request){.stream = stream};
  k->p->counts.allocs++;
  vmp_status status = create(k, block, k->options.share ? known_prefix(k, block) : 0);
  if (status >= 0 && k->options.share) share_prefix(k, block);
  if (status >= 0) status = cover(k, block, bytes);
  if (status != VMP_OK) {
    player_failed(k->p);
    destroy(k, block, stream, false);
  } else {
    request->live = true;
    request->bytes = bytes;
    k->p->counts.live_blocks++;
    player_requested(k->p, bytes, 0);
    if (k->options.share && !enter_prefixes(k, block)) return false;
  }
  player_measure(k->p);
  return true;
}

static void end(kv_regions *k, uint32_t block, uint16_t stream) {
  if (k->options.share) leave_prefixes(k, block);
  k->p->counts.live_blocks--;
  player_requested(k->p, 0, k->requests[block].bytes);
  destroy(k, block, stream, true);
}

void kv_regions_grow(kv_regions *k, uint32_t block, uint64_t bytes) {
  kv_request *request = &k->requests[block];
  if (!request->live) return;
  if (cover(k, block, request->bytes + bytes) == VMP_OK) {
    request->bytes += bytes;
    player_requested(k->p, bytes, 0);
  } else {  // what can't grow is ended
    player_failed(k->p);
    end(k, block, request->stream);
  }
  player_measure(k->p);
}

void kv_regions_free(kv_regions *k, uint32_t block, uint16_t stream) {
  if (!k->requests[block].live) return;
  k->p->counts.frees++;
  end(k, block, stream);
  player_measure(k->p);
}

void kv_regions_finish(kv_regions *k) {
  if (k == NULL) return;
  for (uint32_t block = 0; block < k->num_requests; block++) {
    if (k->requests[block].live) destroy(k, block, k->requests[block].stream, true);
  }
}
