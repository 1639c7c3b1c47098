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

// group sums what the public structure counts, from a count for each call.
static void group(const uint64_t calls[VMP_CALL_COUNT], vmp_driver_calls *out) {
  *out = (vmp_driver_calls){
      .reserve = calls[VMP_CALL_mem_address_reserve],
      .create = calls[VMP_CALL_mem_create],
      .map = calls[VMP_CALL_mem_map],
      .set_access = calls[VMP_CALL_mem_set_access],
      .unmap = calls[VMP_CALL_mem_unmap],
      .release = calls[VMP_CALL_mem_release],
      .address_free = calls[VMP_CALL_mem_address_free],
      .event_record = calls[VMP_CALL_event_record],
      .event_query = calls[VMP_CALL_event_query],
      .stream_wait = calls[VMP_CALL_stream_wait_event],
      .synchronize =
          calls[VMP_CALL_ctx_synchronize] + calls[VMP_CALL_stream_synchronize] + calls[VMP_CALL_event_synchronize],
  };
}

void vmp_driver_get_calls(const vmp_driver *driver, vmp_driver_calls *out_calls) {
  uint64_t calls[VMP_CALL_COUNT] = {0};
  if (out_calls == NULL) return;
  for (size_t i = 0; driver != NULL && i < VMP_CALL_COUNT; i++) {
    calls[i] = atomic_load_explicit(&driver->calls[i], memory_order_relaxed);
  }
  group(calls, out_calls);
}

void vmp_driver_get_thread_calls(vmp_driver_calls *out_calls) {
  if (out_calls != NULL) group(vmp_thread_calls, out_calls);
}
