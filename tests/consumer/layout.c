// layout.c: sizes and offsets of the public structures. A program that was built against these headers has them
// compiled in, so a change here is a break for it: new fields go to the end, and struct_size tells them apart.
#include <stddef.h>

#include "pool/vmpool.h"
#include "pool/vmpool_host.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "the size of " #type " has changed")
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == (offset), #type "." #field " has moved")

#if defined(__LP64__)
SIZE(vmp_driver_options, 64);
AT(vmp_driver_options, struct_size, 0);
AT(vmp_driver_options, kind, 8);
AT(vmp_driver_options, cuda_library, 16);
AT(vmp_driver_options, host_device_bytes, 24);
AT(vmp_driver_options, host_num_devices, 32);
AT(vmp_driver_options, host_granule_bytes, 40);
AT(vmp_driver_options, host_exposed, 48);
AT(vmp_driver_options, host_cost_file, 56);

SIZE(vmp_driver_calls, 88);
AT(vmp_driver_calls, reserve, 0);
AT(vmp_driver_calls, create, 8);
AT(vmp_driver_calls, map, 16);
AT(vmp_driver_calls, set_access, 24);
AT(vmp_driver_calls, unmap, 32);
AT(vmp_driver_calls, release, 40);
AT(vmp_driver_calls, address_free, 48);
AT(vmp_driver_calls, event_record, 56);
AT(vmp_driver_calls, event_query, 64);
AT(vmp_driver_calls, stream_wait, 72);
AT(vmp_driver_calls, synchronize, 80);

SIZE(vmp_log_start_options, 24);
AT(vmp_log_start_options, struct_size, 0);
AT(vmp_log_start_options, ring_bytes, 8);
AT(vmp_log_start_options, stack_bytes, 16);

SIZE(vmp_pool_options, 344);
AT(vmp_pool_options, struct_size, 0);
AT(vmp_pool_options, driver, 8);
AT(vmp_pool_options, device, 16);
AT(vmp_pool_options, preset, 24);
AT(vmp_pool_options, conf, 32);
AT(vmp_pool_options, name, 40);
AT(vmp_pool_options, reserve_bytes, 48);
AT(vmp_pool_options, chunk_max_bytes, 56);
AT(vmp_pool_options, hard_limit_bytes, 64);
AT(vmp_pool_options, soft_limit_bytes, 72);
AT(vmp_pool_options, park_limit, 80);
AT(vmp_pool_options, initial_fraction, 88);
AT(vmp_pool_options, strategy, 96);
AT(vmp_pool_options, initial_must_fit, 100);
AT(vmp_pool_options, growth_bytes, 104);
AT(vmp_pool_options, no_map_ahead, 112);
AT(vmp_pool_options, slab_max_bytes, 120);
AT(vmp_pool_options, buddy_from_bytes, 128);
AT(vmp_pool_options, arena_bytes, 136);
AT(vmp_pool_options, slab_random, 144);
AT(vmp_pool_options, seed, 152);
AT(vmp_pool_options, cross_stream, 160);
AT(vmp_pool_options, wait_us, 168);
AT(vmp_pool_options, destroy_releases, 176);
AT(vmp_pool_options, peers, 184);
AT(vmp_pool_options, num_peers, 192);
AT(vmp_pool_options, class_bytes, 200);
AT(vmp_pool_options, num_class_bytes, 208);
AT(vmp_pool_options, wait_limit, 216);
AT(vmp_pool_options, thread_cache_bytes, 224);
AT(vmp_pool_options, predict_margin, 232);
AT(vmp_pool_options, step_waits, 240);
AT(vmp_pool_options, edges, 244);
AT(vmp_pool_options, adaptive_classes, 248);
AT(vmp_pool_options, poison_byte, 264);
AT(vmp_pool_options, quarantine_bytes, 272);
AT(vmp_pool_options, guard_slots, 280);
AT(vmp_pool_options, adaptive_share, 256);
AT(vmp_pool_options, single_submitter, 284);
AT(vmp_pool_options, defragment_oom, 288);
AT(vmp_pool_options, defragment_steps, 296);
AT(vmp_pool_options, defragment_blocks, 304);
AT(vmp_pool_options, defragment_share, 312);
AT(vmp_pool_options, release_above_bytes, 320);
AT(vmp_pool_options, release_after_us, 328);
AT(vmp_pool_options, shared_arenas, 336);

SIZE(vmp_class_proposal, 560);
AT(vmp_class_proposal, struct_size, 0);
AT(vmp_class_proposal, requests, 8);
AT(vmp_class_proposal, covered_requests, 16);
AT(vmp_class_proposal, covered_bytes, 24);
AT(vmp_class_proposal, waste, 32);
AT(vmp_class_proposal, num_classes, 40);
AT(vmp_class_proposal, class_bytes, 48);

SIZE(vmp_block_info, 64);
AT(vmp_block_info, struct_size, 0);
AT(vmp_block_info, base, 8);
AT(vmp_block_info, requested_bytes, 16);
AT(vmp_block_info, bytes, 24);
AT(vmp_block_info, layer, 32);
AT(vmp_block_info, name, 40);
AT(vmp_block_info, tag_name, 48);
AT(vmp_block_info, tag, 56);
AT(vmp_block_info, pins, 60);

SIZE(vmp_realloc_report, 32);
AT(vmp_realloc_report, struct_size, 0);
AT(vmp_realloc_report, moved, 8);
AT(vmp_realloc_report, copied_bytes, 16);
AT(vmp_realloc_report, remapped_bytes, 24);

SIZE(vmp_remap_callbacks, 24);
AT(vmp_remap_callbacks, self, 0);
AT(vmp_remap_callbacks, before_unmap, 8);
AT(vmp_remap_callbacks, after_map, 16);

SIZE(vmp_tag_info, 64);
AT(vmp_tag_info, struct_size, 0);
AT(vmp_tag_info, name, 8);
AT(vmp_tag_info, suspendable, 16);
AT(vmp_tag_info, state, 20);
AT(vmp_tag_info, blocks, 24);
AT(vmp_tag_info, live, 32);
AT(vmp_tag_info, requested, 40);
AT(vmp_tag_info, suspended, 48);
AT(vmp_tag_info, backup, 56);

SIZE(vmp_suspend_report, 48);
AT(vmp_suspend_report, struct_size, 0);
AT(vmp_suspend_report, suspended_bytes, 8);
AT(vmp_suspend_report, saved_bytes, 16);
AT(vmp_suspend_report, released_bytes, 24);
AT(vmp_suspend_report, released_chunks, 32);
AT(vmp_suspend_report, kept_pinned_bytes, 40);

SIZE(vmp_suspend_options, 56);
AT(vmp_suspend_options, struct_size, 0);
AT(vmp_suspend_options, content, 8);
AT(vmp_suspend_options, buffer_bytes, 16);
AT(vmp_suspend_options, self, 24);
AT(vmp_suspend_options, save, 32);
AT(vmp_suspend_options, load, 40);
AT(vmp_suspend_options, report, 48);

SIZE(vmp_alloc_options, 40);
AT(vmp_alloc_options, struct_size, 0);
AT(vmp_alloc_options, alignment, 8);
AT(vmp_alloc_options, tag, 16);
AT(vmp_alloc_options, name, 24);
AT(vmp_alloc_options, ticket, 32);

SIZE(vmp_trim_report, 56);
AT(vmp_trim_report, struct_size, 0);
AT(vmp_trim_report, released_bytes, 8);
AT(vmp_trim_report, kept_pending_bytes, 16);
AT(vmp_trim_report, kept_live_bytes, 24);
AT(vmp_trim_report, kept_other_bytes, 32);
AT(vmp_trim_report, kept_pinned_bytes, 40);
AT(vmp_trim_report, kept_captured_bytes, 48);

SIZE(vmp_defragment_options, 48);
AT(vmp_defragment_options, struct_size, 0);
AT(vmp_defragment_options, want_bytes, 8);
AT(vmp_defragment_options, max_driver_calls, 16);
AT(vmp_defragment_options, max_us, 24);
AT(vmp_defragment_options, dry_run, 32);
AT(vmp_defragment_options, allow_copy, 36);
AT(vmp_defragment_options, max_copied_bytes, 40);

SIZE(vmp_defragment_report, 160);
AT(vmp_defragment_report, struct_size, 0);
AT(vmp_defragment_report, largest_free_mapped_before, 8);
AT(vmp_defragment_report, largest_free_mapped_after, 16);
AT(vmp_defragment_report, moved_bytes, 24);
AT(vmp_defragment_report, moved_chunks, 32);
AT(vmp_defragment_report, released_bytes, 40);
AT(vmp_defragment_report, retiring, 48);
AT(vmp_defragment_report, map_calls, 56);
AT(vmp_defragment_report, set_access_calls, 64);
AT(vmp_defragment_report, unmap_calls, 72);
AT(vmp_defragment_report, release_calls, 80);
AT(vmp_defragment_report, stop, 88);
AT(vmp_defragment_report, reason, 96);
AT(vmp_defragment_report, mapped_before, 104);
AT(vmp_defragment_report, mapped_after, 112);
AT(vmp_defragment_report, copied_bytes, 120);
AT(vmp_defragment_report, split_chunks, 128);
AT(vmp_defragment_report, meshed_chunks, 136);
AT(vmp_defragment_report, left_pinned, 144);
AT(vmp_defragment_report, left_other, 152);

SIZE(vmp_pool_stats_data, 448);
AT(vmp_pool_stats_data, struct_size, 0);
AT(vmp_pool_stats_data, reserved_va, 8);
AT(vmp_pool_stats_data, mapped, 16);
AT(vmp_pool_stats_data, live, 24);
AT(vmp_pool_stats_data, requested, 32);
AT(vmp_pool_stats_data, parked, 40);
AT(vmp_pool_stats_data, spare, 48);
AT(vmp_pool_stats_data, pending, 56);
AT(vmp_pool_stats_data, retiring, 64);
AT(vmp_pool_stats_data, broken, 72);
AT(vmp_pool_stats_data, metadata, 80);
AT(vmp_pool_stats_data, peak_mapped, 88);
AT(vmp_pool_stats_data, peak_live, 96);
AT(vmp_pool_stats_data, peak_requested, 104);
AT(vmp_pool_stats_data, allocs, 112);
AT(vmp_pool_stats_data, frees, 120);
AT(vmp_pool_stats_data, failed_allocs, 128);
AT(vmp_pool_stats_data, blocks, 136);
AT(vmp_pool_stats_data, slab_live, 144);
AT(vmp_pool_stats_data, mid_live, 152);
AT(vmp_pool_stats_data, buddy_live, 160);
AT(vmp_pool_stats_data, largest_free_mapped, 168);
AT(vmp_pool_stats_data, device_free, 176);
AT(vmp_pool_stats_data, device_total, 184);
AT(vmp_pool_stats_data, granule, 192);
AT(vmp_pool_stats_data, hard_limit, 200);
AT(vmp_pool_stats_data, soft_limit, 208);
AT(vmp_pool_stats_data, chunks, 216);
AT(vmp_pool_stats_data, chunks_created, 224);
AT(vmp_pool_stats_data, chunks_released, 232);
AT(vmp_pool_stats_data, takes, 240);
AT(vmp_pool_stats_data, takes_resized, 248);
AT(vmp_pool_stats_data, stream_waits, 256);
AT(vmp_pool_stats_data, unfinished_wait_allocs, 264);
AT(vmp_pool_stats_data, host_waits, 272);
AT(vmp_pool_stats_data, steps, 280);
AT(vmp_pool_stats_data, step_peak_live, 288);
AT(vmp_pool_stats_data, max_step_peak_live, 296);
AT(vmp_pool_stats_data, regions, 304);
AT(vmp_pool_stats_data, region_reserved, 312);
AT(vmp_pool_stats_data, region_committed, 320);
AT(vmp_pool_stats_data, region_live, 328);
AT(vmp_pool_stats_data, pinned, 336);
AT(vmp_pool_stats_data, mapped_ahead, 344);
AT(vmp_pool_stats_data, ahead_unused, 352);
AT(vmp_pool_stats_data, renamed_streams, 360);
AT(vmp_pool_stats_data, cached, 368);
AT(vmp_pool_stats_data, cached_bound, 376);
AT(vmp_pool_stats_data, graph_kept, 384);
AT(vmp_pool_stats_data, shared, 392);
AT(vmp_pool_stats_data, shares, 400);
AT(vmp_pool_stats_data, set_aside, 408);
AT(vmp_pool_stats_data, suspended, 416);
AT(vmp_pool_stats_data, suspended_backup, 424);
AT(vmp_pool_stats_data, trigger_runs, 432);
AT(vmp_pool_stats_data, released_by_decay, 440);

SIZE(vmp_region_options, 56);
AT(vmp_region_options, struct_size, 0);
AT(vmp_region_options, max_bytes, 8);
AT(vmp_region_options, page_bytes, 16);
AT(vmp_region_options, limit_bytes, 24);
AT(vmp_region_options, name, 32);
AT(vmp_region_options, wait, 40);
AT(vmp_region_options, share_bytes, 48);

SIZE(vmp_region_pages, 16);
AT(vmp_region_pages, first, 0);
AT(vmp_region_pages, count, 8);

SIZE(vmp_region_info, 72);
AT(vmp_region_info, struct_size, 0);
AT(vmp_region_info, base, 8);
AT(vmp_region_info, name, 16);
AT(vmp_region_info, max_bytes, 24);
AT(vmp_region_info, page_bytes, 32);
AT(vmp_region_info, limit_bytes, 40);
AT(vmp_region_info, committed_bytes, 48);
AT(vmp_region_info, parked_bytes, 56);
AT(vmp_region_info, retiring_bytes, 64);

SIZE(vmp_layer_stats, 40);
AT(vmp_layer_stats, live, 0);
AT(vmp_layer_stats, peak_live, 8);
AT(vmp_layer_stats, blocks, 16);
AT(vmp_layer_stats, allocs, 24);
AT(vmp_layer_stats, frees, 32);

SIZE(vmp_memory_stats, 256);
AT(vmp_memory_stats, struct_size, 0);
AT(vmp_memory_stats, mapped, 8);
AT(vmp_memory_stats, peak_mapped, 16);
AT(vmp_memory_stats, total_mapped, 24);
AT(vmp_memory_stats, live, 32);
AT(vmp_memory_stats, peak_live, 40);
AT(vmp_memory_stats, requested, 48);
AT(vmp_memory_stats, peak_requested, 56);
AT(vmp_memory_stats, blocks, 64);
AT(vmp_memory_stats, allocs, 72);
AT(vmp_memory_stats, frees, 80);
AT(vmp_memory_stats, failed_allocs, 88);
AT(vmp_memory_stats, utilisation, 96);
AT(vmp_memory_stats, fragmentation, 104);
AT(vmp_memory_stats, largest_mapped, 112);
AT(vmp_memory_stats, largest_gathered, 120);
AT(vmp_memory_stats, largest_growing, 128);
AT(vmp_memory_stats, slab, 136);
AT(vmp_memory_stats, mid, 176);
AT(vmp_memory_stats, buddy, 216);

SIZE(vmp_stream_stats, 56);
AT(vmp_stream_stats, stream, 0);
AT(vmp_stream_stats, thread, 8);
AT(vmp_stream_stats, allocs, 16);
AT(vmp_stream_stats, frees, 24);
AT(vmp_stream_stats, pending, 32);
AT(vmp_stream_stats, cached, 40);
AT(vmp_stream_stats, pending_age_us, 48);

SIZE(vmp_debug_stats, 56);
AT(vmp_debug_stats, struct_size, 0);
AT(vmp_debug_stats, fills, 8);
AT(vmp_debug_stats, failed_fills, 16);
AT(vmp_debug_stats, quarantined_blocks, 24);
AT(vmp_debug_stats, quarantined, 32);
AT(vmp_debug_stats, guarded_blocks, 40);
AT(vmp_debug_stats, guarded, 48);

SIZE(vmp_host_work_counts_data, 80);
AT(vmp_host_work_counts_data, struct_size, 0);
AT(vmp_host_work_counts_data, queued, 8);
AT(vmp_host_work_counts_data, done, 16);
AT(vmp_host_work_counts_data, bad_touches, 24);
AT(vmp_host_work_counts_data, violations, 32);
AT(vmp_host_work_counts_data, stream_waits, 40);
AT(vmp_host_work_counts_data, unfinished_stream_waits, 48);
AT(vmp_host_work_counts_data, host_waits, 56);
AT(vmp_host_work_counts_data, modelled_us, 64);
AT(vmp_host_work_counts_data, unordered, 72);

SIZE(vmp_error, 520);
AT(vmp_error, status, 0);
AT(vmp_error, driver_code, 4);
AT(vmp_error, driver_call, 8);
AT(vmp_error, message, 56);
#endif

int main(void) { return 0; }
