/* The whole road in one process: load in a training layout, switch, read as an engine would, switch back.
 *
 *   example_switch_in_process DIR|config.json [TRAIN [INFER]] */
#include <treadle.h>

#include <stdio.h>

#define MUST(call)                                                                                         \
  do {                                                                                                     \
    if (call) {                                                                                            \
      fprintf(stderr, "%s\n", treadle_error_message());                                                    \
      return 1;                                                                                            \
    }                                                                                                      \
  } while (0)

int main(int count, char **texts) {
  if (count < 2) {
    fprintf(stderr, "usage: %s DIR|config.json [TRAIN [INFER]]\n", texts[0]);
    return 2;
  }
  treadle_model *model;
  treadle_layout *train, *infer;
  treadle_group *group;
  treadle_switch *sw;
  MUST(treadle_model_open(texts[1], NULL, &model));
  MUST(treadle_layout_create(model, count > 2 ? texts[2] : "megatron:spec=local", 1, NULL, &train));
  MUST(treadle_layout_create(model, count > 3 ? texts[3] : "vllm", 1, NULL, &infer));
  MUST(treadle_group_self(&group));
  MUST(treadle_switch_create(group, train, infer, NULL, &sw));

  /* Mode TRAIN: the train window is ours to fill; a trainer's parameters would be views of it. */
  uint64_t before, after;
  MUST(treadle_layout_load(train, 0, treadle_switch_train_window(sw)));
  MUST(treadle_switch_digest(sw, &before));

  MUST(treadle_switch_to_infer(sw));
  const char *window = treadle_switch_infer_window(sw);
  for (int32_t i = 0; i < treadle_layout_storage_count(infer, 0) && i < 5; i++) {
    treadle_storage_info info = TREADLE_INIT(treadle_storage_info);
    MUST(treadle_layout_storage(infer, 0, i, &info));
    const unsigned char *bytes = (const unsigned char *)window + info.offset_bytes;
    printf("%-45s at %p, first bytes %02x %02x\n", info.name, (const void *)bytes, bytes[0], bytes[1]);
  }
  printf("version %llu\n", (unsigned long long)treadle_switch_version(sw));

  MUST(treadle_switch_to_train(sw));
  MUST(treadle_switch_digest(sw, &after));
  printf("digest %016llx, then %016llx: %s\n", (unsigned long long)before, (unsigned long long)after,
         before == after ? "the same weights" : "DIFFERENT");

  treadle_switch_destroy(sw);
  treadle_group_close(group);
  treadle_layout_destroy(infer);
  treadle_layout_destroy(train);
  treadle_model_close(model);
  return before != after;
}
