// The compiled core of a live memory budget, a Python module: arm() lets it handle the ops of this thread, disarm()
// ends that, apart() runs a function as if it were not there.
#include <torch/csrc/Device.h>
#include <torch/library.h>

#include "handler.h"
#include "pages.h"
#include "search.h"

namespace tide {
namespace {

const DispatchKeySet python_keys({DispatchKey::Python, DispatchKey::PythonTLSSnapshot});

void include(bool core) {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  const DispatchKeySet own(DispatchKey::Fake);
  const bool modes = c10::impl::TorchDispatchModeTLS::any_modes_set();
  keys.included_ = core ? (keys.included_ - python_keys) | own : keys.included_ - own;
  if (!core && modes) keys.included_ = keys.included_ | python_keys;
  c10::impl::_force_tls_local_dispatch_key_set(keys);
}

bool armed() { return c10::impl::tls_is_dispatch_key_included(DispatchKey::Fake); }

// Refuses if the key has a fallback already: another one on top of it would end the process.
bool registered() {
  static const bool done = [] {
    try {
      static torch::Library library(torch::Library::IMPL, "_", DispatchKey::Fake, __FILE__, __LINE__);
      library.fallback(torch::CppFunction::makeFromBoxedFunction<&handle>());
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }();
  return done;
}

PyCFunction fast(PyObject* (*function)(PyObject*, PyObject* const*, Py_ssize_t)) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function));
}

PyObject* module_register(PyObject*, PyObject*) { return PyBool_FromLong(registered()); }

Ref named(PyObject* from, const char* name) { return Ref(checked(PyObject_GetAttrString(from, name))); }

// open(runtime, hooks): what the open budget is made of. ``hooks`` has prototypes of the classes, functions, limits.
PyObject* module_open(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  if (count != 2) {
    PyErr_SetString(PyExc_TypeError, "open(runtime, hooks)");
    return nullptr;
  }
  State& s = state();
  PyObject* hooks = given[1];
  s.runtime = Ref::to(given[0]);
  s.engine = named(given[0], "engine");
  PyObject* engine = s.engine.get();
  s.pending = named(given[0], "pending");
  s.known = named(given[0], "known");
  s.watchers = named(given[0], "watchers");
  s.values = named(s.pending.get(), "values");
  s.shared = named(named(given[0], "storages").get(), "shared");
  s.in_flight = named(given[0], "in_flight");
  Ref interrupts = named(given[0], "interrupts");
  s.lock = named(interrupts.get(), "lock");
  s.waiting = named(interrupts.get(), "waiting");
  s.deliver = named(interrupts.get(), "deliver");
  for (auto [name, text] : std::initializer_list<std::pair<Ref*, const char*>>{
           {&s.crowded, "crowded"}, {&s.keeping, "keeping"}, {&s.flights, "flights"}, {&s.acquire, "acquire"},
           {&s.release, "release"}}) {
    *name = Ref(checked(PyUnicode_InternFromString(text)));
  }
  s.unfilled = named(named(given[0], "unfilled").get(), "found");
  for (auto [field, name] : std::initializer_list<std::pair<Ref*, const char*>>{
           {&s.freed, "freed"}, {&s.gradients, "gradients"}, {&s.fixed, "fixed"}, {&s.defined, "defined"}, {&s.engine_values, "values"},
           {&s.resident, "resident"}, {&s.children, "children"}, {&s.last_access, "last_access_ns"}, {&s.collect, "collect"},
           {&s.parents, "parents"}, {&s.pool, "pool"}, {&s.storage_bytes, "storage_bytes"}, {&s.work, "work_ns"},
           {&s.memories, "memories"}, {&s.dead, "dead"}, {&s.depth_of, "depth"}}) {
    *field = named(engine, name);
  }
  Ref classes = named(named(engine, "classes").get(), "lists");
  for (auto [field, place] : std::initializer_list<std::pair<Ref*, Py_ssize_t>>{{&s.nodes, 0}, {&s.above, 1}, {&s.sums, 2}}) {
    *field = Ref::to(PyTuple_GET_ITEM(classes.get(), place));
  }
  for (auto [field, name] : std::initializer_list<std::pair<int64_t*, const char*>>{
           {&s.by_work, "by_work"}, {&s.by_size, "by_size"}, {&s.by_staleness, "by_staleness"}}) {
    *field = PyLong_AsLongLong(named(hooks, name).get());
  }
  for (auto [field, name] : std::initializer_list<std::pair<Ref*, const char*>>{
           {&s.dropped, "dropped"}, {&s.detach, "detach"}, {&s.facts_of, "facts_of"}, {&s.fresh, "fresh"}, {&s.generator, "generator"}, {&s.over, "over"},
           {&s.abandon, "abandon"}, {&s.ready, "ready"}, {&s.note_write, "note_write"}, {&s.gradient, "gradient"}, {&s.no_room, "no_room"}}) {
    *field = named(hooks, name);
  }
  s.block.find(named(hooks, "block").get());
  s.value.find(named(hooks, "value").get());
  s.call.find(named(hooks, "call").get());
  auto& b = s.on_block;
  for (auto [field, name] : std::initializer_list<std::pair<Field*, const char*>>{
           {&b.aliases, "aliases"}, {&b.counted, "counted"}, {&b.key, "key"}, {&b.nbytes, "nbytes"}, {&b.read, "read"},
           {&b.seen_ns, "seen_ns"}, {&b.stays, "stays"}, {&b.storage, "storage"}, {&b.writers, "writers"}, {&b.written, "written"}}) {
    field->find(s.block.type, name);
  }
  auto& v = s.on_value;
  for (auto [field, name] : std::initializer_list<std::pair<Field*, const char*>>{
           {&v.block, "block"}, {&v.call, "call"}, {&v.place, "place"}, {&v.writes, "writes"}}) {
    field->find(s.value.type, name);
  }
  auto& c = s.on_call;
  for (auto [field, name] : std::initializer_list<std::pair<Field*, const char*>>{
           {&c.func, "func"}, {&c.args, "args"}, {&c.generators, "generators"}, {&c.inputs, "inputs"}, {&c.number, "number"}, {&c.gradients, "gradients"},
           {&c.cost_ns, "cost_ns"}, {&c.nbytes, "nbytes"}, {&c.workspace_bytes, "workspace_bytes"}, {&c.trail, "trail"}, {&c.backward, "backward"}, {&c.held, "held"},
           {&c.count, "count"}}) {
    field->find(s.call.type, name);
  }
  auto& e = s.on_engine;
  for (auto [field, name] : std::initializer_list<std::pair<Field*, const char*>>{
           {&e.base_ns, "base_ns"}, {&e.budget, "budget"}, {&e.clock_ns, "clock_ns"}, {&e.epoch, "epoch"},
           {&e.memory, "memory"}, {&e.ops, "ops"}, {&e.peak, "peak"}, {&e.plain_peak, "plain_peak"}, {&e.away_bytes, "away_bytes"},
           {&e.taken_bytes, "taken_bytes"}, {&e.low, "low"}, {&e.trail, "trail"}}) {
    field->find(Py_TYPE(engine), name);
  }
  Ref room = named(hooks, "room");
  s.room_nbytes.find(Py_TYPE(room.get()), "nbytes");
  s.room_workspace.find(Py_TYPE(room.get()), "workspace_bytes");
  s.room_open.find(Py_TYPE(room.get()), "open");
  s.room_cost.find(Py_TYPE(room.get()), "cost_ns");
  s.room_mark.find(Py_TYPE(room.get()), "mark");
  s.pending_due.find(Py_TYPE(s.pending.get()), "due");
  s.threads = -1; // Python looks at the settings first
  s.most_writes = PyLong_AsLongLong(named(hooks, "most_writes").get());
  for (auto [field, name] : std::initializer_list<std::pair<int64_t*, const char*>>{
           {&s.small, "small"}, {&s.never, "never"}, {&s.seldom, "seldom"}}) {
    *field = PyLong_AsLongLong(named(hooks, name).get());
  }
  s.device = reinterpret_cast<THPDevice*>(named(given[0], "device").get())->device;
  Ref clock = named(given[0], "clock");
  s.clock_held = named(hooks, "clock");
  s.clock = s.clock_held.get() == Py_None ? nullptr : s.clock_held.get();
  Ref sizes = named(given[0], "sizes");
  if (sizes.get() != s.sizes.get()) {
    s.rooms.clear();
    s.sizes = std::move(sizes);
  }
  static PyMethodDef callback = {"dropped", dropped, METH_O, "Account for the end of a storage."};
  if (!s.callback.get()) s.callback = Ref(checked(PyCFunction_New(&callback, nullptr)));
  return Py_NewRef(s.callback.get());
  END_HANDLE_TH_ERRORS
}

PyObject* module_close(PyObject*, PyObject*) {
  State& s = state();
  for (Ref* each : {&s.runtime, &s.engine, &s.pending, &s.known, &s.values, &s.watchers, &s.freed, &s.fixed, &s.defined,
                    &s.engine_values, &s.resident, &s.children, &s.last_access, &s.collect, &s.detach, &s.dropped, &s.facts_of, &s.fresh, &s.generator, &s.shared, &s.unfilled, &s.in_flight, &s.gradients, &s.lock, &s.waiting, &s.deliver,
                    &s.memories, &s.dead, &s.depth_of, &s.over, &s.abandon, &s.ready, &s.note_write, &s.gradient, &s.no_room, &s.clock_held, &s.parents, &s.pool, &s.storage_bytes, &s.work, &s.nodes, &s.above, &s.sums}) {
    Ref gone = std::move(*each);
  }
  Ref gone = std::move(s.log);
  s.unwatched = 0;
  s.clock = nullptr;
  Py_RETURN_NONE;
}

// unwatch(count, log): so many ops need no watcher, and are told in the list ``log`` instead.
PyObject* module_unwatch(PyObject*, PyObject* const* given, Py_ssize_t) {
  State& s = state();
  s.unwatched = PyLong_AsLongLong(given[0]);
  s.log = Ref::to(given[1]);
  Py_RETURN_NONE;
}

// own_pages(True): memory of tensors comes from pages of our own. Returns bytes of such blocks, of the pages, and of the
// most blocks at once since that was said; and the number of mappings.
PyObject* module_own_pages(PyObject*, PyObject* on) {
  Pages& pages = Pages::only();
  if (on == Py_True) pages.open();
  if (on == Py_False) pages.close();
  const auto found = pages.totals();
  return Py_BuildValue("(nnnn)", found.in_use, found.mapped, found.most, found.seams);
}

PyObject* module_arm(PyObject*, PyObject*) {
  mine() = true;
  state().depth = c10::impl::TorchDispatchModeTLS::stack_len();
  include(true);
  Py_RETURN_NONE;
}

PyObject* module_disarm(PyObject*, PyObject*) {
  mine() = false;
  if (armed()) include(false);
  Py_RETURN_NONE;
}

PyObject* module_armed(PyObject*, PyObject*) { return PyBool_FromLong(armed()); }

// True if modes that trace ops, for exports say, are on: below that of the budget, they have to see them.
bool tracing() {
  using Key = c10::impl::TorchDispatchModeKey;
  for (Key key : {Key::FAKE, Key::FUNCTIONAL, Key::PROXY}) {
    if (c10::impl::TorchDispatchModeTLS::get_mode(key)) return true;
  }
  return false;
}

// choose(): the storage to evict next.
PyObject* module_choose(PyObject*, PyObject*) {
  HANDLE_TH_ERRORS
  return PyLong_FromLongLong(Search(state()).cheapest());
  END_HANDLE_TH_ERRORS
}

// sweep(number): as Pending.sweep in Python.
PyObject* module_sweep(PyObject*, PyObject* number) {
  HANDLE_TH_ERRORS
  const Uncollected uncollected;
  Sweep sweep(state());
  sweep.run(PyLong_AsLongLong(number));
  return sweep.calls();
  END_HANDLE_TH_ERRORS
}

// The handler of the mode, within which no op is seen. Autograd saves results by a detach() of which no dispatcher
// hears, often: it is done here.
PyObject* entered(PyObject* runtime, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  auto keys = c10::impl::tls_local_dispatch_key_set();
  keys.excluded_ = keys.excluded_ | DispatchKeySet(DispatchKey::Fake);
  const bool traced = tracing();
  if (!traced) keys.excluded_ = keys.excluded_ | python_keys;
  c10::impl::ForceDispatchKeyGuard guard(keys);
  State& s = state();
  if (!traced && count > 2 && given[0] == s.detach.get() && mine() && runtime == s.runtime.get() && PyTuple_GET_SIZE(given[2]) == 1) {
    PyObject* argument = PyTuple_GET_ITEM(given[2], 0);
    if (THPVariable_CheckExact(argument) && !busy(s) && seen(s, THPVariable_Unpack(argument))) {
      s.on_engine.ops.number(s.engine.get(), s.on_engine.ops.number(s.engine.get()) + 1);
      if (s.unwatched > 0) trace(s, s.detach.get(), Py_None, Py_None, Py_None);
      return THPVariable_Wrap(THPVariable_Unpack(argument).detach());
    }
  }
  c10::SmallVector<PyObject*, 5> arguments{runtime};
  arguments.append(given, given + count);
  Ref handler = named(reinterpret_cast<PyObject*>(Py_TYPE(runtime)), "__torch_dispatch__"); // another once it is closed
  return PyObject_Vectorcall(handler.get(), arguments.data(), arguments.size(), nullptr);
  END_HANDLE_TH_ERRORS
}

PyObject* module_entry(PyObject*, PyObject* runtime) {
  static PyMethodDef method = {"__torch_dispatch__", fast(entered), METH_FASTCALL, "Handle an op."};
  return PyCFunction_New(&method, runtime);
}

// gradient(parameter): the hook of parameters whose gradients have come, as Access.gradient in Python. What is reported
// at the same time by another thread either finds it among the gradients, or is seen here to have a number.
PyObject* module_gradient(PyObject*, PyObject* parameter) {
  HANDLE_TH_ERRORS
  State& s = state();
  if (!s.known.get()) Py_RETURN_NONE;
  const at::Tensor gradient = THPVariable_Check(parameter) ? THPVariable_Unpack(parameter).grad() : at::Tensor();
  if (gradient.defined() && plain(gradient, s.device)) {
    PyObject* value = value_of(s, storage_impl(gradient));
    if (value) {
      if (PySet_Add(s.gradients.get(), s.on_value.block.of(value))) raise();
      if (storage_of(s, value) == PENDING) Py_RETURN_NONE;
    }
  }
  return PyObject_CallOneArg(s.gradient.get(), parameter);
  END_HANDLE_TH_ERRORS
}

// apart(function, *arguments): for code that looks at dispatch keys by itself.
PyObject* module_apart(PyObject*, PyObject* const* given, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  c10::impl::ForceDispatchKeyGuard guard;
  if (armed()) include(false);
  return PyObject_Vectorcall(given[0], given + 1, size_t(count - 1), nullptr);
  END_HANDLE_TH_ERRORS
}

} // namespace
} // namespace tide

PyMODINIT_FUNC PyInit_tensortide_core() {
  using namespace tide;
  static PyMethodDef methods[] = {
      {"register", module_register, METH_NOARGS, "Take the dispatch key; False if it is taken."},
      {"open", fast(module_open), METH_FASTCALL, "Begin with a budget."},
      {"close", module_close, METH_NOARGS, "End with it."},
      {"own_pages", module_own_pages, METH_O, "Take memory of tensors from pages of our own, or cease to, or tell."},
      {"arm", module_arm, METH_NOARGS, "Handle the ops of this thread."},
      {"disarm", module_disarm, METH_NOARGS, "Handle them no longer."},
      {"armed", module_armed, METH_NOARGS, "True if the ops of this thread are handled."},
      {"choose", module_choose, METH_NOARGS, "The storage of the engine's pool to evict next."},
      {"sweep", module_sweep, METH_O, "End histories of ops that are not reported; returns the calls behind the others."},
      {"entry", module_entry, METH_O, "The handler of a mode."},
      {"gradient", module_gradient, METH_O, "Note that the gradient of a parameter has come."},
      {"unwatch", fast(module_unwatch), METH_FASTCALL, "Let ops run that watchers need not see."},
      {"apart", fast(module_apart), METH_FASTCALL, "Call a function with the keys as they are without this."},
      {}};
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "tensortide_core", nullptr, -1, methods};
  if (PyType_Ready(kept_type())) return nullptr;
  return PyModule_Create(&definition);
}
