/* A grid layout: a mesh of ranks, pipeline tables, and the rules of a family's engine section. Megatron,
 * vLLM, SGLang and Hugging Face are grids; each has one file that turns its text into a grid.
 *
 * The storage tensors of a stage are the same for all its ranks, but for the shard: so a grid keeps one table
 * a stage (model-sized), and everything about a rank is computed from its stage and its indices. */
#ifndef TREADLE_LAYOUT_GRID_H
#define TREADLE_LAYOUT_GRID_H

#include "layout/layout.h"
#include "layout/stages.h"

/* A rule as it is used: which mesh dimension cuts, and how many rows with padding. */
typedef struct treadle_grid_rule {
  const treadle_rule *rule;
  const treadle_dim *over; /* NULL: not cut */
  int64_t shards;          /* over->size, 1 when not cut */
  int64_t padded_rows;     /* of the whole vocabulary; 0: not padded */
} treadle_grid_rule;

typedef struct treadle_grid_stage {
  int32_t count;
  treadle_storage *storages;
  int64_t window_bytes;
} treadle_grid_stage;

typedef struct treadle_holder { /* a canonical tensor as a part of a storage tensor */
  int32_t stage, storage, part;
} treadle_holder;

typedef struct treadle_grid {
  treadle_mesh mesh;
  const treadle_dim *pp; /* of the mesh */
  int32_t rule_count;
  treadle_grid_rule *rules;
  int32_t stage_count;
  treadle_grid_stage *stages;
  int64_t window_bytes_max;
  int32_t *holder_first;   /* [tensors + 1] into holders */
  int32_t *holder_primary; /* [tensors] how many of them are cut like the first: the cells' holders */
  treadle_holder *holders;
  uint64_t *placement; /* [tensors] */
  treadle_arena arena;
} treadle_grid;

/* What a kind of layout says to make a grid. */
typedef struct treadle_grid_spec {
  treadle_mesh mesh; /* has a dimension pp */
  treadle_chunks chunks;
  const treadle_rule *rules;
  int32_t rule_count;
  const char *spec;   /* of rules; NULL: those without */
  bool local_numbers; /* layer numbers in names restart at 0 in every chunk (Megatron) */
  int64_t (*padded_rows)(const void *context, int64_t rows, int64_t shards);
  const void *context;
} treadle_grid_spec;

/* Gives a layout an empty grid, which the layout ends; its arena is for what the spec points to. */
treadle_status treadle_grid_start(treadle_layout *layout, treadle_grid **grid_p);
/* Fills the grid. What spec points to lives in the grid's arena or with the model, but for `context`. */
treadle_status treadle_grid_build(treadle_layout *layout, treadle_grid *grid,
                                  const treadle_grid_spec *spec);

/* ---- Cutting (grid_cut.c): pure geometry of one part of one storage tensor ---- */

typedef struct treadle_part {
  treadle_box box;
  int64_t offset;                   /* elements inside the storage tensor */
  int64_t stride[TREADLE_MAX_AXES]; /* elements */
} treadle_part;

typedef TREADLE_ARRAY(treadle_part) treadle_parts;

/* Refuses what does not divide; gives the local shape. */
treadle_status treadle_cut_shape(const char *what, const struct treadle_model *model,
                                 const treadle_grid_rule *rule, treadle_storage *storage);
/* Appends where part `part` of a storage tensor lies on shard `shard`, in canonical order. */
treadle_status treadle_cut_part(const struct treadle_model *model, const treadle_grid_rule *rule,
                                const treadle_storage *storage, int part, int64_t shard,
                                treadle_parts *parts);
/* The shards whose boxes may meet `box`; and how many shards in a row have the same (*repeat_p), of which
 * only the first is to be looked at. */
void treadle_cut_shards(const struct treadle_model *model, const treadle_grid_rule *rule,
                        const treadle_storage *storage, int part, const treadle_box *box, int64_t *first_p,
                        int64_t *last_p, int64_t *repeat_p);

#endif
