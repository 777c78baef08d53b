/* A name server for the one pod that is known by name. What it says changes: either of the pod's two
 * addresses, both, or nothing that helps; the pod can always be reached at the last good one. */
#include "torture.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum dns_mode {
    DNS_FIRST,
    DNS_SECOND,
    DNS_BOTH,
    DNS_SERVFAIL,
    DNS_NXDOMAIN,
    DNS_EMPTY,
    DNS_TRUNCATED,
    DNS_STRANGE_ID,
    DNS_GARBAGE,
    DNS_SILENT
};

#define DNS_HEADER  12
#define DNS_TYPE_A  1
#define DNS_MESSAGE 512

static struct loop_io dns_io = {.fd = -1};
static unsigned dns_says;
static char dns_path[512];

/* Where the only question ends; 0 = it is none. */
static size_t dns_question_end(const unsigned char *q, size_t n)
{
    size_t at = DNS_HEADER;

    while (at < n && q[at] != 0)
        at += 1 + (size_t)q[at];
    return at + 5 <= n ? at + 5 : 0;
}

static size_t dns_put_address(unsigned char *to, unsigned char last)
{
    const unsigned char record[] = {0xc0, DNS_HEADER, 0, DNS_TYPE_A, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, last};

    memcpy(to, record, sizeof record);
    return sizeof record;
}

/* Makes the answer of the question; returns its length. */
static size_t dns_answer(unsigned char *m, size_t n)
{
    const bool v4 = m[n - 3] == DNS_TYPE_A, first = dns_says == DNS_FIRST || dns_says == DNS_BOTH,
               second = dns_says == DNS_SECOND || dns_says == DNS_BOTH;

    m[0] ^= dns_says == DNS_STRANGE_ID;
    m[2] = (unsigned char)(0x81 | (dns_says == DNS_TRUNCATED ? 2 : 0));
    m[3] = (unsigned char)(0x80 | (dns_says == DNS_SERVFAIL ? 2 : dns_says == DNS_NXDOMAIN ? 3 : 0));
    memset(m + 6, 0, 6);
    m[7] = (unsigned char)(v4 ? first + second : 0);
    if (v4 && first)
        n += dns_put_address(m + n, 1);
    if (v4 && second)
        n += dns_put_address(m + n, 2);
    return n;
}

static void dns_ready(struct loop_io *io, uint32_t events)
{
    unsigned char m[DNS_MESSAGE + 64];
    struct sockaddr_in from;
    socklen_t from_n = sizeof from;
    const ssize_t got = recvfrom(io->fd, m, DNS_MESSAGE, 0, (struct sockaddr *)&from, &from_n);
    size_t n;

    (void)events;
    if (got < DNS_HEADER || dns_says == DNS_SILENT)
        return;
    n = dns_question_end(m, (size_t)got);
    if (n == 0)
        return;
    n = dns_answer(m, n);
    if (dns_says == DNS_GARBAGE)
        memset(m + 4, 0xc0, n - 4);
    (void)sendto(io->fd, m, n, 0, (const struct sockaddr *)&from, from_n);
}

void dns_change(unsigned mode)
{
    dns_says = mode;
}

const char *dns_resolv_conf(void)
{
    return dns_path;
}

void dns_open(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    FILE *f;

    dns_io = (struct loop_io){.fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
                              .ready = dns_ready};
    snprintf(dns_path, sizeof dns_path, "%s/resolv.conf", settings.directory);
    f = fopen(dns_path, "w");
    if (dns_io.fd < 0 || f == NULL || bind(dns_io.fd, (const struct sockaddr *)&at, n) < 0 ||
        getsockname(dns_io.fd, (struct sockaddr *)&at, &n) < 0) {
        perror("torture: name server");
        exit(2);
    }
    fprintf(f, "nameserver 127.0.0.1:%u\n", ntohs(at.sin_port));
    fclose(f);
    loop_watch(&dns_io, EPOLLIN);
}

void dns_close(void)
{
    loop_forget(&dns_io);
    close(dns_io.fd);
    unlink(dns_path);
}
