// The search for the storage to evict next, over the engine's own lists: as plans/remat/policies.py (Heuristic), whose
// every decision it makes alike.
#pragma once

#include <limits>

#include "state.h"

namespace tide {

class Search {
 public:
  explicit Search(State& s) : s(s), now(s.on_engine.clock_ns.number(s.engine.get())) {}

  // The entry of the pool with the least cost, of equals the last; of those without cost the first.
  int64_t cheapest() {
    double best = std::numeric_limits<double>::infinity();
    int64_t found = -1;
    PyObject *entry = nullptr, *unused = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(s.pool.get(), &position, &entry, &unused)) {
      const int64_t storage = PyLong_AsLongLong(entry);
      const double price = cost(storage);
      if (price <= best) {
        best = price;
        found = storage;
      }
      if (price == 0) break;
    }
    return found;
  }

 private:
  enum Work { ONE, LOCAL, CLASSES }; // of policies.py

  double cost(int64_t storage) {
    int64_t work = 1;
    if (s.by_work != ONE) work = at(s.work.get(), storage);
    if (s.by_work == CLASSES) work += classes(storage);
    const int64_t nbytes = s.by_size ? at(s.storage_bytes.get(), storage) : 1;
    const int64_t time = s.by_staleness ? now - at(s.last_access.get(), storage) : 1;
    return nbytes > 0 && time > 0 ? ratio(work, nbytes, time) : std::numeric_limits<double>::infinity();
  }

  // Work of the classes of evicted storages next to this one, each once.
  int64_t classes(int64_t storage) {
    ++token;
    int64_t work = 0;
    for (PyObject* edges : {PyList_GET_ITEM(s.parents.get(), storage), PyList_GET_ITEM(s.children.get(), storage)}) {
      PyObject *near = nullptr, *unused = nullptr;
      Py_ssize_t position = 0;
      while (PyDict_Next(edges, &position, &near, &unused)) {
        const int64_t other = PyLong_AsLongLong(near);
        if (PyList_GET_ITEM(s.resident.get(), other) == Py_True) continue;
        const size_t top = size_t(root(at(s.nodes.get(), other)));
        if (stamps.size() <= top) stamps.resize(size_t(PyList_GET_SIZE(s.above.get())));
        if (stamps[top] == token) continue;
        stamps[top] = token;
        work += at(s.sums.get(), int64_t(top));
      }
    }
    return work;
  }

  int64_t root(int64_t node) {
    int64_t top = node, above;
    while ((above = at(s.above.get(), top)) != top) top = above;
    while (node != top && (above = at(s.above.get(), node)) != top) {
      PyList_SetItem(s.above.get(), node, Py_NewRef(PyList_GET_ITEM(s.above.get(), top)));
      node = above;
    }
    return top;
  }

  // ``work / (nbytes * time)`` rounded once, as Python divides.
  static double ratio(int64_t work, int64_t nbytes, int64_t time) {
    constexpr int64_t exact = int64_t(1) << 53;
    int64_t divisor = 0;
    if (!__builtin_mul_overflow(nbytes, time, &divisor) && divisor <= exact && work <= exact && work >= -exact) {
      return double(work) / double(divisor);
    }
    Ref above(checked(PyLong_FromLongLong(work))), one(checked(PyLong_FromLongLong(nbytes)));
    Ref other(checked(PyLong_FromLongLong(time))), below(checked(PyNumber_Multiply(one.get(), other.get())));
    Ref quotient(checked(PyNumber_TrueDivide(above.get(), below.get())));
    return PyFloat_AS_DOUBLE(quotient.get());
  }

  State& s;
  const int64_t now;
  inline static uint64_t token = 0;
  inline static std::vector<uint64_t> stamps; // of nodes
};

} // namespace tide
