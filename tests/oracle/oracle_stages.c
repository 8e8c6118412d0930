/* The oracle's pipeline tables (rules 2): which stage and chunk has a decoder layer. And the options of a
 * layout text, since most of them speak of stages. */
#include "oracle/oracle_parts.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The options of a layout text ------------------------------------------------------------ */

/* Copies text up to one of `ends` (which may stand inside double quotes); returns what follows. */
static const char *copy_until(const char *text, const char *ends, char *word, size_t room) {
  size_t length = 0;
  bool quoted = false;
  for (; *text && (quoted || !strchr(ends, *text)); text++) {
    if (*text == '"') {
      quoted = !quoted;
    } else if (length + 1 < room) {
      word[length++] = *text;
    }
  }
  word[length] = 0;
  return quoted ? NULL : text;
}

bool oracle_options_parse(const char *text, oracle_options *options, char *why) {
  *options = (oracle_options){0};
  text = copy_until(text, ":", options->type, sizeof options->type);
  if (!text) return oracle_refuse(why, "a quote is not closed");
  if (!*text) return true;
  do {
    oracle_option *option = &options->list[options->count];
    if (options->count == 32) return oracle_refuse(why, "too many options");
    text = copy_until(text + 1, "=,", option->key, sizeof option->key);
    if (!text || *text != '=') return oracle_refuse(why, "'%s' has no value", option->key);
    text = copy_until(text + 1, ",", option->value, sizeof option->value);
    if (!text) return oracle_refuse(why, "a quote is not closed");
    for (int i = 0; i < options->count; i++) {
      if (strcmp(options->list[i].key, option->key) == 0)
        return oracle_refuse(why, "'%s' stands twice", option->key);
    }
    options->count++;
  } while (*text);
  return true;
}

const char *oracle_option_text(oracle_options *options, const char *key) {
  for (int i = 0; i < options->count; i++) {
    if (strcmp(options->list[i].key, key) != 0) continue;
    options->list[i].used = true;
    return options->list[i].value;
  }
  return NULL;
}

bool oracle_option_number(oracle_options *options, const char *key, int64_t otherwise, int64_t *value_p,
                          char *why) {
  const char *text = oracle_option_text(options, key);
  char *end = NULL;
  *value_p = text ? strtoll(text, &end, 10) : otherwise;
  if (text && (!isdigit((unsigned char)text[0]) || *end || *value_p < 1 || *value_p > 1000000000))
    return oracle_refuse(why, "%s=%s is not a number from 1", key, text);
  return true;
}

bool oracle_option_switch(oracle_options *options, const char *key, bool *on_p, char *why) {
  const char *text = oracle_option_text(options, key);
  *on_p = text && strcmp(text, "on") == 0;
  return !text || *on_p || strcmp(text, "off") == 0 ||
         oracle_refuse(why, "%s=%s is not on or off", key, text);
}

bool oracle_option_word(oracle_options *options, const char *key, const char *const *words, int *which_p,
                        char *why) {
  const char *text = oracle_option_text(options, key);
  *which_p = 0;
  if (!text) return true;
  for (int i = 0; words[i]; i++) {
    *which_p = i;
    if (strcmp(text, words[i]) == 0) return true;
  }
  return oracle_refuse(why, "%s=%s", key, text);
}

int64_t oracle_elem_bytes(const oracle_model *model, oracle_options *options) {
  const char *dtype = oracle_option_text(options, "dtype");
  return !dtype ? model->elem_bytes : strcmp(dtype, "fp32") == 0 ? 4 : 2;
}

bool oracle_options_end(const oracle_options *options, char *why) {
  for (int i = 0; i < options->count; i++) {
    if (!options->list[i].used) return oracle_refuse(why, "unknown option %s", options->list[i].key);
  }
  return true;
}

/* ---- Tables ---------------------------------------------------------------------------------- */

static void stages_begin(oracle_stages *stages, int64_t layers, int64_t pp, int64_t vpp) {
  *stages = (oracle_stages){.pp = pp, .vpp = vpp, .mtp_p = -1, .mtp_v = -1};
  stages->p = oracle_memory((size_t)layers, sizeof *stages->p);
  stages->v = oracle_memory((size_t)layers, sizeof *stages->v);
}

void oracle_stages_free(oracle_stages *stages) {
  free(stages->p);
  free(stages->v);
  stages->p = stages->v = NULL;
}

/* ---- Megatron: the layout string (rules 2.2, 2.1) ------------------------------------- */

enum { EXPANDED = 4096 };

/* Appends `length` characters of text, `times` times. */
static bool repeat(char *expanded, const char *text, size_t length, long times, char *why) {
  for (long i = 0; i < times; i++) {
    if (strlen(expanded) + length >= EXPANDED) return oracle_refuse(why, "the layout string is too long");
    strncat(expanded, text, length);
  }
  return true;
}

/* (xyz)*n and x*n written out; commas dropped. Only E t m L | remain. */
static bool expand(const char *text, const char *end, char *expanded, bool nested, char *why) {
  while (text < end) {
    const char *unit = text, *unit_end = text + 1;
    if (*text == ',') {
      text++;
      continue;
    }
    char inner[EXPANDED] = "";
    if (*text == '(') {
      const char *close = memchr(text, ')', (size_t)(end - text));
      if (nested || !close || close + 1 >= end || close[1] != '*')
        return oracle_refuse(why, "layout: '(' without ')*n' or inside another");
      if (!expand(text + 1, close, inner, true, why)) return false;
      text = close + 1;
      unit = inner;
      unit_end = inner + strlen(inner);
    } else {
      if (!strchr("EtmL|", *text)) return oracle_refuse(why, "layout: unknown character '%c'", *text);
      text++;
    }
    long times = 1;
    if (text < end && *text == '*') {
      char *after = NULL;
      if (text + 1 >= end || !isdigit((unsigned char)text[1]))
        return oracle_refuse(why, "layout: '*' without a number");
      times = strtol(text + 1, &after, 10);
      text = after;
    }
    if (!repeat(expanded, unit, (size_t)(unit_end - unit), times, why)) return false;
  }
  return true;
}

static bool stages_of_string(const char *text, int64_t layers, int64_t mtp, int64_t pp, int64_t vpp_given,
                             oracle_stages *stages, char *why) {
  char expanded[EXPANDED] = "", order[EXPANDED] = "";
  if (!expand(text, text + strlen(text), expanded, false, why)) return false;
  int64_t count = 1, t = 0, m = 0, embeddings = 0, losses = 0, length = 0;
  for (const char *c = expanded; *c; c++) {
    count += *c == '|';
    t += *c == 't';
    embeddings += *c == 'E';
    losses += *c == 'L';
    m += *c == 'm';
    if (*c == 't' && m > 0) return oracle_refuse(why, "layout: 't' behind 'm'");
    if (*c != '|') order[length++] = *c;
  }
  if (embeddings != 1 || losses != 1 || order[0] != 'E' || order[length - 1] != 'L')
    return oracle_refuse(why, "layout: one E at the start and one L at the end");
  if (t != layers)
    return oracle_refuse(why, "layout: %lld layers of %lld", (long long)t, (long long)layers);
  if (m != mtp) return oracle_refuse(why, "layout: %lld MTP layers of %lld", (long long)m, (long long)mtp);
  if (count % pp != 0 || (pp == 1 && count > 1))
    return oracle_refuse(why, "layout: %lld stages, pp %lld", (long long)count, (long long)pp);
  if (vpp_given > 0 && vpp_given != count / pp)
    return oracle_refuse(why, "layout: vpp is %lld, not %lld", (long long)(count / pp),
                         (long long)vpp_given);
  stages_begin(stages, layers, pp, count / pp);
  int64_t stage = 0, layer = 0, mtp_stage = -1;
  for (const char *c = expanded; *c; c++) {
    stage += *c == '|';
    if (*c == 'm' && mtp_stage >= 0 && mtp_stage != stage)
      return oracle_refuse(why, "layout: 'm' in two stages");
    if (*c == 'm') mtp_stage = stage;
    if (*c != 't') continue;
    stages->p[layer] = stage % pp;
    stages->v[layer] = stage / pp;
    layer++;
  }
  if (mtp_stage < 0) return true;
  stages->mtp_p = mtp_stage % pp;
  stages->mtp_v = mtp_stage / pp;
  return stages->mtp_v == stages->vpp - 1 ||
         oracle_refuse(why, "layout: 'm' not in the last chunk of a rank");
}

/* ---- Megatron: numbers of layers (rules 2.1) ------------------------------------------- */

/* Step 1: the slots of each stage. */
static bool count_slots(int64_t layers, int64_t pp, int64_t first, int64_t last, int64_t a, int64_t b,
                        int64_t *slots, char *why) {
  if (first == 0 && last == 0) {
    if ((layers + a + b) % pp != 0)
      return oracle_refuse(why, "%lld slots do not divide by pp %lld", (long long)(layers + a + b),
                           (long long)pp);
    for (int64_t p = 0; p < pp; p++) slots[p] = (layers + a + b) / pp;
    return true;
  }
  if (a || b) return oracle_refuse(why, "first or last together with embedding_split or loss_split");
  int64_t others = pp - (first > 0) - (last > 0), rest = layers - first - last;
  if (others > 0 && rest == 0) return oracle_refuse(why, "no layer for the stages between");
  if (others < 0 || rest < 0 || (others == 0 ? rest != 0 : rest % others != 0))
    return oracle_refuse(why, "%lld layers for %lld middle stages", (long long)rest, (long long)others);
  for (int64_t p = 0; p < pp; p++) {
    if (p == 0 && first > 0) {
      slots[p] = first;
    } else if (p == pp - 1 && last > 0) {
      slots[p] = last;
    } else {
      slots[p] = rest / others;
    }
  }
  return true;
}

bool oracle_stages_megatron(int64_t layers, int64_t mtp, oracle_options *options, oracle_stages *stages,
                            char *why) {
  int64_t pp, vpp, first, last;
  bool a, b;
  if (!oracle_option_number(options, "pp", 1, &pp, why) ||
      !oracle_option_number(options, "vpp", 0, &vpp, why) ||
      !oracle_option_number(options, "first", 0, &first, why) ||
      !oracle_option_number(options, "last", 0, &last, why) ||
      !oracle_option_switch(options, "embedding_split", &a, why) ||
      !oracle_option_switch(options, "loss_split", &b, why))
    return false;
  const char *layout = oracle_option_text(options, "layout");
  if (layout) {
    if (first || last || a || b) return oracle_refuse(why, "layout together with other pipeline options");
    return stages_of_string(layout, layers, mtp, pp, vpp, stages, why);
  }
  if (pp == 1 && vpp > 1) return oracle_refuse(why, "vpp without pp");
  if (vpp == 0) vpp = 1;

  int64_t *slots = oracle_memory((size_t)pp, sizeof *slots);
  bool good = count_slots(layers, pp, first, last, a, b, slots, why);
  for (int64_t p = 0; good && p < pp; p++) { /* step 2 */
    if (slots[p] % vpp != 0)
      good = oracle_refuse(why, "%lld slots of stage %lld do not divide by vpp %lld", (long long)slots[p],
                           (long long)p, (long long)vpp);
  }
  if (good) { /* step 3: chunks take consecutive numbers, v outer, p inner; no layer in the slots of a and b
               */
    stages_begin(stages, layers, pp, vpp);
    int64_t number = 0;
    for (int64_t v = 0; v < vpp; v++) {
      for (int64_t p = 0; p < pp; p++) {
        for (int64_t i = 0; i < slots[p] / vpp; i++, number++) {
          int64_t layer = number - (a ? 1 : 0);
          if (layer < 0 || layer >= layers) continue;
          stages->p[layer] = p;
          stages->v[layer] = v;
        }
      }
    }
    if (mtp > 0) { /* 2.3 */
      stages->mtp_p = pp - 1;
      stages->mtp_v = vpp - 1;
    }
  }
  free(slots);
  return good;
}

/* ---- vLLM and SGLang (rules 2.4, 2.5, 2.6) ------------------------------------------- */

/* A list of numbers "16,15, 15,15" that sum up to layers. */
static bool read_partition(const char *text, int64_t layers, int64_t pp, int64_t *counts, char *why) {
  int64_t found = 0, sum = 0;
  for (const char *next = text;; next++) {
    char *end = NULL;
    int64_t count = strtoll(next, &end, 10);
    if (end == next || count < 0) return oracle_refuse(why, "partition '%s'", text);
    if (found < pp) counts[found] = count;
    found++;
    sum += count;
    next = end;
    while (*next == ' ') next++;
    if (!*next) break;
    if (*next != ',') return oracle_refuse(why, "partition '%s'", text);
  }
  if (found != pp || sum != layers)
    return oracle_refuse(why, "partition '%s' has %lld stages and %lld layers", text, (long long)found,
                         (long long)sum);
  return true;
}

static void stages_of_counts(int64_t layers, int64_t pp, const int64_t *counts, oracle_stages *stages) {
  stages_begin(stages, layers, pp, 1);
  int64_t layer = 0;
  for (int64_t p = 0; p < pp; p++) {
    for (int64_t i = 0; i < counts[p]; i++) stages->p[layer++] = p;
  }
}

bool oracle_stages_vllm(int64_t layers, oracle_options *options, oracle_stages *stages, char *why) {
  int64_t pp;
  if (!oracle_option_number(options, "pp", 1, &pp, why)) return false;
  const char *partition = oracle_option_text(options, "partition");
  int64_t *counts = oracle_memory((size_t)pp, sizeof *counts);
  bool good = true;
  if (partition) {
    good = read_partition(partition, layers, pp, counts, why);
  } else { /* the remainder goes to the second-to-last stage and those before it */
    for (int64_t p = 0; p < pp; p++) counts[p] = layers / pp;
    for (int64_t i = 0; i < layers % pp; i++) counts[pp - 2 - i]++;
  }
  if (good) stages_of_counts(layers, pp, counts, stages);
  free(counts);
  return good;
}

bool oracle_stages_sglang(int64_t layers, oracle_options *options, oracle_stages *stages, char *why) {
  int64_t pp;
  if (!oracle_option_number(options, "pp", 1, &pp, why)) return false;
  const char *partition = oracle_option_text(options, "partition");
  int64_t *counts = oracle_memory((size_t)pp, sizeof *counts);
  bool good = true;
  if (partition && pp > 1) { /* with one stage the variable is not looked at */
    good = read_partition(partition, layers, pp, counts, why);
  } else { /* the remainder goes to the last stages */
    for (int64_t p = 0; p < pp; p++) counts[p] = layers / pp + (p >= pp - layers % pp);
  }
  if (good) stages_of_counts(layers, pp, counts, stages);
  free(counts);
  return good;
}
