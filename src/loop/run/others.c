#include "run/others.h"

#include <stdlib.h>
#include <string.h>

const treadle_key_set *const treadle_train_others_all[TREADLE_TRAIN_OTHERS] = {
    &treadle_train_others_mindspeed, &treadle_train_others_verl, &treadle_train_others_rlinf};

static int by_path(const void *path, const void *row) {
  return strcmp(path, ((const treadle_key_info *)row)->path);
}

static const treadle_key_info *find_in(const treadle_key_set *all, const char *path) {
  return bsearch(path, all->rows, all->count, sizeof *all->rows, by_path);
}

const treadle_key_info *treadle_train_other_find(const char *path) {
  const treadle_key_info *found = NULL;
  for (int i = 0; i < TREADLE_TRAIN_OTHERS; i++) {
    const treadle_key_info *row = find_in(treadle_train_others_all[i], path);
    if (row && (!found || row->effect < found->effect)) found = row;
  }
  return found;
}

const treadle_key_info *treadle_train_other_of(const char *whose, const char *path) {
  for (int i = 0; i < TREADLE_TRAIN_OTHERS; i++)
    if (strcmp(treadle_train_others_all[i]->whose, whose) == 0)
      return find_in(treadle_train_others_all[i], path);
  return NULL;
}
