#pragma once
// What a GPU's streams are given, recorded once and enqueued again as a whole: a CUDA graph. The CPU's streams have
// none.
#include <functional>
#include <memory>
#include <span>

#include "moe/device/stream.h"

namespace moe {

/// Recorded work. The lanes, the events, and the memory that the work uses outlive it.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  /// Enqueues the recorded work on the first of its lanes, in the order that the lanes had among themselves. What fails
  /// fails that lane.
  virtual void run() = 0;
};

/// Records what `issue` enqueues on the lanes, which are idle, and does none of it. Of the events that are recorded
/// meanwhile those in `timed` have a time after a replay; the others order the lanes alone, and cost nothing. Holds
/// count overruns where they were told to, as long as their lane lives. `issue` may wait for events that it recorded,
/// and for nothing on the host; all that it needs a first time for (memory, kernels, marks) is there from a run before.
/// Throws Unsupported where the lanes are not a GPU's or `issue` waits for other work, what `issue` or its work throws,
/// and RankFailure where CUDA refuses; the lanes can be used again then, as after any failure.
std::unique_ptr<RecordedWork> record_work(std::span<Stream* const> lanes, std::span<Event* const> timed,
                                          const std::function<void()>& issue);

/// Enqueues a kernel that does nothing. Throws Unsupported where the stream is not a GPU's.
void launch_nothing(Stream& stream);

}  // namespace moe
