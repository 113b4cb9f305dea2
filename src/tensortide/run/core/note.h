// What is remembered of an op: what it reads, writes and makes, and the call that can make it again.
#pragma once

#include <torch/csrc/autograd/graph_task.h>

#include "state.h"

namespace tide {

inline c10::StorageImpl* storage_impl(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// True if what a view looks at is resident.
inline bool seen(State& s, const at::Tensor& tensor) {
  if (!tensor.defined()) return true;
  if (!plain(tensor, s.device)) return false;
  PyObject* value = value_of(s, storage_impl(tensor));
  if (!value) return false;
  const int64_t number = storage_of(s, value);
  return number == PENDING || truth(s.resident.get(), number);
}

inline PyObject* truth_of(bool is) { return is ? Py_True : Py_False; }

// The value of a new storage: made by ``call``, or None. It is pending, and counts.
inline Ref new_value(State& s, const at::Tensor& tensor, PyObject* key, PyObject* call) {
  Ref arguments(checked(PyTuple_New(2)));
  PyTuple_SET_ITEM(arguments.get(), 0, checked(THPStorage_Wrap(tensor.storage())));
  PyTuple_SET_ITEM(arguments.get(), 1, Py_NewRef(s.callback.get()));
  Ref block(s.block.fill(checked(s.block.type->tp_new(s.block.type, arguments.get(), nullptr))));
  s.on_block.key.share(block.get(), key);
  s.on_block.nbytes.number(block.get(), int64_t(storage_impl(tensor)->nbytes()));
  s.on_block.counted.share(block.get(), Py_True);
  Ref value(s.value.make());
  s.on_value.block.set(value.get(), block.release());
  s.on_value.call.share(value.get(), call);
  if (PyDict_SetItem(s.known.get(), key, value.get()) || PyDict_SetItem(s.values.get(), key, value.get())) raise();
  return value;
}

// Values of tensors that an op reads, and the storages of those that cannot be recomputed.
struct Read {
  Ref values, held; // a tuple, a list
  bool resident = true;

  explicit Read(size_t tensors) : values(checked(PyTuple_New(Py_ssize_t(tensors)))) {}

  // False if Python has to hear of it.
  bool add(State& s, const at::Tensor& tensor, PyObject* now) {
    auto* storage = storage_impl(tensor);
    Ref key(checked(PyLong_FromVoidPtr(storage)));
    PyObject* value = PyDict_GetItemWithError(s.known.get(), key.get());
    if (!value) return false;
    if (PyDict_GET_SIZE(s.unfilled.get()) && PyDict_GetItemWithError(s.unfilled.get(), key.get())) return false;
    PyObject* block = s.on_value.block.of(value);
    if (s.on_block.writers.of(block) != Py_None) return false;
    const int64_t number = s.on_block.storage.number(block);
    if (number == PENDING) {
      s.on_block.seen_ns.share(block, now);
      if (s.on_block.stays.of(block) == Py_True) hold(storage);
    } else {
      if (at(s.fixed.get(), number)) {
        hold(storage);
      } else {
        PyObject* newest = PyList_GET_ITEM(s.engine_values.get(), number);
        resident = resident && truth(s.defined.get(), at(newest, PyList_GET_SIZE(newest) - 1));
        s.on_block.read.share(block, s.on_engine.epoch.of(s.engine.get()));
      }
      PyList_SetItem(s.last_access.get(), number, Py_NewRef(now));
    }
    PyTuple_SET_ITEM(values.get(), added++, Py_NewRef(value));
    return true;
  }

  Ref blocks(State& s) const {
    Ref found(checked(PyTuple_New(added)));
    for (Py_ssize_t at = 0; at < added; ++at) {
      PyTuple_SET_ITEM(found.get(), at, Py_NewRef(s.on_value.block.of(PyTuple_GET_ITEM(values.get(), at))));
    }
    return found;
  }

  PyObject* holding() {
    if (!held.get()) held = Ref(checked(PyList_New(0)));
    return held.get();
  }

 private:
  Py_ssize_t added = 0;

  void hold(c10::StorageImpl* storage) {
    holding();
    if (PyList_Append(held.get(), object_of(storage->pyobj_slot()))) raise();
  }
};

// A storage that an op writes.
struct Write {
  Ref value;
  PyObject* block = nullptr;
  bool fixed = false; // it cannot be recomputed, and the engine knows
  bool secure = true; // the engine need not hear before it is overwritten

  // False if Python has to do it.
  bool find(State& s, const IValue& argument) {
    if (!argument.isTensor() || !argument.toTensor().defined() || !plain(argument.toTensor(), s.device)) return false;
    PyObject* found = value_of(s, storage_impl(argument.toTensor()));
    if (!found) return false;
    block = s.on_value.block.of(found);
    if (s.on_block.aliases.of(block) != Py_None) return false;
    value = Ref::to(found);
    const int64_t number = s.on_block.storage.number(block);
    if (number == PENDING) return true;
    fixed = at(s.fixed.get(), number);
    secure = fixed && !PyDict_GET_SIZE(PyList_GET_ITEM(s.children.get(), number));
    return true;
  }

  // Note that ``call``, or one that cannot be repeated (None), has overwritten it, as number ``at`` of several.
  void note(State& s, PyObject* call, size_t at) const {
    if (fixed) {
      s.on_block.written.share(block, s.on_engine.ops.of(s.engine.get()));
      return;
    }
    const int64_t writes = s.on_value.writes.number(value.get());
    Ref next(s.value.make());
    s.on_value.block.share(next.get(), block);
    const bool stays = writes >= s.most_writes || s.on_block.stays.of(block) == Py_True;
    s.on_value.call.share(next.get(), stays ? Py_None : call);
    s.on_value.place.number(next.get(), -1 - int64_t(at));
    s.on_value.writes.number(next.get(), writes + 1);
    s.on_block.seen_ns.share(block, s.on_engine.clock_ns.of(s.engine.get()));
    PyObject* key = s.on_block.key.of(block);
    if (PyDict_SetItem(s.known.get(), key, next.get()) || PyDict_SetItem(s.values.get(), key, next.get())) raise();
  }
};

// Account for an op that ran.
inline void ran(State& s, int64_t cost, int64_t grown, int64_t workspace) {
  PyObject* engine = s.engine.get();
  const auto add = [&](const Field& field, int64_t more) {
    const int64_t sum = field.number(engine) + more;
    if (more) field.number(engine, sum);
    return sum;
  };
  s.on_engine.taken_bytes.number(engine, workspace);
  add(s.on_engine.clock_ns, cost);
  add(s.on_engine.base_ns, cost);
  const int64_t taken = add(s.on_engine.memory, grown) + workspace;
  if (taken > s.on_engine.peak.number(engine)) s.on_engine.peak.number(engine, taken);
  const int64_t plain = taken + s.on_engine.away_bytes.number(engine);
  if (plain > s.on_engine.plain_peak.number(engine)) s.on_engine.plain_peak.number(engine, plain);
}

// Adds an op to the trail.
inline void trail(State& s, PyObject* room) {
  constexpr uint64_t TRAIL = (uint64_t(1) << 62) - 1;
  const Field& on = s.on_engine.trail;
  const auto before = uint64_t(on.number(s.engine.get()));
  on.number(s.engine.get(), int64_t((2 * before + uint64_t(s.room_mark.number(room))) & TRAIL));
}

// The cost of a call that took ``cost``: the least time of such calls, by the system's clock.
inline int64_t settled(State& s, PyObject* room, int64_t cost) {
  if (s.clock) return cost;
  const int64_t least = s.room_cost.number(room);
  if (least && least <= cost) return least;
  s.room_cost.number(room, cost);
  return cost;
}

// The Recomputable of an op that has run.
inline Ref call_of(
    State& s, const Facts& facts, std::unique_ptr<Arguments> kept, Read& read, Ref generators, int64_t number,
    int64_t cost, int64_t workspace) {
  const bool gradients = c10::GradMode::is_enabled();
  Ref call(s.call.make());
  const auto& on = s.on_call;
  on.func.share(call.get(), facts.func.get());
  on.args.set(call.get(), kept_object(std::move(kept)));
  on.inputs.set(call.get(), read.values.release());
  on.number.number(call.get(), number);
  on.gradients.share(call.get(), truth_of(gradients));
  on.cost_ns.number(call.get(), cost);
  on.trail.share(call.get(), s.on_engine.trail.of(s.engine.get()));
  if (workspace) on.workspace_bytes.number(call.get(), workspace);
  if (!gradients && torch::autograd::get_current_graph_task_id() >= 0) on.backward.share(call.get(), Py_True);
  if (generators.get()) on.generators.set(call.get(), generators.release());
  if (read.held.get()) on.held.set(call.get(), read.held.release());
  return call;
}

// Values in the new storages of results.
struct Made {
  State& s;
  PyObject* call;
  int64_t grown = 0;
  c10::SmallVector<Ref, 4> values;

  Made(State& s, PyObject* call) : s(s), call(call) {}

  void take(const Stack& stack, size_t returns) {
    c10::SmallVector<at::Tensor, 4> tensors;
    for (size_t at = stack.size() - returns; at < stack.size(); ++at) tensors_in(stack[at], tensors);
    for (const at::Tensor& tensor : tensors) {
      if (!ordinary(tensor)) {
        by_python(tensors);
        return;
      }
    }
    for (size_t place = 0; place < tensors.size(); ++place) add(tensors[place], place);
  }

  // Those of all results, new or not.
  Ref blocks(const Stack& stack, size_t returns) const {
    c10::SmallVector<at::Tensor, 4> tensors;
    for (size_t at = stack.size() - returns; at < stack.size(); ++at) tensors_in(stack[at], tensors);
    Ref found(checked(PyList_New(0)));
    for (const at::Tensor& tensor : tensors) {
      PyObject* value = tensor.has_storage() ? value_of(s, storage_impl(tensor)) : nullptr;
      if (PyList_Append(found.get(), value ? s.on_value.block.of(value) : Py_None)) raise();
    }
    return found;
  }

  // Notes when they were last used.
  void seen() {
    for (const Ref& value : values) {
      s.on_block.seen_ns.share(s.on_value.block.of(value.get()), s.on_engine.clock_ns.of(s.engine.get()));
    }
  }

 private:
  // False for results that Python has rules for.
  bool ordinary(const at::Tensor& tensor) const {
    if (!plain(tensor, s.device)) return false;
    if (value_of(s, storage_impl(tensor))) return true;
    if (!call || !storage_impl(tensor)->resizable()) return false;
    const auto type = tensor.scalar_type();
    return !(type == at::kLong || type == at::kInt) || tensor.dim() > 1 || int64_t(storage_impl(tensor)->nbytes()) > s.small;
  }

  void add(const at::Tensor& tensor, size_t place) {
    Ref key(checked(PyLong_FromVoidPtr(storage_impl(tensor))));
    if (PyDict_GetItemWithError(s.known.get(), key.get())) return;
    Ref value = new_value(s, tensor, key.get(), call);
    if (place) s.on_value.place.number(value.get(), int64_t(place));
    values.push_back(std::move(value));
    grown += int64_t(storage_impl(tensor)->nbytes());
  }

  void by_python(const c10::SmallVectorImpl<at::Tensor>& tensors) {
    Ref results(checked(PyList_New(0)));
    for (const at::Tensor& tensor : tensors) {
      Ref each(checked(THPVariable_Wrap(tensor)));
      if (PyList_Append(results.get(), each.get())) raise();
    }
    Ref found(checked(PyObject_CallFunctionObjArgs(s.fresh.get(), results.get(), call ? call : Py_None, nullptr)));
    PyObject* made = PyTuple_GET_ITEM(found.get(), 0);
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(made); ++at) values.push_back(Ref::to(PyList_GET_ITEM(made, at)));
    grown = PyLong_AsLongLong(PyTuple_GET_ITEM(found.get(), 1));
  }
};

} // namespace tide
