#include "tests/unit/test.h"

#include "client/cli/program.h"
#include "policy/languages.h"

#include "core/base/fd.h"
#include "core/base/str.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

static char dir[] = "/tmp/cove-program-XXXXXX";
static char bin[64];
static const char *dirs[2];

static const char *put(const char *name, const char *text, mode_t mode)
{
    static char path[8][PATH_MAX];
    static int slot;
    char *p = path[slot++ % 8];

    snprintf(p, PATH_MAX, "%s/%s", dir, name);
    int fd = open(p, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fd_write_all(fd, text, strlen(text)), 0);
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    return p;
}

/* Runtimes are links into /usr, as on a real host, so that they count as visible in a sandbox. */
static int setup(void **state UNUSED)
{
    char path[PATH_MAX];

    assert_non_null(mkdtemp(dir));
    snprintf(bin, sizeof(bin), "%s/bin", dir);
    assert_int_equal(mkdir(bin, 0755), 0);
    dirs[0] = bin;
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s", bin, (const char *[]){ "python3", "bash", "sh" }[i]);
        assert_int_equal(symlink("/usr/bin/env", path), 0);
    }
    return 0;
}

static int teardown(void **state UNUSED)
{
    auto_free char *command = str_printf("rm -rf %s", dir);

    return system(command);
}

struct outcome {
    char line[1000]; /* argv joined by spaces */
    struct program p;
};

static int resolve(const char *const *words, bool stdin_open, struct outcome *o, struct err *err)
{
    struct program_search place = { .dirs = dirs, .stdin_open = stdin_open };
    struct run_options r;
    struct args a;
    int n = 0;

    while (words[n])
        n++;
    assert_int_equal(args_parse(cli_verb_find("run"), n, (char **)(uintptr_t)words, &a, err), 0);
    assert_int_equal(run_options_build(&a, NULL, NULL, &r, err), 0);
    int rc = program_resolve(&r, &place, &o->p, err);
    o->line[0] = '\0';
    for (size_t i = 0; rc == 0 && i < o->p.argc; i++)
        snprintf(o->line + strlen(o->line), sizeof(o->line) - strlen(o->line), "%s%s", i ? " " : "", o->p.argv[i]);
    run_options_done(&r);
    args_done(&a);
    return rc;
}
#define RESOLVE(o, err, ...) resolve((const char *const[]){ "run", __VA_ARGS__, NULL }, false, o, err)

static void expect(struct outcome *o, const char *line, enum profile profile)
{
    auto_free char *want = str_dup(line);

    assert_string_equal(o->line, want);
    assert_int_equal(o->p.profile, profile);
    program_done(&o->p);
}

TEST(a_program_after_two_dashes_is_not_changed)
{
    struct outcome o;
    struct err err = { 0 };

    put("tool.py", "", 0644);
    assert_int_equal(RESOLVE(&o, &err, "--", "ls", "-l"), 0);
    expect(&o, "ls -l", PROFILE_BASE);
    assert_int_equal(RESOLVE(&o, &err, "--", "./tool.py", "a"), 0);
    assert_int_equal(o.p.script_fd, -1);
    expect(&o, "./tool.py a", PROFILE_BASE);
    assert_int_equal(RESOLVE(&o, &err, "/usr/bin/env", "x"), 0);
    expect(&o, "/usr/bin/env x", PROFILE_BASE);
    assert_int_equal(RESOLVE(&o, &err, "/usr/bin/python3.11", "x"), 0);
    expect(&o, "/usr/bin/python3.11 x", PROFILE_PYTHON);
}

TEST(extension_or_first_line_selects_the_interpreter)
{
    static const struct {
        const char *name, *text, *runs;
        enum profile profile;
    } cases[] = {
        { "a.py", "print(1)\n", "BIN/python3 /mnt/script/a.py x", PROFILE_PYTHON },
        { "a.sh", "echo\n", "BIN/sh /mnt/script/a.sh x", PROFILE_SHELL },
        { "b.py", "#!/home/me/venv/bin/python\n", "BIN/python3 /mnt/script/b.py x", PROFILE_PYTHON },
        { "plain", "#!/usr/bin/env python3\n", "python3 /mnt/script/plain x", PROFILE_PYTHON },
        { "opts", "#!/usr/bin/env -S python3 -u\n", "python3 -u /mnt/script/opts x", PROFILE_PYTHON },
        { "shell", "#!/bin/bash -e\necho\n", "/bin/bash -e /mnt/script/shell x", PROFILE_SHELL },
        { "perl", "#! /usr/bin/perl\n", "/usr/bin/perl /mnt/script/perl x", PROFILE_BASE },
        { "elf", "\177ELF...", "/mnt/script/elf x", PROFILE_BASE },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct outcome o;
        struct err err = { 0 };
        char want[200] = "";

        if (str_starts(cases[i].runs, "BIN"))
            snprintf(want, sizeof(want), "%s%s", bin, cases[i].runs + 3);
        else
            snprintf(want, sizeof(want), "%s", cases[i].runs);
        if (RESOLVE(&o, &err, put(cases[i].name, cases[i].text, 0644), "x") < 0)
            fail_msg("%s: %s", cases[i].name, err.msg);
        assert_true(o.p.script_fd >= 0);
        expect(&o, want, cases[i].profile);
    }
}

TEST(a_script_of_unknown_language_is_refused_and_names_the_flag)
{
    struct outcome o;
    struct err err = { 0 };

    assert_int_equal(RESOLVE(&o, &err, put("mystery", "hello\n", 0644)), -1);
    assert_int_equal(err.id, ERR_INVALID);
    assert_non_null(strstr(err.msg, "--runtime"));
    assert_int_equal(RESOLVE(&o, &err, "--runtime", "sh", put("mystery", "hello\n", 0644)), 0);
    program_done(&o.p);
}

TEST(a_missing_script_is_reported_as_a_script)
{
    struct outcome o;
    struct err err = { 0 };

    assert_int_equal(RESOLVE(&o, &err, "no-such-script.py"), -1);
    assert_int_equal(err.id, ERR_SCRIPT_MISSING);
    assert_non_null(strstr(err.msg, "no-such-script.py"));
    assert_int_equal(RESOLVE(&o, &err, "--runtime", "python", "/no/such/file"), -1);
    assert_int_equal(err.id, ERR_SCRIPT_MISSING);
    assert_int_equal(RESOLVE(&o, &err, "--runtime", "python", dir), -1);
    assert_int_equal(err.id, ERR_INVALID);
}

TEST(a_script_in_the_workspace_runs_from_the_workspace)
{
    struct outcome o;
    struct err err = { 0 };
    char sub[PATH_MAX], want[200];

    snprintf(sub, sizeof(sub), "%s/sub", dir);
    mkdir(sub, 0755);
    snprintf(want, sizeof(want), "%s/python3 /workspace/sub/in.py", bin);
    assert_int_equal(RESOLVE(&o, &err, "--workspace", dir, put("sub/in.py", "", 0644)), 0);
    assert_int_equal(o.p.script_fd, -1);
    expect(&o, want, PROFILE_PYTHON);
    assert_int_equal(RESOLVE(&o, &err, "--workspace", sub, put("out.py", "", 0644)), 0);
    assert_true(o.p.script_fd >= 0);
    assert_string_equal(o.p.script_dst, "/mnt/script/out.py");
    program_done(&o.p);
}

TEST(each_runtime_gets_code_and_standard_input_in_its_own_way)
{
    struct outcome o;
    struct err err = { 0 };
    char want[200];

    assert_int_equal(RESOLVE(&o, &err, "--runtime", "python", "-c", "print(1)", "a"), 0);
    snprintf(want, sizeof(want), "%s/python3 -c print(1) a", bin);
    expect(&o, want, PROFILE_PYTHON);
    assert_int_equal(RESOLVE(&o, &err, "--runtime", "bash", "-c", "echo $1", "a"), 0);
    snprintf(want, sizeof(want), "%s/bash -c echo $1 bash a", bin);
    expect(&o, want, PROFILE_SHELL);
    assert_int_equal(RESOLVE(&o, &err, "--runtime", "sh", "-", "a"), 0);
    assert_true(o.p.reads_stdin);
    snprintf(want, sizeof(want), "%s/sh -s -- a", bin);
    expect(&o, want, PROFILE_SHELL);
    assert_int_equal(resolve((const char *const[]){ "run", "--runtime", "python", NULL }, true, &o, &err), 0);
    assert_true(o.p.reads_stdin);
    snprintf(want, sizeof(want), "%s/python3 -", bin);
    expect(&o, want, PROFILE_PYTHON);
    assert_int_equal(RESOLVE(&o, &err, "--runtime", "python", "--", "-m", "json.tool"), 0);
    snprintf(want, sizeof(want), "%s/python3 -m json.tool", bin);
    expect(&o, want, PROFILE_PYTHON);
    assert_int_equal(RESOLVE(&o, &err, "-t", "--runtime", "python"), 0);
    snprintf(want, sizeof(want), "%s/python3", bin);
    expect(&o, want, PROFILE_PYTHON);
}

TEST(long_code_is_sent_as_a_file_and_too_many_arguments_are_refused)
{
    static char text[20000], big[60000];
    struct outcome o;
    struct err err = { 0 };
    char want[200];

    memset(text, '#', sizeof(text) - 1);
    memset(big, 'x', sizeof(big) - 1);
    assert_int_equal(RESOLVE(&o, &err, "--runtime", "sh", "-c", text, "a"), 0);
    assert_ptr_equal(o.p.code, text);
    snprintf(want, sizeof(want), "%s/sh -c . " LANGUAGE_CODE_FILE " sh a", bin);
    expect(&o, want, PROFILE_SHELL);
    assert_int_equal(RESOLVE(&o, &err, "--", "prog", big), -1);
    assert_int_equal(err.id, ERR_INVALID);
    assert_non_null(strstr(err.msg, "standard input"));
}

TEST(nothing_to_run_is_a_usage_error)
{
    static const char *const cases[][4] = {
        { "run" }, { "run", "--" }, { "run", "" }, { "run", "--runtime", "python" }
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct outcome o;
        struct err err = { 0 };

        assert_int_equal(resolve(cases[i], false, &o, &err), -1);
        assert_int_equal(err.id, ERR_USAGE);
    }
}

TEST(a_runtime_link_out_of_the_shared_directories_is_explained)
{
    struct outcome o;
    struct err err = { 0 };
    char link[PATH_MAX];
    const char *real = put("elsewhere", "", 0755);

    snprintf(link, sizeof(link), "%s/node", bin);
    assert_int_equal(RESOLVE(&o, &err, "--runtime", "node", "-c", "1"), -1);
    assert_int_equal(err.id, ERR_RUNTIME_MISSING);
    assert_non_null(strstr(err.msg, "apt-get install nodejs"));
    assert_int_equal(symlink(real, link), 0);
    assert_int_equal(RESOLVE(&o, &err, "--runtime", "node", "-c", "1"), -1);
    assert_int_equal(err.id, ERR_RUNTIME_MISSING);
    assert_non_null(strstr(err.msg, real));
    unlink(link);
    assert_int_equal(RESOLVE(&o, &err, "--runtime", "cobol", "-c", "1"), -1);
    assert_int_equal(err.id, ERR_RUNTIME_MISSING);
}

TEST(script_names_with_control_characters_or_too_long_are_refused)
{
    struct outcome o;
    struct err err = { 0 };
    char name[256] = "";

    assert_int_equal(RESOLVE(&o, &err, put("a\nb.py", "", 0644)), -1);
    assert_int_equal(err.id, ERR_INVALID);
    memset(name, 'n', 250);
    strcpy(name + 247, ".py");
    assert_int_equal(RESOLVE(&o, &err, put(name, "", 0644)), -1);
    assert_int_equal(err.id, ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_program_after_two_dashes_is_not_changed),
        RUN(extension_or_first_line_selects_the_interpreter),
        RUN(a_script_of_unknown_language_is_refused_and_names_the_flag),
        RUN(a_missing_script_is_reported_as_a_script),
        RUN(a_script_in_the_workspace_runs_from_the_workspace),
        RUN(each_runtime_gets_code_and_standard_input_in_its_own_way),
        RUN(long_code_is_sent_as_a_file_and_too_many_arguments_are_refused),
        RUN(nothing_to_run_is_a_usage_error),
        RUN(a_runtime_link_out_of_the_shared_directories_is_explained),
        RUN(script_names_with_control_characters_or_too_long_are_refused),
    };

    return cmocka_run_group_tests(tests, setup, teardown);
}
