// memory.c: see memory.h.
#include "vmm/memory.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

// The switch of vmp_mem_fail_after. Per thread, so that a test of one pool doesn't disturb another.
static _Thread_local uint64_t successes_left;
static _Thread_local uint64_t failures_left;
static _Thread_local uint64_t failures_made;

static bool told_to_fail(void) {
  if (failures_left == 0) return false;
  if (successes_left > 0) {
    successes_left--;
    return false;
  }
  if (failures_left != UINT64_MAX) failures_left--;
  failures_made++;
  return true;
}

void *vmp_mem_calloc(size_t n, size_t size) {
  if (told_to_fail()) return NULL;
  return calloc(n, size);
}

void *vmp_mem_resize(void *old, size_t old_n, size_t n, size_t size) {
  void *memory = vmp_mem_calloc(n, size);
  if (memory == NULL) return NULL;
  if (old_n > 0) memcpy(memory, old, old_n * size);
  vmp_mem_free(old);
  return memory;
}

void vmp_mem_free(void *memory) { free(memory); }

void vmp_mem_fail_after(uint64_t successes, uint64_t failures) {
  successes_left = successes;
  failures_left = failures;
  failures_made = 0;
}

uint64_t vmp_mem_failures(void) { return failures_made; }
