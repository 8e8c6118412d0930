#include "model/notes.h"

#include <stdio.h>
#include <string.h>

void treadle_model_tell(const treadle_model *model, void (*tell)(void *context, const char *line),
                        void *context) {
  char text[1024];
  for (const char *line = model->notes.text; tell && line && *line;) {
    size_t length = strcspn(line, "\n");
    snprintf(text, sizeof text, "%.*s", (int)length, line);
    tell(context, text);
    line += length + (line[length] == '\n');
  }
}
