/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said when an assertion fails in the engine: the tensor that it is about comes first, with
 * all that concerns it, and an end comes whatever the lists look like.
 */
#define _GNU_SOURCE /* pipe2 */
#include "tests/unit/unit.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/compiler.h"
#include "daemon/engine/move.h"
#include "daemon/engine/state.h"
#include "tests/sim/rig.h"

#define HOST PROTOCOL_PLACE_HOST

static char said[1 << 17];

static void dump(void *engine)
{
	engine_dump(engine, STDERR_FILENO);
}

/* Runs `body`, which must fail an assertion, in a process of its own; what it says is in `said`. */
static void fails(void (*body)(struct rig *r, struct wire_handle t), struct rig *r,
		  struct wire_handle t)
{
	int fds[2], status;
	size_t at = 0;
	ssize_t n;
	pid_t pid;

	ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
	fflush(stdout);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		alarm(30);
		dup2(fds[1], STDERR_FILENO);
		check_set_panic_hook(dump, r->world.engine);
		body(r, t);
		_exit(0);
	}
	close(fds[1]);
	while ((n = read(fds[0], said + at, sizeof(said) - 1 - at)) > 0)
		at += (size_t)n;
	said[at] = '\0';
	close(fds[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %d: %s", status,
		      said);
	ck_assert_uint_lt(at, 64 * 1024);
}

/* The line with `text`, from its beginning; fails where there is none. */
static const char *line_with(const char *text)
{
	const char *at = strstr(said, text);

	ck_assert_msg(at != NULL, "not said: %s\n%s", text, said);
	while (at > said && at[-1] != '\n')
		at--;
	return at;
}

static void lose_its_bytes(struct rig *r, struct wire_handle t)
{
	r->world.engine->records[t.index].sources = 0;
	engine_check(r->world.engine);
}

START_TEST(the_tensor_comes_first_and_then_what_is_beside_it)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle a, b, c;
	char first[96];

	a = rig_create_filled(r, 0, 'a');
	b = rig_create_filled(r, 0, 'b');
	c = rig_create_filled(r, 0, 'c');
	rig_pin(r, 0, b, HOST, ACCESS_READ);
	rig_acquire(r, 1, 4, c, 0, ACCESS_READ, ENGINE_NEVER); /* under way */
	fails(lose_its_bytes, r, b);
	ck_assert_ptr_eq(line_with("assertion failed: invariant SOURCE: r->sources != 0, at "),
			 said);
	snprintf(first, sizeof(first), "looked at last: tensor %u: %u bytes", b.index,
		 (unsigned)RIG_FILLED);
	ck_assert_ptr_eq(line_with(first), strchr(said, '\n') + 1);
	line_with("  slot of client ");
	line_with(", process 100: 0x1");
	line_with("  name '' in namespace 'a'");
	line_with("  extent ");
	line_with("  beside it: ");
	line_with("tier ");
	line_with(" kind 0 phase 0 tensor "); /* the move of c */
	line_with("request 4 of client ");
	(void)a;
	rig_unpin(r, 0, b, ACCESS_READ);
	rig_close(r);
}
END_TEST

static void break_its_extent(struct rig *r, struct wire_handle t)
{
	r->world.engine->records[t.index].dram_node = 1u << 30;
	engine_check(r->world.engine);
}

START_TEST(an_extent_that_is_none_does_not_end_what_is_said)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 1 });
	struct wire_handle t = rig_create_filled(r, 0, 'a');

	fails(break_its_extent, r, t);
	line_with("  extent 1073741824 of dram0: there is none");
	line_with("  name '' in namespace 'a'");
	line_with("tier dram0: ");
	rig_close(r);
}
END_TEST

static void name_a_tensor_that_is_none(struct rig *r, struct wire_handle t)
{
	record_of(r->world.engine, WORLD_TENSORS + 7);
}

START_TEST(a_tensor_that_is_none_is_said_to_be_none)
{
	struct rig *r = rig_open((struct world_shape){ .nvme = 1 });
	struct wire_handle t = rig_create_filled(r, 0, 'a');

	fails(name_a_tensor_that_is_none, r, t);
	line_with("looked at last: tensor 263, which is none");
	rig_close(r);
}
END_TEST

static struct move *moving(struct rig *r)
{
	struct engine *e = r->world.engine;

	ASSERT(!list_empty(&e->moves));
	return list_first(&e->moves, struct move, link);
}

/* The list goes around without its head. */
static void tie_a_knot(struct rig *r, struct wire_handle t)
{
	struct move *m = moving(r);

	m->link.next = &m->link;
	m->magic = 0x64656164; /* "dead" */
	move_get(r->world.engine, m->id);
}

START_TEST(what_is_no_move_is_named_and_a_broken_list_ends)
{
	struct rig *r = rig_open((struct world_shape){ .hbm = 1, .nvme = 1 });
	struct wire_handle t = rig_create_filled(r, 0, 'a');

	rig_acquire(r, 1, 4, t, 0, ACCESS_READ, ENGINE_NEVER);
	fails(tie_a_knot, r, t);
	line_with("an object of magic 'dead' (0x64656164) and not 'move'");
	line_with("looked at last: move at ");
	line_with(": no move, magic 0x64656164");
	rig_close(r);
}
END_TEST

UNIT_MAIN("dump", the_tensor_comes_first_and_then_what_is_beside_it,
	  an_extent_that_is_none_does_not_end_what_is_said,
	  a_tensor_that_is_none_is_said_to_be_none, what_is_no_move_is_named_and_a_broken_list_ends)
