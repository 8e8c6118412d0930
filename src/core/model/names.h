/* The names of a checkpoint in the family's own form: other prefixes replaced, and what each name is for. */
#ifndef TREADLE_MODEL_NAMES_H
#define TREADLE_MODEL_NAMES_H

#include "model/model.h"

typedef enum treadle_name_role {
  TREADLE_ROLE_NONE,    /* nobody has asked for it: left over in the end */
  TREADLE_ROLE_CARRIED, /* no part of the language model */
  TREADLE_ROLE_SKIPPED, /* a buffer that no engine loads */
  TREADLE_ROLE_TENSOR,  /* values of a canonical tensor, or a copy of one */
  TREADLE_ROLE_SCALES   /* block scales of values */
} treadle_name_role;

typedef struct treadle_names {
  const treadle_checkpoint *checkpoint;
  const char **names;       /* by tensor of the checkpoint: in the family's form */
  uint8_t *roles;           /* treadle_name_role */
  treadle_hash_map by_name; /* of what is neither carried nor skipped; of two with one name the first */
} treadle_names;

/* Fills in a zeroed struct, whose arrays lie in the arena. Roles are CARRIED, SKIPPED or NONE. */
treadle_status treadle_names_make(const treadle_family *family, const treadle_checkpoint *checkpoint,
                                  treadle_arena *arena, treadle_names *names);
void treadle_names_release(treadle_names *names);

/* Position in the checkpoint of a name in the family's form; -1: it is not there. */
int32_t treadle_names_find(const treadle_names *names, const char *name);

/* How many MTP layers the model has by these files: none where no name is of one, the model's own where it has
 * some, else as many as the names speak of. */
treadle_status treadle_names_mtp_layers(const treadle_model *model, const treadle_checkpoint *checkpoint,
                                        int32_t *layers_p);

#endif
