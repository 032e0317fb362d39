/* doc.h - a YAML or JSON file as a tree in which every value and every key has its line and column.
 *
 * The YAML reader also reads JSON: JSON is a subset of YAML, and JSON libraries do not report
 * positions. The reader refuses features that a configuration does not need: anchors, aliases and
 * tags (a short file could expand to a huge one), more than one document, keys that are not plain
 * strings, duplicate keys. */
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
    char *text;  /* DOC_TEXT: contains no NUL */
    bool quoted; /* DOC_TEXT: distinguishes "null" from null */
    char *key;   /* of an item of a map, else NULL */
    uint32_t key_line, key_col;
    struct doc *items; /* of a list or map, in file order */
    size_t n;
};

struct doc_rules {
    enum err_id syntax_error;   /* the error for a file that is not well-formed */
    const char *empty_file_fix; /* the fix for an empty file; NULL: an empty file is a mapping without keys */
};

/* Returns 0 with a tree, possibly with problems (such as a duplicate key), or -1 without a tree. */
int doc_parse(const char *data, size_t len, const struct doc_rules *rules, struct doc *ret, struct problems *pr);
void doc_done(struct doc *d);

const struct doc *doc_find(const struct doc *map, const char *key); /* NULL if there is no such key */
const char *doc_kind_name(const struct doc *d);                     /* "a single value", "a list", "a mapping" */
