#include "io/path.h"

#include <stdio.h>

treadle_status treadle_path_join(const char *folder, const char *name, treadle_path *path_p) {
  int length = snprintf(path_p->text, sizeof path_p->text, "%s/%s", folder, name);
  if (length < 0 || (size_t)length >= sizeof path_p->text)
    REFUSE("%s/%s: the path is too long", folder, name);
  return TREADLE_OK;
}
