/* treadle: the command. Finds the subcommand in the table, parses its options, runs it. */
#include "cli/cli.h"

#include "base/utf8.h"
#include "treadle_loop.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const treadle_command commands[] = {
    {
        .name = "plan",
        .bit = TREADLE_IN_PLAN,
        .words = "",
        .words_max = TREADLE_MAX_SETTINGS,
        .summary = "predict what a switch between two layouts moves, and how much memory it needs",
        .text = "Plans a switch from one layout to another on all ranks, or with --rank on one rank. It\n"
                "reads no weights and does not use MPI, so it works for models and numbers of ranks far\n"
                "beyond this machine.\n"
                "\n"
                "For each rank it prints the bytes that the switch moves, the lower bound of these bytes,\n"
                "and the peak of memory. It also prints which ranks send to which, and how the largest\n"
                "tensor is cut. Waves are the steps of the switch. The cap is memory that the switch uses\n"
                "beyond the weights. The command prints the number of waves and the smallest possible\n"
                "cap.\n"
                "\n"
                "With --budget it also says whether the switch fits into that memory. If it does not fit,\n"
                "the exit status is 1, and the last lines say what would make it fit. If --cap is below\n"
                "the smallest possible cap, the command refuses it.\n"
                "\n"
                "With --config it plans the switch of a run of MindSpeed-RL, RLinf or verl, as its\n"
                "configuration file describes it. Words of the form section.key=value go before the file,\n"
                "and options before both. If the file names a model that is not on this machine, as on a\n"
                "hub, give --model. A file of verl must be the composed one, which verl prints with\n"
                "--cfg job. docs/config.md says which keys count.\n"
                "\n"
                "docs/layouts.md says how to write a LAYOUT.",
        .examples =
            "  treadle plan --config CONFIG.yaml --model DIR --budget 80GiB\n"
            "  treadle plan --config CONFIG.yaml --model DIR actor_rollout_ref.rollout.name=sglang --json\n"
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
        .text = "Lists the storage tensors of a rank under the engine's own names. For each storage\n"
                "tensor it prints the shape, the data type, and the Hugging Face tensors that it is made\n"
                "of.\n"
                "\n"
                "With --runs it also prints each run of elements as five values: local_start, tensor,\n"
                "start, stride, count. Element local_start + i of the storage tensor is element start + i\n"
                "* stride of the Hugging Face tensor, for i from 0 to count - 1.\n"
                "\n"
                "The rank maps strided and best depend on the training layout. If you use one of them,\n"
                "name the training layout with --train. docs/layouts.md says how to write a LAYOUT.",
        .examples = "  treadle layout --model config.json --layout megatron:tp=4,pp=2 --ranks 8 --rank 5\n"
                    "  treadle layout --model DIR --layout vllm:tp=2 --ranks 2 --rank 1 --runs --json\n",
        .run = treadle_command_layout,
    },
    {
        .name = "switch",
        .bit = TREADLE_IN_SWITCH,
        .words = "",
        .summary = "switch a model between two layouts and back; measure and check the switch",
        .text = "Start it under mpirun, where each process is a rank. Without a launcher, start one\n"
                "process for each rank, with --meet, --job, --rank and --ranks. The ranks load the\n"
                "weights in the training layout, switch them to the inference layout, and switch them\n"
                "back, as often as --cycles says. If --model is a config.json, or with --weights random,\n"
                "the weights are made up: each value is a hash.\n"
                "\n"
                "It prints a table with one row for each rank, and one for all ranks together. The\n"
                "columns are: the bytes moved and their lower bound; the time in seconds and the speed in\n"
                "GB/s; the speed relative to a memcpy of as many bytes; the peak of memory and its bound.\n"
                "After the table it prints how the time is divided, and what is on the device in each\n"
                "mode. docs/layouts.md says how to write a LAYOUT.\n"
                "\n"
                "With --offload, every rank also holds gradients (4 bytes for each weight) and optimizer\n"
                "state (12 bytes for each weight). LIST names what leaves the device during inference. A\n"
                "KV cache uses the freed memory. In the first cycle, everything on the device moves to\n"
                "host memory and back once.\n"
                "\n"
                "With --keep host, host memory holds a copy of the training weights during inference. So\n"
                "the way back needs no other rank, and after a failure at any moment the training weights\n"
                "are unchanged.\n"
                "\n"
                "With --own, each rank has its weights in its own memory, as the tensors of a framework\n"
                "are. The switch reads and writes them there. If the training weights are in own memory,\n"
                "they always stay on the device, even without --keep host.\n"
                "\n"
                "With --update N, the engine stays in inference mode and gets new weights N times. Before\n"
                "each update the command changes the sign of every training weight, in place of a\n"
                "training step. The training weights stay on the device, and no pages are shared. With\n"
                "--double on, the engine can use the old version until the new one is complete. With\n"
                "--double off, it has no weights during the update.\n"
                "\n"
                "--check compares every byte in the inference layout with the model's files, and every\n"
                "byte in the training layout with its value at the start. Before it compares, it fills\n"
                "all unused pages with random bytes. --check=prove also makes mistakes on purpose, each\n"
                "in a new switch, and fails unless each one is detected. The mistakes are in:\n"
                "\n"
                "  copies         one is left out, made twice, or put in a wrong place\n"
                "  pages          one is reused too early, or before its copy in host memory is complete\n"
                "  the commit     one rank skips it\n"
                "  shared pages   one is in a wrong place\n"
                "  fp8 blocks     some rows are wrong\n"
                "\n"
                "--fault makes one rank or node fail in the first switch to inference, and prints what\n"
                "the other ranks report. SPEC has one of these forms:\n"
                "\n"
                "  KIND:rank=R,wave=W     rank R fails in wave W\n"
                "  KIND:rank=R,phase=P    rank R fails outside the waves, in phase P: entry, offload,\n"
                "                         commit, committed, bind or kv\n"
                "  KIND:node=K,wave=W     node K fails in wave W; phase=P works here, too\n"
                "\n"
                "KIND of a rank is one of:\n"
                "\n"
                "  kill, stall            the rank's process is killed or stopped\n"
                "  slow                   the rank is late\n"
                "  enomem                 the rank gets no more memory\n"
                "  corrupt                the rank writes a wrong byte (only with wave=W)\n"
                "  flip                   a byte changes in a message to another node (only with wave=W)\n"
                "  cancel                 the rank cancels the switch\n"
                "\n"
                "KIND of a node is one of:\n"
                "\n"
                "  killnode               all processes of the node are killed\n"
                "  cut                    no byte leaves or reaches the node\n"
                "\n"
                "The ranks can be on several nodes (machines). Start them with mpirun, or start each one\n"
                "with --meet, or use torchrun and give --meet alone. --nodes N treats N equal groups of\n"
                "ranks as nodes.",
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
        .summary = "read the inference weights of a switch that runs in another process",
        .text = "Reads a handle: the file that treadle switch --handle-file has written, or a file with a\n"
                "handle from the library. It maps the weights of that rank read-only, without copying\n"
                "them, and waits until they have a version. Then it prints the storage tensors with a\n"
                "checksum of each one (XXH3, 64 bits). While it reads, it holds the version: the switch\n"
                "cannot go back to training.\n"
                "\n"
                "If the file is not a handle of this machine and user, the exit status is 2. If the\n"
                "handle's process has ended, or if the version does not arrive in time, the exit status\n"
                "is 1.",
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
        .summary = "generate text with the built-in engine",
        .text = "Reads requests, one JSON object a line, and writes answers in the same order. A request\n"
                "has prompt, messages or prompt_token_ids. It can also have id, and these sampling\n"
                "values, named as in vLLM: max_tokens, min_tokens, temperature, top_k, top_p, min_p,\n"
                "repetition_penalty, presence_penalty, frequency_penalty, stop, stop_token_ids,\n"
                "ignore_eos, n, seed, logprobs. The command checks all requests before it runs the first\n"
                "one. --prompt or --prompt-ids gives one request without a file.\n"
                "\n"
                "With --prompt, the text is printed while it is generated. With --out or --json it is\n"
                "not.\n"
                "\n"
                "An answer has id, index, prompt_token_ids, token_ids, text, logprobs, top_logprobs,\n"
                "finish_reason, stop_reason and version. Log-probabilities are float32, printed with 9\n"
                "digits, so equal text means equal bits. With the same seeds, answers do not depend on\n"
                "the batch, the chunks, the blocks, the threads or the layout.\n"
                "\n"
                "Under mpirun, each process is a rank; without mpirun there is one rank. The layout is\n"
                "one of vllm or sglang. If there are more ranks than the layout needs, the others are\n"
                "replicas, which share the requests. With --train, the ranks load the weights in a\n"
                "training layout and then switch them. The answers have the same bits with and without\n"
                "--train.",
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
        .summary = "compute log-probabilities and perplexity of given tokens",
        .text = "Reads texts, one JSON object a line, with text, messages or token_ids; an answer of\n"
                "treadle generate will do. For each text it writes id, token_ids, logprobs (the first is\n"
                "null), and their sum. With --top it also writes top_logprobs. With --logits it writes a\n"
                "safetensors file, in which tensor logits.N belongs to line N; lines count from 0. It\n"
                "checks all lines before it scores the first one.\n"
                "\n"
                "With --check it compares each log-probability with the one in the line, bit for bit. If\n"
                "one differs, the exit status is 1. The layout can be a training layout.",
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
        .summary = "compute the loss and the gradients of some rows",
        .text = "Takes rows of tokens forward and backward through a model. The loss is the mean of -log\n"
                "p over all tokens that count, in all rows. The file has one JSON object a line, or one\n"
                "JSON list. A row has one of these forms:\n"
                "\n"
                "  {ids, mask}          ids[i] counts if mask[i] is 1\n"
                "  {text}               all tokens except the first count\n"
                "  {prompt, response}   the tokens of the response and its end token count\n"
                "  {messages}           the tokens of the assistant's messages count\n"
                "\n"
                "With --out it writes the gradients, so that you can compare them with those of another\n"
                "framework. --micro-batch-size rows go through the layers together; the result of a row\n"
                "does not depend on the other rows. Under mpirun, each process is a rank; without mpirun\n"
                "there is one rank. Gradients have the same bits for every tp, pp and vpp, and for every\n"
                "number of threads.",
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
        .summary = "train on given answers (supervised fine-tuning)",
        .text = "Trains a model on rows of tokens, texts, prompts with responses, or chats. CONFIG.yaml\n"
                "describes the run, with the keys of MindSpeed-RL. To change single keys, write\n"
                "section.key=value after the file. --help-config prints all keys.\n"
                "\n"
                "Under mpirun, each process is a rank; without mpirun there is one rank. With the same\n"
                "micro batches, losses and weights have the same bits in every tensor and pipeline\n"
                "parallel layout. Recomputation does not change them either.\n"
                "\n"
                "The run's folder gets config.yaml, metrics.jsonl, events for TensorBoard, and\n"
                "checkpoints global_step_K. Other programs can load the model in\n"
                "global_step_K/actor/huggingface, or with LoRA the adapters in actor/lora_adapter.\n"
                "\n"
                "Ctrl-C or SIGTERM ends the run after the current step and saves a checkpoint. --resume\n"
                "continues from that checkpoint. But Open MPI kills the ranks one second after Ctrl-C. If\n"
                "your steps take longer, send SIGUSR1 to mpirun or to rank 0 instead. The run prints the\n"
                "process id of rank 0 when it starts. Or start mpirun with --mca\n"
                "odls_base_sigkill_timeout 600.",
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
        .summary = "train by reinforcement learning (GRPO and related algorithms)",
        .text = "Trains a policy with rewards. There is one copy of the policy: it trains in one layout\n"
                "and generates in another, on the same devices. CONFIG.yaml describes the run, with the\n"
                "keys of MindSpeed-RL or verl. To change single keys, write section.key=value after the\n"
                "file. --help-config prints all keys.\n"
                "\n"
                "Under mpirun, each process is a rank; without mpirun there is one rank. If the\n"
                "configuration gives roles several pools (resource_pools), start one process more than\n"
                "the pools have slots: rank 0 is the controller and does nothing else. treadle pools\n"
                "prints who gets which rank.\n"
                "\n"
                "In exact mode, the default, log-probabilities have the same bits in both layouts. Every\n"
                "step checks this. If a log-probability differs, the run ends with exit status 1.\n"
                "\n"
                "The run's folder gets config.yaml, metrics.jsonl, samples.jsonl, events for TensorBoard,\n"
                "and checkpoints global_step_K. Other programs can load the model in\n"
                "global_step_K/actor/huggingface, or with LoRA the adapters in actor/lora_adapter.\n"
                "\n"
                "Ctrl-C or SIGTERM ends the run after the current step and saves a checkpoint. --resume\n"
                "continues from that checkpoint. But Open MPI kills the ranks one second after Ctrl-C. If\n"
                "your steps take longer, send SIGUSR1 to mpirun or to rank 0 instead. The run prints the\n"
                "process id of rank 0 when it starts. Or start mpirun with --mca\n"
                "odls_base_sigkill_timeout 600.\n"
                "\n"
                "On a Ray cluster, python -m treadle.ray train CONFIG.yaml runs the same; docs/ray.md.\n"
                "\n"
                "rl_config.verifier_function lists one or more of these rewards:",
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
        .summary = "draw samples from a model and score them with a reward",
        .text = "Draws --n samples for each prompt of --data and scores them with --reward. The data has\n"
                "one JSON object a line, or is one JSON list. Each object has a prompt and an answer. If\n"
                "their keys are not prompt and answer, name them with --prompt-key and --answer-key.\n"
                "\n"
                "It prints these figures, where N is --n:\n"
                "\n"
                "  mean@N         the mean score of all samples\n"
                "  best@N/mean    the mean best score among N samples, drawn with replacement\n"
                "  maj@N/mean     the mean score of the most frequent answer among N samples, drawn with\n"
                "                 replacement\n"
                "\n"
                "--reward names one of these rewards:",
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
        .summary = "turn the folder of a training run into one HTML page",
        .text = "Reads the folder of a run of treadle train or treadle sft, and writes RUN/report.html or\n"
                "the file of --out. The page is one file that needs no other file. The run may still be\n"
                "going on.\n"
                "\n"
                "For each step, the page shows reward, loss, KL, entropy, lengths, and the seconds of\n"
                "each stage. For the last step, it shows the device memory and its predicted bound. It\n"
                "also shows the bytes that the switch moves between ranks, and samples with their\n"
                "rewards. For the last three steps, it shows which rank worked when, by role, with the\n"
                "device memory before and after each method.",
        .examples = "  treadle report runs/1\n"
                    "  treadle report runs/1 --out page.html --json\n"
                    "  treadle report runs/1 --trace runs/1/trace.json\n",
        .run = treadle_command_report,
    },
    {
        .name = "pools",
        .bit = TREADLE_IN_POOLS,
        .words = "CONFIG.yaml [section.key=value ...]",
        .words_min = 1,
        .words_max = TREADLE_MAX_SETTINGS,
        .summary = "print which roles of a run get which ranks and nodes, or why they cannot",
        .text = "Places the pools of a configuration of treadle train on nodes. A pool is a number of\n"
                "slots, each a place for one process, and each role works in one pool. The command starts\n"
                "nothing and needs no launcher, so the nodes can be any, not only this machine.\n"
                "\n"
                "The configuration needs nothing but resource_pools, which says how many slots a pool has\n"
                "on each of its nodes, and mapping, which says which role works in which pool. The keys\n"
                "of MindSpeed-RL, verl and RLinf work, too (docs/pools.md). Pools are placed in the order\n"
                "of the file, and all slots of one number are on one node: the first one with room.\n"
                "\n"
                "For each pool the command prints its roles, ranks and nodes. If the configuration has a\n"
                "model, it also prints the peak of bytes on the fullest rank of the pool that trains and\n"
                "generates. A picture has a letter for each slot. With several pools the controller is\n"
                "rank 0 and works alone, and slot s is rank s + 1. If the pools do not fit, the exit\n"
                "status is 2, and the message names the first pool that does not.",
        .examples = "  treadle pools examples/pools-s4.yaml --nodes 8,8,8,8,8,8,8\n"
                    "  treadle pools examples/pools-s4.yaml --nodes 7 --json\n"
                    "  treadle pools run.yaml resource_pools.critic=[4,4] --nodes 8,8,4\n",
        .run = treadle_command_pools,
    },
    {
        .name = "data",
        .bit = TREADLE_IN_DATA,
        .words = "sequence",
        .words_min = 1,
        .words_max = 1,
        .summary = "write the data of an example task",
        .text = "sequence is the task of verl's end-to-end test. A prompt a,b:9,n asks for the n numbers\n"
                "that follow a and b. Each number is the previous number plus (b - a), modulo 9.\n"
                "\n"
                "The command writes three files. train.jsonl has 720 of the 900 possible prompts, and\n"
                "test.jsonl has the other 180, as {prompt, answer, data_source}. sft.jsonl has 40,000\n"
                "rows {prompt, response}, with prompts of train.jsonl. In these responses each number is\n"
                "replaced by a random digit with probability --noise. The same options give the same\n"
                "bytes on every machine.",
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
                "  hf              Hugging Face's safetensors files\n"
                "  megatron:...    Megatron's legacy archives, one for each tp, pp and ep rank\n"
                "  torch_dist      Megatron's distributed checkpoints\n"
                "\n"
                "Data types do not change, unless a layout says dtype=. Other files of a Hugging Face\n"
                "model are copied, too, so that the way back gives the same bytes. If IN does not say\n"
                "which model it holds, name the model with --model.\n"
                "\n"
                "Under mpirun, the processes share the work. The command needs less than 512 MiB of\n"
                "memory. If you kill it and start it again with the same arguments, it continues where it\n"
                "stopped.",
        .examples = "  treadle convert --from hf --to megatron:tp=2,pp=2,ep=2 DIR OUT\n"
                    "  treadle convert --from megatron:tp=2,pp=2,ep=2 --to hf OUT BACK\n"
                    "  treadle convert --from hf --to hf --lora RUN/global_step_6/actor/lora_adapter DIR MERGED\n"
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
        .summary = "list or show model families, check one against a checkpoint, or draft a new one",
        .text = "A family is a data file. It says which tensors a type of model has, and how each engine\n"
                "names, fuses and cuts them.\n"
                "\n"
                "  list            Lists all families. \"generates\" and \"trains\" say what treadle's\n"
                "                  own engines do with models of a family; \"layouts only\": neither.\n"
                "                  With --json it says why not.\n"
                "  show NAME       Prints the file of a family. With --expanded it prints one complete\n"
                "                  file, in which the blocks, the family that it extends, and its changes\n"
                "                  are merged.\n"
                "  check           Compares the tensor names of a family with those of a checkpoint. If\n"
                "                  the checkpoint's files are there, it also compares the shapes. It\n"
                "                  prints which tensors are missing or left over, and warns of each open\n"
                "                  point (to_say) of the family.\n"
                "  new             Drafts a family file for a checkpoint that no family covers. What the\n"
                "                  checkpoint does not show is an open point. The draft has a sentence\n"
                "                  for it under to_say and a comment, and the command prints a line on\n"
                "                  standard error.\n"
                "\n"
                "A checkpoint is a folder, or the index.json in it. check also takes a config.json alone.\n"
                "If you do not have the checkpoint, list its tensors in LIST.tsv and give --model\n"
                "config.json. LIST.tsv has one line for each tensor: name, safetensors dtype and shape\n"
                "(AxB), separated by tabs.\n"
                "\n"
                "If the family or the draft covers the checkpoint, the exit status of check and new is 0.\n"
                "If it does not, the status is 1. If something cannot be read, it is 2.",
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
        .summary = "print the family, tensors, types and files of a model",
        .text = "Reads the folder of a Hugging Face model, or a config.json alone. It prints the model's\n"
                "family, configuration, tensors, data types, totals and files.\n"
                "\n"
                "With --check, DIR is the folder of a training run, or one of its checkpoints\n"
                "(global_step_K). The command then compares the values and files with those that were\n"
                "saved. If a checkpoint is damaged, or has files of another checkpoint, the command names\n"
                "it, and the exit status is 1.",
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
        .text = "Reads the tokenizer of a model: tokenizer.json; without it, vocab.json with merges.txt;\n"
                "without those, a *.bin of llama2.c. Then it prints the text and, for each token, the\n"
                "token's id and text.\n"
                "\n"
                "With --json it prints a line with text and token_ids. Each line of --file has text,\n"
                "messages or token_ids. The command checks all lines before it prints the first result.\n"
                "\n"
                "Messages are a chat. The model's chat template turns them into one text, which ends\n"
                "where the answer starts, as in treadle generate. With --chat, a text is treated as a\n"
                "message of the user.\n"
                "\n"
                "With --special off, no special tokens are added to a text, and special ids are left out\n"
                "of the text of ids. If a text itself spells out a special token, such as <|im_end|>, it\n"
                "becomes that token in both cases.",
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
        .text = "Checks the launcher, the limits on mappings, files and locked memory, shared memory,\n"
                "huge pages, cores, memory, matrix kernels, networks and CUDA devices. If something is\n"
                "missing that treadle needs, the exit status is 1. A machine without a CUDA device lacks\n"
                "nothing.",
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
        .summary = "write a small checkpoint with made-up weights, to try things out",
        .text = "Writes config.json and model.safetensors of a small model into DIR. DIR must be new, or\n"
                "have no config.json. Each weight is a hash of its tensor and index, so that a weight in\n"
                "a wrong place shows.",
        .examples = "  treadle make-model build/demo-model\n"
                    "  treadle make-model build/tiny --family qwen3 --layers 2 --hidden 128 --vocab 1000\n",
        .run = treadle_command_make_model,
    },
};

enum { COMMANDS = sizeof commands / sizeof commands[0] };

/* ---- Finding the subcommand ------------------------------------------------------------------ */

static void print_overview(FILE *file) {
  fputs("treadle moves a language model's weights between their training layout and their inference "
        "layout.\n\n"
        "usage: treadle COMMAND [options]\n\ncommands:\n",
        file);
  for (int i = 0; i < COMMANDS; i++)
    if (!commands[i].hidden) fprintf(file, "  %-10s %s\n", commands[i].name, commands[i].summary);
  fputs("  help       print the options and examples of a command: treadle help COMMAND\n\n"
        "The exit status is 0 for success, 1 for a difference or a failure, and 2 for refused input.\n",
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
