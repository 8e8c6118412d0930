/* Texts and bytes that a fuzzer makes and spoils. */
#ifndef TREADLE_TESTS_FUZZ_COMMANDS_BYTES_H
#define TREADLE_TESTS_FUZZ_COMMANDS_BYTES_H

#include "base/random.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Bytes with a 0 behind them. Ended by fuzz_bytes_release(). */
typedef struct fuzz_bytes {
  char *at;
  size_t count;
} fuzz_bytes;

void fuzz_bytes_release(fuzz_bytes *bytes);
/* Bytes [from, from + drop) become `with`. */
void fuzz_bytes_replace(fuzz_bytes *bytes, size_t from, size_t drop, const char *with, size_t count);
void fuzz_bytes_add(fuzz_bytes *bytes, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* One of `count` words; one in `many`. */
#define FUZZ_PICK(random, words)                                                                           \
  ((words)[treadle_random_below(random, (int64_t)(sizeof(words) / sizeof *(words)))])
bool fuzz_one_in(treadle_random *random, int64_t many);

/* A number as text that readers of numbers stumble over: about powers of two, negative, with a point, no number. */
const char *fuzz_edge(treadle_random *random);
/* The same, but a whole number of 64 bits. */
int64_t fuzz_edge_int(treadle_random *random);

/* Bits, cuts, repetitions, anything. */
void fuzz_spoil_bytes(treadle_random *random, fuzz_bytes *bytes);
/* Numbers and words inside of a text, whatever its language; lines. */
void fuzz_spoil_text(treadle_random *random, fuzz_bytes *bytes);
/* One value somewhere in a JSON text: another number or type, gone, renamed, nested. What is not JSON is spoiled as text. */
void fuzz_spoil_json(treadle_random *random, fuzz_bytes *bytes);
/* The header of a safetensors file, as JSON; or its length. */
void fuzz_spoil_safetensors(treadle_random *random, fuzz_bytes *bytes);
/* A number or a byte inside of an entry of a zip archive, whose checksum is made right again. */
void fuzz_spoil_zip(treadle_random *random, fuzz_bytes *bytes);
/* As the name of a file asks for, and sometimes otherwise. */
void fuzz_spoil_file(treadle_random *random, const char *name, fuzz_bytes *bytes);

#endif
