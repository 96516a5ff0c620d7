/* listen.c: the addresses that are listened on, and their devices. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/log.h"
#include "publish/peer.h"

#define NO_DEVICE_REMEDY \
	"`rdma link show` lists the devices, `rdma link add rxe0 type rxe netdev IFACE` makes a soft-RoCE one"

static bool is_wildcard(const struct sockaddr_storage *address)
{
	struct sockaddr_in in;
	struct sockaddr_in6 in6;
	memcpy(&in, address, sizeof(in));
	memcpy(&in6, address, sizeof(in6));
	if (address->ss_family == AF_INET6)
		return IN6_IS_ADDR_UNSPECIFIED(&in6.sin6_addr);
	return in.sin_addr.s_addr == htonl(INADDR_ANY);
}

static int explain_listen(const struct sockaddr_storage *address, int code, struct err *err)
{
	struct address_text text = address_format((const struct sockaddr *)address);
	switch (-code) {
	case ENODEV:
		return err_set(err, code, "there is no RDMA device at %s: " NO_DEVICE_REMEDY, text.text);
	case EADDRNOTAVAIL:
		return err_set(err, code, "%s is no address of this host: `ip address show` lists them", text.text);
	case EADDRINUSE:
		return err_set(
			err, code, "%s is in use: another daemon listens there, or choose another port", text.text);
	default:
		return err_set(err, code, "cannot listen on %s: %s", text.text, strerror(-code));
	}
}

struct publish_device *publish_device_find(struct publish *publish, const struct ibv_context *context)
{
	for (size_t i = 0; i < publish->device_count; i++) {
		if (publish->device_list[i]->context == context)
			return publish->devices[i];
	}
	return NULL;
}

static void device_close(struct publish_device *device)
{
	event_source_free(&device->channel_source);
	event_source_free(&device->async_source);
	groups_free(device);
	verbs_destroy_comp_channel(&device->channel);
	catalog_free(&device->catalog);
	if (device->catalog_locked)
		memlock_give_back(device->publish->config->memlock, device->catalog_locked, 1);
	device_free(&device->device);
	free(device);
}

/* Rights of a queue pair hold for all or for none, so where they do not hold nobody may be promised less than all. */
static int check_rights(const struct publish *publish, const struct device *device, struct err *err)
{
	for (size_t i = 0; !device->enforces_access_flags && i < publish->config->allow_count; i++) {
		if (!publish->config->allow[i].may_write)
			return err_set(err, -EOPNOTSUPP,
				"device %s does not enforce the rights of a queue pair: it cannot serve --allow with "
				"ro",
				device->name);
	}
	return 0;
}

static int open_catalog(struct publish_device *device, struct err *err)
{
	const struct publish_config *config = device->publish->config;
	uint64_t size = catalog_memory_size(device->device, config->max_extents);
	if (config->memlock) {
		if (memlock_take(config->memlock, size, 1, err) < 0)
			return err_prefix(err, "device %s: its catalog for --max-extents %u", device->device->name,
				config->max_extents);
		device->catalog_locked = size;
	}
	return catalog_new(device->device, config->max_extents, &device->catalog, err);
}

static int open_events(struct publish_device *device, struct err *err)
{
	struct event_loop *loop = device->publish->loop;
	struct ibv_context *context = device->device->context;
	int r = verbs_create_comp_channel(context, &device->channel);
	if (r == 0)
		r = verbs_set_async_nonblocking(context);
	if (r < 0)
		return err_set(
			err, r, "device %s: cannot make a completion channel: %s", device->device->name, strerror(-r));

	device->channel_source = event_io_new(loop, device->channel->fd, on_completion_channel, device);
	device->async_source = event_io_new(loop, context->async_fd, on_async_event, device);
	if (!device->channel_source || !device->async_source)
		return err_set(err, -ENOMEM, "out of memory");
	event_io_set(device->channel_source, EVENT_READ);
	event_io_set(device->async_source, EVENT_READ);
	return 0;
}

static int device_open(struct publish_device *device, struct ibv_context *context, struct err *err)
{
	struct publish *publish = device->publish;
	int r = device_new(context, publish->config->max_mr_size, &device->device, err);
	if (r == 0)
		r = check_rights(publish, device->device, err);
	if (r == 0)
		r = open_catalog(device, err);
	if (r == 0)
		r = open_events(device, err);
	if (r == 0)
		r = groups_open(device, err);
	if (r < 0)
		return r;
	/* Atomics of two devices on the same bytes are not atomic to each other, so one device has them. */
	device->rights = MRSHARE_READ | MRSHARE_WRITE;
	if (publish->device_count == 0 && device->device->has_atomics)
		device->rights |= MRSHARE_ATOMIC;
	return 0;
}

/* Opens the device of a context unless it is open already. */
static int device_need(struct publish *publish, struct ibv_context *context, struct err *err)
{
	if (publish_device_find(publish, context))
		return 0;

	size_t count = publish->device_count + 1;
	struct publish_device **devices = reallocarray(publish->devices, count, sizeof(*devices));
	if (devices)
		publish->devices = devices;
	struct device **list = reallocarray(publish->device_list, count, sizeof(struct device *));
	if (list)
		publish->device_list = list;
	struct publish_device *device = devices && list ? calloc(1, sizeof(*device)) : NULL;
	if (!device)
		return err_set(err, -ENOMEM, "out of memory");

	device->publish = publish;
	int r = device_open(device, context, err);
	if (r < 0) {
		device_close(device);
		return r;
	}
	devices[count - 1] = device;
	list[count - 1] = device->device;
	publish->device_count = count;
	return 0;
}

static int devices_of_wildcard(struct publish *publish, struct err *err)
{
	int r = publish->contexts ? 0 : cm_devices(&publish->contexts);
	if (r < 0 || !publish->contexts[0])
		return err_set(err, r < 0 ? r : -ENODEV, "there is no RDMA device: " NO_DEVICE_REMEDY);
	for (size_t i = 0; r == 0 && publish->contexts[i]; i++)
		r = device_need(publish, publish->contexts[i], err);
	return r;
}

static int listener_bind(struct publish *publish, struct listener *listener, struct err *err)
{
	struct sockaddr_storage *address = &listener->address;
	int r = cm_id_new(publish->channel, NULL, &listener->id);
	if (r < 0)
		return explain_listen(address, r, err);
	r = cm_bind(listener->id, (struct sockaddr *)address);
	if (r < 0)
		return explain_listen(address, r, err);

	if (is_wildcard(address))
		return devices_of_wildcard(publish, err);
	if (!listener->id->verbs)
		return explain_listen(address, -ENODEV, err);
	r = device_need(publish, listener->id->verbs, err);
	if (r == 0)
		listener->device = publish_device_find(publish, listener->id->verbs);
	return r;
}

static void log_listener(const struct listener *listener)
{
	struct address_text text = address_format((const struct sockaddr *)&listener->address);
	if (listener->device)
		log_info("listening on %s, device %s", text.text, listener->device->device->name);
	else
		log_info("listening on %s, every device that was there at the start", text.text);
}

int listeners_open(struct publish *publish, struct err *err)
{
	size_t count = publish->config->listen_count;
	publish->listeners = calloc(count, sizeof(*publish->listeners));
	if (!publish->listeners)
		return err_set(err, -ENOMEM, "out of memory");
	publish->listener_count = count;
	for (size_t i = 0; i < count; i++) {
		publish->listeners[i].address = publish->config->listen[i];
		int r = listener_bind(publish, &publish->listeners[i], err);
		if (r < 0)
			return r;
	}
	for (size_t i = 0; i < count; i++) {
		int r = cm_listen(publish->listeners[i].id, LISTEN_BACKLOG);
		if (r < 0)
			return explain_listen(&publish->listeners[i].address, r, err);
		log_listener(&publish->listeners[i]);
	}
	if (!publish->config->allow_count)
		log_info("peers are admitted from this host's own addresses only: --allow names others");
	return 0;
}

void listeners_close(struct publish *publish)
{
	for (size_t i = 0; i < publish->device_count; i++)
		device_close(publish->devices[i]);
	free(publish->devices);
	free(publish->device_list);
	/* The ids and the list of devices hold the contexts open that the devices were on. */
	for (size_t i = 0; i < publish->listener_count; i++)
		cm_id_free(&publish->listeners[i].id);
	free(publish->listeners);
	cm_devices_free(&publish->contexts);
}
