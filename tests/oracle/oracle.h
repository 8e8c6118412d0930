/* The oracle of layouts: which canonical element lies where, written down element by element.
 *
 * It is the second opinion that the library's layouts and plans are tested against: plain loops over
 * rows and columns, one function per rule of docs on layouts ("Weight layouts: the facts", whose section
 * numbers stand beside each rule), and it shares no code and no header with src/layout or src/plan. It is
 * slow and big on purpose: every local element is one entry of an array. Models of up to some 1e5 elements.
 *
 * Families: llama, qwen2 and qwen3 (a config.json object in Hugging Face's words).
 *
 * Layouts (sizes of 1 may be left out; a value with commas stands in double quotes):
 *   hf                 every rank has every canonical tensor        hf:root=R   rank R only
 *   megatron:          tp pp vpp cp dp order first last embedding_split=on loss_split=on layout="Et|tL"
 *                      padded_vocab_size vocab_divisible_by (128) spec=te|local; what is left is dp
 *   vllm:              tp pp dp pcp partition="1,3,1"; what is left is engine replicas, slowest
 *   sglang:            tp pp attn_dp attn_cp partition; the same
 * dtype= is accepted and says nothing here. ep=1 and ep=off are accepted: these families have no experts.
 *
 * Memory: everything made here is ended by oracle_model_free and oracle_layout_free; when memory is out the
 * program ends, as it is a test. */
#ifndef TREADLE_TESTS_ORACLE_H
#define TREADLE_TESTS_ORACLE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- The model ------------------------------------------------------------------------------- */

typedef struct oracle_tensor { /* a canonical tensor: Hugging Face's name, row-major shape */
  char name[96];
  int32_t layer; /* -1 outside layers */
  int ndim;
  int64_t shape[2];
  int64_t elems;
  int64_t first; /* elements of all tensors before it */
  uint64_t hash; /* of the name */
} oracle_tensor;

typedef struct oracle_model {
  char type[16];
  int64_t V, H, L, nh, ng, hd, I; /* as in the facts, section 0.2 */
  bool tied, qkv_bias, o_bias, mlp_bias, qk_norm;
  int32_t tensor_count;
  oracle_tensor *tensors;
  int64_t elems;
} oracle_model;

/* NULL, and a reason in why[200], when the config is not one of the three families or misses a field. */
oracle_model *oracle_model_new(const json_t *config, char why[200]);
void oracle_model_free(oracle_model *model);
/* The tensor of a name, -1 when there is none. A tied lm_head.weight is the embedding. */
int32_t oracle_model_find(const oracle_model *model, const char *name);
/* The value that tests give a canonical element: a hash of the tensor's name and the index. */
uint64_t oracle_value(const oracle_model *model, int32_t tensor, int64_t index);

/* ---- Layouts --------------------------------------------------------------------------------- */

enum { ORACLE_PADDING = -1 };

typedef struct oracle_storage { /* one tensor in the memory of a rank */
  char name[128];               /* the engine's name on that rank */
  int chunk;                    /* virtual pipeline stage */
  int ndim;
  int64_t shape[2];
  int64_t elems;
  int32_t *tensor; /* [elems] the canonical tensor of each local element, ORACLE_PADDING: a zero */
  int64_t *index;  /* [elems] the element of that tensor, row-major; 0 for padding */
} oracle_storage;

typedef struct oracle_rank {
  int count;
  oracle_storage *storages; /* in the order of the engine's named_parameters */
  struct {
    char name[8];
    int64_t index;
  } at[8]; /* coordinates: "tp", "pp", ...; ended by an empty name */
} oracle_rank;

typedef struct oracle_layout {
  const oracle_model *model;
  int64_t ranks;
  oracle_rank *rank; /* [ranks] by physical rank */
} oracle_layout;

/* Makes the layout of `text` on `ranks` ranks. `strides` is the rank map of an inference layout: 1 is
 * contiguous; d puts layout rank i = g * T + t (T = tp of this layout) on physical rank
 * (g / d) * (d * T) + g % d + d * t, and d * T must divide the ranks. NULL and a reason when the layout
 * cannot be. The model must outlive the layout. */
oracle_layout *oracle_layout_new(const oracle_model *model, const char *text, int64_t ranks,
                                 int64_t strides, char why[200]);
void oracle_layout_free(oracle_layout *layout);
/* The coordinate of a rank in a dimension; -1 when the layout has none of that name. */
int64_t oracle_layout_coordinate(const oracle_layout *layout, int64_t rank, const char *dimension);
/* NULL when the rank has no tensor of that name in that chunk. */
const oracle_storage *oracle_layout_find(const oracle_layout *layout, int64_t rank, int chunk,
                                         const char *name);

/* ---- The lower bound of a move --------------------------------------------------------------- */

/* The number of distinct canonical elements that a rank holds. */
int64_t oracle_held(const oracle_layout *layout, int64_t rank);
/* The number of distinct canonical elements that `rank` has in `to` and does not already hold in `from`.
 * Times the bytes of one element it is the least that must travel to the rank. */
int64_t oracle_inbound(const oracle_layout *from, const oracle_layout *to, int64_t rank);
int64_t oracle_inbound_total(const oracle_layout *from, const oracle_layout *to);

#endif
