#include "moe/measure/ops/op_bench.h"

#include <algorithm>
#include <benchmark/benchmark.h>
#include <cmath>

#include "moe/measure/core_probe.h"

namespace moe::measure {
namespace {

// For processes, which barriers release at different times: seconds and iterations of a sample.
constexpr double kSampleS = 10e-3, kMaxIterations = 20;

// Discards Google Benchmark's reports. It only runs and repeats the cases; their results per rank are kept elsewhere.
class Quiet : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

// Times the cases of one series. Their repetitions are in random order, so that a short disturbance of the machine
// affects one sample of many sizes instead of all samples of one size.
class Series {
 public:
  Series(const BenchRanks& ranks, const std::vector<OpCase>& cases, const OpSettings& settings, const OpSink& sink)
      : runner_(ranks, cases, settings.timeout_s), cases_(cases), settings_(settings), done_(sink.done) {
    if (settings_.iterations == 0 && ranks.processes == nullptr) settings_.iterations = 1;
  }
  OpRunner& runner() { return runner_; }
  /// Returns whether the share `share` of the time limit for all ops is used up.
  bool is_late(double share) const { return settings_.max_s > 0 && now_s() - begin_s_ > share * settings_.max_s; }

  // `share`: share of the time limit for all ops that these and all earlier cases may use.
  void run(std::span<const size_t> cases, double share) {
    if (cases.empty()) return;
    share_ = share;
    benchmark::ClearRegisteredBenchmarks();
    for (const size_t c : cases)
      benchmark::RegisterBenchmark(
          cases_[c].key().c_str(),
          [this, c, left = settings_.repetitions, result = OpResult{}](benchmark::State& state) mutable {
            for ([[maybe_unused]] const auto _ : state) sample(c, --left, result, state);
          })
          ->Iterations(1)
          ->Repetitions(settings_.repetitions)
          ->UseManualTime();
    Quiet quiet;
    benchmark::RunSpecifiedBenchmarks(&quiet);
    benchmark::ClearRegisteredBenchmarks();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  // Takes a sample of a case, unless the time is used up and the case has enough samples. `left`: number of samples to
  // come.
  void sample(size_t c, int left, OpResult& result, benchmark::State& state) {
    if (failure_) return state.SkipWithError("an earlier op failed");
    try {
      if (std::ssize(result.seconds) >= kMinSamples && is_late(share_)) {
        result.out_of_time = true;
        state.SetIterationTime(0);
        if (left == 0) done_(cases_[c], result);
        return;
      }
      if (result.seconds.empty()) warm_up(c, result);
      const OpSample sample = runner_.run(c, result.iterations);
      result.seconds.push_back(sample.seconds);
      result.overruns += sample.overruns;
      state.SetIterationTime(std::max(0.0, slowest(sample)));
      if (left == 0) done_(cases_[c], result);
    } catch (...) {
      failure_ = std::current_exception();
      state.SkipWithError("failed");
    }
  }

  void warm_up(size_t c, OpResult& result) {
    double took = 0;
    for (int i = 0; i < std::max(1, settings_.warm_ups); ++i) {
      const OpSample sample = runner_.run(c, 1, settings_.check && i == 0);
      if (i == 0) result.wrong = sample.wrong;
      took = slowest(sample);
    }
    const int enough = took > 0 ? static_cast<int>(std::ceil(std::min(kMaxIterations, kSampleS / took))) : 1;
    result.iterations = settings_.iterations > 0 ? settings_.iterations : enough;
  }

  static double slowest(const OpSample& sample) { return *std::ranges::max_element(sample.seconds); }

  OpRunner runner_;
  const std::vector<OpCase>& cases_;
  OpSettings settings_;
  const std::function<void(const OpCase&, const OpResult&)>& done_;
  double begin_s_ = now_s(), share_ = 1;
  std::exception_ptr failure_;
};

}  // namespace

void bench_ops(const BenchRanks& ranks, const std::vector<OpCase>& cases, const OpSettings& settings,
               const OpSink& sink, const std::vector<size_t>& open) {
  Series series(ranks, cases, settings, sink);
  if (!ranks.is_leader()) return series.runner().follow();
  interleave_repetitions();
  size_t done = 0;
  for (size_t begin = 0; begin < cases.size();) {
    std::vector<size_t> all, now;
    for (; all.empty() || (begin < cases.size() && cases[begin].series() == cases[all.front()].series()); ++begin) {
      all.push_back(begin);
      if (std::ranges::binary_search(open, begin)) now.push_back(begin);
    }
    done += now.size();
    const double share = open.empty() ? 1 : static_cast<double>(done) / static_cast<double>(open.size());
    series.run(now, share);
    if (!sink.again) continue;
    for (now = sink.again(all); !now.empty() && !series.is_late(share); now = sink.again(all)) series.run(now, share);
  }
  series.runner().release();
}

}  // namespace moe::measure
