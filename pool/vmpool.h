// vmpool.h: a GPU memory pool on CUDA virtual memory. The public header; it needs no CUDA and is valid C++.
//
// Rules that hold for every function
//   - Every call returns a vmp_status; VMP_OK is 0, errors are negative, and vmp_last_error() has the sentence.
//     After an error nothing has changed, and output parameters are untouched.
//   - VMP_ERROR_INVALID_VALUE: a handle or an output parameter is NULL, or a struct was not initialised.
//     VMP_ERROR_FORKED: the process is a fork of the one that made the pool. Neither is named again at each function.
//   - Functions are thread-safe unless they say otherwise. None calls back into the caller with a lock held. They are not
//     for signal handlers, and a thread must not be cancelled (pthread_cancel) inside one. A process that forbids the
//     system call membarrier by a filter does so before it makes its first pool.
//   - Handles are opaque and belong to the caller until the matching _close or _destroy.
//   - Option structs begin with struct_size; use the _INIT macro. Zero means "the default".
//   - Sizes are bytes. Device addresses are `void *` and are never touched by the library's host code.
//   - Streams are the driver's: CUstream, cudaStream_t. NULL is the legacy default stream.
//   - Stream order: memory may be used on the stream it was allocated on at once. vmp_free says that the work
//     submitted so far on the freeing stream (and on streams named by vmp_record_use) is the last to touch it;
//     the host never waits for it, and the memory is handed to other streams only behind that work.
#ifndef VMPOOL_POOL_VMPOOL_H_
#define VMPOOL_POOL_VMPOOL_H_

#include <stddef.h>
#include <stdint.h>

#include "vmm/status.h"

// VMP_INIT(type) initialises a struct that begins with struct_size; everything else is 0. The _INIT macros use it.
#ifdef __cplusplus
template <class Type>
inline Type vmp_init_struct() {
  Type value = Type();
  value.struct_size = sizeof(Type);
  return value;
}
#define VMP_INIT(type) vmp_init_struct<type>()
extern "C" {
#else
#define VMP_INIT(type) {.struct_size = sizeof(type)}
#endif

#define VMP_VERSION_MAJOR 0
#define VMP_VERSION_MINOR 1
#define VMP_VERSION_PATCH 0
// vmp_version returns the library's version as major * 1000000 + minor * 1000 + patch, to compare with the header's.
VMP_API int vmp_version(void);

struct CUstream_st;
typedef struct CUstream_st *vmp_stream;

typedef struct vmp_driver vmp_driver;
typedef struct vmp_pool vmp_pool;

// ---- drivers ----

typedef enum vmp_driver_kind {
  VMP_DRIVER_DEFAULT = 0,  // VMP_CONF's `driver` key where set, else CUDA
  VMP_DRIVER_CUDA = 1,     // libcuda.so.1
  VMP_DRIVER_HOST = 2,     // a strict model on this machine, for tests, traces and people without a GPU
} vmp_driver_kind;

typedef struct vmp_driver_options {
  size_t struct_size;
  vmp_driver_kind kind;
  const char *cuda_library;     // NULL: "libcuda.so.1"
  uint64_t host_device_bytes;   // host driver: memory of its device; 0: 80 GiB; UINT64_MAX: unlimited
  int host_num_devices;         // host driver: 0 means 1
  uint64_t host_granule_bytes;  // host driver: 0 means 2 MiB
  int host_exposed;             // host driver: 1 = mappings are real and readable by the CPU
  const char *host_cost_file;   // host driver: what calls cost on its clock, as `vmpool probe` writes it; NULL: defaults
} vmp_driver_options;

#define VMP_DRIVER_OPTIONS_INIT VMP_INIT(vmp_driver_options)

// vmp_driver_open opens a driver and initialises it. `options` may be NULL. The driver outlives every pool made
// on it; vmp_driver_close ends it. The CUDA driver is never replaced by the host driver silently.
// Errors: VMP_ERROR_NO_DRIVER, _STUB_DRIVER, _DRIVER_TOO_OLD, _NO_DEVICE, _DRIVER, _CONFIG, _IO, _HOST_OUT_OF_MEMORY.
VMP_API vmp_status vmp_driver_open(vmp_driver **out_driver, const vmp_driver_options *options);

// vmp_driver_close ends a driver; NULL is fine. Every pool on it must have been destroyed.
VMP_API void vmp_driver_close(vmp_driver *driver);

// vmp_driver_name returns "cuda" or "host". Static storage.
VMP_API const char *vmp_driver_name(const vmp_driver *driver);

// vmp_driver_calls: how often the pool's kinds of driver calls were made through this driver so far.
typedef struct vmp_driver_calls {
  uint64_t reserve, create, map, set_access, unmap, release, address_free;
  uint64_t event_record, event_query, stream_wait, synchronize;
} vmp_driver_calls;
VMP_API void vmp_driver_get_calls(const vmp_driver *driver, vmp_driver_calls *out_calls);

// ---- pools ----

// vmp_pool_options: zero means default. The same options can be given as text: in `conf`, and in the environment
// variable VMP_CONF ("key:value,key:value"), which is read once, in vmp_pool_create. Keys are the field names
// without their unit suffix; sizes take KiB, MiB, GiB, TiB and granules, times us, ms and s, limits also `none`, peers
// are written 1+2. Precedence, key by key: defaults < preset < fields < conf < VMP_CONF. An explicit zero
// (`park_limit:0`) can be given by text only. The keys of vmp_driver_options (`driver:host`, `host_device:8GiB`) are
// allowed too, and matter where the pool opens its own driver. Unknown keys and bad values are VMP_ERROR_CONFIG, each
// named. Sizes are rounded to what is possible: limits down to granules, everything else up (vmp_pool_config tells).
typedef struct vmp_pool_options {
  size_t struct_size;
  vmp_driver *driver;    // NULL: the pool opens its own (VMP_DRIVER_DEFAULT) and closes it
  int device;            // ordinal
  const char *preset;    // mixed (default), tight, training, inference, classic, blocks (fixed blocks of 2, 4, 8 and
                         // 16 MiB), slab, mid, buddy (the last three: one layer alone; what is too large for slab
                         // takes whole granules)
  const char *conf;      // options as text, or NULL
  const char *name;      // shown in snapshots; copied; NULL: "pool"

  uint64_t reserve_bytes;    // address space per reservation; default 16 x device memory, halved on refusal
  uint64_t chunk_max_bytes;  // largest physical chunk; a power of two of granules; default 32 MiB (tight: 1 granule)
  uint64_t hard_limit_bytes; // physical memory never held beyond this; default none
  uint64_t soft_limit_bytes; // above it parked memory is taken before new memory is made; default none
  double park_limit;         // share of mapped (0..1) above which parked chunks are taken before new ones are made;
                             // default 1 (never)
  double initial_fraction;   // share of device memory mapped at creation; default 0 (dynamic), 0.75 (static)
  int strategy;              // vmp_strategy
  int initial_must_fit;      // 1: creation fails when initial_fraction can't be had; default: as much as there is, VMP_PARTIAL
  uint64_t growth_bytes;     // a growth is rounded up to this where memory is plentiful; default chunk_max_bytes
  int no_map_ahead;          // 1: map exactly what is needed

  uint64_t slab_max_bytes;   // requests up to this are slab's; default 64 KiB, tight 32 KiB (`slab_max:0`: none)
  uint64_t buddy_from_bytes; // requests from this on are buddy's; default none
  uint64_t arena_bytes;      // address space of one mid arena; default device memory, rounded up to a power of two
  int slab_random;           // 1: objects of a span are handed out in random order
  uint64_t seed;             // of that order; default 1

  int cross_stream;          // vmp_cross_stream
  uint64_t wait_us;          // longest host wait for GPU work as the last step before out of memory; default 1,000,000
  int destroy_releases;      // 1: vmp_pool_destroy frees live blocks and regions itself, after waiting for their streams

  const int *peers;          // ordinals of devices that may read and write the pool's memory; copied
  size_t num_peers;

  const uint64_t *class_bytes;  // fixed block sizes in rising order (`classes:2MiB+4MiB` in text), at most 64, of 512
                                // bytes to 16 GiB, larger than a granule too; copied. A request takes the smallest one
                                // that holds it; one below half of the smallest size, or above the largest, is served
                                // as if there were none. Freed blocks wait in a queue of their size (an eighth of
                                // those in use), or go back to mid
  size_t num_class_bytes;

  double wait_limit;  // several streams: share of mapped (0..1) that lies idle, be it parked or not, above which a stream
                      // waits (on the GPU) for memory that others have freed rather than that new memory is made;
                      // default 0.2. Above park_limit no place is preferred for needing no wait: least memory, most waits

  uint64_t thread_cache_bytes;  // freed small blocks that threads keep for themselves, all threads together; default and
                                // at most 1/256 of the memory there may be (`thread_cache:0` in text: none)
  double predict_margin;  // predictive: share (0..1) that is mapped beyond what the steps needed; default 0.04
  int step_waits;         // 1: vmp_pool_step waits until the worker of strategy predictive has mapped ahead
  int edges;  // 1: where memory is short (a limit or the device is reached, or more than park_limit of mapped memory is
              // idle), the first and the last partly used chunk of a block may be shared with such ends of other
              // blocks. Chunks are of one granule then; an error with a larger chunk_max. Default 0 (tight: 1)

  uint64_t adaptive_classes;  // so many block sizes (up to 64) are taken over from what was asked for, at vmp_pool_step
                              // (vmpool_adapt.h); default 0: none
  double adaptive_share;      // they are for this share of requests (0..1), the smallest ones; default 0.9

  uint64_t poison_byte, quarantine_bytes;  // debug, off by default: vmpool_debug.h
  int guard_slots;
  int single_submitter;  // 1: whoever calls vmp_pool_defragment is the only one who submits work that touches the pool's
                         // memory: it may copy without vmp_quiescent_begin (vmpool_compact.h)

  // What vmp_pool_step does by itself, all off by default: vmpool_trigger.h.
  int defragment_oom;           // 1: gather as a step before out of memory, too
  uint64_t defragment_steps;    // gather at every so many steps (1,000 is a good number); 0: not
  uint64_t defragment_blocks;   // gather when more free blocks than this lie in mapped memory; 0: not
  double defragment_share;      // gather when more than this share (0..1) of mapped memory is idle; default 1 (never)
  uint64_t release_above_bytes; // idle memory (parked and spare) that may stay; what is idle beyond it all through
                                // release_after_us goes back to the device; default none (`release_above:0`: all)
  uint64_t release_after_us;    // default 1,000,000
  int shared_arenas;  // 1: slab's spans lie between larger blocks. Default 0: spans of less than a granule have arenas
                      // and chunks of their own, where chunks may be larger than a granule, the strategy isn't static,
                      // and a reservation has room for four arenas
} vmp_pool_options;

#define VMP_POOL_OPTIONS_INIT VMP_INIT(vmp_pool_options)

typedef enum vmp_strategy {
  VMP_STRATEGY_DEFAULT = 0,
  VMP_STRATEGY_DYNAMIC = 1,     // grows on demand
  VMP_STRATEGY_STATIC = 2,      // maps initial_fraction at creation and never more
  VMP_STRATEGY_PREDICTIVE = 3,  // dynamic, and a thread maps ahead what the next steps will need (vmpool_predict.h)
} vmp_strategy;

typedef enum vmp_cross_stream {
  VMP_CROSS_STREAM_DEFAULT = 0,   // wait
  VMP_CROSS_STREAM_WAIT = 1,      // memory that needs no wait first, then new memory (wait_limit); else the stream waits
                                  // (on the GPU) for the other
  VMP_CROSS_STREAM_COMPLETE = 2,  // another stream's memory only when its work has finished
} vmp_cross_stream;

// vmp_pool_create makes a pool. `options` may be NULL. Returns VMP_OK, or VMP_PARTIAL when less than
// initial_fraction could be mapped. Errors: VMP_ERROR_CONFIG (an unknown key or a bad value, named),
// VMP_ERROR_NO_DEVICE, _NO_VMM, _OUT_OF_ADDRESS_SPACE, _OUT_OF_MEMORY, _HOST_OUT_OF_MEMORY, _NO_DRIVER and the
// other driver errors.
VMP_API vmp_status vmp_pool_create(vmp_pool **out_pool, const vmp_pool_options *options);

// vmp_pool_destroy waits for the streams that may still touch the pool's memory, gives everything back and frees
// the pool. NULL is fine. No other thread may use the pool during or after it. VMP_ERROR_BUSY: live blocks or regions
// exist (their number and bytes are in the message), and destroy_releases is off: nothing has changed.
// A driver that fails or is shutting down doesn't stop it: the pool is gone, host memory is freed, and the first failure
// is returned (VMP_ERROR_DRIVER, _STICKY, _DEINITIALIZED). In a forked child only host memory is freed: VMP_OK.
VMP_API vmp_status vmp_pool_destroy(vmp_pool *pool);

// vmp_alloc hands out `bytes` of device memory, aligned to at least 512, ordered on `stream`. bytes 0 gives NULL
// and VMP_OK. A size that no address space holds (above 2^47) is VMP_ERROR_OUT_OF_MEMORY at once and not counted in the
// statistics; one beyond the device or the hard limit also makes no driver call. Errors: VMP_ERROR_OUT_OF_MEMORY, _LIMIT, _OUT_OF_ADDRESS_SPACE, _FRAGMENTED, _HOST_OUT_OF_MEMORY,
// _STICKY, _FORKED, _DRIVER; the message has the numbers and the one true reason.
VMP_API vmp_status vmp_alloc(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream);

// vmp_alloc_aligned: `alignment` is a power of two up to 64 GiB (VMP_MAX_ALIGNMENT); VMP_ERROR_INVALID_VALUE otherwise.
// Other errors as for vmp_alloc.
#define VMP_MAX_ALIGNMENT (UINT64_C(1) << 36)
VMP_API vmp_status vmp_alloc_aligned(vmp_pool *pool, void **out_ptr, size_t bytes, size_t alignment, vmp_stream stream);

// vmp_free gives a block back, ordered on `stream`; NULL is fine. VMP_ERROR_NOT_A_BLOCK (an address that is not
// the start of a block of this pool), VMP_ERROR_DOUBLE_FREE; then nothing has changed. A double free is told from
// a foreign address as long as the address has not been handed out again; where a free block can't be told from its
// own inside (mid and buddy), every multiple of 512 in a granule where a block ever began counts as freed. Allocates
// nothing; calls the driver only while a lowered hard limit is not reached yet, and to record an event while streams
// want each other's memory.
VMP_API vmp_status vmp_free(vmp_pool *pool, void *ptr, vmp_stream stream);

// vmp_record_use says that work on `stream` uses the block as well: memory is reused only behind what is submitted
// to `stream` up to the free. VMP_ERROR_NOT_A_BLOCK.
VMP_API vmp_status vmp_record_use(vmp_pool *pool, void *ptr, vmp_stream stream);

// vmp_stream_retired tells the pool, before cuStreamDestroy, that a stream will not be used any more. A pool that isn't
// told finds out when it needs to know what the stream's handle still runs, if another stream has the handle by then;
// the host then waits for the whole context (renamed_streams in the statistics).
// VMP_ERROR_CAPTURE (the stream captures), VMP_ERROR_DRIVER, VMP_ERROR_STICKY.
VMP_API vmp_status vmp_stream_retired(vmp_pool *pool, vmp_stream stream);

// vmp_block_query tells about the live block that holds `ptr` (which may point inside it), without a driver
// call. VMP_ERROR_NOT_A_BLOCK.
typedef struct vmp_block_info {
  size_t struct_size;
  void *base;
  uint64_t requested_bytes;
  uint64_t bytes;      // what the block holds
  const char *layer;   // "slab", "mid" or "buddy"; static storage
  const char *name;      // given to vmp_alloc_with, or NULL; valid until the pool is destroyed
  const char *tag_name;  // of its tag, or NULL; valid until the pool is destroyed
  uint32_t tag;          // vmp_tag; 0: none
  uint32_t pins;         // that begin at the block (vmpool_pin.h)
} vmp_block_info;
#define VMP_BLOCK_INFO_INIT VMP_INIT(vmp_block_info)
VMP_API vmp_status vmp_block_query(vmp_pool *pool, const void *ptr, vmp_block_info *out_info);

// vmp_pool_set_limit changes a limit while the pool runs. A lower hard limit gives spare and parked memory back at
// once as far as its work has finished; VMP_PENDING: live memory is still above it, new memory is refused until
// frees bring it under. UINT64_MAX means none. VMP_ERROR_INVALID_VALUE: there is no such limit.
typedef enum vmp_limit { VMP_LIMIT_HARD = 0, VMP_LIMIT_SOFT = 1 } vmp_limit;
VMP_API vmp_status vmp_pool_set_limit(vmp_pool *pool, vmp_limit which, uint64_t bytes);

// vmp_pool_trim gives parked and spare memory back to the device until the pool holds at most `keep_bytes`, or
// nothing is left to give. Memory whose work has not finished stays, and is counted in the report. `out_report`
// may be NULL. Never waits for the GPU. Driver failures are returned after everything else was tried.
typedef struct vmp_trim_report {
  size_t struct_size;
  uint64_t released_bytes;      // physical bytes really returned to the device
  uint64_t kept_pending_bytes;  // free, but GPU work may still touch it (vmp_pool_stream_stats: whose, for how long)
  uint64_t kept_live_bytes;     // chunks with live blocks
  uint64_t kept_other_bytes;    // asked to be kept, broken
  uint64_t kept_pinned_bytes;   // chunks without live blocks that pins keep (vmpool_pin.h)
  uint64_t kept_captured_bytes; // freed blocks that graphs hold (vmpool_capture.h); their chunks are in kept_live_bytes
} vmp_trim_report;
#define VMP_TRIM_REPORT_INIT VMP_INIT(vmp_trim_report)
VMP_API vmp_status vmp_pool_trim(vmp_pool *pool, uint64_t keep_bytes, vmp_trim_report *out_report);

// vmp_pool_defragment gathers: parked and spare chunks are remapped behind one another, so that the largest block to be
// had without a driver call grows. It copies nothing, moves no live pointer, creates no memory and waits for no GPU work;
// no stream is made to wait. What the pool holds beyond its limits goes back to the device first, as far as its work has
// finished. Requests that no driver call is needed for are served meanwhile.
//
// Memory whose work has finished is moved first. Other idle memory moves too where one stream alone still uses it (with
// several, a block could come to lie across memory of both, and a stream would wait for more than before), but not with
// cross_stream:complete: who gets it is ordered behind that stream as before. Its old addresses retire until the work
// has finished, and while more of them retire than the pool holds memory, only finished memory moves: so however often
// it is called, it holds no more than about twice as many addresses as memory. It looks for room in the address space
// that the layers have already.
//
// It stops when the wanted size can be had, at a limit, or when nothing improves; a run directly after one that stopped
// because nothing improves moves nothing. *out_report (may be NULL) says what was done, after a failure too.
// Errors: VMP_ERROR_INVALID_VALUE (allow_copy without vmp_quiescent_begin, too), VMP_ERROR_FORKED; VMP_ERROR_BUSY:
// another thread is defragmenting the pool, or (allow_copy, in a function called for lack of memory) a block is being
// reallocated;
// VMP_ERROR_HOST_OUT_OF_MEMORY, VMP_ERROR_DRIVER and the other driver errors: a call failed. The call's own part is
// undone; what was moved before stays where it is, and nothing is lost.
typedef struct vmp_defragment_options {
  size_t struct_size;
  uint64_t want_bytes;        // the block that shall be had without a driver call; 0: as large as the idle memory allows.
                              // Where it can't be had, the largest that can is made
  uint64_t max_driver_calls;  // map, set-access, unmap and release calls, removals of old mappings included; 0: no limit.
                              // Only where the driver fails may undoing go beyond it
  uint64_t max_us;            // wall time, looked at after every 256 granules; 0: no limit. When it is up half way, what
                              // has been moved stays, and the largest block may have become smaller
  int dry_run;                // 1: the report says what would be done, and nothing is; what is beyond the limits is
                              // reported as released, at most, and yet as there to be gathered
  uint32_t allow_copy;        // VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH (vmpool_compact.h): before gathering, chunks
                              // that little live memory pins are replaced; 0: nothing is copied
  uint64_t max_copied_bytes;  // 0: no limit
} vmp_defragment_options;
#define VMP_DEFRAGMENT_OPTIONS_INIT VMP_INIT(vmp_defragment_options)

// vmp_defragment_stop: why it stopped.
typedef enum vmp_defragment_stop {
  VMP_DEFRAGMENT_REACHED = 0,     // a block of want_bytes can be had without a driver call
  VMP_DEFRAGMENT_NO_GAIN = 1,     // nothing makes the largest block larger
  VMP_DEFRAGMENT_CALL_LIMIT = 2,  // max_driver_calls is too small for what would help
  VMP_DEFRAGMENT_TIME_LIMIT = 3,  // max_us is over
  VMP_DEFRAGMENT_CHANGED = 4,     // other threads used the memory meanwhile
  VMP_DEFRAGMENT_FAILED = 5,      // the status says why
} vmp_defragment_stop;

typedef struct vmp_defragment_report {
  size_t struct_size;
  uint64_t largest_free_mapped_before;  // largest block to be had without a driver call
  uint64_t largest_free_mapped_after;   // dry run: at least
  uint64_t moved_bytes, moved_chunks;   // remapped, spare ones included
  uint64_t released_bytes;              // returned to the device, being beyond the limits
  uint64_t retiring;                    // bytes of slots whose old mapping waits for GPU work, at the end
  uint64_t map_calls, set_access_calls, unmap_calls, release_calls;  // that this call made, refused ones too; dry run:
                                                                     // would make at most
  int stop;            // vmp_defragment_stop
  const char *reason;  // the same as a sentence; static storage
  uint64_t mapped_before, mapped_after;
  uint64_t copied_bytes;                  // device to device
  uint64_t split_chunks, meshed_chunks;   // replaced; dry run: meshing is planned as if nothing had been split
  uint64_t left_pinned, left_other;       // bytes of chunks that stay as they are because they are pinned, or shared,
                                          // kept apart, or no blocks' (regions, captures)
} vmp_defragment_report;
#define VMP_DEFRAGMENT_REPORT_INIT VMP_INIT(vmp_defragment_report)

// vmp_pool_defragment: `options` may be NULL (all defaults). Any thread, one at a time.
VMP_API vmp_status vmp_pool_defragment(vmp_pool *pool, const vmp_defragment_options *options,
                                       vmp_defragment_report *out_report);

// vmp_pool_stats: all sizes in bytes. current values are exact at one instant between two calls.
typedef struct vmp_pool_stats_data {
  size_t struct_size;
  uint64_t reserved_va;       // address space held; never physical memory
  uint64_t mapped;            // physical memory in mapped chunks; a chunk mapped twice counts once
  uint64_t live;              // handed out, after rounding; the memory of regions included
  uint64_t requested;         // what callers asked for
  uint64_t parked;            // mapped, but no live block touches the chunk
  uint64_t spare;             // chunks mapped nowhere, kept for reuse
  uint64_t pending;           // freed, but the work that may touch it is not known to be complete (parked chunks)
  uint64_t retiring;          // slots whose old mapping waits to be removed
  uint64_t broken;            // slots whose mapping could not be made or undone
  uint64_t metadata;          // host memory for bookkeeping
  uint64_t peak_mapped, peak_live, peak_requested;
  uint64_t allocs, frees, failed_allocs, blocks;  // zero sizes and invalid arguments are not counted
  uint64_t slab_live, mid_live, buddy_live;
  uint64_t largest_free_mapped;  // largest block to be had without a driver call
  uint64_t device_free, device_total;  // device_free: as the driver said last
  uint64_t granule;
  uint64_t hard_limit, soft_limit;   // UINT64_MAX: none
  uint64_t chunks, chunks_created, chunks_released, takes, takes_resized;
  uint64_t stream_waits;             // stream waits that the pool queued
  uint64_t unfinished_wait_allocs;   // allocations that had to wait for unfinished work of another stream
  uint64_t host_waits;               // host waits as the last step before out of memory
  uint64_t steps;                    // marked by vmp_pool_step
  uint64_t step_peak_live;           // most live bytes at any time of the last step that was marked; 0 before it
  uint64_t max_step_peak_live;       // the largest step_peak_live so far
  uint64_t regions;                  // vmpool_region.h
  uint64_t region_reserved;          // addresses of regions, of reserved_va
  uint64_t region_committed;         // sum of what regions have committed; a page of two regions counts twice
  uint64_t region_live;              // the memory of that, of live; each page once
  uint64_t pinned;                   // chunks that pins keep where they are; live blocks may touch them or not
  uint64_t mapped_ahead;             // physical memory that strategy predictive has made so far
  uint64_t ahead_unused;             // of it, what the pool still holds and no block has used yet
  uint64_t renamed_streams;          // handles that named another stream than before, without vmp_stream_retired: the
                                     // host waited for the context, once each
  uint64_t cached;                   // freed blocks that threads keep for themselves: not live, not parked
  uint64_t cached_bound;             // what they may keep by now; peaks are exact to within this where several threads
                                     // or streams allocate, else exact
  uint64_t graph_kept;               // freed, but graphs of stream captures hold it (vmpool_capture.h)
  uint64_t shared;                   // chunks that are mapped at several addresses and live at each (option edges)
  uint64_t shares;                   // how often a chunk was mapped at one more address for that
  uint64_t set_aside;                // not live, but kept for those who have a ticket (vmpool_aside.h)
  uint64_t suspended;                // of live: blocks of suspended tags, without memory (vmpool_suspend.h)
  uint64_t suspended_backup;         // host memory that holds their content
  uint64_t trigger_runs;             // times that the pool has gathered by itself (vmpool_trigger.h)
  uint64_t released_by_decay;        // bytes that went back to the device because they had been idle (release_above)
} vmp_pool_stats_data;
#define VMP_POOL_STATS_INIT VMP_INIT(vmp_pool_stats_data)

// vmp_pool_stats fills in *out_stats up to its struct_size. What lies beyond is not computed: a struct_size of
// offsetof(vmp_pool_stats_data, pending) asks for the five sizes that cost nothing, one that ends before device_free
// makes no driver call. VMP_ERROR_INVALID_VALUE.
VMP_API vmp_status vmp_pool_stats(vmp_pool *pool, vmp_pool_stats_data *out_stats);
// vmp_pool_reset_peaks sets the peaks to the current values. What vmp_pool_step has recorded stays.
VMP_API vmp_status vmp_pool_reset_peaks(vmp_pool *pool);

// vmp_pool_step marks the end of a step of the program: a training iteration, a batch of requests. The first step began
// when the pool was created, each next one begins where the last ended, with what is live then. Recorded are their
// number and the high-water mark of live bytes within a step (steps, step_peak_live and max_step_peak_live in the
// statistics). Cached objects and slab's empty spans go back, so that each step finds free space as the first one did. No driver
// call on this thread, unless a trigger or release_above (vmpool_trigger.h) says so; with strategy predictive the worker is told what the next steps will need, and `step_waits`
// waits for it. Any thread. VMP_ERROR_INVALID_VALUE, VMP_ERROR_FORKED.
VMP_API vmp_status vmp_pool_step(vmp_pool *pool);

// vmp_pool_check verifies every invariant of the pool and its layers: VMP_OK, or VMP_ERROR_CORRUPT with the first
// broken one in vmp_last_error and their number in *out_faults (may be NULL). Slow: for tests and debuggers.
VMP_API vmp_status vmp_pool_check(vmp_pool *pool, size_t *out_faults);

// vmp_pool_snapshot writes the pool's whole state as JSON to `path`, atomically (a temporary file beside it is
// renamed). VMP_ERROR_IO, VMP_ERROR_HOST_OUT_OF_MEMORY; then `path` is as before.
VMP_API vmp_status vmp_pool_snapshot(vmp_pool *pool, const char *path);

// vmp_pool_config returns the effective options and where each came from as "key:value (source)" lines. Owned by
// the pool, valid until it is destroyed.
VMP_API const char *vmp_pool_config(const vmp_pool *pool);

// vmp_pool_driver returns the pool's driver. Owned by whoever opened it.
VMP_API vmp_driver *vmp_pool_driver(const vmp_pool *pool);

#ifdef __cplusplus
}
#endif

#include "pool/vmpool_adapt.h"    // IWYU pragma: export
#include "pool/vmpool_aside.h"    // IWYU pragma: export
#include "pool/vmpool_capture.h"  // IWYU pragma: export
#include "pool/vmpool_compact.h"  // IWYU pragma: export
#include "pool/vmpool_debug.h"    // IWYU pragma: export
#include "pool/vmpool_log.h"      // IWYU pragma: export
#include "pool/vmpool_oom.h"      // IWYU pragma: export
#include "pool/vmpool_pin.h"      // IWYU pragma: export
#include "pool/vmpool_predict.h"  // IWYU pragma: export
#include "pool/vmpool_realloc.h"  // IWYU pragma: export
#include "pool/vmpool_region.h"   // IWYU pragma: export
#include "pool/vmpool_stats.h"    // IWYU pragma: export
#include "pool/vmpool_suspend.h"  // IWYU pragma: export
#include "pool/vmpool_tag.h"      // IWYU pragma: export
#include "pool/vmpool_trigger.h"  // IWYU pragma: export

#endif  // VMPOOL_POOL_VMPOOL_H_
