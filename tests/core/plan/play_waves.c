/* The interpreter's machine: ops and block rows, element by element, in any order that `need` allows. */
#include "base/dtype.h"
#include "layout/blocks.h"
#include "plan/play.h"

#include "test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint8_t *byte_at(const play_window *w, int64_t at) {
  return w->table ? w->pages + (int64_t)w->table[at / PAIR_PAGE] * PAIR_PAGE + at % PAIR_PAGE
                  : w->pages + at;
}

void play_read(const play_window *w, int64_t at, void *value, size_t size) {
  for (size_t i = 0; i < size; i++) ((uint8_t *)value)[i] = *byte_at(w, at + (int64_t)i);
}

void play_write(const play_window *w, int64_t at, const void *value, size_t size) {
  for (size_t i = 0; i < size; i++) *byte_at(w, at + (int64_t)i) = ((const uint8_t *)value)[i];
}

play_window play_window_of(const play *player, int64_t rank, bool of_to) {
  const play_rank *state = &player->ranks[rank];
  return (play_window){state->pages, of_to ? state->plan->to_page : state->plan->from_page};
}

static const treadle_direction *direction_of(const play *player, int64_t rank) {
  const treadle_plan *plan = player->ranks[rank].plan;
  return player->back ? &plan->back : &plan->forward;
}

/* Writes to the destination window of a rank, and counts that. */
static void write_own(const play *player, int64_t rank, int64_t at, const void *value, size_t size) {
  const play_window own = play_window_of(player, rank, !player->back);
  play_write(&own, at, value, size);
  for (size_t i = 0; i < size; i++) player->ranks[rank].written[at + (int64_t)i]++;
}

/* Elements of an op, from a window to another; to NULL: to the destination window of the rank. */
static void play_copy(const play *player, int64_t rank, const treadle_op *op, const play_window *from,
                      const play_window *to) {
  treadle_dtype from_dtype = (treadle_dtype)op->from_dtype, to_dtype = (treadle_dtype)op->to_dtype;
  size_t from_size = treadle_dtype_bytes(from_dtype), to_size = treadle_dtype_bytes(to_dtype);
  int64_t index[TREADLE_MAX_AXES] = {0};
  for (;;) {
    int64_t from_at = op->from, to_at = op->to;
    for (int d = 0; d < op->ndim; d++) {
      from_at += index[d] * op->from_stride[d];
      to_at += index[d] * op->to_stride[d];
    }
    uint64_t value = 0, made = 0;
    if (op->source >= 0) {
      play_read(from, from_at, &value, from_size);
      float wide;
      treadle_dtype_convert(&wide, TREADLE_FP32, &value, from_dtype, 1);
      wide += (float)op->add;
      if (op->add)
        treadle_dtype_convert(&made, to_dtype, &wide, TREADLE_FP32, 1);
      else
        treadle_dtype_convert(&made, to_dtype, &value, from_dtype, 1);
    }
    if (to)
      play_write(to, to_at, &made, to_size);
    else
      write_own(player, rank, to_at, &made, to_size);
    int d = op->ndim - 1;
    while (d >= 0 && ++index[d] == op->size[d]) index[d--] = 0;
    if (d < 0) break;
  }
}

/* The oracle's tensor of an expert, and the element of it that lies at a byte of all codes in whole rows of blocks, or of all scales. */
static int32_t find_made(const pair *p, const treadle_op *op, int64_t at, int64_t *element_p) {
  const treadle_blocks blocks = treadle_blocks_of(p->model, op->tensor);
  bool codes = op->to_dtype == TREADLE_FP8_E4M3;
  int64_t each =
              blocks.down * (codes ? blocks.high * blocks.columns : blocks.across * (int64_t)sizeof(float)),
          expert = at / each;
  int32_t tensor = 0;
  *element_p = at % each / (codes ? 1 : (int64_t)sizeof(float));
  while (p->tensors[tensor] != op->tensor || expert-- > 0) tensor++; /* in the order of experts */
  return codes ? tensor : p->oracle->tensors[tensor].scale;
}

/* What a source makes is what the oracle makes of the same values; check_sends sees to it that it has them. */
static void play_made(const play *player, int64_t rank, const treadle_op *op) {
  treadle_dtype dtype = (treadle_dtype)op->to_dtype;
  assert_int_equal(op->ndim, 2);
  for (int64_t i = 0; i < op->size[0]; i++)
    for (int64_t k = 0; k < op->size[1]; k++) {
      uint32_t bits = 0;
      int64_t element, at = op->from + i * op->from_stride[0] + k * op->from_stride[1];
      int32_t tensor = find_made(player->p, op, at, &element);
      coded_bits(player->p, &player->truth, player->back ? 2 : 1, tensor, element, dtype, &bits);
      write_own(player, rank, op->to + i * op->to_stride[0] + k * op->to_stride[1], &bits,
                treadle_dtype_bytes(dtype));
    }
}

static play_window source_of(const play *player, int64_t rank, const treadle_op *op) {
  int64_t source = op->source < 0 ? rank : op->source;
  return play_window_of(player, source, op->twin ? !player->back : player->back);
}

/* ---- Block rows ---- */

typedef struct block_row_block { /* of a block row: its columns */
  int64_t number, first, columns;
} block_row_block;

/* Codes that the window has of the values in scratch, and their scale. */
static void make_codes(const play *player, int64_t rank, const treadle_block_row *block_row,
                       const block_row_block *block, const play_window *scratch) {
  treadle_dtype dtype = (treadle_dtype)block_row->value_dtype;
  int64_t size = (int64_t)treadle_dtype_bytes(dtype);
  float scale = 0;
  for (int pass = 0; pass < 2; pass++) {
    for (int64_t row = 0; row < block_row->rows; row++)
      for (int64_t column = block->first; column < block->first + block->columns; column++) {
        uint32_t bits = 0;
        float value;
        play_read(scratch, (row * block_row->columns + column) * size, &bits, (size_t)size);
        treadle_dtype_convert(&value, TREADLE_FP32, &bits, dtype, 1);
        if (pass == 0) {
          scale = fmaxf(scale, fabsf(value));
        } else {
          uint8_t code = treadle_fp8_of_float(fminf(fmaxf(value / scale, -448), 448));
          int64_t down = row - block_row->code_row, across = column - block_row->code_column;
          if (down >= 0 && down < block_row->code_rows && across >= 0 && across < block_row->code_columns)
            write_own(player, rank, block_row->codes + down * block_row->code_stride + across, &code, 1);
        }
      }
    if (pass == 0) scale = scale / 448 > 0 ? scale / 448 : 1;
  }
  write_own(player, rank, block_row->scales + block->number * block_row->scale_stride, &scale,
            sizeof scale);
}

/* Values in scratch, of codes and a scale. */
static void make_values(const treadle_block_row *block_row, const block_row_block *block,
                        const play_window *from, const play_window *scratch) {
  treadle_dtype dtype = (treadle_dtype)block_row->value_dtype;
  int64_t size = (int64_t)treadle_dtype_bytes(dtype);
  float scale;
  play_read(from, block_row->scales + block->number * block_row->scale_stride, &scale, sizeof scale);
  for (int64_t row = 0; row < block_row->rows; row++)
    for (int64_t column = block->first; column < block->first + block->columns; column++) {
      uint8_t code;
      uint32_t bits = 0;
      play_read(from, block_row->codes + row * block_row->code_stride + column, &code, 1);
      float value = treadle_fp8_to_float(code) * scale;
      treadle_dtype_convert(&bits, dtype, &value, TREADLE_FP32, 1);
      play_write(scratch, (row * block_row->columns + column) * size, &bits, (size_t)size);
    }
}

static void play_block_row(const play *player, int64_t rank, const treadle_block_row *run,
                           int32_t position) {
  const treadle_block_row at = treadle_block_row_at(run, position), *block_row = &at;
  const treadle_direction *direction = direction_of(player, rank);
  const treadle_block_row_part *parts = &direction->block_row_parts.items[block_row->part_first];
  int64_t bytes = (int64_t)block_row->rows * block_row->columns *
                  (int64_t)treadle_dtype_bytes((treadle_dtype)block_row->value_dtype);
  assert_true(direction->scratch_bytes >= bytes);
  play_window scratch = {.pages = malloc((size_t)bytes)};
  assert_non_null(scratch.pages);
  memset(scratch.pages, 0xa5, (size_t)bytes);
  play_window from = source_of(player, rank, &parts[0].op);
  for (int64_t i = 0; i < block_row->parts && block_row->quantises; i++) {
    const treadle_op op = treadle_block_row_part_at(run, &parts[i], position);
    from = source_of(player, rank, &op);
    play_copy(player, rank, &op, &from, &scratch);
  }
  block_row_block block = {.columns = block_row->block_columns - block_row->skip};
  for (; block.first < block_row->columns; block.number++) {
    if (block.columns > block_row->columns - block.first) block.columns = block_row->columns - block.first;
    if (block_row->quantises)
      make_codes(player, rank, block_row, &block, &scratch);
    else
      make_values(block_row, &block, &from, &scratch);
    block.first += block.columns;
    block.columns = block_row->block_columns;
  }
  for (int64_t i = 0; i < block_row->parts && !block_row->quantises; i++) {
    const treadle_op op = treadle_block_row_part_at(run, &parts[i], position);
    play_copy(player, rank, &op, &scratch, NULL);
  }
  free(scratch.pages);
}

/* ---- Waves ---- */

/* What others may read when it is there; or else relays, and what reads this rank's own destination window. */
static void play_part(const play *player, int64_t rank, int32_t wave, bool twins) {
  const treadle_direction *d = direction_of(player, rank);
  for (int32_t i = d->wave_first[wave]; i < d->wave_first[wave + 1] && twins; i++) {
    const play_window from = source_of(player, rank, &d->ops.items[i]);
    if (d->ops.items[i].twin) play_copy(player, rank, &d->ops.items[i], &from, NULL);
  }
  for (int32_t i = d->block_row_first[wave]; i < d->block_row_first[wave + 1]; i++)
    for (int32_t k = 0; k < d->block_rows.items[i].count && d->block_rows.items[i].twin == twins; k++)
      play_block_row(player, rank, &d->block_rows.items[i], k);
  for (int32_t i = d->wave_first[wave]; i < d->wave_first[wave + 1] && !twins; i++) {
    const play_window from = source_of(player, rank, &d->ops.items[i]);
    if (d->ops.items[i].made)
      play_made(player, rank, &d->ops.items[i]);
    else if (!d->ops.items[i].twin)
      play_copy(player, rank, &d->ops.items[i], &from, NULL);
  }
}

static int32_t slowest(const play *player) {
  int32_t done = player->ranks[0].done;
  for (int64_t r = 1; r < player->p->ranks; r++)
    if (player->ranks[r].done < done) done = player->ranks[r].done;
  return done;
}

/* Have all sources of a wave's relays pulled what they pull in it? */
static bool has_sources(const play *player, int64_t rank, int32_t wave) {
  const treadle_direction *d = direction_of(player, rank);
  for (int32_t i = d->wave_first[wave]; i < d->wave_first[wave + 1]; i++) {
    const treadle_op *op = &d->ops.items[i];
    if (op->twin && op->source != rank && player->ranks[op->source].arrived < wave) return false;
  }
  return true;
}

static bool may_go_on(const play *player, int64_t rank, int32_t all) {
  const play_rank *state = &player->ranks[rank];
  if (state->done < state->arrived) return has_sources(player, rank, state->arrived);
  return state->done < state->plan->waves - 1 && direction_of(player, rank)->need[state->done + 1] <= all;
}

void play_waves(play *player) {
  int64_t ranks = player->p->ranks;
  int32_t waves = player->ranks[0].plan->waves;
  for (int64_t r = 0; r < ranks; r++) {
    play_rank *state = &player->ranks[r];
    int64_t pages = player->back ? state->plan->from_pages : state->plan->to_pages;
    state->done = state->arrived = -1;
    memset(state->written, 0, (size_t)(pages * PAIR_PAGE));
  }
  while (slowest(player) < waves - 1) {
    int64_t first = treadle_random_below(&player->random, ranks), r = first;
    int32_t all = slowest(player);
    for (; !may_go_on(player, r, all); r = (r + 1) % ranks)
      if ((r + 1) % ranks == first) fail_msg("%s: no rank can go on", pair_describe(player->p));
    play_rank *state = &player->ranks[r];
    bool twins = state->done < state->arrived;
    play_part(player, r, state->done + 1, twins);
    *(twins ? &state->done : &state->arrived) = state->done + 1;
  }
}
