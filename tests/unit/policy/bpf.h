/* bpf.h - an interpreter for the subset of BPF that a seccomp filter may use. It marks every
 * executed instruction and every branch taken. A program that the kernel's checker would refuse
 * fails the test. */
#pragma once

#include "tests/unit/test.h"

#include <linux/filter.h>
#include <linux/seccomp.h>

#define BPF_SEEN 1u
#define BPF_SEEN_TRUE 2u
#define BPF_SEEN_FALSE 4u

/* Runs the program; `seen`, if given, has one byte of marks per instruction; `steps` counts
 * instructions. */
static inline uint32_t bpf_run(const struct sock_filter *prog, size_t len, const struct seccomp_data *data,
                               uint8_t *seen, uint64_t *steps)
{
    uint32_t a = 0;

    for (size_t pc = 0; pc < len; pc++) {
        const struct sock_filter *i = &prog[pc];
        bool taken;

        if (seen)
            seen[pc] |= BPF_SEEN;
        if (steps)
            ++*steps;
        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            assert_true(i->k % 4 == 0 && i->k + 4 <= sizeof(*data));
            memcpy(&a, (const char *)data + i->k, 4);
            continue;
        case BPF_ALU | BPF_AND | BPF_K:
            a &= i->k;
            continue;
        case BPF_JMP | BPF_JA:
            pc += i->k;
            continue;
        case BPF_RET | BPF_K:
            return i->k;
        case BPF_JMP | BPF_JEQ | BPF_K:
            taken = a == i->k;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            taken = a >= i->k;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            taken = a > i->k;
            break;
        default:
            fail_msg("instruction %zu has code %#x", pc, i->code);
            return 0;
        }
        if (seen)
            seen[pc] |= taken ? BPF_SEEN_TRUE : BPF_SEEN_FALSE;
        pc += taken ? i->jt : i->jf;
    }
    fail_msg("the program ran off its end");
    return 0;
}
