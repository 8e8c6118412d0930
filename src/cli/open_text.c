#include "cli/open_text.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A folder of adapters has neither a tokenizer nor a model. */
static bool is_adapter(const char *folder) {
  char path[PATH_MAX];
  return snprintf(path, sizeof path, "%s/adapter_config.json", folder) < PATH_MAX &&
         access(path, F_OK) == 0;
}

treadle_status treadle_open_tokenizer(const char *model, const char *tokenizer,
                                      treadle_tokenizer **tokenizer_p) {
  treadle_status status = treadle_tokenizer_open(tokenizer ? tokenizer : model, tokenizer_p);
  if (status != TREADLE_REFUSED || tokenizer) return status;
  if (is_adapter(model))
    return treadle_fail(status,
                        "%s: an adapter (adapter_config.json), and not a model; treadle convert --lora "
                        "merges it into the weights that it was "
                        "trained for",
                        model);
  return treadle_fail(status, "%s; --tokenizer FILE names another", treadle_error_message());
}

/* The chat template of a folder, or of that in which a file lies. */
static treadle_status open_beside(const char *path, treadle_chat **chat_p) {
  char folder[PATH_MAX];
  struct stat about;
  size_t length = strlen(path);
  if (length >= sizeof folder)
    return treadle_fail(TREADLE_REFUSED, "a path has %zu bytes, at most %zu are taken", length,
                        sizeof folder - 1);
  strcpy(folder, path);
  if (stat(path, &about) != 0 || !S_ISDIR(about.st_mode)) {
    char *slash = strrchr(folder, '/');
    if (!slash)
      strcpy(folder, ".");
    else
      slash[slash == folder] = 0;
  }
  return treadle_chat_open(folder, chat_p);
}

treadle_status treadle_open_chat(const char *model, const char *tokenizer, treadle_chat **chat_p) {
  char message[1024];
  treadle_status status;
  if (!model) return open_beside(tokenizer, chat_p);
  status = open_beside(model, chat_p);
  if (!status || !tokenizer) return status;
  snprintf(message, sizeof message, "%s", treadle_error_message());
  if (open_beside(tokenizer, chat_p) == TREADLE_OK) return TREADLE_OK;
  return treadle_fail(status, "%s", message);
}

treadle_status treadle_find_chat(const char *model, const char *tokenizer, treadle_chat **chat_p) {
  treadle_status status = TREADLE_OK;
  *chat_p = NULL;
  if (model) status = treadle_chat_find(model, chat_p);
  return status || *chat_p || !tokenizer ? status : treadle_chat_find(tokenizer, chat_p);
}
