// probes.h: what is asked, rule by rule of table A, and what is to be answered.
//
//   X(rule, evidence, function, asked, strict, also, levels, where)
//     strict   table A's code, which the host driver gives at level strict; `asked` says so where it is no code
//     also     the codes that the table allows beside it, and what section 8 or 15 of the contract leaves open
//     levels   the host driver at levels lint and compat: ALIKE, LINT(code) (at both), COMPAT(code)
//     where    HERE, ALONE, BARE: see conform_where
//
// Compat is the other answer wherever the table knows one, so that callers can be tested against it.
#ifndef VMPOOL_TESTS_CONFORMANCE_PROBES_H_
#define VMPOOL_TESTS_CONFORMANCE_PROBES_H_

#include "tests/conformance/conform.h"

// ---- probes_device.c ----
#define CONFORM_PROBES_DEVICE(X)                                                                                   \
  X(1, "D,I", count_before_init, "device count before cuInit", 3, NONE, ALIKE, BARE)                               \
  X(1, "D,I", reserve_before_init, "reserve before cuInit", 3, NONE, ALIKE, BARE)                                  \
  X(1, "D,I", stream_before_init, "stream create before cuInit", 3, NONE, ALIKE, BARE)                             \
  X(1, "U", version_before_init, "driver version before cuInit", 0, ALSO(3), ALIKE, BARE)                          \
  X(1, "D,I", init_in_a_fork, "cuInit in a forked child", 3, NONE, ALIKE, ALONE)                                   \
  X(1, "D,I", reserve_in_a_fork, "reserve in a forked child", 3, NONE, ALIKE, ALONE)                               \
  X(2, "D", init_with_flags, "init: flags 1", 1, NONE, ALIKE, HERE)                                                \
  X(3, "D", device_minus_one, "device: ordinal -1", 101, NONE, ALIKE, HERE)                                        \
  X(3, "D", device_beyond_the_last, "device: ordinal beyond the last", 101, NONE, ALIKE, HERE)                     \
  X(3, "D", device_to_nowhere, "device: out null", 1, NONE, ALIKE, HERE)                                           \
  X(4, "D", attribute_unknown, "attribute: unknown", 1, NONE, ALIKE, HERE)                                         \
  X(4, "D", attribute_to_nowhere, "attribute: out null", 1, NONE, ALIKE, HERE)                                     \
  X(4, "D", attribute_of_no_device, "attribute: no such device", 101, NONE, ALIKE, HERE)                           \
  X(5, "D", stream_without_context, "stream create without context", 201, NONE, ALIKE, HERE)                       \
  X(5, "D", event_without_context, "event create without context", 201, NONE, ALIKE, HERE)                         \
  X(5, "D", copy_without_context, "copy without context", 201, NONE, ALIKE, HERE)                                  \
  X(5, "D", fill_without_context, "memset without context", 201, NONE, ALIKE, ALONE)                               \
  X(5, "D", memory_info_without_context, "memory info without context", 201, NONE, ALIKE, HERE)                    \
  X(6, "D", release_of_a_context_not_retained, "context release without retain", 201, NONE, ALIKE, ALONE)          \
  X(6, "D", pop_of_an_empty_stack, "pop of an empty stack", 201, NONE, ALIKE, HERE)                                \
  X(7, "I", alloc_after_reset, "cuMemAlloc on a reset context", 709, ALSO(201), COMPAT(201), ALONE)                \
  X(7, "I", stream_after_reset, "stream create on a reset context", 709, ALSO(201), COMPAT(201), ALONE)            \
  X(7, "I", memory_info_after_reset, "memory info on a reset context", 709, ALSO(201), COMPAT(201), ALONE)         \
  X(59, "D,I", peer_twice, "enable peer access twice", 704, NONE, ALIKE, ALONE)                                    \
  X(59, "D,I", peer_out_of_reach, "enable peer access out of reach", 217, NONE, ALIKE, ALONE)                      \
  X(59, "D,I", peer_number_nine, "enable a ninth peer", 711, NONE, ALIKE, ALONE)                                   \
  X(59, "D,I", peer_never_enabled, "disable peer access never enabled", 705, NONE, ALIKE, ALONE)                   \
  X(60, "D", symbol_of_the_future, "symbol: version newer than the driver", 1, ALSO(500), ALIKE, HERE)             \
  X(60, "D", symbol_missing, "symbol: missing (0: NULL and status 1)", 0, ALSO(500), ALIKE, HERE)                  \
  X(61, "D", name_of_no_code, "name of code 123456 (1: and NULL)", 1, NONE, ALIKE, HERE)                           \
  X(61, "D", text_of_no_code, "text of code 123456 (1: and NULL)", 1, NONE, ALIKE, HERE)                           \
  X(62, "D", count_at_exit, "device count in an exit handler", 4, NONE, ALIKE, BARE)

// ---- probes_memory.c ----
#define CONFORM_PROBES_MEMORY(X)                                                                                   \
  X(8, "T", granularity_to_nowhere, "granularity: out null", 1, NONE, ALIKE, HERE)                                 \
  X(8, "T", granularity_of_unknown_kind, "granularity: unknown option", 1, NONE, ALIKE, HERE)                      \
  X(9, "T", granularity_without_prop, "granularity: property null", 1, ALSO(0, CONFORM_CRASHED), ALIKE, ALONE)     \
  X(9, "T", granularity_of_no_type, "granularity: type 0", 1, ALSO(0), LINT(0), HERE)                              \
  X(9, "T", granularity_of_nowhere, "granularity: location type 0", 1, ALSO(0), LINT(0), HERE)                     \
  X(9, "T", granularity_of_no_device, "granularity: no such device", 1, ALSO(0), LINT(0), HERE)                    \
  X(10, "T,D", reserve_to_nowhere, "reserve: out null", 1, NONE, ALIKE, HERE)                                      \
  X(10, "T,D", reserve_with_flags, "reserve: flags 1", 1, NONE, ALIKE, HERE)                                       \
  X(11, "T/U", reserve_nothing, "reserve: size 0", 1, ALSO(2), COMPAT(2), HERE)                                    \
  X(12, "U", reserve_odd_size, "reserve: a granule and a byte", 1, ALSO(2), COMPAT(2), HERE)                       \
  X(12, "U", reserve_half_a_granule, "reserve: half a granule", 1, ALSO(2, 0), LINT(0), HERE)                      \
  X(13, "D/T", reserve_odd_alignment, "reserve: alignment of 3 granules", 1, ALSO(2), COMPAT(2), HERE)             \
  X(14, "D,I", reserve_near_an_odd_hint, "reserve: hint of half a granule", 1, ALSO(0), LINT(0), HERE)             \
  X(15, "I", reserve_too_much, "reserve: 2^48 bytes", 2, NONE, ALIKE, HERE)                                        \
  X(16, "I", reserve_without_vmm, "reserve: no device has VMM", 801, NONE, ALIKE, HERE)                            \
  X(16, "I", create_without_vmm, "create: on a device without VMM", 801, NONE, ALIKE, HERE)                        \
  X(17, "D,T", free_a_part, "address free: part of a reservation", 1, NONE, ALIKE, HERE)                           \
  X(17, "D,T", free_null, "address free: null", 1, NONE, ALIKE, HERE)                                              \
  X(17, "D,T", free_nothing, "address free: size 0", 1, NONE, ALIKE, HERE)                                         \
  X(17, "D,T", free_twice, "address free: twice", 1, NONE, ALIKE, ALONE)                                           \
  X(18, "D/U", free_while_mapped, "address free: something is mapped", 1, ALSO(0), COMPAT(0), ALONE)               \
  X(19, "T,D", create_to_nowhere, "create: out null", 1, NONE, ALIKE, HERE)                                        \
  X(19, "T,D", create_without_prop, "create: property null", 1, NONE, ALIKE, ALONE)                                \
  X(19, "T,D", create_nothing, "create: size 0", 1, NONE, ALIKE, HERE)                                             \
  X(19, "T,D", create_odd_size, "create: a granule and a byte", 1, NONE, ALIKE, HERE)                              \
  X(19, "T,D", create_of_no_type, "create: type 0", 1, NONE, ALIKE, HERE)                                          \
  X(19, "T,D", create_nowhere, "create: location type 0", 1, NONE, ALIKE, HERE)                                    \
  X(19, "T,D", create_with_flags, "create: flags 1", 1, NONE, ALIKE, HERE)                                         \
  X(20, "T/U", create_on_no_device, "create: no such device", 1, ALSO(101), COMPAT(101), HERE)                     \
  X(20, "T/U", create_on_device_minus_one, "create: device -1", 1, ALSO(101), COMPAT(101), HERE)                   \
  X(21, "D,I", create_shared_host_memory, "create: host memory with a handle type", 1, ALSO(801), COMPAT(801), HERE) \
  X(21, "D,I", create_on_current_node, "create: HOST_NUMA_CURRENT", 1, ALSO(801), COMPAT(801), HERE)               \
  X(21, "D,I", create_on_node_minus_one, "create: NUMA node -1", 1, ALSO(801), COMPAT(801), HERE)                  \
  X(22, "I", create_for_windows, "create: a Windows handle type", 801, ALSO(1, 800, 101), COMPAT(1), HERE)         \
  X(22, "I", create_for_a_fabric, "create: a fabric handle, attribute 0", 801, ALSO(1, 800, 101), COMPAT(1), HERE) \
  X(23, "D", create_too_much, "create: more than the device has", 2, NONE, ALIKE, HERE)                            \
  X(24, "U", create_with_unknown_usage, "create: usage 0x80", 1, ALSO(0), LINT(0), HERE)                           \
  X(24, "U", create_with_reserved_bits, "create: a reserved byte set", 1, ALSO(0), LINT(0), HERE)                  \
  X(24, "U", create_with_windows_data, "create: Windows metadata set", 1, ALSO(0), LINT(0), HERE)                  \
  X(25, "T", release_zero, "release: handle 0", 1, NONE, ALIKE, HERE)                                              \
  X(26, "D", release_twice, "release: twice", 1, ALSO(CONFORM_CRASHED), ALIKE, ALONE)                              \
  X(26, "D", release_a_foreign_handle, "release: a number that is no handle", 1, ALSO(CONFORM_CRASHED), ALIKE, ALONE) \
  X(44, "T", retain_to_nowhere, "retain: out null", 1, NONE, ALIKE, HERE)                                          \
  X(44, "T", retain_null, "retain: null", 1, NONE, ALIKE, HERE)                                                    \
  X(44, "T", retain_what_is_not_mapped, "retain: nothing mapped", 1, NONE, ALIKE, HERE)                            \
  X(44, "U", retain_of_plain_memory, "retain: memory of cuMemAlloc", 1, NONE, ALIKE, HERE)                         \
  X(45, "T", properties_to_nowhere, "properties: out null", 1, NONE, ALIKE, HERE)                                  \
  X(45, "T", properties_of_no_handle, "properties: handle 0", 1, NONE, ALIKE, HERE)                                \
  X(46, "T", export_not_requested, "export: type not requested", 1, NONE, ALIKE, HERE)                             \
  X(46, "T", export_with_flags, "export: flags 1", 1, NONE, ALIKE, HERE)                                           \
  X(46, "T", export_to_nowhere, "export: out null", 1, NONE, ALIKE, HERE)                                          \
  X(47, "T", import_null, "import: null", 1, ALSO(999, 801), COMPAT(999), ALONE)                                   \
  X(47, "U", import_closed_descriptor, "import: a descriptor that is closed", 1, ALSO(999, 801), COMPAT(999), ALONE) \
  X(47, "U", import_other_descriptor, "import: a descriptor of something else", 1, ALSO(999, 801), COMPAT(999), ALONE) \
  X(47, "U", import_wrong_type, "import: a Windows handle type", 1, ALSO(999, 801), COMPAT(999), ALONE)            \
  X(48, "D", import_a_fabric_handle, "import: a fabric handle, no channel", 800, ALSO(801), COMPAT(801), ALONE)    \
  X(63, "-", leaks_told, "leaks told of one thing of each of 6 kinds", 6, NONE, ALIKE, HERE)                       \
  X(64, "D", fresh_memory_read, "remarks on reading fresh memory", 1, NONE, COMPAT(0), HERE)                       \
  X(64, "D", alias_read_early, "reports of reading an alias early", 1, NONE, ALIKE, HERE)                        \
  X(64, "D", alias_read_in_order, "reports of reading an alias in order", 0, NONE, ALIKE, HERE)

// ---- probes_map.c ----
#define CONFORM_PROBES_MAP(X)                                                                                      \
  X(27, "D,I", map_at_an_offset, "map: offset of one granule", 1, ALSO(801), COMPAT(801), HERE)                    \
  X(28, "D,T", map_nothing, "map: size 0", 1, NONE, ALIKE, HERE)                                                   \
  X(28, "D,T", map_misaligned, "map: address + 1", 1, NONE, ALIKE, HERE)                                           \
  X(28, "D,T", map_odd_size, "map: a granule less a byte", 1, NONE, ALIKE, HERE)                                   \
  X(28, "D,T", map_at_null, "map: address null", 1, NONE, ALIKE, HERE)                                             \
  X(28, "D,T", map_with_flags, "map: flags 1", 1, NONE, ALIKE, HERE)                                               \
  X(29, "I", map_a_prefix, "map: half of a handle", 1, ALSO(0), COMPAT(0), HERE)                                   \
  X(29, "I", map_beyond_the_handle, "map: more than the handle", 1, NONE, ALIKE, HERE)                             \
  X(30, "T", map_unreserved, "map: not reserved", 1, NONE, ALIKE, ALONE)                                           \
  X(30, "T", map_over_the_edge, "map: over a reservation's end", 1, NONE, ALIKE, ALONE)                            \
  X(30, "U", map_across_reservations, "map: across two reservations", 1, ALSO(0), ALIKE, ALONE)                    \
  X(31, "D", map_over_a_mapping, "map: over a mapping", 1, ALSO(0), COMPAT(0), ALONE)                              \
  X(31, "D", map_over_half_a_mapping, "map: over a part of a mapping", 1, ALSO(0), ALIKE, ALONE)                   \
  X(32, "T", map_no_handle, "map: handle 0", 1, NONE, ALIKE, HERE)                                                 \
  X(32, "U", map_a_released_handle, "map: a released handle", 1, ALSO(400, CONFORM_CRASHED), COMPAT(400), ALONE)   \
  X(33, "T", unmap_half_a_mapping, "unmap: half of a mapping", 1, NONE, ALIKE, ALONE)                              \
  X(33, "T", unmap_into_a_mapping, "unmap: its end inside a mapping", 1, NONE, ALIKE, ALONE)                       \
  X(33, "I", unmap_what_is_not_mapped, "unmap: nothing mapped", 1, NONE, ALIKE, ALONE)                             \
  X(33, "U", unmap_with_a_hole, "unmap: with a hole", 1, ALSO(0), ALIKE, ALONE)                                    \
  X(33, "U", unmap_across_reservations, "unmap: across two reservations", 1, ALSO(0), ALIKE, ALONE)                \
  X(34, "T", unmap_null, "unmap: null", 1, NONE, ALIKE, HERE)                                                      \
  X(34, "T", unmap_nothing, "unmap: size 0", 1, NONE, ALIKE, HERE)                                                 \
  X(36, "T", grant_half_a_mapping, "set access: half of a mapping", 1, NONE, ALIKE, HERE)                          \
  X(36, "T", grant_what_is_not_mapped, "set access: nothing mapped", 1, NONE, ALIKE, HERE)                         \
  X(36, "T", grant_with_a_hole, "set access: with a hole", 1, NONE, ALIKE, HERE)                                   \
  X(36, "I", grant_plain_memory, "set access: memory of cuMemAlloc", 1, NONE, ALIKE, ALONE)                        \
  X(37, "T", grant_without_descriptor, "set access: descriptors null", 1, NONE, ALIKE, HERE)                       \
  X(37, "T", grant_to_none, "set access: count 0", 1, NONE, ALIKE, HERE)                                           \
  X(37, "T", grant_nothing, "set access: size 0", 1, NONE, ALIKE, HERE)                                            \
  X(37, "U", grant_writing_alone, "set access: flags 2", 1, NONE, ALIKE, HERE)                                     \
  X(38, "U", grant_to_no_device, "set access: no such device", 101, ALSO(1), COMPAT(1), HERE)                      \
  X(38, "U", grant_to_device_minus_one, "set access: device -1", 101, ALSO(1), COMPAT(1), HERE)                    \
  X(39, "U", grant_out_of_reach, "set access: a device out of reach", 101, ALSO(1, 217, 801), COMPAT(217), HERE)   \
  X(40, "D", grant_to_the_host, "set access: the host, device memory", 1, ALSO(801), COMPAT(801), ALONE)           \
  X(40, "D", grant_to_a_node, "set access: a NUMA node, device memory", 1, ALSO(801), COMPAT(801), ALONE)          \
  X(41, "U", grant_without_page_tables, "set access: page tables run out", 2, NONE, ALIKE, HERE)                   \
  X(42, "T", access_to_nowhere, "get access: out null", 1, NONE, ALIKE, HERE)                                      \
  X(42, "T", access_for_nobody, "get access: location null", 1, NONE, ALIKE, HERE)                                 \
  X(42, "T", access_of_what_is_not_mapped, "get access: nothing mapped", 1, NONE, ALIKE, HERE)                     \
  X(42, "T", access_from_nowhere, "get access: location type 0", 1, NONE, ALIKE, HERE)                             \
  X(42, "T", access_of_no_device, "get access: no such device", 101, NONE, ALIKE, HERE)                            \
  X(43, "T", access_never_granted, "get access: never granted (0: and none)", 0, NONE, ALIKE, HERE)

// ---- probes_work.c ----
#define CONFORM_PROBES_WORK(X)                                                                                     \
  X(35, "I", unmap_under_work, "unmap under queued work", 0, NONE, ALIKE, ALONE)                                   \
  X(35, "I", unmap_under_work_is_told, "unmaps under work told", 1, NONE, ALIKE, ALONE)                            \
  X(35, "I", sync_after_unmap_under_work, "sync after unmap under work", 700, ALSO(0), ALIKE, ALONE)               \
  X(55, "T", htod_without_right, "copy to device: no right", 1, NONE, ALIKE, ALONE)                                \
  X(55, "T", htod_to_read_only, "copy to device: read-only", 1, NONE, ALIKE, ALONE)                                \
  X(55, "I", htod_to_unmapped, "copy to device: not mapped", 1, NONE, ALIKE, ALONE)                                \
  X(55, "U", htod_over_the_edge, "copy to device: beyond the last mapping", 1, NONE, ALIKE, ALONE)                 \
  X(55, "I", dtoh_without_right, "copy to host: no right", 1, NONE, ALIKE, ALONE)                                  \
  X(55, "I", dtod_without_right, "copy on device: no right to the source", 1, NONE, ALIKE, ALONE)                  \
  X(55, "I", fill_without_right, "memset: no right", 1, NONE, ALIKE, ALONE)                                        \
  X(55, "I", htod_from_null, "copy to device: source null", 1, NONE, ALIKE, ALONE)                                 \
  X(56, "I", rights_lowered_under_work, "sync after rights lowered under work", 700, ALSO(0), ALIKE, ALONE)        \
  X(56, "I", rights_given_back_under_work, "sync after rights taken and given back", 700, ALSO(0), ALIKE, ALONE)   \
  X(56, "I", remapped_under_work, "sync after a remap under work", 700, ALSO(0), ALIKE, ALONE)                     \
  X(58, "D,I", sync_after_illegal_address, "sync again after 700", 700, NONE, ALIKE, ALONE)                        \
  X(58, "D,I", stream_after_illegal_address, "stream create after 700", 700, NONE, ALIKE, ALONE)                   \
  X(58, "D,I", event_after_illegal_address, "event create after 700", 700, NONE, ALIKE, ALONE)                     \
  X(58, "D,I", memory_info_after_illegal_address, "memory info after 700", 700, NONE, ALIKE, ALONE)                \
  X(58, "D,I", copy_after_illegal_address, "copy after 700", 700, NONE, ALIKE, ALONE)                              \
  X(58, "U", reserve_after_illegal_address, "reserve after 700", 0, ALSO(700), ALIKE, ALONE)                       \
  X(58, "U", create_after_illegal_address, "create after 700", 0, ALSO(700), ALIKE, ALONE)                         \
  X(58, "U", unmap_after_illegal_address, "unmap after 700", 0, ALSO(700), ALIKE, ALONE)                           \
  X(58, "U", release_after_illegal_address, "release after 700", 0, ALSO(700), ALIKE, ALONE)

// ---- probes_stream.c ----
#define CONFORM_PROBES_STREAM(X)                                                                                   \
  X(49, "D", stream_with_bad_flags, "stream create: flags 0x80", 1, NONE, ALIKE, HERE)                             \
  X(49, "D", event_with_bad_flags, "event create: flags 0x80", 1, NONE, ALIKE, HERE)                               \
  X(49, "D", event_shared_with_timing, "event create: interprocess with timing", 1, NONE, ALIKE, HERE)             \
  X(50, "D", record_across_contexts, "event record across contexts", 400, ALSO(1, 709), COMPAT(1), ALONE)          \
  X(50, "U", query_a_destroyed_event, "event query: destroyed", 400, ALSO(1, 709, CONFORM_CRASHED), COMPAT(1), ALONE) \
  X(50, "U", query_a_destroyed_stream, "stream query: destroyed", 400, ALSO(1, 709, CONFORM_CRASHED), COMPAT(1), \
    ALONE)                                                                                                          \
  X(50, "U", query_no_event, "event query: null", 400, ALSO(1, 709), COMPAT(1), HERE)                              \
  X(51, "D", query_a_pending_stream, "stream query: pending", 600, NONE, ALIKE, HERE)                              \
  X(51, "D", query_a_pending_event, "event query: pending", 600, NONE, ALIKE, HERE)                                \
  X(52, "D", query_before_record, "event query: never recorded", 0, NONE, ALIKE, HERE)                             \
  X(52, "D", sync_before_record, "event synchronize: never recorded", 0, NONE, ALIKE, HERE)                        \
  X(53, "D", elapsed_before_record, "elapsed time: never recorded", 400, NONE, ALIKE, HERE)                        \
  X(53, "D", elapsed_without_timing, "elapsed time: timing disabled", 400, NONE, ALIKE, HERE)                      \
  X(53, "D", elapsed_while_pending, "elapsed time: pending", 600, NONE, ALIKE, HERE)                               \
  X(54, "D", call_in_a_host_function, "memory info in a host function", 800, ALSO(CONFORM_SILENT), ALIKE, ALONE)   \
  X(57, "D", sync_a_capturing_stream, "stream synchronize: capturing", 900, NONE, ALIKE, ALONE)                    \
  X(57, "D", query_a_capturing_stream, "stream query: capturing", 900, NONE, ALIKE, ALONE)                         \
  X(57, "D", end_of_an_invalid_capture, "end of capture after that", 901, NONE, ALIKE, ALONE)                      \
  X(57, "D", legacy_stream_under_capture, "memset on legacy stream, capture", 906, NONE, ALIKE, ALONE)             \
  X(57, "D", query_a_captured_event, "event query: captured", 907, ALSO(900), ALIKE, ALONE)                        \
  X(57, "D", alloc_under_capture, "cuMemAlloc while a stream captures", 900, NONE, ALIKE, ALONE)                   \
  X(57, "I", reserve_under_capture, "reserve while a stream captures", 0, NONE, ALIKE, ALONE)                      \
  X(57, "D", end_with_an_unjoined_stream, "end of capture: a stream not joined", 904, NONE, ALIKE, ALONE)

#define CONFORM_PROBES(X)                                                                                 \
  CONFORM_PROBES_DEVICE(X) CONFORM_PROBES_MEMORY(X) CONFORM_PROBES_MAP(X) CONFORM_PROBES_WORK(X) \
  CONFORM_PROBES_STREAM(X)

#define X(rule, evidence, name, ...) int conform_##name(conform *c);
CONFORM_PROBES(X)
#undef X

#endif  // VMPOOL_TESTS_CONFORMANCE_PROBES_H_
