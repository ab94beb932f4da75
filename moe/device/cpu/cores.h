#pragma once
// The cores that a thread may run on, and the number of threads that its computations may use.
#include <optional>
#include <vector>

namespace moe::cpu {

/// Returns the cores that the calling thread may use, ascending.
std::vector<int> usable_cores();
/// Returns the number of these cores, at least 1.
int usable_core_count();

/// Restricts the calling thread, and threads that it starts later, to share `part` of `parts` of the cores that it may
/// use; if there are more parts than cores, neighbouring parts share one. Does nothing if the system refuses.
void restrict_to_share(int part, int parts);

/// Returns how many threads a computation of the calling thread may use, itself included. It is 1 in a new thread,
/// whatever it is in the thread that started it.
int thread_count();
/// Sets what thread_count() returns. Throws BadInput below 1.
void set_thread_count(int threads);

/// While it lives, the calling thread's computations use `threads` threads.
class ThreadCountScope {
 public:
  explicit ThreadCountScope(int threads) : previous_(thread_count()) { set_thread_count(threads); }
  ~ThreadCountScope() { set_thread_count(previous_); }
  ThreadCountScope(const ThreadCountScope&) = delete;
  ThreadCountScope& operator=(const ThreadCountScope&) = delete;

 private:
  int previous_;
};

/// The facts that decide how many threads a rank computes with by default.
struct CoreShare {
  int cores = 1;                     // cores that the process may run on
  std::optional<double> quota = {};  // CPU time that it may take, in cores (moe/base/system_files.h); none: no limit
  int sharers = 1;                   // ranks on these cores, this one included
  bool communicates = false;         // whether there are other ranks, wherever they are
};

/// Returns the value of OMP_NUM_THREADS (`omp_num_threads`; null: not set), else an equal share of the cores, at least
/// 1. One core of 4 or more is left to the threads that communicate. Throws BadInput naming the variable.
int default_threads(const CoreShare& share, const char* omp_num_threads);

}  // namespace moe::cpu
