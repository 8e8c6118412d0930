/* Which worker gets which rows. A kind of dispatch is a row of a table: what arguments it takes, and how they are divided. Nothing here looks at a
 * row: the outcome is a function of the spec alone, and the same wherever it is asked for. */
#include "control/dispatch.h"

#include "base/alloc.h"
#include "base/argument.h"
#include "base/limits.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "control/meshes.h"

#include <string.h>

typedef treadle_status divide(const treadle_dispatch_spec *spec, treadle_dispatch *made);

static divide all_to_all, one_to_all, each_its_item, equal_chunks, chunks_behind_function, chunks_of_mesh,
    by_functions, forbidden, not_a_dispatch;

typedef struct about_kind {
  const char *name;
  divide *divide;
  bool list; /* results come back as a list */
  bool cut;  /* arguments are cut: worker 0 alone would lack the others' rows */
} about_kind;

static const about_kind kinds[] = {
    [TREADLE_DISPATCH_ALL_TO_ALL] = {"ALL_TO_ALL", all_to_all, .list = true},
    [TREADLE_DISPATCH_ONE_TO_ALL] = {"ONE_TO_ALL", one_to_all, .list = true},
    [TREADLE_DISPATCH_DP_COMPUTE] = {"DP_COMPUTE", each_its_item, .list = true, .cut = true},
    [TREADLE_DISPATCH_DP_COMPUTE_PROTO] = {"DP_COMPUTE_PROTO", equal_chunks, .cut = true},
    [TREADLE_DISPATCH_DP_COMPUTE_PROTO_WITH_FUNC] = {"DP_COMPUTE_PROTO_WITH_FUNC", chunks_behind_function,
                                                     .cut = true},
    [TREADLE_DISPATCH_DP_COMPUTE_METRIC] = {"DP_COMPUTE_METRIC", equal_chunks, .list = true, .cut = true},
    [TREADLE_DISPATCH_DIRECT_ROLLOUT_METHOD] = {.name = "DIRECT_ROLLOUT_METHOD", .divide = forbidden},
    [TREADLE_DISPATCH_ND_MESH] = {"ND_MESH", chunks_of_mesh, .cut = true},
    [TREADLE_DISPATCH_CUSTOM] = {"CUSTOM", by_functions, .cut = true},
    [TREADLE_DISPATCH_RANK_ZERO] = {.name = "RANK_ZERO", .divide = not_a_dispatch},
};
enum {
  KINDS = sizeof kinds / sizeof *kinds,
  ARGUMENT_KINDS = TREADLE_ARGUMENT_FUNCTION + 1,
  EXECUTE_KINDS = TREADLE_EXECUTE_RANK_ZERO + 1,
  MOST_ARGUMENTS = 1 << 16
};
static const char *const argument_names[ARGUMENT_KINDS] = {"a batch", "a list", "a value", "a function"};

/* ---- Whole arguments, and items ---- */

static treadle_status one_to_all(const treadle_dispatch_spec *spec, treadle_dispatch *made) {
  for (int32_t w = 0; w < spec->workers; w++) made->shares[w].whole = true;
  return TREADLE_OK;
}

static void give_items(treadle_dispatch *made) {
  made->info.chunks = made->info.workers;
  made->info.rows = made->info.workers;
  for (int32_t w = 0; w < made->info.workers; w++)
    made->shares[w].rows = (treadle_row_range){.first = w, .end = w + 1};
}

static treadle_status all_to_all(const treadle_dispatch_spec *spec, treadle_dispatch *made) {
  bool items = spec->argument_count > 0 && spec->execute == TREADLE_EXECUTE_ALL;
  for (size_t i = 0; i < spec->argument_count; i++)
    items = items && spec->arguments[i].kind == TREADLE_ARGUMENT_LIST &&
            spec->arguments[i].length == spec->workers;
  if (!items) return one_to_all(spec, made);
  give_items(made);
  return TREADLE_OK;
}

static treadle_status each_its_item(const treadle_dispatch_spec *spec, treadle_dispatch *made) {
  for (size_t i = 0; i < spec->argument_count; i++) {
    const treadle_dispatch_argument *a = &spec->arguments[i];
    if (a->kind != TREADLE_ARGUMENT_LIST)
      REFUSE("%s: argument %zu is %s; it must be a list with an item for each of %d workers",
             kinds[spec->kind].name, i, argument_names[a->kind], spec->workers);
    if (a->length != spec->workers)
      REFUSE("%s: argument %zu has %lld items; there are %d workers", kinds[spec->kind].name, i,
             (long long)a->length, spec->workers);
  }
  give_items(made);
  return TREADLE_OK;
}

/* ---- Chunks ---- */

/* Batches from argument `first` on, cut into `chunks`; fills in all of info that is about rows. */
static treadle_status cut(const treadle_dispatch_spec *spec, size_t first, int32_t chunks,
                          treadle_dispatch *made) {
  const char *name = kinds[spec->kind].name;
  int64_t rows = 0;
  for (size_t i = first; i < spec->argument_count; i++) {
    const treadle_dispatch_argument *a = &spec->arguments[i];
    if (a->kind != TREADLE_ARGUMENT_BATCH)
      REFUSE("%s: argument %zu is %s; it must be a batch", name, i, argument_names[a->kind]);
    if (i == first) rows = a->length;
    if (a->length != rows) /* verl's words */
      REFUSE("%s: expecting all arg share same length of %lld, but got %lld for argument %zu", name,
             (long long)rows, (long long)a->length, i);
  }
  int64_t padding = rows % chunks ? chunks - rows % chunks : 0;
  if (padding && !spec->auto_padding) /* verl's words */
    REFUSE(
        "%s: only support equal chunk: %lld rows do not divide into %d parts; auto_padding fills them up",
        name, (long long)rows, chunks);
  made->info.chunks = chunks;
  made->info.rows = rows;
  made->info.padding = padding;
  made->info.pad_row = padding && !spec->pad_with_first ? rows - 1 : 0;
  return TREADLE_OK;
}

static void give_chunk(treadle_dispatch *made, int32_t worker, int32_t chunk) {
  int64_t rows = made->info.rows, each = (rows + made->info.padding) / made->info.chunks;
  treadle_row_range range = {.first = each * chunk, .end = each * chunk + each};
  int64_t from = range.first > rows ? range.first : rows;
  made->shares[worker].rows = range;
  made->shares[worker].padding = range.end > from ? range.end - from : 0;
}

static treadle_status cut_for_workers(const treadle_dispatch_spec *spec, size_t first,
                                      treadle_dispatch *made) {
  treadle_status status;
  TRY(cut(spec, first, spec->workers, made));
  for (int32_t w = 0; w < spec->workers; w++) give_chunk(made, w, w);
out:
  return status;
}

static treadle_status equal_chunks(const treadle_dispatch_spec *spec, treadle_dispatch *made) {
  return cut_for_workers(spec, 0, made);
}

static treadle_status chunks_behind_function(const treadle_dispatch_spec *spec, treadle_dispatch *made) {
  if (spec->argument_count == 0 || spec->arguments[0].kind != TREADLE_ARGUMENT_FUNCTION)
    REFUSE("%s: the first argument must be a function, not %s", kinds[spec->kind].name,
           spec->argument_count ? argument_names[spec->arguments[0].kind] : "nothing");
  return cut_for_workers(spec, 1, made);
}

static treadle_status chunks_of_mesh(const treadle_dispatch_spec *spec, treadle_dispatch *made) {
  treadle_status status;
  const treadle_mesh_place *places;
  int32_t dp_size;
  if (!spec->meshes || !spec->mesh) REFUSE("ND_MESH: needs meshes, and the name of one of them");
  if (treadle_meshes_workers(spec->meshes) != spec->workers)
    REFUSE("ND_MESH: meshes of %d workers; the call has %d", treadle_meshes_workers(spec->meshes),
           spec->workers);
  TRY(treadle_meshes_find(spec->meshes, spec->mesh, &dp_size, &places));
  TRY(cut(spec, 0, dp_size, made));
  for (int32_t w = 0; w < spec->workers; w++) {
    give_chunk(made, w, places[w].dp_rank);
    made->shares[w].collected = places[w].collects;
  }
out:
  return status;
}

/* ---- The caller's, and what is none ---- */

/* Rows that a function gave lie in each batch and each list. */
static treadle_status check_range(const treadle_dispatch_spec *spec, const char *name, int32_t worker,
                                  treadle_row_range range) {
  if (range.first < 0 || range.end < range.first)
    REFUSE("%s: rows %lld up to %lld for worker %d", name, (long long)range.first, (long long)range.end,
           worker);
  for (size_t i = 0; i < spec->argument_count; i++) {
    const treadle_dispatch_argument *a = &spec->arguments[i];
    if (a->kind <= TREADLE_ARGUMENT_LIST && range.end > a->length)
      REFUSE("%s: rows %lld up to %lld for worker %d; argument %zu has %lld", name, (long long)range.first,
             (long long)range.end, worker, i, (long long)a->length);
  }
  return TREADLE_OK;
}

static treadle_status by_functions(const treadle_dispatch_spec *spec, treadle_dispatch *made) {
  treadle_status status;
  treadle_row_range *ranges = NULL;
  treadle_dispatch_functions *f = &made->functions;
  if (!spec->functions) REFUSE("CUSTOM: no functions (NULL)");
  TRY(treadle_sized_take("treadle_dispatch_create", "functions", spec->functions, f, sizeof *f));
  const char *name = f->name ? treadle_text_shown(f->name) : "CUSTOM";
  f->name = NULL; /* it may go */
  if (!f->dispatch || !f->collect)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: both dispatch and collect are needed, and %s is NULL", name,
                     f->dispatch ? "collect" : "dispatch"));
  ranges = treadle_alloc_array((size_t)spec->workers, sizeof *ranges);
  if (!ranges) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the rows of %d workers", spec->workers));
  TRY(f->dispatch(f->context, spec->workers, made->arguments, spec->argument_count, ranges));
  for (int32_t w = 0; w < spec->workers; w++) {
    TRY(check_range(spec, name, w, ranges[w]));
    made->shares[w].rows = ranges[w];
  }
  made->info.custom = true;
out:
  treadle_free(ranges);
  return status;
}

static treadle_status forbidden(const treadle_dispatch_spec *spec, treadle_dispatch *made) {
  (void)spec, (void)made;
  REFUSE("Direct rollout call is forbidden."); /* verl's words */
}

static treadle_status not_a_dispatch(const treadle_dispatch_spec *spec, treadle_dispatch *made) {
  (void)spec, (void)made;
  REFUSE("RANK_ZERO is a way to execute (ALL or RANK_ZERO), not to dispatch");
}

/* ---- All ---- */

static treadle_status check(const treadle_dispatch_spec *spec) {
  treadle_status status;
  const char *function = "treadle_dispatch_create";
  TRY(treadle_check_enum(function, "kind", (long long)spec->kind, KINDS));
  TRY(treadle_check_enum(function, "execute", (long long)spec->execute, EXECUTE_KINDS));
  if (spec->workers < 1 || spec->workers > TREADLE_MAX_TABLE_RANKS)
    REFUSE("a call of %d workers: 1 to %d", spec->workers, TREADLE_MAX_TABLE_RANKS);
  if (spec->argument_count > MOST_ARGUMENTS)
    REFUSE("a call with %zu arguments; at most %d", spec->argument_count, MOST_ARGUMENTS);
  if (spec->argument_count && !spec->arguments) return treadle_refuse_null(function, "arguments");
  for (size_t i = 0; i < spec->argument_count; i++) {
    const treadle_dispatch_argument *a = &spec->arguments[i];
    TRY(treadle_check_enum(function, "kind of an argument", (long long)a->kind, ARGUMENT_KINDS));
    if (a->length < 0 || a->length > TREADLE_MAX_ROWS)
      REFUSE("argument %zu has %lld rows or items: 0 to %lld", i, (long long)a->length,
             (long long)TREADLE_MAX_ROWS);
  }
  if (spec->execute == TREADLE_EXECUTE_RANK_ZERO && kinds[spec->kind].cut)
    REFUSE("%s divides arguments among workers, and RANK_ZERO runs worker 0 alone: take ONE_TO_ALL",
           kinds[spec->kind].name);
out:
  return status;
}

treadle_status treadle_dispatch_create(const treadle_dispatch_spec *spec, treadle_dispatch **dispatch_p) {
  treadle_status status;
  treadle_dispatch_spec given;
  treadle_dispatch *made = NULL;
  TREADLE_NEED(dispatch_p);
  *dispatch_p = NULL;
  TREADLE_NEED(spec);
  TRY(TREADLE_TAKE(spec, &given));
  TRY(check(&given));
  made = treadle_alloc(sizeof *made);
  if (made) made->shares = treadle_alloc_array((size_t)given.workers, sizeof *made->shares);
  if (made) made->arguments = treadle_alloc_array(given.argument_count + 1, sizeof *made->arguments);
  if (!made || !made->shares || !made->arguments)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a call of %d workers", given.workers));
  if (given.argument_count)
    memcpy(made->arguments, given.arguments, given.argument_count * sizeof *made->arguments);
  made->argument_count = given.argument_count;
  made->concatenated = kinds[given.kind].cut && !kinds[given.kind].list;
  made->info =
      (treadle_dispatch_info){.struct_size = sizeof made->info,
                              .workers = given.workers,
                              .list = kinds[given.kind].list && given.execute == TREADLE_EXECUTE_ALL};
  for (int32_t w = 0; w < given.workers; w++) {
    bool runs = given.execute == TREADLE_EXECUTE_ALL || w == 0;
    made->shares[w] = (treadle_dispatch_share){.runs = runs, .collected = runs};
  }
  TRY(kinds[given.kind].divide(&given, made));
  *dispatch_p = made;
  made = NULL;
out:
  treadle_dispatch_destroy(made);
  return status;
}

void treadle_dispatch_destroy(treadle_dispatch *dispatch) {
  if (!dispatch) return;
  treadle_free(dispatch->shares);
  treadle_free(dispatch->arguments);
  treadle_free(dispatch);
}

treadle_status treadle_dispatch_get_info(const treadle_dispatch *dispatch, treadle_dispatch_info *info_p) {
  TREADLE_NEED_SIZED(info_p);
  TREADLE_NEED(dispatch);
  TREADLE_GIVE(info_p, &dispatch->info);
  return TREADLE_OK;
}

treadle_status treadle_dispatch_get_share(const treadle_dispatch *dispatch, int32_t worker,
                                          treadle_dispatch_share *share_p) {
  TREADLE_NEED(share_p);
  *share_p = (treadle_dispatch_share){0};
  TREADLE_NEED(dispatch);
  if (worker < 0 || worker >= dispatch->info.workers)
    REFUSE("worker %d; the call has %d", worker, dispatch->info.workers);
  *share_p = dispatch->shares[worker];
  return TREADLE_OK;
}
