// replay_events.h: the loop that feeds events to a player or to a model, and the search for the smallest device.
// Internal to tools/replay.
#ifndef VMPOOL_TOOLS_REPLAY_REPLAY_EVENTS_H_
#define VMPOOL_TOOLS_REPLAY_REPLAY_EVENTS_H_

#include "tools/replay/replay.h"

// replay_player_options makes the player's options from a replay's.
player_options replay_player_options(const trace *t, const replay_options *options, uint64_t device_bytes,
                                     bool measure);

// replay_sink: who performs the events (see player.h for what the functions do). Those that return a bool return false
// when host memory runs out.
typedef struct replay_sink {
  void *self;
  bool (*alloc)(void *self, uint32_t block, uint64_t bytes, uint16_t stream);
  void (*free)(void *self, uint32_t block, uint16_t stream);
  void (*grow)(void *self, uint32_t block, uint64_t bytes);  // NULL: it knows blocks that grow not
  bool (*intrude)(void *self, uint64_t bytes, uint16_t stream);
  bool (*renumber)(void *self);
  uint64_t (*failed_allocs)(const void *self);
  void (*step)(void *self, bool defragment);  // ends a step, and defragments then or not; NULL: it knows no steps
} replay_sink;

// replay_player_sink makes a player the sink.
replay_sink replay_player_sink(player *p);

// replay_events performs all events; with `stop_at_failure` only up to the first allocation that fails. *out_ops counts
// them. False when a scaled size passes 2^64 or host memory runs out.
bool replay_events(trace *t, const replay_options *options, const replay_sink *sink, bool stop_at_failure,
                   uint64_t *out_ops, tool_error *error);

// replay_search finds the smallest device, in granules, on which `try_device` says that everything fits, from
// `peak_bytes` upwards. Some device must fit. False when a try fails to run.
typedef struct replay_search {
  void *self;
  bool (*try_device)(void *self, uint64_t device_bytes, bool *out_fits, tool_error *error);
  uint64_t granule_bytes;
} replay_search;
bool replay_search_device(const replay_search *search, uint64_t peak_bytes, uint64_t *out_bytes, tool_error *error);

// replay_compare runs the models of other allocators (tools/compare) on the same events: on a device of `device_bytes`,
// or each on its own smallest device with `own_device`.
bool replay_compare(trace *t, const replay_options *options, uint64_t device_bytes, bool own_device,
                    replay_model_result out_models[MODEL_NUM_KINDS], tool_error *error);

#endif  // VMPOOL_TOOLS_REPLAY_REPLAY_EVENTS_H_
