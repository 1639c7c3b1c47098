// cost.h: what the driver calls of a model cost, by the same table as the host driver's virtual clock.
//
// Owns: the defaults, and reading what a model needs of a cost file. Does not own: the host driver's own table
// (vmm/host_cost.c), whose defaults and names these are.
#ifndef VMPOOL_TOOLS_COMPARE_COST_H_
#define VMPOOL_TOOLS_COMPARE_COST_H_

#include <stdbool.h>
#include <stdint.h>

#include "tools/common/error.h"

// model_calls: driver calls by kind. alloc and free are cuMemAlloc and cuMemFree, which only the caching model makes.
typedef struct model_calls {
  uint64_t reserve, create, map, set_access, unmap, release, alloc, free;
  uint64_t access_mappings, unmap_mappings;  // mappings in all set_access and all unmap calls
  uint64_t create_bytes;
} model_calls;

// model_cost: microseconds.
typedef struct model_cost {
  double reserve, create, create_per_mib, map, set_access, set_access_per_mapping, unmap, unmap_per_mapping, release;
  double alloc, free;
} model_cost;

void model_cost_defaults(model_cost *cost);

// model_cost_load changes the entries that a cost file names ("name microseconds" on each line, # for comments). Names
// that no model needs are skipped.
bool model_cost_load(model_cost *cost, const char *path, tool_error *error);

double model_cost_us(const model_cost *cost, const model_calls *calls);

#endif  // VMPOOL_TOOLS_COMPARE_COST_H_
