/* What the files of the golden checkers say to each other. */
#ifndef TREADLE_TESTS_GOLDEN_PARTS_H
#define TREADLE_TESTS_GOLDEN_PARTS_H

#include "golden_support/golden.h"

#include <stddef.h>

typedef enum golden_verdict {
  GOLDEN_EQUAL,
  GOLDEN_REFUSED,
  GOLDEN_SKIPPED,
  GOLDEN_DIFFERENT,
  GOLDEN_NOT_ASKED /* the case says nothing about this subject: only counted as a case */
} golden_verdict;

/* One case on its way through a checker. */
typedef struct golden_case {
  const golden_subject *subject;
  const char *file; /* name without folder and ending: "vllm_params" */
  const json_t *root, *item;
  int number;
  FILE *out;
  json_t *config; /* of the model */
  char text[512]; /* of the layout */
  char map[64];   /* a file that the text names, to be removed; "" when there is none */
  int64_t ranks;
  void *layout; /* NULL while it is not open */
} golden_case;

/* Writes a line about a difference and returns GOLDEN_DIFFERENT. */
golden_verdict golden_differ(const golden_case *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Opens c->layout from config, text and ranks. When the real library refused (c->item has "error") or is
 * said to have (`refused`), an opened layout is a difference, and so is a model that is refused whatever the
 * layout. GOLDEN_EQUAL: open, go on comparing. Any other verdict is the case's. */
golden_verdict golden_open(golden_case *c, bool refused);

/* Closes the layout, so that a case can ask for another one. */
void golden_close(golden_case *c);

/* Appends ",key=value" (the first time ":key=value") to c->text. */
void golden_option(golden_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Appends map=@FILE, where FILE holds these maps from physical slots to logical experts. */
void golden_option_map(golden_case *c, const json_t *maps);

/* ---- Models for cases that say nothing but sizes; into c->config --------------------------------- */

/* A llama; heads == KV heads. */
void golden_llama(golden_case *c, int64_t vocabulary, int64_t hidden, int64_t layers, int64_t heads,
                  int64_t head_dim, int64_t mlp, bool tied);
/* qwen3_moe, or deepseek_v3 where experts stand in groups (0: no groups). All layers have experts. */
void golden_experts(golden_case *c, int64_t layers, int64_t heads, int64_t experts, int64_t groups);
/* The same widths with MTP layers and without experts: glm4_moe, whose dense layers come first. */
void golden_dense_mtp(golden_case *c, int64_t layers, int64_t mtp, bool tied);
/* The layout text and the ranks of a case's grid, spec and config, without its vocabulary: golden_megatron.c. */
void golden_megatron_text(golden_case *c);
/* The family and config of a Megatron config; false, and a line, when it says something unknown. */
bool golden_config_of_megatron(golden_case *c, const json_t *megatron);

/* An integer of an object or array; `otherwise` when it is absent or null. */
int64_t golden_int(const json_t *object, const char *key, int64_t otherwise);
int64_t golden_at(const json_t *array, size_t index);

/* ---- Runs: golden_runs.c ------------------------------------------------------------------------ */

/* Lists of runs. Numbers of tensors are the subject's. */
typedef struct golden_runs {
  treadle_run *items;
  size_t count, capacity;
} golden_runs;

void golden_runs_add(golden_runs *runs, treadle_run run);
void golden_runs_sort(golden_runs *runs);
void golden_runs_release(golden_runs *runs);

/* Compares a storage tensor of the subject with what it must be. */
golden_verdict golden_compare_runs(const golden_case *c, int64_t rank, int32_t storage,
                                   const golden_runs *expected);

/* The storage tensor of a name, -1 when the rank has none. */
int32_t golden_find_storage(const golden_case *c, int64_t rank, const char *name,
                            treadle_storage_info *info_p);

/* ---- What a rank must hold: golden_expected.c ---------------------------------------------------- */

typedef struct golden_expected {
  const char *name;
  int32_t chunk;
  const json_t *shape;
  bool has_runs; /* else name and shape only */
  bool optional; /* the subject may leave it out */
  bool derived;
  golden_runs runs;
} golden_expected;

typedef struct golden_list {
  golden_expected *items;
  size_t count;
} golden_list;

/* Which of the subject's storage tensors are compared: all, those of the draft model (chunk 1), all but those, or the
 * block scales of fp8 weights. */
typedef enum golden_part { GOLDEN_ALL, GOLDEN_DRAFT, GOLDEN_MAIN, GOLDEN_SCALES } golden_part;

golden_expected *golden_expect(golden_list *list, const char *name, int32_t chunk, const json_t *shape);
void golden_list_release(golden_list *list);

/* Reads runs of a file into `tensor`. numbers[golden id] is the subject's. */
golden_verdict golden_read_runs(const golden_case *c, const json_t *golden, const int32_t *numbers,
                                golden_expected *tensor);

/* One rank: the same tensors in the same order, those that are derived apart. */
golden_verdict golden_compare_rank(const golden_case *c, int64_t rank, golden_part part, golden_list *list);

/* The canonical tensors: [name, shape] of each, tied ones once. *numbers_p: golden id to the subject's, to be
 * freed in any case. */
golden_verdict golden_compare_model(const golden_case *c, const json_t *tensors, golden_part part,
                                    int32_t **numbers_p);

/* ---- Megatron's checkpoint keys: golden_keys.c --------------------------------------------------- */

/* Reads a piece of sharded_state_dict into `tensor`. */
golden_verdict golden_read_piece(const golden_case *c, const json_t *piece, golden_expected *tensor);

/* ---- The checkers -------------------------------------------------------------------------------- */

golden_verdict golden_check_megatron_map(golden_case *c);
golden_verdict golden_check_megatron_params(golden_case *c);
golden_verdict golden_check_engine_params(golden_case *c);
golden_verdict golden_check_engine_draft(golden_case *c);
golden_verdict golden_check_engine_main(golden_case *c);
golden_verdict golden_check_engine_scales(golden_case *c);
golden_verdict golden_check_engine_experts(golden_case *c);
golden_verdict golden_check_megatron_layers(golden_case *c);
golden_verdict golden_check_engine_stages(golden_case *c);
golden_verdict golden_check_megatron_vocab(golden_case *c);
golden_verdict golden_check_megatron_unpadded(golden_case *c);
golden_verdict golden_check_engine_vocab(golden_case *c);
golden_verdict golden_check_megatron_ranks(golden_case *c);
golden_verdict golden_check_vllm_ranks(golden_case *c);
golden_verdict golden_check_sglang_ranks(golden_case *c);
golden_verdict golden_check_fsdp1(golden_case *c);
golden_verdict golden_check_fsdp2(golden_case *c);
golden_verdict golden_check_dtensor(golden_case *c);
golden_verdict golden_check_dist_optimizer(golden_case *c);

#endif
