#include "core/doc/doc.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <assert.h>
#include <yaml.h>

struct doc_builder {
    yaml_parser_t parser;
    const struct doc_rules *rules;
    struct problems *problems;
    size_t nodes;
};

static uint32_t doc_mark_line(yaml_mark_t m)
{
    return (uint32_t)(m.line + 1);
}

static uint32_t doc_mark_column(yaml_mark_t m)
{
    return (uint32_t)(m.column + 1);
}

static int doc_refuse(struct doc_builder *b, yaml_mark_t at, const char *what, const char *fix)
{
    problems_add(b->problems, b->rules->syntax_error, doc_mark_line(at), doc_mark_column(at), fix, "%s", what);
    return -1;
}

static int doc_next_event(struct doc_builder *b, yaml_event_t *ret)
{
    if (yaml_parser_parse(&b->parser, ret))
        return 0;
    const char *what = b->parser.problem ? b->parser.problem : "the file cannot be read";
    bool reading = b->parser.error == YAML_READER_ERROR; /* a reader error has an offset but no line */
    problems_add(b->problems, b->rules->syntax_error, reading ? 1 : doc_mark_line(b->parser.problem_mark),
                 reading ? 1 : doc_mark_column(b->parser.problem_mark), NULL, "%.120s%s%.80s", what,
                 b->parser.context ? ", " : "", b->parser.context ? b->parser.context : "");
    return -1;
}

static int doc_build_value(struct doc_builder *b, yaml_event_t *e, unsigned depth, struct doc *ret);

static int doc_check_plain(struct doc_builder *b, const yaml_event_t *e)
{
    bool named = false;

    if (++b->nodes > DOC_NODES_MAX)
        return doc_refuse(b, e->start_mark, "the file has too many values", "Shorten the file.");
    switch (e->type) {
    case YAML_ALIAS_EVENT:
        named = true;
        break;
    case YAML_SCALAR_EVENT:
        named = e->data.scalar.anchor || e->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        named = e->data.sequence_start.anchor || e->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        named = e->data.mapping_start.anchor || e->data.mapping_start.tag;
        break;
    default:
        break;
    }
    if (named)
        return doc_refuse(b, e->start_mark, "anchors, aliases and tags are not supported", "Write the value out.");
    return 0;
}

static int doc_take_text(struct doc_builder *b, const yaml_event_t *e, char **ret)
{
    const char *s = (const char *)e->data.scalar.value;
    size_t len = e->data.scalar.length;

    if (memchr(s, '\0', len))
        return doc_refuse(b, e->start_mark, "a text contains a NUL byte", "Remove it.");
    *ret = str_dup_n(s, len);
    return 0;
}

static struct doc *doc_append_item(struct doc *d)
{
    if ((d->n & (d->n - 1)) == 0) /* the array doubles at powers of two */
        d->items = mem_resize(d->items, d->n ? 2 * d->n : 1, sizeof(*d->items));
    d->items[d->n] = (struct doc){ 0 };
    return &d->items[d->n++];
}

static int doc_build_list(struct doc_builder *b, unsigned depth, struct doc *d)
{
    for (;;) {
        yaml_event_t e;

        if (doc_next_event(b, &e) < 0)
            return -1;
        if (e.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&e);
            return 0;
        }
        if (doc_build_value(b, &e, depth + 1, doc_append_item(d)) < 0)
            return -1;
    }
}

static int doc_build_key(struct doc_builder *b, yaml_event_t *e, struct doc *d, struct doc **ret)
{
    char *key = NULL;
    int rc = -1;

    if (e->type != YAML_SCALAR_EVENT)
        doc_refuse(b, e->start_mark, "a key is not a plain text", NULL);
    else if (doc_check_plain(b, e) == 0)
        rc = doc_take_text(b, e, &key);
    if (rc == 0) {
        const struct doc *twice = doc_find(d, key);

        if (twice)
            problems_add(b->problems, b->rules->syntax_error, doc_mark_line(e->start_mark),
                         doc_mark_column(e->start_mark), "Keep one of the two.",
                         "'%.60s' is a duplicate key, already given on line %" PRIu32, key, twice->key_line);
        *ret = doc_append_item(d);
        (*ret)->key = key;
        (*ret)->key_line = doc_mark_line(e->start_mark);
        (*ret)->key_col = doc_mark_column(e->start_mark);
    }
    yaml_event_delete(e);
    return rc == 0 ? 0 : -1;
}

static int doc_build_map(struct doc_builder *b, unsigned depth, struct doc *d)
{
    for (;;) {
        yaml_event_t e;
        struct doc *item = NULL;

        if (doc_next_event(b, &e) < 0)
            return -1;
        if (e.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&e);
            return 0;
        }
        if (doc_build_key(b, &e, d, &item) < 0)
            return -1;
        assert(item);
        if (doc_next_event(b, &e) < 0 || doc_build_value(b, &e, depth + 1, item) < 0)
            return -1;
    }
}

/* Consumes the event. */
static int doc_build_value(struct doc_builder *b, yaml_event_t *e, unsigned depth, struct doc *ret)
{
    yaml_event_type_t type = e->type;
    int rc = doc_check_plain(b, e);

    ret->line = doc_mark_line(e->start_mark);
    ret->col = doc_mark_column(e->start_mark);
    if (rc == 0 && depth > DOC_DEPTH_MAX)
        rc = doc_refuse(b, e->start_mark, "the file is nested too deeply", NULL);
    if (rc == 0 && type == YAML_SCALAR_EVENT) {
        ret->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        rc = doc_take_text(b, e, &ret->text);
    }
    yaml_event_delete(e);
    if (rc < 0 || type == YAML_SCALAR_EVENT)
        return rc;
    ret->kind = type == YAML_SEQUENCE_START_EVENT ? DOC_LIST : DOC_MAP;
    return type == YAML_SEQUENCE_START_EVENT ? doc_build_list(b, depth, ret) : doc_build_map(b, depth, ret);
}

/* Stream start, document start, one value, document end, stream end. */
static int doc_build_document(struct doc_builder *b, struct doc *ret)
{
    yaml_event_t e;

    if (doc_next_event(b, &e) < 0)
        return -1;
    yaml_event_delete(&e);
    if (doc_next_event(b, &e) < 0)
        return -1;
    bool empty = e.type == YAML_STREAM_END_EVENT;
    yaml_event_delete(&e);
    if (empty && !b->rules->empty_file_fix) {
        *ret = (struct doc){ .kind = DOC_MAP, .line = 1, .col = 1 };
        return 0;
    }
    if (empty) {
        problems_add(b->problems, b->rules->syntax_error, 1, 1, b->rules->empty_file_fix, "the file is empty");
        return -1;
    }
    if (doc_next_event(b, &e) < 0 || doc_build_value(b, &e, 0, ret) < 0 || doc_next_event(b, &e) < 0)
        return -1;
    yaml_event_delete(&e);
    if (doc_next_event(b, &e) < 0)
        return -1;
    yaml_mark_t at = e.start_mark;
    bool more = e.type != YAML_STREAM_END_EVENT;
    yaml_event_delete(&e);
    return more ? doc_refuse(b, at, "the file contains more than one document", "Keep one document, without '---'.")
                : 0;
}

int doc_parse(const char *data, size_t len, const struct doc_rules *rules, struct doc *ret, struct problems *pr)
{
    struct doc_builder b = { .rules = rules, .problems = pr };
    struct doc d = { 0 };

    if (len > DOC_BYTES_MAX) {
        problems_add(pr, rules->syntax_error, 0, 0, "Shorten the file.", "the file is larger than 256K");
        return -1;
    }
    if (!yaml_parser_initialize(&b.parser)) {
        problems_add(pr, ERR_BUG, 0, 0, NULL, "out of memory for the parser");
        return -1;
    }
    yaml_parser_set_input_string(&b.parser, (const unsigned char *)data, len);
    yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
    int rc = doc_build_document(&b, &d);
    yaml_parser_delete(&b.parser);
    if (rc < 0)
        doc_done(&d);
    else
        *ret = d;
    return rc;
}

void doc_done(struct doc *d)
{
    for (size_t i = 0; i < d->n; i++)
        doc_done(&d->items[i]);
    free(d->items);
    free(d->text);
    free(d->key);
    *d = (struct doc){ 0 };
}

const struct doc *doc_find(const struct doc *map, const char *key)
{
    for (size_t i = 0; i < map->n; i++)
        if (map->items[i].key && str_eq(map->items[i].key, key))
            return &map->items[i];
    return NULL;
}

const char *doc_kind_name(const struct doc *d)
{
    return d->kind == DOC_TEXT ? "a single value" : d->kind == DOC_LIST ? "a list" : "a mapping";
}
