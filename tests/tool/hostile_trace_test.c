// Hostile traces: small samples of each format, cut at every byte and mutated by seed. Whatever comes out is either a
// refusal in one sentence, or a sequence of events that keeps its promises. The sanitizers watch for the rest.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/vtest.h"
#include "tests/tool/trace_support.h"
#include "tools/common/rng.h"

typedef struct sample {
  const char *name, *text;
  service_layout layout;
} sample;
static const char *sample_name(const sample *s) { return s->name; }

static const sample samples[] = {
    {"plain", "# c\nalloc 1 4096 0\nalloc 2 64 7 12\nfree 1\nfree 9 3 4\nfree 2 7 15\n", SERVICE_NO_LAYOUT},
    {"interval", "id,lower,upper,size\na,0,3,4\nb,3,9,1024\nc,0,9,77\n", SERVICE_NO_LAYOUT},
    {"interval_log", "0 9 64\n1 2 32\n3 4 32\n", SERVICE_NO_LAYOUT},
    {"signed", "t_us,thread,bytes\n0,0,512\n1,0,512\n2,1,64\n3,1,-512\n4,0,-512\n", SERVICE_NO_LAYOUT},
    {"timeline", "t_ns,action,bytes,category\n-1,1,512,0\n5,2,512,3\n6,3,-512,3\n7,4,-512,4\n9,4,-512,0\n",
     SERVICE_NO_LAYOUT},
    {"hta",
     "t_us,thread,op,id,bytes,rel_addr,total_allocated\n0,0,a,1,512,0,1512\n1,1,a,2,1024,512,2536\n5,0,f,1,512,0,"
     "2024\n",
     SERVICE_NO_LAYOUT},
    {"rmm", "Thread,Time,Action,Pointer,Size,Stream\n1,t,allocate,0x7f00,1000,0x0\n1,t,free,0x7f00,1000,0x0\n",
     SERVICE_NO_LAYOUT},
    {"torch",
     "{\"segments\":[{\"address\":4096,\"blocks\":[{\"size\":1024,\"state\":\"active_allocated\"}]}],\"device_traces\":"
     "[["
     "{\"action\":\"alloc\",\"addr\":512,\"size\":100,\"stream\":0,\"time_us\":5},"
     "{\"action\":\"free_requested\",\"addr\":512,\"size\":100,\"stream\":3},"
     "{\"action\":\"free_completed\",\"addr\":512,\"size\":100,\"stream\":3}]]}",
     SERVICE_NO_LAYOUT},
    {"azure",
     "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,480,10\r\n2023-11-16 "
     "18:17:04.0319600,318,8",
     SERVICE_PAGED},
    {"mooncake",
     "{\"timestamp\": 0, \"input_length\": 67, \"output_length\": 50, \"hash_ids\": [0, 1]}\n"
     "{\"timestamp\": 3, \"input_length\": 73, \"output_length\": 4, \"hash_ids\": []}\n",
     SERVICE_CONTIGUOUS},
    {"vidur", "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n372,54,426,6.8\n15,6,21,2.5\n",
     SERVICE_PAGED},
};

// Every promise of event.h, over the first events (a mutated prompt may ask for a million pages).
static void expect_sound(trace *t) {
  enum { EVENTS = 4000 };
  static unsigned char live[1 << 16];
  memset(live, 0, sizeof(live));
  trace_event e;
  for (int i = 0; i < EVENTS && trace_next(t, &e); i++) {
    VASSERT_UINT_LT(e.block, sizeof(live));
    VASSERT_INT_EQ(live[e.block], e.kind == TRACE_ALLOC ? 0 : 1);
    live[e.block] = e.kind == TRACE_ALLOC;
    VASSERT_UINT_LT(e.stream, t->num_streams);
  }
}

static bool try_text(const sample *s, const char *text, size_t bytes) {
  const trace_options options = {.kv = {.layout = s->layout, .model = model_find("gpt2")}, .device = -1};
  // A copy of the exact size, so that a read past the end is seen.
  char *copy = malloc(bytes > 0 ? bytes : 1);
  memcpy(copy, text, bytes);
  tool_error error = {{0}};
  trace *t = NULL;
  const bool good = trace_parse("hostile", copy, bytes, &options, &t, &error);
  free(copy);
  if (good) {
    expect_sound(t);
    trace_close(t);
  } else {
    VEXPECT_STR_CONTAINS(error.text, "hostile");
    VEXPECT_NULL(strpbrk(error.text, "\n\r"));
  }
  return good;
}

VTEST_P(HostileTrace, CutAtEveryByte, sample, samples, sample_name) {
  const size_t bytes = strlen(p->text);
  VEXPECT_TRUE(try_text(p, p->text, bytes));
  for (size_t cut = 0; cut < bytes; cut++) {
    VTRACE("cut after %zu bytes", cut);
    try_text(p, p->text, cut);
    VASSERT_NO_FAILURE();
  }
}

static size_t mutate(rng *r, const char *text, size_t bytes, char *out, size_t room) {
  static const char *const tokens[] = {"-1",       "18446744073709551616", "1e9", "0x10", "",     ",",
                                       "\n",       "99999999999",          "{",   "]",    "\"",   "alloc 1 1 1\n",
                                       "free 1\n", "9223372036854775807",  ":",   " ",    "\r\n", "16777216"};
  memcpy(out, text, bytes);
  const uint64_t changes = rng_between(r, 1, 4);
  for (uint64_t i = 0; i < changes && bytes > 0; i++) {
    const size_t at = rng_between(r, 0, bytes - 1);
    const uint64_t what = rng_between(r, 0, 3);
    if (what == 0) {
      out[at] = (char)rng_between(r, 0, 255);
    } else if (what == 1) {  // cut a piece out
      const size_t length = rng_between(r, 1, bytes - at < 12 ? bytes - at : 12);
      memmove(out + at, out + at + length, bytes - at - length);
      bytes -= length;
    } else if (what == 2) {  // put a token in
      const char *token = tokens[rng_between(r, 0, sizeof(tokens) / sizeof(tokens[0]) - 1)];
      const size_t length = strlen(token);
      if (bytes + length > room) continue;
      memmove(out + at + length, out + at, bytes - at);
      memcpy(out + at, token, length);
      bytes += length;
    } else if (2 * bytes <= room) {  // the rest once more
      memcpy(out + bytes, out + at, bytes - at);
      bytes += bytes - at;
    }
  }
  return bytes;
}

VTEST_P(HostileTrace, Mutated, sample, samples, sample_name) {
  rng r = {.state = vtest_seed(2024)};
  static char text[1 << 14];
  const uint64_t tries = vtest_ops(4000);
  uint64_t refused = 0;
  for (uint64_t i = 0; i < tries; i++) {
    VTRACE("mutation %llu", (unsigned long long)i);
    const size_t bytes = mutate(&r, p->text, strlen(p->text), text, sizeof(text));
    refused += !try_text(p, text, bytes);
    VASSERT_NO_FAILURE();
  }
  VEXPECT_UINT_GT(refused, 0);
}

VTEST(HostileTrace, RandomBytes) {
  rng r = {.state = vtest_seed(99)};
  static char text[512];
  for (uint64_t i = 0; i < vtest_ops(2000); i++) {
    for (size_t k = 0; k < sizeof(text); k++) text[k] = (char)rng_next(&r);
    try_text(&samples[0], text, rng_between(&r, 1, sizeof(text)));
    VASSERT_NO_FAILURE();
  }
}
