/* Handles that are none: cut, altered, of other formats, other places and dead processes, and such as say what cannot be with a sum
 * that is right. Each is refused, says why, and leaves nothing. */
#include "attach/handle.h"
#include "test.h"

#include "base/hash.h"
#include "group/shm.h"
#include "treadle_attach.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* A good one in all but its socket. */
static treadle_handle make(void) {
  treadle_handle h;
  memset(&h, 0, sizeof h);
  assert_ok(treadle_handle_here(&h));
  h.process = (int32_t)getpid();
  h.start_time = treadle_shm_start_time(getpid());
  h.which = TREADLE_INFER_PARAMS;
  h.rank = 1;
  h.ranks = 2;
  h.name[0] = 12345;
  h.name[1] = (uint64_t)getpid();
  h.page_bytes = 4096;
  h.pages = 3;
  h.pool_pages = 10;
  h.window_bytes = 3 * 4096 - 5;
  h.sheet_bytes = treadle_sheet_size(2, h.pages);
  treadle_handle_seal(&h);
  return h;
}

static void assert_none(const treadle_handle *h, size_t bytes, treadle_status status, const char *part) {
  treadle_attached *attached = (treadle_attached *)(uintptr_t)1;
  int files = test_open_files();
  assert_fails(status, part, treadle_attach(h, bytes, 5, &attached));
  assert_null(attached);
  assert_int_equal(test_open_files(), files);
}

static void test_cut(void **state) {
  treadle_handle h = make();
  char longer[sizeof h + 8] = "";
  (void)state;
  for (size_t bytes = 0; bytes < sizeof h; bytes++) assert_none(&h, bytes, TREADLE_REFUSED, "was cut");
  memcpy(longer, &h, sizeof h);
  assert_none((const treadle_handle *)(const void *)longer, sizeof h + 1, TREADLE_REFUSED, "bytes, and");
}

static void test_altered(void **state) {
  const treadle_handle good = make();
  (void)state;
  for (size_t bit = 0; bit < sizeof good * 8; bit++) {
    treadle_handle h = good;
    ((unsigned char *)&h)[bit / 8] ^= (unsigned char)(1 << bit % 8);
    size_t at = bit / 8;
    assert_none(&h, sizeof h, TREADLE_REFUSED,
                at < offsetof(treadle_handle, format)    ? "not a handle of treadle"
                : at < offsetof(treadle_handle, bytes)   ? "made it"
                : at < offsetof(treadle_handle, library) ? "bytes"
                                                         : "was altered");
  }
}

static void test_formats(void **state) {
  treadle_handle h = make();
  (void)state;
  h.format = 0;
  assert_none(&h, sizeof h, TREADLE_REFUSED,
              "has format 0; this library (version " TREADLE_VERSION ") has format 3: an older");
  h.format = 4;
  assert_none(&h, sizeof h, TREADLE_REFUSED,
              "has format 4; this library (version " TREADLE_VERSION ") has format 3: a newer");
}

/* With the sum that it should have. */
#define ASSERT_IMPOSSIBLE(change)                                                                          \
  do {                                                                                                     \
    treadle_handle h = make();                                                                             \
    change;                                                                                                \
    treadle_handle_seal(&h);                                                                               \
    assert_none(&h, sizeof h, TREADLE_REFUSED, "says what cannot be");                                     \
  } while (0)

static void test_impossible(void **state) {
  static const int64_t sizes[] = {-1, INT64_MIN, INT64_MAX, INT64_MAX - 4095, (int64_t)1 << 61};
  (void)state;
  for (size_t i = 0; i < TEST_COUNT(sizes); i++) {
    ASSERT_IMPOSSIBLE(h.page_bytes = sizes[i]);
    ASSERT_IMPOSSIBLE(h.pages = sizes[i]);
    ASSERT_IMPOSSIBLE(h.pool_pages = sizes[i]);
    ASSERT_IMPOSSIBLE(h.window_bytes = sizes[i]);
    ASSERT_IMPOSSIBLE(h.sheet_bytes = sizes[i]);
  }
  ASSERT_IMPOSSIBLE(h.page_bytes = 0);
  ASSERT_IMPOSSIBLE(h.page_bytes = 2048);
  ASSERT_IMPOSSIBLE(h.page_bytes = 4097);
  ASSERT_IMPOSSIBLE(h.page_bytes = (int64_t)1 << 60);
  ASSERT_IMPOSSIBLE(h.pages = 11); /* more than the pool */
  ASSERT_IMPOSSIBLE(h.window_bytes = 3 * 4096 + 1);
  ASSERT_IMPOSSIBLE(h.window_bytes = 2 * 4096); /* of two pages, not three */
  ASSERT_IMPOSSIBLE(h.sheet_bytes = treadle_sheet_size(0, 3) - 1);
  ASSERT_IMPOSSIBLE(h.pages = h.pool_pages = (int64_t)INT32_MAX + 1);
  ASSERT_IMPOSSIBLE(h.which = TREADLE_CLASSES);
  ASSERT_IMPOSSIBLE(h.which = UINT32_MAX);
  ASSERT_IMPOSSIBLE(h.rank = -1);
  ASSERT_IMPOSSIBLE(h.rank = 2);
  ASSERT_IMPOSSIBLE(h.ranks = 0);
  ASSERT_IMPOSSIBLE(h.process = 0);
  ASSERT_IMPOSSIBLE(h.process = -1); /* kill(-1) and waitpid(-1) mean everybody */
  ASSERT_IMPOSSIBLE(h.process = INT32_MIN);
  ASSERT_IMPOSSIBLE(h.process = INT32_MAX);
  ASSERT_IMPOSSIBLE(h.start_time = 0);
}

static void test_elsewhere(void **state) {
  treadle_handle h = make();
  (void)state;
  h.machine[3] ^= 1;
  treadle_handle_seal(&h);
  assert_none(&h, sizeof h, TREADLE_REFUSED, "another machine");
  h = make();
  h.process_space++;
  treadle_handle_seal(&h);
  assert_none(&h, sizeof h, TREADLE_REFUSED, "another process namespace");
  h = make();
  h.user += 7;
  treadle_handle_seal(&h);
  assert_none(&h, sizeof h, TREADLE_REFUSED, "this process is one of user");
}

static void test_dead(void **state) {
  treadle_handle h = make();
  (void)state;
  assert_none(&h, sizeof h, TREADLE_PEER, "has destroyed the switch"); /* nobody listens under that name */
  h.start_time--;                                                      /* the number was used again */
  treadle_handle_seal(&h);
  assert_none(&h, sizeof h, TREADLE_PEER, "has ended");
  pid_t child = fork();
  if (child == 0) _exit(0);
  h.process = (int32_t)child;
  h.start_time = treadle_shm_start_time(child);
  treadle_handle_seal(&h);
  siginfo_t how;
  assert_int_equal(waitid(P_PID, (id_t)child, &how, WEXITED | WNOWAIT), 0);
  assert_none(&h, sizeof h, TREADLE_PEER, "has ended"); /* a zombie */
  waitpid(child, NULL, 0);
  assert_none(&h, sizeof h, TREADLE_PEER, "has ended");
}

/* Somebody else of this user has taken the name of the socket. */
static void test_taken_name(void **state) {
  treadle_handle h = make();
  struct sockaddr_un address;
  int ready[2], socket = treadle_shm_socket();
  char byte = 0;
  (void)state;
  assert_int_equal(pipe(ready), 0);
  socklen_t length = treadle_service_address(h.name, &address);
  pid_t child = fork();
  if (child == 0) {
    bool good = bind(socket, (struct sockaddr *)&address, length) == 0 && listen(socket, 5) == 0;
    if (!good || write(ready[1], &byte, 1) != 1) _exit(1);
    for (;;) pause();
  }
  close(ready[1]);
  assert_int_equal(read(ready[0], &byte, 1), 1);
  assert_none(&h, sizeof h, TREADLE_REFUSED, "the socket of the handle belongs to process");
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  close(ready[0]);
  close(socket);
}

/* The owner listens and says nothing, or something else. */
static void test_mute_owner(void **state) {
  treadle_handle h = make();
  struct sockaddr_un address;
  treadle_attached *attached;
  int socket = treadle_shm_socket();
  (void)state;
  socklen_t length = treadle_service_address(h.name, &address);
  assert_int_equal(bind(socket, (struct sockaddr *)&address, length), 0);
  assert_int_equal(listen(socket, 1), 0);
  assert_fails(TREADLE_TIMEOUT, "no word from", treadle_attach(&h, sizeof h, 0.2, &attached));
  assert_fails(TREADLE_TIMEOUT, "", treadle_attach(&h, sizeof h, 0.2, &attached));
  assert_fails(TREADLE_TIMEOUT, "",
               treadle_attach(&h, sizeof h, 0.2, &attached)); /* the queue is full by now */
  close(socket);
}

/* An owner whose sheet says what cannot be: readers would read beyond the window. */
static void with_sheet(int32_t ndim, int64_t rows, int32_t dtype, int64_t offset, int64_t bytes,
                       bool good) {
  treadle_handle h = make();
  treadle_pool *pool;
  treadle_service *service;
  treadle_attached *attached;
  const int file = memfd_create("sheet", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  assert_ok(treadle_pool_create(h.pool_pages, h.page_bytes, h.pool_pages * h.page_bytes, &pool));
  h.sheet_bytes = treadle_sheet_size(1, h.pages);
  assert_int_equal(ftruncate(file, h.sheet_bytes), 0);
  assert_int_equal(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  treadle_sheet *sheet = mmap(NULL, (size_t)h.sheet_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  assert_true(sheet != MAP_FAILED);
  sheet->magic = TREADLE_SHEET_MAGIC;
  sheet->format = TREADLE_HANDLE_FORMAT;
  sheet->storages = 1;
  *treadle_sheet_storages(sheet) = (treadle_sheet_storage){.name = "w",
                                                           .ndim = ndim,
                                                           .dtype = dtype,
                                                           .shape = {rows, 3, 5, INT64_MAX},
                                                           .offset_bytes = offset,
                                                           .bytes = bytes};
  for (int i = 0; i < h.pages; i++) treadle_sheet_table(sheet)[i] = i;
  int before =
      test_open_files(); /* the owner is this process, too: what it has open counts when it has stopped */
  const treadle_service_files files = {file, treadle_device_host(), pool};
  assert_ok(treadle_service_start(&files, h.name, &service));
  treadle_handle_seal(&h);
  treadle_service_expect(service, h.sum);
  if (good) {
    assert_ok(treadle_attach(&h, sizeof h, 5, &attached));
    treadle_detach(attached);
  } else {
    assert_fails(TREADLE_PEER, "storage tensor 0 of process", treadle_attach(&h, sizeof h, 5, &attached));
    assert_null(attached);
  }
  treadle_service_stop(service);
  assert_int_equal(test_open_files(), before);
  munmap(sheet, (size_t)h.sheet_bytes);
  close(file);
  treadle_pool_destroy(pool);
}

static void test_sheet(void **state) {
  (void)state;
  with_sheet(2, 7, TREADLE_BF16, 64, 42, true);
  with_sheet(2, 0, TREADLE_BF16, 64, 0, true);
  with_sheet(2, 8, TREADLE_BF16, 64, 42, false); /* more than its bytes */
  with_sheet(2, 7, TREADLE_FP32, 64, 42, false);
  with_sheet(2, 7, TREADLE_DTYPE_NONE, 64, 42, false);
  with_sheet(2, 7, 77, 64, 42, false);
  with_sheet(2, -7, TREADLE_BF16, 64, 42, false);
  with_sheet(5, 7, TREADLE_BF16, 64, 42, false);
  with_sheet(4, 7, TREADLE_BF16, 64, 42, false);
  with_sheet(2, 7, TREADLE_BF16, -2, 42, false);
  with_sheet(2, 7, TREADLE_BF16, 3 * 4096 - 46, 42, false); /* the window ends 5 bytes before the page */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_cut),        cmocka_unit_test(test_altered),    cmocka_unit_test(test_formats),
      cmocka_unit_test(test_impossible), cmocka_unit_test(test_elsewhere),  cmocka_unit_test(test_dead),
      cmocka_unit_test(test_taken_name), cmocka_unit_test(test_mute_owner), cmocka_unit_test(test_sheet),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
