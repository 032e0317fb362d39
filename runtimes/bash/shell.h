/* shell.h - one living bash that runs code as if it were typed, and tells how it ended. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#include <sys/types.h>

struct shell {
    pid_t pid;   /* 0 while there is none; also its process group */
    int lines;   /* its standard input: commands, one a line */
    int control; /* what it says, each message ended by a NUL */
    int answers; /* answers to its questions; we hold both ends */
    int answers_in;
    int code; /* memory files: the code to run, and what was saved when it ended */
    int state;
    struct buf heard;
    uint32_t seq;   /* of the command that runs */
    uint32_t pokes; /* interrupts that were sent */
    int last;       /* exit status before, for $? */
};

int shell_init(struct shell *s, struct err *err);
void shell_done(struct shell *s);

/* Starts bash; with `restore` it goes on with the variables, functions, aliases, options and directory that the last
 * one saved. */
int shell_start(struct shell *s, bool restore, struct err *err);
void shell_kill(struct shell *s); /* and all that it started in its group */

/* Runs code; the end of it is the message "D<seq> <status>", which an interrupt may take. */
void shell_run(struct shell *s, const char *code);
/* Gives `word` to one of the commands below and has the answer sent as a message. */
void shell_look(struct shell *s, const char *command, const char *word);
#define SHELL_COMMANDS "compgen -A command -A function -A alias -A keyword -A builtin"
#define SHELL_FILES "compgen -f"
#define SHELL_VARIABLES "compgen -v"
#define SHELL_TYPE "type"
#define SHELL_VALUE "declare -p"

/* Interrupts what runs; "X<pokes> 130" says that the shell has got over it, and must be awaited. */
void shell_interrupt(struct shell *s);

void shell_answer(struct shell *s, const char *text); /* NULL is the end of the input */
void shell_unanswer(struct shell *s);                 /* forgets an answer that nobody took */

/* Reads what is there. */
void shell_hear(struct shell *s);
/* The next message that is whole; false when there is none. The buffer is cleared first. */
bool shell_message(struct shell *s, struct buf *ret);
bool shell_saved(const struct shell *s);
