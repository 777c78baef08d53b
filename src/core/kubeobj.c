/* Fields are taken as they are found: an object of a newer API that has more is read, one that lacks
 * something has nothing there. */
#include "kubeobj.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>

#include "authority.h"
#include "mem.h"

/* cJSON takes any byte in a string. */
static bool has_control(struct slice text)
{
    for (size_t i = 0; i < text.n; i++) {
        if ((unsigned char)text.p[i] < ' ' && text.p[i] != '\n' && text.p[i] != '\r' && text.p[i] != '\t')
            return true;
    }
    return false;
}

struct cJSON *kubeobj_parse(struct slice text)
{
    const bool bad = text.n == 0 || has_control(text);
    const char *end = NULL;
    cJSON *o = bad ? NULL : cJSON_ParseWithLengthOpts(text.p, text.n, &end, false);

    while (o != NULL && end < text.p + text.n && strchr(" \t\r\n", *end) != NULL)
        end++;
    if (o == NULL || end == text.p + text.n)
        return o;
    cJSON_Delete(o);
    return NULL;
}

void kubeobj_free(struct cJSON *o)
{
    cJSON_Delete(o);
}

const struct cJSON *kubeobj_get(const struct cJSON *o, const char *key)
{
    return cJSON_IsObject(o) ? cJSON_GetObjectItemCaseSensitive(o, key) : NULL;
}

struct slice kubeobj_string(const struct cJSON *node)
{
    return cJSON_IsString(node) ? slice_of(node->valuestring) : (struct slice){NULL, 0};
}

struct slice kubeobj_text(const struct cJSON *o, const char *key)
{
    return kubeobj_string(kubeobj_get(o, key));
}

bool kubeobj_bool(const struct cJSON *o, const char *key, bool otherwise)
{
    const cJSON *v = kubeobj_get(o, key);

    return cJSON_IsBool(v) ? cJSON_IsTrue(v) : otherwise;
}

bool kubeobj_int_of(const struct cJSON *v, int64_t *value)
{
    if (!cJSON_IsNumber(v) || fabs(v->valuedouble) > 1e15 || trunc(v->valuedouble) < v->valuedouble ||
        trunc(v->valuedouble) > v->valuedouble)
        return false;
    *value = (int64_t)v->valuedouble;
    return true;
}

bool kubeobj_int(const struct cJSON *o, const char *key, int64_t *value)
{
    return kubeobj_int_of(kubeobj_get(o, key), value);
}

bool kubeobj_meta(const struct cJSON *o, struct kubeobj_meta *meta)
{
    const cJSON *m = kubeobj_get(o, "metadata");

    meta->uid = kubeobj_text(m, "uid");
    meta->namespace = kubeobj_text(m, "namespace");
    meta->name = kubeobj_text(m, "name");
    meta->version = kubeobj_text(m, "resourceVersion");
    meta->created = kubeobj_text(m, "creationTimestamp");
    meta->deleting = kubeobj_text(m, "deletionTimestamp").n > 0;
    return meta->uid.n > 0 && meta->name.n > 0;
}

enum kubeobj_event kubeobj_event(const struct cJSON *event, const struct cJSON **object)
{
    static const char *const names[] = {"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"};
    const struct slice type = kubeobj_text(event, "type");

    *object = kubeobj_get(event, "object");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (slice_eq(type, slice_of(names[i])))
            return (enum kubeobj_event)i;
    }
    return KUBEOBJ_UNKNOWN;
}

bool kubeobj_list(const struct cJSON *outer, struct slice *version, struct slice *more)
{
    const cJSON *m = kubeobj_get(outer, "metadata");

    *version = kubeobj_text(m, "resourceVersion");
    *more = kubeobj_text(m, "continue");
    return cJSON_IsArray(kubeobj_get(outer, "items")) && version->n > 0;
}

int kubeobj_status(const struct cJSON *status, struct slice *message)
{
    int64_t code = 0;

    *message = kubeobj_text(status, "message");
    if (message->n == 0)
        *message = kubeobj_text(status, "reason");
    return kubeobj_int(status, "code", &code) && code > 0 && code < 1000 ? (int)code : 0;
}

bool kubeobj_is_label(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        const bool alnum = (s.p[i] >= 'a' && s.p[i] <= 'z') || (s.p[i] >= '0' && s.p[i] <= '9');

        if (!alnum && (s.p[i] != '-' || i == 0 || i == s.n - 1))
            return false;
    }
    return s.n > 0 && s.n <= 63;
}

char *kubeobj_authority(struct slice address, int64_t port)
{
    const bool v6 = address.n > 0 && memchr(address.p, ':', address.n) != NULL;
    const char *error;
    char *text, *authority = NULL;

    if (!authority_is_ip(address) || port < 1 || port > 65535)
        return NULL;
    text = mem_printf(v6 ? "[%.*s]:%lld" : "%.*s:%lld", SLICE_ARG(address), (long long)port);
    if (!authority_parse(slice_of(text), &authority, &error))
        authority = NULL;
    mem_free(text);
    return authority;
}

void kubeobj_free_endpoints(struct kubeobj_endpoint *e, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        mem_free(e[i].authority);
        mem_free(e[i].uid);
    }
    mem_free(e);
}

static int compare(const void *a, const void *b)
{
    const struct kubeobj_endpoint *x = a, *y = b;
    const int order = strcmp(x->authority, y->authority);

    return order != 0 ? order : strcmp(y->uid, x->uid); /* one with a uid before one without */
}

size_t kubeobj_sort_endpoints(struct kubeobj_endpoint *e, size_t n)
{
    size_t kept = 0;

    if (n > 1)
        qsort(e, n, sizeof(*e), compare);
    for (size_t i = 0; i < n; i++) {
        if (kept > 0 && strcmp(e[kept - 1].authority, e[i].authority) == 0) {
            mem_free(e[i].authority);
            mem_free(e[i].uid);
        } else {
            e[kept++] = e[i];
        }
    }
    return kept;
}
