/* src/core/wire/wire.c and buffer.c: two ends of a socket in one thread, which moves each of them only when the test says so. */
#include "base/alloc.h"
#include "base/random.h"
#include "test.h"
#include "wire/wire.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST = 1 << 20 };

static const treadle_frame_rule rule = {.magic = 0x11223344,
                                        .version = 1,
                                        .types = 3,
                                        .head_bytes = sizeof(treadle_frame),
                                        .key = 99,
                                        .most = MOST};

typedef struct ends {
  treadle_wire a, b;
} ends;

static ends connect_ends(void) {
  int two[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, two), 0);
  return (ends){treadle_wire_on(two[0]), treadle_wire_on(two[1])};
}

static void close_ends(ends *e) {
  treadle_wire_close(&e->a, true);
  treadle_wire_close(&e->b, true);
  assert_int_equal(e->a.socket, -1);
  treadle_wire_close(&e->a, true);
}

static char content_at(uint32_t type, size_t i) { return (char)(type * 31 + i * 7 + i / 256); }

static treadle_status say(treadle_wire *wire, uint32_t type, size_t bytes) {
  char *content = malloc(bytes + 1);
  treadle_frame head = {.type = type};
  assert_non_null(content);
  for (size_t i = 0; i < bytes; i++) content[i] = content_at(type, i);
  treadle_status status = treadle_wire_say(wire, &rule, &head, content, bytes);
  free(content);
  return status;
}

static void is_right(const treadle_frame *head, const char *content, uint32_t type, size_t bytes) {
  assert_true(head->type == type && head->bytes == bytes);
  for (size_t i = 0; i < bytes; i++)
    if (content[i] != content_at(type, i)) fail_msg("byte %zu of %zu is another one", i, bytes);
}

/* Moves both ends until the message is here. */
static void hears(ends *e, uint32_t type, size_t bytes) {
  bool whole = false;
  while (!whole) {
    treadle_frame head;
    const char *content;
    assert_ok(treadle_wire_send(&e->a));
    assert_ok(treadle_wire_hear(&e->b, &rule, &head, &content, &whole));
    if (whole) is_right(&head, content, type, bytes);
  }
}

/* Each is heard as soon as its last byte is here, not before, and without a byte of the next one. */
static void test_byte_by_byte(void **state) {
  (void)state;
  ends e = connect_ends();
  treadle_frame head;
  const char *content;
  bool whole;
  for (uint32_t type = 1; type <= 3; type++) assert_ok(say(&e.a, type, 10 * (type - 1)));
  for (uint32_t type = 1; type <= 3; type++)
    for (size_t i = sizeof head + 10 * (type - 1); i > 0; i--) {
      assert_ok(treadle_wire_hear(&e.b, &rule, &head, &content, &whole));
      assert_false(whole);
      assert_int_equal(send(e.a.socket, e.a.out.bytes + e.a.out.begun, 1, MSG_NOSIGNAL), 1);
      treadle_wire_buffer_drop(&e.a.out, 1);
      assert_ok(treadle_wire_hear(&e.b, &rule, &head, &content, &whole));
      assert_true(whole == (i == 1));
      if (whole) is_right(&head, content, type, 10 * (type - 1));
    }
  close_ends(&e);
}

/* What comes at once is read at once, and taken one by one; what is shared goes behind its head. */
static void test_many(void **state) {
  (void)state;
  ends e = connect_ends();
  treadle_wire_bytes *shared = treadle_wire_bytes_make(5);
  treadle_frame head = {.type = 3};
  const char *content;
  size_t lacks, got;
  memcpy(shared->data, "value", 5);
  for (uint32_t i = 0; i < 40; i++) assert_ok(say(&e.a, 1 + i % 3, i));
  assert_int_equal(treadle_wire_events(&e.a), POLLIN | POLLOUT);
  assert_ok(treadle_wire_send(&e.a));
  assert_true(treadle_wire_waiting(&e.a) == 0 && treadle_wire_events(&e.a) == POLLIN);
  assert_ok(treadle_wire_say_shared(&e.a, &rule, &head, shared));
  assert_int_equal(treadle_wire_waiting(&e.a), sizeof head + 5);
  treadle_wire_bytes_drop(shared);
  assert_ok(treadle_wire_send(&e.a));
  assert_ok(treadle_wire_read(&e.b, NULL, 0, 1 << 16, &got));
  for (uint32_t i = 0; i < 40; i++) {
    assert_ok(treadle_wire_take(&e.b, &rule, &head, &content, &lacks));
    assert_int_equal(lacks, 0);
    is_right(&head, content, 1 + i % 3, i);
  }
  assert_ok(treadle_wire_take(&e.b, &rule, &head, &content, &lacks));
  assert_true(lacks == 0 && head.bytes == 5 && memcmp(content, "value", 5) == 0);
  assert_ok(treadle_wire_take(&e.b, &rule, &head, &content, &lacks));
  assert_int_equal(lacks, sizeof head);
  close_ends(&e);
}

/* More than the kernel takes waits, in order, until the other end reads; it may be closed meanwhile. */
static void test_full(void **state) {
  (void)state;
  ends e = connect_ends();
  treadle_wire_bytes *shared = treadle_wire_bytes_make(MOST);
  treadle_frame head = {.type = 2};
  uint32_t said = 0;
  while (treadle_wire_waiting(&e.a) < 2 * MOST) { /* the socket is full, and more */
    assert_ok(say(&e.a, 1 + said++ % 3, MOST / 4));
    assert_ok(treadle_wire_send(&e.a));
  }
  assert_false(e.a.writable);
  for (uint32_t i = 0; i < said; i++) hears(&e, 1 + i % 3, MOST / 4);
  assert_int_equal(treadle_wire_waiting(&e.a), 0);
  for (size_t i = 0; i < MOST; i++) shared->data[i] = content_at(2, i);
  for (int i = 0; i < 3; i++) {
    assert_ok(treadle_wire_say_shared(&e.a, &rule, &head, shared));
    hears(&e, 2, MOST);
  }
  assert_int_equal(shared->users, 1);
  assert_ok(treadle_wire_say_shared(&e.a, &rule, &head, shared));
  assert_int_equal(shared->users, 2);
  close_ends(&e);
  assert_int_equal(shared->users, 1);
  treadle_wire_bytes_drop(shared);
}

/* Parts, and heads between them, from memory and to memory, in pieces of any length. */
static void test_parts(void **state) {
  (void)state;
  enum { COUNT = 200, LONG = 70000 };
  treadle_random random = {5};
  treadle_frame_rule open = rule;
  ends e = connect_ends();
  static unsigned char out[LONG], in[LONG];
  open.open = true;
  for (int round = 0; round < COUNT; round++) {
    size_t length = (size_t)treadle_random_below(&random, round % 2 ? LONG : 300), sent = 0, done = 0;
    treadle_frame head = {.type = 1}, heard;
    bool there = false;
    for (size_t i = 0; i < length; i++) out[i] = (unsigned char)treadle_random_next(&random);
    treadle_frame_seal(&open, &head, NULL, length);
    while (!there || done < length) {
      size_t now, half = length / 2, more = (size_t)treadle_random_below(&random, LONG) + 1;
      struct iovec parts[3] = {{(char *)&head, sizeof head}, {out, half}, {out + half, length - half}};
      size_t skip = sent;
      for (int i = 0; i < 3; i++) { /* what is left of it, and not all of that at once */
        size_t over = skip < parts[i].iov_len ? skip : parts[i].iov_len;
        parts[i].iov_base = (char *)parts[i].iov_base + over;
        parts[i].iov_len -= over;
        skip -= over;
        if (parts[i].iov_len > more) parts[i].iov_len = more;
        more -= parts[i].iov_len;
      }
      assert_ok(treadle_wire_write(&e.a, parts, 3, &now));
      sent += now;
      struct iovec to[2] = {{in + done, length - done}};
      size_t before = treadle_wire_buffer_used(&e.b.in), lacks;
      assert_ok(treadle_wire_read(&e.b, to, there ? 1 : 0, sizeof head - (there ? 0 : before), &now));
      if (there) done += now - treadle_wire_buffer_used(&e.b.in);
      if (there) continue;
      const char *content;
      assert_ok(treadle_wire_take(&e.b, &open, &heard, &content, &lacks));
      there = lacks == 0;
      if (there) assert_int_equal(heard.bytes, length);
    }
    assert_memory_equal(in, out, length);
    assert_int_equal(treadle_wire_buffer_used(&e.b.in), 0);
  }
  close_ends(&e);
}

/* The other end closes: after a message, in one, or before it has read what was said. */
static void test_closes(void **state) {
  (void)state;
  for (int kind = 0; kind < 4; kind++) {
    ends e = connect_ends();
    treadle_frame head;
    const char *content;
    bool whole;
    assert_ok(say(&e.a, 1, 100));
    if (kind == 0) assert_ok(treadle_wire_send(&e.a));
    if (kind == 1) assert_int_equal(send(e.a.socket, e.a.out.bytes, 60, MSG_NOSIGNAL), 60);
    if (kind == 3) treadle_wire_finish(&e.a);
    if (kind < 3) treadle_wire_close(&e.a, kind == 2);
    if (kind == 0) {
      assert_ok(treadle_wire_hear(&e.b, &rule, &head, &content, &whole));
      assert_true(whole);
    }
    assert_int_equal(treadle_wire_hear(&e.b, &rule, &head, &content, &whole), TREADLE_PEER);
    assert_false(whole);
    assert_string_equal(treadle_wire_why(&e.b), "it has closed the connection");
    assert_ok(say(&e.b, 1, 1));
    treadle_status status = treadle_wire_send(&e.b);
    assert_int_equal(status, kind == 3 ? TREADLE_OK : TREADLE_PEER); /* it may still hear */
    if (kind < 3) assert_string_equal(treadle_wire_why(&e.b), strerror(EPIPE));
    close_ends(&e);
  }
}

/* A wire goes on under another one; what it has in memory goes. */
static void test_leave(void **state) {
  (void)state;
  ends e = connect_ends();
  assert_ok(say(&e.a, 1, 100));
  int socket = treadle_wire_leave(&e.a);
  assert_true(e.a.socket == -1 && treadle_wire_waiting(&e.a) == 0);
  e.a = treadle_wire_on(socket);
  assert_ok(say(&e.a, 2, 7));
  hears(&e, 2, 7);
  close_ends(&e);
}

static void test_garbage(void **state) {
  (void)state;
  ends e = connect_ends();
  treadle_frame head;
  const char *content;
  bool whole;
  assert_int_equal(send(e.a.socket, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
  assert_refused("sent something that is not a message of treadle",
                 treadle_wire_hear(&e.b, &rule, &head, &content, &whole));
  assert_memory_equal(&head, "GET / HTTP/1.1", 14);
  assert_false(whole);
  assert_int_equal(send(e.a.socket, "more", 4, MSG_NOSIGNAL), 4);
  assert_ok(treadle_wire_waste(&e.b));
  assert_ok(treadle_wire_waste(&e.b));
  assert_int_equal(treadle_wire_buffer_used(&e.b.in), 0);
  treadle_wire_close(&e.a, true);
  assert_int_equal(treadle_wire_waste(&e.b), TREADLE_PEER);
  close_ends(&e);
}

/* From saying it to hearing it. */
static treadle_status say_and_hear(void) {
  treadle_status status = TREADLE_OK;
  ends e = connect_ends();
  treadle_frame head = {.type = 1};
  const char *content;
  bool whole = false;
  treadle_wire_bytes *shared = treadle_wire_bytes_make(100);
  if (!shared) TRY(treadle_fail(TREADLE_NO_MEMORY, "memory is out"));
  for (int i = 0; i < 2; i++) TRY(say(&e.a, 1, 2000));
  TRY(treadle_wire_send(&e.a));
  TRY(treadle_wire_say_shared(&e.a, &rule, &head, shared));
  TRY(treadle_wire_send(&e.a));
  for (int i = 0; i < 3; i++, whole = false)
    while (!whole) TRY(treadle_wire_hear(&e.b, &rule, &head, &content, &whole));
out:
  treadle_wire_bytes_drop(shared);
  close_ends(&e);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  TEST_EACH_ALLOCATION(say_and_hear());
}

/* A row of bytes is what was put in, whatever comes and goes. */
static void test_buffer(void **state) {
  (void)state;
  treadle_random random = {11};
  treadle_wire_buffer b = {0};
  size_t put = 0, got = 0;
  for (int round = 0; round < 2000; round++) {
    size_t bytes = (size_t)treadle_random_below(&random, 300);
    char *room = treadle_wire_buffer_room(&b, bytes);
    assert_non_null(room);
    for (size_t i = 0; i < bytes; i++) room[i] = content_at(0, put++);
    b.count += bytes;
    size_t away = (size_t)treadle_random_below(&random, (int64_t)treadle_wire_buffer_used(&b) + 1);
    for (size_t i = 0; i < away; i++) assert_int_equal(b.bytes[b.begun + i], content_at(0, got++));
    treadle_wire_buffer_drop(&b, away);
    assert_int_equal(treadle_wire_buffer_used(&b), put - got);
    assert_true(b.capacity < 1 << 13);
  }
  treadle_wire_buffer_release(&b);
  assert_true(!b.bytes && treadle_wire_buffer_used(&b) == 0);
}

int main(void) {
  static const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_byte_by_byte), cmocka_unit_test(test_many),   cmocka_unit_test(test_full),
      cmocka_unit_test(test_parts),        cmocka_unit_test(test_closes), cmocka_unit_test(test_leave),
      cmocka_unit_test(test_garbage),      cmocka_unit_test(test_memory), cmocka_unit_test(test_buffer),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
