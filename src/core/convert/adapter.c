/* The adapters that a conversion merges, and the mark of those that are merged already. */
#include "convert/convert_parts.h"

#include "base/alloc.h"
#include "io/file.h"

#include <string.h>

/* What the input says of merged adapters goes into the new mark, and is not carried along by itself. */
static void drop_old_mark(treadle_convert *c) {
  for (size_t i = 0; i < c->inputs.items.count; i++) {
    treadle_input *input = &c->inputs.items.items[i];
    if (input->companion && strcmp(input->companion, TREADLE_ADAPTER_MARK) == 0) input->companion = NULL;
  }
}

static treadle_status add_inputs(treadle_convert *c, const char *folder, const char **weights_p) {
  const char *config = treadle_arena_format(&c->arena, "%s/" TREADLE_ADAPTER_CONFIG, folder);
  treadle_status status;
  *weights_p = treadle_arena_format(&c->arena, "%s/" TREADLE_ADAPTER_WEIGHTS, folder);
  if (!config || !*weights_p) return treadle_fail(TREADLE_NO_MEMORY, "convert: memory is out");
  TRY(treadle_inputs_add(&c->inputs, config, NULL));
  TRY(treadle_inputs_add(&c->inputs, *weights_p, NULL));
out:
  return status;
}

/* Where a mark may lie: beside the weights that come in, and beside the config, which may be of another folder. */
static treadle_status find_marked(treadle_convert *c, bool from_hf, treadle_adapter_folders *folders_p) {
  const char *own = from_hf ? c->companions : treadle_arena_format(&c->arena, "%s/hf", c->options.in);
  if (!own) return treadle_fail(TREADLE_NO_MEMORY, "convert: memory is out");
  *folders_p = (treadle_adapter_folders){{own}};
  if (c->companions && strcmp(own, c->companions) != 0) folders_p->folder[1] = c->companions;
  return TREADLE_OK;
}

/* A mark that is not among the companions counts as an input, too. */
static treadle_status add_mark(treadle_convert *c, const char *folder) {
  const char *path = treadle_arena_format(&c->arena, "%s/" TREADLE_ADAPTER_MARK, folder);
  if (!path) return treadle_fail(TREADLE_NO_MEMORY, "convert: memory is out");
  return treadle_file_exists(path) ? treadle_inputs_add(&c->inputs, path, NULL) : TREADLE_OK;
}

static treadle_status open_adapter(treadle_convert *c) {
  const char *weights;
  treadle_status status;
  if (c->target->layout->fp8)
    REFUSE("--to '%s' holds fp8, and adapters are merged into bf16, fp16 or fp32: say dtype=bf16",
           c->target->layout->text);
  TRY(treadle_adapter_need_folder(c->options.lora));
  TRY(add_inputs(c, c->options.lora, &weights));
  TRY(treadle_adapter_open(c->model, c->options.lora, &c->adapter));
  c->adapter_values = treadle_alloc_array((size_t)c->adapter->elems, sizeof *c->adapter_values);
  if (!c->adapter_values) TRY(treadle_fail(TREADLE_NO_MEMORY, "convert: memory is out"));
  TRY(treadle_adapter_read(c->adapter, weights, c->adapter_values));
out:
  return status;
}

treadle_status treadle_convert_open_adapter(treadle_convert *c, bool from_hf) {
  treadle_adapter_folders marked;
  treadle_status status;
  TRY(find_marked(c, from_hf, &marked));
  const bool apart = !c->companions || marked.folder[1];
  if (!c->options.lora && !apart) goto out; /* the mark goes along with the other companions */
  if (apart) TRY(add_mark(c, marked.folder[0]));
  if (c->options.lora) TRY(open_adapter(c));
  TRY(treadle_adapter_mark(c->adapter, c->adapter_values, &marked, &c->adapter_mark));
  drop_old_mark(c);
out:
  return status;
}
