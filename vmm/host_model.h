// host_model.h: the structures that the files of the host driver share, and what each file offers the others.
//
// Owns: nothing by itself. One vmp_host is one simulated machine; every field is guarded by `lock` unless the
// comment says otherwise.
//
//     host_driver.c   open, close, the table, what happens before and after each call, faults, delays
//     host_device.c   cuInit, error texts, devices, attributes     host_context.c  contexts, peers
//     host_address.c  address space: reservations, sorted by base
//     host_space.c    mappings: the index by slot, map, unmap     host_access.c   rights
//     host_expose.c   exposed mode: what the CPU sees of a mapping
//     host_memory.c   handles: physical memory, budgets     host_share.c  export and import
//     host_data.c     the memfd: bytes, poison              host_alloc.c  cuMemAlloc, pinned host memory
//     host_queue.c    operations: queueing, readiness, execution
//     host_work.c     operations against mappings: in flight, checked, bad     host_copy.c  copies and fills
//     host_order.c    whether accesses of several streams are ordered
//     host_cover.c    whether waits cover more than they are for
//     host_stream.c   streams   host_event.c  events   host_capture.c  stream capture
//     host_cost.c     the virtual clock                     host_report.c violations, census, leaks, check
//
// A slot here is `unit_bytes` of address space: the smallest granule of all devices.
#ifndef VMPOOL_VMM_HOST_MODEL_H_
#define VMPOOL_VMM_HOST_MODEL_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/driver_host.h"

#define VMP_HOST_LEAF_SLOTS 1024u
#define VMP_HOST_OPS_PER_BLOCK 256u
#define VMP_HOST_MAX_FAULTS 16u
#define VMP_HOST_KEPT_VIOLATIONS 64u
#define VMP_HOST_SENTENCE_BYTES 320u
#define VMP_HOST_KEPT_UNMAPS 256u
#define VMP_HOST_ORDER_SLOTS 64u
#define VMP_HOST_PAGE_BYTES UINT64_C(4096)
#define VMP_HOST_HIGH_BASE (UINT64_C(1) << 48)
#define VMP_HOST_HIGH_END (UINT64_C(1) << 56)
#define VMP_HOST_FILE_BYTES (UINT64_C(1) << 62)
#define VMP_HOST_UNLIMITED_BYTES (UINT64_C(1) << 50)

typedef struct vmp_host vmp_host;
typedef struct vmp_host_stream vmp_host_stream;
typedef struct vmp_host_thread vmp_host_thread;
typedef struct vmp_host_span vmp_host_span;

// ---- address space ----
typedef struct vmp_host_leaf {
  struct vmp_host_leaf *next;         // of those that exist in the reservation
  uint32_t ids[VMP_HOST_LEAF_SLOTS];  // of mappings, by slot; 0 is "not mapped"
} vmp_host_leaf;

typedef struct vmp_host_reservation {
  uint64_t base, bytes;
  vmp_host_leaf **leaves;  // [num_leaves], NULL where nothing was ever mapped
  uint64_t num_leaves;
  vmp_host_leaf *first_leaf;
  uint64_t num_mappings;
  bool in_process;  // held by a PROT_NONE mapping of this process
  bool internal;    // belongs to cuMemAlloc: no VMM call may name it
} vmp_host_reservation;

typedef struct vmp_host_range {
  uint64_t base, bytes;
} vmp_host_range;

typedef struct vmp_host_mapping {
  uint64_t base, bytes;  // bytes 0: this record is free
  uint64_t born;         // how many operations had been queued when it was mapped
  vmp_host_reservation *reservation;
  uint32_t handle;      // index of the handle's record
  uint32_t in_flight;   // queued operations that name it; exact
  uint16_t read_mask;   // bit d: device d may read
  uint16_t write_mask;  // bit d: device d may write; a subset of read_mask
  uint32_t next_free;   // id of the next free record
} vmp_host_mapping;

// ---- physical memory ----
typedef struct vmp_host_handle {
  uint64_t value;   // what the caller holds; its low 32 bits are the index + 1
  uint64_t bytes;   // 0: this record is free
  uint64_t offset;  // in the memfd
  uint64_t refs;    // create, retain, import minus release
  uint64_t mappings;
  uint64_t exports;  // open export descriptors
  int32_t device;
  vmp_cu_mem_prop prop;
  bool written;   // some page of it may exist in the memfd
  bool internal;  // belongs to cuMemAlloc
  uint32_t next_free;
  vmp_host_span *spans;  // who touched which bytes last (host_order.c)
  uint32_t num_spans, cap_spans;
} vmp_host_handle;

typedef struct vmp_host_export {
  uint32_t handle;
  int peer_fd;  // our end of a pipe: it hangs up when the last copy of the caller's end is closed
  uint64_t inode, inode_device;
} vmp_host_export;

// ---- streams and events ----
typedef enum vmp_host_op_kind {
  VMP_HOST_OP_TOUCH,
  VMP_HOST_OP_COPY,
  VMP_HOST_OP_FILL,
  VMP_HOST_OP_RECORD,
  VMP_HOST_OP_WAIT,
  VMP_HOST_OP_HOST_FN,
} vmp_host_op_kind;

typedef enum vmp_host_copy_kind { VMP_HOST_HTOD, VMP_HOST_DTOH, VMP_HOST_DTOD } vmp_host_copy_kind;

typedef struct vmp_host_copy {
  vmp_host_copy_kind kind;
  uint64_t dst, src;  // device addresses, where they are any
  uint64_t bytes;
  void *host_dst;
  const void *host_src;
  void *staged;  // owned copy of pageable source memory, or NULL
} vmp_host_copy;

// One queued operation; 40 bytes, since late mode keeps millions of them.
//            a                b               arg
//   TOUCH    address          bytes           1: write
//   COPY     vmp_host_copy *  -               -
//   FILL     address          bytes           value
//   RECORD   event uid        -               event index
//   WAIT     sequence         stream uid      stream index
//   HOST_FN  function         user data       -
typedef struct vmp_host_op {
  uint64_t a, b;
  uint64_t sequence;  // over all streams; 1 is the first
  const void *site;   // where it was queued
  uint32_t arg;
  uint8_t kind;
  uint8_t device;
  uint8_t doomed;  // rights were taken away under it
  uint8_t unused;
} vmp_host_op;
_Static_assert(sizeof(vmp_host_op) <= 64, "queued operations stay small");

typedef struct vmp_host_op_block {
  struct vmp_host_op_block *next;
  vmp_host_op ops[VMP_HOST_OPS_PER_BLOCK];
} vmp_host_op_block;

typedef enum vmp_host_stream_kind {
  VMP_HOST_STREAM_BLOCKING,  // ordered with the legacy stream
  VMP_HOST_STREAM_NON_BLOCKING,
  VMP_HOST_STREAM_LEGACY,
  VMP_HOST_STREAM_PER_THREAD,
} vmp_host_stream_kind;

struct vmp_host_stream {
  uint64_t value;  // the caller's handle; 0 for the default streams
  uint64_t uid;    // never reused; 0: this record is free
  uint32_t index, tag, next_free;
  int device;
  vmp_host_stream_kind kind;
  bool destroyed;  // by the caller; goes when its work has drained
  bool busy;       // a host function of its head is running, without the lock
  vmp_host_op_block *head_block, *tail_block;
  uint32_t head_slot, tail_slot;
  uint64_t count;  // queued operations; the stream is in the list of active ones while there are any
  uint64_t last_sequence;
  vmp_host_stream *previous_active, *next_active;
  // Capture. A captured operation is never run: the table has no call that launches a graph.
  int capture_status, capture_mode;
  uint64_t capture_id, captured_ops;
  bool capture_origin, capture_unjoined;
  const vmp_host_thread *capture_thread;
  uint32_t order_slot;  // its slot in the clocks of host_order.c + 1
};

typedef struct vmp_host_event {
  uint64_t value, uid;  // value 0: this record is free
  uint32_t tag, next_free;
  int device;
  unsigned flags;
  bool recorded;
  uint32_t stream_index;  // of the last record, as are all below
  uint64_t stream_uid, sequence;
  uint64_t time_ns;     // virtual time at which it ran
  uint64_t capture_id;  // not 0: in a capture; `sequence` is then the stream's captured_ops
  uint64_t *order;      // what the record comes behind (host_order.c), or NULL
  uint32_t order_slot;  // of the stream
  uint64_t order_accesses;  // of the stream, queued before the record
} vmp_host_event;

// ---- devices, contexts, threads ----
typedef struct vmp_host_device_state {
  uint64_t memory_bytes, granule_bytes, foreign_bytes;
  uint64_t used_bytes;  // of live handles
  uint64_t max_handle_bytes;
  uint32_t reachable;  // bit d
  bool vmm, posix_fd;
} vmp_host_device_state;

struct CUctx_st {
  int device;
  uint64_t retains;
  bool active;
  int sticky;  // 0, or the code that every use of the context gives from now on
  uint32_t peers_enabled;
  vmp_host_stream *legacy;  // made at first use
};

struct vmp_host_thread {
  vmp_host_thread *next;
  vmp_cu_context *stack;
  size_t depth, capacity;
  bool in_host_function;  // read and written by this thread only
  int capture_mode;
  vmp_host_stream *per_thread[VMP_HOST_MAX_DEVICES];  // made at first use
};

typedef struct vmp_host_pinned {
  void *ptr;
  size_t bytes;
} vmp_host_pinned;

// ---- cost ----
typedef struct vmp_host_cost {
  uint64_t fixed_ns[VMP_CALL_COUNT];
  uint64_t create_per_mib_ns, set_access_per_mapping_ns, unmap_per_mapping_ns, address_free_per_gib_ns;
} vmp_host_cost;

typedef struct vmp_host_unmap_note {
  uint64_t base, bytes, call_number;
  const void *site;
} vmp_host_unmap_note;

struct vmp_host {
  vmp_driver head;
  vmp_host_options options;
  pthread_mutex_t lock;
  pthread_cond_t idle;  // a busy stream has become free
  pthread_key_t thread_key;
  vmp_host_thread *threads;
  _Atomic(uint32_t) *fork_page;  // a page that the kernel clears in a forked child
  _Atomic bool initialized;
  bool deinitialized;
  int memfd;
  uint64_t next_offset;  // in the memfd; offsets are never handed out twice
  uint64_t random_state;

  int num_devices;
  bool any_vmm;
  uint64_t unit_bytes;
  vmp_host_device_state devices[VMP_HOST_MAX_DEVICES];
  struct CUctx_st contexts[VMP_HOST_MAX_DEVICES];

  vmp_host_reservation **reservations;  // sorted by base
  size_t num_reservations, cap_reservations;
  vmp_host_reservation *last_reservation;  // found last
  uint64_t reserved_bytes, next_address;
  uint64_t host_ranges;  // host mappings that exposed mode has made
  uint64_t max_host_ranges;
  vmp_host_range *retired;  // address ranges kept in the process and out of use
  size_t num_retired, cap_retired;
  uint64_t retired_bytes;

  vmp_host_mapping *mappings;  // [0] is unused: an id is an index
  uint32_t num_mapping_records, cap_mappings, free_mapping;
  uint64_t live_mappings, mapped_bytes;

  vmp_host_handle *handles;
  uint32_t num_handle_records, cap_handles;
  uint32_t first_free_handle, last_free_handle, num_free_handles;  // a queue through next_free
  uint64_t next_tag;
  uint64_t live_handles;
  vmp_host_export *exports;
  size_t num_exports, cap_exports;
  vmp_host_pinned *pinned;
  size_t num_pinned, cap_pinned;

  vmp_host_stream **streams;                              // records stay where they are; free ones are used again
  uint32_t num_stream_records, cap_streams, free_stream;  // free_stream, free_event: index + 1, 0 is none
  uint64_t live_streams;
  vmp_host_stream *first_active;
  vmp_host_event *events;
  uint32_t num_event_records, cap_events, free_event;
  uint64_t live_events;
  uint64_t next_uid;
  vmp_host_op_block *free_blocks;
  uint32_t num_free_blocks;
  uint64_t next_capture_id, live_captures;
  uint64_t *order_clocks[VMP_HOST_ORDER_SLOTS];  // by slot; each has VMP_HOST_ORDER_SLOTS sequences
  vmp_host_stream *order_owners[VMP_HOST_ORDER_SLOTS];
  uint64_t order_uids[VMP_HOST_ORDER_SLOTS];
  uint64_t order_host[VMP_HOST_ORDER_SLOTS];  // what the host knows to have finished
  uint64_t order_accesses[VMP_HOST_ORDER_SLOTS];  // queued by the slot's stream
  struct vmp_host_covers *order_covers[VMP_HOST_ORDER_SLOTS];
  uint64_t *graphs;
  size_t num_graphs, cap_graphs;

  vmp_host_fault faults[VMP_HOST_MAX_FAULTS];
  uint32_t num_faults;
  struct {
    void (*hook)(void *context);
    void *context;
  } delays[VMP_CALL_COUNT];
  _Atomic uint32_t num_delays;
  bool tolerate_bad_touches;

  vmp_host_cost cost;
  uint64_t clock_ns;
  uint64_t call_number;
  vmp_call call;     // the call under way
  const void *site;  // where it was made
  vmp_host_counters counters;
  char (*violations)[VMP_HOST_SENTENCE_BYTES];
  uint64_t num_sentences;
  vmp_host_unmap_note unmaps[VMP_HOST_KEPT_UNMAPS];
  uint64_t num_unmaps;
};

static inline vmp_host *vmp_host_of(vmp_driver *driver) { return (vmp_host *)(void *)driver; }

// ---- host_driver.c ----
// vmp_host_enter does what precedes every call: fork and host-function checks, the delay hook, the lock, the
// cuInit check, injected faults, the fixed cost. Returns 0 with the lock held, or a code without it.
int vmp_host_enter(vmp_host *host, vmp_call call, const void *site);
// vmp_host_leave ends a call: releases the lock and returns `code`.
int vmp_host_leave(vmp_host *host, int code);
// vmp_host_leave_out is vmp_host_leave that also poisons a failed call's out-parameter, where that is asked for.
int vmp_host_leave_out(vmp_host *host, int code, void *out, size_t out_bytes);
void vmp_host_poison_out(vmp_host *host, int code, void *out, size_t out_bytes);
// vmp_host_random is the driver's own sequence (seeded interleaving); vmp_host_mix scrambles a number.
uint64_t vmp_host_random(vmp_host *host);
uint64_t vmp_host_mix(uint64_t value);
// vmp_host_grow makes room for at least `needed` elements in a growable array; false when memory ran out.
bool vmp_host_grow(void *array_pointer, size_t *capacity, size_t needed, size_t element_bytes);
bool vmp_host_grow32(void *array_pointer, uint32_t *capacity, size_t needed, size_t element_bytes);
// vmp_host_this_thread returns the calling thread's record, made at first use; NULL when memory ran out.
vmp_host_thread *vmp_host_this_thread(vmp_host *host);
#define VMP_HOST_SITE() __builtin_return_address(0)

// ---- host_report.c ----
// vmp_host_break counts a violation of rule `rule`, keeps its sentence and returns `code`.
int vmp_host_break(vmp_host *host, int rule, int code, const char *format, ...) VMP_PRINTF(4, 5);
// vmp_host_refuse is vmp_host_break below level `relaxed_from`; from that level on it returns 0 (at level lint
// it counts a remark).
int vmp_host_refuse(vmp_host *host, vmp_host_level relaxed_from, int rule, int code, const char *format, ...)
    VMP_PRINTF(5, 6);
// vmp_host_remark counts a lint remark and keeps its sentence.
void vmp_host_remark(vmp_host *host, int rule, const char *format, ...) VMP_PRINTF(3, 4);
// vmp_host_describe_site writes "binary+0x123" for a code address.
void vmp_host_describe_site(const void *site, char *buffer, size_t size);

// ---- host_cost.c ----
vmp_status vmp_host_cost_load(vmp_host_cost *cost, const char *path);
void vmp_host_cost_defaults(vmp_host_cost *cost);
static inline void vmp_host_charge(vmp_host *host, uint64_t ns) { host->clock_ns += ns; }

// ---- host_device.c ----
bool vmp_host_valid_device(const vmp_host *host, int device);
bool vmp_host_can_reach(const vmp_host *host, int device, int resident);
// vmp_host_check_device answers for a null out-pointer (1) or a device that isn't there (101).
int vmp_host_check_device(vmp_host *host, int rule, int device, const void *out);

// ---- host_context.c ----
// vmp_host_current finds the calling thread's context and says whether it can be used: 0, 201, 709 or the
// sticky code.
int vmp_host_current(vmp_host *host, struct CUctx_st **out_context);

// ---- host_address.c ----
vmp_host_reservation *vmp_host_find_reservation(vmp_host *host, uint64_t address);
// vmp_host_next_reservation returns the first reservation that ends after `address`, or NULL.
vmp_host_reservation *vmp_host_next_reservation(vmp_host *host, uint64_t address);
// vmp_host_reserve makes a reservation; 0 or 2. `alignment` is a power of two.
int vmp_host_reserve(vmp_host *host, uint64_t bytes, uint64_t alignment, uint64_t hint,
                     vmp_host_reservation **out_reservation);
// vmp_host_unreserve ends a reservation without mappings.
void vmp_host_unreserve(vmp_host *host, vmp_host_reservation *reservation);
void vmp_host_address_close(vmp_host *host);

// ---- host_space.c ----
// vmp_host_mapping_at returns the mapping that holds `address`, or NULL.
vmp_host_mapping *vmp_host_mapping_at(vmp_host *host, const vmp_host_reservation *reservation, uint64_t address);
// vmp_host_map_whole maps a handle at an unmapped place; 0 or 2.
int vmp_host_map_whole(vmp_host *host, vmp_host_reservation *reservation, uint64_t base, uint64_t bytes,
                       uint32_t handle, vmp_host_mapping **out_mapping);
// vmp_host_unmap_all removes every mapping of a reservation, the CPU's view included.
void vmp_host_unmap_all(vmp_host *host, vmp_host_reservation *reservation);
// vmp_host_unmap_one removes a mapping from the model (not from the CPU's view).
void vmp_host_unmap_one(vmp_host *host, vmp_host_mapping *mapping);
// vmp_host_next_mapping returns the first mapping in [*address, end) of a reservation and moves *address to
// where its part of the range begins, or returns NULL.
vmp_host_mapping *vmp_host_next_mapping(vmp_host *host, const vmp_host_reservation *reservation, uint64_t *address,
                                        uint64_t end);

// vmp_host_check_run answers whether [ptr, ptr + bytes) is a run of whole mappings without a gap, and counts them.
int vmp_host_check_run(vmp_host *host, int rule, vmp_cu_ptr ptr, size_t bytes, vmp_host_reservation **out_reservation,
                       uint64_t *out_count);
// vmp_host_no_vmm answers for a VMM call where no device supports VMM.
int vmp_host_no_vmm(vmp_host *host);

// ---- host_expose.c ----
bool vmp_host_expose_map(vmp_host *host, const vmp_host_mapping *mapping);
void vmp_host_expose_unmap(vmp_host *host, uint64_t base, uint64_t bytes);
bool vmp_host_expose_rights(vmp_host *host, uint64_t base, uint64_t bytes, bool read, bool write);
// vmp_host_expose_delta says how many host mappings a new mapping adds (at most 2).
int vmp_host_expose_delta(vmp_host *host, const vmp_host_reservation *reservation, uint64_t base, uint64_t bytes);
uint64_t vmp_host_max_map_count(void);

// ---- host_memory.c ----
// vmp_host_find_handle returns the record that a caller's handle names, with refs > 0, or NULL.
vmp_host_handle *vmp_host_find_handle(vmp_host *host, uint64_t value);
uint32_t vmp_host_handle_index(const vmp_host *host, const vmp_host_handle *handle);
// vmp_host_make_handle creates physical memory; 0 or 2. refs is 1.
int vmp_host_make_handle(vmp_host *host, uint64_t bytes, int device, vmp_host_handle **out_handle);
// vmp_host_drop_handle frees the record and its memory if nothing refers to it any more.
void vmp_host_drop_handle(vmp_host *host, vmp_host_handle *handle);
uint64_t vmp_host_free_bytes(const vmp_host *host, int device);

// ---- host_share.c ----
// vmp_host_reap_exports notices export descriptors that the caller has closed.
void vmp_host_reap_exports(vmp_host *host);
void vmp_host_share_close(vmp_host *host);

// ---- host_data.c ----
// vmp_host_data_read and vmp_host_data_write move bytes of a handle; false on an I/O failure. Read sets *out_fresh when
// some page had never been written.
bool vmp_host_data_read(vmp_host *host, const vmp_host_handle *handle, uint64_t offset, void *dst, uint64_t bytes,
                        bool *out_fresh);
bool vmp_host_data_write(vmp_host *host, vmp_host_handle *handle, uint64_t offset, const void *src, uint64_t bytes);
bool vmp_host_data_fill(vmp_host *host, vmp_host_handle *handle, uint64_t offset, unsigned char value, uint64_t bytes);
void vmp_host_discard(vmp_host *host, vmp_host_handle *handle);

// ---- host_alloc.c ----
bool vmp_host_is_pinned(const vmp_host *host, const void *ptr, size_t bytes);
void vmp_host_alloc_reset(vmp_host *host, int device);
void vmp_host_alloc_close(vmp_host *host);

// ---- host_stream.c ----
// vmp_host_find_stream resolves a caller's stream in the current context: 0, or 400, 201, 709, sticky, 2.
int vmp_host_find_stream(vmp_host *host, vmp_cu_stream handle, vmp_host_stream **out_stream);
// vmp_host_stream_of_device does the same without a current context: the default streams are those of `device`.
int vmp_host_stream_of_device(vmp_host *host, int device, vmp_cu_stream handle, vmp_host_stream **out_stream);
// vmp_host_stream_alive returns the stream with this index if it still is the one with `uid`.
vmp_host_stream *vmp_host_stream_alive(const vmp_host *host, uint32_t index, uint64_t uid);
// vmp_host_stream_gone frees the record of a destroyed stream whose work has drained.
void vmp_host_stream_gone(vmp_host *host, vmp_host_stream *stream);
void vmp_host_stream_reset(vmp_host *host, int device);
void vmp_host_stream_close(vmp_host *host);
// vmp_host_orders_with_legacy says whether a stream and the legacy stream of its context wait for each other.
bool vmp_host_orders_with_legacy(const vmp_host *host, const vmp_host_stream *stream);

// ---- host_event.c ----
// vmp_host_event_ran notes that a queued record has been reached.
void vmp_host_event_ran(vmp_host *host, const vmp_host_op *op);
void vmp_host_event_reset(vmp_host *host, int device);

// ---- host_queue.c ----
// vmp_host_enqueue queues an operation on a stream (sequence, device and site are filled in here), then runs
// what the mode asks for. 0, or 2 when host memory ran out (nothing is queued then).
int vmp_host_enqueue(vmp_host *host, vmp_host_stream *stream, vmp_host_op op);
// vmp_host_pending says whether operations up to `sequence` are still queued on a stream.
bool vmp_host_pending(const vmp_host_stream *stream, uint64_t sequence);
// vmp_host_wait_for runs what is needed until the operations up to `sequence` on a stream have run. Returns
// whether anything had to be waited for. The lock may be released meanwhile (host functions).
bool vmp_host_wait_for(vmp_host *host, uint32_t index, uint64_t uid, uint64_t sequence);
// vmp_host_drain does that for everything that is queued on a device's streams now.
bool vmp_host_drain(vmp_host *host, int device);
// vmp_host_poll lets a query make progress where the mode allows that.
void vmp_host_poll(vmp_host *host);
// vmp_host_each_op calls `visit` for every queued operation of a stream, oldest first.
void vmp_host_each_op(vmp_host_stream *stream, void (*visit)(void *context, vmp_host_stream *, vmp_host_op *),
                      void *context);
void vmp_host_queue_close(vmp_host *host);

// ---- host_work.c ----
typedef struct vmp_host_access {
  uint64_t ptr, bytes;
  bool write;
} vmp_host_access;
// vmp_host_accesses lists the device ranges that an operation touches; at most 2.
unsigned vmp_host_accesses(const vmp_host_op *op, vmp_host_access out[2]);
// vmp_host_next_in_range returns the first mapping of any reservation in [*address, end) and moves *address to where
// it meets the range, or returns NULL.
vmp_host_mapping *vmp_host_next_in_range(vmp_host *host, uint64_t *address, uint64_t end);
// vmp_host_begin_flight counts a queued operation in every mapping that it names.
void vmp_host_begin_flight(vmp_host *host, const vmp_host_op *op);
// vmp_host_execute checks and performs a touch, copy or fill; `counted`: it was counted in flight, which ends here.
void vmp_host_execute(vmp_host *host, const vmp_host_op *op, bool counted);
// vmp_host_range_ok says whether `device` has the right for every byte of a range now.
bool vmp_host_range_ok(vmp_host *host, uint64_t ptr, uint64_t bytes, int device, bool write);
// vmp_host_work_under reports that a mapping with work in flight loses itself (device -1) or a device's rights, for
// writes only or also for reads (rule 35). Operations that lose rights are doomed.
void vmp_host_work_under(vmp_host *host, const vmp_host_mapping *mapping, int device, bool writes_only,
                         const char *what);

// ---- host_order.c ---- (all do nothing unless the option check_order is set)
// vmp_host_order_access notes what a queued operation touches, and reports what it isn't ordered behind.
void vmp_host_order_access(vmp_host *host, vmp_host_stream *stream, const vmp_host_op *op);
// vmp_host_order_record: the event is about to be recorded on the stream by the next operation.
void vmp_host_order_record(vmp_host *host, vmp_host_stream *stream, vmp_host_event *event);
// vmp_host_order_wait: the stream waits for a recorded event.
void vmp_host_order_wait(vmp_host *host, vmp_host_stream *stream, const vmp_host_event *event);
// The host has seen that an event, all of a stream's or all of a device's work is complete.
void vmp_host_order_seen_event(vmp_host *host, const vmp_host_event *event);
void vmp_host_order_seen_stream(vmp_host *host, vmp_host_stream *stream);
void vmp_host_order_seen_device(vmp_host *host, int device);
void vmp_host_order_forget(vmp_host_handle *handle);
void vmp_host_order_close(vmp_host *host);

// ---- host_cover.c ---- (streams by their slots in host_order.c)
typedef struct vmp_host_covers vmp_host_covers;
// vmp_host_cover_add: a wait has brought `waiter` behind the source's operations up to `after`; it came behind those up
// to `before` already.
void vmp_host_cover_add(vmp_host *host, uint32_t waiter, uint32_t source, uint64_t before, uint64_t after,
                        uint64_t accesses);
// vmp_host_cover_meet: `waiter` touches bytes that the source touched last with this operation, its access number so
// many.
void vmp_host_cover_meet(vmp_host *host, uint32_t waiter, uint32_t source, uint64_t sequence, uint64_t access);
void vmp_host_cover_forget(vmp_host *host, uint32_t slot);
// vmp_host_cover_open: covers that are too long and still kept; those that are not are in the counter.
uint64_t vmp_host_cover_open(const vmp_host *host);
void vmp_host_cover_close(vmp_host *host);

// ---- host_copy.c ----
// vmp_host_perform moves the bytes of a copy or fill whose ranges have been checked.
bool vmp_host_perform(vmp_host *host, const vmp_host_op *op);
// vmp_host_op_dispose frees what an operation owns.
void vmp_host_op_dispose(const vmp_host_op *op);

// ---- host_capture.c ----
// vmp_host_capture_forbid answers for a wait or query of a stream.
int vmp_host_capture_forbid(vmp_host *host, vmp_host_stream *stream);
// vmp_host_capture_forbid_device answers for a call that waits for all of a device's streams.
int vmp_host_capture_forbid_device(vmp_host *host, int device);
// vmp_host_capture_forbid_event answers for a wait or query of an event.
int vmp_host_capture_forbid_event(vmp_host *host, const vmp_host_event *event);
// vmp_host_capture_unsafe answers for a call that is unsafe while some thread captures.
int vmp_host_capture_unsafe(vmp_host *host);
// vmp_host_capture_submit answers for work that is to be queued: *out_captured says that a capture took it.
int vmp_host_capture_submit(vmp_host *host, vmp_host_stream *stream, bool *out_captured);
// vmp_host_capture_wait answers for a stream wait on a recorded event.
int vmp_host_capture_wait(vmp_host *host, vmp_host_stream *stream, const vmp_host_event *event, bool *out_captured);
void vmp_host_capture_end(vmp_host *host, uint64_t capture_id);

// Every call of the table.
#define X(name, symbol, version, need, args, ...) int vmp_host_op_##name(vmp_driver *driver, __VA_ARGS__);
VMP_DRIVER_CALLS(X)
#undef X
#define X(name, symbol, version, need) int vmp_host_op_##name(vmp_driver *driver);
VMP_DRIVER_CALLS_0(X)
#undef X

#endif  // VMPOOL_VMM_HOST_MODEL_H_
