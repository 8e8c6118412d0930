/* YAML by way of libyaml's events. A node is read by one function that calls itself for what is inside, at
 * most 64 deep. Items of a list or map collect in a growing array and move to the arena when it ends.
 *
 * Refused, because a reader of a config cannot see them or because they mean different things to different
 * readers: anchors and aliases, tags, keys that are not scalars or stand twice, zero characters, more than
 * one document. An empty file is refused too: whoever reads one meant another. */
#include "io/yaml.h"

#include "base/alloc.h"
#include "base/array.h"
#include "base/hash_map.h"
#include "io/file.h"

#include <string.h>
#include <yaml.h>

enum { LARGEST_FILE = 64 << 20, DEEPEST = 64 };

typedef struct yaml_reader {
  yaml_parser_t parser;
  const char *what;
  const char *file; /* the same, in the arena */
  treadle_arena *arena;
} yaml_reader;

static treadle_status no_memory(const yaml_reader *reader) {
  return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for its nodes", reader->what);
}

static int line_of(const yaml_event_t *event) { return (int)event->start_mark.line + 1; }

/* The next event; ended by yaml_event_delete(). */
static treadle_status next(yaml_reader *reader, yaml_event_t *event) {
  yaml_parser_t *parser = &reader->parser;
  if (yaml_parser_parse(parser, event)) return TREADLE_OK;
  if (parser->error == YAML_MEMORY_ERROR) return no_memory(reader);
  /* Errors of encoding have an offset in bytes, all others a line. */
  if (parser->error == YAML_READER_ERROR)
    return treadle_fail(TREADLE_REFUSED, "%s: byte %zu: %s", reader->what, parser->problem_offset,
                        parser->problem);
  return treadle_fail(TREADLE_REFUSED, "%s:%zu:%zu: %s%s%s", reader->what, parser->problem_mark.line + 1,
                      parser->problem_mark.column + 1, parser->context ? parser->context : "",
                      parser->context ? ": " : "", parser->problem);
}

/* Refuses an alias, an anchor or a tag; of a scalar also zero characters. */
static treadle_status check_plain(const yaml_reader *reader, const yaml_event_t *event) {
  const yaml_char_t *anchor = NULL, *tag = NULL;
  switch (event->type) {
  case YAML_SCALAR_EVENT:
    anchor = event->data.scalar.anchor, tag = event->data.scalar.tag;
    if (memchr(event->data.scalar.value, 0, event->data.scalar.length))
      return treadle_fail(TREADLE_REFUSED, "%s:%d: a text has a zero character", reader->what,
                          line_of(event));
    break;
  case YAML_SEQUENCE_START_EVENT:
    anchor = event->data.sequence_start.anchor, tag = event->data.sequence_start.tag;
    break;
  case YAML_MAPPING_START_EVENT:
    anchor = event->data.mapping_start.anchor, tag = event->data.mapping_start.tag;
    break;
  default: /* an alias: the only other event where a node may stand */ anchor = event->data.alias.anchor;
  }
  if (anchor)
    return treadle_fail(TREADLE_REFUSED, "%s:%d: anchors and aliases ('%s') are not allowed", reader->what,
                        line_of(event), (const char *)anchor);
  if (tag)
    return treadle_fail(TREADLE_REFUSED, "%s:%d: tags ('%s') are not allowed", reader->what, line_of(event),
                        (const char *)tag);
  return TREADLE_OK;
}

static treadle_status read_node(yaml_reader *reader, const yaml_event_t *event, int depth,
                                treadle_yaml **node_p);

/* Checks the key that `event` begins, adds it to `seen`, and copies it to the arena. */
static treadle_status read_key(yaml_reader *reader, const yaml_event_t *event, treadle_hash_map *seen,
                               const char **key_p) {
  treadle_status status;
  TRY(check_plain(reader, event));
  if (event->type != YAML_SCALAR_EVENT) {
    status =
        treadle_fail(TREADLE_REFUSED, "%s:%d: a key is not a plain text", reader->what, line_of(event));
    goto out;
  }
  const char *key = (const char *)event->data.scalar.value;
  int64_t before = treadle_hash_map_get(seen, key, 0);
  if (before) {
    status = treadle_fail(TREADLE_REFUSED, "%s:%d: key '%s' stands on line %d already", reader->what,
                          line_of(event), key, (int)before);
    goto out;
  }
  *key_p = treadle_arena_copy_text(reader->arena, key);
  if (!*key_p) {
    status = no_memory(reader);
    goto out;
  }
  TRY(treadle_hash_map_put(seen, *key_p, line_of(event)));
out:
  return status;
}

/* The items of a list, or keys and values of a map, up to the event that ends it. */
static treadle_status read_items(yaml_reader *reader, yaml_event_type_t end, int depth,
                                 treadle_yaml *node) {
  TREADLE_ARRAY(treadle_yaml *) items = {0};
  TREADLE_ARRAY(const char *) keys = {0};
  TREADLE_ARRAY(int) lines = {0};
  treadle_hash_map seen = {0};
  yaml_event_t event = {0};
  treadle_status status;
  for (;;) {
    yaml_event_delete(&event);
    TRY(next(reader, &event));
    if (event.type == end) break;
    if (node->type == TREADLE_YAML_MAP) {
      const char *key = NULL;
      TRY(read_key(reader, &event, &seen, &key));
      TRY(treadle_array_push(&keys, key));
      TRY(treadle_array_push(&lines, line_of(&event)));
      yaml_event_delete(&event);
      TRY(next(reader, &event));
    }
    treadle_yaml *item = NULL;
    TRY(read_node(reader, &event, depth + 1, &item));
    TRY(treadle_array_push(&items, item));
  }
  node->count = items.count;
  node->items = treadle_arena_alloc_array(reader->arena, items.count, sizeof *node->items);
  node->keys = treadle_arena_alloc_array(reader->arena, keys.count, sizeof *node->keys);
  node->key_lines = treadle_arena_alloc_array(reader->arena, lines.count, sizeof *node->key_lines);
  if (!node->items || !node->keys || !node->key_lines) {
    status = no_memory(reader);
    goto out;
  }
  if (items.count) memcpy(node->items, items.items, items.count * sizeof *items.items);
  if (keys.count) memcpy(node->keys, keys.items, keys.count * sizeof *keys.items);
  if (lines.count) memcpy(node->key_lines, lines.items, lines.count * sizeof *lines.items);
out:
  yaml_event_delete(&event);
  treadle_hash_map_release(&seen);
  treadle_array_release(&keys);
  treadle_array_release(&lines);
  treadle_array_release(&items);
  return status;
}

/* The node that `event` begins. */
static treadle_status read_node(yaml_reader *reader, const yaml_event_t *event, int depth,
                                treadle_yaml **node_p) {
  treadle_status status;
  TRY(check_plain(reader, event));
  if (depth > DEEPEST) {
    status =
        treadle_fail(TREADLE_REFUSED, "%s:%d: more than %d deep", reader->what, line_of(event), DEEPEST);
    goto out;
  }
  treadle_yaml *node = treadle_arena_alloc(reader->arena, sizeof *node);
  if (!node) {
    status = no_memory(reader);
    goto out;
  }
  node->line = line_of(event);
  node->file = reader->file;
  if (event->type == YAML_SCALAR_EVENT) {
    node->type = TREADLE_YAML_SCALAR;
    node->is_plain = event->data.scalar.plain_implicit;
    node->text = treadle_arena_copy_text(reader->arena, (const char *)event->data.scalar.value);
    if (!node->text) status = no_memory(reader);
  } else if (event->type == YAML_SEQUENCE_START_EVENT) {
    node->type = TREADLE_YAML_LIST;
    TRY(read_items(reader, YAML_SEQUENCE_END_EVENT, depth, node));
  } else {
    node->type = TREADLE_YAML_MAP;
    TRY(read_items(reader, YAML_MAPPING_END_EVENT, depth, node));
  }
  *node_p = node;
out:
  return status;
}

treadle_status treadle_yaml_parse(const char *what, const char *text, size_t length, treadle_arena *arena,
                                  const treadle_yaml **root_p) {
  yaml_reader reader = {.what = what, .file = treadle_arena_copy_text(arena, what), .arena = arena};
  yaml_event_t event = {0};
  treadle_yaml *root = NULL;
  treadle_status status;
  if (!reader.file || !yaml_parser_initialize(&reader.parser)) return no_memory(&reader);
  yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, length);

  TRY(next(&reader, &event)); /* the stream starts */
  yaml_event_delete(&event);
  TRY(next(&reader, &event)); /* the document starts, or there is none */
  if (event.type == YAML_STREAM_END_EVENT) {
    status = treadle_fail(TREADLE_REFUSED, "%s: is empty", what);
    goto out;
  }
  yaml_event_delete(&event);
  TRY(next(&reader, &event));
  TRY(read_node(&reader, &event, 1, &root));
  yaml_event_delete(&event);
  TRY(next(&reader, &event)); /* the document ends */
  yaml_event_delete(&event);
  TRY(next(&reader, &event));
  if (event.type != YAML_STREAM_END_EVENT) {
    status = treadle_fail(TREADLE_REFUSED, "%s:%d: a second document begins", what, line_of(&event));
    goto out;
  }
  *root_p = root;
out:
  yaml_event_delete(&event);
  yaml_parser_delete(&reader.parser);
  return status;
}

treadle_status treadle_yaml_load(const char *path, treadle_arena *arena, const treadle_yaml **root_p) {
  char *text = NULL;
  size_t length = 0;
  treadle_status status;
  TRY(treadle_file_read(path, LARGEST_FILE, &text, &length));
  TRY(treadle_yaml_parse(path, text, length, arena, root_p));
out:
  treadle_free(text);
  return status;
}

const treadle_yaml *treadle_yaml_get(const treadle_yaml *node, const char *key) {
  if (!node || node->type != TREADLE_YAML_MAP) return NULL;
  for (size_t i = 0; i < node->count; i++)
    if (strcmp(node->keys[i], key) == 0) return node->items[i];
  return NULL;
}

const char *treadle_yaml_text(const treadle_yaml *node, const char *key, const char *otherwise) {
  const treadle_yaml *value = treadle_yaml_get(node, key);
  return value && value->type == TREADLE_YAML_SCALAR ? value->text : otherwise;
}
