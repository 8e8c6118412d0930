/* All by going down from the root: a tree is as deep as its leaves' number has digits, and nothing is kept. */
#include "nn/leaf_tree.h"

#include <assert.h>
#include <string.h>

/* The node of the tree that the leaf ends, or lies in, on the way down: one step. */
static void descend(treadle_leaf_node *node, int32_t leaf) {
  int32_t left = node->leaves / 2;
  if (leaf < node->first + left) {
    node->leaves = left;
  } else {
    node->first += left;
    node->leaves -= left;
  }
}

static bool is_inside(treadle_leaf_node node, treadle_leaf_range range) {
  return node.first >= range.first && node.first + node.leaves <= range.first + range.leaves;
}

/* The largest node inside of the range that the leaf lies in. */
static treadle_leaf_node node_of(treadle_leaf_range range, int32_t leaf) {
  assert(leaf >= range.first && leaf < range.first + range.leaves && range.first >= 0 &&
         range.first + range.leaves <= range.all && range.all <= TREADLE_LEAVES_MAX);
  treadle_leaf_node node = {.leaves = range.all};
  while (!is_inside(node, range)) descend(&node, leaf);
  return node;
}

int32_t treadle_leaf_nodes(treadle_leaf_range range, treadle_leaf_node *nodes) {
  int32_t count = 0;
  for (int32_t leaf = range.first; leaf < range.first + range.leaves; count++) {
    treadle_leaf_node node = node_of(range, leaf);
    if (nodes) nodes[count] = node;
    leaf = node.first + node.leaves;
  }
  assert(count <= TREADLE_LEAF_NODES_MAX);
  return count;
}

treadle_leaf_step treadle_leaf_step_of(treadle_leaf_range range, int32_t leaf) {
  treadle_leaf_node node = node_of(range, leaf);
  treadle_leaf_step step = {.ends = node.first + node.leaves == leaf + 1};
  for (; node.leaves > 1; descend(&node, leaf)) step.merges += node.first + node.leaves == leaf + 1;
  return step;
}

/* After which merges does node `index` of the nodes end? Nodes of the tree above it which it is the last part of. */
static int32_t merges_above(int32_t all, treadle_leaf_node part) {
  int32_t merges = 0, last = part.first + part.leaves - 1;
  for (treadle_leaf_node node = {.leaves = all}; node.leaves > part.leaves; descend(&node, last))
    merges += node.first + node.leaves == last + 1;
  return merges;
}

enum { RUN = 256 /* elements at a time, so that the stack stays in the nearest cache */ };

typedef struct stack {
  float sums[TREADLE_LEAF_HEIGHT_MAX][RUN];
  int32_t height;
} stack;

static void add_run(float *restrict top, const float *restrict sum, int64_t elems) {
  for (int64_t i = 0; i < elems; i++) top[i] = top[i] + sum[i];
}

static void push_node(stack *s, const float *sum, int64_t elems, int32_t merges) {
  assert(s->height < TREADLE_LEAF_HEIGHT_MAX && merges <= s->height);
  if (merges == 0) {
    memcpy(s->sums[s->height++], sum, (size_t)elems * sizeof *sum);
    return;
  }
  add_run(s->sums[s->height - 1], sum, elems);
  for (; merges > 1; merges--) {
    s->height--;
    add_run(s->sums[s->height - 1], s->sums[s->height], elems);
  }
}

void treadle_leaf_combine(int32_t all, const treadle_leaf_node *nodes, const float *const *values,
                          int32_t count, float *y, int64_t elems) {
  stack s;
  for (int64_t at = 0; at < elems; at += RUN) {
    int64_t run = elems - at < RUN ? elems - at : RUN;
    s.height = 0;
    for (int32_t n = 0; n < count; n++) push_node(&s, values[n] + at, run, merges_above(all, nodes[n]));
    assert(s.height == 1);
    memcpy(y + at, s.sums[0], (size_t)run * sizeof *y);
  }
}
