/* Writing torch.save archives.
 *
 * data.pkl is made as torch.save makes it: a dict; in it per entry an OrderedDict of tensors, each over
 * a storage of its own. torch's restricted loader (torch/_weights_only_unpickler.py) knows every class
 * and opcode in it. The order of the archive is torch's: data.pkl, byteorder, data/0, data/1, ...,
 * version. A tensor of a type without storage class lies over an untyped storage, which counts bytes,
 * and _rebuild_tensor_v3 is told the type. */
#include "io/torch.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "io/torch_types.h"
#include "io/zip.h"

#include <stdio.h>
#include <string.h>

struct treadle_torch_writer {
  treadle_zip_filler archive; /* its last entry is of tensor next - 1 */
  size_t *bytes;              /* of each tensor */
  int32_t count, next;
  treadle_arena arena;
};

/* Where the memo keeps what is said again and again. */
enum { ORDERED_DICT, REBUILD_V2, REBUILD_V3, STORAGE_WORD, LOCATION_WORD, MEMO_SLOTS };

typedef struct said {
  bool kept[MEMO_SLOTS];
} said;

static void add_global(treadle_pickle *pickle, said *memo, unsigned slot, const char *module,
                       const char *name) {
  if (memo->kept[slot]) {
    treadle_pickle_get(pickle, slot);
    return;
  }
  treadle_pickle_global(pickle, module, name);
  treadle_pickle_put(pickle, slot);
  memo->kept[slot] = true;
}

static void add_word(treadle_pickle *pickle, said *memo, unsigned slot, const char *text) {
  if (memo->kept[slot]) {
    treadle_pickle_get(pickle, slot);
    return;
  }
  treadle_pickle_text(pickle, text);
  treadle_pickle_put(pickle, slot);
  memo->kept[slot] = true;
}

static void add_ordered_dict(treadle_pickle *pickle, said *memo) {
  add_global(pickle, memo, ORDERED_DICT, "collections", "OrderedDict");
  treadle_pickle_op(pickle, ')');
  treadle_pickle_op(pickle, 'R');
}

/* A tuple of `count` numbers. */
static void add_numbers(treadle_pickle *pickle, const int64_t *numbers, int count) {
  if (!count) {
    treadle_pickle_op(pickle, ')');
    return;
  }
  treadle_pickle_op(pickle, '(');
  for (int i = 0; i < count; i++) treadle_pickle_int(pickle, numbers[i]);
  treadle_pickle_op(pickle, 't');
}

/* _rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict()) */
static void add_tensor(treadle_pickle *pickle, said *memo, const treadle_torch_tensor *tensor,
                       const treadle_torch_type *type, int32_t number) {
  char key[16];
  int64_t strides[8], dense = 1;
  bool v3 = !type->storage;
  for (int i = tensor->ndim - 1; i >= 0; i--) {
    strides[i] = dense;
    if (tensor->shape[i]) dense *= tensor->shape[i]; /* torch, too, counts an empty dimension as 1 here */
  }
  add_global(pickle, memo, v3 ? REBUILD_V3 : REBUILD_V2, "torch._utils",
             v3 ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  treadle_pickle_op(pickle, '('); /* the arguments */
  treadle_pickle_op(pickle, '('); /* the storage's id */
  snprintf(key, sizeof key, "%d", number);
  add_word(pickle, memo, STORAGE_WORD, "storage");
  if (v3)
    treadle_pickle_global(pickle, "torch.storage", "UntypedStorage");
  else
    treadle_pickle_global(pickle, "torch", type->storage);
  treadle_pickle_text(pickle, key);
  add_word(pickle, memo, LOCATION_WORD, "cpu");
  treadle_pickle_int(pickle, v3 ? (int64_t)tensor->bytes : tensor->elems);
  treadle_pickle_op(pickle, 't');
  treadle_pickle_op(pickle, 'Q');
  treadle_pickle_int(pickle, 0);
  add_numbers(pickle, tensor->shape, tensor->ndim);
  add_numbers(pickle, strides, tensor->ndim);
  treadle_pickle_op(pickle, (char)0x89); /* needs no gradient */
  add_ordered_dict(pickle, memo);        /* no hooks */
  if (v3) treadle_pickle_global(pickle, "torch", type->name);
  treadle_pickle_op(pickle, 't');
  treadle_pickle_op(pickle, 'R');
}

/* The caller's tensor with sizes and type, or a refusal. */
static treadle_status check_tensor(const char *path, treadle_torch_tensor *tensor,
                                   const treadle_torch_type **type_p) {
  const char *text =
      tensor->dtype == TREADLE_DTYPE_NONE ? tensor->dtype_text : treadle_dtype_safetensors(tensor->dtype);
  bool good = tensor->entry && tensor->name && text && tensor->ndim >= 0 && tensor->ndim <= 8;
  for (int i = 0; good && i < tensor->ndim; i++) good = tensor->shape[i] >= 0;
  *type_p = good ? treadle_torch_type_of_safetensors(text) : NULL;
  if (!*type_p || !treadle_torch_measure(*type_p, tensor))
    return treadle_fail(
        TREADLE_REFUSED,
        "%s: tensor '%s' of type %s and %d dimensions lacks a name, or its type or shape cannot "
        "be written",
        path, tensor->name ? tensor->name : "", text ? text : "(none)", tensor->ndim);
  return TREADLE_OK;
}

treadle_status treadle_torch_pickle_alone(const char *what, const treadle_torch_tensor *given,
                                          treadle_pickle *pickle, size_t *bytes_p) {
  const treadle_torch_type *type = NULL;
  treadle_torch_tensor tensor = *given;
  said memo = {0};
  treadle_status status;
  TRY(check_tensor(what, &tensor, &type));
  treadle_pickle_op(pickle, (char)0x80);
  treadle_pickle_op(pickle, 2); /* the protocol */
  add_tensor(pickle, &memo, &tensor, type, 0);
  treadle_pickle_op(pickle, '.');
  *bytes_p = tensor.bytes;
  if (pickle->failed) status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its pickle", what);
out:
  return status;
}

static treadle_status make_pickle(treadle_torch_writer *writer, const treadle_torch_tensor *tensors,
                                  const treadle_torch_extra *extras, int32_t extra_count,
                                  treadle_pickle *pickle) {
  said memo = {0};
  treadle_status status = TREADLE_OK;
  treadle_pickle_op(pickle, (char)0x80);
  treadle_pickle_op(pickle, 2); /* the protocol */
  treadle_pickle_op(pickle, '}');
  treadle_pickle_op(pickle, '(');
  for (int32_t i = 0; i < writer->count; i++) {
    const treadle_torch_type *type = NULL;
    treadle_torch_tensor tensor = tensors[i];
    TRY(check_tensor(writer->archive.path, &tensor, &type));
    if (!i || strcmp(tensors[i - 1].entry, tensor.entry) != 0) {
      if (i) treadle_pickle_op(pickle, 'u');
      treadle_pickle_text(pickle, tensor.entry);
      add_ordered_dict(pickle, &memo);
      treadle_pickle_op(pickle, '(');
    }
    treadle_pickle_text(pickle, tensor.name);
    add_tensor(pickle, &memo, &tensor, type, i);
    writer->bytes[i] = tensor.bytes;
  }
  if (writer->count) treadle_pickle_op(pickle, 'u');
  for (int32_t i = 0; i < extra_count; i++) {
    treadle_pickle_text(pickle, extras[i].name);
    if (extras[i].is_real)
      treadle_pickle_float(pickle, extras[i].real);
    else
      treadle_pickle_int(pickle, extras[i].integer);
  }
  treadle_pickle_op(pickle, 'u');
  treadle_pickle_op(pickle, '.');
  if (pickle->failed)
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its pickle", writer->archive.path);
out:
  return status;
}

/* Begins the next storage, and those after it that are empty. */
static treadle_status next_storage(treadle_zip_filler *archive) {
  treadle_torch_writer *writer = (treadle_torch_writer *)archive;
  char name[32];
  treadle_status status = TREADLE_OK;
  while (!archive->left && writer->next < writer->count) {
    snprintf(name, sizeof name, "archive/data/%d", writer->next);
    archive->left = writer->bytes[writer->next++];
    TRY(treadle_zip_begin(archive->zip, name, archive->left));
  }
out:
  return status;
}

treadle_status treadle_torch_create(const char *path, const treadle_torch_tensor *tensors, int32_t count,
                                    const treadle_torch_extra *extras, int32_t extra_count,
                                    treadle_torch_writer **writer_p) {
  treadle_pickle pickle = {0};
  treadle_status status;
  treadle_torch_writer *writer = treadle_alloc(sizeof *writer);
  *writer_p = NULL;
  if (writer) {
    writer->archive.path = treadle_arena_copy_text(&writer->arena, path);
    writer->archive.next = next_storage;
    writer->bytes = treadle_arena_alloc_array(&writer->arena, (size_t)count, sizeof *writer->bytes);
    writer->count = count;
  }
  if (!writer || !writer->archive.path || !writer->bytes) {
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for %d tensors", path, count);
    goto out;
  }
  TRY(make_pickle(writer, tensors, extras, extra_count, &pickle));
  TRY(treadle_zip_create(path, &writer->archive.zip));
  TRY(treadle_zip_put(writer->archive.zip, "archive/data.pkl", pickle.bytes, pickle.count));
  TRY(treadle_zip_put(writer->archive.zip, "archive/byteorder", "little", 6));
  TRY(next_storage(&writer->archive));
  *writer_p = writer;
  writer = NULL;
out:
  treadle_pickle_release(&pickle);
  treadle_torch_writer_destroy(writer);
  return status;
}

treadle_status treadle_torch_append(treadle_torch_writer *writer, const void *bytes, size_t count) {
  return treadle_zip_fill(&writer->archive, bytes, count);
}

treadle_status treadle_torch_finish(treadle_torch_writer *writer) {
  treadle_status status;
  TRY(treadle_zip_put(writer->archive.zip, "archive/version", "3\n",
                      2)); /* refused while a storage lacks bytes */
  TRY(treadle_zip_finish(writer->archive.zip));
out:
  return status;
}

void treadle_torch_writer_sum(const treadle_torch_writer *writer, int64_t *bytes_p, uint64_t *sum_p) {
  treadle_zip_sum(writer->archive.zip, bytes_p, sum_p);
}

void treadle_torch_writer_destroy(treadle_torch_writer *writer) {
  if (!writer) return;
  treadle_zip_destroy(writer->archive.zip);
  treadle_arena_release(&writer->arena);
  treadle_free(writer);
}
