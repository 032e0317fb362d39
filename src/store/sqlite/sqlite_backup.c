/* Checks, backups and restore.
 *
 * A backup is made in steps between batches, with the handle that also writes: SQLite then
 * applies concurrent writes to the copy too, so it never starts over and is, when complete, the
 * store at its last step. The file grows under a temporary name and gets its own name only when
 * it is completely written.
 *
 * Restore replaces the file under a lock that SQLite's own locking respects. At every moment
 * there is a complete database under the store's name: the old one is closed properly first (its
 * WAL is checkpointed, because a remaining WAL would be applied to the new file), gets a second
 * name, and then the new one takes its place. */
#include "store/sqlite/sqlite.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "store/requests.h"
#include "store/sqlite/schema.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define STEP_PAGES 256

/* --- check --- */

static int db_check_pragma(sqlite3 *h, const char *sql, struct err *err)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(h, sql, -1, &st, NULL);

    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    const char *said = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(st, 0) : NULL;
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        db_set_error(h, rc, "checking", err);
    else if (said && !str_eq(said, "ok"))
        err_set(err, ERR_STORE_CORRUPT, "the database is damaged: %.160s", said);
    else
        rc = SQLITE_OK;
    sqlite3_finalize(st);
    return rc == SQLITE_OK ? 0 : -1;
}

int db_check_step(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    static const struct row_table *const tables[] = { &row_sandbox, &row_execution, &row_key,      &row_template,
                                                      &row_event,   &row_idem,      &row_tenant,   &row_user,
                                                      &row_role,    &row_pool,      &row_metadata, &row_script,
                                                      &row_secret };

    if (c->seq < ARRAY_LEN(tables)) {
        char sql[64];

        snprintf(sql, sizeof(sql), "PRAGMA integrity_check(%s)", tables[c->seq++]->name);
        return db_check_pragma(db->h, sql, err) < 0 ? -1 : 1;
    }
    sqlite3_stmt *st = NULL; /* no row: every reference is valid */
    int rc = sqlite3_prepare_v2(db->h, "PRAGMA foreign_key_check", -1, &st, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    sqlite3_finalize(st);
    if (rc == SQLITE_ROW)
        return err_set(err, ERR_STORE_CORRUPT, "the database is damaged: a row refers to one that does not exist");
    return rc == SQLITE_DONE ? 0 : db_set_error(db->h, rc, "checking", err);
}

/* --- backup --- */

struct db_backup_copy {
    sqlite3 *target;
    sqlite3_backup *backup;
    char *temp_path; /* name of the file while it grows */
};

static void db_backup_copy_free(struct db_backup_copy *copy)
{
    if (!copy)
        return;
    if (copy->backup)
        sqlite3_backup_finish(copy->backup);
    sqlite3_close(copy->target);
    unlink(copy->temp_path);
    free(copy->temp_path);
    free(copy);
}

static int db_backup_copy_new(sqlite3 *from, const char *path, struct db_backup_copy **ret, struct err *err)
{
    struct db_backup_copy *copy = mem_new(struct db_backup_copy);

    copy->temp_path = str_printf("%s.part", path);
    unlink(copy->temp_path); /* left by an interrupted backup */
    auto_fd int fd = open(copy->temp_path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fchmod(fd, 0600) < 0) {
        err_sys(err, errno == ENOSPC ? ERR_STORE_FULL : ERR_STORE_FAILED, "creating %s", copy->temp_path);
        goto failed;
    }
    int rc = sqlite3_open_v2(copy->temp_path, &copy->target, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc != SQLITE_OK) {
        db_set_error(copy->target, rc, "creating the copy", err);
        goto failed;
    }
    /* No journal: an interrupted copy is deleted. */
    sqlite3_exec(copy->target, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF", NULL, NULL, NULL);
    if (!(copy->backup = sqlite3_backup_init(copy->target, "main", from, "main"))) {
        db_set_error(copy->target, sqlite3_errcode(copy->target), "creating the copy", err);
        goto failed;
    }
    *ret = copy;
    return 0;
failed:
    db_backup_copy_free(copy);
    return -1;
}

/* 1: there is more to copy. 0: the file is complete. */
static int db_backup_copy_step(struct db_backup_copy *copy, int pages, struct err *err)
{
    int rc = sqlite3_backup_step(copy->backup, pages);

    if (rc == SQLITE_OK)
        return 1;
    if (rc != SQLITE_DONE) {
        sqlite3_backup_finish(copy->backup); /* moves the cause into the handle */
        copy->backup = NULL;
        return db_set_error(copy->target, rc, "copying", err);
    }
    sqlite3_backup_finish(copy->backup);
    copy->backup = NULL;
    /* One plain file that can be read on a read-only medium; the store switches it to WAL again
     * when it opens it. */
    if (db_exec(copy->target, "PRAGMA journal_mode = DELETE", "finishing the copy", err) < 0)
        return -1;
    sqlite3_close(copy->target);
    copy->target = NULL;
    auto_fd int fd = open(copy->temp_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fsync(fd) < 0)
        return err_sys(err, ERR_STORE_FAILED, "writing %s", copy->temp_path);
    return 0;
}

int db_backup_step(struct sqlite_db *db, struct store_request *c, struct err *err)
{
    struct db_backup_copy *copy = c->progress;
    const char *path = c->id;

    if (!copy) {
        if (access(path, F_OK) == 0)
            return err_set(err, ERR_EXISTS, "%s exists already", path);
        if (db_backup_copy_new(db->h, path, &copy, err) < 0)
            return -1;
        c->progress = copy;
    }
    int rc = db_backup_copy_step(copy, STEP_PAGES, err);
    if (rc > 0)
        return 1;
    if (rc == 0 && link(copy->temp_path, path) < 0) /* never replaces a file that was created meanwhile */
        rc = err_sys(err, errno == EEXIST ? ERR_EXISTS : ERR_STORE_FAILED, "naming %s", path);
    db_backup_copy_free(copy);
    c->progress = NULL;
    return rc == 0 ? db_sync_dir(path, err) : -1;
}

void db_backup_abandon(struct store_request *c)
{
    db_backup_copy_free(c->progress);
    c->progress = NULL;
}

/* --- restore --- */

/* Opens the backup so that reading it changes nothing, and checks that it is intact. */
static int db_open_backup(const char *path, sqlite3 **ret, struct err *err)
{
    sqlite3 *h = NULL;
    int version;
    int rc = sqlite3_open_v2(path, &h, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);

    if (rc != SQLITE_OK) {
        db_set_error(h, rc, "opening the backup", err);
        goto failed;
    }
    sqlite3_db_config(h, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, (int *)NULL);
    sqlite3_extended_result_codes(h, 1);
    if (schema_check_version(h, &schema_current, &version, err) < 0)
        goto failed;
    if (version == 0) {
        err_set(err, ERR_STORE_CORRUPT, "not a backup of cove");
        goto failed;
    }
    if (db_check_pragma(h, "PRAGMA integrity_check", err) < 0)
        goto failed;
    *ret = h;
    return 0;
failed:
    sqlite3_close(h);
    return -1;
}

/* Checkpoints the WAL of the old store. A store that cannot be opened is what restore is for; a
 * store that is in use is an error. */
static int db_checkpoint_old(const char *path, struct err *err)
{
    struct err why = { 0 };
    sqlite3 *h;

    if (access(path, F_OK) < 0)
        return 0;
    if (db_open_file(path, false, &h, &why) < 0) {
        if (why.id != ERR_STORE_IN_USE)
            return 0;
        *err = why;
        return -1;
    }
    sqlite3_close(h);
    return 0;
}

/* The byte range that SQLite locks; see "File Locking" in its documentation. */
static int db_lock_store(int fd, struct err *err)
{
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0x40000000, .l_len = 512 };

    if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
        return 0;
    if (errno == EAGAIN || errno == EACCES)
        return err_set(err, ERR_STORE_IN_USE, "another process has the store open");
    return err_sys(err, ERR_STORE_FAILED, "locking the store");
}

static int db_keep_old(const char *path, char **ret_kept, struct err *err)
{
    auto_free char *old = str_printf("%s.before-restore", path);
    auto_free char *wal = str_printf("%s-wal", path);
    auto_free char *old_wal = str_printf("%s.before-restore-wal", path);

    unlink(old);
    unlink(old_wal);
    if (link(path, old) < 0 && errno != ENOENT)
        return err_sys(err, ERR_STORE_FAILED, "keeping %s", old);
    if (rename(wal, old_wal) < 0 && errno != ENOENT) /* only for a store that could not be opened */
        return err_sys(err, ERR_STORE_FAILED, "keeping %s", old_wal);
    *ret_kept = take_ptr(&old);
    return 0;
}

int db_restore(const struct store_settings *set, const char *backup, char **ret_kept, struct err *err)
{
    auto_free char *kept = NULL;
    struct db_backup_copy *copy = NULL;
    sqlite3 *from = NULL;
    auto_fd int lock = -1;
    bool fresh = access(set->url.file, F_OK) < 0;
    int rc = -1;

    if (db_open_backup(backup, &from, err) < 0)
        return err_wrap(err, "%s", backup);
    if (db_prepare_file(set->url.file, err) < 0 || db_checkpoint_old(set->url.file, err) < 0)
        goto out;
    if ((lock = open(set->url.file, O_RDWR | O_CLOEXEC)) < 0) {
        err_sys(err, ERR_STORE_FAILED, "opening %s", set->url.file);
        goto out;
    }
    if (db_lock_store(lock, err) < 0 || db_backup_copy_new(from, set->url.file, &copy, err) < 0)
        goto out;
    while ((rc = db_backup_copy_step(copy, STEP_PAGES, err)) > 0)
        ;
    if (rc == 0 && !fresh)
        rc = db_keep_old(set->url.file, &kept, err);
    if (rc == 0 && rename(copy->temp_path, set->url.file) < 0)
        rc = err_sys(err, ERR_STORE_FAILED, "replacing %s", set->url.file);
    if (rc == 0 && (rc = db_prepare_file(set->url.file, err)) == 0) /* its owner, when root restores for another user */
        rc = db_sync_dir(set->url.file, err);
    if (rc == 0)
        *ret_kept = take_ptr(&kept);
out:
    db_backup_copy_free(copy);
    sqlite3_close(from);
    return rc;
}
