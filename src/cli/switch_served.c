/* treadle switch --update N --double on --check: while an update runs, the old version is read where the engine has it, and compared with
 * what it was. What was read after the engine was told to let go does not count. */
#include "cli/switch_job.h"

#include <stdlib.h>
#include <string.h>

enum { AT_ONCE = 64 << 10 }; /* bytes */

/* Byte `at` and some more; false where the engine has let go meanwhile. */
static bool look(treadle_job *job, const char *window, size_t at, size_t bytes, treadle_status *found_p) {
  char part[AT_ONCE];
  memcpy(part, window + at, bytes);
  if (!atomic_load(&job->serving)) return false;
  job->served_bytes += bytes;
  if (*found_p == TREADLE_OK && memcmp(part, (char *)job->served_copy + at, bytes) != 0)
    *found_p = treadle_fail(
        TREADLE_DIFFERENT,
        "while an update ran, bytes %zu to %zu of rank %d's infer window were not those of the "
        "old version",
        at, at + bytes - 1, job->session.rank);
  return true;
}

treadle_status treadle_job_update_served(treadle_job *job, treadle_status *found_p) {
  treadle_status status = TREADLE_OK;
  size_t bytes, at = 0;
  const char *window = treadle_switch_window(job->sw, TREADLE_INFER_PARAMS, &bytes);
  bool done = false;
  *found_p = TREADLE_OK;
  TRY(treadle_switch_read(job->sw, TREADLE_INFER_PARAMS, 0, bytes, job->served_copy));
  atomic_store(&job->serving, true);
  TRY(treadle_switch_start_update(job->sw));
  while (bytes > 0 && !done) {
    size_t part = bytes - at < AT_ONCE ? bytes - at : AT_ONCE;
    if (!look(job, window, at, part, found_p)) break;
    at = at + part < bytes ? at + part : 0;
    if (treadle_switch_test(job->sw, &done) != TREADLE_OK) break;
  }
  char message[1024] = "";
  if (*found_p != TREADLE_OK) snprintf(message, sizeof message, "%s", treadle_error_message());
  TRY(treadle_switch_wait(job->sw));
  if (*found_p != TREADLE_OK) treadle_fail(*found_p, "%s", message);
out:
  return status;
}
