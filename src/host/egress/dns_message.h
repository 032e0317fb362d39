/* dns_message.h - the messages of the resolver inside of a sandbox: reads a query, writes the
 * answer. The resolver invents addresses and sends no query of its own, so this is all of DNS that
 * it needs. */
#pragma once

#include "core/base/base.h"
#include "policy/hostname.h"

#define DNS_QUERY_MAX 4096u /* bytes of a query that is read */
#define DNS_ANSWER_MAX 512u /* bytes of an answer: it never needs to be truncated */
#define DNS_TYPE_A 1
#define DNS_TYPE_AAAA 28
#define DNS_TTL_S 60u
#define DNS_EDE_TEXT_MAX 100u

enum dns_query_kind {
    DNS_QUERY_DROPPED,   /* shorter than a header, or itself an answer: send nothing, *ret is not set */
    DNS_QUERY_MALFORMED, /* answer with DNS_ANSWER_FORMERR */
    DNS_QUERY_UNKNOWN,   /* another operation than QUERY or another class than IN: DNS_ANSWER_NOTIMP */
    DNS_QUERY_VERSION,   /* another version of EDNS: DNS_ANSWER_BADVERS */
    DNS_QUERY_READ,
};

struct dns_query {
    uint16_t id, type;
    bool is_recursion_desired, has_edns;
    bool is_hostname;            /* the name follows the rules of policy/hostname.h; otherwise answer NXDOMAIN */
    char name[HOSTNAME_MAX + 1]; /* normalised; valid if is_hostname */
    uint8_t question[260];       /* as it was sent, to be sent back */
    uint16_t question_len;       /* 0: the answer has no question */
    uint8_t opcode;
};

enum dns_answer {
    DNS_ANSWER_ADDRESS,  /* one A record */
    DNS_ANSWER_NODATA,   /* the name exists, without a record of this type */
    DNS_ANSWER_NXDOMAIN, /* the name does not exist */
    DNS_ANSWER_FORMERR,  /* the header only */
    DNS_ANSWER_NOTIMP,
    DNS_ANSWER_BADVERS,
};

/* *ret is valid for dns_answer_write() with every result but DNS_QUERY_DROPPED. */
enum dns_query_kind dns_query_read(const uint8_t *data, size_t len, struct dns_query *ret);
/* Returns the length. `address` (host byte order) is used by DNS_ANSWER_ADDRESS. `blocked_why`:
 * NULL, or a reason in printable ASCII, sent as the extended error 15, "Blocked", if the client
 * speaks EDNS; longer ones are cut off. */
size_t dns_answer_write(const struct dns_query *q, enum dns_answer answer, uint32_t address, const char *blocked_why,
                        uint8_t ret[DNS_ANSWER_MAX]);

/* --- over TCP, where two bytes with its length precede each message --- */

enum dns_tcp_result { DNS_TCP_BAD = -1, DNS_TCP_MORE = 0, DNS_TCP_MESSAGE = 1 };
/* The first message of a stream. It and its prefix have *ret_used bytes. BAD: longer than
 * DNS_QUERY_MAX, or empty. */
enum dns_tcp_result dns_tcp_read(const uint8_t *data, size_t len, const uint8_t **ret, size_t *ret_len,
                                 size_t *ret_used);
void dns_tcp_prefix(size_t len, uint8_t ret[2]);
