#pragma once
// Streams and events with CUDA's semantics on every device: a stream runs what it is given in FIFO order; an event is
// recorded on one stream and waited for on another. Knows nothing of tensors, costs or plans.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

namespace moe {

/// A point in a stream's work. Recording it again re-arms it; like CUDA, waiting on a never recorded event is a no-op.
class Event {
 public:
  virtual ~Event() = default;
  /// Seconds on the steady clock at which the stream reached it; valid once the stream was synchronised.
  virtual double seconds() const = 0;
};

/// How long a piece of work must at least take, and where to count that it took longer by itself ("overrun").
struct Pace {
  double at_least_s = 0;
  std::atomic<int64_t>* overruns = nullptr;
};

class Stream {
 public:
  virtual ~Stream() = default;
  /// Queues `work`. CPU: runs it on the stream's thread. CUDA: calls it at once with the native stream to launch on.
  virtual void launch(std::function<void(void* native)> work) = 0;
  virtual void record(Event& event) = 0;
  virtual void wait(Event& event) = 0;
  /// Ends no earlier than `since` + pace.at_least_s; counts an overrun if that moment has passed already.
  virtual void hold(Event& since, Pace pace) = 0;
  /// Waits for everything queued; rethrows the first exception of its work. After a failure queued work is skipped.
  virtual void synchronize() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::unique_ptr<Stream> make_stream(std::string_view name) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
};

/// Streams are threads of this process.
std::unique_ptr<Device> make_cpu_device();

/// Steady clock, seconds.
double now_s();
/// Sleeps to an absolute moment of now_s(), spinning the last stretch (a plain sleep overshoots by 35-90 us).
void sleep_until_s(double deadline_s);

}  // namespace moe
