/* The outcome between nodes (src/core/group/outcome.c, courier_votes.c) as a model, for spin: NODES nodes, EPOCHS epochs.
 * tools/check-model runs it.
 *
 *   here                     in src/
 *   rank                     the ranks of a node, which switch/epoch.c takes through epochs: meet, verify, vote or fail, look, go on
 *   word_epoch, word_state   the word of the node's control block; each `move` is a compare-and-swap (treadle_outcome_open, settle, move)
 *   own                      the word says that a rank of this node has failed it
 *   committed, adrift        treadle_control.committed (outcome.c remember), adrift
 *   arrived, verified        lines of ranks, which couriers carry
 *   courier                  courier_votes.c treadle_courier_vote, treadle_courier_hear
 *   voted, said_commit,      messages: the last epoch for which a node has voted; the epochs of the others, a bit each
 *   said_fail, asked
 *
 * A message that was sent is heard whenever a reader likes, in any order with others, by one reader and not by another, or never: so it is
 * slow, overtaken, or lost. A wait may be given up at any moment. A process that is dead, stopped or cut off is one that takes no further
 * step, or hears nothing. So spin, which tries every order of steps, tries dead nodes and lost messages at any place, without a word
 * of them here. With CALM no wait is given up, and ranks still fail by themselves: then all must come to their end.
 *
 * From an epoch that was committed a rank goes to the next without meeting the others (treadle_epoch_next: the bind), else it meets them.
 *
 * What must hold, in every order of steps:
 *
 *   outcome   no rank takes an epoch for committed that another knows to have failed. Who has voted and knows nothing (adrift) binds nothing, and
 *             does not say that it has failed elsewhere
 *   proof     an epoch that a rank takes for committed was verified on all nodes
 *   calm      nobody is adrift, and nobody waits for ever (no invalid end state)
 *
 * Planted mistakes, each to be found:
 *
 *   UNVOTES      a node that has voted fails the epoch by itself, and says so
 *   GUESSES      a node that hears nothing commits when it gives up
 *   TELLS_FIRST  the lowest node tells the others that the epoch is committed before it is so there
 *   FORGETS      a rank that finds the word of a later epoch takes its own for committed if it had verified: that is right on one node, and
 *                was wrong here, until this model was made
 *   DENIES       a node that has gone on from an epoch that was committed says to who asks that it was not */

#ifndef NODES
#define NODES 3 /* 2 or 3 */
#endif
#ifndef EPOCHS
#define EPOCHS 2 /* at most 3 */
#endif
#ifndef CALM
#define CALM 0
#endif

mtype = { OPEN, VOTED, COMMITTED, FAILED };

#define BIT(epoch) (1 << (epoch))
#define HAS(bits, epoch) (((bits) & BIT(epoch)) != 0)

byte word_epoch[NODES], committed[NODES], adrift[NODES], arrived[NODES], verified[NODES], voted[NODES];
mtype word_state[NODES] = FAILED; /* of epoch 0, which nobody asks for */
bool own[NODES];
byte said_commit, said_fail, asked;
byte took_committed, took_failed; /* what ranks have made of epochs, a bit each */

#define DECIDED(n) (word_state[n] == COMMITTED || word_state[n] == FAILED)
#define IS_VOTED(n, epoch) (word_epoch[n] == (epoch) && word_state[n] == VOTED)
#define CAN_SETTLE(n, epoch) (word_epoch[n] < (epoch) || (word_epoch[n] == (epoch) && word_state[n] == OPEN))
#define IS_COMMITTED(n, epoch) /* treadle_outcome_committed */ \
  ((word_epoch[n] == (epoch) && word_state[n] == COMMITTED) || (word_epoch[n] > (epoch) && committed[n] >= (epoch)))
#ifdef FORGETS
#define HAS_FAILED(n, epoch) \
  ((word_epoch[n] == (epoch) && word_state[n] == FAILED) || (word_epoch[n] > (epoch) && verified[n] < (epoch)))
#else
#define HAS_FAILED(n, epoch) /* treadle_outcome_check */ \
  ((word_epoch[n] == (epoch) && word_state[n] == FAILED) || (word_epoch[n] > (epoch) && !IS_COMMITTED(n, epoch)))
#endif

inline move(epoch_, state_, own_) {
  if
  :: (epoch_) > word_epoch[me] && word_state[me] == COMMITTED -> committed[me] = word_epoch[me]
  :: else
  fi;
  word_epoch[me] = epoch_;
  word_state[me] = state_;
  own[me] = own_
}

/* ---- A node's ranks ---- */

/* treadle_group_wait for a word of each node, one step for each node. */
inline wait_all(word, value) {
  who = 0;
  do
  :: atomic { who < NODES && word >= (value) && !HAS_FAILED(me, epoch) -> who++ }
  :: atomic { who == NODES -> break }
  :: atomic { HAS_FAILED(me, epoch) -> ok = false; break }
  :: atomic { !CALM -> ok = false; break }
  od
}

inline take_outcome() {
  ok = !HAS_FAILED(me, epoch);
  unsure = !ok && adrift[me] == epoch;
  if
  :: ok ->
    took_committed = took_committed | BIT(epoch);
    who = 0;
    do
    :: who < NODES -> assert(verified[who] >= epoch); who++
    :: else -> break
    od
  :: !ok && !unsure -> took_failed = took_failed | BIT(epoch)
  :: else
  fi;
  who = 0;
  assert((took_committed & took_failed) == 0);
  assert(!CALM || !unsure)
}

proctype rank(byte me) {
  byte epoch, meetings, who;
  bool ok, unsure;
  do
  :: epoch == EPOCHS || unsure -> break /* treadle_group_fail */
  :: else ->
    atomic {
      epoch++;
      who = 0;
      if
      :: !ok -> meetings++; arrived[me] = meetings
      :: else
      fi
    }
    if
    :: !ok -> ok = true; wait_all(arrived[who], meetings)
    :: else
    fi;
    atomic {
      who = 0;
      if
      :: ok && word_epoch[me] < epoch -> move(epoch, OPEN, false) /* treadle_outcome_open */
      :: else
      fi;
      if
      :: ok && !HAS_FAILED(me, epoch) -> verified[me] = epoch
      :: ok = false /* or it fails by itself */
      fi
    }
    if
    :: ok ->
      wait_all(verified[who], epoch);
      atomic {
        if
        :: ok && CAN_SETTLE(me, epoch) -> move(epoch, VOTED, false)
        :: else
        fi
      }
    :: else
    fi;
    atomic { /* treadle_epoch_fail */
      who = 0;
      if
      :: !ok && CAN_SETTLE(me, epoch) -> move(epoch, FAILED, true)
      :: else
      fi
    }
    if
    :: atomic { !IS_VOTED(me, epoch) -> take_outcome() }
    :: atomic { !CALM && IS_VOTED(me, epoch) -> /* treadle_outcome_give_up, also of wait_for_decision */
#ifdef GUESSES
         move(epoch, COMMITTED, false);
#else
         if
#ifndef UNVOTES
         :: me != 0 -> adrift[me] = epoch
#endif
         :: else
         fi;
         move(epoch, FAILED, true);
#endif
         take_outcome() }
    fi
  od
}

/* ---- A node's courier ---- */

/* fail_here of courier_votes.c, and its is_ready */
#define CAN_FAIL(epoch) (word_epoch[me] == (epoch) -> !DECIDED(me) : word_epoch[me] < (epoch) && DECIDED(me))
/* look_at_failed */
#define LEFT_BEHIND(epoch) (word_state[me] == OPEN && word_epoch[me] < (epoch))
#define HEARS_FAIL(epoch) (HAS(said_fail, epoch) && (CAN_FAIL(epoch) || LEFT_BEHIND(epoch)))
/* answer */
#define KNOWS_FAIL(epoch) (word_epoch[me] == (epoch) && word_state[me] == FAILED && adrift[me] != (epoch))
#define CANNOT_BE(epoch) (word_epoch[me] > (epoch) && (me == 0 || voted[me] < (epoch)) && !IS_COMMITTED(me, epoch))
#ifdef DENIES
#define GONE_ON(epoch) (word_epoch[me] > (epoch) && IS_COMMITTED(me, epoch))
#else
#define GONE_ON(epoch) false
#endif
#define HAS_NOT_VOTED(epoch) (CAN_FAIL(epoch) && !IS_VOTED(me, epoch))
#define ANSWERS(epoch) (HAS(asked, epoch) && !HAS(said_fail, epoch) && \
                        (KNOWS_FAIL(epoch) || CANNOT_BE(epoch) || GONE_ON(epoch) || HAS_NOT_VOTED(epoch)))

inline answer(epoch) {
  if
  :: HAS_NOT_VOTED(epoch) -> move(epoch, FAILED, false)
  :: else
  fi;
  said_fail = said_fail | BIT(epoch)
}

inline hear_fail(epoch) {
  if
  :: LEFT_BEHIND(epoch) -> move(word_epoch[me], FAILED, false)
  :: else -> move(epoch, FAILED, false)
  fi
}

#if NODES == 2
#define ALL_VOTED(epoch) (voted[0] >= (epoch) && voted[1] >= (epoch))
#else
#define ALL_VOTED(epoch) (voted[0] >= (epoch) && voted[1] >= (epoch) && voted[2] >= (epoch))
#endif

proctype courier(byte me) {
  byte seen;
end:
  do
  :: atomic { word_state[me] == FAILED && own[me] && adrift[me] != word_epoch[me] && !HAS(said_fail, word_epoch[me]) ->
       said_fail = said_fail | BIT(word_epoch[me]) }
  :: atomic { word_state[me] == VOTED && voted[me] < word_epoch[me] -> voted[me] = word_epoch[me] }
  :: atomic { me != 0 && word_state[me] == VOTED && HAS(said_commit, word_epoch[me]) -> move(word_epoch[me], COMMITTED, false) }
  :: atomic { HEARS_FAIL(1) -> hear_fail(1) }
  :: atomic { HEARS_FAIL(2) -> hear_fail(2) }
  :: atomic { EPOCHS > 2 && HEARS_FAIL(3) -> hear_fail(3) }
  :: atomic { me != 0 && word_state[me] == VOTED && !HAS(asked, word_epoch[me]) -> asked = asked | BIT(word_epoch[me]) }
  :: atomic { ANSWERS(1) -> answer(1) }
  :: atomic { ANSWERS(2) -> answer(2) }
  :: atomic { EPOCHS > 2 && ANSWERS(3) -> answer(3) }
  :: atomic { !CALM && me == 0 && word_state[me] == VOTED && !ALL_VOTED(word_epoch[me]) -> /* decide: one is missing */
       said_fail = said_fail | BIT(word_epoch[me]);
       move(word_epoch[me], FAILED, false) }
  :: atomic { me == 0 && word_state[me] == VOTED && ALL_VOTED(word_epoch[me]) -> seen = word_epoch[me] }; /* decide */
#ifdef TELLS_FIRST
     said_commit = said_commit | BIT(seen);
#endif
     if /* commit_here */
     :: atomic { IS_VOTED(me, seen) -> move(seen, COMMITTED, false) };
        atomic { said_commit = said_commit | BIT(seen); seen = 0 }
     :: atomic { !IS_VOTED(me, seen) -> seen = 0 }
     fi
  od
}

init {
  atomic {
    byte n;
    for (n : 0 .. NODES - 1) {
      run rank(n);
      run courier(n)
    }
    n = 0
  }
}
