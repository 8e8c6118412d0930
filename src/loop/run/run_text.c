#include "run/run_text.h"

#include "io/file.h"
#include "io/folder.h"
#include "token/tokenizer.h"

#include <stdio.h>
#include <string.h>

/* The folder of a config.json. */
static void leave_file(char *path) {
  char *slash = strrchr(path, '/');
  const size_t length = strlen(path);
  if (length <= 5 || strcmp(path + length - 5, ".json") != 0) return;
  if (slash)
    *slash = 0;
  else
    strcpy(path, ".");
}

treadle_status treadle_run_text_open(const char *given, const char *model_path, treadle_run_text *text_p) {
  treadle_run_text *text = text_p;
  treadle_status status;
  snprintf(text->companions, sizeof text->companions, "%s", given ? given : model_path);
  if (!given) leave_file(text->companions);
  status = given ? treadle_tokenizer_open(text->companions, &text->tokenizer)
                 : treadle_tokenizer_open_if_there(text->companions, &text->tokenizer);
  if (status || !text->tokenizer) return status;
  if (treadle_file_is_folder(text->companions)) status = treadle_folder_check_companions(text->companions);
  return status ? status : treadle_chat_find(text->companions, &text->chat);
}

void treadle_run_text_close(treadle_run_text *text) {
  treadle_chat_close(text->chat);
  treadle_tokenizer_close(text->tokenizer);
}
