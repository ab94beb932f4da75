#pragma once
// Cores that a thread runs on, and the number of threads that its math may use.
#include <optional>
#include <vector>

namespace moe::cpu {

/// Returns the cores that the calling thread may use, ascending.
std::vector<int> usable_cores();
/// Returns how many these are, at least 1.
int usable_core_count();

/// Keeps the calling thread, and those it starts from now on, to share `part` of `parts` of the cores that it may use;
/// where there are more parts than cores, neighbouring parts share one. Does nothing where the system refuses.
void keep_to_share(int part, int parts);

/// Returns how many threads a computation of the calling thread may use, itself included. It is 1 at first, whatever
/// the thread that started it has.
int own_threads();
/// Sets what own_threads() returns. Throws BadInput below 1.
void set_own_threads(int threads);

/// Lets the calling thread's computations use so many threads as long as it lives.
class UseThreads {
 public:
  explicit UseThreads(int threads) : before_(own_threads()) { set_own_threads(threads); }
  ~UseThreads() { set_own_threads(before_); }
  UseThreads(const UseThreads&) = delete;
  UseThreads& operator=(const UseThreads&) = delete;

 private:
  int before_;
};

/// Decides how many threads a rank computes with, if it was not told.
struct CoreShare {
  int cores = 1;                     // that the process may run on
  std::optional<double> quota = {};  // whose time it may take (moe/base/system_files.h)
  int sharers = 1;                   // ranks on these cores, this one included
  bool communicates = false;         // there are other ranks, wherever they are
};

/// Returns what OMP_NUM_THREADS says (`omp_num_threads`; null: nothing), else an equal share of the cores, at least 1.
/// One core of 4 or more is left to the threads that communicate. Throws BadInput naming the variable.
int default_threads(const CoreShare& share, const char* omp_num_threads);

}  // namespace moe::cpu
