// device_copy.c: see device_copy.h.
#include "pool/device_copy.h"

#include "vmm/context.h"
#include "vmm/driver_error.h"

// context_of: a stream's own context. The default streams belong to whatever is current: the primary context.
static vmp_cu_context context_of(vmp_driver *driver, vmp_cu_context primary, vmp_stream stream) {
  vmp_context_saved saved;
  vmp_cu_context own = NULL;
  if ((uintptr_t)stream <= 2) return primary;
  if (vmp_context_enter(driver, primary, &saved) != VMP_OK) return primary;  // the copy itself will tell why
  int code = vmp_drv_stream_get_ctx(driver, stream, &own);
  (void)vmp_context_leave(driver, &saved);
  return code == VMP_CU_SUCCESS && own != NULL ? own : primary;
}

vmp_status vmp_device_copy(vmp_driver *driver, vmp_cu_context context, vmp_cu_ptr dst, vmp_cu_ptr src, uint64_t bytes,
                           vmp_stream stream) {
  vmp_context_saved saved;
  if (bytes == 0) return VMP_OK;
  vmp_status status = vmp_context_enter(driver, context_of(driver, context, stream), &saved);
  if (status != VMP_OK) return status;
  int code = vmp_drv_memcpy_dtod_async(driver, dst, src, (size_t)bytes, stream);
  if (code != VMP_CU_SUCCESS) {
    status = vmp_driver_fail(driver, VMP_CALL_memcpy_dtod_async, code, "%llu bytes of a block were to be copied",
                             (unsigned long long)bytes);
  }
  (void)vmp_context_leave(driver, &saved);
  return status;
}
