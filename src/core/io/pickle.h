/* Python's pickles, read into plain values. Nothing is imported, called or looked up: a class is a pair of
 * names, and what Python would make by calling something is a value of type `call`, which says what would
 * be called, with what, and with what state and items the result would be filled.
 *
 * Protocols 2 to 5, as torch.save and torch.distributed.checkpoint write them (docs of CPython's
 * pickletools). Refused, with the offset: the text opcodes of protocol 0 and 1, extension codes, buffers
 * outside the stream, anything unknown, and whatever passes a limit.
 *
 * Values may be shared, and a list, dict or set may hold itself: walk with a limit on depth, or marks. */
#ifndef TREADLE_IO_PICKLE_H
#define TREADLE_IO_PICKLE_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum treadle_pickle_type {
  TREADLE_VALUE_NONE,
  TREADLE_VALUE_BOOL,       /* integer: 0 or 1 */
  TREADLE_VALUE_INT,        /* integer */
  TREADLE_VALUE_BIG,        /* an integer beyond 64 bits: bytes, two's complement, little-endian */
  TREADLE_VALUE_FLOAT,      /* real */
  TREADLE_VALUE_TEXT,       /* bytes: UTF-8, ends with 0 beyond its length */
  TREADLE_VALUE_BYTES,      /* bytes, in the image */
  TREADLE_VALUE_TUPLE,      /* items */
  TREADLE_VALUE_LIST,       /* items */
  TREADLE_VALUE_SET,        /* items, as they stood in the stream */
  TREADLE_VALUE_DICT,       /* items: key, value, key, value, ... as they stood in the stream */
  TREADLE_VALUE_GLOBAL,     /* global: a class or function */
  TREADLE_VALUE_CALL,       /* call */
  TREADLE_VALUE_PERSISTENT, /* call: arguments is the id; torch keeps its storages so */
} treadle_pickle_type;

typedef struct treadle_value treadle_value;

typedef struct treadle_pickle_items {
  treadle_value **values;
  uint32_t count, capacity;
} treadle_pickle_items;

typedef struct treadle_pickle_call {
  treadle_value *callee;         /* mostly a GLOBAL; NULL in a PERSISTENT */
  treadle_value *arguments;      /* mostly a TUPLE */
  treadle_value *keywords;       /* of NEWOBJ_EX, else NULL */
  treadle_value *state;          /* of BUILD, the last one; NULL: none */
  treadle_pickle_items pairs;    /* set as in a dict */
  treadle_pickle_items appended; /* appended as to a list or set */
} treadle_pickle_call;

struct treadle_value {
  uint8_t type;
  bool seen;      /* for walkers; false after reading */
  uint16_t depth; /* of what it was made from, at least */
  union {
    int64_t integer;
    double real;
    struct {
      const char *at;
      size_t count;
    } bytes;
    treadle_pickle_items items;
    struct {
      const char *module, *name;
    } global;
    treadle_pickle_call *call;
  } is;
};

/* Reads one pickle, of at most 1 GiB; bytes behind its end are ignored. The values lie in the arena;
 * bytes and big integers point into `image`. Memory stays within some 128 bytes a byte read; values lie
 * in one another at most 1,000 deep. */
treadle_status treadle_pickle_read(const char *what, const void *image, size_t bytes, treadle_arena *arena,
                                   treadle_value **value_p);

/* A text without zero bytes; NULL when the value (may be NULL) is something else. */
const char *treadle_value_text(const treadle_value *value);
/* A whole number of 64 bits that is not a bool. */
bool treadle_value_int(const treadle_value *value, int64_t *integer_p);
/* A tuple's or list's items, a torch.Size's too; NULL otherwise. */
const treadle_pickle_items *treadle_value_sequence(const treadle_value *value);
/* The numbers of a sequence, at most 8, all from 0 on and below 2^63; false when it is none. */
bool treadle_value_numbers(const treadle_value *value, int64_t numbers[8], int *count_p);
/* The pairs of a dict or a collections.OrderedDict; NULL otherwise. */
const treadle_pickle_items *treadle_value_pairs(const treadle_value *value);
/* The value of a text key in pairs (the last one, as in Python), or NULL. Linear. */
const treadle_value *treadle_pairs_get(const treadle_pickle_items *pairs, const char *key);
/* Is this the class or function module.name? */
bool treadle_value_is_global(const treadle_value *value, const char *module, const char *name);
/* What module.name(...) would make: its call, or NULL. */
const treadle_pickle_call *treadle_value_call_of(const treadle_value *value, const char *module,
                                                 const char *name);
/* "a list", "a call of os.system", for messages; into buffer. */
const char *treadle_value_words(const treadle_value *value, char *buffer, size_t bytes);

/* Writing, protocol 2: values in the order of a stack machine, see pickle_write.c. A zeroed struct is an
 * empty pickle; after memory ran out `failed` is set, and the caller checks once at the end. */
typedef struct treadle_pickle {
  unsigned char *bytes;
  size_t count, capacity;
  bool failed;
} treadle_pickle;

void treadle_pickle_op(treadle_pickle *pickle, char opcode); /* one without argument */
void treadle_pickle_global(treadle_pickle *pickle, const char *module, const char *name);
void treadle_pickle_text(treadle_pickle *pickle, const char *text);
void treadle_pickle_int(treadle_pickle *pickle, int64_t integer);
void treadle_pickle_float(treadle_pickle *pickle, double real);
void treadle_pickle_put(treadle_pickle *pickle, unsigned slot); /* keeps the top; slot below 256 */
void treadle_pickle_get(treadle_pickle *pickle, unsigned slot);
void treadle_pickle_release(treadle_pickle *pickle);

#endif
