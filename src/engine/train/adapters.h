/* LoRA: adapters of a trainer's matrices, which train in place of them (adapter/adapter.h has the rules).
 *
 * A rank has of an adapter what goes with its part of the matrix: the columns of A that its columns are, the rows of B that its rows are. A
 * and B are fp32, the masters of their optimizer; of the base there is neither gradient nor state. Passes multiply by merged matrices, made in
 * place of the base's for one unit at a time, a layer or the head, to which the segments of the weights point.
 *
 *   adapters.c         which there are, and how they lie
 *   adapters_merge.c   merged matrices of a unit
 *   adapters_back.c    gradients
 *   adapters_latent.c  those of the matrix that heads of latent attention multiply in two halves
 *   adapters_products.h  the products of both
 *   adapters_state.c   what they begin with, and their files
 *   adapters_fold.c    all of them on each rank, and merged into windows of other layouts
 *   adapters_derived.h   what these derive of merged matrices
 *
 * NULL stands for a trainer without adapters. */
#ifndef TREADLE_TRAIN_ADAPTERS_H
#define TREADLE_TRAIN_ADAPTERS_H

#include "adapter/adapter.h"
#include "train/back_product.h"
#include "train/ranks.h"
#include "train/shards.h"
#include "train/windows.h"

/* A target on this rank. */
typedef struct treadle_train_target {
  int32_t number;              /* in adapter->matrices; -1: the matrix has no adapter */
  const treadle_segment *base; /* [segments of the weight] where the matrix lies */
  treadle_segment *merged;     /* and where it does once it is merged */
  int64_t at_a, at_b; /* elements before A [rank, columns here] and B [rows here, rank] in the windows */
} treadle_train_target;

typedef struct treadle_train_adapters {
  treadle_adapter *adapter;
  treadle_back *back;
  const treadle_train_windows *windows;
  treadle_train_target (*targets)[TREADLE_ROLES]; /* [layers + 2] by unit, as shards.h numbers them */
  size_t merged_bytes;                            /* of the largest unit */
  int64_t widest, rows;                           /* the most columns or rows of a matrix here; tokens */
  char *merged;                                   /* [merged_bytes] */
  float *panels;                                  /* A or B as tiles are multiplied: of one matrix */
  float *inner, *outer;                           /* [rows, rank] what A gives of x, what B gives of dy */
  float *by_leaf; /* [leaves of o, rank, latent]: gradients of A of kv_up; NULL: it has no adapter */
  float *blocks;                                  /* of each thread: [block_each] */
  int64_t block_each;
  int32_t present; /* the unit that is merged; -1: none */
  int32_t renewed; /* the layer whose copies the pass has made of what it multiplies by; -1: none */
  const float *x;  /* what the matrices multiplied whose gradients come next */
  int64_t x_stride;
  bool base_alone;      /* passes compute without the adapters */
  uint64_t seed;        /* of random A */
  const char *folder;   /* of adapters to begin with; NULL: random ones */
  bool gathers;         /* this rank can have all adapters */
  float *all;           /* then: [elems] those of the last gathering */
  bool saves_merged;    /* the weights with the adapters in them are saved, too */
  uint64_t base_digest; /* of the weights beside the adapters, once they are loaded */
} treadle_train_adapters;

/* ---- trainer.c ---- */

/* Refused: what options of a trainer say of adapters that this model cannot have. */
treadle_status treadle_train_check_adapters(const treadle_model *model, const treadle_trainer_options *options);

/* ---- adapters.c ---- */

/* The parts of a trainer that adapters work on; the arena has their memory. */
typedef struct treadle_train_adapter_parts {
  treadle_back *back; /* whose pass has its weights */
  treadle_train_windows *windows;
  treadle_arena *arena;
  const struct treadle_train_shards *shards; /* NULL: the layout is not sharded */
  bool plans;                                /* only how large they are is wanted */
} treadle_train_adapter_parts;

/* Finds the targets, the layout of the adapters' window and its bytes; takes the adapter over, whatever is returned. Refused: adapters of
 * matrices that training does not take. */
treadle_status treadle_train_open_adapters(const treadle_train_adapter_parts *of, treadle_adapter *adapter,
                                           treadle_train_adapters **adapters_p);
void treadle_train_close_adapters(treadle_train_adapters *adapters);
/* Memory of a pass forward, then that of backward, in elements of floats; and where it lies. */
int64_t treadle_train_panel_values(const treadle_train_adapters *adapters);
int64_t treadle_train_block_values(const treadle_train_adapters *adapters);
int64_t treadle_train_adapter_leaf_values(const treadle_train_adapters *adapters);
/* Elements that this rank brings at most when ranks of a stage add up what adapters give. */
int64_t treadle_train_adapter_room(const treadle_train_adapters *adapters);
/* Of what this rank answers for of all gradients: each part. */
treadle_status treadle_train_each_adapter(const treadle_train_adapters *adapters,
                                          void (*look)(void *context, const float *values, int64_t count),
                                          void *context);
/* Passes compute with the base alone, or with the adapters. */
void treadle_train_leave_adapters(treadle_train_adapters *adapters, bool base_alone);

static inline int32_t treadle_train_adapter_units(const treadle_train_adapters *adapters) {
  return (int32_t)adapters->back->transformer->layers + 2;
}
/* What this rank has of the matrix of a target. */
static inline treadle_weight *treadle_train_target_weight(const treadle_train_adapters *adapters,
                                                          int32_t unit, int role) {
  treadle_pass *pass = adapters->back->pass;
  return role == TREADLE_ROLE_HEAD ? &pass->head : &pass->layers[unit].weight[role];
}

/* The type of what the optimizer takes steps of. */
static inline treadle_dtype treadle_train_trained_dtype(const treadle_back *back) {
  return back->adapters ? TREADLE_FP32 : back->pass->options.dtype;
}

/* ---- adapters_merge.c ---- */

/* The matrices of a unit are merged, unless passes compute with the base alone; and what the pass makes of them is made. */
void treadle_train_merge(treadle_train_adapters *adapters, int32_t unit);
/* Weights or adapters have changed, or work memory was lost. */
void treadle_train_forget_merged(treadle_train_adapters *adapters);

/* ---- adapters_back.c ---- */

/* As treadle_back_take_rows and treadle_back_weight. */
void treadle_train_adapter_rows(treadle_train_adapters *adapters, const float *x, int64_t stride);
treadle_status treadle_train_adapter_back(treadle_train_adapters *adapters, const treadle_back_term *term,
                                          int64_t rows);

/* ---- adapters_latent.c ---- */

/* Around all heads of the present layer; NULL: nothing to do. */
void treadle_train_adapter_begin_heads(const treadle_train_adapters *adapters);
treadle_status treadle_train_adapter_end_heads(const treadle_train_adapters *adapters, int64_t rows);
/* A head's rows of kv_up for keys or values, from `row` on: share rows, which gave or were given dy; what they
 * multiplied is that of treadle_train_adapter_rows. */
treadle_status treadle_train_adapter_head(const treadle_train_adapters *adapters,
                                          const treadle_back_term *term, int64_t head, int64_t row,
                                          int64_t rows);

/* ---- adapters_state.c ---- */

/* A is uniform in [-1, 1) / sqrt(columns), which is what peft's kaiming_uniform(a=sqrt(5)) comes to, as a function of seed, name and canonical
 * index; B is 0. Or those of the folder. NULL: nothing to do. */
treadle_status treadle_train_begin_adapters(const treadle_train_adapters *adapters);
/* Where the weights beside adapters may say which ones they have in them. */
static inline treadle_adapter_folders treadle_train_marked(const treadle_model *base) {
  return (treadle_adapter_folders){{base->folder, base->values.folder}};
}
/* This rank's part of the values of all adapters, or the other way round. */
void treadle_train_take_adapters(const treadle_train_adapters *adapters, const float *all, float *own);
/* Values of a safetensors file into `own`, a window. */
treadle_status treadle_train_load_adapters(const treadle_train_adapters *adapters, const char *path,
                                           float *own);
/* Takes the adapters of peft's folder, which must be those of this trainer. begins: training begins with them, and
 * weights that have them in them already are refused. */
treadle_status treadle_train_open_adapter_folder(const treadle_train_adapters *adapters, const char *folder,
                                                 bool begins);

/* ---- adapters_fold.c ---- */

/* Values of all adapters, [elems], from the ranks that have them. Collective. */
treadle_status treadle_train_gather_adapters(const treadle_train_adapters *adapters,
                                             const treadle_train_ranks *ranks, float *all);
/* Merges them into the matrices that a rank has of the base in another layout, in place. Refused: values of another type than the base has
 * here. */
treadle_status treadle_train_fold_adapters(const treadle_train_adapters *adapters, const float *all,
                                           const treadle_layout *layout, int64_t rank, char *window);

#endif
