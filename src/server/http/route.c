/* A linear search over the rows: there are a few dozen, the number of segments excludes most of
 * them without comparing a character, and a tree would need maintenance. Among matching rows the
 * first difference from the left decides: a literal segment takes precedence. */
#include "server/http/route.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/suggest.h"

#include <assert.h>
#include <stdio.h>

#define ROUTE_SEGMENTS_MAX 12

enum route_segment_kind { ROUTE_LITERAL, ROUTE_PARAM, ROUTE_REST }; /* the smaller value takes precedence */

struct route_segment {
    enum route_segment_kind kind;
    const char *text; /* points into the pattern: the literal, or the parameter's name */
    size_t len;
};

struct route_entry {
    const struct http_route *route;
    void *ctx;
    unsigned method;
    struct route_segment segment[ROUTE_SEGMENTS_MAX];
    size_t nsegments;
    bool has_rest;       /* the last segment is {name*} */
    bool trailing_slash; /* the pattern ends in a slash */
};

struct router {
    struct route_entry *entries;
    size_t nentries;
};

/* The last two are known only to be refused by name: no row has them. */
static const char *const route_method_names[] = { "GET",    "HEAD",    "POST",  "PUT",  "PATCH",
                                                  "DELETE", "OPTIONS", "TRACE", "QUERY" };
#define METHOD_GET 1u
#define METHOD_HEAD 2u
#define METHOD_OPTIONS 64u

unsigned route_method_bit(const char *method)
{
    for (unsigned i = 0; i < ARRAY_LEN(route_method_names); i++)
        if (str_eq(route_method_names[i], method))
            return 1u << i;
    return 0;
}

char *route_allow_text(unsigned bits, char buf[64])
{
    size_t n = 0;

    buf[0] = '\0';
    for (unsigned i = 0; i < ARRAY_LEN(route_method_names); i++)
        if (bits & 1u << i)
            n += (size_t)snprintf(buf + n, 64 - n, "%s%s", n ? ", " : "", route_method_names[i]);
    return buf;
}

static struct route_segment route_parse_segment(const char *text, size_t len)
{
    if (text[0] != '{')
        return (struct route_segment){ ROUTE_LITERAL, text, len };
    assert(len > 2 && text[len - 1] == '}');
    if (text[len - 2] == '*')
        return (struct route_segment){ ROUTE_REST, text + 1, len - 3 };
    return (struct route_segment){ ROUTE_PARAM, text + 1, len - 2 };
}

static struct route_entry route_parse_pattern(const struct http_route *route)
{
    struct route_entry row = { .route = route, .method = route_method_bit(route->method) };
    const char *p = route->pattern;
    size_t params = 0;

    assert(row.method && route->fn && *p == '/');
    while (*p == '/') {
        size_t len = strcspn(++p, "/");

        if (len == 0) {
            row.trailing_slash = true;
            break;
        }
        assert(row.nsegments < ROUTE_SEGMENTS_MAX && !row.has_rest);
        row.segment[row.nsegments] = route_parse_segment(p, len);
        params += row.segment[row.nsegments].kind != ROUTE_LITERAL;
        row.has_rest = row.segment[row.nsegments++].kind == ROUTE_REST;
        p += len;
    }
    assert(*p == '\0' && params <= ROUTE_PARAMS_MAX);
    return row;
}

static void router_add_table(struct router *r, const struct http_route *table, void *ctx)
{
    for (const struct http_route *route = table; route->pattern; route++) {
        r->entries = mem_resize(r->entries, r->nentries + 1, sizeof(struct route_entry));
        r->entries[r->nentries] = route_parse_pattern(route);
        r->entries[r->nentries++].ctx = ctx;
    }
}

struct router *router_new(const struct http_tables *tables)
{
    struct router *r = mem_new(struct router);

    for (; tables->tables; tables++)
        for (const struct http_route *const *t = tables->tables; *t; t++)
            router_add_table(r, *t, tables->ctx);
    return r;
}

void router_free(struct router *r)
{
    if (!r)
        return;
    free(r->entries);
    free(r);
}

static bool route_segment_equals(const struct route_segment *piece, const char *seg)
{
    return strncmp(seg, piece->text, piece->len) == 0 && seg[piece->len] == '\0';
}

static bool route_entry_matches(const struct route_entry *row, const struct uri *u)
{
    size_t fixed = row->nsegments - row->has_rest;

    if (row->has_rest ? u->nsegs < fixed : u->nsegs != fixed || u->trailing_slash != row->trailing_slash)
        return false;
    for (size_t i = 0; i < fixed; i++)
        if (row->segment[i].kind == ROUTE_LITERAL && !route_segment_equals(&row->segment[i], u->seg[i]))
            return false;
    return true;
}

static bool route_entry_is_more_specific(const struct route_entry *a, const struct route_entry *b)
{
    for (size_t i = 0; i < a->nsegments && i < b->nsegments; i++)
        if (a->segment[i].kind != b->segment[i].kind)
            return a->segment[i].kind < b->segment[i].kind;
    return a->nsegments < b->nsegments; /* the rest of the other is empty */
}

static void route_entry_copy_params(const struct route_entry *row, struct route_match *ret)
{
    for (size_t i = 0; i < row->nsegments; i++) {
        const struct route_segment *p = &row->segment[i];

        if (p->kind == ROUTE_LITERAL)
            continue;
        ret->param[ret->nparams].name = p->text;
        ret->param[ret->nparams].len = p->len;
        ret->param[ret->nparams].seg = i;
        ret->param[ret->nparams++].rest = p->kind == ROUTE_REST;
    }
}

void router_find(const struct router *r, const char *method, const struct uri *u, struct route_match *ret)
{
    const struct route_entry *best = NULL, *for_head = NULL;
    unsigned wanted = route_method_bit(method);

    ret->route = NULL;
    ret->nparams = 0;
    ret->allowed_methods = 0;
    for (size_t i = 0; i < r->nentries; i++) {
        const struct route_entry *row = &r->entries[i];

        if (!route_entry_matches(row, u))
            continue;
        ret->allowed_methods |= row->method;
        if (row->method == wanted && (!best || route_entry_is_more_specific(row, best)))
            best = row;
        if (row->method == METHOD_GET && (!for_head || route_entry_is_more_specific(row, for_head)))
            for_head = row;
    }
    if (ret->allowed_methods)
        ret->allowed_methods |= METHOD_OPTIONS | (ret->allowed_methods & METHOD_GET ? METHOD_HEAD : 0);
    if (!best && wanted == METHOD_HEAD)
        best = for_head;
    if (!best)
        return;
    ret->route = best->route;
    ret->ctx = best->ctx;
    route_entry_copy_params(best, ret);
}

/* Edit distance between the literals of a row and the request; a missing or additional slash counts
 * one. */
static unsigned route_entry_distance(const struct route_entry *row, const struct uri *u, size_t from)
{
    unsigned sum = row->trailing_slash != u->trailing_slash;

    for (size_t i = from; i < row->nsegments && sum < 4; i++) {
        char word[SUGGEST_MAX + 1];

        if (row->segment[i].kind != ROUTE_LITERAL)
            continue;
        if (!str_copy(word, sizeof(word), u->seg[i - from]) || row->segment[i].len > SUGGEST_MAX)
            return 4;
        char *literal = str_dup_n(row->segment[i].text, row->segment[i].len);
        unsigned d = suggest_distance(word, literal);
        free(literal);
        if (d >= strlen(word)) /* no letter in common: another name, not a slip */
            return 4;
        sum += d;
    }
    return sum;
}

const char *router_nearest_pattern(const struct router *r, const struct uri *u)
{
    const char *best = NULL;
    unsigned least = 4;

    for (size_t i = 0; i < r->nentries; i++) {
        const struct route_entry *row = &r->entries[i];

        if (row->method != METHOD_GET) /* a suggestion must not change or delete anything when it is tried */
            continue;
        for (size_t from = 0; from <= 1; from++) { /* 1: the version prefix is missing */
            if (row->has_rest || row->nsegments != u->nsegs + from)
                continue;
            unsigned d = route_entry_distance(row, u, from) + (unsigned)from;
            if (d < least) {
                least = d;
                best = row->route->pattern;
            }
        }
    }
    return best;
}

void route_join_rest(const struct uri *u, size_t from, char *out)
{
    for (size_t i = from; i < u->nsegs; i++) {
        size_t n = strlen(u->seg[i]);

        memcpy(out, u->seg[i], n);
        out += n;
        if (i + 1 < u->nsegs || u->trailing_slash)
            *out++ = '/';
    }
    *out = '\0';
}
