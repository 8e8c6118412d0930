/* A node is known by the random number that the kernel draws when the machine starts; host names may be the same on several. */
#include "transport/node.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DIGITS = 32 };

static int digit_of(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* 32 hexadecimal digits, with dashes in between; *end_p is behind the last. */
static bool read_boot(const char *text, uint8_t boot[16], const char **end_p) {
  int digits = 0;
  memset(boot, 0, 16);
  for (; *text && digits < DIGITS; text++) {
    int value = digit_of(*text);
    if (value < 0 && *text != '-') return false;
    if (value < 0) continue;
    boot[digits / 2] = (uint8_t)(boot[digits / 2] << 4 | value);
    digits++;
  }
  *end_p = text;
  return digits == DIGITS;
}

static bool is_good(char c) { return isalnum((unsigned char)c) || c == '.' || c == '-' || c == '_'; }

treadle_status treadle_node_here(treadle_node *node_p) {
  struct stat space;
  char text[64] = "";
  const char *end;
  *node_p = (treadle_node){0};
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
  bool there = file && fgets(text, sizeof text, file);
  if (file) fclose(file);
  if (!there || !read_boot(text, node_p->boot, &end) || stat("/proc/self/ns/net", &space) != 0)
    return treadle_fail(TREADLE_SYSTEM, "/proc does not say which machine this is: %s", strerror(errno));
  node_p->network = (uint64_t)space.st_ino;
  if (gethostname(node_p->host, sizeof node_p->host - 1) != 0) node_p->host[0] = 0;
  for (char *c = node_p->host; *c; c++)
    if (!is_good(*c)) *c = '_';
  return TREADLE_OK;
}

void treadle_node_write(const treadle_node *node, char *text) {
  for (int i = 0; i < 16; i++) snprintf(text + 2 * (size_t)i, 3, "%02x", node->boot[i]);
  snprintf(text + DIGITS, TREADLE_NODE_TEXT - DIGITS, ".%" PRIx64 "@%s", node->network, node->host);
}

bool treadle_node_read(const char *text, treadle_node *node_p) {
  const char *at;
  *node_p = (treadle_node){0};
  if (!read_boot(text, node_p->boot, &at) || *at++ != '.') return false;
  int digits = 0;
  for (; digit_of(*at) >= 0 && digits < 16; at++, digits++)
    node_p->network = node_p->network << 4 | (uint64_t)digit_of(*at);
  if (digits == 0 || *at++ != '@' || strlen(at) >= sizeof node_p->host) return false;
  for (const char *c = at; *c; c++)
    if (!is_good(*c)) return false;
  memcpy(node_p->host, at, strlen(at) + 1);
  return true;
}

bool treadle_node_is_same(const treadle_node *a, const treadle_node *b) {
  return memcmp(a->boot, b->boot, sizeof a->boot) == 0 && a->network == b->network;
}

static const char *words_of(const treadle_node *node, char *room, size_t bytes) {
  snprintf(room, bytes, "%s (boot %02x%02x%02x%02x, network namespace %" PRIu64 ")",
           node->host[0] ? node->host : "without a name", node->boot[0], node->boot[1], node->boot[2],
           node->boot[3], node->network);
  return room;
}

treadle_status treadle_node_check(const treadle_node *a, int rank_a, const treadle_node *b, int rank_b) {
  char of_a[140], of_b[140];
  if (treadle_node_is_same(a, b)) return TREADLE_OK;
  return treadle_fail(
      TREADLE_REFUSED,
      "rank %d is on node %s, and rank %d on node %s: all ranks of a group have to be on one", rank_a,
      words_of(a, of_a, sizeof of_a), rank_b, words_of(b, of_b, sizeof of_b));
}
