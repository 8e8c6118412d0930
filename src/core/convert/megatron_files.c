/* Megatron's files. Names are those of get_checkpoint_name (megatron/training/checkpointing.py): mp_rank_TT without
 * pipeline stages and expert ranks, _PPP behind it with stages, _EEE with expert ranks. */
#include "convert/megatron_files.h"

#include "base/divisor.h"
#include "layout/settings.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* pp * lcm(tp * cp, etp * ep) ranks, or the data parallel size that the text asks for. */
static treadle_status smallest_world(const char *text, treadle_arena *arena, int64_t *ranks_p) {
  treadle_settings words;
  treadle_status status;
  int64_t tp, cp, pp, ep, etp, dp, dense, expert;
  TRY(treadle_settings_parse(text, arena, &words));
  TRY(treadle_settings_size(&words, "tp", 1, &tp));
  TRY(treadle_settings_size(&words, "cp", 1, &cp));
  TRY(treadle_settings_size(&words, "pp", 1, &pp));
  TRY(treadle_settings_size(&words, "ep", 1, &ep));
  TRY(treadle_settings_size(&words, "etp", tp, &etp));
  TRY(treadle_settings_size(&words, "dp", 0, &dp));
  if (__builtin_mul_overflow(tp, cp, &dense) || __builtin_mul_overflow(etp, ep, &expert) ||
      (dp && __builtin_mul_overflow(dense, dp, &dense)) ||
      __builtin_mul_overflow(dense, dp ? 1 : expert / treadle_common_divisor(dense, expert), ranks_p) ||
      __builtin_mul_overflow(*ranks_p, pp, ranks_p) || *ranks_p > 1 << 20)
    status = treadle_fail(TREADLE_REFUSED,
                          "layout '%s': more than 2^20 ranks; a checkpoint has fewer files", text);
out:
  return status;
}

typedef struct named_rank {
  int64_t rank;
  int64_t tp, pp, ep;
} named_rank;

static int compare_names(const void *a_, const void *b_) {
  const named_rank *a = a_, *b = b_;
  if (a->tp != b->tp) return a->tp < b->tp ? -1 : 1;
  if (a->pp != b->pp) return a->pp < b->pp ? -1 : 1;
  if (a->ep != b->ep) return a->ep < b->ep ? -1 : 1;
  return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static const char *name_of(const named_rank *at, bool stages, bool experts, treadle_arena *arena) {
  char stage[24] = "", expert[24] = "";
  if (stages) snprintf(stage, sizeof stage, "_%03" PRId64, at->pp);
  if (experts) snprintf(expert, sizeof expert, "_%03" PRId64, at->ep);
  return treadle_arena_format(arena, "mp_rank_%02" PRId64 "%s%s", at->tp, stage, expert);
}

static treadle_status no_memory(const char *text) {
  return treadle_fail(TREADLE_NO_MEMORY, "layout '%s': no memory for its files", text);
}

treadle_status treadle_megatron_files_make(const treadle_model *model, const char *layout_text,
                                           treadle_arena *arena, treadle_megatron_files *world) {
  treadle_status status;
  int64_t ranks;
  named_rank *at = NULL;
  bool stages = false, experts = false;
  *world = (treadle_megatron_files){0};
  TRY(smallest_world(layout_text, arena, &ranks));
  TRY(treadle_layout_create(model, layout_text, ranks, NULL, &world->layout));
  TRY(treadle_layout_check_whole_group(world->layout, "a checkpoint has the files of all ranks"));
  at = treadle_alloc_array((size_t)ranks, sizeof *at);
  world->names = treadle_arena_alloc_array(arena, (size_t)ranks, sizeof *world->names);
  world->ranks = treadle_arena_alloc_array(arena, (size_t)ranks, sizeof *world->ranks);
  world->file_of = treadle_arena_alloc_array(arena, (size_t)ranks, sizeof *world->file_of);
  if (!at || !world->names || !world->ranks || !world->file_of) TRY(no_memory(layout_text));
  for (int64_t r = 0; r < ranks; r++) {
    at[r].rank = r;
    TRY(treadle_layout_coordinate(world->layout, r, "tp", &at[r].tp));
    TRY(treadle_layout_coordinate(world->layout, r, "pp", &at[r].pp));
    TRY(treadle_layout_coordinate(world->layout, r, "ep", &at[r].ep));
    stages |= at[r].pp > 0;
    experts |= at[r].ep > 0;
  }
  qsort(at, (size_t)ranks, sizeof *at, compare_names);
  for (int64_t i = 0; i < ranks; i++) {
    const named_rank *before = i ? &at[i - 1] : NULL;
    if (!before || before->tp != at[i].tp || before->pp != at[i].pp || before->ep != at[i].ep) {
      world->ranks[world->file_count] = at[i].rank;
      world->names[world->file_count] = name_of(&at[i], stages, experts, arena);
      if (!world->names[world->file_count++]) TRY(no_memory(layout_text));
    } else if (treadle_layout_place(world->layout, at[i].rank) !=
               treadle_layout_place(world->layout, before->rank)) {
      TRY(treadle_fail(
          TREADLE_REFUSED,
          "layout '%s': ranks %" PRId64 " and %" PRId64
          " hold different parts of the experts, and Megatron would write both to %s: its names know "
          "tp, pp and ep only",
          layout_text, before->rank, at[i].rank, world->names[world->file_count - 1]));
    }
    world->file_of[at[i].rank] = world->file_count - 1;
    int32_t count;
    const treadle_storage *storages = treadle_layout_storages(world->layout, at[i].rank, &count);
    for (int32_t s = 0; s < count; s++) world->chunked |= storages[s].chunk > 0;
  }
out:
  treadle_free(at);
  return status;
}
