/* Golden files of templates (tests/golden/text/SOURCE.txt): what Jinja2 and transformers did with them.
 *
 * Each function checks all cases of one file (.json or .json.gz); each difference is a line on `differences`. An error of the
 * file has to be refused; the text of raise_exception and the line of a syntax error have to be the same. False: the file
 * cannot be read or has another pattern. */
#ifndef TREADLE_TESTS_GOLDEN_TEXT_H
#define TREADLE_TESTS_GOLDEN_TEXT_H

#include "golden_support/golden.h"

bool golden_jinja_file(const char *path, FILE *differences, golden_counts *counts_p); /* jinja*.json */
bool golden_chat_file(const char *path, FILE *differences, golden_counts *counts_p);  /* chat*.json.gz */

#endif
