/* Handles in files: `treadle switch --handle-file FILE` writes FILE.RANK, and `treadle attach` reads one. */
#ifndef TREADLE_CLI_HANDLE_FILE_H
#define TREADLE_CLI_HANDLE_FILE_H

#include "base/status.h"
#include "treadle_attach.h"

/* Can the file of that rank be written? */
treadle_status treadle_handle_file_check(const char *path, int rank);
/* The handle of its infer parameters; the file is written whole or not at all. */
treadle_status treadle_handle_file_write(const char *path, int rank, treadle_switch *sw);
/* handle [TREADLE_HANDLE_BYTES] */
treadle_status treadle_handle_file_read(const char *path, char *handle, size_t *bytes_p);

#endif
