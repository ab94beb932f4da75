#pragma once
// Ranges for a profiler that watches this process (Nsight Systems, Nsight Compute). They do nothing in a build without
// CUDA.
#include <string>

namespace moe {

/// Names what the calling thread gives a GPU while it lives: an NVTX range.
class NamedRange {
 public:
  explicit NamedRange(const std::string& name);
  ~NamedRange();
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

/// Has a profiler record while it lives that records by the CUDA runtime's calls
/// (nsys profile --capture-range=cudaProfilerApi --capture-range-end=repeat).
class ProfiledTime {
 public:
  ProfiledTime();
  ~ProfiledTime();
  ProfiledTime(const ProfiledTime&) = delete;
  ProfiledTime& operator=(const ProfiledTime&) = delete;
};

}  // namespace moe
