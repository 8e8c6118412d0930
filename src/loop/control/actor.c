/* The hybrid actor worker of a rank. */
#include "control/actor.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"
#include "base/text.h"
#include "control/actor_switch.h"
#include "control/answers.h"
#include "group/group.h"
#include "layout/layout.h"
#include "weights/finite.h"

#include <string.h>

/* ---- Making it ------------------------------------------------------------------------------------------- */

static treadle_status check_infer(const treadle_infer_engine *e) {
  if (!e->hooks || !e->generate || !e->close)
    return treadle_fail(TREADLE_REFUSED, "the infer engine's table lacks %s",
                        !e->hooks      ? "hooks"
                        : !e->generate ? "generate"
                                       : "close");
  return TREADLE_OK;
}

static treadle_status check_train(const treadle_train_engine *e, bool adapts) {
  const char *lacks = !e->load             ? "load"
                      : !e->randomise      ? "randomise"
                      : !e->coordinate_of  ? "coordinate_of"
                      : !e->logprobs       ? "logprobs"
                      : !e->update         ? "update"
                      : !e->save           ? "save"
                      : !e->resume         ? "resume"
                      : !e->weights_digest ? "weights_digest"
                      : !e->close          ? "close"
                                           : NULL;
  if (adapts && !lacks && (!e->gather || !e->merge)) lacks = "gather or merge, which lora_rank needs";
  if (lacks) return treadle_fail(TREADLE_REFUSED, "the train engine's table lacks %s", lacks);
  return TREADLE_OK;
}

static treadle_status open_infer(treadle_actor *a, const treadle_actor_options *o) {
  const treadle_actor_side *side = &a->sides[TREADLE_ACTOR_GENERATES];
  treadle_infer_engine_open open = o->open_infer ? o->open_infer : treadle_generator_open_infer;
  treadle_status status;
  a->infer.struct_size = sizeof a->infer;
  status =
      side->here ? open(o->infer_context, a->side_group, side->layout, o->engine, &a->infer) : TREADLE_OK;
  TRY(treadle_actor_agree_after(a, TREADLE_ACTOR_GENERATES, status));
  TRY(treadle_actor_agree(a, side->here ? check_infer(&a->infer) : TREADLE_OK));
out:
  return status;
}

static treadle_status open_switch(treadle_actor *a, const treadle_actor_options *o,
                                  const treadle_trainer_memory *memory) {
  treadle_engine_hooks hooks;
  treadle_switch_options options;
  treadle_status status;
  const size_t outside = memory->board + (a->infer.bytes ? a->infer.bytes(a->infer.engine) : 0);
  a->hooks.struct_size = sizeof a->hooks;
  status = a->infer.hooks ? a->infer.hooks(a->infer.engine, &a->hooks) : TREADLE_OK;
  hooks = treadle_actor_hooks(a);
  a->kv_block = hooks.kv_block_bytes;
  if (!status) status = treadle_actor_switch_options(o, memory, outside, &options);
  TRY(treadle_actor_agree(a, status));
  a->books.outside = outside;
  options.engine = &hooks;
  options.watch = treadle_actor_book;
  options.watch_context = &a->books;
  TRY(treadle_switch_create(a->group ? a->group : a->own, a->train_layout, a->infer_layout, &options,
                            &a->sw));
out:
  return status;
}

static void *window(const treadle_actor *a, treadle_class which) {
  return treadle_switch_window(a->sw, which, NULL);
}

static treadle_status open_train(treadle_actor *a, const treadle_actor_options *o,
                                 const treadle_trainer_options *trainer) {
  const treadle_actor_side *side = &a->sides[TREADLE_ACTOR_TRAINS];
  treadle_train_engine_open open = o->open_train ? o->open_train : treadle_trainer_open_engine;
  treadle_trainer_options with = *trainer;
  treadle_status status;
  with.params_window = window(a, TREADLE_PARAMS);
  with.grads_window = window(a, TREADLE_GRADS);
  with.optimizer_window = window(a, TREADLE_OPTIMIZER);
  with.work_window = window(a, TREADLE_TRAIN_WORK);
  a->train.struct_size = sizeof a->train;
  status = side->here ? open(o->train_context, a->side_group, side->layout, &with, &a->train) : TREADLE_OK;
  TRY(treadle_actor_agree_after(a, TREADLE_ACTOR_TRAINS, status));
  TRY(treadle_actor_agree(a, side->here ? check_train(&a->train, a->adapts) : TREADLE_OK));
out:
  return status;
}

/* What the trainer of this rank will hold. */
static treadle_status plan_train(const treadle_actor *a, const treadle_trainer_options *trainer,
                                 treadle_trainer_memory *memory_p) {
  int rank = a->group ? treadle_group_rank(a->group) : 0;
  treadle_trainer_memory *by_rank = treadle_alloc_array((size_t)a->train_layout->ranks, sizeof *by_rank);
  treadle_status status;
  if (!by_rank) return treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of the worker");
  TRY(treadle_actor_train_memory(a->train_layout, trainer, by_rank));
  *memory_p = by_rank[rank];
out:
  treadle_free(by_rank);
  return status;
}

static treadle_status check_layouts(const treadle_actor *a) {
  int ranks = a->group ? treadle_group_size(a->group) : 1;
  const treadle_layout *layouts[] = {a->train_layout, a->infer_layout, a->reference_layout};
  for (int i = 0; i < 3; i++)
    if (layouts[i] && layouts[i]->ranks != ranks)
      return treadle_fail(TREADLE_REFUSED, "layout '%s' is for %s, the group has %d", layouts[i]->text,
                          treadle_text_of_count(layouts[i]->ranks, "rank"), ranks);
  if (a->reference_layout && strcmp(a->reference_layout->text, a->train_layout->text) != 0)
    return treadle_fail(TREADLE_REFUSED,
                        "the reference has layout '%s', training '%s': they must be the same",
                        a->reference_layout->text, a->train_layout->text);
  return treadle_actor_check_sides(a->train_layout, a->infer_layout, a->reference_layout);
}

static treadle_status find_replica(treadle_actor *a) {
  const treadle_actor_side *side = &a->sides[TREADLE_ACTOR_GENERATES];
  return side->here ? treadle_replica_place_of(side->layout, side->rank, &a->replica) : TREADLE_OK;
}

static treadle_status build(treadle_actor *a, const treadle_actor_options *o) {
  treadle_trainer_options trainer;
  treadle_trainer_memory memory;
  treadle_status status;
  if (!a->group) TRY(treadle_group_self(&a->own));
  status = check_layouts(a);
  if (!status) status = TREADLE_TAKE(o->trainer, &trainer);
  trainer.lora_gather = trainer.lora_rank > 0;
  a->adapts = trainer.lora_gather;
  if (!status) status = treadle_actor_check_adapters(a->train_layout, a->infer_layout, o, &trainer);
  if (!status) status = treadle_actor_check_reference(a->train_layout, a->reference_layout);
  if (!status) status = plan_train(a, &trainer, &memory);
  if (!status) status = treadle_actor_take_sides(a);
  if (!status) status = find_replica(a);
  TRY(treadle_actor_agree(a, status));
  TRY(treadle_actor_open_side(a));
  TRY(open_infer(a, o));
  TRY(open_switch(a, o, &memory));
  TRY(open_train(a, o, &trainer));
  treadle_actor_count(a);
out:
  return status;
}

treadle_status treadle_actor_create(treadle_group *group, const treadle_layout *train,
                                    const treadle_layout *infer, const treadle_actor_options *options,
                                    treadle_actor **actor_p) {
  treadle_actor_options o;
  treadle_actor *a = NULL;
  treadle_status status;
  TREADLE_NEED(actor_p);
  *actor_p = NULL;
  TREADLE_NEED(train);
  TREADLE_NEED(infer);
  TRY(TREADLE_TAKE(options, &o));
  treadle_actor_settle_options(train, &o);
  a = treadle_alloc(sizeof *a);
  status = a ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for a worker");
  const treadle_group_call call = {.name = "treadle_actor_create",
                                   .alike = {{.what = "reference, or none", .hash = o.reference != NULL}},
                                   .count = 1};
  TRY(group ? treadle_group_agree_on(group, status, &call) : status);
  a->number = group ? treadle_group_number(group) : 0;
  a->group = group && treadle_group_size(group) > 1 ? group : NULL;
  a->train_layout = train;
  a->infer_layout = infer;
  a->reference_layout = o.reference;
  TRY(TREADLE_TAKE(o.observer, &a->books.observer));
  TRY(build(a, &o));
  *actor_p = a;
  a = NULL;
out:
  treadle_actor_destroy(a);
  return status;
}

/* The switch goes last but one: the engine outlives it. */
void treadle_actor_destroy(treadle_actor *actor) {
  if (!actor) return;
  if (actor->train.close) actor->train.close(actor->train.engine);
  treadle_switch_destroy(actor->sw);
  if (actor->infer.close) actor->infer.close(actor->infer.engine);
  treadle_actor_close_sides(actor);
  treadle_group_close(actor->own);
  treadle_free(actor);
}

/* ---- Weights --------------------------------------------------------------------------------------------- */

static bool trains(const treadle_actor *a) { return a->sides[TREADLE_ACTOR_TRAINS].here; }

/* How the train engine fared, where there is one. */
static treadle_status trained(const treadle_actor *a, treadle_status status) {
  return treadle_actor_agree_after(a, TREADLE_ACTOR_TRAINS, status);
}

/* The engine has written its windows, whoever made it. */
static void take_weights(treadle_actor *actor) {
  (void)treadle_switch_filled(actor->sw);
  actor->has_weights = actor->changed = true;
}

treadle_status treadle_actor_load(treadle_actor *actor) {
  treadle_status status;
  TREADLE_NEED(actor);
  TRY(treadle_actor_need(actor, TREADLE_TRAIN, "load", TREADLE_OK));
  actor->has_weights = false;
  TRY(trained(actor, trains(actor) ? actor->train.load(actor->train.engine) : TREADLE_OK));
  take_weights(actor);
out:
  return status;
}

treadle_status treadle_actor_randomise(treadle_actor *actor, uint64_t seed) {
  treadle_status status;
  TREADLE_NEED(actor);
  TRY(treadle_actor_need(actor, TREADLE_TRAIN, "randomise", TREADLE_OK));
  actor->has_weights = false;
  TRY(trained(actor, trains(actor) ? actor->train.randomise(actor->train.engine, seed) : TREADLE_OK));
  take_weights(actor);
out:
  return status;
}

treadle_status treadle_actor_resume(treadle_actor *actor, const char *folder) {
  treadle_status status;
  TREADLE_NEED(actor);
  TREADLE_NEED(folder);
  TRY(treadle_actor_need(actor, TREADLE_TRAIN, "resume", TREADLE_OK));
  actor->has_weights = false;
  TRY(trained(actor, trains(actor) ? actor->train.resume(actor->train.engine, folder) : TREADLE_OK));
  take_weights(actor);
out:
  return status;
}

static treadle_status need_weights(const treadle_actor *a, const char *what) {
  if (a->has_weights) return TREADLE_OK;
  return treadle_fail(TREADLE_STATE, "%s: the worker has no weights: load, randomise or resume them first",
                      what);
}

treadle_status treadle_actor_save(treadle_actor *actor, const char *folder) {
  treadle_status status;
  TREADLE_NEED(actor);
  TREADLE_NEED(folder);
  TRY(treadle_actor_need(actor, TREADLE_TRAIN, "save", need_weights(actor, "save")));
  TRY(trained(actor, trains(actor) ? actor->train.save(actor->train.engine, folder) : TREADLE_OK));
out:
  return status;
}

static bool has_values(const treadle_model *model) {
  return treadle_model_weights(model) == TREADLE_WEIGHTS_FILES;
}

/* Where its weights are made up, the policy's weights of now. */
static treadle_status load_reference(treadle_actor *a) {
  const int64_t rank = a->group ? treadle_group_rank(a->group) : 0;
  size_t bytes = 0;
  void *twin = treadle_switch_reference_twin(a->sw, &bytes);
  treadle_status status = TREADLE_OK;
  if (!has_values(a->reference_layout->model)) {
    if (bytes) memcpy(twin, window(a, TREADLE_PARAMS), bytes);
    return TREADLE_OK;
  }
  TRY(treadle_layout_load(a->reference_layout, rank, twin));
  TRY(treadle_window_check_finite(a->reference_layout, rank, "weights of the reference", twin));
out:
  return status;
}

static treadle_status check_reference(const treadle_actor *a) {
  treadle_status status;
  if (!a->reference_layout)
    return treadle_fail(TREADLE_STATE, "load_reference: the worker was made without a reference");
  TRY(treadle_model_need_weights(a->reference_layout->model));
  if (!has_values(a->reference_layout->model) && !a->has_weights)
    return treadle_fail(TREADLE_STATE, "load_reference: %s has no weights, and the policy none to take",
                        a->reference_layout->model->path);
out:
  return status;
}

/* Beside adapters the base is a reference, which needs no window of its own. */
static bool has_base(const treadle_actor *a) { return a->adapts && !a->reference_layout; }

treadle_status treadle_actor_load_reference(treadle_actor *actor) {
  treadle_status status;
  TREADLE_NEED(actor);
  if (has_base(actor)) return treadle_actor_need(actor, TREADLE_TRAIN, "load_reference", TREADLE_OK);
  TRY(treadle_actor_need(actor, TREADLE_TRAIN, "load_reference", check_reference(actor)));
  TRY(treadle_actor_agree(actor, load_reference(actor)));
  actor->has_reference = true;
out:
  return status;
}

treadle_status treadle_actor_weights_digest(treadle_actor *actor, uint64_t *digest_p) {
  treadle_status status;
  TREADLE_NEED(actor);
  TREADLE_NEED(digest_p);
  TRY(treadle_actor_need(actor, TREADLE_TRAIN, "weights_digest", need_weights(actor, "weights_digest")));
  TRY(trained(actor,
              trains(actor) ? actor->train.weights_digest(actor->train.engine, digest_p) : TREADLE_OK));
  TRY(treadle_actor_share(actor, TREADLE_ACTOR_TRAINS, digest_p));
out:
  return status;
}

/* ---- The three roles --------------------------------------------------------------------------------------- */

static treadle_status check_call(const treadle_actor *a, treadle_actor_job job, const char *what,
                                 const treadle_batch *batch) {
  treadle_status status = need_weights(a, what);
  return status ? status : treadle_actor_check_rows(a, job, batch);
}

treadle_status treadle_actor_generate_sequences(treadle_actor *actor, const treadle_batch *prompts,
                                                const treadle_sampling *sampling,
                                                const treadle_observer *observer, treadle_batch **out_p) {
  treadle_batch *out = NULL;
  treadle_status status;
  TREADLE_NEED(out_p);
  *out_p = NULL;
  TREADLE_NEED(actor);
  TREADLE_NEED(prompts);
  status = check_call(actor, TREADLE_ACTOR_GENERATES, "generate_sequences", prompts);
  TRY(treadle_actor_need(actor, TREADLE_INFER, "generate_sequences", status));
  status = actor->sides[TREADLE_ACTOR_GENERATES].here
               ? actor->infer.generate(actor->infer.engine, prompts, sampling, observer, &out)
               : treadle_actor_no_answers(&out);
  if (!status) status = treadle_answers_check(out, treadle_batch_rows(prompts), sampling ? sampling->n : 1);
  TRY(treadle_actor_agree_after(actor, TREADLE_ACTOR_GENERATES, status));
  *out_p = out;
  out = NULL;
out:
  treadle_batch_destroy(out);
  return status;
}

treadle_status treadle_actor_compute_log_prob(treadle_actor *actor, const treadle_batch *batch,
                                              const treadle_forward_options *forward, treadle_batch *out) {
  treadle_status status;
  TREADLE_NEED(actor);
  TREADLE_NEED(batch);
  TREADLE_NEED(out);
  status = check_call(actor, TREADLE_ACTOR_TRAINS, "compute_log_prob", batch);
  TRY(treadle_actor_need_params(actor, "compute_log_prob", status));
  if (trains(actor)) status = actor->train.logprobs(actor->train.engine, batch, forward, NULL, out);
  TRY(trained(actor, status));
out:
  return status;
}

treadle_status treadle_actor_compute_ref_log_prob(treadle_actor *actor, const treadle_batch *batch,
                                                  const treadle_forward_options *forward,
                                                  treadle_batch *out) {
  treadle_status status;
  TREADLE_NEED(actor);
  TREADLE_NEED(batch);
  TREADLE_NEED(out);
  status = need_weights(actor, "compute_ref_log_prob");
  if (!status && !actor->has_reference && !has_base(actor))
    status = treadle_fail(TREADLE_STATE,
                          "compute_ref_log_prob: the worker has no reference, or its weights were "
                          "not loaded");
  TRY(treadle_actor_need(actor, TREADLE_FORWARD, "compute_ref_log_prob", status));
  if (has_base(actor))
    return treadle_actor_agree(actor, actor->train.logprobs(actor->train.engine, batch, forward,
                                                            window(actor, TREADLE_PARAMS), out));
  status = treadle_actor_agree(actor, treadle_switch_show_reference(actor->sw));
  if (!status)
    status = treadle_actor_agree(actor, actor->train.logprobs(actor->train.engine, batch, forward,
                                                              window(actor, TREADLE_REFERENCE), out));
  (void)treadle_switch_hide_reference(actor->sw);
out:
  return status;
}

static treadle_status no_figures(treadle_optimizer_figures *figures_p) {
  const treadle_optimizer_figures none = TREADLE_INIT(treadle_optimizer_figures);
  TREADLE_NEED_SIZED(figures_p);
  TREADLE_GIVE(figures_p, &none);
  return TREADLE_OK;
}

treadle_status treadle_actor_update(treadle_actor *actor, const treadle_batch *batch,
                                    const treadle_forward_options *forward,
                                    const treadle_loss_options *loss, const treadle_optimizer_step *step,
                                    treadle_batch *out, treadle_optimizer_figures *figures_p) {
  treadle_status status;
  TREADLE_NEED(actor);
  TREADLE_NEED(batch);
  TREADLE_NEED(loss);
  TREADLE_NEED(step);
  TREADLE_NEED(figures_p);
  status = check_call(actor, TREADLE_ACTOR_TRAINS, "update", batch);
  TRY(treadle_actor_need(actor, TREADLE_TRAIN, "update", status));
  actor->changed = true; /* even if it fails on the way */
  status = trains(actor)
               ? actor->train.update(actor->train.engine, batch, forward, loss, step, out, figures_p)
               : no_figures(figures_p);
  TRY(trained(actor, status));
out:
  return status;
}

/* ---- What there is to know ---------------------------------------------------------------------------------- */

const treadle_switch *treadle_actor_switch(const treadle_actor *actor) {
  TREADLE_NEED_OR(actor, NULL);
  return actor->sw;
}

treadle_status treadle_actor_get_info(const treadle_actor *actor, treadle_actor_info *info_p) {
  treadle_actor_info info = TREADLE_INIT(treadle_actor_info);
  treadle_switch_stats stats = TREADLE_INIT(treadle_switch_stats);
  size_t kv = 0;
  TREADLE_NEED(actor);
  TREADLE_NEED_SIZED(info_p);
  treadle_switch_get_stats(actor->sw, &stats);
  (void)treadle_switch_window(actor->sw, TREADLE_KV, &kv);
  info.mode = treadle_switch_mode(actor->sw);
  info.version = treadle_switch_version(actor->sw);
  info.kv_blocks = actor->kv_block ? (int64_t)(kv / actor->kv_block) : 0;
  memcpy(info.bytes, actor->books.now, sizeof info.bytes);
  memcpy(info.peaks, actor->books.peaks, sizeof info.peaks);
  info.peak_bytes = actor->books.peak;
  info.to_infer = actor->to_infer;
  info.to_train = actor->to_train;
  info.pulled_bytes = stats.pulled_bytes;
  TREADLE_GIVE(info_p, &info);
  return TREADLE_OK;
}
