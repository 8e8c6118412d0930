/* What a configuration gives that is not taken: names without effect, for one warning, and refusals, for one message. */
#include "run/config_given.h"

#include "base/status_list.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

treadle_status treadle_given_note_refusal(treadle_config_reader *reader, treadle_status status) {
  if (status != TREADLE_REFUSED) return status;
  treadle_builder_add(&reader->refused, "%s%s", reader->refusals++ ? "\n" : "", treadle_error_message());
  return reader->refused.failed ? treadle_given_no_memory(reader->config) : TREADLE_OK;
}

treadle_status treadle_given_refuse_all(const treadle_config_reader *reader) {
  if (!reader->refusals) return TREADLE_OK;
  if (reader->refusals == 1) REFUSE("%s", reader->refused.text);
  return treadle_fail_long(TREADLE_REFUSED, "%s: %d keys are refused:\n%s", reader->config->file,
                           reader->refusals, reader->refused.text);
}

/* Of a section that does nothing as a whole, its name once. */
void treadle_given_ignore(treadle_config_reader *reader, const treadle_given_value *given) {
  const char *section =
      reader->config->run != TREADLE_RUN_SFT ? treadle_train_ignored_section(given->path) : NULL;
  if (section) {
    if (reader->last_ignored && strcmp(reader->last_ignored, section) == 0) return;
    reader->last_ignored = section;
    treadle_builder_add(&reader->ignored, "%s%s.*", reader->ignored.length ? ", " : "", section);
    return;
  }
  treadle_builder_add(&reader->ignored, "%s%s", reader->ignored.length ? ", " : "",
                      treadle_text_shown(given->path));
  if (given->node) treadle_builder_add(&reader->ignored, " (line %d)", given->line);
}

/* "0", or "-1 or 0". */
static void write_only(char *to, size_t room, const treadle_train_limit *limit) {
  *to = 0;
  for (int i = 0; limit->only[i]; i++)
    snprintf(to + strlen(to), room - strlen(to), "%s%s", i ? limit->only[i + 1] ? ", " : " or " : "",
             limit->only[i]);
}

/* null, and what an empty list or map is as text. */
static bool is_nothing(const char *text) {
  return treadle_train_is_null(text) || strcmp(text, "{}") == 0 || strcmp(text, "[]") == 0;
}

/* A list or a map in which there is nothing else. */
static bool is_nothing_in(const treadle_yaml *node) {
  if (node->type == TREADLE_YAML_SCALAR) return is_nothing(node->text);
  for (size_t i = 0; i < node->count; i++)
    if (!is_nothing_in(node->items[i])) return false;
  return true;
}

treadle_status treadle_given_check_limit(const treadle_config_reader *reader,
                                         const treadle_given_value *given,
                                         const treadle_train_limit *limit) {
  char only[128];
  const char *pause = limit->instead ? "; " : "", *instead = limit->instead ? limit->instead : "";
  if (given->text ? is_nothing(given->text) : is_nothing_in(given->node)) return TREADLE_OK;
  for (int i = 0; given->text && limit->only[i]; i++)
    if (treadle_given_is_same(given->text, limit->only[i])) return TREADLE_OK;
  if (!limit->only[0])
    REFUSE("%s: this cannot be done here; %s", treadle_given_head(reader, given),
           limit->instead ? limit->instead : "leave it out");
  write_only(only, sizeof only, limit);
  REFUSE("%s is %s%s%s: here it can only be %s%s%s", treadle_given_head(reader, given),
         given->text ? "'" : "", given->text ? treadle_text_shown(given->text) : "not a single value",
         given->text ? "'" : "", only, pause, instead);
}

treadle_status treadle_given_refuse(const treadle_config_reader *reader, const treadle_given_value *given) {
  const char *key = strchr(given->path, '.'), *nearest;
  const treadle_train_run run = reader->config->run;
  bool ours = treadle_text_starts(given->path, "megatron_training.") ||
              treadle_text_starts(given->path, "actor_config.");
  if (run == TREADLE_RUN_RL && key)
    ours = ours || treadle_text_starts(given->path, "rl_config.") ||
           treadle_text_starts(given->path, "generate_config.");
  if (key && ours) {
    nearest = treadle_train_key_nearest(strrchr(given->path, '.') + 1, run);
    REFUSE("%s: there is no such key%s%s%s; treadle %s --help-config has all",
           treadle_given_head(reader, given), nearest ? "; did you mean '" : "", nearest ? nearest : "",
           nearest ? "'?" : "", run == TREADLE_RUN_RL ? "train" : "sft");
  }
  for (int i = 0; i < TREADLE_TRAIN_KEYS && !key; i++)
    if (treadle_train_key_is_of(&treadle_train_keys[i], run) &&
        strcmp(treadle_train_keys[i].key, given->path) == 0)
      REFUSE("%s: there is no such section; did you mean %s.%s?", treadle_given_head(reader, given),
             treadle_train_keys[i].section, given->path);
  if (key && treadle_train_known_section_of(given->path, run)) {
    nearest = treadle_train_key_meant(given->path, run);
    REFUSE("%s: %s%s%s", treadle_given_head(reader, given),
           nearest
               ? "there is no such key; did you mean '"
               : "no key of MindSpeed-RL, RLinf, verl or treadle that is known here; leave it out if it "
                 "changes no result",
           nearest ? nearest : "", nearest ? "'?" : "");
  }
  nearest = treadle_train_section_nearest(given->path);
  REFUSE("%s: there is no such section%s%s%s", treadle_given_head(reader, given),
         nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}
