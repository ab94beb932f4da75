#pragma once
// Streams and events with CUDA's semantics on every device: a stream runs its work in FIFO order; an event is recorded
// on one stream and waited for on another. Independent of tensors, costs and plans.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "moe/device/failure.h"
#include "moe/device/memory.h"
#include "moe/device/moves.h"

namespace moe {

class Pacer;
namespace cpu {
class PaceClock;
}

/// A point in a stream's work. Recording it again re-arms it. As in CUDA, waiting for an event that was never recorded
/// is a no-op, and a wait refers to the last record issued before it. It must live until all streams have executed
/// their records of it and waits for it (synchronise first).
class Event {
 public:
  virtual ~Event() = default;
  /// Returns when the stream reached it, in seconds of the steady clock; valid after the stream was synchronised.
  virtual double seconds() const = 0;
};

/// The least seconds that a piece of work takes (0: no pace), and the counter to increase if the work itself takes
/// longer (an "overrun").
struct Pace {
  double at_least_s = 0;
  std::atomic<int64_t>* overruns = nullptr;
  /// Paces tasks that slow each other down (pacer.h). If it is set, `at_least_s` is the time of the work without
  /// contention, and `resource` of `rank` is the resource that the work uses. Must be null for hold().
  Pacer* pacer = nullptr;
  int rank = 0, resource = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  /// Queues `work`. CPU: runs it on the stream's thread. CUDA: calls it at once with the native stream to launch on.
  /// After a failure, `work` is destroyed without being called.
  virtual void launch(std::function<void(void* native)> work) = 0;
  /// Returns whether launch() calls its work at once, on the calling thread.
  virtual bool calls_work_immediately() const = 0;
  virtual void record(Event& event) = 0;
  virtual void wait(Event& event) = 0;
  /// Records `since` as the start of a later hold(). On a GPU, this launches a small kernel that stores the time.
  virtual void mark(Event& since) = 0;
  /// Delays the stream until `since` + pace.at_least_s. Counts an overrun, by synchronize() at the latest, if that
  /// moment has passed already (on the CPU by more than a late wake-up explains). `since` was marked on this stream, or
  /// this stream waits for it; a GPU throws WrongResult if its last record was not by mark().
  virtual void hold(Event& since, Pace pace) = 0;
  /// Queues a copy between any memories of the device or the host. It may block if the host's memory was not made by
  /// Device::make_host_memory().
  virtual void copy(Copy copy) = 0;
  /// Queues copies and a sum inside the device's memory.
  virtual void move(Moves moves) = 0;
  /// Returns a new event of the stream's device.
  virtual std::unique_ptr<Event> make_event() = 0;
  /// Waits for all queued work; rethrows the first exception of this stream or of those that share its Failure. After a
  /// failure, only waits and records still run, so that no other stream hangs.
  virtual void synchronize() = 0;
  /// Returns the pace clock of a CPU stream, for work that paces itself; use it only on the stream's thread. Null on a
  /// GPU.
  virtual cpu::PaceClock* pace_clock() { return nullptr; }
};

enum class StreamPriority : uint8_t { usual, high };

/// A factory of streams, events and memory, which may outlive it. Objects of different devices must not be mixed.
class Device {
 public:
  virtual ~Device() = default;
  /// Makes a stream. Streams made with the same `failure` fail together; without one, a stream fails alone and for
  /// good. If several streams have work for a GPU, the work of urgent streams goes first.
  virtual std::unique_ptr<Stream> make_stream(std::string_view name, std::shared_ptr<Failure> failure = nullptr,
                                              StreamPriority urgency = StreamPriority::usual) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  /// Returns memory of the device, aligned to 64 bytes at least, with undefined content; may be null for 0 bytes. Free
  /// it only after the streams have passed the work that uses it. Throws OutOfMemory.
  virtual Memory make_memory(int64_t bytes) = 0;
  /// Returns memory of the host that the device copies from and to at full speed, without blocking.
  virtual Memory make_host_memory(int64_t bytes) = 0;
};

/// Makes a device whose streams are threads of this process. Destroying a stream runs what is still queued.
std::unique_ptr<Device> make_cpu_device();

/// Returns the steady clock's time, seconds.
double now_s();
/// Sleeps until now_s() is `deadline_s`, spinning at the end because a plain sleep overshoots by about 50 us.
void sleep_until_s(double deadline_s);

}  // namespace moe
