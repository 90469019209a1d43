/* nccl-tests: what it prints and what it writes with -J, as rows of (size, time).
 *
 * Columns changed their widths over the years, so a row is split at blanks: size count type redop
 * root, then time algbw busbw #wrong out of place and again in place (NVIDIA/nccl-tests
 * src/util.cu, doc/PERFORMANCE.md). The average bus bandwidth of the footer mixes latency with
 * bandwidth over whatever sizes were run and is never used. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "topologies/import/draft.h"

enum { ROWS_MAX = 4096, WORDS_MAX = 32, LINE_MAX_BYTES = 1024, HOSTS_MAX = 4096 };

struct log {
	struct topology_import *import;
	const char *name;
	struct samples samples;
	struct sample *rows;
	bool collective_known;
	bool redop_none;      /* nothing is reduced */
	double factor;        /* busbw / algbw of the row that tells it best */
	double factor_spread; /* how far rounding may have moved it */
	int64_t listed, highest_rank, highest_device, hosts;
	const char *host_names[HOSTS_MAX];
	bool footer, elided;
};

static bool is_digits(const char *word)
{
	return *word != '\0' && word[strspn(word, "0123456789")] == '\0';
}

/* "all_reduce_perf", "./build/all_gather_perf", "all-gather" */
static bool find_collective(const char *word, enum collective_kind *kind)
{
	char copy[64];

	snprintf(copy, sizeof(copy), "%s", word);
	for (char *c = copy; *c != '\0'; c++)
		*c = *c == '-' ? '_' : *c;
	for (int i = 0; collective_kind_names[i] != NULL; i++)
		if (strstr(copy, collective_kind_names[i]) != NULL) {
			*kind = (enum collective_kind)i;
			return true;
		}
	return false;
}

static bool set_collective(struct log *log, int line, const char *word, struct error *error)
{
	log->collective_known = find_collective(word, &log->samples.collective);
	return log->collective_known ||
	       error_at(error, EXIT_CODE_INPUT, log->name, line, 1,
		       "a test of \"%.60s\", expected all_gather, reduce_scatter or all_reduce, "
		       "which are what FSDP runs",
		       word);
}

/* --- rows ---------------------------------------------------------------------------------------
 */

/* What the two printed bandwidths tell about the number of ranks; the widest rows tell most. */
static void note_factor(struct log *log, double algbw, double busbw, double unit)
{
	double spread;

	if (!(algbw > 0) || !(busbw > 0))
		return;
	spread = (unit / 2) * (1 / algbw + busbw / (algbw * algbw));
	if (log->factor > 0 && spread >= log->factor_spread)
		return;
	log->factor = busbw / algbw;
	log->factor_spread = spread;
}

static bool check_wrong(const struct log *log, int line, const char *word, struct error *error)
{
	double wrong;

	if (strcmp(word, "N/A") == 0 || (parse_number(word, &wrong) && wrong == 0))
		return true;
	return error_at(error, EXIT_CODE_INPUT, log->name, line, 1,
		"%.20s wrong values, expected 0: this run computed garbage, its times mean nothing",
		word);
}

static bool add_row(
	struct log *log, int line, int64_t bytes, double microseconds, struct error *error)
{
	/* No collective is shorter, and what is may have a bandwidth beyond all numbers. */
	static const double shortest = 1e-3, longest = 1e12;

	if (bytes == 0)
		return true;
	if (!(microseconds >= shortest && microseconds < longest) || bytes < 0 ||
		bytes > (int64_t)1 << 50)
		return error_at(error, EXIT_CODE_INPUT, log->name, line, 1,
			"expected 0 bytes to 1 PiB in 1 ns or more, got %lld bytes in %g us",
			(long long)bytes, microseconds);
	if (log->samples.n == ROWS_MAX)
		return error_at(error, EXIT_CODE_INPUT, log->name, line, 1,
			"more than %d rows, expected one sweep over sizes", ROWS_MAX);
	log->rows[log->samples.n++] = (struct sample){bytes, microseconds * 1e-6};
	return true;
}

/* "12.34" or "1e3"; "nan" and "-" are none. */
static double number_of(const char *word)
{
	double value;

	return parse_number(word, &value) ? value : -1;
}

/* One group of columns starts at `words`: time algbw busbw wrong. */
static bool read_group(struct log *log, int line, int64_t bytes, char **words, struct error *error)
{
	if (!check_wrong(log, line, words[3], error) ||
		!add_row(log, line, bytes, number_of(words[0]), error))
		return false;
	note_factor(log, number_of(words[1]), number_of(words[2]), 0.01);
	return true;
}

/* 5 words of the key, then one group (the other is blank) or two; per-iteration columns (-I) stand
 * behind each group, a timestamp at the end. Out of place counts: FSDP's buffers are apart. */
static bool read_row(struct log *log, const struct lines *lines, char **words, int n, bool cut_off,
	struct error *error)
{
	int64_t bytes;

	if (n < 9 && cut_off) {
		draft_note(
			log->import, "%s: the last line is not whole and was left out", log->name);
		return true;
	}
	if (n < 9 || !parse_int(words[0], &bytes))
		return error_at(error, EXIT_CODE_INPUT, log->name, lines->number, 1,
			"expected size count type redop root time algbw busbw #wrong, got %d words",
			n);
	log->redop_none = strcmp(words[3], "none") == 0;
	return read_group(log, lines->number, bytes, words + 5, error);
}

/* --- lines --------------------------------------------------------------------------------------
 */

static void add_host(struct log *log, const char *host)
{
	for (int64_t i = log->hosts - 1; i >= 0; i--)
		if (strcmp(log->host_names[i], host) == 0)
			return;
	if (log->hosts < HOSTS_MAX)
		log->host_names[log->hosts++] = arena_strdup(log->import->arena, host);
}

/* "#  Rank  0 Group  0 Pid  123 on  HOST device  0 [0x07] NVIDIA A100-SXM4-40GB" */
static bool read_device(struct log *log, const char *line, struct error *error)
{
	const char *on = strstr(line, " on "), *device = on != NULL ? strstr(on, " device ") : NULL;
	const char *gpu = device != NULL ? strchr(device, ']') : NULL;
	long long rank, number;
	char host[256];

	if (gpu == NULL || sscanf(line, "# Rank %lld", &rank) != 1 ||
		sscanf(on, " on %255s", host) != 1 ||
		sscanf(device, " device %lld", &number) != 1 || rank < 0 || number < 0 ||
		rank >= TOPOLOGY_MAX_DEVICES || number >= TOPOLOGY_MAX_DEVICES)
		return true; /* some other remark */
	log->listed++;
	log->highest_rank = max_i64(log->highest_rank, rank);
	log->highest_device = max_i64(log->highest_device, number);
	add_host(log, host);
	return draft_set_gpu(log->import, gpu + 1 + strspn(gpu + 1, " "), log->name, error);
}

static bool read_comment(struct log *log, const char *line, int number, struct error *error)
{
	static const char started[] = "Collective test starting:";
	const char *test = strstr(line, started);

	if (test != NULL)
		return set_collective(log, number,
			test + strlen(started) + strspn(test + strlen(started), " "), error);
	if (strstr(line, "Rank ") != NULL && strstr(line, " device ") != NULL)
		return read_device(log, line + strspn(line, " \t"), error);
	if (strstr(line, "Out of bounds values") != NULL && strstr(line, "FAILED") != NULL)
		return error_at(error, EXIT_CODE_INPUT, log->name, number, 1,
			"the test FAILED its check of values, expected 0 out of bounds");
	log->footer = log->footer || strstr(line, "Avg bus bandwidth") != NULL;
	return true;
}

static bool read_line(struct log *log, const struct lines *lines, char *line, struct error *error)
{
	char *words[WORDS_MAX];
	const char *start = line + strspn(line, " \t");
	bool cut_off = !lines->whole;
	int n;

	if (*start == '#')
		return read_comment(log, start, lines->number, error);
	log->elided = log->elided || strncmp(start, "...", 3) == 0;
	n = split_words(line, words, WORDS_MAX);
	if (n < 3 || !is_digits(words[0]) || !is_digits(words[1]))
		return true; /* remarks of NCCL, the launcher, the shell */
	return read_row(log, lines, words, n, cut_off, error);
}

/* --- the whole log ------------------------------------------------------------------------------
 */

/* All-reduce moves 2(n-1)/n of the size, gathers and scatters (n-1)/n. */
static bool guess_collective(struct log *log, struct error *error)
{
	const char *given = log->import->options.collective;
	const char *guessed = NULL;

	if (log->collective_known)
		return true;
	if (given != NULL)
		return set_collective(log, 0, given, error);
	if (log->factor > 1 + 2 * log->factor_spread)
		guessed = "all_reduce";
	else if (log->factor > 0 && log->factor < 1 - 2 * log->factor_spread && !log->redop_none)
		guessed = "reduce_scatter";
	if (guessed == NULL)
		return error_set(error, EXIT_CODE_USAGE,
			"%s does not say which collective it measured: "
			"add --collective all_gather, reduce_scatter or all_reduce",
			log->name);
	draft_note(log->import, "%s: taken for %s, from the ratio of its bandwidths and its redop",
		log->name, guessed);
	return set_collective(log, 0, guessed, error);
}

/* n from (n-1)/n, with what rounding leaves open. */
static void bound_ranks(struct log *log)
{
	double moved = log->samples.collective == COLLECTIVE_ALL_REDUCE ? 2 : 1;
	double low = (log->factor - log->factor_spread) / moved;
	double high = (log->factor + log->factor_spread) / moved;

	if (!(log->factor > 0))
		return;
	/* 1 / (1 - f); beyond a million ranks the ratio tells nothing. */
	log->samples.ranks_low = (int64_t)ceil(1 / (1 - fmin(low, 0.999999)) - 1e-6);
	log->samples.ranks_high = (int64_t)floor(1 / (1 - fmin(high, 0.999999)) + 1e-6);
}

/* The list of devices may be cut at the front; ranks and devices count from 0. */
static void count_ranks(struct log *log)
{
	struct samples *s = &log->samples;

	bound_ranks(log);
	if (log->listed > 0)
		s->ranks = log->highest_rank + 1;
	if (log->listed > 0 && log->listed == s->ranks)
		s->nodes = log->hosts;
	else if (log->listed > 0 && s->ranks % (log->highest_device + 1) == 0)
		s->nodes = s->ranks / (log->highest_device + 1);
	if (log->listed > 0 && log->listed != s->ranks)
		draft_note(log->import,
			"%s: its list of devices is not whole; "
			"%lld ranks on %lld nodes follow from their numbers",
			log->name, (long long)s->ranks, (long long)s->nodes);
}

static bool no_rows(const struct log *log, struct error *error)
{
	return error_at(error, EXIT_CODE_INPUT, log->name, 0, 0,
		"no rows of nccl-tests, "
		"expected size count type redop root time algbw busbw #wrong; "
		"an average bus bandwidth alone tells latency and bandwidth apart from nothing");
}

static bool finish(struct log *log, struct error *error)
{
	struct samples *s = &log->samples;

	if (s->n == 0)
		return no_rows(log, error);
	if (!guess_collective(log, error))
		return false;
	count_ranks(log);
	if (!log->footer)
		draft_note(log->import,
			"%s: has no footer; was it cut off? Its %d rows are used as they are",
			log->name, s->n);
	if (log->elided)
		draft_note(log->import,
			"%s: leaves rows out (\"...\"); sizes between are interpolated", log->name);
	s->name = log->name;
	s->rows = log->rows;
	return draft_log(log->import, s, error);
}

static struct log *log_new(struct topology_import *import, const char *name)
{
	struct log *log = ARENA_NEW(import->arena, struct log);

	log->import = import;
	log->name = arena_strdup(import->arena, name);
	log->rows = ARENA_ARRAY(import->arena, struct sample, ROWS_MAX);
	return log;
}

bool is_nccl_tests(const char *text, size_t length)
{
	static const char *const signs[] = {"busbw", "Avg bus bandwidth", "_perf", "nThread"};

	for (int i = 0; i < COUNT_OF(signs); i++)
		if (memmem(text, length, signs[i], strlen(signs[i])) != NULL)
			return true;
	return false;
}

bool import_nccl_tests(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error)
{
	struct log *log = log_new(import, name);
	struct lines lines = {text, text + length, 0, true};
	char line[LINE_MAX_BYTES];

	while (lines_next(&lines, line, sizeof(line)))
		if (!read_line(log, &lines, line, error))
			return false;
	return finish(log, error);
}

/* --- JSON (-J) ----------------------------------------------------------------------------------
 */

bool is_nccl_tests_json(const char *text, size_t length)
{
	size_t blanks = strspn(text, " \t\r\n");

	return blanks < length && text[blanks] == '{' &&
	       (strstr(text + blanks, "\"out_of_place\"") != NULL ||
		       strstr(text + blanks, "\"nccl_version\"") != NULL);
}

/* A number, "nan" in quotes, or null. */
static double json_number(const struct node *node)
{
	double value;

	return node != NULL && node->kind == NODE_SCALAR && parse_number(node->text, &value) ? value
											     : -1;
}

static bool read_result(struct log *log, const struct node *result, struct error *error)
{
	const struct node *size = node_get(result, "size"), *redop = node_get(result, "redop");
	const struct node *group = node_get(result, "out_of_place");
	const struct node *wrong, *time;
	int64_t bytes;

	if (group == NULL || group->kind != NODE_MAP)
		group = node_get(result, "in_place");
	if (size == NULL || group == NULL || group->kind != NODE_MAP)
		return node_error(
			result, error, "expected a result with size and out_of_place or in_place");
	wrong = node_get(group, "nwrong");
	time = node_get(group, "time") != NULL ? node_get(group, "time")
					       : node_get(group, "cpu_time");
	if (!node_int(size, &bytes, error))
		return false;
	if (wrong != NULL && wrong->kind == NODE_SCALAR &&
		!check_wrong(log, wrong->line, wrong->text, error))
		return false;
	log->redop_none =
		redop != NULL && redop->kind == NODE_SCALAR && strcmp(redop->text, "none") == 0;
	note_factor(log, json_number(node_get(group, "alg_bw")),
		json_number(node_get(group, "bus_bw")), 1e-9);
	return add_row(log, size->line, bytes, json_number(time), error);
}

/* The list holds every rank, or only the writer's; "args" and "env" may hold secrets and are not
 * kept. */
static bool read_devices(struct log *log, const struct node *devices, struct error *error)
{
	for (int i = 0; devices != NULL && i < devices->n_children; i++) {
		const struct node *d = devices->children[i];
		const struct node *rank = node_get(d, "rank"), *host = node_get(d, "hostname");
		const struct node *number = node_get(d, "device"),
				  *gpu = node_get(d, "device_info");
		int64_t r = 0, n = 0;

		if (rank == NULL || host == NULL || number == NULL || host->kind != NODE_SCALAR)
			continue;
		if (!node_int(rank, &r, error) || !node_int(number, &n, error))
			return false;
		if (r < 0 || n < 0 || r >= TOPOLOGY_MAX_DEVICES || n >= TOPOLOGY_MAX_DEVICES)
			return node_error(rank, error, "expected a rank below %d, got %s",
				TOPOLOGY_MAX_DEVICES, rank->text);
		log->listed++;
		log->highest_rank = max_i64(log->highest_rank, r);
		log->highest_device = max_i64(log->highest_device, n);
		add_host(log, host->text);
		if (gpu != NULL && gpu->kind == NODE_SCALAR &&
			!draft_set_gpu(log->import, gpu->text, log->name, error))
			return false;
	}
	return true;
}

/* A list with one entry of several ranks tells nothing about the others. */
static void count_json_ranks(struct log *log, const struct node *config)
{
	double threads = json_number(node_get(config, "nthreads"));
	double gpus = json_number(node_get(config, "ngpus"));

	if (log->listed == 1 && threads * gpus > 1)
		log->listed = 0;
}

bool import_nccl_tests_json(struct topology_import *import, const char *name, const char *text,
	size_t length, struct error *error)
{
	struct log *log = log_new(import, name);
	const struct node *root =
		document_parse(import->arena, name, text, length, DOCUMENT_FOREIGN, error);
	const struct node *results = node_get(root, "results"), *args = node_get(root, "args");
	const struct node *config = node_get(root, "config"), *bounds;

	if (root == NULL)
		return false;
	if (results == NULL || results->kind != NODE_LIST)
		return node_error(root, error, "missing key \"results\", was the file cut off?");
	if (args != NULL && args->n_children > 0 && args->children[0]->kind == NODE_SCALAR &&
		!set_collective(log, args->line, args->children[0]->text, error))
		return false;
	bounds = node_get(node_get(root, "out_of_bounds"), "okay");
	if (bounds != NULL && bounds->kind == NODE_SCALAR && strcmp(bounds->text, "false") == 0)
		return node_error(bounds, error, "the test failed its check of values");
	if (!read_devices(log, node_get(config, "devices"), error))
		return false;
	count_json_ranks(log, config);
	for (int i = 0; i < results->n_children; i++)
		if (!read_result(log, results->children[i], error))
			return false;
	log->footer = node_get(root, "end_time") != NULL ||
		      node_get(root, "average_bus_bandwidth") != NULL;
	return finish(log, error);
}
