// host_work.c: operations against mappings: what is in flight, whether it may still run, and what is bad.
//
//     queue    every mapping that the operation's ranges meet counts it (`in_flight`)
//     unmap    a mapping whose count isn't 0 goes away under queued work: reported at once, the call succeeds
//     run      every byte must be mapped with the right, by a mapping older than the operation; the counts go down
//
// A mapping is older than an operation if fewer operations had been queued when it was born. A count is exact: an
// operation that meets a mapping which is still there was counted in it if and only if the mapping is older.
#include <stdio.h>

#include "vmm/host_model.h"

#define TOLD_BAD_TOUCHES 1000u  // of more than that only the number is kept

// ---- ranges ----

unsigned vmp_host_accesses(const vmp_host_op *op, vmp_host_access out[2]) {
  unsigned count = 0;
  if (op->kind == VMP_HOST_OP_TOUCH) {
    out[count++] = (vmp_host_access){op->a, op->b, op->arg != 0};
  } else if (op->kind == VMP_HOST_OP_FILL) {
    out[count++] = (vmp_host_access){op->a, op->b, true};
  } else if (op->kind == VMP_HOST_OP_COPY) {
    const vmp_host_copy *copy = (const vmp_host_copy *)(uintptr_t)op->a;
    if (copy->kind != VMP_HOST_DTOH) out[count++] = (vmp_host_access){copy->dst, copy->bytes, true};
    if (copy->kind != VMP_HOST_HTOD) out[count++] = (vmp_host_access){copy->src, copy->bytes, false};
  }
  return count;
}

// A range that leaves the 64-bit addresses ends at the last of them, and some byte of it is certainly not mapped.
static bool wraps(uint64_t ptr, uint64_t bytes) { return bytes > UINT64_MAX - ptr; }
static uint64_t end_of(uint64_t ptr, uint64_t bytes) { return wraps(ptr, bytes) ? UINT64_MAX : ptr + bytes; }

vmp_host_mapping *vmp_host_next_in_range(vmp_host *host, uint64_t *address, uint64_t end) {
  while (*address < end) {
    const vmp_host_reservation *reservation = vmp_host_next_reservation(host, *address);
    if (reservation == NULL || reservation->base >= end) return NULL;
    if (*address < reservation->base) *address = reservation->base;
    uint64_t last = reservation->base + reservation->bytes;
    vmp_host_mapping *mapping = vmp_host_next_mapping(host, reservation, address, last < end ? last : end);
    if (mapping != NULL) return mapping;
    *address = last;
  }
  return NULL;
}

static bool has_right(const vmp_host_mapping *mapping, int device, bool write) {
  unsigned mask = write ? mapping->write_mask : mapping->read_mask;
  return ((mask >> device) & 1u) != 0;
}

bool vmp_host_range_ok(vmp_host *host, uint64_t ptr, uint64_t bytes, int device, bool write) {
  if (wraps(ptr, bytes)) return false;
  uint64_t end = ptr + bytes;
  for (uint64_t address = ptr; address < end;) {
    uint64_t at = address;
    const vmp_host_mapping *mapping = vmp_host_next_in_range(host, &at, end);
    if (mapping == NULL || at != address || !has_right(mapping, device, write)) return false;
    address = mapping->base + mapping->bytes;
  }
  return true;
}

void vmp_host_begin_flight(vmp_host *host, const vmp_host_op *op) {
  vmp_host_access accesses[2];
  unsigned count = vmp_host_accesses(op, accesses);
  for (unsigned i = 0; i < count; i++) {
    uint64_t address = accesses[i].ptr;
    uint64_t end = end_of(address, accesses[i].bytes);
    vmp_host_mapping *mapping;
    while ((mapping = vmp_host_next_in_range(host, &address, end)) != NULL) {
      mapping->in_flight++;
      address = mapping->base + mapping->bytes;
    }
  }
}

// Ends the flight of one range, if it was counted. Returns whether all of it may be touched; *out_bad is the first
// address that may not.
static bool settle(vmp_host *host, const vmp_host_access *access, const vmp_host_op *op, bool counted,
                   uint64_t *out_bad) {
  bool good = true;
  uint64_t expected = access->ptr;
  uint64_t address = access->ptr;
  uint64_t end = end_of(access->ptr, access->bytes);
  vmp_host_mapping *mapping;
  while ((mapping = vmp_host_next_in_range(host, &address, end)) != NULL) {
    bool older = mapping->born < op->sequence;
    if (older && counted) mapping->in_flight--;
    if (good && (address != expected || !older || !has_right(mapping, op->device, access->write))) {
      good = false;
      *out_bad = expected;
    }
    address = mapping->base + mapping->bytes;
    expected = address;
  }
  if (good && (expected < end || wraps(access->ptr, access->bytes))) {
    good = false;
    *out_bad = expected;
  }
  return good;
}

// ---- reports ----

static const char *kind_name(const vmp_host_op *op) {
  switch (op->kind) {
    case VMP_HOST_OP_COPY: return "copy";
    case VMP_HOST_OP_FILL: return "fill";
    default: return op->arg != 0 ? "write" : "read";
  }
}

static void describe_loss(vmp_host *host, uint64_t address, char *buffer, size_t size) {
  uint64_t kept = host->num_unmaps < VMP_HOST_KEPT_UNMAPS ? host->num_unmaps : VMP_HOST_KEPT_UNMAPS;
  for (uint64_t i = 1; i <= kept; i++) {
    const vmp_host_unmap_note *note = &host->unmaps[(host->num_unmaps - i) % VMP_HOST_KEPT_UNMAPS];
    if (address - note->base >= note->bytes) continue;
    char site[64];
    vmp_host_describe_site(note->site, site, sizeof site);
    (void)snprintf(buffer, size, "unmapped last by call %llu at %s", (unsigned long long)note->call_number, site);
    return;
  }
  (void)snprintf(buffer, size, "never unmapped, or long ago");
}

static void report_bad(vmp_host *host, const vmp_host_op *op, uint64_t address) {
  if (host->counters.bad_touches++ < TOLD_BAD_TOUCHES) {
    char site[64];
    char loss[112];
    vmp_host_describe_site(op->site, site, sizeof site);
    describe_loss(host, address, loss, sizeof loss);
    (void)vmp_host_break(host, 56, 0, "operation %llu (%s by device %d, queued at %s) can't touch %#llx: %s",
                         (unsigned long long)op->sequence, kind_name(op), op->device, site, (unsigned long long)address,
                         loss);
  } else {
    host->counters.violations++;
  }
  if (!host->tolerate_bad_touches) host->contexts[op->device].sticky = VMP_CU_ILLEGAL_ADDRESS;
}

void vmp_host_execute(vmp_host *host, const vmp_host_op *op, bool counted) {
  vmp_host_access accesses[2];
  unsigned count = vmp_host_accesses(op, accesses);
  bool good = true;
  uint64_t bad = 0;
  for (unsigned i = 0; i < count; i++) good = settle(host, &accesses[i], op, counted, &bad) && good;
  int *sticky = &host->contexts[op->device].sticky;
  if (*sticky != 0) return;  // the context is lost: what was queued is dropped
  if (good && op->doomed) {
    good = false;
    bad = accesses[0].ptr;
  }
  if (!good) {
    report_bad(host, op, bad);
  } else if (op->kind != VMP_HOST_OP_TOUCH || host->options.touch_fill != 0) {
    if (!vmp_host_perform(host, op)) *sticky = VMP_CU_LAUNCH_FAILED;  // the system has no memory for the memfd
  }
}

// ---- rule 35 ----

typedef struct search {
  const vmp_host_mapping *mapping;
  int device;
  bool writes_only;
  uint64_t found;
  vmp_host_op first;
  uint64_t stream_value;
} search;

static void look_at_op(void *context, vmp_host_stream *stream, vmp_host_op *op) {
  search *looking = context;
  if (op->sequence <= looking->mapping->born || (looking->device >= 0 && op->device != looking->device)) return;
  vmp_host_access accesses[2];
  unsigned count = vmp_host_accesses(op, accesses);
  for (unsigned i = 0; i < count; i++) {
    if (looking->writes_only && !accesses[i].write) continue;
    if (accesses[i].ptr >= looking->mapping->base + looking->mapping->bytes ||
        end_of(accesses[i].ptr, accesses[i].bytes) <= looking->mapping->base) {
      continue;
    }
    if (looking->found++ == 0) {
      looking->first = *op;
      looking->stream_value = stream->value;
    }
    if (looking->device >= 0) op->doomed = 1;
    return;
  }
}

void vmp_host_work_under(vmp_host *host, const vmp_host_mapping *mapping, int device, bool writes_only,
                         const char *what) {
  // The search goes through every queue. An unmap is known to be under work without it: it gives the sentence only.
  search looking = {.mapping = mapping, .device = device, .writes_only = writes_only};
  bool told = device >= 0 || host->counters.unmaps_under_work < VMP_HOST_KEPT_UNMAPS;
  for (vmp_host_stream *stream = host->first_active; told && stream != NULL; stream = stream->next_active) {
    vmp_host_each_op(stream, look_at_op, &looking);
  }
  if (device >= 0 && looking.found == 0) return;
  host->counters.unmaps_under_work++;
  if (!told) {
    host->counters.violations++;
    return;
  }
  char here[64];
  char there[64];
  vmp_host_describe_site(host->site, here, sizeof here);
  vmp_host_describe_site(looking.first.site, there, sizeof there);
  (void)vmp_host_break(host, 35, 0,
                       "%#llx + %#llx was %s at %s under %u queued operations; the first is %llu (%s on stream %#llx, "
                       "queued at %s)",
                       (unsigned long long)mapping->base, (unsigned long long)mapping->bytes, what, here,
                       device >= 0 ? (unsigned)looking.found : mapping->in_flight,
                       (unsigned long long)looking.first.sequence, kind_name(&looking.first),
                       (unsigned long long)looking.stream_value, there);
}

// ---- touches ----

int vmp_host_touch(vmp_driver *driver, int device, vmp_cu_stream stream_handle, vmp_cu_ptr ptr, uint64_t bytes,
                   bool write) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  host->site = VMP_HOST_SITE();
  vmp_host_stream *stream = NULL;
  bool captured = false;
  int code = vmp_host_stream_of_device(host, device, stream_handle, &stream);
  if (code == 0) code = host->contexts[stream->device].sticky;
  if (code == 0) code = vmp_host_capture_submit(host, stream, &captured);
  if (code == 0 && bytes != 0 && !captured) {
    code = vmp_host_enqueue(host, stream,
                            (vmp_host_op){.kind = VMP_HOST_OP_TOUCH, .a = ptr, .b = bytes, .arg = write ? 1u : 0u});
  }
  pthread_mutex_unlock(&host->lock);
  return code;
}
