/* A folder as a store. */
#include "meet/folder_store.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void nap(double seconds) {
  if (seconds > 0)
    nanosleep(&(struct timespec){.tv_sec = (time_t)seconds,
                                 .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)},
              NULL);
}

static void path_of(const folder *f, const char *key, char *path, size_t bytes) {
  size_t used = (size_t)snprintf(path, bytes, "%s/%s", f->path, key);
  for (size_t i = strlen(f->path) + 1; i < used; i++)
    if (path[i] == '/') path[i] = '_';
}

treadle_status folder_set(void *context, const char *key, const void *value, size_t bytes) {
  const folder *f = context;
  char path[400], fresh[440];
  if (f->lose && strlen(key) >= strlen(f->lose) &&
      strcmp(key + strlen(key) - strlen(f->lose), f->lose) == 0)
    return TREADLE_OK;
  path_of(f, key, path, sizeof path);
  snprintf(fresh, sizeof fresh, "%s.%d", path, (int)getpid());
  FILE *file = fopen(fresh, "w");
  if (!file) return treadle_error_set(TREADLE_SYSTEM, "the folder is gone");
  fwrite(value, 1, bytes, file);
  fclose(file);
  return rename(fresh, path) == 0 ? TREADLE_OK : TREADLE_SYSTEM;
}

treadle_status folder_get(void *context, const char *key, double seconds, void *value, size_t capacity,
                          size_t *bytes_p) {
  folder *f = context;
  char path[400];
  FILE *file;
  f->gets++;
  nap(f->late);
  path_of(f, key, path, sizeof path);
  for (double end = treadle_clock_seconds() + seconds; !(file = fopen(path, "r"));
       nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL))
    if (treadle_clock_seconds() > end) return treadle_error_set(TREADLE_TIMEOUT, "nobody has set it");
  char all[8192];
  *bytes_p = fread(all, 1, sizeof all, file);
  memcpy(value, all, *bytes_p < capacity ? *bytes_p : capacity);
  fclose(file);
  return TREADLE_OK;
}

treadle_store folder_store(folder *f, const char *job) {
  return (treadle_store){
      .struct_size = sizeof(treadle_store), .context = f, .set = folder_set, .get = folder_get, .job = job};
}
