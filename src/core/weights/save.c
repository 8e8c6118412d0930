/* Windows of all ranks to one folder of Hugging Face's, whole or not at all.
 *
 *   1. Each rank makes the same plan of files (save_plan.h), and they compare what it was made of.
 *   2. Rank 0 makes a temporary folder beside the folder that is wanted, with all files at their full size, and what stands beside them.
 *   3. Each rank writes the elements that it answers for to their places; all have synced what they wrote when they agree, and they
 *      count whether it was every element.
 *   4. Rank 0 gives the temporary folder its name.
 *
 * A failure of any rank before step 4 is one of all, and each removes the temporary folder: rank 0 may be dead. From the count on only rank 0
 * does, since it may be giving the name while others have stopped waiting. A rank whose agreement failed takes no part in the count, so
 * that rank 0 does not go on to step 4. */
#include "base/hash.h"
#include "base/sized.h"
#include "base/text.h"
#include "group/group.h"
#include "io/file_look.h"
#include "io/folder.h"
#include "weights/filled.h"
#include "weights/save_plan.h"

#include <inttypes.h>
#include <string.h>

enum { PATH_MOST = 3500 };
static const int64_t SHARD_BYTES = 5000000000; /* as transformers cuts */

typedef struct saving {
  treadle_group *group;
  int rank;
  const void *window;
  treadle_save_options options;
  treadle_save_plan plan;
  char folder[PATH_MOST + 1], temporary[PATH_MOST + 100]; /* temporary: "" until it is there */
} saving;

static treadle_status agree(const saving *s, treadle_status mine) {
  return s->group ? treadle_group_agree(s->group, mine) : mine;
}

/* ---- 1 ---- */

static treadle_status take_folder(saving *s, const char *folder) {
  size_t length = strlen(folder);
  while (length > 1 && folder[length - 1] == '/') length--;
  if (length == 0 || length > PATH_MOST)
    return treadle_fail(TREADLE_REFUSED, "treadle_layout_save: a folder of 1 to %d bytes, not %zu",
                        PATH_MOST, length);
  memcpy(s->folder, folder, length);
  return TREADLE_OK;
}

static treadle_status check_options(const treadle_save_options *o) {
  bool known = o->dtype == TREADLE_DTYPE_NONE || o->dtype == TREADLE_FP32 || o->dtype == TREADLE_BF16 ||
               o->dtype == TREADLE_FP16;
  if (!known)
    return treadle_fail(TREADLE_REFUSED, "treadle_layout_save: dtype %d; fp32, bf16, fp16 or none is saved",
                        (int)o->dtype);
  if (o->shard_bytes > (size_t)1 << 60)
    return treadle_fail(TREADLE_REFUSED, "treadle_layout_save: shard_bytes is %zu; 2^60 at the most",
                        o->shard_bytes);
  return TREADLE_OK;
}

static treadle_status check_config(const treadle_model *model) {
  if (!model->path || model->changes)
    return treadle_fail(TREADLE_REFUSED,
                        "treadle_layout_save: no config.json says what this model is: it can be saved with "
                        "weights_only alone");
  if (strlen(model->path) > PATH_MOST)
    return treadle_fail(TREADLE_REFUSED, "treadle_layout_save: the model's path is too long");
  return TREADLE_OK;
}

static treadle_status prepare(saving *s, const treadle_layout *layout, const void *window,
                              const char *folder, const treadle_save_options *options) {
  static const char function[] = "treadle_layout_save";
  treadle_status status;
  if (!layout) return treadle_refuse_null(function, "layout");
  if (!folder) return treadle_refuse_null(function, "folder");
  TRY(treadle_sized_take(function, "options", options, &s->options, sizeof s->options));
  TRY(check_options(&s->options));
  TRY(take_folder(s, folder));
  int size = s->group ? treadle_group_size(s->group) : 1;
  if (layout->ranks != size) {
    status =
        treadle_fail(TREADLE_REFUSED, "treadle_layout_save: layout '%s' is for %s, and the group has %d",
                     layout->text, treadle_text_of_count(layout->ranks, "rank"), size);
    goto out;
  }
  if (!window && treadle_layout_window_bytes(layout, s->rank)) TRY(treadle_refuse_null(function, "window"));
  TRY(treadle_filled_check_window(window, "save"));
  if (!s->options.weights_only) TRY(check_config(layout->model));
  s->window = window;
  int64_t shard_bytes = s->options.shard_bytes ? (int64_t)s->options.shard_bytes : SHARD_BYTES;
  TRY(treadle_save_plan_make(layout, s->options.dtype, shard_bytes, &s->plan));
out:
  return status;
}

/* Do all ranks save the same? */
static treadle_status compare(const saving *s) {
  treadle_status status = TREADLE_OK;
  const treadle_layout *layout = s->plan.layout;
  if (!s->group) return TREADLE_OK;
  uint64_t own = treadle_hash_text(layout->text, layout->model->digest);
  own = treadle_hash_text(treadle_layout_rank_map(layout), own);
  own = treadle_hash_text(s->folder, own);
  own = treadle_hash_more(own, (uint64_t)s->options.dtype * 2 + s->options.weights_only);
  own = treadle_hash_more(own, (uint64_t)s->plan.file_count);
  TRY(treadle_group_say(s->group, &own, sizeof own));
  for (int rank = 1; rank < treadle_group_size(s->group); rank++)
    if (memcmp(treadle_group_said(s->group, rank), treadle_group_said(s->group, 0), sizeof own) != 0)
      TRY(treadle_fail(
          TREADLE_DIFFERENT,
          "treadle_layout_save: ranks 0 and %d save different layouts, to different folders, or with "
          "different options",
          rank));
out:
  return status;
}

/* ---- 2 ---- */

static treadle_status check_free(const char *folder) {
  treadle_status status;
  treadle_arena arena = {0};
  treadle_folder_names names = {0};
  treadle_file_type type;
  TRY(treadle_file_check_folder(folder));
  TRY(treadle_file_look(folder, &type));
  if (type == TREADLE_FILE_FOLDER) TRY(treadle_folder_list(folder, &arena, &names));
  if (names.count || (type != TREADLE_FILE_NONE && type != TREADLE_FILE_FOLDER))
    status = treadle_fail(TREADLE_REFUSED,
                          "%s: something is in it, and only a new or an empty folder is saved to", folder);
out:
  treadle_array_release(&names);
  treadle_arena_release(&arena);
  return status;
}

static treadle_status make_files(saving *s) {
  treadle_status status;
  char temporary[sizeof s->temporary];
  TRY(check_free(s->folder));
  TRY(treadle_folder_create_beside(s->folder, temporary, sizeof temporary));
  strcpy(s->temporary, temporary);
  TRY(treadle_file_room(s->temporary, (uint64_t)s->plan.bytes, (uint64_t)s->plan.largest_file));
  for (int32_t f = 0; f < s->plan.file_count; f++) {
    const treadle_save_file *file = &s->plan.files[f];
    char path[sizeof s->temporary + 64];
    snprintf(path, sizeof path, "%s/%s", s->temporary, file->name);
    TRY(treadle_safetensors_make(path, &file->beginning, file->bytes));
  }
  TRY(treadle_save_beside(&s->plan, &s->options, s->temporary));
out:
  return status;
}

/* ---- 3 and 4 ---- */

static treadle_status count(const saving *s, int64_t elems) {
  treadle_status status = TREADLE_OK;
  int64_t all = elems;
  if (s->group) {
    TRY(treadle_group_say(s->group, &elems, sizeof elems));
    all = 0;
    for (int rank = 0; rank < treadle_group_size(s->group); rank++)
      all += *(const int64_t *)treadle_group_said(s->group, rank);
  }
  if (all != s->plan.elems)
    status = treadle_fail(TREADLE_DIFFERENT, "%s: %" PRId64 " elements were saved; the model has %" PRId64,
                          s->folder, all, s->plan.elems);
out:
  return status;
}

static treadle_status save(saving *s, bool *mine_to_remove_p) {
  treadle_status status;
  int64_t elems = 0;
  TRY(compare(s));
  TRY(agree(s, s->rank == 0 ? make_files(s) : TREADLE_OK));
  TRY(treadle_group_say_rest(s->group, s->folder, s->temporary, sizeof s->temporary));
  TRY(agree(s, treadle_save_cells(&s->plan, s->rank, s->window, s->temporary, &elems)));
  *mine_to_remove_p = s->rank == 0;
  TRY(count(s, elems));
  TRY(agree(s, s->rank == 0 ? treadle_folder_commit(s->temporary, s->folder) : TREADLE_OK));
out:
  return status;
}

treadle_status treadle_layout_save(treadle_group *group, const treadle_layout *layout, const void *window,
                                   const char *folder, const treadle_save_options *options) {
  return treadle_layout_save_without(group, layout, NULL, window, folder, options);
}

treadle_status treadle_layout_save_without(treadle_group *group, const treadle_layout *layout,
                                           const bool *left_out, const void *window, const char *folder,
                                           const treadle_save_options *options) {
  treadle_status status;
  saving s = {.group = group,
              .plan = {.left_out = left_out},
              .rank = group ? treadle_group_rank(group) : 0,
              .options = TREADLE_INIT(treadle_save_options)};
  bool mine_to_remove = true;
  TRY(agree(&s, prepare(&s, layout, window, folder, options)));
  TRY(save(&s, &mine_to_remove));
out:
  if (status && mine_to_remove && s.temporary[0]) treadle_folder_drop(s.temporary);
  treadle_save_plan_release(&s.plan);
  return status;
}
