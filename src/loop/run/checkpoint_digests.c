/* Digests of a checkpoint. The ranks share the values of each part; rank 0 sees to the files. */
#include "run/checkpoint_digests.h"

#include "base/crc.h"
#include "group/group.h"
#include "io/file.h"
#include "io/file_look.h"
#include "io/folder.h"
#include "io/json.h"
#include "io/path.h"
#include "model/model.h"
#include "run/checkpoint.h"
#include "weights/digest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LARGEST_FILE = 1 << 30, DEEPEST = 8 };

static treadle_status no_memory(const char *folder) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its digests", folder);
}

static treadle_status agree(treadle_group *group, treadle_status mine) {
  return group ? treadle_group_agree(group, mine) : mine;
}

/* ---- Parts ------------------------------------------------------------------------------------- */

/* Parts of a critic are models with a score head. */
static treadle_status add_share(treadle_group *group, const char *path, int part, const char *families,
                                uint64_t *sum_p) {
  const treadle_model_options options = {.struct_size = sizeof options,
                                         .families = families,
                                         .head = part < TREADLE_CHECKPOINT_PARTS ? TREADLE_HEAD_LM
                                                                                 : TREADLE_HEAD_SCORE};
  treadle_model *model = NULL;
  treadle_status status;
  *sum_p = 0;
  TRY(treadle_model_open(path, &options, &model));
  if (!model->checkpoint)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: has no weights (model.safetensors)", path));
  TRY(treadle_digest_saved(model, group ? treadle_group_rank(group) : 0,
                           group ? treadle_group_size(group) : 1, sum_p));
  TRY(treadle_checkpoint_unchanged(model->checkpoint));
out:
  treadle_model_close(model);
  return status;
}

static treadle_status digest_part(treadle_group *group, const char *folder, int part, const char *families,
                                  uint64_t *digest_p) {
  treadle_path path;
  uint64_t mine = 0;
  treadle_status status = treadle_path_join(folder, treadle_train_checkpoint_parts[part], &path);
  if (!status) status = add_share(group, path.text, part, families, &mine);
  TRY(agree(group, status));
  *digest_p = mine;
  if (!group) goto out;
  TRY(treadle_group_say(group, &mine, sizeof mine));
  *digest_p = 0;
  for (int rank = 0; rank < treadle_group_size(group); rank++)
    *digest_p += *(const uint64_t *)treadle_group_said(group, rank);
out:
  return status;
}

/* ---- Files ------------------------------------------------------------------------------------- */

static treadle_status sum_file(const char *path, json_t **sum_p) {
  char *bytes = NULL, crc[16];
  size_t count;
  treadle_status status;
  TRY(treadle_file_read(path, LARGEST_FILE, &bytes, &count));
  snprintf(crc, sizeof crc, "%08" PRIx32, treadle_crc32(0, bytes, count));
  *sum_p = json_pack("{s:I, s:s}", "bytes", (json_int_t)count, "crc32", crc);
  if (!*sum_p) TRY(no_memory(path));
out:
  treadle_free(bytes);
  return status;
}

/* Adapters are no part that is a model. */
static bool is_weights(const char *name) {
  static const char adapters[] = "adapter_model.safetensors";
  const size_t length = strlen(name), theirs = sizeof adapters - 1;
  if (length >= theirs && strcmp(name + length - theirs, adapters) == 0) return false;
  return length > 12 && strcmp(name + length - 12, ".safetensors") == 0;
}

/* The files of a folder below the checkpoint's, each by its path from there; inner: "" or "actor/". */
static treadle_status sum_files(const char *folder, const char *inner, int depth, json_t *files) {
  treadle_arena arena = {0};
  treadle_folder_names names = {0};
  treadle_path here, path;
  treadle_status status;
  TRY(treadle_path_join(folder, inner, &here));
  TRY(treadle_folder_list(here.text, &arena, &names));
  for (size_t i = 0; i < names.count; i++) {
    const char *name = treadle_arena_format(&arena, "%s%s", inner, names.items[i]);
    json_t *sum;
    struct stat about;
    if (!name) TRY(no_memory(folder));
    if (is_weights(name) || strcmp(name, TREADLE_DIGESTS_FILE) == 0) continue;
    TRY(treadle_path_join(folder, name, &path));
    if (lstat(path.text, &about) != 0) continue;
    if (S_ISDIR(about.st_mode) && depth < DEEPEST) {
      const char *below = treadle_arena_format(&arena, "%s/", name);
      if (!below) TRY(no_memory(folder));
      TRY(sum_files(folder, below, depth + 1, files));
    }
    if (!S_ISREG(about.st_mode)) continue;
    TRY(sum_file(path.text, &sum));
    if (json_object_set_new(files, name, sum) != 0) TRY(no_memory(folder));
  }
out:
  treadle_array_release(&names);
  treadle_arena_release(&arena);
  return status;
}

/* ---- Writing ----------------------------------------------------------------------------------- */

static treadle_status write(const char *folder, int64_t step, const uint64_t *digests) {
  json_t *files = json_object(), *parts = json_object();
  json_t *root = json_pack("{s:I, s:o, s:o}", "step", (json_int_t)step, "parts", parts, "files", files);
  char *text = NULL, digest[24];
  treadle_path path;
  treadle_status status;
  if (!root) TRY(no_memory(folder));
  for (int p = 0; p < TREADLE_CHECKPOINT_PARTS_MOST; p++) {
    if (!treadle_train_checkpoint_has_part(folder, p)) continue;
    snprintf(digest, sizeof digest, "%016" PRIx64, digests[p]);
    if (json_object_set_new(parts, treadle_train_checkpoint_parts[p], json_string(digest)) != 0)
      TRY(no_memory(folder));
  }
  TRY(sum_files(folder, "", 0, files));
  text = json_dumps(root, JSON_INDENT(1) | JSON_SORT_KEYS);
  if (!text) TRY(no_memory(folder));
  TRY(treadle_path_join(folder, TREADLE_DIGESTS_FILE, &path));
  TRY(treadle_file_write(path.text, text, strlen(text)));
out:
  free(text);
  json_decref(root);
  return status;
}

treadle_status treadle_checkpoint_digests_write(treadle_group *group, const char *folder, int64_t step,
                                                const char *families) {
  uint64_t digests[TREADLE_CHECKPOINT_PARTS_MOST];
  treadle_status status = TREADLE_OK;
  for (int p = 0; p < TREADLE_CHECKPOINT_PARTS_MOST; p++)
    if (treadle_train_checkpoint_has_part(folder, p))
      TRY(digest_part(group, folder, p, families, &digests[p]));
  if (!group || treadle_group_rank(group) == 0) status = write(folder, step, digests);
  TRY(agree(group, status));
out:
  return status;
}

/* ---- Comparing --------------------------------------------------------------------------------- */

static treadle_status damaged(const char *folder, const char *what, const char *found, const char *said) {
  return treadle_fail(TREADLE_DIFFERENT,
                      "%s: %s is damaged, or of another checkpoint: %s, and " TREADLE_DIGESTS_FILE
                      " says %s",
                      folder, what, found, said);
}

static treadle_status compare_file(const char *folder, const char *name, const json_t *said) {
  treadle_path path;
  json_t *found = NULL;
  treadle_file_type type;
  treadle_status status;
  TRY(treadle_path_join(folder, name, &path));
  TRY(treadle_file_look(path.text, &type));
  if (type != TREADLE_FILE_PLAIN)
    TRY(treadle_fail(TREADLE_DIFFERENT, "%s: has no file %s, which " TREADLE_DIGESTS_FILE " names", folder,
                     name));
  TRY(sum_file(path.text, &found));
  if (!json_equal(found, said)) {
    char now[80], then[80];
    const json_t *both[] = {found, said};
    char *texts[] = {now, then};
    for (int i = 0; i < 2; i++) {
      const char *crc = json_string_value(json_object_get(both[i], "crc32"));
      snprintf(texts[i], sizeof now, "%lld bytes of CRC-32 %.16s",
               (long long)json_integer_value(json_object_get(both[i], "bytes")), crc ? crc : "(none)");
    }
    status = damaged(folder, name, now, then);
  }
out:
  json_decref(found);
  return status;
}

static treadle_status compare_files(const char *folder, json_t *root, int64_t step) {
  json_t *files = json_object_get(root, "files"), *said;
  const json_t *saved = json_object_get(root, "step");
  const char *name;
  treadle_status status = TREADLE_OK;
  if (!json_is_integer(saved) || json_integer_value(saved) != step)
    TRY(treadle_fail(TREADLE_DIFFERENT, "%s: its " TREADLE_DIGESTS_FILE " is that of step %lld, or damaged",
                     folder, (long long)json_integer_value(saved)));
  if (!json_object_get(files, "data.json") || !json_object_get(files, "rng.json"))
    TRY(treadle_fail(TREADLE_DIFFERENT,
                     "%s: its " TREADLE_DIGESTS_FILE " is damaged: it names no data.json or rng.json",
                     folder));
  json_object_foreach(files, name, said) TRY(compare_file(folder, name, said));
out:
  return status;
}

static treadle_status compare_part(treadle_group *group, const char *folder, int part, const char *families,
                                   const json_t *parts) {
  const char *name = treadle_train_checkpoint_parts[part];
  const char *said = json_string_value(json_object_get(parts, name));
  uint64_t digest;
  char now[40];
  treadle_status status;
  TRY(digest_part(group, folder, part, families, &digest));
  snprintf(now, sizeof now, "%016" PRIx64, digest);
  if (said && strcmp(said, now) == 0) return TREADLE_OK;
  snprintf(now, sizeof now, "its digest is %016" PRIx64, digest);
  status = damaged(folder, name, now, said ? said : "nothing of it");
out:
  return status;
}

/* NULL where there is none. */
static treadle_status read_digests(const char *folder, json_t **root_p) {
  treadle_path path;
  treadle_status status;
  *root_p = NULL;
  TRY(treadle_path_join(folder, TREADLE_DIGESTS_FILE, &path));
  if (treadle_file_exists(path.text)) TRY(treadle_json_load(path.text, root_p));
out:
  return status;
}

treadle_status treadle_checkpoint_digests_verify(treadle_group *group, const char *folder,
                                                 const char *families, bool *known_p) {
  const int64_t step = treadle_train_checkpoint_step_of(folder);
  json_t *root = NULL;
  treadle_status status = read_digests(folder, &root);
  *known_p = root != NULL;
  if (!status && root && (!group || treadle_group_rank(group) == 0))
    status = compare_files(folder, root, step);
  TRY(agree(group, status));
  /* A part that is named, and has gone, is damaged, too. */
  for (int p = 0; root && p < TREADLE_CHECKPOINT_PARTS_MOST; p++)
    if (treadle_train_checkpoint_has_part(folder, p) ||
        json_object_get(json_object_get(root, "parts"), treadle_train_checkpoint_parts[p]))
      TRY(compare_part(group, folder, p, families, json_object_get(root, "parts")));
out:
  json_decref(root);
  return status;
}
