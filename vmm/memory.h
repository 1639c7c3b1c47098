// memory.h: host memory for the library's own bookkeeping, in one place so that tests can make it fail.
//
// Owns: the calls to the C allocator and for addresses, and a per-thread failure switch for tests. Device memory never
// comes from here.
// Memory is zeroed; large pieces are backed lazily by the operating system, so an untouched table costs nothing.
#ifndef VMPOOL_VMM_MEMORY_H_
#define VMPOOL_VMM_MEMORY_H_

#include <stdbool.h>
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

// vmp_mem_reserve takes addresses without memory: *bytes of them, or, where there aren't so many, half of that, or a
// quarter, and so on, and says in *bytes how many came of it; never fewer than `least_bytes`. Where the process may
// have only so many (RLIMIT_AS), it begins with at most one in `share` of those that it has left. NULL: not even the
// least. They begin at a page, and are given back by vmp_mem_unreserve. Thread-safe.
void *vmp_mem_reserve(size_t *bytes, size_t least_bytes, size_t share);
void vmp_mem_unreserve(void *memory, size_t bytes);
// vmp_mem_commit makes [memory, memory + bytes) of them usable, zeroed where it wasn't usable before. False: out of
// memory; then nothing has changed.
bool vmp_mem_commit(void *memory, size_t bytes);

// vmp_mem_fail_after is for tests: of the calling thread's next allocations (each attempt to reserve, and each commit,
// is one, too), `successes` succeed, the `failures` after them fail, and everything later succeeds again. (0, 0)
// switches it off; UINT64_MAX failures: from then on.
void vmp_mem_fail_after(uint64_t successes, uint64_t failures);

// vmp_mem_failures returns how many allocations vmp_mem_fail_after has failed since its last call on this thread.
uint64_t vmp_mem_failures(void);

#endif  // VMPOOL_VMM_MEMORY_H_
