#pragma once
// Times kernels on one thread or one GPU: each is run once and its result looked at, and only what is right is timed,
// through Google Benchmark, into records.
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "moe/measure/wrong_elements.h"
#include "moe/record/writer.h"

namespace moe::measure {

/// What bounds a kernel: other kernels, and what share of their speed it reaches.
struct KernelBound {
  std::string name;                  // "memcpy"
  std::vector<std::string> kernels;  // their keys; whose times are added up
  std::function<double(double seconds, double of)> share;
};

struct Kernel {
  std::string name;        // "tutel order"
  int64_t width = 0;       // M
  Fields shape = {};       // whatever else tells it apart, for its record
  double bytes = 0;        // moved; 0: not bound by memory
  KernelBound bound = {};  // without kernels: of nothing
  std::function<void()> run = {};
  std::function<WrongElements()> check = {};  // of what the first run left
  std::function<double()> seconds = {};       // of one run, on a clock of its own (a GPU's); none: a run is timed
  std::function<double()> warm_seconds = {};  // the same where caches have what the last run left; none: not asked
  std::vector<TensorView> written = {};       // all that it makes

  std::string key() const;  // "kernel/1024/tutel order"
};

/// Seconds of a run, a number a repetition; `warm`: none where they were not asked for.
struct KernelSamples {
  std::vector<double> seconds, warm = {};
};

/// Returns the record of a kernel that took these seconds; that of a wrong one has no number. `of`: seconds of its
/// bound, 0: unknown.
CaseRecord record_of(const Kernel& kernel, const WrongElements& wrong, const KernelSamples& samples, double of);

class KernelBench {
 public:
  /// `repetitions`: samples of each kernel, in turns; of one that lasts half a second or more no more than two.
  KernelBench(RecordWriter& writer, int repetitions) : writer_(writer), repetitions_(repetitions) {}

  /// Checks, times and records those kernels that the writer has not. All of a group meet the same machine: they take
  /// turns. A bound's kernels are of this group or of one before.
  void run(std::span<const Kernel> group);

  const std::vector<CaseRecord>& records() const { return records_; }

 private:
  void record(const Kernel& kernel, const WrongElements& wrong, const KernelSamples& samples);
  double least(const KernelBound& bound) const;

  RecordWriter& writer_;
  int repetitions_;
  std::vector<CaseRecord> records_;
  std::map<std::string, double> least_s_;  // by key
};

}  // namespace moe::measure
