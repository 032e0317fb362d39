#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "service/secrets.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static struct ev *loop;
static struct store *store;
static struct secrets *secrets;
static char dir[64];
static char *key_file;

static bool answered, was_new;
static struct err failure;

static void on_loaded(void *arg UNUSED, const struct err *err)
{
    answered = true;
    failure = err ? *err : (struct err){ 0 };
}

static void on_put(void *arg UNUSED, const struct err *err, const struct store_secret *row, bool is_new)
{
    on_loaded(NULL, err);
    was_new = is_new;
    assert_true(err || row);
}

static void await(void)
{
    uint64_t end = clock_mono_ns() + 60 * NS_PER_S;

    while (!answered) {
        assert_true(clock_mono_ns() < end);
        ev_turn(loop, 1000);
    }
    answered = false;
}

static void open_secrets(void)
{
    const struct secrets_settings set = { .ev = loop, .store = store, .key_file = key_file, .per_tenant = 3 };

    secrets = secrets_new(&set);
    secrets_load(secrets, on_loaded, NULL);
    await();
    assert_int_equal(failure.id, ERR_NONE);
}

static int setup(void **state UNUSED)
{
    struct err err = { 0 };

    strcpy(dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/cove-secrets-XXXXXX" : "/tmp/cove-secrets-XXXXXX");
    if (!mkdtemp(dir) || ev_new(&loop, &err) < 0)
        return -1;
    key_file = str_printf("%s/secret.key", dir);
    auto_free char *path = str_printf("%s/cove.db", dir);
    if (store_open(loop, &(struct store_settings){ .url.file = path }, &store, &err) < 0)
        fail_msg("%s", err.msg);
    open_secrets();
    return 0;
}

static int remove_one(const char *path, const struct stat *sb UNUSED, int flag UNUSED, struct FTW *ftw UNUSED)
{
    return remove(path);
}

static int teardown(void **state UNUSED)
{
    store_close(store);
    secrets_free(secrets);
    ev_free(loop);
    free(key_file);
    return nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static enum err_id put_for(const char *tenant, const char *name, const char *value, const char *hosts)
{
    secrets_put(secrets, tenant, name, value, hosts, "kyaaaaaaaaaaaaaaaaaaaa", on_put, NULL);
    assert_false(answered); /* never inside the call */
    await();
    return failure.id;
}

static enum err_id put(const char *tenant, const char *name, const char *value)
{
    return put_for(tenant, name, value, NULL);
}

static void check_value(const char *tenant, const char *name, const char *value)
{
    struct err err = { 0 };
    char *is = NULL;

    if (secrets_reveal(secrets, tenant, name, "api.example", &is, &err) < 0)
        fail_msg("%s", err.msg);
    assert_string_equal(is, value);
    secrets_wipe(is);
}

static enum err_id reveal_error(const char *tenant, const char *name)
{
    struct err err = { 0 };
    char *is = NULL;

    assert_int_equal(secrets_reveal(secrets, tenant, name, "api.example", &is, &err), -1);
    assert_null(is);
    return err.id;
}

TEST(a_value_is_revealed_as_it_was_set_also_by_the_next_process)
{
    assert_int_equal(put("anna", "openai", "sk-1234 ~!"), ERR_NONE);
    assert_true(was_new);
    check_value("anna", "openai", "sk-1234 ~!");
    assert_int_equal(put("anna", "openai", "sk-new-value"), ERR_NONE);
    assert_false(was_new);
    check_value("anna", "openai", "sk-new-value");
    secrets_free(secrets);
    open_secrets();
    check_value("anna", "openai", "sk-new-value");
    assert_int_equal(reveal_error("bert", "openai"), ERR_SECRET_MISSING);
}

TEST(neither_the_database_nor_two_equal_values_show_the_value)
{
    assert_int_equal(put("anna", "a", "the-same-value"), ERR_NONE);
    assert_int_equal(put("anna", "b", "the-same-value"), ERR_NONE);
    assert_string_not_equal(secrets_find(secrets, "anna", "a")->sealed, secrets_find(secrets, "anna", "b")->sealed);
    auto_free char *path = str_printf("%s/cove.db-wal", dir);
    FILE *f = fopen(path, "rb");
    static char data[1 << 20];

    assert_non_null(f);
    size_t n = fread(data, 1, sizeof(data), f);
    fclose(f);
    assert_true(n > 0);
    assert_null(memmem(data, n, "the-same-value", 14));
}

TEST(a_row_copied_to_another_tenant_or_name_does_not_decrypt)
{
    assert_int_equal(put("anna", "a", "anna's value"), ERR_NONE);
    assert_int_equal(put("bert", "a", "bert's value"), ERR_NONE);
    struct store_secret *row = (struct store_secret *)(uintptr_t)secrets_find(secrets, "bert", "a");

    free(row->sealed);
    row->sealed = str_dup(secrets_find(secrets, "anna", "a")->sealed);
    assert_int_equal(reveal_error("bert", "a"), ERR_SECRET_SEALED);
    row->sealed[30] = row->sealed[30] == '0' ? '1' : '0';
    assert_int_equal(reveal_error("bert", "a"), ERR_SECRET_SEALED);
    strcpy(row->sealed, "00");
    assert_int_equal(reveal_error("bert", "a"), ERR_SECRET_SEALED);
    check_value("anna", "a", "anna's value");
}

TEST(another_key_file_makes_values_unreadable_and_is_reported)
{
    assert_int_equal(put("anna", "a", "a value of a test"), ERR_NONE);
    assert_int_equal(unlink(key_file), 0);
    secrets_free(secrets);
    open_secrets();
    assert_int_equal(reveal_error("anna", "a"), ERR_SECRET_SEALED);
    assert_int_equal(put("anna", "a", "again a value"), ERR_NONE);
    check_value("anna", "a", "again a value");
}

TEST(the_key_file_is_readable_by_its_owner_only)
{
    struct stat st;

    assert_int_equal(stat(key_file, &st), -1); /* not made before it is needed */
    assert_int_equal(put("anna", "a", "a value of a test"), ERR_NONE);
    assert_int_equal(stat(key_file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

TEST(values_and_names_that_a_header_or_a_host_name_cannot_hold_are_refused)
{
    static const char *const names[] = { "", "A", "a.b", "a b", "-a", "a-", "a/b", "ä" };
    static const char *const values[] = { "",
                                          "7 bytes",
                                          "line\nline2",
                                          "a\r\nX: y",
                                          "a whole line\n",
                                          "\x01 is not text",
                                          "ä is not ASCII",
                                          "a\ttab is not text" };
    static char long_name[SECRET_NAME_MAX + 2], long_value[SECRET_VALUE_MAX + 2];

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        assert_int_equal(put("anna", names[i], "a value of a test"), ERR_INVALID);
    for (size_t i = 0; i < ARRAY_LEN(values); i++)
        assert_int_equal(put("anna", "name", values[i]), ERR_INVALID);
    memset(long_name, 'a', sizeof(long_name) - 1);
    memset(long_value, 'a', sizeof(long_value) - 1);
    assert_int_equal(put("anna", long_name, "a value of a test"), ERR_INVALID);
    assert_int_equal(put("anna", "name", long_value), ERR_INVALID);
    long_value[SECRET_VALUE_MAX] = '\0';
    assert_int_equal(put("anna", "name", long_value), ERR_NONE);
    check_value("anna", "name", long_value);
}

TEST(the_quota_of_a_tenant_and_a_removal_change_what_is_found)
{
    struct secrets_stats stats;

    for (char name[] = "a"; name[0] <= 'c'; name[0]++)
        assert_int_equal(put("anna", name, "a value of a test"), ERR_NONE);
    assert_int_equal(put("anna", "d", "a value of a test"), ERR_QUOTA);
    assert_null(secrets_find(secrets, "anna", "d"));
    secrets_delete(secrets, "anna", "a", on_loaded, NULL);
    await();
    assert_int_equal(failure.id, ERR_NONE);
    assert_int_equal(reveal_error("anna", "a"), ERR_SECRET_MISSING);
    secrets_delete(secrets, "anna", "a", on_loaded, NULL);
    await();
    assert_int_equal(failure.id, ERR_SECRET_MISSING);
    assert_int_equal(put("bert", "a", "a value of a test"), ERR_NONE);
    secrets_stats(secrets, &stats);
    assert_int_equal(stats.count, 3);
    secrets_forget_tenant(secrets, "anna");
    assert_null(secrets_find(secrets, "anna", "b"));
    assert_non_null(secrets_find(secrets, "bert", "a"));
}

TEST(a_secret_with_hosts_is_revealed_for_these_hosts_only)
{
    auto_buf hosts = { 0 };
    struct err err = { 0 };

    assert_int_equal(secret_hosts_add(&hosts, "Other.Example.", &err), 0);
    assert_int_equal(secret_hosts_add(&hosts, "evilapi.example", &err), 0);
    assert_int_equal(secret_hosts_add(&hosts, "api.example:443", &err), -1);
    assert_string_equal(hosts.data, "other.example evilapi.example");
    assert_int_equal(put_for("anna", "a", "a value of a test", hosts.data), ERR_NONE);
    assert_int_equal(reveal_error("anna", "a"), ERR_SECRET_HOST);
    assert_int_equal(put_for("anna", "a", "another value", NULL), ERR_NONE); /* the hosts stay */
    assert_int_equal(reveal_error("anna", "a"), ERR_SECRET_HOST);
    assert_int_equal(put_for("anna", "a", "another value", "api.example.org api.example"), ERR_NONE);
    check_value("anna", "a", "another value");
    assert_int_equal(put_for("anna", "a", "another value", "api.example.org"), ERR_NONE);
    assert_int_equal(reveal_error("anna", "a"), ERR_SECRET_HOST);
    assert_int_equal(put_for("anna", "a", "another value", ""), ERR_NONE);
    check_value("anna", "a", "another value");
}

TEST(use_is_counted_and_written)
{
    struct secrets_stats stats;

    assert_int_equal(put("anna", "a", "a value of a test"), ERR_NONE);
    secrets_count_use(secrets, "anna", "a", 2);
    secrets_count_use(secrets, "anna", "a", 3);
    secrets_count_use(secrets, "anna", "gone", 1);
    secrets_stats(secrets, &stats);
    assert_int_equal(stats.uses, 6);
    assert_int_equal(secrets_find(secrets, "anna", "a")->uses, 5);
    assert_true(secrets_find(secrets, "anna", "a")->last_used_ms > 0);
    uint64_t end = clock_mono_ns() + 3 * NS_PER_S / 2;
    while (clock_mono_ns() < end)
        ev_turn(loop, 100);
    secrets_free(secrets);
    open_secrets();
    assert_int_equal(secrets_find(secrets, "anna", "a")->uses, 5);
}

#define RUN_SECRETS(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_SECRETS(a_value_is_revealed_as_it_was_set_also_by_the_next_process),
        RUN_SECRETS(neither_the_database_nor_two_equal_values_show_the_value),
        RUN_SECRETS(a_row_copied_to_another_tenant_or_name_does_not_decrypt),
        RUN_SECRETS(another_key_file_makes_values_unreadable_and_is_reported),
        RUN_SECRETS(the_key_file_is_readable_by_its_owner_only),
        RUN_SECRETS(values_and_names_that_a_header_or_a_host_name_cannot_hold_are_refused),
        RUN_SECRETS(the_quota_of_a_tenant_and_a_removal_change_what_is_found),
        RUN_SECRETS(a_secret_with_hosts_is_revealed_for_these_hosts_only),
        RUN_SECRETS(use_is_counted_and_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
