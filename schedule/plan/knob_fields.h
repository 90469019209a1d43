/* Private to knobs.c: words of the rows of its table. */
#ifndef SCHEDULE_PLAN_KNOB_FIELDS_H
#define SCHEDULE_PLAN_KNOB_FIELDS_H

#include "schedule/plan/plan.h"

#define BIT(x)   (1u << (x))
#define REQUIRED FIELD_REQUIRED
#define COUNTED  (FIELD_REQUIRED | FIELD_POSITIVE)

#define NAME(enumerator, name)       name,
#define NAMES(VALUES)                ((const char *const[]){VALUES(NAME) NULL})
#define CHOICE(member, flags, names) FIELD_ENUM(struct plan, member, #member, flags, names)
#define SWITCH(member)               ON_OFF(member, REQUIRED)
#define OMITTED(member)              ON_OFF(member, FIELD_OMIT_ZERO)
#define COUNT(member)                FIELD_INT(struct plan, member, #member, COUNTED)
#define RATE(member, flags)          FIELD_DOUBLE(struct plan, member, #member, flags)
#define DECODED(member, flags, names, decoded)                                                     \
	FIELD_DECODED(struct plan, member, #member, flags, names, decoded)

#define ON_OFF(member, flags) FIELD_BOOL(struct plan, member, #member, flags), .metavar = "on|off"

/* An axis of the mesh. */
#define RANKS(member)                                                                              \
	FIELD_INT(struct plan, mesh.member, #member, FIELD_POSITIVE),                              \
		.group = KNOB_GROUP_AXES, .roles = COMPARABLE, .metavar = "N", .shown = "1"

#define OMITTED_TEXT(member) DECODED(member, FIELD_OMIT_ZERO, NULL, &member##_decoded)

/* Names with + between them, of Megatron-LM's lists. */
#define NAMES_OF_MEGATRON(member)                                                                  \
	OMITTED_TEXT(member), .group = KNOB_GROUP_COMPUTE, .metavar = "NAME+...",                  \
			      .runtimes = BIT(RUNTIME_MEGATRON)

/* A switch of some runtimes that only a plan says: nothing searches, varies or compares it. */
#define SAID_ONLY(member, kind, of)                                                                \
	OMITTED(member), .group = KNOB_GROUP_##kind, .roles = KNOB_ONE_VALUE | KNOB_ZERO_UNSAID,   \
			 .runtimes = (of)

/* Roles of what plans differ in and are compared by. */
#define COMPARABLE (KNOB_VARIED | KNOB_COMPARED | KNOB_IN_STUDY)
#define MOVES_WORK (KNOB_IN_TIME | KNOB_NO_LOAD | KNOB_NO_SHAPE)
#define ON_PYTORCH ((BIT(RUNTIME_COUNT) - 1) & ~BIT(RUNTIME_SHARDPLAN))
/* These are the runtimes with tensor ranks and with pipelines. */
#define DIVIDED                                                                                    \
	(BIT(RUNTIME_PYTORCH_FSDP2) | BIT(RUNTIME_PYTORCH_DDP) | BIT(RUNTIME_NANOTRON) |           \
		BIT(RUNTIME_INTERNEVO) | BIT(RUNTIME_MEGATRON))
#define STAGED         (DIVIDED | BIT(RUNTIME_SHARDPLAN))
#define CUTS_SEQUENCES (BIT(RUNTIME_PYTORCH_FSDP2) | BIT(RUNTIME_SHARDPLAN) | BIT(RUNTIME_MEGATRON))

#endif
