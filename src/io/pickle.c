/* Reading pickles: one loop that takes opcode after opcode from a table; there is no recursion. What
 * they work on is in pickle_machine.c. */
#include "io/pickle.h"

#include "base/alloc.h"
#include "io/pickle_machine.h"

#include <string.h>

enum { MOST_BYTES = 1 << 30, MOST_MARKS = 1000 };

/* The functions below run one opcode each. `width` is that of its argument, or of the argument's length. */

static treadle_status protocol(treadle_machine *m, int width) {
  uint64_t version = 0;
  treadle_status status;
  TRY(treadle_machine_take_number(m, width, &version));
  if (version < 2 || version > 5) status = treadle_machine_refuse(m, "a protocol that is not 2 to 5");
out:
  return status;
}

static treadle_status frame(treadle_machine *m, int width) {
  uint64_t length = 0;
  treadle_status status;
  TRY(treadle_machine_take_number(m, width, &length));
  if (length > m->bytes - m->at) status = treadle_machine_refuse(m, "the pickle is cut off");
out:
  return status;
}

static treadle_status mark(treadle_machine *m, int width) {
  (void)width;
  if (++m->marks > MOST_MARKS) return treadle_machine_refuse(m, "more than 1000 marks on the stack");
  return treadle_machine_push(m, NULL);
}

static treadle_status stop(treadle_machine *m, int width) {
  (void)width;
  m->stopped = true;
  return TREADLE_OK;
}

static treadle_status drop(treadle_machine *m, int width) {
  treadle_value *value = NULL;
  (void)width;
  return treadle_machine_pop(m, &value);
}

static treadle_status drop_mark(treadle_machine *m, int width) {
  treadle_value **values = NULL;
  size_t count;
  (void)width;
  return treadle_machine_pop_mark(m, &values, &count);
}

static treadle_status again(treadle_machine *m, int width) {
  treadle_value *value = NULL;
  treadle_status status;
  (void)width;
  TRY(treadle_machine_top(m, &value));
  TRY(treadle_machine_push(m, value));
out:
  return status;
}

static treadle_status constant(treadle_machine *m, int width) {
  return treadle_machine_push(m, width == 0 ? &m->none : width == 1 ? &m->no : &m->yes);
}

static treadle_status push_int(treadle_machine *m, int64_t integer) {
  treadle_value *value = NULL;
  treadle_status status;
  TRY(treadle_machine_new_value(m, TREADLE_VALUE_INT, &value));
  value->is.integer = integer;
  TRY(treadle_machine_push(m, value));
out:
  return status;
}

static treadle_status whole(treadle_machine *m, int width) {
  uint64_t integer = 0;
  treadle_status status;
  TRY(treadle_machine_take_number(m, width, &integer));
  TRY(push_int(m,
               width == 4 ? (int32_t)(uint32_t)integer : (int64_t)integer)); /* shorter ones are unsigned */
out:
  return status;
}

static treadle_status long_whole(treadle_machine *m, int width) {
  const unsigned char *bytes = NULL;
  uint64_t count = 0;
  treadle_status status;
  TRY(treadle_machine_take_number(m, width, &count));
  TRY(treadle_machine_take(m, count, &bytes));
  if (count > 8) {
    TRY(treadle_machine_push_bytes(m, TREADLE_VALUE_BIG, bytes, count));
    goto out;
  }
  uint64_t integer = treadle_machine_number(bytes, (size_t)count);
  if (count && count < 8 && bytes[count - 1] & 0x80) integer |= UINT64_MAX << (8 * count); /* the sign */
  TRY(push_int(m, (int64_t)integer));
out:
  return status;
}

static treadle_status real(treadle_machine *m, int width) {
  const unsigned char *bytes = NULL;
  uint64_t bits = 0;
  treadle_value *value = NULL;
  treadle_status status;
  TRY(treadle_machine_take(m, (uint64_t)width, &bytes));
  for (int i = 0; i < 8; i++) bits = bits << 8 | bytes[i]; /* the one number with its high byte first */
  TRY(treadle_machine_new_value(m, TREADLE_VALUE_FLOAT, &value));
  memcpy(&value->is.real, &bits, sizeof bits);
  TRY(treadle_machine_push(m, value));
out:
  return status;
}

static treadle_status text(treadle_machine *m, int width) {
  const unsigned char *bytes = NULL;
  const char *copy = NULL;
  uint64_t count = 0;
  treadle_status status;
  TRY(treadle_machine_take_number(m, width, &count));
  TRY(treadle_machine_take(m, count, &bytes));
  TRY(treadle_machine_copy_text(m, bytes, count, &copy));
  TRY(treadle_machine_push_bytes(m, TREADLE_VALUE_TEXT, (const unsigned char *)copy, count));
out:
  return status;
}

static treadle_status binary(treadle_machine *m, int width) {
  const unsigned char *bytes = NULL;
  uint64_t count = 0;
  treadle_status status;
  TRY(treadle_machine_take_number(m, width, &count));
  TRY(treadle_machine_take(m, count, &bytes));
  TRY(treadle_machine_push_bytes(m, TREADLE_VALUE_BYTES, bytes, count));
out:
  return status;
}

static treadle_status push_empty(treadle_machine *m, int kind) {
  treadle_value *value = NULL;
  treadle_status status;
  TRY(treadle_machine_new_value(m, (treadle_value_kind)kind, &value));
  TRY(treadle_machine_push(m, value));
out:
  return status;
}

/* All above the mark. */
static treadle_status gather(treadle_machine *m, int kind) {
  treadle_value **values = NULL;
  size_t count = 0;
  treadle_status status;
  TRY(treadle_machine_pop_mark(m, &values, &count));
  TRY(treadle_machine_push_items(m, (treadle_value_kind)kind, values, count));
out:
  return status;
}

/* Tuples of 1 to 3. */
static treadle_status few(treadle_machine *m, int count) {
  treadle_value *values[3];
  treadle_status status = TREADLE_OK;
  for (int i = count - 1; i >= 0; i--) TRY(treadle_machine_pop(m, &values[i]));
  TRY(treadle_machine_push_items(m, TREADLE_VALUE_TUPLE, values, (size_t)count));
out:
  return status;
}

/* Puts values into the value on the top: into its own items when it is of this kind, into a call's
 * otherwise. */
static treadle_status fill(treadle_machine *m, treadle_value_kind kind, treadle_value *const *values,
                           size_t count) {
  treadle_value *target = NULL;
  treadle_items *items;
  treadle_status status;
  TRY(treadle_machine_top(m, &target));
  if (kind == TREADLE_VALUE_DICT && count % 2) {
    status = treadle_machine_refuse(m, "a key without a value");
    goto out;
  }
  if (target->kind == kind) {
    items = &target->is.items;
  } else if (target->kind == TREADLE_VALUE_CALL) {
    items = kind == TREADLE_VALUE_DICT ? &target->is.call->pairs : &target->is.call->appended;
  } else {
    status = treadle_machine_refuse(m, "puts items into something that takes none");
    goto out;
  }
  TRY(treadle_machine_add_items(m, target, items, values, count));
out:
  return status;
}

static treadle_status add_one(treadle_machine *m, int kind) {
  treadle_value *values[2];
  int count = kind == TREADLE_VALUE_DICT ? 2 : 1;
  treadle_status status = TREADLE_OK;
  for (int i = count - 1; i >= 0; i--) TRY(treadle_machine_pop(m, &values[i]));
  TRY(fill(m, (treadle_value_kind)kind, values, (size_t)count));
out:
  return status;
}

static treadle_status add_many(treadle_machine *m, int kind) {
  treadle_value **values = NULL;
  size_t count = 0;
  treadle_status status;
  TRY(treadle_machine_pop_mark(m, &values, &count));
  TRY(fill(m, (treadle_value_kind)kind, values, count));
out:
  return status;
}

static treadle_status put(treadle_machine *m, int width) {
  uint64_t slot = 0;
  treadle_status status;
  TRY(treadle_machine_take_number(m, width, &slot));
  TRY(treadle_machine_memo_put(m, slot));
  if (slot >= m->memo_next) m->memo_next = (size_t)slot + 1;
out:
  return status;
}

static treadle_status memoize(treadle_machine *m, int width) {
  (void)width;
  treadle_status status = treadle_machine_memo_put(m, m->memo_next);
  m->memo_next++;
  return status;
}

static treadle_status get(treadle_machine *m, int width) {
  uint64_t slot = 0;
  treadle_status status;
  TRY(treadle_machine_take_number(m, width, &slot));
  if (slot >= m->memo_room || !m->memo[slot]) {
    status = treadle_machine_refuse(m, "a memo number that nothing was kept under");
    goto out;
  }
  TRY(treadle_machine_push(m, m->memo[slot]));
out:
  return status;
}

static treadle_status push_global(treadle_machine *m, const char *module, const char *name) {
  treadle_value *value = NULL;
  treadle_status status;
  TRY(treadle_machine_new_value(m, TREADLE_VALUE_GLOBAL, &value));
  value->is.global.module = module;
  value->is.global.name = name;
  TRY(treadle_machine_push(m, value));
out:
  return status;
}

static treadle_status take_line(treadle_machine *m, const char **line_p) {
  const unsigned char *begin = m->image + m->at, *end = memchr(begin, '\n', m->bytes - m->at);
  if (!end) return treadle_machine_refuse(m, "the pickle is cut off");
  if (memchr(begin, 0, (size_t)(end - begin))) return treadle_machine_refuse(m, "a name with a zero byte");
  m->at += (size_t)(end - begin) + 1;
  return treadle_machine_copy_text(m, begin, (uint64_t)(end - begin), line_p);
}

static treadle_status global(treadle_machine *m, int width) {
  const char *module = NULL, *name = NULL;
  treadle_status status;
  (void)width;
  TRY(take_line(m, &module));
  TRY(take_line(m, &name));
  TRY(push_global(m, module, name));
out:
  return status;
}

static treadle_status stack_global(treadle_machine *m, int width) {
  treadle_value *module = NULL, *name = NULL;
  treadle_status status;
  (void)width;
  TRY(treadle_machine_pop(m, &name));
  TRY(treadle_machine_pop(m, &module));
  if (!treadle_value_text(module) || !treadle_value_text(name)) {
    status = treadle_machine_refuse(m, "a class whose names are not texts");
    goto out;
  }
  TRY(push_global(m, treadle_value_text(module), treadle_value_text(name)));
out:
  return status;
}

/* A call, of what lies on the stack: callee, arguments, keywords. `width` of them, or 1: a persistent
 * id. */
static treadle_status call(treadle_machine *m, int width) {
  treadle_value *parts[3] = {NULL, NULL, NULL}, *value;
  treadle_status status = TREADLE_OK;
  for (int i = width - 1; i >= 0; i--) TRY(treadle_machine_pop(m, &parts[i]));
  TRY(treadle_machine_new_value(m, width == 1 ? TREADLE_VALUE_PERSISTENT : TREADLE_VALUE_CALL, &value));
  value->is.call = treadle_arena_alloc(m->arena, sizeof *value->is.call);
  if (!value->is.call) {
    status = treadle_machine_no_memory(m);
    goto out;
  }
  if (width == 1)
    value->is.call->arguments = parts[0];
  else
    *value->is.call = (treadle_call){.callee = parts[0], .arguments = parts[1], .keywords = parts[2]};
  for (int i = 0; i < width; i++) TRY(treadle_machine_deepen(m, value, parts[i]));
  TRY(treadle_machine_push(m, value));
out:
  return status;
}

static treadle_status build(treadle_machine *m, int width) {
  treadle_value *state = NULL, *target = NULL;
  treadle_status status;
  (void)width;
  TRY(treadle_machine_pop(m, &state));
  TRY(treadle_machine_top(m, &target));
  if (target->kind != TREADLE_VALUE_CALL) {
    status = treadle_machine_refuse(m, "gives a state to something that has none");
    goto out;
  }
  target->is.call->state = state;
  TRY(treadle_machine_deepen(m, target, state));
out:
  return status;
}

/* By opcode. The comment is CPython's name where the function does not tell. */
static const struct {
  treadle_status (*run)(treadle_machine *m, int width);
  int width;
} opcodes[256] = {
    [0x80] = {protocol, 1},
    [0x95] = {frame, 8},
    ['('] = {mark, 0},
    ['.'] = {stop, 0},
    ['0'] = {drop, 0},
    ['1'] = {drop_mark, 0},
    ['2'] = {again, 0},
    ['N'] = {constant, 0},
    [0x89] = {constant, 1}, /* NEWFALSE */
    [0x88] = {constant, 2}, /* NEWTRUE */
    ['K'] = {whole, 1},     /* BININT1 */
    ['M'] = {whole, 2},     /* BININT2 */
    ['J'] = {whole, 4},     /* BININT */
    [0x8a] = {long_whole, 1},
    [0x8b] = {long_whole, 4},
    ['G'] = {real, 8},
    [0x8c] = {text, 1}, /* SHORT_BINUNICODE */
    ['X'] = {text, 4},
    [0x8d] = {text, 8},
    ['U'] = {binary, 1}, /* SHORT_BINSTRING, of Python 2 */
    ['T'] = {binary, 4},
    ['C'] = {binary, 1}, /* SHORT_BINBYTES */
    ['B'] = {binary, 4},
    [0x8e] = {binary, 8},
    [0x96] = {binary, 8}, /* BYTEARRAY8 */
    [')'] = {push_empty, TREADLE_VALUE_TUPLE},
    [']'] = {push_empty, TREADLE_VALUE_LIST},
    ['}'] = {push_empty, TREADLE_VALUE_DICT},
    [0x8f] = {push_empty, TREADLE_VALUE_SET},
    ['t'] = {gather, TREADLE_VALUE_TUPLE},
    ['l'] = {gather, TREADLE_VALUE_LIST},
    ['d'] = {gather, TREADLE_VALUE_DICT},
    [0x91] = {gather, TREADLE_VALUE_SET}, /* FROZENSET */
    [0x85] = {few, 1},
    [0x86] = {few, 2},
    [0x87] = {few, 3},
    ['a'] = {add_one, TREADLE_VALUE_LIST},
    ['s'] = {add_one, TREADLE_VALUE_DICT},
    ['e'] = {add_many, TREADLE_VALUE_LIST},
    ['u'] = {add_many, TREADLE_VALUE_DICT},
    [0x90] = {add_many, TREADLE_VALUE_SET},
    ['q'] = {put, 1},
    ['r'] = {put, 4},
    [0x94] = {memoize, 0},
    ['h'] = {get, 1},
    ['j'] = {get, 4},
    ['c'] = {global, 0},
    [0x93] = {stack_global, 0},
    ['R'] = {call, 2},  /* REDUCE */
    [0x81] = {call, 2}, /* NEWOBJ */
    [0x92] = {call, 3}, /* NEWOBJ_EX */
    ['Q'] = {call, 1},  /* BINPERSID */
    ['b'] = {build, 0},
};

treadle_status treadle_pickle_read(const char *what, const void *image, size_t bytes, treadle_arena *arena,
                                   treadle_value **value_p) {
  treadle_status status = TREADLE_OK;
  treadle_machine *m = treadle_arena_alloc(arena, sizeof *m); /* the constants live as long as the values */
  if (!m) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the values of its pickle", what);
  *m = (treadle_machine){.what = what, .image = image, .bytes = bytes, .arena = arena};
  m->none.kind = TREADLE_VALUE_NONE;
  m->no.kind = m->yes.kind = TREADLE_VALUE_BOOL;
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
      status = treadle_machine_refuse(m, "is not read");
      goto out;
    }
    TRY(opcodes[opcode].run(m, opcodes[opcode].width));
  }
  TRY(treadle_machine_pop(m, value_p));
  if (m->stack.count) status = treadle_machine_refuse(m, "leaves values on the stack");
out:
  treadle_array_release(&m->stack);
  treadle_free(m->memo);
  return status;
}
