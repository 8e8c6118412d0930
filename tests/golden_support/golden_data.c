/* Files that golden files name. */
#include "golden_support/golden_data.h"

#include <stdio.h>
#include <unistd.h>

enum { MOST_FOLDERS = 16 };

static const char *folders[MOST_FOLDERS];
static size_t folder_count;

void golden_data_add(const char *folder) {
  if (folder_count < MOST_FOLDERS) folders[folder_count++] = folder;
}

bool golden_data_find(const char *name, char *path, size_t room) {
  for (size_t i = 0; i < (folder_count ? folder_count : 1); i++) {
    const char *folder = folder_count ? folders[i] : TREADLE_SOURCE_DIR "/../shared";
    if ((size_t)snprintf(path, room, "%s/%s", folder, name) < room && access(path, R_OK) == 0) return true;
  }
  return false;
}
