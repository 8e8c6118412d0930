/* What can be done with values of any kind: comparing, finding, adding, printing, going through the items. */
#ifndef TREADLE_JINJA_JINJA_OPS_H
#define TREADLE_JINJA_JINJA_OPS_H

#include "jinja/jinja_machine.h"

/* ---- Undefined values, and errors about them ------------------------------------------------------ */

/* A variable of that name, an element of a value, a reason in words. */
treadle_status treadle_jinja_undefined_name(treadle_jinja_machine *machine, const char *name,
                                            treadle_jinja_value *value_p);
treadle_status treadle_jinja_undefined_in(treadle_jinja_machine *machine, treadle_jinja_value of,
                                          treadle_jinja_value name, bool forbidden,
                                          treadle_jinja_value *value_p);
treadle_status treadle_jinja_undefined_since(treadle_jinja_machine *machine, const char *reason,
                                             treadle_jinja_value *value_p);
/* Refuses what was to be done with the value: by its own reason where it is undefined, else by the type. */
treadle_status treadle_jinja_unfit(treadle_jinja_value value, const char *done);
/* Refuses an undefined value, takes others. */
treadle_status treadle_jinja_defined(treadle_jinja_value value);

/* ---- Lists and dicts ------------------------------------------------------------------------------ */

/* A list (or tuple) of items that stay where they are. */
treadle_status treadle_jinja_list_of(treadle_jinja_machine *machine, treadle_jinja_kind kind,
                                     const treadle_jinja_value *items, size_t count,
                                     treadle_jinja_value *value_p);
treadle_status treadle_jinja_pair(treadle_jinja_machine *machine, treadle_jinja_value a,
                                  treadle_jinja_value b, treadle_jinja_value *value_p);

treadle_status treadle_jinja_dict_make(treadle_jinja_machine *machine, size_t capacity,
                                       treadle_jinja_dict **dict_p);
/* A key that is there keeps its place. Lists and dicts are refused as keys. */
treadle_status treadle_jinja_dict_put(treadle_jinja_machine *machine, treadle_jinja_dict *dict,
                                      treadle_jinja_value key, treadle_jinja_value value);
/* *index_p is -1 where there is no such key. */
treadle_status treadle_jinja_dict_find(treadle_jinja_machine *machine, const treadle_jinja_dict *dict,
                                       treadle_jinja_value key, int64_t *index_p);
/* NULL: no such key. */
const treadle_jinja_value *treadle_jinja_dict_get(const treadle_jinja_dict *dict, const char *key);
treadle_status treadle_jinja_dict_put_all(treadle_jinja_machine *machine, treadle_jinja_dict *dict,
                                          const treadle_jinja_dict *from);

/* ---- Going through -------------------------------------------------------------------------------- */

/* Gives one item after the other, and can be gone through once. Filters make their own kinds (jinja_filter_lazy.c). */
typedef struct treadle_jinja_iterator treadle_jinja_iterator;
typedef treadle_status (*treadle_jinja_next)(treadle_jinja_machine *machine,
                                             treadle_jinja_iterator *iterator, treadle_jinja_value *item_p,
                                             bool *got_p);
struct treadle_jinja_iterator {
  treadle_jinja_next next;
  treadle_jinja_value over;     /* what it goes through */
  size_t at;                    /* how far it is; of a text, in bytes */
  treadle_jinja_iterator *from; /* the one below it */
  void *state;                  /* of its maker */
};

/* An iterator over the items, characters or keys; one that is an iterator already is given as it is. */
treadle_status treadle_jinja_iterate(treadle_jinja_machine *machine, treadle_jinja_value value,
                                     treadle_jinja_iterator **iterator_p);
treadle_status treadle_jinja_next_of(treadle_jinja_machine *machine, treadle_jinja_iterator *iterator,
                                     treadle_jinja_value *item_p, bool *got_p);
bool treadle_jinja_is_iterable(treadle_jinja_value value);
/* All items as an array; those of lists and tuples are not copied. */
treadle_status treadle_jinja_items(treadle_jinja_machine *machine, treadle_jinja_value value,
                                   const treadle_jinja_value **items_p, size_t *count_p);
/* Item i of a sequence, i from 0 on and below its length. */
treadle_status treadle_jinja_item(treadle_jinja_machine *machine, treadle_jinja_value value, int64_t index,
                                  treadle_jinja_value *item_p);

/* ---- Comparing ------------------------------------------------------------------------------------ */

treadle_status treadle_jinja_equal(treadle_jinja_machine *machine, treadle_jinja_value a,
                                   treadle_jinja_value b, bool *equal_p);
/* "==", "!=", "<", "<=", ">", ">=" */
treadle_status treadle_jinja_compare(treadle_jinja_machine *machine, const char *op, treadle_jinja_value a,
                                     treadle_jinja_value b, bool *holds_p);
treadle_status treadle_jinja_contains(treadle_jinja_machine *machine, treadle_jinja_value container,
                                      treadle_jinja_value item, bool *found_p);

/* ---- Operators ------------------------------------------------------------------------------------ */

/* + - * / % and, of two characters: // is '|', ** is '^'. */
treadle_status treadle_jinja_operate(treadle_jinja_machine *machine, char op, treadle_jinja_value a,
                                     treadle_jinja_value b, treadle_jinja_value *result_p);
/* Python's text % values. */
treadle_status treadle_jinja_percent(treadle_jinja_machine *machine, const treadle_jinja_text *format,
                                     treadle_jinja_value values, treadle_jinja_value *result_p);

/* ---- Printing ------------------------------------------------------------------------------------- */

treadle_status treadle_jinja_print(treadle_jinja_machine *machine, treadle_jinja_writer *writer,
                                   treadle_jinja_value value); /* Python's str() */
treadle_status treadle_jinja_represent(treadle_jinja_machine *machine, treadle_jinja_writer *writer,
                                       treadle_jinja_value value); /* repr() */
/* What print writes, as a text; a text as it is (Markup stays Markup). */
treadle_status treadle_jinja_to_text(treadle_jinja_machine *machine, treadle_jinja_value value,
                                     const treadle_jinja_text **text_p);

/* ---- JSON ----------------------------------------------------------------------------------------- */

typedef struct treadle_jinja_dump {
  bool ascii, sorted, lines;                     /* lines: with newlines and `indent` */
  const treadle_jinja_text *indent, *item, *key; /* separators */
} treadle_jinja_dump;
treadle_status treadle_jinja_dump_json(treadle_jinja_machine *machine, treadle_jinja_writer *writer,
                                       const treadle_jinja_dump *how, treadle_jinja_value value);
/* Texts are not copied: the document has to live as long as the value. */
treadle_status treadle_jinja_of_json(treadle_jinja_machine *machine, json_t *json,
                                     treadle_jinja_value *value_p);

#endif
