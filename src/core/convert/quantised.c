/* Editing quantization_config out of a text: jansson knows whether it is there, a walk over the text finds where. */
#include "convert/quantised.h"

#include "base/alloc.h"
#include "io/file.h"
#include "io/json.h"

#include <string.h>

static const char KEY[] = "quantization_config";
static const char SPACE[] = " \t\r\n";

static bool is_quantised(json_t *config) {
  const char *name;
  json_t *inner;
  if (treadle_json_is_object(json_object_get(config, KEY))) return true;
  json_object_foreach(config, name, inner) {
    if (treadle_json_is_object(json_object_get(inner, KEY))) return true;
  }
  return false;
}

/* ---- Text: it has been read as JSON before ------------------------------------------------------- */

static const char *skip_string(const char *at) {
  for (at++; *at && *at != '"'; at++)
    if (*at == '\\' && at[1]) at++;
  return *at ? at + 1 : at;
}

static const char *skip_value(const char *at) {
  for (int depth = 0; *at;) {
    bool closes = *at == '}' || *at == ']';
    if (depth == 0 && (closes || *at == ',')) break;
    depth += *at == '{' || *at == '[' ? 1 : closes ? -1 : 0;
    at = *at == '"' ? skip_string(at) : at + 1;
    if (depth == 0 && closes) break;
  }
  return at;
}

/* The member of this name, in the outermost object or in one that is right in it: from its name to the end of its value.
 * False: there is none. */
static bool find_member(const char *text, const char **begin_p, const char **end_p) {
  int depth = 0;
  for (const char *at = text; *at;) {
    if (*at != '"') {
      depth += *at == '{' || *at == '[' ? 1 : *at == '}' || *at == ']' ? -1 : 0;
      at++;
      continue;
    }
    const char *name = at;
    at = skip_string(at);
    const char *colon = at + strspn(at, SPACE);
    if (*colon != ':' || depth > 2 || (size_t)(at - name) != sizeof KEY + 1 ||
        memcmp(name + 1, KEY, sizeof KEY - 1) != 0)
      continue;
    *begin_p = name;
    *end_p = skip_value(colon + 1);
    return true;
  }
  return false;
}

/* Cuts a member out with one comma beside it. */
static void cut_member(char *text, const char *begin, const char *end) {
  const char *next = end + strspn(end, SPACE);
  if (*next == ',') {
    end = next + 1 + strspn(next + 1, SPACE); /* the next member takes its place */
  } else {
    while (begin > text && strchr(SPACE, begin[-1])) begin--;
    if (begin > text && begin[-1] == ',') begin--;
    while (end > begin && strchr(SPACE, end[-1])) end--;
  }
  memmove(text + (begin - text), end, strlen(end) + 1);
}

treadle_status treadle_config_unquantised(const char *path, char **edited_p) {
  treadle_status status;
  json_t *config = NULL;
  char *text = NULL;
  const char *begin, *end;
  size_t length;
  *edited_p = NULL;
  TRY(treadle_json_load(path, &config));
  if (!is_quantised(config)) goto out;
  TRY(treadle_file_read(path, (size_t)1 << 30, &text, &length));
  while (find_member(text, &begin, &end)) cut_member(text, begin, end);
  *edited_p = text;
  text = NULL;
out:
  treadle_free(text);
  json_decref(config);
  return status;
}
