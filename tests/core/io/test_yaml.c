/* src/core/io/yaml.c. */
#include "test.h"

#include "io/file.h"
#include "io/yaml.h"

static treadle_status parse_only(const char *text) {
  treadle_arena arena = {0};
  const treadle_yaml *root = NULL;
  treadle_status status = treadle_yaml_parse("f.yaml", text, strlen(text), &arena, &root);
  treadle_arena_release(&arena);
  return status;
}

static const char FAMILY[] = "# comment\n"
                             "family: llama\n"
                             "dims:\n"
                             "  hd: head_dim ?? H / nh   # expression\n"
                             "  none:\n"
                             "tensors:\n"
                             "  - {name: \"a: b\", shape: [V, H*2]}\n"
                             "  - name: 'it''s'\n"
                             "    empty: []\n"
                             "    nothing: {}\n";

static void reads_trees(void **state) {
  (void)state;
  treadle_arena arena = {0};
  const treadle_yaml *root = NULL;
  assert_ok(treadle_yaml_parse("f.yaml", FAMILY, strlen(FAMILY), &arena, &root));
  assert_int_equal(root->type, TREADLE_YAML_MAP);
  assert_int_equal(root->count, 3);
  assert_string_equal(root->keys[2], "tensors"); /* file order */
  assert_string_equal(treadle_yaml_text(root, "family", ""), "llama");
  const treadle_yaml *dims = treadle_yaml_get(root, "dims");
  assert_string_equal(treadle_yaml_text(dims, "hd", ""), "head_dim ?? H / nh");
  assert_string_equal(treadle_yaml_text(dims, "none", "x"), "");
  const treadle_yaml *tensors = treadle_yaml_get(root, "tensors");
  assert_int_equal(tensors->type, TREADLE_YAML_LIST);
  assert_int_equal(tensors->count, 2);
  assert_int_equal(tensors->items[1]->line, 8);
  assert_string_equal(treadle_yaml_text(tensors->items[0], "name", ""), "a: b");
  const treadle_yaml *shape = treadle_yaml_get(tensors->items[0], "shape");
  assert_string_equal(shape->items[1]->text, "H*2");
  assert_int_equal(shape->items[1]->line, 7);
  assert_string_equal(treadle_yaml_text(tensors->items[1], "name", ""), "it's");
  assert_int_equal(treadle_yaml_get(tensors->items[1], "empty")->count, 0);
  assert_int_equal(treadle_yaml_get(tensors->items[1], "nothing")->count, 0);

  /* Absent, or of another type. */
  assert_null(treadle_yaml_get(root, "absent"));
  assert_null(treadle_yaml_get(tensors, "family"));
  assert_null(treadle_yaml_get(NULL, "family"));
  assert_string_equal(treadle_yaml_text(root, "dims", "otherwise"), "otherwise");
  assert_string_equal(treadle_yaml_text(root, "absent", "otherwise"), "otherwise");
  treadle_arena_release(&arena);

  assert_ok(parse_only("just a text"));
  assert_ok(parse_only("---\na: 1\n...\n"));
  assert_ok(parse_only("{\"a\": [1, 2, {\"b\": null}]}")); /* JSON is YAML */
}

static void refuses(void **state) {
  (void)state;
  static const struct {
    const char *text, *part;
  } bad[] = {
      {"", "f.yaml: is empty"},
      {"# only a comment\n", "f.yaml: is empty"},
      {"a: 1\nb: 2\na: 3\n", "f.yaml:3: key 'a' stands on line 1 already"},
      {"x: {a: 1, \"a\": 2}\n", "f.yaml:1: key 'a'"},
      {"a: &x 1\n", "f.yaml:1: anchors and aliases ('x')"},
      {"a: &x [1]\n", "anchors and aliases ('x')"},
      {"a: &x {b: 1}\n", "anchors and aliases ('x')"},
      {"a: 1\nb: *x\n", "f.yaml:2: anchors and aliases ('x')"},
      {"*x : 1\n", "anchors and aliases"},
      {"&x a: 1\n", "anchors and aliases"},
      {"a: !!int 1\n", "f.yaml:1: tags ('tag:yaml.org,2002:int')"},
      {"a: !mine {b: 1}\n", "tags ('!mine')"},
      {"a: !mine [1]\n", "tags ('!mine')"},
      {"!!str a: 1\n", "tags"},
      {"[a, b]: 1\n", "f.yaml:1: a key is not a plain text"},
      {"? {a: 1}\n: 2\n", "a key is not a plain text"},
      {"a: 1\n---\nb: 1\n", "f.yaml:2: a second document begins"},
      {"a: \"x\\0y\"\n", "f.yaml:1: a text has a zero character"},
      {"a: [1, 2\n", "f.yaml:2:1: while parsing a flow sequence"},
      {"a: b: c\n", "f.yaml:1:5: mapping values are not allowed"},
      {"a: \"x\n", "f.yaml:2:1: while scanning a quoted scalar"},
      {"\tx", "f.yaml:1:1"},
      {"a: \xff\n", "f.yaml: byte 3"},
      {"a: \x01\n", "f.yaml: byte 3: control characters are not allowed"},
      {"%YAML 1.1\n", "f.yaml:2:1"},
  };
  for (size_t i = 0; i < TEST_COUNT(bad); i++) assert_refused(bad[i].part, parse_only(bad[i].text));
}

/* `depth` lists in each other, the innermost empty. */
static treadle_status parse_deep(int depth) {
  char text[2 * 100 + 1] = "";
  for (int i = 0; i < depth; i++) text[i] = '[', text[depth + i] = ']';
  text[2 * depth] = 0;
  return parse_only(text);
}

static void depth_is_bounded(void **state) {
  (void)state;
  assert_ok(parse_deep(64));
  assert_refused("more than 64 deep", parse_deep(65));
  enum { DEEP = 200000 };
  char *deep = treadle_alloc(DEEP + 1);
  memset(deep, '[', DEEP);
  assert_refused("deep", parse_only(deep));
  for (int i = 0; i < DEEP; i += 2) memcpy(deep + i, "- ", 2);
  assert_refused("deep", parse_only(deep));
  treadle_free(deep);
}

static void memory_is_out(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(parse_only(FAMILY));
}

static void loads_files(void **state) {
  (void)state;
  treadle_arena arena = {0};
  const treadle_yaml *root = NULL;
  char path[128];
  const char *folder = test_folder();
  snprintf(path, sizeof path, "%s/a.yaml", folder);
  assert_fails(TREADLE_SYSTEM, "a.yaml: cannot open", treadle_yaml_load(path, &arena, &root));
  assert_refused("is a folder", treadle_yaml_load(folder, &arena, &root));
  assert_ok(treadle_file_write(path, FAMILY, strlen(FAMILY)));
  assert_ok(treadle_yaml_load(path, &arena, &root));
  assert_string_equal(treadle_yaml_text(root, "family", ""), "llama");
  treadle_arena_release(&arena);
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(reads_trees), cmocka_unit_test(refuses),
                                     cmocka_unit_test(depth_is_bounded), cmocka_unit_test(memory_is_out),
                                     cmocka_unit_test(loads_files)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
