/* Own tensors: storage tensors in memory of the caller, which the switch reads and writes where it is.
 *
 *   1. They are given when the switch is made, and checked then: what they are of, their size, their memory. Each is one span of its
 *      window (messages/own.h). Pages on which nothing else lies are holes: they have no physical page.
 *   2. Own train tensors are params that stay, on all ranks: nobody overwrites them, and no way back is run. Own infer tensors need
 *      params that stay, or a twin: no way back reads them.
 *   3. An op touches one storage tensor on each side (treadle_own_split), so it is given a view of that one: flat memory, which begins
 *      as far before the tensor as the tensor lies behind the start of its window. Where the other side is on another node, an op is one
 *      half of it, and may touch several: it is carried out in parts. */
#include "switch/switch.h"

#include "base/argument.h"
#include "base/dtype.h"
#include "base/sized.h"
#include "layout/blocks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const sides[2] = {"train", "infer"};

/* ---- What all ranks agree on ---- */

treadle_own_words treadle_own_say(const treadle_switch_options *o) {
  return (treadle_own_words){.count = {o->own_train_count, o->own_infer_count},
                             .leaves = o->offload_train_param == TREADLE_ON,
                             .host = o->host,
                             .kept = o->keep == TREADLE_KEEP_HOST};
}

treadle_status treadle_own_settle(const treadle_group *group, treadle_terms *terms, treadle_own *own) {
  int owner = -1;
  for (int rank = group->size - 1; rank >= 0; rank--) {
    const treadle_own_words *words = treadle_group_said(group, rank);
    for (int mode = 0; mode < 2; mode++) own->any[mode] = own->any[mode] || words->count[mode] > 0;
    if (words->count[TREADLE_TRAIN] > 0) owner = rank;
  }
  if (own->any[0] || own->any[1]) terms->options.alias = false;
  if (owner < 0) return TREADLE_OK;
  const treadle_own_words *first = treadle_group_said(group, owner);
  for (int rank = 0; rank < group->size; rank++) {
    const treadle_own_words *words = treadle_group_said(group, rank);
    if (!words->leaves && !words->host && !words->kept) continue;
    return treadle_fail(
        TREADLE_REFUSED,
        "switch: rank %d has %" PRIu64
        " own train tensors, which stay where they are, and rank %d %s: leave out one of them",
        owner, first->count[TREADLE_TRAIN], rank,
        words->leaves ? "wants params to leave (offload_train_param on)"
        : words->host ? "wants mode host"
                      : "wants params to be kept in host memory (keep=host)");
  }
  terms->leaves[TREADLE_PARAMS] = terms->copied[TREADLE_PARAMS] = false;
  return TREADLE_OK;
}

/* ---- Checks of one tensor ---- */

typedef struct given { /* what the options say of one mode */
  const treadle_layout *const *layouts;
  int rank;
  const treadle_device *device;
  bool rebuilds;
  size_t page;
  treadle_mode mode;
  const treadle_own_tensor *tensors;
  size_t count;
  int32_t storages;
  bool has_block_rows;
  treadle_maps **maps_p; /* what the device has looked up */
} given;

static given given_of(const treadle_switch *sw, treadle_mode mode, treadle_maps **maps_p) {
  const treadle_switch_options *o = &sw->terms.options;
  bool train = mode == TREADLE_TRAIN;
  return (given){sw->layouts,
                 sw->group->rank,
                 &sw->device,
                 treadle_switch_rebuilds(sw),
                 treadle_switch_page_bytes(o),
                 mode,
                 train ? o->own_train : o->own_infer,
                 train ? o->own_train_count : o->own_infer_count,
                 treadle_layout_storage_count(sw->layouts[mode], sw->group->rank),
                 treadle_has_block_rows(sw->layouts[TREADLE_TRAIN], sw->layouts[TREADLE_INFER]),
                 maps_p};
}

/* The words come after "rank 2: own train tensor 'NAME' ". */
static treadle_status refuse(const given *g, const treadle_storage_info *info, const char *words) {
  return treadle_fail(TREADLE_REFUSED, "switch: rank %d: own %s tensor '%s' %s", g->rank, sides[g->mode],
                      info->name, words);
}

static treadle_status check_memory(const given *g, const treadle_storage_info *info,
                                   const treadle_own_tensor *tensor) {
  char words[200];
  size_t each = treadle_dtype_bytes(info->dtype);
  uintptr_t at = (uintptr_t)tensor->memory;
  if (tensor->bytes != info->bytes) {
    snprintf(words, sizeof words, "has %zu bytes, and its memory %zu", info->bytes, tensor->bytes);
    return refuse(g, info, words);
  }
  if (info->bytes == 0) return TREADLE_OK;
  if (!tensor->memory || at + tensor->bytes < at) {
    snprintf(words, sizeof words, "of %zu bytes at %p is not a range of memory", tensor->bytes,
             tensor->memory);
    return refuse(g, info, words);
  }
  if (at % each) {
    snprintf(words, sizeof words, "at %p is not aligned to its elements of %zu bytes", tensor->memory,
             each);
    return refuse(g, info, words);
  }
  const char *fault = g->device->ops->fault(g->device, tensor->memory, tensor->bytes, g->maps_p);
  if (!fault) return TREADLE_OK;
  snprintf(words, sizeof words, "of %zu bytes at %p: %s", tensor->bytes, tensor->memory, fault);
  return refuse(g, info, words);
}

/* A block row works on several storage tensors at once. */
static treadle_status check_blocks(const given *g, const treadle_storage_info *info, int32_t number) {
  treadle_status status = TREADLE_OK;
  treadle_pieces pieces = {0};
  int32_t index;
  int64_t expert;
  if (!g->has_block_rows) return TREADLE_OK;
  const treadle_layout *train = g->layouts[TREADLE_TRAIN], *infer = g->layouts[TREADLE_INFER];
  (void)treadle_layout_public(g->layouts[g->mode], g->rank, number, &index, &expert);
  TRY(treadle_layout_pieces_in(g->layouts[g->mode], g->rank, index, &pieces));
  for (size_t i = 0; i < pieces.count; i++)
    if (pieces.items[i].tensor >= 0 && treadle_is_in_block_rows(train, infer, pieces.items[i].tensor))
      TRY(refuse(g, info,
                 "holds fp8 blocks, or values that become some on the way: such tensors must lie in the "
                 "window"));
out:
  treadle_array_release(&pieces);
  return status;
}

/* Infer params that nothing else than the way back could make training weights of. */
static treadle_status check_kept(const given *g, const treadle_storage_info *info) {
  if (g->mode != TREADLE_INFER || !g->rebuilds) return TREADLE_OK;
  return refuse(g, info,
                "cannot be what keeps the training weights: let params stay (offload_train_param off), or "
                "keep them in host memory (keep=host)");
}

/* ---- Taking them ---- */

static int by_offset(const void *a, const void *b) {
  const treadle_own_span *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return x->storage < y->storage ? -1 : x->storage > y->storage;
}

/* Spans of what is given; owned [storages]: which numbers are. */
static treadle_status take_given(const given *g, treadle_own *own, size_t *bytes, treadle_own_span *spans,
                                 uint8_t *owned) {
  treadle_status status = TREADLE_OK;
  size_t count = 0;
  for (size_t i = 0; i < g->count; i++) {
    const treadle_own_tensor *tensor = &g->tensors[i];
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    if (tensor->storage < 0 || tensor->storage >= g->storages)
      TRY(treadle_fail(TREADLE_REFUSED,
                       "switch: rank %d: own %s tensor number %d: '%s' has storage tensors 0 to %d there",
                       g->rank, sides[g->mode], tensor->storage, treadle_layout_text(g->layouts[g->mode]),
                       g->storages - 1));
    TRY(treadle_layout_storage(g->layouts[g->mode], g->rank, tensor->storage, &info));
    if (owned[tensor->storage]) TRY(refuse(g, &info, "is given twice"));
    owned[tensor->storage] = 1;
    TRY(check_kept(g, &info));
    TRY(check_blocks(g, &info, tensor->storage));
    TRY(check_memory(g, &info, tensor));
    if (info.bytes == 0) continue;
    *bytes += info.bytes;
    spans[count++] = (treadle_own_span){(int64_t)info.offset_bytes, (int64_t)info.bytes, tensor->memory,
                                        tensor->storage};
  }
  if (count > 1) qsort(spans, count, sizeof *spans, by_offset);
  own->spans[g->mode] = (treadle_own_spans){spans, count};
out:
  return status;
}

/* Pages of the window that nothing but own tensors lies on. */
static treadle_status find_holes(const given *g, const treadle_own *own, treadle_holes *holes,
                                 const uint8_t *owned) {
  treadle_status status = TREADLE_OK;
  size_t page = g->page, count = 0;
  int64_t pages = (int64_t)((treadle_layout_window_bytes(g->layouts[g->mode], g->rank) + page - 1) / page);
  treadle_own_span *others =
      treadle_arena_alloc_array(&holes->arena, (size_t)g->storages + 1, sizeof *others);
  uint8_t *marks = treadle_arena_alloc(&holes->arena, (size_t)pages + 1);
  if (!others || !marks) return treadle_memory_is_out();
  for (int32_t i = 0; i < g->storages; i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    if (owned[i]) continue;
    TRY(treadle_layout_storage(g->layouts[g->mode], g->rank, i, &info));
    others[count++] = (treadle_own_span){(int64_t)info.offset_bytes, (int64_t)info.bytes, NULL, i};
  }
  holes->count[g->mode] =
      treadle_own_holes(&own->spans[g->mode], others, count, (int64_t)page, pages, marks);
  holes->marks[g->mode] = marks;
out:
  return status;
}

static treadle_status take(given g, treadle_own *own, treadle_holes *holes, size_t *bytes) {
  treadle_status status = TREADLE_OK;
  if (g.count == 0) return TREADLE_OK;
  if (!g.tensors || g.count > (size_t)g.storages)
    return treadle_fail(TREADLE_REFUSED,
                        "switch: rank %d: %zu own %s tensors%s; '%s' has %d storage tensors there", g.rank,
                        g.count, sides[g.mode], g.tensors ? "" : ", and no array of them",
                        treadle_layout_text(g.layouts[g.mode]), g.storages);
  treadle_own_span *spans = treadle_arena_alloc_array(&holes->arena, g.count + 1, sizeof *spans);
  uint8_t *owned = treadle_arena_alloc(&holes->arena, (size_t)g.storages + 1);
  if (!spans || !owned) return treadle_memory_is_out();
  TRY(take_given(&g, own, bytes, spans, owned));
  TRY(find_holes(&g, own, holes, owned));
out:
  return status;
}

/* ---- Overlaps ---- */

typedef struct lying { /* where an own tensor lies */
  const treadle_own_span *span;
  treadle_mode mode;
} lying;

static int by_memory(const void *a, const void *b) {
  uintptr_t x = (uintptr_t)((const lying *)a)->span->memory,
            y = (uintptr_t)((const lying *)b)->span->memory;
  return x < y ? -1 : x > y;
}

static const char *name_of(const treadle_layout *const *layouts, int rank, const lying *l,
                           treadle_storage_info *info) {
  *info = TREADLE_INIT(treadle_storage_info);
  (void)treadle_layout_storage(layouts[l->mode], rank, l->span->storage, info);
  return info->name;
}

static treadle_status check_overlaps(const treadle_layout *const *layouts, int rank,
                                     const treadle_own *own) {
  treadle_status status = TREADLE_OK;
  size_t count = 0;
  lying *all = treadle_alloc_array(own->spans[0].count + own->spans[1].count + 1, sizeof *all);
  if (!all) return treadle_memory_is_out();
  for (int mode = 0; mode < 2; mode++)
    for (size_t i = 0; i < own->spans[mode].count; i++)
      all[count++] = (lying){&own->spans[mode].items[i], (treadle_mode)mode};
  if (count > 1) qsort(all, count, sizeof *all, by_memory);
  for (size_t i = 1; i < count; i++) {
    treadle_storage_info a, b;
    const lying *last = &all[i - 1];
    if ((uintptr_t)last->span->memory + (size_t)last->span->bytes <= (uintptr_t)all[i].span->memory)
      continue;
    TRY(treadle_fail(TREADLE_REFUSED,
                     "switch: rank %d: own %s tensor '%s' of %" PRId64
                     " bytes at %p overlaps own %s tensor '%s' at %p",
                     rank, sides[last->mode], name_of(layouts, rank, last, &a), last->span->bytes,
                     (void *)last->span->memory, sides[all[i].mode], name_of(layouts, rank, &all[i], &b),
                     (void *)all[i].span->memory));
  }
out:
  treadle_free(all);
  return status;
}

treadle_status treadle_own_take(treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  if (sw->holes.taken) return TREADLE_OK;
  treadle_maps *maps = NULL;
  for (int mode = 0; mode < 2; mode++)
    TRY(take(given_of(sw, (treadle_mode)mode, &maps), &sw->carry.own, &sw->holes, &sw->stats.own_bytes));
  TRY(check_overlaps(sw->layouts, sw->group->rank, &sw->carry.own));
  sw->holes.taken = true;
  sw->terms.options.own_train = sw->terms.options.own_infer = NULL; /* the caller's may go */
out:
  treadle_maps_release(maps);
  return status;
}

void treadle_own_release(treadle_switch *sw) { treadle_arena_release(&sw->holes.arena); }

/* ---- Later ---- */

treadle_status treadle_own_check(const treadle_switch *sw) {
  for (int mode = 0; mode < 2; mode++)
    for (size_t i = 0; i < sw->carry.own.spans[mode].count; i++) {
      const treadle_own_span *span = &sw->carry.own.spans[mode].items[i];
      treadle_storage_info info;
      if (!sw->device.ops->fault(&sw->device, span->memory, (size_t)span->bytes, NULL)) continue;
      return treadle_fail(TREADLE_STATE,
                          "rank %d: own %s tensor '%s' of %" PRId64
                          " bytes at %p: that memory is not there any more",
                          sw->group->rank, sides[mode],
                          name_of(sw->layouts, sw->group->rank, &(lying){span, (treadle_mode)mode}, &info),
                          span->bytes, (void *)span->memory);
    }
  return TREADLE_OK;
}

const char *treadle_own_overlaps(const treadle_switch *sw, const void *memory, size_t bytes, char *room,
                                 size_t room_bytes) {
  uintptr_t first = (uintptr_t)memory, end = first + bytes;
  for (int mode = 0; mode < 2; mode++)
    for (size_t i = 0; i < sw->carry.own.spans[mode].count; i++) {
      const treadle_own_span *span = &sw->carry.own.spans[mode].items[i];
      uintptr_t at = (uintptr_t)span->memory;
      treadle_storage_info info;
      if (end <= at || at + (size_t)span->bytes <= first) continue;
      snprintf(room, room_bytes, "own %s tensor '%s'", sides[mode],
               name_of(sw->layouts, sw->group->rank, &(lying){span, (treadle_mode)mode}, &info));
      return room;
    }
  return NULL;
}

size_t treadle_own_held_bytes(const treadle_switch *sw, treadle_mode mode) {
  size_t page = treadle_switch_page_bytes(&sw->terms.options);
  size_t bytes = treadle_layout_window_bytes(sw->layouts[mode], sw->group->rank);
  return (bytes + page - 1) / page * page - (size_t)sw->holes.count[mode] * page;
}

void *treadle_switch_tensor(const treadle_switch *sw, treadle_class which, int32_t storage,
                            size_t *bytes_p) {
  treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
  if (bytes_p) *bytes_p = 0;
  TREADLE_NEED_OR(sw, NULL);
  if (which != TREADLE_PARAMS && which != TREADLE_INFER_PARAMS) {
    treadle_fail(TREADLE_REFUSED, "treadle_switch_tensor: class %d is not one of parameters", (int)which);
    return NULL;
  }
  treadle_mode mode = which == TREADLE_PARAMS ? TREADLE_TRAIN : TREADLE_INFER;
  treadle_status status = mode == TREADLE_TRAIN ? treadle_layout_storage(sw->layouts[TREADLE_TRAIN],
                                                                         sw->group->rank, storage, &info)
                                                : treadle_plan_storage(sw->carry.plan, storage, &info);
  if (status != TREADLE_OK) return NULL;
  if (bytes_p) *bytes_p = info.bytes;
  if (info.bytes == 0) return NULL;
  const treadle_own_span *span = treadle_own_find(&sw->carry.own.spans[mode], (int64_t)info.offset_bytes);
  return span ? span->memory : (char *)sw->space.windows[which] + info.offset_bytes;
}
