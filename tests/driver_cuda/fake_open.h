// fake_open.h: a fixture around one of the fake libcuda objects of fake_libcuda.h.
//
// Owns: finding the objects beside the test, resetting them before each test. The objects stay loaded between tests.
#ifndef VMPOOL_TESTS_DRIVER_CUDA_FAKE_OPEN_H_
#define VMPOOL_TESTS_DRIVER_CUDA_FAKE_OPEN_H_

#include <dlfcn.h>
#include <string.h>

#include "tests/driver_cuda/fake_libcuda.h"
#include "tests/support/vtest.h"

#define FAKE_CUDA "tests/driver_cuda/libfake_cuda.so"
#define FAKE_CUDA_11 "tests/driver_cuda/libfake_cuda_11.so"
#define FAKE_CUDA_OLD "tests/driver_cuda/libfake_cuda_old.so"
#define FAKE_CUDA_NONE "tests/driver_cuda/libfake_cuda_none.so"

typedef struct fake_cuda {
  fake_cuda_control *control;
  fake_cuda_last_call_fn last_call;
} fake_cuda;

// fake_cuda_function finds a function of an object by name; false where it is missing.
static inline bool fake_cuda_function(void *library, const char *name, void *out_fn) {
  void *address = dlsym(library, name);
  memcpy(out_fn, &address, sizeof address);
  return address != NULL;
}

// fake_cuda_load loads one object, resets it and delivers its control. A missing object fails the test.
static inline void fake_cuda_load(fake_cuda *out_fake, const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) VFAIL("the fake driver is missing: %s", dlerror());
  fake_cuda_control_fn get_control = NULL;
  fake_cuda_reset_fn reset = NULL;
  VASSERT_TRUE(fake_cuda_function(library, "fake_cuda_control_get", &get_control));
  VASSERT_TRUE(fake_cuda_function(library, "fake_cuda_last_call", &out_fake->last_call));
  VASSERT_TRUE(fake_cuda_function(library, "fake_cuda_reset", &reset));
  reset();
  out_fake->control = get_control();
}

#endif  // VMPOOL_TESTS_DRIVER_CUDA_FAKE_OPEN_H_
