/* Exchanges: how the parts of a set's ranks come together. Columns and slots.
 *
 * Each rank has two halves of memory, a header and room for numbers each, which take turns. Turn t + 2 writes where turn t was. Every
 * rank has met in turn t + 1 by then, and so has read what it wanted of turn t. The header says what the part is, so that ranks which
 * do not agree find out, rather than read something else. */
#include "nn/exchange.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <inttypes.h>
#include <string.h>

static const char *const kinds[] = {"nothing", "leaves", "columns", "slots"};

/* ---- Memory ---- */

static uint64_t half_bytes(uint64_t elems) {
  return sizeof(treadle_exchange_header) + (elems * sizeof(float) + 63) / 64 * 64;
}

uint64_t treadle_exchange_memory(uint64_t elems) { return 2 * half_bytes(elems); }

static const treadle_exchange_header *half_of(const treadle_exchange *x, int member, uint64_t turn) {
  const char *part = treadle_board_part(x->set->board, x->set->ranks[member]);
  return (const void *)(part + x->at + (turn & 1) * half_bytes(x->elems));
}

static treadle_exchange_header *own_half(const treadle_exchange *x, uint64_t turn) {
  char *part = treadle_board_own(x->set->board);
  return (void *)(part + x->at + (turn & 1) * half_bytes(x->elems));
}

float *treadle_exchange_room(treadle_exchange *exchange) {
  return (float *)(own_half(exchange, exchange->turn + 1) + 1);
}

static treadle_status check_place(const treadle_board_set *set, uint64_t at, uint64_t elems) {
  if (elems > INT64_MAX / 16) return treadle_fail(TREADLE_REFUSED, "exchange: %" PRIu64 " elements", elems);
  uint64_t bytes = treadle_exchange_memory(elems);
  if (at % 64 != 0)
    return treadle_fail(TREADLE_REFUSED, "exchange: place %" PRIu64 " is not a multiple of 64", at);
  for (int i = 0; i < set->count; i++) {
    uint64_t has = treadle_board_bytes(set->board, set->ranks[i]);
    if (at > has || bytes > has - at)
      return treadle_fail(TREADLE_REFUSED,
                          "exchange: %" PRIu64 " bytes from %" PRIu64
                          " are beyond the board's part of rank %d, %" PRIu64 " bytes",
                          bytes, at, set->ranks[i], has);
  }
  return TREADLE_OK;
}

treadle_status treadle_exchange_create(treadle_board_set *set, uint64_t at, uint64_t elems,
                                       treadle_exchange **exchange_p) {
  treadle_status status = TREADLE_OK;
  treadle_exchange *x = NULL;
  size_t count = (size_t)set->count, nodes = count * TREADLE_LEAF_NODES_MAX;
  *exchange_p = NULL;
  TRY(check_place(set, at, elems));
  x = treadle_alloc(sizeof *x);
  if (!x) return treadle_fail(TREADLE_NO_MEMORY, "exchange: memory is out");
  *x = (treadle_exchange){.set = set, .at = at, .elems = elems, .divide = TREADLE_EXCHANGE_DIVIDE};
  x->all = treadle_alloc_array(count, sizeof(*x->all));
  x->numbers = treadle_alloc_array(count, sizeof(*x->numbers));
  x->order = treadle_alloc_array(count, sizeof *x->order);
  x->nodes = treadle_alloc_array(nodes, sizeof *x->nodes);
  x->values = treadle_alloc_array(nodes, sizeof(*x->values));
  if (!x->all || !x->numbers || !x->order || !x->nodes || !x->values)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "exchange: memory is out"));
  *exchange_p = x;
out:
  if (status != TREADLE_OK) treadle_exchange_destroy(x);
  return status;
}

void treadle_exchange_destroy(treadle_exchange *exchange) {
  if (!exchange) return;
  treadle_free(exchange->all);
  treadle_free(exchange->numbers);
  treadle_free(exchange->order);
  treadle_free(exchange->nodes);
  treadle_free(exchange->values);
  treadle_free(exchange);
}

/* ---- Meeting ---- */

static treadle_status check_own(const treadle_exchange *x, treadle_exchange_kind kind,
                                const treadle_exchange_part *mine, int64_t needed, const char *what) {
  if (mine->of < 0 || mine->first < 0 || mine->end < mine->first || mine->end > mine->of)
    return treadle_fail(TREADLE_REFUSED, "%s: %s %" PRId64 " to %" PRId64 " of %" PRId64, what, kinds[kind],
                        mine->first, mine->end, mine->of);
  if (mine->rows < 0 || mine->columns < 0 || needed < 0 || (uint64_t)needed > x->elems)
    return treadle_fail(TREADLE_REFUSED,
                        "%s: %" PRId64 " rows of %" PRId64 " columns; there is room for %" PRIu64
                        " elements",
                        what, mine->rows, mine->columns, x->elems);
  return TREADLE_OK;
}

static treadle_status look_at(treadle_exchange *x, int member, treadle_exchange_kind kind,
                              const treadle_exchange_part *mine, const char *what) {
  const treadle_exchange_header *header = half_of(x, member, x->turn);
  const treadle_exchange_part *part = &header->part;
  bool alike = header->kind == kind && part->of == mine->of;
  if (kind != TREADLE_EXCHANGE_SLOTS) alike = alike && part->rows == mine->rows;
  if (kind != TREADLE_EXCHANGE_COLUMNS) alike = alike && part->columns == mine->columns;
  x->all[member] = part;
  x->numbers[member] = (const float *)(header + 1);
  if (alike) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "%s: rank %d brings %" PRId64 " %s of %" PRId64 " rows and %" PRId64
                      " columns, this rank %" PRId64 " %s of %" PRId64 " and %" PRId64,
                      what, x->set->ranks[member], part->of, kinds[header->kind & 3], part->rows,
                      part->columns, mine->of, kinds[kind], mine->rows, mine->columns);
}

/* Members by where their parts begin; those that have nothing come first of those that begin there. */
static void sort(treadle_exchange *x) {
  for (int32_t i = 0; i < x->set->count; i++) {
    int32_t at = i;
    const treadle_exchange_part *part = x->all[i];
    for (; at > 0; at--) {
      const treadle_exchange_part *before = x->all[x->order[at - 1]];
      if (before->first < part->first || (before->first == part->first && before->end <= part->end)) break;
      x->order[at] = x->order[at - 1];
    }
    x->order[at] = i;
  }
}

/* Is each some rank's, once? */
static treadle_status check_whole(treadle_exchange *x, treadle_exchange_kind kind, int64_t of,
                                  const char *what) {
  int64_t next = 0;
  for (int32_t i = 0; i < x->set->count; i++) {
    const treadle_exchange_part *part = x->all[x->order[i]];
    if (part->end > part->first && part->first != next)
      return treadle_fail(TREADLE_REFUSED,
                          "%s: %s up to %" PRId64 " are there, then rank %d has those from %" PRId64, what,
                          kinds[kind], next, x->set->ranks[x->order[i]], part->first);
    if (part->end > part->first) next = part->end;
  }
  if (next == of) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: no rank has the %s from %" PRId64 " to %" PRId64, what,
                      kinds[kind], next, of);
}

treadle_status treadle_exchange_meet(treadle_exchange *exchange, treadle_exchange_kind kind,
                                     const treadle_exchange_part *mine, int64_t needed, const char *what) {
  treadle_status status = TREADLE_OK;
  treadle_exchange_header *own = own_half(exchange, exchange->turn + 1);
  TRY(check_own(exchange, kind, mine, needed, what));
  own->kind = kind;
  own->part = *mine;
  exchange->turn++;
  TRY(treadle_board_meet(exchange->set, what));
  for (int i = 0; i < exchange->set->count; i++) TRY(look_at(exchange, i, kind, mine, what));
  sort(exchange);
  if (kind != TREADLE_EXCHANGE_SLOTS) TRY(check_whole(exchange, kind, mine->of, what));
out:
  if (status != TREADLE_OK) treadle_board_fail(exchange->set->board);
  return status;
}

/* ---- Columns ---- */

treadle_status treadle_parallel_columns(treadle_exchange *exchange, const treadle_exchange_part *mine,
                                        const char *what) {
  int64_t needed = -1;
  if (mine->columns >= mine->end - mine->first) treadle_mul_fits(mine->rows, mine->columns, &needed);
  return treadle_exchange_meet(exchange, TREADLE_EXCHANGE_COLUMNS, mine, needed, what);
}

void treadle_parallel_row(const treadle_exchange *exchange, int64_t row, float *to) {
  for (int i = 0; i < exchange->set->count; i++) {
    const treadle_exchange_part *part = exchange->all[i];
    const float *from = exchange->numbers[i] + row * part->columns;
    memcpy(to + part->first, from, (size_t)(part->end - part->first) * sizeof *to);
  }
}

treadle_status treadle_parallel_gather(treadle_exchange *exchange, const treadle_exchange_part *mine,
                                       float *all, const char *what) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_parallel_columns(exchange, mine, what));
  for (int64_t row = 0; row < mine->rows; row++) treadle_parallel_row(exchange, row, all + row * mine->of);
out:
  return status;
}

/* ---- Slots ---- */

treadle_status treadle_parallel_slots(treadle_exchange *exchange, const treadle_exchange_part *mine,
                                      const char *what) {
  const int64_t sizes[] = {mine->end - mine->first, mine->rows, mine->columns};
  int64_t needed;
  if (!treadle_product_fits(sizes, 3, &needed)) needed = -1;
  return treadle_exchange_meet(exchange, TREADLE_EXCHANGE_SLOTS, mine, needed, what);
}

const float *treadle_parallel_slot(const treadle_exchange *exchange, int64_t slot, int64_t *rows_p) {
  for (int i = 0; i < exchange->set->count; i++) {
    const treadle_exchange_part *part = exchange->all[i];
    if (slot < part->first || slot >= part->end) continue;
    *rows_p = part->rows;
    return exchange->numbers[i] + (slot - part->first) * part->rows * part->columns;
  }
  *rows_p = 0;
  return NULL;
}

int64_t treadle_parallel_columns_of(const treadle_exchange *exchange, int member) {
  return exchange->all[member]->columns;
}
