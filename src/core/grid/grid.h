/* A grid layout: a mesh of ranks, pipeline tables, and the rules of a family's engine section. Megatron,
 * vLLM, SGLang and Hugging Face are grids; each has one file that turns its text into a grid.
 *
 * All ranks of a stage have the same storage tensors; only the shard differs. So a grid keeps one table for each
 * stage (as large as the model's list of tensors), and everything about a rank is computed from its stage and its indices. */
#ifndef TREADLE_GRID_GRID_H
#define TREADLE_GRID_GRID_H

#include "grid/slots.h"
#include "grid/stages.h"
#include "layout/layout.h"

/* A rule as it is used: which mesh dimension cuts, how many rows with padding, and what its parts look like. */
typedef struct treadle_grid_rule {
  const treadle_rule *rule;
  const treadle_name *name;
  int run; /* rules of one storage tensor an expert that are listed expert by expert have the same */
  const treadle_dim *over; /* NULL: not cut */
  const treadle_dim *ep;   /* places experts; NULL: not of experts */
  int64_t shards;          /* over->size, 1 when not cut */
  int64_t padded_rows;     /* of the whole vocabulary; 0: not padded */
  int64_t round, least;    /* as in the rule; 0: nothing is said */
  int64_t shown[TREADLE_MAX_DIMS];
  bool by_layer;   /* its condition speaks of l */
  bool transposed; /* stored with rows and columns exchanged, after it is cut */
  int64_t
      refined; /* block scales: rows and columns of a finer block that the engine repeats scales for; 0 */
  int64_t blocks_in_one; /* ... a block is this many of them in each direction */
  int64_t rows[TREADLE_MAX_PARTS],
      columns[TREADLE_MAX_PARTS]; /* block scales: of the weights, in elements */
  int nparts, also;               /* as in the rule; without its `also` where experts are not fused */
  treadle_part_shape parts[TREADLE_MAX_PARTS];
} treadle_grid_rule;

/* The storage tensors of a stage are the same for all its ranks, but where ep does not divide the experts: then ranks
 * with one expert more (variant 0) and one less (1) have a table each, of the same storage tensors in other
 * places. */
typedef struct treadle_grid_stage {
  int32_t count;
  treadle_storage *storages;
  int32_t public_count;
  int64_t window_bytes;
} treadle_grid_stage;

typedef struct treadle_holder { /* a part of a canonical tensor in a storage tensor */
  int32_t stage, storage, part;
} treadle_holder;

/* A region of a tensor with the holders that are cut alike: the cells' holders. The regions of a tensor tile it;
 * experts are not part of the picture. */
typedef struct treadle_region {
  int32_t holder_first, holder_count;
} treadle_region;

typedef struct treadle_grid {
  treadle_mesh mesh;
  const treadle_dim *pp; /* of the mesh */
  const treadle_dim *ep; /* NULL: no experts are placed */
  const char *outer;     /* before names, "" for nothing */
  int32_t rule_count;
  treadle_grid_rule *rules;
  int32_t stage_count, variants;
  treadle_grid_stage *stages; /* [stage_count * variants] */
  int64_t window_bytes_max;
  const treadle_slots **slots; /* by layer; NULL without experts */
  int32_t *holder_first;       /* [tensors + 1] into holders */
  treadle_holder *holders;
  int32_t *region_first; /* [tensors + 1] into regions */
  treadle_region *regions;
  uint64_t *placement;   /* [tensors] */
  treadle_dtype *dtypes; /* [tensors] */
  int8_t *adds;          /* [tensors] */
  treadle_arena arena;
} treadle_grid;

typedef struct treadle_number { /* a name in conditions of rules, beside the mesh's and the model's */
  const char *name;
  int64_t value;
} treadle_number;

enum { TREADLE_MAX_NUMBERS = 12 };

/* What a type of layout says to make a grid. */
typedef struct treadle_grid_spec treadle_grid_spec;
struct treadle_grid_spec {
  treadle_mesh mesh; /* has a dimension pp and, where experts are to be placed, ep */
  treadle_chunks chunks;
  const treadle_rule *rules;
  int32_t rule_count;
  const char *spec;        /* of rules; NULL: those without */
  const char *outer;       /* what stands before names, or NULL */
  bool refines_blocks;     /* experts that are cut inside of fp8 blocks get finer blocks (vLLM) */
  bool transposes_experts; /* stores the matrices of routed experts transposed (SGLang's triton_kernels) */
  bool local_numbers;      /* layer numbers in names restart at 0 in every chunk (Megatron) */
  const treadle_slots **slots; /* by layer, of all of them; needed where the model has experts */
  treadle_number numbers[TREADLE_MAX_NUMBERS];
  int number_count;
  int64_t (*padded_rows)(const void *context, int64_t rows, int64_t shards);
  const void *context;
  treadle_dtype dtype; /* of all parameters, whatever else is said; NONE: each its own */
  /* Flat layouts: lays the parameters of all stages into units, when storage tensors are known. Or NULL. */
  treadle_status (*lay)(treadle_layout *layout, treadle_grid *grid, const treadle_grid_spec *spec,
                        const void *lay_context);
  const void *lay_context;
};

void treadle_grid_number(treadle_grid_spec *spec, const char *name, int64_t value);
/* Evaluates a condition or trait of the family: mesh sizes, numbers of the spec, then the model's names. layer -1: l
 * is not a name. */
treadle_status treadle_grid_evaluate(const treadle_layout *layout, const treadle_grid_spec *spec,
                                     const char *what, const char *text, int64_t layer, int64_t *value_p);
/* Refuses the layout unless the engine's requirements hold. */
treadle_status treadle_grid_require(const treadle_layout *layout, const treadle_grid_spec *spec,
                                    const treadle_engine_rules *engine);
/* The value of a trait of the engine; `otherwise` when the family says nothing. */
treadle_status treadle_grid_trait(const treadle_layout *layout, const treadle_grid_spec *spec,
                                  const treadle_engine_rules *engine, const char *name, int64_t otherwise,
                                  int64_t *value_p);
/* The same of a trait that asks for a layer. */
treadle_status treadle_grid_trait_at(const treadle_layout *layout, const treadle_grid_spec *spec,
                                     const treadle_engine_rules *engine, const char *name, int64_t layer,
                                     int64_t otherwise, int64_t *value_p);

/* Gives a layout an empty grid, which the layout ends; its arena is for what the spec points to. */
treadle_status treadle_grid_start(treadle_layout *layout, treadle_grid **grid_p);
/* Fills the grid. What spec points to lives in the grid's arena or with the model, but for `context`. */
treadle_status treadle_grid_build(treadle_layout *layout, treadle_grid *grid,
                                  const treadle_grid_spec *spec);

/* ---- Cutting (cut.c): pure geometry of one part of one storage tensor ---- */

typedef struct treadle_part {
  treadle_box box;
  int64_t offset;                   /* elements inside the storage tensor */
  int64_t stride[TREADLE_MAX_AXES]; /* elements */
} treadle_part;

typedef TREADLE_ARRAY(treadle_part) treadle_parts;

/* Refuses what does not divide; gives the local shape, of one expert where there are experts. */
treadle_status treadle_cut_shape(const char *what, const struct treadle_model *model,
                                 const treadle_grid_rule *rule, treadle_storage *storage);
/* The same three for block scales on a finer grid (blocks.c). */
void treadle_refined_shape(const treadle_grid_rule *rule, treadle_storage *storage);
treadle_status treadle_refined_part(const treadle_grid_rule *rule, int position, int64_t shard, bool once,
                                    treadle_parts *parts);
void treadle_refined_shards(const treadle_grid_rule *rule, int position, const treadle_box *box,
                            int64_t *first_p, int64_t *last_p);
/* Appends where part `position` of a storage tensor lies on shard `shard`, in canonical order, in axes of the part.
 * `once`: only the first place of elements that the storage tensors of all shards have several times. */
treadle_status treadle_cut_part(const treadle_grid_rule *rule, const treadle_storage *storage, int position,
                                int64_t shard, bool once, treadle_parts *parts);
/* What is padding behind part `position` on every shard (rule->least), of one expert where there are experts: sizes and
 * strides of a box, dense in the last axis; elems 0: nothing. */
typedef struct treadle_gap {
  int64_t elems, offset; /* elements inside the storage tensor */
  int ndim;
  int64_t size[2], stride[2];
} treadle_gap;
treadle_gap treadle_cut_gap(const treadle_grid_rule *rule, int position);
/* The shards whose boxes may meet `box` (axes of the part); and how many shards in a row have the same
 * (*repeat_p), of which only the first is to be looked at. */
void treadle_cut_shards(const treadle_grid_rule *rule, const treadle_storage *storage, int position,
                        const treadle_box *box, int64_t *first_p, int64_t *last_p, int64_t *repeat_p);
/* A part in canonical axes: box, and strides in elements. The expert axis is whole and has stride 0. */
void treadle_part_canonical(const treadle_part_shape *shape, const treadle_part *part, treadle_box *box_p,
                            int64_t *stride);
/* What of a canonical box the part has, in its own axes; false: nothing. */
bool treadle_part_seen(const treadle_part_shape *shape, const treadle_box *box, treadle_box *seen_p);

/* ---- What files of grids, and flat layouts, which are made of grids, share ---- */

/* Lists, by canonical tensor, its regions and their holders (holders.c). Refuses a tensor that no rank has. */
treadle_status treadle_grid_list_holders(treadle_layout *layout, treadle_grid *grid);

/* Refuses a rule of block scales whose weights are cut inside of blocks, or refines its blocks (blocks.c). */
treadle_status treadle_grid_check_blocks(const treadle_layout *layout, bool refines,
                                         treadle_grid_rule *rule);
/* The storage tensor that a holder of a cell has it in. */
const treadle_holder *treadle_grid_holder(const treadle_grid *grid, const treadle_cell *cell,
                                          int64_t holder);

/* ---- Of all of them ---- */

static inline const treadle_grid *treadle_grid_of(const treadle_layout *layout) { return layout->state; }

static inline int64_t treadle_grid_index(const treadle_dim *dim, int64_t layout_rank) {
  return dim ? treadle_dim_index(dim, layout_rank) : 0;
}

/* Which of the tables of a stage is that of a rank of ep. */
static inline int32_t treadle_grid_variant(const treadle_grid *grid, int64_t ep_rank) {
  if (grid->variants == 1) return 0;
  const treadle_slots *slots = grid->slots[0];
  return ep_rank >= slots->count % slots->ep;
}

/* ---- Who has this box? As the functions of treadle_layout_ops (cells.c) ---- */

treadle_status treadle_grid_cells(const treadle_layout *layout, int32_t tensor, const treadle_box *box,
                                  treadle_cells *cells);
int64_t treadle_grid_cell_rank(const treadle_layout *layout, const treadle_cell *cell, int64_t holder);
int64_t treadle_grid_cell_find(const treadle_layout *layout, const treadle_cell *cell, int64_t rank);
int64_t treadle_grid_cell_locate(const treadle_layout *layout, const treadle_cell *cell, int64_t holder,
                                 const int64_t **stride_p);
bool treadle_grid_cell_is_plain(const treadle_layout *layout, const treadle_cell *cell);

extern const treadle_layout_ops treadle_grid_ops;

#endif
