/* Block scales: for each pattern that fp8 files hold in blocks, a pattern of scales beside it, and for each rule of vLLM and
 * SGLang that stores such patterns, a rule that stores their scales in the same way. A family file only names
 * what is quantised. docs/rules.md 4.10. */
#include "family/read.h"

#include <string.h>

static const char suffix[] = "_scale_inv";

static bool is_quantised(const treadle_family *family, const treadle_pattern *pattern) {
  size_t length = strlen(pattern->name);
  for (int32_t i = 0; i < family->quantised_count; i++) {
    size_t end = strlen(family->quantised[i]);
    if (length >= end && strcmp(pattern->name + length - end, family->quantised[i]) == 0) return true;
  }
  return false;
}

/* The name of the scales of what has this name. */
static treadle_status add_suffix(treadle_arena *arena, treadle_name *name) {
  name->text = treadle_arena_format(arena, "%s%s", name->text, suffix);
  if (name->mtp) name->mtp = treadle_arena_format(arena, "%s%s", name->mtp, suffix);
  return name->text ? TREADLE_OK : treadle_family_no_memory();
}

/* scale_kind[k]: the pattern of k's scales, or -1. */
static treadle_status add_patterns(treadle_family_reader *reader, int32_t *scale_pattern) {
  treadle_family *family = reader->family;
  int32_t count = family->pattern_count;
  treadle_status status = TREADLE_OK;
  treadle_pattern *patterns = treadle_arena_alloc_array(reader->arena, 2 * (size_t)count, sizeof *patterns);
  if (!patterns) return treadle_family_no_memory();
  memcpy(patterns, family->patterns, (size_t)count * sizeof *patterns);
  for (int32_t k = 0; k < count; k++) {
    int dims = patterns[k].ndim - patterns[k].experts;
    scale_pattern[k] = -1;
    if (!is_quantised(family, &patterns[k]) || patterns[k].packed || dims != 2 || patterns[k].same_as >= 0)
      continue;
    treadle_pattern *scale = &patterns[family->pattern_count];
    *scale = patterns[k];
    TRY(add_suffix(reader->arena, &scale->full_name));
    scale->name = scale->full_name.text;
    scale->dtype = TREADLE_FP32;
    scale->scale_of = k;
    scale_pattern[k] = family->pattern_count++;
  }
  family->patterns = patterns;
out:
  return status;
}

/* Does the rule store nothing but whole patterns that have scales? */
static bool has_scales(const treadle_rule *rule, const int32_t *scale_pattern) {
  for (int p = 0; p < rule->nparts; p++)
    if (rule->parts[p].view >= 0 || scale_pattern[rule->parts[p].pattern] < 0) return false;
  return rule->nparts > 0 && !rule->fuse && !rule->derived;
}

static treadle_status add_rules(treadle_family_reader *reader, const int32_t *scale_pattern,
                                treadle_engine_rules *engine) {
  treadle_status status = TREADLE_OK;
  int32_t count = 0;
  treadle_rule *rules = treadle_arena_alloc_array(reader->arena, 2 * (size_t)engine->count, sizeof *rules);
  if (!rules) return treadle_family_no_memory();
  for (int32_t r = 0; r < engine->count; r++) {
    rules[count++] = engine->rules[r];
    if (!has_scales(&engine->rules[r], scale_pattern)) continue;
    treadle_rule *scales = &rules[count++];
    *scales = engine->rules[r];
    if (scales->round || scales->least || scales->shown_count)
      return treadle_fail(TREADLE_REFUSED,
                          "%s line %d: %s is quantised, and so cannot have round, least or shown",
                          scales->file, scales->line, scales->name);
    TRY(add_suffix(reader->arena, &scales->full_name));
    for (int i = 0; i < scales->others; i++) TRY(add_suffix(reader->arena, &scales->other[i].name));
    scales->name = scales->full_name.text;
    for (int p = 0; p < scales->nparts; p++)
      scales->parts[p].pattern = scale_pattern[scales->parts[p].pattern];
    scales->dtype = TREADLE_FP32;
    scales->scales = true;
  }
  engine->rules = rules;
  engine->count = count;
out:
  return status;
}

treadle_status treadle_family_add_scales(treadle_family_reader *reader) {
  treadle_family *family = reader->family;
  treadle_status status = TREADLE_OK;
  int32_t *scale_pattern =
      treadle_arena_alloc_array(reader->arena, (size_t)family->pattern_count, sizeof *scale_pattern);
  if (!scale_pattern) return treadle_family_no_memory();
  TRY(add_patterns(reader, scale_pattern));
  for (int32_t e = 0; e < family->engine_count; e++)
    if (strcmp(family->engines[e].engine, "megatron") != 0)
      TRY(add_rules(reader, scale_pattern, &family->engines[e]));
out:
  return status;
}
