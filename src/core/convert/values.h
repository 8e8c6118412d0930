/* A model with the values of a checkpoint of Megatron in place of its own: whoever loads weights of it, in whatever layout, gets those of the
 * checkpoint. */
#ifndef TREADLE_CONVERT_VALUES_H
#define TREADLE_CONVERT_VALUES_H

#include "model/model.h"

typedef struct treadle_values treadle_values;

/* `model` with the values of `folder`, which is in `layout` ("megatron:tp=2"). Local; `model` outlives it. Refused: what treadle_convert_open
 * refuses of such a source. */
treadle_status treadle_values_open(const treadle_model *model, const char *folder, const char *layout,
                                   treadle_values **values_p);
/* For layouts: until the close. */
const treadle_model *treadle_values_model(const treadle_values *values);
/* Takes NULL. */
void treadle_values_close(treadle_values *values);

#endif
