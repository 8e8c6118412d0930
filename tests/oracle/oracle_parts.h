/* What the files of the oracle say to each other. */
#ifndef TREADLE_TESTS_ORACLE_PARTS_H
#define TREADLE_TESTS_ORACLE_PARTS_H

#include "oracle/oracle.h"

enum { ORACLE_WHY = 200, ORACLE_NAME = 96 };

/* Keeps a reason; always false, so that a check reads `return oracle_refuse(why, ...)`. */
bool oracle_refuse(char *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Zeroed memory, or the end of the program. */
void *oracle_memory(size_t count, size_t each);

/* ---- The model ------------------------------------------------------------------------------- */

bool oracle_is(const oracle_model *model, const char *type);
void oracle_tensors_make(oracle_model *model);
/* A matrix outside layers. */
void oracle_tensor_add(oracle_model *model, const char *name, int64_t rows, int64_t cols);
/* quantization_config; the scales of all tensors that have blocks, behind the others. */
void oracle_blocks_read(const json_t *config, oracle_model *model);
void oracle_scales_make(oracle_model *model);
/* Hugging Face's name in layer l, or of a tensor outside layers (l < 0). */
void oracle_layer_name(const oracle_model *model, int64_t l, const char *name, char full[ORACLE_NAME]);

typedef struct oracle_names { /* of the parts of a layer with experts, in the files */
  const char *block, *router, *gate, *up, *down, *shared;
} oracle_names;
const oracle_names *oracle_expert_names(const oracle_model *model);

/* ---- Options --------------------------------------------------------------------------------- */

/* A layout text, taken apart: type and key=value pairs. Taking marks a pair as used. */
typedef struct oracle_option {
  char key[32], value[256];
  bool used;
} oracle_option;

typedef struct oracle_options {
  char type[16];
  int count;
  oracle_option list[32];
} oracle_options;

bool oracle_options_parse(const char *text, oracle_options *options, char *why);
/* The value of a key, NULL when it is not there. */
const char *oracle_option_text(oracle_options *options, const char *key);
/* A whole number of at least 1, `otherwise` when it is not there. */
bool oracle_option_number(oracle_options *options, const char *key, int64_t otherwise, int64_t *value_p,
                          char *why);
/* on or off */
bool oracle_option_switch(oracle_options *options, const char *key, bool *on_p, char *why);
/* One of the words, NULL ends them; the first when it is not there. */
bool oracle_option_word(oracle_options *options, const char *key, const char *const *words, int *which_p,
                        char *why);
/* Bytes of an element by dtype=, or by the config. */
int64_t oracle_elem_bytes(const oracle_model *model, oracle_options *options);
/* Refuses a pair that nobody took. */
bool oracle_options_end(const oracle_options *options, char *why);

/* ---- Stages ---------------------------------------------------------------------------------- */

/* Where the decoder layers are: layer l is on stage p[l], in chunk v[l] of it. */
typedef struct oracle_stages {
  int64_t pp, vpp;
  int64_t *p, *v;       /* [layers] */
  int64_t mtp_p, mtp_v; /* the chunk with the MTP layers; -1 without any */
} oracle_stages;

/* Rules 2.1 and 2.2. Takes pp, vpp, first, last, embedding_split, loss_split and layout. */
bool oracle_stages_megatron(int64_t layers, int64_t mtp, oracle_options *options, oracle_stages *stages,
                            char *why);
/* Rules 2.4. Takes pp and partition. */
bool oracle_stages_vllm(int64_t layers, oracle_options *options, oracle_stages *stages, char *why);
/* Rules 2.5. Takes pp and partition. */
bool oracle_stages_sglang(int64_t layers, oracle_options *options, oracle_stages *stages, char *why);
void oracle_stages_free(oracle_stages *stages);

/* ---- Building a rank (oracle_build.c) -------------------------------------------------------- */

typedef struct oracle_place { /* where tensors are put now */
  const oracle_model *model;
  oracle_rank *rank;
  int chunk;
  int64_t layer;   /* whose Hugging Face tensors are meant; -1: those outside layers */
  char prefix[64]; /* of the engine's names */
} oracle_place;

/* The same rank and chunk, in a layer and under a prefix. */
oracle_place oracle_in(const oracle_place *at, int64_t layer, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A matrix in a tensor of a rank: element (row, col) is its element first + row * row_step + col * col_step. */
typedef struct oracle_window {
  int32_t *tensor; /* the arrays of the storage */
  int64_t *index;
  int64_t first, row_step, col_step, rows, cols;
} oracle_window;

/* A new tensor under the prefix; cols 0: a vector, a window of one column. */
oracle_window oracle_add(const oracle_place *at, int64_t rows, int64_t cols, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* A new tensor of `count` such, and the window on the i-th; cols 0: [count, rows]. */
oracle_window oracle_add_stack(const oracle_place *at, int64_t count, int64_t rows, int64_t cols,
                               const char *format, ...) __attribute__((format(printf, 5, 6)));
oracle_window oracle_step(oracle_window stack, int64_t i);
/* A new tensor of any shape. */
oracle_window oracle_add_shape(const oracle_place *at, const char *name, int ndim, const int64_t *shape);
/* A canonical tensor as it is, under its name. */
void oracle_add_whole(const oracle_place *at, int32_t tensor);
/* [channels, 1, K], as a matrix. */
oracle_window oracle_add_conv(const oracle_place *at, int64_t channels, int64_t K, const char *name);
/* The same matrix, stored by columns. It must be new and alone in its stack place. */
oracle_window oracle_transposed(oracle_window window);
/* The tensor that was added last. */
oracle_storage *oracle_last(const oracle_place *at);
void oracle_rank_free(oracle_rank *rank);
void oracle_coordinate(oracle_rank *rank, const char *name, int64_t index);

/* A matrix in a canonical tensor, by the same arithmetic; tensor ORACLE_PADDING: zeros of that shape. */
typedef struct oracle_matrix {
  int32_t tensor;
  int64_t first, row_step, col_step, rows, cols;
} oracle_matrix;

/* All of a tensor of the place's layer; a vector is one column, [C, 1, K] is [C, K]. */
oracle_matrix oracle_hf(const oracle_place *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same, or zeros of that shape where the model has no such tensor. */
oracle_matrix oracle_hf_or_zeros(const oracle_place *at, int64_t rows, int64_t cols, const char *format,
                                 ...) __attribute__((format(printf, 4, 5)));
/* Part of an expert, wherever the family keeps it: 4.6, 4.9. */
typedef enum oracle_part { ORACLE_GATE, ORACLE_UP, ORACLE_DOWN } oracle_part;
oracle_matrix oracle_expert(const oracle_place *at, int64_t expert, oracle_part part);
oracle_matrix oracle_expert_bias(const oracle_place *at, int64_t expert, oracle_part part);
/* Part of the shared expert. */
oracle_matrix oracle_shared(const oracle_place *at, oracle_part part);

/* Element (row, col) of the window is element (hf_row, hf_col) of the matrix; each is set once. */
void oracle_set(const oracle_model *model, oracle_window window, int64_t row, int64_t col,
                oracle_matrix from, int64_t hf_row, int64_t hf_col);

/* ---- The rules (oracle_rules.c, oracle_gdn.c) ------------------------------------------------ */

/* Which part of how many. */
typedef struct oracle_shard {
  int64_t t, tp;
} oracle_shard;

void oracle_rule_whole(const oracle_place *at, oracle_window w, oracle_matrix from);
void oracle_rule_zeros(const oracle_place *at, oracle_window w);
void oracle_rule_rows(const oracle_place *at, oracle_window w, oracle_matrix from, int64_t t);
void oracle_rule_columns(const oracle_place *at, oracle_window w, oracle_matrix from, int64_t t);
void oracle_rule_vocabulary(const oracle_place *at, oracle_window w, oracle_matrix from, int64_t t);
void oracle_rule_m_qkv(const oracle_place *at, oracle_window w, oracle_matrix q, oracle_matrix k,
                       oracle_matrix v, int64_t t);
void oracle_rule_e_qkv(const oracle_place *at, oracle_window w, oracle_matrix q, oracle_matrix k,
                       oracle_matrix v, oracle_shard cut);
/* `first` above `second`, each its t-th part; the window has the rows of both. */
void oracle_rule_pair(const oracle_place *at, oracle_window w, oracle_matrix first, oracle_matrix second,
                      int64_t t);
void oracle_rule_interleaved(const oracle_place *at, oracle_window w, oracle_matrix gate, oracle_matrix up,
                             int64_t t);
void oracle_rule_w_uk(const oracle_place *at, oracle_window stack, int64_t heads, oracle_matrix kv_b,
                      int64_t t);
void oracle_rule_w_uv(const oracle_place *at, oracle_window stack, int64_t heads, oracle_matrix kv_b,
                      int64_t t);

/* KV heads on one of tp ranks in the engines; 4.4. */
int64_t oracle_kv_heads(const oracle_model *model, int64_t tp);
/* Rows of q_proj per query head: twice in gated attention. */
int64_t oracle_q_width(const oracle_model *model);

/* Rows of the sections of linear attention: q, k, v, z, b, a. */
enum { ORACLE_Q = 1, ORACLE_K = 2, ORACLE_V = 4, ORACLE_Z = 8, ORACLE_B = 16, ORACLE_A = 32 };
int64_t oracle_linear_rows(const oracle_model *model, int sections, int64_t tp);
void oracle_rule_linear(const oracle_place *at, oracle_window w, int sections, oracle_shard cut);
void oracle_rule_conv1d(const oracle_place *at, oracle_window w, oracle_shard cut);

int64_t oracle_round_up(int64_t value, int64_t unit);
/* May a number of things be cut in `parts`? */
bool oracle_divides(int64_t count, int64_t parts, const char *what, char *why);
bool oracle_check_attention(const oracle_model *model, int64_t tp, char *why);
/* Is any layer dense, with experts, of linear attention? */
bool oracle_any(const oracle_model *model, const bool *layers, bool wanted);

/* ---- Types ----------------------------------------------------------------------------------- */

/* Adds the scales of what is stored in blocks; refuses tensors that are cut inside of blocks. refines: scales of
 * experts may be kept for finer blocks. */
bool oracle_blocks_add(oracle_layout *layout, bool refines, char *why);
bool oracle_build_hf(oracle_layout *layout, oracle_options *options, char *why);
bool oracle_build_megatron(oracle_layout *layout, oracle_options *options, char *why);
bool oracle_build_vllm(oracle_layout *layout, oracle_options *options, int64_t strides, char *why);
bool oracle_build_sglang(oracle_layout *layout, oracle_options *options, int64_t strides, char *why);
bool oracle_build_fsdp(oracle_layout *layout, oracle_options *options, char *why);
bool oracle_build_fsdp2(oracle_layout *layout, oracle_options *options, char *why);
bool oracle_build_zero(oracle_layout *layout, oracle_options *options, char *why);
bool oracle_build_distopt(oracle_layout *layout, oracle_options *options, char *why);

#endif
