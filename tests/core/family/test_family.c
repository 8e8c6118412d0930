/* src/core/family/: the files of families/, and one refusal for each rule of docs/families.md. */
#include "test.h"

#include "family/family.h"

#include <glob.h>

/* A small family; tests replace one part of it. */
typedef struct sketch {
  const char *head, *dims, *tensors, *engines;
} sketch;

static const sketch good = {
    "family: small\nmodel_types: [small]\nlayers: L\nprefixes: {L.: 'm.{l}.'}\n",
    "dims: {H: hidden, L: depth, g: groups, q: heads / g}\n",
    "tensors:\n"
    "  - {name: embed, shape: [4*H, H]}\n"
    "  - {name: L.q, shape: [g * q, H]}\n"
    "  - {name: L.k, shape: [g, H]}\n"
    "  - {name: head, shape: [4*H, H], same_as: embed, same_when: tied}\n",
    "engines:\n"
    "  vllm:\n"
    "    - {name: embed, at: first, of: [embed], cut: rows, pad: vocab}\n"
    "    - {name: L.qk, of: [L.q, L.k], fuse: g, cut: rows}\n"
    "    - {name: head, at: last, of: [head], cut: cols, over: attn_tp, when: not tied}\n"};

static treadle_status read_sketch(sketch s, treadle_arena *arena, treadle_family **family_p) {
  char text[4000];
  const treadle_yaml *root;
  treadle_status status;
  snprintf(text, sizeof text, "%s%s%s%s", s.head, s.dims, s.tensors, s.engines);
  TRY(treadle_yaml_parse("small.yaml", text, strlen(text), arena, &root));
  TRY(treadle_family_read("small.yaml", root, NULL, arena, family_p));
out:
  return status;
}

#define refused(words, ...)                                                                                \
  do {                                                                                                     \
    treadle_arena arena = {0};                                                                             \
    treadle_family *family;                                                                                \
    sketch s = good;                                                                                       \
    __VA_ARGS__;                                                                                           \
    assert_refused(words, read_sketch(s, &arena, &family));                                                \
    assert_non_null(strstr(treadle_error_message(), "small.yaml"));                                        \
    treadle_arena_release(&arena);                                                                         \
  } while (0)

static void a_small_family(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_family *family;
  assert_ok(read_sketch(good, &arena, &family));
  assert_string_equal(family->name, "small");
  assert_int_equal(family->dim_count, 4);
  assert_string_equal(family->dim_texts[3], "heads / g");
  assert_int_equal(family->pattern_count, 4);
  const treadle_pattern *q = &family->patterns[1];
  assert_string_equal(q->name, "m.{l}.q");
  assert_true(q->in_layer);
  assert_int_equal(q->ndim, 2);
  assert_int_equal(q->naxes, 3);
  assert_string_equal(q->axis_text[1], "q");
  assert_int_equal(q->axis_dim[1], 0);
  assert_int_equal(q->axis_dim[2], 1);
  assert_int_equal(family->patterns[3].same_as, 0);
  assert_int_equal(family->patterns[0].same_as, -1);

  assert_null(treadle_family_engine(family, "megatron"));
  const treadle_engine_rules *vllm = treadle_family_engine(family, "vllm");
  assert_int_equal(vllm->count, 3);
  assert_true(vllm->rules[0].pad_vocab);
  assert_int_equal(vllm->rules[0].at, TREADLE_AT_FIRST);
  assert_string_equal(vllm->rules[0].over, "tp");
  assert_int_equal(vllm->rules[1].at, TREADLE_AT_LAYER);
  assert_int_equal(vllm->rules[1].nparts, 2);
  assert_int_equal(vllm->rules[1].parts[1].pattern, 2);
  assert_string_equal(vllm->rules[1].fuse, "g");
  assert_int_equal(vllm->rules[2].cut, TREADLE_CUT_COLS);
  assert_string_equal(vllm->rules[2].over, "attn_tp");
  assert_string_equal(vllm->rules[2].when, "not tied");
  treadle_arena_release(&arena);
}

static void refused_heads(void **state) {
  (void)state;
  refused("line 1: unknown key 'famly'; the nearest is 'family'", s.head = "famly: x\n");
  refused("family is missing", s.head = "model_types: [x]\nlayers: L\n");
  refused("model_types is missing", s.head = "family: x\nlayers: L\n");
  refused("model_types must be a list", s.head = "family: x\nmodel_types: []\nlayers: L\n");
  refused("layers is missing", s.head = "family: x\nmodel_types: [x]\n");
  refused("layers must be a text", s.head = "family: x\nmodel_types: [x]\nlayers: [L]\n");
  refused("an operator is missing", s.head = "family: x\nmodel_types: [x]\nlayers: L L\n");
  refused("prefixes must be a map of texts",
          s.head = "family: x\nmodel_types: [x]\nlayers: L\nprefixes: {L.: [a]}\n");
  refused("name m{l}{l}q has {l} more than once",
          s.head = "family: x\nmodel_types: [x]\nlayers: L\nprefixes: {L.: 'm{l}{l}'}\n");
}

static void refused_dims(void **state) {
  (void)state;
  refused("dims must be a map", s.dims = "");
  refused("dims must be a map", s.dims = "dims: [H]\n");
  refused("'not' cannot be the name of a dim", s.dims = "dims: {not: 1}\n");
  refused("'a-b' cannot be the name", s.dims = "dims: {a-b: 1}\n");
  refused("cycle: dim H needs H", s.dims = "dims: {H: H}\n");
  refused("cycle: dim H needs L, which does not stand before it", s.dims = "dims: {H: 2 * L, L: depth}\n");
  refused("cycle: dim L needs q", s.dims = "dims: {H: h, L: 1 ?? q, q: L}\n");
  refused("')' is missing", s.dims = "dims: {H: (a}\n");
  refused("H must be a text", s.dims = "dims: {H: {a: b}}\n");
}

static void refused_tensors(void **state) {
  (void)state;
  refused("tensors must be a list", s.tensors = "");
  refused("tensors must be a list", s.tensors = "tensors: []\n");
  refused("line 6: a map of name, ... is wanted here", s.tensors = "tensors: [embed]\n");
  refused("name is missing", s.tensors = "tensors: [{shape: [H]}]\n");
  refused("unknown key 'shap'; the nearest is 'shape'", s.tensors = "tensors: [{name: a, shap: [H]}]\n");
  refused("shape is missing", s.tensors = "tensors: [{name: a}]\n");
  refused("shape must be a list", s.tensors = "tensors: [{name: a, shape: H}]\n");
  refused("tensor a stands twice", s.tensors = "tensors: [{name: a, shape: [H]}, {name: a, shape: [H]}]\n");
  refused("'%' is not a letter", s.tensors = "tensors: [{name: 'a%s', shape: [H]}]\n");
  refused("'{' is not a letter", s.tensors = "tensors: [{name: 'a{e}', shape: [H]}]\n");
  refused("more than 4 dimensions", s.tensors = "tensors: [{name: a, shape: [H, H, H, H, H]}]\n");
  refused("more than 6 axes", s.tensors = "tensors: [{name: a, shape: [H*H*H*H, H*H*H]}]\n");
  refused("'Q' is not an axis", s.tensors = "tensors: [{name: a, shape: [Q]}]\n");
  refused("'g + q' is not an axis", s.tensors = "tensors: [{name: a, shape: [g + q]}]\n");
  refused("'' is not an axis", s.tensors = "tensors: [{name: a, shape: [g*]}]\n");
  refused("'0' is not an axis", s.tensors = "tensors: [{name: a, shape: [0]}]\n");
  refused("same_as and same_when go together",
          s.tensors = "tensors: [{name: a, shape: [H], same_when: t}]\n");
  refused("no tensor is named b; the nearest is a",
          s.tensors =
              "tensors: [{name: a, shape: [H]}, {name: c, shape: [H], same_as: b, same_when: t}]\n");
  refused("c is a copy of itself",
          s.tensors = "tensors: [{name: embed, shape: [H]}, {name: b, shape: [H], same_as: c, same_when: "
                      "t}, {name: c, shape: [H], same_as: b, same_when: t}]\n");
  refused("name must be a list of at least one text", s.tensors = "tensors: [{name: [], shape: [H]}]\n");
  refused("c is outside of layers, m.{l}.a is not",
          s.tensors =
              "tensors: [{name: L.a, shape: [H]}, {name: c, shape: [H], same_as: L.a, same_when: t}]\n");
}

#define RULES(text) s.engines = "engines: {vllm: [" text "]}\n"

static void refused_engines(void **state) {
  (void)state;
  refused("engines is missing", s.engines = "");
  refused("unknown key 'vlm'; the nearest is 'vllm'", s.engines = "engines: {vlm: []}\n");
  refused("vllm must be a list of rules", s.engines = "engines: {vllm: []}\n");
  refused("unknown key 'off'; the nearest is 'of'", RULES("{name: a, at: first, off: [embed]}"));
  refused("of is missing", RULES("{name: a, at: first}"));
  refused("no tensor is named embedd; the nearest is embed", RULES("{name: a, at: first, of: [embedd]}"));
  refused("no tensor is named m.{l}.w; the nearest is m.{l}.", RULES("{name: L.a, of: [L.w]}"));
  refused("a has no {l}; say at:", RULES("{name: a, of: [embed]}"));
  refused("at: 'frist' is none of its words; the nearest is 'first'",
          RULES("{name: a, at: frist, of: [embed]}"));
  refused("has {l}, which does not go with at: first", RULES("{name: L.a, at: first, of: [L.q]}"));
  refused("has no {l}, which does not go with at: layer", RULES("{name: a, at: layer, of: [embed]}"));
  refused("of m.{l}.a and embed, only one is in layers", RULES("{name: L.a, of: [embed]}"));
  refused("of a and m.{l}.q, only one is in layers", RULES("{name: a, at: every, of: [L.q]}"));
  refused("cut: 'row' is none of its words; the nearest is 'rows'",
          RULES("{name: a, at: first, of: [embed], cut: row}"));
  refused("pad: 'rows' is none of its words", RULES("{name: a, at: first, of: [embed], pad: rows}"));
  refused("spec: 'TE' is none of its words", RULES("{name: a, at: first, of: [embed], spec: TE}"));
  refused("over: tp says by what to cut, but nothing is cut",
          RULES("{name: a, at: first, of: [embed], over: tp}"));
  refused("a fused matrix is cut by rows, not by heads",
          RULES("{name: L.qk, of: [L.q, L.k], fuse: g, cut: heads}"));
  refused("fuse: q is not the first axis of m.{l}.q, which is g",
          RULES("{name: L.qk, of: [L.q, L.k], fuse: q, cut: rows}"));
  refused("a value is missing", RULES("{name: a, at: first, of: [embed], when: tied or}"));
  refused("stands twice in vllm (line 11) with the same at, when and spec",
          RULES("{name: a, at: first, of: [embed]}, {name: a, at: first, of: [head]}"));
  refused("vllm has no rule for m.{l}.q (",
          RULES("{name: a, at: first, of: [embed]}, {name: a, at: last, of: [head]}"));
  refused(
      "has more than 8 parts",
      RULES("{name: a, at: first, of: [embed, embed, embed, embed, embed, embed, embed, embed, embed]}"));
}

static void refused_parts(void **state) {
  (void)state;
  refused("parts a and b differ in more than their first dimension",
          s.tensors = "tensors: [{name: a, shape: [g, H]}, {name: b, shape: [g, q]}]\n",
          RULES("{name: x, at: first, of: [a, b]}"));
  refused("parts a and b differ in more",
          s.tensors = "tensors: [{name: a, shape: [g, H]}, {name: b, shape: [g]}]\n",
          RULES("{name: x, at: first, of: [a, b]}"));
  refused("cut: cols, but a has one dimension", s.tensors = "tensors: [{name: a, shape: [g]}]\n",
          RULES("{name: x, at: first, of: [a], cut: cols}"));
  refused(
      "megatron has no rule for a (small.yaml line 6) under spec local; its rules begin in small.yaml line",
      s.tensors = "tensors: [{name: a, shape: [g]}]\n",
      s.engines = "engines: {megatron: [{name: x, spec: te, at: first, of: [a]}]}\n");
  refused("spec: vllm has none, only megatron has", s.tensors = "tensors: [{name: a, shape: [g]}]\n",
          RULES("{name: x, spec: te, at: first, of: [a]}"));
}

/* ---- families/ --------------------------------------------------------------------------------- */

static void the_families(void **state) {
  (void)state;
  static const char *const folders[] = {NULL, TREADLE_SOURCE_DIR "/families"};
  static const char *const engines[] = {"vllm"}; /* Megatron and SGLang do not know all of them */
  for (size_t f = 0; f < TEST_COUNT(folders); f++) {
    treadle_arena arena = {0};
    treadle_family **families, *one;
    int32_t count;
    assert_ok(treadle_family_all(folders[f], &arena, &families, &count));
    assert_true(count >= 3);
    for (int32_t i = 0; i < count; i++)
      for (size_t e = 0; e < TEST_COUNT(engines); e++)
        assert_non_null(treadle_family_engine(families[i], engines[e]));
    assert_ok(treadle_family_find(folders[f], "qwen2", "config.json", &arena, &one));
    assert_string_equal(one->name, "qwen2");
    static const char *const commands[][3] = {
        {"lama", "config.json",
         "the nearest is 'llama'. A draft of one: treadle family new . -o lama.yaml"},
        {"lama", "/a/b/config.json", "treadle family new /a/b -o lama.yaml"},
        {"la ma", "a b/config.json", "treadle family new 'a b'"},
        {"lama", "a'b/config.json", "treadle family new DIR"},
        {"lama", "a/lama.json", "treadle family new DIR"},
        {"../lama", "/config.json", "treadle family new /"}};
    for (size_t i = 0; i < TEST_COUNT(commands); i++) {
      treadle_status status = treadle_family_find(folders[f], commands[i][0], commands[i][1], &arena, &one);
      assert_int_equal(status, TREADLE_REFUSED);
      const char *message = treadle_error_message();
      size_t length = strlen(message), wanted = strlen(commands[i][2]);
      if (length < wanted || strcmp(message + length - wanted, commands[i][2]) != 0)
        fail_msg("%s", message);
    }
    treadle_arena_release(&arena);
  }
}

/* A family is a short file that a person reads at once; what families share stands in blocks. Lines with more than 120
 * characters, and long conditions that stand twice instead of having a name, would be another way to be short. */
static void files_are_short(void **state) {
  (void)state;
  enum { LONGEST = 120, LONG_CONDITION = 40, CONDITIONS = 500 };
  static char conditions[CONDITIONS][200];
  int count = 0, all = 0;
  glob_t found = {0};
  assert_int_equal(glob(TREADLE_SOURCE_DIR "/families/*.yaml", 0, NULL, &found), 0);
  assert_int_equal(glob(TREADLE_SOURCE_DIR "/families/blocks/*.yaml", GLOB_APPEND, NULL, &found), 0);
  for (size_t i = 0; i < found.gl_pathc; i++) {
    FILE *file = fopen(found.gl_pathv[i], "r");
    char line[1000];
    int lines = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
      const char *begin = line + strspn(line, " "), *when = strstr(line, "when: ");
      lines += *begin != '#' && *begin != '\n';
      if (strlen(line) > LONGEST + 1)
        fail_msg("%s: a line is longer than %d: %s", found.gl_pathv[i], LONGEST, line);
      size_t length = when ? strcspn(when, ",}\n") : 0;
      if (length <= LONG_CONDITION + strlen("when: ") || count == CONDITIONS) continue;
      snprintf(conditions[count], sizeof conditions[0], "%.*s", (int)length, when);
      for (int k = 0; k < count; k++)
        if (strcmp(conditions[k], conditions[count]) == 0) fail_msg("stands twice: %s", conditions[k]);
      count++;
    }
    fclose(file);
    if (lines >= 120) fail_msg("%s has %d lines", found.gl_pathv[i], lines);
    all += lines;
  }
  print_message("%d lines in %zu files\n", all, found.gl_pathc);
  globfree(&found);
}

static void folders(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_family **families;
  int32_t count;
  const char *folder = test_folder();
  char text[4000];
  snprintf(text, sizeof text, "%s%s%s%s", good.head, good.dims, good.tensors, good.engines);
  assert_refused("no family (*.yaml) is in this folder",
                 treadle_family_all(folder, &arena, &families, &count));
  test_write(folder, "notes.txt", "not a family");
  test_write(folder, "b.yaml", text);
  assert_ok(treadle_family_all(folder, &arena, &families, &count));
  assert_int_equal(count, 1);
  test_write(folder, "a.yaml", text);
  assert_refused("b.yaml: model_type small is covered by",
                 treadle_family_all(folder, &arena, &families, &count));
  test_write(folder, "a.yaml", "family: x\n");
  assert_refused("a.yaml line 1: model_types is missing",
                 treadle_family_all(folder, &arena, &families, &count));
  test_remove(folder);
  assert_fails(TREADLE_SYSTEM, "cannot be read", treadle_family_all(folder, &arena, &families, &count));
  treadle_arena_release(&arena);
}

static treadle_status find_and_forget(const char *folder, const char *model_type) {
  treadle_arena arena = {0};
  treadle_family *family;
  treadle_status status = treadle_family_find(folder, model_type, "config.json", &arena, &family);
  treadle_arena_release(&arena);
  return status;
}

static void without_memory(void **state) {
  (void)state;
  const char *folder = test_folder();
  test_copy_family(folder, "qwen3");
  test_copy_family(folder, "deepseek_v3");
  TEST_EACH_ALLOCATION(find_and_forget(folder, "deepseek_v3"));
  test_remove(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(a_small_family),  cmocka_unit_test(refused_heads),
                                     cmocka_unit_test(refused_dims),    cmocka_unit_test(refused_tensors),
                                     cmocka_unit_test(refused_engines), cmocka_unit_test(refused_parts),
                                     cmocka_unit_test(the_families),    cmocka_unit_test(files_are_short),
                                     cmocka_unit_test(folders),         cmocka_unit_test(without_memory)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
