/* RUN/trace.jsonl: lines of a step are collected, and appended with one write. */
#include "run/trace.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/json.h"
#include "run/growing.h"

#include <string.h>
#include <unistd.h>

struct treadle_trace_file {
  treadle_growing lines;
  treadle_builder earlier, text; /* of the step before, and of the newest: steps rise through the file */
  double kept;
  int64_t lost;
};

static const size_t FILE_MOST = (size_t)1 << 32; /* bytes, as of a growing file */
static const double SECONDS_MOST = 1e9;          /* a line that says more was written by somebody else */

/* Each line ends with a newline, and is an object, as the file was opened. Those of its last step have the latest end. */
static treadle_status find_kept(treadle_trace_file *f) {
  char *text = NULL;
  size_t bytes;
  int64_t last = -1;
  treadle_status status;
  TRY(treadle_file_read(f->lines.path, FILE_MOST, &text, &bytes));
  while (bytes) {
    size_t begin = bytes - 1;
    while (begin && text[begin - 1] != '\n') begin--;
    const treadle_json_source source = {
        .what = f->lines.path, .text = text + begin, .count = bytes - 1 - begin, .one_line = true};
    json_t *root = NULL;
    TRY(treadle_json_read(&source, &root));
    const int64_t step = json_integer_value(json_object_get(root, "step"));
    const double end = json_number_value(json_object_get(root, "end"));
    json_decref(root);
    if (last >= 0 && step != last) break;
    last = step;
    if (end > f->kept && end <= SECONDS_MOST) f->kept = end;
    bytes = begin;
  }
out:
  treadle_free(text);
  return status;
}

treadle_status treadle_trace_open(const char *folder, int64_t step, treadle_trace_file **file_p) {
  treadle_trace_file *f = treadle_alloc(sizeof *f);
  treadle_status status;
  *file_p = NULL;
  if (!f) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for trace.jsonl", folder);
  f->lines.fd = -1;
  TRY(treadle_growing_open(&f->lines, folder, "trace.jsonl", step));
  TRY(find_kept(f));
  *file_p = f;
  f = NULL;
out:
  treadle_trace_close(f);
  return status;
}

void treadle_trace_close(treadle_trace_file *f) {
  if (!f) return;
  if (f->lines.fd >= 0) close(f->lines.fd);
  treadle_builder_release(&f->earlier);
  treadle_builder_release(&f->text);
  treadle_free(f);
}

int64_t treadle_trace_lost(const treadle_trace_file *f) { return f->lost; }

double treadle_trace_kept(const treadle_trace_file *f) { return f->kept; }

void treadle_trace_note(const treadle_trace_file *f, char *text, size_t room) {
  treadle_growing_note(&f->lines, text, room);
}

static void add_text(treadle_builder *line, const char *key, const char *text) {
  treadle_builder_add(line, ",\"%s\":", key);
  treadle_json_add_text(line, text, strlen(text));
}

static void add_line(treadle_builder *line, const treadle_trace_call *c, int64_t step) {
  treadle_builder_add(line, "{\"rank\":%lld", (long long)c->rank);
  add_text(line, "role", c->role);
  add_text(line, "method", c->method);
  treadle_builder_add(line,
                      ",\"step\":%lld,\"start\":%.6f,\"end\":%.6f,\"bytes_before\":%llu,"
                      "\"bytes_after\":%llu}\n",
                      (long long)step, c->start, c->end, (unsigned long long)c->bytes_before,
                      (unsigned long long)c->bytes_after);
}

void treadle_trace_add(treadle_trace_file *f, const treadle_trace_part *part, int64_t step, double began) {
  f->lost += part->lost;
  for (size_t i = 0; i < part->count; i++) {
    const treadle_trace_call c = treadle_trace_at(part, i);
    const bool earlier = c.start / 2 + c.end / 2 < began;
    add_line(earlier ? &f->earlier : &f->text, &c, step - earlier);
  }
}

treadle_status treadle_trace_write(treadle_trace_file *f) {
  treadle_status status = TREADLE_OK;
  if (f->text.length) treadle_builder_add_bytes(&f->earlier, f->text.text, f->text.length);
  f->earlier.failed = f->earlier.failed || f->text.failed;
  if (f->earlier.length || f->earlier.failed) status = treadle_growing_append(&f->lines, &f->earlier);
  f->earlier.length = f->text.length = 0;
  return status;
}
