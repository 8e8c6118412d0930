/* Faults for the test of the switch between processes on several nodes: which there are, what a rank does around one, and what it sees. */
#ifndef TREADLE_TESTS_NODE_FAULTS_H
#define TREADLE_TESTS_NODE_FAULTS_H

#include "switch/scene.h"

enum { NODE_RANKS = 6, NODE_PROCESSES = 2 * NODE_RANKS, NODE_WAVES = 6, NODE_MESSAGE = 900 };

typedef enum node_fault {
  NODE_KILL = 0,  /* SIGKILL to a rank */
  NODE_STALL,     /* SIGSTOP; it is killed when the others are back, */
  NODE_CONTINUE,  /* or goes on then */
  NODE_KILL_ALL,  /* SIGKILL to all ranks of a node */
  NODE_STALL_ALL, /* SIGSTOP; they go on when the others are back */
  NODE_CUT,       /* no byte passes to or from a node any more */
  NODE_FLIP,      /* a byte of a message of a rank is changed on its way */
  NODE_FAULTS
} node_fault;

typedef enum node_pair_name {
  NODE_FOUR = 0, /* ranks */
  NODE_SIX,
  NODE_BLOCKS, /* four ranks, which make fp8 blocks for each other */
  NODE_PAIRS
} node_pair_name;

typedef struct node_case {
  int number;
  node_fault kind;
  node_pair_name pair;
  int ranks, nodes;
  int who; /* a rank, or a node */
  treadle_injection_point point;
  int32_t wave;
  int vote; /* not at `point`, but right before the node votes: 1: for the weights, 2: for the bind; 0: at `point` */
  double limit; /* of each wait */
} node_case;

int node_case_count(void);
void node_case_draw(int number, node_case *c);
/* "case 17: ...". Returns room. */
const char *node_case_words(const node_case *c, char *room, size_t bytes);
/* Is that rank one of those of the fault? */
bool node_case_hits(const node_case *c, int rank);

typedef struct node_pair {
  const treadle_layout *train, *infer;
  int ranks;
} node_pair;

typedef struct node_scene {
  scene s; /* has the first pair, and the model of the first two */
  treadle_model *blocks;
  treadle_layout *owned[4];
  node_pair pairs[NODE_PAIRS];
} node_scene;

void node_scene_init(node_scene *s);
void node_scene_release(node_scene *s);

/* What a rank has seen, in memory that all processes of a case share. */
typedef struct node_sight {
  treadle_status status; /* of the arrow that failed, */
  int fell;              /* which that was; */
  double seconds;        /* how long it took, */
  char message[NODE_MESSAGE];
  treadle_mode mode; /* and what it left */
  uint64_t version;
  bool bound; /* an arrow to INFER went well, and bound the engine to this version */
  uint64_t bound_version;
  bool
      intact; /* in mode TRAIN, in the end by treadle_switch_return: params and optimizer state are what they were */
  bool idle;         /* the fault did not come */
  int32_t waves;     /* of the plan */
  _Atomic bool back; /* all of this is there */
  bool resumed;      /* to INFER and back again, in a new group where one was needed */
  uint64_t digest;
  int leaks;
} node_sight;

typedef struct node_stage {
  node_case c;
  const node_scene *s;
  char places[2][32]; /* where the ranks meet, before and after */
  node_sight sights
      [NODE_PROCESSES]; /* those behind NODE_RANKS are of who takes the place of a rank that is gone */
} node_stage;

/* What a process of a case does: a rank, or NODE_RANKS + the rank whose place it takes. 0 is good. */
int node_live(node_stage *stage, int process);

#endif
