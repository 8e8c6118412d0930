/* A cell of the matrix of exactness: one way to compute the same texts, on one rank or several, which are threads. */
#ifndef TREADLE_TESTS_CELL_H
#define TREADLE_TESTS_CELL_H

#include "base/text.h"
#include "generate/machine.h"
#include "treadle_builtin.h"

typedef struct cell {
  const char *folder, *layout; /* of the model; text */
  int ranks;
  treadle_generator_options options; /* of each rank */
} cell;

typedef struct cell_result {
  treadle_generate_figures figures; /* the same on all ranks */
  treadle_generator_info info;      /* of rank 0 */
  treadle_builder answers;          /* of rank 0 */
  int failed;                       /* ranks */
  char message[512];
} cell_result;

/* Generates with seed 5 for lines of requests, twice if `twice`: then the figures are those of the second time. False: a rank failed, the
 * ranks do not agree, or a block was leaked; the message says which. The caller releases the answers. */
bool cell_generate(const cell *c, const char *lines, bool twice, cell_result *result_p);
/* Scores what was generated, and compares. As above. */
bool cell_score(const cell *c, const char *answers, treadle_score_figures *figures_p, char message_p[512]);

#endif
