/* Couriers: how the nodes of a group keep up to date with each other.
 *
 *   courier.c         the two threads of a node's courier, and its connections
 *   courier_lines.c   lines of this node's ranks to the others, and theirs into this node's control block
 *   courier_votes.c   the outcome between nodes
 *   courier_form.c    what messages must be
 *   courier_meet.c    how couriers find each other
 *
 * The first rank of each node, its leader, has a courier: a thread that is connected to those of all other nodes by TCP. When a rank changes its
 * line (group.h), the courier sends the line as it is to all others, and they write it into the control blocks of their nodes. So whoever waits for a
 * word of any rank waits for memory of its own node.
 *
 * What a rank wrote into its line before a word is there when the word is: a line is read between two looks at its bell, which each change
 * rings; and it is written word by word in the order of their numbers, then the barrier, then whether it left.
 *
 * A node is gone when its connection breaks, when it sends something that is none of this protocol, or when it has been silent for the
 * group's time limit; beats are sent so that a node that lives is not silent. Its ranks are gone then, for good. */
#ifndef TREADLE_GROUP_COURIER_H
#define TREADLE_GROUP_COURIER_H

#include "group/outcome.h"
#include "wire/wire.h"

/* ---- courier_form.c ---- */

enum { TREADLE_MAIL_KEY = 16 };

typedef enum treadle_mail_type {
  TREADLE_MAIL_HELLO = 1, /* who connects: its node */
  TREADLE_MAIL_LINE,
  TREADLE_MAIL_BEAT,
  TREADLE_MAIL_VOTE,   /* of an epoch, to the lowest node */
  TREADLE_MAIL_COMMIT, /* the epoch is committed */
  TREADLE_MAIL_FAIL,   /* it has failed: rank, text */
  TREADLE_MAIL_ASK,    /* what has become of it? */
  TREADLE_MAIL_BYE     /* this node's leader has closed the group */
} treadle_mail_type;

typedef struct treadle_mail_head {
  treadle_frame frame;
  int32_t node, rank; /* the sender's node; the rank that the content is of */
  uint64_t epoch;
} treadle_mail_head;

/* A line as it travels: this, then its reason for leaving, and what it has said in its last barriers, by half. */
typedef struct treadle_line_copy {
  uint64_t words[TREADLE_GROUP_WORDS];
  uint64_t arrived, last_words;
  uint32_t left, gone;
  int32_t waits_for, pid;
  uint32_t says[2];               /* 1: payload of that half follows */
  uint32_t left_message, said[2]; /* bytes */
  uint32_t pad;
} treadle_line_copy;

enum { TREADLE_MAIL_MOST = sizeof(treadle_line_copy) + TREADLE_GROUP_MESSAGE + 2 * TREADLE_GROUP_PAYLOAD };

/* Of the job with that key. */
treadle_frame_rule treadle_mail_rule(uint64_t key);
/* Is that the content of a line? *copy_p, and where its parts begin. */
bool treadle_mail_line(const char *content, size_t bytes, treadle_line_copy *copy_p, const char *parts[3]);

/* ---- courier_meet.c ---- */

/* Where the couriers of a group meet. */
typedef struct treadle_courier_meeting {
  const treadle_nodes *nodes;
  int32_t node;
  unsigned char key[TREADLE_MAIL_KEY]; /* of the job */
  const char *host;                    /* the address of this node at which the courier listens */
  /* How the others learn of it; `say` is called once, `ask` for each lower node. */
  treadle_status (*say)(void *context, int32_t node, const char *text);
  treadle_status (*ask)(void *context, int32_t node, double deadline, char *text, size_t capacity);
  void *context;
} treadle_courier_meeting;

/* What messages of the job say. */
uint64_t treadle_courier_key(const unsigned char key[TREADLE_MAIL_KEY]);
/* Connects this node with all others: sockets[node], -1 for itself. */
treadle_status treadle_courier_meet(const treadle_courier_meeting *meeting, double deadline, int *sockets);

/* ---- courier.c ---- */

typedef struct treadle_courier treadle_courier;

/* Another node. */
typedef struct treadle_courier_peer {
  treadle_wire wire;        /* socket -1: gone */
  bool said_bye, deaf;      /* deaf: it takes nothing any more */
  double heard, sent;       /* when, last */
  uint64_t voted;           /* the last epoch it has voted for */
  treadle_mail_head failed; /* of an epoch for which this node is not ready; epoch 0: none */
  char failed_text[TREADLE_GROUP_MESSAGE];
} treadle_courier_peer;

struct treadle_courier {
  treadle_group *group; /* the leader's; of the control block and the nodes alone */
  treadle_group *near;  /* of this node's ranks */
  int32_t node;
  uint64_t key;
  treadle_courier_peer *peers; /* [nodes] */
  treadle_line_copy *sent;     /* [size] what was sent of each line of this node */
  uint32_t *bells;             /* [size] and when */
  uint64_t voted, failed;      /* the last epochs for which this node has voted, has said that it failed */
  double voted_at, asked_at;   /* asked_at 0: nobody was asked */
  void *threads;
};

/* Starts the threads; the sockets are the courier's. */
treadle_status treadle_courier_start(treadle_group *group, treadle_group *near, uint64_t key,
                                     const int *sockets, treadle_courier **courier_p);
/* Sends what there is, says bye, and ends. */
void treadle_courier_stop(treadle_courier *courier);

/* Sends what has changed, and sees who is gone: what its thread does each time it wakes, once it has read. */
void treadle_courier_turn(treadle_courier *courier);

/* Takes in a message of that node. False: what it says is none of this protocol. */
bool treadle_courier_take(treadle_courier *courier, int32_t node, const treadle_mail_head *head,
                          const char *content);
/* A message to one node, or to all. Memory that is out makes the node gone. */
void treadle_courier_send(treadle_courier *courier, int32_t node, treadle_mail_head head,
                          const void *content, size_t bytes);
void treadle_courier_send_all(treadle_courier *courier, treadle_mail_head head, const void *content,
                              size_t bytes);
/* That node is gone: so are its ranks. */
void treadle_courier_lose(treadle_courier *courier, int32_t node);

/* ---- courier_lines.c ---- */

/* Sends the lines of this node that have changed. */
void treadle_courier_post(treadle_courier *courier);
/* Takes in the line of a rank of another node; false: it cannot be one. */
bool treadle_courier_take_line(treadle_courier *courier, const treadle_mail_head *head,
                               const char *content);

/* ---- courier_votes.c ---- */

void treadle_courier_vote(treadle_courier *courier);
void treadle_courier_hear(treadle_courier *courier, const treadle_mail_head *head, const char *content);

#endif
