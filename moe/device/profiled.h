#pragma once
// Ranges for a profiler that watches this process (Nsight Systems, Nsight Compute). They do nothing in a build without
// CUDA.
#include <string>

namespace moe {

/// An NVTX range: while it lives, it names the work that the calling thread gives a GPU.
class NamedRange {
 public:
  explicit NamedRange(const std::string& name);
  ~NamedRange();
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

/// While it lives, a profiler records that is switched by calls of the CUDA runtime
/// (nsys profile --capture-range=cudaProfilerApi --capture-range-end=repeat).
class ProfiledTime {
 public:
  ProfiledTime();
  ~ProfiledTime();
  ProfiledTime(const ProfiledTime&) = delete;
  ProfiledTime& operator=(const ProfiledTime&) = delete;
};

}  // namespace moe
