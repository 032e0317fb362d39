/* SQLite as a backend of store.h: one handle, used by the store's one thread.
 *
 * The file is locked for this process alone (locking_mode EXCLUSIVE): a second server on the
 * same state is refused at its start instead of competing for every write, and the index of the
 * WAL is in memory instead of a shared file. In WAL mode a commit is one append that kill -9
 * cannot tear; synchronous=NORMAL guarantees that without a flush for each commit, and FULL adds
 * the flush, to survive power loss too.
 *
 * Texts from outside are only ever bound parameters. Statements are composed from constants of
 * this program (the tables of rows.c); prepared statements are cached, as there are few
 * different ones.
 *
 * A file next to the database reserves some disk space. When the disk is full, the reserve is
 * released, and until it can be restored only calls that end or remove rows are accepted: so a
 * server with a full disk can still end sandboxes and remove old rows, and recovers without a
 * restart.
 *
 * Errors of SQLite are converted in one place, db_set_error. SQLITE_NOMEM aborts, as everywhere
 * in cove. */
#include "store/sqlite/sqlite.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "store/sqlite/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <sys/stat.h>

#define LOCK_WAIT_MS 3000 /* for a server that is just shutting down */
#define CACHE_KIB 4096
#define RESERVE (4 * MIB) /* the size that the WAL reaches before a checkpoint, so that the checkpoint fits */

static int db_set_io_error(sqlite3 *h, const char *what, const char *reason, struct err *err)
{
    int sys = h ? sqlite3_system_errno(h) : 0;

    if (sys == ENOSPC || sys == EDQUOT || sys == EFBIG) {
        errno = sys;
        return err_sys(err, ERR_STORE_FULL, "database: %s", what);
    }
    if (sys == 0)
        return err_set(err, ERR_STORE_FAILED, "database: %s: %s", what, reason);
    err_set(err, ERR_STORE_FAILED, "database: %s: %s (%s)", what, reason, strerror(sys));
    err->sys = sys;
    return -1;
}

static int db_set_constraint_error(int code, const char *what, struct err *err)
{
    switch (code) {
    case SQLITE_CONSTRAINT_PRIMARYKEY:
    case SQLITE_CONSTRAINT_UNIQUE:
    case SQLITE_CONSTRAINT_ROWID:
        return err_set(err, ERR_EXISTS, "%s: already exists", what);
    case SQLITE_CONSTRAINT_FOREIGNKEY:
        return err_set(err, ERR_MISSING, "%s: the object that it refers to does not exist", what);
    default:
        return err_set(err, ERR_INVALID, "%s: a value is not allowed", what);
    }
}

int db_set_error(sqlite3 *h, int code, const char *what, struct err *err)
{
    if (h && sqlite3_extended_errcode(h) != SQLITE_OK)
        code = sqlite3_extended_errcode(h);
    switch (code & 0xff) {
    case SQLITE_NOMEM:
        abort();
    case SQLITE_FULL:
        return err_set(err, ERR_STORE_FULL, "database: %s: no space left on the device", what);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(err, ERR_STORE_CORRUPT, "database: %s: %s", what, sqlite3_errstr(code & 0xff));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(err, ERR_STORE_IN_USE, "database: %s: another process has it open", what);
    case SQLITE_CONSTRAINT:
        return db_set_constraint_error(code, what, err);
    case SQLITE_ERROR:
    case SQLITE_MISUSE:
        return err_set(err, ERR_BUG, "database: %s: %s", what, h ? sqlite3_errmsg(h) : "misuse");
    case SQLITE_TOOBIG:
        return err_set(err, ERR_INVALID, "%s: too large", what);
    default:
        return db_set_io_error(h, what, sqlite3_errstr(code & 0xff), err);
    }
}

/* --- statements --- */

sqlite3_stmt *db_statement(struct sqlite_db *db, const char *sql, struct err *err)
{
    sqlite3_stmt *st;

    for (size_t i = 0; i < DB_STATEMENTS && db->cache[i].sql; i++)
        if (str_eq(db->cache[i].sql, sql)) {
            sqlite3_clear_bindings(db->cache[i].st);
            return db->cache[i].st;
        }
    int rc = sqlite3_prepare_v3(db->h, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, NULL);
    if (rc != SQLITE_OK) {
        db_set_error(db->h, rc, "preparing a statement", err);
        return NULL;
    }
    size_t slot = db->next_evict++ % DB_STATEMENTS;
    sqlite3_finalize(db->cache[slot].st);
    free(db->cache[slot].sql);
    db->cache[slot].st = st;
    db->cache[slot].sql = str_dup(sql);
    return st;
}

int db_step(struct sqlite_db *db, sqlite3_stmt *st, const char *what, struct err *err)
{
    int rc = sqlite3_step(st);

    if (rc == SQLITE_ROW)
        return 1;
    if (rc == SQLITE_DONE) {
        sqlite3_reset(st);
        return 0;
    }
    db_set_error(db->h, rc, what, err);
    sqlite3_reset(st);
    return -1;
}

int db_exec(sqlite3 *h, const char *sql, const char *what, struct err *err)
{
    int rc = sqlite3_exec(h, sql, NULL, NULL, NULL);

    return rc == SQLITE_OK ? 0 : db_set_error(h, rc, what, err);
}

int db_query_u64(struct sqlite_db *db, const char *sql, const char *text, uint64_t *ret, struct err *err)
{
    sqlite3_stmt *st = db_statement(db, sql, err);

    if (!st)
        return -1;
    if (text)
        db_bind_text(st, 1, text);
    int rc = db_step(db, st, "counting", err);
    if (rc < 0)
        return -1;
    *ret = rc ? (uint64_t)sqlite3_column_int64(st, 0) : 0;
    sqlite3_reset(st);
    return 0;
}

void db_bind_text(sqlite3_stmt *st, int i, const char *text)
{
    sqlite3_bind_text(st, i, text, -1, SQLITE_STATIC);
}

const char *db_column_text(sqlite3_stmt *st, int i)
{
    const unsigned char *text = sqlite3_column_text(st, i);

    return text ? (const char *)text : "";
}

void db_bind_u64(sqlite3_stmt *st, int i, uint64_t v)
{
    sqlite3_bind_int64(st, i, (sqlite3_int64)v);
}

/* --- files --- */

/* The directory is closed to other users if it is ours; a directory that others can write to is
 * not safe for keys. */
static int db_prepare_dir(const char *path, struct stat *ret, struct err *err)
{
    auto_free char *copy = str_dup(path);
    const char *dir = dirname(copy);

    if (mkdir(dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, ERR_STORE_FAILED, "the directory of the database, %s", dir);
    if (stat(dir, ret) < 0)
        return err_sys(err, ERR_STORE_FAILED, "the directory of the database, %s", dir);
    if ((ret->st_uid != geteuid() && geteuid() != 0) || (ret->st_mode & S_ISVTX))
        return err_set(err, ERR_STORE_FAILED,
                       "%s: other users may use this directory; give the store a directory of its own", dir);
    if ((ret->st_mode & 077) != 0 && chmod(dir, ret->st_mode & 0700) < 0)
        return err_sys(err, ERR_STORE_FAILED, "removing the access of others to %s", dir);
    return 0;
}

/* Files belong to the owner of the directory, also when root maintains the store of a server
 * that does not run as root. */
static int db_restrict_file(const char *path, const struct stat *dir, int flags, struct err *err)
{
    struct stat sb;
    auto_fd int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);

    if (fd < 0)
        return errno == ENOENT && !flags ? 0 : err_sys(err, ERR_STORE_FAILED, "opening %s", path);
    if (fstat(fd, &sb) < 0 || !S_ISREG(sb.st_mode))
        return err_set(err, ERR_STORE_FAILED, "%s is not a file", path);
    if (sb.st_uid != dir->st_uid && fchown(fd, dir->st_uid, dir->st_gid) < 0)
        return err_sys(err, ERR_STORE_FAILED, "%s belongs to another user", path);
    if ((sb.st_mode & 07777) != 0600 && fchmod(fd, 0600) < 0)
        return err_sys(err, ERR_STORE_FAILED, "removing the access of others to %s", path);
    return 0;
}

/* Closing any descriptor of a file drops the locks that this process holds on it, so this
 * happens before SQLite opens the file, and never afterwards. */
int db_prepare_file(const char *path, struct err *err)
{
    auto_free char *wal = str_printf("%s-wal", path);
    struct stat dir;

    if (db_prepare_dir(path, &dir, err) < 0 || db_restrict_file(path, &dir, O_CREAT, err) < 0)
        return -1;
    return db_restrict_file(wal, &dir, 0, err);
}

int db_sync_dir(const char *path, struct err *err)
{
    auto_free char *copy = str_dup(path);
    auto_fd int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0 || fsync(fd) < 0)
        return err_sys(err, ERR_STORE_FAILED, "writing the directory of %s", path);
    return 0;
}

static int db_configure(sqlite3 *h, bool sync_full, struct err *err)
{
    static const struct {
        int what, on;
    } switches[] = {
        { SQLITE_DBCONFIG_DEFENSIVE, 1 },      /* no statement may write to the file except through SQL */
        { SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0 }, /* the schema of a file from elsewhere must not run code */
        { SQLITE_DBCONFIG_DQS_DML, 0 },        /* "x" is a name, never text */
        { SQLITE_DBCONFIG_DQS_DDL, 0 },        { SQLITE_DBCONFIG_ENABLE_FKEY, 1 },
        { SQLITE_DBCONFIG_ENABLE_TRIGGER, 0 }, { SQLITE_DBCONFIG_ENABLE_VIEW, 0 },
    };
    char pragmas[400];

    for (size_t i = 0; i < ARRAY_LEN(switches); i++)
        sqlite3_db_config(h, switches[i].what, switches[i].on, (int *)NULL);
    sqlite3_extended_result_codes(h, 1);
    sqlite3_busy_timeout(h, LOCK_WAIT_MS);
    sqlite3_limit(h, SQLITE_LIMIT_ATTACHED, 0);
    snprintf(pragmas, sizeof(pragmas),
             "PRAGMA locking_mode = EXCLUSIVE; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL;"
             "PRAGMA synchronous = %s; PRAGMA temp_store = MEMORY; PRAGMA cache_size = -%d; PRAGMA mmap_size = 0;"
             "PRAGMA cell_size_check = ON; PRAGMA secure_delete = FAST",
             sync_full ? "FULL" : "NORMAL", CACHE_KIB);
    return db_exec(h, pragmas, "opening", err);
}

int db_open_file(const char *path, bool sync_full, sqlite3 **ret, struct err *err)
{
    sqlite3 *h = NULL;
    int rc = sqlite3_open_v2(path, &h, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);

    if (rc != SQLITE_OK) {
        db_set_error(h, rc, "opening", err);
        sqlite3_close(h);
        return -1;
    }
    if (db_configure(h, sync_full, err) < 0) {
        sqlite3_close(h);
        return -1;
    }
    *ret = h;
    return 0;
}

/* --- the reserve --- */

static void db_make_reserve(struct sqlite_db *db)
{
    auto_fd int fd = open(db->reserve_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = -1;

    if (fd < 0)
        return;
    do
        rc = fallocate(fd, 0, 0, RESERVE);
    while (rc < 0 && errno == EINTR);
    /* A file system without fallocate cannot reserve space: there is nothing to release. */
    db->has_reserve = rc == 0 || errno == EOPNOTSUPP;
    if (!db->has_reserve)
        unlink(db->reserve_path);
}

static bool sqlite_make_room(struct store_db *base)
{
    struct sqlite_db *db = sqlite_db_of(base);
    bool gave = db->has_reserve && unlink(db->reserve_path) == 0;
    int frames = 0;

    db->has_reserve = false;
    int rc = sqlite3_wal_checkpoint_v2(db->h, NULL, SQLITE_CHECKPOINT_RESTART, &frames, NULL);
    sqlite3_wal_checkpoint_v2(db->h, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
    return gave || (rc == SQLITE_OK && frames > 0);
}

/* --- the backend --- */

static void sqlite_close(struct store_db *base)
{
    struct sqlite_db *db = sqlite_db_of(base);

    for (size_t i = 0; i < DB_STATEMENTS; i++) {
        sqlite3_finalize(db->cache[i].st);
        free(db->cache[i].sql);
    }
    sqlite3_close(db->h);
    free(db->add_usage_sql);
    free(db->reserve_path);
    free(db->path);
    free(db);
}

static int db_open_migrated(const struct store_settings *set, sqlite3 **ret, struct err *err)
{
    if (db_prepare_file(set->url.file, err) < 0 || db_open_file(set->url.file, set->sync_full, ret, err) < 0)
        return -1;
    if (schema_migrate(*ret, &schema_current, err) == 0)
        return 0;
    sqlite3_close(*ret);
    return -1;
}

static int sqlite_open(const struct store_settings *set, struct store_db **ret, struct err *err)
{
    auto_free char *reserve = str_printf("%s-reserve", set->url.file);
    sqlite3 *h;

    /* Opening needs space too; a server that was killed on a full disk left the reserve for it. */
    if (db_open_migrated(set, &h, err) < 0 &&
        (err->id != ERR_STORE_FULL || unlink(reserve) < 0 || db_open_migrated(set, &h, err) < 0))
        return err_wrap(err, "%s", set->url.file);
    struct sqlite_db *db = mem_new(struct sqlite_db);
    db->h = h;
    db->path = str_dup(set->url.file);
    db->reserve_path = take_ptr(&reserve);
    db_make_reserve(db); /* if the disk is full already, the next insert reports it */
    db->base.ops = &store_sqlite;
    *ret = &db->base;
    return 0;
}

static int sqlite_begin(struct store_db *base, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);

    if (!db->has_reserve) { /* a checkpoint of the WAL frees the space of removed rows */
        sqlite3_wal_checkpoint_v2(db->h, NULL, SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
        db_make_reserve(db);
    }
    return db_exec(db->h, "BEGIN", "beginning", err);
}

static int sqlite_commit(struct store_db *base, struct err *err)
{
    return db_exec(sqlite_db_of(base)->h, "COMMIT", "committing", err);
}

static void sqlite_rollback(struct store_db *base)
{
    struct sqlite_db *db = sqlite_db_of(base);

    if (!sqlite3_get_autocommit(db->h))
        sqlite3_exec(db->h, "ROLLBACK", NULL, NULL, NULL);
}

static bool sqlite_in_transaction(struct store_db *base)
{
    return !sqlite3_get_autocommit(sqlite_db_of(base)->h);
}

/* A cached statement, because an end of an execution runs two of them. */
static int sqlite_run_simple(struct store_db *base, const char *sql, struct err *err)
{
    struct sqlite_db *db = sqlite_db_of(base);
    sqlite3_stmt *st = db_statement(db, sql, err);

    return st && db_step(db, st, "writing", err) == 0 ? 0 : -1;
}

static int sqlite_savepoint(struct store_db *base, struct err *err)
{
    return sqlite_run_simple(base, "SAVEPOINT call", err);
}

static int sqlite_release(struct store_db *base, struct err *err)
{
    return sqlite_run_simple(base, "RELEASE call", err);
}

static void sqlite_undo(struct store_db *base)
{
    sqlite3_exec(sqlite_db_of(base)->h, "ROLLBACK TO call; RELEASE call", NULL, NULL, NULL);
}

static bool sqlite_has_space(struct store_db *base)
{
    return sqlite_db_of(base)->has_reserve;
}

static int sqlite_check(struct store_db *base, struct store_request *c, struct err *err)
{
    return db_check_step(sqlite_db_of(base), c, err);
}

static int sqlite_check_exists(const struct store_settings *set, struct err *err)
{
    if (access(set->url.file, F_OK) < 0)
        return err_set(err, ERR_MISSING, "there is no database at %.160s", set->url.file);
    return 0;
}

static int sqlite_backup(struct store_db *base, struct store_request *c, struct err *err)
{
    return db_backup_step(sqlite_db_of(base), c, err);
}

static void sqlite_abandon_backup(struct store_db *base UNUSED, struct store_request *c)
{
    db_backup_abandon(c);
}

const struct store_backend store_sqlite = {
    .name = "SQLite",
    .open = sqlite_open,
    .close = sqlite_close,
    .begin = sqlite_begin,
    .commit = sqlite_commit,
    .rollback = sqlite_rollback,
    .in_transaction = sqlite_in_transaction,
    .savepoint = sqlite_savepoint,
    .release = sqlite_release,
    .undo = sqlite_undo,
    .insert = db_insert,
    .insert_missing = db_insert_missing,
    .replace = db_replace,
    .select = db_select,
    .count = db_count,
    .update = db_update,
    .remove = db_remove,
    .list = db_list,
    .add_usage = db_add_usage,
    .sum_usage = db_sum_usage,
    .sum_scripts = db_sum_scripts,
    .remove_unused_script = db_remove_unused_script,
    .remove_oldest = db_remove_oldest,
    .reclaim = db_reclaim,
    .count_by_state = db_count_by_state,
    .output_bytes = db_output_bytes,
    .used_bytes = db_used_bytes,
    .execution_ages = db_execution_ages,
    .event_range = db_event_range,
    .has_space = sqlite_has_space,
    .make_room = sqlite_make_room,
    .check = sqlite_check,
    .check_exists = sqlite_check_exists,
    .backup = sqlite_backup,
    .abandon_backup = sqlite_abandon_backup,
    .restore = db_restore,
};
