// driver_open.h: opening the driver that a config names. Shared by vmp_driver_open and vmp_pool_create.
#ifndef VMPOOL_POOL_DRIVER_OPEN_H_
#define VMPOOL_POOL_DRIVER_OPEN_H_

#include "pool/options.h"

// vmp_driver_open_config opens and initialises the driver that `config` describes. Errors as vmp_driver_open.
vmp_status vmp_driver_open_config(vmp_driver **out_driver, const vmp_config *config);

// vmp_driver_kind_of returns VMP_DRIVER_CUDA or VMP_DRIVER_HOST.
vmp_driver_kind vmp_driver_kind_of(const vmp_driver *driver);

#endif  // VMPOOL_POOL_DRIVER_OPEN_H_
