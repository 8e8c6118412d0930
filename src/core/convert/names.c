/* The names of all that goes to OUT. Some of them come from files (an index, a list of shards): two may be one, lead out of
 * the folder, or be those that treadle itself needs there. */
#include "convert/convert_parts.h"
#include "convert/shards.h"

#include "base/hash_map.h"
#include "base/text.h"

#include <string.h>

typedef struct naming {
  treadle_convert *convert;
  treadle_hash_map map;
  TREADLE_ARRAY(const char *) whats;
} naming;

/* `what` is what the file is, for messages. */
static treadle_status add(naming *n, const char *folder, const char *name, const char *what) {
  treadle_status status;
  const char *out = n->convert->options.out;
  const char *path = treadle_arena_format(&n->convert->arena, "%s%s", folder, name);
  if (!path) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a name", name));
  if (!treadle_path_stays(path))
    TRY(treadle_fail(TREADLE_REFUSED, "%s: the name of %s, '%s', leads out of the folder", out, what,
                     path));
  if (treadle_text_starts(path, "treadle-convert.") || strcmp(path, TREADLE_LOCK_FILE) == 0)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: %s is called '%s', as treadle's own journal or lock is", out,
                     what, path));
  int64_t other = treadle_hash_map_get(&n->map, path, -1);
  if (other >= 0)
    TRY(treadle_fail(TREADLE_REFUSED, "%s: '%s' would be written twice: as %s and as %s", out, path,
                     n->whats.items[other], what));
  TRY(treadle_hash_map_put(&n->map, path, (int64_t)n->whats.count));
  TRY(treadle_array_push(&n->whats, what));
out:
  return status;
}

treadle_status treadle_convert_check_names(treadle_convert *c) {
  treadle_status status = TREADLE_OK;
  naming n = {.convert = c};
  const treadle_target *target = c->target;
  const char *beside = target->is_hf ? "" : "hf/";
  for (int32_t f = 0; f < target->file_count; f++) {
    const char *what = treadle_arena_format(&c->arena, "file %d of the weights", f + 1);
    if (!what) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for a name"));
    TRY(add(&n, "", target->paths[f], what));
  }
  for (size_t i = 0; i < c->inputs.items.count; i++) {
    treadle_input *input = &c->inputs.items.items[i];
    const char *slash = strrchr(input->path, '/'), *name = slash ? slash + 1 : input->path;
    if (!input->companion) continue;
    for (int32_t f = 0; f < c->source->file_count && input->companion; f++) /* a shard of an odd name */
      if (strcmp(c->source->files[f], input->path) == 0) input->companion = NULL;
    if (input->companion)
      TRY(add(&n, beside, input->companion, strcmp(name, "config.json") == 0 ? "the config" : input->path));
  }
  TRY(add(&n, beside, "model.safetensors.index.json", "the index"));
  if (c->adapter) TRY(add(&n, beside, TREADLE_ADAPTER_MARK, "the mark of merged adapters"));
  if (target->is_hf) goto out;
  TRY(add(&n, beside, TREADLE_SHARDS_FILE, "the list of shards"));
  for (int i = 0; target->is_dist && i < TREADLE_DIST_BESIDE; i++) {
    const char *path;
    TRY(treadle_target_dist_beside(target, i, &c->arena, &path));
    TRY(add(&n, "", path, "what Megatron opens the checkpoint by"));
  }
  TRY(add(&n, "", "latest_checkpointed_iteration.txt", "the mark of the last checkpoint"));
out:
  treadle_hash_map_release(&n.map);
  treadle_array_release(&n.whats);
  return status;
}
