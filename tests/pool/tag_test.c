// tag_test.c: tags and names: accounting per tag, names of blocks, and that a suspendable tag's blocks share no chunk
// with others.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/pool.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/faults.h"
#include "tests/support/vtest_rng.h"
#include "vmm/memory.h"

static void *alloc_tagged(pool_rig *rig, uint64_t bytes, vmp_tag tag, const char *name) {
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  options.tag = tag;
  options.name = name;
  void *ptr = NULL;
  VEXPECT_OK(vmp_alloc_with(rig->pool, &ptr, bytes, NULL, &options));
  return ptr;
}

static vmp_tag make_tag(pool_rig *rig, const char *name, bool suspendable) {
  vmp_tag tag = 0;
  VEXPECT_OK(suspendable ? vmp_tag_create(rig->pool, name, &tag) : vmp_tag_intern(rig->pool, name, &tag));
  return tag;
}

static vmp_tag_info tag_info(pool_rig *rig, vmp_tag tag) {
  vmp_tag_info info = VMP_TAG_INFO_INIT;
  VEXPECT_OK(vmp_tag_query(rig->pool, tag, &info));
  return info;
}

static vmp_block_info block_info(pool_rig *rig, const void *ptr) {
  vmp_block_info info = VMP_BLOCK_INFO_INIT;
  VEXPECT_OK(vmp_block_query(rig->pool, ptr, &info));
  return info;
}

VTEST_F(Tags, AreInternedByName, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_tag a = make_tag(rig, "activations", false), w = make_tag(rig, "weights", true), again = 0;
  VEXPECT_UINT_NE(a, 0);
  VEXPECT_UINT_NE(a, w);
  VEXPECT_OK(vmp_tag_intern(rig->pool, "activations", &again));
  VEXPECT_UINT_EQ(again, a);
  VEXPECT_OK(vmp_tag_create(rig->pool, "weights", &again));
  VEXPECT_UINT_EQ(again, w);
  VEXPECT_OK(vmp_tag_intern(rig->pool, "weights", &again));  // accounting works with either
  VEXPECT_UINT_EQ(again, w);
  // A plain tag's blocks may share chunks: too late to declare it suspendable.
  again = 99;
  VEXPECT_INT_EQ(vmp_tag_create(rig->pool, "activations", &again), VMP_ERROR_INVALID_VALUE);
  VEXPECT_UINT_EQ(again, 99);
  VEXPECT_INT_EQ(tag_info(rig, w).suspendable, 1);
  VEXPECT_INT_EQ(tag_info(rig, a).suspendable, 0);
  VEXPECT_STR_EQ(tag_info(rig, w).name, "weights");
}

VTEST_F(Tags, WrongArgumentsAreRefused, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_tag tag = 0;
  vmp_tag_info info = VMP_TAG_INFO_INIT;
  void *ptr = rig;
  VEXPECT_INT_EQ(vmp_tag_create(NULL, "a", &tag), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_tag_create(rig->pool, NULL, &tag), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_tag_create(rig->pool, "", &tag), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_tag_create(rig->pool, "a", NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_tag_query(rig->pool, 0, &info), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_tag_query(rig->pool, 1, &info), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_tag_query(rig->pool, 1, NULL), VMP_ERROR_INVALID_VALUE);
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  options.tag = 3;
  VEXPECT_INT_EQ(vmp_alloc_with(rig->pool, &ptr, 512, NULL, &options), VMP_ERROR_INVALID_VALUE);
  options.tag = 0;
  options.alignment = 48;
  VEXPECT_INT_EQ(vmp_alloc_with(rig->pool, &ptr, 512, NULL, &options), VMP_ERROR_INVALID_VALUE);
  options.struct_size = 3;
  VEXPECT_INT_EQ(vmp_alloc_with(rig->pool, &ptr, 512, NULL, &options), VMP_ERROR_INVALID_VALUE);
  char longer[300];
  memset(longer, 'n', sizeof longer);
  longer[299] = '\0';
  options = (vmp_alloc_options)VMP_ALLOC_OPTIONS_INIT;
  options.name = longer;
  VEXPECT_INT_EQ(vmp_alloc_with(rig->pool, &ptr, 512, NULL, &options), VMP_ERROR_INVALID_VALUE);
  VEXPECT_TRUE(ptr == rig);
  VEXPECT_UINT_EQ(rig_stats(rig).failed_allocs, 0);
  VEXPECT_UINT_EQ(rig_stats(rig).blocks, 0);
}

VTEST_F(Tags, SumsFollowBlocksThroughAllLayers, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 4 * GIB, "buddy_from:64MiB");
  VASSERT_NO_FAILURE();
  vmp_tag plain = make_tag(rig, "plain", false), own = make_tag(rig, "own", true);
  static const uint64_t sizes[] = {1, 700, 60000, 300000, 5 * MIB + 3, 100 * MIB};
  void *blocks[2][6], *untagged = rig_alloc(rig, 4096, NULL);
  uint64_t held[2] = {0, 0}, requested = 0;
  for (size_t i = 0; i < 6; i++) {
    requested += sizes[i];
    for (size_t t = 0; t < 2; t++) {
      blocks[t][i] = alloc_tagged(rig, sizes[i], t == 0 ? plain : own, i == 3 ? "third" : NULL);
      VASSERT_NO_FAILURE();
      vmp_block_info info = block_info(rig, blocks[t][i]);
      held[t] += info.bytes;
      VEXPECT_UINT_EQ(info.tag, t == 0 ? plain : own);
      VEXPECT_STR_EQ(info.tag_name, t == 0 ? "plain" : "own");
      if (i == 3) VEXPECT_STR_EQ(info.name, "third");
      if (i != 3) VEXPECT_TRUE(info.name == NULL);
      // A domain has no buddy.
      VEXPECT_STR_EQ(info.layer, i < 3 ? "slab" : i < 5 || t == 1 ? "mid" : "buddy");
    }
  }
  rig_check(rig);
  for (size_t t = 0; t < 2; t++) {
    vmp_tag_info info = tag_info(rig, t == 0 ? plain : own);
    VEXPECT_UINT_EQ(info.blocks, 6);
    VEXPECT_UINT_EQ(info.live, held[t]);
    VEXPECT_UINT_EQ(info.requested, requested);
  }
  VEXPECT_UINT_EQ(rig_stats(rig).blocks, 13);
  VEXPECT_UINT_EQ(block_info(rig, untagged).tag, 0);
  VEXPECT_TRUE(block_info(rig, untagged).tag_name == NULL);
  for (size_t i = 0; i < 6; i++) {
    for (size_t t = 0; t < 2; t++) rig_free(rig, blocks[t][i], NULL);
  }
  VEXPECT_UINT_EQ(tag_info(rig, plain).blocks + tag_info(rig, own).live + tag_info(rig, own).requested, 0);
  VEXPECT_INT_EQ(vmp_free(rig->pool, blocks[1][0], NULL), VMP_ERROR_DOUBLE_FREE);
  VEXPECT_INT_EQ(vmp_free(rig->pool, blocks[1][4], NULL), VMP_ERROR_DOUBLE_FREE);
  rig_free(rig, untagged, NULL);
}

// chunks_of collects the chunks under one domain's arenas, or under everything else.
typedef struct chunk_list {
  vmp_pool *pool;
  vmp_domain *domain;
  uint64_t bytes, straddling;
} chunk_list;

static void see_chunk(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                      uint64_t live, vmp_fence fence) {
  chunk_list *list = context;
  (void)state;
  (void)chunk_id;
  (void)fence;
  if (live == 0) return;
  // Which blocks touch it? All of one domain, or none of any.
  uint64_t ours = 0, others = 0;
  for (uint64_t at = offset; at < offset + bytes; at += 512) {
    vmp_found found;
    if (!vmp_route_find(list->pool, at, &found)) continue;
    if (vmp_domain_of(list->pool, at) == list->domain) ours++;
    if (vmp_domain_of(list->pool, at) != list->domain) others++;
  }
  if (ours > 0) list->bytes += bytes;
  if (ours > 0 && others > 0) list->straddling++;
}

static void expect_apart(pool_rig *rig, vmp_tag tag) {
  chunk_list list = {.pool = rig->pool, .domain = vmp_tag_record_of(&rig->pool->tags, tag)->domain};
  vmp_backing_walk_mappings(rig->pool->backing, see_chunk, &list);
  VEXPECT_UINT_EQ(list.straddling, 0);
  VEXPECT_UINT_GT(list.bytes, 0);
}

// Small arenas lie side by side, and chunks of up to 8 granules want to grow into whatever is unmapped around them.
VTEST_F(Tags, SuspendableTagsShareNoChunk, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 600 * MIB, "arena:64MiB,chunk_max:16MiB,reserve:4GiB");
  VASSERT_NO_FAILURE();
  vmp_tag tags[4] = {0, make_tag(rig, "plain", false), make_tag(rig, "a", true), make_tag(rig, "b", true)};
  vtest_rng rng = vtest_rng_make(vtest_seed(7));
  enum { BLOCKS = 110 };
  void *blocks[BLOCKS] = {NULL};
  for (int i = 0; i < 3000 && !vtest_has_failure(); i++) {
    size_t at = (size_t)vtest_rng_below(&rng, BLOCKS);
    if (blocks[at] != NULL) {
      rig_free(rig, blocks[at], NULL);
      blocks[at] = NULL;
      continue;
    }
    uint64_t bytes =
        vtest_rng_chance(&rng, 1, 4) ? vtest_rng_range(&rng, 1, 65536) : vtest_rng_range(&rng, MIB, 10 * MIB);
    blocks[at] = alloc_tagged(rig, bytes, tags[vtest_rng_below(&rng, 4)], NULL);
    if (i % 500 == 499) {
      VEXPECT_OK(vmp_pool_check(rig->pool, NULL));
      expect_apart(rig, tags[2]);
      expect_apart(rig, tags[3]);
    }
  }
  for (size_t i = 0; i < BLOCKS; i++) {
    if (blocks[i] != NULL) rig_free(rig, blocks[i], NULL);
  }
  vmp_trim_report report = VMP_TRIM_REPORT_INIT;
  rig_settle(rig);
  VEXPECT_OK(vmp_pool_trim(rig->pool, 0, &report));
  VEXPECT_UINT_EQ(rig_stats(rig).mapped, 0);
}

// Two arenas side by side, the second one empty again; the first is filled up to its end. A growth of 10 granules would
// lay a chunk of 8 across the end, and the second tag's next block would use its rest.
VTEST_F(Tags, GrowthAtTheEndOfAnArenaReachesIntoNoOther, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 4 * GIB, "arena:128MiB,chunk_max:16MiB,growth:20MiB,reserve:4GiB");
  VASSERT_NO_FAILURE();
  vmp_tag a = make_tag(rig, "a", true), b = make_tag(rig, "b", true);
  void *blocks[40], *first = alloc_tagged(rig, GRANULE, a, NULL), *second = alloc_tagged(rig, GRANULE, b, NULL);
  rig_free(rig, second, NULL);
  rig_settle(rig);
  VEXPECT_OK(vmp_pool_trim(rig->pool, 0, NULL));
  for (size_t i = 0; i < 40; i++) blocks[i] = alloc_tagged(rig, GRANULE, a, NULL);
  second = alloc_tagged(rig, GRANULE, b, NULL);
  expect_apart(rig, a);
  expect_apart(rig, b);
  rig_free(rig, first, NULL);
  rig_free(rig, second, NULL);
  for (size_t i = 0; i < 40; i++) rig_free(rig, blocks[i], NULL);
}

// A block that fits no arena, and one with a large alignment, get addresses of their own.
VTEST_F(Tags, LargeAndAlignedBlocksOfASuspendableTag, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 4 * GIB, "arena:64MiB,chunk_max:32MiB,reserve:256MiB");
  VASSERT_NO_FAILURE();
  vmp_tag tag = make_tag(rig, "a", true);
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  options.tag = tag;
  void *large = NULL, *aligned = NULL;
  VASSERT_OK(vmp_alloc_with(rig->pool, &large, GIB, NULL, &options));
  options.alignment = GIB;
  VASSERT_OK(vmp_alloc_with(rig->pool, &aligned, 3 * MIB, NULL, &options));
  VEXPECT_UINT_EQ(rig_address(aligned) % GIB, 0);
  rig_check(rig);
  expect_apart(rig, tag);
  rig_free(rig, large, NULL);
  rig_free(rig, aligned, NULL);
}

VTEST_F(Tags, UntaggedBlocksCostNothing, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 0, NULL);
  VASSERT_NO_FAILURE();
  enum { BLOCKS = 20000 };
  static void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) VASSERT_OK(vmp_alloc_with(rig->pool, &blocks[i], 512, NULL, NULL));
  VEXPECT_UINT_EQ(rig->pool->tags.labels.capacity, 0);
  uint64_t before = rig_stats(rig).metadata;
  vmp_tag tag = make_tag(rig, "plain", false);
  for (size_t i = 0; i < BLOCKS; i++) rig_free(rig, blocks[i], NULL);
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = alloc_tagged(rig, 512, tag, "x");
  uint64_t per_block = (rig_stats(rig).metadata - before) / BLOCKS;
  printf("a tagged block costs %llu bytes more\n", (unsigned long long)per_block);
  VEXPECT_UINT_LE(per_block, 40);
  for (size_t i = 0; i < BLOCKS; i++) rig_free(rig, blocks[i], NULL);
}

// Host memory fails at each allocation of a tagged block's way: nothing is left, and the next try works.
VTEST_F(Tags, WithoutHostMemoryNothingChanges, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 2 * GIB, NULL);
  VASSERT_NO_FAILURE();
  uint64_t refused = 0;
  for (uint64_t fail = 0;; fail++) {
    char name[32];
    vmp_tag tag = 0;
    void *ptr = NULL;
    snprintf(name, sizeof name, "tag %llu", (unsigned long long)fail);
    vmp_mem_fail_after(fail, 1);
    vmp_status status = vmp_tag_create(rig->pool, name, &tag);
    if (status == VMP_OK) {
      vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
      options.tag = tag;
      options.name = name;
      status = vmp_alloc_with(rig->pool, &ptr, 3000, NULL, &options);
    }
    bool struck = vmp_mem_failures() > 0;
    vmp_mem_fail_after(0, 0);
    rig_check(rig);
    if (status != VMP_OK) {
      VASSERT_INT_EQ(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
      VASSERT_TRUE(ptr == NULL);
      refused++;
      tag = make_tag(rig, name, true);
      ptr = alloc_tagged(rig, 3000, tag, name);
    }
    VASSERT_UINT_EQ(tag_info(rig, tag).blocks, 1);
    rig_free(rig, ptr, NULL);
    if (!struck) break;
  }
  VEXPECT_UINT_GT(refused, 5);
}

VTEST_F(Tags, TooManySuspendableTags, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  char name[32];
  vmp_tag tag = 0;
  for (unsigned i = 0; i < VMP_MAX_SUSPENDABLE_TAGS; i++) {
    snprintf(name, sizeof name, "tag %u", i);
    VASSERT_OK(vmp_tag_create(rig->pool, name, &tag));
  }
  VEXPECT_INT_EQ(vmp_tag_create(rig->pool, "one more", &tag), VMP_ERROR_LIMIT);
  VEXPECT_UINT_EQ(tag, VMP_MAX_SUSPENDABLE_TAGS);
  VEXPECT_OK(vmp_tag_intern(rig->pool, "one more", &tag));
}

// The check reports a broken sum, a label without a block, and a bit without a label.
VTEST_F(Tags, TheCheckNotices, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_tag tag = make_tag(rig, "a", true);
  void *ptr = alloc_tagged(rig, 3000, tag, NULL);
  vmp_pool *pool = rig->pool;
  uint64_t offset = 0;
  (void)vmp_backing_offset(pool->backing, rig_address(ptr), &offset);
  pool->tags.all[0].live_bytes++;
  VEXPECT_INT_EQ(vmp_pool_check(pool, NULL), VMP_ERROR_CORRUPT);
  pool->tags.all[0].live_bytes--;
  VEXPECT_TRUE(vmp_books_change(pool, offset, 0, VMP_BLOCK_HAS_LABEL));
  VEXPECT_INT_EQ(vmp_pool_check(pool, NULL), VMP_ERROR_CORRUPT);
  VEXPECT_TRUE(vmp_books_change(pool, offset, VMP_BLOCK_HAS_LABEL, 0));
  *vmp_offset_map_find(&pool->tags.labels, offset) += 1;  // another tag
  VEXPECT_INT_EQ(vmp_pool_check(pool, NULL), VMP_ERROR_CORRUPT);
  *vmp_offset_map_find(&pool->tags.labels, offset) -= 1;
  pool->tags.domains->piece_bytes += GRANULE;
  VEXPECT_INT_EQ(vmp_pool_check(pool, NULL), VMP_ERROR_CORRUPT);
  pool->tags.domains->piece_bytes -= GRANULE;
  rig_free(rig, ptr, NULL);
}

// Split and mesh know the pool's own layers; what lies in a suspendable tag's arenas stays as it is, and nothing of it
// comes to share a chunk with others.
VTEST_F(Tags, CompactionLeavesSuspendableTagsAlone, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, "chunk_max:8MiB,single_submitter:1");
  VASSERT_NO_FAILURE();
  vmp_tag tag = make_tag(rig, "a", true);
  enum { BLOCKS = 64 };
  void *own[BLOCKS], *others[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    own[i] = alloc_tagged(rig, 300 * KIB, tag, NULL);
    others[i] = rig_alloc(rig, 300 * KIB, NULL);
  }
  for (size_t i = 0; i < BLOCKS; i++) {
    if (i % 8 == 0) continue;
    rig_free(rig, own[i], NULL);
    rig_free(rig, others[i], NULL);
  }
  for (size_t i = 0; i < BLOCKS; i += 8) {
    unsigned char bytes[2] = {(unsigned char)i, (unsigned char)(i + 1)};
    VEXPECT_INT_EQ(vmp_host_poke(rig->driver, rig_address(own[i]) + 300 * KIB - 1, &bytes[0], 1), 0);
    VEXPECT_INT_EQ(vmp_host_poke(rig->driver, rig_address(others[i]) + 300 * KIB - 1, &bytes[1], 1), 0);
  }
  rig_settle(rig);
  uint64_t generations[BLOCKS] = {0};
  for (size_t i = 0; i < BLOCKS; i += 8) {
    VEXPECT_OK(vmp_range_generation(rig->pool, own[i], 300 * KIB, &generations[i]));
  }
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  options.allow_copy = VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH;
  vmp_defragment_report report = VMP_DEFRAGMENT_REPORT_INIT;
  VEXPECT_OK(vmp_quiescent_begin(rig->pool));
  VEXPECT_OK(vmp_pool_defragment(rig->pool, &options, &report));
  VEXPECT_OK(vmp_quiescent_end(rig->pool));
  VEXPECT_TRUE(report.split_chunks + report.meshed_chunks > 0);  // of the untagged
  for (size_t i = 0; i < BLOCKS; i += 8) {
    unsigned char bytes[2] = {0, 0};
    uint64_t generation = 0;
    VEXPECT_INT_EQ(vmp_host_peek(rig->driver, rig_address(own[i]) + 300 * KIB - 1, &bytes[0], 1), 0);
    VEXPECT_INT_EQ(vmp_host_peek(rig->driver, rig_address(others[i]) + 300 * KIB - 1, &bytes[1], 1), 0);
    VEXPECT_UINT_EQ(bytes[0], i);
    VEXPECT_UINT_EQ(bytes[1], i + 1);
    VEXPECT_OK(vmp_range_generation(rig->pool, own[i], 300 * KIB, &generation));
    VEXPECT_UINT_EQ(generation, generations[i]);
  }
  expect_apart(rig, tag);
  VEXPECT_OK(vmp_pool_check(rig->pool, NULL));
  for (size_t i = 0; i < BLOCKS; i += 8) {
    rig_free(rig, own[i], NULL);
    rig_free(rig, others[i], NULL);
  }
}
