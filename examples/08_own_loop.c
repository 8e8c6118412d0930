/* A loop of one's own, by hand: GRPO as examples/grpo-demo.yaml has it. With 8 ranks and 260 steps, as there, it ends
 * with the weights of `make demo`, bit for bit. `treadle data sequence --out DATA --noise 0.3 --seed 1` makes the data.
 *
 *   mpirun -n 8 example_own_loop examples/sequence/policy examples/sequence DATA/train.jsonl 260 */
#include <treadle_loop.h>

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void must(treadle_status status) {
  if (!status) return;
  fprintf(stderr, "%s\n", treadle_error_message());
  _exit(1); /* without MPI_Finalize: the others are told by treadle */
}

enum { PROMPTS = 32, SAMPLES = 8, ANSWER_TOKENS = 22, SEED = 1234 };

typedef struct loop {
  treadle_group *group;
  treadle_actor *actor;
  treadle_tokenizer *tokenizer;
  treadle_reward *reward;
  treadle_batch *prompts;
  int rank;
  int64_t steps;
} loop;

/* The samples of a step, on all ranks: prompts and their answers, with scores and advantages. */
static treadle_batch *draw(loop *l, int64_t step, double *score_p) {
  treadle_draw_options of_step = {
      .struct_size = sizeof of_step, .step = step, .count = PROMPTS, .seed = SEED, .sampling_seed = SEED};
  treadle_sampling sampling = TREADLE_SAMPLING_INIT;
  treadle_batch *asked, *mine, *made, *answers, *samples;
  bool leads;
  sampling.n = SAMPLES;
  sampling.max_tokens = ANSWER_TOKENS;
  sampling.logprobs_of = TREADLE_LOGPROBS_SCALED;
  must(treadle_prompts_draw(l->prompts, &of_step, &asked));
  must(treadle_actor_slice_prompts(l->actor, asked, NULL, &leads, &mine)); /* a replica's own */
  must(treadle_actor_generate_sequences(l->actor, mine, &sampling, NULL, &made));
  must(treadle_batch_gather(l->group, leads ? made : NULL, &answers));
  must(treadle_batch_repeat(asked, SAMPLES, true, &samples));
  must(treadle_batch_union(samples, answers));
  must(treadle_tokenizer_decode_rows(l->tokenizer, samples, "ids", "completion"));
  must(treadle_reward_score(l->reward, samples));
  must(treadle_advantages(samples, NULL));
  treadle_column score = TREADLE_INIT(treadle_column);
  must(treadle_batch_column(samples, "score", &score));
  *score_p = 0;
  for (int64_t i = 0; i < PROMPTS * SAMPLES; i++)
    *score_p += ((double *)score.data)[i] / (PROMPTS * SAMPLES);
  treadle_batch_destroy(asked);
  treadle_batch_destroy(mine);
  treadle_batch_destroy(made);
  treadle_batch_destroy(answers);
  return samples;
}

static void take_step(loop *l, int64_t number) {
  const treadle_forward_options forward = {
      .struct_size = sizeof forward, .micro_batch_size = 16, .temperature = 1};
  const treadle_loss_options loss = {
      .struct_size = sizeof loss, .name = "ppo", .clip_low = 0.2, .clip_high = 0.2, .clip_c = 3};
  const treadle_lr_options rate = {
      .struct_size = sizeof rate, .style = "linear", .lr = 4e-4, .steps = l->steps};
  treadle_optimizer_step step = {.struct_size = sizeof step, .weight_decay = 0.01, .clip_grad = 1};
  treadle_optimizer_figures figures = TREADLE_INIT(treadle_optimizer_figures);
  treadle_batch *mine;
  double score;
  treadle_batch *samples = draw(l, number, &score);
  must(treadle_learning_rate(&rate, number, &step.lr));
  must(
      treadle_actor_slice(l->actor, samples, &forward, NULL, &mine)); /* a data parallel coordinate's own */
  must(treadle_actor_update(l->actor, mine, &forward, &loss, &step, NULL, &figures));
  if (l->rank == 0)
    printf("step %lld: score %.4f, loss %.4g, norm %.4g\n", (long long)number + 1, score, figures.loss.loss,
           figures.grad_norm);
  treadle_batch_destroy(mine);
  treadle_batch_destroy(samples);
}

int main(int count, char **texts) {
  loop l = {0};
  treadle_model *model;
  treadle_layout *train, *infer;
  treadle_chat *chat;
  uint64_t digest;
  MPI_Init(&count, &texts);
  if (count != 5)
    return fprintf(stderr, "usage: mpirun -n 8 %s POLICY TOKENIZER PROMPTS STEPS\n", texts[0]), 2;
  l.steps = atoll(texts[4]);
  must(treadle_group_mpi(NULL, 600, &l.group));
  l.rank = treadle_group_rank(l.group);
  must(treadle_model_open(texts[1], NULL, &model));
  must(treadle_layout_create(model, "megatron:tp=2,pp=2", treadle_group_size(l.group), NULL, &train));
  must(treadle_layout_create(model, "vllm:tp=1", treadle_group_size(l.group), NULL, &infer));
  const treadle_trainer_options trainer = {.struct_size = sizeof trainer, .optimizer = true};
  const treadle_actor_options options = {
      .struct_size = sizeof options, .trainer = &trainer, .kv_bytes = 16 << 20, .timeout_seconds = 600};
  must(treadle_actor_create(l.group, train, infer, &options, &l.actor));
  must(treadle_actor_load(l.actor));
  must(treadle_tokenizer_open(texts[2], &l.tokenizer));
  must(treadle_chat_find(texts[2], &chat));
  const treadle_prompts_options prompts = {
      .struct_size = sizeof prompts, .path = texts[3], .tokenizer = l.tokenizer, .chat = chat};
  must(treadle_prompts_read(&prompts, &l.prompts));
  const treadle_reward_options reward = {.struct_size = sizeof reward, .name = "sequence"};
  must(treadle_reward_create(&reward, &l.reward));
  for (int64_t step = 0; step < l.steps; step++) take_step(&l, step);
  must(treadle_actor_weights_digest(l.actor, &digest));
  if (l.rank == 0) printf("weights %016llx\n", (unsigned long long)digest);
  treadle_actor_destroy(l.actor);
  treadle_group_close(l.group);
  MPI_Finalize();
  return 0;
}
