// fork_test.c: a forked child can't use the pool, is told so, and leaves quietly. Bug case 74.
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/pool.h"
#include "tests/pool/pool_rig.h"

// In the child nothing may use GoogleTest: it counts mistakes and exits with their number.
static int mistakes_of_child(pool_rig *f, void *block, const char *path) {
  int mistakes = 0;
  void *ptr = NULL;
  size_t faults = 0;
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  vmp_block_info info = VMP_BLOCK_INFO_INIT;
  uint64_t calls = rig_all_calls(f->driver);
  mistakes += vmp_alloc(f->pool, &ptr, 4096, NULL) != VMP_ERROR_FORKED;
  mistakes += strstr(vmp_last_error()->message, "forked child") == NULL;
  mistakes += vmp_alloc_aligned(f->pool, &ptr, 4096, 4096, NULL) != VMP_ERROR_FORKED;
  mistakes += vmp_free(f->pool, block, NULL) != VMP_ERROR_FORKED;
  mistakes += vmp_record_use(f->pool, block, NULL) != VMP_ERROR_FORKED;
  mistakes += vmp_stream_retired(f->pool, f->streams[0]) != VMP_ERROR_FORKED;
  mistakes += vmp_block_query(f->pool, block, &info) != VMP_ERROR_FORKED;
  mistakes += vmp_pool_stats(f->pool, &stats) != VMP_ERROR_FORKED;
  mistakes += vmp_pool_reset_peaks(f->pool) != VMP_ERROR_FORKED;
  mistakes += vmp_pool_trim(f->pool, 0, NULL) != VMP_ERROR_FORKED;
  mistakes += vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, 0) != VMP_ERROR_FORKED;
  mistakes += vmp_pool_check(f->pool, &faults) != VMP_ERROR_FORKED;
  mistakes += vmp_pool_snapshot(f->pool, path) != VMP_ERROR_FORKED;
  mistakes += access(path, F_OK) == 0;
  mistakes += vmp_pool_destroy(f->pool) != VMP_OK;  // live blocks or not: they are the parent's
  mistakes += rig_all_calls(f->driver) != calls;    // and all that without a driver call
  vmp_pool *own = NULL;
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.driver = f->driver;
  mistakes += vmp_pool_create(&own, &options) != VMP_ERROR_FORKED;
  return mistakes;
}

static int exit_status(pid_t child) {
  int status = 0;
  if (waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

VTEST_F(Fork, Case74TheChildIsTold, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(f, 70 * MIB, f->streams[0]), *small = rig_alloc(f, 700, f->streams[1]);
  rig_touch(f, block, 70 * MIB, f->streams[0]);
  char path[512];
  (void)snprintf(path, sizeof path, "%s/fork_test.%ld.json", vtest_temp_dir(), (long)getpid());
  vmp_pool_stats_data before = rig_stats(f);
  pid_t child = fork();
  VASSERT_INT_GE(child, 0);
  if (child == 0) _exit(mistakes_of_child(f, block, path));
  VEXPECT_INT_EQ(exit_status(child), 0);
  // The parent's pool is as it was, and goes on.
  vmp_pool_stats_data after = rig_stats(f);
  rig_expect_same_state(&before, &after);
  rig_free(f, block, f->streams[0]);
  rig_free(f, small, f->streams[1]);
  rig_settle(f);
}

// Another thread holds the lock at the fork: the child neither hangs nor touches what is torn.
VTEST_F(Fork, Case74TheLockIsHeldAtTheFork, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(f, 5000, NULL);
  vmp_guard_lock(&f->pool->guard);
  pid_t child = fork();
  if (child == 0) _exit(mistakes_of_child(f, block, "/no/such/folder/file"));
  vmp_guard_unlock(&f->pool->guard);
  VASSERT_INT_GE(child, 0);
  VEXPECT_INT_EQ(exit_status(child), 0);
  rig_free(f, block, NULL);
}

// A child that leaves by exit() says nothing and fails nothing; a child of the child is a child, too.
VTEST_F(Fork, Case74Grandchildren, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  pid_t child = fork();
  if (child == 0) {
    pid_t grandchild = fork();
    void *ptr = NULL;
    int mistakes = vmp_alloc(f->pool, &ptr, 1, NULL) != VMP_ERROR_FORKED;
    if (grandchild == 0) _exit(mistakes);
    _exit(mistakes + exit_status(grandchild));
  }
  VASSERT_INT_GE(child, 0);
  VEXPECT_INT_EQ(exit_status(child), 0);
  rig_free(f, rig_alloc(f, 1, NULL), NULL);
}

// Where the kernel can't wipe a page at a fork, the process id serves.
VTEST_F(Fork, WithoutTheWipedPage, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  _Atomic uint32_t *mark = f->pool->guard.mark;
  f->pool->guard.mark = NULL;
  rig_free(f, rig_alloc(f, 1, NULL), NULL);
  pid_t child = fork();
  if (child == 0) {
    void *ptr = NULL;
    _exit(vmp_alloc(f->pool, &ptr, 1, NULL) != VMP_ERROR_FORKED);
  }
  VASSERT_INT_GE(child, 0);
  VEXPECT_INT_EQ(exit_status(child), 0);
  f->pool->guard.mark = mark;
}
