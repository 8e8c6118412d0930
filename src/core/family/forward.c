#include "family/forward.h"

#include "family/assemble.h"
#include "family/expr.h"

#include <stdlib.h>
#include <string.h>

static const char *const role_texts[TREADLE_ROLES] = {
    "embed",       "final_norm",
    "head",        "score",
    "score_bias",  "attention_norm",
    "mlp_norm",    "q",
    "q_bias",      "k",
    "k_bias",      "v",
    "v_bias",      "o",
    "o_bias",      "q_norm",
    "k_norm",      "q_down",
    "q_down_norm", "q_up",
    "kv_down",     "kv_down_norm",
    "kv_up",       "gate",
    "gate_bias",   "up",
    "up_bias",     "down",
    "down_bias",   "router",
    "router_bias", "expert_gate",
    "expert_up",   "expert_down",
    "shared_gate", "shared_up",
    "shared_down", "shared_scale",
};

typedef enum fact_kind { WORD, EXPRESSION, NUMBER, CHOICE } fact_kind;

static const struct {
  const char *text;
  fact_kind kind;
  const char *words; /* of a word, in blanks */
} facts[TREADLE_FACTS] = {
    {"model", WORD, " decoder "},
    {"attention", WORD, " gqa mla "},
    {"heads", EXPRESSION, NULL},
    {"kv_heads", EXPRESSION, NULL},
    {"head_dim", EXPRESSION, NULL},
    {"nope_dim", EXPRESSION, NULL},
    {"rope_dim", EXPRESSION, NULL},
    {"value_dim", EXPRESSION, NULL},
    {"latent_dim", EXPRESSION, NULL},
    {"rotate", EXPRESSION, NULL},
    {"interleaved", EXPRESSION, NULL},
    {"eps", NUMBER, NULL},
    {"experts", EXPRESSION, NULL},
    {"top", EXPRESSION, NULL},
    {"routing", WORD, " softmax sigmoid "},
    {"renormalise", EXPRESSION, NULL},
    {"scale", NUMBER, NULL},
    {"groups", EXPRESSION, NULL},
    {"top_groups", EXPRESSION, NULL},
    {"group_score", WORD, " max top2 "},
    {"group_when", CHOICE, NULL},
};

const char *treadle_role_text(treadle_role role) { return role_texts[role]; }
const char *treadle_fact_text(treadle_fact fact) { return facts[fact].text; }

/* FIELD, or FIELD ?? 0.5. */
static bool is_number(const char *text) {
  size_t field = treadle_word_length(text);
  const char *rest = text + field + strspn(text + field, " ");
  char *end;
  if (!field || !*rest) return field > 0;
  if (strncmp(rest, "??", 2) != 0) return false;
  rest += 2 + strspn(rest + 2, " ");
  strtod(rest, &end);
  return end > rest && !*end;
}

static bool is_choice(const char *text) {
  size_t field = treadle_word_length(text);
  return field && text[field] == '.' && text[field + 1] &&
         treadle_word_length(text + field + 1) == strlen(text + field + 1);
}

static treadle_status read_fact(const treadle_family_reader *reader, const treadle_yaml *node,
                                treadle_fact fact, const char *text) {
  char word[66];
  treadle_status status = TREADLE_OK;
  switch (facts[fact].kind) {
  case WORD:
    snprintf(word, sizeof word, " %.63s ", text);
    if (!strstr(facts[fact].words, word))
      return treadle_family_fail(reader, node, "forward: %s is one of%s, not '%.64s'", facts[fact].text,
                                 facts[fact].words, text);
    break;
  case EXPRESSION: {
    const char *what = treadle_family_place(reader, node);
    if (!what) return treadle_family_no_memory();
    TRY(treadle_expr_check(what, text, NULL, NULL));
    break;
  }
  case NUMBER:
    if (!is_number(text))
      return treadle_family_fail(reader, node,
                                 "forward: %s is a field of config.json, or FIELD ?? NUMBER, not '%.64s'",
                                 facts[fact].text, text);
    break;
  case CHOICE:
    if (!is_choice(text))
      return treadle_family_fail(reader, node, "forward: %s is FIELD.WORD, not '%.64s'", facts[fact].text,
                                 text);
    break;
  }
out:
  return status;
}

/* The tensor of a role is one of the family's. */
static treadle_status read_role(treadle_family_reader *reader, const treadle_yaml *node, const char *text,
                                treadle_name *name_p) {
  int32_t pattern = -1;
  treadle_status status;
  TRY(treadle_family_expand(reader, node, text, name_p));
  for (int32_t i = 0; pattern < 0 && i < reader->family->pattern_count; i++)
    if (strcmp(reader->family->patterns[i].name, name_p->text) == 0) pattern = i;
  if (pattern < 0) *name_p = (treadle_name){0}; /* a form of the block that this family does not have */
out:
  return status;
}

static treadle_status read_key(treadle_family_reader *reader, const treadle_yaml *map, size_t i,
                               treadle_forward_section *section) {
  const treadle_yaml *node = map->items[i];
  treadle_nearest nearest = treadle_nearest_to(map->keys[i]);
  if (node->type != TREADLE_YAML_SCALAR || !*node->text)
    return treadle_family_fail(reader, node, "forward: %s must be a text", map->keys[i]);
  for (int role = 0; role < TREADLE_ROLES; role++) {
    if (strcmp(map->keys[i], role_texts[role]) == 0)
      return read_role(reader, node, node->text, &section->roles[role]);
    treadle_nearest_try(&nearest, role_texts[role]);
  }
  for (int fact = 0; fact < TREADLE_FACTS; fact++) {
    if (strcmp(map->keys[i], facts[fact].text) == 0) {
      section->facts[fact] = node->text;
      return read_fact(reader, node, (treadle_fact)fact, node->text);
    }
    treadle_nearest_try(&nearest, facts[fact].text);
  }
  return treadle_family_fail(reader, node, "forward: unknown key '%.64s'; the nearest is '%s'",
                             map->keys[i], nearest.best);
}

treadle_status treadle_family_read_forward(treadle_family_reader *reader, const treadle_yaml *root) {
  const treadle_yaml *map = treadle_yaml_get(root, "forward");
  treadle_status status = TREADLE_OK;
  if (!map) return TREADLE_OK;
  if (map->type != TREADLE_YAML_MAP) return treadle_family_fail(reader, map, "%s must be a map", "forward");
  treadle_forward_section *section = treadle_arena_alloc(reader->arena, sizeof *section);
  if (!section) return treadle_family_no_memory();
  section->file = map->file;
  section->line = map->line;
  for (size_t i = 0; i < map->count; i++) TRY(read_key(reader, map, i, section));
  if (section->facts[TREADLE_FACT_MODEL]) reader->family->forward = section;
out:
  return status;
}

/* ---- What it comes to -------------------------------------------------------------------------------- */

const char *treadle_family_not_generated(const treadle_family *family) {
  return family->forward ? NULL : "its file does not say what is computed (forward)";
}

/* By what the trainer refuses (src/engine/train/trainer.c), in its words. */
const char *treadle_family_not_trained(const treadle_family *family) {
  return treadle_family_not_generated(family);
}
