#include "cli/sample_stream.h"

#include "base/alloc.h"
#include "base/utf8.h"

#include <errno.h>
#include <string.h>

/* As messages show it, but for line ends and tabs. */
static void show(const char *text, size_t bytes) {
  for (size_t at = 0; at < bytes;) {
    uint32_t code = 0;
    int length = treadle_utf8_read(text + at, &code);
    bool plain = length > 0 && (treadle_utf8_is_plain(code) || code == '\n' || code == '\t');
    if (plain)
      fwrite(text + at, 1, (size_t)length, stdout);
    else
      printf("\\x%02x", (unsigned)(unsigned char)text[at]);
    at += plain ? (size_t)length : 1;
  }
}

static treadle_status print(const treadle_sample_stream *p, const char *text, size_t bytes) {
  if (p->shows)
    show(text, bytes);
  else
    fwrite(text, 1, bytes, stdout);
  if (fflush(stdout) == 0 && !ferror(stdout)) return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "the text cannot be written: %s", strerror(errno));
}

static treadle_status make_room(treadle_sample_stream *p, int64_t samples) {
  if (samples <= p->room) return TREADLE_OK;
  int64_t room = samples * 2;
  treadle_builder *more = treadle_realloc(p->waiting, (size_t)room * sizeof *more);
  if (!more)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the texts of %lld samples", (long long)room);
  memset(more + p->room, 0, (size_t)(room - p->room) * sizeof *more);
  p->waiting = more;
  p->room = room;
  return TREADLE_OK;
}

treadle_status treadle_sample_stream_put(treadle_sample_stream *p, int64_t sample, const char *text,
                                         size_t bytes) {
  treadle_status status;
  if (!bytes) return TREADLE_OK;
  if (sample == p->sample) return print(p, text, bytes);
  TRY(make_room(p, sample + 1));
  treadle_builder_add_bytes(&p->waiting[sample], text, bytes);
  if (p->waiting[sample].failed) status = treadle_fail(TREADLE_NO_MEMORY, "no memory for a text");
out:
  return status;
}

treadle_status treadle_sample_stream_next(treadle_sample_stream *p) {
  treadle_status status;
  TRY(print(p, "\n", 1));
  p->sample++;
  if (p->sample >= p->room) goto out;
  treadle_builder *next = &p->waiting[p->sample];
  if (next->length) TRY(print(p, next->text, next->length));
  treadle_builder_release(next);
out:
  return status;
}

void treadle_sample_stream_release(treadle_sample_stream *p) {
  for (int64_t i = 0; i < p->room; i++) treadle_builder_release(&p->waiting[i]);
  treadle_free(p->waiting);
}
