/* Layouts by their text: the door to all types, and the plainest of them, Hugging Face's. */
#include "oracle/oracle_parts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Canonical tensors as they are. */
bool oracle_build_hf(oracle_layout *layout, oracle_options *options, char *why) {
  const oracle_model *m = layout->model;
  const char *root = oracle_option_text(options, "root");
  int64_t only = root ? strtoll(root, NULL, 10) : -1;
  if (root && (only < 0 || only >= layout->ranks)) return oracle_refuse(why, "root=%s", root);
  if (!oracle_options_end(options, why)) return false;
  for (int64_t r = 0; r < layout->ranks; r++) {
    const oracle_place at = {.model = m, .rank = &layout->rank[r], .layer = -1};
    oracle_coordinate(at.rank, "dp", r);
    if (root && r != only) continue;
    for (int32_t i = 0; i < m->tensor_count; i++)
      if (m->tensors[i].weight == 0) oracle_add_whole(&at, i);
  }
  return true;
}

/* ---- The door -------------------------------------------------------------------------------- */

oracle_layout *oracle_layout_new(const oracle_model *model, const char *text, int64_t ranks,
                                 int64_t strides, char why[200]) {
  oracle_options options;
  if (!oracle_options_parse(text, &options, why)) return NULL;
  const char *dtype = oracle_option_text(&options, "dtype");
  bool may_hold = strcmp(options.type, "hf") == 0 || strcmp(options.type, "vllm") == 0 ||
                  strcmp(options.type, "sglang") == 0;
  bool asked = dtype && strcmp(dtype, "fp8") == 0;
  if (asked && (!may_hold || !model->block[0])) {
    oracle_refuse(why, "dtype=fp8, but %s", may_hold ? "the model has no blocks" : options.type);
    return NULL;
  }
  oracle_layout *layout = oracle_memory(1, sizeof *layout);
  layout->model = model;
  layout->ranks = ranks;
  layout->fp8 = may_hold && model->block[0] && (asked || !dtype);
  layout->rank = oracle_memory((size_t)ranks, sizeof *layout->rank);

  bool good;
  if (strcmp(options.type, "vllm") == 0) {
    good = oracle_build_vllm(layout, &options, strides, why);
  } else if (strcmp(options.type, "sglang") == 0) {
    good = oracle_build_sglang(layout, &options, strides, why);
  } else if (strides != 1) {
    good = oracle_refuse(why, "a rank map belongs to an inference layout");
  } else if (strcmp(options.type, "megatron") == 0) {
    good = oracle_build_megatron(layout, &options, why);
  } else if (strcmp(options.type, "hf") == 0) {
    good = oracle_build_hf(layout, &options, why);
  } else if (strcmp(options.type, "fsdp") == 0) {
    good = oracle_build_fsdp(layout, &options, why);
  } else if (strcmp(options.type, "fsdp2") == 0) {
    good = oracle_build_fsdp2(layout, &options, why);
  } else if (strncmp(options.type, "zero", 4) == 0) {
    good = oracle_build_zero(layout, &options, why);
  } else if (strcmp(options.type, "distopt") == 0) {
    good = oracle_build_distopt(layout, &options, why);
  } else {
    good = oracle_refuse(why, "unknown kind of layout '%s'", options.type);
  }
  if (good && layout->fp8) good = oracle_blocks_add(layout, strcmp(options.type, "vllm") == 0, why);
  if (!good) {
    oracle_layout_free(layout);
    return NULL;
  }
  for (int64_t r = 0; r < ranks; r++) { /* every local element was set */
    for (int i = 0; i < layout->rank[r].count; i++) {
      const oracle_storage *s = &layout->rank[r].storages[i];
      for (int64_t e = 0; e < s->elems; e++) assert(s->tensor[e] >= ORACLE_PADDING);
    }
  }
  return layout;
}

void oracle_layout_free(oracle_layout *layout) {
  if (!layout) return;
  for (int64_t r = 0; r < layout->ranks; r++) oracle_rank_free(&layout->rank[r]);
  free(layout->rank);
  free(layout);
}

int64_t oracle_layout_coordinate(const oracle_layout *layout, int64_t rank, const char *dimension) {
  for (int i = 0; layout->rank[rank].at[i].name[0]; i++) {
    if (strcmp(layout->rank[rank].at[i].name, dimension) == 0) return layout->rank[rank].at[i].index;
  }
  return -1;
}

const oracle_storage *oracle_layout_find(const oracle_layout *layout, int64_t rank, int chunk,
                                         const char *name) {
  const oracle_rank *r = &layout->rank[rank];
  for (int i = 0; i < r->count; i++) {
    if (r->storages[i].chunk == chunk && strcmp(r->storages[i].name, name) == 0) return &r->storages[i];
  }
  return NULL;
}
