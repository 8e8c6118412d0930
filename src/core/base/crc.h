/* CRC-32 as in zip archives (polynomial 0x04c11db7, reflected), and as in TensorBoard's files (0x1edc6f41, reflected). */
#ifndef TREADLE_BASE_CRC_H
#define TREADLE_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* That of what `crc` is of, followed by these bytes; 0 is that of nothing. */
uint32_t treadle_crc32(uint32_t crc, const void *bytes, size_t count);
/* CRC-32C, bit by bit: for records of some hundred bytes. */
uint32_t treadle_crc32c(uint32_t crc, const void *bytes, size_t count);

#endif
