/* An output that is one of the inputs would be read, and then replaced: what a slip of the hand gives is refused before
 * anything is read. */
#include "cli/cli.h"

#include "base/utf8.h"

#include <stdio.h>
#include <sys/stat.h>

typedef struct named_path {
  const char *name, *path; /* path: NULL where it is not given */
} named_path;

/* The file itself, or what is read of a folder. */
static const char *const files[] = {"",
                                    "/metrics.jsonl",
                                    "/config.json",
                                    "/model.safetensors",
                                    "/model.safetensors.index.json",
                                    "/tokenizer.json",
                                    "/tokenizer_config.json"};

static treadle_status refuse_same(const named_path *output, const struct stat *replaced,
                                  const named_path *input) {
  char path[4096];
  struct stat about;
  for (size_t i = 0; input->path && i < sizeof files / sizeof *files; i++) {
    int length = snprintf(path, sizeof path, "%s%s", input->path, files[i]);
    if (length < 0 || (size_t)length >= sizeof path || stat(path, &about) != 0) continue;
    if (about.st_ino == replaced->st_ino && about.st_dev == replaced->st_dev)
      return treadle_fail(TREADLE_REFUSED,
                          "%s %s: is read as %s, and would be replaced: name another file for the result",
                          output->name, treadle_text_shown(output->path), input->name);
  }
  return TREADLE_OK;
}

treadle_status treadle_refuse_replaced(const treadle_arguments *a) {
  const named_path outputs[] = {{"--out", a->files.out},
                                {"--logits", a->score.logits},
                                {"--timeline", a->switching.timeline},
                                {"--output", a->family.output}};
  const named_path inputs[] = {{"--file", a->files.in},      {"--data", a->eval.data},
                               {"--config", a->grad.config}, {"--tokenizer", a->text.tokenizer},
                               {"--model", a->model.path},   {"--like", a->family.like}};
  treadle_status status = TREADLE_OK;
  struct stat replaced;
  for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
    if (!outputs[i].path || stat(outputs[i].path, &replaced) != 0 || !S_ISREG(replaced.st_mode)) continue;
    for (size_t k = 0; k < sizeof inputs / sizeof *inputs; k++)
      TRY(refuse_same(&outputs[i], &replaced, &inputs[k]));
    for (int k = 0; k < a->word_count; k++)
      TRY(refuse_same(&outputs[i], &replaced, &(named_path){"an input", a->words[k]}));
  }
out:
  return status;
}
