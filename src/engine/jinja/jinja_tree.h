/* Templates as trees: what the parser makes and the evaluator runs.
 *
 * One struct for all forms; the table says what each has. Lists may be empty, trees marked ? may be NULL. Names are interned: equal
 * names of a template are one pointer. */
#ifndef TREADLE_JINJA_JINJA_TREE_H
#define TREADLE_JINJA_JINJA_TREE_H

#include "jinja/jinja_machine.h"

typedef enum treadle_jinja_form {
  /*                      name       of         by          other      list         more        body   */
  JINJA_CONST,      /* `constant`                                                                   */
  JINJA_NAME,       /* variable                                                                     */
  JINJA_MEMBER,     /* variable of a namespace that is set; names[0] is the member                  */
  JINJA_MAKE_TUPLE, /*                                              items                           */
  JINJA_MAKE_LIST,  /*                                              items                           */
  JINJA_MAKE_DICT,  /*                                              keys         values             */
  JINJA_ATTRIBUTE,  /* attribute  value                                                             */
  JINJA_ELEMENT,    /*            value      index                                                  */
  JINJA_SLICE,      /*            start?     stop?       step?                                      */
  JINJA_CALL,       /*            callee     *args?      **kwargs?  arguments    named: names[i]    */
  JINJA_FILTER,     /* filter     value?     *args?      **kwargs?  arguments    named: names[i]    */
  JINJA_TEST,       /* test       value      *args?      **kwargs?  arguments    named: names[i]    */
  JINJA_NOT,        /*            value                                                             */
  JINJA_MINUS,      /*            value                                                             */
  JINJA_PLUS,       /*            value                                                             */
  JINJA_OPERATE,    /* operator   left       right                                                  */
  JINJA_AND,        /*            left       right                                                  */
  JINJA_OR,         /*            left       right                                                  */
  JINJA_CHOOSE,     /*            condition  then        else?                                      */
  JINJA_COMPARE,    /*            left                              operands: names[i]              */
  JINJA_JOIN,       /*                                              operands of ~                   */
  JINJA_OUTPUT,     /*                                              expressions                     */
  JINJA_SET,        /*            target     value                                                  */
  JINJA_SET_BLOCK,  /*            target     filter?                                         body   */
  JINJA_FOR,        /*            target     items       filter?                 else        body   */
  JINJA_IF,         /*                                              branches                 body: else */
  JINJA_BRANCH,     /*            condition                                                  body   */
  JINJA_WITH,       /*                                              targets      values      body   */
  JINJA_DEFINE,     /* macro                                        defaults, parameters: names[i]   body */
  JINJA_CALL_BLOCK, /*            call                              defaults, parameters: names[i]   body */
  JINJA_FILTER_BLOCK, /*            filter                                                     body   */
  JINJA_GENERATION,   /*                                                                       body   */
  JINJA_BLOCK,        /* block                                                                 body   */
  JINJA_BREAK,
  JINJA_CONTINUE,
  JINJA_FORMS
} treadle_jinja_form;

typedef struct treadle_jinja_trees {
  struct treadle_jinja_tree **items;
  size_t count;
} treadle_jinja_trees;

typedef struct treadle_jinja_tree {
  treadle_jinja_form form;
  int line;
  int height; /* levels of trees below it */
  const char *name;
  struct treadle_jinja_tree *of, *by, *other;
  treadle_jinja_trees list, more, body;
  const char **names;
  size_t name_count;
  treadle_jinja_value constant;
  bool recursive;        /* of a loop */
  bool scoped, required; /* of a block */
  const struct treadle_jinja_row
      *row; /* of a filter or a test; NULL: there is none, which fails when it runs */
  bool takes_caller, takes_named, takes_more; /* the body of a macro speaks of caller, kwargs, varargs */
} treadle_jinja_tree;

struct treadle_jinja_template {
  treadle_arena arena;
  char *what;
  treadle_jinja_trees body;
  const char *loop, *caller, *kwargs, *varargs; /* these names, interned */
};

/* Refuses what Jinja finds after parsing (filters and tests that do not exist, breaks outside of loops, the name of the loop as a
 * target), and says which macros speak of caller, kwargs and varargs. machine->line is the line of an error. */
treadle_status treadle_jinja_check(treadle_jinja_machine *machine, treadle_jinja_trees body);

#endif
