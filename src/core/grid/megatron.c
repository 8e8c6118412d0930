/* megatron: Megatron-core's layouts. docs/rules.md 1.1, 2.1 to 2.3, 3, 6.1. */
#include "grid/megatron.h"

#include "base/checked.h"
#include "base/divisor.h"
#include "base/limits.h"
#include "base/text.h"
#include "layout/layout_types.h"

#include <inttypes.h>
#include <string.h>

static const char default_order[] = "tp-cp-ep-dp-pp";

typedef treadle_megatron_options options;

/* The grids of the dense and of the expert part: strides by the order of names. 16 ranks with tp, cp, pp
 * and ep of 2 each, in the usual order: dense tp 1, cp 2, dp 4, pp 8; experts tp 1, ep 2, dp 4, pp 8. In
 * both of them dp has size 2. */
typedef struct grid_sizes {
  const char *names[5]; /* in order, fastest first */
  int64_t strides[5];
  int count;
} grid_sizes;

/* One order text serves both grids: ep has size 1 in the dense one and cp in the one of experts, and tp and
 * dp stand for etp and edp there (docs/rules.md 1.1). */
static int64_t size_of(const options *o, const char *name, bool expert) {
  if (strcmp(name, "tp") == 0) return expert ? o->etp : o->tp;
  if (strcmp(name, "cp") == 0) return expert ? 1 : o->cp;
  if (strcmp(name, "ep") == 0) return expert ? o->ep : 1;
  if (strcmp(name, "dp") == 0) return expert ? o->edp : o->dp;
  return o->pp;
}

static const char *const axis_names[] = {"tp", "cp", "ep", "dp", "pp", NULL};

/* Reads the order, fastest first. Dimensions that it leaves out have size 1, and come last, where their
 * strides do not matter. Names are pointers into axis_names, so they compare as such. */
static treadle_status order_grid(const char *what, const options *o, bool expert, grid_sizes *grid) {
  const char *at = o->order;
  grid->count = 0;
  for (bool more = true; more;) {
    size_t length = strcspn(at, "-");
    const char *name = NULL;
    for (const char *const *known = axis_names; *known; known++)
      if (strlen(*known) == length && strncmp(*known, at, length) == 0) name = *known;
    if (!name)
      REFUSE("layout '%s': order=%s: '%.*s' is none of tp, cp, ep, dp, pp", what, o->order, (int)length,
             at);
    for (int i = 0; i < grid->count; i++)
      if (grid->names[i] == name) REFUSE("layout '%s': order=%s names %s twice", what, o->order, name);
    grid->names[grid->count++] = name;
    more = at[length] == '-';
    at += length + more;
  }
  for (const char *const *known = axis_names; *known; known++) {
    bool named = false;
    for (int i = 0; i < grid->count; i++) named |= grid->names[i] == *known;
    int64_t size = size_of(o, *known, expert);
    bool expert_axis = strcmp(*known, "ep") == 0 && o->ep > 1;
    if (!named && (size > 1 || expert_axis))
      REFUSE("layout '%s': order=%s does not name %s, whose size is %" PRId64, what, o->order, *known,
             expert_axis ? o->ep : size);
    if (!named) grid->names[grid->count++] = *known;
  }
  /* A stride is the product of the sizes before. */
  int64_t stride = 1;
  for (int i = 0; i < grid->count; i++) {
    grid->strides[i] = stride;
    stride *= size_of(o, grid->names[i], expert);
  }
  return TREADLE_OK;
}

static int64_t stride_of(const grid_sizes *grid, const char *name) {
  for (int i = 0; i < grid->count; i++)
    if (strcmp(grid->names[i], name) == 0) return grid->strides[i];
  return 1;
}

/* What is left of the ranks is dp in the dense grid and edp in the one of experts, two divisions of one
 * number. */
static treadle_status read_sizes(treadle_layout *layout, treadle_settings *words, options *o) {
  treadle_status status = TREADLE_OK;
  int64_t given_dp;
  TRY(treadle_settings_size(words, "tp", 1, &o->tp));
  TRY(treadle_settings_size(words, "cp", 1, &o->cp));
  TRY(treadle_settings_size(words, "pp", 1, &o->pp));
  TRY(treadle_settings_size(words, "ep", 1, &o->ep));
  TRY(treadle_settings_size(words, "etp", o->tp, &o->etp));
  TRY(treadle_settings_size(words, "dp", 0, &given_dp));
  const int64_t dense[] = {o->tp, o->cp, o->pp}, expert[] = {o->etp, o->ep, o->pp};
  TRY(treadle_check_ranks(layout, "tp * cp * pp", dense, 3, &o->dp));
  TRY(treadle_check_ranks(layout, "etp * ep * pp", expert, 3, &o->edp));
  if (given_dp && given_dp != o->dp)
    REFUSE("layout '%s': dp=%" PRId64 ", but %s leave%s dp=%" PRId64 "; give that, or leave dp out",
           words->text, given_dp, treadle_text_of_count(layout->owners.count, "rank"),
           layout->owners.count == 1 ? "s" : "", o->dp);
out:
  return status;
}

/* Pipeline groups of both grids must be the same, and an order that does not end in pp needs equal data
 * parallel sizes (parallel_state.py). */
static treadle_status make_mesh(const char *what, const options *o, int64_t ranks, treadle_mesh *mesh) {
  treadle_status status = TREADLE_OK;
  grid_sizes dense, expert;
  TRY(order_grid(what, o, false, &dense));
  TRY(order_grid(what, o, true, &expert));
  /* tp-cp-ep-pp-dp on 8 ranks with tp = cp = pp = 2, ep = 1: dp is 1 and edp is 2, so it is refused. */
  bool pp_last = strcmp(o->order + strlen(o->order) - 2, "pp") == 0; /* of the names as given */
  if (!pp_last && o->pp > 1 && o->dp != o->edp)
    REFUSE(
        "layout '%s': order=%s does not end in pp, so the data parallel sizes must be equal, and they are "
        "%" PRId64 " and, of experts, %" PRId64 "; let it end in pp",
        what, o->order, o->dp, o->edp);
  if (o->pp > 1 && stride_of(&dense, "pp") != stride_of(&expert, "pp"))
    REFUSE("layout '%s': order=%s gives the dense and the expert part different pipeline groups (strides "
           "%" PRId64 " and %" PRId64 "); let it end in pp",
           what, o->order, stride_of(&dense, "pp"), stride_of(&expert, "pp"));
  /* pp is in both grids, and its strides are equal by now; the other dimensions of the two overlap.
   * Experts are cut over etp and dealt over ep, all other weights are cut over tp. */
  mesh->ranks = ranks;
  treadle_mesh_add(mesh, "tp", o->tp, stride_of(&dense, "tp"));
  treadle_mesh_add(mesh, "cp", o->cp, stride_of(&dense, "cp"));
  treadle_mesh_add(mesh, "dp", o->dp, stride_of(&dense, "dp"));
  treadle_mesh_add(mesh, "pp", o->pp, stride_of(&dense, "pp"));
  treadle_mesh_add(mesh, "etp", o->etp, stride_of(&expert, "tp"));
  treadle_mesh_add(mesh, "ep", o->ep, stride_of(&expert, "ep"));
  treadle_mesh_add(mesh, "edp", o->edp, stride_of(&expert, "dp"));
out:
  return status;
}

/* Rows of all ranks, to a multiple of d * tp (docs/rules.md 3): 151936 rows with d = 128 and tp = 4 become
 * 152064. */
static int64_t padded_rows(const void *context, int64_t rows, int64_t shards) {
  const options *o = context;
  if (o->padded) return o->padded;
  int64_t unit = o->divisible * shards;
  return (rows + unit - 1) / unit * unit;
}

static treadle_status read_spec(treadle_settings *words, const char **spec_p) {
  const char *text = treadle_settings_get(words, "spec");
  *spec_p = text ? text : "te";
  if (strcmp(*spec_p, "te") != 0 && strcmp(*spec_p, "local") != 0)
    REFUSE("layout '%s': spec=%s is neither te nor local", words->text, text);
  return TREADLE_OK;
}

static treadle_status read_stages(treadle_settings *words, treadle_megatron_stages *stages) {
  treadle_status status = TREADLE_OK;
  TRY(treadle_settings_size(words, "vpp", 0, &stages->vpp));
  TRY(treadle_settings_size(words, "first", 0, &stages->first));
  TRY(treadle_settings_size(words, "last", 0, &stages->last));
  TRY(treadle_settings_flag(words, "embedding_split", &stages->embedding_split));
  TRY(treadle_settings_flag(words, "loss_split", &stages->loss_split));
  stages->layout = treadle_settings_get(words, "layout");
out:
  return status;
}

/* The normal form names what differs from what is usual, always in this order, so that equal layouts have
 * equal texts. */
static void write_normal(treadle_builder *normal, const options *o, const treadle_megatron_stages *given,
                         const char *spec) {
  treadle_normal_size(normal, "tp", o->tp);
  treadle_normal_size(normal, "pp", o->pp);
  if (!given->layout && given->vpp) treadle_normal_size(normal, "vpp", given->vpp);
  treadle_normal_size(normal, "cp", o->cp);
  treadle_normal_size(normal, "ep", o->ep);
  if (o->etp != o->tp) treadle_normal_number(normal, "etp", o->etp);
  if (strcmp(o->order, default_order) != 0) treadle_normal_text(normal, "order", o->order);
  if (given->first) treadle_normal_number(normal, "first", given->first);
  if (given->last) treadle_normal_number(normal, "last", given->last);
  if (given->embedding_split) treadle_normal_text(normal, "embedding_split", "on");
  if (given->loss_split) treadle_normal_text(normal, "loss_split", "on");
  if (given->layout) treadle_normal_text(normal, "layout", given->layout);
  if (o->padded)
    treadle_normal_number(normal, "padded_vocab_size", o->padded);
  else if (o->divisible != 128)
    treadle_normal_number(normal, "vocab_divisible_by", o->divisible);
  if (strcmp(spec, "te") != 0) treadle_normal_text(normal, "spec", spec);
}

/* How experts are stored, and which lie where. spec te has them grouped unless asked otherwise, spec local
 * sequential. Each form is a name in conditions of rules (docs/rules.md 4.6); experts are dealt to ep in
 * order, as many to each rank (6.1). */
static treadle_status read_experts(const treadle_layout *layout, treadle_settings *words, const options *o,
                                   treadle_grid *grid, treadle_grid_spec *spec, treadle_builder *normal) {
  static const char *const forms[] = {"grouped", "sequential", "stacked", "legacy"};
  enum { FORMS = sizeof forms / sizeof *forms };
  const treadle_model *model = layout->model;
  treadle_status status = TREADLE_OK;
  const char *text = treadle_settings_get(words, "experts");
  bool mla_fused = false;
  char instead[TREADLE_DIVISORS_ROOM];
  int usual = strcmp(spec->spec, "local") == 0, form = usual;
  if (model->experts == 0 && o->ep > 1)
    REFUSE("layout '%s': ep=%" PRId64 ", and family %s has no experts; leave ep out", words->text, o->ep,
           model->family->name);
  if (model->experts == 0 && text)
    REFUSE("layout '%s': experts is given, and family %s has none; leave it out", words->text,
           model->family->name);
  if (model->experts % o->ep != 0)
    REFUSE("layout '%s': %s not divisible by ep=%" PRId64 "; %s", words->text,
           treadle_text_count_is(model->experts, "expert"), o->ep,
           treadle_divisors_near("ep", model->experts, o->ep, 1, instead));
  if (text)
    for (form = 0; form < FORMS && strcmp(text, forms[form]) != 0;) form++;
  if (form == FORMS)
    REFUSE("layout '%s': experts=%s is none of grouped, sequential, stacked, legacy", words->text, text);
  if (form == FORMS - 1) { /* a storage of its own, which few families describe */
    int64_t known;
    TRY(treadle_grid_trait(layout, spec, treadle_family_engine(model->family, "megatron"), "legacy_experts",
                           0, &known));
    if (!known)
      REFUSE("layout '%s': family %s does not describe experts=legacy; give another form, or leave it out",
             words->text, model->family->name);
  }
  if (form != usual) treadle_normal_text(normal, "experts", forms[form]);
  for (int i = 0; i < FORMS; i++) treadle_grid_number(spec, forms[i], form == i);
  TRY(treadle_settings_flag(words, "mla_down_proj_fusion", &mla_fused));
  if (mla_fused) treadle_normal_text(normal, "mla_down_proj_fusion", "on");
  treadle_grid_number(spec, "mla_fused",
                      mla_fused && strcmp(spec->spec, "te") == 0); /* local does not look at it */
  TRY(treadle_slots_for_all(model->experts, o->ep, model->layers + model->mtp_layers, &grid->arena,
                            &spec->slots));
out:
  return status;
}

/* Also called by the distributed optimizer, whose parameters are those of a Megatron layout. The mesh comes
 * before requirements, which speak of its sizes; stages come last. */
treadle_status treadle_megatron_read(treadle_layout *layout, treadle_settings *words, treadle_grid *grid,
                                     treadle_megatron_options *o, treadle_grid_spec *spec,
                                     treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  const treadle_family *family = layout->model->family;
  const treadle_engine_rules *rules = treadle_family_engine(family, "megatron");
  if (!rules) REFUSE("layout '%s': family %s has no megatron section", words->text, family->name);
  layout->is_train = true;
  treadle_megatron_stages stages = {0};
  int64_t unit;
  const char *order = treadle_settings_get(words, "order");
  o->order = order ? order : default_order;
  spec->rules = rules->rules;
  spec->rule_count = rules->count;
  spec->outer = rules->outer;
  spec->local_numbers = true;
  spec->padded_rows = padded_rows;
  spec->context = o;
  TRY(read_sizes(layout, words, o));
  TRY(read_stages(words, &stages));
  TRY(read_spec(words, &spec->spec));
  TRY(treadle_settings_size(words, "padded_vocab_size", 0, &o->padded));
  TRY(treadle_settings_size(words, "vocab_divisible_by", 128, &o->divisible));
  if (!treadle_mul_fits(o->divisible, o->tp, &unit) || unit > TREADLE_MAX_ELEMS)
    REFUSE("layout '%s': vocab_divisible_by=%" PRId64 " times tp=%" PRId64
           " pads the vocabulary beyond 2^50 rows",
           words->text, o->divisible, o->tp);
  TRY(make_mesh(words->text, o, layout->owners.count, &spec->mesh));
  write_normal(normal, o, &stages, spec->spec);
  TRY(read_experts(layout, words, o, grid, spec, normal));
  TRY(treadle_grid_require(layout, spec, rules));
  stages.pp = o->pp;
  stages.mtp = layout->model->mtp_layers;
  TRY(treadle_stages_megatron(words->text, layout->model->layers, &stages, &grid->arena, &spec->chunks));
  layout->tp = o->tp;
out:
  return status;
}

static treadle_status create(treadle_layout *layout, treadle_settings *words, treadle_arena *words_arena,
                             treadle_builder *normal) {
  treadle_status status = TREADLE_OK;
  (void)words_arena;
  treadle_grid *grid;
  options o = {0};
  treadle_grid_spec spec = {0};
  TRY(treadle_grid_start(layout, &grid));
  TRY(treadle_megatron_read(layout, words, grid, &o, &spec, normal));
  TRY(treadle_grid_build(layout, grid, &spec));
out:
  return status;
}

static const char *const keys[] = {TREADLE_MEGATRON_KEYS, "dtype", "on", NULL};
const treadle_layout_type treadle_layout_type_megatron = {"megatron", keys, false, create};
