/* treadle family: list the families, show one, check one against a checkpoint. */
#include "cli/cli.h"
#include "cli/json_out.h"

#include "base/utf8.h"
#include "treadle_tools.h"

#include <stdlib.h>
#include <string.h>

/* ---- list, show ------------------------------------------------------------------------------ */

static void print_family_json(treadle_json_out *out, const treadle_family_info *family) {
  treadle_json_out_open(out, NULL, '{');
  treadle_json_out_text(out, "family", family->name);
  treadle_json_out_open(out, "model_types", '[');
  for (const char *const *type = family->model_types; *type; type++)
    treadle_json_out_text(out, NULL, *type);
  treadle_json_out_close(out, ']');
  treadle_json_out_open(out, "engines", '[');
  for (const char *const *engine = family->engines; *engine; engine++)
    treadle_json_out_text(out, NULL, *engine);
  treadle_json_out_close(out, ']');
  treadle_json_out_int(out, "tensors", family->tensors);
  treadle_json_out_close(out, '}');
}

static void print_family(const treadle_family_info *family) {
  printf("%-12s %2d kinds of tensors; model_type", treadle_text_shown(family->name), (int)family->tensors);
  for (const char *const *type = family->model_types; *type; type++)
    printf(" %s", treadle_text_shown(*type));
  printf("; engines");
  for (const char *const *engine = family->engines; *engine; engine++)
    printf(" %s", treadle_text_shown(*engine));
  printf("\n");
}

static treadle_status list(const treadle_arguments *arguments) {
  treadle_status status;
  treadle_families *families = NULL;
  treadle_json_out out = {.file = stdout};
  TRY(treadle_families_open(arguments->families, &families));
  if (arguments->json) {
    treadle_json_out_open(&out, NULL, '{');
    treadle_json_out_open(&out, "families", '[');
  }
  for (int32_t i = 0; i < treadle_families_count(families); i++) {
    treadle_family_info family = TREADLE_INIT(treadle_family_info);
    TRY(treadle_families_get(families, i, &family));
    if (arguments->json)
      print_family_json(&out, &family);
    else
      print_family(&family);
  }
  if (arguments->json) {
    treadle_json_out_close(&out, ']');
    treadle_json_out_close(&out, '}');
  }
out:
  treadle_families_close(families);
  return status;
}

/* Prints the file as it stands: its comments are worth reading. Or all that it comes to. */
static treadle_status show(const treadle_arguments *arguments, const char *name) {
  treadle_status status;
  treadle_families *families = NULL;
  char *text = NULL;
  TRY(treadle_families_open(arguments->families, &families));
  int32_t family = treadle_families_find(families, name);
  TRY(family < 0            ? TREADLE_REFUSED
      : arguments->expanded ? treadle_families_expanded(families, family, &text)
                            : treadle_families_text(families, family, &text));
  fputs(text, stdout);
out:
  free(text);
  treadle_families_close(families);
  return status;
}

/* ---- check ----------------------------------------------------------------------------------- */

static void print_names(const char *title, const char *names) {
  while (*names) {
    size_t length = strcspn(names, "\n");
    fprintf(stderr, "%s: %.*s\n", title, (int)length, names);
    names += length + (names[length] == '\n');
  }
}

static void print_result(const treadle_family_check_info *info, const treadle_model_info *model) {
  if (model->mtp_layers || model->has_mtp) printf("%d MTP layers\n", (int)model->mtp_layers);
  if (!info->has_names) {
    printf("no weights and no index here: only the config was checked\n");
    return;
  }
  print_names("missing or of another shape", info->missing_names);
  print_names("left over", info->left_over_names);
  if (info->stacked) printf("%d tensors stacked or renamed as transformers has them\n", (int)info->stacked);
  if (info->scales) printf("%d tensors of fp8 block scales\n", (int)info->scales);
  if (info->carried)
    printf("%d tensors of other parts, carried along: %s, ...\n", (int)info->carried,
           treadle_text_shown(info->carried_first));
  if (info->skipped)
    printf("%d buffers skipped: %s%s\n", (int)info->skipped, treadle_text_shown(info->skipped_first),
           info->skipped > 1 ? ", ..." : "");
  printf("%d names %s, %s: %s\n", (int)info->names, info->index_only ? "in the index" : "in the files",
         info->index_only ? "shapes unknown" : "with shapes",
         info->missing + info->left_over ? "different" : "all as the family says");
}

static treadle_status check(const treadle_arguments *arguments, const char *path, int32_t *differences_p) {
  treadle_status status;
  treadle_family_check *made = NULL;
  treadle_family_check_info info = TREADLE_INIT(treadle_family_check_info);
  treadle_model_info model = TREADLE_INIT(treadle_model_info);
  treadle_family_check_options options = {
      .struct_size = sizeof options, .families = arguments->families, .model = arguments->model};
  TRY(treadle_scale_down_elems(arguments, &options.scale_down));
  TRY(treadle_family_check_open(path, &options, &made));
  treadle_family_check_get_info(made, &info);
  treadle_model_get_info(treadle_family_check_model(made), &model);
  treadle_say_scaled(arguments, treadle_family_check_model(made));
  *differences_p = info.missing + info.left_over;
  printf("%s: family %s, %d tensors, %lld parameters\n", treadle_text_shown(path),
         treadle_text_shown(model.family), (int)model.tensors, (long long)model.elems);
  print_result(&info, &model);
out:
  treadle_family_check_close(made);
  return status;
}

/* ---- The command ----------------------------------------------------------------------------- */

int treadle_command_family(const treadle_arguments *arguments) {
  static const char *const verbs[] = {"list", "show", "check", NULL};
  const char *verb = arguments->words[0], *what = arguments->words[1];
  int32_t differences = 0;
  treadle_status status;
  if (arguments->expanded && (strcmp(verb, "list") == 0 || strcmp(verb, "check") == 0)) {
    status = treadle_fail(TREADLE_REFUSED, "--expanded is of family show; family %s has none", verb);
  } else if (strcmp(verb, "list") == 0 && !what) {
    status = list(arguments);
  } else if (arguments->json && (strcmp(verb, "show") == 0 || strcmp(verb, "check") == 0)) {
    status = treadle_fail(TREADLE_REFUSED, "--json is of family list; family %s has none", verb);
  } else if (strcmp(verb, "show") == 0 && what) {
    status = show(arguments, what);
  } else if (strcmp(verb, "check") == 0 && what) {
    status = check(arguments, what, &differences);
  } else {
    const char *nearest = treadle_nearest_name(verb, verbs);
    status = treadle_fail(
        TREADLE_REFUSED,
        "'%s%s%s' is none of: list, show NAME, check DIR|index.json|config.json|LIST.tsv[.gz]%s%s", verb,
        what ? " " : "", what ? what : "", nearest ? "; the nearest is " : "", nearest ? nearest : "");
  }
  int exit_status = status        ? treadle_report_refusal("family", status)
                    : differences ? TREADLE_EXIT_FAILED
                                  : TREADLE_EXIT_OK;
  return treadle_finish_output("family", exit_status);
}
