/* RLinf's cluster.component_placement: which accelerators a component has (rlinf/scheduler/placement/placement.py). A placement is one or more
 * parts with commas between, each RESOURCES or RESOURCES:PROCESSES: a number, a range as 0-3, or all. Resources ascend over all parts; processes
 * are numbered from 0 without a gap, and follow from the resources where they are not given. A trainer and an engine have a rank on each of
 * their accelerators, which are neighbours. */
#include "run/config_switch.h"

#include "base/utf8.h"
#include "run/placement_text.h"

#include <string.h>

/* The processes of a part, which has `count` resources. */
static treadle_status add_processes(const char *head, const char *shown, const char *text, size_t length,
                                    int64_t count, treadle_switch_span *range) {
  int64_t first = range->processes, last = first + count - 1, processes;
  if (text && !treadle_placement_range(text, length, &first, &last))
    REFUSE("%s is '%s': processes are a number or a range, as 0-3", head, shown);
  processes = last - first + 1;
  if (first != range->processes || processes < 1)
    REFUSE("%s is '%s': processes must ascend without a gap, from %lld here", head, shown,
           (long long)range->processes);
  if (!range->is_all && processes % count != 0 && count % processes != 0)
    REFUSE("%s is '%s': %lld processes on %lld accelerators, of which neither number divides the other",
           head, shown, (long long)processes, (long long)count);
  range->processes = last + 1;
  return TREADLE_OK;
}

/* RESOURCES[:PROCESSES] */
static treadle_status add_part(const char *head, const char *shown, const char *text, size_t length,
                               treadle_switch_span *range) {
  const char *colon = memchr(text, ':', length), *processes = colon ? colon + 1 : NULL;
  size_t own = colon ? (size_t)(colon - text) : length, rest = colon ? length - own - 1 : 0;
  int64_t first = 0, last = 0;
  own = treadle_placement_trim(&text, own);
  if (colon) rest = treadle_placement_trim(&processes, rest);
  if (own == 3 && strncasecmp(text, "all", 3) == 0) {
    if (range->count || range->is_all) REFUSE("%s is '%s': accelerators must be named once", head, shown);
    range->is_all = true;
    if (processes) REFUSE("%s is '%s': all accelerators have a process each", head, shown);
    return TREADLE_OK;
  }
  if (!treadle_placement_range(text, own, &first, &last))
    REFUSE("%s is '%s': a placement is accelerators, as 0-3 or 0-2,5, or all, and may have processes, as "
           "0-1:0-3",
           head, shown);
  if (first > last)
    REFUSE("%s is '%s': %lld-%lld ends before it begins", head, shown, (long long)first, (long long)last);
  if (range->is_all || (range->count && first <= range->last))
    REFUSE("%s is '%s': accelerators must ascend, each named once", head, shown);
  if (!range->count) range->first = first;
  range->last = last;
  range->count += last - first + 1;
  return add_processes(head, shown, processes, rest, last - first + 1, range);
}

static treadle_status read_placement(const char *head, const char *text, treadle_switch_span *range) {
  const char *shown = treadle_text_shown(text);
  treadle_status status;
  for (const char *at = text; *at;) {
    const size_t length = strcspn(at, ",");
    const char *part = at;
    const size_t own = treadle_placement_trim(&part, length);
    if (own) TRY(add_part(head, shown, part, own, range));
    at += length + (at[length] == ',');
  }
  if (!range->count && !range->is_all) REFUSE("%s names no accelerator", head);
  return TREADLE_OK;
out:
  return status;
}

/* The text of a placement: its own, or that of {node_group, placement}. Groups of nodes have numbers of their own. */
static treadle_status text_of(const treadle_config_reader *reader, const treadle_given_value *given,
                              const char **text_p) {
  const treadle_yaml *node = given->node;
  *text_p = given->text;
  if (given->text) return TREADLE_OK;
  for (size_t i = 0; node->type == TREADLE_YAML_MAP && i < node->count; i++) {
    const bool is_group = strcmp(node->keys[i], "node_group") == 0;
    const char *text = node->items[i]->text;
    if (!is_group && strcmp(node->keys[i], "placement") != 0)
      REFUSE("%s:%d: %s.%s: a placement has node_group and placement", reader->config->file,
             node->key_lines[i], given->path, treadle_text_shown(node->keys[i]));
    if (!text || (is_group && strcmp(text, "cluster") != 0))
      REFUSE("%s:%d: %s.%s: ranks of a group of nodes are not known here; number the accelerators of the "
             "whole "
             "cluster",
             reader->config->file, node->key_lines[i], given->path, node->keys[i]);
    if (!is_group) *text_p = text;
  }
  if (!*text_p)
    REFUSE("%s must be accelerators, as 0-3, all, or 0-1:0-3", treadle_given_head(reader, given));
  return TREADLE_OK;
}

static int slot_of(const char *name, size_t length) {
  static const struct {
    const char *name;
    int slot;
  } names[] = {{"actor", TREADLE_PLACED_ACTOR},
               {"rollout", TREADLE_PLACED_ROLLOUT},
               {"inference", TREADLE_PLACED_INFERENCE},
               {"actor_inference", TREADLE_PLACED_INFERENCE}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strlen(names[i].name) == length && strncmp(name, names[i].name, length) == 0) return names[i].slot;
  return -1;
}

/* Components that the move has no part in may have anything, on nodes of any group. */
static bool has_part(const char *names) {
  bool has = false;
  for (const char *at = names; *at; at += strcspn(at, ","), at += *at == ',') {
    const char *name = at;
    has = has || slot_of(name, treadle_placement_trim(&name, strcspn(at, ","))) >= 0;
  }
  return has;
}

treadle_status treadle_asked_place_components(treadle_config_reader *reader, const char *names,
                                              const treadle_given_value *given) {
  struct treadle_switch_values *asked = reader->asked;
  treadle_switch_span range = {.path = given->path, .line = given->line};
  const char *text, *head = treadle_given_head(reader, given);
  treadle_status status;
  if (!has_part(names) && !given->text) return TREADLE_OK;
  if (!given->node && treadle_train_is_null(given->text)) return TREADLE_OK; /* takes the file's away */
  TRY(text_of(reader, given, &text));
  TRY(treadle_train_expand(&reader->names, head, given->path, text, &text));
  TRY(read_placement(treadle_given_head(reader, given), text, &range));
  if (!range.is_all && range.last > asked->highest) asked->highest = range.last;
  for (const char *at = names; *at; at += strcspn(at, ","), at += *at == ',') {
    const char *name = at;
    const size_t length = treadle_placement_trim(&name, strcspn(at, ","));
    const int slot = slot_of(name, length);
    if (slot < 0) continue;
    if (asked->placed[slot].path)
      REFUSE("%s: %.*s has a place already, on line %d", treadle_given_head(reader, given), (int)length,
             name, asked->placed[slot].line);
    if (!range.is_all && range.count != range.last - range.first + 1)
      REFUSE("%s is '%s': accelerators of %.*s must be neighbours", treadle_given_head(reader, given),
             treadle_text_shown(text), (int)length, name);
    if (!range.is_all && range.processes != range.count)
      REFUSE("%s is '%s': %.*s has a process on each of its accelerators, here %lld on %lld",
             treadle_given_head(reader, given), treadle_text_shown(text), (int)length, name,
             (long long)range.processes, (long long)range.count);
    asked->placed[slot] = range;
  }
out:
  return status;
}
