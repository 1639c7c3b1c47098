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
//     region: one block that begins with n tokens at a, and grows by one with every token.
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
  SERVICE_REGION = 3,
} service_layout;

typedef struct service_request {
  int64_t arrival_ticks;                  // at most SERVICE_MAX_ARRIVAL_TICKS, not negative
  uint32_t prompt_tokens, output_tokens;  // at most SERVICE_MAX_TOKENS each
  uint32_t order;                         // set by service_requests_append: equal arrivals keep their order
  // Prefix blocks: block k covers the tokens 512 k to 512 k + 511 of the prompt; equal ids mean equal tokens up to
  // there.
  size_t first_prefix;  // in the requests' list
  uint32_t num_prefixes;
} service_request;

#define SERVICE_PREFIX_TOKENS 512u

// service_requests: a growing array; a failed append is remembered, as in trace_list.
typedef struct service_requests {
  service_request *items;
  size_t count, capacity;
  uint64_t *prefixes;  // ids, of all requests
  size_t num_prefixes, prefixes_capacity;
  bool failed;
} service_requests;

// service_requests_prefix appends an id to the list of prefixes.
void service_requests_prefix(service_requests *requests, uint64_t id);

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

// service_info: what regions need to know of a source of requests. False: the source is of another kind.
typedef struct service_info {
  service_layout layout;
  uint64_t token_bytes;     // over all layers
  uint64_t longest_tokens;  // of a prompt and its output
  uint32_t layers;
  bool has_prefixes;
} service_info;
bool service_get_info(const trace_source *source, service_info *out_info);
// service_prefixes_of returns the ids of the whole prefix blocks of the request that a live block of layout region
// stands for.
const uint64_t *service_prefixes_of(const trace_source *source, uint32_t block, size_t *out_count);

// service_generate appends synthetic requests: arrivals follow a Poisson process of `rate` requests a second, prompt
// lengths are log-normal with median 1020 and sigma 0.85, output lengths log-normal with median 129 and sigma 0.76,
// both at least 1 and at most 16384 (close to the quantiles of Azure's conversation trace of 2023).
void service_generate(service_requests *requests, uint64_t count, double rate, uint64_t seed);

#endif  // VMPOOL_TOOLS_MODELS_SERVICE_H_
