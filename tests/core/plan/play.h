/* What the files of the interpreter (play.c) share. */
#ifndef TREADLE_TESTS_PLAY_H
#define TREADLE_TESTS_PLAY_H

#include "plan/coded.h"

typedef struct play_window { /* of one rank, seen through a page table; scratch has none */
  uint8_t *pages;
  const int32_t *table;
} play_window;

typedef struct play_rank {
  treadle_plan *plan;
  uint8_t *pages;
  uint8_t *written;      /* by byte of the destination window */
  int32_t arrived, done; /* waves: all but relays and twins; and these */
} play_rank;

typedef struct play {
  pair *p;
  play_rank *ranks;
  bool back;
  bool is_coded; /* one side holds fp8 blocks, or both do: `truth` knows them */
  coded_truth truth;
  treadle_random random;
} play;

void play_read(const play_window *w, int64_t at, void *value, size_t size);
void play_write(const play_window *w, int64_t at, const void *value, size_t size);
/* Of a rank; of_to: of the second layout of the pair. */
play_window play_window_of(const play *player, int64_t rank, bool of_to);

/* Runs all waves of one direction, always of a rank drawn from those that may go on. A relay waits until its source has pulled what it
 * pulls in the same wave, and for nothing else. */
void play_waves(play *player);

/* The least bytes that each rank may pull there: [ranks], ended by free(). */
int64_t *play_bounds(const pair *p);
/* The least bytes that may enter all nodes together; without scales where blocks are made or taken apart. */
int64_t play_node_bound(const pair *p, bool back);

#endif
