/* The digest and the description of scripts. */
#include "tests/unit/test.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/script_cache.h"

TEST(the_description_is_the_first_line_of_text_in_a_comment_or_docstring)
{
    static const struct {
        const char *code, *description;
    } cases[] = {
        { "# Reads a table.\nprint(1)\n", "Reads a table." },
        { "#!/usr/bin/env python3\n# -*- coding: utf-8 -*-\n\n## Sums it up ##\n", "Sums it up" },
        { "\"\"\"Counts words.\n\nMore.\"\"\"\nimport os\n", "Counts words." },
        { "\"\"\"\n  Counts words.\n\"\"\"\n", "Counts words." },
        { "'''Counts.'''\n", "Counts." },
        { "// Lists files\nconsole.log(1)\n", "Lists files" },
        { "/**\n * Lists files.\n */\nf()\n", "Lists files." },
        { "/* Lists files. */ f()", "Lists files." },
        { "#!/bin/sh\nset -e\n# Cleans up\n", "Cleans up" },
        { "import os\r\n# Reads.\r\n", "Reads." },
        { "\"\"\"\n\"\"\"\nprint(1)\n", NULL }, /* an empty docstring does not make code a description */
        { "/*\n*/\nprint(1)\n", NULL },
        { "print('# no')\n", NULL },
        { "#\n#\n", NULL },
        { "", NULL },
        { "# a\x1b[31mb\n", "a?[31mb" },
        { "# \xff\xfe", NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_free char *is = script_description(cases[i].code);

        if (!is != !cases[i].description || (is && !str_eq(is, cases[i].description)))
            fail_msg("case %zu: %s", i, is ? is : "none");
    }
}

TEST(a_description_is_cut_at_a_character_and_looked_for_in_the_first_lines_only)
{
    char code[1000] = "# ";

    for (size_t i = 0; i < 300; i++)
        strcat(code, "\xc3\xa9"); /* two bytes */
    auto_free char *cut = script_description(code);
    assert_int_equal(strlen(cut), STORE_SCRIPT_DESCRIPTION_MAX);
    code[0] = '\0';
    for (size_t i = 0; i < 60; i++)
        strcat(code, "f()\n");
    strcat(code, "# late\n");
    assert_null(script_description(code));
}

TEST(the_digest_depends_on_language_and_code)
{
    uint8_t a[STORE_HASH_LEN], b[STORE_HASH_LEN], back[STORE_HASH_LEN];
    char text[2 * STORE_HASH_LEN + 1];

    script_digest("python", "print(1)", a);
    script_digest_format(a, text);
    assert_string_equal(text, "8f07b0dc61ae887df72180c7e8622719e5ead981f2cc3cbb7a67af61b3d4b451");
    assert_true(script_digest_parse(text, back));
    assert_memory_equal(a, back, sizeof(a));
    script_digest("node", "print(1)", b);
    assert_memory_not_equal(a, b, sizeof(a));
    script_digest("pythonp", "rint(1)", b);
    assert_memory_not_equal(a, b, sizeof(a));
    text[5] = 'G';
    assert_false(script_digest_parse(text, back));
    assert_false(script_digest_parse("", back));
    text[5] = '\0';
    assert_false(script_digest_parse(text, back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_description_is_the_first_line_of_text_in_a_comment_or_docstring),
        cmocka_unit_test(a_description_is_cut_at_a_character_and_looked_for_in_the_first_lines_only),
        cmocka_unit_test(the_digest_depends_on_language_and_code),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
