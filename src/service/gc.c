/* Retention: removes rows in batches as the store returns them, and with each batch the output
 * files of its executions. A kill between the two leaves output files without a row, as does a
 * restored backup. Only a scan of all files finds those, one lookup per file, and only on
 * request. */
#include "service/service_internal.h"

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static void gc_finish(struct manager *m, const struct err *err)
{
    if (m->gc_dir)
        closedir(take_ptr(&m->gc_dir));
    m->gc_running = false;
    m->gc_done(m->gc_arg, err, err ? NULL : &m->gc_removed);
}

static void gc_remove_stray(struct manager *m, const char *name)
{
    struct stat st;

    if (fstatat(output_dir_fd(m->output_dir), name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return; /* removed meanwhile */
    if (!m->gc_retention.dry_run && unlinkat(output_dir_fd(m->output_dir), name, 0) < 0) {
        log_warn("output %s: %s", name, strerror(errno));
        return;
    }
    m->gc_removed.stray_files++;
    m->gc_removed.stray_bytes += (uint64_t)st.st_size;
}

static void gc_next_stray(struct manager *m);

static void gc_on_looked_up(void *arg, const struct err *err, const struct store_execution *row UNUSED)
{
    struct manager *m = arg;

    if (err && err->id == ERR_MISSING)
        gc_remove_stray(m, m->gc_name);
    if (err && err->id != ERR_MISSING)
        gc_finish(m, err);
    else
        gc_next_stray(m);
}

static void gc_next_stray(struct manager *m)
{
    const struct dirent *e;
    char id[ID_SIZE];

    while ((e = readdir(m->gc_dir)))
        if (output_dir_parse_name(e->d_name, id) && str_copy(m->gc_name, sizeof(m->gc_name), e->d_name)) {
            store_execution_get(m->store, STORE_ANY_OWNER, id, gc_on_looked_up, m);
            return;
        }
    gc_finish(m, NULL);
}

static void gc_find_strays(struct manager *m)
{
    auto_fd int fd = openat(output_dir_fd(m->output_dir), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct err err;

    m->gc_dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!m->gc_dir) {
        err_sys(&err, ERR_SYS, "output directory");
        gc_finish(m, &err);
        return;
    }
    take_fd(&fd);
    gc_next_stray(m);
}

static void gc_on_batch(void *arg, const struct err *err, const struct store_gc_report *report)
{
    struct manager *m = arg;

    if (err) {
        gc_finish(m, err);
        return;
    }
    for (size_t i = 0; report->executions && i < report->nexecutions; i++)
        output_dir_remove(m->output_dir, report->executions[i]);
    m->gc_removed.executions += report->nexecutions;
    m->gc_removed.output_bytes += report->output_bytes;
    m->gc_removed.sandboxes += report->sandboxes;
    m->gc_removed.events += report->events;
    m->gc_removed.idem += report->idem;
    m->gc_removed.usage += report->usage;
    if (report->more)
        store_gc(m->store, &m->gc_retention, gc_on_batch, m);
    else if (m->gc_strays)
        gc_find_strays(m);
    else
        gc_finish(m, NULL);
}

void manager_gc(struct manager *m, const struct store_retention *keep, bool strays, manager_gc_fn *done, void *arg)
{
    struct err err;

    if (m->gc_running) {
        err_set(&err, ERR_BUSY, "retention is running already; try again later");
        done(arg, &err, NULL);
        return;
    }
    m->gc_running = true;
    m->gc_strays = strays;
    m->gc_retention = *keep;
    m->gc_removed = (struct manager_gc){ 0 };
    m->gc_done = done;
    m->gc_arg = arg;
    store_gc(m->store, keep, gc_on_batch, m);
}
