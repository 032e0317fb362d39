/* segment.h - the files of a log: 000001.jsonl and so on, in the order in which they were written. */
#pragma once

#include "server/audit/chain.h"

#define SEGMENT_NAME_SIZE 20

struct segment {
    uint32_t no;
    uint64_t size;
};

char *segment_name(uint32_t no, char buf[SEGMENT_NAME_SIZE]);
/* Those of a directory, oldest first; the caller frees *ret. */
int segment_list(int dir, struct segment **ret, size_t *ret_n, struct err *err);

/* The end of a file that a kill may have cut off anywhere: the last record that is whole and true, and where the next
 * one goes. What lies behind is `torn`. False in *ret_any: there is no such record, and all of it is torn. */
struct segment_end {
    bool any;
    struct chain_line line;
    uint64_t size, torn;
    uint8_t torn_hash[CHAIN_HASH];
};
int segment_end(int fd, struct segment_end *ret, struct err *err);

/* Calls fn for every line from `from` on, without its end, with the offset behind it; a line without an end is not
 * told. False stops. Returns -1 with errno. */
int segment_each(int fd, uint64_t from, uint64_t to, bool (*fn)(void *arg, const char *line, size_t len, uint64_t next),
                 void *arg);
/* Where the first record behind `seq` begins, found by halving; `size` when there is none. */
uint64_t segment_find(int fd, uint64_t size, uint64_t seq);
/* Number and time of its first record; false: it has none. */
bool segment_first(int fd, uint64_t size, uint64_t *ret_seq, uint64_t *ret_ms);
/* Whether this very record is not in it. */
int segment_lacks_record(int fd, uint64_t size, const struct chain_link *at, bool *ret, struct err *err);
