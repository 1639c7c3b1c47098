// work.h: work that takes the device a while, without kernels: a chain of fills of one large chunk on one stream, and
// an event behind it.
//
//     ptr [ the chunk: every fill writes all of it ][ `extra` bytes of addresses, for the asker ]
#ifndef VMPOOL_TOOLS_PROBE_WORK_H_
#define VMPOOL_TOOLS_PROBE_WORK_H_

#include "tools/probe/settings.h"

typedef struct probe_work {
  vmp_cu_stream stream;
  vmp_cu_event end;
  vmp_cu_ptr ptr;
  uint64_t bytes;
  vmp_cu_handle handle;
  uint32_t fills;       // a chain has
  unsigned char value;  // that the last fill writes
  double took_us;       // a chain, when it was tried out
} probe_work;

// probe_work_make makes stream, event, chunk and addresses, and finds how many fills last settings->work_us. All are
// the rig's to give back. Returns a driver code.
int probe_work_make(probe_rig *rig, const probe_settings *settings, uint64_t extra, probe_work *out);

// probe_work_start queues a chain. probe_work_query says whether it runs (600) or has ended (0, or the code it ended
// with). probe_work_wait waits for it and returns how it ended.
int probe_work_start(probe_rig *rig, const probe_work *work);
int probe_work_query(probe_rig *rig, const probe_work *work);
int probe_work_wait(probe_rig *rig, const probe_work *work);

// probe_work_intact says whether the chunk's first and last byte are what the last fill has written; 0 or a code in
// *out_code.
bool probe_work_intact(probe_rig *rig, const probe_work *work, int *out_code);

#endif  // VMPOOL_TOOLS_PROBE_WORK_H_
