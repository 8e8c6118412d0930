/* A configuration from YAML and overrides. The tree of the file is walked as paths: a path is a key of the table, a known name, a section,
 * or refused. What is given for each key is noted first; values are read when all of it is known. */
#include "run/config_given.h"

#include "base/argument.h"
#include "base/real.h"
#include "base/utf8.h"
#include "io/file.h"
#include "treadle_control.h"

#include <stdio.h>
#include <string.h>

enum { LARGEST_FILE = 16 << 20 };

/* ---- The walk ------------------------------------------------------------------------------------------- */

/* What has a value here: a key, or a name that has one value alone. */
static treadle_status take_value(treadle_config_reader *reader, const treadle_given_value *given, int key,
                                 const treadle_train_limit *limit) {
  treadle_given_value whole = *given;
  treadle_status status;
  if (given->node && treadle_given_is_overridden(reader, given->path)) return TREADLE_OK;
  if (given->text) {
    TRY(treadle_train_expand(&reader->names, treadle_given_head(reader, given), given->path, given->text,
                             &whole.text));
    TRY(treadle_others_take_word(reader, key, &whole));
    if (key >= 0 && strcmp(whole.text, "???") == 0)
      REFUSE("%s is ???, which leaves the value to who runs it: give one",
             treadle_given_head(reader, given));
  }
  status =
      key >= 0 ? treadle_given_take(reader, key, &whole) : treadle_given_check_limit(reader, &whole, limit);
out:
  return status;
}

static bool has_rows_below(const char *path, treadle_train_run run) {
  return treadle_train_key_is_section(path, run) || treadle_train_limit_is_section(path, run) ||
         treadle_train_other_is_section(path, run);
}

/* A name of reinforcement learning alone, which other runs have no use of. */
static bool is_for_rl(const treadle_given_value *given) {
  const char *rest = NULL;
  return treadle_train_key_find(given->path, TREADLE_RUN_RL) >= 0 ||
         treadle_train_key_above(given->path, TREADLE_RUN_RL, &rest) >= 0 ||
         treadle_train_key_is_section(given->path, TREADLE_RUN_RL);
}

/* What is not a key with a value: sections, names without effect, and names that nobody knows. */
static treadle_status place_other(treadle_config_reader *reader, const treadle_given_value *given,
                                  treadle_train_name_type known, const treadle_train_limit *limit) {
  const treadle_train_run run = reader->config->run;
  const bool is_map = given->node && given->node->type == TREADLE_YAML_MAP;
  if (is_map && given->node->count && has_rows_below(given->path, run))
    return treadle_given_walk(reader, given->path, given->node);
  if (known == TREADLE_KNOWN_ONLY) return take_value(reader, given, -1, limit);
  if (known == TREADLE_KNOWN_BY_RULE) return TREADLE_OK;
  if (known == TREADLE_KNOWN_NOT && given->node && has_rows_below(given->path, run)) {
    if (is_map || (given->text && treadle_train_is_null(given->text))) return TREADLE_OK;
    if (run == TREADLE_RUN_RL || !treadle_train_known_section_of(given->path, run))
      REFUSE("%s is a section: it must be a map of keys", treadle_given_head(reader, given));
  }
  if (run == TREADLE_RUN_RL && known == TREADLE_KNOWN_NOT &&
      treadle_train_known_section_of(given->path, run) &&
      treadle_train_is_name(&reader->names, given->path))
    return TREADLE_OK; /* a name that another value refers to */
  if (run == TREADLE_RUN_SFT && known == TREADLE_KNOWN_NOT && is_for_rl(given)) {
    treadle_given_ignore(reader, given);
    return TREADLE_OK;
  }
  if (known == TREADLE_KNOWN_NOT &&
      (run == TREADLE_RUN_RL || !treadle_train_known_section_of(given->path, run)))
    return treadle_given_refuse(reader, given);
  const char *meant = known == TREADLE_KNOWN_NOT ? treadle_train_key_meant(given->path, run) : NULL;
  if (meant)
    REFUSE("%s: there is no such key; did you mean '%s'?", treadle_given_head(reader, given), meant);
  treadle_given_ignore(reader, given);
  return TREADLE_OK;
}

static treadle_status place(treadle_config_reader *reader, const treadle_given_value *given) {
  const treadle_train_limit *limit = NULL;
  const treadle_train_run run = reader->config->run;
  const char *rest = NULL;
  bool taken = false;
  if (run == TREADLE_RUN_SWITCH) return treadle_asked_place(reader, given);
  const int key = treadle_train_key_find(given->path, run),
            above = key < 0 ? treadle_train_key_above(given->path, run, &rest) : -1;
  if (run == TREADLE_RUN_RL) {
    treadle_status status = treadle_critic_place(reader, given, key, &taken);
    if (!status && !taken) status = treadle_reward_place(reader, given, key, &taken);
    if (!status && !taken) status = treadle_reference_place(reader, given, key, &taken);
    if (status || taken) return status;
  }
  if (above >= 0) return treadle_given_take_map(reader, above, rest, given);
  if (key >= 0 && treadle_train_keys[key].type == TREADLE_KEY_MAP)
    return treadle_given_take_map(reader, key, NULL, given);
  if (key >= 0) return take_value(reader, given, key, NULL);
  if (run == TREADLE_RUN_RL && strcmp(given->path, "defaults") == 0 && given->node)
    return treadle_given_check_defaults(reader, given);
  const treadle_train_name_type known = treadle_train_known_key(given->path, run, &limit);
  return place_other(reader, given, known, limit);
}

/* "section.key", with _ for each - as MindSpeed-RL reads keys. */
static const char *join(treadle_train_config *config, const char *section, const char *key) {
  char *path =
      treadle_arena_format(&config->arena, "%s%s%s", section ? section : "", section ? "." : "", key);
  for (char *at = path; at && *at; at++)
    if (*at == '-') *at = '_';
  return path;
}

treadle_status treadle_given_walk(treadle_config_reader *reader, const char *section,
                                  const treadle_yaml *map) {
  for (size_t i = 0; i < map->count; i++) {
    treadle_given_value given = {join(reader->config, section, map->keys[i]), map->items[i],
                                 map->items[i]->text, map->key_lines[i]};
    if (!given.path) return treadle_given_no_memory(reader->config);
    treadle_status status = treadle_given_note_refusal(reader, place(reader, &given));
    if (status) return status;
  }
  return TREADLE_OK;
}

static treadle_status take_override(treadle_config_reader *reader, const char *text) {
  treadle_train_config *config = reader->config;
  size_t equals = strcspn(text, "=");
  char *name = treadle_arena_copy_text(&config->arena, text);
  treadle_status status;
  if (!name) return treadle_given_no_memory(config);
  name[equals] = 0;
  treadle_given_value given = {join(config, NULL, name), NULL, name + equals + 1, 0};
  if (!given.path) return treadle_given_no_memory(config);
  TRY(treadle_override_check_group(reader, &given));
  TRY(place(reader, &given));
out:
  return status;
}

/* Without the + before them. */
static treadle_status take_overrides(treadle_config_reader *reader, const char *const *overrides,
                                     size_t count) {
  const char **plain = treadle_arena_alloc_array(&reader->config->arena, count + 1, sizeof *plain);
  treadle_status status = TREADLE_OK;
  if (!plain) return treadle_given_no_memory(reader->config);
  for (size_t i = 0; i < count; i++) {
    TRY(treadle_override_check(reader->config, overrides[i]));
    plain[i] = treadle_override_path(overrides[i]);
  }
  reader->names.overrides = plain;
  reader->names.count = count;
out:
  return status;
}

/* ---- The whole ------------------------------------------------------------------------------------------- */

static treadle_status read_values(treadle_config_reader *reader) {
  treadle_train_config *config = reader->config;
  treadle_status status = TREADLE_OK;
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) {
    treadle_train_source *source = &config->sources[i];
    if (!treadle_train_key_is_of(&treadle_train_keys[i], config->run)) continue;
    if (source->from == TREADLE_FROM_OVERRIDE && treadle_train_is_null(source->text))
      source->text = treadle_train_keys[i].nothing;
    const char *where = source->name ? treadle_given_head_at(config, source->name, source->line)
                                     : treadle_train_keys[i].key;
    TRY(treadle_given_note_refusal(reader,
                                   treadle_train_key_read(&treadle_train_keys[i], where, source->text,
                                                          &config->arena, &config->settings)));
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
  TRY(take_overrides(reader, overrides, count));
  TRY(treadle_yaml_parse(config->file, text, bytes, &config->arena, &root));
  if (root->type != TREADLE_YAML_MAP) {
    status = treadle_fail(TREADLE_REFUSED, "%s:%d: must be a map of sections", config->file, root->line);
    goto out;
  }
  reader->names.root = root;
  reader->names.arena = &config->arena;
  if (config->run == TREADLE_RUN_SWITCH) TRY(treadle_asked_begin(reader, root));
  if (config->run == TREADLE_RUN_RL) TRY(treadle_critic_look(reader));
  if (config->run == TREADLE_RUN_RL) TRY(treadle_reward_look(reader));
  TRY(treadle_given_walk(reader, NULL, root));
  for (size_t i = 0; i < count; i++)
    TRY(treadle_given_note_refusal(reader, take_override(reader, reader->names.overrides[i])));
  if (config->run == TREADLE_RUN_RL) TRY(treadle_given_note_refusal(reader, treadle_others_settle(reader)));
  if (config->run == TREADLE_RUN_SWITCH)
    TRY(treadle_given_note_refusal(reader, treadle_asked_settle(reader)));
  TRY(warn_of_ignored(reader));
  TRY(read_values(reader));
  TRY(treadle_given_refuse_all(reader));
  if (config->run != TREADLE_RUN_SWITCH) TRY(treadle_train_config_settle(config));
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
  config->run = run == TREADLE_RUN_POOLS ? TREADLE_RUN_RL : run;
  config->has_pools_alone = run == TREADLE_RUN_POOLS;
  config->file = treadle_arena_copy_text(&config->arena, file);
  treadle_status status = config->file
                              ? read_all(&reader, text, bytes, overrides, count)
                              : treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its settings", file);
  treadle_builder_release(&reader.ignored);
  treadle_builder_release(&reader.refused);
  for (int i = 0; i < TREADLE_TRAIN_KEYS; i++) json_decref(reader.maps[i]);
  if (status)
    treadle_train_config_destroy(config);
  else
    *config_p = config;
  return status;
}

treadle_status treadle_train_config_open(const char *path, const char *const *overrides, size_t count,
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
  return treadle_train_config_open(path, overrides, count, TREADLE_RUN_SFT, config_p);
}

treadle_status treadle_rl_config_read(const char *path, const char *const *overrides, size_t count,
                                      treadle_train_config **config_p) {
  TREADLE_NEED(config_p);
  *config_p = NULL;
  TREADLE_NEED(path);
  if (count) TREADLE_NEED(overrides);
  return treadle_train_config_open(path, overrides, count, TREADLE_RUN_RL, config_p);
}

treadle_status treadle_rl_pools_config_read(const char *path, const char *const *overrides, size_t count,
                                            treadle_train_config **config_p) {
  TREADLE_NEED(config_p);
  *config_p = NULL;
  TREADLE_NEED(path);
  if (count) TREADLE_NEED(overrides);
  return treadle_train_config_open(path, overrides, count, TREADLE_RUN_POOLS, config_p);
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
