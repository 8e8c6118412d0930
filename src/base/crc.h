/* CRC-32 as in zip archives (polynomial 0x04c11db7, reflected). */
#ifndef TREADLE_BASE_CRC_H
#define TREADLE_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* That of what `crc` is of, followed by these bytes; 0 is that of nothing. */
uint32_t treadle_crc32(uint32_t crc, const void *bytes, size_t count);

#endif
