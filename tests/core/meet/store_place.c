/* Addresses and connections of tests of stores. */
#include "meet/store_place.h"

#include "test.h"

#include "base/clock.h"
#include "meet/store_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

const char *store_place(void) {
  static char places[64][32];
  static int count;
  char *place = places[count % 64];
  unsigned id = (unsigned)getpid();
  snprintf(place, sizeof places[0], "127.%u.%u.%d:7000", 1 + id / 256 % 250, id % 256, 1 + count++ % 250);
  return place;
}

treadle_store_options store_options(const char *address, int rank, int ranks, double seconds) {
  return (treadle_store_options){.struct_size = sizeof(treadle_store_options),
                                 .address = address,
                                 .job = "job",
                                 .rank = rank,
                                 .ranks = ranks,
                                 .timeout_seconds = seconds};
}

int store_connect(const char *address) {
  treadle_store_address read;
  struct sockaddr_in at = {.sin_family = AF_INET};
  if (treadle_store_address_read(address, &read) != TREADLE_OK) return -1;
  at.sin_port = htons((uint16_t)atoi(read.port));
  inet_pton(AF_INET, read.host, &at.sin_addr);
  int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  (void)setsockopt(one, SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = 10}, sizeof(struct timeval));
  (void)setsockopt(one, SOL_SOCKET, SO_SNDTIMEO, &(struct timeval){.tv_sec = 10}, sizeof(struct timeval));
  if (connect(one, (struct sockaddr *)&at, sizeof at) == 0) return one;
  close(one);
  return -1;
}

int store_connect_when(const char *address) {
  for (double end = treadle_clock_seconds() + 10; treadle_clock_seconds() < end;) {
    int one = store_connect(address);
    if (one >= 0) return one;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  }
  return -1;
}

void store_seal(treadle_store_message *message, const void *content, uint64_t bytes) {
  const treadle_frame_rule rule = treadle_store_rule(message->frame.key, 0);
  treadle_frame_seal(&rule, message, content, bytes);
}

treadle_store_message store_hello(int socket, int rank, int ranks) {
  treadle_store_message challenge = {0};
  (void)store_receive(socket, &challenge, sizeof challenge);
  treadle_store_message hello = {
      .frame = {.type = TREADLE_STORE_HELLO,
                .key = treadle_store_mix(treadle_store_job("job"), challenge.challenge)},
      .rank = rank,
      .ranks = ranks,
      .seconds = 20};
  store_seal(&hello, NULL, 0);
  return hello;
}

void store_send(int socket, const void *bytes, size_t count) {
  ssize_t sent = send(socket, bytes, count, MSG_NOSIGNAL);
  (void)sent; /* whoever is dropped meanwhile */
}

size_t store_receive(int socket, void *bytes, size_t room) {
  size_t used = 0;
  for (ssize_t got = 1; got > 0 && used<room; used += got> 0 ? (size_t)got : 0)
    got = recv(socket, (char *)bytes + used, room - used, 0);
  return used;
}

bool store_is_closed(int socket) {
  char waste[4096];
  for (;;) {
    ssize_t got = recv(socket, waste, sizeof waste, 0);
    if (got == 0) return true;
    if (got < 0) return errno != EAGAIN && errno != EWOULDBLOCK;
  }
}

int store_threads(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/task");
  while (folder && readdir(folder)) count++;
  if (folder) closedir(folder);
  return count - 2;
}
