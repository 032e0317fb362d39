/* One question is read and sent back as it was sent, letter case included, because some clients
 * check it. Names of records are never compressed except for the pointer to the question, and none
 * is read, so no loop is possible. */
#include "host/egress/dns_message.h"

#define HEADER_SIZE 12u
#define FLAG_RESPONSE 0x8000
#define FLAG_AUTHORITATIVE 0x0400
#define FLAG_RECURSION_DESIRED 0x0100
#define FLAG_RECURSION_AVAILABLE 0x0080
#define CLASS_IN 1
#define TYPE_OPT 41
#define OPT_SIZE 11u /* without options */
#define OPTION_EDE 15
#define EDE_BLOCKED 15
#define UDP_SIZE 1232 /* that is announced to the client */
#define RCODE_FORMERR 1
#define RCODE_NXDOMAIN 3
#define RCODE_NOTIMP 4
#define EXTENDED_BADVERS 1 /* upper bits of the code 16 */

static uint16_t dns_u16(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

/* --- queries --- */

/* Reads the labels of the name at data[*at] and moves *at after it. */
static bool dns_read_name(const uint8_t *data, size_t len, size_t *at, struct dns_query *q)
{
    char name[HOSTNAME_MAX + 1];
    size_t n = 0;
    bool is_text = true;

    while (*at < len && data[*at] != 0) {
        size_t label = data[*at];

        if (label > 63 || len - *at - 1 < label || n + label + (n > 0) > HOSTNAME_MAX)
            return false;
        if (n > 0)
            name[n++] = '.';
        is_text &= !memchr(data + *at + 1, '.', label);
        memcpy(name + n, data + *at + 1, label);
        n += label;
        *at += 1 + label;
    }
    if (*at >= len)
        return false;
    ++*at;
    q->is_hostname = is_text && hostname_normalize(name, n, q->name, NULL) == 0;
    return true;
}

/* The additional section: nothing, or an OPT record and nothing after it. */
static bool dns_read_opt(const uint8_t *data, size_t len, unsigned count, struct dns_query *q, uint8_t *ret_version)
{
    if (count == 0)
        return len == 0;
    if (len < OPT_SIZE || data[0] != 0 || dns_u16(data + 1) != TYPE_OPT || dns_u16(data + 9) != len - OPT_SIZE)
        return false;
    q->has_edns = true;
    *ret_version = data[6];
    return true;
}

static enum dns_query_kind dns_read_sections(const uint8_t *data, size_t len, struct dns_query *q)
{
    size_t at = HEADER_SIZE;
    uint8_t version = 0;

    if (len > DNS_QUERY_MAX || dns_u16(data + 4) != 1 || dns_u16(data + 6) != 0 || dns_u16(data + 8) != 0 ||
        dns_u16(data + 10) > 1 || !dns_read_name(data, len, &at, q) || len - at < 4)
        return DNS_QUERY_MALFORMED;
    q->type = dns_u16(data + at);
    uint16_t class = dns_u16(data + at + 2);
    at += 4;
    if (!dns_read_opt(data + at, len - at, dns_u16(data + 10), q, &version))
        return DNS_QUERY_MALFORMED;
    q->question_len = (uint16_t)(at - HEADER_SIZE);
    memcpy(q->question, data + HEADER_SIZE, q->question_len);
    if (version != 0)
        return DNS_QUERY_VERSION;
    return class == CLASS_IN ? DNS_QUERY_READ : DNS_QUERY_UNKNOWN;
}

enum dns_query_kind dns_query_read(const uint8_t *data, size_t len, struct dns_query *ret)
{
    if (len < HEADER_SIZE || (dns_u16(data + 2) & FLAG_RESPONSE))
        return DNS_QUERY_DROPPED;
    memset(ret, 0, sizeof(*ret));
    ret->id = dns_u16(data);
    ret->opcode = data[2] >> 3 & 15;
    ret->is_recursion_desired = dns_u16(data + 2) & FLAG_RECURSION_DESIRED;
    return ret->opcode == 0 ? dns_read_sections(data, len, ret) : DNS_QUERY_UNKNOWN;
}

/* --- answers --- */

struct dns_writer {
    uint8_t *out;
    size_t len;
};

static void dns_put(struct dns_writer *w, const void *data, size_t n)
{
    memcpy(w->out + w->len, data, n);
    w->len += n;
}

static void dns_put_u16(struct dns_writer *w, unsigned n)
{
    w->out[w->len++] = (uint8_t)(n >> 8);
    w->out[w->len++] = (uint8_t)n;
}

static void dns_put_u32(struct dns_writer *w, uint32_t n)
{
    dns_put_u16(w, n >> 16);
    dns_put_u16(w, n & 0xffff);
}

static unsigned dns_answer_rcode(enum dns_answer answer)
{
    switch (answer) {
    case DNS_ANSWER_NXDOMAIN:
        return RCODE_NXDOMAIN;
    case DNS_ANSWER_FORMERR:
        return RCODE_FORMERR;
    case DNS_ANSWER_NOTIMP:
        return RCODE_NOTIMP;
    default:
        return 0;
    }
}

static void dns_put_address(struct dns_writer *w, uint32_t address)
{
    dns_put_u16(w, 0xc000 | HEADER_SIZE); /* the name of the question */
    dns_put_u16(w, DNS_TYPE_A);
    dns_put_u16(w, CLASS_IN);
    dns_put_u32(w, DNS_TTL_S);
    dns_put_u16(w, 4);
    dns_put_u32(w, address);
}

static void dns_put_opt(struct dns_writer *w, bool is_badvers, const char *blocked_why)
{
    size_t text = blocked_why ? strnlen(blocked_why, DNS_EDE_TEXT_MAX) : 0;

    w->out[w->len++] = 0;
    dns_put_u16(w, TYPE_OPT);
    dns_put_u16(w, UDP_SIZE);
    dns_put_u32(w, is_badvers ? (uint32_t)EXTENDED_BADVERS << 24 : 0);
    dns_put_u16(w, blocked_why ? (unsigned)(6 + text) : 0);
    if (!blocked_why)
        return;
    dns_put_u16(w, OPTION_EDE);
    dns_put_u16(w, (unsigned)(2 + text));
    dns_put_u16(w, EDE_BLOCKED);
    dns_put(w, blocked_why, text);
}

size_t dns_answer_write(const struct dns_query *q, enum dns_answer answer, uint32_t address, const char *blocked_why,
                        uint8_t ret[DNS_ANSWER_MAX])
{
    struct dns_writer w = { ret, 0 };
    bool is_header_only = answer == DNS_ANSWER_FORMERR || q->question_len == 0;

    dns_put_u16(&w, q->id);
    dns_put_u16(&w, FLAG_RESPONSE | FLAG_AUTHORITATIVE | FLAG_RECURSION_AVAILABLE | (unsigned)q->opcode << 11 |
                        (q->is_recursion_desired ? FLAG_RECURSION_DESIRED : 0) | dns_answer_rcode(answer));
    dns_put_u16(&w, !is_header_only);
    dns_put_u16(&w, !is_header_only && answer == DNS_ANSWER_ADDRESS);
    dns_put_u16(&w, 0);
    dns_put_u16(&w, !is_header_only && q->has_edns);
    if (is_header_only)
        return w.len;
    dns_put(&w, q->question, q->question_len);
    if (answer == DNS_ANSWER_ADDRESS)
        dns_put_address(&w, address);
    if (q->has_edns)
        dns_put_opt(&w, answer == DNS_ANSWER_BADVERS, blocked_why);
    return w.len;
}

/* --- over TCP --- */

enum dns_tcp_result dns_tcp_read(const uint8_t *data, size_t len, const uint8_t **ret, size_t *ret_len,
                                 size_t *ret_used)
{
    if (len < 2)
        return DNS_TCP_MORE;
    size_t n = dns_u16(data);
    if (n == 0 || n > DNS_QUERY_MAX)
        return DNS_TCP_BAD;
    if (len - 2 < n)
        return DNS_TCP_MORE;
    *ret = data + 2;
    *ret_len = n;
    *ret_used = 2 + n;
    return DNS_TCP_MESSAGE;
}

void dns_tcp_prefix(size_t len, uint8_t ret[2])
{
    ret[0] = (uint8_t)(len >> 8);
    ret[1] = (uint8_t)len;
}
