/* What readers of a configuration share: a value on its way from the file or an override to its key. */
#ifndef TREADLE_RUN_CONFIG_GIVEN_H
#define TREADLE_RUN_CONFIG_GIVEN_H

#include "io/json.h"
#include "io/yaml.h"
#include "run/config.h"

typedef struct treadle_config_reader {
  treadle_train_config *config;
  treadle_train_names names;
  treadle_builder ignored;  /* names with their lines, and commas between */
  const char *last_ignored; /* the section whose rows were ignored last */
  treadle_builder refused;  /* messages, a line each */
  int refusals;
  json_t *maps[TREADLE_TRAIN_KEYS];    /* of keys that are maps */
  bool has_critic;                     /* the estimator is gae */
  struct treadle_switch_values *asked; /* of TREADLE_RUN_SWITCH (config_switch.h); NULL: of others */
} treadle_config_reader;

/* A value on its way to its key. */
typedef struct treadle_given_value {
  const char *path;
  const treadle_yaml *node; /* NULL: an override */
  const char *text;         /* NULL: a list or a map */
  int line;                 /* of its key in the file */
} treadle_given_value;

static inline treadle_status treadle_given_no_memory(const treadle_train_config *config) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its settings", config->file);
}
/* "FILE:12: actor_config.lr", which begins a message; "override actor_config.lr" with line 0. */
const char *treadle_given_head_at(const treadle_train_config *config, const char *path, int line);
const char *treadle_given_head(const treadle_config_reader *reader, const treadle_given_value *given);
/* Is this path of one of verl's sections? */
bool treadle_given_is_of_verl(const char *path);
/* As numbers, as truths, or as words. */
bool treadle_given_is_same(const char *a, const char *b);
/* Is there an override of this very path? */
bool treadle_given_is_overridden(const treadle_config_reader *reader, const char *path);
/* Notes it for the key, or refuses it: values are read when all of them are known. */
treadle_status treadle_given_take(treadle_config_reader *reader, int key, const treadle_given_value *given);
/* Refused, unless it says what is done anyway. */
treadle_status treadle_given_check_limit(const treadle_config_reader *reader,
                                         const treadle_given_value *given,
                                         const treadle_train_limit *limit);
/* A refusal is kept, and the others are looked for, too; what else fails, fails. */
treadle_status treadle_given_note_refusal(treadle_config_reader *reader, treadle_status status);
/* All refusals, in one message. */
treadle_status treadle_given_refuse_all(const treadle_config_reader *reader);
void treadle_given_ignore(treadle_config_reader *reader, const treadle_given_value *given);
/* config_read.c: all keys of a section; NULL: of the file. */
treadle_status treadle_given_walk(treadle_config_reader *reader, const char *section,
                                  const treadle_yaml *map);
/* config_switch.c: whose file it is; one key of it; what all of them say. */
treadle_status treadle_asked_begin(treadle_config_reader *reader, const treadle_yaml *root);
treadle_status treadle_asked_place(treadle_config_reader *reader, const treadle_given_value *given);
treadle_status treadle_asked_settle(treadle_config_reader *reader);
/* config_map.c: all of a map, or with `rest` a path of it. */
treadle_status treadle_given_take_map(treadle_config_reader *reader, int key, const char *rest,
                                      const treadle_given_value *given);
/* config_overrides.c: an override that nobody could take; its path; one that chooses a file of a group; a list of defaults. */
treadle_status treadle_override_check(const treadle_train_config *config, const char *text);
const char *treadle_override_path(const char *text);
treadle_status treadle_override_check_group(const treadle_config_reader *reader,
                                            const treadle_given_value *given);
treadle_status treadle_given_check_defaults(treadle_config_reader *reader,
                                            const treadle_given_value *given);
/* config_others.c: a value in treadle's words; and what keys of RLinf say together, when all are known. */
treadle_status treadle_others_take_word(treadle_config_reader *reader, int key, treadle_given_value *given);
treadle_status treadle_others_settle(treadle_config_reader *reader);
/* config_critic.c: has the run a critic? A key, or -1, of a path: *taken_p: it is done with. */
treadle_status treadle_critic_look(treadle_config_reader *reader);
treadle_status treadle_critic_place(treadle_config_reader *reader, const treadle_given_value *given,
                                    int key, bool *taken_p);
/* config_reward.c: the same of a reward model. */
treadle_status treadle_reward_look(treadle_config_reader *reader);
treadle_status treadle_reward_place(treadle_config_reader *reader, const treadle_given_value *given,
                                    int key, bool *taken_p);
/* config_reference.c: a path of ref_config that is not a key: *taken_p: it is done with. */
treadle_status treadle_reference_place(treadle_config_reader *reader, const treadle_given_value *given,
                                       int key, bool *taken_p);
/* With what may be meant. */
treadle_status treadle_given_refuse(const treadle_config_reader *reader, const treadle_given_value *given);

#endif
