/* Options of blocks. A family that is nearly the one may lack what its blocks have behind an option that is off: norms of q and k,
 * biases. Each such option is tried; those with which the family is more like the checkpoint are turned on in the draft, so that
 * names and cuts in the engines come with them. */
#include "draft/draft.h"

#include <string.h>

typedef struct option_trial {
  treadle_draft *d;
  treadle_yaml *root, *blocks; /* a family that extends the nearest, with options on */
  int64_t best;                /* how much it is like the checkpoint */
} option_trial;

/* The family with these options; NULL: it cannot be. */
static treadle_status read_family(option_trial *t, treadle_family **family_p) {
  treadle_draft *d = t->d;
  treadle_status status = treadle_family_read("the draft", t->root, d->folder, d->arena, family_p);
  if (!status) return TREADLE_OK;
  *family_p = NULL;
  return status == TREADLE_NO_MEMORY ? status : TREADLE_OK;
}

/* The item of the draft's blocks for a block; added where there is none. */
static treadle_status find_item(option_trial *t, const char *block, treadle_yaml **item_p, bool *added_p) {
  treadle_status status;
  *added_p = false;
  for (size_t i = 0; i < t->blocks->count; i++) {
    *item_p = t->blocks->items[i];
    if (strcmp(treadle_yaml_text(*item_p, "block", ""), block) == 0) return TREADLE_OK;
  }
  *added_p = true;
  TRY(treadle_draft_new(t->d, TREADLE_YAML_MAP, item_p));
  TRY(treadle_draft_set(t->d, *item_p, "block", block));
  TRY(treadle_draft_append(t->d, t->blocks, *item_p));
out:
  return status;
}

static treadle_status try_option(option_trial *t, const char *block, const char *option) {
  treadle_draft *d = t->d;
  treadle_family *family;
  treadle_yaml *item;
  int64_t score = 0;
  bool added;
  treadle_status status;
  TRY(find_item(t, block, &item, &added));
  TRY(treadle_draft_set(d, item, option, "true"));
  TRY(read_family(t, &family));
  if (family) TRY(treadle_draft_score(d, family, &score));
  if (family && score > t->best) {
    t->best = score;
    d->like = family;
    return TREADLE_OK;
  }
  treadle_tree_unset(item, option);
  if (added) t->blocks->count--;
out:
  return status;
}

/* Options of one block of the family that are off. */
static treadle_status try_block(option_trial *t, const treadle_yaml *item) {
  const char *name =
      item->type == TREADLE_YAML_SCALAR ? item->text : treadle_yaml_text(item, "block", NULL);
  const treadle_yaml *block;
  treadle_status status;
  if (!name) return TREADLE_OK;
  TRY(treadle_family_load(&t->d->assembly, item, name, true, &block));
  const treadle_yaml *options = treadle_yaml_get(block, "options");
  for (size_t i = 0; options && i < options->count; i++) {
    const char *otherwise = treadle_yaml_text(options, options->keys[i], "");
    if (strcmp(treadle_yaml_text(item, options->keys[i], otherwise), "false") == 0)
      TRY(try_option(t, name, options->keys[i]));
  }
out:
  return status;
}

treadle_status treadle_draft_options(treadle_draft *d) {
  option_trial t = {.d = d};
  const treadle_yaml *root, *whole;
  treadle_yaml *tree, *types, *type;
  treadle_status status;
  TRY(treadle_draft_new(d, TREADLE_YAML_MAP, &t.root));
  TRY(treadle_draft_set(d, t.root, "family", "draft"));
  TRY(treadle_draft_part(d, t.root, "model_types", TREADLE_YAML_LIST, &types));
  TRY(treadle_draft_text(d, "draft", &type));
  TRY(treadle_draft_append(d, types, type));
  TRY(treadle_draft_set(d, t.root, "extends", d->like_name));
  TRY(treadle_draft_part(d, t.root, "blocks", TREADLE_YAML_LIST, &t.blocks));
  TRY(treadle_draft_score(d, d->like, &t.best));
  TRY(treadle_family_load(&d->assembly, d->root, d->like_name, false, &root));
  TRY(treadle_family_extend(&d->assembly, root, &tree));
  const treadle_yaml *blocks = treadle_yaml_get(tree, "blocks");
  for (size_t i = 0; blocks && i < blocks->count; i++) TRY(try_block(&t, blocks->items[i]));
  if (!t.blocks->count) return TREADLE_OK;
  d->blocks = t.blocks;
  TRY(treadle_family_assemble(&d->assembly, t.root, &whole));
  d->like_tree = whole;
out:
  return status;
}
