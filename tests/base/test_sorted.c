/* Quantiles against numbers computed with numpy.quantile. */
#include "base/sorted.h"
#include "tests/base/support.h"

#include <math.h>

static void test_quantile(void **state)
{
	double values[] = {9, 1, 4, 25, 16};

	(void)state;
	sort_numbers(values, 5);
	for (int i = 0; i < 5; i++)
		assert_true(values[i] == (i + 1) * (i + 1));
	assert_true(quantile(values, 5, 0) == 1);
	assert_true(quantile(values, 5, 1) == 25);
	assert_true(quantile(values, 5, 0.5) == 9);
	assert_true(fabs(quantile(values, 5, 0.1) - 2.2) < 1e-12);
	assert_true(fabs(quantile(values, 5, 0.9) - 21.4) < 1e-12);
	assert_true(quantile(values, 4, 0.5) == 6.5);
}

static void test_few(void **state)
{
	double one = 7;

	(void)state;
	sort_numbers(NULL, 0);
	assert_true(quantile(NULL, 0, 0.5) == 0);
	sort_numbers(&one, 1);
	assert_true(quantile(&one, 1, 0.9) == 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_quantile),
		cmocka_unit_test(test_few),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
