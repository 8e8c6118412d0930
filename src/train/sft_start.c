/* Where a run goes on: which checkpoint, and whether the run is the one that saved it. */
#include "train/sft.h"

#include "io/json.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { RUN_MOST = 960 };

/* The folder that the caller named, without slashes at its end. */
static treadle_status take_start(treadle_sft *sft, const char *from) {
  size_t length = strlen(from);
  treadle_status status;
  while (length > 1 && from[length - 1] == '/') length--;
  if (length >= sizeof sft->from)
    return treadle_fail(TREADLE_REFUSED, "--resume: a path of %zu bytes; at most %zu", length,
                        sizeof sft->from - 1);
  snprintf(sft->from, sizeof sft->from, "%.*s", (int)length, from);
  if (treadle_train_checkpoint_step_of(sft->from) < 0)
    return treadle_fail(TREADLE_REFUSED, "--resume %s: it is no folder of a checkpoint, global_step_K",
                        from);
  TRY(treadle_train_checkpoint_check(sft->from));
out:
  return status;
}

treadle_status treadle_sft_find_start(treadle_sft *sft) {
  const char *run = sft->settings->save, *from = sft->options->from;
  int64_t step = -1;
  treadle_steps steps = {0};
  treadle_status status = TREADLE_OK;
  if (strlen(run) > RUN_MOST)
    return treadle_fail(TREADLE_REFUSED, "%s: a path of %zu bytes; at most %d",
                        TREADLE_SFT_PLACE(sft, save), strlen(run), RUN_MOST);
  if (sft->options->resume == TREADLE_RESUME_FROM) return take_start(sft, from ? from : "");
  TRY(treadle_train_checkpoint_list(run, &steps));
  if (sft->options->resume == TREADLE_RESUME_NEVER && steps.count)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: %s has checkpoints, the newest of step %lld: say --resume to go on from it, or "
                     "another folder",
                     TREADLE_SFT_PLACE(sft, save), run, (long long)steps.items[steps.count - 1]));
  if (sft->options->resume == TREADLE_RESUME_NEVER) goto out;
  TRY(treadle_train_checkpoint_find(run, &step));
  if (step >= 0) snprintf(sft->from, sizeof sft->from, "%s/global_step_%lld", run, (long long)step);
out:
  treadle_array_release(&steps);
  return status;
}

static treadle_status read_number(const json_t *root, const char *path, const char *name,
                                  int64_t *number_p) {
  const json_t *value = json_object_get(root, name);
  *number_p = json_integer_value(value);
  if (json_is_integer(value) && *number_p >= 0) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "%s: '%s' is no whole number from 0 on", path, name);
}

/* 16 digits. */
static treadle_status read_digest(const json_t *root, const char *path, const char *name,
                                  uint64_t *digest_p) {
  const char *text = json_string_value(json_object_get(root, name));
  if (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
    return treadle_fail(TREADLE_REFUSED, "%s: '%s' is no digest", path, name);
  *digest_p = strtoull(text, NULL, 16);
  return TREADLE_OK;
}

/* A number that data.json must have as the configuration has it. */
static treadle_status check_same(const json_t *root, const char *path, const char *name, int64_t now) {
  int64_t then;
  treadle_status status = read_number(root, path, name, &then);
  if (status || then == now) return status;
  return treadle_fail(TREADLE_REFUSED,
                      "%s: the checkpoint has %s %lld, this run %lld: its rows would come in another order",
                      path, name, (long long)then, (long long)now);
}

/* Checkpoints from before the key have none: their rows were shuffled. */
static treadle_status check_order(const treadle_sft *sft, const json_t *root, const char *path) {
  return json_object_get(root, "no_shuffle") || sft->settings->no_shuffle
             ? check_same(root, path, "no_shuffle", sft->settings->no_shuffle)
             : TREADLE_OK;
}

treadle_status treadle_sft_read_start(treadle_sft *sft) {
  const int64_t step = treadle_train_checkpoint_step_of(sft->from);
  char path[PATH_MAX + 16];
  json_t *root = NULL;
  uint64_t rows;
  treadle_status status;
  snprintf(path, sizeof path, "%s/data.json", sft->from);
  TRY(treadle_json_load(path, &root));
  TRY(check_same(root, path, "rows", (int64_t)sft->train_count));
  TRY(check_same(root, path, "seed", sft->settings->seed));
  TRY(check_order(sft, root, path));
  TRY(check_same(root, path, "global_batch_size", sft->settings->global_batch_size));
  TRY(read_digest(root, path, "rows_digest", &rows));
  if (rows != sft->rows_digest)
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "%s: the checkpoint has rows_digest %016llx, this run %016llx: the rows of %s, or their "
        "tokens, have changed",
        path, (unsigned long long)rows, (unsigned long long)sft->rows_digest,
        TREADLE_SFT_PLACE(sft, data_path)));
  TRY(read_number(root, path, "step", &sft->step));
  if (sft->step != step)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: 'step' is %lld in the checkpoint of step %lld", path,
                     (long long)sft->step, (long long)step));
  TRY(read_number(root, path, "optimizer_steps", &sft->optimizer_steps));
  TRY(read_digest(root, path, "losses_digest", &sft->losses_digest));
  sft->saved = sft->step;
out:
  json_decref(root);
  return status;
}
