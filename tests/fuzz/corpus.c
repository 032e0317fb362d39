/* corpus.c - writes the first inputs of the wire, jail and egress_wire targets:
 * `fuzz-corpus tests/fuzz/corpus`.
 *
 * Each message under each frame type that carries it: complete, cut, and with a few flipped bits;
 * then the largest messages. The same table gives the same files, so a change of the wire format is
 * visible as a change of the corpus. */
#include "tests/support/messages.h"

#include "core/wire/jail.h"
#include "core/wire/rt.h"

#include <stdio.h>

static uint8_t packet[FRAME_MAX];
static const char *directory;
static const char *const directories[] = {
    [MESSAGE_RT] = "wire", [MESSAGE_JAIL] = "jail", [MESSAGE_EGRESS] = "egress_wire"
};

static void write_packet(enum message_link link, const char *name, const char *variant, size_t len)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s/%s-%s", directory, directories[link], name, variant);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(packet, 1, len, f) != len || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

static void set_header(uint8_t type, int payload)
{
    if (payload < 0)
        abort();
    frame_header(packet, &(struct frame){ .type = type, .stream = 2, .len = (uint32_t)payload });
}

/* Turns one bit in every 8 bytes or so of the payload, differently for each message. */
static void turn_bits(size_t len, uint32_t seed)
{
    uint32_t x = seed * 2654435761u + 1;

    for (size_t i = 0; i < len / 8 + 1; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        packet[FRAME_HEADER + x % len] ^= (uint8_t)(1u << (x >> 29));
    }
}

static void write_message(const struct message *m, uint32_t seed)
{
    int n = m->example(packet + FRAME_HEADER, NULL);

    for (const uint8_t *type = m->types; *type; type++) {
        set_header(*type, n);
        write_packet(m->link, m->name, frame_name(*type), FRAME_HEADER + (size_t)n);
    }
    set_header(m->types[0], n / 2);
    write_packet(m->link, m->name, "cut", FRAME_HEADER + (size_t)n / 2);
    set_header(m->types[0], n);
    turn_bits((size_t)n, seed);
    write_packet(m->link, m->name, "turned", FRAME_HEADER + (size_t)n);
}

static void write_largest(void)
{
    static const char *args[RT_ARGS_MAX + 1];
    static struct jail_list list = { .n = JAIL_LIST_MAX };
    int n;

    for (size_t i = 0; i < RT_ARGS_MAX; i++)
        args[i] = "";
    n = rt_exec_encode(&(struct rt_exec){ .cwd = "", .argv = args }, packet + FRAME_HEADER, NULL);
    set_header(FRAME_EXEC, n);
    write_packet(MESSAGE_RT, "rt_exec", "largest", FRAME_HEADER + (size_t)n);
    args[1] = NULL;
    n = rt_exec_encode(&(struct rt_exec){ .flags = RT_EXEC_KERNEL, .cwd = "", .argv = args }, packet + FRAME_HEADER,
                       NULL);
    set_header(FRAME_EXEC, n);
    write_packet(MESSAGE_RT, "rt_exec", "kernel", FRAME_HEADER + (size_t)n);

    for (size_t i = 0; i < JAIL_LIST_MAX; i++)
        memcpy(list.ids[i], "sbabcdefghijklmnopqrst", ID_SIZE);
    n = jail_list_encode(&list, packet + FRAME_HEADER, NULL);
    set_header(FRAME_DONE, n);
    write_packet(MESSAGE_JAIL, "jail_list", "largest", FRAME_HEADER + (size_t)n);
}

static void write_bare(enum message_link link, uint8_t type)
{
    set_header(type, 0);
    write_packet(link, "bare", frame_name(type), FRAME_HEADER);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: fuzz-corpus DIRECTORY\n");
        return 2;
    }
    directory = argv[1];
    for (size_t i = 0; i < nmessages; i++)
        write_message(&messages[i], (uint32_t)i);
    write_largest();
    write_bare(MESSAGE_RT, FRAME_CLOSE);
    write_bare(MESSAGE_RT, FRAME_STATS);
    write_bare(MESSAGE_RT, FRAME_RESET);
    write_bare(MESSAGE_JAIL, FRAME_J_LIST);
    write_bare(MESSAGE_JAIL, FRAME_J_OK);
    write_bare(MESSAGE_EGRESS, FRAME_E_BOUND);
    return 0;
}
