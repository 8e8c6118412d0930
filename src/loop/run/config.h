/* The configuration of training: YAML with the names that MindSpeed-RL gives to things, verl's where it has none, and treadle's own.
 *
 * One table says which keys there are (config_keys.c). A key of a file is one of them; or one of others that are known and do nothing
 * here (config_known.c), all of them named in one warning; or refused. What was given on the command line goes before the file, the
 * file before defaults. `null` is not given, ${a.b} is the value of another path. Rules that several keys make together are in config_rules.c.
 *
 *   TRY(treadle_train_config_read(path, overrides, count, &config));
 *   TRY(treadle_train_config_need(config, false));
 *   const treadle_train_settings *s = treadle_train_config_settings(config); */
#ifndef TREADLE_RUN_CONFIG_H
#define TREADLE_RUN_CONFIG_H

#include "treadle_loop.h"

#include "base/arena.h"
#include "base/array.h"
#include "base/text.h"
#include "io/yaml.h"

#include <stdint.h>

/* What is said of a run that begins with such weights: of which model. */
#define TREADLE_MADE_UP "the weights of %s are made up, not read from files"

/* In the order of the words in config_keys.c. */
enum { TREADLE_RECOMPUTE_NONE, TREADLE_RECOMPUTE_FULL };
enum { TREADLE_BALANCING_NONE, TREADLE_BALANCING_AUX_LOSS, TREADLE_BALANCING_SEQ_AUX_LOSS };
enum { TREADLE_STRATEGY_MEGATRON, TREADLE_STRATEGY_FSDP2 };
enum { TREADLE_REPLAY_DISABLED, TREADLE_REPLAY_R2, TREADLE_REPLAY_R3 };
enum { TREADLE_DECAY_CONSTANT, TREADLE_DECAY_LINEAR, TREADLE_DECAY_COSINE };

enum { TREADLE_TOO_LONG_ERROR, TREADLE_TOO_LONG_LEAVE_OUT };
enum { TREADLE_RESUME_MODE_DISABLE, TREADLE_RESUME_MODE_AUTO, TREADLE_RESUME_MODE_PATH };

/* Texts of a list, of the arena of the configuration. */
typedef struct treadle_train_list {
  const char *const *items;
  size_t count;
} treadle_train_list;

/* ---- Values -----------------------------------------------------------------------------------------
 *
 * A struct holds the values of a section of the file. The struct of rl_config has a struct for each group of
 * its keys, since they are many. The table says what each value means. A member has the name of its key, without the
 * words that its struct has in its own name: rl_config.verifier_timeout is rl.verifier.timeout. Texts that are
 * not given are NULL; sizes and steps that are not given and have no default are 0. */

/* megatron_training: the data, the steps, and how all ranks compute. */
typedef struct treadle_config_training {
  const char *tokenizer_name_or_path, *data_path, *val_path;
  int64_t train_iters, global_batch_size, seq_length, save_interval, test_interval, seed;
  bool no_shuffle, bf16, sequence_parallel, use_distributed_optimizer;
  int32_t recompute_granularity; /* TREADLE_RECOMPUTE_.. */
  int32_t moe_router_load_balancing_type; /* TREADLE_BALANCING_.. */
  double moe_aux_loss_coeff, moe_z_loss_coeff, moe_router_bias_update_rate;
  bool moe_router_enable_expert_bias, freeze_moe_router;
  int64_t max_ckpt_to_keep;
} treadle_config_training;

struct treadle_train_settings;
/* What the keys of routers come to; 0: none. */
double treadle_train_config_aux_loss(const struct treadle_train_settings *settings);
bool treadle_train_config_by_sequence(const struct treadle_train_settings *settings);
double treadle_train_config_bias_rate(const struct treadle_train_settings *settings);

/* actor_config: the model that is trained, how ranks divide it, and its optimizer. */
typedef struct treadle_config_actor {
  const char *model, *save;
  int32_t weights;                                                  /* treadle_weights: of the model */
  int32_t strategy;                                                 /* TREADLE_STRATEGY_.. */
  int64_t micro_batch_size, max_tokens_per_micro;                   /* one of the two is 0 */
  int64_t tensor_model_parallel_size, pipeline_model_parallel_size; /* where layout is NULL */
  int64_t expert_model_parallel_size, expert_tensor_parallel_size;  /* 0: as tensor_model_parallel_size */
  bool moe_tp_extend_ep;
  int64_t num_layers_per_virtual_pipeline_stage;                    /* 0: no virtual stages */
  int64_t context_parallel_size, ulysses_sequence_parallel_size;    /* below 2: none, as of all roles but the actor */
  int64_t fsdp_size;                                                /* below 1: all ranks */
  bool offload_policy, exact;
  double lr, min_lr, lr_warmup_fraction, weight_decay, adam_beta1, adam_beta2, adam_eps, clip_grad;
  int32_t lr_decay_style; /* TREADLE_DECAY_.. */
  const char *layout;     /* NULL: it follows from the sizes */
  int32_t router_replay;  /* TREADLE_REPLAY_.. */
  int64_t lora_rank;      /* 0: the weights train */
  double lora_alpha;
  treadle_train_list target_modules;
  const char *lora_modules; /* settled: target_modules as Hugging Face's names with commas; NULL: all */
  const char *lora_adapter_path;
  bool lora_save_merged;
  /* Of reinforcement learning alone. */
  treadle_train_list adam_betas; /* settled: adam_beta1 and adam_beta2 */
  const char *load;              /* NULL: it is not given */
} treadle_config_actor;

/* generate_config: how ranks divide the model to generate, and the memory that they have for it. */
typedef struct treadle_config_generate {
  int64_t infer_tensor_parallel_size, infer_pipeline_parallel_size, infer_expert_parallel_size;
  bool offload_train_param, offload_train_grad, offload_train_optimizer;
  const char *layout; /* NULL: it follows from the sizes */
  size_t device_memory, kv_memory;
  double gpu_memory_utilization;
  int64_t block_size, max_num_seqs, max_model_len, max_num_batched_tokens;
} treadle_config_generate;

/* generate_config.sampling_config: how the tokens of a sample are drawn. */
typedef struct treadle_config_sampling {
  int64_t max_tokens, top_k, seed;
  double temperature, top_p, min_p;
  bool ignore_eos;
} treadle_config_sampling;

/* The samples of a step, and how they make mini batches and micro batches. */
typedef struct treadle_config_batches {
  int64_t n_samples_per_prompt, mini_batch_size, epochs;
  int64_t mini_batch_samples; /* settled: those of mini_batch_size prompts */
  bool shuffle_mini_batch, use_dynamic_bsz, balance_batch;
  int64_t max_packing_token_size;
  int64_t staleness;
  int64_t rollout_dispatch_size; /* settled: of whole prompts; 0: all samples of a step */
} treadle_config_batches;

/* How rewards become advantages. */
typedef struct treadle_config_advantage {
  int32_t estimator; /* treadle_rl_estimator */
  bool norm_by_std, normalize;
  bool whiten; /* advantage_whiten */
  double gamma, lam;
} treadle_config_advantage;

/* The loss: its clips, how the losses of tokens are added up, and the ratio that ends a run. */
typedef struct treadle_config_loss {
  bool clip_higher_enable;
  double clip_ratio, clip_ratio_low, clip_ratio_high, clip_ratio_c;
  int32_t agg_mode; /* treadle_ppo_aggregation */
  bool token_level;
  double entropy_coeff;
  double early_stop_imp_ratio; /* 0: none */
} treadle_config_loss;

/* The KL to the reference: where it counts, and its coefficient. */
typedef struct treadle_config_kl {
  bool in_loss, in_reward; /* use_kl_loss, use_kl_in_reward */
  int32_t penalty;         /* treadle_kl_kind */
  double init_coef;
  int32_t ctrl_type; /* 0: fixed, 1: adaptive */
  double target, horizon;
  const char *ref_model; /* ref_config.model */
} treadle_config_kl;

/* Lengths of prompts and responses, and the penalty for long responses. */
typedef struct treadle_config_lengths {
  int64_t max_prompt_length, rollout_max_tokens, overlong_buffer;
  bool overlong_buffer_enable;
  double overlong_buffer_penalty_factor;
} treadle_config_lengths;

/* filter_groups_..: which groups of samples are left out, and how many are drawn. */
typedef struct treadle_config_filter {
  bool enable;
  const char *metric;
  int64_t max_batches, train_batch_size, gen_batch_size;
} treadle_config_filter;

/* verifier_..: the rewards and their weights, and the program of the reward command. */
typedef struct treadle_config_verifier {
  treadle_train_list function, weight;
  const char *command;
  double timeout;
  int64_t parallel;
} treadle_config_verifier;

/* val_..: the tests of a run, which may draw in another way than its steps. */
typedef struct treadle_config_validation {
  int64_t n;
  double temperature; /* above 0, unless greedy */
  bool greedy;
  double top_p;
  int64_t top_k;
  bool before_train;
  int64_t log_generations;
} treadle_config_validation;

/* The log-probabilities of samples: among which tokens, how often they are checked, and what a run does if
 * generation and training differ. */
typedef struct treadle_config_logprobs {
  int32_t sampling_support; /* TREADLE_SUPPORT_.. */
  int64_t sampling_support_most, exact_check;
  int32_t rollout_is; /* 0: none, 1: token */
  double rollout_is_threshold;
} treadle_config_logprobs;

/* The rows of the data: their keys, which of them are left out, and how a row becomes a prompt. */
typedef struct treadle_config_data {
  const char *prompt_key, *answer_key, *data_source_key;
  int32_t too_long, no_answer; /* 0: an error; 1: left out */
  bool apply_chat_template;
  const char *chat_template_kwargs; /* a JSON object */
} treadle_config_data;

/* rl_config: the groups of its keys, and what belongs to none of them. */
typedef struct treadle_config_rl {
  treadle_config_batches batches;
  treadle_config_advantage advantage;
  treadle_config_loss loss;
  treadle_config_kl kl;
  treadle_config_lengths lengths;
  treadle_config_filter filter_groups;
  treadle_config_verifier verifier;
  treadle_config_validation validation;
  treadle_config_logprobs logprobs;
  treadle_config_data data;
  const char *dump_rollouts;
  int32_t resume_mode; /* TREADLE_RESUME_MODE_.. */
  const char *resume_from_path;
} treadle_config_rl;

/* critic_config: the critic as it is trained, with what of actor_config means something for it; what is not given there is the actor's. And the
 * keys of rl_config that speak of it. */
typedef struct treadle_config_critic {
  treadle_config_actor
      trained; /* model, sizes, micro batches, optimizer; no save, weights, exact, offload_policy, adam_betas, load */
  bool offload_param, offload_grad, offload_optimizer;
  double cliprange_value;
  int64_t warmup; /* critic_warmup */
} treadle_config_critic;

/* reward_config: the reward model, with what of actor_config means something for a model that goes forward only; what is not given there is the
 * actor's. */
typedef struct treadle_config_reward {
  treadle_config_actor scored; /* model, sizes and micro batches; NULL: there is no reward model */
  bool offload_param;
  double weight; /* of its score in that of a sample */
} treadle_config_reward;

/* ref_config: a reference that has a pool of its own, with what of actor_config means something for a model that goes forward only; what is not given
 * there is the actor's. Its model is rl.kl.ref_model. */
typedef struct treadle_config_reference {
  treadle_config_actor frozen; /* sizes and micro batches; no model */
  bool offload_param;
} treadle_config_reference;

/* megatron.ckpt_convertor: the model to convert for Megatron, and the sizes of the result. */
typedef struct treadle_config_convertor {
  const char *hf_model_path, *save_path;
  int64_t tensor_model_parallel_size, pipeline_model_parallel_size; /* 0: those of actor_config */
} treadle_config_convertor;

/* RLinf's sections actor and megatron: the Megatron checkpoint with the first weights. */
typedef struct treadle_config_megatron {
  const char *checkpoint_load_path;
  bool use_hf_ckpt;
  treadle_config_convertor ckpt_convertor;
} treadle_config_megatron;

/* Keys of pools, in the forms of four projects (config_pools.h). Maps are JSON objects. */
typedef struct treadle_config_resources {
  const char *resource_pools, *mapping;
  int64_t max_colocate_count;
  int64_t actor_npus, reference_npus, reward_npus, critic_npus; /* MindSpeed-RL's; 0: not given */
  bool use_integrated_worker, blocking, guarantee_order;
  double timeout;                  /* seconds */
  int64_t nnodes, n_gpus_per_node; /* verl's; 0: not given */
  const char *component_placement; /* RLinf's */
} treadle_config_resources;

/* The values of all sections. Supervised training reads `training` and `actor` alone. */
typedef struct treadle_train_settings {
  treadle_config_training training;
  treadle_config_actor actor;
  treadle_config_generate generate;
  treadle_config_sampling sampling;
  treadle_config_rl rl;
  treadle_config_critic critic;       /* of runs with a critic alone */
  treadle_config_reward reward;       /* of runs with a reward model alone */
  treadle_config_reference reference; /* of runs whose reference has a pool of its own alone */
  treadle_config_megatron megatron;
  treadle_config_resources resources;
} treadle_train_settings;

enum { TREADLE_SUPPORT_KEPT, TREADLE_SUPPORT_FULL };
/* Do top_k, top_p or min_p cut what tokens are drawn from, in a vocabulary that has more than top_k? */
bool treadle_train_cuts(const treadle_config_sampling *sampling);

/* In the order of the words of rl_config.adv_estimator: the one with a critic. */
enum { TREADLE_ESTIMATOR_GAE = 5 };
static inline bool treadle_train_has_critic(const treadle_train_settings *s) {
  return s->rl.advantage.estimator == TREADLE_ESTIMATOR_GAE;
}
static inline bool treadle_train_has_reward_model(const treadle_train_settings *s) {
  return s->reward.scored.model != NULL;
}

/* Groups of a step of reinforcement learning: its prompts, or this many of those that a filter leaves. */
static inline int64_t treadle_train_step_prompts(const treadle_train_settings *s) {
  return s->rl.filter_groups.enable && s->rl.filter_groups.train_batch_size > 0
             ? s->rl.filter_groups.train_batch_size
             : s->training.global_batch_size;
}

/* ---- The table ------------------------------------------------------------------------------------ */

typedef enum treadle_train_key_type {
  TREADLE_KEY_BOOL,    /* bool */
  TREADLE_KEY_INTEGER, /* int64_t, `least` to `most` */
  TREADLE_KEY_REAL,    /* double, the same */
  TREADLE_KEY_TEXT,    /* const char * */
  TREADLE_KEY_CHOICE,  /* int32_t, the place in `words` */
  TREADLE_KEY_SIZE,    /* size_t, bytes, with a unit or without */
  TREADLE_KEY_LIST,    /* treadle_train_list */
  TREADLE_KEY_MAP      /* const char *: a JSON object */
} treadle_train_key_type;

enum { TREADLE_NEED_NOT, TREADLE_NEED_TO_PLAN, TREADLE_NEED_TO_RUN };

typedef struct treadle_train_key {
  const char *section, *key; /* section "": the key stands in none */
  treadle_train_key_type type;
  const char *otherwise;    /* the value of a key that is not given, as text; NULL: none */
  const char *unit;         /* "" where there is none */
  const char *whose, *help; /* whose name it is */
  size_t at;                /* in treadle_train_settings */
  double least, most;
  bool below;            /* `most` itself is too much */
  const char *words[16]; /* of a CHOICE, ended by NULL */
  int need;              /* TREADLE_NEED_.. */
  bool alone;            /* does not stand in the other section of MindSpeed-RL, too */
  const char *also[4];   /* other names: whole paths of verl's */
  const char *nothing;   /* what null means, as text; NULL: that the key is not given */
  bool rl;               /* of runs of reinforcement learning alone */
  bool ordered;          /* of a MAP: its names stay in the order of the file */
  bool critic;           /* of runs with a critic alone: in others it is known, and without effect */
  bool reward;           /* the same of a reward model */
  bool reference;        /* and of a reference with a pool of its own */
} treadle_train_key;

enum {
  TREADLE_TRAIN_KEYS = 53 + 1 + 95 + 4 + 11 + 24 + 11 + 9,
  TREADLE_TRAIN_ALSO = 4,
  TREADLE_KEY_TEXT_BYTES = 192
};
extern const treadle_train_key treadle_train_keys[TREADLE_TRAIN_KEYS];

/* The key at `at` of the settings, by its place in the table. */
int treadle_train_key_at(size_t at);
#define TREADLE_KEY_OF(member) treadle_train_key_at(offsetof(treadle_train_settings, member))

/* Which runs a configuration is for: supervised training, or reinforcement learning, which has all keys. TREADLE_RUN_SWITCH: a run of others,
 * of which it is read what its switches would be (config_switch.h); none of these keys is its. TREADLE_RUN_POOLS: reinforcement learning, of which only
 * pools are asked for: a configuration without a model needs nothing else. It is read as TREADLE_RUN_RL. */
typedef enum treadle_train_run {
  TREADLE_RUN_SFT,
  TREADLE_RUN_RL,
  TREADLE_RUN_SWITCH,
  TREADLE_RUN_POOLS
} treadle_train_run;
bool treadle_train_key_is_of(const treadle_train_key *key, treadle_train_run run);

enum { TREADLE_TRAIN_PATH = 512 }; /* bytes of a path of the facts */
/* What RLinf has in its section actor may stand in a file by itself, as its documents show it: actor.megatron.x is megatron.x. */
const char *treadle_train_short_path(const char *path);
/* The names of a path as the table has them: - is _, as MindSpeed-RL reads it. -1: no such key. */
int treadle_train_key_find(const char *path, treadle_train_run run);
/* The key, a MAP, of which the path is a part; *rest_p: which. -1: there is none. */
int treadle_train_key_above(const char *path, treadle_train_run run, const char **rest_p);
/* Is it a path under which keys stand? */
bool treadle_train_key_is_section(const char *path, treadle_train_run run);
/* Of a path in a section of others that is not a key: the last name of the one that was probably meant; NULL: there is none. */
const char *treadle_train_key_meant(const char *path, treadle_train_run run);
/* The default that the project has whose name a key has, where it is another one than treadle's; NULL: it is the same, or not known. */
const char *treadle_train_key_theirs(const treadle_train_key *key);
/* "bool", "integer", .. */
const char *treadle_train_key_type_text(const treadle_train_key *key);
/* Which values it takes: "0 to 1", "none|full"; "" for texts. */
void treadle_train_key_allowed(char to[TREADLE_KEY_TEXT_BYTES], const treadle_train_key *key);
/* Reads a value; `where` begins the refusal: file, line and key. NULL: the key's own value. Texts stay the caller's; lists are of the
 * arena. */
treadle_status treadle_train_key_read(const treadle_train_key *key, const char *where, const char *text,
                                      treadle_arena *arena, treadle_train_settings *settings);
/* Its value as YAML: what is read again as the same. */
void treadle_train_key_write(treadle_builder *text, const treadle_train_key *key,
                             const treadle_train_settings *settings);

/* An item of a list, in quotes. */
void treadle_train_write_item(treadle_builder *text, const char *item);

/* ---- Names that are known and do nothing here ------------------------------------------------------- */

typedef enum treadle_train_name_type {
  TREADLE_KNOWN_NOT,
  TREADLE_KNOWN_IGNORED,
  TREADLE_KNOWN_ONLY,   /* with values that say what treadle does anyway */
  TREADLE_KNOWN_BY_RULE /* heard, with others of its file (config_others.c) */
} treadle_train_name_type;

/* A key of others that would change results if it were ignored (config_limits.c). */
typedef struct treadle_train_limit {
  /* Without a dot: of both sections of MindSpeed-RL for Megatron. "*.x": of any section of RL. A path below it has the limit, too. */
  const char *path;
  const char *only[6]; /* its values; none: it may be null, or an empty list or map */
  const char *instead; /* ends the refusal of another one; NULL: there is nothing to say */
} treadle_train_limit;

enum { TREADLE_TRAIN_LIMITS = 171 };
extern const treadle_train_limit treadle_train_limits[TREADLE_TRAIN_LIMITS];
/* NULL: it has none. */
const treadle_train_limit *treadle_train_limit_find(const char *path, treadle_train_run run);
/* Is it a path under which keys with a limit stand? Or any of those that the facts have (others.h)? */
bool treadle_train_limit_is_section(const char *path, treadle_train_run run);
bool treadle_train_other_is_section(const char *path, treadle_train_run run);

/* A path as the facts have it: MindSpeed-RL's two sections are one, RLinf's actor.model is model. */
void treadle_train_as_fact(char to[TREADLE_TRAIN_PATH], const char *path);
/* Of a path as treadle_train_key_find() has it, by its own row or that of a section above it. *limit_p: of TREADLE_KNOWN_ONLY. */
treadle_train_name_type treadle_train_known_key(const char *path, treadle_train_run run,
                                                const treadle_train_limit **limit_p);
/* The section without effect whose row speaks for a path; NULL: the path has a row of its own. */
const char *treadle_train_ignored_section(const char *path);
/* Is it the name of a section of others; and is the first part of a path? In supervised training all is ignored there that is not a key. */
bool treadle_train_known_section(const char *name, treadle_train_run run);
bool treadle_train_known_section_of(const char *path, treadle_train_run run);
/* The nearest name of a key, and of a section; NULL when none is near. */
const char *treadle_train_key_nearest(const char *name, treadle_train_run run);
const char *treadle_train_section_nearest(const char *name);

/* ---- Names in values (config_names.c) ----------------------------------------------------------------- */

/* Where names are looked up. */
typedef struct treadle_train_names {
  const treadle_yaml *root;
  const char *const *overrides; /* [count] path=value */
  size_t count;
  treadle_arena *arena;
} treadle_train_names;

/* The text with the values of its names; `where` begins a refusal. `at`: the path of the value, which relative names begin at; NULL: it has
 * none. */
treadle_status treadle_train_expand(const treadle_train_names *names, const char *where, const char *at,
                                    const char *text, const char **text_p);
/* Does a value refer to this path? */
bool treadle_train_is_name(const treadle_train_names *names, const char *path);
/* null, ~ and the like: not given. */
bool treadle_train_is_null(const char *text);

/* ---- What was read --------------------------------------------------------------------------------- */

typedef enum treadle_train_source_type {
  TREADLE_FROM_DEFAULT,
  TREADLE_FROM_FILE,
  TREADLE_FROM_OVERRIDE,
  TREADLE_FROM_RULE
} treadle_train_source_type;

/* Where the value of a key comes from. */
typedef struct treadle_train_source {
  treadle_train_source_type from;
  int line;         /* of the file */
  const char *name; /* as it was given: a path */
  const char *text; /* its value as it was given */
  const char *why;  /* of a RULE */
  bool left_out;    /* by a rule: there is no value, and the text says null */
} treadle_train_source;

struct treadle_train_config {
  treadle_arena arena;
  const char *file; /* how messages call it */
  treadle_train_run run;
  bool has_pools_alone;     /* of TREADLE_RUN_POOLS */
  bool has_reward_model;    /* one is named, or asked for */
  bool has_reference_apart; /* a KL needs a reference, and its pool is not that of the policy */
  treadle_train_settings settings;
  treadle_train_source sources[TREADLE_TRAIN_KEYS];
  TREADLE_ARRAY(const char *) warnings;
  /* RLinf's, of which there is no key: how far scores are apart, times their scale; steps in which its learning rate falls. 0: not given */
  double reward_spread, lr_decay_iters;
  double most_epochs;                  /* of the data, after which a run of theirs ends; 0: not given */
  struct treadle_switch_values *asked; /* of TREADLE_RUN_SWITCH: what it is read for, of the arena */
  const struct treadle_config_pools *pools; /* of the arena; NULL: nothing is said of pools */
};

/* A configuration of a file, and of a text, of which `file` is the name. */
treadle_status treadle_train_config_open(const char *path, const char *const *overrides, size_t count,
                                         treadle_train_run run, treadle_train_config **config_p);
treadle_status treadle_train_config_parse(const char *file, const char *text, size_t bytes,
                                          const char *const *overrides, size_t count, treadle_train_run run,
                                          treadle_train_config **config_p);
const treadle_train_settings *treadle_train_config_settings(const treadle_train_config *config);
bool treadle_train_config_is_given(const treadle_train_config *config, int key);
/* Does a key that is given say its default, as the resolved text of a run does? */
bool treadle_train_config_is_default(const treadle_train_config *config, int key);
/* "actor_config.lr (line 9)", for the middle of a message. */
const char *treadle_train_config_place(const treadle_train_config *config, int key);
/* `text` is of the arena; NULL: memory was out. */
treadle_status treadle_train_config_warn(treadle_train_config *config, const char *text);
/* Checks what keys say together, and settles those that follow from others. */
treadle_status treadle_train_config_settle(treadle_train_config *config);
/* config_layout.c: the key that divides the tokens of a row among ranks; NULL: none does. */
const char *treadle_train_config_place_of_context(const treadle_train_config *config);
/* config_routers.c: routers of models with experts; and refuses keys of them that the model has no use of. */
treadle_status treadle_train_config_settle_routers(treadle_train_config *config);
typedef struct treadle_config_routers {
  const char *model; /* its path */
  int64_t experts;
  bool have_biases;
} treadle_config_routers;
treadle_status treadle_train_config_check_routers(const treadle_train_config *config,
                                                  const treadle_config_routers *of);
/* config_lora.c: adapters, of which MindSpeed-RL has Megatron's names. And what a trainer is made with. */
treadle_status treadle_train_config_settle_lora(treadle_train_config *config);
/* Refused: names that no matrix of the model has, and others that cannot have adapters. */
treadle_status treadle_train_config_check_lora(const treadle_train_config *config,
                                               const treadle_model *model);
void treadle_train_lora_options(const treadle_train_settings *settings, treadle_trainer_options *options);
/* config_rules_rl.c: the same of what reinforcement learning adds. */
treadle_status treadle_train_config_settle_rl(treadle_train_config *config);
/* The same of pools alone. */
treadle_status treadle_train_config_settle_pools_alone(treadle_train_config *config);
/* config_rules_batches.c: of its steps. */
treadle_status treadle_train_config_settle_batches(treadle_train_config *config);
/* "FILE: PLACE why". */
treadle_status treadle_train_config_warn_of(treadle_train_config *config, const char *place,
                                            const char *why);
/* Of prompts and responses of this many tokens; 0: it is not known yet, as a model has a word in it. */
treadle_status treadle_train_config_check_lengths(const treadle_train_config *config, int64_t prompt,
                                                  int64_t response);
/* config_critic.c: of a critic, and what it has from the actor. */
treadle_status treadle_train_config_settle_critic(treadle_train_config *config);
/* config_reward.c: the same of a reward model. */
treadle_status treadle_train_config_settle_reward(treadle_train_config *config);
/* config_reference.c: the same of a reference; pools are settled. */
treadle_status treadle_train_config_settle_reference(treadle_train_config *config);
/* config_rules_start.c: of what the weights begin with. */
treadle_status treadle_train_config_settle_start(treadle_train_config *config);
/* config_pools.c: which pools there are, in one of four forms, and which role works in which. */
treadle_status treadle_train_config_settle_pools(treadle_train_config *config);
/* The key has its value by a rule; `why` stands behind it in the resolved text. */
void treadle_train_config_follow(treadle_train_config *config, int key, const char *why);

/* Refuses where keys are not given that a run needs (plan: that its plan needs), with the names of all. */
treadle_status treadle_train_config_need(const treadle_train_config *config, bool plan);

/* ---- The layout (config_layout.c) -------------------------------------------------------------------- */

typedef enum treadle_train_part {
  TREADLE_PART_PARAMS, /* in bf16 or fp32 */
  TREADLE_PART_MASTERS, /* in fp32: optimizer state; Megatron's distributed optimizer has a layout of its own */
  TREADLE_PART_CRITIC,   /* params of the critic */
  TREADLE_PART_REWARD,   /* of the reward model */
  TREADLE_PART_REFERENCE /* and of a reference with a pool of its own */
} treadle_train_part;

/* The text of the layout on `ranks` ranks of a model with `layers` decoder layers. Refused: ranks and layers that the sizes do not
 * divide. */
treadle_status treadle_train_config_layout(const treadle_train_config *config, treadle_train_part part,
                                           int64_t layers, int64_t ranks, char *text, size_t room);
/* Micro batches of a step in each of `dp` parts; 0: they follow from max_tokens_per_micro. Refused: a global batch that does not divide;
 * with virtual stages, micro batches that pp does not divide. */
treadle_status treadle_train_config_micro_batches(const treadle_train_config *config, int64_t dp,
                                                  int64_t pp, int64_t *count_p);

#endif
