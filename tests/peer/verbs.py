# verbs.py: a reliable connection over libibverbs and librdmacm, by ctypes.
# SPDX-License-Identifier: BSD-2-Clause
# Structs as in rdma-core's infiniband/verbs.h and rdma/rdma_cma.h. What is inline there is called
# through the context's table of operations, as the inline functions do.
import ctypes
import os
import socket
from ctypes import POINTER, Structure, byref, c_int, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p

ibverbs = ctypes.CDLL("libibverbs.so.1", use_errno=True)
rdmacm = ctypes.CDLL("librdmacm.so.1", use_errno=True)

PS_TCP, QPT_RC, LOCAL_WRITE, SIGNALED = 0x0106, 2, 1, 2
RDMA_WRITE, SEND, RDMA_READ, COMPARE_AND_SWAP, FETCH_AND_ADD = 0, 2, 4, 5, 6
ADDR_RESOLVED, ROUTE_RESOLVED, REJECTED, ESTABLISHED = 0, 2, 8, 9
MIN_RNR_TIMER = 1 << 15  # IBV_QP_MIN_RNR_TIMER
POLL_CQ, REQ_NOTIFY_CQ, POST_SEND, POST_RECV = 12, 13, 26, 27  # words of struct ibv_context


class Id(Structure):  # rdma_cm_id, its beginning
    _fields_ = [("verbs", POINTER(c_void_p)), ("channel", c_void_p), ("context", c_void_p), ("qp", c_void_p)]


class ConnParam(Structure):
    _fields_ = [("private_data", c_void_p), ("private_data_len", c_uint8), ("responder_resources", c_uint8),
                ("initiator_depth", c_uint8), ("flow_control", c_uint8), ("retry_count", c_uint8),
                ("rnr_retry_count", c_uint8), ("srq", c_uint8), ("qp_num", c_uint32)]


class Event(Structure):
    _fields_ = [("id", POINTER(Id)), ("listen_id", c_void_p), ("event", c_int), ("status", c_int), ("conn", ConnParam)]


class QpInitAttr(Structure):
    _fields_ = [("qp_context", c_void_p), ("send_cq", c_void_p), ("recv_cq", c_void_p), ("srq", c_void_p),
                ("max_send_wr", c_uint32), ("max_recv_wr", c_uint32), ("max_send_sge", c_uint32),
                ("max_recv_sge", c_uint32), ("max_inline_data", c_uint32), ("qp_type", c_int), ("sq_sig_all", c_int)]


class QpAttr(Structure):
    _fields_ = [("states_and_numbers", c_uint32 * 9), ("cap", c_uint32 * 5), ("addresses", c_uint64 * 8),
                ("pkeys", c_uint16 * 2), ("draining", c_uint8 * 2), ("rd_atomic", c_uint8 * 2),
                ("min_rnr_timer", c_uint8), ("rest", c_uint8 * 15)]


class Sge(Structure):
    _fields_ = [("addr", c_uint64), ("length", c_uint32), ("lkey", c_uint32)]


class RecvWr(Structure):
    _fields_ = [("wr_id", c_uint64), ("next", c_void_p), ("sg_list", POINTER(Sge)), ("num_sge", c_int)]


class Rdma(Structure):
    _fields_ = [("remote_addr", c_uint64), ("rkey", c_uint32)]


class Atomic(Structure):
    _fields_ = [("remote_addr", c_uint64), ("compare_add", c_uint64), ("swap", c_uint64), ("rkey", c_uint32)]


class Remote(ctypes.Union):
    _fields_ = [("rdma", Rdma), ("atomic", Atomic)]


class SendWr(Structure):
    _fields_ = [("wr_id", c_uint64), ("next", c_void_p), ("sg_list", POINTER(Sge)), ("num_sge", c_int),
                ("opcode", c_int), ("send_flags", c_uint32), ("imm_data", c_uint32), ("wr", Remote),
                ("rest", c_uint64 * 7)]


class Completion(Structure):  # ibv_wc
    _fields_ = [("wr_id", c_uint64), ("status", c_int), ("opcode", c_int), ("vendor_err", c_uint32),
                ("byte_len", c_uint32), ("rest", c_uint32 * 6)]


class Mr(Structure):
    _fields_ = [("context", c_void_p), ("pd", c_void_p), ("addr", c_void_p), ("length", c_uint64),
                ("handle", c_uint32), ("lkey", c_uint32), ("rkey", c_uint32)]


def prototype(library, result, name, *arguments):
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments


prototype(rdmacm, POINTER(c_int), "rdma_create_event_channel")
prototype(rdmacm, c_int, "rdma_create_id", c_void_p, POINTER(POINTER(Id)), c_void_p, c_int)
prototype(rdmacm, c_int, "rdma_resolve_addr", c_void_p, c_void_p, c_void_p, c_int)
prototype(rdmacm, c_int, "rdma_resolve_route", c_void_p, c_int)
prototype(rdmacm, c_int, "rdma_create_qp", c_void_p, c_void_p, POINTER(QpInitAttr))
prototype(rdmacm, c_int, "rdma_connect", c_void_p, POINTER(ConnParam))
prototype(rdmacm, c_int, "rdma_get_cm_event", c_void_p, POINTER(POINTER(Event)))
prototype(rdmacm, c_int, "rdma_ack_cm_event", c_void_p)
for name in "rdma_disconnect", "rdma_destroy_qp", "rdma_destroy_id", "rdma_destroy_event_channel":
    prototype(rdmacm, c_int, name, c_void_p)
for name in "ibv_dealloc_pd", "ibv_destroy_cq", "ibv_dereg_mr", "ibv_destroy_comp_channel":
    prototype(ibverbs, c_int, name, c_void_p)
prototype(rdmacm, ctypes.c_char_p, "rdma_event_str", c_int)
prototype(ibverbs, ctypes.c_char_p, "ibv_wc_status_str", c_int)
prototype(ibverbs, c_void_p, "ibv_alloc_pd", c_void_p)
prototype(ibverbs, POINTER(c_void_p), "ibv_get_device_list", POINTER(c_int))
prototype(ibverbs, None, "ibv_free_device_list", c_void_p)
prototype(ibverbs, c_void_p, "ibv_open_device", c_void_p)
prototype(ibverbs, POINTER(Mr), "ibv_reg_mr", c_void_p, c_void_p, ctypes.c_size_t, c_int)
prototype(ibverbs, c_void_p, "ibv_create_comp_channel", c_void_p)
prototype(ibverbs, c_void_p, "ibv_create_cq", c_void_p, c_int, c_void_p, c_void_p, c_int)
prototype(ibverbs, c_int, "ibv_get_cq_event", c_void_p, POINTER(c_void_p), POINTER(c_void_p))
prototype(ibverbs, None, "ibv_ack_cq_events", c_void_p, ctypes.c_uint)
prototype(ibverbs, c_int, "ibv_modify_qp", c_void_p, POINTER(QpAttr), c_int)


def check(result, what):
    """Of a call that returns 0, or -1 with errno, or an errno."""
    if result:
        error = ctypes.get_errno() if result < 0 else result
        raise OSError(error, os.strerror(error), what)


def pointer(result, what):
    if not result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)
    return result


def sockaddr(host, port):
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    raw = socket.inet_pton(family, address[0])
    head = family.to_bytes(2, "little") + port.to_bytes(2, "big")
    body = raw + bytes(8) if family == socket.AF_INET else bytes(4) + raw + bytes(4)
    return ctypes.create_string_buffer(head + body)


def open_device():
    """The context of the first device that can be opened, or None."""
    count = c_int()
    devices = ibverbs.ibv_get_device_list(byref(count))
    contexts = [ibverbs.ibv_open_device(devices[index]) for index in range(count.value)]
    if devices:
        ibverbs.ibv_free_device_list(devices)
    return next(filter(None, contexts), None)


class Connection:
    """One queue pair and its registered memory, `size` bytes."""

    def __init__(self, host, port, source, size):
        self.channel = pointer(rdmacm.rdma_create_event_channel(), "rdma_create_event_channel")
        self.id = POINTER(Id)()
        check(rdmacm.rdma_create_id(self.channel, byref(self.id), None, PS_TCP), "rdma_create_id")
        check(rdmacm.rdma_resolve_addr(self.id, source and sockaddr(source, 0), sockaddr(host, port), 5000), source or host)
        self.expect_event(ADDR_RESOLVED)
        check(rdmacm.rdma_resolve_route(self.id, 5000), host)
        self.expect_event(ROUTE_RESOLVED)
        self.context = self.id.contents.verbs
        self.pd = pointer(ibverbs.ibv_alloc_pd(self.context), "ibv_alloc_pd")
        self.completions = pointer(ibverbs.ibv_create_comp_channel(self.context), "ibv_create_comp_channel")
        self.completion_fd = ctypes.cast(self.completions + ctypes.sizeof(c_void_p), POINTER(c_int))[0]
        self.cq = pointer(ibverbs.ibv_create_cq(self.context, 16, None, self.completions, 0), "ibv_create_cq")
        self.memory = ctypes.create_string_buffer(size)
        self.address = ctypes.addressof(self.memory)
        self.mr = pointer(ibverbs.ibv_reg_mr(self.pd, self.address, size, LOCAL_WRITE), "ibv_reg_mr")
        attributes = QpInitAttr(send_cq=self.cq, recv_cq=self.cq, max_send_wr=4, max_recv_wr=4, max_send_sge=1,
                                max_recv_sge=1, qp_type=QPT_RC)
        check(rdmacm.rdma_create_qp(self.id, self.pd, byref(attributes)), "rdma_create_qp")
        self.qp = self.id.contents.qp

    def operation(self, word, *types):
        return ctypes.CFUNCTYPE(c_int, c_void_p, *types)(self.context[word])

    def next_event(self):
        """(event, its name, status, private data), having waited for it."""
        event = POINTER(Event)()
        check(rdmacm.rdma_get_cm_event(self.channel, byref(event)), "rdma_get_cm_event")
        e = event.contents
        data = ctypes.string_at(e.conn.private_data, e.conn.private_data_len) if e.conn.private_data else b""
        result = e.event, rdmacm.rdma_event_str(e.event).decode(), e.status, data
        check(rdmacm.rdma_ack_cm_event(event), "rdma_ack_cm_event")
        return result

    def expect_event(self, wanted):
        event, name, status, data = self.next_event()
        if event != wanted:
            raise OSError(f"{name}, status {status}")
        return data

    def connect(self, private_data):
        parameters = ConnParam(private_data=ctypes.cast(private_data, c_void_p), private_data_len=len(private_data),
                               initiator_depth=1, retry_count=6, rnr_retry_count=6)
        check(rdmacm.rdma_connect(self.id, byref(parameters)), "rdma_connect")

    def set_min_rnr_timer(self, value):
        check(ibverbs.ibv_modify_qp(self.qp, byref(QpAttr(min_rnr_timer=value)), MIN_RNR_TIMER), "ibv_modify_qp")

    def piece(self, offset, size):
        return ctypes.pointer(Sge(self.address + offset, size, self.mr.contents.lkey))

    def post_receive(self, number, offset, size):
        wr = RecvWr(wr_id=number, sg_list=self.piece(offset, size), num_sge=1)
        check(self.operation(POST_RECV, c_void_p, c_void_p)(self.qp, byref(wr), byref(c_void_p())), "ibv_post_recv")

    def post(self, number, opcode, offset, size, remote=Remote()):
        wr = SendWr(wr_id=number, sg_list=self.piece(offset, size), num_sge=1, opcode=opcode, send_flags=SIGNALED, wr=remote)
        check(self.operation(POST_SEND, c_void_p, c_void_p)(self.qp, byref(wr), byref(c_void_p())), "ibv_post_send")

    def poll(self):
        """The next completion, or None; then the channel becomes readable with the next one."""
        wc = Completion()
        poll_cq = self.operation(POLL_CQ, c_int, c_void_p)
        for armed in False, True:
            if poll_cq(self.cq, 1, byref(wc)) > 0:
                return wc
            if not armed:
                check(self.operation(REQ_NOTIFY_CQ, c_int)(self.cq, 0), "ibv_req_notify_cq")
        return None

    def take_completion_event(self):
        ignored = c_void_p()
        check(ibverbs.ibv_get_cq_event(self.completions, byref(ignored), byref(c_void_p())), "ibv_get_cq_event")
        ibverbs.ibv_ack_cq_events(self.cq, 1)

    def close(self):
        rdmacm.rdma_disconnect(self.id)
        rdmacm.rdma_destroy_qp(self.id)
        ibverbs.ibv_dereg_mr(self.mr)
        ibverbs.ibv_destroy_cq(self.cq)
        ibverbs.ibv_destroy_comp_channel(self.completions)
        ibverbs.ibv_dealloc_pd(self.pd)
        rdmacm.rdma_destroy_id(self.id)
        rdmacm.rdma_destroy_event_channel(self.channel)
