/* What a converted folder was made of: treadle-origin.json in it, with the layout, and name, size and time of the last write of each file of the
 * model. By it a later run knows whether the folder is what it would make itself. */
#ifndef TREADLE_CONVERT_ORIGIN_H
#define TREADLE_CONVERT_ORIGIN_H

#include "model/model.h"

#define TREADLE_ORIGIN_FILE "treadle-origin.json"

treadle_status treadle_origin_write(const char *folder, const treadle_model *model, const char *layout);
/* *there_p: there is such a folder. Refused: it is of another layout, of files that have changed since, or nobody says of what. */
treadle_status treadle_origin_check(const char *folder, const treadle_model *model, const char *layout,
                                    bool *there_p);
/* The layout that it says; *layout_p is NULL where it does not. Else it is ended by free(). */
treadle_status treadle_origin_layout(const char *folder, char **layout_p);

#endif
