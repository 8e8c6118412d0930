/* Reading torch.save archives: which values of the dict at the top are tensors, and which are left
 * alone. */
#include "io/torch.h"

#include "base/alloc.h"
#include "base/array.h"
#include "base/hash_map.h"
#include "base/text.h"
#include "io/file.h"
#include "io/file_map.h"
#include "io/torch_archive.h"

#include <string.h>

static treadle_status no_memory(const char *what) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its tensors", what);
}

typedef TREADLE_ARRAY(treadle_torch_tensor) tensor_list;
typedef TREADLE_ARRAY(treadle_value *) value_list;

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* Is `key` the name, or the name and a number? */
static bool holds_tensors(const char *key, const char *name) {
  if (!name || !treadle_text_starts(key, name)) return false;
  key += strlen(name);
  return key[strspn(key, "0123456789")] == 0;
}

static treadle_status read_entry(const treadle_torch_archive *a, const treadle_torch_options *options,
                                 const char *entry, const treadle_value *value, treadle_torch *torch,
                                 tensor_list *tensors) {
  char words[256];
  treadle_hash_map names = {0};
  treadle_status status = TREADLE_OK;
  const treadle_pickle_items *pairs = treadle_value_pairs(value);
  if (!pairs) {
    status = treadle_fail(TREADLE_REFUSED, "%s: '%s' is not a dict of tensors but %s", a->what, entry,
                          treadle_value_words(value, words, sizeof words));
    goto out;
  }
  for (uint32_t i = 0; i < pairs->count; i += 2) {
    const char *name = treadle_value_text(pairs->values[i]);
    if (!name) {
      status = treadle_fail(TREADLE_REFUSED, "%s: '%s' has a key that is not a text but %s", a->what, entry,
                            treadle_value_words(pairs->values[i], words, sizeof words));
      goto out;
    }
    if (options->skipped && ends_with(name, options->skipped)) {
      torch->skipped++;
      continue;
    }
    if (treadle_hash_map_get(&names, name, -1) >= 0) {
      status = treadle_fail(TREADLE_REFUSED, "%s: '%s' has tensor '%s' twice", a->what, entry, name);
      goto out;
    }
    TRY(treadle_hash_map_put(&names, name, i));
    treadle_torch_tensor tensor = {.entry = entry, .name = name};
    TRY(treadle_torch_archive_tensor(a, pairs->values[i + 1], options->check_crc, &tensor));
    TRY(treadle_array_push(tensors, tensor));
  }
out:
  treadle_hash_map_release(&names);
  return status;
}

/* Puts a value on the list of those to look at, once. */
static treadle_status visit(value_list *list, treadle_value *value) {
  if (!value || value->type < TREADLE_VALUE_TUPLE || value->seen) return TREADLE_OK;
  value->seen = true;
  return treadle_array_push(list, value);
}

static treadle_status visit_all(value_list *list, const treadle_pickle_items *items) {
  treadle_status status = TREADLE_OK;
  for (uint32_t i = 0; i < items->count; i++) TRY(visit(list, items->values[i]));
out:
  return status;
}

/* Counts the calls in a value that are neither tensors nor ordered dicts. Each value is looked at once,
 * whatever holds it, so that values that hold themselves, or one another many times, end as well. */
static treadle_status count_opaque(treadle_value *value, int64_t *count_p) {
  value_list list = {0};
  bool v3;
  treadle_status status;
  TRY(visit(&list, value));
  while (list.count) {
    value = list.items[--list.count];
    if (value->type == TREADLE_VALUE_CALL) {
      if (treadle_torch_tensor_arguments(value, &v3)) continue;
      const treadle_pickle_call *call = value->is.call;
      if (!treadle_value_pairs(value)) (*count_p)++;
      TRY(visit(&list, call->callee));
      TRY(visit(&list, call->arguments));
      TRY(visit(&list, call->keywords));
      TRY(visit(&list, call->state));
      TRY(visit_all(&list, &call->pairs));
      TRY(visit_all(&list, &call->appended));
    } else if (value->type <= TREADLE_VALUE_DICT) {
      TRY(visit_all(&list, &value->is.items));
    }
  }
out:
  treadle_array_release(&list);
  return status;
}

static treadle_status read_top(const treadle_torch_archive *a, const treadle_torch_options *options,
                               treadle_torch *torch) {
  char words[256];
  tensor_list tensors = {0};
  treadle_status status = TREADLE_OK;
  torch->top = treadle_value_pairs(a->top);
  if (!torch->top) {
    status = treadle_fail(TREADLE_REFUSED, "%s: its top is not a dict but %s", a->what,
                          treadle_value_words(a->top, words, sizeof words));
    goto out;
  }
  for (uint32_t i = 0; i < torch->top->count; i += 2) {
    const char *key = treadle_value_text(torch->top->values[i]);
    treadle_value *value = torch->top->values[i + 1];
    if (key && holds_tensors(key, options->entry)) {
      if (treadle_pairs_get(torch->top, key) != value) {
        status = treadle_fail(TREADLE_REFUSED, "%s: has '%s' twice", a->what, key);
        goto out;
      }
      TRY(read_entry(a, options, key, value, torch, &tensors));
    } else {
      TRY(count_opaque(value, &torch->opaque));
    }
  }
  torch->tensors = treadle_arena_alloc_array(&torch->arena, tensors.count, sizeof *torch->tensors);
  if (!torch->tensors || tensors.count > INT32_MAX) {
    status = no_memory(a->what);
    goto out;
  }
  if (tensors.count) memcpy(torch->tensors, tensors.items, tensors.count * sizeof *torch->tensors);
  torch->count = (int32_t)tensors.count;
out:
  treadle_array_release(&tensors);
  return status;
}

treadle_status treadle_torch_parse(const char *what, const void *image, size_t bytes,
                                   const treadle_torch_options *options, treadle_torch **torch_p) {
  treadle_status status;
  treadle_torch *torch = treadle_alloc(sizeof *torch);
  *torch_p = NULL;
  if (!torch) return no_memory(what);
  treadle_torch_archive a = {.what = what, .arena = &torch->arena};
  TRY(treadle_torch_archive_open(&a, image, bytes));
  TRY(read_top(&a, options, torch));
  *torch_p = torch;
  torch = NULL;
out:
  treadle_torch_close(torch);
  return status;
}

treadle_status treadle_torch_open(const char *path, const treadle_torch_options *options,
                                  treadle_torch **torch_p) {
  const void *image = NULL;
  size_t bytes = 0;
  treadle_status status;
  *torch_p = NULL;
  TRY(treadle_file_map(path, &image, &bytes));
  status = treadle_torch_parse(path, image, bytes, options, torch_p);
  if (treadle_file_intact(image)) { /* what is gone is not a bad archive */
    treadle_torch_close(*torch_p);
    *torch_p = NULL;
    TRY(treadle_file_intact(image));
  }
  TRY(status);
  (*torch_p)->image = image;
  (*torch_p)->bytes = bytes;
  image = NULL;
out:
  treadle_file_unmap(image, bytes);
  return status;
}

void treadle_torch_close(treadle_torch *torch) {
  if (!torch) return;
  treadle_file_unmap(torch->image, torch->bytes);
  treadle_arena_release(&torch->arena);
  treadle_free(torch);
}

treadle_status treadle_torch_parse_tensor(const char *what, const void *image, size_t bytes,
                                          treadle_arena *arena, treadle_torch_tensor *tensor_p) {
  treadle_torch_archive a = {.what = what, .arena = arena};
  treadle_status status;
  *tensor_p = (treadle_torch_tensor){.name = "(the top)"};
  TRY(treadle_torch_archive_open(&a, image, bytes));
  TRY(treadle_torch_archive_tensor(&a, a.top, false, tensor_p));
out:
  return status;
}
