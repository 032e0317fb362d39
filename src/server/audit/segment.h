/* segment.h - the files of the audit trail: 000001.jsonl, 000002.jsonl and so on, in the order of
 * writing. */
#pragma once

#include "server/audit/chain.h"

#define SEGMENT_NAME_SIZE 20

struct segment {
    uint32_t no;
    uint64_t size;
};

char *segment_name(uint32_t no, char buf[SEGMENT_NAME_SIZE]);
/* Lists the files of a directory, oldest first; the caller frees *ret. */
int segment_list(int dir, struct segment **ret, size_t *ret_n, struct err *err);

/* The end of a file that a kill may have cut off at any byte: the last complete record with a valid
 * hash, and the offset for the next record. The bytes after that offset are `torn`. any is false if
 * the file has no such record; then all its bytes are torn. */
struct segment_end {
    bool any;
    struct chain_line line;
    uint64_t size, torn;
    uint8_t torn_hash[CHAIN_HASH];
};
int segment_end(int fd, struct segment_end *ret, struct err *err);

/* Calls fn for every complete line from offset `from`, without its newline, with the offset after
 * it. fn returns false to stop. Returns -1 with errno. */
int segment_each(int fd, uint64_t from, uint64_t to, bool (*fn)(void *arg, const char *line, size_t len, uint64_t next),
                 void *arg);
/* Offset of the first record after `seq`, found by binary search; `size` when there is none. */
uint64_t segment_find(int fd, uint64_t size, uint64_t seq);
/* Number and time of the file's first record; false: it has none. */
bool segment_first(int fd, uint64_t size, uint64_t *ret_seq, uint64_t *ret_ms);
/* *ret: whether the file lacks exactly this record (number and hash). */
int segment_lacks_record(int fd, uint64_t size, const struct chain_link *at, bool *ret, struct err *err);
