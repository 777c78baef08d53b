/* authority: checks and normalises "host:port". It owns the syntax only; names are looked up by the network
 * layer. */
#include "authority.h"
#include "mem.h"

#include <ctype.h>
#include <stdio.h>

#define IP_TEXT_MAX 48

/* ---- addresses ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* One to max_digits digits and nothing else; no leading zero in decimal, where some read it as octal. */
static bool parse_part(struct slice s, int base, size_t max_digits, unsigned *value)
{
    if (s.n == 0 || s.n > max_digits || (base == 10 && s.n > 1 && s.p[0] == '0'))
        return false;
    *value = 0;
    for (size_t i = 0; i < s.n; i++) {
        int digit = hex_digit(s.p[i]);

        if (digit < 0 || digit >= base)
            return false;
        *value = *value * (unsigned)base + (unsigned)digit;
    }
    return true;
}

static bool parse_ipv4(struct slice text, unsigned parts[4])
{
    for (size_t i = 0; i < 4; i++) {
        if (!parse_part(slice_cut(&text, '.'), 10, 3, &parts[i]) || parts[i] > 255)
            return false;
    }
    return text.p == NULL;
}

/* The groups before or after "::", or all of them; the last may be an IPv4 address. Adds them to words[*n].
 */
static bool parse_groups(struct slice text, unsigned words[8], size_t *n)
{
    unsigned parts[4];

    while (text.p != NULL) {
        struct slice group = slice_cut(&text, ':');

        if (text.p == NULL && *n <= 6 && parse_ipv4(group, parts)) {
            words[(*n)++] = parts[0] << 8 | parts[1];
            words[(*n)++] = parts[2] << 8 | parts[3];
            return true;
        }
        if (*n == 8 || !parse_part(group, 16, 4, &words[*n]))
            return false;
        (*n)++;
    }
    return true;
}

static bool parse_ipv6(struct slice text, unsigned words[8])
{
    const char *gap = text.n < 2 ? NULL : memmem(text.p, text.n, "::", 2);
    unsigned tail[8];
    struct slice before, after;
    size_t n = 0, n_tail = 0;

    memset(words, 0, 8 * sizeof(*words));
    if (gap == NULL)
        return parse_groups(text, words, &n) && n == 8;
    before = (struct slice){text.p, (size_t)(gap - text.p)};
    after = (struct slice){gap + 2, text.n - before.n - 2};
    if (memchr(before.p, '.', before.n) != NULL)
        return false;
    if ((before.n > 0 && !parse_groups(before, words, &n)) ||
        (after.n > 0 && !parse_groups(after, tail, &n_tail)) || n + n_tail > 7)
        return false;
    if (n_tail > 0)
        memcpy(words + 8 - n_tail, tail, n_tail * sizeof(*tail));
    return true;
}

/* The longest run of at least two zero words, the first of equals (RFC 5952, 4.2). */
static size_t longest_zeros(const unsigned words[8], size_t *start)
{
    size_t best = 0;

    for (size_t i = 0, run = 0; i < 8; i++) {
        run = words[i] == 0 ? run + 1 : 0;
        if (run > best) {
            best = run;
            *start = i + 1 - run;
        }
    }
    return best >= 2 ? best : 0;
}

static void format_ipv6(const unsigned words[8], char out[IP_TEXT_MAX])
{
    size_t start = 8, zeros = longest_zeros(words, &start), n = 0;

    for (size_t i = 0; i < 8; i++) {
        if (zeros > 0 && i == start) {
            n += (size_t)snprintf(out + n, IP_TEXT_MAX - n, "::");
            i += zeros - 1;
            continue;
        }
        n += (size_t)snprintf(out + n, IP_TEXT_MAX - n, "%s%x", n == 0 || out[n - 1] == ':' ? "" : ":",
                              words[i]);
    }
}

bool authority_is_ip(struct slice host)
{
    unsigned parts[4], words[8];

    return parse_ipv4(host, parts) || parse_ipv6(host, words);
}

/* ---- names and ports ---- */

static const char *check_port(struct slice text, unsigned *port)
{
    *port = 0;
    if (text.n == 0)
        return "the port is missing after ':'";
    for (size_t i = 0; i < text.n; i++) {
        if (!isdigit((unsigned char)text.p[i]))
            return "the port is not a number from 1 to 65535";
        *port = *port * 10 + (unsigned)(text.p[i] - '0');
        if (*port > 65535)
            return "the port is above 65535";
    }
    return *port == 0 ? "port 0 names no pod; expected 1 to 65535" : NULL;
}

static bool is_name_byte(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

/* Names with nothing but digits after the last dot are addresses to every resolver (RFC 3696, 2). */
static bool ends_in_number(struct slice name)
{
    size_t n = name.n;

    while (n > 0 && isdigit((unsigned char)name.p[n - 1]))
        n--;
    return n < name.n && (n == 0 || name.p[n - 1] == '.');
}

static const char *check_name(struct slice name)
{
    size_t label = 0;

    if (name.n == 0)
        return "the host is missing before ':'";
    if (name.n > AUTHORITY_HOST_MAX)
        return "the host name is longer than 253 characters";
    for (size_t i = 0; i < name.n; i++) {
        if (!is_name_byte(name.p[i]))
            return "the host name holds a character other than letters, digits, '-', '_' and '.'";
        label = name.p[i] == '.' ? 0 : label + 1;
        if (label > 63)
            return "a part of the host name is longer than 63 characters";
        if (label == 0 && (i == 0 || name.p[i - 1] == '.'))
            return "the host name has an empty part";
    }
    return ends_in_number(name) ? "not an IPv4 address: expected four numbers from 0 to 255" : NULL;
}

/* "[IPv6]:port" */
static const char *parse_bracketed(struct slice text, char **authority)
{
    struct slice host = {text.p + 1, 0}, rest = {text.p + 1, text.n - 1};
    char address[IP_TEXT_MAX];
    const char *error;
    unsigned port, words[8];

    host = slice_cut(&rest, ']');
    if (rest.p == NULL)
        return "']' is missing; expected [IPv6]:port";
    if (!parse_ipv6(host, words))
        return "not an IPv6 address between the brackets";
    if (rest.n == 0 || rest.p[0] != ':')
        return "the port is missing; expected [IPv6]:port, for example [::1]:8000";
    error = check_port((struct slice){rest.p + 1, rest.n - 1}, &port);
    format_ipv6(words, address);
    if (error == NULL)
        *authority = mem_printf("[%s]:%u", address, port);
    return error;
}

static char *lower_case(struct slice host, unsigned port)
{
    char *text = mem_printf("%.*s:%u", SLICE_ARG(host), port);

    for (size_t i = 0; i < host.n; i++)
        text[i] = (char)tolower((unsigned char)text[i]);
    return text;
}

/* "name:port" and "IPv4:port" */
static const char *parse_plain(struct slice text, char **authority)
{
    struct slice port_text = text, host = slice_cut(&port_text, ':');
    const char *error;
    unsigned port, parts[4];

    if (port_text.p == NULL)
        return "the port is missing; expected host:port, for example pod-0:8000";
    if (memchr(port_text.p, ':', port_text.n) != NULL)
        return "an IPv6 address needs brackets; expected [IPv6]:port, for example [::1]:8000";
    if (!parse_ipv4(host, parts)) {
        error = check_name(host);
        if (error != NULL)
            return error;
    }
    error = check_port(port_text, &port);
    if (error == NULL)
        *authority = lower_case(host, port);
    return error;
}

bool authority_parse(struct slice text, char **authority, const char **error)
{
    *authority = NULL;
    if (text.n == 0)
        *error = "empty; expected name:port, IPv4:port or [IPv6]:port";
    else if (memmem(text.p, text.n, "://", 3) != NULL)
        *error = "not a URL: expected host:port without http:// and path";
    else if (text.p[0] == '[')
        *error = parse_bracketed(text, authority);
    else
        *error = parse_plain(text, authority);
    return *error == NULL;
}
