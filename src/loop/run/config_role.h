/* A section of a role beside the actor, whose keys are keys of actor_config, too: what is not given there is the actor's. */
#ifndef TREADLE_RUN_CONFIG_ROLE_H
#define TREADLE_RUN_CONFIG_ROLE_H

#include "run/config_given.h"

typedef struct treadle_config_role {
  treadle_train_config *config;
  size_t at;   /* of its treadle_config_actor in the settings */
  bool trains; /* else it goes forward only */
} treadle_config_role;

/* The value of the actor's key, with whether it is left out. */
void treadle_config_role_inherit(const treadle_config_role *role, int key);
/* Of those keys that are not given. */
void treadle_config_role_inherit_all(const treadle_config_role *role, const int *keys, size_t count);
treadle_status treadle_config_role_settle_micro_batch(const treadle_config_role *role);
/* How ranks divide it. A size or a layout of its own replaces all of the actor's sizes. */
treadle_status treadle_config_role_settle_layout(const treadle_config_role *role);

/* The actor has the value, at the path `twin`, too; or `whose` section says nothing. */
treadle_status treadle_config_role_check_twin(treadle_config_reader *reader,
                                              const treadle_given_value *given, const char *twin, int key,
                                              const char *whose);

/* A path that is not a key, in the section of a role that only goes forward: *taken_p: it is done with. A key of actor_config that is among
 * `shared`, ended by NULL, is that of the run; the others, such as a learning rate, are without effect. */
treadle_status treadle_config_role_place_forward(treadle_config_reader *reader,
                                                 const treadle_given_value *given, const char *whose,
                                                 const char *const *shared, bool *taken_p);

#endif
