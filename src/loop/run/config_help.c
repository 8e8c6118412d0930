/* The table of keys as text in columns, and as JSON. */
#include "run/config.h"

#include "base/argument.h"
#include "base/real.h"
#include "run/others.h"
#include "treadle_loop.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 5 };

static bool is_same(const char *ours, const char *theirs) {
  double a, b;
  bool p, q;
  if (!ours) return false;
  if (treadle_yaml_truth(ours, &p) && treadle_yaml_truth(theirs, &q)) return p == q;
  return strcmp(ours, theirs) == 0 ||
         (treadle_text_to_real(ours, &a) && treadle_text_to_real(theirs, &b) && a == b);
}

const char *treadle_train_key_theirs(const treadle_train_key *key) {
  char path[128];
  const treadle_key_info *row;
  snprintf(path, sizeof path, "%s%s%s", key->alone ? key->section : "megatron_training",
           *key->section ? "." : "", key->key);
  row = treadle_train_other_of(key->whose, path);
  for (int i = 0; i < TREADLE_TRAIN_ALSO && !row && key->also[i]; i++)
    row = treadle_train_other_of(key->whose, key->also[i]);
  return row && row->otherwise && *row->otherwise != '$' && !is_same(key->otherwise, row->otherwise)
             ? row->otherwise
             : NULL;
}

/* What the columns before the help say of a key. */
static void columns_of(const treadle_train_key *key, char allowed[TREADLE_KEY_TEXT_BYTES],
                       const char *cells[COLUMNS]) {
  treadle_train_key_allowed(allowed, key);
  cells[0] = key->key;
  cells[1] = key->type == TREADLE_KEY_CHOICE ? allowed : treadle_train_key_type_text(key);
  cells[2] = key->otherwise ? key->otherwise : key->need ? "needed" : "none";
  cells[3] = key->unit;
  cells[4] = key->whose;
}

static void add_table(treadle_builder *text, treadle_train_run run) {
  char allowed[TREADLE_KEY_TEXT_BYTES];
  const char *cells[COLUMNS];
  size_t widths[COLUMNS] = {0};
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    if (!treadle_train_key_is_of(&treadle_train_keys[i], run)) continue;
    columns_of(&treadle_train_keys[i], allowed, cells);
    for (int c = 0; c < COLUMNS; c++)
      if (strlen(cells[c]) > widths[c]) widths[c] = strlen(cells[c]);
  }
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    const treadle_train_key *row = &treadle_train_keys[i];
    if (!treadle_train_key_is_of(row, run)) continue;
    bool number = row->type == TREADLE_KEY_INTEGER || row->type == TREADLE_KEY_REAL;
    columns_of(row, allowed, cells);
    if (!i || strcmp(treadle_train_keys[i - 1].section, row->section) != 0)
      treadle_builder_add(text, "%s%s\n", i ? "\n" : "", *row->section ? row->section : "(no section)");
    for (int c = 0; c < COLUMNS; c++) treadle_builder_add(text, "  %-*s", (int)widths[c], cells[c]);
    treadle_builder_add(text, "  %s%s%s%s\n", row->help, number ? " (" : "", number ? allowed : "",
                        number ? ")" : "");
  }
}

/* A text of the table: it has nothing that JSON escapes. */
static void add_member(treadle_builder *text, const char *name, const char *value) {
  if (value)
    treadle_builder_add(text, "\"%s\": \"%s\", ", name, value);
  else
    treadle_builder_add(text, "\"%s\": null, ", name);
}

static void add_json(treadle_builder *text, treadle_train_run run) {
  char allowed[TREADLE_KEY_TEXT_BYTES];
  treadle_builder_add(text, "{\"keys\": [\n");
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    const treadle_train_key *row = &treadle_train_keys[i];
    if (!treadle_train_key_is_of(row, run)) continue;
    treadle_train_key_allowed(allowed, row);
    treadle_builder_add(text, "%s  {", i ? ",\n" : "");
    add_member(text, "section", row->section);
    add_member(text, "key", row->key);
    add_member(text, "type", treadle_train_key_type_text(row));
    add_member(text, "allowed", *allowed ? allowed : NULL);
    add_member(text, "default", row->otherwise);
    add_member(text, "theirs", treadle_train_key_theirs(row));
    treadle_builder_add(text, "\"needed\": %s, ", row->need ? "true" : "false");
    add_member(text, "unit", *row->unit ? row->unit : NULL);
    add_member(text, "whose", row->whose);
    treadle_builder_add(text, "\"also\": [");
    for (int j = 0; j < TREADLE_TRAIN_ALSO && row->also[j]; j++)
      treadle_builder_add(text, "%s\"%s\"", j ? ", " : "", row->also[j]);
    treadle_builder_add(text, "], \"help\": \"%s\"}", row->help);
  }
  treadle_builder_add(text, "\n]}\n");
}

static treadle_status help(treadle_train_run run, bool json, char **text_p) {
  treadle_builder text = {0};
  if (json)
    add_json(&text, run);
  else
    add_table(&text, run);
  *text_p = text.failed ? NULL : strdup(text.text);
  treadle_builder_release(&text);
  return *text_p ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for the table of keys");
}

treadle_status treadle_train_config_help(bool json, char **text_p) {
  TREADLE_NEED(text_p);
  return help(TREADLE_RUN_SFT, json, text_p);
}

treadle_status treadle_rl_config_help(bool json, char **text_p) {
  TREADLE_NEED(text_p);
  return help(TREADLE_RUN_RL, json, text_p);
}
