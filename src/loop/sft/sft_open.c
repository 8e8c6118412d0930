/* What a configuration names, opened: the model, its layout on these ranks, rows to train on, the trainer. Nothing is written here. */
#include "sft/sft.h"

#include "base/alloc.h"
#include "base/hash.h"
#include "base/larger.h"
#include "generate/generator.h"
#include "group/group.h"
#include "io/file.h"
#include "io/file_look.h"
#include "io/folder.h"
#include "layout/layout.h"
#include "model/notes.h"
#include "pass/replica.h"
#include "pass/transformer.h"
#include "run/checkpoint_room.h"
#include "run/dropout.h"
#include "token/tokenizer.h"
#include "train/context.h"

#include <stdlib.h>
#include <string.h>

enum { SEQUENCE_MOST = 4096, FILE_MOST = 1 << 30 };

treadle_status treadle_sft_agree(const treadle_sft *sft, treadle_status status) {
  return sft->group ? treadle_group_agree(sft->group, status) : status;
}

/* ---- The model ------------------------------------------------------------------------------------------ */

static treadle_status open_model(treadle_sft *sft) {
  const treadle_train_settings *s = sft->settings;
  const treadle_model_options options = {.struct_size = sizeof options,
                                         .families = sft->options->families,
                                         .weights = (treadle_weights)s->actor.weights};
  char text[1024];
  treadle_status status;
  TRY(treadle_model_open(s->actor.model, &options, &sft->model));
  if (sft->rank == 0) {
    treadle_model_tell(sft->model, treadle_observe_warning, &sft->observer);
    TRY(treadle_train_tell_dropout(sft->model, treadle_observe_warning, &sft->observer));
  }
  if (!sft->plans && !sft->from[0]) TRY(treadle_model_need_weights(sft->model));
  TRY(treadle_train_config_layout(sft->config, TREADLE_PART_PARAMS, sft->model->layers, sft->ranks, text,
                                  sizeof text));
  TRY(treadle_layout_create(sft->model, text, sft->ranks, NULL, &sft->layout));
out:
  return status;
}

static treadle_status check_model(treadle_sft *sft) {
  const treadle_train_settings *s = sft->settings;
  treadle_transformer *d = NULL;
  treadle_status status;
  TRY(treadle_transformer_create(sft->model, &d));
  const treadle_config_routers routers = {s->actor.model, d->routing.experts, d->routing.sigmoid};
  TRY(treadle_train_config_check_routers(sft->config, &routers));
  TRY(treadle_train_config_check_lora(sft->config, sft->model));
  if (s->training.seq_length && d->most_positions && s->training.seq_length > d->most_positions)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: %lld tokens, and the model takes %lld",
                     TREADLE_SFT_PLACE(sft, training.seq_length), (long long)s->training.seq_length,
                     (long long)d->most_positions));
  if (sft->text.tokenizer && treadle_tokenizer_own_count(sft->text.tokenizer) > d->vocabulary)
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "the tokenizer of %s has %d ids, the model of %s a vocabulary of %lld: it is another model's",
        sft->text.companions, treadle_tokenizer_own_count(sft->text.tokenizer), s->actor.model,
        (long long)d->vocabulary));
  TRY(treadle_defaults_check(d, sft->text.tokenizer, false));
  sft->seq_length = s->training.seq_length ? s->training.seq_length : SEQUENCE_MOST;
  if (!s->training.seq_length && d->most_positions && d->most_positions < SEQUENCE_MOST)
    sft->seq_length = d->most_positions;
out:
  treadle_transformer_destroy(d);
  return status;
}

/* ---- Rows ----------------------------------------------------------------------------------------------- */

static treadle_status read_rows(treadle_sft *sft, const char *path, const char *place,
                                treadle_batch **rows_p) {
  const treadle_train_rows_spec spec = {.struct_size = sizeof spec,
                                        .what = path,
                                        .tokenizer = sft->text.tokenizer,
                                        .layout = sft->layout,
                                        .chat = sft->text.chat,
                                        .most_tokens = sft->seq_length};
  char *text = NULL;
  size_t bytes;
  treadle_status status;
  status = treadle_file_check_lines(path);
  if (!status) status = treadle_file_read(path, FILE_MOST, &text, &bytes);
  TRY(treadle_refused_at(place, status));
  TRY(treadle_train_rows_read(&spec, text, bytes, rows_p));
out:
  treadle_free(text);
  return status;
}

static int longer(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

/* Places of the run's rows, in the order in which they are taken: `count` of them from `first` on may be, of each epoch that they lie in,
 * its longest rows. sums[n]: tokens of the n longest. */
static int64_t most_tokens_of(const int64_t *sums, int64_t rows, int64_t first, int64_t count) {
  int64_t tokens = 0;
  while (count > 0) {
    int64_t here = treadle_smaller(count, rows - first % rows);
    tokens += sums[here];
    first += here;
    count -= here;
  }
  return tokens;
}

/* Tokens of the fullest micro batch that any order of rows may make: an epoch may end inside of one, and then a long row is in it twice. Where
 * epochs end in a step repeats after as many epochs as a step has rows, at most. */
static int64_t fullest_micro_batch(const treadle_train_settings *s, const int64_t *sums, int64_t rows) {
  const int64_t step = s->training.global_batch_size, micro = s->actor.micro_batch_size;
  const int64_t all =
      s->training.train_iters > INT64_MAX / step ? INT64_MAX : s->training.train_iters * step;
  int64_t most = sums[treadle_smaller(treadle_smaller(micro, rows), step)];
  for (int64_t epoch = 1; epoch <= step && epoch <= (all - 1) / rows; epoch++) {
    int64_t in_step = epoch * rows % step, in_micro = in_step % micro, begin = in_step - in_micro;
    int64_t tokens =
        most_tokens_of(sums, rows, epoch * rows - in_micro, treadle_smaller(micro, step - begin));
    most = treadle_larger(most, tokens);
  }
  return most;
}

/* Tokens of the fullest micro batch, and of the longest row. */
static treadle_status measure(const treadle_sft *sft, const char *path, const treadle_batch *rows,
                              size_t count, bool again, treadle_trainer_options *options) {
  const treadle_train_settings *s = sft->settings;
  treadle_column ids = TREADLE_INIT(treadle_column);
  int64_t *lengths = treadle_alloc_array(count, sizeof *lengths);
  int64_t *sums = treadle_alloc_array(count + 1, sizeof *sums), most = s->actor.max_tokens_per_micro;
  treadle_status status = TREADLE_OK;
  if (!lengths || !sums) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu rows", count));
  TRY(treadle_batch_column(rows, "ids", &ids));
  for (size_t i = 0; i < count; i++) lengths[i] = ids.offsets[i + 1] - ids.offsets[i];
  qsort(lengths, count, sizeof *lengths, longer);
  for (size_t i = 0; i < count; i++) sums[i + 1] = sums[i] + lengths[i];
  if (!most && again) most = fullest_micro_batch(s, sums, (int64_t)count);
  if (!most) most = sums[treadle_smaller(s->actor.micro_batch_size, (int64_t)count)];
  options->most_rows = treadle_larger(options->most_rows, most);
  options->most_tokens = treadle_larger(options->most_tokens, lengths[0]);
  if (s->actor.max_tokens_per_micro && lengths[0] > s->actor.max_tokens_per_micro)
    status = treadle_fail(TREADLE_REFUSED, "%s: %lld tokens, and the longest row of %s has %lld",
                          TREADLE_SFT_PLACE(sft, actor.max_tokens_per_micro),
                          (long long)s->actor.max_tokens_per_micro, path, (long long)lengths[0]);
out:
  treadle_free(lengths);
  treadle_free(sums);
  return status;
}

static treadle_status open_rows(treadle_sft *sft) {
  const treadle_train_settings *s = sft->settings;
  treadle_status status = TREADLE_OK;
  if (s->training.data_path)
    TRY(read_rows(sft, s->training.data_path, TREADLE_SFT_PLACE(sft, training.data_path), &sft->train));
  if (s->training.val_path)
    TRY(read_rows(sft, s->training.val_path, TREADLE_SFT_PLACE(sft, training.val_path), &sft->val));
  if (sft->train) sft->train_count = (size_t)treadle_batch_rows(sft->train);
  if (sft->val) sft->val_count = (size_t)treadle_batch_rows(sft->val);
out:
  return status;
}

/* Of all tokens, and which of them count. */
static treadle_status digest_of(const treadle_batch *rows, uint64_t *digest_p) {
  treadle_column ids = TREADLE_INIT(treadle_column), mask = TREADLE_INIT(treadle_column);
  treadle_status status;
  *digest_p = 0;
  TRY(treadle_batch_column(rows, "ids", &ids));
  TRY(treadle_batch_column(rows, "mask", &mask));
  const int32_t *id = ids.data;
  const uint8_t *counts = mask.data;
  for (int64_t r = 0; r < treadle_batch_rows(rows); r++) {
    *digest_p = treadle_hash_more(*digest_p, (uint64_t)(ids.offsets[r + 1] - ids.offsets[r]));
    for (int64_t i = ids.offsets[r]; i < ids.offsets[r + 1]; i++)
      *digest_p = treadle_hash_more(*digest_p, (uint64_t)id[i] << 1 | (counts[i] != 0));
  }
out:
  return status;
}

static treadle_status take_order(treadle_sft *sft) {
  const treadle_train_settings *s = sft->settings;
  treadle_status status;
  TRY(digest_of(sft->train, &sft->rows_digest));
  TRY(treadle_train_order_init(&sft->order, (uint64_t)s->training.seed, sft->train_count));
  if (s->training.no_shuffle) treadle_train_order_keep(&sft->order);
  sft->places = treadle_alloc_array((size_t)s->training.global_batch_size, sizeof *sft->places);
  if (!sft->places)
    status = treadle_fail(TREADLE_NO_MEMORY, "no memory for a batch of %lld rows",
                          (long long)s->training.global_batch_size);
out:
  return status;
}

treadle_forward_options treadle_sft_forward(const treadle_sft *sft) {
  return (treadle_forward_options){.struct_size = sizeof(treadle_forward_options),
                                   .micro_batch_size = sft->settings->actor.micro_batch_size,
                                   .max_tokens_per_micro = sft->settings->actor.max_tokens_per_micro};
}

/* ---- The trainer ---------------------------------------------------------------------------------------- */

/* The same of rows that nobody has seen. */
static void measure_longest(const treadle_sft *sft, treadle_trainer_options *options) {
  const treadle_train_settings *s = sft->settings;
  options->most_tokens = sft->seq_length;
  options->most_rows = s->actor.max_tokens_per_micro ? s->actor.max_tokens_per_micro
                                                     : s->actor.micro_batch_size * sft->seq_length;
}

/* How many replicas divide a step, and into how many stages each is divided. */
static treadle_status find_replicas(const treadle_sft *sft, int64_t *dp_p, int64_t *pp_p) {
  const treadle_config_actor *actor = &sft->settings->actor;
  const bool sharded = actor->strategy == TREADLE_STRATEGY_FSDP2;
  treadle_context_rank place;
  treadle_arena arena = {0};
  treadle_transformer *d = NULL;
  treadle_replica replica;
  treadle_status status = TREADLE_OK;
  if (!sharded) TRY(treadle_transformer_create(sft->model, &d));
  if (!sharded) TRY(treadle_replica_find(d, sft->layout, 0, &arena, &replica));
  TRY(treadle_context_place(sft->layout, (int32_t)actor->ulysses_sequence_parallel_size,
                            sharded ? NULL : &replica, 0, &place));
  *dp_p = place.data_ranks;
  *pp_p = sharded ? 1 : actor->pipeline_model_parallel_size;
out:
  treadle_transformer_destroy(d);
  treadle_arena_release(&arena);
  return status;
}

/* Micro batches of a replica, at most. */
static treadle_status count_batches(const treadle_sft *sft, int32_t *most_p) {
  enum { BATCHES_MOST = 1 << 20 };
  int64_t dp, pp, count;
  treadle_status status;
  TRY(find_replicas(sft, &dp, &pp));
  TRY(treadle_train_config_micro_batches(sft->config, dp, pp, &count));
  if (!count) count = (sft->settings->training.global_batch_size + dp - 1) / dp; /* one row in each */
  if (count > BATCHES_MOST)
    TRY(treadle_fail(
        TREADLE_REFUSED, "%s: %lld micro batches on each of %lld data parallel ranks; at most %d",
        TREADLE_SFT_PLACE(sft, training.global_batch_size), (long long)count, (long long)dp, BATCHES_MOST));
  *most_p = (int32_t)count;
out:
  return status;
}

static treadle_status make_options(treadle_sft *sft, treadle_trainer_options *options) {
  const treadle_train_settings *s = sft->settings;
  int32_t most_micro_batches;
  treadle_status status;
  TRY(count_batches(sft, &most_micro_batches));
  *options = (treadle_trainer_options){
      .struct_size = sizeof *options,
      .kernels = sft->options->kernels,
      .threads = sft->options->threads,
      .fast = !s->actor.exact,
      .companions =
          sft->text.tokenizer && treadle_file_is_folder(sft->text.companions) ? sft->text.companions : NULL,
      .recompute = s->training.recompute_granularity == TREADLE_RECOMPUTE_FULL,
      .sequence_parallel = s->training.sequence_parallel,
      .optimizer = true,
      .distributed_optimizer = s->training.use_distributed_optimizer,
      .aux_loss_coeff = treadle_train_config_aux_loss(s),
      .seq_aux_loss = treadle_train_config_by_sequence(s),
      .z_loss_coeff = s->training.moe_z_loss_coeff,
      .expert_bias_rate = treadle_train_config_bias_rate(s),
      .freeze_routers = s->training.freeze_moe_router,
      .offload_policy = s->actor.offload_policy,
      .adam_beta1 = s->actor.adam_beta1,
      .adam_beta2 = s->actor.adam_beta2,
      .adam_eps = s->actor.adam_eps,
      .most_micro_batches = most_micro_batches,
      .fewer_micro_batches = s->actor.max_tokens_per_micro != 0,
      .ulysses_ranks = (int32_t)s->actor.ulysses_sequence_parallel_size};
  treadle_train_lora_options(s, options);
  if (sft->train)
    TRY(measure(sft, s->training.data_path, sft->train, sft->train_count, true, options));
  else
    measure_longest(sft, options);
  if (sft->val) TRY(measure(sft, s->training.val_path, sft->val, sft->val_count, false, options));
out:
  return status;
}

treadle_status treadle_sft_measure(treadle_sft *sft, treadle_trainer_options *options) {
  treadle_status status;
  TRY(treadle_train_config_need(sft->config, sft->plans));
  TRY(open_model(sft));
  TRY(treadle_run_text_open(sft->settings->training.tokenizer_name_or_path, sft->settings->actor.model,
                            &sft->text));
  TRY(check_model(sft));
  TRY(open_rows(sft));
  TRY(make_options(sft, options));
out:
  return status;
}

static treadle_status open_inputs(treadle_sft *sft, treadle_trainer_options *options) {
  treadle_status status;
  TRY(treadle_train_config_need(sft->config, false));
  TRY(treadle_sft_measure(sft, options));
  TRY(take_order(sft));
  if (sft->from[0]) TRY(treadle_sft_read_start(sft));
  if (sft->rank == 0 && sft->step < sft->settings->training.train_iters && !sft->options->open_engine)
    TRY(treadle_train_check_room(sft->config, sft->model, NULL));
out:
  return status;
}

treadle_weights treadle_sft_weights(const treadle_sft *sft) {
  return sft->from[0] ? TREADLE_WEIGHTS_FILES : treadle_model_weights(sft->model);
}

static void warn_made_up(const treadle_sft *sft) {
  char line[PATH_MAX + 100];
  snprintf(line, sizeof line, TREADLE_MADE_UP, sft->settings->actor.model);
  if (sft->rank == 0) treadle_observe_note(&sft->observer, true, line);
}

treadle_status treadle_sft_open(treadle_sft *sft) {
  const treadle_train_settings *s = sft->settings;
  treadle_trainer_options options;
  char actor[PATH_MAX + 8];
  treadle_train_engine_open open = sft->options->open_engine;
  treadle_status status;
  if (!open) open = treadle_trainer_open_engine;
  sft->saved = -1;
  sft->schedule = (treadle_lr_schedule){.style = (treadle_lr_style)s->actor.lr_decay_style,
                                        .lr = s->actor.lr,
                                        .min_lr = s->actor.min_lr,
                                        .warmup_fraction = s->actor.lr_warmup_fraction,
                                        .steps = s->training.train_iters};
  TRY(treadle_sft_agree(sft, treadle_sft_find_start(sft)));
  if (sft->from[0]) TRY(treadle_sft_check_start(sft));
  TRY(treadle_sft_agree(sft, treadle_as_refusal(open_inputs(sft, &options))));
  if (treadle_sft_weights(sft) == TREADLE_WEIGHTS_RANDOM) warn_made_up(sft);
  TRY(treadle_sft_agree(sft, sft->rank == 0 ? treadle_sft_predict(sft, &options, NULL) : TREADLE_OK));
  sft->engine.struct_size = sizeof sft->engine;
  TRY(treadle_sft_agree(
      sft, open(sft->options->engine_context, sft->group, sft->layout, &options, &sft->engine)));
  if (sft->from[0]) {
    snprintf(actor, sizeof actor, "%s/actor", sft->from);
    TRY(sft->engine.resume(sft->engine.engine, actor));
  } else if (treadle_sft_weights(sft) == TREADLE_WEIGHTS_FILES) {
    TRY(sft->engine.load(sft->engine.engine));
  } else {
    TRY(sft->engine.randomise(sft->engine.engine, (uint64_t)s->training.seed));
  }
out:
  return status;
}

void treadle_sft_close(treadle_sft *sft) {
  treadle_metrics_close(sft->metrics);
  if (sft->engine.close) sft->engine.close(sft->engine.engine);
  treadle_train_order_release(&sft->order);
  treadle_free(sft->places);
  treadle_batch_destroy(sft->train);
  treadle_batch_destroy(sft->val);
  treadle_run_text_close(&sft->text);
  treadle_layout_destroy(sft->layout);
  treadle_model_close(sft->model);
}
