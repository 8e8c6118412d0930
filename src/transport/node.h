/* Which node (machine) a process is on, in words that ranks leave for each other where they meet.
 *
 * Ranks of one node meet by a local socket and map each other's memory. The check below is the only place that says which ranks
 * can. */
#ifndef TREADLE_TRANSPORT_NODE_H
#define TREADLE_TRANSPORT_NODE_H

#include "base/status.h"

enum { TREADLE_NODE_HOST = 65, TREADLE_NODE_TEXT = 160 };

typedef struct treadle_node {
  uint8_t boot[16]; /* random, of each start of the machine */
  uint64_t network; /* the network namespace: local sockets without a file are found in one alone */
  char host[TREADLE_NODE_HOST]; /* for messages: letters, digits, '.', '-', '_' */
} treadle_node;

/* TREADLE_SYSTEM: /proc does not say it. */
treadle_status treadle_node_here(treadle_node *node_p);
/* As text without spaces and '/', text [TREADLE_NODE_TEXT]; and back. False: it is no such text. */
void treadle_node_write(const treadle_node *node, char *text);
bool treadle_node_read(const char *text, treadle_node *node_p);
/* Can processes there meet by a local socket, and map each other's memory? */
bool treadle_node_is_same(const treadle_node *a, const treadle_node *b);
/* Refused unless they are the same: names both ranks and nodes. */
treadle_status treadle_node_check(const treadle_node *a, int rank_a, const treadle_node *b, int rank_b);

#endif
