// The search of the histories of ops not yet reported, as storages.py (Pending.sweep), whose results it has.
#pragma once

#include <algorithm>

#include "state.h"

namespace tide {

class Sweep {
 public:
  explicit Sweep(State& s) : s(s) {}

  // Ends the histories of values that can no longer be recomputed. Afterwards ``behind`` has the calls behind the others.
  void run(int64_t number) {
    find();
    const auto searched = int64_t(behind.size());
    for (size_t at = 0; at < behind.size(); ++at) {
      behind[at].depth = depth_of(behind[at].call);
      for (PyObject* value : behind[at].made) {
        if (s.on_value.place.number(value) < 0) overwritten(s.on_value.block.of(value));
      }
      each_input(behind[at].call, [&](PyObject* value) {
        if (storage_of(s, value) == PENDING) readers[s.on_value.block.of(value)].push_back(at);
      });
    }
    std::vector<Ref> cut;
    for (Py_ssize_t at = 0; at < held; ++at) {
      PyObject* call = s.on_value.call.of(queue[size_t(at)].get());
      if (call != Py_None && depth(call) >= s.never) cut.push_back(Ref::to(queue[size_t(at)].get()));
    }
    for (const Ref& value : cut) s.on_value.call.share(value.get(), Py_None);
    s.pending_due.number(s.pending.get(), number + std::max(s.seldom, 2 * searched));
    if (!cut.empty()) find();
  }

  // The calls, in the order in which they ran, each with the values that it made.
  PyObject* calls() const {
    Ref all(checked(PyList_New(Py_ssize_t(behind.size()))));
    for (size_t at = 0; at < behind.size(); ++at) {
      const auto& made = behind[at].made;
      Ref values(checked(PyList_New(Py_ssize_t(made.size()))));
      for (size_t each = 0; each < made.size(); ++each) PyList_SET_ITEM(values.get(), Py_ssize_t(each), Py_NewRef(made[each]));
      PyList_SET_ITEM(all.get(), Py_ssize_t(at), checked(PyTuple_Pack(2, behind[at].call, values.get())));
    }
    return all.release();
  }

 private:
  struct Call {
    PyObject* call;
    int64_t number, depth; // of a chain of ops; ``never``: it cannot be recomputed
    std::vector<PyObject*> made;
  };

  template <class Action>
  void each_input(PyObject* call, Action action) const {
    Ref inputs(checked(PySequence_Fast(s.on_call.inputs.of(call), "inputs")));
    for (Py_ssize_t at = 0; at < PySequence_Fast_GET_SIZE(inputs.get()); ++at) {
      PyObject* value = PySequence_Fast_GET_ITEM(inputs.get(), at);
      if (value != Py_None) action(value);
    }
  }

  void push(PyObject* value) { queue.push_back(Ref::to(value)); }

  void find() {
    queue.clear();
    behind.clear();
    places.clear();
    readers.clear();
    std::unordered_set<PyObject*> seen;
    PyObject *key = nullptr, *value = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(s.values.get(), &position, &key, &value)) push(value);
    held = Py_ssize_t(queue.size());
    for (const Ref& each : queue) seen.insert(each.get());
    for (size_t at = 0; at < queue.size(); ++at) {
      value = queue[at].get();
      if (s.on_value.call.of(value) == Py_None) continue;
      if (s.on_call.count.number(s.on_value.call.of(value))) split(value);
      PyObject* call = s.on_value.call.of(value);
      const auto [found, fresh] = places.emplace(call, behind.size());
      if (!fresh) {
        behind[found->second].made.push_back(value);
        continue;
      }
      behind.push_back({call, s.on_call.number.number(call), s.never, {value}});
      each_input(call, [&](PyObject* near) {
        if (seen.insert(near).second) push(near);
      });
    }
    std::stable_sort(behind.begin(), behind.end(), [](const Call& a, const Call& b) { return a.number < b.number; });
    for (size_t at = 0; at < behind.size(); ++at) places[behind[at].call] = at;
  }

  // Lets ``value`` be of its own part of a call for several tensors.
  void split(PyObject* value) const {
    const int64_t place = s.on_value.place.number(value);
    const bool fresh = place >= 0;
    Ref part(checked(PyObject_CallMethod(s.on_value.call.of(value), "part", "L", (long long)(fresh ? place : -1 - place))));
    s.on_value.call.set(value, part.release());
    s.on_value.place.number(value, fresh ? 0 : -1);
  }

  int64_t depth(PyObject* call) const {
    const auto found = places.find(call);
    return found == places.end() ? s.never : behind[found->second].depth;
  }

  PyObject* pending_at(PyObject* block) const {
    return PyDict_GetItemWithError(s.values.get(), s.on_block.key.of(block));
  }

  // Length of the longest chain of ops that recomputing ``call`` may take.
  int64_t depth_of(PyObject* call) const {
    int64_t deepest = 0;
    each_input(call, [&](PyObject* value) { deepest = std::max(deepest, depth_below(call, value)); });
    return std::min(deepest + 1, s.never);
  }

  int64_t depth_below(PyObject* call, PyObject* value) const {
    PyObject* block = s.on_value.block.of(value);
    const int64_t storage = s.on_block.storage.number(block);
    if (storage != PENDING) {
      if (PyList_GET_ITEM(s.memories.get(), storage) != block || truth(s.dead.get(), storage)) return s.never;
      if (at(s.fixed.get(), storage) && s.on_block.written.number(block) > s.on_call.number.number(call)) return s.never;
      return at(s.depth_of.get(), storage);
    }
    PyObject* now = pending_at(block);
    const bool lost = now && now != value && s.on_value.call.of(now) == Py_None && s.on_value.block.of(now) == block;
    if (lost) return s.never;
    const int64_t below = depth(s.on_value.call.of(value));
    if (below < s.never) return below;
    return now == value ? 0 : s.never;
  }

  // Ends the histories of values made from ``block`` so far: directly, or from values that are gone.
  void overwritten(PyObject* block) {
    std::vector<PyObject*> blocks{block};
    for (size_t at = 0; at < blocks.size(); ++at) {
      const auto found = readers.find(blocks[at]);
      if (found == readers.end()) continue;
      const std::vector<size_t> calls = std::move(found->second);
      readers.erase(found);
      for (size_t call : calls) {
        for (PyObject* value : behind[call].made) {
          PyObject* other = s.on_value.block.of(value);
          if (other == block) continue;
          behind[call].depth = s.never;
          if (pending_at(other) != value) blocks.push_back(other);
        }
      }
    }
  }

  State& s;
  Py_ssize_t held = 0; // values that the program holds: the first of the queue
  std::vector<Ref> queue;
  std::vector<Call> behind;
  std::unordered_map<PyObject*, size_t> places; // of calls
  std::unordered_map<PyObject*, std::vector<size_t>> readers; // of blocks
};

} // namespace tide
