/* Control groups of tests. */
#include "cli/control_group.h"

#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mntent.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

static const char prefix[] = "treadle-test-";

static char folder[600]; /* "": there is none */
static bool second;      /* v2 */

static bool write_to(const char *name, const char *text) {
  char path[700];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  if (!file) return false;
  bool good = fputs(text, file) >= 0;
  return fclose(file) == 0 && good;
}

/* The path in /proc/self/cgroup. */
static void own_path(bool v2, char *path, size_t room) {
  char line[512];
  FILE *file = fopen("/proc/self/cgroup", "re");
  *path = 0;
  while (file && fgets(line, sizeof line, file)) {
    char *list = strchr(line, ':'), *at = list ? strchr(list + 1, ':') : NULL;
    if (!at) continue;
    line[strcspn(line, "\n")] = 0;
    *at++ = 0;
    if (v2 ? !list[1] : strstr(list + 1, "memory") != NULL) snprintf(path, room, "%s", at);
  }
  if (file) fclose(file);
}

/* Groups that a test left here which was killed. */
static void sweep(const char *parent) {
  DIR *all = opendir(parent);
  for (struct dirent *entry; all && (entry = readdir(all));)
    if (strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0 &&
        kill((pid_t)atoi(entry->d_name + sizeof prefix - 1), 0) != 0)
      (void)unlinkat(dirfd(all), entry->d_name, AT_REMOVEDIR);
  if (all) closedir(all);
}

static bool make_in(const char *parent) {
  sweep(parent);
  if (snprintf(folder, sizeof folder, "%s/%s%d", parent, prefix, (int)getpid()) >= (int)sizeof folder ||
      mkdir(folder, 0755) != 0) {
    *folder = 0;
    return false;
  }
  if (write_to(second ? "memory.max" : "memory.limit_in_bytes", second ? "max" : "-1")) {
    pid_t child = fork(); /* v2: not every group may have processes */
    if (child == 0) _exit(!control_group_enter());
    int how = 1;
    if (child > 0 && waitpid(child, &how, 0) == child && how == 0) return true;
  }
  control_group_end();
  return false;
}

/* From this process's group outwards. */
static bool make_below(const char *mount, bool v2) {
  char path[400], place[512];
  second = v2;
  own_path(v2, path, sizeof path);
  for (;; *strrchr(path, '/') = 0) {
    snprintf(place, sizeof place, "%s%s", mount, path);
    if (make_in(place)) return true;
    if (!strrchr(path, '/')) return false;
  }
}

bool control_group_begin(void) {
  FILE *mounts = setmntent("/proc/self/mounts", "re");
  bool made = false;
  for (struct mntent *m; mounts && !made && (m = getmntent(mounts));) {
    bool v2 = strcmp(m->mnt_type, "cgroup2") == 0;
    if (v2 || (strcmp(m->mnt_type, "cgroup") == 0 && hasmntopt(m, "memory")))
      made = make_below(m->mnt_dir, v2);
  }
  if (mounts) endmntent(mounts);
  if (made)
    print_message("in %s\n", folder);
  else
    print_message("skipped: no control group can be made here (%s)\n", strerror(errno));
  return made;
}

void control_group_limit(size_t bytes) {
  char text[32];
  snprintf(text, sizeof text, "%zu", bytes);
  assert_true(second ? write_to("memory.max", bytes ? text : "max")
                     : write_to("memory.limit_in_bytes", bytes ? text : "-1"));
}

bool control_group_enter(void) { return write_to("cgroup.procs", "0"); }

size_t control_group_peak(void) {
  char path[700];
  size_t bytes = 0;
  snprintf(path, sizeof path, "%s/%s", folder, second ? "memory.peak" : "memory.max_usage_in_bytes");
  FILE *file = fopen(path, "re");
  if (file && fscanf(file, "%zu", &bytes) != 1) bytes = 0;
  if (file) fclose(file);
  return bytes;
}

void control_group_end(void) {
  for (int i = 0; *folder && i < 100 && rmdir(folder) != 0 && errno == EBUSY; i++)
    nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
  *folder = 0;
}
