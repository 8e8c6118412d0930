/* A configuration from YAML and overrides. The tree of the file is walked as paths: a path is a key of the table, a known name, a section,
 * or refused. What is given for each key is noted first; values are read when all of it is known. */
#include "train/config_given.h"

#include "base/argument.h"
#include "base/real.h"
#include "base/utf8.h"
#include "io/file.h"
#include "treadle_control.h"

#include <stdio.h>
#include <string.h>

enum { LARGEST_FILE = 16 << 20 };

/* ---- The walk ------------------------------------------------------------------------------------------- */

static treadle_status walk(treadle_config_reader *reader, const char *section, const treadle_yaml *map);

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

static void take_word(treadle_given_value *given) {
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(given->path, words[i].path) == 0 && strcasecmp(given->text, words[i].from) == 0) {
      given->text = words[i].to;
      return;
    }
}

/* verl's FSDP is done as FSDP2, which differs from it in how tensors are cut alone. */
static treadle_status take_strategy(treadle_config_reader *reader, treadle_given_value *given) {
  treadle_train_config *config = reader->config;
  if (strcmp(given->text, "fsdp") != 0 || !treadle_given_is_of_verl(given->path)) return TREADLE_OK;
  given->text = "fsdp2";
  return treadle_train_config_warn(
      config, treadle_arena_format(&config->arena, "%s is fsdp: taken as fsdp2, which has the same results",
                                   treadle_given_head(reader, given)));
}

/* What has a value here: a key, or a name that has one value alone. */
static treadle_status take_value(treadle_config_reader *reader, const treadle_given_value *given, int key,
                                 const treadle_train_limit *limit) {
  treadle_given_value whole = *given;
  if (given->text) {
    treadle_status status =
        treadle_train_expand(&reader->names, treadle_given_head(reader, given), given->text, &whole.text);
    if (!status && key == TREADLE_KEY_OF(strategy)) status = take_strategy(reader, &whole);
    if (status) return status;
    take_word(&whole);
  }
  return key >= 0 ? treadle_given_take(reader, key, &whole)
                  : treadle_given_check_limit(reader, &whole, limit);
}

static treadle_status place(treadle_config_reader *reader, const treadle_given_value *given) {
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
      REFUSE("%s is a section: it must be a map of keys", treadle_given_head(reader, given));
  }
  if (known == TREADLE_KNOWN_NOT && !in_known_section(given->path, reader->config->run))
    return treadle_given_refuse(reader, given);
  const char *meant =
      known == TREADLE_KNOWN_NOT ? treadle_train_key_meant(given->path, reader->config->run) : NULL;
  if (meant)
    REFUSE("%s: there is no such key; did you mean '%s'?", treadle_given_head(reader, given), meant);
  treadle_given_ignore(reader, given);
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

static treadle_status walk(treadle_config_reader *reader, const char *section, const treadle_yaml *map) {
  for (size_t i = 0; i < map->count; i++) {
    treadle_given_value given = {join(reader->config, section, map->keys[i]), map->items[i],
                                 map->items[i]->text, map->key_lines[i]};
    if (!given.path) return treadle_given_no_memory(reader->config);
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

static treadle_status take_override(treadle_config_reader *reader, const char *text) {
  treadle_train_config *config = reader->config;
  size_t equals = strcspn(text, "=");
  char *name = treadle_arena_copy_text(&config->arena, text);
  if (!name) return treadle_given_no_memory(config);
  name[equals] = 0;
  treadle_given_value given = {join(config, NULL, name), NULL, name + equals + 1, 0};
  return given.path ? place(reader, &given) : treadle_given_no_memory(config);
}

/* ---- The whole ------------------------------------------------------------------------------------------- */

static treadle_status read_values(treadle_train_config *config) {
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    treadle_train_source *source = &config->sources[i];
    if (!treadle_train_key_is_of(&treadle_train_keys[i], config->run)) continue;
    if (source->from == TREADLE_FROM_OVERRIDE && treadle_train_is_null(source->text)) source->text = NULL;
    const char *where = source->name ? treadle_given_head_at(config, source->name, source->line)
                                     : treadle_train_keys[i].key;
    TRY(treadle_train_key_read(&treadle_train_keys[i], where, source->text, &config->arena,
                               &config->settings));
  }
out:
  return status;
}

static treadle_status warn_of_ignored(treadle_config_reader *reader) {
  treadle_train_config *config = reader->config;
  if (reader->ignored.failed) return treadle_given_no_memory(config);
  if (!reader->ignored.length) return TREADLE_OK;
  return treadle_train_config_warn(config, treadle_arena_format(&config->arena,
                                                                "%s: known, and without effect here: %s",
                                                                config->file, reader->ignored.text));
}

static treadle_status read_all(treadle_config_reader *reader, const char *text, size_t bytes,
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
  treadle_config_reader reader = {.config = config};
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
