#include "client/ctl/hidden_input.h"

#include <errno.h>
#include <stdio.h>
#include <termios.h>
#include <unistd.h>

static bool hidden_input_begin(struct termios *was)
{
    struct termios hidden;

    if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, was) < 0)
        return false;
    hidden = *was;
    hidden.c_lflag &= ~(tcflag_t)ECHO;
    return tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden) == 0;
}

size_t hidden_input_read(const char *prompt, char *ret, size_t cap)
{
    struct termios was;
    size_t n = 0;
    char c;

    bool hidden = hidden_input_begin(&was);
    if (hidden)
        fputs(prompt, stderr);
    while (n < cap - 1) {
        ssize_t got = read(STDIN_FILENO, &c, 1);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0 || c == '\n')
            break;
        ret[n++] = c;
    }
    if (hidden) {
        (void)tcsetattr(STDIN_FILENO, TCSAFLUSH, &was);
        fputs("\n", stderr);
    }
    while (n > 0 && (ret[n - 1] == '\r' || ret[n - 1] == ' '))
        n--;
    ret[n] = '\0';
    return n;
}
