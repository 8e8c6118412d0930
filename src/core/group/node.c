/* A node is known by the random number that the kernel draws when the machine starts. */
#include "group/node.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* /proc/sys/kernel/random/boot_id: 32 digits, with dashes between. */
static bool read_boot(uint8_t boot[16]) {
  char text[64] = "";
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
  bool there = file && fgets(text, sizeof text, file);
  if (file) fclose(file);
  int digits = 0;
  for (const char *c = text; there && *c && digits < 32; c++) {
    int value = *c >= '0' && *c <= '9' ? *c - '0' : *c >= 'a' && *c <= 'f' ? *c - 'a' + 10 : -1;
    if (value < 0) continue;
    boot[digits / 2] = (uint8_t)(boot[digits / 2] << 4 | value);
    digits++;
  }
  return digits == 32;
}

static bool read_space(const char *path, uint64_t *space_p) {
  struct stat space;
  if (stat(path, &space) != 0) return false;
  *space_p = (uint64_t)space.st_ino;
  return true;
}

treadle_status treadle_node_here(treadle_node *node_p) {
  *node_p = (treadle_node){0};
  if (read_boot(node_p->boot) && read_space("/proc/self/ns/net", &node_p->network) &&
      read_space("/proc/self/ns/pid", &node_p->processes))
    return TREADLE_OK;
  return treadle_fail(TREADLE_SYSTEM, "/proc does not say which machine this is: %s", strerror(errno));
}

bool treadle_node_is_same(const treadle_node *a, const treadle_node *b) {
  return memcmp(a->boot, b->boot, sizeof a->boot) == 0 && a->network == b->network &&
         a->processes == b->processes;
}
