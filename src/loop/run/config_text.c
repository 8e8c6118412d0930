/* A configuration as text: each key with its value and where that comes from. Read again, it gives the same settings. */
#include "run/config.h"

#include "base/argument.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>

enum { VALUES_AT = 44, NOTES_AT = 72 }; /* columns */

/* Spaces up to a column of the line that begins at `line`, at least one. */
static void pad(treadle_builder *text, size_t line, size_t column) {
  size_t width = text->length - line;
  treadle_builder_add(text, "%*s", width < column ? (int)(column - width) : 1, "");
}

static void add_note(treadle_builder *text, const treadle_train_source *source) {
  if (source->from == TREADLE_FROM_FILE)
    treadle_builder_add(text, "# line %d", source->line);
  else if (source->from == TREADLE_FROM_OVERRIDE)
    treadle_builder_add(text, "# override");
  else if (source->from == TREADLE_FROM_RULE)
    treadle_builder_add(text, "# %s", source->why);
  else
    treadle_builder_add(text, "# default");
}

static void add_key(treadle_builder *text, const treadle_train_config *config, int key) {
  const treadle_train_key *row = &treadle_train_keys[key];
  const bool is_inside = *row->section;
  if (!key || strcmp(treadle_train_keys[key - 1].section, row->section) != 0)
    treadle_builder_add(text, "%s%s%s", key ? "\n" : "", row->section, is_inside ? ":\n" : "");
  size_t line = text->length;
  treadle_builder_add(text, "%s%s:", is_inside ? "  " : "", row->key);
  pad(text, line, VALUES_AT);
  if (config->sources[key].left_out)
    treadle_builder_add(text, "null");
  else
    treadle_train_key_write(text, row, &config->settings);
  pad(text, line, NOTES_AT);
  add_note(text, &config->sources[key]);
  treadle_builder_add(text, "\n");
}

treadle_status treadle_train_config_text(const treadle_train_config *config, char **text_p) {
  treadle_builder text = {0};
  TREADLE_NEED(text_p);
  *text_p = NULL;
  TREADLE_NEED(config);
  treadle_builder_add(&text, "# %s, with all defaults. Behind each value: where it comes from.\n\n",
                      treadle_text_shown(config->file));
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++)
    if (treadle_train_key_is_of(&treadle_train_keys[i], config->run) &&
        (!treadle_train_keys[i].critic || treadle_train_has_critic(&config->settings)) &&
        (!treadle_train_keys[i].reward || treadle_train_has_reward_model(&config->settings)) &&
        (!treadle_train_keys[i].reference || config->has_reference_apart))
      add_key(&text, config, i);
  *text_p = text.failed ? NULL : strdup(text.text);
  treadle_status status =
      *text_p ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its text", config->file);
  treadle_builder_release(&text);
  return status;
}
