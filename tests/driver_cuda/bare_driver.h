// bare_driver.h: a driver whose calls all give 801, for tests that script the few calls they look at.
//
// Owns: the table. A test embeds bare_driver in its own structure, as the first member, and overwrites entries of
// `ops`.
#ifndef VMPOOL_TESTS_DRIVER_CUDA_BARE_DRIVER_H_
#define VMPOOL_TESTS_DRIVER_CUDA_BARE_DRIVER_H_

#include "vmm/driver.h"

typedef struct bare_driver {
  vmp_driver base;
  vmp_driver_ops ops;
} bare_driver;

// bare_driver_init makes `bare` an open driver of kind "bare" that belongs to this process. It needs no closing.
void bare_driver_init(bare_driver *bare);

#endif  // VMPOOL_TESTS_DRIVER_CUDA_BARE_DRIVER_H_
