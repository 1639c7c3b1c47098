// fake_libcuda.h: shared objects that look like libcuda.so.1 to driver_cuda.c, steered by the test that loads them.
//
// Owns: nothing but the agreement between fake_libcuda.c (built as shared objects, see BUILD) and the tests. A test
// opens the object itself, gets fake_cuda_control by dlsym, sets what is to happen, and lets the driver open it too.
//
//     libfake_cuda.so        cuGetProcAddress in its 11.3 and its 12.0 form
//     libfake_cuda_11.so     the 11.3 form alone
//     libfake_cuda_old.so    no cuGetProcAddress (older than 11.3)
//     libfake_cuda_none.so   no CUDA driver at all
#ifndef VMPOOL_TESTS_DRIVER_CUDA_FAKE_LIBCUDA_H_
#define VMPOOL_TESTS_DRIVER_CUDA_FAKE_LIBCUDA_H_

#include "vmm/driver.h"

enum { FAKE_CUDA_MAX_ARGS = 6, FAKE_CUDA_BEHAVE = -1 };

// fake_cuda_control: what the object does (set by the test) and what it saw.
typedef struct fake_cuda_control {
  int version;                // the driver's version; anything newer is refused
  int proc_address_code;      // cuGetProcAddress gives this for every symbol; 0: it answers
  const char *missing;        // a symbol that it lacks; NULL: none
  void *missing_fn;           // what it delivers for a symbol that it lacks, beside the status that says so
  int codes[VMP_CALL_COUNT];  // what a call returns; FAKE_CUDA_BEHAVE: it does what a small driver would
  int vmm_supported;          // attribute 102

  _Atomic uint64_t calls;      // calls made through the entry points
  _Atomic uint64_t questions;  // cuGetProcAddress calls
  uint64_t flags_asked;        // all flags of these, together
} fake_cuda_control;

// fake_cuda_call: the calling thread's last call, with its arguments as numbers.
typedef struct fake_cuda_call {
  vmp_call call;
  size_t num_args;
  uint64_t args[FAKE_CUDA_MAX_ARGS];
} fake_cuda_call;

typedef fake_cuda_control *(*fake_cuda_control_fn)(void);       // symbol "fake_cuda_control_get"
typedef const fake_cuda_call *(*fake_cuda_last_call_fn)(void);  // symbol "fake_cuda_last_call"
typedef void (*fake_cuda_reset_fn)(void);                       // symbol "fake_cuda_reset": everything as after loading

#endif  // VMPOOL_TESTS_DRIVER_CUDA_FAKE_LIBCUDA_H_
