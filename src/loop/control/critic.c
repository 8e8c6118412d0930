#include "control/critic.h"

#include "base/alloc.h"
#include "base/sized.h"
#include "base/text.h"
#include "control/actor_switch.h"
#include "control/divide.h"
#include "group/group.h"
#include "layout/layout.h"

#include <string.h>

struct treadle_critic {
  treadle_group *group; /* NULL: one rank */
  treadle_group *own;   /* then: its own group */
  const treadle_layout *layout;
  treadle_train_engine train;
  treadle_switch *sw;
  treadle_actor *beside;
  size_t outside; /* bytes that lie in no window */
  treadle_mode rests;
  bool has_weights, moved; /* moved: windows were, since the engine last bound them */
};

static treadle_status agree(const treadle_critic *c, treadle_status status) {
  return c->group ? treadle_group_agree(c->group, status) : status;
}

/* ---- Making it ------------------------------------------------------------------------------------------- */

/* Its windows leave together in mode HOST; in mode FORWARD gradients and optimizer state leave as the flags say. The infer layout is the
 * training layout: mode INFER is never entered, and its window lies on the pages of the others. */
static treadle_status switch_options(const treadle_critic_options *o, const treadle_trainer_memory *memory,
                                     treadle_switch_options *to) {
  const treadle_actor_options as_actor = {.page_bytes = o->page_bytes,
                                          .timeout_seconds = o->timeout_seconds,
                                          .offload_train_param = TREADLE_ON,
                                          .offload_train_grad = o->offload_grad ? TREADLE_ON : TREADLE_OFF,
                                          .offload_train_optimizer =
                                              o->offload_optimizer ? TREADLE_ON : TREADLE_OFF,
                                          .keep = TREADLE_KEEP_HOST};
  treadle_status status = treadle_actor_switch_options(&as_actor, memory, 0, to);
  to->host = true;
  return status;
}

static treadle_mode rest_of(const treadle_critic_options *o) {
  return o->offload_param ? TREADLE_HOST : TREADLE_FORWARD;
}

void treadle_critic_count_by(treadle_critic *c, treadle_actor *actor) {
  size_t bytes[TREADLE_CLASSES];
  for (int k = 0; k < TREADLE_CLASSES; k++) bytes[k] = treadle_switch_resident(c->sw, (treadle_class)k);
  c->beside = actor;
  if (actor) treadle_actor_count_beside(actor, bytes, TREADLE_CLASSES, c->outside);
}

static void tell_beside(void *context, const size_t *bytes, int classes) {
  const treadle_critic *c = context;
  if (c->beside) treadle_actor_count_beside(c->beside, bytes, classes, c->outside);
}

static treadle_status open_switch(treadle_critic *c, const treadle_critic_options *o,
                                  const treadle_trainer_options *trainer) {
  const int rank = c->group ? treadle_group_rank(c->group) : 0;
  treadle_trainer_memory *by_rank = treadle_alloc_array((size_t)c->layout->ranks, sizeof *by_rank);
  treadle_switch_options options;
  treadle_status status = TREADLE_OK;
  if (!by_rank) status = treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of the critic");
  if (!status) status = treadle_actor_train_memory(c->layout, trainer, by_rank);
  if (!status) status = switch_options(o, &by_rank[rank], &options);
  if (!status) c->outside = by_rank[rank].board;
  treadle_free(by_rank);
  TRY(agree(c, status));
  options.watch = tell_beside;
  options.watch_context = c;
  TRY(treadle_switch_create(c->group ? c->group : c->own, c->layout, c->layout, &options, &c->sw));
out:
  return status;
}

static treadle_status check_engine(const treadle_train_engine *e) {
  const char *lacks = !e->values   ? "values"
                      : !e->update ? "update"
                      : !e->save   ? "save"
                      : !e->resume ? "resume"
                      : !e->close  ? "close"
                                   : NULL;
  if (lacks)
    return treadle_fail(TREADLE_REFUSED, "the train engine's table lacks %s, which a critic needs", lacks);
  return TREADLE_OK;
}

static treadle_status open_engine(treadle_critic *c, const treadle_critic_options *o,
                                  const treadle_trainer_options *trainer) {
  treadle_train_engine_open open = o->open ? o->open : treadle_trainer_open_engine;
  treadle_trainer_options with = *trainer;
  treadle_status status;
  with.params_window = treadle_switch_window(c->sw, TREADLE_PARAMS, NULL);
  with.grads_window = treadle_switch_window(c->sw, TREADLE_GRADS, NULL);
  with.optimizer_window = treadle_switch_window(c->sw, TREADLE_OPTIMIZER, NULL);
  with.work_window = treadle_switch_window(c->sw, TREADLE_TRAIN_WORK, NULL);
  c->train.struct_size = sizeof c->train;
  TRY(agree(c, open(o->context, c->group, c->layout, &with, &c->train)));
  TRY(agree(c, check_engine(&c->train)));
out:
  return status;
}

static treadle_status build(treadle_critic *c, const treadle_critic_options *o) {
  const int ranks = c->group ? treadle_group_size(c->group) : 1;
  treadle_trainer_options trainer;
  treadle_status status = TREADLE_TAKE(o->trainer, &trainer);
  if (!status && c->layout->ranks != ranks)
    status = treadle_fail(TREADLE_REFUSED, "layout '%s' is for %s, the group has %d", c->layout->text,
                          treadle_text_of_count(c->layout->ranks, "rank"), ranks);
  if (!status && !c->group) status = treadle_group_self(&c->own);
  TRY(agree(c, status));
  TRY(open_switch(c, o, &trainer));
  TRY(open_engine(c, o, &trainer));
out:
  return status;
}

treadle_status treadle_critic_create(treadle_group *group, const treadle_layout *layout,
                                     const treadle_critic_options *options, treadle_critic **critic_p) {
  treadle_critic *c = treadle_alloc(sizeof *c);
  treadle_status status = c ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for a critic");
  *critic_p = NULL;
  group = group && treadle_group_size(group) > 1 ? group : NULL;
  TRY(group ? treadle_group_agree(group, status) : status);
  *c = (treadle_critic){.group = group, .layout = layout, .rests = rest_of(options)};
  TRY(build(c, options));
  *critic_p = c;
  c = NULL;
out:
  treadle_critic_destroy(c);
  return status;
}

void treadle_critic_destroy(treadle_critic *c) {
  if (!c) return;
  if (c->train.close) c->train.close(c->train.engine);
  treadle_switch_destroy(c->sw);
  treadle_group_close(c->own);
  treadle_free(c);
}

/* ---- Modes ------------------------------------------------------------------------------------------------ */

static treadle_status take_arrow(treadle_critic *c, treadle_mode to) {
  c->moved = true;
  return to == TREADLE_HOST      ? treadle_switch_to_host(c->sw)
         : to == TREADLE_FORWARD ? treadle_switch_to_forward(c->sw)
                                 : treadle_switch_to_train(c->sw);
}

/* From TRAIN to FORWARD the way goes through HOST. */
static treadle_status go(treadle_critic *c, treadle_mode to) {
  treadle_status status = TREADLE_OK;
  for (treadle_mode mode; (mode = treadle_switch_mode(c->sw)) != to;) {
    if (mode == TREADLE_LOST)
      return treadle_fail(TREADLE_STATE, "the critic has lost its weights: a switch has failed before");
    TRY(take_arrow(c, mode == TREADLE_TRAIN ? TREADLE_HOST : to));
  }
out:
  return status;
}

/* All ranks are in the mode, and their engines know where the windows are. */
static treadle_status need(treadle_critic *c, treadle_mode mode) {
  treadle_status status;
  TRY(agree(c, go(c, mode)));
  if (!c->moved || !c->has_weights) return TREADLE_OK;
  TRY(agree(c, c->train.rebind ? c->train.rebind(c->train.engine) : TREADLE_OK));
  c->moved = false;
out:
  return status;
}

treadle_status treadle_critic_rest(treadle_critic *c) { return go(c, c->rests); }

/* ---- Weights ---------------------------------------------------------------------------------------------- */

/* The engine has written its windows. */
static treadle_status filled(treadle_critic *c, treadle_status status) {
  status = agree(c, status);
  c->has_weights = status == TREADLE_OK;
  if (c->has_weights) (void)treadle_switch_filled(c->sw);
  return status;
}

treadle_status treadle_critic_load(treadle_critic *c) {
  treadle_status status;
  TRY(need(c, TREADLE_TRAIN));
  TRY(filled(c, c->train.load(c->train.engine)));
out:
  return status;
}

treadle_status treadle_critic_randomise(treadle_critic *c, uint64_t seed) {
  treadle_status status;
  TRY(need(c, TREADLE_TRAIN));
  TRY(filled(c, c->train.randomise(c->train.engine, seed)));
out:
  return status;
}

treadle_status treadle_critic_resume(treadle_critic *c, const char *folder) {
  treadle_status status;
  TRY(need(c, TREADLE_TRAIN));
  TRY(filled(c, c->train.resume(c->train.engine, folder)));
out:
  return status;
}

treadle_status treadle_critic_save(treadle_critic *c, const char *folder) {
  treadle_status status;
  TRY(need(c, TREADLE_TRAIN));
  TRY(agree(c, c->train.save(c->train.engine, folder)));
out:
  return status;
}

/* ---- Its calls -------------------------------------------------------------------------------------------- */

treadle_status treadle_critic_divide(const treadle_critic *c, const int64_t *lengths, int64_t rows,
                                     const treadle_forward_options *forward, treadle_row_range *by_rank) {
  return treadle_engine_divide(&c->train, c->layout->ranks, lengths, rows, forward, by_rank);
}

treadle_status treadle_critic_compute_values(treadle_critic *c, const treadle_batch *batch,
                                             const treadle_forward_options *forward, treadle_batch *out) {
  treadle_status status;
  TRY(need(c, treadle_switch_mode(c->sw) == TREADLE_TRAIN ? TREADLE_TRAIN : TREADLE_FORWARD));
  TRY(agree(c, c->train.values(c->train.engine, batch, forward, out)));
out:
  return status;
}

treadle_status treadle_critic_update(treadle_critic *c, const treadle_batch *batch,
                                     const treadle_forward_options *forward,
                                     const treadle_loss_options *loss, const treadle_optimizer_step *step,
                                     treadle_batch *out, treadle_optimizer_figures *figures_p) {
  treadle_status status;
  TRY(need(c, TREADLE_TRAIN));
  TRY(agree(c, c->train.update(c->train.engine, batch, forward, loss, step, out, figures_p)));
out:
  return status;
}

/* ---- Beforehand -------------------------------------------------------------------------------------------- */

/* What stays beside the parameters in mode FORWARD is there in mode TRAIN, too. */
static void take_rank(const treadle_critic_options *o, const treadle_foreseen *f, size_t outside,
                      treadle_critic_memory *m) {
  memcpy(m->train, f->by_mode[TREADLE_TRAIN], sizeof m->train);
  memset(m->rest, 0, sizeof m->rest);
  if (rest_of(o) == TREADLE_FORWARD) memcpy(m->rest, f->by_mode[TREADLE_FORWARD], sizeof m->rest);
  m->rest[TREADLE_WORK] += outside;
  m->train[TREADLE_WORK] += outside;
}

treadle_status treadle_critic_foresee(const treadle_layout *layout, const treadle_critic_options *options,
                                      treadle_critic_memory *by_rank) {
  const size_t ranks = (size_t)layout->ranks;
  treadle_trainer_options trainer;
  treadle_trainer_memory *memory = treadle_alloc_array(ranks, sizeof *memory);
  treadle_switch_options *each = treadle_alloc_array(ranks, sizeof *each);
  treadle_foreseen *foreseen = treadle_alloc_array(ranks, sizeof *foreseen);
  treadle_status status = TREADLE_OK;
  if (!memory || !each || !foreseen)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %zu ranks", ranks));
  TRY(TREADLE_TAKE(options->trainer, &trainer));
  TRY(treadle_actor_train_memory(layout, &trainer, memory));
  for (size_t rank = 0; rank < ranks; rank++) TRY(switch_options(options, &memory[rank], &each[rank]));
  TRY(treadle_switch_foresee(layout, layout, each, foreseen));
  for (size_t rank = 0; rank < ranks; rank++)
    take_rank(options, &foreseen[rank], memory[rank].board, &by_rank[rank]);
out:
  treadle_free(memory);
  treadle_free(each);
  treadle_free(foreseen);
  return status;
}
