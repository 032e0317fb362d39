/* Faults of a database file: another process, a full disk, a damaged page, a killed
 * migration. */
#include "store_host.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/outcome.h"
#include "store/sqlite/schema.h"
#include "store/sqlite/sqlite.h"

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

TEST(owners_from_before_tenants_become_tenants_and_keep_their_rows)
{
    const struct schema before = { schema_current.steps, 1 };
    auto_free char *path = host_path();
    struct err err = { 0 };
    sqlite3 *db;

    close_store();
    assert_int_equal(unlink(path), 0);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(schema_migrate(db, &before, &err), 0);
    assert_int_equal(
        sqlite3_exec(db,
                     "INSERT INTO keys VALUES ('kyaaaaaaaaaaaaaaaaaaaa', 'old', 'n', 'cove_1', zeroblob(32), 'files',"
                     " 5, 0, 0, 0); INSERT INTO sandboxes (id, owner, state, created_ms, expires_ms, ended_ms)"
                     " VALUES ('sbaaaaaaaaaaaaaaaaaaaa', 'older', 'ended', 3, 0, 4)",
                     NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(host_open(&err), 0);
    OK(store_tenant_list(store, &(struct store_list){ 0 }, on_tenants, NULL));
    assert_int_equal(got.rows.n, 3);
    assert_string_equal(GOT(store_tenant, 0)->name, "local");
    assert_string_equal(GOT(store_tenant, 1)->name, "old");
    assert_int_equal(GOT(store_tenant, 1)->created_ms, 5);
    assert_string_equal(GOT(store_tenant, 2)->name, "older");
    OK(store_login_by_hash(store, (const uint8_t[STORE_HASH_LEN]){ 0 }, on_login, NULL));
    assert_string_equal(GOT(store_login, 0)->key.owner, "old");
    assert_true(GOT(store_login, 0)->member);
    OK(store_sandbox_get(store, "older", "sbaaaaaaaaaaaaaaaaaaaa", on_sandbox, NULL));
}

/* Two steps; the second one moves many rows. */
static const char *const long_steps[] = {
    "CREATE TABLE a (n INTEGER NOT NULL) STRICT;"
    "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 20000) INSERT INTO a SELECT n FROM c;",
    "CREATE TABLE b (n INTEGER NOT NULL, m INTEGER NOT NULL) STRICT;"
    "INSERT INTO b SELECT n, n * 2 FROM a; INSERT INTO b SELECT n, n * 3 FROM a; DROP TABLE a;",
};

static int query(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *st;
    int value = -1;

    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL) != SQLITE_OK)
        return -1;
    if (sqlite3_step(st) == SQLITE_ROW)
        value = sqlite3_column_int(st, 0);
    sqlite3_finalize(st);
    return value;
}

static void insert(sqlite3 *db, const char *sql)
{
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sqlite3_errmsg(db), sql);
}

static sqlite3 *open_raw(const char *path)
{
    sqlite3 *db;

    if (sqlite3_open(path, &db) != SQLITE_OK || sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL))
        abort();
    sqlite3_busy_timeout(db, 5000);
    return db;
}

static int killed_inside;

TEST(ST06_a_migration_killed_at_any_moment_leaves_the_old_or_the_new_schema)
{
    const struct schema before = { long_steps, 1 }, after = { long_steps, 2 };

    killed_inside = 0;
    for (unsigned round = 0; round < 12; round++) {
        auto_free char *path = str_printf("%s/migrate%u.db", host_dir, round);
        struct err err = { 0 };
        int status, ready[2];
        char c;
        sqlite3 *db = open_raw(path);

        assert_int_equal(schema_migrate(db, &before, &err), 0);
        sqlite3_close(db);
        assert_int_equal(pipe(ready), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            db = open_raw(path);
            if (write(ready[1], "x", 1) != 1)
                _exit(1);
            schema_migrate(db, &after, &err);
            _exit(0);
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &c, 1), 1);
        close(ready[0]);
        usleep(round * 3000); /* from before its first statement to after its last */
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        db = open_raw(path);
        int version = query(db, "PRAGMA user_version");
        if (version == 1) {
            killed_inside++;
            assert_int_equal(query(db, "SELECT count(*) FROM a"), 20000);
            assert_int_equal(query(db, "SELECT count(*) FROM b"), -1); /* the table does not exist */
            assert_int_equal(schema_migrate(db, &after, &err), 0);     /* the next start continues */
        }
        assert_int_equal(query(db, "PRAGMA user_version"), 2);
        assert_int_equal(query(db, "SELECT count(*) FROM b"), 40000);
        assert_int_equal(query(db, "SELECT count(*) FROM a"), -1);
        sqlite3_close(db);
    }
    assert_true(killed_inside > 0);
}

TEST(ST06_a_failed_migration_step_changes_nothing_and_is_named)
{
    static const char *const bad[] = { "CREATE TABLE a (n INTEGER) STRICT;",
                                       "CREATE TABLE b (n INTEGER) STRICT; BOOM;" };
    const struct schema s = { bad, 2 };
    auto_free char *path = str_printf("%s/bad.db", host_dir);
    struct err err = { 0 };
    sqlite3 *db = open_raw(path);

    assert_int_equal(schema_migrate(db, &s, &err), -1);
    assert_non_null(strstr(err.msg, "version 1 to 2"));
    assert_int_equal(query(db, "PRAGMA user_version"), 1);
    assert_int_equal(query(db, "SELECT count(*) FROM b"), -1);
    sqlite3_close(db);
}

/* A database with the first n migrations, and an ended sandbox "sb" of anna in it. */
static sqlite3 *open_migrated(const char *name, int n)
{
    const struct schema before = { schema_current.steps, n };
    auto_free char *path = str_printf("%s/%s.db", host_dir, name);
    struct err err = { 0 };
    sqlite3 *db = open_raw(path);

    if (schema_migrate(db, &before, &err) < 0)
        fail_msg("%s", err.msg);
    insert(db, "INSERT INTO sandboxes (id, owner, state, created_ms, expires_ms, ended_ms)"
               " VALUES ('sb', 'anna', 'ended', 1, 1, 1)");
    return db;
}

static void migrate(sqlite3 *db)
{
    struct err err = { 0 };

    if (schema_migrate(db, &schema_current, &err) < 0)
        fail_msg("%s", err.msg);
}

TEST(a_migration_reads_terminals_and_contexts_from_the_requests_of_old_executions)
{
    static const char *const requests[] = {
        "'{\"stream\":1,\"tty\":true,\"rows\":24}'",
        "'{\"context\":\"cxaaaaaaaaaaaaaaaaaaaa\",\"timeoutMs\":1}'",
        "'{\"stream\":1,\"stdin\":\"\\\"tty\\\":true \\\"context\\\":\\\"cxaaaaaaaaaaaaaaaaaaaa\\\"\"}'",
        "'{\"tty\":\"true\",\"context\":\"cx\"}'",
        "'nonsense'",
        "NULL",
    };
    sqlite3 *db = open_migrated("columns", 6);

    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        auto_free char *sql = str_printf("INSERT INTO executions (id, sandbox, owner, state, request_json, background,"
                                         " created_ms, started_ms, ended_ms, out_bytes1, out_bytes2, dropped1,"
                                         " dropped2, signal) VALUES ('ex%zu', 'sb', 'anna', 'ended', %s, 0, 1, 1, 1, 0,"
                                         " 0, 0, 0, 0)",
                                         i, requests[i]);
        insert(db, sql);
    }
    migrate(db);
    assert_int_equal(query(db, "SELECT count(*) FROM executions WHERE tty = 1"), 1);
    assert_int_equal(query(db, "SELECT tty FROM executions WHERE id = 'ex0'"), 1);
    assert_int_equal(query(db, "SELECT count(*) FROM executions WHERE context IS NOT NULL"), 1);
    assert_int_equal(query(db, "SELECT context = 'cxaaaaaaaaaaaaaaaaaaaa' FROM executions WHERE id = 'ex1'"), 1);
    sqlite3_close(db);
}

TEST(a_migration_derives_the_outcome_of_old_executions)
{
    static const struct {
        const char *values; /* state, ended_by, exit_code, error_json */
        const char *outcome;
    } rows[] = { { "'ended', 'exit', 0, NULL", "success" },
                 { "'ended', 'exit', 1, NULL", "error" },
                 { "'ended', 'signal', NULL, NULL", "error" },
                 { "'ended', 'cpu', NULL, NULL", "timeout" },
                 { "'ended', 'memory', NULL, NULL", "out_of_memory" },
                 { "'ended', 'budget', NULL, NULL", "killed" },
                 { "'failed', 'lost', NULL, '{}'", "lost" },
                 { "'failed', NULL, NULL, '{}'", "error" },
                 { "'running', NULL, NULL, NULL", "none" } };
    sqlite3 *db = open_migrated("outcomes", 8);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        auto_free char *sql = str_printf("INSERT INTO executions (id, sandbox, owner, background, created_ms,"
                                         " started_ms, ended_ms, out_bytes1, out_bytes2, dropped1, dropped2, signal,"
                                         " state, ended_by, exit_code, error_json)"
                                         " VALUES ('ex%zu', 'sb', 'anna', 0, 1, 1, 1, 0, 0, 0, 0, 0, %s)",
                                         i, rows[i].values);
        insert(db, sql);
    }
    migrate(db);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        auto_free char *sql = str_printf("SELECT coalesce(outcome, 'none') = '%s' FROM executions WHERE id = 'ex%zu'",
                                         rows[i].outcome, i);
        if (query(db, sql) != 1)
            fail_msg("%s: not %s", rows[i].values, rows[i].outcome);
    }
    sqlite3_close(db);
}

TEST(a_migration_reads_memory_and_storage_from_the_specs_of_old_sandboxes)
{
    static const struct {
        const char *spec;
        int memory_mib, storage_mib;
    } rows[] = { { "'{\"spec\":{\"resources\":{\"memoryBytes\":536870912,\"storageBytes\":268435456}}}'", 512, 256 },
                 { "'{\"spec\":{\"resources\":{\"memoryBytes\":1048576}}}'", 1, 0 },
                 { "'{\"spec\":{\"resources\":{\"memoryBytes\":\"1048576\",\"storageBytes\":null}}}'", 0, 0 },
                 { "'nonsense'", 0, 0 },
                 { "NULL", 0, 0 } };
    sqlite3 *db = open_migrated("resources", 9);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        auto_free char *sql = str_printf("INSERT INTO sandboxes (id, owner, state, spec_json, created_ms, expires_ms,"
                                         " ended_ms) VALUES ('sb%zu', 'anna', 'running', %s, 1, 1, 0)",
                                         i, rows[i].spec);
        insert(db, sql);
    }
    migrate(db);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        auto_free char *sql = str_printf("SELECT memory_bytes / 1048576 = %d AND storage_bytes / 1048576 = %d"
                                         " FROM sandboxes WHERE id = 'sb%zu'",
                                         rows[i].memory_mib, rows[i].storage_mib, i);
        if (query(db, sql) != 1)
            fail_msg("%s: not %d and %d MiB", rows[i].spec, rows[i].memory_mib, rows[i].storage_mib);
    }
    sqlite3_close(db);
}

TEST(a_migration_reads_hint_and_reset_from_the_receipts_of_old_executions)
{
    static const struct {
        const char *receipt, *hint;
        bool reset;
    } rows[] = { { "'{\"hint\":\"raise \\\"x\\\"\",\"contextReset\":true}'", "raise \"x\"", true },
                 { "'{\"contextReset\":false}'", "none", false },
                 { "'{\"stdin\":\"\\\"contextReset\\\":true \\\"hint\\\":\\\"x\\\"\"}'", "none", false },
                 { "'{\"hint\":7}'", "none", false },
                 { "'nonsense'", "none", false },
                 { "NULL", "none", false } };
    sqlite3 *db = open_migrated("receipts", 10);

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        auto_free char *sql = str_printf("INSERT INTO executions (id, sandbox, owner, state, receipt_json, background,"
                                         " created_ms, started_ms, ended_ms, out_bytes1, out_bytes2, dropped1,"
                                         " dropped2, signal) VALUES ('ex%zu', 'sb', 'anna', 'ended', %s, 0, 1, 1, 1, 0,"
                                         " 0, 0, 0, 0)",
                                         i, rows[i].receipt);
        insert(db, sql);
    }
    migrate(db);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        auto_free char *sql = str_printf("SELECT coalesce(hint, 'none') = '%s' AND context_reset = %d FROM executions"
                                         " WHERE id = 'ex%zu'",
                                         rows[i].hint, rows[i].reset, i);
        if (query(db, sql) != 1)
            fail_msg("%s: not %s, %d", rows[i].receipt, rows[i].hint, rows[i].reset);
    }
    sqlite3_close(db);
}

TEST(a_migration_reads_the_pairs_of_the_metadata_of_old_sandboxes)
{
    sqlite3 *db = open_migrated("metadata", 11);

    insert(db, "INSERT INTO sandboxes (id, owner, state, metadata_json, created_ms, expires_ms, ended_ms) VALUES"
               " ('sb1', 'anna', 'running', '{\"team\":\"blue\",\"n\":\"1\"}', 7, 1, 0),"
               " ('sb2', 'bert', 'ended', '{\"team\":\"red\"}', 8, 1, 9),"
               " ('sb3', 'bert', 'ended', 'nonsense', 8, 1, 9), ('sb4', 'bert', 'ended', NULL, 8, 1, 9)");
    migrate(db);
    assert_int_equal(query(db, "SELECT count(*) FROM sandbox_metadata"), 3);
    assert_int_equal(query(db, "SELECT count(*) FROM sandbox_metadata WHERE sandbox = 'sb1' AND key = 'team'"
                               " AND value = 'blue' AND sandbox_owner = 'anna' AND sandbox_created_ms = 7"),
                     1);
    assert_int_equal(query(db, "SELECT count(*) FROM sandbox_metadata WHERE sandbox = 'sb2' AND value = 'red'"), 1);
    sqlite3_close(db);
}

/* Neither scans a table or sorts rows, nor reads many more rows than the page has. */
static void expect_fast_list(sqlite3 *db, const struct row_page *page)
{
    int owner, rows = 0;
    auto_free char *sql = db_list_sql(page, &owner);
    auto_free char *explain = str_printf("EXPLAIN QUERY PLAN %s", sql);
    sqlite3_stmt *st;

    assert_int_equal(sqlite3_prepare_v2(db, explain, -1, &st, NULL), SQLITE_OK);
    while (sqlite3_step(st) == SQLITE_ROW) {
        const char *line = (const char *)sqlite3_column_text(st, 3);

        if ((strstr(line, "SCAN") && (page->states || page->outcomes)) || strstr(line, "TEMP B-TREE"))
            fail_msg("%s: %s", line, sql);
    }
    sqlite3_finalize(st);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    if (owner)
        sqlite3_bind_text(st, owner, page->owner, -1, SQLITE_STATIC);
    int last = owner;
    for (size_t i = 0; page->meta && page->meta[i]; i++)
        sqlite3_bind_text(st, ++last, page->meta[i], -1, SQLITE_STATIC);
    if (page->has_cursor) {
        sqlite3_bind_int64(st, last + 1, (sqlite3_int64)page->cursor.created_ms);
        sqlite3_bind_text(st, last + 2, page->cursor.id, -1, SQLITE_STATIC);
    }
    sqlite3_bind_int(st, sqlite3_bind_parameter_count(st), 11);
    while (sqlite3_step(st) == SQLITE_ROW)
        rows++;
    assert_true(rows > 0);
    if (sqlite3_stmt_status(st, SQLITE_STMTSTATUS_VM_STEP, 0) > 20000)
        fail_msg("%d steps: %s", sqlite3_stmt_status(st, SQLITE_STMTSTATUS_VM_STEP, 0), sql);
    sqlite3_finalize(st);
}

TEST(a_page_of_executions_is_read_by_index_among_100000)
{
    static const struct {
        uint32_t states, outcomes;
    } filters[] = { { 0, 0 },
                    { STORE_EXECUTION_LIVE, 0 },
                    { STORE_BIT(STORE_EXECUTION_RUNNING), 0 },
                    { STORE_BIT(STORE_EXECUTION_ENDED) | STORE_BIT(STORE_EXECUTION_FAILED), 0 },
                    { 0, STORE_BIT(OUTCOME_TIMEOUT) },
                    { 0, STORE_BIT(OUTCOME_TIMEOUT) | STORE_BIT(OUTCOME_LOST) },
                    { 0, ((1u << OUTCOME_COUNT) - 1) & ~STORE_BIT(OUTCOME_SUCCESS) } };
    sqlite3 *db = open_migrated("many", schema_current.n);

    insert(db, "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 100000)"
               " INSERT INTO executions (id, sandbox, owner, background, created_ms, started_ms, ended_ms,"
               " out_bytes1, out_bytes2, dropped1, dropped2, signal, state, outcome)"
               " SELECT 'ex' || n, 'sb', 'anna', 0, n, n, n, 0, 0, 0, 0, 0,"
               " iif(n = 10, 'running', 'ended'), iif(n = 10, NULL, iif(n = 20, 'timeout', 'success')) FROM c");
    for (size_t i = 0; i < ARRAY_LEN(filters); i++) {
        struct row_page page = {
            .table = &row_execution, .owner = "anna", .states = filters[i].states, .outcomes = filters[i].outcomes
        };

        expect_fast_list(db, &page);
        page.has_cursor = true;
        page.cursor.created_ms = 90000;
        expect_fast_list(db, &page);
        strcpy(page.owner, STORE_ANY_OWNER);
        expect_fast_list(db, &page);
        page.has_cursor = false;
        page.oldest_first = true;
        expect_fast_list(db, &page);
    }
    sqlite3_close(db);
}

TEST(a_page_of_sandboxes_with_some_metadata_is_read_by_index_among_100000)
{
    char *rare[] = { (char *)"team", (char *)"rare", NULL };
    char *common[] = { (char *)"team", (char *)"common", (char *)"kind", (char *)"batch", NULL };
    char **filters[] = { rare, common };
    sqlite3 *db = open_migrated("pairs", schema_current.n);

    insert(db, "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 100000)"
               " INSERT INTO sandboxes (id, owner, state, created_ms, expires_ms, ended_ms)"
               " SELECT 'sb' || n, 'anna', 'ended', n, n, n FROM c");
    insert(db, "INSERT INTO sandbox_metadata SELECT id, 'team', iif(created_ms = 10, 'rare', 'common'), owner,"
               " created_ms FROM sandboxes WHERE id <> 'sb'");
    insert(db, "INSERT INTO sandbox_metadata SELECT id, 'kind', 'batch', owner, created_ms FROM sandboxes"
               " WHERE id <> 'sb'");
    for (size_t i = 0; i < ARRAY_LEN(filters); i++) {
        struct row_page page = { .table = &row_sandbox, .owner = "anna", .meta = filters[i] };

        expect_fast_list(db, &page);
        page.states = STORE_BIT(STORE_SANDBOX_ENDED);
        expect_fast_list(db, &page);
        page.has_cursor = true;
        page.cursor.created_ms = 90000;
        expect_fast_list(db, &page);
        page.oldest_first = true;
        page.cursor.created_ms = 5;
        expect_fast_list(db, &page);
    }
    sqlite3_close(db);
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
        RUN_STORE(a_migration_reads_terminals_and_contexts_from_the_requests_of_old_executions),
        RUN_STORE(a_migration_derives_the_outcome_of_old_executions),
        RUN_STORE(a_migration_reads_memory_and_storage_from_the_specs_of_old_sandboxes),
        RUN_STORE(a_migration_reads_hint_and_reset_from_the_receipts_of_old_executions),
        RUN_STORE(a_page_of_executions_is_read_by_index_among_100000),
        RUN_STORE(a_migration_reads_the_pairs_of_the_metadata_of_old_sandboxes),
        RUN_STORE(a_page_of_sandboxes_with_some_metadata_is_read_by_index_among_100000),
        RUN_STORE(ST02_a_damaged_page_is_reported_and_a_backup_restores_everything),
        RUN_STORE(an_impossible_row_is_named),
        RUN_STORE(a_file_that_is_not_our_database_is_refused_and_not_changed),
        RUN_STORE(a_damaged_newer_or_foreign_backup_is_not_restored),
        RUN_STORE(a_backup_is_one_plain_file_that_can_be_read_from_a_read_only_directory),
        RUN_STORE(ST06_a_newer_schema_is_refused_and_left_unchanged),
        RUN_STORE(owners_from_before_tenants_become_tenants_and_keep_their_rows),
        RUN_STORE(ST06_a_migration_killed_at_any_moment_leaves_the_old_or_the_new_schema),
        RUN_STORE(ST06_a_failed_migration_step_changes_nothing_and_is_named),
        RUN_STORE(ST08_files_are_private_whatever_the_umask_and_their_previous_mode),
        RUN_STORE(ST08_a_shared_directory_or_a_link_in_place_of_the_file_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
