/* Prints the plan of one rank: no weights and no other rank needed.
 *
 *   example_print_plan config.json megatron:tp=4,pp=2 vllm:tp=2 8 3 */
#include <treadle.h>

#include <stdio.h>
#include <stdlib.h>

int main(int count, char **texts) {
  if (count != 6) {
    fprintf(stderr, "usage: %s DIR|config.json FROM TO RANKS RANK\n", texts[0]);
    return 2;
  }
  long long ranks = atoll(texts[4]), rank = atoll(texts[5]);
  treadle_model *model = NULL;
  treadle_layout *from = NULL, *to = NULL;
  treadle_plan *plan = NULL;

  if (treadle_model_open(texts[1], NULL, &model) ||
      treadle_layout_create(model, texts[2], ranks, NULL, &from) ||
      treadle_layout_create(model, texts[3], ranks, NULL, &to) ||
      treadle_plan_create(from, to, rank, NULL, &plan)) {
    fprintf(stderr, "%s\n", treadle_error_message());
  } else {
    treadle_plan_info info = TREADLE_INIT(treadle_plan_info);
    treadle_plan_get_info(plan, &info);
    printf("rank %lld of %lld, %s -> %s\n", rank, ranks, treadle_layout_text(from),
           treadle_layout_text(to));
    printf("moves %zu bytes (lower bound %zu), has %zu already\n", info.moved_bytes, info.lower_bound_bytes,
           info.resident_bytes);
    printf("%d waves, peak %zu of %zu bytes, smallest cap %zu\n\n", (int)info.waves, info.peak_bytes,
           info.peak_bound_bytes, info.cap_min_bytes);
    if (treadle_plan_print(plan, stdout)) fprintf(stderr, "%s\n", treadle_error_message());
  }
  int exit_status = plan ? 0 : 1;
  treadle_plan_destroy(plan);
  treadle_layout_destroy(to);
  treadle_layout_destroy(from);
  treadle_model_close(model);
  return exit_status;
}
