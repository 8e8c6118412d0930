/* The check of exact mode can fail: one bit of one log-probability that the trainer computes again is another, and the run ends, by prompt, sample,
 * token and both values, with its last checkpoint as it was. The linker puts the functions below in the worker's place (tests/tests.cmake). */
/* ctest: label=kernels */
#include "test.h"

#include "treadle_loop.h"

static int flip_pass, flip_update; /* which call; 0: none */
static int passes, updates;

treadle_status __real_treadle_actor_compute_log_prob(treadle_actor *actor, const treadle_batch *batch,
                                                     const treadle_forward_options *forward,
                                                     treadle_batch *out);
treadle_status __wrap_treadle_actor_compute_log_prob(treadle_actor *actor, const treadle_batch *batch,
                                                     const treadle_forward_options *forward,
                                                     treadle_batch *out);
treadle_status __real_treadle_actor_update(treadle_actor *actor, const treadle_batch *batch,
                                           const treadle_forward_options *forward,
                                           const treadle_loss_options *loss,
                                           const treadle_optimizer_step *step, treadle_batch *out,
                                           treadle_optimizer_figures *figures_p);
treadle_status __wrap_treadle_actor_update(treadle_actor *actor, const treadle_batch *batch,
                                           const treadle_forward_options *forward,
                                           const treadle_loss_options *loss,
                                           const treadle_optimizer_step *step, treadle_batch *out,
                                           treadle_optimizer_figures *figures_p);

/* The second log-probability of those that were found. */
static void flip(const treadle_batch *out) {
  treadle_column found = TREADLE_INIT(treadle_column);
  uint32_t bits;
  assert_ok(treadle_batch_column(out, "log_probs", &found));
  float *value = (float *)found.data + found.offsets[0] + 1;
  memcpy(&bits, value, sizeof bits);
  bits ^= 1;
  memcpy(value, &bits, sizeof bits);
}

treadle_status __wrap_treadle_actor_compute_log_prob(treadle_actor *actor, const treadle_batch *batch,
                                                     const treadle_forward_options *forward,
                                                     treadle_batch *out) {
  treadle_status status = __real_treadle_actor_compute_log_prob(actor, batch, forward, out);
  if (++passes == flip_pass) flip(out);
  return status;
}

treadle_status __wrap_treadle_actor_update(treadle_actor *actor, const treadle_batch *batch,
                                           const treadle_forward_options *forward,
                                           const treadle_loss_options *loss,
                                           const treadle_optimizer_step *step, treadle_batch *out,
                                           treadle_optimizer_figures *figures_p) {
  treadle_status status = __real_treadle_actor_update(actor, batch, forward, loss, step, out, figures_p);
  if (++updates == flip_update) flip(out);
  return status;
}

static treadle_status run(const char *folder, treadle_rl_figures *figures, const char *more) {
  char save[300], data[300];
  const char *const overrides[] = {save,
                                   data,
                                   "actor_config.model=" TREADLE_SOURCE_DIR "/examples/sequence/policy",
                                   "megatron_training.tokenizer_name_or_path=" TREADLE_SOURCE_DIR
                                   "/examples/sequence",
                                   "megatron_training.val_path=null",
                                   "megatron_training.test_interval=0",
                                   "megatron_training.train_iters=3",
                                   "megatron_training.global_batch_size=4",
                                   "megatron_training.save_interval=1",
                                   "rl_config.n_samples_per_prompt=4",
                                   "actor_config.tensor_model_parallel_size=1",
                                   "actor_config.pipeline_model_parallel_size=1",
                                   "actor_config.micro_batch_size=4",
                                   more};
  const treadle_rl_options options = {
      .struct_size = sizeof options, .threads = 1, .resume = TREADLE_RESUME_AUTO};
  treadle_train_config *config = NULL;
  treadle_group *group = NULL;
  treadle_status status;
  memset(figures, 0, sizeof *figures);
  figures->struct_size = sizeof *figures;
  snprintf(save, sizeof save, "actor_config.save=%s/run", folder);
  snprintf(data, sizeof data, "megatron_training.data_path=%s/data/train.jsonl", folder);
  passes = updates = 0;
  if ((status = treadle_group_self(&group)) == TREADLE_OK &&
      (status = treadle_rl_config_read(TREADLE_SOURCE_DIR "/examples/grpo-demo.yaml", overrides,
                                       TEST_COUNT(overrides), &config)) == TREADLE_OK)
    status = treadle_rl_run(group, config, &options, figures);
  treadle_train_config_destroy(config);
  treadle_group_close(group);
  return status;
}

static void check_bits(const char *key, bool by_pass) {
  const treadle_sequence_options task = {.struct_size = sizeof task, .seed = 1};
  treadle_sequence_figures made = TREADLE_INIT(treadle_sequence_figures);
  treadle_rl_figures figures, whole;
  char *folder = strdup(test_folder()), data[300], command[400];
  snprintf(data, sizeof data, "%s/data", folder);
  assert_ok(treadle_data_sequence(data, &task, &made));
  assert_ok(run(folder, &whole, key));
  assert_int_equal(whole.logprob_differing, 0);
  assert_true(whole.logprob_tokens > 50);
  assert_int_equal(passes, by_pass ? 3 : 0);
  assert_int_equal(updates, by_pass ? 6 : 3);
  snprintf(command, sizeof command, "rm -r %s/run", folder);
  assert_int_equal(system(command), 0);

  *(by_pass ? &flip_pass : &flip_update) = 2; /* in step 2 */
  assert_fails(TREADLE_DIFFERENT, "step 2: 1 of", run(folder, &figures, key));
  const char *message = treadle_error_message();
  assert_non_null(strstr(message, "the first of prompt 0, sample 0, token 1: generated with -"));
  assert_non_null(strstr(message, "computed again as -"));

  flip_pass = flip_update = 0; /* the checkpoint of step 1 is whole */
  assert_ok(run(folder, &figures, key));
  assert_int_equal(figures.steps, 2);
  assert_true(figures.losses_digest == whole.losses_digest);
  assert_true(figures.weights_digest == whole.weights_digest);
  assert_int_equal(system(command), 0);

  flip_pass = 2; /* fast mode counts, and goes on */
  assert_ok(run(folder, &figures, "actor_config.exact=false"));
  assert_true(figures.logprob_differing > 0);
  assert_true(figures.logprob_max_diff > 0);
  flip_pass = 0;
  test_remove(folder);
  free(folder);
}

/* Two mini batches: a pass of its own. */
static void test_pass(void **state) {
  (void)state;
  check_bits("rl_config.mini_batch_size=2", true);
}

/* One: what the update finds is the check. */
static void test_update(void **state) {
  (void)state;
  check_bits("rl_config.mini_batch_size=4", false);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_pass), cmocka_unit_test(test_update)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
