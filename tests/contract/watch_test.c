/* The real cove-runtime, driven over its socket: events of a watch. */
#include "rt_host.h"

#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "inside/runtime/watch.h"
#include "inside/runtime/watch_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

static char top[64], out[64]; /* the watched directory, and one next to it on the same file system */
static char path[512];

static const char *in(const char *name)
{
    snprintf(path, sizeof(path), "%s/%s", top, name);
    return path;
}

static int zap(const char *name, const struct stat *st UNUSED, int type UNUSED, struct FTW *ftw UNUSED)
{
    return remove(name);
}

static struct host *begin(void)
{
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";

    snprintf(top, sizeof(top), "%s/cove-watch-XXXXXX", base);
    snprintf(out, sizeof(out), "%s/cove-beside-XXXXXX", base);
    assert_non_null(mkdtemp(top));
    assert_non_null(mkdtemp(out));
    /* the runtime may be another user, and can read only what others may read */
    assert_int_equal(chmod(top, 0755), 0);
    return host_ready();
}

static void end(struct host *h)
{
    host_stop(h);
    nftw(top, zap, 20, FTW_DEPTH | FTW_PHYS);
    nftw(out, zap, 20, FTW_DEPTH | FTW_PHYS);
}

static void make_dir(const char *name)
{
    assert_int_equal(mkdir(in(name), 0755), 0);
}

static void make_file(const char *name)
{
    int fd = open(in(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    close(fd);
}

static void rename_in(const char *from, const char *to)
{
    char old[512];

    str_copy(old, sizeof(old), in(from));
    assert_int_equal(rename(old, in(to)), 0);
}

/* The events so far, one line each: "C d/a" or "V a>b"; directories end with a slash. */
struct story {
    struct buf text;
    size_t read; /* of the stream's bytes */
};

static void listen_once(struct host *h, uint32_t stream, struct story *s)
{
    static struct rt_event e;
    struct got *g = host_got(h, stream);
    struct unpack u;

    host_turn(h, 1000);
    unpack_init(&u, (uint8_t *)g->data[0].data + s->read, g->data[0].len - s->read);
    while (u.pos < u.len) {
        assert_true(rt_event_unpack(&u, &e));
        buf_addf(&s->text, "%c %s%s%s%s\n", e.kind, e.from, e.from[0] ? ">" : "", e.path, e.dir ? "/" : "");
    }
    s->read = g->data[0].len;
}

static bool told(const struct story *s, const char *line)
{
    auto_free char *whole = str_printf("\n%s\n", line);
    auto_free char *all = str_printf("\n%s", s->text.len ? s->text.data : "");

    return strstr(all, whole) != NULL;
}

static int times(const struct story *s, const char *line)
{
    auto_free char *whole = str_printf("%s\n", line);
    int n = 0;

    for (const char *p = s->text.data; p && (p = strstr(p, whole)); p++)
        n++;
    return n;
}

static void until(struct host *h, uint32_t stream, struct story *s, const char *line)
{
    for (int i = 0; !told(s, line); i++) {
        if (i == 60 && !host_got(h, stream)->bytes)
            fail_msg("no event was received");
        if (i > 100000 || host_got(h, stream)->last)
            fail_msg("'%s' was not reported, but: %s", line, s->text.len < 2000 && s->text.len ? s->text.data : "...");
        listen_once(h, stream, s);
    }
}

static uint32_t watch(struct host *h, const char *what, uint32_t flags, struct story *s)
{
    uint32_t stream = host_path(h, FRAME_WATCH, what, flags);

    until(h, stream, s, "W /");
    buf_clear(&s->text);
    return stream;
}

TEST(moves_into_out_of_and_within_a_tree_are_reported_as_such)
{
    struct host *h = begin();
    struct story s = { 0 };
    char beside[512];

    make_dir("a");
    make_dir("a/b");
    uint32_t w = watch(h, top, RT_PATH_RECURSIVE, &s);
    make_file("a/b/f");
    rename_in("a/b", "c");
    make_file("c/g");
    until(h, w, &s, "C c/g");
    assert_string_equal(s.text.data, "C a/b/f\nV a/b>c/\nC c/g\n");

    buf_clear(&s.text);
    snprintf(beside, sizeof(beside), "%s/gone", out);
    assert_int_equal(rename(in("c"), beside), 0);
    until(h, w, &s, "R c/");
    str_copy(path, sizeof(path), beside);
    strcat(path, "/unseen");
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    assert_int_equal(rename(beside, in("back")), 0); /* with f, g and unseen in it */
    make_file("back/later");
    until(h, w, &s, "C back/later");
    assert_int_equal(times(&s, "C back/"), 1);
    assert_int_equal(times(&s, "C back/f"), 1);
    assert_int_equal(times(&s, "C back/unseen"), 1);
    assert_int_equal(times(&s, "C back/later"), 1);
    assert_false(told(&s, "C c/unseen"));
    buf_done(&s.text);
    end(h);
}

TEST(a_file_in_a_new_directory_that_is_moved_immediately_is_not_missed)
{
    struct host *h = begin();
    struct story s = { 0 };

    make_dir("to");
    make_dir("d");
    uint32_t w = watch(h, top, RT_PATH_RECURSIVE, &s);
    assert_int_equal(kill(h->pid, SIGSTOP), 0);
    make_dir("d/a");
    make_file("d/a/f");
    make_dir("d/gone");
    assert_int_equal(rmdir(in("d/gone")), 0);
    rename_in("d", "to/d");
    rename_in("to", "there");
    assert_int_equal(kill(h->pid, SIGCONT), 0);
    until(h, w, &s, "V to>there/");
    make_dir("there/d/a/b");
    make_file("there/d/a/b/z");
    until(h, w, &s, "C there/d/a/b/z");
    assert_int_equal(times(&s, "C d/a/"), 1);
    assert_int_equal(times(&s, "V d>to/d/"), 1);
    assert_int_equal(times(&s, "C there/d/a/f"), 1);
    assert_int_equal(times(&s, "C there/d/a/b/"), 1);
    assert_int_equal(times(&s, "C there/d/a/b/z"), 1);
    assert_int_equal(times(&s, "R d/gone/"), 1);
    buf_done(&s.text);
    end(h);
}

TEST(nothing_in_a_new_directory_is_missed_or_reported_twice)
{
    struct host *h = begin();
    struct story s = { 0 };
    char name[64];

    uint32_t w = watch(h, top, RT_PATH_RECURSIVE, &s);
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof(name), "d%d", i);
        make_dir(name);
        strcat(name, "/e");
        make_dir(name);
        strcat(name, "/f");
        make_file(name);
        if (i % 16 == 0)
            listen_once(h, w, &s); /* so that both orders happen: read before the file exists, and after */
    }
    make_file("last");
    until(h, w, &s, "C last");
    for (int i = 0; i < 200; i++) {
        for (int k = 0; k < 3; k++) {
            snprintf(name, sizeof(name), k == 0 ? "C d%d/" : k == 1 ? "C d%d/e/" : "C d%d/e/f", i);
            if (times(&s, name) != 1)
                fail_msg("'%s' was reported %d times", name, times(&s, name));
        }
    }
    buf_done(&s.text);
    end(h);
}

TEST(links_are_followed_in_the_watched_path_and_nowhere_below)
{
    struct host *h = begin();
    struct story s = { 0 };
    char link[512], to[512];

    make_dir("d");
    str_copy(to, sizeof(to), in("d"));
    assert_int_equal(symlink(to, in("link")), 0);
    assert_int_equal(symlink(out, in("d/out")), 0);
    str_copy(link, sizeof(link), in("link"));
    uint32_t w = watch(h, link, RT_PATH_RECURSIVE, &s);
    snprintf(to, sizeof(to), "%s/elsewhere", out);
    close(open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    make_file("d/f");
    until(h, w, &s, "C f");
    assert_string_equal(s.text.data, "C f\n");
    buf_done(&s.text);
    end(h);
}

TEST(a_file_is_watched_as_a_name_that_may_be_replaced)
{
    struct host *h = begin();
    struct story s = { 0 };

    make_file("f");
    uint32_t w = host_path(h, FRAME_WATCH, in("f"), 0);
    until(h, w, &s, "W ");
    buf_clear(&s.text);
    make_file("other");
    make_file("new");
    rename_in("new", "f");
    assert_int_equal(unlink(in("other")), 0);
    assert_int_equal(unlink(in("f")), 0);
    make_file("f");
    until(h, w, &s, "C f");
    assert_string_equal(s.text.data, "V new>f\nR f\nC f\n");
    buf_done(&s.text);
    end(h);
}

TEST(a_watch_ends_when_its_directory_is_gone)
{
    struct host *h = begin();

    for (int moved = 0; moved < 2; moved++) {
        struct story s = { 0 };

        make_dir("d");
        char *d = str_printf("%s", in("d"));
        uint32_t w = watch(h, d, moved ? RT_PATH_RECURSIVE : 0, &s);
        assert_int_equal(moved ? rename(d, in("e")) : rmdir(d), 0);
        host_wait(h, w);
        listen_once(h, w, &s);
        assert_string_equal(s.text.data, "R /\n");
        assert_int_equal(host_got(h, w)->last, FRAME_DONE);
        host_close(h, w);
        buf_done(&s.text);
        free(d);
    }
    end(h);
}

static unsigned long queue_max(void)
{
    char text[32];

    return fd_get_at(AT_FDCWD, "/proc/sys/fs/inotify/max_queued_events", text, sizeof(text)) < 0
               ? 0
               : strtoul(text, NULL, 10);
}

TEST(an_overflow_is_reported_and_new_directories_are_watched_afterwards)
{
    struct host *h = begin();
    struct story s = { 0 };
    unsigned long max = queue_max();

    if (max == 0 || max > 200000) {
        end(h);
        skip();
    }
    make_dir("old");
    uint32_t w = watch(h, top, RT_PATH_RECURSIVE, &s);
    host_got(h, w)->hold = true;
    host_got(h, w)->discard = true;
    size_t window = rt_initial_window(FRAME_WATCH), unit = 2 * (size_t)100;
    for (unsigned long i = 0; i < max + window / unit + 4096; i++) { /* two events each */
        char name[128];

        snprintf(name, sizeof(name), "%0100lu", i);
        make_file(name);
        assert_int_equal(unlink(in(name)), 0);
    }
    make_dir("new"); /* not reported */
    rmdir(in("old"));
    while (host_turn(h, 1000)) /* a full window, and then nothing more */
        assert_true(host_got(h, w)->bytes <= window + FRAME_PAYLOAD_MAX);
    host_got(h, w)->hold = host_got(h, w)->discard = false;
    host_credit(h, w, host_got(h, w)->uncredited);
    until(h, w, &s, "O ");
    assert_int_equal(times(&s, "O "), 1);
    assert_false(told(&s, "C new/"));
    make_file("new/f");
    until(h, w, &s, "C new/f");
    buf_done(&s.text);
    end(h);
}

TEST(the_number_of_watches_and_of_their_directories_is_limited)
{
    struct host *h = begin();
    struct story s = { 0 };
    uint32_t w[WATCHES_MAX + 1];

    for (unsigned i = 0; i < WATCHES_MAX; i++) {
        w[i] = watch(h, top, 0, &s);
        s.read = 0;
    }
    w[WATCHES_MAX] = host_path(h, FRAME_WATCH, top, 0);
    host_wait(h, w[WATCHES_MAX]);
    assert_int_equal(host_got(h, w[WATCHES_MAX])->error.id, ERR_LIMIT);
    host_close(h, w[3]);
    w[3] = watch(h, top, 0, &s);

    for (unsigned i = 0; i < WATCH_TREE_MAX; i++) {
        char name[32];

        snprintf(name, sizeof(name), "d%u", i);
        make_dir(name);
    }
    host_close(h, w[3]);
    w[3] = host_path(h, FRAME_WATCH, top, RT_PATH_RECURSIVE);
    host_wait(h, w[3]);
    assert_int_equal(host_got(h, w[3])->error.id, ERR_LIMIT);
    buf_done(&s.text);
    end(h);
}

TEST(a_missing_path_is_refused)
{
    struct host *h = begin();
    static const struct {
        const char *name;
        uint32_t id;
    } cases[] = {
        { "none", ERR_MISSING }, { "f/below", ERR_WRONG_KIND }, { "f/", ERR_WRONG_KIND }, { "loop", ERR_WRONG_KIND }
    };

    make_file("f");
    assert_int_equal(symlink("loop", in("loop")), 0);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t w = host_path(h, FRAME_WATCH, in(cases[i].name), 0);

        host_wait(h, w);
        if (host_got(h, w)->last != FRAME_ERROR || host_got(h, w)->error.id != cases[i].id)
            fail_msg("%s: %u", cases[i].name, host_got(h, w)->error.id);
    }
    end(h);
}

static unsigned long wakeups(const struct host *h)
{
    char name[64], text[4096];

    snprintf(name, sizeof(name), "/proc/%d/status", (int)h->pid);
    assert_true(fd_get_at(AT_FDCWD, name, text, sizeof(text)) >= 0);
    const char *line = strstr(text, "\nvoluntary_ctxt_switches:");
    assert_non_null(line);
    return strtoul(strchr(line, ':') + 1, NULL, 10);
}

TEST(a_watch_of_a_quiet_tree_causes_no_wakeups)
{
    struct host *h = begin();
    struct story s = { 0 };

    watch(h, top, RT_PATH_RECURSIVE, &s);
    while (host_turn(h, 200))
        ;
    unsigned long before = wakeups(h);
    nanosleep(&(struct timespec){ .tv_nsec = 500 * 1000 * 1000 }, NULL);
    assert_int_equal(wakeups(h), before);
    buf_done(&s.text);
    end(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_file_in_a_new_directory_that_is_moved_immediately_is_not_missed),
        RUN(moves_into_out_of_and_within_a_tree_are_reported_as_such),
        RUN(nothing_in_a_new_directory_is_missed_or_reported_twice),
        RUN(links_are_followed_in_the_watched_path_and_nowhere_below),
        RUN(a_file_is_watched_as_a_name_that_may_be_replaced),
        RUN(a_watch_ends_when_its_directory_is_gone),
        RUN(an_overflow_is_reported_and_new_directories_are_watched_afterwards),
        RUN(the_number_of_watches_and_of_their_directories_is_limited),
        RUN(a_missing_path_is_refused),
        RUN(a_watch_of_a_quiet_tree_causes_no_wakeups),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
