/* Stages with the controller apart. A stage is two calls of the first rank of a pool: one does it and leaves columns there, and one says what it has come to. The
 * first carries, beside where those columns are that it reads, what the controller knows of the run. */
#include "rl/stages.h"

#include "base/alloc.h"
#include "control/future.h"

#include <string.h>

/* ---- What goes with a call ------------------------------------------------------------------------------------- */

/* Numbers of the run. A pool's first rank has no others. */
typedef struct known {
  long long stage, leaves, step, optimizer_steps, critic_steps, drawn;
  double kl_coef, loss_kl_coef;
  long long first, end; /* the rows that it is done with; end 0: all */
  long long brought;    /* the first of those whose columns come with the call */
} known;

static treadle_status put_known(treadle_batch *batch, const known *k) {
  char json[400];
  snprintf(json, sizeof json, "[%lld, %lld, %lld, %lld, %lld, %lld, %.17g, %.17g, %lld, %lld, %lld]",
           k->stage, k->leaves, k->step, k->optimizer_steps, k->critic_steps, k->drawn, k->kl_coef,
           k->loss_kl_coef, k->first, k->end, k->brought);
  return treadle_batch_set_meta(batch, "stage", json);
}

static treadle_status read_known(const treadle_batch *batch, known *k) {
  const char *json = treadle_batch_meta(batch, "stage");
  const int found = json ? sscanf(json, "[%lld, %lld, %lld, %lld, %lld, %lld, %lf, %lf, %lld, %lld, %lld]",
                                  &k->stage, &k->leaves, &k->step, &k->optimizer_steps, &k->critic_steps,
                                  &k->drawn, &k->kl_coef, &k->loss_kl_coef, &k->first, &k->end, &k->brought)
                         : 0;
  if (found != 11 || k->stage < 0 || k->stage >= TREADLE_STAGES || k->first < 0 || k->brought < 0)
    return treadle_fail(TREADLE_PEER, "a call says '%.80s' of its stage", json ? json : "");
  return TREADLE_OK;
}

/* ---- What a stage has come to ------------------------------------------------------------------------------------ */

/* Beside the outcome. */
typedef struct told {
  int64_t optimizer_steps, critic_steps, drawn;
  double kl_coef, loss_kl_coef;
  int64_t compared, differing;
  double most_difference;
  int64_t row_bytes; /* of rows that this rank got from others, so far */
  int64_t stopped;
} told;

static void put_values(treadle_message *m, const treadle_rl_values *values) {
  treadle_message_put_int(m, (int64_t)values->all.count);
  for (size_t i = 0; i < values->all.count; i++) {
    const treadle_metric *one = &values->all.items[i];
    treadle_message_put_bytes(m, one->name, strlen(one->name) + 1);
    treadle_message_put_real(m, one->value);
    treadle_message_put_int(m, one->is_whole);
  }
}

static treadle_status read_values(treadle_message *m, treadle_rl_values *values) {
  int64_t count, whole;
  const void *name;
  size_t bytes;
  double value;
  treadle_status status;
  TRY(treadle_message_int(m, "number of figures", &count));
  for (int64_t i = 0; i < count; i++) {
    TRY(treadle_message_bytes(m, "name of a figure", &name, &bytes));
    TRY(treadle_message_real(m, "figure", &value));
    TRY(treadle_message_int(m, "whole", &whole));
    if (!bytes || ((const char *)name)[bytes - 1])
      TRY(treadle_fail(TREADLE_PEER, "a figure has a name without an end"));
    if (whole)
      treadle_rl_count(values, name, (int64_t)value);
    else
      treadle_rl_value(values, name, value);
  }
out:
  return status;
}

/* And nothing of it is left here. */
static void put_told(treadle_rl_stages *s, treadle_message *m) {
  treadle_rl_ledger *ledger = s->ledger;
  treadle_crew_books books = {0};
  treadle_crew_get_books(s->teams->crew, &books);
  const told t = {.optimizer_steps = s->state->optimizer_steps,
                  .critic_steps = s->state->critic_steps,
                  .drawn = s->state->drawn,
                  .kl_coef = s->state->kl_coef,
                  .loss_kl_coef = s->state->loss_kl_coef,
                  .compared = ledger->totals.compared,
                  .differing = ledger->totals.differing,
                  .most_difference = ledger->totals.most_difference,
                  .row_bytes = books.row_bytes,
                  .stopped = *s->stopped};
  treadle_message_put_bytes(m, &s->outcome, sizeof s->outcome);
  treadle_message_put_bytes(m, &t, sizeof t);
  treadle_message_put_bytes(m, ledger->losses.items, ledger->losses.count * sizeof *ledger->losses.items);
  put_values(m, &ledger->values);
  treadle_rl_values_clear(&ledger->values);
  ledger->losses.count = 0;
}

/* Each role's numbers are those of its own pool. */
static void take_told(treadle_rl_stages *s, treadle_rl_stage_number stage, const told *t) {
  const treadle_pool_role role = treadle_rl_stage_role(stage);
  treadle_rl_totals *totals = &s->ledger->totals;
  s->teams->team[treadle_rl_stage_team(s, stage)].row_bytes = t->row_bytes;
  *s->stopped = *s->stopped || t->stopped;
  if (role == TREADLE_POOL_ROLE_CRITIC) s->state->critic_steps = t->critic_steps;
  if (role != TREADLE_POOL_ROLE_ACTOR_ROLLOUT) return;
  s->state->optimizer_steps = t->optimizer_steps;
  s->state->drawn = t->drawn;
  s->state->kl_coef = t->kl_coef;
  s->state->loss_kl_coef = t->loss_kl_coef;
  totals->compared = t->compared;
  totals->differing = t->differing;
  totals->most_difference = t->most_difference;
}

static treadle_status read_told(treadle_rl_stages *s, treadle_rl_stage_number stage, treadle_message *m,
                                treadle_rl_outcome *outcome_p) {
  const void *outcome, *t, *losses;
  told copy;
  size_t bytes;
  treadle_status status;
  TRY(treadle_message_array(m, "outcome", sizeof *outcome_p, 1, &outcome));
  TRY(treadle_message_array(m, "numbers of the run", sizeof copy, 1, &t));
  TRY(treadle_message_bytes(m, "losses", &losses, &bytes));
  memcpy(outcome_p, outcome, sizeof *outcome_p);
  memcpy(&copy, t, sizeof copy);
  take_told(s, stage, &copy);
  for (size_t i = 0; i < bytes / sizeof(double); i++)
    TRY(treadle_array_push(&s->ledger->losses, ((const double *)losses)[i]));
  TRY(read_values(m, &s->ledger->values));
out:
  return status;
}

/* ---- The first rank of a pool ------------------------------------------------------------------------------------ */

static treadle_rl_batch *batch_of(const treadle_rl_stages *s, treadle_rl_stage_number stage) {
  return stage >= TREADLE_STAGE_TEST_DRAW ? s->tests : s->batch;
}

/* What came of other pools, of samples from `from` on. Who has no samples of its own makes them of it. */
static treadle_status take(const treadle_rl_stages *s, treadle_rl_stage_number stage,
                           const treadle_batch *in, size_t from) {
  treadle_rl_batch *b = batch_of(s, stage);
  const treadle_config_rl *rl = &s->settings->rl;
  const int64_t each = b == s->tests ? rl->validation.n : rl->batches.n_samples_per_prompt;
  treadle_status status = TREADLE_OK;
  if (treadle_batch_has(in, "prompt_ids")) TRY(treadle_rl_take_drawn(b, in, each, from));
  TRY(treadle_rl_take_columns(b, in, from));
out:
  return status;
}

/* Columns of samples from `from` on. A copy: the batch goes on. */
static treadle_status leave(const treadle_rl_stages *s, treadle_rl_stage_number stage, size_t from,
                            treadle_batch **made_p) {
  treadle_rl_batch *b = batch_of(s, stage);
  size_t count;
  const char *const *names = treadle_rl_stage_leaves(stage, &count);
  treadle_batch *some = NULL;
  int64_t *rows = treadle_alloc_array(b->samples.count + 1, sizeof *rows);
  treadle_status status = TREADLE_OK;
  if (!rows)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the columns of %zu samples", b->samples.count));
  for (size_t i = from; i < b->samples.count; i++) rows[i - from] = (int64_t)i;
  TRY(treadle_rl_set_columns(b));
  TRY(treadle_call_select(b->columns, names, count, &some));
  TRY(treadle_batch_index(some, rows, from < b->samples.count ? b->samples.count - from : 0, made_p));
out:
  treadle_batch_destroy(some);
  treadle_free(rows);
  return status;
}

static treadle_rl_stages *stages_of(void *team) { return ((treadle_worker_team *)team)->work; }

/* What a stage reads of other pools, before the last portion of it. */
static treadle_status bring(void *team, const treadle_batch *in, treadle_batch **made_p) {
  known k;
  treadle_status status;
  (void)made_p;
  TRY(read_known(in, &k));
  TRY(take(stages_of(team), (treadle_rl_stage_number)k.stage, in, (size_t)k.brought));
out:
  return treadle_as_failure(status);
}

static treadle_status do_stage(void *team, const treadle_batch *in, treadle_batch **made_p) {
  treadle_rl_stages *s = stages_of(team);
  known k;
  treadle_status status;
  TRY(read_known(in, &k));
  s->state->step = k.step;
  s->state->optimizer_steps = k.optimizer_steps;
  s->state->critic_steps = k.critic_steps;
  s->state->drawn = k.drawn;
  s->state->kl_coef = k.kl_coef;
  s->state->loss_kl_coef = k.loss_kl_coef;
  const treadle_rl_stage_number stage = (treadle_rl_stage_number)k.stage;
  const treadle_row_range rows = {k.first, k.end};
  TRY(take(s, stage, in, (size_t)k.brought));
  TRY(treadle_rl_stage_do(s, stage, &rows));
  if (k.leaves && !*s->stopped) TRY(leave(s, stage, (size_t)k.first, made_p));
out:
  return treadle_as_failure(status);
}

static treadle_status say_outcome(void *team, const treadle_batch *in, treadle_batch **made_p) {
  treadle_message m = {0};
  treadle_status status;
  (void)in;
  put_told(stages_of(team), &m);
  status = m.failed ? treadle_fail(TREADLE_NO_MEMORY, "no memory for what a stage has come to")
                    : treadle_worker_relay_pack(&m, made_p);
  treadle_message_release(&m);
  return status;
}

treadle_worker_class treadle_rl_team_class(const char *name, treadle_worker_team *team) {
  static const treadle_class_method methods[] = {
      {.name = "call", .function = treadle_worker_relay_call, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL},
      {.name = "bring", .function = bring, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL},
      {.name = "stage", .function = do_stage, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL, .rows_stay = true},
      {.name = "outcome", .function = say_outcome, .dispatch = TREADLE_DISPATCH_ONE_TO_ALL}};
  return (treadle_worker_class){.struct_size = sizeof(treadle_worker_class),
                                .name = name,
                                .methods = methods,
                                .method_count = sizeof methods / sizeof *methods,
                                .create = treadle_worker_relay_create,
                                .context = team};
}

/* ---- The controller ---------------------------------------------------------------------------------------------- */

/* Whose columns a stage reads, if others have left them. */
static const struct {
  treadle_rl_stage_number reads, of;
} reads[] = {{TREADLE_STAGE_RM_SCORE, TREADLE_STAGE_GENERATE},
             {TREADLE_STAGE_REFERENCE, TREADLE_STAGE_GENERATE},
             {TREADLE_STAGE_VALUES, TREADLE_STAGE_GENERATE},
             {TREADLE_STAGE_REWARDS, TREADLE_STAGE_RM_SCORE},
             {TREADLE_STAGE_ADVANTAGES, TREADLE_STAGE_REFERENCE},
             {TREADLE_STAGE_ADVANTAGES, TREADLE_STAGE_VALUES},
             {TREADLE_STAGE_UPDATE_CRITIC, TREADLE_STAGE_ADVANTAGES},
             {TREADLE_STAGE_TEST_RM_SCORE, TREADLE_STAGE_TEST_DRAW},
             {TREADLE_STAGE_TEST_JUDGE, TREADLE_STAGE_TEST_RM_SCORE}};
enum { READS = sizeof reads / sizeof *reads };

/* Does one of another pool read what it leaves? */
static bool leaves(const treadle_rl_stages *s, treadle_rl_stage_number stage) {
  for (int i = 0; i < READS; i++)
    if (reads[i].of == stage && treadle_rl_stage_is_wanted(s, reads[i].reads) &&
        treadle_rl_stage_team(s, reads[i].reads) != treadle_rl_stage_team(s, stage))
      return true;
  return false;
}

static treadle_rl_portion *portion(treadle_rl_stages *s, int stage, size_t number) {
  return number < s->all[stage].portions.count ? &s->all[stage].portions.items[number] : NULL;
}

/* Columns of other pools that it reads, of that portion: futures [READS]. *first_p: of their rows. */
static size_t find_inputs(treadle_rl_stages *s, treadle_rl_stage_number stage, size_t number,
                          treadle_future **futures, int64_t *first_p) {
  size_t count = 0;
  for (int i = 0; i < READS; i++) {
    if (reads[i].reads != stage || treadle_rl_stage_team(s, reads[i].of) == treadle_rl_stage_team(s, stage))
      continue;
    const treadle_rl_portion *of = portion(s, reads[i].of, number);
    if (!of) continue;
    futures[count++] = of->made;
    *first_p = of->rows.first;
  }
  return count;
}

/* How many portions there are of what it reads. */
static size_t count_inputs(treadle_rl_stages *s, treadle_rl_stage_number stage) {
  treadle_future *futures[READS];
  size_t count = 0;
  for (int64_t first; find_inputs(s, stage, count, futures, &first);) count++;
  return count;
}

/* What a stage of the step before has left goes. */
static void clear(treadle_rl_stages *s, int stage) {
  for (size_t i = 0; i < s->all[stage].brought.count; i++)
    treadle_future_destroy(s->all[stage].brought.items[i]);
  for (size_t i = 0; i < s->all[stage].portions.count; i++) {
    treadle_future_destroy(s->all[stage].portions.items[i].outcome);
    treadle_future_destroy(s->all[stage].portions.items[i].made);
  }
  s->all[stage].brought.count = s->all[stage].portions.count = 0;
}

/* A call of a method with what the controller knows and with portion `number` of what the stage reads. */
static treadle_status call(treadle_rl_stages *s, treadle_rl_stage_number stage, const char *method,
                           size_t number, const treadle_row_range *done, treadle_future **future_p) {
  const treadle_worker_relay *relay = &s->teams->relays[treadle_rl_stage_team(s, stage)];
  const treadle_rl_state *state = s->state;
  treadle_future *inputs[READS];
  int64_t rows = 0, first = 0;
  const size_t count = find_inputs(s, stage, number, inputs, &first);
  const known k = {.stage = stage,
                   .leaves = leaves(s, stage),
                   .step = state->step,
                   .optimizer_steps = state->optimizer_steps,
                   .critic_steps = state->critic_steps,
                   .drawn = state->drawn,
                   .kl_coef = state->kl_coef,
                   .loss_kl_coef = state->loss_kl_coef,
                   .first = done->first,
                   .end = done->end,
                   .brought = first};
  treadle_batch *batch = NULL;
  treadle_status status = TREADLE_OK;
  if (count) TRY(treadle_future_rows(inputs[0], &rows));
  TRY(treadle_batch_create(rows, &batch));
  TRY(put_known(batch, &k));
  const treadle_call_input input = {
      .struct_size = sizeof input, .batch = batch, .futures = inputs, .future_count = count};
  TRY(treadle_workers_call(relay->workers, method, &input, future_p));
out:
  treadle_batch_destroy(batch);
  return status;
}

treadle_status treadle_rl_stage_ask(treadle_rl_stages *s, treadle_rl_stage_number stage,
                                    const treadle_row_range *rows) {
  const treadle_worker_relay *relay = &s->teams->relays[treadle_rl_stage_team(s, stage)];
  treadle_status status = TREADLE_OK;
  if (!rows->first) clear(s, stage);
  const size_t there = count_inputs(s, stage);
  size_t number = s->all[stage].portions.count; /* of a portion: the same one of what it reads */
  for (; !rows->end && number + 1 < there; number++) {
    treadle_future *brought;
    TRY(call(s, stage, "bring", number, rows, &brought));
    status = treadle_array_push(&s->all[stage].brought, brought);
    if (status) treadle_future_destroy(brought);
    TRY(status);
  }
  TRY(treadle_array_push(&s->all[stage].portions, (treadle_rl_portion){.rows = *rows}));
  treadle_rl_portion *asked = portion(s, stage, s->all[stage].portions.count - 1);
  TRY(call(s, stage, "stage", number, rows, &asked->made));
  TRY(treadle_workers_call(relay->workers, "outcome", NULL, &asked->outcome));
out:
  return status;
}

/* Of one portion. */
static treadle_status hear(treadle_rl_stages *s, treadle_rl_stage_number stage, treadle_rl_portion *of,
                           treadle_rl_outcome *outcome_p) {
  treadle_worker_relay *relay = &s->teams->relays[treadle_rl_stage_team(s, stage)];
  treadle_batch *answer = NULL;
  treadle_status status;
  TRY(treadle_future_wait_or_leave(of->made));
  const int64_t before = relay->crew->books.row_bytes;
  TRY(treadle_future_wait_or_leave(of->outcome));
  TRY(treadle_future_take_of(of->outcome, 0, NULL, 0, &answer));
  relay->carried += relay->crew->books.row_bytes - before;
  treadle_message m = treadle_worker_relay_unpack(answer, 0);
  TRY(read_told(s, stage, &m, outcome_p));
out:
  treadle_batch_destroy(answer);
  if (status) return status;
  treadle_future_destroy(of->outcome);
  of->outcome = NULL;
  return TREADLE_OK;
}

treadle_status treadle_rl_stage_hear(treadle_rl_stages *s, treadle_rl_stage_number stage,
                                     treadle_rl_outcome *outcome_p) {
  treadle_rl_outcome one;
  treadle_status status = TREADLE_OK;
  *outcome_p = (treadle_rl_outcome){0};
  for (size_t i = 0; i < s->all[stage].brought.count; i++) {
    TRY(treadle_future_wait_or_leave(s->all[stage].brought.items[i]));
  }
  for (size_t i = 0; i < s->all[stage].portions.count; i++) {
    if (!portion(s, stage, i)->outcome) continue;
    TRY(hear(s, stage, portion(s, stage, i), &one));
    one.seconds += outcome_p->seconds;
    *outcome_p = one;
  }
out:
  return status ? treadle_rl_teams_explain(s->teams, treadle_rl_stage_team(s, stage),
                                           treadle_rl_stage_name(stage), status)
                : TREADLE_OK;
}

void treadle_rl_stages_clear(treadle_rl_stages *s) {
  for (int stage = TREADLE_STAGES - 1; stage >= 0; stage--) {
    clear(s, stage);
    treadle_array_release(&s->all[stage].portions);
    treadle_array_release(&s->all[stage].brought);
  }
}
