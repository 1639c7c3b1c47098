// bare_driver.c: see bare_driver.h.
#include "tests/driver_cuda/bare_driver.h"

#include <string.h>
#include <unistd.h>

// Parameters are used by their names, so that none is unused.
#define USE(...) CAT(USE_, COUNT(__VA_ARGS__))(__VA_ARGS__)
#define COUNT(...) COUNT_(__VA_ARGS__, 6, 5, 4, 3, 2, 1, 0)
#define COUNT_(a, b, c, d, e, f, n, ...) n
#define CAT(a, b) CAT_(a, b)
#define CAT_(a, b) a##b
#define USE_1(a) (void)(a)
#define USE_2(a, b) USE_1(a), USE_1(b)
#define USE_3(a, b, c) USE_2(a, b), USE_1(c)
#define USE_4(a, b, c, d) USE_3(a, b, c), USE_1(d)
#define USE_5(a, b, c, d, e) USE_4(a, b, c, d), USE_1(e)

#define X(name, symbol, version, need, args, ...)           \
  static int bare_##name(vmp_driver *driver, __VA_ARGS__) { \
    (void)driver, USE args;                                 \
    return VMP_CU_NOT_SUPPORTED;                            \
  }
VMP_DRIVER_CALLS(X)
#undef X
#define X(name, symbol, version, need)         \
  static int bare_##name(vmp_driver *driver) { \
    (void)driver;                              \
    return VMP_CU_NOT_SUPPORTED;               \
  }
VMP_DRIVER_CALLS_0(X)
#undef X

static void bare_close(vmp_driver *driver) { (void)driver; }

void bare_driver_init(bare_driver *bare) {
  memset(bare, 0, sizeof *bare);
#define X(name, ...) bare->ops.name = bare_##name;
  VMP_DRIVER_CALLS(X)
  VMP_DRIVER_CALLS_0(X)
#undef X
  bare->ops.close = bare_close;
  bare->base.ops = &bare->ops;
  bare->base.kind = "bare";
  bare->base.owner_process = (int32_t)getpid();
}
