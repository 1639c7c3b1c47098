// Exposed mode: mappings are real, so is a remap; rights of the CPU; the process's limit of mappings.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver/host_rig.h"
#include "tests/support/vtest_rng.h"
#include "vmm/host_model.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

// Under valgrind a process has far fewer mappings, and asking the kernel about an address is an error.
static bool on_valgrind(void) {
  const char *preload = getenv("LD_PRELOAD");
  return preload != NULL && strstr(preload, "vgpreload") != NULL;
}

typedef struct exposed {
  host_rig rig;
  int pipe[2];  // the kernel says whether an address can be read or written, without a signal
} exposed;

static void exposed_open(exposed *e, uint64_t granule) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.mode = VMP_HOST_EXPOSED;
  options.num_devices = 2;
  options.devices[0].granule_bytes = granule;
  options.devices[1].granule_bytes = granule;
  host_rig_open(&e->rig, &options);
  VASSERT_INT_EQ(pipe(e->pipe), 0);
}

static void exposed_setup(exposed *e) { exposed_open(e, 0); }

static void exposed_teardown(exposed *e) {
  host_rig_teardown(&e->rig);
  close(e->pipe[0]);
  close(e->pipe[1]);
}

static unsigned char *view(vmp_cu_ptr ptr) { return (unsigned char *)(uintptr_t)ptr; }

static bool can_read(const exposed *e, vmp_cu_ptr ptr) {
  long put = syscall(SYS_write, e->pipe[1], view(ptr), (size_t)1);
  if (put != 1) return false;
  char byte;
  return read(e->pipe[0], &byte, 1) == 1;
}

static bool can_write(const exposed *e, vmp_cu_ptr ptr) {
  char byte = 'w';
  if (write(e->pipe[1], &byte, 1) != 1) return false;
  if (syscall(SYS_read, e->pipe[0], view(ptr), (size_t)1) == 1) return true;
  return read(e->pipe[0], &byte, 1) != 1;  // take the byte out again
}

VTEST_F(HostExposed, TheCpuSeesWhatSomeDeviceMay, exposed) {
  vmp_driver *d = f->rig.driver;
  vmp_cu_ptr ptr = host_reserve(&f->rig, 4 * G);
  VEXPECT_FALSE(can_read(f, ptr));
  vmp_cu_handle handle = host_create(&f->rig, 0, G);
  VASSERT_CUDA(vmp_drv_mem_map(d, ptr, G, 0, handle, 0));
  VEXPECT_FALSE(can_read(f, ptr));  // mapped, no right yet
  vmp_cu_access_desc desc = host_grant(1, VMP_CU_ACCESS_READ);
  VASSERT_CUDA(vmp_drv_mem_set_access(d, ptr, G, &desc, 1));
  VEXPECT_TRUE(can_read(f, ptr));
  VEXPECT_TRUE(can_read(f, ptr + G - 1));
  VEXPECT_FALSE(can_read(f, ptr + G));
  VEXPECT_FALSE(can_write(f, ptr));
  desc = host_grant(0, VMP_CU_ACCESS_READWRITE);
  VASSERT_CUDA(vmp_drv_mem_set_access(d, ptr, G, &desc, 1));
  VEXPECT_TRUE(can_write(f, ptr));
  desc.flags = VMP_CU_ACCESS_NONE;
  VASSERT_CUDA(vmp_drv_mem_set_access(d, ptr, G, &desc, 1));
  VEXPECT_TRUE(can_read(f, ptr));  // device 1 still may
  VEXPECT_FALSE(can_write(f, ptr));
  VASSERT_CUDA(vmp_drv_mem_unmap(d, ptr, G));
  VEXPECT_FALSE(can_read(f, ptr));
  VASSERT_CUDA(vmp_drv_mem_map(d, ptr, G, 0, handle, 0));
  VEXPECT_FALSE(can_read(f, ptr));
}

VTEST_F(HostExposed, ARemapIsReal, exposed) {
  vmp_driver *d = f->rig.driver;
  vmp_cu_ptr ptr = host_reserve(&f->rig, 4 * G);
  vmp_cu_access_desc grant = host_grant(0, 3);
  vmp_cu_handle a = host_map(&f->rig, ptr, G);
  vmp_cu_handle b = host_map(&f->rig, ptr + G, G);
  memcpy(view(ptr + 100), "alpha", 6);
  memcpy(view(ptr + G + 100), "beta", 5);
  // One handle at two places: one memory.
  VASSERT_CUDA(vmp_drv_mem_map(d, ptr + 2 * G, G, 0, a, 0));
  VASSERT_CUDA(vmp_drv_mem_set_access(d, ptr + 2 * G, G, &grant, 1));
  VEXPECT_STR_EQ((char *)view(ptr + 2 * G + 100), "alpha");
  memcpy(view(ptr + 2 * G + 100), "gamma", 6);
  VEXPECT_STR_EQ((char *)view(ptr + 100), "gamma");
  // Swap the chunks under the same addresses.
  VASSERT_CUDA(vmp_drv_mem_unmap(d, ptr, 2 * G));
  VASSERT_CUDA(vmp_drv_mem_map(d, ptr, G, 0, b, 0));
  VASSERT_CUDA(vmp_drv_mem_map(d, ptr + G, G, 0, a, 0));
  VASSERT_CUDA(vmp_drv_mem_set_access(d, ptr, 2 * G, &grant, 1));
  VEXPECT_STR_EQ((char *)view(ptr + 100), "beta");
  VEXPECT_STR_EQ((char *)view(ptr + G + 100), "gamma");
  // What the CPU wrote is what the driver reads, and the other way round.
  char text[8] = "";
  VASSERT_CUDA(vmp_drv_memcpy_dtoh(d, text, ptr + 100, 5));
  VEXPECT_STR_EQ(text, "beta");
  VASSERT_CUDA(vmp_host_poke(d, ptr + 100, "delta", 6));
  VEXPECT_STR_EQ((char *)view(ptr + 100), "delta");
  host_expect_consistent(&f->rig);
}

VTEST_F(HostExposed, MemoryIsGivenBackWhenAHandleDies, exposed) {
  vmp_driver *d = f->rig.driver;
  vmp_cu_ptr ptr = host_reserve(&f->rig, G);
  vmp_cu_handle handle = host_map(&f->rig, ptr, G);
  memset(view(ptr), 0x11, G);
  VASSERT_CUDA(vmp_drv_mem_unmap(d, ptr, G));
  VASSERT_CUDA(vmp_drv_mem_release(d, handle));
  off_t data = lseek(vmp_host_of(d)->memfd, 0, SEEK_DATA);
  VEXPECT_INT_EQ((int64_t)data, -1);  // the file holds nothing any more
  VEXPECT_INT_EQ(errno, ENXIO);
}

VTEST_F(HostExposed, CuMemAllocIsExposedToo, exposed) {
  vmp_cu_ptr block = 0;
  VASSERT_CUDA(vmp_drv_mem_alloc(f->rig.driver, &block, 4096));
  VEXPECT_TRUE(can_write(f, block));
  VASSERT_CUDA(vmp_drv_mem_free(f->rig.driver, block));
  VEXPECT_FALSE(can_read(f, block));
}

VTEST_F(HostExposed, AForkedChildHasNoDeviceMemory, exposed) {
  vmp_cu_ptr ptr = host_reserve(&f->rig, G);
  (void)host_map(&f->rig, ptr, G);
  memset(view(ptr), 0x5e, 64);
  VEXPECT_TRUE(can_read(f, ptr));
  pid_t child = fork();
  VASSERT_TRUE(child >= 0);
  // The place is a hole in the child. Its runtime may have put something else there, but not these bytes.
  if (child == 0) _exit(can_read(f, ptr) && view(ptr)[0] == 0x5e && view(ptr)[63] == 0x5e ? 1 : 0);
  int status = -1;
  VASSERT_TRUE(waitpid(child, &status, 0) == child);
  VEXPECT_INT_EQ(status, 0);
}

// ---- the process's mappings ----

// How many mappings of the process lie in a range.
static uint64_t count_maps(vmp_cu_ptr ptr, uint64_t bytes) {
  FILE *file = fopen("/proc/self/maps", "re");
  if (file == NULL) return 0;
  uint64_t count = 0;
  char line[512];
  while (fgets(line, sizeof line, file) != NULL) {
    unsigned long long begin = 0;
    unsigned long long end = 0;
    if (sscanf(line, "%llx-%llx", &begin, &end) == 2 && begin < ptr + bytes && end > ptr) count++;
  }
  (void)fclose(file);
  return count;
}

VTEST(HostExposed, TheCountOfMappingsIsKnown) {
  exposed e = {.rig = {NULL, NULL}};
  exposed_open(&e, KIB(4));
  enum { SLOTS = 64 };
  vmp_cu_ptr ptr = host_reserve(&e.rig, SLOTS * KIB(4));
  vmp_host *host = vmp_host_of(e.rig.driver);
  vtest_rng rng = vtest_rng_make(vtest_seed(9));
  vmp_cu_handle handles[SLOTS] = {0};
  vmp_cu_access_desc grant = host_grant(0, 3);
  VEXPECT_UINT_EQ(host->host_ranges, 1);
  for (int i = 0; i < 2000; i++) {
    size_t slot = (size_t)vtest_rng_below(&rng, SLOTS);
    if (handles[slot] == 0) {
      handles[slot] = host_create(&e.rig, 0, KIB(4));
      VASSERT_CUDA(vmp_drv_mem_map(e.rig.driver, ptr + slot * KIB(4), KIB(4), 0, handles[slot], 0));
      if (i % 2 == 0) VASSERT_CUDA(vmp_drv_mem_set_access(e.rig.driver, ptr + slot * KIB(4), KIB(4), &grant, 1));
    } else {
      size_t run = 0;  // up to 4 whole mappings in one call
      while (run < 4 && slot + run < SLOTS && handles[slot + run] != 0) {
        VASSERT_CUDA(vmp_drv_mem_release(e.rig.driver, handles[slot + run]));
        handles[slot + run] = 0;
        run++;
      }
      VASSERT_CUDA(vmp_drv_mem_unmap(e.rig.driver, ptr + slot * KIB(4), run * KIB(4)));
    }
    if (i % 50 == 0) VASSERT_UINT_EQ(host->host_ranges, count_maps(ptr, SLOTS * KIB(4)));
  }
  exposed_teardown(&e);
}

VTEST(HostExposed, AMapBeyondTheLimitIsRefusedAndUnwound) {
  exposed e = {.rig = {NULL, NULL}};
  exposed_open(&e, KIB(4));
  vmp_host *host = vmp_host_of(e.rig.driver);
  host->max_host_ranges = 101;
  vmp_cu_ptr ptr = host_reserve(&e.rig, 1000 * KIB(4));
  vmp_cu_handle handle = host_create(&e.rig, 0, KIB(4));
  size_t mapped = 0;
  for (; mapped < 500; mapped++) {  // every second slot: two more each time
    if (vmp_drv_mem_map(e.rig.driver, ptr + (2 * mapped + 1) * KIB(4), KIB(4), 0, handle, 0) != 0) break;
  }
  VEXPECT_UINT_EQ(mapped, 50);
  VEXPECT_RULE(&e.rig, -1, VMP_CU_OUT_OF_MEMORY,
               vmp_drv_mem_map(e.rig.driver, ptr + 501 * KIB(4), KIB(4), 0, handle, 0));
  VEXPECT_CUDA(vmp_drv_mem_map(e.rig.driver, ptr + 2 * KIB(4), KIB(4), 0, handle, 0));  // between two: none more
  VEXPECT_CUDA(vmp_drv_mem_unmap(e.rig.driver, ptr + KIB(4), 3 * KIB(4)));
  VEXPECT_CUDA(vmp_drv_mem_map(e.rig.driver, ptr + 501 * KIB(4), KIB(4), 0, handle, 0));
  host_expect_consistent(&e.rig);
  exposed_teardown(&e);
}

VTEST(HostExposed, AtTheSystemsLimitEveryUnmapWorks) {
  if (on_valgrind()) VSKIP("valgrind ends at 30,000 mappings");
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.mode = VMP_HOST_EXPOSED;
  options.devices[0].granule_bytes = KIB(4);
  options.num_devices = 1;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  if (vmp_host_of(rig.driver)->max_host_ranges > 200000) {
    host_rig_teardown(&rig);
    VSKIP("vm.max_map_count is raised on this machine");
  }
  size_t slots = 210000;
  vmp_cu_ptr ptr = host_reserve(&rig, slots * KIB(4));
  vmp_cu_handle handle = host_create(&rig, 0, KIB(4));
  size_t mapped = 0;
  while (2 * mapped + 1 < slots &&
         vmp_drv_mem_map(rig.driver, ptr + (2 * mapped + 1) * KIB(4), KIB(4), 0, handle, 0) == 0) {
    mapped++;
  }
  VEXPECT_UINT_GT(mapped, 10000);
  VEXPECT_UINT_LT(2 * mapped, 200000);
  host_expect_consistent(&rig);
  vtest_rng rng = vtest_rng_make(vtest_seed(4));
  uint32_t *order = malloc(mapped * sizeof *order);
  VASSERT_NOT_NULL(order);
  for (size_t i = 0; i < mapped; i++) {
    size_t j = (size_t)vtest_rng_below(&rng, i + 1);
    order[i] = order[j];
    order[j] = (uint32_t)i;
  }
  for (size_t i = 0; i < mapped; i++) {
    VASSERT_CUDA(vmp_drv_mem_unmap(rig.driver, ptr + (2 * (size_t)order[i] + 1) * KIB(4), KIB(4)));
  }
  free(order);
  VEXPECT_UINT_EQ(count_maps(ptr, slots * KIB(4)), 1);
  host_rig_teardown(&rig);
}

// Others in the process take every mapping that is left; an unmap still works and the CPU loses its view.
static int unmap_without_a_mapping_left(void) {
  exposed e = {.rig = {NULL, NULL}};
  exposed_open(&e, 0);
  vmp_cu_ptr ptr = host_reserve(&e.rig, 4 * G);
  (void)host_map(&e.rig, ptr + G, G);
  long page = sysconf(_SC_PAGESIZE);
  size_t length = (size_t)page * 400000;
  char *wall = mmap(NULL, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (wall == MAP_FAILED) return 2;
  for (size_t i = 1; i < 400000; i += 2) {
    if (mprotect(wall + i * (size_t)page, (size_t)page, PROT_READ) != 0) break;
  }
  int result = 0;
  if (vmp_drv_mem_unmap(e.rig.driver, ptr + G, G) != 0) result = 3;
  if (can_read(&e, ptr + G)) result = 4;
  (void)munmap(wall, length);
  (void)host_map(&e.rig, ptr + G, G);  // and the place can be used again
  if (!can_read(&e, ptr + G)) result = 5;
  exposed_teardown(&e);
  return result;
}

VTEST(HostExposed, AnUnmapNeedsNoMappingOfTheProcess) {
  if (SANITIZED || on_valgrind()) VSKIP("a sanitizer's runtime needs mappings of its own");
  pid_t child = fork();
  VASSERT_TRUE(child >= 0);
  if (child == 0) _exit(unmap_without_a_mapping_left());
  int status = -1;
  VASSERT_TRUE(waitpid(child, &status, 0) == child);
  VEXPECT_TRUE(WIFEXITED(status));
  VEXPECT_INT_EQ(WEXITSTATUS(status), 0);
}
