/* The configuration of NCCL's communicators: settings as they are typed, and ncclConfig_t in each
 * version. */
#include "tests/executor/support.h"

#include <stdlib.h>

#include "executor/transports/nccl_config.h"

static int version;

static int get_version(int *found)
{
	*found = version;
	return 0;
}

static const struct nccl_api api = {.ncclGetVersion = get_version};

static void settings_are_read(void **state)
{
	static const char *const bad[] = {"cta-policy", "cta-policy=none", "max-ctas=0",
		"max-ctas=x", "splitShare=1", "max-ctas=8,,", "min-ctas=8",
		"min-ctas=9,max-ctas=8"};
	static const char good[] = "cta-policy=zero,min-ctas=2,max-ctas=16,traffic-class=3";
	struct nccl_wish wish;
	struct error error = {0};
	struct text text = {0};

	(void)state;
	assert_true(nccl_wish_parse(good, &wish, &error));
	assert_int_equal(wish.cta_policy, 2);
	assert_int_equal(wish.max_ctas, 16);
	assert_int_equal(wish.nvls_ctas, 0);
	nccl_wish_print(&wish, &text);
	assert_string_equal(text_string(&text), good);
	text_finish(&text);
	assert_true(nccl_wish_parse(NULL, &wish, &error) && wish.max_ctas == 0);
	for (int i = 0; i < COUNT_OF(bad); i++) {
		error = (struct error){0};
		if (nccl_wish_parse(bad[i], &wish, &error) || error.code != EXIT_CODE_USAGE)
			fail_msg("%s is taken", bad[i]);
	}
}

/* As far as the version goes, and no further. */
static void each_version_gets_what_it_knows(void **state)
{
	static const struct {
		int version;
		size_t bytes;
		unsigned says;
	} known[] = {{21805, 48, 21800}, {22602, 48, 21800}, {22703, 72, 22700}, {22809, 80, 22800},
		{23007, 80, 22800}};
	const struct nccl_wish none = {0}, some = {.cta_policy = 2, .max_ctas = 8};
	struct nccl_config config;
	struct error error = {0};

	(void)state;
	for (int i = 0; i < COUNT_OF(known); i++) {
		version = known[i].version;
		assert_true(nccl_config_make(&api, &none, &config, &error));
		assert_int_equal(config.size, known[i].bytes);
		assert_int_equal(config.version, known[i].says);
		assert_int_equal(config.cta_policy, NCCL_UNDEFINED);
		assert_int_equal(config.max_ctas, NCCL_UNDEFINED);
		assert_int_equal(config.blocking, 0);
		error = (struct error){0};
		assert_true(nccl_config_make(&api, &some, &config, &error) == (version >= 22700));
		if (version < 22700) {
			assert_int_equal(error.code, EXIT_CODE_ENVIRONMENT);
			assert_non_null(strstr(error.message,
				"--nccl cta-policy: expected NCCL 2.27 or newer, found 2."));
		} else {
			assert_int_equal(config.cta_policy, 2);
			assert_int_equal(config.max_ctas, 8);
		}
	}
}

static void variables_are_told(void **state)
{
	const struct nccl_wish some = {.max_ctas = 8};
	struct arena arena = {0};

	(void)state;
	version = 22809;
	clearenv();
	setenv("NCCL_DEBUG", "WARN", 1);
	setenv("NCCL_ALGO", "Ring", 1);
	setenv("NOT_NCCL_ALGO", "1", 1);
	assert_string_equal(nccl_config_say(&api, &some, &arena),
		"2.28.9, max-ctas=8, NCCL_ALGO=Ring, NCCL_DEBUG=WARN");
	arena_finish(&arena);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(settings_are_read),
		cmocka_unit_test(each_version_gets_what_it_knows),
		cmocka_unit_test(variables_are_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
