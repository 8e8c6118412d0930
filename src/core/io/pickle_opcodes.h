/* Opcodes of pickles that make values (pickle.c has the table): each takes what it needs from the stream and the stack, and
 * pushes a value, or puts values into the one on the top. The number beside the machine is the opcode's own: the width of
 * its argument or of the argument's length, a type, a count. */
#ifndef TREADLE_IO_PICKLE_OPCODES_H
#define TREADLE_IO_PICKLE_OPCODES_H

#include "io/pickle_machine.h"

/* Plain values. A constant: 0 is None, 1 False, 2 True. */
treadle_status treadle_opcode_constant(treadle_pickle_machine *m, int which);
treadle_status treadle_opcode_whole(treadle_pickle_machine *m, int width);
treadle_status treadle_opcode_long_whole(treadle_pickle_machine *m, int width);
treadle_status treadle_opcode_real(treadle_pickle_machine *m, int width);
treadle_status treadle_opcode_text(treadle_pickle_machine *m, int width);
treadle_status treadle_opcode_binary(treadle_pickle_machine *m, int width);

/* Collections: empty ones, those of all above the mark, tuples of 1 to 3. */
treadle_status treadle_opcode_empty(treadle_pickle_machine *m, int type);
treadle_status treadle_opcode_gather(treadle_pickle_machine *m, int type);
treadle_status treadle_opcode_few(treadle_pickle_machine *m, int count);
/* Puts one item (of a dict: a pair), or all above the mark, into the collection or call below. */
treadle_status treadle_opcode_add_one(treadle_pickle_machine *m, int type);
treadle_status treadle_opcode_add_many(treadle_pickle_machine *m, int type);

/* A class or function, named in the stream or by two texts. */
treadle_status treadle_opcode_class(treadle_pickle_machine *m, int width);
treadle_status treadle_opcode_class_of_texts(treadle_pickle_machine *m, int width);
/* A call, of `count` values: callee, arguments, keywords; of 1: a persistent id. */
treadle_status treadle_opcode_call(treadle_pickle_machine *m, int count);
/* Gives a call its state. */
treadle_status treadle_opcode_build(treadle_pickle_machine *m, int width);

#endif
