/* No list of keys: families call it attention_dropout, hidden_dropout, resid_pdrop. That of a classifier's head is none of a language model. */
#include "run/dropout.h"

#include "base/text.h"
#include "family/family.h"

#include <jansson.h>
#include <string.h>

static bool is_dropout(const char *key) {
  return (strstr(key, "dropout") || strstr(key, "pdrop")) && !treadle_text_starts(key, "classifier_") &&
         !treadle_text_starts(key, "summary_");
}

static void list(json_t *config, treadle_builder *keys) {
  const char *key;
  json_t *value;
  json_object_foreach(config, key, value) {
    if (is_dropout(key) && json_number_value(value) > 0)
      treadle_builder_add(keys, "%s%.60s is %g", keys->text ? ", " : "", key, json_number_value(value));
  }
}

treadle_status treadle_train_tell_dropout(const treadle_model *model,
                                          void (*tell)(void *context, const char *line), void *context) {
  const char *part = model->family->config; /* the object of a language model that is a part of another */
  treadle_builder keys = {0}, line = {0};
  list(model->config, &keys);
  if (part) list(json_object_get(model->config, part), &keys);
  if (keys.text)
    treadle_builder_add(&line, "%s: %s, and treadle trains without dropout", model->path, keys.text);
  bool failed = keys.failed || line.failed;
  if (!failed && line.text && tell) tell(context, line.text);
  treadle_builder_release(&keys);
  treadle_builder_release(&line);
  return failed ? treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a note", model->path) : TREADLE_OK;
}
