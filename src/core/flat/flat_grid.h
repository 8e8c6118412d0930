/* A flat grid: a grid whose parameters are laid into units, one behind the other, each of which is cut into
 * equal ranges of addresses, one for each index of a mesh dimension (data parallel ranks). FSDP, ZeRO and the
 * distributed optimizer are flat grids: fsdp.c, zero.c and distopt_layout.c say what lies in which unit.
 *
 * A unit is one storage tensor of the window: the range of this rank. Pieces and cells are those of the grid,
 * clipped (treadle_strided_clip); a cell's ranks have the index of its range as one more fixed dimension.
 * A buffer (a tensor that is not a parameter) is a unit of its own that is not cut. */
#ifndef TREADLE_FLAT_FLAT_GRID_H
#define TREADLE_FLAT_FLAT_GRID_H

#include "flat/flat.h"
#include "grid/grid.h"

/* A parameter: a storage tensor of the grid or, where there is one for each expert, one of them. */
typedef struct treadle_flat_param {
  const treadle_storage *storage; /* of the grid */
  int64_t expert;                 /* its number on the rank; 0 */
  int64_t elems;
  bool buffer;   /* no parameter */
  int32_t unit;  /* -1 until it is laid */
  int64_t start; /* address of its first element */
} treadle_flat_param;

typedef struct treadle_flat_share { /* a unit in a stage, beside its storage tensor in the window */
  const char *name;
  const treadle_dim *over; /* cut by this dimension; NULL: not cut */
  int64_t shard;           /* addresses of each range; of all of it where it is not cut */
  int64_t rows; /* the shape of the range is that of whole rows: all rows, of all ranges; else 0 */
} treadle_flat_share;

typedef struct treadle_flat_gap { /* addresses of a unit that no parameter has */
  int32_t unit;
  treadle_span span;
} treadle_flat_gap;

/* Parameters of one rule in one unit, by address. */
typedef struct treadle_flat_interval {
  int64_t start, end;
  int64_t before; /* elements of the steps before it in its group */
} treadle_flat_interval;
typedef struct treadle_flat_rule_params {
  int32_t unit;
  int32_t first, count; /* of steps */
} treadle_flat_rule_params;

typedef struct treadle_flat_stage {
  int32_t param_count;
  treadle_flat_param *params; /* in named_parameters order, as users would count them in the grid */
  int32_t unit_count;
  treadle_flat_share *units;
  treadle_storage *storages;         /* by unit */
  int32_t *unit_first, *unit_params; /* params of unit u: unit_params[unit_first[u]] and on, by address */
  int32_t gap_count;
  treadle_flat_gap *gaps; /* by unit, ascending */
  int64_t window_bytes;
  treadle_flat_interval *steps;     /* where units hold parameters of many layers; NULL: they do not */
  treadle_flat_rule_params *groups; /* by rule, then unit */
  int32_t *group_first;             /* [rules + 1] */
  /* By rule, [ranges, groups of the rule + 1]: what a rank with that range has in the groups before each. NULL: it is
   * counted where it is asked for. */
  int64_t **ahead;
} treadle_flat_stage;

typedef struct treadle_flat_grid {
  treadle_grid grid; /* first, so that this is a grid too */
  treadle_flat_stage *stages;
  int64_t window_bytes_max;
  int64_t ahead_count; /* entries of such tables of all stages */
  treadle_form *forms; /* by tensor; NULL: a unit has several parameters, or a tensor several */
} treadle_flat_grid;

/* Gives a layout an empty flat grid, which the layout ends. */
treadle_status treadle_flat_start(treadle_layout *layout, treadle_flat_grid **flat_p);

/* ---- For spec.lay: lists the parameters of all stages, then the type lays them, then it is finished ---- */

treadle_status treadle_flat_list(treadle_layout *layout);
/* Adds a unit of `elems` elements a range; param, whose name, layer, chunk and dtype it takes, is a parameter of it.
 * It is a vector; name NULL: the parameter's own. *unit_p is its number in the stage. */
treadle_status treadle_flat_unit_add(treadle_layout *layout, int32_t stage, const treadle_flat_param *param,
                                     const char *name, const treadle_dim *over, int64_t elems,
                                     int32_t *unit_p);
/* The whole of `lay` for a type in whose only stage each parameter is a unit of its own. by_rows: cut in whole rows, its
 * shape stays (FSDP2); otherwise as ceil(elems / ranks) elements. dp NULL: not cut. */
treadle_status treadle_flat_lay_each(treadle_layout *layout, const treadle_dim *dp, bool by_rows);
/* Lays buffers, notes gaps and where everything lies in windows. long_units: a unit holds parameters of many layers,
 * so that a layer's cells are not those of another one; then cells say where they come among their type on a rank. */
treadle_status treadle_flat_finish(treadle_layout *layout, bool long_units);

/* Of a stage with long units (order.c): makes its steps; and fills a cell's before, weight and total: of `param`
 * in range `range` of its unit. */
treadle_status treadle_flat_order(treadle_flat_grid *flat, treadle_flat_stage *stage);
void treadle_flat_place_in_order(const treadle_flat_stage *stage, const treadle_flat_param *param,
                                 int64_t range, treadle_cell *cell);

/* ---- Between the files of flat grids ---- */

static inline const treadle_flat_grid *treadle_flat_of(const treadle_layout *layout) {
  return (const treadle_flat_grid *)layout->state;
}

static inline const treadle_flat_stage *treadle_flat_stage_at(const treadle_flat_grid *flat,
                                                              int64_t layout_rank) {
  return &flat->stages[treadle_dim_index(flat->grid.pp, layout_rank)];
}

/* The range of a unit that a rank has. */
static inline int64_t treadle_flat_range(const treadle_flat_share *unit, int64_t layout_rank) {
  return unit->over ? treadle_dim_index(unit->over, layout_rank) : 0;
}

static inline const treadle_storage *treadle_flat_grid_storage(const treadle_flat_grid *flat, int32_t stage,
                                                               int32_t index) {
  return &flat->grid.stages[stage].storages[index];
}

/* The parameter that is, or holds for expert `number` of the rank, a storage tensor of the grid. */
static inline const treadle_flat_param *
treadle_flat_param_of(const treadle_flat_stage *stage, const treadle_storage *storage, int64_t number) {
  return &stage->params[storage->public_first + number * storage->run + storage->run_at];
}

/* When the grid is built: notes which tensors lie alike, where each parameter is a unit of its own (forms.c). */
treadle_status treadle_flat_make_forms(treadle_layout *layout);

/* What a rank has (pieces.c): of all, of one storage tensor, of one tensor. */
treadle_status treadle_flat_pieces(const treadle_layout *layout, int64_t rank, treadle_pieces *pieces);
treadle_status treadle_flat_pieces_in(const treadle_layout *layout, int64_t rank, int32_t unit,
                                      treadle_pieces *pieces);
treadle_status treadle_flat_pieces_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                      treadle_pieces *pieces);
treadle_status treadle_flat_bundles_of(const treadle_layout *layout, int64_t rank, int32_t tensor,
                                       treadle_pieces *pieces);

#endif
