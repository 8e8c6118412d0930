/* The folder of a run, which one run owns at a time, from before it looks for checkpoints to its end
 * (io/folder_lock.h). */
#ifndef TREADLE_RUN_RUN_FOLDER_H
#define TREADLE_RUN_RUN_FOLDER_H

#include "io/folder_lock.h"

/* Takes it; makes it, and the folders above it, where they are missing. Removes what dead owners have left. Refused: another run has
 * it; something that is not a plain file, or no folder, has a name at which the run will write. For one rank. */
treadle_status treadle_run_folder_take(const char *run, treadle_folder_lock *lock);
/* The same of a folder of files STEP.jsonl. */
treadle_status treadle_run_lines_take(const char *folder, treadle_folder_lock *lock);

#endif
