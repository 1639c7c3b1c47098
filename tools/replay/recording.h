// recording.h: what a replay writes down of its pool: an event log, and a snapshot at one moment.
//
// Owns: the moment, and how it is found. The highest mapped bytes are known only at the end, so that a replay runs
// twice for them: the same events lead to the same pool.
#ifndef VMPOOL_TOOLS_REPLAY_RECORDING_H_
#define VMPOOL_TOOLS_REPLAY_RECORDING_H_

#include "tools/replay/replay_events.h"

// recording: stands between the events and the player's sink, and counts.
typedef struct recording {
  player *player;
  replay_sink inner;
  const char *snapshot;  // file, or NULL
  uint64_t at;           // after so many events; 0: not during the events
  uint64_t ops;
  bool watch_peak;
  uint64_t peak_bytes, peak_ops;  // the first moment of the most mapped bytes
  bool failed;
  tool_error error;
} recording;

// recording_begin starts the log that the options ask for, and returns the sink that counts. False: the log can't be
// made.
bool recording_begin(recording *r, player *p, const replay_options *options, uint64_t at, replay_sink *out_sink,
                     tool_error *error);
// recording_end writes a snapshot of the end where it is asked for, and ends the log. False: something couldn't be
// written.
bool recording_end(recording *r, const replay_options *options, tool_error *error);

// recording_find_peak replays the trace once and says after which event most bytes were mapped first.
bool recording_find_peak(trace *t, const replay_options *options, uint64_t device_bytes, uint64_t *out_ops,
                         tool_error *error);

#endif  // VMPOOL_TOOLS_REPLAY_RECORDING_H_
