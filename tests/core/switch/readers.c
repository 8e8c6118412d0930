/* Readers of handles as processes. */
#include "switch/readers.h"

#include "base/clock.h"
#include "base/hash.h"
#include "memory/device.h"
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

static size_t resident_bytes(void) {
  long pages = 0, ignored;
  FILE *file = fopen("/proc/self/statm", "re");
  if (file && fscanf(file, "%ld %ld", &ignored, &pages) != 2) pages = 0;
  if (file) fclose(file);
  return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- In the reader ---- */

static treadle_status child_holds(treadle_attached *attached, uint64_t version) {
  int how;
  pid_t child = fork();
  if (child == 0) {
    bool good = treadle_attached_release(attached, version) == TREADLE_STATE && /* it is the parent's */
                treadle_attached_hold(attached, &version) == TREADLE_OK;
    _exit(good ? 0 : 1);
  }
  if (child < 0 || waitpid(child, &how, 0) != child) return TREADLE_SYSTEM;
  return WIFEXITED(how) && WEXITSTATUS(how) == 0 ? TREADLE_OK : TREADLE_DIFFERENT;
}

/* The bytes are read by the device that they lie on. */
static treadle_status sum_of(const void *window, size_t bytes, uint64_t *sum_p) {
  const treadle_device *device = treadle_device_at(window);
  char *copy = malloc(bytes + 1);
  if (!copy) return TREADLE_NO_MEMORY;
  device->ops->move(device, copy, window, bytes);
  const treadle_status status = device->ops->fence(device);
  *sum_p = treadle_hash_bytes(copy, bytes, 0);
  free(copy);
  return status;
}

static treadle_status obey(const reader_question *q, treadle_attached **attached_p, reader_answer *answer) {
  const void *window;
  size_t bytes;
  treadle_attached *attached = *attached_p;
  switch (q->order) {
  case READER_ATTACH: return treadle_attach(q->handle, q->bytes, 10, attached_p);
  case READER_DETACH:
    treadle_detach(attached);
    *attached_p = NULL;
    return TREADLE_OK;
  case READER_LOOK:
    answer->version = treadle_attached_version(attached);
    answer->valid = treadle_attached_is_valid(attached);
    answer->resident = resident_bytes();
    return TREADLE_OK;
  case READER_WAIT: return treadle_attached_wait(attached, q->version, q->seconds, NULL, NULL);
  case READER_HOLD: return treadle_attached_hold(attached, &answer->version);
  case READER_RELEASE: return treadle_attached_release(attached, q->version);
  case READER_SUM:
    window = treadle_attached_window(attached, &bytes);
    return sum_of(window, bytes, &answer->sum);
  case READER_CHILD_HOLDS: return child_holds(attached, q->version);
  case READER_END: break;
  }
  return TREADLE_OK;
}

static void serve(int from, int to) {
  treadle_attached *attached = NULL;
  reader_question q;
  while (read(from, &q, sizeof q) == (ssize_t)sizeof q && q.order != READER_END) {
    reader_answer answer;
    memset(&answer, 0, sizeof answer);
    double begin = treadle_clock_seconds();
    answer.status = obey(&q, &attached, &answer);
    answer.seconds = treadle_clock_seconds() - begin;
    if (answer.status != TREADLE_OK)
      snprintf(answer.message, sizeof answer.message, "%s", treadle_error_message());
    if (write(to, &answer, sizeof answer) != (ssize_t)sizeof answer) break;
  }
  treadle_detach(attached);
}

/* ---- In the test ---- */

reader reader_start(void) {
  int there[2], back[2];
  signal(SIGPIPE, SIG_IGN); /* a reader may die */
  assert_int_equal(pipe(there), 0);
  assert_int_equal(pipe(back), 0);
  fflush(NULL);
  reader r = {fork(), there[1], back[0]};
  assert_true(r.process >= 0);
  if (r.process == 0) {
    close(there[1]);
    close(back[0]);
    serve(there[0], back[1]);
    _exit(0);
  }
  close(there[0]);
  close(back[1]);
  return r;
}

void reader_ask(reader *r, const reader_question *question) {
  assert_int_equal(write(r->to, question, sizeof *question), sizeof *question);
}

reader_answer reader_hear(reader *r) {
  reader_answer answer;
  assert_int_equal(read(r->from, &answer, sizeof answer), sizeof answer);
  return answer;
}

reader_answer reader_do_version(reader *r, reader_order order, uint64_t version, double seconds) {
  reader_question q;
  memset(&q, 0, sizeof q);
  q.order = order;
  q.version = version;
  q.seconds = seconds;
  reader_ask(r, &q);
  return reader_hear(r);
}

reader_answer reader_do(reader *r, reader_order order) { return reader_do_version(r, order, 0, 10); }

reader_answer reader_attach(reader *r, const void *handle, size_t bytes) {
  reader_question q;
  memset(&q, 0, sizeof q);
  q.bytes = bytes;
  memcpy(q.handle, handle, bytes);
  reader_ask(r, &q);
  return reader_hear(r);
}

void reader_end(reader *r) {
  static const reader_question end = {.order = READER_END};
  ssize_t written = write(r->to, &end, sizeof end);
  (void)written; /* it may be dead */
  close(r->to);
  close(r->from);
  kill(r->process, SIGCONT);
  while (waitpid(r->process, NULL, 0) < 0 && errno == EINTR) {
  }
}
