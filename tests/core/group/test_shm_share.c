/* src/core/group/shm_share.c: memory in many descriptors, between processes: pools of the far device in pieces of one page. All of it is read
 * where it should be; a rank that cannot export, or not import, says so, and nothing is left open. test_group_shm.c has ranks that die. */
#include "group/ranks.h"
#include "memory/device_far.h"
#include "test.h"

enum { PAGE = 4096, SHIFT = 12, RANKS = 4 };

/* The second cut begins in the pool of rank 2, and the third one, too; rank 1 has nothing. */
static const int64_t pages_of[RANKS] = {200, 0, 330, 5};

static int value_of(int rank, int64_t page) { return (int)(rank * 31 + page) & 0x7f; }

typedef struct act {
  bool whole;
  int victim; /* who fails, at that descriptor, from 1; 0: nobody does */
  int64_t fails_export, fails_import;
} act;

typedef struct member {
  treadle_group *group;
  treadle_device device;
  treadle_pool *pool;
  treadle_peer_memory all[RANKS];
} member;

static int member_init(member *m, const char *name, int rank, int size) {
  const treadle_memory memory = {.kind = TREADLE_MEMORY_CUDA, .device = rank};
  memset(m, 0, sizeof *m);
  device_far_piece_pages = 1;
  RANK_OK(treadle_group_open(name, rank, size, 20, &m->group));
  RANK_OK(treadle_device_open(&memory, &m->device));
  const treadle_device_ops *ops = m->device.ops;
  RANK_OK(ops->create(&m->device, pages_of[rank], PAGE, 1 << 30, NULL, 0, &m->pool));
  for (int64_t page = 0; page < pages_of[rank]; page++)
    ops->fill(&m->device, (char *)ops->base(m->pool) + page * PAGE, value_of(rank, page), PAGE);
  RANK_OK(ops->fence(&m->device));
  return 0;
}

static void member_release(member *m) {
  m->device.ops->destroy(m->pool);
  treadle_device_close(&m->device);
  treadle_group_close(m->group);
}

static treadle_status publish(member *m, bool whole) {
  const int rank = m->group->rank;
  const treadle_offer offer = {.device = &m->device,
                               .pool = m->pool,
                               .base = m->device.ops->base(m->pool),
                               .bytes = (size_t)pages_of[rank] * PAGE,
                               .whole = whole};
  return m->group->link->publish(m->group, &offer, m->all);
}

static void withdraw(member *m) { m->group->link->withdraw(m->group, &m->device, m->all); }

/* Every second page of a rank's pool, from the last to the first, and a hole. */
static int check_view(member *m, int rank) {
  const int64_t pages = pages_of[rank] / 2;
  int32_t table[RANKS * 100];
  treadle_paged paged;
  for (int64_t i = 0; i < pages; i++) table[i] = (int32_t)(pages_of[rank] - 1 - 2 * i);
  table[pages] = -1;
  RANK_OK(
      treadle_peer_view(&m->device, &m->all[rank], &(treadle_view_of){table, pages + 1, SHIFT}, &paged));
  RANK_TRUE(!paged.into);
  for (int64_t i = 0; i < pages; i++) {
    char last[8];
    m->device.ops->move(&m->device, last, treadle_paged_address(&paged, (i + 1) * PAGE - 8), 8);
    RANK_OK(m->device.ops->fence(&m->device));
    RANK_TRUE(last[7] == value_of(rank, table[i]));
  }
  return 0;
}

static int check_whole(member *m, int rank) {
  const size_t bytes = (size_t)pages_of[rank] * PAGE;
  char *found = malloc(bytes + 1);
  RANK_TRUE((m->all[rank].base != NULL) == (bytes > 0));
  m->device.ops->move(&m->device, found, m->all[rank].base, bytes);
  RANK_OK(m->device.ops->fence(&m->device));
  for (int64_t page = 0; page < pages_of[rank]; page++)
    RANK_TRUE(found[page * PAGE] == value_of(rank, page) &&
              found[page * PAGE + PAGE - 1] == found[page * PAGE]);
  free(found);
  return 0;
}

static int share(member *m, bool whole) {
  const int rank = m->group->rank, files = test_open_files();
  int64_t imported = 0;
  RANK_OK(publish(m, whole));
  for (int peer = 0; peer < RANKS; peer++) imported += peer == rank ? 0 : pages_of[peer];
  RANK_TRUE(test_open_files() == files + imported); /* those that the far device keeps */
  for (int peer = 0; peer < RANKS; peer++) {
    RANK_TRUE(m->all[peer].bytes == (size_t)pages_of[peer] * PAGE);
    RANK_TRUE((m->all[peer].imported != NULL) == (peer != rank && pages_of[peer] > 0));
    if (!whole && peer != rank) RANK_TRUE(m->all[peer].base == NULL);
    if (pages_of[peer] > 0 && check_view(m, peer)) return 1;
    if (whole && check_whole(m, peer)) return 1;
  }
  RANK_OK(treadle_group_barrier(m->group));
  withdraw(m);
  RANK_TRUE(test_open_files() == files);
  return 0;
}

static int live(const char *name, int rank, int size, void *context) {
  const act *a = context;
  member m;
  const int files = test_open_files();
  if (member_init(&m, name, rank, size)) return 1;
  for (int round = 0; round < 2; round++)
    if (share(&m, a->whole)) return 1;
  member_release(&m);
  RANK_TRUE(test_open_files() == files);
  return 0;
}

static int fail_once(const char *name, int rank, int size, void *context) {
  const act *a = context;
  member m;
  char words[60];
  const bool victim = rank == a->victim;
  if (member_init(&m, name, rank, size)) return 1;
  const int files = test_open_files();
  if (victim) device_far_fails_export = a->fails_export;
  if (victim) device_far_fails_import = a->fails_import;
  if (a->fails_export > 0)
    snprintf(words, sizeof words, "rank %d: the far device does not export", a->victim);
  if (a->fails_import > 0)
    snprintf(words, sizeof words, "rank %d: the far device does not import", a->victim ? 0 : 2);
  if (victim || a->fails_export > 0)
    RANK_FAILS(TREADLE_SYSTEM, words, publish(&m, false));
  else
    RANK_OK(publish(&m, false));
  if (victim || a->fails_export > 0)
    for (int peer = 0; peer < RANKS; peer++) RANK_TRUE(!m.all[peer].imported && m.all[peer].bytes == 0);
  RANK_OK(treadle_group_barrier(m.group)); /* the group goes on */
  withdraw(&m);
  RANK_TRUE(test_open_files() == files);
  if (share(&m, false)) return 1;
  member_release(&m);
  return 0;
}

static void play(ranks_process body, act a) {
  int results[RANKS];
  ranks_as_processes(RANKS, 60, body, &a, results);
  for (int rank = 0; rank < RANKS; rank++) assert_int_equal(results[rank], 0);
}

static void test_views(void **state) {
  (void)state;
  play(live, (act){.whole = false});
  play(live, (act){.whole = true});
}

static void test_export_fails(void **state) {
  (void)state;
  play(fail_once, (act){.victim = 2, .fails_export = 1});
  play(fail_once, (act){.victim = 2, .fails_export = 300}); /* in the second cut */
  play(fail_once, (act){.victim = 0, .fails_export = 200});
  play(fail_once, (act){.victim = 3, .fails_export = 5});
}

static void test_import_fails(void **state) {
  (void)state;
  play(fail_once, (act){.victim = 2, .fails_import = 1});
  play(fail_once, (act){.victim = 1, .fails_import = 150});
  play(fail_once, (act){.victim = 0, .fails_import = 100});
}

int main(void) {
  assert_ok(treadle_device_register(TREADLE_MEMORY_CUDA, &device_far_ops));
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_views), cmocka_unit_test(test_export_fails),
                                     cmocka_unit_test(test_import_fails)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
