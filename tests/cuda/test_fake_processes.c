/* tests/cuda/fake_*.c: the stand-in of the driver, among processes. The program starts itself as another one, with a part to play and a socket.
 * ctest: stage=gcc */
#include "cuda/fake_test.h"

#include "memory/kernel_cuda.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { BYTES = 16 * FAKE_PAGE };

/* ---- Other processes ---- */

typedef struct other {
  pid_t process;
  int socket;
} other;

static other begin(const char *part) {
  int sockets[2];
  char number[16];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
  const pid_t process = fork();
  assert_true(process >= 0);
  if (process == 0) {
    close(sockets[0]);
    snprintf(number, sizeof number, "%d", sockets[1]);
    execl("/proc/self/exe", "test_fake_processes", part, number, (char *)NULL);
    _exit(99);
  }
  close(sockets[1]);
  return (other){process, sockets[0]};
}

/* How it ended. */
static int finish(const other *o) {
  int status;
  assert_int_equal(waitpid(o->process, &status, 0), o->process);
  close(o->socket);
  return status;
}

static void assert_ended_well(const other *o) {
  const int status = finish(o);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void assert_killed_by(int signal, const other *o) {
  const int status = finish(o);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), signal);
}

static void say(int socket, char what) { assert_int_equal(write(socket, &what, 1), 1); }

static void hear(int socket, char what) {
  char heard = 0;
  assert_int_equal(read(socket, &heard, 1), 1);
  assert_int_equal(heard, what);
}

typedef union room {
  struct cmsghdr head;
  char bytes[CMSG_SPACE(sizeof(int))];
} room;

static void send_file(int socket, int file) {
  room r = {0};
  char byte = 'f';
  struct iovec data = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = &r, .msg_controllen = sizeof r};
  r.head = (struct cmsghdr){
      .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof file)};
  memcpy(CMSG_DATA(&r.head), &file, sizeof file);
  assert_int_equal(sendmsg(socket, &message, 0), 1);
  close(file);
}

static int receive_file(int socket) {
  room r = {0};
  char byte;
  int file;
  struct iovec data = {&byte, 1};
  struct msghdr message = {
      .msg_iov = &data, .msg_iovlen = 1, .msg_control = &r, .msg_controllen = sizeof r};
  assert_int_equal(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
  memcpy(&file, CMSG_DATA(&r.head), sizeof file);
  return file;
}

static int export_of(CUmemGenericAllocationHandle handle) {
  int file;
  assert_cuda(cuMemExportToShareableHandle(&file, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return file;
}

static CUresult import(CUmemGenericAllocationHandle *handle_p, int file) {
  return cuMemImportFromShareableHandle(handle_p, (void *)(intptr_t)file,
                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

static void assert_bytes(CUdeviceptr at, int value) {
  static char seen[BYTES], wanted[BYTES];
  memset(wanted, value, BYTES);
  assert_cuda(cuMemcpyDtoH_v2(seen, at, BYTES));
  assert_memory_equal(seen, wanted, BYTES);
}

static void set_bytes(CUdeviceptr at, int value) {
  assert_cuda(cuMemsetD8Async(at, (unsigned char)value, BYTES, NULL));
  assert_cuda(cuStreamSynchronize(NULL));
}

/* ---- Two processes have one memory; the one that made it dies ---- */

static void play_owner(int socket) {
  const CUmemGenericAllocationHandle handle = fake_create(BYTES);
  const CUdeviceptr at = fake_window_on(&handle, 1, BYTES);
  set_bytes(at, 1);
  send_file(socket, export_of(handle));
  hear(socket, 'w');
  assert_bytes(at, 2);
  say(socket, 'r');
  pause();
}

static void test_shared(void **state) {
  (void)state;
  CUmemGenericAllocationHandle handle, again;
  const size_t before = fake_free_bytes();
  const other owner = begin("owner");
  const int file = receive_file(owner.socket);
  assert_cuda(import(&handle, file));
  assert_cuda(import(&again, file));
  const CUdeviceptr at = fake_window_on(&handle, 1, BYTES);
  assert_bytes(at, 1);
  set_bytes(at, 2);
  say(owner.socket, 'w');
  hear(owner.socket, 'r');
  kill(owner.process, SIGKILL);
  assert_killed_by(SIGKILL, &owner);
  assert_bytes(at, 2);
  assert_int_equal(fake_free_bytes(), before - BYTES);
  assert_cuda(cuMemRelease(handle));
  assert_cuda(cuMemRelease(again));
  fake_window_end(at, BYTES);
  assert_int_equal(fake_free_bytes(), before);
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE, import(&handle, file)); /* nobody holds it any more */
  close(file);
}

/* ---- Memory of the dead comes back, whatever they did ---- */

static void play_busy(int socket) {
  CUmemGenericAllocationHandle handles[64];
  say(socket, 'b');
  for (;;) {
    for (int i = 0; i < 64; i++) handles[i] = fake_create((size_t)(i % 3 + 1) * FAKE_PAGE);
    for (int i = 0; i < 64; i++) assert_cuda(cuMemRelease(handles[i]));
  }
}

static void test_killed(void **state) {
  (void)state;
  enum { OTHERS = 3 };
  const size_t before = fake_free_bytes();
  for (int round = 0; round < 8; round++) {
    other busy[OTHERS];
    for (int i = 0; i < OTHERS; i++) busy[i] = begin("busy");
    for (int i = 0; i < OTHERS; i++) hear(busy[i].socket, 'b');
    usleep((useconds_t)(round * 1700));
    for (int i = 0; i < OTHERS; i++) {
      kill(busy[i].process, SIGKILL);
      assert_killed_by(SIGKILL, &busy[i]);
    }
    assert_int_equal(fake_free_bytes(), before);
  }
}

/* ---- Many handles, few descriptors ---- */

static void test_many(void **state) {
  (void)state;
  enum { COUNT = 10000 };
  static CUmemGenericAllocationHandle handles[2][COUNT];
  struct rlimit limit, few;
  const size_t before = fake_free_bytes();
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
  few = (struct rlimit){64, limit.rlim_max};
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
  for (int i = 0; i < COUNT; i++) {
    handles[0][i] = fake_create(FAKE_PAGE);
    const int file = export_of(handles[0][i]);
    assert_cuda(import(&handles[1][i], file));
    close(file);
  }
  assert_int_equal(fake_free_bytes(), before - (size_t)COUNT * FAKE_PAGE);
  const CUdeviceptr at = fake_window_on(handles[1], COUNT, FAKE_PAGE);
  for (int k = 0; k < 2; k++)
    for (int i = 0; i < COUNT; i++) assert_cuda(cuMemRelease(handles[k][i]));
  fake_window_end(at, (size_t)COUNT * FAKE_PAGE);
  assert_int_equal(fake_free_bytes(), before);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* ---- Who may touch what ---- */

static void play_toucher(int socket) {
  (void)socket;
  const CUmemGenericAllocationHandle handle = fake_create(BYTES);
  const CUdeviceptr at = fake_window_on(&handle, 1, BYTES);
  set_bytes(at, 1);
  *(volatile char *)(uintptr_t)at = 2;
}

/* A fill runs after its window has ended. */
static void play_latecomer(int socket) {
  (void)socket;
  const CUmemGenericAllocationHandle handle = fake_create(BYTES);
  const CUdeviceptr at = fake_window_on(&handle, 1, BYTES);
  assert_cuda(cuMemsetD8Async(at, 1, BYTES, NULL));
  fake_window_end(at, BYTES);
  cuStreamSynchronize(NULL);
}

/* Tables of a kernel in pageable memory. */
static void play_pageable(int socket) {
  (void)socket;
  CUmodule module;
  CUfunction function;
  static treadle_cuda_item item;
  treadle_cuda_copy_args args = {.items = (uintptr_t)&item, .boxes = (uintptr_t)&item, .count = 1};
  assert_cuda(cuModuleLoadData(&module, FAKE_CUDA_MARKER));
  assert_cuda(cuModuleGetFunction(&function, module, "treadle_cuda_copy"));
  assert_cuda(
      cuLaunchKernel(function, 1, 1, 1, TREADLE_CUDA_THREADS, 1, 1, 0, NULL, (void *[]){&args}, NULL));
  cuStreamSynchronize(NULL);
}

static void test_faults(void **state) {
  (void)state;
  const char *const parts[] = {"toucher", "latecomer", "pageable"};
  const size_t before = fake_free_bytes();
  for (size_t i = 0; i < TEST_COUNT(parts); i++) {
    const other o = begin(parts[i]);
    assert_killed_by(SIGSEGV, &o);
  }
  assert_int_equal(fake_free_bytes(), before);
}

static void test_fork(void **state) {
  (void)state;
  size_t left, total;
  int status;
  const pid_t process = fork();
  if (process == 0)
    _exit(cuMemGetInfo_v2(&left, &total) == CUDA_ERROR_NOT_INITIALIZED &&
          cuInit(0) == CUDA_ERROR_NOT_INITIALIZED);
  assert_int_equal(waitpid(process, &status, 0), process);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 1);
}

/* ---- The ledger's line ---- */

static void play_writer(int socket) {
  (void)socket;
  const CUmemGenericAllocationHandle handle = fake_create(BYTES);
  set_bytes(fake_window_on(&handle, 1, BYTES), 1);
}

static void test_ledger(void **state) {
  (void)state;
  char path[64], line[4096];
  snprintf(path, sizeof path, "/tmp/fake-cuda-ledger-%d", (int)getpid());
  setenv("FAKE_CUDA_LEDGER", path, 1);
  for (int i = 0; i < 2; i++) {
    const other o = begin("writer");
    assert_ended_well(&o);
  }
  unsetenv("FAKE_CUDA_LEDGER");
  FILE *ledger = fopen(path, "r");
  assert_non_null(ledger);
  for (int i = 0; i < 2; i++) {
    assert_non_null(fgets(line, sizeof line, ledger));
    assert_non_null(strstr(line, "\"set\": 65536, "));
    assert_non_null(strstr(line, "\"accessible_bytes_most\": 65536, "));
    assert_non_null(strstr(line, "\"cuMemCreate\": 1, "));
  }
  assert_null(fgets(line, sizeof line, ledger));
  fclose(ledger);
  unlink(path);
}

/* ---- All of them ---- */

static int start(void **state) {
  (void)state;
  fake_start();
  return 0;
}

static int play(const char *part, int socket) {
  static const struct {
    const char *name;
    void (*play)(int socket);
  } parts[] = {{"owner", play_owner},         {"busy", play_busy},         {"toucher", play_toucher},
               {"latecomer", play_latecomer}, {"pageable", play_pageable}, {"writer", play_writer}};
  fake_start();
  for (size_t i = 0; i < TEST_COUNT(parts); i++)
    if (strcmp(parts[i].name, part) == 0) parts[i].play(socket);
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shared), cmocka_unit_test(test_killed), cmocka_unit_test(test_many),
      cmocka_unit_test(test_faults), cmocka_unit_test(test_fork),   cmocka_unit_test(test_ledger),
  };
  if (argc == 3) return play(argv[1], atoi(argv[2]));
  return cmocka_run_group_tests(tests, start, NULL);
}
