/* Where a run goes on: which checkpoint, and whether the run is the one that saved it. */
#include "sft/sft.h"

#include "io/json.h"
#include "train/saved_values.h"

#include <jansson.h>
#include <string.h>

static treadle_run_start start_of(const treadle_sft *sft) {
  const treadle_sft_options *o = sft->options;
  return (treadle_run_start){.run = sft->settings->actor.save,
                             .place = TREADLE_SFT_PLACE(sft, actor.save),
                             .resume = o->resume,
                             .from = o->from,
                             .families = o->families,
                             .observer = sft->rank == 0 ? sft->observer : (treadle_observer){0}};
}

treadle_status treadle_sft_find_start(treadle_sft *sft) {
  const treadle_run_start start = start_of(sft);
  return treadle_run_start_find(&start, sft->from);
}

treadle_status treadle_sft_check_start(treadle_sft *sft) {
  const treadle_run_start start = start_of(sft);
  return treadle_run_start_check(&start, sft->group, sft->from);
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
  TRY(treadle_saved_check_same(root, path, "seed", sft->settings->training.seed, others));
  TRY(treadle_saved_check_order(root, path, sft->settings->training.no_shuffle, others));
  TRY(treadle_saved_check_same(root, path, "global_batch_size", sft->settings->training.global_batch_size,
                               others));
  TRY(treadle_saved_digest(root, path, "rows_digest", &rows));
  if (rows != sft->rows_digest)
    TRY(treadle_fail(
        TREADLE_REFUSED,
        "%s: the checkpoint has rows_digest %016llx, this run %016llx: the rows of %s, or their "
        "tokens, have changed",
        path, (unsigned long long)rows, (unsigned long long)sft->rows_digest,
        TREADLE_SFT_PLACE(sft, training.data_path)));
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
