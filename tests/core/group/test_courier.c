/* src/core/group/courier*.c: messages as bytes; meeting beside strangers; a courier whose other node is played by the test, message by
 * message. Run under TSan too.  ctest: label=threads */
#include "base/clock.h"
#include "carry/words.h"
#include "group/courier.h"
#include "group/ranks.h"
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { KEY = 77, WAIT = 20 /* seconds, for what has to come */ };

static void nap(double seconds) { nanosleep(&(struct timespec){.tv_nsec = (long)(seconds * 1e9)}, NULL); }

/* A message as bytes, which the caller ends. */
static treadle_wire message_of(treadle_mail_head head, uint64_t key, const void *content, size_t bytes) {
  treadle_wire wire = treadle_wire_on(-1);
  const treadle_frame_rule rule = treadle_mail_rule(key);
  assert_ok(treadle_wire_say(&wire, &rule, &head, content, bytes));
  return wire;
}

/* ---- Messages as bytes ---- */

static void test_refused(void **state) {
  (void)state;
  static const struct {
    uint64_t key;
    uint32_t type, more; /* more: bytes that the content has beyond the most */
    const char *words;
  } rows[] = {{KEY, TREADLE_MAIL_HELLO, 0, NULL},
              {KEY, TREADLE_MAIL_BYE, 0, NULL},
              {KEY + 1, TREADLE_MAIL_VOTE, 0, "is of another job"},
              {KEY, 0, 0, "of type 0, which there is not"},
              {KEY, TREADLE_MAIL_BYE + 1, 0, "which there is not"},
              {KEY, TREADLE_MAIL_LINE, 1, "are taken"}};
  static const char content[TREADLE_MAIL_MOST + 1];
  for (size_t i = 0; i < TEST_COUNT(rows); i++) {
    treadle_wire wire = message_of((treadle_mail_head){.frame.type = rows[i].type, .node = 7}, rows[i].key,
                                   content, TREADLE_MAIL_MOST + rows[i].more);
    const treadle_frame_rule rule = treadle_mail_rule(KEY);
    treadle_mail_head head;
    const char *got;
    size_t lacks;
    wire.in = wire.out;
    wire.out = (treadle_wire_buffer){0};
    treadle_status status = treadle_wire_take(&wire, &rule, &head, &got, &lacks);
    if (rows[i].words) {
      assert_fails(TREADLE_REFUSED, rows[i].words, status);
    } else {
      assert_ok(status);
      assert_true(lacks == 0 && head.node == 7 && memcmp(got, content, TREADLE_MAIL_MOST) == 0);
    }
    treadle_wire_close(&wire, false);
  }
}

static void test_lines(void **state) {
  (void)state;
  char content[TREADLE_MAIL_MOST + 1] = "";
  const char *parts[3];
  treadle_line_copy line = {.left_message = 3, .said = {5, 2}}, got;
  size_t whole = sizeof line + 10;
  memcpy(content, &line, sizeof line);
  assert_true(treadle_mail_line(content, whole, &got, parts));
  assert_true(parts[0] == content + sizeof line && parts[2] == parts[0] + 8);
  for (size_t bytes = 0; bytes < whole; bytes++)
    assert_false(treadle_mail_line(content, bytes, &got, parts));
  assert_false(treadle_mail_line(content, whole + 1, &got, parts));
  static const treadle_line_copy bad[] = {{.left_message = TREADLE_GROUP_MESSAGE + 1},
                                          {.said = {TREADLE_GROUP_PAYLOAD + 1}},
                                          {.said = {0, UINT32_MAX}},
                                          {.left = TREADLE_LEFT_FAILED + 1}};
  for (size_t i = 0; i < TEST_COUNT(bad); i++) {
    memcpy(content, &bad[i], sizeof bad[i]);
    size_t bytes = sizeof line + bad[i].left_message + bad[i].said[0];
    assert_false(treadle_mail_line(content, bytes, &got, parts));
  }
}

/* ---- Meeting ---- */

typedef struct place { /* where the courier of node 0 listens */
  pthread_mutex_t lock;
  pthread_cond_t said;
  char text[128];
} place;

static treadle_status say_place(void *context, int32_t node, const char *text) {
  place *p = context;
  pthread_mutex_lock(&p->lock);
  if (node == 0) snprintf(p->text, sizeof p->text, "%s", text);
  pthread_cond_broadcast(&p->said);
  pthread_mutex_unlock(&p->lock);
  return TREADLE_OK;
}

static treadle_status ask_place(void *context, int32_t node, double deadline, char *text, size_t capacity) {
  place *p = context;
  (void)node, (void)deadline;
  pthread_mutex_lock(&p->lock);
  while (!p->text[0]) pthread_cond_wait(&p->said, &p->lock);
  snprintf(text, capacity, "%s", p->text);
  pthread_mutex_unlock(&p->lock);
  return TREADLE_OK;
}

static int connect_to(const char *text) {
  char host[64], port[16];
  struct sockaddr_in at = {.sin_family = AF_INET};
  assert_int_equal(sscanf(text, "%63s %15s", host, port), 2);
  at.sin_port = htons((uint16_t)atoi(port));
  assert_int_equal(inet_pton(AF_INET, host, &at.sin_addr), 1);
  int one = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(one, (struct sockaddr *)&at, sizeof at), 0);
  return one;
}

typedef struct meeter {
  treadle_courier_meeting meeting;
  int sockets[2];
  treadle_status status;
} meeter;

static void *meet(void *context) {
  meeter *m = context;
  m->status = treadle_courier_meet(&m->meeting, treadle_clock_seconds() + WAIT, m->sockets);
  return NULL;
}

static void test_strangers(void **state) {
  (void)state;
  static const int32_t of[2] = {0, 1};
  treadle_nodes nodes;
  place p = {.lock = PTHREAD_MUTEX_INITIALIZER, .said = PTHREAD_COND_INITIALIZER};
  meeter both[2];
  pthread_t threads[2];
  int strangers[6];
  char text[128], hello[sizeof(treadle_mail_head)], rubbish[4096];
  memset(rubbish, 0x5a, sizeof rubbish);
  assert_ok(treadle_nodes_make(of, 2, &nodes));
  for (int node = 0; node < 2; node++)
    both[node] = (meeter){.meeting = {.nodes = &nodes,
                                      .node = node,
                                      .key = {9},
                                      .host = "127.0.0.1",
                                      .say = say_place,
                                      .ask = ask_place,
                                      .context = &p}};
  assert_int_equal(pthread_create(&threads[0], NULL, meet, &both[0]), 0);
  assert_ok(ask_place(&p, 0, 0, text, sizeof text));
  for (int i = 0; i < 6; i++) {
    treadle_mail_head head = {.frame.type = i == 4 ? TREADLE_MAIL_BEAT : TREADLE_MAIL_HELLO,
                              .node = i == 3 ? 2 : 1};
    const treadle_frame_rule rule = treadle_mail_rule(treadle_courier_key(both[0].meeting.key) + (i == 2));
    treadle_frame_seal(&rule, &head, NULL, 0);
    memcpy(hello, &head, sizeof hello);
    strangers[i] = connect_to(text); /* says nothing; rubbish; wrong key, node or type; a half */
    size_t bytes = i == 5 ? sizeof hello / 2 : sizeof hello;
    if (i > 0) assert_true(send(strangers[i], i == 1 ? rubbish : hello, bytes, MSG_NOSIGNAL) > 0);
  }
  nap(0.05);
  assert_int_equal(pthread_create(&threads[1], NULL, meet, &both[1]), 0);
  for (int node = 0; node < 2; node++) {
    pthread_join(threads[node], NULL);
    assert_int_equal(both[node].status, TREADLE_OK);
  }
  char byte = 'x';
  assert_int_equal(send(both[1].sockets[0], &byte, 1, 0), 1);
  struct pollfd one = {.fd = both[0].sockets[1], .events = POLLIN};
  assert_int_equal(poll(&one, 1, WAIT * 1000), 1);
  assert_int_equal(recv(both[0].sockets[1], &byte, 1, 0), 1);
  for (int i = 0; i < 6; i++) { /* nobody has kept them */
    (void)setsockopt(strangers[i], SOL_SOCKET, SO_RCVTIMEO, &(struct timeval){.tv_sec = WAIT},
                     sizeof(struct timeval));
    assert_true(recv(strangers[i], &byte, 1, 0) <= 0);
    close(strangers[i]);
  }
  close(both[0].sockets[1]);
  close(both[1].sockets[0]);
  treadle_nodes_release(&nodes);
}

/* Node 0 is played: it hangs up a few times, as if strangers had all its places, then answers. */
static void test_comes_again(void **state) {
  (void)state;
  static const int32_t of[2] = {0, 1};
  treadle_nodes nodes;
  place p = {.lock = PTHREAD_MUTEX_INITIALIZER, .said = PTHREAD_COND_INITIALIZER};
  struct sockaddr_in at = {.sin_family = AF_INET};
  socklen_t length = sizeof at;
  pthread_t thread;
  treadle_mail_head heard;
  int one = -1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_ok(treadle_nodes_make(of, 2, &nodes));
  meeter other = {
      .meeting = {
          .nodes = &nodes, .node = 1, .key = {9}, .say = say_place, .ask = ask_place, .context = &p}};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
  assert_int_equal(listen(listener, 1), 0);
  assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &length), 0);
  snprintf(p.text, sizeof p.text, "127.0.0.1 %d", ntohs(at.sin_port));
  assert_int_equal(pthread_create(&thread, NULL, meet, &other), 0);
  for (int i = 0; i < 4; i++) {
    one = accept(listener, NULL, NULL);
    if (i % 2) assert_int_equal(recv(one, &heard, sizeof heard, MSG_WAITALL), sizeof heard);
    if (i < 3) close(one);
  }
  assert_true(heard.frame.type == TREADLE_MAIL_HELLO && heard.node == 1);
  treadle_mail_head answer = {.frame.type = TREADLE_MAIL_HELLO};
  const treadle_frame_rule rule = treadle_mail_rule(treadle_courier_key(other.meeting.key));
  treadle_frame_seal(&rule, &answer, NULL, 0);
  assert_int_equal(send(one, &answer, sizeof answer, MSG_NOSIGNAL), sizeof answer);
  pthread_join(thread, NULL);
  assert_int_equal(other.status, TREADLE_OK);
  assert_true(other.sockets[0] >= 0);
  close(other.sockets[0]);
  close(one);
  close(listener);
  treadle_nodes_release(&nodes);
}

/* ---- A courier, and a node that is played ---- */

typedef struct stage {
  treadle_nodes nodes;
  treadle_group group, *near;
  treadle_courier *courier;
  int32_t node;      /* the courier's; the other one is the test's, with rank 2 or 0 */
  treadle_wire wire; /* the test's end */
} stage;

/* Ranks 0 and 1 are on node 0, ranks 2 and 3 on node 1; only the leaders are there. The courier is not made. */
static void stage_set(stage *s, int32_t node, double limit, int sockets[2]) {
  static const int32_t of[4] = {0, 0, 1, 1};
  int ends[2];
  size_t bytes = (treadle_control_bytes(4) + 63) / 64 * 64;
  memset(s, 0, sizeof *s);
  s->node = node;
  assert_ok(treadle_nodes_make(of, 4, &s->nodes));
  assert_ok(treadle_group_threads(1, limit, &s->near));
  s->group = (treadle_group){.rank = 2 * node, .size = 4, .nodes = &s->nodes};
  s->group.control = aligned_alloc(64, bytes);
  assert_non_null(s->group.control);
  memset(s->group.control, 0, bytes);
  for (int rank = 0; rank < 4; rank++) /* of the near group, only its first rank can be asked */
    if (rank != s->group.rank) atomic_store(&s->group.control->lines[rank].left, TREADLE_LEFT_CLOSED);
  atomic_store(&s->group.control->lines[2 * (1 - node)].left, TREADLE_LEFT_NOT);
  treadle_group_limit(&s->group, limit);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  s->wire = treadle_wire_on(ends[0]);
  sockets[node] = -1;
  sockets[1 - node] = ends[1];
}

static void stage_init(stage *s, int32_t node, double limit) {
  int sockets[2];
  stage_set(s, node, limit, sockets);
  assert_ok(treadle_courier_start(&s->group, s->near, KEY, sockets, &s->courier));
}

static void stage_release(stage *s) {
  treadle_wire_close(&s->wire, false);
  treadle_courier_stop(s->courier);
  treadle_group_close(s->near);
  free(s->group.control);
  treadle_nodes_release(&s->nodes);
}

static bool is_gone(const stage *s) {
  return atomic_load(&s->group.control->lines[2 * (1 - s->node)].gone) != 0;
}

static bool becomes_gone(const stage *s, double seconds) {
  for (double end = treadle_clock_seconds() + seconds; !is_gone(s) && treadle_clock_seconds() < end;)
    nap(1e-3);
  return is_gone(s);
}

/* frame.key: what is added to the job's. */
static void say(const stage *s, treadle_mail_head head, const void *content, size_t bytes) {
  head.node += 1 - s->node;
  treadle_wire wire = message_of(head, KEY + head.frame.key, content, bytes);
  assert_true(send(s->wire.socket, wire.out.bytes, wire.out.count, MSG_NOSIGNAL) ==
              (ssize_t)wire.out.count);
  treadle_wire_close(&wire, false);
}

static void say_of(const stage *s, treadle_mail_type type, uint64_t epoch) {
  say(s, (treadle_mail_head){.frame.type = type, .rank = 2 * (1 - s->node), .epoch = epoch}, "so it is", 8);
}

/* The next message that is about an outcome; this end beats meanwhile. 0: none came. */
static treadle_mail_head hear(stage *s, double seconds) {
  const treadle_frame_rule rule = treadle_mail_rule(KEY);
  for (double end = treadle_clock_seconds() + seconds; treadle_clock_seconds() < end;) {
    treadle_mail_head head;
    const char *content;
    bool whole;
    if (treadle_wire_hear(&s->wire, &rule, &head, &content, &whole) != TREADLE_OK) break;
    assert_true(!whole || head.node == s->node);
    if (whole && head.frame.type != TREADLE_MAIL_BEAT && head.frame.type != TREADLE_MAIL_LINE) return head;
    if (whole) continue;
    say_of(s, TREADLE_MAIL_BEAT, 0);
    struct pollfd one = {.fd = s->wire.socket, .events = POLLIN};
    (void)poll(&one, 1, 20);
  }
  return (treadle_mail_head){0};
}

static bool hears(stage *s, treadle_mail_type type, uint64_t epoch) {
  treadle_mail_head head = hear(s, WAIT);
  return head.frame.type == (uint32_t)type && head.epoch == epoch;
}

static bool becomes(stage *s, uint64_t epoch, int state) {
  treadle_outcome now = treadle_outcome_now(s->group.control);
  for (double end = treadle_clock_seconds() + WAIT; treadle_clock_seconds() < end;) {
    now = treadle_outcome_now(s->group.control);
    if (now.epoch == epoch && now.state == state) return true;
    say_of(s, TREADLE_MAIL_BEAT, 0);
    nap(2e-3);
  }
  return false;
}

static void verify(stage *s, uint64_t epoch) {
  treadle_word_say(&s->group, TREADLE_WORD_ENTERED, epoch);
  treadle_outcome_open(&s->group, epoch);
  treadle_word_say(&s->group, TREADLE_WORD_VERIFIED, epoch);
}

static void vote(stage *s, uint64_t epoch) {
  verify(s, epoch);
  assert_true(treadle_outcome_settle(&s->group, epoch, TREADLE_COMMITTED));
}

static void test_other_rules(void **state) {
  (void)state;
  const treadle_line_copy line = {.said = {1}};
  static const treadle_mail_head bad[] = {
      {.frame = {.type = TREADLE_MAIL_BEAT, .key = 1}},
      {.frame.type = TREADLE_MAIL_BEAT, .node = 1}, /* in the name of another node */
      {.frame.type = TREADLE_MAIL_LINE, .rank = 0},
      {.frame.type = TREADLE_MAIL_LINE, .rank = -1},
      {.frame.type = TREADLE_MAIL_LINE, .rank = 4},
      {.frame.type = TREADLE_MAIL_LINE, .rank = 2}, /* with bytes that are none of a line */
      {.frame.type = TREADLE_MAIL_FAIL, .rank = 4, .epoch = 1},
      {.frame.type = TREADLE_MAIL_FAIL, .rank = INT32_MIN, .epoch = 1},
      {.frame.type = TREADLE_MAIL_VOTE, .epoch = UINT64_MAX},
  };
  for (size_t i = 0; i <= TEST_COUNT(bad); i++) {
    stage s;
    stage_init(&s, 0, WAIT);
    say_of(&s, TREADLE_MAIL_BEAT, 0);
    nap(0.02);
    assert_false(is_gone(&s));
    if (i < TEST_COUNT(bad))
      say(&s, bad[i], &line, bad[i].frame.type == TREADLE_MAIL_LINE ? sizeof line : 0);
    else
      assert_true(
          send(s.wire.socket, "this is not a message, and much too long for a head of one", 55, 0) == 55);
    if (!becomes_gone(&s, WAIT)) fail_msg("message %zu was taken", i);
    assert_int_equal(treadle_outcome_now(s.group.control).epoch, 0);
    stage_release(&s);
  }
}

static void test_silence(void **state) {
  (void)state;
  stage s;
  stage_init(&s, 0, 0.5);
  for (int i = 0; i < 50; i++) {
    say_of(&s, TREADLE_MAIL_BEAT, 0);
    nap(0.02);
  }
  assert_false(is_gone(&s));
  double begin = treadle_clock_seconds();
  assert_true(becomes_gone(&s, WAIT));
  assert_true(treadle_clock_seconds() - begin > 0.2);
  stage_release(&s);
}

/* It beats, and reads nothing: what waits for it has a limit. */
static void test_stops_reading(void **state) {
  (void)state;
  stage s;
  treadle_mail_head beat = {.frame.type = TREADLE_MAIL_BEAT, .node = 1};
  const treadle_frame_rule rule = treadle_mail_rule(KEY);
  stage_init(&s, 0, 100);
  treadle_frame_seal(&rule, &beat, NULL, 0);
  treadle_rank_line *line = treadle_group_line(&s.group);
  for (int half = 0; half < 2; half++) memset(line->payload[half], 7, TREADLE_GROUP_PAYLOAD);
  double end = treadle_clock_seconds() + 100;
  for (uint64_t barrier = 1; !is_gone(&s) && treadle_clock_seconds() < end; barrier++) {
    treadle_group_publish(&s.group, &line->arrived, barrier);
    if (barrier % 256 == 0) (void)send(s.wire.socket, &beat, sizeof beat, MSG_NOSIGNAL | MSG_DONTWAIT);
    sched_yield();
  }
  assert_true(is_gone(&s));
  stage_release(&s);
}

/* A node enters a barrier and closes the group, and this one finds out by sending: what it has said counts. No threads are there, so that
 * the courier sends before it reads. */
static void test_says_and_goes(void **state) {
  (void)state;
  stage s;
  int sockets[2];
  treadle_courier_peer peers[2] = {{.heard = treadle_clock_seconds()}, {.heard = treadle_clock_seconds()}};
  treadle_line_copy sent[4] = {{.pid = 0}};
  uint32_t bells[4] = {0};
  stage_set(&s, 0, 100, sockets);
  for (int32_t node = 0; node < 2; node++) peers[node].wire = treadle_wire_on(sockets[node]);
  treadle_courier courier = {
      .group = &s.group, .near = s.near, .key = KEY, .peers = peers, .sent = sent, .bells = bells};
  const treadle_line_copy last = {.arrived = 5};
  say(&s, (treadle_mail_head){.frame.type = TREADLE_MAIL_LINE, .rank = 2}, &last, sizeof last);
  say_of(&s, TREADLE_MAIL_BYE, 0);
  treadle_wire_close(&s.wire, false);
  treadle_group_publish(&s.group, &treadle_group_line(&s.group)->arrived, 5);
  treadle_courier_turn(&courier);
  assert_int_equal(atomic_load(&s.group.control->lines[2].arrived), 5);
  assert_true(peers[1].said_bye && is_gone(&s));
  treadle_wire_close(&peers[1].wire, false);
  stage_release(&s);
}

/* ---- Votes ---- */

static void test_lowest_decides(void **state) {
  (void)state;
  stage s;
  stage_init(&s, 0, WAIT);
  vote(&s, 1);
  say_of(&s, TREADLE_MAIL_VOTE, 1);
  assert_true(hears(&s, TREADLE_MAIL_COMMIT, 1));
  assert_true(treadle_outcome_committed(&s.group, 1));
  verify(&s, 2); /* it has gone on, and still knows */
  say_of(&s, TREADLE_MAIL_ASK, 1);
  assert_true(hears(&s, TREADLE_MAIL_COMMIT, 1));
  assert_ok(treadle_outcome_check(&s.group, 1));
  say_of(&s, TREADLE_MAIL_ASK, 2); /* it has not voted for this: now it cannot */
  assert_true(hears(&s, TREADLE_MAIL_FAIL, 2));
  assert_false(treadle_outcome_settle(&s.group, 2, TREADLE_COMMITTED));
  assert_fails(TREADLE_PEER, "waited in vain", treadle_outcome_check(&s.group, 2));
  treadle_fail(TREADLE_SYSTEM, "rank 0 has no more room");
  assert_true(treadle_outcome_settle(&s.group, 3, TREADLE_FAILED));
  assert_true(hears(&s, TREADLE_MAIL_FAIL, 3));
  say_of(&s, TREADLE_MAIL_ASK, 2); /* also of one that was failed before */
  assert_true(hears(&s, TREADLE_MAIL_FAIL, 2));
  stage_release(&s);
}

/* Ranks of the lowest node that give up have decided, though the vote that was missing comes. */
static void test_lowest_gives_up(void **state) {
  (void)state;
  stage s;
  stage_init(&s, 0, WAIT);
  vote(&s, 1);
  treadle_outcome_give_up(&s.group, 1);
  say_of(&s, TREADLE_MAIL_VOTE, 1);
  assert_true(hears(&s, TREADLE_MAIL_FAIL, 1));
  assert_false(treadle_outcome_is_adrift(&s.group, 1));
  assert_fails(TREADLE_PEER, "decided nothing", treadle_outcome_check(&s.group, 1));
  assert_int_equal(hear(&s, 0.2).frame.type, 0);
  stage_release(&s);
}

static void test_lowest_misses_a_vote(void **state) {
  (void)state;
  stage s;
  stage_init(&s, 0, 0.3);
  vote(&s, 1);
  assert_true(hears(&s, TREADLE_MAIL_FAIL, 1));
  assert_fails(TREADLE_PEER, "has not voted", treadle_outcome_check(&s.group, 1));
  stage_release(&s);
}

static void test_told(void **state) {
  (void)state;
  stage s;
  stage_init(&s, 1, WAIT);
  vote(&s, 1);
  assert_true(hears(&s, TREADLE_MAIL_VOTE, 1));
  say_of(&s, TREADLE_MAIL_COMMIT, 2); /* of another epoch */
  nap(0.05);
  assert_int_equal(treadle_outcome_now(s.group.control).state, TREADLE_VOTED);
  say_of(&s, TREADLE_MAIL_COMMIT, 1);
  assert_true(becomes(&s, 1, TREADLE_COMMITTED));
  vote(&s, 2);
  assert_true(hears(&s, TREADLE_MAIL_VOTE, 2));
  say_of(&s, TREADLE_MAIL_FAIL, 2);
  assert_true(becomes(&s, 2, TREADLE_FAILED));
  assert_fails(TREADLE_PEER, "so it is", treadle_outcome_check(&s.group, 2));
  stage_release(&s);
}

/* Who is told nothing asks, then gives up; a word that comes later changes nothing. */
static void test_adrift(void **state) {
  (void)state;
  stage s;
  stage_init(&s, 1, 0.5);
  vote(&s, 1);
  assert_true(hears(&s, TREADLE_MAIL_VOTE, 1));
  assert_true(hears(&s, TREADLE_MAIL_ASK, 1));
  assert_true(becomes(&s, 1, TREADLE_FAILED));
  assert_true(treadle_outcome_is_adrift(&s.group, 1));
  assert_fails(TREADLE_PEER, "hears of no outcome", treadle_outcome_check(&s.group, 1));
  say_of(&s, TREADLE_MAIL_COMMIT, 1);
  say_of(&s, TREADLE_MAIL_ASK, 1); /* and it cannot help others: it says nothing */
  assert_int_equal(hear(&s, 0.3).frame.type, 0);
  assert_false(treadle_outcome_committed(&s.group, 1));
  stage_release(&s);
}

/* Another node has failed this epoch and the next before this one has heard of the first: no rank that still waits here, and has verified,
 * takes it for committed. */
static void test_two_failures(void **state) {
  (void)state;
  for (int lost = 0; lost < 2; lost++) {
    stage s;
    stage_init(&s, 1, WAIT);
    verify(&s, 1);
    if (!lost) say_of(&s, TREADLE_MAIL_FAIL, 1);
    say_of(&s, TREADLE_MAIL_FAIL, 2);
    assert_true(becomes(&s, 2, TREADLE_FAILED));
    assert_false(treadle_outcome_committed(&s.group, 1));
    assert_fails(TREADLE_PEER, "given up waiting", treadle_outcome_check(&s.group, 1));
    assert_false(treadle_outcome_settle(&s.group, 1, TREADLE_COMMITTED));
    stage_release(&s);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_refused),
      cmocka_unit_test(test_lines),
      cmocka_unit_test(test_strangers),
      cmocka_unit_test(test_comes_again),
      cmocka_unit_test(test_other_rules),
      cmocka_unit_test(test_silence),
      cmocka_unit_test(test_stops_reading),
      cmocka_unit_test(test_says_and_goes),
      cmocka_unit_test(test_lowest_decides),
      cmocka_unit_test(test_lowest_gives_up),
      cmocka_unit_test(test_lowest_misses_a_vote),
      cmocka_unit_test(test_told),
      cmocka_unit_test(test_adrift),
      cmocka_unit_test(test_two_failures),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
