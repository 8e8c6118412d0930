/* What a rank must hold, as a golden file says it, and the comparison of a subject with that: names, shapes
 * and the source of every element, in order. */
#include "golden_support/golden_parts.h"

#include <stdlib.h>
#include <string.h>

golden_expected *golden_expect(golden_list *list, const char *name, int32_t chunk, const json_t *shape) {
  list->items = realloc(list->items, (list->count + 1) * sizeof *list->items);
  if (!list->items) abort();
  list->items[list->count] = (golden_expected){.name = name, .chunk = chunk, .shape = shape};
  return &list->items[list->count++];
}

void golden_list_release(golden_list *list) {
  for (size_t i = 0; i < list->count; i++) golden_runs_release(&list->items[i].runs);
  free(list->items);
  *list = (golden_list){0};
}

/* [local_start, id, hf_start, hf_stride, count] or [.., repeats, local_step, hf_step]. id -1 is a fill, which
 * must be of zeros (hf_start is the value in Megatron's files). id -2 is what no loader wrote: the value of
 * such elements is whatever the engine's constructor left there. Of a whole tensor there is nothing to agree on but name
 * and shape; the library may as well leave it out, since no weight of the file lives in it: the tied lm_head of models
 * that make one and never fill it, the experts that SGLang makes in dense layers, the draft model's embedding and head in
 * SGLang. In a part of a tensor it is padding (Kimi-K3's experts in vLLM), and the library's is zeros. id -3 is minus
 * infinity. */
golden_verdict golden_read_runs(const golden_case *c, const json_t *golden, const int32_t *numbers,
                                golden_expected *tensor) {
  tensor->optional = json_array_size(golden) > 0;
  for (size_t i = 0; i < json_array_size(golden); i++)
    tensor->optional &= golden_at(json_array_get(golden, i), 1) == -2;
  tensor->has_runs = !tensor->optional;
  for (size_t i = 0; i < json_array_size(golden); i++) {
    const json_t *run = json_array_get(golden, i);
    int64_t id = golden_at(run, 1);
    bool repeated = json_array_size(run) == 8;
    if (tensor->optional) continue;
    if (id < -3 || (id == -1 && golden_at(run, 2) != 0))
      return golden_differ(c, "%s: golden run %d is neither data nor padding", tensor->name, (int)i);
    for (int64_t r = 0; r < (repeated ? golden_at(run, 5) : 1); r++) {
      treadle_run one = {.local_start = golden_at(run, 0),
                         .tensor = id == -3 ? TREADLE_FILL_MINUS_INFINITY : TREADLE_FILL_ZEROS,
                         .count = golden_at(run, 4)};
      if (repeated) one.local_start += r * golden_at(run, 6);
      if (id >= 0) {
        one.tensor = numbers[id];
        one.start = golden_at(run, 2) + (repeated ? r * golden_at(run, 7) : 0);
        one.stride = golden_at(run, 3);
      }
      golden_runs_add(&tensor->runs, one);
    }
  }
  return GOLDEN_EQUAL;
}

static bool same_shape(const json_t *shape, int ndim, const int64_t *found) {
  if (json_array_size(shape) != (size_t)ndim) return false;
  for (int i = 0; i < ndim; i++) {
    if (golden_at(shape, (size_t)i) != found[i]) return false;
  }
  return true;
}

/* The layer inside an MTP layer was renamed after the Megatron-core of the files (docs/rules.md 7.4): either will
 * do. */
static bool same_name(const char *golden, const char *found) {
  static const char *const old = ".transformer_layer.", *const new = ".mtp_model_layer.";
  const char *at = strstr(golden, old);
  if (strcmp(golden, found) == 0) return true;
  size_t before = at ? (size_t)(at - golden) : 0;
  return at && strncmp(golden, found, before) == 0 && strncmp(found + before, new, strlen(new)) == 0 &&
         strcmp(at + strlen(old), found + before + strlen(new)) == 0;
}

static bool ends_in(const char *name, const char *end) {
  size_t length = strlen(name), part = strlen(end);
  return length >= part && strcmp(name + length - part, end) == 0;
}

static bool is_compared(golden_part part, bool derived, const treadle_storage_info *info) {
  if (part == GOLDEN_SCALES) return !derived && ends_in(info->name, "_scale_inv");
  if (part == GOLDEN_MAIN) return info->derived == derived && info->chunk == 0;
  return info->derived == derived && (part == GOLDEN_ALL || info->chunk == 1);
}

static void print_shape(char *text, size_t room, int ndim, const int64_t *shape) {
  size_t length = 0;
  for (int i = 0; i < ndim; i++)
    length += (size_t)snprintf(text + length, room - length, "%s%lld", i ? ", " : "", (long long)shape[i]);
}

/* A tensor of a name that golden has: its shape and its elements. */
static golden_verdict compare_tensor(const golden_case *c, int64_t rank, int32_t storage,
                                     const treadle_storage_info *info, golden_expected *wanted) {
  if (!same_shape(wanted->shape, info->ndim, info->shape)) {
    char found[128] = "", golden[128] = "";
    int64_t shape[4] = {0};
    size_t ndim = json_array_size(wanted->shape);
    for (size_t i = 0; i < ndim && i < 4; i++) shape[i] = golden_at(wanted->shape, i);
    print_shape(golden, sizeof golden, ndim < 4 ? (int)ndim : 4, shape);
    print_shape(found, sizeof found, info->ndim, info->shape);
    return golden_differ(c, "rank %lld, %s: golden has [%s], found [%s]", (long long)rank, info->name,
                         golden, found);
  }
  if (!wanted->has_runs) return GOLDEN_EQUAL;
  golden_runs_sort(&wanted->runs);
  return golden_compare_runs(c, rank, storage, &wanted->runs);
}

/* The next tensor of the list that is derived or not, from `next` on; those that `found` is not, and that may
 * be left out, are passed over. */
static size_t next_wanted(const golden_list *list, size_t next, bool derived, const char *found) {
  while (next < list->count && (list->items[next].derived != derived ||
                                (list->items[next].optional && !same_name(list->items[next].name, found))))
    next++;
  return next;
}

/* Of the tensors that are derived, or of the others, the same in the same order. */
static golden_verdict compare_half(const golden_case *c, int64_t rank, golden_part part, bool derived,
                                   golden_list *list) {
  int32_t count = c->subject->storage_count(c->layout, rank);
  size_t next = 0;
  for (int32_t i = 0; i <= count; i++) {
    treadle_storage_info info = {
        .struct_size = sizeof info, .name = "nothing", .chunk = -1}; /* behind the last */
    if (i < count && !c->subject->storage(c->layout, rank, i, &info))
      return golden_differ(c, "rank %lld: %s", (long long)rank, c->subject->reason());
    if (i < count && !is_compared(part, derived, &info)) continue;
    next = next_wanted(list, next, derived, info.name);
    golden_expected *wanted = next < list->count ? &list->items[next] : NULL;
    if (i == count && !wanted) return GOLDEN_EQUAL;
    if (!wanted || !same_name(wanted->name, info.name) || wanted->chunk != info.chunk)
      return golden_differ(c, "rank %lld, tensor %d: golden %s (chunk %d), found %s (chunk %d)",
                           (long long)rank, i, wanted ? wanted->name : "nothing",
                           wanted ? (int)wanted->chunk : -1, info.name, (int)info.chunk);
    golden_verdict verdict = compare_tensor(c, rank, i, &info, wanted);
    if (verdict != GOLDEN_EQUAL) return verdict;
    next++;
  }
  return GOLDEN_EQUAL;
}

/* Derived tensors are recorded behind all others because they are made last; a layout may have them with their
 * layer. */
golden_verdict golden_compare_rank(const golden_case *c, int64_t rank, golden_part part,
                                   golden_list *list) {
  golden_verdict verdict = compare_half(c, rank, part, false, list);
  return verdict == GOLDEN_EQUAL ? compare_half(c, rank, part, true, list) : verdict;
}

/* The number of a name of the public files: where the language model is part of a larger one, its names begin otherwise
 * there than in the family. */
static int32_t find_tensor(const golden_case *c, const char *name) {
  static const char *const begins[][2] = {{"model.language_model.", "model."},
                                          {"language_model.model.", "model."},
                                          {"language_model.lm_head.", "lm_head."}};
  int32_t number = c->subject->find(c->layout, name);
  for (size_t i = 0; number < 0 && i < sizeof begins / sizeof *begins; i++) {
    char own[256];
    size_t length = strlen(begins[i][0]);
    if (strncmp(name, begins[i][0], length) != 0) continue;
    snprintf(own, sizeof own, "%s%s", begins[i][1], name + length);
    number = c->subject->find(c->layout, own);
  }
  return number;
}

/* Scales are found by their names but are no canonical tensors: nobody lists or describes them. */
golden_verdict golden_compare_model(const golden_case *c, const json_t *tensors, golden_part part,
                                    int32_t **numbers_p) {
  size_t count = json_array_size(tensors);
  int32_t *numbers = calloc(count + 1, sizeof *numbers), distinct = 0;
  if (!numbers) abort();
  *numbers_p = numbers;
  for (size_t i = 0; i < count; i++) {
    const json_t *tensor = json_array_get(tensors, i);
    const char *name = json_string_value(json_array_get(tensor, 0));
    treadle_tensor_info info = TREADLE_INIT(treadle_tensor_info);
    numbers[i] = find_tensor(c, name);
    if (numbers[i] < 0) return golden_differ(c, "the model has no %s", name);
    bool described = c->subject->tensor(c->layout, numbers[i], &info);
    if (!described && part != GOLDEN_SCALES) return golden_differ(c, "the model does not know %s", name);
    if (described && !same_shape(json_array_get(tensor, 1), info.ndim, info.shape))
      return golden_differ(c, "canonical %s has another shape", name);
    bool seen = false;
    for (size_t k = 0; k < i; k++) seen |= numbers[k] == numbers[i];
    distinct += !seen;
  }
  int32_t found = c->subject->tensor_count(c->layout);
  return part == GOLDEN_SCALES || found == distinct
             ? GOLDEN_EQUAL
             : golden_differ(c, "%d canonical tensors, golden has %d", found, distinct);
}
