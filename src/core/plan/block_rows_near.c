/* Quantising over several nodes: what enters a node are codes, and each once.
 *
 *   here     a block whose values are all on the node is made by each rank that wants it, from there
 *   ordered  a block of which the node lacks anything, and which one rank of another node has whole, is made by that one: codes that this
 *            window has, and scales, come as ops (`made`). So is a block that several ranks of one other node have together: one of them
 *            reads what the others have of it
 *   mixed    other blocks are made here of values that come from several nodes
 *
 * Ranks of the node that have the same rectangle of codes share the rows of its blocks: each gets some of them, ordered or mixed, and
 * copies the other rows from those that get them (relays). They all find the same shares, since what the node has does not depend on
 * who asks. */
#include "plan/block_rows_parts.h"

#include "base/hash.h"

#include <assert.h>

enum { HERE = -1, MIXED = -2 /* else the rank of which blocks are ordered */, SHARES_OF_A_PAGE = 64 };

/* Codes of a matrix, whose whole blocks are `all`. */
typedef struct coded {
  const treadle_placed_rectangle *codes;
  const treadle_rectangle *all;
  bool simple;                        /* the sources at hand are of one rank, and good for all of it */
  const treadle_block_row_seat *seat; /* whose rows these are; NULL: this rank's */
} coded;

/* Columns of a row of blocks that fare alike, with scales in one place. */
typedef struct group {
  treadle_rectangle of; /* whole blocks */
  const treadle_placed_rectangle *scales;
  int64_t how; /* HERE, MIXED, or a rank */
} group;

/* ---- Ranks that get the same ---- */

static treadle_status find_peer(treadle_block_row_walk *w, int32_t rank, int32_t *number_p) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks of_scales = treadle_blocks_of(w->to->model, w->blocks.tensor->scale);
  for (size_t i = 0; i < w->peers.count; i++)
    if (w->peers.all.items[i].rank == rank) {
      *number_p = (int32_t)i;
      return TREADLE_OK;
    }
  if (w->peers.all.count == w->peers.count)
    TRY(treadle_array_push(&w->peers.all, (treadle_block_row_peer){0}));
  treadle_block_row_peer *peer = &w->peers.all.items[w->peers.count];
  peer->codes.count = peer->scales.count = 0;
  TRY(treadle_blocks_held(&w->blocks, w->to, rank, true, &peer->codes));
  TRY(treadle_blocks_held(&of_scales, w->to, rank, false, &peer->scales));
  peer->rank = rank;
  *number_p = (int32_t)w->peers.count++;
out:
  return status;
}

/* Codes of the same rectangle that are the first ones with its row and column, NULL: none. */
static const treadle_placed_rectangle *find_same(const treadle_placed_rectangles *places,
                                                 const treadle_rectangle *of) {
  size_t i, end = treadle_placed_of(places, of->expert, &i);
  for (; i < end; i++) {
    const treadle_rectangle *other = &places->items[i].of;
    if (other->row == of->row && other->column == of->column)
      return other->rows == of->rows && other->columns == of->columns ? &places->items[i] : NULL;
  }
  return NULL;
}

/* Makes w->seats: the node's ranks that hold the cell where the codes begin, and have the same rectangle. */
static treadle_status find_seats(treadle_block_row_walk *w, const treadle_placed_rectangle *codes) {
  treadle_status status = TREADLE_OK;
  const treadle_rectangle point = {codes->of.expert, codes->of.row, 1, codes->of.column, 1};
  treadle_seats *wants = &w->near->wants;
  w->seats.count = w->boxes.count = w->cells.count = 0;
  TRY(treadle_rectangle_boxes(&w->blocks, &point, &w->boxes));
  TRY(treadle_layout_cells(w->to, w->tensor, &w->boxes.items[0], &w->cells));
  assert(w->cells.count == 1);
  TRY(treadle_near_find(w->near, w->to, &w->cells.items[0], wants));
  for (size_t i = 0; i < wants->count && wants->count > 1; i++) {
    int32_t of = -1;
    const treadle_placed_rectangle *same = codes;
    if (wants->items[i].rank != w->rank) {
      TRY(find_peer(w, wants->items[i].rank, &of));
      same = find_same(&w->peers.all.items[of].codes, &codes->of);
    }
    if (same) TRY(treadle_array_push(&w->seats, ((treadle_block_row_seat){of, same})));
  }
out:
  return status;
}

/* ---- Groups ---- */

/* Is anything of a rectangle in these boxes? w->boxes are those of the rectangle. */
static bool touches(const treadle_block_row_walk *w, const treadle_box *box) {
  treadle_box met;
  for (size_t i = 0; i < w->boxes.count; i++)
    if (treadle_box_meet(&w->boxes.items[i], box, &met)) return true;
  return false;
}

/* How the block comes. */
static treadle_status look_at(treadle_block_row_walk *w, const treadle_rectangle *block, int64_t *how_p) {
  treadle_status status = TREADLE_OK;
  bool lacks = false;
  *how_p = HERE;
  w->boxes.count = 0;
  TRY(treadle_rectangle_boxes(&w->blocks, block, &w->boxes));
  for (size_t i = 0; i < w->rest.count && !lacks; i++) lacks = touches(w, &w->rest.items[i]);
  for (size_t i = 0; i < w->sources.count && lacks; i++) {
    const treadle_block_row_values *source = &w->sources.items[i];
    if (!touches(w, &source->box)) continue;
    *how_p = *how_p == HERE || *how_p == source->rank ? source->rank : MIXED;
    if (*how_p == MIXED) break;
  }
out:
  return status;
}

/* The rank of another node that makes what several of its ranks have together, MIXED: they have not all. Of that node it is one that has
 * where the rectangle begins. */
static treadle_status find_maker(treadle_block_row_walk *w, const treadle_rectangle *of, int64_t *maker_p) {
  treadle_status status = TREADLE_OK;
  treadle_near there = {0};
  treadle_seats *has = &w->near->has;
  *maker_p = MIXED;
  w->boxes.count = 0;
  TRY(treadle_rectangle_boxes(&w->blocks, of, &w->boxes));
  for (size_t i = 0; i < w->sources.count && !there.nodes; i++) {
    const treadle_block_row_values *source = &w->sources.items[i];
    if (w->near->nodes->of[source->rank] != w->near->nodes->of[w->rank] && touches(w, &source->box))
      treadle_near_init(&there, w->near->nodes, source->rank);
  }
  for (size_t i = 0; i < w->boxes.count; i++) {
    w->cells.count = 0;
    TRY(treadle_layout_cells(w->from, w->tensor, &w->boxes.items[i], &w->cells));
    for (size_t k = 0; k < w->cells.count; k++) {
      treadle_box met;
      if (!treadle_box_meet(&w->boxes.items[i], &w->cells.items[k].box, &met)) continue;
      TRY(treadle_near_find(&there, w->from, &w->cells.items[k], has));
      if (has->count == 0) {
        *maker_p = MIXED;
        goto out;
      }
      if (*maker_p == MIXED) *maker_p = has->items[(uint64_t)w->rank % has->count].rank;
    }
  }
out:
  treadle_near_release(&there);
  return status;
}

/* The group that begins with block column `at` of row `down`. */
static treadle_status find_group(treadle_block_row_walk *w, const coded *c, int64_t down, int64_t at,
                                 group *group_p) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks *b = &w->blocks;
  int64_t expert = c->all->expert, end = (c->all->column + c->all->columns + b->wide - 1) / b->wide,
          last = at + 1;
  const treadle_placed_rectangle *scales = treadle_block_rows_scales(&w->scales, expert, down, at);
  if (!scales)
    return treadle_fail(TREADLE_DIFFERENT, "plan: rank %lld: codes of %s without the scale of their block",
                        (long long)w->rank, treadle_block_rows_name(w));
  end = treadle_smaller(end, scales->of.column + scales->of.columns);
  if (c->simple) {
    last = end;
    group_p->how = w->rest.count == 0 ? HERE : w->sources.items[0].rank;
  } else {
    treadle_rectangle block = treadle_blocks_row(b, expert, down, at, 1);
    int64_t how;
    TRY(look_at(w, &block, &group_p->how));
    for (; last < end; last++) {
      block = treadle_blocks_row(b, expert, down, last, 1);
      TRY(look_at(w, &block, &how));
      if (how != group_p->how) break;
    }
  }
  treadle_rectangle of = treadle_blocks_row(b, expert, down, at, last - at);
  if (group_p->how == MIXED) TRY(find_maker(w, &of, &group_p->how));
  if (group_p->how == MIXED && last > at + 1) { /* the first block alone, perhaps */
    of = treadle_blocks_row(b, expert, down, at, 1);
    TRY(find_maker(w, &of, &group_p->how));
    if (group_p->how == MIXED) of = treadle_blocks_row(b, expert, down, at, last - at);
  }
  group_p->scales = scales;
  group_p->of = of;
out:
  return status;
}

/* ---- Ops ---- */

static treadle_status take(treadle_block_row_walk *w, const treadle_op *op) {
  treadle_status status = treadle_cuts_add(&w->sink->cuts, 1);
  if (status != TREADLE_OK || (w->sink->of_source && (op->twin || op->source != w->sink->source)))
    return status;
  return w->sink->take(w->sink, op);
}

/* Codes and scales of rows [down, end) of blocks, of one wave: what this window has of them. */
static treadle_status take_rows(treadle_block_row_walk *w, const coded *c, const group *g, int64_t down,
                                int64_t end, int32_t wave) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks *b = &w->blocks;
  const treadle_placed_rectangle *to = c->codes, *scales = g->scales;
  int64_t expert = g->of.expert, across = g->of.column / b->wide,
          columns = (g->of.columns + b->wide - 1) / b->wide;
  const treadle_rectangle blocks = {expert, down, end - down, across, columns},
                          whole = {expert, down * b->high, (end - down) * b->high, g->of.column,
                                   g->of.columns},
                          of = treadle_block_rows_meet(&whole, &to->of);
  const treadle_block_row_peer *near = c->seat ? &w->peers.all.items[c->seat->peer] : NULL;
  const bool relay = near != NULL;
  const treadle_placed_rectangle *there = NULL;
  const int64_t first = expert * b->down; /* rows of blocks of other experts */
  if (relay) there = treadle_block_rows_scales(&near->scales, expert, down, across);
  if (relay && !there)
    TRY(treadle_fail(TREADLE_DIFFERENT,
                     "plan: rank %lld: rank %d has codes of %s without the scale of their block",
                     (long long)w->rank, (int)near->rank, treadle_block_rows_name(w)));
  treadle_op op = {.wave = wave,
                   .source = relay ? near->rank : (int32_t)g->how,
                   .twin = relay,
                   .wire = relay ? 1 : 0,
                   .from_dtype = TREADLE_FP8_E4M3,
                   .to_dtype = TREADLE_FP8_E4M3,
                   .tensor = w->tensor,
                   .storage = to->storage,
                   .ndim = 2,
                   .size = {of.rows, of.columns},
                   .from = relay ? treadle_placed_offset(c->seat->codes, of.row, of.column)
                                 : (first * b->high + of.row) * b->columns + of.column,
                   .to = treadle_placed_offset(to, of.row, of.column),
                   .from_stride = {relay ? c->seat->codes->row_stride : b->columns, 1},
                   .to_stride = {to->row_stride, 1},
                   .elems = of.rows * of.columns,
                   .made = relay ? 0 : b->high * b->columns};
  TRY(take(w, &op));
  const int64_t each = (int64_t)sizeof(float);
  op.wire = relay ? (uint8_t)each : 0;
  op.from_dtype = op.to_dtype = TREADLE_FP32;
  op.storage = scales->storage;
  op.size[0] = blocks.rows;
  op.size[1] = columns;
  op.from =
      relay ? treadle_placed_offset(there, down, across) : ((first + down) * b->across + across) * each;
  op.to = treadle_placed_offset(scales, down, across);
  op.from_stride[0] = relay ? there->row_stride : b->across * each;
  op.from_stride[1] = relay ? there->column_stride : each;
  op.to_stride[0] = scales->row_stride;
  op.to_stride[1] = scales->column_stride;
  op.elems = blocks.rows * columns;
  op.made = relay ? 0 : b->across * each;
  TRY(take(w, &op));
  TRY(treadle_block_rows_repeat(w, &blocks, scales, wave));
out:
  return status;
}

/* `count` rows of blocks from this one on. */
static treadle_status take_group(treadle_block_row_walk *w, const coded *c, const group *g, int64_t count) {
  treadle_status status = TREADLE_OK;
  int64_t down = g->of.row / w->blocks.high, last = down + count, end;
  bool made_here = g->how == HERE || (g->how == MIXED && !c->seat);
  if (made_here) return treadle_block_rows_quantise_columns(w, &g->of, c->codes, g->scales, count);
  for (; down < last; down = end) {
    int32_t wave;
    TRY(treadle_block_rows_wave(w, g->of.expert, down, &wave, &end));
    end = treadle_smaller(end, last);
    TRY(take_rows(w, c, g, down, end, wave));
  }
out:
  return status;
}

/* The rows of blocks from `down` on, up to `end`, that are alike; *next_p is the one after them. */
static treadle_status take_alike(treadle_block_row_walk *w, const coded *c, int64_t down, int64_t end,
                                 int64_t *next_p) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks *b = &w->blocks;
  int64_t first = c->all->column / b->wide,
          last = (c->all->column + c->all->columns + b->wide - 1) / b->wide;
  const treadle_rectangle row = treadle_blocks_row(b, c->all->expert, down, first, last - first);
  int64_t count = 1;
  if (!c->simple) TRY(treadle_block_rows_find_sources(w, &row));
  for (int64_t at = first; at < last;) {
    group g;
    TRY(find_group(w, c, down, at, &g));
    if (at == first && g.scales->of.column + g.scales->of.columns >= last)
      count = treadle_smaller(treadle_block_rows_alike(w, &row, c->codes, g.scales, c->simple), end - down);
    at += (g.of.columns + b->wide - 1) / b->wide;
    TRY(take_group(w, c, &g, count));
  }
  *next_p = down + count;
out:
  return status;
}

/* ---- Shares ---- */

/* Has the source whose ops alone are wanted any of these rows? */
static bool is_wanted(const treadle_block_row_walk *w, const treadle_rectangle *all) {
  int64_t high = w->blocks.high;
  return !w->sink->of_source || treadle_blocks_touched(&w->blocks, w->lent, all->expert, all->row / high,
                                                       (all->row + all->rows + high - 1) / high);
}

treadle_status treadle_block_rows_quantise_near(treadle_block_row_walk *w,
                                                const treadle_placed_rectangle *codes,
                                                const treadle_rectangle *all) {
  treadle_status status = TREADLE_OK;
  const treadle_blocks *b = &w->blocks;
  coded c = {.codes = codes, .all = all};
  int64_t down = all->row / b->high, rows = (all->rows + b->high - 1) / b->high,
          least = w->lanes->page_bytes / SHARES_OF_A_PAGE;
  if (!is_wanted(w, all)) return TREADLE_OK;
  TRY(find_seats(w, codes));
  int64_t seats = (int64_t)w->seats.count, most = all->rows * all->columns / (least > 0 ? least : 1);
  int64_t shares = treadle_smaller(treadle_smaller(seats, rows), most < 1 ? 1 : most);
  uint64_t turn = treadle_hash_more((uint64_t)w->tensor, (uint64_t)w->near->nodes->of[w->rank]);
  turn = treadle_hash_more(turn, (uint64_t)(all->expert * b->down + down));
  TRY(treadle_block_rows_find_whole(w, all, &c.simple));
  for (int64_t k = 0; k < (shares > 0 ? shares : 1); k++) {
    int64_t row = down, end = down + rows;
    if (shares > 0) {
      const treadle_block_row_seat *seat = &w->seats.items[(turn + (uint64_t)k) % (uint64_t)seats];
      c.seat = seat->peer >= 0 ? seat : NULL;
      row = down + rows * k / shares;
      end = down + rows * (k + 1) / shares;
    }
    while (row < end) TRY(take_alike(w, &c, row, end, &row));
  }
out:
  return status;
}
