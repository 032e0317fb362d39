/* doc.h - a YAML or JSON file as a tree in which every value and every key knows its place.
 *
 * JSON is read by the same reader: it is a part of YAML, and libraries for JSON do not say where a value stood. What
 * configuration has no use for is refused: anchors, aliases and tags (a short file could stand for a huge one), more
 * than one document, keys that are not plain texts, keys said twice. */
#pragma once

#include "core/base/base.h"
#include "core/doc/problems.h"

#define DOC_BYTES_MAX (256 * KIB)
#define DOC_DEPTH_MAX 12
#define DOC_NODES_MAX 20000

enum doc_kind { DOC_TEXT, DOC_LIST, DOC_MAP };

struct doc {
    enum doc_kind kind;
    uint32_t line, col;
    char *text;  /* DOC_TEXT: never with a NUL inside */
    bool quoted; /* DOC_TEXT: so that "null" and null can be told apart */
    char *key;   /* when it is in a map */
    uint32_t key_line, key_col;
    struct doc *items; /* of a list or map, in the order of the file */
    size_t n;
};

struct doc_rules {
    enum err_id syntax_error;   /* the error of a file that is not well-formed */
    const char *empty_file_fix; /* how to begin an empty file; NULL: it may be empty, and is a mapping without keys */
};

/* Returns 0 with a tree, which may still have come with problems (a key said twice), or -1 when there is none. */
int doc_parse(const char *data, size_t len, const struct doc_rules *rules, struct doc *ret, struct problems *pr);
void doc_done(struct doc *d);

const struct doc *doc_find(const struct doc *map, const char *key); /* NULL when it is not there */
const char *doc_kind_name(const struct doc *d);                     /* "a text", "a list", "a mapping" */
