// Python objects from C++: owned references, guards of the interpreter, and the fields of classes with __slots__,
// which are read and written in place.
#pragma once

#include <Python.h>
#include <structmember.h>

#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/PyInterpreter.h>

namespace tide {

// Throws the Python error that is set; PyTorch hands it on to the caller.
[[noreturn]] inline void raise() {
  python_error error;
  error.persist();
  throw error;
}

inline PyObject* checked(PyObject* object) {
  if (!object) raise();
  return object;
}

// The Python object of a storage, which PyTorch before 2.10 tells the interpreter that made it.
template <class Slot>
PyObject* object_of(Slot* slot) {
  if constexpr (requires { slot->load_pyobj(); }) {
    return slot->load_pyobj();
  } else {
    return slot->check_pyobj(getPyInterpreter()).value_or(nullptr);
  }
}

// An owned reference.
class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* stolen) : object_(stolen) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Ref(const Ref&) = delete;
  ~Ref() { Py_XDECREF(object_); }
  static Ref to(PyObject* borrowed) { return Ref(Py_XNewRef(borrowed)); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }

 private:
  PyObject* object_ = nullptr;
};

// Holds the interpreter's lock.
struct Locked {
  PyGILState_STATE state = PyGILState_Ensure();
  ~Locked() { PyGILState_Release(state); }
};

// Lets other threads have the interpreter's lock.
struct Unlocked {
  PyThreadState* state = PyEval_SaveThread();
  ~Unlocked() { PyEval_RestoreThread(state); }
};

// No cyclic collection: it could take away what is about to be read.
struct Uncollected {
  int before = PyGC_Disable();
  ~Uncollected() {
    if (before) PyGC_Enable();
  }
};

// A field of a class with __slots__.
class Field {
 public:
  void find(PyTypeObject* type, const char* name) {
    Ref found(checked(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name)));
    if (!Py_IS_TYPE(found.get(), &PyMemberDescr_Type)) {
      PyErr_Format(PyExc_TypeError, "%s.%s is no slot", type->tp_name, name);
      raise();
    }
    offset_ = reinterpret_cast<PyMemberDescrObject*>(found.get())->d_member->offset;
  }
  PyObject*& of(PyObject* object) const { return *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset_); }
  void set(PyObject* object, PyObject* stolen) const {
    PyObject* before = std::exchange(of(object), stolen);
    Py_XDECREF(before);
  }
  void share(PyObject* object, PyObject* borrowed) const { set(object, Py_NewRef(borrowed)); }
  int64_t number(PyObject* object) const { return PyLong_AsLongLong(of(object)); }
  void number(PyObject* object, int64_t value) const { set(object, PyLong_FromLongLong(value)); }

 private:
  Py_ssize_t offset_ = 0;
};

// Makes instances of a class with __slots__ as copies of one that Python made.
class Maker {
 public:
  void find(PyObject* prototype) {
    prototype_ = Ref::to(prototype);
    if (PyObject_GC_IsTracked(prototype)) PyObject_GC_UnTrack(prototype); // nobody counts it among the others
    type = Py_TYPE(prototype);
    fields_.clear();
    for (PyTypeObject* at = type; at && at != &_PyWeakref_RefType; at = at->tp_base) {
      PyObject *name = nullptr, *value = nullptr;
      Py_ssize_t position = 0;
      while (at->tp_dict && PyDict_Next(at->tp_dict, &position, &name, &value)) {
        if (!Py_IS_TYPE(value, &PyMemberDescr_Type)) continue;
        if (reinterpret_cast<PyMemberDescrObject*>(value)->d_member->type != T_OBJECT_EX) continue;
        fields_.emplace_back().find(type, PyUnicode_AsUTF8(name));
      }
    }
  }
  PyObject* fill(PyObject* made) const {
    for (const Field& field : fields_) field.of(made) = Py_XNewRef(field.of(prototype_.get()));
    return made;
  }
  PyObject* make() const { return fill(checked(type->tp_alloc(type, 0))); }

  PyTypeObject* type = nullptr;

 private:
  Ref prototype_;
  std::vector<Field> fields_;
};

} // namespace tide
