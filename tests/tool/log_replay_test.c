// A replay that records: its log is the same trace again, its snapshot is of the moment that was asked for.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/process.h"
#include "tests/support/vtest.h"
#include "tests/support/vtest_rng.h"
#include "tools/replay/replay.h"

#define TOOL "tools/vmpool/vmpool"

typedef struct rig {
  trace *trace;
  char log[600], snapshot[600];
  replay_options options;
  replay_result result;
} rig;

static void make_trace(rig *f) {
  trace_list list;
  uint32_t live[64];
  size_t count = 0;
  vtest_rng random = vtest_rng_make(vtest_seed(7));
  tool_error error = {{0}};
  trace_list_init(&list);
  list.num_streams = 2;
  for (int i = 0; i < 3000; i++) {
    if (count == 64 || (count > 0 && vtest_rng_below(&random, 5) < 2)) {
      const size_t at = (size_t)vtest_rng_below(&random, count);
      trace_list_free_on(&list, live[at], (uint16_t)vtest_rng_below(&random, 2), TRACE_NO_TIME);
      live[at] = live[--count];
    } else {
      const uint64_t bytes = vtest_rng_below(&random, i % 5 == 0 ? 30000000 : 100000) + 1;
      live[count++] = trace_list_alloc(&list, bytes, (uint16_t)vtest_rng_below(&random, 2), TRACE_NO_TIME);
    }
  }
  if (!trace_of_list("test", &list, &f->trace, &error)) VFAIL("%s", error.text);
}

static void rig_setup(rig *f) {
  snprintf(f->log, sizeof(f->log), "%s/log_replay.%ld.vmplog", vtest_temp_dir(), (long)getpid());
  snprintf(f->snapshot, sizeof(f->snapshot), "%s/log_replay.%ld.json", vtest_temp_dir(), (long)getpid());
  f->options = (replay_options)REPLAY_OPTIONS_INIT;
  f->options.device_bytes = UINT64_C(1) << 40;
  make_trace(f);
}

static void rig_teardown(rig *f) {
  trace_close(f->trace);
  unlink(f->log);
  unlink(f->snapshot);
}

static void play(rig *f) {
  tool_error error = {{0}};
  if (!replay_run(f->trace, &f->options, &f->result, &error)) VFAIL("%s", error.text);
  VEXPECT_TRUE(replay_good(&f->result));
}

static json_t *load(const char *path) {
  json_error_t error;
  json_t *document = json_load_file(path, 0, &error);
  if (document == NULL) VADD_FAILURE("%s: %s", path, error.text);
  return document;
}

static uint64_t stat_of(json_t *document, const char *key) {
  return (uint64_t)json_integer_value(json_object_get(json_object_get(document, "stats"), key));
}

VTEST_F(LogReplay, TheLogIsTheTraceAgain, rig) {
  f->options.log = f->log;
  play(f);
  VASSERT_NO_FAILURE();
  trace *again = NULL;
  trace_options options = TRACE_OPTIONS_INIT;
  tool_error error = {{0}};
  if (!trace_read(f->log, &options, &again, &error)) VFAIL("%s", error.text);
  VEXPECT_STR_EQ(again->format, "vmpool log");
  VEXPECT_STR_EQ(again->remark.text, "");
  VEXPECT_UINT_EQ(again->num_streams, 2);
  trace_event a, b;
  uint32_t numbers[4096];
  trace_rewind(f->trace);
  while (trace_next(f->trace, &a)) {
    VASSERT_TRUE(trace_next(again, &b));
    VASSERT_UINT_EQ(b.kind, a.kind);
    VASSERT_UINT_EQ(b.bytes, a.bytes);
    VASSERT_UINT_EQ(b.stream, a.stream);
    if (a.kind == TRACE_ALLOC) numbers[a.block] = b.block;
    VASSERT_UINT_EQ(b.block, numbers[a.block]);
  }
  VEXPECT_FALSE(trace_next(again, &b));
  trace_close(again);
}

VTEST_F(LogReplay, TheSnapshotIsOfThePeak, rig) {
  f->options.log = f->log;
  f->options.snapshot = f->snapshot;
  play(f);
  VASSERT_NO_FAILURE();
  json_t *document = load(f->snapshot);
  VEXPECT_UINT_EQ(stat_of(document, "mapped"), f->result.peak_mapped_bytes);
  VEXPECT_STR_EQ(json_string_value(json_object_get(json_object_get(document, "log"), "file")), f->log);
  VEXPECT_UINT_GT((uint64_t)json_integer_value(json_object_get(json_object_get(document, "log"), "records")), 10);
  json_decref(document);
}

VTEST_F(LogReplay, TheSnapshotIsOfAnEventOrTheEnd, rig) {
  f->options.snapshot = f->snapshot;
  f->options.snapshot_at = REPLAY_AT_EVENT;
  f->options.snapshot_event = 1;
  play(f);
  VASSERT_NO_FAILURE();
  json_t *document = load(f->snapshot);
  VEXPECT_UINT_EQ(stat_of(document, "blocks"), 1);
  json_decref(document);
  f->options.snapshot_at = REPLAY_AT_END;
  play(f);
  VASSERT_NO_FAILURE();
  document = load(f->snapshot);
  VEXPECT_UINT_EQ(stat_of(document, "blocks"), f->result.end_live_blocks);
  json_decref(document);
  f->options.snapshot_at = REPLAY_AT_EVENT;
  f->options.snapshot_event = 1000000;
  tool_error error = {{0}};
  VEXPECT_FALSE(replay_run(f->trace, &f->options, &f->result, &error));
  VEXPECT_STR_CONTAINS(error.text, "3000 events only");
}

VTEST_F(LogReplay, AnOldLogIsReplacedAndNothingElse, rig) {
  tool_error error = {{0}};
  f->options.log = f->log;
  play(f);
  play(f);
  VASSERT_NO_FAILURE();
  FILE *file = fopen(f->log, "wb");
  VASSERT_TRUE(file != NULL);
  fputs("my only copy", file);
  fclose(file);
  VEXPECT_FALSE(replay_run(f->trace, &f->options, &f->result, &error));
  VEXPECT_STR_CONTAINS(error.text, "exists");
  VEXPECT_INT_EQ(access(f->log, F_OK), 0);
}

static vtest_process run(const char *const *argv, const char *input) {
  vtest_process p = {0};
  if (vtest_process_run(&p, argv, input) != 0) VADD_FAILURE("%s could not be started", argv[0]);
  return p;
}

// vmpool record turns the log on in any program that makes a pool; the program's own output and status stay.
VTEST_F(LogReplay, RecordACommand, rig) {
  unsetenv("VMP_CONF");
  const char *const argv[] = {TOOL, "record", "-o", f->log, "--ring", "1MiB", "--", TOOL, "replay", "-", NULL};
  vtest_process p = run(argv, "alloc 1 5000 0\nalloc 2 70000 0\nfree 1 0\n");
  VEXPECT_INT_EQ(p.status, 0);
  VEXPECT_STR_CONTAINS(p.out, "3 events, 2 allocations, 1 frees");
  VEXPECT_STR_EQ(p.err, "");
  vtest_process_free(&p);
  // -PID-replay stands before the ending; the folder may hold others.
  char command[2000];
  snprintf(command, sizeof(command), "mv %.*s-*-replay.vmplog %s", (int)strlen(f->log) - 7, f->log, f->log);
  VASSERT_INT_EQ(system(command), 0);
  const char *const again[] = {TOOL, "replay", f->log, NULL};
  p = run(again, NULL);
  VEXPECT_STR_CONTAINS(p.out, "4 events, 2 allocations, 2 frees");  // the end frees what is left
  vtest_process_free(&p);
  const char *const bad[] = {TOOL, "record", "--", "no/such/program", NULL};
  p = run(bad, NULL);
  VEXPECT_INT_EQ(p.status, 2);
  VEXPECT_STR_CONTAINS(p.err, "no/such/program can't be run");
  vtest_process_free(&p);
}
