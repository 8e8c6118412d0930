/* Which layouts a pass computes in. */
#include "pass/pass.h"

#include "base/hash.h"
#include "base/text.h"
#include "group/group.h"
#include "layout/settings.h"

#include <string.h>

/* A layout that is computed in, and a size of it that must be 1, but where a word of it is on; NULL: all of its sizes will do. */
typedef struct layout_rule {
  const char *type, *key, *what, *unless;
} layout_rule;

static const layout_rule rules[] = {
    {"hf", NULL, NULL, NULL},
    {"vllm", "dp", "data-parallel attention without ep=on", "ep"},
    {"vllm", "pcp", "context parallelism", NULL},
    {"sglang", "attn_dp", "data-parallel attention", NULL},
    {"sglang", "attn_cp", "context parallelism", NULL},
    {"megatron", "cp", "context parallelism", NULL},
};

treadle_status treadle_pass_check_layout(const treadle_layout *layout, bool divides_rows) {
  treadle_arena arena = {0};
  treadle_settings settings;
  bool known = false, excepted = false;
  int64_t size = 1;
  treadle_status status;
  TRY(treadle_layout_check_whole_group(layout, "the engine runs on all ranks of its group"));
  TRY(treadle_settings_parse(layout->text, &arena, &settings));
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    if (strcmp(settings.type, rules[i].type) != 0) continue;
    known = true;
    if (!rules[i].key || (divides_rows && strcmp(rules[i].key, "cp") == 0)) continue;
    TRY(treadle_settings_size(&settings, rules[i].key, 1, &size));
    if (rules[i].unless) TRY(treadle_settings_flag(&settings, rules[i].unless, &excepted));
    if (size == 1 || (rules[i].unless && excepted)) continue;
    status = treadle_fail(TREADLE_REFUSED, "layout '%s': %s=%lld: the engine has no %s", layout->text,
                          rules[i].key, (long long)size, rules[i].what);
    goto out;
  }
  if (!known)
    status = treadle_fail(TREADLE_REFUSED,
                          "layout '%s': the engine computes in vllm, sglang, hf and megatron layouts",
                          layout->text);
out:
  treadle_arena_release(&arena);
  return status;
}

treadle_status treadle_pass_check_ranks(const treadle_layout *layout, const treadle_group *group) {
  int ranks = group ? treadle_group_size(group) : 1;
  if (layout->ranks == ranks) return TREADLE_OK;
  return treadle_fail(TREADLE_REFUSED, "layout '%s' is for %s, the group has %d", layout->text,
                      treadle_text_of_count(layout->ranks, "rank"), ranks);
}

treadle_status treadle_pass_agree(treadle_group *group, const char *name, const treadle_layout *layout,
                                  uint64_t options, treadle_status status) {
  const treadle_group_call call = {
      .name = name,
      .alike = {{.what = "layout", .hash = treadle_hash_text(layout->text, (uint64_t)layout->ranks)},
                {.what = "options", .hash = options}},
      .count = 2};
  return group ? treadle_group_agree_on(group, status, &call) : status;
}
