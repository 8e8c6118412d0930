/* A fuzzer of whole commands: runs the command in this process on inputs that were good and are spoiled, under limits of time and
 * memory, and looks at what it leaves.
 *
 *   fuzz_commands CORPUS [RUNS [SEED [FOUND]]]   the cases of CORPUS, then RUNS runs, of seeds SEED, SEED + 1, ...
 *   fuzz_commands --seed SEED FOLDER             the run of one seed, made and run in FOLDER, which stays
 *   fuzz_commands --case FOLDER                  a case that was made
 *
 * ctest: timeout=900
 *
 * What is found is said with its seed, and made again as a case in FOUND/SEED, with what it printed as `said`. */
#include "commands/work.h"
#include "seeds.h"

#include <err.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static fuzz_base base;
static char home[64]; /* tmpfs, where there is one */

static void make_home(void) {
  snprintf(home, sizeof home, "%s/treadle-fuzz-XXXXXX",
           access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  if (!mkdtemp(home)) err(3, "%s", home);
  char path[64 + 8];
  snprintf(path, sizeof path, "%s/base", home);
  fuzz_base_make(&base, path);
}

/* A case in `folder` as the present folder's. */
static void enter_case(const char *folder) {
  if (chdir(folder)) err(3, "%s", folder);
}

static int run_seed(uint64_t seed, const char *folder) {
  fuzz_run run;
  char full[PATH_MAX];
  fuzz_folder_make(folder);
  if (!realpath(folder, full)) err(3, "%s", folder);
  make_home();
  enter_case(full);
  fuzz_run_make(&base, seed, &run);
  fuzz_run_write("command", &run);
  fuzz_folder_remove(home);
  fputs("treadle", stdout);
  for (int i = 0; i < run.count; i++) printf(" '%s'", run.words[i]);
  printf("\nfailing allocation %ld, longest file %lld\n", run.fail_at, (long long)run.limit);
  fflush(stdout);
  int exit_status = fuzz_run_call(&run);
  printf("exit status %d\n", exit_status);
  return 0;
}

static int run_case(const char *folder) {
  fuzz_run run;
  enter_case(folder);
  if (!fuzz_run_read("command", &run)) errx(3, "%s: no case", folder);
  printf("exit status %d\n", fuzz_run_call(&run));
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "--seed") == 0) return run_seed(strtoull(argv[2], NULL, 10), argv[3]);
  if (argc == 3 && strcmp(argv[1], "--case") == 0) return run_case(argv[2]);
  char corpus[PATH_MAX] = "", found[PATH_MAX] = "";
  if (argc > 1 && !realpath(argv[1], corpus)) err(3, "%s", argv[1]);
  if (argc > 4 && (mkdir(argv[4], 0777), !realpath(argv[4], found))) err(3, "%s", argv[4]);
  fuzz_work work = {.base = &base,
                    .home = home,
                    .found = found,
                    .first = argc > 3 ? strtoull(argv[3], NULL, 10) : 1,
                    .runs = argc > 2 ? strtoull(argv[2], NULL, 10) : test_seeds(FUZZ_RUNS)};
  make_home();
  int bad = fuzz_work_corpus(&work, corpus) + fuzz_work_seeds(&work);
  if (chdir("/")) err(3, "/");
  fuzz_folder_remove(home);
  printf("%d found\n", bad);
  return bad ? 1 : 0;
}
