#include "tools/models/service.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/rng.h"
#include "vmm/align.h"

#define TICKS_PER_SECOND INT64_C(10000000)
#define TICKS_PER_PROMPT_TOKEN (TICKS_PER_SECOND / 8000)
#define TICKS_PER_OUTPUT_TOKEN (TICKS_PER_SECOND * 30 / 1000)
#define NO_BLOCK UINT32_MAX

// ---- requests ----

void service_requests_append(service_requests *requests, service_request request) {
  if (requests->failed || requests->count == UINT32_MAX) {
    requests->failed = true;
    return;
  }
  if (requests->count == requests->capacity) {
    const size_t capacity = requests->capacity == 0 ? 256 : requests->capacity * 2;
    service_request *items = reallocarray(requests->items, capacity, sizeof(*items));
    if (items == NULL) {
      requests->failed = true;
      return;
    }
    requests->items = items;
    requests->capacity = capacity;
  }
  request.order = (uint32_t)requests->count;
  requests->items[requests->count++] = request;
}

void service_requests_prefix(service_requests *requests, uint64_t id) {
  if (requests->failed) return;
  if (requests->num_prefixes == requests->prefixes_capacity) {
    const size_t capacity = requests->prefixes_capacity == 0 ? 1024 : requests->prefixes_capacity * 2;
    uint64_t *prefixes = reallocarray(requests->prefixes, capacity, sizeof(*prefixes));
    if (prefixes == NULL) {
      requests->failed = true;
      return;
    }
    requests->prefixes = prefixes;
    requests->prefixes_capacity = capacity;
  }
  requests->prefixes[requests->num_prefixes++] = id;
}

void service_requests_destroy(service_requests *requests) {
  free(requests->items);
  free(requests->prefixes);
  memset(requests, 0, sizeof(*requests));
}

static uint32_t draw_tokens(rng *random, double median, double sigma) {
  const double tokens = round(median * exp(sigma * rng_normal(random)));
  return tokens < 1 ? 1 : tokens > 16384 ? 16384 : (uint32_t)tokens;
}

void service_generate(service_requests *requests, uint64_t count, double rate, uint64_t seed) {
  rng random = {.state = seed};
  double seconds = 0;
  for (uint64_t i = 0; i < count && !requests->failed; i++) {
    seconds += -log(rng_unit(&random)) / rate;
    const double ticks = seconds * (double)TICKS_PER_SECOND;
    service_request request = {.arrival_ticks = ticks < (double)SERVICE_MAX_ARRIVAL_TICKS ? (int64_t)ticks
                                                                                          : SERVICE_MAX_ARRIVAL_TICKS};
    request.prompt_tokens = draw_tokens(&random, 1020, 0.85);
    request.output_tokens = draw_tokens(&random, 129, 0.76);
    service_requests_append(requests, request);
  }
}

// ---- the source ----

// active: a request that holds memory, or a free slot of the table. Pages are chained from first to last. With layout
// region the slot's number is the block, and `pages` counts its tokens.
typedef struct active {
  uint32_t request;
  uint32_t pages;
  uint32_t first_page, last_page;
} active;

// due: the next thing that an active request does; the heap's root is the earliest, frees before growth, then in order
// of arrival.
typedef struct due {
  int64_t ticks;
  bool grows;
  uint32_t slot;
} due;

typedef struct service {
  service_options options;
  service_requests requests;
  uint64_t token_bytes, page_bytes;
  bool failed;

  size_t next_request;
  active *slots;
  uint32_t num_slots, slots_capacity, free_slot;  // free slots are chained through first_page
  due *heap;
  size_t heap_count, heap_capacity;
  uint32_t *page_next;  // by block: the next page of the same request, or of the list of free numbers
  uint32_t num_blocks, blocks_capacity, free_block;
  // What is being emitted: `burst` events of one kind for the request in burst_slot.
  uint32_t burst, burst_slot;
  trace_event_kind burst_kind;
  int64_t burst_ticks;
} service;

static const service_request *request_of(const service *s, uint32_t slot) {
  return &s->requests.items[s->slots[slot].request];
}

static int64_t prefill_end(const service_request *r) {
  return r->arrival_ticks + r->prompt_tokens * TICKS_PER_PROMPT_TOKEN;
}

static uint64_t pages_for(const service *s, uint64_t tokens) {
  return (tokens + s->options.page_tokens - 1) / s->options.page_tokens;
}

static bool due_before(const service *s, due a, due b) {
  if (a.ticks != b.ticks) return a.ticks < b.ticks;
  if (a.grows != b.grows) return b.grows;
  return s->slots[a.slot].request < s->slots[b.slot].request;
}

static void heap_push(service *s, due item) {
  if (s->heap_count == s->heap_capacity) {
    const size_t capacity = s->heap_capacity == 0 ? 128 : s->heap_capacity * 2;
    due *heap = reallocarray(s->heap, capacity, sizeof(*heap));
    if (heap == NULL) {
      s->failed = true;
      return;
    }
    s->heap = heap;
    s->heap_capacity = capacity;
  }
  size_t i = s->heap_count++;
  while (i > 0 && due_before(s, item, s->heap[(i - 1) / 2])) {
    s->heap[i] = s->heap[(i - 1) / 2];
    i = (i - 1) / 2;
  }
  s->heap[i] = item;
}

static due heap_pop(service *s) {
  const due root = s->heap[0], last = s->heap[--s->heap_count];
  size_t i = 0;
  for (;;) {
    size_t child = 2 * i + 1;
    if (child >= s->heap_count) break;
    if (child + 1 < s->heap_count && due_before(s, s->heap[child + 1], s->heap[child])) child++;
    if (!due_before(s, s->heap[child], last)) break;
    s->heap[i] = s->heap[child];
    i = child;
  }
  if (s->heap_count > 0) s->heap[i] = last;
  return root;
}

static uint32_t take_slot(service *s) {
  if (s->free_slot != NO_BLOCK) {
    const uint32_t slot = s->free_slot;
    s->free_slot = s->slots[slot].first_page;
    return slot;
  }
  if (s->num_slots == s->slots_capacity) {
    const uint32_t capacity = s->slots_capacity == 0 ? 128 : s->slots_capacity * 2;
    active *slots = reallocarray(s->slots, capacity, sizeof(*slots));
    if (slots == NULL) {
      s->failed = true;
      return NO_BLOCK;
    }
    s->slots = slots;
    s->slots_capacity = capacity;
  }
  return s->num_slots++;
}

static uint32_t take_block(service *s) {
  if (s->free_block != NO_BLOCK) {
    const uint32_t block = s->free_block;
    s->free_block = s->page_next[block];
    return block;
  }
  if (s->num_blocks == s->blocks_capacity) {
    const uint32_t capacity = s->blocks_capacity == 0 ? 4096 : s->blocks_capacity * 2;
    uint32_t *next = reallocarray(s->page_next, capacity, sizeof(*next));
    if (next == NULL) {
      s->failed = true;
      return NO_BLOCK;
    }
    s->page_next = next;
    s->blocks_capacity = capacity;
  }
  return s->num_blocks++;
}

// plan_next queues the next action of an active request: its next page, or its end.
static void plan_next(service *s, uint32_t slot) {
  const service_request *r = request_of(s, slot);
  uint64_t token = r->output_tokens;  // the one with which it happens
  bool grows = false;
  if (s->options.layout != SERVICE_CONTIGUOUS) {
    const uint64_t full = (uint64_t)s->slots[slot].pages * s->options.page_tokens;
    grows = full < (uint64_t)r->prompt_tokens + r->output_tokens;
    if (grows) token = full + 1 - r->prompt_tokens;
  }
  heap_push(s, (due){.ticks = prefill_end(r) + (int64_t)token * TICKS_PER_OUTPUT_TOKEN, .grows = grows, .slot = slot});
}

static void start_burst(service *s, uint32_t slot, trace_event_kind kind, uint64_t count, int64_t ticks) {
  s->burst = (uint32_t)count;
  s->burst_slot = slot;
  s->burst_kind = kind;
  s->burst_ticks = ticks;
}

static void arrive(service *s) {
  const uint32_t slot = take_slot(s);
  if (s->failed) return;
  const service_request *r = &s->requests.items[s->next_request];
  s->slots[slot] = (active){.request = (uint32_t)s->next_request++, .first_page = NO_BLOCK, .last_page = NO_BLOCK};
  const uint64_t count = s->options.layout == SERVICE_PAGED ? pages_for(s, r->prompt_tokens) : 1;
  start_burst(s, slot, TRACE_ALLOC, count, r->arrival_ticks);
  if (count == 0) plan_next(s, slot);  // an empty prompt
}

static void end_request(service *s, uint32_t slot) {
  s->slots[slot].first_page = s->free_slot;
  s->free_slot = slot;
}

// advance starts the next burst; false when nothing is left.
static bool advance(service *s) {
  const bool arrivals = s->next_request < s->requests.count;
  const bool actions = s->heap_count > 0;
  if (!arrivals && !actions) return false;
  // A free at the time of an arrival comes first; growth is an allocation, and the earlier request goes first.
  if (arrivals && (!actions || s->requests.items[s->next_request].arrival_ticks < s->heap[0].ticks)) {
    arrive(s);
    return true;
  }
  const due next = heap_pop(s);
  if (s->options.layout == SERVICE_REGION) {
    start_burst(s, next.slot, next.grows ? TRACE_GROW : TRACE_FREE, 1, next.ticks);
  } else if (next.grows) {
    start_burst(s, next.slot, TRACE_ALLOC, 1, next.ticks);
  } else if (s->slots[next.slot].pages == 0) {
    end_request(s, next.slot);
  } else {
    start_burst(s, next.slot, TRACE_FREE, s->slots[next.slot].pages, next.ticks);
  }
  return true;
}

static uint64_t block_bytes(const service *s, uint32_t slot) {
  const service_request *r = request_of(s, slot);
  if (s->options.layout == SERVICE_PAGED) return s->page_bytes;
  return ((uint64_t)r->prompt_tokens + r->output_tokens) * s->token_bytes;
}

static uint32_t burst_alloc(service *s, active *slot) {
  const uint32_t block = take_block(s);
  if (s->failed) return NO_BLOCK;
  s->page_next[block] = NO_BLOCK;
  if (slot->last_page == NO_BLOCK) {
    slot->first_page = block;
  } else {
    s->page_next[slot->last_page] = block;
  }
  slot->last_page = block;
  slot->pages++;
  if (--s->burst == 0) plan_next(s, s->burst_slot);
  return block;
}

static uint32_t burst_free(service *s, active *slot) {
  const uint32_t block = slot->first_page;
  slot->first_page = s->page_next[block];
  s->page_next[block] = s->free_block;
  s->free_block = block;
  if (--s->burst == 0) end_request(s, s->burst_slot);
  return block;
}

// region_event is the one event of a burst with layout region.
static trace_event region_event(service *s) {
  const uint32_t slot = s->burst_slot;
  active *at = &s->slots[slot];
  trace_event event = {.t_us = s->burst_ticks / SERVICE_TICKS_PER_US, .block = slot, .kind = (uint8_t)s->burst_kind};
  s->burst = 0;
  if (s->burst_kind == TRACE_FREE) {
    event.bytes = at->pages * s->token_bytes;
    end_request(s, slot);
    return event;
  }
  const uint32_t added = s->burst_kind == TRACE_ALLOC ? request_of(s, slot)->prompt_tokens : 1;
  event.bytes = added * s->token_bytes;
  at->pages += added;
  plan_next(s, slot);
  return event;
}

static bool service_next(void *self, trace_event *out_event) {
  service *s = self;
  while (s->burst == 0 && !s->failed) {
    if (!advance(s)) return false;
  }
  if (s->failed) return false;
  if (s->options.layout == SERVICE_REGION) {
    *out_event = region_event(s);
    return !s->failed;
  }
  const uint64_t bytes = block_bytes(s, s->burst_slot);
  active *slot = &s->slots[s->burst_slot];
  const trace_event_kind kind = s->burst_kind;
  const int64_t t_us = s->burst_ticks / SERVICE_TICKS_PER_US;
  const uint32_t block = kind == TRACE_ALLOC ? burst_alloc(s, slot) : burst_free(s, slot);
  if (s->failed) return false;
  *out_event = (trace_event){.bytes = bytes, .t_us = t_us, .block = block, .kind = (uint8_t)kind};
  return true;
}

static void service_rewind(void *self) {
  service *s = self;
  s->next_request = 0;
  s->num_slots = 0;
  s->free_slot = NO_BLOCK;
  s->heap_count = 0;
  s->num_blocks = 0;
  s->free_block = NO_BLOCK;
  s->burst = 0;
}

static void service_close(void *self) {
  service *s = self;
  service_requests_destroy(&s->requests);
  free(s->slots);
  free(s->heap);
  free(s->page_next);
  free(s);
}

bool service_get_info(const trace_source *source, service_info *out_info) {
  if (source->next != service_next) return false;
  const service *s = source->self;
  *out_info = (service_info){.layout = s->options.layout,
                             .token_bytes = s->token_bytes,
                             .layers = s->options.model->layers,
                             .has_prefixes = s->requests.num_prefixes > 0};
  for (size_t i = 0; i < s->requests.count; i++) {
    const uint64_t tokens = (uint64_t)s->requests.items[i].prompt_tokens + s->requests.items[i].output_tokens;
    if (tokens > out_info->longest_tokens) out_info->longest_tokens = tokens;
  }
  return true;
}

const uint64_t *service_prefixes_of(const trace_source *source, uint32_t block, size_t *out_count) {
  const service *s = source->self;
  const service_request *r = request_of(s, block);
  const size_t whole = r->prompt_tokens / SERVICE_PREFIX_TOKENS;
  *out_count = whole < r->num_prefixes ? whole : r->num_prefixes;
  return s->requests.prefixes + r->first_prefix;
}

bool service_failed(const trace_source *source) {
  return source->next == service_next && ((const service *)source->self)->failed;
}

// ---- opening ----

static int by_arrival(const void *left, const void *right) {
  const service_request *a = left, *b = right;
  if (a->arrival_ticks != b->arrival_ticks) return a->arrival_ticks < b->arrival_ticks ? -1 : 1;
  return a->order < b->order ? -1 : a->order > b->order;
}

static uint64_t count_events(const service *s) {
  if (s->options.layout == SERVICE_CONTIGUOUS) return 2 * (uint64_t)s->requests.count;
  if (s->options.layout == SERVICE_REGION) {
    uint64_t events = 2 * (uint64_t)s->requests.count;
    for (size_t i = 0; i < s->requests.count; i++) events += s->requests.items[i].output_tokens;
    return events;
  }
  uint64_t pages = 0;
  for (size_t i = 0; i < s->requests.count; i++) {
    pages += pages_for(s, (uint64_t)s->requests.items[i].prompt_tokens + s->requests.items[i].output_tokens);
  }
  return 2 * pages;
}

static bool set_sizes(service *s, tool_error *error) {
  if (s->options.layout == SERVICE_NO_LAYOUT || s->options.model == NULL) {
    return tool_fail(error, "requests need a layout (contiguous, paged or region) and a model");
  }
  if (s->options.element_bytes == 0) s->options.element_bytes = 2;
  if (s->options.page_tokens == 0) s->options.page_tokens = 16;
  if (s->options.layout == SERVICE_REGION) s->options.page_tokens = 1;
  s->token_bytes = model_kv_bytes_per_token(s->options.model, s->options.element_bytes);
  uint64_t largest;
  if (!vmp_mul(s->token_bytes, s->options.page_tokens, &s->page_bytes) ||
      !vmp_mul(s->token_bytes, 2 * SERVICE_MAX_TOKENS, &largest)) {
    return tool_fail(error, "a page of %" PRIu32 " tokens of %s is over 2^64 bytes", s->options.page_tokens,
                     s->options.model->name);
  }
  return true;
}

bool service_open(service_requests *requests, const service_options *options, trace_source *out_source,
                  uint64_t *out_num_events, tool_error *error) {
  service *s = calloc(1, sizeof(*s));
  if (s == NULL || requests->failed) {
    free(s);
    service_requests_destroy(requests);
    return tool_fail(error, "host memory ran out for the requests");
  }
  s->options = *options;
  s->requests = *requests;
  memset(requests, 0, sizeof(*requests));
  if (!set_sizes(s, error)) {
    service_close(s);
    return false;
  }
  if (s->requests.count > 0) qsort(s->requests.items, s->requests.count, sizeof(s->requests.items[0]), by_arrival);
  service_rewind(s);
  *out_num_events = count_events(s);
  *out_source = (trace_source){.self = s, .next = service_next, .rewind = service_rewind, .close = service_close};
  return true;
}
