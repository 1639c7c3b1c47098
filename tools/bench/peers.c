#include "tools/bench/peers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
  const char *name, *library, *alloc, *free;
} known[BENCH_MAX_PEERS] = {
    {"mimalloc", "libmimalloc.so.2", "mi_malloc", "mi_free"},
    {"jemalloc", "libjemalloc.so.2", "malloc", "free"},
    {"tcmalloc", "libtcmalloc_minimal.so.4", "tc_malloc", "tc_free"},
};

#define TUNABLE "glibc.rtld.optional_static_tls"
#define TUNABLE_VALUE TUNABLE "=16384"

static bool load(size_t i, bench_peer *out, char *why, size_t why_bytes) {
  void *library = dlopen(known[i].library, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    snprintf(why, why_bytes, "%s", dlerror());
    return false;
  }
  *out = (bench_peer){.name = known[i].name, .target = {.kind = TARGET_PEER}};
  // A data pointer becomes a function pointer this way only (POSIX, dlsym).
  *(void **)&out->target.peer_alloc = dlsym(library, known[i].alloc);
  *(void **)&out->target.peer_free = dlsym(library, known[i].free);
  if (out->target.peer_alloc != NULL && out->target.peer_free != NULL) return true;
  snprintf(why, why_bytes, "%s lacks %s or %s", known[i].library, known[i].alloc, known[i].free);
  return false;
}

size_t peers_open(bench_peer out_peers[BENCH_MAX_PEERS], bench_result *result) {
  size_t count = 0;
  for (size_t i = 0; i < BENCH_MAX_PEERS; i++) {
    bench_skipped_peer *skipped = &result->skipped_peers[result->num_skipped_peers];
    if (load(i, &out_peers[count], skipped->why, sizeof(skipped->why))) {
      count++;
    } else {
      skipped->name = known[i].name;
      result->num_skipped_peers++;
    }
  }
  return count;
}

void peers_restart(char *const *argv) {
  const char *tunables = getenv("GLIBC_TUNABLES");
  if (tunables != NULL && strstr(tunables, TUNABLE "=") != NULL) return;
  char *value = NULL;
  const bool some = tunables != NULL && tunables[0] != '\0';
  if (asprintf(&value, "%s%s%s", some ? tunables : "", some ? ":" : "", TUNABLE_VALUE) < 0) return;
  if (setenv("GLIBC_TUNABLES", value, 1) == 0) execv("/proc/self/exe", argv);
  free(value);
}
