/* The table of layout types. A new type is one file and one row in layout.c. */
#ifndef TREADLE_LAYOUT_LAYOUT_TYPES_H
#define TREADLE_LAYOUT_LAYOUT_TYPES_H

#include "base/text.h"
#include "layout/layout.h"
#include "layout/settings.h"

typedef struct treadle_layout_type {
  const char *name;
  const char *const *keys; /* that it knows, ended by NULL; "dtype" and "on" are common to all but pieces */
  bool holds_fp8;          /* quantised tensors of fp8 files stay so, unless dtype= says otherwise */
  /* Reads the words, builds the layout and adds its own keys to the normal form. Words live as long as
   * `words_arena`, which is the layout's to keep no longer than the call. */
  treadle_status (*create)(treadle_layout *layout, treadle_settings *words, treadle_arena *words_arena,
                           treadle_builder *normal);
} treadle_layout_type;

extern const treadle_layout_type treadle_layout_type_hf, treadle_layout_type_megatron,
    treadle_layout_type_vllm, treadle_layout_type_sglang, treadle_layout_type_fsdp,
    treadle_layout_type_fsdp2, treadle_layout_type_zero1, treadle_layout_type_zero2,
    treadle_layout_type_zero3, treadle_layout_type_distopt, treadle_layout_type_pieces,
    treadle_layout_type_placements;

/* A layout with model, text and ranks, and nothing else. */
treadle_status treadle_layout_start(const treadle_model *model, const char *text, int64_t ranks,
                                    treadle_layout **layout_p);

/* Adds ",key=value" to a normal form, ':' first; nothing for a size of 1. */
void treadle_normal_size(treadle_builder *normal, const char *key, int64_t value);
void treadle_normal_number(treadle_builder *normal, const char *key, int64_t value);
void treadle_normal_text(treadle_builder *normal, const char *key, const char *value);

/* Divides the ranks by the sizes; what is left goes to *rest_p, which may be NULL. `names` is for the message: "tp * pp". */
treadle_status treadle_check_ranks(const treadle_layout *layout, const char *names, const int64_t *sizes,
                                   int count, int64_t *rest_p);

#endif
