#pragma once
// Streams and events with CUDA's semantics on every device: a stream runs what it is given in FIFO order; an event is
// recorded on one stream and waited for on another. Knows nothing of tensors, costs or plans.
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

/// Marks a point in a stream's work. Recording it again re-arms it; like CUDA, waiting on a never recorded event is a
/// no-op, and a wait means the record that was issued last before it. It must outlive the streams' passing it
/// (synchronise first).
class Event {
 public:
  virtual ~Event() = default;
  /// Returns when the stream reached it, in seconds of the steady clock; valid once the stream was synchronised.
  virtual double seconds() const = 0;
};

/// How long a piece of work must at least take (0: no pace), and where to count that it took longer by itself
/// ("overrun").
struct Pace {
  double at_least_s = 0;
  std::atomic<int64_t>* overruns = nullptr;
  /// Paces tasks that slow each other down (pacer.h); at_least_s is then what the work takes alone, and the use is its
  /// own. Not for hold().
  Pacer* pacer = nullptr;
  int rank = 0, resource = 0;
};

class Stream {
 public:
  virtual ~Stream() = default;
  /// Queues `work`. CPU: runs it on the stream's thread. CUDA: calls it at once with the native stream to launch on.
  /// After a failure it is destroyed uncalled.
  virtual void launch(std::function<void(void* native)> work) = 0;
  /// Returns whether launch() calls its work at once, on the calling thread.
  virtual bool calls_at_once() const = 0;
  virtual void record(Event& event) = 0;
  virtual void wait(Event& event) = 0;
  /// Records `since` so that hold() may count from it, for which a GPU has to note the time: a small kernel.
  virtual void mark(Event& since) = 0;
  /// Ends no earlier than `since` + pace.at_least_s; counts an overrun if that moment has passed already (on the CPU by
  /// more than a late wake-up explains), by synchronize() at the latest. `since` was marked on this stream, or is
  /// waited for by it; a GPU throws WrongResult if it was recorded without mark() since.
  virtual void hold(Event& since, Pace pace) = 0;
  /// Queues a copy between any memories of the device or the host. It may block where the host's memory is not the
  /// device's own (make_host_memory).
  virtual void copy(Copy copy) = 0;
  /// Queues copies and a sum inside the device's memory.
  virtual void move(Moves moves) = 0;
  /// Returns an event of its device.
  virtual std::unique_ptr<Event> make_event() = 0;
  /// Waits for everything queued; rethrows the first exception of its work or of the streams it fails with. After a
  /// failure work and holds are skipped, waits and records are not, so that no other stream hangs.
  virtual void synchronize() = 0;
  /// Returns, for work that paces itself, the clock of a stream that is a thread, to be used on that thread; null: the
  /// stream has none.
  virtual cpu::PaceClock* pace_clock() { return nullptr; }
};

enum class Urgency : uint8_t { usual, high };

/// Makes streams, events and memory. Only those of one device know each other. Streams, events and memory may outlive
/// their device.
class Device {
 public:
  virtual ~Device() = default;
  /// Makes a stream. Those made with the same `failure` fail together; without one a stream fails alone, for good.
  /// Where both could run on a GPU, work of urgent streams goes first.
  virtual std::unique_ptr<Stream> make_stream(std::string_view name, std::shared_ptr<Failure> failure = nullptr,
                                              Urgency urgency = Urgency::usual) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  /// Returns memory of the device, aligned to 64 bytes at least; holds anything at first, and is null perhaps of no
  /// bytes. Free it once the streams have passed what uses it. Throws OutOfMemory.
  virtual Memory make_memory(int64_t bytes) = 0;
  /// Returns memory of the host that the device copies from and to at full speed, without blocking.
  virtual Memory make_host_memory(int64_t bytes) = 0;
};

/// Makes a device whose streams are threads of this process. Destroying one runs what is still queued.
std::unique_ptr<Device> make_cpu_device();

/// Returns the steady clock's time, seconds.
double now_s();
/// Sleeps to an absolute moment of now_s(), spinning the last stretch: a plain sleep overshoots by about 50 us.
void sleep_until_s(double deadline_s);

}  // namespace moe
