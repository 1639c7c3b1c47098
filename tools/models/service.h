// service.h: what serving a list of requests asks of the memory for its KV cache.
//
// Owns: the service model (open loop, no queueing; simple on purpose and the same for everyone) and the events that
// follow from it, made on demand. Does not own: where requests come from.
//
//     arrival          prefill ends            token j exists                 all memory is freed
//     a                a + n / 8000 s          a + n / 8000 s + j * 30 ms     a + n / 8000 s + o * 30 ms
//     |-- prompt, n tokens --|---------- output, o tokens, 33 a second ----------|
//
//     contiguous: one block of (n + o) tokens at a.
//     paged: ceil(n / page) pages at a, and one page more whenever a token passes the last full page.
//
// Time is counted in ticks of 100 ns, so that every instant above is a whole number. At equal times frees come first,
// then growth, then arrivals; a page that is due with a request's last token comes just before that request's end.
#ifndef VMPOOL_TOOLS_MODELS_SERVICE_H_
#define VMPOOL_TOOLS_MODELS_SERVICE_H_

#include "tools/common/error.h"
#include "tools/models/shapes.h"
#include "tools/trace/event.h"

#define SERVICE_TICKS_PER_US 10
#define SERVICE_MAX_TOKENS (UINT64_C(1) << 24)        // of one prompt or one output
#define SERVICE_MAX_ARRIVAL_TICKS (INT64_C(1) << 58)  // over 900 years

typedef enum service_layout {
  SERVICE_NO_LAYOUT = 0,
  SERVICE_CONTIGUOUS = 1,
  SERVICE_PAGED = 2,
} service_layout;

typedef struct service_request {
  int64_t arrival_ticks;                  // at most SERVICE_MAX_ARRIVAL_TICKS, not negative
  uint32_t prompt_tokens, output_tokens;  // at most SERVICE_MAX_TOKENS each
  uint32_t order;                         // set by service_requests_append: equal arrivals keep their order
} service_request;

// service_requests: a growing array; a failed append is remembered, as in trace_list.
typedef struct service_requests {
  service_request *items;
  size_t count, capacity;
  bool failed;
} service_requests;

void service_requests_append(service_requests *requests, service_request request);
void service_requests_destroy(service_requests *requests);  // leaves it zeroed, which is empty

typedef struct service_options {
  service_layout layout;
  const model_shape *model;
  uint32_t element_bytes;  // of the KV cache; 0: 2
  uint32_t page_tokens;    // 0: 16
} service_options;

// service_open makes a source of events and takes over the requests (on failure too); they need not be sorted.
// *out_num_events counts them. Fails when a block's size does not fit 64 bits, a layout is missing, or host memory
// runs out. While the source runs, host memory running out ends the events early: service_failed tells.
bool service_open(service_requests *requests, const service_options *options, trace_source *out_source,
                  uint64_t *out_num_events, tool_error *error);
bool service_failed(const trace_source *source);

// service_generate appends synthetic requests: arrivals follow a Poisson process of `rate` requests a second, prompt
// lengths are log-normal with median 1020 and sigma 0.85, output lengths log-normal with median 129 and sigma 0.76,
// both at least 1 and at most 16384 (close to the quantiles of Azure's conversation trace of 2023).
void service_generate(service_requests *requests, uint64_t count, double rate, uint64_t seed);

#endif  // VMPOOL_TOOLS_MODELS_SERVICE_H_
