/* Owning the folder of a run, and what must not stand in it. */
#include "run/run_folder.h"

#include "base/text.h"
#include "io/file_look.h"
#include "io/folder.h"
#include "io/path.h"
#include "run/checkpoint.h"

#include <string.h>

/* ---- What is written there ----------------------------------------------------------------------------------------- */

/* "12.jsonl" */
static bool is_lines(const char *name) {
  const size_t digits = strspn(name, "0123456789");
  return digits > 0 && strcmp(name + digits, ".jsonl") == 0;
}

static bool is_file(const char *name) {
  static const char *const files[] = {"config.yaml",
                                      "metrics.jsonl",
                                      "samples.jsonl",
                                      "trace.jsonl",
                                      "switch.json",
                                      "memory.json",
                                      "latest_checkpointed_iteration.txt"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    if (strcmp(name, files[i]) == 0) return true;
  return is_lines(name);
}

static bool is_folder(const char *name) {
  return strcmp(name, "validation") == 0 || treadle_train_checkpoint_step_of(name) >= 0;
}

/* Each name at which something is written: what has it is what it should be, and no link. */
static treadle_status check_places(const char *folder) {
  treadle_status status;
  treadle_arena arena = {0};
  treadle_folder_names names = {0};
  treadle_path path;
  TRY(treadle_folder_list(folder, &arena, &names));
  for (size_t i = 0; i < names.count; i++) {
    const char *name = names.items[i];
    if (!is_file(name) && !is_folder(name)) continue;
    TRY(treadle_path_join(folder, name, &path));
    TRY(is_file(name) ? treadle_file_check_plain(path.text) : treadle_file_check_folder(path.text));
    if (strcmp(name, "validation") == 0) TRY(check_places(path.text));
  }
out:
  treadle_array_release(&names);
  treadle_arena_release(&arena);
  return status;
}

/* ---- Owning it ----------------------------------------------------------------------------------------------------- */

static treadle_status take(const char *folder, treadle_status (*clean)(const char *folder),
                           treadle_folder_lock *lock) {
  treadle_status status;
  TRY(treadle_folder_lock_take(folder, true, lock));
  TRY(check_places(folder));
  if (treadle_folder_lock_holds(lock)) TRY(clean(folder));
out:
  if (status) treadle_folder_lock_end(lock, true);
  return status;
}

static treadle_status clean_lines(const char *folder) {
  return treadle_folder_remove_left_over(folder, is_lines);
}

static treadle_status clean_run(const char *run) {
  treadle_status status;
  treadle_path path;
  treadle_file_type type;
  TRY(treadle_train_checkpoint_clean(run));
  TRY(treadle_path_join(run, "validation", &path));
  TRY(treadle_file_look(path.text, &type));
  if (type == TREADLE_FILE_FOLDER) TRY(clean_lines(path.text));
out:
  return status;
}

treadle_status treadle_run_folder_take(const char *run, treadle_folder_lock *lock) {
  return take(run, clean_run, lock);
}

treadle_status treadle_run_lines_take(const char *folder, treadle_folder_lock *lock) {
  return take(folder, clean_lines, lock);
}
