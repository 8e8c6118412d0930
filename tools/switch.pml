/* The switch of src/core/switch as a model, for spin: RANKS ranks, WAVES waves, CALLS calls by each rank.
 * tools/check-model runs it.
 *
 *   here                     in src/
 *   modes, `stands`, LOST    switch/switch.c, arrows.c: the arrows, lose, restore, stay_in_infer
 *   entered, arrived, way    epoch.c treadle_epoch_enter; group/group.c treadle_group_meet
 *   wait_all                 words.c treadle_word_wait, for each rank in turn (group/group_wait.c treadle_group_wait)
 *   out_epoch, out_state     outcome.c, the word of treadle_control; EPOCH_FAILED: treadle_outcome_check; decide:
 *                            treadle_outcome_settle; several nodes have several words: tools/nodes.pml
 *   load_params              memory/twins.c treadle_twins_load; before the ranks meet: arrows.c make_ready
 *   twin                     memory/twins.c treadle_twins_fill (page by page, before a wave reclaims it)
 *   run_wave                 run.c run_wave: wait_for_wave, announce_reclaim, carry_out, done; what comes in messages (net.c) has come
 *                            or was cancelled by then, so that it is a read like any other
 *   commit                   epoch.c treadle_epoch_commit
 *   settle                   epoch.c treadle_epoch_fail: wait_until_stopped, anyone_reclaimed; then restore or lose
 *   finish                   arrows.c, after the commit (check_committed); the cache takes the pages that are free
 *   freed, held              arrows.c end_holds, handle.c treadle_holds_end: a window that a reader holds fails its rank; that no hold is
 *                            overlooked is attach/holds.c's business (tests/core/attach/test_threads_holds.c)
 *   engine, unbind           treadle_switch.engine.here: the engine of this rank has the address; engine.c
 *   binding                  arrows.c bind: an epoch of its own (treadle_epoch_next), so bound on all ranks or on none
 *   bound                    treadle_switch.engine.bound: the ranks have agreed that all engines are; false after any failure that leaves
 *                            them in INFER, and then a call to INFER binds again (treadle_arrow_bind)
 *   leave                    group.c treadle_group_fail, treadle_group_close
 *   holds                    the bytes of each physical page: plan/pages.c, with TREADLE_LAG waves between
 *
 * Three rules were found with this model, and it fails without them (planted as OVERTAKEN, LATE_LOAD, BOUND_ALONE): a rank that
 * finds the outcome of a later epoch has failed in its own unless that was committed, and a rank that has left the group decides no
 * outcome (treadle_outcome_check, treadle_outcome_settle); out of HOST, params are in their pages before the ranks meet; and
 * after a failure on the way back no rank counts as bound, whether its own engine was unbound by then or not.
 *
 * Each atomic step is one access to shared words, so that a rank can be killed between any two. What can happen:
 *
 *   killed   a rank vanishes (SIGKILL). Its words and pages stay as they are, since the others have them mapped; the
 *            others see that it died (pidfd). SIGSTOP and slowness: any rank can be overtaken at any step, and with
 *            LATE every wait may end by its time limit.
 *   failing  a rank fails by itself: memory out, a copy not covered, a callback that returns an error, a switch that is
 *            cancelled. One that is cancelled after it has verified is a rank that gives up waiting (LATE).
 *   A rank whose switch failed calls again, in the same group, or closes.
 *
 * What must hold, in every order of steps:
 *
 *   ends      without LATE no rank waits for ever, and no wait needs its time limit (no invalid end state)
 *   pages     a page is read with the bytes of the old mode in it, and is written while nobody reads it
 *   outcome   an epoch is decided once; a rank that says committed (failed) says so of an epoch that is;
 *             bound likewise
 *   old mode  a rank that says that the old weights stand has them, and nobody overwrites one of them afterwards
 *   alike     without LATE, all that say that an epoch failed say the same of the weights
 *   held      where a reader holds the window of a rank, no rank of that epoch unbinds its engine, which comes before all writing
 *   engine    no page that a bound engine may read is written; a rank that counts as bound does so while all engines are
 *
 * Planted mistakes, each to be found: see tools/check-model. */

#ifndef RANKS
#define RANKS 3
#endif
#ifndef WAVES
#define WAVES 3
#endif
#ifndef CALLS
#define CALLS 2
#endif
#define EPOCHS (2 * CALLS) /* a call to INFER is two: the waves, and the engines */
#ifndef CHAIN /* when ranks call again: 1 after a switch that went well, 0 after one that failed */
#define CHAIN 0
#endif
#ifndef LAG
#define LAG 2 /* TREADLE_LAG */
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef LATE
#define LATE 0
#endif
#ifndef KEEP_HOST /* 0: keep=infer */
#define KEEP_HOST 0
#endif

mtype = { TREADLE_HOST, TREADLE_TRAIN, TREADLE_FORWARD, TREADLE_INFER, TREADLE_LOST };
mtype = { UNDECIDED, TREADLE_OPEN, TREADLE_COMMITTED, TREADLE_FAILED };
mtype = { NOTHING, TRAIN_BYTES, INFER_BYTES };

#define NEVER 255 /* no page */
#define ALL ((1 << WAVES) - 1) /* pages */
#define DONE(epoch, wave) ((epoch) * (WAVES + 1) + 1 + (wave))
#define TRAIN_PAGE(unit) (unit) /* the physical page of each page of the windows */
#define INFER_PAGE(unit) ((unit) < LAG -> WAVES + (unit) : (unit) - LAG)
#define PAGES (WAVES + LAG)
#define PAGE(rank, page) holds[(rank) * PAGES + (page)]

/* The control block. */
byte entered[RANKS], arrived[RANKS], reclaimed[RANKS], verified[RANKS], line_stopped[RANKS], line_done[RANKS];
byte freed[RANKS]; /* no reader holds the infer window any more */
bool left[RANKS], alive[RANKS];
byte out_epoch;
mtype out_state = TREADLE_COMMITTED;
byte out_committed; /* outcome.c remember: the last epoch before out_epoch that was committed */
mtype way[RANKS]; /* the mode in which a rank enters; the versions follow from it here */

/* Memory. */
mtype holds[RANKS * PAGES];
byte twin[RANKS];         /* the pages of params that are in host memory, a bit each */
bool engine[RANKS];       /* has the address of the infer window */
bool bound[RANKS];        /* this rank knows that all have */
byte held[RANKS];         /* the epoch in which a reader did not let go of the infer window */
byte reading[RANKS];      /* the page that a rank copies from, of all ranks; NEVER */

/* What happens. */
mtype start;   /* where the ranks are */
bool via_host; /* from FORWARD back to INFER by HOST */
mtype unbound_to = TREADLE_LOST; /* where callers go from INFER with nothing bound: settled by the first one */
byte faults = FAULTS; /* kills and errors that may yet come */

/* What was decided, for the assertions: by epoch, at most once. */
mtype decided[EPOCHS + 1] = UNDECIDED;
mtype verdict[EPOCHS + 1] = UNDECIDED; /* of a failed epoch: the mode that ranks say they are in */
bool stands[EPOCHS + 1];               /* somebody says that the old weights stand */

#define FORWARD_WAVES(to) ((to) == TREADLE_INFER)
#define RUNS_WAVES (mode != to && (to == TREADLE_INFER || !KEEP_HOST))
#define HAS_TWIN (KEEP_HOST || old == TREADLE_HOST)
#define EXCUSED (LATE && decided[epoch] == TREADLE_FAILED) /* what a late rank reads in a failed epoch is never used */

/* treadle_outcome_check. A word of a later epoch: the others have left this one, and have remembered it if it was committed. A rank that has
 * left the group takes part in no outcome. */
#ifdef OVERTAKEN
#define LATER_FAILED false
#else
#define LATER_FAILED (out_epoch > epoch && out_committed < epoch)
#endif
#define I_LEFT left[me]
#define EPOCH_FAILED ((out_epoch == epoch && out_state == TREADLE_FAILED) || LATER_FAILED || I_LEFT)

/* treadle_group_wait for one word of each rank, in their order: it comes, or `failed` does, or its rank died, or left,
 * or the time is over. */
inline wait_all(word, value, failed) {
  atomic {
    peer = 0;
    do
    :: peer == RANKS -> break
    :: peer < RANKS ->
      if
      :: word >= value -> peer++
      :: word < value && (failed) -> ok = false; break
      :: word < value && (left[peer] || !alive[peer]) -> ok = false; break
      :: LATE && word < value -> ok = false; break
      fi
    od;
    peer = 0
  }
}

inline may_fail() {
  if
  :: true
  :: faults > 0 -> faults--; ok = false
  fi
}

/* This rank writes on one of its pages. */
inline write_page(page, bytes) {
  peer = 0;
  do
  :: peer < RANKS -> assert(reading[peer] != page || (LATE && decided[entered[peer]] == TREADLE_FAILED)); peer++
  :: else -> break
  od;
  peer = 0;
  assert(!(engine[me] && PAGE(me, page) == INFER_BYTES));
  PAGE(me, page) = bytes
}

inline load_params() { /* treadle_load: the pages of params that are not theirs, from the twin */
  unit = 0;
  do
  :: unit < WAVES ->
    if
    :: PAGE(me, TRAIN_PAGE(unit)) != TRAIN_BYTES ->
      assert(twin[me] & (1 << unit));
      write_page(TRAIN_PAGE(unit), TRAIN_BYTES)
    :: else
    fi;
    unit++
  :: else -> break
  od;
  unit = 0
}

/* Pages without the bytes of the mode are nobody's, or the cache's. */
inline let_go(bytes) {
  unit = 0;
  do
  :: unit < PAGES ->
    if
    :: PAGE(me, unit) != bytes && PAGE(me, unit) != NOTHING -> write_page(unit, NOTHING)
    :: else
    fi;
    unit++
  :: else -> break
  od;
  unit = 0
}

inline assert_window(in_train) { /* the mode has its bytes */
  unit = 0;
  do
  :: unit < WAVES ->
    assert(in_train -> PAGE(me, TRAIN_PAGE(unit)) == TRAIN_BYTES : PAGE(me, INFER_PAGE(unit)) == INFER_BYTES);
    unit++
  :: else -> break
  od;
  unit = 0
}

inline assert_all_bound() {
  peer = 0;
  do
  :: peer < RANKS -> assert(engine[peer] || !alive[peer]); peer++
  :: else -> break
  od;
  peer = 0
}

inline assert_none_held() {
  peer = 0;
  do
  :: peer < RANKS -> assert(held[peer] != epoch); peer++
  :: else -> break
  od;
  peer = 0
}

/* ---- run.c: one wave ---- */

#ifdef LATE_TWIN
#define FILLS_TWIN false
#else
#define FILLS_TWIN (KEEP_HOST && to == TREADLE_INFER)
#endif

inline copy_begins() { /* reads its part of every rank's window, writes a page of the other */
  unit = (FORWARD_WAVES(to) -> wave : WAVES - 1 - wave);
  if /* treadle_twin_fill: what this wave reclaims */
  :: FILLS_TWIN && old == TREADLE_TRAIN && wave >= LAG ->
    assert(PAGE(me, TRAIN_PAGE(unit - LAG)) == TRAIN_BYTES);
    twin[me] = twin[me] | (1 << (unit - LAG))
  :: else
  fi;
  from_page = (FORWARD_WAVES(to) -> TRAIN_PAGE(unit) : INFER_PAGE(unit));
  peer = 0;
  do
  :: peer < RANKS ->
    assert(PAGE(peer, from_page) == (FORWARD_WAVES(to) -> TRAIN_BYTES : INFER_BYTES) || EXCUSED);
    /* Overwriting what somebody says stands as it was. */
    assert(wave < LAG || HAS_TWIN || !stands[epoch]);
    peer++
  :: else -> break
  od;
  peer = 0;
  reading[me] = from_page;
  if
  :: FORWARD_WAVES(to) -> write_page(INFER_PAGE(unit), INFER_BYTES)
  :: else -> write_page(TRAIN_PAGE(unit), TRAIN_BYTES)
  fi;
  unit = 0;
  from_page = 0
}

inline run_wave() {
  atomic { /* wait_for_wave */
    if
    :: EPOCH_FAILED -> ok = false
    :: else -> may_fail()
    fi;
#ifndef EARLY_RECLAIM
    if
    :: ok && wave >= LAG -> wait_all(line_done[peer], DONE(epoch, wave - LAG), EPOCH_FAILED)
    :: else
    fi
#endif
  }
  if
  :: d_step { ok && wave == LAG -> reclaimed[me] = epoch }; /* announce_reclaim */
    if
    :: d_step { EPOCH_FAILED -> ok = false };
      reclaimed[me] = 0
    :: d_step { !EPOCH_FAILED -> skip }
    fi
  :: d_step { !(ok && wave == LAG) -> skip }
  fi;
  if
  :: d_step { ok -> copy_begins() };
#ifdef EARLY_DONE
    line_done[me] = DONE(epoch, wave);
#endif
    d_step {
      reading[me] = NEVER;
      line_done[me] = DONE(epoch, wave);
      wave++
    }
  :: !ok
  fi
}

/* ---- group.c, switch.c: the outcome ---- */

inline remember() {
  if
  :: out_epoch < epoch && out_state == TREADLE_COMMITTED -> out_committed = out_epoch
  :: else
  fi
}

inline decide(state) { /* the compare-and-swap of treadle_outcome_settle */
  if
  :: !(I_LEFT) && (out_epoch < epoch || (out_epoch == epoch && out_state == TREADLE_OPEN)) ->
    remember();
    out_epoch = epoch;
    out_state = state;
    assert(decided[epoch] == UNDECIDED);
    decided[epoch] = state
  :: else
  fi
}

inline commit() {
  verified[me] = epoch;
#ifdef SKIP_COMMIT
  if
  :: me == 0
  :: else -> wait_all(verified[peer], epoch, EPOCH_FAILED)
  fi;
#else
  wait_all(verified[peer], epoch, EPOCH_FAILED);
#endif
  d_step {
    if
#ifdef SKIP_COMMIT
    :: ok && me == 0
#endif
    :: else ->
      if
      :: ok -> decide(TREADLE_COMMITTED); ok = !(EPOCH_FAILED)
      :: else
      fi
    fi
  }
}

/* The outcome is failed, or becomes it, or was committed all the same. */
inline settle() {
  d_step {
    decide(TREADLE_FAILED);
    reading[me] = NEVER;
    wave = 0;
    if
    :: !EPOCH_FAILED -> ok = true
    :: else
    fi
  }
  if
  :: !ok;
    line_stopped[me] = epoch;
    together = true;
    atomic { /* wait_until_stopped */
      who = 0;
      do
      :: who == RANKS -> break
      :: who < RANKS ->
        if
        :: entered[who] >= epoch && line_stopped[who] < epoch && (left[who] || !alive[who] || LATE) ->
          together = false; who++
        :: line_stopped[who] >= epoch || entered[who] < epoch -> who++
        fi
      od;
      who = 0
    }
    d_step { /* anyone_reclaimed */
      assert(decided[epoch] == TREADLE_FAILED || left[me]);
      any = false;
      do
      :: who < RANKS ->
        assert(!together || reading[who] == NEVER || entered[who] != epoch);
        any = any || reclaimed[who] == epoch;
        who++
      :: else -> break
      od;
      who = 0;
      engine[me] = engine[me] && !binding; /* bind: treadle_generator_unbind */
      if
      :: old == TREADLE_INFER && any && !binding -> mode = TREADLE_LOST
      :: old == TREADLE_INFER && (!any || binding) -> /* stay_in_infer */
        let_go(INFER_BYTES);
        mode = TREADLE_INFER;
#ifdef BOUND_ALONE
        bound[me] = engine[me]
#else
        bound[me] = false
#endif
      :: old == TREADLE_TRAIN && !HAS_TWIN && any -> mode = TREADLE_LOST
      :: old == TREADLE_TRAIN && !HAS_TWIN && !any && !binding -> let_go(TRAIN_BYTES)
      :: old == TREADLE_TRAIN && !HAS_TWIN && !any && binding -> skip /* INFER, unbound */
      :: old == TREADLE_TRAIN && HAS_TWIN -> load_params(); let_go(TRAIN_BYTES); twin[me] = 0; mode = TREADLE_TRAIN
      :: old == TREADLE_HOST -> assert(twin[me] == ALL); let_go(NOTHING); mode = TREADLE_HOST
      fi;
      assert(!engine[me] || mode == TREADLE_INFER);
      any = false;
      if
      :: mode == TREADLE_TRAIN || mode == TREADLE_FORWARD -> assert_window(true)
      :: mode == TREADLE_INFER -> assert_window(false)
      :: else
      fi;
      assert(LATE || left[me] || verdict[epoch] == UNDECIDED || verdict[epoch] == mode);
      verdict[epoch] = (left[me] -> verdict[epoch] : mode);
      stands[epoch] = stands[epoch] || mode != TREADLE_LOST
    }
    if
    :: d_step { !together -> left[me] = true } /* treadle_group_fail */
    :: d_step { together -> together = false }
    fi
  :: ok
  fi
}

inline finish() {
  d_step {
    assert(decided[epoch] == TREADLE_COMMITTED);
    wave = 0;
    if
    :: to == TREADLE_INFER -> let_go(INFER_BYTES); assert_window(false)
    :: else ->
      if
      :: KEEP_HOST -> assert(twin[me] == ALL); load_params()
      :: else
      fi;
      let_go(TRAIN_BYTES);
      assert_window(true);
      assert(!engine[me]);
      bound[me] = false;
      twin[me] = 0 /* training goes on, and the copy grows old */
    fi;
    mode = to
  }
}

/* ---- One rank ---- */

proctype rank(byte me) {
  mtype mode = start, old = start, to = TREADLE_LOST;
  byte calls, epoch, barriers, wave, peer, who, unit, from_page;
  bool ok, binding, together, any;
  {
    ok = true;
  call:
    atomic { /* the caller: arrows that are local, the next that is not */
      ok = calls < CALLS && mode != TREADLE_LOST;
      calls++;
      binding = false;
      if
      :: ok && mode == TREADLE_FORWARD && via_host -> twin[me] = ALL; let_go(NOTHING); mode = TREADLE_HOST
      :: ok && mode == TREADLE_FORWARD && !via_host -> mode = TREADLE_TRAIN
      :: else
      fi;
      if
      :: ok && mode == TREADLE_INFER && bound[me] -> assert_all_bound(); to = TREADLE_FORWARD
      :: ok && mode == TREADLE_INFER && !bound[me] -> /* binds again (treadle_arrow_bind), or gives generation up */
        if
        :: unbound_to == TREADLE_LOST -> unbound_to = TREADLE_INFER
        :: unbound_to == TREADLE_LOST -> unbound_to = TREADLE_FORWARD
        :: else
        fi;
        to = unbound_to
      :: else -> to = TREADLE_INFER
      fi;
      old = mode
    }
    if
    :: !ok -> goto leave
    :: ok
    fi;
    atomic { /* make_ready, treadle_epoch_enter */
#ifndef LATE_LOAD
      if
      :: mode == TREADLE_HOST -> load_params()
      :: else
      fi;
#endif
      epoch++;
      way[me] = mode;
      entered[me] = epoch
    }
    if
    :: left[me] -> ok = false
    :: d_step { !left[me] -> barriers++; arrived[me] = barriers };
      wait_all(arrived[peer], barriers, EPOCH_FAILED);
      d_step { /* treadle_outcome_open */
        if
        :: ok && out_epoch < epoch -> remember(); out_epoch = epoch; out_state = TREADLE_OPEN
        :: else
        fi
      }
      atomic {
        d_step { /* treadle_outcome_check, check_ways */
          if
          :: ok && EPOCH_FAILED -> ok = false
          :: else
          fi;
          do
          :: ok && who < RANKS -> ok = (way[who] == mode); who++
          :: else -> break
          od;
          who = 0
#ifdef LATE_LOAD
          ;
          if
          :: ok && mode == TREADLE_HOST -> load_params()
          :: else
          fi
#endif
        }
        if /* end_holds: a reader may hold this rank's window until the time limit */
        :: ok && old == TREADLE_INFER && to != TREADLE_INFER ->
          may_fail();
          if
          :: ok -> freed[me] = epoch
          :: else -> held[me] = epoch
          fi
        :: else
        fi
      }
      atomic {
        if
        :: ok && old == TREADLE_INFER && to != TREADLE_INFER ->
#ifndef HELD_ALONE
          wait_all(freed[peer], epoch, EPOCH_FAILED);
#endif
          if /* move_from_infer: treadle_generator_unbind */
          :: ok ->
            assert_none_held();
            bound[me] = false;
            may_fail();
            engine[me] = engine[me] && !ok
          :: else
          fi
        :: else
        fi
      }
    fi;
    do /* treadle_carry_run */
    :: ok && RUNS_WAVES && wave < WAVES -> run_wave()
    :: else -> break
    od;
  agree:
    atomic { /* check_coverage, or the engine's bind */
      if
      :: ok -> may_fail()
      :: else
      fi;
      if
      :: ok && binding -> engine[me] = true
      :: ok && !binding && FILLS_TWIN && mode == TREADLE_TRAIN -> /* treadle_twin_fill: the rest */
        assert(PAGE(me, TRAIN_PAGE(WAVES - 1)) == TRAIN_BYTES);
        twin[me] = ALL
      :: else
      fi
    }
    if
    :: ok -> commit()
    :: else
    fi;
    if
    :: !ok -> settle()
    :: else
    fi;
    if
    :: d_step { ok && binding ->
         assert(decided[epoch] == TREADLE_COMMITTED);
         assert_all_bound();
         bound[me] = true;
         ok = CHAIN };
      if
      :: ok -> goto call
      :: else -> goto leave
      fi
    :: ok && !binding ->
      finish();
      if
      :: to != TREADLE_INFER && CHAIN -> goto call
      :: to != TREADLE_INFER && !CHAIN -> goto leave
      :: d_step { to == TREADLE_INFER -> binding = true; epoch++; entered[me] = epoch }; /* treadle_epoch_next */
        d_step {
          if
          :: out_epoch < epoch -> remember(); out_epoch = epoch; out_state = TREADLE_OPEN
          :: else
          fi
        }
        d_step {
          if
          :: EPOCH_FAILED -> ok = false
          :: else
          fi
        }
        goto agree
      fi
    :: !ok && !CHAIN -> goto call /* the caller tries again, */
    :: !ok -> goto leave /* or gives up */
    fi;
  leave:
    atomic { left[me] = true; ok = false }
  } unless {
    !alive[me]
  }
}

proctype killer() {
  byte who;
  do
  :: faults > 0 ->
    atomic {
      select(who : 0 .. RANKS - 1);
      if
      :: faults > 0 && alive[who] && !left[who] -> alive[who] = false; reading[who] = NEVER; engine[who] = false; faults--
      :: else
      fi;
      who = 0
    }
  :: break
  od
}

init {
  atomic {
    byte r, p;
    if
#if CHAIN
    :: start = TREADLE_INFER; via_host = true
#else
    :: start = TREADLE_HOST
#endif
    :: start = TREADLE_INFER
    :: start = TREADLE_TRAIN
    fi;
    for (r : 0 .. RANKS - 1) {
      alive[r] = true;
      reading[r] = NEVER;
      for (p : 0 .. PAGES - 1) { PAGE(r, p) = NOTHING }
      for (p : 0 .. WAVES - 1) {
        if
        :: start == TREADLE_TRAIN -> PAGE(r, TRAIN_PAGE(p)) = TRAIN_BYTES
        :: start == TREADLE_INFER -> PAGE(r, INFER_PAGE(p)) = INFER_BYTES
        :: else
        fi
      }
      twin[r] = (start == TREADLE_HOST || (KEEP_HOST && start == TREADLE_INFER) -> ALL : 0);
      engine[r] = start == TREADLE_INFER;
      bound[r] = engine[r];
      way[r] = TREADLE_LOST
    }
    for (r : 0 .. RANKS - 1) { run rank(r) }
    run killer();
    r = 0;
    p = 0
  }
}
