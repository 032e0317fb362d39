/* execution_state.h - how far an execution is, with a row (struct execution) or without (struct
 * run). States are only skipped forwards, except that a run whose sandbox was lost before the
 * program could start begins again at CREATING or STARTING. */
#pragma once

enum execution_state {
    EXECUTION_WAITING,   /* for its sandbox, a slot, or its turn in a context */
    EXECUTION_CREATING,  /* run: its sandbox is being made */
    EXECUTION_STAGING,   /* its files are being written */
    EXECUTION_STARTING,  /* its program is being started or resumed */
    EXECUTION_RUNNING,   /* the program has started */
    EXECUTION_GATHERING, /* run: the program has ended; output files are being collected */
    /* With a row: the end is being committed. Run: completed or cancelled; its sandbox is being
     * destroyed. */
    EXECUTION_ENDED,
};

/* Changes the state of the execution with this id, and logs it. */
void execution_set_state(const char *id, enum execution_state *state, enum execution_state next);
