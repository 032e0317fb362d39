/* A plain walk over the rows: there are some dozens, the number of segments rules out most of them without comparing a
 * character, and a tree would have to be kept right. Among rows that fit, the one that is literal where the other is
 * not wins, looked at from the left. */
#include "http/route.h"

#include "base/mem.h"
#include "base/str.h"
#include "base/suggest.h"

#include <assert.h>
#include <stdio.h>

#define PIECES_MAX 12

enum piece_kind { PIECE_LITERAL, PIECE_PARAM, PIECE_REST }; /* the smaller one wins */

struct piece {
    enum piece_kind kind;
    const char *text; /* in the pattern: the literal, or the parameter's name */
    size_t len;
};

struct row {
    const struct http_route *route;
    unsigned method;
    struct piece piece[PIECES_MAX];
    size_t npieces;
    bool rest;  /* the last piece is one */
    bool slash; /* the pattern ends in one */
};

struct router {
    struct row *rows;
    size_t nrows;
};

/* The last two are known in order to be refused as what they are: no row has them. */
static const char *const methods[] = { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY" };
#define METHOD_GET 1u
#define METHOD_HEAD 2u
#define METHOD_OPTIONS 64u

unsigned route_method(const char *method)
{
    for (unsigned i = 0; i < ARRAY_LEN(methods); i++)
        if (str_eq(methods[i], method))
            return 1u << i;
    return 0;
}

char *route_allow(unsigned bits, char buf[64])
{
    size_t n = 0;

    buf[0] = '\0';
    for (unsigned i = 0; i < ARRAY_LEN(methods); i++)
        if (bits & 1u << i)
            n += (size_t)snprintf(buf + n, 64 - n, "%s%s", n ? ", " : "", methods[i]);
    return buf;
}

static struct piece cut_piece(const char *text, size_t len)
{
    if (text[0] != '{')
        return (struct piece){ PIECE_LITERAL, text, len };
    assert(len > 2 && text[len - 1] == '}');
    if (text[len - 2] == '*')
        return (struct piece){ PIECE_REST, text + 1, len - 3 };
    return (struct piece){ PIECE_PARAM, text + 1, len - 2 };
}

static struct row cut_pattern(const struct http_route *route)
{
    struct row row = { .route = route, .method = route_method(route->method) };
    const char *p = route->pattern;
    size_t params = 0;

    assert(row.method && route->fn && *p == '/');
    while (*p == '/') {
        size_t len = strcspn(++p, "/");

        if (len == 0) {
            row.slash = true;
            break;
        }
        assert(row.npieces < PIECES_MAX && !row.rest);
        row.piece[row.npieces] = cut_piece(p, len);
        params += row.piece[row.npieces].kind != PIECE_LITERAL;
        row.rest = row.piece[row.npieces++].kind == PIECE_REST;
        p += len;
    }
    assert(*p == '\0' && params <= ROUTE_PARAMS_MAX);
    return row;
}

struct router *router_new(const struct http_route *const *tables)
{
    struct router *r = mem_new(struct router);

    for (const struct http_route *const *t = tables; *t; t++)
        for (const struct http_route *route = *t; route->pattern; route++) {
            r->rows = mem_resize(r->rows, r->nrows + 1, sizeof(struct row));
            r->rows[r->nrows++] = cut_pattern(route);
        }
    return r;
}

void router_free(struct router *r)
{
    if (!r)
        return;
    free(r->rows);
    free(r);
}

static bool same(const struct piece *piece, const char *seg)
{
    return strncmp(seg, piece->text, piece->len) == 0 && seg[piece->len] == '\0';
}

static bool fits(const struct row *row, const struct uri *u)
{
    size_t fixed = row->npieces - row->rest;

    if (row->rest ? u->nsegs < fixed : u->nsegs != fixed || u->slash != row->slash)
        return false;
    for (size_t i = 0; i < fixed; i++)
        if (row->piece[i].kind == PIECE_LITERAL && !same(&row->piece[i], u->seg[i]))
            return false;
    return true;
}

static bool better(const struct row *a, const struct row *b)
{
    for (size_t i = 0; i < a->npieces && i < b->npieces; i++)
        if (a->piece[i].kind != b->piece[i].kind)
            return a->piece[i].kind < b->piece[i].kind;
    return a->npieces < b->npieces; /* an empty rest */
}

static void take_params(const struct row *row, struct route_match *ret)
{
    for (size_t i = 0; i < row->npieces; i++) {
        const struct piece *p = &row->piece[i];

        if (p->kind == PIECE_LITERAL)
            continue;
        ret->param[ret->nparams].name = p->text;
        ret->param[ret->nparams].len = p->len;
        ret->param[ret->nparams].seg = i;
        ret->param[ret->nparams++].rest = p->kind == PIECE_REST;
    }
}

void router_find(const struct router *r, const char *method, const struct uri *u, struct route_match *ret)
{
    const struct row *best = NULL, *for_head = NULL;
    unsigned wanted = route_method(method);

    ret->route = NULL;
    ret->nparams = 0;
    ret->allow = 0;
    for (size_t i = 0; i < r->nrows; i++) {
        const struct row *row = &r->rows[i];

        if (!fits(row, u))
            continue;
        ret->allow |= row->method;
        if (row->method == wanted && (!best || better(row, best)))
            best = row;
        if (row->method == METHOD_GET && (!for_head || better(row, for_head)))
            for_head = row;
    }
    if (ret->allow)
        ret->allow |= METHOD_OPTIONS | (ret->allow & METHOD_GET ? METHOD_HEAD : 0);
    if (!best && wanted == METHOD_HEAD)
        best = for_head;
    if (!best)
        return;
    ret->route = best->route;
    take_params(best, ret);
}

/* How far the literals of a row are from what was typed; a slash too many or too few counts one. */
static unsigned distance(const struct row *row, const struct uri *u, size_t from)
{
    unsigned sum = row->slash != u->slash;

    for (size_t i = from; i < row->npieces && sum < 4; i++) {
        char word[SUGGEST_MAX + 1];

        if (row->piece[i].kind != PIECE_LITERAL)
            continue;
        if (!str_copy(word, sizeof(word), u->seg[i - from]) || row->piece[i].len > SUGGEST_MAX)
            return 4;
        char *literal = str_dup_n(row->piece[i].text, row->piece[i].len);
        sum += suggest_distance(word, literal);
        free(literal);
    }
    return sum;
}

const char *router_near(const struct router *r, const struct uri *u)
{
    const char *best = NULL;
    unsigned least = 4;

    for (size_t i = 0; i < r->nrows; i++) {
        const struct row *row = &r->rows[i];

        for (size_t from = 0; from <= 1; from++) { /* 1: the version in front was forgotten */
            if (row->rest || row->npieces != u->nsegs + from)
                continue;
            unsigned d = distance(row, u, from) + (unsigned)from;
            if (d < least) {
                least = d;
                best = row->route->pattern;
            }
        }
    }
    return best;
}

void route_rest(const struct uri *u, size_t from, char *out)
{
    for (size_t i = from; i < u->nsegs; i++) {
        size_t n = strlen(u->seg[i]);

        memcpy(out, u->seg[i], n);
        out += n;
        if (i + 1 < u->nsegs || u->slash)
            *out++ = '/';
    }
    *out = '\0';
}
