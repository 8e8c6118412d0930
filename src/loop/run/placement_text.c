#include "run/placement_text.h"

#include "base/text.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

bool treadle_placement_range(const char *text, size_t length, int64_t *first_p, int64_t *last_p) {
  char one[48];
  if (length >= sizeof one) return false;
  snprintf(one, sizeof one, "%.*s", (int)length, text);
  char *dash = strchr(one, '-');
  if (dash) *dash = 0;
  return treadle_text_to_int64(one, first_p) && *first_p >= 0 &&
         treadle_text_to_int64(dash ? dash + 1 : one, last_p) && *last_p >= 0 && *last_p < INT32_MAX;
}

size_t treadle_placement_trim(const char **text_p, size_t length) {
  const size_t spaces = strspn(*text_p, " \t");
  if (spaces >= length) return 0;
  *text_p += spaces;
  length -= spaces;
  while (length && ((*text_p)[length - 1] == ' ' || (*text_p)[length - 1] == '\t')) length--;
  return length;
}

/* ---- Parts ------------------------------------------------------------------------------------------------- */

static treadle_status check_resources(const char *head, const char *shown,
                                      const treadle_placement_text *placement, int64_t first,
                                      int64_t last) {
  if (first > last)
    REFUSE("%s is '%s': %lld-%lld ends before it begins", head, shown, (long long)first, (long long)last);
  for (size_t i = 0; i < placement->count; i++)
    if (first <= placement->parts[i].last && placement->parts[i].first <= last)
      REFUSE("%s is '%s': Resource ranks must be unique, and %lld is named twice", head, shown,
             (long long)(first > placement->parts[i].first ? first : placement->parts[i].first));
  return TREADLE_OK;
}

/* RESOURCES[:PROCESSES], whose processes are the next ones. */
static treadle_status add_part(const char *head, const char *shown, const char *text, size_t length,
                               treadle_placement_text *placement) {
  const char *colon = memchr(text, ':', length), *processes = colon ? colon + 1 : NULL;
  size_t own = colon ? (size_t)(colon - text) : length, rest = colon ? length - own - 1 : 0;
  const treadle_placement_part *before = placement->count ? &placement->parts[placement->count - 1] : NULL;
  const int64_t next = before ? before->process + before->processes : 0;
  treadle_placement_part part;
  int64_t process = next, last_process;
  treadle_status status;
  own = treadle_placement_trim(&text, own);
  if (colon) rest = treadle_placement_trim(&processes, rest);
  if (!treadle_placement_range(text, own, &part.first, &part.last))
    REFUSE("%s is '%s': a placement is accelerators, as 0-3 or 0-2,5,7, or all, and may have processes, as "
           "0-1:0-3",
           head, shown);
  TRY(check_resources(head, shown, placement, part.first, part.last));
  const int64_t count = part.last - part.first + 1;
  last_process = next + count - 1;
  if (colon && !treadle_placement_range(processes, rest, &process, &last_process))
    REFUSE("%s is '%s': processes are a number or a range, as 0-3", head, shown);
  part.process = process;
  part.processes = last_process - process + 1;
  if (process != next || part.processes < 1)
    REFUSE("%s is '%s': Process ranks must be in ascending order and without a gap, from %lld here", head,
           shown, (long long)next);
  if (part.processes % count != 0 && count % part.processes != 0)
    REFUSE("%s is '%s': %lld processes on %lld accelerators, of which neither number divides the other",
           head, shown, (long long)part.processes, (long long)count);
  placement->parts[placement->count++] = part;
out:
  return status;
}

treadle_status treadle_placement_parse(const char *head, const char *text,
                                       treadle_placement_text *placement) {
  const char *shown = treadle_text_shown(text);
  treadle_status status = TREADLE_OK;
  *placement = (treadle_placement_text){0};
  for (const char *at = text; *at; at += strcspn(at, ","), at += *at == ',') {
    const char *part = at;
    const size_t own = treadle_placement_trim(&part, strcspn(at, ","));
    if (!own) continue;
    if (own == 3 && strncasecmp(part, "all", 3) == 0) {
      placement->is_all = true;
      continue;
    }
    if (placement->count == TREADLE_PLACEMENT_PARTS)
      REFUSE("%s has more than %d parts", head, TREADLE_PLACEMENT_PARTS);
    TRY(add_part(head, shown, part, own, placement));
  }
  if (placement->is_all && placement->count)
    REFUSE("%s is '%s': all accelerators are named, and some again", head, shown);
  if (!placement->is_all && !placement->count) REFUSE("%s must not be empty", head);
out:
  return status;
}

int64_t treadle_placement_resource(const treadle_placement_part *part, int64_t process, int64_t *count_p) {
  const int64_t count = part->last - part->first + 1, number = process - part->process;
  *count_p = count > part->processes ? count / part->processes : 1;
  return part->first + (count > part->processes ? number * *count_p : number / (part->processes / count));
}
