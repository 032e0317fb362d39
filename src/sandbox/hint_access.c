/* Hints about files, privileges and a person at a keyboard that a sandbox does not have. */
#include "sandbox/hint_internal.h"

#include "core/base/str.h"

/* --- files --- */

static bool hint_is_writable_place(const char *path)
{
    static const char *const places[] = { "/workspace", "/tmp", "/dev/shm" };

    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (str_starts(path, places[i]) && strchr("/", path[strlen(places[i])]))
            return true;
    return path[0] != '/';
}

static void hint_add_missing_file(struct hint *h, const char *path)
{
    if (path[0])
        buf_addf(&h->out, "%s does not exist in the sandbox", path);
    else
        buf_adds(&h->out, "The file does not exist in the sandbox");
    if (path[0] && path[0] != '/')
        buf_adds(&h->out, "; relative paths begin at the working directory, /workspace unless you set another. ");
    else if (path[0] && !hint_is_writable_place(path))
        buf_adds(&h->out, "; it has system directories, its own /workspace and /tmp, and none of your files. ");
    else
        buf_adds(&h->out, ". ");
    if (h->facts->place == HINT_RUN)
        buf_adds(&h->out, "Pass a directory with --workspace DIR, or create the file first.");
    else if (h->facts->place == HINT_EXECUTE)
        buf_adds(
            &h->out,
            "Each execution starts with an empty /workspace: pass the file in `files` of the request, or create it "
            "first.");
    else
        buf_adds(&h->out,
                 "Write the file with the files API, or create it first; list /workspace to see what is there.");
}

bool hint_missing_file(struct hint *h, const char *at UNUSED, const char *end, const char *text UNUSED)
{
    char path[HINT_TOKEN_MAX];

    /* subprocess reports a missing program like a missing file. */
    if (hint_has_text(h, "_execute_child") && hint_command_quoted(h, at, end, NULL))
        return true;
    if (*end != '\'' && *end != '"') /* Node: "no such file or directory, open 'PATH'" */
        end += strcspn(end, "'\"\n");
    hint_token_quoted(end, path);
    hint_add_missing_file(h, path);
    return true;
}

/* "cat: PATH: No such file or directory"; "bash: line 1: PATH: No such file or directory". */
bool hint_missing_file_before(struct hint *h, const char *at, const char *end UNUSED, const char *text UNUSED)
{
    char path[HINT_TOKEN_MAX];

    hint_token_before(hint_start(h), at, path);
    if (h->facts->exit_code == 127 && hint_command_before(h, at, end, NULL))
        return true;
    hint_add_missing_file(h, path);
    return true;
}

/* The path of "[Errno 13] Permission denied: 'PATH'", "EACCES: permission denied, open 'PATH'" or
 * "PROGRAM: PATH: Permission denied". */
static void hint_path_near(const struct hint *h, const char *at, const char *end, char ret[HINT_TOKEN_MAX])
{
    const char *quote = end + strcspn(end, "'\"\n");

    ret[0] = '\0';
    if ((*end == ':' || *end == ',') && (*quote == '\'' || *quote == '"')) {
        hint_token_quoted(quote, ret);
        return;
    }
    if (at > hint_start(h) + 2 && at[-2] == ':')
        hint_token_before(hint_start(h), at - 2, ret);
}

bool hint_no_write(struct hint *h, const char *at, const char *end, const char *text UNUSED)
{
    char path[HINT_TOKEN_MAX];

    if ((hint_has_text(h, "sock.connect(") || hint_has_text(h, "connect_tcp")) && hint_network(h, at, end, NULL))
        return true;
    hint_path_near(h, at, end, path);
    if (path[0] && strchr(path, '/') && hint_is_writable_place(path) && !str_starts(at, "Read-only")) {
        if (h->facts->exit_code == 126)
            buf_addf(
                &h->out,
                "%s is not executable. Set its mode with chmod +x, or name its interpreter: sh FILE, python3 FILE.",
                path);
        else
            buf_addf(&h->out, "The mode of %s does not allow this. Change the mode with chmod, or use another file.",
                     path);
        return true;
    }
    if (path[0] == '/')
        buf_addf(&h->out, "%s cannot be used in this way: ", path);
    else
        buf_adds(&h->out, "The sandbox does not permit this access: ");
    buf_adds(&h->out,
             "only /workspace, /tmp and /dev/shm are writable, and of the rest only system directories can be read. "
             "Use a path below /workspace, which is also the home directory.");
    return true;
}

bool hint_not_permitted(struct hint *h, const char *at UNUSED, const char *end UNUSED, const char *text UNUSED)
{
    if (hint_has_text(h, "apt-get") || hint_has_text(h, "apt install") || hint_has_text(h, "dpkg"))
        return hint_install(h, at, end, text);
    if (hint_denial(h)) {
        buf_adds(&h->out, " There is no root in a sandbox.");
        return true;
    }
    buf_adds(&h->out,
             "The operation is refused: it needs root or a right that a sandbox does not have, and no command can "
             "give it. Find a way without it.");
    return true;
}

bool hint_input(struct hint *h, const char *at UNUSED, const char *end UNUSED, const char *text UNUSED)
{
    if (!hint_has_text(h, "input") && !hint_has_text(h, "EOF when reading a line"))
        return false;
    buf_adds(&h->out, "The program asked for input and its standard input was at its end. ");
    if (h->facts->place == HINT_RUN)
        buf_adds(&h->out, "Pass the input on standard input, or set the values in the code.");
    else
        buf_adds(&h->out,
                 "Pass the input in `stdin` of the request, one line for each input(), or set the values in the code.");
    return true;
}
