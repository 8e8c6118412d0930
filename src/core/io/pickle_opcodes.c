/* Opcodes that make values: plain ones, collections and what is put into them, classes and calls. */
#include "io/pickle_opcodes.h"

#include <string.h>

/* ---- Plain values ------------------------------------------------------------------------------ */

treadle_status treadle_opcode_constant(treadle_pickle_machine *m, int which) {
  return treadle_pickle_machine_push(m, which == 0 ? &m->none : which == 1 ? &m->no : &m->yes);
}

static treadle_status push_int(treadle_pickle_machine *m, int64_t integer) {
  treadle_value *value = NULL;
  treadle_status status;
  TRY(treadle_pickle_machine_new_value(m, TREADLE_VALUE_INT, &value));
  value->is.integer = integer;
  TRY(treadle_pickle_machine_push(m, value));
out:
  return status;
}

treadle_status treadle_opcode_whole(treadle_pickle_machine *m, int width) {
  uint64_t integer = 0;
  treadle_status status;
  TRY(treadle_pickle_machine_take_number(m, width, &integer));
  TRY(push_int(m,
               width == 4 ? (int32_t)(uint32_t)integer : (int64_t)integer)); /* shorter ones are unsigned */
out:
  return status;
}

treadle_status treadle_opcode_long_whole(treadle_pickle_machine *m, int width) {
  const unsigned char *bytes = NULL;
  uint64_t count = 0;
  treadle_status status;
  TRY(treadle_pickle_machine_take_number(m, width, &count));
  TRY(treadle_pickle_machine_take(m, count, &bytes));
  if (count > 8) {
    TRY(treadle_pickle_machine_push_bytes(m, TREADLE_VALUE_BIG, bytes, count));
    goto out;
  }
  uint64_t integer = treadle_pickle_machine_number(bytes, (size_t)count);
  if (count && count < 8 && bytes[count - 1] & 0x80) integer |= UINT64_MAX << (8 * count); /* the sign */
  TRY(push_int(m, (int64_t)integer));
out:
  return status;
}

treadle_status treadle_opcode_real(treadle_pickle_machine *m, int width) {
  const unsigned char *bytes = NULL;
  uint64_t bits = 0;
  treadle_value *value = NULL;
  treadle_status status;
  TRY(treadle_pickle_machine_take(m, (uint64_t)width, &bytes));
  for (int i = 0; i < 8; i++) bits = bits << 8 | bytes[i]; /* the one number with its high byte first */
  TRY(treadle_pickle_machine_new_value(m, TREADLE_VALUE_FLOAT, &value));
  memcpy(&value->is.real, &bits, sizeof bits);
  TRY(treadle_pickle_machine_push(m, value));
out:
  return status;
}

treadle_status treadle_opcode_text(treadle_pickle_machine *m, int width) {
  const unsigned char *bytes = NULL;
  const char *copy = NULL;
  uint64_t count = 0;
  treadle_status status;
  TRY(treadle_pickle_machine_take_number(m, width, &count));
  TRY(treadle_pickle_machine_take(m, count, &bytes));
  TRY(treadle_pickle_machine_copy_text(m, bytes, count, &copy));
  TRY(treadle_pickle_machine_push_bytes(m, TREADLE_VALUE_TEXT, (const unsigned char *)copy, count));
out:
  return status;
}

treadle_status treadle_opcode_binary(treadle_pickle_machine *m, int width) {
  const unsigned char *bytes = NULL;
  uint64_t count = 0;
  treadle_status status;
  TRY(treadle_pickle_machine_take_number(m, width, &count));
  TRY(treadle_pickle_machine_take(m, count, &bytes));
  TRY(treadle_pickle_machine_push_bytes(m, TREADLE_VALUE_BYTES, bytes, count));
out:
  return status;
}

/* ---- Collections ------------------------------------------------------------------------------- */

treadle_status treadle_opcode_empty(treadle_pickle_machine *m, int type) {
  treadle_value *value = NULL;
  treadle_status status;
  TRY(treadle_pickle_machine_new_value(m, (treadle_pickle_type)type, &value));
  TRY(treadle_pickle_machine_push(m, value));
out:
  return status;
}

treadle_status treadle_opcode_gather(treadle_pickle_machine *m, int type) {
  treadle_value **values = NULL;
  size_t count = 0;
  treadle_status status;
  TRY(treadle_pickle_machine_pop_mark(m, &values, &count));
  TRY(treadle_pickle_machine_push_items(m, (treadle_pickle_type)type, values, count));
out:
  return status;
}

treadle_status treadle_opcode_few(treadle_pickle_machine *m, int count) {
  treadle_value *values[3];
  treadle_status status = TREADLE_OK;
  for (int i = count - 1; i >= 0; i--) TRY(treadle_pickle_machine_pop(m, &values[i]));
  TRY(treadle_pickle_machine_push_items(m, TREADLE_VALUE_TUPLE, values, (size_t)count));
out:
  return status;
}

/* Puts values into the value on the top: into its own items when it is of this type, into a call's
 * otherwise. */
static treadle_status fill(treadle_pickle_machine *m, treadle_pickle_type type,
                           treadle_value *const *values, size_t count) {
  treadle_value *target = NULL;
  treadle_pickle_items *items;
  treadle_status status;
  TRY(treadle_pickle_machine_top(m, &target));
  if (type == TREADLE_VALUE_DICT && count % 2) {
    status = treadle_pickle_machine_refuse(m, "a key without a value");
    goto out;
  }
  if (target->type == type) {
    items = &target->is.items;
  } else if (target->type == TREADLE_VALUE_CALL) {
    items = type == TREADLE_VALUE_DICT ? &target->is.call->pairs : &target->is.call->appended;
  } else {
    status = treadle_pickle_machine_refuse(m, "puts items into something that takes none");
    goto out;
  }
  TRY(treadle_pickle_machine_add_items(m, target, items, values, count));
out:
  return status;
}

treadle_status treadle_opcode_add_one(treadle_pickle_machine *m, int type) {
  treadle_value *values[2];
  int count = type == TREADLE_VALUE_DICT ? 2 : 1;
  treadle_status status = TREADLE_OK;
  for (int i = count - 1; i >= 0; i--) TRY(treadle_pickle_machine_pop(m, &values[i]));
  TRY(fill(m, (treadle_pickle_type)type, values, (size_t)count));
out:
  return status;
}

treadle_status treadle_opcode_add_many(treadle_pickle_machine *m, int type) {
  treadle_value **values = NULL;
  size_t count = 0;
  treadle_status status;
  TRY(treadle_pickle_machine_pop_mark(m, &values, &count));
  TRY(fill(m, (treadle_pickle_type)type, values, count));
out:
  return status;
}

/* ---- Classes and calls ------------------------------------------------------------------------- */

static treadle_status push_global(treadle_pickle_machine *m, const char *module, const char *name) {
  treadle_value *value = NULL;
  treadle_status status;
  TRY(treadle_pickle_machine_new_value(m, TREADLE_VALUE_GLOBAL, &value));
  value->is.global.module = module;
  value->is.global.name = name;
  TRY(treadle_pickle_machine_push(m, value));
out:
  return status;
}

static treadle_status take_line(treadle_pickle_machine *m, const char **line_p) {
  const unsigned char *begin = m->image + m->at, *end = memchr(begin, '\n', m->bytes - m->at);
  if (!end) return treadle_pickle_machine_refuse(m, "the pickle is cut off");
  if (memchr(begin, 0, (size_t)(end - begin)))
    return treadle_pickle_machine_refuse(m, "a name with a zero byte");
  m->at += (size_t)(end - begin) + 1;
  return treadle_pickle_machine_copy_text(m, begin, (uint64_t)(end - begin), line_p);
}

treadle_status treadle_opcode_class(treadle_pickle_machine *m, int width) {
  const char *module = NULL, *name = NULL;
  treadle_status status;
  (void)width;
  TRY(take_line(m, &module));
  TRY(take_line(m, &name));
  TRY(push_global(m, module, name));
out:
  return status;
}

treadle_status treadle_opcode_class_of_texts(treadle_pickle_machine *m, int width) {
  treadle_value *module = NULL, *name = NULL;
  treadle_status status;
  (void)width;
  TRY(treadle_pickle_machine_pop(m, &name));
  TRY(treadle_pickle_machine_pop(m, &module));
  if (!treadle_value_text(module) || !treadle_value_text(name)) {
    status = treadle_pickle_machine_refuse(m, "a class whose names are not texts");
    goto out;
  }
  TRY(push_global(m, treadle_value_text(module), treadle_value_text(name)));
out:
  return status;
}

treadle_status treadle_opcode_call(treadle_pickle_machine *m, int count) {
  treadle_value *parts[3] = {NULL, NULL, NULL}, *value;
  treadle_status status = TREADLE_OK;
  for (int i = count - 1; i >= 0; i--) TRY(treadle_pickle_machine_pop(m, &parts[i]));
  TRY(treadle_pickle_machine_new_value(m, count == 1 ? TREADLE_VALUE_PERSISTENT : TREADLE_VALUE_CALL,
                                       &value));
  value->is.call = treadle_arena_alloc(m->arena, sizeof *value->is.call);
  if (!value->is.call) {
    status = treadle_pickle_machine_no_memory(m);
    goto out;
  }
  if (count == 1)
    value->is.call->arguments = parts[0];
  else
    *value->is.call =
        (treadle_pickle_call){.callee = parts[0], .arguments = parts[1], .keywords = parts[2]};
  for (int i = 0; i < count; i++) TRY(treadle_pickle_machine_deepen(m, value, parts[i]));
  TRY(treadle_pickle_machine_push(m, value));
out:
  return status;
}

treadle_status treadle_opcode_build(treadle_pickle_machine *m, int width) {
  treadle_value *state = NULL, *target = NULL;
  treadle_status status;
  (void)width;
  TRY(treadle_pickle_machine_pop(m, &state));
  TRY(treadle_pickle_machine_top(m, &target));
  if (target->type != TREADLE_VALUE_CALL) {
    status = treadle_pickle_machine_refuse(m, "gives a state to something that has none");
    goto out;
  }
  target->is.call->state = state;
  TRY(treadle_pickle_machine_deepen(m, target, state));
out:
  return status;
}
