/* src/core/family/views.c, and views of a model: what is read, what is refused, and what they look like. */
#include "model/sketch.h"

static void are_read(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_family *family;
  assert_ok(sketch_read(&sketch_experts, &arena, &family));
  assert_int_equal(family->view_count, 2);
  const treadle_family_view *uv = &family->views[1];
  assert_string_equal(uv->name, "m.{l}.uv");
  assert_string_equal(family->patterns[uv->pattern].name, "m.{l}.kv");
  assert_int_equal(uv->takes, 1);
  assert_int_equal(uv->take_axis[0], 1);
  assert_string_equal(uv->take_start[0], "a");
  assert_string_equal(uv->take_size[0], "b");
  assert_int_equal(uv->ndim, 3);
  assert_int_equal(uv->naxes, 3);
  const int8_t axes[] = {0, 2, 1};
  assert_memory_equal(uv->axis, axes, sizeof axes);
  const treadle_engine_rules *sglang = treadle_family_engine(family, "sglang");
  assert_int_equal(sglang->rules[3].parts[0].view, 0);
  assert_int_equal(sglang->rules[3].parts[0].pattern, uv->pattern);
  assert_true(sglang->rules[3].derived);
  assert_int_equal(sglang->rules[3].dtype, TREADLE_BF16);
  assert_int_equal(sglang->rules[2].parts[0].view, -1);
  treadle_arena_release(&arena);
}

static void have_shapes(void **state) {
  (void)state;
  treadle_model *model;
  treadle_part_shape part;
  assert_ok(sketch_open(&sketch_experts, sketch_config, &model));
  int32_t kv = model->family->views[0].pattern;
  assert_ok(treadle_model_part(model, (treadle_part_name){kv, 1}, &part));
  assert_int_equal(part.ndim, 3);
  assert_false(part.experts);
  const int64_t shape[] = {4, 8, 2}, start[] = {0, 3, 0}, size[] = {4, 2, 8};
  const int8_t of[] = {0, 2, 1};
  assert_memory_equal(part.shape, shape, sizeof shape);
  assert_memory_equal(part.start, start, sizeof start);
  assert_memory_equal(part.size, size, sizeof size);
  assert_memory_equal(part.of_axis, of, sizeof of);
  assert_int_equal(part.elems, 64);

  assert_ok(treadle_model_part(model, (treadle_part_name){2, -1}, &part)); /* an expert's matrix */
  assert_true(part.experts);
  assert_int_equal(part.ndim, 2);
  assert_int_equal(part.shape[0], 8);
  assert_int_equal(part.of_axis[0], 1);
  assert_int_equal(part.size[0], 4);
  treadle_model_close(model);
}

#define VIEWS(text) s.views = "views: [" text "]\n"

static void refused_views(void **state) {
  (void)state;
  sketch_refused("views must be a list of views", s.views = "views: {}\n");
  sketch_refused("views must be a list of views", s.views = "views: []\n");
  sketch_refused("a map of name, ... is wanted", VIEWS("L.uk"));
  sketch_refused("unknown key 'takes'; the nearest is 'take'",
                 VIEWS("{name: L.uk, of: L.kv, takes: {k: [0, a]}, shape: [n, k, H]}"));
  sketch_refused("name is missing", VIEWS("{of: L.kv, shape: [n, k, H]}"));
  sketch_refused("of is missing", VIEWS("{name: L.uk, shape: [n, k, H]}"));
  sketch_refused("shape is missing", VIEWS("{name: L.uk, of: L.kv}"));
  sketch_refused("no tensor is named m.{l}.kw; the nearest is m.{l}.kv",
                 VIEWS("{name: L.uk, of: L.kw, shape: [n]}"));
  sketch_refused("m.{l}.kv stands twice", VIEWS("{name: L.kv, of: L.kv, shape: [n, k, H]}"));
  sketch_refused(
      "m.{l}.uk stands twice",
      VIEWS("{name: L.uk, of: L.kv, shape: [n, k, H]}, {name: L.uk, of: L.kv, shape: [n, k, H]}"));
  sketch_refused(
      "m.{l}.uk is a view, and a tensor is wanted here",
      VIEWS("{name: L.uk, of: L.kv, shape: [n, k, H]}, {name: L.x, of: L.uk, shape: [n, k, H]}"));
  sketch_refused("more than 4 dimensions", VIEWS("{name: L.uk, of: L.kv, shape: [n, k, H, H, H]}"));
  sketch_refused("more than 4 dimensions", VIEWS("{name: L.uk, of: L.e.*.up, shape: [b, n, H, H]}"));
}

static void refused_axes(void **state) {
  (void)state;
  sketch_refused("'K' is not an axis of m.{l}.kv; the nearest is n",
                 VIEWS("{name: L.uk, of: L.kv, shape: [n, K, H]}"));
  sketch_refused("'' is not an axis", VIEWS("{name: L.uk, of: L.kv, shape: [n*, k, H]}"));
  sketch_refused("'E' is not an axis of m.{l}.e.*.up",
                 VIEWS("{name: L.uk, of: L.e.*.up, shape: [E, b*n, H]}"));
  sketch_refused("names axis n twice", VIEWS("{name: L.uk, of: L.kv, shape: [n*n, k, H]}"));
  sketch_refused("axis H of m.{l}.kv is neither in the shape of m.{l}.uk nor taken",
                 VIEWS("{name: L.uk, of: L.kv, shape: [n, k]}"));
  sketch_refused("m.{l}.proj has 2 axes 'H'; give them different names",
                 VIEWS("{name: L.uk, of: L.proj, shape: [H, H]}"));
}

static void refused_takes(void **state) {
  (void)state;
#define TAKE(text) VIEWS("{name: L.uk, of: L.kv, take: " text ", shape: [n, k, H]}")
  sketch_refused("take must be a map of axes to [start, size]", TAKE("[k]"));
  sketch_refused("'x' is not an axis", TAKE("{x: [0, 1]}"));
  sketch_refused("k must be a list of at least one text", TAKE("{k: 1}"));
  sketch_refused("take: k needs [start, size]", TAKE("{k: [0]}"));
  sketch_refused("take: k needs [start, size]", TAKE("{k: [0, 1, 2]}"));
  sketch_refused("a value is missing", TAKE("{k: [0 +, 1]}"));
  sketch_refused("an operator is missing", TAKE("{k: [0, 1 2]}"));
}

/* What only a config tells. */
static void ranges_of_models(void **state) {
  (void)state;
  static const struct {
    const char *take, *words;
  } rows[] = {{"{k: [0, 6]}", "takes [0, +6) of axis k of m.{l}.kv, which has 5"},
              {"{k: [5, 1]}", "takes [5, +1) of axis k"},
              {"{k: [0 - 1, 1]}", "takes [-1, +1) of axis k"},
              {"{k: [0, 0]}", "takes [0, +0) of axis k"},
              {"{k: [none, 1]}", "none is missing"}};
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    char views[300];
    sketch s = sketch_experts;
    treadle_model *model;
    treadle_part_shape part;
    snprintf(views, sizeof views,
             "views: [{name: L.uk, of: L.kv, take: %s, shape: [n, k, H]}, "
             "{name: L.uv, of: L.kv, shape: [n, H, k]}]\n",
             rows[i].take);
    s.views = views;
    assert_ok(sketch_open(&s, sketch_config, &model));
    assert_refused(rows[i].words, treadle_model_part(model, (treadle_part_name){1, 0}, &part));
    treadle_model_close(model);
  }
  sketch s = sketch_experts; /* an axis that is taken but not named has size 1 */
  treadle_model *model;
  treadle_part_shape part;
  s.views = "views: [{name: L.uk, of: L.kv, take: {k: [0, b]}, shape: [n, H]}, "
            "{name: L.uv, of: L.kv, take: {k: [4, 1]}, shape: [n, H]}]\n";
  s.engines = sketch_experts.engines;
  assert_ok(sketch_open(&s, sketch_config, &model));
  assert_refused("leaves out axis k of m.{l}.kv, of which it takes 2",
                 treadle_model_part(model, (treadle_part_name){1, 0}, &part));
  assert_ok(treadle_model_part(model, (treadle_part_name){1, 1}, &part));
  assert_int_equal(part.elems, 32);
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(are_read),      cmocka_unit_test(have_shapes),
                                     cmocka_unit_test(refused_views), cmocka_unit_test(refused_axes),
                                     cmocka_unit_test(refused_takes), cmocka_unit_test(ranges_of_models)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
