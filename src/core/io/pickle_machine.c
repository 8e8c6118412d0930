/* The stack machine under a pickle.
 *
 * The stack holds values and marks (NULL). What an opcode may take from it ends at the last mark, so that
 * no mark is taken for a value. The memo is an array: each entry takes two bytes of input or more, so an
 * index beyond the number of input bytes is refused, and the array cannot outgrow the input by much. Lists
 * double their room; all other memory is a fixed number of bytes an opcode.
 *
 * A value's depth is one more than that of the deepest thing put into it when that was put. Through the
 * memo a list can come to hold itself; then its depth means little, and walkers must mark what they saw. */
#include "io/pickle_machine.h"

#include <string.h>

enum { MOST_DEPTH = 1000, FIRST_ROOM = 4 };

treadle_status treadle_pickle_machine_refuse(const treadle_pickle_machine *m, const char *why) {
  return treadle_fail(TREADLE_REFUSED, "%s: pickle: opcode 0x%02x at byte %zu: %s", m->what,
                      m->image[m->opcode_at], m->opcode_at, why);
}

treadle_status treadle_pickle_machine_no_memory(const treadle_pickle_machine *m) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for the values of its pickle", m->what);
}

treadle_status treadle_pickle_machine_push(treadle_pickle_machine *m, treadle_value *value) {
  return treadle_array_push(&m->stack, value) == TREADLE_OK ? TREADLE_OK
                                                            : treadle_pickle_machine_no_memory(m);
}

treadle_status treadle_pickle_machine_pop(treadle_pickle_machine *m, treadle_value **value_p) {
  if (!m->stack.count || !m->stack.items[m->stack.count - 1])
    return treadle_pickle_machine_refuse(m, "the stack is empty");
  *value_p = m->stack.items[--m->stack.count];
  return TREADLE_OK;
}

treadle_status treadle_pickle_machine_top(treadle_pickle_machine *m, treadle_value **value_p) {
  treadle_status status = treadle_pickle_machine_pop(m, value_p);
  if (status == TREADLE_OK) m->stack.count++;
  return status;
}

/* Takes what lies above the last mark, and the mark. The values stay where they were until the next
 * push. */
treadle_status treadle_pickle_machine_pop_mark(treadle_pickle_machine *m, treadle_value ***values_p,
                                               size_t *count_p) {
  size_t at = m->stack.count;
  while (at && m->stack.items[at - 1]) at--;
  if (!at) return treadle_pickle_machine_refuse(m, "there is no mark on the stack");
  *values_p = m->stack.items + at;
  *count_p = m->stack.count - at;
  m->stack.count = at - 1;
  m->marks--;
  return TREADLE_OK;
}

treadle_status treadle_pickle_machine_new_value(treadle_pickle_machine *m, treadle_pickle_type type,
                                                treadle_value **value_p) {
  *value_p = treadle_arena_alloc(m->arena, sizeof **value_p);
  if (!*value_p) return treadle_pickle_machine_no_memory(m);
  (*value_p)->type = (uint8_t)type;
  return TREADLE_OK;
}

treadle_status treadle_pickle_machine_deepen(const treadle_pickle_machine *m, treadle_value *value,
                                             const treadle_value *inner) {
  if (inner->depth >= value->depth) value->depth = (uint16_t)(inner->depth + 1);
  return value->depth <= MOST_DEPTH
             ? TREADLE_OK
             : treadle_pickle_machine_refuse(m, "values lie more than 1000 deep in one another");
}

/* Adds count values to the items of `value`. */
treadle_status treadle_pickle_machine_add_items(treadle_pickle_machine *m, treadle_value *value,
                                                treadle_pickle_items *items, treadle_value *const *values,
                                                size_t count) {
  treadle_status status = TREADLE_OK;
  if (count > UINT32_MAX / 2 - items->count) {
    status = treadle_pickle_machine_refuse(m, "a value of more than 2^31 items");
    goto out;
  }
  if (items->count + count > items->capacity) {
    size_t room = items->capacity ? 2 * (size_t)items->capacity : FIRST_ROOM;
    if (room < items->count + count) room = items->count + count;
    treadle_value **larger = treadle_arena_alloc_array(m->arena, room, sizeof(treadle_value *));
    if (!larger) {
      status = treadle_pickle_machine_no_memory(m);
      goto out;
    }
    if (items->count) memcpy(larger, items->values, items->count * sizeof *larger);
    items->values = larger;
    items->capacity = (uint32_t)room;
  }
  for (size_t i = 0; i < count; i++) {
    TRY(treadle_pickle_machine_deepen(m, value, values[i]));
    items->values[items->count++] = values[i];
  }
out:
  return status;
}

treadle_status treadle_pickle_machine_take(treadle_pickle_machine *m, uint64_t count,
                                           const unsigned char **bytes_p) {
  if (count > m->bytes - m->at) return treadle_pickle_machine_refuse(m, "the pickle is cut off");
  *bytes_p = m->image + m->at;
  m->at += (size_t)count;
  return TREADLE_OK;
}

treadle_status treadle_pickle_machine_take_number(treadle_pickle_machine *m, int bytes, uint64_t *value_p) {
  const unsigned char *at = NULL;
  treadle_status status = treadle_pickle_machine_take(m, (uint64_t)bytes, &at);
  if (status == TREADLE_OK) *value_p = treadle_pickle_machine_number(at, (size_t)bytes);
  return status;
}

treadle_status treadle_pickle_machine_memo_put(treadle_pickle_machine *m, uint64_t slot) {
  treadle_value *value = NULL;
  treadle_status status;
  TRY(treadle_pickle_machine_top(m, &value));
  if (slot >= m->bytes) {
    status = treadle_pickle_machine_refuse(m, "a memo number larger than the pickle");
    goto out;
  }
  while (slot >= m->memo_room) {
    size_t capacity = m->memo_room;
    TRY(treadle_array_grow((void **)&m->memo, &capacity, capacity, sizeof *m->memo) == TREADLE_OK
            ? TREADLE_OK
            : treadle_pickle_machine_no_memory(m));
    memset(m->memo + m->memo_room, 0, (capacity - m->memo_room) * sizeof *m->memo);
    m->memo_room = capacity;
  }
  m->memo[slot] = value;
out:
  return status;
}

treadle_status treadle_pickle_machine_copy_text(treadle_pickle_machine *m, const unsigned char *bytes,
                                                uint64_t count, const char **text_p) {
  char *text = treadle_arena_alloc(m->arena, (size_t)count + 1);
  if (!text) return treadle_pickle_machine_no_memory(m);
  memcpy(text, bytes, (size_t)count);
  *text_p = text;
  return TREADLE_OK;
}

treadle_status treadle_pickle_machine_push_bytes(treadle_pickle_machine *m, treadle_pickle_type type,
                                                 const unsigned char *bytes, uint64_t count) {
  treadle_value *value = NULL;
  treadle_status status;
  TRY(treadle_pickle_machine_new_value(m, type, &value));
  value->is.bytes.at = (const char *)bytes;
  value->is.bytes.count = (size_t)count;
  TRY(treadle_pickle_machine_push(m, value));
out:
  return status;
}

treadle_status treadle_pickle_machine_push_items(treadle_pickle_machine *m, treadle_pickle_type type,
                                                 treadle_value *const *values, size_t count) {
  treadle_value *value = NULL;
  treadle_status status;
  if (type == TREADLE_VALUE_DICT && count % 2) {
    status = treadle_pickle_machine_refuse(m, "a key without a value");
    goto out;
  }
  TRY(treadle_pickle_machine_new_value(m, type, &value));
  TRY(treadle_pickle_machine_add_items(m, value, &value->is.items, values, count));
  TRY(treadle_pickle_machine_push(m, value));
out:
  return status;
}
