/* Experts of ranks whose groups have other rows. The ranks of a stage in all groups meet twice in a layer: first each brings a share of its
 * group's rows, with the numbers of their experts; the rank that has an expert computes the rows of all groups that chose it; then each
 * brings these results, and a group adds up those of its own rows.
 *
 * All ranks know the numbers of all rows, so they know where each result lies: in a rank's room the experts that it brings follow each
 * other, each with its rows in the order of groups. A room has place for the worst choice, that all rows of a round go to this rank's
 * experts. If the groups have more rows together than one pass takes, they go in several rounds. */
#include "pass/pass_steps.h"

#include "base/larger.h"

#include <string.h>

/* ---- Who they are --------------------------------------------------------------------------------------- */

int64_t treadle_pass_measure_groups(const treadle_pass *p) {
  const treadle_transformer *d = p->transformer;
  const treadle_pass_buffers *b = &p->buffers;
  const int64_t most = treadle_smaller(d->routing.top, b->held) * b->expert_nodes,
                row = d->hidden + d->routing.top, rows = treadle_pass_round_rows(p);
  if (!p->options.backward) return rows * treadle_larger(row, most * d->hidden);
  /* dy, too, and derivatives by weights */
  return rows * treadle_larger(2 * row, most * (d->hidden + 1)) + d->hidden;
}

static treadle_status take_tables(treadle_pass *p) {
  treadle_pass_groups *g = &p->ranks.groups;
  const size_t ranks = (size_t)g->set->count, experts = (size_t)p->transformer->routing.experts;
  g->group = treadle_arena_alloc_array(&p->arena, ranks, sizeof *g->group);
  g->place = treadle_arena_alloc_array(&p->arena, ranks, sizeof *g->place);
  g->shares = treadle_arena_alloc_array(&p->arena, ranks, sizeof *g->shares);
  g->filled = treadle_arena_alloc_array(&p->arena, ranks, sizeof *g->filled);
  g->begin = treadle_arena_alloc_array(&p->arena, (size_t)g->count + 1, sizeof *g->begin);
  g->chosen = treadle_arena_alloc_array(&p->arena, experts, sizeof *g->chosen);
  g->first = treadle_arena_alloc_array(&p->arena, experts, sizeof *g->first);
  g->start = treadle_arena_alloc_array(&p->arena, experts, sizeof(*g->start));
  if (g->group && g->place && g->shares && g->filled && g->begin && g->chosen && g->first && g->start)
    return TREADLE_OK;
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d groups of ranks", g->count);
}

static int group_of(const treadle_replica *r, int rank) {
  int position = 0;
  while (r->ranks[position] != rank) position++;
  return r->groups[position];
}

treadle_status treadle_pass_join_groups(treadle_pass *p, int32_t stage, const treadle_pass_board *room) {
  treadle_pass_groups *g = &p->ranks.groups;
  const treadle_replica *r = p->replica;
  const int colour = (int)r->number * TREADLE_REPLICA_RANKS + stage;
  const uint64_t at = treadle_exchange_memory(room->within) + treadle_exchange_memory(room->across);
  treadle_status status;
  TRY(treadle_board_split(p->ranks.board, colour, &g->set));
  TRY(treadle_exchange_create(g->set, at, room->between, &g->exchange));
  if (g->group) goto out; /* as when it met before */
  g->count = r->group_count;
  g->own = r->groups[r->position];
  TRY(take_tables(p));
  for (int m = 0; m < g->set->count; m++) {
    g->group[m] = group_of(r, g->set->ranks[m]);
    for (int k = 0; k < m; k++) g->place[m] += g->group[k] == g->group[m];
  }
  for (int m = 0; m < g->set->count; m++)
    for (int k = 0; k < g->set->count; k++) g->shares[m] += g->group[k] == g->group[m];
out:
  return status;
}

/* ---- Rows ----------------------------------------------------------------------------------------------- */

/* What a rank brings: matrices of its own number of rows. */
static treadle_exchange_part part_of(const treadle_pass_groups *g, int64_t rows, int64_t columns) {
  return treadle_exchange_slot(g->set->count, g->set->index, true, rows, columns);
}

treadle_status treadle_pass_count_rows(treadle_pass *p, int64_t rows, int64_t *all_p) {
  treadle_pass_groups *g = &p->ranks.groups;
  treadle_status status = TREADLE_OK;
  *all_p = rows;
  if (!g->set) return TREADLE_OK;
  const treadle_exchange_part part = part_of(g, rows, 0);
  TRY(treadle_parallel_slots(g->exchange, &part, "rows of all groups"));
  for (int m = 0; m < g->set->count; m++)
    (void)treadle_parallel_slot(g->exchange, m, &g->begin[g->group[m] + 1]);
  for (int k = 0; k < g->count; k++) g->begin[k + 1] += g->begin[k];
  *all_p = g->begin[g->count];
out:
  treadle_pass_tell(p, status);
  return status;
}

void treadle_pass_divide_rows(treadle_pass *p, int64_t rows) {
  treadle_pass_groups *g = &p->ranks.groups;
  if (!g->set) return;
  for (int k = 0; k < g->count; k++) g->begin[k] = treadle_context_span(rows, p->context.ranks, k).first;
  g->begin[g->count] = rows;
}

/* Rows of a group that the round has. */
static treadle_row_range rows_of(const treadle_pass_groups *g, int group) {
  const int64_t first = treadle_larger(g->begin[group], g->round),
                end = treadle_smaller(g->begin[group + 1], g->end);
  return (treadle_row_range){first, treadle_larger(first, end)};
}

/* And those of them that a rank of the set brings. */
static treadle_row_range share_of(const treadle_pass_groups *g, int member) {
  const treadle_row_range rows = rows_of(g, g->group[member]);
  const int64_t first = rows.first, count = rows.end - rows.first;
  return (treadle_row_range){first + count * g->place[member] / g->shares[member],
                             first + count * (g->place[member] + 1) / g->shares[member]};
}

static float *copy_row(const treadle_pass *p, const float *x, int64_t row, float *to) {
  const int64_t hidden = p->transformer->hidden;
  memcpy(to, x + row * hidden, (size_t)hidden * sizeof *to);
  return to + hidden;
}

treadle_status treadle_pass_bring_rows(treadle_pass *p, const treadle_group_rows *own) {
  const treadle_pass_groups *g = &p->ranks.groups;
  const int64_t top = p->transformer->routing.top,
                columns = (p->transformer->hidden + top) * (own->dy ? 2 : 1);
  const treadle_row_range mine = share_of(g, g->set->index);
  const treadle_exchange_part part = part_of(g, mine.end - mine.first, columns);
  float *to = treadle_exchange_room(g->exchange);
  int64_t others;
  treadle_status status;
  for (int64_t row = mine.first - g->begin[g->own]; row < mine.end - g->begin[g->own]; row++) {
    const treadle_routed *routed = own->routed + row * top;
    to = copy_row(p, own->x, row, to);
    for (int64_t k = 0; k < top; k++) *to++ = (float)routed[k].expert;
    if (!own->dy) continue;
    to = copy_row(p, own->dy, row, to);
    for (int64_t k = 0; k < top; k++) *to++ = routed[k].weight;
  }
  TRY(treadle_parallel_slots(g->exchange, &part, "rows for experts"));
  for (int m = 0; m < g->set->count; m++) {
    const treadle_row_range theirs = share_of(g, m);
    const float *from = treadle_parallel_slot(g->exchange, m, &others);
    for (int64_t row = theirs.first; row < theirs.end; row++, from += columns)
      p->buffers.brought[row - g->round] = from;
  }
out:
  return status;
}

void treadle_pass_place_rows(treadle_pass *p) {
  treadle_pass_groups *g = &p->ranks.groups;
  const treadle_pass_ranks *r = &p->ranks;
  const treadle_pass_buffers *b = &p->buffers;
  const int64_t hidden = p->transformer->hidden, top = p->transformer->routing.top,
                experts = p->transformer->routing.experts, rows = g->end - g->round;
  memset(g->chosen, 0, (size_t)experts * sizeof *g->chosen);
  memset(g->filled, 0, (size_t)g->set->count * sizeof *g->filled);
  for (int64_t i = 0; i < rows * top; i++)
    b->turns[i] = g->chosen[(int32_t)b->brought[i / top][hidden + i % top]]++;
  for (int64_t e = 0, at = 0; e < experts; at += g->chosen[e++]) {
    g->first[e] = at;
    for (int32_t n = 0; n < r->expert_node_count[e]; n++) {
      int64_t *filled = &g->filled[r->expert_nodes[e][n].member];
      g->start[e][n] = *filled;
      *filled += g->chosen[e];
    }
  }
  for (int64_t i = 0; i < rows * top; i++)
    b->places[g->first[(int32_t)b->brought[i / top][hidden + i % top]] + b->turns[i]] = i / top;
}

/* ---- Results -------------------------------------------------------------------------------------------- */

typedef struct gathering {
  const treadle_pass *pass;
  const int64_t *places;
  int64_t rows;
} gathering;

static void gather_rows(void *context, int32_t index, int32_t count) {
  const gathering *w = context;
  const int64_t hidden = w->pass->transformer->hidden, end = w->rows * (index + 1) / count;
  for (int64_t i = w->rows * index / count; i < end; i++)
    memcpy(w->pass->buffers.gathered + i * hidden, w->pass->buffers.brought[w->places[i]],
           (size_t)hidden * sizeof(float));
}

int64_t treadle_pass_group_start(const treadle_pass *p, int32_t expert) {
  const treadle_pass_groups *g = &p->ranks.groups;
  int32_t n = 0;
  while (p->ranks.expert_nodes[expert][n].member != g->set->index) n++;
  return g->start[expert][n];
}

/* Its results lie in the room as products leave them, node after node. */
static treadle_status run_expert(treadle_pass *p, int32_t layer, int32_t expert) {
  const treadle_pass_groups *g = &p->ranks.groups;
  const treadle_gated mlp = treadle_pass_expert_of(p, layer, expert);
  const int64_t hidden = p->transformer->hidden, rows = g->chosen[expert];
  treadle_status status = TREADLE_OK;
  if (!rows) return TREADLE_OK;
  float *room = treadle_exchange_room(g->exchange) + treadle_pass_group_start(p, expert) * hidden;
  for (int64_t at = 0; at < rows; at += TREADLE_EXPERT_ROWS) {
    gathering block = {.pass = p,
                       .places = p->buffers.places + g->first[expert] + at,
                       .rows = treadle_smaller(rows - at, TREADLE_EXPERT_ROWS)};
    treadle_pass_share(p, gather_rows, &block, block.rows * hidden);
    TRY(treadle_pass_gated(p, &mlp, p->buffers.gathered, block.rows, room + at * hidden, rows * hidden));
  }
out:
  return status;
}

const float *treadle_pass_group_slot(const treadle_pass *p, const treadle_expert_results *results,
                                     int32_t expert, int64_t place) {
  const treadle_pass_groups *g = &p->ranks.groups;
  const int64_t hidden = p->transformer->hidden;
  const int64_t turn =
      p->buffers.turns[place + (g->begin[g->own] - g->round) * p->transformer->routing.top];
  const treadle_expert_node *nodes = p->ranks.expert_nodes[expert];
  const float *values[TREADLE_LEAVES_MOST];
  int64_t others;
  for (int32_t n = 0; n < p->ranks.expert_node_count[expert]; n++)
    values[n] = treadle_parallel_slot(g->exchange, nodes[n].member, &others) +
                (results->at ? g->filled[nodes[n].member] * hidden : 0) +
                (g->start[expert][n] + turn) * results->each;
  return treadle_pass_combine_nodes(p, expert, values, results->each,
                                    p->buffers.slots + place / p->transformer->routing.top * hidden);
}

treadle_status treadle_pass_show_results(const treadle_pass *p, int64_t rows) {
  const treadle_pass_groups *g = &p->ranks.groups;
  const treadle_exchange_part part = part_of(g, rows, p->transformer->hidden);
  return treadle_parallel_slots(g->exchange, &part, "results of experts");
}

static treadle_status run_round(void *context, int32_t layer, const treadle_row_range *rows) {
  treadle_pass *p = context;
  const treadle_pass_groups *g = &p->ranks.groups;
  const treadle_group_rows own = {.x = p->buffers.normed, .routed = p->buffers.routed};
  treadle_status status;
  TRY(treadle_pass_bring_rows(p, &own));
  treadle_pass_place_rows(p);
  for (int32_t e = 0; e < p->transformer->routing.experts; e++)
    if (p->ranks.brings[e]) TRY(run_expert(p, layer, e));
  TRY(treadle_pass_show_results(p, g->filled[g->set->index]));
  if (rows->end > rows->first) treadle_pass_add_slots(p, layer, rows->first, rows->end - rows->first);
out:
  return status;
}

treadle_status treadle_pass_each_round(treadle_pass *p, int32_t layer, treadle_group_work work,
                                       void *context) {
  treadle_pass_groups *g = &p->ranks.groups;
  treadle_status status = TREADLE_OK;
  for (g->round = 0; g->round < g->begin[g->count]; g->round = g->end) {
    g->end = treadle_smaller(g->round + treadle_pass_round_rows(p), g->begin[g->count]);
    treadle_row_range own = rows_of(g, g->own);
    own.first -= g->begin[g->own], own.end -= g->begin[g->own];
    TRY(work(context, layer, &own));
  }
out:
  return status;
}

treadle_status treadle_pass_run_groups(treadle_pass *p, int32_t layer) {
  return treadle_pass_each_round(p, layer, run_round, p);
}
