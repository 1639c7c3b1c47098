// host_context.c: primary contexts, each thread's stack of contexts, peers.
//
// Invariants
//   - A context exists for every device; it is `active` from a first retain to the last release or a reset.
//   - `sticky` outlives a reset, except at level compat: only a new process recovers a context.
//   - The calls that only move contexts on a thread's stack work in every state, so that teardown can restore it.
#include "vmm/host_model.h"

// ---- primary contexts ----

int vmp_host_current(vmp_host *host, struct CUctx_st **out_context) {
  const vmp_host_thread *thread = pthread_getspecific(host->thread_key);
  if (thread == NULL || thread->depth == 0 || thread->stack[thread->depth - 1] == NULL) {
    return vmp_host_break(host, 5, VMP_CU_INVALID_CONTEXT, "%s needs a current context", vmp_call_symbol(host->call));
  }
  struct CUctx_st *context = thread->stack[thread->depth - 1];
  if (context->sticky != 0) return context->sticky;
  if (!context->active) {
    return vmp_host_break(host, 7, VMP_CU_CONTEXT_IS_DESTROYED, "%s on the context of device %d, which was %s",
                          vmp_call_symbol(host->call), context->device, "reset or released");
  }
  *out_context = context;
  return 0;
}

int vmp_host_op_primary_ctx_retain(vmp_driver *driver, vmp_cu_context *out_context, vmp_cu_device device) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_primary_ctx_retain, VMP_HOST_SITE());
  if (code != 0) return code;
  code = vmp_host_check_device(host, 6, device, out_context);
  if (code == 0) code = host->contexts[device].sticky;
  if (code == 0) {
    struct CUctx_st *context = &host->contexts[device];
    context->retains++;
    context->active = true;
    *out_context = context;
  }
  return vmp_host_leave_out(host, code, out_context, sizeof *out_context);
}

// Streams, events and cuMemAlloc memory die with a context; reservations, handles and mappings live on.
static void reset_context(vmp_host *host, struct CUctx_st *context) {
  if (!context->active) return;
  vmp_host_order_seen_device(host, context->device);
  (void)vmp_host_drain(host, context->device);
  context->active = false;
  context->peers_enabled = 0;
  if (host->options.level == VMP_HOST_COMPAT) context->sticky = 0;
  vmp_host_event_reset(host, context->device);
  vmp_host_stream_reset(host, context->device);
  vmp_host_alloc_reset(host, context->device);
}

int vmp_host_op_primary_ctx_release(vmp_driver *driver, vmp_cu_device device) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_primary_ctx_release, VMP_HOST_SITE());
  if (code != 0) return code;
  code = vmp_host_check_device(host, 6, device, host);
  if (code == 0 && host->contexts[device].retains == 0) {
    code = vmp_host_break(host, 6, VMP_CU_INVALID_CONTEXT, "cuDevicePrimaryCtxRelease: device %d has no retain left",
                          device);
  }
  if (code == 0 && --host->contexts[device].retains == 0) reset_context(host, &host->contexts[device]);
  return vmp_host_leave(host, code);
}

int vmp_host_op_primary_ctx_reset(vmp_driver *driver, vmp_cu_device device) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_primary_ctx_reset, VMP_HOST_SITE());
  if (code != 0) return code;
  code = vmp_host_check_device(host, 6, device, host);
  if (code == 0) reset_context(host, &host->contexts[device]);
  return vmp_host_leave(host, code);
}

// ---- each thread's stack ----

static int check_context(vmp_host *host, vmp_cu_context context) {
  for (int i = 0; i < host->num_devices; i++) {
    if (context == &host->contexts[i]) {
      if (context->active) return 0;
      return vmp_host_break(host, 7, VMP_CU_CONTEXT_IS_DESTROYED, "%s: the context of device %d is not active",
                            vmp_call_symbol(host->call), i);
    }
  }
  return vmp_host_break(host, 7, VMP_CU_INVALID_CONTEXT, "%s: %p is no context", vmp_call_symbol(host->call),
                        (void *)context);
}

static int push_context(vmp_host *host, vmp_cu_context context) {
  vmp_host_thread *thread = vmp_host_this_thread(host);
  if (thread == NULL || !vmp_host_grow(&thread->stack, &thread->capacity, thread->depth + 1, sizeof thread->stack[0])) {
    return VMP_CU_OUT_OF_MEMORY;
  }
  thread->stack[thread->depth++] = context;
  return 0;
}

int vmp_host_op_ctx_get_current(vmp_driver *driver, vmp_cu_context *out_context) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_ctx_get_current, VMP_HOST_SITE());
  if (code != 0) return code;
  if (out_context == NULL) {
    code = vmp_host_break(host, 5, VMP_CU_INVALID_VALUE, "cuCtxGetCurrent: the out-pointer is null");
  } else {
    const vmp_host_thread *thread = pthread_getspecific(host->thread_key);
    *out_context = thread == NULL || thread->depth == 0 ? NULL : thread->stack[thread->depth - 1];
  }
  return vmp_host_leave(host, code);
}

int vmp_host_op_ctx_set_current(vmp_driver *driver, vmp_cu_context context) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_ctx_set_current, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_thread *thread = pthread_getspecific(host->thread_key);
  if (context == NULL) {
    if (thread != NULL && thread->depth != 0) thread->depth--;
    return vmp_host_leave(host, 0);
  }
  code = check_context(host, context);
  if (code == 0 && thread != NULL && thread->depth != 0) {
    thread->stack[thread->depth - 1] = context;
  } else if (code == 0) {
    code = push_context(host, context);
  }
  return vmp_host_leave(host, code);
}

int vmp_host_op_ctx_push_current(vmp_driver *driver, vmp_cu_context context) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_ctx_push_current, VMP_HOST_SITE());
  if (code != 0) return code;
  code = check_context(host, context);
  if (code == 0) code = push_context(host, context);
  return vmp_host_leave(host, code);
}

int vmp_host_op_ctx_pop_current(vmp_driver *driver, vmp_cu_context *out_context) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_ctx_pop_current, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_thread *thread = pthread_getspecific(host->thread_key);
  if (thread == NULL || thread->depth == 0) {
    code = vmp_host_break(host, 6, VMP_CU_INVALID_CONTEXT, "cuCtxPopCurrent: this thread's stack is empty");
  } else {
    thread->depth--;
    if (out_context != NULL) *out_context = thread->stack[thread->depth];  // NULL is documented as "don't tell"
  }
  return vmp_host_leave_out(host, code, out_context, sizeof *out_context);
}

int vmp_host_op_ctx_get_device(vmp_driver *driver, vmp_cu_device *out_device) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_ctx_get_device, VMP_HOST_SITE());
  if (code != 0) return code;
  struct CUctx_st *context = NULL;
  if (out_device == NULL) {
    code = vmp_host_break(host, 5, VMP_CU_INVALID_VALUE, "cuCtxGetDevice: the out-pointer is null");
  } else {
    code = vmp_host_current(host, &context);
  }
  if (code == 0) *out_device = context->device;
  return vmp_host_leave_out(host, code, out_device, sizeof *out_device);
}

int vmp_host_op_ctx_synchronize(vmp_driver *driver) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_ctx_synchronize, VMP_HOST_SITE());
  if (code != 0) return code;
  struct CUctx_st *context = NULL;
  code = vmp_host_current(host, &context);
  if (code == 0) code = vmp_host_capture_forbid_device(host, context->device);
  if (code == 0) {
    vmp_host_order_seen_device(host, context->device);
    if (vmp_host_drain(host, context->device)) host->counters.host_waits++;
    code = context->sticky;
  }
  return vmp_host_leave(host, code);
}

// ---- peers of a context ----

static int check_peer(vmp_host *host, vmp_cu_context peer, struct CUctx_st **out_context) {
  int code = vmp_host_current(host, out_context);
  if (code == 0) code = check_context(host, peer);
  return code;
}

int vmp_host_op_ctx_enable_peer_access(vmp_driver *driver, vmp_cu_context peer, unsigned flags) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_ctx_enable_peer_access, VMP_HOST_SITE());
  if (code != 0) return code;
  struct CUctx_st *context = NULL;
  code = check_peer(host, peer, &context);
  if (code != 0) return vmp_host_leave(host, code);
  uint32_t bit = UINT32_C(1) << peer->device;
  if (flags != 0) {
    code = vmp_host_break(host, 59, VMP_CU_INVALID_VALUE, "cuCtxEnablePeerAccess: flags are %u", flags);
  } else if (peer == context || !vmp_host_can_reach(host, context->device, peer->device)) {
    code = vmp_host_break(host, 59, VMP_CU_PEER_ACCESS_UNSUPPORTED, "device %d can't be a peer of device %d",
                          peer->device, context->device);
  } else if ((context->peers_enabled & bit) != 0) {
    code = vmp_host_break(host, 59, VMP_CU_PEER_ACCESS_ALREADY_ENABLED, "device %d is a peer of device %d already",
                          peer->device, context->device);
  } else if (__builtin_popcount(context->peers_enabled) >= 8) {
    code = vmp_host_break(host, 59, VMP_CU_TOO_MANY_PEERS, "device %d has 8 peers already", context->device);
  } else {
    context->peers_enabled |= bit;
  }
  return vmp_host_leave(host, code);
}

int vmp_host_op_ctx_disable_peer_access(vmp_driver *driver, vmp_cu_context peer) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_ctx_disable_peer_access, VMP_HOST_SITE());
  if (code != 0) return code;
  struct CUctx_st *context = NULL;
  code = check_peer(host, peer, &context);
  if (code != 0) return vmp_host_leave(host, code);
  uint32_t bit = UINT32_C(1) << peer->device;
  if ((context->peers_enabled & bit) == 0) {
    code = vmp_host_break(host, 59, VMP_CU_PEER_ACCESS_NOT_ENABLED, "device %d is no peer of device %d", peer->device,
                          context->device);
  } else {
    context->peers_enabled &= ~bit;
  }
  return vmp_host_leave(host, code);
}
