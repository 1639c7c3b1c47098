// Pools of running processes: ps, map and stats of a live pool, and top on a pseudo-terminal.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/vmpool.h"
#include "tests/support/process.h"
#include "tests/support/vtest.h"
#include "tools/vmpool/top_screen.h"

#define TOOL "tools/vmpool/vmpool"
#define PATIENCE_MS 20000
#define SCREEN_BYTES 65536u

typedef struct rig {
  vmp_pool *pool;
  void *block;
  char process[32];
  int master;
  pid_t child;
  char seen[SCREEN_BYTES];  // what top has written since the last expectation
  size_t seen_bytes;
} rig;

static void rig_setup(rig *f) {
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  f->master = -1;
  options.conf = "driver:host,host_device:1GiB,name:live test,control:1,chunk_max:1granule,no_map_ahead:1";
  VASSERT_OK(vmp_pool_create(&f->pool, &options));
  VASSERT_OK(vmp_alloc(f->pool, &f->block, 100 << 20, NULL));
  snprintf(f->process, sizeof(f->process), "%ld", (long)getpid());
  setenv("COLUMNS", "80", 1);
  setenv("LC_ALL", "C.UTF-8", 1);
  unsetenv("VMP_CONF");
}

static void rig_teardown(rig *f) {
  if (f->master >= 0) close(f->master);
  if (f->pool == NULL) return;
  if (f->block != NULL) VEXPECT_OK(vmp_free(f->pool, f->block, NULL));
  VEXPECT_OK(vmp_pool_destroy(f->pool));
}

static vtest_process run(const char *const *argv) {
  vtest_process p = {0};
  if (vtest_process_run(&p, argv, NULL) != 0) VADD_FAILURE("%s could not be started", argv[0]);
  return p;
}

VTEST_F(Live, PsListsThePool, rig) {
  const char *const argv[] = {TOOL, "ps", NULL};
  for (int tries = 0; tries < 1000; tries++) {  // until the pool has shown itself once
    vtest_process p = run(argv);
    VEXPECT_INT_EQ(p.status, 0);
    const char *row = strstr(p.out, f->process);
    VASSERT_TRUE(row != NULL);
    const bool shown = strstr(row, "100 MiB") != NULL;
    if (shown) {
      VEXPECT_STR_CONTAINS(row, "control live test");
      VEXPECT_STR_CONTAINS(row, "host     0    100 MiB    100 MiB     16 GiB");
    }
    vtest_process_free(&p);
    if (shown) return;
  }
  VFAIL("the pool shows nothing");
}

VTEST_F(Live, WhatReadsASnapshotAsksALivePoolForOne, rig) {
  const char *const map[] = {TOOL, "map", f->process, NULL};
  vtest_process p = run(map);
  VEXPECT_INT_EQ(p.status, 0);
  VEXPECT_STR_CONTAINS(p.out, "pool \"live test\" on host device 0");
  VEXPECT_STR_CONTAINS(p.out, "written on socket");
  VEXPECT_STR_CONTAINS(p.out, "live        100 MiB");
  vtest_process_free(&p);
  const char *const stats[] = {TOOL, "stats", "live test", NULL};
  p = run(stats);
  VEXPECT_INT_EQ(p.status, 0);
  VEXPECT_STR_CONTAINS(p.out, "control:1  (conf)");
  vtest_process_free(&p);
  // A place may be written as the map prints it.
  const char *const zoom[] = {TOOL, "map", "--range", "+0.5MiB..+1.25 GiB", "live test", NULL};
  p = run(zoom);
  VEXPECT_INT_EQ(p.status, 0);
  VEXPECT_STR_CONTAINS(p.out, "80000: 1.25 GiB reserved, ");
  vtest_process_free(&p);
  const char *const bad_zoom[] = {TOOL, "map", "--range", "+0.5.5MiB..+1GiB", "live test", NULL};
  p = run(bad_zoom);
  VEXPECT_INT_EQ(p.status, 2);
  VEXPECT_STR_CONTAINS(p.err, "--range: '+0.5.5MiB..+1GiB' is not like");
  vtest_process_free(&p);
  const char *const none[] = {TOOL, "map", "999999999", NULL};
  p = run(none);
  VEXPECT_INT_EQ(p.status, 2);
  VEXPECT_STR_CONTAINS(p.err, "999999999 is no file, and no live pool");
  vtest_process_free(&p);
}

// A process that is stopped answers nothing, and can be looked at all the same. So can a pool without a socket.
VTEST_F(Live, APoolThatDoesNotAnswer, rig) {
  int status;
  const pid_t child = fork();
  VASSERT_INT_GE(child, 0);
  if (child == 0) {
    vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
    vmp_pool *pool;
    void *block;
    options.conf = "driver:host,host_device:1GiB,name:stopped,live:1,chunk_max:1granule,no_map_ahead:1";
    if (vmp_pool_create(&pool, &options) != VMP_OK || vmp_alloc(pool, &block, 30 << 20, NULL) != VMP_OK) _exit(9);
    for (;;) (void)pause();
  }
  char process[32];
  snprintf(process, sizeof(process), "%ld", (long)child);
  const char *const map[] = {TOOL, "map", process, NULL};
  bool shown = false;
  for (int tries = 0; tries < 1000 && !shown; tries++) {
    vtest_process p = run(map);
    shown = p.status == 0 && strstr(p.out, "live         30 MiB") != NULL;
    vtest_process_free(&p);
  }
  VEXPECT_TRUE(shown);
  VASSERT_INT_EQ(kill(child, SIGSTOP), 0);
  VASSERT_INT_EQ(waitpid(child, &status, WUNTRACED), child);
  vtest_process p = run(map);
  VEXPECT_INT_EQ(p.status, 0);
  VEXPECT_STR_CONTAINS(p.out, "pool \"stopped\" on host device 0");
  VEXPECT_STR_CONTAINS(p.out, "written on shared memory");
  VEXPECT_STR_CONTAINS(p.out, "16 GiB reserved, 30 MiB backed");
  vtest_process_free(&p);
  const char *const stats[] = {TOOL, "stats", process, NULL};
  p = run(stats);
  VEXPECT_INT_EQ(p.status, 0);
  VEXPECT_STR_CONTAINS(p.out, "  mapped                   30 MiB  physical memory in mapped chunks");
  VEXPECT_STR_CONTAINS(p.out, "  device_total              1 GiB  of the device");
  VEXPECT_STR_CONTAINS(p.out, "  mid        30 MiB live  100.0 %");
  vtest_process_free(&p);
  VASSERT_INT_EQ(kill(child, SIGKILL), 0);
  VASSERT_INT_EQ(waitpid(child, &status, 0), child);
  const char *const clean[] = {TOOL, "ps", "--clean", NULL};
  p = run(clean);
  VEXPECT_INT_EQ(p.status, 0);
  vtest_process_free(&p);
  char name[100];
  snprintf(name, sizeof(name), "/dev/shm/vmpool-%ld-stopped", (long)child);
  VEXPECT_INT_NE(access(name, F_OK), 0);
}

// ---- top ----

// start_top runs top on the terminal behind f->master.
static void start_top(rig *f) {
  VASSERT_INT_EQ(grantpt(f->master), 0);
  VASSERT_INT_EQ(unlockpt(f->master), 0);
  const struct winsize size = {.ws_row = 24, .ws_col = 120};
  VASSERT_INT_EQ(ioctl(f->master, TIOCSWINSZ, &size), 0);
  char name[128];
  snprintf(name, sizeof(name), "%s", ptsname(f->master));
  f->child = fork();
  VASSERT_INT_GE(f->child, 0);
  if (f->child > 0) return;
  setsid();
  const int terminal = open(name, O_RDWR);
  for (int fd = 0; fd < 3; fd++) dup2(terminal, fd);
  setenv("TERM", "vt100", 1);
  unsetenv("COLUMNS");
  execl(TOOL, TOOL, "top", "--delay", "20", (char *)NULL);
  _exit(9);
}

// expect waits until top has written a text. The screen is drawn by differences: a text is looked for in what is new.
static void expect(rig *f, const char *text) {
  for (int waited = 0; waited < PATIENCE_MS;) {
    f->seen[f->seen_bytes] = '\0';
    if (strstr(f->seen, text) != NULL) {
      f->seen_bytes = 0;
      return;
    }
    struct pollfd p = {.fd = f->master, .events = POLLIN};
    const int ready = poll(&p, 1, 100);
    if (ready == 0) waited += 100;
    if (f->seen_bytes > SCREEN_BYTES / 2) f->seen_bytes = 0;
    const ssize_t got = ready > 0 ? read(f->master, f->seen + f->seen_bytes, SCREEN_BYTES - 1 - f->seen_bytes) : 0;
    if (got < 0) break;
    for (ssize_t i = 0; i < got; i++) {
      if (f->seen[f->seen_bytes + (size_t)i] == '\0') f->seen[f->seen_bytes + (size_t)i] = ' ';
    }
    f->seen_bytes += (size_t)got;
  }
  VFAIL("\"%s\" doesn't come; on the screen: %s", text, f->seen);
}

static void press(rig *f, const char *keys) {
  VASSERT_INT_EQ((int)write(f->master, keys, strlen(keys)), (int)strlen(keys));
}

VTEST_F(Live, TopIsDrivenByKeys, rig) {
  f->master = posix_openpt(O_RDWR | O_NOCTTY);
  if (f->master < 0) VSKIP("no pseudo-terminal can be had here");
  start_top(f);
  VASSERT_NO_FAILURE();
  expect(f, "live test");
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_free(f->pool, f->block, NULL));
  f->block = NULL;
  press(f, "t");
  expect(f, "y or n");
  VASSERT_NO_FAILURE();
  press(f, "n");  // nothing happens
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  VASSERT_OK(vmp_pool_stats(f->pool, &stats));
  VEXPECT_UINT_EQ(stats.mapped, 100 << 20);
  press(f, "d");
  expect(f, "defragment");
  press(f, "y");
  expect(f, "moved");
  VASSERT_NO_FAILURE();
  press(f, "t");
  press(f, "y");
  expect(f, "104857600");  // trim: released ...
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_pool_stats(f->pool, &stats));
  VEXPECT_UINT_EQ(stats.mapped, 0);
  press(f, "s");
  expect(f, "live");  // sorted by
  press(f, "q");
  int status = -1;
  for (int waited = 0; waitpid(f->child, &status, WNOHANG) == 0 && waited < PATIENCE_MS; waited += 20) {
    struct pollfd p = {.fd = f->master, .events = POLLIN};
    char rest[4096];
    if (poll(&p, 1, 20) > 0 && read(f->master, rest, sizeof(rest)) < 0) break;
  }
  if (!WIFEXITED(status)) (void)waitpid(f->child, &status, 0);
  VEXPECT_TRUE(WIFEXITED(status));
  VEXPECT_INT_EQ(WEXITSTATUS(status), 0);
}

// ---- the screen without a screen, on objects made by hand ----

typedef struct folder {
  char path[512];
} folder;

static void folder_setup(folder *f) {
  snprintf(f->path, sizeof(f->path), "%s/live-XXXXXX", vtest_temp_dir());
  if (mkdtemp(f->path) == NULL) VFAIL("no folder");
}

static void folder_teardown(folder *f) {
  char command[700];
  snprintf(command, sizeof(command), "rm -r %s", f->path);
  VEXPECT_INT_EQ(system(command), 0);
}

static void make_object(const folder *f, const char *name, int64_t process, uint64_t live, uint64_t mapped) {
  const size_t bytes = VMP_LIVE_HEADER_BYTES + 2 * sizeof(vmp_live_copy);
  unsigned char *memory = calloc(bytes, 1);
  VASSERT_TRUE(memory != NULL);
  vmp_live_header header = {.version = VMP_LIVE_VERSION, .copy_bytes = sizeof(vmp_live_copy), .process = process};
  memcpy(header.magic, VMP_LIVE_MAGIC, sizeof(header.magic));
  snprintf(header.pool_name, sizeof(header.pool_name), "%s\033[2J", name);
  header.sequence = 1;
  memcpy(memory, &header, sizeof(header));
  vmp_live_copy *copy = (vmp_live_copy *)(void *)(memory + VMP_LIVE_HEADER_BYTES + sizeof(vmp_live_copy));
  copy->begin = copy->end = 1;
  copy->stats.live = live;
  copy->stats.mapped = mapped;
  copy->stats.device_total = mapped * 2;
  copy->stats.device_free = mapped;
  copy->num_runs = 2;
  copy->runs[0] = (vmp_live_run){0x1000, mapped / 2, VMP_LIVE_MAPPED};
  copy->runs[1] = (vmp_live_run){UINT64_MAX, mapped - mapped / 2, 77};  // no such state
  char path[700];
  snprintf(path, sizeof(path), "%s/vmpool-%s", f->path, name);
  FILE *file = fopen(path, "wb");
  VASSERT_TRUE(file != NULL);
  VEXPECT_UINT_EQ(fwrite(memory, 1, bytes, file), bytes);
  fclose(file);
  free(memory);
}

static void line_of(const top_screen *s, unsigned i, char line[512]) { (void)top_line(s, i, 24, 120, line); }

VTEST_F(Top, SortsChoosesAndAsks, folder) {
  char line[512];
  tool_error error = {{0}};
  top_screen s = {.folder = f->path};
  make_object(f, "b", 4000001, 10, 4096);
  make_object(f, "a", 4000002, 20, 1024);
  make_object(f, "c", 4000003, 5, 2048);
  VASSERT_NO_FAILURE();
  VASSERT_TRUE(top_look_again(&s, &error));
  VASSERT_UINT_EQ(s.num_rows, 3);
  line_of(&s, 0, line);
  VEXPECT_STR_CONTAINS(line, "3 pools by mapped");
  const char *const orders[] = {"bca", "abc", "bac", "abc"};  // mapped, live, process, name
  for (int order = 0; order < 4; order++) {
    char got[4] = "";
    for (size_t i = 0; i < 3; i++) got[i] = s.rows[i].pool.header.pool_name[0];
    VEXPECT_STR_EQ(got, orders[order]);
    top_press(&s, TOP_SORT);
    VASSERT_TRUE(top_look_again(&s, &error));
  }
  top_press(&s, TOP_DOWN);  // c
  VEXPECT_INT_EQ(top_line(&s, 4, 24, 120, line), TOP_CHOSEN);
  VEXPECT_STR_CONTAINS(line, "c?[2J");
  VEXPECT_STR_CONTAINS(line, "ended");
  line_of(&s, 20, line);
  VEXPECT_STR_CONTAINS(line, "  ......");
  line_of(&s, 22, line);
  VEXPECT_STR_CONTAINS(line, "#");
  top_press(&s, TOP_TRIM);
  line_of(&s, 23, line);
  VEXPECT_STR_CONTAINS(line, "trim \"c?[2J\" of process 4000003? y or n");
  top_press(&s, TOP_YES);
  line_of(&s, 23, line);
  VEXPECT_STR_CONTAINS(line, "has no control socket");
  for (unsigned width = 1; width < 200; width++) {
    for (unsigned lines = 1; lines < 30; lines++) {
      for (unsigned i = 0; i < lines; i++) {
        (void)top_line(&s, i, lines, width, line);
        VASSERT_UINT_LE(strlen(line), width);
      }
    }
  }
  top_close(&s);
}

// What isn't whole, or isn't a file, is left out and harms nobody.
VTEST_F(Top, HostileObjects, folder) {
  char path[700];
  tool_error error = {{0}};
  top_screen s = {.folder = f->path};
  make_object(f, "good", 1, 1, 4096);
  const size_t whole = VMP_LIVE_HEADER_BYTES + 2 * sizeof(vmp_live_copy);
  snprintf(path, sizeof(path), "%s/vmpool-good", f->path);
  char linked[700];
  snprintf(linked, sizeof(linked), "%s/vmpool-linked", f->path);
  VASSERT_INT_EQ(symlink(path, linked), 0);
  for (size_t bytes = 0; bytes < whole; bytes += whole / 200) {
    VASSERT_INT_EQ(truncate(path, (off_t)(whole - 1 - bytes)), 0);
    VASSERT_TRUE(top_look_again(&s, &error));
    VEXPECT_UINT_EQ(s.num_rows, 0);
  }
  make_object(f, "good", 1, 1, 4096);
  FILE *file = fopen(path, "r+b");
  VASSERT_TRUE(file != NULL);
  uint64_t huge = UINT64_MAX;
  VASSERT_INT_EQ(
      fseek(file, (long)(VMP_LIVE_HEADER_BYTES + sizeof(vmp_live_copy) + offsetof(vmp_live_copy, num_ranges)),
            SEEK_SET),
      0);
  VEXPECT_UINT_EQ(fwrite(&huge, 1, sizeof(huge), file), sizeof(huge));
  fclose(file);
  VASSERT_TRUE(top_look_again(&s, &error));
  VASSERT_UINT_EQ(s.num_rows, 1);
  VEXPECT_TRUE(s.rows[0].copy == NULL);  // no whole copy
  top_close(&s);
}
