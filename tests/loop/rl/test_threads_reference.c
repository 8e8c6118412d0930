/* A reference with an engine of its own, as a run with a pool for RefPolicy opens it. Its log-probabilities are the bits of the actor's reference: for
 * weights of files and made-up ones, in layouts and micro batches of its own, after the policy has got other weights. It holds what was foreseen, and
 * no page of the device between its calls. Refused: an engine without log-probabilities, made-up weights of another shape.
 * ctest: label=threads */
#include "group/ranks.h"
#include "test.h"

#include "rl/memory.h"

#include "base/alloc.h"
#include "io/file.h"

enum { RANKS = 2, SAMPLES = 5, PROMPT = 3, MOST = 7, TOKENS = SAMPLES * MOST };

#define POOLS                                                                                              \
  "resource_pools: {policy: [2], ref: [2]}\nmapping: {ActorRollout: policy, RefPolicy: ref}\n"             \
  "megatron_training: {seed: 3, bf16: %s}\nrl_config: {use_kl_loss: true, n_samples_per_prompt: 2}\n"      \
  "generate_config: {sampling_config: {max_tokens: 8, temperature: 0.7}}\n"                                \
  "actor_config: {model: %s, layout: \"%s\"}\nref_config: {%s}\n"

typedef struct scene {
  treadle_train_config *config;
  bool stays;
} scene;

/* ---- A rank ---- */

typedef struct rank {
  treadle_rl rl;
  treadle_rl_options options;
  treadle_layout *layout; /* of the actor's reference */
} rank;

/* The policy has other weights than its reference. */
static treadle_status fill_actor(treadle_rl *rl) {
  treadle_status status;
  if (treadle_model_weights(rl->models.model) == TREADLE_WEIGHTS_RANDOM)
    TRY(treadle_actor_randomise(rl->actor, (uint64_t)rl->task.settings->training.seed));
  else
    TRY(treadle_actor_load(rl->actor));
  TRY(treadle_actor_load_reference(rl->actor));
  TRY(treadle_actor_randomise(rl->actor, 77));
out:
  return status;
}

/* Beside the tenant, an actor with the same reference, which a run with these pools does not have. */
static treadle_status open_rank(const scene *s, treadle_group *group, rank *r) {
  treadle_observer observer = TREADLE_INIT(treadle_observer);
  treadle_trainer_options trainer;
  treadle_generator_options engine;
  treadle_actor_options options;
  treadle_rl *rl = &r->rl;
  treadle_status status;
  *r = (rank){.options = {.struct_size = sizeof r->options, .threads = 1}};
  rl->crew = treadle_rl_crew_of(group, &observer);
  rl->task = (treadle_rl_task){.config = s->config,
                               .settings = treadle_train_config_settings(s->config),
                               .options = &r->options,
                               .plans = true}; /* without data */
  TRY(treadle_rl_open_inputs(rl));
  if (rl->models.reference) TRY(treadle_fail(TREADLE_DIFFERENT, "the actor's pool has a reference, too"));
  TRY(treadle_rl_reference_create(&rl->reference, &rl->task, &rl->bounds, &rl->text, &rl->crew));
  const treadle_rl_forecast forecast = treadle_rl_forecast_of(rl);
  TRY(treadle_rl_actor_options(&forecast, &trainer, &engine, &options));
  const treadle_model *model = rl->models.reference_model ? rl->models.reference_model : rl->models.model;
  TRY(treadle_layout_create(model, rl->models.train->text, RANKS, NULL, &r->layout));
  options.reference = r->layout;
  TRY(treadle_actor_create(group, rl->models.train, rl->models.infer, &options, &rl->actor));
  TRY(fill_actor(rl));
out:
  return status;
}

static void close_rank(rank *r) {
  treadle_rl_close(&r->rl);
  treadle_layout_destroy(r->layout);
}

/* ---- Calls of rank 0 ---- */

static int32_t prompt_ids[PROMPT] = {3, 9, 4};
static const treadle_rl_prompt prompt = {.ids = prompt_ids, .count = PROMPT};
static const int64_t all_samples[SAMPLES] = {0, 1, 2, 3, 4};

typedef struct samples {
  treadle_rl_made made[SAMPLES];
  int32_t ids[TOKENS];
  treadle_rl_batch batch;
  float actors[TOKENS], tenants[TOKENS];
} samples;

static treadle_status make_samples(samples *s) {
  size_t first = 0;
  treadle_status status;
  *s = (samples){.batch = {.samples = {.items = s->made, .count = SAMPLES}, .ids = {.items = s->ids}}};
  for (size_t i = 0; i < SAMPLES; i++) {
    const size_t count = MOST - i;
    s->made[i] = (treadle_rl_made){.prompt = &prompt, .first = first, .count = count};
    for (size_t t = first; t < first + count; t++) s->ids[t] = (int32_t)(3 + (5 * t + i) % 12);
    first += count;
  }
  s->batch.ids.count = first;
  TRY(treadle_rl_set_columns(&s->batch));
out:
  return status;
}

static void release_samples(samples *s) {
  treadle_batch_destroy(s->batch.columns);
  treadle_free(s->batch.offsets);
}

/* The same call of rank 0, answered by whichever role the run has. */
static int call(treadle_group *group, rank *r, samples *s, float *logprobs) {
  treadle_rl_workers *workers = &r->rl.workers;
  const treadle_rl_rows rows = {.batch = &s->batch, .samples = all_samples, .count = SAMPLES};
  treadle_rl_open_workers(workers, group, &r->rl);
  if (r->rl.crew.rank == 0) {
    RANK_OK(treadle_rl_call_logprobs(workers, &rows, true, logprobs, NULL));
    RANK_OK(treadle_worker_group_end(&workers->group, TREADLE_OK));
  } else {
    RANK_OK(treadle_worker_group_serve(&workers->group));
  }
  treadle_rl_workers_release(workers);
  *workers = (treadle_rl_workers){0};
  return 0;
}

/* ---- What it holds ---- */

static size_t resident(const treadle_tenant *t) {
  size_t bytes = 0;
  for (int c = 0; c < TREADLE_CLASSES; c++) bytes += treadle_switch_resident(t->sw, (treadle_class)c);
  return bytes;
}

static int check_rest(const scene *s, const rank *r, const treadle_actor *beside) {
  const treadle_tenant *t = r->rl.reference.role;
  treadle_actor_memory plan[RANKS] = {{.peak_bytes = 0}};
  RANK_OK(treadle_rl_reference_foresee(&r->rl.reference, &r->rl.task, &r->rl.bounds, &r->rl.text, plan));
  RANK_TRUE((resident(t) == 0) == !s->stays);
  RANK_TRUE(!beside->books.peaks[TREADLE_GRADS] && !beside->books.peaks[TREADLE_OPTIMIZER]);
  RANK_TRUE(beside->books.peak == plan[r->rl.crew.rank].peak_bytes);
  RANK_TRUE(memcmp(beside->books.now, plan[r->rl.crew.rank].by_mode[TREADLE_FORWARD],
                   sizeof beside->books.now) == 0);
  return 0;
}

static int compare(treadle_group *group, const scene *s, rank *r, samples *all) {
  treadle_tenant *role = r->rl.reference.role;
  treadle_actor *actor = r->rl.actor, beside = {0};
  treadle_tenant_count_in(role, &beside.books);
  RANK_TRUE((resident(role) == 0) == !s->stays);
  r->rl.reference.role = NULL;
  if (call(group, r, all, all->actors)) return 1;
  r->rl.reference.role = role;
  r->rl.actor = NULL;
  for (int time = 0; time < 2; time++) {
    if (call(group, r, all, all->tenants)) return 1;
    RANK_TRUE(memcmp(all->actors, all->tenants, sizeof all->actors) == 0);
  }
  r->rl.actor = actor;
  return check_rest(s, r, &beside);
}

static int work(treadle_group *group, void *context) {
  samples all;
  rank r;
  int result;
  RANK_OK(open_rank(context, group, &r));
  RANK_OK(make_samples(&all));
  result = compare(group, context, &r, &all);
  for (size_t t = 0; !result && r.rl.crew.rank == 0 && t < all.batch.ids.count; t++)
    RANK_TRUE(all.tenants[t] < 0 && (!t || all.tenants[t] != all.tenants[t - 1]));
  release_samples(&all);
  close_rank(&r);
  return result;
}

/* ---- Configurations ---- */

static const char files[] = TREADLE_SOURCE_DIR "/examples/sequence/policy",
                  made_up[] = TREADLE_SOURCE_DIR "/examples/sequence/policy/config.json";

#define REF_MODEL "ref_config.model=" TREADLE_SOURCE_DIR "/examples/sequence/"

static const struct {
  const char *model, *bf16, *actor, *reference, *override;
} runs[] = {
    {files, "true", "megatron:pp=2", "tensor_model_parallel_size: 2", NULL},
    {files, "true", "megatron:tp=2", "layout: megatron, micro_batch_size: 3", NULL},
    {files, "false", "megatron", "strategy: fsdp2, max_tokens_per_micro: 64", NULL},
    {files, "true", "fsdp2:dp=2", "layout: \"megatron:pp=2\", offload_param: false", NULL},
    {made_up, "true", "megatron:tp=2", "pipeline_model_parallel_size: 2", NULL},
    {made_up, "true", "megatron:pp=2", "strategy: fsdp2, micro_batch_size: 2", NULL},
    {made_up, "false", "fsdp2:dp=2", "", "actor_config.offload_policy=true"},
    {made_up, "true", "megatron", "layout: \"megatron:tp=2\"", REF_MODEL "policy"},
    {made_up, "true", "megatron", "layout: \"megatron:tp=2\"", REF_MODEL "policy/config.json"},
};

static void same_bits(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(runs); i++) {
    char text[1024];
    scene s = {.stays = strstr(runs[i].reference, "offload_param: false") != NULL};
    snprintf(text, sizeof text, POOLS, runs[i].bf16, runs[i].model, runs[i].actor, runs[i].reference);
    assert_ok(treadle_train_config_parse("run.yaml", text, strlen(text), &runs[i].override,
                                         runs[i].override ? 1 : 0, TREADLE_RUN_RL, &s.config));
    printf("%s, ref_config: {%s}\n", runs[i].actor, runs[i].reference);
    ranks_as_threads(RANKS, 60, 0, work, &s);
    treadle_train_config_destroy(s.config);
  }
}

/* ---- Refused ---- */

static treadle_status open_without(void *context, treadle_group *group, const treadle_layout *layout,
                                   const treadle_trainer_options *options, treadle_train_engine *engine_p) {
  treadle_status status = treadle_trainer_open_engine(context, group, layout, options, engine_p);
  engine_p->logprobs = NULL;
  return status;
}

static void engine_lacks(void **state) {
  (void)state;
  const treadle_trainer_options trainer = {
      .struct_size = sizeof trainer, .threads = 1, .most_rows = 32, .forward_only = true};
  const treadle_tenant_options options = {
      .trainer = &trainer, .page_bytes = 4096, .timeout_seconds = 60, .open = open_without};
  treadle_model *model;
  treadle_layout *layout;
  treadle_tenant *tenant;
  assert_ok(treadle_model_open(made_up, NULL, &model));
  assert_ok(treadle_layout_create(model, "hf:dtype=bf16", 1, NULL, &layout));
  assert_refused("the train engine's table lacks logprobs, which a reference needs",
                 treadle_reference_create(NULL, layout, &options, &tenant));
  assert_null(tenant);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
}

/* A config.json stands for the policy as it began, which has another number of layers. */
static void other_shape(void **state) {
  (void)state;
  static const treadle_rl_options options = {.struct_size = sizeof options, .threads = 1};
  const treadle_observer observer = TREADLE_INIT(treadle_observer);
  const char *folder = test_folder();
  char text[1024], path[128], model[160], *json, *layers;
  const char *const override = model;
  size_t bytes;
  treadle_rl rl = {.crew = treadle_rl_crew_of(NULL, &observer),
                   .task = {.options = &options, .plans = true}};
  treadle_train_config *config;
  assert_ok(treadle_file_read(made_up, 1 << 16, &json, &bytes));
  layers = strstr(json, "\"num_hidden_layers\": 4");
  assert_non_null(layers);
  layers[strlen("\"num_hidden_layers\": ")] = '2';
  snprintf(path, sizeof path, "%s/config.json", folder);
  assert_ok(treadle_file_write(path, json, bytes));
  snprintf(text, sizeof text, POOLS, "true", made_up, "megatron", "");
  snprintf(model, sizeof model, "ref_config.model=%s", path);
  assert_ok(
      treadle_train_config_parse("run.yaml", text, strlen(text), &override, 1, TREADLE_RUN_RL, &config));
  rl.task.config = config;
  rl.task.settings = treadle_train_config_settings(config);
  assert_refused("ref_config.model (override): the reference of", treadle_rl_open_inputs(&rl));
  assert_non_null(strstr(treadle_error_message(), "they must be models of one shape"));
  treadle_rl_close(&rl);
  treadle_train_config_destroy(config);
  treadle_free(json);
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(same_bits), cmocka_unit_test(engine_lacks),
                                     cmocka_unit_test(other_shape)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
