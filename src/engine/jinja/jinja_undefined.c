/* Undefined values: they can be printed (as nothing), asked and gone through; all else refuses them, by their own reason. */
#include "jinja/jinja_ops.h"

#include "jinja/jinja_text.h"

#include <inttypes.h>
#include <string.h>

typedef treadle_jinja_value value;
typedef treadle_jinja_machine machine;

static treadle_status make(machine *m, treadle_jinja_missing missing, value *value_p) {
  treadle_jinja_missing *kept;
  PASS(treadle_jinja_alloc(m, 1, sizeof *kept, &kept));
  *kept = missing;
  *value_p = (value){.kind = JINJA_UNDEFINED, .missing = kept};
  return TREADLE_OK;
}

treadle_status treadle_jinja_undefined_name(machine *m, const char *name, value *value_p) {
  treadle_jinja_missing missing = {0};
  PASS(treadle_jinja_plain(m, name, &missing.name));
  return make(m, missing, value_p);
}

treadle_status treadle_jinja_undefined_in(machine *m, value of, value name, bool forbidden,
                                          value *value_p) {
  return make(m,
              (treadle_jinja_missing){.of = treadle_jinja_type(of), .name = name, .forbidden = forbidden},
              value_p);
}

treadle_status treadle_jinja_undefined_since(machine *m, const char *reason, value *value_p) {
  return make(m, (treadle_jinja_missing){.reason = reason}, value_p);
}

static treadle_status refuse(const treadle_jinja_missing *missing) {
  if (missing->reason) REFUSE("%s", missing->reason);
  if (missing->name.kind == JINJA_INT)
    REFUSE("a value of type %s has no element %" PRId64, missing->of, missing->name.number);
  if (missing->name.kind != JINJA_TEXT)
    REFUSE("a value of type %s has no such element", missing->of ? missing->of : "?");
  const treadle_jinja_text *name = missing->name.text;
  int length = name->length < 200 ? (int)name->length : 200;
  if (!missing->of) REFUSE("'%.*s' is undefined", length, name->bytes);
  if (missing->forbidden)
    REFUSE("'%.*s' of a value of type %s is not safe to use in a template", length, name->bytes,
           missing->of);
  REFUSE("a value of type %s has no '%.*s'", missing->of, length, name->bytes);
}

treadle_status treadle_jinja_unfit(value v, const char *done) {
  if (v.kind == JINJA_UNDEFINED) return refuse(v.missing);
  REFUSE("a value of type %s cannot be %s", treadle_jinja_type(v), done);
}

treadle_status treadle_jinja_defined(value v) {
  return v.kind == JINJA_UNDEFINED ? refuse(v.missing) : TREADLE_OK;
}
