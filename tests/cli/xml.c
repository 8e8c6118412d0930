/* A small look at XML: tags, quotes and entities. */
#include "cli/xml.h"

#include "test.h"

#include <ctype.h>

void xml_check(const char *at) {
  char open[16][16];
  int depth = 0, elements = 0;
  while ((at = strchr(at, '<'))) {
    char name[16];
    size_t length = 0;
    bool ends = *++at == '/';
    at += ends;
    while (isalnum((unsigned char)at[length]) && length < sizeof name - 1) length++;
    snprintf(name, sizeof name, "%.*s", (int)length, at);
    assert_true(length > 0);
    const char *close = at;
    for (bool quoted = false; quoted || *close != '>'; close++) {
      if (!*close || *close == '<') fail_msg("<%s> does not end", name);
      quoted ^= *close == '"';
    }
    if (ends) {
      assert_true(depth > 0);
      assert_string_equal(open[--depth], name);
    } else if (close[-1] != '/') {
      assert_true(depth < 16);
      memcpy(open[depth++], name, sizeof name);
    }
    elements++;
    at = close;
    for (const char *amp = at; (amp = strpbrk(amp, "&<")) && *amp == '&'; amp++)
      if (strncmp(amp, "&lt;", 4) && strncmp(amp, "&gt;", 4) && strncmp(amp, "&amp;", 5))
        fail_msg("a bare & in '%.30s'", amp);
  }
  assert_int_equal(depth, 0);
  assert_true(elements > 20);
}
