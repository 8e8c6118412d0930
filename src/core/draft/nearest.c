/* The family that is like the checkpoint most, and which of its tensors is which: those of the same name (behind the number of the
 * layer; what stands before it is said once), then those that are the same thing by the words of their names. */
#include "draft/draft.h"

#include <string.h>

/* What stands behind "{l}."; the whole name outside of layers. */
static const char *rest_of(const treadle_name *name) {
  const char *number = strstr(name->text, "{l}.");
  return number ? number + 4 : name->text;
}

static bool ends_with_name(const char *text, const char *name) {
  size_t length = strlen(text), size = strlen(name);
  return length >= size && strcmp(text + length - size, name) == 0 &&
         (length == size || text[length - size - 1] == '.');
}

/* A tensor with this many dimensions, if they are known. */
static bool same_dims(const treadle_draft_tensor *p, const treadle_pattern *pattern) {
  return p->ndim < 0 || p->ndim == pattern->ndim - pattern->full_name.by_expert;
}

/* A name of MTP layers that have names of their own. */
static bool is_mtp_name(const treadle_draft_tensor *p, const treadle_name *name) {
  int64_t layer = 0;
  bool is_mtp = false;
  return !p->in_layer && name->mtp && treadle_name_match(name, true, p->first->name, &layer, &is_mtp) &&
         (is_mtp || layer < 0);
}

/* The same name, but for what stands before the layers, and before all names. */
static bool same_name(const treadle_draft_tensor *p, const treadle_name *name) {
  if (p->in_layer != name->in_layer) return false;
  return p->in_layer ? strcmp(p->rest, rest_of(name)) == 0 : ends_with_name(p->text, name->text);
}

int32_t treadle_draft_pattern_role(const treadle_family *family, const treadle_pattern *pattern) {
  return treadle_draft_role(rest_of(&pattern->full_name), pattern->in_layer, pattern->full_name.by_expert,
                            family->experts != NULL);
}

/* A pattern has its pair, and so have those of the same name in other layers (layer_dims of the family). */
static void take(const treadle_family *family, bool *taken, int32_t pattern) {
  for (int32_t k = 0; k < family->pattern_count; k++) taken[k] |= treadle_draft_is_twin(family, k, pattern);
}

bool treadle_draft_is_twin(const treadle_family *family, int32_t a, int32_t b) {
  return strcmp(family->patterns[a].name, family->patterns[b].name) == 0;
}

/* Pairs with patterns[]: -1 for nothing. Returns points: 4 for one of the same name. */
static int32_t pair_names(const treadle_draft *d, const treadle_family *family, int32_t *patterns,
                          bool *taken) {
  int32_t points = 0;
  for (int32_t i = 0; i < d->drafted_count; i++) {
    const treadle_draft_tensor *p = &d->drafted[i];
    patterns[i] = -1;
    for (int32_t k = 0; k < family->pattern_count && patterns[i] == -1; k++)
      if (is_mtp_name(p, &family->patterns[k].full_name)) {
        patterns[i] = TREADLE_DRAFT_OTHERWISE;
        taken[k] = true;
      }
    for (int32_t k = 0; k < family->pattern_count && patterns[i] == -1; k++)
      if (!taken[k] && same_name(p, &family->patterns[k].full_name) && same_dims(p, &family->patterns[k]))
        patterns[i] = k;
    if (patterns[i] >= 0) take(family, taken, patterns[i]);
    for (int32_t r = 0; r < family->packed.count && patterns[i] == -1; r++) {
      const treadle_rule *rule = &family->packed.rules[r];
      if (!same_name(p, &rule->full_name)) continue;
      patterns[i] = TREADLE_DRAFT_OTHERWISE;
      for (int part = 0; part < rule->nparts; part++) taken[rule->parts[part].pattern] = true;
    }
    for (int32_t c = 0; c < family->carried_count && patterns[i] == -1; c++)
      if (treadle_text_starts(p->text, family->carried[c])) patterns[i] = TREADLE_DRAFT_OTHERWISE;
    if (patterns[i] == -1 && ends_with_name(p->text, "rotary_emb.inv_freq"))
      patterns[i] = TREADLE_DRAFT_OTHERWISE;
    points += patterns[i] >= 0 ? 4 : patterns[i] == TREADLE_DRAFT_OTHERWISE ? 3 : 0;
  }
  return points;
}

/* Pairs what is left by roles that one drafted and one pattern have. */
static int32_t pair_roles(const treadle_draft *d, const treadle_family *family, int32_t *patterns,
                          bool *taken) {
  int32_t paired = 0;
  for (int32_t i = 0; i < d->drafted_count; i++) {
    const treadle_draft_tensor *p = &d->drafted[i];
    int32_t found = -1, rivals = 0;
    if (patterns[i] != -1 || !p->role) continue;
    for (int32_t k = 0; k < d->drafted_count; k++)
      rivals += k != i && patterns[k] == -1 && d->drafted[k].role == p->role;
    for (int32_t k = 0; k < family->pattern_count; k++)
      if (!taken[k] && treadle_draft_pattern_role(family, &family->patterns[k]) == p->role &&
          family->patterns[k].in_layer == p->in_layer && same_dims(p, &family->patterns[k])) {
        bool twin = found >= 0 && treadle_draft_is_twin(family, k, found);
        rivals += found >= 0 && !twin;
        if (!twin) found = k;
      }
    if (rivals || found < 0) continue;
    patterns[i] = found;
    take(family, taken, found);
    paired++;
  }
  return paired;
}

/* ---- The nearest -------------------------------------------------------------------------------- */

treadle_status treadle_draft_score(const treadle_draft *d, const treadle_family *family, int64_t *score_p) {
  treadle_arena arena = {0};
  int32_t *patterns = treadle_arena_alloc_array(&arena, (size_t)d->drafted_count + 1, sizeof *patterns);
  bool *taken = treadle_arena_alloc_array(&arena, (size_t)family->pattern_count + 1, sizeof *taken);
  if (!patterns || !taken) {
    treadle_arena_release(&arena);
    return treadle_family_no_memory();
  }
  int64_t points = pair_names(d, family, patterns, taken), roles = pair_roles(d, family, patterns, taken);
  int64_t fused = treadle_draft_pair_fused(d, family, patterns, taken);
  *score_p = 10 * points + 30 * roles + 25 * fused + 5 * family->engine_count;
  for (int32_t i = 0; i < d->drafted_count; i++)
    if (patterns[i] == -1) *score_p -= 20;
  for (int32_t k = 0; k < family->pattern_count; k++)
    if (!taken[k] && family->patterns[k].scale_of < 0) *score_p -= family->patterns[k].when ? 1 : 20;
  if ((d->experts > 0) != (family->experts != NULL)) *score_p -= 100;
  if (family->config && !d->inner_name) *score_p -= 12; /* a part of a larger model */
  treadle_arena_release(&arena);
  return TREADLE_OK;
}

static treadle_status file_name_of(treadle_draft *d, const treadle_family *family, const char **name_p) {
  const char *slash = strrchr(family->path, '/'), *name = slash ? slash + 1 : family->path;
  *name_p = treadle_arena_format(d->arena, "%.*s", (int)(strlen(name) - strlen(".yaml")), name);
  return *name_p ? TREADLE_OK : treadle_family_no_memory();
}

static treadle_status find_nearest(treadle_draft *d, const char *folder, int64_t *best_p) {
  treadle_family **all;
  int32_t count;
  treadle_status status;
  TRY(treadle_family_all(folder, d->arena, &all, &count));
  for (int32_t i = 0; i < count; i++) {
    int64_t own = 0;
    TRY(treadle_draft_score(d, all[i], &own));
    if (d->like_name && own <= *best_p) continue;
    *best_p = own;
    TRY(file_name_of(d, all[i], &d->like_name));
  }
out:
  return status;
}

treadle_status treadle_draft_choose(treadle_draft *d, const char *like) {
  const treadle_yaml *root, *whole;
  int64_t best = 0;
  treadle_status status;
  d->like_name = like;
  if (!like && d->folder) TRY(find_nearest(d, d->folder, &best));
  if (!like) TRY(find_nearest(d, NULL, &best));
  TRY(treadle_family_load(&d->assembly, d->root, d->like_name, false, &root));
  TRY(treadle_family_read(root->file, root, d->folder, d->arena, &d->like));
  TRY(treadle_family_assemble(&d->assembly, root, &whole));
  d->like_tree = whole;
out:
  return status;
}

/* fp8 scales of tensors that have a pair. */
static void pair_scales(const treadle_draft *d, int32_t *patterns) {
  for (int32_t i = 0; i < d->drafted_count; i++) {
    size_t length = strlen(d->drafted[i].text);
    if (patterns[i] != -1 || length < 10 || strcmp(d->drafted[i].text + length - 10, "_scale_inv") != 0)
      continue;
    for (int32_t k = 0; k < d->drafted_count && patterns[i] == -1; k++)
      if (patterns[k] >= 0 && strlen(d->drafted[k].text) == length - 10 &&
          strncmp(d->drafted[k].text, d->drafted[i].text, length - 10) == 0)
        patterns[i] = TREADLE_DRAFT_SCALES;
  }
}

treadle_status treadle_draft_pair(treadle_draft *d) {
  int32_t *patterns = treadle_arena_alloc_array(d->arena, (size_t)d->drafted_count + 1, sizeof *patterns);
  bool *taken = treadle_arena_alloc_array(d->arena, (size_t)d->like->pattern_count + 1, sizeof *taken);
  if (!patterns || !taken) return treadle_family_no_memory();
  pair_names(d, d->like, patterns, taken);
  pair_roles(d, d->like, patterns, taken);
  treadle_draft_pair_fused(d, d->like, patterns, taken);
  pair_scales(d, patterns);
  for (int32_t i = 0; i < d->drafted_count; i++) d->drafted[i].pattern = patterns[i];
  d->taken = taken;
  return TREADLE_OK;
}
