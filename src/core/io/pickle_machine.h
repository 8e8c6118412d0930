/* The stack machine under a pickle: what the opcodes of pickle.c and pickle_opcodes.c are made of. */
#ifndef TREADLE_IO_PICKLE_MACHINE_H
#define TREADLE_IO_PICKLE_MACHINE_H

#include "base/array.h"
#include "io/pickle.h"

typedef struct treadle_pickle_machine {
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
} treadle_pickle_machine;

/* A little-endian number. */
static inline uint64_t treadle_pickle_machine_number(const unsigned char *bytes, size_t count) {
  uint64_t value = 0;
  for (size_t i = 0; i < count; i++) value |= (uint64_t)bytes[i] << (8 * i);
  return value;
}

/* A refusal of the opcode that runs, with its offset. */
treadle_status treadle_pickle_machine_refuse(const treadle_pickle_machine *m, const char *why);
treadle_status treadle_pickle_machine_no_memory(const treadle_pickle_machine *m);

/* The next bytes of the pickle: in the image; as a number; as a text that ends with 0. */
treadle_status treadle_pickle_machine_take(treadle_pickle_machine *m, uint64_t count,
                                           const unsigned char **bytes_p);
treadle_status treadle_pickle_machine_take_number(treadle_pickle_machine *m, int bytes, uint64_t *value_p);
treadle_status treadle_pickle_machine_copy_text(treadle_pickle_machine *m, const unsigned char *bytes,
                                                uint64_t count, const char **text_p);

/* The stack down to the last mark. Values of pop_mark stay where they are until the next push. */
treadle_status treadle_pickle_machine_push(treadle_pickle_machine *m, treadle_value *value);
treadle_status treadle_pickle_machine_pop(treadle_pickle_machine *m, treadle_value **value_p);
treadle_status treadle_pickle_machine_top(treadle_pickle_machine *m, treadle_value **value_p);
treadle_status treadle_pickle_machine_pop_mark(treadle_pickle_machine *m, treadle_value ***values_p,
                                               size_t *count_p);
/* Keeps the top under a number. */
treadle_status treadle_pickle_machine_memo_put(treadle_pickle_machine *m, uint64_t slot);

/* Values. deepen: `inner` was put into `value`. */
treadle_status treadle_pickle_machine_new_value(treadle_pickle_machine *m, treadle_pickle_type type,
                                                treadle_value **value_p);
treadle_status treadle_pickle_machine_deepen(const treadle_pickle_machine *m, treadle_value *value,
                                             const treadle_value *inner);
treadle_status treadle_pickle_machine_add_items(treadle_pickle_machine *m, treadle_value *value,
                                                treadle_pickle_items *items, treadle_value *const *values,
                                                size_t count);
treadle_status treadle_pickle_machine_push_bytes(treadle_pickle_machine *m, treadle_pickle_type type,
                                                 const unsigned char *bytes, uint64_t count);
treadle_status treadle_pickle_machine_push_items(treadle_pickle_machine *m, treadle_pickle_type type,
                                                 treadle_value *const *values, size_t count);

#endif
