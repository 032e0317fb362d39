#include "tests/unit/test.h"

#include "core/base/jsonr.h"
#include "core/base/mem.h"
#include "core/base/str.h"

static int read_text(const char *text, struct json_doc *doc, struct err *err)
{
    return json_read(text, strlen(text), doc, err);
}

TEST(a_document_with_all_kinds_of_values_is_read)
{
    struct json_doc d = { 0 };
    struct err err = { 0 };
    uint64_t v;

    assert_int_equal(
        read_text(" {\"a\": [1, -2.5e3, true, false, null], \"b\": {\"c\": \"text\"}, \"n\":18446744073709551615,"
                  " \"e\": [], \"o\": {}}\n",
                  &d, &err),
        0);
    const struct json *a = json_get(d.root, "a");
    assert_int_equal(a->kind, JSON_ARRAY);
    assert_true(json_u64(a->child, &v) && v == 1);
    assert_false(json_u64(a->child->next, &v)); /* not a whole number */
    assert_int_equal(a->child->next->next->kind, JSON_TRUE);
    assert_int_equal(a->child->next->next->next->next->kind, JSON_NULL);
    assert_null(a->child->next->next->next->next->next);
    assert_string_equal(json_text(json_get(json_get(d.root, "b"), "c")), "text");
    assert_true(json_u64(json_get(d.root, "n"), &v) && v == UINT64_MAX);
    assert_null(json_get(d.root, "e")->child);
    assert_null(json_get(d.root, "x"));
    assert_null(json_get(json_get(d.root, "x"), "y"));
    assert_null(json_text(json_get(d.root, "n")));
    json_doc_done(&d);
}

TEST(strings_are_unescaped)
{
    struct json_doc d = { 0 };
    struct err err = { 0 };

    assert_int_equal(
        read_text("[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\", \"\\u00e9\\u20AC\\ud83d\\ude00\", \"é\", \"\"]", &d, &err), 0);
    assert_string_equal(d.root->child->text, "\"\\/\b\f\n\r\t");
    assert_string_equal(d.root->child->next->text, "é€😀");
    assert_string_equal(d.root->child->next->next->text, "é");
    assert_string_equal(d.root->child->next->next->next->text, "");
    json_doc_done(&d);
}

TEST(invalid_json_is_refused_with_its_line)
{
    static const char *const bad[] = {
        "",      "{",       "}",         "[1,]",         "{\"a\"}",     "{\"a\":}",    "{a:1}",
        "[01]",  "[1.]",    "[1e]",      "[-]",          "[+1]",        "nul",         "truex",
        "[\"a]", "\"\\x\"", "\"\\u12\"", "\"\\ud800\"",  "\"\\udc00\"", "\"\\u0000\"", "\"a\tb\"",
        "[1] 2", "[1 2]",   "\"\xff\"",  "\"\xc0\x80\"", "{\"a\":1,}",  "'a'",
    };
    struct json_doc d = { 0 };
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (read_text(bad[i], &d, &err) == 0 || err.id != ERR_INVALID)
            fail_msg("'%s' was accepted", bad[i]);
    assert_int_equal(read_text("{\n\"a\": 1,\n\"b\": ?\n}", &d, &err), -1);
    assert_non_null(strstr(err.msg, "line 3"));
    assert_int_equal(json_read("[1]\0", 4, &d, &err), -1); /* NUL is not whitespace */
}

TEST(nesting_depth_is_bounded)
{
    char text[2 * JSON_DEPTH_MAX + 3];
    struct json_doc d = { 0 };
    struct err err = { 0 };

    memset(text, '[', JSON_DEPTH_MAX);
    memset(text + JSON_DEPTH_MAX, ']', JSON_DEPTH_MAX);
    text[2 * JSON_DEPTH_MAX] = '\0';
    assert_int_equal(read_text(text, &d, &err), 0);
    json_doc_done(&d);
    memset(text, '[', JSON_DEPTH_MAX + 1);
    memset(text + JSON_DEPTH_MAX + 1, ']', JSON_DEPTH_MAX + 1);
    text[2 * JSON_DEPTH_MAX + 2] = '\0';
    assert_int_equal(read_text(text, &d, &err), -1);
    auto_free char *deep = mem_alloc(1000001);
    memset(deep, '[', 1000000);
    assert_int_equal(read_text(deep, &d, &err), -1);
}

/* Every prefix of a document, in a block of exactly that size: nothing is read past the end. */
TEST(every_truncated_document_is_refused_without_reading_past_its_end)
{
    static const char whole[] = "{\"k\\u00e9\": [1.5e+3, \"x\\\"\", {\"é\": null}], \"t\": true}";
    struct json_doc d = { 0 };
    struct err err = { 0 };

    for (size_t n = 0; n < strlen(whole); n++) {
        auto_free char *cut = mem_copy(whole, n ? n : 1);

        assert_int_equal(json_read(cut, n, &d, &err), -1);
    }
    assert_int_equal(read_text(whole, &d, &err), 0);
    json_doc_done(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_document_with_all_kinds_of_values_is_read),
        RUN(strings_are_unescaped),
        RUN(invalid_json_is_refused_with_its_line),
        RUN(nesting_depth_is_bounded),
        RUN(every_truncated_document_is_refused_without_reading_past_its_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
