// vmp_host_check notices every corruption of the model. Each case breaks one thing and names the sentence.
#include <string.h>

#include "tests/driver/host_rig.h"
#include "vmm/host_model.h"

typedef struct checked {
  host_rig rig;
  vmp_host *host;
  vmp_cu_ptr ptr;
} checked;

// Two reservations; three mappings of two handles; an event; a stream with two operations queued.
static void checked_setup(checked *c) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.ledger_high = 1;
  options.num_devices = 2;
  host_rig_open(&c->rig, &options);
  c->host = vmp_host_of(c->rig.driver);
  c->ptr = host_reserve(&c->rig, 8 * G);
  (void)host_reserve(&c->rig, 8 * G);
  vmp_cu_handle handle = host_map(&c->rig, c->ptr, G);
  (void)host_map(&c->rig, c->ptr + 2 * G, 2 * G);
  VASSERT_CUDA(vmp_drv_mem_map(c->rig.driver, c->ptr + 6 * G, G, 0, handle, 0));
  vmp_cu_stream stream = host_stream(&c->rig, VMP_CU_STREAM_NON_BLOCKING);
  (void)host_event(&c->rig);
  VASSERT_CUDA(vmp_host_touch(c->rig.driver, 0, stream, c->ptr, G, true));
  VASSERT_CUDA(vmp_host_touch(c->rig.driver, 0, stream, c->ptr + 2 * G, G, false));
  host_expect_consistent(&c->rig);
}

static void checked_teardown(checked *c) { host_rig_teardown(&c->rig); }

static vtest_faults check(checked *c) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  size_t found = vmp_host_check(c->rig.driver, &report);
  VEXPECT_UINT_EQ(found, faults.count);
  return faults;
}

// Breaks `field` by assigning `value`, expects exactly one fault with `part`, and mends it.
#define BREAK(c, field, value, part)   \
  do {                                 \
    __typeof__(field) kept_ = (field); \
    (field) = (value);                 \
    vtest_faults faults_ = check(c);   \
    VEXPECT_ONE_FAULT(&faults_, part); \
    (field) = kept_;                   \
    host_expect_consistent(&(c)->rig); \
  } while (0)

// The same where one corruption breaks several invariants.
#define BREAK_SEVERAL(c, field, value, part) \
  do {                                       \
    __typeof__(field) kept_ = (field);       \
    (field) = (value);                       \
    vtest_faults faults_ = check(c);         \
    VEXPECT_A_FAULT(&faults_, part);         \
    (field) = kept_;                         \
    host_expect_consistent(&(c)->rig);       \
  } while (0)

VTEST_F(HostCheck, Totals, checked) {
  vmp_host *h = f->host;
  BREAK(f, h->reserved_bytes, h->reserved_bytes + G, "reserved_bytes is");
  BREAK(f, h->live_mappings, 4, "live_mappings is 4, there are 3");
  BREAK(f, h->mapped_bytes, 0, "mapped_bytes is 0");
  BREAK(f, h->live_handles, 1, "live_handles is 1, there are 2");
  BREAK(f, h->live_events, 0, "live_events is 0, there are 1");
  BREAK(f, h->live_streams, 2, "live_streams is 2, there are 1");
  BREAK(f, h->devices[0].used_bytes, 2 * G, "device 0 has");
  BREAK(f, h->devices[1].used_bytes, G, "device 1 has");
  BREAK(f, h->counters.operations_done, 1, "2 operations are queued, the counters say 1");
}

VTEST_F(HostCheck, Reservations, checked) {
  vmp_host *h = f->host;
  BREAK(f, h->reservations[0]->num_mappings, 2, "counts 2 mappings, there are 3");
  BREAK(f, h->reservations[1]->base, h->reservations[0]->base + 7 * G, "overlap or are not sorted");
}

VTEST_F(HostCheck, Mappings, checked) {
  vmp_host *h = f->host;
  vmp_host_mapping *m = vmp_host_mapping_at(h, h->reservations[0], f->ptr + 2 * G);
  VASSERT_NOT_NULL(m);
  BREAK(f, m->write_mask, 3, "may be written by a device that may not read it");
  BREAK(f, m->in_flight, 0, "counts 0 operations in flight, there are 1");
  BREAK(f, m->in_flight, 7, "counts 7 operations in flight, there are 1");
  BREAK_SEVERAL(f, m->handle, 1000, "has a dead handle");
  BREAK_SEVERAL(f, m->handle, 0, "is larger than its handle");
  BREAK_SEVERAL(f, m->reservation, h->reservations[1], "leaves its reservation");
  BREAK_SEVERAL(f, m->base, f->ptr + 3 * G, "doesn't cover it");
  BREAK_SEVERAL(f, m->bytes, G, "doesn't cover it");
  BREAK_SEVERAL(f, m->bytes, 0, "which doesn't exist");
}

VTEST_F(HostCheck, Slots, checked) {
  vmp_host_leaf *leaf = f->host->reservations[0]->leaves[0];
  BREAK_SEVERAL(f, leaf->ids[3], 0, "has 1 slots in the index, not 2");
  BREAK(f, leaf->ids[5], 99, "the slot at");
  BREAK(f, leaf->ids[5], leaf->ids[0], "which doesn't cover it");
}

VTEST_F(HostCheck, Handles, checked) {
  vmp_host *h = f->host;
  BREAK(f, h->handles[0].mappings, 1, "counts 1 mappings, there are 2");
  BREAK(f, h->handles[0].exports, 1, "counts 1 exports, there are 0");
  BREAK(f, h->next_offset, G, "lies behind the end");
  vmp_cu_handle loose = host_create(&f->rig, 1, G);
  vmp_host_handle *record = vmp_host_find_handle(h, loose);
  VASSERT_NOT_NULL(record);
  BREAK(f, record->refs, 0, "is alive though nothing refers to it");
  BREAK(f, record->bytes, 2 * G, "device 1 has");
}

VTEST_F(HostCheck, Queues, checked) {
  vmp_host_stream *stream = f->host->first_active;
  VASSERT_NOT_NULL(stream);
  VEXPECT_UINT_EQ(stream->count, 2);
  vmp_host_op *first = &stream->head_block->ops[stream->head_slot];
  BREAK(f, first->sequence, 2, "is not in order");
  BREAK(f, stream->last_sequence, 1, "ends with operation 2, not 1");
  BREAK(f, first->a, f->ptr + G, "counts 1 operations in flight, there are 0");
}

VTEST_F(HostCheck, ReportsAllThatIsBroken, checked) {
  f->host->reserved_bytes++;
  f->host->live_events++;
  f->host->live_handles++;
  vtest_faults faults = check(f);
  VEXPECT_UINT_EQ(faults.count, 3);
  vmp_report counting = {NULL, NULL, 0};  // without anybody to tell
  VEXPECT_UINT_EQ(vmp_host_check(f->rig.driver, &counting), 3);
}
