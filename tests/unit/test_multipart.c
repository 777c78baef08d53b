/* Forms: the field wherever it stands, names and boundaries in every spelling, and what is no form. */
#include "multipart.h"

#include "test.h"

#define PART(head, content) "--XX\r\n" head "\r\n\r\n" content "\r\n"
#define MODEL(value)        PART("Content-Disposition: form-data; name=\"model\"", value)
#define SOUND                                                                                                \
    PART("Content-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav",     \
         "RIFF--XX\r\n--X\r\n\r\nname=\"model\"\r\n\r\nno")
#define END "--XX--\r\n"

static void expect(const char *body, const char *value, bool whole)
{
    const char *error;
    const struct slice got = multipart_field(slice_of(body), SLICE("XX"), SLICE("model"), &error);

    assert_true(slice_eq(got, slice_of(value)));
    assert_int_equal(got.p == NULL, value == NULL);
    assert_int_equal(error == NULL, whole);
}

static void test_place(void **state)
{
    (void)state;
    expect(MODEL("whisper") SOUND END, "whisper", true);
    expect(SOUND MODEL("whisper") END, "whisper", true);
    expect("preamble\r\n" SOUND MODEL("whisper") "--XX--", "whisper", true);
    expect(MODEL("a") SOUND MODEL("b") END "epilogue\r\n" MODEL("c"), "b", true);
    expect(MODEL("") END, "", true);
    expect(SOUND END, NULL, true);
    expect(END, NULL, true);
}

static void test_names(void **state)
{
    (void)state;
    expect(PART("content-disposition:form-data;name=model", "m") END, "m", true);
    expect(PART("X: y\r\nCONTENT-DISPOSITION: form-data ; x=\"a;b=\\\"c\" ; NAME = \"model\" ", "m") END, "m",
           true);
    expect(PART("Content-Disposition: form-data; name=\"models\"", "m") END, NULL, true);
    expect(PART("Content-Disposition: form-data; name=\"Model\"", "m") END, NULL, true);
    expect(PART("Content-Disposition: form-data; x=\"name=model\"", "m") END, NULL, true);
    expect(PART("Content-Disposition: form-data; name=\"model\"; filename=\"f\"", "m") END, NULL, true);
    expect(PART("Content-Type: text/plain; name=\"model\"", "m") END, NULL, true);
    expect(PART("Content-Disposition: form-data; name", "m") END, NULL, true);
}

static void test_broken(void **state)
{
    (void)state;
    expect("", NULL, false);
    expect("no boundary", NULL, false);
    expect("--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm", NULL, false);
    expect(MODEL("m") "--XX\r\nContent-Disposition: form-data; name=\"x\"\r\n\r\ncut", "m", false);
    expect("--XX\r\nno blank line\r\n" END, NULL, true);
}

static void expect_boundary(const char *type, const char *boundary)
{
    assert_true(slice_eq(multipart_boundary(slice_of(type)), slice_of(boundary)));
}

static void test_content_type(void **state)
{
    char long_type[400];

    (void)state;
    assert_true(multipart_is_form(SLICE("multipart/form-data; boundary=x")));
    assert_true(multipart_is_form(SLICE("Multipart/Form-Data ;boundary=x")));
    assert_false(multipart_is_form(SLICE("multipart/mixed; boundary=x")));
    assert_false(multipart_is_form(SLICE("multipart/form-data2")));
    expect_boundary("multipart/form-data; boundary=----abc", "----abc");
    expect_boundary("multipart/form-data; charset=\"a;b\"; BOUNDARY=\"a b\"; x=y", "a b");
    expect_boundary("multipart/form-data", NULL);
    expect_boundary("multipart/form-data; boundary=", NULL);
    memset(long_type, 'b', sizeof(long_type));
    memcpy(long_type, "multipart/form-data; boundary=", 30);
    long_type[sizeof(long_type) - 1] = '\0';
    expect_boundary(long_type, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_place),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_broken),
        cmocka_unit_test(test_content_type),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
