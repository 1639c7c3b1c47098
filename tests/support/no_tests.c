// no_tests.c: a test binary into which no test was linked; it must not pass. See vtest_test.cc.
extern int vtest_no_tests;
int vtest_no_tests;
