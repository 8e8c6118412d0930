/* Where a machine says that it can be reached: an address of its own, with a free port; and what it says where there is no network. */
#include "base/port.h"
#include "meet/store_address.h"
#include "test.h"
#include "wire/host_address.h"

#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* One can listen there, and on nothing wider. */
static void check_address(const char *text) {
  treadle_store_address address;
  struct addrinfo *found;
  assert_int_equal(treadle_store_address_read(text, &address), TREADLE_OK);
  assert_int_equal(treadle_store_address_find(text, &address, &found), TREADLE_OK); /* refuses 0.0.0.0 */
  assert_null(found->ai_next);
  int one = socket(found->ai_family, SOCK_STREAM, 0);
  assert_int_equal(bind(one, found->ai_addr, found->ai_addrlen), 0);
  assert_int_equal(listen(one, 1), 0);
  close(one);
  freeaddrinfo(found);
}

static void test_here(void **state) {
  (void)state;
  treadle_node_address one, two;
  assert_int_equal(treadle_machine_address(&one), TREADLE_OK);
  assert_int_equal(treadle_machine_address(&two), TREADLE_OK);
  assert_memory_equal(one.node, two.node, sizeof one.node);
  assert_memory_not_equal(one.node, (uint8_t[32]){0}, sizeof one.node);
  check_address(one.address);
  assert_int_equal(one.outside,
                   strncmp(one.address, "127.", 4) != 0 && strncmp(one.address, "[::1]", 5) != 0);
}

static void test_port(void **state) {
  (void)state;
  int port;
  assert_int_equal(treadle_port_find("127.0.0.1", &port), TREADLE_OK);
  assert_in_range(port, 1, 65535);
  assert_int_equal(treadle_port_find("192.0.2.1", &port), TREADLE_SYSTEM); /* is not this machine's */
  assert_non_null(strstr(treadle_error_message(), "no port at 192.0.2.1"));
  assert_int_equal(treadle_port_find("a name", &port), TREADLE_SYSTEM);
}

static bool raise_loopback(void) {
  struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_LOOPBACK | IFF_RUNNING};
  int one = socket(AF_INET, SOCK_DGRAM, 0);
  bool up = one >= 0 && ioctl(one, SIOCSIFFLAGS, &request) == 0;
  close(one);
  return up;
}

/* In a process of its own; 77: it may not. */
static int leave_network(void) {
  treadle_node_address before, after;
  if (treadle_machine_address(&before) != TREADLE_OK) return 1;
  if (unshare(CLONE_NEWNET) != 0) return errno == EPERM ? 77 : 2;
  if (treadle_machine_address(&after) != TREADLE_OK || after.outside) return 3;
  if (memcmp(before.node, after.node, sizeof before.node) == 0)
    return 4; /* who cannot meet is not on one node */
  if (!raise_loopback()) return 5;
  if (treadle_machine_address(&after) != TREADLE_OK || after.outside) return 6;
  return strncmp(after.address, "127.0.0.1:", 10) == 0 ? 0 : 7;
}

static void test_without_network(void **state) {
  (void)state;
  int said;
  pid_t child = fork();
  if (child == 0) _exit(leave_network());
  assert_int_equal(waitpid(child, &said, 0), child);
  assert_true(WIFEXITED(said));
  if (WEXITSTATUS(said) == 77) skip();
  assert_int_equal(WEXITSTATUS(said), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_here),
      cmocka_unit_test(test_port),
      cmocka_unit_test(test_without_network),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
