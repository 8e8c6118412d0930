/* The folder that a conversion writes: new or empty, or one that an unfinished run of the same conversion left behind.
 *
 * It is locked from before the first look to the end (io/folder_lock.h). While a conversion runs, the folder has a
 * journal, treadle-convert.json, which says of which inputs it is, and lists of what was written (records.h). Files
 * appear under their names when they are whole; what is whole and recorded is kept when a run is taken up, as long as
 * inputs and bytes are those of the journal and the lists. Where the inputs of the same conversion (IN, layouts) have
 * changed, it begins again. */
#ifndef TREADLE_CONVERT_FOLDER_H
#define TREADLE_CONVERT_FOLDER_H

#include "base/arena.h"
#include "base/status.h"
#include "convert/records.h"
#include "io/folder_lock.h"

#include <stdint.h>

#define TREADLE_JOURNAL_FILE "treadle-convert.json"

/* Begins with path, digest, in, from, to, rank and ranks. */
typedef struct treadle_out_folder {
  const char *path;
  uint64_t digest; /* of the inputs */
  const char *from, *to;
  uint64_t in; /* a hash of the input folder's real path */
  int rank, ranks;
  bool resumed; /* a journal of the same inputs was there */
  bool again;   /* one of the same conversion with other inputs */
  bool begun;
  treadle_folder_lock lock;
  treadle_records records; /* of a run that is taken up */
} treadle_out_folder;

/* Rank 0: locks the folder, which it makes where there is none, and looks: refused when it holds what is not this
 * conversion's. Until it begins, the release leaves everything as it was. */
treadle_status treadle_out_folder_look(treadle_out_folder *folder);
/* Rank 0: makes the journal, and removes what a killed writer left. */
treadle_status treadle_out_folder_begin(treadle_out_folder *folder);
/* The others, after that. */
treadle_status treadle_out_folder_join(treadle_out_folder *folder);

/* Makes the folders above a file of it. */
treadle_status treadle_out_folder_make(const treadle_out_folder *folder, const char *path);
/* A file is begun, a file is whole. */
treadle_status treadle_out_folder_note(const treadle_out_folder *folder, const treadle_record *record);
/* Is the file there as it was recorded? What is not is NULL, and to be made. Reads all of it. */
treadle_status treadle_out_folder_whole(const treadle_out_folder *folder, const char *path,
                                        const treadle_record **record_p);

/* The inputs have changed, or come to what cannot be written, so that what was written is worth nothing: removes it, and
 * sees to it that nobody takes it up. */
void treadle_out_folder_spoil(treadle_out_folder *folder);
/* Removes journal and lists: everything is there. */
treadle_status treadle_out_folder_finish(treadle_out_folder *folder);
void treadle_out_folder_release(treadle_out_folder *folder);

/* Refused by the system's word when `bytes` do not fit beside what the disk holds. */
treadle_status treadle_out_folder_room(const treadle_out_folder *folder, int64_t bytes);

#endif
