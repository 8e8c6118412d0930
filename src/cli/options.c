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
  {"model", "DIR|config.json", "folder of a Hugging Face model, or a config.json without weights",
   TEXT, AT(model), LAYOUTS | ENGINES | TREADLE_IN_FAMILY | TREADLE_IN_MAKE_MODEL | TREADLE_IN_CONVERT | TREADLE_IN_TOKENIZE, LAYOUTS | ENGINES, 0, {0}, NULL, 0},
  {"weights", "auto|files|random", "where weights come from: the model's files, or made up; auto: files of a folder, made up for a config.json (default: auto)",
   WORD, AT(weights), WEIGHTS, 0, 0, {"auto", "files", "random", NULL}, NULL, 0},
  {"tokenizer", "FILE", "tokenizer.json, a folder with one, vocab.json beside merges.txt, or a *.bin of llama2.c (default: that of the model)",
   TEXT, AT(tokenizer), TREADLE_IN_TOKENIZE | ENGINES | TREADLE_IN_GRAD | TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"text", "TEXT", "text to turn into tokens", TEXT, AT(text), TREADLE_IN_TOKENIZE, 0, 0, {0}, NULL, 0},
  {"ids", "1,2,...", "ids of tokens to turn into text", TEXT, AT(ids), TREADLE_IN_TOKENIZE, 0, 0, {0}, NULL, 0},
  {"special", "on|off", "put special tokens around texts, and show them in texts that are made of ids (default: on)",
   WORD, AT(special), TREADLE_IN_TOKENIZE, 0, 0, {"on", "off", NULL}, NULL, 0},
  {"scale-down", "N", "shrink the model to at most N million parameters; it keeps its structure, and no weights are read",
   COUNT, AT(scale_down), LAYOUTS | TREADLE_IN_FAMILY | TREADLE_IN_INSPECT | TREADLE_IN_MAKE_MODEL, 0, 1, {0}, NULL, 0},
  {"from", "LAYOUT", "layout in which the weights are", TEXT, AT(from), TREADLE_IN_PLAN | TREADLE_IN_CONVERT, TREADLE_IN_PLAN | TREADLE_IN_CONVERT, 0, {0}, NULL, 0},
  {"to", "LAYOUT", "layout to which the weights go", TEXT, AT(to), TREADLE_IN_PLAN | TREADLE_IN_CONVERT, TREADLE_IN_PLAN | TREADLE_IN_CONVERT, 0, {0}, NULL, 0},
  {"train", "LAYOUT", "layout for training; of an engine: weights are loaded into it first, and then switched", TEXT, AT(train), TREADLE_IN_SWITCH | TREADLE_IN_LAYOUT | ENGINES, TREADLE_IN_SWITCH, 0, {0}, NULL, 0},
  {"infer", "LAYOUT", "layout for inference", TEXT, AT(infer), TREADLE_IN_SWITCH, TREADLE_IN_SWITCH, 0, {0}, NULL, 0},
  {"layout", "LAYOUT", "layout to show, or to compute in", TEXT, AT(layout), TREADLE_IN_LAYOUT | ENGINES | TREADLE_IN_GRAD | TREADLE_IN_EVAL, TREADLE_IN_LAYOUT, 0, {0}, NULL, 0},
  {"ranks", "N", "number of ranks", COUNT, AT(ranks), TREADLE_IN_PLAN | TREADLE_IN_LAYOUT | TREADLE_IN_SFT | TREADLE_IN_TRAIN, TREADLE_IN_PLAN | TREADLE_IN_LAYOUT, 1, {0}, NULL, 0},
  {"nodes", "N", "treat the ranks as N nodes of equally many neighbours, and show what goes between nodes", COUNT, AT(nodes), TREADLE_IN_PLAN, 0, 1, {0}, NULL, 0},
  {"nodes", "N", "for --rank-map best: the ranks are N nodes of equally many neighbours", COUNT, AT(nodes), TREADLE_IN_LAYOUT, 0, 1, {0}, NULL, 0},
  {"rank", "R", "show this rank alone; ranks count from 0", COUNT, AT(rank), TREADLE_IN_PLAN | TREADLE_IN_LAYOUT, TREADLE_IN_LAYOUT, 0, {0}, NULL, 0},
  {"rank-map", "contiguous|strided|best", "which rank takes which place of the inference layout (default: contiguous)",
   WORD, AT(rank_map), LAYOUTS, 0, 0, {"contiguous", "strided", "best", NULL}, NULL, 0},
  {"cycles", "N", "how often to switch there and back (default: 3); with 0 it switches once, to inference only", COUNT, AT(cycles), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 1000000},
  {"update", "N", "update the inference weights N times after the first switch, each time after a step of made-up training; params stay, and alias is off (default: 0)", COUNT, AT(update), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 1000000},
  {"cap", "SIZE", "memory that a switch may use beyond the larger window (default: 256MiB, or the least possible if that is more)",
   SIZE, AT(cap_bytes), SWITCHES, 0, 0, {0}, NULL, 0},
  {"page-size", "SIZE", "size of a page, a power of two from 4KiB to 1TiB (default: 2MiB)", SIZE, AT(page_bytes), SWITCHES, 0, 0, {0}, NULL, 0},
  {"budget", "SIZE", "memory that no rank may exceed", SIZE, AT(budget_bytes), SWITCHES | TREADLE_IN_SFT, 0, 0, {0}, NULL, 0},
  {"alias", "on|off", "share pages that hold the same bytes in both layouts, instead of copying them (default: on)",
   WORD, AT(alias), SWITCHES, 0, 0, {"on", "off", NULL}, NULL, 0},
  {"double", "on|off", "an update writes the next version beside the present one, which is served until the commit, where there is memory for both (default: off)", WORD, AT(doubles), TREADLE_IN_SWITCH, 0, 0, {"off", "on", NULL}, NULL, 0},
  {"delta", "on|off", "between nodes, an update sends only what has changed since the one before it (default: off)", WORD, AT(delta), TREADLE_IN_SWITCH, 0, 0, {"off", "on", NULL}, NULL, 0},
  {"changed", "F", "each step before an update changes this share of the elements, at random, from 0 to 1 (default: the sign of all)", TEXT, AT(changed), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"offload", "LIST", "what leaves the device during inference: params, grads (dropped) or grads=keep (to the host), optimizer; or none",
   TEXT, AT(offload), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"keep", "infer|host", "where params are during inference: in the infer weights only, or also in host memory (default: infer)",
   WORD, AT(keep), TREADLE_IN_SWITCH, 0, 0, {"infer", "host", NULL}, NULL, 0},
  {"own", "none|train|infer|both", "weights lie in memory of each rank's own, outside of the pool: for training, for inference, or both (default: none)",
   WORD, AT(own), TREADLE_IN_SWITCH, 0, 0, {"none", "train", "infer", "both", NULL}, NULL, 0},
  {"forward", "", "go back by way of forward mode, in which only params are back, for log-probabilities", FLAG, AT(forward), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"fault", "SPEC", "make one rank fail, to see what the others report",
   TEXT, AT(fault), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"timeline", "FILE.svg", "draw the device memory of the fullest rank over time into this file", TEXT, AT(timeline), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"handle-file", "FILE", "after the first switch to inference each rank writes FILE.RANK, by which treadle attach finds its weights", TEXT, AT(handle_file), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"wait", "VERSION", "wait until a version of at least this number is there (default: any)", COUNT, AT(wait), TREADLE_IN_ATTACH, 0, 0, {0}, NULL, 0},
  {"timeout", "SECONDS", "how long the process of the handle and the version may take (default: 60)", SECONDS, AT(timeout_seconds), TREADLE_IN_ATTACH, 0, 0, {0}, NULL, 0},
  {"meet", "ADDRESS:PORT", "the ranks meet there, without a launcher: rank 0 listens on this address of its machine; needs --job, --rank, --ranks",
   TEXT, AT(meet), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"job", "NAME", "with --meet: a name that all ranks give, and no other job at that address", TEXT, AT(job), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"rank", "R", "with --meet: which rank this process is; ranks count from 0", COUNT, AT(rank), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"ranks", "N", "with --meet: how many ranks there are", COUNT, AT(ranks), TREADLE_IN_SWITCH, 0, 1, {0}, NULL, 0},
  {"net", "tcp|ucx", "how bytes go between nodes: by sockets, or by UCX, for InfiniBand (default: tcp)", WORD, AT(net), TREADLE_IN_SWITCH, 0, 0, {"tcp", "ucx", NULL}, NULL, 0},
  {"net-devices", "LIST", "network devices between nodes, such as eth0,eth1 (default: those of the address by which the ranks met)", TEXT, AT(net_devices), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"nodes", "N|auto", "N groups of equally many neighbouring ranks are the nodes; auto: each machine is one (default: auto)",
   TEXT, AT(nodes_text), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"timeout", "SECONDS", "how long a wait for other ranks may take (default: 60)", SECONDS, AT(timeout_seconds), TREADLE_IN_SWITCH, 0, 0, {0}, NULL, 0},
  {"check", "", "compare every byte; --check=prove also plants mistakes that must be caught",
   WORD, AT(check), TREADLE_IN_SWITCH, 0, 0, {"off", "on", "prove", NULL}, "on", 0},
  {"check", "", "DIR is a checkpoint of a run, or the run: compare its values and files with its digests.json", WORD, AT(check), TREADLE_IN_INSPECT, 0, 0, {"off", "on", NULL}, "on", 0},
  {"check", "", "compare with the logprobs of each line, bit for bit", WORD, AT(check), TREADLE_IN_SCORE, 0, 0, {"off", "on", NULL}, "on", 0},
  {"file", "IN.jsonl", "lines of JSON: requests, texts to score, texts or tokens, rows to train on", TEXT, AT(file), ENGINES | TREADLE_IN_TOKENIZE | TREADLE_IN_GRAD, TREADLE_IN_SCORE | TREADLE_IN_GRAD, 0, {0}, NULL, 0},
  {"prompt", "TEXT", "one prompt", TEXT, AT(prompt), GENERATE, 0, 0, {0}, NULL, 0},
  {"chat", "", "texts are messages of the user, to a model with a chat template", FLAG, AT(chat), GENERATE | TREADLE_IN_TOKENIZE, 0, 0, {0}, NULL, 0},
  {"prompt-ids", "1,2,...", "one prompt, as token ids", TEXT, AT(prompt_ids), GENERATE, 0, 0, {0}, NULL, 0},
  {"out", "F.jsonl", "write the answers to this file (default: standard output, without --json)", TEXT, AT(out), ENGINES, 0, 0, {0}, NULL, 0},
  {"out", "F.html", "write the page to this file (default: RUN/report.html)", TEXT, AT(out), TREADLE_IN_REPORT, 0, 0, {0}, NULL, 0},
  {"out", "DIR", "write the files into this folder", TEXT, AT(out), TREADLE_IN_DATA, TREADLE_IN_DATA, 0, {0}, NULL, 0},
  {"noise", "Q", "probability that a number of sft.jsonl is a random digit (default: 0.3)", TEXT, AT(noise), TREADLE_IN_DATA, 0, 0, {0}, NULL, 0},
  {"out", "F.safetensors", "write the gradients to this file: fp32, under Hugging Face names", TEXT, AT(out), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"loss", "nll|grpo", "nll: the mean of -log p (default); grpo: that of --config, of dumped samples", WORD, AT(loss), TREADLE_IN_GRAD, 0, 0, {"nll", "grpo", NULL}, NULL, 0},
  {"config", "CONFIG.yaml", "of --loss grpo: the configuration of the run", TEXT, AT(config), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"mini-batch", "K", "of --loss grpo: which mini batch of the file (default: 0)", COUNT, AT(mini_batch), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"micro-batch-size", "M", "rows that go through the layers together (default: 1)", COUNT, AT(micro_batch), TREADLE_IN_GRAD, 0, 1, {0}, NULL, 65536},
  {"sequence-parallel", "", "tensor parallel ranks divide the rows of the residual stream that is kept for backward", FLAG, AT(sequence_parallel), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"recompute", "none|full", "full: backward runs each layer again, so that less memory is needed (default: none)",
   WORD, AT(recompute), TREADLE_IN_GRAD, 0, 0, {"none", "full", NULL}, NULL, 0},
  {"dtype", "fp32|bf16", "type to compute in (default: that of the layout, else of the files)", TEXT, AT(dtype), TREADLE_IN_GRAD, 0, 0, {0}, NULL, 0},
  {"resume", "auto|never|DIR", "go on from the newest checkpoint of the run, or from this one, DIR/global_step_K; never: refuse a folder that has checkpoints (default: never)",
   TEXT, AT(resume), TREADLE_IN_SFT | TREADLE_IN_TRAIN, 0, 0, {"auto", "never", NULL}, "auto", 0},
  {"plan", "", "print what each of --ranks N ranks would hold, without training, MPI or the memory for it", FLAG, AT(plan), TREADLE_IN_SFT | TREADLE_IN_TRAIN, 0, 0, {0}, NULL, 0},
  {"help-config", "", "print all keys of a configuration", FLAG, AT(help_config), TREADLE_IN_SFT | TREADLE_IN_TRAIN, 0, 0, {0}, NULL, 0},
  {"top", "K", "the K largest log-probabilities of each token, too", COUNT, AT(top), TREADLE_IN_SCORE, 0, 0, {0}, NULL, 20},
  {"logits", "F.safetensors", "write the logits of each text to this file", TEXT, AT(logits), TREADLE_IN_SCORE, 0, 0, {0}, NULL, 0},
  {"data", "FILE", "prompts and answers: lines of JSON, or one list", TEXT, AT(data), TREADLE_IN_EVAL, TREADLE_IN_EVAL, 0, {0}, NULL, 0},
  {"reward", "NAME", "how a sample is scored", TEXT, AT(reward), TREADLE_IN_EVAL, TREADLE_IN_EVAL, 0, {0}, NULL, 0},
  {"reward-command", "COMMAND", "of --reward command: what is run (docs/rewards.md)", TEXT, AT(reward_command), TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"prompt-key", "KEY", "of the data: what is asked (default: prompt)", TEXT, AT(prompt_key), TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"answer-key", "KEY", "of the data: what is right (default: answer)", TEXT, AT(answer_key), TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"no-answer", "error|leave_out", "what becomes of a prompt without an answer, where the reward needs one (default: error)",
   WORD, AT(no_answer), TREADLE_IN_EVAL, 0, 0, {"error", "leave_out", NULL}, NULL, 0},
  {"max-new-tokens", "N", "new tokens of a sample (default: 256)", COUNT, AT(new_tokens), GENERATE, 0, 1, {0}, NULL, 0},
  {"max-new-tokens", "N", "new tokens of a sample (default: half of the model's positions, at most 1024)", COUNT, AT(new_tokens), TREADLE_IN_EVAL, 0, 1, {0}, NULL, 0},
  {"min-new-tokens", "N", "no end token before these (default: 0)", COUNT, AT(min_new_tokens), GENERATE, 0, 0, {0}, NULL, 0},
  {"temperature", "T", "logits are divided by it; 0: the best token (default: generation_config.json's, else 1)", TEXT, AT(temperature), ENGINES, 0, 0, {0}, NULL, 0},
  {"temperature", "T", "logits are divided by it; 0: the best token (default: 1)", TEXT, AT(temperature), TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"top-k", "K", "the K best tokens (default: all)", COUNT, AT(top_k), GENERATE, 0, 0, {0}, NULL, 0},
  {"top-p", "P", "the best tokens that together have probability P (default: 1)", TEXT, AT(top_p), GENERATE, 0, 0, {0}, NULL, 0},
  {"min-p", "P", "tokens with at least P times the best one's probability (default: 0)", TEXT, AT(min_p), GENERATE, 0, 0, {0}, NULL, 0},
  {"repetition-penalty", "R", "logits of tokens that are there already: divided by R, or times R if below 0 (default: 1)", TEXT, AT(repetition_penalty), GENERATE, 0, 0, {0}, NULL, 0},
  {"presence-penalty", "R", "taken off logits of tokens that were generated (default: 0)", TEXT, AT(presence_penalty), GENERATE, 0, 0, {0}, NULL, 0},
  {"frequency-penalty", "R", "taken off logits of tokens, once for each time that they were generated (default: 0)", TEXT, AT(frequency_penalty), GENERATE, 0, 0, {0}, NULL, 0},
  {"stop", "TEXT", "a text that ends a sample, and is not part of it; may be given several times", TEXTS, AT(stops), GENERATE, 0, 0, {0}, NULL, 0},
  {"stop-ids", "1,2,...", "tokens that end a sample", TEXT, AT(stop_ids), GENERATE, 0, 0, {0}, NULL, 0},
  {"ignore-eos", "", "end tokens do not end a sample", FLAG, AT(ignore_eos), GENERATE, 0, 0, {0}, NULL, 0},
  {"n", "N", "samples of each prompt (default: 1)", COUNT, AT(samples), GENERATE | TREADLE_IN_EVAL, 0, 1, {0}, NULL, 0},
  {"seed", "N", "of the order of prompts, and of noise (default: 0)", COUNT, AT(seed), TREADLE_IN_DATA, 0, 0, {0}, NULL, 0},
  {"seed", "S", "of requests without one (default: 0)", COUNT, AT(seed), GENERATE | TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"logprobs", "K", "the K largest log-probabilities of each new token, too", COUNT, AT(logprobs), GENERATE, 0, 0, {0}, NULL, 0},
  {"logprobs-of", "raw|scaled", "log-probabilities of the model's distribution, or of logits over temperature (default: raw)",
   WORD, AT(logprobs_of), GENERATE, 0, 0, {"raw", "scaled", NULL}, NULL, 0},
  {"exact", "on|off", "the same bits in every layout, batch and number of threads (default: on)", WORD, AT(exact), ENGINES | TREADLE_IN_GRAD, 0, 0, {"on", "off", NULL}, NULL, 0},
  {"kernels", "NAME", "how matrices are multiplied: a name that treadle doctor lists (default: the best)", TEXT, AT(kernels), ENGINES | TREADLE_IN_GRAD | TREADLE_IN_SFT | TREADLE_IN_TRAIN | TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"threads", "N", "threads of a rank (default: the processors, divided among the ranks)", COUNT, AT(threads), ENGINES | TREADLE_IN_GRAD | TREADLE_IN_SFT | TREADLE_IN_TRAIN | TREADLE_IN_EVAL, 0, 1, {0}, NULL, 256},
  {"max-batch", "N", "sequences at once (default: 64)", COUNT, AT(max_batch), ENGINES, 0, 1, {0}, NULL, 65536},
  {"prefill-chunk", "N", "tokens of prompts at once (default: 512)", COUNT, AT(prefill_chunk), ENGINES, 0, 1, {0}, NULL, 65536},
  {"block-tokens", "N", "tokens of a block of the KV cache (default: 16)", COUNT, AT(block_tokens), ENGINES, 0, 1, {0}, NULL, 4096},
  {"prefix-cache", "on|off", "share blocks among sequences that begin alike (default: on)", WORD, AT(prefix_cache), ENGINES, 0, 0, {"on", "off", NULL}, NULL, 0},
  {"kv-memory", "SIZE", "memory of the KV cache of a rank (default: 256MiB)", SIZE, AT(kv_bytes), ENGINES, 0, 0, {0}, NULL, 0},
  {"max-len", "N", "tokens of a sequence (default: max_position_embeddings)", COUNT, AT(max_len), ENGINES, 0, 1, {0}, NULL, 1 << 24},
  {"runs", "", "print each run of elements: where it is and where it comes from", FLAG, AT(runs), TREADLE_IN_LAYOUT, 0, 0, {0}, NULL, 0},
  {"by-rank", "", "keep the rows of all ranks in the JSON when there are more than 4,096", FLAG, AT(by_rank), TREADLE_IN_PLAN, 0, 0, {0}, NULL, 0},
  {"trust", "", "do not compare copies of one weight in several files, if they have 1 MiB or more", FLAG, AT(trust), TREADLE_IN_CONVERT, 0, 0, {0}, NULL, 0},
  {"expanded", "", "for show: put together all that the file extends, its blocks and its changes", FLAG, AT(expanded), TREADLE_IN_FAMILY, 0, 0, {0}, NULL, 0},
  {"like", "NAME", "for new: the family that the draft extends (default: the nearest one)", TEXT, AT(like), TREADLE_IN_FAMILY, 0, 0, {0}, NULL, 0},
  {"output", "FILE", "for new: write the draft to this file, -o for short (default: standard output)", TEXT, AT(output), TREADLE_IN_FAMILY, 0, 0, {0}, NULL, 0},
  {"family", "NAME", "family of the model (default: llama)", TEXT, AT(family), TREADLE_IN_MAKE_MODEL, 0, 0, {0}, NULL, 0},
  {"layers", "N", "number of decoder layers (default: 8)", COUNT, AT(layers), TREADLE_IN_MAKE_MODEL, 0, 1, {0}, NULL, 0},
  {"hidden", "N", "hidden size, a multiple of 64 (default: 512)", COUNT, AT(hidden), TREADLE_IN_MAKE_MODEL, 0, 1, {0}, NULL, 0},
  {"vocab", "N", "size of the vocabulary (default: 8000)", COUNT, AT(vocab), TREADLE_IN_MAKE_MODEL, 0, 1, {0}, NULL, 0},
  {"dtype", "bf16|fp16|fp32", "type of the elements (default: bf16)", TEXT, AT(dtype), TREADLE_IN_MAKE_MODEL, 0, 0, {0}, NULL, 0},
  {"experts", "single|packed", "store each expert as a tensor of its own, or all in one (default: single)",
   WORD, AT(experts), TREADLE_IN_MAKE_MODEL, 0, 0, {"single", "packed", NULL}, NULL, 0},
  {"families", "DIR", "read family files from this folder, instead of those built in",
   TEXT, AT(families), LAYOUTS | ENGINES | TREADLE_IN_FAMILY | TREADLE_IN_INSPECT | TREADLE_IN_MAKE_MODEL | TREADLE_IN_CONVERT | TREADLE_IN_SFT | TREADLE_IN_TRAIN | TREADLE_IN_EVAL, 0, 0, {0}, NULL, 0},
  {"json", "", "print one JSON object instead of text", FLAG, AT(json), LAYOUTS | ENGINES | TREADLE_IN_GRAD | TREADLE_IN_SFT | TREADLE_IN_TRAIN | TREADLE_IN_EVAL | TREADLE_IN_REPORT | TREADLE_IN_DATA | TREADLE_IN_CONVERT | TREADLE_IN_FAMILY | TREADLE_IN_INSPECT | TREADLE_IN_DOCTOR | TREADLE_IN_TOKENIZE | TREADLE_IN_ATTACH, 0, 0, {0}, NULL, 0},
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
  case TEXTS: return add_text(row, text, field, &arguments->stop_count);
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

treadle_status treadle_options_parse(const treadle_command *command, int count, char **texts,
                                     treadle_arguments *arguments) {
  treadle_status status = TREADLE_OK;
  bool given[ROWS] = {false};
  *arguments = (treadle_arguments){.rank = -1,
                                   .cycles = 3,
                                   .layers = 8,
                                   .hidden = 512,
                                   .vocab = 8000,
                                   .top_k = -1,
                                   .new_tokens = -1,
                                   .min_new_tokens = -1,
                                   .samples = -1,
                                   .logprobs = -1};

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

  for (int i = 0; i < ROWS; i++)
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
    fprintf(file, strlen(left) <= 22 ? "  %-22s %s\n" : "  %s\n                         %s\n", left,
            rows[i].about);
  }
  fprintf(file, "\nexamples:\n%s", command->examples);
  return TREADLE_OK;
}
