/* treadle family new: a draft of a family file. The draft goes to standard output or to a file, what is to be said of it to standard
 * error; with --json all of it is one object. */
#include "cli/cli.h"
#include "cli/json_out.h"

#include "base/utf8.h"
#include "treadle_tools.h"

#include <string.h>

enum { MOST_LINES = 40 }; /* of one list, on standard error */

static void print_lines(const char *title, const char *lines) {
  int printed = 0, more = 0;
  while (*lines) {
    size_t length = strcspn(lines, "\n");
    if (printed++ < MOST_LINES)
      fprintf(stderr, "%s: %.*s\n", title, (int)length, lines);
    else
      more++;
    lines += length + (lines[length] == '\n');
  }
  if (more) fprintf(stderr, "%s: and %d more\n", title, more);
}

static void print_json(const treadle_arguments *arguments, const treadle_family_draft_info *info) {
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_text(&out, "family", info->family);
  treadle_json_out_text(&out, "like", info->like);
  treadle_json_out_bool(&out, "covered", info->covered);
  treadle_json_out_bool(&out, "same", info->same);
  treadle_json_out_text(&out, "refusal", info->refusal);
  treadle_json_out_int(&out, "names", info->names);
  treadle_json_out_int(&out, "kinds", info->patterns);
  treadle_json_out_int(&out, "renamed", info->renamed);
  treadle_json_out_int(&out, "added", info->added);
  treadle_json_out_lines(&out, "to_say", info->open_lines);
  treadle_json_out_lines(&out, "missing", info->missing_names);
  treadle_json_out_lines(&out, "left_over", info->left_over_names);
  if (arguments->family.output)
    treadle_json_out_text(&out, "output", arguments->family.output);
  else
    treadle_json_out_text(&out, "text", info->text);
  treadle_json_out_close(&out, '}');
}

static void print_summary(const treadle_family_draft_info *info) {
  fprintf(stderr,
          "a draft of family %s, which extends %s: %d kinds of tensors, %d by other names, %d new\n",
          treadle_text_shown(info->family), treadle_text_shown(info->like), (int)info->patterns,
          (int)info->renamed, (int)info->added);
  if (info->same)
    fprintf(stderr, "family %s says all of it: only the model_type is new\n",
            treadle_text_shown(info->like));
  print_lines("to say", info->open_lines);
  print_lines("missing or of another shape", info->missing_names);
  print_lines("left over", info->left_over_names);
  if (info->refusal)
    fprintf(stderr, "it cannot be read as a family yet: %s\n", info->refusal);
  else
    fprintf(stderr, "%d names: %s\n", (int)info->names,
            info->missing + info->left_over ? "different" : "all as the draft says");
}

treadle_status treadle_family_new(const treadle_arguments *arguments, const char *path, bool *open_p) {
  treadle_status status;
  treadle_family_draft *draft = NULL;
  treadle_family_draft_info info = TREADLE_INIT(treadle_family_draft_info);
  const treadle_family_draft_options options = {.struct_size = sizeof options,
                                                .families = arguments->model.families,
                                                .model = arguments->model.path,
                                                .like = arguments->family.like};
  if (arguments->family.output) TRY(treadle_output_ask(arguments->family.output));
  TRY(treadle_family_draft_create(path, &options, &draft));
  treadle_family_draft_get_info(draft, &info);
  if (arguments->family.output && !info.covered)
    TRY(treadle_output_write(arguments->family.output, info.text, strlen(info.text)));
  *open_p = info.refusal || info.missing + info.left_over > 0;
  if (arguments->json) {
    print_json(arguments, &info);
  } else if (info.covered) {
    printf("%s: family %s covers it: %d names, all as the family says; nothing is to be written\n",
           treadle_text_shown(path), treadle_text_shown(info.like), (int)info.names);
  } else {
    if (!arguments->family.output) fputs(info.text, stdout);
    print_summary(&info);
  }
out:
  treadle_family_draft_destroy(draft);
  return status;
}
