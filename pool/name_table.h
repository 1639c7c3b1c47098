// name_table.h: short texts as small numbers: the names of tags and of blocks.
//
// Owns: one copy of each text, for as long as the table lives. Number 0 is "no name".
//
//     places   |  0  |  2  |  0  |  1  | ...      open addressing over a hash of the text; 0 is an empty place
//     texts    [ NULL | "weights" | "kv" | ...    by number
//
// Invariants
//   - equal texts have one number; every number from 1 on is found from where its text hashes to.
//   - a text never moves and never goes: what vmp_name_text returned stays valid until the table is freed.
// The caller guards it.
#ifndef VMPOOL_POOL_NAME_TABLE_H_
#define VMPOOL_POOL_NAME_TABLE_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/error.h"

#define VMP_MAX_NAMES (UINT32_C(1) << 20)
#define VMP_MAX_NAME_BYTES 255u

typedef struct vmp_name_table {  // zero it before use
  uint32_t *places;
  size_t capacity;  // of places: a power of two, or 0
  char **texts;
  size_t texts_capacity;
  uint32_t count;  // numbers 1..count are in use
  uint64_t text_bytes;
} vmp_name_table;

void vmp_name_table_free(vmp_name_table *table);

// vmp_name_intern returns the number of a text, which is entered at first sight; NULL and "" are 0.
// VMP_ERROR_INVALID_VALUE (longer than VMP_MAX_NAME_BYTES), VMP_ERROR_LIMIT (VMP_MAX_NAMES different ones),
// VMP_ERROR_HOST_OUT_OF_MEMORY; then nothing has changed.
vmp_status vmp_name_intern(vmp_name_table *table, const char *text, uint32_t *out_name);

// vmp_name_text: NULL for 0. Owned by the table.
const char *vmp_name_text(const vmp_name_table *table, uint32_t name);

uint64_t vmp_name_table_metadata_bytes(const vmp_name_table *table);

// vmp_name_table_check reports every broken invariant and returns their number.
size_t vmp_name_table_check(const vmp_name_table *table, vmp_report *report);

#endif  // VMPOOL_POOL_NAME_TABLE_H_
