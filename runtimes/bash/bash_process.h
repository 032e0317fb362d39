/* bash_process.h - one running bash that executes code as if it were typed, and reports how it
 * ended. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"

#include <sys/types.h>

struct bash_process {
    pid_t pid;          /* 0 if there is no shell; also its process group */
    int command_fd;     /* its standard input: one command per line */
    int message_fd;     /* messages of the shell, each ended by a NUL */
    int answer_fd;      /* answers to input requests of the shell; this process holds both ends */
    int answer_read_fd; /* the read end of answer_fd's pipe */
    int code_fd;        /* memory file with the code to run */
    int state_fd;       /* memory file with the state that an ending shell saved */
    struct buf received;
    uint32_t seq;             /* number of the running command */
    uint32_t interrupts_sent; /* number of interrupts sent */
    int last_status;          /* previous exit status, for $? */
    bool overrides_set;       /* variables or the directory of the last run must be restored */
};

int bash_process_init(struct bash_process *s, struct err *err);
void bash_process_done(struct bash_process *s);

/* Starts bash. With `restore` it continues with the variables, functions, aliases, options and
 * directory that the previous shell saved. */
int bash_process_start(struct bash_process *s, bool restore, struct err *err);
void bash_process_kill(struct bash_process *s); /* also kills all processes that it started in its group */

/* Runs code. At its end the shell sends "D<seq> <status>", which an interrupt may suppress.
 * overrides: NULL, or commands for this code only (bash_process_write_overrides). */
void bash_process_run(struct bash_process *s, const char *overrides, const char *code);
struct bash_variable {
    const char *name, *value; /* name: a valid name of a variable */
};
/* Writes commands that set variables and the directory (NULL: unchanged), and remember what they
 * replace. */
void bash_process_write_overrides(const struct bash_variable *env, size_t n, const char *cwd, struct buf *out);
/* Passes `word` to one of the commands below; the result arrives as a message. */
void bash_process_query(struct bash_process *s, const char *command, const char *word);
#define SHELL_COMMANDS "compgen -A command -A function -A alias -A keyword -A builtin"
#define SHELL_FILES "compgen -f"
#define SHELL_VARIABLES "compgen -v"
#define SHELL_TYPE "type"
#define SHELL_VALUE "declare -p"

/* Interrupts the running code. "X<pokes> 130" reports that the shell has handled the interrupt; the
 * caller must wait for it. */
void bash_process_interrupt(struct bash_process *s);

/* text: NULL means end of input. more: the line continues in the next text. */
void bash_process_send_input(struct bash_process *s, const char *text, bool more);
void bash_process_drop_input(struct bash_process *s); /* discards an answer that was not read */

/* Reads the available messages. */
void bash_process_receive(struct bash_process *s);
/* Returns the next complete message; false if there is none. Clears the buffer first. */
bool bash_process_next_message(struct bash_process *s, struct buf *ret);
bool bash_process_has_saved_state(const struct bash_process *s);
