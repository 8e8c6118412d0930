/* What reading and writing a zip archive share: where the fields of its records lie. */
#ifndef TREADLE_IO_ZIP_FORMAT_H
#define TREADLE_IO_ZIP_FORMAT_H

#include <stdint.h>

#define ZIP_LOCAL       0x04034b50u /* local header of an entry */
#define ZIP_CENTRAL     0x02014b50u /* its record in the central directory */
#define ZIP_END         0x06054b50u /* end of the central directory */
#define ZIP_END64       0x06064b50u /* the same, zip64 */
#define ZIP_END64_PLACE 0x07064b50u /* where that lies */
#define ZIP_IN_64       0xffffffffu /* this number stands in the zip64 record */
#define ZIP_IN_64_SHORT 0xffffu

enum {
  ZIP_LOCAL_BYTES = 30,
  ZIP_CENTRAL_BYTES = 46,
  ZIP_END_BYTES = 22,
  ZIP_END64_BYTES = 56,
  ZIP_END64_PLACE_BYTES = 20,
  ZIP_LOCAL_CRC_AT = 14,
  ZIP_EXTRA_64 = 1, /* id of the extra field with 64-bit sizes and offset */
  ZIP_FLAG_ENCRYPTED = 1,
  ZIP_FLAG_UTF8 = 1 << 11,
  ZIP_FLAG_ENCRYPTED_DIRECTORY = 1 << 13,
  ZIP_STORED = 0,
  ZIP_DEFLATED = 8
};

/* Numbers are little-endian. */
static inline uint64_t zip_get(const unsigned char *from, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value |= (uint64_t)from[i] << (8 * i);
  return value;
}

/* Puts a number and returns where the next goes. */
static inline unsigned char *zip_put(unsigned char *to, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) *to++ = (unsigned char)(value >> (8 * i) & 0xff);
  return to;
}

#endif
