/* Contention: how much running operations slow one another. It is a fluid model: every running
 * operation has a rate, the work that it does per second in seconds of its time alone. Rates stay
 * the same until the set of running operations changes. */
#include <math.h>

#include "simulator/engine/inside.h"

/* What is asked of a link out of the device or node, and into it. */
struct ways {
	double out, in;
};

struct demand {
	double threads;   /* threads of one rank that need a core */
	int computing;    /* operations that can use all multiprocessors */
	double transfers; /* the part of `memory` that collectives use */
	double multiprocessors, memory, link, link_out;
	struct ways fabric, network;
};

static void add_load(struct ways *ways, double load, enum link_way way)
{
	if (way != WAY_IN)
		ways->out += load;
	if (way != WAY_OUT)
		ways->in += load;
}

static double busier(const struct ways *ways, enum link_way way)
{
	double out = way != WAY_IN ? ways->out : 0, in = way != WAY_OUT ? ways->in : 0;

	return fmax(out, in);
}

static void add_demand(
	const struct topology *topology, const struct task *task, struct demand *demand)
{
	const struct cost *cost = task->cost;

	demand->threads += task->computes && cost->arithmetic > 0
				   ? (double)topology_rank_threads(topology)
				   : 1 - cost->idle;
	demand->computing += task->computes && cost->device > 0;
	demand->multiprocessors += cost->multiprocessors;
	demand->memory += cost->memory_load;
	if (task->communicates)
		demand->transfers += cost->memory_load;
	add_load(&demand->fabric, cost->fabric_load, cost->way);
	add_load(&demand->network, cost->network_load, cost->way);
	demand->link += cost->link_load;
	demand->link_out += cost->link_out_load;
}

static double at_least_one(double x)
{
	return x > 1 ? x : 1;
}

/* NCCL's channels sit on multiprocessors that kernels then lack (docs/cost-model.md): t * n / (n -
 * c). Kernels of two streams each fill the device and take turns. */
static double gpu_arithmetic(const struct topology *topology, const struct demand *demand)
{
	double all = (double)topology->device.multiprocessors;
	double turns = demand->computing > 1 ? demand->computing : 1;

	if (all <= 0)
		return turns;
	return turns * all / fmax(all / 2, all - demand->multiprocessors);
}

/* Threads of all ranks share the cores; the share that a rank has when it is alone is part of the
 * costs. A thread without a core of its own takes turns with a computing thread. The other threads
 * wait for that one at the end of each kernel, so all are as slow as two threads on one core. */
static double host_arithmetic(const struct topology *topology, const struct demand *demand)
{
	double cores = (double)topology->host.cores, ranks = (double)topology->devices_per_node;

	if (!topology->shares_host)
		return 1;
	return fmax(1, 1 + demand->threads - fmax(1, cores / ranks));
}

/* The factor by which an operation takes longer than alone: arithmetic is slowed by units or cores
 * that others use, memory traffic by bandwidth that others use. */
static double slowdown(const struct cost *cost, const struct demand *demand, double arithmetic,
	bool everything_needs_cores)
{
	double turns = everything_needs_cores || demand->computing < 1 ? 1 : demand->computing;
	double memory = fmax(turns, demand->memory);
	double rest = cost->device - cost->arithmetic - cost->memory;
	double time = cost->arithmetic * arithmetic + cost->memory * memory + rest;

	if (everything_needs_cores)
		time = (cost->arithmetic + rest) * arithmetic +
		       cost->memory * fmax(memory, arithmetic);
	return time / cost->device;
}

/* The share of the device's memory bandwidth while kernels of several streams take turns, one at a
 * time. */
static double memory_in_turns(const struct demand *demand)
{
	double turns = demand->computing > 1 ? demand->computing : 1;

	return demand->transfers + (demand->memory - demand->transfers) / turns;
}

/* Links are shared in equal parts: rate = capacity / users (docs/cost-model.md). What a collective
 * moves also goes through the device's memory. */
static double collective_slowdown(
	const struct cost *cost, const struct demand *demand, double cores)
{
	double slow = cores;

	if (cost->memory_load > 0)
		slow = fmax(slow, memory_in_turns(demand));

	if (cost->fabric_load > 0)
		slow = fmax(slow, busier(&demand->fabric, cost->way));
	if (cost->network_load > 0)
		slow = fmax(slow, busier(&demand->network, cost->way));
	if (cost->link_load > 0)
		slow = fmax(slow, demand->link);
	if (cost->link_out_load > 0)
		slow = fmax(slow, demand->link_out);
	return at_least_one(slow);
}

static double rate_of(
	const struct engine *engine, const struct task *task, const struct demand *demand)
{
	bool gpu = engine->topology->device.kind == DEVICE_GPU;
	double cores = gpu ? 1 : host_arithmetic(engine->topology, demand);

	if (task->cost->device <= 0)
		return 1;
	if (task->communicates && !gpu)
		cores = fmax(
			1 + (cores - 1) * (1 - task->cost->idle), at_least_one(demand->memory));
	if (!task->computes)
		return 1 / collective_slowdown(task->cost, demand, cores);
	return 1 / slowdown(task->cost, demand,
			   gpu ? gpu_arithmetic(engine->topology, demand) : cores, !gpu);
}

void contention_rates(struct engine *engine)
{
	struct demand demand = {0};
	struct queue *end = engine->queues + engine->n_queues;

	engine->rates_stale = false;
	if (!engine->contention)
		return;
	for (const struct queue *queue = engine->queues; queue < end; queue++)
		if (queue->running && !queue->awaits)
			add_demand(engine->topology, task_at(engine, &queue->list, &queue->next),
				&demand);
	for (struct queue *queue = engine->queues; queue < end; queue++) {
		if (!queue->running || queue->awaits)
			continue;
		queue->rate = 1;
		if (demand.threads > 1)
			queue->rate = rate_of(
				engine, task_at(engine, &queue->list, &queue->next), &demand);
	}
	if (engine->together != NULL)
		meeting_pace(engine);
}
