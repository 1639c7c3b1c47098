// inputs: the snapshots and logs that the viewer is shown with and tested on.
//
// usage: inputs hta|azure|sparse|million|stacks|away FOLDER      writes FOLDER/NAME.json, NAME.later.json and
// NAME.vmplog
//
//   hta      a recorded training run on 16 GiB, with steps, marks, a trim, a defragmentation and one failed allocation;
//            the snapshot at the most mapped bytes, the later one at the end
//   azure    an hour of chat serving, each request a region of the longest context
//   sparse   1 TiB of addresses of which 0.1 % are mapped, in 240 places; names that try to be markup
//   million  a million events
//   stacks   some blocks, with the stack of every allocation in the log
//   away     a tag that is suspended: live blocks without memory
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/vmpool.h"
#include "pool/vmpool_host.h"
#include "tools/common/rng.h"
#include "tools/models/shapes.h"
#include "tools/trace/trace.h"

static const char *folder;

static void must(bool good, const char *what) {
  if (good) return;
  fprintf(stderr, "inputs: %s: %s\n", what, vmp_last_error()->message);
  exit(1);
}

static const char *path_of(const char *name, const char *ending) {
  static char path[2][512];
  static int turn;
  turn = !turn;
  snprintf(path[turn], sizeof(path[0]), "%s/%s%s", folder, name, ending);
  return path[turn];
}

static trace *open_trace(const char *name, const trace_options *options) {
  const char *traces = getenv("VMPOOL_TRACES");
  char path[512];
  tool_error error = {{0}};
  trace *t = NULL;
  if (traces == NULL) {
    fprintf(stderr, "inputs: VMPOOL_TRACES names no folder of traces\n");
    exit(77);
  }
  snprintf(path, sizeof(path), "%s/%s", traces, name);
  if (trace_read(path, options, &t, &error)) return t;
  fprintf(stderr, "inputs: %s\n", error.text);
  exit(1);
}

// ---- a pool on the host driver ----

typedef struct rig {
  vmp_driver *driver;
  vmp_pool *pool;
  vmp_stream stream, second;
} rig;

static rig rig_open(const char *name, uint64_t device_bytes, const char *conf) {
  rig r = {0};
  vmp_driver_options options = VMP_DRIVER_OPTIONS_INIT;
  options.kind = VMP_DRIVER_HOST;
  options.host_device_bytes = device_bytes;
  must(vmp_driver_open(&r.driver, &options) == VMP_OK, "driver");
  vmp_pool_options pool_options = VMP_POOL_OPTIONS_INIT;
  pool_options.driver = r.driver;
  pool_options.conf = conf;
  pool_options.name = name;
  must(vmp_pool_create(&r.pool, &pool_options) == VMP_OK, "pool");
  must(vmp_host_stream_create(r.driver, 0, &r.stream) == VMP_OK, "stream");
  must(vmp_host_stream_create(r.driver, 0, &r.second) == VMP_OK, "stream");
  return r;
}

// The program ends here: what is live stays so, and the kernel takes it all.
static void log_start(rig *r, const char *name) {
  remove(path_of(name, ".vmplog"));
  must(vmp_pool_log_start(r->pool, path_of(name, ".vmplog"), NULL) == VMP_OK, "log");
}

static void snapshot(rig *r, const char *name, const char *ending) {
  must(vmp_pool_snapshot(r->pool, path_of(name, ending)) == VMP_OK, "snapshot");
}

static void *alloc_named(rig *r, uint64_t bytes, const char *tag, const char *name, vmp_stream stream) {
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  void *ptr = NULL;
  if (tag != NULL) must(vmp_tag_intern(r->pool, tag, &options.tag) == VMP_OK, "tag");
  options.name = name;
  must(vmp_alloc_with(r->pool, &ptr, bytes, stream, &options) == VMP_OK, "allocation");
  return ptr;
}

static uint64_t mapped(rig *r) {
  vmp_pool_stats_data stats = {.struct_size = offsetof(vmp_pool_stats_data, pending)};
  must(vmp_pool_stats(r->pool, &stats) == VMP_OK, "statistics");
  return stats.mapped;
}

// ---- hta ----

static const char *tag_of(uint64_t bytes) {
  return bytes < 4096 ? "scalars" : bytes < 1 << 20 ? "activations" : bytes < 24 << 20 ? "gradients" : "buckets";
}

// play performs the whole trace; `after` (or NULL) is called after each event. Returns the number of the event with the
// most mapped bytes.
static uint64_t play(rig *r, trace *t, void (*after)(rig *r, uint64_t n)) {
  void **live = calloc(t->list.num_blocks + 1, sizeof(*live));
  trace_event e;
  uint64_t n = 0, most = 0, best = 0;
  trace_rewind(t);
  while (trace_next(t, &e)) {
    n++;
    vmp_stream stream = e.block % 5 == 0 ? r->second : r->stream;
    if (e.kind == TRACE_ALLOC) {
      live[e.block] = alloc_named(r, e.bytes, tag_of(e.bytes), NULL, stream);
    } else {
      must(vmp_free(r->pool, live[e.block], stream) == VMP_OK, "free");
    }
    if (n % 64 == 0) (void)vmp_host_work_step(r->driver, 1000, NULL);
    if (after != NULL) after(r, n);
    if (mapped(r) <= most) continue;
    most = mapped(r);
    best = n;
  }
  free(live);
  return best;
}

static uint64_t peak;  // of hta: the event with the most mapped bytes

static void after_hta(rig *r, uint64_t n) {
  if (n % 2000 == 0) must(vmp_pool_step(r->pool) == VMP_OK, "step");
  if (n == peak) snapshot(r, "hta", ".json");
  if (n == peak + 40) {
    void *none = NULL;
    must(vmp_alloc(r->pool, &none, UINT64_C(15) << 30, r->stream) != VMP_OK, "an allocation that must fail");
  }
  if (n != peak + 900) return;
  (void)vmp_host_stream_synchronize(r->driver, 0, r->stream);
  (void)vmp_host_stream_synchronize(r->driver, 0, r->second);
  must(vmp_pool_mark(r->pool, "before the trim") == VMP_OK, "mark");
  must(vmp_pool_trim(r->pool, mapped(r) * 2 / 3, NULL) == VMP_OK, "trim");
  must(vmp_pool_defragment(r->pool, NULL, NULL) == VMP_OK, "defragmentation");
  snapshot(r, "hta", ".later.json");
}

static void make_hta(void) {
  const trace_options options = TRACE_OPTIONS_INIT;
  trace *t = open_trace("hta/ddp_rank1_v100_gpu_alloc.csv", &options);
  rig first = rig_open("ddp rank 1", UINT64_C(16) << 30, "chunk_max:8MiB");
  peak = play(&first, t, NULL);
  rig r = rig_open("ddp rank 1", UINT64_C(16) << 30, "chunk_max:8MiB");
  log_start(&r, "hta");
  must(vmp_pool_mark(r.pool, "warm-up ends") == VMP_OK, "mark");
  (void)play(&r, t, after_hta);
  must(vmp_pool_log_stop(r.pool) == VMP_OK, "end of the log");
  trace_close(t);
}

// ---- azure ----

static void make_azure(void) {
  trace_options options = TRACE_OPTIONS_INIT;
  options.kv.layout = SERVICE_CONTIGUOUS;
  options.kv.model = model_find("llama-2-7b");
  trace *t = open_trace("azure_llm_2023/AzureLLMInferenceTrace_conv.csv", &options);
  rig r = rig_open("kv cache", UINT64_C(80) << 30, NULL);
  log_start(&r, "azure");
  trace_event e;
  uint64_t n = 0, most = 0;
  vmp_region **regions = calloc(1 << 20, sizeof(*regions));
  while (n < 6000 && trace_next(t, &e)) {
    n++;
    if (e.kind == TRACE_ALLOC) {
      char name[32];
      snprintf(name, sizeof(name), "request %u", (unsigned)e.block);
      vmp_region_options how = VMP_REGION_OPTIONS_INIT;
      how.max_bytes = e.bytes > UINT64_C(4) << 30 ? e.bytes : UINT64_C(4) << 30;
      how.name = name;
      how.wait = 1;
      must(vmp_region_create(r.pool, &regions[e.block], &how) == VMP_OK, "region");
      const vmp_region_pages pages = {0, (e.bytes + (2 << 20) - 1) / (2 << 20)};
      must(vmp_region_commit(regions[e.block], &pages, 1, r.stream) == VMP_OK, "commit");
    } else {
      must(vmp_region_destroy(regions[e.block], r.stream) == VMP_OK, "end of a region");
    }
    if (n % 16 == 0) (void)vmp_host_work_step(r.driver, 1000, NULL);
    if (mapped(&r) > most && n > 2000) {
      most = mapped(&r);
      snapshot(&r, "azure", ".json");
    }
  }
  snapshot(&r, "azure", ".later.json");
  must(vmp_pool_log_stop(r.pool) == VMP_OK, "end of the log");
  trace_close(t);
}

// ---- sparse ----

enum { SPARSE_PLACES = 240 };

static void make_sparse(void) {
  static const uint64_t sizes[] = {512, 4096, 70000, 2 << 20, 6 << 20, 7 << 20, 100, 3 << 20};
  static const char *const tags[] = {"weights", "</script><script>document.title='script ran'</script>", "kv",
                                     "<img src=x onerror=\"document.title='handler ran'\">"};
  rig r = rig_open("</title><script>document.title='name ran'</script>", UINT64_MAX, "reserve:1TiB,chunk_max:8MiB");
  static void *fillers[SPARSE_PLACES];
  void *kept = NULL;
  for (int i = 0; i < SPARSE_PLACES; i++) {
    kept = alloc_named(&r, sizes[i % 8], tags[i % 4], i % 3 == 0 ? "javascript:alert(1)" : NULL, r.stream);
    must(vmp_alloc(r.pool, &fillers[i], (UINT64_C(4) << 30) - (64 << 20), r.stream) == VMP_OK, "filler");
  }
  snapshot(&r, "sparse", ".full.json");
  for (int i = 0; i < SPARSE_PLACES; i++) must(vmp_free(r.pool, fillers[i], r.stream) == VMP_OK, "free");
  (void)vmp_host_stream_synchronize(r.driver, 0, r.stream);
  must(vmp_pool_trim(r.pool, 0, NULL) == VMP_OK, "trim");
  log_start(&r, "sparse");
  snapshot(&r, "sparse", ".json");
  must(vmp_free(r.pool, kept, r.stream) == VMP_OK, "free");
  for (int i = 0; i < 60; i++) (void)alloc_named(&r, sizes[i % 8], tags[i % 4], NULL, r.stream);
  snapshot(&r, "sparse", ".later.json");
  must(vmp_pool_log_stop(r.pool) == VMP_OK, "end of the log");
}

// ---- million ----

static void make_million(void) {
  enum { SLOTS = 20000, EVENTS = 1000000 };
  rig r = rig_open("million", UINT64_C(64) << 30, NULL);
  log_start(&r, "million");
  rng random = {.state = 1};
  static void *live[SLOTS];
  for (uint64_t n = 0; n < EVENTS; n++) {
    const size_t i = (size_t)rng_between(&random, 0, SLOTS - 1);
    vmp_stream stream = i % 7 == 0 ? r.second : r.stream;
    if (live[i] != NULL) {
      must(vmp_free(r.pool, live[i], stream) == VMP_OK, "free");
      live[i] = NULL;
    } else {
      const uint64_t bytes = UINT64_C(1) << rng_between(&random, 6, 21);
      live[i] = alloc_named(&r, rng_between(&random, bytes, 2 * bytes), tag_of(bytes), NULL, stream);
    }
    if (n % 256 == 0) (void)vmp_host_work_step(r.driver, 10000, NULL);
    if (n % 50000 == 49999) must(vmp_pool_step(r.pool) == VMP_OK, "step");
  }
  snapshot(&r, "million", ".json");
  must(vmp_pool_log_stop(r.pool) == VMP_OK, "end of the log");
}

// ---- stacks ----

static void make_stacks(void) {
  rig r = rig_open("stacks", UINT64_C(1) << 30, NULL);
  vmp_log_start_options options = VMP_LOG_START_OPTIONS_INIT;
  options.stack_bytes = 1;
  remove(path_of("stacks", ".vmplog"));
  must(vmp_pool_log_start(r.pool, path_of("stacks", ".vmplog"), &options) == VMP_OK, "log");
  for (uint64_t i = 1; i <= 30; i++) (void)alloc_named(&r, i * 5000, i % 2 == 0 ? "even" : NULL, NULL, r.stream);
  snapshot(&r, "stacks", ".json");
  must(vmp_pool_log_stop(r.pool) == VMP_OK, "end of the log");
}

// ---- away ----

static void make_away(void) {
  rig r = rig_open("away", UINT64_C(1) << 30, NULL);
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  must(vmp_tag_create(r.pool, "weights", &options.tag) == VMP_OK, "tag");
  log_start(&r, "away");
  for (uint64_t i = 1; i <= 20; i++) {
    void *ptr;
    must(vmp_alloc(r.pool, &ptr, i << 18, r.stream) == VMP_OK, "allocation");
    must(vmp_alloc_with(r.pool, &ptr, i << 20, r.stream, &options) == VMP_OK, "allocation");
  }
  (void)vmp_host_stream_synchronize(r.driver, 0, r.stream);
  must(vmp_pool_suspend(r.pool, options.tag, NULL) == VMP_OK, "suspension");
  snapshot(&r, "away", ".json");
  must(vmp_pool_log_stop(r.pool) == VMP_OK, "end of the log");
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*make)(void);
  } all[] = {{"hta", make_hta},         {"azure", make_azure},   {"sparse", make_sparse},
             {"million", make_million}, {"stacks", make_stacks}, {"away", make_away}};
  if (argc == 3) {
    folder = argv[2];
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
      if (strcmp(argv[1], all[i].name) != 0) continue;
      all[i].make();
      fflush(stdout);
      _Exit(0);
    }
  }
  fprintf(stderr, "usage: inputs hta|azure|sparse|million|stacks|away FOLDER\n");
  return 2;
}
