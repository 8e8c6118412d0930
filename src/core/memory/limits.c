/* What the machine and RLIMIT_AS leave; control groups are in cgroup.c. */
#include "memory/limits.h"

#include "base/text.h"
#include "memory/cgroup.h"
#include "memory/proc.h"

#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void treadle_limit_name(treadle_limit *limit, const char *before, const char *path, const char *after) {
  size_t room = sizeof limit->text - strlen(before) - strlen(after) - 1, length = strlen(path);
  bool cut = length > room;
  snprintf(limit->text, sizeof limit->text, "%s%s%s%s", before, cut ? "..." : "",
           cut ? path + length - room + 3 : path, after);
}

void treadle_limits_add(treadle_limits *limits, const treadle_limit *limit) {
  int32_t at = limits->count;
  if (limit->bytes >= TREADLE_NO_LIMIT) return;
  if (at < TREADLE_LIMIT_COUNT) {
    limits->count++;
  } else {
    at = 0;
    for (int32_t i = 1; i < limits->count; i++)
      if (limits->memory[i].left > limits->memory[at].left) at = i;
    if (limits->memory[at].left <= limit->left) return;
  }
  limits->memory[at] = *limit;
}

static void add_machine(const char *root, treadle_limits *limits) {
  treadle_limit limit = {.id = 0};
  uint64_t total, available;
  if (!treadle_proc_line_of(root, "/proc", "meminfo", "MemTotal:", " kB", &total) ||
      !treadle_proc_line_of(root, "/proc", "meminfo", "MemAvailable:", " kB", &available) ||
      total > TREADLE_NO_LIMIT >> 10 || available > total)
    return;
  limit.bytes = total << 10;
  limit.left = available << 10;
  treadle_limit_name(&limit, "this machine", "", "");
  treadle_limits_add(limits, &limit);
}

/* The same in no other process, whichever container it is in. */
static uint64_t process_id(const char *root) {
  char path[PATH_MAX];
  struct stat space = {0};
  if (snprintf(path, sizeof path, "%s/proc/self/ns/pid", root) >= (int)sizeof path ||
      stat(path, &space) != 0)
    space.st_ino = 0;
  return (uint64_t)space.st_ino << 32 ^ (uint64_t)getpid();
}

static void read_addresses(const char *root, treadle_limits *limits) {
  treadle_limit *limit = &limits->addresses;
  treadle_proc_file f;
  uint64_t pages = 0;
  unsigned long long soft = 0, statm;
  limit->id = process_id(root);
  if (treadle_proc_open(&f, root, "/proc/self", "limits"))
    while (!limits->has_addresses && treadle_proc_next(&f))
      if (sscanf(f.line, "Max address space %llu", &soft) == 1)
        limits->has_addresses = soft < TREADLE_NO_LIMIT;
  treadle_proc_close(&f);
  if (!limits->has_addresses) return;
  if (treadle_proc_open(&f, root, "/proc/self", "statm") && treadle_proc_next(&f) &&
      sscanf(f.line, "%llu", &statm) == 1)
    pages = statm;
  treadle_proc_close(&f);
  limit->bytes = soft;
  limit->left = treadle_limit_less(soft, pages * (uint64_t)sysconf(_SC_PAGESIZE));
  treadle_limit_name(limit, "RLIMIT_AS", "", "");
}

void treadle_limits_read(const char *root, treadle_limits *limits_p) {
  *limits_p = (treadle_limits){0};
  add_machine(root, limits_p);
  treadle_cgroup_add(root, limits_p);
  read_addresses(root, limits_p);
}

treadle_status treadle_limits_ask(uint64_t bytes, const char *what) {
  treadle_limits limits;
  treadle_limits_read("", &limits);
  const treadle_limit *tightest = limits.has_addresses ? &limits.addresses : NULL;
  for (int32_t i = 0; i < limits.count; i++)
    if (!tightest || limits.memory[i].left < tightest->left) tightest = &limits.memory[i];
  if (!tightest || bytes <= tightest->left) return TREADLE_OK;
  return treadle_fail(TREADLE_NO_MEMORY, "%s takes %s of memory, and %s leaves %s of %s", what,
                      treadle_text_of_size(bytes), tightest->text, treadle_text_of_size(tightest->left),
                      treadle_text_of_size(tightest->bytes));
}
