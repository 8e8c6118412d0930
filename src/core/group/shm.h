/* The shared-memory group: what its files know of each other.
 *
 *   group_shm.c   the table, the control block, liveness
 *   meet/group_store.c   the name is the key of a meeting by a store
 *   shm_meet.c    how the ranks find each other, and those who join
 *   shm_hub.c     rank 0, who takes them in
 *   shm_share.c   the link: handing descriptors around through the hub
 *   shm_socket.c  messages with descriptors on local sockets, with time limits
 *
 * The sockets stay open for the life of the group; they carry descriptors, never weights. */
#ifndef TREADLE_GROUP_SHM_H
#define TREADLE_GROUP_SHM_H

#include "group/link.h"

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

/* The most descriptors that the kernel lets a message have (SCM_MAX_FD). */
enum { TREADLE_SHM_TEXT = 400, TREADLE_SHM_DESCRIPTORS = 253 };

typedef struct treadle_shm {
  int size;
  int *sockets;    /* [size] hub: to each rank; others: [0] to the hub; -1 */
  int *processes;  /* [size] pidfd of each rank; -1: was gone when we looked */
  int64_t *counts; /* [size] descriptors of each rank in a share under way */
  int control_descriptor;
  size_t control_bytes;
  treadle_control *control;
  uint64_t shares; /* calls of publish so far */
} treadle_shm;

/* ---- shm_socket.c ---- */

enum { TREADLE_SHM_MAGIC = 0x74726431, TREADLE_SHM_VERSION = 4 };

/* One message on a socket, which is only read, and at most TREADLE_SHM_DESCRIPTORS descriptors with it. `deadline` is of
 * treadle_clock_seconds(). A closed socket is TREADLE_PEER. `who` is for messages ("rank 3"). */
treadle_status treadle_shm_send(int socket, void *message, size_t bytes, const int *descriptors,
                                int descriptor_count, double deadline, const char *who);
/* Receives a message of exactly `bytes` bytes; anything else is TREADLE_PEER. *descriptor_count_p: how many descriptors
 * there is room for, and then how many came; NULL: none is wanted. They are closed when it fails. */
treadle_status treadle_shm_receive(int socket, void *message, size_t bytes, int *descriptors,
                                   int *descriptor_count_p, double deadline, const char *who);

/* Who is at the other end. */
treadle_status treadle_shm_peer(int socket, pid_t *pid_p, uid_t *uid_p);

/* ---- shm_meet.c ---- */

enum { TREADLE_SHM_HELLO = 1, TREADLE_SHM_WELCOME, TREADLE_SHM_READY, TREADLE_SHM_GO };

typedef struct treadle_shm_message {
  uint32_t magic, version;
  int32_t type, rank, size, pid;
  int32_t status;
  uint64_t start_time, bytes; /* of the sender's process; of the control block */
  double left;                /* hello: seconds that the sender still waits */
  char text[TREADLE_SHM_TEXT];
} treadle_shm_message;

/* A message of this rank; with a status that is not OK, the present treadle_error_message() goes with it.
 */
treadle_shm_message treadle_shm_say(int type, const treadle_shm *shm, int rank, treadle_status status);
bool treadle_shm_is(const treadle_shm_message *m, int type);
/* What the message says of its sender's success. */
treadle_status treadle_shm_verdict(treadle_shm_message *m, int type, const char *who);
/* The socket address of a group name; refused when it is none. */
enum { TREADLE_SHM_NAME = 65 }; /* bytes, with the 0 */
treadle_status treadle_shm_address(const char *name, struct sockaddr_un *address, socklen_t *length_p);
int treadle_shm_socket(void); /* -1: errno says why */

/* By which name the ranks meet; asked again as long as nobody has opened it. */
typedef struct treadle_shm_name {
  treadle_status (*find)(void *context, double deadline, char *name); /* name [TREADLE_SHM_NAME] */
  void *context;
} treadle_shm_name;

/* Fills shm (sockets, control block with pids and start times) before the deadline. Collective. */
treadle_status treadle_shm_meet(treadle_shm *shm, const treadle_shm_name *naming, int rank, int size,
                                double deadline);

/* ---- shm_hub.c ---- */

/* The part of rank 0. */
treadle_status treadle_shm_host(treadle_shm *shm, const char *name, double deadline);

/* ---- group_shm.c ---- */

/* treadle_group_open by a name that is found meanwhile; the arguments but the name are checked. Collective. */
treadle_status treadle_shm_open(const treadle_shm_name *naming, int rank, int size, double timeout_seconds,
                                treadle_group **group_p);
treadle_status treadle_shm_check_rank(const char *what, int rank, int size);
treadle_status treadle_shm_map_control(treadle_shm *shm);
/* When a process began, in ticks since boot; 0 when it is gone. */
uint64_t treadle_shm_start_time(pid_t pid);
/* A descriptor (pidfd) of the process with that number that began then, which stays with it for good; -1: it has died, whoever
 * has the number now. The caller closes it. `who` is for the message. */
treadle_status treadle_shm_process(pid_t pid, uint64_t start_time, const char *who, int *process_p);
/* Does the process of such a descriptor still live? Not one of -1, nor one that has ended and that nobody has waited for. */
bool treadle_shm_is_alive(int process);

/* ---- shm_share.c ---- */

extern const treadle_link treadle_shm_link;

#endif
