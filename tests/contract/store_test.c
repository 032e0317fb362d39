/* The contract of every store, whatever its database. The program runs all tests once for each
 * backend of stores.c; a new backend is added only there. */
#include "store_host.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/outcome.h"
#include "store/stores.h"

#include <stdio.h>
#include <sys/wait.h>

/* --- rows are read back as they were written --- */

/* Gives every column a value of its own; strings are on the heap. */
static void fill_row(const struct row_table *t, char *row, unsigned seed)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct row_column *c = &t->columns[i];
        unsigned v = seed * 100 + (unsigned)i + 1;

        switch (c->type) {
        case ROW_FIXED:
            if (!*ROW_AT(char, row, c))
                snprintf(ROW_AT(char, row, c), c->cap, "fixed%u", v);
            break;
        case ROW_TEXT:
            if (str_eq(c->name, "outcome")) { /* the schema accepts only its names */
                *ROW_AT(char *, row, c) = str_dup(outcome_name((enum outcome)(seed % OUTCOME_COUNT)));
                break;
            }
            *ROW_AT(char *, row, c) = str_printf("{\"%s\": \"v%u \xc3\xa4\"}", c->name, v);
            break;
        case ROW_U64:
            *ROW_AT(uint64_t, row, c) = v * 1000000000ull;
            break;
        case ROW_I32_OPT:
            *(bool *)(row + c->flag_at) = true;
            *ROW_AT(int32_t, row, c) = -(int32_t)v;
            break;
        case ROW_I32:
            *ROW_AT(int32_t, row, c) = (int32_t)v;
            break;
        case ROW_BOOL:
            *ROW_AT(bool, row, c) = true;
            break;
        case ROW_STATE:
            *ROW_AT(unsigned, row, c) = seed % t->nstates;
            break;
        case ROW_HASH:
            memset(ROW_AT(uint8_t, row, c), (int)v, STORE_HASH_LEN);
            break;
        }
    }
}

static bool same_column(const struct row_column *c, const char *a, const char *b)
{
    switch (c->type) {
    case ROW_FIXED:
        return str_eq(a + c->at, b + c->at);
    case ROW_TEXT: {
        const char *x = *ROW_CONST_AT(char *, a, c), *y = *ROW_CONST_AT(char *, b, c);

        return x && y ? str_eq(x, y) : x == y;
    }
    case ROW_U64:
        return *ROW_CONST_AT(uint64_t, a, c) == *ROW_CONST_AT(uint64_t, b, c);
    case ROW_I32_OPT:
        return a[c->flag_at] == b[c->flag_at] && *ROW_CONST_AT(int32_t, a, c) == *ROW_CONST_AT(int32_t, b, c);
    case ROW_I32:
    case ROW_STATE:
        return *ROW_CONST_AT(int32_t, a, c) == *ROW_CONST_AT(int32_t, b, c);
    case ROW_BOOL:
        return a[c->at] == b[c->at];
    case ROW_HASH:
        return memcmp(a + c->at, b + c->at, STORE_HASH_LEN) == 0;
    }
    return false;
}

/* `set`: these columns come from `other`, the rest from row. */
static void check_row(const struct row_table *t, const void *row, const void *other, uint32_t set)
{
    assert_int_equal(got.rows.n, 1);
    for (size_t i = 0; i < t->n; i++) {
        const struct row_column *c = &t->columns[i];

        if (!c->is_generated && !same_column(c, got.rows.rows, c->set & set ? other : row))
            fail_msg("%s: column %s was not read back as written (set %x)", t->name, c->name, set);
    }
}

TEST(every_column_of_a_sandbox_is_read_back_and_an_update_changes_only_named_columns)
{
    struct store_sandbox row = a_sandbox("anna", 0), other = a_sandbox("anna", 0), none = a_sandbox("anna", 0);

    fill_row(&row_sandbox, (char *)&row, 1);
    fill_row(&row_sandbox, (char *)&other, 2);
    for (uint32_t set = 1; set <= STORE_SANDBOX_SET_RECEIPT; set <<= 1) {
        id_new("sb", row.id);
        strcpy(other.id, row.id);
        OK(store_sandbox_insert(store, &row, 0, on_done, NULL));
        OK(store_sandbox_get(store, "anna", row.id, on_sandbox, NULL));
        check_row(&row_sandbox, &row, NULL, 0);
        assert_int_equal(GOT(store_sandbox, 0)->generation, 1);
        OK(store_sandbox_update(store, "anna", &other, set, NULL, on_sandbox, NULL));
        check_row(&row_sandbox, &row, &other, set); /* as the update returns it */
        OK(store_sandbox_get(store, "anna", row.id, on_sandbox, NULL));
        check_row(&row_sandbox, &row, &other, set); /* as it is read */
        assert_int_equal(GOT(store_sandbox, 0)->generation, 2);
        struct store_sandbox over = { .state = STORE_SANDBOX_ENDED }; /* its name becomes free */
        strcpy(over.id, row.id);
        OK(store_sandbox_update(store, "anna", &over, STORE_SANDBOX_SET_STATE, NULL, on_sandbox, NULL));
    }
    OK(store_sandbox_insert(store, &none, 0, on_done, NULL)); /* NULL is read back as NULL */
    OK(store_sandbox_get(store, "anna", none.id, on_sandbox, NULL));
    check_row(&row_sandbox, &none, NULL, 0);
    row_done(&row_sandbox, &row);
    row_done(&row_sandbox, &other);
}

TEST(every_column_of_an_execution_is_read_back_and_an_update_changes_only_named_columns)
{
    struct store_sandbox sb = a_sandbox("anna", 1);
    struct store_execution row = an_execution(&sb, 0), other = an_execution(&sb, 0), none = an_execution(&sb, 0);

    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    fill_row(&row_execution, (char *)&row, 1);
    fill_row(&row_execution, (char *)&other, 2);
    for (uint32_t set = 1; set <= STORE_EXECUTION_SET_RECEIPT; set <<= 1) {
        id_new("ex", row.id);
        strcpy(other.id, row.id);
        OK(store_execution_insert(store, &row, on_done, NULL));
        OK(store_execution_get(store, "anna", row.id, on_execution, NULL));
        check_row(&row_execution, &row, NULL, 0);
        OK(store_execution_update(store, "anna", &other, set, NULL, on_execution, NULL));
        check_row(&row_execution, &row, &other, set);
    }
    OK(store_execution_insert(store, &none, on_done, NULL));
    OK(store_execution_get(store, "anna", none.id, on_execution, NULL));
    check_row(&row_execution, &none, NULL, 0);
    row_done(&row_execution, &row);
    row_done(&row_execution, &other);
}

TEST(every_column_of_a_key_is_read_back_and_an_update_changes_only_named_columns)
{
    struct store_key row = a_key("anna", 0), other = a_key("anna", 0);
    struct store_user user = a_user("anna", "carla", "viewer");

    OK(store_user_insert(store, &user, on_done, NULL));
    strcpy(row.user, user.id);
    strcpy(other.user, user.id);
    fill_row(&row_key, (char *)&row, 1);
    fill_row(&row_key, (char *)&other, 2);
    for (uint32_t set = 1; set <= STORE_KEY_SET_REVOKED; set <<= 1) {
        id_new("ky", row.id);
        strcpy(other.id, row.id);
        row.hash[0]++; /* hashes are unique */
        other.hash[0]++;
        OK(store_key_insert(store, &row, false, on_done, NULL));
        OK(store_key_get(store, "anna", row.id, on_key, NULL));
        check_row(&row_key, &row, NULL, 0);
        OK(store_key_update(store, "anna", &other, set, on_key, NULL));
        check_row(&row_key, &row, &other, set);
    }
    row_done(&row_key, &row);
    row_done(&row_key, &other);
}

TEST(every_column_of_events_and_idempotency_keys_is_read_back)
{
    struct store_sandbox sb = a_sandbox("anna", 1);
    struct store_event event = { .owner = "anna" };
    struct store_idem idem = { .owner = "anna" };

    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    strcpy(event.sandbox, sb.id);
    fill_row(&row_event, (char *)&event, 1);
    OK(store_event_append(store, &event, on_event, NULL));
    OK(store_event_list(store, "anna", NULL, 0, 0, on_events, NULL));
    check_row(&row_event, &event, NULL, 0);

    fill_row(&row_idem, (char *)&idem, 1);
    OK(store_idem_claim(store, &idem, on_idem, NULL));
    check_row(&row_idem, &idem, NULL, 0);
    row_done(&row_event, &event);
    row_done(&row_idem, &idem);
}

/* --- conditions that only the store can check --- */

TEST(a_duplicate_id_is_refused_and_the_first_row_stays)
{
    struct store_sandbox sb = a_sandbox("anna", 1), again;

    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    again = sb;
    strcpy(again.owner, "bert");
    FAILS(ERR_EXISTS, store_sandbox_insert(store, &again, 0, on_done, NULL));
    OK(store_sandbox_get(store, "anna", sb.id, on_sandbox, NULL));
    assert_string_equal(GOT(store_sandbox, 0)->owner, "anna");
}

TEST(a_change_of_state_happens_only_from_the_states_it_names)
{
    struct store_sandbox sb = a_sandbox("anna", 1);
    struct store_condition running = { .states = STORE_BIT(STORE_SANDBOX_RUNNING) | STORE_BIT(STORE_SANDBOX_CREATING) };

    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    sb.state = STORE_SANDBOX_PAUSED;
    OK(store_sandbox_update(store, "anna", &sb, STORE_SANDBOX_SET_STATE, &running, on_sandbox, NULL));
    FAILS(ERR_EXISTS, store_sandbox_update(store, "anna", &sb, STORE_SANDBOX_SET_STATE, &running, on_sandbox, NULL));
    assert_non_null(strstr(got.err.msg, "paused")); /* the message names the current state */
    OK(store_sandbox_get(store, "anna", sb.id, on_sandbox, NULL));
    assert_int_equal(GOT(store_sandbox, 0)->generation, 2); /* the refused one was not counted */

    struct store_condition first = { .generation = 1 }, second = { .generation = 2 };
    FAILS(ERR_EXISTS, store_sandbox_update(store, "anna", &sb, STORE_SANDBOX_SET_STATE, &first, on_sandbox, NULL));
    OK(store_sandbox_update(store, "anna", &sb, STORE_SANDBOX_SET_STATE, &second, on_sandbox, NULL));
    id_new("sb", sb.id);
    FAILS(ERR_MISSING, store_sandbox_update(store, "anna", &sb, STORE_SANDBOX_SET_STATE, NULL, on_sandbox, NULL));
}

static size_t succeeded, limited;

static void on_created(void *arg UNUSED, const struct err *err)
{
    if (!err)
        succeeded++;
    else if (err->id == ERR_LIMIT)
        limited++;
    got.answered = succeeded + limited == 100;
}

TEST(AU19_of_a_hundred_creations_at_the_limit_minus_one_exactly_one_succeeds)
{
    struct store_sandbox sb = a_sandbox("anna", 1), noise = a_sandbox("bert", 1), ended = a_sandbox("anna", 1);

    OK(store_sandbox_insert(store, &noise, 0, on_done, NULL));
    ended.state = STORE_SANDBOX_ENDED;
    OK(store_sandbox_insert(store, &ended, 0, on_done, NULL));
    for (int i = 0; i < 4; i++) {
        id_new("sb", sb.id);
        OK(store_sandbox_insert(store, &sb, 5, on_done, NULL));
    }
    host_begin();
    succeeded = limited = 0;
    for (int i = 0; i < 100; i++) {
        id_new("sb", sb.id);
        store_sandbox_insert(store, &sb, 5, on_created, NULL);
    }
    host_await();
    assert_int_equal(succeeded, 1);
    assert_int_equal(limited, 99);
}

TEST(an_execution_needs_a_sandbox_of_the_same_owner)
{
    struct store_sandbox sb = a_sandbox("anna", 1), never = a_sandbox("anna", 1);
    struct store_execution ex = an_execution(&sb, 1), lost = an_execution(&never, 1);

    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    FAILS(ERR_MISSING, store_execution_insert(store, &lost, on_done, NULL));
    strcpy(ex.owner, "bert");
    FAILS(ERR_MISSING, store_execution_insert(store, &ex, on_done, NULL));
    strcpy(ex.owner, "anna");
    OK(store_execution_insert(store, &ex, on_done, NULL));
}

/* --- lists --- */

static size_t list_all(const struct store_list *q, char ids[][ID_SIZE], size_t cap)
{
    struct store_list page = *q;
    auto_free char *cursor = NULL;
    size_t n = 0;

    do {
        page.cursor = cursor;
        OK(store_sandbox_list(store, &page, on_sandboxes, NULL));
        for (size_t i = 0; i < got.rows.n; i++) {
            assert_true(n < cap);
            strcpy(ids[n++], GOT(store_sandbox, i)->id);
        }
        free(cursor);
        cursor = got.next ? str_dup(got.next) : NULL;
    } while (cursor);
    return n;
}

TEST(pages_neither_repeat_nor_skip_a_row_during_inserts_and_removals)
{
    static char ids[40][ID_SIZE], seen[60][ID_SIZE];
    struct store_list q = { .owner = "anna", .limit = 7 };
    size_t n = 0, found;

    for (int i = 0; i < 40; i++) {
        struct store_sandbox sb = a_sandbox("anna", 1000 + (uint64_t)i / 4); /* four have the same time */

        strcpy(ids[i], sb.id);
        OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    }
    auto_free char *cursor = NULL;
    do {
        q.cursor = cursor;
        OK(store_sandbox_list(store, &q, on_sandboxes, NULL));
        assert_true(got.rows.n > 0 && got.rows.n <= 7);
        for (size_t i = 0; i < got.rows.n; i++) {
            if (n + i > 0 && i > 0)
                assert_true(GOT(store_sandbox, i)->created_ms <= GOT(store_sandbox, i - 1)->created_ms);
            strcpy(seen[n + i], GOT(store_sandbox, i)->id);
        }
        n += got.rows.n;
        free(cursor);
        cursor = got.next ? str_dup(got.next) : NULL;
        struct store_sandbox newer = a_sandbox("anna", 5000); /* inserted while we read, ahead of all pages */
        OK(store_sandbox_insert(store, &newer, 0, on_done, NULL));
    } while (cursor);
    assert_int_equal(n, 40);
    for (int i = 0; i < 40; i++) {
        found = 0;
        for (size_t k = 0; k < n; k++)
            found += str_eq(ids[i], seen[k]);
        assert_int_equal(found, 1);
    }
}

TEST(a_name_is_unique_among_the_sandboxes_of_an_owner_that_have_not_ended)
{
    static char ids[10][ID_SIZE];
    char name[] = "build", other[] = "other";
    struct store_sandbox a = a_sandbox("anna", 1), b = a_sandbox("anna", 2), c = a_sandbox("ben", 3);

    a.name = b.name = c.name = name;
    OK(store_sandbox_insert(store, &a, 0, on_done, NULL));
    FAILS(ERR_EXISTS, store_sandbox_insert(store, &b, 0, on_done, NULL));
    assert_null(strstr(got.err.msg, a.id));
    OK(store_sandbox_insert(store, &c, 0, on_done, NULL)); /* another owner */
    b.name = other;
    OK(store_sandbox_insert(store, &b, 0, on_done, NULL));
    b.name = name;
    FAILS(ERR_EXISTS, store_sandbox_update(store, "anna", &b, STORE_SANDBOX_SET_NAME, NULL, on_sandbox, NULL));
    OK(store_sandbox_update(store, "anna", &a, STORE_SANDBOX_SET_NAME, NULL, on_sandbox, NULL)); /* its own */

    a.state = STORE_SANDBOX_ENDED;
    OK(store_sandbox_update(store, "anna", &a, STORE_SANDBOX_SET_STATE, NULL, on_sandbox, NULL));
    OK(store_sandbox_update(store, "anna", &b, STORE_SANDBOX_SET_NAME, NULL, on_sandbox, NULL));

    struct store_list q = { .owner = "anna", .name = name };
    assert_int_equal(list_all(&q, ids, 10), 2);
    q.states = STORE_SANDBOX_LIVE;
    assert_int_equal(list_all(&q, ids, 10), 1);
    assert_string_equal(ids[0], b.id);
    q.name = other;
    assert_int_equal(list_all(&q, ids, 10), 0);
}

/* The sandboxes of the owner with this pair, oldest first, in pages of two. */
static void expect_by_metadata(const char *owner, const char *const *pairs, const struct store_sandbox *const *expected)
{
    static char ids[10][ID_SIZE];
    struct store_list q = { .owner = owner, .meta = pairs, .oldest_first = true, .limit = 2 };
    size_t n = list_all(&q, ids, 10), want = 0;

    for (; expected[want]; want++)
        if (want >= n || !str_eq(ids[want], expected[want]->id))
            fail_msg("%s=%s of %s: row %zu of %zu", pairs[0], pairs[1], owner, want, n);
    assert_int_equal(n, want);
    q.oldest_first = false;
    assert_int_equal(list_all(&q, ids, 10), n);
    for (size_t i = 0; i < n; i++)
        assert_string_equal(ids[i], expected[n - 1 - i]->id);
}

#define PAIRS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define ROWS(...) ((const struct store_sandbox *const[]){ __VA_ARGS__, NULL })

TEST(a_list_by_metadata_follows_each_change_and_the_removal_of_a_sandbox)
{
    struct store_sandbox a = a_sandbox("anna", 1), b = a_sandbox("anna", 1), c = a_sandbox("anna", 2),
                         d = a_sandbox("bert", 2), e = a_sandbox("anna", 3);
    struct store_sandbox *all[] = { &a, &b, &c, &d, &e };

    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        all[i]->metadata_json = (char *)"{\"team\": \"blue\", \"a \\\"b\": \"\\u00fc\"}";
        OK(store_sandbox_insert(store, all[i], 0, on_done, NULL));
    }
    if (strcmp(a.id, b.id) > 0) { /* rows of the same time are ordered by id */
        struct store_sandbox swap = a;

        a = b;
        b = swap;
    }
    expect_by_metadata("anna", PAIRS("team", "blue"), ROWS(&a, &b, &c, &e));
    expect_by_metadata("anna", PAIRS("a \"b", "\u00fc", "team", "blue"), ROWS(&a, &b, &c, &e));
    expect_by_metadata("bert", PAIRS("team", "blue"), ROWS(&d));
    b.metadata_json = (char *)"{\"team\": \"red\", \"n\": \"1\", \"n\": \"2\"}";
    OK(store_sandbox_update(store, "anna", &b, STORE_SANDBOX_SET_METADATA, NULL, on_sandbox, NULL));
    expect_by_metadata("anna", PAIRS("team", "blue"), ROWS(&a, &c, &e));
    expect_by_metadata("anna", PAIRS("team", "red"), ROWS(&b));
    expect_by_metadata("anna", PAIRS("n", "2"), ROWS(&b)); /* of a repeated key the last value counts */
    expect_by_metadata(STORE_ANY_OWNER, PAIRS("team", "red"), ROWS(&b));
    FAILS(ERR_MISSING, store_sandbox_update(store, "bert", &b, STORE_SANDBOX_SET_METADATA, NULL, on_sandbox, NULL));
    b.metadata_json = NULL;
    OK(store_sandbox_update(store, "anna", &b, STORE_SANDBOX_SET_METADATA, NULL, on_sandbox, NULL));
    expect_by_metadata("anna", PAIRS("team", "red"), ROWS(NULL));
    c.state = STORE_SANDBOX_ENDED;
    c.ended_ms = 5;
    OK(store_sandbox_update(store, "anna", &c, STORE_SANDBOX_SET_STATE | STORE_SANDBOX_SET_ENDED, NULL, on_sandbox,
                            NULL));
    expect_by_metadata("anna", PAIRS("team", "blue"), ROWS(&a, &c, &e));
    OK(store_gc(store, &(struct store_retention){ .sandboxes_before_ms = 100 }, on_gc, NULL));
    assert_int_equal(got.gc.sandboxes, 1);
    expect_by_metadata("anna", PAIRS("team", "blue"), ROWS(&a, &e));
    OK(store_check(store, on_done, NULL));
}

TEST(lists_are_filtered_by_state_metadata_and_sandbox_and_can_be_reversed)
{
    static char ids[10][ID_SIZE];
    struct store_sandbox a = a_sandbox("anna", 1), b = a_sandbox("anna", 2), c = a_sandbox("anna", 3);
    char blue[] = "{\"colour\": \"blue\", \"n\": \"1\"}", red[] = "{\"colour\": \"red\", \"n\": \"1\"}";
    char small[] = "small";

    a.metadata_json = blue;
    b.metadata_json = red;
    c.state = STORE_SANDBOX_ENDED;
    c.template = small;
    OK(store_sandbox_insert(store, &a, 0, on_done, NULL));
    OK(store_sandbox_insert(store, &b, 0, on_done, NULL));
    OK(store_sandbox_insert(store, &c, 0, on_done, NULL));

    struct store_list q = { .owner = "anna", .oldest_first = true };
    assert_int_equal(list_all(&q, ids, 10), 3);
    assert_string_equal(ids[0], a.id);
    assert_string_equal(ids[2], c.id);
    q.oldest_first = false;
    assert_int_equal(list_all(&q, ids, 10), 3);
    assert_string_equal(ids[0], c.id);
    q.states = STORE_SANDBOX_LIVE;
    assert_int_equal(list_all(&q, ids, 10), 2);
    q.states = STORE_BIT(STORE_SANDBOX_ENDED) | STORE_BIT(STORE_SANDBOX_PAUSED);
    assert_int_equal(list_all(&q, ids, 10), 1);
    assert_string_equal(ids[0], c.id);

    q.states = 0;
    q.meta = (const char *const[]){ "colour", "blue", NULL };
    assert_int_equal(list_all(&q, ids, 10), 1);
    assert_string_equal(ids[0], a.id);
    q.meta = (const char *const[]){ "n", "1", "colour", "red", NULL };
    assert_int_equal(list_all(&q, ids, 10), 1);
    assert_string_equal(ids[0], b.id);
    q.meta = (const char *const[]){ "n", "2", NULL };
    assert_int_equal(list_all(&q, ids, 10), 0);
    q.meta = NULL;
    q.template = "small";
    assert_int_equal(list_all(&q, ids, 10), 1);
    assert_string_equal(ids[0], c.id);

    struct store_execution x = an_execution(&a, 1), y = an_execution(&b, 1);
    OK(store_execution_insert(store, &x, on_done, NULL));
    OK(store_execution_insert(store, &y, on_done, NULL));
    struct store_list of = { .owner = "anna", .sandbox = b.id };
    OK(store_execution_list(store, &of, on_executions, NULL));
    assert_int_equal(got.rows.n, 1);
    assert_string_equal(GOT(store_execution, 0)->id, y.id);
}

/* Compares the letters of the listed executions, each of which is its request. */
static void expect_executions(struct store_list q, const char *letters)
{
    char found[16] = "", cursor[STORE_CURSOR_SIZE] = "";

    q.limit = 2; /* so that pages of merged lists are tested as well */
    do {
        q.cursor = cursor[0] ? cursor : NULL;
        OK(store_execution_list(store, &q, on_executions, NULL));
        for (size_t i = 0; i < got.rows.n; i++)
            strncat(found, GOT(store_execution, i)->request_json, 1);
        assert_true(got.next == NULL || str_copy(cursor, sizeof(cursor), got.next));
    } while (got.next);
    assert_string_equal(found, letters);
}

TEST(executions_of_all_sandboxes_are_listed_by_state_and_outcome)
{
    static const struct {
        const char *letter;
        bool second; /* of the second sandbox */
        enum store_execution_state state;
        const char *outcome;
    } rows[] = { { "a", false, STORE_EXECUTION_ENDED, "success" }, { "b", true, STORE_EXECUTION_ENDED, "error" },
                 { "c", false, STORE_EXECUTION_RUNNING, NULL },    { "d", true, STORE_EXECUTION_ENDED, "success" },
                 { "e", false, STORE_EXECUTION_FAILED, "lost" },   { "f", true, STORE_EXECUTION_STARTING, NULL },
                 { "g", false, STORE_EXECUTION_ENDED, "timeout" } };
    const uint32_t ended = STORE_BIT(STORE_EXECUTION_ENDED) | STORE_BIT(STORE_EXECUTION_FAILED);
    struct store_sandbox boxes[2] = { a_sandbox("anna", 1), a_sandbox("anna", 2) }, other = a_sandbox("bert", 1);
    struct store_execution strange = an_execution(&other, 1);

    OK(store_sandbox_insert(store, &boxes[0], 0, on_done, NULL));
    OK(store_sandbox_insert(store, &boxes[1], 0, on_done, NULL));
    OK(store_sandbox_insert(store, &other, 0, on_done, NULL));
    strange.state = STORE_EXECUTION_RUNNING;
    strange.request_json = (char *)"x";
    OK(store_execution_insert(store, &strange, on_done, NULL));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct store_execution x = an_execution(&boxes[rows[i].second], i + 2);

        x.state = rows[i].state;
        x.outcome = (char *)rows[i].outcome;
        x.request_json = (char *)rows[i].letter;
        OK(store_execution_insert(store, &x, on_done, NULL));
    }
#define OUTCOMES(a, b) (STORE_BIT(OUTCOME_##a) | STORE_BIT(OUTCOME_##b))
    expect_executions((struct store_list){ .owner = "anna" }, "gfedcba");
    expect_executions((struct store_list){ .owner = "anna", .states = STORE_EXECUTION_LIVE }, "fc");
    expect_executions((struct store_list){ .owner = STORE_ANY_OWNER, .states = STORE_EXECUTION_LIVE }, "fcx");
    expect_executions((struct store_list){ .owner = "bert", .outcomes = OUTCOMES(SUCCESS, ERROR) }, "");
    expect_executions((struct store_list){ .owner = "anna", .states = ended }, "gedba");
    expect_executions((struct store_list){ .owner = "anna", .states = ended, .oldest_first = true }, "abdeg");
    expect_executions((struct store_list){ .owner = "anna", .states = STORE_BIT(STORE_EXECUTION_FAILED) }, "e");
    expect_executions((struct store_list){ .owner = "anna", .states = ended | STORE_BIT(STORE_EXECUTION_STARTING) },
                      "gfedba");
    expect_executions((struct store_list){ .owner = "anna", .outcomes = OUTCOMES(SUCCESS, TIMEOUT) }, "gda");
    expect_executions((struct store_list){ .owner = "anna", .outcomes = OUTCOMES(SUCCESS, LOST), .states = ended },
                      "eda");
    expect_executions(
        (struct store_list){ .owner = "anna", .outcomes = OUTCOMES(SUCCESS, LOST), .states = STORE_EXECUTION_LIVE },
        "");
    expect_executions((struct store_list){ .owner = "anna", .states = STORE_NO_STATE }, "");
    expect_executions((struct store_list){ .owner = "anna", .outcomes = STORE_NO_STATE }, "");
    expect_executions(
        (struct store_list){ .owner = "anna", .sandbox = boxes[1].id, .outcomes = OUTCOMES(SUCCESS, ERROR) }, "db");
    expect_executions((struct store_list){ .owner = "anna", .sandbox = boxes[0].id, .states = STORE_EXECUTION_LIVE },
                      "c");
#undef OUTCOMES
}

TEST(a_list_never_exceeds_its_limit_and_says_when_there_is_more)
{
    struct store_list q = { .owner = "anna", .limit = 3 };

    for (uint64_t i = 0; i < 3; i++) {
        struct store_sandbox sb = a_sandbox("anna", i);

        OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    }
    OK(store_sandbox_list(store, &q, on_sandboxes, NULL));
    assert_int_equal(got.rows.n, 3);
    assert_null(got.next); /* an exactly full page is the last one */
    q.limit = 2;
    OK(store_sandbox_list(store, &q, on_sandboxes, NULL));
    assert_int_equal(got.rows.n, 2);
    assert_non_null(got.next);
}

/* --- hostile strings --- */

static const char *const hostile[] = {
    "' OR '1'='1",
    "'; DROP TABLE sandboxes; --",
    "\" OR 1=1 --",
    "1; ATTACH DATABASE '/etc/passwd' AS x",
    "%",
    "_",
    "*",
    "?1",
    ":owner",
    "$.a",
    "') UNION SELECT hash FROM keys --",
    "\\",
    "\n\r\t",
    "\xe2\x80\xa8",
    "NULL",
    "0x00",
    "a'||(SELECT value FROM meta)||'b",
    "../../etc/passwd",
    "sb'--",
    "`",
    "/*",
    "json_each",
    "{\"a\":1}",
    "[",
};

TEST(ST01_hostile_strings_are_plain_data_in_every_field)
{
    struct store_sandbox victim = a_sandbox("bert", 1);
    char metadata[] = "{\"k\": \"v\"}";

    victim.metadata_json = metadata;
    OK(store_sandbox_insert(store, &victim, 0, on_done, NULL));
    for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
        auto_free char *text = str_dup(hostile[i]);
        struct store_sandbox sb = a_sandbox("anna", 1);
        struct store_list q = { .owner = "anna", .meta = (const char *const[]){ text, text, NULL } };

        sb.name = sb.template = sb.runtime = sb.level = sb.spec_json = sb.ended_by = sb.why_json = text;
        OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
        OK(store_sandbox_get(store, "anna", sb.id, on_sandbox, NULL));
        check_row(&row_sandbox, &sb, NULL, 0);
        FAILS(ERR_MISSING, store_sandbox_get(store, "anna", text, on_sandbox, NULL));
        FAILS(ERR_MISSING, store_execution_get(store, "anna", text, on_execution, NULL));
        FAILS(ERR_MISSING, store_key_get(store, "anna", text, on_key, NULL));
        FAILS(ERR_MISSING, store_template_get(store, text, on_template, NULL));
        FAILS(ERR_MISSING, store_template_delete(store, text, NULL, on_done, NULL));
        OK(store_sandbox_list(store, &q, on_sandboxes, NULL));
        assert_int_equal(got.rows.n, 0);
        q.meta = NULL;
        q.cursor = text;
        FAILS(ERR_INVALID, store_sandbox_list(store, &q, on_sandboxes, NULL));
        q.cursor = NULL;
        q.sandbox = text;
        FAILS(ERR_MISSING, store_execution_list(store, &q, on_executions, NULL));
        if (!str_eq(text, STORE_ANY_OWNER) && !store_owner_valid(text))
            FAILS(ERR_INVALID, store_sandbox_get(store, text, victim.id, on_sandbox, NULL));
        OK(store_meta_put(store, text, text, on_done, NULL));
        OK(store_meta_get(store, text, on_text, NULL));
        assert_string_equal(got.text, text);
    }
    OK(store_sandbox_get(store, "bert", victim.id, on_sandbox, NULL));
    OK(store_check(store, on_done, NULL));
}

TEST(strings_that_are_too_long_or_not_utf8_are_refused_and_nothing_is_written)
{
    struct store_sandbox sb = a_sandbox("anna", 1);
    char latin[] = "caf\xe9", overlong[] = "\xc0\xaf", surrogate[] = "\xed\xa0\x80";
    char *bad[] = { latin, overlong, surrogate };
    auto_free char *large = mem_alloc(STORE_TEXT_MAX + 2);

    memset(large, 'x', STORE_TEXT_MAX + 1);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        sb.name = bad[i];
        FAILS(ERR_INVALID, store_sandbox_insert(store, &sb, 0, on_done, NULL));
    }
    sb.name = large;
    FAILS(ERR_INVALID, store_sandbox_insert(store, &sb, 0, on_done, NULL));
    large[STORE_TEXT_MAX] = '\0'; /* the maximum length is accepted */
    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    id_new("sb", sb.id);
    char broken[] = "{not json", number[] = "{\"a\": 1}", array[] = "[]";
    char *no_map[] = { broken, number, array };
    sb.name = NULL;
    for (size_t i = 0; i < ARRAY_LEN(no_map); i++) {
        sb.metadata_json = no_map[i];
        FAILS(ERR_INVALID, store_sandbox_insert(store, &sb, 0, on_done, NULL));
    }
    sb.metadata_json = NULL;
    strcpy(sb.owner, "*");
    FAILS(ERR_INVALID, store_sandbox_insert(store, &sb, 0, on_done, NULL)); /* a row needs a real owner */
    sb.owner[0] = '\0';
    FAILS(ERR_INVALID, store_sandbox_insert(store, &sb, 0, on_done, NULL));
    FAILS(ERR_MISSING, store_sandbox_get(store, STORE_ANY_OWNER, sb.id, on_sandbox, NULL));
}

TEST(invalid_cursors_are_refused)
{
    static const char *const bad[] = {
        "",
        "x",
        "0",
        "000000000000",
        "00000000000gsbaaaaaaaaaaaaaaaaaaaa",
        "0000000000010exaaaaaaaaaaaaaaaaaaaa",
        "000000000001exaaaaaaaaaaaaaaaaaaaa",
        "000000000001sbaaaaaaaaaaaaaaaaaaa",
        "000000000001sbaaaaaaaaaaaaaaaaaaaaa",
        "000000000001sbaaaaaaaaaaaaaaaaaaa'",
        "-00000000001sbaaaaaaaaaaaaaaaaaaaa",
    };
    struct store_list q = { .owner = "anna" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        q.cursor = bad[i];
        FAILS(ERR_INVALID, store_sandbox_list(store, &q, on_sandboxes, NULL));
    }
}

/* --- owners --- */

TEST(ST07_every_call_sees_only_rows_of_its_owner)
{
    struct store_sandbox mine = a_sandbox("anna", 5), theirs[20];
    struct store_execution ex = an_execution(&mine, 5), other_ex = { 0 };
    struct store_key key = a_key("anna", 1), other_key = a_key("bert", 2);
    struct store_list q = { .owner = "anna" };
    struct store_event event = { .owner = "bert", .at_ms = 1 };
    char metadata[] = "{\"k\": \"v\"}", idem_key[] = "same", answer[] = "theirs";

    for (size_t i = 0; i < 20; i++) {
        theirs[i] = a_sandbox("bert", i);
        theirs[i].metadata_json = metadata;
        OK(store_sandbox_insert(store, &theirs[i], 0, on_done, NULL));
        other_ex = an_execution(&theirs[i], i);
        other_ex.out_bytes[0] = 1000;
        OK(store_execution_insert(store, &other_ex, on_done, NULL));
        strcpy(event.sandbox, theirs[i].id);
        OK(store_event_append(store, &event, on_event, NULL));
    }
    mine.metadata_json = metadata;
    OK(store_sandbox_insert(store, &mine, 0, on_done, NULL));
    OK(store_execution_insert(store, &ex, on_done, NULL));
    OK(store_key_insert(store, &key, false, on_done, NULL));
    OK(store_key_insert(store, &other_key, false, on_done, NULL));

    OK(store_sandbox_list(store, &q, on_sandboxes, NULL));
    assert_int_equal(got.rows.n, 1);
    q.meta = (const char *const[]){ "k", "v", NULL };
    OK(store_sandbox_list(store, &q, on_sandboxes, NULL));
    assert_int_equal(got.rows.n, 1);
    q.meta = NULL;
    OK(store_execution_list(store, &q, on_executions, NULL));
    assert_int_equal(got.rows.n, 1);
    q.sandbox = theirs[3].id;
    OK(store_execution_list(store, &q, on_executions, NULL));
    assert_int_equal(got.rows.n, 0);
    q.sandbox = NULL;
    OK(store_key_list(store, &q, on_keys, NULL));
    assert_int_equal(got.rows.n, 1);
    OK(store_event_list(store, "anna", NULL, 0, 0, on_events, NULL));
    assert_int_equal(got.rows.n, 0);
    OK(store_event_list(store, "anna", theirs[3].id, 0, 0, on_events, NULL));
    assert_int_equal(got.rows.n, 0);

    FAILS(ERR_MISSING, store_sandbox_get(store, "anna", theirs[0].id, on_sandbox, NULL));
    FAILS(ERR_MISSING, store_execution_get(store, "anna", other_ex.id, on_execution, NULL));
    FAILS(ERR_MISSING, store_key_get(store, "anna", other_key.id, on_key, NULL));
    theirs[0].state = STORE_SANDBOX_ENDED;
    FAILS(ERR_MISSING,
          store_sandbox_update(store, "anna", &theirs[0], STORE_SANDBOX_SET_STATE, NULL, on_sandbox, NULL));
    FAILS(ERR_MISSING,
          store_execution_update(store, "anna", &other_ex, STORE_EXECUTION_SET_STATE, NULL, on_execution, NULL));
    FAILS(ERR_MISSING, store_key_update(store, "anna", &other_key, STORE_KEY_SET_REVOKED, on_key, NULL));
    OK(store_sandbox_get(store, "bert", theirs[0].id, on_sandbox, NULL));
    assert_int_equal(GOT(store_sandbox, 0)->state, STORE_SANDBOX_RUNNING);

    OK(store_count(store, "anna", on_counts, NULL));
    assert_int_equal(got.counts.sandboxes[STORE_SANDBOX_RUNNING], 1);
    assert_int_equal(got.counts.executions[STORE_EXECUTION_RUNNING], 1);
    assert_int_equal(got.counts.keys, 1);
    assert_int_equal(got.counts.events, 0);
    assert_int_equal(got.counts.output_bytes, 0);
    OK(store_count(store, STORE_ANY_OWNER, on_counts, NULL));
    assert_int_equal(got.counts.sandboxes[STORE_SANDBOX_RUNNING], 21);
    assert_int_equal(got.counts.output_bytes, 20000);

    struct store_idem idem = { .owner = "bert", .key = idem_key, .status = 201, .body = answer };
    OK(store_idem_claim(store, &idem, on_idem, NULL));
    strcpy(idem.owner, "anna"); /* the same key of another owner is a different key */
    idem.body = NULL;
    OK(store_idem_claim(store, &idem, on_idem, NULL));
    assert_true(got.fresh);
    FAILS(ERR_MISSING, store_idem_finish(store, "carl", idem_key, 200, "x", on_done, NULL));
    OK(store_idem_drop(store, "anna", idem_key, NULL, on_done, NULL));
    strcpy(idem.owner, "bert");
    OK(store_idem_claim(store, &idem, on_idem, NULL));
    assert_string_equal(GOT(store_idem, 0)->body, "theirs");
}

TEST(AU04_a_cursor_of_another_owner_lists_only_own_rows)
{
    struct store_list q = { .owner = "bert", .limit = 2 };
    struct store_sandbox mine = a_sandbox("anna", 0);

    OK(store_sandbox_insert(store, &mine, 0, on_done, NULL));
    for (uint64_t i = 1; i < 6; i++) {
        struct store_sandbox sb = a_sandbox("bert", i);

        OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    }
    OK(store_sandbox_list(store, &q, on_sandboxes, NULL));
    auto_free char *cursor = str_dup(got.next);
    q.owner = "anna";
    q.cursor = cursor;
    OK(store_sandbox_list(store, &q, on_sandboxes, NULL));
    assert_int_equal(got.rows.n, 1);
    assert_string_equal(GOT(store_sandbox, 0)->id, mine.id);
}

/* --- calls --- */

static char order[300];
static bool inside;

static void on_ordered(void *arg, const struct err *err)
{
    size_t n = strlen(order);

    assert_false(inside);
    order[n] = err ? 'x' : (char)(uintptr_t)arg;
    got.answered = n + 2 == sizeof(order);
}

TEST(calls_are_answered_in_order_never_reentrantly_and_committed_together)
{
    struct store_stats before, after;
    struct store_sandbox sb = a_sandbox("anna", 1);

    host_begin();
    memset(order, 0, sizeof(order));
    store_stats(store, &before);
    inside = true;
    for (size_t i = 0; i + 1 < sizeof(order); i++) {
        if (i % 10 != 7) /* every tenth is refused: its id exists */
            id_new("sb", sb.id);
        store_sandbox_insert(store, &sb, 0, on_ordered, (void *)(uintptr_t)('a' + i % 10));
    }
    inside = false;
    host_await();
    for (size_t i = 0; i + 1 < sizeof(order); i++)
        assert_int_equal(order[i], i % 10 == 7 ? 'x' : (char)('a' + i % 10));
    store_stats(store, &after);
    assert_int_equal(after.calls - before.calls, sizeof(order) - 1);
    assert_int_equal(after.waiting, 0);
    if (after.commits - before.commits > 3)
        fail_msg("%" PRIu64 " commits for calls made in one turn", after.commits - before.commits);
}

static void on_never(void *arg UNUSED, const struct err *err UNUSED)
{
    fail_msg("a detached call was answered");
}

TEST(a_detached_call_takes_effect_without_an_answer)
{
    struct store_sandbox sb = a_sandbox("anna", 1);

    store_request_detach(store_sandbox_insert(store, &sb, 0, on_never, NULL));
    OK(store_sandbox_get(store, "anna", sb.id, on_sandbox, NULL));
}

static void on_chained(void *arg, const struct err *err)
{
    const struct store_sandbox *sb = arg;

    if (sb) {
        assert_null(err);
        host_begin();
        store_sandbox_insert(store, sb, 0, on_chained, NULL); /* during the close */
    } else {
        on_done(NULL, err);
    }
}

TEST(closing_answers_pending_calls_and_refuses_new_ones)
{
    struct err err = { 0 };
    struct store_sandbox sb = a_sandbox("anna", 1), late = a_sandbox("anna", 1);
    auto_free char *backup = str_printf("%s/backup", host_dir);

    host_begin();
    store_backup(store, backup, on_chained, NULL); /* is abandoned */
    store_sandbox_insert(store, &sb, 0, on_chained, &late);
    struct store *closing = store;
    store_close(closing);
    assert_true(got.answered && got.failed);
    assert_int_equal(got.err.id, ERR_BUSY);
    assert_int_equal(access(backup, F_OK), -1);
    store = NULL;
    assert_int_equal(host_open(&err), 0);
    OK(store_sandbox_get(store, "anna", sb.id, on_sandbox, NULL));
    FAILS(ERR_MISSING, store_sandbox_get(store, "anna", late.id, on_sandbox, NULL));
}

TEST(finishing_answers_pending_calls_and_later_ones_are_written_unanswered)
{
    struct err err = { 0 };
    struct store_sandbox sb = a_sandbox("anna", 1), late = a_sandbox("anna", 1);

    host_begin();
    store_sandbox_insert(store, &sb, 0, on_done, NULL);
    store_finish(store);
    assert_true(got.answered && !got.failed);
    struct store_request *call = store_sandbox_insert(store, &late, 0, on_never, NULL);
    store_sandbox_insert(store, &late, 0, on_never, NULL);
    ev_turn(loop, 0);
    store_request_detach(call);
    store_finish(store);
    store_close(store);
    store = NULL;
    assert_int_equal(host_open(&err), 0);
    OK(store_sandbox_get(store, "anna", sb.id, on_sandbox, NULL));
    OK(store_sandbox_get(store, "anna", late.id, on_sandbox, NULL));
}

static size_t busy, fine;

static void on_flood(void *arg UNUSED, const struct err *err)
{
    if (err && err->id == ERR_BUSY)
        busy++;
    else if (!err)
        fine++;
    got.answered = busy + fine == 24;
}

TEST(calls_beyond_the_memory_limit_are_refused_and_the_others_succeed)
{
    struct store_sandbox sb = a_sandbox("anna", 1);
    auto_free char *large = mem_alloc(STORE_TEXT_MAX);

    memset(large, 'x', STORE_TEXT_MAX - 1);
    sb.spec_json = large;
    host_begin();
    busy = fine = 0;
    for (int i = 0; i < 24; i++) { /* 96 MiB in one turn */
        id_new("sb", sb.id);
        store_sandbox_insert(store, &sb, 0, on_flood, NULL);
    }
    host_await();
    assert_true(busy > 4);
    assert_true(fine > 4);
    id_new("sb", sb.id);
    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL)); /* afterwards there is space again */
}

/* --- keys, templates, events, idempotency, meta --- */

TEST(a_key_is_found_by_its_hash_only_and_the_first_one_only_once)
{
    struct store_key first = a_key("local", 1), second = a_key("local", 2), same = a_key("anna", 1);

    OK(store_key_insert(store, &first, true, on_done, NULL));
    FAILS(ERR_EXISTS, store_key_insert(store, &second, true, on_done, NULL));
    FAILS(ERR_EXISTS, store_key_insert(store, &same, false, on_done, NULL)); /* a hash belongs to one key */
    OK(store_key_insert(store, &second, false, on_done, NULL));
    OK(store_login_by_hash(store, second.hash, on_login, NULL));
    assert_string_equal(GOT(store_login, 0)->key.id, second.id);
    second.hash[31] ^= 1;
    FAILS(ERR_MISSING, store_login_by_hash(store, second.hash, on_login, NULL));
    first.revoked_ms = 5;
    OK(store_key_update(store, STORE_ANY_OWNER, &first, STORE_KEY_SET_REVOKED, on_key, NULL));
    OK(store_count(store, STORE_ANY_OWNER, on_counts, NULL));
    assert_int_equal(got.counts.keys, 1);
    same.hash[0] = 9;
    /* A revoked key still prevents a first key. */
    FAILS(ERR_EXISTS, store_key_insert(store, &same, true, on_done, NULL));
}

TEST(the_last_use_of_keys_is_recorded_in_bulk_and_never_decreases)
{
    struct store_key a = a_key("anna", 1), b = a_key("anna", 2);
    struct store_key_use uses[3] = { { .at_ms = 50 }, { .at_ms = 60 }, { .id = "kygone", .at_ms = 70 } };

    OK(store_key_insert(store, &a, false, on_done, NULL));
    OK(store_key_insert(store, &b, false, on_done, NULL));
    strcpy(uses[0].id, a.id);
    strcpy(uses[1].id, b.id);
    OK(store_key_touch(store, uses, 3, on_done, NULL));
    uses[0].at_ms = 40;
    uses[1].at_ms = 61;
    OK(store_key_touch(store, uses, 2, on_done, NULL));
    OK(store_key_touch(store, NULL, 0, on_done, NULL));
    OK(store_key_get(store, "anna", a.id, on_key, NULL));
    assert_int_equal(GOT(store_key, 0)->last_used_ms, 50);
    OK(store_key_get(store, "anna", b.id, on_key, NULL));
    assert_int_equal(GOT(store_key, 0)->last_used_ms, 61);
}

TEST(a_template_is_replaced_only_with_its_generation)
{
    char one[] = "{\"n\":1}", two[] = "{\"n\":2}";
    struct store_template t = { .name = "data-science", .spec_json = one, .created_ms = 10, .updated_ms = 10 };
    struct store_condition stale = { .generation = 7 }, right = { .generation = 1 };

    FAILS(ERR_MISSING, store_template_put(store, &t, &right, on_template, NULL));
    OK(store_template_put(store, &t, NULL, on_template, NULL));
    assert_int_equal(GOT(store_template, 0)->generation, 1);
    t = (struct store_template){ .name = "data-science", .spec_json = two, .created_ms = 20, .updated_ms = 20 };
    FAILS(ERR_EXISTS, store_template_put(store, &t, &stale, on_template, NULL));
    OK(store_template_put(store, &t, &right, on_template, NULL));
    OK(store_template_get(store, "data-science", on_template, NULL));
    assert_string_equal(GOT(store_template, 0)->spec_json, two);
    assert_int_equal(GOT(store_template, 0)->generation, 2);
    assert_int_equal(GOT(store_template, 0)->created_ms, 10);
    assert_int_equal(GOT(store_template, 0)->updated_ms, 20);
    FAILS(ERR_EXISTS, store_template_delete(store, "data-science", &right, on_done, NULL));
    OK(store_template_delete(store, "data-science", NULL, on_done, NULL));
    FAILS(ERR_MISSING, store_template_get(store, "data-science", on_template, NULL));
    strcpy(t.name, "a b");
    FAILS(ERR_INVALID, store_template_put(store, &t, NULL, on_template, NULL));
}

TEST(templates_are_listed_by_name_page_by_page)
{
    static const char *const names[] = { "delta", "alpha", "charlie", "bravo" };
    struct store_list q = { .limit = 3 };

    for (size_t i = 0; i < 4; i++) {
        struct store_template t = { .created_ms = i };

        strcpy(t.name, names[i]);
        OK(store_template_put(store, &t, NULL, on_template, NULL));
    }
    OK(store_template_list(store, &q, on_templates, NULL));
    assert_int_equal(got.rows.n, 3);
    assert_string_equal(GOT(store_template, 0)->name, "alpha");
    auto_free char *cursor = str_dup(got.next);
    q.cursor = cursor;
    OK(store_template_list(store, &q, on_templates, NULL));
    assert_int_equal(got.rows.n, 1);
    assert_string_equal(GOT(store_template, 0)->name, "delta");
    assert_null(got.next);
}

TEST(an_idempotency_key_can_be_moved_to_the_id_finally_created)
{
    char a[ID_SIZE], b[ID_SIZE], key[] = "k";
    struct store_idem row = { .owner = "anna", .key = key, .at_ms = 1 };

    id_new("sb", a);
    id_new("sb", b);
    memcpy(row.resource, a, sizeof(a));
    OK(store_idem_claim(store, &row, on_idem, NULL));
    OK(store_idem_rename(store, "bert", "k", a, b, on_done, NULL));
    OK(store_idem_rename(store, "anna", "k", b, a, on_done, NULL));
    OK(store_idem_claim(store, &row, on_idem, NULL));
    /* Another owner's key, and an id that the key does not have. */
    assert_string_equal(GOT(store_idem, 0)->resource, a);
    OK(store_idem_rename(store, "anna", "k", a, b, on_done, NULL));
    OK(store_idem_claim(store, &row, on_idem, NULL));
    assert_false(got.fresh);
    assert_string_equal(GOT(store_idem, 0)->resource, b);
}

TEST(event_numbers_increase_whatever_the_clock_does_and_are_never_reused)
{
    struct store_event e = { .owner = "anna", .at_ms = 5000, .kind = str_dup("created") };
    uint64_t last = 0;

    for (int i = 0; i < 5; i++) {
        e.at_ms -= 1000; /* the clock is set back */
        OK(store_event_append(store, &e, on_event, NULL));
        assert_true(got.seq > last);
        last = got.seq;
    }
    OK(store_event_list(store, "anna", NULL, last - 2, 0, on_events, NULL));
    assert_int_equal(got.rows.n, 2);
    assert_int_equal(GOT(store_event, 1)->seq, last);
    OK(store_event_list(store, "anna", NULL, 0, 3, on_events, NULL));
    assert_int_equal(got.rows.n, 3);
    struct store_retention all = { .events_before_ms = 10000 };
    OK(store_gc(store, &all, on_gc, NULL));
    assert_int_equal(got.gc.events, 5);
    OK(store_event_append(store, &e, on_event, NULL));
    assert_true(got.seq > last);
    free(e.kind);
}

static uint64_t range_first, range_last, seen[8];
static size_t nseen;

static void on_range(void *arg UNUSED, const struct err *err, uint64_t first, uint64_t last)
{
    range_first = first;
    range_last = last;
    on_done(NULL, err);
}

static void on_seen(void *arg UNUSED, const struct store_event *row)
{
    assert_string_equal(row->owner, "anna");
    assert_string_equal(row->kind, "created");
    assert_true(nseen < ARRAY_LEN(seen));
    seen[nseen++] = row->seq;
}

TEST(a_listener_receives_exactly_the_committed_events)
{
    struct store_event e = { .owner = "anna", .at_ms = 5, .kind = str_dup("created") };
    struct store_event bad = { .owner = "anna", .at_ms = 5, .kind = str_dup("created") };

    nseen = 0;
    strcpy(bad.sandbox, "sbaaaaaaaaaaaaaaaaaaaa"); /* which does not exist */
    store_on_event(store, on_seen, NULL);
    for (int i = 0; i < 3; i++)
        store_event_append(store, i == 1 ? &bad : &e, NULL, NULL);
    OK(store_event_append(store, &e, on_event, NULL));
    OK(store_event_range(store, on_range, NULL));
    assert_int_equal(nseen, 3);
    assert_true(seen[0] < seen[1] && seen[1] < seen[2]);
    assert_int_equal(seen[2], range_last);
    store_on_event(store, NULL, NULL);
    OK(store_event_append(store, &e, on_event, NULL));
    assert_int_equal(nseen, 3);
    free(e.kind);
    free(bad.kind);
}

TEST(the_range_of_events_outlives_the_events)
{
    struct store_event e = { .owner = "anna", .at_ms = 5 };
    struct store_retention all = { .events_before_ms = 10 };

    OK(store_event_range(store, on_range, NULL));
    assert_int_equal(range_first, 1);
    assert_int_equal(range_last, 0);
    for (int i = 0; i < 3; i++)
        OK(store_event_append(store, &e, on_event, NULL));
    OK(store_event_range(store, on_range, NULL));
    assert_int_equal(range_first, 1);
    assert_int_equal(range_last, 3);
    OK(store_gc(store, &all, on_gc, NULL));
    host_reopen();
    OK(store_event_range(store, on_range, NULL));
    assert_int_equal(range_first, 4);
    assert_int_equal(range_last, 3);
}

TEST(the_first_request_with_a_key_is_fresh_and_later_ones_see_its_result)
{
    char key[] = "k-1", body[] = "{\"id\":\"x\"}";
    struct store_idem claim = { .owner = "anna", .key = key, .resource = "exaaaaaaaaaaaaaaaaaaaa", .at_ms = 7 };

    claim.request_hash[0] = 1;
    OK(store_idem_claim(store, &claim, on_idem, NULL));
    assert_true(got.fresh);
    claim.request_hash[0] = 2;
    strcpy(claim.resource, "exbbbbbbbbbbbbbbbbbbbb");
    OK(store_idem_claim(store, &claim, on_idem, NULL));
    assert_false(got.fresh);
    assert_int_equal(GOT(store_idem, 0)->status, 0); /* still in progress */
    assert_int_equal(GOT(store_idem, 0)->request_hash[0], 1);
    assert_string_equal(GOT(store_idem, 0)->resource, "exaaaaaaaaaaaaaaaaaaaa");
    OK(store_idem_finish(store, "anna", key, 201, body, on_done, NULL));
    OK(store_idem_claim(store, &claim, on_idem, NULL));
    assert_int_equal(GOT(store_idem, 0)->status, 201);
    assert_string_equal(GOT(store_idem, 0)->body, body);
    OK(store_idem_drop(store, "anna", key, claim.resource, on_done, NULL)); /* not the id that the key has */
    OK(store_idem_claim(store, &claim, on_idem, NULL));
    assert_false(got.fresh);
    OK(store_idem_drop(store, "anna", key, "exaaaaaaaaaaaaaaaaaaaa", on_done, NULL));
    OK(store_idem_claim(store, &claim, on_idem, NULL));
    assert_true(got.fresh);
    OK(store_idem_drop(store, "anna", key, NULL, on_done, NULL));
    OK(store_idem_claim(store, &claim, on_idem, NULL));
    assert_true(got.fresh);
}

TEST(meta_is_set_replaced_and_absent_until_then)
{
    OK(store_meta_get(store, "a", on_text, NULL));
    assert_null(got.text);
    OK(store_meta_put(store, "a", "1", on_done, NULL));
    OK(store_meta_put(store, "a", "2", on_done, NULL));
    OK(store_meta_get(store, "a", on_text, NULL));
    assert_string_equal(got.text, "2");
}

/* --- retention --- */

static void add_ended(const struct store_sandbox *sb, uint64_t at, uint64_t bytes, char ret_id[ID_SIZE])
{
    struct store_execution ex = an_execution(sb, at);

    ex.state = STORE_EXECUTION_ENDED;
    ex.ended_ms = at;
    ex.out_bytes[0] = bytes - bytes / 2 + 10;
    ex.dropped[0] = 10;
    ex.out_bytes[2] = bytes / 2 + 7; /* events count like output */
    ex.dropped[2] = 7;
    if (ret_id)
        strcpy(ret_id, ex.id);
    OK(store_execution_insert(store, &ex, on_done, NULL));
}

TEST(retention_removes_old_rows_names_the_executions_and_keeps_live_rows)
{
    struct store_sandbox live = a_sandbox("anna", 1), dead = a_sandbox("anna", 1), later = a_sandbox("anna", 1);
    struct store_execution running = an_execution(&live, 1);
    struct store_event e = { .owner = "anna", .at_ms = 500 };
    char old[ID_SIZE], young[ID_SIZE];
    struct store_retention keep = { .executions_before_ms = 100, .sandboxes_before_ms = 100 };

    dead.state = later.state = STORE_SANDBOX_ENDED;
    dead.ended_ms = 50;
    later.ended_ms = 50;
    OK(store_sandbox_insert(store, &live, 0, on_done, NULL));
    OK(store_sandbox_insert(store, &dead, 0, on_done, NULL));
    OK(store_sandbox_insert(store, &later, 0, on_done, NULL));
    OK(store_execution_insert(store, &running, on_done, NULL));
    add_ended(&live, 50, 0, old);
    add_ended(&later, 150, 0, young); /* keeps its sandbox's tombstone */
    strcpy(e.sandbox, dead.id);
    OK(store_event_append(store, &e, on_event, NULL));

    OK(store_gc(store, &keep, on_gc, NULL));
    assert_int_equal(got.gc.nexecutions, 1);
    assert_string_equal(got.removed[0], old);
    assert_int_equal(got.gc.sandboxes, 1);
    assert_false(got.gc.more);
    FAILS(ERR_MISSING, store_sandbox_get(store, "anna", dead.id, on_sandbox, NULL));
    OK(store_event_list(store, "anna", NULL, 0, 0, on_events, NULL));
    assert_int_equal(got.rows.n, 0); /* the events of a removed sandbox are removed with it */
    OK(store_sandbox_get(store, "anna", later.id, on_sandbox, NULL));
    OK(store_sandbox_get(store, "anna", live.id, on_sandbox, NULL));
    OK(store_execution_get(store, "anna", running.id, on_execution, NULL));
    keep.executions_before_ms = 1000;
    OK(store_gc(store, &keep, on_gc, NULL));
    assert_string_equal(got.removed[0], young);
    assert_int_equal(got.gc.sandboxes, 1);
}

TEST(retention_limits_output_by_removing_the_oldest_first)
{
    struct store_sandbox sb = a_sandbox("anna", 1);
    char ids[5][ID_SIZE];
    struct store_retention keep = { .output_bytes_max = 2500 };

    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    for (uint64_t i = 0; i < 5; i++)
        add_ended(&sb, 100 - i, 1000, ids[i]);
    OK(store_gc(store, &keep, on_gc, NULL));
    assert_int_equal(got.gc.nexecutions, 3);
    assert_string_equal(got.removed[0], ids[4]);
    assert_string_equal(got.removed[1], ids[3]);
    assert_string_equal(got.removed[2], ids[2]);
    OK(store_gc(store, &keep, on_gc, NULL));
    assert_int_equal(got.gc.nexecutions, 0);
}

TEST(a_dry_run_counts_what_would_be_removed_and_removes_nothing)
{
    struct store_sandbox sb = a_sandbox("anna", 1), dead = a_sandbox("anna", 2);
    struct store_retention keep = { .executions_before_ms = 1000, .sandboxes_before_ms = 1000, .dry_run = true };
    char id[ID_SIZE];

    dead.state = STORE_SANDBOX_ENDED;
    dead.ended_ms = 50;
    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    OK(store_sandbox_insert(store, &dead, 0, on_done, NULL));
    for (uint64_t i = 0; i < STORE_GC_BATCH + 50; i++)
        add_ended(&dead, 100, 10, id);
    for (int i = 0; i < 2; i++) {
        OK(store_gc(store, &keep, on_gc, NULL));
        assert_null(got.gc.executions);
        assert_false(got.gc.more);
        assert_int_equal(got.gc.nexecutions, STORE_GC_BATCH + 50);
        assert_int_equal(got.gc.output_bytes, (STORE_GC_BATCH + 50) * 10);
        assert_int_equal(got.gc.sandboxes, 1);
    }
    OK(store_execution_get(store, "anna", id, on_execution, NULL));
    OK(store_sandbox_get(store, "anna", dead.id, on_sandbox, NULL));
}

TEST(retention_works_in_batches_and_says_when_there_is_more)
{
    struct store_sandbox sb = a_sandbox("anna", 1);
    struct store_retention keep = { .executions_before_ms = 100 };
    size_t gone = 0, rounds = 0;

    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    for (uint64_t i = 0; i < STORE_GC_BATCH + 50; i++)
        add_ended(&sb, 1 + i % 50, 0, NULL);
    do {
        OK(store_gc(store, &keep, on_gc, NULL));
        assert_true(got.gc.nexecutions <= STORE_GC_BATCH);
        gone += got.gc.nexecutions;
        rounds++;
    } while (got.gc.more);
    assert_int_equal(gone, STORE_GC_BATCH + 50);
    assert_int_equal(rounds, 2);
}

TEST(retention_limits_the_size_of_the_database)
{
    struct store_sandbox sb = a_sandbox("anna", 1);
    auto_free char *large = mem_alloc(20001);
    struct store_retention keep = { .db_bytes_max = MIB };

    memset(large, 'x', 20000);
    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    for (uint64_t i = 0; i < 150; i++) { /* 3 MB */
        struct store_execution ex = an_execution(&sb, i);

        ex.state = STORE_EXECUTION_ENDED;
        ex.receipt_json = large;
        OK(store_execution_insert(store, &ex, on_done, NULL));
    }
    do
        OK(store_gc(store, &keep, on_gc, NULL));
    while (got.gc.more);
    OK(store_count(store, STORE_ANY_OWNER, on_counts, NULL));
    assert_true(got.counts.db_bytes <= MIB);
    assert_true(got.counts.executions[STORE_EXECUTION_ENDED] > 20); /* and no more than necessary */
    OK(store_check(store, on_done, NULL));
}

TEST(retention_by_size_finally_removes_the_oldest_ended_sandboxes)
{
    auto_free char *large = mem_alloc(20001);
    struct store_retention keep = { .db_bytes_max = MIB };
    struct store_sandbox alive = a_sandbox("anna", 1), last = { 0 };

    memset(large, 'x', 20000);
    OK(store_sandbox_insert(store, &alive, 0, on_done, NULL));
    for (uint64_t i = 0; i < 150; i++) {
        last = a_sandbox("anna", 2 + i);
        last.state = STORE_SANDBOX_ENDED;
        last.ended_ms = 1000 + i;
        last.why_json = large;
        OK(store_sandbox_insert(store, &last, 0, on_done, NULL));
    }
    do
        OK(store_gc(store, &keep, on_gc, NULL));
    while (got.gc.more);
    OK(store_count(store, STORE_ANY_OWNER, on_counts, NULL));
    assert_true(got.counts.db_bytes <= MIB);
    assert_true(got.counts.sandboxes[STORE_SANDBOX_ENDED] > 20);
    OK(store_sandbox_get(store, "anna", alive.id, on_sandbox, NULL));
    OK(store_sandbox_get(store, "anna", last.id, on_sandbox, NULL));
}

/* --- durability --- */

/* Inserts until it is killed; writes each id to the pipe after the store acknowledged it. */
static int tell_fd;

static void on_told(void *arg, const struct err *err)
{
    struct store_sandbox *sb = arg;

    if (err || write(tell_fd, sb->id, ID_SIZE) != ID_SIZE)
        _exit(3);
    id_new("sb", sb->id);
    sb->created_ms++;
    store_sandbox_insert(store, sb, 0, on_told, sb);
}

static void write_until_killed(int fd)
{
    struct err err = { 0 };
    struct store_sandbox rows[8];

    tell_fd = fd;
    ev_free(loop);
    if (ev_new(&loop, &err) < 0 || host_open(&err) < 0)
        _exit(2);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        rows[i] = a_sandbox("anna", 1);
        store_sandbox_insert(store, &rows[i], 0, on_told, &rows[i]);
    }
    ev_run(loop);
    _exit(4);
}

TEST(acknowledged_calls_survive_kill_9_at_any_moment)
{
    static char acked[200000][ID_SIZE];
    size_t n = 0;

    store_close(store);
    store = NULL;
    for (int round = 0; round < 12; round++) {
        struct err err = { 0 };
        int p[2], status;
        size_t begin = n;

        assert_int_equal(pipe(p), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(p[0]);
            write_until_killed(p[1]);
        }
        close(p[1]);
        while (n < ARRAY_LEN(acked) && n - begin < 20 + (size_t)round * 17 % 90 &&
               fd_read_full(p[0], acked[n], ID_SIZE) == ID_SIZE)
            n++;
        kill(pid, SIGKILL);
        while (n < ARRAY_LEN(acked) && fd_read_full(p[0], acked[n], ID_SIZE) == ID_SIZE)
            n++; /* reported before it died */
        close(p[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status));
        if (host_open(&err) < 0)
            fail_msg("round %d: %s", round, err.msg);
        for (size_t i = begin; i < n; i++)
            OK(store_sandbox_get(store, "anna", acked[i], on_sandbox, NULL));
        store_close(store);
        store = NULL;
    }
    host_reopen();
    for (size_t i = 0; i < n; i++)
        OK(store_sandbox_get(store, "anna", acked[i], on_sandbox, NULL));
    OK(store_check(store, on_done, NULL));
    assert_true(n > 200);
}

static size_t backup_ended;

static void on_backup(void *arg UNUSED, const struct err *err)
{
    if (err)
        fail_msg("%s", err->msg);
    backup_ended = 1;
}

TEST(a_backup_of_a_busy_store_is_complete_and_can_be_restored)
{
    auto_free char *path = host_path();
    auto_free char *backup = str_printf("%s/backup", host_dir);
    auto_free char *large = mem_alloc(50001);
    struct store_settings set = { .url = { host_scheme, path } };
    auto_free char *kept = NULL;
    struct err err = { 0 };
    struct store_sandbox before[60], after = a_sandbox("anna", 9);

    memset(large, 'x', 50000);
    for (size_t i = 0; i < 60; i++) { /* 3 MB, so that the backup takes several steps */
        before[i] = a_sandbox("anna", i);
        before[i].spec_json = large;
        OK(store_sandbox_insert(store, &before[i], 0, on_done, NULL));
    }
    backup_ended = 0;
    store_backup(store, backup, on_backup, NULL);
    for (size_t i = 0; i < 2000 && !backup_ended; i++) { /* the store keeps working meanwhile */
        struct store_sandbox sb = a_sandbox("bert", i);

        OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    }
    assert_int_equal(backup_ended, 1);
    FAILS(ERR_EXISTS, store_backup(store, backup, on_done, NULL));
    OK(store_sandbox_insert(store, &after, 0, on_done, NULL));
    assert_int_equal(store_restore(&set, backup, &kept, &err), -1); /* not while a server uses it */
    assert_int_equal(err.id, ERR_STORE_IN_USE);
    store_close(store);
    store = NULL;

    assert_int_equal(store_restore(&set, "/nonexistent/backup", &kept, &err), -1);
    assert_int_equal(err.id, ERR_STORE_FAILED);
    if (store_restore(&set, backup, &kept, &err) < 0)
        fail_msg("%s", err.msg);
    if (host_open(&err) < 0)
        fail_msg("%s", err.msg);
    for (size_t i = 0; i < 60; i++)
        OK(store_sandbox_get(store, "anna", before[i].id, on_sandbox, NULL));
    FAILS(ERR_MISSING, store_sandbox_get(store, "anna", after.id, on_sandbox, NULL));
    OK(store_check(store, on_done, NULL));
    OK(store_sandbox_insert(store, &after, 0, on_done, NULL)); /* it can be written to */
}

/* --- a database without backups --- */

static struct store_backend no_backup; /* replaces every backend while its name is set */

const struct store_backend *__real_stores_backend(enum store_scheme scheme);
const struct store_backend *__wrap_stores_backend(enum store_scheme scheme);
const struct store_backend *__wrap_stores_backend(enum store_scheme scheme)
{
    return no_backup.name ? &no_backup : __real_stores_backend(scheme);
}

TEST(backup_and_restore_are_refused_for_a_database_that_has_none)
{
    auto_free char *path = host_path();
    auto_free char *backup = str_printf("%s/backup", host_dir);
    struct store_settings set = { .url = { host_scheme, path } };
    struct store_sandbox sb = a_sandbox("anna", 1);
    struct err err = { 0 };
    char *kept = NULL;

    store_close(store);
    no_backup = *__real_stores_backend(host_scheme);
    no_backup.name = "Oracle";
    no_backup.backup = NULL;
    no_backup.abandon_backup = NULL;
    no_backup.restore = NULL;
    assert_int_equal(host_open(&err), 0);
    FAILS(ERR_NOT_SUPPORTED_YET, store_backup(store, backup, on_done, NULL));
    assert_non_null(strstr(got.err.msg, "Oracle"));
    assert_int_equal(access(backup, F_OK), -1);
    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL)); /* the store continues to work */
    store_close(store);
    store = NULL;
    assert_int_equal(store_restore(&set, backup, &kept, &err), -1);
    assert_int_equal(err.id, ERR_NOT_SUPPORTED_YET);
    assert_null(kept);
    no_backup.name = NULL;
}

TEST(a_store_exists_after_it_was_opened_once)
{
    auto_free char *path = host_path();
    auto_free char *other = str_printf("%s/other.db", host_dir);
    struct err err = { 0 };

    assert_int_equal(store_check_exists(&(struct store_settings){ .url = { host_scheme, path } }, &err), 0);
    assert_int_equal(store_check_exists(&(struct store_settings){ .url = { host_scheme, other } }, &err), -1);
    assert_int_equal(err.id, ERR_MISSING);
    assert_non_null(strstr(err.msg, "other.db"));
}

#define RUN_STORE(name) cmocka_unit_test_setup_teardown(name, host_setup, host_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_STORE(every_column_of_a_sandbox_is_read_back_and_an_update_changes_only_named_columns),
        RUN_STORE(every_column_of_an_execution_is_read_back_and_an_update_changes_only_named_columns),
        RUN_STORE(every_column_of_a_key_is_read_back_and_an_update_changes_only_named_columns),
        RUN_STORE(every_column_of_events_and_idempotency_keys_is_read_back),
        RUN_STORE(a_duplicate_id_is_refused_and_the_first_row_stays),
        RUN_STORE(a_change_of_state_happens_only_from_the_states_it_names),
        RUN_STORE(AU19_of_a_hundred_creations_at_the_limit_minus_one_exactly_one_succeeds),
        RUN_STORE(an_execution_needs_a_sandbox_of_the_same_owner),
        RUN_STORE(pages_neither_repeat_nor_skip_a_row_during_inserts_and_removals),
        RUN_STORE(a_name_is_unique_among_the_sandboxes_of_an_owner_that_have_not_ended),
        RUN_STORE(a_list_by_metadata_follows_each_change_and_the_removal_of_a_sandbox),
        RUN_STORE(lists_are_filtered_by_state_metadata_and_sandbox_and_can_be_reversed),
        RUN_STORE(executions_of_all_sandboxes_are_listed_by_state_and_outcome),
        RUN_STORE(a_list_never_exceeds_its_limit_and_says_when_there_is_more),
        RUN_STORE(ST01_hostile_strings_are_plain_data_in_every_field),
        RUN_STORE(strings_that_are_too_long_or_not_utf8_are_refused_and_nothing_is_written),
        RUN_STORE(invalid_cursors_are_refused),
        RUN_STORE(ST07_every_call_sees_only_rows_of_its_owner),
        RUN_STORE(AU04_a_cursor_of_another_owner_lists_only_own_rows),
        RUN_STORE(calls_are_answered_in_order_never_reentrantly_and_committed_together),
        RUN_STORE(a_detached_call_takes_effect_without_an_answer),
        RUN_STORE(closing_answers_pending_calls_and_refuses_new_ones),
        RUN_STORE(finishing_answers_pending_calls_and_later_ones_are_written_unanswered),
        RUN_STORE(calls_beyond_the_memory_limit_are_refused_and_the_others_succeed),
        RUN_STORE(a_key_is_found_by_its_hash_only_and_the_first_one_only_once),
        RUN_STORE(the_last_use_of_keys_is_recorded_in_bulk_and_never_decreases),
        RUN_STORE(a_template_is_replaced_only_with_its_generation),
        RUN_STORE(templates_are_listed_by_name_page_by_page),
        RUN_STORE(an_idempotency_key_can_be_moved_to_the_id_finally_created),
        RUN_STORE(a_listener_receives_exactly_the_committed_events),
        RUN_STORE(the_range_of_events_outlives_the_events),
        RUN_STORE(event_numbers_increase_whatever_the_clock_does_and_are_never_reused),
        RUN_STORE(the_first_request_with_a_key_is_fresh_and_later_ones_see_its_result),
        RUN_STORE(meta_is_set_replaced_and_absent_until_then),
        RUN_STORE(retention_removes_old_rows_names_the_executions_and_keeps_live_rows),
        RUN_STORE(retention_limits_output_by_removing_the_oldest_first),
        RUN_STORE(a_dry_run_counts_what_would_be_removed_and_removes_nothing),
        RUN_STORE(retention_works_in_batches_and_says_when_there_is_more),
        RUN_STORE(retention_limits_the_size_of_the_database),
        RUN_STORE(retention_by_size_finally_removes_the_oldest_ended_sandboxes),
        RUN_STORE(acknowledged_calls_survive_kill_9_at_any_moment),
        RUN_STORE(a_backup_of_a_busy_store_is_complete_and_can_be_restored),
        RUN_STORE(backup_and_restore_are_refused_for_a_database_that_has_none),
        RUN_STORE(a_store_exists_after_it_was_opened_once),
    };
    int failed = 0;

    for (host_scheme = 0; host_scheme < STORE_SCHEME_COUNT; host_scheme++)
        failed += cmocka_run_group_tests_name(stores_backend(host_scheme)->name, tests, NULL, NULL);
    return failed;
}
