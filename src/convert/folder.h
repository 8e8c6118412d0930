/* The folder that a conversion writes: new or empty, or one that a killed run of the same conversion left behind.
 *
 * While a conversion runs, the folder has a journal, treadle-convert.json, which says of which inputs it is: locked by
 * the process that writes. Files appear under their names when they are whole, so what is there is done. */
#ifndef TREADLE_CONVERT_FOLDER_H
#define TREADLE_CONVERT_FOLDER_H

#include "base/arena.h"
#include "base/status.h"

#include <stdint.h>

typedef struct treadle_out_folder {
  const char *path;
  uint64_t digest; /* of the inputs */
  const char *from, *to;
  bool resumed; /* a journal of the same inputs was there */
  int journal;  /* its descriptor, locked; -1: none */
} treadle_out_folder;

/* Looks, and changes nothing: refused when the folder holds what is not this conversion's. */
treadle_status treadle_out_folder_look(treadle_out_folder *folder);
/* Makes folder and journal, and removes what a killed writer left. */
treadle_status treadle_out_folder_begin(treadle_out_folder *folder);
/* Makes the folders above a file of it. */
treadle_status treadle_out_folder_make(const treadle_out_folder *folder, const char *path);
/* Removes the journal: everything is there. */
treadle_status treadle_out_folder_finish(treadle_out_folder *folder);
void treadle_out_folder_release(treadle_out_folder *folder);

/* Refused by the system's word when `bytes` do not fit beside what the disk holds. */
treadle_status treadle_out_folder_room(const treadle_out_folder *folder, int64_t bytes);

/* Copies the files of a folder that are no weights (config.json, tokenizer, ...) to another one, where they are not there
 * yet. The index of weights is not copied. */
treadle_status treadle_copy_companions(const char *from, const char *to);

#endif
