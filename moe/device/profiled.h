#pragma once
// Scopes that profilers (Nsight Systems, Nsight Compute) name or record. They do nothing in a build without CUDA.
#include <string>

namespace moe {

/// An NVTX range: in its scope, profilers show the GPU work that the calling thread queues under this name.
class NamedRange {
 public:
  explicit NamedRange(const std::string& name);
  ~NamedRange();
  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;
};

/// A scope that a profiler records if the CUDA runtime's profiler calls start and stop it (nsys profile
/// --capture-range=cudaProfilerApi --capture-range-end=repeat).
class ProfiledTime {
 public:
  ProfiledTime();
  ~ProfiledTime();
  ProfiledTime(const ProfiledTime&) = delete;
  ProfiledTime& operator=(const ProfiledTime&) = delete;
};

}  // namespace moe
