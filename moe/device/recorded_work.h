#pragma once
// Work of a GPU's streams that is recorded once and enqueued again as a whole: a CUDA graph. The CPU's streams cannot
// record.
#include <functional>
#include <memory>
#include <span>

#include "moe/device/stream.h"

namespace moe {

/// Recorded work. The lanes, the events and the memory that it uses must outlive it.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  /// Enqueues the recorded work on the first of its lanes; the work keeps its order within and between the lanes. An
  /// error fails that first lane.
  virtual void run() = 0;
};

/// Records the work that `issue` enqueues on the lanes, without running it. The lanes must be idle. Of the events
/// recorded by `issue`, only those in `timed` have a time after a replay; the others only order the lanes, at no cost.
/// A hold still counts overruns, as long as its lane exists. `issue` may wait for events that it recorded, but for
/// nothing on the host; everything that a first run makes (memory, kernels, marks) must exist, so run the work once
/// before. Throws Unsupported if the lanes are not a GPU's or `issue` waits for other work, RankFailure if CUDA
/// refuses, and whatever `issue` or its work throws; the lanes remain usable after that, as after any failure.
std::unique_ptr<RecordedWork> record_work(std::span<Stream* const> lanes, std::span<Event* const> timed,
                                          const std::function<void()>& issue);

/// Enqueues a kernel that does nothing. Throws Unsupported if the stream is not a GPU's.
void launch_nothing(Stream& stream);

}  // namespace moe
