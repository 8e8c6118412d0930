/* treadle: the command. Finds the subcommand in the table, parses its options, runs it. */
#include "cli/cli.h"

#include "base/utf8.h"
#include "treadle_engine.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const treadle_command commands[] = {
    {
        .name = "plan",
        .bit = TREADLE_IN_PLAN,
        .words = "",
        .summary = "print what a switch between two layouts moves, and the memory it takes",
        .text = "Makes the plans of all ranks, or of one with --rank. It reads no weights and does\n"
                "not use MPI, so it works for models and numbers of ranks far beyond this machine.\n"
                "\n"
                "It prints how many bytes each rank moves and between which ranks, the lower bound,\n"
                "the number of waves, the smallest possible cap, the peak of memory on each rank, and\n"
                "how the largest tensor is cut. With --budget it also says whether the switch fits.\n"
                "If it does not, the exit status is 1, and the last lines say what would make it fit.\n"
                "A --cap below the smallest possible one is refused.\n"
                "\n"
                "LAYOUT is described in docs/layouts.md.",
        .examples =
            "  treadle plan --model config.json --from megatron:tp=4,pp=2 --to vllm:tp=2 --ranks 8\n"
            "  treadle plan --model DIR --from megatron:tp=8,pp=16 --to vllm:tp=16 --ranks 16384 --rank 0 "
            "--json\n"
            "  treadle plan --model DIR --from megatron:tp=4 --to vllm:tp=2 --ranks 8 --rank-map best "
            "--budget 8GiB\n"
            "  treadle plan --model DIR --from megatron:tp=4,on=0-3 --to vllm:tp=4,on=4-7 --ranks 8\n",
        .run = treadle_command_plan,
    },
    {
        .name = "layout",
        .bit = TREADLE_IN_LAYOUT,
        .words = "",
        .summary = "print what one rank holds in a layout",
        .text = "Lists the storage tensors of a rank under the engine's own names. For each it prints\n"
                "the shape, the type and the Hugging Face tensors that it is made of.\n"
                "\n"
                "With --runs it also prints each run of elements as local_start, tensor, start,\n"
                "stride, count: element local_start + i of the storage tensor is element start + i *\n"
                "stride of that tensor, for i from 0 to count - 1.\n"
                "\n"
                "--rank-map strided and best depend on the training layout, which --train then gives.\n"
                "LAYOUT is described in docs/layouts.md.",
        .examples = "  treadle layout --model config.json --layout megatron:tp=4,pp=2 --ranks 8 --rank 5\n"
                    "  treadle layout --model DIR --layout vllm:tp=2 --ranks 2 --rank 1 --runs --json\n",
        .run = treadle_command_layout,
    },
    {
        .name = "switch",
        .bit = TREADLE_IN_SWITCH,
        .words = "",
        .summary = "switch a model between two layouts and back, measure it and check it",
        .text = "Run it under mpirun, where every process is a rank; or without a launcher, one line a\n"
                "rank, with --meet, --job, --rank and --ranks. It loads the weights in the\n"
                "training layout, moves them to the inference layout, and moves them back, as often\n"
                "as --cycles says. If --model is a config.json, or with --weights random, the weights\n"
                "are made up: hash values of tensor and index.\n"
                "\n"
                "For each rank and for all together it prints the bytes moved and the lower bound,\n"
                "the time, the rate and its ratio to a memcpy of the same bytes, and the peak of\n"
                "memory and its bound. Then it prints the time by parts, and what is on the device\n"
                "after each change of mode. LAYOUT is described in docs/layouts.md.\n"
                "\n"
                "With --offload every rank also holds gradients (4 bytes for each element) and\n"
                "optimizer state (12 bytes). The list says what leaves the device while weights are\n"
                "served. The room is used for a KV cache. The first cycle then goes through host\n"
                "memory.\n"
                "\n"
                "With --keep host a copy of the params is in host memory. Then the way back is local,\n"
                "and after a failure at any moment the params are as they were.\n"
                "\n"
                "With --own every rank has the weights of training, of inference, or both, in memory\n"
                "of its own, as a framework's tensors are. The switch reads and writes them there.\n"
                "Weights of training then stay, and so they do without --keep host.\n"
                "\n"
                "--update N brings the inference weights to the next version N times, in mode infer,\n"
                "each time after a step of made-up training that changes the sign of all params.\n"
                "Params stay on the device, and no pages are shared. With --double on the old version\n"
                "is served from pages of its own until the next one is committed; else the engine is\n"
                "unbound for the whole update.\n"
                "\n"
                "--check compares every byte of the inference layout with the file, and every byte of\n"
                "the training layout with what was there at the start. Before that, all pages that\n"
                "nobody holds get random bytes. --check=prove also plants mistakes, each in a new\n"
                "switch. It fails unless each one is caught. The mistakes are: a copy that is left\n"
                "out, made twice or put in a wrong place; a page that is reused too early, or before\n"
                "its copy on the host is made; a commit that a rank skips; a shared page in a wrong\n"
                "place; and wrong rows of fp8 blocks.\n"
                "\n"
                "--fault makes one rank fail in the first switch to inference, and prints what the\n"
                "others report. SPEC is KIND:rank=R,wave=W or KIND:rank=R,phase=P. KIND is kill,\n"
                "stall, slow, enomem (it gets no more memory), corrupt (it writes a wrong byte; needs\n"
                "wave=W), cancel, or flip (a byte of a message to another node; needs wave=W). P is\n"
                "entry, offload, commit, committed, bind or kv. killnode:node=K,... and\n"
                "cut:node=K,... are of a whole node: it is killed, or no byte leaves or reaches it.\n"
                "\n"
                "Ranks may be on several nodes: start them with mpirun, or each with --meet, or under\n"
                "torchrun with --meet alone. --nodes N treats N equal groups of ranks as nodes.",
        .examples = "  mpirun -n 8 --oversubscribe treadle switch --model DIR --train megatron:tp=4,pp=2 "
                    "--infer vllm:tp=2 --check\n"
                    "  mpirun -n 4 treadle switch --model config.json --train megatron:tp=4 --infer "
                    "sglang:tp=2 --cycles 7 --json\n"
                    "  mpirun -n 8 --oversubscribe treadle switch --model config.json --train "
                    "megatron:tp=4,on=0-3 --infer vllm:tp=4,on=4-7 --update 3 --check\n"
                    "  mpirun -n 4 treadle switch --model config.json --train megatron:tp=4 --infer "
                    "vllm:tp=2 --offload params,grads,optimizer\n"
                    "  mpirun -n 4 treadle switch --model config.json --train megatron:tp=4 --infer "
                    "vllm:tp=2 --offload params,optimizer --keep host --forward --timeline out.svg\n"
                    "  mpirun --enable-recovery -n 4 treadle switch --model config.json --train "
                    "megatron:tp=4 --infer vllm:tp=2 --keep host --timeout 5 --fault kill:rank=3,wave=2\n"
                    "  treadle switch --model DIR --train megatron:tp=2 --infer vllm:tp=1 --meet "
                    "127.0.0.1:7000 --job x "
                    "--rank 0 --ranks 2\n"
                    "  mpirun -n 4 treadle switch --model DIR --train megatron:tp=2,pp=2 --infer vllm:tp=4 "
                    "--nodes 2 --check\n",
        .run = treadle_command_switch,
        .refuse = treadle_command_switch_refuse,
    },
    {
        .name = "attach",
        .bit = TREADLE_IN_ATTACH,
        .words = "FILE.RANK",
        .words_min = 1,
        .words_max = 1,
        .summary = "look at the inference weights of a switch that runs in another process",
        .text = "Reads the handle that treadle switch --handle-file has written, or any file with a\n"
                "handle of the library. It maps the weights of that rank where they lie, read-only,\n"
                "waits until a version is there, holds it, and prints the storage tensors with a sum\n"
                "of each one's bytes (XXH3, 64 bits). Meanwhile the switch waits with its way back to\n"
                "training.\n"
                "\n"
                "The exit status is 2 for a file that is no handle of this machine and user, and 1 when\n"
                "its process has ended or the version does not come.",
        .examples = "  mpirun -n 2 treadle switch --model DIR --train megatron:tp=2 --infer vllm:tp=2 "
                    "--cycles 100 --handle-file /tmp/weights\n"
                    "  treadle attach /tmp/weights.0\n"
                    "  treadle attach /tmp/weights.1 --wait 5 --json\n",
        .run = treadle_command_attach,
    },
    {
        .name = "generate",
        .bit = TREADLE_IN_GENERATE,
        .words = "",
        .summary = "generate with the built-in engine",
        .text =
            "Reads requests, one a line of JSON, and writes answers in the same order. A line has\n"
            "prompt, messages or prompt_token_ids, and may have id and sampling values by vLLM's "
            "names: max_tokens,\n"
            "min_tokens, temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty,\n"
            "frequency_penalty, stop, stop_token_ids, ignore_eos, n, seed, logprobs. All lines are\n"
            "checked before the first runs.\n"
            "\n"
            "With --prompt the text is printed as it comes, unless --out or --json asks for more.\n"
            "\n"
            "An answer has id, index, prompt_token_ids, token_ids, text, logprobs, top_logprobs,\n"
            "finish_reason, stop_reason and version. Log-probabilities are float32 with 9 digits:\n"
            "equal text is equal bits. With the same seeds, answers do not depend on the batch, the\n"
            "chunks, the blocks, the threads or the layout.\n"
            "\n"
            "The ranks are those of mpirun, else one, in a vllm or sglang layout (default: vllm:tp=1).\n"
            "Ranks that tp, pp and ep leave over are replicas, which share the requests. With --train\n"
            "the weights are loaded into a layout for training first, and switched; the answers are\n"
            "the same bits.",
        .examples =
            "  treadle generate --model DIR --prompt \"What is the capital of France?\" --chat "
            "--temperature 0\n"
            "  treadle generate --model DIR --file prompts.jsonl --n 8 --out answers.jsonl --json\n",
        .run = treadle_command_generate,
    },
    {
        .name = "score",
        .bit = TREADLE_IN_SCORE,
        .words = "",
        .summary = "log-probabilities of tokens that are there, and perplexity",
        .text = "Reads texts, one a line of JSON: text, messages, token_ids, or what treadle generate\n"
                "wrote. It writes id, token_ids, logprobs (the first is null) and their sum for each,\n"
                "with --top also top_logprobs. With --logits it writes a safetensors file with a tensor\n"
                "logits.N for line N, from 0. All lines are checked before the first is scored.\n"
                "\n"
                "With --check each log-probability is compared with that of the line, bit for bit; the\n"
                "exit status is 1 if one differs. The layout may be one for training (default: hf).",
        .examples = "  treadle score --model DIR --file texts.jsonl --top 5\n"
                    "  treadle score --model DIR --file answers.jsonl --check --json\n",
        .run = treadle_command_score,
    },
    {
        .name = "grad",
        .bit = TREADLE_IN_GRAD,
        .words = "MODEL",
        .words_min = 1,
        .words_max = 1,
        .summary = "loss and gradients of a few rows",
        .text =
            "Takes rows of tokens forward and backward through a model. The loss is the mean of -log p\n"
            "over the tokens that count, in all rows. Rows are JSON, lines or one list:\n"
            "\n"
            "  {ids, mask}          ids[i] counts where mask[i] is 1\n"
            "  {text}               all tokens but the first count\n"
            "  {prompt, response}   the response and its end token count\n"
            "  {messages}           what assistants say counts\n"
            "\n"
            "With --out it writes the gradients, to compare them with any other framework. Rows go\n"
            "through the layers --micro-batch-size at a time, and none knows of the others. The ranks\n"
            "are those of mpirun, else one; gradients are the same bits for every tp, pp and vpp, and\n"
            "for any number of threads.",
        .examples =
            "  treadle grad DIR --file rows.jsonl --out grads.safetensors --json\n"
            "  mpirun -n 4 treadle grad DIR --file rows.jsonl --layout megatron:tp=2,pp=2 --dtype fp32\n",
        .run = treadle_command_grad,
    },
    {
        .name = "sft",
        .bit = TREADLE_IN_SFT,
        .words = "CONFIG.yaml [section.key=value ...]",
        .words_max = TREADLE_MAX_SETTINGS,
        .summary = "supervised training from a configuration",
        .text =
            "Trains a model on rows of tokens, texts, prompts with responses, or chats. All that a run\n"
            "is stands in CONFIG.yaml, with the keys of MindSpeed-RL; what follows it changes single\n"
            "keys. --help-config prints them all.\n"
            "\n"
            "The ranks are those of mpirun, else one. Tensor parallel ranks, pipeline stages and\n"
            "recomputation change no bit of losses and weights while the micro batches are the same.\n"
            "\n"
            "The folder of the run gets config.yaml, metrics.jsonl, events for TensorBoard, and\n"
            "checkpoints global_step_K, whose actor/huggingface is a model for any other program.\n"
            "Ctrl-C saves a checkpoint after the step at hand and ends the run; --resume goes on from it.\n"
            "SIGTERM does the same. Open MPI kills ranks a second after Ctrl-C: for longer steps send\n"
            "SIGUSR1 to rank 0, as the run says at its start, or to mpirun instead, or start mpirun with\n"
            "--mca odls_base_sigkill_timeout 600.",
        .examples = "  mpirun -n 8 treadle sft sft.yaml\n"
                    "  treadle sft sft.yaml actor_config.lr=1e-4 actor_config.save=runs/2 --json\n"
                    "  mpirun -n 4 treadle sft sft.yaml --resume\n"
                    "  treadle sft sft.yaml --plan --ranks 64 --budget 80GiB\n"
                    "  treadle sft --help-config\n",
        .run = treadle_command_sft,
    },
    {
        .name = "train",
        .bit = TREADLE_IN_TRAIN,
        .words = "CONFIG.yaml [section.key=value ...]",
        .words_max = TREADLE_MAX_SETTINGS,
        .summary = "reinforcement learning from a configuration: GRPO and its kin",
        .text =
            "Trains a policy by rewards. One copy of it trains in one layout and generates in another,\n"
            "on the same devices. All that a run is stands in CONFIG.yaml, with the keys of MindSpeed-RL\n"
            "or verl; what follows it changes single keys. --help-config prints them all.\n"
            "\n"
            "The ranks are those of mpirun, else one. In exact mode, the default, log-probabilities are\n"
            "the same bits in both layouts, and every step is checked: one that differs ends the run (1).\n"
            "\n"
            "The folder of the run gets config.yaml, metrics.jsonl, samples.jsonl, events for "
            "TensorBoard,\n"
            "and checkpoints global_step_K, whose actor/huggingface is a model for any other program.\n"
            "Ctrl-C saves a checkpoint after the step at hand and ends the run; --resume goes on from it.\n"
            "SIGTERM does the same. Open MPI kills ranks a second after Ctrl-C: for longer steps send\n"
            "SIGUSR1 to rank 0, as the run says at its start, or to mpirun instead, or start mpirun with\n"
            "--mca odls_base_sigkill_timeout 600.\n"
            "\n"
            "Rewards, of which rl_config.verifier_function lists some:",
        .list = treadle_reward_help,
        .examples = "  mpirun -n 8 treadle train grpo.yaml\n"
                    "  treadle train grpo.yaml actor_config.lr=1e-5 actor_config.save=runs/2 --json\n"
                    "  mpirun -n 4 treadle train grpo.yaml --resume\n"
                    "  treadle train grpo.yaml --plan --ranks 64 --json\n"
                    "  treadle train --help-config\n",
        .run = treadle_command_train,
    },
    {
        .name = "eval",
        .bit = TREADLE_IN_EVAL,
        .words = "MODEL",
        .words_min = 1,
        .words_max = 1,
        .summary = "what a model's answers are worth: samples of prompts, scored",
        .text =
            "Draws --n samples of each prompt of --data and scores them with --reward. The data are lines\n"
            "of JSON, or one list, with a prompt and an answer; --prompt-key and --answer-key name other\n"
            "keys.\n"
            "\n"
            "mean@N is the mean score, best@N/mean what the best of N draws with replacement scores,\n"
            "maj@N/mean what the answer that most of N draws give scores.\n"
            "\n"
            "Rewards, of which --reward names one:",
        .list = treadle_reward_help,
        .examples = "  treadle eval DIR --data test.jsonl --reward sequence --n 8\n"
                    "  treadle eval DIR --data gsm8k/test.jsonl --reward gsm8k --prompt-key question "
                    "--temperature 0\n"
                    "  mpirun -n 2 treadle eval DIR --data math.json --reward math --prompt-key problem "
                    "--no-answer leave_out --n 4 --json\n",
        .run = treadle_command_eval,
    },
    {
        .name = "report",
        .bit = TREADLE_IN_REPORT,
        .words = "RUN",
        .words_min = 1,
        .words_max = 1,
        .summary = "a run of treadle train or sft as one page",
        .text = "Reads the folder of a run and writes RUN/report.html, or --out: one file that needs no "
                "other.\n"
                "Reward, loss, KL, entropy, lengths and the seconds of each stage by step; device bytes\n"
                "by class through the last step with the bound that was foreseen; what the switch moves\n"
                "from rank to rank; completions with their rewards. It may be made while the run goes on.",
        .examples = "  treadle report runs/1\n"
                    "  treadle report runs/1 --out page.html --json\n",
        .run = treadle_command_report,
    },
    {
        .name = "data",
        .bit = TREADLE_IN_DATA,
        .words = "sequence",
        .words_min = 1,
        .words_max = 1,
        .summary = "make the rows of a task to train on",
        .text = "sequence is the task of verl's end-to-end test: a prompt a,b:9,n asks for the n numbers\n"
                "that follow a and b, each the last plus (b - a), modulo 9. Of 900 prompts 720 are to\n"
                "train with (train.jsonl) and 180 to test (test.jsonl): {prompt, answer, data_source}.\n"
                "sft.jsonl has 40,000 rows {prompt, response} of the former, where each number is with\n"
                "probability --noise a random digit. All follows from the seed.",
        .examples = "  treadle data sequence --out data/sequence\n"
                    "  treadle data sequence --out data/clean --noise 0 --seed 1 --json\n",
        .run = treadle_command_data,
    },
    {
        .name = "convert",
        .bit = TREADLE_IN_CONVERT,
        .words = "IN OUT",
        .words_min = 2,
        .words_max = 2,
        .summary = "convert a checkpoint from one layout to another",
        .text = "Reads the checkpoint IN and writes OUT, a new or empty folder. The layouts are:\n"
                "\n"
                "  hf              safetensors files, as Hugging Face has them\n"
                "  megatron:...    Megatron's legacy archives, one for each tp, pp and ep rank\n"
                "  torch_dist      Megatron's distributed checkpoints\n"
                "\n"
                "Types stay as they are unless a layout says dtype=. Other files of a Hugging Face\n"
                "model are copied along, so that the way back gives the same bytes. The model is that\n"
                "of IN; where IN does not say it, --model does.\n"
                "\n"
                "Run it alone, or under mpirun: then the processes share the work. It takes less than\n"
                "512 MiB of memory. If a run is killed, start it again with the same arguments, and\n"
                "it goes on where it stopped.",
        .examples = "  treadle convert --from hf --to megatron:tp=2,pp=2,ep=2 DIR OUT\n"
                    "  treadle convert --from megatron:tp=2,pp=2,ep=2 --to hf OUT BACK\n"
                    "  mpirun -n 4 treadle convert --from torch_dist --to hf --model config.json "
                    "CHECKPOINT OUT --json\n",
        .run = treadle_command_convert,
    },
    {
        .name = "family",
        .bit = TREADLE_IN_FAMILY,
        .words = "list | show NAME | check DIR|index.json|config.json|LIST.tsv[.gz] | new "
                 "DIR|index.json|LIST.tsv[.gz]",
        .words_min = 1,
        .words_max = 2,
        .summary = "list model families, show one, check one against a checkpoint, or draft a new one",
        .text = "A family is a data file. It says which tensors a type of model has, and how each\n"
                "engine names, fuses and cuts them.\n"
                "\n"
                "  list            Lists all families.\n"
                "  show NAME       Prints the file of a family. With --expanded it prints one file in\n"
                "                  which all that the family extends, its blocks and its changes are\n"
                "                  put together.\n"
                "  check           Compares the names of a family with those of a checkpoint, and the\n"
                "                  shapes, too, where the files are there. It prints what is missing\n"
                "                  or left over, and warns of each open point (to_say) of the family.\n"
                "  new             Drafts a family file for a checkpoint that no family covers. What\n"
                "                  a checkpoint does not show is an open point: a sentence under\n"
                "                  to_say and a comment in the draft, and a line on standard error.\n"
                "\n"
                "A checkpoint is a folder, or the index.json in it. check also takes a config.json\n"
                "alone, and then checks that one. LIST.tsv stands for a checkpoint that is not here:\n"
                "it has a line for each tensor, with name, safetensors dtype and shape (AxB) between\n"
                "tabs, and needs --model config.json.\n"
                "\n"
                "The exit status of check and new is 0 when the family or the draft covers the\n"
                "checkpoint, 1 when it does not, and 2 when something cannot be read.",
        .examples = "  treadle family list\n"
                    "  treadle family show llama\n"
                    "  treadle family show qwen3 --expanded\n"
                    "  treadle family check DIR\n"
                    "  treadle family check params.tsv.gz --model config.json\n"
                    "  mkdir mine\n"
                    "  treadle family new DIR --like llama -o mine/loom.yaml\n"
                    "  treadle family check DIR --families mine\n",
        .run = treadle_command_family,
    },
    {
        .name = "inspect",
        .bit = TREADLE_IN_INSPECT,
        .words = "DIR|config.json",
        .words_min = 1,
        .words_max = 1,
        .summary = "print what is in a model: family, configuration, tensors, types, totals, files",
        .text = "Reads the folder of a Hugging Face model, or a config.json alone, and prints what\n"
                "treadle sees in it.\n"
                "\n"
                "With --check DIR is a checkpoint of a run, global_step_K, or a run with checkpoints: are\n"
                "values and files those that were saved? The exit status is 1 where one is damaged, or\n"
                "of another checkpoint; it is named.",
        .examples = "  treadle inspect DIR\n"
                    "  treadle inspect DIR --json\n"
                    "  treadle inspect RUN/global_step_100 --check\n",
        .run = treadle_command_inspect,
    },
    {
        .name = "tokenize",
        .bit = TREADLE_IN_TOKENIZE,
        .words = "",
        .summary = "turn texts and chats into tokens, and tokens into texts",
        .text = "Reads the tokenizer of a model: tokenizer.json, else vocab.json with merges.txt, else a\n"
                "*.bin of llama2.c. It prints the text and, for each token, its id and the text that\n"
                "the tokenizer has for it.\n"
                "\n"
                "With --json it prints a line with text and token_ids. Each line of --file has text,\n"
                "messages or token_ids. Nothing is printed before all lines were found good.\n"
                "\n"
                "Messages are a chat: the model's chat template makes the text that treadle generate\n"
                "gives the model, with the place for an answer behind them. With --chat a text is a\n"
                "message of the user.\n"
                "\n"
                "With --special off no special tokens are put around a text, and those among ids are\n"
                "left out of the text. Special tokens that a text spells out are found in either case.",
        .examples = "  treadle tokenize --model DIR --text 'Once upon a time'\n"
                    "  treadle tokenize --model DIR --text 'What is the capital of France?' --chat\n"
                    "  treadle tokenize --tokenizer DIR/tokenizer.json --ids 1,2,3 --special off\n"
                    "  treadle tokenize --model DIR --file texts.jsonl --json\n",
        .run = treadle_command_tokenize,
    },
    {
        .name = "doctor",
        .bit = TREADLE_IN_DOCTOR,
        .words = "",
        .summary = "print what this machine has and lacks, and what to do about it",
        .text = "Looks at the launcher, the limits on mappings, files and locked memory, shared\n"
                "memory, huge pages, cores and memory. The exit status is 1 when something is missing\n"
                "that treadle needs.",
        .examples = "  treadle doctor\n"
                    "  treadle doctor --json\n",
        .run = treadle_command_doctor,
    },
    {
        .name = "make-model",
        .bit = TREADLE_IN_MAKE_MODEL,
        .words = "DIR",
        .words_min = 1,
        .words_max = 1,
        .hidden = true,
        .summary = "write a small checkpoint with hash weights, for trying things out",
        .text = "Writes config.json and model.safetensors of a small model into DIR, a folder that is\n"
                "new or has no config.json. Each value is a hash of tensor and index, so that no two\n"
                "places look alike.",
        .examples = "  treadle make-model build/demo-model\n"
                    "  treadle make-model build/tiny --family qwen3 --layers 2 --hidden 128 --vocab 1000\n",
        .run = treadle_command_make_model,
    },
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

/* ---- Finding the subcommand ------------------------------------------------------------------ */

static void print_overview(FILE *file) {
  fputs("treadle moves a language model's weights between its training and its inference layout.\n\n"
        "usage: treadle COMMAND [options]\n\ncommands:\n",
        file);
  for (int i = 0; i < COMMANDS; i++)
    if (!commands[i].hidden) fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].summary);
  fputs(
      "  help       print the options and examples of a command\n\n"
      "Exit status: 0 when all went well, 1 for a difference or a failure, 2 for input that is refused.\n",
      file);
}

static const treadle_command *find_command(const char *name) {
  for (int i = 0; i < COMMANDS; i++)
    if (strcmp(commands[i].name, name) == 0) return &commands[i];
  return NULL;
}

static int refuse_command(const char *name) {
  const char *names[COMMANDS + 2];
  for (int i = 0; i < COMMANDS; i++) names[i] = commands[i].name;
  names[COMMANDS] = "help";
  names[COMMANDS + 1] = NULL;
  const char *nearest = treadle_nearest_name(name, names), *shown = treadle_text_shown(name);
  if (nearest)
    fprintf(stderr, "treadle: there is no command '%s'; did you mean '%s'?\n", shown, nearest);
  else
    fprintf(stderr, "treadle: there is no command '%s'; see treadle --help\n", shown);
  return TREADLE_EXIT_REFUSED;
}

/* said_by: what was typed. */
static int print_help(const treadle_command *command, const char *said_by) {
  treadle_status status = treadle_options_print_help(command, stdout);
  if (status) return treadle_report_error(said_by, status);
  return treadle_finish_output(said_by, TREADLE_EXIT_OK);
}

static int run_help(int count, char **texts) {
  if (count == 0 || strcmp(texts[0], "help") == 0) {
    print_overview(stdout);
    return treadle_finish_output("help", TREADLE_EXIT_OK);
  }
  const treadle_command *command = find_command(texts[0]);
  if (!command) return refuse_command(texts[0]);
  return print_help(command, "help");
}

/* Where the caller closed standard input, output or error, the next file that is opened would take its place, and be
 * written what is said. Output that nobody gets is a failure, messages that nobody gets are not. */
static void fill_descriptors(void) {
  static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
  for (int fd = 0; fd < 3; fd++)
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", modes[fd]) != fd) _exit(TREADLE_EXIT_FAILED);
}

int treadle_main(int count, char **texts) {
  fill_descriptors();
  treadle_progress_begin();
  if (count < 2) {
    print_overview(stderr);
    return TREADLE_EXIT_REFUSED;
  }
  const char *name = texts[1];
  if (strcmp(name, "--version") == 0) {
    printf("treadle %s\n", treadle_version_text());
    return treadle_finish_output("--version", TREADLE_EXIT_OK);
  }
  if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
    return run_help(count - 2, texts + 2);

  const treadle_command *command = find_command(name);
  if (!command) return refuse_command(name);
  treadle_arguments arguments;
  treadle_status status = treadle_options_parse(command, count - 2, texts + 2, &arguments);
  if (!status && !arguments.help) status = treadle_refuse_replaced(&arguments);
  if (status) return command->refuse ? command->refuse(status) : treadle_report_error(name, status);
  if (arguments.help) return print_help(command, name);
  return command->run(&arguments);
}
