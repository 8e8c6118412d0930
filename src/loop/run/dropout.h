/* Dropout that a model's config asks for: treadle trains without it, and that is said. */
#ifndef TREADLE_RUN_DROPOUT_H
#define TREADLE_RUN_DROPOUT_H

#include "model/model.h"

/* One line with the config's keys goes to `tell` where a dropout is above 0; NULL: nobody is told. */
treadle_status treadle_train_tell_dropout(const treadle_model *model,
                                          void (*tell)(void *context, const char *line), void *context);

#endif
