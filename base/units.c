#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

/* Everything here shifts exponents instead of multiplying: "3.5us" is read as 3.5e-6 by one
 * correctly rounded strtod, and binary prefixes and bits are powers of two. Therefore printing the
 * shortest decimal with its exponent shifted back always reads back as the same value. */

struct prefix {
	const char *name;
	int exponent10, exponent2;
};

static const struct prefix large_prefixes[] = {{"", 0, 0}, {"k", 3, 0}, {"M", 6, 0}, {"G", 9, 0},
	{"T", 12, 0}, {"P", 15, 0}, {"E", 18, 0}, {"K", 3, 0}, {"Ki", 0, 10}, {"Mi", 0, 20},
	{"Gi", 0, 30}, {"Ti", 0, 40}, {"Pi", 0, 50}, {NULL, 0, 0}};

static const struct prefix small_prefixes[] = {{"", 0, 0}, {"m", -3, 0}, {"u", -6, 0},
	{"\xc2\xb5", -6, 0}, {"\xce\xbc", -6, 0}, /* both letters that look like a micro sign */
	{"n", -9, 0}, {"p", -12, 0}, {NULL, 0, 0}};

struct base_unit {
	const char *name;
	int exponent2;
};

static const struct base_unit byte_units[] = {{"B", 0}, {NULL, 0}};
static const struct base_unit bandwidth_units[] = {
	{"bit/s", -3}, {"B/s", 0}, {"b/s", -3}, {"Bps", 0}, {"bps", -3}, {NULL, 0}};
static const struct base_unit time_units[] = {{"s", 0}, {NULL, 0}};
static const struct base_unit flops_units[] = {{"FLOPS", 0}, {"FLOP/s", 0}, {NULL, 0}};

static const struct {
	const struct base_unit *units;
	const struct prefix *prefixes;
	const char *expectation;
	/* For printing: unit, and its prefixes from the smallest, 1000 apart. */
	const char *printed;
	const char *const *printed_prefixes;
	int first_exponent, n_printed_prefixes;
} kinds[] = {
	[UNIT_BYTES] = {byte_units, large_prefixes, "a size such as 80GiB", "B",
		(const char *const[]){"", "k", "M", "G", "T", "P"}, 0, 6},
	[UNIT_BANDWIDTH] = {bandwidth_units, large_prefixes,
		"a bandwidth such as 200Gbit/s or 25GB/s", "B/s",
		(const char *const[]){"", "k", "M", "G", "T", "P"}, 0, 6},
	[UNIT_TIME] = {time_units, small_prefixes, "a time such as 3.5us", "s",
		(const char *const[]){"n", "u", "m", ""}, -9, 4},
	[UNIT_FLOPS] = {flops_units, large_prefixes, "a rate such as 312TFLOPS", "FLOPS",
		(const char *const[]){"", "k", "M", "G", "T", "P"}, 0, 6},
};

/* A quantity taken apart: (digits without their point) * 10^exponent10 * 2^exponent2 * factor. */
struct quantity {
	char digits[128];
	int exponent10, exponent2;
	double factor; /* 60 for minutes, 3600 for hours; else 1 */
};

/* Reads the number in front; returns what follows it or NULL. */
static const char *read_digits(const char *string, struct quantity *quantity)
{
	size_t length = 0;
	bool point = false;

	string += *string == '+';
	for (; isdigit((unsigned char)*string) || (*string == '.' && !point); string++) {
		if (*string == '.') {
			point = true;
			continue;
		}
		if (length + 1 >= sizeof(quantity->digits))
			return NULL;
		quantity->digits[length++] = *string;
		quantity->exponent10 -= point;
	}
	quantity->digits[length] = '\0';
	return length > 0 ? string : NULL;
}

/* "e9" is an exponent only when digits follow, since "E" is also the prefix exa. */
static const char *read_exponent(const char *string, struct quantity *quantity)
{
	const char *digit = string + 1;

	if (*string != 'e' && *string != 'E')
		return string;
	digit += *digit == '+' || *digit == '-';
	if (!isdigit((unsigned char)*digit))
		return string;
	char *end;
	long exponent = strtol(string + 1, &end, 10);
	if (exponent > 9999 || exponent < -9999)
		return NULL;
	quantity->exponent10 += (int)exponent;
	return end;
}

static bool read_prefix(
	const struct prefix *prefixes, const char *text, size_t length, struct quantity *quantity)
{
	for (; prefixes->name != NULL; prefixes++) {
		if (strlen(prefixes->name) != length || memcmp(prefixes->name, text, length) != 0)
			continue;
		quantity->exponent10 += prefixes->exponent10;
		quantity->exponent2 += prefixes->exponent2;
		return true;
	}
	return false;
}

/* A unit as the tables have it. */
static bool read_exact(enum unit_kind kind, const char *unit, struct quantity *quantity)
{
	size_t length = strlen(unit);

	if (kind == UNIT_TIME && (strcmp(unit, "min") == 0 || strcmp(unit, "h") == 0)) {
		quantity->factor = unit[0] == 'h' ? 3600 : 60;
		return true;
	}
	for (const struct base_unit *base = kinds[kind].units; base->name != NULL; base++) {
		size_t tail = strlen(base->name);
		if (tail > length || strcmp(unit + length - tail, base->name) != 0)
			continue;
		if (!read_prefix(kinds[kind].prefixes, unit, length - tail, quantity))
			return false;
		quantity->exponent2 += base->exponent2;
		return true;
	}
	return false;
}

/* What people write for it, behind the letter of the prefix. Sizes without their B are binary, as
 * schedulers and containers have it. Not here: what could mean bits as well as bytes ("gb/s", "Gb"
 * of memory, "400G" of a link). */
static const struct spelling {
	enum unit_kind kind;
	const char *tail, *means;
	bool lower; /* only behind a small letter */
} spellings[] = {
	{UNIT_BYTES, "", "iB", false},
	{UNIT_BYTES, "i", "iB", false},
	{UNIT_BYTES, "ib", "iB", false},
	{UNIT_BYTES, "b", "B", true},
	{UNIT_BANDWIDTH, "bit", "bit/s", false},
	{UNIT_BANDWIDTH, "bit/s", "bit/s", false},
	{UNIT_BANDWIDTH, "bits/s", "bit/s", false},
	{UNIT_BANDWIDTH, "bps", "bit/s", true},
	{UNIT_BANDWIDTH, "bE", "bit/s", false},
	{UNIT_BANDWIDTH, "B/s", "B/s", true},
	{UNIT_FLOPS, "", "FLOPS", false},
	{UNIT_FLOPS, "FLOP", "FLOPS", false},
	{UNIT_FLOPS, "FLOPs", "FLOPS", false},
	{UNIT_FLOPS, "flops", "FLOPS", false},
	{UNIT_FLOPS, "flop/s", "FLOPS", false},
};

static bool read_spelling(enum unit_kind kind, const char *unit, struct quantity *quantity)
{
	char prefix = (char)toupper((unsigned char)unit[0]), exact[16];

	if (strchr("KMGTP", prefix) == NULL)
		return false;
	for (int i = 0; i < COUNT_OF(spellings); i++) {
		const struct spelling *spelling = &spellings[i];
		if (spelling->kind != kind || strcmp(unit + 1, spelling->tail) != 0 ||
			(spelling->lower && unit[0] == prefix))
			continue;
		snprintf(exact, sizeof(exact), "%c%s", prefix, spelling->means);
		return read_exact(kind, exact, quantity);
	}
	return false;
}

static bool read_unit(enum unit_kind kind, const char *unit, struct quantity *quantity)
{
	return unit[0] == '\0' || read_exact(kind, unit, quantity) ||
	       read_spelling(kind, unit, quantity);
}

static bool read_quantity(enum unit_kind kind, const char *string, struct quantity *quantity)
{
	*quantity = (struct quantity){.factor = 1};
	string = read_digits(string, quantity);
	if (string != NULL)
		string = read_exponent(string, quantity);
	if (string == NULL)
		return false;
	string += strspn(string, " ");
	return read_unit(kind, string, quantity);
}

/* Multiplies `*value` by base^exponent; false on overflow or, for a negative exponent, when the
 * division leaves a remainder. */
static bool scale_exactly(int64_t *value, int base, int exponent)
{
	for (; exponent > 0 && *value != 0; exponent--) {
		if (!checked_mul(*value, base, value))
			return false;
	}
	for (; exponent < 0 && *value != 0; exponent++) {
		if (*value % base != 0)
			return false;
		*value /= base;
	}
	return true;
}

/* Sizes as they are printed: "27.7GiB" is no whole number of bytes, but means one. Of small units a
 * fraction of a byte is a mistake. */
static bool round_down(const struct quantity *quantity, int64_t *bytes)
{
	char number[sizeof(quantity->digits) + 16];

	snprintf(number, sizeof(number), "%se%d", quantity->digits, quantity->exponent10);
	double value = ldexp(strtod(number, NULL), quantity->exponent2);
	if (quantity->exponent2 < 20 || value < 0 || value >= 0x1p53)
		return false;
	*bytes = (int64_t)value;
	return true;
}

/* Divisions go first, so that nothing overflows on the way to a result that fits. 10 is split into
 * its primes because "1.5GiB" is 15 * 10^-1 * 2^30: divisible by 5 only after nothing, by 2 only
 * together with the binary prefix. */
bool unit_parse_bytes(const char *string, int64_t *bytes)
{
	struct quantity quantity;
	int64_t value;

	if (!read_quantity(UNIT_BYTES, string, &quantity))
		return false;
	/* Zeros at the end ("1.50000") would overflow for nothing. */
	for (size_t n = strlen(quantity.digits); n > 1 && quantity.digits[n - 1] == '0'; n--) {
		quantity.digits[n - 1] = '\0';
		quantity.exponent10++;
	}
	if (!parse_int(quantity.digits, &value))
		return false;
	int fives = quantity.exponent10, twos = quantity.exponent10 + quantity.exponent2;
	bool fits = fives < 0 ? scale_exactly(&value, 5, fives) && scale_exactly(&value, 2, twos)
			      : scale_exactly(&value, 2, twos) && scale_exactly(&value, 5, fives);
	if (fits)
		*bytes = value;
	return fits || round_down(&quantity, bytes);
}

bool unit_parse(enum unit_kind kind, const char *string, double *value)
{
	struct quantity quantity;
	char number[sizeof(quantity.digits) + 16];
	int64_t bytes;

	if (kind == UNIT_BYTES) {
		if (!unit_parse_bytes(string, &bytes))
			return false;
		*value = (double)bytes;
		return true;
	}
	if (!read_quantity(kind, string, &quantity))
		return false;
	snprintf(number, sizeof(number), "%se%d", quantity.digits, quantity.exponent10);
	double result = ldexp(strtod(number, NULL), quantity.exponent2) * quantity.factor;
	if (!isfinite(result))
		return false;
	*value = result;
	return true;
}

const char *unit_expectation(enum unit_kind kind)
{
	return kinds[kind].expectation;
}

/* The largest prefix of `step` that divides `bytes`, as text. */
static void print_divided(char buffer[32], int64_t bytes, int64_t step, const char *const *names)
{
	int power = 0;

	for (; power < 5 && bytes != 0 && bytes % step == 0; power++)
		bytes /= step;
	snprintf(buffer, 32, "%lld%s", (long long)bytes, names[power]);
}

void unit_print_bytes(struct text *text, int64_t bytes)
{
	static const char *const binary[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
	static const char *const decimal[] = {"B", "kB", "MB", "GB", "TB", "PB"};
	char with_binary[32], with_decimal[32];

	print_divided(with_binary, bytes, 1024, binary);
	print_divided(with_decimal, bytes, 1000, decimal);
	bool shorter = strlen(with_decimal) < strlen(with_binary);
	text_add(text, shorter ? with_decimal : with_binary);
}

/* `n` digits with the point after the first `point` of them; far away, with an exponent. */
static void print_digits(struct text *text, const char *digits, int n, int point)
{
	if (point > 21 || point < -5) {
		text_add_char(text, digits[0]);
		if (n > 1)
			text_printf(text, ".%s", digits + 1);
		text_printf(text, "e%d", point - 1);
	} else if (point <= 0) {
		text_add(text, "0.");
		text_repeat(text, '0', -point);
		text_add(text, digits);
	} else if (point < n) {
		text_printf(text, "%.*s.%s", point, digits, digits + point);
	} else {
		text_add(text, digits);
		text_repeat(text, '0', point - n);
	}
}

/* The shortest decimal digits of a positive value and the power of ten of the first one. */
static int shortest_digits(double value, char digits[24], int *exponent)
{
	char buffer[32];

	for (int precision = 14; precision <= 16; precision++) {
		snprintf(buffer, sizeof(buffer), "%.*e", precision, value);
		if (strtod(buffer, NULL) == value)
			break;
	}
	char *e = strchr(buffer, 'e');
	*exponent = atoi(e + 1);
	int n = 0;
	for (const char *c = buffer; c < e; c++) {
		if (isdigit((unsigned char)*c))
			digits[n++] = *c;
	}
	while (n > 1 && digits[n - 1] == '0')
		n--;
	digits[n] = '\0';
	return n;
}

void unit_print(struct text *text, enum unit_kind kind, double value)
{
	char digits[24];
	int exponent;

	if (kind == UNIT_BYTES && value >= 0 && value < 0x1p63 && value == floor(value)) {
		unit_print_bytes(text, (int64_t)value);
		return;
	}
	if (!isfinite(value)) {
		text_number(text, value);
		return;
	}
	if (value == 0) {
		text_printf(text, "0%s", kinds[kind].printed);
		return;
	}
	if (value < 0) /* does not read back; kept visible, so that the mistake is found */
		text_add_char(text, '-');
	int n = shortest_digits(fabs(value), digits, &exponent);
	int first = kinds[kind].first_exponent;
	int i = exponent < first ? 0 : (exponent - first) / 3;
	if (i >= kinds[kind].n_printed_prefixes)
		i = kinds[kind].n_printed_prefixes - 1;
	print_digits(text, digits, n, exponent - (first + 3 * i) + 1);
	text_printf(text, "%s%s", kinds[kind].printed_prefixes[i], kinds[kind].printed);
}

struct scale {
	double from, size;
	const char *name;
};

/* Three significant digits, in the largest scale that the rounded value reaches. */
static const char *format_scaled(char buffer[32], double value, const struct scale *scales)
{
	double size = fabs(value);
	const struct scale *scale = scales;

	if (!isfinite(value)) {
		snprintf(buffer, 32, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
		return buffer;
	}
	/* 999.7 of one scale rounds to 1000, which is 1.00 of the next. */
	while (scale[1].name != NULL && size >= scale[1].from * 0.9995)
		scale++;
	double shown = size / scale->size;
	int decimals = shown < 9.995 ? 2 : shown < 99.95 ? 1 : 0;
	if (size == 0 || (scale->size == 1 && shown == floor(shown)))
		decimals = 0;
	if (shown >= 1e9)
		snprintf(buffer, 32, "%s%.2e%s%s", value < 0 ? "-" : "", shown,
			scale->name[0] != '\0' ? " " : "", scale->name);
	else
		snprintf(buffer, 32, "%s%.*f%s%s", value < 0 ? "-" : "", decimals, shown,
			scale->name[0] != '\0' ? " " : "", scale->name);
	return buffer;
}

const char *format_bytes(char buffer[32], double bytes)
{
	static const struct scale scales[] = {{0, 1, "B"}, {0x1p10, 0x1p10, "KiB"},
		{0x1p20, 0x1p20, "MiB"}, {0x1p30, 0x1p30, "GiB"}, {0x1p40, 0x1p40, "TiB"},
		{0x1p50, 0x1p50, "PiB"}, {0}};

	return format_scaled(buffer, bytes, scales);
}

const char *format_seconds(char buffer[32], double seconds)
{
	/* Whole seconds stay seconds up to two minutes: "90.0 s" says more than "1.50 min". */
	static const struct scale scales[] = {{0, 1e-9, "ns"}, {1e-6, 1e-6, "us"},
		{1e-3, 1e-3, "ms"}, {1, 1, "s"}, {120, 60, "min"}, {7200, 3600, "h"},
		{172800, 86400, "d"}, {0}};

	if (seconds == 0)
		return strcpy(buffer, "0 s");
	return format_scaled(buffer, seconds, scales);
}

const char *format_bandwidth(char buffer[32], double bytes_per_second)
{
	static const struct scale scales[] = {{0, 1, "B/s"}, {1e3, 1e3, "kB/s"}, {1e6, 1e6, "MB/s"},
		{1e9, 1e9, "GB/s"}, {1e12, 1e12, "TB/s"}, {1e15, 1e15, "PB/s"}, {0}};

	return format_scaled(buffer, bytes_per_second, scales);
}

const char *format_count(char buffer[32], double count)
{
	static const struct scale scales[] = {{0, 1, ""}, {1e3, 1e3, "k"}, {1e6, 1e6, "M"},
		{1e9, 1e9, "B"}, {1e12, 1e12, "T"}, {0}};

	return format_scaled(buffer, count, scales);
}
