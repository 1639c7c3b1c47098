// driver_open.c: the public calls on drivers. See vmpool.h.
#include "pool/driver_open.h"

#include <stdatomic.h>

#include "vmm/driver_error.h"
#include "vmm/driver_host.h"

static vmp_status open_host(vmp_driver **out_driver, const vmp_config *config) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  if (config->host_num_devices > VMP_HOST_MAX_DEVICES) {
    return vmp_fail(VMP_ERROR_CONFIG, "host_num_devices is %d; the host driver has at most %d devices",
                    config->host_num_devices, VMP_HOST_MAX_DEVICES);
  }
  options.mode = config->host_exposed ? VMP_HOST_EXPOSED : VMP_HOST_LEDGER;
  options.num_devices = config->host_num_devices;
  options.cost_file = config->host_cost_file;
  for (int i = 0; i < options.num_devices; i++) {
    options.devices[i].memory_bytes = config->host_device;
    options.devices[i].granule_bytes = config->host_granule;
  }
  vmp_driver *driver;
  vmp_status status = vmp_host_open(&driver, &options);
  if (status != VMP_OK) return status;
  int code = vmp_drv_init(driver, 0);
  if (code != VMP_CU_SUCCESS) {
    status = vmp_driver_fail(driver, VMP_CALL_init, code, "the host driver was to be initialised");
    vmp_driver_close(driver);
    return status;
  }
  *out_driver = driver;
  return VMP_OK;
}

vmp_status vmp_driver_open_config(vmp_driver **out_driver, const vmp_config *config) {
  if (config->driver == VMP_DRIVER_HOST) return open_host(out_driver, config);
  return vmp_driver_cuda_open(out_driver, config->cuda_library);
}

vmp_status vmp_driver_open(vmp_driver **out_driver, const vmp_driver_options *options) {
  if (out_driver == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the address of the result is NULL");
  vmp_config config = {0};
  // VMP_CONF chooses only where the caller didn't: an application that names its driver keeps it.
  vmp_status status = vmp_config_read(&config, options, NULL, NULL);
  if (status != VMP_OK) return status;
  if (config.source[VMP_OPTION_driver] == VMP_SOURCE_DEFAULT) {
    status = vmp_config_read(&config, options, NULL, vmp_config_environment());
  }
  if (status == VMP_OK) status = vmp_driver_open_config(out_driver, &config);
  vmp_config_free(&config);
  return status;
}

vmp_driver_kind vmp_driver_kind_of(const vmp_driver *driver) {
  return vmp_driver_is_host(driver) ? VMP_DRIVER_HOST : VMP_DRIVER_CUDA;
}

const char *vmp_driver_name(const vmp_driver *driver) { return driver == NULL ? "" : driver->kind; }

static uint64_t calls_of(const vmp_driver *driver, vmp_call call) {
  return atomic_load_explicit(&driver->calls[call], memory_order_relaxed);
}

void vmp_driver_get_calls(const vmp_driver *driver, vmp_driver_calls *out_calls) {
  if (out_calls == NULL) return;
  vmp_driver_calls calls = {0};
  if (driver != NULL) {
    calls.reserve = calls_of(driver, VMP_CALL_mem_address_reserve);
    calls.create = calls_of(driver, VMP_CALL_mem_create);
    calls.map = calls_of(driver, VMP_CALL_mem_map);
    calls.set_access = calls_of(driver, VMP_CALL_mem_set_access);
    calls.unmap = calls_of(driver, VMP_CALL_mem_unmap);
    calls.release = calls_of(driver, VMP_CALL_mem_release);
    calls.address_free = calls_of(driver, VMP_CALL_mem_address_free);
    calls.event_record = calls_of(driver, VMP_CALL_event_record);
    calls.event_query = calls_of(driver, VMP_CALL_event_query);
    calls.stream_wait = calls_of(driver, VMP_CALL_stream_wait_event);
    calls.synchronize = calls_of(driver, VMP_CALL_ctx_synchronize) + calls_of(driver, VMP_CALL_stream_synchronize) +
                        calls_of(driver, VMP_CALL_event_synchronize);
  }
  *out_calls = calls;
}
