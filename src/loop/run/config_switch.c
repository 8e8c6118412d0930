/* A configuration of others, read for what a switch of its run would be. */
#include "run/config_switch.h"

#include "base/argument.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "io/file.h"

#include <string.h>

struct treadle_switch_config {
  treadle_train_config *config;
};

enum { PATH = TREADLE_TRAIN_PATH };

static const treadle_switch_project *const projects[] = {&treadle_switch_mindspeed, &treadle_switch_rlinf,
                                                         &treadle_switch_verl};
enum { PROJECTS = sizeof projects / sizeof *projects };

/* ---- Whose file it is ------------------------------------------------------------------------------------- */

/* Is it that section, or a path of one of its keys? - is _, as MindSpeed-RL reads it. */
static bool is_named(const char *key, const char *name) {
  while (*key && (*key == '-' ? '_' : *key) == *name) key++, name++;
  return (!*key || *key == '.') && !*name;
}

/* Whose section this is; NULL: that of none, or of several. */
static const treadle_switch_project *project_of(const char *key, const char **section_p) {
  for (int i = 0; i < PROJECTS; i++)
    for (int j = 0; projects[i]->sections[j]; j++)
      if (is_named(key, projects[i]->sections[j])) {
        *section_p = projects[i]->sections[j];
        return projects[i];
      }
  return NULL;
}

static treadle_status recognise(treadle_config_reader *reader, const treadle_yaml *root) {
  struct treadle_switch_values *asked = reader->asked;
  const char *file = reader->config->file, *section = NULL, *first = NULL;
  int line = 0;
  for (size_t i = 0; i < root->count; i++) {
    const treadle_switch_project *project = project_of(root->keys[i], &section);
    if (!project || project == asked->project) continue;
    if (asked->project)
      REFUSE("%s:%d: %s is %s's, and %s on line %d %s's: a file is of one project", file,
             root->key_lines[i], section, project->facts->whose, first, line, asked->project->facts->whose);
    asked->project = project;
    first = section;
    line = root->key_lines[i];
  }
  if (!asked->project)
    REFUSE(
        "%s:1: has no section of MindSpeed-RL (actor_config, generate_config), RLinf (actor, rollout) or "
        "verl (actor_rollout_ref)",
        file);
  return TREADLE_OK;
}

treadle_status treadle_asked_begin(treadle_config_reader *reader, const treadle_yaml *root) {
  treadle_train_config *config = reader->config;
  config->asked = reader->asked = treadle_arena_alloc(&config->arena, sizeof *config->asked);
  if (!config->asked) return treadle_given_no_memory(config);
  config->asked->highest = -1;
  return recognise(reader, root);
}

/* ---- Keys ------------------------------------------------------------------------------------------------- */

/* The row of a key that is heard; NULL: it is not. */
static const treadle_switch_row *find_row(const treadle_switch_project *project, const char *fact) {
  for (size_t i = 0; i < project->count; i++)
    if (strcmp(project->rows[i].path, fact) == 0) return &project->rows[i];
  return NULL;
}

static const treadle_train_limit *find_limit(const treadle_switch_project *project, const char *fact) {
  for (size_t i = 0; i < project->limit_count; i++)
    if (strcmp(project->limits[i].path, fact) == 0) return &project->limits[i];
  return NULL;
}

static bool is_below(const char *path, const char *section) {
  const size_t length = strlen(section);
  return strncmp(path, section, length) == 0 && path[length] == '.';
}

static bool has_rows_below(const treadle_switch_project *project, const char *fact) {
  bool has = false;
  for (size_t i = 0; i < project->count; i++) has = has || is_below(project->rows[i].path, fact);
  for (size_t i = 0; i < project->limit_count; i++) has = has || is_below(project->limits[i].path, fact);
  for (size_t i = 0; i < project->facts->count && !has; i++)
    has = is_below(project->facts->rows[i].path, fact);
  return has;
}

/* By its own row of the facts, or that of a section above that does nothing. Hydra's own keys are in files of all. */
static bool is_known(const treadle_switch_project *project, const char *path, const char *fact) {
  const char *name = strrchr(fact, '.'), *whose = project->facts->whose, *rest;
  const treadle_key_info *row = treadle_train_other_of(whose, fact);
  char above[PATH];
  if (row || strcmp(name ? name + 1 : fact, "_target_") == 0 || strcmp(fact, "hydra") == 0) return true;
  if (project == &treadle_switch_mindspeed && (treadle_train_key_find(path, TREADLE_RUN_RL) >= 0 ||
                                               treadle_train_key_above(path, TREADLE_RUN_RL, &rest) >= 0))
    return true; /* treadle's own, in a file of this form */
  snprintf(above, sizeof above, "%s", fact);
  for (char *dot; !row && (dot = strrchr(above, '.'));) {
    *dot = 0;
    row = treadle_train_other_of(whose, above);
  }
  return (row && row->effect == TREADLE_EFFECT_NONE) || is_below(fact, "hydra");
}

/* With the nearest name of the same section. */
static treadle_status refuse(const treadle_config_reader *reader, const treadle_given_value *given,
                             const char *fact) {
  enum { MOST = 512 };
  const treadle_switch_project *project = reader->asked->project;
  const char *names[MOST + 1], *own = strrchr(fact, '.'), *nearest;
  const size_t section = own ? (size_t)(own - fact) + 1 : 0;
  int count = 0;
  for (size_t i = 0; i < project->facts->count && count < MOST; i++) {
    const char *path = project->facts->rows[i].path;
    if (strncmp(path, fact, section) == 0 && !strchr(path + section, '.')) names[count++] = path + section;
  }
  for (size_t i = 0; i < project->count && count < MOST; i++) {
    const char *path = project->rows[i].path;
    if (strncmp(path, fact, section) == 0 && !strchr(path + section, '.')) names[count++] = path + section;
  }
  for (int i = 0; !section && project->sections[i] && count < MOST; i++)
    names[count++] = project->sections[i];
  names[count] = NULL;
  nearest = treadle_nearest_name(fact + section, names);
  REFUSE("%s: no key of %s that is known here%s%s%s", treadle_given_head(reader, given),
         project->facts->whose, nearest ? "; did you mean '" : "; leave it out if no weight depends on it",
         nearest ? nearest : "", nearest ? "'?" : "");
}

/* ---- Values ----------------------------------------------------------------------------------------------- */

/* A list, where one may stand, as text with commas between its items. */
static treadle_status text_of(const treadle_config_reader *reader, const treadle_given_value *given,
                              bool takes_list, const char **text_p) {
  treadle_builder text = {0};
  treadle_status status = TREADLE_OK;
  *text_p = given->text;
  if (given->text)
    return treadle_train_expand(&reader->names, treadle_given_head(reader, given), given->path, given->text,
                                text_p);
  const bool is_list = takes_list && given->node->type == TREADLE_YAML_LIST;
  for (size_t i = 0; is_list && i < given->node->count; i++)
    if (given->node->items[i]->text)
      treadle_builder_add(&text, "%s%s", i ? "," : "", given->node->items[i]->text);
  if (text.failed) {
    status = treadle_given_no_memory(reader->config);
  } else if (text.text) {
    *text_p = treadle_arena_copy_text(&reader->config->arena, text.text);
    if (!*text_p) status = treadle_given_no_memory(reader->config);
  }
  treadle_builder_release(&text);
  return status;
}

/* Both say the same thing: the first of the rows counts, and of MindSpeed-RL's two sections actor_config. */
static treadle_status give_again(treadle_config_reader *reader, treadle_switch_value *old,
                                 const treadle_switch_value *new) {
  treadle_train_config *config = reader->config;
  const bool is_first =
      new->row != old->row ? new->row < old->row : treadle_text_starts(new->path, "actor_config.");
  const treadle_switch_value counts = is_first ? *new : *old, other = is_first ? *old : *new;
  *old = counts;
  if (treadle_given_is_same(counts.text, other.text)) return TREADLE_OK;
  return treadle_train_config_warn(
      config, treadle_arena_format(&config->arena, "%s:%d: %s gives way to %s on line %d", config->file,
                                   other.line, other.path, counts.path, counts.line));
}

static treadle_status take(treadle_config_reader *reader, const treadle_switch_row *row,
                           const treadle_given_value *given) {
  struct treadle_switch_values *asked = reader->asked;
  treadle_switch_value *value = &asked->of[row->ask],
                       new = {given->path, NULL, given->line, (size_t)(row - asked->project->rows),
                              false,       false};
  treadle_status status;
  if (given->node && treadle_given_is_overridden(reader, given->path)) return TREADLE_OK;
  TRY(text_of(reader, given, row->ask == TREADLE_ASK_LAYER_LIST, &new.text));
  if (!new.text)
    REFUSE("%s is a %s, and must be one value", treadle_given_head(reader, given),
           given->node->type == TREADLE_YAML_LIST ? "list" : "map");
  new.is_missing = strcmp(new.text, "???") == 0;
  if (new.is_missing && row->ask != TREADLE_ASK_ENGINE)
    REFUSE("%s is ???, which leaves the value to who runs it: give one", treadle_given_head(reader, given));
  if (new.is_missing || treadle_train_is_null(new.text)) new.text = NULL;
  if (given->node && value->text && new.text) return give_again(reader, value, &new);
  if (new.text || !given->node || new.is_missing) *value = new;
out:
  return status;
}

/* No value says a thing by the environment, also none that does nothing here; but for an override. */
static treadle_status check_environment(const treadle_config_reader *reader, const char *path, int line,
                                        const treadle_yaml *node) {
  static const char environment[] = "${oc.env:";
  const char *at = node->text ? strstr(node->text, environment) : NULL;
  treadle_status status = TREADLE_OK;
  if (treadle_given_is_overridden(reader, path)) return TREADLE_OK;
  if (at) {
    const char *name = at + sizeof environment - 1;
    REFUSE(
        "%s: ${oc.env:%.*s} is of the environment, which is not read; give the value itself as an override",
        treadle_given_head_at(reader->config, path, line), (int)strcspn(name, ",}"),
        treadle_text_shown(name));
  }
  for (size_t i = 0; i < node->count; i++) {
    const bool is_map = node->type == TREADLE_YAML_MAP;
    const char *inner =
        is_map ? treadle_arena_format(&reader->config->arena, "%s.%s", path, node->keys[i]) : path;
    if (!inner) return treadle_given_no_memory(reader->config);
    TRY(check_environment(reader, inner, is_map ? node->key_lines[i] : node->items[i]->line,
                          node->items[i]));
  }
out:
  return status;
}

static treadle_status check_limit(treadle_config_reader *reader, const treadle_given_value *given,
                                  const treadle_train_limit *limit) {
  treadle_given_value whole = *given;
  treadle_status status;
  if (given->node && treadle_given_is_overridden(reader, given->path)) return TREADLE_OK;
  if (given->text)
    TRY(treadle_train_expand(&reader->names, treadle_given_head(reader, given), given->path, given->text,
                             &whole.text));
  status = treadle_given_check_limit(reader, &whole, limit);
out:
  return status;
}

/* cluster.component_placement of a file, and of an override one component of it. */
static treadle_status place_all(treadle_config_reader *reader, const treadle_given_value *given) {
  const treadle_yaml *map = given->node;
  treadle_status status = TREADLE_OK;
  if (!map || map->type != TREADLE_YAML_MAP)
    REFUSE("%s must be a map of components, as actor,rollout: 0-3", treadle_given_head(reader, given));
  for (size_t i = 0; i < map->count; i++) {
    treadle_given_value one = {
        treadle_arena_format(&reader->config->arena, "%s.%s", given->path, map->keys[i]), map->items[i],
        map->items[i]->text, map->key_lines[i]};
    if (!one.path) return treadle_given_no_memory(reader->config);
    if (treadle_given_is_overridden(reader, one.path)) continue;
    TRY(treadle_given_note_refusal(reader, treadle_asked_place_components(reader, map->keys[i], &one)));
  }
out:
  return status;
}

treadle_status treadle_asked_place(treadle_config_reader *reader, const treadle_given_value *given) {
  static const char placement[] = "cluster.component_placement";
  const treadle_switch_project *project = reader->asked->project;
  const treadle_switch_row *row;
  const treadle_train_limit *limit;
  const bool is_map = given->node && given->node->type == TREADLE_YAML_MAP;
  char fact[PATH];
  treadle_status status;
  if (strlen(given->path) >= PATH) REFUSE("%s: is too long", treadle_given_head(reader, given));
  treadle_train_as_fact(fact, given->path);
  if (given->node && strcmp(fact, "defaults") == 0) return treadle_given_check_defaults(reader, given);
  row = find_row(project, fact);
  if (row && row->ask == TREADLE_ASK_PLACEMENT) return place_all(reader, given);
  if (project == &treadle_switch_rlinf && is_below(fact, placement))
    return treadle_asked_place_components(reader, fact + sizeof placement, given);
  if (row) return take(reader, row, given);
  if ((limit = find_limit(project, fact)) && !(is_map && has_rows_below(project, fact)))
    return check_limit(reader, given, limit);
  if (is_map && given->node->count && has_rows_below(project, fact))
    return treadle_given_walk(reader, given->path, given->node);
  if (given->node && strcmp(fact, "hydra") != 0)
    TRY(check_environment(reader, given->path, given->line, given->node));
  if (is_known(project, given->path, fact)) {
    treadle_given_ignore(reader, given);
    return TREADLE_OK;
  }
  if (given->node && has_rows_below(project, fact)) {
    if (is_map || (given->text && treadle_train_is_null(given->text))) return TREADLE_OK;
    REFUSE("%s is a section: it must be a map of keys", treadle_given_head(reader, given));
  }
  if (strchr(fact, '.') && treadle_train_is_name(&reader->names, given->path)) return TREADLE_OK;
  return refuse(reader, given, fact);
out:
  return status;
}

treadle_status treadle_asked_settle(treadle_config_reader *reader) {
  struct treadle_switch_values *asked = reader->asked;
  treadle_status status;
  asked->info.source = asked->project->facts->whose;
  TRY(asked->project->settle(reader));
  for (int i = 0; i < TREADLE_ASKS; i++) {
    const treadle_switch_value *value = &asked->of[i];
    const treadle_yaml node = {.type = TREADLE_YAML_SCALAR, .text = value->text};
    const treadle_given_value given = {value->path, value->line ? &node : NULL, value->text, value->line};
    if (value->text && !value->is_used) treadle_given_ignore(reader, &given);
  }
out:
  return status;
}

/* ---- The whole -------------------------------------------------------------------------------------------- */

treadle_status treadle_switch_config_read(const char *path, const char *const *overrides, size_t count,
                                          treadle_switch_config **config_p) {
  treadle_switch_config *config = NULL;
  treadle_status status;
  TREADLE_NEED(config_p);
  *config_p = NULL;
  TREADLE_NEED(path);
  if (count) TREADLE_NEED(overrides);
  config = treadle_alloc(sizeof *config);
  if (!config) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its settings", path));
  TRY(treadle_train_config_open(path, overrides, count, TREADLE_RUN_SWITCH, &config->config));
  *config_p = config;
out:
  if (status) treadle_free(config);
  return status;
}

void treadle_switch_config_destroy(treadle_switch_config *config) {
  if (!config) return;
  treadle_train_config_destroy(config->config);
  treadle_free(config);
}

void treadle_switch_config_get_info(const treadle_switch_config *config,
                                    treadle_switch_config_info *info_p) {
  static const treadle_switch_config_info nothing = {0};
  TREADLE_NEED_SIZED_ONLY(info_p);
  TREADLE_GIVE(info_p, &nothing);
  TREADLE_NEED_ONLY(config);
  TREADLE_GIVE(info_p, &config->config->asked->info);
}

const char *const *treadle_switch_config_warnings(const treadle_switch_config *config, size_t *count_p) {
  if (count_p) *count_p = 0;
  TREADLE_NEED_OR(config, NULL);
  TREADLE_NEED_OR(count_p, NULL);
  return treadle_train_config_warnings(config->config, count_p);
}
