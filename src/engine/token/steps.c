/* Steps are counted as they are read, through all depths: nothing is read beyond the limits. */
#include "token/steps.h"

#include "base/json.h"
#include "token/fields.h"

#include <string.h>

enum { DEEPEST = 16, MOST_STEPS = 256 };

static treadle_status read_steps(const json_t *json, int depth, const treadle_step_reader *reader,
                                 int *count) {
  treadle_status status;
  const char *type;
  const json_t *list;
  if (!json || json_is_null(json)) return TREADLE_OK;
  if (depth > DEEPEST) REFUSE("sequences are nested more than %d deep", DEEPEST);
  if (!treadle_json_is_object(json)) REFUSE("is not an object");
  TRY(treadle_field_needed_text(json, "type", &type));
  if (strcmp(type, "Sequence") != 0) {
    if (*count == MOST_STEPS) REFUSE("there are more than %d steps", MOST_STEPS);
    ++*count;
    return reader->read_step(json, type, reader->steps);
  }
  TRY(treadle_field_list(json, reader->list, &list));
  if (!list) REFUSE("%s is missing", reader->list);
  for (size_t i = 0; i < json_array_size(list); i++) {
    status = read_steps(json_array_get(list, i), depth + 1, reader, count);
    if (status) return treadle_fail_in(status, "%s[%zu]: ", reader->list, i);
  }
out:
  return status;
}

treadle_status treadle_steps_read(const json_t *json, const treadle_step_reader *reader) {
  int count = 0;
  return read_steps(json, 0, reader, &count);
}
