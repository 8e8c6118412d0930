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
  int64_t ranks;
  void *layout; /* NULL while it is not open */
} golden_case;

/* Writes a line about a difference and returns GOLDEN_DIFFERENT. */
golden_verdict golden_differ(const golden_case *c, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Opens c->layout from config, text and ranks. When the real library refused (c->item has "error") or is
 * said to have (`refused`), an opened layout is a difference. GOLDEN_EQUAL: open, go on comparing. Any
 * other verdict is the case's. */
golden_verdict golden_open(golden_case *c, bool refused);

/* The config of a llama of these sizes, into c->config; heads == KV heads. */
void golden_llama(golden_case *c, int64_t vocabulary, int64_t hidden, int64_t layers, int64_t heads,
                  int64_t head_dim, int64_t mlp, bool tied);
/* Is it one of the families that exist: llama, qwen2, qwen3, without experts, MLA and MTP? */
bool golden_is_dense(const json_t *config);
/* Appends ",key=value" (the first time ":key=value") to c->text. */
void golden_option(golden_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* An integer of an object or array; `otherwise` when it is absent or null. */
int64_t golden_int(const json_t *object, const char *key, int64_t otherwise);
int64_t golden_at(const json_t *array, size_t index);

/* Lists of runs. Numbers of tensors are the subject's. */
typedef struct golden_runs {
  treadle_run *items;
  size_t count, capacity;
} golden_runs;

void golden_runs_add(golden_runs *runs, treadle_run run);
void golden_runs_sort(golden_runs *runs);
void golden_runs_release(golden_runs *runs);

/* Compares a storage tensor of the subject with what it must be. expected NULL: name and shape only. */
golden_verdict golden_compare_runs(const golden_case *c, int64_t rank, int32_t storage,
                                   const golden_runs *expected);

/* The checkers. */
golden_verdict golden_check_nothing(golden_case *c);
golden_verdict golden_check_megatron_map(golden_case *c);
golden_verdict golden_check_megatron_params(golden_case *c);
golden_verdict golden_check_engine_params(golden_case *c);
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
