// context.c: see context.h.
#include "vmm/context.h"

#include "vmm/driver_error.h"

vmp_status vmp_context_retain(vmp_driver *driver, vmp_cu_device device, vmp_cu_context *out_context) {
  vmp_cu_context context = NULL;
  int code = vmp_drv_primary_ctx_retain(driver, &context, device);
  if (code != VMP_CU_SUCCESS) {
    return vmp_driver_fail(driver, VMP_CALL_primary_ctx_retain, code,
                           "the primary context of device %d can't be made; the device must be visible, free for "
                           "this process and have memory for a context",
                           (int)device);
  }
  *out_context = context;
  return VMP_OK;
}

vmp_status vmp_context_release(vmp_driver *driver, vmp_cu_device device) {
  if (vmp_driver_is_forked(driver)) return VMP_OK;
  int code = vmp_drv_primary_ctx_release(driver, device);
  if (code == VMP_CU_SUCCESS || code == VMP_CU_DEINITIALIZED) return VMP_OK;
  return vmp_driver_fail(driver, VMP_CALL_primary_ctx_release, code,
                         "the reference to the primary context of device %d was to be given back", (int)device);
}

static void relax_capture_mode(vmp_driver *driver, vmp_context_saved *saved) {
  int mode = VMP_CU_CAPTURE_RELAXED;
  saved->mode_exchanged = vmp_drv_thread_exchange_capture_mode(driver, &mode) == VMP_CU_SUCCESS;
  saved->capture_mode = mode;
}

static void restore_capture_mode(vmp_driver *driver, const vmp_context_saved *saved) {
  if (!saved->mode_exchanged) return;
  int mode = saved->capture_mode;
  (void)vmp_drv_thread_exchange_capture_mode(driver, &mode);  // it took a mode from us before; nothing to tell
}

vmp_status vmp_context_enter_only(vmp_driver *driver, vmp_cu_context context, vmp_context_saved *out_saved) {
  vmp_context_saved saved = {0};
  vmp_cu_context current = NULL;
  vmp_call call = VMP_CALL_ctx_get_current;
  int code = vmp_drv_ctx_get_current(driver, &current);
  if (code == VMP_CU_SUCCESS && current != context) {
    call = VMP_CALL_ctx_push_current;
    code = vmp_drv_ctx_push_current(driver, context);
    saved.pushed = context;
  }
  if (code != VMP_CU_SUCCESS) {
    return vmp_driver_fail(driver, call, code, "the pool's context was to become current on this thread");
  }
  *out_saved = saved;
  return VMP_OK;
}

vmp_status vmp_context_enter(vmp_driver *driver, vmp_cu_context context, vmp_context_saved *out_saved) {
  vmp_context_saved mode = {0}, saved = {0};
  relax_capture_mode(driver, &mode);
  if (context != NULL) {
    vmp_status status = vmp_context_enter_only(driver, context, &saved);
    if (status != VMP_OK) {
      restore_capture_mode(driver, &mode);
      return status;
    }
  }
  mode.pushed = saved.pushed;
  *out_saved = mode;
  return VMP_OK;
}

vmp_status vmp_context_leave(vmp_driver *driver, const vmp_context_saved *saved) {
  vmp_status status = VMP_OK;
  if (saved->pushed != NULL) {
    vmp_cu_context popped = NULL;
    int code = vmp_drv_ctx_pop_current(driver, &popped);
    if (code == VMP_CU_SUCCESS && popped != saved->pushed) {
      (void)vmp_drv_ctx_push_current(driver, popped);
      status = vmp_fail(VMP_ERROR_DRIVER,
                        "the thread's current context is %p and not %p, which the pool had pushed: code that ran in "
                        "between must pop what it pushes",
                        (void *)popped, (void *)saved->pushed);
    } else if (code != VMP_CU_SUCCESS && code != VMP_CU_DEINITIALIZED) {
      status = vmp_driver_fail(driver, VMP_CALL_ctx_pop_current, code,
                               "the thread's own context was to become current again");
    }
  }
  restore_capture_mode(driver, saved);
  return status;
}
