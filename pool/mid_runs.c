// mid_runs.c: the runs by size. Owns the trees over their first parts; see mid_internal.h for what a run is.
//
// A bitmap of the classes that aren't empty, with a bitmap of its words. A class of one size is a list: what a best fit
// leaves over is small, there is a lot of it, and it comes and goes with every block. A class of several sizes is a
// tree, mostly of one node or two: a treap (Seidel and Aragon, "Randomized search trees", 1996) ordered by size, then
// offset; a priority is a hash of the part's index, so it needs no memory, and the same calls make the same tree.
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

// ---- one list ----
enum { PREVIOUS = 0, NEXT = 1 };

static void push(const vmp_mid *mid, uint32_t *first, uint32_t head) {
  uint32_t *links = vmp_mid_piece_at(mid, head)->links;
  links[PREVIOUS] = 0;
  links[NEXT] = *first;
  if (*first != 0) *link_of(mid, *first, PREVIOUS) = head;
  *first = head;
}

static void unlink_run(const vmp_mid *mid, uint32_t *first, uint32_t head) {
  const uint32_t *links = vmp_mid_piece_at(mid, head)->links;
  if (links[NEXT] != 0) *link_of(mid, links[NEXT], PREVIOUS) = links[PREVIOUS];
  if (links[PREVIOUS] != 0) {
    *link_of(mid, links[PREVIOUS], NEXT) = links[NEXT];
  } else {
    *first = links[NEXT];
  }
}

// ---- classes ----
// first_bit: the lowest set bit >= `from` of an array of words, 64 * words when there is none.
static inline unsigned first_bit(const uint64_t *bits, unsigned words, unsigned from) {
  unsigned word = from / 64;
  if (word >= words) return 64 * words;
  uint64_t left = bits[word] & (UINT64_MAX << (from % 64));
  while (left == 0 && ++word < words) left = bits[word];
  return left == 0 ? 64 * words : 64 * word + vmp_lowest_bit(left);
}

// last_bit: the highest set bit < `end` of an array of words, UINT32_MAX when there is none.
static inline unsigned last_bit(const uint64_t *bits, unsigned end) {
  if (end == 0) return UINT32_MAX;
  unsigned word = (end - 1) / 64;
  uint64_t left = bits[word] & (UINT64_MAX >> (63 - (end - 1) % 64));
  while (left == 0 && word > 0) left = bits[--word];
  return left == 0 ? UINT32_MAX : 64 * word + vmp_log2(left);
}

#define CLASS_WORDS (VMP_MID_CLASSES / 64)
#define WORD_WORDS (CLASS_WORDS / 64)

// class_above: the lowest class > `class` that isn't empty, VMP_MID_CLASSES when there is none.
static unsigned class_above(const vmp_mid_runs *runs, unsigned class) {
  unsigned word = class / 64;
  uint64_t bits = runs->classes[word] & (UINT64_MAX << (class % 64) << 1);
  if (bits == 0) {
    word = first_bit(runs->words, WORD_WORDS, word + 1);
    if (word >= CLASS_WORDS) return VMP_MID_CLASSES;
    bits = runs->classes[word];
  }
  return word * 64 + vmp_lowest_bit(bits);
}

// class_below: the highest class < `class` that isn't empty, VMP_MID_CLASSES when there is none.
static unsigned class_below(const vmp_mid_runs *runs, unsigned class) {
  unsigned word = class / 64;
  uint64_t bits = word == CLASS_WORDS ? 0 : runs->classes[word] & ~(UINT64_MAX << (class % 64));
  if (bits == 0) {
    word = last_bit(runs->words, word);
    if (word == UINT32_MAX) return VMP_MID_CLASSES;
    bits = runs->classes[word];
  }
  return word * 64 + vmp_log2(bits);
}

// ---- changes ----
void vmp_mid_runs_enter(vmp_mid *mid, uint32_t head, uint32_t tail) {
  vmp_mid_runs *runs = &mid->runs;
  vmp_mid_piece *first = vmp_mid_piece_at(mid, head), *last = vmp_mid_piece_at(mid, tail);
  first->run_end = tail;
  last->run_end = head;
  run_key key = {vmp_mid_piece_end(last) - first->offset, first->offset};
  unsigned class = vmp_mid_class(key.size);
  first->class = (uint16_t)class;
  runs->count++;
  runs->bytes += key.size;
  uint32_t *root = &runs->roots[class];
  if (*root == 0) vmp_mid_runs_mark(runs, class);
  if (vmp_mid_class_is_list(class)) {
    push(mid, root, head);
  } else {
    insert(mid, root, head, key);
  }
  if (mid->options.edges) vmp_mid_edges_enter(mid, (vmp_mid_span){key.offset, key.offset + key.size});
}

void vmp_mid_runs_insert(const vmp_mid *mid, uint32_t *root, uint32_t head) {
  insert(mid, root, head, key_of(mid, head));
}

void vmp_mid_runs_take_out(vmp_mid *mid, uint32_t *root, unsigned class, uint32_t head) {
  if (vmp_mid_class_is_list(class)) {
    unlink_run(mid, root, head);
  } else {
    take_out(mid, root, head, key_of(mid, head));
  }
  if (*root == 0) vmp_mid_runs_unmark(&mid->runs, class);
}

void vmp_mid_runs_leave(vmp_mid *mid, uint32_t head) {
  vmp_mid_runs *runs = &mid->runs;
  run_key key = key_of(mid, head);
  unsigned class = vmp_mid_piece_at(mid, head)->class;
  uint32_t *root = &runs->roots[class];
  runs->count--;
  runs->bytes -= key.size;
  vmp_mid_runs_take_out(mid, root, class, head);
  if (mid->options.edges) vmp_mid_edges_leave(mid, (vmp_mid_span){key.offset, key.offset + key.size});
}

// ---- queries ----
uint32_t vmp_mid_runs_above(const vmp_mid *mid, unsigned class) {
  const vmp_mid_runs *runs = &mid->runs;
  class = class_above(runs, class);
  if (class == VMP_MID_CLASSES) return 0;
  return vmp_mid_class_is_list(class) ? runs->roots[class] : outermost(mid, runs->roots[class], SMALLER);
}

// last_below: the last run of the class below that isn't empty, 0 when there is none. (Of a list any is as good.)
static uint32_t last_below(const vmp_mid *mid, unsigned class) {
  const vmp_mid_runs *runs = &mid->runs;
  class = class_below(runs, class);
  if (class == VMP_MID_CLASSES) return 0;
  return vmp_mid_class_is_list(class) ? runs->roots[class] : outermost(mid, runs->roots[class], LARGER);
}

uint32_t vmp_mid_runs_fitting(const vmp_mid *mid, uint64_t bytes) {
  unsigned class = vmp_mid_class(bytes);
  uint32_t root = mid->runs.roots[class];
  uint32_t head = vmp_mid_class_is_list(class) ? root : first_from(mid, root, (run_key){bytes, 0});
  return head != 0 ? head : vmp_mid_runs_above(mid, class);
}

uint32_t vmp_mid_runs_next_larger(const vmp_mid *mid, uint32_t head) {
  run_key key = key_of(mid, head);
  unsigned class = vmp_mid_class(key.size);
  uint32_t next;
  if (vmp_mid_class_is_list(class)) {
    next = *link_of(mid, head, NEXT);
  } else {
    key.offset++;
    next = first_from(mid, mid->runs.roots[class], key);
  }
  return next != 0 ? next : vmp_mid_runs_above(mid, class);
}

uint32_t vmp_mid_runs_largest(const vmp_mid *mid) { return last_below(mid, VMP_MID_CLASSES); }

uint32_t vmp_mid_runs_next_smaller(const vmp_mid *mid, uint32_t head) {
  run_key key = key_of(mid, head);
  unsigned class = vmp_mid_class(key.size);
  uint32_t next = vmp_mid_class_is_list(class) ? *link_of(mid, head, NEXT) : last_before(mid, mid->runs.roots[class], key);
  return next != 0 ? next : last_below(mid, class);
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
  if (vmp_mid_class(key.size) != state->class || vmp_mid_piece_at(state->mid, head)->class != state->class) {
    vmp_report_fault(state->report, "mid runs: the run at %#llx is in size class %u", offset, state->class);
  }
  if (state->any && !before(state->last, key)) {
    vmp_report_fault(state->report, "mid runs: the run at %#llx is out of order", offset);
  }
  state->any = true;
  state->last = key;
  state->count++;
}

// check_list visits a class of one size. False: it can't be walked.
static bool check_list(check_state *state, uint32_t head) {
  const vmp_mid *mid = state->mid;
  for (uint32_t previous = 0; head != 0; previous = head, head = *link_of(mid, head, NEXT)) {
    if (head > mid->pieces.touched || !vmp_mid_is_head(mid, head)) {
      vmp_report_fault(state->report, "mid runs: a link leads to node %u, which begins no run", head);
      return false;
    }
    if (state->count > mid->pieces.touched) {
      vmp_report_fault(state->report, "mid runs: a list has a cycle");
      return false;
    }
    if (*link_of(mid, head, PREVIOUS) != previous) {
      vmp_report_fault(state->report, "mid runs: the run at %#llx has a wrong backward link",
                       (unsigned long long)key_of(mid, head).offset);
    }
    state->any = false;  // no order
    check_node(state, head);
  }
  return true;
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
  for (unsigned class = 0; class < VMP_MID_CLASSES; class ++) {
    uint32_t root = runs->roots[class];
    bool marked = (runs->classes[class / 64] >> (class % 64) & 1) != 0;
    bool word_marked = (runs->words[class / 64 / 64] >> (class / 64 % 64) & 1) != 0;
    if (marked != (root != 0) || (class % 64 == 0 && word_marked != (runs->classes[class / 64] != 0))) {
      vmp_report_fault(report, "mid runs: the bitmap is wrong about size class %u", class);
    }
    if (root == 0) continue;
    check_state state = {.mid = mid, .report = report, .class = class};
    if (vmp_mid_class_is_list(class)) {
      bool walked = check_list(&state, root);
      count += state.count;
      if (!walked) return count;
      continue;
    }
    if (root > mid->pieces.touched || !vmp_mid_is_head(mid, root)) {
      vmp_report_fault(report, "mid runs: a link leads to node %u, which begins no run", root);
      continue;
    }
    if (!check_below(&state, root, 0)) return count + state.count;
    count += state.count;
  }
  return count;
}
