/* A store for tests: a folder with a file for each key. It may lose keys and answer late. */
#ifndef TREADLE_TESTS_FOLDER_STORE_H
#define TREADLE_TESTS_FOLDER_STORE_H

#include "treadle.h"

typedef struct folder {
  char path[64];
  int gets;         /* this many calls */
  const char *lose; /* keys that end so are lost; NULL: none */
  double late;      /* seconds that each get takes longer than it should */
} folder;

treadle_status folder_set(void *context, const char *key, const void *value, size_t bytes);
treadle_status folder_get(void *context, const char *key, double seconds, void *value, size_t capacity,
                          size_t *bytes_p);
treadle_store folder_store(folder *f, const char *job);

#endif
