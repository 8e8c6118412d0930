/* Files that are not JSON lines, where JSON lines are wanted. */
#ifndef TREADLE_BASE_FOREIGN_H
#define TREADLE_BASE_FOREIGN_H

#include "base/status.h"

enum { TREADLE_FOREIGN_BYTES = 16 };

/* Do the first bytes of a file (up to TREADLE_FOREIGN_BYTES of them) tell that it is a table or an archive of another format, or no text at all?
 * Then TREADLE_REFUSED, with what it is and the line of a shell that makes JSON lines of it. Its name tells nothing: others name files. */
treadle_status treadle_foreign_check(const char *path, const char *bytes, size_t count);

#endif
