/* list: an intrusive, circular, doubly linked list. A node that is in no list points to itself. */
#ifndef LIST_H
#define LIST_H

#include "util.h"

struct list {
    struct list *prev, *next;
};

static inline void list_init(struct list *l)
{
    l->prev = l->next = l;
}

/* True for an empty head, and for a node that is in no list. */
static inline bool list_empty(const struct list *l)
{
    return l->next == l;
}

/* Puts node before `pos`; before the head is the end of the list. The node must be in no list. */
static inline void list_insert_before(struct list *pos, struct list *node)
{
    node->prev = pos->prev;
    node->next = pos;
    pos->prev->next = node;
    pos->prev = node;
}

static inline void list_push_back(struct list *head, struct list *node)
{
    list_insert_before(head, node);
}

static inline void list_push_front(struct list *head, struct list *node)
{
    list_insert_before(head->next, node);
}

/* Takes the node out of its list, if it is in one. */
static inline void list_del(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

/* The first node, or NULL. */
static inline struct list *list_first(const struct list *head)
{
    return list_empty(head) ? NULL : head->next;
}

/* The struct that holds the node. (LIST_ENTRY is taken by sys/queue.h, which libevent uses.) */
#define LIST_ITEM(node, type, member) CONTAINER_OF(node, type, member)
#define LIST_EACH(it, head)           for (struct list *it = (head)->next; it != (head); it = it->next)
/* The current node may be taken out (or freed) inside the loop. */
#define LIST_EACH_SAFE(it, head)                                                                             \
    for (struct list *it = (head)->next, *it##_next = it->next; it != (head);                                \
         it = it##_next, it##_next = it->next)

#endif
