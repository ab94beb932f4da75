#pragma once
// A benchmark of kernels on one thread or one GPU. Each kernel is run once and its result checked; correct kernels are
// timed through Google Benchmark and recorded.
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "moe/measure/wrong_elements.h"
#include "moe/record/writer.h"

namespace moe::measure {

/// The speed limit of a kernel, given by other kernels, and the share of it that the kernel reaches.
struct KernelBound {
  std::string name;                  // "memcpy"
  std::vector<std::string> kernels;  // keys of the kernels whose times, added up, are the bound
  std::function<double(double seconds, double of)> share;
};

struct Kernel {
  std::string name;        // "tutel order"
  int64_t width = 0;       // M
  Fields shape = {};       // further fields that identify the kernel in its record
  double bytes = 0;        // bytes read and written; 0: not bound by memory
  KernelBound bound = {};  // no bound if it has no kernels
  std::function<void()> run = {};
  std::function<WrongElements()> check = {};  // checks the result of the first run
  std::function<double()> seconds = {};       // measures one run by the GPU's clock; empty: the host's clock is used
  /// As `seconds`, with the last run's data in the caches; empty: not measured.
  std::function<double()> warm_seconds = {};
  std::vector<TensorView> written = {};  // all outputs of the kernel

  std::string key() const;  // "kernel/1024/tutel order"
};

/// Seconds of a run, one number per repetition; `warm`: empty if not measured.
struct KernelSamples {
  std::vector<double> seconds, warm = {};
};

/// Returns the record of a kernel with these samples; the record of a wrong kernel has no times. `of`: seconds of its
/// bound, 0: unknown.
CaseRecord record_of(const Kernel& kernel, const WrongElements& wrong, const KernelSamples& samples, double of);

class KernelBench {
 public:
  /// `repetitions`: number of samples of each kernel; a kernel that takes half a second or more gets at most two.
  KernelBench(RecordWriter& writer, int repetitions) : writer_(writer), repetitions_(repetitions) {}

  /// Checks, times and records the kernels that the writer's run does not have yet. Samples of a group's kernels are
  /// interleaved, so that the machine's state affects all of them alike. The kernels of a
  /// KernelBound are in this or an earlier group.
  void run(std::span<const Kernel> group);

  const std::vector<CaseRecord>& records() const { return records_; }

 private:
  void record(const Kernel& kernel, const WrongElements& wrong, const KernelSamples& samples);
  double min_seconds(const KernelBound& bound) const;

  RecordWriter& writer_;
  int repetitions_;
  std::vector<CaseRecord> records_;
  std::map<std::string, double> min_seconds_;  // by key: smallest seconds
};

}  // namespace moe::measure
