/* Library and oracle side by side: storages one after the other, runs element by element. */
#include "layout/agree.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool differ(char *why, const char *format, ...) {
  va_list values;
  va_start(values, format);
  vsnprintf(why, AGREE_WHY, format, values);
  va_end(values);
  return false;
}

static int64_t elems_of(const treadle_storage_info *info) {
  int64_t elems = 1;
  for (int d = 0; d < info->ndim; d++) elems *= info->shape[d];
  return elems;
}

/* The next elements of the rank. */
static const oracle_storage *find_counted(agree_walk *walk, const treadle_storage_info *info,
                                          int64_t *first_p) {
  int64_t elems = elems_of(info);
  while (walk->next < walk->rank->count) {
    const oracle_storage *storage = &walk->rank->storages[walk->next];
    if (!storage->mixed) {
      walk->next++;
      continue;
    }
    if (walk->elem < storage->elems) {
      if (storage->chunk != info->chunk || walk->elem + elems > storage->elems) return NULL;
      *first_p = walk->elem;
      walk->elem += elems;
      return storage;
    }
    if (elems == 0) return *first_p = walk->elem, storage;
    walk->next++;
    walk->elem = 0;
  }
  return NULL;
}

const oracle_storage *agree_find(agree_walk *walk, const char *type, const treadle_storage_info *info,
                                 int64_t *first_p) {
  *first_p = 0;
  if (strcmp(type, "distopt") == 0 && strstr(info->name, ".bucket_"))
    return find_counted(walk, info, first_p);
  for (int i = 0; i < walk->rank->count; i++) {
    int at = (walk->next + i) % walk->rank->count;
    const oracle_storage *storage = &walk->rank->storages[at];
    if (storage->chunk == info->chunk && strcmp(storage->name, info->name) == 0) {
      if (strcmp(type, "distopt") != 0) walk->next = at + 1;
      return storage;
    }
  }
  return NULL;
}

static bool has_storage(const treadle_layout *layout, int64_t rank, const oracle_storage *storage) {
  for (int32_t s = 0; s < treadle_layout_storage_count(layout, rank); s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    if (treadle_layout_storage(layout, rank, s, &info) == TREADLE_OK && info.chunk == storage->chunk &&
        strcmp(info.name, storage->name) == 0)
      return true;
  }
  return false;
}

void agree_trim(const treadle_layout *layout, oracle_layout *oracle) {
  for (int64_t r = 0; r < oracle->ranks; r++) {
    oracle_rank *rank = &oracle->rank[r];
    int kept = 0;
    for (int i = 0; i < rank->count; i++) {
      oracle_storage *storage = &rank->storages[i];
      if (!storage->unwritten || has_storage(layout, r, storage)) {
        rank->storages[kept++] = *storage;
      } else {
        free(storage->tensor);
        free(storage->index);
      }
    }
    rank->count = kept;
  }
}

int32_t *agree_tensors(const treadle_model *model, const oracle_model *oracle) {
  int32_t count = treadle_model_tensor_count(model), *tensors = calloc((size_t)count + 1, sizeof *tensors);
  for (int32_t i = 0; tensors && i < count; i++) {
    treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
    bool good = treadle_model_tensor(model, i, &info) == TREADLE_OK;
    tensors[i] = good ? oracle_model_find(oracle, info.name) : ORACLE_PADDING;
  }
  return tensors;
}

/* One run against the elements of the oracle. */
static bool same_run(const treadle_model *model, const oracle_model *oracle, const int32_t *tensors,
                     const treadle_run *run, const oracle_storage *truth, int64_t first, char *why) {
  int32_t tensor = ORACLE_PADDING;
  treadle_tensor_info info = {.struct_size = sizeof info, .name = "padding"};
  if (run->tensor >= 0) {
    if (treadle_model_tensor(model, run->tensor, &info) != TREADLE_OK)
      return differ(why, "%s", treadle_error_message());
    tensor = tensors[run->tensor];
  }
  for (int64_t k = 0; k < run->count; k++) {
    int64_t at = first + run->local_start + k, index = tensor < 0 ? 0 : run->start + k * run->stride;
    if (at >= truth->elems || truth->tensor[at] != tensor || truth->index[at] != index)
      return differ(
          why, "element %" PRId64 " of %" PRId64 " is %" PRId64 " of %s, the oracle's %" PRId64 " of %s",
          at, truth->elems, index, info.name, at < truth->elems ? truth->index[at] : -1,
          at < truth->elems && truth->tensor[at] >= 0 ? oracle->tensors[truth->tensor[at]].name
                                                      : "padding");
  }
  int add = run->count > 0 ? oracle_add_of(oracle, truth, first + run->local_start) : 0;
  if (run->tensor >= 0 && run->add != add)
    return differ(why, "is stored plus %d, the oracle's plus %d", run->add, add);
  return true;
}

static bool same_storage(const treadle_model *model, const treadle_layout *layout, int64_t rank,
                         int32_t number, const treadle_storage_info *info, const oracle_layout *oracle,
                         const int32_t *tensors, const oracle_storage *truth, int64_t first, char *why) {
  treadle_run *runs;
  size_t count;
  int64_t elems = 0;
  bool counted = strncmp(treadle_layout_text(layout), "distopt", 7) == 0;
  bool good = counted || (info->ndim == truth->ndim && info->derived == truth->derived);
  for (int d = 0; d < info->ndim && good && !counted; d++) good = info->shape[d] == truth->shape[d];
  if (!good)
    return differ(why,
                  "has shape [%" PRId64 ", %" PRId64 ", %" PRId64 "] of %d%s, the oracle's [%" PRId64
                  ", %" PRId64 ", %" PRId64 "] of %d%s",
                  info->shape[0], info->shape[1], info->shape[2], info->ndim,
                  info->derived ? " derived" : "", truth->shape[0], truth->shape[1], truth->shape[2],
                  truth->ndim, truth->derived ? " derived" : "");
  if (treadle_layout_runs(layout, rank, number, &runs, &count) != TREADLE_OK)
    return differ(why, "%s", treadle_error_message());
  for (size_t i = 0; i < count && good; i++) {
    good =
        runs[i].local_start == elems || differ(why, "run %zu begins at %" PRId64, i, runs[i].local_start);
    good = good && same_run(model, oracle->model, tensors, &runs[i], truth, first, why);
    elems += runs[i].count;
  }
  free(runs);
  if (good && elems != (counted ? elems_of(info) : truth->elems))
    return differ(why, "runs end at %" PRId64, elems);
  return good;
}

static bool same_rank(const treadle_model *model, const treadle_layout *layout, int64_t rank,
                      const oracle_layout *oracle, const int32_t *tensors, char *why) {
  agree_walk walk = {.rank = &oracle->rank[rank]};
  const char *text = treadle_layout_text(layout);
  char type[16];
  snprintf(type, sizeof type, "%.*s", (int)strcspn(text, ":"), text);
  bool in_order = strcmp(type, "hf") != 0 && strcmp(type, "distopt") != 0;
  int32_t count = treadle_layout_storage_count(layout, rank);
  for (int32_t s = 0; s < count; s++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    char inner[AGREE_WHY] = "";
    int expected = walk.next;
    int64_t first;
    if (treadle_layout_storage(layout, rank, s, &info) != TREADLE_OK)
      return differ(why, "%s", treadle_error_message());
    const oracle_storage *storage = agree_find(&walk, type, &info, &first);
    if (!storage)
      return differ(why, "rank %" PRId64 " chunk %d: the oracle has no %s", rank, info.chunk, info.name);
    if (in_order && walk.next != expected + 1)
      return differ(why, "rank %" PRId64 " chunk %d: %s where the oracle has %s", rank, info.chunk,
                    info.name,
                    expected < walk.rank->count ? walk.rank->storages[expected].name : "the end");
    if (!same_storage(model, layout, rank, s, &info, oracle, tensors, storage, first, inner))
      return differ(why, "rank %" PRId64 ": %s: %.300s", rank, info.name, inner);
  }
  if (strcmp(type, "distopt") != 0 && count != walk.rank->count)
    return differ(why, "rank %" PRId64 " has %d tensors, the oracle's %d; its next is %s", rank, (int)count,
                  walk.rank->count,
                  walk.next < walk.rank->count ? walk.rank->storages[walk.next].name : "none");
  return true;
}

bool agree_layouts(const treadle_model *model, const treadle_layout *layout, const oracle_layout *oracle,
                   char why[AGREE_WHY]) {
  int32_t *tensors = agree_tensors(model, oracle->model);
  bool good = tensors != NULL;
  for (int64_t r = 0; r < oracle->ranks && good; r++)
    good = same_rank(model, layout, r, oracle, tensors, why);
  free(tensors);
  return good;
}

bool agree_excused(const char *refusal) {
  bool flat = strstr(refusal, "'fsdp") != NULL || strstr(refusal, "'zero") != NULL;
  return strstr(refusal, "makes every layer of this family a MoE layer") != NULL ||
         strstr(refusal, "experts lie in the dense buffer") != NULL ||
         strstr(refusal, "in_proj_qkv.weight_scale_inv: family qwen3_5") != NULL ||
         (flat && strstr(refusal, "not divisible by tp=") != NULL);
}

bool agree_knows(const treadle_model *model, const char *type) {
  static char known[256], unknown[256]; /* " hf  megatron " */
  char word[32];
  snprintf(word, sizeof word, " %s ", type);
  if (strstr(known, word)) return true;
  if (strstr(unknown, word)) return false;
  treadle_layout *layout = NULL;
  bool is = treadle_layout_create(model, type, 1, NULL, &layout) == TREADLE_OK ||
            !strstr(treadle_error_message(), ": no type '");
  treadle_layout_destroy(layout);
  strcat(is ? known : unknown, word);
  return is;
}
