/* Finding filters by name. */
#include "jinja/jinja_filters.h"

/* Filters of Jinja that treadle lacks: random's result nobody could foresee; urlize is for web pages. */
static const treadle_jinja_row gaps[] = {{"random", NULL, "*"}, {"urlize", NULL, "*"}, {NULL, NULL, NULL}};

const treadle_jinja_row *treadle_jinja_filter(const char *name) {
  static const treadle_jinja_row *const tables[] = {
      treadle_jinja_text_filters, treadle_jinja_value_filters,
      treadle_jinja_list_filters, treadle_jinja_order_filters,
      treadle_jinja_lazy_filters, treadle_jinja_layout_filters,
      treadle_jinja_html_filters, gaps};
  const treadle_jinja_row *row = NULL;
  for (size_t i = 0; !row && i < sizeof tables / sizeof *tables; i++)
    row = treadle_jinja_row_of(tables[i], name);
  return row;
}
