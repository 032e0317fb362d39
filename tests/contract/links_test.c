/* The real cove-runtime, asked for files while links are in the way, or are swapped in during a
 * request.
 *
 * Next to the workspace lies a canary. The path of a request may lead through links, but never
 * through those of /proc; a tree traversal may not follow any link. So one swapped link leads to
 * the canary through /proc, and every request by path must miss it; the other one is an ordinary
 * link, and no traversal may follow it. COVE_SWAP_ROUNDS is how often each request is made during
 * the swaps. */
#include "rt_host.h"

#include "tests/unit/test.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "inside/runtime/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

#define EXCHANGE 2u /* RENAME_EXCHANGE */

static char top[64];
static struct buf seen; /* collected by look() */

static const char *in(const char *name)
{
    static char paths[4][512];
    static unsigned n;
    char *path = paths[n++ % 4];

    snprintf(path, 512, "%s/%s", top, name);
    return path;
}

static void put(const char *name, const char *text)
{
    int fd = open(in(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static int zap(const char *name, const struct stat *st UNUSED, int type UNUSED, struct FTW *ftw UNUSED)
{
    return remove(name);
}

static void clear(const char *name)
{
    nftw(in(name), zap, 20, FTW_DEPTH | FTW_PHYS);
}

/* --- the canary --- */

static int look(const char *name, const struct stat *st, int type UNUSED, struct FTW *ftw UNUSED)
{
    char text[64] = "";

    if (S_ISREG(st->st_mode))
        fd_get_at(AT_FDCWD, name, text, sizeof(text));
    buf_addf(&seen, "%s %o %lld %lld.%09ld %s\n", name, st->st_mode, (long long)st->st_size,
             (long long)st->st_ctim.tv_sec, st->st_ctim.tv_nsec, text);
    return 0;
}

/* Everything about the canary: names, contents, modes, and times of change. */
static char *canary(void)
{
    seen = (struct buf){ 0 };
    nftw(in("canary"), look, 20, FTW_PHYS);
    return seen.data;
}

static void expect_canary(const char *before, const char *who)
{
    auto_free char *now = canary();

    if (strcmp(before, now) != 0)
        fail_msg("%s changed the canary:\n%s%s", who, before, now);
}

static struct host *begin(void)
{
    snprintf(top, sizeof(top), "%s/cove-links-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(top));
    mkdir(in("canary"), 0755);
    mkdir(in("canary/sub"), 0700);
    mkdir(in("canary/closed"), 0);
    put("canary/f", "CANARY");
    put("canary/secret", "CANARY");
    put("canary/sub/f", "CANARY");
    mkdir(in("work"), 0755);
    return host_ready();
}

static void end(struct host *h)
{
    host_stop(h);
    clear(".");
    rmdir(top);
}

/* --- requests --- */

/* Ends a stream: its data must not come from the canary. Returns the error id, or 0. */
static uint32_t finish(struct host *h, uint32_t s, const char *who)
{
    host_wait(h, s);
    struct got *g = host_got(h, s);
    uint32_t id = g->last == FRAME_ERROR ? g->error.id : 0;

    if (g->data[0].len &&
        (memmem(g->data[0].data, g->data[0].len, "CANARY", 6) || memmem(g->data[0].data, g->data[0].len, "secret", 6)))
        fail_msg("%s returned data of the canary", who);
    host_close(h, s);
    return id;
}

static uint32_t ask(struct host *h, uint8_t type, const char *name, uint32_t flags)
{
    return finish(h, host_path(h, type, in(name), flags), name);
}

static uint32_t write_file(struct host *h, const char *name, uint32_t flags)
{
    uint32_t s = host_path(h, FRAME_WRITE, in(name), flags);

    host_data(h, s, "mine", 4, true);
    return finish(h, s, name);
}

static uint32_t move(struct host *h, const char *from, const char *to)
{
    auto_free struct rt_move *m = mem_new(struct rt_move);
    auto_free uint8_t *out = mem_alloc(FRAME_PAYLOAD_MAX);

    snprintf(m->from, sizeof(m->from), "%s", in(from));
    snprintf(m->to, sizeof(m->to), "%s", in(to));
    return finish(h, host_open(h, FRAME_MOVE, out, (size_t)rt_move_encode(m, out, NULL)), from);
}

static void add_entry(struct buf *b, char kind, const char *name, const char *content)
{
    auto_free struct tar_entry *e = mem_new(struct tar_entry);
    auto_free uint8_t *out = mem_alloc(TAR_HEADERS_MAX);

    e->kind = kind;
    e->mode = kind == 'd' ? 0711 : 0640;
    e->size = content ? strlen(content) : 0;
    snprintf(e->path, sizeof(e->path), "%s", name);
    buf_add(b, out, tar_write_headers(out, e));
    if (content) {
        buf_add(b, content, strlen(content));
        buf_add(b, (uint8_t[TAR_BLOCK]){ 0 }, TAR_BLOCK - strlen(content));
    }
}

static uint32_t unpack_into(struct host *h, const char *name, const char *dir, const char *file)
{
    uint32_t s = host_path(h, FRAME_TAR_IN, in(name), 0);
    auto_buf b = { 0 };

    if (dir)
        add_entry(&b, 'd', dir, NULL);
    if (file)
        add_entry(&b, 'f', file, "mine");
    buf_add(&b, (uint8_t[2 * TAR_BLOCK]){ 0 }, (size_t)2 * TAR_BLOCK);
    host_data(h, s, b.data, b.len, true);
    return finish(h, s, name);
}

/* Returns what it watches, or an error; a successful watch is closed. */
static uint32_t watch(struct host *h, const char *name)
{
    uint32_t s = host_path(h, FRAME_WATCH, in(name), RT_PATH_RECURSIVE);
    struct got *g = host_got(h, s);

    while (!g->last && !g->bytes)
        assert_true(host_turn(h, 60000));
    uint32_t id = g->last == FRAME_ERROR ? g->error.id : 0;
    host_close(h, s);
    return id;
}

/* --- requests by path, to NAME/... --- */

struct verb {
    const char *name;
    uint32_t (*ask)(struct host *h, const char *name);
    bool never; /* it names a file that only the canary has, so it is always refused */
};

static const char *below(const char *name, const char *leaf)
{
    static char path[2][128];
    static unsigned n;
    char *p = path[n++ % 2];

    snprintf(p, 128, "%s/%s", name, leaf);
    return p;
}

static uint32_t v_read(struct host *h, const char *name)
{
    return ask(h, FRAME_READ, below(name, "f"), 0);
}

static uint32_t v_read_secret(struct host *h, const char *name)
{
    return ask(h, FRAME_READ, below(name, "secret"), 0);
}

static uint32_t v_stat_secret(struct host *h, const char *name)
{
    return ask(h, FRAME_STAT, below(name, "secret"), 0);
}

static uint32_t v_write(struct host *h, const char *name)
{
    return write_file(h, below(name, "f"), 0);
}

static uint32_t v_write_parents(struct host *h, const char *name)
{
    return write_file(h, below(name, "new/f"), RT_PATH_PARENTS);
}

static uint32_t v_list(struct host *h, const char *name)
{
    return ask(h, FRAME_LIST, name, 0);
}

static uint32_t v_mkdir(struct host *h, const char *name)
{
    return ask(h, FRAME_MKDIR, below(name, "made"), RT_PATH_PARENTS);
}

static uint32_t v_remove_secret(struct host *h, const char *name)
{
    return ask(h, FRAME_REMOVE, below(name, "secret"), 0);
}

static uint32_t v_remove_sub(struct host *h, const char *name)
{
    return ask(h, FRAME_REMOVE, below(name, "sub"), RT_PATH_RECURSIVE | RT_PATH_MISSING_OK);
}

static uint32_t v_move_out(struct host *h, const char *name)
{
    return move(h, below(name, "secret"), "work/stolen");
}

static uint32_t v_move_in(struct host *h, const char *name)
{
    put("work/mine", "mine");
    return move(h, "work/mine", below(name, "f"));
}

static uint32_t v_tar_out(struct host *h, const char *name)
{
    return ask(h, FRAME_TAR_OUT, below(name, "."), 0);
}

static uint32_t v_tar_in(struct host *h, const char *name)
{
    return unpack_into(h, name, "sub", "f");
}

static uint32_t v_mark(struct host *h, const char *name)
{
    return ask(h, FRAME_SNAPSHOT, name, 0);
}

static uint32_t v_watch(struct host *h, const char *name)
{
    return watch(h, below(name, "."));
}

static const struct verb by_path[] = {
    { "read", v_read, false },
    { "read what is not there", v_read_secret, true },
    { "stat", v_stat_secret, true },
    { "write", v_write, false },
    { "write, with parents", v_write_parents, false },
    { "list", v_list, false },
    { "mkdir", v_mkdir, false },
    { "remove", v_remove_secret, true },
    { "remove a tree", v_remove_sub, false },
    { "move out", v_move_out, true },
    { "move in", v_move_in, false },
    { "tar out", v_tar_out, false },
    { "tar in", v_tar_in, false },
    { "mark", v_mark, false },
    { "watch", v_watch, false },
};

/* --- requests that traverse: NAME is found below work, or removed itself --- */

static uint32_t w_tar_out(struct host *h, const char *name UNUSED)
{
    return ask(h, FRAME_TAR_OUT, "work", 0);
}

static uint32_t w_tar_out_top(struct host *h, const char *name)
{
    return ask(h, FRAME_TAR_OUT, name, 0);
}

static uint32_t w_tar_in(struct host *h, const char *name)
{
    return unpack_into(h, "work", NULL, below(name + strlen("work/"), "f"));
}

static uint32_t w_tar_in_dir(struct host *h, const char *name)
{
    return unpack_into(h, "work", name + strlen("work/"), NULL);
}

static uint32_t w_mkdir(struct host *h, const char *name)
{
    return ask(h, FRAME_MKDIR, name, 0);
}

static uint32_t w_write(struct host *h, const char *name)
{
    return write_file(h, name, 0);
}

static uint32_t w_remove(struct host *h, const char *name)
{
    return ask(h, FRAME_REMOVE, name, RT_PATH_RECURSIVE);
}

static uint32_t w_mark(struct host *h, const char *name UNUSED)
{
    return ask(h, FRAME_SNAPSHOT, "work", 0);
}

static uint32_t w_watch(struct host *h, const char *name UNUSED)
{
    return watch(h, "work");
}

static const struct verb walks[] = {
    { "tar out", w_tar_out, false }, { "tar out at the top", w_tar_out_top, false },
    { "tar in", w_tar_in, false },   { "tar in of a directory", w_tar_in_dir, false },
    { "mkdir", w_mkdir, false },     { "write", w_write, false },
    { "remove", w_remove, false },   { "mark", w_mark, false },
    { "watch", w_watch, false },
};

/* --- the swapping process --- */

struct swapper {
    pid_t pid;
    uint64_t *swaps; /* in shared memory */
};

/* A directory that holds f, with this mode, at `name`. */
static void plant(const char *name, mode_t mode)
{
    mkdir(in("work/.plant"), 0700);
    close(open(in("work/.plant/f"), O_WRONLY | O_CREAT, 0644));
    chmod(in("work/.plant"), mode);
    if (rename(in("work/.plant"), in(name)) == 0)
        return;
    chmod(in("work/.plant"), 0700);
    unlink(in("work/.plant/f"));
    rmdir(in("work/.plant"));
}

static bool is_link(const char *name)
{
    char c;

    return readlink(in(name), &c, 1) >= 0;
}

/* Swaps the directory and the link, and restores what a request removed. With `gap` the name is
 * missing for moments too, so that a new object may have become a link before it is opened
 * again. */
static NORETURN void swap_for_ever(const char *name, const char *other, const char *target, mode_t mode, bool gap,
                                   uint64_t *swaps)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;; __atomic_add_fetch(swaps, 1, __ATOMIC_RELAXED)) {
        if (gap) {
            unlink(in(name));
            rmdir(in(name));
            if (symlink(target, in(name)) < 0)
                clear(name);
        } else if (syscall(SYS_renameat2, AT_FDCWD, in(name), AT_FDCWD, in(other), EXCHANGE) < 0 ||
                   (!is_link(name) && !is_link(other))) {
            clear(other);
            if (symlink(target, in(other)) < 0)
                continue;
            unlink(in(name));
            plant(name, mode);
        }
    }
}

static struct swapper swapping(const char *name, const char *target, mode_t mode, bool gap)
{
    struct swapper s = { .swaps = mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                                       0) };

    assert_true(s.swaps != MAP_FAILED);
    s.pid = fork();
    if (s.pid == 0)
        swap_for_ever(name, "work/other", target, mode, gap, s.swaps);
    assert_true(s.pid > 0);
    return s;
}

static void stop(struct swapper *s)
{
    kill(s->pid, SIGKILL);
    assert_int_equal(waitpid(s->pid, NULL, 0), s->pid);
    munmap(s->swaps, sizeof(uint64_t));
    clear("work");
    assert_int_equal(mkdir(in("work"), 0755), 0);
}

static unsigned rounds(void)
{
    const char *text = getenv("COVE_SWAP_ROUNDS");
    int n = text ? atoi(text) : 0;

    return n > 0 ? (unsigned)n : 100;
}

static uint64_t swaps(const struct swapper *s)
{
    return __atomic_load_n(s->swaps, __ATOMIC_RELAXED);
}

/* Repeats a request until both counts are reached: rounds and swaps. A request by path continues
 * until it has both succeeded and been refused. */
static void race(struct host *h, const struct verb *v, const char *name, const struct swapper *s, bool walking)
{
    auto_free char *before = canary();
    uint64_t give_up = clock_mono_ns() + 60 * NS_PER_S, first = swaps(s);
    unsigned refused = 0, done = 0, n = rounds();

    for (unsigned i = 0; i < n || swaps(s) - first < n || (!walking && (refused == 0 || (done == 0 && !v->never)));
         i++) {
        uint32_t id = v->ask(h, name);

        refused += id != 0;
        done += id == 0;
        if (i >= n && clock_mono_ns() > give_up)
            fail_msg("%s: %u refused and %u done during %u swaps", v->name, refused, done,
                     (unsigned)(swaps(s) - first));
    }
    if (v->never && done)
        fail_msg("%s: succeeded %u times on a name that only the canary has", v->name, done);
    expect_canary(before, v->name);
}

TEST(FA03_a_directory_swapped_for_a_link_cannot_redirect_a_request)
{
    struct host *h = begin();
    char target[128];

    snprintf(target, sizeof(target), "/proc/self/root%s/canary", top);
    mkdir(in("work/d"), 0755);
    struct swapper s = swapping("work/d", target, 0755, false);
    for (size_t i = 0; i < ARRAY_LEN(by_path); i++)
        race(h, &by_path[i], "work/d", &s, false);
    stop(&s);
    end(h);
}

TEST(FA03_a_tree_traversal_follows_no_link_swapped_in_during_it)
{
    static const struct {
        mode_t mode;
        bool gap;
        /* Open, closed to ourselves, and missing at first. */
    } ways[] = { { 0755, false }, { 0, false }, { 0755, true } };
    static const char *const targets[] = { "../canary", "../canary/closed" };
    struct host *h = begin();

    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        for (size_t t = 0; t < ARRAY_LEN(targets); t++) {
            struct swapper s = swapping("work/d", targets[t], ways[i].mode, ways[i].gap);

            for (size_t v = 0; v < ARRAY_LEN(walks); v++)
                race(h, &walks[v], "work/d", &s, true);
            stop(&s);
        }
    end(h);
}

/* --- links and special files that do not move --- */

static void expect_refused(struct host *h, const char *name, const char *what)
{
    auto_free char *before = canary();

    for (size_t i = 0; i < ARRAY_LEN(by_path); i++)
        if (by_path[i].ask(h, name) == 0 && by_path[i].ask != v_remove_sub) /* removing a missing name succeeds */
            fail_msg("%s through %s", by_path[i].name, what);
    expect_canary(before, what);
}

TEST(FA02_no_request_goes_through_a_link_of_proc_a_loop_or_nowhere)
{
    struct host *h = begin();
    char name[32], far[4][128];

    snprintf(far[0], sizeof(far[0]), "/proc/self/root%s/canary", top);
    snprintf(far[1], sizeof(far[1]), "/proc/1/root%s/canary", top);
    snprintf(far[2], sizeof(far[2]), "/proc/self/cwd%s/canary", top);
    snprintf(far[3], sizeof(far[3]), "../../../../../../proc/thread-self/root%s/canary", top);
    const char *targets[] = { far[0], far[1], far[2], far[3], "/proc/self/fd/3", "/dev/fd/3", "l", "other", "nowhere" };
    for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
        assert_int_equal(symlink(targets[i], in("work/l")), 0);
        assert_int_equal(symlink("l", in("work/other")), 0);
        expect_refused(h, "work/l", targets[i]);
        expect_refused(h, "work/other", targets[i]);
        unlink(in("work/l"));
        unlink(in("work/other"));
    }
    assert_int_equal(symlink("../canary", in("work/chain0")), 0);
    for (int i = 1; i <= 40; i++) { /* the kernel follows 40; this is one more */
        snprintf(name, sizeof(name), "chain%d", i - 1);
        snprintf(far[0], sizeof(far[0]), "work/chain%d", i);
        assert_int_equal(symlink(name, in(far[0])), 0);
    }
    expect_refused(h, "work/chain40", "a chain of 41 links");
    end(h);
}

TEST(FA02_a_request_on_a_link_changes_the_link_itself)
{
    struct host *h = begin();
    auto_free char *before = canary();
    char target[128];

    snprintf(target, sizeof(target), "/proc/self/root%s/canary/f", top);
    const char *targets[] = { "../canary/f", target, "l", "nowhere" };
    for (size_t i = 0; i < ARRAY_LEN(targets); i++) {
        assert_int_equal(symlink(targets[i], in("work/l")), 0);
        assert_int_equal(ask(h, FRAME_STAT, "work/l", 0), 0);
        assert_int_equal(ask(h, FRAME_TAR_OUT, "work/l", 0), 0);
        assert_int_equal(ask(h, FRAME_MKDIR, "work/l", 0), ERR_EXISTS);
        assert_int_equal(move(h, "work/l", "work/moved"), 0);
        assert_true(is_link("work/moved"));
        assert_int_equal(ask(h, FRAME_REMOVE, "work/moved", RT_PATH_RECURSIVE), 0);
        assert_false(is_link("work/moved"));

        assert_int_equal(symlink(targets[i], in("work/l")), 0);
        assert_int_equal(write_file(h, "work/l", 0), 0);
        assert_false(is_link("work/l"));
        unlink(in("work/l"));
        assert_int_equal(symlink(targets[i], in("work/l")), 0);
        assert_int_equal(unpack_into(h, "work", NULL, "l"), 0);
        assert_false(is_link("work/l"));
        unlink(in("work/l"));
    }
    expect_canary(before, "naming a link");
    end(h);
}

TEST(FA02_special_files_do_not_block_a_request)
{
    static const char *const odd[] = { "work/fifo", "work/sock", "work/dev", "work/link", "../../null", "../../fd/0" };
    struct host *h = begin();
    struct sockaddr_un sun = { .sun_family = AF_UNIX };

    assert_int_equal(mkfifo(in("work/fifo"), 0666), 0);
    assert_int_equal(mknod(in("work/dev"), S_IFCHR | 0666, makedev(1, 5)), 0);
    assert_int_equal(symlink("fifo", in("work/link")), 0);
    snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", in("work/sock"));
    auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        if (odd[i][0] == '.' && strncmp(top, "/dev/", 5) != 0)
            continue; /* this leads to /dev/null only from /dev/shm */
        expect_refused(h, odd[i], odd[i]);
        assert_int_not_equal(ask(h, FRAME_READ, odd[i], 0), 0);
        assert_int_not_equal(ask(h, FRAME_LIST, odd[i], 0), 0);
        assert_int_not_equal(ask(h, FRAME_MKDIR, odd[i], 0), 0);
    }
    assert_int_equal(ask(h, FRAME_TAR_OUT, "work/fifo", 0), ERR_WRONG_KIND);
    assert_int_equal(ask(h, FRAME_TAR_OUT, "work", 0), 0);
    assert_int_equal(write_file(h, "work/fifo", 0), 0); /* replaced, not written into */
    assert_int_equal(move(h, "work/sock", "work/moved"), 0);
    assert_int_equal(ask(h, FRAME_REMOVE, "work/dev", 0), 0);
    assert_int_equal(ask(h, FRAME_REMOVE, "work", RT_PATH_RECURSIVE), 0);
    end(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(FA02_no_request_goes_through_a_link_of_proc_a_loop_or_nowhere),
        RUN(FA02_a_request_on_a_link_changes_the_link_itself),
        RUN(FA02_special_files_do_not_block_a_request),
        RUN(FA03_a_directory_swapped_for_a_link_cannot_redirect_a_request),
        RUN(FA03_a_tree_traversal_follows_no_link_swapped_in_during_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
