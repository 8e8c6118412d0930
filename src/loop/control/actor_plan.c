/* What an actor's ranks will hold, by shapes alone: the plans of both engines, and what the switch foresees. */
#include "control/actor.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/sized.h"
#include "control/actor_switch.h"
#include "layout/layout.h"
#include "switch/foresee.h"

#include <string.h>

static treadle_status nothing(void *context, void *window, size_t bytes) {
  (void)context;
  (void)window;
  (void)bytes;
  return TREADLE_OK;
}

static treadle_status nothing_more(void *context) {
  (void)context;
  return TREADLE_OK;
}

typedef struct planning {
  const treadle_layout *train, *infer;
  const treadle_actor_options *options;
  bool adapts;                        /* adapters train */
  treadle_trainer_memory *of_train;   /* [ranks] */
  treadle_generator_memory *of_infer; /* [ranks] */
} planning;

static void add_outside(treadle_actor_memory *m, size_t outside) {
  for (int mode = 0; mode < 5; mode++) m->by_mode[mode][TREADLE_WORK] += outside;
  m->with_reference[TREADLE_WORK] += outside;
  m->peak_bytes += outside;
  m->least_bytes += outside;
}

/* Outside of windows. */
static size_t outside_of(const planning *p, int64_t rank) {
  return p->of_infer[rank].board + p->of_train[rank].board;
}

static void take_rank(const planning *p, int64_t rank, const treadle_foreseen *f, treadle_actor_memory *m) {
  memset(m, 0, sizeof *m);
  const bool apart = p->train->owners.runs != NULL; /* what FORWARD is for happens in INFER */
  for (int c = 0; c < TREADLE_CLASSES; c++) {
    for (int mode = 0; mode < 5; mode++)
      m->by_mode[mode][c] = f->by_mode[apart && mode == TREADLE_FORWARD ? TREADLE_INFER : mode][c];
    m->with_reference[c] = p->options->reference ? f->shown[c] : 0;
  }
  m->peak_bytes = m->least_bytes = f->peak_bytes;
  m->kv_blocks = f->kv_blocks;
  add_outside(m, outside_of(p, rank));
}

/* With a budget, what ranks would hold without it is the least that does. */
static treadle_status foresee(const planning *p, bool budget, treadle_foreseen *foreseen) {
  const int64_t ranks = p->train->ranks;
  treadle_switch_options *options = treadle_alloc_array((size_t)ranks, sizeof *options);
  treadle_engine_hooks *hooks = treadle_alloc_array((size_t)ranks, sizeof *hooks);
  treadle_actor_options o = *p->options;
  treadle_status status = TREADLE_OK;
  if (!budget) o.budget_bytes = 0;
  if (!options || !hooks)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %lld ranks", (long long)ranks));
  for (int64_t rank = 0; rank < ranks; rank++) {
    hooks[rank] = (treadle_engine_hooks){.struct_size = sizeof *hooks,
                                         .bind = nothing,
                                         .unbind = nothing_more,
                                         .transforms = p->adapts,
                                         .work_bytes = p->of_infer[rank].work,
                                         .kv_block_bytes = p->of_infer[rank].kv_block};
    TRY(treadle_actor_switch_options(&o, &p->of_train[rank], outside_of(p, rank), &options[rank]));
    options[rank].engine = &hooks[rank];
  }
  TRY(treadle_switch_foresee(p->train, p->infer, options, foreseen));
out:
  treadle_free(options);
  treadle_free(hooks);
  return status;
}

static treadle_status plan_all(const planning *p, treadle_foreseen *f, treadle_actor_memory *by_rank) {
  const int64_t ranks = p->train->ranks;
  treadle_status status;
  TRY(foresee(p, false, f));
  for (int64_t rank = 0; rank < ranks; rank++) take_rank(p, rank, &f[rank], &by_rank[rank]);
  if (!p->options->budget_bytes) goto out;
  status = foresee(p, true, f);
  if (status == TREADLE_REFUSED) return TREADLE_OK; /* it does not fit: least_bytes says what would */
  if (status) goto out;
  for (int64_t rank = 0; rank < ranks; rank++) {
    size_t least = by_rank[rank].least_bytes;
    take_rank(p, rank, &f[rank], &by_rank[rank]);
    by_rank[rank].least_bytes = least;
  }
out:
  return status;
}

treadle_status treadle_actor_foresee(const treadle_layout *train, const treadle_layout *infer,
                                     const treadle_actor_options *options, treadle_actor_memory *by_rank) {
  treadle_actor_options o;
  treadle_trainer_options trainer;
  treadle_foreseen *foreseen = NULL;
  planning p = {.train = train, .infer = infer, .options = &o};
  treadle_status status;
  TREADLE_NEED(train);
  TREADLE_NEED(infer);
  TREADLE_NEED(by_rank);
  TRY(TREADLE_TAKE(options, &o));
  TRY(TREADLE_TAKE(o.trainer, &trainer));
  TRY(treadle_actor_check_sides(train, infer, o.reference));
  TRY(treadle_actor_check_reference(train, o.reference));
  TRY(treadle_actor_check_adapters(train, infer, &o, &trainer));
  p.adapts = trainer.lora_gather = trainer.lora_rank > 0;
  treadle_actor_settle_options(train, &o);
  p.of_train = treadle_alloc_array((size_t)train->ranks, sizeof *p.of_train);
  p.of_infer = treadle_alloc_array((size_t)train->ranks, sizeof *p.of_infer);
  foreseen = treadle_alloc_array((size_t)train->ranks, sizeof *foreseen);
  if (!p.of_train || !p.of_infer || !foreseen)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the forecast of %lld ranks",
                     (long long)train->ranks));
  TRY(treadle_actor_train_memory(train, &trainer, p.of_train));
  TRY(treadle_actor_infer_memory(infer, o.engine, p.of_infer));
  TRY(plan_all(&p, foreseen, by_rank));
out:
  treadle_free(p.of_train);
  treadle_free(p.of_infer);
  treadle_free(foreseen);
  return status;
}
