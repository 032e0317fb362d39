/* The place of a store, as users write it. */
#include "tests/unit/test.h"

#include "core/base/str.h"
#include "main/conf/conf.h"
#include "store/store_url.h"

TEST(a_path_is_absolute_or_begins_at_the_state_directory)
{
    static const struct {
        const char *text, *file;
    } cases[] = {
        { "sqlite:/srv/cove/my.db", "/srv/cove/my.db" },   { "sqlite:cove.db", "/state/cove.db" },
        { "sqlite:db/one.db", "/state/db/one.db" },        { "sqlite:", "/state/cove.db" },
        { "sqlite:/srv/a b%20:c.db", "/srv/a b%20:c.db" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct store_url url;
        struct err err = { 0 };

        if (store_url_parse(cases[i].text, "/state", &url, &err) < 0)
            fail_msg("%s: %s", cases[i].text, err.msg);
        assert_int_equal(url.scheme, STORE_SCHEME_SQLITE);
        assert_string_equal(url.file, cases[i].file);
        store_url_done(&url);
        assert_null(url.file);
    }
}

TEST(an_invalid_url_is_refused_with_the_form_to_write)
{
    static const struct {
        const char *text;
        enum err_id id;
        const char *says;
    } cases[] = {
        { "oracle:scott/tiger", ERR_CONF_VALUE, "unknown scheme 'oracle'; use sqlite:PATH" },
        { "SQLITE:/x.db", ERR_CONF_VALUE, "unknown scheme 'SQLITE'" },
        { "postgres://cove:secret@db/cove", ERR_NOT_SUPPORTED_YET, "no PostgreSQL support yet; use sqlite:PATH" },
        { "postgresql://cove:secret@db/cove", ERR_NOT_SUPPORTED_YET, "no PostgreSQL support yet" },
        { "/var/lib/cove.db", ERR_CONF_VALUE, "has no scheme; write sqlite:PATH" },
        { "", ERR_CONF_VALUE, "has no scheme" },
        { "sqlite:///srv/x.db", ERR_CONF_VALUE, "begins with //" },
        { "sqlite:x.db?mode=ro", ERR_CONF_VALUE, "has parameters" },
        { "sqlite:/srv/", ERR_CONF_VALUE, "is a directory" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct store_url url;
        struct err err = { 0 };

        assert_int_equal(store_url_parse(cases[i].text, "/state", &url, &err), -1);
        if (err.id != cases[i].id || !strstr(err.msg, cases[i].says) || !str_starts(err.msg, "store.url: "))
            fail_msg("'%s': %s", cases[i].text, err.msg);
        assert_null(strstr(err.msg, "secret"));
        assert_null(strstr(err.msg, "tiger"));
    }
}

TEST(the_default_is_a_file_of_the_state_directory)
{
    struct store_url url;
    struct err err = { 0 };

    assert_int_equal(store_url_parse(setting_info(SETTING_STORE_URL)->def, "/state", &url, &err), 0);
    assert_string_equal(url.file, "/state/cove.db");
    store_url_done(&url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_path_is_absolute_or_begins_at_the_state_directory),
        RUN(an_invalid_url_is_refused_with_the_form_to_write),
        RUN(the_default_is_a_file_of_the_state_directory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
