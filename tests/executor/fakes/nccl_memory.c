/* Memory that communicators of the fake's NCCL know. What is registered must be NCCL's own and lie
 * in one allocation, be given back before the communicator and the memory go, and then all that a
 * collective touches must be in it; in windows, at the same place of all members. */
#include <stdlib.h>

#include "executor/transports/nccl_api.h"
#include "tests/executor/fakes/nccl.h"

enum { PAGE = 4096 };

struct registration {
	const void *comm;
	const char *start;
	int64_t bytes;
	bool window;
	struct registration *next;
};

static struct registration *registrations;

static const struct registration *find(const void *comm)
{
	const struct registration *r = registrations;

	while (r != NULL && r->comm != comm)
		r = r->next;
	return r;
}

static int take(void **memory, size_t bytes)
{
	const char *pieces = getenv("FAKE_NCCL_PIECE");
	size_t piece = pieces != NULL ? (size_t)atoi(pieces) : PAGE;

	fake_lock();
	*memory = fake_add_allocation((bytes + piece - 1) / piece * piece, false);
	fake_find_allocation(*memory)->of_nccl = true;
	fake_unlock();
	return 0;
}

static int give(void *memory)
{
	fake_lock();
	const struct allocation *a = fake_find_allocation(memory);

	for (const struct registration *r = registrations; r != NULL && a != NULL; r = r->next)
		if (r->start >= a->memory && r->start < a->memory + a->bytes)
			fake_cuda_fault("memory is freed that a communicator knows");
	fake_remove_allocation(memory, false);
	fake_unlock();
	return 0;
}

static int add(void *comm, void *memory, size_t bytes, bool window, void **made)
{
	struct registration *r = fake_calloc(sizeof(*r));
	const char *start = memory;

	fake_lock();
	const struct allocation *a = fake_find_allocation(memory);

	*r = (struct registration){comm, start, (int64_t)bytes, window, registrations};
	if (find(comm) != NULL)
		fake_cuda_fault("memory is registered twice");
	else if (a == NULL || !a->of_nccl || start + bytes > a->memory + a->bytes)
		fake_cuda_fault("memory is registered that is not of ncclMemAlloc");
	else if (window && ((uintptr_t)memory % PAGE != 0 || bytes % PAGE != 0))
		fake_cuda_fault("a window that is no whole pages");
	registrations = r;
	*made = r;
	fake_unlock();
	return fake_nccl_later(comm);
}

static int register_memory(void *comm, void *memory, size_t bytes, void **handle)
{
	return add(comm, memory, bytes, false, handle);
}

/* As NCCL does where GPUs cannot reach each other's memory, or nobody should use it. */
static int register_window(void *comm, void *memory, size_t bytes, void **window, int flags)
{
	const char *wanted = getenv("NCCL_WIN_ENABLE");

	*window = NULL;
	if (flags != NCCL_WIN_COLL_SYMMETRIC)
		fake_cuda_fault("a window that is not symmetric");
	if (wanted != NULL && wanted[0] == '0')
		return 0;
	return add(comm, memory, bytes, true, window);
}

static int drop(void *comm, const void *handle, bool window)
{
	struct registration **at = &registrations;

	fake_lock();
	while (*at != NULL && *at != handle)
		at = &(*at)->next;
	struct registration *r = *at;
	if (r == NULL || r->comm != comm || r->window != window) {
		fake_cuda_fault("memory is deregistered that the communicator does not know");
	} else {
		*at = r->next;
		free(r);
	}
	fake_unlock();
	return fake_nccl_later(comm);
}

static int deregister_memory(void *comm, void *handle)
{
	return drop(comm, handle, false);
}

static int deregister_window(void *comm, void *window)
{
	return drop(comm, window, true);
}

void fake_nccl_check_destroy(const void *comm)
{
	if (find(comm) != NULL)
		fake_cuda_fault("a communicator goes that still knows memory");
}

void fake_nccl_forget(const void *comm)
{
	for (struct registration *r = registrations; r != NULL; r = r->next)
		if (r->comm == comm) {
			r->comm = NULL;
			r->start = NULL;
		}
}

int64_t fake_nccl_place(const void *comm, const void *address, int64_t bytes)
{
	const struct registration *r = find(comm);
	const char *start = address;

	if (r == NULL)
		return -1;
	if (start < r->start || start + bytes > r->start + r->bytes)
		fake_cuda_fault("a collective of memory that its communicator does not know");
	return r->window ? start - r->start : -1;
}

void fake_nccl_memory_install(struct nccl_api *api, int version)
{
	if (version < 21900)
		return;
	api->ncclMemAlloc = take;
	api->ncclMemFree = give;
	api->ncclCommRegister = register_memory;
	api->ncclCommDeregister = deregister_memory;
	if (version < 22700)
		return;
	api->ncclCommWindowRegister = register_window;
	api->ncclCommWindowDeregister = deregister_window;
}
