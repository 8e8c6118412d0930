#include "rl/coordinate_tokens.h"

#include "base/alloc.h"

treadle_status treadle_rl_tokens_open(treadle_rl_tokens *t, size_t coordinates) {
  if (t->coordinates && t->coordinates != coordinates)
    REFUSE("the train engine divides rows among %zu data parallel coordinates, and before among %zu",
           coordinates, t->coordinates);
  if (t->coordinates) return TREADLE_OK;
  t->came = treadle_alloc_array(2 * coordinates, sizeof *t->came);
  if (!t->came)
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the tokens of %zu coordinates", coordinates);
  t->given = t->came + coordinates;
  t->coordinates = coordinates;
  return TREADLE_OK;
}

void treadle_rl_tokens_release(treadle_rl_tokens *t) {
  treadle_free(t->came);
  *t = (treadle_rl_tokens){0};
}

static void find_ends(const int64_t *tokens, size_t coordinates, int64_t *least_p, int64_t *most_p) {
  *least_p = *most_p = tokens[0];
  for (size_t c = 1; c < coordinates; c++) {
    if (tokens[c] < *least_p) *least_p = tokens[c];
    if (tokens[c] > *most_p) *most_p = tokens[c];
  }
}

void treadle_rl_tokens_values(const treadle_rl_tokens *t, treadle_rl_values *values) {
  int64_t least, most, all = 0;
  if (!t->coordinates) return;
  find_ends(t->came, t->coordinates, &least, &most);
  treadle_rl_count(values, "global_seqlen/min", least);
  treadle_rl_count(values, "global_seqlen/max", most);
  treadle_rl_count(values, "global_seqlen/minmax_diff", most - least);
  find_ends(t->given, t->coordinates, &least, &most);
  treadle_rl_count(values, "global_seqlen/balanced_min", least);
  treadle_rl_count(values, "global_seqlen/balanced_max", most);
  for (size_t c = 0; c < t->coordinates; c++) all += t->came[c];
  treadle_rl_value(values, "global_seqlen/mean", (double)all / (double)t->coordinates);
}
