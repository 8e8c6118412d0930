/* What a configuration names, opened: the model, its layout on these ranks, rows to train on, the trainer. Nothing is written here. */
#include "train/sft.h"

#include "base/alloc.h"
#include "infer/transformer.h"
#include "io/file.h"
#include "io/json.h"
#include "layout/layout.h"
#include "transport/group.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE_MOST = 4096, FILE_MOST = 1 << 30, RUN_MOST = 960 };

treadle_status treadle_sft_agree(const treadle_sft *sft, treadle_status status) {
  return sft->group ? treadle_group_agree(sft->group, status) : status;
}

/* "actor_config.lr (line 9)" */
#define PLACE(sft, member) treadle_train_config_place((sft)->config, TREADLE_KEY_OF(member))

/* ---- Where the run goes on ------------------------------------------------------------------------------ */

static treadle_status find_start(treadle_sft *sft) {
  const char *run = sft->settings->save, *from = sft->options->from;
  int64_t step = -1;
  treadle_steps steps = {0};
  treadle_status status = TREADLE_OK;
  if (strlen(run) > RUN_MOST)
    return treadle_fail(TREADLE_REFUSED, "%s: a path of %zu bytes; at most %d", PLACE(sft, save),
                        strlen(run), RUN_MOST);
  if (sft->options->resume == TREADLE_RESUME_FROM) {
    if (!from || treadle_train_checkpoint_step_of(from) < 0)
      return treadle_fail(TREADLE_REFUSED, "--resume %s: it is no folder of a checkpoint, global_step_K",
                          from ? from : "");
    if (strlen(from) >= sizeof sft->from)
      return treadle_fail(TREADLE_REFUSED, "--resume: a path of %zu bytes; at most %zu", strlen(from),
                          sizeof sft->from - 1);
    TRY(treadle_train_checkpoint_check(from));
    snprintf(sft->from, sizeof sft->from, "%s", from);
    goto out;
  }
  TRY(treadle_train_checkpoint_list(run, &steps));
  if (sft->options->resume == TREADLE_RESUME_NEVER && steps.count)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: %s has checkpoints, the newest of step %lld: say --resume to go on from it, or "
                     "another folder",
                     PLACE(sft, save), run, (long long)steps.items[steps.count - 1]));
  if (sft->options->resume == TREADLE_RESUME_NEVER) goto out;
  TRY(treadle_train_checkpoint_find(run, &step));
  if (step >= 0) snprintf(sft->from, sizeof sft->from, "%s/global_step_%lld", run, (long long)step);
out:
  treadle_array_release(&steps);
  return status;
}

/* A number that data.json must have as the configuration has it. */
static treadle_status check_same(const json_t *root, const char *path, const char *name, int64_t now) {
  const json_t *value = json_object_get(root, name);
  if (!json_is_integer(value))
    return treadle_fail(TREADLE_REFUSED, "%s: '%s' is no whole number", path, name);
  if (json_integer_value(value) == now) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED,
                      "%s: the checkpoint has %s %lld, this run %lld: its rows would come in another order",
                      path, name, (long long)json_integer_value(value), (long long)now);
}

static treadle_status read_start(treadle_sft *sft) {
  char path[PATH_MAX + 16];
  json_t *root = NULL;
  const char *digest;
  treadle_status status;
  snprintf(path, sizeof path, "%s/data.json", sft->from);
  TRY(treadle_json_load(path, &root));
  TRY(check_same(root, path, "rows", (int64_t)sft->train_count));
  TRY(check_same(root, path, "seed", sft->settings->seed));
  TRY(check_same(root, path, "global_batch_size", sft->settings->global_batch_size));
  sft->optimizer_steps = json_integer_value(json_object_get(root, "optimizer_steps"));
  digest = json_string_value(json_object_get(root, "losses_digest"));
  sft->step = json_integer_value(json_object_get(root, "step"));
  if (!digest || sft->step < 0 || sft->optimizer_steps < 0 ||
      sft->step != treadle_train_checkpoint_step_of(sft->from))
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: 'step' or 'losses_digest' is not what a checkpoint of step %lld has", path,
                     (long long)treadle_train_checkpoint_step_of(sft->from)));
  sft->losses_digest = strtoull(digest, NULL, 16);
  sft->saved = sft->step;
out:
  json_decref(root);
  return status;
}

/* ---- The model ------------------------------------------------------------------------------------------ */

static treadle_status open_model(treadle_sft *sft) {
  const treadle_train_settings *s = sft->settings;
  const treadle_model_options options = {.struct_size = sizeof options, .families = sft->options->families};
  char text[1024];
  treadle_status status;
  TRY(treadle_model_open(s->model, &options, &sft->model));
  TRY(treadle_train_config_layout(sft->config, TREADLE_PART_PARAMS, sft->model->layers, sft->ranks, text,
                                  sizeof text));
  TRY(treadle_layout_create(sft->model, text, sft->ranks, NULL, &sft->layout));
out:
  return status;
}

/* The tokenizer and the chat template, where there are any: rows of token ids need none. */
static treadle_status open_text(treadle_sft *sft) {
  const char *path = sft->settings->tokenizer_name_or_path;
  bool must = path != NULL;
  char folder[PATH_MAX];
  treadle_status status;
  if (!must) path = sft->settings->model;
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  size_t length = strlen(folder);
  if (!must && length > 5 && strcmp(folder + length - 5, ".json") == 0) {
    if (slash)
      *slash = 0;
    else
      strcpy(folder, ".");
  }
  snprintf(sft->companions, sizeof sft->companions, "%s", folder);
  status = treadle_tokenizer_open(folder, &sft->tokenizer);
  if (status && (must || status == TREADLE_NO_MEMORY)) return status;
  if (status) return TREADLE_OK;
  return treadle_chat_find(folder, &sft->chat);
}

static treadle_status check_model(treadle_sft *sft) {
  const treadle_train_settings *s = sft->settings;
  treadle_transformer *d = NULL;
  treadle_status status;
  TRY(treadle_transformer_create(sft->model, &d));
  if (s->seq_length && d->most_positions && s->seq_length > d->most_positions)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: %lld tokens, and the model takes %lld", PLACE(sft, seq_length),
                     (long long)s->seq_length, (long long)d->most_positions));
  if (sft->tokenizer && treadle_tokenizer_count(sft->tokenizer) > d->vocabulary)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "the tokenizer has %d ids, the model a vocabulary of %lld: it is another model's",
                     treadle_tokenizer_count(sft->tokenizer), (long long)d->vocabulary));
  sft->seq_length = s->seq_length ? s->seq_length : SEQUENCE_MOST;
  if (!s->seq_length && d->most_positions && d->most_positions < SEQUENCE_MOST)
    sft->seq_length = d->most_positions;
out:
  treadle_transformer_destroy(d);
  return status;
}

/* ---- Rows ----------------------------------------------------------------------------------------------- */

static treadle_status read_rows(treadle_sft *sft, const char *path, const char *place,
                                treadle_train_rows **rows_p) {
  const treadle_train_rows_spec spec = {.struct_size = sizeof spec,
                                        .what = path,
                                        .tokenizer = sft->tokenizer,
                                        .layout = sft->layout,
                                        .chat = sft->chat,
                                        .most_tokens = sft->seq_length};
  char *text = NULL;
  size_t bytes;
  treadle_status status;
  status = treadle_file_read(path, FILE_MOST, &text, &bytes);
  if (status == TREADLE_SYSTEM) status = treadle_fail_in(TREADLE_REFUSED, "%s: ", place);
  TRY(status);
  TRY(treadle_train_rows_read(&spec, text, bytes, rows_p));
out:
  treadle_free(text);
  return status;
}

static int longer(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x < y) - (x > y);
}

/* Tokens of the fullest micro batch that any order of rows may make, and of the longest row. */
static treadle_status measure(const treadle_sft *sft, const treadle_train_row *rows, size_t count,
                              treadle_trainer_options *options) {
  const treadle_train_settings *s = sft->settings;
  int64_t *lengths = treadle_alloc_array(count, sizeof *lengths), sum = 0;
  if (!lengths) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %zu rows", count);
  for (size_t i = 0; i < count; i++) lengths[i] = (int64_t)rows[i].count;
  qsort(lengths, count, sizeof *lengths, longer);
  for (size_t i = 0; i < count && (int64_t)i < s->micro_batch_size; i++) sum += lengths[i];
  if (s->max_tokens_per_micro) sum = s->max_tokens_per_micro;
  if (sum > options->most_rows) options->most_rows = sum;
  if (lengths[0] > options->most_tokens) options->most_tokens = lengths[0];
  treadle_free(lengths);
  return TREADLE_OK;
}

static treadle_status open_rows(treadle_sft *sft) {
  const treadle_train_settings *s = sft->settings;
  treadle_status status = TREADLE_OK;
  if (s->data_path) TRY(read_rows(sft, s->data_path, PLACE(sft, data_path), &sft->train_rows));
  if (s->data_path) sft->train = treadle_train_rows_items(sft->train_rows, &sft->train_count);
  if (s->val_path) {
    TRY(read_rows(sft, s->val_path, PLACE(sft, val_path), &sft->val_rows));
    sft->val = treadle_train_rows_items(sft->val_rows, &sft->val_count);
  }
out:
  return status;
}

static treadle_status take_order(treadle_sft *sft) {
  const treadle_train_settings *s = sft->settings;
  treadle_status status;
  TRY(treadle_train_order_init(&sft->order, (uint64_t)s->seed, sft->train_count));
  sft->batch = treadle_alloc_array((size_t)s->global_batch_size, sizeof *sft->batch);
  if (!sft->batch)
    status = treadle_fail(TREADLE_NO_MEMORY, "no memory for a batch of %lld rows",
                          (long long)s->global_batch_size);
out:
  return status;
}

treadle_train_batch treadle_sft_batch(const treadle_sft *sft, const treadle_train_row *rows, size_t count) {
  return (treadle_train_batch){.struct_size = sizeof(treadle_train_batch),
                               .rows = rows,
                               .count = count,
                               .micro_batch_size = (size_t)sft->settings->micro_batch_size,
                               .max_tokens_per_micro = sft->settings->max_tokens_per_micro};
}

/* ---- The trainer ---------------------------------------------------------------------------------------- */

/* The same of rows that nobody has seen. */
static void measure_longest(const treadle_sft *sft, treadle_trainer_options *options) {
  const treadle_train_settings *s = sft->settings;
  options->most_tokens = sft->seq_length;
  options->most_rows =
      s->max_tokens_per_micro ? s->max_tokens_per_micro : s->micro_batch_size * sft->seq_length;
}

static treadle_status make_options(treadle_sft *sft, treadle_trainer_options *options) {
  const treadle_train_settings *s = sft->settings;
  int64_t rows = s->micro_batch_size ? s->micro_batch_size : 1;
  treadle_status status;
  *options = (treadle_trainer_options){
      .struct_size = sizeof *options,
      .kernels = sft->options->kernels,
      .threads = sft->options->threads,
      .fast = !s->exact,
      .companions = sft->tokenizer && treadle_file_is_folder(sft->companions) ? sft->companions : NULL,
      .recompute = s->recompute_granularity == TREADLE_RECOMPUTE_FULL,
      .sequence_parallel = s->sequence_parallel,
      .optimizer = true,
      .distributed_optimizer = s->use_distributed_optimizer,
      .offload_policy = s->offload_policy,
      .adam_beta1 = s->adam_beta1,
      .adam_beta2 = s->adam_beta2,
      .adam_eps = s->adam_eps,
      .most_micro_batches = (int32_t)((s->global_batch_size + rows - 1) / rows)};
  if (sft->train)
    TRY(measure(sft, sft->train, sft->train_count, options));
  else
    measure_longest(sft, options);
  if (sft->val) TRY(measure(sft, sft->val, sft->val_count, options));
out:
  return status;
}

treadle_status treadle_sft_measure(treadle_sft *sft, treadle_trainer_options *options) {
  treadle_status status;
  TRY(treadle_train_config_need(sft->config, sft->plans));
  TRY(open_model(sft));
  TRY(open_text(sft));
  TRY(check_model(sft));
  TRY(open_rows(sft));
  TRY(make_options(sft, options));
out:
  return status;
}

static treadle_status open_inputs(treadle_sft *sft, treadle_trainer_options *options) {
  treadle_status status;
  TRY(treadle_train_config_need(sft->config, false));
  TRY(find_start(sft));
  TRY(treadle_sft_measure(sft, options));
  TRY(take_order(sft));
  if (sft->from[0]) TRY(read_start(sft));
out:
  return status;
}

/* The fullest rank's bytes, by shapes alone. */
static treadle_status predict(treadle_sft *sft, const treadle_trainer_options *options) {
  treadle_trainer_memory *by_rank = treadle_alloc_array((size_t)sft->ranks, sizeof *by_rank);
  treadle_status status = TREADLE_OK;
  if (!by_rank) return treadle_fail(TREADLE_NO_MEMORY, "no memory for %d ranks", sft->ranks);
  TRY(treadle_trainer_plan(sft->layout, options, by_rank));
  for (int rank = 0; rank < sft->ranks; rank++)
    if (by_rank[rank].peak > sft->predicted) sft->predicted = by_rank[rank].peak;
out:
  treadle_free(by_rank);
  return status;
}

treadle_status treadle_sft_open(treadle_sft *sft) {
  const treadle_train_settings *s = sft->settings;
  treadle_trainer_options options;
  char actor[PATH_MAX + 8];
  treadle_train_engine_open open = sft->options->open_engine;
  treadle_status status;
  if (!open) open = treadle_trainer_open_engine;
  sft->saved = -1;
  sft->schedule = (treadle_lr_schedule){.style = (treadle_lr_style)s->lr_decay_style,
                                        .lr = s->lr,
                                        .min_lr = s->min_lr,
                                        .warmup_fraction = s->lr_warmup_fraction,
                                        .steps = s->train_iters};
  TRY(treadle_sft_agree(sft, open_inputs(sft, &options)));
  TRY(treadle_sft_agree(sft, sft->rank == 0 ? predict(sft, &options) : TREADLE_OK));
  sft->engine.struct_size = sizeof sft->engine;
  TRY(treadle_sft_agree(
      sft, open(sft->options->engine_context, sft->group, sft->layout, &options, &sft->engine)));
  if (sft->from[0]) {
    snprintf(actor, sizeof actor, "%s/actor", sft->from);
    TRY(sft->engine.resume(sft->engine.engine, actor));
  } else if (sft->model->checkpoint) {
    TRY(sft->engine.load(sft->engine.engine));
  } else {
    TRY(sft->engine.randomise(sft->engine.engine, (uint64_t)s->seed));
  }
out:
  return status;
}

void treadle_sft_close(treadle_sft *sft) {
  treadle_metrics_close(sft->metrics);
  if (sft->engine.close) sft->engine.close(sft->engine.engine);
  treadle_train_order_release(&sft->order);
  treadle_free(sft->batch);
  treadle_train_rows_destroy(sft->train_rows);
  treadle_train_rows_destroy(sft->val_rows);
  treadle_chat_close(sft->chat);
  treadle_tokenizer_close(sft->tokenizer);
  treadle_layout_destroy(sft->layout);
  treadle_model_close(sft->model);
}
