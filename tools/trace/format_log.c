// vmpool's event log (pool/log_format.h): its ALLOC and FREE records. A block that was live before the log began, and
// one that was freed while records are missing, is counted when it is freed (unmatched_frees) and makes no event; what
// a ring has lost is a remark.
#include <inttypes.h>

#include "tools/log/log_file.h"
#include "tools/trace/formats.h"

typedef struct log_reading {
  reading *r;
  log_file log;
  id_map live;

} log_reading;

static bool fail(log_reading *l, uint64_t sequence, const char *what) {
  return tool_fail(l->r->in->error, "%s: record %" PRIu64 " %s", l->r->in->name, sequence, what);
}

// Another block at the same address: the free of the first one is missing.
static bool end_block(log_reading *l, const vmp_log_record *record, int64_t t_us) {
  const uint32_t *block = id_map_find(&l->live, record->as.event.address);
  if (block == NULL) return true;
  trace_list_free(l->r->list, *block, t_us);
  id_map_erase(&l->live, record->as.event.address);
  return true;
}

static bool stream_of(log_reading *l, const vmp_log_record *record, uint16_t *out) {
  *out = 0;
  if (record->stream == VMP_LOG_NONE) return true;
  if (record->stream >= 64) return fail(l, record->sequence, "names a stream above 63; the file is damaged");
  return reading_stream(l->r, record->stream, out);
}

static bool read_alloc(log_reading *l, const vmp_log_record *record, int64_t t_us) {
  const uint64_t bytes = record->as.event.extra;
  uint16_t stream = 0;
  if (bytes == 0 || bytes > INT64_MAX) return fail(l, record->sequence, "allocates an impossible number of bytes");
  if (!stream_of(l, record, &stream) || !end_block(l, record, t_us)) return false;
  const uint32_t block = trace_list_alloc(l->r->list, bytes, stream, t_us);
  return id_map_put(&l->live, record->as.event.address, block) || reading_memory(l->r);
}

static bool read_free(log_reading *l, const vmp_log_record *record, int64_t t_us) {
  uint16_t stream = 0;
  const uint32_t *block = id_map_find(&l->live, record->as.event.address);
  if (block == NULL) {
    l->r->list->unmatched_frees++;
    return true;
  }
  if (!stream_of(l, record, &stream)) return false;
  trace_list_free_on(l->r->list, *block, stream, t_us);
  id_map_erase(&l->live, record->as.event.address);
  return true;
}

static bool read_records(log_reading *l) {
  vmp_log_record record;
  bool good = true;
  for (uint64_t s = l->log.first; s < l->log.end && good; s++) {
    if (!log_record(&l->log, s, &record)) continue;
    const int64_t t_us = (int64_t)(record.time_ns / 1000);
    const bool state = (record.flags & VMP_LOG_STATE) != 0;
    if (record.kind == VMP_LOG_ALLOC && !state) good = read_alloc(l, &record, t_us);
    if (record.kind == VMP_LOG_FREE) good = read_free(l, &record, t_us);
  }
  return good;
}

bool read_log(reading *r) {
  log_reading l = {.r = r};
  if (!log_parse(&l.log, r->in->name, r->in->text, r->in->bytes, r->in->error)) return false;
  const bool good = read_records(&l);
  if (good && l.log.first + l.log.missing + l.log.header.dropped > 0) {
    tool_fail(&r->remark, "%s: %" PRIu64 " records are missing from the log; blocks of that time are missing here too",
              r->in->name, l.log.first + l.log.missing + l.log.header.dropped);
  }
  id_map_destroy(&l.live);
  log_destroy(&l.log);
  return good;
}
