/* A small run of supervised training for tests: a model of random weights, rows of token ids, and a configuration. */
#ifndef TREADLE_TESTS_SFT_SCENE_H
#define TREADLE_TESTS_SFT_SCENE_H

#include "treadle_loop.h"

enum { SFT_SCENE_ROWS = 60 };

/* A new folder with a model, rows and a configuration; its run is FOLDER/run. sft_scene_remove() removes it and frees the name. */
char *sft_scene_make(void);
void sft_scene_remove(char *folder);

/* Trains as its configuration says, with overrides (NULL behind the last one; NULL: none). */
typedef struct sft_scene_run {
  const char *folder;
  const char *const *overrides;
  treadle_group *group; /* NULL: this process alone */
  treadle_sft_options options;
} sft_scene_run;
treadle_status sft_scene_train(const sft_scene_run *run, treadle_sft_figures *figures_p);

/* Every checkpoint of FOLDER/run is whole and can be read; how many there are, and the newest one's step. */
int sft_scene_checkpoints(const char *folder, int64_t *newest_p);

#endif
