/* Rings: slots in the sender's part of the board, each a header and rows. The sender counts what it has sent, the receiver what it
 * has released, both by the same counter of the board; a slot is free while fewer than `slots` are sent and not released. */
#include "nn/parallel.h"

#include "base/alloc.h"
#include "base/checked.h"

#include <inttypes.h>

typedef struct header {
  _Alignas(64) int64_t rows, columns;
} header;

struct treadle_ring {
  treadle_board *board;
  treadle_ring_spec spec;
  uint64_t sent, taken, released; /* by this rank */
};

static uint64_t slot_bytes(uint64_t elems) {
  return sizeof(header) + (elems * sizeof(float) + 63) / 64 * 64;
}

uint64_t treadle_ring_memory(int slots, uint64_t elems) { return (uint64_t)slots * slot_bytes(elems); }

static uint64_t place_of(const treadle_ring *ring, uint64_t turn) {
  return ring->spec.at + turn % (uint64_t)ring->spec.slots * slot_bytes(ring->spec.elems);
}

static treadle_status check_spec(const treadle_board *board, const treadle_ring_spec *spec) {
  int size = treadle_board_group(board)->size;
  if (spec->from < 0 || spec->from >= size || spec->to < 0 || spec->to >= size || spec->from == spec->to)
    return treadle_fail(TREADLE_REFUSED, "ring: from rank %d to rank %d of %d", spec->from, spec->to, size);
  if (spec->number < 0 || spec->number >= TREADLE_BOARD_COUNTERS)
    return treadle_fail(TREADLE_REFUSED, "ring: counter %d; there are %d", spec->number,
                        TREADLE_BOARD_COUNTERS);
  uint64_t has = treadle_board_bytes(board, spec->from);
  if (spec->slots < 1 || spec->elems > INT64_MAX / 16 || spec->at % 64 != 0 || spec->at > has ||
      (uint64_t)spec->slots > (has - spec->at) / slot_bytes(spec->elems))
    return treadle_fail(TREADLE_REFUSED,
                        "ring: %d slots of %" PRIu64 " elements from %" PRIu64
                        "; the board's part of rank %d has %" PRIu64 " bytes",
                        spec->slots, spec->elems, spec->at, spec->from, has);
  return TREADLE_OK;
}

treadle_status treadle_ring_create(treadle_board *board, const treadle_ring_spec *spec,
                                   treadle_ring **ring_p) {
  treadle_status status = TREADLE_OK;
  *ring_p = NULL;
  TRY(check_spec(board, spec));
  treadle_ring *ring = treadle_alloc(sizeof *ring);
  if (!ring) return treadle_fail(TREADLE_NO_MEMORY, "ring: memory is out");
  *ring = (treadle_ring){.board = board, .spec = *spec};
  *ring_p = ring;
out:
  return status;
}

void treadle_ring_destroy(treadle_ring *ring) { treadle_free(ring); }

/* ---- The sender ---- */

static header *own_slot(const treadle_ring *ring) {
  char *part = treadle_board_own(ring->board);
  return (void *)(part + place_of(ring, ring->sent));
}

treadle_status treadle_ring_room(treadle_ring *ring, float **room_p, const char *what) {
  treadle_status status = TREADLE_OK;
  const treadle_ring_spec *spec = &ring->spec;
  uint64_t slots = (uint64_t)spec->slots, wanted = ring->sent >= slots ? ring->sent - slots + 1 : 0;
  *room_p = NULL;
  TRY(treadle_board_wait(ring->board, spec->to, spec->number, wanted, what));
  *room_p = (float *)(own_slot(ring) + 1);
out:
  return status;
}

treadle_status treadle_ring_send(treadle_ring *ring, int64_t rows, int64_t columns) {
  int64_t elems;
  if (!treadle_mul_fits(rows, columns, &elems) || (uint64_t)elems > ring->spec.elems) {
    treadle_fail(TREADLE_REFUSED,
                 "ring: %" PRId64 " rows of %" PRId64 " columns; a slot has %" PRIu64 " elements", rows,
                 columns, ring->spec.elems);
    treadle_board_fail(ring->board);
    return TREADLE_REFUSED;
  }
  *own_slot(ring) = (header){.rows = rows, .columns = columns};
  treadle_board_signal(ring->board, ring->spec.number, ++ring->sent);
  return TREADLE_OK;
}

/* ---- The receiver ---- */

treadle_status treadle_ring_take(treadle_ring *ring, int64_t rows, int64_t columns, const float **rows_p,
                                 const char *what) {
  treadle_status status = TREADLE_OK;
  const treadle_ring_spec *spec = &ring->spec;
  const char *part = treadle_board_part(ring->board, spec->from);
  *rows_p = NULL;
  TRY(treadle_board_wait(ring->board, spec->from, spec->number, ring->taken + 1, what));
  const header *slot = (const void *)(part + place_of(ring, ring->taken));
  if (slot->rows != rows || slot->columns != columns) {
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: rank %d sent %" PRId64 " rows of %" PRId64 " columns, not %" PRId64
                          " of %" PRId64,
                          what, spec->from, slot->rows, slot->columns, rows, columns);
    treadle_board_fail(ring->board);
    goto out;
  }
  ring->taken++;
  *rows_p = (const float *)(slot + 1);
out:
  return status;
}

void treadle_ring_release(treadle_ring *ring) {
  treadle_board_signal(ring->board, ring->spec.number, ++ring->released);
}
