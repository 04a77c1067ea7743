// Which process made an object, for objects whose copy in a forked child must do nothing.
#pragma once

#include <sys/types.h>

#include <string>
#include <type_traits>
#include <utility>

namespace shoal::os {

/// The process that made this value, or that assigned a new one to it. In another one, the object
/// that has it is a forked child's copy: the threads that work for it, the locks that they hold and
/// the processes that it started are the parent's. A value.
class MakingProcess {
 public:
  MakingProcess() noexcept;
  bool is_this() const noexcept;
  /// Throws InvalidState, naming `what`, in a forked child.
  void require(const std::string& what) const;

 private:
  pid_t pid_;
};

/// Moves an object where it is never destroyed. For members of a forked child's copy: a std::thread
/// that cannot be joined there must not be destroyed, nor what a thread of the parent was changing
/// at the fork.
template <class T>
void abandon(T&& object) {
  static_assert(!std::is_lvalue_reference_v<T>, "it is moved");
  static_cast<void>(new T(std::move(object)));
}

}  // namespace shoal::os
