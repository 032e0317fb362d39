#include "store_host.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <ftw.h>
#include <stdio.h>
#include <unistd.h>

struct ev *loop;
struct store *store;
enum store_scheme host_scheme;
char host_dir[64];
struct got got;

char *host_path(void)
{
    return str_printf("%s/cove.db", host_dir);
}

int host_open(struct err *err)
{
    auto_free char *path = host_path();
    struct store_settings set = { .url = { host_scheme, path } };

    return store_open(loop, &set, &store, err);
}

int host_setup(void **state UNUSED)
{
    struct err err = { 0 };

    /* In memory if possible: kill -9 is tested, not the speed of a disk. */
    strcpy(host_dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm/cove-store-XXXXXX" : "/tmp/cove-store-XXXXXX");
    if (!mkdtemp(host_dir) || ev_new(&loop, &err) < 0 || host_open(&err) < 0) {
        print_error("# %s\n", err.msg);
        return -1;
    }
    OK(store_tenant_insert(store, &(struct store_tenant){ .name = "anna", .created_ms = 1 }, on_done, NULL));
    OK(store_tenant_insert(store, &(struct store_tenant){ .name = "bert", .created_ms = 1 }, on_done, NULL));
    return 0;
}

static int remove_one(const char *path, const struct stat *sb UNUSED, int flag UNUSED, struct FTW *ftw UNUSED)
{
    return remove(path);
}

int host_teardown(void **state UNUSED)
{
    store_close(store);
    ev_free(loop);
    host_begin();
    store = NULL;
    return nftw(host_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void host_reopen(void)
{
    struct err err = { 0 };

    store_close(store);
    store = NULL;
    if (host_open(&err) < 0)
        fail_msg("%s", err.msg);
}

void host_begin(void)
{
    if (got.table)
        row_list_done(got.table, &got.rows);
    free(got.next);
    free(got.text);
    free(got.removed);
    got = (struct got){ 0 };
}

void host_await(void)
{
    uint64_t end = clock_mono_ns() + 30 * NS_PER_S;

    while (!got.answered) {
        if (clock_mono_ns() > end)
            fail_msg("no answer");
        ev_turn(loop, 1000);
    }
}

void host_check(const char *what, const char *file, int line)
{
    if (got.failed) {
        print_error("# %s: %s: %s\n", what, err_info(got.err.id)->code, got.err.msg);
        _fail(file, line);
    }
}

void host_check_err(enum err_id id, const char *what, const char *file, int line)
{
    if (!got.failed || got.err.id != id) {
        print_error("# %s: expected %s, got %s: %s\n", what, err_info(id)->code,
                    got.failed ? err_info(got.err.id)->code : "success", got.err.msg);
        _fail(file, line);
    }
    if (got.err.msg[0] == '\0')
        fail_msg("%s: an error without a message", what);
}

/* callbacks */

static void answered(const struct err *err)
{
    if (got.answered)
        fail_msg("a call was answered twice");
    got.answered = true;
    got.failed = err != NULL;
    if (err)
        got.err = *err;
}

static void copy_rows(const struct row_table *t, const struct err *err, const void *rows, size_t n, const char *next)
{
    got.table = t;
    if (err && (n > 0 || next))
        fail_msg("an error came with rows");
    for (size_t i = 0; !err && i < n; i++)
        row_copy(t, row_list_add(t, &got.rows), (const char *)rows + i * t->size);
    got.next = next ? str_dup(next) : NULL;
    answered(err);
}

void on_done(void *arg UNUSED, const struct err *err)
{
    answered(err);
}

void on_sandbox(void *arg UNUSED, const struct err *err, const struct store_sandbox *row)
{
    copy_rows(&row_sandbox, err, row, row ? 1 : 0, NULL);
}

void on_sandboxes(void *arg UNUSED, const struct err *err, const struct store_sandbox *rows, size_t n, const char *next)
{
    copy_rows(&row_sandbox, err, rows, n, next);
}

void on_execution(void *arg UNUSED, const struct err *err, const struct store_execution *row)
{
    copy_rows(&row_execution, err, row, row ? 1 : 0, NULL);
}

void on_executions(void *arg UNUSED, const struct err *err, const struct store_execution *rows, size_t n,
                   const char *next)
{
    copy_rows(&row_execution, err, rows, n, next);
}

void on_key(void *arg UNUSED, const struct err *err, const struct store_key *row)
{
    copy_rows(&row_key, err, row, row ? 1 : 0, NULL);
}

void on_keys(void *arg UNUSED, const struct err *err, const struct store_key *rows, size_t n, const char *next)
{
    copy_rows(&row_key, err, rows, n, next);
}

void on_template(void *arg UNUSED, const struct err *err, const struct store_template *row)
{
    copy_rows(&row_template, err, row, row ? 1 : 0, NULL);
}

void on_templates(void *arg UNUSED, const struct err *err, const struct store_template *rows, size_t n,
                  const char *next)
{
    copy_rows(&row_template, err, rows, n, next);
}

void on_pool(void *arg UNUSED, const struct err *err, const struct store_pool *row)
{
    copy_rows(&row_pool, err, row, row ? 1 : 0, NULL);
}

void on_pools(void *arg UNUSED, const struct err *err, const struct store_pool *rows, size_t n, const char *next)
{
    copy_rows(&row_pool, err, rows, n, next);
}

void on_script(void *arg UNUSED, const struct err *err, const struct store_script *row)
{
    copy_rows(&row_script, err, row, row ? 1 : 0, NULL);
}

void on_script_kept(void *arg UNUSED, const struct err *err, const struct store_script *row, bool is_new,
                    uint64_t evicted)
{
    got.fresh = is_new;
    got.total = evicted;
    copy_rows(&row_script, err, row, row ? 1 : 0, NULL);
}

void on_scripts(void *arg UNUSED, const struct err *err, const struct store_script *rows, size_t n, uint64_t total,
                const char *next)
{
    got.total = total;
    copy_rows(&row_script, err, rows, n, next);
}

void on_secret_put(void *arg UNUSED, const struct err *err, const struct store_secret *row, bool is_new)
{
    got.fresh = is_new;
    copy_rows(&row_secret, err, row, row ? 1 : 0, NULL);
}

void on_secrets(void *arg UNUSED, const struct err *err, const struct store_secret *rows, size_t n, const char *next)
{
    copy_rows(&row_secret, err, rows, n, next);
}

void on_event(void *arg UNUSED, const struct err *err, uint64_t seq)
{
    got.seq = seq;
    answered(err);
}

void on_events(void *arg UNUSED, const struct err *err, const struct store_event *rows, size_t n)
{
    copy_rows(&row_event, err, rows, n, NULL);
}

void on_idem(void *arg UNUSED, const struct err *err, bool fresh, const struct store_idem *row)
{
    got.fresh = fresh;
    copy_rows(&row_idem, err, row, row ? 1 : 0, NULL);
}

void on_text(void *arg UNUSED, const struct err *err, const char *value)
{
    got.text = value ? str_dup(value) : NULL;
    answered(err);
}

void on_counts(void *arg UNUSED, const struct err *err, const struct store_counts *counts)
{
    if (counts)
        got.counts = *counts;
    answered(err);
}

void on_gc(void *arg UNUSED, const struct err *err, const struct store_gc_report *report)
{
    if (report) {
        got.gc = *report;
        size_t n = report->executions ? report->nexecutions : 0;

        got.removed = mem_alloc((n + 1) * ID_SIZE);
        if (n)
            memcpy(got.removed, report->executions, n * ID_SIZE);
    }
    answered(err);
}

void on_tenant(void *arg UNUSED, const struct err *err, const struct store_tenant *row)
{
    copy_rows(&row_tenant, err, row, row ? 1 : 0, NULL);
}

void on_tenants(void *arg UNUSED, const struct err *err, const struct store_tenant *rows, size_t n, const char *next)
{
    copy_rows(&row_tenant, err, rows, n, next);
}

void on_user(void *arg UNUSED, const struct err *err, const struct store_user *row)
{
    copy_rows(&row_user, err, row, row ? 1 : 0, NULL);
}

void on_users(void *arg UNUSED, const struct err *err, const struct store_user *rows, size_t n, const char *next)
{
    copy_rows(&row_user, err, rows, n, next);
}

void on_role(void *arg UNUSED, const struct err *err, const struct store_role *row)
{
    copy_rows(&row_role, err, row, row ? 1 : 0, NULL);
}

void on_roles(void *arg UNUSED, const struct err *err, const struct store_role *rows, size_t n, const char *next)
{
    copy_rows(&row_role, err, rows, n, next);
}

void on_login(void *arg UNUSED, const struct err *err, const struct store_login *row)
{
    copy_rows(&row_login, err, row, row ? 1 : 0, NULL);
}

/* rows */

struct store_sandbox a_sandbox(const char *owner, uint64_t created_ms)
{
    struct store_sandbox sb = { .state = STORE_SANDBOX_RUNNING, .created_ms = created_ms };

    id_new("sb", sb.id);
    str_copy(sb.owner, sizeof(sb.owner), owner);
    return sb;
}

struct store_execution an_execution(const struct store_sandbox *sb, uint64_t created_ms)
{
    struct store_execution ex = { .state = STORE_EXECUTION_RUNNING, .created_ms = created_ms };

    id_new("ex", ex.id);
    strcpy(ex.sandbox, sb->id);
    strcpy(ex.owner, sb->owner);
    return ex;
}

struct store_user a_user(const char *owner, const char *name, const char *role)
{
    struct store_user user = { .created_ms = 1 };

    id_new("us", user.id);
    str_copy(user.owner, sizeof(user.owner), owner);
    str_copy(user.name, sizeof(user.name), name);
    str_copy(user.role, sizeof(user.role), role);
    return user;
}

struct store_key a_key(const char *owner, uint8_t hash)
{
    struct store_key key = { .created_ms = 1, .prefix = "cove_12345678" };

    id_new("ky", key.id);
    str_copy(key.owner, sizeof(key.owner), owner);
    memset(key.hash, hash, sizeof(key.hash));
    return key;
}
