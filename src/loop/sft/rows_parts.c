/* Which tokens of a row are those of a part of its text.
 *
 * The tokens of the whole text are what a model sees that is given the text. Mostly they are those of the parts, one after the other.
 * They are not where a tokenizer puts a sign for a space in front of a text, or joins characters across the border of parts. Then each
 * border is where the tokens of the text before it end, if the whole begins with these. If it does not, a token lies across the border:
 * the parts' own tokens are taken, since a model that has read the first part as a prompt goes on behind its tokens. */
#include "sft/rows_parts.h"

#include <stdlib.h>
#include <string.h>

typedef struct encoded {
  int32_t *ids;
  size_t count;
} encoded;

static treadle_status encode(const treadle_row_source *s, const char *text, size_t bytes, encoded *e) {
  treadle_status status;
  free(e->ids);
  *e = (encoded){0};
  status = treadle_tokenizer_encode(s->spec->tokenizer, text, bytes, false, &e->ids, &e->count);
  return status ? treadle_fail_in(status, "%s: ", s->name) : status;
}

treadle_status treadle_row_parts_add(treadle_row_parts *parts, const char *text, size_t bytes,
                                     treadle_row_counts counts) {
  treadle_row_part part = {.counts = counts};
  treadle_status status = TREADLE_OK;
  if (!bytes) return TREADLE_OK;
  TRY(treadle_text_bytes_add(&parts->text, text, bytes));
  part.end = parts->text.count;
  TRY(treadle_array_push(&parts->items, part));
out:
  return status;
}

void treadle_row_parts_release(treadle_row_parts *parts) {
  treadle_array_release(&parts->text);
  treadle_array_release(&parts->items);
}

/* ---- Borders --------------------------------------------------------------------------------------------- */

/* The tokens of each part, one after the other. */
static treadle_status encode_each(treadle_row_parts *parts, const treadle_row_source *s,
                                  treadle_token_ids *ids) {
  encoded e = {0};
  treadle_status status = TREADLE_OK;
  for (size_t p = 0, from = 0; p < parts->items.count; from = parts->items.items[p++].end) {
    treadle_row_part *part = &parts->items.items[p];
    TRY(encode(s, parts->text.items + from, part->end - from, &e));
    for (size_t i = 0; i < e.count; i++) TRY(treadle_array_push(ids, e.ids[i]));
    part->id_end = ids->count;
  }
out:
  free(e.ids);
  return status;
}

static bool begins_with(const encoded *whole, const int32_t *ids, size_t count) {
  return whole->count >= count && (!count || memcmp(whole->ids, ids, count * sizeof *ids) == 0);
}

/* Borders in the tokens of the whole; *found_p: there are all of them. */
static treadle_status find_borders(treadle_row_parts *parts, const treadle_row_source *s,
                                   const encoded *whole, size_t *ends, bool *found_p) {
  size_t last = parts->items.count - 1;
  encoded e = {0};
  treadle_status status = TREADLE_OK;
  *found_p = true;
  for (size_t p = 0; p < last && *found_p; p++) {
    TRY(encode(s, parts->text.items, parts->items.items[p].end, &e));
    *found_p = begins_with(whole, e.ids, e.count);
    ends[p] = e.count;
  }
  ends[last] = whole->count;
out:
  free(e.ids);
  return status;
}

/* The whole's tokens in place of the parts', where borders can be found in them. */
static treadle_status prefer_whole(treadle_row_parts *parts, const treadle_row_source *s,
                                   treadle_token_ids *ids) {
  size_t *ends = NULL, count = parts->items.count;
  encoded whole = {0};
  bool found;
  treadle_status status;
  TRY(encode(s, parts->text.items, parts->text.count, &whole));
  if (whole.count == ids->count && begins_with(&whole, ids->items, ids->count)) goto out;
  ends = treadle_alloc_array(count, sizeof *ends);
  if (!ends) TRY(treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its tokens", s->name));
  TRY(find_borders(parts, s, &whole, ends, &found));
  if (!found) goto out;
  ids->count = 0;
  for (size_t i = 0; i < whole.count; i++) TRY(treadle_array_push(ids, whole.ids[i]));
  for (size_t p = 0; p < count; p++) parts->items.items[p].id_end = ends[p];
out:
  treadle_free(ends);
  free(whole.ids);
  return status;
}

/* ---- Which tokens count ---------------------------------------------------------------------------------- */

/* Behind the end token of an answer, ids [from, to): the last eos_token, else the last special token, else all of it. */
static size_t end_of_answer(const treadle_tokenizer *tokenizer, const int32_t *ids, size_t from,
                            size_t to) {
  int32_t eos = tokenizer->special[TREADLE_EOS];
  for (size_t i = to; i > from; i--)
    if (ids[i - 1] == eos) return i;
  for (size_t i = to; i > from; i--) {
    treadle_token_info info = TREADLE_INIT(treadle_token_info);
    if (treadle_tokenizer_token(tokenizer, ids[i - 1], &info) == TREADLE_OK && info.special) return i;
  }
  return to;
}

/* mask [ids of all parts], zeroed. */
static void set_mask(const treadle_row_parts *parts, const treadle_tokenizer *tokenizer, const int32_t *ids,
                     uint8_t *mask) {
  for (size_t p = 0, from = 0; p < parts->items.count; from = parts->items.items[p++].id_end) {
    const treadle_row_part *part = &parts->items.items[p];
    size_t end = part->counts == TREADLE_ROW_CONTEXT  ? from
                 : part->counts == TREADLE_ROW_ANSWER ? end_of_answer(tokenizer, ids, from, part->id_end)
                                                      : part->id_end;
    memset(mask + from, 1, end - from);
  }
}

/* The row of tokens `ids`, with those before and behind them. */
static treadle_status make_row(const treadle_row_parts *parts, const treadle_row_source *s,
                               const treadle_token_ids *ids, treadle_sft_row *row) {
  const treadle_tokenizer *tokenizer = s->spec->tokenizer;
  size_t before = parts->begins ? tokenizer->before.count : 0, count = before + ids->count + parts->ends;
  int32_t *to = treadle_arena_alloc_array(s->arena, count + 1, sizeof *to);
  uint8_t *mask = treadle_arena_alloc_array(s->arena, count + 1, sizeof *mask);
  if (!to || !mask) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its tokens", s->name);
  if (before) memcpy(to, tokenizer->before.items, before * sizeof *to);
  if (ids->count) memcpy(to + before, ids->items, ids->count * sizeof *to);
  set_mask(parts, tokenizer, ids->items, mask + before);
  if (parts->ends) to[count - 1] = tokenizer->special[TREADLE_EOS];
  if (parts->ends) mask[count - 1] = 1;
  mask[0] = 0; /* it has none before it */
  while (count > 0 && !mask[count - 1]) count--;
  *row = (treadle_sft_row){.ids = to, .mask = mask, .count = count};
  return TREADLE_OK;
}

treadle_status treadle_row_parts_keep(treadle_row_parts *parts, const treadle_row_source *s,
                                      treadle_sft_row *row) {
  treadle_token_ids ids = {0};
  treadle_status status;
  TRY(treadle_row_need_tokenizer(s));
  if (parts->ends && s->spec->tokenizer->special[TREADLE_EOS] < 0)
    REFUSE("%s: the tokenizer has no end token (eos_token) to put behind a response", s->name);
  TRY(encode_each(parts, s, &ids));
  if (parts->items.count > 1) TRY(prefer_whole(parts, s, &ids));
  TRY(make_row(parts, s, &ids, row));
out:
  treadle_array_release(&ids);
  return status;
}
