/* Supervised training: steps, tests, checkpoints. All ranks do the same; rank 0 writes and tells. */
#include "sft/sft.h"

#include "base/argument.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/sized.h"
#include "group/group.h"
#include "io/file.h"
#include "run/run_folder.h"
#include "train/coordinate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 1 << 16 };

/* ---- The folder of the run ------------------------------------------------------------------------------ */

static treadle_status write_config(const treadle_sft *sft) {
  char path[PATH_MAX];
  char *text = NULL;
  treadle_status status;
  if (snprintf(path, sizeof path, "%s/config.yaml", sft->settings->actor.save) >= (int)sizeof path)
    return treadle_fail(TREADLE_REFUSED, "%s: too long for a path", sft->settings->actor.save);
  TRY(treadle_train_config_text(sft->config, &text));
  TRY(treadle_file_write(path, text, strlen(text)));
out:
  free(text);
  return status;
}

/* The folder is this run's own from here on. */
static treadle_status take_folder(treadle_sft *sft) {
  treadle_status status = treadle_run_folder_take(sft->settings->actor.save, &sft->lock);
  char line[1024];
  if (status) return treadle_refused_at(TREADLE_SFT_PLACE(sft, actor.save), status);
  treadle_folder_lock_note(&sft->lock, line, sizeof line);
  treadle_observe_note(&sft->observer, true, line);
  return TREADLE_OK;
}

static treadle_status open_run(treadle_sft *sft) {
  const char *run = sft->settings->actor.save;
  char line[PATH_MAX + 200];
  treadle_status status;
  if (sft->rank > 0) return TREADLE_OK;
  TRY(write_config(sft));
  TRY(treadle_metrics_open(run, sft->from[0] ? sft->step : -1, &sft->metrics));
  treadle_metrics_note(sft->metrics, line, sizeof line);
  treadle_observe_note(&sft->observer, true, line);
out:
  return status;
}

/* ---- Checkpoints ---------------------------------------------------------------------------------------- */

static treadle_status save_actor(void *context, const char *folder) {
  const treadle_train_engine *engine = &((const treadle_sft *)context)->engine;
  return engine->save(engine->engine, folder);
}

static treadle_status save(treadle_sft *sft, char *path, size_t room) {
  const treadle_train_settings *s = sft->settings;
  char data[512], rng[128];
  treadle_status status;
  snprintf(data, sizeof data,
           "{\"step\": %lld, \"optimizer_steps\": %lld, \"rows\": %zu, \"rows_digest\": \"%016llx\", "
           "\"seed\": %lld, \"no_shuffle\": %d, \"global_batch_size\": %lld, \"epoch\": %lld, "
           "\"losses_digest\": \"%016llx\"}\n",
           (long long)sft->step, (long long)sft->optimizer_steps, sft->train_count,
           (unsigned long long)sft->rows_digest, (long long)s->training.seed, s->training.no_shuffle,
           (long long)s->training.global_batch_size,
           (long long)(sft->step * s->training.global_batch_size / (int64_t)sft->train_count),
           (unsigned long long)sft->losses_digest);
  snprintf(rng, sizeof rng, "{\"seed\": %lld, \"rows_taken\": %lld}\n", (long long)s->training.seed,
           (long long)(sft->step * s->training.global_batch_size));
  const treadle_train_checkpoint checkpoint = {.run = s->actor.save,
                                               .step = sft->step,
                                               .max_to_keep = s->training.max_ckpt_to_keep,
                                               .save = save_actor,
                                               .context = sft,
                                               .data = data,
                                               .rng = rng,
                                               .families = sft->options->families,
                                               .shared = sft->lock.unlocked};
  TRY(treadle_train_checkpoint_save(sft->group, &checkpoint));
  sft->saved = sft->step;
  snprintf(path, room, "%s/global_step_%lld", s->actor.save, (long long)sft->step);
out:
  return status;
}

/* ---- A step --------------------------------------------------------------------------------------------- */

/* The rows of a step, or of a test, that this rank takes. */
static treadle_status take_own(treadle_sft *sft, const treadle_batch *rows, treadle_batch **mine_p) {
  const treadle_forward_options forward = treadle_sft_forward(sft);
  const treadle_coordinate mine = {.engine = &sft->engine, .rank = sft->rank, .ranks = sft->ranks};
  return treadle_coordinate_slice(&mine, rows, &forward, NULL, mine_p);
}

/* The rows of the next step; and how many tokens they have. */
static treadle_status take_rows(treadle_sft *sft, treadle_batch **rows_p, int64_t *tokens_p) {
  const int64_t size = sft->settings->training.global_batch_size;
  treadle_column ids = TREADLE_INIT(treadle_column);
  treadle_status status;
  for (int64_t i = 0; i < size; i++)
    sft->places[i] = (int64_t)treadle_train_order_at(&sft->order, sft->step * size + i);
  TRY(treadle_batch_index(sft->train, sft->places, (size_t)size, rows_p));
  TRY(treadle_batch_column(*rows_p, "ids", &ids));
  *tokens_p = ids.offsets[size] - ids.offsets[0];
out:
  return status;
}

static const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};

static treadle_status take_step(treadle_sft *sft, treadle_sft_step *step) {
  const treadle_train_settings *s = sft->settings;
  const treadle_forward_options forward = treadle_sft_forward(sft);
  treadle_batch *rows = NULL, *mine = NULL;
  treadle_optimizer_figures result = TREADLE_INIT(treadle_optimizer_figures);
  treadle_optimizer_step optimizer = {.struct_size = sizeof optimizer,
                                      .weight_decay = s->actor.weight_decay,
                                      .clip_grad = s->actor.clip_grad};
  uint64_t bits;
  treadle_status status = take_rows(sft, &rows, &step->tokens);
  if (!status) status = take_own(sft, rows, &mine);
  TRY(treadle_sft_agree(sft, status));
  optimizer.lr = step->lr = treadle_schedule_lr(&sft->schedule, sft->optimizer_steps);
  TRY(sft->engine.update(sft->engine.engine, mine, &forward, &nll, &optimizer, NULL, &result));
  step->step = ++sft->step;
  step->loss = result.loss.nll / (double)result.loss.tokens;
  step->grad_norm = result.grad_norm;
  step->skipped = result.skipped;
  step->aux_loss = result.loss.aux_loss;
  step->expert_load_max = result.loss.expert_load_max;
  step->expert_load_min = result.loss.expert_load_min;
  sft->optimizer_steps = result.steps;
  memcpy(&bits, &step->loss, sizeof bits);
  sft->losses_digest = treadle_hash_more(sft->losses_digest, bits);
out:
  treadle_batch_destroy(mine);
  treadle_batch_destroy(rows);
  return status;
}

static bool is_due(int64_t step, int64_t interval) { return interval > 0 && step % interval == 0; }

static treadle_status test(treadle_sft *sft, treadle_sft_step *step) {
  const treadle_forward_options forward = treadle_sft_forward(sft);
  treadle_batch *mine = NULL;
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  treadle_status status;
  if (!sft->val || !is_due(sft->step, sft->settings->training.test_interval)) return TREADLE_OK;
  TRY(treadle_sft_agree(sft, take_own(sft, sft->val, &mine)));
  TRY(sft->engine.loss(sft->engine.engine, mine, &forward, &nll, &loss));
  step->tested = true;
  step->val_loss = loss.nll / (double)loss.tokens;
out:
  treadle_batch_destroy(mine);
  return status;
}

/* What is always there, then what some models and steps have. */
static treadle_status write_metrics(treadle_sft *sft, const treadle_sft_step *step, size_t peak) {
  const treadle_metric always[] = {
      {"train/loss", step->loss, false},
      {"train/grad_norm", step->grad_norm, false},
      {"train/lr", step->lr, false},
      {"train/skipped", step->skipped, true},
      {"perf/total_num_tokens", (double)step->tokens, true},
      {"perf/throughput", step->seconds > 0 ? (double)step->tokens / step->seconds : 0, false},
      {"perf/max_memory_allocated_gb", (double)peak / (double)(1 << 30), false},
      {"timing_s/step", step->seconds, false},
  };
  const treadle_metric of_experts[] = {
      {"actor/aux_loss", step->aux_loss, false},
      {"actor/expert_load/max_over_mean", step->expert_load_max, false},
      {"actor/expert_load/min_over_mean", step->expert_load_min, false},
  };
  const treadle_metric tested = {"val/loss", step->val_loss, false};
  enum { ALWAYS = sizeof always / sizeof *always, OF_EXPERTS = sizeof of_experts / sizeof *of_experts };
  treadle_metric values[ALWAYS + OF_EXPERTS + 1];
  size_t count = 0;
  for (size_t i = 0; i < ALWAYS; i++) values[count++] = always[i];
  for (size_t i = 0; step->expert_load_max > 0 && i < OF_EXPERTS; i++) values[count++] = of_experts[i];
  if (step->tested) values[count++] = tested;
  return sft->rank > 0 ? TREADLE_OK : treadle_metrics_write(sft->metrics, step->step, values, count);
}

/* ---- The loop ------------------------------------------------------------------------------------------- */

/* The largest of all ranks' values, and whether one wants to stop. */
static treadle_status share(treadle_sft *sft, size_t *largest, bool *stops) {
  typedef struct said {
    uint64_t bytes;
    uint32_t stops;
  } said;
  said mine = {*largest, treadle_observe_stop(&sft->observer)};
  treadle_status status = TREADLE_OK;
  *stops = mine.stops;
  if (!sft->group) return TREADLE_OK;
  TRY(treadle_group_say(sft->group, &mine, sizeof mine));
  for (int rank = 0; rank < sft->ranks; rank++) {
    const said *other = treadle_group_said(sft->group, rank);
    if (other->bytes > *largest) *largest = other->bytes;
    if (other->stops) *stops = true;
  }
out:
  return status;
}

static treadle_status run_step(treadle_sft *sft, treadle_sft_figures *result) {
  const treadle_train_settings *s = sft->settings;
  treadle_sft_step step = {.struct_size = sizeof step, .steps = s->training.train_iters};
  double begin = treadle_clock_seconds();
  size_t peak = sft->engine.bytes(sft->engine.engine);
  treadle_status status;
  TRY(take_step(sft, &step));
  step.seconds = treadle_clock_seconds() - begin;
  TRY(test(sft, &step));
  TRY(share(sft, &peak, &result->stopped));
  TRY(treadle_sft_agree(sft, write_metrics(sft, &step, peak)));
  if (is_due(sft->step, s->training.save_interval) || sft->step == s->training.train_iters ||
      result->stopped) {
    TRY(save(sft, result->checkpoint, sizeof result->checkpoint));
    step.checkpoint = result->checkpoint;
  }
  if (sft->step == s->training.train_iters) result->stopped = false;
  if (!result->steps++) result->loss_first = step.loss;
  result->loss_last = step.loss;
  result->tokens += step.tokens;
  result->peak_bytes = peak;
  if (sft->rank == 0 && sft->options->progress) sft->options->progress(sft->options->context, &step);
out:
  return status;
}

static treadle_status run(treadle_sft *sft, treadle_sft_figures *result) {
  double begin;
  treadle_status status;
  TRY(treadle_sft_agree(sft, treadle_train_config_need(sft->config, false)));
  TRY(treadle_sft_agree(sft, sft->rank == 0 ? take_folder(sft) : TREADLE_OK));
  TRY(treadle_sft_open(sft));
  TRY(treadle_sft_agree(sft, open_run(sft)));
  if (sft->from[0]) snprintf(result->checkpoint, sizeof result->checkpoint, "%s", sft->from);
  begin = treadle_clock_seconds();
  while (sft->step < sft->settings->training.train_iters && !result->stopped)
    TRY(treadle_as_failure(run_step(sft, result)));
  result->seconds = treadle_clock_seconds() - begin;
  result->last_step = sft->step;
  if (!result->steps) result->loss_first = result->loss_last = NAN;
  if (!result->steps) result->peak_bytes = sft->engine.bytes(sft->engine.engine);
  result->losses_digest = sft->losses_digest;
  result->weights = treadle_sft_weights(sft);
  result->peak_predicted_bytes = sft->predicted;
  TRY(sft->engine.weights_digest(sft->engine.engine, &result->weights_digest));
out:
  return status;
}

treadle_status treadle_sft_run(treadle_group *group, const treadle_train_config *config,
                               const treadle_sft_options *options, treadle_sft_figures *result_p) {
  treadle_sft_options o;
  treadle_sft_figures result = TREADLE_INIT(treadle_sft_figures);
  treadle_sft sft = {.group = group,
                     .config = config,
                     .options = &o,
                     .rank = group ? treadle_group_rank(group) : 0,
                     .ranks = group ? treadle_group_size(group) : 1};
  treadle_status status;
  TREADLE_NEED(config);
  TREADLE_NEED_SIZED(result_p);
  TRY(TREADLE_TAKE(options, &o));
  TRY(TREADLE_TAKE(o.observer, &sft.observer));
  sft.settings = treadle_train_config_settings(config);
  status = run(&sft, &result);
  treadle_sft_close(&sft);
  treadle_folder_lock_end(&sft.lock, true);
  if (status) goto out;
  TREADLE_GIVE(result_p, &result);
out:
  return status;
}

treadle_status treadle_sft_foresee(const treadle_train_config *config, int64_t ranks,
                                   const treadle_sft_options *options, treadle_trainer_memory *by_rank) {
  treadle_sft_options o;
  treadle_trainer_options of_trainer;
  treadle_sft sft = {.config = config, .options = &o, .ranks = (int)ranks, .plans = true};
  treadle_status status;
  TREADLE_NEED(config);
  TREADLE_NEED(by_rank);
  TRY(TREADLE_TAKE(options, &o));
  TRY(TREADLE_TAKE(o.observer, &sft.observer));
  if (ranks < 1 || ranks > RANKS_MOST) REFUSE("%lld ranks: 1 to %d", (long long)ranks, RANKS_MOST);
  sft.settings = treadle_train_config_settings(config);
  status = treadle_sft_measure(&sft, &of_trainer);
  if (!status) status = treadle_sft_predict(&sft, &of_trainer, by_rank);
  treadle_sft_close(&sft);
out:
  return status;
}
