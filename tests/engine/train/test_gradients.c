/* Loss and gradients of tiny models: those of PyTorch (tests/golden/grads/SOURCE.txt), each tensor's relative distance at most 1e-4 in fp32
 * and 3e-2 in bf16; the bits do not depend on threads. More lie in ../shared, where that is.
 *
 * Models with experts in bf16: routers choose by numbers of bf16, so the tokens go to the experts that the run in fp32 chose, whose gradients PyTorch
 * has recorded. All tensors together are at most 3e-2 away, each at most 6e-2.
 *
 * The recorded gradients are read as if they were the weights of a model, in the layout of the gradients. */
/* ctest: stage=gcc timeout=300 */
#include "test.h"
#include "train/rows.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/json.h"
#include "treadle_builtin.h"

#include <glob.h>
#include <math.h>

enum { ROWS_MOST = 16, TOKENS_MOST = 512 };

typedef struct rows {
  rows_row row[ROWS_MOST];
  int32_t ids[ROWS_MOST][TOKENS_MOST];
  uint8_t mask[ROWS_MOST][TOKENS_MOST];
  size_t count;
} rows;

static void read_rows(const char *folder, rows *r) {
  char path[512], line[16384];
  snprintf(path, sizeof path, "%s/rows.jsonl", folder);
  FILE *file = fopen(path, "r");
  assert_non_null(file);
  for (r->count = 0; fgets(line, sizeof line, file); r->count++) {
    json_t *root = json_loads(line, 0, NULL);
    json_t *ids = json_object_get(root, "ids"), *mask = json_object_get(root, "mask");
    rows_row *row = &r->row[r->count];
    *row = (rows_row){r->ids[r->count], r->mask[r->count], json_array_size(ids), 0};
    assert_true(r->count < ROWS_MOST && row->count > 1 && row->count <= TOKENS_MOST);
    for (size_t i = 0; i < row->count; i++) {
      r->ids[r->count][i] = (int32_t)json_integer_value(json_array_get(ids, i));
      r->mask[r->count][i] = (uint8_t)json_integer_value(json_array_get(mask, i));
    }
    json_decref(root);
  }
  fclose(file);
}

/* given: a batch with a column of experts to replay; found: one that gets such a column. Each may be NULL. */
static treadle_status gradients_by(treadle_trainer *t, const rows *r, int64_t micro_batch,
                                   const treadle_batch *given, treadle_batch *found, treadle_loss *loss) {
  const treadle_forward_options forward = {.struct_size = sizeof forward,
                                           .micro_batch_size = micro_batch,
                                           .replay_experts = given != NULL,
                                           .experts = found != NULL};
  const treadle_loss_options nll = {.struct_size = sizeof nll, .name = "nll"};
  treadle_column experts = TREADLE_INIT(treadle_column);
  treadle_batch *batch;
  assert_ok(rows_batch(r->row, r->count, &batch));
  if (given) {
    assert_ok(treadle_batch_column(given, "experts", &experts));
    assert_ok(treadle_batch_add(batch, &experts));
  }
  treadle_status status = treadle_trainer_gradients(t, batch, &forward, &nll, found, loss);
  treadle_batch_destroy(batch);
  return status;
}

static treadle_status gradients(treadle_trainer *t, const rows *r, int64_t micro_batch,
                                treadle_loss *loss) {
  return gradients_by(t, r, micro_batch, NULL, NULL, loss);
}

static void place(const char *from, const char *to, const char *name) {
  char link_path[600];
  snprintf(link_path, sizeof link_path, "%s/%s", to, name);
  assert_int_equal(symlink(from, link_path), 0);
}

/* The header of a safetensors file. */
static json_t *read_header(const char *path, char **text_p, uint64_t *header_p) {
  size_t bytes;
  json_t *root;
  assert_ok(treadle_file_read(path, 1 << 26, text_p, &bytes));
  memcpy(header_p, *text_p, sizeof *header_p);
  assert_ok(treadle_json_parse("header", *text_p + 8, *header_p, &root));
  json_object_del(root, "__metadata__");
  return root;
}

static void write_tensors(const char *path, const json_t *header, const char *values, size_t bytes) {
  char *text = json_dumps(header, JSON_COMPACT);
  uint64_t length = strlen(text);
  FILE *file = fopen(path, "wb");
  assert_non_null(file);
  assert_int_equal(fwrite(&length, sizeof length, 1, file), 1);
  assert_int_equal(fwrite(text, length, 1, file), 1);
  assert_int_equal(fwrite(values, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
  free(text);
}

/* Biases of routers have no gradients: a file beside has those of the model, and an index says so. */
static void place_biases(const char *model, const char *into) {
  json_t *map = json_object(), *index = json_pack("{s:o}", "weight_map", map), *some = json_object(), *root;
  char path[600], *text, values[4096];
  const char *name;
  json_t *about;
  uint64_t header;
  size_t at = 0;
  snprintf(path, sizeof path, "%s/gradients.safetensors", into);
  root = read_header(path, &text, &header);
  json_object_foreach(root, name, about)
      json_object_set_new(map, name, json_string("gradients.safetensors"));
  json_decref(root);
  treadle_free(text);
  root = read_header(model, &text, &header);
  json_object_foreach(root, name, about) {
    json_t *offsets = json_object_get(about, "data_offsets");
    const size_t begin = (size_t)json_integer_value(json_array_get(offsets, 0)),
                 count = (size_t)json_integer_value(json_array_get(offsets, 1)) - begin;
    if (!strstr(name, "correction_bias")) continue;
    assert_true(at + count <= sizeof values);
    memcpy(values + at, text + 8 + header + begin, count);
    json_t *own = json_deep_copy(about);
    json_object_set_new(own, "data_offsets", json_pack("[I,I]", (json_int_t)at, (json_int_t)(at + count)));
    json_object_set_new(some, name, own);
    json_object_set_new(map, name, json_string("biases.safetensors"));
    at += count;
  }
  json_decref(root);
  treadle_free(text);
  snprintf(path, sizeof path, "%s/biases.safetensors", into);
  if (at) write_tensors(path, some, values, at);
  snprintf(path, sizeof path, "%s/model.safetensors.index.json", into);
  assert_int_equal(json_dump_file(index, path, 0), 0);
  json_decref(index);
  json_decref(some);
}

/* The recorded gradients, in a window of the layout of t's gradients. */
static float *read_wanted(const char *folder, const char *model, const treadle_layout *layout,
                          size_t bytes) {
  char into[] = "/tmp/treadle-test-XXXXXX", path[600];
  treadle_model *wanted;
  treadle_layout *same;
  assert_non_null(mkdtemp(into));
  snprintf(path, sizeof path, "%s/config.json", model);
  place(path, into, "config.json");
  snprintf(path, sizeof path, "%s/grads.safetensors", folder);
  place(path, into, "gradients.safetensors");
  snprintf(path, sizeof path, "%s/model.safetensors", model);
  place_biases(path, into);
  assert_ok(treadle_model_open(into, NULL, &wanted));
  assert_ok(treadle_layout_create(wanted, treadle_layout_text(layout), 1, NULL, &same));
  assert_int_equal(treadle_layout_window_bytes(same, 0), bytes);
  float *window = calloc(1, bytes + 1);
  assert_non_null(window);
  assert_ok(treadle_layout_load(same, 0, window));
  treadle_layout_destroy(same);
  treadle_model_close(wanted);
  test_remove(into);
  return window;
}

/* The largest relative distance of a storage tensor; and that of all of them together. */
static double distance(const treadle_layout *layout, const float *got, const float *wanted,
                       double *together_p) {
  double largest = 0, every_sum = 0, every = 0;
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, 0); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    assert_ok(treadle_layout_storage(layout, 0, s, &info));
    if (strstr(info.name, "correction_bias") || strstr(info.name, "expert_bias")) continue;
    const float *a = got + info.offset_bytes / 4, *b = wanted + info.offset_bytes / 4;
    double sum = 0, all = 0;
    for (size_t i = 0; i < info.bytes / 4; i++) {
      sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
      all += (double)b[i] * b[i];
    }
    every_sum += sum;
    every += all;
    double one = sqrt(sum / (all > 0 ? all : 1));
    if (getenv("TREADLE_VERBOSE")) printf("  %s %g (norm %g)\n", info.name, one, sqrt(all));
    if (!(one <= largest)) largest = one;
  }
  *together_p = sqrt(every_sum / every);
  return largest;
}

/* The experts that the tokens of all rows choose in fp32. */
static treadle_batch *choose_in_fp32(const treadle_model *model, const rows *r) {
  const treadle_trainer_options options = {
      .struct_size = sizeof options, .most_rows = 1024, .most_tokens = TOKENS_MOST};
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  treadle_batch *found;
  treadle_layout *layout;
  treadle_trainer *t;
  assert_ok(treadle_layout_create(model, "hf:dtype=fp32", 1, NULL, &layout));
  assert_ok(treadle_trainer_create(NULL, layout, &options, &t));
  assert_ok(treadle_trainer_load(t));
  assert_ok(treadle_batch_create((int64_t)r->count, &found));
  assert_ok(gradients_by(t, r, 2, NULL, found, &loss));
  treadle_trainer_destroy(t);
  treadle_layout_destroy(layout);
  return found;
}

/* Bounds of each tensor, and of all together. */
static void check_layout(const char *folder, const char *model, const char *text, double bound,
                         double bound_together, bool replays) {
  treadle_trainer_options options = {
      .struct_size = sizeof options, .most_rows = 1024, .most_tokens = TOKENS_MOST};
  treadle_model *m;
  treadle_layout *layout;
  treadle_trainer *t;
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  size_t bytes;
  rows *r = malloc(sizeof *r);
  float *kept = NULL, *wanted = NULL;
  treadle_batch *given = NULL;
  char path[600];
  json_t *root;
  assert_non_null(r);
  read_rows(folder, r);
  snprintf(path, sizeof path, "%s/expected.json", folder);
  assert_ok(treadle_json_load(path, &root));
  double wanted_loss = json_number_value(json_object_get(root, "loss"));
  json_decref(root);
  assert_ok(treadle_model_open(model, NULL, &m));
  if (replays) given = choose_in_fp32(m, r);
  assert_ok(treadle_layout_create(m, text, 1, NULL, &layout));
  for (int threads = 1; threads <= 2; threads++) {
    options.threads = threads;
    assert_ok(treadle_trainer_create(NULL, layout, &options, &t));
    assert_ok(treadle_trainer_load(t));
    assert_ok(gradients_by(t, r, 2, given, NULL, &loss));
    float *got = treadle_trainer_grad_window(t, &bytes);
    if (threads == 1) {
      kept = malloc(bytes);
      assert_non_null(kept);
      memcpy(kept, got, bytes);
      wanted = read_wanted(folder, model, treadle_trainer_grad_layout(t), bytes);
      double together, far = distance(treadle_trainer_grad_layout(t), got, wanted, &together);
      double off = fabs(loss.nll / (double)loss.tokens - wanted_loss) / wanted_loss;
      printf("%s, %s: loss %.9g, off by %.2g; gradients by %.2g, together %.2g\n", model, text,
             loss.nll / (double)loss.tokens, off, far, together);
      assert_true(off <= bound_together);
      assert_true(far <= bound);
      assert_true(together <= bound_together);
    } else {
      assert_memory_equal(kept, got, bytes);
    }
    treadle_trainer_destroy(t);
  }
  treadle_batch_destroy(given);
  treadle_layout_destroy(layout);
  treadle_model_close(m);
  free(kept);
  free(wanted);
  free(r);
}

static void check_all(const char *pattern, const char *models) {
  glob_t found = {0};
  if (glob(pattern, 0, NULL, &found) != 0) printf("%s: nothing is there: skipped\n", pattern);
  for (size_t i = 0; i < found.gl_pathc; i++) {
    const char *name = strrchr(found.gl_pathv[i], '/') + 1;
    char model[600];
    snprintf(model, sizeof model, "%s/%s", models, name);
    const bool sparse = strstr(name, "moe") || strstr(name, "dsv") || strstr(name, "mixtral");
    check_layout(found.gl_pathv[i], model, "hf:dtype=fp32", 1e-4, 1e-4, false);
    check_layout(found.gl_pathv[i], model, "megatron:dtype=fp32", 1e-4, 1e-4, false);
    check_layout(found.gl_pathv[i], model, "hf:dtype=bf16", sparse ? 6e-2 : 3e-2, 3e-2, sparse);
  }
  globfree(&found);
}

/* Where only expected.json is there: norms of all tensors, and some of their elements, in the layout hf. */
static void check_samples(const char *folder, const char *model) {
  treadle_trainer_options options = {
      .struct_size = sizeof options, .most_rows = 1024, .most_tokens = TOKENS_MOST};
  treadle_model *m;
  treadle_layout *layout;
  treadle_trainer *t;
  treadle_loss loss = TREADLE_INIT(treadle_loss);
  rows *r = malloc(sizeof *r);
  char path[600];
  const char *name;
  json_t *root, *tensor, *sample;
  size_t number;
  assert_non_null(r);
  read_rows(folder, r);
  snprintf(path, sizeof path, "%s/expected.json", folder);
  assert_ok(treadle_json_load(path, &root));
  assert_ok(treadle_model_open(model, NULL, &m));
  assert_ok(treadle_layout_create(m, "hf:dtype=fp32", 1, NULL, &layout));
  assert_ok(treadle_trainer_create(NULL, layout, &options, &t));
  assert_ok(treadle_trainer_load(t));
  assert_ok(gradients(t, r, 1, &loss));
  assert_int_equal(loss.tokens, json_integer_value(json_object_get(root, "tokens")));
  const float *window = treadle_trainer_grad_window(t, NULL);
  int tensors = 0;
  json_object_foreach(json_object_get(root, "tensors"), name, tensor) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    int32_t storage = treadle_layout_find(layout, 0, name);
    assert_true(storage >= 0);
    assert_ok(treadle_layout_storage(layout, 0, storage, &info));
    const float *got = window + info.offset_bytes / 4;
    double sum = 0, norm = json_number_value(json_object_get(tensor, "norm"));
    for (size_t i = 0; i < info.bytes / 4; i++) sum += (double)got[i] * got[i];
    assert_true(fabs(sqrt(sum) - norm) <= 1e-4 * norm);
    json_array_foreach(json_object_get(tensor, "sample"), number, sample) {
      double value = json_number_value(json_array_get(sample, 1));
      assert_true(fabs((double)got[json_integer_value(json_array_get(sample, 0))] - value) <= 1e-4 * norm);
    }
    tensors++;
  }
  assert_true(tensors > 10);
  json_decref(root);
  treadle_trainer_destroy(t);
  treadle_layout_destroy(layout);
  treadle_model_close(m);
  free(r);
}

static void test_samples(void **state) {
  (void)state;
  check_samples(TREADLE_SOURCE_DIR "/tests/golden/grads/llama-gqa-llama3rope",
                TREADLE_SOURCE_DIR "/tests/golden/models/llama-gqa-llama3rope");
  check_samples(TREADLE_SOURCE_DIR "/tests/golden/grads/qwen2-tied",
                TREADLE_SOURCE_DIR "/tests/golden/models/qwen2-tied");
}

static void test_golden(void **state) {
  (void)state;
  check_all(TREADLE_SOURCE_DIR "/../shared/data/golden/grads/[a-z]*",
            TREADLE_SOURCE_DIR "/../shared/data/golden/models");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_samples), cmocka_unit_test(test_golden)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
