// slab_check_test.c: the checker notices every corruption, and names one fault for one corruption.
#include "tests/unit/slab_rig.h"

#define SIZE (64 * KIB)
#define CLASS 39  // of 64 KiB; 8 objects to a span

// Two full spans, one with 3 free objects of which 2 were used, one with 5, all of which were used by two streams.
typedef struct broken_rig {
  slab_rig base;
  vmp_span *full, *other_full, *three, *five;
  vmp_slab_class *class;
} broken_rig;

static void broken_rig_setup(broken_rig *f) {
  slab_rig_setup(&f->base);
  uint64_t offsets[32];
  rig_alloc_many(&f->base, SIZE, offsets, 16);
  rig_alloc_many(&f->base, SIZE, offsets + 16, 8);
  for (size_t i = 16; i < 21; i++) rig_free(&f->base, offsets[i], fence_of((vmp_stream_index)(i % 2), i));
  f->full = rig_span(&f->base, offsets[0]);
  f->other_full = rig_span(&f->base, offsets[8]);
  f->five = rig_span(&f->base, offsets[16]);
  // Stream 5 can't use what the others freed, so it gets a new span.
  for (size_t i = 24; i < 31; i++) offsets[i] = rig_alloc_on(&f->base, SIZE, 5).offset;
  rig_free(&f->base, offsets[24], fence_of(5, 40));
  rig_free(&f->base, offsets[25], fence_of(5, 41));
  f->three = rig_span(&f->base, offsets[30]);
  f->class = &f->base.slab->classes[CLASS];
  rig_check(&f->base);
  VASSERT_UINT_EQ(f->three->num_free, 3);
  VASSERT_UINT_EQ(f->five->num_free, 5);
}

// The bookkeeping is broken: only its memory is freed.
static void broken_rig_teardown(broken_rig *f) {
  vmp_slab_destroy(f->base.slab);
  vmp_fake_supply_finish(&f->base.supply);
  vmp_fake_destroy(f->base.clock);
}

// ---- corruptions ----

static void count_one_free_more(broken_rig *f) { f->three->num_free++; }
static void lose_a_free_object(broken_rig *f) { f->three->groups[VMP_GROUP_CLEAN].bits = 0; }
static void free_a_used_object(broken_rig *f) { f->full->groups[VMP_GROUP_CLEAN].bits = 4; }
static void move_to_a_wrong_list(broken_rig *f) {
  vmp_span_unlist(f->class, f->three);
  f->three->num_free = 2;
  vmp_span_list(f->class, f->three);
  f->three->num_free = 3;
}
static void list_a_span_twice(broken_rig *f) {
  f->class->lists[2] = f->three;
  f->class->nonempty |= 2;
  f->class->num_spans++;
  f->base.slab->spans.used++;
  f->base.slab->spans.touched++;
  f->base.slab->cards.num_used[1]++;
  f->base.slab->cards.used_lines++;
}
static _Atomic uint32_t *card_of(broken_rig *f, const vmp_span *span) {
  return &vmp_card_at(&f->base.slab->cards, span->line)->head;
}
static void swap_cards(broken_rig *f) {
  uint32_t line = f->three->line;
  f->three->line = f->five->line;
  f->five->line = line;
  atomic_store(card_of(f, f->three), vmp_card_head(CLASS + 1, f->three->record));
}
static void wrong_class_on_a_card(broken_rig *f) {
  atomic_store(card_of(f, f->three), vmp_card_head(38, f->three->record));
}
static void no_card(broken_rig *f) { f->three->line = 0; }
static void write_to_nobodys_card(broken_rig *f) { atomic_store(&vmp_card_at(&f->base.slab->cards, 0)->head, 7); }
static void lose_a_card(broken_rig *f) {
  f->base.slab->cards.num_used[1]++;
  f->base.slab->cards.used_lines++;
}
static void lose_a_line(broken_rig *f) { f->base.slab->cards.used_lines++; }
static void write_behind_the_last(broken_rig *f) {
  atomic_store(&vmp_card_at(&f->base.slab->cards, f->three->line)->words[8], 8);
}
static void write_to_a_free_card(broken_rig *f) {
  uint32_t line = vmp_card_take(&f->base.slab->cards, 9);
  vmp_card_give(&f->base.slab->cards, line, 9);
  atomic_store(&vmp_card_at(&f->base.slab->cards, line)->words[3], 8);
}
static void miscount_free_cards(broken_rig *f) {
  f->base.slab->cards.num_free[2]++;
  f->base.slab->cards.free_lines += 2;
  f->base.slab->cards.used_lines += 2;
}
static void miscount_free_lines(broken_rig *f) { f->base.slab->cards.free_lines++; }
static void object_in_two_groups(broken_rig *f) {
  f->five->groups[VMP_GROUP_CLEAN].bits |= f->five->groups[VMP_GROUP_FIRST].bits;
}
static void object_beyond_the_last(broken_rig *f) { f->three->groups[VMP_GROUP_CLEAN].bits |= 1 << 8; }
static void lose_a_fence(broken_rig *f) { f->five->groups[VMP_GROUP_OTHERS].fence = VMP_FENCE_NONE; }
static void wrong_class(broken_rig *f) { f->three->class_index--; }
static void wrong_state(broken_rig *f) { f->three->state = VMP_SPAN_ARRIVING; }
static void shift_a_span(broken_rig *f) { f->three->offset += 512; }
static void wrong_record(broken_rig *f) { f->three->record = f->five->record; }
static void no_record(broken_rig *f) { f->three->record = 0; }
static void cut_a_back_link(broken_rig *f) { f->class->lists[0]->next->prev = NULL; }
static void close_a_circle(broken_rig *f) { f->class->lists[0]->next->next = f->class->lists[0]; }
static void close_a_small_circle(broken_rig *f) { f->three->next = f->three; }
static void lose_a_mark(broken_rig *f) { f->class->nonempty &= ~(UINT64_C(1) << 2); }
static void mark_an_empty_list(broken_rig *f) { f->class->nonempty |= UINT64_C(1) << 6; }
static void mark_beyond_the_lists(broken_rig *f) { f->class->nonempty |= UINT64_C(1) << 8; }
static void miscount_spans(broken_rig *f) { f->class->num_spans++; }
static void miscount_objects(broken_rig *f) { f->class->num_used--; }
static void miscount_arriving(broken_rig *f) { f->class->num_arriving++; }
static void lose_a_span(broken_rig *f) {
  vmp_span_unlist(f->class, f->five);
  f->class->num_spans--;
  f->class->num_used -= 3;
}
static void keep_two_empty_spans(broken_rig *f) {
  vmp_span *spans[] = {f->full, f->other_full};
  for (size_t i = 0; i < 2; i++) {
    vmp_span_unlist(f->class, spans[i]);
    spans[i]->num_free = 8;
    spans[i]->groups[VMP_GROUP_CLEAN].bits = 0xff;
    vmp_span_list(f->class, spans[i]);
  }
  f->class->num_used -= 16;
}
static void break_the_record_list(broken_rig *f) {
  f->base.slab->spans.touched++;  // one more unused record than are in the list of unused ones
}

typedef struct corruption {
  const char *name;
  void (*make)(broken_rig *f);
  const char *sentence;
} corruption;

static const corruption corruptions[] = {
    {"CountOneFreeMore", count_one_free_more, "is listed with 3 free objects, counts 4 and has 3"},
    {"LoseAFreeObject", lose_a_free_object, "is listed with 3 free objects, counts 3 and has 2"},
    {"FreeAUsedObject", free_a_used_object, "is listed with 0 free objects, counts 0 and has 1"},
    {"MoveToAWrongList", move_to_a_wrong_list, "is listed with 2 free objects, counts 3 and has 3"},
    {"ListASpanTwice", list_a_span_twice, "is listed with 2 free objects, counts 3 and has 3"},
    {"SwapCards", swap_cards, "and its card don't belong together"},
    {"WrongClassOnACard", wrong_class_on_a_card, "and its card don't belong together"},
    {"LoseACard", lose_a_card, "cards are in use for"},
    {"NoCard", no_card, "and its card don't belong together"},
    {"WriteToNobodysCard", write_to_nobodys_card, "nobody's card was written to"},
    {"WriteBehindTheLast", write_behind_the_last, "a word behind that of its last object"},
    {"LoseALine", lose_a_line, "cards have"},
    {"WriteToAFreeCard", write_to_a_free_card, "a free card of 1 lines is still in use"},
    {"MiscountFreeCards", miscount_free_cards, "free cards of 2 lines are listed"},
    {"MiscountFreeLines", miscount_free_lines, "cards have"},
    {"ObjectInTwoGroups", object_in_two_groups, "in two groups"},
    {"ObjectBeyondTheLast", object_beyond_the_last, "free objects beyond its 8"},
    {"LoseAFence", lose_a_fence, "that nobody freed"},
    {"WrongClass", wrong_class, "is listed in class 39 but says class 38"},
    {"WrongState", wrong_state, "is listed but in state 1"},
    {"ShiftASpan", shift_a_span, "is not aligned to 524288"},
    {"WrongRecord", wrong_record, "which is another"},
    {"NoRecord", no_record, "says it is record 0"},
    {"CutABackLink", cut_a_back_link, "the link to the span before it is wrong"},
    {"CloseACircle", close_a_circle, "the list for 0 free objects is cyclic"},
    {"CloseASmallCircle", close_a_small_circle, "the list for 3 free objects is cyclic"},
    {"LoseAMark", lose_a_mark, "the mark of the list for 3 free objects is wrong"},
    {"MarkAnEmptyList", mark_an_empty_list, "the mark of the list for 7 free objects is wrong"},
    {"MarkBeyondTheLists", mark_beyond_the_lists, "marks lists beyond 8 free objects"},
    {"MiscountSpans", miscount_spans, "counts 5 spans and has 4"},
    {"MiscountObjects", miscount_objects, "counts 23 used objects and has 24"},
    {"MiscountArriving", miscount_arriving, "4 records are in use for 4 listed and 1 arriving spans"},
    {"LoseASpan", lose_a_span, "4 records are in use for 3 listed and 0 arriving spans"},
    {"KeepTwoEmptySpans", keep_two_empty_spans, "keeps 2 empty spans; one may stay"},
    {"BreakTheRecordList", break_the_record_list, "slab: spans: the free list"},
};

static const char *corruption_name(const corruption *p) { return p->name; }

VTEST_FP(SlabCheck, NamesOneFaultFor, broken_rig, corruption, corruptions, corruption_name) {
  p->make(f);
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VEXPECT_UINT_EQ(vmp_slab_check(f->base.slab, &report), 1);
  VEXPECT_ONE_FAULT(&faults, p->sentence);
}

VTEST_F(SlabCheck, ReportsAllFaults, broken_rig) {
  count_one_free_more(f);
  lose_a_fence(f);
  cut_a_back_link(f);
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VEXPECT_UINT_EQ(vmp_slab_check(f->base.slab, &report), 3);
  VEXPECT_A_FAULT(&faults, "counts 4 and has 3");
  VEXPECT_A_FAULT(&faults, "that nobody freed");
  VEXPECT_A_FAULT(&faults, "the link to the span before it");
}
