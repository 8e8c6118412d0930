/* A draft from the first look to the last: treadle_tools.h. */
#include "draft/draft.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/sized.h"
#include "base/utf8.h"
#include "model/config.h"
#include "model/stored.h"
#include "model/subject.h"
#include "treadle_tools.h"

#include <string.h>

struct treadle_family_draft {
  treadle_arena arena;
  treadle_family_reader reader;
  treadle_subject subject;
  treadle_draft draft;
  bool covered;        /* a family that is there will do: there is no draft */
  bool same;           /* the draft only extends one */
  const char *refusal; /* why the draft is not a family yet; NULL: it is one */
  treadle_files files; /* of the last model and the checkpoint */
};

/* ---- Models of the checkpoint ------------------------------------------------------------------ */

/* Compares a model with the checkpoint, in `files`. *all_p: each says what the other does. */
static treadle_status compare(treadle_family_draft *draft, const treadle_model *model, bool *all_p) {
  treadle_draft *d = &draft->draft;
  treadle_status status;
  treadle_files_release(&draft->files);
  draft->files = (treadle_files){0};
  *all_p = false;
  if (!model) return TREADLE_OK;
  TRY(treadle_files_match(model, d->checkpoint, d->arena, &draft->files));
  *all_p = draft->files.missing_count + draft->files.left_over_count == 0;
out:
  return status;
}

/* Is there a family already? */
static treadle_status find_covering(treadle_family_draft *draft) {
  treadle_draft *d = &draft->draft;
  const treadle_model_options options = {.struct_size = sizeof options, .families = d->folder};
  treadle_model *model = NULL;
  treadle_status status =
      treadle_model_for_files(d->config_path, d->config, &options, d->checkpoint, &model);
  if (status) return status == TREADLE_NO_MEMORY ? status : TREADLE_OK;
  TRY(compare(draft, model, &draft->covered));
  d->like_name = treadle_arena_copy_text(d->arena, model->family->name);
  if (!d->like_name) TRY(treadle_family_no_memory());
out:
  treadle_model_close(model);
  return status;
}

/* The draft as it stands, compared. NULL model: it is none yet, with the reason in `refusal`. */
static treadle_status try_draft(treadle_family_draft *draft, treadle_model **model_p, bool *all_p) {
  treadle_model_close(*model_p);
  *model_p = NULL;
  treadle_status status = treadle_draft_model(&draft->draft, model_p);
  draft->refusal = NULL;
  if (!status || status == TREADLE_NO_MEMORY) return status ? status : compare(draft, *model_p, all_p);
  draft->refusal = treadle_arena_copy_text(&draft->arena, treadle_text_shown(treadle_error_message()));
  return draft->refusal ? compare(draft, NULL, all_p) : treadle_family_no_memory();
}

/* ---- The draft ---------------------------------------------------------------------------------- */

/* The object of the config that has the fields of the language model, where the config has not. */
static void find_inner(treadle_draft *d) {
  static const char *const names[] = {"text_config", "language_config", "llm_config", NULL};
  d->inner = d->config;
  if (treadle_draft_other_field(d, "hidden_size")) return;
  for (int i = 0; names[i] && !d->inner_name; i++)
    if (treadle_json_is_object(json_object_get(d->config, names[i]))) d->inner_name = names[i];
  if (d->inner_name) d->inner = json_object_get(d->config, d->inner_name);
}

static treadle_status make(treadle_family_draft *draft, const char *like) {
  treadle_draft *d = &draft->draft;
  treadle_model *model = NULL;
  bool changed, all;
  treadle_status status;
  TRY(treadle_draft_new(d, TREADLE_YAML_MAP, &d->root));
  TRY(treadle_draft_set(d, d->root, "family", d->name));
  TRY(treadle_draft_patterns(d));
  TRY(treadle_draft_choose(d, like));
  TRY(treadle_draft_options(d));
  if (strcmp(d->name, d->like_name) == 0) { /* a file that extends itself goes in a circle */
    d->name = treadle_arena_format(d->arena, "%s_draft", d->name);
    if (!d->name) TRY(treadle_family_no_memory());
    const char *note = d->root->items[0]->note;
    TRY(treadle_draft_set(d, d->root, "family", d->name));
    d->root->items[0]->note = note;
  }
  TRY(treadle_draft_extend(d));
  TRY(try_draft(draft, &model, &draft->same)); /* does it say all when it only extends? */
  if (draft->same) goto out;
  TRY(treadle_draft_pair(d));
  TRY(treadle_draft_begin(d));
  TRY(try_draft(draft, &model, &all));
  if (!model) goto out;
  TRY(treadle_draft_conditions(d, model, &changed));
  if (changed) TRY(try_draft(draft, &model, &all));
  if (!model) goto out;
  TRY(treadle_draft_vary(d, model));
  TRY(treadle_draft_compose(d, model));
  TRY(try_draft(draft, &model, &all));
out:
  treadle_model_close(model);
  return status;
}

static treadle_status open_all(treadle_family_draft *draft, const char *path,
                               const treadle_family_draft_options *options) {
  treadle_draft *d = &draft->draft;
  treadle_status status;
  draft->reader = (treadle_family_reader){.path = path, .arena = &draft->arena};
  *d = (treadle_draft){.arena = &draft->arena, .folder = options->families};
  d->assembly = (treadle_assembly){.reader = &draft->reader, .folder = options->families};
  TRY(treadle_subject_open(path, options->model, &draft->arena, &draft->subject));
  d->config_path = draft->subject.config_path;
  d->checkpoint = draft->subject.checkpoint;
  if (!d->checkpoint)
    TRY(treadle_fail(TREADLE_REFUSED,
                     "%s: there is no list of tensors here: *.safetensors, an index.json or a LIST.tsv",
                     path));
  TRY(treadle_json_load(d->config_path, &d->config));
  status = treadle_config_model_type(d->config, &d->name);
  if (!status && !*d->name)
    status = treadle_fail(TREADLE_REFUSED, "model_type is empty: it names the family");
  if (status) TRY(treadle_fail_in(status, "%s: ", d->config_path));
  find_inner(d);
  if (!options->like) TRY(find_covering(draft));
  if (!draft->covered) TRY(make(draft, options->like));
out:
  return status;
}

treadle_status treadle_family_draft_create(const char *path, const treadle_family_draft_options *options,
                                           treadle_family_draft **draft_p) {
  treadle_status status;
  treadle_family_draft_options o;
  TREADLE_NEED(draft_p);
  *draft_p = NULL;
  TREADLE_NEED(path);
  treadle_family_draft *draft = treadle_alloc(sizeof *draft);
  if (!draft) return treadle_fail(TREADLE_NO_MEMORY, "%s: no memory for a draft", path);
  TRY(TREADLE_TAKE(options, &o));
  TRY(open_all(draft, path, &o));
  draft->draft.folder = NULL; /* the caller's */
  *draft_p = draft;
  draft = NULL;
out:
  treadle_family_draft_destroy(draft);
  return status;
}

void treadle_family_draft_destroy(treadle_family_draft *draft) {
  if (!draft) return;
  treadle_files_release(&draft->files);
  treadle_builder_release(&draft->draft.text);
  treadle_builder_release(&draft->draft.open);
  json_decref(draft->draft.config);
  treadle_checkpoint_close(draft->subject.checkpoint);
  treadle_arena_release(&draft->arena);
  treadle_free(draft);
}

void treadle_family_draft_get_info(const treadle_family_draft *draft, treadle_family_draft_info *info_p) {
  static const treadle_family_draft_info nothing = {
      .text = "", .open_lines = "", .missing_names = "", .left_over_names = ""};
  TREADLE_NEED_SIZED_ONLY(info_p);
  TREADLE_GIVE(info_p, &nothing);
  TREADLE_NEED_ONLY(draft);
  const treadle_draft *d = &draft->draft;
  treadle_family_draft_info info = nothing;
  info.family = d->name;
  info.like = d->like_name;
  info.covered = draft->covered;
  info.same = draft->same;
  info.refusal = draft->refusal;
  if (d->text.text) info.text = d->text.text;
  info.open = d->open_count;
  if (d->open.text) info.open_lines = d->open.text;
  info.names = d->checkpoint->count;
  for (int32_t i = 0; i < d->drafted_count; i++) {
    info.patterns++;
    info.added += !info.same && d->drafted[i].pattern == -1;
  }
  const treadle_yaml *renamed = treadle_yaml_get(d->root, "renamed");
  info.renamed = renamed ? (int32_t)renamed->count : 0;
  info.missing = draft->files.missing_count;
  info.left_over = draft->files.left_over_count;
  if (draft->files.missing.text) info.missing_names = draft->files.missing.text;
  if (draft->files.left_over.text) info.left_over_names = draft->files.left_over.text;
  TREADLE_GIVE(info_p, &info);
}
