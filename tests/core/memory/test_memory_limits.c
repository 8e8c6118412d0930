/* What limits the memory of a process, read from trees of files as systems show them. */
#include "memory/limits.h"

#include "test.h"

#include <sys/stat.h>

#define MIB 1048576ULL

static const char *root;

/* ---- Trees ---- */

/* Writes root/path, with the folders that it lies in. */
__attribute__((format(printf, 2, 3))) static void put(const char *path, const char *format, ...) {
  char whole[1024];
  va_list values;
  snprintf(whole, sizeof whole, "%s/%s", root, path);
  for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
    *at = 0;
    mkdir(whole, 0777);
  }
  FILE *file = fopen(whole, "w");
  assert_non_null(file);
  va_start(values, format);
  vfprintf(file, format, values);
  va_end(values);
  fclose(file);
}

static void begin(void) {
  root = test_folder();
  put("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:   8192 kB\n");
}

static treadle_limits read_tree(void) {
  treadle_limits limits;
  treadle_limits_read(root, &limits);
  return limits;
}

static void end(void) { test_remove(root); }

/* A v1 group: limit and usage in MiB, and the file pages that can be taken back. */
static void put_v1(const char *folder, uint64_t limit, uint64_t usage, uint64_t inactive,
                   uint64_t hierarchical) {
  char path[256];
  snprintf(path, sizeof path, "%s/memory.limit_in_bytes", folder);
  if (limit)
    put(path, "%llu\n", limit * MIB);
  else
    put(path, "9223372036854771712\n");
  snprintf(path, sizeof path, "%s/memory.usage_in_bytes", folder);
  put(path, "%llu\n", usage * MIB);
  snprintf(path, sizeof path, "%s/memory.stat", folder);
  put(path, "cache 7\ninactive_file 1\nhierarchical_memory_limit %llu\ntotal_inactive_file %llu\n",
      hierarchical ? hierarchical * MIB : 9223372036854771712ULL, inactive * MIB);
}

static void put_v2(const char *folder, const char *max, const char *high, uint64_t usage) {
  char path[256];
  snprintf(path, sizeof path, "%s/memory.max", folder);
  put(path, "%s\n", max);
  snprintf(path, sizeof path, "%s/memory.high", folder);
  put(path, "%s\n", high);
  snprintf(path, sizeof path, "%s/memory.current", folder);
  put(path, "%llu\n", usage * MIB);
  snprintf(path, sizeof path, "%s/memory.stat", folder);
  put(path, "anon 5\ninactive_file %llu\nactive_file %llu\nslab_reclaimable 0\n", MIB, MIB);
}

static void put_mounts(const char *lines) {
  put("proc/self/mountinfo", "23 1 0:20 / / rw - ext4 /dev/root rw\n%s", lines);
}

static void expect(const treadle_limits *limits, int32_t i, uint64_t mib, uint64_t left, const char *text) {
  if (i >= limits->count) fail_msg("%d limits, not %s", limits->count, text);
  const treadle_limit *limit = &limits->memory[i];
  if (limit->bytes != mib * MIB || limit->left != left * MIB || strcmp(limit->text, text) != 0)
    fail_msg("%s: %llu bytes, %llu left; wanted %s: %llu MiB, %llu left", limit->text,
             (unsigned long long)limit->bytes, (unsigned long long)limit->left, text,
             (unsigned long long)mib, (unsigned long long)left);
}

#define V1_MOUNT "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
#define V2_MOUNT "41 31 0:38 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"

/* ---- Machines ---- */

static void test_machine(void **state) {
  (void)state;
  begin();
  treadle_limits limits = read_tree();
  assert_int_equal(limits.count, 1);
  expect(&limits, 0, 16, 8, "this machine");
  assert_int_equal(limits.memory[0].id, 0);
  assert_false(limits.has_addresses);
  put("proc/meminfo", "MemTotal: lots\nMemAvailable:\n");
  limits = read_tree();
  assert_int_equal(limits.count, 0);
  end();
}

static void test_addresses(void **state) {
  (void)state;
  begin();
  put("proc/self/statm", "256 9 9 9 0 9 0\n");
  put("proc/self/limits", "Limit  Soft Limit  Hard Limit  Units\n"
                          "Max cpu time              unlimited   unlimited   seconds\n"
                          "Max address space         4194304     unlimited   bytes\n");
  treadle_limits limits = read_tree();
  assert_true(limits.has_addresses);
  assert_string_equal(limits.addresses.text, "RLIMIT_AS");
  assert_int_equal(limits.addresses.bytes, 4 * MIB);
  assert_int_equal(limits.addresses.left, 4 * MIB - 256 * (uint64_t)sysconf(_SC_PAGESIZE));
  put("proc/self/statm", "25600 9 9 9 0 9 0\n");
  limits = read_tree();
  assert_int_equal(limits.addresses.left, 0);
  put("proc/self/limits", "Max address space         unlimited            unlimited            bytes\n");
  limits = read_tree();
  assert_false(limits.has_addresses);
  end();
}

/* ---- v1 ---- */

static void test_v1_nested(void **state) {
  (void)state;
  begin();
  put("proc/self/cgroup", "9:name=systemd:/x\n4:cpuacct,memory,cpu:/a b/c:d\n0::/\n");
  put_mounts("34 31 0:31 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n" V1_MOUNT);
  put_v1("sys/fs/cgroup/memory", 0, 15, 0, 0);
  put_v1("sys/fs/cgroup/memory/a b", 12, 10, 3, 12);
  put_v1("sys/fs/cgroup/memory/a b/c:d", 7, 4, 1, 7);
  treadle_limits limits = read_tree();
  assert_int_equal(limits.count, 3);
  expect(&limits, 1, 7, 4, "control group /sys/fs/cgroup/memory/a b/c:d (memory.limit_in_bytes)");
  expect(&limits, 2, 12, 5, "control group /sys/fs/cgroup/memory/a b (memory.limit_in_bytes)");
  assert_true(limits.memory[1].id && limits.memory[2].id && limits.memory[1].id != limits.memory[2].id);

  /* Memory and swap together may leave less. */
  put("sys/fs/cgroup/memory/a b/c:d/memory.memsw.limit_in_bytes", "%llu\n", 8 * MIB);
  put("sys/fs/cgroup/memory/a b/c:d/memory.memsw.usage_in_bytes", "%llu\n", 7 * MIB);
  limits = read_tree();
  assert_int_equal(limits.count, 3);
  expect(&limits, 1, 8, 2, "control group /sys/fs/cgroup/memory/a b/c:d (memory.memsw.limit_in_bytes)");

  /* More is taken than the limit, and reclaimable more than taken. */
  put_v1("sys/fs/cgroup/memory/a b", 12, 14, 0, 12);
  limits = read_tree();
  expect(&limits, 2, 12, 0, "control group /sys/fs/cgroup/memory/a b (memory.limit_in_bytes)");
  put_v1("sys/fs/cgroup/memory/a b", 12, 14, 20, 12);
  limits = read_tree();
  expect(&limits, 2, 12, 12, "control group /sys/fs/cgroup/memory/a b (memory.limit_in_bytes)");

  /* The outer group does not count the inner one. */
  put("sys/fs/cgroup/memory/a b/memory.use_hierarchy", "0\n");
  limits = read_tree();
  assert_int_equal(limits.count, 2);
  end();
}

/* The container's own group is the root of what is mounted; paths are told from the real root. */
static void test_v1_container(void **state) {
  (void)state;
  begin();
  put("proc/self/cgroup", "4:memory:/docker/0123abcd/inner\n");
  put_mounts("35 31 0:32 /docker/0123abcd /mnt\\040cgroups/memory ro - cgroup cgroup ro,memory\n");
  put_v1("mnt cgroups/memory", 9, 6, 1, 9);
  put_v1("mnt cgroups/memory/inner", 0, 2, 0, 9);
  treadle_limits limits = read_tree();
  assert_int_equal(limits.count, 2);
  expect(&limits, 1, 9, 4, "control group /mnt cgroups/memory (memory.limit_in_bytes)");

  /* A group outside of the container has less. */
  put_v1("mnt cgroups/memory/inner", 0, 2, 0, 7);
  limits = read_tree();
  assert_int_equal(limits.count, 3);
  expect(&limits, 2, 7, 2, "a control group above /mnt cgroups/memory (hierarchical_memory_limit)");
  end();
}

/* ---- v2 ---- */

static void test_v2_nested(void **state) {
  (void)state;
  begin();
  put("proc/self/cgroup", "0::/user.slice/run\n");
  put_mounts(V2_MOUNT);
  put("sys/fs/cgroup/cgroup.procs", "1\n");
  put_v2("sys/fs/cgroup/user.slice", "12582912", "max", 8);
  put_v2("sys/fs/cgroup/user.slice/run", "max", "10485760", 6);
  treadle_limits limits = read_tree();
  assert_int_equal(limits.count, 3);
  expect(&limits, 1, 10, 6, "control group /sys/fs/cgroup/user.slice/run (memory.high)");
  expect(&limits, 2, 12, 6, "control group /sys/fs/cgroup/user.slice (memory.max)");

  /* The controller is not there for the innermost. */
  put("proc/self/cgroup", "0::/user.slice/run/deeper/still\n");
  limits = read_tree();
  assert_int_equal(limits.count, 3);
  end();
}

/* In a namespace of its own the path is "/", or leads out of what can be seen; or the mount does not begin with it. */
static void test_v2_container(void **state) {
  static const char *const paths[] = {"/", "/../other", "/kubepods/pod1/c2", "/kubepods/pod1",
                                      "/elsewhere"};
  static const char *const roots[] = {"/", "/", "/kubepods/pod1/c2", "/kubepods/pod1", "/kubepods/pod1"};
  (void)state;
  begin();
  put_v2("sys/fs/cgroup", "6291456", "max", 4);
  put_v2("other", "1048576", "max", 1);
  put_v2("sys/fs/other", "1048576", "max", 1);
  for (size_t i = 0; i < TEST_COUNT(paths); i++) {
    char mount[200];
    put("proc/self/cgroup", "0::%s\n", paths[i]);
    snprintf(mount, sizeof mount, "41 31 0:38 %s /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", roots[i]);
    put_mounts(mount);
    treadle_limits limits = read_tree();
    assert_int_equal(limits.count, 2);
    expect(&limits, 1, 6, 4, "control group /sys/fs/cgroup (memory.max)");
  }

  /* Of two mounts the one that shows more. */
  put("proc/self/cgroup", "0::/kubepods/pod1\n");
  put_mounts("40 31 0:38 /kubepods/pod1 /inside rw - cgroup2 cgroup2 rw\n" V2_MOUNT
             "42 31 0:38 /elsewhere /nowhere rw - cgroup2 cgroup2 rw\n");
  put_v2("sys/fs/cgroup/kubepods", "5242880", "max", 3);
  treadle_limits limits = read_tree();
  assert_int_equal(limits.count, 3);
  expect(&limits, 1, 5, 4, "control group /sys/fs/cgroup/kubepods (memory.max)");
  end();
}

/* v1 has the memory controller, and v2 is there beside it; or v1 is named and not mounted. */
static void test_hybrid(void **state) {
  (void)state;
  begin();
  put("proc/self/cgroup", "4:memory:/a\n0::/b\n");
  put_mounts("41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n" V1_MOUNT);
  put_v1("sys/fs/cgroup/memory/a", 7, 4, 1, 7);
  put_v2("sys/fs/cgroup/unified/b", "6291456", "max", 4);
  treadle_limits limits = read_tree();
  assert_int_equal(limits.count, 2);
  expect(&limits, 1, 7, 4, "control group /sys/fs/cgroup/memory/a (memory.limit_in_bytes)");
  put_mounts("41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  limits = read_tree();
  assert_int_equal(limits.count, 2);
  expect(&limits, 1, 6, 4, "control group /sys/fs/cgroup/unified/b (memory.max)");
  end();
}

/* ---- What is not a limit ---- */

static void test_garbage(void **state) {
  static const char *const values[] = {
      "",         "max", "-1", "0x10", "12 apples", "99999999999999999999999999", "18446744073709551615",
      "\377\376", "1e3", "+5"};
  static const char *const mounts[] = {"",
                                       "41",
                                       "41 31 0:38 / /sys/fs/cgroup rw\n",
                                       " - cgroup2 x rw\n",
                                       "41 31 0:38 / - cgroup2\n",
                                       "41 31 0:38 / /sys/fs/cgroup rw - \n"};
  static const char *const groups[] = {"", "0", "0:", "0::", "0::relative", ":::", "\n\n", "0:/"};
  (void)state;
  begin();
  put("proc/self/cgroup", "0::/a\n");
  put_mounts(V2_MOUNT);
  put_v2("sys/fs/cgroup/a", "5242880", "max", 3);
  for (size_t i = 0; i < TEST_COUNT(values); i++) {
    put("sys/fs/cgroup/a/memory.max", "%s\n", values[i]);
    treadle_limits limits = read_tree();
    assert_int_equal(limits.count, 1);
  }
  put("sys/fs/cgroup/a/memory.max", "5242880\n");
  put("sys/fs/cgroup/a/memory.stat",
      "inactive_file 99999999999999999999999\nactive_file\nactive_file -4\n");
  treadle_limits limits = read_tree();
  expect(&limits, 1, 5, 2, "control group /sys/fs/cgroup/a (memory.max)");
  put("sys/fs/cgroup/a/memory.current", "none\n");
  limits = read_tree();
  assert_int_equal(limits.count, 1);
  put("sys/fs/cgroup/a/memory.current", "%llu\n", 3 * MIB);
  for (size_t i = 0; i < TEST_COUNT(mounts); i++) {
    put_mounts(mounts[i]);
    limits = read_tree();
    assert_int_equal(limits.count, 1);
  }
  put_mounts(V2_MOUNT);
  for (size_t i = 0; i < TEST_COUNT(groups); i++) {
    put("proc/self/cgroup", "%s", groups[i]);
    limits = read_tree();
    assert_int_equal(limits.count, 1);
  }
  end();
}

/* More groups with limits than have places: those that leave least stay. And paths longer than a message. */
static void test_deep(void **state) {
  enum { DEEP = 20 };
  char path[400] = "", folder[448];
  (void)state;
  begin();
  put_mounts(V2_MOUNT);
  for (int i = 0; i < DEEP; i++) {
    char max[32];
    snprintf(path + strlen(path), 20, "/a-long-name-%d", i);
    snprintf(folder, sizeof folder, "sys/fs/cgroup%s", path);
    snprintf(max, sizeof max, "%llu", (i == 1 ? 4 : 9 + (unsigned long long)i) * MIB);
    put_v2(folder, max, "max", 3);
  }
  put("proc/self/cgroup", "0::%s\n", path);
  treadle_limits limits = read_tree();
  int tightest = 0;
  assert_int_equal(limits.count, TREADLE_LIMIT_COUNT);
  for (int32_t i = 0; i < limits.count; i++) {
    assert_true(strlen(limits.memory[i].text) < TREADLE_LIMIT_TEXT);
    if (limits.memory[i].left == 3 * MIB)
      tightest++, assert_non_null(strstr(limits.memory[i].text, "a-long-name-1 (memory.max)"));
  }
  assert_int_equal(tightest, 1);
  end();
}

/* This machine itself, as it is. */
static void test_here(void **state) {
  treadle_limits limits;
  (void)state;
  treadle_limits_read("", &limits);
  assert_true(limits.count >= 1 && limits.memory[0].left <= limits.memory[0].bytes);
  for (int32_t i = 0; i < limits.count; i++)
    print_message("%s: %llu of %llu\n", limits.memory[i].text, (unsigned long long)limits.memory[i].left,
                  (unsigned long long)limits.memory[i].bytes);
  assert_true(limits.addresses.id != 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_machine),   cmocka_unit_test(test_addresses),
                                     cmocka_unit_test(test_v1_nested), cmocka_unit_test(test_v1_container),
                                     cmocka_unit_test(test_v2_nested), cmocka_unit_test(test_v2_container),
                                     cmocka_unit_test(test_hybrid),    cmocka_unit_test(test_garbage),
                                     cmocka_unit_test(test_deep),      cmocka_unit_test(test_here)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
