/* Memory, steps and output of a rendering. Filling memory costs time, so that bytes are counted as steps as well: a template that
 * doubles a text again and again ends as soon as one that loops. */
#include "jinja/jinja_machine.h"

#include "jinja/jinja_text.h"

#include <inttypes.h>
#include <string.h>

enum {
  BYTES_OF_A_STEP = 64,
  SCANNED_BYTES_OF_A_STEP = 16,
  ASCII_OF_A_STEP = 2,
  STEPS_OF_A_CHARACTER = 2, /* beyond ASCII */
  MAX_DEPTH = 1200
};

treadle_status treadle_jinja_step(treadle_jinja_machine *m, size_t steps) {
  if ((uint64_t)m->steps_left >= steps) {
    m->steps_left -= (int64_t)steps;
    return TREADLE_OK;
  }
  m->steps_left = 0;
  REFUSE("the template takes more than %" PRId64 " steps", m->options->steps);
}

treadle_status treadle_jinja_work(treadle_jinja_machine *m, size_t bytes) {
  return treadle_jinja_step(m, bytes / BYTES_OF_A_STEP);
}

treadle_status treadle_jinja_scan(treadle_jinja_machine *m, size_t bytes) {
  return treadle_jinja_step(m, bytes / SCANNED_BYTES_OF_A_STEP + 1);
}

treadle_status treadle_jinja_look(treadle_jinja_machine *m, const treadle_jinja_text *text) {
  size_t tables = text->points < text->length ? STEPS_OF_A_CHARACTER * text->points : 0;
  return treadle_jinja_step(m, text->length / ASCII_OF_A_STEP + tables + 1);
}

treadle_status treadle_jinja_enter(treadle_jinja_machine *m) {
  if (m->depth >= MAX_DEPTH) REFUSE("nested, or called by itself, more than %d levels deep", MAX_DEPTH);
  m->depth++;
  return TREADLE_OK;
}

treadle_status treadle_jinja_alloc(treadle_jinja_machine *m, size_t count, size_t each_bytes,
                                   void *memory_p) {
  void **at = memory_p;
  if (count > (uint64_t)m->memory_left / each_bytes)
    REFUSE("the template takes more than %" PRId64 " bytes of memory", m->options->memory);
  m->memory_left -= (int64_t)(count * each_bytes);
  PASS(treadle_jinja_work(m, count * each_bytes));
  *at = treadle_arena_alloc(&m->arena, count * each_bytes + !count);
  return *at ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory to render a template");
}

treadle_status treadle_jinja_write(treadle_jinja_machine *m, treadle_jinja_writer *w, const char *bytes,
                                   size_t length) {
  if (w == m->page && length > (uint64_t)m->options->output - w->length)
    REFUSE("the template writes more than %" PRId64 " bytes", m->options->output);
  if (length > w->capacity - w->length) {
    size_t capacity = w->capacity * 2 > w->length + length ? w->capacity * 2 : w->length + length + 64;
    char *more;
    PASS(treadle_jinja_alloc(m, capacity, 1, &more));
    if (w->length) memcpy(more, w->bytes, w->length);
    w->bytes = more;
    w->capacity = capacity;
  }
  if (length) memcpy(w->bytes + w->length, bytes, length);
  w->length += length;
  return TREADLE_OK;
}

treadle_status treadle_jinja_write_plain(treadle_jinja_machine *m, treadle_jinja_writer *w,
                                         const char *text) {
  return treadle_jinja_write(m, w, text, strlen(text));
}

treadle_status treadle_jinja_write_code(treadle_jinja_machine *m, treadle_jinja_writer *w, uint32_t code) {
  char bytes[4];
  return treadle_jinja_write(m, w, bytes, treadle_utf8_encode(code, bytes));
}

treadle_status treadle_jinja_written(treadle_jinja_machine *m, const treadle_jinja_writer *w,
                                     treadle_jinja_value *value_p) {
  return treadle_jinja_share(m, w->bytes, w->length, value_p);
}
