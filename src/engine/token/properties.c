/* Properties of characters. Oniguruma, in the tokenizers library of 2026, has those of Unicode 16; PCRE2 has those of the version that it was
 * built for, 14 or later. So what came between 14 and 16 is named here one by one, and a pattern matches the same with any PCRE2. */
#include "token/properties.h"

#include <ctype.h>
#include <string.h>

/* Characters of a category, a script or another property that Unicode 15 to 16 added (Unicode Character Database, Scripts.txt and
 * DerivedGeneralCategory.txt). */
static const struct {
  const char *property;
  uint32_t first, last;
} newer[] = {
    {"Lu", 0x1c89, 0x1c89},
    {"Lu", 0xa7cb, 0xa7cc},
    {"Lu", 0xa7da, 0xa7da},
    {"Lu", 0xa7dc, 0xa7dc},
    {"Lu", 0x10d50, 0x10d65},
    {"Ll", 0x1c8a, 0x1c8a},
    {"Ll", 0xa7cd, 0xa7cd},
    {"Ll", 0xa7db, 0xa7db},
    {"Ll", 0x10d70, 0x10d85},
    {"Ll", 0x1df25, 0x1df2a},
    {"Lm", 0x10d4e, 0x10d4e},
    {"Lm", 0x10d6f, 0x10d6f},
    {"Lm", 0x16d40, 0x16d42},
    {"Lm", 0x16d6b, 0x16d6c},
    {"Lm", 0x1e030, 0x1e06d},
    {"Lm", 0x1e4eb, 0x1e4eb},
    {"Lo", 0x105c0, 0x105f3},
    {"Lo", 0x10d4a, 0x10d4d},
    {"Lo", 0x10d4f, 0x10d4f},
    {"Lo", 0x10ec2, 0x10ec4},
    {"Lo", 0x1123f, 0x11240},
    {"Lo", 0x11380, 0x11389},
    {"Lo", 0x1138b, 0x1138b},
    {"Lo", 0x1138e, 0x1138e},
    {"Lo", 0x11390, 0x113b5},
    {"Lo", 0x113b7, 0x113b7},
    {"Lo", 0x113d1, 0x113d1},
    {"Lo", 0x113d3, 0x113d3},
    {"Lo", 0x11bc0, 0x11be0},
    {"Lo", 0x11f02, 0x11f02},
    {"Lo", 0x11f04, 0x11f10},
    {"Lo", 0x11f12, 0x11f33},
    {"Lo", 0x1342f, 0x1342f},
    {"Lo", 0x13441, 0x13446},
    {"Lo", 0x13460, 0x143fa},
    {"Lo", 0x16100, 0x1611d},
    {"Lo", 0x16d43, 0x16d6a},
    {"Lo", 0x18cff, 0x18cff},
    {"Lo", 0x1b132, 0x1b132},
    {"Lo", 0x1b155, 0x1b155},
    {"Lo", 0x1e4d0, 0x1e4ea},
    {"Lo", 0x1e5d0, 0x1e5ed},
    {"Lo", 0x1e5f0, 0x1e5f0},
    {"Lo", 0x2b739, 0x2b739},
    {"Lo", 0x2ebf0, 0x2ee5d},
    {"Lo", 0x31350, 0x323af},
    {"Mn", 0x897, 0x897},
    {"Mn", 0xece, 0xece},
    {"Mn", 0x10d69, 0x10d6d},
    {"Mn", 0x10efc, 0x10eff},
    {"Mn", 0x11241, 0x11241},
    {"Mn", 0x113bb, 0x113c0},
    {"Mn", 0x113ce, 0x113ce},
    {"Mn", 0x113d0, 0x113d0},
    {"Mn", 0x113d2, 0x113d2},
    {"Mn", 0x113e1, 0x113e2},
    {"Mn", 0x11f00, 0x11f01},
    {"Mn", 0x11f36, 0x11f3a},
    {"Mn", 0x11f40, 0x11f40},
    {"Mn", 0x11f42, 0x11f42},
    {"Mn", 0x11f5a, 0x11f5a},
    {"Mn", 0x13440, 0x13440},
    {"Mn", 0x13447, 0x13455},
    {"Mn", 0x1611e, 0x16129},
    {"Mn", 0x1612d, 0x1612f},
    {"Mn", 0x1e08f, 0x1e08f},
    {"Mn", 0x1e4ec, 0x1e4ef},
    {"Mn", 0x1e5ee, 0x1e5ef},
    {"Mc", 0xcf3, 0xcf3},
    {"Mc", 0x113b8, 0x113ba},
    {"Mc", 0x113c2, 0x113c2},
    {"Mc", 0x113c5, 0x113c5},
    {"Mc", 0x113c7, 0x113ca},
    {"Mc", 0x113cc, 0x113cd},
    {"Mc", 0x113cf, 0x113cf},
    {"Mc", 0x1171e, 0x1171e},
    {"Mc", 0x11f03, 0x11f03},
    {"Mc", 0x11f34, 0x11f35},
    {"Mc", 0x11f3e, 0x11f3f},
    {"Mc", 0x11f41, 0x11f41},
    {"Mc", 0x1612a, 0x1612c},
    {"Nd", 0x10d40, 0x10d49},
    {"Nd", 0x116d0, 0x116e3},
    {"Nd", 0x11bf0, 0x11bf9},
    {"Nd", 0x11f50, 0x11f59},
    {"Nd", 0x16130, 0x16139},
    {"Nd", 0x16d70, 0x16d79},
    {"Nd", 0x1ccf0, 0x1ccf9},
    {"Nd", 0x1e4f0, 0x1e4f9},
    {"Nd", 0x1e5f1, 0x1e5fa},
    {"No", 0x1d2c0, 0x1d2d3},
    {"Pd", 0x10d6e, 0x10d6e},
    {"Po", 0x1b4e, 0x1b4f},
    {"Po", 0x1b7f, 0x1b7f},
    {"Po", 0x113d4, 0x113d5},
    {"Po", 0x113d7, 0x113d8},
    {"Po", 0x11b00, 0x11b09},
    {"Po", 0x11be1, 0x11be1},
    {"Po", 0x11f43, 0x11f4f},
    {"Po", 0x16d6d, 0x16d6f},
    {"Po", 0x1e5ff, 0x1e5ff},
    {"Sm", 0x10d8e, 0x10d8f},
    {"So", 0x2427, 0x2429},
    {"So", 0x2ffc, 0x2fff},
    {"So", 0x31e4, 0x31e5},
    {"So", 0x31ef, 0x31ef},
    {"So", 0x1cc00, 0x1ccef},
    {"So", 0x1cd00, 0x1ceb3},
    {"So", 0x1f6dc, 0x1f6dc},
    {"So", 0x1f774, 0x1f776},
    {"So", 0x1f77b, 0x1f77f},
    {"So", 0x1f7d9, 0x1f7d9},
    {"So", 0x1f8b2, 0x1f8bb},
    {"So", 0x1f8c0, 0x1f8c1},
    {"So", 0x1fa75, 0x1fa77},
    {"So", 0x1fa87, 0x1fa89},
    {"So", 0x1fa8f, 0x1fa8f},
    {"So", 0x1faad, 0x1faaf},
    {"So", 0x1fabb, 0x1fabf},
    {"So", 0x1fac6, 0x1fac6},
    {"So", 0x1face, 0x1facf},
    {"So", 0x1fada, 0x1fadc},
    {"So", 0x1fadf, 0x1fadf},
    {"So", 0x1fae8, 0x1fae9},
    {"So", 0x1faf7, 0x1faf8},
    {"So", 0x1fbcb, 0x1fbef},
    {"Cf", 0x13439, 0x1343f},
    {"Han", 0x2b739, 0x2b739},
    {"Han", 0x2ebf0, 0x2ee5d},
    {"Han", 0x31350, 0x323af},
    {"Hiragana", 0x1b132, 0x1b132},
    {"Katakana", 0x1b155, 0x1b155},
    {"Cyrillic", 0x1c89, 0x1c8a},
    {"Cyrillic", 0x1e030, 0x1e06d},
    {"Cyrillic", 0x1e08f, 0x1e08f},
    {"Alphabetic", 0x363, 0x36f},
    {"Alphabetic", 0x897, 0x897},
    {"Alphabetic", 0xc04, 0xc04},
    {"Alphabetic", 0xcf3, 0xcf3},
    {"Alphabetic", 0xf82, 0xf83},
    {"Alphabetic", 0x1c89, 0x1c8a},
    {"Alphabetic", 0x1dd3, 0x1de6},
    {"Alphabetic", 0xa7cb, 0xa7cd},
    {"Alphabetic", 0xa7da, 0xa7dc},
    {"Alphabetic", 0x105c0, 0x105f3},
    {"Alphabetic", 0x10d4a, 0x10d65},
    {"Alphabetic", 0x10d69, 0x10d69},
    {"Alphabetic", 0x10d6f, 0x10d85},
    {"Alphabetic", 0x10ec2, 0x10ec4},
    {"Alphabetic", 0x10efc, 0x10efc},
    {"Alphabetic", 0x11080, 0x11081},
    {"Alphabetic", 0x1123f, 0x11241},
    {"Alphabetic", 0x11380, 0x11389},
    {"Alphabetic", 0x1138b, 0x1138b},
    {"Alphabetic", 0x1138e, 0x1138e},
    {"Alphabetic", 0x11390, 0x113b5},
    {"Alphabetic", 0x113b7, 0x113c0},
    {"Alphabetic", 0x113c2, 0x113c2},
    {"Alphabetic", 0x113c5, 0x113c5},
    {"Alphabetic", 0x113c7, 0x113ca},
    {"Alphabetic", 0x113cc, 0x113cd},
    {"Alphabetic", 0x113d1, 0x113d1},
    {"Alphabetic", 0x113d3, 0x113d3},
    {"Alphabetic", 0x11bc0, 0x11be0},
    {"Alphabetic", 0x11f00, 0x11f10},
    {"Alphabetic", 0x11f12, 0x11f3a},
    {"Alphabetic", 0x11f3e, 0x11f40},
    {"Alphabetic", 0x1342f, 0x1342f},
    {"Alphabetic", 0x13441, 0x13446},
    {"Alphabetic", 0x13460, 0x143fa},
    {"Alphabetic", 0x16100, 0x1612e},
    {"Alphabetic", 0x16d40, 0x16d6c},
    {"Alphabetic", 0x18cff, 0x18cff},
    {"Alphabetic", 0x1b132, 0x1b132},
    {"Alphabetic", 0x1b155, 0x1b155},
    {"Alphabetic", 0x1df25, 0x1df2a},
    {"Alphabetic", 0x1e030, 0x1e06d},
    {"Alphabetic", 0x1e08f, 0x1e08f},
    {"Alphabetic", 0x1e4d0, 0x1e4eb},
    {"Alphabetic", 0x1e5d0, 0x1e5ed},
    {"Alphabetic", 0x1e5f0, 0x1e5f0},
    {"Alphabetic", 0x2b739, 0x2b739},
    {"Alphabetic", 0x2ebf0, 0x2ee5d},
    {"Alphabetic", 0x31350, 0x323af},
    {"Uppercase", 0x1c89, 0x1c89},
    {"Uppercase", 0xa7cb, 0xa7cc},
    {"Uppercase", 0xa7da, 0xa7da},
    {"Uppercase", 0xa7dc, 0xa7dc},
    {"Uppercase", 0x10d50, 0x10d65},
    {"Lowercase", 0x10fc, 0x10fc},
    {"Lowercase", 0x1c8a, 0x1c8a},
    {"Lowercase", 0xa7cd, 0xa7cd},
    {"Lowercase", 0xa7db, 0xa7db},
    {"Lowercase", 0xa7f2, 0xa7f4},
    {"Lowercase", 0xab69, 0xab69},
    {"Lowercase", 0x10d70, 0x10d85},
    {"Lowercase", 0x1df25, 0x1df2a},
    {"Lowercase", 0x1e030, 0x1e06d},
    {"Latin", 0xa7cb, 0xa7cd},
    {"Latin", 0xa7da, 0xa7dc},
    {"Latin", 0x1df25, 0x1df2a},
    {"Emoji", 0x1f6dc, 0x1f6dc},
    {"Emoji", 0x1fa75, 0x1fa77},
    {"Emoji", 0x1fa87, 0x1fa89},
    {"Emoji", 0x1fa8f, 0x1fa8f},
    {"Emoji", 0x1faad, 0x1faaf},
    {"Emoji", 0x1fabb, 0x1fabf},
    {"Emoji", 0x1fac6, 0x1fac6},
    {"Emoji", 0x1face, 0x1facf},
    {"Emoji", 0x1fada, 0x1fadc},
    {"Emoji", 0x1fadf, 0x1fadf},
    {"Emoji", 0x1fae8, 0x1fae9},
    {"Emoji", 0x1faf7, 0x1faf8},
};

/* A general category's long name, without marks between words, and its short one. */
static const struct {
  const char *name, *category;
} categories[] = {
    {"letter", "L"},
    {"casedletter", "L&"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"privateuse", "Co"},
    {"connectorpunctuation", "Pc"},
};

/* Properties that are neither a category nor a script. */
static const char *const others[] = {"any",        "alphabetic", "uppercase",  "lowercase",
                                     "whitespace", "emoji",      "ideographic"};

/* Does \\p{name} include the row? A category of one letter has those of two. */
static bool includes(const char *name, const char *property) {
  if (strcmp(name, "L&") == 0) return strcmp(property, "Lu") == 0 || strcmp(property, "Ll") == 0;
  if (!name[1]) return property[0] == name[0] && strlen(property) == 2;
  return strcasecmp(name, property) == 0;
}

static treadle_status add_newer(const char *name, treadle_text_bytes *to) {
  treadle_status status = TREADLE_OK;
  for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) {
    char range[40];
    if (!includes(name, newer[i].property)) continue;
    snprintf(range, sizeof range, "\\x{%x}-\\x{%x}", (unsigned)newer[i].first, (unsigned)newer[i].last);
    TRY(treadle_text_bytes_add_text(to, range));
  }
out:
  return status;
}

treadle_status treadle_property_add(const char *name, size_t length, treadle_text_bytes *to) {
  treadle_status status;
  char plain[40] = "", own[40] = ""; /* without marks, in small letters; as it stands */
  size_t count = 0;
  if (length == 0 || length >= sizeof own)
    REFUSE("\\p{%.*s} is not known here", (int)(length < 40 ? length : 40), name);
  memcpy(own, name, length);
  for (size_t i = 0; i < length; i++) {
    if (!isalnum((unsigned char)name[i]) && !strchr("_ -&", name[i]))
      REFUSE("\\p{%s} is not known here", own);
    if (!strchr("_ -", name[i])) plain[count++] = (char)tolower((unsigned char)name[i]);
  }
  bool script = count > 2;
  for (size_t i = 0; i < sizeof categories / sizeof *categories; i++)
    if (strcmp(categories[i].name, plain) == 0) {
      strcpy(own, categories[i].category);
      script = false;
    }
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strcmp(others[i], plain) == 0) script = false;
  if (!script && strlen(own) <= 2) own[0] = (char)toupper((unsigned char)own[0]); /* \\p{lu} */
  TRY(treadle_text_bytes_add_text(to, script ? "\\p{sc:" : "\\p{"));
  TRY(treadle_text_bytes_add_text(to, own));
  TRY(treadle_text_bytes_add_text(to, "}"));
  TRY(add_newer(own, to));
out:
  return status;
}
