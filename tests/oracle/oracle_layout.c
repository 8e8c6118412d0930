/* Layouts by their text: the door to all types, and the plainest of them, Hugging Face's. */
#include "oracle/oracle_parts.h"

#include <assert.h>
#include <ctype.h>
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

/* ---- Some ranks alone ------------------------------------------------------------------------ */

/* on="0-3,8": in[rank] for each rank of the list; how many there are, 0: the list is wrong. */
static int64_t read_on(const char *text, int64_t ranks, bool *in, char *why) {
  int64_t count = 0;
  for (;;) {
    char *end;
    if (!isdigit((unsigned char)*text)) return oracle_refuse(why, "on: no rank at '%s'", text);
    int64_t first = strtoll(text, &end, 10), last = first;
    if (*end == '-') {
      if (!isdigit((unsigned char)end[1])) return oracle_refuse(why, "on: no rank at '%s'", end);
      last = strtoll(end + 1, &end, 10);
    }
    if (last < first || last >= ranks) return oracle_refuse(why, "on: no range at '%s'", text);
    for (int64_t r = first; r <= last; r++, count++) {
      if (in[r]) return oracle_refuse(why, "on: %lld twice", (long long)r);
      in[r] = true;
    }
    if (!*end) return count;
    if (*end != ',') return oracle_refuse(why, "on: no comma at '%s'", end);
    text = end + 1;
  }
}

/* A layout that was made for fewer ranks: the ranks of the list get them in order, the others have nothing. */
static void spread(oracle_layout *layout, int64_t ranks, const bool *in) {
  oracle_rank *all = oracle_memory((size_t)ranks, sizeof *all);
  for (int64_t r = 0, next = 0; r < ranks; r++)
    if (in[r]) all[r] = layout->rank[next++];
  free(layout->rank);
  layout->rank = all;
  layout->ranks = ranks;
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
  const char *on = oracle_option_text(&options, "on");
  bool *in = oracle_memory((size_t)ranks, sizeof *in);
  int64_t held = on ? read_on(on, ranks, in, why) : ranks;
  if (held < ranks && oracle_option_text(&options, "root")) held = oracle_refuse(why, "on and root");
  if (held == 0) {
    free(in);
    return NULL;
  }
  oracle_layout *layout = oracle_memory(1, sizeof *layout);
  layout->model = model;
  layout->ranks = held;
  layout->fp8 = may_hold && model->block[0] && (asked || !dtype);
  layout->rank = oracle_memory((size_t)held, sizeof *layout->rank);

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
  if (good && held < ranks) spread(layout, ranks, in);
  free(in);
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
