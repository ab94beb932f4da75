#pragma once
// Decides how many threads a rank computes with, if it was not told.
#include <optional>

namespace moe::cpu {

struct CoreShare {
  int cores = 1;                     // that the process may run on
  std::optional<double> quota = {};  // whose time it may take (moe/base/control_groups.h)
  int sharers = 1;                   // ranks on these cores, this one included
  bool communicates = false;         // there are other ranks, wherever they are
};

/// Returns what OMP_NUM_THREADS says (`omp_num_threads`; null: nothing), else an equal share of the cores, at least 1.
/// One core of 4 or more is left to the threads that communicate. Throws BadInput naming the variable.
int default_threads(const CoreShare& share, const char* omp_num_threads);

}  // namespace moe::cpu
