/* Settings come from three sources and must mean the same in each; an error is never ignored. */
#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "main/conf/conf.h"
#include "policy/driver.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static struct problems pr;

static int read_text(struct conf *c, const char *text)
{
    pr = (struct problems){ .file = "cove.yaml" };
    return conf_read(c, text, strlen(text), &pr);
}

TEST(flags_override_variables_and_variables_override_the_file)
{
    char *const env[] = { (char[]){ "COVE_LOG_LEVEL=warn" }, (char[]){ "COVE_HTTP_MAX_BODY=2M" }, (char[]){ "HOME=/" },
                          NULL };
    struct conf c;
    struct err err = { 0 };

    conf_init(&c);
    assert_string_equal(conf_text(&c, SETTING_LOG_LEVEL), "info");
    assert_int_equal(read_text(&c, "listen: 0.0.0.0:80\nlog:\n  level: debug\n  format: json\n"), 0);
    assert_int_equal(conf_read_environment(&c, env, &err), 0);
    assert_int_equal(conf_read_flag(&c, "--http-max-body", "3M", &err), 0);
    assert_string_equal(conf_text(&c, SETTING_LISTEN), "0.0.0.0:80");
    assert_string_equal(conf_text(&c, SETTING_LOG_LEVEL), "warn");
    assert_string_equal(conf_text(&c, SETTING_LOG_FORMAT), "json");
    assert_int_equal(conf_number(&c, SETTING_HTTP_BODY), 3 * MIB);
    assert_int_equal(conf_number(&c, SETTING_DRAIN), 10000);
    assert_int_equal(c.v[SETTING_LOG_FORMAT].line, 4);
    conf_done(&c);
}

TEST(an_error_in_a_file_names_its_line_and_the_nearest_setting)
{
    static const struct {
        const char *text;
        enum err_id id;
        uint32_t line;
        const char *says;
    } cases[] = {
        { "log:\n  levle: debug\n", ERR_CONF_KEY, 2, "did you mean 'log.level'?" },
        { "\nlistne: x\n", ERR_CONF_KEY, 2, "did you mean 'listen'?" },
        { "wholly: other\n", ERR_CONF_KEY, 1, "there is no setting 'wholly'" },
        { "log: debug\n", ERR_CONF_VALUE, 1, "log must be a mapping of settings" },
        { "log:\n  level: loud\n", ERR_CONF_VALUE, 2, "'loud' is not one of debug|info|warn|error" },
        { "http:\n  maxBody: 12x\n", ERR_CONF_VALUE, 2, "is not a size, for example 256M" },
        { "http:\n  maxBody: 1\n", ERR_CONF_VALUE, 2, "http.maxBody must be from 1K to 1G" },
        { "drainTimeout: 30\n", ERR_CONF_VALUE, 1, "is not a time with its unit" },
        { "limits:\n  enforced: perhaps\n", ERR_CONF_VALUE, 2, "neither true nor false" },
        { "store: [sqlite:a.db]\n", ERR_CONF_VALUE, 1, "store must be a mapping of settings" },
        { "listen: [a, b]\n", ERR_CONF_VALUE, 1, "listen must be a single value, not a list" },
        { "allowedHosts: [[a]]\n", ERR_CONF_VALUE, 1, "a list of texts" },
        { "- listen\n", ERR_CONF_SYNTAX, 1, "not a mapping" },
        { "listen: {\n", ERR_CONF_SYNTAX, 2, "" },
        { "listen: a\nlisten: b\n", ERR_CONF_SYNTAX, 2, "duplicate key, already given on line 1" },
        { "listen: \"a\\nb\"\n", ERR_CONF_VALUE, 1, "control characters" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct conf c;
        auto_buf out = { 0 };

        conf_init(&c);
        assert_int_equal(read_text(&c, cases[i].text), -1);
        problems_print(&pr, &out);
        if (pr.list[0].id != cases[i].id || pr.list[0].line != cases[i].line || !strstr(out.data, cases[i].says))
            fail_msg("case %zu: %s", i, out.data);
        conf_done(&c);
    }
}

TEST(an_empty_file_and_lists_are_accepted)
{
    struct conf c;

    conf_init(&c);
    assert_int_equal(read_text(&c, ""), 0);
    assert_int_equal(read_text(&c, "# nothing yet\n"), 0);
    assert_int_equal(read_text(&c, "allowedHosts: [a.example, b.example]\nallowedOrigins: 'https://x , https://y'\n"),
                     0);
    assert_string_equal(conf_list(&c, SETTING_HOSTS)[1], "b.example");
    assert_null(conf_list(&c, SETTING_HOSTS)[2]);
    assert_string_equal(conf_list(&c, SETTING_ORIGINS)[0], "https://x");
    assert_string_equal(conf_list(&c, SETTING_ORIGINS)[1], "https://y");
    assert_null(conf_list(&c, SETTING_ORIGINS)[2]);
    conf_done(&c);
}

TEST(every_driver_is_allowed_by_default)
{
    struct conf c;
    unsigned n = 0;

    conf_init(&c);
    for (const char *const *name = conf_list(&c, SETTING_DRIVERS); name[n]; n++)
        assert_string_equal(name[n], driver_name((enum driver_id)n));
    assert_int_equal(n, DRIVER_COUNT);
    conf_done(&c);
}

TEST(a_store_is_given_by_its_url_or_by_a_mapping)
{
    static const char *const texts[] = { "store: sqlite:/srv/my.db\n", "store: 'sqlite:/srv/my.db'\n",
                                         "store:\n  url: sqlite:/srv/my.db\n  sync: full\n",
                                         "{\"store\": \"sqlite:/srv/my.db\"}\n" };
    char *const env[] = { (char[]){ "COVE_STORE_URL=sqlite:env.db" }, NULL };
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct conf c;

        conf_init(&c);
        assert_string_equal(conf_text(&c, SETTING_STORE_URL), "sqlite:cove.db");
        assert_int_equal(read_text(&c, texts[i]), 0);
        assert_string_equal(conf_text(&c, SETTING_STORE_URL), "sqlite:/srv/my.db");
        assert_string_equal(conf_text(&c, SETTING_SYNC), i == 2 ? "full" : "normal");
        assert_int_equal(conf_read_environment(&c, env, &err), 0);
        assert_string_equal(conf_text(&c, SETTING_STORE_URL), "sqlite:env.db");
        assert_int_equal(conf_read_flag(&c, "--store-url", "sqlite:flag.db", &err), 0);
        assert_string_equal(conf_text(&c, SETTING_STORE_URL), "sqlite:flag.db");
        conf_done(&c);
    }
}

TEST(a_mistyped_variable_is_an_error_and_foreign_variables_are_ignored)
{
    char *const typo[] = { (char[]){ "COVE_LOG_LEVLE=warn" }, NULL };
    char *const bad[] = { (char[]){ "COVE_LOG_LEVEL=loud" }, NULL };
    char *const others[] = { (char[]){ "COVE_URL=x" }, (char[]){ "COVE_API_KEY=y" }, (char[]){ "COVER=z" }, NULL };
    struct conf c;
    struct err err = { 0 };

    conf_init(&c);
    assert_int_equal(conf_read_environment(&c, typo, &err), -1);
    assert_int_equal(err.id, ERR_CONF_KEY);
    assert_non_null(strstr(err.msg, "COVE_LOG_LEVEL"));
    assert_int_equal(conf_read_environment(&c, bad, &err), -1);
    assert_int_equal(err.id, ERR_CONF_VALUE);
    assert_non_null(strstr(err.msg, "COVE_LOG_LEVEL"));
    assert_int_equal(conf_read_environment(&c, others, &err), 0);
    assert_int_equal(conf_read_flag(&c, "--no-such", "x", &err), 1);
    assert_int_equal(conf_read_flag(&c, "--listen", NULL, &err), -1);
    conf_done(&c);
}

TEST(printed_settings_are_a_file_that_sets_the_same_values)
{
    struct conf a, b;
    auto_buf out = { 0 };
    struct err err = { 0 };

    conf_init(&a);
    conf_init(&b);
    assert_int_equal(conf_read_flag(&a, "--listen", "x \"y\": #z", &err), 0);
    assert_int_equal(conf_read_flag(&a, "--allowed-hosts", "a,b", &err), 0);
    assert_int_equal(conf_read_flag(&a, "--limits-enforced", "false", &err), 0);
    conf_print(&a, &out);
    assert_non_null(strstr(out.data, "# --listen\n"));
    assert_int_equal(read_text(&b, out.data), 0);
    for (unsigned s = 0; s < SETTING_COUNT; s++)
        assert_string_equal(conf_text(&a, (enum conf_setting)s), conf_text(&b, (enum conf_setting)s));
    conf_done(&a);
    conf_done(&b);
}

TEST(a_file_that_others_may_write_is_refused)
{
    char path[] = "/tmp/cove-conf-XXXXXX";
    int fd = mkstemp(path);
    struct conf c;

    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, "listen: a:1\n", 12), 0);
    close(fd);
    conf_init(&c);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(chmod(path, round ? 0620 : 0602), 0);
        pr = (struct problems){ 0 };
        assert_int_equal(conf_read_file(&c, path, &pr), -1);
        assert_int_equal(pr.list[0].id, ERR_CONF_UNSAFE);
    }
    assert_int_equal(chmod(path, 0644), 0);
    pr = (struct problems){ 0 };
    assert_int_equal(conf_read_file(&c, path, &pr), 0);
    assert_string_equal(conf_text(&c, SETTING_LISTEN), "a:1");
    unlink(path);
    pr = (struct problems){ 0 };
    assert_int_equal(conf_read_file(&c, path, &pr), -1); /* a file that was named explicitly must exist */
    assert_int_equal(pr.list[0].id, ERR_MISSING);
    pr = (struct problems){ 0 };
    assert_int_equal(conf_read_file(&c, "/dev/null", &pr), -1);
    assert_int_equal(pr.list[0].id, ERR_CONF_UNSAFE);
    conf_done(&c);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        RUN(flags_override_variables_and_variables_override_the_file),
        RUN(an_error_in_a_file_names_its_line_and_the_nearest_setting),
        RUN(an_empty_file_and_lists_are_accepted),
        RUN(every_driver_is_allowed_by_default),
        RUN(a_store_is_given_by_its_url_or_by_a_mapping),
        RUN(a_mistyped_variable_is_an_error_and_foreign_variables_are_ignored),
        RUN(printed_settings_are_a_file_that_sets_the_same_values),
        RUN(a_file_that_others_may_write_is_refused),
    };

    return cmocka_run_group_tests_name("conf", tests, NULL, NULL);
}
