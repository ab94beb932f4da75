#include "moe/measure/op_bench.h"

#include <algorithm>
#include <array>
#include <benchmark/benchmark.h>
#include <map>
#include <span>

#include "moe/comm/local/local_world.h"
#include "moe/layer/cpu/math.h"
#include "moe/measure/module_run.h"
#include "moe/measure/proxy.h"

namespace moe {
namespace {

constexpr int kRanks = kProxyNodes * kProxyRanksPerNode;

// A value that tells rank, place and nothing else.
float value_at(int rank, int64_t i) { return static_cast<float>(rank * 1000 + i % 997); }

class RankOps {
 public:
  RankOps(LocalWorld& world, int rank) : world_(world.communicator(rank)), device_(make_cpu_device()) {
    stream_ = device_->make_stream("op");
    start_ = device_->make_event();
    end_ = device_->make_event();
    intra_ = world_->split(rank / kProxyRanksPerNode, rank);
    inter_ = world_->split(rank % kProxyRanksPerNode, rank);
    rank_ = rank;
  }

  // Which ranks share a collective's group with this one.
  int group_of(const OpCase& c) const {
    if (c.network == Network::none) return rank_;
    return c.network == Network::intra ? rank_ / kProxyRanksPerNode : rank_ % kProxyRanksPerNode;
  }

  void prepare(const OpCase& c) {
    if (c.shape) return prepare_module(c);
    group_ = c.network == Network::intra ? intra_.get() : inter_.get();
    const int64_t size = group_->size();
    elements_ = std::max<int64_t>(1, c.real_elements / size) * size;  // every block alike
    const int64_t n = c.real_dim > 0 ? c.real_dim * c.real_dim : elements_;
    send_.resize(static_cast<size_t>(n));
    receive_.assign(static_cast<size_t>(n), 0);
    for (int64_t i = 0; i < n; ++i) send_[static_cast<size_t>(i)] = value_at(rank_, i);
    if (c.real_dim > 0) third_.assign(static_cast<size_t>(n), 1e-3F);
  }

  void run(const OpCase& c) {
    if (c.op == "allreduce") std::copy(send_.begin(), send_.end(), receive_.begin());
    const Pace pace{c.modelled_s * c.dilation, &overruns_};
    world_->barrier({*stream_, {}, "start of an op"});
    stream_->mark(*start_);
    enqueue(c, pace);
    stream_->record(*end_);
    stream_->synchronize();
  }

  double start_s() const { return start_->seconds(); }
  double end_s() const { return end_->seconds(); }

  // The first value that is not what the op says; empty if none.
  std::string check(const OpCase& c) const {
    if (c.real_dim > 0) return {};  // GEMM is checked where it is implemented
    if (c.shape) {
      const std::string wrong = repeated_run_error(*module_, c.phase);
      return wrong.empty() ? gradient_error(c.module) : wrong;
    }
    const int64_t size = group_->size(), block = elements_ / size, mine = group_->rank();
    const int64_t n = c.op == "reducescatter" ? block : elements_;
    for (int64_t i = 0; i < n; ++i) {
      float expected = 0;
      if (c.op == "alltoall") expected = value_at(world_rank(i / block, c), mine * block + i % block);
      if (c.op == "allgather") expected = value_at(world_rank(i / block, c), i % block);
      const int64_t at = c.op == "reducescatter" ? mine * block + i : i;
      if (c.op == "reducescatter" || c.op == "allreduce")
        for (int64_t r = 0; r < size; ++r) expected += value_at(world_rank(r, c), at);
      if (receive_[static_cast<size_t>(i)] != expected)
        return fmt::format("rank {}, element {}: found {}, expected {}", rank_, i, receive_[static_cast<size_t>(i)],
                           expected);
    }
    return {};
  }

  int64_t take_overruns() { return overruns_.exchange(0); }

 private:
  int world_rank(int64_t member, const OpCase& c) const {
    const int m = static_cast<int>(member);
    return c.network == Network::intra ? rank_ / kProxyRanksPerNode * kProxyRanksPerNode + m
                                       : m * kProxyRanksPerNode + rank_ % kProxyRanksPerNode;
  }

  // Modules of a series are made once each.
  void prepare_module(const OpCase& c) {
    if (series_ != c.series()) modules_.clear();
    series_ = c.series();
    auto& module = modules_[c.key()];
    if (module == nullptr) module = make_module_run(c.module, *c.shape);
    module_ = module.get();
    module_->prepare(c.phase);
  }

  void enqueue(const OpCase& c, Pace pace) {
    if (c.shape) return stream_->launch([this, phase = c.phase](void*) { module_->run(phase); });
    const int64_t block = elements_ / group_->size(), block_bytes = block * static_cast<int64_t>(sizeof(float));
    const CommCall call{*stream_, pace, c.op};
    if (c.op == "alltoall") return group_->alltoall(send_.data(), receive_.data(), block_bytes, call);
    if (c.op == "allgather") return group_->allgather(send_.data(), receive_.data(), block_bytes, call);
    if (c.op == "reducescatter")
      return group_->reducescatter(send_.data(), receive_.data(), block, DType::float32, call);
    if (c.op == "allreduce") return group_->allreduce(receive_.data(), elements_, DType::float32, call);
    stream_->launch([this, n = c.real_dim](void*) {
      const auto square = [n](std::vector<float>& v) { return matrix(TensorView(v.data(), {n, n}, DType::float32)); };
      gemm(square(send_), square(third_), square(receive_));
    });
    stream_->hold(*start_, pace);
  }

  std::unique_ptr<Communicator> world_, intra_, inter_;
  Communicator* group_ = nullptr;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> start_, end_;
  std::vector<float> send_, receive_, third_;
  std::string series_;
  std::map<std::string, std::unique_ptr<ModuleRun>> modules_;  // by key
  ModuleRun* module_ = nullptr;
  std::atomic<int64_t> overruns_{0};
  int64_t elements_ = 0;
  int rank_ = 0;
};

class OpBench {
 public:
  explicit OpBench(double timeout_s) : world_(kRanks, timeout_s), ranks_(kRanks) {
    world_.run([&](int rank) { ranks_[static_cast<size_t>(rank)] = std::make_unique<RankOps>(world_, rank); });
  }

  // A collective starts when the last rank of its group has come: barriers let ranks go one after the other.
  std::vector<double> repetition(const OpCase& c) {
    world_.run([&](int rank) {
      ranks_[static_cast<size_t>(rank)]->prepare(c);
      ranks_[static_cast<size_t>(rank)]->run(c);
    });
    std::vector<double> seconds;
    for (const auto& rank : ranks_) {
      double start = 0;
      for (const auto& other : ranks_)
        if (other->group_of(c) == rank->group_of(c)) start = std::max(start, other->start_s());
      seconds.push_back((rank->end_s() - start) / c.dilation);
    }
    return seconds;
  }

  // The warm-up, whose result is checked.
  std::string check(const OpCase& c) {
    repetition(c);
    overruns();
    for (const auto& rank : ranks_)
      if (std::string wrong = rank->check(c); !wrong.empty()) return wrong;
    return {};
  }

  int64_t overruns() {
    int64_t sum = 0;
    for (const auto& rank : ranks_) sum += rank->take_overruns();
    return sum;
  }

 private:
  LocalWorld world_;
  std::vector<std::unique_ptr<RankOps>> ranks_;
};

// Google Benchmark runs and repeats; what it reports is kept per rank by the cases themselves.
class Quiet : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

// The cases of one series. Their repetitions are interleaved at random, so that a moment in which the machine is busy
// with something else costs many sizes one sample each, and not one size all of its samples.
class Series {
 public:
  Series(OpBench& bench, int repetitions, const std::function<void(const OpCase&, const OpResult&)>& done)
      : bench_(bench), repetitions_(static_cast<size_t>(repetitions)), done_(done) {}

  void run(std::span<const OpCase> cases) {
    benchmark::ClearRegisteredBenchmarks();
    for (const OpCase& c : cases)
      benchmark::RegisterBenchmark(c.key().c_str(),
                                   [this, &c, result = OpResult{}](benchmark::State& state) mutable {
                                     for (auto _ : state) sample(c, result, state);
                                   })
          ->Iterations(1)
          ->Repetitions(static_cast<int>(repetitions_))
          ->UseManualTime();
    Quiet quiet;
    benchmark::RunSpecifiedBenchmarks(&quiet);
    benchmark::ClearRegisteredBenchmarks();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void sample(const OpCase& c, OpResult& result, benchmark::State& state) {
    if (failure_) return state.SkipWithError("an earlier op failed");
    try {
      if (result.seconds.empty()) result.wrong = bench_.check(c);
      result.seconds.push_back(bench_.repetition(c));
      result.overruns += bench_.overruns();
      state.SetIterationTime(std::max(0.0, *std::ranges::max_element(result.seconds.back())));
      if (result.seconds.size() == repetitions_) done_(c, result);
    } catch (...) {
      failure_ = std::current_exception();
      state.SkipWithError("failed");
    }
  }

  OpBench& bench_;
  size_t repetitions_;
  const std::function<void(const OpCase&, const OpResult&)>& done_;
  std::exception_ptr failure_;
};

void interleave() {
  std::string program = "moetune", flag = "--benchmark_enable_random_interleaving=true";
  std::array argv{program.data(), flag.data()};
  int argc = static_cast<int>(argv.size());
  benchmark::Initialize(&argc, argv.data());
}

}  // namespace

void bench_ops(const std::vector<OpCase>& cases, int repetitions, double timeout_s,
               const std::function<void(const OpCase&, const OpResult&)>& done) {
  interleave();
  OpBench bench(timeout_s);
  Series series(bench, repetitions, done);
  for (size_t begin = 0; begin < cases.size();) {
    size_t end = begin + 1;
    while (end < cases.size() && cases[end].series() == cases[begin].series()) ++end;
    series.run(std::span(cases).subspan(begin, end - begin));
    begin = end;
  }
}

}  // namespace moe
