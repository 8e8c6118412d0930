/* src/core/family/assemble.c and what it calls: families made of others, of blocks and of changes; and one refusal for each rule,
 * with file and line. */
#include "test.h"

#include "family/family.h"

#include <string.h>

static const char *folder;

static int make_folder(void **state) {
  (void)state;
  folder = test_folder();
  char command[300];
  snprintf(command, sizeof command, "mkdir '%s/blocks'", folder);
  return system(command);
}

static int remove_folder(void **state) {
  (void)state;
  test_remove(folder);
  return 0;
}

/* Reads a family that extends what is built in. */
static treadle_status read_x(treadle_arena *arena, const char *text, treadle_family **family_p) {
  char whole[4000];
  snprintf(whole, sizeof whole, "family: x\nmodel_types: [x]\n%s", text);
  test_write(folder, "x.yaml", whole);
  return treadle_family_find(folder, "x", "config.json", arena, family_p);
}

static void refused(void **state) {
  (void)state;
  static const struct {
    const char *text, *message;
  } rows[] = {
      /* extends */
      {"extends: x\n", "x.yaml line 3: extends: x goes in a circle"},
      {"extends: lama\n", "x.yaml line 3: there is no family file 'lama'; the nearest is 'llama'"},
      {"extends: ../llama\n", "x.yaml line 3: there is no family file '../llama'"},
      {"extends: [llama]\n", "x.yaml line 3: extends must be a text"},
      {"extends: llama\nto_say: all\n", "x.yaml line 4: to_say must be a list of at least one text"},
      {"extends: llama\nto_say: [a, {b: c}]\n", "x.yaml line 4: to_say must be a list"},
      /* tensors without a rule: the line in this file, that of the tensor, that of the rules */
      {"extends: llama\nblocks:\n  - fills: norms\n    tensors: [{name: L.extra, shape: [H]}]\n",
       "x.yaml line 6: megatron has no rule for model.layers.{l}.extra ("},
      {"extends: llama\nchanges: [{in: vllm, name: model.norm.weight, drop: true}]\n",
       "x.yaml line 3: vllm has no rule for model.norm.weight (families/blocks/decoder.yaml line "},
      /* blocks */
      {"blocks: gqa\n", "x.yaml line 3: blocks must be a list"},
      {"blocks: [gqb]\n", "x.yaml line 3: there is no block 'gqb'; the nearest is 'gqa'"},
      {"blocks: [[gqa]]\n", "x.yaml line 3: blocks are names"},
      {"blocks: [decoder, {block: gqa, biassed: true}]\n",
       "x.yaml line 3: the block has no option 'biassed'; the nearest is 'bias'"},
      {"blocks: [gqa]\n",
       "families/blocks/gqa.yaml line 16: tensors has no {place: attention} for this line"},
      {"extends: llama\nblocks: [{fills: roof, tensors: [{name: a, shape: [H]}]}]\n",
       "x.yaml line 4: tensors has no {place: roof} for this line"},
      {"extends: llama\nblocks: [{block: mla, instead: gqb}]\n",
       "x.yaml line 4: instead: gqb, which is not a block of the family that is extended"},
      {"extends: llama\nblocks: [{fills: mlp, tensors: [{name: $moe, shape: [H]}]}]\n",
       "x.yaml line 4: the block has no option 'moe'"},
      {"extends: llama\nblocks: [{fills: mlp, options: {a: true}, tensors: [{if: b, name: c, shape: "
       "[H]}]}]\n",
       "the block has no option 'b'; the nearest is 'a'"},
      {"extends: llama\nblocks: [{fills: mlp, fill: mlp}]\n", "x.yaml line 4: unknown key 'fill'"},
      /* engines that are others' */
      {"extends: llama\nengines:\n  sglang: {as: vlm}\n",
       "x.yaml line 5: as: vlm has no rules of its own here"},
      {"extends: llama\nengines:\n  sglang: {as: vllm, over: tp}\n",
       "x.yaml line 5: over must be a map of texts, from and to"},
      {"extends: llama\nengines:\n  sglang: {as: vllm, mesh: tp}\n", "x.yaml line 5: unknown key 'mesh'"},
      /* changes */
      {"extends: llama\nchanges: [{in: vllm, name: L.sinks, drop: true}]\n",
       "x.yaml line 4: nothing to change: vllm has no line L.sinks"},
      {"extends: llama\nchanges: [{in: vlm, name: L.sinks, drop: true}]\n",
       "x.yaml line 4: in: there is no section 'vlm'"},
      {"extends: llama\nchanges: [{name: lm_head.weight, drop: true}]\n", "x.yaml line 4: in is missing"},
      {"extends: llama\nchanges: [{in: vllm, drop: true}]\n", "x.yaml line 4: name is missing"},
      {"extends: llama\nchanges: [{in: vllm, name: lm_head.weight}]\n",
       "x.yaml line 4: the change of lm_head.weight says nothing to change"},
      {"extends: llama\nchanges: [{in: vllm, name: lm_head.weight, unset: [over]}]\n",
       "x.yaml line 4: unset: the line has no over"},
      {"extends: llama\nchanges: [{in: vllm, name: lm_head.weight, ahead_of: model.nrm.weight}]\n",
       "x.yaml line 4: ahead_of: there is no other line model.nrm.weight"},
      {"extends: llama\nchanges: [{in: vllm, name: lm_head.weight, sets: {over: tp}}]\n",
       "x.yaml line 4: unknown key 'sets'; the nearest is 'set'"},
      {"extends: llama\nchanges: [{in: tensors, name: lm_head.weight, drop: true}]\n",
       "no tensor is named lm_head.weight"},
      /* renamed */
      {"extends: llama\nrenamed: [lm_head.weight]\n", "x.yaml line 4: renamed must be a map of names"},
      {"extends: llama\nrenamed: {lm_head.weight: \"\"}\n",
       "x.yaml line 4: renamed must be a map of names"},
      {"extends: llama\nrenamed: {head.weight: b}\n",
       "x.yaml line 4: renamed: no tensor is named head.weight"},
      {"extends: llama\nrenamed: {lm_head.weight: model.norm.weight}\n",
       "tensor model.norm.weight stands twice"},
      /* conditions */
      {"extends: llama\nconditions: {early: l < 2}\n", "x.yaml line 4: condition early is used nowhere"},
      {"extends: llama\nconditions: {never: l < 0}\n",
       "x.yaml line 4: condition never is never true: l < 0"},
      {"extends: llama\nconditions:\n  early: l < 2\n  never: early and l > 4 and tp > 1\n",
       "x.yaml line 6: condition never is never true: (l < 2) and l > 4 and tp > 1"},
      {"extends: llama\nconditions: {H: l < 2}\n", "x.yaml line 4: condition H has the name of a dim"},
      {"extends: llama\nconditions: {a-b: l < 2}\n",
       "x.yaml line 4: 'a-b' cannot be the name of a condition"},
      {"extends: llama\nconditions: {early: l <}\n", "x.yaml line 4: l <: a value is missing at the end"},
      {"extends: llama\ndims: {attn_tp: 2}\n",
       "x.yaml line 4: 'attn_tp' cannot be the name of a dim: it is one of layouts"},
      {"extends: llama\nconditions: [early]\n",
       "x.yaml line 4: conditions must be a map of names to conditions"},
  };
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_arena arena = {0};
    treadle_family *family;
    assert_refused(rows[i].message, read_x(&arena, rows[i].text, &family));
    treadle_arena_release(&arena);
  }
}

/* Tensors by other names: what speaks of them follows, what engines call theirs does not. */
static void renamed(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_family *family;
  assert_ok(read_x(&arena,
                   "extends: llama\nprefixes: {L.: \"h.{l}.\"}\nrenamed: {model.embed_tokens.weight: wte,\n"
                   "  model.norm.weight: lm_head.weight, lm_head.weight: model.norm.weight,\n"
                   "  L.mlp.up_proj.weight: L.up, L.self_attn.q_proj.weight: L.q}\n",
                   &family));
  const char *wanted[] = {"wte", "h.{l}.q", "h.{l}.up", "lm_head.weight", "model.norm.weight"};
  int found = 0;
  for (int32_t k = 0; k < family->pattern_count; k++)
    for (size_t w = 0; w < TEST_COUNT(wanted); w++)
      found += strcmp(family->patterns[k].name, wanted[w]) == 0;
  assert_int_equal(found, TEST_COUNT(wanted));
  const treadle_engine_rules *vllm = treadle_family_engine(family, "vllm");
  const treadle_rule *rule = &vllm->rules[0];
  while (strcmp(rule->name, "model.norm.weight") != 0) rule++;
  assert_string_equal(family->patterns[rule->parts[0].pattern].name, "lm_head.weight");
  for (rule = vllm->rules; !strstr(rule->name, "gate_up_proj.weight");) rule++;
  assert_string_equal(family->patterns[rule->parts[1].pattern].name, "h.{l}.up");
  for (int32_t k = 0; k < family->pattern_count; k++)
    if (strcmp(family->patterns[k].name, "model.norm.weight") == 0)
      assert_string_equal(family->patterns[family->patterns[k].same_as].name, "wte");
  treadle_arena_release(&arena);
}

/* A condition that grows as it is written out. */
static void long_conditions(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_family *family;
  char text[2000] = "extends: llama\nconditions:\n  c0: l > 1 and l > 2 and l > 3\n";
  for (int i = 1; i < 20; i++)
    snprintf(text + strlen(text), sizeof text - strlen(text), "  c%d: c%d or c%d\n", i, i - 1, i - 1);
  assert_refused("written out, the condition is longer than 4000 characters",
                 read_x(&arena, text, &family));
  treadle_arena_release(&arena);
}

static void circles(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_family *family;
  test_write(folder, "y.yaml", "family: y\nmodel_types: [y]\nextends: x\n");
  assert_refused("x.yaml line 3: extends: y goes in a circle", read_x(&arena, "extends: y\n", &family));
  treadle_arena_release(&arena);
  char path[300];
  snprintf(path, sizeof path, "%s/y.yaml", folder);
  assert_int_equal(remove(path), 0);
}

static const treadle_rule *find_rule(const treadle_family *family, const char *engine, const char *name) {
  const treadle_engine_rules *rules = treadle_family_engine(family, engine);
  for (int32_t i = 0; rules && i < rules->count; i++)
    if (rules->rules[i].name && strcmp(rules->rules[i].name, name) == 0) return &rules->rules[i];
  return NULL;
}

/* What comes of a family that extends another, with a block of the folder in the place of one that is built in. */
static void put_together(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_family *family;
  test_write(
      folder, "blocks/mlp.yaml",
      "block: mlp\nfills: mlp\noptions: {width: 4, where: true, bias: false}\ndims: {I: $width}\ntensors:\n"
      "  - {name: L.wide.weight, shape: [I, H], when: $where}\n"
      "  - {if: bias, name: L.wide.bias, shape: [I]}\nengines:\n"
      "  megatron: [{name: D.wide.weight, of: [L.wide.weight], cut: rows}]\n"
      "  vllm: [{name: W.wide.weight, of: [L.wide.weight], cut: rows}]\n"
      "  sglang: {as: vllm, over: {tp: dense_tp}, names: {W.: S.sg_}}\n");
  assert_ok(read_x(
      &arena,
      "extends: llama\nblocks:\n  - {block: mlp, bias: false, width: 6, where: early}\n"
      "conditions: {early: l < 2, late: not early}\nengines: {megatron: none}\nrequires: {sglang: []}\n"
      "changes:\n"
      "  - {in: [vllm, sglang], name: model.norm.weight, ahead_of: lm_head.weight}\n"
      "  - {in: vllm, name: lm_head.weight, set: {at: every, when: late}, unset: [pad]}\n"
      "  - {in: sglang, name: lm_head.weight, before: [{name: twice.weight, at: every,\n"
      "     of: [model.norm.weight]}]}\n",
      &family));
  assert_null(treadle_family_engine(family, "megatron"));
  const treadle_rule *rule = find_rule(family, "vllm", "lm_head.weight");
  assert_int_equal(rule->at, TREADLE_AT_EVERY);
  assert_string_equal(rule->when, "not (l < 2)");
  assert_false(rule->pad_vocab);
  assert_non_null(strstr(rule->file, "families/blocks/decoder.yaml"));
  assert_non_null(find_rule(family, "sglang", "twice.weight"));
  assert_string_equal(find_rule(family, "vllm", "model.layers.{l}.wide.weight")->over, "tp");
  rule = find_rule(family, "sglang", "model.layers.{l}.sg_wide.weight");
  assert_non_null(rule);
  assert_string_equal(rule->over, "dense_tp");
  for (int32_t i = 0; i < family->pattern_count; i++) {
    assert_null(strstr(family->patterns[i].name, "wide.bias"));
    assert_null(strstr(family->patterns[i].name, "up_proj"));
    if (strstr(family->patterns[i].name, "wide.weight"))
      assert_string_equal(family->patterns[i].when, "l < 2");
  }
  treadle_arena_release(&arena);
  char path[300];
  snprintf(path, sizeof path, "%s/blocks/mlp.yaml", folder);
  assert_int_equal(remove(path), 0);
}

/* What is to be said stays so in files that extend an unfinished one; an empty list says nothing. */
static void unfinished(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_family *family;
  assert_ok(read_x(&arena, "extends: llama\nto_say: []\n", &family));
  assert_int_equal(family->to_say_count, 0);
  test_write(folder, "draft.yaml",
             "family: draft\nmodel_types: [draft]\nextends: llama\nto_say:\n  - is it cut?\n");
  assert_ok(read_x(&arena, "extends: draft\nto_say: [where is it?]\n", &family));
  assert_int_equal(family->to_say_count, 2);
  assert_non_null(strstr(family->to_say[0], "draft.yaml line 5: is it cut?"));
  assert_non_null(strstr(family->to_say[1], "x.yaml line 4: where is it?"));
  treadle_arena_release(&arena);
  char path[300];
  snprintf(path, sizeof path, "%s/draft.yaml", folder);
  assert_int_equal(remove(path), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(refused),      cmocka_unit_test(long_conditions),
                                     cmocka_unit_test(renamed),      cmocka_unit_test(circles),
                                     cmocka_unit_test(put_together), cmocka_unit_test(unfinished)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
