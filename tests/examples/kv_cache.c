// A KV cache on regions: each sequence reserves the longest context, gets memory as it grows, and maps the pages of a
// prefix that another sequence has already. Its keys and values lie behind one another from one pointer on, which never
// changes; on a GPU that pointer is what the attention kernel gets.
#include <stdio.h>

#include "pool/vmpool_host.h"

#define TOKEN_BYTES ((uint64_t)131072)  // Llama 3 8B, all layers: 16 tokens are a page of 2 MiB
#define PAGE_BYTES ((uint64_t)2 << 20)
#define CONTEXT_TOKENS ((uint64_t)8192)

typedef struct sequence {
  vmp_region *region;
  uint64_t tokens;
} sequence;

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, vmp_last_error()->message);
  return 1;
}

// begin starts a sequence. The first `shared_tokens` of it, whole pages, are those of `prefix`.
static int begin(vmp_pool *pool, sequence *s, const sequence *prefix, uint64_t shared_tokens, vmp_stream stream) {
  vmp_region_options options = VMP_REGION_OPTIONS_INIT;
  options.max_bytes = CONTEXT_TOKENS * TOKEN_BYTES;
  options.share_bytes = shared_tokens * TOKEN_BYTES;
  options.wait = 1;
  s->tokens = shared_tokens;
  if (vmp_region_create(pool, &s->region, &options) < 0) return fail("create");
  const uint64_t pages = shared_tokens * TOKEN_BYTES / PAGE_BYTES;
  return pages == 0 || vmp_region_share(prefix->region, 0, s->region, 0, pages, stream) == VMP_OK ? 0 : fail("share");
}

// append makes room for more tokens behind those that are there. Most calls find it in the last page, and do nothing.
static int append(sequence *s, uint64_t tokens, vmp_stream stream) {
  s->tokens += tokens;
  const vmp_region_pages all = {0, (s->tokens * TOKEN_BYTES + PAGE_BYTES - 1) / PAGE_BYTES};
  return vmp_region_commit(s->region, &all, 1, stream) == VMP_OK ? 0 : fail("commit");
}

// run: a prompt of 1,024 tokens, three that begin like it, 100 tokens of output for each.
static int run(vmp_pool *pool, vmp_stream stream) {
  sequence s[4];
  for (int i = 0; i < 4; i++) {
    if (begin(pool, &s[i], &s[0], i == 0 ? 0 : 1024, stream) != 0) return 1;
    if (append(&s[i], i == 0 ? 1024 : 0, stream) != 0) return 1;
    for (int token = 0; token < 100; token++) {
      if (append(&s[i], 1, stream) != 0) return 1;
    }
  }
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  if (vmp_pool_stats(pool, &stats) < 0) return fail("stats");
  printf("%llu sequences: %llu MiB in their regions, %llu MiB of memory\n", (unsigned long long)stats.regions,
         (unsigned long long)(stats.region_committed >> 20), (unsigned long long)(stats.region_live >> 20));
  for (int i = 0; i < 4; i++) {  // in any order: what others still show stays
    if (vmp_region_destroy(s[i].region, stream) < 0) return fail("destroy");
  }
  return 0;
}

int main(void) {
  vmp_driver_options driver_options = VMP_DRIVER_OPTIONS_INIT;
  driver_options.kind = VMP_DRIVER_HOST;
  vmp_driver *driver;
  if (vmp_driver_open(&driver, &driver_options) < 0) return fail("driver");
  vmp_pool_options pool_options = VMP_POOL_OPTIONS_INIT;
  pool_options.driver = driver;
  vmp_pool *pool;
  if (vmp_pool_create(&pool, &pool_options) < 0) return fail("pool");
  const int status = run(pool, NULL);
  if (vmp_pool_destroy(pool) < 0) return fail("destroy");
  vmp_driver_close(driver);
  return status;
}
