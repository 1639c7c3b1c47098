// tree.c: see tree.h.
#include "pool/tree.h"

// A treap of 2^32 nodes is this deep with a probability that needn't be thought about; a deeper one is a cycle.
#define DEEPEST 1024u

enum { LEFT = 0, RIGHT = 1 };

// priority: a bijective mix of the index, so no two nodes are equal. The factor is 2^32 / the golden ratio, which
// spreads neighbouring indices as evenly as can be.
static inline uint32_t priority(uint32_t index) {
  index *= 0x9e3779b1u;
  return index ^ (index >> 15);
}

static bool before(vmp_tree_order order, const vmp_tree_node *a, const vmp_tree_node *b) {
  if (order == VMP_TREE_BY_SIZE && a->size != b->size) return a->size < b->size;
  return a->offset < b->offset;
}

void vmp_tree_insert(const vmp_node_pool *pool, vmp_tree_order order, uint32_t *root, uint32_t index) {
  vmp_tree_node *node = vmp_tree_at(pool, index);
  uint32_t rank = priority(index);
  uint32_t *link = root;
  while (*link != 0 && priority(*link) > rank) {
    vmp_tree_node *other = vmp_tree_at(pool, *link);
    link = &other->links[order][before(order, node, other) ? LEFT : RIGHT];
  }
  // Everything below has a lower priority: split it into what comes before and after the new node.
  uint32_t rest = *link;
  uint32_t *less = &node->links[order][LEFT];
  uint32_t *more = &node->links[order][RIGHT];
  *link = index;
  while (rest != 0) {
    vmp_tree_node *other = vmp_tree_at(pool, rest);
    if (before(order, other, node)) {
      *less = rest;
      less = &other->links[order][RIGHT];
      rest = *less;
    } else {
      *more = rest;
      more = &other->links[order][LEFT];
      rest = *more;
    }
  }
  *less = 0;
  *more = 0;
}

void vmp_tree_remove(const vmp_node_pool *pool, vmp_tree_order order, uint32_t *root, uint32_t index) {
  vmp_tree_node *node = vmp_tree_at(pool, index);
  uint32_t *link = root;
  while (*link != index) {
    vmp_tree_node *other = vmp_tree_at(pool, *link);
    link = &other->links[order][before(order, node, other) ? LEFT : RIGHT];
  }
  uint32_t less = node->links[order][LEFT];
  uint32_t more = node->links[order][RIGHT];
  while (less != 0 && more != 0) {
    if (priority(less) > priority(more)) {
      *link = less;
      link = &vmp_tree_at(pool, less)->links[order][RIGHT];
      less = *link;
    } else {
      *link = more;
      link = &vmp_tree_at(pool, more)->links[order][LEFT];
      more = *link;
    }
  }
  *link = less != 0 ? less : more;
  node->links[order][LEFT] = 0;
  node->links[order][RIGHT] = 0;
}

// compare: negative when the node's key is smaller than `key`.
static int compare(vmp_tree_order order, const vmp_tree_node *node, vmp_tree_key key) {
  if (order == VMP_TREE_BY_SIZE && node->size != key.size) return node->size < key.size ? -1 : 1;
  if (node->offset == key.offset) return 0;
  return node->offset < key.offset ? -1 : 1;
}

uint32_t vmp_tree_at_least(const vmp_node_pool *pool, vmp_tree_order order, uint32_t root, vmp_tree_key key) {
  uint32_t best = 0;
  while (root != 0) {
    const vmp_tree_node *node = vmp_tree_at(pool, root);
    if (compare(order, node, key) >= 0) {
      best = root;
      root = node->links[order][LEFT];
    } else {
      root = node->links[order][RIGHT];
    }
  }
  return best;
}

uint32_t vmp_tree_at_most(const vmp_node_pool *pool, vmp_tree_order order, uint32_t root, vmp_tree_key key) {
  uint32_t best = 0;
  while (root != 0) {
    const vmp_tree_node *node = vmp_tree_at(pool, root);
    if (compare(order, node, key) <= 0) {
      best = root;
      root = node->links[order][RIGHT];
    } else {
      root = node->links[order][LEFT];
    }
  }
  return best;
}

void vmp_tree_around(const vmp_node_pool *pool, uint32_t root, uint64_t offset, uint32_t *out_before,
                     uint32_t *out_behind) {
  uint32_t nearest[2] = {0, 0};
  while (root != 0) {
    const vmp_tree_node *node = vmp_tree_at(pool, root);
    int side = node->offset < offset ? RIGHT : LEFT;
    nearest[side] = root;
    root = node->links[VMP_TREE_BY_OFFSET][side];
  }
  *out_before = nearest[RIGHT];
  *out_behind = nearest[LEFT];
}

typedef struct check_state {
  const vmp_node_pool *pool;
  vmp_tree_order order;
  const char *name;
  vmp_report *report;
  const vmp_tree_node *last;
  uint64_t count;
} check_state;

// check_below visits a subtree in order. Recursion is bounded by DEEPEST, the count by the pool's size.
static void check_below(check_state *state, uint32_t index, unsigned depth) {
  const vmp_tree_node *node = vmp_tree_at(state->pool, index);
  if (depth > DEEPEST || state->count > state->pool->touched) {
    vmp_report_fault(state->report, "%s: the tree has a cycle", state->name);
    return;
  }
  for (int side = LEFT; side <= RIGHT; side++) {
    uint32_t child = node->links[state->order][side];
    if (child > state->pool->touched) {
      vmp_report_fault(state->report, "%s: a link leads to node %u, which doesn't exist", state->name, child);
    } else if (child != 0) {
      if (priority(child) > priority(index)) {
        vmp_report_fault(state->report, "%s: node %u stands above node %u of higher priority", state->name, index,
                         child);
      }
      if (side == RIGHT) continue;
      check_below(state, child, depth + 1);
    }
  }
  if (state->last != NULL && !before(state->order, state->last, node)) {
    vmp_report_fault(state->report, "%s: the node at %#llx is out of order", state->name,
                     (unsigned long long)node->offset);
  }
  state->last = node;
  state->count++;
  uint32_t right = node->links[state->order][RIGHT];
  if (right != 0 && right <= state->pool->touched) check_below(state, right, depth + 1);
}

uint64_t vmp_tree_check(const vmp_node_pool *pool, vmp_tree_order order, uint32_t root, const char *name,
                        vmp_report *report) {
  check_state state = {.pool = pool, .order = order, .name = name, .report = report};
  if (root != 0) check_below(&state, root, 0);
  return state.count;
}
