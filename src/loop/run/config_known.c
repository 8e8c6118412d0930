/* Names of other keys: which of them treadle knows, and what becomes of one. The facts are in others_*.c, what may only say what treadle does
 * anyway in config_limits.c. What holds for a section holds for every path below it that has no row of its own: the nearest one above counts. */
#include "run/config.h"
#include "run/others.h"

#include <stdio.h>
#include <string.h>

/* Sections of MindSpeed-RL, of verl (with Hydra's own) and of RLinf. */
static const char *const sections[] = {
    "defaults",
    "generate_config",
    "rl_config",
    "ref_config",
    "reward_config",
    "critic_config",
    "vit_config",
    "profiler_config",
    "msprobe_config",
    "model",

    "_target_",
    "actor_rollout_ref",
    "algorithm",
    "critic",
    "custom_reward_function",
    "data",
    "distillation",
    "global_profiler",
    "hydra",
    "ray_init",
    "ray_kwargs",
    "reward",
    "reward_manager",
    "reward_model",
    "sandbox_fusion",
    "skip",
    "trainer",
    "transfer_queue",

    "actor",
    "cluster",
    "env",
    "fsdp",
    "inference",
    "megatron",
    "rollout",
    "runner",
};
enum { SECTIONS = sizeof sections / sizeof *sections, PATH = TREADLE_TRAIN_PATH };

void treadle_train_as_fact(char to[PATH], const char *path) {
  static const char actor[] = "actor_config";
  const char *rest = treadle_text_starts(path, actor) ? path + sizeof actor - 1 : NULL;
  if (rest && (*rest == '.' || !*rest))
    snprintf(to, PATH, "megatron_training%s", rest);
  else
    snprintf(to, PATH, "%s", treadle_train_short_path(path));
}

static treadle_train_name_type known_in_sft(const char *path, const treadle_train_limit **limit_p) {
  char fact[PATH];
  *limit_p = treadle_train_limit_find(path, TREADLE_RUN_SFT);
  if (*limit_p) return TREADLE_KNOWN_ONLY;
  treadle_train_as_fact(fact, path);
  return treadle_text_starts(fact, "megatron_training.") && treadle_train_other_find(fact)
             ? TREADLE_KNOWN_IGNORED
             : TREADLE_KNOWN_NOT;
}

/* By the row of this path, or of a section above it. `model` is MindSpeed-RL's own section; RLinf's actor.model is none of its parts. */
static treadle_train_name_type known_by(const char *path, bool is_above,
                                        const treadle_train_limit **limit_p) {
  char fact[PATH];
  const treadle_key_info *row;
  treadle_train_as_fact(fact, path);
  *limit_p = treadle_train_limit_find(path, TREADLE_RUN_RL);
  if (*limit_p) return TREADLE_KNOWN_ONLY;
  if (strcmp(path, "actor.model") == 0) return TREADLE_KNOWN_NOT;
  row = treadle_train_other_find(fact);
  if (!row || (is_above && row->effect != TREADLE_EFFECT_NONE)) return TREADLE_KNOWN_NOT;
  if (row->effect == TREADLE_EFFECT_NONE) return TREADLE_KNOWN_IGNORED;
  return treadle_train_key_find(path, TREADLE_RUN_RL) < 0 ? TREADLE_KNOWN_BY_RULE : TREADLE_KNOWN_NOT;
}

treadle_train_name_type treadle_train_known_key(const char *path, treadle_train_run run,
                                                const treadle_train_limit **limit_p) {
  char above[PATH], *dot;
  treadle_train_name_type type;
  *limit_p = NULL;
  if (strlen(path) >= PATH) return TREADLE_KNOWN_NOT;
  if (strcmp(strrchr(path, '.') ? strrchr(path, '.') + 1 : path, "_target_") == 0)
    return TREADLE_KNOWN_IGNORED;
  if (run != TREADLE_RUN_RL) return known_in_sft(path, limit_p);
  type = known_by(path, false, limit_p);
  snprintf(above, sizeof above, "%s", path);
  while (type == TREADLE_KNOWN_NOT && (dot = strrchr(above, '.'))) {
    *dot = 0;
    type = known_by(above, true, limit_p);
  }
  return type;
}

const char *treadle_train_ignored_section(const char *path) {
  char fact[PATH];
  const treadle_key_info *row;
  if (strlen(path) >= PATH || strcmp(strrchr(path, '.') ? strrchr(path, '.') + 1 : path, "_target_") == 0)
    return NULL;
  treadle_train_as_fact(fact, path);
  if (treadle_train_other_find(fact)) return NULL;
  for (char *dot; (dot = strrchr(fact, '.'));) {
    *dot = 0;
    if ((row = treadle_train_other_find(fact))) return row->path;
  }
  return NULL;
}

bool treadle_train_other_is_section(const char *path, treadle_train_run run) {
  char fact[PATH];
  size_t length;
  if (run != TREADLE_RUN_RL || strlen(path) >= PATH) return false;
  treadle_train_as_fact(fact, path);
  length = strlen(fact);
  for (int i = 0; i < TREADLE_TRAIN_OTHERS; i++)
    for (size_t j = 0; j < treadle_train_others_all[i]->count; j++) {
      const char *row = treadle_train_others_all[i]->rows[j].path;
      if (strncmp(row, fact, length) == 0 && row[length] == '.') return true;
    }
  return false;
}

bool treadle_train_known_section(const char *name, treadle_train_run run) {
  if (run == TREADLE_RUN_RL && (strcmp(name, "generate_config") == 0 || strcmp(name, "rl_config") == 0))
    return false;
  for (int i = 0; i < SECTIONS; i++)
    if (strcmp(name, sections[i]) == 0) return true;
  return false;
}

bool treadle_train_known_section_of(const char *path, treadle_train_run run) {
  char name[64];
  size_t length = strcspn(path, ".");
  if (length >= sizeof name) return false;
  memcpy(name, path, length);
  name[length] = 0;
  return treadle_train_known_section(name, run);
}

const char *treadle_train_key_nearest(const char *name, treadle_train_run run) {
  enum { SHORT = 6, MOST = 512 };
  static const char megatron[] = "megatron_training.";
  const treadle_key_set *facts = &treadle_train_others_mindspeed;
  const char *names[MOST + 1];
  const size_t length = strlen(name);
  int count = 0;
  for (int i = 0; i < TREADLE_TRAIN_KEYS && count < MOST; i++)
    if (treadle_train_key_is_of(&treadle_train_keys[i], run)) names[count++] = treadle_train_keys[i].key;
  for (int i = 0; i < TREADLE_TRAIN_LIMITS && count < MOST; i++)
    if (!strchr(treadle_train_limits[i].path, '.')) names[count++] = treadle_train_limits[i].path;
  for (size_t i = 0; i < facts->count && count < MOST; i++)
    if (treadle_text_starts(facts->rows[i].path, megatron))
      names[count++] = facts->rows[i].path + sizeof megatron - 1;
  names[count] = NULL;
  for (int i = 0; i < count && length >= SHORT; i++) /* a name that was cut short */
    if (strncmp(names[i], name, length) == 0 && names[i][length] == '_') return names[i];
  return treadle_nearest_name(name, names);
}

const char *treadle_train_section_nearest(const char *name) {
  const char *names[SECTIONS + 3] = {"megatron_training", "actor_config"};
  memcpy(names + 2, sections, sizeof sections);
  names[SECTIONS + 2] = NULL;
  return treadle_nearest_name(name, names);
}
