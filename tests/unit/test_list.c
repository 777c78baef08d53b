/* The intrusive list: order, taking out, walking while taking out. */
#include "list.h"

#include "test.h"

struct item {
    int n;
    struct list link;
};

static void expect_order(struct list *head, const int *want, size_t n)
{
    size_t i = 0;

    LIST_EACH(it, head)
    {
        assert_true(i < n);
        assert_int_equal(LIST_ITEM(it, struct item, link)->n, want[i++]);
    }
    assert_int_equal(i, n);
}

static void test_order(void **state)
{
    struct list head;
    struct item a = {1, {NULL, NULL}}, b = {2, {NULL, NULL}}, c = {3, {NULL, NULL}};

    (void)state;
    list_init(&head);
    assert_true(list_empty(&head));
    assert_null(list_first(&head));
    list_push_back(&head, &b.link);
    list_push_back(&head, &c.link);
    list_push_front(&head, &a.link);
    expect_order(&head, (const int[]){1, 2, 3}, 3);
    list_del(&b.link);
    assert_true(list_empty(&b.link));
    list_del(&b.link); /* twice does no harm */
    expect_order(&head, (const int[]){1, 3}, 2);
    list_insert_before(&a.link, &b.link);
    expect_order(&head, (const int[]){2, 1, 3}, 3);
    assert_ptr_equal(list_first(&head), &b.link);
}

static void test_del_while_walking(void **state)
{
    struct list head;
    struct item items[5];

    (void)state;
    list_init(&head);
    for (int i = 0; i < 5; i++) {
        items[i].n = i;
        list_push_back(&head, &items[i].link);
    }
    LIST_EACH_SAFE(it, &head)
    {
        if (LIST_ITEM(it, struct item, link)->n % 2 == 0)
            list_del(it);
    }
    expect_order(&head, (const int[]){1, 3}, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_del_while_walking),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
