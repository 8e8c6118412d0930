/* Small family files for tests. */
#include "model/sketch.h"

#include "io/file.h"
#include "io/json.h"

enum { MAX_TEXT = 8000 };

const sketch sketch_experts = {
    .head = "family: small\nmodel_types: [small]\nconfig: inner\nlayers: L\nexperts: E\nmtp: extra ?? 0\n"
            "prefixes: {L.: 'm.{l}.', D.: 'd.{l}.'}\nmtp_prefixes: {L.: 'm.{l}.', D.: 'mtp.{m}.'}\n"
            "carried: [vision.]\nstored_prefixes: {m.: [model.m.]}\n",
    .dims = "dims: {H: hidden, L: depth, E: experts, n: heads, a: 3, b: 2, k: 5}\n",
    .tensors = "tensors:\n"
               "  - {name: embed, shape: [4*H, H]}\n"
               "  - {name: L.kv, shape: [n*k, H]}\n"
               "  - {name: [L.e.*.gate, L.e.*.up], shape: [b*n, H], when: l >= 1}\n"
               "  - {name: L.e.*.down, shape: [H, b*n], when: l >= 1}\n"
               "  - {name: L.stack, shape: [E, H], packed: true, dtype: fp32, buffer: true}\n"
               "  - {name: [L.s.gate, L.s.up], shape: [b*n, H]}\n"
               "  - {name: L.norm, shape: [H]}\n"
               "  - {name: L.proj, shape: [H, H], when: l >= L}\n"
               "  - {name: L.head, shape: [4*H, H], when: l >= L, same_as: embed, same_when: 'true'}\n",
    .views = "views:\n"
             "  - {name: L.uk, of: L.kv, take: {k: [0, a]}, shape: [n, k, H]}\n"
             "  - {name: L.uv, of: L.kv, take: {k: [a, b]}, shape: [n, H, k]}\n",
    .engines = "engines:\n"
               "  megatron:\n"
               "    - {name: embed, at: first, of: [embed], cut: rows, pad: vocab}\n"
               "    - {name: D.kv, of: [L.kv], cut: rows}\n"
               "    - {name: D.fc1.weight*, named: {stacked: D.fc1}, of: [L.e.*.gate, L.e.*.up], cut: "
               "rows, over: etp}\n"
               "    - {name: D.fc2.weight*, of: [L.e.*.down], cut: cols, over: etp}\n"
               "    - {name: D.stack, of: [L.stack], buffer: true}\n"
               "    - {name: [D.gate, D.up], of: [L.s.gate, L.s.up], cut: rows}\n"
               "    - {name: D.norm, of: [L.norm], add: -1}\n"
               "    - {name: D.proj, of: [L.proj]}\n"
               "    - {mtp: layers}\n"
               "  sglang:\n"
               "    - {name: embed, at: first, of: [embed]}\n"
               "    - {name: draft, at: draft, of: [embed]}\n"
               "    - {name: L.kv, of: [L.kv], cut: rows, over: attn_tp}\n"
               "    - {name: L.w_uk, of: [L.uk], cut: rows, over: attn_tp, derived: true, dtype: bf16}\n"
               "    - {name: L.w_uv, of: [L.uv], cut: rows, over: attn_tp, derived: true}\n"
               "    - {name: L.w13, of: [L.e.*.gate, L.e.*.up], also: [L.s.gate, L.s.up], cut: rows, over: "
               "moe_tp}\n"
               "    - {name: L.w2, of: [L.e.*.down], cut: cols, over: moe_tp}\n"
               "    - {name: L.stack, of: [L.stack], cut: first, over: moe_tp}\n"
               "    - {name: L.s, of: [L.s.gate, L.s.up], cut: rows, when: not shared_fused}\n"
               "    - {name: L.norm, of: [L.norm]}\n"
               "    - {name: L.proj, of: [L.proj]}\n",
    .tail =
        "packed:\n"
        "  - {name: L.e.gate_up, of: [L.e.*.gate, L.e.*.up]}\n"
        "traits: {sglang: {redundant: n > 1}}\n"
        "requires: {sglang: [{that: n % attn_tp == 0 and not (l in odd), else: 'tp must divide heads'}]}\n"
        "outer: {sglang: language.}\n"};

const char sketch_config[] =
    "{\"model_type\": \"small\", \"torch_dtype\": \"bfloat16\", \"inner\": {\"hidden\": 8, "
    "\"depth\": 2, \"experts\": 4, \"heads\": 4, \"extra\": 1, \"odd\": [7]}}";

static void write_sketch(const sketch *s, char *text) {
  int length =
      snprintf(text, MAX_TEXT, "%s%s%s%s%s%s", s->head, s->dims, s->tensors, s->views, s->engines, s->tail);
  assert_in_range(length, 1, MAX_TEXT - 1);
}

treadle_status sketch_read(const sketch *s, treadle_arena *arena, treadle_family **family_p) {
  char text[MAX_TEXT];
  const treadle_yaml *root;
  treadle_status status;
  write_sketch(s, text);
  TRY(treadle_yaml_parse("small.yaml", text, strlen(text), arena, &root));
  TRY(treadle_family_read("small.yaml", root, NULL, arena, family_p));
out:
  return status;
}

treadle_status sketch_open(const sketch *s, const char *config, treadle_model **model_p) {
  char text[MAX_TEXT], path[100];
  const char *folder = test_folder();
  const treadle_model_options options = {.struct_size = sizeof(treadle_model_options), .families = folder};
  json_t *json = json_loads(config, 0, NULL);
  treadle_status status;
  assert_non_null(json);
  write_sketch(s, text);
  snprintf(path, sizeof path, "%s/small.yaml", folder);
  TRY(treadle_file_write(path, text, strlen(text)));
  TRY(treadle_model_from_config("config", json, &options, model_p));
out:
  json_decref(json);
  test_remove(folder);
  return status;
}
