/* SPDX-License-Identifier: Apache-2.0
 *
 * tierctl doctor: the checks in their order, the configuration and the daemon that they are of.
 */
#include "tools/tierctl/doctor.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/log.h"
#include "libclient/admin.h"
#include "tools/tierctl/json.h"
#include "tools/tierctl/text.h"

#define CONFIG_DEFAULT "/etc/tierd/tierd.yaml"

static const char *const statuses[] = { "ok", "warn", "fail" };

void doctor_say(struct doctor *d, enum doctor_status status, const char *what, const char *mend,
		const char *fmt, ...)
{
	const bool mends = status != DOCTOR_OK && mend[0] != '\0';
	struct json j = { stdout, false };
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	d->failed += status == DOCTOR_FAIL;
	if (d->arguments->json != NULL) {
		json_open(&j, NULL, '{');
		json_text(&j, "status", statuses[status]);
		json_text(&j, "check", what);
		json_name(&j, "text", text, strlen(text));
		if (mends)
			json_name(&j, "mend", mend, strlen(mend));
		json_close(&j, '}');
		json_end(&j);
		return;
	}
	printf("%-5s %-14s ", statuses[status], what);
	json_plain(stdout, text, strlen(text));
	if (mends) {
		fputs("; to mend: ", stdout);
		json_plain(stdout, mend, strlen(mend));
	}
	putchar('\n');
}

static void configuration(struct doctor *d)
{
	const char *file = d->arguments->config;
	struct err err = ERR_INIT;

	if (file == NULL && access(CONFIG_DEFAULT, F_OK) < 0) {
		doctor_say(d, DOCTOR_OK, "configuration", "",
			   "none: " CONFIG_DEFAULT " is not there; --config names another");
		return;
	}
	file = file != NULL ? file : CONFIG_DEFAULT;
	if (settings_load(file, &d->settings, &err) < 0) {
		doctor_say(d, DOCTOR_FAIL, "configuration",
			   "the line says what is wrong; `tierctl config reference` has every key",
			   "%s", err.text);
		return;
	}
	d->configured = true;
	doctor_say(d, DOCTOR_OK, "configuration", "", "%s: valid", file);
}

static void say_device(struct doctor *d, unsigned i)
{
	const struct page_device *p = &d->page.device[i];
	char out[TEXT_ROOM];

	if (p->lost)
		doctor_say(d, DOCTOR_FAIL, "device",
			   "a gpu that was lost comes back when tierd is started again",
			   "%s; it was lost", d->page.chosen[i]);
	else if (p->oldest_ns >= TEXT_HANGS_NS)
		doctor_say(d, DOCTOR_WARN, "device",
			   "the kernel's log says what became of the device",
			   "%s; it has had a transfer for %s", d->page.chosen[i],
			   text_duration(p->oldest_ns, out));
	else
		doctor_say(d, DOCTOR_OK, "device", "", "%s", d->page.chosen[i]);
}

static void say_chosen(struct doctor *d)
{
	for (unsigned i = 0; i < STATS_DEVICES && page_device_bytes(&d->page, i) > 0; i++)
		say_device(d, i);
}

/* Where the configuration says that it is, unless the caller says another. */
static void daemon_of(struct doctor *d)
{
	const char *socket = d->arguments->socket;
	struct tierd *t;
	char up[TEXT_ROOM];
	int rc;

	if (socket == NULL && d->configured)
		socket = d->settings.socket;
	rc = command_open(d->arguments, socket, &t);
	d->served = rc != -ENOENT && rc != -ECONNREFUSED;
	if (rc < 0) {
		/* There need not be one, unless something of it was wanted. */
		bool well = !d->served && !d->arguments->domain;

		doctor_say(d, well ? DOCTOR_OK : DOCTOR_WARN, "daemon",
			   "a user that it serves, or root with --domain NAME", "none is asked: %s",
			   tierd_error(NULL));
		return;
	}
	if (admin_stats_page(t) == NULL) {
		doctor_say(d, DOCTOR_WARN, "daemon", "use the tierctl of its own version",
			   "serving: %s", tierd_error(NULL));
		tierd_close(t);
		return;
	}
	page_read(admin_stats_page(t), &d->page);
	tierd_close(t);
	doctor_say(d, DOCTOR_OK, "daemon", "",
		   "serving domain %s, up %s; it chose:", d->page.domain,
		   text_duration(d->page.uptime_ns, up));
	say_chosen(d);
}

static void (*const checks[])(struct doctor *d) = {
	configuration,     daemon_of,          doctor_socket,  doctor_kernel,     doctor_memory,
	doctor_huge_pages, doctor_memlock,     doctor_numa,    doctor_cuda,       doctor_io_uring,
	doctor_paths,      doctor_descriptors, doctor_domains, doctor_namespaces,
};

int doctor_run(const struct arguments *a)
{
	static struct doctor d;

	d = (struct doctor){ .arguments = a };
	/* What probes warn of is said by the lines. */
	if (log_configure("tier:error") < 0)
		return command_failed(a, -EINVAL, "the log cannot be turned down");
	for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
		checks[i](&d);
	if (d.configured)
		settings_free(&d.settings);
	return d.failed > 0 ? STATUS_FAILED : STATUS_OK;
}
