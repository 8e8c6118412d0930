/* Where a run goes on, and what speaks against it. Nothing of it is refused: a crash leaves latest_checkpointed_iteration.txt one behind. */
#include "run/checkpoint.h"

#include "base/alloc.h"
#include "base/text.h"
#include "base/utf8.h"
#include "io/file.h"
#include "io/file_look.h"
#include "io/folder.h"

#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LATEST "latest_checkpointed_iteration.txt"

typedef struct teller {
  void (*tell)(void *context, const char *line);
  void *context;
} teller;

__attribute__((format(printf, 2, 3))) static void say(const teller *to, const char *format, ...) {
  char line[2 * PATH_MAX];
  va_list values;
  va_start(values, format);
  vsnprintf(line, sizeof line, format, values);
  va_end(values);
  to->tell(to->context, line);
}

static treadle_status tell_latest(const char *run, int64_t step, const teller *to) {
  enum { LONGEST = 1 << 20 };
  char path[PATH_MAX], *text = NULL, begins[64];
  size_t length;
  int64_t said = -1;
  treadle_status status = TREADLE_OK;
  snprintf(path, sizeof path, "%s/" LATEST, run);
  if (!treadle_file_exists(path)) goto out;
  TRY(treadle_file_read(path, LONGEST, &text, &length));
  text[strcspn(text, " \r\n")] = 0;
  if (!treadle_text_to_int64(text, &said)) said = -1;
  snprintf(begins, sizeof begins, "%.40s", text);
  if (said >= 0 && said == step) goto out;
  if (step < 0)
    say(to, "%s says '%s', and there is no checkpoint: the run begins anew", path,
        treadle_text_shown(begins));
  else
    say(to, "%s says '%s', which is not a whole checkpoint: the run goes on from global_step_%" PRId64,
        path, treadle_text_shown(begins), step);
out:
  treadle_free(text);
  return status;
}

static treadle_status tell_newest(const char *run, int64_t step, const teller *to) {
  treadle_steps steps = {0};
  treadle_status status;
  TRY(treadle_train_checkpoint_list(run, &steps));
  const int64_t newest = steps.count ? steps.items[steps.count - 1] : -1;
  if (step >= 0 && newest > step)
    say(to,
        "%s: the run goes on from global_step_%" PRId64 ", and global_step_%" PRId64
        " is newer: --resume %s/global_step_%" PRId64 " goes on from that one, if it is whole",
        run, step, newest, run, newest);
out:
  treadle_array_release(&steps);
  return status;
}

/* What a writer that was killed has left is not a name of somebody's. */
static treadle_status tell_names(const char *run, const teller *to) {
  treadle_arena arena = {0};
  treadle_folder_names names = {0};
  treadle_status status;
  TRY(treadle_folder_list(run, &arena, &names));
  for (size_t i = 0; i < names.count; i++) {
    const char *name = names.items[i];
    char path[PATH_MAX];
    size_t stem;
    if (!treadle_text_starts(name, "global_step_") || treadle_folder_is_left_over(name, &stem)) continue;
    snprintf(path, sizeof path, "%s/%s", run, name);
    bool is_step = treadle_train_checkpoint_step_of(path) >= 0;
    if (is_step && treadle_file_check_folder(path) == TREADLE_OK && treadle_file_is_folder(path)) continue;
    say(to, "%s is named like a checkpoint and is none: %s", path,
        is_step ? "it has to be a folder, and no link"
                : "a checkpoint is global_step_K, with K as it is printed");
  }
out:
  treadle_array_release(&names);
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_train_checkpoint_tell(const char *run, int64_t step,
                                             void (*tell)(void *context, const char *line), void *context) {
  const teller to = {tell, context};
  treadle_status status;
  if (!tell || !treadle_file_is_folder(run)) return TREADLE_OK;
  TRY(tell_latest(run, step, &to));
  TRY(tell_newest(run, step, &to));
  TRY(tell_names(run, &to));
out:
  return status;
}
