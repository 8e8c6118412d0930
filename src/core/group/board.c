/* Boards.
 *
 * A rank's memory is a pool, which is published by the group's link, as that of a switch: the others map it read only. It begins with
 * a head, in which the rank tells the others how far it is; then comes its part.
 *
 *   1. A word of a head is written by its owner alone. Counters only grow.
 *   2. A rank that waits sleeps on the bell of the rank that it waits for, in the group's control block (group_wait.c); so a head
 *      need not be writable for others.
 *   3. Each split has a counter of its own in every head. Its sets have no rank in common, so a counter belongs to one set.
 *   4. A head that says failed has a message, and says so for good. Every wait looks at all heads before each sleep. */
#include "group/board.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "base/thread_watch.h"
#include "group/link.h"
#include "memory/limits.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct word { /* on a cache line of its own */
  _Alignas(64) _Atomic uint64_t value;
} word;

typedef struct head {
  word failed;
  char message[TREADLE_GROUP_MESSAGE]; /* written before `failed` */
  word arrived[TREADLE_BOARD_SPLITS];  /* meetings entered, by split */
  word counters[TREADLE_BOARD_COUNTERS];
} head;

struct treadle_board {
  treadle_group *group;
  const treadle_device *device;
  treadle_pool *pool;
  treadle_peer_memory *memory; /* [size] of each rank: its head and its part */
  uint64_t *bytes;             /* [size] of each rank's part */
  int splits;
  treadle_board_set *sets[TREADLE_BOARD_SPLITS]; /* NULL where this rank is in none */
};

/* ---- Memory ---- */

static head *own_head(const treadle_board *board) { return treadle_pool_base(board->pool); }

static const head *head_of(const treadle_board *board, int rank) { return board->memory[rank].base; }

static uint64_t page_bytes_for(uint64_t bytes) {
  return bytes >= TREADLE_HUGE_PAGE ? TREADLE_HUGE_PAGE : (uint64_t)sysconf(_SC_PAGESIZE);
}

uint64_t treadle_board_memory(uint64_t bytes) {
  uint64_t sum = sizeof(head) + bytes, page = page_bytes_for(sum);
  return (sum + page - 1) / page * page;
}

/* Everybody learns the sizes of all parts; no rank can take what there is not for all. */
static treadle_status ask_for_room(treadle_board *board, uint64_t bytes) {
  treadle_status status = TREADLE_OK;
  treadle_group *group = board->group;
  uint64_t all = 0;
  TRY(treadle_group_say(group, &bytes, sizeof bytes));
  for (int rank = 0; rank < group->size; rank++) {
    memcpy(&board->bytes[rank], treadle_group_said(group, rank), sizeof bytes);
    if (board->bytes[rank] <= (uint64_t)TREADLE_MAX_WINDOW_BYTES)
      all += treadle_board_memory(board->bytes[rank]); /* of 1024 ranks at most: no overflow */
    else
      status =
          treadle_fail(TREADLE_REFUSED, "board: %" PRIu64 " bytes of rank %d; at most %" PRId64 " will do",
                       board->bytes[rank], treadle_group_called(group, rank), TREADLE_MAX_WINDOW_BYTES);
  }
  TRY(treadle_group_agree(group, status));
  TRY(treadle_group_agree(group, treadle_limits_ask(all, "board of all ranks")));
out:
  return status;
}

static treadle_status make_pool(treadle_board *board, uint64_t bytes) {
  uint64_t page = page_bytes_for(sizeof(head) + bytes), memory = treadle_board_memory(bytes);
  return board->device->ops->create(board->device, (int64_t)(memory / page), (int64_t)page, (int64_t)memory,
                                    NULL, 0, &board->pool);
}

static treadle_status publish(treadle_board *board) {
  const treadle_offer offer = {.device = board->device,
                               .pool = board->pool,
                               .base = treadle_pool_base(board->pool),
                               .bytes = treadle_pool_bytes(board->pool),
                               .whole = true};
  return board->group->link->publish(board->group, &offer, board->memory);
}

static treadle_status make(treadle_group *group, treadle_board **board_p) {
  treadle_board *board = treadle_alloc(sizeof *board);
  if (!board) return treadle_fail(TREADLE_NO_MEMORY, "board: memory is out");
  *board_p = board;
  board->group = group;
  board->device = treadle_device_host();
  board->memory = treadle_alloc_array((size_t)group->size, sizeof *board->memory);
  board->bytes = treadle_alloc_array((size_t)group->size, sizeof *board->bytes);
  if (!board->memory || !board->bytes) return treadle_fail(TREADLE_NO_MEMORY, "board: memory is out");
  return TREADLE_OK;
}

treadle_status treadle_board_create(treadle_group *group, uint64_t bytes, treadle_board **board_p) {
  treadle_status status = TREADLE_OK;
  treadle_board *board = NULL;
  *board_p = NULL;
  if (treadle_group_node_count(group) > 1)
    return treadle_fail(
        TREADLE_REFUSED,
        "board: the %d ranks are on %d nodes, and what they work in together must be memory of one "
        "node",
        group->size, treadle_group_node_count(group));
  TRY(treadle_group_agree(group, make(group, &board)));
  TRY(ask_for_room(board, bytes));
  TRY(treadle_group_agree(group, make_pool(board, bytes)));
  TRY(treadle_group_agree(group, publish(board)));
  *board_p = board;
out:
  if (status != TREADLE_OK) treadle_board_destroy(board);
  return status;
}

/* Memory of others that is not imported lies at the addresses of its owners: among threads. */
static bool sees_owners(const treadle_board *board) {
  bool sees = false;
  for (int rank = 0; rank < board->group->size && board->memory; rank++)
    sees =
        sees || (rank != board->group->rank && board->memory[rank].base && !board->memory[rank].imported);
  return sees;
}

void treadle_board_destroy(treadle_board *board) {
  if (!board) return;
  if (sees_owners(board)) (void)treadle_group_meet(board->group, NULL, "end of the board");
  for (int i = 0; i < board->splits; i++) {
    if (board->sets[i]) treadle_free(board->sets[i]->ranks);
    treadle_free(board->sets[i]);
  }
  if (board->memory) board->group->link->withdraw(board->group, board->device, board->memory);
  if (board->pool) board->device->ops->destroy(board->pool);
  treadle_free(board->memory);
  treadle_free(board->bytes);
  treadle_free(board);
}

treadle_group *treadle_board_group(const treadle_board *board) { return board->group; }

uint64_t treadle_board_bytes(const treadle_board *board, int rank) { return board->bytes[rank]; }

const void *treadle_board_part(const treadle_board *board, int rank) {
  return board->bytes[rank] > 0 ? head_of(board, rank) + 1 : NULL;
}

void *treadle_board_own(treadle_board *board) {
  return board->bytes[board->group->rank] > 0 ? own_head(board) + 1 : NULL;
}

/* ---- Failing ---- */

void treadle_board_fail(treadle_board *board) {
  head *mine = own_head(board);
  if (atomic_load(&mine->failed.value)) return;
  snprintf(mine->message, sizeof mine->message, "%s", treadle_error_message());
  atomic_store(&mine->failed.value, 1);
  treadle_group_ring_all(board->group);
}

bool treadle_board_has_failed(const treadle_board *board) {
  return atomic_load(&own_head(board)->failed.value);
}

typedef struct watched { /* by a wait */
  const treadle_board *board;
  const char *what;
} watched;

/* Has a rank failed, or does who watches this thread want it to end? */
static treadle_status look(void *context) {
  const watched *w = context;
  for (int rank = 0; rank < w->board->group->size; rank++) {
    const head *h = head_of(w->board, rank);
    if (atomic_load(&h->failed.value))
      return treadle_fail(TREADLE_PEER, "%s: rank %d failed: %.*s", w->what,
                          treadle_group_called(w->board->group, rank), (int)sizeof h->message - 1,
                          h->message);
  }
  return treadle_thread_ask(w->what);
}

/* ---- Sets ---- */

static treadle_status make_set(treadle_board *board, int colour) {
  treadle_group *group = board->group;
  treadle_board_set *set = treadle_alloc(sizeof *set);
  int *ranks = treadle_alloc_array((size_t)group->size, sizeof *ranks);
  if (!set || !ranks) {
    treadle_free(set);
    treadle_free(ranks);
    return treadle_fail(TREADLE_NO_MEMORY, "board: memory is out");
  }
  *set = (treadle_board_set){.board = board, .split = board->splits, .ranks = ranks};
  for (int rank = 0; rank < group->size; rank++) {
    int theirs;
    memcpy(&theirs, treadle_group_said(group, rank), sizeof theirs);
    if (theirs != colour) continue;
    if (rank == group->rank) set->index = set->count;
    ranks[set->count++] = rank;
  }
  board->sets[board->splits] = set;
  return TREADLE_OK;
}

treadle_status treadle_board_split(treadle_board *board, int colour, treadle_board_set **set_p) {
  treadle_status status = TREADLE_OK;
  *set_p = NULL;
  if (board->splits == TREADLE_BOARD_SPLITS) /* on all ranks */
    return treadle_fail(TREADLE_REFUSED, "board: %d splits are the most", TREADLE_BOARD_SPLITS);
  TRY(treadle_group_say(board->group, &colour, sizeof colour));
  if (colour >= 0) status = make_set(board, colour);
  TRY(treadle_group_agree(board->group, status));
  *set_p = board->sets[board->splits];
out:
  board->splits++;
  return status;
}

treadle_status treadle_board_meet(treadle_board_set *set, const char *what) {
  treadle_status status = TREADLE_OK;
  treadle_board *board = set->board;
  treadle_group *group = board->group;
  watched w = {board, what};
  const treadle_watch watch = {look, &w};
  TRY(look(&w));
  double deadline = treadle_group_deadline(group);
  uint64_t meeting = ++set->meetings;
  treadle_group_publish(group, &own_head(board)->arrived[set->split].value, meeting);
  for (int i = 0; i < set->count; i++) {
    int rank = set->ranks[i];
    TRY(treadle_group_wait(group, rank, &head_of(board, rank)->arrived[set->split].value, meeting, &watch,
                           deadline, what));
  }
out:
  if (status != TREADLE_OK) treadle_board_fail(board);
  return status;
}

/* ---- Counters ---- */

void treadle_board_signal(treadle_board *board, int number, uint64_t value) {
  treadle_group_publish(board->group, &own_head(board)->counters[number].value, value);
}

uint64_t treadle_board_value(const treadle_board *board, int rank, int number) {
  return atomic_load_explicit(&head_of(board, rank)->counters[number].value, memory_order_acquire);
}

treadle_status treadle_board_wait(treadle_board *board, int rank, int number, uint64_t value,
                                  const char *what) {
  treadle_status status = TREADLE_OK;
  watched w = {board, what};
  const treadle_watch watch = {look, &w};
  TRY(look(&w));
  TRY(treadle_group_wait(board->group, rank, &head_of(board, rank)->counters[number].value, value, &watch,
                         treadle_group_deadline(board->group), what));
out:
  if (status != TREADLE_OK) treadle_board_fail(board);
  return status;
}
