/* A tree of YAML as text that people read and edit, laid out as family files are: a key of the root begins a line; a list of maps
 * has a line for each, and so has one of sentences; what else is flat stands in brackets, broken before it gets too long.
 *
 * A text stands in quotes only where it must: where YAML would see something else in it, wherever it stands. A note is a comment
 * above the line. */
#include "io/yaml.h"

#include "base/utf8.h"

#include <string.h>

enum { WIDEST = 118 };

typedef struct yaml_writer {
  treadle_builder *text;
  size_t line; /* where the last line begins */
} yaml_writer;

/* ---- Texts ------------------------------------------------------------------------------------- */

/* May it stand without quotes, in brackets and out of them? */
static bool is_bare(const char *text) {
  uint32_t code;
  if (!*text || strchr("?:,[]{}#&*!|>'\"%@` ", *text) || text[strlen(text) - 1] == ' ') return false;
  if (*text == '-' && (text[1] == ' ' || text[1] == '-' || !text[1])) return false;
  if (strcmp(text, "...") == 0 || strpbrk(text, ",[]{}:") || strstr(text, " #")) return false;
  for (int bytes; *text; text += bytes) {
    bytes = treadle_utf8_read(text, &code);
    if (!bytes || !treadle_utf8_is_plain(code)) return false;
  }
  return true;
}

static void write_quoted(treadle_builder *to, const char *text) {
  treadle_builder_add(to, "\"");
  for (int bytes; *text; text += bytes) {
    uint32_t code = (unsigned char)*text;
    bytes = treadle_utf8_read(text, &code);
    if (!bytes) bytes = 1; /* no character: none is read from a file */
    if (code == '"' || code == '\\')
      treadle_builder_add(to, "\\%c", (int)code);
    else if (treadle_utf8_is_plain(code))
      treadle_builder_add(to, "%.*s", bytes, text);
    else
      treadle_builder_add(to, code < 0x100 ? "\\x%02x" : code < 0x10000 ? "\\u%04x" : "\\U%08x", code);
  }
  treadle_builder_add(to, "\"");
}

void treadle_yaml_write_scalar(treadle_builder *to, const char *text) {
  if (is_bare(text))
    treadle_builder_add(to, "%s", text);
  else
    write_quoted(to, text);
}

/* ---- In brackets ------------------------------------------------------------------------------- */

/* Columns of a node that is not broken; about that many of a text in quotes. */
static size_t width_of(const treadle_yaml *node) {
  if (node->type == TREADLE_YAML_SCALAR) return strlen(node->text) + (is_bare(node->text) ? 0 : 2);
  size_t width = 2;
  for (size_t i = 0; i < node->count; i++) {
    width += width_of(node->items[i]) + (i ? 2 : 0);
    if (node->type == TREADLE_YAML_MAP) width += strlen(node->keys[i]) + 2;
  }
  return width;
}

static void begin_line(yaml_writer *w, size_t indent) {
  treadle_builder_add(w->text, "\n%*s", (int)indent, "");
  w->line = w->text->length - indent;
}

static void write_flow(yaml_writer *w, const treadle_yaml *node) {
  if (node->type == TREADLE_YAML_SCALAR) {
    treadle_yaml_write_scalar(w->text, node->text);
    return;
  }
  bool map = node->type == TREADLE_YAML_MAP;
  size_t indent = w->text->length - w->line + 1;
  treadle_builder_add(w->text, "%c", map ? '{' : '[');
  for (size_t i = 0; i < node->count; i++) {
    size_t width = width_of(node->items[i]) + (map ? strlen(node->keys[i]) + 2 : 0);
    if (i) treadle_builder_add(w->text, ",");
    if (i && w->text->length - w->line + width + 2 > WIDEST)
      begin_line(w, indent);
    else if (i)
      treadle_builder_add(w->text, " ");
    if (map) treadle_yaml_write_scalar(w->text, node->keys[i]);
    if (map) treadle_builder_add(w->text, ": ");
    write_flow(w, node->items[i]);
  }
  treadle_builder_add(w->text, "%c", map ? '}' : ']');
}

/* ---- Over lines -------------------------------------------------------------------------------- */

/* Does it have a map inside, which gets lines of its own? */
static bool is_deep(const treadle_yaml *node) {
  for (size_t i = 0; node->type != TREADLE_YAML_SCALAR && i < node->count; i++) {
    if (node->items[i]->note || node->items[i]->type == TREADLE_YAML_MAP) return true;
    if (is_deep(node->items[i])) return true;
  }
  return false;
}

/* Has a list a text that takes half a line? */
static bool has_sentence(const treadle_yaml *node) {
  for (size_t i = 0; node->type == TREADLE_YAML_LIST && i < node->count; i++)
    if (node->items[i]->type == TREADLE_YAML_SCALAR && strlen(node->items[i]->text) > WIDEST / 2)
      return true;
  return false;
}

static void write_note(yaml_writer *w, const treadle_yaml *node, size_t indent) {
  for (const char *line = node->note; line && *line;) {
    size_t length = strcspn(line, "\n");
    treadle_builder_add(w->text, "%*s# %.*s\n", (int)indent, "", (int)length, line);
    line += length + (line[length] == '\n');
  }
}

static void write_map(yaml_writer *w, const treadle_yaml *map, size_t indent, bool begun);

/* Does a comment stand anywhere in it? */
static bool has_notes(const treadle_yaml *node) {
  for (size_t i = 0; node->type != TREADLE_YAML_SCALAR && i < node->count; i++)
    if (node->items[i]->note || has_notes(node->items[i])) return true;
  return false;
}

static void write_list(yaml_writer *w, const treadle_yaml *list, size_t indent) {
  for (size_t i = 0; i < list->count; i++) {
    const treadle_yaml *item = list->items[i];
    write_note(w, item, indent);
    w->line = w->text->length;
    treadle_builder_add(w->text, "%*s- ", (int)indent, "");
    if (item->type == TREADLE_YAML_MAP && item->count > 0 && has_notes(item)) {
      write_map(w, item, indent + 2, true);
    } else {
      write_flow(w, item);
      treadle_builder_add(w->text, "\n");
    }
  }
}

/* begun: the line of its first key is there, up to the key. A note above that key has no place. */
static void write_map(yaml_writer *w, const treadle_yaml *map, size_t indent, bool begun) {
  for (size_t i = 0; i < map->count; i++) {
    const treadle_yaml *value = map->items[i];
    if (i || !begun) {
      write_note(w, value, indent);
      w->line = w->text->length;
      treadle_builder_add(w->text, "%*s", (int)indent, "");
    }
    treadle_yaml_write_scalar(w->text, map->keys[i]);
    bool list = value->type == TREADLE_YAML_LIST,
         wide = indent + strlen(map->keys[i]) + 2 + width_of(value) > WIDEST;
    bool lines = value->type != TREADLE_YAML_SCALAR && value->count > 0 &&
                 (is_deep(value) || (!list && wide) || has_sentence(value));
    treadle_builder_add(w->text, lines ? ":\n" : ": ");
    if (lines && list)
      write_list(w, value, indent + 2);
    else if (lines)
      write_map(w, value, indent + 2, false);
    else
      write_flow(w, value);
    if (!lines) treadle_builder_add(w->text, "\n");
  }
}

void treadle_yaml_write(treadle_builder *text, const treadle_yaml *root) {
  yaml_writer writer = {.text = text, .line = text->length};
  if (root->type == TREADLE_YAML_MAP && root->count > 0) {
    write_map(&writer, root, 0, false);
  } else {
    write_flow(&writer, root);
    treadle_builder_add(text, "\n");
  }
}
