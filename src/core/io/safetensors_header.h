/* What reading and writing a safetensors file share. */
#ifndef TREADLE_IO_SAFETENSORS_HEADER_H
#define TREADLE_IO_SAFETENSORS_HEADER_H

#include "base/text.h"
#include "io/safetensors.h"

enum {
  TREADLE_HEADER_LENGTH_BYTES = 8,      /* in front of the header */
  TREADLE_SHAPE_TEXT_BYTES = 8 * 21 + 3 /* room for the text of any shape */
};

/* Bits of an element by the format's name ("BF16"); 0 when the format has no such type. */
int treadle_safetensors_bits(const char *dtype_text);

/* Sets elems and bytes from shape and dtype_text. ndim is in [0, 8] and no number is negative. */
treadle_status treadle_safetensors_measure(const char *what, treadle_stored *tensor);

/* "[2,3]", into buffer. */
const char *treadle_safetensors_shape_text(const treadle_stored *tensor, char *buffer, size_t bytes);

/* The header of tensors in the order given, its length in front, spaces behind up to a multiple of 8. */
treadle_status treadle_safetensors_make_header(const char *path, const treadle_stored *order, int32_t count,
                                               treadle_builder *header, size_t *data_bytes_p);

/* Checks the caller's struct of a tensor to be written, and sets what follows from it: dtype_text, elems, bytes. */
treadle_status treadle_safetensors_settle(const char *path, treadle_stored *tensor);

/* Checks a header; its file is not looked at. The tensors lie in the arena, sorted by name; their data is NULL where
 * `data` is. */
treadle_status treadle_safetensors_read_header(const char *what, const treadle_header *header,
                                               const unsigned char *data, treadle_arena *arena,
                                               treadle_stored **tensors_p, int32_t *count_p);

#endif
