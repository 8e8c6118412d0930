/* Which modules an entry of modules_to_not_convert fits. The answers up to the first empty line are those of
 * should_convert_module() of transformers 5.24.0. */
#include "model/modules.h"
#include "test.h"

#define Q    "model.layers.1.self_attn.q_proj"
#define GATE "model.layers.11.mlp.gate_proj"

static const struct {
  const char *entry, *path;
  bool fits;
} rows[] = {
    {"model.layers.1", Q, true},
    {"model.layers.1", GATE, false},
    {"model.layers.11", GATE, true},
    {"mlp.gate", GATE, false},
    {"mlp.gate", "model.layers.3.mlp.gate", true},
    {"gate_proj", GATE, true},
    {"lm_head", "lm_head", true},
    {"lm_head$", "lm_head", true},
    {"model.layers.1$", Q, false},
    {"model.layers.*.self_attn", Q, true},
    {"model.layers.*.self_attn.q", Q, false},
    {"model\\.layers\\.[0-9]+\\.mlp", GATE, true},
    {"model\\.layers\\.\\d\\.self_attn", Q, true},
    {"model\\.layers\\.\\d\\.mlp", GATE, false},
    {"model.layers.(?:1|2).*", Q, true},
    {"model.layers.1{2}.mlp", GATE, true},
    {"model.layers.1{3,}.mlp", GATE, false},
    {"model.layers.1{,2}.mlp", GATE, true},
    {"model.layers.\\w+?.mlp.gate", GATE, false},
    {"model.layers.\\w+?.mlp.gate_proj", GATE, true},
    {"self_attn|model.layers.1", Q, true},
    {"self_attn|model.layers.1", GATE, false},
    {"model.layers.[!-9].self_attn", Q, true},
    {"model.layers.[^1].self_attn", Q, false},
    {"xodel.layers.1", Q, false},

    {"self_attn", Q, true}, /* words in the middle, as SGLang has it */
    {"elf_attn", Q, false},
    {"layers.1", Q, true},
    {"layers.1", GATE, false},
    {"model.layers.1.", Q, true}, /* a path, in which '.' is not another character */
    {"model.layers.1.", GATE, false},
    {"*mlp*", GATE, true},
    {"*.q_proj", Q, true},
    {"*.layers.?.*", Q, true},
    {"*.layers.?.*", GATE, false},
    {"re:.*mlp\\.(gate|up|gate_up|down)_proj.*", GATE, true},
    {"re:.*mlp\\.(gate|up|gate_up|down)_proj.*", Q, false},
};

static void fits(void **state) {
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_modules *modules = NULL;
    json_t *list = json_pack("[s]", rows[i].entry);
    assert_ok(treadle_modules_add(&modules, "modules", list));
    if (treadle_modules_have(modules, rows[i].path) != rows[i].fits)
      fail_msg("%s %s %s", rows[i].entry, rows[i].fits ? "does not fit" : "fits", rows[i].path);
    treadle_modules_destroy(modules);
    json_decref(list);
  }
  assert_false(treadle_modules_have(NULL, Q));
}

static void refused(void **state) {
  (void)state;
  static const char *const entries[] = {
      "",   "model.(", "a{1,101}", "(?=model)", "(?i)model",   "(a)\\1", "a*+",          "a\\Z",  "re:*mlp",
      "[a", "+a",      "a\\",      "[z-a]",     "[[:alpha:]]", "a)",     "(a{99}){99}b", "[\\-a]"};
  for (size_t i = 0; i < TEST_COUNT(entries); i++) {
    treadle_modules *modules = NULL;
    json_t *list = json_pack("[s]", entries[i]);
    treadle_status status = treadle_modules_add(&modules, "modules", list);
    if (status != TREADLE_REFUSED) fail_msg("%s: status %d", entries[i], status);
    treadle_modules_destroy(modules);
    json_decref(list);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(fits), cmocka_unit_test(refused)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
