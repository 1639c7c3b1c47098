// status.h: what every vmpool call returns, and the details behind the last failure.
//
// Owns: the status enumeration, its names, the thread's last error. Owns no policy: which status a
// situation deserves is decided where the situation is seen.
//
// Invariants
//   - VMP_OK is 0; every error is negative; positive values are successes that carry news.
//   - A call that returns an error has changed nothing, and has set the thread's last error.
//   - The last error belongs to the calling thread; other threads never see or clear it.
#ifndef VMPOOL_VMM_STATUS_H_
#define VMPOOL_VMM_STATUS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define VMP_API __attribute__((visibility("default")))
#define VMP_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define VMP_API
#define VMP_PRINTF(fmt, first)
#endif

// One list makes the enumeration, the names and the sentences.
//   X(name, value, sentence)
#define VMP_STATUS_LIST(X)                                                                             \
  X(VMP_OK, 0, "success")                                                                              \
  X(VMP_PENDING, 1, "accepted; completes when earlier GPU work has finished")                          \
  X(VMP_PARTIAL, 2, "done in part: less memory was available than was asked for")                      \
  X(VMP_ERROR_INVALID_VALUE, -1, "an argument is outside its documented range")                        \
  X(VMP_ERROR_CONFIG, -2, "an option is unknown or its value can't be used")                           \
  X(VMP_ERROR_OUT_OF_MEMORY, -3, "no physical device memory is left for this request")                 \
  X(VMP_ERROR_LIMIT, -4, "the request would cross the pool's hard limit")                              \
  X(VMP_ERROR_OUT_OF_ADDRESS_SPACE, -5, "no virtual address space is left for this request")           \
  X(VMP_ERROR_HOST_OUT_OF_MEMORY, -6, "host memory for bookkeeping ran out")                           \
  X(VMP_ERROR_FRAGMENTED, -7, "free memory exists but pins, captures or isolation keep it in pieces")  \
  X(VMP_ERROR_TIMEOUT, -8, "the bounded wait for GPU work ended before the work did")                  \
  X(VMP_ERROR_BUSY, -9, "live blocks or running work forbid this now")                                 \
  X(VMP_ERROR_NOT_A_BLOCK, -10, "the address is not the start of a block of this pool")                \
  X(VMP_ERROR_DOUBLE_FREE, -11, "the block has been freed already")                                    \
  X(VMP_ERROR_NO_DRIVER, -12, "no CUDA driver (libcuda.so.1) was found on this machine")               \
  X(VMP_ERROR_STUB_DRIVER, -13, "the CUDA driver found is the toolkit's stub, which can't run work")   \
  X(VMP_ERROR_DRIVER_TOO_OLD, -14, "the CUDA driver lacks an entry point that vmpool needs")           \
  X(VMP_ERROR_NO_DEVICE, -15, "the driver sees no such device")                                        \
  X(VMP_ERROR_NO_VMM, -16, "the device has no virtual memory management support")                      \
  X(VMP_ERROR_DRIVER, -17, "the driver refused a call; vmp_last_error holds its name and code")        \
  X(VMP_ERROR_STICKY, -18, "the GPU context is lost; only a new process recovers")                     \
  X(VMP_ERROR_DEINITIALIZED, -19, "the driver is shutting down")                                       \
  X(VMP_ERROR_FORKED, -20, "the calling process is a fork of the one that opened the driver")          \
  X(VMP_ERROR_CAPTURE, -21, "a stream capture forbids this")                                           \
  X(VMP_ERROR_SUSPENDED, -22, "the memory's tag is suspended")                                         \
  X(VMP_ERROR_NOT_SUPPORTED, -23, "this build, driver or device does not support the request")         \
  X(VMP_ERROR_IO, -24, "a file could not be read or written")                                          \
  X(VMP_ERROR_CORRUPT, -25, "a consistency check found broken invariants")

#define VMP_STATUS_ENUM(name, value, sentence) name = value,
// vmp_status: the result of every vmpool call.
typedef enum vmp_status { VMP_STATUS_LIST(VMP_STATUS_ENUM) } vmp_status;
#undef VMP_STATUS_ENUM

// vmp_error: details of a failure. All strings are owned by the structure.
typedef struct vmp_error {
  vmp_status status;
  int driver_code;       // the driver's own result code, 0 where no driver call failed
  char driver_call[48];  // "cuMemCreate", or ""
  char message[464];     // one sentence: what was wrong, and what would be right
} vmp_error;

// vmp_status_string returns the name of a status ("VMP_ERROR_LIMIT"), or "VMP_UNKNOWN_STATUS". Static
// storage; never NULL; thread-safe.
VMP_API const char *vmp_status_string(vmp_status status);

// vmp_status_sentence returns what a status means in one lower-case sentence without a full stop. Static
// storage; never NULL; thread-safe.
VMP_API const char *vmp_status_sentence(vmp_status status);

// vmp_last_error returns the details of the calling thread's last failed vmpool call. The pointer is to
// thread-local storage, valid until the thread ends; its content changes with the thread's next failure.
// Before any failure its status is VMP_OK. Never NULL.
VMP_API const vmp_error *vmp_last_error(void);

// vmp_clear_error resets the calling thread's last error to VMP_OK.
VMP_API void vmp_clear_error(void);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_VMM_STATUS_H_
