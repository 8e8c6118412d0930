/* What a folder has in place of weights: for the message that refuses it.
 *
 * The rule is that of treadle_checkpoint_open: weights are model.safetensors, or shards with an index. What else may hold some is only
 * described here, so that a person sees what to do; a file that no row knows is refused like the others. */
#include "model/model.h"

#include "base/argument.h"
#include "base/text.h"
#include "base/utf8.h"
#include "io/file_look.h"
#include "io/folder.h"

#include <string.h>

/* Files of one kind, told by how their names begin and end. */
typedef struct kind {
  const char *start, *end;
  const char *words, *advice;
} kind;

static const kind kinds[] = {
    {"adapter_config", ".json", "an adapter",
     "merge it into the model that it was trained for, and save that"},
    {"adapter_model", "", "an adapter", "merge it into the model that it was trained for, and save that"},
    {"", ".safetensors.index.json", "an index under another name", "call it model.safetensors.index.json"},
    {"", ".safetensors", "safetensors without an index",
     "a single file is called model.safetensors, and several need model.safetensors.index.json beside "
     "them"},
    {"", ".gguf", "GGUF files", "take the checkpoint in safetensors that they were made of"},
    {"latest_checkpointed_iteration", ".txt", "a checkpoint of Megatron",
     "treadle convert makes a folder of safetensors of it"},
    {"iter_", "", "a checkpoint of Megatron", "treadle convert makes a folder of safetensors of it"},
    {"mp_rank_", "", "a checkpoint of Megatron", "treadle convert makes a folder of safetensors of it"},
    {"", ".distcp", "a checkpoint of torch.distributed",
     "treadle convert makes a folder of safetensors of it"},
    {"", ".bin", "files of torch", "load them with transformers, and save_pretrained writes safetensors"},
    {"", ".bin.index.json", "files of torch",
     "load them with transformers, and save_pretrained writes safetensors"},
    {"", ".pt", "files of torch", "load them where they were saved, and write safetensors"},
    {"", ".pth", "files of torch", "load them where they were saved, and write safetensors"},
    {"", ".ckpt", "files of torch", "load them where they were saved, and write safetensors"},
    {"", ".h5", "weights of another framework",
     "load them with transformers, and save_pretrained writes safetensors"},
    {"", ".msgpack", "weights of another framework",
     "load them with transformers, and save_pretrained writes safetensors"},
    {"", ".onnx", "weights of another framework",
     "take the checkpoint in safetensors that they were made of"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static int kind_of(const char *name) {
  const size_t length = strlen(name);
  for (int k = 0; k < KINDS; k++) {
    const size_t end = strlen(kinds[k].end);
    if (treadle_text_starts(name, kinds[k].start) && length >= end &&
        strcmp(name + length - end, kinds[k].end) == 0)
      return k;
  }
  return -1;
}

/* A folder in the folder that is a model with weights: a trainer's checkpoint-500, or what a run of treadle saves. */
static treadle_status find_inside(const char *folder, treadle_folder_names names, treadle_arena *arena,
                                  const char **found_p) {
  static const char *const files[] = {"model.safetensors", "model.safetensors.index.json"};
  static const char *const deeper[] = {"", "/huggingface", "/actor/huggingface"};
  *found_p = NULL;
  for (size_t i = 0; i < names.count; i++)
    for (int d = 0; d < 3; d++)
      for (int f = 0; f < 2; f++) {
        treadle_file_type type;
        const char *inside = treadle_arena_format(arena, "%s%s", names.items[i], deeper[d]);
        const char *path = treadle_arena_format(arena, "%s/%s/%s", folder, inside ? inside : "", files[f]);
        if (!inside || !path) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a path", folder);
        if (treadle_file_look(path, &type) || type == TREADLE_FILE_NONE) continue;
        if (!*found_p || strcmp(inside, *found_p) > 0) *found_p = inside;
      }
  return TREADLE_OK;
}

/* "GGUF files (a.gguf and 2 more): what to do" */
static void add_kind(treadle_builder *text, const kind *k, const char *first, int count, bool others) {
  treadle_builder_add(text, "%s %s (%s", others ? ";" : "; it has", k->words, treadle_text_shown(first));
  if (count > 1) treadle_builder_add(text, " and %d more", count - 1);
  treadle_builder_add(text, "): %s", k->advice);
}

static void describe(treadle_builder *text, treadle_folder_names names) {
  const char *first[KINDS] = {NULL};
  int count[KINDS] = {0};
  bool any = false, tokenizer = false;
  for (size_t i = 0; i < names.count; i++) {
    int k = kind_of(names.items[i]);
    tokenizer = tokenizer || treadle_text_starts(names.items[i], "tokenizer");
    if (k < 0) continue;
    for (int same = 0; same < k; same++) /* one entry for what has one name */
      if (strcmp(kinds[same].words, kinds[k].words) == 0) k = same;
    count[k]++;
    if (!first[k] || strcmp(names.items[i], first[k]) < 0) first[k] = names.items[i];
  }
  for (int k = 0; k < KINDS; k++) {
    if (!count[k]) continue;
    add_kind(text, &kinds[k], first[k], count[k], any);
    any = true;
  }
  if (!any && tokenizer)
    treadle_builder_add(
        text, "; it has config and tokenizer alone, as trainers write them: the weights lie elsewhere");
  else if (!any)
    treadle_builder_add(text, "; it has no file that may hold weights");
}

treadle_status treadle_model_folder_text(const char *folder, treadle_arena *arena, const char **text_p) {
  treadle_status status;
  treadle_builder text = {0};
  treadle_folder_names names = {0};
  const char *inside;
  *text_p = "";
  TRY(treadle_folder_list(folder, arena, &names));
  TRY(find_inside(folder, names, arena, &inside));
  if (inside)
    treadle_builder_add(&text, "; its folder %s has weights: name that one", treadle_text_shown(inside));
  else
    describe(&text, names);
  if (text.text) *text_p = treadle_arena_copy_text(arena, text.text);
  if (text.failed || !*text_p)
    TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a list of its files", folder));
out:
  treadle_array_release(&names);
  treadle_builder_release(&text);
  return status;
}

treadle_weights treadle_model_weights(const treadle_model *model) {
  TREADLE_NEED_OR(model, TREADLE_WEIGHTS_NONE);
  return model->values.read ? TREADLE_WEIGHTS_FILES : model->weights;
}

treadle_status treadle_model_refuse_absent(const treadle_model *model, const char *else_what) {
  treadle_status status = TREADLE_OK;
  treadle_arena arena = {0};
  const char *found = "";
  if (model->folder) TRY(treadle_model_folder_text(model->folder, &arena, &found));
  status = treadle_fail(
      TREADLE_REFUSED, "%s: has no weights: neither model.safetensors nor shards with an index%s%s%s",
      model->folder ? model->folder : model->path, found, *else_what ? ". " : "", else_what);
out:
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_model_need_weights(const treadle_model *model) {
  TREADLE_NEED(model);
  if (treadle_model_weights(model) != TREADLE_WEIGHTS_NONE) return TREADLE_OK;
  return treadle_model_refuse_absent(
      model, "Weights are made up where that is asked for: weights random, or the path of "
             "config.json itself");
}
