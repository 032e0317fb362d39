/* The Python zygote, from the jailer to the first cell: PID 1 adopts an interpreter as an
 * execution; the interpreter takes over the sandbox's environment, directory and Landlock rules,
 * and shares nothing with others of its zygote that it must not. */
#include "zygote_host.h"

#include <errno.h>

struct member { /* an execution, as its client sees it */
    int control;
    uint32_t stream, pid;
    char text[3][32768]; /* stdout, stderr, lines of the language kernel: the part that was not read yet */
    size_t len[3];
    bool over;
};

static uint32_t next_stream;

static void tell(int control, uint8_t type, uint8_t flags, uint32_t stream, const void *payload, int len,
                 const int *fds, size_t nfds)
{
    static uint8_t packet[FRAME_MAX];

    assert_true(len >= 0);
    frame_header(packet, &(struct frame){ .type = type, .flags = flags, .stream = stream, .len = (uint32_t)len });
    if (len)
        memcpy(packet + FRAME_HEADER, payload, (size_t)len);
    assert_int_equal(fd_send(control, packet, FRAME_HEADER + (size_t)len, fds, nfds, 0), (int)FRAME_HEADER + len);
}

static void hear(int control, struct reply *r)
{
    struct err err;

    assert_true(readable_within(control, 60000));
    ssize_t n = recv(control, r->bytes, sizeof(r->bytes), 0);
    assert_true(n > 0);
    assert_int_equal(frame_parse(r->bytes, (size_t)n, &r->f, &err), 0);
}

static void claim_as(int control, const char *colour)
{
    const char *const env[] = { "PATH=/usr/bin:/bin", colour, NULL };
    static struct rt_claim c;
    static uint8_t out[FRAME_PAYLOAD_MAX];
    struct reply r;

    c = (struct rt_claim){ .env = env, .landlock_min = 1 };
    id_new("sb", c.id);
    c.rules[c.nrules++] = (struct rt_rule){ RT_ACCESS_READ_EXEC, "/usr" };
    c.rules[c.nrules++] = (struct rt_rule){ RT_ACCESS_READ_EXEC | RT_ACCESS_OPTIONAL, "/lib" };
    c.rules[c.nrules++] = (struct rt_rule){ RT_ACCESS_READ_EXEC | RT_ACCESS_OPTIONAL, "/lib64" };
    c.rules[c.nrules++] = (struct rt_rule){ RT_ACCESS_READ_EXEC, "/.cove" };
    c.rules[c.nrules++] = (struct rt_rule){ RT_ACCESS_READ, "/etc" };
    c.rules[c.nrules++] = (struct rt_rule){ RT_ACCESS_READ, "/proc" };
    c.rules[c.nrules++] = (struct rt_rule){ RT_ACCESS_DEVICE, "/dev" };
    c.rules[c.nrules++] = (struct rt_rule){ RT_ACCESS_READ_WRITE, "/workspace" };
    tell(control, FRAME_CLAIM, 0, 0, out, rt_claim_encode(&c, out, NULL), NULL, 0);
    hear(control, &r);
    assert_int_equal(r.f.type, FRAME_CLAIMED);
}

static void claim(int control)
{
    claim_as(control, "COLOUR=green");
}

static void listen_once(struct member *m)
{
    struct reply r;
    struct rt_error e = { 0 };

    hear(m->control, &r);
    if (r.f.type == FRAME_ERROR) {
        (void)rt_error_decode(&r.f, &e, NULL);
        fail_msg("%s", e.msg);
    }
    m->over = m->over || (r.f.type == FRAME_EXIT && r.f.stream == m->stream);
    if (r.f.type != FRAME_DATA || r.f.stream != m->stream)
        return;
    size_t i = (r.f.flags & RT_CHANNEL) - 1u;
    assert_true(i < 3 && m->len[i] + r.f.len < sizeof(m->text[i]));
    memcpy(m->text[i] + m->len[i], r.f.data, r.f.len);
    m->len[i] += r.f.len;
}

/* One line of a channel. */
static void next_line(struct member *m, unsigned channel, char *ret, size_t cap)
{
    size_t i = channel - 1u;
    char *end;

    while (!(end = memchr(m->text[i], '\n', m->len[i]))) {
        if (m->over)
            fail_msg("it ended with: %.*s", (int)m->len[1], m->text[1]);
        listen_once(m);
    }
    size_t n = (size_t)(end - m->text[i]);
    assert_true(n < cap);
    memcpy(ret, m->text[i], n);
    ret[n] = '\0';
    m->len[i] -= n + 1;
    memmove(m->text[i], end + 1, m->len[i]);
}

/* Starts an interpreter of the zygote as an execution of the sandbox, after so many rehearsals. */
static void adopt_after(unsigned rehearsals, struct host *h, const char *id, int control, const char *cwd,
                        struct member *m)
{
    static const char *const argv[] = { "python", NULL };
    static const char *const env[] = { "SHAPE=round", NULL };
    struct rt_exec x = { .flags = RT_EXEC_KERNEL | RT_EXEC_JOINED, .cwd = cwd, .argv = argv, .env = env };
    uint8_t out[4096];
    struct reply r;
    char line[1024];

    *m = (struct member){ .control = control, .stream = next_stream += 2 };
    join(h, id, &r);
    tell(control, FRAME_INTERPRETER, 0, 0, NULL, 0, r.fds, 3);
    for (unsigned i = 0; i < rehearsals; i++)
        tell(control, FRAME_WARM_UP, 0, 0, NULL, 0, NULL, 0);
    tell(control, FRAME_EXEC, 0, m->stream, out, rt_exec_encode(&x, out, NULL), NULL, 0);
    drop_fds(&r);
    next_line(m, RT_KERNEL, line, sizeof(line));
    if (!strstr(line, "\"ready\""))
        fail_msg("%s", line);
}

static void adopt(struct host *h, const char *id, int control, const char *cwd, struct member *m)
{
    adopt_after(0, h, id, control, cwd, m);
}

static void begin(struct host *h, const char *preload, char id[ID_SIZE], struct reply *r)
{
    start_with_kernels(h, "COVE_KERNELS");
    ask_joinable(h, "t", true);
    ask_zygote(h, "t", "python", preload);
    expect(h, FRAME_J_OK);
    sandbox(h, id, r);
    claim(r->fds[0]);
}

/* The result of an expression as text. */
static const char *value_of(struct member *m, const char *code)
{
    static char line[16384];
    static char value[256];
    char request[4096];
    int n = snprintf(request, sizeof(request), "{\"op\":\"execute\",\"id\":\"1\",\"code\":\"%s\"}\n", code);

    value[0] = '\0';
    tell(m->control, FRAME_DATA, RT_KERNEL, m->stream, request, n, NULL, 0);
    do {
        next_line(m, RT_KERNEL, line, sizeof(line));
        const char *at = strstr(line, "\"text/plain\": \"");
        if (strstr(line, "\"event\": \"error\""))
            fail_msg("%s", line);
        if (at)
            snprintf(value, sizeof(value), "%.*s", (int)strcspn(at + 15, "\""), at + 15);
    } while (!strstr(line, "\"event\": \"finished\""));
    return value;
}

static void must_be(struct member *m, const char *code, const char *value)
{
    const char *got = value_of(m, code);

    if (!str_eq(got, value))
        fail_msg("%s: %s instead of %s", code, got, value);
}

TEST(an_interpreter_runs_cells_in_the_directory_and_environment_of_its_context)
{
    struct host h;
    struct reply r;
    static struct member m;
    char id[ID_SIZE], line[256];

    begin(&h, "json,decimal", id, &r);
    adopt(&h, id, r.fds[0], "/usr/lib", &m);
    must_be(&m, "6 * 7", "42");
    must_be(&m, "import sys; 'decimal' in sys.modules", "True");
    must_be(&m, "import os; os.getcwd() == '/usr/lib'", "True");
    must_be(&m, "import os; [os.environ[k] for k in ('COLOUR', 'SHAPE')] == ['green', 'round']", "True");
    must_be(&m, "import os; 'OPENBLAS_NUM_THREADS' in os.environ", "False");
    must_be(&m, "import os; print('printed'); os.getuid()", "1000");
    next_line(&m, RT_STDOUT, line, sizeof(line));
    assert_string_equal(line, "printed");
    drop_fds(&r);
    host_stop(&h);
}

TEST(landlock_restricts_an_interpreter_like_a_program_of_PID_1)
{
    struct host h;
    struct reply r;
    static struct member m;
    char id[ID_SIZE];

    begin(&h, "", id, &r);
    adopt(&h, id, r.fds[0], "", &m);
    must_be(&m, "open('/workspace/a', 'w').write('x')", "1");
    must_be(&m, "import os\\ntry: os.listdir('/tmp')\\nexcept PermissionError as e: n = e.errno\\nn", "13");
    must_be(&m, "import os\\ntry: open('/tmp/b', 'w')\\nexcept PermissionError as e: n = e.errno\\nn", "13");
    must_be(&m, "open('/proc/self/status').read().count('Seccomp:\\\\t2')", "1");
    drop_fds(&r);
    host_stop(&h);
}

TEST(an_interpreter_is_signalled_and_reaped_like_any_other_program)
{
    struct host h;
    struct reply r;
    static struct member m;
    char id[ID_SIZE];
    uint8_t out[64];
    struct rt_signal kill9 = { .signo = SIGKILL, .scope = RT_SCOPE_TREE };

    begin(&h, "", id, &r);
    adopt(&h, id, r.fds[0], "", &m);
    must_be(&m, "1 + 1", "2");
    tell(m.control, FRAME_SIGNAL, 0, m.stream, out, rt_signal_encode(&kill9, out, NULL), NULL, 0);
    while (!m.over)
        listen_once(&m);
    drop_fds(&r);
    host_stop(&h);
}

/* The pid of the jailer's zygote in its own pid namespace. */
static long zygote_pid(const struct host *h)
{
    char command[256], line[32] = "";

    snprintf(
        command, sizeof(command),
        "for s in $(pgrep -P %d); do z=$(pgrep -P $s -x zygote) && awk '/^NSpid:/ { print $NF }' /proc/$z/status; done",
        (int)h->jailer);
    FILE *out = popen(command, "re");
    assert_non_null(out);
    assert_non_null(fgets(line, sizeof(line), out));
    (void)pclose(out);
    return strtol(line, NULL, 10);
}

/* Starts a process in the sandbox and returns its pid; the next process has the next one. */
static long next_pid(int control)
{
    static const char *const argv[] = { "/bin/sh", "-c", "echo $$", NULL }, *const env[] = { NULL };
    struct rt_exec x = { .cwd = "", .argv = argv, .env = env };
    static struct member m;
    uint8_t out[1024];
    char line[32];

    m = (struct member){ .control = control, .stream = next_stream += 2 };
    tell(control, FRAME_EXEC, 0, m.stream, out, rt_exec_encode(&x, out, NULL), NULL, 0);
    next_line(&m, RT_STDOUT, line, sizeof(line));
    while (!m.over)
        listen_once(&m);
    return strtol(line, NULL, 10) + 1;
}

#define BESIDE 12 /* other sandboxes, which take the lower pids in the namespace of the zygote */

TEST(interpreters_of_one_zygote_have_different_random_numbers)
{
    static const char *const draws[] = { "import random; random.getrandbits(60)",
                                         "import ssl; int.from_bytes(ssl.RAND_bytes(8), 'big')",
                                         "import uuid; uuid.uuid4().int",
                                         "import uuid; uuid.uuid1().int",
                                         "import secrets; secrets.randbits(60)",
                                         "import tempfile; hash(tempfile._get_candidate_names().__next__())",
                                         "import multiprocessing as m; m.current_process().authkey.hex()",
                                         "import numpy.random as n; n.randint(2**62)",
                                         "import numpy.random as n; n.default_rng().integers(2**62)" };
    bool numpy = access("/usr/lib/python3/dist-packages/numpy", F_OK) == 0;
    struct host h;
    static struct reply r[BESIDE];
    static struct member m[2];
    char id[BESIDE][ID_SIZE], first[256];

    start_with_kernels(&h, "COVE_KERNELS");
    ask_joinable(&h, "t", true);
    for (int i = 0; i < BESIDE; i++)
        sandbox(&h, id[i], &r[i]);
    ask_zygote(&h, "t", "python",
               numpy ? "random,ssl,uuid,tempfile,secrets,multiprocessing,numpy.random"
                     : "random,ssl,uuid,tempfile,secrets,multiprocessing");
    expect(&h, FRAME_J_OK);
    /* OpenSSL notices a fork by its pid: an interpreter has the zygote's own pid there, after the
     * process that brings it in. */
    long pid = zygote_pid(&h);
    snprintf(first, sizeof(first), "%ld", pid);
    for (int i = 0; i < 2; i++) {
        claim(r[i].fds[0]);
        while (next_pid(r[i].fds[0]) < pid - 1)
            ;
        adopt(&h, id[i], r[i].fds[0], "", &m[i]);
        must_be(&m[i], "import os; os.getpid()", first);
    }
    for (size_t d = 0; d < ARRAY_LEN(draws) - (numpy ? 0 : 2); d++) {
        str_copy(first, sizeof(first), value_of(&m[0], draws[d]));
        if (str_eq(value_of(&m[1], draws[d]), first))
            fail_msg("%s: both got %s", draws[d], first);
    }
    for (int i = 0; i < BESIDE; i++)
        drop_fds(&r[i]);
    host_stop(&h);
}

/* Counts places in its own memory where the two halves of a string are adjacent; a search for the
 * whole string would find the search term itself. */
#define SEARCH                                                                                 \
    "import re\\n"                                                                             \
    "def places(a, b):\\n"                                                                     \
    "  n = 0\\n"                                                                               \
    "  for l in open('/proc/self/maps').read().splitlines():\\n"                               \
    "    w = l.split()\\n"                                                                     \
    "    if w[1][0] != 'r' or w[-1] in ('[vvar]', '[vsyscall]', '[vvar_vclock]'): continue\\n" \
    "    lo, hi = (int(x, 16) for x in w[0].split('-'))\\n"                                    \
    "    with open('/proc/self/mem', 'rb', 0) as f:\\n"                                        \
    "      f.seek(lo)\\n"                                                                      \
    "      try: d = f.read(hi - lo)\\n"                                                        \
    "      except OSError: continue\\n"                                                        \
    "    n += sum(d[m.end():m.end() + len(b)] == b for m in re.finditer(re.escape(a), d))\\n"  \
    "    del d\\n"                                                                             \
    "  return n\\n"

static void must_find(struct member *m, const char *first, const char *second, bool there)
{
    char code[2048];

    snprintf(code, sizeof(code), SEARCH "places(b'%s', b'%s') > 0", first, second);
    must_be(m, code, there ? "True" : "False");
}

/* A rehearsal leaves no trace: not in names, numbers or output, nor in random numbers. */
TEST(an_interpreter_that_rehearsed_behaves_like_one_that_did_not)
{
    static const char *const asked[] = { "sorted(globals())", "_ if '_' in dir(__builtins__) else 'none'",
                                         "import sys, linecache; sorted(linecache.cache)",
                                         "import os; os.getcwd(), os.getpid(), sorted(os.listdir('/proc/self/fd'))",
                                         "import signal; signal.getsignal(signal.SIGINT).__name__" };
    struct host h;
    struct reply r[3];
    static struct member m[3];
    char id[3][ID_SIZE], first[4096];

    begin(&h, "random", id[0], &r[0]);
    for (int i = 1; i < 3; i++) {
        sandbox(&h, id[i], &r[i]);
        claim(r[i].fds[0]);
    }
    for (int i = 0; i < 3; i++)
        adopt_after((unsigned)i, &h, id[i], r[i].fds[0], "", &m[i]);
    for (size_t a = 0; a < ARRAY_LEN(asked); a++) {
        str_copy(first, sizeof(first), value_of(&m[0], asked[a]));
        for (int i = 1; i < 3; i++)
            must_be(&m[i], asked[a], first);
    }
    str_copy(first, sizeof(first), value_of(&m[1], "import random; random.getrandbits(60)"));
    if (str_eq(value_of(&m[2], "import random; random.getrandbits(60)"), first))
        fail_msg("both got %s", first);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(m[i].len[0], 0);
        assert_int_equal(m[i].len[1], 0);
        drop_fds(&r[i]);
    }
    host_stop(&h);
}

/* The zygote omits it for its own forks. */
TEST(a_fork_in_user_code_runs_the_fork_hooks_of_python_modules)
{
    struct host h;
    struct reply r;
    static struct member m;
    char id[ID_SIZE];

    begin(&h, "threading,random", id, &r);
    adopt(&h, id, r.fds[0], "", &m);
    must_be(&m,
            "import os, random, threading\\n"
            "r, w = os.pipe()\\n"
            "def fork():\\n"
            "  random.seed(1)\\n"
            "  pid = os.fork()\\n"
            "  if pid == 0:\\n"
            "    main = threading.main_thread() is threading.current_thread()\\n"
            "    os.write(w, f'{main} {random.getrandbits(60)}'.encode())\\n"
            "    os._exit(0)\\n"
            "  os.waitpid(pid, 0)\\n"
            "t = threading.Thread(target=fork)\\n"
            "t.start()\\n"
            "t.join()\\n"
            "main, drawn = os.read(r, 100).decode().split()\\n"
            "main, int(drawn) != random.getrandbits(60)",
            "('True', True)");
    drop_fds(&r);
    host_stop(&h);
}

TEST(interpreters_of_one_zygote_see_nothing_of_each_other)
{
    struct host h;
    struct reply r[2];
    static struct member m[2];
    char id[2][ID_SIZE], marker[256], second[256];

    begin(&h, "json", id[0], &r[0]); /* green */
    sandbox(&h, id[1], &r[1]);
    claim_as(r[1].fds[0], "COLOUR=red");
    for (int i = 0; i < 2; i++)
        adopt(&h, id[i], r[i].fds[0], "", &m[i]);
    must_be(&m[0], "import os; os.environ['COLOUR']", "'green'");
    must_be(&m[1], "import os; os.environ['COLOUR']", "'red'");
    must_be(&m[0], "os.environ['MINE'] = 'x'; 'MINE' in os.environ", "True");
    must_be(&m[1], "'MINE' in os.environ", "False");

    must_be(&m[0], "open('/workspace/mine', 'w').write('x')", "1");
    must_be(&m[1], "os.listdir('/workspace')", "[]");
    must_be(&m[1], "[p for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())]", "[]");

    must_be(&m[0],
            "import socket; s = socket.socket(); s.bind(('127.0.0.1', 4711)); s.listen()\\n"
            "u = socket.socket(socket.AF_UNIX); u.bind(chr(0) + 'meet'); u.listen(); 1",
            "1");
    must_be(&m[1], "import socket; socket.socket().connect_ex(('127.0.0.1', 4711))", "111");
    must_be(&m[1], "socket.socket(socket.AF_UNIX).connect_ex(chr(0) + 'meet')", "111");

    must_be(&m[0], "a, b = os.urandom(12).hex(), os.urandom(12).hex(); mine = a + b; len(mine)", "48");
    str_copy(marker, sizeof(marker), value_of(&m[0], "a"));
    str_copy(second, sizeof(second), value_of(&m[0], "b"));
    assert_int_equal(strlen(marker), 26); /* with quotes */
    marker[25] = second[25] = '\0';
    must_find(&m[0], marker + 1, second + 1, true);
    must_find(&m[1], marker + 1, second + 1, false);
    for (int i = 0; i < 2; i++)
        drop_fds(&r[i]);
    host_stop(&h);
}

TEST(an_interpreter_has_nothing_of_the_zygote_but_its_memory)
{
    struct host h;
    struct reply r;
    static struct member m;
    char id[ID_SIZE];

    begin(&h, "json", id, &r);
    adopt(&h, id, r.fds[0], "", &m);
    must_be(&m,
            "import os; d = os.open('/proc/self/fd', os.O_RDONLY)\\n"
            "sorted(int(f) for f in os.listdir(d) if int(f) != d)[:-1], os.close(d)",
            "([0, 1, 2, 3], None)");
    must_be(&m, "os.getppid(), os.getgroups(), os.getresuid(), os.getresgid(), os.getsid(0) == os.getpid()",
            "(1, [], (1000, 1000, 1000), (1000, 1000, 1000), True)");
    must_be(&m,
            "s = dict(l.split(':', 1) for l in open('/proc/self/status').read().splitlines())\\n"
            "{k: int(s[k], 16) for k in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb', 'SigBlk')}",
            "{'CapInh': 0, 'CapPrm': 0, 'CapEff': 0, 'CapBnd': 0, 'CapAmb': 0, 'SigBlk': 0}");
    must_be(&m, "s['NoNewPrivs'].strip(), s['Seccomp'].strip(), s['Umask'].strip()", "('1', '2', '0022')");
    must_be(&m, "{l.rsplit(':', 1)[1] for l in open('/proc/self/cgroup').read().splitlines()}", "{'/'}");
    must_be(&m, "[k for k in os.environ if k not in ('PATH', 'COLOUR', 'SHAPE', 'LC_CTYPE')]", "[]");
    must_be(&m, "import subprocess as s; s.run(['/bin/sh', '-c', 'echo -n $HOME'], capture_output=True).stdout", "b''");
    /* It has no home directory to search. */
    must_be(&m, "import sys; [p for p in sys.path if 'workspace' in p]", "[]");
    must_be(&m, "os.access('/proc/1/environ', os.R_OK)", "False");
    must_be(&m, "open('/proc/self/cmdline').read().strip(chr(0)).split(chr(0))",
            "['/usr/bin/python3', '-I', '/.cove/kernels/python/zygote']");
    must_be(&m, "open('/proc/self/environ').read().strip(chr(0))", "''");
    must_be(&m, "sys.argv, getattr(sys, 'orig_argv', [])[3:]", "([''], [])");
    drop_fds(&r);
    host_stop(&h);
}

/* As a client that gives the runtime an interpreter of its own; *ret is the interpreter's end. */
static void lend(int control, int *ret)
{
    int sv[2], null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    assert_true(null >= 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0);
    tell(control, FRAME_INTERPRETER, 0, 0, NULL, 0, (int[]){ sv[0], null, null }, 3);
    close(sv[0]);
    close(null);
    *ret = sv[1];
}

static void must_refuse(int control, enum err_id id)
{
    struct reply a;
    struct rt_error e;

    hear(control, &a);
    assert_int_equal(a.f.type, FRAME_ERROR);
    assert_int_equal(rt_error_decode(&a.f, &e, NULL), 0);
    assert_int_equal(e.id, id);
}

TEST(the_runtime_holds_one_interpreter_and_reports_its_end)
{
    static const char *const none[] = { NULL }, *const argv[] = { "python", NULL };
    struct rt_exec x = { .flags = RT_EXEC_KERNEL | RT_EXEC_JOINED, .cwd = "", .argv = argv, .env = none };
    struct host h;
    struct reply r, a;
    static struct member m;
    char id[ID_SIZE], byte;
    uint8_t out[4096];
    int end, other;

    begin(&h, "", id, &r);
    tell(r.fds[0], FRAME_INTERPRETER, 0, 0, NULL, 0, NULL, 0);
    must_refuse(r.fds[0], ERR_PROTOCOL);
    lend(r.fds[0], &end);
    lend(r.fds[0], &other);
    must_refuse(r.fds[0], ERR_EXISTS);
    assert_int_equal(recv(other, &byte, 1, 0), 0); /* released */
    close(end);
    hear(r.fds[0], &a);
    assert_int_equal(a.f.type, FRAME_INTERPRETER_LOST);
    tell(r.fds[0], FRAME_EXEC, 0, next_stream += 2, out, rt_exec_encode(&x, out, NULL), NULL, 0);
    must_refuse(r.fds[0], ERR_LOST);
    close(other);
    adopt(&h, id, r.fds[0], "", &m);
    must_be(&m, "2 + 2", "4");
    drop_fds(&r);
    host_stop(&h);
}

TEST(an_interpreter_that_waits_for_a_lost_client_is_released)
{
    struct rt_hello hello = { .version = WIRE_VERSION, .epoch = 99 };
    uint8_t out[256];
    struct host h;
    struct reply r;
    char id[ID_SIZE], byte;
    int end;

    begin(&h, "", id, &r);
    lend(r.fds[0], &end);
    tell(r.fds[0], FRAME_HELLO, 0, 0, out, rt_hello_encode(&hello, out, NULL), NULL, 0);
    assert_true(readable_within(end, 60000));
    assert_int_equal(recv(end, &byte, 1, 0), 0);
    close(end);
    drop_fds(&r);
    host_stop(&h);
}

TEST(a_lost_interpreter_is_reported_and_the_runtime_continues)
{
    static const char *const argv[] = { "python", NULL };
    static const char *const env[] = { NULL };
    struct rt_exec x = { .flags = RT_EXEC_KERNEL | RT_EXEC_JOINED, .cwd = "", .argv = argv, .env = env };
    struct host h;
    struct reply r, a;
    struct rt_error e;
    static struct member m;
    char id[ID_SIZE];
    uint8_t out[4096];
    int sv[2], out_pipe[2], err_pipe[2];

    begin(&h, "", id, &r);
    assert_true(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0 && pipe2(out_pipe, O_CLOEXEC) == 0 &&
                pipe2(err_pipe, O_CLOEXEC) == 0);
    int fds[] = { sv[0], out_pipe[0], err_pipe[0] };
    tell(r.fds[0], FRAME_INTERPRETER, 0, 0, NULL, 0, fds, 3);
    tell(r.fds[0], FRAME_EXEC, 0, next_stream += 2, out, rt_exec_encode(&x, out, NULL), NULL, 0);
    close(sv[1]);
    hear(r.fds[0], &a);
    assert_int_equal(a.f.type, FRAME_ERROR);
    assert_int_equal(rt_error_decode(&a.f, &e, NULL), 0);
    assert_int_equal(e.id, ERR_LOST);
    tell(r.fds[0], FRAME_EXEC, 0, next_stream += 2, out, rt_exec_encode(&x, out, NULL), NULL, 0); /* none waits */
    hear(r.fds[0], &a);
    assert_int_equal(a.f.type, FRAME_ERROR);
    adopt(&h, id, r.fds[0], "", &m);
    must_be(&m, "2 + 2", "4");
    int all[] = { sv[0], out_pipe[0], out_pipe[1], err_pipe[0], err_pipe[1] };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        close(all[i]);
    drop_fds(&r);
    host_stop(&h);
}

TEST(a_module_that_cannot_be_imported_is_named)
{
    struct host h;
    struct reply r;
    struct rt_error e;

    start_with_kernels(&h, "COVE_KERNELS");
    ask_joinable(&h, "t", true);
    ask_zygote(&h, "t", "python", "json,nonsense");
    answer_of(&h, &r);
    assert_int_equal(r.f.type, FRAME_J_ERROR);
    assert_int_equal(rt_error_decode(&r.f, &e, NULL), 0);
    assert_string_equal(e.msg, "preload nonsense: ModuleNotFoundError: No module named 'nonsense'");
    host_stop(&h);
}

/* A zygote with a module of this test. No package of Debian does what is needed, so the module is
 * next to the kernel. */
static char place[32];

static void begin_with_module(struct host *h, const char *name, const char *text)
{
    char command[1200];

    strcpy(place, "/run/cove-kernels-XXXXXX");
    assert_non_null(mkdtemp(place));
    snprintf(command, sizeof(command),
             "chmod 755 %s && cp -rL '%s/python' %s && printf '%s' >%s/python/covekernel/%s.py", place,
             getenv("COVE_KERNELS"), place, text, place, name);
    assert_int_equal(system(command), 0);
    assert_int_equal(setenv("TEST_KERNELS", place, 1), 0);
    start_with_kernels(h, "TEST_KERNELS");
    ask_joinable(h, "t", true);
}

static void end_with_module(struct host *h)
{
    char command[64];

    host_stop(h);
    snprintf(command, sizeof(command), "rm -rf %s", place);
    assert_int_equal(system(command), 0);
}

TEST(a_module_that_starts_threads_is_named)
{
    struct host h;
    struct reply r;
    struct rt_error e;

    begin_with_module(&h, "ticks",
                      "import threading\\n"
                      "threading.Thread(target=threading.Event().wait, daemon=True).start()\\n");
    ask_zygote(&h, "t", "python", "json,covekernel.ticks");
    answer_of(&h, &r);
    assert_int_equal(r.f.type, FRAME_J_ERROR);
    assert_int_equal(rt_error_decode(&r.f, &e, NULL), 0);
    assert_string_equal(e.msg, "preload covekernel.ticks starts threads, which a fork cannot keep");
    ask_zygote(&h, "t", "python", "json"); /* a zygote without the module works */
    expect(&h, FRAME_J_OK);
    end_with_module(&h);
}

/* Functions of modules whose own hooks the zygote omits. */
TEST(hooks_registered_by_a_preload_run_in_every_interpreter)
{
    struct host h;
    struct reply r[2];
    static struct member m[2];
    char id[2][ID_SIZE], first[256];

    begin_with_module(&h, "draws",
                      "import os, random, threading\\n"
                      "rng = random.Random()\\n"
                      "lock = threading.Condition()\\n"
                      "os.register_at_fork(after_in_child=rng.seed)\\n"
                      "os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, "
                      "after_in_child=lock._at_fork_reinit)\\n");
    ask_zygote(&h, "t", "python", "covekernel.draws");
    expect(&h, FRAME_J_OK);
    for (int i = 0; i < 2; i++) {
        sandbox(&h, id[i], &r[i]);
        claim(r[i].fds[0]);
        adopt(&h, id[i], r[i].fds[0], "", &m[i]);
        must_be(&m[i], "import covekernel.draws as d; d.lock.acquire(blocking=False)", "True");
    }
    str_copy(first, sizeof(first), value_of(&m[0], "d.rng.getrandbits(60)"));
    if (str_eq(value_of(&m[1], "d.rng.getrandbits(60)"), first))
        fail_msg("both got %s", first);
    for (int i = 0; i < 2; i++)
        drop_fds(&r[i]);
    end_with_module(&h);
}

/* Processes of the host with this word among their arguments. */
static int processes_with(const char *word)
{
    struct dirent *e;
    DIR *d = opendir("/proc");
    int n = 0;

    assert_non_null(d);
    while ((e = readdir(d))) {
        char name[64], text[512] = "";
        snprintf(name, sizeof(name), "/proc/%.20s/cmdline", e->d_name);
        int fd = open(name, O_RDONLY | O_CLOEXEC);
        ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

        n += len > 0 && memmem(text, (size_t)len, word, strlen(word));
        if (fd >= 0)
            close(fd);
    }
    closedir(d);
    return n;
}

static void wait_for_processes(const char *word, int n)
{
    for (int i = 0; i < 6000 && processes_with(word) != n; i++)
        usleep(10000);
    assert_int_equal(processes_with(word), n);
}

TEST(an_endless_import_is_killed_with_the_processes_it_started)
{
    static const char *const rests[] = { "while True: pass", "import time; time.sleep(1e6)" };
    struct rt_error e;
    struct reply r;

    for (size_t i = 0; i < ARRAY_LEN(rests); i++) {
        struct host h;
        char text[512];

        snprintf(text, sizeof(text),
                 "import signal, subprocess\\n"
                 "subprocess.Popen([\"sleep\", \"1000.4711\"])\\n"
                 "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\\n%s\\n",
                 rests[i]);
        begin_with_module(&h, "hangs", text);
        ask_zygote(&h, "t", "python", "covekernel.hangs");
        wait_for_processes("1000.4711", 1);
        assert_int_equal(processes_with("covekernel.hangs"), 1);
        ask_zygote(&h, "t", "", "");
        receive(&h, &r); /* the answer to the request */
        assert_int_equal(rt_error_decode(&r.f, &e, NULL), 0);
        assert_int_equal(e.id, ERR_LOST);
        expect(&h, FRAME_J_OK);
        wait_for_processes("covekernel.hangs", 0);
        wait_for_processes("1000.4711", 0);
        ask_zygote(&h, "t", "python", "json"); /* the template still works */
        expect(&h, FRAME_J_OK);
        end_with_module(&h);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    static const struct CMUnitTest tests[] = {
        CASE(an_interpreter_runs_cells_in_the_directory_and_environment_of_its_context),
        CASE(landlock_restricts_an_interpreter_like_a_program_of_PID_1),
        CASE(an_interpreter_is_signalled_and_reaped_like_any_other_program),
        CASE(interpreters_of_one_zygote_have_different_random_numbers),
        CASE(an_interpreter_that_rehearsed_behaves_like_one_that_did_not),
        CASE(hooks_registered_by_a_preload_run_in_every_interpreter),
        CASE(a_fork_in_user_code_runs_the_fork_hooks_of_python_modules),
        CASE(interpreters_of_one_zygote_see_nothing_of_each_other),
        CASE(an_interpreter_has_nothing_of_the_zygote_but_its_memory),
        CASE(the_runtime_holds_one_interpreter_and_reports_its_end),
        CASE(an_interpreter_that_waits_for_a_lost_client_is_released),
        CASE(a_lost_interpreter_is_reported_and_the_runtime_continues),
        CASE(a_module_that_cannot_be_imported_is_named),
        CASE(a_module_that_starts_threads_is_named),
        CASE(an_endless_import_is_killed_with_the_processes_it_started),
    };

    if (geteuid() != 0) {
        puts("1..0 # SKIP needs root");
        return 0;
    }
    return cmocka_run_group_tests_name("Python zygotes", tests, NULL, NULL);
}
