// host_order.c: are two accesses to the same memory ordered? (option `check_order`)
//
// Problem: a pool that hands memory from one stream to another without a wait touches nothing unmapped, so rights and
// generations don't show it; whether the bytes come out wrong depends on luck.
// Approach: vector clocks over streams, as race detectors have them over threads. Every stream has a slot; its clock
// says, for each slot, up to which operation (by sequence) that stream's work comes before its own next operation.
//
//     record e on t           e keeps t's clock and t's own position
//     stream s waits for e    s's clock takes the maximum with e's
//     host waits, or a query  the host's clock takes the maximum with the stream's or event's; every later operation
//     gives "done"            on any stream begins with at least the host's clock
//     legacy stream           it and the blocking streams of its context take each other's clocks
//
// Each handle remembers, by ranges of its bytes, the last write and the last reads. An access conflicts if it meets a
// write (or, being a write, a read) of another stream that its own stream's clock doesn't cover. Memory is looked at
// by handle, so an old mapping's queued work conflicts with a new mapping's too.
// Limitations: with more than 64 streams at a time the check ends for good; of a range's readers two are kept. What is
// told is true under any timing; not everything is told. Which host thread waited makes no difference.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/host_model.h"

#define NO_SLOT VMP_HOST_ORDER_SLOTS
#define TOLD_CONFLICTS 256u  // of more than that only the number is kept

// One stream's access: `sequence` 0 is none.
typedef struct mark {
  uint64_t sequence;
  uint64_t access;  // the stream's access number so many
  uint32_t slot;
} mark;

// What happened last to the bytes [begin, end) of a handle.
struct vmp_host_span {
  uint64_t begin, end;
  mark write;
  mark reads[2];
};

// ---- clocks ----

// Without a slot or memory some order would go unknown, and what is ordered would be told as unordered.
static void give_up(vmp_host *host) { host->options.check_order = 0; }

static void join(uint64_t *into, const uint64_t *from) {
  for (unsigned i = 0; i < VMP_HOST_ORDER_SLOTS; i++) {
    if (from[i] > into[i]) into[i] = from[i];
  }
}

// An event recorded before the check was switched on: what it covers is unknown, so it covers everything so far.
static void join_all(const vmp_host *host, uint64_t *into) {
  for (unsigned i = 0; i < VMP_HOST_ORDER_SLOTS; i++) into[i] = host->counters.operations_queued;
}

// The stream's slot, given at its first access or record. A slot is used again when its stream has gone; marks of the
// old stream then count as the new one's, which hides conflicts and invents none.
static uint32_t slot_of(vmp_host *host, vmp_host_stream *stream) {
  if (stream->order_slot != 0) return stream->order_slot - 1;
  for (uint32_t i = 0; i < VMP_HOST_ORDER_SLOTS; i++) {
    const vmp_host_stream *owner = host->order_owners[i];
    if (owner != NULL && owner->uid == host->order_uids[i]) continue;
    if (host->order_clocks[i] == NULL) host->order_clocks[i] = calloc(VMP_HOST_ORDER_SLOTS, sizeof(uint64_t));
    if (host->order_clocks[i] == NULL) break;
    memset(host->order_clocks[i], 0, VMP_HOST_ORDER_SLOTS * sizeof(uint64_t));
    host->order_accesses[i] = 0;
    vmp_host_cover_forget(host, i);
    host->order_owners[i] = stream;
    host->order_uids[i] = stream->uid;
    stream->order_slot = i + 1;
    return i;
  }
  give_up(host);
  return NO_SLOT;
}

// The clock with which the next operation of a stream begins.
static uint64_t *begin_operation(vmp_host *host, vmp_host_stream *stream, uint32_t slot) {
  uint64_t *clock = host->order_clocks[slot];
  join(clock, host->order_host);
  if (stream->kind == VMP_HOST_STREAM_LEGACY) {
    for (uint32_t i = 0; i < VMP_HOST_ORDER_SLOTS; i++) {
      const vmp_host_stream *other = host->order_owners[i];
      if (other == NULL || other->uid != host->order_uids[i] || other->device != stream->device ||
          !vmp_host_orders_with_legacy(host, other)) {
        continue;
      }
      join(clock, host->order_clocks[i]);
    }
  } else if (vmp_host_orders_with_legacy(host, stream)) {
    const vmp_host_stream *legacy = host->contexts[stream->device].legacy;
    if (legacy != NULL && legacy->order_slot != 0) join(clock, host->order_clocks[legacy->order_slot - 1]);
  }
  return clock;
}

void vmp_host_order_record(vmp_host *host, vmp_host_stream *stream, vmp_host_event *event) {
  if (host->options.check_order == 0) return;
  uint32_t slot = slot_of(host, stream);
  if (event->order == NULL) event->order = calloc(VMP_HOST_ORDER_SLOTS, sizeof(uint64_t));
  if (slot == NO_SLOT || event->order == NULL) {
    give_up(host);
    return;
  }
  uint64_t *clock = begin_operation(host, stream, slot);
  clock[slot] = host->counters.operations_queued + 1;  // the record itself
  memcpy(event->order, clock, VMP_HOST_ORDER_SLOTS * sizeof(uint64_t));
  event->order_slot = slot;
  event->order_accesses = host->order_accesses[slot];
}

void vmp_host_order_wait(vmp_host *host, vmp_host_stream *stream, const vmp_host_event *event) {
  if (host->options.check_order == 0) return;
  uint32_t slot = slot_of(host, stream);
  if (slot == NO_SLOT) return;
  uint64_t *clock = begin_operation(host, stream, slot);
  if (event->order != NULL) {
    uint64_t before = clock[event->order_slot];
    join(clock, event->order);
    vmp_host_cover_add(host, slot, event->order_slot, before, clock[event->order_slot], event->order_accesses);
  } else {
    join_all(host, clock);
  }
}

void vmp_host_order_seen_event(vmp_host *host, const vmp_host_event *event) {
  if (host->options.check_order == 0 || !event->recorded) return;
  if (event->order != NULL) {
    join(host->order_host, event->order);
  } else {
    join_all(host, host->order_host);
  }
}

void vmp_host_order_seen_stream(vmp_host *host, vmp_host_stream *stream) {
  if (host->options.check_order == 0 || stream->order_slot == 0) return;
  uint32_t slot = stream->order_slot - 1;
  join(host->order_host, begin_operation(host, stream, slot));
  host->order_host[slot] = host->counters.operations_queued;
}

void vmp_host_order_seen_device(vmp_host *host, int device) {
  if (host->options.check_order == 0) return;
  for (uint32_t i = 0; i < VMP_HOST_ORDER_SLOTS; i++) {
    vmp_host_stream *stream = host->order_owners[i];
    if (stream != NULL && stream->uid == host->order_uids[i] && stream->device == device) {
      vmp_host_order_seen_stream(host, stream);
    }
  }
}

// ---- one handle's spans, sorted and disjoint ----

static bool make_room(vmp_host_handle *handle, uint32_t more) {
  return vmp_host_grow32(&handle->spans, &handle->cap_spans, (size_t)handle->num_spans + more, sizeof *handle->spans);
}

static void insert_span(vmp_host_handle *handle, uint32_t at, const vmp_host_span *span) {
  memmove(handle->spans + at + 1, handle->spans + at, (handle->num_spans - at) * sizeof *span);
  handle->spans[at] = *span;
  handle->num_spans++;
}

// The first span that ends behind `offset`.
static uint32_t first_span(const vmp_host_handle *handle, uint64_t offset) {
  uint32_t low = 0;
  uint32_t high = handle->num_spans;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (handle->spans[middle].end <= offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Cuts the span that `offset` lies inside, if any. Needs room for one more.
static void cut_at(vmp_host_handle *handle, uint64_t offset) {
  uint32_t at = first_span(handle, offset);
  if (at == handle->num_spans || handle->spans[at].begin >= offset) return;
  vmp_host_span right = handle->spans[at];
  right.begin = offset;
  handle->spans[at].end = offset;
  insert_span(handle, at + 1, &right);
}

static void note_read(vmp_host_span *span, mark read) {
  mark *oldest = &span->reads[0];
  for (unsigned i = 0; i < 2; i++) {
    if (span->reads[i].sequence == 0 || span->reads[i].slot == read.slot) {
      span->reads[i] = read;
      return;
    }
    if (span->reads[i].sequence < oldest->sequence) oldest = &span->reads[i];
  }
  *oldest = read;
}

static void note_write(vmp_host_handle *handle, uint64_t begin, uint64_t end, mark write) {
  uint32_t first = first_span(handle, begin);
  uint32_t last = first;
  while (last < handle->num_spans && handle->spans[last].begin < end) last++;
  vmp_host_span span = {.begin = begin, .end = end, .write = write};
  if (last == first) {
    insert_span(handle, first, &span);
    return;
  }
  handle->spans[first] = span;
  memmove(handle->spans + first + 1, handle->spans + last, (handle->num_spans - last) * sizeof span);
  handle->num_spans -= last - first - 1;
}

static void note_reads(vmp_host_handle *handle, uint64_t begin, uint64_t end, mark read) {
  uint32_t at = first_span(handle, begin);
  while (begin < end) {
    bool gap = at == handle->num_spans || handle->spans[at].begin > begin;
    if (gap) {
      uint64_t until = at == handle->num_spans || handle->spans[at].begin > end ? end : handle->spans[at].begin;
      vmp_host_span span = {.begin = begin, .end = until};
      if (!make_room(handle, 1)) return;  // a read is forgotten: a conflict may go untold
      insert_span(handle, at, &span);
    }
    note_read(&handle->spans[at], read);
    begin = handle->spans[at++].end;
  }
}

// ---- conflicts ----

static bool is_before(const uint64_t *clock, mark earlier, uint32_t slot) {
  return earlier.sequence == 0 || earlier.slot == slot || clock[earlier.slot] >= earlier.sequence;
}

static void report_conflict(vmp_host *host, const vmp_host_stream *stream, uint64_t address, bool write, mark earlier,
                            bool earlier_write) {
  host->counters.unordered++;
  if (host->counters.unordered > TOLD_CONFLICTS) {
    host->counters.violations++;
    return;
  }
  char site[64];
  vmp_host_describe_site(host->site, site, sizeof site);
  (void)vmp_host_break(
      host, 64, 0,
      "%s at %#llx on stream %#llx (queued at %s) is not ordered behind operation %llu, a %s on stream "
      "%#llx",
      write ? "write" : "read", (unsigned long long)address, (unsigned long long)stream->value, site,
      (unsigned long long)earlier.sequence, earlier_write ? "write" : "read",
      (unsigned long long)host->order_owners[earlier.slot]->value);
}

// Looks for one conflict of an access to [begin, end); one is enough to tell.
static void look_for_conflict(vmp_host *host, const vmp_host_stream *stream, const vmp_host_handle *handle,
                              uint64_t begin, uint64_t end, const uint64_t *clock, uint32_t slot, bool write,
                              uint64_t address) {
  for (uint32_t i = first_span(handle, begin); i < handle->num_spans && handle->spans[i].begin < end; i++) {
    const vmp_host_span *span = &handle->spans[i];
    uint64_t at = address + (span->begin > begin ? span->begin - begin : 0);
    if (!is_before(clock, span->write, slot)) {
      report_conflict(host, stream, at, write, span->write, true);
      return;
    }
    for (unsigned j = 0; write && j < 2; j++) {
      if (is_before(clock, span->reads[j], slot)) continue;
      report_conflict(host, stream, at, write, span->reads[j], false);
      return;
    }
  }
}

// note_covers tells what the access of a stream is ordered behind, and so what it has waited for.
static void note_covers(vmp_host *host, const vmp_host_handle *handle, uint64_t begin, uint64_t end, uint32_t slot,
                        bool write) {
  for (uint32_t i = first_span(handle, begin); i < handle->num_spans && handle->spans[i].begin < end; i++) {
    const vmp_host_span *span = &handle->spans[i];
    vmp_host_cover_meet(host, slot, span->write.slot, span->write.sequence, span->write.access);
    for (unsigned j = 0; write && j < 2; j++) {
      vmp_host_cover_meet(host, slot, span->reads[j].slot, span->reads[j].sequence, span->reads[j].access);
    }
  }
}

void vmp_host_order_access(vmp_host *host, vmp_host_stream *stream, const vmp_host_op *op) {
  if (host->options.check_order == 0) return;
  uint32_t slot = slot_of(host, stream);
  if (slot == NO_SLOT) return;
  uint64_t *clock = begin_operation(host, stream, slot);
  clock[slot] = op->sequence;
  host->order_accesses[slot]++;
  vmp_host_access accesses[2];
  unsigned count = vmp_host_accesses(op, accesses);
  for (unsigned i = 0; i < count; i++) {
    uint64_t address = accesses[i].ptr;
    uint64_t end = accesses[i].bytes > UINT64_MAX - address ? UINT64_MAX : address + accesses[i].bytes;
    const vmp_host_mapping *mapping;
    while ((mapping = vmp_host_next_in_range(host, &address, end)) != NULL) {
      vmp_host_handle *handle = &host->handles[mapping->handle];
      uint64_t mapping_end = mapping->base + mapping->bytes;
      uint64_t first = address - mapping->base;
      uint64_t last = (mapping_end < end ? mapping_end : end) - mapping->base;
      look_for_conflict(host, stream, handle, first, last, clock, slot, accesses[i].write, address);
      note_covers(host, handle, first, last, slot, accesses[i].write);
      address = mapping_end;
      if (!make_room(handle, 3)) continue;
      cut_at(handle, first);
      cut_at(handle, last);
      mark own = {op->sequence, host->order_accesses[slot], slot};
      if (accesses[i].write) {
        note_write(handle, first, last, own);
      } else {
        note_reads(handle, first, last, own);
      }
    }
  }
}

void vmp_host_check_order(vmp_driver *driver, bool check) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  host->options.check_order = check ? 1 : 0;
  pthread_mutex_unlock(&host->lock);
}

void vmp_host_order_forget(vmp_host_handle *handle) {
  free(handle->spans);
  handle->spans = NULL;
  handle->num_spans = 0;
  handle->cap_spans = 0;
}

void vmp_host_order_close(vmp_host *host) {
  vmp_host_cover_close(host);
  for (uint32_t i = 0; i < VMP_HOST_ORDER_SLOTS; i++) free(host->order_clocks[i]);
  for (uint32_t i = 0; i < host->num_handle_records; i++) vmp_host_order_forget(&host->handles[i]);
  for (uint32_t i = 0; i < host->num_event_records; i++) free(host->events[i].order);
}
