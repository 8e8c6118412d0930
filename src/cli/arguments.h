/* What the options say. A struct for each thing that several subcommands choose, such as the model and the layouts; then a struct for each
 * subcommand, with what it alone takes; last, the one that holds them all.
 *
 * The table of options.c says which subcommand takes which option, and in which member its value goes. A function takes the smallest of these
 * structs that has what it reads. Zero (NULL) is "not given", unless the comment of a member says otherwise; defaults are in options.c. The
 * number of a word is its position in the table. Texts are those of main(). */
#ifndef TREADLE_CLI_ARGUMENTS_H
#define TREADLE_CLI_ARGUMENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TREADLE_MAX_SETTINGS = 513, TREADLE_MAX_STOPS = 64 };

/* What --check asks for. */
typedef enum treadle_check { TREADLE_CHECK_NONE, TREADLE_CHECK_PLAIN, TREADLE_CHECK_PROVE } treadle_check;

/* ---- What several subcommands share ---------------------------------------------------------- */

typedef struct treadle_model_arguments {
  const char *path, *families;
  int64_t weights;    /* treadle_weights: where values come from; none: as the path says */
  int64_t scale_down; /* million parameters */
} treadle_model_arguments;

typedef struct treadle_layouts_arguments {
  const char *from, *to;     /* plan, convert */
  const char *train, *infer; /* switch; train: also layout, generate, score */
  const char *engine;        /* while the built-in engine computes */
} treadle_layouts_arguments;

typedef struct treadle_rank_arguments {
  int64_t count;
  int64_t rank;  /* one of them; -1: not given */
  int64_t nodes; /* plan, layout */
  int64_t map;   /* treadle_rank_map; of plan --config -1: not given */
} treadle_rank_arguments;

/* Of switch and plan. The budget is of sft, too. */
typedef struct treadle_memory_arguments {
  size_t cap_bytes, page_bytes, budget_bytes;
  int64_t alias;      /* 0: on, 1: off */
  const char *device; /* NULL: cpu */
} treadle_memory_arguments;

typedef struct treadle_file_arguments {
  const char *in, *out, *trace; /* --file, --out, --trace */
} treadle_file_arguments;

typedef struct treadle_text_arguments {
  const char *tokenizer;
  bool chat;
} treadle_text_arguments;

/* Of the built-in engine. */
typedef struct treadle_kernel_arguments {
  const char *name;
  int64_t threads;
  int64_t exact; /* 0: on, 1: off */
} treadle_kernel_arguments;

/* Of generate and score. */
typedef struct treadle_engine_arguments {
  int64_t max_batch, prefill_chunk, block_tokens, max_len;
  int64_t prefix_cache; /* 0: on, 1: off */
  bool experts;
  size_t kv_bytes;
} treadle_engine_arguments;

/* Of generate and eval. The temperature is of score, too, and the seed of data. */
typedef struct treadle_sampling_arguments {
  const char *temperature;     /* a number */
  int64_t new_tokens, samples; /* -1: not given */
  int64_t seed;
} treadle_sampling_arguments;

/* Of sft and train. */
typedef struct treadle_run_arguments {
  const char *resume; /* auto, never, a folder */
  bool plan, help_config;
} treadle_run_arguments;

/* ---- What one subcommand takes --------------------------------------------------------------- */

typedef struct treadle_plan_arguments {
  const char *config;
  bool by_rank;
} treadle_plan_arguments;

typedef struct treadle_layout_arguments {
  const char *shown; /* --layout */
  bool runs;
} treadle_layout_arguments;

typedef struct treadle_switch_arguments {
  int64_t cycles, update;
  int64_t delta, doubles; /* 0: off, 1: on */
  const char *changed;    /* a share of the elements; NULL: all */
  int64_t keep;           /* 0: infer, 1: host */
  int64_t own;            /* a bit for train (1) and one for infer (2) */
  bool forward;
  int64_t check; /* treadle_check */
  const char *offload, *fault, *timeline, *handle_file;
  const char *meet, *job, *nodes; /* how ranks meet */
  int64_t net;                    /* 0: tcp, 1: ucx */
  const char *net_devices;
  double timeout_seconds;
} treadle_switch_arguments;

typedef struct treadle_attach_arguments {
  int64_t wait; /* a version; 0: any */
  double timeout_seconds;
} treadle_attach_arguments;

typedef struct treadle_family_arguments {
  bool expanded;             /* of show */
  const char *like, *output; /* of new */
} treadle_family_arguments;

typedef struct treadle_inspect_arguments {
  int64_t check; /* 0: off, 1: on */
} treadle_inspect_arguments;

typedef struct treadle_tokenize_arguments {
  const char *text, *ids;
  int64_t special; /* 0: on, 1: off */
} treadle_tokenize_arguments;

typedef struct treadle_make_model_arguments {
  const char *family, *dtype;
  int64_t layers, hidden, vocab;
  int64_t experts; /* 0: single, 1: packed */
} treadle_make_model_arguments;

typedef struct treadle_convert_arguments {
  bool trust;
  const char *lora;
} treadle_convert_arguments;

typedef struct treadle_generate_arguments {
  const char *prompt, *prompt_ids;
  const char *top_p, *min_p, *repetition_penalty, *presence_penalty, *frequency_penalty; /* numbers */
  int64_t top_k, min_new_tokens, logprobs;                                               /* -1: not given */
  int64_t logprobs_of; /* 0: raw, 1: scaled */
  const char *stops[TREADLE_MAX_STOPS], *stop_ids;
  int64_t stop_count;
  bool ignore_eos;
} treadle_generate_arguments;

typedef struct treadle_score_arguments {
  int64_t check; /* 0: off, 1: on */
  int64_t top;
  const char *logits;
} treadle_score_arguments;

typedef struct treadle_grad_arguments {
  const char *dtype;
  int64_t micro_batch;
  int64_t recompute; /* 1: full */
  bool sequence_parallel, seq_aux_loss;
  int64_t ulysses;
  int64_t lora_rank;
  const char *lora_alpha, *aux_loss_coeff, *z_loss_coeff; /* numbers */
  const char *lora_modules, *lora_adapter;
  const char *experts, *write_experts; /* files */
  int64_t loss;       /* 1: grpo */
  const char *config; /* of --loss grpo */
  int64_t mini_batch; /* of --loss grpo */
} treadle_grad_arguments;

typedef struct treadle_data_arguments {
  const char *noise; /* a number */
} treadle_data_arguments;

typedef struct treadle_eval_arguments {
  const char *reward, *reward_command, *data, *prompt_key, *answer_key;
  int64_t no_answer; /* 1: leave_out */
} treadle_eval_arguments;

typedef struct treadle_pools_arguments {
  const char *nodes; /* a number, or counts with commas between */
} treadle_pools_arguments;

/* ---- All of it ------------------------------------------------------------------------------- */

typedef struct treadle_arguments {
  const char *words[TREADLE_MAX_SETTINGS]; /* arguments that are no options */
  int word_count;
  bool json, help;

  treadle_model_arguments model;
  treadle_layouts_arguments layouts;
  treadle_rank_arguments ranks;
  treadle_memory_arguments memory;
  treadle_file_arguments files;
  treadle_text_arguments text;
  treadle_kernel_arguments kernels;
  treadle_engine_arguments engine;
  treadle_sampling_arguments sampling;
  treadle_run_arguments run;

  treadle_plan_arguments plan;
  treadle_layout_arguments layout;
  treadle_switch_arguments switching;
  treadle_attach_arguments attach;
  treadle_family_arguments family;
  treadle_inspect_arguments inspect;
  treadle_tokenize_arguments tokenize;
  treadle_make_model_arguments make_model;
  treadle_convert_arguments convert;
  treadle_generate_arguments generate;
  treadle_score_arguments score;
  treadle_grad_arguments grad;
  treadle_data_arguments data;
  treadle_eval_arguments eval;
  treadle_pools_arguments pools;
} treadle_arguments;

#endif
