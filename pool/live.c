// live.c: see live.h.
#include "pool/live.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pool/file_name.h"
#include "vmm/memory.h"

#define NAME_BYTES (VMP_FILE_STEM_BYTES + 32u)
#define TRIES 100
#define OBJECT_BYTES (VMP_LIVE_HEADER_BYTES + 2 * sizeof(vmp_live_copy))

struct vmp_live {
  char name[NAME_BYTES];
  vmp_live_header *header;
  vmp_live_copy *copies;
};

_Static_assert(sizeof(vmp_live_header) <= VMP_LIVE_HEADER_BYTES, "the header fits its page");

static uint64_t now_ns(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static vmp_status io_error(const char *name, const char *what, int code) {
  char text[128];
  const char *reason = strerror_r(code, text, sizeof text);
  return vmp_fail(VMP_ERROR_IO, "the shared memory \"%s\" can't be %s: %s", name, what, reason);
}

// make_object makes a new object under a name that is free: vmpool-PID-POOL, with a number behind it where there are
// several pools of that name. Returns its descriptor, or -1 and errno.
static int make_object(vmp_live *live, const vmp_pool *pool) {
  char stem[VMP_FILE_STEM_BYTES];
  vmp_file_stem(pool, stem);
  for (int number = 1; number <= TRIES; number++) {
    char count[16] = "";
    if (number > 1) (void)snprintf(count, sizeof count, "-%d", number);
    (void)snprintf(live->name, sizeof live->name, "/" VMP_LIVE_PREFIX "%s%s", stem, count);
    int fd = shm_open(live->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

static vmp_status map_object(vmp_live *live, int fd) {
  // Room first: a store into shared memory that is full would be a fault.
  int code = posix_fallocate(fd, 0, (off_t)OBJECT_BYTES);
  if (code != 0) return io_error(live->name, "made large enough", code);
  void *memory = mmap(NULL, OBJECT_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return io_error(live->name, "mapped", errno);
  live->header = memory;
  live->copies = (vmp_live_copy *)((unsigned char *)memory + VMP_LIVE_HEADER_BYTES);
  return VMP_OK;
}

static void fill_header(vmp_live *live, const vmp_pool *pool, const char *control) {
  vmp_live_header *header = live->header;
  header->version = VMP_LIVE_VERSION;
  header->copy_bytes = sizeof(vmp_live_copy);
  header->process = getpid();
  header->start_monotonic_ns = now_ns();
  header->granule_bytes = pool->device.granule_bytes;
  header->device_total_bytes = pool->device.total_bytes;
  header->device = pool->device.ordinal;
  header->stats_bytes = sizeof(vmp_pool_stats_data);
  (void)snprintf(header->driver, sizeof header->driver, "%.15s", vmp_driver_name(pool->driver));
  (void)snprintf(header->device_name, sizeof header->device_name, "%.63s", pool->device.name);
  (void)snprintf(header->pool_name, sizeof header->pool_name, "%.255s", vmp_pool_name(pool));
  (void)snprintf(header->control, sizeof header->control, "%.107s", control);
}

vmp_status vmp_live_open(vmp_live **out_live, const vmp_pool *pool, const char *control) {
  vmp_live *live = vmp_mem_calloc(1, sizeof *live);
  if (live == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the shared figures");
  int fd = make_object(live, pool);
  vmp_status status = fd < 0 ? io_error(live->name, "created", errno) : map_object(live, fd);
  if (fd >= 0) (void)close(fd);
  if (status != VMP_OK) {
    vmp_error first = *vmp_last_error();
    if (fd >= 0) (void)shm_unlink(live->name);
    vmp_mem_free(live);
    vmp_restore_error(&first);
    return status;
  }
  fill_header(live, pool, control);
  // The magic comes last: who finds it finds the rest.
  uint64_t magic;
  memcpy(&magic, VMP_LIVE_MAGIC, sizeof magic);
  __atomic_store_n((uint64_t *)(void *)live->header->magic, magic, __ATOMIC_RELEASE);
  *out_live = live;
  return VMP_OK;
}

// ---- refreshing ----

typedef struct filling {
  const vmp_pool *pool;
  vmp_live_copy *copy;
} filling;

static void see_range(void *context, uint64_t offset, uint64_t bytes, uint64_t address) {
  vmp_live_copy *copy = ((filling *)context)->copy;
  (void)offset;
  if (copy->num_ranges < VMP_LIVE_MAX_RANGES) copy->ranges[copy->num_ranges++] = (vmp_live_range){address, bytes};
}

static vmp_live_state state_of(const char *state) {
  switch (state[0]) {
    case 'l': return VMP_LIVE_MAPPED;
    case 'p': return VMP_LIVE_PARKED;
    case 'r': return VMP_LIVE_RETIRING;
    case 't': return VMP_LIVE_IN_TRANSIT;
    default: return VMP_LIVE_BROKEN;
  }
}

static void see_mapping(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                        uint64_t live, vmp_fence fence) {
  const filling *f = context;
  vmp_live_copy *copy = f->copy;
  (void)chunk_id;
  (void)live;
  (void)fence;
  uint64_t address = vmp_backing_address(f->pool->backing, offset), word = (uint64_t)state_of(state);
  vmp_live_run *last = copy->num_runs == 0 ? NULL : &copy->runs[copy->num_runs - 1];
  if (last != NULL && last->state == word && last->address + last->bytes == address) {
    last->bytes += bytes;
  } else if (copy->num_runs < VMP_LIVE_MAX_RUNS) {
    copy->runs[copy->num_runs++] = (vmp_live_run){address, bytes, word};
  } else {
    copy->runs_left_out++;
  }
}

void vmp_live_refresh(vmp_live *live, vmp_pool *pool, bool ask_device) {
  vmp_live_header *header = live->header;
  uint64_t next = header->sequence + 1;
  vmp_live_copy *copy = &live->copies[next % 2];
  uint64_t device_free = ask_device ? vmp_stats_device_free(pool) : atomic_load(&pool->last_device_free_bytes);
  (void)__atomic_exchange_n(&copy->begin, next, __ATOMIC_ACQ_REL);  // nothing below is written before it
  filling f = {pool, copy};
  copy->num_ranges = copy->num_runs = copy->runs_left_out = 0;
  copy->stats = (vmp_pool_stats_data)VMP_POOL_STATS_INIT;
  copy->stats.device_free = device_free;
  vmp_guard_lock(&pool->guard);
  vmp_stats_fill(pool, &copy->stats);
  vmp_backing_walk_reservations(pool->backing, see_range, &f);
  vmp_backing_walk_mappings(pool->backing, see_mapping, &f);
  vmp_guard_unlock(&pool->guard);
  copy->time_ns = now_ns();
  __atomic_store_n(&copy->end, next, __ATOMIC_RELEASE);
  __atomic_store_n(&header->sequence, next, __ATOMIC_RELEASE);
}

void vmp_live_close(vmp_live *live, bool forked) {
  if (live == NULL) return;
  (void)munmap(live->header, OBJECT_BYTES);
  if (!forked) (void)shm_unlink(live->name);
  vmp_mem_free(live);
}
