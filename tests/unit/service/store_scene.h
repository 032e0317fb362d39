/* store_scene.h - a loop, a directory and a real store, for tests of objects that need no more. */
#pragma once

#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/ev/ev.h"
#include "store/usage.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct store_scene {
    struct ev *ev;
    struct store *store;
    char dir[64];
    int dir_fd;
};

static inline void store_scene_open_store(struct store_scene *s)
{
    auto_free char *path = str_printf("%s/cove.db", s->dir);
    struct store_settings set = { .url.file = path };
    struct err err = { 0 };

    if (store_open(s->ev, &set, &s->store, &err) < 0)
        fail_msg("%s", err.msg);
}

static inline void store_scene_open(struct store_scene *s)
{
    struct err err = { 0 };

    str_copy(s->dir, sizeof(s->dir), "/tmp/cove-unit-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    s->dir_fd = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(ev_new(&s->ev, &err), 0);
    store_scene_open_store(s);
}

static inline void store_scene_close(struct store_scene *s)
{
    auto_free char *command = str_printf("rm -rf %s", s->dir);

    store_close(s->store);
    ev_turn(s->ev, 0);
    ev_free(s->ev);
    close(s->dir_fd);
    assert_int_equal(system(command), 0);
}

/* Runs the loop until the store has answered every call, including those of callbacks. */
static inline void store_scene_settle(struct store_scene *s)
{
    struct store_stats stats = { .waiting = 1 };

    while (stats.waiting > 0) {
        ev_turn(s->ev, 5);
        store_stats(s->store, &stats);
    }
    ev_turn(s->ev, 0);
}

/* Runs the loop until *flag is not 0. */
static inline void store_scene_wait(struct store_scene *s, const int *flag)
{
    uint64_t end = clock_mono_ns() + slow_factor() * 5 * NS_PER_S;

    while (!*flag && clock_mono_ns() < end)
        ev_turn(s->ev, 5);
    assert_true(*flag);
}

static inline void store_scene_write(const struct store_scene *s, const char *name, const char *text)
{
    auto_fd int fd = openat(s->dir_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

/* -1: no such file. */
static inline long store_scene_file_size(const struct store_scene *s, const char *name)
{
    struct stat st;

    return fstatat(s->dir_fd, name, &st, 0) == 0 ? (long)st.st_size : -1;
}

/* Inserts a sandbox of tenant "me" that ended at 2000 ms of the wall clock. */
static inline void store_scene_insert_sandbox(struct store_scene *s, const char *id)
{
    struct store_sandbox row = { .owner = "me", .state = STORE_SANDBOX_ENDED, .created_ms = 1000, .ended_ms = 2000 };

    str_copy(row.id, sizeof(row.id), id);
    store_sandbox_insert(s->store, &row, 0, NULL, NULL);
}

struct store_scene_execution { /* a row, or its absence */
    int answers;
    bool found;
    struct store_execution row; /* its strings are not valid */
};

static inline void store_scene_on_execution(void *arg, const struct err *err, const struct store_execution *row)
{
    struct store_scene_execution *e = arg;

    e->answers++;
    e->found = err == NULL;
    if (row)
        e->row = *row;
}

static inline bool store_scene_has_execution(struct store_scene *s, const char *id, struct store_execution *ret)
{
    struct store_scene_execution e = { 0 };

    store_execution_get(s->store, "me", id, store_scene_on_execution, &e);
    store_scene_wait(s, &e.answers);
    if (ret)
        *ret = e.row;
    return e.found;
}
