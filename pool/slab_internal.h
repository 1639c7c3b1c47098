// slab_internal.h: what slab's files share, and what its tests break on purpose. See slab.h for what slab is.
//
//     slab.c        public functions: allocate, free, find, trim
//     slab_classes.c  create and destroy; which class serves a request, adopting others
//     slab_span.c   spans: their groups of free objects, taking them from the supply, also by bundles, and giving them back
//     slab_card.c   the memory of cards
//     slab_check.c  all invariants, statistics, walks
//
//     class   lists[0]          full spans
//             lists[1]          spans with one free object: looked at first
//             ...
//             lists[objects]    empty spans: at most one, or what a bundle brought, or what a user's class keeps
//             lists[objects+1]  sealed spans, with any number of free objects
//
//     span    groups[CLEAN]     {bits of objects, fence of when the span came}
//             groups[FIRST]     {bits, fence}   freed by one set of streams
//             groups[OTHERS]    {bits, fence}   freed by others, merged
#ifndef VMPOOL_POOL_SLAB_INTERNAL_H_
#define VMPOOL_POOL_SLAB_INTERNAL_H_

#include <stdatomic.h>

#include "pool/sizeclass.h"
#include "pool/slab.h"
#include "vmm/node_pool.h"

#define VMP_SLAB_MAX_CLASSES 1024u
#define VMP_SLAB_MARKS_FROM_LINES 8192u  // cards of fewer (512 KiB) lie as near as marks do
#define VMP_SLAB_BUNDLES_FROM 8u  // a class takes bundles once it has as many spans: what is taken ahead is little then
#define VMP_SLAB_LOOK_SPANS 16u  // spans that one allocation looks at, at most, per kind of object

typedef enum vmp_group_index {
  VMP_GROUP_CLEAN = 0,  // not used since the span came, or known complete; `fence` is what the memory came with
  VMP_GROUP_FIRST = 1,
  VMP_GROUP_OTHERS = 2,
  VMP_GROUPS = 3,
} vmp_group_index;

// vmp_span_group: free objects and who may still touch them. The fence means nothing while there are no bits.
typedef struct vmp_span_group {
  uint64_t bits;
  vmp_fence fence;
} vmp_span_group;

typedef enum vmp_span_state {
  VMP_SPAN_ARRIVING = 1,  // the supply is looking for its place, perhaps without the lock: in no list
  VMP_SPAN_LISTED = 2,
  VMP_SPAN_SEALED = 3,  // in the list of these: hands out nothing, and goes back once it is empty
} vmp_span_state;

struct vmp_span {
  vmp_span *next, *prev;  // in its list
  uint64_t offset;
  uint32_t record;  // its index in the node pool
  uint16_t class_index;
  uint8_t num_free;
  uint8_t state;  // vmp_span_state
  vmp_span_group groups[VMP_GROUPS];
  uint64_t address;  // 0: it isn't published
  uint32_t line;     // of its card
  uint32_t unused;
};

_Static_assert(sizeof(struct vmp_span) == 120, "a record has no hidden padding");
_Static_assert(VMP_CARD_MAX_WORDS > 2 * VMP_SPAN_MAX_OBJECTS, "wide objects have two words each");
_Static_assert(VMP_SPAN_MAX_OBJECTS <= 64, "the free objects of a span are one word");
_Static_assert(VMP_SLAB_MAX_CLASSES <= UINT16_MAX, "class_index holds every class");

typedef struct vmp_slab_class {
  uint64_t bytes;
  uint64_t reciprocal;        // of bytes
  uint64_t object_alignment;  // every object's
  vmp_span_shape span;
  uint64_t nonempty;  // bit f - 1: lists[f] isn't empty (full spans have no bit)
  vmp_span **lists;   // by number of free objects, and one for the sealed: num_objects + 2 of them
  uint64_t num_spans, num_used;
  uint32_t num_arriving;  // spans on their way
  uint8_t kind;           // vmp_class_kind
  uint64_t bundle_from;   // after a bundle that couldn't be had: how many spans there must be before the next is tried
} vmp_slab_class;

typedef enum vmp_class_kind {
  VMP_CLASS_DEFAULT = 0,
  VMP_CLASS_USER = 1,
  VMP_CLASS_DRAINING = 2,  // was the user's: serves no request
} vmp_class_kind;

// vmp_class_table: the user's classes in rising order, as requests are routed by them. Read without the lock, too;
// written under it. The values are independent of each other: a reader that mixes two tables finds a class that was or
// is, or none.
typedef struct vmp_class_row {
  _Atomic uint64_t bytes, alignment;
  uint32_t index;  // in vmp_slab's classes; under the lock
} vmp_class_row;

typedef struct vmp_class_table {
  _Atomic uint64_t from_bytes, span_bytes;  // requests of from_bytes .. from_bytes + span_bytes are theirs
  _Atomic uint32_t count;
  vmp_class_row *rows;  // max_user of them
} vmp_class_table;

struct vmp_slab {
  vmp_backing_ops ops;
  vmp_slab_supply supply;
  uint64_t max_object_bytes, granule_bytes;
  bool random;
  uint64_t random_state;  // splitmix64
  size_t num_classes;     // the default table's, then the user's and draining ones
  size_t num_default;
  size_t max_user;
  vmp_slab_class *classes;  // num_default + max_user, which never move
  vmp_class_table user;
  vmp_span **lists;            // of all default classes; others have their own
  uint64_t num_lists;          // of all classes
  _Atomic uint64_t adoptions;  // of other classes; read without the lock, too
  vmp_node_pool spans;         // of struct vmp_span
  vmp_card_store cards;
  bool takes_bundles;
  uint32_t marks_from_lines, bundles_from;  // VMP_SLAB_MARKS_FROM_LINES, VMP_SLAB_BUNDLES_FROM; tests have others
};

// vmp_class_number: what cards and entries of the span map say of a class; 0: it is beyond what they tell apart.
static inline uint32_t vmp_class_number(const vmp_slab *slab, const vmp_slab_class *class) {
  size_t number = (size_t)(class - slab->classes) + 1;
  return number > VMP_SLAB_MAX_NUMBER ? 0 : (uint32_t)number;
}

// vmp_class_is_narrow: whether 32 bits are enough for a word of its objects; else they have two of a card's words each.
static inline bool vmp_class_is_narrow(const vmp_slab_class *class) { return class->bytes <= VMP_SLAB_NARROW_BYTES; }
// One word more than there are objects stays 0: who looks without the lock for what lies in a span's rest finds it.
static inline uint32_t vmp_class_card_words(const vmp_slab_class *class) {
  return (class->span.num_objects << !vmp_class_is_narrow(class)) + 1;
}

// vmp_class_most_slack: see vmp_slab_shape. Smaller requests are the class's before; a user's class may have any before
// it.
static inline uint64_t vmp_class_most_slack(const vmp_slab *slab, const vmp_slab_class *class) {
  size_t index = (size_t)(class - slab->classes);
  return class->bytes - 1 - (index == 0 || index >= slab->num_default ? 0 : vmp_class_bytes(index - 1));
}

// vmp_span_mark: of the word of an object; none where the span isn't published, or slab has no marks.
static inline vmp_card_mark vmp_span_mark(const vmp_slab *slab, const vmp_span *span, uint64_t index) {
  if (slab->cards.marks == NULL || span->address == 0) return (vmp_card_mark){NULL, 0};
  uint64_t word = ((uint64_t)span->line << VMP_CARD_LINE_WORDS_LOG2) + 1 + index;
  return vmp_card_mark_at(slab->cards.marks, vmp_card_mark_of(word));
}

// vmp_class_bundle_spans: how many spans a bundle of the class has; 0: there are none.
#define VMP_BUNDLE_MAX_SPANS (VMP_SLAB_BUNDLE_BYTES / VMP_SPAN_MIN_BYTES)
static inline uint32_t vmp_class_bundle_spans(const vmp_slab *slab, const vmp_slab_class *class) {
  if (!slab->takes_bundles || class->kind != VMP_CLASS_DEFAULT) return 0;
  if (vmp_class_number(slab, class) == 0 || !vmp_class_is_narrow(class)) return 0;
  if (!vmp_is_power_of_two(class->span.bytes) || class->span.bytes < VMP_SPAN_MIN_BYTES) return 0;
  if (class->span.bytes > VMP_SLAB_BUNDLE_BYTES / 2) return 0;
  return (uint32_t)(VMP_SLAB_BUNDLE_BYTES / class->span.bytes);
}

static inline uint64_t vmp_span_free_bits(const vmp_span *span) {
  return span->groups[VMP_GROUP_CLEAN].bits | span->groups[VMP_GROUP_FIRST].bits | span->groups[VMP_GROUP_OTHERS].bits;
}
static inline uint64_t vmp_span_all_bits(const vmp_slab_class *class) {
  return UINT64_MAX >> (VMP_SPAN_MAX_OBJECTS - class->span.num_objects);
}

// ---- steps of every allocation and free: inline ----

// vmp_span_list and vmp_span_unlist put a span into the list for its num_free (at its head), and take it out.
static inline unsigned vmp_span_list_of(const vmp_slab_class *class, const vmp_span *span) {
  return __builtin_expect(span->state == VMP_SPAN_SEALED, 0) ? class->span.num_objects + 1 : span->num_free;
}
static inline void vmp_span_list(vmp_slab_class *class, vmp_span *span) {
  unsigned number = vmp_span_list_of(class, span);
  vmp_span **head = &class->lists[number];
  vmp_span *next = *head;
  *head = span;
  span->prev = NULL;
  span->next = next;
  if (next != NULL) next->prev = span;
  if (number > 0 && number <= class->span.num_objects) class->nonempty |= UINT64_C(1) << (number - 1u);
}
static inline void vmp_span_unlist(vmp_slab_class *class, vmp_span *span) {
  vmp_span *next = span->next;
  vmp_span *prev = span->prev;
  if (next != NULL) next->prev = prev;
  if (prev != NULL) {
    prev->next = next;
    return;
  }
  unsigned number = vmp_span_list_of(class, span);
  class->lists[number] = next;
  if (next == NULL && number > 0 && number <= class->span.num_objects) {
    class->nonempty &= ~(UINT64_C(1) << (number - 1u));
  }
}

// vmp_span_settle makes the objects of a group clean if its fence is known complete: the group is free for another
// set of streams then.
void vmp_span_settle(const vmp_slab *slab, vmp_span *span, vmp_span_group *group);

static inline uint64_t vmp_group_ready_bits(const vmp_slab *slab, vmp_span *span, vmp_span_group *group,
                                            vmp_stream_index stream) {
  uint64_t bits = group->bits;
  if (bits == 0 || vmp_fence_is_none(group->fence)) return bits;
  if (!vmp_fence_is_none(slab->ops.others(slab->ops.self, group->fence, stream))) return 0;
  // The stream's own work is nothing to it, complete or not; for that of others it is worth to know.
  if ((group->fence.streams & ~(UINT64_C(1) << stream)) != 0) vmp_span_settle(slab, span, group);
  return bits;
}

// vmp_span_ready_bits: the free objects that `stream` may use without waiting. Objects whose fence turns out to be
// known complete become clean.
static inline uint64_t vmp_span_ready_bits(const vmp_slab *slab, vmp_span *span, vmp_stream_index stream) {
  // CLEAN first: the others may settle into it.
  uint64_t ready = vmp_group_ready_bits(slab, span, &span->groups[VMP_GROUP_CLEAN], stream);
  ready |= vmp_group_ready_bits(slab, span, &span->groups[VMP_GROUP_FIRST], stream);
  return ready | vmp_group_ready_bits(slab, span, &span->groups[VMP_GROUP_OTHERS], stream);
}

// vmp_span_use_some takes the free objects of `bits`, `count` of them, out of their groups.
static inline void vmp_span_use_some(vmp_slab_class *class, vmp_span *span, uint64_t bits, uint32_t count) {
  for (unsigned i = 0; i < VMP_GROUPS; i++) span->groups[i].bits &= ~bits;
  vmp_span_unlist(class, span);
  span->num_free = (uint8_t)(span->num_free - count);
  vmp_span_list(class, span);
  class->num_used += count;
}

// vmp_span_use takes the free object of `bit` out of its group and returns the group's fence.
static inline vmp_fence vmp_span_use(vmp_slab_class *class, vmp_span *span, uint64_t bit) {
  vmp_span_group *group = &span->groups[VMP_GROUP_FIRST];
  if ((group->bits & bit) == 0) group = &span->groups[VMP_GROUP_CLEAN];
  if ((group->bits & bit) == 0) group = &span->groups[VMP_GROUP_OTHERS];
  vmp_span_use_some(class, span, bit, 1);
  return group->fence;
}

// vmp_span_group_for: the group that takes an object with this fence at the least loss. FIRST isn't of the same
// streams.
vmp_span_group *vmp_span_group_for(const vmp_slab *slab, vmp_span *span, vmp_fence fence);

// vmp_span_put_back puts the used object of `bit` into the group that fits its fence best.
static inline void vmp_span_put_back(const vmp_slab *slab, vmp_slab_class *class, vmp_span *span, uint64_t bit,
                                     vmp_fence fence) {
  vmp_span_group *group = &span->groups[VMP_GROUP_FIRST];
  if (group->fence.streams != fence.streams || group->bits == 0) group = vmp_span_group_for(slab, span, fence);
  // A group without objects takes the fence over. A fence of none leaves that of other clean objects as it is: the
  // work of before the span came is over for this object, but not for its neighbours.
  group->fence = group->bits == 0 ? fence : vmp_fence_merge(group->fence, fence);
  group->bits |= bit;
  vmp_span_unlist(class, span);
  span->num_free++;
  vmp_span_list(class, span);
  class->num_used--;
}

// vmp_class_is_user: whether a request is the user's classes', as far as its size goes. One comparison, since the
// difference wraps.
static inline bool vmp_class_is_user(const vmp_slab *slab, uint64_t bytes) {
  return bytes - atomic_load_explicit(&slab->user.from_bytes, memory_order_relaxed) <=
         atomic_load_explicit(&slab->user.span_bytes, memory_order_relaxed);
}

// ---- slab_classes.c ----
// vmp_class_for: the class that serves a request, or NULL. The lock is held.
vmp_slab_class *vmp_class_for(const vmp_slab *slab, uint64_t bytes, uint64_t alignment);

static inline uint64_t vmp_class_free_objects(const vmp_slab_class *class) {
  return class->num_spans * class->span.num_objects - class->num_used;
}

// vmp_class_keeps: whether a span of the class that has become empty may stay beside another one. Of a class that takes
// bundles as many as one has may, else the rest of a fresh one would go. Under the lock.
static inline bool vmp_class_keeps(const vmp_slab *slab, const vmp_slab_class *class) {
  uint64_t free_objects = vmp_class_free_objects(class);
  if (class->kind == VMP_CLASS_USER) return free_objects <= class->span.num_objects + class->num_used / 8;
  uint64_t bundle_spans = vmp_class_bundle_spans(slab, class);
  return class->num_spans >= slab->bundles_from * bundle_spans && free_objects <= bundle_spans * class->span.num_objects;
}

// ---- slab_span.c ----
// vmp_span_oldest_group: of the groups with objects, the one whose fence has the lowest sequence; NULL when it is full.
const vmp_span_group *vmp_span_oldest_group(const vmp_span *span);
// vmp_span_fence: who may still touch any free object of the span, without what is known complete.
vmp_fence vmp_span_fence(const vmp_slab *slab, const vmp_span *span);

// vmp_span_take gets a span of the request's class from the supply, all its objects clean, and lists it.
// VMP_ERROR_HOST_OUT_OF_MEMORY, whatever the supply returned. MAY UNLOCK.
vmp_status vmp_span_take(vmp_slab *slab, vmp_slab_class *class, const vmp_request *request, vmp_span **out_span,
                         vmp_fence *out_after);
// vmp_span_give gives an empty span back to the supply.
void vmp_span_give(vmp_slab *slab, vmp_slab_class *class, vmp_span *span);

#endif  // VMPOOL_POOL_SLAB_INTERNAL_H_
