/* The order in which the leaves of a sum are added.
 *
 * A sum over an inner dimension that a mesh may cut is one of `all` leaves, equal blocks of it, each added up by itself. Leaves are
 * added in one tree, whoever has them: node [lo, hi) of more than one leaf is node [lo, m) + node [m, hi) with
 * m = lo + (hi - lo) / 2. A rank that has leaves [first, first + leaves) computes the largest nodes inside of that range, from the left
 * to the right, and whoever has the nodes of all ranks adds those. So the bits do not depend on the cut. */
#ifndef TREADLE_NN_LEAF_TREE_H
#define TREADLE_NN_LEAF_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  TREADLE_LEAVES_MAX = 1 << 12,    /* of a tree */
  TREADLE_LEAF_HEIGHT_MAX = 13,    /* sums that wait on a stack while a tree is added */
  TREADLE_LEAF_NODES_MAX = 2 * 12, /* of one range */
};

typedef struct treadle_leaf_range {
  int32_t first, leaves, all; /* first + leaves <= all; 1 <= all <= TREADLE_LEAVES_MAX */
} treadle_leaf_range;

typedef struct treadle_leaf_node {
  int32_t first, leaves;
} treadle_leaf_node;

/* The largest nodes inside of the range, in order; returns how many, at most TREADLE_LEAF_NODES_MAX. nodes may be NULL. */
int32_t treadle_leaf_nodes(treadle_leaf_range range, treadle_leaf_node *nodes);

/* What to do with the sum of `leaf`, when leaves of the range are taken in order and sums wait on a stack: add it to the top of the stack
 * `merges` times (top + sum, which becomes the sum); then it is a node of treadle_leaf_nodes and the stack is empty
 * (`ends`), or it goes onto the stack. */
typedef struct treadle_leaf_step {
  int32_t merges;
  bool ends;
} treadle_leaf_step;
treadle_leaf_step treadle_leaf_step_of(treadle_leaf_range range, int32_t leaf);

/* y[i] = the sum of all leaves, out of nodes that together are all leaves, each once, in order. values[n][i] is node n's sum; `elems`
 * sums each. y may be one of the values. */
void treadle_leaf_combine(int32_t all, const treadle_leaf_node *nodes, const float *const *values,
                          int32_t count, float *y, int64_t elems);

#endif
