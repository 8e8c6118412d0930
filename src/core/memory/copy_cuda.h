/* Boxes: kernel treadle_cuda_copy.
 *
 * The units of an item are numbered in the order of the box. Thread t takes t, t + 256, and so on, four of them at a
 * time: neighbours in a row are read and written together, and rows of any length keep all threads busy. Where a unit
 * lies follows from the coordinates of the item's first unit by a division for each axis that its number leads across:
 * none for items in one row, one for most others. */
#ifndef TREADLE_MEMORY_COPY_CUDA_H
#define TREADLE_MEMORY_COPY_CUDA_H

#include "memory/value_cuda.h"

enum { AHEAD = 4, TILE = TREADLE_CUDA_TILE };

/* An item that a block has taken; shared. */
typedef struct work {
  treadle_cuda_box box; /* its views begin at the item's first unit, or tile */
  treadle_cuda_item item;
  uint32_t first[TREADLE_CUDA_AXES]; /* coordinates of that */
  uint32_t written;                  /* bytes */
} work;

/* A tile in between: [columns][rows], of the bits as they are stored. */
typedef struct tile {
  uint32_t value[TILE][TILE + 1];
} tile;

/* ---- Taking an item ---- */

CODE void take_item(work *w, const treadle_cuda_copy_args *args, uint32_t number, uint32_t t) {
  const treadle_cuda_item item = TREADLE_CUDA_AT(const treadle_cuda_item, args->items)[number];
  take(&w->box, args->boxes + item.box * (uint64_t)sizeof w->box, sizeof w->box, t);
  if (t == 0) {
    w->item = item;
    w->written = 0;
  }
}

/* The rest of a number, of which the quotient is left. */
CODE uint32_t divide(uint64_t *number, uint32_t by) {
  uint64_t quotient = *number >> 32 ? *number / by : (uint32_t)*number / by;
  uint32_t rest = (uint32_t)(*number - quotient * by);
  *number = quotient;
  return rest;
}

/* A view in which the bytes from `at` to `last` lie in one page needs no table. */
CODE void drop_table(treadle_cuda_view *view, int64_t last) {
  if (!view->table || view->at >> view->page_shift != last >> view->page_shift) return;
  view->base = address_of(view, view->at) - (uint64_t)view->at;
  view->table = 0;
}

CODE void place_item(work *w, uint32_t t) {
  if (t != 0) return;
  treadle_cuda_box *box = &w->box;
  uint64_t rest = w->item.start;
  int last = box->ndim - 1;
  ROLLED for (int d = last; d >= 0; d--) {
    uint32_t side = box->kind == TREADLE_CUDA_TILES && d >= last - 1 ? TILE : 1;
    w->first[d] = divide(&rest, (box->size[d] + side - 1) / side) * side;
    box->from.at += w->first[d] * box->from_stride[d];
    box->to.at += w->first[d] * box->to_stride[d];
  }
  if (box->kind == TREADLE_CUDA_TILES || w->first[last] + w->item.count > box->size[last]) return;
  int64_t steps = w->item.count - 1, from = steps * box->from_stride[last],
          to = steps * box->to_stride[last];
  uint32_t from_bytes =
      box->kind == TREADLE_CUDA_VALUES ? box->width * bytes_of(box->from_dtype) : box->width;
  uint32_t to_bytes = box->kind == TREADLE_CUDA_VALUES ? box->width * bytes_of(box->to_dtype) : box->width;
  if (from >= 0) drop_table(&box->from, box->from.at + from + from_bytes - 1);
  if (to >= 0) drop_table(&box->to, box->to.at + to + to_bytes - 1);
}

/* ---- Units ---- */

typedef struct place { /* in both views */
  int64_t from, to;
} place;

CODE place place_of(const work *w, uint32_t unit) {
  const treadle_cuda_box *box = &w->box;
  place p;
  p.from = box->from.at;
  p.to = box->to.at;
  int64_t steps = unit;
  ROLLED for (int d = box->ndim - 1;; d--) {
    uint32_t size = box->size[d], at = w->first[d] + unit;
    if (at < size || d == 0)
      unit = 0;
    else
      unit = at / size;
    steps -= (int64_t)unit * size;
    p.from += steps * box->from_stride[d];
    p.to += steps * box->to_stride[d];
    if (unit == 0) return p;
    steps = unit;
  }
}

/* Numbers beyond the item's are read as its last one, and not written. */
CODE uint32_t unit_at(const work *w, uint32_t first, uint32_t i) {
  uint32_t unit = first + i * TREADLE_CUDA_THREADS;
  return unit < w->item.count ? unit : w->item.count - 1;
}

/* These say how many bytes they have written. */
#define ROWS(name, type)                                                                                   \
  CODE uint32_t name(const work *w, uint32_t t) {                                                          \
    uint32_t written = 0;                                                                                  \
    for (uint32_t unit = t; unit < w->item.count; unit += AHEAD * TREADLE_CUDA_THREADS) {                  \
      type value[AHEAD];                                                                                   \
      uint64_t to[AHEAD];                                                                                  \
      UNROLL for (uint32_t i = 0; i < AHEAD; i++) {                                                        \
        place p = place_of(w, unit_at(w, unit, i));                                                        \
        value[i] = *TREADLE_CUDA_AT(const type, address_of(&w->box.from, p.from));                         \
        to[i] = address_of(&w->box.to, p.to);                                                              \
      }                                                                                                    \
      UNROLL for (uint32_t i = 0; i < AHEAD; i++) {                                                        \
        if (unit + i * TREADLE_CUDA_THREADS >= w->item.count) break;                                       \
        *TREADLE_CUDA_AT(type, to[i]) = value[i];                                                          \
        written += (uint32_t)sizeof(type);                                                                 \
      }                                                                                                    \
    }                                                                                                      \
    return written;                                                                                        \
  }
ROWS(rows_1, unit_1)
ROWS(rows_2, unit_2)
ROWS(rows_4, unit_4)
ROWS(rows_8, unit_8)
ROWS(rows_16, unit_16)

CODE uint32_t rows(const work *w, uint32_t t) {
  switch (w->box.width) {
  case 16: return rows_16(w, t);
  case 8: return rows_8(w, t);
  case 4: return rows_4(w, t);
  case 2: return rows_2(w, t);
  default: return rows_1(w, t);
  }
}

CODE uint32_t convert(const treadle_cuda_box *box, uint32_t raw) {
  if (box->from_dtype == box->to_dtype && box->add == 0) return raw;
  uint32_t bits = decode(box->from_dtype, raw);
  if (box->add) bits = plus(bits, box->add);
  return encode(box->to_dtype, bits);
}

CODE uint32_t values(const work *w, uint32_t t) {
  const treadle_cuda_box *box = &w->box;
  const uint32_t from_bytes = bytes_of(box->from_dtype), to_bytes = bytes_of(box->to_dtype);
  uint32_t written = 0;
  for (uint32_t unit = t; unit < w->item.count; unit += AHEAD * TREADLE_CUDA_THREADS) {
    uint32_t raw[AHEAD];
    uint64_t to[AHEAD];
    UNROLL for (uint32_t i = 0; i < AHEAD; i++) {
      place p = place_of(w, unit_at(w, unit, i));
      raw[i] = load(address_of(&box->from, p.from), from_bytes);
      to[i] = address_of(&box->to, p.to);
    }
    UNROLL for (uint32_t i = 0; i < AHEAD; i++) {
      if (unit + i * TREADLE_CUDA_THREADS >= w->item.count) break;
      store(to[i], to_bytes, convert(box, raw[i]));
      written += to_bytes;
    }
  }
  return written;
}

/* Values at any address, across borders of pages. */
CODE uint32_t values_by_bytes(const work *w, uint32_t t) {
  const treadle_cuda_box *box = &w->box;
  const uint32_t from_bytes = bytes_of(box->from_dtype), to_bytes = bytes_of(box->to_dtype);
  uint32_t written = 0;
  ROLLED for (uint32_t unit = t; unit < w->item.count; unit += TREADLE_CUDA_THREADS) {
    const place p = place_of(w, unit);
    store_bytes(&box->to, p.to, to_bytes, convert(box, load_bytes(&box->from, p.from, from_bytes)));
    written += to_bytes;
  }
  return written;
}

CODE uint32_t values_by_eight(const work *w, uint32_t t) {
  enum { BOTH = 2 };
  const treadle_cuda_box *box = &w->box;
  uint32_t from_bytes = bytes_of(box->from_dtype), to_bytes = bytes_of(box->to_dtype), written = 0;
  for (uint32_t unit = t; unit < w->item.count; unit += BOTH * TREADLE_CUDA_THREADS) {
    uint32_t value[BOTH][8];
    uint64_t to[BOTH];
    UNROLL for (uint32_t i = 0; i < BOTH; i++) {
      place p = place_of(w, unit_at(w, unit, i));
      load_eight(address_of(&box->from, p.from), from_bytes, value[i]);
      to[i] = address_of(&box->to, p.to);
    }
    UNROLL for (uint32_t i = 0; i < BOTH; i++) {
      if (unit + i * TREADLE_CUDA_THREADS >= w->item.count) break;
      decode_eight(box->from_dtype, value[i]);
      if (box->add) UNROLL for (uint32_t k = 0; k < 8; k++) value[i][k] = plus(value[i][k], box->add);
      encode_eight(box->to_dtype, value[i]);
      store_eight(to[i], to_bytes, value[i]);
      written += 8 * to_bytes;
    }
  }
  return written;
}

/* ---- Fills ---- */

CODE void fill_unit(const treadle_cuda_box *box, int64_t at) {
  if (box->by_bytes) {
    store_bytes(&box->to, at, box->width, (uint32_t)box->value);
    return;
  }
  uint64_t address = address_of(&box->to, at);
  unit_16 wide;
  UNROLL for (uint32_t i = 0; i < 4; i++) wide.word[i] = (uint32_t)(box->value >> 32 * (i % 2));
  if (box->width == 16)
    *TREADLE_CUDA_AT(unit_16, address) = wide;
  else if (box->width == 8)
    *TREADLE_CUDA_AT(unit_8, address) = box->value;
  else
    store(address, box->width, (uint32_t)box->value);
}

CODE uint32_t fill(const work *w, uint32_t t) {
  uint32_t written = 0;
  ROLLED for (uint32_t unit = t; unit < w->item.count; unit += TREADLE_CUDA_THREADS) {
    fill_unit(&w->box, place_of(w, unit).to);
    written += w->box.width;
  }
  return written;
}

/* ---- Tiles: rows follow each other most closely at the source, columns at the destination ---- */

/* How many values of the axis the tile has. */
CODE uint32_t tile_size(const work *w, int d) {
  uint32_t left = w->box.size[d] - w->first[d];
  return left < TILE ? left : TILE;
}

CODE void read_tile(tile *room, const work *w, uint32_t t) {
  enum { BESIDE = TREADLE_CUDA_THREADS / TILE };
  const treadle_cuda_box *box = &w->box;
  const int column_axis = box->ndim - 1, row_axis = column_axis - 1;
  const uint32_t columns = tile_size(w, column_axis), row = t % TILE, bytes = bytes_of(box->from_dtype);
  if (row >= tile_size(w, row_axis)) return;
  const int64_t at = box->from.at + row * box->from_stride[row_axis], step = box->from_stride[column_axis];
  for (uint32_t first = t / TILE; first < columns; first += AHEAD * BESIDE) {
    uint32_t raw[AHEAD];
    UNROLL for (uint32_t i = 0; i < AHEAD; i++) { /* beyond the last column, one that is read again */
      const uint32_t column = first + i * BESIDE < columns ? first + i * BESIDE : first;
      raw[i] = load(address_of(&box->from, at + column * step), bytes);
    }
    UNROLL for (uint32_t i = 0; i < AHEAD; i++) if (first + i * BESIDE < columns)
        room->value[first + i * BESIDE][row] = convert(box, raw[i]);
  }
}

CODE void write_tile(work *w, const tile *room, uint32_t t) {
  const treadle_cuda_box *box = &w->box;
  const int column_axis = box->ndim - 1, row_axis = column_axis - 1;
  const uint32_t row_count = tile_size(w, row_axis), column = t % TILE, bytes = bytes_of(box->to_dtype);
  uint32_t written = 0;
  if (column >= tile_size(w, column_axis)) return;
  const int64_t at = box->to.at + column * box->to_stride[column_axis];
  for (uint32_t row = t / TILE; row < row_count; row += TREADLE_CUDA_THREADS / TILE) {
    store(address_of(&box->to, at + row * box->to_stride[row_axis]), bytes, room->value[column][row]);
    written += bytes;
  }
  add_shared(&w->written, written);
}

/* ---- All of them ---- */

CODE void write_units(work *w, uint32_t t) {
  uint32_t written = w->box.kind == TREADLE_CUDA_ROWS   ? rows(w, t)
                     : w->box.kind == TREADLE_CUDA_FILL ? fill(w, t)
                     : w->box.width == 8                ? values_by_eight(w, t)
                     : w->box.by_bytes                  ? values_by_bytes(w, t)
                                                        : values(w, t);
  add_shared(&w->written, written);
}

CODE void count_item(const work *w, const treadle_cuda_copy_args *args, uint32_t number, uint32_t t) {
  if (t != 0 || !args->counts) return;
  treadle_cuda_count count;
  count.bytes = w->written;
  count.mark = w->item.start == 0 ? w->box.mark : 0;
  TREADLE_CUDA_AT(treadle_cuda_count, args->counts)[number] = count;
}

#endif
