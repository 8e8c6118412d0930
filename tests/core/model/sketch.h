/* Small family files for tests: a text in parts, of which a test replaces one. */
#ifndef TREADLE_TESTS_SKETCH_H
#define TREADLE_TESTS_SKETCH_H

#include "test.h"

#include "family/family.h"
#include "model/model.h"

typedef struct sketch {
  const char *head, *dims, *tensors, *views, *engines, *tail;
} sketch;

/* A family with everything: experts, views, MTP layers, packed files, facts of the engines. */
extern const sketch sketch_experts;

/* Reads the family; everything lives in the arena. */
treadle_status sketch_read(const sketch *s, treadle_arena *arena, treadle_family **family_p);

/* Opens a model of the family with a config, whose model_type is "small". */
treadle_status sketch_open(const sketch *s, const char *config, treadle_model **model_p);

/* A config for sketch_experts: 4 experts, 2 layers, 1 MTP layer. */
extern const char sketch_config[];

/* The family is refused once `...` changed the sketch s, with these words and the file's name. */
#define sketch_refused(words, ...)                                                                         \
  do {                                                                                                     \
    treadle_arena arena_ = {0};                                                                            \
    treadle_family *family_;                                                                               \
    sketch s = sketch_experts;                                                                             \
    __VA_ARGS__;                                                                                           \
    assert_refused(words, sketch_read(&s, &arena_, &family_));                                             \
    assert_non_null(strstr(treadle_error_message(), "small.yaml"));                                        \
    treadle_arena_release(&arena_);                                                                        \
  } while (0)

#endif
