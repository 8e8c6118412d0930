/* Configs through transformers and back: what treadle makes of a config.json, and of what AutoConfig says that it means, is one
 * model, or the first is refused. The table is made by tools/check-round-trip; tests/core/model/SOURCE.txt says from what.
 *
 * A row has a config (`given`), all fields as transformers fills them in (`means`) and what it saves (`saved`), each as edits of the
 * one before; and variants: the given config with an edit, and the edits of `means` that it makes. ctest: stage=gcc */
#include "test.h"

#include "model/build.h"
#include "nn/rope.h"
#include "pass/transformer.h"

#include <zlib.h>

typedef struct side {
  treadle_model *model;
  treadle_transformer *transformer; /* NULL: treadle's engine does not compute it */
  treadle_rope rope;
  char refusal[300];
} side;

/* ---- Edits --------------------------------------------------------------------------------------- */

/* "/a/b" and a value, or without one if it goes. */
static void edit(json_t *config, const json_t *change) {
  const char *path = json_string_value(json_array_get(change, 0)) + 1;
  json_t *value = json_array_get(change, 1);
  for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
    char name[100];
    snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
    config = json_object_get(config, name);
  }
  if (value)
    json_object_set(config, path, value);
  else
    json_object_del(config, path);
}

static json_t *edited(const json_t *config, const json_t *changes) {
  json_t *copy = json_deep_copy(config);
  for (size_t i = 0; i < json_array_size(changes); i++) edit(copy, json_array_get(changes, i));
  return copy;
}

/* ---- Two sides ----------------------------------------------------------------------------------- */

static void side_open(side *s, json_t *config, treadle_family *family) {
  *s = (side){0};
  if (treadle_model_of(family, "config", config, -1, &s->model)) {
    snprintf(s->refusal, sizeof s->refusal, "%s", treadle_error_message());
    return;
  }
  if (treadle_transformer_create(s->model, &s->transformer)) {
    snprintf(s->refusal, sizeof s->refusal, "%s", treadle_error_message());
    return;
  }
  treadle_rope_spec spec = {.head_dim = s->transformer->rope_dim,
                            .interleaved = s->transformer->interleaved};
  if (treadle_rope_read(treadle_transformer_config(s->transformer), &spec, &s->rope)) {
    snprintf(s->refusal, sizeof s->refusal, "%s", treadle_error_message());
    treadle_transformer_destroy(s->transformer);
    s->transformer = NULL;
  }
}

static void side_close(side *s) {
  if (s->transformer) treadle_rope_release(&s->rope);
  treadle_transformer_destroy(s->transformer);
  treadle_model_close(s->model);
}

/* The first tensor that differs. */
static const char *other_tensor(const treadle_model *a, const treadle_model *b) {
  for (int32_t i = 0; i < a->tensor_count && i < b->tensor_count; i++)
    if (strcmp(a->tensors[i].name, b->tensors[i].name) != 0 || a->tensors[i].elems != b->tensors[i].elems ||
        a->tensors[i].dtype != b->tensors[i].dtype)
      return a->tensors[i].name;
  return "the number of tensors or names";
}

static bool same_rope(const treadle_rope *a, const treadle_rope *b) {
  return a->interleaved == b->interleaved && a->pairs == b->pairs &&
         a->attention_factor == b->attention_factor && a->softmax_factor == b->softmax_factor &&
         memcmp(a->inverse, b->inverse, (size_t)a->pairs * sizeof *a->inverse) == 0;
}

static const char *other_numbers(const treadle_transformer *a, const treadle_transformer *b) {
  const treadle_transformer_routing *r = &a->routing, *q = &b->routing;
  if (a->heads != b->heads || a->kv_heads != b->kv_heads || a->head_dim != b->head_dim ||
      a->rope_dim != b->rope_dim)
    return "heads";
  if (a->eps != b->eps) return "eps";
  if (a->most_positions != b->most_positions) return "max_position_embeddings";
  if (r->experts != q->experts || r->top != q->top || r->sigmoid != q->sigmoid ||
      r->renormalise != q->renormalise || r->scale != q->scale || r->groups != q->groups ||
      r->top_groups != q->top_groups)
    return "routing";
  for (int64_t l = 0; l < a->layers; l++)
    if (a->layer[l].rotates != b->layer[l].rotates || a->layer[l].sparse != b->layer[l].sparse)
      return "layers";
  return NULL;
}

/* NULL: one model, or `given` is refused. */
static const char *difference(const side *given, const side *means) {
  if (!given->model) return NULL;
  if (!means->model) return means->refusal;
  if (given->model->digest != means->model->digest) return other_tensor(given->model, means->model);
  if (given->model->mtp_layers != means->model->mtp_layers) return "MTP layers";
  for (int32_t i = 0; i < given->model->family->dim_count; i++)
    if (given->model->dim_values[i] != means->model->dim_values[i])
      return given->model->family->dim_names[i];
  if (!given->transformer) return NULL;
  if (!means->transformer) return means->refusal;
  if (!same_rope(&given->rope, &means->rope)) return "rope";
  return other_numbers(given->transformer, means->transformer);
}

typedef struct tally {
  int cases, refused, different;
} tally;

static void compare(treadle_family *family, const char *name, const char *what, json_t *given,
                    json_t *means, tally *counts) {
  side sides[2];
  side_open(&sides[0], given, family);
  side_open(&sides[1], means, family);
  const char *differs = difference(&sides[0], &sides[1]);
  counts->cases++;
  counts->refused += !sides[0].model;
  if (differs) print_message("%s, %s: %s\n", name, what, differs);
  counts->different += differs != NULL;
  if (getenv("ROUND_TRIP_REFUSALS") && !sides[0].model)
    print_message("%s, %s: refused: %s\n", name, what, sides[0].refusal);
  side_close(&sides[0]);
  side_close(&sides[1]);
}

static void check_row(const json_t *row, tally *counts) {
  const char *name = json_string_value(json_object_get(row, "name"));
  json_t *given = json_object_get(row, "given"), *variants = json_object_get(row, "variants");
  json_t *means = edited(given, json_object_get(row, "means")),
         *saved = edited(given, json_object_get(row, "saved"));
  int refused = counts->refused;
  treadle_arena arena = {0};
  treadle_family *family;
  assert_ok(treadle_family_find(NULL, json_string_value(json_object_get(given, "model_type")), name, &arena,
                                &family));
  compare(family, name, "as it is", given, means, counts);
  compare(family, name, "as it is saved", saved, means, counts);
  if (counts->refused > refused) print_message("%s: refused, as given or as saved\n", name);
  for (size_t i = 0; i < json_array_size(variants); i++) {
    const json_t *variant = json_array_get(variants, i);
    json_t *changed = edited(given, json_array_get(variant, 1)),
           *then = edited(means, json_array_get(variant, 2));
    compare(family, name, json_string_value(json_array_get(variant, 0)), changed, then, counts);
    json_decref(changed);
    json_decref(then);
  }
  json_decref(means);
  json_decref(saved);
  treadle_arena_release(&arena);
}

static const char *table = TREADLE_SOURCE_DIR "/tests/core/model/round_trip.json.gz";

static json_t *load_table(void) {
  enum { MOST = 1 << 26 };
  gzFile file = gzopen(table, "rb");
  if (!file) fail_msg("%s cannot be opened", table);
  char *text = malloc(MOST);
  int length = gzread(file, text, MOST);
  gzclose(file);
  json_t *root = length > 0 ? json_loadb(text, (size_t)length, 0, NULL) : NULL;
  free(text);
  if (!root) fail_msg("%s is not a table", table);
  return root;
}

static void round_trip(void **state) {
  (void)state;
  tally counts = {0};
  json_t *root = load_table();
  const json_t *rows = json_object_get(root, "rows");
  assert_true(json_array_size(rows) > 0);
  for (size_t i = 0; i < json_array_size(rows); i++) check_row(json_array_get(rows, i), &counts);
  print_message("%d cases, %d refused, %d different\n", counts.cases, counts.refused, counts.different);
  assert_int_equal(counts.different, 0);
  json_decref(root);
}

int main(int argc, char **argv) {
  if (argc > 1) table = argv[1];
  const struct CMUnitTest tests[] = {cmocka_unit_test(round_trip)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
