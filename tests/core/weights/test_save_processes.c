/* A process that dies while a model is saved, at each of its waits in turn: the others fail and leave nothing behind, or the folder is
 * there and whole. ctest: timeout=600 */
#include "test.h"
#include "group/ranks.h"

#include "io/safetensors.h"
#include "group/group.h"

#include <dirent.h>
#include <signal.h>

#define MODEL TREADLE_SOURCE_DIR "/tests/golden/models/llama-gqa-llama3rope"

enum { RANKS = 2, WAITS_MOST = 40, STATUS_FAILED = 10, STATUS_SAVED = 11 };

typedef struct death {
  const char *folder;
  int rank, wait; /* who dies, and at which wait */
} death;

static void die_at(void *context, const char *where) {
  int *left = context;
  (void)where;
  if (--*left == 0) raise(SIGKILL);
}

static int save_rank(const char *name, int rank, int size, void *context) {
  const death *d = context;
  treadle_group *group;
  treadle_model *model;
  treadle_layout *layout;
  char path[200];
  int left = d->wait;
  RANK_OK(treadle_model_open(MODEL, NULL, &model));
  RANK_OK(treadle_layout_create(model, "megatron:tp=2", size, NULL, &layout));
  char *window = malloc(treadle_layout_window_bytes(layout, rank));
  RANK_OK(treadle_layout_load(layout, rank, window));
  RANK_OK(treadle_group_open(name, rank, size, 30, &group));
  if (rank == d->rank) {
    group->delay = die_at;
    group->delay_context = &left;
  }
  snprintf(path, sizeof path, "%s/saved", d->folder);
  treadle_status status = treadle_layout_save(group, layout, window, path, NULL);
  treadle_group_close(group);
  free(window);
  treadle_layout_destroy(layout);
  treadle_model_close(model);
  return status == TREADLE_OK ? STATUS_SAVED : status == TREADLE_PEER ? STATUS_FAILED : 1;
}

static bool is_whole(const char *path) {
  treadle_checkpoint *saved, *own;
  bool same;
  assert_ok(treadle_checkpoint_open(path, &saved));
  assert_ok(treadle_checkpoint_open(MODEL, &own));
  same = saved && saved->count == own->count;
  for (int32_t i = 0; same && i < own->count; i++) {
    const treadle_stored *a = &own->tensors[i], *b = treadle_checkpoint_find(saved, a->name);
    same = b && a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
  }
  treadle_checkpoint_close(saved);
  treadle_checkpoint_close(own);
  return same;
}

/* What lies in the folder: how many temporary ones, and whether the saved one does. */
static int look(const char *folder, bool *saved_p) {
  DIR *listing = opendir(folder);
  int temporary = 0;
  *saved_p = false;
  assert_non_null(listing);
  for (struct dirent *entry; (entry = readdir(listing));) {
    temporary += strstr(entry->d_name, ".tmp") != NULL;
    *saved_p |= strcmp(entry->d_name, "saved") == 0;
  }
  closedir(listing);
  return temporary;
}

static void test_deaths(void **state) {
  (void)state;
  int failures = 0;
  for (int rank = 0; rank < RANKS; rank++) {
    bool died = true;
    int wait = 1;
    for (; died; wait++) {
      death d = {test_folder(), rank, wait};
      int results[RANKS];
      char path[200];
      bool saved;
      assert_true(wait < WAITS_MOST);
      ranks_as_processes(RANKS, 60, save_rank, &d, results);
      int temporary = look(d.folder, &saved), other = results[1 - rank];
      died = results[rank] == 128 + SIGKILL;
      assert_true(other == STATUS_FAILED || other == STATUS_SAVED);
      failures += other == STATUS_FAILED;
      snprintf(path, sizeof path, "%s/saved", d.folder);
      if (saved) assert_true(is_whole(path));
      if (other == STATUS_SAVED) assert_true(saved);
      if (other == STATUS_FAILED && rank != 0) assert_true(!saved || temporary == 0);
      if (rank != 0) assert_int_equal(temporary, 0);
      assert_true(temporary <= 1 && (temporary == 0 || !saved));
      test_remove(d.folder);
    }
    printf("rank %d: %d waits\n", rank, wait - 2);
    assert_true(wait > 5);
  }
  assert_true(failures > 8);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_deaths)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
