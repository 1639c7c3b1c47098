// options.h: every option of a driver and of a pool: its key, its default, its parser, its range, its text.
//
// Owns: the lists below, the one parser of "key:value,key:value", presets, the precedence of sources, the one place
// where the environment is read (vmp_config_environment). Does not own: what an option does.
//
//     defaults < preset < fields of the struct < conf < VMP_CONF          the later source wins, key by key
//        |         |          |                  |        |
//        '---------'----------'------ vmp_config_read ----'---> vmp_config (values + where each came from)
//                                                                   |
//                     device: granule, memory --- vmp_config_resolve ---> sizes in bytes, ready to use
//
// Invariants
//   - A value is in its documented range once vmp_config_read returns; sizes are whole once resolve returns.
//   - What vmp_config_print says of a resolved config is itself valid input: it reads back to the same values.
//   - On any failure the config is untouched and the message names the source, the key, what was wrong and what
//     would be right.
#ifndef VMPOOL_POOL_OPTIONS_H_
#define VMPOOL_POOL_OPTIONS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/vmpool.h"

// Kinds of values, with the C type that holds one:
//   bytes    uint64_t   "4096", "70MiB", "1granule" (a multiple of the granule, known once the device is)
//   limit    uint64_t   the same, or "none" (UINT64_MAX)
//   share    double     "0.75": 0 to 1, at most nine decimals
//   flag     bool       "0" or "1"
//   choice   int        one of a few words
//   number   uint64_t   "7"
//   ordinal  int        "0": a number that fits an int
//   micros   uint64_t   "1000000", "250ms", "1s"
//   text     char *     anything without a comma; owned by the config
//   devices  vmp_ordinals   "1+2": ordinals
//   sizes    vmp_sizes      "2MiB+4MiB": sizes in rising order
typedef struct vmp_ordinals {
  size_t count;
  int values[16];
} vmp_ordinals;

#define VMP_MAX_SIZES 64
typedef struct vmp_sizes {
  size_t count;
  uint64_t values[VMP_MAX_SIZES];
} vmp_sizes;

typedef uint64_t vmp_value_bytes;
typedef uint64_t vmp_value_limit;
typedef double vmp_value_share;
typedef bool vmp_value_flag;
typedef int vmp_value_choice;
typedef uint64_t vmp_value_number;
typedef int vmp_value_ordinal;
typedef uint64_t vmp_value_micros;
typedef char *vmp_value_text;
typedef vmp_ordinals vmp_value_devices;
typedef vmp_sizes vmp_value_sizes;

// X(key, kind, how, field, default, choices, zero, sentence)
//   how       what the struct's field holds: U64, INT, REAL, TEXT, WORD (a choice by name), ORDINALS and SIZES (with
//             num_field)
//             ONLY: no field, text only
//   default   as text; "" where the device decides (vmp_config_resolve), or for an empty text
//   zero      ZERO: an explicit zero has a meaning. NONZERO: it is an error
#define VMP_DRIVER_OPTIONS(X)                                                                                   \
  X(driver, choice, INT, kind, "cuda", driver_choices, NONZERO, "which driver the library opens")               \
  X(cuda_library, text, TEXT, cuda_library, "", NULL, NONZERO, "file of the CUDA driver")                       \
  X(host_device, limit, U64, host_device_bytes, "80GiB", NULL, NONZERO, "host driver: memory of its device")    \
  X(host_num_devices, ordinal, INT, host_num_devices, "1", NULL, NONZERO, "host driver: number of devices")     \
  X(host_granule, bytes, U64, host_granule_bytes, "2MiB", NULL, NONZERO, "host driver: allocation granularity") \
  X(host_exposed, flag, INT, host_exposed, "0", NULL, ZERO, "host driver: the CPU can read through mappings")   \
  X(host_cost_file, text, TEXT, host_cost_file, "", NULL, NONZERO, "host driver: file of what calls cost")

#define VMP_POOL_OPTIONS(X)                                                                                            \
  X(device, ordinal, INT, device, "0", NULL, ZERO, "ordinal of the device")                                            \
  X(preset, choice, WORD, preset, "mixed", preset_choices, ZERO, "a set of options under one name")                    \
  X(name, text, TEXT, name, "pool", NULL, ZERO, "shown in snapshots")                                                  \
  X(reserve, bytes, U64, reserve_bytes, "", NULL, NONZERO, "address space per reservation")                            \
  X(chunk_max, bytes, U64, chunk_max_bytes, "32MiB", NULL, NONZERO, "largest physical chunk")                          \
  X(hard_limit, limit, U64, hard_limit_bytes, "none", NULL, ZERO, "physical memory never held beyond this")            \
  X(soft_limit, limit, U64, soft_limit_bytes, "none", NULL, ZERO, "above it parked memory is taken first")             \
  X(park_limit, share, REAL, park_limit, "1", NULL, ZERO, "parked share of mapped above which it is taken first")      \
  X(initial_fraction, share, REAL, initial_fraction, "", NULL, ZERO, "share of device memory mapped at creation")      \
  X(strategy, choice, INT, strategy, "dynamic", strategy_choices, NONZERO, "when memory is mapped")                    \
  X(initial_must_fit, flag, INT, initial_must_fit, "0", NULL, ZERO, "less than initial_fraction is a failure")         \
  X(growth, bytes, U64, growth_bytes, "", NULL, ZERO, "a growth is rounded up to this; 0: what is needed")             \
  X(no_map_ahead, flag, INT, no_map_ahead, "0", NULL, ZERO, "map exactly what is needed")                              \
  X(edges, flag, INT, edges, "0", NULL, ZERO, "ends of blocks may share chunks where memory is short")                 \
  X(slab_max, bytes, U64, slab_max_bytes, "64KiB", NULL, ZERO, "requests up to this are slab's")                       \
  X(buddy_from, limit, U64, buddy_from_bytes, "none", NULL, ZERO, "requests from this on are buddy's")                 \
  X(arena, bytes, U64, arena_bytes, "", NULL, NONZERO, "address space of one mid arena")                               \
  X(slab_random, flag, INT, slab_random, "0", NULL, ZERO, "objects of a span are handed out in random order")          \
  X(seed, number, U64, seed, "1", NULL, NONZERO, "seed of that order")                                                 \
  X(cross_stream, choice, INT, cross_stream, "wait", cross_stream_choices, NONZERO, "memory freed on other streams")   \
  X(wait, micros, U64, wait_us, "1s", NULL, ZERO, "longest host wait before out of memory")                            \
  X(destroy_releases, flag, INT, destroy_releases, "0", NULL, ZERO, "destroy frees live blocks itself")                \
  X(peers, devices, ORDINALS, peers, "", NULL, ZERO, "devices that may use the pool's memory")                         \
  X(classes, sizes, SIZES, class_bytes, "", NULL, ZERO, "fixed block sizes beside slab's own")                         \
  X(wait_limit, share, REAL, wait_limit, "0.2", NULL, ZERO, "idle share of mapped above which streams wait")                           \
  X(thread_cache, limit, U64, thread_cache_bytes, "none", NULL, ZERO, "what threads keep for themselves, all in all")    \
  X(single_submitter, flag, INT, single_submitter, "0", NULL, ZERO, "compaction needs no quiescence")                   \
  X(log, text, ONLY, none, "", NULL, ZERO, "file of the event log")                                                    \
  X(log_ring, bytes, ONLY, none, "0", NULL, ZERO, "size of the event log as a ring; 0: it grows")                      \
  X(log_stacks, bytes, ONLY, none, "0", NULL, ZERO, "a stack is logged per so many bytes; 0: none")                    \
  X(margin, share, REAL, predict_margin, "0.04", NULL, ZERO, "predictive: mapped beyond what a step needed")           \
  X(step_waits, flag, INT, step_waits, "0", NULL, ZERO, "predictive: vmp_pool_step waits for the worker")            \
  X(snapshot_on, text, ONLY, none, "", NULL, ZERO, "when a snapshot is written by itself: oom|exit|signal=USR2")       \
  X(snapshot_dir, text, ONLY, none, "", NULL, ZERO, "folder of those snapshots")                                       \
  X(live, flag, ONLY, none, "0", NULL, ZERO, "figures in shared memory, for vmpool ps and top")                        \
  X(control, flag, ONLY, none, "0", NULL, ZERO, "a socket for snapshot, trim, defragment and limits")                          \
  X(adaptive, number, U64, adaptive_classes, "0", NULL, ZERO, "block sizes taken over from what was asked for")        \
  X(adaptive_share, share, REAL, adaptive_share, "0.9", NULL, ZERO, "share of requests that they are for")          \
  X(poison, number, U64, poison_byte, "0", NULL, ZERO, "debug: freed blocks are filled with this byte; 0: not")        \
  X(quarantine, bytes, U64, quarantine_bytes, "0", NULL, ZERO, "debug: freed memory that is not reused yet")           \
  X(guard_slots, flag, INT, guard_slots, "0", NULL, ZERO, "debug: an unmapped slot behind each large block") \
  X(defragment_steps, number, U64, defragment_steps, "0", NULL, ZERO, "gather every so many steps; 0: not") \
  X(defragment_blocks, number, U64, defragment_blocks, "0", NULL, ZERO, "gather above so many free blocks; 0: not") \
  X(defragment_share, share, REAL, defragment_share, "1", NULL, ZERO, "gather above this idle share of mapped") \
  X(defragment_oom, flag, INT, defragment_oom, "0", NULL, ZERO, "gather before out of memory") \
  X(release_above, limit, U64, release_above_bytes, "none", NULL, ZERO, "idle memory above this goes back in time") \
  X(shared_arenas, flag, INT, shared_arenas, "0", NULL, ZERO, "slab's spans lie in the same arenas as larger blocks") \
  X(release_after, micros, U64, release_after_us, "1s", NULL, ZERO, "how long it has to have been idle")

typedef enum vmp_option {
#define X(key, ...) VMP_OPTION_##key,
  VMP_DRIVER_OPTIONS(X) VMP_POOL_OPTIONS(X)
#undef X
      VMP_OPTION_COUNT
} vmp_option;

typedef enum vmp_preset {
  VMP_PRESET_MIXED = 0,
  VMP_PRESET_TIGHT,
  VMP_PRESET_CLASSIC,
  VMP_PRESET_SLAB,
  VMP_PRESET_MID,
  VMP_PRESET_BUDDY,
  VMP_PRESET_TRAINING,
  VMP_PRESET_INFERENCE,
  VMP_PRESET_BLOCKS,
} vmp_preset;

typedef enum vmp_source {  // where a value came from
  VMP_SOURCE_DEFAULT = 0,
  VMP_SOURCE_PRESET,
  VMP_SOURCE_FIELD,
  VMP_SOURCE_CONF,
  VMP_SOURCE_ENVIRONMENT,
} vmp_source;

// vmp_config: the value of every option, and its source. Zero it before vmp_config_read.
typedef struct vmp_config {
#define X(key, kind, ...) vmp_value_##kind key;
  VMP_DRIVER_OPTIONS(X)
  VMP_POOL_OPTIONS(X)
#undef X
      vmp_source source[VMP_OPTION_COUNT];
  bool adjusted[VMP_OPTION_COUNT];  // resolve or the pool changed the value to what is possible
} vmp_config;

// vmp_config_environment returns VMP_CONF's text, or NULL. The only place in the library that reads the environment.
const char *vmp_config_environment(void);

// vmp_config_read fills in *config from the structs (either may be NULL), the struct's `conf` text and
// `environment` (NULL: none). The caller ends it with vmp_config_free. VMP_ERROR_CONFIG,
// VMP_ERROR_HOST_OUT_OF_MEMORY; then *config is untouched.
vmp_status vmp_config_read(vmp_config *config, const vmp_driver_options *driver_options,
                           const vmp_pool_options *pool_options, const char *environment);

// vmp_config_resolve turns what depends on the device into bytes: granules, defaults, roundings. Memory beyond
// VMP_MEMORY_BASIS counts as that much. VMP_ERROR_CONFIG names the option that doesn't suit the device.
#define VMP_MEMORY_BASIS (UINT64_C(1) << 40)
vmp_status vmp_config_resolve(vmp_config *config, uint64_t granule_bytes, uint64_t device_bytes);

// vmp_config_free frees what the config owns and zeroes it.
void vmp_config_free(vmp_config *config);

// vmp_config_print writes "key:value (source)" lines of all pool options into `buffer` (always terminated) and
// returns the length that the whole text has, as snprintf does.
size_t vmp_config_print(const vmp_config *config, char *buffer, size_t size);

// vmp_config_value writes one option's value as text that the parser reads back, and returns its length as
// snprintf does. vmp_config_source writes where it came from ("default", "preset tight", "field", "conf",
// "VMP_CONF", each with ", adjusted" where it was).
size_t vmp_config_value(const vmp_config *config, vmp_option option, char *buffer, size_t size);
size_t vmp_config_source(const vmp_config *config, vmp_option option, char *buffer, size_t size);

// vmp_option_key returns an option's key, vmp_option_sentence what it means. Static storage.
const char *vmp_option_key(vmp_option option);
const char *vmp_option_sentence(vmp_option option);
// vmp_option_is_driver: whether the option belongs to a driver (else to a pool).
bool vmp_option_is_driver(vmp_option option);

#endif  // VMPOOL_POOL_OPTIONS_H_
