// watch_test.c: what a pool does by itself for those who look at it: snapshots when something happens, figures in
// shared memory, answers on a socket.
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "pool/live_format.h"
#include "tests/pool/pool_rig.h"
#include "vmm/memory.h"

#define PATIENCE_S 20

typedef struct watch_rig {
  pool_rig rig;
  char folder[512];
} watch_rig;

static void watch_rig_setup(watch_rig *f) {
  (void)snprintf(f->folder, sizeof f->folder, "%s/watch_test-XXXXXX", vtest_temp_dir());
  if (mkdtemp(f->folder) == NULL) VFAIL("no folder");
}

static void watch_rig_teardown(watch_rig *f) {
  pool_rig_teardown(&f->rig);
  DIR *folder = opendir(f->folder);
  for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
    (void)unlinkat(dirfd(folder), entry->d_name, 0);
  }
  if (folder != NULL) (void)closedir(folder);
  (void)rmdir(f->folder);
}

static void open_pool(watch_rig *f, uint64_t device_bytes, const char *more) {
  char conf[1200];
  (void)snprintf(conf, sizeof conf, "snapshot_dir:%s,name:a b%s%s", f->folder, more[0] == '\0' ? "" : ",", more);
  rig_open(&f->rig, device_bytes, conf);
}

static size_t count_files(const watch_rig *f) {
  size_t count = 0;
  DIR *folder = opendir(f->folder);
  for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) count += entry->d_name[0] != '.';
  if (folder != NULL) (void)closedir(folder);
  return count;
}

static void path_of(const watch_rig *f, pid_t process, const char *end, char path[700]) {
  (void)snprintf(path, 700, "%s/vmpool-%ld-a_b-%s", f->folder, (long)process, end);
}

static json_t *load(const char *path) {
  json_error_t error;
  json_t *root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
  if (root == NULL) VADD_FAILURE("%s: %s", path, error.text);
  return root;
}

static const char *text_of(const json_t *root, const char *object, const char *key) {
  const char *text = json_string_value(json_object_get(json_object_get(root, object), key));
  return text == NULL ? "(none)" : text;
}

// out_of_patience: other threads and processes get this long. Never a sleep: it gives the processor away.
static bool out_of_patience(time_t start) {
  (void)sched_yield();
  return time(NULL) - start > PATIENCE_S;
}

static void wait_for_file(const char *path) {
  time_t start = time(NULL);
  while (access(path, F_OK) != 0) {
    if (out_of_patience(start)) VFAIL("%s doesn't come", path);
  }
}

static const vmp_live_header *map_live(pid_t process, int *out_mode) {
  char name[100];
  struct stat info;
  (void)snprintf(name, sizeof name, "/vmpool-%ld-a_b", (long)process);
  int fd = shm_open(name, O_RDONLY, 0);
  if (fd < 0 || fstat(fd, &info) != 0 || info.st_size == 0) {
    if (fd >= 0) (void)close(fd);
    return NULL;
  }
  void *memory = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
  (void)close(fd);
  *out_mode = (int)(info.st_mode & 0777);
  return memory == MAP_FAILED ? NULL : memory;
}

// ---- snapshots ----

VTEST_F(Watch, ASnapshotWhenMemoryRunsOut, watch_rig) {
  open_pool(f, 16 * GRANULE, "snapshot_on:oom");
  VASSERT_NO_FAILURE();
  void *none = NULL;
  VEXPECT_STATUS(vmp_alloc(f->rig.pool, NULL, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_UINT_EQ(count_files(f), 0);
  void *most = rig_alloc(&f->rig, 12 * GRANULE, NULL);
  for (int i = 0; i < 6; i++) {
    VEXPECT_STATUS(vmp_alloc(f->rig.pool, &none, (uint64_t)(6 + i) * GRANULE, NULL), VMP_ERROR_OUT_OF_MEMORY);
    VEXPECT_STR_CONTAINS(vmp_last_error()->message, "can't be had");  // the caller's own error stays
  }
  VEXPECT_UINT_EQ(count_files(f), 4);
  char path[700];
  path_of(f, getpid(), "oom-2.json", path);
  json_t *root = load(path);
  VEXPECT_STR_EQ(text_of(root, "pool", "trigger"), "oom");
  VEXPECT_STR_CONTAINS(text_of(root, "failure", "message"), "14680064 bytes (14MiB) can't be had");
  json_decref(root);
  rig_free(&f->rig, most, NULL);
}

// A request that nothing could ever serve is refused at once, and explained all the same.
VTEST_F(Watch, ASnapshotOfARefusal, watch_rig) {
  open_pool(f, 16 * GRANULE, "snapshot_on:oom,hard_limit:12granules");
  VASSERT_NO_FAILURE();
  void *most = rig_alloc(&f->rig, 9 * GRANULE, NULL), *none = NULL;
  VEXPECT_STATUS(vmp_alloc(f->rig.pool, &none, GIB, NULL), VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_STATUS(vmp_alloc(f->rig.pool, &none, 13 * GRANULE, NULL), VMP_ERROR_LIMIT);
  char path[700];
  path_of(f, getpid(), "oom.json", path);
  json_t *root = load(path);
  VEXPECT_STR_CONTAINS(text_of(root, "failure", "message"), "can never be had");
  json_decref(root);
  path_of(f, getpid(), "oom-2.json", path);
  root = load(path);
  VEXPECT_STR_EQ(text_of(root, "failure", "status"), "VMP_ERROR_LIMIT");
  uint64_t largest = (uint64_t)json_integer_value(json_object_get(json_object_get(root, "failure"), "largest"));
  VEXPECT_UINT_EQ(largest, 3 * GRANULE);
  json_decref(root);
  rig_free(&f->rig, most, NULL);
}

VTEST_F(Watch, ASnapshotWhenThePoolEnds, watch_rig) {
  open_pool(f, GIB, "snapshot_on:exit");
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(&f->rig, 5 * MIB, NULL);
  VEXPECT_STATUS(vmp_pool_destroy(f->rig.pool), VMP_ERROR_BUSY);
  VEXPECT_UINT_EQ(count_files(f), 0);
  rig_free(&f->rig, a, NULL);
  VASSERT_OK(vmp_pool_destroy(f->rig.pool));
  f->rig.pool = NULL;
  char path[700];
  path_of(f, getpid(), "exit.json", path);
  json_t *root = load(path);
  VEXPECT_STR_EQ(text_of(root, "pool", "trigger"), "exit");
  json_decref(root);
}

// in_child makes a pool in a new process, which allocates a block and ends as `how` says.
static pid_t in_child(const watch_rig *f, const char *more, void (*how)(vmp_pool *pool)) {
  pid_t child = fork();
  if (child != 0) return child;
  char conf[1200];
  vmp_pool *pool;
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  void *block;
  (void)snprintf(conf, sizeof conf, "driver:host,host_device:1GiB,snapshot_dir:%s,name:a b,%s", f->folder, more);
  options.conf = conf;
  if (vmp_pool_create(&pool, &options) != VMP_OK || vmp_alloc(pool, &block, 5000, NULL) != VMP_OK) _exit(9);
  how(pool);
  _exit(8);
}

static void just_exit(vmp_pool *pool) {
  (void)pool;
  exit(0);
}

VTEST_F(Watch, ASnapshotWhenTheProcessExitsWithThePool, watch_rig) {
  int status;
  pid_t child = in_child(f, "snapshot_on:exit|oom", just_exit);
  VASSERT_INT_EQ(waitpid(child, &status, 0), child);
  VASSERT_TRUE(WIFEXITED(status));
  VEXPECT_INT_EQ(WEXITSTATUS(status), 0);
  char path[700];
  path_of(f, child, "exit.json", path);
  json_t *root = load(path);
  VEXPECT_UINT_EQ((uint64_t)json_integer_value(json_object_get(json_object_get(root, "stats"), "blocks")), 1);
  json_decref(root);
}

static volatile sig_atomic_t handled;
static void count_signal(int number) {
  (void)number;
  handled++;
}

VTEST_F(Watch, ASnapshotOnASignalAndTheOldHandlerStays, watch_rig) {
  struct sigaction mine, now;
  memset(&mine, 0, sizeof mine);
  mine.sa_handler = count_signal;
  VASSERT_INT_EQ(sigaction(SIGUSR2, &mine, NULL), 0);
  handled = 0;
  open_pool(f, GIB, "snapshot_on:signal=USR2");
  VASSERT_NO_FAILURE();
  vmp_pool *second;
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  char conf[700], path[700];
  (void)snprintf(conf, sizeof conf, "snapshot_on:signal=USR2,name:other,snapshot_dir:%s", f->folder);
  options.driver = f->rig.driver;
  options.conf = conf;
  VASSERT_OK(vmp_pool_create(&second, &options));
  VASSERT_INT_EQ(raise(SIGUSR2), 0);
  VEXPECT_INT_EQ(handled, 1);
  path_of(f, getpid(), "signal.json", path);
  wait_for_file(path);
  json_t *root = load(path);
  VEXPECT_STR_EQ(text_of(root, "pool", "trigger"), "signal");
  json_decref(root);
  (void)snprintf(path, sizeof path, "%s/vmpool-%ld-other-signal.json", f->folder, (long)getpid());
  wait_for_file(path);
  VASSERT_OK(vmp_pool_destroy(second));
  VASSERT_INT_EQ(raise(SIGUSR2), 0);
  VEXPECT_INT_EQ(handled, 2);
  path_of(f, getpid(), "signal-2.json", path);
  wait_for_file(path);
  rig_destroy(&f->rig);
  VASSERT_INT_EQ(sigaction(SIGUSR2, NULL, &now), 0);
  VEXPECT_TRUE(now.sa_handler == count_signal);
  VEXPECT_INT_EQ(signal(SIGUSR2, SIG_DFL) == SIG_ERR, 0);
}

typedef struct bad_value {
  const char *name, *value;
} bad_value;
static const char *bad_name(const bad_value *b) { return b->name; }
static const bad_value bad_values[] = {{"word", "now"},
                                       {"kill", "signal=KILL"},
                                       {"no_signal", "signal="},
                                       {"last_bar", "oom|"},
                                       {"empty_word", "oom||exit"}};

VTEST_FP(Watch, BadTriggersAreNamed, watch_rig, bad_value, bad_values, bad_name) {
  char conf[200];
  (void)snprintf(conf, sizeof conf, "snapshot_on:%s", p->value);
  rig_open_driver(&f->rig, GIB);
  vmp_status status = rig_create(&f->rig, conf);
  if (strcmp(p->value, "oom|") == 0) {
    VEXPECT_OK(status);  // nothing follows the last bar: nothing is asked for
    return;
  }
  VEXPECT_STATUS(status, VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "signal=USR2");
}

// Host memory runs out at each place of creating a pool that does everything: nothing is left behind.
VTEST_F(Watch, HostMemoryRunsOut, watch_rig) {
  char conf[1600];
  (void)snprintf(conf, sizeof conf,
                 "name:a b,control:1,snapshot_on:oom|exit|signal=USR2,snapshot_dir:%s,log:%s/x.vmplog", f->folder,
                 f->folder);
  rig_open_driver(&f->rig, GIB);
  VASSERT_NO_FAILURE();
  for (uint64_t n = 0;; n++) {
    vmp_mem_fail_after(n, 1);
    vmp_status status = rig_create(&f->rig, conf);
    uint64_t failures = vmp_mem_failures();
    vmp_mem_fail_after(0, 0);
    if (status == VMP_OK) {
      VASSERT_OK(vmp_pool_destroy(f->rig.pool));
      f->rig.pool = NULL;
    } else {
      VASSERT_STATUS(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
    }
    if (failures == 0) break;
  }
  int mode;
  VEXPECT_TRUE(map_live(getpid(), &mode) == NULL);
  struct sigaction now;
  VASSERT_INT_EQ(sigaction(SIGUSR2, NULL, &now), 0);
  VEXPECT_TRUE(now.sa_handler == SIG_DFL);
}

// ---- live ----

static void unmap_live(const vmp_live_header *header) {
  (void)munmap((void *)(uintptr_t)header, VMP_LIVE_HEADER_BYTES + 2 * sizeof(vmp_live_copy));
}

// copy_live waits for a copy that is newer than `after`, and takes it. False: it doesn't come.
static bool copy_live(const vmp_live_header *header, uint64_t after, vmp_live_copy *out) {
  time_t start = time(NULL);
  const vmp_live_copy *copies = (const vmp_live_copy *)((const unsigned char *)header + VMP_LIVE_HEADER_BYTES);
  while (!out_of_patience(start)) {
    uint64_t n = __atomic_load_n(&header->sequence, __ATOMIC_ACQUIRE);
    if (n <= after) continue;
    const uint64_t *from = (const uint64_t *)(const void *)&copies[n % 2];
    for (size_t i = 0; i < sizeof *out / 8; i++) {
      ((uint64_t *)(void *)out)[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
    }
    if (out->begin == n && out->end == n && __atomic_load_n(&copies[n % 2].begin, __ATOMIC_RELAXED) == n) return true;
  }
  return false;
}

VTEST_F(Watch, FiguresInSharedMemory, watch_rig) {
  open_pool(f, GIB, "live:1");
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(&f->rig, 70 * MIB, NULL), *b = rig_alloc(&f->rig, 5 * MIB, NULL);
  int mode = 0;
  const vmp_live_header *header = map_live(getpid(), &mode);
  VASSERT_TRUE(header != NULL);
  VEXPECT_INT_EQ(mode, 0600);
  VEXPECT_INT_EQ(memcmp(header->magic, VMP_LIVE_MAGIC, 8), 0);
  VEXPECT_STR_EQ(header->pool_name, "a b");
  VEXPECT_STR_EQ(header->driver, "host");
  VEXPECT_STR_EQ(header->control, "");
  VEXPECT_UINT_EQ((uint64_t)header->process, (uint64_t)getpid());
  static vmp_live_copy copy;
  uint64_t seen = __atomic_load_n(&header->sequence, __ATOMIC_ACQUIRE);
  VASSERT_TRUE(copy_live(header, seen + 1, &copy));  // one that began after the allocations
  vmp_pool_stats_data stats = rig_stats(&f->rig);
  VEXPECT_UINT_EQ(copy.stats.live, stats.live);
  VEXPECT_UINT_EQ(copy.stats.mapped, stats.mapped);
  VEXPECT_UINT_EQ(copy.stats.reserved_va, stats.reserved_va);
  uint64_t mapped = 0;
  for (uint32_t i = 0; i < copy.num_runs; i++) mapped += copy.runs[i].bytes;
  VEXPECT_UINT_EQ(mapped, stats.mapped);
  VEXPECT_UINT_EQ(copy.num_ranges, 1);
  rig_free(&f->rig, a, NULL);
  rig_free(&f->rig, b, NULL);
  rig_destroy(&f->rig);
  unmap_live(header);
  VEXPECT_TRUE(map_live(getpid(), &mode) == NULL);  // nothing is left behind
}

static void hang(vmp_pool *pool) {
  (void)pool;
  (void)raise(SIGSTOP);
}

// A process that hangs can be looked at; one that was killed leaves its last figures.
VTEST_F(Watch, FiguresOfAProcessThatHangs, watch_rig) {
  int status, mode;
  pid_t child = in_child(f, "live:1", hang);
  VASSERT_INT_EQ(waitpid(child, &status, WUNTRACED), child);
  VASSERT_TRUE(WIFSTOPPED(status));
  const vmp_live_header *header = map_live(child, &mode);
  VASSERT_TRUE(header != NULL);
  static vmp_live_copy copy;
  if (__atomic_load_n(&header->sequence, __ATOMIC_ACQUIRE) > 0) VEXPECT_TRUE(copy_live(header, 0, &copy));
  VASSERT_INT_EQ(kill(child, SIGKILL), 0);
  VASSERT_INT_EQ(waitpid(child, &status, 0), child);
  unmap_live(header);
  char name[100];
  (void)snprintf(name, sizeof name, "/vmpool-%ld-a_b", (long)child);
  VEXPECT_INT_EQ(shm_unlink(name), 0);
}

// ---- control ----

static int ask_socket(const char *name) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = strlen(name);
  memcpy(address.sun_path + 1, name, length);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
  if (fd < 0 || connect(fd, (const struct sockaddr *)&address, size) == 0) return fd;
  (void)close(fd);
  return -1;
}

// ask returns the whole answer; the caller frees it. NULL: nobody answers.
static char *ask(const char *name, const char *request) {
  int fd = ask_socket(name);
  if (fd < 0 || send(fd, request, strlen(request), MSG_NOSIGNAL) < 0) return NULL;
  (void)shutdown(fd, SHUT_WR);
  size_t used = 0, capacity = 1 << 20;
  char *text = calloc(capacity, 1);
  for (ssize_t got; text != NULL && (got = recv(fd, text + used, capacity - 1 - used, 0)) > 0;) used += (size_t)got;
  (void)close(fd);
  return text;
}

static void expect_answer(const char *name, const char *request, const char *wanted) {
  char *answer = ask(name, request);
  VASSERT_TRUE(answer != NULL);
  if (strncmp(answer, wanted, strlen(wanted)) != 0) VADD_FAILURE("\"%s\" is answered \"%s\"", request, answer);
  free(answer);
}

static void control_name(char name[108]) { (void)snprintf(name, 108, "vmpool-%ld-a_b", (long)getpid()); }

VTEST_F(Watch, ASocketToAsk, watch_rig) {
  char name[108];
  open_pool(f, GIB, "control:1,chunk_max:1granule,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  control_name(name);
  rig_free(&f->rig, rig_alloc(&f->rig, 20 * GRANULE, NULL), NULL);
  rig_settle(&f->rig);
  char *answer = ask(name, "snapshot\n");
  VASSERT_TRUE(answer != NULL);
  char *body = strchr(answer, '\n');
  VASSERT_TRUE(body != NULL);
  VEXPECT_UINT_EQ(strtoull(answer + 3, NULL, 10), strlen(body + 1));
  json_t *root = json_loads(body + 1, JSON_REJECT_DUPLICATES, NULL);
  VASSERT_TRUE(root != NULL);
  VEXPECT_STR_EQ(text_of(root, "pool", "trigger"), "socket");
  json_decref(root);
  free(answer);
  expect_answer(name, "defragment 0\n", "ok moved ");
  expect_answer(name, "trim 8MiB\n", "ok released 33554432\n");
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped, 8 * MIB);
  expect_answer(name, "limit hard 64MiB\n", "ok\n");
  expect_answer(name, "limit soft none\n", "ok\n");
  VEXPECT_UINT_EQ(rig_stats(&f->rig).hard_limit, 64 * MIB);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).soft_limit, UINT64_MAX);
  expect_answer(name, "limit firm 1\n", "error a limit is hard or soft");
  expect_answer(name, "trim\n", "error a request is");
  expect_answer(name, "trim -1\n", "error the size is \"-1\"");
  expect_answer(name, "trim 3granules\n", "error the size is");
  expect_answer(name, "\n", "error a request is");
  expect_answer(name, "no line end", "error a request is one line");
  char long_line[300];
  memset(long_line, 'x', sizeof long_line);
  long_line[299] = '\0';
  expect_answer(name, long_line, "error a request is one line");
}

VTEST_F(Watch, AnotherUserIsRefused, watch_rig) {
  if (geteuid() != 0) VSKIP("only root can be another user");
  char name[108];
  open_pool(f, GIB, "control:1,chunk_max:1granule,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  control_name(name);
  rig_free(&f->rig, rig_alloc(&f->rig, 20 * GRANULE, NULL), NULL);
  rig_settle(&f->rig);
  pid_t child = fork();
  VASSERT_INT_GE(child, 0);
  if (child == 0) {
    if (setuid(65534) != 0) _exit(2);
    // The connection may be gone before the request is out.
    const char *answer = ask(name, "trim 0\n");
    bool refused = answer == NULL || answer[0] == '\0' || strncmp(answer, "error only the user", 19) == 0;
    _exit(refused ? 0 : 1);
  }
  int status;
  VASSERT_INT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2) VSKIP("this root can't become another user");
  VEXPECT_INT_EQ(status, 0);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped, 20 * GRANULE);
  expect_answer(name, "trim 0\n", "ok");
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped, 0);
}
