/* src/core/family/rules.c, family/traits.c and what family/read.c reads of experts, MTP layers and files: each key,
 * and one refusal for each rule of docs/families.md. */
#include "layout/layout.h"
#include "model/sketch.h"

static void rules_are_read(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_family *family;
  assert_ok(sketch_read(&sketch_experts, &arena, &family));
  const treadle_engine_rules *megatron = treadle_family_engine(family, "megatron");
  const treadle_rule *rules = megatron->rules;
  assert_int_equal(megatron->count, 10); /* a list of names is a rule each */
  assert_true(rules[2].experts && rules[2].full_name.by_expert);
  assert_int_equal(rules[2].others, 1);
  assert_string_equal(rules[2].other[0].number, "stacked");
  assert_string_equal(rules[2].other[0].name.text, "d.{l}.fc1");
  assert_false(rules[2].other[0].name.by_expert);
  assert_string_equal(rules[2].other[0].name.mtp, "mtp.{m}.fc1");
  assert_true(rules[4].buffer);
  assert_string_equal(rules[5].name, "d.{l}.gate");
  assert_string_equal(rules[6].name, "d.{l}.up");
  assert_int_equal(rules[6].nparts, 1);
  assert_int_equal(rules[7].add, -1);
  assert_int_equal(rules[9].at, TREADLE_AT_MTP_LAYERS);

  const treadle_engine_rules *sglang = treadle_family_engine(family, "sglang");
  assert_int_equal(sglang->rules[1].at, TREADLE_AT_DRAFT);
  assert_int_equal(sglang->rules[5].nparts, 4);
  assert_int_equal(sglang->rules[5].also, 2);
  assert_int_equal(sglang->rules[7].cut, TREADLE_CUT_FIRST);
  assert_string_equal(sglang->outer, "language.");
  assert_null(megatron->outer);
  assert_int_equal(sglang->trait_count, 1);
  assert_string_equal(sglang->traits[0].name, "redundant");
  assert_string_equal(sglang->traits[0].value, "n > 1");
  assert_int_equal(sglang->require_count, 1);
  assert_string_equal(sglang->requirements[0].otherwise, "tp must divide heads");
  treadle_arena_release(&arena);
}

static void heads_are_read(void **state) {
  (void)state;
  treadle_arena arena = {0};
  treadle_family *family;
  assert_ok(sketch_read(&sketch_experts, &arena, &family));
  assert_string_equal(family->config, "inner");
  assert_string_equal(family->experts, "E");
  assert_string_equal(family->mtp, "extra ?? 0");
  assert_int_equal(family->carried_count, 1);
  assert_string_equal(family->carried[0], "vision.");
  assert_int_equal(family->stored_prefix_count, 1);
  assert_string_equal(family->stored_prefixes[0], "m.");
  assert_string_equal(family->stored_instead[0], "model.m.");
  assert_int_equal(family->packed.count, 1);
  assert_string_equal(family->packed.rules[0].name, "m.{l}.e.gate_up");
  assert_int_equal(family->packed.rules[0].nparts, 2);
  const treadle_pattern *up = &family->patterns[3], *stack = &family->patterns[5],
                        *head = &family->patterns[10];
  assert_string_equal(up->name, "m.{l}.e.*.up");
  assert_true(up->experts && !up->packed && up->full_name.by_expert);
  assert_int_equal(up->ndim, 3);
  assert_string_equal(up->axis_text[0], "E");
  assert_true(stack->experts && stack->packed && stack->buffer);
  assert_int_equal(stack->dtype, TREADLE_FP32);
  assert_int_equal(head->same_as, 0);
  treadle_arena_release(&arena);
}

/* Names with layer, expert and MTP numbers. */
static void names_are_formatted(void **state) {
  (void)state;
  const treadle_name name = {.text = "d.{l}.w*", .mtp = "mtp.{m}.w*", .in_layer = true, .by_expert = true};
  char text[40];
  assert_int_equal(treadle_name_format(&name, 7, 20, 3, 12, text, sizeof text), 7);
  assert_string_equal(text, "d.3.w12");
  assert_int_equal(treadle_name_format(&name, 7, 20, 3, -1, text, sizeof text), 6);
  assert_string_equal(text, "d.3.w*");
  treadle_name_format(&name, 21, 20, 21, 5, text, sizeof text);
  assert_string_equal(text, "mtp.1.w5");
  assert_int_equal(treadle_name_format(&name, 7, 20, 3, 12, text, 5), 7); /* cut, as snprintf does */
  assert_string_equal(text, "d.3.");
}

#define TENSORS(text) s.tensors = "tensors: [{name: embed, shape: [H]}, " text "]\n"
#define RULES(text)   s.engines = "engines: {sglang: [" text "]}\n"

static void refused_tensors(void **state) {
  (void)state;
  sketch_refused("is of experts, and the file does not say experts: DIM",
                 s.head = "family: x\nmodel_types: [x]\nlayers: L\n", TENSORS("{name: a.*.b, shape: [H]}"));
  sketch_refused("'X' is not an axis", s.head = "family: x\nmodel_types: [x]\nlayers: L\nexperts: X\n");
  sketch_refused("name a.*.* has '*' more than once", TENSORS("{name: a.*.*, shape: [H]}"));
  sketch_refused("is packed and yet by expert", TENSORS("{name: a.*, shape: [E, H], packed: true}"));
  sketch_refused("is packed, so its first dimension must be E",
                 TENSORS("{name: a, shape: [H, E], packed: true}"));
  sketch_refused("is packed, so its first dimension must be E",
                 TENSORS("{name: a, shape: [E*H], packed: true}"));
  sketch_refused("packed: 'yes' is neither true nor false",
                 TENSORS("{name: a, shape: [E, H], packed: 'yes'}"));
  sketch_refused("buffer: '1' is neither true nor false", TENSORS("{name: a, shape: [H], buffer: 1}"));
  sketch_refused("dtype: int8 is none of", TENSORS("{name: a, shape: [H], dtype: int8}"));
  sketch_refused("a.* has more than 3 dimensions", TENSORS("{name: a.*, shape: [H, H, H, H]}"));
  sketch_refused("more than 6 axes", TENSORS("{name: a.*, shape: [H*H*H, H*H*H]}"));
  sketch_refused("name must be a list of at least one text", TENSORS("{name: [], shape: [H]}"));
  sketch_refused("tensor a stands twice", TENSORS("{name: [a, a], shape: [H]}"));
  sketch_refused("a value is missing", TENSORS("{name: a, shape: [H], when: 2 %}"));
  sketch_refused("in", TENSORS("{name: a, shape: [H], when: l in 3}"));
}

static void refused_heads(void **state) {
  (void)state;
#define HEAD(text) s.head = "family: x\nmodel_types: [x]\nlayers: L\nexperts: E\n" text
  sketch_refused("mtp_prefixes must be a map of texts", HEAD("mtp_prefixes: [L.]\n"));
  sketch_refused("have not the same marks",
                 HEAD("prefixes: {L.: 'm.{l}.'}\nmtp_prefixes: {embed: 'e.{m}'}\n"));
  sketch_refused("'{' is not a letter", HEAD("prefixes: {L.: 'm.{m}.'}\n"));
  sketch_refused("carried must be a list", HEAD("carried: vision.\n"));
  sketch_refused("stored_prefixes must be a map of lists", HEAD("stored_prefixes: [m.]\n"));
  sketch_refused("m. must be a list of at least one text", HEAD("stored_prefixes: {m.: model.}\n"));
  sketch_refused("config must be a text", HEAD("config: [a]\n"));
  sketch_refused("an operator is missing", HEAD("mtp: 1 1\n"));
}

static void refused_rules(void **state) {
  (void)state;
  sketch_refused("m.{l}.x* has '*', but its parts are not of experts", RULES("{name: L.x*, of: [L.kv]}"));
  sketch_refused("m.{l}.x and m.{l}.norm: only one of them is of experts",
                 RULES("{name: L.x, of: [L.stack, L.norm]}"));
  sketch_refused("also: m.{l}.x must stack experts, and needs 2 parts for one more, not 1",
                 RULES("{name: L.x, of: [L.e.*.gate, L.e.*.up], also: [L.s.gate]}"));
  sketch_refused("also: m.{l}.x* must stack", RULES("{name: L.x*, of: [L.e.*.gate], also: [L.s.gate]}"));
  sketch_refused("also: m.{l}.x must stack", RULES("{name: L.x, of: [L.s.gate], also: [L.s.up]}"));
  sketch_refused("only one of them is of experts",
                 RULES("{name: L.x, of: [L.e.*.gate], also: [L.e.*.up]}"));
  sketch_refused("cut: first needs a stack of experts, and m.{l}.x* has '*'",
                 RULES("{name: L.x*, of: [L.e.*.gate], cut: first, over: moe_tp}"));
  sketch_refused(
      "m.{l}.y* has '*', which needs parts of experts, without also or cut: first",
      RULES("{name: L.x, named: {old_names: L.y*}, of: [L.e.*.gate], cut: first, over: moe_tp}"));
  sketch_refused("m.{l}.y* has '*', which needs parts of experts",
                 RULES("{name: L.x, named: {old_names: L.y*}, of: [L.norm]}"));
  sketch_refused("of m.{l}.x and y, only one is in layers",
                 RULES("{name: L.x, named: {old_names: y}, of: [L.norm]}"));
  sketch_refused("named must be a map of at most 3 names", RULES("{name: L.x, named: [y], of: [L.norm]}"));
  sketch_refused("named must be a map of at most 3 names",
                 RULES("{name: L.x, named: {a: L.a, b: L.b, c: L.c, d: L.d}, of: [L.norm]}"));
  sketch_refused("2 names need as many parts, one each", RULES("{name: [L.x, L.y], of: [L.norm]}"));
  sketch_refused("and no other names", RULES("{name: [L.x], named: {old_names: L.y}, of: [L.norm]}"));
  sketch_refused("name must be a list of at least one text", RULES("{name: [], of: [L.norm]}"));
  sketch_refused("add: '2' is none of its words", RULES("{name: L.x, of: [L.norm], add: 2}"));
  sketch_refused("derived: 'on' is neither true nor false",
                 RULES("{name: L.x, of: [L.norm], derived: 'on'}"));
  sketch_refused("buffer: 'on' is neither", RULES("{name: L.x, of: [L.norm], buffer: 'on'}"));
  sketch_refused("dtype: int8 is none of", RULES("{name: L.x, of: [L.norm], dtype: int8}"));
  sketch_refused("pad: m.{l}.x has more than one matrix",
                 RULES("{name: L.x, of: [L.s.gate, L.s.up], cut: rows, pad: vocab}"));
  sketch_refused("pad of m.{l}.x goes with cut: rows, or with none",
                 RULES("{name: L.x, of: [L.s.gate], cut: cols, pad: vocab}"));
  sketch_refused("differ in more than their first dimension", RULES("{name: L.x, of: [L.uk, L.uv]}"));
  sketch_refused("cut: cols, but m.{l}.stack has one dimension",
                 RULES("{name: L.x, of: [L.stack], cut: cols}"));
  sketch_refused("fuse: b is not the first axis of m.{l}.kv, which is n",
                 RULES("{name: L.x, of: [L.uk], cut: rows, fuse: b}"));
  sketch_refused("mtp: 'norm' is none of its words; the nearest is 'layers'", RULES("{mtp: norm}"));
  sketch_refused("unknown key 'at'", RULES("{mtp: layers, at: first}"));
  sketch_refused("at: 'drafts' is none of its words; the nearest is 'draft'",
                 RULES("{name: x, at: drafts, of: [embed]}"));
  sketch_refused("sglang has no rule for m.{l}.kv", RULES("{name: embed, at: first, of: [embed]}"));
}

static void refused_tails(void **state) {
  (void)state;
  sketch_refused("packed must be a list of rules", s.tail = "packed: {}\n");
  sketch_refused("unknown key 'cut'", s.tail = "packed: [{name: L.x, of: [L.e.*.up], cut: rows}]\n");
  sketch_refused("unknown key 'mtp'", s.tail = "packed: [{mtp: layers}]\n");
  sketch_refused("no tensor is named y", s.tail = "packed: [{name: L.x, of: [y]}]\n");
  sketch_refused("traits must be a map of engines", s.tail = "traits: [sglang]\n");
  sketch_refused("there is no engine section 'vllm'", s.tail = "traits: {vllm: {redundant: 1}}\n");
  sketch_refused("unknown key 'redundent'; the nearest is 'redundant'",
                 s.tail = "traits: {sglang: {redundent: 1}}\n");
  sketch_refused("a map of redundant, ... is wanted", s.tail = "traits: {sglang: [redundant]}\n");
  sketch_refused("an operator is missing", s.tail = "traits: {sglang: {redundant: 1 1}}\n");
  sketch_refused("requires must be a map of engines", s.tail = "requires: [sglang]\n");
  sketch_refused("there is no engine section 'hf'", s.tail = "requires: {hf: []}\n");
  sketch_refused("requires: sglang must be a list", s.tail = "requires: {sglang: {that: 1, else: x}}\n");
  sketch_refused("that is missing", s.tail = "requires: {sglang: [{else: x}]}\n");
  sketch_refused("else is missing", s.tail = "requires: {sglang: [{that: 1}]}\n");
  sketch_refused("unknown key 'thta'; the nearest is 'that'",
                 s.tail = "requires: {sglang: [{thta: 1, else: x}]}\n");
  sketch_refused("requires: model must be a list", s.tail = "requires: {model: {that: 1, else: x}}\n");
  sketch_refused("else is missing", s.tail = "requires: {model: [{that: 1}]}\n");
  sketch_refused("outer must be a map of engines", s.tail = "outer: [sglang]\n");
  sketch_refused("there is no engine section 'vllm'", s.tail = "outer: {vllm: x.}\n");
  sketch_refused("sglang must be a text", s.tail = "outer: {sglang: [x.]}\n");
}

/* ---- Models of the family ---- */

static treadle_model *open_with(const char *change, const char *instead) {
  char config[400];
  treadle_model *model;
  const char *at = change ? strstr(sketch_config, change) : NULL;
  assert_true(!change || at);
  snprintf(config, sizeof config, "%.*s%s%s", change ? (int)(at - sketch_config) : 0, sketch_config,
           change ? instead : sketch_config, change ? at + strlen(change) : "");
  if (sketch_open(&sketch_experts, config, &model) == TREADLE_OK) return model;
  return NULL;
}

static void models(void **state) {
  (void)state;
  treadle_model *model = open_with(NULL, NULL);
  treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
  assert_non_null(model);
  assert_int_equal(model->experts, 4);
  assert_int_equal(model->mtp_layers, 1);
  /* 3 kv, 3 * 2 layers of experts, 3 of each of stack, s.gate, s.up and norm, a proj, the embedding */
  assert_int_equal(model->tensor_count, 1 + 3 + 2 * 3 + 3 * 4 + 1);
  assert_int_equal(model->tied_count, 1);
  assert_int_equal(treadle_model_tensor_count(model), model->entry_count + 1);
  int32_t entry = (int32_t)treadle_hash_map_get(&model->by_name, "m.1.e.3.up", -1);
  assert_true(entry >= 0);
  assert_ok(treadle_model_tensor(model, entry, &info));
  assert_string_equal(info.name, "m.1.e.3.up");
  assert_int_equal(info.ndim, 2);
  assert_int_equal(info.layer, 1);
  assert_int_equal(info.elems, 64);
  const treadle_tensor *tensor = &model->tensors[model->entries[entry].tensor];
  assert_int_equal(tensor->ndim, 3);
  assert_int_equal(tensor->elems, 256);
  assert_int_equal(treadle_hash_map_get(&model->by_name, "m.0.e.0.up", -1), -1);
  assert_int_equal(treadle_model_find(model, 3, 0), -1);
  assert_int_equal(treadle_hash_map_get(&model->by_name, "m.2.head", -1), 0);
  treadle_model_close(model);
  model = open_with("\"extra\": 1", "\"extra\": 0");
  assert_int_equal(model->tied_count, 0);
  treadle_model_close(model);
  assert_null(open_with("\"experts\": 4", "\"experts\": 2097152"));
  assert_non_null(
      strstr(treadle_error_message(), "E is 2097152, not a number of experts from 0 to 1048576"));
  assert_null(open_with("\"experts\": 4", "\"experts\": 0"));
  assert_non_null(strstr(treadle_error_message(), "E = experts is 0"));
  assert_null(open_with("\"extra\": 1", "\"extra\": 100001"));
  assert_non_null(strstr(treadle_error_message(), "not a number of MTP layers"));
}

static treadle_status make(treadle_model *model, const char *text, int64_t ranks,
                           treadle_layout **layout_p) {
  return treadle_layout_create(model, text, ranks, NULL, layout_p);
}

static void facts_of_engines(void **state) {
  (void)state;
  treadle_model *model = open_with(NULL, NULL);
  treadle_layout *layout;
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  assert_refused("tp must divide heads", make(model, "sglang:tp=8", 8, &layout));
  assert_ok(make(model, "sglang:tp=2", 2, &layout));
  assert_ok(treadle_layout_storage(layout, 0, 0, &info));
  assert_string_equal(info.name, "language.embed");
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  model = open_with("\"odd\": [7]", "\"odd\": [1]");
  assert_refused("tp must divide heads", make(model, "sglang:tp=2", 2, &layout));
  treadle_model_close(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(rules_are_read),      cmocka_unit_test(heads_are_read),
      cmocka_unit_test(names_are_formatted), cmocka_unit_test(refused_heads),
      cmocka_unit_test(refused_tensors),     cmocka_unit_test(refused_rules),
      cmocka_unit_test(refused_tails),       cmocka_unit_test(models),
      cmocka_unit_test(facts_of_engines)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
