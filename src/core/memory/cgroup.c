/* What the control groups of this process leave.
 *
 * Where a control group's files are. /proc/self/cgroup names the group by its path in the hierarchy; /proc/self/mountinfo says
 * where which part of the hierarchy is mounted. In a container the mount may begin at the container's own group, and
 * the path may or may not be told from there; what does not begin with the mount's root is taken to be the mount point, which
 * is then the nearest that can be seen. From the group's folder all folders up to the mount point are looked at. A v1
 * group that cannot be seen any more is noticed by hierarchical_memory_limit.
 *
 * A group is known by the inode of its folder, which is the same in all mounts and namespaces. */
#include "memory/cgroup.h"

#include "memory/proc.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>

typedef struct group_rule {
  const char *limit, *usage;
} group_rule;

typedef struct group_type {
  const char *file_system, *controller; /* NULL: of all controllers */
  group_rule rules[2];
  const char *reclaimed[3]; /* words of memory.stat: what the system takes back */
} group_type;

static const group_type types[] = {
    {"cgroup",
     "memory",
     {{"memory.limit_in_bytes", "memory.usage_in_bytes"},
      {"memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"}},
     {"total_inactive_file ", "total_active_file ", NULL}},
    {"cgroup2",
     NULL,
     {{"memory.max", "memory.current"}, {"memory.high", "memory.current"}},
     {"inactive_file ", "active_file ", "slab_reclaimable "}},
};

typedef struct group_place {
  char mount[PATH_MAX], path[PATH_MAX]; /* the mount point, and the group's folder at it or below */
} group_place;

static bool has_word(const char *list, const char *word) {
  size_t length = strlen(word);
  for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (strncmp(at, word, length) == 0 && (at[length] == ',' || at[length] == 0)) return true;
  return false;
}

/* The path of this process's group in the hierarchy; lines are "number:controllers:path". */
static bool find_path(const char *root, const group_type *version, char *path) {
  treadle_proc_file f;
  bool found = false;
  if (treadle_proc_open(&f, root, "/proc/self", "cgroup"))
    while (!found && treadle_proc_next(&f)) {
      char *list = strchr(f.line, ':'), *at = list ? strchr(list + 1, ':') : NULL;
      if (!at || at[1] != '/') continue;
      *at++ = 0;
      found = version->controller ? has_word(list + 1, version->controller) : !list[1];
      found = found && snprintf(path, PATH_MAX, "%s", at) < PATH_MAX;
    }
  treadle_proc_close(&f);
  return found;
}

/* Spaces and the like stand as \040 in mountinfo. */
static void unescape(char *text) {
  char *to = text;
  for (const char *at = text; *at; at++) {
    bool coded = at[0] == '\\' && at[1] >= '0' && at[1] <= '3' && at[2] >= '0' && at[2] <= '7' &&
                 at[3] >= '0' && at[3] <= '7';
    *to++ = coded ? (char)((at[1] - '0') * 64 + (at[2] - '0') * 8 + (at[3] - '0')) : *at;
    if (coded) at += 3;
  }
  *to = 0;
}

/* What of the path lies below the mount's root; NULL: it does not begin so, or leads out of it. */
static const char *below(const char *path, const char *mount_root) {
  size_t length = strcmp(mount_root, "/") == 0 ? 0 : strlen(mount_root);
  if (strncmp(path, mount_root, length) != 0 || (path[length] != '/' && path[length] != 0)) return NULL;
  return strstr(path + length, "/..") ? NULL : path + length;
}

/* Finds where the group can be seen: the mount with most of the hierarchy. mountinfo has lines of
 * "id parent device root point options [more ...] - type source options". */
static bool find_place(const char *root, const group_type *version, const char *path, group_place *place) {
  treadle_proc_file f;
  bool found = false, better = false; /* better: the path begins with the mount's root */
  size_t shortest = 0;
  if (!treadle_proc_open(&f, root, "/proc/self", "mountinfo")) return false;
  while (treadle_proc_next(&f)) {
    char *more = NULL, *word[5], *type = strstr(f.line, " - "), *options;
    if (!type) continue;
    *type = 0;
    type += 3;
    int words = 0;
    for (char *at = strtok_r(f.line, " ", &more); at && words < 5; at = strtok_r(NULL, " ", &more))
      word[words++] = at;
    if (!(type = strtok_r(type, " ", &more)) || words < 5 || strcmp(type, version->file_system) != 0)
      continue;
    (void)strtok_r(NULL, " ", &more);
    options = strtok_r(NULL, " ", &more);
    if (version->controller && !(options && has_word(options, version->controller))) continue;
    unescape(word[3]);
    unescape(word[4]);
    const char *rest = below(path, word[3]);
    if (found && (rest ? better && strlen(word[3]) >= shortest : true)) continue;
    if (snprintf(place->mount, PATH_MAX, "%s", strcmp(word[4], "/") == 0 ? "" : word[4]) >= PATH_MAX ||
        snprintf(place->path, PATH_MAX, "%s%s", place->mount, rest && rest[1] ? rest : "") >= PATH_MAX)
      continue;
    found = true;
    better = rest != NULL;
    shortest = strlen(word[3]);
  }
  treadle_proc_close(&f);
  return found;
}

static uint64_t reclaimed(const char *root, const char *folder, const group_type *version) {
  uint64_t sum = 0, bytes;
  for (size_t i = 0; i < sizeof version->reclaimed / sizeof version->reclaimed[0] && version->reclaimed[i];
       i++)
    if (treadle_proc_line_of(root, folder, "memory.stat", version->reclaimed[i], "", &bytes) &&
        bytes < TREADLE_NO_LIMIT)
      sum += bytes;
  return sum;
}

static uint64_t folder_id(const char *root, const char *folder) {
  char path[PATH_MAX];
  struct stat about;
  bool known =
      snprintf(path, sizeof path, "%s%s", root, folder) < (int)sizeof path && stat(path, &about) == 0;
  return known ? (uint64_t)about.st_ino : 0;
}

/* The tightest limit of one group, if it has any. *smallest_p: the smallest limit on memory alone so far. */
static void add_group(const char *root, const char *folder, const group_type *version,
                      treadle_limits *limits, uint64_t *smallest_p) {
  treadle_limit tightest = {.bytes = TREADLE_NO_LIMIT};
  for (size_t i = 0; i < sizeof version->rules / sizeof version->rules[0]; i++) {
    treadle_limit limit = {.id = folder_id(root, folder)};
    char after[64];
    uint64_t usage;
    if (!treadle_proc_number(root, folder, version->rules[i].limit, &limit.bytes) ||
        limit.bytes >= TREADLE_NO_LIMIT ||
        !treadle_proc_number(root, folder, version->rules[i].usage, &usage))
      continue;
    if (i == 0 && limit.bytes < *smallest_p) *smallest_p = limit.bytes;
    limit.left =
        treadle_limit_less(limit.bytes, treadle_limit_less(usage, reclaimed(root, folder, version)));
    if (tightest.bytes < TREADLE_NO_LIMIT && tightest.left <= limit.left) continue;
    snprintf(after, sizeof after, " (%s)", version->rules[i].limit);
    treadle_limit_name(&limit, "control group ", folder, after);
    tightest = limit;
  }
  treadle_limits_add(limits, &tightest);
}

/* v1: a group above the mount point, which cannot be seen. How much of it is taken is at least what the mount point's group
 * has. */
static void add_hidden(const char *root, const char *mount, uint64_t bytes, const group_type *version,
                       treadle_limits *limits) {
  treadle_limit limit = {.id = ~folder_id(root, mount), .bytes = bytes};
  uint64_t usage;
  if (!treadle_proc_number(root, mount, version->rules[0].usage, &usage)) return;
  limit.left = treadle_limit_less(bytes, treadle_limit_less(usage, reclaimed(root, mount, version)));
  treadle_limit_name(&limit, "a control group above ", mount, " (hierarchical_memory_limit)");
  treadle_limits_add(limits, &limit);
}

static bool is_there(const char *root, const char *folder) { return folder_id(root, folder) != 0; }

/* Does a v1 group count what the groups in it use? All do since Linux 5.11. */
static bool counts_inner(const char *root, const char *folder) {
  uint64_t value;
  return !treadle_proc_number(root, folder, "memory.use_hierarchy", &value) || value != 0;
}

static bool add_groups(const char *root, const group_type *version, treadle_limits *limits) {
  char path[PATH_MAX];
  group_place place;
  if (!find_path(root, version, path) || !find_place(root, version, path, &place)) return false;
  size_t top = strlen(place.mount), end = strlen(place.path);
  uint64_t smallest = TREADLE_NO_LIMIT, of_all = TREADLE_NO_LIMIT; /* of all that the group lies in */
  (void)treadle_proc_line_of(root, place.path, "memory.stat", "hierarchical_memory_limit ", "", &of_all);
  for (bool inner = false; end >= top; inner = true) {
    place.path[end] = 0;
    if (is_there(root, place.path)) {
      if (inner && version->controller && !counts_inner(root, place.path)) break;
      add_group(root, place.path, version, limits, &smallest);
    }
    if (end == top) break;
    while (end > top && place.path[end - 1] != '/') end--;
    if (end > top) end--;
  }
  if (of_all < smallest) add_hidden(root, place.mount, of_all, version, limits);
  return true;
}

void treadle_cgroup_add(const char *root, treadle_limits *limits) {
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (add_groups(root, &types[i], limits)) break; /* one hierarchy has the memory controller */
}
