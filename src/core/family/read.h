/* Shared by read.c, which reads dims, prefixes and tensors, rules.c, which reads the sections
 * of the engines, and fields.c, which serves both. Messages begin with path and line of the family
 * file. */
#ifndef TREADLE_FAMILY_READ_H
#define TREADLE_FAMILY_READ_H

#include "base/hash_map.h"
#include "base/text.h"
#include "family/family.h"

#include <limits.h>

typedef struct treadle_family_reader {
  const char *path;
  int uses_line; /* of the file: where it says what else it is made of */
  treadle_arena *arena;
  treadle_family *family;
  const treadle_yaml *prefixes, *mtp_prefixes; /* NULL: none */
  treadle_hash_map patterns;                   /* name to position */
  treadle_hash_map views;                      /* name to position */
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

/* TREADLE_REFUSED with "PATH line N: " before the message: of the file that the node stands in, which may be a block. Nodes of
 * drafts have no line. */
#define treadle_family_fail(reader, node, format, ...)                                                     \
  ((void)(reader), (node)->line ? treadle_fail(TREADLE_REFUSED, "%s line %d: " format, (node)->file,       \
                                               (node)->line, __VA_ARGS__)                                  \
                                : treadle_fail(TREADLE_REFUSED, "%s: " format, (node)->file, __VA_ARGS__))

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
                                     const char *text, treadle_name *name_p);
/* The same of NAME or NAME@WORD: of several tensors with one name, each in layers of its own, all but one have a word behind
 * it. *key_p is the expanded name with the word, which no other line has. */
treadle_status treadle_family_expand_marked(const treadle_family_reader *reader, const treadle_yaml *node,
                                            const char *text, treadle_name *name_p, const char **key_p);
/* The position of a pattern by its name as written in the file. */
treadle_status treadle_family_pattern(const treadle_family_reader *reader, const treadle_yaml *node,
                                      const char *text, int32_t *pattern_p);
/* A pattern or a view by its name as written in the file. */
treadle_status treadle_family_part(const treadle_family_reader *reader, const treadle_yaml *node,
                                   const char *text, treadle_part_name *part_p);
/* true or false; false when absent. */
treadle_status treadle_family_flag(const treadle_family_reader *reader, const treadle_yaml *node,
                                   const char *key, bool *flag_p);
/* The dtype of a key; NONE when absent. */
treadle_status treadle_family_dtype(const treadle_family_reader *reader, const treadle_yaml *node,
                                    treadle_dtype *dtype_p);
/* How many tensors a line is about: as many as it has names. */
size_t treadle_family_count_names(const treadle_yaml *node);
/* A list of at least one text, copied. *count_p 0 when the key is absent. */
treadle_status treadle_family_texts_of(const treadle_family_reader *reader, const treadle_yaml *node,
                                       const char *key, int32_t *count_p, const char ***texts_p);
/* Are the dimensions of two parts but the first the same axes? */
bool treadle_family_same_width(const treadle_family *family, treadle_part_name a, treadle_part_name b);
/* The text of axis `index` of a part (views have their own), and its dimension; NULL behind the last. */
const char *treadle_family_axis(const treadle_family *family, treadle_part_name part, int index,
                                int *dim_p);

/* Reads `views` (views.c). */
treadle_status treadle_family_read_views(treadle_family_reader *reader, const treadle_yaml *views);
/* Reads `engines`, and `packed`, `traits` and `requires` of the root (rules.c, traits.c). */
treadle_status treadle_family_read_engines(treadle_family_reader *reader, const treadle_yaml *root);
treadle_status treadle_family_read_traits(treadle_family_reader *reader, const treadle_yaml *root);
/* Reads `forward` (forward.c). */
treadle_status treadle_family_read_forward(treadle_family_reader *reader, const treadle_yaml *root);
/* Adds the patterns of block scales, and the rules of vLLM and SGLang for them (scales.c). */
treadle_status treadle_family_add_scales(treadle_family_reader *reader);

#endif
