/* Golden flat layouts: runs out of boxes, and FSDP1 units against the library's tables. */
#include "golden_support/golden_flat.h"

#include "base/dtype.h"
#include "flat/shards.h"

#include <stdlib.h>
#include <string.h>

/* ---- Runs ------------------------------------------------------------------------------------ */

int golden_flat_shape(const json_t *list, int64_t *shape) {
  int ndim = (int)json_array_size(list);
  for (int d = 0; d < ndim && d < TREADLE_MAX_AXES; d++) shape[d] = golden_at(list, (size_t)d);
  return ndim;
}

void golden_flat_add(golden_runs *runs, int32_t tensor, const int64_t *shape, int ndim,
                     const treadle_strided *part) {
  int64_t elems = treadle_box_elems(&part->box);
  for (int64_t e = 0; e < elems; e++) {
    int64_t rest = e, local = part->offset, start = 0, weight = 1;
    for (int d = ndim - 1; d >= 0; d--) {
      int64_t index = rest % part->box.size[d];
      rest /= part->box.size[d];
      local += index * part->stride[d];
      start += (part->box.start[d] + index) * weight;
      weight *= shape[d];
    }
    golden_runs_add(runs, (treadle_run){local, tensor, start, 1, 1, 0});
  }
}

void golden_flat_join(golden_runs *runs) {
  golden_runs_sort(runs);
  size_t count = 0;
  for (size_t i = 0; i < runs->count; i++) {
    treadle_run *last = count > 0 ? &runs->items[count - 1] : NULL, run = runs->items[i];
    if (last && last->tensor == run.tensor && last->local_start + last->count == run.local_start &&
        last->start + last->count * last->stride == run.start)
      last->count += run.count;
    else
      runs->items[count++] = run;
  }
  runs->count = count;
}

golden_verdict golden_flat_compare(const golden_case *c, const char *where, const golden_runs *runs,
                                   const json_t *golden, bool has_tensor) {
  if (json_array_size(golden) != runs->count)
    return golden_differ(c, "%s: %d runs, golden %d", where, (int)runs->count,
                         (int)json_array_size(golden));
  for (size_t i = 0; i < runs->count; i++) {
    const json_t *row = json_array_get(golden, i);
    const treadle_run *run = &runs->items[i];
    size_t at = has_tensor ? 2 : 1;
    if (golden_at(row, 0) != run->local_start || (has_tensor && golden_at(row, 1) != run->tensor) ||
        golden_at(row, at) != run->start || golden_at(row, at + 1) != run->count)
      return golden_differ(
          c, "%s, run %d: from %lld, tensor %d[%lld] x %lld; golden %lld, %lld, %lld, %lld", where, (int)i,
          (long long)run->local_start, run->tensor, (long long)run->start, (long long)run->count,
          (long long)golden_at(row, 0), (long long)golden_at(row, 1), (long long)golden_at(row, 2),
          (long long)golden_at(row, 3));
  }
  return GOLDEN_EQUAL;
}

/* ---- FSDP1 ----------------------------------------------------------------------------------- */

enum { MAX_PARAMS = 256 };

/* A unit of a case: its parameters, and the library's table of them. */
typedef struct unit {
  const json_t *golden;
  int count, ndim[MAX_PARAMS];
  int32_t param[MAX_PARAMS]; /* number in the case's params */
  int64_t shape[MAX_PARAMS][TREADLE_MAX_AXES], numel[MAX_PARAMS], start[MAX_PARAMS];
  treadle_flat_unit table;
} unit;

/* The number of parameter "unit.name" in the case's list, -1: none. */
static int32_t find_param(const golden_case *c, const char *prefix, const char *name) {
  char full[256];
  snprintf(full, sizeof full, "%s%s%s", prefix, *prefix ? "." : "", name);
  const json_t *params = json_object_get(c->item, "params");
  for (size_t i = 0; i < json_array_size(params); i++)
    if (strcmp(json_string_value(json_array_get(json_array_get(params, i), 0)), full) == 0)
      return (int32_t)i;
  return -1;
}

static golden_verdict read_unit(const golden_case *c, const json_t *golden, int64_t shards,
                                bool use_orig_params, int64_t elem_bytes, unit *u) {
  const json_t *names = json_object_get(golden, "fqns"), *shapes = json_object_get(golden, "shapes");
  u->golden = golden;
  u->count = (int)json_array_size(names);
  if (u->count > MAX_PARAMS) return golden_differ(c, "%d parameters in a unit", u->count);
  for (int i = 0; i < u->count; i++) {
    u->param[i] = find_param(c, json_string_value(json_object_get(golden, "unit")),
                             json_string_value(json_array_get(names, (size_t)i)));
    if (u->param[i] < 0) return golden_differ(c, "parameter %d of a unit is unknown", i);
    u->ndim[i] = golden_flat_shape(json_array_get(shapes, (size_t)i), u->shape[i]);
    u->numel[i] = 1;
    for (int d = 0; d < u->ndim[i]; d++) u->numel[i] *= u->shape[i][d];
  }
  if (treadle_fsdp1_unit(u->numel, u->count, shards, use_orig_params, elem_bytes, u->start, &u->table) !=
      TREADLE_OK)
    return golden_differ(c, "refused: %s", treadle_error_message());
  return GOLDEN_EQUAL;
}

/* Parameters and padding entries in flat order. Torch lists the tail only with use_orig_params. */
static golden_verdict compare_unit(const golden_case *c, const unit *u, bool use_orig_params) {
  const json_t *numels = json_object_get(u->golden, "numels_with_padding");
  const json_t *is_padding = json_object_get(u->golden, "is_padding");
  int64_t listed = use_orig_params ? u->table.total : u->table.used, at = 0;
  if (golden_int(u->golden, "unpadded_unsharded_numel", -1) != listed)
    return golden_differ(c, "a unit of %lld elements, golden %lld", (long long)listed,
                         (long long)golden_int(u->golden, "unpadded_unsharded_numel", -1));
  int next = 0;
  for (size_t i = 0; i < json_array_size(numels); i++) {
    bool gap = golden_at(is_padding, i) != 0;
    int64_t end = next < u->count ? u->start[next] : listed; /* a gap's */
    if (!gap && (next == u->count || u->start[next] != at || u->numel[next] != golden_at(numels, i)))
      return golden_differ(c, "entry %d is not a parameter at %lld", (int)i, (long long)at);
    if (gap && end != at + golden_at(numels, i))
      return golden_differ(c, "entry %d: a gap from %lld to %lld", (int)i, (long long)at, (long long)end);
    at += golden_at(numels, i);
    next += !gap;
  }
  return next == u->count && at == listed ? GOLDEN_EQUAL : golden_differ(c, "entries are missing");
}

/* One parameter of a unit in a shard: runs of what is there, and torch's own words for it. */
static golden_verdict compare_param(const golden_case *c, const unit *u, int i, treadle_span shard,
                                    const json_t *info, golden_runs *runs) {
  treadle_strided whole = treadle_strided_whole(u->shape[i], u->ndim[i], u->start[i]);
  treadle_strideds parts = {0};
  golden_runs own = {0};
  golden_verdict verdict = GOLDEN_EQUAL;
  if (treadle_strided_clip(&whole, shard, shard.low, &parts) != TREADLE_OK) abort();
  for (size_t p = 0; p < parts.count; p++)
    golden_flat_add(&own, u->param[i], u->shape[i], u->ndim[i], &parts.items[p]);
  golden_flat_join(&own);
  bool here = own.count > 0;
  if (own.count > 1 || json_is_true(json_array_get(info, 0)) != here)
    verdict = golden_differ(c, "parameter %d has %d runs in a shard", u->param[i], (int)own.count);
  else if (here && (golden_at(info, 1) != own.items[0].local_start ||
                    golden_at(info, 2) != own.items[0].count || golden_at(info, 3) != own.items[0].start ||
                    golden_at(info, 4) != own.items[0].start + own.items[0].count - 1))
    verdict = golden_differ(c, "parameter %d: other shard_param_infos", u->param[i]);
  if (here) golden_runs_add(runs, own.items[0]);
  golden_runs_release(&own);
  treadle_array_release(&parts);
  return verdict;
}

static golden_verdict compare_shard(const golden_case *c, const unit *u, treadle_span shard,
                                    bool use_orig_params, const json_t *golden) {
  golden_runs runs = {0}, all = {0};
  golden_verdict verdict = GOLDEN_EQUAL;
  int64_t elems = shard.high - shard.low, real = u->table.used - shard.low;
  int64_t tail = use_orig_params || real >= elems ? 0 : elems - (real > 0 ? real : 0);
  if (golden_int(golden, "shard_numel", -1) != elems ||
      golden_int(golden, "shard_tail_padding", -1) != tail)
    verdict = golden_differ(c, "a shard of %lld with %lld of padding", (long long)elems, (long long)tail);
  for (int i = 0; verdict == GOLDEN_EQUAL && i < u->count; i++)
    verdict = compare_param(c, u, i, shard,
                            json_array_get(json_object_get(golden, "shard_param_infos"), (size_t)i), &runs);
  int64_t at = 0;
  for (size_t i = 0; i <= runs.count; i++) { /* what no parameter covers is padding */
    int64_t begin = i < runs.count ? runs.items[i].local_start : elems;
    if (begin > at) golden_runs_add(&all, (treadle_run){at, -1, u->table.fill, 0, begin - at, 0});
    if (i < runs.count) golden_runs_add(&all, runs.items[i]);
    if (i < runs.count) at = begin + runs.items[i].count;
  }
  if (verdict == GOLDEN_EQUAL)
    verdict = golden_flat_compare(c, "shard", &all, json_object_get(golden, "content"), true);
  golden_runs_release(&runs);
  golden_runs_release(&all);
  return verdict;
}

golden_verdict golden_check_fsdp1(golden_case *c) {
  if (!golden_flat_asks(c)) return GOLDEN_NOT_ASKED;
  const char *strategy = json_string_value(json_object_get(c->item, "strategy"));
  const json_t *mixed = json_object_get(c->item, "mixed_precision_param_dtype");
  treadle_dtype dtype = TREADLE_DTYPE_NONE;
  if (!treadle_dtype_parse(
          json_string_value(json_is_string(mixed) ? mixed : json_object_get(c->item, "param_dtype")),
          &dtype))
    return golden_differ(c, "unknown dtype");
  bool use_orig_params = json_is_true(json_object_get(c->item, "use_orig_params"));
  c->ranks = golden_int(c->item, "world", 0);
  snprintf(c->text, sizeof c->text, "fsdp1 %s%s", strategy, use_orig_params ? ", use_orig_params" : "");
  int64_t shards = golden_int(json_object_get(c->item, "mesh"), "shard", c->ranks);
  bool is_cut = strcmp(strategy, "NO_SHARD") != 0;

  const json_t *units = json_object_get(c->item, "units"), *ranks = json_object_get(c->item, "ranks");
  if ((int64_t)json_array_size(ranks) != c->ranks) return golden_differ(c, "golden has other ranks");
  golden_verdict verdict = GOLDEN_EQUAL;
  unit *u = calloc(1, sizeof *u);
  if (!u) abort();
  for (size_t i = 0; verdict == GOLDEN_EQUAL && i < json_array_size(units); i++) {
    verdict = read_unit(c, json_array_get(units, i), shards, use_orig_params,
                        (int64_t)treadle_dtype_bytes(dtype), u);
    if (verdict == GOLDEN_EQUAL) verdict = compare_unit(c, u, use_orig_params);
    for (int64_t r = 0; verdict == GOLDEN_EQUAL && r < c->ranks; r++) {
      treadle_span shard = is_cut ? flat_shard_of(&u->table, r % shards)
                                  : (treadle_span){0, use_orig_params ? u->table.total : u->table.used};
      verdict =
          compare_shard(c, u, shard, use_orig_params, json_array_get(json_array_get(ranks, (size_t)r), i));
    }
  }
  free(u);
  bool of_model = json_object_get(c->item, "hf_config") && strcmp(strategy, "FULL_SHARD") == 0;
  return verdict == GOLDEN_EQUAL && of_model ? golden_compare_fsdp1_layout(c) : verdict;
}
