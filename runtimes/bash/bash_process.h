/* bash_process.h - one living bash that runs code as if it were typed, and tells how it ended. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"

#include <sys/types.h>

struct bash_process {
    pid_t pid;      /* 0 while there is none; also its process group */
    int command_fd; /* its standard input: commands, one a line */
    int message_fd; /* what it says, each message ended by a NUL */
    int answer_fd;  /* answers to its questions; we hold both ends */
    int answer_read_fd;
    int code_fd; /* memory files: the code to run, and what was saved when it ended */
    int state_fd;
    struct buf received;
    uint32_t seq;             /* of the command that runs */
    uint32_t interrupts_sent; /* interrupts that were sent */
    int last_status;          /* exit status before, for $? */
};

int bash_process_init(struct bash_process *s, struct err *err);
void bash_process_done(struct bash_process *s);

/* Starts bash; with `restore` it goes on with the variables, functions, aliases, options and directory that the last
 * one saved. */
int bash_process_start(struct bash_process *s, bool restore, struct err *err);
void bash_process_kill(struct bash_process *s); /* and all that it started in its group */

/* Runs code; the end of it is the message "D<seq> <status>", which an interrupt may take. */
void bash_process_run(struct bash_process *s, const char *code);
/* Gives `word` to one of the commands below and has the answer sent as a message. */
void bash_process_query(struct bash_process *s, const char *command, const char *word);
#define SHELL_COMMANDS "compgen -A command -A function -A alias -A keyword -A builtin"
#define SHELL_FILES "compgen -f"
#define SHELL_VARIABLES "compgen -v"
#define SHELL_TYPE "type"
#define SHELL_VALUE "declare -p"

/* Interrupts what runs; "X<pokes> 130" says that the shell has got over it, and must be awaited. */
void bash_process_interrupt(struct bash_process *s);

void bash_process_send_input(struct bash_process *s, const char *text); /* NULL is the end of the input */
void bash_process_drop_input(struct bash_process *s);                   /* forgets an answer that nobody took */

/* Reads what is there. */
void bash_process_receive(struct bash_process *s);
/* The next message that is whole; false when there is none. The buffer is cleared first. */
bool bash_process_next_message(struct bash_process *s, struct buf *ret);
bool bash_process_has_saved_state(const struct bash_process *s);
