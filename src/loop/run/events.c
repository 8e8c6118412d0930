#include "run/events.h"

#include "base/crc.h"

#include <string.h>

/* Fields: number << 3 | type, where type 0 is a varint, 1 are 8 bytes, 2 is a length and that many bytes, 5 are 4 bytes. */
enum {
  EVENT_WALL_TIME = 1 << 3 | 1,
  EVENT_STEP = 2 << 3 | 0,
  EVENT_VERSION = 3 << 3 | 2,
  EVENT_SUMMARY = 5 << 3 | 2,
  EVENT_SESSION = 7 << 3 | 2,
  SESSION_STATUS = 1 << 3 | 0,
  SESSION_START = 1,
  SUMMARY_VALUE = 1 << 3 | 2,
  VALUE_TAG = 1 << 3 | 2,
  VALUE_SIMPLE = 2 << 3 | 5
};

enum { LENGTH_BYTES = 8, CRC_BYTES = 4, VARINT_BYTES = 10 };

/* Little-endian. */
static void put_fixed(char *to, uint64_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) to[i] = (char)(value >> (8 * i) & 0xff);
}

static void add_fixed(treadle_builder *to, uint64_t value, size_t bytes) {
  char text[8];
  put_fixed(text, value, bytes);
  treadle_builder_add_bytes(to, text, bytes);
}

static size_t make_varint(char text[VARINT_BYTES], uint64_t value) {
  size_t count = 0;
  for (; value >= 0x80; value >>= 7) text[count++] = (char)(0x80 | (value & 0x7f));
  text[count++] = (char)value;
  return count;
}

static void add_varint(treadle_builder *to, uint64_t value) {
  char text[VARINT_BYTES];
  treadle_builder_add_bytes(to, text, make_varint(text, value));
}

/* Bytes of a field with a length. */
static size_t field_bytes(size_t length) {
  char text[VARINT_BYTES];
  return 1 + make_varint(text, length) + length;
}

static void add_field(treadle_builder *to, int field, size_t length) {
  add_varint(to, (uint64_t)field);
  add_varint(to, length);
}

static uint64_t masked_crc(const char *bytes, size_t count) {
  uint32_t crc = treadle_crc32c(0, bytes, count);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* A record begins: returns where. */
static size_t begin(treadle_builder *to, double wall_seconds) {
  static const char room[LENGTH_BYTES + CRC_BYTES];
  size_t at = to->length;
  uint64_t bits;
  treadle_builder_add_bytes(to, room, sizeof room);
  memcpy(&bits, &wall_seconds, sizeof bits);
  add_varint(to, EVENT_WALL_TIME);
  add_fixed(to, bits, sizeof bits);
  return at;
}

static void end(treadle_builder *to, size_t at) {
  if (to->failed) return;
  char *record = to->text + at, *event = record + LENGTH_BYTES + CRC_BYTES;
  size_t length = to->length - at - LENGTH_BYTES - CRC_BYTES;
  put_fixed(record, length, LENGTH_BYTES);
  put_fixed(record + LENGTH_BYTES, masked_crc(record, LENGTH_BYTES), CRC_BYTES);
  add_fixed(to, masked_crc(event, length), CRC_BYTES);
}

static void add_step(treadle_builder *to, int64_t step) {
  add_varint(to, EVENT_STEP);
  add_varint(to, (uint64_t)step);
}

void treadle_event_version(treadle_builder *to, double wall_seconds) {
  static const char version[] = "brain.Event:2";
  size_t at = begin(to, wall_seconds);
  add_field(to, EVENT_VERSION, sizeof version - 1);
  treadle_builder_add_bytes(to, version, sizeof version - 1);
  end(to, at);
}

void treadle_event_start(treadle_builder *to, double wall_seconds, int64_t step) {
  size_t at = begin(to, wall_seconds);
  add_step(to, step);
  add_field(to, EVENT_SESSION, 2);
  add_varint(to, SESSION_STATUS);
  add_varint(to, SESSION_START);
  end(to, at);
}

static size_t value_bytes(const treadle_metric *metric) {
  return field_bytes(strlen(metric->name)) + 1 + sizeof(float);
}

void treadle_event_values(treadle_builder *to, double wall_seconds, int64_t step,
                          const treadle_metric *metrics, size_t count) {
  size_t at = begin(to, wall_seconds), summary = 0;
  for (size_t i = 0; i < count; i++) summary += field_bytes(value_bytes(&metrics[i]));
  add_step(to, step);
  add_field(to, EVENT_SUMMARY, summary);
  for (size_t i = 0; i < count; i++) {
    float value = (float)metrics[i].value;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    add_field(to, SUMMARY_VALUE, value_bytes(&metrics[i]));
    add_field(to, VALUE_TAG, strlen(metrics[i].name));
    treadle_builder_add_bytes(to, metrics[i].name, strlen(metrics[i].name));
    add_varint(to, VALUE_SIMPLE);
    add_fixed(to, bits, sizeof bits);
  }
  end(to, at);
}
