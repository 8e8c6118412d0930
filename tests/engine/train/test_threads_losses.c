/* Losses of ranks, over threads: all figures and log-probabilities have the bits of one rank, with replicas (some of
 * them without rows), tensor parallel ranks, stages and shards; what one rank alone refuses, or its caller's loss, all
 * ranks refuse, and they go on. ctest: label=threads */
#include "group/ranks.h"
#include "test.h"
#include "train/loss_batch.h"

#include "base/status.h"

#include <math.h>

enum { SHORT = 12, RANKS_MOST = 5 };

/* ---- A rank ----------------------------------------------------------------------------------------------- */

typedef struct worker {
  treadle_model *model;
  treadle_layout *layout;
  treadle_trainer *trainer;
  treadle_batch *all, *mine; /* mine: this rank's rows */
  treadle_row_range range;
} worker;

static treadle_status open_worker(worker *w, treadle_group *group, const char *layout, bool by_token,
                                  const treadle_forward_options *forward) {
  const treadle_trainer_options options = {.struct_size = sizeof options,
                                           .threads = 1,
                                           .most_rows = 64,
                                           .most_micro_batches = 4,
                                           .optimizer = true};
  const int ranks = group ? treadle_group_size(group) : 1;
  treadle_status status;
  *w = (worker){0};
  TRY(treadle_model_open(TREADLE_SOURCE_DIR "/examples/sequence/config.json", NULL, &w->model));
  TRY(treadle_layout_create(w->model, layout, ranks, NULL, &w->layout));
  TRY(treadle_trainer_create(group, w->layout, &options, &w->trainer));
  TRY(treadle_trainer_randomise(w->trainer, 5));
  TRY(loss_batch(SHORT, by_token, &w->all));
  TRY(treadle_trainer_slice(w->trainer, w->all, forward, &w->range, &w->mine));
out:
  return status;
}

static void close_worker(worker *w) {
  treadle_batch_destroy(w->mine);
  treadle_batch_destroy(w->all);
  treadle_trainer_destroy(w->trainer);
  treadle_layout_destroy(w->layout);
  treadle_model_close(w->model);
}

/* ---- Figures ---------------------------------------------------------------------------------------------- */

static treadle_status own_loss(void *context, const treadle_loss_row *row) {
  (void)context;
  for (int64_t i = 0; i < row->count; i++) {
    row->losses[i] = (double)row->log_probs[i] / 3 + (double)row->entropies[i];
    row->by_log_prob[i] = 1.0 / 3;
    row->by_entropy[i] = 1;
  }
  return TREADLE_OK;
}

static const treadle_loss_options own = {.struct_size = sizeof own, .of_row = own_loss};

typedef struct scene {
  const char *layout;
  const treadle_loss_options *loss;
  bool by_token;
  treadle_loss wanted;       /* one rank's figures, */
  treadle_batch *out;        /* and its log_probs and entropies */
  int64_t given[RANKS_MOST]; /* rows of which a rank was given log_probs */
  bool idle[RANKS_MOST];     /* it has no rows */
} scene;

/* Are the values of a column those of the same rows of one rank? */
static bool is_part(const worker *w, const treadle_batch *out, const char *name,
                    const treadle_batch *whole) {
  treadle_column mine = TREADLE_INIT(treadle_column), all = TREADLE_INIT(treadle_column);
  if (treadle_batch_column(out, name, &mine) || treadle_batch_column(whole, name, &all)) return false;
  const int64_t first = all.offsets[w->range.first], end = all.offsets[w->range.end];
  return mine.offsets[treadle_batch_rows(out)] - mine.offsets[0] == end - first &&
         memcmp((const float *)mine.data + mine.offsets[0], (const float *)all.data + first,
                (size_t)(end - first) * sizeof(float)) == 0;
}

/* The sum of -log p alone is added up replica by replica; all other figures have the bits of one rank. */
static bool is_same(const treadle_loss *a, const treadle_loss *b) {
  treadle_loss same = *a;
  if (fabs(a->nll - b->nll) <= 1e-12 * fabs(b->nll)) same.nll = b->nll;
  return memcmp(&same, b, sizeof same) == 0;
}

static int run_rank(treadle_group *group, void *context) {
  scene *s = context;
  const int rank = treadle_group_rank(group);
  const treadle_forward_options forward = loss_forward(s->loss);
  treadle_loss trained = TREADLE_INIT(treadle_loss), found = TREADLE_INIT(treadle_loss);
  treadle_batch *out;
  worker w;
  RANK_OK(open_worker(&w, group, s->layout, s->by_token, &forward));
  RANK_OK(rows_out(w.mine, &out));
  RANK_OK(treadle_trainer_gradients(w.trainer, w.mine, &forward, s->loss, out, &trained));
  RANK_OK(treadle_trainer_loss(w.trainer, w.mine, &forward, s->loss, &found));
  RANK_TRUE(is_same(&trained, &s->wanted));
  RANK_TRUE(is_same(&found, &s->wanted));
  if (treadle_batch_has(out, "log_probs")) {
    RANK_TRUE(is_part(&w, out, "log_probs", s->out));
    RANK_TRUE(!forward.entropies || is_part(&w, out, "entropies", s->out));
    s->given[rank] = w.range.end - w.range.first;
  }
  s->idle[rank] = w.range.end == w.range.first;
  treadle_batch_destroy(out);
  close_worker(&w);
  return 0;
}

static const struct mesh {
  const char *layout;
  int ranks;
  bool shares; /* the last rank has another's rows */
  bool idle;   /* a rank has no rows: of 10 there are 4 micro batches */
} meshes[] = {{"megatron:tp=1,dtype=fp32", 2, false, false},
              {"megatron:pp=2,dtype=fp32", 2, true, false},
              {"megatron:tp=2,dtype=fp32", 2, true, false},
              {"megatron:pp=2,dtype=fp32", 4, true, false},
              {"fsdp2:dtype=fp32", 3, false, false},
              {"megatron:tp=1,dtype=fp32", 5, false, true},
              {"fsdp2:dtype=fp32", 5, false, true},
              {"megatron:cp=2,dtype=fp32", 2, true, false},
              {"megatron:pp=2,cp=2,dtype=fp32", 4, true, false}};

static void check_loss(const treadle_loss_options *loss, bool by_token) {
  const treadle_forward_options forward = loss_forward(loss);
  scene s = {.loss = loss, .by_token = by_token, .wanted = TREADLE_INIT(treadle_loss)};
  worker alone;
  assert_ok(open_worker(&alone, NULL, "hf:dtype=fp32", by_token, &forward));
  assert_ok(rows_out(alone.mine, &s.out));
  assert_int_equal(treadle_batch_rows(alone.mine), LOSS_ROWS);
  assert_ok(treadle_trainer_gradients(alone.trainer, alone.mine, &forward, loss, s.out, &s.wanted));
  for (size_t m = 0; m < TEST_COUNT(meshes); m++) {
    int64_t given = 0;
    bool idle = false;
    s.layout = meshes[m].layout;
    memset(s.given, 0, sizeof s.given);
    memset(s.idle, 0, sizeof s.idle);
    ranks_as_threads(meshes[m].ranks, 60, 0, run_rank, &s);
    for (int r = 0; r < RANKS_MOST; r++) {
      given += s.given[r];
      idle = idle || s.idle[r];
    }
    assert_int_equal(given, LOSS_ROWS); /* each row by one rank */
    assert_true(idle == meshes[m].idle);
  }
  treadle_batch_destroy(s.out);
  close_worker(&alone);
}

static void same_figures(void **state) {
  (void)state;
  for (int l = 0; l < LOSS_LOSSES; l++) check_loss(&loss_options[l], l == LOSS_LOSSES - 1);
  check_loss(&own, false);
}

/* ---- Failures --------------------------------------------------------------------------------------------- */

static treadle_status fail_here(void *context, const treadle_loss_row *row) {
  if (*(const bool *)context)
    return treadle_fail(TREADLE_DIFFERENT, "the caller does not like row %lld", (long long)row->row);
  return own_loss(NULL, row);
}

/* The last rank's loss fails, then its batch is wrong. In all these meshes it has logits. */
static int fail_rank(treadle_group *group, void *context) {
  const char *layout = context;
  bool fails = false;
  const treadle_forward_options forward = loss_forward(&own);
  const treadle_loss_options mine = {.struct_size = sizeof mine, .of_row = fail_here, .context = &fails};
  const bool last = treadle_group_rank(group) == treadle_group_size(group) - 1;
  treadle_loss found = TREADLE_INIT(treadle_loss);
  uint64_t wanted, digest;
  worker w;
  RANK_OK(open_worker(&w, group, layout, false, &forward));
  RANK_OK(treadle_trainer_gradients(w.trainer, w.mine, &forward, &mine, NULL, &found));
  RANK_OK(treadle_trainer_digest(w.trainer, &wanted));
  fails = last;
  RANK_FAILS(TREADLE_DIFFERENT, "the caller does not like row ",
             treadle_trainer_gradients(w.trainer, w.mine, &forward, &mine, NULL, &found));
  RANK_FAILS(TREADLE_DIFFERENT, "the caller does not like row ",
             treadle_trainer_loss(w.trainer, w.mine, &forward, &mine, &found));
  fails = false;
  if (last) RANK_OK(treadle_batch_rename(w.mine, "ids", "tokens"));
  RANK_FAILS(TREADLE_REFUSED, "the batch has no column 'ids'",
             treadle_trainer_gradients(w.trainer, w.mine, &forward, &mine, NULL, &found));
  if (last) RANK_OK(treadle_batch_rename(w.mine, "tokens", "ids"));
  RANK_OK(treadle_trainer_gradients(w.trainer, w.mine, &forward, &mine, NULL, &found));
  RANK_OK(treadle_trainer_digest(w.trainer, &digest));
  RANK_TRUE(digest == wanted);
  close_worker(&w);
  return 0;
}

static void one_fails(void **state) {
  (void)state;
  for (size_t m = 0; m < TEST_COUNT(meshes); m++)
    if (!meshes[m].idle) ranks_as_threads(meshes[m].ranks, 60, 0, fail_rank, (void *)meshes[m].layout);
}

/* The last rank is given other values than the others, or makes another call. */
static int differ(treadle_group *group, void *context) {
  const struct mesh *mesh = context;
  const bool last = treadle_group_rank(group) == mesh->ranks - 1;
  const treadle_loss_options *ppo = &loss_options[1];
  treadle_forward_options forward = loss_forward(ppo), warmer = forward;
  treadle_loss_options clipped = *ppo;
  treadle_loss found = TREADLE_INIT(treadle_loss);
  treadle_optimizer_step step = {.struct_size = sizeof step, .lr = 1e-3};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_batch *out;
  uint64_t wanted, digest;
  worker w;
  warmer.temperature += 0.5;
  clipped.clip_high += 0.1;
  RANK_OK(open_worker(&w, group, mesh->layout, false, &forward));
  RANK_OK(rows_out(w.mine, &out));
  RANK_OK(treadle_trainer_gradients(w.trainer, w.mine, &forward, ppo, NULL, &found));
  RANK_OK(treadle_trainer_digest(w.trainer, &wanted));
  RANK_FAILS(TREADLE_REFUSED, "treadle_trainer_loss: ranks 0 and ",
             treadle_trainer_loss(w.trainer, w.mine, last ? &warmer : &forward, ppo, &found));
  RANK_TRUE(strstr(treadle_error_message(), "must be given the same forward options, and were not"));
  RANK_FAILS(TREADLE_REFUSED,
             "must be given the same loss options, and other weights or none, and were not",
             treadle_trainer_loss(w.trainer, w.mine, &forward, last ? &clipped : ppo, &found));
  RANK_FAILS(TREADLE_REFUSED, "is in treadle_trainer_l",
             last ? treadle_trainer_logprobs(w.trainer, w.mine, &forward, NULL, out)
                  : treadle_trainer_loss(w.trainer, w.mine, &forward, ppo, &found));
  step.lr = last ? 1e-3 : 2e-3;
  RANK_FAILS(TREADLE_REFUSED, "must be given the same lr, weight_decay and clip_grad, and were not",
             treadle_trainer_step(w.trainer, &step, &figures));
  step.lr = last ? -1 : 1e-3;
  RANK_FAILS(TREADLE_REFUSED, "lr -1", treadle_trainer_step(w.trainer, &step, &figures));
  if (mesh->shares) {
    treadle_column column = TREADLE_INIT(treadle_column);
    RANK_OK(treadle_batch_column(w.mine, "advantage", &column));
    if (last && treadle_batch_rows(w.mine)) ((double *)column.data)[0] += 1;
    RANK_FAILS(TREADLE_REFUSED, "must be given the same rows, as ranks of one data parallel coordinate",
               treadle_trainer_loss(w.trainer, w.mine, &forward, ppo, &found));
    if (last && treadle_batch_rows(w.mine)) ((double *)column.data)[0] -= 1;
  }
  RANK_OK(treadle_trainer_gradients(w.trainer, w.mine, &forward, ppo, NULL, &found));
  RANK_OK(treadle_trainer_digest(w.trainer, &digest));
  RANK_TRUE(digest == wanted);
  treadle_batch_destroy(out);
  close_worker(&w);
  return 0;
}

static void others_differ(void **state) {
  (void)state;
  for (size_t m = 0; m < TEST_COUNT(meshes); m++)
    if (!meshes[m].idle) ranks_as_threads(meshes[m].ranks, 60, 0, differ, (void *)&meshes[m]);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_figures), cmocka_unit_test(one_fails),
                                     cmocka_unit_test(others_differ)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
