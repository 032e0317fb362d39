/* The schema of a SQLite database: migrations, also killed ones, and the indexes that lists use. */
#include "store_host.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/outcome.h"
#include "store/sqlite/schema.h"
#include "store/sqlite/sqlite.h"

#include <sqlite3.h>
#include <sys/wait.h>

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

/* Inserts the execution ex<i> of the sandbox "sb"; columns: those that matter to the test. */
static void insert_execution(sqlite3 *db, size_t i, const char *columns, const char *values)
{
    auto_free char *sql = str_printf("INSERT INTO executions (id, sandbox, owner, background, created_ms, started_ms,"
                                     " ended_ms, out_bytes1, out_bytes2, dropped1, dropped2, signal, %s)"
                                     " VALUES ('ex%zu', 'sb', 'anna', 0, 1, 1, 1, 0, 0, 0, 0, 0, %s)",
                                     columns, i, values);
    insert(db, sql);
}

TEST(owners_from_before_tenants_become_tenants_and_keep_their_rows)
{
    auto_free char *path = host_path();
    struct err err = { 0 };

    store_close(store);
    store = NULL;
    assert_int_equal(unlink(path), 0);
    sqlite3 *db = open_migrated("cove", 1); /* with a sandbox of anna */
    insert(db, "INSERT INTO keys VALUES ('kyaaaaaaaaaaaaaaaaaaaa', 'old', 'n', 'cove_1', zeroblob(32), 'files',"
               " 5, 0, 0, 0); INSERT INTO sandboxes (id, owner, state, created_ms, expires_ms, ended_ms)"
               " VALUES ('sbaaaaaaaaaaaaaaaaaaaa', 'older', 'ended', 3, 0, 4)");
    sqlite3_close(db);
    assert_int_equal(host_open(&err), 0);
    OK(store_tenant_list(store, &(struct store_list){ 0 }, on_tenants, NULL));
    assert_int_equal(got.rows.n, 4);
    assert_string_equal(GOT(store_tenant, 0)->name, "anna");
    assert_string_equal(GOT(store_tenant, 1)->name, "local");
    assert_string_equal(GOT(store_tenant, 2)->name, "old");
    assert_int_equal(GOT(store_tenant, 2)->created_ms, 5);
    assert_string_equal(GOT(store_tenant, 3)->name, "older");
    OK(store_login_by_hash(store, (const uint8_t[STORE_HASH_LEN]){ 0 }, on_login, NULL));
    assert_string_equal(GOT(store_login, 0)->key.owner, "old");
    assert_true(GOT(store_login, 0)->member);
    OK(store_sandbox_get(store, "older", "sbaaaaaaaaaaaaaaaaaaaa", on_sandbox, NULL));
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
        auto_free char *values = str_printf("'ended', %s", requests[i]);
        insert_execution(db, i, "state, request_json", values);
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

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        insert_execution(db, i, "state, ended_by, exit_code, error_json", rows[i].values);
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
        auto_free char *values = str_printf("'ended', %s", rows[i].receipt);
        insert_execution(db, i, "state, receipt_json", values);
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

#define RUN_STORE(name) cmocka_unit_test_setup_teardown(name, host_setup, host_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_STORE(owners_from_before_tenants_become_tenants_and_keep_their_rows),
        RUN_STORE(ST06_a_migration_killed_at_any_moment_leaves_the_old_or_the_new_schema),
        RUN_STORE(ST06_a_failed_migration_step_changes_nothing_and_is_named),
        RUN_STORE(a_migration_reads_terminals_and_contexts_from_the_requests_of_old_executions),
        RUN_STORE(a_migration_derives_the_outcome_of_old_executions),
        RUN_STORE(a_migration_reads_memory_and_storage_from_the_specs_of_old_sandboxes),
        RUN_STORE(a_migration_reads_hint_and_reset_from_the_receipts_of_old_executions),
        RUN_STORE(a_migration_reads_the_pairs_of_the_metadata_of_old_sandboxes),
        RUN_STORE(a_page_of_executions_is_read_by_index_among_100000),
        RUN_STORE(a_page_of_sandboxes_with_some_metadata_is_read_by_index_among_100000),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
