// mid_runs.c: the runs by size. Owns the trees over their first parts; see mid_internal.h for what a run is.
//
// A tree for each of 32 classes to a doubling, and a bitmap of the classes that aren't empty: most trees have a node or
// two. Each is a treap (Seidel and Aragon, "Randomized search trees", 1996) ordered by size, then offset; a priority is
// a hash of the part's index, so it needs no memory, and the same calls make the same tree.
//
// Not tree.h: a node there holds its key, which for a run of several parts has to be looked up in its last part.
#include "pool/mid_internal.h"

enum { SMALLER = 0, LARGER = 1 };

// A tree of 2^32 nodes is this deep with a probability that needn't be thought about; a deeper one is a cycle.
#define DEEPEST 1024u

typedef struct run_key {
  uint64_t size, offset;
} run_key;

static inline run_key key_of(const vmp_mid *mid, uint32_t head) {
  const vmp_mid_piece *part = vmp_mid_piece_at(mid, head);
  if (part->run_end == head) return (run_key){part->bytes, part->offset};
  return (run_key){vmp_mid_piece_end(vmp_mid_piece_at(mid, part->run_end)) - part->offset, part->offset};
}

static inline bool before(run_key a, run_key b) { return a.size != b.size ? a.size < b.size : a.offset < b.offset; }

// priority: a bijective mix of the index, so no two nodes are equal. The factor is 2^32 / the golden ratio.
static inline uint32_t priority(uint32_t index) {
  index *= 0x9e3779b1u;
  return index ^ (index >> 15);
}

static inline uint32_t *link_of(const vmp_mid *mid, uint32_t head, unsigned side) {
  return &vmp_mid_piece_at(mid, head)->links[side];
}

// ---- one tree ----
static void insert(const vmp_mid *mid, uint32_t *link, uint32_t head, run_key key) {
  uint32_t rank = priority(head);
  while (*link != 0 && priority(*link) > rank) link = link_of(mid, *link, before(key_of(mid, *link), key));
  // Everything below has a lower priority: split it into what comes before and after the new node.
  uint32_t rest = *link;
  uint32_t *less = link_of(mid, head, SMALLER), *more = link_of(mid, head, LARGER);
  *link = head;
  while (rest != 0) {
    if (before(key_of(mid, rest), key)) {
      *less = rest;
      less = link_of(mid, rest, LARGER);
      rest = *less;
    } else {
      *more = rest;
      more = link_of(mid, rest, SMALLER);
      rest = *more;
    }
  }
  *less = 0;
  *more = 0;
}

static void take_out(const vmp_mid *mid, uint32_t *link, uint32_t head, run_key key) {
  while (*link != head) link = link_of(mid, *link, before(key_of(mid, *link), key));
  uint32_t less = *link_of(mid, head, SMALLER), more = *link_of(mid, head, LARGER);
  while (less != 0 && more != 0) {
    if (priority(less) > priority(more)) {
      *link = less;
      link = link_of(mid, less, LARGER);
      less = *link;
    } else {
      *link = more;
      link = link_of(mid, more, SMALLER);
      more = *link;
    }
  }
  *link = less != 0 ? less : more;
}

// first_from: the first run of the tree that isn't before `key`, or 0.
static uint32_t first_from(const vmp_mid *mid, uint32_t root, run_key key) {
  uint32_t best = 0;
  while (root != 0) {
    bool is_before = before(key_of(mid, root), key);
    if (!is_before) best = root;
    root = *link_of(mid, root, is_before);
  }
  return best;
}

// last_before: the last run of the tree that is before `key`, or 0.
static uint32_t last_before(const vmp_mid *mid, uint32_t root, run_key key) {
  uint32_t best = 0;
  while (root != 0) {
    bool is_before = before(key_of(mid, root), key);
    if (is_before) best = root;
    root = *link_of(mid, root, is_before);
  }
  return best;
}

static uint32_t outermost(const vmp_mid *mid, uint32_t root, unsigned side) {
  for (uint32_t next; (next = *link_of(mid, root, side)) != 0;) root = next;
  return root;
}

// ---- changes ----
void vmp_mid_runs_enter(vmp_mid *mid, uint32_t head, uint32_t tail) {
  vmp_mid_runs *runs = &mid->runs;
  vmp_mid_piece *first = vmp_mid_piece_at(mid, head), *last = vmp_mid_piece_at(mid, tail);
  first->run_end = tail;
  last->run_end = head;
  run_key key = {vmp_mid_piece_end(last) - first->offset, first->offset};
  unsigned class = vmp_range_class(key.size);
  insert(mid, &runs->roots[class], head, key);
  runs->classes[class / 64] |= UINT64_C(1) << (class % 64);
  runs->words |= UINT64_C(1) << (class / 64);
  runs->count++;
  runs->bytes += key.size;
}

void vmp_mid_runs_leave(vmp_mid *mid, uint32_t head) {
  vmp_mid_runs *runs = &mid->runs;
  run_key key = key_of(mid, head);
  unsigned class = vmp_range_class(key.size);
  take_out(mid, &runs->roots[class], head, key);
  runs->count--;
  runs->bytes -= key.size;
  if (runs->roots[class] != 0) return;
  uint64_t *word = &runs->classes[class / 64];
  *word &= ~(UINT64_C(1) << (class % 64));
  if (*word == 0) runs->words &= ~(UINT64_C(1) << (class / 64));
}

// ---- queries ----
// class_from: the lowest class >= `class` that isn't empty, VMP_RANGE_CLASSES when there is none.
static unsigned class_from(const vmp_mid_runs *runs, unsigned class) {
  if (class >= VMP_RANGE_CLASSES) return VMP_RANGE_CLASSES;
  unsigned word = class / 64;
  uint64_t bits = runs->classes[word] & (UINT64_MAX << (class % 64));
  if (bits == 0) {
    uint64_t words = runs->words & (UINT64_MAX << word << 1);
    if (words == 0) return VMP_RANGE_CLASSES;
    word = vmp_lowest_bit(words);
    bits = runs->classes[word];
  }
  return word * 64 + vmp_lowest_bit(bits);
}

// class_below: the highest class < `class` that isn't empty, VMP_RANGE_CLASSES when there is none.
static unsigned class_below(const vmp_mid_runs *runs, unsigned class) {
  unsigned word = class / 64;
  uint64_t bits = word == VMP_RANGE_CLASSES / 64 ? 0 : runs->classes[word] & ~(UINT64_MAX << (class % 64));
  if (bits == 0) {
    uint64_t words = runs->words & ~(UINT64_MAX << word);
    if (words == 0) return VMP_RANGE_CLASSES;
    word = vmp_log2(words);
    bits = runs->classes[word];
  }
  return word * 64 + vmp_log2(bits);
}

static uint32_t at_least(const vmp_mid *mid, run_key key) {
  const vmp_mid_runs *runs = &mid->runs;
  unsigned class = vmp_range_class(key.size);
  uint32_t head = first_from(mid, runs->roots[class], key);
  if (head != 0) return head;
  class = class_from(runs, class + 1);
  return class == VMP_RANGE_CLASSES ? 0 : outermost(mid, runs->roots[class], SMALLER);
}

uint32_t vmp_mid_runs_fitting(const vmp_mid *mid, uint64_t bytes) { return at_least(mid, (run_key){bytes, 0}); }

uint32_t vmp_mid_runs_next_larger(const vmp_mid *mid, uint32_t head) {
  run_key key = key_of(mid, head);
  key.offset++;
  return at_least(mid, key);
}

uint32_t vmp_mid_runs_largest(const vmp_mid *mid) {
  unsigned class = class_below(&mid->runs, VMP_RANGE_CLASSES);
  return class == VMP_RANGE_CLASSES ? 0 : outermost(mid, mid->runs.roots[class], LARGER);
}

uint32_t vmp_mid_runs_next_smaller(const vmp_mid *mid, uint32_t head) {
  run_key key = key_of(mid, head);
  unsigned class = vmp_range_class(key.size);
  uint32_t smaller = last_before(mid, mid->runs.roots[class], key);
  if (smaller != 0) return smaller;
  class = class_below(&mid->runs, class);
  return class == VMP_RANGE_CLASSES ? 0 : outermost(mid, mid->runs.roots[class], LARGER);
}

// ---- check ----
typedef struct check_state {
  const vmp_mid *mid;
  vmp_report *report;
  unsigned class;
  uint64_t count;
  bool any;
  run_key last;
} check_state;

static void check_node(check_state *state, uint32_t head) {
  run_key key = key_of(state->mid, head);
  unsigned long long offset = (unsigned long long)key.offset;
  if (vmp_range_class(key.size) != state->class) {
    vmp_report_fault(state->report, "mid runs: the run at %#llx is in size class %u", offset, state->class);
  }
  if (state->any && !before(state->last, key)) {
    vmp_report_fault(state->report, "mid runs: the run at %#llx is out of order", offset);
  }
  state->any = true;
  state->last = key;
  state->count++;
}

// check_below visits a subtree in order. Recursion is bounded by DEEPEST, the count by the number of nodes. False: it
// can't be walked.
static bool check_below(check_state *state, uint32_t head, unsigned depth) {
  const vmp_mid *mid = state->mid;
  if (depth > DEEPEST || state->count > mid->pieces.touched) {
    vmp_report_fault(state->report, "mid runs: a tree has a cycle");
    return false;
  }
  for (unsigned side = SMALLER; side <= LARGER; side++) {
    uint32_t child = *link_of(mid, head, side);
    if (child > mid->pieces.touched || (child != 0 && !vmp_mid_is_head(mid, child))) {
      vmp_report_fault(state->report, "mid runs: a link leads to node %u, which begins no run", child);
      return false;
    }
    if (child != 0 && priority(child) > priority(head)) {
      vmp_report_fault(state->report, "mid runs: node %u stands above node %u of higher priority", head, child);
    }
    if (child != 0 && !check_below(state, child, depth + 1)) return false;
    if (side == SMALLER) check_node(state, head);
  }
  return true;
}

uint64_t vmp_mid_runs_check(const vmp_mid *mid, vmp_report *report) {
  const vmp_mid_runs *runs = &mid->runs;
  uint64_t count = 0;
  for (unsigned class = 0; class < VMP_RANGE_CLASSES; class ++) {
    uint32_t root = runs->roots[class];
    bool marked = (runs->classes[class / 64] >> (class % 64) & 1) != 0;
    bool word_marked = (runs->words >> (class / 64) & 1) != 0;
    if (marked != (root != 0) || (class % 64 == 0 && word_marked != (runs->classes[class / 64] != 0))) {
      vmp_report_fault(report, "mid runs: the bitmap is wrong about size class %u", class);
    }
    if (root == 0) continue;
    if (root > mid->pieces.touched || !vmp_mid_is_head(mid, root)) {
      vmp_report_fault(report, "mid runs: a link leads to node %u, which begins no run", root);
      continue;
    }
    check_state state = {.mid = mid, .report = report, .class = class};
    if (!check_below(&state, root, 0)) return count + state.count;
    count += state.count;
  }
  return count;
}
