/* A small look at XML. */
#ifndef TESTS_CLI_XML_H
#define TESTS_CLI_XML_H

/* Fails the test unless tags are balanced, attributes are in quotes, and & begins an entity; at least 20 tags. */
void xml_check(const char *text);

#endif
