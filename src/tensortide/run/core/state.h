// What the open budget is made of, as Python has it: its tables, its counters, and the classes of what is in them.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "kept.h"

namespace tide {

constexpr int64_t PENDING = -1;

// Facts of an op, which Python found.
struct Facts {
  enum Kind { UNSEEN, PYTHON, VIEW, RUN };
  Kind kind = UNSEEN;
  bool lean = false, factory = false, random = false;
  bool foreach = false; // it does one thing to each tensor of its lists
  std::vector<int> written; // places of the arguments that it writes
  std::vector<int> statistics; // places of those that it updates, which its results do not depend on,
  int training = -1; // if this argument is true
  Ref func;
};

struct BlockFields {
  Field aliases, counted, key, nbytes, read, seen_ns, stays, storage, writers, written;
};
struct ValueFields {
  Field block, call, place, writes;
};
struct CallFields {
  Field func, args, kwargs, generators, inputs, number, gradients, cost_ns, nbytes, workspace_bytes, trail, backward, held, count;
};
struct EngineFields {
  Field away_bytes, base_ns, budget, clock_ns, epoch, low, memory, ops, peak, plain_peak, taken_bytes, trail;
};

struct MarksHash {
  size_t operator()(const Marks& marks) const {
    uint64_t hash = marks.size();
    for (int64_t mark : marks) hash = (hash ^ uint64_t(mark)) * 0x9E3779B97F4A7C15ull ^ (hash >> 29);
    return hash;
  }
};

// The Python side. There is one, since one budget can be open at a time.
struct State {
  // classes
  Maker block, value, call;
  BlockFields on_block;
  ValueFields on_value;
  CallFields on_call;
  EngineFields on_engine;
  Field room_nbytes, room_workspace, room_open, room_cost, room_mark, pending_due;
  // of the open budget
  Ref runtime, engine, pending, in_flight, known, values, shared, unfilled, gradients, watchers, freed;
  Ref fixed, defined, engine_values, resident, children, last_access; // lists of the engine
  Ref callback; // `dropped` below, as Python calls it
  Ref lock, waiting, deliver; // of other threads, of signals
  Ref crowded, keeping, flights, acquire, release; // names
  Ref detach; // the op
  Ref generator; // the default one
  Ref parents, pool, storage_bytes, work, nodes, above, sums; // for the search of what to evict
  int64_t by_work = 0, by_size = 0, by_staleness = 0;
  Ref memories, dead, depth_of; // lists of the engine, for the search of histories
  int64_t never = 0, seldom = 0;
  Ref collect, dropped, facts_of, fresh, over, abandon, ready, note_write, gradient; // functions of Python
  Ref no_room;
  Ref clock_held;
  PyObject* clock = nullptr; // null: that of the system
  c10::Device device = c10::kCPU;
  int64_t most_writes = 0, small = 0;
  int64_t depth = 0; // of the stack of modes
  int64_t unwatched = 0; // ops from now on that the watcher need not see,
  Ref log; // where each leaves a tuple: what ran, its room, the blocks that it read, and those of its results
  int threads = -1; // at the last op
  unsigned arithmetic = 0;
  // what was learnt
  std::unordered_map<c10::OperatorHandle, Facts> facts;
  std::unordered_map<Marks, Ref, MarksHash> rooms;
  Ref sizes; // whose rooms they are
  Marks marks;
};

inline State& state() {
  static State* state = new State; // never destroyed: Python may be gone by then
  return *state;
}

// True on the thread that opened the budget.
inline bool& mine() {
  thread_local bool mine = false;
  return mine;
}

// True if ops are watched, communicate, or share the budget with other threads: Python sees to all of that.
inline bool busy(State& s) {
  const auto on = [](const Ref& owner, const Ref& name) {
    Ref found(checked(PyObject_GetAttr(owner.get(), name.get())));
    return PyObject_IsTrue(found.get()) != 0;
  };
  const bool watched = PyList_GET_SIZE(s.watchers.get()) > (s.unwatched > 0); // a second watcher sees all
  return watched || on(s.runtime, s.crowded) || on(s.runtime, s.keeping) || on(s.in_flight, s.flights);
}

inline int64_t at(PyObject* list, int64_t index) { return PyLong_AsLongLong(PyList_GET_ITEM(list, index)); }
inline bool truth(PyObject* list, int64_t index) { return PyObject_IsTrue(PyList_GET_ITEM(list, index)) == 1; }

// Value of a storage, borrowed; null if it is not known.
inline PyObject* value_of(State& s, const c10::StorageImpl* storage) {
  Ref key(checked(PyLong_FromVoidPtr(const_cast<c10::StorageImpl*>(storage))));
  return PyDict_GetItemWithError(s.known.get(), key.get());
}

// Leaves a trace of an op that the watcher has not seen.
inline void trace(State& s, PyObject* func, PyObject* room, PyObject* inputs, PyObject* outputs) {
  --s.unwatched;
  Ref entry(checked(PyTuple_Pack(4, func, room, inputs, outputs)));
  if (PyList_Append(s.log.get(), entry.get())) raise();
}

// Its number in the engine; PENDING if the engine has not heard of it.
inline int64_t storage_of(State& s, PyObject* value) { return s.on_block.storage.number(s.on_value.block.of(value)); }

// Account for the end of a storage: a weak reference to it has been cleared. Python does so for what the engine knows,
// and on other threads, which change no counter of the engine: an op that does may be under way.
inline PyObject* dropped(PyObject*, PyObject* block) {
  State& s = state();
  if (!s.known.get()) Py_RETURN_NONE;
  Ref key = Ref::to(s.on_block.key.of(block));
  PyObject* value = PyDict_GetItemWithError(s.known.get(), key.get());
  if (!value || s.on_value.block.of(value) != block) Py_RETURN_NONE;
  if (!mine() || s.on_block.storage.number(block) != PENDING || PyDict_GetItemWithError(s.shared.get(), key.get()) ||
      PyDict_GetItemWithError(s.unfilled.get(), key.get()) || PySet_Contains(s.gradients.get(), block)) {
    return PyObject_CallOneArg(s.dropped.get(), block);
  }
  Ref held = Ref::to(value);
  PyDict_DelItem(s.known.get(), key.get());
  if (PyDict_GetItemWithError(s.values.get(), key.get())) PyDict_DelItem(s.values.get(), key.get());
  if (s.on_block.counted.of(block) == Py_True) {
    s.on_block.counted.share(block, Py_False);
    PyObject* engine = s.engine.get();
    s.on_engine.memory.number(engine, s.on_engine.memory.number(engine) - s.on_block.nbytes.number(block));
  }
  Py_RETURN_NONE;
}

} // namespace tide
