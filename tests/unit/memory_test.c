// memory_test.c: addresses that become memory bit by bit. (The rest of memory.h is what every other test fails.)
#include "vmm/memory.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/vtest.h"

enum { KIB = 1024, MIB = 1024 * KIB };

VTEST(Memory, ReservedAddressesAreUsableOnceCommitted) {
  size_t bytes = 16 * MIB;
  unsigned char *row = vmp_mem_reserve(&bytes, MIB, 8);
  VASSERT_NOT_NULL(row);
  VEXPECT_UINT_EQ(bytes, 16 * MIB);
  // Not by whole pages: what is between belongs to both.
  VASSERT_TRUE(vmp_mem_commit(row, 1000));
  VEXPECT_BYTES_FILLED(row, 0, 1000);
  memset(row, 0x5a, 1000);
  VASSERT_TRUE(vmp_mem_commit(row + 1000, 300 * KIB));
  VEXPECT_BYTES_FILLED(row, 0x5a, 1000);
  VEXPECT_BYTES_FILLED(row + 1000, 0, 300 * KIB);
  VASSERT_TRUE(vmp_mem_commit(row + bytes - 1, 1));
  row[bytes - 1] = 1;
  vmp_mem_unreserve(row, bytes);
  vmp_mem_unreserve(NULL, 0);
}

VTEST(Memory, WhereThereIsLessAReservationIsHalved) {
  size_t bytes = 16 * MIB;
  vmp_mem_fail_after(0, 3);
  void *row = vmp_mem_reserve(&bytes, 2 * MIB, 8);
  VASSERT_NOT_NULL(row);
  VEXPECT_UINT_EQ(bytes, 2 * MIB);
  vmp_mem_unreserve(row, bytes);
}

// 1 EiB: no machine has the addresses.
VTEST(Memory, AReservationThatNothingHoldsIsRefused) {
  size_t bytes = (size_t)1 << 60;
  VEXPECT_NULL(vmp_mem_reserve(&bytes, (size_t)1 << 58, 8));
  VEXPECT_UINT_EQ(bytes, (size_t)1 << 60);
}

VTEST(Memory, AReservationIsNeverSmallerThanTheLeast) {
  size_t bytes = 16 * MIB;
  vmp_mem_fail_after(0, 3);
  VEXPECT_NULL(vmp_mem_reserve(&bytes, 3 * MIB, 8));  // 16, 8 and 4 MiB fail; 2 is too little
  VEXPECT_UINT_EQ(bytes, 16 * MIB);
  VEXPECT_UINT_EQ(vmp_mem_failures(), 3);
  vmp_mem_fail_after(0, 0);
}

// The sanitizers' own reservations are larger than any limit.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_OWN_RESERVATIONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_OWN_RESERVATIONS 1
#endif
#endif
#ifndef HAS_OWN_RESERVATIONS
enum { NO_SUCH_LIMIT = 100 };
// mistakes_with_limit: of a child that may have 64 GiB of addresses, and has used some: a 64th is less than one GiB.
static int mistakes_with_limit(void) {
  const size_t gib = (size_t)1 << 30;
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0) return NO_SUCH_LIMIT;
  limit.rlim_cur = 64 * gib;
  if (setrlimit(RLIMIT_AS, &limit) != 0) return NO_SUCH_LIMIT;
  size_t large = 8 * gib, small = gib / 2, least = 4 * gib;
  void *rows[3] = {vmp_mem_reserve(&large, MIB, 64), vmp_mem_reserve(&small, MIB, 64),
                   vmp_mem_reserve(&least, 4 * gib, 64)};
  int mistakes = rows[0] == NULL || large != gib / 2;
  mistakes += rows[1] == NULL || small != gib / 2;
  mistakes += rows[2] == NULL || least != 4 * gib;  // the least comes before the share
  size_t too_much = 128 * gib;
  mistakes += vmp_mem_reserve(&too_much, 128 * gib, 64) != NULL;
  // A share of what is left: with 59 GiB left an eighth is 7.4, with 30 GiB 3.7.
  size_t eighth = 8 * gib;
  mistakes += vmp_mem_reserve(&eighth, MIB, 8) == NULL || eighth != 4 * gib;
  size_t half = 16 * gib;
  mistakes += vmp_mem_reserve(&half, 16 * gib, 1) == NULL || vmp_mem_reserve(&half, 8 * gib, 1) == NULL;
  eighth = 8 * gib;
  mistakes += vmp_mem_reserve(&eighth, MIB, 8) == NULL || eighth != 2 * gib;
  return mistakes;
}

VTEST(Memory, UnderALimitItTakesAShareOfWhatIsLeft) {
  pid_t child = fork();
  VASSERT_INT_GE(child, 0);
  if (child == 0) _exit(mistakes_with_limit());
  int status = 0;
  VASSERT_INT_EQ(waitpid(child, &status, 0), child);
  VEXPECT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == NO_SUCH_LIMIT) VSKIP("this process may not have 64 GiB of addresses");
  VEXPECT_INT_EQ(WEXITSTATUS(status), 0);
}
#endif

VTEST(Memory, AFailedCommitChangesNothing) {
  size_t bytes = MIB;
  unsigned char *row = vmp_mem_reserve(&bytes, MIB, 8);
  VASSERT_NOT_NULL(row);
  VASSERT_TRUE(vmp_mem_commit(row, 1));
  row[0] = 7;
  vmp_mem_fail_after(0, 1);
  VEXPECT_FALSE(vmp_mem_commit(row, MIB));
  VEXPECT_UINT_EQ(row[0], 7);
  VEXPECT_TRUE(vmp_mem_commit(row, MIB));
  VEXPECT_UINT_EQ(row[0], 7);
  vmp_mem_unreserve(row, bytes);
}
