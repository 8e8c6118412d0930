/* Checkpoints saved by four ranks and loaded in other layouts, with the same bits; what goes and what stays in a run's folder; and a save
 * that fails. ctest: label=threads timeout=600 */
#include "group/ranks.h"
#include "run/checkpoint_parts.h"
#include "test.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "io/file.h"
#include "layout/layout.h"

#include <sys/resource.h>

#define MODEL TREADLE_SOURCE_DIR "/tests/golden/models/qwen2-tied"

enum { RANKS = 4 };

typedef struct run {
  char folder[40];
  const treadle_model *model;
  const treadle_layout *layouts[PARTS];
  int64_t step, max;
  treadle_status wanted;
  const char *part;
} run;

/* Values of a part of a step, fp32 whole numbers that bf16 holds as well: each element by its tensor and its index. */
static void fill_window(const treadle_layout *layout, int64_t rank, int part, int64_t step, char *window) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, rank); s++) {
    treadle_run *runs;
    size_t count;
    assert_ok(treadle_layout_storage(layout, rank, s, &info));
    assert_ok(treadle_layout_runs(layout, rank, s, &runs, &count));
    size_t each = treadle_dtype_bytes(info.dtype);
    for (size_t r = 0; r < count; r++)
      for (int64_t i = 0; i < runs[r].count; i++) {
        uint64_t hash =
            treadle_mix64((uint64_t)runs[r].tensor * 1000003 + (uint64_t)step * 101 + (uint64_t)part) +
            (uint64_t)(runs[r].start + i * runs[r].stride);
        float value = runs[r].tensor < 0 ? 0 : (float)(treadle_mix64(hash) % 251) - 125;
        treadle_dtype_convert(window + info.offset_bytes + (size_t)(runs[r].local_start + i) * each,
                              info.dtype, &value, TREADLE_FP32, 1);
      }
    free(runs);
  }
}

static int save_rank(treadle_group *group, void *context) {
  const run *r = context;
  int rank = group ? treadle_group_rank(group) : 0;
  treadle_train_checkpoint c = {.run = r->folder,
                                .step = r->step,
                                .max_to_keep = r->max,
                                .data = "{\"rows\": 7}\n",
                                .rng = "{\"seed\": 1}\n"};
  parts p = {.group = group};
  char *windows[PARTS];
  for (int i = 0; i < PARTS; i++) {
    windows[i] = calloc(1, treadle_layout_window_bytes(r->layouts[i], rank) + 1);
    fill_window(r->layouts[i], rank, i, r->step, windows[i]);
    p.layouts[i] = r->layouts[i];
    p.windows[i] = windows[i];
  }
  c.save = save_parts;
  c.context = &p;
  treadle_status status = treadle_train_checkpoint_save(group, &c);
  for (int i = 0; i < PARTS; i++) free(windows[i]);
  RANK_FAILS(r->wanted, r->part, status);
  return 0;
}

static void check_loaded(const run *r, int64_t step, const char *text, int ranks, treadle_dtype dtype) {
  char with_dtype[100], folder[200];
  snprintf(folder, sizeof folder, "%s/global_step_%lld", r->folder, (long long)step);
  assert_ok(treadle_train_checkpoint_check(folder));
  snprintf(with_dtype, sizeof with_dtype, "%s%sdtype=%s", text, strchr(text, ':') ? "," : ":",
           treadle_dtype_name(dtype));
  treadle_layout *layout;
  assert_ok(treadle_layout_create(r->model, with_dtype, ranks, NULL, &layout));
  for (int part = 0; part < PARTS; part++)
    for (int rank = 0; rank < ranks; rank++) {
      size_t bytes = treadle_layout_window_bytes(layout, rank);
      char *wanted = calloc(1, bytes + 1), *got = calloc(1, bytes + 1);
      fill_window(layout, rank, part, step, wanted);
      assert_ok(load_part(folder, part, layout, rank, got));
      assert_memory_equal(got, wanted, bytes);
      free(wanted);
      free(got);
    }
  treadle_layout_destroy(layout);
}

/* The names in the folder, sorted, with blanks between. */
static const char *names(const char *folder) {
  static char text[1000];
  char command[300];
  snprintf(command, sizeof command, "ls '%s' | LC_ALL=C sort | tr '\\n' ' '", folder);
  FILE *pipe = popen(command, "r");
  size_t count = fread(text, 1, sizeof text - 1, pipe);
  text[count] = 0;
  pclose(pipe);
  return text;
}

static void begin(run *r) {
  treadle_model *model;
  *r = (run){.step = 100};
  snprintf(r->folder, sizeof r->folder, "%s", test_folder());
  assert_ok(treadle_model_open(MODEL, NULL, &model));
  r->model = model;
  for (int i = 0; i < PARTS; i++) {
    treadle_layout *layout;
    assert_ok(treadle_layout_create(model,
                                    i ? "megatron:tp=2,pp=2,dtype=fp32" : "megatron:tp=2,pp=2,dtype=bf16",
                                    RANKS, NULL, &layout));
    r->layouts[i] = layout;
  }
}

static void end(run *r) {
  treadle_layout *layouts[PARTS];
  treadle_model *model;
  memcpy(layouts, r->layouts, sizeof layouts);
  memcpy(&model, &r->model, sizeof model);
  for (int i = 0; i < PARTS; i++) treadle_layout_destroy(layouts[i]);
  treadle_model_close(model);
  test_remove(r->folder);
}

static void test_layouts(void **state) {
  (void)state;
  run r;
  int64_t step;
  begin(&r);
  ranks_as_threads(RANKS, 60, 0, save_rank, &r);
  assert_ok(treadle_train_checkpoint_find(r.folder, &step));
  assert_int_equal(step, 100);
  check_loaded(&r, 100, "megatron:tp=2,pp=2", 4, TREADLE_BF16);
  check_loaded(&r, 100, "megatron:tp=4", 4, TREADLE_FP32);
  check_loaded(&r, 100, "megatron:pp=4", 4, TREADLE_FP32);
  check_loaded(&r, 100, "fsdp2:dp=4", 4, TREADLE_FP32);
  check_loaded(&r, 100, "hf", 1, TREADLE_FP32);
  assert_string_equal(names(r.folder), "global_step_100 latest_checkpointed_iteration.txt ");
  char path[200], *text;
  size_t length;
  snprintf(path, sizeof path, "%s/global_step_100/data.json", r.folder);
  assert_ok(treadle_file_read(path, 100, &text, &length));
  assert_string_equal(text, "{\"rows\": 7}\n");
  treadle_free(text);
  end(&r);
}

static void test_retention(void **state) {
  (void)state;
  run r;
  char command[500];
  begin(&r);
  r.max = 1;
  for (r.step = 100; r.step <= 300; r.step += 100) ranks_as_threads(RANKS, 60, 0, save_rank, &r);
  assert_string_equal(names(r.folder), "global_step_300 latest_checkpointed_iteration.txt ");
  r.max = 2;
  snprintf(command, sizeof command,
           "cd '%s' && mkdir global_step_90.77-1.tmp global_step_90.77-1.tmp/actor && touch "
           "global_step_90.77-1.tmp/actor/x metrics.jsonl global_step_x notes.tmp && mkdir global_step_007 "
           "global_step_5.bak global_step_5.1-2.tmp.gz global_step_900",
           r.folder);
  assert_int_equal(system(command), 0);
  for (r.step = 400; r.step <= 500; r.step += 100) ranks_as_threads(RANKS, 60, 0, save_rank, &r);
  assert_string_equal(names(r.folder), "global_step_007 global_step_400 global_step_5.1-2.tmp.gz "
                                       "global_step_5.bak global_step_500 global_step_900 global_step_x "
                                       "latest_checkpointed_iteration.txt metrics.jsonl notes.tmp ");
  check_loaded(&r, 500, "hf", 1, TREADLE_FP32);
  snprintf(command, sizeof command, "test $(cat '%s/latest_checkpointed_iteration.txt') = 500", r.folder);
  assert_int_equal(system(command), 0);
  end(&r);
}

/* A step is saved again: another course of the run has come to it. */
static void test_again(void **state) {
  (void)state;
  run r;
  char path[200];
  begin(&r);
  ranks_as_threads(RANKS, 60, 0, save_rank, &r);
  snprintf(path, sizeof path, "%s/global_step_100/old", r.folder);
  assert_ok(treadle_file_write(path, "x", 1));
  ranks_as_threads(RANKS, 60, 0, save_rank, &r);
  assert_false(treadle_file_exists(path));
  assert_string_equal(names(r.folder), "global_step_100 latest_checkpointed_iteration.txt ");
  check_loaded(&r, 100, "hf", 1, TREADLE_FP32);
  end(&r);
}

static void test_full(void **state) {
  (void)state;
  run r;
  struct rlimit before, few;
  begin(&r);
  r.max = 1;
  ranks_as_threads(RANKS, 60, 0, save_rank, &r);
  r.step = 200;
  r.wanted = TREADLE_SYSTEM;
  r.part = "RLIMIT_FSIZE";
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
  few = (struct rlimit){200000, before.rlim_max}; /* of the masters: the weights fit */
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
  ranks_as_threads(RANKS, 60, 0, save_rank, &r);
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
  assert_string_equal(names(r.folder), "global_step_100 latest_checkpointed_iteration.txt ");
  check_loaded(&r, 100, "hf", 1, TREADLE_FP32);
  end(&r);
}

static void test_other_model(void **state) {
  (void)state;
  run r;
  treadle_model *other;
  treadle_layout *layout;
  char path[200], command[300];
  begin(&r);
  ranks_as_threads(RANKS, 60, 0, save_rank, &r);
  snprintf(path, sizeof path, "%s/global_step_100", r.folder);
  assert_ok(
      treadle_model_open(TREADLE_SOURCE_DIR "/tests/golden/models/llama-gqa-llama3rope", NULL, &other));
  assert_ok(treadle_layout_create(other, "hf", 1, NULL, &layout));
  char *window = malloc(treadle_layout_window_bytes(layout, 0));
  assert_refused("global_step_100/actor/optimizer/master", load_part(path, 1, layout, 0, window));
  treadle_layout_destroy(layout);
  treadle_model_close(other);
  assert_ok(treadle_layout_create(r.model, "hf", 1, NULL, &layout));
  snprintf(command, sizeof command, "rm '%s/actor/optimizer/exp_avg/model.safetensors'", path);
  assert_int_equal(system(command), 0);
  assert_refused("exp_avg: has no weights", load_part(path, 2, layout, 0, window));
  snprintf(command, sizeof command, "truncate -s 1000 '%s/actor/optimizer/master/model.safetensors'", path);
  assert_int_equal(system(command), 0);
  assert_refused("master/model.safetensors", load_part(path, 1, layout, 0, window));
  free(window);
  treadle_layout_destroy(layout);
  end(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_layouts), cmocka_unit_test(test_retention),
                                     cmocka_unit_test(test_again), cmocka_unit_test(test_full),
                                     cmocka_unit_test(test_other_model)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
