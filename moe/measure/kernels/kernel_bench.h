#pragma once
// Times kernels on one thread or one GPU: each is run once and its result checked, and only right ones are timed,
// through Google Benchmark, and recorded.
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "moe/measure/wrong_elements.h"
#include "moe/record/writer.h"

namespace moe::measure {

/// The bound of a kernel: other kernels, and the share of their speed that it reaches.
struct KernelBound {
  std::string name;                  // "memcpy"
  std::vector<std::string> kernels;  // keys of the kernels whose times are added up
  std::function<double(double seconds, double of)> share;
};

struct Kernel {
  std::string name;        // "tutel order"
  int64_t width = 0;       // M
  Fields shape = {};       // other fields that identify it in its record
  double bytes = 0;        // bytes moved; 0: not bound by memory
  KernelBound bound = {};  // without kernels: no bound
  std::function<void()> run = {};
  std::function<WrongElements()> check = {};  // checks the result of the first run
  std::function<double()> seconds = {};       // seconds of one run, by a GPU's clock; none: by the host's
  std::function<double()> warm_seconds = {};  // the same if caches have the data of the last run; none: not measured
  std::vector<TensorView> written = {};       // all of the kernel's outputs

  std::string key() const;  // "kernel/1024/tutel order"
};

/// Seconds of a run, one number per repetition; `warm`: empty if not measured.
struct KernelSamples {
  std::vector<double> seconds, warm = {};
};

/// Returns the record of a kernel that took these seconds; that of a wrong one has no number. `of`: seconds of its
/// bound, 0: unknown.
CaseRecord record_of(const Kernel& kernel, const WrongElements& wrong, const KernelSamples& samples, double of);

class KernelBench {
 public:
  /// `repetitions`: samples of each kernel, in turns; a kernel that takes half a second or more gets at most two.
  KernelBench(RecordWriter& writer, int repetitions) : writer_(writer), repetitions_(repetitions) {}

  /// Checks, times and records the kernels that the writer does not have yet. Kernels of a group take turns, so that
  /// the machine's state affects all of them alike. A bound's kernels must be in this group or an earlier one.
  void run(std::span<const Kernel> group);

  const std::vector<CaseRecord>& records() const { return records_; }

 private:
  void record(const Kernel& kernel, const WrongElements& wrong, const KernelSamples& samples);
  double least(const KernelBound& bound) const;

  RecordWriter& writer_;
  int repetitions_;
  std::vector<CaseRecord> records_;
  std::map<std::string, double> least_s_;  // least seconds, by key
};

}  // namespace moe::measure
