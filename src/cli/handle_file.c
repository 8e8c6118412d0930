/* Handles in files. */
#include "cli/handle_file.h"

#include "base/text.h"
#include "base/utf8.h"
#include "treadle_tools.h"

#include <errno.h>
#include <string.h>

/* FILE.RANK; the caller releases it. */
static treadle_status name_file(const char *path, int rank, treadle_builder *name) {
  treadle_builder_add(name, "%s.%d", path, rank);
  return name->failed ? treadle_fail(TREADLE_NO_MEMORY, "--handle-file: memory is out") : TREADLE_OK;
}

treadle_status treadle_handle_file_check(const char *path, int rank) {
  treadle_status status = TREADLE_OK;
  treadle_builder name = {0};
  TRY(name_file(path, rank, &name));
  status = treadle_output_ask(name.text);
  if (status) treadle_fail_in(status, "--handle-file: ");
out:
  treadle_builder_release(&name);
  return status;
}

treadle_status treadle_handle_file_write(const char *path, int rank, treadle_switch *sw) {
  treadle_status status = TREADLE_OK;
  treadle_builder name = {0};
  char handle[TREADLE_HANDLE_BYTES];
  size_t bytes;
  TRY(name_file(path, rank, &name));
  TRY(treadle_switch_handle(sw, TREADLE_INFER_PARAMS, handle, sizeof handle, &bytes));
  status = treadle_output_write(name.text, handle, bytes);
  if (status) treadle_fail_in(status, "--handle-file: ");
out:
  treadle_builder_release(&name);
  return status;
}

treadle_status treadle_handle_file_read(const char *path, char *handle, size_t *bytes_p) {
  FILE *file = fopen(path, "rbe");
  if (!file) return treadle_fail(TREADLE_REFUSED, "%s: %s", treadle_text_shown(path), strerror(errno));
  errno = 0;
  *bytes_p = fread(handle, 1, TREADLE_HANDLE_BYTES, file);
  bool bad = ferror(file), longer = !bad && fgetc(file) != EOF;
  int why = errno;
  fclose(file);
  if (bad) return treadle_fail(TREADLE_REFUSED, "%s: %s", treadle_text_shown(path), strerror(why));
  if (longer)
    return treadle_fail(TREADLE_REFUSED, "%s: no handle is longer than %d bytes", treadle_text_shown(path),
                        TREADLE_HANDLE_BYTES);
  return TREADLE_OK;
}
