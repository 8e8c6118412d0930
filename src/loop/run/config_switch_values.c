/* One value each of what a file says of a switch. */
#include "run/config_switch.h"

#include "base/utf8.h"

#include <string.h>

static treadle_switch_value *use(treadle_config_reader *reader, treadle_switch_key ask) {
  reader->asked->of[ask].is_used = true;
  return &reader->asked->of[ask];
}

const char *treadle_asked_head(const treadle_config_reader *reader, treadle_switch_key ask) {
  const treadle_switch_value *value = &reader->asked->of[ask];
  return value->path ? treadle_given_head_at(reader->config, value->path, value->line)
                     : reader->config->file;
}

bool treadle_asked_is_given(const treadle_config_reader *reader, treadle_switch_key ask) {
  return reader->asked->of[ask].text != NULL;
}

const char *treadle_asked_text(treadle_config_reader *reader, treadle_switch_key ask,
                               const char *otherwise) {
  const treadle_switch_value *value = use(reader, ask);
  return value->text ? value->text : otherwise;
}

treadle_status treadle_asked_size(treadle_config_reader *reader, treadle_switch_key ask, int64_t least,
                                  int64_t otherwise, int64_t *value_p) {
  enum { MOST = 1 << 20 }; /* of ranks, layers and MiB: products of a few stay whole */
  const treadle_switch_value *value = use(reader, ask);
  *value_p = otherwise;
  if (!value->text) return TREADLE_OK;
  if (!treadle_text_to_int64(value->text, value_p) || *value_p < least || *value_p > MOST)
    REFUSE("%s is '%s', and must be a whole number from %lld to %d", treadle_asked_head(reader, ask),
           treadle_text_shown(value->text), (long long)least, MOST);
  return TREADLE_OK;
}

treadle_status treadle_asked_truth(treadle_config_reader *reader, treadle_switch_key ask, bool otherwise,
                                   bool *truth_p) {
  const treadle_switch_value *value = use(reader, ask);
  *truth_p = otherwise;
  if (value->text && !treadle_yaml_truth(value->text, truth_p))
    REFUSE("%s is '%s', and must be true or false", treadle_asked_head(reader, ask),
           treadle_text_shown(value->text));
  return TREADLE_OK;
}

treadle_status treadle_asked_dtype(treadle_config_reader *reader, treadle_switch_key ask,
                                   const char **dtype_p) {
  static const struct {
    const char *word, *dtype;
  } words[] = {{"bf16", "bf16"},    {"bfloat16", "bf16"}, {"bf16-mixed", "bf16"}, {"fp16", "fp16"},
               {"float16", "fp16"}, {"half", "fp16"},     {"16", "fp16"},         {"16-mixed", "fp16"},
               {"fp32", "fp32"},    {"float32", "fp32"},  {"float", "fp32"},      {"32", "fp32"},
               {"32-true", "fp32"}, {"auto", NULL}};
  const treadle_switch_value *value = use(reader, ask);
  *dtype_p = NULL;
  if (!value->text) return TREADLE_OK;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcmp(value->text, words[i].word) == 0) {
      *dtype_p = words[i].dtype;
      return TREADLE_OK;
    }
  REFUSE("%s is '%s': a layout has bf16, fp16 or fp32", treadle_asked_head(reader, ask),
         treadle_text_shown(value->text));
}

treadle_status treadle_asked_word(treadle_config_reader *reader, treadle_switch_key ask,
                                  const char *const *words, const char *otherwise, const char **word_p) {
  const treadle_switch_value *value = use(reader, ask);
  char all[128] = "";
  *word_p = otherwise;
  for (int i = 0; words[i]; i++) {
    if (value->text && strcmp(value->text, words[i]) == 0) {
      *word_p = words[i];
      return TREADLE_OK;
    }
    snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s",
             !i             ? ""
             : words[i + 1] ? ", "
                            : " or ",
             words[i]);
  }
  if (!value->text) return TREADLE_OK;
  REFUSE("%s is '%s': of what it can be, treadle has layouts of %s", treadle_asked_head(reader, ask),
         treadle_text_shown(value->text), all);
}
