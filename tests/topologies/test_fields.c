/* Whatever a topology has is written, read back, compared and counted as known: for each field of
 * each table, and each member of each struct in a table. Forgetting one fails here. */
#include "tests/topologies/sample.h"

#include <stdalign.h>

static size_t size_of(const struct field *field)
{
	static const size_t sizes[] = {
		[FIELD_TYPE_BOOL] = sizeof(bool),
		[FIELD_TYPE_INT] = sizeof(int64_t),
		[FIELD_TYPE_INT32] = sizeof(int),
		[FIELD_TYPE_DOUBLE] = sizeof(double),
		[FIELD_TYPE_STRING] = sizeof(char *),
		[FIELD_TYPE_ENUM] = sizeof(enum device_kind),
		[FIELD_TYPE_DECODED] = sizeof(char *),
		[FIELD_TYPE_BYTES] = sizeof(int64_t),
		[FIELD_TYPE_BANDWIDTH] = sizeof(double),
		[FIELD_TYPE_TIME] = sizeof(double),
		[FIELD_TYPE_FLOPS] = sizeof(double),
	};

	return sizes[field->type];
}

/* --- members in tables --- */

enum { MOST_BYTES = 2048, MOST_APART = 12 };

/* A struct, its table, and the members that are written in another way. */
struct described {
	const char *name;
	const struct field *fields;
	size_t bytes;
	struct {
		size_t offset, bytes;
	} apart[MOST_APART];
};

#define APART(strct, member)                                                                       \
	{                                                                                          \
		offsetof(struct strct, member), sizeof(((struct strct *)NULL)->member)             \
	}

enum { CALIBRATION = 0 };
static const struct described structs[] = {
	[CALIBRATION] = {"calibration", calibration_fields, sizeof(struct calibration),
		{APART(calibration, n_collectives), APART(calibration, collectives),
			APART(calibration, n_products), APART(calibration, products),
			APART(calibration, n_choices), APART(calibration, choices),
			APART(calibration, n_attention), APART(calibration, attention),
			APART(calibration, n_kernels), APART(calibration, kernels),
			APART(calibration, n_steps), APART(calibration, steps)}},
	{"topology", topology_fields, sizeof(struct topology),
		{APART(topology, device), APART(topology, fabric), APART(topology, network),
			APART(topology, host), APART(topology, overheads),
			APART(topology, calibration), APART(topology, n_provenance),
			APART(topology, provenance)}},
	{"device", device_fields, sizeof(struct device), {{0}}},
	{"fabric", fabric_fields, sizeof(struct fabric), {{0}}},
	{"network", network_fields, sizeof(struct network), {{0}}},
	{"host", host_fields, sizeof(struct host), {{0}}},
	{"overheads", overheads_fields, sizeof(struct overheads), {{0}}},
	{"calibration_collective", calibration_collective_fields,
		sizeof(struct calibration_collective), {{0}}},
	{"calibration_product", calibration_product_fields, sizeof(struct calibration_product),
		{{0}}},
	{"calibration_attention", calibration_attention_fields,
		sizeof(struct calibration_attention), {{0}}},
	{"calibration_kernel", calibration_kernel_fields, sizeof(struct calibration_kernel), {{0}}},
	{"calibration_step", calibration_step_fields, sizeof(struct calibration_step), {{0}}},
};

static void cover(bool covered[MOST_BYTES], size_t offset, size_t bytes)
{
	for (size_t i = offset; i < offset + bytes; i++) {
		assert_false(covered[i]); /* twice */
		covered[i] = true;
	}
}

/* Where a member is that no table has; `bytes` where there is none. What lies between members may
 * be padding where the next one (or the end) needs it, and nothing but a bool, an enum or an int
 * would go into that. */
static size_t forgotten(const struct described *s, bool covered[MOST_BYTES])
{
	const size_t most = alignof(struct calibration);

	for (size_t i = 0; i < s->bytes; i++) {
		size_t end = i;

		while (end < s->bytes && !covered[end])
			end++;
		if (end - i >= most || (end > i && end % most != 0))
			return i;
		i = end;
	}
	return s->bytes;
}

static size_t forgotten_in(const struct described *s)
{
	bool covered[MOST_BYTES] = {false};

	assert_true(s->bytes <= MOST_BYTES);
	for (const struct field *f = s->fields; f->type != FIELD_TYPE_END; f++)
		cover(covered, f->offset, size_of(f));
	for (int i = 0; i < MOST_APART; i++)
		cover(covered, s->apart[i].offset, s->apart[i].bytes);
	return forgotten(s, covered);
}

static void every_member_is_in_a_table(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(structs); i++)
		if (forgotten_in(&structs[i]) < structs[i].bytes)
			fail_msg("struct %s: no table has the member at byte %zu", structs[i].name,
				forgotten_in(&structs[i]));
}

/* The control: the table without one of its fields, whichever. */
static void a_forgotten_member_is_found(void **state)
{
	enum { MOST_FIELDS = 64 };
	struct field fields[MOST_FIELDS];
	struct described less = structs[CALIBRATION];
	int n = 0;

	(void)state;
	less.fields = fields;
	while (calibration_fields[n].type != FIELD_TYPE_END)
		n++;
	assert_in_range(n, 1, MOST_FIELDS);
	for (int left_out = 0; left_out < n; left_out++) {
		memcpy(fields, calibration_fields, (size_t)left_out * sizeof(fields[0]));
		memcpy(fields + left_out, calibration_fields + left_out + 1,
			(size_t)(n - left_out) * sizeof(fields[0]));
		if (forgotten_in(&less) == less.bytes)
			fail_msg("nobody misses %s", calibration_fields[left_out].name);
	}
}

/* --- there and back --- */

/* Something that no prefix of a unit prints evenly, another one for each place. */
static void fill(const struct field *field, int place, void *object)
{
	char *at = (char *)object + field->offset;
	double number = 1e9 / (7 + place);
	int64_t whole = 1000003 + place;
	const char *word = "measured: \"yes\" # really";
	const bool yes = true;

	switch (field->type) {
	case FIELD_TYPE_BOOL:
		memcpy(at, &yes, sizeof(yes));
		break;
	case FIELD_TYPE_STRING:
		memcpy(at, &word, sizeof(word));
		break;
	case FIELD_TYPE_DOUBLE:
	case FIELD_TYPE_BANDWIDTH:
	case FIELD_TYPE_TIME:
	case FIELD_TYPE_FLOPS:
		memcpy(at, &number, sizeof(number));
		break;
	case FIELD_TYPE_INT:
	case FIELD_TYPE_BYTES:
		memcpy(at, &whole, sizeof(whole));
		break;
	case FIELD_TYPE_INT32:
	case FIELD_TYPE_ENUM:
	case FIELD_TYPE_DECODED:
	case FIELD_TYPE_END:
		fail_msg("field %s: of a type that this test does not fill", field->name);
	}
}

static void fill_all(const struct field *fields, void *object)
{
	for (int i = 0; fields[i].type != FIELD_TYPE_END; i++)
		fill(&fields[i], i, object);
}

static struct topology measured_cpu(void)
{
	static struct calibration_product products[] = {{DTYPE_FP32, 17, 1 << 20, 3, 1e12 / 7, 0},
		{DTYPE_BF16, 1, 2, 5, 1e13 / 7, 1e14 / 7}};
	static struct calibration_choice choices[] = {
		{PRODUCT_FORWARD, DTYPE_BF16, DTYPE_BF16, 1, 2, 3, 8.0 / 7, 66, 1, 2, 3, 4, 5, 6, 7,
			8},
		{PRODUCT_WEIGHT_GRADIENT, DTYPE_BF16, DTYPE_FP32, 1, 2, 3, 9.0 / 7, 67, 9, 8, 7, 6,
			5, 4, 3, 2}};
	static struct calibration_attention attention[] = {
		{64, 1024, ATTENTION_IS_FORWARD, 9.0 / 7, 2, 7, 1, 2, 3, 4, 0, 0},
		{64, 1024, ATTENTION_IS_BACKWARD, 8.0 / 7, 1, 6, 5, 4, 3, 2, 1, 12345}};
	static struct calibration_kernel kernels[] = {
		{KERNEL_ATTENTION, DTYPE_BF16, 64, 1024, 1e14 / 7},
		{KERNEL_ATTENTION, DTYPE_BF16, 64, 4096, 1e14 / 3},
		{KERNEL_CROSS_ENTROPY, DTYPE_BF16, 50257, 0, 1e12 / 3}};
	struct topology t = sample_local();

	fill_all(calibration_fields, &t.calibration);
	t.calibration.products = products;
	t.calibration.n_products = COUNT_OF(products);
	t.calibration.choices = choices;
	t.calibration.n_choices = COUNT_OF(choices);
	t.calibration.attention = attention;
	t.calibration.n_attention = COUNT_OF(attention);
	t.calibration.kernels = kernels;
	t.calibration.n_kernels = COUNT_OF(kernels);
	return t;
}

static struct topology gpu_cluster(void)
{
	static struct provenance from[] = {{"device.memory", "assumed: \"a\": b"}};

	return (struct topology){
		.name = "cluster",
		.nodes = 3,
		.devices_per_node = 5,
		.device = {"GPU", DEVICE_GPU, GENERATION_HOPPER, 85899345921, 1e13 / 3, 1e14 / 3,
			1e15 / 3, 1e15 / 7, 1e16 / 3, 131, 1e3 / 3},
		.fabric = {FABRIC_NVLINK_CUBE_MESH, 1e12 / 3, 1e-6 / 3, 23, 5},
		.network = {NETWORK_ROCE, 7, 1e11 / 3, 1e-5 / 3, 4.0 / 3, 5.0 / 3,
			PROTOCOLS_SIMPLE_LL128},
		.host = {1099511627777, 1e12 / 7, 193, 1e11 / 7, 3, CPU_ARM},
		.overheads = {536870913, 1048577, 33554433},
		.emulated = true,
		.n_provenance = COUNT_OF(from),
		.provenance = from,
	};
}

/* Calls `check` on each section of two topologies, with its table. */
typedef void check_section(const struct field *fields, const void *a, const void *b);

static void each_section(check_section *check, const struct topology *a, const struct topology *b)
{
	check(topology_fields, a, b);
	check(device_fields, &a->device, &b->device);
	check(fabric_fields, &a->fabric, &b->fabric);
	check(network_fields, &a->network, &b->network);
	check(host_fields, &a->host, &b->host);
	check(overheads_fields, &a->overheads, &b->overheads);
	check(calibration_fields, &a->calibration, &b->calibration);
}

/* No field that both samples leave empty: such a one would come back by itself. */
static void given_in_one(const struct field *fields, const void *a, const void *b)
{
	static const union {
		struct topology topology;
		struct calibration calibration;
	} nothing;

	for (; fields->type != FIELD_TYPE_END; fields++) {
		const struct field one[] = {*fields, FIELD_END};

		if (fields_equal(one, a, &nothing) && fields_equal(one, b, &nothing))
			fail_msg(
				"field %s: give it a value in a sample of this test", fields->name);
	}
}

static void comes_back(const struct topology *sent, enum writer_format format)
{
	struct topology *back = NULL;
	struct arena arena = {0};
	struct error error = {0};
	struct text text = {0};

	topology_print(sent, format, &text);
	if (!topology_parse(&arena, "sent", text.data, text.length, &back, &error))
		fail_msg("%s\n%s", error.message, text.data);
	assert_same_topology(sent, back);
	text_finish(&text);
	arena_finish(&arena);
}

static void every_field_comes_back(void **state)
{
	const struct topology cpu = measured_cpu(), gpus = gpu_cluster();

	(void)state;
	each_section(given_in_one, &cpu, &gpus);
	for (int format = 0; format <= WRITER_JSON_COMPACT; format++) {
		comes_back(&cpu, (enum writer_format)format);
		comes_back(&gpus, (enum writer_format)format);
	}
}

/* Whichever figure is the only one that was measured. */
static void each_field_is_something_known(void **state)
{
	(void)state;
	for (int i = 0; calibration_fields[i].type != FIELD_TYPE_END; i++) {
		struct calibration c = {0};

		fill(&calibration_fields[i], i, &c);
		if (calibration_is_empty(&c))
			fail_msg("field %s: counts as nothing", calibration_fields[i].name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_member_is_in_a_table),
		cmocka_unit_test(a_forgotten_member_is_found),
		cmocka_unit_test(every_field_comes_back),
		cmocka_unit_test(each_field_is_something_known),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
