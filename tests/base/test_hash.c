/* Digests and the table of element types. */
#include "tests/base/support.h"

/* The first two are the published values of XXH3_128bits (what `xxhsum -H2` prints). */
static void test_digest(void **state)
{
	struct digest empty = digest_of("", 0), a = digest_of("a", 1), b = digest_of("b", 1);

	(void)state;
	assert_string_equal(empty.hex, "99aa06d3014798d86001c324468d497f");
	assert_string_equal(a.hex, "a96faf705af16834e6c632b61e964e1f");
	assert_string_not_equal(a.hex, b.hex);
}

/* Every bit of a block counts, at every length that xxh3 treats differently. */
static void test_digest_sensitivity(void **state)
{
	static const int lengths[] = {1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025};
	unsigned char block[1025];

	(void)state;
	for (int i = 0; i < COUNT_OF(lengths); i++) {
		memset(block, 0x11, sizeof(block));
		struct digest before = digest_of(block, (size_t)lengths[i]);
		for (int bit = 0; bit < 8 * lengths[i]; bit += 7) {
			block[bit / 8] ^= (unsigned char)(1 << bit % 8);
			struct digest after = digest_of(block, (size_t)lengths[i]);
			assert_string_not_equal(before.hex, after.hex);
			block[bit / 8] ^= (unsigned char)(1 << bit % 8);
		}
	}
}

/* What comes in pieces has the digest of the whole, wherever it is cut. */
static void test_digest_of_pieces(void **state)
{
	static const size_t pieces[] = {1, 7, 64, 255, 1024, 4000};
	char block[10000];

	(void)state;
	for (int i = 0; i < COUNT_OF(block); i++)
		block[i] = (char)(i * i % 251);
	for (int p = 0; p < COUNT_OF(pieces); p++) {
		struct hashing *hashing = hashing_begin();
		for (size_t at = 0; at < sizeof(block); at += pieces[p])
			hashing_add(hashing, block + at,
				(size_t)min_i64((int64_t)pieces[p], (int64_t)(sizeof(block) - at)));
		assert_string_equal(hashing_end(hashing).hex, digest_of(block, sizeof(block)).hex);
	}
	struct hashing *nothing = hashing_begin();
	assert_string_equal(hashing_end(nothing).hex, digest_of("", 0).hex);
}

static void test_dtypes(void **state)
{
	static const struct {
		enum dtype dtype;
		const char *name;
		int bytes;
	} known[] = {{DTYPE_FP32, "fp32", 4}, {DTYPE_BF16, "bf16", 2}, {DTYPE_FP16, "fp16", 2},
		{DTYPE_FP8, "fp8", 1}, {DTYPE_INT8, "int8", 1}, {DTYPE_INT32, "int32", 4}};

	(void)state;
	for (int i = 0; i < COUNT_OF(known); i++) {
		assert_string_equal(dtype_name(known[i].dtype), known[i].name);
		assert_string_equal(dtype_names[known[i].dtype], known[i].name);
		assert_int_equal(dtype_bytes(known[i].dtype), known[i].bytes);
	}
	assert_null(dtype_names[DTYPE_COUNT]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_digest),
		cmocka_unit_test(test_digest_sensitivity),
		cmocka_unit_test(test_digest_of_pieces),
		cmocka_unit_test(test_dtypes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
