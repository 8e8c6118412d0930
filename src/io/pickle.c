/* Reading pickles: a stack machine that makes plain values.
 *
 * One loop takes opcode after opcode from a table; there is no recursion. The stack holds values and marks
 * (NULL). What an opcode may take from the stack ends at the last mark, so that it cannot take a mark for a
 * value. The memo is an array: each entry takes two bytes of input or more, so an index beyond the number of
 * input bytes is refused, and the array cannot outgrow the input by much. Lists double their room; all other
 * memory is a fixed number of bytes an opcode.
 *
 * A value's depth is one more than that of the deepest thing put into it when that was put. Through the memo a
 * list can come to hold itself; then its depth means little, and walkers must mark what they saw. */
#include "io/pickle.h"

#include "base/alloc.h"
#include "base/array.h"

#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 1 << 30, MOST_DEPTH = 1000, FIRST_ROOM = 4 };

typedef struct machine {
  const char *what;
  const unsigned char *image;
  size_t bytes, at, opcode_at;
  treadle_arena *arena;
  TREADLE_ARRAY(treadle_value *) stack; /* NULL: a mark */
  treadle_value **memo;
  size_t memo_room, memo_next; /* next: for MEMOIZE */
  int marks;
  bool stopped;
  treadle_value none, no, yes;
} machine;

static treadle_status refuse(const machine *m, const char *why) {
  return treadle_fail(TREADLE_REFUSED, "%s: pickle: opcode 0x%02x at byte %zu: %s", m->what,
                      m->image[m->opcode_at], m->opcode_at, why);
}

static treadle_status no_memory(const machine *m) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the values of its pickle", m->what);
}

/* ---- Stack, memo, values ------------------------------------------------------------------------- */

static treadle_status push(machine *m, treadle_value *value) {
  return treadle_array_push(&m->stack, value) == TREADLE_OK ? TREADLE_OK : no_memory(m);
}

static treadle_status pop(machine *m, treadle_value **value_p) {
  if (!m->stack.count || !m->stack.items[m->stack.count - 1]) return refuse(m, "the stack is empty");
  *value_p = m->stack.items[--m->stack.count];
  return TREADLE_OK;
}

static treadle_status top(machine *m, treadle_value **value_p) {
  treadle_status status = pop(m, value_p);
  if (status == TREADLE_OK) m->stack.count++;
  return status;
}

/* Takes what lies above the last mark, and the mark. The values stay where they were until the next push. */
static treadle_status pop_mark(machine *m, treadle_value ***values_p, size_t *count_p) {
  size_t at = m->stack.count;
  while (at && m->stack.items[at - 1]) at--;
  if (!at) return refuse(m, "there is no mark on the stack");
  *values_p = m->stack.items + at;
  *count_p = m->stack.count - at;
  m->stack.count = at - 1;
  m->marks--;
  return TREADLE_OK;
}

static treadle_status new_value(machine *m, treadle_value_kind kind, treadle_value **value_p) {
  *value_p = treadle_arena_alloc(m->arena, sizeof **value_p);
  if (!*value_p) return no_memory(m);
  (*value_p)->kind = (uint8_t)kind;
  return TREADLE_OK;
}

static treadle_status deepen(const machine *m, treadle_value *value, const treadle_value *inner) {
  if (inner->depth >= value->depth) value->depth = (uint16_t)(inner->depth + 1);
  return value->depth <= MOST_DEPTH ? TREADLE_OK
                                    : refuse(m, "values lie more than 1000 deep in one another");
}

/* Adds count values to the items of `value`. */
static treadle_status add_items(machine *m, treadle_value *value, treadle_items *items,
                                treadle_value *const *values, size_t count) {
  treadle_status status = TREADLE_OK;
  if (count > UINT32_MAX / 2 - items->count) {
    status = refuse(m, "a value of more than 2^31 items");
    goto out;
  }
  if (items->count + count > items->capacity) {
    size_t room = items->capacity ? 2 * (size_t)items->capacity : FIRST_ROOM;
    if (room < items->count + count) room = items->count + count;
    treadle_value **larger = treadle_arena_alloc_array(m->arena, room, sizeof(treadle_value *));
    if (!larger) {
      status = no_memory(m);
      goto out;
    }
    if (items->count) memcpy(larger, items->values, items->count * sizeof *larger);
    items->values = larger;
    items->capacity = (uint32_t)room;
  }
  for (size_t i = 0; i < count; i++) {
    TRY(deepen(m, value, values[i]));
    items->values[items->count++] = values[i];
  }
out:
  return status;
}

static treadle_status take(machine *m, uint64_t count, const unsigned char **bytes_p) {
  if (count > m->bytes - m->at) return refuse(m, "the pickle is cut off");
  *bytes_p = m->image + m->at;
  m->at += (size_t)count;
  return TREADLE_OK;
}

static uint64_t number(const unsigned char *bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; i++) value |= (uint64_t)bytes[i] << (8 * i);
  return value;
}

static treadle_status take_number(machine *m, int bytes, uint64_t *value_p) {
  const unsigned char *at = NULL;
  treadle_status status = take(m, (uint64_t)bytes, &at);
  if (status == TREADLE_OK) *value_p = number(at, (size_t)bytes);
  return status;
}

/* ---- Opcodes; `width` is that of the argument, or of its length ---------------------------------- */

static treadle_status protocol(machine *m, int width) {
  uint64_t version = 0;
  treadle_status status;
  TRY(take_number(m, width, &version));
  if (version < 2 || version > 5) status = refuse(m, "a protocol that is not 2 to 5");
out:
  return status;
}

static treadle_status frame(machine *m, int width) {
  uint64_t length = 0;
  treadle_status status;
  TRY(take_number(m, width, &length));
  if (length > m->bytes - m->at) status = refuse(m, "the pickle is cut off");
out:
  return status;
}

static treadle_status mark(machine *m, int width) {
  (void)width;
  if (++m->marks > MOST_DEPTH) return refuse(m, "more than 1000 marks on the stack");
  return push(m, NULL);
}

static treadle_status stop(machine *m, int width) {
  (void)width;
  m->stopped = true;
  return TREADLE_OK;
}

static treadle_status drop(machine *m, int width) {
  treadle_value *value = NULL;
  (void)width;
  return pop(m, &value);
}

static treadle_status drop_mark(machine *m, int width) {
  treadle_value **values = NULL;
  size_t count;
  (void)width;
  return pop_mark(m, &values, &count);
}

static treadle_status again(machine *m, int width) {
  treadle_value *value = NULL;
  treadle_status status;
  (void)width;
  TRY(top(m, &value));
  TRY(push(m, value));
out:
  return status;
}

static treadle_status constant(machine *m, int width) {
  return push(m, width == 0 ? &m->none : width == 1 ? &m->no : &m->yes);
}

static treadle_status push_int(machine *m, int64_t integer) {
  treadle_value *value = NULL;
  treadle_status status;
  TRY(new_value(m, TREADLE_VALUE_INT, &value));
  value->is.integer = integer;
  TRY(push(m, value));
out:
  return status;
}

static treadle_status whole(machine *m, int width) {
  uint64_t integer = 0;
  treadle_status status;
  TRY(take_number(m, width, &integer));
  TRY(push_int(m,
               width == 4 ? (int32_t)(uint32_t)integer : (int64_t)integer)); /* shorter ones are unsigned */
out:
  return status;
}

static treadle_status push_bytes(machine *m, treadle_value_kind kind, const unsigned char *bytes,
                                 uint64_t count) {
  treadle_value *value = NULL;
  treadle_status status;
  TRY(new_value(m, kind, &value));
  value->is.bytes.at = (const char *)bytes;
  value->is.bytes.count = (size_t)count;
  TRY(push(m, value));
out:
  return status;
}

static treadle_status long_whole(machine *m, int width) {
  const unsigned char *bytes = NULL;
  uint64_t count = 0;
  treadle_status status;
  TRY(take_number(m, width, &count));
  TRY(take(m, count, &bytes));
  if (count > 8) {
    TRY(push_bytes(m, TREADLE_VALUE_BIG, bytes, count));
    goto out;
  }
  uint64_t integer = number(bytes, (size_t)count);
  if (count && count < 8 && bytes[count - 1] & 0x80) integer |= UINT64_MAX << (8 * count); /* the sign */
  TRY(push_int(m, (int64_t)integer));
out:
  return status;
}

static treadle_status real(machine *m, int width) {
  const unsigned char *bytes = NULL;
  uint64_t bits = 0;
  treadle_value *value = NULL;
  treadle_status status;
  TRY(take(m, (uint64_t)width, &bytes));
  for (int i = 0; i < 8; i++) bits = bits << 8 | bytes[i]; /* the one number with its high byte first */
  TRY(new_value(m, TREADLE_VALUE_FLOAT, &value));
  memcpy(&value->is.real, &bits, sizeof bits);
  TRY(push(m, value));
out:
  return status;
}

static treadle_status copy_text(machine *m, const unsigned char *bytes, uint64_t count,
                                const char **text_p) {
  char *text = treadle_arena_alloc(m->arena, (size_t)count + 1);
  if (!text) return no_memory(m);
  memcpy(text, bytes, (size_t)count);
  *text_p = text;
  return TREADLE_OK;
}

static treadle_status text(machine *m, int width) {
  const unsigned char *bytes = NULL;
  const char *copy = NULL;
  uint64_t count = 0;
  treadle_status status;
  TRY(take_number(m, width, &count));
  TRY(take(m, count, &bytes));
  TRY(copy_text(m, bytes, count, &copy));
  TRY(push_bytes(m, TREADLE_VALUE_TEXT, (const unsigned char *)copy, count));
out:
  return status;
}

static treadle_status binary(machine *m, int width) {
  const unsigned char *bytes = NULL;
  uint64_t count = 0;
  treadle_status status;
  TRY(take_number(m, width, &count));
  TRY(take(m, count, &bytes));
  TRY(push_bytes(m, TREADLE_VALUE_BYTES, bytes, count));
out:
  return status;
}

static treadle_status push_empty(machine *m, int kind) {
  treadle_value *value = NULL;
  treadle_status status;
  TRY(new_value(m, (treadle_value_kind)kind, &value));
  TRY(push(m, value));
out:
  return status;
}

static treadle_status push_items(machine *m, treadle_value_kind kind, treadle_value *const *values,
                                 size_t count) {
  treadle_value *value = NULL;
  treadle_status status;
  if (kind == TREADLE_VALUE_DICT && count % 2) {
    status = refuse(m, "a key without a value");
    goto out;
  }
  TRY(new_value(m, kind, &value));
  TRY(add_items(m, value, &value->is.items, values, count));
  TRY(push(m, value));
out:
  return status;
}

/* All above the mark. */
static treadle_status gather(machine *m, int kind) {
  treadle_value **values = NULL;
  size_t count = 0;
  treadle_status status;
  TRY(pop_mark(m, &values, &count));
  TRY(push_items(m, (treadle_value_kind)kind, values, count));
out:
  return status;
}

/* Tuples of 1 to 3. */
static treadle_status few(machine *m, int count) {
  treadle_value *values[3];
  treadle_status status = TREADLE_OK;
  for (int i = count - 1; i >= 0; i--) TRY(pop(m, &values[i]));
  TRY(push_items(m, TREADLE_VALUE_TUPLE, values, (size_t)count));
out:
  return status;
}

/* Puts values into the value on the top: into its own items when it is of this kind, into a call's otherwise. */
static treadle_status fill(machine *m, treadle_value_kind kind, treadle_value *const *values,
                           size_t count) {
  treadle_value *target = NULL;
  treadle_items *items;
  treadle_status status;
  TRY(top(m, &target));
  if (kind == TREADLE_VALUE_DICT && count % 2) {
    status = refuse(m, "a key without a value");
    goto out;
  }
  if (target->kind == kind) {
    items = &target->is.items;
  } else if (target->kind == TREADLE_VALUE_CALL) {
    items = kind == TREADLE_VALUE_DICT ? &target->is.call->pairs : &target->is.call->appended;
  } else {
    status = refuse(m, "puts items into something that takes none");
    goto out;
  }
  TRY(add_items(m, target, items, values, count));
out:
  return status;
}

static treadle_status add_one(machine *m, int kind) {
  treadle_value *values[2];
  int count = kind == TREADLE_VALUE_DICT ? 2 : 1;
  treadle_status status = TREADLE_OK;
  for (int i = count - 1; i >= 0; i--) TRY(pop(m, &values[i]));
  TRY(fill(m, (treadle_value_kind)kind, values, (size_t)count));
out:
  return status;
}

static treadle_status add_many(machine *m, int kind) {
  treadle_value **values = NULL;
  size_t count = 0;
  treadle_status status;
  TRY(pop_mark(m, &values, &count));
  TRY(fill(m, (treadle_value_kind)kind, values, count));
out:
  return status;
}

static treadle_status memo_put(machine *m, uint64_t slot) {
  treadle_value *value = NULL;
  treadle_status status;
  TRY(top(m, &value));
  if (slot >= m->bytes) {
    status = refuse(m, "a memo number larger than the pickle");
    goto out;
  }
  while (slot >= m->memo_room) {
    size_t capacity = m->memo_room;
    TRY(treadle_array_grow((void **)&m->memo, &capacity, capacity, sizeof *m->memo) == TREADLE_OK
            ? TREADLE_OK
            : no_memory(m));
    memset(m->memo + m->memo_room, 0, (capacity - m->memo_room) * sizeof *m->memo);
    m->memo_room = capacity;
  }
  m->memo[slot] = value;
out:
  return status;
}

static treadle_status put(machine *m, int width) {
  uint64_t slot = 0;
  treadle_status status;
  TRY(take_number(m, width, &slot));
  TRY(memo_put(m, slot));
  if (slot >= m->memo_next) m->memo_next = (size_t)slot + 1;
out:
  return status;
}

static treadle_status memoize(machine *m, int width) {
  (void)width;
  treadle_status status = memo_put(m, m->memo_next);
  m->memo_next++;
  return status;
}

static treadle_status get(machine *m, int width) {
  uint64_t slot = 0;
  treadle_status status;
  TRY(take_number(m, width, &slot));
  if (slot >= m->memo_room || !m->memo[slot]) {
    status = refuse(m, "a memo number that nothing was kept under");
    goto out;
  }
  TRY(push(m, m->memo[slot]));
out:
  return status;
}

static treadle_status push_global(machine *m, const char *module, const char *name) {
  treadle_value *value = NULL;
  treadle_status status;
  TRY(new_value(m, TREADLE_VALUE_GLOBAL, &value));
  value->is.global.module = module;
  value->is.global.name = name;
  TRY(push(m, value));
out:
  return status;
}

static treadle_status take_line(machine *m, const char **line_p) {
  const unsigned char *begin = m->image + m->at, *end = memchr(begin, '\n', m->bytes - m->at);
  if (!end) return refuse(m, "the pickle is cut off");
  if (memchr(begin, 0, (size_t)(end - begin))) return refuse(m, "a name with a zero byte");
  m->at += (size_t)(end - begin) + 1;
  return copy_text(m, begin, (uint64_t)(end - begin), line_p);
}

static treadle_status global(machine *m, int width) {
  const char *module = NULL, *name = NULL;
  treadle_status status;
  (void)width;
  TRY(take_line(m, &module));
  TRY(take_line(m, &name));
  TRY(push_global(m, module, name));
out:
  return status;
}

static treadle_status stack_global(machine *m, int width) {
  treadle_value *module = NULL, *name = NULL;
  treadle_status status;
  (void)width;
  TRY(pop(m, &name));
  TRY(pop(m, &module));
  if (!treadle_value_text(module) || !treadle_value_text(name)) {
    status = refuse(m, "a class whose names are not texts");
    goto out;
  }
  TRY(push_global(m, treadle_value_text(module), treadle_value_text(name)));
out:
  return status;
}

/* A call, of what lies on the stack: callee, arguments, keywords. `width` of them, or 1: a persistent id. */
static treadle_status call(machine *m, int width) {
  treadle_value *parts[3] = {NULL, NULL, NULL}, *value;
  treadle_status status = TREADLE_OK;
  for (int i = width - 1; i >= 0; i--) TRY(pop(m, &parts[i]));
  TRY(new_value(m, width == 1 ? TREADLE_VALUE_PERSISTENT : TREADLE_VALUE_CALL, &value));
  value->is.call = treadle_arena_alloc(m->arena, sizeof *value->is.call);
  if (!value->is.call) {
    status = no_memory(m);
    goto out;
  }
  if (width == 1)
    value->is.call->arguments = parts[0];
  else
    *value->is.call = (treadle_call){.callee = parts[0], .arguments = parts[1], .keywords = parts[2]};
  for (int i = 0; i < width; i++) TRY(deepen(m, value, parts[i]));
  TRY(push(m, value));
out:
  return status;
}

static treadle_status build(machine *m, int width) {
  treadle_value *state = NULL, *target = NULL;
  treadle_status status;
  (void)width;
  TRY(pop(m, &state));
  TRY(top(m, &target));
  if (target->kind != TREADLE_VALUE_CALL) {
    status = refuse(m, "gives a state to something that has none");
    goto out;
  }
  target->is.call->state = state;
  TRY(deepen(m, target, state));
out:
  return status;
}

/* By opcode. The comment is CPython's name where the function does not tell. */
static const struct {
  treadle_status (*run)(machine *m, int width);
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
  machine *m = treadle_arena_alloc(arena, sizeof *m); /* the constants live as long as the values */
  if (!m) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the values of its pickle", what);
  *m = (machine){.what = what, .image = image, .bytes = bytes, .arena = arena};
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
      status = refuse(m, "is not read");
      goto out;
    }
    TRY(opcodes[opcode].run(m, opcodes[opcode].width));
  }
  TRY(pop(m, value_p));
  if (m->stack.count) status = refuse(m, "leaves values on the stack");
out:
  treadle_array_release(&m->stack);
  treadle_free(m->memo);
  return status;
}
