// guard_test.c: the lock leans to a thread that enters often, and excludes everybody all the same.
#include "pool/guard.h"

#include <pthread.h>
#include <sched.h>

#include "tests/support/vtest.h"

typedef struct rig {
  vmp_guard guard;
  vmp_guard_seat seat;  // of the test's own thread
  _Atomic int step;
  uint64_t count;  // of what the lock guards: no atomic, so that ThreadSanitizer sees who doesn't hold it
} rig;

static void rig_setup(rig *f) { VASSERT_OK(vmp_guard_init(&f->guard)); }
static void rig_teardown(rig *f) { vmp_guard_destroy(&f->guard); }

static const vmp_guard_seat *bias_of(rig *f) { return atomic_load(&f->guard.bias); }

// enter_by enters so often, adding 1 to the count each time, and returns how often the lock leant to the caller.
static uint64_t enter_by(rig *f, vmp_guard_seat *seat, uint64_t times) {
  uint64_t leant = 0;
  for (uint64_t i = 0; i < times; i++) {
    bool leans = vmp_guard_enter(&f->guard, seat);
    f->count++;
    vmp_guard_leave(&f->guard, seat, leans);
    leant += leans;
  }
  return leant;
}
static uint64_t enter_and_leave(rig *f, uint64_t times) { return enter_by(f, &f->seat, times); }

// drop is what a thread does before its seat goes.
static void drop(rig *f) {
  vmp_guard_lock(&f->guard);
  vmp_guard_drop_bias(&f->guard);
  vmp_guard_unlock(&f->guard);
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
  VEXPECT_PTR_EQ(bias_of(f), &f->seat);
  VEXPECT_UINT_EQ(enter_and_leave(f, 10), 10);
  // Inside, the mutex is free; its own long way takes it, and changes nothing about that.
  VASSERT_TRUE(vmp_guard_enter(&f->guard, &f->seat));
  VEXPECT_UINT_EQ(atomic_load(&f->seat), 1);
  VEXPECT_INT_EQ(pthread_mutex_trylock(&f->guard.mutex), 0);
  VEXPECT_INT_EQ(pthread_mutex_unlock(&f->guard.mutex), 0);
  vmp_guard_leave(&f->guard, &f->seat, true);
  VEXPECT_UINT_EQ(atomic_load(&f->seat), 0);
  vmp_guard_lock(&f->guard);
  vmp_guard_unlock(&f->guard);
  VEXPECT_PTR_EQ(bias_of(f), &f->seat);
}

static void *lock_once(void *self) {
  rig *f = self;
  vmp_guard_lock(&f->guard);
  f->count += 1000;
  vmp_guard_unlock(&f->guard);
  return NULL;
}

static void *enter_once(void *self) {
  vmp_guard_seat seat = 0;
  (void)enter_by(self, &seat, 1);
  drop(self);
  return NULL;
}

VTEST_F(Guard, AnotherThreadEndsIt, rig) {
  void *(*const bodies[])(void *) = {lock_once, enter_once};
  for (int i = 0; i < 2; i++) {
    (void)enter_and_leave(f, VMP_GUARD_STREAK);
    VASSERT_PTR_EQ(bias_of(f), &f->seat);
    in_thread(f, bodies[i]);
    VEXPECT_NULL(bias_of(f));
    VEXPECT_UINT_EQ(enter_and_leave(f, VMP_GUARD_STREAK - 1), 0);  // it begins anew
    VEXPECT_UINT_EQ(enter_and_leave(f, 2), 1);
  }
}

// Two threads in turn: nobody enters often enough with nobody else in between, whichever way the other one takes it.
VTEST_F(Guard, AStreakIsOneThreads, rig) {
  for (int i = 0; i < 8; i++) {
    VEXPECT_UINT_EQ(enter_and_leave(f, VMP_GUARD_STREAK / 2), 0);
    in_thread(f, i % 2 == 0 ? enter_once : lock_once);
    VEXPECT_NULL(bias_of(f));
  }
}

// A thread's streak is that of all its seats. It leans to the one that it has entered by last.
VTEST_F(Guard, AThreadMayHaveSeveralSeats, rig) {
  vmp_guard_seat other = 0;
  for (unsigned i = 0; i < VMP_GUARD_STREAK / 2; i++) {
    VASSERT_UINT_EQ(enter_by(f, &f->seat, 1) + enter_by(f, &other, 1), 0);
  }
  VEXPECT_PTR_EQ(bias_of(f), &other);
  VEXPECT_UINT_EQ(enter_by(f, &other, 5), 5);
  VEXPECT_UINT_EQ(enter_by(f, &f->seat, 5), 4);
  VEXPECT_UINT_EQ(enter_by(f, &other, 1), 0);
  in_thread(f, lock_once);
  VEXPECT_NULL(bias_of(f));
}

// stay_inside enters until the lock leans to it, and stays inside until it is told to leave.
static void *stay_inside(void *self) {
  rig *f = self;
  vmp_guard_seat seat = 0;
  (void)enter_by(f, &seat, VMP_GUARD_STREAK);
  bool leans = vmp_guard_enter(&f->guard, &seat);
  VEXPECT_TRUE(leans);
  atomic_store(&f->step, 1);
  while (atomic_load(&f->step) == 1) (void)sched_yield();
  f->count = 777;
  vmp_guard_leave(&f->guard, &seat, leans);
  drop(f);
  return NULL;
}

static void *lock_after(void *self) {
  rig *f = self;
  vmp_guard_lock(&f->guard);
  VEXPECT_UINT_EQ(f->count, 777);
  VEXPECT_INT_EQ(atomic_load(&f->step), 2);
  vmp_guard_unlock(&f->guard);
  return NULL;
}

// A thread is late between its look at the bias and its store, and meanwhile the lock leans to another one, which is
// inside. What the late one does then must not let a third one in.
VTEST_F(Guard, AThreadThatIsLateLetsNobodyIn, rig) {
  pthread_t inside, third;
  (void)enter_and_leave(f, VMP_GUARD_STREAK);
  VASSERT_PTR_EQ(bias_of(f), &f->seat);  // its first look
  VASSERT_INT_EQ(pthread_create(&inside, NULL, stay_inside, f), 0);
  while (atomic_load(&f->step) == 0) (void)sched_yield();
  atomic_store(&f->seat, 1);             // it goes on as vmp_guard_enter does: its store,
  VASSERT_TRUE(bias_of(f) != &f->seat);  // its second look,
  atomic_store(&f->seat, 0);             // and back
  VASSERT_INT_EQ(pthread_create(&third, NULL, lock_after, f), 0);
  while (bias_of(f) != NULL) (void)sched_yield();  // the third one has the mutex, and waits for the second
  atomic_store(&f->step, 2);
  VASSERT_INT_EQ(pthread_join(inside, NULL), 0);
  VASSERT_INT_EQ(pthread_join(third, NULL), 0);
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
    VASSERT_TRUE(vmp_guard_enter(&f->guard, &f->seat));
    f->count = 0;
    VASSERT_INT_EQ(pthread_create(&thread, NULL, lock_and_look, f), 0);
    while (bias_of(f) != NULL) (void)sched_yield();  // it has the mutex, and waits for this thread
    VEXPECT_INT_EQ(atomic_load(&f->step), 1);
    f->count = 12345;
    vmp_guard_leave(&f->guard, &f->seat, true);
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
  vmp_guard_seat seat = 0;
  (void)enter_by(f, &seat, VMP_GUARD_STREAK);
  VEXPECT_PTR_EQ(bias_of(f), &seat);
  drop(f);
  return NULL;
}

VTEST_F(Guard, AThreadThatEndsDropsIt, rig) {
  in_thread(f, lean_and_end);
  VEXPECT_NULL(bias_of(f));
  VEXPECT_NULL(f->guard.streak_of);
}

VTEST_F(Guard, WithoutTheBarrierItNeverLeans, rig) {
  f->guard.can_bias = false;
  VEXPECT_UINT_EQ(enter_and_leave(f, 3 * VMP_GUARD_STREAK), 0);
  VEXPECT_NULL(bias_of(f));
}

VTEST_F(Guard, WasFreeTellsWhetherAnybodyIsInside, rig) {
  VEXPECT_TRUE(vmp_guard_was_free(&f->guard));
  VEXPECT_FALSE(vmp_guard_enter(&f->guard, &f->seat));
  VEXPECT_FALSE(vmp_guard_was_free(&f->guard));
  vmp_guard_leave(&f->guard, &f->seat, false);
  (void)enter_and_leave(f, VMP_GUARD_STREAK);
  VEXPECT_TRUE(vmp_guard_was_free(&f->guard));
  VASSERT_TRUE(vmp_guard_enter(&f->guard, &f->seat));
  VEXPECT_FALSE(vmp_guard_was_free(&f->guard));
  vmp_guard_leave(&f->guard, &f->seat, true);
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
VTEST_F(Guard, WhoLocksIsExcluded, rig) {
  pthread_t threads[2];
  f->guard.lean_after = 2;
  VEXPECT_UINT_EQ(enter_and_leave(f, 10), 8);
  for (int i = 0; i < 2; i++) VASSERT_INT_EQ(pthread_create(&threads[i], NULL, hammer, f), 0);
  (void)enter_and_leave(f, HAMMER_ENTRIES);
  for (int i = 0; i < 2; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  VEXPECT_UINT_EQ(f->count, 10 + HAMMER_ENTRIES + 2 * HAMMER_LOCKS);
}

// ---- several threads that enter ----

#define ENTRIES (2 * vtest_ops(4000000))

// enter_many stays inside for a while each time, so that it is put aside there now and then.
static void *enter_many(void *self) {
  rig *f = self;
  vmp_guard_seat seat = 0;
  for (uint64_t i = 0; i < ENTRIES; i++) {
    bool leans = vmp_guard_enter(&f->guard, &seat);
    uint64_t was = f->count;
    for (int pause = 0; pause < 20; pause++) atomic_signal_fence(memory_order_seq_cst);
    f->count = was + 1;
    vmp_guard_leave(&f->guard, &seat, leans);
  }
  drop(f);
  return NULL;
}

// On one core threads are put aside anywhere, and the lock leans to one after the other meanwhile.
VTEST_F(Guard, EverybodyIsExcludedOnOneCore, rig) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  cpu_set_t all, one;
  VASSERT_INT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
  CPU_ZERO(&one);
  for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++) {
    if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
  }
  VASSERT_INT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  for (int i = 0; i < THREADS; i++) VASSERT_INT_EQ(pthread_create(&threads[i], NULL, enter_many, f), 0);
  for (int i = 0; i < THREADS; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  VASSERT_INT_EQ(sched_setaffinity(0, sizeof all, &all), 0);
  VEXPECT_UINT_EQ(f->count, THREADS * ENTRIES);
}

VTEST_F(Guard, EverybodyIsExcludedOnSeveralCores, rig) {
  enum { THREADS = 3 };
  pthread_t threads[THREADS];
  f->guard.lean_after = 16;
  for (int i = 0; i < THREADS; i++) VASSERT_INT_EQ(pthread_create(&threads[i], NULL, enter_many, f), 0);
  for (int i = 0; i < THREADS; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  VEXPECT_UINT_EQ(f->count, THREADS * ENTRIES);
}
