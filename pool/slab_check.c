// slab_check.c: slab's invariants, its statistics and its walks. Changes nothing.
#include "pool/slab_internal.h"

// ---- check ----

static unsigned count_bits(uint64_t bits) { return (unsigned)__builtin_popcountll(bits); }

// The rules that hold within one span of the list for `list_free` free objects. Returns whether its number of free
// objects can be believed.
static bool check_span(const vmp_slab *slab, const vmp_slab_class *class, const vmp_span *span, unsigned list_free,
                       vmp_report *report) {
  unsigned long long offset = span->offset;
  size_t class_index = (size_t)(class - slab->classes);
  uint64_t all = vmp_span_all_bits(class);
  if (span->class_index != class_index) {
    vmp_report_fault(report, "slab: span 0x%llx is listed in class %zu but says class %u", offset, class_index,
                     span->class_index);
  }
  bool sealed = list_free > class->span.num_objects;
  if (span->state != (sealed ? VMP_SPAN_SEALED : VMP_SPAN_LISTED)) {
    vmp_report_fault(report, "slab: span 0x%llx is listed but in state %u", offset, span->state);
  }
  if ((span->offset & (class->span.alignment - 1)) != 0) {
    vmp_report_fault(report, "slab: span 0x%llx is not aligned to %llu", offset,
                     (unsigned long long)class->span.alignment);
  }
  uint32_t number = vmp_class_number(slab, class);
  if (span->record == 0 || span->record > slab->spans.touched || vmp_node_at(&slab->spans, span->record) != span) {
    vmp_report_fault(report, "slab: span 0x%llx says it is record %u, which is another", offset, span->record);
  } else if (span->line == 0 || span->line >= slab->cards.used_lines ||
             atomic_load(&vmp_card_at(&slab->cards, span->line)->head) != vmp_card_head(number, span->record)) {
    vmp_report_fault(report, "slab: span 0x%llx and its card don't belong together", offset);
  }
  const vmp_card *card = vmp_card_at(&slab->cards, span->line < slab->cards.used_lines ? span->line : 0);
  uint32_t words = vmp_class_card_words(class), any = 0;
  for (uint32_t i = words - 1; i < vmp_card_lines(words) * 16 - 1 && span->line != 0; i++) {
    any |= atomic_load(&card->words[i]);
  }
  if (any != 0) vmp_report_fault(report, "slab: span 0x%llx has a word behind that of its last object", offset);
  if (span->address != 0 && (number == 0 || !vmp_class_is_narrow(class))) {
    vmp_report_fault(report, "slab: span 0x%llx is published, and its words are not for others", offset);
  }
  uint64_t seen = 0;
  for (unsigned i = 0; i < VMP_GROUPS; i++) {
    const vmp_span_group *group = &span->groups[i];
    if ((group->bits & seen) != 0) {
      vmp_report_fault(report, "slab: span 0x%llx has objects in two groups of free ones", offset);
    }
    if ((group->bits & ~all) != 0) {
      vmp_report_fault(report, "slab: span 0x%llx has free objects beyond its %u", offset, class->span.num_objects);
    }
    if (i != VMP_GROUP_CLEAN && group->bits != 0 && vmp_fence_is_none(group->fence)) {
      vmp_report_fault(report, "slab: span 0x%llx has objects in group %u that nobody freed", offset, i);
    }
    seen |= group->bits & all;
  }
  if (sealed && span->num_free == class->span.num_objects) {
    vmp_report_fault(report, "slab: span 0x%llx is sealed and empty, and still there", offset);
  }
  if (sealed && count_bits(seen) == span->num_free) return true;
  if (span->num_free == list_free && count_bits(seen) == list_free) return true;
  vmp_report_fault(report, "slab: span 0x%llx is listed with %u free objects, counts %u and has %u", offset, list_free,
                   span->num_free, count_bits(seen));
  return false;
}

// check_marks: what is marked is a plain word of a used object of a published span.
static void check_marks(const vmp_slab *slab, const vmp_slab_class *class, const vmp_span *span, vmp_report *report) {
  if (slab->cards.marks == NULL || span->line >= slab->cards.used_lines) return;
  const vmp_card *card = vmp_card_at(&slab->cards, span->line);
  uint64_t first = (uint64_t)span->line << VMP_CARD_LINE_WORDS_LOG2, free_bits = vmp_span_free_bits(span);
  uint64_t count = (uint64_t)vmp_card_lines(vmp_class_card_words(class)) << VMP_CARD_LINE_WORDS_LOG2;
  unsigned strays = 0;
  for (uint64_t word = 0; word < count; word++) {
    if (!vmp_card_mark_get(vmp_card_mark_at(slab->cards.marks, vmp_card_mark_of(first + word)))) continue;
    uint64_t index = word - 1;  // wraps for the head
    strays += index >= class->span.num_objects || span->address == 0 || (free_bits >> index & 1) != 0 ||
              !vmp_slab_word_is_plain(atomic_load(&card->words[index]));
  }
  if (strays > 0) {
    vmp_report_fault(report, "slab: span 0x%llx has %u marks of what is not in use", (unsigned long long)span->offset,
                     strays);
  }
}

// Whether the list ends within as many spans as there are.
static bool list_ends(const vmp_slab *slab, const vmp_span *head) {
  uint64_t left = slab->spans.used;
  for (const vmp_span *span = head; span != NULL; span = span->next) {
    if (left-- == 0) return false;
  }
  return true;
}

typedef struct class_sums {
  uint64_t spans, used;
  bool spans_known, used_known;  // no broken list, no broken count was met
} class_sums;

static void check_list(const vmp_slab *slab, const vmp_slab_class *class, unsigned list_free, class_sums *sums,
                       vmp_report *report) {
  size_t class_index = (size_t)(class - slab->classes);
  const vmp_span *head = class->lists[list_free];
  if (list_free > 0 && list_free <= class->span.num_objects &&
      (class->nonempty >> (list_free - 1) & 1) != (head != NULL)) {
    vmp_report_fault(report, "slab: class %zu: the mark of the list for %u free objects is wrong", class_index,
                     list_free);
  }
  if (!list_ends(slab, head)) {
    vmp_report_fault(report, "slab: class %zu: the list for %u free objects is cyclic", class_index, list_free);
    sums->spans_known = sums->used_known = false;
    return;
  }
  const vmp_span *prev = NULL;
  uint64_t spans = 0;
  for (const vmp_span *span = head; span != NULL; prev = span, span = span->next) {
    if (span->prev != prev) {
      vmp_report_fault(report, "slab: span 0x%llx: the link to the span before it is wrong",
                       (unsigned long long)span->offset);
    }
    check_marks(slab, class, span, report);
    if (check_span(slab, class, span, list_free, report)) {
      sums->used += class->span.num_objects - span->num_free;
    } else {
      sums->used_known = false;
    }
    spans++;
  }
  if (list_free == class->span.num_objects && class->kind == VMP_CLASS_DEFAULT && spans > 1 &&
      vmp_class_bundle_spans(slab, class) == 0) {
    vmp_report_fault(report, "slab: class %zu keeps %llu empty spans; one may stay", class_index,
                     (unsigned long long)spans);
  }
  if (list_free == class->span.num_objects && class->kind == VMP_CLASS_DRAINING && spans > 0) {
    vmp_report_fault(report, "slab: class %zu is draining and keeps %llu empty spans", class_index,
                     (unsigned long long)spans);
  }
  sums->spans += spans;
}

// The table of the user's classes: rising, each row the class that it says, and every such class in one row.
static void check_table(const vmp_slab *slab, vmp_report *report) {
  uint64_t before = 0, user = 0, lists = 0;
  uint32_t count = atomic_load(&slab->user.count);
  for (uint32_t i = 0; i < count; i++) {
    const vmp_class_row *row = &slab->user.rows[i];
    uint64_t bytes = atomic_load(&row->bytes);
    if (bytes <= before) vmp_report_fault(report, "slab: row %u of the user's classes doesn't rise", i);
    before = bytes;
    if (row->index >= slab->num_classes || slab->classes[row->index].kind != VMP_CLASS_USER ||
        slab->classes[row->index].bytes != bytes) {
      vmp_report_fault(report, "slab: row %u of the user's classes is of class %u, which is another", i, row->index);
    }
  }
  for (size_t i = 0; i < slab->num_classes; i++) {
    const vmp_slab_class *class = &slab->classes[i];
    user += class->kind == VMP_CLASS_USER;
    lists += class->span.num_objects + 2;
    if ((class->kind == VMP_CLASS_DEFAULT) != (i < slab->num_default)) {
      vmp_report_fault(report, "slab: class %zu is of kind %u", i, class->kind);
    }
  }
  if (user != count) {
    vmp_report_fault(report, "slab: %llu classes are the user's, and %u have a row", (unsigned long long)user, count);
  }
  if (lists != slab->num_lists) {
    vmp_report_fault(report, "slab: the classes have %llu lists, and %llu are counted", (unsigned long long)lists,
                     (unsigned long long)slab->num_lists);
  }
}

// check_free_cards: the free cards of so many lines have no class and no words.
static void check_free_cards(const vmp_card_store *cards, uint32_t lines, vmp_report *report) {
  uint64_t listed = 0;
  for (uint32_t line = cards->free_cards[lines];
       line != 0 && line < cards->used_lines && listed <= cards->num_free[lines]; listed++) {
    const vmp_card *card = vmp_card_at(cards, line);
    uint32_t head = atomic_load(&card->head), any = vmp_card_number(head);
    for (uint32_t i = 0; i < lines * 16 - 1; i++) any |= atomic_load(&card->words[i]);
    if (any != 0 || vmp_card_is_marked(cards, line, lines))
      vmp_report_fault(report, "slab: a free card of %u lines is still in use", lines);
    line = vmp_card_record(head);
  }
  if (listed != cards->num_free[lines]) {
    vmp_report_fault(report, "slab: %llu free cards of %u lines are listed, %u counted", (unsigned long long)listed,
                     lines, cards->num_free[lines]);
  }
}

// Every card is a span's or free.
static void check_cards(const vmp_slab *slab, vmp_report *report) {
  const vmp_card_store *cards = &slab->cards;
  uint64_t used = 0, num_lines = 1, free_lines = 0;
  for (uint32_t lines = 1; lines <= VMP_CARD_MAX_LINES; lines++) {
    check_free_cards(cards, lines, report);
    used += cards->num_used[lines];
    free_lines += (uint64_t)lines * cards->num_free[lines];
    num_lines += (uint64_t)lines * (cards->num_used[lines] + (uint64_t)cards->num_free[lines]);
  }
  if (used != slab->spans.used) {
    vmp_report_fault(report, "slab: %llu cards are in use for %u spans", (unsigned long long)used, slab->spans.used);
  }
  if (num_lines != cards->used_lines || cards->used_lines > cards->num_lines || free_lines != cards->free_lines) {
    vmp_report_fault(report, "slab: cards have %llu lines of %u, %llu of them free, and %u and %u are counted",
                     (unsigned long long)num_lines, cards->num_lines, (unsigned long long)free_lines, cards->used_lines,
                     cards->free_lines);
  }
  if (atomic_load(&vmp_card_at(cards, 0)->head) != 0 || vmp_card_is_marked(cards, 0, 1))
    vmp_report_fault(report, "slab: nobody's card was written to");
}

size_t vmp_slab_check(const vmp_slab *slab, vmp_report *report) {
  size_t before = report->faults;
  uint64_t listed = 0;
  uint32_t arriving = 0;
  bool listed_known = true;
  for (size_t i = 0; i < slab->num_classes; i++) {
    const vmp_slab_class *class = &slab->classes[i];
    class_sums sums = {.spans_known = true, .used_known = true};
    for (unsigned f = 0; f <= class->span.num_objects + 1; f++) check_list(slab, class, f, &sums, report);
    if ((class->nonempty & ~vmp_span_all_bits(class)) != 0) {
      vmp_report_fault(report, "slab: class %zu marks lists beyond %u free objects", i, class->span.num_objects);
    }
    if (sums.spans_known && sums.spans != class->num_spans) {
      vmp_report_fault(report, "slab: class %zu counts %llu spans and has %llu", i,
                       (unsigned long long)class->num_spans, (unsigned long long)sums.spans);
    }
    if (sums.used_known && sums.used != class->num_used) {
      vmp_report_fault(report, "slab: class %zu counts %llu used objects and has %llu", i,
                       (unsigned long long)class->num_used, (unsigned long long)sums.used);
    }
    listed += sums.spans;
    arriving += class->num_arriving;
    listed_known = listed_known && sums.spans_known;
  }
  if (listed_known && listed + arriving != slab->spans.used) {
    vmp_report_fault(report, "slab: %u records are in use for %llu listed and %u arriving spans", slab->spans.used,
                     (unsigned long long)listed, arriving);
  }
  check_table(slab, report);
  vmp_node_pool_check(&slab->spans, "slab: spans", report);
  check_cards(slab, report);
  return report->faults - before;
}

// ---- statistics ----

void vmp_slab_get_stats(const vmp_slab *slab, vmp_slab_stats *out) {
  vmp_slab_stats stats = {0};
  for (size_t i = 0; i < slab->num_classes; i++) {
    const vmp_slab_class *class = &slab->classes[i];
    uint64_t objects_bytes = class->num_spans * class->span.num_objects * class->bytes;
    uint64_t span_bytes = class->num_spans * class->span.bytes;
    stats.spans += class->num_spans;
    stats.span_bytes += span_bytes;
    stats.objects += class->num_used;
    stats.object_bytes += class->num_used * class->bytes;
    stats.free_object_bytes += objects_bytes - class->num_used * class->bytes;
    stats.rest_bytes += span_bytes - objects_bytes;
    for (const vmp_span *span = class->lists[class->span.num_objects]; span != NULL; span = span->next)
      stats.empty_spans++;
  }
  stats.metadata_bytes = sizeof *slab + (slab->num_default + slab->max_user) * sizeof *slab->classes +
                         slab->max_user * sizeof *slab->user.rows + slab->num_lists * sizeof *slab->lists +
                         vmp_node_pool_bytes(&slab->spans) + vmp_card_store_bytes(&slab->cards);
  *out = stats;
}

bool vmp_slab_get_class(const vmp_slab *slab, size_t index, vmp_slab_class_info *out) {
  if (index >= slab->num_classes) return false;
  const vmp_slab_class *class = &slab->classes[index];
  *out = (vmp_slab_class_info){.object_bytes = class->bytes,
                               .span_bytes = class->span.bytes,
                               .spans = class->num_spans,
                               .objects = class->num_used,
                               .user = class->kind != VMP_CLASS_DEFAULT,
                               .draining = class->kind == VMP_CLASS_DRAINING};
  return true;
}

size_t vmp_slab_span_class(const vmp_span *span) { return span->class_index; }

// ---- walks ----

static vmp_fence merged_fence(const vmp_span *span) {
  vmp_fence merged = VMP_FENCE_NONE;
  for (unsigned i = 0; i < VMP_GROUPS; i++) {
    if (span->groups[i].bits != 0) merged = vmp_fence_merge(merged, span->groups[i].fence);
  }
  return merged;
}

void vmp_slab_walk(const vmp_slab *slab, vmp_walk_fn fn, void *context) {
  for (size_t i = 0; i < slab->num_classes; i++) {
    const vmp_slab_class *class = &slab->classes[i];
    for (unsigned f = 0; f <= class->span.num_objects + 1; f++) {
      for (const vmp_span *span = class->lists[f]; span != NULL; span = span->next) {
        fn(context, span->offset, class->span.bytes, "span", merged_fence(span));
      }
    }
  }
}

void vmp_slab_walk_published(const vmp_slab *slab, vmp_slab_published_fn fn, void *context) {
  for (size_t i = 0; i < slab->num_classes; i++) {
    const vmp_slab_class *class = &slab->classes[i];
    for (unsigned f = 0; f <= class->span.num_objects + 1; f++) {
      for (const vmp_span *span = class->lists[f]; span != NULL; span = span->next) {
        if (span->address != 0) fn(context, span->offset, span->address, class->span.bytes, span->line);
      }
    }
  }
}

void vmp_slab_walk_span(const vmp_slab *slab, const vmp_span *span, vmp_walk_fn fn, void *context) {
  if (span->state == VMP_SPAN_ARRIVING) return;
  const vmp_slab_class *class = &slab->classes[span->class_index];
  uint64_t offset = span->offset;
  for (unsigned index = 0; index < class->span.num_objects; index++) {
    const char *what = "object";
    vmp_fence fence = VMP_FENCE_NONE;
    for (unsigned i = 0; i < VMP_GROUPS; i++) {
      if ((span->groups[i].bits >> index & 1) == 0) continue;
      what = "free object";
      fence = span->groups[i].fence;
    }
    fn(context, offset, class->bytes, what, fence);
    offset += class->bytes;
  }
  uint64_t end = span->offset + class->span.bytes;
  if (offset < end) fn(context, offset, end - offset, "rest", VMP_FENCE_NONE);
}
