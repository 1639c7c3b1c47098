// host_check.c: the model's own invariants (the contract's bookkeeping rules), all of them, whatever is broken.
#include <stdlib.h>
#include <string.h>

#include "vmm/host_model.h"

#define LL(value) ((unsigned long long)(value))

static void check_reservations(const vmp_host *host, vmp_report *report) {
  uint64_t reserved = 0;
  for (size_t i = 0; i < host->num_reservations; i++) {
    const vmp_host_reservation *reservation = host->reservations[i];
    if (!reservation->internal) reserved += reservation->bytes;
    if (i > 0) {
      const vmp_host_reservation *before = host->reservations[i - 1];
      if (before->base + before->bytes > reservation->base) {
        vmp_report_fault(report, "reservations %#llx and %#llx overlap or are not sorted", LL(before->base),
                         LL(reservation->base));
      }
    }
  }
  if (reserved != host->reserved_bytes) {
    vmp_report_fault(report, "reserved_bytes is %llu, the reservations have %llu", LL(host->reserved_bytes),
                     LL(reserved));
  }
}

// Every slot's id must name a mapping that covers it; the slots of each mapping are counted in `slots`.
static void check_slots(const vmp_host *host, const vmp_host_reservation *reservation, uint64_t *slots,
                        vmp_report *report) {
  for (uint64_t i = 0; i < reservation->num_leaves; i++) {
    for (uint64_t j = 0; reservation->leaves[i] != NULL && j < VMP_HOST_LEAF_SLOTS; j++) {
      uint32_t id = reservation->leaves[i]->ids[j];
      if (id == 0) continue;
      uint64_t address = reservation->base + (i * VMP_HOST_LEAF_SLOTS + j) * host->unit_bytes;
      if (id >= host->num_mapping_records || host->mappings[id].bytes == 0) {
        vmp_report_fault(report, "the slot at %#llx names mapping %u, which doesn't exist", LL(address), id);
      } else if (host->mappings[id].reservation != reservation ||
                 address - host->mappings[id].base >= host->mappings[id].bytes) {
        vmp_report_fault(report, "the slot at %#llx names the mapping at %#llx, which doesn't cover it", LL(address),
                         LL(host->mappings[id].base));
      } else {
        slots[id]++;
      }
    }
  }
}

static void check_mapping(const vmp_host *host, uint32_t id, const uint64_t *slots, vmp_report *report) {
  const vmp_host_mapping *mapping = &host->mappings[id];
  const vmp_host_reservation *reservation = mapping->reservation;
  if (mapping->base < reservation->base || mapping->base + mapping->bytes > reservation->base + reservation->bytes) {
    vmp_report_fault(report, "the mapping at %#llx leaves its reservation", LL(mapping->base));
  }
  if (slots[id] != mapping->bytes / host->unit_bytes) {
    vmp_report_fault(report, "the mapping at %#llx has %llu slots in the index, not %llu", LL(mapping->base),
                     LL(slots[id]), LL(mapping->bytes / host->unit_bytes));
  }
  if ((mapping->write_mask & ~mapping->read_mask) != 0) {
    vmp_report_fault(report, "the mapping at %#llx may be written by a device that may not read it", LL(mapping->base));
  }
  if (mapping->handle >= host->num_handle_records || host->handles[mapping->handle].bytes == 0) {
    vmp_report_fault(report, "the mapping at %#llx has a dead handle", LL(mapping->base));
  } else if (mapping->bytes > host->handles[mapping->handle].bytes) {
    vmp_report_fault(report, "the mapping at %#llx is larger than its handle", LL(mapping->base));
  }
}

static void check_mappings(const vmp_host *host, uint64_t *slots, uint64_t *uses, vmp_report *report) {
  uint64_t live = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < host->num_reservations; i++) check_slots(host, host->reservations[i], slots, report);
  for (uint32_t id = 1; id < host->num_mapping_records; id++) {
    const vmp_host_mapping *mapping = &host->mappings[id];
    if (mapping->bytes == 0) continue;
    live++;
    bytes += mapping->bytes;
    check_mapping(host, id, slots, report);
    if (mapping->handle < host->num_handle_records) uses[mapping->handle]++;
  }
  if (live != host->live_mappings) {
    vmp_report_fault(report, "live_mappings is %llu, there are %llu", LL(host->live_mappings), LL(live));
  }
  if (bytes != host->mapped_bytes) {
    vmp_report_fault(report, "mapped_bytes is %llu, the mappings have %llu", LL(host->mapped_bytes), LL(bytes));
  }
}

static void check_counts_of_reservations(const vmp_host *host, vmp_report *report) {
  for (size_t i = 0; i < host->num_reservations; i++) {
    uint64_t count = 0;
    for (uint32_t id = 1; id < host->num_mapping_records; id++) {
      count += host->mappings[id].bytes != 0 && host->mappings[id].reservation == host->reservations[i];
    }
    if (count != host->reservations[i]->num_mappings) {
      vmp_report_fault(report, "the reservation at %#llx counts %llu mappings, there are %llu",
                       LL(host->reservations[i]->base), LL(host->reservations[i]->num_mappings), LL(count));
    }
  }
}

static void check_handles(const vmp_host *host, const uint64_t *uses, vmp_report *report) {
  uint64_t live = 0;
  uint64_t used[VMP_HOST_MAX_DEVICES] = {0};
  for (uint32_t i = 0; i < host->num_handle_records; i++) {
    const vmp_host_handle *handle = &host->handles[i];
    if (handle->bytes == 0) continue;
    live++;
    used[handle->device] += handle->bytes;
    uint64_t exports = 0;
    for (size_t j = 0; j < host->num_exports; j++) exports += host->exports[j].handle == i;
    if (handle->mappings != uses[i]) {
      vmp_report_fault(report, "handle %#llx counts %llu mappings, there are %llu", LL(handle->value),
                       LL(handle->mappings), LL(uses[i]));
    }
    if (handle->exports != exports) {
      vmp_report_fault(report, "handle %#llx counts %llu exports, there are %llu", LL(handle->value),
                       LL(handle->exports), LL(exports));
    }
    if (handle->refs == 0 && handle->mappings == 0 && handle->exports == 0) {
      vmp_report_fault(report, "handle %#llx is alive though nothing refers to it", LL(handle->value));
    }
    if (handle->offset + handle->bytes > host->next_offset) {
      vmp_report_fault(report, "handle %#llx lies behind the end of what was handed out", LL(handle->value));
    }
  }
  if (live != host->live_handles) {
    vmp_report_fault(report, "live_handles is %llu, there are %llu", LL(host->live_handles), LL(live));
  }
  for (int i = 0; i < host->num_devices; i++) {
    if (used[i] == host->devices[i].used_bytes) continue;
    vmp_report_fault(report, "device %d has %llu bytes in use, its handles have %llu", i,
                     LL(host->devices[i].used_bytes), LL(used[i]));
  }
}

// ---- queues ----

typedef struct queue_walk {
  vmp_host *host;
  uint64_t last, queued;
  uint64_t *flights;  // by mapping id
  bool sorted;
} queue_walk;

static void walk_op(void *context, vmp_host_stream *stream, vmp_host_op *op) {
  queue_walk *walk = context;
  (void)stream;
  walk->sorted = walk->sorted && op->sequence > walk->last;
  walk->last = op->sequence;
  walk->queued++;
  vmp_host_access accesses[2];
  unsigned count = vmp_host_accesses(op, accesses);
  for (unsigned i = 0; i < count; i++) {
    uint64_t address = accesses[i].ptr;
    uint64_t end = address + accesses[i].bytes < address ? UINT64_MAX : address + accesses[i].bytes;
    const vmp_host_mapping *mapping;
    while ((mapping = vmp_host_next_in_range(walk->host, &address, end)) != NULL) {
      if (mapping->born < op->sequence) walk->flights[mapping - walk->host->mappings]++;
      uint64_t next = mapping->base + mapping->bytes;
      address = next > address ? next : address + walk->host->unit_bytes;  // goes on, however broken the mapping is
    }
  }
}

static void check_queues(vmp_host *host, uint64_t *flights, vmp_report *report) {
  queue_walk walk = {.host = host, .flights = flights};
  for (vmp_host_stream *stream = host->first_active; stream != NULL; stream = stream->next_active) {
    walk.sorted = true;
    walk.last = 0;
    vmp_host_each_op(stream, walk_op, &walk);
    if (!walk.sorted) vmp_report_fault(report, "the queue of stream %#llx is not in order", LL(stream->value));
    if (walk.last != stream->last_sequence) {
      vmp_report_fault(report, "stream %#llx ends with operation %llu, not %llu", LL(stream->value), LL(walk.last),
                       LL(stream->last_sequence));
    }
  }
  if (walk.queued != host->counters.operations_queued - host->counters.operations_done) {
    vmp_report_fault(report, "%llu operations are queued, the counters say %llu", LL(walk.queued),
                     LL(host->counters.operations_queued - host->counters.operations_done));
  }
  for (uint32_t id = 1; id < host->num_mapping_records; id++) {
    if (host->mappings[id].bytes == 0 || host->mappings[id].in_flight == flights[id]) continue;
    vmp_report_fault(report, "the mapping at %#llx counts %u operations in flight, there are %llu",
                     LL(host->mappings[id].base), host->mappings[id].in_flight, LL(flights[id]));
  }
}

static void check_objects(const vmp_host *host, vmp_report *report) {
  uint64_t events = 0;
  uint64_t streams = 0;
  for (uint32_t i = 0; i < host->num_event_records; i++) events += host->events[i].value != 0;
  for (uint32_t i = 0; i < host->num_stream_records; i++) {
    streams += host->streams[i]->value != 0 && !host->streams[i]->destroyed;
  }
  if (events != host->live_events) {
    vmp_report_fault(report, "live_events is %llu, there are %llu", LL(host->live_events), LL(events));
  }
  if (streams != host->live_streams) {
    vmp_report_fault(report, "live_streams is %llu, there are %llu", LL(host->live_streams), LL(streams));
  }
}

size_t vmp_host_check(vmp_driver *driver, vmp_report *report) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  size_t before = report->faults;
  uint64_t *slots = calloc((size_t)host->num_mapping_records + 1, sizeof *slots);
  uint64_t *flights = calloc((size_t)host->num_mapping_records + 1, sizeof *flights);
  uint64_t *uses = calloc((size_t)host->num_handle_records + 1, sizeof *uses);
  if (slots == NULL || flights == NULL || uses == NULL) {
    vmp_report_fault(report, "no memory for the check itself");
  } else {
    check_reservations(host, report);
    check_mappings(host, slots, uses, report);
    check_counts_of_reservations(host, report);
    check_handles(host, uses, report);
    check_queues(host, flights, report);
    check_objects(host, report);
  }
  free(slots);
  free(flights);
  free(uses);
  size_t found = report->faults - before;
  pthread_mutex_unlock(&host->lock);
  return found;
}
