/* A checkpoint of Megatron in place of a model's own files: whoever loads weights of the model, in whatever layout, gets those of the checkpoint. */
#ifndef TREADLE_CONVERT_VALUES_H
#define TREADLE_CONVERT_VALUES_H

#include "model/model.h"

typedef struct treadle_values treadle_values;

/* Until the close, the model's values are those of `folder`, which is in `layout` ("megatron:tp=2"). Local; the model outlives it. Refused: what
 * treadle_convert_open refuses of such a source. */
treadle_status treadle_values_open(treadle_model *model, const char *folder, const char *layout,
                                   treadle_values **values_p);
/* The model has its own again. Takes NULL. */
void treadle_values_close(treadle_values *values);

#endif
