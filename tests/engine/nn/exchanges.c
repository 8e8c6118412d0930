/* Sums, columns, slots and rings. */
#include "nn/exchanges.h"

#include "base/random.h"
#include "nn/exchange.h"

#include <math.h>
#include <time.h>

enum { MOST = 16, TURNS = 6 };

/* ---- Values ---- */

/* Of very different sizes, so that another order of additions is seen. */
static float value(uint64_t seed, int64_t leaf, int64_t elem) {
  treadle_random random = {seed * 7919 + (uint64_t)(leaf * 1000003 + elem)};
  double mantissa = (double)treadle_random_between(&random, -1000000, 1000000);
  return (float)ldexp(mantissa, (int)treadle_random_between(&random, -30, 10));
}

/* The sum of leaves [low, high), as the tree is defined. */
static float tree(uint64_t seed, int64_t low, int64_t high, int64_t elem) {
  if (high - low == 1) return value(seed, low, elem);
  int64_t middle = low + (high - low) / 2;
  return tree(seed, low, middle, elem) + tree(seed, middle, high, elem);
}

/* The largest nodes of [low, high) in [first, end), by definition; writes them as the rank's part. */
static int64_t write_nodes(uint64_t seed, const int64_t *range, int64_t low, int64_t high, int64_t elems,
                           float *room) {
  int64_t first = range[0], end = range[1], middle = low + (high - low) / 2, count;
  if (end <= low || first >= high) return 0;
  if (first <= low && high <= end) {
    for (int64_t i = 0; i < elems; i++) room[i] = tree(seed, low, high, i);
    return 1;
  }
  count = write_nodes(seed, range, low, middle, elems, room);
  return count + write_nodes(seed, range, middle, high, elems, room + count * elems);
}

/* ---- Sums ---- */

typedef struct sum_case {
  uint64_t seed;
  int64_t leaves, rows, columns;
  int64_t cuts[MOST + 1]; /* member i has leaves [cuts[i], cuts[i + 1]) */
} sum_case;

/* Ranks in random order of leaves, so that the first rank has not the first leaves. */
static sum_case draw(uint64_t seed, int turn, int size, bool large) {
  treadle_random random = {seed * 100 + (uint64_t)turn};
  sum_case c = {.seed = seed * 100 + (uint64_t)turn};
  c.leaves = treadle_random_between(&random, 1, 40);
  c.rows = large ? treadle_random_between(&random, 60, 80) : treadle_random_between(&random, 0, 9);
  c.columns = large ? treadle_random_between(&random, 550, 600) : treadle_random_between(&random, 1, 90);
  c.cuts[size] = c.leaves;
  for (int i = 1; i < size; i++) { /* sorted by insertion */
    int64_t cut = treadle_random_between(&random, 0, c.leaves);
    int at = i;
    for (; at > 1 && c.cuts[at - 1] > cut; at--) c.cuts[at] = c.cuts[at - 1];
    c.cuts[at] = cut;
  }
  return c;
}

static int sum_once(treadle_exchange *x, const sum_case *c, int member, float *sum) {
  int64_t elems = c->rows * c->columns;
  const int64_t *range = &c->cuts[member];
  const treadle_leaf_range mine = {(int32_t)range[0], (int32_t)(range[1] - range[0]), (int32_t)c->leaves};
  int64_t nodes = write_nodes(c->seed, range, 0, c->leaves, elems, treadle_exchange_room(x));
  RANK_TRUE(nodes == treadle_leaf_nodes(mine, NULL));
  RANK_OK(treadle_parallel_sum(x, mine, c->rows, c->columns, sum, "a sum"));
  int64_t step = elems > 4000 ? 37 : 1;
  for (int64_t i = member; i < elems; i += step) {
    float wanted = tree(c->seed, 0, c->leaves, i);
    RANK_TRUE(memcmp(&sum[i], &wanted, sizeof wanted) == 0);
  }
  return 0;
}

int exchanges_sum(treadle_group *group, void *context) {
  const uint64_t seed = *(const uint64_t *)context;
  bool large = seed % 5 == 0;
  uint64_t elems = large ? 12 * 80 * 600 : 12 * 10 * 90;
  treadle_board *board;
  treadle_board_set *set;
  treadle_exchange *x;
  float *sum = malloc(elems * sizeof *sum);
  RANK_OK(treadle_board_create(group, 64 + treadle_exchange_memory(elems), &board));
  RANK_OK(treadle_board_split(board, 0, &set));
  RANK_OK(treadle_exchange_create(set, 64, elems, &x));
  for (int turn = 0; turn < TURNS; turn++) {
    sum_case c = draw(seed, turn, group->size, large && turn % 2 == 0);
    if (turn % 3 == 2) x->divide = seed % 2 ? 0 : INT64_MAX; /* always, or never */
    int member = (group->rank + (int)seed) % group->size;    /* who has which leaves */
    if (sum_once(x, &c, member, sum)) {
      fprintf(stderr, "seed %d, turn %d: %d leaves, %d x %d\n", (int)seed, turn, (int)c.leaves, (int)c.rows,
              (int)c.columns);
      return 1;
    }
  }
  treadle_exchange_destroy(x);
  treadle_board_destroy(board);
  free(sum);
  return 0;
}

/* ---- Columns and slots ---- */

static int gather(treadle_group *group, treadle_exchange *x, treadle_random *random) {
  int64_t of = 0, first = 0, padding = 0, rows = treadle_random_between(random, 0, 5), mine = 0;
  for (int rank = 0; rank < group->size; rank++) { /* the last ranks have the first columns */
    int64_t columns = treadle_random_between(random, 0, 40), more = treadle_random_between(random, 0, 3);
    if (rank == group->rank) mine = columns, padding = more;
    if (rank > group->rank) first += columns;
    of += columns;
  }
  float *room = treadle_exchange_room(x), *all = malloc((size_t)(rows * of + 1) * sizeof *all);
  const treadle_exchange_part part = {of, first, first + mine, rows, mine + padding};
  for (int64_t r = 0; r < rows; r++)
    for (int64_t i = 0; i < mine + padding; i++)
      room[r * (mine + padding) + i] = i < mine ? value(3, r, first + i) : NAN;
  RANK_OK(treadle_parallel_gather(x, &part, all, "logits"));
  for (int64_t i = 0; i < rows * of; i++) RANK_TRUE(all[i] == value(3, i / of, i % of));
  free(all);
  return 0;
}

static int slots(treadle_group *group, treadle_exchange *x, treadle_random *random) {
  int64_t of = 3 * group->size, columns = treadle_random_between(random, 1, 9);
  int64_t first = 3 * group->rank, rows = 1 + group->rank;
  bool gone = treadle_random_below(random, 2) == 0 && group->size > 1; /* the slots of rank 1 */
  const treadle_exchange_part part = {of, first, gone && group->rank == 1 ? first : first + 3, rows,
                                      columns};
  float *room = treadle_exchange_room(x);
  for (int64_t i = 0; i < (part.end - first) * rows * columns; i++) room[i] = value(4, group->rank, i);
  RANK_OK(treadle_parallel_slots(x, &part, "experts"));
  for (int64_t slot = 0; slot < of; slot++) {
    int64_t owner = slot / 3, their_rows;
    const float *there = treadle_parallel_slot(x, slot, &their_rows);
    RANK_TRUE((there == NULL) == (gone && owner == 1));
    if (there) RANK_TRUE(their_rows == owner + 1);
    for (int64_t i = 0; i < their_rows * columns; i++)
      RANK_TRUE(there[i] == value(4, owner, slot % 3 * their_rows * columns + i));
  }
  return 0;
}

/* Of all kinds by turns in one exchange. */
int exchanges_mix(treadle_group *group, void *context) {
  treadle_random random = {*(const uint64_t *)context};
  treadle_board *board;
  treadle_board_set *set;
  treadle_exchange *x;
  RANK_OK(treadle_board_create(group, treadle_exchange_memory(4000), &board));
  RANK_OK(treadle_board_split(board, 0, &set));
  RANK_OK(treadle_exchange_create(set, 0, 4000, &x));
  for (int turn = 0; turn < 20; turn++)
    if (treadle_random_below(&random, 2) ? gather(group, x, &random) : slots(group, x, &random)) return 1;
  treadle_exchange_destroy(x);
  treadle_board_destroy(board);
  return 0;
}

/* ---- Rings ---- */

enum { BATCHES = 60, SLOTS = 3, ELEMS = 200 };

/* Rows go round all ranks, each of which adds 1; several are under way. */
int exchanges_pass(treadle_group *group, void *context) {
  treadle_board *board;
  treadle_ring *in, *out;
  int size = group->size, rank = group->rank, before = (rank + size - 1) % size;
  (void)context;
  RANK_OK(treadle_board_create(group, 128 + treadle_ring_memory(SLOTS, ELEMS), &board));
  const treadle_ring_spec to_next = {rank, (rank + 1) % size, rank, SLOTS, 128, ELEMS};
  const treadle_ring_spec from_last = {before, rank, before, SLOTS, 128, ELEMS};
  RANK_OK(treadle_ring_create(board, &to_next, &out));
  RANK_OK(treadle_ring_create(board, &from_last, &in));
  for (int i = 0; i < BATCHES + SLOTS; i++) {
    int64_t columns = 1 + (i < SLOTS ? i : i - SLOTS) % 10; /* of the batch that is taken, later */
    const float *there = NULL;
    if (rank > 0 ? i < BATCHES : i >= SLOTS)
      RANK_OK(treadle_ring_take(in, 7, rank > 0 ? 1 + i % 10 : columns, &there, "rows"));
    if (rank == 0 && there)
      for (int64_t k = 0; k < 7 * columns; k++)
        RANK_TRUE(there[k] == (float)(1000 * (i - SLOTS) + k + size - 1));
    if (i < BATCHES) {
      float *room;
      columns = 1 + i % 10;
      if (rank == 0 && there) treadle_ring_release(in);
      RANK_OK(treadle_ring_room(out, &room, "a free slot"));
      for (int64_t k = 0; k < 7 * columns; k++) room[k] = rank == 0 ? (float)(1000 * i + k) : there[k] + 1;
      RANK_OK(treadle_ring_send(out, 7, columns));
      if (rank > 0) treadle_ring_release(in);
    } else if (there) {
      treadle_ring_release(in);
    }
  }
  treadle_ring_destroy(in);
  treadle_ring_destroy(out);
  treadle_board_destroy(board);
  return 0;
}

int exchanges_stream(treadle_group *group, void *context) {
  treadle_board *board;
  treadle_ring *ring;
  const treadle_ring_spec spec = {0, 1, 7, SLOTS, 0, ELEMS};
  (void)context;
  RANK_OK(treadle_board_create(group, treadle_ring_memory(SLOTS, ELEMS), &board));
  RANK_OK(treadle_ring_create(board, &spec, &ring));
  for (int i = 0; i < BATCHES && group->rank < 2; i++) {
    float *room;
    const float *there;
    if (group->rank == 0) {
      RANK_OK(treadle_ring_room(ring, &room, "a free slot"));
      for (int64_t k = 0; k < ELEMS; k++) room[k] = (float)(i * 1000 + k);
      RANK_OK(treadle_ring_send(ring, ELEMS, 1));
    } else {
      RANK_OK(treadle_ring_take(ring, ELEMS, 1, &there, "rows"));
      nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); /* the sender would write here */
      for (int64_t k = 0; k < ELEMS; k++) RANK_TRUE(there[k] == (float)(i * 1000 + k));
      treadle_ring_release(ring);
    }
  }
  treadle_ring_destroy(ring);
  treadle_board_destroy(board);
  return 0;
}
