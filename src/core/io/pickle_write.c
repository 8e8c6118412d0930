/* Writing pickles of protocol 2: the bytes of CPython's opcodes, which the caller puts in order. */
#include "io/pickle.h"

#include "base/alloc.h"

#include <string.h>

static void add(treadle_pickle *pickle, const void *bytes, size_t count) {
  if (pickle->failed) return;
  if (count > pickle->capacity - pickle->count) {
    size_t capacity =
        2 * pickle->capacity > pickle->count + count ? 2 * pickle->capacity : pickle->count + count;
    if (capacity < 256) capacity = 256;
    unsigned char *larger = treadle_realloc(pickle->bytes, capacity);
    if (!larger) {
      pickle->failed = true;
      return;
    }
    pickle->bytes = larger;
    pickle->capacity = capacity;
  }
  memcpy(pickle->bytes + pickle->count, bytes, count);
  pickle->count += count;
}

static void add_number(treadle_pickle *pickle, uint64_t number, int bytes) {
  unsigned char little[8];
  for (int i = 0; i < bytes; i++) little[i] = (unsigned char)(number >> (8 * i) & 0xff);
  add(pickle, little, (size_t)bytes);
}

void treadle_pickle_op(treadle_pickle *pickle, char opcode) { add(pickle, &opcode, 1); }

void treadle_pickle_global(treadle_pickle *pickle, const char *module, const char *name) {
  treadle_pickle_op(pickle, 'c');
  add(pickle, module, strlen(module));
  treadle_pickle_op(pickle, '\n');
  add(pickle, name, strlen(name));
  treadle_pickle_op(pickle, '\n');
}

void treadle_pickle_text(treadle_pickle *pickle, const char *text) {
  size_t length = strlen(text);
  treadle_pickle_op(pickle, 'X');
  add_number(pickle, length, 4);
  add(pickle, text, length);
}

void treadle_pickle_int(treadle_pickle *pickle, int64_t integer) {
  if (integer >= 0 && integer < 256) {
    treadle_pickle_op(pickle, 'K');
    add_number(pickle, (uint64_t)integer, 1);
  } else if (integer >= INT32_MIN && integer <= INT32_MAX) {
    treadle_pickle_op(pickle, 'J');
    add_number(pickle, (uint64_t)integer, 4);
  } else {
    treadle_pickle_op(pickle, (char)0x8a);
    add_number(pickle, 8, 1);
    add_number(pickle, (uint64_t)integer, 8);
  }
}

void treadle_pickle_float(treadle_pickle *pickle, double real) {
  uint64_t bits;
  memcpy(&bits, &real, sizeof bits);
  treadle_pickle_op(pickle, 'G');
  add_number(pickle, __builtin_bswap64(bits), 8);
}

void treadle_pickle_put(treadle_pickle *pickle, unsigned slot) {
  treadle_pickle_op(pickle, 'q');
  add_number(pickle, slot, 1);
}

void treadle_pickle_get(treadle_pickle *pickle, unsigned slot) {
  treadle_pickle_op(pickle, 'h');
  add_number(pickle, slot, 1);
}

void treadle_pickle_release(treadle_pickle *pickle) {
  treadle_free(pickle->bytes);
  *pickle = (treadle_pickle){0};
}
