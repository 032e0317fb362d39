/* Every file is opened relative to the descriptor of the directory, never by its path. */
#include "service/output_dir.h"

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "store/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_SIZE (ID_SIZE + sizeof(".1.new"))

struct output_dir {
    int fd;
};

int output_dir_new(const char *path, struct output_dir **ret, struct err *err)
{
    int fd = open(path, O_DIRECTORY | O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(err, ERR_SYS, "%s", path);
    *ret = mem_new(struct output_dir);
    (*ret)->fd = fd;
    return 0;
}

void output_dir_free(struct output_dir *d)
{
    if (!d)
        return;
    fd_close(&d->fd);
    free(d);
}

int output_dir_fd(const struct output_dir *d)
{
    return d->fd;
}

static void output_dir_format_name(char ret[NAME_SIZE], const char *id, int channel, bool has_temp_name)
{
    snprintf(ret, NAME_SIZE, "%s.%d%s", id, channel, has_temp_name ? ".new" : "");
}

int output_dir_open_file(const struct output_dir *d, const char *id, int channel, bool has_temp_name, int flags)
{
    char name[NAME_SIZE];

    output_dir_format_name(name, id, channel, has_temp_name);
    return openat(d->fd, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

int output_dir_open_for_read(const struct output_dir *d, const char *id, int channel)
{
    if (!id_valid(id, "ex")) {
        errno = ENOENT;
        return -1;
    }
    int fd = output_dir_open_file(d, id, channel, false, O_RDONLY);
    return fd >= 0 || errno != ENOENT ? fd : output_dir_open_file(d, id, channel, true, O_RDONLY);
}

int output_dir_set_final_name(const struct output_dir *d, const char *id, int channel)
{
    char from[NAME_SIZE], to[NAME_SIZE];

    output_dir_format_name(from, id, channel, true);
    output_dir_format_name(to, id, channel, false);
    return renameat(d->fd, from, d->fd, to);
}

static void output_dir_remove_file(const struct output_dir *d, const char *id, int channel, bool has_temp_name)
{
    char name[NAME_SIZE];

    output_dir_format_name(name, id, channel, has_temp_name);
    if (unlinkat(d->fd, name, 0) < 0 && errno != ENOENT)
        log_warn("output %s: %s", name, strerror(errno));
}

void output_dir_remove_temp_file(const struct output_dir *d, const char *id, int channel)
{
    output_dir_remove_file(d, id, channel, true);
}

void output_dir_remove(const struct output_dir *d, const char *id)
{
    for (int i = 1; i <= OUTPUT_CHANNELS; i++)
        output_dir_remove_file(d, id, i, false);
}

void output_dir_file_sizes(const struct output_dir *d, const char *id, uint64_t ret[OUTPUT_CHANNELS])
{
    char name[NAME_SIZE];
    struct stat st;

    for (int i = 0; i < OUTPUT_CHANNELS; i++) {
        (void)output_dir_set_final_name(d, id, i + 1);
        output_dir_format_name(name, id, i + 1, false);
        ret[i] = fstatat(d->fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_size : 0;
    }
}

bool output_dir_parse_name(const char *name, char ret_id[ID_SIZE])
{
    size_t len = strlen(name);

    if (len != ID_SIZE + 1 || (!str_ends(name, ".1") && !str_ends(name, ".2") && !str_ends(name, ".3")))
        return false;
    memcpy(ret_id, name, ID_SIZE - 1);
    ret_id[ID_SIZE - 1] = '\0';
    return id_valid(ret_id, "ex");
}

/* --- temporary names at the start of a server --- */

struct output_dir_lookup {
    struct output_dir *dir;
    char id[ID_SIZE];
};

static void output_dir_on_looked_up(void *arg, const struct err *err, const struct store_execution *row UNUSED)
{
    auto_free struct output_dir_lookup *s = arg;

    for (int i = 1; i <= OUTPUT_CHANNELS; i++)
        if (!err)
            (void)output_dir_set_final_name(s->dir, s->id, i);
        else if (err->id == ERR_MISSING)
            output_dir_remove_file(s->dir, s->id, i, true);
}

void output_dir_resolve_temp_files(struct output_dir *d, struct store *store)
{
    int fd = openat(d->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    const struct dirent *e;

    while (dir && (e = readdir(dir))) {
        char id[ID_SIZE] = { 0 };

        if (strlen(e->d_name) != NAME_SIZE - 2 || !str_ends(e->d_name, ".new"))
            continue;
        memcpy(id, e->d_name, ID_SIZE - 1);
        if (!id_valid(id, "ex"))
            continue;
        struct output_dir_lookup *s = mem_new(struct output_dir_lookup);
        s->dir = d;
        memcpy(s->id, id, sizeof(s->id));
        store_execution_get(store, STORE_ANY_OWNER, id, output_dir_on_looked_up, s);
    }
    if (dir)
        closedir(dir);
    else
        fd_close(&fd);
}
