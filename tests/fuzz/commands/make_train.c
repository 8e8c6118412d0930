/* Runs of grad, sft and data: small models, rows, configurations, all of them spoiled at times. What is valid takes few steps. */
#include "commands/making.h"

#include <stdio.h>
#include <string.h>

/* ---- Files ---------------------------------------------------------------------------------------------- */

/* Folder "in". */
static void take_model(fuzz_making *m) {
  if (fuzz_draw(m, 8)) {
    fuzz_take_folder(m, "in", "in", 3);
    return;
  }
  fuzz_folder_link(m->base->engines[treadle_random_below(&m->random, FUZZ_ENGINES)], "in");
  while (fuzz_draw(m, 5)) fuzz_folder_spoil(&m->random, "in");
}

static void take_rows(fuzz_making *m) {
  static const char *const lines[] = {
      "{\"ids\": [1, 5, 9, 7, 8], \"mask\": [0, 1, 1, 0, 1]}",
      "{\"ids\": [4, 4], \"mask\": [0, 1]}",
      "{\"ids\": [3, 1, 4, 1, 5, 9, 2, 6], \"mask\": [0, 0, 0, 0, 1, 1, 1, 1]}",
      "{\"text\": \"Hello, you\"}",
      "{\"prompt\": \"a\", \"response\": \"bc\", \"data_source\": 3}",
      "{\"messages\": [{\"role\": \"assistant\", \"content\": \"b\"}]}"};
  fuzz_bytes text = {0};
  bool spoils = fuzz_draw(m, 3);
  for (int64_t many = treadle_random_between(&m->random, 1, 6); many > 0; many--) {
    fuzz_bytes line = {0};
    fuzz_bytes_add(&line, "%s", lines[treadle_random_below(&m->random, fuzz_draw(m, 3) ? 6 : 3)]);
    if (spoils && fuzz_draw(m, 3)) fuzz_spoil_json(&m->random, &line);
    if (spoils && fuzz_draw(m, 4)) fuzz_spoil_text(&m->random, &line);
    fuzz_bytes_add(&text, "%s\n", line.at ? line.at : "");
    fuzz_bytes_release(&line);
  }
  if (fuzz_draw(m, 30)) fuzz_spoil_bytes(&m->random, &text);
  fuzz_file_replace("rows.jsonl", text.at, text.count);
  fuzz_bytes_release(&text);
}

static void take_config(fuzz_making *m) {
  static const char *const keys[] = {"  lr: 1.0e-3\n",           "  lr_decay_style: cosine\n",
                                     "  clip_grad: 1.0\n",       "  weight_decay: 0.1\n",
                                     "  strategy: fsdp2\n",      "  exact: false\n",
                                     "  offload_policy: true\n", "  tensor_model_parallel_size: 1\n",
                                     "  layout: megatron\n",     "  adam_beta1: 0.9\n",
                                     "  wrong_key: 1\n"};
  fuzz_bytes text = {0};
  fuzz_bytes_add(&text, "megatron_training:\n  data_path: rows.jsonl\n  bf16: %s\n  seq_length: %s\n",
                 fuzz_draw(m, 2) ? "true" : "false", fuzz_draw(m, 10) ? fuzz_edge(&m->random) : "32");
  if (fuzz_draw(m, 3)) fuzz_bytes_add(&text, "  val_path: rows.jsonl\n  test_interval: 1\n");
  if (fuzz_draw(m, 3)) fuzz_bytes_add(&text, "  save_interval: 1\n  max_ckpt_to_keep: 1\n");
  if (fuzz_draw(m, 3)) fuzz_bytes_add(&text, "  recompute_granularity: full\n");
  bool by_tokens = fuzz_draw(m, 4);
  fuzz_bytes_add(&text, "actor_config:\n  model: in%s\n  save: out\n  %s: %s\n",
                 fuzz_draw(m, 6) ? "/config.json" : "",
                 by_tokens ? "max_tokens_per_micro" : "micro_batch_size",
                 fuzz_draw(m, 10) ? fuzz_edge(&m->random)
                 : by_tokens      ? "40"
                                  : "2");
  while (fuzz_draw(m, 2)) fuzz_bytes_add(&text, "%s", FUZZ_PICK(&m->random, keys));
  while (fuzz_draw(m, 4)) fuzz_spoil_text(&m->random, &text);
  fuzz_file_replace("config.yaml", text.at, text.count);
  fuzz_bytes_release(&text);
}

/* ---- Commands ------------------------------------------------------------------------------------------- */

void fuzz_make_grad(fuzz_making *m) {
  static const char *const layouts[] = {"hf",
                                        "hf",
                                        "megatron",
                                        "megatron:tp=1,pp=1",
                                        "fsdp2",
                                        "vllm",
                                        "megatron:dtype=fp32",
                                        "megatron:tp=2",
                                        "zero3",
                                        "hf:tp=1",
                                        "hf:dtype=fp16"};
  take_model(m);
  take_rows(m);
  fuzz_add(m, "grad");
  fuzz_add(m, fuzz_draw(m, 20) ? "in/config.json" : "in");
  fuzz_add(m, "--file=%s", fuzz_draw(m, 20) ? "none" : "rows.jsonl");
  fuzz_add(m, "--layout=%s", FUZZ_PICK(&m->random, layouts));
  if (fuzz_draw(m, 2))
    fuzz_add(m, "--dtype=%s", fuzz_draw(m, 8) ? "fp8" : fuzz_draw(m, 2) ? "bf16" : "fp32");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--micro-batch-size=%s", fuzz_draw(m, 8) ? fuzz_edge(&m->random) : "2");
  if (fuzz_draw(m, 4)) fuzz_add(m, "--recompute=%s", fuzz_draw(m, 8) ? "some" : "full");
  if (fuzz_draw(m, 6)) fuzz_add(m, "--sequence-parallel");
  if (fuzz_draw(m, 6)) fuzz_add(m, "--exact=off");
  if (fuzz_draw(m, 4)) fuzz_add(m, "--kernels=%s", fuzz_draw(m, 2) ? "plain" : "avx2");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--out=%s", fuzz_draw(m, 10) ? "in" : "grads.safetensors");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--json");
  if (fuzz_draw(m, 40)) m->run->limit = treadle_random_between(&m->random, 1, 3000);
}

/* Steps and rows of a step come last on the line, so that a spoiled configuration takes no time. */
void fuzz_make_sft(fuzz_making *m) {
  take_model(m);
  take_rows(m);
  take_config(m);
  fuzz_add(m, "sft");
  fuzz_add(m, fuzz_draw(m, 30) ? "none.yaml" : "config.yaml");
  if (fuzz_draw(m, 3))
    fuzz_add(m, "actor_config.%s=%s", fuzz_draw(m, 6) ? "min_lr" : "lr",
             fuzz_draw(m, 4) ? fuzz_edge(&m->random) : "1e-4");
  fuzz_add(m, "megatron_training.train_iters=%s", fuzz_draw(m, 20) ? "0" : "2");
  fuzz_add(m, "megatron_training.global_batch_size=%s", fuzz_draw(m, 20) ? "-1" : "2");
  if (fuzz_draw(m, 6)) fuzz_add(m, "--budget=%s", fuzz_draw(m, 2) ? "1MiB" : fuzz_edge(&m->random));
  if (fuzz_draw(m, 4)) {
    static const char *const ranks[] = {"1", "2", "3", "8", "1024", "0", "-1", "9223372036854775807"};
    fuzz_add(m, "--plan");
    fuzz_add(m, "--ranks=%s", FUZZ_PICK(&m->random, ranks));
  } else if (fuzz_draw(m, 6)) {
    fuzz_add(m, "--resume=%s", fuzz_draw(m, 2) ? "auto" : fuzz_draw(m, 2) ? "never" : "out/global_step_1");
  }
  if (fuzz_draw(m, 2)) fuzz_add(m, "--json");
  if (fuzz_draw(m, 40)) m->run->limit = treadle_random_between(&m->random, 1, 30000);
}

void fuzz_make_data(fuzz_making *m) {
  static const char *const noises[] = {"0", "1", "0.5", "-1", "nan", "2", ""};
  fuzz_add(m, "data");
  fuzz_add(m, fuzz_draw(m, 10) ? "sequences" : "sequence");
  fuzz_add(m, "--out=%s", fuzz_draw(m, 6) ? "none/out" : "out");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--noise=%s", FUZZ_PICK(&m->random, noises));
  if (fuzz_draw(m, 2)) fuzz_add(m, "--seed=%s", fuzz_draw(m, 3) ? fuzz_edge(&m->random) : "3");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--json");
  if (fuzz_draw(m, 10)) m->run->limit = treadle_random_between(&m->random, 1, 1 << 20);
}
