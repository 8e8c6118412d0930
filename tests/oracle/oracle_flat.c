/* FSDP1, FSDP2 and ZeRO: rules 10.1, 10.2, 10.4. Parameters are those of oracle_modules.h. A rank is
 * t + tp * (d + dp * replica); tensor parallelism cuts first, then the local part is flattened or cut by rows.
 *
 *   fsdp    one tensor for each unit: its part of the flat parameter. First the root unit (what is in no decoder
 *           layer), then the layers; wrap=none: one unit. Gaps and tail are padding here (torch writes 42 or 0).
 *   fsdp2   every parameter under its name, chunked by rows; also the empty ones.
 *   zero3   every parameter under its name, its part of the flattened elements.
 *   zero1, zero2   one tensor: the part of the fp32 master weights, all parameters in one group.
 * Buffers follow, whole: in zero1 and zero2 too, whose optimizer has none, so that nothing of the model is missing. */
#include "oracle/oracle_modules.h"

#include <stdlib.h>
#include <string.h>

typedef struct flat_mesh {
  int64_t dp, tp, replicate;
  int64_t align; /* elements that a parameter's start is a multiple of; 1: none */
} flat_mesh;

typedef struct range {
  int64_t begin, end;
} range;

/* torch.chunk: ceil(n / parts) each, while there are some. */
static range chunk_of(int64_t n, int64_t parts, int64_t i) {
  int64_t each = (n + parts - 1) / parts;
  range r = {i * each, (i + 1) * each};
  if (r.begin > n) r.begin = n;
  if (r.end > n) r.end = n;
  return r;
}

static void copy(oracle_storage *to, int64_t i, const oracle_storage *from, int64_t k) {
  to->tensor[i] = from->tensor[k];
  to->index[i] = from->index[k];
}

static oracle_storage *add_shape(const oracle_place *at, const char *name, int ndim, const int64_t *shape) {
  oracle_add_shape(at, name, ndim, shape);
  return oracle_last(at);
}

/* A tensor of `size` elements, padding so far. */
static oracle_storage *add_flat(const oracle_place *at, int64_t size, const char *name) {
  oracle_storage *flat = add_shape(at, name, 1, &size);
  for (int64_t i = 0; i < size; i++) flat->tensor[i] = ORACLE_PADDING;
  return flat;
}

/* Rows [begin, end) of dimension `dim` of a tensor, as a new one. */
static const oracle_storage *slice(const oracle_place *at, const oracle_storage *from, int dim,
                                   range rows) {
  int64_t shape[3] = {from->shape[0], from->shape[1], from->shape[2]}, start[3] = {0};
  shape[dim] = rows.end - rows.begin;
  start[dim] = rows.begin;
  oracle_storage *to = add_shape(at, from->name, from->ndim, shape);
  int64_t i = 0;
  for (int64_t a = 0; a < shape[0]; a++) {
    for (int64_t b = 0; b < shape[1]; b++) {
      for (int64_t c = 0; c < shape[2]; c++, i++)
        copy(to, i, from, ((start[0] + a) * from->shape[1] + start[1] + b) * from->shape[2] + start[2] + c);
    }
  }
  return to;
}

/* The parameters as tensor parallel rank t has them. */
static void cut_by_tp(const oracle_model *model, const oracle_modules *all, const flat_mesh *mesh,
                      int64_t t, oracle_rank *cut) {
  const oracle_place at = {.model = model, .rank = cut, .layer = -1};
  for (int i = 0; i < all->rank.count; i++) {
    const oracle_storage *whole = &all->rank.storages[i];
    int dim = all->cut[i] < 0 ? 0 : all->cut[i];
    slice(&at, whole, dim,
          chunk_of(whole->shape[dim], all->cut[i] < 0 ? 1 : mesh->tp, all->cut[i] < 0 ? 0 : t));
  }
}

static void add_buffers(const oracle_place *at, const oracle_modules *all) {
  for (int i = all->parameters; i < all->rank.count; i++) {
    const oracle_storage *buffer = &all->rank.storages[i];
    slice(at, buffer, 0, (range){0, buffer->shape[0]});
  }
}

/* ---- Flat parameters ------------------------------------------------------------------------- */

/* Elements [begin, begin + size) of tensors that lie one behind the other, each from a multiple of align on;
 * counted only where to is NULL. Which: those of a unit. Returns the end of the last. */
static int64_t lay(const oracle_rank *rank, const bool *which, int count, int64_t align, int64_t begin,
                   oracle_storage *to) {
  int64_t address = 0;
  for (int i = 0; i < count; i++) {
    if (!which[i]) continue;
    const oracle_storage *from = &rank->storages[i];
    address = oracle_round_up(address, align);
    for (int64_t k = 0; k < from->elems; k++, address++) {
      if (to && address >= begin && address < begin + to->elems) copy(to, address - begin, from, k);
    }
  }
  return address;
}

/* 10.1: ceil(n / dp) for each rank, whatever lies there. */
static void add_unit(const oracle_place *at, const oracle_rank *cut, const bool *which, int count,
                     const flat_mesh *mesh, int64_t d, const char *name) {
  int64_t elems = lay(cut, which, count, mesh->align, 0, NULL), shard = (elems + mesh->dp - 1) / mesh->dp;
  oracle_storage *flat = add_flat(at, shard, name);
  lay(cut, which, count, mesh->align, d * shard, flat);
}

static void fsdp_rank(const oracle_place *at, const oracle_modules *all, const oracle_rank *cut,
                      const flat_mesh *mesh, int64_t d, bool by_layer) {
  bool *which = oracle_memory((size_t)all->rank.count, sizeof *which);
  for (int64_t unit = -1; unit < (by_layer ? at->model->L : 0); unit++) {
    for (int i = 0; i < all->parameters; i++) which[i] = !by_layer || all->layer[i] == unit;
    oracle_place in = oracle_in(at, -1, "%s", "");
    if (unit >= 0) in = oracle_in(at, -1, "model.layers.%d.", (int)unit);
    add_unit(&in, cut, which, all->parameters, mesh, d, "_flat_param");
  }
  free(which);
}

/* stage_1_and_2: a group's parameters one behind the other, the tail up to a multiple of 2 * dp. */
static void zero12_rank(const oracle_place *at, const oracle_modules *all, const oracle_rank *cut,
                        const flat_mesh *mesh, int64_t d) {
  bool *which = oracle_memory((size_t)all->rank.count, sizeof *which);
  for (int i = 0; i < all->parameters; i++) which[i] = true;
  int64_t elems = lay(cut, which, all->parameters, 1, 0, NULL);
  int64_t shard = oracle_round_up(elems, 2 * mesh->dp) / mesh->dp;
  oracle_storage *flat = add_flat(at, shard, "single_partition_of_fp32_groups.0");
  lay(cut, which, all->parameters, 1, d * shard, flat);
  free(which);
}

/* 10.4 */
static void zero3_rank(const oracle_place *at, const oracle_modules *all, const oracle_rank *cut,
                       const flat_mesh *mesh, int64_t d) {
  for (int i = 0; i < all->parameters; i++) {
    const oracle_storage *from = &cut->storages[i];
    int64_t shard = (from->elems + mesh->dp - 1) / mesh->dp;
    oracle_storage *flat = add_flat(at, shard, from->name);
    for (int64_t k = 0; k < shard && d * shard + k < from->elems; k++) copy(flat, k, from, d * shard + k);
  }
}

/* 10.2 */
static void fsdp2_rank(const oracle_place *at, const oracle_modules *all, const oracle_rank *cut,
                       const flat_mesh *mesh, int64_t d) {
  for (int i = 0; i < all->parameters; i++) {
    const oracle_storage *from = &cut->storages[i];
    slice(at, from, 0, chunk_of(from->shape[0], mesh->dp, d));
  }
}

/* ---- Layouts --------------------------------------------------------------------------------- */

static bool read_mesh(const oracle_layout *layout, oracle_options *options, bool may_replicate,
                      flat_mesh *mesh, char *why) {
  const oracle_model *m = layout->model;
  mesh->replicate = 1;
  if (!oracle_option_number(options, "tp", 1, &mesh->tp, why) ||
      !oracle_option_number(options, "dp", 0, &mesh->dp, why) ||
      (may_replicate && !oracle_option_number(options, "replicate", 1, &mesh->replicate, why)))
    return false;
  int64_t rest = mesh->tp * mesh->replicate;
  if (layout->ranks % rest != 0 || (mesh->dp && mesh->dp * rest != layout->ranks))
    return oracle_refuse(why, "%lld ranks, and tp * replicate is %lld", (long long)layout->ranks,
                         (long long)rest);
  mesh->dp = layout->ranks / rest;
  mesh->align = 1;
  if (mesh->tp > 1 && (m->E || m->mla || oracle_any(m, m->linear, true)))
    return oracle_refuse(why, "tp %lld of a family that has no tensor parallel plan here",
                         (long long)mesh->tp);
  return true;
}

enum { FSDP, FSDP_ONE, FSDP2, ZERO12, ZERO3 };

static void build(oracle_layout *layout, const flat_mesh *mesh, int type) {
  oracle_modules all;
  oracle_modules_make(layout->model, &all);
  for (int64_t t = 0; t < mesh->tp; t++) {
    oracle_rank cut = {0};
    cut_by_tp(layout->model, &all, mesh, t, &cut);
    for (int64_t r = t; r < layout->ranks; r += mesh->tp) {
      const oracle_place at = {.model = layout->model, .rank = &layout->rank[r], .layer = -1};
      int64_t d = r / mesh->tp % mesh->dp;
      oracle_coordinate(at.rank, "tp", t);
      oracle_coordinate(at.rank, "dp", d);
      oracle_coordinate(at.rank, "replicate", r / mesh->tp / mesh->dp);
      if (type == FSDP || type == FSDP_ONE) fsdp_rank(&at, &all, &cut, mesh, d, type == FSDP);
      if (type == FSDP2) fsdp2_rank(&at, &all, &cut, mesh, d);
      if (type == ZERO12) zero12_rank(&at, &all, &cut, mesh, d);
      if (type == ZERO3) zero3_rank(&at, &all, &cut, mesh, d);
      add_buffers(&at, &all);
    }
    oracle_rank_free(&cut);
  }
  oracle_modules_free(&all);
}

bool oracle_build_fsdp(oracle_layout *layout, oracle_options *options, char *why) {
  static const char *const wraps[] = {"layer", "none", NULL};
  flat_mesh mesh;
  bool orig_params;
  int wrap;
  int64_t bytes = oracle_elem_bytes(layout->model, options);
  if (!read_mesh(layout, options, true, &mesh, why) ||
      !oracle_option_switch(options, "orig_params", &orig_params, why) ||
      !oracle_option_word(options, "wrap", wraps, &wrap, why) || !oracle_options_end(options, why))
    return false;
  if (orig_params) mesh.align = 16 / bytes;
  build(layout, &mesh, wrap == 0 ? FSDP : FSDP_ONE);
  return true;
}

bool oracle_build_fsdp2(oracle_layout *layout, oracle_options *options, char *why) {
  flat_mesh mesh;
  if (!read_mesh(layout, options, true, &mesh, why) || !oracle_options_end(options, why)) return false;
  build(layout, &mesh, FSDP2);
  return true;
}

bool oracle_build_zero(oracle_layout *layout, oracle_options *options, char *why) {
  flat_mesh mesh;
  const char *stage = options->type + strlen("zero");
  if (strlen(stage) != 1 || stage[0] < '1' || stage[0] > '3')
    return oracle_refuse(why, "unknown kind of layout '%s'", options->type);
  if (!read_mesh(layout, options, false, &mesh, why) || !oracle_options_end(options, why)) return false;
  build(layout, &mesh, stage[0] == '3' ? ZERO3 : ZERO12);
  return true;
}
