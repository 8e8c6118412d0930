/* Where a run goes on: which checkpoint, and whether the run is the one that saved it. */
#include "train/sft.h"

#include "io/json.h"
#include "train/checkpoint_digests.h"
#include "train/saved_values.h"

#include <jansson.h>
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
  char line[RUN_MOST + 200];
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
  TRY(treadle_train_checkpoint_gone(run, step, line, sizeof line));
  if (*line && sft->rank == 0 && sft->options->warn) sft->options->warn(sft->options->context, line);
  if (step >= 0) snprintf(sft->from, sizeof sft->from, "%s/global_step_%lld", run, (long long)step);
out:
  treadle_array_release(&steps);
  return status;
}

treadle_status treadle_sft_check_start(treadle_sft *sft) {
  char line[1200];
  bool known;
  treadle_status status =
      treadle_checkpoint_digests_verify(sft->group, sft->from, sft->options->families, &known);
  if (status == TREADLE_DIFFERENT) return treadle_fail_in(TREADLE_REFUSED, "--resume: ");
  snprintf(line, sizeof line, "%s " TREADLE_DIGESTS_NONE, sft->from);
  if (!status && !known && sft->rank == 0 && sft->options->warn)
    sft->options->warn(sft->options->context, line);
  return status;
}

static const char others[] = "its rows would come in another order";

treadle_status treadle_sft_read_start(treadle_sft *sft) {
  const int64_t step = treadle_train_checkpoint_step_of(sft->from);
  char path[PATH_MAX + 16];
  json_t *root = NULL;
  uint64_t rows;
  treadle_status status;
  snprintf(path, sizeof path, "%s/data.json", sft->from);
  TRY(treadle_json_load(path, &root));
  TRY(treadle_saved_check_same(root, path, "rows", (int64_t)sft->train_count, others));
  TRY(treadle_saved_check_same(root, path, "seed", sft->settings->seed, others));
  TRY(treadle_saved_check_order(root, path, sft->settings->no_shuffle, others));
  TRY(treadle_saved_check_same(root, path, "global_batch_size", sft->settings->global_batch_size, others));
  TRY(treadle_saved_digest(root, path, "rows_digest", &rows));
  if (rows != sft->rows_digest)
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "%s: the checkpoint has rows_digest %016llx, this run %016llx: the rows of %s, or their "
        "tokens, have changed",
        path, (unsigned long long)rows, (unsigned long long)sft->rows_digest,
        TREADLE_SFT_PLACE(sft, data_path)));
  TRY(treadle_saved_count(root, path, "step", &sft->step));
  if (sft->step != step)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: 'step' is %lld in the checkpoint of step %lld", path,
                     (long long)sft->step, (long long)step));
  TRY(treadle_saved_count(root, path, "optimizer_steps", &sft->optimizer_steps));
  TRY(treadle_saved_digest(root, path, "losses_digest", &sft->losses_digest));
  sft->saved = sft->step;
out:
  json_decref(root);
  return status;
}
