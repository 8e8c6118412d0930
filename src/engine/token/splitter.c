/* Cutting words. Each step goes through the words of the step before. Its matches in a word, and what lies between them, are cuts; the
 * behavior joins cuts to the words of the next step. Steps that change the text write a new one. */
#include "token/splitter.h"

#include "base/limits.h"
#include "token/normalizer.h"

#include <string.h>

/* ---- Cuts of one word ---- */

static treadle_status add_cut(treadle_splitter_room *room, size_t start, size_t end, bool match) {
  treadle_text_cut cut = {start, end, match};
  return treadle_array_push(&room->cuts, cut);
}

static treadle_status find_pattern(const treadle_regex *pattern, treadle_splitter_room *room,
                                   const char *text, treadle_text_word word) {
  treadle_regex_search search = {
      .regex = pattern, .room = room->regex, .text = text + word.start, .bytes = word.bytes};
  treadle_status status;
  bool found;
  size_t done = 0;
  for (;;) {
    TRY(treadle_regex_next(&search, &found));
    if (!found) break;
    if (search.start > done) TRY(add_cut(room, word.start + done, word.start + search.start, false));
    TRY(add_cut(room, word.start + search.start, word.start + search.end, true));
    done = search.end;
  }
  if (done < word.bytes) TRY(add_cut(room, word.start + done, word.start + word.bytes, false));
out:
  return status;
}

/* Each character of a class is a match of its own. */
static treadle_status find_class(bool (*is_match)(uint32_t code), treadle_splitter_room *room,
                                 const char *text, treadle_text_word word) {
  treadle_status status = TREADLE_OK;
  size_t end = word.start + word.bytes, done = word.start, length;
  for (size_t at = word.start; at < end; at += length) {
    uint32_t code;
    length = treadle_utf8_decode(text + at, &code);
    if (!is_match(code)) continue;
    if (at > done) TRY(add_cut(room, done, at, false));
    TRY(add_cut(room, at, at + length, true));
    done = at + length;
  }
  if (done < end) TRY(add_cut(room, done, end, false));
out:
  return status;
}

/* Joins cuts where the behavior says so; a cut that goes away becomes empty. */
static void behave(treadle_text_cut *cuts, size_t count, treadle_split_behavior behavior) {
  bool before = false;
  size_t last = 0; /* the word that may grow */
  for (size_t k = 0; k < count; k++) {
    bool backwards = behavior == TREADLE_SPLIT_WITH_NEXT;
    size_t i = backwards ? count - 1 - k : k;
    treadle_text_cut *cut = &cuts[i];
    bool match = cut->match, joins = false;
    if (behavior == TREADLE_SPLIT_REMOVED && match) cut->end = cut->start;
    if (behavior == TREADLE_SPLIT_CONTIGUOUS) joins = match == before;
    if (behavior == TREADLE_SPLIT_WITH_PREVIOUS || backwards) joins = match && !before;
    before = match;
    if (!joins || k == 0) {
      last = i;
    } else if (backwards) {
      cuts[last].start = cut->start;
      cut->end = cut->start;
    } else {
      cuts[last].end = cut->end;
      cut->start = cut->end;
    }
  }
}

/* The cuts of a word as words of the next step. */
static treadle_status keep_cuts(treadle_splitter_room *room, treadle_text_word word) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < room->cuts.count; i++) {
    const treadle_text_cut *cut = &room->cuts.items[i];
    treadle_text_word part = {cut->start, cut->end - cut->start, word.first && cut->start == word.start};
    if (part.bytes > 0) TRY(treadle_array_push(&room->next.items, part));
  }
out:
  return status;
}

/* ---- Steps ---- */

static treadle_status split(const treadle_splitter *step, treadle_splitter_room *room, const char *text,
                            treadle_text_word word) {
  treadle_status status;
  room->cuts.count = 0;
  TRY(step->type == TREADLE_SPLIT_CLASS ? find_class(step->is_match, room, text, word)
                                        : find_pattern(step->pattern, room, text, word));
  for (size_t i = 0; step->invert && i < room->cuts.count; i++)
    room->cuts.items[i].match = !room->cuts.items[i].match;
  behave(room->cuts.items, room->cuts.count, step->behavior);
  TRY(keep_cuts(room, word));
out:
  return status;
}

/* Cuts by GPT-2's pattern, and writes each part in the byte-level alphabet. */
static treadle_status byte_level(const treadle_splitter *step, treadle_splitter_room *room,
                                 treadle_text_bytes *spare, const char *text, treadle_text_word word) {
  treadle_status status = TREADLE_OK;
  treadle_text_bytes *made = &room->next.text;
  if (step->prepend == TREADLE_PREPEND_ALWAYS && text[word.start] != ' ') {
    spare->count = 0;
    TRY(treadle_text_bytes_add(spare, " ", 1));
    TRY(treadle_text_bytes_add(spare, text + word.start, word.bytes));
    text = spare->items;
    word.start = 0;
    word.bytes = spare->count;
  }
  room->cuts.count = 0;
  TRY(step->pattern ? find_pattern(step->pattern, room, text, word)
                    : add_cut(room, word.start, word.start + word.bytes, false));
  for (size_t i = 0; i < room->cuts.count; i++) {
    const treadle_text_cut *cut = &room->cuts.items[i];
    treadle_text_word part = {made->count, 0, word.first && cut->start == word.start};
    TRY(treadle_byte_level_add(made, text + cut->start, cut->end - cut->start));
    part.bytes = made->count - part.start;
    if (part.bytes > 0) TRY(treadle_array_push(&room->next.items, part));
  }
out:
  return status;
}

/* Spaces become the sign, one may be put in front, and the word may be cut in front of each. */
static treadle_status metaspace(const treadle_splitter *step, treadle_splitter_room *room, const char *text,
                                treadle_text_word word) {
  treadle_status status = TREADLE_OK;
  treadle_text_bytes *made = &room->next.text;
  const char *from = text + word.start, *end = from + word.bytes;
  treadle_text_word part = {made->count, 0, word.first};
  bool has =
      *from == ' ' || (word.bytes >= step->sign_bytes && memcmp(from, step->sign, step->sign_bytes) == 0);
  if (!has &&
      (step->prepend == TREADLE_PREPEND_ALWAYS || (step->prepend == TREADLE_PREPEND_FIRST && word.first)))
    TRY(treadle_text_bytes_add(made, step->sign, step->sign_bytes));
  for (const char *at = from; at < end; at = from) {
    while (from < end && *from != ' ') from++;
    TRY(treadle_text_bytes_add(made, at, (size_t)(from - at)));
    if (from == end) break;
    TRY(treadle_text_bytes_add(made, step->sign, step->sign_bytes));
    from++;
  }
  part.bytes = made->count - part.start;
  if (!step->cut) return treadle_array_push(&room->next.items, part);
  size_t start = part.start;
  for (size_t at = part.start + 1; at + step->sign_bytes <= made->count; at++) {
    if (memcmp(made->items + at, step->sign, step->sign_bytes) != 0) continue;
    treadle_text_word one = {start, at - start, part.first && start == part.start};
    TRY(treadle_array_push(&room->next.items, one));
    start = at;
  }
  treadle_text_word last = {start, made->count - start, part.first && start == part.start};
  TRY(treadle_array_push(&room->next.items, last));
out:
  return status;
}

static bool makes_text(const treadle_splitter *step) {
  return step->type == TREADLE_SPLIT_BYTE_LEVEL || step->type == TREADLE_SPLIT_METASPACE;
}

static treadle_status run_step(const treadle_splitter *step, treadle_splitter_room *room,
                               treadle_text_words *words) {
  treadle_status status = TREADLE_OK;
  treadle_text_bytes spare = {0};
  room->next.text.count = room->next.items.count = 0;
  for (size_t i = 0; i < words->items.count; i++) {
    treadle_text_word word = words->items.items[i];
    const char *text = words->text.items;
    TRY(step->type == TREADLE_SPLIT_BYTE_LEVEL  ? byte_level(step, room, &spare, text, word)
        : step->type == TREADLE_SPLIT_METASPACE ? metaspace(step, room, text, word)
                                                : split(step, room, text, word));
  }
  treadle_text_words made = room->next;
  if (!makes_text(step)) { /* the words are of the text that stands */
    made.text = words->text;
    words->text = room->next.text;
  }
  room->next = *words;
  *words = made;
  if (words->text.count > (size_t)TREADLE_MAX_TEXT_BYTES * 4)
    TRY(treadle_fail(TREADLE_REFUSED, "the pre-tokenizer makes a text of more than %lld bytes",
                     (long long)TREADLE_MAX_TEXT_BYTES * 4));
out:
  treadle_array_release(&spare);
  return status;
}

treadle_status treadle_splitters_run(const treadle_splitters *steps, treadle_splitter_room *room,
                                     treadle_text_words *words) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < steps->count; i++) TRY(run_step(&steps->items[i], room, words));
out:
  return status;
}

void treadle_text_words_release(treadle_text_words *words) {
  treadle_array_release(&words->text);
  treadle_array_release(&words->items);
}
