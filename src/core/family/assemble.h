/* From a family file that is made of others to one tree, as if all of it stood in one file (docs/families.md, "What files
 * share"). What reads families (read.c) sees that tree alone.
 *
 *   extend.c      extends: another family file whose keys this one replaces
 *   block.c       one block: its options, its conditional lines, an engine that is another's
 *   assemble.c    the order of all this; blocks put into the places of a skeleton
 *   change.c      changes: of single lines
 *   layer_dims.c  dims that have other values in some layers
 *   condition.c   conditions: names for them
 *   rename.c      renamed: tensors by other names
 *   tree.c        trees that are edited, files that are found
 *   written.c     the one tree as text
 *
 * Each node keeps the file and the line that it was written in, for messages. */
#ifndef TREADLE_FAMILY_ASSEMBLE_H
#define TREADLE_FAMILY_ASSEMBLE_H

#include "family/read.h"

enum {
  TREADLE_MAX_EXTENDS = 8,      /* files in a row */
  TREADLE_MAX_BLOCKS = 32,      /* of a family */
  TREADLE_MAX_CONDITION = 4000, /* characters, written out */
  TREADLE_MAX_RULE_NODES = 4000 /* lines of a section */
};

typedef struct treadle_assembly {
  treadle_family_reader *reader; /* for messages, and its arena */
  const char *folder;            /* of families; NULL: those that are built in */
} treadle_assembly;

/* The sections that are lists of lines: "tensors", "views", "packed" and the engines. Ended by NULL. */
extern const char *const treadle_section_names[];

/* The whole: `root` as read to a tree without extends, blocks, changes and conditions. */
treadle_status treadle_family_assemble(treadle_assembly *a, const treadle_yaml *root,
                                       const treadle_yaml **whole_p);

/* The text of a family's file as what it comes to (written.c). */
treadle_status treadle_family_write(const char *path, const char *text, size_t length, const char *folder,
                                    treadle_builder *to);

/* ---- extend.c, block.c, change.c, layer_dims.c, condition.c, rename.c ---- */

/* Puts the keys of `child` over those of `parent`. Lists of requirements are appended with `append`, else replaced. */
treadle_status treadle_tree_merge(treadle_assembly *a, treadle_yaml *parent, const treadle_yaml *child,
                                  bool append);
/* A tree of its own in which all that root extends is beneath it. */
treadle_status treadle_family_extend(treadle_assembly *a, const treadle_yaml *root, treadle_yaml **tree_p);
/* Reads what one item of `blocks` asks for, with its options in place. Block lists may have places. */
treadle_status treadle_block_read(treadle_assembly *a, const treadle_yaml *item, treadle_yaml **block_p);
/* An engine's section that is {as: ENGINE, ...} becomes a list, made of that of `tree`. */
treadle_status treadle_engines_derive(treadle_assembly *a, treadle_yaml *tree);
/* Applies a list of changes to the sections of a tree; `only`: all are about this list, and do not say in. */
treadle_status treadle_changes_apply(treadle_assembly *a, treadle_yaml *tree, const treadle_yaml *changes,
                                     treadle_yaml *only);
/* Writes out what layer_dims makes of dims, tensors, views and rules. */
treadle_status treadle_layer_dims_apply(treadle_assembly *a, treadle_yaml *tree);
/* Writes named conditions out wherever a condition stands. Of those in `own`, each must be used. */
treadle_status treadle_conditions_apply(treadle_assembly *a, treadle_yaml *tree, const treadle_yaml *own);
/* Gives tensors the names of `renamed`, wherever they are spoken of. */
treadle_status treadle_renamed_apply(treadle_assembly *a, treadle_yaml *tree);

/* ---- tree.c ---- */

treadle_status treadle_tree_copy(treadle_assembly *a, const treadle_yaml *node, treadle_yaml **copy_p);
/* An empty map or list, in the place of `at` for messages. */
treadle_status treadle_tree_new(treadle_assembly *a, treadle_yaml_type pattern, const treadle_yaml *at,
                                treadle_yaml **node_p);
/* Sets a key of a map; the last where it is new. */
treadle_status treadle_tree_set(treadle_assembly *a, treadle_yaml *map, const char *key,
                                treadle_yaml *value);
void treadle_tree_unset(treadle_yaml *map, const char *key);
/* Puts the items of `from` (NULL: none) in the place of `removed` items of a list. */
treadle_status treadle_tree_splice(treadle_assembly *a, treadle_yaml *list, size_t at, size_t removed,
                                   const treadle_yaml *from);
treadle_yaml *treadle_tree_get(const treadle_yaml *map, const char *key);
/* The list of a section; NULL where there is none. */
treadle_yaml *treadle_tree_section(const treadle_yaml *tree, const char *name);

/* How long the word is that a text begins with: letters, digits and '_', a digit never first. 0: none. */
size_t treadle_word_length(const char *text);

/* Reads NAME.yaml of the families (block: of blocks/): of the folder, and where it has none, of those built in. */
treadle_status treadle_family_load(treadle_assembly *a, const treadle_yaml *at, const char *name,
                                   bool block, const treadle_yaml **root_p);

#endif
