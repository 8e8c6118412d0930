/* What a configuration gives for a key: noted, held against what was given before, or refused by name. */
#include "train/config_given.h"

#include "base/argument.h"
#include "base/real.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>

const char *treadle_given_head_at(const treadle_train_config *config, const char *path, int line) {
  static _Thread_local char text[1024];
  if (line)
    snprintf(text, sizeof text, "%.500s:%d: %.500s", config->file, line, treadle_text_shown(path));
  else
    snprintf(text, sizeof text, "override %.500s", treadle_text_shown(path));
  return text;
}

const char *treadle_given_head(const treadle_config_reader *reader, const treadle_given_value *given) {
  return treadle_given_head_at(reader->config, given->path, given->line);
}

treadle_status treadle_train_config_warn(treadle_train_config *config, const char *text) {
  return text ? treadle_array_push(&config->warnings, text) : treadle_given_no_memory(config);
}

static bool same_value(const char *a, const char *b) {
  double x, y;
  if (treadle_text_to_real(a, &x) && treadle_text_to_real(b, &y)) return x == y;
  return strcasecmp(a, b) == 0;
}

bool treadle_given_is_of_verl(const char *path) {
  static const char *const sections[] = {"actor_rollout_ref.", "data.", "algorithm.", "trainer.",
                                         "reward_model."};
  bool is = false;
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
    is = is || treadle_text_starts(path, sections[i]);
  return is;
}

/* verl's files have two KLs, one of the loss and one of the reward. Is the new one that of the reward, which is used? */
static treadle_status is_of_reward(const treadle_config_reader *reader, const treadle_given_value *given,
                                   bool *is_p) {
  static const char *const switches[] = {"${oc.select:algorithm.use_kl_in_reward,false}",
                                         "${oc.select:rl_config.use_kl_in_reward,false}"};
  treadle_status status = TREADLE_OK;
  *is_p = false;
  for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
    const char *text;
    TRY(treadle_train_expand(&reader->names, treadle_given_head(reader, given), switches[i], &text));
    *is_p = *is_p || strcasecmp(text, "true") == 0;
  }
  *is_p = *is_p == treadle_text_starts(given->path, "algorithm.");
out:
  return status;
}

/* verl's actor has grad_clip, and its optimizer a clip_grad: the actor's counts. */
static treadle_status choose_clip(treadle_train_config *config, treadle_train_source *old,
                                  const treadle_train_source *new) {
  const bool is = strstr(new->name, ".grad_clip") != NULL;
  const treadle_train_source *counts = is ? new : old, *other = is ? old : new;
  treadle_status status = treadle_train_config_warn(
      config, treadle_arena_format(&config->arena, "%s:%d: %s gives way to %s on line %d", config->file,
                                   other->line, other->name, counts->name, counts->line));
  if (is) *old = *new;
  return status;
}

/* Of a file that says a key twice: the same by two names; one of verl's two KLs; or MindSpeed-RL, which lets actor_config go before
 * megatron_training. */
static treadle_status give_again(treadle_config_reader *reader, int key, const treadle_given_value *given) {
  treadle_train_config *config = reader->config;
  treadle_train_source *old = &config->sources[key];
  const treadle_train_source new = {TREADLE_FROM_FILE, given->line, given->path, given->text, NULL, false};
  const bool is_kl = key == TREADLE_KEY_OF(kl_penalty) || key == TREADLE_KEY_OF(init_kl_coef);
  if (strcmp(old->name, given->path) != 0 && treadle_given_is_of_verl(old->name) &&
      treadle_given_is_of_verl(given->path)) {
    bool counts = false;
    treadle_status status = is_kl ? is_of_reward(reader, given, &counts) : TREADLE_OK;
    if (counts) *old = new;
    if (status || is_kl || same_value(old->text, given->text)) return status;
  }
  if (key == TREADLE_KEY_OF(clip_grad) && treadle_given_is_of_verl(old->name) &&
      treadle_given_is_of_verl(given->path))
    return choose_clip(config, old, &new);
  bool was = treadle_text_starts(old->name, "actor_config."),
       is = treadle_text_starts(given->path, "actor_config.");
  bool shared = (was && treadle_text_starts(given->path, "megatron_training.")) ||
                (is && treadle_text_starts(old->name, "megatron_training."));
  if (!shared || strcmp(strchr(old->name, '.'), strchr(given->path, '.')) != 0)
    REFUSE("%s: %s on line %d says the same", treadle_given_head(reader, given), old->name, old->line);
  int line = given->line;
  treadle_status status = treadle_train_config_warn(
      config, treadle_arena_format(&config->arena, "%s:%d: %s gives way to %s on line %d", config->file,
                                   is ? old->line : line, is ? old->name : given->path,
                                   is ? given->path : old->name, is ? line : old->line));
  if (!status && is) *old = new;
  return status;
}

/* A list of the file, as text. */
static treadle_status give_list(treadle_config_reader *reader, int key, const treadle_given_value *given) {
  treadle_builder text = {0};
  treadle_given_value whole = *given;
  treadle_status status = TREADLE_OK;
  treadle_builder_add(&text, "[");
  for (size_t i = 0; i < given->node->count; i++) {
    const char *item = given->node->items[i]->text;
    if (given->node->items[i]->type != TREADLE_YAML_SCALAR) {
      status = treadle_fail(TREADLE_REFUSED, "%s: item %zu is no single value",
                            treadle_given_head(reader, given), i);
      goto out;
    }
    TRY(treadle_train_expand(&reader->names, treadle_given_head(reader, given), item, &item));
    if (i) treadle_builder_add(&text, ", ");
    treadle_train_write_item(&text, item);
  }
  treadle_builder_add(&text, "]");
  whole.text = text.failed ? NULL : treadle_arena_copy_text(&reader->config->arena, text.text);
  status = whole.text ? treadle_given_take(reader, key, &whole) : treadle_given_no_memory(reader->config);
out:
  treadle_builder_release(&text);
  return status;
}

/* Is there an override of this very path? */
static bool is_overridden(const treadle_config_reader *reader, const char *path) {
  for (size_t i = 0; i < reader->names.count; i++) {
    const char *other = reader->names.overrides[i];
    size_t at = 0;
    while (path[at] && path[at] == (other[at] == '-' ? '_' : other[at])) at++;
    if (!path[at] && other[at] == '=') return true;
  }
  return false;
}

treadle_status treadle_given_take(treadle_config_reader *reader, int key,
                                  const treadle_given_value *given) {
  treadle_train_source *source = &reader->config->sources[key];
  treadle_given_value meant = *given;
  if (!given->text && treadle_train_keys[key].type == TREADLE_KEY_LIST &&
      given->node->type == TREADLE_YAML_LIST)
    return give_list(reader, key, given);
  if (!given->text)
    REFUSE("%s is a %s, and must be %s%s", treadle_given_head(reader, given),
           given->node->type == TREADLE_YAML_LIST ? "list" : "map",
           treadle_train_keys[key].type == TREADLE_KEY_INTEGER ? "an " : "a ",
           treadle_train_key_type_text(&treadle_train_keys[key]));
  if (!given->node) {
    if (source->from == TREADLE_FROM_OVERRIDE)
      REFUSE("%s is given twice, the first time as %s", treadle_given_head(reader, given), source->name);
    *source = (treadle_train_source){TREADLE_FROM_OVERRIDE, 0, given->path, given->text, NULL, false};
    return TREADLE_OK;
  }
  if (is_overridden(reader, given->path)) return TREADLE_OK;
  if (treadle_train_is_null(given->text)) {
    if (!treadle_train_keys[key].nothing) return TREADLE_OK;
    meant.text = treadle_train_keys[key].nothing;
    given = &meant;
  }
  if (source->from == TREADLE_FROM_FILE) return give_again(reader, key, given);
  *source = (treadle_train_source){TREADLE_FROM_FILE, given->line, given->path, given->text, NULL, false};
  return TREADLE_OK;
}

void treadle_given_ignore(treadle_config_reader *reader, const treadle_given_value *given) {
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

treadle_status treadle_given_check_limit(const treadle_config_reader *reader,
                                         const treadle_given_value *given,
                                         const treadle_train_limit *limit) {
  char only[128];
  const char *pause = limit->instead ? "; " : "", *instead = limit->instead ? limit->instead : "";
  if (given->text ? is_nothing(given->text) : !given->node->count) return TREADLE_OK;
  for (int i = 0; given->text && limit->only[i]; i++)
    if (same_value(given->text, limit->only[i])) return TREADLE_OK;
  if (!limit->only[0])
    REFUSE("%s: this cannot be done here; %s", treadle_given_head(reader, given),
           limit->instead ? limit->instead : "leave it out");
  write_only(only, sizeof only, limit);
  REFUSE("%s is %s%s%s: here it can only be %s%s%s", treadle_given_head(reader, given),
         given->text ? "'" : "", given->text ? treadle_text_shown(given->text) : "no single value",
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
  nearest = treadle_train_section_nearest(given->path);
  REFUSE("%s: there is no such section%s%s%s", treadle_given_head(reader, given),
         nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
}
