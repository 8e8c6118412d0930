/* src/core/wire/connect.c and wait.c: sockets of TCP on the loopback, and waiting for them by what happens, not by how long it takes. */
#include "base/clock.h"
#include "test.h"
#include "wire/connect.h"
#include "wire/wait.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

static const double LIMIT = 20; /* seconds, for what has to come */

static double limit(void) { return treadle_clock_seconds() + LIMIT; }

/* Listens on a port that the system chooses; *at_p: where. */
static int listen_somewhere(const char *host, treadle_wire_address *at_p) {
  struct addrinfo *found;
  if (treadle_wire_find(host, "0", true, &found) != 0) return -1;
  const treadle_wire_address at = treadle_wire_address_of(found->ai_addr);
  freeaddrinfo(found);
  int listener = treadle_wire_listen(&at);
  *at_p = treadle_wire_end(listener, false);
  return listener;
}

static int option(int socket, int level, int name) {
  int value = 0;
  socklen_t bytes = sizeof value;
  assert_int_equal(getsockopt(socket, level, name, &value, &bytes), 0);
  return value;
}

static void is_set_up(int socket) {
  assert_true(fcntl(socket, F_GETFL) & O_NONBLOCK);
  assert_true(fcntl(socket, F_GETFD) & FD_CLOEXEC);
  assert_true(option(socket, IPPROTO_TCP, TCP_NODELAY));
}

static void test_connect(void **state) {
  (void)state;
  const char *hosts[] = {"127.0.0.1", "::1"};
  for (int i = 0; i < 2; i++) {
    treadle_wire_address at;
    char host[TREADLE_WIRE_HOST], port[TREADLE_WIRE_PORT], other[TREADLE_WIRE_PORT];
    int listener = listen_somewhere(hosts[i], &at);
    if (listener < 0 && i == 1) continue; /* a machine without IPv6 */
    assert_true(listener >= 0);
    assert_int_equal(treadle_wire_accept(listener), -1);
    assert_true(errno == EAGAIN && !treadle_wire_is_out(errno));
    int one = treadle_wire_connect(&at);
    assert_true(one >= 0);
    assert_ok(treadle_wire_wait(one, POLLOUT, limit(), "a test"));
    assert_int_equal(treadle_wire_connected(one), 0);
    assert_ok(treadle_wire_wait(listener, POLLIN, limit(), "a test"));
    int two = treadle_wire_accept(listener);
    assert_true(two >= 0);
    is_set_up(one);
    is_set_up(two);
    assert_false(option(one, SOL_SOCKET, SO_KEEPALIVE));
    treadle_wire_keep_alive(one);
    assert_true(option(one, SOL_SOCKET, SO_KEEPALIVE) && option(one, IPPROTO_TCP, TCP_KEEPCNT) == 3);
    treadle_wire_name(one, true, host, port);
    assert_string_equal(host, hosts[i]);
    treadle_wire_name(two, false, NULL, other);
    assert_string_equal(port, other);
    treadle_wire_name(one, false, NULL, port);
    treadle_wire_name(two, true, host, other);
    assert_string_equal(port, other);
    close(two);
    close(one);
    close(listener);
    treadle_wire_name(-1, true, host, port);
    assert_string_equal(host, "?");
    assert_string_equal(port, "?");
  }
}

/* Nobody listens there. */
static void test_nobody(void **state) {
  (void)state;
  treadle_wire_address at = {.four = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
  int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); /* so that nobody else listens there */
  assert_int_equal(bind(holder, &at.any, sizeof at.four), 0);
  at = treadle_wire_end(holder, false);
  int one = treadle_wire_connect(&at);
  assert_true(one >= 0 || errno == ECONNREFUSED);
  if (one >= 0) assert_ok(treadle_wire_wait(one, POLLOUT, limit(), "a test"));
  if (one >= 0) assert_int_equal(treadle_wire_connected(one), ECONNREFUSED);
  close(one);
  close(holder);
}

/* A port to which nobody listens may be given to the end that connects to it. */
static void test_itself(void **state) {
  (void)state;
  treadle_wire_address at;
  close(listen_somewhere("127.0.0.1", &at));
  int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(one, &at.any, sizeof at.four) == 0 && connect(one, &at.any, sizeof at.four) == 0)
    assert_int_equal(treadle_wire_connected(one), ECONNREFUSED);
  close(one);
}

static void test_listen(void **state) {
  (void)state;
  treadle_wire_address at;
  struct addrinfo *found;
  int listener = listen_somewhere("127.0.0.1", &at);
  assert_int_equal(treadle_wire_listen(&at), -1);
  assert_int_equal(errno, EADDRINUSE);
  close(listener);
  assert_int_equal(treadle_wire_find("192.0.2.7", "7000", true, &found), 0); /* nobody's address */
  at = treadle_wire_address_of(found->ai_addr);
  assert_int_equal(treadle_wire_listen(&at), -1);
  assert_int_equal(errno, EADDRNOTAVAIL);
  freeaddrinfo(found);
  assert_int_not_equal(treadle_wire_find("localhost", "7000", true, &found), 0); /* no number */
  assert_null(found);
}

/* No file is left for who comes. */
static void test_few_files(void **state) {
  (void)state;
  treadle_wire_address at;
  struct rlimit before;
  int listener = listen_somewhere("127.0.0.1", &at);
  int one = treadle_wire_connect(&at);
  assert_ok(treadle_wire_wait(listener, POLLIN, limit(), "a test"));
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
  const struct rlimit few = {0, before.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  int two = treadle_wire_accept(listener), why = errno;
  int three = treadle_wire_connect(&at);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
  assert_true(two == -1 && why == EMFILE && treadle_wire_is_out(why) && three == -1);
  two = treadle_wire_accept(listener);
  assert_true(two >= 0);
  close(two);
  close(one);
  close(listener);
}

/* ---- Waiting ---- */

static bool never(void *context, const char *doing, int64_t done, int64_t total) {
  (void)done, (void)total;
  (*(int *)context)++;
  assert_string_equal(doing, "a test");
  return *(int *)context < 3;
}

static void test_wait(void **state) {
  (void)state;
  int two[2], asked = 0;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, two), 0);
  assert_int_equal(treadle_wire_wait(two[0], POLLIN, 0, "a test"),
                   TREADLE_TIMEOUT); /* long ago: one look */
  assert_ok(treadle_wire_wait(two[0], POLLOUT, 0, "a test"));
  assert_int_equal(treadle_wire_wait(-1, 0, treadle_clock_seconds() + 1e-3, "a test"), TREADLE_TIMEOUT);
  treadle_thread_watch(never, &asked);
  assert_fails(TREADLE_CANCELLED, "cancelled: a test", treadle_wire_wait(two[0], POLLIN, 1e18, "a test"));
  treadle_thread_watch(NULL, NULL);
  assert_true(asked >= 3);
  close(two[1]);
  assert_ok(treadle_wire_wait(two[0], POLLIN, limit(), "a test")); /* it is over */
  close(two[0]);
}

static void test_poll_ms(void **state) {
  (void)state;
  assert_int_equal(treadle_wire_poll_ms(-1), 0);
  assert_int_equal(treadle_wire_poll_ms(0), 0);
  assert_int_equal(treadle_wire_poll_ms(1e-9), 1);
  assert_int_equal(treadle_wire_poll_ms(1), 1001);
  assert_int_equal(treadle_wire_poll_ms(1e300), 3600 * 1000);
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_connect), cmocka_unit_test(test_nobody),    cmocka_unit_test(test_itself),
      cmocka_unit_test(test_listen),  cmocka_unit_test(test_few_files), cmocka_unit_test(test_wait),
      cmocka_unit_test(test_poll_ms),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
