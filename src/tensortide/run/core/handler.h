// The fallback at a dispatch key below autograd. An ordinary op for which there is room is done here; everything else
// is handed to Python, which sees the op as if this were not there.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/PythonFallbackKernel.h>
#include <torch/csrc/autograd/graph_task.h>

#ifdef __SSE__
#include <immintrin.h>
#endif

#include "note.h"
#include "sweep.h"

namespace tide {

// The op as it runs without a budget.
inline void below(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  op.redispatchBoxed(keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::Fake), stack);
}

// The op as the modes on the stack have it.
inline void by_python(const c10::OperatorHandle& op, Stack* stack) {
  c10::impl::IncludeDispatchKeyGuard included(DispatchKeySet({DispatchKey::Python, DispatchKey::PythonTLSSnapshot}));
  at::impl::MaybeSetTLSOnEntryGuard entry;
  op.redispatchBoxed(DispatchKeySet(DispatchKey::Python), stack);
}

// An op whose facts are not known yet: Python has them once it has run it.
inline void first_by_python(const c10::OperatorHandle& op, Stack* stack, Facts& facts) {
  by_python(op, stack);
  State& s = state();
  Locked locked;
  const auto& name = op.operator_name();
  Ref found(checked(PyObject_CallFunction(s.facts_of.get(), "ss", name.name.c_str(), name.overload_name.c_str())));
  if (found.get() == Py_None) {
    facts.kind = Facts::PYTHON;
    return;
  }
  int view = 0, lean = 0, factory = 0, random = 0, foreach = 0;
  PyObject *written = nullptr, *statistics = nullptr, *func = nullptr;
  if (!PyArg_ParseTuple(
          found.get(), "pppppO!O!iO", &view, &lean, &factory, &random, &foreach, &PyTuple_Type, &written,
          &PyTuple_Type, &statistics, &facts.training, &func)) {
    raise();
  }
  for (auto [places, given] : {std::pair{&facts.written, written}, std::pair{&facts.statistics, statistics}}) {
    for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(given); ++at) {
      places->push_back(int(PyLong_AsLong(PyTuple_GET_ITEM(given, at))));
    }
  }
  facts.foreach = foreach;
  facts.lean = lean;
  facts.factory = factory;
  facts.random = random;
  facts.func = Ref::to(func);
  facts.kind = view ? Facts::VIEW : Facts::RUN;
}

// A call that allocates as no call before: Python finds out how much.
inline void sized_by_python(const c10::OperatorHandle& op, Stack* stack, Marks marks) {
  State& s = state();
  {
    Locked locked;
    if (PyObject_SetAttrString(s.runtime.get(), "room", Py_None)) raise();
  }
  by_python(op, stack);
  Locked locked;
  Ref room(checked(PyObject_GetAttrString(s.runtime.get(), "room")));
  if (room.get() == Py_None) return;
  constexpr size_t MOST = 1 << 16;
  if (s.rooms.size() >= MOST) s.rooms.clear();
  s.rooms.emplace(std::move(marks), std::move(room));
}

// A view takes nothing, but may look at the size of the storage, which has to be resident. False: Python brings it.
inline bool look(const c10::OperatorHandle& op, const Facts& facts, const Stack& stack) {
  State& s = state();
  Locked locked;
  if (busy(s)) return false;
  const size_t count = op.schema().arguments().size();
  for (size_t at = stack.size() - count; at < stack.size(); ++at) {
    if (stack[at].isTensor() && !seen(s, stack[at].toTensor())) return false;
    if (stack[at].isTensorList() || stack[at].isOptionalTensorList()) return false;
  }
  s.on_engine.ops.number(s.engine.get(), s.on_engine.ops.number(s.engine.get()) + 1);
  if (s.unwatched > 0) trace(s, facts.func.get(), Py_None, Py_None, Py_None);
  return true;
}

enum class Outcome { DONE, PYTHON, SIZE };

// What an op writes. ``blind``: the last of them, which its results do not depend on.
struct Writes {
  c10::SmallVector<Write, 2> all;
  size_t blind = 0;
  bool fixed = true, secure = true; // all of them
  std::unordered_set<PyObject*> among; // values of several

  // False if Python has to do it.
  bool find(State& s, const Facts& facts, const IValue* arguments) {
    for (int place : facts.written) {
      const IValue& argument = arguments[place];
      if (argument.isNone()) continue;
      if (!argument.isTensorList()) {
        if (!add(s, argument)) return false;
        continue;
      }
      for (const IValue& each : argument.toListRef()) {
        if (!add(s, each)) return false;
      }
    }
    if (facts.training < 0 ? !facts.statistics.empty() : arguments[facts.training].toBool()) {
      for (int place : facts.statistics) {
        if (arguments[place].isNone() || !arguments[place].toTensor().defined()) continue;
        if (!add(s, arguments[place])) return false;
        ++blind;
      }
    }
    for (const Write& each : all) {
      fixed = fixed && each.fixed;
      secure = secure && each.secure;
    }
    return (fixed && secure) || !blind;
  }

  // One that is given several times counts once.
  bool add(State& s, const IValue& argument) {
    Write& last = all.emplace_back();
    if (!last.find(s, argument)) return false;
    if (all.size() > 1 && among.empty()) among.insert(all.front().value.get());
    if (all.size() > 1 && !among.insert(last.value.get()).second) all.pop_back();
    return true;
  }

  // Results do not depend on what is only updated.
  void hide(PyObject* inputs) const {
    for (size_t at = all.size() - blind; at < all.size(); ++at) {
      for (Py_ssize_t input = 0; input < PyTuple_GET_SIZE(inputs); ++input) {
        if (PyTuple_GET_ITEM(inputs, input) != all[at].value.get()) continue;
        PyTuple_SET_ITEM(inputs, input, Py_NewRef(Py_None));
        Py_DECREF(all[at].value.get());
      }
    }
  }

  // Note that ``call``, or one that cannot be repeated (None), has overwritten them; ``reported``: the engine has heard
  // of them.
  void note(State& s, PyObject* call, bool reported) const {
    for (size_t at = 0; at < all.size(); ++at) {
      if (!reported) {
        all[at].note(s, call, at);
        continue;
      }
      Ref place(checked(PyLong_FromSize_t(at)));
      Ref(checked(PyObject_CallFunctionObjArgs(
          s.note_write.get(), all[at].value.get(), call, place.get(), s.on_engine.clock_ns.of(s.engine.get()), nullptr)));
    }
  }
};

// What Python has prepared for an op: what it reads is resident, what depends on what it writes is secure, and there is
// room. Until the op is over, its inputs are locked.
struct Prepared {
  State& s;
  Ref frame;

  explicit Prepared(State& s) : s(s) {}

  // False if Python has to do all of it.
  bool get(const Facts& facts, Read& read, const Writes& writes, PyObject* room) {
    Ref written(checked(PyList_New(Py_ssize_t(writes.all.size()))));
    for (size_t at = 0; at < writes.all.size(); ++at) {
      PyList_SET_ITEM(written.get(), Py_ssize_t(at), Py_NewRef(writes.all[at].value.get()));
    }
    frame = Ref(checked(PyObject_CallFunctionObjArgs(
        s.ready.get(), facts.func.get(), read.values.get(), read.holding(), written.get(), truth_of(read.resident), room,
        nullptr)));
    return frame.get() != Py_NotImplemented;
  }

  void end() {
    if (!frame.get()) return;
    Ref ended = std::move(frame);
    Ref(checked(PyObject_CallOneArg(s.abandon.get(), ended.get())));
  }
};

// Holds the lock on ops, unless another thread does.
struct Alone {
  State& s;
  bool got;
  explicit Alone(State& s) : s(s) {
    Ref found(checked(PyObject_CallMethodOneArg(s.lock.get(), s.acquire.get(), Py_False)));
    got = found.get() == Py_True;
  }
  ~Alone() {
    if (!got) return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    Py_XDECREF(PyObject_CallMethodNoArgs(s.lock.get(), s.release.get()));
    PyErr_Restore(type, value, traceback);
  }
};

// The state of the generator that an op is about to draw from, as a Recomputable has it.
inline Ref drawn_from(State& s) {
  Ref state(checked(PyObject_CallMethod(s.generator.get(), "get_state", nullptr)));
  Ref pair(checked(PyTuple_Pack(2, s.generator.get(), state.get())));
  Ref all(checked(PyList_New(1)));
  PyList_SET_ITEM(all.get(), 0, pair.release());
  return all;
}

// Control bits of the processor's arithmetic: how it takes denormal numbers.
inline unsigned arithmetic() {
#ifdef __SSE__
  return _mm_getcsr() & ~unsigned(_MM_EXCEPT_MASK);
#else
  return 0;
#endif
}

// True if threads and arithmetic are those of the last op; if not, Python looks at the settings.
inline bool as_before(State& s) {
  const int threads = at::get_num_threads();
  const unsigned bits = arithmetic();
  const bool alike = threads == s.threads && bits == s.arithmetic;
  s.threads = threads;
  s.arithmetic = bits;
  return alike;
}

// Runs an op whose inputs are resident and for which there is room. PYTHON: there is more to do than that; SIZE: nobody
// knows yet how much it takes, and ``marks`` of the state tell it apart from other calls.
inline Outcome run(const c10::OperatorHandle& op, const Facts& facts, DispatchKeySet keys, Stack* stack) {
  State& s = state();
  c10::impl::ForceDispatchKeyGuard guard(inside());
  Locked locked;
  Uncollected uncollected;
  PyObject* engine = s.engine.get();
  const Alone alone(s);
  if (!alone.got || busy(s) || !as_before(s)) return Outcome::PYTHON;
  if (PyObject_Size(s.freed.get()) > 0) Ref(checked(PyObject_CallNoArgs(s.collect.get())));
  const int64_t resident = s.on_engine.memory.number(engine) + s.on_engine.away_bytes.number(engine);
  if (resident < s.on_engine.low.number(engine)) s.on_engine.low.number(engine, resident);
  Ref now = Ref::to(s.on_engine.clock_ns.of(engine));
  const size_t count = op.schema().arguments().size();
  Writes writes;
  if (!writes.find(s, facts, stack->data() + stack->size() - count)) return Outcome::PYTHON;

  // What it reads, and room for what it makes.
  const bool update = facts.lean && writes.fixed;
  c10::SmallVector<const at::Tensor*, 8> tensors;
  std::unique_ptr<Arguments> kept;
  if (update) {
    if (!tensors_among(*stack, count, s.device, tensors)) return Outcome::PYTHON;
  } else {
    kept = std::make_unique<Arguments>(op, s.device);
    s.marks.clear();
    s.marks.push_back(reinterpret_cast<int64_t>(&facts));
    if (!keep(*stack, count, facts.factory, s.device, *kept, tensors, s.marks)) return Outcome::PYTHON;
  }
  Read read(tensors.size());
  for (const at::Tensor* tensor : tensors) {
    if (!read.add(s, *tensor, now.get())) return Outcome::PYTHON;
  }
  Ref room = Ref::to(s.no_room.get());
  int64_t nbytes = 0, workspace = 0;
  if (!update) {
    const auto known = s.rooms.find(s.marks);
    if (known == s.rooms.end()) return Outcome::SIZE;
    room = Ref::to(known->second.get());
    if (s.room_open.of(room.get()) != Py_False) return Outcome::PYTHON;
    nbytes = s.room_nbytes.number(room.get());
    workspace = s.room_workspace.number(room.get());
  }
  Ref generators;
  if (facts.random && !update) generators = drawn_from(s);
  const bool fits = s.on_engine.memory.number(engine) + nbytes + workspace <= s.on_engine.budget.number(engine);
  const bool reported = !fits || !read.resident || !writes.secure;
  if (reported && s.unwatched > 0) return Outcome::PYTHON; // watchers hear first what has run
  const bool unwatched = s.unwatched > 0;
  Ref inputs = unwatched ? read.blocks(s) : Ref();
  Prepared prepared(s);
  if (reported && !prepared.get(facts, read, writes, room.get())) return Outcome::PYTHON;
  const Clock clock{s.clock};
  const int64_t began = clock();
  const bool repeatable = writes.all.empty() && !facts.random;
  const Stack before = repeatable ? Stack(stack->end() - int64_t(count), stack->end()) : Stack();
  const size_t depth = stack->size();
  try {
    Unlocked unlocked;
    below(op, keys, stack);
  } catch (const c10::Error& error) {
    prepared.end();
    if (!repeatable || std::string_view(error.what()).find("memory") == std::string_view::npos) throw;
    stack->resize(depth - count); // the device may have too little memory: Python knows an answer
    stack->insert(stack->end(), before.begin(), before.end());
    return Outcome::PYTHON;
  } catch (...) {
    prepared.end();
    throw;
  }
  const int64_t cost = clock() - began;
  prepared.end();

  // What has run.
  const int64_t number = s.on_engine.ops.number(engine);
  s.on_engine.ops.number(engine, number + 1);
  if (unwatched && update) trace(s, facts.func.get(), Py_None, inputs.get(), Py_None);
  if (update) {
    ran(s, cost, 0, 0);
    for (const Write& each : writes.all) each.note(s, Py_None, 0);
    return Outcome::DONE;
  }
  writes.hide(read.values.get());
  const size_t several = facts.foreach ? kept->several() : 0;
  trail(s, room.get());
  Ref call = call_of(s, facts, std::move(kept), read, std::move(generators), number, settled(s, room.get(), cost), workspace);
  const bool wrote = writes.all.size() > writes.blind; // then the call made that, and nothing else
  Made made(s, wrote ? nullptr : call.get());
  made.take(*stack, op.schema().returns().size());
  ran(s, cost, made.grown, workspace);
  if (unwatched) trace(s, facts.func.get(), room.get(), inputs.get(), made.blocks(*stack, op.schema().returns().size()).get());
  if (made.grown) s.on_call.nbytes.number(call.get(), made.grown);
  made.seen();
  const bool each = several && several == (wrote ? writes.all.size() : made.values.size());
  if (each) s.on_call.count.number(call.get(), int64_t(several));
  writes.note(s, wrote && (each || writes.all.size() == 1) ? call.get() : Py_None, reported);
  if (made.grown > nbytes) Ref(checked(PyObject_CallMethod(room.get(), "learn", "LO", (long long)made.grown, Py_None)));
  if (s.on_engine.memory.number(engine) > s.on_engine.budget.number(engine)) {
    Ref(checked(PyObject_CallOneArg(s.over.get(), facts.func.get())));
  } else if (number + 1 > s.pending_due.number(s.pending.get())) {
    Sweep(s).run(number + 1);
  }
  return Outcome::DONE;
}

// Runs the handlers of signals that have arrived during an op.
inline void deliver(State& s) {
  if (!Py_SIZE(s.waiting.get())) return; // a list that handlers on this thread add to
  Locked locked;
  Ref(checked(PyObject_CallNoArgs(s.deliver.get())));
}

inline void handle(const c10::OperatorHandle& op, DispatchKeySet keys, Stack* stack) {
  using c10::impl::TorchDispatchModeTLS;
  if (c10::impl::tls_is_dispatch_key_excluded(DispatchKey::Python) || !TorchDispatchModeTLS::any_modes_set()) {
    below(op, keys, stack);
    return;
  }
  State& s = state();
  if (!mine() || TorchDispatchModeTLS::stack_len() != s.depth ||
      TorchDispatchModeTLS::get_stack_at(s.depth - 1)->ptr(getPyInterpreter()) != s.runtime.get()) {
    by_python(op, stack);
    return;
  }
  Facts& facts = s.facts[op];
  if (facts.kind == Facts::UNSEEN) {
    first_by_python(op, stack, facts);
  } else if (facts.kind == Facts::VIEW && look(op, facts, *stack)) {
    c10::impl::ForceDispatchKeyGuard guard(inside());
    below(op, keys, stack);
  } else if (facts.kind == Facts::RUN) {
    const Outcome outcome = run(op, facts, keys, stack);
    if (outcome == Outcome::DONE) {
      deliver(s);
    } else if (outcome == Outcome::PYTHON) {
      by_python(op, stack);
    } else if (outcome == Outcome::SIZE) {
      sized_by_python(op, stack, s.marks);
    }
  } else {
    by_python(op, stack);
  }
}

} // namespace tide
