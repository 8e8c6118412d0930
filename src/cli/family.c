/* treadle family: list the families, show one, check one against a checkpoint. Drafts are in family_new.c. */
#include "cli/cli.h"
#include "cli/json_out.h"

#include "base/utf8.h"
#include "treadle_tools.h"

#include <stdlib.h>
#include <string.h>

/* ---- list, show ------------------------------------------------------------------------------ */

static void print_ability_json(treadle_json_out *out, const char *name, const char *reason_name,
                               const char *reason) {
  treadle_json_out_bool(out, name, !reason);
  if (reason) treadle_json_out_text(out, reason_name, reason);
}

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
  treadle_json_out_int(out, "to_say", family->open);
  print_ability_json(out, "generates", "not_generated", family->not_generated);
  print_ability_json(out, "trains", "not_trained", family->not_trained);
  treadle_json_out_close(out, '}');
}

static void print_family(const treadle_family_info *family) {
  const char *does = family->not_generated ? "layouts only;"
                     : family->not_trained ? "generates;"
                                           : "generates, trains;";
  printf("%-14s %2d tensors; %-18s model_type", treadle_text_shown(family->name), (int)family->tensors,
         does);
  for (const char *const *type = family->model_types; *type; type++)
    printf(" %s", treadle_text_shown(*type));
  printf("; engines");
  for (const char *const *engine = family->engines; *engine; engine++)
    printf(" %s", treadle_text_shown(*engine));
  if (family->open) printf("; not finished: %d to say", (int)family->open);
  printf("\n");
}

static treadle_status list(const treadle_arguments *arguments) {
  treadle_status status;
  treadle_families *families = NULL;
  treadle_json_out out = {.file = stdout};
  TRY(treadle_families_open(arguments->model.families, &families));
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
  TRY(treadle_families_open(arguments->model.families, &families));
  int32_t family = treadle_families_find(families, name);
  TRY(family < 0                   ? TREADLE_REFUSED
      : arguments->family.expanded ? treadle_families_expanded(families, family, &text)
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

static void print_check_json(const char *path, const treadle_family_check_info *info,
                             const treadle_model_info *model) {
  treadle_json_out out = {.file = stdout};
  treadle_json_out_open(&out, NULL, '{');
  treadle_json_out_text(&out, "path", path);
  treadle_json_out_text(&out, "family", model->family);
  treadle_json_out_text(&out, "file", model->family_path);
  treadle_json_out_int(&out, "tensors", model->tensors);
  treadle_json_out_int(&out, "elems", model->elems);
  treadle_json_out_int(&out, "mtp_layers", model->mtp_layers);
  treadle_json_out_int(&out, "names", info->names);
  treadle_json_out_bool(&out, "shapes", info->has_names && !info->index_only);
  treadle_json_out_int(&out, "stacked", info->stacked);
  treadle_json_out_int(&out, "scales", info->scales);
  treadle_json_out_int(&out, "carried", info->carried);
  treadle_json_out_int(&out, "skipped", info->skipped);
  treadle_json_out_lines(&out, "missing", info->missing_names);
  treadle_json_out_lines(&out, "left_over", info->left_over_names);
  treadle_json_out_lines(&out, "to_say", info->open_lines);
  treadle_json_out_close(&out, '}');
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

static treadle_status check(const treadle_arguments *arguments, const char *path, bool *differs_p) {
  treadle_status status;
  treadle_family_check *made = NULL;
  treadle_family_check_info info = TREADLE_INIT(treadle_family_check_info);
  treadle_model_info model = TREADLE_INIT(treadle_model_info);
  treadle_family_check_options options = {
      .struct_size = sizeof options, .families = arguments->model.families, .model = arguments->model.path};
  TRY(treadle_scale_down_elems(&arguments->model, &options.scale_down));
  TRY(treadle_family_check_open(path, &options, &made));
  treadle_family_check_get_info(made, &info);
  treadle_model_get_info(treadle_family_check_model(made), &model);
  treadle_say_scaled(&arguments->model, treadle_family_check_model(made));
  treadle_say_notes(treadle_family_check_model(made));
  *differs_p = info.missing + info.left_over > 0;
  if (arguments->json) {
    print_check_json(path, &info, &model);
    goto out;
  }
  printf("%s: family %s, %d tensors, %lld parameters\n", treadle_text_shown(path),
         treadle_text_shown(model.family), (int)model.tensors, (long long)model.elems);
  print_result(&info, &model);
  print_names("warning: to say", info.open_lines);
out:
  treadle_family_check_close(made);
  return status;
}

/* ---- The command ----------------------------------------------------------------------------- */

typedef struct family_option {
  const char *verb, *name;
  bool given;
} family_option;

/* Options that are of one verb alone. */
static treadle_status check_options(const treadle_arguments *arguments, const char *verb) {
  const family_option options[] = {{"show", "expanded", arguments->family.expanded},
                                   {"new", "like", arguments->family.like != NULL},
                                   {"new", "output", arguments->family.output != NULL}};
  for (size_t i = 0; i < sizeof options / sizeof *options; i++)
    if (options[i].given && strcmp(verb, options[i].verb) != 0)
      return treadle_fail(TREADLE_REFUSED, "--%s is for family %s; family %s does not take it",
                          options[i].name, options[i].verb, verb);
  if (arguments->json && strcmp(verb, "show") == 0)
    return treadle_fail(TREADLE_REFUSED,
                        "--json is for family list, check and new; family show does not take it");
  if (arguments->model.scale_down && strcmp(verb, "check") != 0)
    return treadle_fail(TREADLE_REFUSED, "--scale-down is for family check; family %s does not take it",
                        verb);
  return TREADLE_OK;
}

static treadle_status run(const treadle_arguments *arguments, const char *verb, const char *what,
                          bool *differs_p) {
  static const char *const verbs[] = {"list", "show", "check", "new", NULL};
  bool known = false;
  for (int i = 0; verbs[i]; i++) known |= strcmp(verb, verbs[i]) == 0;
  if (known && (what != NULL) == (strcmp(verb, "list") != 0)) {
    treadle_status status = check_options(arguments, verb);
    if (status) return status;
    if (!what) return list(arguments);
    if (strcmp(verb, "show") == 0) return show(arguments, what);
    if (strcmp(verb, "new") == 0) return treadle_family_new(arguments, what, differs_p);
    return check(arguments, what, differs_p);
  }
  const char *nearest = treadle_nearest_name(verb, verbs);
  return treadle_fail(
      TREADLE_REFUSED,
      "'%s%s%s' is none of: list, show NAME, check DIR|index.json|config.json|LIST.tsv[.gz], "
      "new DIR|index.json|LIST.tsv[.gz]%s%s",
      verb, what ? " " : "", what ? what : "", nearest ? "; the nearest is " : "", nearest ? nearest : "");
}

int treadle_command_family(const treadle_arguments *arguments) {
  bool differs = false;
  treadle_status status = run(arguments, arguments->words[0], arguments->words[1], &differs);
  int exit_status = status    ? treadle_report_refusal("family", status)
                    : differs ? TREADLE_EXIT_FAILED
                              : TREADLE_EXIT_OK;
  return treadle_finish_output("family", exit_status);
}
