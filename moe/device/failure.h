#pragma once
// The first exception of a group of streams that fail together.
#include <atomic>
#include <exception>
#include <mutex>

namespace moe {

/// A sticky error, as that of a CUDA context: once it is set, streams that share it skip their queued work until it is
/// cleared.
class Failure {
 public:
  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }
  /// Keeps the first exception; later ones are dropped.
  void set(std::exception_ptr error) noexcept {
    const std::lock_guard lock(mutex_);
    if (first_) return;
    first_ = std::move(error);
    failed_.store(true, std::memory_order_release);
  }
  /// Throws the first exception, if there was one.
  void rethrow() const {
    if (!failed()) return;
    const std::lock_guard lock(mutex_);
    if (first_) std::rethrow_exception(first_);
  }
  /// Drops the exception; call it only while nothing is queued on the streams that share it.
  void clear() noexcept {
    const std::lock_guard lock(mutex_);
    first_ = nullptr;
    failed_.store(false, std::memory_order_release);
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr first_;
  std::atomic<bool> failed_{false};
};

}  // namespace moe
