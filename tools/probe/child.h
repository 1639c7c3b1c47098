// child.h: something done in a process of its own, so that neither a crash nor a lost context nor a call that never
// returns ends this one.
//
// The child is a fork: this process must have no threads and must not have opened a driver. What the child finds out it
// writes to shared memory; that is readable however it ends.
#ifndef VMPOOL_TOOLS_PROBE_CHILD_H_
#define VMPOOL_TOOLS_PROBE_CHILD_H_

#include <stddef.h>
#include <stdint.h>

typedef enum probe_ending {
  PROBE_ENDED,        // body has returned
  PROBE_DIED,         // by a signal, or by an exit inside body
  PROBE_TOOK_LONG,    // it was killed after the limit
  PROBE_NOT_STARTED,  // no process could be made
} probe_ending;

typedef struct probe_child_end {
  probe_ending ending;
  int number;  // of the signal, or, negative, of the exit; errno where it was not started
} probe_child_end;

// probe_shared_make gives zeroed memory that children share with this process; NULL when there is none.
// probe_shared_free takes NULL too.
void *probe_shared_make(size_t bytes);
void probe_shared_free(void *memory, size_t bytes);

// probe_child_run calls body(context) in a child and waits for its end, for at most `limit_ms`. The child ends without
// running exit handlers, and with its parent.
probe_child_end probe_child_run(void (*body)(void *context), void *context, uint32_t limit_ms);

// probe_child_text says how a child ended: "the process died of signal 11 (Segmentation fault)". Returns buffer.
const char *probe_child_text(probe_child_end end, uint32_t limit_ms, char *buffer, size_t size);

#endif  // VMPOOL_TOOLS_PROBE_CHILD_H_
