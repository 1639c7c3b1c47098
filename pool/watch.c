// watch.c: see watch.h.
#include "pool/watch.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "pool/control.h"
#include "pool/file_name.h"
#include "pool/live.h"
#include "pool/process_hooks.h"
#include "pool/snapshot.h"
#include "vmm/memory.h"

#define MAX_OOM_FILES 4u
#define REFRESH_MS 100
#define ASK_DEVICE_EVERY 10u  // refreshes

typedef struct triggers {
  bool oom, exit;
  int signal;  // 0: none
} triggers;

typedef struct vmp_watch {
  vmp_pool *pool;
  triggers on;
  const char *folder;
  _Atomic uint32_t oom_files;
  vmp_hook *hook;
  vmp_live *live;
  int stop_fd, signal_fd, control_fd;  // -1: none
  bool running;
  pthread_t thread;
} vmp_watch;

// ---- options ----

static bool is_word(const char *text, size_t length, const char *word) {
  return strlen(word) == length && memcmp(text, word, length) == 0;
}

// signal_of returns the number of "USR2" and the like; 0: unknown.
static int signal_of(const char *text, size_t length) {
  static const struct {
    const char *name;
    int number;
  } known[] = {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"HUP", SIGHUP}, {"QUIT", SIGQUIT}, {"WINCH", SIGWINCH}};
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
    if (is_word(text, length, known[i].name)) return known[i].number;
  }
  return 0;
}

// parse_triggers reads "oom|exit|signal=USR2".
static vmp_status parse_triggers(const char *text, triggers *out) {
  triggers on = {0};
  for (const char *at = text; at != NULL && *at != '\0';) {
    const char *bar = strchr(at, '|');
    size_t length = bar == NULL ? strlen(at) : (size_t)(bar - at);
    if (is_word(at, length, "oom")) {
      on.oom = true;
    } else if (is_word(at, length, "exit")) {
      on.exit = true;
    } else if (length > 7 && memcmp(at, "signal=", 7) == 0 && signal_of(at + 7, length - 7) != 0) {
      on.signal = signal_of(at + 7, length - 7);
    } else {
      return vmp_fail(
          VMP_ERROR_CONFIG,
          "the value of snapshot_on is \"%.100s\": write oom, exit or signal=USR2 (USR1, HUP, QUIT, WINCH), "
          "with | between them",
          text);
    }
    at = bar == NULL ? NULL : bar + 1;
  }
  *out = on;
  return VMP_OK;
}

vmp_status vmp_watch_check(const vmp_config *config) {
  triggers on;
  return parse_triggers(config->snapshot_on, &on);
}

// ---- snapshots ----

// write_snapshot writes DIR/vmpool-PID-POOL-END. What goes wrong is nobody's failure: the program goes on.
static void write_snapshot(vmp_watch *w, const char *end, const char *trigger) {
  char path[VMP_FILE_NAME_BYTES];
  vmp_error before = *vmp_last_error();
  if (vmp_file_name_in(w->pool, w->folder, end, path) == VMP_OK) (void)vmp_snapshot_write(w->pool, path, trigger);
  vmp_restore_error(&before);
}

static bool is_shortage(vmp_status status) {
  return status == VMP_ERROR_OUT_OF_MEMORY || status == VMP_ERROR_LIMIT || status == VMP_ERROR_FRAGMENTED ||
         status == VMP_ERROR_OUT_OF_ADDRESS_SPACE;
}

void vmp_watch_write_failed(vmp_pool *pool, vmp_status status) {
  vmp_watch *w = pool->watch;
  if (!w->on.oom || !is_shortage(status) || atomic_load(&w->oom_files) >= MAX_OOM_FILES) return;
  if (atomic_fetch_add(&w->oom_files, 1) < MAX_OOM_FILES) write_snapshot(w, "oom.json", "oom");
}

void vmp_watch_end(vmp_pool *pool) {
  vmp_watch *w = pool->watch;
  if (w == NULL || !w->on.exit) return;
  w->on.exit = false;  // once
  write_snapshot(w, "exit.json", "exit");
}

static void at_exit(void *self) {
  vmp_watch *w = self;
  if (!vmp_guard_forked(&w->pool->guard)) vmp_watch_end(w->pool);
}

// ---- the thread ----

static void *run(void *context) {
  vmp_watch *w = context;
  for (uint32_t round = 0;; round++) {
    struct pollfd fds[] = {{w->stop_fd, POLLIN, 0}, {w->signal_fd, POLLIN, 0}, {w->control_fd, POLLIN, 0}};
    if (w->live != NULL) vmp_live_refresh(w->live, w->pool, round % ASK_DEVICE_EVERY == 0);
    if (poll(fds, 3, w->live == NULL ? -1 : REFRESH_MS) < 0 && errno != EINTR) return NULL;
    if ((fds[0].revents & POLLIN) != 0) return NULL;
    uint64_t count;
    if ((fds[1].revents & POLLIN) != 0 && read(w->signal_fd, &count, sizeof count) > 0) {
      write_snapshot(w, "signal.json", "signal");
    }
    if ((fds[2].revents & POLLIN) != 0) vmp_control_serve(w->control_fd, w->pool);
  }
}

static vmp_status start_thread(vmp_watch *w) {
  sigset_t all, old;
  w->stop_fd = eventfd(0, EFD_CLOEXEC);
  if (w->stop_fd < 0) return vmp_fail(VMP_ERROR_IO, "an event descriptor can't be made: %s", strerror(errno));
  // The program's signals are not for this thread.
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &old);
  int code = pthread_create(&w->thread, NULL, run, w);
  (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
  w->running = code == 0;
  if (code == 0) return VMP_OK;
  return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "the thread that watches the pool can't be made: %s", strerror(code));
}

static vmp_status open_parts(vmp_watch *w) {
  const vmp_config *config = &w->pool->config;
  char control[VMP_CONTROL_NAME_BYTES] = "";
  vmp_status status = VMP_OK;
  if (config->control) status = vmp_control_open(w->pool, control, &w->control_fd);
  if (status == VMP_OK && (config->live || config->control)) status = vmp_live_open(&w->live, w->pool, control);
  if (status == VMP_OK && (w->on.signal != 0 || w->on.exit)) {
    status = vmp_hook_take(&w->hook, w->on.signal, w->on.exit ? at_exit : NULL, w, &w->signal_fd);
  }
  bool needs_thread = w->live != NULL || w->on.signal != 0;
  return status == VMP_OK && needs_thread ? start_thread(w) : status;
}

vmp_status vmp_watch_open(vmp_pool *pool) {
  const vmp_config *config = &pool->config;
  triggers on;
  vmp_status status = parse_triggers(config->snapshot_on, &on);
  if (status != VMP_OK) return status;
  if (!on.oom && !on.exit && on.signal == 0 && !config->live && !config->control) return VMP_OK;
  vmp_watch *w = vmp_mem_calloc(1, sizeof *w);
  if (w == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to watch the pool");
  w->pool = pool;
  w->on = on;
  w->folder = config->snapshot_dir == NULL ? "" : config->snapshot_dir;
  w->stop_fd = w->signal_fd = w->control_fd = -1;
  pool->watch = w;
  return open_parts(w);
}

void vmp_watch_close(vmp_pool *pool) {
  vmp_watch *w = pool->watch;
  if (w == NULL) return;
  bool forked = vmp_guard_forked(&pool->guard);
  pool->watch = NULL;
  if (!forked) vmp_hook_give(w->hook);
  if (w->running && !forked) {
    uint64_t one = 1;
    ssize_t written = write(w->stop_fd, &one, sizeof one);
    (void)written;
    (void)pthread_join(w->thread, NULL);
  }
  vmp_live_close(w->live, forked);
  if (w->control_fd >= 0) (void)close(w->control_fd);
  if (w->stop_fd >= 0) (void)close(w->stop_fd);
  vmp_mem_free(w);
}
