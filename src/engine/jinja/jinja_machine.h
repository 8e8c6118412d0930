/* The machine that renders one template once: its memory, its limits, where its output goes.
 *
 * All that a rendering makes lies in the machine's arena, so a function that fails has nothing to end: it passes the status on with
 * PASS. Whoever detects an error words it without the place; the evaluator remembers the line of the innermost expression
 * that failed, and treadle_jinja_render() puts it in front. */
#ifndef TREADLE_JINJA_JINJA_MACHINE_H
#define TREADLE_JINJA_JINJA_MACHINE_H

#include "base/arena.h"
#include "base/array.h"
#include "base/status.h"
#include "jinja/jinja.h"
#include "jinja/jinja_value.h"

#define PASS(call)                                                                                         \
  do {                                                                                                     \
    treadle_status pass_status = (call);                                                                   \
    if (pass_status != TREADLE_OK) return pass_status;                                                     \
  } while (0)

/* Text that grows. A zeroed struct is an empty one. */
typedef struct treadle_jinja_writer {
  char *bytes;
  size_t length, capacity;
} treadle_jinja_writer;

typedef struct treadle_jinja_machine {
  treadle_arena arena;
  const struct treadle_jinja_template *template;
  const treadle_jinja_options *options;
  int64_t steps_left, memory_left;
  int depth;
  int line;                    /* where it failed; 0: nowhere yet */
  treadle_jinja_value context; /* the caller's variables: a dict */
  struct treadle_jinja_scope *root;
  treadle_jinja_writer *out;      /* where output goes now */
  treadle_jinja_writer *page;     /* the output of the whole template */
  size_t page_bytes, page_points; /* this many bytes of it are this many code points */
  treadle_jinja_spans spans;
} treadle_jinja_machine;

/* Zeroed memory of the arena; counts as steps too, since it has to be filled. */
treadle_status treadle_jinja_alloc(treadle_jinja_machine *machine, size_t count, size_t each_bytes,
                                   void *memory_p);
/* Uses up steps; fails when none are left. */
treadle_status treadle_jinja_step(treadle_jinja_machine *machine, size_t steps);
/* Work on this many bytes that needs no memory. */
treadle_status treadle_jinja_work(treadle_jinja_machine *machine, size_t bytes);
/* The same where each byte is looked at: searched, counted, compared one by one. One step at least. */
treadle_status treadle_jinja_scan(treadle_jinja_machine *machine, size_t bytes);
/* The same where each character is decoded and looked up in tables: its class, its case. */
treadle_status treadle_jinja_look(treadle_jinja_machine *machine, const treadle_jinja_text *text);
/* One level deeper into a tree or a value; the caller takes 1 off `depth` when it comes back. */
treadle_status treadle_jinja_enter(treadle_jinja_machine *machine);

treadle_status treadle_jinja_write(treadle_jinja_machine *machine, treadle_jinja_writer *writer,
                                   const char *bytes, size_t length);
treadle_status treadle_jinja_write_code(treadle_jinja_machine *machine, treadle_jinja_writer *writer,
                                        uint32_t code);
treadle_status treadle_jinja_write_plain(treadle_jinja_machine *machine, treadle_jinja_writer *writer,
                                         const char *text);
/* What was written becomes a text value; the writer is not used any more. */
treadle_status treadle_jinja_written(treadle_jinja_machine *machine, const treadle_jinja_writer *writer,
                                     treadle_jinja_value *value_p);

#endif
