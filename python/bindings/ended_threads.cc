// Daemon threads that are in our code when the interpreter ends.
//
// From then on CPython (before 3.14) ends every thread but the last as soon as it asks for the GIL:
// by pthread_exit(), which unwinds its stack. Our frames cannot be unwound: destructors that want
// the GIL would find none, and what unwinds through a destructor is std::terminate(). So where the
// interpreter may do that, it is caught, and the thread sleeps until the process is gone, as it
// does from CPython 3.14 on.
//
// The linker brings the calls of these functions here (--wrap in CMakeLists.txt), those of nanobind
// among them. They cost nothing but the call.
#include <Python.h>
#include <cxxabi.h>
#include <unistd.h>

namespace {

[[noreturn]] void sleep_until_the_process_ends() {
  for (;;) ::pause();
}

template <class Call>
auto outlasting(Call call) {
  try {
    return call();
  } catch (abi::__forced_unwind&) {
    sleep_until_the_process_ends();
  }
}

}  // namespace

#define SHOAL_WRAP(result, name, parameters, arguments)         \
  extern "C" result __real_##name parameters;                   \
  extern "C" result __wrap_##name parameters;                   \
  extern "C" result __wrap_##name parameters {                  \
    return outlasting([&] { return __real_##name arguments; }); \
  }

// Asking for the GIL.
SHOAL_WRAP(void, PyEval_RestoreThread, (PyThreadState * state), (state))
SHOAL_WRAP(PyGILState_STATE, PyGILState_Ensure, (), ())

// Running Python, which gives the GIL away and asks for it again.
SHOAL_WRAP(PyObject*, PyObject_Vectorcall,
           (PyObject * callable, PyObject* const* args, size_t nargs, PyObject* names),
           (callable, args, nargs, names))
SHOAL_WRAP(PyObject*, PyObject_VectorcallMethod,
           (PyObject * name, PyObject* const* args, size_t nargs, PyObject* names),
           (name, args, nargs, names))
SHOAL_WRAP(PyObject*, PyVectorcall_Call, (PyObject * callable, PyObject* tuple, PyObject* dict),
           (callable, tuple, dict))
SHOAL_WRAP(PyObject*, PyObject_CallNoArgs, (PyObject * callable), (callable))
SHOAL_WRAP(PyObject*, PyObject_GetAttr, (PyObject * object, PyObject* name), (object, name))
SHOAL_WRAP(PyObject*, PyObject_GetAttrString, (PyObject * object, const char* name), (object, name))
SHOAL_WRAP(int, PyObject_SetAttr, (PyObject * object, PyObject* name, PyObject* value),
           (object, name, value))
SHOAL_WRAP(PyObject*, PyObject_GetItem, (PyObject * object, PyObject* key), (object, key))
SHOAL_WRAP(PyObject*, PyObject_GetIter, (PyObject * object), (object))
SHOAL_WRAP(PyObject*, PyIter_Next, (PyObject * iterator), (iterator))
SHOAL_WRAP(int, PyObject_IsTrue, (PyObject * object), (object))
SHOAL_WRAP(int, PyObject_RichCompareBool, (PyObject * a, PyObject* b, int how), (a, b, how))
SHOAL_WRAP(PyObject*, PyObject_Str, (PyObject * object), (object))
SHOAL_WRAP(PyObject*, PyImport_ImportModule, (const char* name), (name))
SHOAL_WRAP(int, PyErr_CheckSignals, (), ())
