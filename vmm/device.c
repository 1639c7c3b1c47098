// device.c: see device.h.
#include "vmm/device.h"

#include <stdio.h>
#include <string.h>

#include "vmm/align.h"
#include "vmm/driver_error.h"

vmp_cu_mem_prop vmp_device_mem_prop(int ordinal, int handle_types) {
  vmp_cu_mem_prop prop;
  memset(&prop, 0, sizeof prop);  // padding too: stray bits make the driver refuse it
  prop.type = VMP_CU_ALLOCATION_PINNED;
  prop.requested_handle_types = handle_types;
  prop.location.type = VMP_CU_LOCATION_DEVICE;
  prop.location.id = ordinal;
  return prop;
}

// find_device gets the driver's device for an ordinal that exists.
static vmp_status find_device(vmp_driver *driver, int ordinal, vmp_cu_device *out_device) {
  int count = 0;
  int code = vmp_drv_device_get_count(driver, &count);
  if (code != VMP_CU_SUCCESS) {
    return vmp_driver_fail(driver, VMP_CALL_device_get_count, code, "the devices were to be counted");
  }
  if (count <= 0) {
    return vmp_fail(VMP_ERROR_NO_DEVICE,
                    "there is no device %d: the %s driver sees no device at all; check that CUDA_VISIBLE_DEVICES "
                    "doesn't hide them",
                    ordinal, driver->kind);
  }
  if (ordinal < 0 || ordinal >= count) {
    return vmp_fail(VMP_ERROR_NO_DEVICE, "there is no device %d: the %s driver sees %d, numbered 0 to %d", ordinal,
                    driver->kind, count, count - 1);
  }
  code = vmp_drv_device_get(driver, out_device, ordinal);
  if (code != VMP_CU_SUCCESS) {
    return vmp_driver_fail(driver, VMP_CALL_device_get, code, "device %d was to be found", ordinal);
  }
  return VMP_OK;
}

static vmp_status check_vmm(vmp_driver *driver, const vmp_device *device) {
  int supported = 0;
  int code = vmp_drv_device_get_attribute(driver, &supported, VMP_CU_ATTR_VMM_SUPPORTED, device->device);
  if (code != VMP_CU_SUCCESS) {
    return vmp_driver_fail(driver, VMP_CALL_device_get_attribute, code,
                           "device %d (%s) was to be asked for virtual memory management", device->ordinal,
                           device->name);
  }
  if (supported == 0) {
    return vmp_fail(VMP_ERROR_NO_VMM,
                    "device %d (%s) has no virtual memory management (attribute %d is 0), which a pool needs: choose "
                    "another device, on a virtual GPU a profile with unified memory, on Windows a driver mode other "
                    "than TCC",
                    device->ordinal, device->name, VMP_CU_ATTR_VMM_SUPPORTED);
  }
  return VMP_OK;
}

static vmp_status get_granule(vmp_driver *driver, vmp_device *device) {
  vmp_cu_mem_prop prop = vmp_device_mem_prop(device->ordinal, VMP_CU_HANDLE_NONE);
  static const int options[] = {VMP_CU_GRANULARITY_MINIMUM, VMP_CU_GRANULARITY_RECOMMENDED};
  uint64_t granule = 0;
  for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
    size_t bytes = 0;
    int code = vmp_drv_mem_get_allocation_granularity(driver, &bytes, &prop, options[i]);
    if (code != VMP_CU_SUCCESS) {
      return vmp_driver_fail(driver, VMP_CALL_mem_get_allocation_granularity, code,
                             "the allocation granularity of device %d (%s) was to be asked", device->ordinal,
                             device->name);
    }
    if (!vmp_is_power_of_two(bytes)) {
      return vmp_fail(VMP_ERROR_NOT_SUPPORTED,
                      "device %d (%s) has an allocation granularity of %zu bytes; vmpool works with powers of two",
                      device->ordinal, device->name, bytes);
    }
    if (bytes > granule) granule = bytes;
  }
  device->granule_bytes = granule;
  return VMP_OK;
}

vmp_status vmp_device_require_vmm(vmp_driver *driver, int ordinal, vmp_device *out_device) {
  vmp_device device;
  memset(&device, 0, sizeof device);
  device.ordinal = ordinal;
  vmp_status status = find_device(driver, ordinal, &device.device);
  if (status != VMP_OK) return status;

  // A name is only for people: a device without one is called "?".
  if (vmp_drv_device_get_name(driver, device.name, (int)sizeof device.name, device.device) != VMP_CU_SUCCESS) {
    (void)snprintf(device.name, sizeof device.name, "?");
  }
  device.name[sizeof device.name - 1] = '\0';

  status = check_vmm(driver, &device);
  if (status != VMP_OK) return status;
  status = get_granule(driver, &device);
  if (status != VMP_OK) return status;

  size_t total = 0;
  int code = vmp_drv_device_total_mem(driver, &total, device.device);
  if (code != VMP_CU_SUCCESS) {
    return vmp_driver_fail(driver, VMP_CALL_device_total_mem, code, "the memory of device %d (%s) was to be asked",
                           ordinal, device.name);
  }
  device.total_bytes = total;
  *out_device = device;
  return VMP_OK;
}
