// direct.c: the part of the scenario that calls the driver directly: every call of the table that vmm doesn't make.
#include <string.h>
#include <unistd.h>

#include "tests/fault/world.h"

void world_questions(world *w) {
  vmp_driver *d = w->driver;
  const char *text = NULL;
  int number = 0;
  vmp_cu_device device = 0;
  char name[64];
  size_t bytes = 0;
  (void)WORLD_TRY(w, vmp_drv_driver_get_version(d, &number));
  (void)WORLD_TRY(w, vmp_drv_get_error_name(d, 1, &text));
  (void)WORLD_TRY(w, vmp_drv_get_error_string(d, 1, &text));
  (void)WORLD_TRY(w, vmp_drv_device_get_count(d, &number));
  (void)WORLD_TRY(w, vmp_drv_device_get(d, &device, 1));
  (void)WORLD_TRY(w, vmp_drv_device_get_name(d, name, sizeof name, 0));
  (void)WORLD_TRY(w, vmp_drv_device_get_attribute(d, &number, VMP_CU_ATTR_VMM_SUPPORTED, 0));
  (void)WORLD_TRY(w, vmp_drv_device_total_mem(d, &bytes, 0));
  (void)WORLD_TRY(w, vmp_drv_device_can_access_peer(d, &number, 0, 1));
}

void world_contexts(world *w) {
  vmp_driver *d = w->driver;
  vmp_cu_context current = NULL;
  vmp_cu_device device = 0;
  size_t free_bytes = 0, total = 0;
  if (!world_enter(w)) return;
  (void)WORLD_TRY(w, vmp_drv_ctx_set_current(d, w->context));
  (void)WORLD_TRY(w, vmp_drv_ctx_get_current(d, &current));
  (void)WORLD_TRY(w, vmp_drv_ctx_get_device(d, &device));
  (void)WORLD_TRY(w, vmp_drv_mem_get_info(d, &free_bytes, &total));
  if (w->peer != NULL && WORLD_TRY(w, vmp_drv_ctx_enable_peer_access(d, w->peer, 0))) {
    // One more try, so that a single fault leaves nothing behind; a reset of the device would also end it.
    if (!WORLD_TRY(w, vmp_drv_ctx_disable_peer_access(d, w->peer))) {
      (void)WORLD_TRY(w, vmp_drv_ctx_disable_peer_access(d, w->peer));
    }
  }
  if (w->peer != NULL && WORLD_TRY(w, vmp_drv_ctx_push_current(d, w->peer))) {
    if (!WORLD_TRY(w, vmp_drv_ctx_pop_current(d, &current))) (void)WORLD_TRY(w, vmp_drv_ctx_pop_current(d, &current));
  }
  world_leave(w);
}

static void count_up(void *context) { ++*(uint64_t *)context; }

void world_events(world *w) {
  vmp_driver *d = w->driver;
  vmp_cu_stream s = w->streams[0];
  unsigned long long id = 0;
  vmp_cu_context context = NULL;
  float ms = 0;
  if (s == NULL || !world_enter(w)) return;
  (void)WORLD_TRY(w, vmp_drv_stream_get_id(d, s, &id));
  (void)WORLD_TRY(w, vmp_drv_stream_get_ctx(d, s, &context));
  bool recorded = true;
  for (int i = 0; i < 2; i++) {
    vmp_cu_event event = NULL;
    if (WORLD_TRY(w, vmp_drv_event_create(d, &event, VMP_CU_EVENT_DEFAULT))) w->events[i] = event;
    recorded = recorded && w->events[i] != NULL && WORLD_TRY(w, vmp_drv_event_record(d, w->events[i], s));
    if (WORLD_TRY(w, vmp_drv_launch_host_func(d, s, count_up, &w->host_functions))) w->launched++;
    if (WORLD_TRY(w, vmp_drv_stream_synchronize(d, s)) && !w->gone) VEXPECT_UINT_EQ(w->host_functions, w->launched);
  }
  (void)WORLD_TRY(w, vmp_drv_stream_query(d, s));
  if (w->events[1] != NULL) {
    (void)WORLD_TRY(w, vmp_drv_event_query(d, w->events[1]));
    (void)WORLD_TRY(w, vmp_drv_event_synchronize(d, w->events[1]));
    if (w->streams[1] != NULL) (void)WORLD_TRY(w, vmp_drv_stream_wait_event(d, w->streams[1], w->events[1], 0));
  }
  if (recorded) (void)WORLD_TRY(w, vmp_drv_event_elapsed_time(d, &ms, w->events[0], w->events[1]));
  world_leave(w);
}

bool world_end_capture(world *w) {
  void *graph = NULL;
  if (w->capturing && WORLD_TRY(w, vmp_drv_stream_end_capture(w->driver, w->side, &graph))) {
    w->capturing = false;
    w->graph = graph;
  }
  return !w->capturing;
}

void world_capture(world *w) {
  vmp_driver *d = w->driver;
  int status = 0;
  if (!world_enter(w)) return;
  if (w->side == NULL) {
    vmp_cu_stream stream = NULL;
    if (WORLD_TRY(w, vmp_drv_stream_create(d, &stream, VMP_CU_STREAM_NON_BLOCKING))) w->side = stream;
  }
  if (w->side != NULL && WORLD_TRY(w, vmp_drv_stream_begin_capture(d, w->side, VMP_CU_CAPTURE_RELAXED))) {
    w->capturing = true;
    (void)WORLD_TRY(w, vmp_drv_stream_is_capturing(d, w->side, &status));
    (void)world_end_capture(w);
  }
  world_leave(w);
}

// Objects of the context: events, the graph, the side stream.
void world_drop_objects(world *w) {
  vmp_driver *d = w->driver;
  if (!world_enter(w)) return;
  (void)world_end_capture(w);
  if (w->graph != NULL && WORLD_TRY(w, vmp_drv_graph_destroy(d, w->graph))) w->graph = NULL;
  for (int i = 0; i < 2; i++) {
    if (w->events[i] != NULL && WORLD_TRY(w, vmp_drv_event_destroy(d, w->events[i]))) w->events[i] = NULL;
  }
  if (w->side != NULL && !w->capturing && WORLD_TRY(w, vmp_drv_stream_destroy(d, w->side))) w->side = NULL;
  world_leave(w);
}

// ---- memory ----

static void share(world *w) {
  vmp_driver *d = w->driver;
  vmp_cu_mem_prop prop;
  vmp_cu_handle again = 0;
  unsigned long long flags = 0;
  vmp_cu_location here = {VMP_CU_LOCATION_DEVICE, 0};
  if (w->mapped) {
    if (WORLD_TRY(w, vmp_drv_mem_get_access(d, &flags, &here, w->range))) (void)flags;
    if (WORLD_TRY(w, vmp_drv_mem_retain_allocation_handle(d, &again, (void *)(uintptr_t)w->range))) w->refs++;
  }
  (void)WORLD_TRY(w, vmp_drv_mem_get_allocation_properties(d, &prop, w->handle));
  int fd = -1;
  if (!WORLD_TRY(w, vmp_drv_mem_export(d, &fd, w->handle, VMP_CU_HANDLE_POSIX_FD, 0))) return;
  w->fd = fd;
  if (WORLD_TRY(w, vmp_drv_mem_import(d, &again, (void *)(uintptr_t)(unsigned)fd, VMP_CU_HANDLE_POSIX_FD))) {
    VEXPECT_UINT_EQ(again, w->handle);
    w->refs++;
  }
  (void)close(w->fd);
  w->fd = -1;
}

// Copies and fills in order on one stream: what was put in comes out, whenever all of it could be queued.
static void move_bytes(world *w) {
  vmp_driver *d = w->driver;
  vmp_cu_ptr p = w->range, q = w->range + GRANULE;
  vmp_cu_stream s = w->streams[3];
  unsigned char data[WORLD_READ_BYTES], back[WORLD_READ_BYTES];
  memset(data, 0x5a, sizeof data);
  w->dirty = true;
  if (WORLD_TRY(w, vmp_drv_memcpy_htod(d, p, data, sizeof data)) &&
      WORLD_TRY(w, vmp_drv_memcpy_dtod(d, q, p, sizeof data))) {
    (void)WORLD_TRY(w, vmp_drv_memset_d8(d, p, 1, sizeof data));
    if (WORLD_TRY(w, vmp_drv_memcpy_dtoh(d, back, q, sizeof back))) VEXPECT_BYTES_FILLED(back, 0x5a, sizeof back);
  }
  if (s == NULL || w->pinned == NULL || !world_end_capture(w) || !WORLD_TRY(w, vmp_drv_ctx_synchronize(d))) return;
  memset(w->pinned, 0x77, WORLD_READ_BYTES);
  if (!WORLD_TRY(w, vmp_drv_memcpy_htod_async(d, p, w->pinned, WORLD_READ_BYTES, s)) ||
      !WORLD_TRY(w, vmp_drv_memcpy_dtod_async(d, q, p, WORLD_READ_BYTES, s)) || w->num_reads == WORLD_READS) {
    return;
  }
  (void)WORLD_TRY(w, vmp_drv_memset_d8_async(d, p, 2, WORLD_READ_BYTES, s));
  world_read *read = &w->reads[w->num_reads];
  read->tag = 0x77;
  if (WORLD_TRY(w, vmp_drv_memcpy_dtoh_async(d, read->bytes, q, WORLD_READ_BYTES, s))) w->num_reads++;
}

static void make_memory(world *w) {
  vmp_driver *d = w->driver;
  vmp_cu_ptr ptr = 0;
  vmp_cu_handle handle = 0;
  vmp_cu_mem_prop prop = vmp_device_mem_prop(0, VMP_CU_HANDLE_POSIX_FD);
  const vmp_cu_access_desc desc[] = {{{VMP_CU_LOCATION_DEVICE, 0}, VMP_CU_ACCESS_READWRITE},
                                     {{VMP_CU_LOCATION_DEVICE, 1}, VMP_CU_ACCESS_READ}};
  size_t bytes = 0;
  (void)WORLD_TRY(w, vmp_drv_mem_get_allocation_granularity(d, &bytes, &prop, VMP_CU_GRANULARITY_MINIMUM));
  if (w->range == 0 && WORLD_TRY(w, vmp_drv_mem_address_reserve(d, &ptr, 4 * GRANULE, 0, 0, 0))) w->range = ptr;
  if (w->refs == 0 && WORLD_TRY(w, vmp_drv_mem_create(d, &handle, 2 * GRANULE, &prop, 0))) {
    w->handle = handle;
    w->refs = 1;
  }
  if (w->range == 0 || w->refs == 0) return;
  if (!w->mapped) w->mapped = WORLD_TRY(w, vmp_drv_mem_map(d, w->range, 2 * GRANULE, 0, w->handle, 0));
  bool granted = w->mapped && WORLD_TRY(w, vmp_drv_mem_set_access(d, w->range, 2 * GRANULE, desc, 2));
  share(w);
  if (granted && world_enter(w)) {
    move_bytes(w);
    world_leave(w);
  }
}

void world_memory(world *w) {
  vmp_driver *d = w->driver;
  if (world_enter(w)) {
    vmp_cu_ptr plain = 0;
    void *pinned = NULL;
    if (w->plain == 0 && WORLD_TRY(w, vmp_drv_mem_alloc(d, &plain, GRANULE))) w->plain = plain;
    if (w->pinned == NULL && WORLD_TRY(w, vmp_drv_mem_host_alloc(d, &pinned, 4096, 0))) w->pinned = pinned;
    world_leave(w);
  }
  make_memory(w);
  (void)world_synchronize(w);
  world_drop_memory(w);
  // The other device has nothing that matters: what is left of it dies with its context.
  (void)WORLD_TRY(w, vmp_drv_primary_ctx_reset(d, 1));
}

// Gives back what nothing uses any more; what can't be given back stays, for another try.
void world_drop_memory(world *w) {
  vmp_driver *d = w->driver;
  if ((w->plain != 0 || w->pinned != NULL) && world_enter(w)) {
    if (w->plain != 0 && WORLD_TRY(w, vmp_drv_mem_free(d, w->plain))) w->plain = 0;
    if (w->pinned != NULL && !w->dirty && WORLD_TRY(w, vmp_drv_mem_free_host(d, w->pinned))) w->pinned = NULL;
    world_leave(w);
  }
  if (w->mapped && !w->dirty && WORLD_TRY(w, vmp_drv_mem_unmap(d, w->range, 2 * GRANULE))) w->mapped = false;
  while (w->refs > 0 && WORLD_TRY(w, vmp_drv_mem_release(d, w->handle))) w->refs--;
  if (w->range != 0 && !w->mapped && WORLD_TRY(w, vmp_drv_mem_address_free(d, w->range, 4 * GRANULE))) w->range = 0;
}
