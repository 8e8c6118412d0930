/* Characters as Python's str sees them. Most is utf8proc's; the tables have what it lacks: characters that become several
 * (Unicode's SpecialCasing.txt), letters of no case category, and numbers. Tables are sorted. */
#include "jinja/jinja_text.h"

#include <utf8proc.h>

typedef struct range_of_codes {
  uint32_t from, to;
} range_of_codes;

/* Lower case without being of the category Ll. */
static const range_of_codes other_lower[] = {
    {0xaa, 0xaa},       {0xba, 0xba},       {0x2b0, 0x2b8},     {0x2c0, 0x2c1},    {0x2e0, 0x2e4},
    {0x345, 0x345},     {0x37a, 0x37a},     {0x1d2c, 0x1d6a},   {0x1d78, 0x1d78},  {0x1d9b, 0x1dbf},
    {0x2071, 0x2071},   {0x207f, 0x207f},   {0x2090, 0x209c},   {0x2170, 0x217f},  {0x24d0, 0x24e9},
    {0x2c7c, 0x2c7d},   {0xa69c, 0xa69d},   {0xa770, 0xa770},   {0xa7f8, 0xa7f9},  {0xab5c, 0xab5f},
    {0x10780, 0x10780}, {0x10783, 0x10785}, {0x10787, 0x107b0}, {0x107b2, 0x107ba}};

/* Upper case without being of the category Lu. */
static const range_of_codes other_upper[] = {
    {0x2160, 0x216f}, {0x24b6, 0x24cf}, {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};

/* Digits that are not decimal: superscripts, circled ones. */
static const range_of_codes other_digits[] = {
    {0xb2, 0xb3},     {0xb9, 0xb9},       {0x1369, 0x1371},   {0x19da, 0x19da},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247c},   {0x2488, 0x2490},
    {0x24ea, 0x24ea}, {0x24f5, 0x24fd},   {0x24ff, 0x24ff},   {0x2776, 0x277e},   {0x2780, 0x2788},
    {0x278a, 0x2792}, {0x10a40, 0x10a43}, {0x10e60, 0x10e68}, {0x11052, 0x1105a}, {0x1f100, 0x1f10a}};

/* Ideographs of numbers. */
static const range_of_codes other_numbers[] = {
    {0x3405, 0x3405},   {0x3483, 0x3483},   {0x382a, 0x382a},   {0x3b4d, 0x3b4d},   {0x4e00, 0x4e00},
    {0x4e03, 0x4e03},   {0x4e07, 0x4e07},   {0x4e09, 0x4e09},   {0x4e5d, 0x4e5d},   {0x4e8c, 0x4e8c},
    {0x4e94, 0x4e94},   {0x4e96, 0x4e96},   {0x4ebf, 0x4ec0},   {0x4edf, 0x4edf},   {0x4ee8, 0x4ee8},
    {0x4f0d, 0x4f0d},   {0x4f70, 0x4f70},   {0x5104, 0x5104},   {0x5146, 0x5146},   {0x5169, 0x5169},
    {0x516b, 0x516b},   {0x516d, 0x516d},   {0x5341, 0x5341},   {0x5343, 0x5345},   {0x534c, 0x534c},
    {0x53c1, 0x53c4},   {0x56db, 0x56db},   {0x58f1, 0x58f1},   {0x58f9, 0x58f9},   {0x5e7a, 0x5e7a},
    {0x5efe, 0x5eff},   {0x5f0c, 0x5f0e},   {0x5f10, 0x5f10},   {0x62fe, 0x62fe},   {0x634c, 0x634c},
    {0x67d2, 0x67d2},   {0x6f06, 0x6f06},   {0x7396, 0x7396},   {0x767e, 0x767e},   {0x8086, 0x8086},
    {0x842c, 0x842c},   {0x8cae, 0x8cae},   {0x8cb3, 0x8cb3},   {0x8d30, 0x8d30},   {0x9621, 0x9621},
    {0x9646, 0x9646},   {0x964c, 0x964c},   {0x9678, 0x9678},   {0x96f6, 0x96f6},   {0xf96b, 0xf96b},
    {0xf973, 0xf973},   {0xf978, 0xf978},   {0xf9b2, 0xf9b2},   {0xf9d1, 0xf9d1},   {0xf9d3, 0xf9d3},
    {0xf9fd, 0xf9fd},   {0x20001, 0x20001}, {0x20064, 0x20064}, {0x200e2, 0x200e2}, {0x20121, 0x20121},
    {0x2092a, 0x2092a}, {0x20983, 0x20983}, {0x2098c, 0x2098c}, {0x2099c, 0x2099c}, {0x20aea, 0x20aea},
    {0x20afd, 0x20afd}, {0x20b19, 0x20b19}, {0x22390, 0x22390}, {0x22998, 0x22998}, {0x23b1b, 0x23b1b},
    {0x2626d, 0x2626d}, {0x2f890, 0x2f890}};

/* Characters that become several: what they are in upper case and, as the first of a word, in title case; 0 ends each. */
static const struct {
  uint32_t code;
  uint16_t upper[3], title[3];
} several[] = {{0xdf, {0x53, 0x53}, {0x53, 0x73}},
               {0x149, {0x2bc, 0x4e}, {0x2bc, 0x4e}},
               {0x1f0, {0x4a, 0x30c}, {0x4a, 0x30c}},
               {0x390, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
               {0x3b0, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
               {0x587, {0x535, 0x552}, {0x535, 0x582}},
               {0x1e96, {0x48, 0x331}, {0x48, 0x331}},
               {0x1e97, {0x54, 0x308}, {0x54, 0x308}},
               {0x1e98, {0x57, 0x30a}, {0x57, 0x30a}},
               {0x1e99, {0x59, 0x30a}, {0x59, 0x30a}},
               {0x1e9a, {0x41, 0x2be}, {0x41, 0x2be}},
               {0x1f50, {0x3a5, 0x313}, {0x3a5, 0x313}},
               {0x1f52, {0x3a5, 0x313, 0x300}, {0x3a5, 0x313, 0x300}},
               {0x1f54, {0x3a5, 0x313, 0x301}, {0x3a5, 0x313, 0x301}},
               {0x1f56, {0x3a5, 0x313, 0x342}, {0x3a5, 0x313, 0x342}},
               {0x1f80, {0x1f08, 0x399}, {0x1f88}},
               {0x1f81, {0x1f09, 0x399}, {0x1f89}},
               {0x1f82, {0x1f0a, 0x399}, {0x1f8a}},
               {0x1f83, {0x1f0b, 0x399}, {0x1f8b}},
               {0x1f84, {0x1f0c, 0x399}, {0x1f8c}},
               {0x1f85, {0x1f0d, 0x399}, {0x1f8d}},
               {0x1f86, {0x1f0e, 0x399}, {0x1f8e}},
               {0x1f87, {0x1f0f, 0x399}, {0x1f8f}},
               {0x1f88, {0x1f08, 0x399}, {0x1f88}},
               {0x1f89, {0x1f09, 0x399}, {0x1f89}},
               {0x1f8a, {0x1f0a, 0x399}, {0x1f8a}},
               {0x1f8b, {0x1f0b, 0x399}, {0x1f8b}},
               {0x1f8c, {0x1f0c, 0x399}, {0x1f8c}},
               {0x1f8d, {0x1f0d, 0x399}, {0x1f8d}},
               {0x1f8e, {0x1f0e, 0x399}, {0x1f8e}},
               {0x1f8f, {0x1f0f, 0x399}, {0x1f8f}},
               {0x1f90, {0x1f28, 0x399}, {0x1f98}},
               {0x1f91, {0x1f29, 0x399}, {0x1f99}},
               {0x1f92, {0x1f2a, 0x399}, {0x1f9a}},
               {0x1f93, {0x1f2b, 0x399}, {0x1f9b}},
               {0x1f94, {0x1f2c, 0x399}, {0x1f9c}},
               {0x1f95, {0x1f2d, 0x399}, {0x1f9d}},
               {0x1f96, {0x1f2e, 0x399}, {0x1f9e}},
               {0x1f97, {0x1f2f, 0x399}, {0x1f9f}},
               {0x1f98, {0x1f28, 0x399}, {0x1f98}},
               {0x1f99, {0x1f29, 0x399}, {0x1f99}},
               {0x1f9a, {0x1f2a, 0x399}, {0x1f9a}},
               {0x1f9b, {0x1f2b, 0x399}, {0x1f9b}},
               {0x1f9c, {0x1f2c, 0x399}, {0x1f9c}},
               {0x1f9d, {0x1f2d, 0x399}, {0x1f9d}},
               {0x1f9e, {0x1f2e, 0x399}, {0x1f9e}},
               {0x1f9f, {0x1f2f, 0x399}, {0x1f9f}},
               {0x1fa0, {0x1f68, 0x399}, {0x1fa8}},
               {0x1fa1, {0x1f69, 0x399}, {0x1fa9}},
               {0x1fa2, {0x1f6a, 0x399}, {0x1faa}},
               {0x1fa3, {0x1f6b, 0x399}, {0x1fab}},
               {0x1fa4, {0x1f6c, 0x399}, {0x1fac}},
               {0x1fa5, {0x1f6d, 0x399}, {0x1fad}},
               {0x1fa6, {0x1f6e, 0x399}, {0x1fae}},
               {0x1fa7, {0x1f6f, 0x399}, {0x1faf}},
               {0x1fa8, {0x1f68, 0x399}, {0x1fa8}},
               {0x1fa9, {0x1f69, 0x399}, {0x1fa9}},
               {0x1faa, {0x1f6a, 0x399}, {0x1faa}},
               {0x1fab, {0x1f6b, 0x399}, {0x1fab}},
               {0x1fac, {0x1f6c, 0x399}, {0x1fac}},
               {0x1fad, {0x1f6d, 0x399}, {0x1fad}},
               {0x1fae, {0x1f6e, 0x399}, {0x1fae}},
               {0x1faf, {0x1f6f, 0x399}, {0x1faf}},
               {0x1fb2, {0x1fba, 0x399}, {0x1fba, 0x345}},
               {0x1fb3, {0x391, 0x399}, {0x1fbc}},
               {0x1fb4, {0x386, 0x399}, {0x386, 0x345}},
               {0x1fb6, {0x391, 0x342}, {0x391, 0x342}},
               {0x1fb7, {0x391, 0x342, 0x399}, {0x391, 0x342, 0x345}},
               {0x1fbc, {0x391, 0x399}, {0x1fbc}},
               {0x1fc2, {0x1fca, 0x399}, {0x1fca, 0x345}},
               {0x1fc3, {0x397, 0x399}, {0x1fcc}},
               {0x1fc4, {0x389, 0x399}, {0x389, 0x345}},
               {0x1fc6, {0x397, 0x342}, {0x397, 0x342}},
               {0x1fc7, {0x397, 0x342, 0x399}, {0x397, 0x342, 0x345}},
               {0x1fcc, {0x397, 0x399}, {0x1fcc}},
               {0x1fd2, {0x399, 0x308, 0x300}, {0x399, 0x308, 0x300}},
               {0x1fd3, {0x399, 0x308, 0x301}, {0x399, 0x308, 0x301}},
               {0x1fd6, {0x399, 0x342}, {0x399, 0x342}},
               {0x1fd7, {0x399, 0x308, 0x342}, {0x399, 0x308, 0x342}},
               {0x1fe2, {0x3a5, 0x308, 0x300}, {0x3a5, 0x308, 0x300}},
               {0x1fe3, {0x3a5, 0x308, 0x301}, {0x3a5, 0x308, 0x301}},
               {0x1fe4, {0x3a1, 0x313}, {0x3a1, 0x313}},
               {0x1fe6, {0x3a5, 0x342}, {0x3a5, 0x342}},
               {0x1fe7, {0x3a5, 0x308, 0x342}, {0x3a5, 0x308, 0x342}},
               {0x1ff2, {0x1ffa, 0x399}, {0x1ffa, 0x345}},
               {0x1ff3, {0x3a9, 0x399}, {0x1ffc}},
               {0x1ff4, {0x38f, 0x399}, {0x38f, 0x345}},
               {0x1ff6, {0x3a9, 0x342}, {0x3a9, 0x342}},
               {0x1ff7, {0x3a9, 0x342, 0x399}, {0x3a9, 0x342, 0x345}},
               {0x1ffc, {0x3a9, 0x399}, {0x1ffc}},
               {0xfb00, {0x46, 0x46}, {0x46, 0x66}},
               {0xfb01, {0x46, 0x49}, {0x46, 0x69}},
               {0xfb02, {0x46, 0x4c}, {0x46, 0x6c}},
               {0xfb03, {0x46, 0x46, 0x49}, {0x46, 0x66, 0x69}},
               {0xfb04, {0x46, 0x46, 0x4c}, {0x46, 0x66, 0x6c}},
               {0xfb05, {0x53, 0x54}, {0x53, 0x74}},
               {0xfb06, {0x53, 0x54}, {0x53, 0x74}},
               {0xfb13, {0x544, 0x546}, {0x544, 0x576}},
               {0xfb14, {0x544, 0x535}, {0x544, 0x565}},
               {0xfb15, {0x544, 0x53b}, {0x544, 0x56b}},
               {0xfb16, {0x54e, 0x546}, {0x54e, 0x576}},
               {0xfb17, {0x544, 0x53d}, {0x544, 0x56d}}};

#define COUNT(table) (sizeof(table) / sizeof *(table))

static bool is_among(uint32_t code, const range_of_codes *table, size_t count) {
  for (size_t i = 0; i < count && table[i].from <= code; i++)
    if (code <= table[i].to) return true;
  return false;
}

static utf8proc_category_t category_of(uint32_t code) { return utf8proc_category((utf8proc_int32_t)code); }

static bool is_letter(uint32_t code) {
  utf8proc_category_t category = category_of(code);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

static bool is_printable(uint32_t code) {
  utf8proc_category_t category = category_of(code);
  if (code == ' ') return true;
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

bool treadle_jinja_is(treadle_jinja_class which, uint32_t code) {
  utf8proc_category_t category = category_of(code);
  bool decimal = category == UTF8PROC_CATEGORY_ND;
  switch (which) {
  case JINJA_IS_SPACE: return treadle_jinja_is_space(code);
  case JINJA_IS_PRINTABLE: return is_printable(code);
  case JINJA_IS_ALPHA: return is_letter(code);
  case JINJA_IS_DECIMAL: return decimal;
  case JINJA_IS_DIGIT: return decimal || is_among(code, other_digits, COUNT(other_digits));
  case JINJA_IS_NUMERIC:
    return decimal || category == UTF8PROC_CATEGORY_NL || category == UTF8PROC_CATEGORY_NO ||
           is_among(code, other_numbers, COUNT(other_numbers));
  default: return is_letter(code) || treadle_jinja_is(JINJA_IS_NUMERIC, code);
  }
}

bool treadle_jinja_is_cased(uint32_t code, bool upper) {
  utf8proc_category_t category = category_of(code);
  return upper ? category == UTF8PROC_CATEGORY_LU || is_among(code, other_upper, COUNT(other_upper))
               : category == UTF8PROC_CATEGORY_LL || is_among(code, other_lower, COUNT(other_lower));
}

static bool has_case(uint32_t code) {
  return treadle_jinja_is_cased(code, true) || treadle_jinja_is_cased(code, false) ||
         category_of(code) == UTF8PROC_CATEGORY_LT;
}

bool treadle_jinja_all_cased(const treadle_jinja_text *text, bool upper) {
  bool cased = false;
  uint32_t code;
  for (size_t at = 0; at < text->length;) {
    at += treadle_utf8_decode(text->bytes + at, &code);
    if (treadle_jinja_is_cased(code, !upper) || category_of(code) == UTF8PROC_CATEGORY_LT) return false;
    cased = cased || treadle_jinja_is_cased(code, upper);
  }
  return cased;
}

bool treadle_jinja_is_title(const treadle_jinja_text *text) {
  bool cased = false, inside = false;
  uint32_t code;
  for (size_t at = 0; at < text->length;) {
    at += treadle_utf8_decode(text->bytes + at, &code);
    bool begins = treadle_jinja_is_cased(code, true) || category_of(code) == UTF8PROC_CATEGORY_LT;
    bool goes_on = treadle_jinja_is_cased(code, false);
    if ((begins && inside) || (goes_on && !inside)) return false;
    inside = begins || goes_on;
    cased = cased || inside;
  }
  return cased;
}

/* ---- Other cases ------------------------------------------------------------------------------- */

/* Characters that a final sigma looks through (Unicode's Case_Ignorable). */
static bool is_passed(uint32_t code) {
  static const uint32_t marks[] = {0x27,   0x2e,   0x3a,   0xb7,   0x387,  0x55f,  0x5f4,  0x2018, 0x2019,
                                   0x2024, 0x2027, 0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
  for (size_t i = 0; i < COUNT(marks); i++)
    if (marks[i] == code) return true;
  utf8proc_category_t category = category_of(code);
  return category == UTF8PROC_CATEGORY_MN || category == UTF8PROC_CATEGORY_ME ||
         category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_LM ||
         category == UTF8PROC_CATEGORY_SK;
}

/* Does a letter with a case stand before byte `at` of the text, or after it? */
static bool has_letter_before(const treadle_jinja_text *text, size_t at) {
  uint32_t code;
  while (at > 0) {
    do at--;
    while (((unsigned char)text->bytes[at] & 0xc0) == 0x80);
    treadle_utf8_decode(text->bytes + at, &code);
    if (!is_passed(code)) return has_case(code);
  }
  return false;
}

static bool has_letter_after(const treadle_jinja_text *text, size_t at) {
  uint32_t code;
  while (at < text->length) {
    at += treadle_utf8_decode(text->bytes + at, &code);
    if (!is_passed(code)) return has_case(code);
  }
  return false;
}

static treadle_status write_upper(treadle_jinja_machine *m, treadle_jinja_writer *w, uint32_t code,
                                  bool title) {
  for (size_t i = 0; code >= 0x80 && i < COUNT(several); i++) {
    if (several[i].code != code) continue;
    const uint16_t *codes = title ? several[i].title : several[i].upper;
    for (int j = 0; j < 3 && codes[j]; j++) PASS(treadle_jinja_write_code(m, w, codes[j]));
    return TREADLE_OK;
  }
  utf8proc_int32_t one = (utf8proc_int32_t)code;
  return treadle_jinja_write_code(m, w, (uint32_t)(title ? utf8proc_totitle(one) : utf8proc_toupper(one)));
}

/* The character of `text` at bytes [at, next). */
static treadle_status write_lower(treadle_jinja_machine *m, treadle_jinja_writer *w,
                                  const treadle_jinja_text *text, size_t at, size_t next) {
  uint32_t code;
  treadle_utf8_decode(text->bytes + at, &code);
  if (code == 0x3a3) /* a sigma that ends a word */
    return treadle_jinja_write_code(
        m, w, has_letter_before(text, at) && !has_letter_after(text, next) ? 0x3c2 : 0x3c3);
  if (code == 0x130) { /* I with a dot */
    PASS(treadle_jinja_write_code(m, w, 'i'));
    return treadle_jinja_write_code(m, w, 0x307);
  }
  return treadle_jinja_write_code(m, w, (uint32_t)utf8proc_tolower((utf8proc_int32_t)code));
}

static treadle_status write_folded(treadle_jinja_machine *m, treadle_jinja_writer *w, uint32_t code) {
  utf8proc_int32_t codes[8];
  int class = 0;
  utf8proc_ssize_t count =
      utf8proc_decompose_char((utf8proc_int32_t)code, codes, 8, UTF8PROC_CASEFOLD, &class);
  for (utf8proc_ssize_t i = 0; i < count && i < 8; i++)
    PASS(treadle_jinja_write_code(m, w, (uint32_t)codes[i]));
  return TREADLE_OK;
}

treadle_status treadle_jinja_change_case(treadle_jinja_machine *m, const treadle_jinja_text *text,
                                         treadle_jinja_case how, treadle_jinja_value *value_p) {
  treadle_jinja_writer w = {0};
  bool inside = false; /* the character before has a case */
  uint32_t code;
  PASS(treadle_jinja_look(m, text));
  PASS(treadle_jinja_look(m, text)); /* its case and the other one */
  for (size_t at = 0, next; at < text->length; at = next) {
    next = at + treadle_utf8_decode(text->bytes + at, &code);
    bool title = (how == JINJA_TITLE && !inside) || (how == JINJA_CAPITAL && at == 0);
    if (how == JINJA_FOLD)
      PASS(write_folded(m, &w, code));
    else if (how == JINJA_SWAP && !treadle_jinja_is_cased(code, true) &&
             !treadle_jinja_is_cased(code, false))
      PASS(treadle_jinja_write_code(m, &w, code));
    else if (how == JINJA_UPPER || title || (how == JINJA_SWAP && treadle_jinja_is_cased(code, false)))
      PASS(write_upper(m, &w, code, title));
    else
      PASS(write_lower(m, &w, text, at, next));
    inside = has_case(code);
  }
  PASS(treadle_jinja_written(m, &w, value_p));
  return treadle_jinja_mark(m, value_p->text, text->safe, value_p);
}
