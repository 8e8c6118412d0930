/* What a file of MindSpeed-RL, RLinf or verl says of a switch: which model, in which layouts, on which ranks. The reader is that of training
 * (config_read.c), with keys of its own: the run that is asked about is theirs, in their layouts, with all that treadle itself cannot train.
 *
 * A project is one file (config_switch_verl.c and so on) and one row in a table. Its keys are heard, have values that they are limited to, stand
 * in the facts (others.h) and do nothing here, or are refused. What is heard is noted first; `settle` makes layouts of it when all is known. */
#ifndef TREADLE_RUN_CONFIG_SWITCH_H
#define TREADLE_RUN_CONFIG_SWITCH_H

#include "run/config_given.h"
#include "run/others.h"
#include "treadle_loop.h"

/* What a switch needs to know. */
typedef enum treadle_switch_key {
  TREADLE_ASK_MODEL,
  TREADLE_ASK_MODEL_NAME, /* which may be a mere name */
  TREADLE_ASK_STRATEGY,
  TREADLE_ASK_LAYOUT, /* as text */
  TREADLE_ASK_TP,
  TREADLE_ASK_PP,
  TREADLE_ASK_VPP,
  TREADLE_ASK_CHUNK_LAYERS,
  TREADLE_ASK_LAYERS,
  TREADLE_ASK_LAYER_LIST,
  TREADLE_ASK_CP,
  TREADLE_ASK_EP,
  TREADLE_ASK_ETP,
  TREADLE_ASK_EP_OF_TP, /* is ep counted in tp groups? */
  TREADLE_ASK_PP_BEFORE_DP,
  TREADLE_ASK_FIRST,
  TREADLE_ASK_LAST,
  TREADLE_ASK_EMBEDDING_SPLIT,
  TREADLE_ASK_LOSS_SPLIT,
  TREADLE_ASK_STAGES,
  TREADLE_ASK_VOCAB_DIVISIBLE_BY,
  TREADLE_ASK_MEGATRON_DTYPE,
  TREADLE_ASK_BF16,
  TREADLE_ASK_FP16,
  TREADLE_ASK_FSDP_TYPE,
  TREADLE_ASK_FSDP_SIZE,
  TREADLE_ASK_FSDP_DTYPE,
  TREADLE_ASK_ORIG_PARAMS,
  TREADLE_ASK_ON_HOST, /* shards of FSDP2 are in host memory */

  TREADLE_ASK_ENGINE,
  TREADLE_ASK_INFER_LAYOUT,
  TREADLE_ASK_INFER_TP,
  TREADLE_ASK_INFER_PP,
  TREADLE_ASK_INFER_DP,
  TREADLE_ASK_INFER_EP,
  TREADLE_ASK_INFER_EP_ON,
  TREADLE_ASK_INFER_ATTENTION_DP,
  TREADLE_ASK_INFER_DTYPE,

  TREADLE_ASK_RANKS,
  TREADLE_ASK_NODES,
  TREADLE_ASK_NODE_RANKS,
  TREADLE_ASK_MODE, /* on the same ranks, or apart */
  TREADLE_ASK_INFER_NODES,
  TREADLE_ASK_INFER_NODE_RANKS,
  TREADLE_ASK_PLACEMENT, /* RLinf's */

  TREADLE_ASK_OFFLOAD, /* all three; else one of them, of Megatron or of FSDP */
  TREADLE_ASK_OFFLOAD_PARAMS,
  TREADLE_ASK_OFFLOAD_GRADS,
  TREADLE_ASK_OFFLOAD_OPTIMIZER,
  TREADLE_ASK_FSDP_OFFLOAD_PARAMS,
  TREADLE_ASK_FSDP_OFFLOAD_OPTIMIZER,
  TREADLE_ASK_CAP_MIB,
  TREADLE_ASKS
} treadle_switch_key;

/* A key that is heard. Of several that say the same, the first one of the rows goes before the others. */
typedef struct treadle_switch_row {
  const char *path; /* as the facts have it */
  treadle_switch_key ask;
} treadle_switch_row;

typedef struct treadle_switch_project {
  const treadle_key_set *facts;
  const char *const *sections; /* that no other project has; ended by NULL */
  const treadle_switch_row *rows;
  size_t count;
  const treadle_train_limit
      *limits; /* [limit_count] keys that would make layouts which have no text here */
  size_t limit_count;
  treadle_status (*settle)(treadle_config_reader *reader);
} treadle_switch_project;

extern const treadle_switch_project treadle_switch_mindspeed, treadle_switch_rlinf, treadle_switch_verl;

/* What was given for a key. */
typedef struct treadle_switch_value {
  const char *path, *text; /* text NULL: it was not given */
  int line;
  size_t row;
  bool is_missing; /* it is ???, for who runs it */
  bool is_used;
} treadle_switch_value;

/* Where RLinf places a component: accelerators `first` to `last`, or all. */
typedef struct treadle_switch_span {
  const char *path; /* NULL: nowhere */
  int line;
  bool is_all;
  int64_t first, last, count; /* count: those that are named */
  int64_t processes;
} treadle_switch_span;

enum { TREADLE_PLACED_ACTOR, TREADLE_PLACED_ROLLOUT, TREADLE_PLACED_INFERENCE, TREADLE_PLACED };

/* All that a file says, and what is made of it. */
struct treadle_switch_values {
  const treadle_switch_project *project;
  treadle_switch_value of[TREADLE_ASKS];
  treadle_switch_span placed[TREADLE_PLACED];
  int64_t highest; /* accelerator that any component has; -1: none is named */
  treadle_switch_config_info info;
};

/* ---- config_switch_values.c: one value each, which is used then ---- */

/* "FILE:12: path" of a key, which begins a message. */
const char *treadle_asked_head(const treadle_config_reader *reader, treadle_switch_key ask);
bool treadle_asked_is_given(const treadle_config_reader *reader, treadle_switch_key ask);
/* `otherwise` where it is not given. */
const char *treadle_asked_text(treadle_config_reader *reader, treadle_switch_key ask,
                               const char *otherwise);
treadle_status treadle_asked_size(treadle_config_reader *reader, treadle_switch_key ask, int64_t least,
                                  int64_t otherwise, int64_t *value_p);
treadle_status treadle_asked_truth(treadle_config_reader *reader, treadle_switch_key ask, bool otherwise,
                                   bool *truth_p);
/* As a layout has it; NULL: it is not given, or left to the model. */
treadle_status treadle_asked_dtype(treadle_config_reader *reader, treadle_switch_key ask,
                                   const char **dtype_p);
/* One of `words`, ended by NULL. */
treadle_status treadle_asked_word(treadle_config_reader *reader, treadle_switch_key ask,
                                  const char *const *words, const char *otherwise, const char **word_p);

/* ---- config_switch_layout.c: layouts as text ---- */

/* ",key=value", or ":key=value" where it is the first; sizes of 1 are left out. */
void treadle_asked_add_size(treadle_builder *text, const char *key, int64_t value);
void treadle_asked_add_word(treadle_builder *text, const char *key, const char *value);
/* on=first-last, unless these are all of the ranks. */
void treadle_asked_add_ranks(treadle_builder *text, int64_t first, int64_t last, int64_t ranks);
/* "megatron:.." of what is asked; `ranks` that hold it, 0: not known. *tp_p: its tp. */
treadle_status treadle_asked_add_megatron(treadle_config_reader *reader, treadle_builder *text,
                                          int64_t ranks, int64_t *tp_p);
/* "fsdp:.." or "fsdp2:..". */
treadle_status treadle_asked_add_fsdp(treadle_config_reader *reader, treadle_builder *text,
                                      const char *type, int64_t ranks);
/* Refused where `product` does not divide the ranks, which the key asks for. */
treadle_status treadle_asked_check_ranks(const treadle_config_reader *reader, treadle_switch_key ask,
                                         const char *what, int64_t ranks, int64_t product);
/* The text as that of a layout. Refused where it has not the form of one, which the key gave. */
treadle_status treadle_asked_keep(treadle_config_reader *reader, const treadle_builder *text,
                                  treadle_switch_key ask, const char **text_p);

/* ---- config_switch_ranks.c: RLinf's placements ---- */

/* Of a component, or of several with commas between: "0-3", "all", "0-1:0-3,3-5". */
treadle_status treadle_asked_place_components(treadle_config_reader *reader, const char *names,
                                              const treadle_given_value *given);

#endif
