// Each format: a small sample becomes the expected sequence; each kind of bad line is named by file, line and field.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/vtest.h"
#include "tests/tool/trace_support.h"

#define PARTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void expect_sequence(const char *text, const char *format, const char *sequence) {
  VTRACE("trace text: %s", text);
  tool_error error;
  trace *t = parse_text(text, &error);
  VEXPECT_STR_EQ(error.text, "");
  VASSERT_NOT_NULL(t);
  char buffer[1024];
  sequence_text(t, buffer, sizeof(buffer));
  VEXPECT_STR_EQ(t->format, format);
  VEXPECT_STR_EQ(buffer, sequence);
  trace_close(t);
}

// ---- plain ----

VTEST(Plain, ReadsAllocsFreesCommentsAndTimes) {
  expect_sequence("# made by hand\n\nalloc 7 4096 0  # the first\n  alloc\t9 0 3 125\nfree 7\nfree 9 3 130.5\n",
                  "plain", "a0:4096 a1:0 f0 f1");
}

VTEST(Plain, LineEndsMayBeWindows) { expect_sequence("alloc 1 64 0\r\nfree 1\r\n", "plain", "a0:64 f0"); }

VTEST(Plain, AByteOrderMarkIsSkipped) {
  expect_sequence(
      "\xef\xbb\xbf"
      "alloc 1 64 0\n",
      "plain", "a0:64");
}

VTEST(Plain, StreamsAreNumberedAsTheyAppear) {
  tool_error error;
  trace *t = parse_text("alloc 1 64 900\nalloc 2 64 0\nalloc 3 64 5\nalloc 4 64 900\nfree 1 5\n", &error);
  VASSERT_NOT_NULL(t);
  static const uint16_t streams[] = {1, 0, 2, 1, 2};
  trace_event e;
  for (int i = 0; i < 5; i++) {
    VASSERT_TRUE(trace_next(t, &e));
    VEXPECT_UINT_EQ(e.stream, streams[i]);
  }
  VEXPECT_FALSE(trace_next(t, &e));
  VEXPECT_UINT_EQ(t->num_streams, 3);
  trace_close(t);
}

// A trace that begins in the middle (bug case 71): unknown frees are counted and change nothing, ids are reused after a
// free, and what is live at the end is known.
VTEST(Plain, FreesFromBeforeTheTraceAreCounted) {
  tool_error error;
  trace *t = parse_text("free 17\nalloc 1 4096 0\nfree 1\nfree 99\nalloc 1 512 0\n", &error);
  VASSERT_NOT_NULL(t);
  VEXPECT_UINT_EQ(t->unmatched_frees, 2);
  trace_totals totals;
  trace_measure(t, &totals);
  VEXPECT_UINT_EQ(totals.allocs, 2);
  VEXPECT_UINT_EQ(totals.frees, 1);
  VEXPECT_UINT_EQ(totals.peak_bytes, 4096);
  VEXPECT_UINT_EQ(totals.end_bytes, 512);
  trace_close(t);
}

VTEST(Plain, ALiveIdIsAnErrorWithItsLine) {
  expect_refused("free 17\nalloc 1 512 0\nalloc 1 64 0\n", PARTS("t:3:", "field id", "'1'", "live"));
}

// An empty trace, and one with only frees (bug case 70).
VTEST(Plain, NothingToDoIsATrace) {
  expect_sequence("", "plain", "");
  expect_sequence("\n  \n# nothing\n", "plain", "");
  tool_error error;
  trace *t = parse_text("free 1\nfree 1\nfree 2 0 9\n", &error);
  VASSERT_NOT_NULL(t);
  VEXPECT_UINT_EQ(t->unmatched_frees, 3);
  VEXPECT_UINT_EQ(t->num_events, 0);
  trace_close(t);
}

typedef struct bad_field {
  const char *name, *value, *what;
} bad_field;
static const char *bad_name(const bad_field *b) { return b->name; }
// Bug case 4: none of these may become a request.
static const bad_field bad_numbers[] = {
    {"minus_one", "-1", "is negative"},
    {"minus_4096", "-4096", "is negative"},
    {"exponent", "1e9", "is not a whole number"},
    {"hexadecimal", "0x1000", "is not a whole number"},
    {"two_to_64", "18446744073709551616", "is too large"},
    {"fraction", "1.5", "is not a whole number"},
    {"unit", "4KiB", "is not a whole number"},
    {"word", "big", "is not a whole number"},
};

VTEST_P(Plain, BadSizesAreNamed, bad_field, bad_numbers, bad_name) {
  char text[128];
  snprintf(text, sizeof(text), "alloc 1 4096 0\nalloc 2 %s 0\nalloc 3 4096 0\n", p->value);
  expect_refused(text, PARTS("t:2:", "field size", p->value, p->what));
}

VTEST_P(Plain, BadStreamsAreNamed, bad_field, bad_numbers, bad_name) {
  char text[128];
  snprintf(text, sizeof(text), "alloc 1 4096 %s\n", p->value);
  expect_refused(text, PARTS("t:1:", "field stream", p->value, p->what));
}

VTEST_P(Plain, BadIdsAreNamed, bad_field, bad_numbers, bad_name) {
  char text[128];
  snprintf(text, sizeof(text), "alloc 1 4096 0\nfree %s\n", p->value);
  expect_refused(text, PARTS("t:2:", "field id", p->value, p->what));
}

VTEST(Plain, MissingAndSpareFieldsAreNamed) {
  expect_refused("alloc 1  0\n", PARTS("t:1:", "a field is missing", "size", "stream"));
  expect_refused("alloc\n", PARTS("t:1:", "a field is missing"));
  expect_refused("free\n", PARTS("t:1:", "a field is missing", "id"));
  expect_refused("alloc 1 12 34 0 9\n", PARTS("t:1:", "too many fields"));
  expect_refused("free 1 0 5 5\n", PARTS("t:1:", "too many fields"));
  expect_refused("alloc 1 64 0 -5\n", PARTS("t:1:", "field t_us", "is negative"));
  expect_refused("alloc 1 64 0\nrealloc 1 128 0\n", PARTS("t:2:", "'realloc'", "neither alloc nor free"));
}

VTEST(Plain, ACutLastLineIsAnErrorOrARemark) {
  expect_refused("alloc 12 64 0\nalloc 13 6", PARTS("t:2:", "a field is missing"));
  expect_refused("alloc 12 64 0\nfree 1", PARTS("t:2:", "field id", "looks cut"));
  tool_error error;
  trace *t = parse_text("alloc 12 64 0\nfree 12", &error);
  VASSERT_NOT_NULL(t);
  VEXPECT_STR_CONTAINS(t->remark.text, "no line end");
  trace_close(t);
}

VTEST(Plain, TooManyStreamsAreRefused) {
  static char text[40000];
  size_t used = 0;
  for (unsigned i = 1; i <= TRACE_MAX_STREAMS; i++) used += (size_t)sprintf(text + used, "alloc %u 1 %u\n", i, i);
  expect_refused(text, PARTS("t:1024:", "more than 1024 streams"));
}

// ---- intervals ----

VTEST(Interval, FreesComeBeforeAllocsOfTheSameStep) {
  // b1 ends where b2 starts; b3 and b5 start together and keep the file's order.
  expect_sequence("id,lower,upper,size\nb1,0,3,4\nb2,3,9,5\nb3,0,9,6\n", "interval", "a0:4 a1:6 f0 a2:5 f2 f1");
}

VTEST(Interval, LogWithoutHeader) { expect_sequence("0 9 64\n1 2 32\n", "interval log", "a0:64 a1:32 f1 f0"); }

VTEST(Interval, BadRowsAreNamed) {
  expect_refused("id,lower,upper,size\na,0,3,4\nb,3,9\n", PARTS("t:3:", "3 fields", "4 of id,lower,upper,size"));
  expect_refused("id,lower,upper,size\na,0,3,\n", PARTS("t:2:", "field size", "is empty"));
  expect_refused("id,lower,upper,size\na,0,3,12 34\n", PARTS("t:2:", "field size", "'12 34'", "not a whole number"));
  expect_refused("id,lower,upper,size\na,3,3,4\n", PARTS("t:2:", "field upper", "above lower"));
  expect_refused("id,lower,upper,size\na,-1,3,4\n", PARTS("t:2:", "field lower", "is negative"));
  expect_refused("0 9 64\n1 2\n", PARTS("t:2:", "lower, upper and size"));
  expect_refused("0 9 64\n1 2 -3\n", PARTS("t:2:", "field size", "is negative"));
}

// ---- signed events ----

#define SIGNED "t_us,thread,bytes\n0,0,512\n1,0,512\n2,1,64\n3,1,-512\n4,0,-512\n"

VTEST(Signed, FreesTheNewestOfItsSize) { expect_sequence(SIGNED, "signed", "a0:512 a1:512 a2:64 f1 f0"); }

VTEST(Signed, FreesTheOldestOnRequest) {
  const trace_options options = {.pairing = TRACE_FIFO, .device = -1};
  tool_error error;
  trace *t = parse_text_with(SIGNED, &options, &error);
  VASSERT_NOT_NULL(t);
  char buffer[256];
  sequence_text(t, buffer, sizeof(buffer));
  VEXPECT_STR_EQ(buffer, "a0:512 a1:512 a2:64 f0 f1");
  trace_close(t);
}

VTEST(Signed, BadRowsAreNamed) {
  expect_refused("t_us,thread,bytes\n0,0,0\n", PARTS("t:2:", "field bytes", "neither"));
  expect_refused("t_us,thread,bytes\n0,0,9223372036854775808\n", PARTS("t:2:", "field bytes", "too large"));
  expect_refused("t_us,thread,bytes\n0,0,\n", PARTS("t:2:", "field bytes", "is empty"));
  expect_refused("t_us,thread,bytes\n-1,0,1\n", PARTS("t:2:", "field t_us", "is negative"));
  expect_refused("t_us,thread,bytes\n0,0,512\n1,0,-51", PARTS("t:3:", "field bytes", "looks cut"));
}

// ---- timeline ----

VTEST(Timeline, DestroysACreatedTensorFirstThenAnOlderOne) {
  expect_sequence("t_ns,action,bytes,category\n-1,1,512,0\n5,2,512,3\n6,3,-512,3\n6,3,512,4\n7,4,-512,4\n9,4,-512,0\n",
                  "timeline", "a0:512 a1:512 f1 f0");
}

VTEST(Timeline, BadRowsAreNamed) {
  expect_refused("t_ns,action,bytes,category\n1,5,1,0\n", PARTS("t:2:", "field action", "'5'"));
  expect_refused("t_ns,action,bytes,category\n1,2,-8,0\n", PARTS("t:2:", "field bytes", "wrong sign"));
  expect_refused("t_ns,action,bytes,category\n1,4,8,0\n", PARTS("t:2:", "field bytes", "wrong sign"));
  expect_refused("t_ns,action,bytes,category\n1,4,-8\n", PARTS("t:2:", "3 fields"));
}

// ---- HTA ----

#define HTA "t_us,thread,op,id,bytes,rel_addr,total_allocated\n"

VTEST(Hta, MatchesById) {
  expect_sequence(HTA "0,0,a,1,512,0,1512\n1,1,a,2,1024,512,2536\n5,0,f,1,512,0,2024\n", "hta", "a0:512 a1:1024 f0");
}

VTEST(Hta, BadRowsAreNamed) {
  expect_refused(HTA "0,0,x,1,512,0,512\n", PARTS("t:2:", "field op", "'x'"));
  expect_refused(HTA "0,0,a,1,512,0,512\n0,0,a,1,512,0,1024\n", PARTS("t:3:", "field id", "live"));
  expect_refused(HTA "0,0,a,1,512,0,512\n0,0,f,1,64,0,448\n", PARTS("t:3:", "field bytes", "differs"));
  expect_refused(HTA "0,0,a,1,-512,0,512\n", PARTS("t:2:", "field bytes", "is negative"));
  expect_refused(HTA "0,0,a,1,512,0,512\n1,0,a,2,512,512,10", PARTS("t:3:", "field total_allocated", "looks cut"));
}

// ---- RMM ----

#define RMM "Thread,Time,Action,Pointer,Size,Stream\n"

VTEST(Rmm, FollowsPointersAndSkipsFailures) {
  expect_sequence(RMM
                  "29382,15:39:51:021327,allocate,0x7f3b7fe00000,1000,0x0\n"
                  "29382,15:39:51:021328,allocate failure,0x0,99999999999,0x0\n"
                  "29382,15:39:51:021329,free,0x7f3b7fe00000,1000,0x0\n"
                  "7,15:39:52:000000,allocate,0x7f3b7fe00000,64,0x2\n"
                  "7,15:39:52:000001,deallocate,0x7f3b7fe00000,64,0x2\n",
                  "rmm", "a0:1000 f0 a1:64 f1");
}

VTEST(Rmm, BadRowsAreNamed) {
  expect_refused(RMM "1,t,allocate,0x10,8,0\n1,t,allocate,0x10,8,0\n", PARTS("t:3:", "field Pointer", "live"));
  expect_refused(RMM "1,t,allocate,0x1g,8,0\n", PARTS("t:2:", "field Pointer", "'0x1g'"));
  expect_refused(RMM "1,t,allocate,0x10,-8,0\n", PARTS("t:2:", "field Size", "is negative"));
  expect_refused(RMM "1,t,grow,0x10,8,0\n", PARTS("t:2:", "field Action", "'grow'"));
  expect_refused(RMM "1,t,allocate,0x10,8,-1\n", PARTS("t:2:", "field Stream", "is negative"));
}

// ---- PyTorch ----

// Block 4096 existed before and lives on; 8192 existed before and is freed inside; 512 is allocated, its free requested
// and completed; 1024's free is only seen completed.
static const char torch_sample[] =
    "{\"segments\":[{\"address\":4096,\"total_size\":4096,\"stream\":0,\"blocks\":["
    "{\"size\":1024,\"state\":\"active_allocated\"},{\"size\":3072,\"state\":\"inactive\"}]}],"
    "\"device_traces\":[[],["
    "{\"action\":\"segment_alloc\",\"addr\":0,\"size\":2097152,\"stream\":0},"
    "{\"action\":\"free_requested\",\"addr\":8192,\"size\":64,\"stream\":0},"
    "{\"action\":\"free_completed\",\"addr\":8192,\"size\":64,\"stream\":0},"
    "{\"action\":\"alloc\",\"addr\":512,\"size\":100,\"stream\":0,\"time_us\":5},"
    "{\"action\":\"alloc\",\"addr\":1024,\"size\":200,\"stream\":77,\"time_us\":6},"
    "{\"action\":\"free_requested\",\"addr\":512,\"size\":100,\"stream\":0,\"time_us\":7},"
    "{\"action\":\"free_completed\",\"addr\":512,\"size\":100,\"stream\":0,\"time_us\":8},"
    "{\"action\":\"free_completed\",\"addr\":1024,\"size\":200,\"stream\":77,\"time_us\":9},"
    "{\"action\":\"alloc\",\"addr\":512,\"size\":300,\"stream\":0,\"time_us\":10}]]}";

VTEST(Torch, FollowsAddresses) {
  char text[2048];
  snprintf(text, sizeof(text), "%s", torch_sample);
  // The segment names no device, so it belongs to device 0; the events are device 1's.
  expect_sequence(text, "pytorch", "a0:100 a1:200 f0 f1 a2:300");
  char *stream = strstr(text, "\"stream\":0,\"blocks\"");
  memcpy(stream, "\"device\":1,\"blocks\"", 19);
  expect_sequence(text, "pytorch", "a0:1024 a1:100 a2:200 f1 f2 a3:300");
  tool_error error;
  trace *t = parse_text(text, &error);
  VASSERT_NOT_NULL(t);
  VEXPECT_UINT_EQ(t->unmatched_frees, 1);
  VEXPECT_UINT_EQ(t->num_streams, 2);
  trace_close(t);
}

VTEST(Torch, BadDocumentsAreNamed) {
  expect_refused("{", PARTS("t: not valid JSON"));
  expect_refused("{\"a\":1}", PARTS("t: ", "device_traces"));
  expect_refused("{\"device_traces\":[[{\"addr\":1}]]}", PARTS("device_traces[0][0]", "field action"));
  expect_refused("{\"device_traces\":[[{\"action\":\"alloc\",\"addr\":1,\"size\":-5,\"stream\":0}]]}",
                 PARTS("device_traces[0][0]", "field size", "'-5'", "negative"));
  expect_refused("{\"device_traces\":[[{\"action\":\"alloc\",\"addr\":1,\"size\":1e3}]]}",
                 PARTS("device_traces[0][0]", "field size", "whole number"));
  expect_refused(
      "{\"device_traces\":[[{\"action\":\"alloc\",\"addr\":1,\"size\":8},{\"action\":\"alloc\",\"addr\":1,\"size\":8}]]"
      "}",
      PARTS("device_traces[0][1]", "field addr", "live"));
  expect_refused("{\"device_traces\":[[{\"action\":\"alloc\",\"addr\":1,\"size\":99999999999999999999}]]}",
                 PARTS("t: not valid JSON"));
  expect_refused(
      "{\"device_traces\":[[{\"action\":\"alloc\",\"addr\":1,\"size\":1}],[{\"action\":\"alloc\",\"addr\":1,\"size\":1}"
      "]]}",
      PARTS("2 devices", "--trace-device"));
}

// ---- requests ----

static const trace_options paged = {.kv = {.layout = SERVICE_PAGED, .page_tokens = 16}, .device = -1};

static void expect_request_error(const char *text, const char *const *parts) {
  VTRACE("trace text: %s", text);
  trace_options options = paged;
  options.kv.model = model_find("llama-2-7b");
  tool_error error;
  trace *t = parse_text_with(text, &options, &error);
  VEXPECT_NULL(t);
  trace_close(t);
  for (; *parts != NULL; parts++) VEXPECT_STR_CONTAINS(error.text, *parts);
}

#define AZURE "TIMESTAMP,ContextTokens,GeneratedTokens\n"
#define VIDUR "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n"

VTEST(Requests, NeedALayout) {
  expect_refused(AZURE, PARTS("requests", "--kv", "--model"));
  expect_request_error("alloc 1 64 0\n", PARTS("plain", "--kv is for files of requests"));
}

VTEST(Requests, BadRowsAreNamed) {
  expect_request_error(AZURE "2023-11-16 18:17:03.97,1,1\nyesterday,1,1\n",
                       PARTS("t:3:", "field TIMESTAMP", "'yesterday'"));
  expect_request_error(AZURE "2023-13-16 18:17:03.97,1,1\n", PARTS("t:2:", "field TIMESTAMP"));
  expect_request_error(AZURE "2023-11-16 18:17:03.97,-1,1\n", PARTS("t:2:", "field ContextTokens", "is negative"));
  expect_request_error(AZURE "2023-11-16 18:17:03.97,1,99999999\n", PARTS("t:2:", "field GeneratedTokens", "is over"));
  expect_request_error(AZURE "2023-11-16 18:17:03.97,1\n", PARTS("t:2:", "2 fields"));
  expect_request_error("{\"timestamp\": 0, \"input_length\": 5}\n", PARTS("t:1", "field output_length", "missing"));
  expect_request_error("{\"timestamp\": 0, \"input_length\": -5, \"output_length\": 1}\n",
                       PARTS("t:1", "field input_length", "negative"));
  expect_request_error("{\"timestamp\": 0, \"input_length\": 5, \"output_length\": 1}\n{\"timestamp\": 0, \"inp",
                       PARTS("t:2", "not valid JSON"));
  expect_request_error(VIDUR "5,6,12,0.8\n", PARTS("t:2:", "field num_total_tokens", "not the sum"));
  expect_request_error(VIDUR "5,x,12,0.8\n", PARTS("t:2:", "field num_decode_tokens", "'x'"));
}

// Times over midnight, a leap day and the end of a year count as they should.
VTEST(Requests, AzureTimesAreCalendarTimes) {
  trace_options options = {.kv = {.layout = SERVICE_CONTIGUOUS, .model = model_find("llama-2-7b")}, .device = -1};
  tool_error error;
  trace *t = parse_text_with(AZURE
                             "2023-12-31 23:59:59.5,1,0\n2024-01-01 00:00:00.75+00:00,1,0\n2024-02-29 00:00:00,1,0\n"
                             "2024-03-01T00:00:00.0000001,1,0\n",
                             &options, &error);
  VEXPECT_STR_EQ(error.text, "");
  VASSERT_NOT_NULL(t);
  static const int64_t day_us = INT64_C(86400) * 1000000;
  const int64_t expected[] = {0, 1250000, 59 * day_us + 500000, 60 * day_us + 500000};
  trace_event e;
  for (int i = 0; i < 4;) {
    VASSERT_TRUE(trace_next(t, &e));
    if (e.kind == TRACE_ALLOC) VEXPECT_INT_EQ(e.t_us, expected[i++]);
  }
  trace_close(t);
}

// ---- recognition ----

VTEST(Recognition, UnknownContentIsRefused) {
  expect_refused("hello world\n", PARTS("t:1:", "none of the trace formats"));
  expect_refused("id,lower,size\n1,2,3\n", PARTS("t:1:", "none of the trace formats"));
  expect_refused("\x1f\x8b\x08 zipped", PARTS("gzip"));
  expect_refused("\x80\x04\x95 pickled", PARTS("pickle", "JSON"));
}

VTEST(Recognition, FilesThatAreNone) {
  const trace_options options = TRACE_OPTIONS_INIT;
  tool_error error = {{0}};
  trace *t = NULL;
  VEXPECT_FALSE(trace_read(vtest_temp_dir(), &options, &t, &error));
  VEXPECT_STR_CONTAINS(error.text, "is a directory");
  VEXPECT_FALSE(trace_read("no/such/file", &options, &t, &error));
  VEXPECT_STR_CONTAINS(error.text, "no/such/file: No such file");
  VEXPECT_NULL(t);
}

// ---- writing ----

VTEST(PlainWriter, WhatIsWrittenReadsBackTheSame) {
  tool_error error;
  trace *t = parse_text("alloc 5 100 9 7\nalloc 6 200 0 8\nfree 5 9 9\nalloc 5 300 9 10\n", &error);
  VASSERT_NOT_NULL(t);
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  VEXPECT_TRUE(trace_write_plain(t, out));
  fclose(out);
  VEXPECT_STR_EQ(text, "alloc 0 100 1 7\nalloc 1 200 0 8\nfree 0 1 9\nalloc 2 300 1 10\n");
  trace *again = parse_text(text, &error);
  VASSERT_NOT_NULL(again);
  trace_event a, b;
  while (trace_next(t, &a)) {
    VASSERT_TRUE(trace_next(again, &b));
    VEXPECT_TRUE(a.bytes == b.bytes && a.t_us == b.t_us && a.block == b.block && a.stream == b.stream &&
                 a.kind == b.kind);
  }
  trace_close(t);
  trace_close(again);
  free(text);
}
