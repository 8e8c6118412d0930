/* Staging of own tensors (src/core/carry/staging.c) as a model, for spin: RANKS ranks, WAVES waves, EPOCHS switches.
 * tools/check-model runs it.
 *
 *   here              in src/core/carry/
 *   stage             staging.c treadle_staging_fill: wait_for_slot, the copies, the word `staged`
 *   read              run.c carry_out of an op that pulls: staging.c treadle_staging_read, and the copy out of the slot
 *   done              run.c run_wave, the word `done`
 *   failed, stopped   the outcome of the epoch, and epoch.c treadle_epoch_fail: who fails waits until all have stopped
 *
 * In each wave a rank reads any of the others, or none. Any rank may fail at any step, up to FAULTS times. What must hold, in every order of
 * steps: what is read is of the reader's own wave and epoch, from begin to end; no rank waits for ever.
 *
 * Planted mistakes, each to be found: OVERWRITES (a slot is used again before its readers are done), LONG_LAG (they are waited for a wave
 * too late), SAYS_EARLY (a wave is called staged before it is). */

#ifndef RANKS
#define RANKS 3
#endif
#ifndef WAVES
#define WAVES 4
#endif
#ifndef EPOCHS
#define EPOCHS 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#define SLOTS 2
#ifdef LONG_LAG
#define LAG (SLOTS + 1)
#else
#define LAG SLOTS
#endif

#define OF(epoch, wave) ((epoch) * (WAVES + 1) + 1 + (wave))
#define BUSY            255

byte slot[RANKS * SLOTS]; /* what lies there: a wave of an epoch; BUSY: it is being written */
byte staged[RANKS], done[RANKS], entered[RANKS], stopped[RANKS];
byte failed, faults; /* the epoch that failed last */

inline wait_all(word, value) {
  for (peer : 0 .. RANKS - 1) {
    if
    :: word >= value
    :: failed == epoch -> goto stop
    fi
  }
}

inline may_fail() {
  if
  :: true
  :: atomic { faults < FAULTS && failed != epoch -> faults++; failed = epoch; goto stop }
  fi
}

proctype rank(byte me) {
  byte epoch = 1, wave, peer;
  do
  :: epoch > EPOCHS -> break
  :: else ->
    entered[me] = epoch;
    wait_all(entered[peer], epoch);
    for (wave : 0 .. WAVES - 1) {
      may_fail();
#ifndef OVERWRITES
      if
      :: wave >= LAG -> wait_all(done[peer], OF(epoch, wave - LAG))
      :: else
      fi;
#endif
#ifdef SAYS_EARLY
      staged[me] = OF(epoch, wave);
#endif
      slot[me * SLOTS + wave % SLOTS] = BUSY;
      slot[me * SLOTS + wave % SLOTS] = OF(epoch, wave);
      staged[me] = OF(epoch, wave);
      for (peer : 0 .. RANKS - 1) {
        if
        :: true /* not read */
        :: peer != me ->
          if
          :: staged[peer] >= OF(epoch, wave)
          :: failed == epoch -> goto stop
          fi;
          assert(slot[peer * SLOTS + wave % SLOTS] == OF(epoch, wave)); /* the copy begins, */
          assert(slot[peer * SLOTS + wave % SLOTS] == OF(epoch, wave)) /* and ends */
        fi
      }
      may_fail();
      done[me] = OF(epoch, wave)
    }
    wait_all(done[peer], OF(epoch, WAVES - 1)); /* the proof of all */
stop:
    stopped[me] = epoch;
    if
    :: failed == epoch ->
      for (peer : 0 .. RANKS - 1) {
        (stopped[peer] >= epoch || entered[peer] < epoch)
      }
    :: else
    fi;
    epoch++
  od
}

init {
  byte i;
  atomic {
    for (i : 0 .. RANKS - 1) {
      run rank(i)
    }
  }
}
