/* Elements are compared in blocks of 64: a loop that compilers make vectors of gives a byte for each, and those become one word
 * with a bit for each. What is counted and written follows from these words: popcounts, and one step for each change or run.
 *
 * First the changes are counted, which gives the bytes of all forms; gaps are written meanwhile, as far as they are few. Another
 * form, if shorter, is then written from the same words: values are read twice, but nothing is kept in between. Long stretches
 * without a change are left to memcmp. */
#include "move/delta.h"

#include "base/status.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

enum { DENSE, GAPS, RUNS, HEAD = 1 };
enum { BLOCK = 64, STRETCH = 1024, STILL = 4 }; /* elements; bytes; blocks */

/* Compiled once for each size of an element, which is a constant then. */
#define EACH static inline __attribute__((always_inline))

/* ---- What has changed ------------------------------------------------------------------------------ */

#define COMPARE_BLOCK(type)                                                                                \
  do {                                                                                                     \
    type x[BLOCK], y[BLOCK];                                                                               \
    memcpy(x, old, sizeof x);                                                                              \
    memcpy(y, now, sizeof y);                                                                              \
    for (int i = 0; i < BLOCK; i++) differs[i] = x[i] != y[i];                                             \
  } while (0)

/* Bit i: has element i changed? Of 64 elements, or of as many as are left. */
EACH uint64_t find_changes(const uint8_t *old, const uint8_t *now, size_t left, size_t each) {
  uint8_t differs[BLOCK];
  if (left < BLOCK) {
    memset(differs, 0, sizeof differs);
    for (size_t i = 0; i < left; i++) differs[i] = memcmp(old + i * each, now + i * each, each) != 0;
  } else if (each == 1) {
    COMPARE_BLOCK(uint8_t);
  } else if (each == 2) {
    COMPARE_BLOCK(uint16_t);
  } else {
    COMPARE_BLOCK(uint32_t);
  }
  uint64_t changed = 0;
  for (int i = 0; i < BLOCK; i += 8) {
    uint64_t
        eight; /* bytes of 0 or 1; the product brings them together in its highest byte (little-endian, as treadle is) */
    memcpy(&eight, differs + i, sizeof eight);
    changed |= (eight * 0x0102040810204080u) >> 56 << i;
  }
  return changed;
}

/* The first element from `at` on that may have changed: no element of a stretch before it has. */
EACH size_t skip_unchanged(const uint8_t *old, const uint8_t *now, size_t at, size_t count, size_t each) {
  while (at < count) {
    size_t elems = count - at < STRETCH / each ? count - at : STRETCH / each;
    if (memcmp(old + at * each, now + at * each, elems * each) != 0) break;
    at += elems;
  }
  return at;
}

/* A walk through the blocks. Stretches without a change are left out, but only behind some blocks without: so a run that a block
 * leaves open is always closed in the next block, or at the end. */
typedef struct blocks {
  const uint8_t *old, *now;
  size_t count;
  size_t at, next;  /* the first element of the block, and behind it */
  uint64_t changed; /* bits of its elements */
  int changing;     /* until this is 0, no stretch is looked at */
} blocks;

EACH bool next_block(blocks *b, size_t each) {
  if (b->changing == 0) b->next = skip_unchanged(b->old, b->now, b->next, b->count, each);
  if (b->next == b->count) return false;
  size_t left = b->count - b->next;
  b->at = b->next;
  b->changed = find_changes(b->old + b->at * each, b->now + b->at * each, left, each);
  b->next += left < BLOCK ? left : BLOCK;
  if (b->changed)
    b->changing = STILL;
  else if (b->changing > 0)
    b->changing--;
  return true;
}

static size_t lowest(uint64_t word) { return (size_t)__builtin_ctzll(word); }
static size_t behind_highest(uint64_t word) { return 64 - (size_t)__builtin_clzll(word); }

/* ---- Writing --------------------------------------------------------------------------------------- */

static size_t number_bytes(size_t number) { return (behind_highest(number | 1) + 6) / 7; }

static inline uint8_t *put_number(uint8_t *to, size_t number) {
  for (; number >= 0x80; number >>= 7) *to++ = (uint8_t)(number | 0x80);
  *to++ = (uint8_t)number;
  return to;
}

/* Writes the changes of a block as gaps; *last_p is behind the last change. */
EACH uint8_t *put_changes(const blocks *b, size_t each, size_t *last_p, uint8_t *to) {
  for (uint64_t changed = b->changed; changed; changed &= changed - 1) {
    size_t i = b->at + lowest(changed);
    to = put_number(to, i - *last_p);
    memcpy(to, b->now + i * each, each);
    to += each;
    *last_p = i + 1;
  }
  return to;
}

/* While changes are counted, gaps are written as far as an eighth of dense, where that and a block more have room. */
enum { FEW = 8, MANY = 512 }; /* parts; bytes */

typedef struct tally {
  size_t changes, runs;
  size_t gap_bytes, length_bytes; /* of the numbers of runs, beyond one each */
  uint8_t *to;                    /* behind the gaps that were written; NULL where there were too many */
} tally;

/* Counts, and writes gaps at `to` up to `room` bytes and a block. Numbers of more than a byte are those of gaps and runs that begin
 * in one block and end in another one. */
EACH tally count_changes(blocks b, size_t each, size_t room, uint8_t *to) {
  tally t = {.to = to};
  size_t last = 0, begin = 0; /* behind the last change; of the open run */
  for (bool open = false; next_block(&b, each); open = b.changed >> (BLOCK - 1)) {
    uint64_t changed = b.changed, same = ~changed;
    if (open && same) t.length_bytes += number_bytes(b.at + lowest(same) - begin - 1) - 1;
    if (!changed) continue;
    t.gap_bytes += number_bytes(b.at + lowest(changed) - last) - 1;
    t.changes += (size_t)__builtin_popcountll(changed);
    t.runs += (size_t)__builtin_popcountll(changed & ~(changed << 1 | open));
    if (same ? changed >> (BLOCK - 1) : !open) begin = b.at + (same ? behind_highest(same) : 0);
    if (t.to && (size_t)(t.to - to) > room) t.to = NULL;
    if (t.to)
      t.to = put_changes(&b, each, &last, t.to);
    else
      last = b.at + behind_highest(changed);
  }
  if (b.changed >> (BLOCK - 1)) t.length_bytes += number_bytes(b.count - begin - 1) - 1;
  return t;
}

EACH uint8_t *write_gaps(blocks b, size_t each, uint8_t *to) {
  size_t last = 0;
  while (next_block(&b, each)) to = put_changes(&b, each, &last, to);
  return to;
}

static uint8_t *write_run(const uint8_t *values, size_t gap, size_t length, size_t each, uint8_t *to) {
  to = put_number(put_number(to, gap), length - 1);
  memcpy(to, values, length * each);
  return to + length * each;
}

EACH uint8_t *write_runs(blocks b, size_t each, uint8_t *to) {
  size_t last = 0, begin = 0;
  bool open = false;
  while (next_block(&b, each))
    for (uint64_t edges = b.changed ^ (b.changed << 1 | open); edges; edges &= edges - 1) {
      size_t i = b.at + lowest(edges);
      if (open) {
        to = write_run(b.now + begin * each, begin - last, i - begin, each, to);
        last = i;
      } else {
        begin = i;
      }
      open = !open;
    }
  if (open) to = write_run(b.now + begin * each, begin - last, b.count - begin, each, to);
  return to;
}

EACH size_t write_shortest(const void *old, const void *now, size_t count, size_t each, uint8_t *to) {
  const blocks start = {.old = old, .now = now, .count = count};
  size_t dense = count * each;
  tally t = count_changes(start, each, dense / FEW, dense >= MANY ? to + HEAD : NULL);
  size_t runs = t.changes * each + 2 * t.runs + t.gap_bytes + t.length_bytes;
  size_t gaps = t.changes * each + t.changes + t.gap_bytes;
  size_t bytes = runs <= gaps ? runs : gaps;
  uint8_t *end;
  if (t.changes == 0) return 0;
  if (dense <= bytes) {
    *to = DENSE;
    memcpy(to + HEAD, now, dense);
    return HEAD + dense;
  }
  if (runs <= gaps) {
    *to = RUNS;
    end = write_runs(start, each, to + HEAD);
  } else {
    *to = GAPS;
    end = t.to ? t.to : write_gaps(start, each, to + HEAD);
  }
  assert((size_t)(end - to) == HEAD + bytes);
  return HEAD + bytes;
}

size_t treadle_delta_most(size_t count, size_t each) {
  assert((each == 1 || each == 2 || each == 4) && count <= SIZE_MAX / 8);
  return HEAD + count * each;
}

size_t treadle_delta_write(const void *old, const void *now, size_t count, size_t each, void *to) {
  assert((each == 1 || each == 2 || each == 4) && count <= SIZE_MAX / 8);
  if (each == 1) return write_shortest(old, now, count, 1, to);
  if (each == 2) return write_shortest(old, now, count, 2, to);
  return write_shortest(old, now, count, 4, to);
}

/* ---- Applying -------------------------------------------------------------------------------------- */

/* Reads a number; false where the bytes end in it, or where it has more than 63 bits. */
static inline bool get_number(const uint8_t **at, const uint8_t *end, size_t *number_p) {
  size_t number = 0;
  for (int shift = 0; shift < 63 && *at < end; shift += 7) {
    uint8_t byte = *(*at)++;
    number |= (size_t)(byte & 0x7f) << shift;
    if (byte < 0x80) {
      *number_p = number;
      return true;
    }
  }
  return false;
}

/* Goes through gaps or runs, which are `bytes` bytes at `from`, and checks them; writes where there are values. */
EACH treadle_status walk(const uint8_t *from, size_t bytes, size_t count, size_t each, bool runs,
                         uint8_t *values) {
  const uint8_t *at = from, *end = from + bytes;
  for (size_t i = 0; at < end;) {
    size_t gap, more = 0, byte = HEAD + (size_t)(at - from);
    if (!get_number(&at, end, &gap) || (runs && !get_number(&at, end, &more)))
      REFUSE("a delta of %zu bytes ends in a number, or has one of more than 63 bits, at byte %zu",
             HEAD + bytes, byte);
    if (gap >= count - i || more >= count - i - gap)
      REFUSE("a delta of %zu elements has %zu from element %zu on, at byte %zu", count, more + 1, i + gap,
             byte);
    i += gap;
    if (more >= (size_t)(end - at) / each)
      REFUSE("a delta of %zu bytes ends before %zu values of %zu bytes, at byte %zu", HEAD + bytes,
             more + 1, each, HEAD + (size_t)(at - from));
    if (values) memcpy(values + i * each, at, runs ? (more + 1) * each : each);
    at += (more + 1) * each;
    i += more + 1;
  }
  return TREADLE_OK;
}

EACH treadle_status check_and_write(const uint8_t *from, size_t bytes, size_t count, size_t each, bool runs,
                                    uint8_t *values) {
  treadle_status status = walk(from, bytes, count, each, runs, NULL);
  return status == TREADLE_OK ? walk(from, bytes, count, each, runs, values) : status;
}

EACH treadle_status apply_some(const uint8_t *from, size_t bytes, size_t count, size_t each,
                               uint8_t *values) {
  if (*from == RUNS) return check_and_write(from + HEAD, bytes - HEAD, count, each, true, values);
  return check_and_write(from + HEAD, bytes - HEAD, count, each, false, values);
}

treadle_status treadle_delta_apply(const void *from, size_t bytes, size_t count, size_t each,
                                   void *values) {
  const uint8_t *form = from;
  assert((each == 1 || each == 2 || each == 4) && count <= SIZE_MAX / 8);
  if (bytes == 0) return TREADLE_OK;
  if (*form > RUNS) REFUSE("a delta of %zu bytes begins with %d, which is not a form", bytes, *form);
  if (bytes == HEAD) REFUSE("a delta has a form, %d, and nothing behind it", *form);
  if (*form == DENSE) {
    if (bytes - HEAD != count * each)
      REFUSE("a dense delta of %zu elements of %zu bytes has %zu bytes, not %zu", count, each, bytes,
             HEAD + count * each);
    memcpy(values, form + HEAD, bytes - HEAD);
    return TREADLE_OK;
  }
  if (each == 1) return apply_some(form, bytes, count, 1, values);
  if (each == 2) return apply_some(form, bytes, count, 2, values);
  return apply_some(form, bytes, count, 4, values);
}
