/* Entries as they are matched: a plain one is compared, any other becomes a POSIX extended regex.
 *
 * A regex may match up to any border. So it is run on each beginning of the path that ends at one, and must match all of
 * it: POSIX gives the longest match. An entry whose only special character is '.' is a path: with it as any character,
 * model.layers.1. would fit layer 10. What Python's regexes have and POSIX's lack (lookaround, references, possessive
 * repeats) is refused. */
#include "model/modules.h"

#include "base/alloc.h"
#include "base/array.h"
#include "base/text.h"

#include <ctype.h>
#include <regex.h>
#include <string.h>

enum { MAX_ENTRY = 512, MAX_PATH = 400, MAX_REPEATS = 1000 };

typedef struct entry {
  const char *text; /* of the config's JSON, which lives longer */
  size_t length;
  bool plain;
  regex_t regex; /* else */
} entry;

struct treadle_modules {
  TREADLE_ARRAY(entry) entries;
  bool experts;
};

/* ---- From Python's regex to POSIX's --------------------------------------------------------------- */

typedef struct translation {
  const char *at;
  treadle_builder to;
  bool can_repeat; /* what stands before may be repeated */
  int64_t repeats;
  int groups; /* that are open */
} translation;

/* A class of characters behind a backslash, inside of brackets or outside; NULL: there is none. */
static const char *class_of(char c, bool inside) {
  switch (c) {
  case 'd': return inside ? "0-9" : "[0-9]";
  case 'w': return inside ? "A-Za-z0-9_" : "[A-Za-z0-9_]";
  case 'D': return inside ? NULL : "[^0-9]";
  case 'W': return inside ? NULL : "[^A-Za-z0-9_]";
  default: return NULL;
  }
}

static bool translate_escape(translation *t) {
  char c = t->at[1];
  const char *class = class_of(c, false);
  if (!class && (!c || isalnum((unsigned char)c))) return false;
  if (class)
    treadle_builder_add(&t->to, "%s", class);
  else
    treadle_builder_add(&t->to, strchr("^$.[]|()*+?{}\\", c) ? "\\%c" : "%c", c);
  t->at += 2;
  t->can_repeat = true;
  return true;
}

static bool translate_brackets(translation *t) {
  const char *c = t->at + 1;
  treadle_builder_add(&t->to, "[");
  if (*c == '^') treadle_builder_add(&t->to, "^"), c++;
  for (bool first = true; *c != ']' || first; first = false) {
    if (!*c || *c == '[') return false;
    if (*c == '\\') {
      const char *class = class_of(c[1], true);
      if (!class && (!c[1] || isalnum((unsigned char)c[1]) || strchr("^-]\\", c[1]))) return false;
      if (class)
        treadle_builder_add(&t->to, "%s", class);
      else
        treadle_builder_add(&t->to, "%c", c[1]);
      c += 2;
    } else {
      treadle_builder_add(&t->to, "%c", *c++);
    }
  }
  treadle_builder_add(&t->to, "]");
  t->at = c + 1;
  t->can_repeat = true;
  return true;
}

/* {m}, {m,}, {,n}, {m,n} */
static bool translate_count(translation *t) {
  size_t length = strcspn(t->at, "}");
  int low = 0, high = 0, end = 0;
  if (!t->at[length] || length > 10) return false;
  if (sscanf(t->at, "{%d,%d}%n", &low, &high, &end) != 2 || !end) {
    end = high = 0;
    if ((sscanf(t->at, "{%d}%n", &low, &end) != 1 || !end) &&
        (sscanf(t->at, "{%d,}%n", &low, &end) != 1 || !end) &&
        (sscanf(t->at, "{,%d}%n", &high, &end) != 1 || !end))
      return false;
  }
  if (low < 0 || high < 0 || low > 100 || high > 100 || (size_t)end != length + 1) return false;
  t->repeats *= low > high ? low + 1 : high + 1;
  if (t->repeats > MAX_REPEATS) return false;
  treadle_builder_add(&t->to, "{%s%.*s", t->at[1] == ',' ? "0" : "", end - 1, t->at + 1);
  t->at += end;
  return true;
}

/* A repeat, greedy or not: which of the matches is found does not matter here. */
static bool translate_repeat(translation *t) {
  if (!t->can_repeat) return false;
  if (*t->at == '{') {
    if (!translate_count(t)) return false;
  } else {
    treadle_builder_add(&t->to, "%c", *t->at++);
  }
  if (*t->at == '?') t->at++;
  t->can_repeat = false;
  return true;
}

static bool translate_group(translation *t) {
  if (t->at[1] == '?' && t->at[2] != ':') return false;
  t->at += t->at[1] == '?' ? 3 : 1;
  treadle_builder_add(&t->to, "(");
  t->groups++;
  t->can_repeat = false;
  return true;
}

/* False: it is not a regex, or one that POSIX lacks. */
static bool translate(const char *text, translation *t) {
  *t = (translation){.at = text, .to = t->to, .repeats = 1};
  treadle_builder_add(&t->to, "^(");
  while (*t->at) {
    bool good = true;
    switch (*t->at) {
    case '\\': good = translate_escape(t); break;
    case '[': good = translate_brackets(t); break;
    case '(': good = translate_group(t); break;
    case '*':
    case '+':
    case '?':
    case '{': good = translate_repeat(t); break;
    case ')': good = t->groups-- > 0; __attribute__((fallthrough));
    default:
      t->can_repeat = *t->at != '|' && *t->at != '^' && *t->at != '$';
      treadle_builder_add(&t->to, *t->at == '}' ? "\\%c" : "%c", *t->at);
      t->at++;
    }
    if (!good) return false;
  }
  treadle_builder_add(&t->to, ")");
  return true;
}

/* '*' is any text, '?' any character; nothing else is special. */
static void translate_glob(const char *text, treadle_builder *to) {
  treadle_builder_add(to, "^(");
  for (; *text; text++)
    treadle_builder_add(to,
                        *text == '*'                    ? ".*"
                        : *text == '?'                  ? "."
                        : strchr("^$.[|()+{}\\", *text) ? "\\%c"
                                                        : "%c",
                        *text);
  treadle_builder_add(to, ")");
}

/* ---- Reading ------------------------------------------------------------------------------------- */

static treadle_status refuse(const char *name, const char *text, const char *why) {
  return treadle_fail(TREADLE_REFUSED, "%s has \"%.80s\", %s", name, text, why);
}

static treadle_status compile(const char *name, entry *e) {
  treadle_status status = TREADLE_OK;
  translation t = {.at = NULL};
  const char *text = treadle_text_starts(e->text, "re:") ? e->text + 3 : e->text;
  bool is_regex = translate(text, &t);
  if (!is_regex && !t.to.failed) {
    if (t.can_repeat || *t.at != '*' || text != e->text)
      TRY(refuse(name, e->text,
                 "which is not a regex that treadle knows; list the modules by their paths instead"));
    t.to.length = 0;
    translate_glob(text, &t.to);
  }
  if (t.to.failed) TRY(treadle_fail(TREADLE_NO_MEMORY, "no memory for the entries of %s", name));
  if (regcomp(&e->regex, t.to.text, REG_EXTENDED))
    TRY(refuse(name, e->text, "which is not a regex; list the modules by their paths instead"));
out:
  treadle_builder_release(&t.to);
  return status;
}

static treadle_status add(treadle_modules *modules, const char *name, const json_t *item) {
  const char *text = json_string_value(item);
  treadle_status status;
  entry e = {.text = text};
  if (!text || !*text) return treadle_fail(TREADLE_REFUSED, "%s is not a list of module paths", name);
  e.length = strlen(text);
  if (e.length > MAX_ENTRY || e.length != json_string_length(item))
    return refuse(name, text, "which is too long for the path of a module, or has a zero byte");
  e.plain = !text[strcspn(text, "^$[]|()*+?{}\\")] && !treadle_text_starts(text, "re:");
  if (!e.plain) TRY(compile(name, &e));
  modules->experts = modules->experts || !e.plain || strstr(text, "expert");
  status = treadle_array_push(&modules->entries, e);
  if (status && !e.plain) regfree(&e.regex);
out:
  return status;
}

treadle_status treadle_modules_add(treadle_modules **modules_p, const char *name, const json_t *list) {
  treadle_status status = TREADLE_OK;
  if (!*modules_p && !(*modules_p = treadle_alloc(sizeof **modules_p)))
    return treadle_fail(TREADLE_NO_MEMORY, "no memory for the entries of %s", name);
  if (!json_is_array(list)) return treadle_fail(TREADLE_REFUSED, "%s is not a list of module paths", name);
  for (size_t i = 0; i < json_array_size(list); i++) TRY(add(*modules_p, name, json_array_get(list, i)));
out:
  return status;
}

void treadle_modules_destroy(treadle_modules *modules) {
  if (!modules) return;
  for (size_t i = 0; i < modules->entries.count; i++)
    if (!modules->entries.items[i].plain) regfree(&modules->entries.items[i].regex);
  treadle_array_release(&modules->entries);
  treadle_free(modules);
}

/* ---- Asking -------------------------------------------------------------------------------------- */

static bool plain_fits(const entry *e, const char *path, size_t length) {
  for (size_t at = 0; at + e->length <= length; at++) {
    size_t end = at + e->length;
    bool begins = at == 0 || path[at - 1] == '.',
         ends = !path[end] || path[end] == '.' || path[end - 1] == '.';
    if (((begins && ends) || end == length) && memcmp(path + at, e->text, e->length) == 0) return true;
  }
  return false;
}

/* Does the regex match up to this place? What comes behind is not the end of a line. */
static bool matches_up_to(const entry *e, const char *path, size_t length, bool whole) {
  char beginning[MAX_PATH];
  regmatch_t match;
  memcpy(beginning, path, length);
  beginning[length] = 0;
  return regexec(&e->regex, beginning, 1, &match, whole ? 0 : REG_NOTEOL) == 0 &&
         match.rm_eo == (regoff_t)length;
}

static bool regex_fits(const entry *e, const char *path, size_t length) {
  if (length >= e->length && memcmp(path + length - e->length, e->text, e->length) == 0) return true;
  for (size_t end = 0; end <= length; end++) {
    bool border = end == length || path[end] == '.' || (end && path[end - 1] == '.');
    if (border && matches_up_to(e, path, end, end == length)) return true;
  }
  return false;
}

bool treadle_modules_have(const treadle_modules *modules, const char *path) {
  size_t length = strlen(path);
  if (!modules || length >= MAX_PATH) return false;
  for (size_t i = 0; i < modules->entries.count; i++) {
    const entry *e = &modules->entries.items[i];
    if (e->plain ? plain_fits(e, path, length) : regex_fits(e, path, length)) return true;
  }
  return false;
}

bool treadle_modules_name_experts(const treadle_modules *modules) { return modules && modules->experts; }
