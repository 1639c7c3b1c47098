// memory.h: host memory for the library's own bookkeeping, in one place so that tests can make it fail.
//
// Owns: the calls to the C allocator, and a per-thread failure switch for tests. Device memory never comes from here.
// Memory is zeroed; large pieces are backed lazily by the operating system, so an untouched table costs nothing.
#ifndef VMPOOL_VMM_MEMORY_H_
#define VMPOOL_VMM_MEMORY_H_

#include <stddef.h>
#include <stdint.h>

// vmp_mem_calloc returns n * size zeroed bytes, or NULL (out of memory, or the product wraps). The caller owns them
// and returns them with vmp_mem_free. Thread-safe.
void *vmp_mem_calloc(size_t n, size_t size);

// vmp_mem_resize returns a copy of the array `old` (old_n elements of `size` bytes; NULL when old_n is 0) with room
// for n >= old_n elements, the new ones zeroed, and frees `old`. On failure it returns NULL and `old` is untouched.
void *vmp_mem_resize(void *old, size_t old_n, size_t n, size_t size);

// vmp_mem_free returns what the two above gave. NULL is fine.
void vmp_mem_free(void *memory);

// vmp_mem_fail_after is for tests: of the calling thread's next allocations, `successes` succeed, the `failures` after
// them fail, and everything later succeeds again. (0, 0) switches it off; UINT64_MAX failures: from then on.
void vmp_mem_fail_after(uint64_t successes, uint64_t failures);

// vmp_mem_failures returns how many allocations vmp_mem_fail_after has failed since its last call on this thread.
uint64_t vmp_mem_failures(void);

#endif  // VMPOOL_VMM_MEMORY_H_
