/* The notes of a model, a line at a time: what was taken in another way than its config or its files say. */
#ifndef TREADLE_MODEL_NOTES_H
#define TREADLE_MODEL_NOTES_H

#include "model/model.h"

/* Each line goes to `tell`; NULL: nobody is told. */
void treadle_model_tell(const treadle_model *model, void (*tell)(void *context, const char *line),
                        void *context);

#endif
