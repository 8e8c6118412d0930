/* Writing files of torch.distributed.checkpoint (torch_dist.h).
 *
 * A chunk is what torch.save makes of one tensor: an archive with data.pkl, byteorder, data/0 and version. How long it is
 * follows from its shape and type; so the metadata is made without a look at the files. */
#include "io/torch_dist.h"

#include "base/alloc.h"
#include "base/dtype.h"
#include "io/torch_types.h"
#include "io/zip.h"

#include <string.h>

struct treadle_dist_writer {
  treadle_zip_filler archive; /* of part next - 1 */
  treadle_file_writer *file;
  const treadle_dist_part *parts; /* the caller's */
  int32_t count, next;
  int64_t at; /* where the next archive begins */
  treadle_arena arena;
};

/* An archive up to its data, of *bytes_p bytes. */
static treadle_status begin_part(treadle_zip_writer *zip, const char *path, const treadle_dist_part *part,
                                 size_t *bytes_p) {
  treadle_status status;
  treadle_pickle pickle = {0};
  treadle_torch_tensor tensor = {
      .entry = part->key, .name = part->key, .dtype = part->dtype, .ndim = part->ndim};
  memcpy(tensor.shape, part->size, sizeof tensor.shape);
  TRY(treadle_torch_pickle_alone(path, &tensor, &pickle, bytes_p));
  TRY(treadle_zip_put(zip, "archive/data.pkl", pickle.bytes, pickle.count));
  TRY(treadle_zip_put(zip, "archive/byteorder", "little", 6));
  TRY(treadle_zip_begin(zip, "archive/data/0", *bytes_p));
out:
  treadle_pickle_release(&pickle);
  return status;
}

static treadle_status end_part(treadle_zip_writer *zip) {
  treadle_status status;
  TRY(treadle_zip_put(zip, "archive/version", "3\n", 2));
  TRY(treadle_zip_finish(zip));
out:
  return status;
}

/* ---- Files ------------------------------------------------------------------------------------- */

/* Ends the part that has all of its bytes, and begins the next one, until one has any. */
static treadle_status next_part(treadle_zip_filler *archive) {
  treadle_dist_writer *writer = (treadle_dist_writer *)archive;
  treadle_status status = TREADLE_OK;
  while (archive->left == 0) {
    if (archive->zip) {
      TRY(end_part(archive->zip));
      writer->at += treadle_zip_bytes(archive->zip);
      treadle_zip_destroy(archive->zip);
      archive->zip = NULL;
    }
    if (writer->next == writer->count) break;
    TRY(treadle_zip_create_in(archive->path, writer->file, writer->at, &archive->zip));
    TRY(begin_part(archive->zip, archive->path, &writer->parts[writer->next++], &archive->left));
  }
out:
  return status;
}

treadle_status treadle_dist_create(const char *path, const treadle_dist_part *parts, int32_t count,
                                   treadle_dist_writer **writer_p) {
  treadle_status status;
  treadle_dist_writer *writer = treadle_alloc(sizeof *writer);
  *writer_p = NULL;
  if (writer) writer->archive.path = treadle_arena_copy_text(&writer->arena, path);
  if (!writer || !writer->archive.path) {
    status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory to write it", path);
    goto out;
  }
  writer->archive.next = next_part;
  writer->parts = parts;
  writer->count = count;
  TRY(treadle_file_writer_create(path, &writer->file));
  TRY(next_part(&writer->archive));
  *writer_p = writer;
  writer = NULL;
out:
  treadle_dist_writer_destroy(writer);
  return status;
}

treadle_status treadle_dist_append(treadle_dist_writer *writer, const void *bytes, size_t count) {
  return treadle_zip_fill(&writer->archive, bytes, count);
}

treadle_status treadle_dist_finish(treadle_dist_writer *writer) {
  if (writer->archive.zip)
    return treadle_fail(TREADLE_STATE, "%s: '%s' lacks %zu bytes", writer->archive.path,
                        writer->parts[writer->next - 1].key, writer->archive.left);
  return treadle_file_writer_commit(writer->file);
}

void treadle_dist_writer_sum(const treadle_dist_writer *writer, int64_t *bytes_p, uint64_t *sum_p) {
  treadle_file_writer_sum(writer->file, bytes_p, sum_p);
}

void treadle_dist_writer_destroy(treadle_dist_writer *writer) {
  if (!writer) return;
  treadle_zip_destroy(writer->archive.zip);
  treadle_file_writer_destroy(writer->file);
  treadle_arena_release(&writer->arena);
  treadle_free(writer);
}

/* ---- Metadata ---------------------------------------------------------------------------------- */

static treadle_status measure_part(const char *what, const treadle_dist_part *part, int64_t *bytes_p) {
  treadle_status status;
  treadle_zip_writer *zip = NULL;
  size_t bytes;
  TRY(treadle_zip_create_in(what, NULL, 0, &zip));
  TRY(begin_part(zip, what, part, &bytes));
  TRY(treadle_zip_skip(zip, bytes));
  TRY(end_part(zip));
  *bytes_p = treadle_zip_bytes(zip);
out:
  treadle_zip_destroy(zip);
  return status;
}

static const char METADATA[] = "torch.distributed.checkpoint.metadata";

/* An object without arguments; its state follows as a dict, which end_object() ends. */
static void begin_object(treadle_pickle *pickle, const char *module, const char *name) {
  treadle_pickle_global(pickle, module, name);
  treadle_pickle_op(pickle, ')');
  treadle_pickle_op(pickle, (char)0x81); /* of the class, without __init__ */
  treadle_pickle_op(pickle, '}');
  treadle_pickle_op(pickle, '(');
}

static void end_object(treadle_pickle *pickle) {
  treadle_pickle_op(pickle, 'u');
  treadle_pickle_op(pickle, 'b');
}

static void begin_dict(treadle_pickle *pickle, const char *name) {
  treadle_pickle_text(pickle, name);
  treadle_pickle_op(pickle, '}');
  treadle_pickle_op(pickle, '(');
}

/* torch.Size((1, 2)) under a name. */
static void add_size(treadle_pickle *pickle, const char *name, const int64_t *numbers, int count) {
  treadle_pickle_text(pickle, name);
  treadle_pickle_global(pickle, "torch", "Size");
  treadle_pickle_op(pickle, '(');
  for (int i = 0; i < count; i++) treadle_pickle_int(pickle, numbers[i]);
  treadle_pickle_op(pickle, 't');
  treadle_pickle_op(pickle, (char)0x85); /* the one argument */
  treadle_pickle_op(pickle, 'R');
}

/* TensorProperties: (dtype, layout, needs a gradient, memory format, is pinned) */
static void add_properties(treadle_pickle *pickle, const treadle_torch_type *type) {
  treadle_pickle_text(pickle, "properties");
  treadle_pickle_global(pickle, METADATA, "TensorProperties");
  treadle_pickle_op(pickle, ')');
  treadle_pickle_op(pickle, (char)0x81);
  treadle_pickle_op(pickle, '(');
  treadle_pickle_global(pickle, "torch", type->name);
  treadle_pickle_global(pickle, "torch.serialization", "_get_layout");
  treadle_pickle_text(pickle, "torch.strided");
  treadle_pickle_op(pickle, (char)0x85);
  treadle_pickle_op(pickle, 'R');
  treadle_pickle_op(pickle, (char)0x89);
  treadle_pickle_global(pickle, METADATA, "_MEM_FORMAT_ENCODING");
  treadle_pickle_int(pickle, 0); /* contiguous */
  treadle_pickle_op(pickle, (char)0x85);
  treadle_pickle_op(pickle, 'R');
  treadle_pickle_op(pickle, (char)0x89);
  treadle_pickle_op(pickle, 't');
  treadle_pickle_op(pickle, 'b');
}

/* One after another, over the borders of files. */
typedef struct part_reader {
  const treadle_dist_written *files;
  int32_t count, file, part;
} part_reader;

static const treadle_dist_part *next_of(part_reader *reader) {
  while (reader->file < reader->count && reader->part == reader->files[reader->file].count)
    reader->file++, reader->part = 0;
  return reader->file < reader->count ? &reader->files[reader->file].parts[reader->part++] : NULL;
}

/* {KEY: TensorStorageMetadata(properties, size, chunks)} */
static treadle_status add_tensors(treadle_pickle *pickle, const char *what, part_reader reader) {
  const treadle_dist_part *before = NULL, *part;
  for (; (part = next_of(&reader)); before = part) {
    if (!before || strcmp(before->key, part->key) != 0) {
      const treadle_torch_type *type =
          treadle_torch_type_of_safetensors(treadle_dtype_safetensors(part->dtype));
      if (!type) return treadle_fail(TREADLE_REFUSED, "%s: torch has no type for '%s'", what, part->key);
      if (before) {
        treadle_pickle_op(pickle, 'e');
        end_object(pickle);
      }
      treadle_pickle_text(pickle, part->key);
      begin_object(pickle, METADATA, "TensorStorageMetadata");
      add_properties(pickle, type);
      add_size(pickle, "size", part->shape, part->ndim);
      treadle_pickle_text(pickle, "chunks");
      treadle_pickle_op(pickle, ']');
      treadle_pickle_op(pickle, '(');
    }
    begin_object(pickle, METADATA, "ChunkStorageMetadata");
    add_size(pickle, "offsets", part->offset, part->ndim);
    add_size(pickle, "sizes", part->size, part->ndim);
    end_object(pickle);
  }
  if (before) {
    treadle_pickle_op(pickle, 'e');
    end_object(pickle);
  }
  return TREADLE_OK;
}

/* {KEY: (KEY,)}: nothing was flattened. */
static void add_planner_data(treadle_pickle *pickle, part_reader reader) {
  const treadle_dist_part *before = NULL, *part;
  for (; (part = next_of(&reader)); before = part) {
    if (before && strcmp(before->key, part->key) == 0) continue;
    treadle_pickle_text(pickle, part->key);
    treadle_pickle_text(pickle, part->key);
    treadle_pickle_op(pickle, (char)0x85);
  }
}

/* {MetadataIndex(fqn, offset, index): _StorageInfo(relative_path, offset, length)} */
static treadle_status add_places(treadle_pickle *pickle, const char *what,
                                 const treadle_dist_written *files, int32_t count) {
  treadle_status status = TREADLE_OK;
  const treadle_dist_part *before = NULL;
  int64_t index = 0;
  for (int32_t f = 0; f < count; f++) {
    int64_t at = 0, length;
    for (int32_t i = 0; i < files[f].count; i++, at += length, before = &files[f].parts[i - 1]) {
      const treadle_dist_part *part = &files[f].parts[i];
      TRY(measure_part(what, part, &length));
      index = before && strcmp(before->key, part->key) == 0 ? index + 1 : 0;
      begin_object(pickle, METADATA, "MetadataIndex");
      treadle_pickle_text(pickle, "fqn");
      treadle_pickle_text(pickle, part->key);
      add_size(pickle, "offset", part->offset, part->ndim);
      treadle_pickle_text(pickle, "index");
      treadle_pickle_int(pickle, index);
      end_object(pickle);
      begin_object(pickle, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
      treadle_pickle_text(pickle, "relative_path");
      treadle_pickle_text(pickle, files[f].path);
      treadle_pickle_text(pickle, "offset");
      treadle_pickle_int(pickle, at);
      treadle_pickle_text(pickle, "length");
      treadle_pickle_int(pickle, length);
      end_object(pickle);
    }
  }
out:
  return status;
}

treadle_status treadle_dist_metadata_make(const char *what, const treadle_dist_written *files,
                                          int32_t count, treadle_pickle *pickle) {
  treadle_status status;
  const part_reader reader = {.files = files, .count = count};
  treadle_pickle_op(pickle, (char)0x80);
  treadle_pickle_op(pickle, 2); /* the protocol */
  begin_object(pickle, METADATA, "Metadata");
  begin_dict(pickle, "state_dict_metadata");
  TRY(add_tensors(pickle, what, reader));
  treadle_pickle_op(pickle, 'u');
  begin_dict(pickle, "planner_data");
  add_planner_data(pickle, reader);
  treadle_pickle_op(pickle, 'u');
  begin_dict(pickle, "storage_data");
  TRY(add_places(pickle, what, files, count));
  treadle_pickle_op(pickle, 'u');
  end_object(pickle);
  treadle_pickle_op(pickle, '.');
  if (pickle->failed) status = treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for it", what);
out:
  return status;
}
