/* Options: one table for all subcommands. A row says which subcommands take it and which need it, so
 * parsing, refusals and help come from the same lines. */
#include "cli/cli.h"

#include "base/text.h"

#include <stdlib.h>
#include <string.h>

typedef enum option_type { FLAG, TEXT, TEXTS, SIZE, COUNT, SECONDS, WORD } option_type;

typedef struct option_row {
  const char *name;  /* without the dashes */
  const char *value; /* how the help names the value; "" for a flag */
  const char *about;
  option_type type;
  size_t at; /* in treadle_arguments */
  unsigned takes, needs;
  int64_t low;          /* of a COUNT */
  const char *words[5]; /* of a WORD: its number is its position */
  const char *bare;     /* of a WORD: what the option without "=value" means; NULL: a value is needed */
  int64_t
      high; /* of a COUNT, beyond which no table of them is made; 0: none, the library says what it takes */
} option_row;

#define AT(field) offsetof(treadle_arguments, field)

enum {
  LAYOUTS = TREADLE_IN_PLAN | TREADLE_IN_LAYOUT | TREADLE_IN_SWITCH,
  SWITCHES = TREADLE_IN_PLAN | TREADLE_IN_SWITCH,
  GENERATE = TREADLE_IN_GENERATE,
  ENGINES = TREADLE_IN_GENERATE | TREADLE_IN_SCORE,
  WEIGHTS =
      ENGINES | TREADLE_IN_SWITCH | TREADLE_IN_GRAD | TREADLE_IN_SFT | TREADLE_IN_TRAIN | TREADLE_IN_EVAL
};

/* clang-format off */
static const option_row rows[] = {
  {"model", "DIR|config.json", "the model: a Hugging Face folder, or a config.json alone, which has no weights",
   TEXT, AT(model.path), LAYOUTS | ENGINES, LAYOUTS | ENGINES, 0, {0}, NULL, 0},
  {"model", "DIR", "the Hugging Face folder of the model, which has the tokenizer and the chat template", TEXT, AT(model.path), TREADLE_IN_TOKENIZE, 0, 0, {0}, NULL, 0},
  {"model", "DIR|config.json", "the Hugging Face model that IN holds (default: the model that IN itself describes)", TEXT, AT(model.path), TREADLE_IN_CONVERT, 0, 0, {0}, NULL, 0},
  {"model", "config.json", "with check and new: the config.json that belongs to LIST.tsv", TEXT, AT(model.path), TREADLE_IN_FAMILY, 0, 0, {0}, NULL, 0},
  {"model", "config.json", "take the structure of the model from this file; then --family, --layers, --hidden, --vocab and --dtype have no effect", TEXT, AT(model.path), TREADLE_IN_MAKE_MODEL, 0, 0, {0}, NULL, 0},
  {"weights", "auto|files|random", "where the weights come from. files: the model's files; random: made-up values; auto: files for a folder, random for a config.json (default: auto)",
   WORD, AT(model.weights), WEIGHTS, 0, 0, {"auto", "files", "random", NULL}, NULL, 0},
  {"tokenizer", "FILE", "the tokenizer: a tokenizer.json, a folder that has one, a vocab.json with merges.txt beside it, or a *.bin of llama2.c (default: the tokenizer in the model's folder)",
   TEXT, AT(text.tokenizer), TREADLE_IN_TOKENIZE | ENGINES | TREADLE_IN_GRAD | TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"text", "TEXT", "the text to turn into tokens", TEXT, AT(tokenize.text), TREADLE_IN_TOKENIZE, 0, 0, {0}, NULL, 0},
  {"ids", "1,2,...", "the token ids to turn into text, separated by commas", TEXT, AT(tokenize.ids), TREADLE_IN_TOKENIZE, 0, 0, {0}, NULL, 0},
  {"special", "on|off", "on: add special tokens, such as the start token, to a text, and print those among the ids; off: do neither (default: on)",
   WORD, AT(tokenize.special), TREADLE_IN_TOKENIZE, 0, 0, {"on", "off", NULL}, NULL, 0},
  {"scale-down", "N", "shrink the model to at most N million parameters, but keep its structure; no weights are read",
   COUNT, AT(model.scale_down), LAYOUTS | TREADLE_IN_FAMILY | TREADLE_IN_INSPECT | TREADLE_IN_MAKE_MODEL, 0, 1, {0}, NULL, 0},
  {"from", "LAYOUT", "the layout before the switch, for example megatron:tp=4,pp=2", TEXT, AT(layouts.from), TREADLE_IN_PLAN, TREADLE_IN_PLAN, 0, {0}, NULL, 0},
  {"from", "LAYOUT", "the layout of IN, from the list above", TEXT, AT(layouts.from), TREADLE_IN_CONVERT, TREADLE_IN_CONVERT, 0, {0}, NULL, 0},
  {"to", "LAYOUT", "the layout after the switch, for example vllm:tp=2", TEXT, AT(layouts.to), TREADLE_IN_PLAN, TREADLE_IN_PLAN, 0, {0}, NULL, 0},
  {"to", "LAYOUT", "the layout of OUT, from the list above", TEXT, AT(layouts.to), TREADLE_IN_CONVERT, TREADLE_IN_CONVERT, 0, {0}, NULL, 0},
  {"train", "LAYOUT", "the training layout, for example megatron:tp=4,pp=2", TEXT, AT(layouts.train), TREADLE_IN_SWITCH, TREADLE_IN_SWITCH, 0, {0}, NULL, 0},
  {"train", "LAYOUT", "the training layout, which --rank-map strided and best depend on", TEXT, AT(layouts.train), TREADLE_IN_LAYOUT, 0, 0, {0}, NULL, 0},
  {"train", "LAYOUT", "load the weights in this training layout, and then switch them to --layout (default: load them in --layout)", TEXT, AT(layouts.train), ENGINES, 0, 0, {0}, NULL, 0},
  {"infer", "LAYOUT", "the inference layout, for example vllm:tp=2", TEXT, AT(layouts.infer), TREADLE_IN_SWITCH, TREADLE_IN_SWITCH, 0, {0}, NULL, 0},
  {"layout", "LAYOUT", "the layout to print, for example vllm:tp=2", TEXT, AT(layout.shown), TREADLE_IN_LAYOUT, TREADLE_IN_LAYOUT, 0, {0}, NULL, 0},
  {"layout", "LAYOUT", "the layout of the weights while the engine computes (default: vllm:tp=1)", TEXT, AT(layouts.engine), GENERATE | TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"layout", "LAYOUT", "the layout of the weights while the engine computes (default: hf)", TEXT, AT(layouts.engine), TREADLE_IN_SCORE | TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"ranks", "N", "the number of ranks", COUNT, AT(ranks.count), TREADLE_IN_PLAN | TREADLE_IN_LAYOUT, TREADLE_IN_PLAN | TREADLE_IN_LAYOUT, 1, {0}, NULL, 0},
  {"ranks", "N", "with --plan: the number of ranks", COUNT, AT(ranks.count), TREADLE_IN_SFT, 0, 1, {0}, NULL, 0},
  {"ranks", "N", "with --plan or --meet: the number of ranks", COUNT, AT(ranks.count), TREADLE_IN_TRAIN, 0, 1, {0}, NULL, 0},
  {"nodes", "N", "divide the ranks into N nodes (machines) of equal size, in rank order, and print the bytes that nodes send each other (default: all ranks on one node)", COUNT, AT(ranks.nodes), TREADLE_IN_PLAN, 0, 1, {0}, NULL, 0},
  {"nodes", "N", "for --rank-map best: divide the ranks into N nodes (machines) of equal size, in rank order (default: all ranks on one node)", COUNT, AT(ranks.nodes), TREADLE_IN_LAYOUT, 0, 1, {0}, NULL, 0},
  {"rank", "R", "print the figures of rank R alone; ranks count from 0 (default: all ranks)", COUNT, AT(ranks.rank), TREADLE_IN_PLAN, 0, 0, {0}, NULL, 0},
  {"rank", "R", "the rank to print; ranks count from 0", COUNT, AT(ranks.rank), TREADLE_IN_LAYOUT, TREADLE_IN_LAYOUT, 0, {0}, NULL, 0},
  {"rank-map", "contiguous|strided|best", "how the places of the inference layout are assigned to ranks. contiguous: in rank order, as vLLM does; strided: with the stride train tp / infer tp, as MindSpeed does; best: the order in which the busiest rank receives the fewest bytes (default: contiguous)",
   WORD, AT(ranks.map), LAYOUTS, 0, 0, {"contiguous", "strided", "best", NULL}, NULL, 0},
  {"cycles", "N", "switch to inference and back N times (default: 3); with 0, switch once, to inference only", COUNT, AT(switching.cycles), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 1000000},
  {"update", "N", "after the first switch, change the training weights and update the inference weights, N times; the training weights stay on the device, and no pages are shared (default: 0)", COUNT, AT(switching.update), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 1000000},
  {"cap", "SIZE", "memory per rank that a switch may use beyond the larger of the training and inference weights (default: 256MiB, with --device cuda 1GiB, or the smallest possible cap if that is larger)",
   SIZE, AT(memory.cap_bytes), SWITCHES, 0, 0, {0}, NULL, 0},
  {"page-size", "SIZE", "size of a memory page, a power of two from 4KiB to 1TiB (default: 2MiB; with --device cuda 4MiB, and 2MiB is the smallest)", SIZE, AT(memory.page_bytes), SWITCHES, 0, 0, {0}, NULL, 0},
  {"budget", "SIZE", "memory of each rank; say whether the switch fits into it, and if not, what would make it fit (default: unlimited)", SIZE, AT(memory.budget_bytes), TREADLE_IN_PLAN, 0, 0, {0}, NULL, 0},
  {"budget", "SIZE", "memory of each rank's pool; if the switch needs more, it is refused (default: what the switch needs)", SIZE, AT(memory.budget_bytes), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"budget", "SIZE", "memory of each rank; if the run needs more, it is refused before it starts (default: unlimited)", SIZE, AT(memory.budget_bytes), TREADLE_IN_SFT, 0, 0, {0}, NULL, 0},
  {"device", "cpu|cuda[:I]|auto", "where the weights are. cpu: in host memory; cuda: on CUDA devices, of which the ranks of a machine take one each, in turn; cuda:I: all ranks on device I; auto: cuda, or cpu where there is no CUDA device (default: cpu)",
   TEXT, AT(memory.device), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"device", "cpu|cuda[:I]|auto", "which device the plan is for; on cuda, pages are 4MiB and the cap is 1GiB, unless --page-size and --cap say otherwise; auto: cuda where there is a CUDA device (default: cpu)",
   TEXT, AT(memory.device), TREADLE_IN_PLAN, 0, 0, {0}, NULL, 0},
  {"alias", "on|off", "on: if a page has the same bytes in both layouts, share it; off: copy every page (default: on)",
   WORD, AT(memory.alias), SWITCHES, 0, 0, {"on", "off", NULL}, NULL, 0},
  {"double", "on|off", "on: --update keeps two versions of the inference weights, and serves the old one until the new one is complete; off: it overwrites the old version (default: off)", WORD, AT(switching.doubles), TREADLE_IN_SWITCH, 0, 0, {"off", "on", NULL}, NULL, 0},
  {"delta", "on|off", "on: between nodes, --update sends only the values that have changed since the previous update; off: it sends all values (default: off)", WORD, AT(switching.delta), TREADLE_IN_SWITCH, 0, 0, {"off", "on", NULL}, NULL, 0},
  {"changed", "F", "with --update: the share of the weights that changes before each update, from 0 to 1, chosen at random (default: the sign of every weight changes)", TEXT, AT(switching.changed), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"offload", "LIST", "what leaves the device during inference, separated by commas. params: weights; grads: gradients, which are dropped; grads=keep: gradients, which move to host memory; optimizer: optimizer state, which moves to host memory; none: nothing leaves (default: params; ranks hold no gradients or optimizer state)",
   TEXT, AT(switching.offload), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"keep", "infer|host", "host: keep a copy of the training weights in host memory during inference; infer: keep no copy, and rebuild them from the inference weights (default: infer)",
   WORD, AT(switching.keep), TREADLE_IN_SWITCH, 0, 0, {"infer", "host", NULL}, NULL, 0},
  {"own", "none|train|infer|both", "which weights are in each rank's own memory, outside treadle's pool: none, train, infer, or both (default: none)",
   WORD, AT(switching.own), TREADLE_IN_SWITCH, 0, 0, {"none", "train", "infer", "both", NULL}, NULL, 0},
  {"forward", "", "on the way back to training, stop in forward mode: the training weights are back, and offloaded gradients and optimizer state are not", FLAG, AT(switching.forward), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"fault", "SPEC", "make one rank or node fail, to see what the other ranks report; SPEC is described above",
   TEXT, AT(switching.fault), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"timeline", "FILE.svg", "draw the device memory over time, of the rank that uses most, into this SVG file", TEXT, AT(switching.timeline), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"handle-file", "FILE", "after the first switch to inference, each rank writes FILE.RANK; with that file, treadle attach finds the rank's weights", TEXT, AT(switching.handle_file), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"wait", "VERSION", "wait until the weights have this version or a later one (default: any version)", COUNT, AT(attach.wait), TREADLE_IN_ATTACH, 0, 0, {0}, NULL, 0},
  {"timeout", "SECONDS", "seconds to wait for the switch's process and for the version (default: 60)", SECONDS, AT(attach.timeout_seconds), TREADLE_IN_ATTACH, 0, 0, {0}, NULL, 0},
  {"meet", "ADDRESS:PORT", "start without a launcher: rank 0 listens on this address of its machine, and the other ranks connect to it; needs --job, --rank and --ranks, except under torchrun",
   TEXT, AT(switching.meet), TREADLE_IN_SWITCH | TREADLE_IN_TRAIN, 0, 0, {0}, NULL, 0},
  {"job", "NAME", "with --meet: a name for this run; all its ranks give the same name, and other runs use other names", TEXT, AT(switching.job), TREADLE_IN_SWITCH | TREADLE_IN_TRAIN, 0, 0, {0}, NULL, 0},
  {"rank", "R", "with --meet: the number of this rank, from 0", COUNT, AT(ranks.rank), TREADLE_IN_SWITCH | TREADLE_IN_TRAIN, 0, 0, {0}, NULL, 0},
  {"ranks", "N", "with --meet: the number of ranks", COUNT, AT(ranks.count), TREADLE_IN_SWITCH, 0, 1, {0}, NULL, 0},
  {"net", "tcp|ucx", "how nodes send each other bytes. tcp: sockets; ucx: the library UCX, for example over InfiniBand (default: tcp)", WORD, AT(switching.net), TREADLE_IN_SWITCH | TREADLE_IN_TRAIN, 0, 0, {"tcp", "ucx", NULL}, NULL, 0},
  {"net-devices", "LIST", "network devices to use between nodes, for example eth0,eth1 (default: the device with the address where the ranks met)", TEXT, AT(switching.net_devices), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"nodes", "N|A,B,...", "A,B,...: the slots of each node (machine), a slot for each process that could be started there, without the controller; N: the slots that the pools ask for are on N nodes of equal size (default: all on one node)",
   TEXT, AT(pools.nodes), TREADLE_IN_POOLS, 0, 0, {0}, NULL, 0},
  {"nodes", "N|A,B,...|auto", "N: divide the ranks into N nodes of equal size, in rank order; A,B,...: into nodes of these sizes; auto: each machine is a node (default: auto)",
   TEXT, AT(switching.nodes), TREADLE_IN_SWITCH | TREADLE_IN_TRAIN, 0, 0, {0}, NULL, 0},
  {"timeout", "SECONDS", "seconds that a rank waits for the other ranks before the switch fails (default: 60)", SECONDS, AT(switching.timeout_seconds), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"timeout", "SECONDS", "with --meet: seconds that the ranks wait for each other to come (default: 600)", SECONDS, AT(switching.timeout_seconds), TREADLE_IN_TRAIN, 0, 0, {0}, NULL, 0},
  {"check", "", "compare every byte of the weights in both layouts; --check=prove also makes mistakes on purpose, and fails unless each one is detected",
   WORD, AT(switching.check), TREADLE_IN_SWITCH, 0, 0, {"off", "on", "prove", NULL}, "on", 0},
  {"check", "", "compare the values and files of a run's checkpoints with their digests.json; DIR is the run's folder or one global_step_K", WORD, AT(inspect.check), TREADLE_IN_INSPECT, 0, 0, {"off", "on", NULL}, "on", 0},
  {"check", "", "compare each log-probability with the logprobs in the line, bit for bit", WORD, AT(score.check), TREADLE_IN_SCORE, 0, 0, {"off", "on", NULL}, "on", 0},
  {"file", "IN.jsonl", "the requests, one JSON object a line", TEXT, AT(files.in), GENERATE, 0, 0, {0}, NULL, 0},
  {"file", "IN.jsonl", "the texts to score, one JSON object a line", TEXT, AT(files.in), TREADLE_IN_SCORE, TREADLE_IN_SCORE, 0, {0}, NULL, 0},
  {"file", "IN.jsonl", "the texts, chats or token ids to turn, one JSON object a line", TEXT, AT(files.in), TREADLE_IN_TOKENIZE, 0, 0, {0}, NULL, 0},
  {"file", "IN.jsonl", "the rows, one JSON object a line, or one JSON list", TEXT, AT(files.in), TREADLE_IN_GRAD, TREADLE_IN_GRAD, 0, {0}, NULL, 0},
  {"prompt", "TEXT", "the prompt, as text", TEXT, AT(generate.prompt), GENERATE, 0, 0, {0}, NULL, 0},
  {"chat", "", "treat each text as a user's message, and apply the model's chat template", FLAG, AT(text.chat), GENERATE | TREADLE_IN_TOKENIZE, 0, 0, {0}, NULL, 0},
  {"prompt-ids", "1,2,...", "the prompt, as token ids separated by commas", TEXT, AT(generate.prompt_ids), GENERATE, 0, 0, {0}, NULL, 0},
  {"out", "F.jsonl", "write the results to this file, one line of JSON each (default: standard output; with --json, nowhere)", TEXT, AT(files.out), ENGINES, 0, 0, {0}, NULL, 0},
  {"out", "F.html", "write the HTML page to this file (default: RUN/report.html)", TEXT, AT(files.out), TREADLE_IN_REPORT, 0, 0, {0}, NULL, 0},
  {"trace", "F.json", "write who worked when (RUN/trace.jsonl) to this file, which ui.perfetto.dev and chrome://tracing open", TEXT, AT(files.trace), TREADLE_IN_REPORT, 0, 0, {0}, NULL, 0},
  {"out", "DIR", "write train.jsonl, test.jsonl and sft.jsonl into this folder", TEXT, AT(files.out), TREADLE_IN_DATA, TREADLE_IN_DATA, 0, {0}, NULL, 0},
  {"noise", "Q", "probability, from 0 to 1, that a number of an answer in sft.jsonl is replaced by a random digit (default: 0.3)", TEXT, AT(data.noise), TREADLE_IN_DATA, 0, 0, {0}, NULL, 0},
  {"out", "F.safetensors", "write the gradients to this file, as fp32, under the Hugging Face names of the weights", TEXT, AT(files.out), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"loss", "nll|grpo", "nll: the mean of -log p over the tokens that count; grpo: the loss of --config, on samples that a run has dumped (default: nll)", WORD, AT(grad.loss), TREADLE_IN_GRAD, 0, 0, {"nll", "grpo", NULL}, NULL, 0},
  {"config", "FILE", "take model, layouts, ranks, nodes and cap from this configuration of a run of MindSpeed-RL, RLinf or verl; options go before it", TEXT, AT(plan.config), TREADLE_IN_PLAN, 0, 0, {0}, NULL, 0},
  {"config", "CONFIG.yaml", "with --loss grpo: the configuration of the run that dumped the samples", TEXT, AT(grad.config), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"mini-batch", "K", "with --loss grpo: the number of the mini batch in the file, from 0 (default: 0)", COUNT, AT(grad.mini_batch), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"micro-batch-size", "M", "number of rows that go through the layers together (default: 1)", COUNT, AT(grad.micro_batch), TREADLE_IN_GRAD, 0, 1, {0}, NULL, 65536},
  {"ulysses", "N", "N data parallel ranks take the same rows and divide their tokens (Ulysses); a layout with cp= does so by itself (default: 1)", COUNT, AT(grad.ulysses), TREADLE_IN_GRAD, 0, 1, {0}, NULL, 1024},
  {"aux-loss-coeff", "C", "of models with experts: add the loss that keeps experts evenly loaded, times C, to the gradients (default: 0)", TEXT, AT(grad.aux_loss_coeff), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"seq-aux-loss", "", "with --aux-loss-coeff: that loss is of each row by itself, and the mean over the rows of a micro batch", FLAG, AT(grad.seq_aux_loss), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"z-loss-coeff", "C", "of models with experts: add the z loss of routers, times C, to the gradients (default: 0)", TEXT, AT(grad.z_loss_coeff), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"experts", "F.jsonl", "of models with experts: send tokens to the experts of this file, a line for each row, as score --experts and --write-experts write them", TEXT, AT(grad.experts), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"write-experts", "F.jsonl", "of models with experts: write those that each token chose by itself to this file, a line for each row", TEXT, AT(grad.write_experts), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"lora-rank", "R", "train adapters of this rank in place of the weights, and print and write their gradients (default: 0, the weights train)", COUNT, AT(grad.lora_rank), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 1024},
  {"lora-alpha", "A", "with --lora-rank: the product of the adapters is multiplied by A / R (default: 16)", TEXT, AT(grad.lora_alpha), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"target-modules", "LIST", "with --lora-rank: the names of the matrices that have adapters, separated by commas (default: all of layers, but routers and single experts; lm_head is the head)", TEXT, AT(grad.lora_modules), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"lora", "DIR", "with --lora-rank: begin with the adapters of this folder, as peft writes it", TEXT, AT(grad.lora_adapter), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"sequence-parallel", "", "split the activations kept for backward among the tensor parallel ranks (Megatron's sequence parallelism)", FLAG, AT(grad.sequence_parallel), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"recompute", "none|full", "full: save memory by computing each layer again in backward; none: keep its activations (default: none)",
   WORD, AT(grad.recompute), TREADLE_IN_GRAD, 0, 0, {"none", "full", NULL}, NULL, 0},
  {"dtype", "fp32|bf16", "data type to compute in (default: dtype= of the layout; without it, the type of the model's files)", TEXT, AT(grad.dtype), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"resume", "auto|never|DIR", "resume the run. auto: from its newest checkpoint, or from the start if it has none; DIR/global_step_K: from this checkpoint; never: refuse to start if the folder has checkpoints (default: never; --resume alone: auto)",
   TEXT, AT(run.resume), TREADLE_IN_SFT | TREADLE_IN_TRAIN, 0, 0, {"auto", "never", NULL}, "auto", 0},
  {"plan", "", "do not train: predict and print the memory of each rank; needs --ranks, but neither MPI nor that memory", FLAG, AT(run.plan), TREADLE_IN_SFT | TREADLE_IN_TRAIN, 0, 0, {0}, NULL, 0},
  {"help-config", "", "print every key of the configuration, with its type, default, unit and meaning", FLAG, AT(run.help_config), TREADLE_IN_SFT | TREADLE_IN_TRAIN, 0, 0, {0}, NULL, 0},
  {"top", "K", "also print the K largest log-probabilities at each token, at most 20 (default: 0)", COUNT, AT(score.top), TREADLE_IN_SCORE, 0, 0, {0}, NULL, 20},
  {"logits", "F.safetensors", "write the logits to this file; tensor logits.N belongs to line N, from 0", TEXT, AT(score.logits), TREADLE_IN_SCORE, 0, 0, {0}, NULL, 0},
  {"data", "FILE", "the prompts and their answers: one JSON object a line, or one JSON list", TEXT, AT(eval.data), TREADLE_IN_EVAL, TREADLE_IN_EVAL, 0, {0}, NULL, 0},
  {"reward", "NAME", "the reward that scores a sample, from the list above", TEXT, AT(eval.reward), TREADLE_IN_EVAL, TREADLE_IN_EVAL, 0, {0}, NULL, 0},
  {"reward-command", "COMMAND", "with --reward command: the program that scores samples (docs/rewards.md)", TEXT, AT(eval.reward_command), TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"prompt-key", "KEY", "the key of the prompt in the data (default: prompt)", TEXT, AT(eval.prompt_key), TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"answer-key", "KEY", "the key of the correct answer in the data (default: answer)", TEXT, AT(eval.answer_key), TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"no-answer", "error|leave_out", "if the reward needs an answer and a prompt has none: error refuses the data, leave_out skips the prompt (default: error)",
   WORD, AT(eval.no_answer), TREADLE_IN_EVAL, 0, 0, {"error", "leave_out", NULL}, NULL, 0},
  {"max-new-tokens", "N", "maximum number of new tokens in a sample (default: 256)", COUNT, AT(sampling.new_tokens), GENERATE, 0, 1, {0}, NULL, 0},
  {"max-new-tokens", "N", "maximum number of new tokens in a sample (default: half of max_position_embeddings, at most 1024)", COUNT, AT(sampling.new_tokens), TREADLE_IN_EVAL, 0, 1, {0}, NULL, 0},
  {"min-new-tokens", "N", "minimum number of new tokens in a sample; no end token is drawn earlier (default: 0)", COUNT, AT(generate.min_new_tokens), GENERATE, 0, 0, {0}, NULL, 0},
  {"temperature", "T", "divide the logits by T before drawing; 0: always take the most probable token (default: the value in generation_config.json; without it, 1)", TEXT, AT(sampling.temperature), GENERATE, 0, 0, {0}, NULL, 0},
  {"temperature", "T", "divide the logits by T before the log-probabilities are computed; T is above 0 (default: 1)", TEXT, AT(sampling.temperature), TREADLE_IN_SCORE, 0, 0, {0}, NULL, 0},
  {"temperature", "T", "divide the logits by T before drawing; 0: always take the most probable token (default: 1)", TEXT, AT(sampling.temperature), TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"top-k", "K", "draw from the K most probable tokens only (default: all tokens)", COUNT, AT(generate.top_k), GENERATE, 0, 0, {0}, NULL, 0},
  {"top-p", "P", "draw from the fewest most probable tokens whose probabilities add up to P or more (default: 1)", TEXT, AT(generate.top_p), GENERATE, 0, 0, {0}, NULL, 0},
  {"min-p", "P", "draw only from tokens with at least P times the probability of the most probable token (default: 0)", TEXT, AT(generate.min_p), GENERATE, 0, 0, {0}, NULL, 0},
  {"repetition-penalty", "R", "make tokens of the prompt and of the sample less probable: divide their logits by R if positive, else multiply by R (default: 1)", TEXT, AT(generate.repetition_penalty), GENERATE, 0, 0, {0}, NULL, 0},
  {"presence-penalty", "R", "subtract R from the logit of each token that the sample already has (default: 0)", TEXT, AT(generate.presence_penalty), GENERATE, 0, 0, {0}, NULL, 0},
  {"frequency-penalty", "R", "subtract R from the logit of a token, once for each time that it is in the sample (default: 0)", TEXT, AT(generate.frequency_penalty), GENERATE, 0, 0, {0}, NULL, 0},
  {"stop", "TEXT", "end a sample at this text, and leave the text out; the option may be given several times", TEXTS, AT(generate.stops), GENERATE, 0, 0, {0}, NULL, 0},
  {"stop-ids", "1,2,...", "token ids that end a sample, separated by commas, beside the model's end tokens", TEXT, AT(generate.stop_ids), GENERATE, 0, 0, {0}, NULL, 0},
  {"ignore-eos", "", "do not end a sample at the model's end tokens", FLAG, AT(generate.ignore_eos), GENERATE, 0, 0, {0}, NULL, 0},
  {"n", "N", "number of samples for each prompt (default: 1)", COUNT, AT(sampling.samples), GENERATE | TREADLE_IN_EVAL, 0, 1, {0}, NULL, 0},
  {"seed", "N", "seed for the order of the prompts and for the noise (default: 0)", COUNT, AT(sampling.seed), TREADLE_IN_DATA, 0, 0, {0}, NULL, 0},
  {"seed", "S", "seed for the requests that have no seed of their own (default: 0)", COUNT, AT(sampling.seed), GENERATE, 0, 0, {0}, NULL, 0},
  {"seed", "S", "seed for drawing the samples (default: 0)", COUNT, AT(sampling.seed), TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"logprobs", "K", "also print the K largest log-probabilities at each new token (default: 0)", COUNT, AT(generate.logprobs), GENERATE, 0, 0, {0}, NULL, 0},
  {"logprobs-of", "raw|scaled", "raw: print log-probabilities of the model's own distribution; scaled: of the distribution after division by the temperature (default: raw)",
   WORD, AT(generate.logprobs_of), GENERATE, 0, 0, {"raw", "scaled", NULL}, NULL, 0},
  {"exact", "on|off", "on: results have the same bits in every layout, batch and number of threads; off: sums may be added in another order (default: on)", WORD, AT(kernels.exact), ENGINES | TREADLE_IN_GRAD, 0, 0, {"on", "off", NULL}, NULL, 0},
  {"kernels", "NAME", "the matrix kernels to use: a name that treadle doctor prints (default: the fastest that this processor has)", TEXT, AT(kernels.name), ENGINES | TREADLE_IN_GRAD | TREADLE_IN_SFT | TREADLE_IN_TRAIN | TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"threads", "N", "number of threads of each rank (default: number of processors / number of ranks)", COUNT, AT(kernels.threads), ENGINES | TREADLE_IN_GRAD | TREADLE_IN_SFT | TREADLE_IN_TRAIN | TREADLE_IN_EVAL, 0, 1, {0}, NULL, 256},
  {"max-batch", "N", "maximum number of sequences computed together (default: 64)", COUNT, AT(engine.max_batch), ENGINES, 0, 1, {0}, NULL, 65536},
  {"prefill-chunk", "N", "maximum number of prompt tokens computed in one step (default: 512)", COUNT, AT(engine.prefill_chunk), ENGINES, 0, 1, {0}, NULL, 65536},
  {"block-tokens", "N", "number of tokens in one block of the KV cache (default: 16)", COUNT, AT(engine.block_tokens), ENGINES, 0, 1, {0}, NULL, 4096},
  {"prefix-cache", "on|off", "on: sequences that start with the same tokens share their KV cache blocks (default: on)", WORD, AT(engine.prefix_cache), ENGINES, 0, 0, {"on", "off", NULL}, NULL, 0},
  {"experts", "", "also print the experts that each token chose: of all tokens but the last one, in each layer that has experts", FLAG, AT(engine.experts), ENGINES, 0, 0, {0}, NULL, 0},
  {"kv-memory", "SIZE", "memory of the KV cache on each rank (default: 256MiB)", SIZE, AT(engine.kv_bytes), ENGINES, 0, 0, {0}, NULL, 0},
  {"max-len", "N", "maximum number of tokens in a sequence, including the prompt (default: max_position_embeddings)", COUNT, AT(engine.max_len), ENGINES, 0, 1, {0}, NULL, 1 << 24},
  {"runs", "", "also print each run of elements: where it is in the storage tensor, and which Hugging Face elements it holds", FLAG, AT(layout.runs), TREADLE_IN_LAYOUT, 0, 0, {0}, NULL, 0},
  {"by-rank", "", "with --json: print a row for every rank, even if there are more than 4,096 ranks", FLAG, AT(plan.by_rank), TREADLE_IN_PLAN, 0, 0, {0}, NULL, 0},
  {"lora", "DIR", "merge the adapters of this folder, as peft writes it, into the weights", TEXT, AT(convert.lora), TREADLE_IN_CONVERT, 0, 0, {0}, NULL, 0},
  {"trust", "", "if several files hold a copy of one weight, compare only copies smaller than 1 MiB (default: compare all copies)", FLAG, AT(convert.trust), TREADLE_IN_CONVERT, 0, 0, {0}, NULL, 0},
  {"expanded", "", "with show: print one complete file, with its blocks, the family that it extends, and its changes merged", FLAG, AT(family.expanded), TREADLE_IN_FAMILY, 0, 0, {0}, NULL, 0},
  {"like", "NAME", "with new: the family that the draft extends (default: the most similar one)", TEXT, AT(family.like), TREADLE_IN_FAMILY, 0, 0, {0}, NULL, 0},
  {"output", "FILE", "with new: write the draft to this file; short form: -o (default: standard output)", TEXT, AT(family.output), TREADLE_IN_FAMILY, 0, 0, {0}, NULL, 0},
  {"family", "NAME", "the family of the model (default: llama)", TEXT, AT(make_model.family), TREADLE_IN_MAKE_MODEL, 0, 0, {0}, NULL, 0},
  {"layers", "N", "number of decoder layers (default: 8)", COUNT, AT(make_model.layers), TREADLE_IN_MAKE_MODEL, 0, 1, {0}, NULL, 0},
  {"hidden", "N", "hidden size, a multiple of 64 (default: 512)", COUNT, AT(make_model.hidden), TREADLE_IN_MAKE_MODEL, 0, 1, {0}, NULL, 0},
  {"vocab", "N", "number of tokens in the vocabulary (default: 8000)", COUNT, AT(make_model.vocab), TREADLE_IN_MAKE_MODEL, 0, 1, {0}, NULL, 0},
  {"dtype", "bf16|fp16|fp32", "data type of the weights (default: bf16)", TEXT, AT(make_model.dtype), TREADLE_IN_MAKE_MODEL, 0, 0, {0}, NULL, 0},
  {"experts", "single|packed", "single: store each expert as its own tensor; packed: store all experts of a layer in one tensor (default: single)",
   WORD, AT(make_model.experts), TREADLE_IN_MAKE_MODEL, 0, 0, {"single", "packed", NULL}, NULL, 0},
  {"families", "DIR", "read family files from this folder instead of the built-in ones",
   TEXT, AT(model.families), LAYOUTS | ENGINES | TREADLE_IN_FAMILY | TREADLE_IN_INSPECT | TREADLE_IN_MAKE_MODEL | TREADLE_IN_CONVERT | TREADLE_IN_SFT | TREADLE_IN_TRAIN | TREADLE_IN_EVAL | TREADLE_IN_POOLS, 0, 0, {0}, NULL, 0},
  {"json", "", "print one JSON object instead of text", FLAG, AT(json), LAYOUTS | ENGINES | TREADLE_IN_GRAD | TREADLE_IN_SFT | TREADLE_IN_TRAIN | TREADLE_IN_EVAL | TREADLE_IN_REPORT | TREADLE_IN_DATA | TREADLE_IN_CONVERT | TREADLE_IN_FAMILY | TREADLE_IN_INSPECT | TREADLE_IN_DOCTOR | TREADLE_IN_TOKENIZE | TREADLE_IN_ATTACH | TREADLE_IN_POOLS, 0, 0, {0}, NULL, 0},
  {"help", "", "print this text", FLAG, AT(help), ~0u, 0, 0, {0}, NULL, 0},
};
/* clang-format on */

enum { ROWS = sizeof rows / sizeof rows[0] };

/* The option called `name` of a command; NULL when there is none. */
static const option_row *find_row(const treadle_command *command, const char *name) {
  for (int i = 0; i < ROWS; i++)
    if ((rows[i].takes & command->bit) && strcmp(rows[i].name, name) == 0) return &rows[i];
  return NULL;
}

static treadle_status refuse_unknown(const treadle_command *command, const char *name) {
  const char *names[ROWS + 1];
  int count = 0;
  for (int i = 0; i < ROWS; i++)
    if (rows[i].takes & command->bit) names[count++] = rows[i].name;
  names[count] = NULL;
  const char *nearest = treadle_nearest_name(name, names);
  return nearest
             ? treadle_fail(TREADLE_REFUSED, "there is no option --%s; did you mean --%s?", name, nearest)
             : treadle_fail(TREADLE_REFUSED, "there is no option --%s; see treadle %s --help", name,
                            command->name);
}

static treadle_status set_count(const option_row *row, const char *text, int64_t *value_p) {
  int64_t high = row->high ? row->high : INT64_MAX;
  if (!treadle_text_to_int64(text, value_p) || *value_p < row->low || *value_p > high)
    return treadle_fail(TREADLE_REFUSED, "--%s is '%s', and must be a whole number from %lld to %lld",
                        row->name, text, (long long)row->low, (long long)high);
  return TREADLE_OK;
}

/* Sums of some sizes fit into 63 bits then. */
static treadle_status set_size(const option_row *row, const char *text, size_t *bytes_p) {
  char what[32] = "--";
  strncat(what, row->name, sizeof what - 3);
  treadle_status status = treadle_text_to_size(what, text, bytes_p);
  if (!status && *bytes_p > (size_t)1 << 60)
    status = treadle_fail(TREADLE_REFUSED, "%s: '%s' is more than 1048576TiB (2^60 bytes)", what, text);
  return status;
}

/* Digits with a decimal point, as a person writes them. strtod would take hexadecimal ones, spaces and "infinity", too. */
static treadle_status set_seconds(const option_row *row, const char *text, double *value_p) {
  char *end = NULL;
  double value = text[strspn(text, "0123456789.")] ? 0 : strtod(text, &end);
  if (!end || end == text || *end || !(value >= 0.001 && value <= 1e6))
    return treadle_fail(TREADLE_REFUSED,
                        "--%s is '%s', and must be a number of seconds above 0: from 0.001 to 1000000",
                        row->name, text);
  *value_p = value;
  return TREADLE_OK;
}

static treadle_status set_word(const option_row *row, const char *text, int64_t *value_p) {
  for (int i = 0; row->words[i]; i++)
    if (strcmp(row->words[i], text) == 0) {
      *value_p = i;
      return TREADLE_OK;
    }
  const char *nearest = treadle_nearest_name(text, row->words);
  if (nearest)
    return treadle_fail(TREADLE_REFUSED, "--%s has no value '%s'; did you mean %s?", row->name, text,
                        nearest);
  char words[80] = "";
  for (int i = 0; row->words[i]; i++)
    snprintf(words + strlen(words), sizeof words - strlen(words), "%s%s", i ? ", " : "", row->words[i]);
  return treadle_fail(TREADLE_REFUSED, "--%s has no value '%s'; it is one of: %s", row->name, text, words);
}

/* One more of an option that may be given several times. */
static treadle_status add_text(const option_row *row, const char *text, const char **texts,
                               int64_t *count_p) {
  if (!*text)
    return treadle_fail(TREADLE_REFUSED, "--%s is empty; it needs a value: %s", row->name, row->value);
  if (*count_p == TREADLE_MAX_STOPS)
    return treadle_fail(TREADLE_REFUSED, "--%s is given more than %d times", row->name, TREADLE_MAX_STOPS);
  texts[(*count_p)++] = text;
  return TREADLE_OK;
}

static treadle_status set_value(const option_row *row, const char *text, treadle_arguments *arguments) {
  void *field = (char *)arguments + row->at;
  switch (row->type) {
  case FLAG: *(bool *)field = true; return TREADLE_OK;
  case TEXT:
    if (!*text)
      return treadle_fail(TREADLE_REFUSED, "--%s is empty; it needs a value: %s", row->name, row->value);
    *(const char **)field = text;
    return TREADLE_OK;
  case TEXTS: return add_text(row, text, field, &arguments->generate.stop_count);
  case SIZE: return set_size(row, text, field);
  case COUNT: return set_count(row, text, field);
  case SECONDS: return set_seconds(row, text, field);
  case WORD: return set_word(row, text, field);
  }
  return TREADLE_OK;
}

/* Of a TEXT that may stand bare: is the next text its value? One of its words is, and a folder global_step_K. Behind the configuration, all
 * that is neither an option nor key=value. */
static bool is_value(const option_row *row, const char *next, const treadle_arguments *arguments) {
  size_t length = strlen(next);
  if (row->type != TEXT) return false;
  for (int i = 0; row->words[i]; i++)
    if (strcmp(row->words[i], next) == 0) return true;
  if (arguments->word_count) return next[0] != '-' && !strchr(next, '=');
  while (length && next[length - 1] == '/') length--;
  while (length && next[length - 1] != '/') length--;
  return treadle_text_starts(next + length, "global_step_");
}

/* Parses one option at texts[*at_p]; a value may be the next text, which is then consumed too. */
static treadle_status parse_option(const treadle_command *command, int count, char **texts, int *at_p,
                                   bool *given, treadle_arguments *arguments) {
  const char *text = texts[*at_p] + 2;
  const char *equals = strchr(text, '=');
  char name[32] = "";
  size_t length = equals ? (size_t)(equals - text) : strlen(text);
  if (length >= sizeof name) length = sizeof name - 1;
  memcpy(name, text, length);

  const option_row *row = find_row(command, name);
  if (!row) return refuse_unknown(command, name);
  if (given[row - rows] && row->type != TEXTS)
    return treadle_fail(TREADLE_REFUSED, "--%s is given twice", name);
  given[row - rows] = true;

  bool wants_value = row->type != FLAG && !row->bare;
  if (equals && row->type == FLAG) return treadle_fail(TREADLE_REFUSED, "--%s takes no value", name);
  if (equals) return set_value(row, equals + 1, arguments);
  if (!wants_value && *at_p + 1 < count && is_value(row, texts[*at_p + 1], arguments)) wants_value = true;
  if (!wants_value) return set_value(row, row->bare, arguments);
  if (*at_p + 1 >= count) return treadle_fail(TREADLE_REFUSED, "--%s needs a value: %s", name, row->value);
  return set_value(row, texts[++*at_p], arguments);
}

/* A plan with --config needs no other option; without it, no words. */
static treadle_status settle_plan(const treadle_command *command, treadle_arguments *arguments,
                                  bool *needs_p) {
  const bool is_plan = command->bit == TREADLE_IN_PLAN;
  *needs_p = !is_plan || !arguments->plan.config;
  if (*needs_p && arguments->ranks.map < 0) arguments->ranks.map = 0;
  if (is_plan && *needs_p && arguments->word_count)
    REFUSE("'%s' is one word too many; see treadle %s --help", arguments->words[0], command->name);
  return TREADLE_OK;
}

treadle_status treadle_options_parse(const treadle_command *command, int count, char **texts,
                                     treadle_arguments *arguments) {
  treadle_status status = TREADLE_OK;
  bool given[ROWS] = {false};
  *arguments = (treadle_arguments){
      .ranks = {.rank = -1, .map = -1},
      .sampling = {.new_tokens = -1, .samples = -1},
      .switching = {.cycles = 3},
      .make_model = {.layers = 8, .hidden = 512, .vocab = 8000},
      .generate = {.top_k = -1, .min_new_tokens = -1, .logprobs = -1},
  };

  static char output[] = "--output";
  bool only_words = false;
  for (int i = 0; i < count; i++) {
    if (!only_words && strcmp(texts[i], "-o") == 0) texts[i] = output;
    const char *text = texts[i];
    if (!only_words && strcmp(text, "--") == 0) {
      only_words = true;
    } else if (!only_words && (strcmp(text, "-h") == 0)) {
      arguments->help = true;
    } else if (!only_words && treadle_text_starts(text, "--")) {
      TRY(parse_option(command, count, texts, &i, given, arguments));
    } else if (!only_words && text[0] == '-' && text[1]) {
      TRY(treadle_fail(TREADLE_REFUSED, "options begin with two dashes: '%s'", text));
    } else if (!*text) {
      TRY(treadle_fail(TREADLE_REFUSED, "an argument is empty; see treadle %s --help", command->name));
    } else if (arguments->word_count == command->words_max) {
      TRY(treadle_fail(TREADLE_REFUSED, "'%s' is one word too many; see treadle %s --help", text,
                       command->name));
    } else {
      arguments->words[arguments->word_count++] = text;
    }
  }
  if (arguments->help) goto out;

  bool needs;
  TRY(settle_plan(command, arguments, &needs));
  for (int i = 0; i < ROWS && needs; i++)
    if ((rows[i].needs & command->bit) && !given[i])
      TRY(treadle_fail(TREADLE_REFUSED, "--%s %s is missing: %s", rows[i].name, rows[i].value,
                       rows[i].about));
  if (arguments->word_count < command->words_min)
    TRY(treadle_fail(TREADLE_REFUSED, "needs %s; see treadle %s --help", command->words, command->name));
out:
  return status;
}

/* Lines of a table, a step to the right. */
static void print_list(const char *list, FILE *file) {
  for (const char *end; (end = strchr(list, '\n')); list = end + 1)
    fprintf(file, "  %.*s\n", (int)(end - list), list);
}

enum { HELP_INDENT = 25, HELP_WIDTH = 100 };

/* The words of a text in lines of at most HELP_WIDTH columns. The first line has begun: HELP_INDENT columns of it are there. */
static void print_wrapped(const char *text, FILE *file) {
  size_t column = HELP_INDENT;
  for (const char *word = text; *word;) {
    size_t length = strcspn(word, " ");
    bool fits = word == text || column + 1 + length <= HELP_WIDTH;
    if (!fits) fprintf(file, "\n%*s", HELP_INDENT, "");
    if (!fits) column = HELP_INDENT;
    if (fits && word != text) fputc(' ', file), column++;
    fprintf(file, "%.*s", (int)length, word);
    column += length;
    word += length + strspn(word + length, " ");
  }
  fputc('\n', file);
}

treadle_status treadle_options_print_help(const treadle_command *command, FILE *file) {
  char *list = NULL;
  treadle_status status = command->list ? command->list(&list) : TREADLE_OK;
  if (status) return status;
  fprintf(file, "treadle %s: %s\n\nusage: treadle %s", command->name, command->summary, command->name);
  if (*command->words) fprintf(file, " %s", command->words);
  for (int i = 0; i < ROWS; i++)
    if (rows[i].needs & command->bit) fprintf(file, " --%s %s", rows[i].name, rows[i].value);
  fprintf(file, " [options]\n\n%s\n", command->text);
  if (list) print_list(list, file);
  free(list);
  fprintf(file, "\noptions:\n");
  for (int i = 0; i < ROWS; i++) {
    if (!(rows[i].takes & command->bit)) continue;
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", rows[i].name, *rows[i].value ? " " : "", rows[i].value);
    fprintf(file, strlen(left) <= 22 ? "  %-22s " : "  %s\n                         ", left);
    print_wrapped(rows[i].about, file);
  }
  fprintf(file, "\nexamples:\n%s", command->examples);
  return TREADLE_OK;
}
