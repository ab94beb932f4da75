#include "moe/measure/kernels/kernel_bench.h"

#include <algorithm>
#include <benchmark/benchmark.h>

#include "moe/base/statistics.h"
#include "moe/base/units.h"
#include "moe/measure/core_probe.h"

namespace moe::measure {
namespace {

constexpr double kKernelSampleS = 0.03;  // seconds of a sample; short kernels run several times in it
constexpr double kSlowS = 0.5;           // seconds of one run
constexpr int kSlowRepetitions = 2;

using Body = std::function<void(const Kernel&, benchmark::State&)>;

// Collects Google Benchmark's results: seconds of one run of each kernel, one number per repetition.
class Race : public benchmark::BenchmarkReporter {
 public:
  ~Race() override { benchmark::ClearRegisteredBenchmarks(); }

  benchmark::internal::Benchmark& add(const Kernel& kernel, const Body& body) {
    added_ = true;
    return *benchmark::RegisterBenchmark(kernel.key().c_str(), [this, &kernel, body](benchmark::State& state) {
      if (failure_) return state.SkipWithError("an earlier kernel failed");
      try {
        body(kernel, state);
      } catch (...) {
        failure_ = std::current_exception();
        state.SkipWithError("failed");
      }
    });
  }
  void run() {
    if (!added_) return;
    benchmark::RunSpecifiedBenchmarks(this);
    benchmark::ClearRegisteredBenchmarks();
    if (failure_) std::rethrow_exception(failure_);
  }
  const std::vector<double>& seconds(const Kernel& kernel) { return seconds_[kernel.key()]; }

  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs)
      if (run.run_type == Run::RT_Iteration && !run.error_occurred)
        seconds_[run.run_name.function_name].push_back(run.real_accumulated_time / static_cast<double>(run.iterations));
  }

 private:
  std::map<std::string, std::vector<double>> seconds_;
  std::exception_ptr failure_;
  bool added_ = false;
};

void run_warm(const Kernel& kernel, benchmark::State& state) {
  for ([[maybe_unused]] const auto _ : state) state.SetIterationTime(kernel.warm_seconds());
}

void run_all(const Kernel& kernel, benchmark::State& state) {
  for ([[maybe_unused]] const auto _ : state)
    if (kernel.seconds)
      state.SetIterationTime(kernel.seconds());
    else
      kernel.run();
}

std::string text_of(const WrongElements& wrong) {
  return fmt::format("{}; {}", counted(wrong.count, "wrong element"), wrong.first);
}

}  // namespace

std::string Kernel::key() const { return fmt::format("kernel/{}/{}", width, name); }

CaseRecord record_of(const Kernel& kernel, const WrongElements& wrong, const KernelSamples& samples, double of) {
  CaseRecord record;
  record.key = kernel.key();
  record.backend = "local";
  record.parameters = {{"op", "kernel"}, {"kernel", kernel.name}, {"model_dim", kernel.width}};
  for (const auto& [name, value] : kernel.shape) record.parameters.set(name, value);
  if (kernel.bytes > 0) record.parameters.set("bytes", kernel.bytes);
  if (!kernel.bound.name.empty()) record.parameters.set("bound", kernel.bound.name);
  if (wrong.count > 0) {
    record.status = CaseStatus::wrong;
    record.reason = text_of(wrong);
    return record;
  }
  const auto add = [&](std::string_view name, const std::vector<double>& seconds) {
    Samples& kept = record.samples.emplace_back(Samples{std::string(name), {}});
    for (const double s : seconds) kept.values.push_back({s});
  };
  add("seconds", samples.seconds);
  const double least = quantile(samples.seconds, 0);
  record.summary = {
      {"median_s", median(samples.seconds)}, {"least_s", least}, {"most_s", quantile(samples.seconds, 1)}};
  if (!samples.warm.empty()) {
    add("warm_seconds", samples.warm);
    record.summary.set("warm_s", quantile(samples.warm, 0));
  }
  if (kernel.bytes > 0) record.summary.set("bytes_per_s", kernel.bytes / least);
  if (of > 0) record.summary.set("share", kernel.bound.share(least, of));
  return record;
}

void KernelBench::run(std::span<const Kernel> group) {
  std::vector<const Kernel*> open;
  for (const Kernel& kernel : group)
    if (const CaseRecord* known = writer_.find(kernel.key()))
      min_seconds_[kernel.key()] = known->summary.number("least_s", known->key);
    else
      open.push_back(&kernel);
  interleave_repetitions();
  std::map<std::string, WrongElements> wrong;
  Race first, timed, warm;
  for (const Kernel* kernel : open)
    first
        .add(*kernel,
             [&](const Kernel& k, benchmark::State& state) {
               for ([[maybe_unused]] const auto _ : state) k.run();
               wrong[k.key()] = k.check();
             })
        .Iterations(1)
        ->UseRealTime();
  first.run();
  for (const Kernel* kernel : open) {
    if (wrong.at(kernel->key()).count > 0) continue;
    const bool slow = first.seconds(*kernel).at(0) >= kSlowS;
    auto& benchmark = timed.add(*kernel, run_all);
    benchmark.Repetitions(slow ? std::min(repetitions_, kSlowRepetitions) : repetitions_);
    if (kernel->seconds)
      benchmark.UseManualTime()->Iterations(1);
    else
      benchmark.UseRealTime()->MinTime(kKernelSampleS);
  }
  timed.run();
  for (const Kernel* kernel : open)  // Google Benchmark then runs all registered kernels
    if (kernel->warm_seconds && wrong.at(kernel->key()).count == 0)
      warm.add(*kernel, run_warm).Repetitions(repetitions_)->UseManualTime()->Iterations(1);
  warm.run();
  for (const Kernel* kernel : open)
    if (const auto& seconds = timed.seconds(*kernel); !seconds.empty())
      min_seconds_[kernel->key()] = quantile(seconds, 0);
  for (const Kernel& kernel : group) record(kernel, wrong[kernel.key()], {timed.seconds(kernel), warm.seconds(kernel)});
}

void KernelBench::record(const Kernel& kernel, const WrongElements& wrong, const KernelSamples& samples) {
  if (const CaseRecord* known = writer_.find(kernel.key())) {
    records_.push_back(*known);
    return;
  }
  records_.push_back(record_of(kernel, wrong, samples, min_seconds(kernel.bound)));
  writer_.append(records_.back());
}

double KernelBench::min_seconds(const KernelBound& bound) const {
  double sum = 0;
  for (const std::string& key : bound.kernels) {
    const auto known = min_seconds_.find(key);
    if (known == min_seconds_.end()) return 0;  // a kernel of the bound had a wrong result
    sum += known->second;
  }
  return sum;
}

}  // namespace moe::measure
