#include "run/growing.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/file_look.h"
#include "io/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const size_t LINES_MOST = (size_t)1 << 32; /* bytes of a file */

static treadle_status system_says(const char *path, const char *verb) {
  return treadle_fail(TREADLE_SYSTEM, "%s: cannot %s: %s", path, verb, strerror(errno));
}

treadle_status treadle_growing_append(treadle_growing *file, treadle_builder *text) {
  struct stat before;
  if (text->failed) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a line", file->path);
  if (fstat(file->fd, &before) != 0) return system_says(file->path, "be looked at");
  for (size_t done = 0; done < text->length;) {
    ssize_t put = write(file->fd, text->text + done, text->length - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) {
      treadle_status status = system_says(file->path, "write");
      if (ftruncate(file->fd, before.st_size) != 0)
        return treadle_fail(TREADLE_SYSTEM, "%s: cannot write, nor take back a part of a line: %s",
                            file->path, strerror(errno));
      return status;
    }
    done += (size_t)put;
  }
  return TREADLE_OK;
}

static treadle_status step_of(const char *path, int64_t number, const char *line, size_t bytes,
                              int64_t *step_p) {
  const treadle_json_source source = {
      .what = path, .text = line, .count = bytes, .line = number, .zeros = true};
  json_t *root = NULL;
  treadle_status status = treadle_json_read(&source, &root);
  json_t *step = json_object_get(root, "step");
  if (!status && !json_is_integer(step))
    status = treadle_fail(TREADLE_REFUSED, "%s, line %lld: is not an object with a whole number \"step\"",
                          path, (long long)number);
  *step_p = json_integer_value(step);
  json_decref(root);
  return status;
}

/* A part of an object is none. The line may be any value: it is read as that of a list. */
static bool is_json(const char *line, size_t bytes) {
  json_t *root = NULL;
  char *list = treadle_alloc_array(bytes + 2, 1);
  if (!list) return true; /* and is refused by its line */
  list[0] = '[';
  memcpy(list + 1, line, bytes);
  list[bytes + 1] = ']';
  const treadle_json_source source = {.what = "a line", .text = list, .count = bytes + 2};
  treadle_status status = treadle_json_read(&source, &root);
  json_decref(root);
  treadle_free(list);
  return !status;
}

/* Where the first line of a later step, or a last one that is not whole, begins: one without an end, or, as the disk
 * may have had only a part of it when the machine stopped, one that is not JSON. */
static treadle_status find_end(treadle_growing *file, int64_t step, size_t *end_p) {
  char *text = NULL;
  size_t bytes;
  treadle_status status;
  *end_p = 0;
  TRY(treadle_file_read(file->path, LINES_MOST, &text, &bytes));
  for (int64_t number = 1; *end_p < bytes; number++) {
    const char *line = text + *end_p, *close = memchr(line, '\n', bytes - *end_p);
    int64_t found;
    if (!close) {
      file->torn = number;
      break;
    }
    if (close + 1 == text + bytes && !is_json(line, (size_t)(close - line))) file->torn = number;
    if (file->torn) break;
    TRY(step_of(file->path, number, line, (size_t)(close - line), &found));
    if (found > step) break;
    *end_p += (size_t)(close - line) + 1;
  }
out:
  treadle_free(text);
  return status;
}

void treadle_growing_note(const treadle_growing *file, char *text, size_t room) {
  if (room) text[0] = 0;
  if (file->torn)
    snprintf(text, room, "%s: its last line, %lld, was not whole, as after a kill: it is cut off",
             file->path, (long long)file->torn);
}

treadle_status treadle_growing_open(treadle_growing *file, const char *folder, const char *name,
                                    int64_t step) {
  treadle_status status;
  size_t end = 0;
  file->fd = -1;
  file->torn = 0;
  if (snprintf(file->path, sizeof file->path, "%s/%s", folder, name) >= (int)sizeof file->path)
    REFUSE("%s: the path is too long", folder);
  TRY(treadle_file_check_plain(file->path));
  file->fd = open(file->path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (file->fd < 0) return system_says(file->path, "open");
  if (step >= 0) TRY(find_end(file, step, &end));
  if (ftruncate(file->fd, (off_t)end) != 0) return system_says(file->path, "cut off");
out:
  return status;
}
