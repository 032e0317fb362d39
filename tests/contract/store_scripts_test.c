/* Scripts, on every store. */
#include "store_host.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "store/scripts.h"

#include <stdio.h>

static const struct store_script_quota wide = { .count = 100, .bytes = MIB };

/* A script whose digest begins with this byte; its texts are constants. */
static struct store_script a_script(const char *owner, uint8_t digest, const char *code, uint64_t used_ms)
{
    struct store_script s = { .digest = { digest },
                              .language = (char *)"python",
                              .code = (char *)code,
                              .size_bytes = strlen(code),
                              .created_ms = used_ms,
                              .last_used_ms = used_ms };

    id_new("sc", s.id);
    id_new("ex", s.last_execution);
    str_copy(s.owner, sizeof(s.owner), owner);
    return s;
}

static struct store_script keep(const char *owner, uint8_t digest, const char *code, uint64_t used_ms)
{
    struct store_script s = a_script(owner, digest, code, used_ms);

    OK(store_script_keep(store, &s, &wide, on_script_kept, NULL));
    return s;
}

static void search(const char *owner, const char *text)
{
    OK(store_script_search(store, &(struct store_script_search){ .owner = owner, .text = text }, on_scripts, NULL));
}

/* The digests of the scripts that were found, in their order: "abc". */
static const char *found(void)
{
    static char letters[64];
    size_t n = 0;

    for (; n < got.rows.n && n + 1 < sizeof(letters); n++)
        letters[n] = (char)GOT(store_script, n)->digest[0];
    letters[n] = '\0';
    return letters;
}

TEST(a_script_is_read_back_as_it_was_kept)
{
    struct store_script s = a_script("anna", 'a', "print(1)\n", 20);

    s.description = (char *)"Prints one number.";
    s.created_by = (char *)"usaaaaaaaaaaaaaaaaaaaa";
    s.created_ms = 10;
    OK(store_script_keep(store, &s, &wide, on_script_kept, NULL));
    assert_true(got.fresh);
    assert_null(GOT(store_script, 0)->code);
    host_reopen();
    OK(store_script_get(store, "anna", s.id, on_script, NULL));
    const struct store_script *is = GOT(store_script, 0);
    assert_string_equal(is->id, s.id);
    assert_string_equal(is->owner, "anna");
    assert_memory_equal(is->digest, s.digest, STORE_HASH_LEN);
    assert_string_equal(is->language, "python");
    assert_string_equal(is->description, s.description);
    assert_string_equal(is->code, s.code);
    assert_int_equal(is->size_bytes, strlen(s.code));
    assert_int_equal(is->uses, 1);
    assert_int_equal(is->created_ms, 10);
    assert_int_equal(is->last_used_ms, 20);
    assert_string_equal(is->last_execution, s.last_execution);
    assert_string_equal(is->created_by, s.created_by);
    OK(store_script_find(store, "anna", s.digest, on_script, NULL));
    assert_string_equal(GOT(store_script, 0)->id, s.id);
    assert_string_equal(GOT(store_script, 0)->code, s.code);
}

TEST(the_same_code_is_kept_once_for_a_tenant_and_its_uses_are_counted)
{
    struct store_script first = keep("anna", 'a', "print(1)", 10);
    struct store_script again = keep("anna", 'a', "print(1)", 30);

    assert_false(got.fresh);
    assert_string_equal(GOT(store_script, 0)->id, first.id);
    assert_int_equal(GOT(store_script, 0)->uses, 2);
    assert_int_equal(GOT(store_script, 0)->created_ms, 10);
    assert_int_equal(GOT(store_script, 0)->last_used_ms, 30);
    assert_string_equal(GOT(store_script, 0)->last_execution, again.last_execution);
    keep("anna", 'a', "print(1)", 20); /* the clock was set back */
    assert_int_equal(GOT(store_script, 0)->last_used_ms, 30);
    keep("bert", 'a', "print(1)", 40);
    assert_true(got.fresh);
    search("anna", NULL);
    assert_int_equal(got.rows.n, 1);
}

TEST(another_tenant_does_not_see_a_script)
{
    struct store_script s = keep("anna", 'a', "print('secret')", 10);

    FAILS(ERR_MISSING, store_script_get(store, "bert", s.id, on_script, NULL));
    FAILS(ERR_MISSING, store_script_find(store, "bert", s.digest, on_script, NULL));
    FAILS(ERR_MISSING, store_script_delete(store, "bert", s.id, on_done, NULL));
    search("bert", "secret");
    assert_int_equal(got.rows.n, 0);
    assert_int_equal(got.total, 0);
    search(STORE_ANY_OWNER, "secret");
    assert_int_equal(got.rows.n, 1);
    OK(store_script_delete(store, "anna", s.id, on_done, NULL));
    FAILS(ERR_MISSING, store_script_get(store, "anna", s.id, on_script, NULL));
    FAILS(ERR_MISSING, store_script_delete(store, "anna", s.id, on_done, NULL));
}

TEST(the_script_that_was_not_used_for_the_longest_time_is_evicted)
{
    const struct store_script_quota three = { .count = 3, .bytes = 100 };
    struct store_script d = a_script("anna", 'd', "4444", 50), e = a_script("anna", 'e', "5", 5);

    keep("bert", 'x', "x", 1);
    keep("anna", 'a', "1", 10);
    keep("anna", 'b', "2", 20);
    keep("anna", 'c', "3", 30);
    keep("anna", 'a', "1", 40); /* used again: b is the oldest now */
    OK(store_script_keep(store, &d, &three, on_script_kept, NULL));
    assert_int_equal(got.total, 1);
    search("anna", NULL);
    assert_string_equal(found(), "dac");
    /* The new script stays, even if its clock is behind. */
    OK(store_script_keep(store, &e, &three, on_script_kept, NULL));
    search("anna", NULL);
    assert_string_equal(found(), "dae");
    /* A smaller quota holds after the next use: 4 and 1 bytes remain. */
    OK(store_script_keep(store, &d, &(struct store_script_quota){ .count = 9, .bytes = 5 }, on_script_kept, NULL));
    assert_int_equal(got.total, 1);
    search("anna", NULL);
    assert_string_equal(found(), "da");
    search("bert", NULL);
    assert_string_equal(found(), "x");
}

TEST(a_script_that_exceeds_the_quota_alone_evicts_nothing)
{
    struct store_script big = a_script("anna", 'b', "0123456789", 20);

    keep("anna", 'a', "1", 10);
    FAILS(ERR_LIMIT, store_script_keep(store, &big, &(struct store_script_quota){ 10, 9 }, on_script_kept, NULL));
    FAILS(ERR_LIMIT, store_script_keep(store, &big, &(struct store_script_quota){ 0, 900 }, on_script_kept, NULL));
    search("anna", NULL);
    assert_string_equal(found(), "a");
}

TEST(a_search_finds_every_word_in_description_or_code_and_ranks_by_matches_then_by_use)
{
    struct store_script s = a_script("anna", 'd', "import json", 5);

    s.description = (char *)"Reads a CSV file; csv, CSV.";
    s.language = (char *)"node";
    OK(store_script_keep(store, &s, &wide, on_script_kept, NULL));
    keep("anna", 'a', "import csv\nprint(1)", 10);
    keep("anna", 'b', "import csv\nimport json", 20);
    keep("anna", 'c', "import os", 30);
    search("anna", "csv");
    assert_string_equal(found(), "dba");
    search("anna", "CSV Import");
    assert_string_equal(found(), "dba"); /* 4, 3 and 2 matches */
    search("anna", "json\ncsv");
    assert_string_equal(found(), "db");
    search("anna", "csv missing");
    assert_string_equal(found(), "");
    search("anna", "");
    assert_string_equal(found(), "cbad");
    OK(store_script_search(store,
                           &(struct store_script_search){ .owner = "anna", .text = "import", .language = "node" },
                           on_scripts, NULL));
    assert_string_equal(found(), "d");
}

TEST(a_search_is_read_page_by_page)
{
    struct store_script_search q = { .owner = "anna", .text = "print", .limit = 3 };
    char all[64] = "";

    for (unsigned i = 0; i < 40; i++) /* more than one page of the scan */
        keep("anna", (uint8_t)('0' + i), i % 2 ? "print(1)" : "print(1); print(2)", 100 + i / 4);
    for (unsigned pages = 0;; pages++) {
        auto_free char *cursor = got.next ? str_dup(got.next) : NULL;

        q.cursor = pages ? cursor : NULL;
        OK(store_script_search(store, &q, on_scripts, NULL));
        assert_int_equal(got.total, 40);
        strcat(all, found());
        if (!got.next)
            break;
        assert_true(pages < 14);
    }
    assert_int_equal(strlen(all), 40);
    for (unsigned i = 0; i < 40; i++)
        assert_non_null(strchr(all, (char)('0' + i)));
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal((all[i] - '0') % 2, 0); /* two matches first */
}

static unsigned answered_before;

static void on_other_call(void *arg UNUSED, const struct err *err UNUSED, const char *value UNUSED)
{
    answered_before += !got.answered;
}

TEST(a_long_search_lets_other_calls_run)
{
    const struct store_script_search q = { .owner = "anna", .text = "xxx" };
    char *code = mem_alloc(MIB);

    memset(code, 'y', MIB - 1);
    memcpy(code, "xxx", 3);
    code[MIB - 1] = '\0';
    for (uint8_t i = 0; i < 12; i++) {
        struct store_script s = a_script("anna", (uint8_t)('a' + i), code, 100u + i);

        OK(store_script_keep(store, &s, &(struct store_script_quota){ 100, 64 * MIB }, on_script_kept, NULL));
    }
    answered_before = 0;
    host_begin();
    store_script_search(store, &q, on_scripts, NULL);
    ev_turn(loop, 0); /* the first step begins */
    store_meta_get(store, "other", on_other_call, NULL);
    host_await();
    assert_int_equal(answered_before, 1);
    assert_int_equal(got.total, 12);
    assert_int_equal(got.rows.n, 12);
    free(code);
}

TEST(hostile_words_cursors_and_texts_are_refused_or_find_nothing)
{
    static const char *const cursors[] = {
        "", "x", "0000", "00000000000000000", "0000000000000000scAAAA", "0000000000000000exaaaaaaaaaaaaaaaaaaaa"
    };
    char words[STORE_SCRIPT_SEARCH_MAX + 2] = { 0 };
    struct store_script s = a_script("anna", 'a', "\x01\x1b[2J\r\t\x7f", 10);

    OK(store_script_keep(store, &s, &wide, on_script_kept, NULL));
    search("anna", "' OR 1=1 --");
    assert_int_equal(got.rows.n, 0);
    search("anna", "%");
    assert_int_equal(got.rows.n, 0);
    search("anna", "\x1b[2j"); /* control characters are text like any other */
    assert_int_equal(got.rows.n, 1);
    memset(words, 'a', sizeof(words) - 1);
    const struct store_script_search q = { .owner = "anna", .text = words };
    FAILS(ERR_INVALID, store_script_search(store, &q, on_scripts, NULL));
    words[STORE_SCRIPT_SEARCH_MAX] = '\0';
    OK(store_script_search(store, &q, on_scripts, NULL));
    for (size_t i = 1; i < STORE_SCRIPT_SEARCH_MAX; i += 2)
        words[i] = ' ';
    FAILS(ERR_INVALID, store_script_search(store, &q, on_scripts, NULL));
    for (size_t i = 0; i < ARRAY_LEN(cursors); i++) {
        const struct store_script_search bad = { .owner = "anna", .cursor = cursors[i] };

        FAILS(ERR_INVALID, store_script_search(store, &bad, on_scripts, NULL));
    }
    s.digest[0] = 'b';
    s.code = (char *)"\xff";
    FAILS(ERR_INVALID, store_script_keep(store, &s, &wide, on_script_kept, NULL));
    s.code = NULL;
    FAILS(ERR_INVALID, store_script_keep(store, &s, &wide, on_script_kept, NULL));
}

TEST(retention_removes_scripts_by_their_last_use)
{
    struct store_retention old = { .scripts_before_ms = 30, .dry_run = true };

    keep("anna", 'a', "1", 10);
    keep("bert", 'b', "2", 20);
    keep("anna", 'c', "3", 30);
    keep("anna", 'a', "1", 40);
    OK(store_gc(store, &old, on_gc, NULL));
    assert_int_equal(got.gc.scripts, 1);
    search(STORE_ANY_OWNER, NULL);
    assert_string_equal(found(), "acb");
    old.dry_run = false;
    OK(store_gc(store, &old, on_gc, NULL));
    assert_int_equal(got.gc.scripts, 1);
    search(STORE_ANY_OWNER, NULL);
    assert_string_equal(found(), "ac");
    OK(store_count(store, "anna", on_counts, NULL));
    assert_int_equal(got.counts.scripts, 2);
    assert_int_equal(got.counts.script_bytes, 2);
}

TEST(the_scripts_of_a_tenant_are_removed_with_it)
{
    keep("anna", 'a', "1", 10);
    keep("bert", 'b', "2", 20);
    OK(store_tenant_remove(store, "anna", 50, on_done, NULL));
    search(STORE_ANY_OWNER, NULL);
    assert_string_equal(found(), "b");
    OK(store_check(store, on_done, NULL));
}

#define RUN_STORE(f) cmocka_unit_test_setup_teardown(f, host_setup, host_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_STORE(a_script_is_read_back_as_it_was_kept),
        RUN_STORE(the_same_code_is_kept_once_for_a_tenant_and_its_uses_are_counted),
        RUN_STORE(another_tenant_does_not_see_a_script),
        RUN_STORE(the_script_that_was_not_used_for_the_longest_time_is_evicted),
        RUN_STORE(a_script_that_exceeds_the_quota_alone_evicts_nothing),
        RUN_STORE(a_search_finds_every_word_in_description_or_code_and_ranks_by_matches_then_by_use),
        RUN_STORE(a_search_is_read_page_by_page),
        RUN_STORE(a_long_search_lets_other_calls_run),
        RUN_STORE(hostile_words_cursors_and_texts_are_refused_or_find_nothing),
        RUN_STORE(retention_removes_scripts_by_their_last_use),
        RUN_STORE(the_scripts_of_a_tenant_are_removed_with_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
