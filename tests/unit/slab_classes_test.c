// slab_classes_test.c: the user's classes: beside the default table, their queue of free spans, and exchanging them
// while objects are live.
#include <pthread.h>

#include "tests/unit/slab_rig.h"
#include "vmm/memory.h"

#define GIB (UINT64_C(1024) * MIB)

static const uint64_t four[] = {2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB};

static void make_with_blocks(slab_rig *f, size_t max_user_classes) {
  rig_remake(f, (vmp_slab_options){.max_object_bytes = 64 * KIB,
                                   .class_bytes = four,
                                   .num_classes = 4,
                                   .class_from_bytes = 1 * MIB,
                                   .max_user_classes = max_user_classes});
}

static vmp_slab_class_info info_of(const slab_rig *f, uint64_t bytes) {
  vmp_slab_class_info info = {0};
  for (size_t i = 0; vmp_slab_get_class(f->slab, i, &info); i++) {
    if (info.user && info.object_bytes == bytes) return info;
  }
  return (vmp_slab_class_info){0};
}

VTEST_F(SlabClasses, StandBesideTheDefaultTable, slab_rig) {
  make_with_blocks(f, 0);
  static const struct {
    uint64_t bytes, expected;
  } cases[] = {
      {0, 512},          {1, 512},           {64 * KIB, 64 * KIB},   {64 * KIB + 1, 0},   {MIB - 1, 0},
      {MIB, 2 * MIB},    {2 * MIB, 2 * MIB}, {2 * MIB + 1, 4 * MIB}, {9 * MIB, 16 * MIB}, {16 * MIB, 16 * MIB},
      {16 * MIB + 1, 0}, {3 * GIB, 0},       {UINT64_MAX, 0},        {4608 + 1, 5120},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    VTRACE("%llu bytes", (unsigned long long)cases[i].bytes);
    VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, cases[i].bytes, 512), cases[i].expected);
  }
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 2 * MIB, 2 * MIB), 2 * MIB);
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 2 * MIB, 4 * MIB), 0);  // spans are aligned to the granule
  uint64_t small = rig_alloc(f, 64 * KIB), block = rig_alloc(f, 4 * MIB);
  VEXPECT_UINT_EQ(info_of(f, 4 * MIB).objects, 1);
  VEXPECT_UINT_EQ(info_of(f, 2 * MIB).spans, 0);
  rig_free(f, small, VMP_FENCE_NONE);
  rig_free(f, block, VMP_FENCE_NONE);
}

// A class below the default table's largest wins over it; the sizes below its range stay with the table, and what the
// table rounds them to is served by the table again.
VTEST_F(SlabClasses, SmallOnesWinOverTheTable, slab_rig) {
  static const uint64_t classes[] = {78 * 512, 100 * KIB};
  rig_remake(f,
             (vmp_slab_options){
                 .max_object_bytes = 64 * KIB, .class_bytes = classes, .num_classes = 2, .class_from_bytes = 39 * 512});
  for (uint64_t bytes = 1; bytes <= 101 * KIB; bytes += 97) {
    uint64_t class_bytes = vmp_slab_class_bytes(f->slab, bytes, 512);
    if (class_bytes == 0) {
      VASSERT_UINT_GT(bytes, 100 * KIB);
      continue;
    }
    VASSERT_UINT_GE(class_bytes, bytes);
    VASSERT_UINT_EQ(vmp_slab_class_bytes(f->slab, class_bytes, 512), class_bytes);
    if (bytes > 40 * 512) VASSERT_TRUE(class_bytes == classes[0] || class_bytes == classes[1]);
    if (bytes <= 39 * 512 - 1) VASSERT_UINT_EQ(class_bytes, vmp_class_bytes(vmp_class_index(bytes)));
  }
}

// Of 80 used blocks of one span each, ten free ones and one more may wait; those beyond go back at once.
VTEST_F(SlabClasses, FreeBlocksWaitInAQueue, slab_rig) {
  make_with_blocks(f, 0);
  uint64_t offsets[80];
  rig_alloc_many(f, 2 * MIB, offsets, 80);
  VEXPECT_UINT_EQ(f->supply.num_blocks, 80);
  for (size_t i = 70; i < 80; i++) rig_free(f, offsets[i], VMP_FENCE_NONE);
  // 70 are used: 70 / 8 = 8, and 1.
  VEXPECT_UINT_EQ(f->supply.num_blocks, 79);
  VEXPECT_UINT_EQ(rig_stats(f).empty_spans, 9);
  rig_check(f);
  uint64_t again[9];
  rig_alloc_many(f, 2 * MIB, again, 9);  // without the supply
  VEXPECT_UINT_EQ(f->supply.num_blocks, 79);
  for (size_t i = 0; i < 9; i++) rig_free(f, again[i], VMP_FENCE_NONE);
  for (size_t i = 0; i < 70; i++) {
    rig_free(f, offsets[i], VMP_FENCE_NONE);
    VASSERT_UINT_LE(rig_stats(f).empty_spans, (69 - i) / 8 + 1);
  }
  VEXPECT_UINT_EQ(f->supply.num_blocks, 1);
  VEXPECT_UINT_EQ(vmp_slab_trim(f->slab), 2 * MIB);
  VEXPECT_UINT_EQ(f->supply.num_blocks, 0);
}

VTEST_F(SlabClasses, AreExchangedWhileObjectsAreLive, slab_rig) {
  make_with_blocks(f, 8);
  uint64_t small = rig_alloc(f, 4 * MIB), kept = rig_alloc(f, 8 * MIB), queued = rig_alloc(f, 2 * MIB);
  rig_free(f, queued, VMP_FENCE_NONE);
  static const uint64_t next[] = {3 * MIB, 8 * MIB};
  VASSERT_OK(vmp_slab_adopt(f->slab, next, 2, 2 * MIB));
  rig_check(f);
  VEXPECT_UINT_EQ(f->supply.num_blocks, 2);  // the empty span of 2 MiB went back
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 2 * MIB, 512), 3 * MIB);
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 4 * MIB, 512), 8 * MIB);
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, MIB, 512), 0);
  VEXPECT_TRUE(info_of(f, 4 * MIB).draining);
  VEXPECT_FALSE(info_of(f, 8 * MIB).draining);
  // The objects of a class that drains are found and freed as ever, and its last span goes back with the last of them.
  uint64_t start = 0, bytes = 0;
  VEXPECT_TRUE(vmp_slab_find(f->slab, rig_span(f, small), small + 1, &start, &bytes));
  VEXPECT_UINT_EQ(bytes, 4 * MIB);
  rig_free(f, small, VMP_FENCE_NONE);
  VEXPECT_UINT_EQ(f->supply.num_blocks, 1);
  rig_free(f, kept, VMP_FENCE_NONE);
  VEXPECT_UINT_EQ(f->supply.num_blocks, 1);  // of a class that stays
  rig_check(f);
  // A class comes back with the spans that it had.
  VASSERT_OK(vmp_slab_adopt(f->slab, four, 4, MIB));
  VEXPECT_UINT_EQ(rig_alloc(f, 8 * MIB), kept);
  rig_free(f, kept, VMP_FENCE_NONE);
  VASSERT_OK(vmp_slab_adopt(f->slab, NULL, 0, 0));
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 8 * MIB, 512), 0);
  VEXPECT_UINT_EQ(f->supply.num_blocks, 0);
}

// Draining classes take room; when there is none for another class nothing changes, and it works once they are over.
VTEST_F(SlabClasses, NeedRoom, slab_rig) {
  make_with_blocks(f, 4);
  uint64_t held = rig_alloc(f, 4 * MIB);
  static const uint64_t other[] = {6 * MIB, 10 * MIB, 12 * MIB, 14 * MIB};
  // Nothing of the four is over before they are draining.
  VEXPECT_STATUS(vmp_slab_adopt(f->slab, other, 4, 3 * MIB), VMP_ERROR_BUSY);
  rig_check(f);
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 4 * MIB, 512), 4 * MIB);
  VASSERT_OK(vmp_slab_adopt(f->slab, NULL, 0, 0));
  VEXPECT_STATUS(vmp_slab_adopt(f->slab, other, 4, 3 * MIB), VMP_ERROR_BUSY);
  VASSERT_OK(vmp_slab_adopt(f->slab, other, 3, 3 * MIB));
  rig_free(f, held, VMP_FENCE_NONE);
  VASSERT_OK(vmp_slab_adopt(f->slab, other, 4, 3 * MIB));
  rig_check(f);
  vmp_placed placed;
  vmp_request gone = {.bytes = 16 * MIB, .alignment = 512};
  VEXPECT_STATUS(vmp_slab_alloc(f->slab, &gone, &placed), VMP_ERROR_BUSY);
}

VTEST_F(SlabClasses, AdoptionFailsWhole, slab_rig) {
  make_with_blocks(f, 16);
  static const uint64_t next[] = {3 * MIB, 4 * MIB, 5 * MIB}, falling[] = {4 * MIB, 2 * MIB}, odd[] = {1000};
  VEXPECT_STATUS(vmp_slab_adopt(f->slab, falling, 2, 0), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_slab_adopt(f->slab, odd, 1, 0), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_slab_adopt(f->slab, next, 3, 6 * MIB), VMP_ERROR_INVALID_VALUE);
  uint64_t nth = 0;
  for (;; nth++) {
    vmp_mem_fail_after(nth, 1);
    vmp_status status = vmp_slab_adopt(f->slab, next, 3, 2 * MIB);
    vmp_mem_fail_after(0, 0);
    rig_check(f);
    if (status == VMP_OK) break;
    VASSERT_STATUS(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
    VASSERT_UINT_EQ(vmp_slab_class_bytes(f->slab, 16 * MIB, 512), 16 * MIB);
  }
  VEXPECT_UINT_EQ(nth, 3);  // the list of lists, and lists for 3 and 5 MiB
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 5 * MIB, 512), 5 * MIB);
}

// ---- routing without the lock ----

typedef struct reader {
  vmp_slab *slab;
  _Atomic int *stop;
  uint64_t wrong;
} reader;

// What is found holds the request, and is a class of one of the two tables.
static void *look_up(void *argument) {
  reader *r = argument;
  for (uint64_t bytes = MIB; !atomic_load(r->stop); bytes = bytes == 20 * MIB ? MIB : bytes + 512 * KIB) {
    uint64_t found = vmp_slab_class_bytes(r->slab, bytes, 512);
    bool known = found == 0;
    for (uint64_t mib = 2; mib <= 18; mib++) known = known || found == mib * MIB;
    r->wrong += !known || (found != 0 && found < bytes);
  }
  return NULL;
}

VTEST_F(SlabClasses, AreReadWithoutTheLock, slab_rig) {
  make_with_blocks(f, 16);
  static const uint64_t other[] = {3 * MIB, 5 * MIB, 6 * MIB, 9 * MIB, 12 * MIB, 18 * MIB};
  _Atomic int stop = 0;
  reader r = {.slab = f->slab, .stop = &stop};
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, look_up, &r), 0);
  vmp_status status = VMP_OK;
  for (int i = 0; i < 2000 && status == VMP_OK; i++) {
    status = i % 2 == 0 ? vmp_slab_adopt(f->slab, other, 6, 2 * MIB) : vmp_slab_adopt(f->slab, four, 4, MIB);
  }
  atomic_store(&stop, 1);
  VEXPECT_INT_EQ(pthread_join(thread, NULL), 0);
  VEXPECT_OK(status);
  VEXPECT_UINT_EQ(r.wrong, 0);
}

// ---- the check ----

static void drain_with_an_empty_span(slab_rig *f) {
  for (size_t i = 0; i < f->slab->num_classes; i++) {
    if (f->slab->classes[i].bytes == 2 * MIB) f->slab->classes[i].kind = VMP_CLASS_DRAINING;
  }
  atomic_store(&f->slab->user.count, 3);
  for (size_t i = 0; i < 3; i++) {
    f->slab->user.rows[i].index = f->slab->user.rows[i + 1].index;
    atomic_store(&f->slab->user.rows[i].bytes, atomic_load(&f->slab->user.rows[i + 1].bytes));
  }
}
static void fall(slab_rig *f) { atomic_store(&f->slab->user.rows[1].bytes, 2 * MIB); }
static void name_another_class(slab_rig *f) { f->slab->user.rows[1].index = 3; }
static void forget_a_row(slab_rig *f) { atomic_store(&f->slab->user.count, 3); }
static void miscount_lists(slab_rig *f) { f->slab->num_lists++; }
static void wrong_kind(slab_rig *f) { f->slab->classes[2].kind = VMP_CLASS_DRAINING; }

typedef struct corruption {
  const char *name;
  void (*make)(slab_rig *f);
  const char *sentence;
} corruption;
static const char *corruption_name(const corruption *p) { return p->name; }
static const corruption corruptions[] = {
    {"DrainWithAnEmptySpan", drain_with_an_empty_span, "is draining and keeps 1 empty spans"},
    {"Fall", fall, "row 1 of the user's classes doesn't rise"},
    {"NameAnotherClass", name_another_class, "row 1 of the user's classes is of class 3"},
    {"ForgetARow", forget_a_row, "4 classes are the user's, and 3 have a row"},
    {"MiscountLists", miscount_lists, "lists, and"},
    {"WrongKind", wrong_kind, "class 2 is of kind 2"},
};

VTEST_FP(SlabClasses, CheckNotices, slab_rig, corruption, corruptions, corruption_name) {
  make_with_blocks(f, 0);
  uint64_t block = rig_alloc(f, 2 * MIB);
  rig_free(f, block, VMP_FENCE_NONE);
  rig_check(f);
  p->make(f);
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VEXPECT_UINT_GE(vmp_slab_check(f->slab, &report), 1);
  VEXPECT_A_FAULT(&faults, p->sentence);
  vmp_slab_destroy(f->slab);
  f->slab = NULL;
}
