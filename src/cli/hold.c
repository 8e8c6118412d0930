/* Gradients and optimizer state that the command holds. */
#include "cli/hold.h"

#include "base/dtype.h"
#include "base/hash.h"
#include "treadle_testing.h"

#include <string.h>

enum { GRADS_EACH = 4, OPTIMIZER_EACH = 12 };

/* Is `word` the next of the list at *text_p? Steps over it then. */
static bool take_word(const char **text_p, const char *word) {
  size_t length = strlen(word);
  const char *text = *text_p;
  if (strncmp(text, word, length) != 0 || (text[length] && text[length] != ',')) return false;
  *text_p = text[length] ? text + length + 1 : text + length;
  return true;
}

treadle_status treadle_hold_parse(const char *text, treadle_switch_options *options) {
  const char *at = text;
  options->offload_train_param = options->offload_train_grad = options->offload_train_optimizer =
      TREADLE_OFF;
  if (strcmp(text, "none") == 0) return TREADLE_OK;
  for (bool more = true; more;) {
    treadle_choice *flag = take_word(&at, "params")      ? &options->offload_train_param
                           : take_word(&at, "optimizer") ? &options->offload_train_optimizer
                                                         : NULL;
    bool keeps = !flag && take_word(&at, "grads=keep");
    if (keeps || (!flag && take_word(&at, "grads"))) flag = &options->offload_train_grad;
    if (!flag)
      return treadle_fail(
          TREADLE_REFUSED,
          "--offload is '%s', and must be none or a list of params, grads (or grads=keep) and optimizer",
          text);
    if (*flag == TREADLE_ON)
      return treadle_fail(TREADLE_REFUSED, "--offload is '%s', which names one of them twice", text);
    *flag = TREADLE_ON;
    options->keep_grads = options->keep_grads || keeps;
    more = *at || at[-1] == ',';
  }
  return TREADLE_OK;
}

void treadle_hold_size(const treadle_layout *train, int64_t rank, treadle_switch_options *options) {
  size_t elems = 0;
  for (int32_t i = 0; i < treadle_layout_storage_count(train, rank); i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    if (treadle_layout_storage(train, rank, i, &info) == TREADLE_OK)
      elems += info.bytes / treadle_dtype_bytes(info.dtype);
  }
  options->grads_bytes = elems * GRADS_EACH;
  options->optimizer_bytes = elems * OPTIMIZER_EACH;
}

static uint64_t word_at(int64_t rank, treadle_class which, size_t i) {
  return treadle_mix64((uint64_t)rank << 40 ^ (uint64_t)which << 36 ^ i);
}

enum { WORDS = 1 << 13 }; /* that are made or read at once */

treadle_status treadle_hold_fill(treadle_switch *sw, int64_t rank) {
  treadle_status status = TREADLE_OK;
  uint64_t words[WORDS];
  for (treadle_class c = TREADLE_GRADS; c <= TREADLE_OPTIMIZER; c++) {
    size_t bytes;
    (void)treadle_switch_window(sw, c, &bytes);
    for (size_t i = 0, count; i < bytes / 8; i += count) {
      count = bytes / 8 - i < WORDS ? bytes / 8 - i : WORDS;
      for (size_t k = 0; k < count; k++) words[k] = word_at(rank, c, i + k);
      TRY(treadle_switch_write(sw, c, i * 8, count * 8, words));
    }
  }
out:
  return status;
}

treadle_status treadle_hold_check(treadle_switch *sw, const treadle_switch_options *options, int64_t rank,
                                  const char *when) {
  treadle_status status = TREADLE_OK;
  uint64_t words[WORDS];
  for (treadle_class c = TREADLE_GRADS; c <= TREADLE_OPTIMIZER; c++) {
    size_t bytes;
    (void)treadle_switch_window(sw, c, &bytes);
    if (c == TREADLE_GRADS && options->offload_train_grad == TREADLE_ON && !options->keep_grads) continue;
    for (size_t i = 0, count; i < bytes / 8; i += count) {
      count = bytes / 8 - i < WORDS ? bytes / 8 - i : WORDS;
      TRY(treadle_switch_read(sw, c, i * 8, count * 8, words));
      for (size_t k = 0; k < count; k++)
        if (words[k] != word_at(rank, c, i + k))
          TRY(treadle_fail(TREADLE_DIFFERENT, "rank %lld: %s, byte %zu of the %s is not what it was",
                           (long long)rank, when, (i + k) * 8,
                           c == TREADLE_GRADS ? "gradients" : "optimizer state"));
    }
  }
out:
  return status;
}
