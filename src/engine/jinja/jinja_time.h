/* strftime_now. */
#ifndef TREADLE_JINJA_JINJA_TIME_H
#define TREADLE_JINJA_JINJA_TIME_H

#include "jinja/jinja_machine.h"

/* The time that the options give, or the clock's local time, in that format. */
treadle_status treadle_jinja_time(treadle_jinja_machine *machine, const treadle_jinja_text *format,
                                  treadle_jinja_value *result_p);
/* Is it a time, "2025-03-14T15:09:26" or with a space and a fraction? */
bool treadle_jinja_is_time(const char *text);

#endif
