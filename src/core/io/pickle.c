/* Reading pickles: one loop that takes opcode after opcode from a table; there is no recursion. Here are those that
 * move values about; those that make them are in pickle_opcodes.c, and what all work on in pickle_machine.c. */
#include "io/pickle.h"

#include "base/alloc.h"
#include "io/pickle_opcodes.h"

enum { MOST_BYTES = 1 << 30, MOST_MARKS = 1000 };

static treadle_status protocol(treadle_pickle_machine *m, int width) {
  uint64_t version = 0;
  treadle_status status;
  TRY(treadle_pickle_machine_take_number(m, width, &version));
  if (version < 2 || version > 5)
    status = treadle_pickle_machine_refuse(m, "a protocol that is not 2 to 5");
out:
  return status;
}

static treadle_status frame(treadle_pickle_machine *m, int width) {
  uint64_t length = 0;
  treadle_status status;
  TRY(treadle_pickle_machine_take_number(m, width, &length));
  if (length > m->bytes - m->at) status = treadle_pickle_machine_refuse(m, "the pickle is cut off");
out:
  return status;
}

static treadle_status mark(treadle_pickle_machine *m, int width) {
  (void)width;
  if (++m->marks > MOST_MARKS) return treadle_pickle_machine_refuse(m, "more than 1000 marks on the stack");
  return treadle_pickle_machine_push(m, NULL);
}

static treadle_status stop(treadle_pickle_machine *m, int width) {
  (void)width;
  m->stopped = true;
  return TREADLE_OK;
}

static treadle_status drop(treadle_pickle_machine *m, int width) {
  treadle_value *value = NULL;
  (void)width;
  return treadle_pickle_machine_pop(m, &value);
}

static treadle_status drop_mark(treadle_pickle_machine *m, int width) {
  treadle_value **values = NULL;
  size_t count;
  (void)width;
  return treadle_pickle_machine_pop_mark(m, &values, &count);
}

static treadle_status again(treadle_pickle_machine *m, int width) {
  treadle_value *value = NULL;
  treadle_status status;
  (void)width;
  TRY(treadle_pickle_machine_top(m, &value));
  TRY(treadle_pickle_machine_push(m, value));
out:
  return status;
}

static treadle_status put(treadle_pickle_machine *m, int width) {
  uint64_t slot = 0;
  treadle_status status;
  TRY(treadle_pickle_machine_take_number(m, width, &slot));
  TRY(treadle_pickle_machine_memo_put(m, slot));
  if (slot >= m->memo_next) m->memo_next = (size_t)slot + 1;
out:
  return status;
}

static treadle_status memoize(treadle_pickle_machine *m, int width) {
  (void)width;
  treadle_status status = treadle_pickle_machine_memo_put(m, m->memo_next);
  m->memo_next++;
  return status;
}

static treadle_status get(treadle_pickle_machine *m, int width) {
  uint64_t slot = 0;
  treadle_status status;
  TRY(treadle_pickle_machine_take_number(m, width, &slot));
  if (slot >= m->memo_room || !m->memo[slot]) {
    status = treadle_pickle_machine_refuse(m, "a memo number that nothing was kept under");
    goto out;
  }
  TRY(treadle_pickle_machine_push(m, m->memo[slot]));
out:
  return status;
}

/* By opcode. The comment is CPython's name where the function does not tell. */
static const struct {
  treadle_status (*run)(treadle_pickle_machine *m, int width);
  int width;
} opcodes[256] = {
    [0x80] = {protocol, 1},
    [0x95] = {frame, 8},
    ['('] = {mark, 0},
    ['.'] = {stop, 0},
    ['0'] = {drop, 0},
    ['1'] = {drop_mark, 0},
    ['2'] = {again, 0},
    ['N'] = {treadle_opcode_constant, 0},
    [0x89] = {treadle_opcode_constant, 1}, /* NEWFALSE */
    [0x88] = {treadle_opcode_constant, 2}, /* NEWTRUE */
    ['K'] = {treadle_opcode_whole, 1},     /* BININT1 */
    ['M'] = {treadle_opcode_whole, 2},     /* BININT2 */
    ['J'] = {treadle_opcode_whole, 4},     /* BININT */
    [0x8a] = {treadle_opcode_long_whole, 1},
    [0x8b] = {treadle_opcode_long_whole, 4},
    ['G'] = {treadle_opcode_real, 8},
    [0x8c] = {treadle_opcode_text, 1}, /* SHORT_BINUNICODE */
    ['X'] = {treadle_opcode_text, 4},
    [0x8d] = {treadle_opcode_text, 8},
    ['U'] = {treadle_opcode_binary, 1}, /* SHORT_BINSTRING, of Python 2 */
    ['T'] = {treadle_opcode_binary, 4},
    ['C'] = {treadle_opcode_binary, 1}, /* SHORT_BINBYTES */
    ['B'] = {treadle_opcode_binary, 4},
    [0x8e] = {treadle_opcode_binary, 8},
    [0x96] = {treadle_opcode_binary, 8}, /* BYTEARRAY8 */
    [')'] = {treadle_opcode_empty, TREADLE_VALUE_TUPLE},
    [']'] = {treadle_opcode_empty, TREADLE_VALUE_LIST},
    ['}'] = {treadle_opcode_empty, TREADLE_VALUE_DICT},
    [0x8f] = {treadle_opcode_empty, TREADLE_VALUE_SET},
    ['t'] = {treadle_opcode_gather, TREADLE_VALUE_TUPLE},
    ['l'] = {treadle_opcode_gather, TREADLE_VALUE_LIST},
    ['d'] = {treadle_opcode_gather, TREADLE_VALUE_DICT},
    [0x91] = {treadle_opcode_gather, TREADLE_VALUE_SET}, /* FROZENSET */
    [0x85] = {treadle_opcode_few, 1},
    [0x86] = {treadle_opcode_few, 2},
    [0x87] = {treadle_opcode_few, 3},
    ['a'] = {treadle_opcode_add_one, TREADLE_VALUE_LIST},
    ['s'] = {treadle_opcode_add_one, TREADLE_VALUE_DICT},
    ['e'] = {treadle_opcode_add_many, TREADLE_VALUE_LIST},
    ['u'] = {treadle_opcode_add_many, TREADLE_VALUE_DICT},
    [0x90] = {treadle_opcode_add_many, TREADLE_VALUE_SET},
    ['q'] = {put, 1},
    ['r'] = {put, 4},
    [0x94] = {memoize, 0},
    ['h'] = {get, 1},
    ['j'] = {get, 4},
    ['c'] = {treadle_opcode_class, 0},
    [0x93] = {treadle_opcode_class_of_texts, 0},
    ['R'] = {treadle_opcode_call, 2},  /* REDUCE */
    [0x81] = {treadle_opcode_call, 2}, /* NEWOBJ */
    [0x92] = {treadle_opcode_call, 3}, /* NEWOBJ_EX */
    ['Q'] = {treadle_opcode_call, 1},  /* BINPERSID */
    ['b'] = {treadle_opcode_build, 0},
};

treadle_status treadle_pickle_read(const char *what, const void *image, size_t bytes, treadle_arena *arena,
                                   treadle_value **value_p) {
  treadle_status status = TREADLE_OK;
  treadle_pickle_machine *m =
      treadle_arena_alloc(arena, sizeof *m); /* the constants live as long as the values */
  if (!m) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the values of its pickle", what);
  *m = (treadle_pickle_machine){.what = what, .image = image, .bytes = bytes, .arena = arena};
  m->none.type = TREADLE_VALUE_NONE;
  m->no.type = m->yes.type = TREADLE_VALUE_BOOL;
  m->yes.is.integer = 1;
  if (bytes > MOST_BYTES) {
    status = treadle_fail(TREADLE_REFUSED, "%s: a pickle of %zu bytes, at most %d are read", what, bytes,
                          MOST_BYTES);
    goto out;
  }
  while (!m->stopped) {
    if (m->at == bytes) {
      status =
          treadle_fail(TREADLE_REFUSED, "%s: pickle: ends after %zu bytes, before its end", what, bytes);
      goto out;
    }
    m->opcode_at = m->at++;
    unsigned char opcode = m->image[m->opcode_at];
    if (!opcodes[opcode].run) {
      status = treadle_pickle_machine_refuse(m, "is not read");
      goto out;
    }
    TRY(opcodes[opcode].run(m, opcodes[opcode].width));
  }
  TRY(treadle_pickle_machine_pop(m, value_p));
  if (m->stack.count) status = treadle_pickle_machine_refuse(m, "leaves values on the stack");
out:
  treadle_array_release(&m->stack);
  treadle_free(m->memo);
  return status;
}
