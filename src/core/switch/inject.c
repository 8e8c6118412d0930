/* Faults from outside treadle, made on purpose: a rank is killed, stopped, late, out of memory. */
#include "base/argument.h"
#include "switch/switch.h"

#include <signal.h>
#include <time.h>

static const char *const names[] = {"entry",     "offload", "wave", "commit",
                                    "committed", "bind",    "kv",   "load"};

const char *treadle_injection_point_text(treadle_injection_point point) {
  return (int)point >= 0 && (int)point < TREADLE_INJECTION_POINTS ? names[point] : "(none)";
}

treadle_status treadle_switch_inject(treadle_switch *sw, treadle_injection injection) {
  treadle_status status;
  TREADLE_NEED(sw);
  TRY(treadle_check_enum(__func__, "what", (long long)injection.what, TREADLE_INJECT_FLIP + 1));
  TRY(treadle_check_enum(__func__, "point", (long long)injection.point, TREADLE_INJECTION_POINTS));
  if (injection.wave < 0)
    return treadle_fail(TREADLE_REFUSED, "treadle_switch_inject: wave %d: they are numbered from 0",
                        (int)injection.wave);
  TRY(treadle_helm_take(sw->helm, "inject"));
  if (injection.wave >= sw->carry.plan->waves) injection.wave = sw->carry.plan->waves - 1;
  sw->carry.faults.injection = injection;
  treadle_helm_leave(sw->helm);
out:
  return status;
}

treadle_status treadle_switch_point(treadle_switch *sw, treadle_injection_point point, int32_t wave) {
  treadle_injection *injection = &sw->carry.faults.injection;
  if (injection->what == TREADLE_INJECT_NOTHING || injection->point != point) return TREADLE_OK;
  if (point == TREADLE_AT_WAVE && injection->wave != wave) return TREADLE_OK;
  treadle_injection_type what = injection->what;
  if (what == TREADLE_INJECT_CORRUPT) return TREADLE_OK; /* waves.c does it after a copy, */
  if (what == TREADLE_INJECT_FLIP) return TREADLE_OK; /* and carry/net.c to a message that is on its way */
  injection->what = TREADLE_INJECT_NOTHING;
  if (what == TREADLE_INJECT_KILL) raise(SIGKILL);
  if (what == TREADLE_INJECT_STALL) raise(SIGSTOP);
  if (what == TREADLE_INJECT_STALL) return TREADLE_OK;
  if (what == TREADLE_INJECT_CUT) {
    treadle_group_cut(sw->group);
    return TREADLE_OK;
  }
  if (what == TREADLE_INJECT_CANCEL) {
    (void)treadle_switch_cancel(sw);
    return treadle_helm_check(sw->helm);
  }
  if (what == TREADLE_INJECT_SLOW) {
    for (int ms = 0;
         ms < 2000 && treadle_carry_check(&sw->carry, treadle_epoch_now(sw->group)) == TREADLE_OK; ms++)
      nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
    return TREADLE_OK;
  }
  char words[360] = "";
  treadle_side to = treadle_aim_side(sw->aim);
  if (point == TREADLE_AT_WAVE) treadle_carry_words(&sw->carry, to, wave, words, sizeof words);
  return treadle_fail(TREADLE_NO_MEMORY, "rank %d: memory is out at %s (injected)",
                      treadle_group_called(sw->group, sw->group->rank),
                      *words ? words : treadle_injection_point_text(point));
}
