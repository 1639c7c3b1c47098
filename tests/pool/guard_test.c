// guard_test.c: the lock leans to a thread that enters often, and excludes everybody all the same.
#include "pool/guard.h"

#include <pthread.h>
#include <sched.h>

#include "tests/support/vtest.h"

typedef struct rig {
  vmp_guard guard;
  _Atomic int step;
  uint64_t count;  // of what the lock guards: no atomic, so that ThreadSanitizer sees who doesn't hold it
} rig;

static void rig_setup(rig *f) { VASSERT_OK(vmp_guard_init(&f->guard)); }
static void rig_teardown(rig *f) { vmp_guard_destroy(&f->guard); }

static const void *bias_of(rig *f) { return atomic_load(&f->guard.bias); }

// enter_and_leave enters so often, adding 1 to the count each time, and returns how often the lock leant to the caller.
static uint64_t enter_and_leave(rig *f, uint64_t times) {
  uint64_t leant = 0;
  for (uint64_t i = 0; i < times; i++) {
    bool leans = vmp_guard_enter(&f->guard);
    f->count++;
    vmp_guard_leave(&f->guard, leans);
    leant += leans;
  }
  return leant;
}

static void in_thread(rig *f, void *(*body)(void *)) {
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, body, f), 0);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
}

VTEST_F(Guard, LeansToAThreadThatEntersOften, rig) {
  VASSERT_TRUE(f->guard.can_bias);
  VEXPECT_UINT_EQ(enter_and_leave(f, VMP_GUARD_STREAK - 1), 0);
  VEXPECT_NULL(bias_of(f));
  VEXPECT_UINT_EQ(enter_and_leave(f, 1), 0);
  VEXPECT_PTR_EQ(bias_of(f), vmp_guard_self());
  VEXPECT_UINT_EQ(enter_and_leave(f, 10), 10);
  // Inside, the mutex is free; its own long way takes it, and changes nothing about that.
  VASSERT_TRUE(vmp_guard_enter(&f->guard));
  VEXPECT_UINT_EQ(atomic_load(&f->guard.busy), 1);
  VEXPECT_INT_EQ(pthread_mutex_trylock(&f->guard.mutex), 0);
  VEXPECT_INT_EQ(pthread_mutex_unlock(&f->guard.mutex), 0);
  vmp_guard_leave(&f->guard, true);
  VEXPECT_UINT_EQ(atomic_load(&f->guard.busy), 0);
  vmp_guard_lock(&f->guard);
  vmp_guard_unlock(&f->guard);
  VEXPECT_PTR_EQ(bias_of(f), vmp_guard_self());
}

static void *lock_once(void *self) {
  rig *f = self;
  vmp_guard_lock(&f->guard);
  f->count += 1000;
  vmp_guard_unlock(&f->guard);
  return NULL;
}

static void *enter_once(void *self) {
  (void)enter_and_leave(self, 1);
  return NULL;
}

VTEST_F(Guard, AnotherThreadEndsIt, rig) {
  void *(*const bodies[])(void *) = {lock_once, enter_once};
  for (int i = 0; i < 2; i++) {
    (void)enter_and_leave(f, VMP_GUARD_STREAK);
    VASSERT_PTR_EQ(bias_of(f), vmp_guard_self());
    in_thread(f, bodies[i]);
    VEXPECT_NULL(bias_of(f));
    VEXPECT_UINT_EQ(enter_and_leave(f, VMP_GUARD_STREAK - 1), 0);  // it begins anew
    VEXPECT_UINT_EQ(enter_and_leave(f, 2), 1);
  }
}

// Two threads in turn: nobody enters often enough in a row.
VTEST_F(Guard, AStreakIsOneThreads, rig) {
  for (int i = 0; i < 4; i++) {
    VEXPECT_UINT_EQ(enter_and_leave(f, VMP_GUARD_STREAK / 2), 0);
    in_thread(f, enter_once);
    VEXPECT_NULL(bias_of(f));
  }
}

static void *lock_and_look(void *self) {
  rig *f = self;
  atomic_store(&f->step, 1);
  vmp_guard_lock(&f->guard);
  uint64_t seen = f->count;
  vmp_guard_unlock(&f->guard);
  atomic_store(&f->step, 2);
  VEXPECT_UINT_EQ(seen, 12345);
  return NULL;
}

VTEST_F(Guard, AnotherThreadWaitsUntilItHasLeft, rig) {
  for (int i = 0; i < 100; i++) {
    pthread_t thread;
    atomic_store(&f->step, 0);
    (void)enter_and_leave(f, VMP_GUARD_STREAK);
    VASSERT_TRUE(vmp_guard_enter(&f->guard));
    f->count = 0;
    VASSERT_INT_EQ(pthread_create(&thread, NULL, lock_and_look, f), 0);
    while (bias_of(f) != NULL) (void)sched_yield();  // it has the mutex, and waits for this thread
    VEXPECT_INT_EQ(atomic_load(&f->step), 1);
    f->count = 12345;
    vmp_guard_leave(&f->guard, true);
    VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
    VEXPECT_INT_EQ(atomic_load(&f->step), 2);
  }
}

static void *wait_once(void *self) {
  rig *f = self;
  vmp_guard_lock(&f->guard);
  atomic_store(&f->step, 1);
  while (atomic_load(&f->step) == 1) vmp_guard_wait(&f->guard);
  VEXPECT_NULL(bias_of(f));
  uint64_t seen = f->count;
  vmp_guard_unlock(&f->guard);
  VEXPECT_UINT_EQ(seen, VMP_GUARD_STREAK + 1);
  return NULL;
}

VTEST_F(Guard, AThreadThatHasWaitedEndsIt, rig) {
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, wait_once, f), 0);
  while (atomic_load(&f->step) == 0) (void)sched_yield();
  vmp_guard_lock(&f->guard);  // it waits by now
  vmp_guard_unlock(&f->guard);
  VEXPECT_UINT_EQ(enter_and_leave(f, VMP_GUARD_STREAK + 1), 1);
  atomic_store(&f->step, 2);
  vmp_guard_wake_all(&f->guard);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  VEXPECT_NULL(bias_of(f));
}

static void *lean_and_end(void *self) {
  rig *f = self;
  (void)enter_and_leave(f, VMP_GUARD_STREAK);
  VEXPECT_PTR_EQ(bias_of(f), vmp_guard_self());
  vmp_guard_lock(&f->guard);
  vmp_guard_drop_bias(&f->guard);
  vmp_guard_unlock(&f->guard);
  return NULL;
}

VTEST_F(Guard, AThreadThatEndsDropsIt, rig) {
  in_thread(f, lean_and_end);
  VEXPECT_NULL(bias_of(f));
  VEXPECT_NULL(f->guard.streak_of);
  // What another thread drops is not this one's.
  (void)enter_and_leave(f, VMP_GUARD_STREAK);
  const void *mine = bias_of(f);
  VEXPECT_PTR_EQ(mine, vmp_guard_self());
}

VTEST_F(Guard, WithoutTheBarrierItNeverLeans, rig) {
  f->guard.can_bias = false;
  VEXPECT_UINT_EQ(enter_and_leave(f, 3 * VMP_GUARD_STREAK), 0);
  VEXPECT_NULL(bias_of(f));
}

VTEST_F(Guard, WasFreeTellsWhetherAnybodyIsInside, rig) {
  VEXPECT_TRUE(vmp_guard_was_free(&f->guard));
  VEXPECT_FALSE(vmp_guard_enter(&f->guard));
  VEXPECT_FALSE(vmp_guard_was_free(&f->guard));
  vmp_guard_leave(&f->guard, false);
  (void)enter_and_leave(f, VMP_GUARD_STREAK);
  VEXPECT_TRUE(vmp_guard_was_free(&f->guard));
  VASSERT_TRUE(vmp_guard_enter(&f->guard));
  VEXPECT_FALSE(vmp_guard_was_free(&f->guard));
  vmp_guard_leave(&f->guard, true);
  VEXPECT_TRUE(vmp_guard_was_free(&f->guard));
}

enum { HAMMER_ENTRIES = 200000, HAMMER_LOCKS = 2000 };

static void *hammer(void *self) {
  rig *f = self;
  for (int i = 0; i < HAMMER_LOCKS; i++) {
    vmp_guard_lock(&f->guard);
    f->count++;
    vmp_guard_unlock(&f->guard);
    for (int pause = 0; pause < i % 64; pause++) (void)sched_yield();
  }
  return NULL;
}

// It leans after two entries, so that it does and is ended again and again.
VTEST_F(Guard, EverybodyIsExcluded, rig) {
  pthread_t threads[2];
  f->guard.lean_after = 2;
  VEXPECT_UINT_EQ(enter_and_leave(f, 10), 8);
  for (int i = 0; i < 2; i++) VASSERT_INT_EQ(pthread_create(&threads[i], NULL, hammer, f), 0);
  (void)enter_and_leave(f, HAMMER_ENTRIES);
  for (int i = 0; i < 2; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  VEXPECT_UINT_EQ(f->count, 10 + HAMMER_ENTRIES + 2 * HAMMER_LOCKS);
}
