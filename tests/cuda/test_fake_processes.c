/* tests/cuda/fake_*.c: the stand-in of the driver, among processes. ctest: stage=gcc */
#include "cuda/fake_others.h"
#include "cuda/fake_test.h"

#include "memory/kernel_cuda.h"

#include <sys/resource.h>

enum { BYTES = 16 * FAKE_PAGE };

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
  other_send_file(socket, fake_export(handle));
  other_hear(socket, 'w');
  assert_bytes(at, 2);
  other_say(socket, 'r');
  pause();
}

static void test_shared(void **state) {
  (void)state;
  CUmemGenericAllocationHandle handle, again;
  const size_t before = fake_free_bytes();
  const other owner = other_start("owner");
  const int file = other_receive_file(owner.socket);
  assert_cuda(fake_import(&handle, file));
  assert_cuda(fake_import(&again, file));
  const CUdeviceptr at = fake_window_on(&handle, 1, BYTES);
  assert_bytes(at, 1);
  set_bytes(at, 2);
  other_say(owner.socket, 'w');
  other_hear(owner.socket, 'r');
  kill(owner.process, SIGKILL);
  other_end_killed(SIGKILL, &owner);
  assert_bytes(at, 2);
  assert_int_equal(fake_free_bytes(), before - BYTES);
  assert_cuda(cuMemRelease(handle));
  assert_cuda(cuMemRelease(again));
  fake_window_end(at, BYTES);
  assert_int_equal(fake_free_bytes(), before);
  assert_cuda_is(CUDA_ERROR_INVALID_VALUE, fake_import(&handle, file)); /* nobody holds it any more */
  close(file);
}

/* ---- Memory of the dead comes back, whatever they did ---- */

static void play_busy(int socket) {
  CUmemGenericAllocationHandle handles[64];
  other_say(socket, 'b');
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
    for (int i = 0; i < OTHERS; i++) busy[i] = other_start("busy");
    for (int i = 0; i < OTHERS; i++) other_hear(busy[i].socket, 'b');
    usleep((useconds_t)(round * 1700));
    for (int i = 0; i < OTHERS; i++) {
      kill(busy[i].process, SIGKILL);
      other_end_killed(SIGKILL, &busy[i]);
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
    const int file = fake_export(handles[0][i]);
    assert_cuda(fake_import(&handles[1][i], file));
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
    const other o = other_start(parts[i]);
    other_end_killed(SIGSEGV, &o);
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

/* ---- What the environment says ---- */

/* Memory of card 1, for card 0. */
static CUresult reach(void) {
  CUmemAllocationProp prop = fake_prop;
  CUmemGenericAllocationHandle handle;
  CUdeviceptr at;
  prop.location.id = 1;
  assert_cuda(cuMemCreate(&handle, FAKE_PAGE, &prop, 0));
  assert_cuda(cuMemAddressReserve(&at, FAKE_PAGE, 0, 0, 0));
  assert_cuda(cuMemMap(at, FAKE_PAGE, 0, handle, 0));
  return fake_allow(at, FAKE_PAGE, CU_MEM_ACCESS_FLAGS_PROT_READ);
}

static void play_pair(int socket) {
  (void)socket;
  int count, can;
  assert_cuda(cuDeviceGetCount(&count));
  assert_int_equal(count, 2);
  assert_cuda(cuDeviceCanAccessPeer(&can, 0, 1));
  assert_cuda_is(can ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE, reach());
  exit(can);
}

static void test_cards(void **state) {
  (void)state;
  const char *const peers[] = {"0", "1"};
  setenv("FAKE_CUDA_DEVICES", "2", 1);
  for (int i = 0; i < 2; i++) {
    setenv("FAKE_CUDA_PEERS", peers[i], 1);
    const other o = other_start("pair");
    const int status = other_finish(&o);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), i);
  }
  unsetenv("FAKE_CUDA_DEVICES");
  unsetenv("FAKE_CUDA_PEERS");
}

static void play_eager(int socket) {
  (void)socket;
  CUdeviceptr at;
  fake_cuda_ledger ledger;
  assert_cuda(cuMemAlloc_v2(&at, 1));
  assert_cuda(cuMemsetD8Async(at, 1, 1, NULL));
  fake_cuda_ledger_read(&ledger);
  assert_int_equal(ledger.set, 1);
  assert_int_equal(ledger.waiting, 0);
  assert_cuda_is(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2(&at, 1));
}

static void test_eager(void **state) {
  (void)state;
  setenv("FAKE_CUDA", "eager", 1);
  setenv("FAKE_CUDA_FAIL", "cuMemAlloc:2", 1);
  const other o = other_start("eager");
  other_end_well(&o);
  unsetenv("FAKE_CUDA");
  unsetenv("FAKE_CUDA_FAIL");
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
    const other o = other_start("writer");
    other_end_well(&o);
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
               {"latecomer", play_latecomer}, {"pageable", play_pageable}, {"writer", play_writer},
               {"pair", play_pair},           {"eager", play_eager}};
  fake_start();
  signal(SIGSEGV, SIG_DFL); /* parts that fault end by it; a sanitizer would abort them */
  for (size_t i = 0; i < TEST_COUNT(parts); i++)
    if (strcmp(parts[i].name, part) == 0) parts[i].play(socket);
  return 0;
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shared), cmocka_unit_test(test_killed), cmocka_unit_test(test_many),
      cmocka_unit_test(test_faults), cmocka_unit_test(test_fork),   cmocka_unit_test(test_ledger),
      cmocka_unit_test(test_cards),  cmocka_unit_test(test_eager),
  };
  if (argc == 3) return play(argv[1], atoi(argv[2]));
  return cmocka_run_group_tests(tests, start, NULL);
}
