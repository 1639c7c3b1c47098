// replay_events.h: the loop that feeds a player. Internal to tools/replay.
#ifndef VMPOOL_TOOLS_REPLAY_REPLAY_EVENTS_H_
#define VMPOOL_TOOLS_REPLAY_REPLAY_EVENTS_H_

#include "tools/replay/replay.h"

// replay_player_options makes the player's options from a replay's.
player_options replay_player_options(const trace *t, const replay_options *options, uint64_t device_bytes,
                                     bool measure);

// replay_events performs all events; with `stop_at_failure` only up to the first allocation that fails. *out_ops counts
// them. False when a scaled size passes 2^64 or host memory runs out.
bool replay_events(trace *t, const replay_options *options, player *p, bool stop_at_failure, uint64_t *out_ops,
                   tool_error *error);

#endif  // VMPOOL_TOOLS_REPLAY_REPLAY_EVENTS_H_
