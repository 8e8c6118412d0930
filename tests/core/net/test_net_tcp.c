/* The net "tcp" and who else connects to its port: strangers, who are disconnected, and a rank of the group that says what no rank says.
 * Rank 0 plays them, in the same process. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/random.h"
#include "net/net_tcp.h"
#include "test.h"

#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Seconds, for what has to come. What takes longer has hung: a busy machine takes a tenth of it. */
static const double LIMIT = 200;

typedef struct listening { /* rank 1 of 2 */
  void *net;
  treadle_tcp_place at;
} listening;

static listening listen_as(int rank) {
  listening l;
  size_t bytes;
  treadle_net_options options = {
      .struct_size = sizeof options, .rank = rank, .ranks = 2, .host = "127.0.0.1"};
  assert_ok(treadle_net_tcp.open(&options, &l.net));
  assert_ok(treadle_net_tcp.address(l.net, &l.at, sizeof l.at, &bytes));
  assert_int_equal(bytes, sizeof l.at);
  return l;
}

static int connect_to(const listening *l) {
  int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(one, &l->at.at.any, sizeof l->at.at.four), 0);
  return one;
}

typedef struct greeting {
  treadle_tcp_head head;
  unsigned char key[TREADLE_TCP_KEY];
} greeting;

/* What a rank says first to the one that listens. */
static greeting hello_of(const listening *l, int rank) {
  greeting g = {.head = {.frame.type = TREADLE_TCP_HELLO, .rank = rank, .ranks = 2}};
  const treadle_frame_rule rule = treadle_tcp_rule(TREADLE_TCP_HELLO);
  memcpy(g.key, l->at.key, sizeof g.key);
  treadle_frame_seal(&rule, &g.head, g.key, sizeof g.key);
  return g;
}

static treadle_tcp_head head_of(uint32_t type, uint64_t tag, uint64_t bytes) {
  treadle_tcp_head head = {.frame.type = type, .tag = tag};
  const treadle_frame_rule rule = treadle_tcp_rule(TREADLE_TCP_MESSAGE);
  treadle_frame_seal(&rule, &head, NULL, bytes);
  return head;
}

static void say(int one, const void *bytes, size_t count) {
  assert_int_equal(send(one, bytes, count, MSG_NOSIGNAL), count);
}

/* Moves the net on until the other end has hung up. */
static bool hangs_up(const listening *l, int one) {
  char byte;
  for (double end = treadle_clock_seconds() + LIMIT; treadle_clock_seconds() < end;) {
    treadle_net_tcp.wait(l->net, 1e-3);
    struct pollfd now = {.fd = one, .events = POLLIN};
    if (poll(&now, 1, 0) > 0) return recv(one, &byte, 1, 0) <= 0;
  }
  return false;
}

static treadle_status finish(const listening *l, void *request) {
  treadle_status status = TREADLE_OK;
  bool done = false;
  for (double end = treadle_clock_seconds() + LIMIT; !done && status == TREADLE_OK;) {
    status = treadle_net_tcp.test(l->net, request, &done);
    treadle_net_tcp.wait(l->net, 1e-3);
    assert_true(treadle_clock_seconds() < end);
  }
  return status;
}

/* A message of rank 0 arrives, whatever has been there before. */
static void is_as_before(const listening *l) {
  listening other = listen_as(0);
  char text[16] = "", word[16] = "over the net";
  treadle_net_part in = {text, sizeof text}, out = {word, sizeof word};
  void *receives, *sends;
  assert_ok(treadle_net_tcp.connect(l->net, 0, &other.at, sizeof other.at));
  assert_ok(treadle_net_tcp.connect(other.net, 1, &l->at, sizeof l->at));
  assert_ok(treadle_net_tcp.receive(l->net, 0, 7, &in, 1, &receives));
  assert_ok(treadle_net_tcp.send(other.net, 1, 7, &out, 1, &sends));
  bool there = false, gone = false;
  for (double end = treadle_clock_seconds() + LIMIT; !there || !gone;) {
    if (!there) assert_ok(treadle_net_tcp.test(l->net, receives, &there));
    if (!gone) assert_ok(treadle_net_tcp.test(other.net, sends, &gone));
    assert_true(treadle_clock_seconds() < end);
  }
  assert_string_equal(text, word);
  treadle_net_tcp.close(other.net);
}

static void test_strangers(void **state) {
  (void)state;
  listening l = listen_as(1);
  unsigned char rubbish[4096];
  memset(rubbish, 0x5a, sizeof rubbish);
  for (int kind = 0; kind < 11; kind++) {
    treadle_frame_rule rule = treadle_tcp_rule(TREADLE_TCP_HELLO);
    greeting hello = hello_of(&l, 0);
    if (kind == 1) hello.key[15] ^= 1;
    if (kind == 2) hello.head.rank = 1; /* its own */
    if (kind == 3) hello.head.rank = -1;
    if (kind == 4) hello.head.ranks = 3;
    if (kind == 5) rule.version++;
    if (kind == 6) rule.magic++;
    if (kind == 7) hello.head.frame.type = TREADLE_TCP_MESSAGE;
    if (kind == 8) rule.key++;
    treadle_frame_seal(&rule, &hello.head, hello.key, kind == 9 ? 0 : sizeof hello.key);
    if (kind == 10) hello.head.frame.sum++;
    int one = connect_to(&l);
    say(one, kind == 0 ? (const void *)rubbish : &hello, kind == 0 ? sizeof rubbish : sizeof hello);
    if (!hangs_up(&l, one)) fail_msg("stranger %d was taken for a rank", kind);
    close(one);
  }
  is_as_before(&l);
  treadle_net_tcp.close(l.net);
}

/* More than it has places for say nothing, or a half; who was there first goes. */
static void test_silent(void **state) {
  (void)state;
  enum { MANY = 3 * TREADLE_TCP_GUESTS };
  listening l = listen_as(1);
  int all[MANY];
  greeting hello = hello_of(&l, 0);
  for (int i = 0; i < MANY; i++) {
    all[i] = connect_to(&l);
    if (i % 2) say(all[i], &hello, sizeof hello / 2);
    treadle_net_tcp.wait(l.net, 1e-3);
  }
  assert_true(hangs_up(&l, all[0]));
  is_as_before(&l);
  treadle_net_tcp.close(l.net);
  for (int i = 0; i < MANY; i++) close(all[i]);
}

/* A rank comes first, with its hello, and more strangers after it than there are places, before anybody has looked. */
static void test_read_first(void **state) {
  (void)state;
  enum { MANY = 2 * TREADLE_TCP_GUESTS };
  listening l = listen_as(1), other = listen_as(0);
  greeting hello = hello_of(&l, 0), answer;
  int all[MANY];
  assert_ok(treadle_net_tcp.connect(l.net, 0, &other.at, sizeof other.at));
  int one = connect_to(&l);
  say(one, &hello, sizeof hello);
  for (int i = 0; i < MANY; i++) all[i] = connect_to(&l);
  treadle_net_tcp.wait(l.net, 1e-3);
  assert_true(hangs_up(&l, all[0]));
  assert_int_equal(recv(one, &answer, sizeof answer, MSG_WAITALL), sizeof answer);
  assert_int_equal(answer.head.rank, 1);
  close(one);
  for (int i = 0; i < MANY; i++) close(all[i]);
  treadle_net_tcp.close(l.net);
  treadle_net_tcp.close(other.net);
}

/* A port of this machine, in an address of rank 1. */
static int listen_for(listening *other) {
  struct sockaddr_in at = {.sin_family = AF_INET};
  socklen_t bytes = sizeof at;
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
  assert_int_equal(listen(listener, 1), 0);
  assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &bytes), 0);
  other->at.at.four.sin_port = at.sin_port;
  other->at.sum = treadle_tcp_place_sum(&other->at);
  return listener;
}

/* Moves the net on until somebody has connected. */
static int accept_from(const listening *l, int listener) {
  struct pollfd now = {.fd = listener, .events = POLLIN};
  double end = treadle_clock_seconds() + LIMIT;
  while (poll(&now, 1, 0) == 0) {
    treadle_net_tcp.wait(l->net, 1e-3);
    assert_true(treadle_clock_seconds() < end);
  }
  return accept(listener, NULL, NULL);
}

/* Who is disconnected before it has heard a hello comes again; afterwards it is over. */
static void test_again(void **state) {
  (void)state;
  listening l = listen_as(0), other = listen_as(1);
  char byte = 0;
  treadle_net_part part = {&byte, 1};
  void *request;
  int listener = listen_for(&other);
  assert_ok(treadle_net_tcp.connect(l.net, 1, &other.at, sizeof other.at));
  assert_ok(treadle_net_tcp.receive(l.net, 1, 3, &part, 1, &request));
  for (int i = 0; i < 4; i++) {
    int one = accept_from(&l, listener);
    greeting heard;
    treadle_net_tcp.wait(l.net, 1e-3);
    if (i % 2) assert_int_equal(recv(one, &heard, sizeof heard, MSG_WAITALL), sizeof heard);
    close(one); /* with what it has said unread: a reset */
  }
  int one = accept_from(&l, listener);
  greeting hello = hello_of(&l, 1);
  const treadle_tcp_head head = head_of(TREADLE_TCP_MESSAGE, 3, 1);
  say(one, &hello, sizeof hello);
  say(one, &head, sizeof head);
  say(one, "x", 1);
  assert_ok(finish(&l, request));
  assert_int_equal(byte, 'x');
  assert_ok(treadle_net_tcp.receive(l.net, 1, 4, &part, 1, &request));
  close(one);
  assert_fails(TREADLE_PEER, "cannot be reached any more", finish(&l, request));
  close(listener);
  treadle_net_tcp.close(l.net);
  treadle_net_tcp.close(other.net);
}

/* A rank that is let in, and whose messages are none. */
static void test_no_messages(void **state) {
  (void)state;
  static const struct {
    uint32_t type;
    uint64_t bytes, sum; /* sum: what is added to it */
    const char *words;
  } rows[] = {
      {TREADLE_TCP_MESSAGE, 100, 1, "not a message"},
      {TREADLE_TCP_MESSAGE + 1, 100, 0, "not a message"},
      {TREADLE_TCP_HELLO, 100, 0, "not a message"},
      {TREADLE_TCP_MESSAGE, 101, 0, "has 101 bytes; 100 were to come"},
      {TREADLE_TCP_MESSAGE, UINT64_C(1) << 63, 0, "has 9223372036854775808 bytes; 100 were to come"},
      {TREADLE_TCP_MESSAGE, 100, 0, "it has closed the connection"}, /* and no byte of it */
  };
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    listening l = listen_as(1), other = listen_as(0);
    greeting hello = hello_of(&l, 0);
    treadle_tcp_head head = head_of(rows[i].type, 3, rows[i].bytes);
    char *memory = calloc(1, 100);
    treadle_net_part part = {memory, 100};
    void *request;
    assert_non_null(memory);
    assert_ok(treadle_net_tcp.connect(l.net, 0, &other.at, sizeof other.at));
    assert_ok(treadle_net_tcp.receive(l.net, 0, 3, &part, 1, &request));
    int one = connect_to(&l);
    say(one, &hello, sizeof hello);
    head.frame.sum += rows[i].sum;
    say(one, &head, sizeof head);
    if (i == TEST_COUNT(rows) - 1) shutdown(one, SHUT_WR);
    assert_fails(TREADLE_PEER, rows[i].words, finish(&l, request));
    assert_fails(TREADLE_PEER, "cannot be reached", treadle_net_tcp.send(l.net, 0, 4, &part, 1, &request));
    close(one);
    free(memory);
    treadle_net_tcp.close(l.net);
    treadle_net_tcp.close(other.net);
  }
}

/* A rank that says anything: heads, some of them right, payloads, rubbish, and the end anywhere. Two receives of two parts wait for it: each
 * ends, well or not, and nothing beside their parts is written, which a sanitizer sees. */
static void test_any_stream(void **state) {
  (void)state;
  treadle_random random = {20261126};
  for (int stream = 0; stream < 400; stream++) {
    listening l = listen_as(1), other = listen_as(0);
    unsigned char said[1000], *memory[4];
    size_t length = 0;
    void *requests[2];
    assert_ok(treadle_net_tcp.connect(l.net, 0, &other.at, sizeof other.at));
    for (int i = 0; i < 4; i++) {
      memory[i] = malloc(20 + (size_t)i);
      assert_non_null(memory[i]);
    }
    for (int i = 0; i < 2; i++) {
      const treadle_net_part parts[2] = {{memory[2 * i], 20 + 2 * (size_t)i},
                                         {memory[2 * i + 1], 21 + 2 * (size_t)i}};
      assert_ok(treadle_net_tcp.receive(l.net, 0, (uint64_t)i, parts, 2, &requests[i]));
    }
    for (int64_t pieces = treadle_random_below(&random, 6); pieces > 0; pieces--) {
      uint64_t tag = (uint64_t)treadle_random_below(&random, 3);
      treadle_tcp_head head = head_of(TREADLE_TCP_MESSAGE, tag, 41 + 4 * tag);
      size_t rest = (size_t)treadle_random_below(&random, 60);
      if (treadle_random_below(&random, 3) == 0) rest = (size_t)head.frame.bytes;
      if (treadle_random_below(&random, 8) == 0)
        ((unsigned char *)&head)[treadle_random_below(&random, sizeof head)] ^= 0x80;
      memcpy(said + length, &head, sizeof head);
      length += sizeof head;
      for (size_t i = 0; i < rest; i++) said[length++] = (unsigned char)treadle_random_next(&random);
    }
    int one = connect_to(&l);
    greeting hello = hello_of(&l, 0);
    say(one, &hello, sizeof hello);
    for (size_t at = 0; at < length;) {
      size_t now = 1 + (size_t)treadle_random_below(&random, 90);
      if (now > length - at) now = length - at;
      if (send(one, said + at, now, MSG_NOSIGNAL) < 0) break; /* disconnected */
      at += now;
      treadle_net_tcp.wait(l.net, 0);
    }
    close(one);
    for (int i = 0; i < 2; i++) {
      if (stream % 2) continue; /* these go with their net */
      treadle_status status = TREADLE_OK;
      bool done = false;
      for (int turn = 0; turn < 100 && !done && status == TREADLE_OK; turn++) {
        treadle_net_tcp.wait(l.net, 1e-4);
        status = treadle_net_tcp.test(l.net, requests[i], &done);
      }
      if (!done && status == TREADLE_OK) /* behind a message that nobody receives: it waits */
        treadle_net_tcp.cancel(l.net, requests[i]);
      assert_true(status == TREADLE_OK || status == TREADLE_PEER);
    }
    treadle_net_tcp.close(l.net);
    treadle_net_tcp.close(other.net);
    for (int i = 0; i < 4; i++) free(memory[i]);
  }
}

/* Who answers at a rank's address is not that rank: another process has its port now. */
static void test_other_answers(void **state) {
  (void)state;
  listening l = listen_as(0), other = listen_as(1);
  char byte = 0;
  treadle_net_part part = {&byte, 1};
  void *request;
  int listener = listen_for(&other);
  assert_ok(treadle_net_tcp.connect(l.net, 1, &other.at, sizeof other.at));
  assert_ok(treadle_net_tcp.receive(l.net, 1, 3, &part, 1, &request));
  int one = accept(listener, NULL, NULL);
  greeting hello = hello_of(&other, 1); /* with a key that is not that of rank 0 */
  say(one, &hello, sizeof hello);
  assert_fails(TREADLE_PEER, "who answers there is not that rank", finish(&l, request));
  close(one);
  close(listener);
  treadle_net_tcp.close(l.net);
  treadle_net_tcp.close(other.net);
}

/* What a rank has begun goes with its net; no allocation that fails leaves anything behind. */
static void test_no_memory(void **state) {
  (void)state;
  char byte = 0;
  treadle_net_part part = {&byte, 1};
  for (long at = 1; at <= 4; at++) {
    void *net = NULL, *request;
    treadle_net_options options = {.struct_size = sizeof options, .ranks = 2, .host = "127.0.0.1"};
    listening other = listen_as(1);
    treadle_alloc_fail_at(at);
    treadle_status status = treadle_net_tcp.open(&options, &net);
    if (status == TREADLE_OK) status = treadle_net_tcp.connect(net, 1, &other.at, sizeof other.at);
    for (int i = 0; i < 2 && status == TREADLE_OK; i++)
      status = treadle_net_tcp.send(net, 1, (uint64_t)i, &part, 1, &request);
    treadle_alloc_fail_at(0);
    assert_int_equal(status, TREADLE_NO_MEMORY);
    treadle_net_tcp.close(net);
    treadle_net_tcp.close(other.net);
  }
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_strangers),   cmocka_unit_test(test_silent),
      cmocka_unit_test(test_no_messages), cmocka_unit_test(test_other_answers),
      cmocka_unit_test(test_read_first),  cmocka_unit_test(test_again),
      cmocka_unit_test(test_no_memory),   cmocka_unit_test(test_any_stream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
