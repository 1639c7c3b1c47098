// vmpool ps: the pools of running processes that show themselves (VMP_CONF=live:1).
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "tools/common/number.h"
#include "tools/vmpool/commands.h"
#include "tools/vmpool/live_pools.h"
#include "tools/vmpool/views.h"

enum { OPTION_CLEAN = 256 };

static const struct argp_option option_list[] = {
    {"clean", OPTION_CLEAN, 0, 0, "Remove what processes that were killed have left", 0}, {0}};

static const char doc[] =
    "Lists the pools of this user's running processes.\v"
    "Examples:\n"
    "  VMP_CONF=control:1 ./train &\n"
    "  vmpool ps\n"
    "  vmpool map 12345\n"
    "\n"
    "A pool shows itself with VMP_CONF=live:1, and takes requests with control:1. AGE is how long ago it was looked "
    "at: "
    "more than a second means that the process hangs with the pool's lock held, or is stopped.";

typedef struct arguments {
  bool clean;
  tool_error error;
} arguments;

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  if (key == ARGP_KEY_ARG) return cmd_bad(&a->error, "'%s' is too much: ps takes no argument", text);
  if (key != OPTION_CLEAN) return ARGP_ERR_UNKNOWN;
  a->clean = true;
  return 0;
}

static const struct argp argp = {option_list, parse, "", doc, NULL, NULL, NULL};

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void put_row(const live_pool *pool) {
  tool_error ignored;
  vmp_live_copy *copy = NULL;
  char live[SIZE_TEXT_BYTES], mapped[SIZE_TEXT_BYTES], reserved[SIZE_TEXT_BYTES];
  printf("%8" PRId64 "  %-6.6s %3d", pool->header.process, pool->header.driver, (int)pool->header.device);
  if (live_read(LIVE_FOLDER, pool, &copy, &ignored)) {
    const double age = (double)(now_ns() - copy->time_ns) / 1e9;
    printf(" %10s %10s %10s %6.1fs", size_text(copy->stats.live, live), size_text(copy->stats.mapped, mapped),
           size_text(copy->stats.reserved_va, reserved), age > 0 && age < 99999 ? age : 0);
  } else {
    printf(" %10s %10s %10s %7s", "-", "-", "-", "-");
  }
  printf("  %-7s ", pool->running ? pool->header.control[0] != '\0' ? "control" : "live" : "ended");
  view_put_name(stdout, pool->header.pool_name, 40);
  putchar('\n');
  free(copy);
}

int cmd_ps(int argc, char **argv) {
  arguments a = {.clean = false};
  live_pool *list = NULL;
  size_t count = 0, cleaned = 0;
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  if (!live_list(LIVE_FOLDER, &list, &count, &a.error)) return cmd_fail(argv[0], &a.error);
  if (!a.clean)
    printf("%8s  %-6s %3s %10s %10s %10s %7s  %-7s %s\n", "PROCESS", "DRIVER", "DEV", "LIVE", "MAPPED", "RESERVED",
           "AGE", "TAKES", "POOL");
  for (size_t i = 0; i < count; i++) {
    if (!a.clean) {
      put_row(&list[i]);
    } else if (!list[i].running && shm_unlink(list[i].object) == 0) {
      cleaned++;
    }
  }
  if (a.clean) printf("%zu removed\n", cleaned);
  free(list);
  return EXIT_GOOD;
}
