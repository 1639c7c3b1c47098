// Vidur's processed traces: `num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio`. They hold lengths only,
// so arrivals are made evenly, `request_rate` a second.
#include "tools/trace/formats.h"

#define COLUMNS "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio"

static bool read_row(reading *r, uint64_t index, double ticks_between) {
  text_span f[4];
  service_request request = {0};
  uint64_t total;
  if (!reading_fields(r, f, 4, COLUMNS) || !reading_tokens(r, "num_prefill_tokens", f[0], &request.prompt_tokens) ||
      !reading_tokens(r, "num_decode_tokens", f[1], &request.output_tokens) ||
      !input_number(r->in, "num_total_tokens", f[2], &total)) {
    return false;
  }
  if (total != (uint64_t)request.prompt_tokens + request.output_tokens) {
    return input_fail_field(r->in, "num_total_tokens", f[2], "is not the sum of the two before it");
  }
  const double ticks = (double)index * ticks_between;
  if (ticks > (double)SERVICE_MAX_ARRIVAL_TICKS)
    return input_fail(r->in, "at this request rate the request arrives too late");
  request.arrival_ticks = (int64_t)ticks;
  service_requests_append(r->requests, request);
  return true;
}

bool read_vidur(reading *r) {
  const double rate = r->options->request_rate > 0 ? r->options->request_rate : 2;
  bool good = input_next_line(r->in);  // the header
  for (uint64_t index = 0; good && input_next_line(r->in); index++) {
    good = read_row(r, index, 1e6 * SERVICE_TICKS_PER_US / rate);
  }
  return good;
}
