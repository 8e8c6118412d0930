/* A run in which something goes wrong: gradients and weights that are no numbers, a full disk, memory that is out. It says what, ends without a
 * half of anything, and goes on to the same bits. ctest: timeout=300 */
#include "sft/sft_scene.h"
#include "test.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/json.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

/* ---- An engine that does wrong at one step ------------------------------------------------------------------ */

typedef struct wrong {
  treadle_train_engine inner;
  int64_t at; /* the update after whose gradients one of them is infinite */
  int64_t calls;
  int64_t full_at; /* the call of save at which the disk is full */
  int64_t saves;
  rlim_t room; /* of a file then */
} wrong;

static treadle_status load(void *engine) {
  return ((wrong *)engine)->inner.load(((wrong *)engine)->inner.engine);
}
static treadle_status randomise(void *engine, uint64_t seed) {
  return ((wrong *)engine)->inner.randomise(((wrong *)engine)->inner.engine, seed);
}
static treadle_status coordinate_of(void *engine, const int64_t *lengths, int64_t rows,
                                    const treadle_forward_options *forward, treadle_row_range *by_rank) {
  const treadle_train_engine *inner = &((wrong *)engine)->inner;
  return inner->coordinate_of(inner->engine, lengths, rows, forward, by_rank);
}
/* Gradients and a step, as an update is; between the two a gradient may become infinite. */
static treadle_status update(void *engine, const treadle_batch *batch,
                             const treadle_forward_options *forward, const treadle_loss_options *loss,
                             const treadle_optimizer_step *step, treadle_batch *out,
                             treadle_optimizer_figures *figures_p) {
  wrong *w = engine;
  treadle_loss found = TREADLE_INIT(treadle_loss);
  treadle_status status = treadle_trainer_gradients(w->inner.engine, batch, forward, loss, out, &found);
  if (++w->calls == w->at) treadle_trainer_grad_window(w->inner.engine, NULL)[7] = INFINITY;
  if (!status) status = treadle_trainer_step(w->inner.engine, step, figures_p);
  figures_p->loss = found;
  return status;
}
static treadle_status loss(void *engine, const treadle_batch *batch, const treadle_forward_options *forward,
                           const treadle_loss_options *options, treadle_loss *loss_p) {
  const treadle_train_engine *inner = &((wrong *)engine)->inner;
  return inner->loss(inner->engine, batch, forward, options, loss_p);
}
static treadle_status weights_digest(void *engine, uint64_t *digest_p) {
  return ((wrong *)engine)->inner.weights_digest(((wrong *)engine)->inner.engine, digest_p);
}
static treadle_status save(void *engine, const char *folder) {
  wrong *w = engine;
  struct rlimit before, few;
  if (++w->saves != w->full_at) return w->inner.save(w->inner.engine, folder);
  getrlimit(RLIMIT_FSIZE, &before);
  few = (struct rlimit){w->room, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &few);
  treadle_status status = w->inner.save(w->inner.engine, folder);
  setrlimit(RLIMIT_FSIZE, &before);
  return status;
}
static treadle_status resume(void *engine, const char *folder) {
  return ((wrong *)engine)->inner.resume(((wrong *)engine)->inner.engine, folder);
}
static size_t bytes(const void *engine) {
  return ((const wrong *)engine)->inner.bytes(((const wrong *)engine)->inner.engine);
}
static void close_engine(void *engine) { ((wrong *)engine)->inner.close(((wrong *)engine)->inner.engine); }

static treadle_status open_wrong(void *context, treadle_group *group, const treadle_layout *layout,
                                 const treadle_trainer_options *options, treadle_train_engine *engine_p) {
  wrong *w = context;
  w->inner.struct_size = sizeof w->inner;
  treadle_status status = treadle_trainer_open_engine(NULL, group, layout, options, &w->inner);
  if (status) return status;
  *engine_p = (treadle_train_engine){.struct_size = sizeof *engine_p,
                                     .engine = w,
                                     .load = load,
                                     .randomise = randomise,
                                     .coordinate_of = coordinate_of,
                                     .loss = loss,
                                     .update = update,
                                     .weights_digest = weights_digest,
                                     .save = save,
                                     .resume = resume,
                                     .bytes = bytes,
                                     .close = close_engine};
  return TREADLE_OK;
}

/* ---- The run ------------------------------------------------------------------------------------------------ */

static treadle_status train(const char *folder, const char *override, wrong *w, treadle_start how,
                            treadle_sft_figures *figures_p) {
  const char *const overrides[] = {override, NULL};
  const sft_scene_run run = {
      .folder = folder,
      .overrides = override ? overrides : NULL,
      .options = {.resume = how, .open_engine = w ? open_wrong : NULL, .engine_context = w}};
  *figures_p = (treadle_sft_figures){.struct_size = sizeof *figures_p};
  return sft_scene_train(&run, figures_p);
}

/* The line of metrics.jsonl of a step. */
static json_t *metrics_of(const char *folder, int64_t number) {
  char path[300], line[2000];
  json_t *root = NULL;
  snprintf(path, sizeof path, "%s/run/metrics.jsonl", folder);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  for (int64_t i = 0; i < number; i++) assert_non_null(fgets(line, sizeof line, file));
  fclose(file);
  root = json_loads(line, 0, NULL);
  assert_int_equal(json_integer_value(json_object_get(root, "step")), number);
  return root;
}

static double real_of(const json_t *root, const char *key) {
  const json_t *value = json_object_get(root, key);
  assert_true(json_is_number(value));
  return json_number_value(value);
}

static void test_skipped(void **state) {
  (void)state;
  char *folder = sft_scene_make();
  treadle_sft_figures figures;
  wrong w = {.at = 5};
  assert_ok(train(folder, "actor_config.lr_decay_style=linear", &w, TREADLE_RESUME_NEVER, &figures));
  assert_int_equal(figures.steps, 12);
  json_t *fourth = metrics_of(folder, 4), *fifth = metrics_of(folder, 5), *sixth = metrics_of(folder, 6);
  assert_int_equal(real_of(fourth, "train/skipped"), 0);
  assert_int_equal(real_of(fifth, "train/skipped"), 1);
  assert_int_equal(real_of(sixth, "train/skipped"), 0);
  assert_true(json_is_null(json_object_get(fifth, "train/grad_norm")));
  assert_true(real_of(fourth, "train/lr") > real_of(fifth, "train/lr"));
  assert_true(real_of(fifth, "train/lr") == real_of(sixth, "train/lr")); /* it took no step */
  json_decref(fourth);
  json_decref(fifth);
  json_decref(sixth);
  sft_scene_remove(folder);
}

/* A run that skipped a step and went on is the same as one that skipped it without a stop. */
static void test_skipped_and_resumed(void **state) {
  (void)state;
  char *whole = sft_scene_make(), *folder = sft_scene_make(), path[300];
  treadle_sft_figures wanted, figures;
  wrong w = {.at = 5}, again = {.at = 5}, full = {.at = 5, .full_at = 4, .room = 20000};
  assert_ok(train(whole, NULL, &w, TREADLE_RESUME_NEVER, &wanted));
  assert_fails(TREADLE_SYSTEM, "RLIMIT_FSIZE", train(folder, NULL, &full, TREADLE_RESUME_NEVER, &figures));
  assert_int_equal(sft_scene_checkpoints(folder, NULL), 3);
  again.at = 0;
  assert_ok(train(folder, NULL, &again, TREADLE_RESUME_AUTO, &figures));
  assert_int_equal(figures.steps, 6);
  assert_true(figures.losses_digest == wanted.losses_digest);
  assert_true(figures.weights_digest == wanted.weights_digest);
  snprintf(path, sizeof path, "%s/run/global_step_8", folder);
  assert_true(treadle_file_is_folder(path));
  sft_scene_remove(whole);
  sft_scene_remove(folder);
}

/* At each part of a checkpoint, and at the first one: nothing is left of it, and those before are as they were. */
static void test_full_disk(void **state) {
  (void)state;
  static const rlim_t rooms[] = {0, 300, 20000};
  char *folder = sft_scene_make(), command[300];
  treadle_sft_figures figures;
  int64_t newest;
  for (size_t i = 0; i < TEST_COUNT(rooms); i++)
    for (int at = 1; at <= 2; at++) {
      wrong w = {.full_at = at, .room = rooms[i]};
      assert_fails(TREADLE_SYSTEM, "global_step_", train(folder, NULL, &w, TREADLE_RESUME_NEVER, &figures));
      assert_int_equal(sft_scene_checkpoints(folder, &newest), at - 1);
      snprintf(command, sizeof command, "! ls '%s/run' | grep tmp && rm -r '%s/run'", folder, folder);
      assert_int_equal(system(command), 0);
    }
  sft_scene_remove(folder);
}

/* ---- Weights that are no numbers ------------------------------------------------------------------------------ */

/* A model's folder with a value in an element of a tensor, of fp32. */
static void poke(const char *model, const char *tensor, int element, float value) {
  char path[400], name[200], *text, *found;
  size_t size;
  uint64_t header, begin;
  snprintf(path, sizeof path, "%s/model.safetensors", model);
  assert_ok(treadle_file_read(path, 1 << 24, &text, &size));
  memcpy(&header, text, sizeof header);
  snprintf(name, sizeof name, "\"%s\":", tensor);
  found = memmem(text + 8, header, name, strlen(name));
  assert_non_null(found);
  found = strstr(found, "data_offsets\":[");
  begin = strtoull(found + strlen("data_offsets\":["), NULL, 10);
  memcpy(text + 8 + header + begin + (size_t)element * sizeof value, &value, sizeof value);
  assert_ok(treadle_file_write(path, text, size));
  treadle_free(text);
}

static void test_weights(void **state) {
  (void)state;
  char *folder = sft_scene_make(), model[112], override[400], run[112];
  treadle_sft_figures figures;
  assert_ok(train(folder, "megatron_training.train_iters=2", NULL, TREADLE_RESUME_NEVER, &figures));
  snprintf(run, sizeof run, "%s/run", folder);
  snprintf(model, sizeof model, "%s/model", folder);
  snprintf(override, sizeof override, "mv '%s/global_step_2/actor/huggingface' '%s' && rm -r '%s'", run,
           model, run);
  assert_int_equal(system(override), 0);
  snprintf(override, sizeof override, "actor_config.model=%s", model);
  poke(model, "model.norm.weight", 3, 1e33f); /* a number, with which losses are none */
  assert_fails(TREADLE_SYSTEM, "not finite", train(folder, override, NULL, TREADLE_RESUME_NEVER, &figures));
  assert_int_equal(sft_scene_checkpoints(folder, NULL), 0);
  test_remove(run);
  poke(model, "model.norm.weight", 3, INFINITY);
  assert_refused("weights: element 3 of 'decoder.final_layernorm.weight' is infinite or no number",
                 train(folder, override, NULL, TREADLE_RESUME_NEVER, &figures));
  poke(model, "model.norm.weight", 3, 1);
  poke(model, "model.layers.2.mlp.down_proj.weight", 130, NAN);
  assert_refused(
      "weights: element 130 of 'decoder.layers.2.mlp.linear_fc2.weight' is infinite or no number",
      train(folder, override, NULL, TREADLE_RESUME_NEVER, &figures));
  assert_false(treadle_file_is_folder(run)); /* nothing was begun */
  sft_scene_remove(folder);
}

/* ---- Memory ------------------------------------------------------------------------------------------------- */

/* Every allocation in turn (a part of them in the gate): the run ends, says so, and its folder can be trained in. */
static void test_memory(void **state) {
  (void)state;
  char *folder = sft_scene_make(), command[300];
  treadle_sft_figures figures;
  long before = treadle_alloc_count();
  assert_ok(train(folder, "megatron_training.train_iters=2", NULL, TREADLE_RESUME_NEVER, &figures));
  long count = treadle_alloc_count() - before, stride = test_step((int)count) > 1 ? count / 25 : count / 60;
  snprintf(command, sizeof command, "rm -r '%s/run'", folder);
  assert_int_equal(system(command), 0);
  for (long n = 1; n <= count; n += stride) {
    treadle_alloc_fail_at(n);
    treadle_status status =
        train(folder, "megatron_training.train_iters=2", NULL, TREADLE_RESUME_AUTO, &figures);
    treadle_alloc_fail_at(0);
    if (status && status != TREADLE_NO_MEMORY)
      fail_msg("allocation %ld of %ld: %s: %s", n, count, treadle_status_text(status),
               treadle_error_message());
    sft_scene_checkpoints(folder, NULL);
    snprintf(command, sizeof command, "rm -rf '%s/run'", folder);
    assert_int_equal(system(command), 0);
  }
  printf("%ld allocations, every %ldth failed\n", count, stride);
  sft_scene_remove(folder);
}

int main(void) {
  signal(SIGXFSZ, SIG_IGN);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_skipped), cmocka_unit_test(test_skipped_and_resumed),
      cmocka_unit_test(test_full_disk), cmocka_unit_test(test_weights), cmocka_unit_test(test_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
