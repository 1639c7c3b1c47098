// views.h: what the commands about snapshots and logs print, beside the map (map.h).
//
// Owns: the texts. Does not own: reading (snapshot.h, tools/log), the width and colours (style.h). All write to a FILE
// only, so that tests compare texts. Names that come from a file are printed by view_put_name: control characters in
// them reach no terminal.
#ifndef VMPOOL_TOOLS_VMPOOL_VIEWS_H_
#define VMPOOL_TOOLS_VMPOOL_VIEWS_H_

#include "tools/log/log_file.h"
#include "tools/vmpool/snapshot.h"
#include "tools/vmpool/style.h"

// view_put_name writes a text of somebody else's, at most `most` bytes of it: control characters become '?'.
void view_put_name(FILE *out, const char *text, size_t most);
// view_head writes which pool a snapshot is of.
void view_head(FILE *out, const snapshot *s);

// view_stats writes sizes, counters, layers, streams, and the options that are not the defaults, with their sources.
void view_stats(FILE *out, const map_style *style, const snapshot *s);

// view_hist writes how many blocks there are of which size, and which pieces the free mapped memory lies in. False:
// host memory ran out.
bool view_hist(FILE *out, const map_style *style, const snapshot *s);

// view_diff writes what differs from a to b: sizes, blocks that only one has, tags, options. False: host memory ran
// out.
bool view_diff(FILE *out, const map_style *style, const snapshot *a, const snapshot *b);

// view_oom writes the card of the last failed allocation: what, why, what would help. False: none has failed.
bool view_oom(FILE *out, const map_style *style, const snapshot *s);

// view_fit writes the largest block to be had at each cost, and for `bytes` > 0 whether such a block fits.
void view_fit(FILE *out, const map_style *style, const snapshot *s, uint64_t bytes);

// view_check_snapshot and view_check_log write one line for each contradiction, and return their number; UINT64_MAX:
// host memory ran out.
uint64_t view_check_snapshot(FILE *out, const snapshot *s);
uint64_t view_check_log(FILE *out, const log_file *log);

// view_why writes what is known of an address: who owns it now, who did, when it was freed and unmapped, what lies
// beside it. Either source may be NULL.
void view_why(FILE *out, const map_style *style, const snapshot *s, const log_file *log, uint64_t address);

#endif  // VMPOOL_TOOLS_VMPOOL_VIEWS_H_
