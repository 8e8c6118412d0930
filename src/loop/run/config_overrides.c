/* Overrides, section.key=value, as a person types them for Hydra: + and ++ before a key, which add it, are nothing here; what takes a key away or
 * chooses a file of a group is refused, since it needs the files of the other project. */
#include "run/config_given.h"

#include "base/utf8.h"

#include <string.h>

#define COMPOSE                                                                                            \
  "write what it comes to with --cfg job --resolve of the project whose file it is, and give that to "     \
  "treadle"

treadle_status treadle_override_check(const treadle_train_config *config, const char *text) {
  const char *equals = text ? strchr(text, '=') : NULL;
  if (!text) REFUSE("%s: an override is not a text (NULL)", config->file);
  if (!treadle_utf8_is_valid(text)) REFUSE("override '%s': is not UTF-8", treadle_text_shown(text));
  if (*text == '~')
    REFUSE("override '%s': a key cannot be taken away; say %.200s=null, or leave it out of the file",
           treadle_text_shown(text), text + 1);
  if (!equals || equals == text + strspn(text, "+"))
    REFUSE("override '%s': expected section.key=value", treadle_text_shown(text));
  return TREADLE_OK;
}

const char *treadle_override_path(const char *text) { return text + strspn(text, "+"); }

/* "model_engine=megatron", "actor@actor_rollout_ref.actor=megatron_actor", "algorithm=grpo" */
treadle_status treadle_override_check_group(const treadle_config_reader *reader,
                                            const treadle_given_value *given) {
  const bool is_whole = !strchr(given->path, '.');
  if (strchr(given->path, '@') || strchr(given->path, '/'))
    REFUSE("%s=%s: chooses a file of a group; " COMPOSE, treadle_given_head(reader, given),
           treadle_text_shown(given->text));
  if (!is_whole || treadle_train_is_null(given->text) || *given->text == '{') return TREADLE_OK;
  if (strcmp(given->path, "model_engine") != 0 &&
      !treadle_train_known_section(given->path, TREADLE_RUN_SFT))
    return TREADLE_OK;
  REFUSE("%s=%s: chooses a file of a group, as %s is not a single value; " COMPOSE,
         treadle_given_head(reader, given), treadle_text_shown(given->text), given->path);
}

/* What a list of defaults may name: what fills no key that changes a result. */
static bool is_harmless(const char *item) {
  item += strspn(item, "./");
  static const char *const begins[] = {"_self_", "override hydra/", "hydra/", "override /hydra/",
                                       "hybrid_engines/fsdp"};
  for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
    if (strncmp(item, begins[i], strlen(begins[i])) == 0) return true;
  return strcmp(item, "model") == 0; /* of MindSpeed-RL: the sizes of a model, which its config.json has */
}

treadle_status treadle_given_check_defaults(treadle_config_reader *reader,
                                            const treadle_given_value *given) {
  const treadle_yaml *list = given->node;
  for (size_t i = 0; list && list->type == TREADLE_YAML_LIST && i < list->count; i++) {
    const treadle_yaml *item = list->items[i];
    const char *name = item->type == TREADLE_YAML_SCALAR                    ? item->text
                       : item->type == TREADLE_YAML_MAP && item->count == 1 ? item->keys[0]
                                                                            : "";
    if (!is_harmless(name))
      REFUSE("%s:%d: defaults has '%s', of which the file takes keys of another file; " COMPOSE,
             reader->config->file, item->line, treadle_text_shown(name));
  }
  if (!list || list->type != TREADLE_YAML_LIST)
    REFUSE("%s must be a list of files", treadle_given_head(reader, given));
  treadle_given_ignore(reader, given);
  return TREADLE_OK;
}
