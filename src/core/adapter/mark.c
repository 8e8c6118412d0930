/* The mark of merged weights. */
#include "adapter/adapter.h"

#include "base/hash.h"
#include "io/file.h"
#include "io/json.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

/* Of the values alone: a folder may be copied, and adapters be saved in other types. */
static void digest_of(const treadle_adapter *a, const float *values, char digest[24]) {
  const uint64_t hash = treadle_hash_bytes(values, (size_t)a->elems * sizeof *values, a->model->digest);
  snprintf(digest, 24, "%016" PRIx64, treadle_hash_bytes(&a->alpha, sizeof a->alpha, hash));
}

/* The list of a folder; NULL where it has no mark. */
static treadle_status read_mark(const char *path, json_t **root_p, json_t **list_p) {
  treadle_status status = TREADLE_OK;
  *root_p = *list_p = NULL;
  if (!treadle_file_exists(path)) return TREADLE_OK;
  TRY(treadle_json_load(path, root_p));
  *list_p = json_object_get(*root_p, "digests");
  if (!json_is_array(*list_p)) REFUSE("%s: has no list of digests", path);
out:
  return status;
}

static bool has_digest(const json_t *list, const char *digest) {
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *other = json_string_value(json_array_get(list, i));
    if (other && strcmp(other, digest) == 0) return true;
  }
  return false;
}

/* Appends what a folder has to `to`. digest: of the adapters that it must not have; NULL: of none. */
static treadle_status take_mark(const char *folder, const char *digest, json_t *to) {
  char path[PATH_MAX];
  json_t *root = NULL, *list;
  treadle_status status;
  if (snprintf(path, sizeof path, "%s/" TREADLE_ADAPTER_MARK, folder) >= (int)sizeof path)
    REFUSE("%s: too long for a path", folder);
  TRY(read_mark(path, &root, &list));
  if (digest && has_digest(list, digest))
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: the weights have these adapters in them already, and would have them twice",
                     path));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *other = json_string_value(json_array_get(list, i));
    if (other && has_digest(to, other)) continue;
    if (json_array_append(to, json_array_get(list, i)) != 0)
      TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for adapters"));
  }
out:
  json_decref(root);
  return status;
}

treadle_status treadle_adapter_mark(const treadle_adapter *adapter, const float *values,
                                    const treadle_adapter_folders *of, char **text_p) {
  char digest[24];
  json_t *root = json_pack("{s:[]}", "digests"), *list = json_object_get(root, "digests");
  treadle_status status = list ? TREADLE_OK : treadle_fail(TREADLE_NO_MEMORY, "no memory for adapters");
  *text_p = NULL;
  TRY(status);
  if (adapter) digest_of(adapter, values, digest);
  for (int i = 0; i < TREADLE_ADAPTER_FOLDERS; i++)
    if (of->folder[i]) TRY(take_mark(of->folder[i], adapter ? digest : NULL, list));
  if (!adapter && !json_array_size(list)) goto out;
  if ((adapter && json_array_append_new(list, json_string(digest)) != 0) ||
      !(*text_p = json_dumps(root, JSON_INDENT(1))))
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for adapters"));
out:
  json_decref(root);
  return status;
}
