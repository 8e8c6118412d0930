/* Runs of train, eval, report and grad --loss grpo: small models and prompts, configurations, folders of a run, all of them spoiled at times. */
#include "commands/making.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Files ---------------------------------------------------------------------------------------------- */

/* Folder "in": a model with its tokenizer. */
static void take_model(fuzz_making *m) {
  int64_t engine = treadle_random_below(
      &m->random, fuzz_draw(m, 6) ? FUZZ_ENGINES : 2); /* the first ones can be trained */
  fuzz_folder_link(m->base->engines[engine], "in");
  while (fuzz_draw(m, 6)) fuzz_folder_spoil(&m->random, "in");
}

/* A line of the file: what spoiling leaves may be on many. */
static void add_line(const fuzz_bytes *line, fuzz_bytes *text) {
  json_t *object = json_loadb(line->at ? line->at : "", line->count, JSON_ALLOW_NUL, NULL);
  char *one = object ? json_dumps(object, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
  fuzz_bytes_add(text, "%s\n", one ? one : line->at ? line->at : "");
  json_decref(object);
  free(one);
}

static void take_prompts(fuzz_making *m) {
  static const char *const lines[] = {
      "{\"prompt\": \"1 2\", \"answer\": \"3 4\"}",
      "{\"prompt\": \"a\", \"answer\": \"#### 1,000\", \"data_source\": \"gsm8k\"}",
      "{\"prompt\": [{\"role\": \"user\", \"content\": \"b\"}], \"answer\": \"\\\\boxed{\\\\frac12}\"}",
      "{\"question\": \"Hello, you\", \"answer\": 7}",
      "{\"prompt\": \"\", \"answer\": \"\"}",
      "{\"prompt\": \"0123456789012345678901234567890123456789\", \"answer\": \"9\"}"};
  fuzz_bytes text = {0};
  bool spoils = fuzz_draw(m, 5);
  for (int64_t many = treadle_random_between(&m->random, 1, 5); many > 0; many--) {
    fuzz_bytes line = {0};
    fuzz_bytes_add(&line, "%s", lines[treadle_random_below(&m->random, fuzz_draw(m, 10) ? 6 : 3)]);
    if (spoils && fuzz_draw(m, 3)) fuzz_spoil_json(&m->random, &line);
    if (spoils && fuzz_draw(m, 4)) fuzz_spoil_text(&m->random, &line);
    add_line(&line, &text);
    fuzz_bytes_release(&line);
  }
  if (fuzz_draw(m, 30)) fuzz_spoil_bytes(&m->random, &text);
  fuzz_file_replace("prompts.jsonl", text.at, text.count);
  fuzz_bytes_release(&text);
}

static const char *const rewards[] = {"sequence", "gsm8k", "math", "length:target=4", "regex:[0-9]+"};
static const char *const bad_rewards[] = {"regex:(", "length", "length:target=0",
                                          "command", "",       "length:target=nan"};
static const char *const verifiers[] = {
    "cat", "true", "exit 3", "head -c 1 >/dev/null; echo {}",
    "while read -r line; do echo '{\"id\": \"1-0-0\", \"score\": 1}'; done"};

static const char *pick_reward(fuzz_making *m) {
  return fuzz_draw(m, 12) ? FUZZ_PICK(&m->random, bad_rewards) : FUZZ_PICK(&m->random, rewards);
}

static void take_config(fuzz_making *m) {
  static const char *const keys[] = {
      "  adv_estimator: rloo\n",
      "  adv_estimator: reinforce_plus_plus_baseline\n",
      "  use_kl_loss: true\n",
      "  use_kl_in_reward: true\n  kl_ctrl_type: adaptive\n",
      "  loss_agg_mode: seq-mean-token-sum-norm\n  norm_adv_by_std: false\n",
      "  mini_batch_size: 1\n  epochs: 2\n  shuffle_mini_batch: true\n",
      "  filter_groups_enable: true\n  filter_groups_max_batches: 2\n",
      "  overlong_buffer_enable: true\n  overlong_buffer: 2\n  rollout_max_tokens: 4\n",
      "  use_dynamic_bsz: true\n",
      "  entropy_coeff: 0.01\n",
      "  dump_rollouts: dump\n",
      "  val_n: 2\n",
      "  exact_check: 2\n",
      "  clip_ratio: ${generate_config.sampling_config.top_p}\n",
      "  prompt_key: question\n",
      "  too_long: leave_out\n",
      "  no_answer: leave_out\n",
      "  wrong_key: 1\n"};
  fuzz_bytes text = {0};
  fuzz_bytes_add(&text, "defaults: [x]\nmegatron_training:\n  data_path: prompts.jsonl\n  bf16: %s\n",
                 fuzz_draw(m, 2) ? "true" : "false");
  if (fuzz_draw(m, 3)) fuzz_bytes_add(&text, "  val_path: prompts.jsonl\n  test_interval: 1\n");
  if (fuzz_draw(m, 3)) fuzz_bytes_add(&text, "  save_interval: 1\n");
  fuzz_bytes_add(&text, "actor_config:\n  model: in\n  save: out\n  micro_batch_size: %s\n",
                 fuzz_draw(m, 20) ? fuzz_edge(&m->random) : "2");
  if (fuzz_draw(m, 6)) fuzz_bytes_add(&text, "  exact: false\n");
  fuzz_bytes_add(&text, "generate_config:\n");
  if (fuzz_draw(m, 2))
    fuzz_bytes_add(&text, "  offload_train_optimizer: true\n  offload_train_grad: %s\n",
                   fuzz_draw(m, 2) ? "true" : "false");
  if (fuzz_draw(m, 4))
    fuzz_bytes_add(&text, "  device_memory: %s\n", fuzz_draw(m, 2) ? fuzz_edge(&m->random) : "64MiB");
  if (fuzz_draw(m, 6))
    fuzz_bytes_add(&text, "  gpu_memory_utilization: %s\n",
                   fuzz_draw(m, 2) ? fuzz_edge(&m->random) : "0.5");
  fuzz_bytes_add(
      &text,
      "  sampling_config: {max_tokens: %s, top_p: 0.9}\nrl_config:\n  verifier_function: [\"%s\"%s]\n",
      fuzz_draw(m, 20) ? fuzz_edge(&m->random) : "4", FUZZ_PICK(&m->random, rewards),
      fuzz_draw(m, 4) ? ", sequence" : "");
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) /* the last two are wrong with these prompts */
    if (fuzz_draw(m, i + 3 < sizeof keys / sizeof *keys ? 5 : 25)) fuzz_bytes_add(&text, "%s", keys[i]);
  while (fuzz_draw(m, 6)) fuzz_spoil_text(&m->random, &text);
  fuzz_file_replace("config.yaml", text.at, text.count);
  fuzz_bytes_release(&text);
}

/* One file of a run's folder: lines of JSON, spoiled at times. */
static void take_run_file(fuzz_making *m, const char *name, const char *line, int lines) {
  fuzz_bytes text = {0};
  if (fuzz_draw(m, 15)) return;
  for (int i = 0; i < lines; i++) {
    fuzz_bytes one = {0};
    fuzz_bytes_add(&one, "%s", line);
    while (fuzz_draw(m, 8)) fuzz_spoil_json(&m->random, &one);
    add_line(&one, &text);
    fuzz_bytes_release(&one);
  }
  while (fuzz_draw(m, 20)) fuzz_spoil_text(&m->random, &text);
  if (fuzz_draw(m, 40)) fuzz_spoil_bytes(&m->random, &text);
  fuzz_file_replace(name, text.at, text.count);
  fuzz_bytes_release(&text);
}

/* ---- Commands ------------------------------------------------------------------------------------------- */

/* Steps, prompts and samples of a step come last on the line, so that a spoiled configuration takes no time; so does the command
 * that scores, which nothing may spoil. */
void fuzz_make_train(fuzz_making *m) {
  take_model(m);
  take_prompts(m);
  take_config(m);
  fuzz_add(m, "train");
  fuzz_add(m, fuzz_draw(m, 30) ? "none.yaml" : "config.yaml");
  if (fuzz_draw(m, 8)) {
    fuzz_add(m, "rl_config.verifier_function=[command]");
    fuzz_add(m, "rl_config.verifier_command=%s", FUZZ_PICK(&m->random, verifiers));
    fuzz_add(m, "rl_config.verifier_timeout=%s", fuzz_draw(m, 4) ? "0" : "0.5");
  }
  fuzz_add(m, "megatron_training.train_iters=%s", fuzz_draw(m, 20) ? "0" : "2");
  fuzz_add(m, "megatron_training.global_batch_size=%s", fuzz_draw(m, 20) ? "-1" : "1");
  fuzz_add(m, "rl_config.n_samples_per_prompt=%s", fuzz_draw(m, 20) ? "1" : "2");
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

void fuzz_make_eval(fuzz_making *m) {
  take_model(m);
  take_prompts(m);
  fuzz_add(m, "eval");
  fuzz_add(m, fuzz_draw(m, 20) ? "in/config.json" : "in");
  fuzz_add(m, "--data=%s", fuzz_draw(m, 20) ? "in" : "prompts.jsonl");
  fuzz_add(m, "--reward=%s", pick_reward(m));
  fuzz_add(m, "--max-new-tokens=%s", fuzz_draw(m, 12) ? "0" : "5");
  fuzz_add(m, "--n=%s", fuzz_draw(m, 12) ? "-1" : fuzz_draw(m, 2) ? "1" : "3");
  if (fuzz_draw(m, 3)) fuzz_add(m, "--temperature=%s", fuzz_draw(m, 4) ? fuzz_edge(&m->random) : "0");
  if (fuzz_draw(m, 8)) fuzz_add(m, "--reward-command=%s", FUZZ_PICK(&m->random, verifiers));
  if (fuzz_draw(m, 6)) fuzz_add(m, "--prompt-key=question");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--json");
}

void fuzz_make_report(fuzz_making *m) {
  fuzz_folder_make("out");
  take_run_file(
      m, "out/metrics.jsonl",
      "{\"step\": 1, \"critic/rewards/mean\": 0.5, \"actor/entropy\": 1.25, \"response_length/mean\": 7, "
      "\"timing_s/gen\": 0.5, "
      "\"timing_s/step\": 1.5, \"memory/kv_peak\": 4096, \"val-core/sequence/reward/mean@2\": 0.25}",
      3);
  take_run_file(m, "out/samples.jsonl",
                "{\"step\": 1, \"prompt\": \"1 2\", \"completion\": \"<b>3\", \"answer\": \"3\", "
                "\"score\": 0.5, \"advantage\": -1}",
                2);
  take_run_file(m, "out/config.yaml", "{\"rl_config\": {\"epochs\": 1}}", 1);
  take_run_file(m, "out/memory.json",
                "{\"rank\": 0, \"predicted_bytes\": 9000, \"budget_bytes\": 10000, \"classes\": "
                "[\"params\", \"kv\"], \"points\": ["
                "{\"seconds\": 0.0, \"stage\": \"gen\", \"bytes\": [4096, 4096]}, {\"seconds\": 1.5, "
                "\"stage\": \"<a>\", \"bytes\": [8192, 0]}]}",
                1);
  take_run_file(m, "out/switch.json",
                "{\"train\": \"megatron:tp=2\", \"infer\": \"vllm\", \"ranks\": 2, \"moved_bytes\": 30, "
                "\"lower_bound_bytes\": 30, "
                "\"inbound\": [[0, 10], [20, 0]]}",
                1);
  take_run_file(m, "out/trace.jsonl",
                "{\"rank\": 1, \"role\": \"Critic\", \"method\": \"update_critic\", \"step\": 1, "
                "\"start\": 0.5, \"end\": 1.25, \"bytes_before\": 4096, \"bytes_after\": 8192}",
                3);
  fuzz_add(m, "report");
  fuzz_add(m, fuzz_draw(m, 30) ? "in" : "out");
  if (fuzz_draw(m, 3)) fuzz_add(m, "--out=%s", fuzz_draw(m, 6) ? "none/page.html" : "page.html");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--trace=%s", fuzz_draw(m, 6) ? "none/trace.json" : "trace.json");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--json");
  if (fuzz_draw(m, 10)) m->run->limit = treadle_random_between(&m->random, 1, 20000);
}

void fuzz_make_grad_grpo(fuzz_making *m) {
  take_model(m);
  take_config(m);
  take_run_file(
      m, "1.jsonl",
      "{\"uid\": \"1-0-0\", \"prompt\": \"1 2\", \"completion\": \"3\", \"answer\": \"3\", "
      "\"prompt_ids\": [1, 2, 3], \"ids\": [4, 2], \"rollout_log_probs\": [-1, -2.5], "
      "\"old_log_probs\": [-1, -2.5], \"ref_log_probs\": [-1.5, -2], \"log_probs\": [-1, -2], "
      "\"score\": 0.5, \"reward\": 0.25, \"advantage\": -1, \"mini_batch\": 0, \"entropies\": [1, 0.5], "
      "\"advantages\": [-1, 1], \"kl_coef\": 0.1}",
      (int)treadle_random_between(&m->random, 1, 3));
  fuzz_add(m, "grad");
  fuzz_add(m, fuzz_draw(m, 20) ? "in/config.json" : "in");
  fuzz_add(m, "--loss=grpo");
  fuzz_add(m, "--config=%s", fuzz_draw(m, 20) ? "none.yaml" : "config.yaml");
  fuzz_add(m, "--file=%s", fuzz_draw(m, 20) ? "none" : "1.jsonl");
  if (fuzz_draw(m, 4)) fuzz_add(m, "--mini-batch=%s", fuzz_draw(m, 4) ? fuzz_edge(&m->random) : "1");
  if (fuzz_draw(m, 4)) fuzz_add(m, "--dtype=%s", fuzz_draw(m, 2) ? "bf16" : "fp32");
  if (fuzz_draw(m, 2)) fuzz_add(m, "--json");
  if (fuzz_draw(m, 10)) m->run->limit = treadle_random_between(&m->random, 1, 20000);
}
