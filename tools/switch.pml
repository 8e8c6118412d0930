/* The switch of src/switch as a model, for spin: RANKS ranks, WAVES waves, EPOCHS calls by each rank. tools/check-model
 * runs it.
 *
 *   here                     in src/
 *   entering, wait_all       switch/switch.c enter; transport/group.c treadle_group_meet, treadle_group_wait
 *   out_epoch, out_state     treadle_control.outcome; outcome_open, outcome_settle, outcome_check: treadle_outcome_*
 *   compare                  enter: all ranks have the same mode and version
 *   load, twin               to INFER out of HOST: parameters come before the ranks meet; keep=host: the copy in host
 *                            memory, made before the first wave
 *   run_wave                 switch/run.c run_wave: wait_for_wave, announce_reclaim, carry_out, done
 *   commit                   switch.c commit: verified, all verified, the word
 *   settle                   switch.c settle, wait_until_stopped, anyone_reclaimed
 *   finish                   switch.c finish; the cache takes the pages that are free
 *   bind                     the second agreement: bound on all ranks, or on none
 *   treadle_group_close      group.c leave
 *   holds                    the bytes of each physical page: plan/pages.c, with TREADLE_LAG waves between
 *
 * Each atomic step is one access to shared words, so that a rank can be killed between any two. What can happen:
 *
 *   kills    a rank vanishes (SIGKILL). Its words and pages stay as they are, since the others have them mapped; the
 *            others see that it died (pidfd). SIGSTOP and slowness: any rank can be overtaken at any step, and with
 *            `late` every wait may end by its time limit.
 *   errors   a rank fails by itself: memory out, a copy not covered, a callback that returns an error.
 *   A rank whose switch failed calls again, in the same group, or closes.
 *
 * What must hold, in every order of steps:
 *
 *   ends      without `late` no rank waits for ever, and no wait needs its time limit (no invalid end state)
 *   pages     a page is read with the bytes of the old mode in it, and is written while nobody reads it
 *   outcome   an epoch is decided once; a rank that says committed (failed) says so of an epoch that is;
 *             committed only after all have verified; bound likewise
 *   old mode  a rank that says that the old weights stand has them, and nobody overwrites one of them afterwards
 *   alike     without `late`, all that say that an epoch failed say the same of the weights
 *   engine    no page that a bound engine may read is written
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
#ifndef LAG
#define LAG 2 /* TREADLE_LAG */
#endif
#ifndef KILLS
#define KILLS 1
#endif
#ifndef ERRORS
#define ERRORS 1
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

/* A rank that has left for good no longer touches the outcome. */
#ifdef LEFT_ENTERS
#define LEFT_STAYS_OUT
#else
#define LEFT_STAYS_OUT && !left[me]
#endif
/* All of it before the first wave; the mistake: when it is asked for. */
#ifdef LATE_TWIN
#define COPY_TWIN
#else
#define COPY_TWIN -> twin[me] = true
#endif

#define NEVER 255 /* no page */
#define DONE(epoch, wave) ((epoch) * (WAVES + 1) + 1 + (wave))
#define TRAIN_PAGE(unit) (unit) /* the physical page of each page of the windows */
#define INFER_PAGE(unit) ((unit) < LAG -> WAVES + (unit) : (unit) - LAG)
#define PAGES (WAVES + LAG)
#define PAGE(rank, page) holds[(rank) * PAGES + (page)]

/* The control block. */
byte entered[RANKS], arrived[RANKS], reclaimed[RANKS], verified[RANKS], stopped[RANKS], done[RANKS];
bool left[RANKS], alive[RANKS];
byte out_epoch;
mtype out_state = TREADLE_COMMITTED;
mtype way[RANKS]; /* the mode in which a rank enters; the versions follow from it here */

/* Memory. */
mtype holds[RANKS * PAGES];
bool twin[RANKS];         /* the copy in host memory is whole and of these weights */
bool engine[RANKS];       /* is bound */
byte reading[RANKS];      /* the page that a rank copies from, of all ranks; NEVER */

/* What happens. */
mtype start;   /* where the ranks are */
bool via_host; /* from FORWARD back to INFER by HOST */
byte kills = KILLS, errors = ERRORS;

/* What was decided, for the assertions: by epoch, at most once. */
mtype decided[EPOCHS + 1] = UNDECIDED;
mtype verdict[EPOCHS + 1] = UNDECIDED; /* of a failed epoch: the mode that ranks say they are in */
bool stands[EPOCHS + 1];               /* somebody says that the old weights stand */

#define FORWARD_WAVES(to) ((to) == TREADLE_INFER)
#define RUNS_WAVES (!binding && (to == TREADLE_INFER || !KEEP_HOST))
#define EXCUSED (LATE && decided[epoch] == TREADLE_FAILED) /* what a late rank reads in a failed epoch is never used */

/* treadle_outcome_check. A word of a later epoch: the others have left this one. They have committed it if this rank
 * had verified, and cannot have if it had not. */
#ifdef OVERTAKEN
#define EPOCH_FAILED (out_epoch == epoch && out_state == TREADLE_FAILED)
#else
#define EPOCH_FAILED                                                                                                   \
  ((out_epoch == epoch && out_state == TREADLE_FAILED) || (out_epoch > epoch && verified[me] < epoch))
#endif

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
  :: errors > 0 -> errors--; ok = false
  fi
}

/* This rank writes on one of its pages. */
inline write_page(page, bytes) {
  peer = 0;
  do
  :: peer < RANKS -> assert(reading[peer] != page || EXCUSED); peer++
  :: else -> break
  od;
  peer = 0;
  assert(!(engine[me] && PAGE(me, page) == INFER_BYTES));
  PAGE(me, page) = bytes
}

inline write_window(bytes, in_train) { /* the whole window of a mode, by local copies */
  unit = 0;
  do
  :: unit < WAVES ->
    if
    :: in_train -> write_page(TRAIN_PAGE(unit), bytes)
    :: else -> write_page(INFER_PAGE(unit), bytes)
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

/* ---- run.c: one wave ---- */

inline copy_begins() { /* reads its part of every rank's window, writes a page of the other */
  unit = (FORWARD_WAVES(to) -> wave : WAVES - 1 - wave);
  from_page = (FORWARD_WAVES(to) -> TRAIN_PAGE(unit) : INFER_PAGE(unit));
  peer = 0;
  do
  :: peer < RANKS ->
    assert(PAGE(peer, from_page) == (FORWARD_WAVES(to) -> TRAIN_BYTES : INFER_BYTES) || EXCUSED);
    /* Overwriting what somebody says stands as it was. */
    assert(wave < LAG || KEEP_HOST || mode == TREADLE_HOST || !stands[epoch]);
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
    :: ok && wave >= LAG -> wait_all(done[peer], DONE(epoch, wave - LAG), EPOCH_FAILED)
    :: else
    fi
#endif
  }
#ifdef CHECK_THEN_ANNOUNCE
  atomic {
    if
    :: ok && wave == LAG && EPOCH_FAILED -> ok = false
    :: else
    fi
  }
  atomic {
    if
    :: ok && wave == LAG -> reclaimed[me] = epoch
    :: else
    fi
  }
#else
  if
  :: d_step { ok && wave == LAG -> reclaimed[me] = epoch }; /* announce_reclaim */
    if
    :: d_step { EPOCH_FAILED -> ok = false };
      reclaimed[me] = 0
    :: d_step { !EPOCH_FAILED -> skip }
    fi
  :: d_step { !(ok && wave == LAG) -> skip }
  fi;
#endif
  if
  :: d_step { ok -> copy_begins() };
#ifdef EARLY_DONE
    done[me] = DONE(epoch, wave);
#endif
    d_step {
      reading[me] = NEVER;
      done[me] = DONE(epoch, wave);
      wave++
    }
  :: !ok
  fi
}

/* ---- group.c, switch.c: the outcome ---- */

inline decide(state) { /* the compare-and-swap of treadle_outcome_settle */
  if
  :: out_epoch < epoch || (out_epoch == epoch && out_state == TREADLE_OPEN) ->
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
    stopped[me] = epoch;
    together = true;
    atomic { /* wait_until_stopped */
      who = 0;
      do
      :: who == RANKS -> break
      :: who < RANKS ->
        if
#ifndef SKIP_STOP
        :: entered[who] >= epoch && stopped[who] < epoch && (left[who] || !alive[who] || LATE) ->
          together = false; who++
        :: stopped[who] >= epoch || entered[who] < epoch -> who++
#else
        :: who++
#endif
        fi
      od;
      who = 0
    }
    d_step { /* anyone_reclaimed */
      assert(decided[epoch] == TREADLE_FAILED);
      any = false;
      do
      :: who < RANKS ->
        assert(!together || reading[who] == NEVER || entered[who] != epoch);
        any = any || reclaimed[who] == epoch;
        who++
      :: else -> break
      od;
      who = 0;
      if
      :: binding ->
        assert(!any);
        engine[me] = false;
        if
        :: KEEP_HOST ->
          assert(twin[me]);
          write_window(TRAIN_BYTES, true);
          let_go(TRAIN_BYTES);
          twin[me] = false;
          mode = TREADLE_TRAIN
        :: else /* INFER, unbound */
        fi
      :: !binding && mode == TREADLE_HOST -> assert(twin[me]); write_window(NOTHING, true); let_go(NOTHING)
      :: !binding && mode != TREADLE_HOST && any && KEEP_HOST && mode != TREADLE_INFER ->
        if
        :: reclaimed[me] == epoch -> assert(twin[me]); write_window(TRAIN_BYTES, true)
        :: else
        fi;
        twin[me] = false;
        let_go(TRAIN_BYTES)
      :: !binding && mode != TREADLE_HOST && any && !KEEP_HOST -> mode = TREADLE_LOST
      :: !binding && mode != TREADLE_HOST && !any && mode == TREADLE_INFER -> let_go(INFER_BYTES)
      :: !binding && mode != TREADLE_HOST && !any && mode != TREADLE_INFER -> twin[me] = false; let_go(TRAIN_BYTES)
      fi;
      any = false;
      if
      :: mode == TREADLE_TRAIN || mode == TREADLE_FORWARD -> assert_window(true)
      :: mode == TREADLE_INFER -> assert_window(false)
      :: else
      fi;
      assert(LATE || verdict[epoch] == UNDECIDED || verdict[epoch] == mode);
      verdict[epoch] = mode;
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
    :: to == TREADLE_INFER -> let_go(INFER_BYTES); assert_window(false); twin[me] = twin[me] && KEEP_HOST
    :: else ->
      if
      :: KEEP_HOST -> assert(twin[me]); write_window(TRAIN_BYTES, true)
      :: else
      fi;
      let_go(TRAIN_BYTES);
      assert_window(true);
      twin[me] = false /* training goes on, and the copy grows old */
    fi;
    mode = to
  }
}

/* ---- One rank ---- */

proctype rank(byte me) {
  mtype mode = start, to = TREADLE_LOST;
  byte calls, epoch, barriers, wave, peer, who, unit, from_page;
  bool ok, binding, together, any;
  {
    ok = true;
  call:
    atomic { /* the caller: arrows that are local, the next that is not */
      ok = calls < CALLS && mode != TREADLE_LOST LEFT_STAYS_OUT;
      calls++;
      binding = false;
      if
      :: ok && mode == TREADLE_FORWARD && via_host -> twin[me] = true; let_go(NOTHING); mode = TREADLE_HOST
      :: ok && mode == TREADLE_FORWARD && !via_host -> mode = TREADLE_TRAIN
      :: else
      fi;
      if
      :: ok && mode == TREADLE_INFER && engine[me] -> to = TREADLE_FORWARD; engine[me] = false /* unbind */
      :: ok && mode == TREADLE_INFER && !engine[me] -> to = TREADLE_INFER; binding = true
      :: else -> to = TREADLE_INFER
      fi
    }
    if
    :: !ok -> goto leave
    :: ok
    fi;
    atomic { /* treadle_epoch_enter */
#ifndef LATE_LOAD
      if
      :: mode == TREADLE_HOST -> write_window(TRAIN_BYTES, true)
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
        :: ok && out_epoch < epoch -> out_epoch = epoch; out_state = TREADLE_OPEN
        :: else
        fi
      }
      d_step { /* treadle_outcome_check; check_ways; the twin */
        if
        :: ok && EPOCH_FAILED -> ok = false
        :: else
        fi;
        do
        :: ok && who < RANKS -> ok = (way[who] == mode); who++
        :: else -> break
        od;
        who = 0;
#ifdef LATE_LOAD
        if
        :: ok && mode == TREADLE_HOST -> write_window(TRAIN_BYTES, true)
        :: else
        fi;
#endif
        if
        :: ok && KEEP_HOST && to == TREADLE_INFER && !binding COPY_TWIN
        :: else
        fi
      }
    fi;
    do /* treadle_switch_run */
    :: ok && RUNS_WAVES && wave < WAVES -> run_wave()
    :: else -> break
    od;
  agree:
    atomic { /* check_coverage, or the engine's bind */
      if
      :: ok -> may_fail()
      :: else
      fi;
      engine[me] = ok && binding
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
    :: d_step { ok && binding -> assert(decided[epoch] == TREADLE_COMMITTED) };
      goto call
    :: ok && !binding ->
      finish();
      if
      :: to != TREADLE_INFER -> goto call
      :: d_step { to == TREADLE_INFER -> binding = true; epoch++; entered[me] = epoch }; /* treadle_epoch_next */
        d_step {
          if
          :: out_epoch < epoch -> out_epoch = epoch; out_state = TREADLE_OPEN
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
    :: !ok -> goto call /* the caller tries again, */
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
  :: kills > 0 ->
    atomic {
      select(who : 0 .. RANKS - 1);
      if
      :: alive[who] && !left[who] -> alive[who] = false; reading[who] = NEVER; engine[who] = false; kills--
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
    :: start = TREADLE_TRAIN
    :: start = TREADLE_INFER
    :: start = TREADLE_INFER; via_host = true
    :: start = TREADLE_HOST
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
      twin[r] = start == TREADLE_HOST || (KEEP_HOST && start == TREADLE_INFER);
      engine[r] = start == TREADLE_INFER;
      way[r] = TREADLE_LOST
    }
    for (r : 0 .. RANKS - 1) { run rank(r) }
    run killer();
    r = 0;
    p = 0
  }
}
