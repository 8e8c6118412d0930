/* Whole folders: made under a temporary name, and there under their own when all is in them. */
#ifndef TREADLE_IO_FOLDER_H
#define TREADLE_IO_FOLDER_H

#include "base/arena.h"
#include "base/array.h"

typedef TREADLE_ARRAY(const char *) treadle_folder_names;

/* Makes a new folder beside `path`, which may not end in '/': PATH.PID-N.tmp. */
treadle_status treadle_folder_create_beside(const char *path, char *made, size_t room);
/* The folder `from`, with what is in it, reaches the disk and takes the name `to`, where there is nothing or an empty folder; the names reach the
 * disk as well. Files in it were synced by who wrote them. */
treadle_status treadle_folder_commit(const char *from, const char *to);
/* The same where `to` is a folder with files: both exchange their names, at once where the file system can. */
treadle_status treadle_folder_exchange(const char *from, const char *to);
/* What is listed in a folder reaches the disk. */
treadle_status treadle_folder_sync(const char *path);
/* Removes a folder and all in it; links in it are removed, not followed. Nothing there is fine. */
treadle_status treadle_folder_remove(const char *path);
/* The same after a failure, whose message stays: others may still write there. */
void treadle_folder_drop(const char *path);
/* Names in a folder but for "." and "..", in the arena, without order. `names` is the caller's to release. */
treadle_status treadle_folder_list(const char *path, treadle_arena *arena, treadle_folder_names *names);

/* "NAME.PID-N.tmp": what a writer of the file or folder NAME that was killed has left (treadle_folder_create_beside,
 * io/file_write.c). *stem_p: bytes of NAME. Only who owns the folder (folder_lock.h) knows that its writer is dead. */
bool treadle_folder_is_left_over(const char *name, size_t *stem_p);
/* Removes such files and folders, where `takes` says so of their NAME. */
treadle_status treadle_folder_remove_left_over(const char *folder, bool (*takes)(const char *stem));

/* Of a model's folder: is this one of the files that stand beside weights (config.json, tokenizer, ...)? No weights, no index, nothing
 * hidden, nothing of treadle's own. */
bool treadle_folder_is_companion(const char *name);
/* These files of a model's folder, and the templates in its folder of more chat templates ("additional_chat_templates/NAME.jinja"), as paths
 * in it, in the arena. `names` is the caller's to release. */
#define TREADLE_TEMPLATES_FOLDER "additional_chat_templates"
treadle_status treadle_folder_list_companions(const char *path, treadle_arena *arena,
                                              treadle_folder_names *names);
/* Refuses a folder in which one of these cannot be copied: a link that leads nowhere (which the list passes over, so that it would be missing in the
 * copy), a file that may not be read, or with more than TREADLE_COMPANION_MOST bytes. To be asked before the work begins. */
enum { TREADLE_COMPANION_MOST = 1 << 30 };
treadle_status treadle_folder_check_companions(const char *path);
/* The names of those templates, without .jinja, by the alphabet; none where there is no such folder. */
treadle_status treadle_folder_list_templates(const char *path, treadle_arena *arena,
                                             treadle_folder_names *names);

#endif
