/* list.h - intrusive lists: an element has a member `next`, and the list is a pointer to its first
 * element.
 *
 * `list_*` suit short lists: removal searches from the head. `linked_*` also keep, in a member
 * `link`, the address of the pointer to the element, so removal takes constant time; an element
 * with link NULL is in no list.
 *
 *     struct waiter { struct waiter *next; ... };
 *     list_append(&q->waiters, w);
 *     list_remove(&q->waiters, w); */
#pragma once

#include <stddef.h>

#define list_push(head, item)             \
    do {                                  \
        __typeof__(item) item_ = (item);  \
        __typeof__(item) *head_ = (head); \
        item_->next = *head_;             \
        *head_ = item_;                   \
    } while (0)

#define list_append(head, item)          \
    do {                                 \
        __typeof__(item) item_ = (item); \
        __typeof__(item) *at_ = (head);  \
        while (*at_)                     \
            at_ = &(*at_)->next;         \
        item_->next = NULL;              \
        *at_ = item_;                    \
    } while (0)

/* The item must be in the list. Its `next` stays as it is. */
#define list_remove(head, item)          \
    do {                                 \
        __typeof__(item) item_ = (item); \
        __typeof__(item) *at_ = (head);  \
        while (*at_ != item_)            \
            at_ = &(*at_)->next;         \
        *at_ = item_->next;              \
    } while (0)

#define linked_push(head, item)               \
    do {                                      \
        __typeof__(item) item_ = (item);      \
        __typeof__(item) *head_ = (head);     \
        item_->next = *head_;                 \
        item_->link = head_;                  \
        if (item_->next)                      \
            item_->next->link = &item_->next; \
        *head_ = item_;                       \
    } while (0)

/* Does nothing if the item is in no list. Its `next` stays as it is, so a loop over the list may
 * continue from it. */
#define linked_remove(item)                      \
    do {                                         \
        __typeof__(item) item_ = (item);         \
        if (item_->link) {                       \
            *item_->link = item_->next;          \
            if (item_->next)                     \
                item_->next->link = item_->link; \
            item_->link = NULL;                  \
        }                                        \
    } while (0)
