/* Faults for the test of the switch between processes: which there are, what a rank does around one, and
 * what it sees. A case follows from a seed and its number alone. */
#ifndef TREADLE_TESTS_FAULTS_H
#define TREADLE_TESTS_FAULTS_H

#include "switch/scene.h"

typedef enum fault_kind {
  FAULT_KILL = 0, /* SIGKILL */
  FAULT_STALL,    /* SIGSTOP */
  FAULT_ENOMEM,
  FAULT_SLOW,  /* it comes when the others have given up */
  FAULT_BIND,  /* its engine's bind fails, or */
  FAULT_UNBIND /* unbind */
} fault_kind;

typedef struct fault_case {
  uint64_t seed;
  int number;
  fault_kind kind;
  int rank;                      /* whose fault it is */
  treadle_injection_point point; /* where, of the way to INFER or, */
  bool back;                     /* of the way back */
  int32_t wave;
  int wait;       /* not at `point`, but at the n-th wait from there on; 0: at `point` */
  bool from_host; /* the first entry to INFER is from HOST */
  bool warm;      /* there and back once before */
  bool forward;   /* back by way of FORWARD */
  bool engine;    /* all ranks have one */
  double limit;   /* of each wait */
  treadle_switch_options options;
} fault_case;

enum { FAULT_NEWCOMER = SCENE_RANKS, FAULT_PROCESSES, FAULT_MESSAGE = 900 };

/* How many cases there are; their number is from 0. */
int fault_case_count(void);
void fault_case_draw(uint64_t seed, int number, fault_case *c);
/* "case 17: rank 2 stalls at wave 3 to infer, ...". Returns room. */
const char *fault_case_words(const fault_case *c, char *room, size_t bytes);
/* Will that process not come back? */
bool fault_case_is_gone(const fault_case *c, int rank);

/* Where the pair of a case comes from. */
const treadle_layout *fault_case_infer(const fault_case *c, const scene *s);

/* What a rank has seen, in memory that all processes of a case share. */
typedef struct fault_sight {
  treadle_status status; /* of the arrow that failed, */
  int fell;              /* which that was, of those after the fault was planted; */
  double seconds;        /* how long it took, */
  char message[FAULT_MESSAGE];
  treadle_mode mode; /* and what it left */
  bool intact;     /* params, optimizer state and kept gradients, or the infer params, are what they were */
  bool resumed;    /* the ranks, or a new one among them, went to INFER and back again, and all was right */
  uint64_t digest; /* then */
  int leaks;       /* in the end: mappings and descriptors */
} fault_sight;

typedef enum fault_verdict { FAULT_UNDECIDED = 0, FAULT_REJOIN, FAULT_END } fault_verdict;

typedef struct fault_stage {
  fault_case c;
  const scene *s;
  fault_sight sights[FAULT_PROCESSES]; /* the last is of who takes the place of a rank that is gone */
  _Atomic int verdicts[SCENE_RANKS];   /* do survivors want one? */
} fault_stage;

/* What a process of a case does; `process` is a rank, or FAULT_NEWCOMER, who waits until survivors want
 * it. 0 is good. */
int fault_live(fault_stage *stage, const char *name, int process);

/* Descriptors and mappings of this process that belong to a group or a switch. */
int fault_leaks(void);

#endif
