// Arguments of a call with holes where tensors were, and the call run again over other storages.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/core/stack.h>
#include <c10/core/impl/SizesAndStrides.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Storage.h>
#include <torch/csrc/autograd/python_variable.h>

#include <time.h>

#include "python.h"

namespace tide {

using c10::DispatchKey;
using c10::DispatchKeySet;
using c10::IValue;
using torch::jit::Stack;

// A tensor argument: how it viewed its storage.
struct Hole {
  c10::impl::SizesAndStrides layout;
  int64_t offset = 0;
  DispatchKeySet keys;
  caffe2::TypeMeta dtype;
  bool absent = false; // an optional tensor of a list
};

// Where holes go: an argument that was a tensor, or a list of them.
struct Spot {
  enum Kind { TENSOR, LIST, OPTIONAL_LIST };
  uint32_t argument;
  Kind kind;
  uint32_t count;
};

struct Arguments {
  Arguments(const c10::OperatorHandle& op, c10::Device device) : op(op), device(device) {}
  c10::OperatorHandle op;
  c10::Device device;
  std::vector<IValue> values;
  c10::SmallVector<Spot, 3> spots;
  c10::SmallVector<Hole, 3> holes;

  // Length of the list that comes first, for an op that does one thing to each tensor of its lists.
  size_t several() const { return !spots.empty() && spots[0].argument == 0 && spots[0].kind == Spot::LIST ? spots[0].count : 0; }

  // The arguments of its part for tensor ``index`` of ``count``, and the places of their tensors among all that are here.
  std::unique_ptr<Arguments> part(uint32_t index, uint32_t count, std::vector<Py_ssize_t>& places) const {
    auto made = std::make_unique<Arguments>(op, device);
    made->values = values;
    for (IValue& value : made->values) {
      if (value.isIntList() && value.toIntVector().size() == count) value = c10::List<int64_t>({value.toIntVector()[index]});
      if (value.isDoubleList() && value.toDoubleVector().size() == count) value = c10::List<double>({value.toDoubleVector()[index]});
    }
    size_t hole = 0;
    Py_ssize_t place = 0;
    for (const Spot& spot : spots) {
      const bool divided = spot.kind != Spot::TENSOR && spot.count == count;
      made->spots.push_back({spot.argument, spot.kind, divided ? 1 : spot.count});
      for (uint32_t at = 0; at < spot.count; ++at, ++hole) {
        const bool taken = !divided || at == index;
        if (taken) made->holes.push_back(holes[hole]);
        if (taken && !holes[hole].absent) places.push_back(place);
        place += !holes[hole].absent;
      }
    }
    return made;
  }
};

// Marks tell apart calls that allocate different memory: layouts of tensors, and all arguments but the values of
// numbers that are no integers.
using Marks = std::vector<int64_t>;

constexpr auto UNUSUAL = DispatchKeySet(
    {DispatchKey::Python, DispatchKey::PythonTLSSnapshot, DispatchKey::Conjugate, DispatchKey::Negative,
     DispatchKey::ZeroTensor, DispatchKey::Functionalize, DispatchKey::FuncTorchGradWrapper,
     DispatchKey::FuncTorchBatched, DispatchKey::BatchedNestedTensor, DispatchKey::Sparse, DispatchKey::SparseCsr,
     DispatchKey::NestedTensor, DispatchKey::Quantized, DispatchKey::MkldnnCPU, DispatchKey::Fake});

// True for an ordinary strided tensor over a storage of its own kind of memory.
inline bool plain(const at::Tensor& tensor, c10::Device device) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  return !impl->key_set().has_any(UNUSUAL) && impl->has_storage() && impl->layout() == c10::kStrided &&
      impl->device() == device && !impl->has_symbolic_sizes_strides() && impl->storage().unsafeGetStorageImpl();
}

inline Hole hole_of(const at::Tensor& tensor, Marks& marks) {
  const auto* impl = tensor.unsafeGetTensorImpl();
  Hole hole;
  const auto sizes = impl->sizes();
  const auto strides = impl->strides();
  hole.layout.set_sizes(sizes);
  hole.layout.set_strides(strides);
  hole.offset = impl->storage_offset();
  hole.keys = impl->key_set();
  auto dtype = impl->dtype(); // before PyTorch 2.7 a constant one does not tell its scalar type
  hole.dtype = dtype;
  marks.push_back((int64_t(sizes.size()) << 16) | (int64_t(dtype.toScalarType()) << 8) | 1);
  marks.push_back(hole.offset);
  marks.insert(marks.end(), sizes.begin(), sizes.end());
  marks.insert(marks.end(), strides.begin(), strides.end());
  return hole;
}

// Marks of an argument without tensors; false for a kind that is not known here.
inline bool mark(const IValue& value, bool exact, Marks& marks) {
  constexpr int64_t NONE = -1, INT = -2, BOOL = -3, NUMBER = -4, STRING = -5, DEVICE = -6, INTS = -7, NUMBERS = -8, BOOLS = -9;
  if (value.isNone()) {
    marks.push_back(NONE);
  } else if (value.isInt()) {
    marks.insert(marks.end(), {INT, value.toInt()});
  } else if (value.isBool()) {
    marks.insert(marks.end(), {BOOL, value.toBool()});
  } else if (value.isDouble()) {
    int64_t bits = 0;
    const double number = value.toDouble();
    if (exact) std::memcpy(&bits, &number, sizeof bits);
    marks.insert(marks.end(), {NUMBER, bits});
  } else if (value.isString()) {
    marks.insert(marks.end(), {STRING, int64_t(std::hash<std::string>{}(value.toStringRef()))});
  } else if (value.isDevice()) {
    const auto device = value.toDevice();
    marks.insert(marks.end(), {DEVICE, int64_t(device.type()), int64_t(device.index())});
  } else if (value.isIntList()) {
    const auto list = value.toIntList();
    marks.insert(marks.end(), {INTS, int64_t(list.size())});
    for (int64_t each : list) marks.push_back(each);
  } else if (value.isBoolList()) {
    const auto list = value.toBoolList();
    marks.insert(marks.end(), {BOOLS, int64_t(list.size())});
    for (bool each : list) marks.push_back(each);
  } else if (value.isDoubleList() && !exact) {
    marks.insert(marks.end(), {NUMBERS, int64_t(value.toDoubleList().size())});
  } else {
    return false;
  }
  return true;
}

// Marks of a Python number. False for one of an unusual kind.
inline bool number(const at::Tensor& tensor, Marks& marks) {
  const auto type = tensor.scalar_type();
  const void* data = tensor.unsafeGetTensorImpl()->data();
  if (type != at::kDouble && type != at::kLong && type != at::kBool) return false;
  const int64_t exact = type == at::kLong ? *static_cast<const int64_t*>(data) : type == at::kBool && *static_cast<const bool*>(data);
  marks.insert(marks.end(), {-11, int64_t(type), exact});
  return true;
}

// Takes the arguments of a call, whose tensors are appended to ``tensors``. False if one is of an unusual kind.
inline bool keep(
    const Stack& stack, size_t count, bool factory, c10::Device device, Arguments& kept,
    c10::SmallVectorImpl<const at::Tensor*>& tensors, Marks& marks) {
  kept.values.reserve(count);
  for (size_t at = 0; at < count; ++at) {
    const IValue& value = stack[stack.size() - count + at];
    if (value.isTensor()) {
      const at::Tensor& tensor = value.toTensor();
      if (!tensor.defined()) {
        marks.push_back(-1);
        kept.values.emplace_back();
        continue;
      }
      if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) { // a Python number, whose tensor nobody else has
        if (!number(tensor, marks)) return false;
        kept.values.push_back(value);
        continue;
      }
      if (!plain(tensor, device)) return false;
      kept.spots.push_back({uint32_t(at), Spot::TENSOR, 1});
      kept.holes.push_back(hole_of(tensor, marks));
      tensors.push_back(&tensor);
      kept.values.emplace_back();
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      const auto kind = value.isTensorList() ? Spot::LIST : Spot::OPTIONAL_LIST;
      const auto list = value.toListRef();
      kept.spots.push_back({uint32_t(at), kind, uint32_t(list.size())});
      marks.insert(marks.end(), {-10, int64_t(list.size())});
      for (const IValue& each : list) {
        if (each.isNone() || !each.toTensor().defined()) {
          marks.push_back(-1);
          kept.holes.emplace_back().absent = true;
          continue;
        }
        const at::Tensor& tensor = each.toTensor();
        if (!plain(tensor, device)) return false;
        kept.holes.push_back(hole_of(tensor, marks));
        tensors.push_back(&tensor);
      }
      kept.values.emplace_back();
    } else {
      if (!mark(value, factory, marks)) return false;
      kept.values.push_back(value);
    }
  }
  return true;
}

// The tensors among the arguments of a call. False if one is of an unusual kind.
inline bool tensors_among(
    const Stack& stack, size_t count, c10::Device device, c10::SmallVectorImpl<const at::Tensor*>& tensors) {
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) return true;
    tensors.push_back(&tensor);
    return plain(tensor, device);
  };
  for (size_t at = stack.size() - count; at < stack.size(); ++at) {
    if (stack[at].isTensor() && !add(stack[at].toTensor())) return false;
    if (stack[at].isTensorList() || stack[at].isOptionalTensorList()) {
      for (const IValue& each : stack[at].toListRef()) {
        if (!each.isNone() && !add(each.toTensor())) return false;
      }
    }
  }
  return true;
}

// The tensor that a hole describes, over ``storage``.
inline at::Tensor filled(const Hole& hole, const c10::Storage& storage) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), hole.keys, hole.dtype);
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(
      {hole.layout.sizes_data(), hole.layout.size()}, {hole.layout.strides_data(), hole.layout.size()}, hole.offset);
  return tensor;
}

// The arguments with tensors over ``storages``, one for each that was there; without one, contents do not matter.
inline Stack arguments_over(const Arguments& kept, const std::vector<c10::Storage>& storages) {
  Stack stack(kept.values);
  size_t hole = 0, storage = 0;
  const auto next = [&] {
    const Hole& at = kept.holes[hole++];
    const c10::Storage& over = storages.at(storage++);
    if (over) return filled(at, over);
    const at::IntArrayRef sizes(at.layout.sizes_data(), at.layout.size());
    return at::empty(sizes, at::TensorOptions().dtype(at.dtype).device(kept.device));
  };
  for (const Spot& spot : kept.spots) {
    if (spot.kind == Spot::TENSOR) {
      stack[spot.argument] = next();
      continue;
    }
    c10::List<at::Tensor> list;
    c10::List<std::optional<at::Tensor>> optional;
    for (uint32_t at = 0; at < spot.count; ++at) {
      const bool absent = kept.holes[hole].absent;
      hole += absent;
      if (spot.kind == Spot::LIST) {
        list.push_back(absent ? at::Tensor() : next());
      } else {
        optional.push_back(absent ? std::optional<at::Tensor>() : next());
      }
    }
    stack[spot.argument] = spot.kind == Spot::LIST ? IValue(std::move(list)) : IValue(std::move(optional));
  }
  return stack;
}

// Nanoseconds, as time.perf_counter_ns counts them.
inline int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

// A clock: that of the system, or any Python callable, which needs the interpreter's lock.
struct Clock {
  PyObject* call = nullptr; // borrowed; null: that of the system
  int64_t operator()() const {
    if (!call) return now_ns();
    Locked locked;
    Ref now(checked(PyObject_CallNoArgs(call)));
    return PyLong_AsLongLong(now.get());
  }
};

// Keys of dispatch while an op of the program is under way: nothing above the backends, no mode, and not this.
inline c10::impl::LocalDispatchKeySet inside() {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  const auto above = DispatchKeySet(DispatchKeySet::FULL) ^ DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::Python);
  keys.excluded_ = keys.excluded_ | above | DispatchKeySet(DispatchKey::Fake);
  return keys;
}

// Adds the tensors in results, in order.
inline void tensors_in(const IValue& value, c10::SmallVectorImpl<at::Tensor>& found) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) found.push_back(value.toTensor());
  } else if (value.isList()) {
    for (const IValue& each : value.toListRef()) tensors_in(each, found);
  }
}

// The Python object that owns the arguments of a call: an opaque template, which can run the call again.
struct Kept {
  PyObject_HEAD
  Arguments* given;
};

inline void kept_free(PyObject* self) {
  delete reinterpret_cast<Kept*>(self)->given;
  Py_TYPE(self)->tp_free(self);
}

// run(storages, clock): a tuple of the results over the inputs' ``storages``, and the time of the kernel alone.
inline PyObject* kept_run(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  if (count != 2 || !PyList_Check(given[0])) {
    PyErr_SetString(PyExc_TypeError, "run(storages, clock)");
    return nullptr;
  }
  const Arguments& kept = *reinterpret_cast<Kept*>(self)->given;
  std::vector<c10::Storage> storages;
  storages.reserve(size_t(PyList_GET_SIZE(given[0])));
  for (Py_ssize_t at = 0; at < PyList_GET_SIZE(given[0]); ++at) {
    PyObject* each = PyList_GET_ITEM(given[0], at);
    storages.push_back(each == Py_None ? c10::Storage() : THPStorage_Unpack(each));
  }
  c10::impl::ForceDispatchKeyGuard guard(inside());
  Stack stack = arguments_over(kept, storages);
  Ref before(checked(PyObject_CallNoArgs(given[1])));
  {
    Unlocked unlocked;
    kept.op.callBoxed(stack);
  }
  Ref after(checked(PyObject_CallNoArgs(given[1])));
  Ref cost(checked(PyNumber_Subtract(after.get(), before.get())));
  c10::SmallVector<at::Tensor, 4> found;
  for (const IValue& value : stack) tensors_in(value, found);
  Ref results(checked(PyTuple_New(Py_ssize_t(found.size()))));
  for (size_t at = 0; at < found.size(); ++at) PyTuple_SET_ITEM(results.get(), at, checked(THPVariable_Wrap(found[at])));
  return PyTuple_Pack(2, results.get(), cost.get());
  END_HANDLE_TH_ERRORS
}

inline PyObject* kept_object(std::unique_ptr<Arguments> arguments);

// part(index, count): the arguments of the part for one of ``count`` tensors, and the places of their tensors.
inline PyObject* kept_part(PyObject* self, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "part(index, count)");
    return nullptr;
  }
  std::vector<Py_ssize_t> places;
  const auto number = [&](int at) { return uint32_t(PyLong_AsUnsignedLong(given[at])); };
  Ref part(kept_object(reinterpret_cast<Kept*>(self)->given->part(number(0), number(1), places)));
  Ref found(checked(PyList_New(Py_ssize_t(places.size()))));
  for (size_t at = 0; at < places.size(); ++at) PyList_SET_ITEM(found.get(), Py_ssize_t(at), checked(PyLong_FromSsize_t(places[at])));
  return PyTuple_Pack(2, part.get(), found.get());
  END_HANDLE_TH_ERRORS
}

inline PyTypeObject* kept_type() {
  static PyMethodDef methods[] = {
      {"run", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(kept_run)), METH_FASTCALL, "Run the call again."},
      {"part", reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(kept_part)), METH_FASTCALL, "Arguments of a part."},
      {}};
  static PyTypeObject type = [] {
    PyTypeObject made = {PyVarObject_HEAD_INIT(nullptr, 0)};
    made.tp_name = "tensortide_core.Kept";
    made.tp_doc = "Arguments of a call with holes where tensors were.";
    made.tp_basicsize = sizeof(Kept);
    made.tp_dealloc = kept_free;
    made.tp_flags = Py_TPFLAGS_DEFAULT;
    made.tp_methods = methods;
    return made;
  }();
  return &type;
}

inline PyObject* kept_object(std::unique_ptr<Arguments> arguments) {
  auto* made = PyObject_New(Kept, kept_type());
  if (!made) raise();
  made->given = arguments.release();
  return reinterpret_cast<PyObject*>(made);
}

} // namespace tide
