/* peft's copy of a head that has an adapter: it is taken where it is the model's head, in its type or another, and refused where it is not. */
#include "adapter/adapter.h"

#include "base/dtype.h"
#include "model/stored.h"
#include "test.h"

static const char copy_name[] = "base_model.model.lm_head.base_layer.weight";
static const char path_of_model[] = TREADLE_SOURCE_DIR "/tests/golden/models/llama-gqa-llama3rope";

enum { RANK = 2, TENSORS = 3 };

/* The head's adapter, and a file of it with the head as well. */
typedef struct scene {
  treadle_model *model;
  treadle_adapter *adapter;
  const char *folder;
  char path[128];
  float *values;
  char *copy; /* [rows, columns] of the type that is asked for */
  treadle_stored tensors[TENSORS];
} scene;

static treadle_stored stored_of(const treadle_tensor *t, const void *data) {
  return (treadle_stored){.name = t->name,
                          .dtype = TREADLE_FP32,
                          .ndim = 2,
                          .shape = {t->shape[0], t->shape[1]},
                          .elems = t->elems,
                          .data = data,
                          .bytes = (size_t)t->elems * sizeof(float)};
}

static void open_scene(scene *s, const char *config, treadle_dtype dtype) {
  const treadle_adapter_spec spec = {.rank = RANK, .alpha = 4, .modules = "lm_head"};
  const treadle_model *m;
  treadle_model *whole;
  assert_ok(treadle_model_open(config, NULL, &s->model));
  assert_ok(treadle_adapter_create(s->model, &spec, &s->adapter));
  assert_int_equal(s->adapter->count, 1);
  m = s->adapter->model;
  s->values = calloc((size_t)s->adapter->elems, sizeof *s->values);
  assert_non_null(s->values);
  for (int i = 0; i < 2; i++)
    s->tensors[i] = stored_of(&m->tensors[i], s->values + (i ? m->tensors[0].elems : 0));
  assert_ok(treadle_model_open(path_of_model, NULL, &whole));
  const treadle_tensor *head = &whole->tensors[s->adapter->matrices[0].tensor];
  const treadle_stored *base = whole->files->entries[head->first_entry];
  const size_t bytes = (size_t)head->elems * treadle_dtype_bytes(dtype);
  s->copy = malloc(bytes);
  assert_non_null(s->copy);
  treadle_dtype_convert(s->copy, dtype, base->data, base->dtype, (size_t)head->elems);
  s->tensors[2] = stored_of(head, s->copy);
  s->tensors[2].name = copy_name;
  s->tensors[2].dtype = dtype;
  s->tensors[2].bytes = bytes;
  treadle_model_close(whole);
  s->folder = test_folder();
  snprintf(s->path, sizeof s->path, "%s/adapter_model.safetensors", s->folder);
}

static treadle_status read_file(scene *s) {
  assert_ok(treadle_safetensors_write(s->path, s->tensors, TENSORS));
  return treadle_adapter_read(s->adapter, s->path, s->values);
}

static void close_scene(scene *s) {
  test_remove(s->folder);
  free(s->values);
  free(s->copy);
  treadle_adapter_destroy(s->adapter);
  treadle_model_close(s->model);
}

static void test_alike(void **state) {
  static const treadle_dtype types[] = {TREADLE_FP32, TREADLE_BF16, TREADLE_FP16};
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(types); i++) {
    scene s;
    open_scene(&s, path_of_model, types[i]);
    assert_ok(read_file(&s));
    close_scene(&s);
  }
}

static void test_other(void **state) {
  (void)state;
  scene s;
  open_scene(&s, path_of_model, TREADLE_FP32);
  const int64_t columns = s.tensors[2].shape[1];
  s.copy[(200 * columns + 5) * (int64_t)sizeof(float)] ^= 1; /* behind the first that are compared */
  assert_refused("element [200, 5] of 'base_model.model.lm_head.base_layer.weight' is another than that of "
                 "lm_head.weight",
                 read_file(&s));
  s.tensors[2].shape[0]--;
  s.tensors[2].elems -= columns;
  s.tensors[2].bytes -= (size_t)columns * sizeof(float);
  assert_refused("is not a copy of lm_head.weight: [203, 64]", read_file(&s));
  close_scene(&s);
}

/* A config alone has no weights; and a copy of a matrix without an adapter does not belong to the adapters. */
static void test_nothing_to_compare(void **state) {
  (void)state;
  char config[512];
  scene s;
  snprintf(config, sizeof config, "%s/config.json", path_of_model);
  open_scene(&s, config, TREADLE_BF16);
  assert_refused("there are no safetensors of", read_file(&s));
  s.tensors[2].name = "base_model.model.model.embed_tokens.base_layer.weight";
  assert_refused("is of no matrix", read_file(&s));
  close_scene(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_alike), cmocka_unit_test(test_other),
                                     cmocka_unit_test(test_nothing_to_compare)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
