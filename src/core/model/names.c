/* Names of files: prefixes, what is carried, buffers, and which MTP layers they speak of. */
#include "model/names.h"

#include "base/text.h"

#include <string.h>

/* Buffers that some files hold and no engine loads. */
static bool is_buffer(const char *name) {
  static const char end[] = "rotary_emb.inv_freq";
  size_t length = strlen(name);
  return length >= sizeof end - 1 && strcmp(name + length - (sizeof end - 1), end) == 0;
}

static bool is_carried(const treadle_family *family, const char *name) {
  for (int32_t i = 0; i < family->carried_count; i++)
    if (treadle_text_starts(name, family->carried[i])) return true;
  return false;
}

/* The name with the longest other prefix replaced; NULL: memory is out. */
static const char *restore(const treadle_family *family, const char *name, treadle_arena *arena) {
  int32_t best = -1;
  for (int32_t i = 0; i < family->stored_prefix_count; i++)
    if (treadle_text_starts(name, family->stored_instead[i]) &&
        (best < 0 || strlen(family->stored_instead[i]) > strlen(family->stored_instead[best])))
      best = i;
  if (best < 0) return name;
  return treadle_arena_format(arena, "%s%s", family->stored_prefixes[best],
                              name + strlen(family->stored_instead[best]));
}

treadle_status treadle_names_make(const treadle_family *family, const treadle_checkpoint *checkpoint,
                                  treadle_arena *arena, treadle_names *names) {
  treadle_status status = TREADLE_OK;
  size_t count = (size_t)checkpoint->count + 1;
  names->checkpoint = checkpoint;
  names->names = treadle_arena_alloc_array(arena, count, sizeof *names->names);
  names->roles = treadle_arena_alloc_array(arena, count, sizeof *names->roles);
  if (!names->names || !names->roles) goto no_memory;
  for (int32_t i = 0; i < checkpoint->count; i++) {
    const char *name = checkpoint->tensors[i].name;
    names->names[i] = name;
    if (is_carried(family, name)) {
      names->roles[i] = TREADLE_ROLE_CARRIED;
      continue;
    }
    if (is_buffer(name)) {
      names->roles[i] = TREADLE_ROLE_SKIPPED;
      continue;
    }
    names->names[i] = restore(family, name, arena);
    if (!names->names[i]) goto no_memory;
    if (treadle_names_find(names, names->names[i]) < 0)
      TRY(treadle_hash_map_put(&names->by_name, names->names[i], i));
  }
out:
  return status;
no_memory:
  return treadle_fail(TREADLE_NO_MEMORY, "no memory for the names of %d tensors", checkpoint->count);
}

void treadle_names_release(treadle_names *names) { treadle_hash_map_release(&names->by_name); }

int32_t treadle_names_find(const treadle_names *names, const char *name) {
  return (int32_t)treadle_hash_map_get(&names->by_name, name, -1);
}

/* ---- MTP layers -------------------------------------------------------------------------------- */

/* The number of the MTP layer, from 0, that a name is of; -1: of none. A layer number behind the decoder layers counts
 * when the model has that layer; otherwise only for names that no decoder layer has. */
static int64_t mtp_layer_of(const treadle_model *model, const char *name) {
  const treadle_family *family = model->family;
  for (int32_t k = 0; k < family->pattern_count + family->packed.count; k++) {
    bool packed = k >= family->pattern_count;
    const treadle_name *form = packed ? &family->packed.rules[k - family->pattern_count].full_name
                                      : &family->patterns[k].full_name;
    int64_t layer;
    bool is_mtp, known = model->mtp_layers > 0 || (!packed && model->first_tensor[k] < 0);
    if (!form->in_layer || !treadle_name_match(form, true, name, &layer, &is_mtp)) continue;
    if (is_mtp) return layer;
    if (form->mtp && layer < 0) return 0; /* what all MTP layers share */
    if (layer < model->layers) return -1;
    if (known) return layer - model->layers;
  }
  return -1;
}

treadle_status treadle_names_mtp_layers(const treadle_model *model, const treadle_checkpoint *checkpoint,
                                        int32_t *layers_p) {
  treadle_arena arena = {0};
  treadle_names names = {0};
  treadle_status status;
  int64_t found = 0;
  TRY(treadle_names_make(model->family, checkpoint, &arena, &names));
  for (int32_t i = 0; i < checkpoint->count && !(found && model->mtp_layers); i++) {
    int64_t layer = names.roles[i] == TREADLE_ROLE_NONE ? mtp_layer_of(model, names.names[i]) : -1;
    if (layer + 1 > found) found = layer + 1;
  }
  *layers_p = found == 0 ? 0 : model->mtp_layers ? model->mtp_layers : found < 64 ? (int32_t)found : 0;
out:
  treadle_names_release(&names);
  treadle_arena_release(&arena);
  return status;
}
