#include "control/toy.h"

#include "base/alloc.h"
#include "base/status.h"
#include "group/group.h"
#include "train/rows.h"

#include <stdio.h>
#include <string.h>

float toy_logprob(uint64_t sum) { return -(float)(sum % (1 << 20)); }

static int rank_of(const toy *t) { return t->group ? treadle_group_rank(t->group) : 0; }

/* Of all words of all tensors: the same in layouts that divide none. */
static uint64_t sum_of(const toy *t, const treadle_layout *layout, const uint64_t *window) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  uint64_t sum = 0;
  for (int32_t i = 0; treadle_layout_storage(layout, rank_of(t), i, &info) == TREADLE_OK; i++)
    for (size_t at = 0; at < info.bytes / sizeof sum; at++)
      sum += window[info.offset_bytes / sizeof sum + at];
  return sum;
}

static treadle_status called(toy *t, const char *name) {
  size_t length = strlen(t->calls);
  snprintf(t->calls + length, sizeof t->calls - length, " %s", name);
  if (!t->fails || strcmp(t->fails, name) != 0) return TREADLE_OK;
  t->fails = NULL;
  return treadle_fail(TREADLE_SYSTEM, "the toy's %s does not want to", name);
}

/* ---- The engine that trains ---- */

static uint64_t state_at(size_t at, int steps) { return at * 0x9e3779b97f4a7c15u + (uint64_t)steps; }

static void write_optimizer(toy *t) {
  for (size_t i = 0; i < t->optimizer_words; i++) t->optimizer[i] = state_at(i, t->steps);
}

static bool optimizer_is_whole(const toy *t) {
  for (size_t i = 0; i < t->optimizer_words; i++)
    if (t->optimizer[i] != state_at(i, t->steps)) return false;
  return true;
}

static treadle_status make_weights(toy *t, const char *name, unsigned seed) {
  treadle_status status = called(t, name);
  if (status) return status;
  const size_t words = treadle_layout_window_bytes(t->train, rank_of(t)) / sizeof *t->params;
  for (size_t i = 0; i < words; i++) t->params[i] = (i + seed) * 0x9e3779b97f4a7c15u;
  t->steps = 0;
  t->stale = false;
  t->sum = sum_of(t, t->train, t->params);
  write_optimizer(t);
  return TREADLE_OK;
}

static treadle_status load(void *engine) { return make_weights(engine, "load", 1); }

static treadle_status randomise(void *engine, uint64_t seed) {
  return make_weights(engine, "randomise", (unsigned)seed);
}

static treadle_status resume(void *engine, const char *folder) {
  return make_weights(engine, "resume", (unsigned char)folder[0]);
}

/* Called, and with the weights that were there. */
static treadle_status called_with_weights(toy *t, const char *name) {
  treadle_status status = called(t, name);
  if (status) return status;
  if (t->stale) return treadle_fail(TREADLE_DIFFERENT, "the toy's %s was called before rebind", name);
  if (sum_of(t, t->train, t->params) == t->sum) return TREADLE_OK;
  return treadle_fail(TREADLE_DIFFERENT, "the toy's %s finds other weights than it has written", name);
}

/* No rank divides rows. */
static treadle_status coordinate_of(void *engine, const int64_t *lengths, int64_t rows,
                                    const treadle_forward_options *forward, treadle_row_range *by_rank) {
  const toy *t = engine;
  const int ranks = t->group ? treadle_group_size(t->group) : 1;
  (void)lengths;
  (void)forward;
  for (int rank = 0; rank < ranks; rank++) by_rank[rank] = (treadle_row_range){0, rows};
  return TREADLE_OK;
}

static treadle_status add_columns(treadle_batch *out, const treadle_batch *batch,
                                  const treadle_forward_options *forward) {
  treadle_status status;
  TRY(rows_add_like(out, batch, "log_probs"));
  if (forward->entropies) TRY(rows_add_like(out, batch, "entropies"));
out:
  return status;
}

/* The sum of the weights is what the first token gets. */
static treadle_status logprobs_of(void *engine, const treadle_batch *batch,
                                  const treadle_forward_options *forward, const void *weights,
                                  treadle_batch *out) {
  toy *t = engine;
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_status status;
  TRY(called_with_weights(t, weights ? "logprobs(reference)" : "logprobs"));
  TRY(add_columns(out, batch, forward));
  TRY(treadle_batch_column(out, "log_probs", &column));
  *(float *)column.data = toy_logprob(sum_of(t, t->train, weights ? weights : t->params));
out:
  return status;
}

static treadle_status check_rollout(const toy *t, const treadle_batch *batch) {
  treadle_column column = TREADLE_INIT(treadle_column);
  treadle_status status = TREADLE_OK;
  if (!t->rollout) return TREADLE_OK;
  TRY(treadle_batch_column(batch, "rollout_log_probs", &column));
  for (size_t i = 0; i < (size_t)column.offsets[treadle_batch_rows(batch)]; i++) {
    const float wanted = t->rollout(i);
    if (memcmp((const float *)column.data + i, &wanted, sizeof wanted) != 0)
      return treadle_fail(TREADLE_DIFFERENT, "the toy finds other bits in rollout_log_probs[%zu]", i);
  }
out:
  return status;
}

/* Collective, as a step is: all ranks take it, or none. */
static treadle_status update(void *engine, const treadle_batch *batch,
                             const treadle_forward_options *forward, const treadle_loss_options *loss,
                             const treadle_optimizer_step *step, treadle_batch *out,
                             treadle_optimizer_figures *figures_p) {
  toy *t = engine;
  treadle_status status = called_with_weights(t, "update");
  (void)loss;
  (void)step;
  if (!status && !optimizer_is_whole(t))
    status = treadle_fail(TREADLE_DIFFERENT, "the optimizer's state is not what it was");
  if (!status) status = check_rollout(t, batch);
  if (!status && out) status = add_columns(out, batch, forward);
  if (t->group) status = treadle_group_agree(t->group, status);
  if (status) return status;
  figures_p->steps = ++t->steps;
  write_optimizer(t);
  t->params[0]++;
  t->sum = sum_of(t, t->train, t->params);
  return TREADLE_OK;
}

static treadle_status weights_digest(void *engine, uint64_t *digest_p) {
  toy *t = engine;
  *digest_p = t->sum;
  return called_with_weights(t, "weights_digest");
}

static treadle_status save(void *engine, const char *folder) {
  toy *t = engine;
  snprintf(t->saved, sizeof t->saved, "%s", folder);
  return called_with_weights(t, "save");
}

static treadle_status rebind(void *engine) {
  toy *t = engine;
  treadle_status status = called(t, "rebind");
  if (!status) t->stale = false;
  return status;
}

static void close_engine(void *engine) {
  toy *t = engine;
  t->open--;
}

treadle_status toy_open_train(void *context, treadle_group *group, const treadle_layout *layout,
                              const treadle_trainer_options *options, treadle_train_engine *engine_p) {
  toy *t = context;
  treadle_status status = called(t, "open_train");
  if (status) return status;
  t->group = group;
  t->params = options->params_window;
  t->optimizer = options->optimizer_window;
  t->train = layout;
  (void)treadle_switch_window(t->sw, TREADLE_OPTIMIZER, &t->optimizer_words);
  t->optimizer_words /= sizeof *t->optimizer;
  t->open++;
  *engine_p = (treadle_train_engine){.struct_size = sizeof *engine_p,
                                     .engine = t,
                                     .load = load,
                                     .randomise = randomise,
                                     .coordinate_of = coordinate_of,
                                     .update = t->lacks && !strcmp(t->lacks, "update") ? NULL : update,
                                     .weights_digest = weights_digest,
                                     .save = save,
                                     .resume = resume,
                                     .close = close_engine,
                                     .logprobs = logprobs_of,
                                     .rebind = rebind};
  return TREADLE_OK;
}

/* ---- The engine that generates ---- */

static void look_for_train(toy *t) {
  static const treadle_class classes[] = {TREADLE_PARAMS, TREADLE_GRADS, TREADLE_OPTIMIZER,
                                          TREADLE_TRAIN_WORK};
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    if (treadle_switch_resident(t->sw, classes[i])) t->train_was_there = true;
}

static treadle_status bind(void *context, void *window, size_t bytes) {
  toy *t = context;
  treadle_status status = called(t, "bind");
  if (!status && bytes < treadle_layout_window_bytes(t->infer, rank_of(t)))
    status = treadle_fail(TREADLE_DIFFERENT, "the toy is given %zu bytes of weights", bytes);
  look_for_train(t);
  if (status) return status;
  t->bound = window;
  return TREADLE_OK;
}

static treadle_status unbind(void *context) {
  toy *t = context;
  treadle_status status = called(t, "unbind");
  if (status) return status;
  t->bound = NULL;
  t->stale = true; /* windows of training come back now */
  return TREADLE_OK;
}

static void attach(void *context, const treadle_switch *sw) {
  toy *t = context;
  if (sw) (void)called(t, "attach");
  t->sw = sw;
}

static treadle_status hooks(void *engine, treadle_engine_hooks *hooks_p) {
  *hooks_p = (treadle_engine_hooks){.struct_size = sizeof *hooks_p,
                                    .context = engine,
                                    .bind = bind,
                                    .unbind = unbind,
                                    .attach = attach,
                                    .work_bytes = TOY_WORK,
                                    .kv_block_bytes = TOY_BLOCK};
  return called(engine, "hooks");
}

static treadle_status add_ragged(treadle_batch *batch, const char *name, treadle_column_type type,
                                 const int64_t *offsets, treadle_column *column_p) {
  const treadle_column column = {
      .struct_size = sizeof column, .name = name, .type = type, .offsets = offsets};
  treadle_status status;
  TRY(treadle_batch_add(batch, &column));
  TRY(treadle_batch_column(batch, name, column_p));
out:
  return status;
}

/* To each prompt n answers of one id: the prompt's last. */
static treadle_status answer(const treadle_batch *prompts, int64_t n, float logprob, treadle_batch *out) {
  const int64_t rows = treadle_batch_rows(out);
  treadle_column asked = TREADLE_INIT(treadle_column), ids = TREADLE_INIT(treadle_column),
                 logprobs = TREADLE_INIT(treadle_column);
  int64_t *offsets = treadle_alloc_array((size_t)rows + 1, sizeof *offsets);
  const char **finish = treadle_alloc_array((size_t)rows + 1, sizeof(*finish));
  treadle_status status = TREADLE_OK;
  if (!offsets || !finish) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the toy's answers"));
  for (int64_t r = 0; r < rows; r++) {
    offsets[r + 1] = r + 1;
    finish[r] = "stop";
  }
  TRY(treadle_batch_column(prompts, "prompt_ids", &asked));
  TRY(add_ragged(out, "ids", TREADLE_COLUMN_INT32, offsets, &ids));
  TRY(add_ragged(out, "rollout_log_probs", TREADLE_COLUMN_FP32, offsets, &logprobs));
  TRY(treadle_batch_add_texts(out, "finish", finish, NULL));
  for (int64_t r = 0; r < rows; r++) {
    ((int32_t *)ids.data)[r] = ((const int32_t *)asked.data)[asked.offsets[r / n + 1] - 1];
    ((float *)logprobs.data)[r] = logprob;
  }
out:
  treadle_free(offsets);
  treadle_free(finish);
  return status;
}

/* Log-probabilities are of the sum of the weights. */
static treadle_status generate(void *engine, const treadle_batch *prompts, const treadle_sampling *sampling,
                               const treadle_observer *observer, treadle_batch **out_p) {
  toy *t = engine;
  const int64_t n = sampling ? sampling->n : 1;
  treadle_status status;
  (void)observer;
  TRY(called(t, "generate"));
  if (!t->bound) TRY(treadle_fail(TREADLE_DIFFERENT, "the toy generates without weights"));
  look_for_train(t);
  size_t kv_bytes = 0;
  char *kv = treadle_switch_window(t->sw, TREADLE_KV, &kv_bytes);
  memset(kv, 0xee, kv_bytes); /* all of it may be used */
  TRY(treadle_batch_create(treadle_batch_rows(prompts) * n, out_p));
  TRY(answer(prompts, n, toy_logprob(sum_of(t, t->infer, t->bound)), *out_p));
  if (t->spoil) TRY(t->spoil(out_p));
out:
  t->spoil = NULL;
  return status;
}

treadle_status toy_open_infer(void *context, treadle_group *group, const treadle_layout *layout,
                              const treadle_generator_options *options, treadle_infer_engine *engine_p) {
  toy *t = context;
  treadle_status status = called(t, "open_infer");
  (void)options;
  if (status) return status;
  t->group = group;
  t->infer = layout;
  t->open++;
  *engine_p =
      (treadle_infer_engine){.struct_size = sizeof *engine_p,
                             .engine = t,
                             .hooks = hooks,
                             .generate = t->lacks && !strcmp(t->lacks, "generate") ? NULL : generate,
                             .close = close_engine};
  return TREADLE_OK;
}
