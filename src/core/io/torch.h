/* torch.save archives: read where they are mapped, written as a stream. No code in them is ever run.
 *
 * Format (torch/serialization.py and caffe2/serialize/inline_container.cc of PyTorch): a zip archive with
 * one folder of any name; in it data.pkl, a pickle in which a storage is the persistent id ('storage',
 * class, key, location, elements); data/KEY, the storage's bytes, stored; version; and byteorder since 2.1.
 * A tensor is torch._utils._rebuild_tensor_v2 (_v3 for types without a storage class, such as
 * float8_e4m3fn) over a storage, with an offset, a shape and strides in elements, maybe inside
 * _rebuild_parameter.
 *
 * Of the dict at the top, the entries that the caller names hold tensors by name: in them, everything
 * that is not a tensor is refused by name. Everything else is plain values, or calls that are counted and
 * left alone. Refused are big-endian archives, the formats before 1.6, storages that are packed or too
 * short, tensors that leave their storage or have more elements than it. */
#ifndef TREADLE_IO_TORCH_H
#define TREADLE_IO_TORCH_H

#include "io/pickle.h"

/* The entry of the archive that has a storage. */
typedef struct treadle_torch_entry {
  const char *name; /* "archive/data/0"; NULL where the archive's names are gone */
  const void *data;
  size_t bytes;
  uint32_t crc;
  bool summed; /* the archive says its CRC-32: crc */
} treadle_torch_entry;

typedef struct treadle_torch_tensor {
  const char *entry; /* the entry of the top dict that it is in, "model1" */
  const char *name;
  treadle_dtype dtype;    /* TREADLE_DTYPE_NONE for what is not moved (I64, ...) */
  const char *dtype_text; /* as safetensors calls it: "BF16" */
  int ndim;
  int64_t shape[8], strides[8]; /* strides in elements */
  int64_t elems;
  size_t bytes;     /* of elems elements */
  bool contiguous;  /* elements lie in order, without holes: data can be used as it is */
  const void *data; /* the first element, inside the mapping; of any alignment */
  treadle_torch_entry storage;
} treadle_torch_tensor;

typedef struct treadle_torch_options {
  const char
      *entry; /* "model": entries of this name, bare or with a number behind, hold tensors; NULL: none do */
  const char
      *skipped;   /* names in them that end so are skipped and counted: "_extra_state"; NULL: none are */
  bool check_crc; /* compare the CRC-32 of all storages; torch itself does not */
} treadle_torch_options;

typedef struct treadle_torch {
  treadle_torch_tensor *tensors; /* in the order of the file */
  int32_t count;
  int64_t skipped; /* values left out by options.skipped */
  int64_t opaque;  /* calls of classes and functions outside the tensors' entries, tensors not among them */
  const treadle_pickle_items
      *top; /* the pairs of the dict at the top: treadle_pairs_get(top, "iteration") */
  treadle_arena arena;
  const void *image; /* the mapping, when opened by path */
  size_t bytes;
} treadle_torch;

/* Maps and reads a file. Everything in *torch_p lives until it is closed. */
treadle_status treadle_torch_open(const char *path, const treadle_torch_options *options,
                                  treadle_torch **torch_p);
/* The same for an image in memory, which stays the caller's and outlives *torch_p. */
treadle_status treadle_torch_parse(const char *what, const void *image, size_t bytes,
                                   const treadle_torch_options *options, treadle_torch **torch_p);
void treadle_torch_close(treadle_torch *torch);

/* An image whose top is one tensor, as in torch.distributed.checkpoint. What it takes beyond the tensor
 * lies in the arena. */
treadle_status treadle_torch_parse_tensor(const char *what, const void *image, size_t bytes,
                                          treadle_arena *arena, treadle_torch_tensor *tensor_p);

/* Writing: create, append the bytes of all tensors one after the other in pieces of any size, finish.
 * The file is at its path from finish on; destroy ends the writer and without finish leaves nothing.
 * What is written opens with torch.load(weights_only=True). */
typedef struct treadle_torch_extra { /* a number beside the tensors' entries */
  const char *name;
  bool is_real;
  int64_t integer;
  double real;
} treadle_torch_extra;

typedef struct treadle_torch_writer treadle_torch_writer;
/* Of the tensors, entry, name, dtype (or dtype_text), ndim and shape count. Those of one entry follow one
 * another. */
treadle_status treadle_torch_create(const char *path, const treadle_torch_tensor *tensors, int32_t count,
                                    const treadle_torch_extra *extras, int32_t extra_count,
                                    treadle_torch_writer **writer_p);
treadle_status treadle_torch_append(treadle_torch_writer *writer, const void *bytes, size_t count);
treadle_status treadle_torch_finish(treadle_torch_writer *writer);
/* After finish: treadle_file_writer_sum(). */
void treadle_torch_writer_sum(const treadle_torch_writer *writer, int64_t *bytes_p, uint64_t *sum_p);
void treadle_torch_writer_destroy(treadle_torch_writer *writer);

#endif
