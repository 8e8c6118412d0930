/* A small fixed model and pair of layouts for the tests of the switch: four ranks, many waves with pages of
 * 4 KiB, bytes that move between all ranks, pages that are reclaimed. */
#ifndef TREADLE_TESTS_SCENE_H
#define TREADLE_TESTS_SCENE_H

#include "switch/switch.h"

enum { SCENE_RANKS = 4, SCENE_PAGE = 4096 };

typedef struct scene {
  treadle_model *model;
  treadle_layout *train, *infer, *other; /* other: a third layout */
  treadle_layout *alike;                 /* an inference layout that has much where `train` has it */
  int64_t cap_min;                       /* the largest of all ranks */
} scene;

void scene_init(scene *s);
void scene_release(scene *s);

/* The storage tensors of a window against what the layout says of it; says the first that differs. */
bool scene_holds(const treadle_layout *layout, int rank, const void *window);

/* The infer window of a switch, however it is arranged. */
bool scene_infers(const treadle_switch *sw);

/* The window of a rank in a layout as it should be, on the host; the caller frees it. source: where the values come from, which may be fp8 blocks;
 * NULL: the checkpoint. */
char *scene_expected(const treadle_layout *layout, const treadle_layout *source, int rank);

/* The storage tensors of a window against that, read through the switch; says the first that differs. */
bool scene_reads(treadle_switch *sw, treadle_class which, const treadle_layout *layout, const char *wanted);

/* Values by version: turns those of version 0 into those of another, in whatever layout; those of a into those of b with a ^ b. Each bit
 * pattern is changed alike, and padding is not. */
treadle_status scene_turn(const treadle_layout *layout, int rank, uint8_t *window, int version);
/* Does a window, which is not arranged, hold that version? */
bool scene_holds_version(const treadle_layout *layout, int rank, const void *window, int version);

#endif
