/* SPDX-License-Identifier: Apache-2.0 */
#include "libclient/access_log.h"

#include <stdlib.h>
#include <unistd.h>

_Thread_local struct access_log_cache access_log_cache;

/* A log that some thread owns. `lock` guards `t`; the links are the owning thread's alone. */
struct owned_log {
	struct owned_log *next;      /* of the same thread */
	struct list of_all;          /* in `all` */
	struct tierd *t;             /* NULL once the connection was closed */
	struct access_log_cache was; /* cookie and log; the head is read again from the log */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list all = { &all, &all };
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key; /* head of the thread's owned_log list */
static bool key_made;

static void log_give_back(struct owned_log *o)
{
	/* In a forked child the segment is not mapped. */
	pthread_mutex_lock(&lock);
	if (o->t != NULL && o->was.log != NULL && !client_is_forked(o->t))
		atomic_store_explicit(&o->was.log->owner, 0, memory_order_release);
	list_remove(&o->of_all);
	pthread_mutex_unlock(&lock);
	free(o);
}

static void thread_ends(void *first)
{
	struct owned_log *o = first;

	access_log_cache = (struct access_log_cache){ 0 };
	while (o != NULL) {
		struct owned_log *next = o->next;

		log_give_back(o);
		o = next;
	}
}

static void fork_begins(void)
{
	pthread_mutex_lock(&lock);
}

static void fork_ended(void)
{
	pthread_mutex_unlock(&lock);
}

static void make_key(void)
{
	/* A child forked while another thread holds the lock must not find it held for ever. */
	key_made = pthread_atfork(fork_begins, fork_ended, fork_ended) == 0 &&
		   pthread_key_create(&key, thread_ends) == 0;
}

static struct access_log *log_take(struct tierd *t)
{
	for (uint32_t i = 0; i < t->log_count; i++) {
		uint32_t free_owner = 0;

		if (atomic_compare_exchange_strong_explicit(&t->logs[i].owner, &free_owner, 1,
							    memory_order_acquire,
							    memory_order_relaxed))
			return &t->logs[i];
	}
	return NULL;
}

/* Drops what this thread owned of closed connections, so that a long-lived thread does not grow. */
static struct owned_log *without_closed(struct owned_log *first)
{
	struct owned_log **at = &first;

	while (*at != NULL) {
		struct owned_log *o = *at;
		bool closed;

		pthread_mutex_lock(&lock);
		closed = o->t == NULL;
		pthread_mutex_unlock(&lock);
		if (closed) {
			*at = o->next;
			log_give_back(o);
		} else {
			at = &o->next;
		}
	}
	return first;
}

static struct owned_log *own_new(struct tierd *t, struct owned_log *first)
{
	struct owned_log *o = calloc(1, sizeof(*o));

	if (o == NULL)
		return NULL;
	o->next = first;
	o->t = t;
	o->was.cookie = t->hot.cookie;
	if (pthread_setspecific(key, o) != 0) {
		free(o);
		return NULL;
	}
	o->was.log = log_take(t);
	pthread_mutex_lock(&lock);
	list_push_back(&all, &o->of_all);
	pthread_mutex_unlock(&lock);
	return o;
}

void access_log_switch(struct tierd *t)
{
	struct owned_log *first, *o;

	/* Without a key or memory the thread goes unlogged, which costs policies a hint only. */
	access_log_cache = (struct access_log_cache){ .cookie = t->hot.cookie };
	pthread_once(&key_once, make_key);
	if (!key_made)
		return;
	first = without_closed(pthread_getspecific(key));
	pthread_setspecific(key, first);
	for (o = first; o != NULL && o->was.cookie != t->hot.cookie;)
		o = o->next;
	if (o == NULL)
		o = own_new(t, first);
	if (o == NULL || o->was.log == NULL)
		return;
	access_log_cache.log = o->was.log;
	access_log_cache.head = atomic_load_explicit(&o->was.log->head, memory_order_relaxed);
}

void access_log_forget(struct tierd *t)
{
	struct list *it;

	pthread_mutex_lock(&lock);
	list_for_each (it, &all) {
		struct owned_log *o = list_entry(it, struct owned_log, of_all);

		if (o->t == t)
			o->t = NULL;
	}
	pthread_mutex_unlock(&lock);
}
