/* Paths made of a folder and a name in it. */
#ifndef TREADLE_IO_PATH_H
#define TREADLE_IO_PATH_H

#include "base/status.h"

typedef struct treadle_path {
  char text[4096];
} treadle_path;

/* "folder/name"; Refused where that is too long. */
treadle_status treadle_path_join(const char *folder, const char *name, treadle_path *path_p);

#endif
