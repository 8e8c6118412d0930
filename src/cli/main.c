/* treadle: the command. Finds the subcommand in the table, parses its options, runs it. */
#include "cli/cli.h"

#include "base/utf8.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const treadle_command commands[] = {
    {
        .name = "plan",
        .bit = TREADLE_IN_PLAN,
        .words = "",
        .summary = "what a switch between two layouts moves, and the memory it takes",
        .text = "Makes the plans of all ranks, or of one, without any weights and without MPI, so it works "
                "for\n"
                "models and rank counts far beyond this machine. It prints bytes by rank and by pair, the "
                "lower\n"
                "bound, the waves, the smallest cap, the peak of each rank, and the largest tensor and how "
                "it is\n"
                "cut. With --budget it says whether the switch fits, and what would make it fit: then the "
                "exit\n"
                "status is 1 when it does not. --cap is refused when it is below the smallest possible.\n"
                "docs/layouts.md describes LAYOUT.",
        .examples =
            "  treadle plan --model config.json --from megatron:tp=4,pp=2 --to vllm:tp=2 --ranks 8\n"
            "  treadle plan --model DIR --from megatron:tp=8,pp=16 --to vllm:tp=16 --ranks 16384 --rank 0 "
            "--json\n"
            "  treadle plan --model DIR --from megatron:tp=4 --to vllm:tp=2 --ranks 8 --rank-map best "
            "--budget 8GiB\n",
        .run = treadle_command_plan,
    },
    {
        .name = "layout",
        .bit = TREADLE_IN_LAYOUT,
        .words = "",
        .summary = "what one rank holds in a layout",
        .text = "Lists the storage tensors of a rank by the engine's own names, with shapes, types and the "
                "Hugging\n"
                "Face tensors they come from. --runs prints every run: local_start, tensor, start, stride, "
                "count.\n"
                "--rank-map strided and best look at the training layout, given by --train.",
        .examples = "  treadle layout --model config.json --layout megatron:tp=4,pp=2 --ranks 8 --rank 5\n"
                    "  treadle layout --model DIR --layout vllm:tp=2 --ranks 2 --rank 1 --runs --json\n",
        .run = treadle_command_layout,
    },
    {
        .name = "switch",
        .bit = TREADLE_IN_SWITCH,
        .words = "",
        .summary = "switch a model between two layouts and back, timed and checked",
        .text =
            "Run it under mpirun: every process is a rank. The weights are loaded in the training layout "
            "(with a\n"
            "config.json alone they are made by a hash of the canonical index), then moved to the "
            "inference\n"
            "layout and back, --cycles times. For each rank and in total it prints bytes moved, the lower "
            "bound,\n"
            "their ratio, time, GB/s and its ratio to a memcpy of the same bytes, and the peak against its "
            "bound;\n"
            "then the time by parts, and what is on the device after each arrow.\n"
            "\n"
            "--offload also holds gradients (4 bytes an element) and optimizer state (12), and says what "
            "leaves\n"
            "the device while weights are served; what leaves makes room for a KV cache. The first cycle "
            "goes by\n"
            "way of the host. --keep host has a copy of params in host memory: the way back is local then, "
            "and a\n"
            "failure at any moment leaves them as they were. --fault lets one rank die, stop, be late, be "
            "out of\n"
            "memory, write a wrong byte or cancel, and prints what the others report. --timeline draws all "
            "of it.\n"
            "\n"
            "--check compares every byte with a direct cut of the file, and the way back with a snapshot, "
            "over\n"
            "noise. --check=prove also plants mistakes, each in a fresh switch, and demands that each is "
            "caught:\n"
            "a copy dropped, doubled, misplaced; a page reclaimed early or before its twin has it; a "
            "commit that\n"
            "is skipped; a shared page in a wrong place; and spoiled rows of fp8 blocks.",
        .examples =
            "  mpirun -n 8 --oversubscribe treadle switch --model DIR --train megatron:tp=4,pp=2 "
            "--infer vllm:tp=2 --check\n"
            "  mpirun -n 4 treadle switch --model config.json --train megatron:tp=4 --infer sglang:tp=2 "
            "--cycles 7 --json\n"
            "  mpirun -n 4 treadle switch --model config.json --train megatron:tp=4 --infer vllm:tp=2 "
            "--offload params,grads,optimizer\n"
            "  mpirun -n 4 treadle switch --model config.json --train megatron:tp=4 --infer vllm:tp=2 "
            "--offload params,optimizer --keep host --forward --timeline out.svg\n"
            "  mpirun --enable-recovery -n 4 treadle switch --model config.json --train megatron:tp=4 "
            "--infer "
            "vllm:tp=2 --keep host --timeout 5 --fault kill:rank=3,wave=2\n",
        .run = treadle_command_switch,
        .refuse = treadle_command_switch_refuse,
    },
    {
        .name = "convert",
        .bit = TREADLE_IN_CONVERT,
        .words = "IN OUT",
        .words_min = 2,
        .words_max = 2,
        .summary = "convert a checkpoint from one layout to another",
        .text =
            "Reads and writes hf (safetensors), megatron:... (its legacy archives, one for each tp, pp and "
            "ep rank)\n"
            "and torch_dist (Megatron's distributed checkpoints); OUT is a new or empty folder. Types\n"
            "change where a layout says dtype=. What stands beside the weights of a Hugging Face model is "
            "carried\n"
            "along, so that the way back gives the same bytes. Run it alone, or under mpirun to share the "
            "files.\n"
            "Memory stays below 512 MiB. A run that was killed goes on where it stopped when it is started "
            "again.",
        .examples = "  treadle convert --from hf --to megatron:tp=2,pp=2,ep=2 DIR OUT\n"
                    "  treadle convert --from megatron:tp=2,pp=2,ep=2 --to hf OUT BACK\n"
                    "  mpirun -n 4 treadle convert --from torch_dist --to hf --model config.json "
                    "CHECKPOINT OUT --json\n",
        .run = treadle_command_convert,
    },
    {
        .name = "family",
        .bit = TREADLE_IN_FAMILY,
        .words = "list | show NAME [--expanded] | check DIR|index.json|config.json|LIST.tsv[.gz] | new "
                 "DIR|index.json|LIST.tsv[.gz] [--like NAME] [-o FILE]",
        .words_min = 1,
        .words_max = 2,
        .summary = "model families: list them, show one, check one against a checkpoint, draft a new one",
        .text =
            "A family is a data file: which tensors a model type has, and how each engine names, fuses "
            "and cuts\n"
            "them. show prints the file, and with --expanded what it comes to with all that it extends, "
            "its "
            "blocks\n"
            "and changes: one file of the same language. check compares the family's names (and shapes, "
            "where\n"
            "files have them) with a checkpoint's and names what is missing or left over: exit status 0 "
            "when they\n"
            "agree, 1 when not, 2 when something cannot be read. A list has a line for each tensor: name,\n"
            "safetensors dtype and shape (AxB) between tabs; it needs --model config.json.\n"
            "\n"
            "new drafts a family file for a checkpoint that none covers, out of its config.json and its "
            "tensors: what\n"
            "it extends, its tensors by their own names, those that are new, and for which layers. What "
            "cannot be\n"
            "seen in a checkpoint is a sentence of to_say and a comment in the draft, and a line on "
            "standard "
            "error. The\n"
            "exit status is 0 when the draft covers the checkpoint, and 1 when not. check warns of what a "
            "file has\n"
            "to_say.",
        .examples = "  treadle family list\n"
                    "  treadle family show llama\n"
                    "  treadle family show qwen3 --expanded\n"
                    "  treadle family check DIR\n"
                    "  treadle family check params.tsv.gz --model config.json\n"
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
        .summary = "a model: family, configuration, tensors, types, totals, files",
        .text = "Reads a Hugging Face directory or a config.json and prints what treadle sees in it.",
        .examples = "  treadle inspect DIR\n  treadle inspect DIR --json\n",
        .run = treadle_command_inspect,
    },
    {
        .name = "doctor",
        .bit = TREADLE_IN_DOCTOR,
        .words = "",
        .summary = "what this machine has and lacks, and what to do about it",
        .text = "Looks at the launcher, the limits on mappings, files and locked memory, shared memory, "
                "huge pages,\n"
                "cores and memory. Exit status 1 when something is missing that treadle cannot do without.",
        .examples = "  treadle doctor\n  treadle doctor --json\n",
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
        .text = "Writes config.json and model.safetensors of a small model into a new directory, or one "
                "without a "
                "config.json. The values\n"
                "are a hash of tensor and index, so that no two places look alike. make demo uses it.",
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
  fputs("  help       help COMMAND: its options, with examples\n\n"
        "Exit status: 0; 1 for a difference or a failure while running; 2 for input that is refused.\n",
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

static int run_help(int count, char **texts) {
  if (count == 0 || strcmp(texts[0], "help") == 0) {
    print_overview(stdout);
    return treadle_finish_output("help", TREADLE_EXIT_OK);
  }
  const treadle_command *command = find_command(texts[0]);
  if (!command) return refuse_command(texts[0]);
  treadle_options_print_help(command, stdout);
  return treadle_finish_output("help", TREADLE_EXIT_OK);
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
  if (status) return command->refuse ? command->refuse(status) : treadle_report_error(name, status);
  if (arguments.help) {
    treadle_options_print_help(command, stdout);
    return treadle_finish_output(name, TREADLE_EXIT_OK);
  }
  return command->run(&arguments);
}
