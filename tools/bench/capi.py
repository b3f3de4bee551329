"""TensorFlow through its C API, from the libraries in the wheel: no Python of TensorFlow's runs."""

import ctypes
import importlib.util
from pathlib import Path

import numpy as np

DTYPES = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int64": 9, "bool": 10}
STRING = 7
STRING_BYTES = 24


class Output(ctypes.Structure):
    """TF_Output."""

    _fields_ = [("oper", ctypes.c_void_p), ("index", ctypes.c_int)]


class Buffer(ctypes.Structure):
    """TF_Buffer."""

    _fields_ = [("data", ctypes.c_void_p), ("length", ctypes.c_size_t),
                ("deallocator", ctypes.c_void_p)]


def library():
    """The C API. Its functions are spread over the wheel's two libraries."""
    folder = Path(importlib.util.find_spec("tensorflow").submodule_search_locations[0])
    parts = [ctypes.CDLL(str(folder / name), ctypes.RTLD_GLOBAL)
             for name in ("libtensorflow_framework.so.2", "libtensorflow_cc.so.2")]

    def function(name, result=None):
        for part in parts:
            if hasattr(part, name):
                found = getattr(part, name)
                found.restype = result
                return found
        raise AttributeError(name)
    return function


def varint(number):
    """A number as protobuf writes it."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


class Session:
    """A SavedModel in a TensorFlow session."""

    def __init__(self, folder, threads):
        pointer = ctypes.c_void_p
        self.lib = library()
        self.status = pointer(self.lib("TF_NewStatus", pointer)())
        options = pointer(self.lib("TF_NewSessionOptions", pointer)())
        # ConfigProto: intra_op_parallelism_threads is field 2, inter_op_parallelism_threads 5.
        config = b"\x10" + varint(threads) + b"\x28" + varint(threads)
        self.lib("TF_SetConfig")(options, config, ctypes.c_size_t(len(config)), self.status)
        self.check()
        self.graph = pointer(self.lib("TF_NewGraph", pointer)())
        tags = (ctypes.c_char_p * 1)(b"serve")
        load = self.lib("TF_LoadSessionFromSavedModel", pointer)
        self.session = pointer(load(options, None, str(folder).encode(), tags, 1, self.graph,
                                    None, self.status))
        self.check()
        self.feeds = self.values = self.fetches = self.results = None
        self.runner = self.lib("TF_SessionRun")
        self.delete = self.lib("TF_DeleteTensor")

    def check(self):
        """Raises what the last call failed with."""
        if self.lib("TF_GetCode", ctypes.c_int)(self.status):
            raise RuntimeError(self.lib("TF_Message", ctypes.c_char_p)(self.status).decode())

    def output(self, name):
        """A tensor of the graph by its name."""
        node, _, index = name.partition(":")
        find = self.lib("TF_GraphOperationByName", ctypes.c_void_p)
        found = find(self.graph, node.encode())
        if not found:
            raise KeyError(name)
        return Output(found, int(index or 0))

    def tensor(self, array):
        """A TF_Tensor with a copy of an array."""
        is_string = array.dtype.kind in "OS"
        code = STRING if is_string else DTYPES[array.dtype.name]
        n_bytes = array.size * STRING_BYTES if is_string else array.nbytes
        dims = (ctypes.c_int64 * max(array.ndim, 1))(*array.shape)
        allocate = self.lib("TF_AllocateTensor", ctypes.c_void_p)
        made = ctypes.c_void_p(allocate(code, dims, array.ndim, ctypes.c_size_t(n_bytes)))
        start = self.lib("TF_TensorData", ctypes.c_void_p)(made)
        if not is_string:
            ctypes.memmove(start, np.ascontiguousarray(array).ctypes.data, n_bytes)
            return made
        for i, value in enumerate(array.reshape(-1)):
            place = ctypes.c_void_p(start + i * STRING_BYTES)
            self.lib("TF_StringInit")(place)
            self.lib("TF_StringCopy")(place, bytes(value), ctypes.c_size_t(len(value)))
        return made

    def prepare(self, feeds, fetches):
        """Takes the inputs (name of a tensor to array) and the names of what is wanted."""
        self.feeds = (Output * len(feeds))(*[self.output(name) for name in feeds])
        tensors = [self.tensor(array) for array in feeds.values()]
        self.values = (ctypes.c_void_p * len(feeds))(*tensors)
        self.fetches = (Output * len(fetches))(*[self.output(name) for name in fetches])
        self.results = (ctypes.c_void_p * len(fetches))()

    def run(self):
        """One run; the results are freed."""
        self.runner(self.session, None, self.feeds, self.values, len(self.values),
                    self.fetches, self.results, len(self.results), None, 0, None, self.status)
        self.check()
        for result in self.results:
            self.delete(ctypes.c_void_p(result))
