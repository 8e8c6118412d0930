/* Shared by family_read.c, which reads dims, prefixes and tensors, family_rules.c, which reads the sections
 * of the engines, and family_fields.c, which serves both. Messages begin with path and line of the family
 * file. */
#ifndef TREADLE_MODEL_FAMILY_READ_H
#define TREADLE_MODEL_FAMILY_READ_H

#include "base/map.h"
#include "base/text.h"
#include "model/family.h"

#include <limits.h>

typedef struct treadle_family_reader {
  const char *path;
  treadle_arena *arena;
  treadle_family *family;
  const treadle_yaml *prefixes; /* NULL: none */
  treadle_map kinds;            /* name to position */
} treadle_family_reader;

/* The nearest of several texts, for "did you mean". */
typedef struct treadle_nearest {
  const char *text, *best;
  int distance;
} treadle_nearest;

static inline treadle_nearest treadle_nearest_to(const char *text) {
  return (treadle_nearest){.text = text, .best = "none", .distance = INT_MAX};
}

static inline void treadle_nearest_try(treadle_nearest *nearest, const char *candidate) {
  int distance = treadle_text_distance(nearest->text, candidate);
  if (distance >= nearest->distance) return;
  nearest->best = candidate;
  nearest->distance = distance;
}

/* TREADLE_REFUSED with "PATH line N: " before the message. */
#define treadle_family_fail(reader, node, format, ...)                                                     \
  treadle_fail(TREADLE_REFUSED, "%s line %d: " format, (reader)->path, (node)->line, __VA_ARGS__)

treadle_status treadle_family_no_memory(void);
/* "PATH line N", kept for messages of expressions; NULL: memory is out. */
const char *treadle_family_place(const treadle_family_reader *reader, const treadle_yaml *node);
/* Refuses what is not a map of these keys (NULL-ended). */
treadle_status treadle_family_check_keys(const treadle_family_reader *reader, const treadle_yaml *node,
                                         const char *const *keys);
/* The text of a key; NULL when it is absent and not needed. */
treadle_status treadle_family_text_of(const treadle_family_reader *reader, const treadle_yaml *node,
                                      const char *key, bool needed, const char **text_p);
/* The condition of a key, its grammar checked; NULL when absent. */
treadle_status treadle_family_condition(const treadle_family_reader *reader, const treadle_yaml *node,
                                        const char *key, const char **text_p);
/* A list of at least one text. */
treadle_status treadle_family_check_list(const treadle_family_reader *reader, const treadle_yaml *node,
                                         const treadle_yaml *list, const char *key);
/* Expands the prefix of a tensor name. */
treadle_status treadle_family_expand(const treadle_family_reader *reader, const treadle_yaml *node,
                                     const char *text, const char **name_p, bool *in_layer_p);
/* The position of a kind by its name as written in the file. */
treadle_status treadle_family_kind(const treadle_family_reader *reader, const treadle_yaml *node,
                                   const char *text, int32_t *kind_p);

/* Reads `engines`. */
treadle_status treadle_family_read_engines(treadle_family_reader *reader, const treadle_yaml *engines);

#endif
