/* frontend_device.c: requests about the device as a whole: features, configuration, status, regions. */
/* SPDX-License-Identifier: BSD-2-Clause */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "base/range.h"
#include "vhost/frontend_internal.h"

/* Without these there is no announcing. */
#define SHMEM_NEEDS \
	(VHOST_USER_PROTOCOL_REPLY_ACK | VHOST_USER_PROTOCOL_BACKEND_REQ | VHOST_USER_PROTOCOL_BACKEND_SEND_FD)

static uint64_t features_offered(const struct frontend *frontend)
{
	return frontend->frontends->config->device.features | VRING_FEATURES | VHOST_USER_F_PROTOCOL_FEATURES;
}

static uint64_t protocol_features_offered(const struct frontend *frontend)
{
	return VHOST_USER_PROTOCOL_MQ | VHOST_USER_PROTOCOL_CONFIG | VHOST_USER_PROTOCOL_STATUS |
	       VHOST_USER_PROTOCOL_RESET_DEVICE | VHOST_USER_PROTOCOL_SHMEM | SHMEM_NEEDS |
	       (frontend->frontends->config->gpa_addresses ? VHOST_USER_PROTOCOL_GPA_ADDRESSES : 0);
}

static int reply_u64(struct frontend *frontend, uint64_t value)
{
	request_reply(frontend, &value, sizeof(value));
	return REQUEST_REPLIED;
}

/* The table of requests has made sure of the payload's size. */
static uint64_t payload_u64(const struct frontend *frontend)
{
	uint64_t value = 0;
	vhost_user_u64_read(frontend->channel.payload, frontend->channel.header.size, &value);
	return value;
}

int request_get_features(struct frontend *frontend, struct err *err)
{
	return reply_u64(frontend, features_offered(frontend));
}

int request_set_features(struct frontend *frontend, struct err *err)
{
	uint64_t features = payload_u64(frontend), strange = features & ~features_offered(frontend);
	if (strange)
		return err_set(err, -EINVAL, "features %#" PRIx64 " were not offered", strange);
	if (features != frontend->features)
		log_info("%s: features %#" PRIx64, frontend_tag(frontend), features);
	frontend->features = features;
	return REQUEST_DONE;
}

int request_get_protocol_features(struct frontend *frontend, struct err *err)
{
	return reply_u64(frontend, protocol_features_offered(frontend));
}

int request_set_protocol_features(struct frontend *frontend, struct err *err)
{
	uint64_t features = payload_u64(frontend), strange = features & ~protocol_features_offered(frontend);
	if (strange)
		return err_set(err, -EINVAL, "protocol features %#" PRIx64 " were not offered", strange);
	frontend->protocol_features = features;
	log_info("%s: protocol features %#" PRIx64, frontend_tag(frontend), features);
	if (!(features & VHOST_USER_PROTOCOL_SHMEM))
		log_warning("%s: it does not know shared memory regions (SHMEM, bit 22): its guest gets no memory of "
			    "ours; QEMU 11.1 knows them",
			frontend_tag(frontend));
	else if (SHMEM_NEEDS & ~features)
		log_warning("%s: it knows shared memory regions, but not what they need (REPLY_ACK, BACKEND_REQ, "
			    "BACKEND_SEND_FD: bits %#" PRIx64 " are missing): nothing is announced to it",
			frontend_tag(frontend), SHMEM_NEEDS & ~features);
	return REQUEST_DONE;
}

bool device_has_shmem(const struct frontend *frontend)
{
	uint64_t needed = VHOST_USER_PROTOCOL_SHMEM | SHMEM_NEEDS;
	return (frontend->protocol_features & needed) == needed;
}

int request_set_owner(struct frontend *frontend, struct err *err)
{
	frontend->owned = true;
	return REQUEST_DONE;
}

static void device_reset(struct frontend *frontend, const char *why)
{
	announce_stop(frontend, why);
	queues_stop(frontend);
	frontend->features = 0;
	frontend->status = 0;
}

int request_reset_owner(struct frontend *frontend, struct err *err)
{
	device_reset(frontend, "RESET_OWNER");
	frontend->owned = false;
	return REQUEST_DONE;
}

int request_reset_device(struct frontend *frontend, struct err *err)
{
	device_reset(frontend, "RESET_DEVICE");
	return REQUEST_DONE;
}

int request_get_queue_num(struct frontend *frontend, struct err *err)
{
	return reply_u64(frontend, frontend->frontends->config->device.queues);
}

int request_get_status(struct frontend *frontend, struct err *err)
{
	return reply_u64(frontend, frontend->status);
}

int request_set_status(struct frontend *frontend, struct err *err)
{
	uint64_t status = payload_u64(frontend);
	if (status > UINT8_MAX)
		return err_set(err, -EINVAL, "status %#" PRIx64 " has more than 8 bits", status);
	frontend->status = (uint8_t)status;
	if (status == 0) {
		announce_stop(frontend, "SET_STATUS 0");
		queues_stop(frontend);
	}
	return REQUEST_DONE;
}

static int read_config(const struct frontend *frontend, struct vhost_user_config *ret_config, struct err *err)
{
	const struct channel *channel = &frontend->channel;
	if (vhost_user_config_read(channel->payload, channel->header.size, ret_config) < 0)
		return err_set(err, -EINVAL, "its %u bytes are not as many as it says", channel->header.size);
	if (!range_fits(ret_config->offset, ret_config->size, VHOST_USER_CONFIG_MAX))
		return err_set(err, -EINVAL, "%u bytes at %u are not in the %d bytes of the configuration",
			ret_config->size, ret_config->offset, VHOST_USER_CONFIG_MAX);
	return 0;
}

int request_get_config(struct frontend *frontend, struct err *err)
{
	struct vhost_user_config config;
	int r = read_config(frontend, &config, err);
	if (r < 0)
		return r;
	uint8_t reply[VHOST_USER_CONFIG_HEADER_SIZE + VHOST_USER_CONFIG_MAX];
	memcpy(reply, &config, VHOST_USER_CONFIG_HEADER_SIZE);
	memcpy(reply + VHOST_USER_CONFIG_HEADER_SIZE, frontend->socket->config + config.offset, config.size);
	request_reply(frontend, reply, VHOST_USER_CONFIG_HEADER_SIZE + config.size);
	return REQUEST_REPLIED;
}

int request_set_config(struct frontend *frontend, struct err *err)
{
	struct vhost_user_config config;
	int r = read_config(frontend, &config, err);
	return r < 0 ? r : err_set(err, -EPERM, "no byte of the configuration can be written");
}

int request_get_shmem_config(struct frontend *frontend, struct err *err)
{
	uint8_t reply[VHOST_USER_SHMEM_CONFIG_SIZE];
	vhost_user_shmem_config_write(frontend->socket->sizes, reply);
	request_reply(frontend, reply, sizeof(reply));
	return REQUEST_REPLIED;
}

int request_get_max_mem_slots(struct frontend *frontend, struct err *err)
{
	return reply_u64(frontend, MEMORY_ENTRIES_MAX);
}
