#include "train/sequence_losses.h"

#include <string.h>

void treadle_sequence_losses_begin(treadle_sequence_losses *s) {
  s->count = 0;
  s->parts = 0;
}

/* A part more; -1: of no tokens. */
static int32_t add_part(treadle_sequence_losses *s, treadle_row_range tokens) {
  if (tokens.first == tokens.end) return -1;
  for (int64_t t = tokens.first; t < tokens.end; t++) s->part[t] = s->parts;
  s->tokens[s->parts] = tokens.end - tokens.first;
  return s->parts++;
}

void treadle_sequence_losses_add(treadle_sequence_losses *s, treadle_row_range shared, bool brings,
                                 treadle_row_range own) {
  treadle_row_parts row = {.prompt = -1};
  if (!s->part) return;
  if (brings)
    row.prompt = add_part(s, shared);
  else if (shared.first < shared.end)
    row.prompt = s->part[shared.first];
  row.own = add_part(s, own);
  s->rows[s->count++] = row;
}

static void count_choices(treadle_sequence_losses *s, const treadle_routed *routed, int64_t top) {
  int64_t rows = 0;
  memset(s->chosen, 0, (size_t)(s->parts * s->experts) * sizeof *s->chosen);
  for (int32_t p = 0; p < s->parts; p++) rows += s->tokens[p];
  for (int64_t i = 0; i < rows * top; i++) s->chosen[s->part[i / top] * s->experts + routed[i].expert]++;
}

/* E / (k T^2) of a row of T tokens, whose tokens are those of both parts. A prompt's are those of all its rows. */
static void add_row(treadle_sequence_losses *s, const treadle_row_parts *row, double each) {
  const int32_t parts[] = {row->prompt, row->own};
  int64_t tokens = 0;
  for (int i = 0; i < 2; i++) tokens += parts[i] < 0 ? 0 : s->tokens[parts[i]];
  for (int64_t e = 0; e < s->experts; e++) {
    int64_t chosen = 0;
    for (int i = 0; i < 2; i++) chosen += parts[i] < 0 ? 0 : s->chosen[parts[i] * s->experts + e];
    const float by = (float)(each / ((double)tokens * (double)tokens) * (double)chosen);
    for (int i = 0; i < 2; i++)
      if (parts[i] >= 0) s->by_probability[parts[i] * s->experts + e] += by;
  }
}

void treadle_sequence_losses_find(treadle_sequence_losses *s, const treadle_routed *routed, int64_t top,
                                  double each) {
  count_choices(s, routed, top);
  memset(s->by_probability, 0, (size_t)(s->parts * s->experts) * sizeof *s->by_probability);
  for (int64_t r = 0; r < s->count; r++) add_row(s, &s->rows[r], each / (double)s->count);
}
