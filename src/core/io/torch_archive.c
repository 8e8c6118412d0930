/* torch.save archives: the zip entries, and tensors in them.
 *
 * The pickle is read as plain values (io/pickle.h); what is a tensor is decided here, by the names of
 * the functions that torch would call, and only where a tensor is wanted. A tensor's bounds are checked
 * against its storage's entry in the archive before its data pointer is made. */
#include "io/torch_archive.h"

#include "base/text.h"
#include "io/torch_types.h"

#include <inttypes.h>
#include <string.h>

/* torch.save packs nothing. What was packed later may be a bomb: values take many times the bytes of their pickle, which
 * may take a thousand times those of the file. */
enum {
  LARGEST_PICKLE = 1 << 30,
  LARGEST_PACKED_PICKLE = 8 << 20,
  LARGEST_SMALL = 64,
  OLDEST_VERSION = 1,
  NEWEST_VERSION = 10
};

static const char UTILS[] = "torch._utils";

static treadle_status no_memory(const char *what) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its tensors", what);
}

/* ---- The archive --------------------------------------------------------------------------------- */

static treadle_status find_entry(const treadle_torch_archive *a, const char *name,
                                 const treadle_zip_member **entry_p) {
  char *path = treadle_arena_format(a->arena, "%s%s", a->folder, name);
  if (!path) return no_memory(a->what);
  *entry_p = treadle_zip_find(&a->zip, path);
  return TREADLE_OK;
}

/* The folder is that of the one data.pkl which lies in a folder of the top. */
static treadle_status find_folder(treadle_torch_archive *a) {
  for (int32_t i = 0; i < a->zip.count; i++) {
    const char *name = a->zip.entries[i].name, *slash = strchr(name, '/');
    if (!slash || strcmp(slash + 1, "data.pkl") != 0) continue;
    if (a->folder)
      return treadle_fail(TREADLE_REFUSED, "%s: has both '%sdata.pkl' and '%s'", a->what, a->folder, name);
    a->folder = treadle_arena_format(a->arena, "%.*s", (int)(slash + 1 - name), name);
    if (!a->folder) return no_memory(a->what);
  }
  return a->folder ? TREADLE_OK
                   : treadle_fail(TREADLE_REFUSED,
                                  "%s: is not an archive of torch.save: it has no data.pkl", a->what);
}

/* A small text entry without spaces around; *text_p is NULL when it is not there. */
static treadle_status small_text(const treadle_torch_archive *a, const char *name, const char **text_p) {
  const treadle_zip_member *entry = NULL;
  const unsigned char *content = NULL;
  treadle_status status;
  *text_p = NULL;
  TRY(find_entry(a, name, &entry));
  if (!entry) goto out;
  TRY(treadle_zip_content(a->what, entry, LARGEST_SMALL, a->arena, &content));
  size_t count = entry->bytes;
  while (count && (content[count - 1] == '\n' || content[count - 1] == ' ')) count--;
  *text_p = treadle_arena_format(a->arena, "%.*s", (int)count, (const char *)content);
  if (!*text_p) status = no_memory(a->what);
out:
  return status;
}

static treadle_status check_format(const treadle_torch_archive *a) {
  const char *version = NULL, *order = NULL;
  int64_t number = 0;
  treadle_status status;
  TRY(small_text(a, "version", &version));
  TRY(small_text(a, "byteorder", &order));
  if (!version || !treadle_text_to_int64(version, &number) || number < OLDEST_VERSION ||
      number > NEWEST_VERSION)
    status = treadle_fail(TREADLE_REFUSED, "%s: format version '%s'; %d to %d are read", a->what,
                          version ? version : "(none)", OLDEST_VERSION, NEWEST_VERSION);
  else if (order && strcmp(order, "little") != 0)
    status = treadle_fail(TREADLE_REFUSED, "%s: byte order '%s'; only little is read", a->what, order);
out:
  return status;
}

treadle_status treadle_torch_archive_open(treadle_torch_archive *a, const void *image, size_t bytes) {
  static const unsigned char OLD[] = {0x80, 0x02, 0x8a, 0x0a}; /* a pickle of torch's magic number */
  const treadle_zip_member *entry = NULL;
  const unsigned char *pickle = NULL;
  treadle_status status;
  if (bytes >= sizeof OLD && memcmp(image, OLD, sizeof OLD) == 0) {
    status = treadle_fail(
        TREADLE_REFUSED,
        "%s: is in the format that torch.save had before 1.6; save it again with a newer torch", a->what);
    goto out;
  }
  TRY(treadle_zip_parse(a->what, image, bytes, a->arena, &a->zip));
  TRY(find_folder(a));
  TRY(check_format(a));
  TRY(find_entry(a, "data.pkl", &entry));
  TRY(treadle_zip_content(a->what, entry, entry->deflated ? LARGEST_PACKED_PICKLE : LARGEST_PICKLE,
                          a->arena, &pickle));
  TRY(treadle_pickle_read(a->what, pickle, entry->bytes, a->arena, &a->top));
out:
  return status;
}

/* ---- A tensor ------------------------------------------------------------------------------------- */

static treadle_status bad_tensor(const treadle_torch_archive *a, const char *name, const char *why) {
  return treadle_fail(TREADLE_REFUSED, "%s: tensor '%s': %s", a->what, name, why);
}

/* _rebuild_from_type_v2(function, type, arguments, state): a tensor with attributes of Python's, which
 * are left behind. Only of torch's own types: what another type makes of its arguments is unknown. */
static bool with_attributes(const treadle_value **function_p, const treadle_pickle_items **arguments_p) {
  const treadle_pickle_items *arguments = *arguments_p;
  if (!treadle_value_is_global(*function_p, "torch._tensor", "_rebuild_from_type_v2")) return true;
  if (!arguments || arguments->count != 4 ||
      (!treadle_value_is_global(arguments->values[1], "torch", "Tensor") &&
       !treadle_value_is_global(arguments->values[1], "torch.nn.parameter", "Parameter")))
    return false;
  *function_p = arguments->values[0];
  *arguments_p = treadle_value_sequence(arguments->values[2]);
  return true;
}

const treadle_pickle_items *treadle_torch_tensor_arguments(const treadle_value *value, bool *v3_p) {
  for (int wrapping = 0; wrapping < 4 && value->type == TREADLE_VALUE_CALL; wrapping++) {
    const treadle_value *function = value->is.call->callee;
    const treadle_pickle_items *arguments = treadle_value_sequence(value->is.call->arguments);
    if (!with_attributes(&function, &arguments) || !arguments || !arguments->count) return NULL;
    *v3_p = treadle_value_is_global(function, UTILS, "_rebuild_tensor_v3");
    if (*v3_p || treadle_value_is_global(function, UTILS, "_rebuild_tensor_v2"))
      return arguments->count >= (*v3_p ? 7 : 6) ? arguments : NULL;
    if (!treadle_value_is_global(function, UTILS, "_rebuild_parameter") &&
        !treadle_value_is_global(function, UTILS, "_rebuild_parameter_with_state"))
      return NULL;
    value = arguments->values[0];
  }
  return NULL;
}

/* ('storage', class, key, location, numel), of which the entry has at least the elements. */
static treadle_status find_storage(const treadle_torch_archive *a, const char *name,
                                   const treadle_value *value, const treadle_torch_type *v3,
                                   const treadle_torch_type **type_p, const treadle_zip_member **entry_p,
                                   int64_t *elems_p) {
  const treadle_pickle_items *id = value && value->type == TREADLE_VALUE_PERSISTENT
                                       ? treadle_value_sequence(value->is.call->arguments)
                                       : NULL;
  const char *word = id && id->count >= 5 ? treadle_value_text(id->values[0]) : NULL;
  const char *key = word ? treadle_value_text(id->values[2]) : NULL;
  int64_t count = 0;
  treadle_status status;
  if (!key || strcmp(word, "storage") != 0 || !treadle_value_int(id->values[4], &count) || count < 0)
    return bad_tensor(a, name, "its storage is not ('storage', class, key, location, numel)");
  const treadle_value *class = id->values[1];
  if (v3) { /* an untyped storage counts bytes */
    *type_p = treadle_value_is_global(class, "torch.storage", "UntypedStorage") ? v3 : NULL;
    count /= v3->bytes;
  } else {
    bool named = class->type == TREADLE_VALUE_GLOBAL && strcmp(class->is.global.module, "torch") == 0;
    *type_p = named ? treadle_torch_type_of_storage(class->is.global.name) : NULL;
  }
  if (!*type_p) {
    char words[256];
    return treadle_fail(TREADLE_REFUSED, "%s: tensor '%s': its storage is of %s, which is not read",
                        a->what, name, treadle_value_words(class, words, sizeof words));
  }
  char *path = treadle_arena_format(a->arena, "data/%s", key);
  if (!path) return no_memory(a->what);
  TRY(find_entry(a, path, entry_p));
  if (!*entry_p) {
    status = treadle_fail(TREADLE_REFUSED, "%s: tensor '%s': there is no storage '%s'", a->what, name, key);
    goto out;
  }
  if ((*entry_p)->deflated) {
    status = treadle_fail(TREADLE_REFUSED, "%s: tensor '%s': storage '%s' is packed", a->what, name, key);
    goto out;
  }
  if ((uint64_t)count > (*entry_p)->bytes / (size_t)(*type_p)->bytes) {
    status =
        treadle_fail(TREADLE_REFUSED,
                     "%s: tensor '%s': storage '%s' has %zu bytes, too few for %" PRId64 " elements of %s",
                     a->what, name, key, (*entry_p)->bytes, count, (*type_p)->name);
    goto out;
  }
  *elems_p = count;
out:
  return status;
}

/* Does [offset, offset + the last element's distance] lie in the storage? */
static bool inside(const treadle_torch_tensor *tensor, int64_t offset, int64_t elems) {
  if (offset > elems || tensor->elems > elems) return false;
  if (!tensor->elems) return true;
  int64_t last = offset, distance = 0;
  for (int i = 0; i < tensor->ndim; i++)
    if (__builtin_mul_overflow(tensor->shape[i] - 1, tensor->strides[i], &distance) ||
        __builtin_add_overflow(last, distance, &last))
      return false;
  return last < elems;
}

/* Strides of dimensions of one element say nothing. */
static bool is_contiguous(const treadle_torch_tensor *tensor) {
  int64_t dense = 1;
  if (!tensor->elems) return true;
  for (int i = tensor->ndim - 1; i >= 0; i--) {
    if (tensor->shape[i] != 1 && tensor->strides[i] != dense) return false;
    dense *= tensor->shape[i];
  }
  return true;
}

treadle_status treadle_torch_archive_tensor(const treadle_torch_archive *a, const treadle_value *value,
                                            bool check_crc, treadle_torch_tensor *tensor_p) {
  const char *name = tensor_p->name;
  bool v3 = false;
  const treadle_pickle_items *arguments = treadle_torch_tensor_arguments(value, &v3);
  const treadle_torch_type *type = NULL;
  const treadle_zip_member *entry = NULL;
  int64_t offset = 0, elems = 0;
  int strides = 0;
  treadle_status status;
  if (!arguments) {
    char words[256];
    return treadle_fail(TREADLE_REFUSED, "%s: '%s' is not a tensor but %s", a->what, name,
                        treadle_value_words(value, words, sizeof words));
  }
  if (v3) {
    const treadle_value *dtype = arguments->values[6];
    if (dtype->type == TREADLE_VALUE_GLOBAL && strcmp(dtype->is.global.module, "torch") == 0)
      type = treadle_torch_type_named(dtype->is.global.name);
    if (!type) return bad_tensor(a, name, "its element type is not known");
  }
  TRY(find_storage(a, name, arguments->values[0], type, &type, &entry, &elems));
  if (!treadle_value_int(arguments->values[1], &offset) || offset < 0 ||
      !treadle_value_numbers(arguments->values[2], tensor_p->shape, &tensor_p->ndim) ||
      !treadle_value_numbers(arguments->values[3], tensor_p->strides, &strides) ||
      strides != tensor_p->ndim) {
    status = bad_tensor(a, name, "its offset, shape and strides are not numbers from 0 on, at most 8");
    goto out;
  }
  if (arguments->count > (v3 ? 7 : 6)) { /* bits that say: read the values negated, or conjugated */
    const treadle_pickle_items *bits = treadle_value_pairs(arguments->values[v3 ? 7 : 6]);
    if (!bits || bits->count) {
      status = bad_tensor(a, name, "has metadata beside its values, which is not read");
      goto out;
    }
  }
  if (!treadle_torch_measure(type, tensor_p) || !inside(tensor_p, offset, elems)) {
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: tensor '%s': its offset %" PRId64
                          ", shape and strides leave its storage of %" PRId64 " elements",
                          a->what, name, offset, elems);
    goto out;
  }
  tensor_p->contiguous = is_contiguous(tensor_p);
  tensor_p->data = entry->data + (size_t)offset * (size_t)type->bytes;
  tensor_p->storage =
      (treadle_torch_entry){entry->name, entry->data, entry->bytes, entry->crc, entry->summed};
  if (check_crc) TRY(treadle_zip_check(a->what, entry, entry->data));
out:
  return status;
}
