/* Decoders as JSON says them. */
#include "token/decoder.h"

#include "token/fields.h"
#include "token/normalizer.h"
#include "token/steps.h"

#include <string.h>

enum { MOST_STRIPPED = 1 << 20 };

static treadle_status read_metaspace(const json_t *json, treadle_decoder *step) {
  static const char *const schemes[] = {"always", "first", "never", NULL};
  enum { ALWAYS, FIRST, NEVER };
  treadle_status status;
  int scheme;
  bool prefix;
  TRY(treadle_field_character(json, "replacement", &step->code));
  if (!step->code) REFUSE("replacement is missing");
  TRY(treadle_field_word(json, "prepend_scheme", schemes, ALWAYS, &scheme));
  TRY(treadle_field_bool(json, "add_prefix_space", true, &prefix));
  step->drop_first = prefix && scheme != NEVER;
out:
  return status;
}

static treadle_status read_strip(const json_t *json, treadle_decoder *step) {
  treadle_status status;
  TRY(treadle_field_character(json, "content", &step->code));
  if (!step->code) REFUSE("content is missing");
  TRY(treadle_field_number(json, "start", 0, MOST_STRIPPED, &step->start));
  TRY(treadle_field_number(json, "stop", 0, MOST_STRIPPED, &step->stop));
out:
  return status;
}

static treadle_status read_replace(const json_t *json, treadle_decoder *step) {
  treadle_status status;
  const char *text;
  TRY(treadle_pattern_read(json_object_get(json, "pattern"), &step->pattern));
  TRY(treadle_field_needed_text(json, "content", &text));
  TRY(treadle_text_bytes_add(&step->content, text, strlen(text)));
out:
  return status;
}

static const struct {
  const char *name;
  treadle_decoder_type type;
  treadle_status (*read)(const json_t *json, treadle_decoder *step); /* NULL: there is nothing more */
} kinds[] = {
    {"ByteLevel", TREADLE_DECODE_BYTE_LEVEL, NULL},
    {"Metaspace", TREADLE_DECODE_METASPACE, read_metaspace},
    {"ByteFallback", TREADLE_DECODE_BYTE_FALLBACK, NULL},
    {"Fuse", TREADLE_DECODE_FUSE, NULL},
    {"Strip", TREADLE_DECODE_STRIP, read_strip},
    {"Replace", TREADLE_DECODE_REPLACE, read_replace},
};

static void release_step(treadle_decoder *step) {
  treadle_regex_destroy(step->pattern);
  treadle_array_release(&step->content);
}

static treadle_status read_step(const json_t *json, const char *type, void *of) {
  treadle_decoders *steps = of;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    if (strcmp(kinds[i].name, type) != 0) continue;
    treadle_decoder step = {.type = kinds[i].type};
    treadle_status status = kinds[i].read ? kinds[i].read(json, &step) : TREADLE_OK;
    if (!status) status = treadle_array_push(steps, step);
    if (status) release_step(&step);
    return status ? treadle_fail_in(status, "%s: ", type) : TREADLE_OK;
  }
  REFUSE("decoder '%s' is not known here", type);
}

/* An empty sequence joins texts without blanks, as Fuse does. */
treadle_status treadle_decoders_read(const json_t *json, treadle_decoders *steps) {
  const treadle_step_reader reader = {.list = "decoders", .read_step = read_step, .steps = steps};
  treadle_status status = treadle_steps_read(json, &reader);
  if (!status && json && !json_is_null(json) && steps->count == 0)
    status = treadle_decoders_add(steps, TREADLE_DECODE_FUSE);
  return status;
}

treadle_status treadle_decoders_add(treadle_decoders *steps, treadle_decoder_type type) {
  treadle_decoder step = {.type = type};
  return treadle_array_push(steps, step);
}

void treadle_decoders_release(treadle_decoders *steps) {
  for (size_t i = 0; i < steps->count; i++) release_step(&steps->items[i]);
  treadle_array_release(steps);
}
