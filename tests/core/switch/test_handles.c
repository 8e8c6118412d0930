/* Windows in other processes: one rank and its readers, each a process. Readers see the bytes and the versions, hold them, die, knock and say
 * nothing; the owner switches, is refused, destroys its switch, dies. ctest: timeout=300 */
#include "attach/handle.h"
#include "switch/readers.h"
#include "switch/scene.h"
#include "test.h"

#include "base/clock.h"
#include "base/hash.h"
#include "group/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>

typedef struct owner {
  scene s;
  treadle_layout *train, *infer;
  treadle_group *group;
  treadle_switch *sw;
  char handle[TREADLE_HANDLE_BYTES];
  size_t bytes;
} owner;

static void owner_init_with(owner *o, const char *train, treadle_switch_options options) {
  memset(o, 0, sizeof *o);
  scene_init(&o->s);
  options.struct_size = sizeof options;
  options.page_bytes = SCENE_PAGE;
  if (!options.timeout_seconds) options.timeout_seconds = 20;
  assert_ok(treadle_layout_create(o->s.model, train, 1, NULL, &o->train));
  assert_ok(treadle_layout_create(o->s.model, "vllm:tp=1", 1, NULL, &o->infer));
  assert_ok(treadle_group_self(&o->group));
  assert_ok(treadle_switch_create(o->group, o->train, o->infer, &options, &o->sw));
  assert_ok(treadle_layout_load(o->train, 0, treadle_switch_train_window(o->sw)));
  assert_ok(treadle_switch_handle(o->sw, TREADLE_INFER_PARAMS, o->handle, sizeof o->handle, &o->bytes));
}

static void owner_init(owner *o, double timeout_seconds) {
  owner_init_with(o, "megatron:tp=1", (treadle_switch_options){.timeout_seconds = timeout_seconds});
}

static void owner_release(owner *o) {
  treadle_switch_destroy(o->sw);
  treadle_group_close(o->group);
  treadle_layout_destroy(o->train);
  treadle_layout_destroy(o->infer);
  scene_release(&o->s);
}

static uint64_t owner_sum(const owner *o) {
  size_t bytes;
  const void *window = treadle_switch_window(o->sw, TREADLE_INFER_PARAMS, &bytes);
  return treadle_hash_bytes(window, bytes, 0);
}

static void assert_answer(reader_answer answer, treadle_status status, const char *part) {
  if (answer.status != status || (part && !strstr(answer.message, part)))
    fail_msg("wanted %s '%s', got %s '%s'", treadle_status_text(status), part ? part : "",
             treadle_status_text(answer.status), answer.message);
}

static void assert_version(reader *r, uint64_t version, bool valid) {
  reader_answer look = reader_do(r, READER_LOOK);
  assert_int_equal(look.version, version);
  assert_int_equal(look.valid, valid);
}

/* ---- Versions and bytes ---- */

static void read_through_versions(const char *train, treadle_switch_options options) {
  owner o;
  reader r = reader_start();
  owner_init_with(&o, train, options);
  assert_answer(reader_attach(&r, o.handle, o.bytes), TREADLE_OK, NULL);
  assert_version(&r, 0, false);
  assert_answer(reader_do(&r, READER_HOLD), TREADLE_STATE, "no version is in the window");
  assert_answer(reader_do_version(&r, READER_WAIT, 1, 0.1), TREADLE_TIMEOUT,
                "version 1 of rank 0 did not come");
  for (uint64_t version = 1; version <= 3; version++) {
    reader_question wait = {.order = READER_WAIT, .version = version, .seconds = 10};
    reader_ask(&r, &wait); /* sleeps while the switch runs */
    assert_ok(treadle_switch_to_infer(o.sw));
    assert_answer(reader_hear(&r), TREADLE_OK, NULL);
    assert_version(&r, version, true);
    reader_answer hold = reader_do(&r, READER_HOLD);
    assert_answer(hold, TREADLE_OK, NULL);
    assert_int_equal(hold.version, version);
    assert_int_equal(reader_do(&r, READER_SUM).sum, owner_sum(&o));
    assert_true(scene_infers(o.sw));
    assert_answer(reader_do_version(&r, READER_RELEASE, version + 1, 0), TREADLE_STATE, "is not held");
    assert_answer(reader_do_version(&r, READER_RELEASE, version, 0), TREADLE_OK, NULL);
    assert_answer(reader_do_version(&r, READER_RELEASE, version, 0), TREADLE_STATE, "nothing is");
    assert_ok(treadle_switch_to_train(o.sw));
    assert_version(&r, version, false);
    assert_answer(reader_do(&r, READER_HOLD), TREADLE_STATE, "no version is in the window");
  }
  assert_answer(reader_do(&r, READER_DETACH), TREADLE_OK, NULL);
  owner_release(&o);
  reader_end(&r);
}

static void test_versions(void **state) {
  (void)state;
  read_through_versions("megatron:tp=1", (treadle_switch_options){0});
  read_through_versions("megatron:tp=1", (treadle_switch_options){.keep = TREADLE_KEEP_HOST});
  read_through_versions("megatron:tp=1", (treadle_switch_options){.offload_train_param = TREADLE_OFF});
  read_through_versions("hf",
                        (treadle_switch_options){.alias = true}); /* pages of both windows, moved tensors */
}

/* The reader's table of storage tensors is the plan's; here in one process. */
static void test_storages(void **state) {
  owner o;
  treadle_attached *attached;
  size_t bytes, wanted;
  (void)state;
  owner_init_with(&o, "hf", (treadle_switch_options){.alias = true});
  assert_ok(treadle_attach(o.handle, o.bytes, 10, &attached));
  const treadle_plan *plan = treadle_switch_plan(o.sw);
  int32_t count = treadle_layout_storage_count(o.infer, 0);
  assert_int_equal(treadle_attached_storage_count(attached), count);
  for (int32_t i = 0; i < count; i++) {
    treadle_storage_info a, b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    a.struct_size = b.struct_size = sizeof a;
    assert_ok(treadle_plan_storage(plan, i, &a));
    assert_ok(treadle_attached_storage(attached, i, &b));
    assert_string_equal(a.name, b.name);
    assert_memory_equal(&a.shape, &b.shape, sizeof a.shape);
    assert_int_equal(a.ndim, b.ndim);
    assert_int_equal(a.chunk, b.chunk);
    assert_int_equal(a.dtype, b.dtype);
    assert_int_equal(a.derived, b.derived);
    assert_int_equal(a.offset_bytes, b.offset_bytes);
    assert_int_equal(a.bytes, b.bytes);
    assert_int_equal(treadle_attached_find(attached, a.name), treadle_plan_find(plan, a.name));
  }
  assert_int_equal(treadle_attached_find(attached, "no such tensor"), -1);
  const char *window = treadle_attached_window(attached, &bytes);
  const char *own = treadle_switch_window(o.sw, TREADLE_INFER_PARAMS, &wanted);
  assert_int_equal(bytes, wanted);
  assert_ptr_not_equal(window, own);
  treadle_attached_info info = TREADLE_INIT(treadle_attached_info);
  treadle_attached_get_info(attached, &info);
  assert_int_equal(info.process, getpid());
  assert_int_equal(info.rank, 0);
  assert_int_equal(info.ranks, 1);
  assert_string_equal(info.layout, treadle_layout_text(o.infer));
  assert_int_equal(info.page_bytes, SCENE_PAGE);
  assert_true(info.alive && !info.valid);
  assert_true(info.memory.kind == TREADLE_MEMORY_HOST && info.memory.device == 0);
  assert_ok(treadle_switch_to_infer(o.sw));
  assert_memory_equal(window, own, bytes);
  treadle_detach(attached);
  owner_release(&o);
}

/* The reader's mapping cannot be written, and cannot be made so. */
static void test_read_only(void **state) {
  owner o;
  treadle_attached *attached;
  size_t bytes;
  (void)state;
  owner_init(&o, 10);
  assert_ok(treadle_attach(o.handle, o.bytes, 10, &attached));
  const void *window = treadle_attached_window(attached, &bytes);
  int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC); /* the kernel writes for us, or says EFAULT */
  assert_true(zero >= 0);
  struct iovec into = {.iov_base = (void *)(uintptr_t)window, .iov_len = 16};
  assert_int_equal(readv(zero, &into, 1), -1);
  assert_int_equal(errno, EFAULT);
  close(zero);
  assert_int_equal(mprotect((void *)(uintptr_t)window, SCENE_PAGE, PROT_READ | PROT_WRITE), -1);
  assert_int_equal(errno, EACCES);
  treadle_detach(attached);
  owner_release(&o);
}

/* ---- Holds ---- */

static void test_hold_refuses(void **state) {
  owner o;
  reader r = reader_start(), other = reader_start();
  char words[80];
  (void)state;
  owner_init(&o, 0.4);
  assert_answer(reader_attach(&r, o.handle, o.bytes), TREADLE_OK, NULL);
  assert_answer(reader_attach(&other, o.handle, o.bytes), TREADLE_OK, NULL);
  assert_ok(treadle_switch_to_infer(o.sw));
  uint64_t sum = owner_sum(&o), digest, after;
  assert_ok(treadle_switch_digest(o.sw, &digest));
  assert_answer(reader_do(&r, READER_HOLD), TREADLE_OK, NULL);
  snprintf(words, sizeof words, "process %d has held version 1", (int)r.process);
  for (int i = 0; i < 2; i++) {
    double begin = treadle_clock_seconds();
    assert_fails(TREADLE_TIMEOUT, words, treadle_switch_to_train(o.sw));
    assert_in_range((int64_t)((treadle_clock_seconds() - begin) * 1e3), 400, 10000);
    assert_int_equal(treadle_switch_mode(o.sw), TREADLE_INFER);
    assert_version(&r, 1, true);
    assert_int_equal(reader_do(&r, READER_SUM).sum, sum);
    assert_ok(treadle_switch_digest(o.sw, &after));
    assert_int_equal(after, digest);
  }
  assert_answer(reader_do(&other, READER_HOLD), TREADLE_OK, NULL); /* it is valid again */
  assert_answer(reader_do_version(&r, READER_RELEASE, 1, 0), TREADLE_OK, NULL);
  snprintf(words, sizeof words, "process %d has held version 1", (int)other.process);
  assert_fails(TREADLE_TIMEOUT, words, treadle_switch_to_forward(o.sw));
  assert_answer(reader_do(&other, READER_DETACH), TREADLE_OK, NULL); /* which releases */
  assert_ok(treadle_switch_to_train(o.sw));
  assert_true(scene_holds(o.train, 0, treadle_switch_train_window(o.sw)));
  owner_release(&o);
  reader_end(&r);
  reader_end(&other);
}

/* The arrow goes on when the hold is let go; a new hold comes too late meanwhile. */
static void test_hold_released(void **state) {
  owner o;
  bool done = false;
  reader r = reader_start(), other = reader_start();
  (void)state;
  owner_init(&o, 20);
  assert_answer(reader_attach(&r, o.handle, o.bytes), TREADLE_OK, NULL);
  assert_answer(reader_attach(&other, o.handle, o.bytes), TREADLE_OK, NULL);
  assert_ok(treadle_switch_to_infer(o.sw));
  assert_answer(reader_do(&r, READER_HOLD), TREADLE_OK, NULL);
  assert_ok(treadle_switch_start(o.sw, TREADLE_TRAIN));
  while (reader_do(&other, READER_LOOK).valid) {
  }
  assert_answer(reader_do(&other, READER_HOLD), TREADLE_STATE, "no version is in the window");
  assert_answer(reader_do(&r, READER_HOLD), TREADLE_STATE, "the owner waits for it to be released");
  assert_fails(TREADLE_STATE, "a switch is running",
               treadle_switch_handle(o.sw, TREADLE_INFER_PARAMS, o.handle, sizeof o.handle, &o.bytes));
  assert_ok(treadle_switch_test(o.sw, &done));
  assert_false(done);
  double begin = treadle_clock_seconds();
  assert_answer(reader_do_version(&r, READER_RELEASE, 1, 0), TREADLE_OK, NULL);
  assert_ok(treadle_switch_wait(o.sw));
  assert_true(treadle_clock_seconds() - begin < 2);
  owner_release(&o);
  reader_end(&r);
  reader_end(&other);
}

/* Killed, and nobody has waited for it: a process that has ended holds nothing. One that is stopped does. */
static void test_killed(void **state) {
  owner o;
  reader r = reader_start(), stopped = reader_start();
  char words[40];
  (void)state;
  owner_init(&o, 0.5);
  assert_answer(reader_attach(&r, o.handle, o.bytes), TREADLE_OK, NULL);
  assert_answer(reader_attach(&stopped, o.handle, o.bytes), TREADLE_OK, NULL);
  assert_ok(treadle_switch_to_infer(o.sw));
  assert_answer(reader_do(&r, READER_HOLD), TREADLE_OK, NULL);
  assert_answer(reader_do(&stopped, READER_HOLD), TREADLE_OK, NULL);
  kill(r.process, SIGKILL);
  kill(stopped.process, SIGSTOP);
  snprintf(words, sizeof words, "process %d has held", (int)stopped.process);
  assert_fails(TREADLE_TIMEOUT, words, treadle_switch_to_train(o.sw));
  assert_ok(treadle_switch_start(o.sw, TREADLE_TRAIN));
  double begin = treadle_clock_seconds();
  kill(stopped.process, SIGKILL);
  assert_ok(treadle_switch_wait(o.sw));
  double seconds = treadle_clock_seconds() - begin;
  print_message("a killed holder was dropped after %.0f ms\n", seconds * 1e3);
  assert_true(seconds < 1);
  owner_release(&o);
  reader_end(&r);
  reader_end(&stopped);
}

/* A child of a reader has no hold of its parent's; one that ends with a hold leaves none. */
static void test_child_of_reader(void **state) {
  owner o;
  reader r = reader_start();
  (void)state;
  owner_init(&o, 0.3);
  assert_answer(reader_attach(&r, o.handle, o.bytes), TREADLE_OK, NULL);
  assert_ok(treadle_switch_to_infer(o.sw));
  assert_answer(reader_do(&r, READER_HOLD), TREADLE_OK, NULL);
  assert_answer(reader_do_version(&r, READER_CHILD_HOLDS, 1, 0), TREADLE_OK, NULL);
  assert_fails(TREADLE_TIMEOUT, "has held version 1", treadle_switch_to_train(o.sw)); /* the parent */
  assert_answer(reader_do_version(&r, READER_RELEASE, 1, 0), TREADLE_OK, NULL);
  assert_ok(treadle_switch_to_train(o.sw));
  owner_release(&o);
  reader_end(&r);
}

/* All places are taken, by objects of this process and by a reader; a dead one's is taken over. */
static void test_full(void **state) {
  owner o;
  treadle_attached *attached[TREADLE_HOLDS];
  uint64_t version;
  reader r = reader_start();
  (void)state;
  owner_init(&o, 0.3);
  assert_answer(reader_attach(&r, o.handle, o.bytes), TREADLE_OK, NULL);
  assert_ok(treadle_switch_to_infer(o.sw));
  assert_answer(reader_do(&r, READER_HOLD), TREADLE_OK, NULL);
  for (int i = 0; i < TREADLE_HOLDS; i++) {
    assert_ok(treadle_attach(o.handle, o.bytes, 10, &attached[i]));
    if (i == TREADLE_HOLDS - 1) break;
    assert_ok(treadle_attached_hold(attached[i], &version));
    assert_ok(treadle_attached_hold(attached[i], &version)); /* twice is one place */
  }
  treadle_attached *last = attached[TREADLE_HOLDS - 1];
  assert_fails(TREADLE_STATE, "64 processes hold", treadle_attached_hold(last, &version));
  kill(r.process, SIGKILL);
  while (treadle_attached_hold(last, &version) != TREADLE_OK) usleep(1000);
  assert_fails(TREADLE_TIMEOUT, "are held", treadle_switch_to_train(o.sw));
  for (int i = 0; i < TREADLE_HOLDS; i++) treadle_detach(attached[i]);
  assert_ok(treadle_switch_to_train(o.sw));
  owner_release(&o);
  reader_end(&r);
}

/* ---- The end of the owner ---- */

/* The switch is destroyed, or its handles alone are withdrawn; for readers that is the same. */
static void end_owner(bool destroys) {
  owner o;
  reader r = reader_start(), late = reader_start();
  owner_init(&o, 20);
  assert_answer(reader_attach(&r, o.handle, o.bytes), TREADLE_OK, NULL);
  assert_ok(treadle_switch_to_infer(o.sw));
  assert_answer(reader_do(&r, READER_HOLD), TREADLE_OK, NULL);
  uint64_t sum = owner_sum(&o);
  reader_question wait = {.order = READER_WAIT, .version = 2, .seconds = 10};
  reader_ask(&r, &wait);
  if (destroys) {
    treadle_switch_destroy(o.sw);
    o.sw = NULL;
  } else {
    assert_ok(treadle_switch_withdraw(o.sw));
    assert_ok(treadle_switch_withdraw(o.sw));
  }
  reader_answer answer = reader_hear(&r);
  assert_answer(answer, TREADLE_PEER, "has destroyed its switch");
  assert_true(answer.seconds < 5);
  assert_version(&r, 1, false);
  assert_int_equal(reader_do(&r, READER_SUM).sum, sum);
  assert_answer(reader_do_version(&r, READER_RELEASE, 1, 0), TREADLE_OK, NULL);
  assert_answer(reader_do(&r, READER_HOLD), TREADLE_PEER, "has destroyed its switch");
  assert_answer(reader_attach(&late, o.handle, o.bytes), TREADLE_PEER, "has destroyed the switch");
  assert_answer(reader_do(&r, READER_DETACH), TREADLE_OK, NULL);
  if (!destroys) { /* it goes on, and may make another handle */
    assert_ok(treadle_switch_to_train(o.sw));
    assert_ok(treadle_switch_handle(o.sw, TREADLE_INFER_PARAMS, o.handle, sizeof o.handle, &o.bytes));
    assert_ok(treadle_switch_to_infer(o.sw));
    assert_answer(reader_attach(&late, o.handle, o.bytes), TREADLE_OK, NULL);
    assert_version(&late, 2, true);
  }
  owner_release(&o);
  reader_end(&r);
  reader_end(&late);
}

static void test_destroy(void **state) {
  (void)state;
  end_owner(true);
  end_owner(false);
}

/* An owner that is a process of its own: makes a handle, says it, and waits to be killed. */
static pid_t start_owner(int *from_p) {
  int pipes[2];
  assert_int_equal(pipe(pipes), 0);
  fflush(NULL);
  pid_t process = fork();
  if (process == 0) {
    owner o;
    owner_init(&o, 20);
    if (treadle_switch_to_infer(o.sw) == TREADLE_OK &&
        write(pipes[1], o.handle, o.bytes) == (ssize_t)o.bytes)
      for (;;) pause();
    _exit(1);
  }
  close(pipes[1]);
  *from_p = pipes[0];
  return process;
}

static void test_owner_killed(void **state) {
  int from;
  char handle[TREADLE_HANDLE_BYTES];
  uint64_t version, none;
  size_t bytes;
  treadle_attached *attached, *late;
  (void)state;
  pid_t process = start_owner(&from);
  ssize_t got = read(from, handle, sizeof handle);
  assert_true(got > 0);
  assert_ok(treadle_attach(handle, (size_t)got, 10, &attached));
  const void *window = treadle_attached_window(attached, &bytes);
  assert_ok(treadle_attached_hold(attached, &version));
  uint64_t sum = treadle_hash_bytes(window, bytes, 0);
  assert_true(treadle_attached_is_valid(attached));
  kill(process, SIGKILL);
  double begin = treadle_clock_seconds();
  assert_fails(TREADLE_PEER, "has died", treadle_attached_wait(attached, 2, 20, NULL, NULL));
  assert_true(treadle_clock_seconds() - begin < 1);
  assert_false(treadle_attached_is_valid(attached));
  assert_int_equal(treadle_hash_bytes(window, bytes, 0), sum);
  assert_fails(TREADLE_PEER, "has ended", treadle_attach(handle, (size_t)got, 10, &late));
  assert_null(late);
  assert_fails(TREADLE_PEER, "has died", treadle_attached_hold(attached, &none));
  assert_int_equal(none, 0);
  assert_ok(treadle_attached_release(attached, version));
  waitpid(process, NULL, 0);
  assert_fails(TREADLE_PEER, "has ended", treadle_attach(handle, (size_t)got, 10, &late));
  treadle_detach(attached);
  close(from);
}

/* A child of the owner that ends its copy of the switch says nothing to the readers. */
static void test_child_of_owner(void **state) {
  owner o;
  int how;
  reader r = reader_start();
  (void)state;
  owner_init(&o, 20);
  assert_answer(reader_attach(&r, o.handle, o.bytes), TREADLE_OK, NULL);
  assert_ok(treadle_switch_to_infer(o.sw));
  pid_t child = fork();
  if (child == 0) {
    treadle_switch_destroy(o.sw);
    _exit(0);
  }
  assert_int_equal(waitpid(child, &how, 0), child);
  assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 0);
  assert_version(&r, 1, true);
  assert_answer(reader_do(&r, READER_DETACH), TREADLE_OK, NULL);
  assert_answer(reader_attach(&r, o.handle, o.bytes), TREADLE_OK, NULL);
  child = fork(); /* has the socket, too, and lives longer than the switch */
  if (child == 0)
    for (;;) pause();
  treadle_switch_destroy(o.sw);
  o.sw = NULL;
  assert_answer(reader_do(&r, READER_DETACH), TREADLE_OK, NULL);
  assert_answer(reader_attach(&r, o.handle, o.bytes), TREADLE_PEER, "has destroyed the switch");
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  owner_release(&o);
  reader_end(&r);
}

/* ---- Memory that is out ---- */

static treadle_status give_and_attach(owner *o) {
  treadle_status status = TREADLE_OK;
  treadle_attached *attached = NULL;
  char handle[TREADLE_HANDLE_BYTES];
  size_t bytes;
  treadle_outlet_release(o->sw); /* so that it is made again */
  TRY(treadle_switch_handle(o->sw, TREADLE_INFER_PARAMS, handle, sizeof handle, &bytes));
  TRY(treadle_attach(handle, bytes, 10, &attached));
out:
  treadle_detach(attached);
  return status;
}

static void test_no_memory(void **state) {
  owner o;
  (void)state;
  owner_init(&o, 20);
  treadle_outlet_release(o.sw);
  int files = test_open_files();
  TEST_EACH_ALLOCATION(give_and_attach(&o));
  treadle_outlet_release(o.sw); /* also ends connections that its thread has answered */
  assert_int_equal(test_open_files(), files);
  owner_release(&o);
}

/* ---- Cancelling, strangers ---- */

static bool third_time(void *context, const char *doing, int64_t done, int64_t total) {
  int *calls = context;
  assert_string_equal(doing, "waiting for a version");
  assert_int_equal(done, 0);
  assert_int_equal(total, 7);
  return ++*calls < 3;
}

static void test_watch(void **state) {
  owner o;
  treadle_attached *attached;
  int calls = 0;
  (void)state;
  owner_init(&o, 20);
  assert_ok(treadle_attach(o.handle, o.bytes, 10, &attached));
  double begin = treadle_clock_seconds();
  assert_fails(TREADLE_CANCELLED, "before version 7",
               treadle_attached_wait(attached, 7, 20, third_time, &calls));
  assert_int_equal(calls, 3);
  assert_true(treadle_clock_seconds() - begin < 2);
  treadle_detach(attached);
  owner_release(&o);
}

/* Connections that say nothing, or something else, and close at once: a reader comes through all the same. */
static void test_strangers(void **state) {
  enum { SILENT = 40 };
  owner o;
  treadle_attached *attached;
  int sockets[SILENT];
  struct sockaddr_un address;
  treadle_handle h;
  (void)state;
  owner_init(&o, 20);
  assert_ok(treadle_handle_check(o.handle, o.bytes, &h));
  socklen_t length = treadle_service_address(h.name, &address);
  for (int i = 0; i < SILENT; i++) {
    sockets[i] = treadle_shm_socket();
    assert_true(sockets[i] >= 0);
    while (connect(sockets[i], (struct sockaddr *)&address, length) != 0) assert_int_equal(errno, EAGAIN);
    if (i % 4 == 1) assert_int_equal(send(sockets[i], "?", 1, MSG_NOSIGNAL), 1);
    if (i % 4 == 2) close(sockets[i]);
  }
  double begin = treadle_clock_seconds();
  assert_ok(treadle_attach(o.handle, o.bytes, 10, &attached));
  assert_true(treadle_clock_seconds() - begin < 1);
  treadle_detach(attached);
  for (int i = 0; i < SILENT; i++)
    if (i % 4 != 2) close(sockets[i]);
  assert_ok(treadle_attach(o.handle, o.bytes, 10, &attached));
  treadle_detach(attached);
  owner_release(&o);
}

/* A hello with another handle's sum, and one that calls itself another process, hear why not. */
static void test_wrong_hello(void **state) {
  owner o;
  treadle_handle h;
  struct sockaddr_un address;
  (void)state;
  owner_init(&o, 20);
  assert_ok(treadle_handle_check(o.handle, o.bytes, &h));
  socklen_t length = treadle_service_address(h.name, &address);
  for (int i = 0; i < 3; i++) {
    static const char *const words[] = {"another handle", "process namespace", "speaks version 9"};
    treadle_service_message hello = {.magic = TREADLE_SERVICE_MAGIC,
                                     .version = i == 2 ? 9 : TREADLE_SERVICE_VERSION,
                                     .process = i == 1 ? 1 : (int32_t)getpid(),
                                     .sum = h.sum + (i == 0)};
    treadle_service_answer answer;
    int socket = treadle_shm_socket(), files[2], count = 2;
    assert_int_equal(connect(socket, (struct sockaddr *)&address, length), 0);
    double deadline = treadle_clock_seconds() + 10;
    assert_ok(treadle_shm_send(socket, &hello, sizeof hello, NULL, 0, deadline, "the owner"));
    assert_ok(treadle_shm_receive(socket, &answer, sizeof answer, files, &count, deadline, "the owner"));
    assert_int_equal(count, 0);
    assert_int_equal(answer.status, TREADLE_REFUSED);
    assert_non_null(strstr(answer.text, words[i]));
    close(socket);
  }
  owner_release(&o);
}

/* ---- What is refused ---- */

static void test_refused(void **state) {
  owner o;
  char handle[TREADLE_HANDLE_BYTES];
  size_t bytes = 7;
  (void)state;
  owner_init(&o, 20);
  for (int c = 0; c < TREADLE_CLASSES; c++)
    if (c != TREADLE_INFER_PARAMS) {
      assert_refused("only infer parameters have handles",
                     treadle_switch_handle(o.sw, (treadle_class)c, handle, sizeof handle, &bytes));
      assert_int_equal(bytes, 0);
    }
  assert_refused("there is room for 100",
                 treadle_switch_handle(o.sw, TREADLE_INFER_PARAMS, handle, 100, &bytes));
  assert_ok(treadle_switch_handle(o.sw, TREADLE_INFER_PARAMS, handle, sizeof handle, &bytes));
  assert_int_equal(bytes, o.bytes);
  assert_memory_equal(handle, o.handle, bytes); /* the same each time */
  owner_release(&o);
}

static treadle_status bind_nothing(void *context, void *window, size_t bytes) {
  (void)context, (void)window, (void)bytes;
  return TREADLE_OK;
}

static void test_transforms(void **state) {
  scene s;
  treadle_layout *train, *infer;
  treadle_group *group;
  treadle_switch *sw;
  char handle[TREADLE_HANDLE_BYTES];
  size_t bytes;
  (void)state;
  scene_init(&s);
  const treadle_engine_hooks hooks = {
      .struct_size = sizeof hooks, .bind = bind_nothing, .transforms = true};
  const treadle_switch_options options = {
      .struct_size = sizeof options, .page_bytes = SCENE_PAGE, .keep = TREADLE_KEEP_HOST, .engine = &hooks};
  assert_ok(treadle_layout_create(s.model, "megatron:tp=1", 1, NULL, &train));
  assert_ok(treadle_layout_create(s.model, "vllm:tp=1", 1, NULL, &infer));
  assert_ok(treadle_group_self(&group));
  assert_ok(treadle_switch_create(group, train, infer, &options, &sw));
  assert_refused("changes the weights in its window",
                 treadle_switch_handle(sw, TREADLE_INFER_PARAMS, handle, sizeof handle, &bytes));
  treadle_switch_destroy(sw);
  treadle_group_close(group);
  treadle_layout_destroy(train);
  treadle_layout_destroy(infer);
  scene_release(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_versions),        cmocka_unit_test(test_storages),
      cmocka_unit_test(test_read_only),       cmocka_unit_test(test_hold_refuses),
      cmocka_unit_test(test_hold_released),   cmocka_unit_test(test_killed),
      cmocka_unit_test(test_child_of_reader), cmocka_unit_test(test_full),
      cmocka_unit_test(test_destroy),         cmocka_unit_test(test_owner_killed),
      cmocka_unit_test(test_child_of_owner),  cmocka_unit_test(test_watch),
      cmocka_unit_test(test_strangers),       cmocka_unit_test(test_wrong_hello),
      cmocka_unit_test(test_refused),         cmocka_unit_test(test_no_memory),
      cmocka_unit_test(test_transforms),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
