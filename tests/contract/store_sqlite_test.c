/* Faults of a database file: another process, a full disk, a damaged page, a newer schema. */
#include "store_host.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "store/sqlite/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void close_store(void)
{
    store_close(store);
    store = NULL;
}

static void expect_open_fails(enum err_id id)
{
    struct err err = { 0 };

    if (host_open(&err) == 0)
        fail_msg("it opened");
    if (err.id != id)
        fail_msg("expected %s, got %s: %s", err_info(id)->code, err_info(err.id)->code, err.msg);
}

/* Runs SQL on the file as another program would, while the store is closed. */
static void run_sql(const char *path, const char *sql)
{
    sqlite3 *db;
    char *why = NULL;

    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK)
        fail_msg("%s: %s", sql, why);
    sqlite3_close(db);
}

/* --- ST02 --- */

TEST(ST02_a_second_process_is_refused_and_the_first_continues)
{
    struct store_sandbox sb = a_sandbox("anna", 1);
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        auto_free char *path = host_path();
        struct store_settings set = { .url.file = path };
        struct store *second;
        struct ev *ev;
        struct err err = { 0 };

        if (ev_new(&ev, &err) < 0)
            _exit(2);
        _exit(store_open(ev, &set, &second, &err) < 0 && err.id == ERR_STORE_IN_USE ? 0 : 1);
    }
    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL)); /* while the other process tries */
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    OK(store_sandbox_get(store, "anna", sb.id, on_sandbox, NULL));
}

TEST(ST02_a_lost_wal_loses_only_its_own_contents)
{
    auto_free char *path = host_path();
    auto_free char *wal = str_printf("%s-wal", path);
    struct store_sandbox kept = a_sandbox("anna", 1);
    int status;

    OK(store_sandbox_insert(store, &kept, 0, on_done, NULL));
    close_store(); /* merges the WAL into the file */
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct err err = { 0 };
        struct store_sandbox lost = a_sandbox("anna", 2);

        ev_free(loop);
        if (ev_new(&loop, &err) < 0 || host_open(&err) < 0)
            _exit(2);
        OK(store_sandbox_insert(store, &lost, 0, on_done, NULL));
        raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(unlink(wal), 0); /* it existed and held the last commit */
    struct err err = { 0 };
    assert_int_equal(host_open(&err), 0);
    OK(store_sandbox_get(store, "anna", kept.id, on_sandbox, NULL));
    OK(store_check(store, on_done, NULL));
}

/* A small file system for the store alone. */
static void mount_small(const char *size)
{
    close_store();
    auto_free char *dir = str_printf("%s/small", host_dir);
    auto_free char *options = str_printf("size=%s,mode=700", size);

    assert_int_equal(mkdir(dir, 0700), 0);
    if (mount("tmpfs", dir, "tmpfs", 0, options) < 0)
        fail_msg("a tmpfs: %s", strerror(errno));
    strcat(host_dir, "/small");
    struct err err = { 0 };
    if (host_open(&err) < 0)
        fail_msg("%s", err.msg);
}

static int teardown_small(void **state)
{
    store_close(store);
    store = NULL;
    if (str_ends(host_dir, "/small")) {
        umount2(host_dir, MNT_DETACH);
        host_dir[strlen(host_dir) - strlen("/small")] = '\0';
    }
    return host_teardown(state);
}

TEST(ST02_RC04_a_full_disk_refuses_writes_loses_nothing_and_needs_no_restart)
{
    struct store_sandbox sb = a_sandbox("anna", 1), first = a_sandbox("anna", 1);
    auto_free char *large = mem_alloc(100001);
    size_t stored = 0;

    mount_small("12m");
    memset(large, 'x', 100000);
    OK(store_sandbox_insert(store, &first, 0, on_done, NULL));
    sb.spec_json = large;
    do {
        id_new("sb", sb.id);
        host_begin();
        store_sandbox_insert(store, &sb, 0, on_done, NULL);
        host_await();
        stored += !got.failed;
    } while (!got.failed && stored < 1000);
    assert_int_equal(got.err.id, ERR_STORE_FULL);
    FAILS(ERR_MISSING, store_sandbox_get(store, "anna", sb.id, on_sandbox, NULL)); /* not even a part of it */
    OK(store_sandbox_get(store, "anna", first.id, on_sandbox, NULL));              /* reading still works */
    OK(store_check(store, on_done, NULL));

    /* Ending a sandbox and retention still work: that is how space is freed. */
    first.state = STORE_SANDBOX_ENDED;
    first.ended_ms = 1;
    OK(store_sandbox_update(store, "anna", &first, STORE_SANDBOX_SET_STATE | STORE_SANDBOX_SET_ENDED, NULL, on_sandbox,
                            NULL));
    struct store_list q = { .owner = "anna", .limit = 1000 };
    OK(store_sandbox_list(store, &q, on_sandboxes, NULL));
    assert_int_equal(got.rows.n, stored + 1);
    for (size_t i = 0; i < stored; i++) {
        struct store_list one = { .owner = "anna", .limit = 1, .states = STORE_SANDBOX_LIVE };

        OK(store_sandbox_list(store, &one, on_sandboxes, NULL));
        struct store_sandbox end = { .state = STORE_SANDBOX_ENDED, .ended_ms = 1 };
        strcpy(end.id, GOT(store_sandbox, 0)->id);
        OK(store_sandbox_update(store, "anna", &end, STORE_SANDBOX_SET_STATE | STORE_SANDBOX_SET_ENDED, NULL,
                                on_sandbox, NULL));
    }
    struct store_retention all = { .sandboxes_before_ms = 100 };
    size_t gone = 0;
    do {
        OK(store_gc(store, &all, on_gc, NULL));
        gone += got.gc.sandboxes;
    } while (got.gc.more);
    assert_int_equal(gone, stored + 1);
    id_new("sb", sb.id);
    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    OK(store_check(store, on_done, NULL));
}

static size_t full, fitted;

static void on_fill(void *arg UNUSED, const struct err *err)
{
    if (!err)
        fitted++;
    else if (err->id == ERR_STORE_FULL)
        full++;
    got.answered = full + fitted == 60;
}

TEST(ST02_one_call_that_does_not_fit_fails_no_other_of_its_batch)
{
    struct store_sandbox sb = a_sandbox("anna", 1), huge = a_sandbox("anna", 1);
    auto_free char *large = mem_alloc(STORE_TEXT_MAX);

    mount_small("7m");
    memset(large, 'x', STORE_TEXT_MAX - 1);
    huge.spec_json = large;
    host_begin();
    full = fitted = 0;
    for (int i = 0; i < 60; i++) {
        id_new("sb", sb.id);
        id_new("sb", huge.id);
        store_sandbox_insert(store, i == 20 ? &huge : &sb, 0, on_fill, NULL);
    }
    host_await();
    assert_int_equal(full, 1);
    assert_int_equal(fitted, 59);
}

TEST(ST02_a_read_only_file_system_is_a_clear_error_at_the_start)
{
    mount_small("8m");
    close_store();
    assert_int_equal(mount(NULL, host_dir, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    expect_open_fails(ERR_STORE_FAILED);
    assert_int_equal(mount(NULL, host_dir, NULL, MS_REMOUNT, NULL), 0);
    struct err err = { 0 };
    assert_int_equal(host_open(&err), 0);
}

/* Overwrites whole pages in the middle of the file. */
static void damage(const char *path)
{
    char junk[4096];
    struct stat sb;
    auto_fd int fd = open(path, O_RDWR | O_CLOEXEC);

    memset(junk, 0xa5, sizeof(junk));
    assert_int_equal(fstat(fd, &sb), 0);
    for (off_t at = 8 * 4096; at + 4096 <= sb.st_size; at += 4 * 4096)
        assert_int_equal(pwrite(fd, junk, sizeof(junk), at), sizeof(junk));
}

/* Inserts n large sandboxes, of which *sb is the last, makes a backup, and closes the store. */
static void fill_and_back_up(struct store_sandbox *sb, int n, const char *backup)
{
    char text[3000];

    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    sb->spec_json = text;
    for (int i = 0; i < n; i++) {
        id_new("sb", sb->id);
        OK(store_sandbox_insert(store, sb, 0, on_done, NULL));
    }
    sb->spec_json = NULL;
    OK(store_backup(store, backup, on_done, NULL));
    close_store();
}

TEST(ST02_a_damaged_page_is_reported_and_a_backup_restores_everything)
{
    auto_free char *path = host_path();
    auto_free char *backup = str_printf("%s/backup", host_dir);
    auto_free char *old = str_printf("%s.before-restore", path);
    struct store_settings set = { .url.file = path };
    struct store_sandbox sb = a_sandbox("anna", 1);
    auto_free char *kept = NULL;
    struct err err = { 0 };
    bool told = false;

    fill_and_back_up(&sb, 200, backup);
    damage(path);
    if (host_open(&err) == 0) {
        FAILS(ERR_STORE_CORRUPT, store_check(store, on_done, NULL));
        host_begin();
        struct store_list q = { .owner = "anna", .limit = 1000 };
        store_sandbox_list(store, &q, on_sandboxes, NULL);
        host_await();
        told = got.failed && got.err.id == ERR_STORE_CORRUPT;
        close_store();
    } else {
        told = err.id == ERR_STORE_CORRUPT;
    }
    assert_true(told);
    if (store_restore(&set, backup, &kept, &err) < 0)
        fail_msg("%s", err.msg);
    assert_string_equal(kept, old); /* the damaged file is kept for inspection */
    assert_int_equal(access(old, F_OK), 0);
    assert_int_equal(host_open(&err), 0);
    OK(store_check(store, on_done, NULL));
    OK(store_sandbox_get(store, "anna", sb.id, on_sandbox, NULL));
}

TEST(an_impossible_row_is_named)
{
    auto_free char *path = host_path();
    struct store_sandbox good = a_sandbox("anna", 1), bad = a_sandbox("anna", 2);

    OK(store_sandbox_insert(store, &good, 0, on_done, NULL));
    OK(store_sandbox_insert(store, &bad, 0, on_done, NULL));
    close_store();
    auto_free char *sql = str_printf("PRAGMA ignore_check_constraints = ON;"
                                     "UPDATE sandboxes SET state = 'dreaming' WHERE id = '%s'",
                                     bad.id);
    run_sql(path, sql);
    struct err err = { 0 };
    assert_int_equal(host_open(&err), 0);
    FAILS(ERR_STORE_CORRUPT, store_sandbox_get(store, "anna", bad.id, on_sandbox, NULL));
    assert_non_null(strstr(got.err.msg, bad.id));
    OK(store_sandbox_get(store, "anna", good.id, on_sandbox, NULL));
}

TEST(a_file_that_is_not_our_database_is_refused_and_not_changed)
{
    auto_free char *path = host_path();
    char text[64];

    close_store();
    assert_int_equal(unlink(path), 0);
    auto_fd int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    static const char letter[] = "Dear diary, this is a text and not a database. It is long enough, though. "
                                 "It goes on for more than a hundred bytes, as a header does.";
    assert_int_equal(fd_write_all(fd, letter, sizeof(letter)), 0);
    expect_open_fails(ERR_STORE_CORRUPT);
    assert_int_equal(pread(fd, text, sizeof(text), 0), sizeof(text));
    assert_memory_equal(text, letter, sizeof(text));

    assert_int_equal(unlink(path), 0);
    run_sql(path, "CREATE TABLE bookmarks (url TEXT); INSERT INTO bookmarks VALUES ('x')");
    expect_open_fails(ERR_STORE_CORRUPT);
    run_sql(path, "INSERT INTO bookmarks VALUES ('y')");
}

TEST(a_damaged_newer_or_foreign_backup_is_not_restored)
{
    auto_free char *path = host_path();
    auto_free char *backup = str_printf("%s/backup", host_dir);
    auto_free char *other = str_printf("%s/other", host_dir);
    struct store_settings set = { .url.file = path };
    struct store_sandbox sb = a_sandbox("anna", 1);
    auto_free char *kept = NULL;
    struct err err = { 0 };

    fill_and_back_up(&sb, 50, backup);
    run_sql(other, "CREATE TABLE bookmarks (url TEXT)");
    assert_int_equal(store_restore(&set, other, &kept, &err), -1);
    assert_int_equal(err.id, ERR_STORE_CORRUPT);
    run_sql(backup, "PRAGMA user_version = 9999");
    assert_int_equal(store_restore(&set, backup, &kept, &err), -1);
    assert_int_equal(err.id, ERR_STORE_NEWER);
    run_sql(backup, "PRAGMA user_version = 1");
    damage(backup);
    assert_int_equal(store_restore(&set, backup, &kept, &err), -1);
    assert_int_equal(err.id, ERR_STORE_CORRUPT);
    assert_int_equal(host_open(&err), 0); /* the data is still there */
    OK(store_sandbox_get(store, "anna", sb.id, on_sandbox, NULL));
}

TEST(a_backup_is_one_plain_file_that_can_be_read_from_a_read_only_directory)
{
    auto_free char *path = host_path();
    auto_free char *place = str_printf("%s/small", host_dir);
    auto_free char *backup = str_printf("%s/backup", place);
    struct store_settings set = { .url.file = path };
    struct store_sandbox sb = a_sandbox("anna", 1);
    auto_free char *kept = NULL;
    struct err err = { 0 };

    assert_int_equal(mkdir(place, 0700), 0);
    assert_int_equal(mount("tmpfs", place, "tmpfs", 0, "size=4m,mode=700"), 0);
    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    OK(store_backup(store, backup, on_done, NULL));
    close_store();
    int rc = mount(NULL, place, NULL, MS_REMOUNT | MS_RDONLY, NULL);
    if (rc == 0)
        rc = store_restore(&set, backup, &kept, &err);
    umount2(place, MNT_DETACH);
    if (rc < 0)
        fail_msg("%s", err.msg);
    assert_int_equal(host_open(&err), 0);
    OK(store_sandbox_get(store, "anna", sb.id, on_sandbox, NULL));
}

/* --- ST06 --- */

TEST(ST06_a_newer_schema_is_refused_and_left_unchanged)
{
    auto_free char *path = host_path();
    struct store_sandbox sb = a_sandbox("anna", 1);

    OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
    close_store();
    run_sql(path, "PRAGMA user_version = 9999");
    expect_open_fails(ERR_STORE_NEWER);
    char back[48];
    snprintf(back, sizeof(back), "PRAGMA user_version = %d", schema_current.n);
    run_sql(path, back);
    struct err err = { 0 };
    assert_int_equal(host_open(&err), 0);
    OK(store_sandbox_get(store, "anna", sb.id, on_sandbox, NULL));
}

/* --- ST08 --- */

static void expect_mode(const char *path, mode_t mode)
{
    struct stat sb;

    if (stat(path, &sb) < 0)
        fail_msg("%s: %s", path, strerror(errno));
    if ((sb.st_mode & 07777) != mode)
        fail_msg("%s has mode %o", path, (unsigned)sb.st_mode & 07777);
}

TEST(ST08_files_are_private_whatever_the_umask_and_their_previous_mode)
{
    auto_free char *dir = str_printf("%s/state", host_dir);
    auto_free char *path = str_printf("%s/state/cove.db", host_dir);
    auto_free char *wal = str_printf("%s-wal", path);
    auto_free char *backup = str_printf("%s/backup", host_dir);
    struct store_settings set = { .url.file = path };
    struct store_sandbox sb = a_sandbox("anna", 1);
    auto_free char *kept = NULL;
    struct err err = { 0 };

    close_store();
    mode_t old = umask(0);
    for (int round = 0; round < 2; round++) {
        if (store_open(loop, &set, &store, &err) < 0)
            fail_msg("%s", err.msg);
        OK(store_sandbox_insert(store, &sb, 0, on_done, NULL));
        id_new("sb", sb.id);
        expect_mode(dir, 0700);
        expect_mode(path, 0600);
        expect_mode(wal, 0600);
        if (round == 0)
            OK(store_backup(store, backup, on_done, NULL));
        expect_mode(backup, 0600);
        close_store();
        assert_int_equal(chmod(dir, 0777), 0); /* another user opens it up; the next start closes it */
        assert_int_equal(chmod(path, 0666), 0);
    }
    assert_int_equal(store_restore(&set, backup, &kept, &err), 0);
    expect_mode(path, 0600);
    expect_mode(dir, 0700);
    umask(old);
}

TEST(ST08_a_shared_directory_or_a_link_in_place_of_the_file_is_refused)
{
    auto_free char *path = host_path();
    auto_free char *target = str_printf("%s/target", host_dir);

    close_store();
    assert_int_equal(rename(path, target), 0);
    assert_int_equal(symlink(target, path), 0);
    expect_open_fails(ERR_STORE_FAILED);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(chmod(host_dir, 01777), 0);
    expect_open_fails(ERR_STORE_FAILED);
    assert_int_equal(chmod(host_dir, 0700), 0);
}

#define RUN_STORE(name) cmocka_unit_test_setup_teardown(name, host_setup, teardown_small)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_STORE(ST02_a_second_process_is_refused_and_the_first_continues),
        RUN_STORE(ST02_a_lost_wal_loses_only_its_own_contents),
        RUN_STORE(ST02_RC04_a_full_disk_refuses_writes_loses_nothing_and_needs_no_restart),
        RUN_STORE(ST02_one_call_that_does_not_fit_fails_no_other_of_its_batch),
        RUN_STORE(ST02_a_read_only_file_system_is_a_clear_error_at_the_start),
        RUN_STORE(ST02_a_damaged_page_is_reported_and_a_backup_restores_everything),
        RUN_STORE(an_impossible_row_is_named),
        RUN_STORE(a_file_that_is_not_our_database_is_refused_and_not_changed),
        RUN_STORE(a_damaged_newer_or_foreign_backup_is_not_restored),
        RUN_STORE(a_backup_is_one_plain_file_that_can_be_read_from_a_read_only_directory),
        RUN_STORE(ST06_a_newer_schema_is_refused_and_left_unchanged),
        RUN_STORE(ST08_files_are_private_whatever_the_umask_and_their_previous_mode),
        RUN_STORE(ST08_a_shared_directory_or_a_link_in_place_of_the_file_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
