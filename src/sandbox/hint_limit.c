/* Hints about clocks and limits. The value of a limit is named if the receipt has it. */
#include "sandbox/hint_internal.h"

#include "core/base/str.h"

#include <signal.h>

/* The code starts a server, which does not end by itself. */
static bool hint_is_server(const struct hint *h)
{
    static const char *const calls[] = { "serve_forever", "app.run(", "uvicorn.run", "http.server", ".listen(",
                                         "runserver",     "gunicorn", "flask run",   "uvicorn ",    "streamlit run" };

    for (size_t i = 0; h->facts->code && i < ARRAY_LEN(calls); i++)
        if (strstr(h->facts->code, calls[i]))
            return true;
    return false;
}

static void hint_timeout(struct hint *h)
{
    const struct hint_facts *f = h->facts;

    buf_adds(&h->out, "The program was stopped at its timeout");
    hint_add_value(h, LIMIT_WALL);
    buf_adds(&h->out, ". ");
    if (hint_is_server(h)) {
        buf_adds(&h->out, "It is a server, which does not end by itself: ");
        if (f->place == HINT_RUN)
            buf_adds(&h->out, "start it and its client in one command. ");
        else if (f->place == HINT_EXECUTE)
            buf_adds(&h->out, "create a sandbox and start it there with background: true. ");
        else
            buf_adds(&h->out, "start it with background: true. ");
        buf_adds(&h->out, "If it needs more time, ");
    } else {
        buf_adds(&h->out, "Do less in one execution, check that its loops end, or ");
    }
    hint_add_raise(h, LIMIT_WALL);
    buf_adds(&h->out, ".");
}

bool hint_ended(struct hint *h)
{
    switch (h->facts->ended_by) {
    case ENDED_EXIT:
        return false;
    case ENDED_SIGNAL:
        return hint_signal(h, h->facts->signal);
    case ENDED_TIMEOUT:
        hint_timeout(h);
        return true;
    case ENDED_CPU:
        buf_adds(&h->out, "The program used all of its CPU time");
        hint_add_value(h, LIMIT_CPU_TIME);
        buf_adds(&h->out, ". Do less in one execution, check that its loops end, or ");
        hint_add_raise(h, LIMIT_CPU_TIME);
        buf_adds(&h->out, ".");
        return true;
    case ENDED_MEMORY:
        return hint_memory(h, NULL, NULL, NULL);
    case ENDED_LIFETIME:
        buf_adds(&h->out, "The sandbox reached the end of its lifetime");
        hint_add_value(h, LIMIT_LIFETIME);
        buf_adds(&h->out, ", and its files and variables are gone. Create a new sandbox; for longer work ");
        hint_add_raise(h, LIMIT_LIFETIME);
        buf_adds(&h->out, ".");
        return true;
    case ENDED_IDLE:
        buf_adds(&h->out, "The sandbox ended because it was idle");
        buf_adds(&h->out, ", and its files and variables are gone. Create a new sandbox; to keep it longer ");
        hint_add_raise(h, LIMIT_IDLE);
        buf_adds(&h->out, ".");
        return true;
    case ENDED_KILLED:
        buf_adds(&h->out,
                 "The execution was ended on request, not by an error of the program. Run it again if its result is "
                 "still needed.");
        return true;
    case ENDED_LOST:
        buf_adds(&h->out,
                 "The sandbox or its interpreter was lost while the program ran, so the result is unknown. Run it "
                 "again, in a new sandbox if this one has ended.");
        return true;
    case ENDED_BUDGET:
        buf_adds(&h->out,
                 "The budget of the tenant is used up, so the program was ended. An administrator can raise the "
                 "budget.");
        return true;
    }
    return false;
}

bool hint_signal(struct hint *h, int signal)
{
    switch (signal) {
    case SIGXFSZ:
        return hint_file_size(h, NULL, NULL, NULL);
    case SIGSEGV:
    case SIGBUS:
        buf_adds(&h->out,
                 "A program crashed in native code: it accessed memory that it does not have (a segmentation fault). "
                 "Look for ctypes, native modules, or very deep recursion.");
        return true;
    case SIGABRT:
        buf_adds(&h->out,
                 "A program ended itself with abort(), often after a failed check in native code. Its last message is "
                 "in stderr.");
        return true;
    case SIGFPE:
        buf_adds(&h->out,
                 "A program crashed with an arithmetic error in native code, such as an integer division by zero.");
        return true;
    case SIGILL:
        buf_adds(&h->out, "A program crashed because it executed an instruction that this CPU does not have.");
        return true;
    case SIGKILL:
        if (h->facts->oom_kills)
            return hint_memory(h, NULL, NULL, NULL);
        buf_adds(&h->out, "A process was killed with SIGKILL.");
        return true;
    case SIGPIPE:
        buf_adds(&h->out, "The program wrote to a pipe that nothing reads any more.");
        return true;
    default:
        buf_addf(&h->out, "The program was ended by signal %d, which cove did not send.", signal);
        return true;
    }
}

bool hint_memory(struct hint *h, const char *at UNUSED, const char *end UNUSED, const char *text UNUSED)
{
    buf_adds(&h->out, "The program needs more than its memory limit");
    hint_add_value(h, LIMIT_MEMORY);
    buf_adds(&h->out, "; files in /tmp and /workspace count as memory too. Work in smaller parts, or ");
    hint_add_raise(h, LIMIT_MEMORY);
    buf_adds(&h->out, ".");
    return true;
}

bool hint_processes(struct hint *h, const char *at UNUSED, const char *end UNUSED, const char *text UNUSED)
{
    buf_adds(&h->out, "No more processes or threads can be started: the sandbox has a limit");
    hint_add_value(h, LIMIT_PIDS);
    buf_adds(&h->out, " for all of them together. Use fewer workers or wait for those that run, or ");
    hint_add_raise(h, LIMIT_PIDS);
    buf_adds(&h->out, ".");
    return true;
}

static bool hint_was_hit(const struct hint *h, enum limit l)
{
    for (size_t i = 0; i < h->facts->nlimit_hits; i++)
        if (h->facts->limit_hits[i].limit == l)
            return true;
    return false;
}

static const struct {
    enum limit limit;
    const char *what;
} hint_filesystems[] = {
    { LIMIT_WORKSPACE_INODES, "/workspace is full: it has a limit on files and directories" },
    { LIMIT_TMP_INODES, "/tmp is full: it has a limit on files and directories" },
    { LIMIT_SHM, "/dev/shm is full: it has a limit" },
    { LIMIT_TMP, "/tmp is full: it has a limit" },
    { LIMIT_WORKSPACE, "/workspace is full: it has a limit" },
};

bool hint_disk(struct hint *h, const char *at UNUSED, const char *end UNUSED, const char *text UNUSED)
{
    for (size_t i = 0; i < ARRAY_LEN(hint_filesystems); i++)
        if (hint_was_hit(h, hint_filesystems[i].limit)) {
            buf_adds(&h->out, hint_filesystems[i].what);
            hint_add_value(h, hint_filesystems[i].limit);
            buf_adds(&h->out, ". Delete files or write less, or ");
            hint_add_raise(h, hint_filesystems[i].limit);
            buf_adds(&h->out, ".");
            return true;
        }
    buf_adds(&h->out, "The file system was full: /workspace has a limit");
    hint_add_value(h, LIMIT_WORKSPACE);
    buf_adds(&h->out, ", /tmp one");
    hint_add_value(h, LIMIT_TMP);
    buf_adds(&h->out, ". Delete files or write less; for /workspace, ");
    hint_add_raise(h, LIMIT_WORKSPACE);
    buf_adds(&h->out, ".");
    return true;
}

bool hint_file_size(struct hint *h, const char *at UNUSED, const char *end UNUSED, const char *text UNUSED)
{
    buf_adds(&h->out, "A file grew past the largest size of one file");
    hint_add_value(h, LIMIT_FSIZE);
    buf_adds(&h->out, ". Write less or several files, or ");
    hint_add_raise(h, LIMIT_FSIZE);
    buf_adds(&h->out, ".");
    return true;
}

bool hint_open_files(struct hint *h, const char *at UNUSED, const char *end UNUSED, const char *text UNUSED)
{
    buf_adds(&h->out, "The process has as many open files and sockets as it may: openFiles is the limit");
    hint_add_value(h, LIMIT_NOFILE);
    buf_adds(&h->out, ". Close files after use (with open(...) as f), or ");
    hint_add_raise(h, LIMIT_NOFILE);
    buf_adds(&h->out, ".");
    return true;
}
