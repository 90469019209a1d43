/* Shared by the files of the fake NCCL. All functions are called with the lock held. */
#ifndef TESTS_EXECUTOR_FAKE_NCCL_H
#define TESTS_EXECUTOR_FAKE_NCCL_H

#include "tests/executor/fakes/cuda_private.h"

struct nccl_api;

enum { FAKE_NAME = 160, MOST_MEMBERS = 16 };

/* One ncclCommSplit, as all who call it see it. */
struct fake_split {
	int arrived, colors[MOST_MEMBERS], keys[MOST_MEMBERS];
	struct fake_group *groups[MOST_MEMBERS]; /* of each caller */
	int indices[MOST_MEMBERS];
};

/* The members of a communicator. */
struct fake_group {
	int size, number;
	char name[FAKE_NAME]; /* of members in other processes; "": there are none */
	bool aborted;
	int out[2]; /* given by walked steps and by graphs, and not yet done */
	struct fake_meeting *meetings[1 << 12]; /* by number, modulo */
	struct fake_split splits[64];
	struct fake_group *next;
};

/* nccl_meetings.c: one collective, to which its members come. It frees itself when it has run.
 */
struct fake_meeting {
	int members, joined; /* of this process */
	struct fake_group *group;
	int number, index; /* of processes: of their collectives, and who this one is */
	bool shown;        /* to the others */
	bool launched;     /* by a graph */
	bool abandoned;    /* its communicator was aborted: whoever comes goes on */
	struct fake_meeting *next;
	int64_t bytes; /* of the gathered size */
	struct fake_stream **streams;
	struct fake_node **nodes;
};
struct fake_meeting *fake_meeting_new(int members);
/* Nobody computes: the nodes of those that have come pass. */
void fake_meetings_abandon(const struct fake_group *group);

int fake_nccl_version(void);
/* The call goes on behind its caller's back, until the communicator is asked. */
int fake_nccl_later(void *comm);
void fake_nccl_memory_install(struct nccl_api *api, int version);
void fake_nccl_check_destroy(const void *comm);
/* As if the communicator knew no memory: it was aborted. */
void fake_nccl_forget(const void *comm);
/* nccl_faults.c: whether FAKE_NCCL_FAULT is of that kind and for that rank; and one more
 * collective: 0 for the one that fails. */
bool fake_nccl_fails(const char *kind, int rank);
int fake_nccl_count(int rank);
/* s that what is made at first use takes. */
double fake_nccl_late(int rank);
/* One member's call. */
struct fake_part {
	int kind; /* enum collective_kind */
	const void *send;
	void *receive;
	size_t count;
	int type, index;
	int64_t from, to; /* places in the window; -1 without one */
};
size_t fake_element_bytes(int type);
/* nccl_sums.c: of all members' parts; what differs between them is a fault. */
void fake_nccl_compute(void **arguments, int members);

/* nccl_processes.c: members that are processes of their own meet in files of
 * FAKE_NCCL_FOLDER, by the name of their communicator. NULL: all are threads of this process. */
const char *fake_party_folder(void);
void fake_party_id(char *id, size_t size);
/* Member `index` comes to the number-th `what`, and says so much; whether all have come, and what
 * one of them said: up to two numbers. */
void fake_party_come(const char *name, const char *what, int number, int index, const char *format,
	...) __attribute__((format(printf, 5, 6)));
bool fake_party_has_come(const char *name, const char *what, int number, int size);
void fake_party_said(
	const char *name, const char *what, int number, int index, int *first, int *second);
/* To a collective ("do"), with its data; and what all of them together make of it. */
void fake_party_show(
	const char *name, int number, int index, int size, const struct fake_part *part);
void fake_party_compute(const char *name, int number, int index, int size, struct fake_part *part);

/* Where in the communicator's window that lies; -1 without one. */
int64_t fake_nccl_place(const void *comm, const void *address, int64_t bytes);

#endif
