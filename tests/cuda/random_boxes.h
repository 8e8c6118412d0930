/* Random boxes for the copies of CUDA devices: types, strides of any sign, offsets, bases, tables of pages down to
 * 16 bytes. Memory is only reckoned with: it may be a device's. */
#ifndef TREADLE_TESTS_RANDOM_BOXES_H
#define TREADLE_TESTS_RANDOM_BOXES_H

#include "base/random.h"
#include "treadle_device.h"

enum {
  RANDOM_ROOM = 1 << 17, /* bytes of a window */
  RANDOM_SLACK = 64,     /* on either side of it */
  RANDOM_ROOM_BYTES = RANDOM_ROOM + 2 * RANDOM_SLACK,
  RANDOM_LEAST_SHIFT = 4,
  RANDOM_MOST_PAGES = RANDOM_ROOM >> RANDOM_LEAST_SHIFT
};

typedef struct random_side { /* a window, and its bytes in physical order */
  char *base;
  int32_t table[RANDOM_MOST_PAGES];
  treadle_paged paged;
} random_side;

/* room: RANDOM_ROOM_BYTES. */
void random_side_draw(random_side *side, treadle_random *random, char *room);
/* An op that fits both sides, and is not long for what it tests: a copy, or a fill now and then. */
treadle_op random_op_draw(treadle_random *random, const random_side *from, const random_side *to);

#endif
