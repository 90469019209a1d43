/* Searches on other machines: the fewest devices, the slowest network, and scaling. */
#include "planner/search/find.h"

#include <math.h>

/* Clusters larger than this are not proposed. */
enum { DEVICES_MOST = 65536 };

static double time_per_token(const struct found *row)
{
	return row->prediction.step_time * (double)row->devices / plan_tokens(&row->plan);
}

static bool row_fits(const struct found *row)
{
	return row->has_room;
}

static const char *count(struct arena *arena, int64_t n, const char *what)
{
	return arena_printf(arena, "%lld %s%s", (long long)n, what, n == 1 ? "" : "s");
}

/* --- machines --------------------------------------------------------------------------------- */

static struct topology with_nodes(const struct topology *topology, int64_t nodes)
{
	struct topology other = *topology;
	other.nodes = nodes;
	return other;
}

/* Nodes beyond the given ones are proposed only where there is a network to connect them. */
static bool can_grow(const struct topology *topology)
{
	return topology->network.kind != NETWORK_NONE;
}

static bool search_on(struct finder *finder, const struct topology *topology, const char *what,
	double value, struct found **row, struct error *error)
{
	struct question question = *finder->question;
	question.topology = topology;
	return find_best(finder, &question, what, value, row, error);
}

static void another_on(struct finder *finder, const struct topology *topology, const char *what,
	double value, struct another *another)
{
	*another = (struct another){*topology, *finder->question, what, value};
	another->question.topology = &another->topology;
}

/* --- fewest devices --------------------------------------------------------------------------- */

static bool try_devices(
	struct finder *finder, int64_t devices, struct found **row, struct error *error)
{
	struct topology topology = *finder->question->topology;
	struct error mine = {0};
	int64_t node = topology.devices_per_node;
	topology = with_nodes(&topology, devices > node ? devices / node : 1);
	if (devices < node && !topology_use_devices(&topology, devices, &mine))
		return error_set(error, mine.code, "%s", mine.message);
	return search_on(finder, &topology,
		devices < node || topology.nodes == 1
			? count(finder->arena, devices, "device")
			: arena_printf(finder->arena, "%lld devices (%lld nodes)",
				  (long long)devices, (long long)topology.nodes),
		(double)devices, row, error);
}

static int64_t batch_of(const struct question *question)
{
	return question_gives(question, KNOB_GLOBAL_BATCH) ? question->asked.global_batch : 0;
}

/* The next number of devices above `n`: twice as many, or the next number of whole nodes that
 * divides the batch; above `most` if there is none. */
static int64_t more_devices(const struct question *question, int64_t n, int64_t most)
{
	int64_t node = question->topology->devices_per_node, batch = batch_of(question);
	if (n < node)
		return min_i64(2 * n, node);
	if (batch == 0)
		return 2 * n;
	for (n += node; n <= most && batch % n != 0;)
		n += node;
	return n;
}

/* Adds devices until a plan fits. `*first`: their number, or 0; `*last`: the largest number on
 * which none fits. */
static bool grow_devices(struct finder *finder, int64_t *last, int64_t *first, struct error *error)
{
	const struct question *question = finder->question;
	int64_t node = question->topology->devices_per_node, batch = batch_of(question);
	int64_t most = can_grow(question->topology) ? DEVICES_MOST : node;
	if (batch > 0)
		most = min_i64(most, batch);
	*last = *first = 0;
	for (int64_t n = 1; n <= most && *first == 0; n = more_devices(question, n, most)) {
		struct found *row;
		if (!try_devices(finder, n, &row, error))
			return false;
		if (row_fits(row))
			*first = n;
		else
			*last = n;
	}
	return true;
}

/* Bisects between two numbers of whole nodes. If no plan can be made for a number, that says
 * nothing about its neighbours, so the next number is tried. */
static bool bisect_nodes(struct finder *finder, int64_t last, int64_t *first, struct error *error)
{
	int64_t node = finder->question->topology->devices_per_node;
	int64_t low = last / node, high = *first / node;
	while (last >= node && high - low > 1) {
		int64_t middle = low + (high - low) / 2, tried = middle;
		struct found *row;
		do {
			if (!try_devices(finder, tried * node, &row, error))
				return false;
		} while (!row->has_plan && ++tried < high);
		if (row_fits(row)) {
			*first = tried * node;
			high = middle;
		} else if (row->has_plan) {
			low = tried;
		} else {
			high = middle;
		}
	}
	return true;
}

/* The statement that none fits, up to the largest number for which a plan was made. */
static const char *none_fits(struct finder *finder)
{
	const struct finding *finding = finder->finding;
	int64_t most = 0, batch = batch_of(finder->question);
	for (int i = 0; i < finding->n; i++)
		if (finding->rows[i].has_plan)
			most = max_i64(most, finding->rows[i].devices);
	return arena_printf(finder->arena, "It fits on none of up to %s%s",
		count(finder->arena, most, "device"),
		batch == 0 ? ""
			   : arena_printf(finder->arena,
				     ", the most that may share --global-batch %lld",
				     (long long)batch));
}

bool find_devices(struct finder *finder, struct error *error)
{
	struct finding *finding = finder->finding;
	int64_t last, first;
	finding->unit = "devices";
	if (finder->question->gpus > 0)
		return error_set(error, EXIT_CODE_USAGE,
			"--gpus: --find looks for this number, leave it out");
	if (!grow_devices(finder, &last, &first, error))
		return false;
	bool all = first == 0 || batch_of(finder->question) > 0;
	if (!all && !bisect_nodes(finder, last, &first, error))
		return false;
	for (int i = 0; i < finding->n; i++)
		finding->rows[i].answer = first > 0 && finding->rows[i].devices == first;
	finding->exists = first > 0;
	finding->value = (double)first;
	finding->statement =
		first > 0 ? arena_printf(finder->arena, "The fewest on which it fits: %s",
				    count(finder->arena, first, "device"))
			  : none_fits(finder);
	return true;
}

/* --- network ---------------------------------------------------------------------------------- */

#define GBIT                (1e9 / 8)
#define BANDWIDTH_PRECISION 1.01

static const char *gbit_name(struct finder *finder, double gbit)
{
	return arena_printf(finder->arena, "%.4g Gbit/s per NIC", gbit);
}

static bool try_bandwidth(struct finder *finder, double bandwidth, const char *what,
	struct found **row, struct error *error)
{
	struct topology topology = *finder->question->topology;
	topology.network.nic_bandwidth = bandwidth;
	return search_on(finder, &topology, what, bandwidth, row, error);
}

static double ratio_of(const struct found *row, double free_time)
{
	return row_fits(row) ? free_time / time_per_token(row) : 0;
}

static bool try_gbit(struct finder *finder, double gbit, double free_time, struct found **row,
	struct error *error)
{
	if (!try_bandwidth(finder, gbit * GBIT, gbit_name(finder, gbit), row, error))
		return false;
	(*row)->ratio = ratio_of(*row, free_time);
	return true;
}

/* Bisects for the least bandwidth that reaches the target; `low` does not reach it, `high` does. */
static bool bisect_bandwidth(struct finder *finder, double low, double high, double target,
	double free_time, double *least, struct error *error)
{
	while (high / low > BANDWIDTH_PRECISION) {
		double middle = sqrt(low * high);
		struct found *row;
		if (!try_gbit(finder, middle, free_time, &row, error))
			return false;
		finder->finding->n--; /* steps of a bisection are not shown */
		if (row->ratio >= target)
			high = middle;
		else
			low = middle;
	}
	*least = high;
	return true;
}

static bool network_is_free_to_vary(const struct topology *topology, struct error *error)
{
	if (topology->nodes == 1)
		return error_set(error, EXIT_CODE_USAGE,
			"network-for: %s is one node, it uses no network", topology->name);
	if (topology->calibration.n_collectives > 0)
		return error_set(error, EXIT_CODE_USAGE,
			"network-for: %s carries measured collectives, "
			"which do not follow the bandwidth of the datasheet",
			topology->name);
	return true;
}

/* Adds rows for the speeds on sale. `*low`: the last one that misses the target; `*high`: the first
 * one that reaches it; 0: none does. */
static bool try_sold(struct finder *finder, const double *sold, int n, double target,
	double free_time, double *low, double *high, struct error *error)
{
	struct another *others = ARENA_ARRAY(finder->arena, struct another, n);
	int first = finder->finding->n;
	for (int i = 0; i < n; i++) {
		struct topology topology = *finder->question->topology;
		topology.network.nic_bandwidth = sold[i] * GBIT;
		another_on(
			finder, &topology, gbit_name(finder, sold[i]), sold[i] * GBIT, &others[i]);
	}
	if (!find_all(finder, others, n, error))
		return false;
	for (int i = 0; i < n; i++) {
		struct found *row = &finder->finding->rows[first + i];
		row->ratio = ratio_of(row, free_time);
		if (*high == 0 && row->ratio >= target)
			*high = sold[i];
		*low = *high == 0 ? sold[i] : *low;
	}
	return true;
}

/* Searches the speeds on sale first, then between two of them. */
bool find_network(struct finder *finder, double target, struct error *error)
{
	static const double sold[] = {1, 10, 25, 50, 100, 200, 400, 800, 1600, 3200};
	const struct topology *topology = finder->question->topology;
	struct finding *finding = finder->finding;
	struct found *row;
	double low = 0, high = 0, free_time;
	finding->unit = "B/s";
	if (!network_is_free_to_vary(topology, error) ||
		!try_bandwidth(finder, 1e15, "an infinitely fast network", &row, error))
		return false;
	row->ratio = row_fits(row) ? 1 : 0;
	free_time = row->has_plan ? time_per_token(row) : 0;
	if (!row_fits(row)) {
		finding->statement = "No plan fits, whatever the network";
		return true;
	}
	if (!try_sold(finder, sold, COUNT_OF(sold), target, free_time, &low, &high, error))
		return false;
	if (high == 0) {
		finding->statement = arena_printf(finder->arena,
			"%.0f Gbit/s per NIC do not reach %.0f %% of an infinitely fast network: "
			"latency, not bandwidth, is the limit",
			sold[COUNT_OF(sold) - 1], target * 100);
		return true;
	}
	if (low > 0 && !bisect_bandwidth(finder, low, high, target, free_time, &high, error))
		return false;
	if (!try_gbit(finder, high, free_time, &row, error))
		return false;
	row->answer = true;
	finding->exists = true;
	finding->value = high * GBIT;
	finding->statement = arena_printf(finder->arena,
		"%.0f %% of what an infinitely fast network would give needs %.3g Gbit/s per NIC, "
		"%.4g Gbit/s per node",
		target * 100, high, high * (double)topology->network.nics_per_node);
	return true;
}

/* --- scaling ---------------------------------------------------------------------------------- */

/* Fills in the throughput per device relative to the smallest machine on which a plan fits. Returns
 * the row of that machine, or NULL. */
static const struct found *add_efficiencies(struct finding *finding)
{
	const struct found *first = NULL;
	for (int i = 0; i < finding->n; i++) {
		struct found *row = &finding->rows[i];
		if (!row_fits(row))
			continue;
		first = first != NULL ? first : row;
		row->ratio = time_per_token(first) / time_per_token(row);
	}
	return first;
}

static const char *scaling_statement(
	struct arena *arena, const struct found *first, const struct found *last)
{
	if (!row_fits(last))
		return arena_printf(arena, "No plan fits on %s", last->what);
	if (last->value <= 1)
		return "One node, and no network for more: there is nothing to compare it with";
	if (first == last)
		return arena_printf(arena,
			"A plan fits on %s, but on none of the smaller machines: "
			"there is nothing to compare",
			last->what);
	return arena_printf(arena, "On %s, throughput per device is %.1f %% of that on %s%s",
		last->what, last->ratio * 100, first->what,
		first->value > 1 ? ", the smallest machine here on which a plan fits" : "");
}

static void another_of_nodes(struct finder *finder, int64_t nodes, struct another *another)
{
	const struct topology topology = with_nodes(finder->question->topology, nodes);
	another_on(finder, &topology, count(finder->arena, nodes, "node"), (double)nodes, another);
}

enum { SIZES_MOST = 64 }; /* powers of two, and the size itself */

bool find_scaling(struct finder *finder, struct error *error)
{
	const struct topology *topology = finder->question->topology;
	struct finding *finding = finder->finding;
	/* From a single node the question is how it scales up; from a cluster, up to its own
	 * size. */
	int64_t most = topology->nodes > 1 ? topology->nodes : can_grow(topology) ? 8 : 1;
	struct another *others = ARENA_ARRAY(finder->arena, struct another, SIZES_MOST);
	int n_others = 0;
	finding->unit = "nodes";
	for (int64_t n = 1; n < most; n *= 2)
		another_of_nodes(finder, n, &others[n_others++]);
	another_of_nodes(finder, most, &others[n_others++]);
	if (!find_all(finder, others, n_others, error))
		return false;
	const struct found *first = add_efficiencies(finding);
	const struct found *last = &finding->rows[finding->n - 1];
	finding->exists = row_fits(last);
	finding->value = (double)most;
	finding->statement = scaling_statement(finder->arena, first, last);
	return true;
}
