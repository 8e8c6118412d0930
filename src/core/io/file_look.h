/* What stands at a path: for messages that say what is the matter. "Does it exist" has a third answer, that one may not or
 * cannot look (permissions, a name that is too long, a loop of links, a disk that fails), which is not a "no". */
#ifndef TREADLE_IO_FILE_LOOK_H
#define TREADLE_IO_FILE_LOOK_H

#include "base/status.h"

#include <stdint.h>

typedef enum treadle_file_type {
  TREADLE_FILE_NONE = 0, /* there is nothing of that name */
  TREADLE_FILE_PLAIN,
  TREADLE_FILE_FOLDER,
  TREADLE_FILE_OTHER /* a device, a pipe, a socket */
} treadle_file_type;

/* Links are followed; one that leads nowhere is TREADLE_REFUSED, since what it stands for is missing. What cannot be
 * looked at is TREADLE_SYSTEM. The message has the path and why. */
treadle_status treadle_file_look(const char *path, treadle_file_type *type_p);

/* Is what stands at `path`, if anything, a plain file? A link is not followed. Else TREADLE_REFUSED, with what it is. */
treadle_status treadle_file_check_plain(const char *path);

/* The rule of outputs that are folders: is what stands at `path`, if anything, a folder? A link at the end of the path
 * is not followed, whatever slashes come after it. Else TREADLE_REFUSED, with what it is. Folders on the way may be
 * links. */
treadle_status treadle_file_check_folder(const char *path);

/* May a file be written at `path`, to be asked before there is one? A new name or a plain file that may be replaced, in a
 * folder that may be written: else TREADLE_REFUSED, or TREADLE_SYSTEM where one cannot look. A link is not followed, since
 * replacing it would leave what it leads to as it was; a device, a pipe or a socket is not replaced. */
treadle_status treadle_file_may_write(const char *path);

/* treadle_foreign_check() of the first bytes of a plain file, before it is read as JSON lines, however large it is. What cannot be read is
 * left to who reads it. */
treadle_status treadle_file_check_lines(const char *path);

/* Is there room for this many bytes on the disk of a folder, and may a file be as long as the largest of them? Else
 * TREADLE_SYSTEM, with the numbers. */
treadle_status treadle_file_room(const char *folder, uint64_t bytes, uint64_t largest_file);

#endif
