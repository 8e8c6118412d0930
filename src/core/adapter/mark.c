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

/* The list of a folder: an empty one where it has no mark. */
static treadle_status read_mark(const char *path, json_t **root_p, json_t **list_p) {
  treadle_status status = TREADLE_OK;
  *list_p = NULL;
  if (treadle_file_exists(path)) {
    TRY(treadle_json_load(path, root_p));
    *list_p = json_object_get(*root_p, "digests");
    if (!json_is_array(*list_p)) TRY(treadle_fail(TREADLE_REFUSED, "%s: has no list of digests", path));
    return TREADLE_OK;
  }
  *root_p = json_pack("{s:[]}", "digests");
  *list_p = json_object_get(*root_p, "digests");
out:
  return status;
}

treadle_status treadle_adapter_mark(const treadle_adapter *adapter, const float *values, const char *folder,
                                    char **text_p) {
  char path[PATH_MAX], digest[24];
  json_t *root = NULL, *list;
  treadle_status status;
  *text_p = NULL;
  if (snprintf(path, sizeof path, "%s/" TREADLE_ADAPTER_MARK, folder) >= (int)sizeof path)
    REFUSE("%s: too long for a path", folder);
  digest_of(adapter, values, digest);
  TRY(read_mark(path, &root, &list));
  for (size_t i = 0; i < json_array_size(list); i++) {
    const char *other = json_string_value(json_array_get(list, i));
    if (other && strcmp(other, digest) == 0)
      TRY(treadle_fail(TREADLE_REFUSED,
                       "%s: the weights have these adapters in them already, and would have them twice",
                       path));
  }
  if (!list || json_array_append_new(list, json_string(digest)) != 0 ||
      !(*text_p = json_dumps(root, JSON_INDENT(1))))
    TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for adapters"));
out:
  json_decref(root);
  return status;
}
