/* quantization_config of a config.json, which goes where coded weights are written as what they mean. All else of the file
 * stays as it is, byte for byte. */
#ifndef TREADLE_CONVERT_QUANTISED_H
#define TREADLE_CONVERT_QUANTISED_H

#include "base/status.h"

/* The text of a config.json without it, outside and in objects that are right in it (text_config). *edited_p is ended by
 * treadle_free(); NULL: there is none to take out. */
treadle_status treadle_config_unquantised(const char *path, char **edited_p);

#endif
