// map.h: a snapshot as text: the ledger of the device's memory, and the address ranges in two lanes.
//
// Owns: the drawing. Does not own: where the width and the colours come from (style.h), reading (snapshot.h). Writes to
// a FILE only, so that tests compare texts.
//
//     +0 B    ████████████▒▒▒▒░░░░    mapped against reserved: what backs the addresses of a cell
//             ▇▇▃▇▇▇▁▇▇▇▇▇            blocks: how much of the cell is live
//             ~ 200 GiB not mapped ~  gaps are collapsed, with their length
#ifndef VMPOOL_TOOLS_VMPOOL_MAP_H_
#define VMPOOL_TOOLS_VMPOOL_MAP_H_

#include "tools/vmpool/snapshot.h"
#include "tools/vmpool/style.h"

// map_ledger writes what the device's memory is used for; the parts add up to the device.
void map_ledger(FILE *out, const map_style *style, const snapshot *s);

// map_ranges writes each reservation in at most `max_rows` rows of cells (at least 1). A cell is a power of two of
// granules; anything that is not plain unmapped shows in its cell, however small. False when host memory runs out.
bool map_ranges(FILE *out, const map_style *style, const snapshot *s, unsigned max_rows);

// map_zoom writes the addresses from `from` up to `to` only, in cells down to 512 bytes. False: they lie in no range,
// or host memory runs out.
bool map_zoom(FILE *out, const map_style *style, const snapshot *s, uint64_t from, uint64_t to, unsigned max_rows,
              tool_error *error);

// map_legend explains the characters.
void map_legend(FILE *out, const map_style *style);

#endif  // VMPOOL_TOOLS_VMPOOL_MAP_H_
