/* Pipeline tables. Every table is checked to hold each layer exactly once. */
#include "grid/stages.h"

#include "base/checked.h"
#include "base/divisor.h"
#include "base/limits.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Tables are made of stages: of no more than a model could fill. */
static treadle_status check_stages(const char *what, int64_t stages, int64_t per_stage) {
  int64_t count;
  if (!treadle_mul_fits(stages, per_stage, &count) || count > TREADLE_MAX_STAGES)
    REFUSE("layout '%s': %" PRId64 " stages of %" PRId64 " virtual ones; at most %d in all will do", what,
           stages, per_stage, TREADLE_MAX_STAGES);
  return TREADLE_OK;
}

/* items is [stages, per_stage]: chunk v of stage p is items[p * per_stage + v]. Until something else is
 * said the first chunk of all has the embedding, and the last one the final norm and the head. */
static treadle_status make_chunks(int64_t stages, int64_t per_stage, treadle_arena *arena,
                                  treadle_chunks *chunks) {
  chunks->stages = (int32_t)stages;
  chunks->count = (int32_t)(stages * per_stage);
  chunks->items = treadle_arena_alloc_array(arena, (size_t)chunks->count, sizeof *chunks->items);
  if (!chunks->items) return treadle_fail(TREADLE_NO_MEMORY, "pipeline table: memory is out");
  for (int32_t i = 0; i < chunks->count; i++) {
    chunks->items[i].stage = i / (int32_t)per_stage;
    chunks->items[i].number = i % (int32_t)per_stage;
  }
  chunks->items[0].first = true;
  chunks->items[chunks->count - 1].last = chunks->items[chunks->count - 1].norm = true;
  return TREADLE_OK;
}

/* A chunk has layers in a row: [first, first + count). */
static treadle_status set_layers(treadle_chunk *chunk, int64_t first, int64_t count, treadle_arena *arena) {
  chunk->layer_count = (int32_t)count;
  chunk->layers = treadle_arena_alloc_array(arena, (size_t)count + 1, sizeof *chunk->layers);
  if (!chunk->layers) return treadle_fail(TREADLE_NO_MEMORY, "pipeline table: memory is out");
  for (int64_t i = 0; i < count; i++) chunk->layers[i] = (int32_t)(first + i);
  return TREADLE_OK;
}

/* No layer twice and as many as there are: so each of them once. */
static treadle_status check_cover(const char *what, int64_t layers, const treadle_chunks *chunks,
                                  treadle_arena *arena) {
  char *seen = treadle_arena_alloc(arena, (size_t)layers + 1);
  if (!seen) return treadle_fail(TREADLE_NO_MEMORY, "pipeline table: memory is out");
  int64_t total = 0;
  for (int32_t i = 0; i < chunks->count; i++)
    for (int32_t j = 0; j < chunks->items[i].layer_count; j++, total++) {
      int32_t layer = chunks->items[i].layers[j];
      if (layer < 0 || layer >= layers || seen[layer])
        REFUSE("layout '%s': the stages do not hold each of %s once (layer %d)", what,
               treadle_text_of_count(layers, "layer"), layer);
      seen[layer] = 1;
    }
  if (total != layers)
    REFUSE("layout '%s': the stages hold %" PRId64 " of %s; each layer needs a stage", what, total,
           treadle_text_of_count(layers, "layer"));
  return TREADLE_OK;
}

/* ---- Megatron: counts ---- */

/* What to give where a number of layers does not divide: a count of its own for the first stage with which the others have equal counts
 * that vpp divides, and the fullest stage the fewest layers. o->last stays. 61 layers over pp = 4: first=16 leaves 15 to each. */
static const char *first_instead(int64_t layers, const treadle_megatron_stages *o, char text[112]) {
  const int64_t rest = layers - o->last, others = o->pp - 1 - (o->last > 0), vpp = o->vpp;
  int64_t best = 0, least = layers + 1;
  if (others > 0 && o->last % vpp == 0)
    for (int64_t each = vpp; each < rest && others < rest && each <= rest / others; each += vpp) {
      int64_t first = rest - each * others, fullest = first > each ? first : each;
      if (first < 1 || first % vpp != 0 || fullest >= least) continue;
      best = first;
      least = fullest;
    }
  if (best)
    snprintf(text, 112, "give the first stage its own count with first=%" PRId64, best);
  else
    snprintf(text, 112, "%s",
             layers < o->pp ? "pp is at most the number of layers"
                            : "say with layout= which layers each stage has");
  return text;
}

/* Slots of every stage; a slot is a layer, or the embedding or the loss where they are accounted for. slots
 * is [pp], docs/rules.md 2.1. 61 layers over pp = 4 with first = 13 are 13, 16, 16, 16; 14 layers with both
 * splits are 16 slots, 4 each. */
static treadle_status slots_of_stages(const char *what, int64_t layers, const treadle_megatron_stages *o,
                                      int64_t *slots) {
  int64_t pp = o->pp, others = pp - (o->first > 0) - (o->last > 0);
  char instead[112];
  if (o->first > 0 || o->last > 0) {
    if (o->embedding_split || o->loss_split)
      REFUSE("layout '%s': first and last do not go with embedding_split and loss_split; leave out the "
             "ones or the "
             "others",
             what);
    if (pp == 1 && o->first > 0 && o->last > 0)
      REFUSE("layout '%s': first and last are the same stage when pp=1; leave them out", what);
    int64_t rest = layers - o->first - o->last;
    if (rest < 0 || (others == 0 && rest != 0) || (others > 0 && rest % others != 0))
      REFUSE("layout '%s': %s less first=%" PRId64 " and last=%" PRId64
             " cannot be divided evenly over %s; %s",
             what, treadle_text_of_count(layers, "layer"), o->first, o->last,
             treadle_text_of_count(others, "other stage"), first_instead(layers, o, instead));
    if (others > 0 && rest == 0) /* transformer_config.py: middle stages and layers for them, or neither */
      REFUSE("layout '%s': first=%" PRId64 " and last=%" PRId64
             " are all of %s and leave none to the other stages; %s",
             what, o->first, o->last, treadle_text_of_count(layers, "layer"),
             first_instead(layers, o, instead));
    for (int64_t p = 0; p < pp; p++) slots[p] = others > 0 ? rest / others : 0;
    if (o->first > 0) slots[0] = o->first;
    if (o->last > 0) slots[pp - 1] = o->last;
    return TREADLE_OK;
  }
  int64_t total = layers + o->embedding_split + o->loss_split;
  if (total % pp != 0)
    REFUSE("layout '%s': %s%s %s not divisible by pp=%" PRId64 "; %s", what,
           treadle_text_of_count(total, "layer"), total > layers ? " (with embedding and loss)" : "",
           total == 1 ? "is" : "are", pp,
           total > layers ? "say with layout= which layers each stage has"
                          : first_instead(layers, o, instead));
  for (int64_t p = 0; p < pp; p++) slots[p] = total / pp;
  return TREADLE_OK;
}

static treadle_status stages_by_count(const char *what, int64_t layers, const treadle_megatron_stages *o,
                                      treadle_arena *arena, treadle_chunks *chunks) {
  treadle_status status = TREADLE_OK;
  int64_t pp = o->pp, vpp = o->vpp;
  char instead[TREADLE_DIVISORS_ROOM];
  if (vpp > 1 && pp == 1)
    REFUSE("layout '%s': vpp=%" PRId64 " needs pp greater than 1; leave vpp out", what, vpp);
  int64_t *slots = treadle_arena_alloc_array(arena, (size_t)pp, sizeof *slots);
  if (!slots) return treadle_fail(TREADLE_NO_MEMORY, "pipeline table: memory is out");
  TRY(slots_of_stages(what, layers, o, slots));
  for (int64_t p = 0; p < pp; p++)
    if (slots[p] % vpp != 0)
      REFUSE("layout '%s': %s of stage %" PRId64 " %s not divisible by vpp=%" PRId64 "; %s", what,
             treadle_text_of_count(slots[p], "layer"), p, slots[p] == 1 ? "is" : "are", vpp,
             treadle_divisors_near("vpp", slots[p], vpp, 1, instead));
  TRY(make_chunks(pp, vpp, arena, chunks));
  /* Slots are numbered chunk by chunk, virtual stages outside, stages inside. The slot of layer l is l: the
   * embedding is slot -1, and the loss is slot `layers`, so both fall away where a chunk is clipped to
   * [0, layers). 14 layers over 4 with both splits: [-1, 3), [3, 7), [7, 11), [11, 15) are layers 0-2, 3-6,
   * 7-10, 11-13. 8 layers over pp = 2, vpp = 2: 0-1 and 2-3 are the first chunks of the two stages, 4-5 and
   * 6-7 the second ones. */
  int64_t slot = o->embedding_split ? -1 : 0;
  for (int64_t v = 0; v < vpp; v++)
    for (int64_t p = 0; p < pp; p++) {
      int64_t end = slot + slots[p] / vpp;
      int64_t low = slot < 0 ? 0 : slot, high = end > layers ? layers : end;
      TRY(set_layers(&chunks->items[p * vpp + v], low, high > low ? high - low : 0, arena));
      slot = end;
    }
out:
  return status;
}

/* ---- Megatron: the layout string ---- */

enum { MAX_EXPANDED = 1 << 20 };

/* Copies text[0..length) `times` times. */
static bool repeat(char *out, size_t *used, const char *text, size_t length, int64_t times) {
  for (int64_t i = 0; i < times; i++) {
    if (*used + length >= MAX_EXPANDED) return false;
    memcpy(out + *used, text, length);
    *used += length;
  }
  return true;
}

/* The number after a '*', 1 where there is none; -1 when it is not a number. */
static int64_t read_times(const char **at) {
  if (**at != '*') return 1;
  char *end;
  if ((*at)[1] < '0' || (*at)[1] > '9') return -1;
  int64_t times = strtoll(*at + 1, &end, 10);
  *at = end;
  return times > MAX_EXPANDED ? -1 : times;
}

/* (xyz)*n and x*n written out, commas dropped. E(t*2|)*2tL becomes Ett|tt|tL. Outside of a group each
 * letter is a group of its own, so x*n is the same case. */
static treadle_status expand(const char *what, const char *text, char *out) {
  size_t used = 0;
  for (const char *at = text; *at;) {
    const char *begin = at;
    size_t length = 1;
    if (*at == ',') {
      at++;
      continue;
    }
    bool in_group = *at == '(';
    if (in_group) {
      begin = at + 1;
      length = strcspn(begin, "()");
      if (begin[length] != ')')
        REFUSE("layout '%s': layout= has a parenthesis that is nested or not closed", what);
      at = begin + length + 1;
    } else {
      at++;
    }
    /* One turn of the group: (t*2,|) is tt|. */
    char group[4096];
    size_t group_length = 0; /* commas inside a group, and x*n inside it */
    for (size_t i = 0; i < length;) {
      const char *one = begin + i, *after = one + 1;
      if (*one == ',') {
        i++;
        continue;
      }
      int64_t times = in_group ? read_times(&after) : 1;
      if (times < 0) REFUSE("layout '%s': layout= has a '*' without a number from 0 to 2^20", what);
      for (int64_t k = 0; k < times; k++) {
        if (group_length == sizeof group) REFUSE("layout '%s': a group of layout= is too long", what);
        group[group_length++] = *one;
      }
      i += (size_t)(after - one);
    }
    int64_t times = read_times(&at);
    if (times < 0) REFUSE("layout '%s': layout= has a '*' without a number from 0 to 2^20", what);
    if (!repeat(out, &used, group, group_length, times)) REFUSE("layout '%s': layout= is too long", what);
  }
  out[used] = 0;
  return TREADLE_OK;
}

/* docs/rules.md 2.2. Ett|tt|tt|ttL over pp = 2 has 4 stages, so vpp is 2: rank 0 has layers 0-1 and 4-5,
 * rank 1 has 2-3 and 6-7. */
static treadle_status stages_by_string(const char *what, int64_t layers, treadle_megatron_stages *o,
                                       treadle_arena *arena, treadle_chunks *chunks) {
  treadle_status status = TREADLE_OK;
  char instead[TREADLE_DIVISORS_ROOM];
  if (o->first > 0 || o->last > 0 || o->embedding_split || o->loss_split)
    REFUSE("layout '%s': layout= does not go with first, last, embedding_split and loss_split; leave these "
           "out",
           what);
  char *text = treadle_arena_alloc(arena, MAX_EXPANDED);
  if (!text) return treadle_fail(TREADLE_NO_MEMORY, "pipeline table: memory is out");
  TRY(expand(what, o->layout, text));

  int64_t stages = 1, embeddings = 0, losses = 0, decoders = 0, mtp = 0;
  char first = 0, final = 0;
  for (const char *at = text; *at; at++) {
    if (!strchr("EtmL|", *at))
      REFUSE("layout '%s': layout= has '%c'; known are E, t, m, L and |", what, *at);
    if (*at == 't' && mtp > 0) REFUSE("layout '%s': layout= has a decoder layer behind an MTP layer", what);
    mtp += *at == 'm';
    stages += *at == '|';
    embeddings += *at == 'E';
    losses += *at == 'L';
    decoders += *at == 't';
    if (*at != '|') {
      if (!first) first = *at;
      final = *at;
    }
  }
  if (embeddings != 1 || first != 'E')
    REFUSE("layout '%s': layout= must have one E, at first place (it has %" PRId64 ")", what, embeddings);
  if (losses != 1 || final != 'L')
    REFUSE("layout '%s': layout= must have one L, at last place (it has %" PRId64 ")", what, losses);
  if (decoders != layers)
    REFUSE("layout '%s': layout= has %" PRId64 " decoder layers, the model %" PRId64 "; write a t for each",
           what, decoders, layers);
  if (mtp != o->mtp)
    REFUSE("layout '%s': layout= has %" PRId64 " MTP layers, the model %" PRId64 "; write an m for each",
           what, mtp, o->mtp);
  if (stages % o->pp != 0)
    REFUSE("layout '%s': layout= has %s, not a multiple of pp=%" PRId64 "; %s", what,
           treadle_text_of_count(stages, "stage"), o->pp,
           treadle_divisors_near("pp", stages, o->pp, 1, instead));
  int64_t vpp = stages / o->pp;
  if (o->vpp > 0 && o->vpp != vpp)
    REFUSE("layout '%s': vpp=%" PRId64 ", but layout= has %s for each pipeline rank; leave vpp out", what,
           o->vpp, treadle_text_of_count(vpp, "stage"));
  if (vpp > 1 && o->pp == 1)
    REFUSE("layout '%s': layout= has %" PRId64 " stages and pp is 1; give pp", what, stages);
  o->vpp = vpp;

  TRY(make_chunks(o->pp, vpp, arena, chunks));
  /* Layers are counted through the text: the stages of Ett|tt|tt|ttL begin with layers 0, 2, 4 and 6. */
  int64_t next = 0;
  const char *at = text;
  for (int64_t s = 0; s < stages; s++, at++) { /* stage s is virtual stage s / pp of rank s % pp */
    int64_t begin = next, here = 0;
    for (; *at && *at != '|'; at++) {
      next += *at == 't';
      here += *at == 'm';
    }
    /* Chunk s / pp of rank s % pp, in [pp, vpp]: of 4 stages over 2 ranks, 0 to 3 are items 0, 2, 1, 3. */
    treadle_chunk *chunk = &chunks->items[s % o->pp * vpp + s / o->pp];
    TRY(set_layers(chunk, begin, next - begin, arena));
    if (here && (here != mtp || s / o->pp != vpp - 1))
      REFUSE("layout '%s': layout= must have all MTP layers in one stage, the last of its rank", what);
    chunk->mtp = here > 0;
  }
out:
  return status;
}

/* With MTP layers the final norm goes with the last decoder layer. Behind them stand MTP layers, in a chunk
 * that need not have any decoder layer (docs/rules.md 2.3). Ett|tt|mL has the norm in stage 1, the MTP layer and
 * the head in stage 2. */
static void place_norm(int64_t layers, treadle_chunks *chunks) {
  for (int32_t c = 0; c < chunks->count; c++) {
    treadle_chunk *chunk = &chunks->items[c];
    chunk->norm = chunk->layer_count > 0 && chunk->layers[chunk->layer_count - 1] == layers - 1;
  }
}

/* MTP layers stand in the last chunk of all, unless the text says where (docs/rules.md 2.3). A text gives
 * vpp; else vpp that is not given is 1. */
treadle_status treadle_stages_megatron(const char *what, int64_t layers, treadle_megatron_stages *options,
                                       treadle_arena *arena, treadle_chunks *chunks_p) {
  treadle_status status = TREADLE_OK;
  TRY(check_stages(what, options->pp, options->vpp ? options->vpp : 1));
  if (options->layout) {
    TRY(stages_by_string(what, layers, options, arena, chunks_p));
  } else {
    if (options->vpp == 0) options->vpp = 1;
    TRY(stages_by_count(what, layers, options, arena, chunks_p));
    chunks_p->items[chunks_p->count - 1].mtp = options->mtp > 0;
  }
  TRY(check_cover(what, layers, chunks_p, arena));
  if (options->mtp > 0) place_norm(layers, chunks_p);
out:
  return status;
}

/* ---- Engines ---- */

/* One chunk a stage, layers in order. 62 layers over 4, with a remainder of 2: vLLM has 15, 16, 16, 15 and
 * SGLang 15, 15, 16, 16 (docs/rules.md 2.4, 2.5). */
treadle_status treadle_stages_engine(const char *what, int64_t layers, const treadle_engine_stages *options,
                                     treadle_arena *arena, treadle_chunks *chunks_p) {
  treadle_status status = TREADLE_OK;
  int64_t pp = options->pp;
  bool given = options->partition_count > 0;
  TRY(check_stages(what, pp, 1));
  if (given && options->partition_count != pp)
    REFUSE("layout '%s': partition has %d numbers, pp is %" PRId64 "; give one for each stage", what,
           options->partition_count, pp);
  TRY(make_chunks(pp, 1, arena, chunks_p));
  /* The ranks that have one layer more: SGLang's last ones, vLLM's last ones but the very last, which has the head. */
  int64_t next = 0, remainder = layers % pp;
  for (int64_t p = 0; p < pp; p++) {
    int64_t count = layers / pp;
    if (given)
      count = options->partition[p];
    else if (options->remainder_last)
      count += p >= pp - remainder;
    else
      count += p < pp - 1 && p >= pp - 1 - remainder;
    if (count > layers - next)
      REFUSE("layout '%s': the partition's stages up to %" PRId64
             " have more than the %s; the numbers must add up to these",
             what, p, treadle_text_of_count(layers, "layer"));
    TRY(set_layers(&chunks_p->items[p], next, count, arena));
    next += count;
  }
  TRY(check_cover(what, layers, chunks_p, arena));
out:
  return status;
}

/* It is behind the other chunks, and so behind all else in the window of the last stage. Number 1 tells it
 * from the main model, whose chunks are number 0. */
treadle_status treadle_stages_add_draft(treadle_arena *arena, treadle_chunks *chunks) {
  treadle_chunk *items = treadle_arena_alloc_array(arena, (size_t)chunks->count + 1, sizeof *items);
  if (!items) return treadle_fail(TREADLE_NO_MEMORY, "pipeline table: memory is out");
  memcpy(items, chunks->items, (size_t)chunks->count * sizeof *items);
  items[chunks->count] =
      (treadle_chunk){.stage = chunks->stages - 1, .number = 1, .mtp = true, .draft = true};
  chunks->items = items;
  chunks->count++;
  return TREADLE_OK;
}
