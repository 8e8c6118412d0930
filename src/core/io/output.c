/* Results that a caller writes: treadle_tools.h. */
#include "base/argument.h"
#include "io/file.h"
#include "io/file_look.h"
#include "treadle_tools.h"

/* Asks as the system will be asked, with a file that is taken back. */
treadle_status treadle_output_ask(const char *path) {
  treadle_file_writer *writer = NULL;
  treadle_status status;
  TREADLE_NEED(path);
  TRY(treadle_file_may_write(path));
  TRY(treadle_file_writer_create(path, &writer));
out:
  treadle_file_writer_destroy(writer);
  return status;
}

treadle_status treadle_output_write(const char *path, const void *bytes, size_t count) {
  TREADLE_NEED(path);
  if (count && !bytes) return treadle_refuse_null(__func__, "bytes");
  return treadle_file_write(path, bytes, count);
}
