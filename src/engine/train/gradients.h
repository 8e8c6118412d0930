/* What becomes of a batch of rows: what the files of gradients share.
 *
 *   gradients.c         the calls: a batch through the layers, and what its loss came to
 *   gradients_alike.c   what ranks must be given alike
 *   gradients_batch.c   the columns of a batch, as rows of tokens
 *   gradients_rows.c    what rows may be, and how they are divided: micro batches, and each replica's share of these
 *   gradients_fill.c    a micro batch, put together
 *   gradients_loss.c    what a loss says of the tokens of a micro batch, and its sums over all ranks
 *   choices.c           experts of tokens that others have recorded, beside the trainer's own
 *   gradients_items.c   micro batches forward and backward through the layers of this rank, in the order of the pipeline */
#ifndef TREADLE_TRAIN_GRADIENTS_H
#define TREADLE_TRAIN_GRADIENTS_H

#include "group/group.h"
#include "train/back_head.h"
#include "train/trainer.h"
#include "train/value.h"

/* A row of a batch: a prompt, then ids. */
typedef struct treadle_train_row {
  const int32_t *prompt, *ids; /* prompt: [prompt_count] */
  const uint8_t *mask;         /* of ids; NULL: all count */
  int64_t prompt_count, count; /* count: of both together */
  int64_t first;               /* of its ids among those of all rows, as in all columns like ids */
  int64_t number;              /* of its first token that counts, among those of all rows */
  int64_t shared;              /* the tokens of its prompt, if the row before it has the same one; else 0 */
} treadle_train_row;

static inline int32_t treadle_train_id(const treadle_train_row *row, int64_t token) {
  return token < row->prompt_count ? row->prompt[token] : row->ids[token - row->prompt_count];
}
/* Does a token count? The first one of a row never does. */
static inline bool treadle_train_counts(const treadle_train_row *row, int64_t token) {
  const int64_t id = token - row->prompt_count;
  return token > 0 && id >= 0 && (!row->mask || row->mask[id]);
}

/* Columns like ids; NULL: the batch does not have them. */
typedef struct treadle_train_values {
  const float *old, *ref, *rollout;
  const float *old_values, *returns;
  const double *advantages;
  const double *advantage; /* [rows] */
  const int32_t *kept_counts, *kept;
  const int64_t *micro_batch; /* [rows] equal neighbours go together; NULL: as the forward options say */
} treadle_train_values;

typedef enum treadle_train_loss {
  TREADLE_LOSS_NONE, /* what the head finds alone */
  TREADLE_LOSS_NLL,
  TREADLE_LOSS_PPO,
  TREADLE_LOSS_VALUE, /* of a score head */
  TREADLE_LOSS_OWN    /* the caller's */
} treadle_train_loss;

/* What the head finds. Values and scores are of a score head. */
typedef enum treadle_train_found {
  TREADLE_FIND_LOGPROBS,
  TREADLE_FIND_VALUES,
  TREADLE_FIND_SCORES /* one a row, at its last token */
} treadle_train_found;

/* The column experts of a batch, and what routers chose by themselves. Tokens are those that go through the layers, in order. */
typedef struct treadle_expert_choices {
  const unsigned char *
      given; /* records of all rows' tokens but each last one, one row after the other; NULL: the batch has none */
  int64_t *given_first; /* [rows + 1] where those of each begin, in bytes */
  int64_t *begins;      /* [micro batches + 1] tokens before each; NULL: nobody asks */
  int64_t tokens;
  const unsigned char **records; /* [rows of a micro batch] */
  unsigned char *found;          /* [tokens] TREADLE_PASS_COMPARED, TREADLE_PASS_DIFFERS */
  unsigned char *chosen;         /* [tokens] records, where they are asked for */
  int64_t most_given, most;      /* tokens of the coordinate with the most: of those with records, of all */
  int64_t compared, differing;   /* tokens of all coordinates */
  int64_t record;                /* bytes of a token's */
  treadle_pass_given pass;
} treadle_expert_choices;

/* A batch on its way: the rows of this rank's coordinate, in micro batches. */
typedef struct treadle_train_work {
  treadle_trainer *t;
  treadle_forward_options forward;
  treadle_loss_options options;
  treadle_train_found find;
  treadle_train_loss loss;
  treadle_ppo ppo;
  treadle_value_loss value;
  treadle_train_row *rows; /* [count] */
  size_t count;
  int64_t ids, counted; /* of all rows */
  treadle_train_values values;
  treadle_expert_choices choices;
  int32_t micro_batches, most_batches; /* of this rank, the empty ones with which groups keep step among them; of the rank with the most */
  int64_t through;                     /* tokens that go through the layers, of all ranks */
  int64_t tokens, sequences;           /* that count, and rows that have some: of all ranks */
  bool backward, elsewhere;            /* elsewhere: with weights that are not the trainer's own */
  float scale;                         /* of "nll" */
  float *logprobs, *entropies; /* [counted] logprobs: or values, or scores. entropies NULL: not asked for */
  int64_t *kept_first;         /* [counted] where the ids of each are; NULL: nothing was cut */
  treadle_ppo_term *terms;     /* [counted] of "ppo" */
  treadle_value_term *value_terms; /* [counted] of "value" */
  /* of the caller's loss [3, counted]: losses, by_log_prob, by_entropy; of "nll" [counted]: -log p */
  double *own;
  treadle_status noted; /* and its message */
  char message[TREADLE_GROUP_MESSAGE];
} treadle_train_work;

/* ---- gradients.c ---- */

/* Refused: micro batches of no size, or of two; numbers out of range. */
treadle_status treadle_train_check_forward(const treadle_forward_options *forward);
/* What the head of the model finds, if nobody asks for scores. */
static inline treadle_train_found treadle_train_found_by(const treadle_transformer *d) {
  return d->head < 0 ? TREADLE_FIND_VALUES : TREADLE_FIND_LOGPROBS;
}
/* Does this rank say what its replica has found? One of the last stage does. */
bool treadle_train_speaks(const treadle_train_stage *stage, const treadle_pass *pass);

/* ---- gradients_alike.c ---- */

/* How what comes before the layers fared: all ranks go on, in the same call and with the same values, or all fail. Collective. */
treadle_status treadle_train_agree_on_work(const treadle_train_work *work, const char *name,
                                           treadle_status status);

/* ---- gradients_batch.c ---- */

/* Reads the columns. *work_p is ended by release, whatever is returned. */
treadle_status treadle_train_take_batch(treadle_train_work *work, const treadle_batch *batch);
/* Adds a column like ids to `out`: values [counted], and 0 for the others. */
treadle_status treadle_train_give(const treadle_train_work *work, const char *name, const float *values,
                                  const treadle_batch *batch, treadle_batch *out);
/* Adds the column score: one number a row. */
treadle_status treadle_train_give_scores(const treadle_train_work *work, treadle_batch *out);
void treadle_train_release_work(treadle_train_work *work);

/* ---- gradients_rows.c ---- */

/* Refused: what rows or micro batches may not be. */
treadle_status treadle_train_check_rows(const treadle_train_work *w);
/* The rows of a micro batch that begins at `first`. */
size_t treadle_train_rows_from(const treadle_train_work *w, size_t first);
/* Where micro batch `number` begins; behind the last row, if there is none. */
size_t treadle_train_first_of(const treadle_train_work *w, int64_t number);
/* How many micro batches there are: on this rank, and at most; and tokens that count on all ranks. Refused: more than
 * there is memory for. Collective. */
treadle_status treadle_train_count(treadle_train_work *w);

/* ---- gradients_fill.c ---- */

/* Rows of a micro batch one after the other, and where their tokens lie among those that go through the layers. The last token of a row would do
 * so for nothing, and stays away; for scores it is the one that counts. */
typedef struct treadle_train_walk {
  const treadle_train_work *work;
  size_t begin, end, next;
  size_t row; /* the one at hand */
  int64_t shared,
      shared_at;   /* its first tokens, where rows beside it have the same prompt; and where these lie */
  bool brings;     /* the shared ones come with this row */
  int64_t at, own; /* the others */
} treadle_train_walk;
/* Before the first row of the micro batch that begins at `begin`. */
treadle_train_walk treadle_train_walk_from(const treadle_train_work *w, size_t begin);
/* To the next row; false: there is none. */
bool treadle_train_walk_on(treadle_train_walk *walk);
int64_t treadle_train_tokens_through(const treadle_train_work *w, size_t begin);
/* Rows side by side, in the trainer's buffers; none, behind this rank's last micro batch. Ranks that share experts call
 * it together. */
treadle_status treadle_train_micro_batch(treadle_train_work *w, int32_t micro_batch,
                                         treadle_train_step *step_p);

/* ---- choices.c ---- */

/* The column experts, where routers are to be compared with it or go by it, and room for what is asked for. The rows are there. */
treadle_status treadle_train_take_choices(treadle_train_work *w, const treadle_batch *batch);
void treadle_train_release_choices(treadle_expert_choices *choices);
/* For rows from `first` on of a micro batch, until the next call; NULL: nobody asks. */
const treadle_pass_given *treadle_train_given(treadle_train_work *w, int32_t micro_batch, int64_t first);
/* After all micro batches: ranks with other layers of these rows tell each other. And how many tokens differ, on all ranks. Collective. */
treadle_status treadle_train_join_choices(treadle_train_work *w);
/* Adds the columns experts_differing and experts, where they are known. */
treadle_status treadle_train_give_choices(const treadle_train_work *w, treadle_batch *out);

/* ---- gradients_loss.c ---- */

/* Keeps a failure that this rank alone has found while others wait for its part, such as a loss that is not finite. The
 * rank goes on to the end of the step, which then fails on all ranks with the first such failure; they can take another
 * step. */
void treadle_train_note(treadle_train_work *w, treadle_status status);
/* The derivatives of the loss by what was found of a token, for its slopes. */
void treadle_train_slope(treadle_train_work *w, const treadle_train_place *place,
                         treadle_train_slopes *slopes);
/* The derivative of "value" by the value of a token. */
double treadle_train_value_slope(treadle_train_work *w, const treadle_train_place *place);
/* The caller's loss, of the rows of a micro batch, once all their log-probabilities are there. */
void treadle_train_own_loss(treadle_train_work *w, const treadle_train_step *batch);
/* What the loss came to, over all ranks. Collective. */
treadle_status treadle_train_sum_loss(treadle_train_work *w, treadle_loss *loss_p);

/* ---- gradients_items.c ---- */

/* All micro batches of this rank. Collective; a failure is told the others, who fail, too. */
treadle_status treadle_train_run_step(treadle_train_work *w);

#endif
