// backing_move.c: the chunks of a live block are mapped at other addresses, behind vmp_realloc.
//
//     before   old  [ h | a | b | c | t ]        h and t are shared with neighbours, a to c are the block's alone
//              new  [ .   .   .   .   .   .   . ]
//     begin    new  [ .   ~   ~   ~   .   .   . ]       addresses of a to c are in transit: nobody maps anything there
//     finish   new  [ .   a   b   c   .   .   . ]       mapped, accessible, home; what else is to be there the caller
//     claims
//              old  [ h | ~   ~   ~ | t ]               retiring, until who used the block has finished
//
// A move is a plan (backing_internal.h) whose pieces are live chunks: mapping, undoing and committing are a claim's.
// The claim that the block has on a chunk goes with it.
#include "vmm/backing_internal.h"
#include "vmm/memory.h"

struct vmp_move {
  plan p;
};

// is_own: whether one claim, and nothing else, keeps the chunk, and all of it lies in [offset, end).
static bool is_own(const vmp_backing *b, const chunk *c, uint64_t offset, uint64_t end) {
  uint64_t first = c->home << b->granule_log2, last = (c->home + chunk_slots(c)) << b->granule_log2;
  return c->state == CHUNK_LIVE && c->live == 1 && c->pins == 0 && c->shares == 0 && c->sealed == 0 && c->lost == 0 &&
         first >= offset && last <= end;
}

void vmp_backing_movable(const vmp_backing *b, uint64_t offset, uint64_t bytes, uint64_t *out_offset,
                         uint64_t *out_bytes) {
  uint64_t slot = backing_first_slot(b, offset), end = backing_end_slot(b, offset, bytes);
  uint64_t run = slot, best = slot, best_end = slot;
  while (slot < end) {
    uint32_t word = backing_word(b, slot);
    bool own = word_is_home(word) && is_own(b, backing_chunk(b, word & WORD_INDEX), offset, offset + bytes);
    slot = word_is_home(word)
               ? backing_chunk(b, word & WORD_INDEX)->home + chunk_slots(backing_chunk(b, word & WORD_INDEX))
               : slot + 1;
    if (!own) {
      run = slot;
    } else if (slot - run > best_end - best) {
      best = run;
      best_end = slot;
    }
  }
  *out_offset = best << b->granule_log2;
  *out_bytes = (best_end - best) << b->granule_log2;
}

// Only what lies under both sides counts differently: one chunk, or one shared place of it.
static bool both_sides(const vmp_backing *b, uint64_t offset, uint32_t *out_word) {
  *out_word = backing_word(b, offset >> b->granule_log2);
  return *out_word != 0 && backing_word(b, (offset - 1) >> b->granule_log2) == *out_word;
}

void vmp_backing_split_claim(vmp_backing *b, uint64_t offset) {
  uint32_t word;
  if (!both_sides(b, offset, &word)) return;
  if (word_is_place(word)) {
    share_count(b, backing_place(b, word & WORD_INDEX));
  } else {
    backing_chunk(b, word & WORD_INDEX)->live++;
  }
}

void vmp_backing_join_claims(vmp_backing *b, uint64_t offset) {
  uint32_t word;
  if (!both_sides(b, offset, &word)) return;
  if (word_is_place(word)) {
    place *shared = backing_place(b, word & WORD_INDEX);
    shared->live--;
    backing_chunk(b, shared->chunk)->live--;
  } else {
    backing_chunk(b, word & WORD_INDEX)->live--;
  }
}

vmp_status vmp_backing_move_begin(vmp_backing *b, uint64_t from_offset, uint64_t bytes, uint64_t to_offset,
                                  vmp_move **out_move) {
  uint64_t slot = from_offset >> b->granule_log2, end = (from_offset + bytes) >> b->granule_log2;
  uint64_t to = to_offset >> b->granule_log2;
  vmp_move *move = vmp_mem_calloc(1, sizeof *move);
  if (move == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to plan a move");
  if (backing_skip_unmapped(b, to, to + (end - slot)) < to + (end - slot)) {
    vmp_mem_free(move);
    return vmp_fail(VMP_ERROR_BUSY, "part of the new addresses is mapped");
  }
  while (slot < end) {
    uint32_t id = backing_word(b, slot) & WORD_INDEX;
    chunk *c = backing_chunk(b, id);
    c->apart = 1;  // and it must not become anybody's host meanwhile
    uint64_t slots = chunk_slots(c);
    if (!plan_add_piece(b, &move->p, PIECE_MOVE, id, c->order, to)) {
      plan_undo_records(b, &move->p);
      plan_free(&move->p);
      vmp_mem_free(move);
      return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to plan a move of %llu bytes",
                      (unsigned long long)bytes);
    }
    slot += slots;
    to += slots;
  }
  *out_move = move;
  return VMP_OK;
}

// Between begin and finish the move is no transit to be waited for: its own thread may wait for others' meanwhile.
static void end_move(vmp_move *move) {
  plan_free(&move->p);
  vmp_mem_free(move);
}

void vmp_backing_move_cancel(vmp_backing *b, vmp_move *move) {
  if (move == NULL) return;
  plan_undo_records(b, &move->p);
  end_move(move);
}

vmp_status vmp_backing_move_finish(vmp_backing *b, vmp_move *move, vmp_fence users) {
  uint64_t created = 0;
  move->p.users = users;
  vmp_status status = plan_execute(b, &move->p, &created);
  end_move(move);
  return status;
}
