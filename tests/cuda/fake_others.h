/* For a test that is several processes: it starts its own program again, as `PROGRAM PART SOCKET`. */
#ifndef FAKE_OTHERS_H
#define FAKE_OTHERS_H

#include "test.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

typedef struct other {
  pid_t process;
  int socket;
} other;

static inline other other_start(const char *part) {
  int sockets[2];
  char number[16];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const pid_t process = fork();
  assert_true(process >= 0);
  if (process == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nobody behind */
    close(sockets[0]);
    snprintf(number, sizeof number, "%d", sockets[1]);
    execl("/proc/self/exe", "other", part, number, (char *)NULL);
    _exit(99);
  }
  close(sockets[1]);
  return (other){process, sockets[0]};
}

/* How it ended. */
static inline int other_finish(const other *o) {
  int status;
  assert_int_equal(waitpid(o->process, &status, 0), o->process);
  close(o->socket);
  return status;
}

static inline void other_end_well(const other *o) {
  const int status = other_finish(o);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static inline void other_end_killed(int signal, const other *o) {
  const int status = other_finish(o);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), signal);
}

static inline void other_say(int socket, char what) { assert_int_equal(write(socket, &what, 1), 1); }

static inline void other_hear(int socket, char what) {
  char heard = 0;
  assert_int_equal(read(socket, &heard, 1), 1);
  assert_int_equal(heard, what);
}

typedef union other_room {
  struct cmsghdr head;
  char bytes[CMSG_SPACE(sizeof(int))];
} other_room;

static inline void other_send_file(int socket, int file) {
  other_room r = {0};
  char byte = 'f';
  struct iovec data = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = &r, .msg_controllen = sizeof r};
  r.head = (struct cmsghdr){
      .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof file)};
  memcpy(CMSG_DATA(&r.head), &file, sizeof file);
  assert_int_equal(sendmsg(socket, &message, 0), 1);
  close(file);
}

static inline int other_receive_file(int socket) {
  other_room r = {0};
  char byte;
  int file;
  struct iovec data = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = &r, .msg_controllen = sizeof r};
  assert_int_equal(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
  memcpy(&file, CMSG_DATA(&r.head), sizeof file);
  return file;
}

#endif
