/* A process has one terminal, so there is one state, and it is static: the handlers of SIGSEGV and
 * similar signals must reach it without an argument. Signals that users send are handled by the
 * loop and end the program in the normal way. SIGKILL cannot be caught; after it `stty sane`
 * restores the terminal, as for every program that uses raw mode. */
#include "client/cli/term.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#define ENDINGS 3

static struct termios term_saved;
static volatile sig_atomic_t term_raw_fd = -1;

void term_restore(void)
{
    int fd = term_raw_fd;

    if (fd < 0)
        return;
    term_raw_fd = -1;
    tcsetattr(fd, TCSANOW, &term_saved); /* not TCSADRAIN: a terminal without a reader would block for ever */
}

static void term_on_crash(int signo)
{
    int fd = term_raw_fd;

    term_raw_fd = -1;
    if (fd >= 0)
        tcsetattr(fd, TCSANOW, &term_saved);
    signal(signo, SIG_DFL);
    raise(signo);
}

static int term_change(int fd, bool keys_only, struct err *err)
{
    /* The last ENDINGS are handled by the loop of programs that use raw mode. */
    static const int crashes[] = { SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGSYS, SIGTERM, SIGHUP, SIGINT };
    struct sigaction sa = { .sa_handler = term_on_crash, .sa_flags = (int)SA_RESETHAND };
    struct termios t;

    if (tcgetattr(fd, &term_saved) < 0)
        return err_sys(err, ERR_SYS, "cannot read the terminal settings");
    t = term_saved;
    if (keys_only)
        t.c_lflag &= ~(tcflag_t)(ICANON | ECHO | ISIG);
    else
        cfmakeraw(&t);
    for (size_t i = 0; i < ARRAY_LEN(crashes) - (keys_only ? 0 : ENDINGS); i++)
        sigaction(crashes[i], &sa, NULL);
    atexit(term_restore);
    term_raw_fd = fd;
    if (tcsetattr(fd, TCSADRAIN, &t) < 0) {
        term_raw_fd = -1;
        return err_sys(err, ERR_SYS, "cannot set the terminal to raw mode");
    }
    return 0;
}

int term_raw(int fd, struct err *err)
{
    return term_change(fd, false, err);
}

int term_keys(int fd, struct err *err)
{
    return term_change(fd, true, err);
}

bool term_size(int fd, uint16_t *rows, uint16_t *cols)
{
    struct winsize ws;

    if (ioctl(fd, TIOCGWINSZ, &ws) < 0 || ws.ws_row == 0 || ws.ws_col == 0)
        return false;
    *rows = ws.ws_row;
    *cols = ws.ws_col;
    return true;
}
