/* A configuration from YAML and overrides. The tree of the file is walked as paths: a path is a key of the table, a known name, a section,
 * or refused. What is given for each key is noted first; values are read when all of it is known. */
#include "train/config.h"

#include "base/argument.h"
#include "base/real.h"
#include "base/utf8.h"
#include "io/file.h"
#include "io/yaml.h"
#include "treadle_control.h"

#include <stdio.h>
#include <string.h>

enum { LARGEST_FILE = 16 << 20 };

typedef struct config_reader {
  treadle_train_config *config;
  treadle_train_names names;
  treadle_builder ignored; /* names with their lines, and commas between */
} config_reader;

/* A value on its way to its key. */
typedef struct given_value {
  const char *path;
  const treadle_yaml *node; /* NULL: an override */
  const char *text;         /* NULL: a list or a map */
  int line;                 /* of its key in the file */
} given_value;

static treadle_status no_memory(const treadle_train_config *config) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its settings", config->file);
}

/* "FILE:12: actor_config.lr", which begins a message. */
static const char *head(const treadle_train_config *config, const char *path, int line) {
  static _Thread_local char text[1024];
  if (line)
    snprintf(text, sizeof text, "%.500s:%d: %.500s", config->file, line, treadle_text_shown(path));
  else
    snprintf(text, sizeof text, "override %.500s", treadle_text_shown(path));
  return text;
}

static const char *head_of(const config_reader *reader, const given_value *given) {
  return head(reader->config, given->path, given->line);
}

treadle_status treadle_train_config_warn(treadle_train_config *config, const char *text) {
  return text ? treadle_array_push(&config->warnings, text) : no_memory(config);
}

/* ---- What is given ------------------------------------------------------------------------------------ */

static bool same_value(const char *a, const char *b) {
  double x, y;
  if (treadle_text_to_real(a, &x) && treadle_text_to_real(b, &y)) return x == y;
  return strcasecmp(a, b) == 0;
}

static bool is_of_verl(const char *path) {
  static const char *const sections[] = {"actor_rollout_ref.", "data.", "algorithm.", "trainer.",
                                         "reward_model."};
  bool is = false;
  for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
    is = is || treadle_text_starts(path, sections[i]);
  return is;
}

/* verl's files have two KLs, one of the loss and one of the reward. Is the new one that of the reward, which is used? */
static treadle_status is_of_reward(const config_reader *reader, const given_value *given, bool *is_p) {
  static const char *const switches[] = {"${oc.select:algorithm.use_kl_in_reward,false}",
                                         "${oc.select:rl_config.use_kl_in_reward,false}"};
  treadle_status status = TREADLE_OK;
  *is_p = false;
  for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
    const char *text;
    TRY(treadle_train_expand(&reader->names, head_of(reader, given), switches[i], &text));
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
static treadle_status give_again(config_reader *reader, int key, const given_value *given) {
  treadle_train_config *config = reader->config;
  treadle_train_source *old = &config->sources[key];
  const treadle_train_source new = {TREADLE_FROM_FILE, given->line, given->path, given->text, NULL, false};
  const bool is_kl = key == TREADLE_KEY_OF(kl_penalty) || key == TREADLE_KEY_OF(init_kl_coef);
  if (strcmp(old->name, given->path) != 0 && is_of_verl(old->name) && is_of_verl(given->path)) {
    bool counts = false;
    treadle_status status = is_kl ? is_of_reward(reader, given, &counts) : TREADLE_OK;
    if (counts) *old = new;
    if (status || is_kl || same_value(old->text, given->text)) return status;
  }
  if (key == TREADLE_KEY_OF(clip_grad) && is_of_verl(old->name) && is_of_verl(given->path))
    return choose_clip(config, old, &new);
  bool was = treadle_text_starts(old->name, "actor_config."),
       is = treadle_text_starts(given->path, "actor_config.");
  bool shared = (was && treadle_text_starts(given->path, "megatron_training.")) ||
                (is && treadle_text_starts(old->name, "megatron_training."));
  if (!shared || strcmp(strchr(old->name, '.'), strchr(given->path, '.')) != 0)
    REFUSE("%s: %s on line %d says the same", head_of(reader, given), old->name, old->line);
  int line = given->line;
  treadle_status status = treadle_train_config_warn(
      config, treadle_arena_format(&config->arena, "%s:%d: %s gives way to %s on line %d", config->file,
                                   is ? old->line : line, is ? old->name : given->path,
                                   is ? given->path : old->name, is ? line : old->line));
  if (!status && is) *old = new;
  return status;
}

static treadle_status give(config_reader *reader, int key, const given_value *given);

/* A list of the file, as text. */
static treadle_status give_list(config_reader *reader, int key, const given_value *given) {
  treadle_builder text = {0};
  given_value whole = *given;
  treadle_status status = TREADLE_OK;
  treadle_builder_add(&text, "[");
  for (size_t i = 0; i < given->node->count; i++) {
    const char *item = given->node->items[i]->text;
    if (given->node->items[i]->type != TREADLE_YAML_SCALAR) {
      status = treadle_fail(TREADLE_REFUSED, "%s: item %zu is no single value", head_of(reader, given), i);
      goto out;
    }
    TRY(treadle_train_expand(&reader->names, head_of(reader, given), item, &item));
    if (i) treadle_builder_add(&text, ", ");
    treadle_train_write_item(&text, item);
  }
  treadle_builder_add(&text, "]");
  whole.text = text.failed ? NULL : treadle_arena_copy_text(&reader->config->arena, text.text);
  status = whole.text ? give(reader, key, &whole) : no_memory(reader->config);
out:
  treadle_builder_release(&text);
  return status;
}

/* Is there an override of this very path? */
static bool is_overridden(const config_reader *reader, const char *path) {
  for (size_t i = 0; i < reader->names.count; i++) {
    const char *other = reader->names.overrides[i];
    size_t at = 0;
    while (path[at] && path[at] == (other[at] == '-' ? '_' : other[at])) at++;
    if (!path[at] && other[at] == '=') return true;
  }
  return false;
}

static treadle_status give(config_reader *reader, int key, const given_value *given) {
  treadle_train_source *source = &reader->config->sources[key];
  if (!given->text && treadle_train_keys[key].type == TREADLE_KEY_LIST &&
      given->node->type == TREADLE_YAML_LIST)
    return give_list(reader, key, given);
  if (!given->text)
    REFUSE("%s is a %s, and must be %s%s", head_of(reader, given),
           given->node->type == TREADLE_YAML_LIST ? "list" : "map",
           treadle_train_keys[key].type == TREADLE_KEY_INTEGER ? "an " : "a ",
           treadle_train_key_type_text(&treadle_train_keys[key]));
  if (!given->node) {
    if (source->from == TREADLE_FROM_OVERRIDE)
      REFUSE("%s is given twice, the first time as %s", head_of(reader, given), source->name);
    *source = (treadle_train_source){TREADLE_FROM_OVERRIDE, 0, given->path, given->text, NULL, false};
    return TREADLE_OK;
  }
  if (treadle_train_is_null(given->text) || is_overridden(reader, given->path)) return TREADLE_OK;
  if (source->from == TREADLE_FROM_FILE) return give_again(reader, key, given);
  *source = (treadle_train_source){TREADLE_FROM_FILE, given->line, given->path, given->text, NULL, false};
  return TREADLE_OK;
}

static void note_ignored(config_reader *reader, const given_value *given) {
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

static treadle_status check_only(const config_reader *reader, const given_value *given,
                                 const treadle_train_limit *limit) {
  char only[128];
  const char *pause = limit->instead ? "; " : "", *instead = limit->instead ? limit->instead : "";
  if (given->text ? is_nothing(given->text) : !given->node->count) return TREADLE_OK;
  for (int i = 0; given->text && limit->only[i]; i++)
    if (same_value(given->text, limit->only[i])) return TREADLE_OK;
  if (!limit->only[0])
    REFUSE("%s: this cannot be done here; %s", head_of(reader, given),
           limit->instead ? limit->instead : "leave it out");
  write_only(only, sizeof only, limit);
  REFUSE("%s is %s%s%s: here it can only be %s%s%s", head_of(reader, given), given->text ? "'" : "",
         given->text ? treadle_text_shown(given->text) : "no single value", given->text ? "'" : "", only,
         pause, instead);
}

static treadle_status refuse_unknown(const config_reader *reader, const given_value *given) {
  const char *key = strchr(given->path, '.'), *nearest;
  const treadle_train_run run = reader->config->run;
  bool ours = treadle_text_starts(given->path, "megatron_training.") ||
              treadle_text_starts(given->path, "actor_config.");
  if (run == TREADLE_RUN_RL && key)
    ours = ours || treadle_text_starts(given->path, "rl_config.") ||
           treadle_text_starts(given->path, "generate_config.");
  if (key && ours) {
    nearest = treadle_train_key_nearest(strrchr(given->path, '.') + 1, run);
    REFUSE("%s: there is no such key%s%s%s; treadle %s --help-config has all", head_of(reader, given),
           nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "",
           run == TREADLE_RUN_RL ? "train" : "sft");
  }
  for (int i = 0; i < TREADLE_TRAIN_KEYS && !key; i++)
    if (treadle_train_key_is_of(&treadle_train_keys[i], run) &&
        strcmp(treadle_train_keys[i].key, given->path) == 0)
      REFUSE("%s: there is no such section; did you mean %s.%s?", head_of(reader, given),
             treadle_train_keys[i].section, given->path);
  nearest = treadle_train_section_nearest(given->path);
  REFUSE("%s: there is no such section%s%s%s", head_of(reader, given), nearest ? "; did you mean '" : "",
         nearest ? nearest : "", nearest ? "'?" : "");
}

/* ---- The walk ------------------------------------------------------------------------------------------- */

static treadle_status walk(config_reader *reader, const char *section, const treadle_yaml *map);

/* Is the first part of the path a section of which the rest is ignored? */
static bool in_known_section(const char *path, treadle_train_run run) {
  char name[64];
  size_t length = strcspn(path, ".");
  if (length >= sizeof name) return false;
  memcpy(name, path, length);
  name[length] = 0;
  return treadle_train_known_section(name, run);
}

/* Values of verl that have another name here, or say the contrary. */
static const struct {
  const char *path, *from, *to;
} words[] = {
    {"data.shuffle", "true", "false"},
    {"data.shuffle", "false", "true"},
    {"data.filter_overlong_prompts", "true", "leave_out"},
    {"data.filter_overlong_prompts", "false", "error"},
    {"actor_rollout_ref.rollout.val_kwargs.do_sample", "true", "false"},
    {"actor_rollout_ref.rollout.val_kwargs.do_sample", "false", "true"},
};

static void take_word(given_value *given) {
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(given->path, words[i].path) == 0 && strcasecmp(given->text, words[i].from) == 0) {
      given->text = words[i].to;
      return;
    }
}

/* verl's FSDP is done as FSDP2, which differs from it in how tensors are cut alone. */
static treadle_status take_strategy(config_reader *reader, given_value *given) {
  treadle_train_config *config = reader->config;
  if (strcmp(given->text, "fsdp") != 0 || !is_of_verl(given->path)) return TREADLE_OK;
  given->text = "fsdp2";
  return treadle_train_config_warn(
      config, treadle_arena_format(&config->arena, "%s is fsdp: taken as fsdp2, which has the same results",
                                   head_of(reader, given)));
}

/* What has a value here: a key, or a name that has one value alone. */
static treadle_status take_value(config_reader *reader, const given_value *given, int key,
                                 const treadle_train_limit *limit) {
  given_value whole = *given;
  if (given->text) {
    treadle_status status =
        treadle_train_expand(&reader->names, head_of(reader, given), given->text, &whole.text);
    if (!status && key == TREADLE_KEY_OF(strategy)) status = take_strategy(reader, &whole);
    if (status) return status;
    take_word(&whole);
  }
  return key >= 0 ? give(reader, key, &whole) : check_only(reader, &whole, limit);
}

static treadle_status place(config_reader *reader, const given_value *given) {
  const treadle_train_limit *limit;
  const treadle_train_run run = reader->config->run;
  int key = treadle_train_key_find(given->path, run);
  treadle_train_name_type known = treadle_train_known_key(given->path, run, &limit);
  if (key >= 0 || known == TREADLE_KNOWN_ONLY) return take_value(reader, given, key, limit);
  if (known == TREADLE_KNOWN_NOT && given->node &&
      (treadle_train_key_is_section(given->path, run) ||
       treadle_train_limit_is_section(given->path, run))) {
    if (given->node->type == TREADLE_YAML_MAP) return walk(reader, given->path, given->node);
    if (given->text && treadle_train_is_null(given->text)) return TREADLE_OK;
    if (!in_known_section(given->path, reader->config->run))
      REFUSE("%s is a section: it must be a map of keys", head_of(reader, given));
  }
  if (known == TREADLE_KNOWN_NOT && !in_known_section(given->path, reader->config->run))
    return refuse_unknown(reader, given);
  const char *meant =
      known == TREADLE_KNOWN_NOT ? treadle_train_key_meant(given->path, reader->config->run) : NULL;
  if (meant) REFUSE("%s: there is no such key; did you mean '%s'?", head_of(reader, given), meant);
  note_ignored(reader, given);
  return TREADLE_OK;
}

/* "section.key", with _ for each - as MindSpeed-RL reads keys. */
static const char *join(treadle_train_config *config, const char *section, const char *key) {
  char *path =
      treadle_arena_format(&config->arena, "%s%s%s", section ? section : "", section ? "." : "", key);
  for (char *at = path; at && *at; at++)
    if (*at == '-') *at = '_';
  return path;
}

static treadle_status walk(config_reader *reader, const char *section, const treadle_yaml *map) {
  for (size_t i = 0; i < map->count; i++) {
    given_value given = {join(reader->config, section, map->keys[i]), map->items[i], map->items[i]->text,
                         map->key_lines[i]};
    if (!given.path) return no_memory(reader->config);
    treadle_status status = place(reader, &given);
    if (status) return status;
  }
  return TREADLE_OK;
}

static treadle_status check_override(const treadle_train_config *config, const char *text) {
  const char *equals = text ? strchr(text, '=') : NULL;
  if (!text) REFUSE("%s: an override is no text (NULL)", config->file);
  if (!treadle_utf8_is_valid(text)) REFUSE("override '%s': is no UTF-8", treadle_text_shown(text));
  if (!equals || equals == text)
    REFUSE("override '%s': expected section.key=value", treadle_text_shown(text));
  return TREADLE_OK;
}

static treadle_status take_override(config_reader *reader, const char *text) {
  treadle_train_config *config = reader->config;
  size_t equals = strcspn(text, "=");
  char *name = treadle_arena_copy_text(&config->arena, text);
  if (!name) return no_memory(config);
  name[equals] = 0;
  given_value given = {join(config, NULL, name), NULL, name + equals + 1, 0};
  return given.path ? place(reader, &given) : no_memory(config);
}

/* ---- The whole ------------------------------------------------------------------------------------------- */

static treadle_status read_values(treadle_train_config *config) {
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    treadle_train_source *source = &config->sources[i];
    if (!treadle_train_key_is_of(&treadle_train_keys[i], config->run)) continue;
    if (source->from == TREADLE_FROM_OVERRIDE && treadle_train_is_null(source->text)) source->text = NULL;
    const char *where = source->name ? head(config, source->name, source->line) : treadle_train_keys[i].key;
    TRY(treadle_train_key_read(&treadle_train_keys[i], where, source->text, &config->arena,
                               &config->settings));
  }
out:
  return status;
}

static treadle_status warn_of_ignored(config_reader *reader) {
  treadle_train_config *config = reader->config;
  if (reader->ignored.failed) return no_memory(config);
  if (!reader->ignored.length) return TREADLE_OK;
  return treadle_train_config_warn(config, treadle_arena_format(&config->arena,
                                                                "%s: known, and without effect here: %s",
                                                                config->file, reader->ignored.text));
}

static treadle_status read_all(config_reader *reader, const char *text, size_t bytes,
                               const char *const *overrides, size_t count) {
  treadle_train_config *config = reader->config;
  const treadle_yaml *root;
  treadle_status status;
  for (size_t i = 0; i < count; i++) TRY(check_override(config, overrides[i]));
  TRY(treadle_yaml_parse(config->file, text, bytes, &config->arena, &root));
  if (root->type != TREADLE_YAML_MAP) {
    status = treadle_fail(TREADLE_REFUSED, "%s:%d: must be a map of sections", config->file, root->line);
    goto out;
  }
  reader->names = (treadle_train_names){root, overrides, count, &config->arena};
  TRY(walk(reader, NULL, root));
  for (size_t i = 0; i < count; i++) TRY(take_override(reader, overrides[i]));
  TRY(warn_of_ignored(reader));
  TRY(read_values(config));
  TRY(treadle_train_config_settle(config));
out:
  return status;
}

treadle_status treadle_train_config_parse(const char *file, const char *text, size_t bytes,
                                          const char *const *overrides, size_t count, treadle_train_run run,
                                          treadle_train_config **config_p) {
  treadle_train_config *config = treadle_alloc(sizeof *config);
  config_reader reader = {.config = config};
  *config_p = NULL;
  if (!config) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its settings", file);
  config->run = run;
  config->file = treadle_arena_copy_text(&config->arena, file);
  treadle_status status = config->file
                              ? read_all(&reader, text, bytes, overrides, count)
                              : treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its settings", file);
  treadle_builder_release(&reader.ignored);
  if (status)
    treadle_train_config_destroy(config);
  else
    *config_p = config;
  return status;
}

static treadle_status read_file(const char *path, const char *const *overrides, size_t count,
                                treadle_train_run run, treadle_train_config **config_p) {
  char *text = NULL;
  size_t bytes = 0;
  treadle_status status;
  TRY(treadle_file_read(path, LARGEST_FILE, &text, &bytes));
  TRY(treadle_train_config_parse(path, text, bytes, overrides, count, run, config_p));
out:
  treadle_free(text);
  return status;
}

treadle_status treadle_train_config_read(const char *path, const char *const *overrides, size_t count,
                                         treadle_train_config **config_p) {
  TREADLE_NEED(config_p);
  *config_p = NULL;
  TREADLE_NEED(path);
  if (count) TREADLE_NEED(overrides);
  return read_file(path, overrides, count, TREADLE_RUN_SFT, config_p);
}

treadle_status treadle_rl_config_read(const char *path, const char *const *overrides, size_t count,
                                      treadle_train_config **config_p) {
  TREADLE_NEED(config_p);
  *config_p = NULL;
  TREADLE_NEED(path);
  if (count) TREADLE_NEED(overrides);
  return read_file(path, overrides, count, TREADLE_RUN_RL, config_p);
}

void treadle_train_config_destroy(treadle_train_config *config) {
  if (!config) return;
  treadle_array_release(&config->warnings);
  treadle_arena_release(&config->arena);
  treadle_free(config);
}

const char *const *treadle_train_config_warnings(const treadle_train_config *config, size_t *count_p) {
  if (count_p) *count_p = 0;
  TREADLE_NEED_OR(config, NULL);
  TREADLE_NEED_OR(count_p, NULL);
  *count_p = config->warnings.count;
  return config->warnings.items;
}
