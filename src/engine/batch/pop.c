/* Columns and meta that leave a batch for one of their own. */
#include "base/argument.h"
#include "base/utf8.h"
#include "batch/batch.h"

/* Of all meta that `made` has, it keeps `keys`. */
static treadle_status keep_meta(const treadle_batch *batch, const char *const *keys, size_t count,
                                treadle_batch *made) {
  treadle_status status = TREADLE_OK;
  treadle_batch_meta_release(made);
  for (size_t i = 0; i < count; i++) {
    if (!keys[i]) return treadle_refuse_null("treadle_batch_pop", "key");
    const char *json = treadle_batch_meta(batch, keys[i]);
    if (!json) REFUSE("the batch has no meta '%s'", treadle_text_shown(keys[i]));
    TRY(treadle_batch_set_meta(made, keys[i], json));
  }
out:
  return status;
}

treadle_status treadle_batch_pop(treadle_batch *batch, const char *const *names, size_t count,
                                 const char *const *keys, size_t key_count, treadle_batch **batch_p) {
  treadle_status status;
  treadle_batch *made = NULL;
  TREADLE_NEED(batch_p);
  *batch_p = NULL;
  TREADLE_NEED(batch);
  if (count) TREADLE_NEED(names);
  if (key_count) TREADLE_NEED(keys);
  TRY(treadle_batch_select(batch, names, count, &made));
  TRY(keep_meta(batch, keys, key_count, made));
  /* What follows cannot fail: all of it is there. */
  for (size_t i = 0; i < count; i++) (void)treadle_batch_remove(batch, names[i]);
  for (size_t i = 0; i < key_count; i++) (void)treadle_batch_set_meta(batch, keys[i], NULL);
  *batch_p = made;
  made = NULL;
out:
  treadle_batch_destroy(made);
  return status;
}
