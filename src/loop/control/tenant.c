#include "control/tenant.h"

#include "base/alloc.h"
#include "base/sized.h"
#include "base/text.h"
#include "control/actor_switch.h"
#include "control/divide.h"
#include "group/group.h"
#include "layout/layout.h"

#include <string.h>

static treadle_status agree(const treadle_tenant *r, treadle_status status) {
  return treadle_tenant_agree(r, status);
}

treadle_status treadle_tenant_agree(const treadle_tenant *r, treadle_status status) {
  return r->group ? treadle_group_agree(r->group, status) : status;
}

/* ---- Making it ------------------------------------------------------------------------------------------- */

/* Its windows leave together in mode HOST; in mode FORWARD gradients and optimizer state leave as the flags say. The infer layout is the
 * training layout: mode INFER is never entered, and its window lies on the pages of the others. */
static treadle_status switch_options(const treadle_tenant_options *o, const treadle_trainer_memory *memory,
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

static treadle_mode rest_of(const treadle_tenant_options *o) {
  return o->offload_param ? TREADLE_HOST : TREADLE_FORWARD;
}

void treadle_tenant_count_in(treadle_tenant *r, treadle_actor_books *books) {
  size_t bytes[TREADLE_CLASSES];
  for (int k = 0; k < TREADLE_CLASSES; k++) bytes[k] = treadle_switch_resident(r->sw, (treadle_class)k);
  r->books = books;
  if (books) treadle_actor_book_beside(books, r->type, bytes, TREADLE_CLASSES, r->outside);
}

static void tell_books(void *context, const size_t *bytes, int classes) {
  const treadle_tenant *r = context;
  if (r->books) treadle_actor_book_beside(r->books, r->type, bytes, classes, r->outside);
}

static treadle_status open_switch(treadle_tenant *r, const treadle_tenant_options *o,
                                  const treadle_trainer_options *trainer) {
  const int rank = r->group ? treadle_group_rank(r->group) : 0;
  treadle_trainer_memory *by_rank = treadle_alloc_array((size_t)r->layout->ranks, sizeof *by_rank);
  treadle_switch_options options;
  treadle_status status = TREADLE_OK;
  if (!by_rank) status = treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of a role");
  if (!status) status = treadle_actor_train_memory(r->layout, trainer, by_rank);
  if (!status) status = switch_options(o, &by_rank[rank], &options);
  if (!status) r->outside = by_rank[rank].board;
  treadle_free(by_rank);
  TRY(agree(r, status));
  options.watch = tell_books;
  options.watch_context = r;
  TRY(treadle_switch_create(r->group ? r->group : r->own, r->layout, r->layout, &options, &r->sw));
out:
  return status;
}

static treadle_status open_engine(treadle_tenant *r, const treadle_tenant_options *o,
                                  const treadle_trainer_options *trainer) {
  treadle_train_engine_open open = o->open ? o->open : treadle_trainer_open_engine;
  treadle_trainer_options with = *trainer;
  treadle_status status;
  with.params_window = treadle_switch_window(r->sw, TREADLE_PARAMS, NULL);
  if (!with.forward_only) with.grads_window = treadle_switch_window(r->sw, TREADLE_GRADS, NULL);
  if (with.optimizer) with.optimizer_window = treadle_switch_window(r->sw, TREADLE_OPTIMIZER, NULL);
  with.work_window = treadle_switch_window(r->sw, TREADLE_TRAIN_WORK, NULL);
  r->train.struct_size = sizeof r->train;
  TRY(agree(r, open(o->context, r->group, r->layout, &with, &r->train)));
  TRY(agree(r, o->check ? o->check(&r->train) : TREADLE_OK));
out:
  return status;
}

static treadle_status build(treadle_tenant *r, const treadle_tenant_options *o) {
  const int ranks = r->group ? treadle_group_size(r->group) : 1;
  treadle_trainer_options trainer;
  treadle_status status = TREADLE_TAKE(o->trainer, &trainer);
  if (!status && r->layout->ranks != ranks)
    status = treadle_fail(TREADLE_REFUSED, "layout '%s' is for %s, the group has %d", r->layout->text,
                          treadle_text_of_count(r->layout->ranks, "rank"), ranks);
  if (!status && !r->group) status = treadle_group_self(&r->own);
  TRY(agree(r, status));
  TRY(open_switch(r, o, &trainer));
  TRY(open_engine(r, o, &trainer));
out:
  return status;
}

treadle_status treadle_tenant_create(treadle_group *group, const treadle_layout *layout,
                                     const treadle_tenant_options *options, treadle_tenant **tenant_p) {
  treadle_tenant *r = treadle_alloc(sizeof *r);
  treadle_status status = r ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for a role");
  *tenant_p = NULL;
  group = group && treadle_group_size(group) > 1 ? group : NULL;
  TRY(group ? treadle_group_agree(group, status) : status);
  *r = (treadle_tenant){.name = options->name,
                        .group = group,
                        .layout = layout,
                        .rests = rest_of(options),
                        .type = options->type};
  TRY(build(r, options));
  *tenant_p = r;
  r = NULL;
out:
  treadle_tenant_destroy(r);
  return status;
}

void treadle_tenant_destroy(treadle_tenant *r) {
  if (!r) return;
  if (r->train.close) r->train.close(r->train.engine);
  treadle_switch_destroy(r->sw);
  treadle_group_close(r->own);
  treadle_free(r);
}

/* ---- Modes ------------------------------------------------------------------------------------------------ */

static treadle_status take_arrow(treadle_tenant *r, treadle_mode to) {
  r->moved = true;
  return to == TREADLE_HOST      ? treadle_switch_to_host(r->sw)
         : to == TREADLE_FORWARD ? treadle_switch_to_forward(r->sw)
                                 : treadle_switch_to_train(r->sw);
}

/* From TRAIN to FORWARD the way goes through HOST. */
static treadle_status go(treadle_tenant *r, treadle_mode to) {
  treadle_status status = TREADLE_OK;
  for (treadle_mode mode; (mode = treadle_switch_mode(r->sw)) != to;) {
    if (mode == TREADLE_LOST)
      return treadle_fail(TREADLE_STATE, "the %s has lost its weights: a switch has failed before",
                          r->name);
    TRY(take_arrow(r, mode == TREADLE_TRAIN ? TREADLE_HOST : to));
  }
out:
  return status;
}

treadle_status treadle_tenant_need(treadle_tenant *r, treadle_mode mode) {
  treadle_status status;
  TRY(agree(r, go(r, mode)));
  if (!r->moved || !r->has_weights) return TREADLE_OK;
  TRY(agree(r, r->train.rebind ? r->train.rebind(r->train.engine) : TREADLE_OK));
  r->moved = false;
out:
  return status;
}

treadle_status treadle_tenant_rest(treadle_tenant *r) { return go(r, r->rests); }

/* ---- Weights ---------------------------------------------------------------------------------------------- */

treadle_status treadle_tenant_filled(treadle_tenant *r, treadle_status status) {
  status = agree(r, status);
  r->has_weights = status == TREADLE_OK;
  if (r->has_weights) (void)treadle_switch_filled(r->sw);
  return status;
}

treadle_status treadle_tenant_load(treadle_tenant *r) {
  treadle_status status;
  TRY(treadle_tenant_need(r, TREADLE_TRAIN));
  TRY(treadle_tenant_filled(r, r->train.load(r->train.engine)));
out:
  return status;
}

treadle_status treadle_tenant_randomise(treadle_tenant *r, uint64_t seed) {
  treadle_status status;
  TRY(treadle_tenant_need(r, TREADLE_TRAIN));
  TRY(treadle_tenant_filled(r, r->train.randomise(r->train.engine, seed)));
out:
  return status;
}

/* ---- Its calls -------------------------------------------------------------------------------------------- */

treadle_status treadle_tenant_divide(const treadle_tenant *r, const int64_t *lengths, int64_t rows,
                                     const treadle_forward_options *forward, treadle_row_range *by_rank) {
  return treadle_engine_divide(&r->train, r->layout->ranks, lengths, rows, forward, by_rank);
}

/* ---- Beforehand -------------------------------------------------------------------------------------------- */

/* What stays beside the parameters in mode FORWARD is there in mode TRAIN, too. */
static void take_rank(const treadle_tenant_options *o, const treadle_foreseen *f, size_t outside,
                      treadle_tenant_memory *m) {
  const treadle_mode most = o->trainer->forward_only ? TREADLE_FORWARD : TREADLE_TRAIN;
  memcpy(m->train, f->by_mode[most], sizeof m->train);
  memset(m->rest, 0, sizeof m->rest);
  if (rest_of(o) == TREADLE_FORWARD) memcpy(m->rest, f->by_mode[TREADLE_FORWARD], sizeof m->rest);
  m->rest[TREADLE_WORK] += outside;
  m->train[TREADLE_WORK] += outside;
}

treadle_status treadle_tenant_foresee(const treadle_layout *layout, const treadle_tenant_options *options,
                                      treadle_tenant_memory *by_rank) {
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
