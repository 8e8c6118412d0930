/* Comparing checkpoints of a run with their digests, for callers. */
#include "base/argument.h"
#include "run/checkpoint.h"
#include "run/checkpoint_digests.h"
#include "treadle_loop.h"

#include <inttypes.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

typedef struct verifying {
  const char *families;
  treadle_checkpoint_watcher each;
  void *context;
  int64_t damaged;
} verifying;

static treadle_status verify_one(verifying *v, const char *checkpoint) {
  char message[2048];
  bool known = true;
  treadle_status status = treadle_train_checkpoint_check(checkpoint);
  if (!status) status = treadle_checkpoint_digests_verify(NULL, checkpoint, v->families, &known);
  if (status == TREADLE_NO_MEMORY) return status;
  snprintf(message, sizeof message, "%s", status ? treadle_error_message() : "");
  v->damaged += status != TREADLE_OK;
  if (v->each) v->each(v->context, checkpoint, known, status ? message : NULL);
  return TREADLE_OK;
}

treadle_status treadle_checkpoint_verify(const char *folder, const char *families,
                                         treadle_checkpoint_watcher each, void *context,
                                         int64_t *damaged_p) {
  verifying v = {families, each, context, 0};
  treadle_steps steps = {0};
  char path[PATH_BYTES];
  treadle_status status = TREADLE_OK;
  TREADLE_NEED(folder);
  TREADLE_NEED(damaged_p);
  *damaged_p = 0;
  if (strlen(folder) + 64 > sizeof path) REFUSE("%s: the path is too long", folder);
  strcpy(path, folder);
  for (size_t length = strlen(path); length > 1 && path[length - 1] == '/';) path[--length] = 0;
  if (treadle_train_checkpoint_step_of(path) >= 0) {
    TRY(verify_one(&v, path));
  } else {
    TRY(treadle_train_checkpoint_list(folder, &steps));
    if (!steps.count)
      TRY(treadle_fail(TREADLE_REFUSED, "%s: is not a checkpoint global_step_K of a run, and has none",
                       folder));
    for (size_t i = 0; i < steps.count; i++) {
      snprintf(path, sizeof path, "%s/global_step_%" PRId64, folder, steps.items[i]);
      TRY(verify_one(&v, path));
    }
  }
  *damaged_p = v.damaged;
out:
  treadle_array_release(&steps);
  return status;
}
