/* The owner's thread for readers: it listens on an abstract local socket with a random name, which only a handle says, and gives who
 * knocks with that handle the descriptors of sheet and pool.
 *
 *     reader                                    owner
 *     hello: its process, the handle's sum,  ->  checked
 *     which descriptors it has already      <-  answer: those that follow, or why not
 *
 * A pool may have more descriptors than a message can; the reader says hello for each message. They are made to be sent, and closed at once.
 * After the last one the connection is closed: whether a process lives is seen by its pidfd. Other users are dropped at once; who knocks and says nothing,
 * or nothing more, is dropped after SILENCE. At most GUESTS are connected; one more takes the place of who waited longest. No guest is waited for: the
 * thread sleeps in one poll() for all of them, and what it sends fits into a socket or is not sent.
 *
 * The name is of 128 random bits. Who has no handle cannot guess it, but any process can list it (/proc/net/unix): so the
 * user is looked at all the same. */
#include "attach/handle.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/larger.h"
#include "base/signals.h"
#include "group/shm.h"
#include "wire/wait.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

enum { GUESTS = 16, SILENCE = 2 /* seconds */, BACKLOG = 64 };

typedef struct guest { /* connected, and has not said hello for the last time */
  int socket;
  double until;
} guest;

struct treadle_service {
  int listener, wake;
  treadle_service_files files;
  pid_t process; /* that has the thread */
  bool runs;
  pthread_t thread;
  _Atomic uint64_t sum;
  int guest_count;
  guest guests[GUESTS];
};

socklen_t treadle_service_address(const uint64_t name[2], struct sockaddr_un *address) {
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  int used = snprintf(address->sun_path + 1, sizeof address->sun_path - 1,
                      "treadle-handle-%016" PRIx64 "%016" PRIx64, name[0], name[1]);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)used);
}

/* ---- The thread ---- */

static void forget(treadle_service *s, int position) {
  s->guest_count--;
  memmove(&s->guests[position], &s->guests[position + 1],
          (size_t)(s->guest_count - position) * sizeof *s->guests); /* the first is the oldest */
}

static void drop(treadle_service *s, int position) {
  close(s->guests[position].socket);
  forget(s, position);
}

/* There is room for it. */
static void welcome(treadle_service *s, int socket) {
  s->guests[s->guest_count++] = (guest){socket, treadle_clock_seconds() + SILENCE};
}

static treadle_status check_hello(treadle_service *s, int socket, const treadle_service_message *hello,
                                  int64_t pieces) {
  treadle_status status = TREADLE_OK;
  pid_t process;
  uid_t user;
  TRY(treadle_shm_peer(socket, &process, &user));
  if (hello->magic != TREADLE_SERVICE_MAGIC)
    REFUSE("attach: process %d sent something that is not a message of treadle", (int)process);
  if (hello->version != TREADLE_SERVICE_VERSION)
    REFUSE("attach: process %d speaks version %u, the owner of the handle version %d", (int)process,
           hello->version, TREADLE_SERVICE_VERSION);
  if (hello->sum != atomic_load(&s->sum))
    REFUSE("attach: process %d has another handle than this window's", (int)process);
  if (hello->first < 0 || hello->first > pieces || (hello->first == pieces && pieces > 0))
    REFUSE("attach: process %d wants descriptor %lld of a pool that has %lld", (int)process,
           (long long)hello->first, (long long)pieces);
  if (hello->process != process)
    REFUSE("attach: process %d is process %d to the owner of the handle: both must be in one process "
           "namespace (container)",
           hello->process, (int)process);
out:
  return status;
}

int treadle_service_count(int64_t first, int64_t pieces) {
  const int64_t room = TREADLE_SHM_DESCRIPTORS - (first == 0);
  return (int)treadle_smaller(room, pieces - first);
}

/* A guest speaks, or has left; it gets its answer, and goes, unless there is more to come. */
static void hear(treadle_service *s, int position) {
  const treadle_service_files *files = &s->files;
  const treadle_device_ops *ops = files->device->ops;
  int socket = s->guests[position].socket, descriptors[TREADLE_SHM_DESCRIPTORS] = {files->sheet}, count = 0,
      sheets = 0;
  treadle_service_message hello = {0};
  treadle_service_answer answer = {.magic = TREADLE_SERVICE_MAGIC, .version = TREADLE_SERVICE_VERSION};
  treadle_status status = TREADLE_OK;
  TRY(treadle_shm_receive(socket, &hello, sizeof hello, NULL, NULL, 0, "a process"));
  answer.pieces = ops->export_count(files->pool);
  TRY(check_hello(s, socket, &hello, answer.pieces));
  sheets = hello.first == 0;
  const int wanted = treadle_service_count(hello.first, answer.pieces);
  if (wanted > 0) TRY(ops->export_part(files->pool, hello.first, wanted, true, descriptors + sheets));
  count = wanted;
out:
  answer.status = status;
  if (status != TREADLE_OK) snprintf(answer.text, sizeof answer.text, "%s", treadle_error_message());
  const treadle_status sent = treadle_shm_send(socket, &answer, sizeof answer, descriptors,
                                               status == TREADLE_OK ? sheets + count : 0, 0, "a process");
  for (int i = 0; i < count; i++) close(descriptors[sheets + i]);
  if (status != TREADLE_OK || sent != TREADLE_OK || hello.first + count == answer.pieces) {
    drop(s, position);
  } else {
    forget(s, position); /* its time begins anew, as that of the last one */
    welcome(s, socket);
  }
}

static void take_in(treadle_service *s) {
  int socket = accept4(s->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  pid_t process;
  uid_t user;
  if (socket < 0) return;
  if (treadle_shm_peer(socket, &process, &user) != TREADLE_OK || user != geteuid()) {
    close(socket);
    return;
  }
  for (int i = s->guest_count - 1; i >= 0 && s->guest_count == GUESTS;
       i--) { /* nobody goes whose hello is here */
    struct pollfd one = {.fd = s->guests[i].socket, .events = POLLIN};
    if (poll(&one, 1, 0) > 0) hear(s, i);
  }
  if (s->guest_count == GUESTS) drop(s, 0);
  welcome(s, socket);
}

static void *serve(void *of) {
  treadle_service *s = of;
  for (;;) {
    struct pollfd polls[2 + GUESTS] = {{.fd = s->wake, .events = POLLIN},
                                       {.fd = s->listener, .events = POLLIN}};
    for (int i = 0; i < s->guest_count; i++)
      polls[2 + i] = (struct pollfd){.fd = s->guests[i].socket, .events = POLLIN};
    double left = s->guest_count > 0 ? s->guests[0].until - treadle_clock_seconds() : 0;
    int ready =
        poll(polls, (nfds_t)(2 + s->guest_count), s->guest_count > 0 ? treadle_wire_poll_ms(left) : -1);
    if (ready < 0 && errno != EINTR) return NULL;
    if (ready > 0 && polls[0].revents) return NULL;
    double now = treadle_clock_seconds();
    for (int i = s->guest_count - 1; i >= 0; i--) { /* from the end: dropping moves those behind */
      if (ready > 0 && polls[2 + i].revents)
        hear(s, i);
      else if (now > s->guests[i].until)
        drop(s, i);
    }
    if (ready > 0 && polls[1].revents) take_in(s);
  }
}

/* ---- Its life ---- */

static treadle_status listen_here(treadle_service *s, uint64_t name[2]) {
  struct sockaddr_un address;
  if (getrandom(name, 2 * sizeof *name, 0) != (ssize_t)(2 * sizeof *name))
    return treadle_fail(TREADLE_SYSTEM, "handle: no random name: %s", strerror(errno));
  socklen_t length = treadle_service_address(name, &address);
  s->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  s->listener = treadle_shm_socket();
  if (s->wake < 0 || s->listener < 0 || bind(s->listener, (struct sockaddr *)&address, length) != 0 ||
      listen(s->listener, BACKLOG) != 0)
    return treadle_fail(TREADLE_SYSTEM, "handle: no local socket: %s", strerror(errno));
  return TREADLE_OK;
}

static treadle_status launch(treadle_service *s) {
  sigset_t before;
  treadle_signals_block(&before);
  int error = pthread_create(&s->thread, NULL, serve, s);
  treadle_signals_restore(&before);
  if (error != 0) return treadle_fail(TREADLE_SYSTEM, "handle: no thread for readers: %s", strerror(error));
  s->runs = true;
  return TREADLE_OK;
}

treadle_status treadle_service_start(const treadle_service_files *files, uint64_t name[2],
                                     treadle_service **service_p) {
  treadle_status status = TREADLE_OK;
  treadle_service *s = treadle_alloc(sizeof *s);
  *service_p = NULL;
  if (!s) return treadle_fail(TREADLE_NO_MEMORY, "handle: memory is out");
  *s = (treadle_service){.listener = -1, .wake = -1, .files = *files, .process = getpid()};
  TRY(listen_here(s, name));
  TRY(launch(s));
  *service_p = s;
out:
  if (status != TREADLE_OK) treadle_service_stop(s);
  return status;
}

void treadle_service_expect(treadle_service *service, uint64_t sum) { atomic_store(&service->sum, sum); }

void treadle_service_stop(treadle_service *service) {
  if (!service) return;
  if (service->runs && service->process == getpid()) {
    ssize_t written = write(service->wake, &(uint64_t){1}, sizeof(uint64_t));
    (void)written; /* 8 bytes into an empty counter: they fit */
    pthread_join(service->thread, NULL);
    shutdown(service->listener,
             SHUT_RDWR); /* nobody waits in vain there, if a child made by fork has it, too */
  }
  while (service->guest_count > 0) drop(service, service->guest_count - 1);
  if (service->listener >= 0) close(service->listener);
  if (service->wake >= 0) close(service->wake);
  treadle_free(service);
}
