// slab.h: small objects of fixed sizes, cut from spans.
//
// Owns: size classes, spans, which objects of a span are used and who may still touch the free ones. Does not own
// addresses or mapping: a span is a block of mid, claimed by mid. All bookkeeping is in host memory, one record a span.
//
//     span (mid block)   | object | object | object | object | ... | rest |
//     free, by fence     |  used  | clean  |  {s,7} |  {t,9} |
//
// Size classes: the default table, 8 to a doubling (pool/sizeclass.h), and beside it classes given by the user, larger
// than a granule too: fixed blocks. Where both could serve a request, the user's do. Shapes of spans: pool/sizeclass.h.
// Most-full span first, so that spans empty out. An empty span goes back to the supply at once, except that one per
// class stays until vmp_slab_trim (where there are bundles, as many as one has); of a user's class as many stay as an
// eighth of its used objects: a free queue, so that blocks come and go without mid.
//
// Once slab has marks, a class that has many spans takes them by bundles: as many as fill an aligned 2 MiB, with cards
// one behind the other, so that whoever looks for an object needs one entry for all of them. Each of its spans comes
// and goes like any other then; the first that goes ends the bundle.
//
// The user's classes may be exchanged while objects are live (vmp_slab_adopt): a class that isn't wanted any more takes
// no new object, and each of its spans goes back when its last object is freed.
//
// Streams: free objects of a span are kept in up to three groups: clean ones (never used since the span came, or known
// complete), those freed by one set of streams, those freed by others. A request takes, in this order:
//   1. an object that its stream may use without waiting, from the fullest of a bounded number of spans;
//   2. an object of a new span, with the request's effort;
//   3. an object that it has to wait for, the one whose work is the oldest.
// So a caller that prefers a wait to new memory passes VMP_EFFORT_MAPPED, and one that doesn't VMP_EFFORT_NORMAL.
//
// Invariants
//   - used objects + free objects = objects of the span; a span is in exactly one list of its class, the one for
//     its number of free objects.
//   - `after` of an object covers every free of it that isn't complete, seen from the request's stream.
//   - free allocates nothing and can't fail but for misuse: double, interior and foreign frees change nothing.
//
// Threads: the caller holds the pool's lock. Only vmp_slab_alloc may let go of it, inside of the supply's take and
// take_bundle; all other functions may run meanwhile.
#ifndef VMPOOL_POOL_SLAB_H_
#define VMPOOL_POOL_SLAB_H_

#include <stdatomic.h>

#include "pool/buddy.h"
#include "pool/slab_card.h"
#include "vmm/backing_ops.h"
#include "vmm/error.h"

typedef struct vmp_slab vmp_slab;
typedef struct vmp_span vmp_span;

// vmp_slab_word: where the caller's word of an object is, in the card of its span. 64 bits of objects that are larger
// than VMP_SLAB_NARROW_BYTES, which are never published: under the lock only; else 32, and `high` is NULL.
//
// What a word means is the caller's, but for this: 0 is no word, and one whose low byte is VMP_SLAB_PLAIN is plain.
// Once slab has marks (vmp_slab_marks_start), a plain word of a published span counts only while its mark is set:
// whoever clears the mark has taken the word, and may leave it where it is for a while.
#define VMP_SLAB_NARROW_BYTES (UINT64_C(64) << 10)
#define VMP_SLAB_MAX_NUMBER 254u  // classes of higher numbers aren't told apart by cards, nor published
#define VMP_SLAB_PLAIN 8u
#define VMP_SLAB_BUNDLE_BYTES (UINT64_C(2) << 20)
typedef struct vmp_slab_word {
  _Atomic uint32_t *low, *high;
  vmp_card_mark mark;
  uint64_t most_slack;  // see vmp_slab_shape
} vmp_slab_word;

static inline bool vmp_slab_word_is_plain(uint64_t word) { return (uint8_t)word == VMP_SLAB_PLAIN; }
static inline uint64_t vmp_slab_word_high(vmp_slab_word at) {
  return at.high == NULL ? 0 : (uint64_t)atomic_load_explicit(at.high, memory_order_relaxed) << 32;
}
static inline uint64_t vmp_slab_word_get(vmp_slab_word at) {
  bool counts = at.mark.word == NULL || vmp_card_mark_get(at.mark);
  uint64_t word = atomic_load_explicit(at.low, memory_order_acquire) | vmp_slab_word_high(at);
  return counts || !vmp_slab_word_is_plain(word) ? word : 0;
}
// vmp_slab_word_set: of an object whose word doesn't count.
static inline void vmp_slab_word_set(vmp_slab_word at, uint64_t word) {
  if (at.high != NULL) atomic_store_explicit(at.high, (uint32_t)(word >> 32), memory_order_relaxed);
  atomic_store_explicit(at.low, (uint32_t)word, memory_order_release);
  if (at.mark.word != NULL && vmp_slab_word_is_plain(word)) vmp_card_mark_set(at.mark, false);
}
// vmp_slab_word_claim: the word counts, and no hit can take it any more: its mark is cleared, or it has none.
static inline bool vmp_slab_word_claim(vmp_slab_word at) {
  // A hit may set the mark between two looks at it: then it is cleared after all.
  while (!vmp_card_mark_clear(at.mark, false)) {
    uint32_t word = atomic_load_explicit(at.low, memory_order_acquire);
    if (!vmp_slab_word_is_plain(word)) return word != 0;  // only who has the lock changes such a one
    if (!vmp_card_mark_get(at.mark)) return false;
  }
  return true;
}
// vmp_slab_word_take makes it 0 and returns what it was.
static inline uint64_t vmp_slab_word_take(vmp_slab_word at) {
  if (at.mark.word != NULL && !vmp_slab_word_claim(at)) return 0;
  uint64_t word = atomic_exchange_explicit(at.low, 0, memory_order_acq_rel) | vmp_slab_word_high(at);
  if (at.high != NULL) atomic_store_explicit(at.high, 0, memory_order_relaxed);
  return word;
}
// vmp_slab_word_change sets and clears bits of one that isn't 0. False: it is. A word with a mark doesn't count in the
// meantime, for those that don't hold the lock.
bool vmp_slab_word_change(vmp_slab_word at, uint64_t set, uint64_t clear);

// vmp_slab_supply: where spans come from (mid, or a fake).
typedef struct vmp_slab_supply {
  void *self;
  // take places and claims a block and keeps `owner` with it; may let go of the lock. Sets every field of
  // *out_placed: its `fence` is what the span's objects begin with. After a failure nothing has changed.
  vmp_status (*take)(void *self, const vmp_request *request, vmp_span *owner, vmp_placed *out_placed);
  // give takes a block back; the owner is gone. Can't fail, keeps the lock, allocates nothing.
  void (*give)(void *self, uint64_t offset, vmp_fence fence);
  // publish makes the card (at `line`) of a span of narrow objects that has got its place known to whoever looks for
  // objects without the lock, and returns the span's address; 0: it doesn't. withdraw, before a published span is given
  // back, forgets it. Both keep the lock, and may be NULL.
  uint64_t (*publish)(void *self, uint32_t line, uint64_t offset, uint64_t bytes);
  void (*withdraw)(void *self, uint64_t address, uint64_t bytes);
  // For bundles, once vmp_slab_take_bundles was called. take_bundle is take for the block that several spans will be.
  // divide makes blocks of `each_bytes` of the block at `offset`, one for each owner. False: nothing has changed.
  // publish_bundle says that they all are published, and that their cards, of `lines` lines each, lie one behind the
  // other. The last two keep the lock.
  vmp_status (*take_bundle)(void *self, const vmp_request *request, vmp_span *owner, vmp_placed *out_placed);
  bool (*divide)(void *self, uint64_t offset, uint64_t each_bytes, vmp_span *const *owners);
  void (*publish_bundle)(void *self, uint64_t address, uint64_t each_bytes, uint32_t line, uint32_t lines);
} vmp_slab_supply;

typedef struct vmp_slab_options {
  uint64_t max_object_bytes;    // the default table serves requests up to this; a multiple of 512, at most
                                // VMP_CLASS_MAX_BYTES; 0: none
  uint64_t granule_bytes;       // a power of two; a span is at most this, unless its class is larger
  uint64_t random_seed;         // 0: lowest object first; else objects are handed out in seeded random order
  const uint64_t *class_bytes;  // the user's classes in rising order (multiples of 512), or NULL; copied
  size_t num_classes;
  uint64_t class_from_bytes;  // smaller requests aren't the user's classes'; 0: all up to the largest are
  size_t max_user_classes;    // how many may exist at a time, draining ones included; 0: num_classes. At most 1024
} vmp_slab_options;

// vmp_slab_create makes a slab without spans. `ops` (of which known_complete and others are used) and `supply` are
// copied. VMP_ERROR_INVALID_VALUE, VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_slab_create(vmp_slab **out_slab, const vmp_backing_ops *ops, const vmp_slab_supply *supply,
                           const vmp_slab_options *options);
// vmp_slab_destroy frees the bookkeeping only; spans are not given back. NULL is fine.
void vmp_slab_destroy(vmp_slab *slab);

// vmp_slab_adopt replaces the user's classes, as the options describe them; *class_bytes is copied, none of 0 classes.
// Objects that are live stay as they are. VMP_ERROR_INVALID_VALUE, VMP_ERROR_HOST_OUT_OF_MEMORY, VMP_ERROR_BUSY (too
// many earlier classes still have objects); then nothing has changed.
vmp_status vmp_slab_adopt(vmp_slab *slab, const uint64_t *class_bytes, size_t num_classes, uint64_t class_from_bytes);

// vmp_slab_adoptions counts them. A request that was routed at another count may name a class that is no more. May be
// called without the lock.
uint64_t vmp_slab_adoptions(const vmp_slab *slab);

// vmp_slab_class_bytes: the object size that serves a request (0 bytes count as 1), or 0 when it is not slab's: too
// large, or an alignment (a power of two) that no class keeps. May be called without the lock: while another thread
// adopts classes, the answer is one of before, of after, or 0.
uint64_t vmp_slab_class_bytes(const vmp_slab *slab, uint64_t bytes, uint64_t alignment);

// vmp_slab_alloc hands out an object, in the order given above. An object with `after` that the stream was never
// ordered behind must be freed with a fence that covers it. VMP_ERROR_INVALID_VALUE (vmp_slab_class_bytes is 0; after
// an adoption, which may be why, it is VMP_ERROR_BUSY); where no object is free at all: what the supply returned, or
// VMP_ERROR_HOST_OUT_OF_MEMORY. MAY UNLOCK.
vmp_status vmp_slab_alloc(vmp_slab *slab, const vmp_request *request, vmp_placed *out_placed);

// vmp_slab_free takes an object back. `span` is the owner of the supply's block that holds `offset`; `fence` says who
// may still touch the object (VMP_FENCE_NONE: nobody). *out_bytes: object size. VMP_ERROR_NOT_A_BLOCK (interior
// address, the rest of the span, a span that is still on its way), VMP_ERROR_DOUBLE_FREE (the object is free).
vmp_status vmp_slab_free(vmp_slab *slab, vmp_span *span, uint64_t offset, vmp_fence fence, uint64_t *out_bytes);

// vmp_slab_find: the used object of `span` that holds `offset` (which may be inside it). False: free, or no object.
bool vmp_slab_find(const vmp_slab *slab, const vmp_span *span, uint64_t offset, uint64_t *out_start,
                   uint64_t *out_bytes);

// vmp_slab_word_of finds the word of the object that starts at `offset`, used or free. False: no object starts there,
// or the span is still on its way.
bool vmp_slab_word_of(const vmp_slab *slab, const vmp_span *span, uint64_t offset, vmp_slab_word *out_word);

// vmp_slab_cards: where line 0 of the cards is. It stays there.
const unsigned char *vmp_slab_cards(const vmp_slab *slab);

// vmp_slab_wants_marks: there are none, and so many words that it would be worth while. vmp_slab_marks_start makes
// them, none of them set: the caller sets those of plain words of published spans before anybody looks for one. False:
// no host memory, and nothing has changed. vmp_slab_marks: where they are, for good; NULL: there are none.
bool vmp_slab_wants_marks(const vmp_slab *slab);
bool vmp_slab_marks_start(vmp_slab *slab);
_Atomic uint64_t *vmp_slab_marks(const vmp_slab *slab);

// vmp_slab_take_bundles has classes with many spans take them by bundles from then on. The supply has all functions for
// them, and slab has marks.
void vmp_slab_take_bundles(vmp_slab *slab);

// vmp_slab_shape: what objects of a class are like. Stays while the class has objects.
typedef struct vmp_slab_shape {
  uint64_t bytes;
  uint64_t reciprocal;   // of bytes, for vmp_class_quotient
  uint32_t num_objects;  // of a span
  uint64_t span_bytes;
  uint64_t most_slack;  // what a request of the class leaves over of the bytes at most, unless it was aligned
} vmp_slab_shape;
size_t vmp_slab_max_classes(const vmp_slab *slab);  // indices are below this
vmp_slab_shape vmp_slab_shape_of(const vmp_slab *slab, size_t class_index);
// vmp_slab_class_index: the class that serves bytes (at least 1) aligned to 512; SIZE_MAX: none.
size_t vmp_slab_class_index(const vmp_slab *slab, uint64_t bytes);

// vmp_slab_object: one object, as thread caches keep it.
typedef struct vmp_slab_object {
  uint64_t address;        // of the span + index * bytes
  _Atomic uint32_t *word;  // its word in the card
} vmp_slab_object;

// vmp_slab_take_ready hands out up to `max` objects of a class that `stream` may use at once, of published spans that
// are there already, the fullest first; returns how many. Each counts as used. Keeps the lock, allocates nothing.
uint32_t vmp_slab_take_ready(vmp_slab *slab, size_t class_index, vmp_stream_index stream, uint32_t max,
                             vmp_slab_object *out_objects);
// vmp_slab_put_back takes an object of a published span back: a used one, whose word is 0 and has no mark. Can't fail.
void vmp_slab_put_back(vmp_slab *slab, vmp_card *card, uint32_t index, vmp_fence fence);
// vmp_slab_expect_back asks for the cache lines of its span, where several are put back one after the other.
void vmp_slab_expect_back(const vmp_slab *slab, const vmp_card *card);

// vmp_slab_seal(slab, span, true) keeps a span from handing out objects; it goes back once it is empty, which may be at
// once. (slab, span, false) undoes that.
void vmp_slab_seal(vmp_slab *slab, vmp_span *span, bool seal);

// vmp_slab_trim gives all empty spans back and returns how many bytes that were.
uint64_t vmp_slab_trim(vmp_slab *slab);

typedef struct vmp_slab_stats {
  uint64_t spans, span_bytes, empty_spans;  // span_bytes = object_bytes + free_object_bytes + rest_bytes
  uint64_t objects, object_bytes;           // used
  uint64_t free_object_bytes, rest_bytes;
  uint64_t metadata_bytes;  // host memory
} vmp_slab_stats;
void vmp_slab_get_stats(const vmp_slab *slab, vmp_slab_stats *out);

// vmp_slab_class_info: one class, for snapshots and reports.
typedef struct vmp_slab_class_info {
  uint64_t object_bytes, span_bytes, spans, objects;  // objects: used
  bool user, draining;                                // given by the user; and not wanted any more
} vmp_slab_class_info;
// vmp_slab_get_class: class `index`, from 0; false when there are fewer. Indices are stable while a class has spans.
bool vmp_slab_get_class(const vmp_slab *slab, size_t index, vmp_slab_class_info *out);
// vmp_slab_span_class: the index of a span's class.
size_t vmp_slab_span_class(const vmp_span *span);

// vmp_slab_walk sees every span ("span", with the merged fence of its free objects): class by class, the fullest
// first; not in address order.
void vmp_slab_walk(const vmp_slab *slab, vmp_walk_fn fn, void *context);
// vmp_slab_walk_span sees the parts of one span in address order: "object" (used), "free object" with its fence, and
// "rest". A span that is still on its way has none.
void vmp_slab_walk_span(const vmp_slab *slab, const vmp_span *span, vmp_walk_fn fn, void *context);

// vmp_slab_walk_published sees every span that is published, with its address and where its card is.
typedef void (*vmp_slab_published_fn)(void *context, uint64_t offset, uint64_t address, uint64_t bytes, uint32_t line);
void vmp_slab_walk_published(const vmp_slab *slab, vmp_slab_published_fn fn, void *context);

// vmp_slab_check reports every broken invariant and returns their number. O(spans).
size_t vmp_slab_check(const vmp_slab *slab, vmp_report *report);

#endif  // VMPOOL_POOL_SLAB_H_
