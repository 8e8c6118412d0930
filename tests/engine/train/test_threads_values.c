/* A critic over ranks, as threads: values, scores and figures of the loss have the bits of one rank in every layout, and so have gradients where
 * ranks share one replica; its memory is what was predicted; a run goes on in another layout with the same bits.
 * ctest: label=threads timeout=300 */
#include "group/ranks.h"
#include "test.h"
#include "train/critic.h"

#include "base/status.h"
#include "io/json.h"

#include <math.h>
#include <sys/stat.h>

enum { SHORT = 70, RANKS_MOST = 8 };

static const treadle_forward_options by_two = {.struct_size = sizeof by_two, .micro_batch_size = 2};
static const treadle_loss_options clipped = {.struct_size = sizeof clipped,
                                             .name = "value",
                                             .clip_value = 0.5,
                                             .aggregation = "seq-mean-token-mean"};
static const treadle_optimizer_step step = {
    .struct_size = sizeof step, .lr = 1e-2, .weight_decay = 0.1, .clip_grad = 1};

typedef struct worker {
  treadle_model *model;
  treadle_layout *layout;
  treadle_trainer *trainer;
  treadle_trainer_options options;
  treadle_batch *all, *mine; /* mine: this rank's rows */
  treadle_row_range range;
} worker;

static treadle_status open_worker(worker *w, treadle_group *group, const char *folder, const char *layout) {
  const int ranks = group ? treadle_group_size(group) : 1;
  treadle_status status;
  w->options.struct_size = sizeof w->options;
  w->options.threads = 1;
  w->options.most_rows = 200;
  w->options.most_micro_batches = 5;
  TRY(critic_open(folder, false, &w->model));
  TRY(treadle_layout_create(w->model, layout, ranks, NULL, &w->layout));
  TRY(treadle_trainer_create(group, w->layout, &w->options, &w->trainer));
  TRY(critic_batch(SHORT, &w->all));
  TRY(treadle_trainer_slice(w->trainer, w->all, &by_two, &w->range, &w->mine));
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

/* What a rank finds; columns are of its own rows. */
typedef struct found {
  treadle_batch *values, *scores, *trained;
  treadle_loss loss;
  uint64_t digest;
  double norm;
} found;

static treadle_status find(worker *w, found *f) {
  treadle_loss again = TREADLE_INIT(treadle_loss);
  treadle_status status;
  *f = (found){.loss = TREADLE_INIT(treadle_loss)};
  TRY(rows_out(w->mine, &f->values));
  TRY(rows_out(w->mine, &f->scores));
  TRY(rows_out(w->mine, &f->trained));
  TRY(treadle_trainer_values(w->trainer, w->mine, &by_two, f->values));
  TRY(treadle_trainer_scores(w->trainer, w->mine, &by_two, f->scores));
  TRY(treadle_trainer_gradients(w->trainer, w->mine, &by_two, &clipped, f->trained, &f->loss));
  TRY(treadle_trainer_digest(w->trainer, &f->digest));
  TRY(treadle_trainer_norm(w->trainer, &f->norm));
  TRY(treadle_trainer_loss(w->trainer, w->mine, &by_two, &clipped, &again));
  if (memcmp(&again, &f->loss, sizeof again) != 0)
    TRY(treadle_fail(TREADLE_DIFFERENT, "the loss without backward is another one"));
out:
  return status;
}

static void release(found *f) {
  treadle_batch_destroy(f->values);
  treadle_batch_destroy(f->scores);
  treadle_batch_destroy(f->trained);
}

/* ---- Bits ------------------------------------------------------------------------------------------------- */

typedef struct scene {
  const char *folder, *layout;
  bool sequence_parallel, recompute;
  bool replicas; /* gradients are added up in another order */
  found wanted;
  int64_t given[RANKS_MOST]; /* rows of which a rank was given values */
} scene;

static bool is_part(const worker *w, const treadle_batch *out, const treadle_batch *whole) {
  treadle_column mine = TREADLE_INIT(treadle_column), all = TREADLE_INIT(treadle_column);
  if (treadle_batch_column(out, "values", &mine) || treadle_batch_column(whole, "values", &all))
    return false;
  const int64_t first = all.offsets[w->range.first], end = all.offsets[w->range.end];
  return mine.offsets[treadle_batch_rows(out)] - mine.offsets[0] == end - first &&
         memcmp((const float *)mine.data + mine.offsets[0], (const float *)all.data + first,
                (size_t)(end - first) * sizeof(float)) == 0;
}

static bool has_scores(const worker *w, const treadle_batch *out, const treadle_batch *whole) {
  treadle_column mine = TREADLE_INIT(treadle_column), all = TREADLE_INIT(treadle_column);
  if (treadle_batch_column(out, "score", &mine) || treadle_batch_column(whole, "score", &all)) return false;
  return memcmp(mine.data, (const double *)all.data + w->range.first,
                (size_t)treadle_batch_rows(out) * sizeof(double)) == 0;
}

static int run_rank(treadle_group *group, void *context) {
  scene *s = context;
  const int rank = treadle_group_rank(group);
  treadle_trainer_memory memory[RANKS_MOST];
  worker w = {.options = {.sequence_parallel = s->sequence_parallel, .recompute = s->recompute}};
  found f;
  RANK_OK(open_worker(&w, group, s->folder, s->layout));
  RANK_OK(treadle_trainer_load(w.trainer));
  RANK_OK(find(&w, &f));
  RANK_TRUE(memcmp(&f.loss, &s->wanted.loss, sizeof f.loss) == 0);
  if (s->replicas)
    RANK_TRUE(fabs(f.norm - s->wanted.norm) <= 1e-6 * s->wanted.norm);
  else
    RANK_TRUE(f.digest == s->wanted.digest && f.norm == s->wanted.norm);
  const bool speaks = treadle_batch_has(f.values, "values");
  RANK_TRUE(speaks == treadle_batch_has(f.scores, "score") &&
            speaks == treadle_batch_has(f.trained, "values"));
  if (speaks) {
    RANK_TRUE(is_part(&w, f.values, s->wanted.values) && is_part(&w, f.trained, s->wanted.values));
    RANK_TRUE(has_scores(&w, f.scores, s->wanted.scores));
    s->given[rank] = w.range.end - w.range.first;
  }
  RANK_OK(treadle_trainer_foresee(w.layout, &w.options, memory));
  RANK_TRUE(treadle_trainer_bytes(w.trainer) == memory[rank].peak);
  release(&f);
  close_worker(&w);
  return 0;
}

static const struct mesh {
  const char *layout;
  int ranks;
  bool replicas;
} meshes[] = {{"megatron:tp=1", 1, false},
              {"megatron:tp=2", 2, false},
              {"megatron:pp=2", 2, false},
              {"megatron:pp=4", 4, false},
              {"megatron:tp=2,pp=2", 4, false},
              {"megatron:pp=2,vpp=2", 2, false},
              {"megatron:tp=2,pp=2,vpp=2", 4, false},
              {"megatron:cp=2", 2, false},
              {"megatron:pp=2,cp=2", 4, false},
              {"megatron:cp=2", 4, true},
              {"fsdp2:dp=1", 1, true},
              {"megatron:tp=1", 2, true},
              {"megatron:tp=2,pp=2", 8, true},
              {"megatron:tp=1", 7, true}, /* of 10 rows there are 5 micro batches */
              {"fsdp2:dp=2", 2, true},
              {"fsdp2:dp=3", 3, true},
              {"fsdp2:dp=2,replicate=2", 4, true},
              {"fsdp2:dp=7", 7, true}};

static void check(critic_head head, const char *dtype) {
  char folder[64], layout[64];
  scene s = {.folder = folder, .layout = layout};
  worker alone = {0};
  snprintf(folder, sizeof folder, "%s", test_folder());
  assert_ok(critic_write(folder, head));
  snprintf(layout, sizeof layout, "hf:dtype=%s", dtype);
  assert_ok(open_worker(&alone, NULL, folder, layout));
  assert_ok(treadle_trainer_load(alone.trainer));
  assert_ok(find(&alone, &s.wanted));
  assert_true(s.wanted.loss.vf_clipfrac > 0 && s.wanted.norm > 0);
  for (size_t m = 0; m < TEST_COUNT(meshes); m++)
    for (int way = 0; way < 4; way++) {
      int64_t given = 0;
      if (way != (int)m % 4 && !getenv("TREADLE_EXACT")) continue;
      s.sequence_parallel = way & 1;
      s.recompute = way & 2;
      s.replicas = meshes[m].replicas;
      memset(s.given, 0, sizeof s.given);
      snprintf(layout, sizeof layout, "%s,dtype=%s", meshes[m].layout, dtype);
      ranks_as_threads(meshes[m].ranks, 60, 0, run_rank, &s);
      for (int r = 0; r < RANKS_MOST; r++) given += s.given[r];
      assert_int_equal(given, LOSS_ROWS); /* each row by one rank */
    }
  release(&s.wanted);
  close_worker(&alone);
  test_remove(folder);
}

static void same_bits(void **state) {
  (void)state;
  check(CRITIC_SCORE, "fp32");
  check(CRITIC_SCORE_BIAS, "fp32");
  check(CRITIC_TIED, "fp32"); /* of a tied model the last stage has no embedding */
  check(CRITIC_SCORE_BIAS, "bf16");
}

/* ---- A run that goes on ----------------------------------------------------------------------------------- */

/* Weights and gradients after some steps; a run is saved after the first. */
typedef struct run {
  const char *from, *save, *layout;
  bool resumes, distributed;
  uint64_t weights[2], gradients;
  treadle_loss loss;
} run;

static treadle_status take_step(worker *w, treadle_loss *loss) {
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_status status;
  *loss = TREADLE_INIT(treadle_loss);
  TRY(treadle_trainer_gradients(w->trainer, w->mine, &by_two, &clipped, NULL, loss));
  TRY(treadle_trainer_step(w->trainer, &step, &figures));
out:
  return status;
}

static int take_steps(treadle_group *group, void *context) {
  run *r = context;
  const bool tells = treadle_group_rank(group) == 0;
  uint64_t weights[2], gradients;
  treadle_loss loss;
  worker w = {.options = {.optimizer = true, .distributed_optimizer = r->distributed}};
  RANK_OK(open_worker(&w, group, r->from, r->layout));
  if (r->resumes) {
    RANK_OK(treadle_trainer_resume(w.trainer, r->save));
  } else {
    RANK_OK(treadle_trainer_load(w.trainer));
    RANK_OK(take_step(&w, &loss));
    if (r->save) RANK_OK(treadle_trainer_save(w.trainer, r->save));
  }
  RANK_OK(treadle_trainer_weights_digest(w.trainer, &weights[0]));
  RANK_OK(take_step(&w, &loss));
  RANK_OK(treadle_trainer_digest(w.trainer, &gradients));
  RANK_OK(treadle_trainer_weights_digest(w.trainer, &weights[1]));
  if (tells) {
    memcpy(r->weights, weights, sizeof weights);
    r->gradients = gradients;
    r->loss = loss;
  }
  close_worker(&w);
  return 0;
}

/* The saved folder is a critic, and a reward model, of its own. */
static void check_saved(const char *folder, bool bias) {
  char path[200];
  treadle_model *model;
  json_t *config;
  snprintf(path, sizeof path, "%s/huggingface", folder);
  assert_ok(critic_open(path, false, &model));
  treadle_model_close(model);
  snprintf(path, sizeof path, "%s/huggingface/config.json", folder);
  assert_ok(treadle_json_load(path, &config));
  assert_string_equal(json_string_value(json_array_get(json_object_get(config, "architectures"), 0)),
                      bias ? "LlamaForTokenClassification" : "LlamaForSequenceClassification");
  assert_int_equal(json_integer_value(json_object_get(config, "num_labels")), 1);
  assert_int_equal(json_object_size(json_object_get(config, "id2label")), 1);
  json_decref(config);
}

/* From one layout to another. Shards add up gradients in another order than whole matrices do: other bits after the next step. */
static const struct way {
  struct mesh from, to;
  bool same;
} ways[] = {
    {{"megatron:tp=2,pp=2", 4, false}, {"megatron:pp=2,vpp=2", 2, false}, true},
    {{"megatron:pp=2,vpp=2", 2, false}, {"megatron:tp=2", 2, false}, true},
    {{"fsdp2:dp=2", 2, true}, {"fsdp2:dp=2", 2, true}, true},
    {{"fsdp2:dp=3", 3, true}, {"megatron:tp=2,pp=2", 4, false}, false},
    {{"megatron:tp=2", 4, true}, {"fsdp2:dp=2", 2, true}, false},
};

static void check_run(critic_head head, const char *dtype) {
  char from[64], save[100], layout[64];
  snprintf(from, sizeof from, "%s", test_folder());
  assert_ok(critic_write(from, head));
  run whole = {.from = from, .layout = layout};
  snprintf(layout, sizeof layout, "megatron:tp=1,dtype=%s", dtype);
  ranks_as_threads(1, 60, 0, take_steps, &whole);
  for (size_t i = 0; i < TEST_COUNT(ways); i++) {
    run one = {.from = from, .layout = layout, .save = save, .distributed = ways[i].from.ranks == 4}, two;
    snprintf(save, sizeof save, "%s/%zu", from, i);
    assert_int_equal(mkdir(save, 0777), 0);
    snprintf(layout, sizeof layout, "%s,dtype=%s", ways[i].from.layout, dtype);
    ranks_as_threads(ways[i].from.ranks, 60, 0, take_steps, &one);
    check_saved(save, head == CRITIC_SCORE_BIAS);
    two = one;
    two.resumes = true;
    snprintf(layout, sizeof layout, "%s,dtype=%s", ways[i].to.layout, dtype);
    ranks_as_threads(ways[i].to.ranks, 60, 0, take_steps, &two);
    assert_true(two.weights[0] == one.weights[0] && two.weights[1] != two.weights[0]);
    if (!ways[i].same) continue;
    assert_true(two.weights[1] == one.weights[1] && two.gradients == one.gradients);
    assert_memory_equal(&two.loss, &one.loss, sizeof two.loss);
    if (ways[i].from.replicas) continue;
    assert_memory_equal(one.weights, whole.weights, sizeof one.weights);
    assert_true(one.gradients == whole.gradients);
  }
  test_remove(from);
}

static void goes_on(void **state) {
  (void)state;
  check_run(CRITIC_SCORE, "fp32");
  check_run(CRITIC_SCORE_BIAS, "bf16");
}

/* ---- Ranks that differ ------------------------------------------------------------------------------------ */

static int differ(treadle_group *group, void *context) {
  const char *folder = context;
  const bool last = treadle_group_rank(group) == treadle_group_size(group) - 1;
  treadle_loss_options other = clipped;
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  treadle_batch *out;
  worker w = {0};
  other.clip_value = last ? 0.25 : 0.5;
  RANK_OK(open_worker(&w, group, folder, "megatron:tp=2"));
  RANK_OK(treadle_trainer_load(w.trainer));
  RANK_OK(rows_out(w.mine, &out));
  RANK_FAILS(TREADLE_REFUSED,
             "must be given the same loss options, and other weights or none, and were not",
             treadle_trainer_loss(w.trainer, w.mine, &by_two, &other, &loss));
  RANK_FAILS(TREADLE_REFUSED, "is in treadle_trainer_",
             last ? treadle_trainer_values(w.trainer, w.mine, &by_two, out)
                  : treadle_trainer_scores(w.trainer, w.mine, &by_two, out));
  treadle_column column = TREADLE_INIT(treadle_column);
  RANK_OK(treadle_batch_column(w.mine, "returns", &column));
  if (last) ((float *)column.data)[0] += 1;
  RANK_FAILS(TREADLE_REFUSED, "must be given the same rows, as ranks of one data parallel coordinate",
             treadle_trainer_loss(w.trainer, w.mine, &by_two, &clipped, &loss));
  RANK_OK(treadle_trainer_values(w.trainer, w.mine, &by_two, out));
  treadle_batch_destroy(out);
  close_worker(&w);
  return 0;
}

static void others_differ(void **state) {
  char folder[64];
  (void)state;
  snprintf(folder, sizeof folder, "%s", test_folder());
  assert_ok(critic_write(folder, CRITIC_SCORE));
  ranks_as_threads(2, 60, 0, differ, folder);
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits), cmocka_unit_test(goes_on),
                                     cmocka_unit_test(others_differ)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
