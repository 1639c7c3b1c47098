// host_cover.c: does a stream wait for more than it needs? (option `check_order`)
//
// Problem: a wait that is right may still come behind work that was queued later than what it is for: the streams then
// run one after the other where they could run side by side. Nothing goes wrong, so nothing shows it.
// Approach: each wait that brings a stream behind more of another stream's work is remembered as a cover, from the last
// operation that the stream came behind before to the last one that it comes behind now. When the stream then touches
// bytes that the other one touched last with an operation inside the cover, the wait was for that one.
//
//     other    w1 w2 w3 [e] w4         e: the event is recorded
//     stream             wait(e) x     x touches what w2 touched last: the wait covers w3 for nothing
//
// Owns: the covers, 16 per stream, the youngest. Does not own: clocks and marks of bytes (host_order.c).
// Limitations: what a wait is for shows by accesses only, so a wait for memory that is touched later than 16 waits
// further on is not judged; nor is one through a third stream. The number is a lower bound.
#include <stdlib.h>
#include <string.h>

#include "vmm/host_model.h"

#define COVERS 16u

typedef struct cover {
  uint32_t source;         // slot of the other stream
  uint64_t before, after;  // its operations: (before, after] are what the wait has added
  uint64_t accesses;       // how many accesses the other stream had queued at the record
  uint64_t needed;         // the last of these that the waiter has met; 0: none yet
} cover;

struct vmp_host_covers {
  cover ring[COVERS];
  uint32_t next;
};

static bool is_overlong(const cover *c) { return c->needed != 0 && c->needed < c->accesses; }

void vmp_host_cover_add(vmp_host *host, uint32_t waiter, uint32_t source, uint64_t before, uint64_t after,
                        uint64_t accesses) {
  if (after <= before) return;
  if (host->order_covers[waiter] == NULL) host->order_covers[waiter] = calloc(1, sizeof(vmp_host_covers));
  vmp_host_covers *covers = host->order_covers[waiter];
  if (covers == NULL) return;  // not judged
  cover *c = &covers->ring[covers->next++ % COVERS];
  if (is_overlong(c)) host->counters.overlong_waits++;
  *c = (cover){.source = source, .before = before, .after = after, .accesses = accesses};
}

void vmp_host_cover_meet(vmp_host *host, uint32_t waiter, uint32_t source, uint64_t sequence, uint64_t access) {
  vmp_host_covers *covers = host->order_covers[waiter];
  if (covers == NULL || source == waiter || sequence == 0 || host->order_host[source] >= sequence) return;
  for (uint32_t i = 0; i < COVERS; i++) {
    cover *c = &covers->ring[i];
    if (c->source != source || c->before >= sequence || c->after < sequence) continue;
    if (access > c->needed) c->needed = access;
    return;
  }
}

void vmp_host_cover_forget(vmp_host *host, uint32_t slot) {
  if (host->order_covers[slot] != NULL) memset(host->order_covers[slot], 0, sizeof(vmp_host_covers));
}

uint64_t vmp_host_cover_open(const vmp_host *host) {
  uint64_t overlong = 0;
  for (uint32_t slot = 0; slot < VMP_HOST_ORDER_SLOTS; slot++) {
    for (uint32_t i = 0; host->order_covers[slot] != NULL && i < COVERS; i++) {
      overlong += is_overlong(&host->order_covers[slot]->ring[i]) ? 1 : 0;
    }
  }
  return overlong;
}

void vmp_host_cover_close(vmp_host *host) {
  for (uint32_t slot = 0; slot < VMP_HOST_ORDER_SLOTS; slot++) free(host->order_covers[slot]);
}
