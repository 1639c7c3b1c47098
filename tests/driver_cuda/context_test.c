// context_test.c: enter and leave put a thread's context stack and capture mode back exactly, on a driver that
// models both and records each call.
#include "vmm/context.h"

#include <string.h>

#include "tests/driver_cuda/bare_driver.h"
#include "tests/support/vtest.h"

enum { MAX_DEPTH = 8 };

// rig: the thread's state in the driver, failures to come, and the calls so far ("mode get push ").
typedef struct rig {
  bare_driver bare;  // first
  vmp_driver *driver;
  vmp_cu_context stack[MAX_DEPTH];
  int depth;
  int mode;
  int retained;
  int get_code, push_code, pop_code, mode_code, retain_code, release_code;
  char log[256];
} rig;

static rig *of(vmp_driver *driver) { return (rig *)(void *)driver; }
static void note(rig *r, const char *call) { strncat(r->log, call, sizeof r->log - strlen(r->log) - 1); }

static int get_current(vmp_driver *driver, vmp_cu_context *out_context) {
  rig *r = of(driver);
  note(r, "get ");
  if (r->get_code != 0) return r->get_code;
  *out_context = r->depth > 0 ? r->stack[r->depth - 1] : NULL;
  return 0;
}
static int push_current(vmp_driver *driver, vmp_cu_context context) {
  rig *r = of(driver);
  note(r, "push ");
  if (r->push_code != 0) return r->push_code;
  r->stack[r->depth++] = context;
  return 0;
}
static int pop_current(vmp_driver *driver, vmp_cu_context *out_context) {
  rig *r = of(driver);
  note(r, "pop ");
  if (r->pop_code != 0) return r->pop_code;
  if (r->depth == 0) return VMP_CU_INVALID_CONTEXT;
  *out_context = r->stack[--r->depth];
  return 0;
}
static int exchange_mode(vmp_driver *driver, int *inout_mode) {
  rig *r = of(driver);
  note(r, "mode ");
  if (r->mode_code != 0) return r->mode_code;
  int old = r->mode;
  r->mode = *inout_mode;
  *inout_mode = old;
  return 0;
}
static int retain(vmp_driver *driver, vmp_cu_context *out_context, vmp_cu_device device) {
  rig *r = of(driver);
  if (r->retain_code != 0) return r->retain_code;
  r->retained++;
  *out_context = (vmp_cu_context)(uintptr_t)(0xc0 + (unsigned)device);
  return 0;
}
static int release(vmp_driver *driver, vmp_cu_device device) {
  rig *r = of(driver);
  (void)device;
  if (r->release_code != 0) return r->release_code;
  r->retained--;
  return 0;
}

static void rig_setup(rig *f) {
  bare_driver_init(&f->bare);
  f->bare.ops.ctx_get_current = get_current;
  f->bare.ops.ctx_push_current = push_current;
  f->bare.ops.ctx_pop_current = pop_current;
  f->bare.ops.thread_exchange_capture_mode = exchange_mode;
  f->bare.ops.primary_ctx_retain = retain;
  f->bare.ops.primary_ctx_release = release;
  f->driver = &f->bare.base;
  f->mode = VMP_CU_CAPTURE_GLOBAL;
}
static void rig_teardown(rig *f) { (void)f; }

static vmp_cu_context context_number(uintptr_t number) { return (vmp_cu_context)number; }

VTEST_F(Context, RetainedOnceReleasedOnce, rig) {
  vmp_cu_context context = NULL;
  VASSERT_OK(vmp_context_retain(f->driver, 3, &context));
  VEXPECT_PTR_EQ(context, context_number(0xc3));
  VEXPECT_INT_EQ(f->retained, 1);
  VEXPECT_STR_EQ(f->log, "");  // it did not become current
  VEXPECT_OK(vmp_context_release(f->driver, 3));
  VEXPECT_INT_EQ(f->retained, 0);
}

VTEST_F(Context, RetainFailureIsReported, rig) {
  vmp_cu_context context = context_number(7);
  f->retain_code = VMP_CU_OUT_OF_MEMORY;
  VEXPECT_STATUS(vmp_context_retain(f->driver, 3, &context), VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_PTR_EQ(context, context_number(7));
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "cuDevicePrimaryCtxRetain failed: CUDA_ERROR_OUT_OF_MEMORY (2)");
}

VTEST_F(Context, ReleaseToleratesShutdownAlone, rig) {
  f->release_code = VMP_CU_DEINITIALIZED;
  VEXPECT_OK(vmp_context_release(f->driver, 0));
  f->release_code = VMP_CU_INVALID_CONTEXT;
  VEXPECT_STATUS(vmp_context_release(f->driver, 0), VMP_ERROR_DRIVER);
}

// What is on the thread before enter: nothing, another context, this context.
typedef struct before_case {
  const char *name;
  uintptr_t current;  // 0: none
  int mode;
  const char *log;
  bool pushes;
} before_case;
static const before_case before_cases[] = {
    {"nothing", 0, VMP_CU_CAPTURE_GLOBAL, "mode get push pop mode ", true},
    {"another", 5, VMP_CU_CAPTURE_THREAD_LOCAL, "mode get push pop mode ", true},
    {"the same", 9, VMP_CU_CAPTURE_GLOBAL, "mode get mode ", false},
    {"relaxed already", 5, VMP_CU_CAPTURE_RELAXED, "mode get push pop mode ", true},
};
static const char *before_name(const before_case *p) { return p->name; }

VTEST_FP(Context, LeaveRestoresWhatWasThere, rig, before_case, before_cases, before_name) {
  f->mode = p->mode;
  if (p->current != 0) f->stack[f->depth++] = context_number(p->current);
  const int depth = f->depth;
  vmp_context_saved saved;
  VASSERT_OK(vmp_context_enter(f->driver, context_number(9), &saved));
  VEXPECT_PTR_EQ(f->stack[f->depth - 1], context_number(9));
  VEXPECT_INT_EQ(f->depth, depth + (p->pushes ? 1 : 0));
  VEXPECT_INT_EQ(f->mode, VMP_CU_CAPTURE_RELAXED);
  VASSERT_OK(vmp_context_leave(f->driver, &saved));
  VEXPECT_INT_EQ(f->depth, depth);
  if (p->current != 0) VEXPECT_PTR_EQ(f->stack[0], context_number(p->current));
  VEXPECT_INT_EQ(f->mode, p->mode);
  VEXPECT_STR_EQ(f->log, p->log);
}

VTEST_F(Context, PairsNest, rig) {
  vmp_context_saved outer, inner, same;
  VASSERT_OK(vmp_context_enter(f->driver, context_number(1), &outer));
  VASSERT_OK(vmp_context_enter(f->driver, context_number(2), &inner));
  VASSERT_OK(vmp_context_enter(f->driver, context_number(2), &same));
  VEXPECT_INT_EQ(f->depth, 2);
  VEXPECT_OK(vmp_context_leave(f->driver, &same));
  VEXPECT_PTR_EQ(f->stack[f->depth - 1], context_number(2));
  VEXPECT_INT_EQ(f->mode, VMP_CU_CAPTURE_RELAXED);
  VEXPECT_OK(vmp_context_leave(f->driver, &inner));
  VEXPECT_PTR_EQ(f->stack[f->depth - 1], context_number(1));
  VEXPECT_OK(vmp_context_leave(f->driver, &outer));
  VEXPECT_INT_EQ(f->depth, 0);
  VEXPECT_INT_EQ(f->mode, VMP_CU_CAPTURE_GLOBAL);
}

VTEST_F(Context, WithoutContextOnlyTheModeChanges, rig) {
  vmp_context_saved saved;
  VASSERT_OK(vmp_context_enter(f->driver, NULL, &saved));
  VEXPECT_INT_EQ(f->mode, VMP_CU_CAPTURE_RELAXED);
  VASSERT_OK(vmp_context_leave(f->driver, &saved));
  VEXPECT_INT_EQ(f->mode, VMP_CU_CAPTURE_GLOBAL);
  VEXPECT_STR_EQ(f->log, "mode mode ");
}

// A driver without capture modes (801), or one in trouble: the context is entered all the same, and no mode is
// "restored" that was never read.
VTEST_F(Context, CaptureModesAreOptional, rig) {
  f->mode = 77;
  f->mode_code = VMP_CU_NOT_SUPPORTED;
  vmp_context_saved saved;
  VASSERT_OK(vmp_context_enter(f->driver, context_number(9), &saved));
  f->mode_code = 0;
  VASSERT_OK(vmp_context_leave(f->driver, &saved));
  VEXPECT_INT_EQ(f->mode, 77);
  VEXPECT_STR_EQ(f->log, "mode get push pop ");
}

// ---- failures ----

typedef struct enter_case {
  const char *name;
  int get_code, push_code;
  vmp_status status;
  const char *call;
} enter_case;
static const enter_case enter_cases[] = {
    {"get", VMP_CU_ILLEGAL_ADDRESS, 0, VMP_ERROR_STICKY, "cuCtxGetCurrent"},
    {"push", 0, VMP_CU_INVALID_CONTEXT, VMP_ERROR_DRIVER, "cuCtxPushCurrent"},
    {"shutdown", VMP_CU_DEINITIALIZED, 0, VMP_ERROR_DEINITIALIZED, "cuCtxGetCurrent"},
};
static const char *enter_name(const enter_case *p) { return p->name; }

VTEST_FP(Context, EnterThatFailsChangesNothing, rig, enter_case, enter_cases, enter_name) {
  f->stack[f->depth++] = context_number(5);
  f->get_code = p->get_code;
  f->push_code = p->push_code;
  vmp_context_saved saved;
  memset(&saved, 0x5a, sizeof saved);
  VEXPECT_STATUS(vmp_context_enter(f->driver, context_number(9), &saved), p->status);
  VEXPECT_STR_EQ(vmp_last_error()->driver_call, p->call);
  VEXPECT_BYTES_FILLED(&saved, 0x5a, sizeof saved);
  VEXPECT_INT_EQ(f->depth, 1);
  VEXPECT_INT_EQ(f->mode, VMP_CU_CAPTURE_GLOBAL);
}

VTEST_F(Context, LeaveRestoresTheModeThoughThePopFails, rig) {
  vmp_context_saved saved;
  VASSERT_OK(vmp_context_enter(f->driver, context_number(9), &saved));
  f->pop_code = VMP_CU_UNKNOWN;
  VEXPECT_STATUS(vmp_context_leave(f->driver, &saved), VMP_ERROR_DRIVER);
  VEXPECT_STR_EQ(vmp_last_error()->driver_call, "cuCtxPopCurrent");
  VEXPECT_INT_EQ(f->mode, VMP_CU_CAPTURE_GLOBAL);
}

VTEST_F(Context, LeaveDuringShutdownIsFine, rig) {
  vmp_context_saved saved;
  VASSERT_OK(vmp_context_enter(f->driver, context_number(9), &saved));
  f->pop_code = VMP_CU_DEINITIALIZED;
  f->mode_code = VMP_CU_DEINITIALIZED;
  VEXPECT_OK(vmp_context_leave(f->driver, &saved));
}

// A callback between the two pushed a context and left it there: it stays current, and that is said.
VTEST_F(Context, ForeignContextIsLeftAlone, rig) {
  vmp_context_saved saved;
  VASSERT_OK(vmp_context_enter(f->driver, context_number(9), &saved));
  VASSERT_INT_EQ(vmp_drv_ctx_push_current(f->driver, context_number(0x77)), 0);
  VEXPECT_STATUS(vmp_context_leave(f->driver, &saved), VMP_ERROR_DRIVER);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "0x77");
  VEXPECT_INT_EQ(f->depth, 2);
  VEXPECT_PTR_EQ(f->stack[1], context_number(0x77));
  VEXPECT_INT_EQ(f->mode, VMP_CU_CAPTURE_GLOBAL);
}
