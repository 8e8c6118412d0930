/* YAML by way of libyaml, as a tree of nodes in one arena. Anchors, aliases, tags and several documents
 * are refused; keys are scalars and stand once. Depth is at most 64. */
#ifndef TREADLE_IO_YAML_H
#define TREADLE_IO_YAML_H

#include "base/arena.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>

typedef enum treadle_yaml_type {
  TREADLE_YAML_SCALAR,
  TREADLE_YAML_LIST,
  TREADLE_YAML_MAP
} treadle_yaml_type;

typedef struct treadle_yaml {
  treadle_yaml_type type;
  int line;                    /* from 1 */
  const char *file;            /* what it was read from, as it was named to the parser */
  const char *text;            /* scalar */
  bool is_plain;               /* scalar: without quotes */
  size_t count;                /* list, map */
  struct treadle_yaml **items; /* list: items; map: values */
  const char **keys;           /* map, in file order */
  int *key_lines;              /* map: where each key stands; NULL when not read */
  const char *note; /* what is written above it as a comment, if lines are its own; NULL when read */
} treadle_yaml;

treadle_status treadle_yaml_load(const char *path, treadle_arena *arena, const treadle_yaml **root_p);
treadle_status treadle_yaml_parse(const char *what, const char *text, size_t length, treadle_arena *arena,
                                  const treadle_yaml **root_p);

/* The value of a key of a map; NULL when absent or when node is not a map. */
const treadle_yaml *treadle_yaml_get(const treadle_yaml *node, const char *key);
/* The scalar text of a key; `otherwise` when absent or not a scalar. */
const char *treadle_yaml_text(const treadle_yaml *node, const char *key, const char *otherwise);

/* ---- What scalars say (yaml_values.c) ---------------------------------------------------------------- */

/* true and false, yes and no, on and off; false: it is none of them. */
bool treadle_yaml_truth(const char *text, bool *truth_p);
/* Nothing, ~ and null. */
bool treadle_yaml_is_null(const char *text);
/* A number in decimal digits, in `to` where it was not; NULL: what begins as a number and is none in YAML 1.1. A text that does not begin as a
 * number is given back. */
enum { TREADLE_YAML_NUMBER = 64 };
const char *treadle_yaml_number(const char *text, char to[TREADLE_YAML_NUMBER]);

/* ---- Writing ------------------------------------------------------------------------------------------ */

/* Adds a tree as text that is read as the same tree (yaml_write.c). */
void treadle_yaml_write(treadle_builder *text, const treadle_yaml *root);
/* The same of one text: in quotes where it must be. */
void treadle_yaml_write_scalar(treadle_builder *text, const char *value);

#endif
