/* Scripts: which are kept, and which are found.
 *
 * 1. A tenant has one script for each digest; running the same code again counts one more use.
 * 2. The quota of a tenant holds after every call that keeps a script. The script of the call is
 *    not evicted by it; one that exceeds the quota alone is refused before anything is evicted.
 * 3. A search reads the scripts of its owner in pages and keeps only the best ones, so it needs
 *    little memory. After each megabyte of code it lets other calls run. A search of all tenants is
 *    refused when it would have to read too much. */
#include "store/rules/rules.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#include <string.h>

#define SCAN_PAGE 4u           /* scripts with code in memory at the same time */
#define SCAN_HEADS 500u        /* without code */
#define STEP_BYTES (1 * MIB)   /* code that one step reads, or a page more */
#define STEP_ROWS 2000u        /* rows of one step */
#define SCAN_BYTES (128 * MIB) /* code that one search reads */
#define WORDS_MAX 16u
#define MATCHES_MAX 0xffffu /* 4 digits of a cursor */

static struct row_query script_query(const char *owner, const uint8_t *digest, const struct row_table *t)
{
    return (struct row_query){ .table = t,
                               .where = { { "owner", ROW_OWNED_BY, owner, 0 }, { "digest", ROW_IS, digest, 0 } } };
}

static const struct store_script *script_row(const struct row_list *l, size_t i)
{
    return (const struct store_script *)(const void *)l->rows + i;
}

/* --- keep --- */

static int script_rules_evict(struct store_db *db, struct store_request *c, const struct store_script *row,
                              struct err *err)
{
    uint64_t count, bytes, size, n = 1;

    if (db->ops->sum_scripts(db, row->owner, &count, &bytes, err) < 0)
        return -1;
    while (n && (count > c->script_quota.count || bytes > c->script_quota.bytes)) {
        if (db->ops->remove_unused_script(db, row->owner, row->id, &size, &n, err) < 0)
            return -1;
        count -= n;
        bytes -= size;
        c->total += n;
    }
    return 0;
}

static int script_rules_count_use(struct store_db *db, struct store_request *c, const struct store_script *known,
                                  struct err *err)
{
    const struct store_script *row = c->row;
    const struct row_query q = { .table = &row_script_head, .where = { { "id", ROW_IS, known->id, 0 } } };
    struct store_script use = { .uses = known->uses + 1,
                                .last_used_ms = known->last_used_ms > row->last_used_ms ? known->last_used_ms
                                                                                        : row->last_used_ms };
    uint64_t n = 0;

    memcpy(use.last_execution, row->last_execution, sizeof(use.last_execution));
    return db->ops->update(db, &q, &use, STORE_SCRIPT_SET_USE, &c->rows, &n, err);
}

static int script_rules_insert(struct store_db *db, struct store_request *c, struct err *err)
{
    struct store_script *row = c->row;

    row->uses = 1;
    if (db->ops->insert(db, &row_script, row, NULL, err) < 0)
        return -1;
    row_copy(&row_script_head, row_list_add(&row_script_head, &c->rows), row);
    ((struct store_script *)(void *)c->rows.rows)->code = NULL;
    c->row_created = true;
    return 0;
}

int script_rules_keep(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct store_script *row = c->row;
    const struct row_query q = script_query(row->owner, row->digest, &row_script_head);
    struct row_list known = { 0 };
    int rc;

    if (!c->script_quota.count || row->size_bytes > c->script_quota.bytes)
        return err_set(err, ERR_LIMIT, "script: %" PRIu64 " bytes are more than this tenant may keep", row->size_bytes);
    if (db->ops->select(db, &q, &known, err) < 0)
        return -1;
    rc = known.n ? script_rules_count_use(db, c, script_row(&known, 0), err) : script_rules_insert(db, c, err);
    row_list_done(&row_script_head, &known);
    return rc < 0 ? -1 : script_rules_evict(db, c, script_row(&c->rows, 0), err);
}

/* With any owner, several tenants may have the same script: all of them have the same code. */
int script_rules_find(struct store_db *db, struct store_request *c, struct err *err)
{
    const struct row_query q = script_query(c->owner, c->hash, &row_script);

    if (db->ops->select(db, &q, &c->rows, err) < 0)
        return -1;
    while (c->rows.n > 1)
        row_list_drop(&row_script, &c->rows);
    return c->rows.n ? 0 : err_set(err, ERR_MISSING, "there is no script with this digest");
}

/* --- search --- */

struct script_hit {
    struct script_cursor at;
    struct store_script row; /* without code */
};

struct script_search {
    struct store_request *call;
    char *text; /* the words, in lower case, each with a NUL */
    const char *words[WORDS_MAX];
    size_t nwords;
    uint64_t bytes, total;
    bool is_over;            /* it was answered, or failed */
    struct row_page page;    /* the next one */
    struct script_hit *hits; /* the best ones so far, and up to as many new ones */
    size_t n, best;
};

static char *script_lower_text(const char *text)
{
    char *lower = str_dup(text ? text : "");

    for (char *p = lower; *p; p++)
        *p = (char)(*p >= 'A' && *p <= 'Z' ? *p | 0x20 : *p);
    return lower;
}

static int script_search_split(struct script_search *s, struct err *err)
{
    char *rest = NULL;

    s->text = script_lower_text(s->call->text);
    for (char *word = strtok_r(s->text, " \t\r\n", &rest); word; word = strtok_r(NULL, " \t\r\n", &rest)) {
        if (s->nwords == WORDS_MAX)
            return err_set(err, ERR_INVALID, "search: more than %u words; use fewer", WORDS_MAX);
        s->words[s->nwords++] = word;
    }
    return 0;
}

static uint64_t script_count_word(const char *text, const char *word)
{
    uint64_t n = 0;

    for (const char *at = text; (at = strstr(at, word)) && n < MATCHES_MAX; at += strlen(word))
        n++;
    return n;
}

/* The number of occurrences of all words. False: a word is missing. */
static bool script_search_matches(const struct script_search *s, const struct store_script *row, uint64_t *ret)
{
    bool found = true;

    *ret = 0;
    if (s->nwords == 0)
        return true;
    auto_free char *description = script_lower_text(row->description), *code = script_lower_text(row->code);
    for (size_t i = 0; i < s->nwords && found; i++) {
        uint64_t n = script_count_word(description, s->words[i]) + script_count_word(code, s->words[i]);

        found = n > 0;
        *ret = min_u64(*ret + n, MATCHES_MAX);
    }
    return found;
}

/* Below 0: a comes before b. */
static int script_cursor_compare(const struct script_cursor *a, const struct script_cursor *b)
{
    if (a->matches != b->matches)
        return a->matches > b->matches ? -1 : 1;
    if (a->last_used_ms != b->last_used_ms)
        return a->last_used_ms > b->last_used_ms ? -1 : 1;
    return strcmp(a->id, b->id);
}

static int script_hit_compare(const void *a, const void *b)
{
    return script_cursor_compare(&((const struct script_hit *)a)->at, &((const struct script_hit *)b)->at);
}

static void script_search_drop_worst(struct script_search *s)
{
    qsort(s->hits, s->n, sizeof(*s->hits), script_hit_compare);
    while (s->n > s->best)
        row_done(&row_script_head, &s->hits[--s->n].row);
}

static void script_search_add(struct script_search *s, const struct script_cursor *at, const struct store_script *row)
{
    if (s->n == 2 * s->best)
        script_search_drop_worst(s);
    s->hits[s->n].at = *at;
    row_copy(&row_script_head, &s->hits[s->n].row, row);
    s->hits[s->n++].row.code = NULL;
}

static void script_search_row(struct script_search *s, const struct store_script *row)
{
    const struct script_cursor *from = &s->call->script_cursor;
    struct script_cursor at = { .last_used_ms = row->last_used_ms };

    if ((s->call->id[0] && !str_eq(row->language, s->call->id)) || !script_search_matches(s, row, &at.matches))
        return;
    s->total++;
    memcpy(at.id, row->id, sizeof(at.id));
    if (!from->id[0] || script_cursor_compare(&at, from) > 0)
        script_search_add(s, &at, row);
}

static int script_search_page(struct script_search *s, const struct row_list *rows, struct err *err)
{
    for (size_t i = 0; i < rows->n; i++) {
        s->bytes += s->nwords ? script_row(rows, i)->size_bytes : 0;
        script_search_row(s, script_row(rows, i));
    }
    return s->bytes <= SCAN_BYTES ? 0
                                  : err_set(err, ERR_LIMIT,
                                            "search: the scripts of all tenants together are too large for one search;"
                                            " search with a key of one tenant");
}

/* Reads one page, and sets the next one. *ret_more: there is one. */
static int script_search_read(struct store_db *db, struct script_search *s, uint64_t *ret_rows, bool *ret_more,
                              struct err *err)
{
    struct row_list rows = { 0 };
    int rc = db->ops->list(db, &s->page, &rows, err);

    *ret_more = rows.n > s->page.limit;
    if (*ret_more)
        row_list_drop(s->page.table, &rows);
    *ret_rows += rows.n;
    if (rc == 0)
        rc = script_search_page(s, &rows, err);
    if (*ret_more) {
        const struct store_script *last = script_row(&rows, rows.n - 1);

        s->page.has_cursor = true;
        s->page.cursor.created_ms = last->created_ms;
        (void)str_copy(s->page.cursor.id, sizeof(s->page.cursor.id), last->id);
    }
    row_list_done(s->page.table, &rows);
    return rc;
}

/* *ret_more: the search needs another step. */
static int script_search_step(struct store_db *db, struct script_search *s, bool *ret_more, struct err *err)
{
    uint64_t bytes = s->bytes, rows = 0;

    do {
        if (script_search_read(db, s, &rows, ret_more, err) < 0)
            return -1;
    } while (*ret_more && s->bytes - bytes < STEP_BYTES && rows < STEP_ROWS);
    return 0;
}

static void script_search_answer(struct script_search *s)
{
    struct store_request *c = s->call;

    script_search_drop_worst(s);
    c->total = s->total;
    c->more = s->n > c->page.limit;
    if (c->more)
        row_done(&row_script_head, &s->hits[--s->n].row);
    if (c->more)
        c->script_next = s->hits[s->n - 1].at;
    for (size_t i = 0; i < s->n; i++)
        memcpy(row_list_add(&row_script_head, &c->rows), &s->hits[i].row, sizeof(s->hits[i].row));
    s->n = 0;
}

void script_search_free(struct script_search *s)
{
    if (!s)
        return;
    while (s->n > 0)
        row_done(&row_script_head, &s->hits[--s->n].row);
    free(s->hits);
    free(s->text);
    free(s);
}

static int script_search_begin(struct store_request *c, struct err *err)
{
    struct script_search *s = mem_new(struct script_search);

    c->script_search = s;
    s->call = c;
    s->best = (size_t)c->page.limit + 1;
    s->hits = mem_alloc(2 * s->best * sizeof(*s->hits));
    if (script_search_split(s, err) < 0)
        return -1;
    s->page.table = s->nwords ? &row_script : &row_script_head;
    s->page.limit = s->nwords ? SCAN_PAGE : SCAN_HEADS;
    memcpy(s->page.owner, c->owner, sizeof(s->page.owner));
    return 0;
}

int script_rules_search(struct store_db *db, struct store_request *c, struct err *err)
{
    bool more = false;

    if (c->script_search && c->script_search->is_over) /* its transaction was lost: begin again */
        script_search_free(take_ptr(&c->script_search));
    int rc = c->script_search ? 0 : script_search_begin(c, err);
    if (rc == 0)
        rc = script_search_step(db, c->script_search, &more, err);
    c->is_unfinished = rc == 0 && more;
    c->script_search->is_over = !c->is_unfinished;
    if (rc == 0 && !more)
        script_search_answer(c->script_search);
    return rc;
}
