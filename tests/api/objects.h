/* One of each object of the public headers, for tests of arguments: a small llama of one rank and its folder, and which names of
 * functions the header has. */
#ifndef TREADLE_TESTS_OBJECTS_H
#define TREADLE_TESTS_OBJECTS_H

#include "treadle_attach.h"
#include "treadle_builtin.h"
#include "treadle_testing.h"
#include "treadle_tools.h"

enum { OBJECTS_PAGE = 4096, OBJECTS_PIECES = 16 };

typedef struct objects {
  char folder[32], config[48];           /* of the model */
  treadle_model *model, *other, *critic; /* critic: with a score head */
  treadle_layout *train, *infer, *wide;  /* wide: of 4 ranks */
  treadle_layout *foreign;               /* of the other model */
  treadle_layout *scores;                /* of the critic */
  treadle_plan *plan;
  treadle_report *report;
  treadle_group *group, *second;
  treadle_families *families;
  treadle_family_check *check;
  treadle_switch *sw;
  char handle[TREADLE_HANDLE_BYTES]; /* of its infer parameters */
  size_t handle_bytes;
  treadle_attached *attached; /* by it */
  char chat_file[64];         /* a template */
  treadle_chat *chat;
  treadle_generator *engine; /* of the layout infer */
  char *weights;             /* [weights_bytes] */
  size_t weights_bytes;
  char tokens[64]; /* tokenizer.json */
  treadle_tokenizer *tokenizer;
  treadle_text_stream *stream;
  treadle_explicit_piece pieces[OBJECTS_PIECES]; /* of one rank: a good list */
  size_t piece_count;
  char *
      memory; /* [bytes] aligned, may be written; then a page that may not, then one that may not be read */
  size_t bytes;
} objects;

void objects_init(objects *o);
void objects_release(objects *o);

/* Calls visit(context, name) for every function that the public headers declare. */
void objects_each_function(void (*visit)(void *context, const char *name), void *context);

#endif
