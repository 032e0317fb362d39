/* The real cove-runtime, driven over its socket: files and archives. */
#include "rt_host.h"

#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "inside/runtime/tar.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

static char top[64];   /* a directory of this test, which all requests name */
static char path[512]; /* in(name) */

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
    /* in memory if possible: ten thousand directories would take a busy disk longer than the
     * runtime */
    snprintf(top, sizeof(top), "%s/cove-files-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(top));
    return host_ready();
}

static void end(struct host *h)
{
    host_stop(h);
    nftw(top, zap, 20, FTW_DEPTH | FTW_PHYS);
}

static void put(const char *name, const char *text)
{
    int fd = open(in(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
    close(fd);
}

static const char *get(const char *name)
{
    static char text[4096];

    return fd_get_at(AT_FDCWD, in(name), text, sizeof(text)) < 0 ? NULL : text;
}

static bool there(const char *name)
{
    struct stat st;

    return lstat(in(name), &st) == 0;
}

/* Sends a path request and waits. Returns the error id, or 0 on DONE. */
static uint32_t ask(struct host *h, uint8_t type, const char *p, uint32_t flags, struct got **ret)
{
    uint32_t s = host_path(h, type, p, flags);

    host_wait(h, s);
    if (ret)
        *ret = host_got(h, s);
    return host_got(h, s)->last == FRAME_ERROR ? host_got(h, s)->error.id : 0;
}

static struct rt_entry *entry_of(struct got *g)
{
    static struct rt_entry e;
    struct unpack u;

    unpack_init(&u, g->done, g->done_len);
    assert_true(rt_entry_unpack(&u, &e) && unpack_end(&u));
    return &e;
}

static struct rt_done done_of(struct got *g)
{
    struct rt_done d;

    assert_int_equal(
        rt_done_decode(&(struct frame){ .type = FRAME_DONE, .data = g->done, .len = (uint32_t)g->done_len }, &d, NULL),
        0);
    return d;
}

static uint32_t write_file(struct host *h, const char *p, uint32_t flags, const char *text, struct got **ret)
{
    uint32_t s = host_path(h, FRAME_WRITE, p, flags);

    host_data(h, s, text, strlen(text), true);
    host_wait(h, s);
    if (ret)
        *ret = host_got(h, s);
    return host_got(h, s)->last == FRAME_ERROR ? host_got(h, s)->error.id : 0;
}

TEST(a_file_is_written_and_read_back_by_range)
{
    struct host *h = begin();
    struct got *g;
    struct rt_path m = { .offset = 3, .length = 4 };
    uint8_t out[8192];

    assert_int_equal(write_file(h, in("a/b/c"), RT_PATH_PARENTS, "0123456789", &g), 0);
    assert_int_equal(done_of(g).bytes, 10);
    assert_string_equal(get("a/b/c"), "0123456789");
    assert_int_equal(ask(h, FRAME_READ, in("a/b/c"), 0, &g), 0);
    assert_string_equal(g->data[0].data, "0123456789");
    assert_int_equal(entry_of(g)->size, 10);
    assert_int_equal(entry_of(g)->mode, 0644);
    assert_int_equal(entry_of(g)->kind, 'f');

    snprintf(m.path, sizeof(m.path), "%s", in("a/b/c"));
    uint32_t s = host_open(h, FRAME_READ, out, (size_t)rt_path_encode(&m, out, NULL));
    host_wait(h, s);
    assert_string_equal(host_got(h, s)->data[0].data, "3456");
    end(h);
}

TEST(a_conditional_read_fails_when_the_file_has_changed)
{
    struct host *h = begin();
    struct got *g;

    put("f", "first");
    assert_int_equal(ask(h, FRAME_STAT, in("f"), 0, &g), 0);
    uint32_t seen = rt_file_version_check(entry_of(g)->version);
    assert_int_equal(ask(h, FRAME_READ, in("f"), seen, &g), 0);
    assert_string_equal(g->data[0].data, "first");
    put("f", "second and longer");
    assert_int_equal(ask(h, FRAME_READ, in("f"), seen, &g), ERR_BUSY);
    assert_int_equal(g->data[0].len, 0);
    assert_int_equal(ask(h, FRAME_READ, in("f"), 0, NULL), 0);
    end(h);
}

/* Writes in place, without a change of size, several times within each tick of the clock. A version
 * that a stat reports as settled must change with the next write. */
TEST(a_version_that_is_settled_changes_with_every_write)
{
    struct host *h = begin();
    struct got *g;
    uint64_t before = 0;
    bool was_settled = false, any_settled = false;
    auto_fd int fd = -1;

    put("f", "0");
    fd = open(in("f"), O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (int i = 0; i < 500; i++) {
        assert_int_equal(ask(h, FRAME_STAT, in("f"), 0, &g), 0);
        if (was_settled)
            assert_int_not_equal(entry_of(g)->version, before);
        before = entry_of(g)->version;
        was_settled = entry_of(g)->settled;
        any_settled |= was_settled;
        assert_int_equal(pwrite(fd, "x", 1, 0), 1);
        if (i % 20 == 0)
            usleep(12000); /* longer than a tick of any kernel */
    }
    assert_true(any_settled);
    end(h);
}

TEST(eight_mebibytes_go_in_and_out_unchanged_while_a_program_runs)
{
    struct host *h = begin();
    size_t len = 8 * MIB + 123;
    auto_free uint8_t *data = mem_alloc(len);
    struct got *g;

    for (size_t i = 0; i < len; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 11);
    uint32_t s = host_path(h, FRAME_WRITE, in("big"), 0);
    uint32_t sh = host_sh(h, "i=0; while [ $i -lt 50 ]; do echo $i; i=$((i+1)); done");
    host_data(h, s, data, len, true);
    host_wait(h, s);
    host_wait(h, sh);
    assert_int_equal(host_got(h, s)->last, FRAME_DONE);
    assert_int_equal(ask(h, FRAME_READ, in("big"), 0, &g), 0);
    assert_int_equal(g->data[0].len, len);
    assert_memory_equal(g->data[0].data, data, len);
    end(h);
}

TEST(a_write_replaces_atomically_and_leaves_nothing_when_aborted)
{
    struct host *h = begin();
    struct got *g;

    put("x", "old");
    uint32_t s = host_path(h, FRAME_WRITE, in("x"), 0);
    host_data(h, s, "new", 3, false);
    assert_int_equal(ask(h, FRAME_STAT, in("x"), 0, &g), 0); /* the bytes have arrived */
    assert_string_equal(get("x"), "old");
    host_close(h, s);
    assert_int_equal(ask(h, FRAME_LIST, top, 0, &g), 0);
    assert_int_equal(done_of(g).files, 1); /* no temporary file remains */
    assert_string_equal(get("x"), "old");

    assert_int_equal(write_file(h, in("x"), RT_PATH_EXCL, "new", NULL), ERR_EXISTS);
    assert_int_equal(write_file(h, in("x"), 0, "new", NULL), 0);
    assert_string_equal(get("x"), "new");
    assert_int_equal(write_file(h, in("y"), RT_PATH_EXCL, "fresh", NULL), 0);
    assert_int_equal(write_file(h, in("no/y"), 0, "z", NULL), ERR_MISSING);
    assert_int_equal(write_file(h, top, 0, "z", NULL), ERR_WRONG_KIND);
    end(h);
}

TEST(a_link_planted_at_the_target_is_replaced_not_followed)
{
    struct host *h = begin();

    put("secret", "untouched");
    char *target = str_dup(in("secret"));
    assert_int_equal(symlink(target, in("planted")), 0);
    free(target);
    assert_int_equal(write_file(h, in("planted"), 0, "mine", NULL), 0);
    assert_string_equal(get("secret"), "untouched");
    assert_string_equal(get("planted"), "mine");
    end(h);
}

TEST(only_regular_files_are_read_and_nothing_blocks)
{
    struct host *h = begin();
    struct sockaddr_un sun = { .sun_family = AF_UNIX };

    mkfifo(in("fifo"), 0644);
    snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", in("sock"));
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
    assert_int_equal(symlink("/proc/self/environ", in("env")), 0);
    assert_int_equal(symlink("/proc/self/fd/3", in("magic")), 0);
    assert_int_equal(symlink("loop", in("loop")), 0);
    static const struct {
        const char *name;
        enum err_id id;
    } cases[] = {
        { "fifo", ERR_WRONG_KIND },  { "sock", ERR_WRONG_KIND }, { ".", ERR_WRONG_KIND }, { "env", ERR_WRONG_KIND },
        { "magic", ERR_WRONG_KIND }, { "loop", ERR_WRONG_KIND }, { "none", ERR_MISSING },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t id = ask(h, FRAME_READ, in(cases[i].name), 0, NULL);

        if (id != cases[i].id && !(id == ERR_DENIED && i == 3))
            fail_msg("%s: %u", cases[i].name, id);
    }
    assert_int_equal(ask(h, FRAME_READ, "/dev/zero", 0, NULL), ERR_WRONG_KIND);
    assert_int_equal(ask(h, FRAME_READ, "/dev/tty", 0, NULL), ERR_WRONG_KIND);
    close(fd);
    end(h);
}

TEST(paths_must_be_absolute_and_not_empty)
{
    static const struct {
        uint8_t type;
        const char *path;
    } cases[] = {
        { FRAME_READ, "tmp/x" },   { FRAME_WRITE, "x" },     { FRAME_WRITE, "/" },         { FRAME_WRITE, "/tmp/.." },
        { FRAME_MKDIR, "/tmp/." }, { FRAME_REMOVE, "/" },    { FRAME_REMOVE, "/tmp/../" }, { FRAME_LIST, "." },
        { FRAME_STAT, "" },        { FRAME_TAR_IN, "here" }, { FRAME_TAR_OUT, "../" },
    };
    struct host *h = begin();

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint32_t id = ask(h, cases[i].type, cases[i].path, 0, NULL);

        if (id != ERR_INVALID && id != ERR_WRONG_KIND && id != ERR_PROTOCOL)
            fail_msg("case %zu: %u", i, id);
    }
    end(h);
}

TEST(names_of_any_bytes_are_listed_and_removed)
{
    static const char *const names[] = { "line\nbreak", "\xff\xfe", "-rf", "\x1b[31m", " ", "\xe2\x80\xae" };
    struct host *h = begin();
    struct rt_entry *e = mem_new(struct rt_entry);
    struct unpack u;
    struct got *g;
    size_t n = 0;
    char longest[256];

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        put(names[i], "x");
    memset(longest, 'n', 255);
    longest[255] = '\0';
    put(longest, "x");
    assert_int_equal(symlink("some/where", in("link")), 0);
    assert_int_equal(ask(h, FRAME_LIST, top, 0, &g), 0);
    unpack_init(&u, g->data[0].data, g->data[0].len);
    while (u.pos < u.len) {
        assert_true(rt_entry_unpack(&u, e));
        assert_true(there(e->name));
        if (e->kind == 'l')
            assert_string_equal(e->target, "some/where");
        n++;
    }
    assert_int_equal(n, ARRAY_LEN(names) + 2);
    assert_int_equal(done_of(g).files, n);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        assert_int_equal(ask(h, FRAME_REMOVE, in(names[i]), 0, NULL), 0);
        assert_false(there(names[i]));
    }
    free(e);
    end(h);
}

TEST(a_listing_stops_at_its_limit_and_reports_it)
{
    struct host *h = begin();
    struct rt_path m = { .length = 250 };
    uint8_t out[8192];
    char name[32];
    struct got *g;

    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        put(name, "");
    }
    snprintf(m.path, sizeof(m.path), "%s", top);
    uint32_t s = host_open(h, FRAME_LIST, out, (size_t)rt_path_encode(&m, out, NULL));
    host_wait(h, s);
    assert_int_equal(done_of(host_got(h, s)).files, 250);
    assert_int_equal(done_of(host_got(h, s)).truncated, 1);
    assert_int_equal(ask(h, FRAME_LIST, top, 0, &g), 0);
    assert_int_equal(done_of(g).files, 1000);
    assert_int_equal(done_of(g).truncated, 0);
    end(h);
}

TEST(stat_describes_the_name_itself)
{
    struct host *h = begin();
    struct got *g;

    put("f", "12345");
    chmod(in("f"), 04751);
    assert_int_equal(symlink("f", in("l")), 0);
    assert_int_equal(ask(h, FRAME_STAT, in("f"), 0, &g), 0);
    assert_int_equal(entry_of(g)->size, 5);
    assert_int_equal(entry_of(g)->mode, 04751);
    assert_int_equal(ask(h, FRAME_STAT, in("l"), 0, &g), 0);
    assert_int_equal(entry_of(g)->kind, 'l');
    assert_string_equal(entry_of(g)->target, "f");
    assert_int_equal(ask(h, FRAME_STAT, "/", 0, &g), 0);
    assert_int_equal(entry_of(g)->kind, 'd');
    end(h);
}

TEST(directories_are_made_with_and_without_parents)
{
    struct host *h = begin();

    assert_int_equal(ask(h, FRAME_MKDIR, in("d"), 0, NULL), 0);
    assert_int_equal(ask(h, FRAME_MKDIR, in("d"), 0, NULL), 0);
    assert_int_equal(ask(h, FRAME_MKDIR, in("d"), RT_PATH_EXCL, NULL), ERR_EXISTS);
    assert_int_equal(ask(h, FRAME_MKDIR, in("p/q/r"), 0, NULL), ERR_MISSING);
    assert_int_equal(ask(h, FRAME_MKDIR, in("p/q/r/"), RT_PATH_PARENTS, NULL), 0);
    assert_true(there("p/q/r"));
    put("file", "");
    assert_int_equal(ask(h, FRAME_MKDIR, in("file"), 0, NULL), ERR_EXISTS);
    assert_int_equal(ask(h, FRAME_MKDIR, in("file/x"), RT_PATH_PARENTS, NULL), ERR_WRONG_KIND);
    end(h);
}

static uint32_t move(struct host *h, const char *from, const char *to, uint32_t flags)
{
    auto_free struct rt_move *m = mem_new(struct rt_move);
    auto_free uint8_t *out = mem_alloc(FRAME_PAYLOAD_MAX);

    snprintf(m->from, sizeof(m->from), "%s/%s", top, from);
    snprintf(m->to, sizeof(m->to), "%s/%s", top, to);
    m->flags = flags;
    uint32_t s = host_open(h, FRAME_MOVE, out, (size_t)rt_move_encode(m, out, NULL));
    host_wait(h, s);
    return host_got(h, s)->last == FRAME_ERROR ? host_got(h, s)->error.id : 0;
}

TEST(a_move_with_the_exclusive_flag_replaces_nothing)
{
    struct host *h = begin();

    put("a", "a");
    put("b", "b");
    assert_int_equal(move(h, "a", "b", RT_PATH_EXCL), ERR_EXISTS);
    assert_int_equal(move(h, "a", "b", 0), 0);
    assert_string_equal(get("b"), "a");
    assert_int_equal(move(h, "b", "x/y/z", 0), ERR_MISSING);
    assert_int_equal(move(h, "b", "x/y/z", RT_PATH_PARENTS), 0);
    assert_string_equal(get("x/y/z"), "a");
    assert_int_equal(move(h, "none", "c", 0), ERR_MISSING);
    end(h);
}

TEST(removing_a_tree_follows_no_link_and_enters_closed_directories)
{
    struct host *h = begin();
    struct got *g;

    put("keep", "safe");
    mkdir(in("outside"), 0755);
    put("outside/too", "safe");
    mkdir(in("t"), 0755);
    mkdir(in("t/closed"), 0755);
    put("t/closed/f", "");
    chmod(in("t/closed"), 0);
    mkdir(in("t/empty"), 0);
    assert_int_equal(symlink("../outside", in("t/link")), 0);
    /* Not empty, and without the recursive flag. */
    assert_int_equal(ask(h, FRAME_REMOVE, in("t"), 0, NULL), ERR_EXISTS);
    assert_int_equal(ask(h, FRAME_REMOVE, in("t"), RT_PATH_RECURSIVE, &g), 0);
    assert_int_equal(done_of(g).files, 5);
    assert_false(there("t"));
    assert_string_equal(get("outside/too"), "safe");
    assert_int_equal(ask(h, FRAME_REMOVE, in("t"), RT_PATH_RECURSIVE, NULL), ERR_MISSING);
    assert_int_equal(ask(h, FRAME_REMOVE, in("t/u"), RT_PATH_RECURSIVE | RT_PATH_MISSING_OK, NULL), 0);
    end(h);
}

TEST(ten_thousand_levels_are_removed_in_little_memory)
{
    struct host *h = begin();
    struct got *g;
    int at = open(top, O_PATH | O_DIRECTORY);

    for (int i = 0; i < 10000; i++) {
        assert_int_equal(mkdirat(at, "dddd", 0755), 0);
        int next = openat(at, "dddd", O_PATH | O_DIRECTORY);

        close(at);
        at = next;
        assert_true(at >= 0);
    }
    close(at);
    assert_int_equal(ask(h, FRAME_REMOVE, in("dddd"), RT_PATH_RECURSIVE, &g), 0);
    assert_int_equal(done_of(g).files, 10000);
    assert_false(there("dddd"));
    end(h);
}

/* --- archives --- */

static void add_entry(struct buf *b, char kind, const char *name, const char *link, const char *content)
{
    auto_free struct tar_entry *e = mem_new(struct tar_entry);
    auto_free uint8_t *out = mem_alloc(TAR_HEADERS_MAX);
    static const uint8_t zero[TAR_BLOCK];
    size_t len = content ? strlen(content) : 0;

    e->kind = kind;
    e->mode = kind == 'd' ? 0755 : 0640;
    e->size = len;
    e->mtime = 1234567890;
    snprintf(e->path, sizeof(e->path), "%s", name);
    snprintf(e->link, sizeof(e->link), "%s", link ? link : "");
    buf_add(b, out, tar_write_headers(out, e));
    if (len) {
        buf_add(b, content, len);
        buf_add(b, zero, (TAR_BLOCK - len % TAR_BLOCK) % TAR_BLOCK);
    }
}

static uint32_t unpack_into(struct host *h, const char *dir, const struct buf *b, struct got **ret)
{
    uint32_t s = host_path(h, FRAME_TAR_IN, dir, 0);

    host_data(h, s, b->data, b->len, true);
    host_wait(h, s);
    if (ret)
        *ret = host_got(h, s);
    return host_got(h, s)->last == FRAME_ERROR ? host_got(h, s)->error.id : 0;
}

TEST(an_archive_is_exported_and_imported_unchanged)
{
    struct host *h = begin();
    struct got *g;
    struct stat st;
    char deep[600], want[64];

    snprintf(deep, sizeof(deep),
             "mkdir -p %s/src %s/dst; cd %s/src; d=.; for i in 1 2 3 4 5; do d=$d/%s; done; "
             "mkdir -p $d; echo deep >$d/f; echo hi >a; chmod 755 a; ln -s a l; mkfifo p; mkdir e; "
             "head -c 3000000 /dev/urandom >big",
             top, top, top, "a-directory-with-a-name-of-more-than-fifty-characters-so-that");
    uint32_t s = host_sh(h, deep);
    host_wait(h, s);
    assert_int_equal(host_got(h, s)->exit.code, 0);
    assert_int_equal(ask(h, FRAME_TAR_OUT, in("src"), 0, &g), 0);
    assert_int_equal(done_of(g).skipped, 1); /* the pipe */
    struct buf archive = g->data[0];
    g->data[0] = (struct buf){ 0 };
    struct got *back;
    assert_int_equal(unpack_into(h, in("dst"), &archive, &back), 0);
    assert_int_equal(done_of(back).files, done_of(g).files);
    assert_int_equal(done_of(back).bytes, done_of(g).bytes);
    buf_done(&archive);
    snprintf(deep, sizeof(deep), "cd %s; rm src/p; diff -r --no-dereference src dst && echo same", top);
    s = host_sh(h, deep);
    host_wait(h, s);
    assert_string_equal(host_got(h, s)->data[1].data, "same\n");
    assert_int_equal(stat(in("dst/a"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    assert_true(readlink(in("dst/l"), want, sizeof(want)) == 1);
    end(h);
}

TEST(a_file_or_link_is_an_archive_of_one_entry_and_a_pipe_is_refused)
{
    static const char *const names[] = { "one", "soft" };
    struct host *h = begin();
    struct got *g, *back;
    char want[64];

    put("one", "a single file\n");
    assert_int_equal(symlink("one", in("soft")), 0);
    assert_int_equal(mkfifo(in("pipe"), 0600), 0);
    assert_int_equal(mkdir(in("dst"), 0755), 0);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        assert_int_equal(ask(h, FRAME_TAR_OUT, in(names[i]), 0, &g), 0);
        assert_int_equal(done_of(g).files, 1);
        assert_int_equal(unpack_into(h, in("dst"), &g->data[0], &back), 0);
    }
    assert_string_equal(get("dst/one"), "a single file\n");
    assert_int_equal(readlink(in("dst/soft"), want, sizeof(want)), 3);
    assert_int_equal(ask(h, FRAME_TAR_OUT, in("pipe"), 0, &g), ERR_WRONG_KIND);
    assert_int_equal(ask(h, FRAME_TAR_OUT, in("one/below"), 0, &g), ERR_WRONG_KIND);
    assert_int_equal(ask(h, FRAME_TAR_OUT, in("none"), 0, &g), ERR_MISSING);
    end(h);
}

TEST(archives_are_compatible_with_tar_in_both_directions)
{
    struct host *h = begin();
    char script[1024];
    struct got *g;

    snprintf(script, sizeof(script),
             "cd %s; mkdir s; echo one >s/one; n=$(printf 'x%%.0s' $(seq 150)); echo two >s/$n; ln s/one s/hard; "
             "ln -s one s/soft; for f in ustar gnu pax v7; do mkdir $f; tar --format=$f -cf $f.tar -C s . 2>/dev/null; "
             "done; true",
             top);
    uint32_t s = host_sh(h, script);
    host_wait(h, s);
    static const char *const formats[] = { "ustar", "gnu", "pax" };
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        char name[32];

        snprintf(name, sizeof(name), "%s.tar", formats[i]);
        assert_int_equal(ask(h, FRAME_READ, in(name), 0, &g), 0);
        struct buf archive = g->data[0];
        g->data[0] = (struct buf){ 0 };
        uint32_t id = unpack_into(h, in(formats[i]), &archive, &g);
        if (id)
            fail_msg("%s: %s", formats[i], g->error.msg);
        buf_done(&archive);
        snprintf(script, sizeof(script), "cd %s; diff -r --no-dereference s %s", top, formats[i]);
        s = host_sh(h, script);
        host_wait(h, s);
        /* Ustar cannot store one of the names. */
        assert_int_equal(host_got(h, s)->exit.code, i == 0 ? host_got(h, s)->exit.code : 0);
    }
    assert_int_equal(ask(h, FRAME_TAR_OUT, in("s"), 0, &g), 0);
    assert_int_equal(unlink(in("gnu.tar")), 0);
    int fd = open(in("ours.tar"), O_WRONLY | O_CREAT, 0644);
    assert_int_equal(fd_write_all(fd, g->data[0].data, g->data[0].len), 0);
    close(fd);
    snprintf(script, sizeof(script),
             "cd %s; mkdir o; tar -xf ours.tar -C o && diff -r --no-dereference s o && echo same", top);
    s = host_sh(h, script);
    host_wait(h, s);
    assert_string_equal(host_got(h, s)->data[1].data, "same\n");
    end(h);
}

TEST(hostile_archives_stay_inside)
{
    static const struct {
        char kind;
        const char *name, *link;
        char kind2;
        const char *name2, *link2;
        enum err_id id;
    } cases[] = {
        { 'f', "../escape", NULL, 0, NULL, NULL, ERR_INVALID },
        { 'f', "/escape", NULL, 0, NULL, NULL, ERR_INVALID },
        { 'f', "a/../../escape", NULL, 0, NULL, NULL, ERR_INVALID },
        { 'l', "l", "..", 'f', "l/escape", NULL, ERR_WRONG_KIND }, /* through its own link */
        { 'l', "l", "/tmp", 'd', "l/escape", NULL, ERR_WRONG_KIND },
        { 'h', "h", "../secret", 0, NULL, NULL, ERR_INVALID },
        { 'h', "h", "/etc/passwd", 0, NULL, NULL, ERR_INVALID },
        { 'l', "l", "..", 'h', "h", "l/secret", ERR_WRONG_KIND },
        { 'f', "f", NULL, 'd', "f", NULL, ERR_EXISTS },
        { 'd', "d", NULL, 'f', "d", NULL, ERR_WRONG_KIND },
        { 'l', "planted", "../secret", 'f', "planted", NULL, 0 }, /* replaced, not written through */
    };
    struct host *h = begin();
    struct got *g;

    put("secret", "untouched");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        auto_buf b = { 0 };
        char dir[32];

        snprintf(dir, sizeof(dir), "t%zu", i);
        mkdir(in(dir), 0755);
        add_entry(&b, cases[i].kind, cases[i].name, cases[i].link, cases[i].kind == 'f' ? "evil" : NULL);
        if (cases[i].kind2)
            add_entry(&b, cases[i].kind2, cases[i].name2, cases[i].link2, cases[i].kind2 == 'f' ? "evil" : NULL);
        buf_add(&b, (uint8_t[2 * TAR_BLOCK]){ 0 }, (size_t)2 * TAR_BLOCK);
        uint32_t id = unpack_into(h, in(dir), &b, &g);
        if (id != cases[i].id)
            fail_msg("case %zu: %u '%s'", i, id, g->error.msg);
        assert_false(there("escape"));
        assert_string_equal(get("secret"), "untouched");
    }
    end(h);
}

TEST(a_truncated_archive_leaves_no_partial_file)
{
    struct host *h = begin();
    auto_buf b = { 0 };
    struct got *g;

    add_entry(&b, 'f', "whole", NULL, "content");
    add_entry(&b, 'f', "half", NULL, "content that is cut");
    b.len -= TAR_BLOCK; /* its content is missing */
    assert_int_equal(unpack_into(h, top, &b, &g), ERR_INVALID);
    assert_non_null(strstr(g->error.msg, "half"));
    assert_int_equal(ask(h, FRAME_STAT, in("half"), 0, NULL), ERR_MISSING);
    assert_string_equal(get("whole"), "content");
    end(h);
}

/* --- changes --- */

TEST(changes_since_a_snapshot_are_found)
{
    struct host *h = begin();
    struct got *g;
    struct unpack u;
    auto_buf seen = { 0 };
    auto_free struct rt_change *c = mem_new(struct rt_change);

    assert_int_equal(ask(h, FRAME_CHANGES, top, 0, NULL), ERR_INVALID); /* there is no snapshot yet */
    put("same", "same");
    put("written", "one");
    put("gone", "x");
    mkdir(in("dir"), 0755);
    put("dir/f", "f");
    assert_int_equal(ask(h, FRAME_SNAPSHOT, top, 0, &g), 0);
    assert_int_equal(done_of(g).files, 5);
    put("written", "two"); /* same size */
    unlink(in("gone"));
    put("fresh", "12345");
    mkdir(in("dir/sub"), 0755);
    assert_int_equal(ask(h, FRAME_CHANGES, top, 0, &g), 0);
    unpack_init(&u, g->data[0].data, g->data[0].len);
    while (u.pos < u.len) {
        assert_true(rt_change_unpack(&u, c));
        buf_addf(&seen, "%c%c %s %d;", c->kind, c->file, c->path, (int)c->size);
    }
    assert_non_null(strstr(seen.data, "Mf written 3;"));
    assert_non_null(strstr(seen.data, "Df gone 1;"));
    assert_non_null(strstr(seen.data, "Af fresh 5;"));
    assert_non_null(strstr(seen.data, "Ad dir/sub 0;"));
    struct rt_done d = done_of(g);
    assert_int_equal(d.added, 2);
    assert_int_equal(d.modified, 1);
    assert_int_equal(d.deleted, 1);
    assert_int_equal(d.truncated, 0);
    end(h);
}

TEST(changes_are_counted_beyond_the_listed)
{
    struct host *h = begin();
    struct rt_path m = { .length = 10 };
    uint8_t out[8192];
    char name[32];

    assert_int_equal(ask(h, FRAME_SNAPSHOT, top, 0, NULL), 0);
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof(name), "f%d", i);
        put(name, "");
    }
    snprintf(m.path, sizeof(m.path), "%s", top);
    uint32_t s = host_open(h, FRAME_CHANGES, out, (size_t)rt_path_encode(&m, out, NULL));
    host_wait(h, s);
    assert_int_equal(done_of(host_got(h, s)).added, 300);
    assert_int_equal(done_of(host_got(h, s)).truncated, 1);
    end(h);
}

TEST(statistics_count_processes_and_executions)
{
    struct host *h = begin();
    uint32_t sh = host_sh(h, "sleep 99 & sleep 99 & echo go; wait");
    struct rt_stats m;

    while (!host_got(h, sh)->data[1].len)
        assert_true(host_turn(h, 60000));
    uint32_t s = host_open(h, FRAME_STATS, NULL, 0);
    host_wait(h, s);
    struct got *g = host_got(h, s);
    assert_int_equal(g->last, FRAME_DONE);
    assert_int_equal(
        rt_stats_decode(&(struct frame){ .type = FRAME_DONE, .data = g->done, .len = (uint32_t)g->done_len }, &m, NULL),
        0);
    assert_int_equal(m.executions, 1);
    if (h->isolated)
        assert_int_equal(m.processes, 3);
    assert_true(m.tmp_bytes_max > 0 && m.tmp_bytes <= m.tmp_bytes_max);
    host_signal(h, sh, SIGKILL, RT_SCOPE_TREE);
    host_wait(h, sh);
    end(h);
}

TEST(a_new_client_during_a_read_gets_every_byte_once)
{
    struct host *h = begin();
    size_t len = 6 * MIB;
    auto_free char *data = mem_alloc(len + 1);

    for (size_t i = 0; i < len; i++)
        data[i] = (char)('a' + i * 2654435761u % 26);
    put("big", data);
    uint32_t s = host_path(h, FRAME_READ, in("big"), 0);
    struct got *g = host_got(h, s);
    for (uint64_t epoch = 2; epoch < 5; epoch++) {
        for (int i = 0; i < 10; i++)
            host_turn(h, 1000);
        host_hello(h, epoch);
    }
    host_wait(h, s);
    assert_int_equal(g->data[0].len, len);
    assert_memory_equal(g->data[0].data, data, len);
    end(h);
}

TEST(a_new_client_after_a_read_gets_uncredited_bytes_again)
{
    struct host *h = begin();
    auto_free char *data = mem_alloc(200001);

    memset(data, 'x', 200000);
    put("file", data);
    uint32_t s = host_path(h, FRAME_READ, in("file"), 0);
    struct got *g = host_got(h, s);
    g->hold = true;
    host_wait(h, s);
    assert_int_equal(g->uncredited, 200000);
    host_credit(h, s, 50000);
    g->resumed = false;
    host_hello(h, 2);
    while (!g->resumed || !g->last)
        assert_true(host_turn(h, 60000));
    assert_int_equal(g->resume.out, 50000);
    assert_int_equal(g->uncredited, 150000);
    assert_int_equal(g->last, FRAME_DONE);
    host_close(h, s);
    end(h);
}

TEST(a_long_upload_is_credited_in_few_frames)
{
    struct host *h = begin();
    auto_free char *data = mem_alloc(8 * MIB);
    uint32_t s = host_path(h, FRAME_WRITE, in("big"), 0);
    struct got *g = host_got(h, s);

    host_data(h, s, data, 8 * MIB, true);
    host_wait(h, s);
    assert_int_equal(g->last, FRAME_DONE);
    assert_true(g->credits <= 8 * MIB / (WIRE_WINDOW_BULK / 4));
    end(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_version_that_is_settled_changes_with_every_write),
        RUN(eight_mebibytes_go_in_and_out_unchanged_while_a_program_runs),
        RUN(a_link_planted_at_the_target_is_replaced_not_followed),
        RUN(only_regular_files_are_read_and_nothing_blocks),
        RUN(paths_must_be_absolute_and_not_empty),
        RUN(names_of_any_bytes_are_listed_and_removed),
        RUN(a_listing_stops_at_its_limit_and_reports_it),
        RUN(stat_describes_the_name_itself),
        RUN(directories_are_made_with_and_without_parents),
        RUN(a_move_with_the_exclusive_flag_replaces_nothing),
        RUN(removing_a_tree_follows_no_link_and_enters_closed_directories),
        RUN(ten_thousand_levels_are_removed_in_little_memory),
        RUN(an_archive_is_exported_and_imported_unchanged),
        RUN(a_file_or_link_is_an_archive_of_one_entry_and_a_pipe_is_refused),
        RUN(archives_are_compatible_with_tar_in_both_directions),
        RUN(hostile_archives_stay_inside),
        RUN(a_truncated_archive_leaves_no_partial_file),
        RUN(changes_since_a_snapshot_are_found),
        RUN(changes_are_counted_beyond_the_listed),
        RUN(statistics_count_processes_and_executions),
        RUN(a_new_client_during_a_read_gets_every_byte_once),
        RUN(a_new_client_after_a_read_gets_uncredited_bytes_again),
        RUN(a_long_upload_is_credited_in_few_frames),
        RUN(a_file_is_written_and_read_back_by_range),
        RUN(a_conditional_read_fails_when_the_file_has_changed),
        RUN(a_write_replaces_atomically_and_leaves_nothing_when_aborted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
