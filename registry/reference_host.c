#include "reference_host.h"

#include "cleanup.h"

#include <arpa/inet.h>
#include <string.h>

enum {
    HOST_NAME_MAX_LEN = 253, /* RFC 1035, without the final dot */
    HOST_LABEL_MAX_LEN = 63,
    HOST_PORT_MAX = 65535,
};

/* Own tests on characters, as those of ctype.h depend on the locale. */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_alnum(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int fail_host(const char *text, const char *why, struct err *err)
{
    for (const char *p = text; *p; p++)
        if (*p <= ' ' || *p > '~')
            return err_fail(err, ERR_INVALID,
                            "the host holds a byte that is not printable ASCII; write an "
                            "international name in its 'xn--' form");
    return err_fail(err, ERR_INVALID, "host '%.300s' %s", text, why);
}

static bool label_is_valid(const char *label, size_t len)
{
    if (len == 0 || len > HOST_LABEL_MAX_LEN || label[0] == '-' || label[len - 1] == '-')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!is_alnum(label[i]) && label[i] != '-')
            return false;
    return true;
}

/* Decimal, or hexadecimal with "0x": what resolvers take for a part of an IPv4 address. */
static bool label_is_number(const char *label)
{
    if (label[0] == '0' && (label[1] == 'x' || label[1] == 'X'))
        return label[2 + strspn(label + 2, "0123456789abcdefABCDEF")] == '\0';
    return label[strspn(label, "0123456789")] == '\0';
}

/* Checks a name or IPv4 address that ends with its string. Returns what is wrong, or NULL. */
static const char *name_fault(const char *name)
{
    if (*name == '\0')
        return "is empty";
    if (strlen(name) > HOST_NAME_MAX_LEN)
        return "is longer than 253 bytes";
    const char *label = name;
    for (;;) {
        size_t len = strcspn(label, ".");
        if (!label_is_valid(label, len))
            return "must be labels of letters, digits and inner '-', joined by '.'";
        if (label[len] == '\0')
            break;
        label += len + 1;
    }
    struct in_addr address;
    if (label_is_number(label) && inet_pton(AF_INET, name, &address) != 1)
        return "ends in a number but is no IPv4 address of four decimal parts";
    return NULL;
}

/* Returns what is wrong with a port, or NULL. */
static const char *port_fault(const char *port)
{
    static const char fault[] = "has a port that is not 1 to 65535";
    size_t digits = strspn(port, "0123456789");
    if (digits == 0 || digits > 5 || port[digits] != '\0' || port[0] == '0')
        return fault;
    return strtol(port, NULL, 10) > HOST_PORT_MAX ? fault : NULL;
}

/* Rewrites "[address" (the closing bracket cut off) in its shortest form with both brackets. */
static int canonical_ipv6(const char *text, const char *bracketed, char ret[INET6_ADDRSTRLEN + 2],
                          struct err *err)
{
    struct in6_addr address;
    if (inet_pton(AF_INET6, bracketed + 1, &address) != 1)
        return fail_host(text, "has no valid IPv6 address in its brackets", err);
    ret[0] = '[';
    if (!inet_ntop(AF_INET6, &address, ret + 1, INET6_ADDRSTRLEN))
        return err_errno(err, errno, "cannot format the address of host '%.300s'", text);
    size_t len = strlen(ret);
    ret[len] = ']';
    ret[len + 1] = '\0';
    return 0;
}

/* Cuts `copy` into name and port. Returns the port, NULL without one; *ret_well_formed is false
 * when a bracket is not closed, or something else than a port follows it. */
static char *split_port(char *copy, bool *ret_well_formed)
{
    *ret_well_formed = true;
    if (copy[0] != '[') {
        char *colon = strchr(copy, ':');
        if (!colon)
            return NULL;
        *colon = '\0';
        return colon + 1;
    }
    char *close = strchr(copy, ']');
    if (!close) {
        *ret_well_formed = false;
        return NULL;
    }
    *close = '\0';
    *ret_well_formed = close[1] == '\0' || close[1] == ':';
    return close[1] == ':' ? close + 2 : NULL;
}

static char *lower_case(char *text)
{
    for (char *p = text; *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    return text;
}

int reference_host_canonical(const char *text, char **ret, struct err *err)
{
    cleanup_free char *copy = strdup(text);
    if (!copy)
        return err_errno(err, ENOMEM, "cannot check a host");
    bool well_formed;
    const char *port = split_port(copy, &well_formed);
    const char *fault = well_formed ? NULL : "must be '[IPv6]' or '[IPv6]:port'";
    char address[INET6_ADDRSTRLEN + 2];
    const char *name = copy;
    if (!fault && copy[0] == '[') {
        int rc = canonical_ipv6(text, copy, address, err);
        if (rc < 0)
            return rc;
        name = address;
    } else if (!fault) {
        fault = name_fault(lower_case(copy));
    }
    if (!fault && port)
        fault = port_fault(port);
    if (fault)
        return fail_host(text, fault, err);
    char *host;
    if (asprintf(&host, "%s%s%s", name, port ? ":" : "", port ? port : "") < 0)
        return err_errno(err, ENOMEM, "cannot check a host");
    *ret = host;
    return 0;
}

/* Length of a canonical host without its port. */
static size_t name_len(const char *host)
{
    if (host[0] == '[')
        return strcspn(host, "]") + 1;
    return strcspn(host, ":");
}

bool reference_host_is_loopback(const char *host)
{
    size_t len = name_len(host);
    if (len == 9 && memcmp(host, "localhost", 9) == 0)
        return true;
    if (len == 5 && memcmp(host, "[::1]", 5) == 0)
        return true;
    char name[INET_ADDRSTRLEN];
    if (len >= sizeof name)
        return false;
    memcpy(name, host, len);
    name[len] = '\0';
    struct in_addr address;
    return inet_pton(AF_INET, name, &address) == 1 && ntohl(address.s_addr) >> 24 == 127;
}

/* Takes the next entry of a list, without the spaces around it; NULL at the end. Caller frees. */
static char *next_entry(const char **list)
{
    const char *from = *list + strspn(*list, " \t");
    if (*from == '\0')
        return NULL;
    size_t len = strcspn(from, ",");
    *list = from[len] == ',' ? from + len + 1 : from + len;
    while (len > 0 && (from[len - 1] == ' ' || from[len - 1] == '\t'))
        len--;
    return strndup(from, len);
}

int reference_host_check_list(const char *list, struct err *err)
{
    while (list) {
        cleanup_free char *entry = next_entry(&list);
        if (!entry)
            break;
        cleanup_free char *host = NULL;
        int rc = reference_host_canonical(entry, &host, err);
        if (rc < 0)
            return err_wrap(err, rc, "the list of insecure hosts has a bad entry");
    }
    return 0;
}

static bool entry_names(const char *entry, const char *host)
{
    cleanup_free char *named = NULL;
    if (reference_host_canonical(entry, &named, NULL) < 0)
        return false;
    if (strcmp(named, host) == 0)
        return true;
    size_t len = name_len(host);
    return strlen(named) == len && memcmp(named, host, len) == 0;
}

bool reference_host_is_listed(const char *host, const char *list)
{
    while (list) {
        cleanup_free char *entry = next_entry(&list);
        if (!entry)
            break;
        if (entry_names(entry, host))
            return true;
    }
    return false;
}
