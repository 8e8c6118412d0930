/* Which faults there are.
 *
 *      grids       kill and stall x each rank x each phase and wave of both ways, in a pair without
 *                  alias (6 waves) and one with it (10 waves)
 *      RANDOM      kill and stall anywhere, with the tightest cap (most waves) or so wide a one that
 *                  nothing is reclaimed; half of them not at a point, but at one of the rank's waits for others
 *      the others  of each type as many as the table says
 *
 * All else is drawn. */
#include "switch/faults.h"

#include "base/random.h"
#include "test.h"

enum { RANDOM = 120, WAITS = 24, GRADS = 40000, OPTIMIZER = 120001, KV_BLOCK = 6000 };
enum { MID_CAP = 311296, TIGHT_CAP = 77824, WIDE_CAP = 2490368 };
static const int mid_waves[2] = {6, 10}; /* alias off, on */

/* Points that are not waves. */
static const treadle_injection_point phases[2][6] = {
    {TREADLE_AT_ENTRY, TREADLE_AT_OFFLOAD, TREADLE_AT_COMMIT, TREADLE_AT_COMMITTED, TREADLE_AT_BIND,
     TREADLE_AT_KV},
    {TREADLE_AT_ENTRY, TREADLE_AT_COMMIT, TREADLE_AT_LOAD}};
static const int phase_count[2] = {6, 3}; /* there, back */

static const struct {
  fault_kind kind;
  int count;
} others[] = {{FAULT_ENOMEM, 50}, {FAULT_SLOW, 20}, {FAULT_BIND, 20}, {FAULT_UNBIND, 20}};

static int grid_steps(int alias) { return 2 * mid_waves[alias] + phase_count[0] + phase_count[1]; }
static int grid_size(int alias) { return 2 * SCENE_RANKS * grid_steps(alias); }

int fault_case_count(void) {
  int count = grid_size(0) + grid_size(1) + RANDOM;
  for (size_t i = 0; i < TEST_COUNT(others); i++) count += others[i].count;
  return count;
}

bool fault_case_is_gone(const fault_case *c, int rank) {
  return rank == c->rank && (c->kind == FAULT_KILL || c->kind == FAULT_STALL);
}

const treadle_layout *fault_case_infer(const fault_case *c, const scene *s) {
  return c->options.alias ? s->alike : s->infer;
}

/* ---- Drawing ---- */

/* One of the waves and phases of both ways. */
static void put_at(fault_case *c, int step, int waves) {
  c->back = step >= waves + phase_count[0];
  if (c->back) step -= waves + phase_count[0];
  c->point = step < waves ? TREADLE_AT_WAVE : phases[c->back][step - waves];
  c->wave = step < waves ? step : 0;
}

static void draw_anywhere(fault_case *c, treadle_random *random) {
  bool tight = treadle_random_below(random, 3) > 0;
  int waves = !tight ? 1 : c->options.alias ? 39 : 21;
  c->options.cap_bytes = tight ? TIGHT_CAP : WIDE_CAP;
  put_at(c, (int)treadle_random_below(random, 2 * waves + phase_count[0] + phase_count[1]), waves);
}

static void draw_random(fault_case *c, int number, treadle_random *random) {
  draw_anywhere(c, random);
  if (number < RANDOM / 2) return;
  c->wait = (int)treadle_random_between(random, 1, WAITS);
  c->point = TREADLE_AT_ENTRY;
}

static bool can_fail(const fault_case *c) { /* does the switch ask for anything there? */
  return c->point != TREADLE_AT_COMMITTED && c->point != TREADLE_AT_KV && c->point != TREADLE_AT_LOAD;
}

static void draw_other(fault_case *c, int number, treadle_random *random) {
  size_t kind = 0;
  while (number >= others[kind].count) number -= others[kind++].count;
  c->kind = others[kind].kind;
  c->rank = number % SCENE_RANKS;
  do draw_anywhere(c, random);
  while (c->kind == FAULT_ENOMEM && !can_fail(c));
  if (c->kind != FAULT_BIND && c->kind != FAULT_UNBIND) return;
  c->back = c->kind == FAULT_UNBIND;
  c->point = TREADLE_AT_BIND;
}

static treadle_choice flip(treadle_random *random) {
  return treadle_random_below(random, 2) ? TREADLE_ON : TREADLE_OFF;
}

static void draw_options(fault_case *c, treadle_random *random) {
  treadle_switch_options *o = &c->options;
  bool back_waves = c->back && c->point == TREADLE_AT_WAVE; /* there are some where params are rebuilt */
  o->offload_train_param = back_waves || treadle_random_below(random, 8) ? TREADLE_ON : TREADLE_OFF;
  o->offload_train_grad = flip(random);
  o->offload_train_optimizer = flip(random);
  o->keep_grads = o->offload_train_grad == TREADLE_ON && flip(random) == TREADLE_ON;
  bool host = !back_waves && o->offload_train_param == TREADLE_ON && treadle_random_below(random, 4);
  o->keep = host ? TREADLE_KEEP_HOST : TREADLE_KEEP_INFER;
  o->host = flip(random) == TREADLE_ON;
  o->guard_pages = treadle_random_below(random, 4) == 0;
  c->from_host = o->host && flip(random) == TREADLE_ON;
  c->warm = treadle_random_below(random, 4) == 0;
  c->forward = c->back && flip(random) == TREADLE_ON;
  c->engine = c->point == TREADLE_AT_BIND || flip(random) == TREADLE_ON;
}

void fault_case_draw(uint64_t seed, int number, fault_case *c) {
  treadle_random random = {treadle_mix64(seed) ^ (uint64_t)number};
  *c = (fault_case){.seed = seed, .number = number, .limit = 0.5};
  c->options = (treadle_switch_options){.struct_size = sizeof(treadle_switch_options),
                                        .page_bytes = SCENE_PAGE,
                                        .cap_bytes = MID_CAP,
                                        .timeout_seconds = 60, /* of the making; then `limit` */
                                        .grads_bytes = GRADS,
                                        .optimizer_bytes = OPTIMIZER,
                                        .kv_block_bytes = KV_BLOCK};
  c->options.alias = number >= grid_size(0);
  int in_grid = c->options.alias ? number - grid_size(0) : number, past = in_grid - grid_size(1);
  if (c->options.alias && past >= 0) {
    c->options.alias = flip(&random) == TREADLE_ON;
    c->kind = past % 2 ? FAULT_STALL : FAULT_KILL;
    c->rank = past / 2 % SCENE_RANKS;
    if (past < RANDOM)
      draw_random(c, past, &random);
    else
      draw_other(c, past - RANDOM, &random);
  } else {
    c->kind = in_grid % 2 ? FAULT_STALL : FAULT_KILL;
    c->rank = in_grid / 2 % SCENE_RANKS;
    put_at(c, in_grid / 2 / SCENE_RANKS, mid_waves[c->options.alias]);
  }
  draw_options(c, &random);
}

/* ---- In words ---- */

const char *fault_case_words(const fault_case *c, char *room, size_t bytes) {
  static const char *const kinds[] = {"is killed",   "is stopped",  "has no memory",
                                      "is too slow", "cannot bind", "cannot unbind"};
  const treadle_switch_options *o = &c->options;
  char at[32];
  if (c->wait > 0)
    snprintf(at, sizeof at, "wait %d", c->wait);
  else
    snprintf(at, sizeof at, c->point == TREADLE_AT_WAVE ? "%s %d" : "%s",
             treadle_injection_point_text(c->point), c->wave);
  snprintf(room, bytes,
           "case %d of seed %llu: rank %d %s at %s %s; alias %s, keep=%s, leaves:%s%s%s%s%s%s%s", c->number,
           (unsigned long long)c->seed, c->rank, kinds[c->kind], at,
           !c->back     ? "to infer"
           : c->forward ? "to forward"
                        : "to train",
           o->alias ? "on" : "off", o->keep == TREADLE_KEEP_HOST ? "host" : "infer",
           o->offload_train_param == TREADLE_ON ? " params" : "",
           o->offload_train_grad == TREADLE_ON ? o->keep_grads ? " grads=keep" : " grads" : "",
           o->offload_train_optimizer == TREADLE_ON ? " optimizer" : "", c->from_host ? ", from host" : "",
           c->engine ? ", engines" : "", c->warm ? ", not the first cycle" : "",
           o->guard_pages ? ", guarded" : "");
  return room;
}
