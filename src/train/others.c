#include "train/others.h"

#include <stdlib.h>
#include <string.h>

const treadle_train_others *const treadle_train_others_all[TREADLE_TRAIN_OTHERS] = {
    &treadle_train_others_mindspeed, &treadle_train_others_verl, &treadle_train_others_rlinf};

static int by_path(const void *path, const void *row) {
  return strcmp(path, ((const treadle_train_other *)row)->path);
}

static const treadle_train_other *find_in(const treadle_train_others *all, const char *path) {
  return bsearch(path, all->rows, all->count, sizeof *all->rows, by_path);
}

const treadle_train_other *treadle_train_other_find(const char *path) {
  const treadle_train_other *found = NULL;
  for (int i = 0; i < TREADLE_TRAIN_OTHERS; i++) {
    const treadle_train_other *row = find_in(treadle_train_others_all[i], path);
    if (row && (!found || row->effect < found->effect)) found = row;
  }
  return found;
}

const treadle_train_other *treadle_train_other_of(const char *whose, const char *path) {
  for (int i = 0; i < TREADLE_TRAIN_OTHERS; i++)
    if (strcmp(treadle_train_others_all[i]->whose, whose) == 0)
      return find_in(treadle_train_others_all[i], path);
  return NULL;
}
