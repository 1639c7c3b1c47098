// The service model on requests that are small enough to work out by hand.
#include "tools/models/service.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/vtest.h"

// steps: what a source emits, as "+block@us" and "-block@us".
static void steps_of(const service_options *options, service_request *items, size_t count, char *buffer, size_t size) {
  service_requests requests = {0};
  for (size_t i = 0; i < count; i++) service_requests_append(&requests, items[i]);
  trace_source source;
  uint64_t num_events = 0, seen = 0;
  tool_error error = {{0}};
  VASSERT_TRUE(service_open(&requests, options, &source, &num_events, &error));
  size_t used = 0;
  trace_event e;
  buffer[0] = '\0';
  while (source.next(source.self, &e)) {
    seen++;
    used += (size_t)snprintf(buffer + used, size - used, "%s%c%u@%lld", used > 0 ? " " : "",
                             e.kind == TRACE_ALLOC ? '+' : '-', e.block, (long long)e.t_us);
  }
  VEXPECT_UINT_EQ(seen, num_events);
  VEXPECT_FALSE(service_failed(&source));
  // The same again after a rewind.
  source.rewind(source.self);
  while (source.next(source.self, &e)) seen--;
  VEXPECT_UINT_EQ(seen, 0);
  source.close(source.self);
}

VTEST(Service, ContiguousBlocksLiveFromArrivalToTheLastToken) {
  // 8 prompt tokens are 1 ms of prefill; 2 output tokens are 60 ms.
  service_request items[] = {{.arrival_ticks = 0, .prompt_tokens = 8, .output_tokens = 2},
                             {.arrival_ticks = 100000, .prompt_tokens = 16, .output_tokens = 0}};
  const service_options options = {.layout = SERVICE_CONTIGUOUS, .model = model_find("llama-2-7b")};
  char steps[256];
  steps_of(&options, items, 2, steps, sizeof(steps));
  VEXPECT_STR_EQ(steps, "+0@0 +1@10000 -1@12000 -0@61000");
}

VTEST(Service, PagesComeWithTheTokenThatNeedsThem) {
  // Pages of 4 tokens. 6 prompt tokens take 2 pages; tokens 7 and 8 fit; output token 3 is the 9th and takes a third.
  service_request items[] = {{.arrival_ticks = 0, .prompt_tokens = 6, .output_tokens = 4}};
  const service_options options = {.layout = SERVICE_PAGED, .model = model_find("llama-2-7b"), .page_tokens = 4};
  char steps[256];
  steps_of(&options, items, 1, steps, sizeof(steps));
  VEXPECT_STR_EQ(steps, "+0@0 +1@0 +2@90750 -0@120750 -1@120750 -2@120750");
}

VTEST(Service, AFullLastPageGrowsWithTheFirstToken) {
  service_request items[] = {{.arrival_ticks = 0, .prompt_tokens = 8, .output_tokens = 1}};
  const service_options options = {.layout = SERVICE_PAGED, .model = model_find("llama-2-7b"), .page_tokens = 8};
  char steps[256];
  steps_of(&options, items, 1, steps, sizeof(steps));
  // The page that comes with the last token comes just before the end.
  VEXPECT_STR_EQ(steps, "+0@0 +1@31000 -0@31000 -1@31000");
}

VTEST(Service, AtEqualTimesFreesComeFirst) {
  // The second request arrives exactly when the first one ends, so its block takes over the number.
  service_request items[] = {{.arrival_ticks = 0, .prompt_tokens = 8, .output_tokens = 0},
                             {.arrival_ticks = 10000, .prompt_tokens = 8, .output_tokens = 0}};
  const service_options options = {.layout = SERVICE_CONTIGUOUS, .model = model_find("llama-2-7b")};
  char steps[256];
  steps_of(&options, items, 2, steps, sizeof(steps));
  VEXPECT_STR_EQ(steps, "+0@0 -0@1000 +0@1000 -0@2000");
}

VTEST(Service, RequestsAreSortedAndEmptyOnesMakeNoPages) {
  service_request items[] = {{.arrival_ticks = 50, .prompt_tokens = 4, .output_tokens = 0},
                             {.arrival_ticks = 20, .prompt_tokens = 0, .output_tokens = 0},
                             {.arrival_ticks = 0, .prompt_tokens = 4, .output_tokens = 0}};
  const service_options options = {.layout = SERVICE_PAGED, .model = model_find("llama-2-7b"), .page_tokens = 4};
  char steps[256];
  steps_of(&options, items, 3, steps, sizeof(steps));
  VEXPECT_STR_EQ(steps, "+0@0 +1@5 -0@500 -1@505");
}

VTEST(Service, SizesFollowTheModel) {
  service_requests requests = {0};
  service_requests_append(&requests, (service_request){.prompt_tokens = 100, .output_tokens = 28});
  const service_options options = {.layout = SERVICE_CONTIGUOUS, .model = model_find("llama-3-70b")};
  trace_source source;
  uint64_t num_events;
  VASSERT_TRUE(service_open(&requests, &options, &source, &num_events, NULL));
  trace_event e;
  VEXPECT_TRUE(source.next(source.self, &e));
  VEXPECT_UINT_EQ(e.bytes, UINT64_C(128) * 327680);
  source.close(source.self);
}

VTEST(Service, NeedsALayoutAndAModel) {
  service_requests requests = {0};
  service_requests_append(&requests, (service_request){.prompt_tokens = 1});
  trace_source source;
  uint64_t num_events;
  tool_error error = {{0}};
  VEXPECT_FALSE(service_open(&requests, &(service_options){.layout = SERVICE_PAGED}, &source, &num_events, &error));
  VEXPECT_STR_CONTAINS(error.text, "layout");
  VEXPECT_NULL(requests.items);  // taken over all the same
}

static int compare_tokens(const void *a, const void *b) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  return x < y ? -1 : x > y;
}

// The documented distributions: medians 1020 and 129 tokens, a Poisson process of the asked rate.
VTEST(Service, SyntheticRequestsFollowTheirDistributions) {
  enum { COUNT = 20000 };
  service_requests requests = {0};
  service_generate(&requests, COUNT, 5, 1);
  VASSERT_UINT_EQ(requests.count, COUNT);
  static uint32_t prompts[COUNT], outputs[COUNT];
  for (size_t i = 0; i < COUNT; i++) {
    prompts[i] = requests.items[i].prompt_tokens;
    outputs[i] = requests.items[i].output_tokens;
    if (i > 0) VASSERT_INT_GE(requests.items[i].arrival_ticks, requests.items[i - 1].arrival_ticks);
  }
  qsort(prompts, COUNT, sizeof(prompts[0]), compare_tokens);
  qsort(outputs, COUNT, sizeof(outputs[0]), compare_tokens);
  VEXPECT_NEAR(prompts[COUNT / 2], 1020, 40);
  VEXPECT_NEAR(outputs[COUNT / 2], 129, 5);
  VEXPECT_NEAR(log((double)prompts[COUNT * 95 / 100] / prompts[COUNT / 2]), 1.645 * 0.85, 0.06);
  VEXPECT_NEAR(log((double)outputs[COUNT * 95 / 100] / outputs[COUNT / 2]), 1.645 * 0.76, 0.06);
  VEXPECT_UINT_GE(prompts[0], 1);
  VEXPECT_UINT_LE(prompts[COUNT - 1], 16384);
  VEXPECT_NEAR((double)requests.items[COUNT - 1].arrival_ticks / 1e7, COUNT / 5.0, 120);  // four standard deviations
  service_requests_destroy(&requests);
}
