/* Running trees: scopes, expressions, statements, calls. */
#ifndef TREADLE_JINJA_JINJA_RUN_H
#define TREADLE_JINJA_JINJA_RUN_H

#include "jinja/jinja_ops.h"
#include "jinja/jinja_tree.h"

/* ---- Scopes ---------------------------------------------------------------------------------------- */

/* Variables that were set in one body. Loops make one for each item, macros one for each call; if makes none. */
typedef struct treadle_jinja_scope {
  struct treadle_jinja_scope *parent;
  struct treadle_jinja_variable *first;
} treadle_jinja_scope;

treadle_status treadle_jinja_scope_make(treadle_jinja_machine *machine, treadle_jinja_scope *parent,
                                        treadle_jinja_scope **scope_p);
/* `name` is interned. */
treadle_status treadle_jinja_scope_set(treadle_jinja_machine *machine, treadle_jinja_scope *scope,
                                       const char *name, treadle_jinja_value value);
/* Scopes from the inside out, the caller's variables, the functions of the environment; else undefined. */
treadle_status treadle_jinja_scope_get(treadle_jinja_machine *machine, const treadle_jinja_scope *scope,
                                       const char *name, treadle_jinja_value *value_p);
/* Sets a name, a member of a namespace, or each of a tuple. */
treadle_status treadle_jinja_assign(treadle_jinja_machine *machine, treadle_jinja_scope *scope,
                                    const treadle_jinja_tree *target, treadle_jinja_value value);

/* ---- Trees ----------------------------------------------------------------------------------------- */

treadle_status treadle_jinja_eval(treadle_jinja_machine *machine, treadle_jinja_scope *scope,
                                  const treadle_jinja_tree *tree, treadle_jinja_value *value_p);

/* How a body ended. */
typedef enum treadle_jinja_flow { JINJA_FLOWS, JINJA_BREAKS, JINJA_CONTINUES } treadle_jinja_flow;
treadle_status treadle_jinja_exec(treadle_jinja_machine *machine, treadle_jinja_scope *scope,
                                  treadle_jinja_trees body, treadle_jinja_flow *flow_p);
/* The same, with the output as a text. */
treadle_status treadle_jinja_capture(treadle_jinja_machine *machine, treadle_jinja_scope *scope,
                                     treadle_jinja_trees body, treadle_jinja_flow *flow_p,
                                     treadle_jinja_value *text_p);

/* ---- Calls ----------------------------------------------------------------------------------------- */

typedef struct treadle_jinja_call {
  treadle_jinja_value self; /* of a method; what a filter or a test looks at */
  const treadle_jinja_value *items;
  size_t count;
  treadle_jinja_value *names, *named; /* texts, and the values given by these names */
  size_t named_count;
  treadle_jinja_value bound[8]; /* the arguments in the order of the function's own; ABSENT: not given */
} treadle_jinja_call;

typedef treadle_status (*treadle_jinja_function)(treadle_jinja_machine *machine, treadle_jinja_call *call,
                                                 treadle_jinja_value *result_p);

/* A function, method, filter or test: a row of its table. `takes` names its arguments, "old new count?", where ? may be left out;
 * a / in front: by place alone; "*": the function looks at items and named itself. A row without a function
 * is a gap. */
typedef struct treadle_jinja_row {
  const char *name;
  treadle_jinja_function run;
  const char *takes;
} treadle_jinja_row;

typedef struct treadle_jinja_method {
  treadle_jinja_value self;
  const treadle_jinja_row *row;
} treadle_jinja_method;

/* NULL: none of that name. Tables end with a row without a name. */
const treadle_jinja_row *treadle_jinja_row_of(const treadle_jinja_row *table, const char *name);
const treadle_jinja_row *treadle_jinja_filter(const char *name);
const treadle_jinja_row *treadle_jinja_test(const char *name);
extern const treadle_jinja_row treadle_jinja_functions[];
extern const treadle_jinja_row treadle_jinja_text_methods[];
extern const treadle_jinja_row treadle_jinja_list_methods[];
extern const treadle_jinja_row treadle_jinja_dict_methods[];
extern const treadle_jinja_row treadle_jinja_int_methods[];
extern const treadle_jinja_row treadle_jinja_float_methods[];
extern const treadle_jinja_row treadle_jinja_loop_methods[];
extern const treadle_jinja_row treadle_jinja_cycler_methods[];

/* Fills `bound` and runs the row. */
treadle_status treadle_jinja_run(treadle_jinja_machine *machine, const treadle_jinja_row *row,
                                 treadle_jinja_call *call, treadle_jinja_value *result_p);
treadle_status treadle_jinja_call_value(treadle_jinja_machine *machine, treadle_jinja_value callee,
                                        treadle_jinja_call *call, treadle_jinja_value *result_p);
bool treadle_jinja_is_callable(treadle_jinja_value value);

/* The arguments of a call, filter or test; one more named one has room. */
treadle_status treadle_jinja_eval_arguments(treadle_jinja_machine *machine, treadle_jinja_scope *scope,
                                            const treadle_jinja_tree *tree, treadle_jinja_call *call);

/* Optional arguments. */
bool treadle_jinja_flag(treadle_jinja_value value, bool otherwise);
/* A whole number; `what` names it in the message. */
treadle_status treadle_jinja_whole_argument(treadle_jinja_value value, const char *what, int64_t otherwise,
                                            int64_t *number_p);
treadle_status treadle_jinja_text_argument(treadle_jinja_value value, const char *what,
                                           const treadle_jinja_text **text_p);
/* The argument that was given by that name, NULL: none. */
const treadle_jinja_value *treadle_jinja_named(const treadle_jinja_call *call, const char *name);

/* ---- Attributes and elements ------------------------------------------------------------------------ */

/* value.name, value[key], value | attr(name). */
treadle_status treadle_jinja_attribute(treadle_jinja_machine *machine, treadle_jinja_value value,
                                       const char *name, treadle_jinja_value *result_p);
treadle_status treadle_jinja_element(treadle_jinja_machine *machine, treadle_jinja_value value,
                                     treadle_jinja_value key, treadle_jinja_value *result_p);
treadle_status treadle_jinja_attribute_only(treadle_jinja_machine *machine, treadle_jinja_value value,
                                            const char *name, treadle_jinja_value *result_p);
/* value[start:stop:step]; NONE: not given. */
treadle_status treadle_jinja_slice(treadle_jinja_machine *machine, treadle_jinja_value value,
                                   const treadle_jinja_value bounds[3], treadle_jinja_value *result_p);

/* ---- Macros and loops -------------------------------------------------------------------------------- */

typedef struct treadle_jinja_macro {
  treadle_jinja_value name; /* NONE: the body of a call */
  const treadle_jinja_tree *tree;
  treadle_jinja_scope *scope; /* where it was defined */
} treadle_jinja_macro;

treadle_status treadle_jinja_macro_make(treadle_jinja_machine *machine, treadle_jinja_scope *scope,
                                        const treadle_jinja_tree *tree, treadle_jinja_value *macro_p);
treadle_status treadle_jinja_macro_call(treadle_jinja_machine *machine, const treadle_jinja_macro *macro,
                                        const treadle_jinja_call *call, treadle_jinja_value *result_p);
/* *got_p: is there such an attribute? */
treadle_status treadle_jinja_macro_attribute(treadle_jinja_machine *machine,
                                             const treadle_jinja_macro *macro, const char *name,
                                             bool *got_p, treadle_jinja_value *value_p);

typedef struct treadle_jinja_loop treadle_jinja_loop;
treadle_status treadle_jinja_exec_for(treadle_jinja_machine *machine, treadle_jinja_scope *scope,
                                      const treadle_jinja_tree *tree, treadle_jinja_flow *flow_p);
treadle_status treadle_jinja_loop_call(treadle_jinja_machine *machine, treadle_jinja_loop *loop,
                                       treadle_jinja_value items, treadle_jinja_value *result_p);
treadle_status treadle_jinja_loop_attribute(treadle_jinja_machine *machine, treadle_jinja_value loop,
                                            const char *name, bool *got_p, treadle_jinja_value *value_p);
treadle_status treadle_jinja_loop_length(treadle_jinja_machine *machine, treadle_jinja_loop *loop,
                                         int64_t *length_p);
int64_t treadle_jinja_loop_index(const treadle_jinja_loop *loop); /* from 0 */
treadle_status treadle_jinja_loop_next(treadle_jinja_machine *machine, treadle_jinja_loop *loop,
                                       treadle_jinja_value *item_p, bool *got_p);

#endif
