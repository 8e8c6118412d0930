/* The filters, by what they take. Each table ends with a row without a name (jinja_filters.c looks through them). */
#ifndef TREADLE_JINJA_JINJA_FILTERS_H
#define TREADLE_JINJA_JINJA_FILTERS_H

#include "jinja/jinja_run.h"

extern const treadle_jinja_row treadle_jinja_text_filters[];
extern const treadle_jinja_row treadle_jinja_value_filters[];
extern const treadle_jinja_row treadle_jinja_list_filters[];
extern const treadle_jinja_row treadle_jinja_order_filters[];
extern const treadle_jinja_row treadle_jinja_lazy_filters[];
extern const treadle_jinja_row treadle_jinja_layout_filters[];
extern const treadle_jinja_row treadle_jinja_html_filters[];

#endif
