/* Messages with descriptors on local sockets (SOCK_SEQPACKET: a message arrives whole or not at all). */
#include "group/shm.h"

#include "base/clock.h"
#include "wire/wait.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static treadle_status late(const char *who) {
  return treadle_fail(TREADLE_TIMEOUT, "no word from %s in time", who);
}

/* Waits until the socket is ready or the time is over; looks once when it is over already. */
static treadle_status wait_for(int socket, short events, double deadline, const char *who) {
  treadle_status status = treadle_wire_wait(socket, events, deadline, "word of another rank");
  return status == TREADLE_TIMEOUT ? late(who) : status;
}

static treadle_status gone(const char *who) {
  return treadle_fail(TREADLE_PEER, "%s has left or died", who);
}

treadle_status treadle_shm_send(int socket, void *message, size_t bytes, const int *descriptors,
                                int descriptor_count, double deadline, const char *who) {
  treadle_status status = TREADLE_OK;
  _Alignas(struct cmsghdr) char room[CMSG_SPACE(TREADLE_SHM_DESCRIPTORS * sizeof(int))] = {0};
  struct iovec part = {.iov_base = message, .iov_len = bytes};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  bool tried = false;
  if (descriptor_count > 0) {
    size_t length = (size_t)descriptor_count * sizeof(int);
    header.msg_control = room;
    header.msg_controllen = CMSG_SPACE(length);
    struct cmsghdr *first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(length);
    memcpy(CMSG_DATA(first), descriptors, length);
  }
  for (;;) {
    ssize_t sent = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent == (ssize_t)bytes) return TREADLE_OK;
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) { /* a peer that does not read; poll may say ready all the while */
      TRY(wait_for(socket, POLLOUT, deadline, who));
      if (tried && treadle_clock_seconds() > deadline) return late(who);
      tried = true;
    } else if (sent < 0 && errno == ETOOMANYREFS && treadle_clock_seconds() < deadline) {
      /* Too many descriptors under way on this machine: those before us have to be received first. */
      nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    } else if (sent < 0 && (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)) {
      return gone(who);
    } else {
      return treadle_fail(TREADLE_SYSTEM, "a message to %s was not sent: %s", who, strerror(errno));
    }
  }
out:
  return status;
}

static void close_all(const int *descriptors, int count) {
  for (int i = 0; i < count; i++) close(descriptors[i]);
}

/* Takes the descriptors of a received message; those beyond `room` are closed. */
static int take_descriptors(struct msghdr *header, int *descriptors, int room) {
  int count = 0;
  for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c; c = CMSG_NXTHDR(header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    int here = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    for (int i = 0; i < here; i++) {
      int descriptor;
      memcpy(&descriptor, CMSG_DATA(c) + (size_t)i * sizeof(int), sizeof descriptor);
      if (count < room)
        descriptors[count++] = descriptor;
      else
        close(descriptor);
    }
  }
  return count;
}

treadle_status treadle_shm_receive(int socket, void *message, size_t bytes, int *descriptors,
                                   int *descriptor_count_p, double deadline, const char *who) {
  treadle_status status = TREADLE_OK;
  int descriptor_room = descriptor_count_p ? *descriptor_count_p : 0;
  _Alignas(struct cmsghdr) char room[CMSG_SPACE(TREADLE_SHM_DESCRIPTORS * sizeof(int))];
  struct iovec part = {.iov_base = message, .iov_len = bytes};
  struct msghdr header;
  if (descriptor_count_p) *descriptor_count_p = 0;
  ssize_t got = 0;
  bool tried = false;
  do {
    if (tried && treadle_clock_seconds() > deadline) return late(who);
    tried = true;
    TRY(wait_for(socket, POLLIN, deadline, who));
    header = (struct msghdr){
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    got = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (got < 0 && (errno == EINTR || errno == EAGAIN));
  if (got == 0 || (got < 0 && errno == ECONNRESET)) return gone(who);
  if (got < 0)
    return treadle_fail(TREADLE_SYSTEM, "a message of %s was not received: %s", who, strerror(errno));
  int count = take_descriptors(&header, descriptors, descriptor_room);
  if ((size_t)got != bytes || (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC))) {
    close_all(descriptors, count);
    return treadle_fail(TREADLE_PEER,
                        "%s sent something that is not a message of treadle, or too many descriptors", who);
  }
  if (descriptor_count_p)
    *descriptor_count_p = count;
  else
    close_all(descriptors, count);
out:
  return status;
}

treadle_status treadle_shm_peer(int socket, pid_t *pid_p, uid_t *uid_p) {
  struct ucred who;
  socklen_t length = sizeof who;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) != 0)
    return treadle_fail(TREADLE_SYSTEM, "the other end of a socket has no name: %s", strerror(errno));
  *pid_p = who.pid;
  *uid_p = who.uid;
  return TREADLE_OK;
}
